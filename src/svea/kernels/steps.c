/* Optimisers' steps and slow targets, over all tensors of a network at once: a part of cpu.c.

   A part of the work is a part of all numbers, as if they stood in one row: tensors are of very
   different sizes. */

/* For every tensor t, its numbers `from` to `to` that are in a part; they may be none. */
#define IN_TENSORS(PART)                                                                           \
  for (long t = 0, before = 0, from, to;                                                           \
       t < count && (from = first_in(PART), to = end_in(PART), 1); before += size[t++])
#define first_in(PART) (all * PART / CHUNKS > before ? all * PART / CHUNKS - before : 0)
#define end_in(PART) shorter(all * (PART + 1) / CHUNKS - before, size[t])
INLINE long shorter(long a, long b) { return a < b ? a : b; }

/* The norm of all gradients, by one thread: sharing takes as long as the sums. If it is finite,
   every tensor's steps are one more. */
void judge(const float *const *gradient, float *const *steps, const long *size, long count,
           float *norm, long *next) {
  (void)next;
  double total = 0;
  for (long t = 0; t < count; t++) {
    vector squares[4] = {{0}};
    long k = 0;
    for (; k + 4 * LANES <= size[t]; k += 4 * LANES)
      UNROLLED for (int i = 0; i < 4; i++) {
        const vector value = read(gradient[t] + k + i * LANES);
        squares[i] += value * value;
      }
    const vector sum = squares[0] + squares[1] + squares[2] + squares[3];
    for (int lane = 0; lane < LANES; lane++) total += sum[lane];
    for (; k < size[t]; k++) total += gradient[t][k] * gradient[t][k];
  }
  *norm = __builtin_sqrt(total);
  for (long t = 0; t < count && *norm - *norm == 0; t++) *steps[t] += 1;
}

/* Adam's step, unless the gradient's norm is not finite; numbers are rate, betas and epsilon. */
void adam(float *const *parameter, const float *const *gradient, float *const *moment,
          float *const *square, float *const *steps, const long *size, long count, long all,
          const double *numbers, const float *norm, long *next) {
  if (!(*norm - *norm == 0)) return;
  SHARE(part) IN_TENSORS(part) {
    float *restrict p = parameter[t], *restrict m = moment[t], *restrict v = square[t];
    const float *restrict g = gradient[t];
    const float rate = numbers[0] / (1 - __builtin_pow(numbers[1], *steps[t]));
    const float root = __builtin_sqrt(1 - __builtin_pow(numbers[2], *steps[t]));
    const float new = 1 - numbers[1], kept = numbers[2], fresh = 1 - numbers[2];
    const float epsilon = numbers[3];
    for (long k = from; k < to; k++) {
      m[k] += new * (g[k] - m[k]);
      v[k] = kept * v[k] + fresh * g[k] * g[k];
      p[k] -= rate * m[k] / (__builtin_sqrtf(v[k]) / root + epsilon);
    }
  }
}

/* Slow tensors go a part of the way to the ones that they follow, each at its own rate. */
void follow(float *const *slow, const float *const *fast, const long *size, long count, long all,
            const float *rates, long *next) {
  SHARE(part) IN_TENSORS(part) {
    float *restrict s = slow[t];
    const float *restrict f = fast[t];
    const float rate = rates[t];
    for (long k = from; k < to; k++) s[k] = rate < 1 ? s[k] + rate * (f[k] - s[k]) : f[k];
  }
}
