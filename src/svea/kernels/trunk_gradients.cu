// The gradients of the trunk's weights: products of a layer's input with the gradient at its output, over pixels.

// A strip of a layer's input in shared memory, and of the gradient at its output, whose planes end with a pixel of
// nothing; the first layer's gradient, too.
constexpr int SOURCE_PLANE = (GRADIENT_ROWS + 2) * side(1) * CHUNK, SOURCE_BYTES = BLOCKS * SOURCE_PLANE;
constexpr int OUTPUT_END = GRADIENT_ROWS * (side(2) + PAD) * CHUNK, OUTPUT_PLANE = OUTPUT_END + CHUNK;
constexpr int STAGE_BYTES = SOURCE_BYTES + BLOCKS * OUTPUT_PLANE;
constexpr int FIRST_END = FIRST_ROWS * side(1) * CHUNK, FIRST_PLANE = FIRST_END + CHUNK;

// A warp's sums over pixels of (input channels of a row of taps) x (output channels): products of 16 x 8. A strip of
// the gradient has PLANE_ bytes to a plane.
template <int COLUMNS_, int PIECES_, int GROUPS_, int PLANE_> struct Sums {
    static constexpr int COLUMNS = COLUMNS_, PIECES = PIECES_, GROUPS = GROUPS_, PLANE = PLANE_;
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

template <class S> __device__ inline void load_gradient(Matrices<S::GROUPS>& matrices, const Rows& rows) {
#pragma unroll
    for (int piece = 0; piece < S::GROUPS / 2; piece++)
        load_turned_matrices(matrices.gradient[piece], rows.gradient + piece * 2 * S::PLANE);
}

template <class S> __device__ inline void load_source(Matrices<S::GROUPS>& matrices, const Rows& rows, int number) {
    u32 row = rows.source[number / S::PIECES] + number % S::PIECES * 2 * SOURCE_PLANE;
    load_turned_matrices(matrices.source[number % 2], row);
}

// Adds 16 pixels, whose first matrices are there already, and loads the first of the next 16.
template <class S>
__device__ inline void add_pixels(S& sums, Matrices<S::GROUPS>& matrices, const Rows& rows, const Rows& next_rows) {
    constexpr int COUNT = S::COLUMNS * S::PIECES;
    Matrices<S::GROUPS> next;
#pragma unroll
    for (int number = 0; number < COUNT; number++) {
        if (number < COUNT - 1) {
            load_source<S>(matrices, rows, number + 1);
        } else {
            load_gradient<S>(next, next_rows);
            load_source<S>(next, next_rows, 0);
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

typedef Sums<FIRST_STEPS / 3, 1, BLOCKS, FIRST_PLANE> FirstSums;
typedef Sums<3, FILTERS / 16, BLOCKS, OUTPUT_PLANE> PlainSums;
typedef Sums<3, 1, BLOCKS, OUTPUT_PLANE> PlaneSums;

// Pictures of a layer: where the first is, and how far it is to the next.
struct Pictures {
    const u8* first;
    u64 stride;
};

// Starts to fetch a block's next strip, PARTS planes of input; `full` is passed when it is there.
template <int PARTS>
__device__ inline void fetch(Strips& strips, u32 stage, u32 full, const Pictures& sources, const Pictures& outputs) {
    int side = strips.side, source_row = (side + 2) * CHUNK, output_row = (side + PAD) * CHUNK;
    Strip strip = strips.next();
    u32 source = (strip.rows + 2) * source_row, output = strip.rows * output_row;
    const u8 *from = sources.first + strip.image * sources.stride + strip.from * source_row;
    const u8 *output_from = outputs.first + strip.image * outputs.stride + strip.from * output_row;
    come_and_expect(full, PARTS * source + BLOCKS * output);
    for (int j = 0; j < PARTS; j++)
        copy_in(stage + j * SOURCE_PLANE, from + j * (side + 2) * source_row, source, full);
    for (int j = 0; j < BLOCKS; j++)
        copy_in(stage + SOURCE_BYTES + j * OUTPUT_PLANE, output_from + j * side * output_row, output, full);
}

// Partial sums of a layer's weights over a block's strips. They are fetched ahead: a stage is full when its bytes
// are there, and free when all warps are done with it.
template <class S> __device__ inline void add_strips(Strips strips, const Pictures& sources, const Pictures& outputs,
                                                     float* partial) {
    constexpr int WARPS = GRADIENT_THREADS / 32, PARTS = S::PIECES * 2;
    u32 start = shared_start(), full = start + STAGES * STAGE_BYTES, free = full + STAGES * 8;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3;
    int T = strips.side + PAD, source_side = strips.side + 2;
    Strips ahead = strips;
    if (threadIdx.x < STAGES * BLOCKS) {
        u32 plane = start + threadIdx.x / BLOCKS * STAGE_BYTES + SOURCE_BYTES + threadIdx.x % BLOCKS * OUTPUT_PLANE;
        put_four(plane + OUTPUT_END, make_uint4(0, 0, 0, 0));
    }
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES; stage++) {
            make_barrier(full + stage * 8, 1);
            make_barrier(free + stage * 8, WARPS);
            publish();
        }
    synchronise();
    if (threadIdx.x == 0)
        for (int stage = 0; stage < STAGES - 1 && ahead.left > 0; stage++)
            fetch<PARTS>(ahead, start + stage * STAGE_BYTES, full + stage * 8, sources, outputs);
    S sums;
    u32 by_side = reciprocal(T), own_source = lane / 8 % 2 * SOURCE_PLANE + dy * source_side * CHUNK;
    int own_pixel = lane % 8 + lane / 16 * 8, own_output = lane % 8 + lane / 8 % 2 * 8;
    u32 own_gradient = lane / 16 * OUTPUT_PLANE;
    int stage = 0, last = STAGES - 1, round = 0;  // the last stage: the one that was worked on before
    int block = warp / 3;                         // of 16 pixels; threes of warps take turns, from strip to strip, too
    while (strips.left > 0) {
        if (threadIdx.x == 0 && ahead.left > 0) {
            if (round > 0 || stage > 0) wait_for(free + last * 8, (stage > 0 ? round : round - 1) % 2);
            fetch<PARTS>(ahead, start + last * STAGE_BYTES, full + last * 8, sources, outputs);
        }
        Strip strip = strips.next();
        u32 memory = start + stage * STAGE_BYTES, source = memory + own_source;
        u32 output = memory + SOURCE_BYTES + own_gradient;
        int pixels = strip.rows * T;
        auto rows_of = [&](int block) {
            int at = block * 16 + own_pixel, q = block * 16 + own_output;
            int p = at < pixels - PAD ? at : 0;  // the last ones' taps would reach behind the strip
            if (!PAD) p += 2 * ((u32)p * by_side >> 20);  // the input's rows are two pixels longer
            Rows rows = {output + (q < pixels ? q * CHUNK : OUTPUT_END)};
#pragma unroll
            for (int dx = 0; dx < 3; dx++) rows.source[dx] = source + (p + dx) * CHUNK;
            return rows;
        };
        Rows rows = rows_of(block);
        synchronise_warp();
        wait_for(full + stage * 8, round % 2);
        Matrices<S::GROUPS> matrices;
        load_gradient<S>(matrices, rows);
        load_source<S>(matrices, rows, 0);
        while (block * 16 < pixels) {
            block += WARPS / 3;
            Rows next = rows_of(block);
            add_pixels(sums, matrices, rows, next);
            rows = next;
        }
        block -= (pixels + 15) / 16;
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
    Pictures sources = {hidden + offset(layer - 1), stride}, outputs = {gradients + gradient_offset(layer), gradient_stride};
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
    constexpr int T = side(1), WARPS = FIRST_GRADIENT_THREADS / 32, GRADIENT_BYTES = BLOCKS * FIRST_PLANE;
    u32 source = shared_start(), raw = source + TURNED_BYTES, outputs = raw + (RAW_BYTES + 63) / 64 * 64;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, dy = warp % 3;
    if (threadIdx.x < 2 * BLOCKS) put_four(outputs + threadIdx.x * FIRST_PLANE + FIRST_END, make_uint4(0, 0, 0, 0));
    FirstSums sums;
    Strips strips(blockIdx.x, gridDim.x, count, T, FIRST_ROWS), ahead = strips;
    auto ask = [&](u32 output) {
        if (ahead.left <= 0) return;
        Strip strip = ahead.next();
        ask_for_rows(raw, image_of(images, others, split, strip.image), 2 * strip.from);
        const u8* from = gradients + (u64)strip.image * bytes(1) + strip.from * T * CHUNK;
        for (int i = threadIdx.x * CHUNK; i < strip.rows * T * CHUNK; i += FIRST_GRADIENT_THREADS * CHUNK)
#pragma unroll
            for (int j = 0; j < BLOCKS; j++) ask_for<CHUNK>(output + j * FIRST_PLANE + i, from + j * T * T * CHUNK + i);
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
            at = at < pixels ? at : 0;
            Rows rows = {output + lane / 16 * FIRST_PLANE + (q < pixels ? q * CHUNK : FIRST_END)};
#pragma unroll
            for (int dx = 0; dx < FirstSums::COLUMNS; dx++)
                rows.source[dx] = strip_chunk(source, at / T, at % T, dy * FirstSums::COLUMNS + dx, lane / 8 % 2);
            Matrices<BLOCKS> matrices;
            load_gradient<FirstSums>(matrices, rows);
            load_source<FirstSums>(matrices, rows, 0);
            add_pixels(sums, matrices, rows, rows);
        }
    }
    add_up<WARPS / 3>(sums, source, partial + (u64)blockIdx.x * FirstSums::NUMBERS);
}

// The sum of a column over some rows, for each of COLUMNS columns; a block's threads share the rows, and those of the
// first share get it. Twelve numbers are on their way at once: each may come from memory, not from the cache.
template <int COLUMNS> __device__ inline float add_rows(const float* column, u64 stride, int from, int end) {
    constexpr int AT_ONCE = 12;
    u32 memory = shared_start();
    int share = threadIdx.x / COLUMNS, shares = blockDim.x / COLUMNS;
    float sum = 0.0f;
    column += (from + share) * stride, stride *= shares;
    for (int left = (end - from - share + shares - 1) / shares; left > 0; left -= AT_ONCE) {
        float numbers[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) numbers[n] = n < left ? column[n * stride] : 0.0f;
        column += AT_ONCE * stride;
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++) sum += numbers[n];
    }
    put_float(memory + threadIdx.x * 4, sum);
    synchronise();
    if (!share)
        for (int other = 1; other < shares; other++) sum += get_float(memory + (threadIdx.x + other * COLUMNS) * 4);
    return sum;
}

constexpr bool SHARED_TOTAL = TOTAL_COLUMNS < TOTAL_THREADS;  // whether several threads add up a weight's parts

// A sum of a row's numbers over the pictures, for each of FILTERS columns, by one block.
__device__ inline void add_biases(const float* sums, u64 stride, int images, float* out) {
    if (SHARED_TOTAL) {
        float sum = add_rows<FILTERS>(sums + threadIdx.x % FILTERS, stride, 0, images);
        if (threadIdx.x < FILTERS) out[threadIdx.x] = sum;
        return;
    }
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
// the last row of blocks does. A block has TOTAL_COLUMNS weights, of which each layer has a multiple. `ranges` says which
// blocks are a layer's, the first layer's apart, or a plane's.
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
    int i = blockIdx.x * (SHARED_TOTAL ? TOTAL_COLUMNS : blockDim.x), n, in;
    i += SHARED_TOTAL ? threadIdx.x % TOTAL_COLUMNS : threadIdx.x, n = i % FILTERS, in = i / FILTERS;
    bool first = layer == 1, narrow = first && NARROW;
    int numbers = first ? FirstSums::NUMBERS : layer == OWN ? PlaneSums::NUMBERS : PlainSums::NUMBERS;
    if (i >= numbers) return;
    const float* from = first ? first_partial : partial;
    u64 stride = first ? FirstSums::NUMBERS : PlainSums::NUMBERS;
    float sum = 0.0f;
    if (SHARED_TOTAL) {
        sum = add_rows<TOTAL_COLUMNS>(from + i, stride, ranges[2 * task], ranges[2 * task + 1]);
        if (threadIdx.x >= TOTAL_COLUMNS) return;
    } else
#pragma unroll 8
        for (int part = ranges[2 * task]; part < ranges[2 * task + 1]; part++) sum += from[part * stride + i];
    int padded = layer == OWN ? 16 : FILTERS, tap = in / padded;
    in %= padded;
    if (narrow) tap = tap * 3 + in / 4, in = in / 4 < 3 ? in % 4 : CHANNELS;
    if (first && in >= CHANNELS) return;
    gradients[(n * channels + plane * 16 + in) * 9 + tap] = sum;
}
