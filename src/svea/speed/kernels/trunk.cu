// The CNN's forward and backward pass for GPUs with much shared memory (compute capability 9 and above).
//
// A picture of the paper's trunk is 41x41 pixels after its first layer, 64 bytes each: two such pictures fit
// into one multiprocessor. So a block takes one picture through all layers without leaving it, and a layer's
// weights lie in registers. Products are of 16 pixels with 16 channels, by tensor cores.
//
// Compiled for one network: LAYERS (two or more), SIDE (of the image, even), CHANNELS (up to 16) and
// RELU_LAST. All layers have 32 filters of 3x3, the first with stride 2. trunk.py, which launches the kernels, also
// says how many threads a block has, how many rows it works on at once, and how many strips are on their way.
//
// A pixel's 32 channels are four chunks of 16 bytes, whose order depends on the pixel's number: so eight
// neighbours' equal chunks lie in different banks of the memory. Global memory keeps that order.

constexpr int PIXEL = 64;
constexpr int STEPS = 18;                        // products of 16 input channels: two for each tap
constexpr int HALF = SIDE / 2;
static_assert(GRADIENT_ROWS % 8 == 0, "the weight gradient's strips begin where chunks have their first order");
constexpr int WEIGHTS = 32 * 32 * 9, FIRST_SUMS = 32 * 16 * 9;
constexpr int FIRST_FRAGMENTS = 9 * 2 * 32, FRAGMENTS = STEPS * 2 * 32;  // uint4 of a layer's packed weights

// Height and width after a layer; layers count from 1.
__device__ constexpr int side(int layer) { return (SIDE - 3) / 2 + 1 - 2 * (layer - 1); }
__device__ constexpr int bytes(int layer) { return side(layer) * side(layer) * PIXEL; }

// Where a layer's pixels begin among those of an image, in global memory.
__device__ inline int offset(int layer) {
    int sum = 0;
    for (int earlier = 1; earlier < layer; earlier++) sum += bytes(earlier);
    return sum;
}

constexpr int KEPT = LAYERS - 1 + RELU_LAST;  // layers whose pixels a backward pass needs

// Where they lie in shared memory: layers take turns.
__device__ inline u32 place(u32 start, int layer) { return layer % 2 ? start : start + bytes(1); }

// Where a chunk of a pixel lies behind the pixel's start.
__device__ inline u32 chunk(u32 number, u32 pixel) { return (number << 4) ^ ((pixel << 3) & 48); }

__device__ inline int divide(int number, u32 reciprocal) { return ((u64)number * reciprocal) >> 20; }
__device__ inline u32 reciprocal(int divisor) { return (1u << 20) / divisor + 1; }

// Weights of all layers as the products' second factors, in the order in which lanes load them; for the way back
// only if it is gone (`backward`).
extern "C" __global__ void pack(const float* const* parameters, u32* forward, u32* backward, float* biases) {
    int layer = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    int channels = layer ? 32 : CHANNELS, steps = layer ? STEPS : 9;
    const float *weight = parameters[2 * layer], *bias = parameters[2 * layer + 1];
    if (i < 32) biases[layer * 32 + i] = bias[i];
    if (i >= steps * 256) return;
    int element = i % 4, lane = i / 4 % 32, half = i / 128 % 2, step = i / 256;
    int n = (half * 2 + element / 2) * 8 + lane / 4, k = (element % 2) * 8 + lane % 4 * 2;
    int tap = layer ? step / 2 : step;
    if (layer) k += step % 2 * 16;
    auto at = [&](int out, int in) { return in < channels ? weight[(out * channels + in) * 9 + tap] : 0.0f; };
    u32 start = layer ? (FIRST_FRAGMENTS + (layer - 1) * FRAGMENTS) * 4 : 0;
    forward[start + i] = pair(at(n, k), at(n, k + 1));
    if (layer && backward != nullptr) backward[start - FIRST_FRAGMENTS * 4 + i] = pair(at(k, n), at(k + 1, n));
}

// A lane's weights of a layer into registers: from global memory (a pointer), or from shared (a number).
__device__ inline uint4 four_of(const uint4* packed, int number) { return packed[number]; }
__device__ inline uint4 four_of(u32 packed, int number) { return get_four(packed + number * 16); }

