// What the trunk's kernels ask of a GPU that C++ has no words for: matrix products of a warp, loads of
// matrices, and copies that run beside everything else (compute capability 9 and above).
// tests/emulation.cpp has the same functions for a CPU.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

extern __shared__ __align__(128) u8 shared_memory[];

__device__ inline u32 shared_start() { return (u32)__cvta_generic_to_shared(shared_memory); }

// Four 8x8 matrices of bfloat16; each lane names a row of one of them, and holds two numbers of each.
__device__ inline void load_matrices(u32 (&matrix)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3]) : "r"(row) : "memory");
}

__device__ inline void load_turned_matrices(u32 (&matrix)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3]) : "r"(row) : "memory");
}

// The same of four 8x8 matrices into shared memory: rows that lanes name there are columns of what they hold.
__device__ inline void store_turned_matrices(const u32 (&matrix)[4], u32 row) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(matrix[0]),
                 "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3]) : "memory");
}

// sum (16x8) += a (16x16) b (16x8)
__device__ inline void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Products of four warps, which run while their threads continue. sum (64 x 8 G) += a (64x16) b (16 x 8 G): a lane has
// of `a` and of the sum what it has of 16 of their rows in the product above; b is read from shared memory, where its
// columns are eight by eight neighbours of 16 bytes. `low` says where the first lies and, above, how far it is to
// their other eight channels, `high` how far from eight columns to the next; all in 16 bytes.
#if WIDE
#define SUMS_1 "%0, %1, %2, %3"
#define SUMS_2 SUMS_1 ", %4, %5, %6, %7"
#define SUMS_3 SUMS_2 ", %8, %9, %10, %11"
#define SUMS_4 SUMS_3 ", %12, %13, %14, %15"
#define SUMS_5 SUMS_4 ", %16, %17, %18, %19"
#define SUMS_6 SUMS_5 ", %20, %21, %22, %23"
#define SUMS_7 SUMS_6 ", %24, %25, %26, %27"
#define SUMS_8 SUMS_7 ", %28, %29, %30, %31"
#define SUMS_9 SUMS_8 ", %32, %33, %34, %35"
#define SUMS_10 SUMS_9 ", %36, %37, %38, %39"
#define SUMS_11 SUMS_10 ", %40, %41, %42, %43"
#define NAMES_1 "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[0][2]), "+f"(sum[0][3])
#define NAMES_2 NAMES_1, "+f"(sum[1][0]), "+f"(sum[1][1]), "+f"(sum[1][2]), "+f"(sum[1][3])
#define NAMES_3 NAMES_2, "+f"(sum[2][0]), "+f"(sum[2][1]), "+f"(sum[2][2]), "+f"(sum[2][3])
#define NAMES_4 NAMES_3, "+f"(sum[3][0]), "+f"(sum[3][1]), "+f"(sum[3][2]), "+f"(sum[3][3])
#define NAMES_5 NAMES_4, "+f"(sum[4][0]), "+f"(sum[4][1]), "+f"(sum[4][2]), "+f"(sum[4][3])
#define NAMES_6 NAMES_5, "+f"(sum[5][0]), "+f"(sum[5][1]), "+f"(sum[5][2]), "+f"(sum[5][3])
#define NAMES_7 NAMES_6, "+f"(sum[6][0]), "+f"(sum[6][1]), "+f"(sum[6][2]), "+f"(sum[6][3])
#define NAMES_8 NAMES_7, "+f"(sum[7][0]), "+f"(sum[7][1]), "+f"(sum[7][2]), "+f"(sum[7][3])
#define NAMES_9 NAMES_8, "+f"(sum[8][0]), "+f"(sum[8][1]), "+f"(sum[8][2]), "+f"(sum[8][3])
#define NAMES_10 NAMES_9, "+f"(sum[9][0]), "+f"(sum[9][1]), "+f"(sum[9][2]), "+f"(sum[9][3])
#define NAMES_11 NAMES_10, "+f"(sum[10][0]), "+f"(sum[10][1]), "+f"(sum[10][2]), "+f"(sum[10][3])
#define MULTIPLY_WIDE(G, COLUMNS, A0, A1, A2, A3, B, ADD)                                                       \
    __device__ inline void multiply_wide(float (&sum)[G][4], const u32 (&a)[4], u32 low, u32 high, int add) {       \
        u64 b = (u64)high << 32 | low;                                                                              \
        asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD ", 0;\n"                                         \
                     "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" SUMS_##G "}, "              \
                     "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", add, 1, 1, 0;\n}"                          \
                     : NAMES_##G : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                   \
    }                                                                                                               \
    __device__ inline void hold(float (&sum)[G][4]) { asm volatile("" : NAMES_##G::"memory"); }
