/* Threads that share a kernel's work: a part of cpu.c.

   A kernel is called with whole numbers and pointers alone, which the calling conventions of Linux
   pass alike and whose superfluous ones a function ignores; so one type of function fits them all.
   Its last argument is the counter off which threads take parts (SHARE in cpu.c). */

#include <pthread.h>

enum { MOST_ARGUMENTS = 20, PATIENCE = 4000 };

typedef long number;
typedef void kernel(number, number, number, number, number, number, number, number, number, number,
                    number, number, number, number, number, number, number, number, number, number);

struct work {
  kernel *function;
  number arguments[MOST_ARGUMENTS];
};

static void take_parts(void *given) {
  const struct work *work = given;
  const number *a = work->arguments;
  work->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12],
                 a[13], a[14], a[15], a[16], a[17], a[18], a[19]);
}

/* With the threads of torch, which wait for work by spinning: others would have to share a core with
   them. `parallel` is GOMP_parallel of the library that torch itself uses. */
void share_with_torch(struct work *work, long threads,
                      void (*parallel)(void (*)(void *), void *, unsigned, unsigned)) {
  parallel(take_parts, work, threads, 0);
}

/* Threads of our own. They come when they are called, and those whose core is busy come too late to
   be let in: no one waits for them. After a kernel they spin for some 50 us, because the next one
   often follows at once, and then sleep. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, entrance = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static struct work *open_work;       /* what helpers may join */
static long places, inside, helpers; /* how many may still join; are at work; exist */

INLINE void pause_briefly(void) {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

static void *help(void *unused) {
  (void)unused;
  for (;;) {
    for (int k = 0; k < PATIENCE && !__atomic_load_n(&places, __ATOMIC_ACQUIRE); k++)
      pause_briefly();
    pthread_mutex_lock(&lock);
    while (!places) pthread_cond_wait(&called, &lock);
    struct work *work = open_work;
    places--, inside++;
    pthread_mutex_unlock(&lock);
    take_parts(work);
    __atomic_fetch_sub(&inside, 1, __ATOMIC_RELEASE);
  }
  return NULL;
}

/* Start what helpers are missing; as many as there are if no more can be started. */
static void hire(long wanted) {
  for (pthread_t thread; helpers < wanted; helpers++) {
    if (pthread_create(&thread, NULL, help, NULL)) return;
    pthread_detach(thread);
  }
}

/* The caller and at most threads - 1 helpers. Who calls while they are busy works alone. */
void share_with_helpers(struct work *work, long threads) {
  if (threads < 2 || pthread_mutex_trylock(&entrance)) return take_parts(work);
  hire(threads - 1);
  pthread_mutex_lock(&lock);
  open_work = work;
  __atomic_store_n(&places, smaller(threads - 1, helpers), __ATOMIC_RELEASE);
  pthread_cond_broadcast(&called);
  pthread_mutex_unlock(&lock);
  take_parts(work);
  pthread_mutex_lock(&lock);
  __atomic_store_n(&places, 0, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
  while (__atomic_load_n(&inside, __ATOMIC_ACQUIRE)) sched_yield();  /* at most a part is left */
  pthread_mutex_unlock(&entrance);
}

/* A process that was forked has none of its parent's threads. */
static void forget(void) {
  helpers = places = inside = 0;
  pthread_mutex_init(&lock, NULL), pthread_mutex_init(&entrance, NULL);
  pthread_cond_init(&called, NULL);
}
__attribute__((constructor)) static void prepare_for_forks(void) {
  pthread_atfork(NULL, NULL, forget);
}
