// The CNN's forward pass, and its backward pass except for the weights' gradients (trunk_gradients.cu).
//
// A picture of the paper's trunk is 41x41 pixels after its first layer, 64 bytes each: two such pictures fit
// into one multiprocessor. So a block takes one picture through all layers without leaving it, and a layer's
// weights lie in registers. Products are of 16 pixels with 16 channels, by tensor cores.

constexpr int CHAIN_WARPS = CHAIN_THREADS / 32, CHAINS = FILTERS == 16 ? 2 : 1;  // that fit into a multiprocessor

// Rows of an image that a strip of the first layer's output is made from, as they are: planes of a colour each.
// Then they become pixels of 16 channels, or of four.
constexpr int STRIP_ROWS = 2 * FIRST_ROWS + 1, PLANE_BYTES = STRIP_ROWS * SIDE * 2, RAW_BYTES = CHANNELS * PLANE_BYTES;
constexpr int TURNED_BYTES = STRIP_ROWS * SIDE * (NARROW ? 8 : 32);

__device__ inline void ask_for_rows(u32 raw, const u16* image, int first_row) {
    constexpr int PIECE = SIDE % 4 ? 4 : 8, PIECES = PLANE_BYTES / PIECE;
    int there = (SIDE - first_row) * SIDE * 2 / PIECE;  // below the image is nothing
    const u8* from = (const u8*)(image + first_row * SIDE);
    for (int i = threadIdx.x; i < CHANNELS * PIECES; i += blockDim.x) {
        int c = i / PIECES, piece = i % PIECES;
        if (piece < there) ask_for<PIECE>(raw + i * PIECE, from + c * SIDE * SIDE * 2 + piece * PIECE);
    }
}

// They as pixels of 16 channels, 32 bytes: even columns of a row, then odd ones. The two chunks of a pixel change
// places with every fourth, so eight neighbours' equal chunks lie in different banks. Narrow ones have four channels,
// 8 bytes, in order.
__device__ inline u32 chunk(u32 number, u32 pixel) { return number << 4 ^ (pixel << 2 & 16); }

__device__ inline void turn_rows(u32 strip, u32 raw) {
    constexpr int NUMBERS = NARROW ? 4 : 16;
    for (int i = threadIdx.x; i < STRIP_ROWS * HALF; i += blockDim.x) {
        int row = i / HALF, column = i % HALF;
        u32 both[NUMBERS], v[2][NUMBERS / 2];
#pragma unroll
        for (int c = 0; c < NUMBERS; c++) both[c] = c < CHANNELS ? get(raw + c * PLANE_BYTES + i * 4) : 0;
#pragma unroll
        for (int odd = 0; odd < 2; odd++)
#pragma unroll
            for (int c = 0; c < NUMBERS / 2; c++) {
                u32 low = both[2 * c], high = both[2 * c + 1];
                v[odd][c] = odd ? low >> 16 | (high & 0xffff0000u) : (low & 0xffff) | high << 16;
            }
        if constexpr (NARROW) {
            put_four(strip + i * 16, make_uint4(v[0][0], v[0][1], v[1][0], v[1][1]));
        } else {
#pragma unroll
            for (int odd = 0; odd < 2; odd++) {
                int p = row * SIDE + column + odd * HALF;
                u32 at = strip + p * 32;
                put_four(at + chunk(0, p), make_uint4(v[odd][0], v[odd][1], v[odd][2], v[odd][3]));
                put_four(at + chunk(1, p), make_uint4(v[odd][4], v[odd][5], v[odd][6], v[odd][7]));
            }
        }
    }
}