template <class Packed, int COUNT> __device__ inline void load_weights(u32 (&w)[COUNT][8], Packed packed, int lane) {
#pragma unroll
    for (int step = 0; step < COUNT; step++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 four = four_of(packed, (step * 2 + half) * 32 + lane);
            w[step][half * 4] = four.x, w[step][half * 4 + 1] = four.y;
            w[step][half * 4 + 2] = four.z, w[step][half * 4 + 3] = four.w;
        }
}

// Rows of an image that a strip of the first layer's output is made from, as they are: planes of a colour each.
constexpr int STRIP_ROWS = 2 * FIRST_ROWS + 1, PLANE_BYTES = STRIP_ROWS * SIDE * 2;
constexpr int STRIP_BYTES = STRIP_ROWS * SIDE * 32, RAW_BYTES = CHANNELS * PLANE_BYTES;

__device__ inline void ask_for_rows(u32 raw, const u16* image, int first_row) {
    constexpr int PIECE = SIDE % 4 ? 4 : 8, PIECES = PLANE_BYTES / PIECE;
    int there = (SIDE - first_row) * SIDE * 2 / PIECE;  // below the image is nothing
    const u8* from = (const u8*)(image + first_row * SIDE);
    for (int i = threadIdx.x; i < CHANNELS * PIECES; i += blockDim.x) {
        int c = i / PIECES, piece = i % PIECES;
        if (piece < there) ask_for<PIECE>(raw + i * PIECE, from + c * SIDE * SIDE * 2 + piece * PIECE);
    }
}

// They as pixels of 16 channels, 32 bytes: even columns of a row, then odd ones.
__device__ inline void turn_rows(u32 strip, u32 raw) {
    for (int i = threadIdx.x; i < STRIP_ROWS * HALF; i += blockDim.x) {
        int row = i / HALF, column = i % HALF;
        u32 both[16];
#pragma unroll
        for (int c = 0; c < 16; c++) both[c] = c < CHANNELS ? get(raw + c * PLANE_BYTES + i * 4) : 0;
#pragma unroll
        for (int odd = 0; odd < 2; odd++) {
            u32 v[8];
#pragma unroll
            for (int c = 0; c < 8; c++) {
                u32 low = both[2 * c], high = both[2 * c + 1];
                v[c] = odd ? low >> 16 | (high & 0xffff0000u) : (low & 0xffff) | high << 16;
            }
            int p = row * SIDE + column + odd * HALF;
            u32 at = strip + p * 32, turned = ((u32)p << 2) & 16;
            put_four(at + turned, make_uint4(v[0], v[1], v[2], v[3]));
            put_four(at + (16 ^ turned), make_uint4(v[4], v[5], v[6], v[7]));
        }
    }
}

// A strip's pixel that a tap of the first layer sees.
__device__ inline int strip_pixel(int row, int column, int tap) {
    int dy = tap / 3, dx = tap % 3;
    return (2 * row + dy) * SIDE + (dx == 1 ? HALF : 0) + column + dx / 2;
}

// Rows of an image, from a number on.
struct Strip {
    int image, from, rows;
};

// The strips that a block works on, one after the other.
struct Strips {
    int image, strip, images_on, strips_on, strips, side, height, left;

    __device__ inline Strips(int first, int step, int images, int side, int height) : side(side), height(height) {
        strips = (side + height - 1) / height;
        image = first / strips, strip = first % strips, images_on = step / strips, strips_on = step % strips;
        left = (images * strips - first + step - 1) / step;
    }

    __device__ inline Strip next() {
        int from = strip * height, rows = side - from < height ? side - from : height;
        Strip found = {image, from, rows};
        image += images_on, strip += strips_on, left--;
        if (strip >= strips) strip -= strips, image++;
        return found;
    }
};

// An image of a batch that lies in two parts: two views need not be copied together.
__device__ inline const u16* image_of(const u16* images, const u16* others, int split, int number) {
    constexpr u64 NUMBERS = CHANNELS * SIDE * SIDE;
    return number < split ? images + number * NUMBERS : others + (number - split) * NUMBERS;
}

