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

// sum (16x8) += a (16x16) b (16x8)
__device__ inline void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

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

__device__ inline void synchronise() { __syncthreads(); }
__device__ inline void synchronise_warp() { __syncwarp(); }

// A value from the lane whose number differs in these bits.
template <class T> __device__ inline T exchange(T value, int bits) { return __shfl_xor_sync(0xffffffffu, value, bits); }

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