// Eight of the 16 numbers of a strip that a step of the first layer multiplies for an output pixel: a tap's
// channels, or four pixels of a row of taps (the fourth has weights of zero).
__device__ inline u32 strip_chunk(u32 strip, int row, int column, int step, int number) {
    if (NARROW) return strip + ((2 * row + step) * HALF + column + number) * 16;
    int dy = step / 3, dx = step % 3, p = (2 * row + dy) * SIDE + (dx == 1 ? HALF : 0) + column + dx / 2;
    return strip + p * 32 + chunk(number, p);
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

// The first layer; every block takes each gridDim-th strip, and asks for the next ones' rows while it works.
extern "C" __global__ __launch_bounds__(FIRST_THREADS, 2)
void first(const u16* images, const u16* others, int split, const uint4* packed, const float* biases, u8* entry,
           int count) {
    constexpr int T = side(1), WARPS = FIRST_THREADS / 32, RAW_ROOM = (RAW_BYTES + 63) / 64 * 64;
    u32 strip_memory = shared_start(), raw = strip_memory + TURNED_BYTES;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, member = lane % 4;
    Strips strips(blockIdx.x, gridDim.x, count, T, FIRST_ROWS), ahead = strips;
    auto ask = [&](u32 to) {
        if (ahead.left > 0) {
            Strip strip = ahead.next();
            ask_for_rows(to, image_of(images, others, split, strip.image), 2 * strip.from);
        }
        end_asking();
    };
    for (int n = 0; n < RAW_STRIPS; n++) ask(raw + n * RAW_ROOM);
    u32 w[FIRST_STEPS][2 * BLOCKS];
    load_weights(w, packed);
    float2 bias[BLOCKS];
#pragma unroll
    for (int j = 0; j < BLOCKS; j++) bias[j] = *(const float2*)(biases + j * 8 + member * 2);
    for (int turn = 0; strips.left > 0; turn = turn + 1 < RAW_STRIPS ? turn + 1 : 0) {
        Strip strip = strips.next();
        int pixels = strip.rows * T;
        wait_for_asked<RAW_STRIPS - 1>();
        synchronise();  // the rows are there, and the strip before has been read
        turn_rows(strip_memory, raw + turn * RAW_ROOM);
        synchronise();
        ask(raw + turn * RAW_ROOM);
        u8* out = entry + (u64)strip.image * bytes(1) + strip.from * T * CHUNK + member * 4;
#pragma unroll 1
        for (int block = warp; block * 16 < pixels; block += WARPS) {
            int q = block * 16 + lane % 16;
            q = q < pixels ? q : pixels - 1;
            int row = q / T, column = q % T;
            float sum[BLOCKS][4];
#pragma unroll
            for (int j = 0; j < BLOCKS; j++)
                sum[j][0] = sum[j][2] = bias[j].x, sum[j][1] = sum[j][3] = bias[j].y;
#pragma unroll
            for (int step = 0; step < FIRST_STEPS; step++) {
                u32 a[4];
                load_matrices(a, strip_chunk(strip_memory, row, column, step, lane / 16));
#pragma unroll
                for (int j = 0; j < BLOCKS; j++) multiply(sum[j], a, w[step][2 * j], w[step][2 * j + 1]);
            }
#pragma unroll
            for (int lower = 0; lower < 2; lower++) {  // eight pixels of a plane are 128 bytes in a row
                int p = block * 16 + group + lower * 8;
                if (p < pixels)
#pragma unroll
                    for (int j = 0; j < BLOCKS; j++) {
                        float x = fmaxf(sum[j][lower * 2], 0.0f), y = fmaxf(sum[j][lower * 2 + 1], 0.0f);
                        *(u32*)(out + (j * T * T + p) * CHUNK) = pair(x, y);
                    }
            }
        }
    }
}

// What a layer left in shared memory is whole; it may be copied out while the next layer reads it.
__device__ inline void finish_layer(u8* to, u32 from, u32 size) {
    publish();
    if (threadIdx.x == 0) wait_for_copies_out();  // of the layer before: the next one writes there
    synchronise();
    if (to != nullptr && threadIdx.x == 0) copy_out(to, from, size);
}

// One thread starts to fetch bytes; `there` is passed when they have come.
__device__ inline void start_fetching(u32 to, const void* from, u32 size, u32 there) {
    come_and_expect(there, size);
    copy_in(to, from, size, there);
}

// The layer on several pictures of 16 channels: 32 filters for all of them are more weights than registers, so
// half of the warps make half of the channels.
__device__ inline void join_planes(const Layer& layer, const uint4* packed) {
    int warp = threadIdx.x / 32, half = warp % (FILTERS / 16);
    u32 w[Joining::STEPS][2 * Joining::GROUPS];
    load_weights(w, packed, FILTERS / 16, half);
    float unused[Joining::GROUPS][2];
    convolve<false, Joining>(layer, w, unused, warp / (FILTERS / 16), CHAIN_WARPS / (FILTERS / 16), 2 * half);
}

// Features in the order of channels, as a network's head takes them.
__device__ inline void write_features(u32 result, u16* out) {
    constexpr int PIXELS = side(LAYERS) * side(LAYERS);
    for (int i = threadIdx.x; i < FILTERS * PIXELS; i += CHAIN_THREADS) {
        int c = i / PIXELS, q = i % PIXELS;
        out[i] = get_half(result + (c / 8 * PIXELS + q) * CHUNK + c % 8 * 2);
    }
}

#if !WIDE
// Layers 2 and on. `entry` has the first layer's pixels of every image; `hidden` takes the others' if they are kept.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, CHAINS)
void forward(const u8* entry, u8* hidden, u64 stride, const uint4* packed, const float* biases, u8* features, int keep) {
    u32 start = shared_start(), next = start + BEHIND, image_there = next + FRAGMENTS * 16;
    u32 next_there = image_there + 8;
    hidden += blockIdx.x * stride, features += (u64)blockIdx.x * bytes(LAYERS);
    packed += FIRST_FRAGMENTS;
    auto fetch_weights = [&](int layer) {  // while the layer before is computed
        if (threadIdx.x == 0 && layer <= LAYERS)
            start_fetching(next, packed + fragments_before(layer), FRAGMENTS * 16, next_there);
    };
    if (threadIdx.x == 0) {
        make_barrier(image_there, 1);
        make_barrier(next_there, 1);
        publish();
        start_fetching(start, entry + (u64)blockIdx.x * bytes(1), bytes(1), image_there);
    }
    fetch_weights(3);
    u32 w[STEPS][2 * BLOCKS];
    if (!PLANES) load_weights(w, packed);
    synchronise();
    wait_for(image_there, 0);
    auto shape_of = [&](int layer) -> Layer {
        return {place(start, layer - 1), place(start, layer), side(layer - 1), side(layer),
                biases + (layer - OWN) * FILTERS, layer < LAYERS || RELU_LAST ? 0.0f : -3.4e38f};
    };
    auto pass_on = [&](int layer) {
        if (layer < LAYERS) {  // who is done does it while others still work
            wait_for(next_there, layer % 2);
            load_weights(w, next);
        }
        u8* kept = keep && layer <= KEPT ? hidden + offset(layer) : nullptr;
        finish_layer(INNER && layer == LAYERS ? features : kept, place(start, layer), bytes(layer));
        fetch_weights(layer + 2);
    };
    if (PLANES) {  // apart: both layers' weights together are more than registers
        join_planes(shape_of(2), packed);
        pass_on(2);
    }
    float unused[BLOCKS][2];
#pragma unroll 1
    for (int layer = OWN + 1; layer <= LAYERS; layer++) {
        // Three rows: of 39 and 37 they are 32 and 31 turns of a warp, four for each of eight.
        if constexpr (INNER) convolve_bands<3>(shape_of(layer), w, threadIdx.x / 32, CHAIN_WARPS);
        else convolve<false, Plain>(shape_of(layer), w, unused, threadIdx.x / 32, CHAIN_WARPS);
        pass_on(layer);
    }
    if (!INNER) write_features(place(start, LAYERS), (u16*)features);
    if (threadIdx.x == 0) wait_for_copies_out();
}
#endif

#if !WIDE_BACK
// Adds up what a warp's lanes have of some channels, and leaves it for `write_channel_sums`: of `all` channels those
// from a number on.
template <int GROUPS>
__device__ inline void leave_channel_sums(float (&sums)[GROUPS][2], u32 memory, int all, int from) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < GROUPS; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            float sum = sums[j][e];
            for (int bits = 4; bits < 32; bits *= 2) sum += exchange(sum, bits);
            if (lane < 4) put_float(memory + (warp * all + from + j * 8 + lane * 2 + e) * 4, sum);
            sums[j][e] = 0.0f;
        }
}

