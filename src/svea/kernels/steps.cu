// Adam, the norm of its gradient, and target networks that follow, over all multiprocessors: the library's kernels
// take 65,536 numbers to a block, so that they occupy a third of a large GPU.

constexpr int MOST = 48, CHUNK = 4096;  // tensors of a launch, numbers to a block
constexpr int IN_FLIGHT = 4;            // numbers that a thread waits for together

// Copies of weights in bfloat16, as heads.cu multiplies with them: rows of `columns` numbers, `stride` apart.
struct Copies {
    u16* at[MOST];  // nowhere if there is none
    int columns[MOST], stride[MOST];
};

struct Tensors {
    float *parameter[MOST], *moment[MOST], *square[MOST], *step[MOST];
    const float* gradient[MOST];
    int first[MOST + 1];  // blocks before a tensor's own
    int size[MOST];
    float rate, beta1, beta2, epsilon;
    Copies copies;
};

struct Pairs {
    float* slow[MOST];
    const float* fast[MOST];
    int first[MOST + 1], size[MOST];
    float rate[MOST];
    Copies copies;
};

// A new weight goes into its copy, too.
__device__ inline void copy_weight(u16* copy, int columns, int stride, int i, float weight) {
    if (copy) copy[columns == stride ? i : i / columns * stride + i % columns] = (u16)pair(weight, 0.0f);
}

// The tensor that a block works on, and the end of its numbers.
template <class Table> __device__ inline int tensor_of(const Table& table) {
    int number = 0;
    while ((int)blockIdx.x >= table.first[number + 1]) number++;
    return number;
}

// Sums of squares, a block each.
extern "C" __global__ void squares(Tensors tensors, float* partial) {
    int t = tensor_of(tensors), begin = (blockIdx.x - tensors.first[t]) * CHUNK;
    const float* gradient = tensors.gradient[t];
    float sum = 0.0f;
#pragma unroll
    for (int n = 0; n < CHUNK / 256; n++) {
        int i = begin + n * 256 + threadIdx.x;
        float g = i < tensors.size[t] ? gradient[i] : 0.0f;
        sum += g * g;
    }
    for (int bits = 1; bits < 32; bits *= 2) sum += exchange(sum, bits);
    u32 memory = shared_start();
    if (threadIdx.x % 32 == 0) put_float(memory + threadIdx.x / 32 * 4, sum);
    synchronise();
    if (threadIdx.x) return;
    for (int warp = 1; warp < 8; warp++) sum += get_float(memory + warp * 4);
    partial[blockIdx.x] = sum;
}

// The gradient's norm; if it is finite, every tensor's step is counted. One block. `scalars`: the norm, whether it is
// finite, the rate over the first moment's bias, the root of the second's.
extern "C" __global__ void judge(Tensors tensors, const float* partial, int blocks, int count, float* scalars) {
    float sum = 0.0f;
    for (int block = threadIdx.x; block < blocks; block += 256) sum += partial[block];
    for (int bits = 1; bits < 32; bits *= 2) sum += exchange(sum, bits);
    u32 memory = shared_start();
    if (threadIdx.x % 32 == 0) put_float(memory + threadIdx.x / 32 * 4, sum);
    synchronise();
    float norm = 0.0f;
    for (int warp = 0; warp < 8; warp++) norm += get_float(memory + warp * 4);
    norm = sqrtf(norm);
    bool finite = norm - norm == 0.0f;
    if ((int)threadIdx.x < count) {
        float step = *tensors.step[threadIdx.x] + (finite ? 1.0f : 0.0f);
        *tensors.step[threadIdx.x] = step;
        if (threadIdx.x == 0) {
            scalars[0] = norm, scalars[1] = finite ? 1.0f : 0.0f;
            scalars[2] = (float)(tensors.rate / (1.0 - pow((double)tensors.beta1, (double)step)));
            scalars[3] = (float)sqrt(1.0 - pow((double)tensors.beta2, (double)step));
        }
    }
}

extern "C" __global__ void adam(Tensors tensors, const float* scalars) {
    if (scalars[1] == 0.0f) return;  // a gradient that is not finite leaves everything as it was
    int t = tensor_of(tensors), begin = (blockIdx.x - tensors.first[t]) * CHUNK, size = tensors.size[t];
    float* parameter = tensors.parameter[t];
    float *moment = tensors.moment[t], *square = tensors.square[t];
    const float* gradient = tensors.gradient[t];
    float rate = scalars[2], root = scalars[3], beta1 = tensors.beta1, beta2 = tensors.beta2;
    u16* copy = tensors.copies.at[t];
    int columns = tensors.copies.columns[t], stride = tensors.copies.stride[t];
#pragma unroll 1
    for (int first = begin + threadIdx.x; first < begin + CHUNK; first += IN_FLIGHT * 256) {
        float g[IN_FLIGHT], m[IN_FLIGHT], v[IN_FLIGHT], w[IN_FLIGHT];
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; n++) {  // all on their way before the first is waited for
            int i = first + n * 256;
            if (i < size) g[n] = gradient[i], m[n] = moment[i], v[n] = square[i], w[n] = parameter[i];
        }
#pragma unroll
        for (int n = 0; n < IN_FLIGHT; n++) {
            int i = first + n * 256;
            if (i >= size) continue;
            m[n] = m[n] + (1.0f - beta1) * (g[n] - m[n]);
            v[n] = beta2 * v[n] + (1.0f - beta2) * g[n] * g[n];
            w[n] -= rate * m[n] / (sqrtf(v[n]) / root + tensors.epsilon);
            moment[i] = m[n], square[i] = v[n], parameter[i] = w[n];
            copy_weight(copy, columns, stride, i, w[n]);
        }
    }
}

// Slow weights move towards fast ones.
extern "C" __global__ void follow(Pairs pairs) {
    int t = tensor_of(pairs), begin = (blockIdx.x - pairs.first[t]) * CHUNK;
    float rate = pairs.rate[t];
    float* slow = pairs.slow[t];
    const float* fast = pairs.fast[t];
    u16* copy = pairs.copies.at[t];
    int columns = pairs.copies.columns[t], stride = pairs.copies.stride[t];
#pragma unroll 8
    for (int n = 0; n < CHUNK / 256; n++) {
        int i = begin + n * 256 + threadIdx.x;
        if (i < pairs.size[t]) {
            float weight = slow[i] + rate * (fast[i] - slow[i]);
            slow[i] = weight;
            copy_weight(copy, columns, stride, i, weight);
        }
    }
}
