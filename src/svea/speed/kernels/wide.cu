// A forward pass that no backward pass follows, by products of four warps (wgmma), which compute capability 9.0 alone
// has.
//
// Pictures are planes of eight channels here, 16 bytes to a pixel: eight neighbours are 128 bytes in a row, one to
// each bank, and a tap is nothing but a distance. A product's first factor has 64 rows, and its second is read from
// shared memory where it lies. So weights are the first, in registers, 32 filters for each of two rows of pixels: four
// rows of input are behind them, of which each row of pixels takes three, and a quarter of the products is with zeros.
// The second factor is G times eight neighbours, two rows from one eight to the next. Half of the warps make the upper
// rows, half the lower ones.
#if WIDE_PRODUCTS
static_assert(CHAIN_THREADS == 256 && FILTERS == 32 && !PLANES && !INNER, "eight warps and 32 filters");
constexpr int WIDE_STEPS = 24, MOST_GROUPS = 11, CHUNK = 16;  // bytes of a pixel in a plane

// The first layer; every block takes each gridDim-th strip, and asks for the next ones' rows while it works.
extern "C" __global__ __launch_bounds__(FIRST_THREADS, 2)
void first_wide(const u16* images, const u16* others, int split, const uint4* packed, const float* biases, u8* entry,
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

// What a layer's half of rows needs: pairs of rows, rounded up.
__device__ constexpr int groups_for(int side) { return ((side + 1) / 2 + 1) / 2; }

// Whether some layer needs products of so many groups: others are not compiled.
__device__ constexpr bool is_needed(int groups) {
    for (int layer = 2; layer <= LAYERS; layer++)
        if (groups_for(side(layer)) == groups) return true;
    return false;
}

struct WideLayer {
    u32 in, out;  // shared memory
    int side;     // of the output; the input's is two more
    u32 nowhere;  // takes what is not needed
    const float* bias;
    float least;  // 0 with a ReLU
};

// Which part of a layer a warp makes.
struct Part {
    int lower, odd, half;  // the lower rows; odd ones; which 16 filters

    __device__ inline Part() {
        int warp = of_first_lane(threadIdx.x / 32);  // so the compiler knows that it is a warp's
        lower = warp / 4, odd = warp / 2 % 2, half = warp % 2;
    }
};

// Weights as first factors: by rows of input, columns of taps, 16 channels in.
template <class Packed> __device__ inline void load_wide(u32 (&w)[WIDE_STEPS][4], Packed packed) {
    Part part;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < WIDE_STEPS; step++) {
        int dy = step / 6 - part.odd, dx = step / 2 % 3;
        uint4 four = make_uint4(0, 0, 0, 0);
        if (0 <= dy && dy < 3)
            four = four_of(packed, (((dy * 3 + dx) * 2 + step % 2) * 2 + part.half) * 32 + lane);
        w[step][0] = four.x, w[step][1] = four.z, w[step][2] = four.y, w[step][3] = four.w;
    }
}

// Starts the products of a strip of eight columns.
template <int G>
__device__ inline void start_strip(float (&sum)[G][4], const WideLayer& layer, const Part& part,
                                   const u32 (&w)[WIDE_STEPS][4], int strip) {
    int pitch = layer.side + 2, plane = pitch * pitch, row = part.lower ? layer.side - 2 * G : 0;
    u32 low = (layer.in / CHUNK + row * pitch + strip * 8) | plane << 16;
    hold(sum);
    begin_products();
#pragma unroll
    for (int step = 0; step < WIDE_STEPS; step++) {
        u32 distance = step / 6 * pitch + step / 2 % 3 + step % 2 * 2 * plane;
        multiply_wide(sum, w[step], low + distance, 2 * pitch, step > 0);
    }
    end_products();
}