__device__ inline void write_channel_sums(u32 memory, int all, float* out) {
    if (threadIdx.x >= all) return;
    float sum = 0.0f;
    for (int warp = 0; warp < CHAIN_WARPS; warp++) sum += get_float(memory + (warp * all + threadIdx.x) * 4);
    out[threadIdx.x] = sum;
}

// The gradient of the features, which is in the order of channels, as pixels, and its sums.
__device__ inline void read_gradient(u32 to, const u16* gradient, const u8* clipped, float* sums) {
    constexpr int PIXELS = side(LAYERS) * side(LAYERS);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int c = warp; c < FILTERS; c += CHAIN_WARPS) {
        float sum = 0.0f;
        for (int q = lane; q < PIXELS; q += 32) {
            u16 value = gradient[c * PIXELS + q];
            u32 at = (c / 8 * PIXELS + q) * CHUNK + c % 8 * 2;
            if (RELU_LAST && !(*(const u16*)(clipped + at) & 0x7fff)) value = 0;
            put_half(to + at, value);
            sum += __uint_as_float((u32)value << 16);
        }
        for (int bits = 1; bits < 32; bits *= 2) sum += exchange(sum, bits);
        if (lane == 0) sums[c] = sum;
    }
}

// The gradient of pictures of 16 channels that were joined, one after the other; their sums are left in `memory`.
__device__ inline void part_planes(Layer layer, const uint4* packed, u32 memory) {
    int thin = layer.side_out * layer.side_out * THIN;
#pragma unroll 1
    for (int plane = 0; plane < PLANES; plane++) {
        u32 w[Parting::STEPS][2 * Parting::GROUPS];
        load_weights(w, packed, PLANES, plane);
        float channel_sums[Parting::GROUPS][2] = {};
        convolve<true, Parting>(layer, w, channel_sums, threadIdx.x / 32, CHAIN_WARPS);
        leave_channel_sums(channel_sums, memory, 16 * PLANES, 16 * plane);
        layer.out += thin, layer.source += thin;
    }
}

