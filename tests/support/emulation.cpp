// A GPU's blocks on a CPU, so that kernels can be tested where there is no GPU: every thread is a fiber, and
// fibers take turns wherever threads wait for one another or touch shared memory, in an order that nobody can rely
// on. Copies are made as late as they may be. It has the functions of tensor_cores.cu in plain C++.

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <type_traits>
#include <vector>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define __device__
#define __global__
#define __launch_bounds__(...)

struct Index {
    int x = 0, y = 0;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

static Index threadIdx, blockIdx, blockDim, gridDim;
static std::vector<u8> shared_bytes;

// Fibers ----------------------------------------------------------------------------------------------------

struct Meeting {  // of all threads of a warp or a block
    int arrived = 0, held = 0;
};

struct Fiber {
    ucontext_t entry;
    jmp_buf at;
    bool started = false, finished = false;
};

static jmp_buf scheduler;
static std::vector<Fiber> fibers;
static std::vector<Meeting> warps;
static Meeting whole_block;
static int running;

static void give_way() {  // swapcontext would ask the kernel twice for a signal mask that nobody changes
    int me = running;
    if (!_setjmp(fibers[me].at)) _longjmp(scheduler, 1);
    threadIdx.x = running = me;
}

static void resume(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.started) _longjmp(fiber.at, 1);
    fiber.started = true;
    setcontext(&fiber.entry);
}

static void meet(Meeting& meeting, int members, const std::function<void()>& work) {
    int turn = meeting.held;
    if (++meeting.arrived == members) {
        work();
        meeting.arrived = 0, meeting.held++;
    }
    while (meeting.held == turn) give_way();
}

static void run_block(int threads, const std::function<void()>& kernel) {
    static const std::function<void()>* body;
    body = &kernel;
    static std::vector<std::vector<u8>> stacks;
    stacks.resize(threads);
    fibers.assign(threads, {});
    warps.assign(threads / 32, {});
    whole_block = {};
    blockDim.x = threads;
    for (int i = 0; i < threads; i++) {
        stacks[i].resize(1 << 17);
        ucontext_t& entry = fibers[i].entry;
        getcontext(&entry);
        entry.uc_stack.ss_sp = stacks[i].data();
        entry.uc_stack.ss_size = stacks[i].size();
        makecontext(&entry, +[] { (*body)(); fibers[running].finished = true; _longjmp(scheduler, 1); }, 0);
    }
    for (int left = threads; left;) {
        int warp = rand() % (threads / 32), turns = rand() % 8, first = rand() % 32;
        for (int turn = 0; turn < turns * 32; turn++) {
            int i = warp * 32 + (first + turn) % 32;
            if (fibers[i].finished) continue;
            threadIdx.x = running = i;
            resume(fibers[i]);
            left -= fibers[i].finished;
        }
    }
}

static void maybe_give_way() {
    if (rand() % 32 == 0) give_way();
}

// What tensor_cores.cu has -------------------------------------------------------------------------------------

