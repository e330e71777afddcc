// Layers 2 and on, and their way back, by products of four warps (wgmma), which compute capability 9.0 alone has.
//
// Such a product's first factor has 64 rows, and its second is read from shared memory where it lies. So weights are
// the first, in registers, 32 filters for each of two rows of pixels: four rows of input are behind them, of which
// each row of pixels takes three, and a quarter of the products is with zeros. The second factor is G times eight
// neighbours in a column, two rows from one to the next. Half of the warps make the upper rows, half the lower ones.
//
// Pictures of 16 channels that stand together take the way forward alone: their layer is the first here, with as many
// pieces of 16 channels in as there are pictures.
#if WIDE
static_assert(CHAIN_THREADS == 256 && FILTERS == 32 && !INNER, "eight warps and 32 filters");
constexpr int WIDE_STEPS = 24, JOINING_STEPS = 12 * (PLANES ? PLANES : 1), MOST_GROUPS = 11;

// What a layer's half of rows needs: pairs of rows, rounded up.
__device__ constexpr int groups_for(int side) { return ((side + 1) / 2 + 1) / 2; }

// Whether some layer needs products of so many groups: others are not compiled.
template <bool BACK> __device__ constexpr bool is_needed(int groups) {
    for (int layer = OWN + 1; layer <= LAYERS; layer++)
        if (groups_for(side(BACK ? layer - 1 : layer)) == groups) return true;
    return false;
}

// Gradients in shared memory have two rows of nothing above and below, and two columns after each row, which are the
// next one's first, too: no tap reaches outside.
__device__ constexpr int padded(int layer) { return (side(layer) + 4) * (side(layer) + 2) + 2; }
constexpr int PADDED_THIRD = padded(3) * PIXEL;
constexpr int BACK_SECOND = bytes(1) > PADDED_THIRD ? bytes(1) : PADDED_THIRD;
constexpr int BACK_BEHIND = BACK_SECOND + padded(2) * PIXEL;

// Planes of pixels in shared memory: the first pixel, and pixels of a row and of a plane.
struct Picture {
    u32 at;
    int pitch, plane;
};

struct WideLayer {
    Picture in, out;  // in: the first tap of the first pixel
    int side;         // of the output
    u32 nothing;      // two chunks: one of nothing, and one that takes what is not needed
    const float* bias;
    float least;       // forward: 0 with a ReLU
    const u8* source;  // backward: the layer's input, zero where a ReLU clipped it
};

// Which part of a layer a warp makes.
struct Part {
    int lower, odd, half;  // the lower rows; odd ones; which 16 filters

    __device__ inline Part() {
        int warp = of_first_lane(threadIdx.x / 32);  // so the compiler knows that it is a warp's
        lower = warp / 4, odd = warp / 2 % 2, half = warp % 2;
    }
};

// Weights as first factors: by rows of input, columns of taps, 16 channels in. On the way back taps change places.
template <bool BACK, int STEPS_, class Packed> __device__ inline void load_wide(u32 (&w)[STEPS_][4], Packed packed) {
    constexpr int PIECES = STEPS_ / 12;  // of 16 channels in
    Part part;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < STEPS_; step++) {
        int dy = step / (3 * PIECES) - part.odd, dx = step / PIECES % 3, tap = BACK ? 8 - dy * 3 - dx : dy * 3 + dx;
        uint4 four = make_uint4(0, 0, 0, 0);
        if (0 <= dy && dy < 3) four = four_of(packed, ((tap * PIECES + step % PIECES) * 2 + part.half) * 32 + lane);
        w[step][0] = four.x, w[step][1] = four.y, w[step][2] = four.z, w[step][3] = four.w;
    }
}

// Rows of matrices that a lane names, of two groups of pixels: where they lie, and which of them a warp has to make.
template <int G> struct Places {
    int x, row, from, plane, second;

    __device__ inline Places(const WideLayer& layer, const Part& part, int strip) {
        int lane = threadIdx.x % 32;
        x = strip * 8 + lane % 8, second = lane / 16, plane = part.half * 2 + lane / 8 % 2;
        row = (part.lower ? layer.side - 2 * G : 0) + part.odd + 2 * second;
        from = part.lower ? 2 * G : 0;  // if both halves have a row, the upper one makes it
    }

    __device__ inline bool own(const WideLayer& layer, int group) const {
        return x < layer.side && row + 2 * group >= from && group + second < G;
    }
    __device__ inline u32 in(const Picture& picture, int group) const {
        return picture.at + (plane * picture.plane + (row + 2 * group) * picture.pitch + x) * CHUNK;
    }
};

