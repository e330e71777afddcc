// The gradients of the trunk's weights: products of a layer's input with the gradient at its output, over pixels.

// A warp's sums over pixels of (input channels of a row of taps) x (output channels): products of 16 x 8.
template <int COLUMNS_, int PIECES_, int GROUPS_> struct Sums {
    static constexpr int COLUMNS = COLUMNS_, PIECES = PIECES_, GROUPS = GROUPS_;
    static constexpr int NUMBERS = 3 * COLUMNS * PIECES * 16 * GROUPS * 8;  // of all rows of taps
    float weight[COLUMNS][PIECES][GROUPS][4] = {};
};

// Rows of matrices that a lane names for 16 pixels: of the gradient, and of the input for each column of taps.
struct Rows {
    u32 gradient, source[3];
};

// Matrices of 16 pixels on their way from shared memory: the gradient's, and the input's one after the other.
template <int GROUPS> struct Matrices {
    u32 gradient[GROUPS / 2][4], source[2][4];
};

template <int GROUPS> __device__ inline void load_gradient(Matrices<GROUPS>& matrices, const Rows& rows) {
#pragma unroll
    for (int piece = 0; piece < GROUPS / 2; piece++)
        load_turned_matrices(matrices.gradient[piece], rows.gradient ^ (piece * 32));
}

template <int PIECES, int GROUPS>
__device__ inline void load_source(Matrices<GROUPS>& matrices, const Rows& rows, int number) {
    load_turned_matrices(matrices.source[number % 2], rows.source[number / PIECES] ^ (number % PIECES * 32));
}

// Adds 16 pixels, whose first matrices are there already, and loads the first of the next 16.
template <class S>
__device__ inline void add_pixels(S& sums, Matrices<S::GROUPS>& matrices, const Rows& rows, const Rows& next_rows) {
    constexpr int COUNT = S::COLUMNS * S::PIECES;
    Matrices<S::GROUPS> next;
#pragma unroll
    for (int number = 0; number < COUNT; number++) {
        if (number < COUNT - 1) {
            load_source<S::PIECES>(matrices, rows, number + 1);
        } else {
            load_gradient(next, next_rows);
            load_source<S::PIECES>(next, next_rows, 0);
        }
#pragma unroll
        for (int j = 0; j < S::GROUPS; j++) {
            const u32(&g)[4] = matrices.gradient[j / 2];
            multiply(sums.weight[number / S::PIECES][number % S::PIECES][j], matrices.source[number % 2],
                     g[j % 2 * 2], g[j % 2 * 2 + 1]);
        }
    }
    matrices = next;
}

// Adds the sums of the warps that share a row of taps, in a fixed order: (tap, channel in, channel out).
template <int SHARES, class S> __device__ inline void add_up(const S& sums, u32 memory, float* out) {
    constexpr int IN = S::PIECES * 16, OUT = S::GROUPS * 8;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3, group = lane / 4, member = lane % 4;
    synchronise();  // everybody is done with what lay in this memory
    if (warp < 3 * SHARES)
#pragma unroll
        for (int dx = 0; dx < S::COLUMNS; dx++)
#pragma unroll
            for (int m = 0; m < S::PIECES; m++)
#pragma unroll
                for (int j = 0; j < S::GROUPS; j++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int in = m * 16 + group + e / 2 * 8, n = j * 8 + member * 2 + e % 2;
                        u32 at = warp / 3 * S::NUMBERS + ((dy * S::COLUMNS + dx) * IN + in) * OUT + n;
                        put_float(memory + at * 4, sums.weight[dx][m][j][e]);
                    }
    synchronise();
    for (int i = threadIdx.x; i < S::NUMBERS; i += blockDim.x) {
        float total = 0.0f;
        for (int share = 0; share < SHARES; share++) total += get_float(memory + (share * S::NUMBERS + i) * 4);
        out[i] = total;
    }
}

typedef Sums<FIRST_STEPS / 3, 1, BLOCKS> FirstSums;
typedef Sums<3, FILTERS / 16, BLOCKS> PlainSums;
typedef Sums<3, 1, BLOCKS> PlaneSums;

constexpr int SOURCE_BYTES = (GRADIENT_ROWS + 2) * side(1) * PIXEL, OUTPUT_BYTES = GRADIENT_ROWS * side(2) * PIXEL;
constexpr int STAGE_BYTES = SOURCE_BYTES + OUTPUT_BYTES;

// Pictures of a layer: where the first is, and how far it is to the next.
struct Pictures {
    const u8* first;
    u64 stride;
};