MULTIPLY_WIDE(1, 8, 4, 5, 6, 7, 8, 9)
MULTIPLY_WIDE(2, 16, 8, 9, 10, 11, 12, 13)
MULTIPLY_WIDE(3, 24, 12, 13, 14, 15, 16, 17)
MULTIPLY_WIDE(4, 32, 16, 17, 18, 19, 20, 21)
MULTIPLY_WIDE(5, 40, 20, 21, 22, 23, 24, 25)
MULTIPLY_WIDE(6, 48, 24, 25, 26, 27, 28, 29)
MULTIPLY_WIDE(7, 56, 28, 29, 30, 31, 32, 33)
MULTIPLY_WIDE(8, 64, 32, 33, 34, 35, 36, 37)
MULTIPLY_WIDE(9, 72, 36, 37, 38, 39, 40, 41)
MULTIPLY_WIDE(10, 80, 40, 41, 42, 43, 44, 45)
MULTIPLY_WIDE(11, 88, 44, 45, 46, 47, 48, 49)

// Around products that go together: registers are theirs until they have been waited for, all but the last COUNT times.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int COUNT> __device__ inline void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}
#endif

// Two numbers as bfloat16, the first in the lower half.
__device__ inline u32 pair(float first, float second) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

__device__ inline void put(u32 address, u32 value) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ inline void put_half(u32 address, u16 value) {
    asm volatile("st.shared.b16 [%0], %1;" ::"r"(address), "h"(value) : "memory");
}

__device__ inline void put_float(u32 address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ inline void put_four(u32 address, uint4 v) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

__device__ inline u32 get(u32 address) {
    u32 value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

__device__ inline u16 get_half(u32 address) {
    u16 value;
    asm volatile("ld.shared.b16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
    return value;
}

__device__ inline float get_float(u32 address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

__device__ inline uint4 get_four(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
    return v;
}

// 4, 8 or 16 bytes on their way into shared memory while the thread continues; it waits for all that it asked for.
template <int BYTES> __device__ inline void ask_for(u32 to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES) : "memory");
}

__device__ inline void wait_for_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// The same in parts: it waits for all but the last COUNT.
__device__ inline void end_asking() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int COUNT> __device__ inline void wait_for_asked() {
    asm volatile("cp.async.wait_group %0;" ::"n"(COUNT) : "memory");
}

__device__ inline void synchronise() { __syncthreads(); }
__device__ inline void synchronise_warp() { __syncwarp(); }

// A value from the lane whose number differs in these bits.
template <class T> __device__ inline T exchange(T value, int bits) { return __shfl_xor_sync(0xffffffffu, value, bits); }

__device__ inline int of_first_lane(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// Bulk copies: the thread that wrote the data calls `publish` first; one thread of the block starts them.
__device__ inline void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ inline void copy_out(void* to, u32 from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the memory that copies read may be written again.
__device__ inline void wait_for_copies_out() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// A barrier that is passed, time and again, when so many have come and all bytes that are expected.
__device__ inline void make_barrier(u32 barrier, u32 members) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(members) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void come_to(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void come_and_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ inline void copy_in(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ inline void wait_for(u32 barrier, u32 parity) {
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(barrier), "r"(parity) : "memory");
}