// Asks for the layer's input where its gradient will lie: it takes no other room, and may come a strip ahead.
template <int G> __device__ inline void ask_for_wide_source(const WideLayer& layer, const Part& part, int strip) {
    Places<G> places(layer, part, strip);
    const u8* from = layer.source + (places.plane * layer.side * layer.side + places.row * layer.side + places.x) * CHUNK;
#pragma unroll
    for (int group = 0; group < G; group += 2)
        if (places.own(layer, group))
            ask_for<CHUNK>(places.in(layer.out, group), from + group * 2 * layer.side * CHUNK);
}

// Starts the products of a strip of eight columns; `meanwhile` is called between them, where a warp would wait.
template <int G, int STEPS_, class Meanwhile>
__device__ inline void start_strip(float (&sum)[G][4], const WideLayer& layer, const Part& part,
                                   const u32 (&w)[STEPS_][4], int strip, Meanwhile meanwhile) {
    constexpr int PIECES = STEPS_ / 12, PAUSE = PIECES > 1 ? 4 : 2;  // six calls at least, for eleven groups
    int pitch = layer.in.pitch, plane = layer.in.plane, row = part.lower ? layer.side - 2 * G : 0;
    u32 low = (layer.in.at / CHUNK + row * pitch + strip * 8) | plane << 16;
    hold(sum);
    begin_products();
#pragma unroll
    for (int step = 0; step < STEPS_; step++) {
        u32 distance = step / (3 * PIECES) * pitch + step / PIECES % 3 + step % PIECES * 2 * plane;
        multiply_wide(sum, w[step], low + distance, 2 * pitch, step > 0);
        if (step % PAUSE == PAUSE - 1) meanwhile(step / PAUSE);
    }
    end_products();
}

// Of which group a register's two pixels are, one of four that hold groups 2 * n and 2 * n + 1, if there is such a one.
template <int G> __device__ constexpr int group_of(int n, int i) { return 2 * n + i / 2 < G ? 2 * n + i / 2 : 2 * n; }

template <int G>
__device__ inline void store_pixels(const u32 (&made)[4], const WideLayer& layer, const Places<G>& places, int n) {
    bool own = places.own(layer, 2 * n);
    store_turned_matrices(made, own ? places.in(layer.out, 2 * n) : layer.nothing + CHUNK);
}

// A whole layer; `next` is called when the weights are not needed any more. A strip's pixels are stored between the
// next one's products: 8 to 9 % faster than after its own.
template <int G, int STEPS_, class Next>
__device__ inline void convolve_wide(const WideLayer& layer, const u32 (&w)[STEPS_][4], Next next) {
    Part part;
    int strips = (layer.side + 7) / 8, strip = 0;
    float bias[2], sum[G][4];
    u32 made[(G + 1) / 2][4];
    for (int e = 0; e < 2; e++) bias[e] = layer.bias[part.half * 16 + e * 8 + threadIdx.x % 32 / 4];
    auto make_pixels = [&] {
        wait_for_products<0>();
        hold(sum);
#pragma unroll
        for (int n = 0; n < (G + 1) / 2; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int group = group_of<G>(n, i), e = i % 2;
                float x = fmaxf(sum[group][2 * e] + bias[e], layer.least);
                float y = fmaxf(sum[group][2 * e + 1] + bias[e], layer.least);
                made[n][i] = pair(x, y);
            }
    };
    start_strip<G>(sum, layer, part, w, 0, [](int) {});
#pragma unroll 1
    for (; strip < strips - 1; strip++) {
        make_pixels();
        Places<G> places(layer, part, strip);
        start_strip<G>(sum, layer, part, w, strip + 1, [&](int n) {
            if (2 * n < G) store_pixels<G>(made[n], layer, places, n);
        });
    }
    make_pixels();
    next();
    Places<G> places(layer, part, strip);
#pragma unroll
    for (int n = 0; n < (G + 1) / 2; n++) store_pixels<G>(made[n], layer, places, n);
}

// The same on the way back, where stores between products gain nothing.
template <int G, class Next>
__device__ inline void convolve_wide_back(const WideLayer& layer, const u32 (&w)[WIDE_STEPS][4],
                                          float (&channel_sums)[2], Next next) {
    Part part;
    int strips = (layer.side + 7) / 8;
    float sum[G][4];
    u32 alive[(G + 1) / 2][4];
    ask_for_wide_source<G>(layer, part, 0);
    end_asking();
#pragma unroll 1
    for (int strip = 0; strip < strips; strip++) {
        // Before the products: a warp waits there until the tensor cores have taken the last of them.
        ask_for_wide_source<G>(layer, part, strip + 1);  // the last strip has none behind it
        end_asking();
        start_strip<G>(sum, layer, part, w, strip, [](int) {});
        wait_for_products<0>();
        if (strip == strips - 1) next();
        wait_for_asked<1>();
        Places<G> places(layer, part, strip);
        hold(sum);
        synchronise_warp();
#pragma unroll
        for (int n = 0; n < (G + 1) / 2; n++)  // all at once, not each when it is needed
            load_turned_matrices(alive[n], places.own(layer, 2 * n) ? places.in(layer.out, 2 * n) : layer.nothing);
#pragma unroll
        for (int n = 0; n < (G + 1) / 2; n++) {
            u32 made[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int group = group_of<G>(n, i), e = i % 2;
                float x = alive[n][i] & 0x7fffu ? sum[group][2 * e] : 0.0f;
                float y = alive[n][i] & 0x7fff0000u ? sum[group][2 * e + 1] : 0.0f;
                channel_sums[e] += x + y;
                made[i] = pair(x, y);
            }
            store_pixels<G>(made, layer, places, n);
        }
    }
}