// The first layer; every block takes each gridDim-th strip, and asks for the next one's rows while it works.
extern "C" __global__ __launch_bounds__(FIRST_THREADS, 2)
void first(const u16* images, const u16* others, int split, const uint4* packed, const float* biases, u8* hidden, u64 stride, int count) {
    constexpr int T = side(1), WARPS = FIRST_THREADS / 32, EACH = ((FIRST_ROWS * T + 15) / 16 + WARPS - 1) / WARPS;
    u32 strip_memory = shared_start(), raw = strip_memory + STRIP_BYTES;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, member = lane % 4;
    Strips strips(blockIdx.x, gridDim.x, count, T, FIRST_ROWS), ahead = strips;
    auto ask = [&] {
        if (ahead.left <= 0) return;
        Strip strip = ahead.next();
        ask_for_rows(raw, image_of(images, others, split, strip.image), 2 * strip.from);
    };
    ask();
    u32 w[9][8];
    load_weights(w, packed, lane);
    while (strips.left > 0) {
        Strip strip = strips.next();
        int pixels = strip.rows * T, before = strip.from * T;
        wait_for_all();
        synchronise();
        turn_rows(strip_memory, raw);
        synchronise();
        ask();
        float sum[EACH][4][4];
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            int q = (warp + WARPS * n) * 16 + lane % 16;
            q = q < pixels ? q : pixels - 1;
            int row = q / T, column = q % T;
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[n][j][e] = biases[j * 8 + member * 2 + e % 2];
#pragma unroll
            for (int tap = 0; tap < 9; tap++) {
                int p = strip_pixel(row, column, tap);
                u32 a[4];
                load_matrices(a, strip_memory + p * 32 + ((lane / 16 * 16) ^ ((p << 2) & 16)));
#pragma unroll
                for (int j = 0; j < 4; j++) multiply(sum[n][j], a, w[tap][2 * j], w[tap][2 * j + 1]);
            }
        }
        synchronise();  // the strip is read: the result takes its place
#pragma unroll
        for (int n = 0; n < EACH; n++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int lower = 0; lower < 2; lower++) {
                    int q = (warp + WARPS * n) * 16 + group + lower * 8;
                    float x = fmaxf(sum[n][j][lower * 2], 0.0f), y = fmaxf(sum[n][j][lower * 2 + 1], 0.0f);
                    if (q < pixels) put(strip_memory + q * PIXEL + chunk(j, before + q) + member * 4, pair(x, y));
                }
        synchronise();
        uint4* out = (uint4*)(hidden + strip.image * stride + before * PIXEL);
        for (int i = threadIdx.x; i < pixels * (PIXEL / 16); i += FIRST_THREADS)
            out[i] = get_four(strip_memory + i * 16);
    }
}

// Where one of the other layers reads and writes, for one picture.
struct Layer {
    u32 in, out;            // shared memory
    int side_in, side_out;
    const float* bias;
    float least;            // forward: 0 with a ReLU
    const u8* source;       // backward: the layer's input, zero where a ReLU clipped it
    u32 zero, room;         // backward: a pixel of nothing, for taps that reach outside; room for a warp's pixels
};

constexpr int ROOM = 32 * PIXEL;

// Asks for the layer's input at up to 32 pixels.
__device__ inline void ask_for_source(const Layer& layer, int first) {
    int lane = threadIdx.x % 32, end = layer.side_out * layer.side_out * PIXEL;
#pragma unroll
    for (int part = 0; part < ROOM / 512; part++) {
        int at = first * PIXEL + part * 512 + lane * 16;
        if (at < end) ask_for<16>(layer.room + part * 512 + lane * 16, layer.source + at);
    }
}

// COUNT times 16 pixels of a layer, or of its gradient from the output back to the input.
template <bool BACK, int COUNT>
__device__ inline void convolve_pixels(const Layer& layer, const u32 (&w)[STEPS][8], int first, u32 by_side,
                                       const float2 (&bias)[4], float (&channel_sums)[4][2]) {
    int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
    int pixels = layer.side_out * layer.side_out;
    u32 own_chunk = lane / 16 * 16;
    float sum[COUNT][4][4];
    int row[COUNT], column[COUNT], at[COUNT];
    if (BACK) ask_for_source(layer, first);
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        int q = first + n * 16 + lane % 16;
        q = q < pixels ? q : pixels - 1;
        row[n] = divide(q, by_side), column[n] = q - row[n] * layer.side_out;
        at[n] = row[n] * layer.side_in + column[n];
#pragma unroll
        for (int j = 0; j < 4; j++) sum[n][j][0] = sum[n][j][2] = bias[j].x, sum[n][j][1] = sum[n][j][3] = bias[j].y;
    }
#pragma unroll
    for (int tap = 0; tap < 9; tap++)
