// What the trunk's kernels share: where pixels lie, how weights are packed, and a layer of convolutions within a
// multiprocessor's memory (compute capability 9 and above).
//
// Compiled for one network, or for a part of one that sees a stack's frames one by one:
//   LAYERS    two or more, each of 3x3; the first has stride 2
//   SIDE      of the image, even
//   CHANNELS  of the image, up to 16
//   FILTERS   of each layer, 16 or 32
//   RELU_LAST whether the last layer has a ReLU, too
//   PLANES    0, or how many pictures of 16 channels stand together in place of the first layer
//   INNER     whether another part continues: features stay pixels, and their gradient comes as pixels
//   WIDE      whether products of four warps make layers 2 and on (wide.cu; compute capability 9.0 alone), and
//             their way back, too, unless pictures stand together (WIDE_BACK)
// trunk.py, which launches the kernels, also says how many threads a block has, how many rows it works on at once,
// and how many strips are on their way.
//
// A picture is one plane for each 8 channels, in shared and in global memory, and a plane has 16 bytes to a pixel:
// eight neighbours are 128 bytes in a row, one to each bank, and a tap is nothing but a distance.

#define WIDE_BACK (WIDE && !PLANES)

constexpr int CHUNK = 16;                            // bytes of a pixel in a plane
constexpr int PIXEL = 2 * FILTERS, THIN = 32;        // bytes of a pixel: of a layer's, of one with 16 channels
constexpr int BLOCKS = FILTERS / 8;                  // of 8 filters, a plane each: the width of a product
constexpr int STEPS = 9 * FILTERS / 16;              // products of 16 input channels: one or two for each tap
constexpr int HALF = SIDE / 2;
constexpr int OWN = PLANES ? 2 : 1;                  // the first layer that has weights here
constexpr int KEPT = LAYERS - 1 + (RELU_LAST && !INNER);  // layers whose pixels a backward pass needs
constexpr bool NARROW = CHANNELS <= 4;               // four pixels of four channels make a product's 16
constexpr int FIRST_STEPS = NARROW ? 3 : 9;
constexpr int FIRST_FRAGMENTS = PLANES ? 0 : FIRST_STEPS * FILTERS * 2;  // uint4 of a layer's packed weights
constexpr int FRAGMENTS = STEPS * FILTERS * 2, JOINING_FRAGMENTS = 9 * PLANES * FILTERS * 2;
static_assert(GRADIENT_ROWS % 8 == 0, "the weight gradient's strips begin where chunks have their first order");

// Height and width after a layer; layers count from 1.
__device__ constexpr int side(int layer) { return (SIDE - 3) / 2 + 1 - 2 * (layer - 1); }
__device__ constexpr int bytes(int layer) {
    return side(layer) * side(layer) * (PLANES && layer == 1 ? PLANES * THIN : PIXEL);
}

// Where a layer's pixels begin among those of an image, in global memory; the first layer's lie apart.
__device__ inline int offset(int layer) {
    int sum = 0;
    for (int earlier = 2; earlier < layer; earlier++) sum += bytes(earlier);
    return sum;
}

// Gradients at a layer's output have two columns of nothing on the right if wide products made them.
constexpr int PAD = WIDE_BACK ? 2 : 0;
__device__ constexpr int gradient_bytes(int layer) { return side(layer) * (side(layer) + PAD) * PIXEL; }
__device__ inline int gradient_offset(int layer) {
    int sum = 0;
    for (int earlier = 2; earlier < layer; earlier++) sum += gradient_bytes(earlier);
    return sum;
}

// Where pixels lie in shared memory: layers take turns (the third may be larger than one plane of 16 channels).
constexpr int SECOND = bytes(1) > bytes(3) ? bytes(1) : bytes(3), BEHIND = SECOND + bytes(2);
__device__ inline u32 place(u32 start, int layer) { return layer % 2 ? start : start + SECOND; }

__device__ inline int divide(int number, u32 reciprocal) { return ((u64)number * reciprocal) >> 20; }
__device__ inline u32 reciprocal(int divisor) { return (1u << 20) / divisor + 1; }

// Where a layer's packed weights begin, behind those of the first.
__device__ inline int fragments_before(int layer) {
    if (PLANES) return layer == 2 ? 0 : JOINING_FRAGMENTS + (layer - 3) * FRAGMENTS;
    return (layer - 2) * FRAGMENTS;
}

