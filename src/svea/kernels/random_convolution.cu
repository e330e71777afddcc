// The random convolution: every sample has three filters of its own over three channels, and a border that is repeated.
// A thread makes four neighbours of a row and goes down: a row that it has loaded adds to three rows of the output.

constexpr int RUN = 14;  // rows of a thread; with 128 threads to a block, one wave of an H200 takes 128 stacks

// Four pixels of a row and their two neighbours, of three channels, as they come.
struct Raw {
    u64 four[3];
    u16 left[3], right[3];
};

__device__ inline float pixel(u16 bits) { return __uint_as_float((u32)bits << 16); }

__device__ inline Raw load_row(const u16* frame, int row, int column, int rows, int columns) {
    row = row < 0 ? 0 : row < rows ? row : rows - 1;
    Raw raw;
#pragma unroll
    for (int c = 0; c < 3; c++) {
        const u16* at = frame + (c * rows + row) * columns + column;
        raw.four[c] = *(const u64*)at;
        raw.left[c] = at[column ? -1 : 0];
        raw.right[c] = at[column + 4 < columns ? 4 : 3];
    }
    return raw;
}

// (frames, 3, rows, columns) in bfloat16, columns a multiple of 4; weights (samples, 3 out, 3 in, 3, 3).
extern "C" __global__ __launch_bounds__(128, 3)
void convolve(const u16* x, const float* weights, u16* y, int frames, int frames_of_sample, int rows, int columns) {
    int fours = columns / 4, runs = (rows + RUN - 1) / RUN, i = blockIdx.x * 128 + threadIdx.x;
    int frame = i / (fours * runs), column = i % fours * 4, top = i / fours % runs * RUN;
    if (frame >= frames) return;
    const float* own = weights + frame / frames_of_sample * 81;
    float w[81], sum[3][3][4] = {};  // by row of the output (above, here, below), channel, pixel
#pragma unroll
    for (int n = 0; n < 81; n++) w[n] = own[n];
    x += (u64)frame * 3 * rows * columns, y += (u64)frame * 3 * rows * columns;
    Raw next = load_row(x, top - 1, column, rows, columns);
#pragma unroll 1
    for (int row = top - 1; row <= top + RUN && row <= rows; row++) {
        Raw raw = next;
        next = load_row(x, row + 1, column, rows, columns);  // while this one is worked on
#pragma unroll
        for (int in = 0; in < 3; in++) {
            float v[6];
            v[0] = pixel(raw.left[in]), v[5] = pixel(raw.right[in]);
#pragma unroll
            for (int p = 0; p < 4; p++) v[p + 1] = pixel((u16)(raw.four[in] >> (16 * p)));
#pragma unroll
            for (int n = 0; n < 27; n++) {  // rows of the output, channels out, columns of taps
                int below = n / 9, out = n / 3 % 3, dx = n % 3;
#pragma unroll
                for (int p = 0; p < 4; p++) sum[below][out][p] += w[(out * 3 + in) * 9 + (2 - below) * 3 + dx] * v[p + dx];
            }
        }
        if (row > top && row - 1 < rows)
#pragma unroll
            for (int out = 0; out < 3; out++) {
                float s[4];
#pragma unroll
                for (int p = 0; p < 4; p++) s[p] = __fdividef(1.0f, 1.0f + __expf(-sum[0][out][p]));
                *(u64*)(y + (out * rows + row - 1) * columns + column) = pair(s[0], s[1]) | (u64)pair(s[2], s[3]) << 32;
            }
#pragma unroll
        for (int n = 0; n < 12; n++) {
            int out = n / 4, p = n % 4;
            sum[0][out][p] = sum[1][out][p], sum[1][out][p] = sum[2][out][p], sum[2][out][p] = 0.0f;
        }
    }
}