#pragma unroll
        for (int n = 0; n < COUNT; n++) {
            int dy = tap / 3, dx = tap % 3, reach = dy * layer.side_in + dx, p = BACK ? at[n] - reach : at[n] + reach;
            u32 address = layer.in + p * PIXEL + (((p << 3) & 48) ^ own_chunk), side = layer.side_in;
            if (BACK) address = (u32)(row[n] - dy) < side && (u32)(column[n] - dx) < side ? address : layer.zero;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                u32 a[4];
                load_matrices(a, address ^ (half * 32));
                const u32(&b)[8] = w[2 * tap + half];
#pragma unroll
                for (int j = 0; j < 4; j++) multiply(sum[n][j], a, b[2 * j], b[2 * j + 1]);
            }
        }
    u32 alive[COUNT][2][4];
    if (BACK) {
        wait_for_all();
        synchronise_warp();
#pragma unroll
        for (int n = 0; n < COUNT; n++)
#pragma unroll
            for (int i = 0; i < 8; i++) {  // all at once, not each when it is needed
                int p = n * 16 + group + i / 4 * 8;
                alive[n][i / 4][i % 4] = get(layer.room + p * PIXEL + chunk(i % 4, first + p) + member * 4);
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
                for (int j = 0; j < 4; j++) {
                    float x = sum[n][j][lower * 2], y = sum[n][j][lower * 2 + 1];
                    if (BACK) {
                        x = alive[n][lower][j] & 0x7fffu ? x : 0.0f, y = alive[n][lower][j] & 0x7fff0000u ? y : 0.0f;
                        channel_sums[j][0] += x, channel_sums[j][1] += y;
                    } else {
                        x = fmaxf(x, layer.least), y = fmaxf(y, layer.least);
                    }
                    put(layer.out + q * PIXEL + chunk(j, q) + member * 4, pair(x, y));
                }
        }
}

// A whole layer. Warps take 32 pixels at a time, and 16 at the end if that leaves fewer of them idle.
template <bool BACK>
__device__ inline void convolve(const Layer& layer, const u32 (&w)[STEPS][8], float (&channel_sums)[4][2]) {
    constexpr int WARPS = CHAIN_THREADS / 32;
    int warp = threadIdx.x / 32, blocks = (layer.side_out * layer.side_out + 15) / 16;
    int rest = blocks % (2 * WARPS), evenly = rest <= WARPS ? blocks - rest : blocks;
    u32 by_side = reciprocal(layer.side_out);
    float2 bias[4] = {};
    if (!BACK)
#pragma unroll
        for (int j = 0; j < 4; j++) bias[j] = *(const float2*)(layer.bias + j * 8 + threadIdx.x % 4 * 2);
    for (int block = 2 * warp; block < evenly; block += 2 * WARPS)
        convolve_pixels<BACK, 2>(layer, w, block * 16, by_side, bias, channel_sums);
    if (evenly + warp < blocks) convolve_pixels<BACK, 1>(layer, w, (evenly + warp) * 16, by_side, bias, channel_sums);
}

// What a layer left in shared memory is whole; it may be copied out while the next layer reads it.
__device__ inline void finish_layer(u8* to, u32 from, u32 size) {
    publish();
    if (threadIdx.x == 0) wait_for_copies_out();  // of the layer before: the next one writes there
    synchronise();
    if (to != nullptr && threadIdx.x == 0) copy_out(to, from, size);
}