constexpr int SUM_BYTES = CHAIN_WARPS * 4 * (PLANES * 16 > FILTERS ? PLANES * 16 : FILTERS);

// Gradients at every layer's output, from the features' on down to the first layer's, and their sums over an
// image: what the biases get of it. The gradient of features that another part reads comes as pixels, with its sums
// in that part's `entry_sums`.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, CHAINS)
void backward(const u8* gradient, const u8* entry, const u8* hidden, u64 stride, const uint4* packed,
              u8* entry_gradient, u8* gradients, u64 gradient_stride, float* entry_sums, float* bias_sums) {
    int warp = threadIdx.x / 32;
    u32 start = shared_start(), room = start + BEHIND, zero = room + CHAIN_WARPS * ROOM;
    u32 sums_memory = zero + CHUNK, there = sums_memory + 2 * SUM_BYTES;
    gradient += (u64)blockIdx.x * bytes(LAYERS);
    entry += (u64)blockIdx.x * bytes(1), entry_gradient += (u64)blockIdx.x * bytes(1);
    hidden += blockIdx.x * stride, gradients += blockIdx.x * gradient_stride;
    bias_sums += blockIdx.x * LAYERS * FILTERS, entry_sums += blockIdx.x * PLANES * 16;
    if (threadIdx.x < CHUNK / 4) put(zero + threadIdx.x * 4, 0);
    u32 last = place(start, LAYERS);
    if (INNER && threadIdx.x == 0) {
        make_barrier(there, 1);
        publish();
        start_fetching(last, gradient, bytes(LAYERS), there);
    }
    if (!INNER)
        read_gradient(last, (const u16*)gradient, hidden + offset(LAYERS), bias_sums + (LAYERS - 1) * FILTERS);
    u32 w[STEPS][2 * BLOCKS];
    if (!PLANES || LAYERS > 2) load_weights(w, packed + fragments_before(LAYERS));
    finish_layer(INNER ? nullptr : gradients + gradient_offset(LAYERS), last, bytes(LAYERS));
    if (INNER) wait_for(there, 0);
    float channel_sums[BLOCKS][2] = {};
#pragma unroll 1
    for (int layer = LAYERS; layer > OWN; layer--) {
        Layer shape = {place(start, layer), place(start, layer - 1), side(layer), side(layer - 1), nullptr, 0.0f,
                       layer == 2 ? entry : hidden + offset(layer - 1), zero, room + warp * ROOM};
        convolve<true, Plain>(shape, w, channel_sums, warp, CHAIN_WARPS);
        if (layer - 1 > OWN) load_weights(w, packed + fragments_before(layer - 1));
        u32 memory = sums_memory + layer % 2 * SUM_BYTES;  // in turns: the last ones may still be read
        leave_channel_sums(channel_sums, memory, FILTERS, 0);
        u8* to = layer == 2 ? entry_gradient : gradients + gradient_offset(layer - 1);
        finish_layer(to, place(start, layer - 1), bytes(layer - 1));
        write_channel_sums(memory, FILTERS, bias_sums + (layer - 2) * FILTERS);
    }
    if (PLANES) {
        Layer shape = {place(start, 2), start, side(2), side(1), nullptr, 0.0f, entry, zero, room + warp * ROOM};
        part_planes(shape, packed, sums_memory);
        finish_layer(entry_gradient, start, bytes(1));
        write_channel_sums(sums_memory, PLANES * 16, entry_sums);
    }
    if (threadIdx.x == 0) wait_for_copies_out();
}
#endif