// What a strip's sums become: pixels of the next layer, two groups at a time.
template <int G>
__device__ inline void finish_strip(float (&sum)[G][4], const WideLayer& layer, const Part& part,
                                    const float (&bias)[2], int strip) {
    int lane = threadIdx.x % 32, x = strip * 8 + lane % 8, second = lane / 16, plane = part.half * 2 + lane / 8 % 2;
    int row = (part.lower ? layer.side - 2 * G : 0) + part.odd + 2 * second;
    int from = part.lower ? 2 * G : 0;  // if both halves have a row, the upper one makes it
    hold(sum);
#pragma unroll
    for (int group = 0; group < G; group += 2) {
        bool own = x < layer.side && row + 2 * group >= from && group + second < G;
        u32 at = layer.out + ((plane * layer.side + row + 2 * group) * layer.side + x) * CHUNK, made[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int number = group + i / 2 < G ? group + i / 2 : group, e = i % 2;
            float first = fmaxf(sum[number][2 * e] + bias[e], layer.least);
            made[i] = pair(first, fmaxf(sum[number][2 * e + 1] + bias[e], layer.least));
        }
        store_turned_matrices(made, own ? at : layer.nowhere);
    }
}

// A whole layer; `next` is called when the weights are not needed any more.
template <int G, class Next>
__device__ inline void convolve_wide(const WideLayer& layer, const u32 (&w)[WIDE_STEPS][4], Next next) {
    Part part;
    int strips = (layer.side + 7) / 8;
    float bias[2], sum[G][4];
    for (int e = 0; e < 2; e++) bias[e] = layer.bias[part.half * 16 + e * 8 + threadIdx.x % 32 / 4];
#pragma unroll 1
    for (int strip = 0; strip < strips; strip++) {
        start_strip(sum, layer, part, w, strip);
        wait_for_products<0>();
        if (strip == strips - 1) next();
        finish_strip(sum, layer, part, bias, strip);
    }
}

template <int G, class Next>
__device__ inline void convolve_by_groups(const WideLayer& layer, const u32 (&w)[WIDE_STEPS][4], Next next) {
    if constexpr (is_needed(G))
        if (groups_for(layer.side) == G) return convolve_wide<G>(layer, w, next);
    if constexpr (G < MOST_GROUPS) convolve_by_groups<G + 1>(layer, w, next);
}

// Features in the order of channels, as a network's head takes them.
__device__ inline void write_wide_features(u32 result, u16* out) {
    constexpr int PIXELS = side(LAYERS) * side(LAYERS);
    for (int i = threadIdx.x; i < FILTERS * PIXELS; i += CHAIN_THREADS) {
        int c = i / PIXELS, q = i % PIXELS;
        out[i] = get_half(result + (c / 8 * PIXELS + q) * CHUNK + c % 8 * 2);
    }
}

// Layers 2 and on. `entry` has the first layer's pixels of every image, by first_wide.
extern "C" __global__ __launch_bounds__(CHAIN_THREADS, 1)
void forward_wide(const u8* entry, const uint4* packed, const float* biases, u16* features) {
    u32 start = shared_start(), next = start + BEHIND, nowhere = next + FRAGMENTS * 16;
    u32 image_there = nowhere + CHUNK, next_there = image_there + 8;
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
    load_wide(w, packed);
    synchronise();
    wait_for(image_there, 0);
#pragma unroll 1
    for (int layer = 2; layer <= LAYERS; layer++) {
        WideLayer shape = {place(start, layer - 1), place(start, layer), side(layer), nowhere,
                           biases + (layer - 1) * FILTERS, layer < LAYERS || RELU_LAST ? 0.0f : -3.4e38f};
        auto load_next = [&] {
            if (layer == LAYERS) return;
            wait_for(next_there, layer % 2);
            load_wide(w, next);
        };
        convolve_by_groups<1>(shape, w, load_next);
        finish_layer(nullptr, shape.out, bytes(layer));
        fetch_weights(layer + 2);
    }
    write_wide_features(place(start, LAYERS), features + (u64)blockIdx.x * (bytes(LAYERS) / 2));
}
#endif