// Layers 2 and on. `hidden` has the first layer's pixels of every image, and takes the others' if they are kept.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, 1)
void forward(u8* hidden, u64 stride, const uint4* packed, const float* biases, u16* features, int keep) {
    u32 start = shared_start(), next = start + bytes(1) + bytes(2), image_there = next + FRAGMENTS * 16;
    u32 next_there = image_there + 8;
    int lane = threadIdx.x % 32;
    u8* image = hidden + blockIdx.x * stride;
    packed += FIRST_FRAGMENTS;
    auto fetch_weights = [&](int layer) {  // while the layer before is computed
        if (threadIdx.x || layer > LAYERS) return;
        come_and_expect(next_there, FRAGMENTS * 16);
        copy_in(next, packed + (layer - 2) * FRAGMENTS, FRAGMENTS * 16, next_there);
    };
    if (threadIdx.x == 0) {
        make_barrier(image_there, 1);
        make_barrier(next_there, 1);
        publish();
        come_and_expect(image_there, bytes(1));
        copy_in(start, image, bytes(1), image_there);
    }
    fetch_weights(3);
    u32 w[STEPS][8];
    load_weights(w, packed, lane);
    synchronise();
    wait_for(image_there, 0);
#pragma unroll 1
    for (int layer = 2; layer <= LAYERS; layer++) {
        bool last = layer == LAYERS;
        Layer shape = {place(start, layer - 1), place(start, layer), side(layer - 1), side(layer),
                       biases + (layer - 1) * 32, !last || RELU_LAST ? 0.0f : -3.4e38f};
        float unused[4][2];
        convolve<false>(shape, w, unused);
        if (!last) {  // who is done does it while others still work
            wait_for(next_there, layer % 2);
            load_weights(w, next, lane);
        }
        finish_layer(keep && layer <= KEPT ? image + offset(layer) : nullptr, place(start, layer), bytes(layer));
        fetch_weights(layer + 2);
    }
    constexpr int PIXELS = side(LAYERS) * side(LAYERS);
    u32 result = place(start, LAYERS);
    u16* out = features + (u64)blockIdx.x * 32 * PIXELS;
    for (int i = threadIdx.x; i < 32 * PIXELS; i += CHAIN_THREADS) {
        int c = i / PIXELS, q = i % PIXELS;
        out[i] = get_half(result + q * PIXEL + chunk(c / 8, q) + c % 8 * 2);
    }
    if (threadIdx.x == 0) wait_for_copies_out();
}

// Adds up what a warp's lanes have of 32 channels, and leaves it for `write_channel_sums`.
__device__ inline void leave_channel_sums(float (&sums)[4][2], u32 memory) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float sum = sums[j][e];
            for (int bits = 4; bits < 32; bits *= 2) sum += exchange(sum, bits);
            if (lane < 4) put_float(memory + (warp * 32 + j * 8 + lane * 2 + e) * 4, sum);
            sums[j][e] = 0.0f;
        }
}

__device__ inline void write_channel_sums(u32 memory, float* out) {
    if (threadIdx.x >= 32) return;
    float sum = 0.0f;
    for (int warp = 0; warp < CHAIN_THREADS / 32; warp++) sum += get_float(memory + (warp * 32 + threadIdx.x) * 4);
    out[threadIdx.x] = sum;
}

// Gradients at every layer's output, from the features' on down to the first layer's, and their sums over an
// image: what the biases get of it.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, 1)
void backward(const u16* gradient, const u8* hidden, u64 stride, const uint4* packed, u8* gradients,
              u64 gradient_stride, float* bias_sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 start = shared_start(), room = start + bytes(1) + bytes(2), zero = room + CHAIN_THREADS / 32 * ROOM;
    u32 sums_memory = zero + PIXEL;
    const u8* image = hidden + blockIdx.x * stride;
    u8* to = gradients + blockIdx.x * gradient_stride;
    bias_sums += blockIdx.x * LAYERS * 32;
    if (threadIdx.x < PIXEL / 4) put(zero + threadIdx.x * 4, 0);
    constexpr int PIXELS = side(LAYERS) * side(LAYERS);
    gradient += (u64)blockIdx.x * 32 * PIXELS;
    for (int c = warp; c < 32; c += CHAIN_THREADS / 32) {
        float sum = 0.0f;
        for (int q = lane; q < PIXELS; q += 32) {
            u16 value = gradient[c * PIXELS + q];
            u32 at = q * PIXEL + chunk(c / 8, q) + c % 8 * 2;
            if (RELU_LAST && !(*(const u16*)(image + offset(LAYERS) + at) & 0x7fff)) value = 0;
            put_half(place(start, LAYERS) + at, value);
            sum += __uint_as_float((u32)value << 16);
        }
        for (int bits = 1; bits < 32; bits *= 2) sum += exchange(sum, bits);
        if (lane == 0) bias_sums[(LAYERS - 1) * 32 + c] = sum;
    }
    u32 w[STEPS][8];
    load_weights(w, packed + (LAYERS - 2) * FRAGMENTS, lane);
    finish_layer(to + offset(LAYERS), place(start, LAYERS), bytes(LAYERS));
    float channel_sums[4][2] = {};
#pragma unroll 1
    for (int layer = LAYERS; layer >= 2; layer--) {
        Layer shape = {place(start, layer), place(start, layer - 1), side(layer), side(layer - 1), nullptr, 0.0f,
                       image + offset(layer - 1), zero, room + warp * ROOM};
        convolve<true>(shape, w, channel_sums);
        if (layer > 2) load_weights(w, packed + (layer - 3) * FRAGMENTS, lane);
        u32 memory = sums_memory + layer % 2 * CHAIN_THREADS * 4;  // in turns: the last ones may still be read
        leave_channel_sums(channel_sums, memory);
        finish_layer(to + offset(layer - 1), place(start, layer - 1), bytes(layer - 1));
        write_channel_sums(memory, bias_sums + (layer - 2) * 32);
    }
    if (threadIdx.x == 0) wait_for_copies_out();
}