// Starts to fetch a block's next strip, of pixels of IN bytes; `full` is passed when it is there.
template <int IN>
__device__ inline void fetch(Strips& strips, u32 stage, u32 full, const Pictures& sources, const Pictures& outputs) {
    int S = strips.side + 2, T = strips.side;
    Strip strip = strips.next();
    u32 source = (strip.rows + 2) * S * IN, output = strip.rows * T * PIXEL;
    come_and_expect(full, source + output);
    copy_in(stage, sources.first + strip.image * sources.stride + strip.from * S * IN, source, full);
    copy_in(stage + SOURCE_BYTES, outputs.first + strip.image * outputs.stride + strip.from * T * PIXEL, output, full);
}

// Partial sums of a layer's weights over a block's strips. They are fetched ahead: a stage is full when its bytes
// are there, and free when all warps are done with it.
template <class S> __device__ inline void add_strips(Strips strips, const Pictures& sources, const Pictures& outputs,
                                                     float* partial) {
    constexpr int WARPS = GRADIENT_THREADS / 32, IN = S::PIECES * 32;
    u32 start = shared_start(), zero = start + STAGES * STAGE_BYTES, full = zero + PIXEL, free = full + STAGES * 8;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3, T = strips.side, source_side = T + 2;
    Strips ahead = strips;
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
            fetch<IN>(ahead, start + stage * STAGE_BYTES, full + stage * 8, sources, outputs);
    S sums;
    u32 by_side = reciprocal(T), own_chunk = lane / 8 % 2 * 16, nothing = zero + lane / 16 * 16;
    int own_pixel = lane % 8 + lane / 16 * 8, own_output = lane % 8 + lane / 8 % 2 * 8;
    u32 own_gradient = own_output * PIXEL + chunk<PIXEL>(lane / 16, own_output);
    int stage = 0, last = STAGES - 1, round = 0;  // the last stage: the one that was worked on before
    while (strips.left > 0) {
        if (threadIdx.x == 0 && ahead.left > 0) {
            if (round > 0 || stage > 0) wait_for(free + last * 8, (stage > 0 ? round : round - 1) % 2);
            fetch<IN>(ahead, start + last * STAGE_BYTES, full + last * 8, sources, outputs);
        }
        Strip strip = strips.next();
        u32 source = start + stage * STAGE_BYTES, output = source + SOURCE_BYTES;
        int pixels = strip.rows * T;
        auto rows_of = [&](int block) {  // a strip begins at a multiple of eight pixels, so chunks do, too
            int at = block * 16 + own_pixel, p = at < pixels ? at : 0;
            p += 2 * ((u32)p * by_side >> 20) + dy * source_side;  // the input's rows are two pixels longer
            u32 first = source + p * IN;
            Rows rows = {block * 16 + own_output < pixels ? output + block * 16 * PIXEL + own_gradient : nothing};
#pragma unroll
            for (int dx = 0; dx < 3; dx++) rows.source[dx] = first + dx * IN + (turned<IN>(p + dx) ^ own_chunk);
            return rows;
        };
        int block = warp / 3;
        Rows rows = rows_of(block);
        synchronise_warp();
        wait_for(full + stage * 8, round % 2);
        Matrices<S::GROUPS> matrices;
        load_gradient(matrices, rows);
        load_source<S::PIECES>(matrices, rows, 0);
        while (block * 16 < pixels) {
            block += WARPS / 3;
            Rows next = rows_of(block);
            add_pixels(sums, matrices, rows, next);
            rows = next;
        }
        synchronise_warp();
        if (lane == 0) come_to(free + stage * 8);
        last = stage;
        if (++stage == STAGES) stage = 0, round++;
    }
    add_up<WARPS / 3>(sums, start, partial);
}

// Partial sums of the weights' gradients of layers 2 and on. `shares` says which layer a block works on, which of
// its strips it takes first, how many it steps on, and which plane it is. `last` is the gradient of features that
// another part reads.
extern "C" __global__ __launch_bounds__(GRADIENT_THREADS, CHAINS)
void weight_gradient(const u8* entry, const u8* hidden, u64 stride, const u8* gradients, u64 gradient_stride,
                     const u8* last, int images, const int* shares, float* partial) {
    const int* share = shares + blockIdx.x * 4;
    int layer = share[0], plane = share[3];
    Strips strips(share[1], share[2], images, side(layer), GRADIENT_ROWS);
    Pictures sources = {hidden + offset(layer - 1), stride}, outputs = {gradients + offset(layer), gradient_stride};
    if (layer == 2) sources = {entry + plane * (bytes(1) / (PLANES ? PLANES : 1)), (u64)bytes(1)};
    if (INNER && layer == LAYERS) outputs = {last, (u64)bytes(LAYERS)};
    partial += (u64)blockIdx.x * PlainSums::NUMBERS;
    if (PLANES && layer == 2) add_strips<PlaneSums>(strips, sources, outputs, partial);
    else add_strips<PlainSums>(strips, sources, outputs, partial);
}