static float number(u16 half) {
    u32 bits = (u32)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static u32 rounded(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

static u8* shared_at(u32 address, u32 size) {
    if (address % (size < 16 ? size : 16) || address + size > shared_bytes.size()) {
        fprintf(stderr, "thread %d of block %d, %d: address %u of %u bytes in a memory of %zu\n", threadIdx.x,
                blockIdx.x, blockIdx.y, address, size, shared_bytes.size());
        abort();
    }
    return shared_bytes.data() + address;
}

template <class T> static T get(u32 address) {
    maybe_give_way();
    T value;
    memcpy(&value, shared_at(address, sizeof(T)), sizeof(T));
    return value;
}
template <class T> static void set(u32 address, T value) {
    maybe_give_way();
    memcpy(shared_at(address, sizeof(T)), &value, sizeof(T));
}

static u32 shared_start() { return 0; }
static void put(u32 address, u32 value) { set(address, value); }
static void put_half(u32 address, u16 value) { set(address, value); }
static void put_float(u32 address, float value) { set(address, value); }
static void put_four(u32 address, uint4 value) { set(address, value); }
static u32 get(u32 address) { return get<u32>(address); }
static u16 get_half(u32 address) { return get<u16>(address); }
static float get_float(u32 address) { return get<float>(address); }
static uint4 get_four(u32 address) { return get<uint4>(address); }
static u32 pair(float first, float second) { return rounded(first) | rounded(second) << 16; }

template <bool TURNED> static void take_matrices(u32 (&matrix)[4], u32 row) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    static std::vector<std::vector<u32>> addresses, answers;
    if ((int)addresses.size() <= warp) addresses.resize(warp + 1), answers.resize(warp + 1);
    addresses[warp].resize(32), answers[warp].resize(128);
    addresses[warp][lane] = row;
    meet(warps[warp], 32, [&] {
        u16 numbers[4][8][8];
        for (int l = 0; l < 32; l++) memcpy(numbers[l / 8][l % 8], shared_at(addresses[warp][l], 16), 16);
        for (int l = 0; l < 32; l++)
            for (int m = 0; m < 4; m++) {
                int g = l / 4, t = l % 4 * 2;
                u16 low = TURNED ? numbers[m][t][g] : numbers[m][g][t];
                u16 high = TURNED ? numbers[m][t + 1][g] : numbers[m][g][t + 1];
                answers[warp][l * 4 + m] = low | (u32)high << 16;
            }
    });
    for (int m = 0; m < 4; m++) matrix[m] = answers[warp][lane * 4 + m];
}

static void store_turned_matrices(const u32 (&matrix)[4], u32 row) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct Rows {
        u32 matrix[32][4], row[32];
    };
    static std::vector<Rows> all;
    if ((int)all.size() <= warp) all.resize(warp + 1);
    memcpy(all[warp].matrix[lane], matrix, 16);
    all[warp].row[lane] = row;
    meet(warps[warp], 32, [&] {
        for (int l = 0; l < 32; l++)
            for (int n = 0; n < 8; n++) {
                u32 both = all[warp].matrix[n * 4 + l % 8 / 2][l / 8];
                ((u16*)shared_at(all[warp].row[l], 16))[n] = l % 2 ? both >> 16 : both & 0xffff;
            }
    });
}

static void load_matrices(u32 (&matrix)[4], u32 row) { take_matrices<false>(matrix, row); }
static void load_turned_matrices(u32 (&matrix)[4], u32 row) { take_matrices<true>(matrix, row); }

static void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    struct Factors {
        u32 a[32][4], b[32][2];
        float product[16][8];
    };
    static std::vector<Factors> all;
    if ((int)all.size() <= warp) all.resize(warp + 1);
    memcpy(all[warp].a[lane], a, 16);
    all[warp].b[lane][0] = b0, all[warp].b[lane][1] = b1;
    meet(warps[warp], 32, [&] {
        Factors& f = all[warp];
        float first[16][16], second[16][8];
        for (int l = 0; l < 32; l++)
            for (int half = 0; half < 2; half++) {
                int g = l / 4, t = l % 4 * 2 + half;
                auto of = [&](u32 both) { return number(half ? both >> 16 : both & 0xffff); };
                first[g][t] = of(f.a[l][0]), first[g + 8][t] = of(f.a[l][1]);
                first[g][t + 8] = of(f.a[l][2]), first[g + 8][t + 8] = of(f.a[l][3]);
                second[t][g] = of(f.b[l][0]), second[t + 8][g] = of(f.b[l][1]);
            }
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) {
                float total = 0;
                for (int k = 0; k < 16; k++) total += first[m][k] * second[k][n];
                f.product[m][n] = total;
            }
    });
    int g = lane / 4, t = lane % 4 * 2;
    const Factors& f = all[warp];
    sum[0] += f.product[g][t], sum[1] += f.product[g][t + 1];
    sum[2] += f.product[g + 8][t], sum[3] += f.product[g + 8][t + 1];
}

// Products of four warps: made as late as they may be, when somebody waits for them.
struct WideProduct {
    int arrived = 0;
    float* sum[128];
    u32 a[128][4], low, high;
    int groups, add;
};
static std::map<int, std::vector<WideProduct>> wide_products;  // by four warps
static std::map<int, Meeting> four_warps;