// A warp's sums over pixels of (input channels of one row of taps) x (output channels).
template <int BLOCKS> struct Sums {
    float weight[3][BLOCKS][4][4] = {};
};

// Rows of matrices that a lane names for 16 pixels: of the gradient, and of the input for each column of taps.
struct Rows {
    u32 gradient, source[3];
};

// Matrices of 16 pixels on their way from shared memory: the gradient's, and the input's one after the other.
struct Matrices {
    u32 gradient[2][4], source[2][4];
};

__device__ inline void load_gradient(Matrices& matrices, const Rows& rows) {
    load_turned_matrices(matrices.gradient[0], rows.gradient);
    load_turned_matrices(matrices.gradient[1], rows.gradient ^ 32);
}

template <int BLOCKS> __device__ inline void load_source(Matrices& matrices, const Rows& rows, int number) {
    load_turned_matrices(matrices.source[number % 2], rows.source[number / BLOCKS] ^ (number % BLOCKS * 32));
}

// Adds 16 pixels, whose first matrices are there already, and loads the first of the next 16.
template <int BLOCKS>
__device__ inline void add_pixels(Sums<BLOCKS>& sums, Matrices& matrices, const Rows& rows, const Rows& next_rows) {
    constexpr int COUNT = 3 * BLOCKS;
    Matrices next;
#pragma unroll
    for (int number = 0; number < COUNT; number++) {
        if (number < COUNT - 1) {
            load_source<BLOCKS>(matrices, rows, number + 1);
        } else {
            load_gradient(next, next_rows);
            load_source<BLOCKS>(next, next_rows, 0);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32(&g)[4] = matrices.gradient[j / 2];
            multiply(sums.weight[number / BLOCKS][number % BLOCKS][j], matrices.source[number % 2], g[j % 2 * 2],
                     g[j % 2 * 2 + 1]);
        }
    }
    matrices = next;
}

// Adds the sums of the warps that share a row of taps, in a fixed order: (tap, channel in, channel out).
template <int BLOCKS, int SHARES>
__device__ inline void add_up(const Sums<BLOCKS>& sums, u32 memory, float* out) {
    constexpr int IN = BLOCKS * 16, SHARE = 9 * IN * 32;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3, group = lane / 4, member = lane % 4;
    synchronise();  // everybody is done with what lay in this memory
    if (warp < 3 * SHARES)
#pragma unroll
        for (int dx = 0; dx < 3; dx++)
#pragma unroll
            for (int m = 0; m < BLOCKS; m++)
#pragma unroll
                for (int j = 0; j < 4; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int in = m * 16 + group + e / 2 * 8, n = j * 8 + member * 2 + e % 2;
                        u32 at = warp / 3 * SHARE + ((dy * 3 + dx) * IN + in) * 32 + n;
                        put_float(memory + at * 4, sums.weight[dx][m][j][e]);
                    }
    synchronise();
    for (int i = threadIdx.x; i < SHARE; i += blockDim.x) {
        float total = 0.0f;
        for (int share = 0; share < SHARES; share++) total += get_float(memory + (share * SHARE + i) * 4);
        out[i] = total;
    }
}

constexpr int SOURCE_BYTES = (GRADIENT_ROWS + 2) * side(1) * PIXEL, OUTPUT_BYTES = GRADIENT_ROWS * side(2) * PIXEL;
constexpr int STAGE_BYTES = SOURCE_BYTES + OUTPUT_BYTES;
// Starts to fetch a block's next strip; `full` is passed when it is there.
__device__ inline void fetch(Strips& strips, u32 stage, u32 full, const u8* hidden, u64 stride, const u8* gradients,
                             u64 gradient_stride) {
    int S = strips.side + 2, T = strips.side;
    Strip strip = strips.next();
    u32 source = (strip.rows + 2) * S * PIXEL, output = strip.rows * T * PIXEL;
    come_and_expect(full, source + output);
    copy_in(stage, hidden + strip.image * stride + strip.from * S * PIXEL, source, full);
    copy_in(stage + SOURCE_BYTES, gradients + strip.image * gradient_stride + strip.from * T * PIXEL, output, full);
}