// Weights of all layers as the products' second factors, in the order in which lanes load them: by steps of 16
// channels in, by 16 channels out. For the way back, where they change places, only if it is gone (`backward`).
extern "C" __global__ void pack(const float* const* parameters, u32* forward, u32* backward, float* biases) {
    int number = blockIdx.y, layer = number + OWN, i = blockIdx.x * blockDim.x + threadIdx.x;
    bool first = layer == 1;
    int channels = first ? CHANNELS : PLANES && layer == 2 ? 16 * PLANES : FILTERS;
    const float *weight = parameters[2 * number], *bias = parameters[2 * number + 1];
    if (i < FILTERS) biases[number * FILTERS + i] = bias[i];
    auto at = [&](int out, int in, int tap) { return in < channels ? weight[(out * channels + in) * 9 + tap] : 0.0f; };
    int element = i % 4, lane = i / 4 % 32, block = i / 128;
    bool rows = WIDE && !first;  // of a first factor: 16 channels out change places with 16 in
    int n = (rows ? element % 2 : element / 2) * 8 + lane / 4, k = (rows ? element / 2 : element % 2) * 8 + lane % 4 * 2;
    if (first) {
        int step = block / (FILTERS / 16);
        n += block % (FILTERS / 16) * 16;
        if (step >= FIRST_STEPS) return;
        auto of = [&](int k) {
            if (!NARROW) return at(n, k, step);
            return k / 4 < 3 && k % 4 < CHANNELS ? at(n, k % 4, step * 3 + k / 4) : 0.0f;
        };
        forward[i] = pair(of(k), of(k + 1));
        return;
    }
    int ins = channels / 16, outs = FILTERS / 16;
    if (block >= 9 * ins * outs) return;
    u32 start = fragments_before(layer) * 4;
    int step = block / outs, out = block % outs * 16 + n, in = step % ins * 16 + k;
    forward[FIRST_FRAGMENTS * 4 + start + i] = pair(at(out, in, step / ins), at(out, in + 1, step / ins));
    if (backward == nullptr) return;
    if (WIDE && !WIDE_BACK) n = element / 2 * 8 + lane / 4, k = element % 2 * 8 + lane % 4 * 2;
    step = block / ins, in = block % ins * 16 + n, out = step % outs * 16 + k;
    backward[start + i] = pair(at(out, in, step / outs), at(out + 1, in, step / outs));
}

// A lane's weights of a layer into registers: from global memory (a pointer), or from shared (a number). Of each
// step's groups of 16 channels out, of which there are `groups`, those from a number on.
__device__ inline uint4 four_of(const uint4* packed, int number) { return packed[number]; }
__device__ inline uint4 four_of(u32 packed, int number) { return get_four(packed + number * 16); }

template <class Packed, int COUNT, int NUMBERS>
__device__ inline void load_weights(u32 (&w)[COUNT][NUMBERS], Packed packed, int groups = NUMBERS / 4, int from = 0) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < COUNT; step++)
#pragma unroll
        for (int group = 0; group < NUMBERS / 4; group++) {
            uint4 four = four_of(packed, (step * groups + from + group) * 32 + lane);
            w[step][group * 4] = four.x, w[step][group * 4 + 1] = four.y;
            w[step][group * 4 + 2] = four.z, w[step][group * 4 + 3] = four.w;
        }
}

// Where a layer reads and writes, for one picture.
struct Layer {
    u32 in, out;            // shared memory
    int side_in, side_out;
    const float* bias;
    float least;            // forward: 0 with a ReLU
    const u8* source;       // backward: the layer's input, zero where a ReLU clipped it
    u32 zero, room;         // backward: a chunk of nothing, for taps that reach outside; room for a warp's pixels
};

constexpr int ROOM_PLANE = 32 * CHUNK, ROOM = BLOCKS * ROOM_PLANE;

// What a warp makes of a layer: PIECES_ of 16 channels in, of GROUPS_ of 8 channels out.
template <int PIECES_, int GROUPS_> struct Form {
    static constexpr int PIECES = PIECES_, GROUPS = GROUPS_, STEPS = 9 * PIECES_;
};
typedef Form<FILTERS / 16, BLOCKS> Plain;
typedef Form<PLANES ? PLANES : 1, 2> Joining;  // forward: all pictures, half of the filters
typedef Form<FILTERS / 16, 2> Parting;         // backward: one picture