template <bool BACK, int G, class Next>
__device__ inline void convolve_by_groups(const WideLayer& layer, const u32 (&w)[WIDE_STEPS][4],
                                          float (&channel_sums)[2], Next next) {
    if constexpr (is_needed<BACK>(G))
        if (groups_for(layer.side) == G) {
            if constexpr (BACK) return convolve_wide_back<G>(layer, w, channel_sums, next);
            return convolve_wide<G>(layer, w, next);
        }
    if constexpr (G < MOST_GROUPS) convolve_by_groups<BACK, G + 1>(layer, w, channel_sums, next);
}

// Layers 2 and on. `entry` has the first layer's pixels of every image; `hidden` takes the others' if they are kept.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, 1)
void forward(const u8* entry, u8* hidden, u64 stride, const uint4* packed, const float* biases, u8* features, int keep) {
    u32 start = shared_start(), next = start + BEHIND, nothing = next + FRAGMENTS * 16;
    u32 image_there = nothing + 2 * CHUNK, next_there = image_there + 8;
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
    u32 w[WIDE_STEPS][4];
    auto shape_of = [&](int layer) -> WideLayer {
        int before = side(layer - 1), after = side(layer);
        return {{place(start, layer - 1), before, before * before}, {place(start, layer), after, after * after}, after,
                nothing, biases + (layer - OWN) * FILTERS, layer < LAYERS || RELU_LAST ? 0.0f : -3.4e38f, nullptr};
    };
    auto load_next = [&](int layer) {
        if (layer == LAYERS) return;
        wait_for(next_there, layer % 2);
        load_wide<false>(w, next);
    };
    auto pass_on = [&](int layer) {
        finish_layer(keep && layer <= KEPT ? hidden + offset(layer) : nullptr, place(start, layer), bytes(layer));
        fetch_weights(layer + 2);
    };
    if constexpr (PLANES != 0) {  // apart: both layers' weights together are more than registers
        u32 joining[JOINING_STEPS][4];
        load_wide<false>(joining, packed);
        synchronise();
        wait_for(image_there, 0);
        convolve_wide<groups_for(side(2))>(shape_of(2), joining, [&] { load_next(2); });
        pass_on(2);
    } else {
        load_wide<false>(w, packed);
        synchronise();
        wait_for(image_there, 0);
    }
    float unused[2];
#pragma unroll 1
    for (int layer = OWN + 1; layer <= LAYERS; layer++) {
        convolve_by_groups<false, 1>(shape_of(layer), w, unused, [&] { load_next(layer); });
        pass_on(layer);
    }
    write_features(place(start, LAYERS), (u16*)features);
    if (threadIdx.x == 0) wait_for_copies_out();
}

#if WIDE_BACK
__device__ inline u32 back_place(u32 start, int layer) { return layer % 2 ? start : start + BACK_SECOND; }

// The gradient at a layer's output, from its first pixel on.
__device__ inline Picture gradient_at(u32 start, int layer) {
    u32 at = back_place(start, layer);
    int length = side(layer), pitch = length + 2;
    if (layer == 1) return {at, length, length * length};
    return {at + (2 * pitch + 2) * CHUNK, pitch, padded(layer)};
}

// Nothing around a gradient that will lie there.
__device__ inline void clear_around(u32 at, int layer) {
    int length = side(layer), pitch = length + 2, ends = 2 * pitch + 2, plane = padded(layer);
    for (int i = threadIdx.x; i < 2 * ends + 2 * (length - 1); i += CHAIN_THREADS) {
        int between = i - 2 * ends, p = i < ends ? i : plane - 1 - (i - ends);
        if (between >= 0) p = (between / 2 + 3) * pitch + between % 2;
        for (int j = 0; j < BLOCKS; j++) put_four(at + (j * plane + p) * CHUNK, make_uint4(0, 0, 0, 0));
    }
}