// Partial sums of the weights' gradients of layers 2 and on. `shares` says which layer a block works on, which of
// its strips it takes first, and how many it steps on. Strips are fetched ahead: a stage is full when its bytes are
// there, and free when all warps are done with it.
extern "C" __global__ __launch_bounds__(GRADIENT_THREADS, 1)
void weight_gradient(const u8* hidden, u64 stride, const u8* gradients, u64 gradient_stride, int images,
                     const int* shares, float* partial) {
    constexpr int WARPS = GRADIENT_THREADS / 32;
    u32 start = shared_start(), zero = start + STAGES * STAGE_BYTES, full = zero + PIXEL, free = full + STAGES * 8;
    int layer = shares[blockIdx.x * 3], S = side(layer - 1), T = side(layer);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3;
    Strips strips(shares[blockIdx.x * 3 + 1], shares[blockIdx.x * 3 + 2], images, T, GRADIENT_ROWS), ahead = strips;
    hidden += offset(layer - 1), gradients += offset(layer);
    if (threadIdx.x < PIXEL / 4) put(zero + threadIdx.x * 4, 0);
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; stage++) {
            make_barrier(full + stage * 8, 1);
            make_barrier(free + stage * 8, WARPS);
            publish();
        }
    synchronise();
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES - 1 && ahead.left > 0; stage++)
            fetch(ahead, start + stage * STAGE_BYTES, full + stage * 8, hidden, stride, gradients, gradient_stride);
    Sums<2> sums;
    u32 by_side = reciprocal(T), own_chunk = lane / 8 % 2 * 16, nothing = zero + lane / 16 * 16;
    int own_pixel = lane % 8 + lane / 16 * 8, own_output = lane % 8 + lane / 8 % 2 * 8;
    u32 own_gradient = own_output * PIXEL + chunk(lane / 16, own_output);
    int stage = 0, last = STAGES - 1, round = 0;  // the last stage: the one that was worked on before
    while (strips.left > 0) {
        if (threadIdx.x == 0 && ahead.left > 0) {
            if (round > 0 || stage > 0) wait_for(free + last * 8, (stage > 0 ? round : round - 1) % 2);
            fetch(ahead, start + last * STAGE_BYTES, full + last * 8, hidden, stride, gradients, gradient_stride);
        }
        Strip strip = strips.next();
        u32 source = start + stage * STAGE_BYTES, output = source + SOURCE_BYTES;
        int pixels = strip.rows * T;
        auto rows_of = [&](int block) {  // a strip begins at a multiple of eight pixels, so chunks do, too
            int at = block * 16 + own_pixel, p = at < pixels ? at : 0;
            p += 2 * ((u32)p * by_side >> 20) + dy * S;  // the input's rows are two pixels longer
            u32 first = source + p * PIXEL, by_pixel = p << 3;
            Rows rows = {block * 16 + own_output < pixels ? output + block * 16 * PIXEL + own_gradient : nothing};
#pragma unroll
            for (int dx = 0; dx < 3; dx++)
                rows.source[dx] = first + dx * PIXEL + (((by_pixel + dx * 8) & 48) ^ own_chunk);
            return rows;
        };
        int block = warp / 3;
        Rows rows = rows_of(block);
        synchronise_warp();
        wait_for(full + stage * 8, round % 2);
        Matrices matrices;
        load_gradient(matrices, rows);
        load_source<2>(matrices, rows, 0);
        while (block * 16 < pixels) {
            block += WARPS / 3;
            Rows next = rows_of(block);
            add_pixels<2>(sums, matrices, rows, next);
            rows = next;
        }
        synchronise_warp();
        if (lane == 0) come_to(free + stage * 8);
        last = stage;
        if (++stage == STAGES) stage = 0, round++;
    }
    add_up<2, WARPS / 3>(sums, start, partial + (u64)blockIdx.x * WEIGHTS);
}