// The same for the first layer; every block takes each gridDim-th strip, and asks for the next while it works.
extern "C" __global__ __launch_bounds__(FIRST_GRADIENT_THREADS, 2)
void first_weight_gradient(const u16* images, const u16* others, int split, const u8* gradients, int count,
                           float* partial) {
    constexpr int T = side(1), WARPS = FIRST_GRADIENT_THREADS / 32, GRADIENT_BYTES = FIRST_ROWS * T * PIXEL;
    u32 source = shared_start(), raw = source + STRIP_BYTES, outputs = raw + (RAW_BYTES + 63) / 64 * 64;
    u32 zero = outputs + 2 * GRADIENT_BYTES;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3;
    if (threadIdx.x < PIXEL / 4) put(zero + threadIdx.x * 4, 0);
    FirstSums sums;
    Strips strips(blockIdx.x, gridDim.x, count, T, FIRST_ROWS), ahead = strips;
    auto ask = [&](u32 output) {
        if (ahead.left <= 0) return;
        Strip strip = ahead.next();
        ask_for_rows(raw, image_of(images, others, split, strip.image), 2 * strip.from);
        const u8* from = gradients + (u64)strip.image * bytes(1) + strip.from * T * PIXEL;
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
            u32 gradient = output + q * PIXEL + chunk<PIXEL>(lane / 16, strip.from * T + q);
            at = at < pixels ? at : 0;
            Rows rows = {q < pixels ? gradient : zero + lane / 16 * 16};
#pragma unroll
            for (int dx = 0; dx < FirstSums::COLUMNS; dx++)
                rows.source[dx] = strip_chunk(source, at / T, at % T, dy * FirstSums::COLUMNS + dx, lane / 8 % 2);
            Matrices<BLOCKS> matrices;
            load_gradient(matrices, rows);
            load_source<1>(matrices, rows, 0);
            add_pixels(sums, matrices, rows, rows);
        }
    }
    add_up<WARPS / 3>(sums, source, partial + (u64)blockIdx.x * FirstSums::NUMBERS);
}

// A sum of a row's numbers over the pictures, for each of FILTERS columns, by one block.
__device__ inline void add_biases(const float* sums, u64 stride, int images, float* out) {
    u32 memory = shared_start();
    int channel = threadIdx.x % FILTERS, share = threadIdx.x / FILTERS, shares = blockDim.x / FILTERS;
    float sum = 0.0f;
#pragma unroll 8
    for (int image = share; image < images; image += shares) sum += sums[image * stride + channel];
    put_float(memory + threadIdx.x * 4, sum);
    synchronise();
    if (share) return;
    for (int other = 1; other < shares; other++) sum += get_float(memory + (other * FILTERS + channel) * 4);
    out[channel] = sum;
}

// Adds partial sums up and puts them into the parameters' order: weights by blocks' numbers, biases by images, which
// the last row of blocks does. `ranges` says which blocks are a layer's, the first layer's apart, or a plane's.
extern "C" __global__ void total(const float* first_partial, const float* partial, const int* ranges,
                                 const float* bias_sums, const float* last_sums, int images, float* gradients) {
    int task = blockIdx.y, plane = PLANES && task < PLANES ? task : 0;
    int layer = PLANES ? (task < PLANES ? 2 : task - PLANES + 3) : task + 1;
    int first_channels = PLANES ? 16 * PLANES : CHANNELS, channels = layer == OWN ? first_channels : FILTERS;
    if (layer > OWN) gradients += (first_channels * 9 + 1) * FILTERS + (layer - OWN - 1) * (FILTERS * 9 + 1) * FILTERS;
    if (blockIdx.x == gridDim.x - 1) {
        bool given = INNER && layer == LAYERS;
        const float* sums = given ? last_sums : bias_sums + (layer - 1) * FILTERS;
        if (plane == 0) add_biases(sums, given ? FILTERS : LAYERS * FILTERS, images, gradients + channels * 9 * FILTERS);
        return;
    }
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = i % FILTERS, in = i / FILTERS;
    bool first = layer == 1, narrow = first && NARROW;
    int numbers = first ? FirstSums::NUMBERS : layer == OWN ? PlaneSums::NUMBERS : PlainSums::NUMBERS;
    if (i >= numbers) return;
    const float* from = first ? first_partial : partial;
    u64 stride = first ? FirstSums::NUMBERS : PlainSums::NUMBERS;
    float sum = 0.0f;
#pragma unroll 8
    for (int part = ranges[2 * task]; part < ranges[2 * task + 1]; part++) sum += from[part * stride + i];
    int padded = layer == OWN ? 16 : FILTERS, tap = in / padded;
    in %= padded;
    if (narrow) tap = tap * 3 + in / 4, in = in / 4 < 3 ? in % 4 : CHANNELS;
    if (first && in >= CHANNELS) return;
    gradients[(n * channels + plane * 16 + in) * 9 + tap] = sum;
}