// Asks for the layer's input at up to 32 pixels.
template <int GROUPS> __device__ inline void ask_for_source(const Layer& layer, int first) {
    int lane = threadIdx.x % 32, pixels = layer.side_out * layer.side_out;
    if (first + lane < pixels)
#pragma unroll
        for (int j = 0; j < GROUPS; j++)
            ask_for<CHUNK>(layer.room + j * ROOM_PLANE + lane * CHUNK,
                           layer.source + (j * pixels + first + lane) * CHUNK);
}

// COUNT times 16 pixels of a layer, or of its gradient from the output back to the input; `group` says which groups
// of channels out are the first of these.
template <bool BACK, int COUNT, class F>
__device__ inline void convolve_pixels(const Layer& layer, const u32 (&w)[F::STEPS][2 * F::GROUPS], int first,
                                       u32 by_side, int group_of_all, const float2 (&bias)[F::GROUPS],
                                       float (&channel_sums)[F::GROUPS][2]) {
    int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    int pixels = layer.side_out * layer.side_out;
    u32 plane = layer.side_in * layer.side_in * CHUNK, own = layer.in + lane / 16 * plane;
    float sum[COUNT][F::GROUPS][4];
    int row[COUNT], column[COUNT], at[COUNT];
    if (BACK) ask_for_source<F::GROUPS>(layer, first);
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        int q = first + n * 16 + lane % 16;
        q = q < pixels ? q : pixels - 1;
        row[n] = divide(q, by_side), column[n] = q - row[n] * layer.side_out;
        at[n] = row[n] * layer.side_in + column[n];
#pragma unroll
        for (int j = 0; j < F::GROUPS; j++)
            sum[n][j][0] = sum[n][j][2] = bias[j].x, sum[n][j][1] = sum[n][j][3] = bias[j].y;
    }
#pragma unroll
    for (int tap = 0; tap < 9; tap++)
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            int dy = tap / 3, dx = tap % 3, reach = dy * layer.side_in + dx, p = BACK ? at[n] - reach : at[n] + reach;
            u32 address = own + p * CHUNK, further = 2 * plane, side = layer.side_in;
            if (BACK && !((u32)(row[n] - dy) < side && (u32)(column[n] - dx) < side))
                address = layer.zero, further = 0;
#pragma unroll
            for (int piece = 0; piece < F::PIECES; piece++) {
                u32 a[4];
                load_matrices(a, address + piece * further);
                const u32(&b)[2 * F::GROUPS] = w[F::PIECES * tap + piece];
#pragma unroll
                for (int j = 0; j < F::GROUPS; j++) multiply(sum[n][j], a, b[2 * j], b[2 * j + 1]);
            }
        }
    u32 alive[COUNT][2][F::GROUPS];
    if (BACK) {
        wait_for_all();
        synchronise_warp();
#pragma unroll
        for (int n = 0; n < COUNT; n++)
#pragma unroll
            for (int i = 0; i < 2 * F::GROUPS; i++) {  // all at once, not each when it is needed
                int lower = i / F::GROUPS, j = i % F::GROUPS, p = n * 16 + group + lower * 8;
                alive[n][lower][j] = get(layer.room + j * ROOM_PLANE + p * CHUNK + member * 4);
            }
        synchronise_warp();  // the room is free again
    }
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            int q = first + n * 16 + group + lower * 8;
            if (q < pixels)
#pragma unroll
                for (int j = 0; j < F::GROUPS; j++) {
                    float x = sum[n][j][lower * 2], y = sum[n][j][lower * 2 + 1];
                    if (BACK) {
                        x = alive[n][lower][j] & 0x7fffu ? x : 0.0f, y = alive[n][lower][j] & 0x7fff0000u ? y : 0.0f;
                        channel_sums[j][0] += x, channel_sums[j][1] += y;
                    } else {
                        x = fmaxf(x, layer.least), y = fmaxf(y, layer.least);
                    }
                    put(layer.out + ((group_of_all + j) * pixels + q) * CHUNK + member * 4, pair(x, y));
                }
        }
}