// The same for the first layer; every block takes each gridDim-th strip, and asks for the next while it works.
extern "C" __global__ __launch_bounds__(FIRST_GRADIENT_THREADS, 2)
void first_weight_gradient(const u16* images, const u16* others, int split, const u8* gradients, u64 gradient_stride,
                           int count, float* partial) {
    constexpr int T = side(1), WARPS = FIRST_GRADIENT_THREADS / 32, GRADIENT_BYTES = FIRST_ROWS * T * PIXEL;
    u32 source = shared_start(), raw = source + STRIP_BYTES, outputs = raw + (RAW_BYTES + 63) / 64 * 64;
    u32 zero = outputs + 2 * GRADIENT_BYTES;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3;
    if (threadIdx.x < PIXEL / 4) put(zero + threadIdx.x * 4, 0);
    Sums<1> sums;
    Strips strips(blockIdx.x, gridDim.x, count, T, FIRST_ROWS), ahead = strips;
    auto ask = [&](u32 output) {
        if (ahead.left <= 0) return;
        Strip strip = ahead.next();
        ask_for_rows(raw, image_of(images, others, split, strip.image), 2 * strip.from);
        const u8* from = gradients + strip.image * gradient_stride + strip.from * T * PIXEL;
        for (int i = threadIdx.x * 16; i < strip.rows * T * PIXEL; i += FIRST_GRADIENT_THREADS * 16)
            ask_for<16>(output + i, from + i);
    };
    ask(outputs);
    for (int turn = 0; strips.left > 0; turn ^= 1) {
        Strip strip = strips.next();
        u32 output = outputs + turn * GRADIENT_BYTES;
        int pixels = strip.rows * T;
        wait_for_all();
        synchronise();
        turn_rows(source, raw);
        synchronise();
        ask(outputs + (turn ^ 1) * GRADIENT_BYTES);
        for (int block = warp / 3; block * 16 < pixels; block += WARPS / 3) {
            int q = block * 16 + lane % 8 + (lane / 8 % 2) * 8, at = block * 16 + lane % 8 + (lane / 16) * 8;
            u32 gradient = output + q * PIXEL + chunk(lane / 16, strip.from * T + q);
            at = at < pixels ? at : 0;
            Rows rows = {q < pixels ? gradient : zero + lane / 16 * 16};
#pragma unroll
            for (int dx = 0; dx < 3; dx++) {
                int p = strip_pixel(at / T, at % T, dy * 3 + dx);
                rows.source[dx] = source + p * 32 + ((lane / 8 % 2 * 16) ^ ((p << 2) & 16));
            }
            Matrices matrices;
            load_gradient(matrices, rows);
            load_source<1>(matrices, rows, 0);
            add_pixels<1>(sums, matrices, rows, rows);
        }
    }
    add_up<1, WARPS / 3>(sums, source, partial + (u64)blockIdx.x * FIRST_SUMS);
}

// Adds partial sums up and puts them into the parameters' order: weights by blocks' numbers (`ranges` says which
// are a layer's; the first layer's are apart), biases by images, which the last row of blocks does.
extern "C" __global__ void total(const float* first_partial, const float* partial, const int* ranges,
                                 const float* bias_sums, int images, float* gradients) {
    int layer = blockIdx.y, channels = layer ? 32 : CHANNELS, padded = layer ? 32 : 16;
    gradients += layer ? 32 * CHANNELS * 9 + 32 + (layer - 1) * (WEIGHTS + 32) : 0;
    if (blockIdx.x == gridDim.x - 1) {
        u32 memory = shared_start();
        int channel = threadIdx.x % 32, share = threadIdx.x / 32, shares = blockDim.x / 32;
        float sum = 0.0f;
#pragma unroll 8
        for (int image = share; image < images; image += shares)
            sum += bias_sums[(image * LAYERS + layer) * 32 + channel];
        put_float(memory + threadIdx.x * 4, sum);
        synchronise();
        if (share) return;
        for (int other = 1; other < shares; other++) sum += get_float(memory + (other * 32 + channel) * 4);
        gradients[32 * channels * 9 + channel] = sum;
        return;
    }
    int i = blockIdx.x * blockDim.x + threadIdx.x, numbers = 9 * padded * 32;
    if (i >= numbers) return;
    const float* from = layer ? partial : first_partial;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = ranges[2 * layer]; part < ranges[2 * layer + 1]; part++) sum += from[(u64)part * numbers + i];
    int n = i % 32, in = i / 32 % padded, tap = i / 32 / padded;
    if (in < channels) gradients[(n * channels + in) * 9 + tap] = sum;
}