static void make_product(const WideProduct& product) {
    int plane = product.low >> 16 & 0x3fff;
    for (int group = 0; group < product.groups; group++) {
        float b[8][16];
        for (int n = 0; n < 8; n++)
            for (int k = 0; k < 16; k++) {
                u32 chunk = (product.low & 0x3fff) + group * product.high + n + k / 8 * plane;
                b[n][k] = number(((u16*)shared_at(chunk * 16, 16))[k % 8]);
            }
        for (int thread = 0; thread < 128; thread++)
            for (int e = 0; e < 4; e++) {
                int lane = thread % 32, row = lane / 4, first = thread - lane + row * 4, column = lane % 4 * 2 + e % 2;
                float total = product.add ? product.sum[thread][group * 4 + e] : 0;
                for (int k = 0; k < 16; k++) {
                    u32 both = product.a[first + k % 8 / 2][k / 8 * 2 + e / 2];
                    total += number(k % 2 ? both >> 16 : both & 0xffff) * b[column][k];
                }
                product.sum[thread][group * 4 + e] = total;
            }
    }
}

template <int G> static void multiply_wide(float (&sum)[G][4], const u32 (&a)[4], u32 low, u32 high, int add) {
    int thread = threadIdx.x % 128;
    auto& products = wide_products[threadIdx.x / 128];
    size_t i = 0;
    while (i < products.size() && products[i].sum[thread]) i++;  // the first that lacks this thread's part
    if (i == products.size()) products.push_back({}), products[i].low = low, products[i].high = high;
    WideProduct& product = products[i];
    if (product.low != low || product.high != high) abort();
    product.groups = G, product.add = add, product.arrived++;
    product.sum[thread] = sum[0];
    memcpy(product.a[thread], a, 16);
}
static int of_first_lane(int value) { return value; }
template <int G> static void hold(float (&)[G][4]) {}
static void begin_products() {}
static void end_products() {}
template <int COUNT> static void wait_for_products() {
    static_assert(COUNT == 0);
    int number = threadIdx.x / 128;
    meet(four_warps[number], 128, [&] {
        for (const WideProduct& product : wide_products[number]) {
            if (product.arrived != 128) abort();
            make_product(product);
        }
        wide_products[number].clear();
    });
}

static void synchronise() { meet(whole_block, blockDim.x, [] {}); }
static void synchronise_warp() { meet(warps[threadIdx.x / 32], 32, [] {}); }

struct Asked {
    u32 to, bytes;
    const void* from;
};
static std::map<int, std::vector<std::vector<Asked>>> asked;  // by thread, in parts

template <int BYTES> static void ask_for(u32 to, const void* from) {
    if ((u64)from % BYTES) abort();
    memset(shared_at(to, BYTES), 0xff, BYTES);  // whoever still reads there sees it
    auto& mine = asked[threadIdx.x];
    if (mine.empty()) mine.push_back({});
    mine.back().push_back({to, BYTES, from});
}
static void end_asking() {
    auto& mine = asked[threadIdx.x];
    if (mine.empty()) mine.push_back({});
    mine.push_back({});
}
template <int COUNT> static void wait_for_asked() {
    auto& mine = asked[threadIdx.x];
    while ((int)mine.size() > COUNT + 1) {  // the last part has not ended
        for (const Asked& one : mine.front()) memcpy(shared_at(one.to, one.bytes), one.from, one.bytes);
        mine.erase(mine.begin());
    }
}
static void wait_for_all() {
    for (const auto& part : asked[threadIdx.x])
        for (const Asked& one : part) memcpy(shared_at(one.to, one.bytes), one.from, one.bytes);
    asked[threadIdx.x].clear();
}

template <class T> static T exchange(T value, int bits) {
    static std::vector<std::vector<T>> given, taken;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if ((int)given.size() <= warp) given.resize(warp + 1), taken.resize(warp + 1);
    given[warp].resize(32);
    given[warp][lane] = value;
    meet(warps[warp], 32, [&] { taken[warp] = given[warp]; });
    return taken[warp][lane ^ bits];
}

static float __uint_as_float(u32 bits) { return number(bits >> 16); }
static float __fdividef(float a, float b) { return a / b; }
#define __expf expf  // a name of the C library, too

struct Copy {
    void* to;
    u32 from, bytes;
};
static std::vector<Copy> pending;

