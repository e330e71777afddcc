// Policy and Q-functions: everything between their matrix products, which the library computes. A head is a
// projection of the trunk's features (bias, LayerNorm, tanh), actions behind it, and HEADS networks of two hidden
// layers. As torch.compile divides it, an update had some 200 launches here, of which most do next to nothing.
//
// Compiled for one network: FEATURES (a multiple of 8), PROJECTION, ACTIONS (0 for a policy), HIDDEN (a multiple of
// 128), OUTPUTS and HEADS. Numbers of bfloat16 go into products, float32 comes out. Rows are filled up with zeros to
// a multiple of 8: of 100 or 106 columns, the library's products take three times as long.

constexpr int WIDE = (PROJECTION + 7) / 8 * 8, INPUTS = PROJECTION + ACTIONS, ROW = (INPUTS + 7) / 8 * 8;
constexpr int EACH = (PROJECTION + 31) / 32, FOURS = HIDDEN / 128;  // of a lane

struct Parameters {
    const float *projection, *projection_bias, *scale, *shift;
    const float *first[2], *first_bias[2], *second[2], *second_bias[2], *output[2], *output_bias[2];
};

// One of two pointers; an index would move both out of registers.
__device__ inline const float* of(const float* const (&both)[2], int head) { return head ? both[1] : both[0]; }

__device__ inline u16 low(float value) { return (u16)pair(value, 0.0f); }
__device__ inline float high(u16 value) { return __uint_as_float((u32)value << 16); }
__device__ inline float sum_of_warp(float value) {
    for (int bits = 1; bits < 32; bits *= 2) value += exchange(value, bits);
    return value;
}

// Weights in bfloat16, each row filled up; a row of blocks for each matrix.
extern "C" __global__ void pack_heads(Parameters p, u16* projection, u16* first, u16* second) {
    int which = blockIdx.y, head = (which - 1) % HEADS;
    const float* from = which == 0 ? p.projection : which <= HEADS ? of(p.first, head) : of(p.second, head);
    int rows = which == 0 ? PROJECTION : HIDDEN, all = which == 0 ? WIDE : HIDDEN;
    int columns = which == 0 ? FEATURES : which <= HEADS ? INPUTS : HIDDEN;
    int wide = which == 0 ? FEATURES : which <= HEADS ? ROW : HIDDEN;
    u16* to = which == 0 ? projection : which <= HEADS ? first + head * HIDDEN * ROW : second + head * HIDDEN * HIDDEN;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < all * (wide / 8); i += gridDim.x * blockDim.x) {
        int row = i / (wide / 8), column = i % (wide / 8) * 8;
        float v[8];
        if (row < rows && columns == wide) {
            const float4* eight = (const float4*)(from + row * columns + column);
            float4 a = eight[0], b = eight[1];
            v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        } else {
#pragma unroll
            for (int n = 0; n < 8; n++)
                v[n] = row < rows && column + n < columns ? from[row * columns + column + n] : 0.0f;
        }
        ((uint4*)to)[i] = make_uint4(pair(v[0], v[1]), pair(v[2], v[3]), pair(v[4], v[5]), pair(v[6], v[7]));
    }
}

// A row of projected features to mean 0 and deviation 1; returns what it was multiplied by. A warp to a row.
__device__ inline float normalise(const float* product, const float* bias, int lane, float (&normal)[EACH]) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int c = n * 32 + lane;
        normal[n] = c < PROJECTION ? product[c] + bias[c] : 0.0f;
        sum += normal[n];
    }
    float mean = sum_of_warp(sum) / PROJECTION;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        normal[n] = n * 32 + lane < PROJECTION ? normal[n] - mean : 0.0f;
        squares += normal[n] * normal[n];
    }
    float factor = 1.0f / sqrtf(sum_of_warp(squares) / PROJECTION + 1e-5f);
#pragma unroll
    for (int n = 0; n < EACH; n++) normal[n] *= factor;
    return factor;
}

// What the hidden layers see: LayerNorm and tanh of the projected features, and the actions.
extern "C" __global__ void state(Parameters p, const float* product, const float* actions, u16* x, int rows) {
    int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float normal[EACH];
    normalise(product + row * WIDE, p.projection_bias, lane, normal);
    x += row * ROW;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int c = n * 32 + lane;
        if (c < PROJECTION) x[c] = low(tanhf(normal[n] * p.scale[c] + p.shift[c]));
    }
    for (int c = PROJECTION + lane; c < ROW; c += 32)
        x[c] = c < INPUTS ? low(actions[row * ACTIONS + c - PROJECTION]) : 0;
}

// Bias and ReLU of the first hidden layer: (rows, heads, HIDDEN) -> (heads, rows, HIDDEN).
extern "C" __global__ void hidden(Parameters p, const float4* product, u64* out, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = i % (HIDDEN / 4), head = i / (HIDDEN / 4) % HEADS;
    int row = i / (HIDDEN / 4) / HEADS;
    if (row >= rows) return;
    float4 v = product[i], b = ((const float4*)of(p.first_bias, head))[c];
    u32 one = pair(fmaxf(v.x + b.x, 0.0f), fmaxf(v.y + b.y, 0.0f));
    u32 two = pair(fmaxf(v.z + b.z, 0.0f), fmaxf(v.w + b.w, 0.0f));
    out[(head * rows + row) * (HIDDEN / 4) + c] = one | (u64)two << 32;
}