// A whole layer, by some warps of which this is one: `group_of_all` is the first group of channels that they make.
// Each takes 32 pixels at a time, and 16 at the end if that leaves fewer of them idle.
template <bool BACK, class F>
__device__ inline void convolve(const Layer& layer, const u32 (&w)[F::STEPS][2 * F::GROUPS],
                                float (&channel_sums)[F::GROUPS][2], int warp, int warps, int group_of_all = 0) {
    int blocks = (layer.side_out * layer.side_out + 15) / 16;
    int rest = blocks % (2 * warps), evenly = rest <= warps ? blocks - rest : blocks;
    u32 by_side = reciprocal(layer.side_out);
    float2 bias[F::GROUPS] = {};
    if (!BACK)
#pragma unroll
        for (int j = 0; j < F::GROUPS; j++)
            bias[j] = *(const float2*)(layer.bias + (group_of_all + j) * 8 + threadIdx.x % 4 * 2);
    for (int block = 2 * warp; block < evenly; block += 2 * warps)
        convolve_pixels<BACK, 2, F>(layer, w, block * 16, by_side, group_of_all, bias, channel_sums);
    if (evenly + warp < blocks)
        convolve_pixels<BACK, 1, F>(layer, w, (evenly + warp) * 16, by_side, group_of_all, bias, channel_sums);
}

// A layer of 16 filters, forward. A warp makes 16 columns of ROWS rows at a time, so that a matrix that it has loaded
// adds to up to three rows: two products to a matrix, as above, would leave the tensor cores waiting for shared memory.
// The picture is cut into bands of ROWS rows, side by side; the last ends with the picture, and makes some rows again.
template <int ROWS> struct Bands {
    int columns, side;  // of all bands, of the picture
    u32 by_side;

    struct Place {
        int row, column;
    };

    __device__ inline Bands(int side) : columns((side + ROWS - 1) / ROWS * side), side(side), by_side(reciprocal(side)) {}

    // Where a column begins in the picture.
    __device__ inline Place at(int column) const {
        column = column < columns ? column : columns - 1;
        int band = divide(column, by_side), row = band * ROWS < side - ROWS ? band * ROWS : side - ROWS;
        return {row, column - band * side};
    }
};

template <int ROWS, int COUNT, int NUMBERS>
__device__ inline void convolve_bands(const Layer& layer, const u32 (&w)[COUNT][NUMBERS], int warp, int warps) {
    static_assert(COUNT == 9 && NUMBERS == 4, "16 channels in and out");
    int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4, pixels = layer.side_out * layer.side_out;
    u32 pitch = layer.side_in * CHUNK, own = layer.in + lane / 16 * layer.side_in * pitch;
    Bands<ROWS> bands(layer.side_out);
    float2 bias[2];
#pragma unroll
    for (int j = 0; j < 2; j++) bias[j] = *(const float2*)(layer.bias + j * 8 + member * 2);
#pragma unroll 1
    for (int first = warp * 16; first < bands.columns; first += warps * 16) {
        auto place = bands.at(first + lane % 16);
        u32 address = own + place.row * pitch + place.column * CHUNK;
        float sum[ROWS][2][4];
#pragma unroll
        for (int n = 0; n < 2 * ROWS; n++) {
            float(&four)[4] = sum[n / 2][n % 2];
            four[0] = four[2] = bias[n % 2].x, four[1] = four[3] = bias[n % 2].y;
        }
#pragma unroll
        for (int row = 0; row < ROWS + 2; row++)
#pragma unroll
            for (int dx = 0; dx < 3; dx++) {
                u32 a[4];
                load_matrices(a, address + row * pitch + dx * CHUNK);
#pragma unroll
                for (int dy = 0; dy < 3; dy++)
                    if (0 <= row - dy && row - dy < ROWS)
#pragma unroll
                        for (int j = 0; j < 2; j++)
                            multiply(sum[row - dy][j], a, w[dy * 3 + dx][2 * j], w[dy * 3 + dx][2 * j + 1]);
            }
#pragma unroll
        for (int lower = 0; lower < 2; lower++) {
            int column = first + group + lower * 8;
            auto there = bands.at(column);
            u32 out = layer.out + (there.row * layer.side_out + there.column) * CHUNK + member * 4;
            if (column < bands.columns)
#pragma unroll
                for (int n = 0; n < 2 * ROWS; n++) {
                    const float(&four)[4] = sum[n / 2][n % 2];
                    float x = fmaxf(four[lower * 2], layer.least), y = fmaxf(four[lower * 2 + 1], layer.least);
                    put(out + (n % 2 * pixels + n / 2 * layer.side_out) * CHUNK, pair(x, y));
                }
        }
    }
}