static void publish() {}
static void copy_out(void* to, u32 from, u32 bytes) { pending.push_back({to, from, bytes}); }
static void wait_for_copies_out() {
    for (const Copy& copy : pending) {
        shared_at(copy.from + copy.bytes - 16, 16);
        memcpy(copy.to, shared_at(copy.from, 16), copy.bytes);
    }
    pending.clear();
}

struct Barrier {
    int members, missing, bytes = 0, passed = 0;

    void look() {
        if (missing == 0 && bytes == 0) missing = members, passed++;
    }
};
static std::map<u32, Barrier> barriers;

static void make_barrier(u32 barrier, u32 members) { barriers[barrier] = {(int)members, (int)members}; }
static void come_to(u32 barrier) { barriers.at(barrier).missing--, barriers.at(barrier).look(); }
static void come_and_expect(u32 barrier, u32 bytes) { barriers.at(barrier).bytes += bytes, come_to(barrier); }
struct Incoming {
    u32 to, bytes, barrier;
    const void* from;
};
static std::vector<Incoming> incoming;

static void copy_in(u32 to, const void* from, u32 bytes, u32 barrier) {
    shared_at(to, 16), shared_at(to + bytes - 16, 16);
    if ((u64)from % 16 || bytes % 16) abort();
    memset(shared_bytes.data() + to, 0xff, bytes);  // as above
    incoming.push_back({to, bytes, barrier, from});
}
static void arrive(u32 barrier) {
    std::vector<Incoming> others;
    for (const Incoming& one : incoming) {
        if (one.barrier != barrier) {
            others.push_back(one);
            continue;
        }
        memcpy(shared_bytes.data() + one.to, one.from, one.bytes);
        barriers.at(barrier).bytes -= one.bytes, barriers.at(barrier).look();
    }
    incoming = others;
}
static void wait_for(u32 barrier, u32 parity) {
    for (int tries = 0; barriers.at(barrier).passed % 2 == (int)parity; tries++) {
        if (tries > 1 << 16) abort();  // nobody will come
        if (rand() % 256 == 0) arrive(barrier);  // when it has been waited for long enough
        give_way();
    }
}

#include KERNELS

template <class... Parameters, class... Arguments>
static void launch(void (*kernel)(Parameters...), int x, int y, int threads, int memory, Arguments... arguments) {
    gridDim = {x, y};
    for (int row = 0; row < y; row++)
        for (int column = 0; column < x; column++) {
            shared_bytes.assign(memory, 0xff);  // not a number
            blockIdx = {column, row};
            barriers.clear(), four_warps.clear();
            run_block(threads, [=] { kernel((Parameters)arguments...); });
            if (!pending.empty() || !incoming.empty()) abort();  // a block ended before its copies
            for (const auto& thread : asked)
                for (const auto& part : thread.second)
                    if (!part.empty()) abort();
            asked.clear();
        }
}

#define LAUNCHER(name)                                                                                      \
    extern "C" void launch_##name(int x, int y, int threads, int memory, u64* arguments) {                  \
        launch_from(name, x, y, threads, memory, arguments);                                                \
    }

template <class T> static T argument(u64 value) {  // a structure is given by its address
    if constexpr (std::is_class_v<T>) return *(const T*)value;
    else return (T)value;
}

template <class... Parameters, int... I>
static void launch_with(void (*kernel)(Parameters...), int x, int y, int threads, int memory, u64* arguments,
                        std::integer_sequence<int, I...>) {
    launch(kernel, x, y, threads, memory, argument<Parameters>(arguments[I])...);
}
template <class... Parameters>
static void launch_from(void (*kernel)(Parameters...), int x, int y, int threads, int memory, u64* arguments) {
    launch_with(kernel, x, y, threads, memory, arguments,
                std::make_integer_sequence<int, (int)sizeof...(Parameters)>());
}

#ifndef LAUNCHERS
#define LAUNCHERS                                                                                           \
    LAUNCHER(pack) LAUNCHER(first) LAUNCHER(forward) LAUNCHER(backward) LAUNCHER(weight_gradient)           \
    LAUNCHER(first_weight_gradient) LAUNCHER(total)
#endif
LAUNCHERS