// Bias and ReLU of the second hidden layer, and the output layer, which stays in float32. A warp to a row.
extern "C" __global__ void outputs(Parameters p, const float4* product, u64* kept, float* out, int rows) {
    int lane = threadIdx.x % 32, both = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, head = both / rows;
    if (head >= HEADS) return;
    float v[FOURS][4];
#pragma unroll
    for (int n = 0; n < FOURS; n++) {
        int c = n * 32 + lane;
        float4 given = product[both * (HIDDEN / 4) + c], b = ((const float4*)of(p.second_bias, head))[c];
        u32 one = pair(fmaxf(given.x + b.x, 0.0f), fmaxf(given.y + b.y, 0.0f));
        u32 two = pair(fmaxf(given.z + b.z, 0.0f), fmaxf(given.w + b.w, 0.0f));
        kept[both * (HIDDEN / 4) + c] = one | (u64)two << 32;
        v[n][0] = high((u16)one), v[n][1] = high(one >> 16), v[n][2] = high((u16)two), v[n][3] = high(two >> 16);
    }
    for (int o = 0; o < OUTPUTS; o++) {
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < FOURS; n++) {
            float4 w = ((const float4*)of(p.output, head))[o * (HIDDEN / 4) + n * 32 + lane];
            sum += v[n][0] * w.x + v[n][1] * w.y + v[n][2] * w.z + v[n][3] * w.w;
        }
        sum = sum_of_warp(sum);
        if (lane == 0) out[both * OUTPUTS + o] = sum + of(p.output_bias, head)[o];
    }
}

// The gradient at the second hidden layer's output, through its ReLU.
extern "C" __global__ void outputs_back(Parameters p, const float* gradient, const u64* kept, u64* back, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = i % (HIDDEN / 4), both = i / (HIDDEN / 4), head = both / rows;
    if (head >= HEADS) return;
    float v[4] = {};
    for (int o = 0; o < OUTPUTS; o++) {
        float g = gradient[both * OUTPUTS + o];
        float4 w = ((const float4*)of(p.output, head))[o * (HIDDEN / 4) + c];
        v[0] += g * w.x, v[1] += g * w.y, v[2] += g * w.z, v[3] += g * w.w;
    }
    u64 was = kept[i];
#pragma unroll
    for (int n = 0; n < 4; n++) v[n] = was >> (16 * n) & 0x7fff ? v[n] : 0.0f;
    back[i] = pair(v[0], v[1]) | (u64)pair(v[2], v[3]) << 32;
}

// The gradient through the first hidden layer's ReLU: (heads, rows, HIDDEN) -> (rows, heads, HIDDEN).
extern "C" __global__ void hidden_back(const float4* gradient, const u64* kept, u64* back, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, c = i % (HIDDEN / 4), both = i / (HIDDEN / 4);
    int head = both / rows, row = both % rows;
    if (head >= HEADS) return;
    float4 g = gradient[i];
    u64 was = kept[i];
    u32 one = pair(was & 0x7fff ? g.x : 0.0f, was >> 16 & 0x7fff ? g.y : 0.0f);
    u32 two = pair(was >> 32 & 0x7fff ? g.z : 0.0f, was >> 48 & 0x7fff ? g.w : 0.0f);
    back[(row * HEADS + head) * (HIDDEN / 4) + c] = one | (u64)two << 32;
}

// Back through tanh and LayerNorm. `terms`: what a row adds to the gradients of bias, scale and shift.
extern "C" __global__ void state_back(Parameters p, const float* gradient, const float* product, u16* back,
                                      float* terms, float* actions, int rows) {
    int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    float normal[EACH], outer[EACH], inner[EACH], sum = 0.0f, along = 0.0f;
    float factor = normalise(product + row * WIDE, p.projection_bias, lane, normal);
    gradient += row * ROW;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int c = n * 32 + lane;
        outer[n] = inner[n] = 0.0f;
        if (c < PROJECTION) {
            float y = tanhf(normal[n] * p.scale[c] + p.shift[c]);
            outer[n] = gradient[c] * (1.0f - y * y), inner[n] = outer[n] * p.scale[c];
        }
        sum += inner[n], along += inner[n] * normal[n];
    }
    float mean = sum_of_warp(sum) / PROJECTION, mean_along = sum_of_warp(along) / PROJECTION;