// The gradient of the features, which is in the order of channels, as pixels, and its sums.
__device__ inline void read_wide_gradient(const Picture& to, const u16* gradient, const u8* clipped, float* sums) {
    constexpr int SIDE_LAST = side(LAYERS), PIXELS = SIDE_LAST * SIDE_LAST;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int c = warp; c < FILTERS; c += CHAIN_WARPS) {
        float sum = 0.0f;
        for (int q = lane; q < PIXELS; q += 32) {
            u16 value = gradient[c * PIXELS + q];
            if (RELU_LAST && !(*(const u16*)(clipped + (c / 8 * PIXELS + q) * CHUNK + c % 8 * 2) & 0x7fff)) value = 0;
            int p = q / SIDE_LAST * to.pitch + q % SIDE_LAST;
            put_half(to.at + (c / 8 * to.plane + p) * CHUNK + c % 8 * 2, value);
            sum += __uint_as_float((u32)value << 16);
        }
        for (int bits = 1; bits < 32; bits *= 2) sum += exchange(sum, bits);
        if (lane == 0) sums[c] = sum;
    }
}

// As finish_layer, for a gradient that has columns of nothing.
__device__ inline void finish_gradient(u8* to, const Picture& picture, int layer) {
    publish();
    if (threadIdx.x == 0) wait_for_copies_out();
    synchronise();
    if (threadIdx.x) return;
    int size = side(layer) * picture.pitch * CHUNK;
    for (int j = 0; j < BLOCKS; j++) copy_out(to + j * size, picture.at + j * picture.plane * CHUNK, size);
}

constexpr int WIDE_SUM_BYTES = CHAIN_WARPS * 16 * 4;

// Gradients at every layer's output, from the features' on down to the first layer's, and their sums over an image:
// what the biases get of it.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, 1)
void backward(const u8* gradient, const u8* entry, const u8* hidden, u64 stride, const uint4* packed,
              u8* entry_gradient, u8* gradients, u64 gradient_stride, float* entry_sums, float* bias_sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 start = shared_start(), nothing = start + BACK_BEHIND, sums_memory = nothing + 2 * CHUNK;
    gradient += (u64)blockIdx.x * bytes(LAYERS);
    entry += (u64)blockIdx.x * bytes(1), entry_gradient += (u64)blockIdx.x * bytes(1);
    hidden += blockIdx.x * stride, gradients += blockIdx.x * gradient_stride;
    bias_sums += blockIdx.x * LAYERS * FILTERS;
    if (threadIdx.x == 0) put_four(nothing, make_uint4(0, 0, 0, 0));
    Picture picture = gradient_at(start, LAYERS);
    clear_around(back_place(start, LAYERS), LAYERS);
    read_wide_gradient(picture, (const u16*)gradient, hidden + offset(LAYERS), bias_sums + (LAYERS - 1) * FILTERS);
    u32 w[WIDE_STEPS][4];
    load_wide<true>(w, packed + fragments_before(LAYERS));
    finish_gradient(gradients + gradient_offset(LAYERS), picture, LAYERS);
#pragma unroll 1
    for (int layer = LAYERS; layer > 1; layer--) {
        picture = gradient_at(start, layer - 1);
        if (layer > 2) clear_around(back_place(start, layer - 1), layer - 1);
        WideLayer shape = {{back_place(start, layer), side(layer) + 2, padded(layer)}, picture, side(layer - 1), nothing,
                           nullptr, 0.0f, layer == 2 ? entry : hidden + offset(layer - 1)};
        float channel_sums[2] = {};
        auto load_next = [&] {
            if (layer > 2) load_wide<true>(w, packed + fragments_before(layer - 1));
        };
        convolve_by_groups<true, 1>(shape, w, channel_sums, load_next);
        u32 memory = sums_memory + layer % 2 * WIDE_SUM_BYTES;  // in turns: the last ones may still be read
        for (int e = 0; e < 2; e++) {
            float sum = channel_sums[e];
            for (int bits = 1; bits < 4; bits *= 2) sum += exchange(sum, bits);
            if (lane % 4 == 0) put_float(memory + (warp * 16 + e * 8 + lane / 4) * 4, sum);
        }
        finish_gradient(layer == 2 ? entry_gradient : gradients + gradient_offset(layer - 1), picture, layer - 1);
        if (threadIdx.x < FILTERS) {  // every second warp has these channels
            float sum = 0.0f;
            for (int other = threadIdx.x / 16; other < CHAIN_WARPS; other += 2)
                sum += get_float(memory + (other * 16 + threadIdx.x % 16) * 4);
            bias_sums[(layer - 2) * FILTERS + threadIdx.x] = sum;
        }
    }
    if (threadIdx.x == 0) wait_for_copies_out();
}
#endif
#endif