#pragma unroll
    for (int n = 0; n < EACH; n++) {
        int c = n * 32 + lane;
        float found = factor * (inner[n] - mean - normal[n] * mean_along);
        if (c < WIDE) back[row * WIDE + c] = c < PROJECTION ? low(found) : 0;
        if (c >= PROJECTION) continue;
        terms[(row * 3 + 0) * PROJECTION + c] = found;
        terms[(row * 3 + 1) * PROJECTION + c] = outer[n] * normal[n];
        terms[(row * 3 + 2) * PROJECTION + c] = outer[n];
    }
    for (int c = lane; c < ACTIONS; c += 32) actions[row * ACTIONS + c] = gradient[PROJECTION + c];
}

// Numbers of every gradient that is a sum over rows: output weights, second and first biases, the projection's bias,
// scale and shift, and output biases.
constexpr int OUTPUT_SUMS = HEADS * OUTPUTS * HIDDEN, SECOND_SUMS = OUTPUT_SUMS + HEADS * HIDDEN;
constexpr int FIRST_SUMS = SECOND_SUMS + HEADS * HIDDEN, STATE_SUMS = FIRST_SUMS + 3 * PROJECTION;
constexpr int ALL_SUMS = STATE_SUMS + HEADS * OUTPUTS;

// 32 of them to a block, whose warps share the rows, in a fixed order.
extern "C" __global__ void sums(const float* gradient, const u16* kept, const u16* second_back, const u16* first_back,
                                const float* terms, float* out, int rows) {
    int lane = threadIdx.x % 32, share = threadIdx.x / 32, shares = blockDim.x / 32, q = blockIdx.x * 32 + lane;
    // What is added up: numbers of bfloat16 or float32 from some address on, every so many, times a gradient.
    const u16* halves = nullptr;
    const float *whole = nullptr, *factor = nullptr;
    int step = 0;
    if (q < OUTPUT_SUMS) {
        int head = q / (OUTPUTS * HIDDEN), o = q / HIDDEN % OUTPUTS;
        halves = kept + head * rows * HIDDEN + q % HIDDEN, step = HIDDEN;
        factor = gradient + head * rows * OUTPUTS + o;
    } else if (q < SECOND_SUMS) {
        int head = (q - OUTPUT_SUMS) / HIDDEN;
        halves = second_back + head * rows * HIDDEN + (q - OUTPUT_SUMS) % HIDDEN, step = HIDDEN;
    } else if (q < FIRST_SUMS) {
        halves = first_back + q - SECOND_SUMS, step = HEADS * HIDDEN;
    } else if (q < STATE_SUMS) {
        whole = terms + q - FIRST_SUMS, step = 3 * PROJECTION;
    } else if (q < ALL_SUMS) {
        int head = (q - STATE_SUMS) / OUTPUTS;
        whole = gradient + head * rows * OUTPUTS + (q - STATE_SUMS) % OUTPUTS, step = OUTPUTS;
    }
    float sum = 0.0f;
    if (q < ALL_SUMS)
#pragma unroll 8
        for (int row = share; row < rows; row += shares) {
            float value = halves ? high(halves[row * step]) : whole[row * step];
            sum += factor ? value * factor[row * OUTPUTS] : value;
        }
    u32 memory = shared_start();
    put_float(memory + threadIdx.x * 4, sum);
    synchronise();
    if (share || q >= ALL_SUMS) return;
    for (int other = 1; other < shares; other++) sum += get_float(memory + (other * 32 + lane) * 4);
    out[q] = sum;
}

constexpr float LEAST = -10.0f, SPAN = 12.0f;  // of the policy's log standard deviation

// Actions drawn from a policy's outputs (mean, deviation) and their log-probabilities. A thread to a row.
extern "C" __global__ void squash(const float* given, const float* noise, float* action, float* probability, int rows) {
    constexpr int A = OUTPUTS / 2;
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int a = 0; a < A; a++) {
        float log_std = LEAST + 0.5f * SPAN * (tanhf(given[row * OUTPUTS + A + a]) + 1.0f), z = noise[row * A + a];
        float y = tanhf(given[row * OUTPUTS + a] + z * expf(log_std));
        sum += -0.5f * z * z - log_std - 0.918938533204673f - logf(fmaxf(1.0f - y * y, 0.0f) + 1e-6f);
        action[row * A + a] = y;
    }
    probability[row] = sum;
}

extern "C" __global__ void squash_back(const float* given, const float* noise, const float* of_action,
                                       const float* of_probability, float* back, int rows) {
    constexpr int A = OUTPUTS / 2;
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float g = of_probability[row];
    for (int a = 0; a < A; a++) {
        float t = tanhf(given[row * OUTPUTS + A + a]), z = noise[row * A + a];
        float std = expf(LEAST + 0.5f * SPAN * (t + 1.0f)), y = tanhf(given[row * OUTPUTS + a] + z * std);
        float slope = 1.0f - y * y, of_y = of_action[row * A + a];
        if (slope > 0.0f) of_y += g * 2.0f * y / (slope + 1e-6f);
        float of_mean = of_y * slope;
        back[row * OUTPUTS + a] = of_mean;
        back[row * OUTPUTS + A + a] = (of_mean * z * std - g) * 0.5f * SPAN * (1.0f - t * t);
    }
}
