/* Convolutions for CPUs: compiled by cpu.py for the sizes of one network when a run starts.

   LAYERS is given on the command line: LAYER(number, side, channels, stride, filters, planar) for
   each of them. All sizes are constants, so that the compiler keeps whole tiles in registers. A
   vector holds 16 filters of one pixel: pictures are (batch, height, width, channels), but for the
   first layer's input, which is planar (batch, channels, height, width) as the replay has it.
   Weights are (tap, channels in, channels out). */

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")
#define PARALLEL _Pragma("omp parallel for")

/* Floats in a vector and pixels in a tile: a tile's sums fill most of the registers. */
#ifdef __AVX512F__
enum { LANES = 16, TILE = 14 };
#else
enum { LANES = 8, TILE = 12 };
#endif
enum { CHUNKS = 16, MOST = 16 };  /* parts of a sum over the batch; channels in one pass */

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int mask __attribute__((vector_size(4 * LANES)));

INLINE vector read(const float *from) { return *(const vector *)from; }
INLINE void write(float *to, vector value) { *(vector *)to = value; }
INLINE vector keep(vector value, mask where) { return (vector)((mask)value & where); }
INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE int output_size(int side, int stride) { return (side - 3) / stride + 1; }
/* As few tiles as possible to a row, and all of one size; small pictures take several rows. */
INLINE int share(int whole, int part) { return (whole + part - 1) / part; }
INLINE int tile_columns(int size) { return share(size, share(size, TILE)); }
INLINE int tile_rows(int size) { return smaller(TILE / tile_columns(size), size); }

/* y = x * w + bias for one picture, clipped at 0 with relu. The last tiles overlap those before. */
INLINE void convolve(const float *x, const float *w, const float *bias, float *y, int relu,
                     int side, int channels, int stride, int filters, int planar) {
  const int size = output_size(side, stride), rows = tile_rows(size), columns = tile_columns(size);
  const int pixel = planar ? 1 : channels, plane = planar ? side * side : 1;
  for (int f = 0; f < filters; f += LANES)
    for (int r = 0; r < size; r += rows)
      for (int c = 0; c < size; c += columns) {
        const int row = smaller(r, size - rows), column = smaller(c, size - columns);
        vector sum[TILE];
        UNROLLED for (int t = 0; t < rows * columns; t++) sum[t] = read(bias + f);
        for (int tap = 0; tap < 9; tap++) {
          const int place = (row * stride + tap / 3) * side + column * stride + tap % 3;
          for (int i = 0; i < channels; i++) {
            const vector weight = read(w + (tap * channels + i) * filters + f);
            const float *from = x + place * pixel + i * plane;
            UNROLLED for (int t = 0; t < rows * columns; t++)
              sum[t] += from[(t / columns * side + t % columns) * stride * pixel] * weight;
          }
        }
        UNROLLED for (int t = 0; t < rows * columns; t++) {
          const vector value = relu ? keep(sum[t], ~(sum[t] < 0)) : sum[t];  /* NaN stays NaN */
          write(y + ((row + t / columns) * size + column + t % columns) * filters + f, value);
        }
      }
}

/* Add one picture's part of the gradients of weights and bias; g is the output's gradient. */
INLINE void add_weight_gradient(const float *x, const float *g, float *dw, float *dbias,
                                int side, int channels, int stride, int filters, int planar) {
  const int size = output_size(side, stride), pixel = planar ? 1 : channels;
  const int plane = planar ? side * side : 1, block = channels % LANES ? channels : LANES;
  for (int f = 0; f < filters; f += LANES) {
    vector total = read(dbias + f);
    for (int p = 0; p < size * size; p++) total += read(g + p * filters + f);
    write(dbias + f, total);
    for (int tap = 0; tap < 9; tap++)
      for (int i = 0; i < channels; i += block) {
        vector sum[MOST];
        float *to = dw + (tap * channels + i) * filters + f;
        UNROLLED for (int j = 0; j < block; j++) sum[j] = read(to + j * filters);
        for (int row = 0; row < size; row++)
          for (int column = 0; column < size; column++) {
            const vector slope = read(g + (row * size + column) * filters + f);
            const float *from = x + i * plane +
                ((row * stride + tap / 3) * side + column * stride + tap % 3) * pixel;
            UNROLLED for (int j = 0; j < block; j++) sum[j] += from[j * plane] * slope;
          }
        UNROLLED for (int j = 0; j < block; j++) write(to + j * filters, sum[j]);
      }
  }
}

/* One picture's gradient of the input, behind the ReLU that made it; w is (tap, out, in) here. */
INLINE void input_gradient(const float *x, const float *g, const float *w, float *dx,
                           int side, int channels, int stride, int filters) {
  const int size = output_size(side, stride), rows = tile_rows(size), columns = tile_columns(size);
  for (int i = 0; i < side * side * channels; i += LANES) write(dx + i, (vector){0});
  for (int i = 0; i < channels; i += LANES)
    for (int r = 0; r < size; r += rows)
      for (int c = 0; c < size; c += columns) {
        const int row = smaller(r, size - rows), column = smaller(c, size - columns);
        for (int tap = 0; tap < 9; tap++) {
          vector sum[TILE];
          UNROLLED for (int t = 0; t < rows * columns; t++) sum[t] = (vector){0};
          for (int f = 0; f < filters; f++) {
            const vector weight = read(w + (tap * filters + f) * channels + i);
            const float *from = g + (row * size + column) * filters + f;
            UNROLLED for (int t = 0; t < rows * columns; t++)
              sum[t] += from[(t / columns * size + t % columns) * filters] * weight;
          }
          const int place = (row * stride + tap / 3) * side + column * stride + tap % 3;
          float *to = dx + place * channels + i;
          UNROLLED for (int t = 0; t < rows * columns; t++)
            if (row + t / columns >= r && column + t % columns >= c) {  /* not added before */
              float *at = to + (t / columns * side + t % columns) * stride * channels;
              write(at, read(at) + sum[t]);
            }
        }
      }
  for (int i = 0; i < side * side * channels; i += LANES)
    write(dx + i, keep(read(dx + i), ~(read(x + i) <= 0)));
}

/* Sums over the batch are made in CHUNKS parts: the same for every number of threads. */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, PLANAR)                                     \
  enum { IN_##NUMBER = SIDE * SIDE * CHANNELS,                                                     \
         OUT_##NUMBER = ((SIDE - 3) / STRIDE + 1) * ((SIDE - 3) / STRIDE + 1) * FILTERS };         \
  void forward_##NUMBER(const float *x, const float *w, const float *bias, float *y, long batch,   \
                        long relu) {                                                               \
    PARALLEL for (long b = 0; b < batch; b++)                                                      \
      convolve(x + b * IN_##NUMBER, w, bias, y + b * OUT_##NUMBER, relu,                           \
               SIDE, CHANNELS, STRIDE, FILTERS, PLANAR);                                           \
  }                                                                                                \
  void backward_##NUMBER(const float *x, const float *g, const float *w, float *dx, float *dw,     \
                         float *dbias, long batch) {                                               \
    PARALLEL for (long chunk = 0; chunk < CHUNKS; chunk++)                                         \
      for (long b = batch * chunk / CHUNKS; b < batch * (chunk + 1) / CHUNKS; b++) {               \
        add_weight_gradient(x + b * IN_##NUMBER, g + b * OUT_##NUMBER,                             \
                            dw + chunk * 9 * CHANNELS * FILTERS, dbias + chunk * FILTERS,          \
                            SIDE, CHANNELS, STRIDE, FILTERS, PLANAR);                              \
        if (!PLANAR)                                                                               \
          input_gradient(x + b * IN_##NUMBER, g + b * OUT_##NUMBER, w, dx + b * IN_##NUMBER,       \
                         SIDE, CHANNELS, STRIDE, FILTERS);                                         \
      }                                                                                            \
  }

LAYERS

/* Every sample's frames with its own 3x3 filter (out, in, 3, 3); the border is repeated.
   Planar; at least 16 pixels wide and 4 high. */
void random_convolution(const float *x, const float *w, float *y, long batch, long frames,
                        long height, long width) {
  enum { ROWS = 4 };
  PARALLEL for (long n = 0; n < batch * frames; n++) {
    float padded[3][height + 2][width + 2];
    for (int i = 0; i < 3; i++)
      for (long r = 0; r < height + 2; r++) {
        const long row = r < 1 ? 0 : r > height ? height - 1 : r - 1;
        const float *from = x + ((n * 3 + i) * height + row) * width;
        padded[i][r][0] = from[0];
        for (long c = 0; c < width; c++) padded[i][r][c + 1] = from[c];
        padded[i][r][width + 1] = from[width - 1];
      }
    for (long r = 0; r < height; r += ROWS)
      for (long c = 0; c < width; c += LANES) {
        const long row = r < height - ROWS ? r : height - ROWS;
        const long column = c < width - LANES ? c : width - LANES;
        vector sum[3 * ROWS];
        UNROLLED for (int t = 0; t < 3 * ROWS; t++) sum[t] = (vector){0};
        for (int i = 0; i < 3; i++)
          for (int tap = 0; tap < 9; tap++) {
            const float *filter = w + n / frames * 81 + i * 9 + tap;
            UNROLLED for (int t = 0; t < ROWS; t++) {
              const vector value = read(&padded[i][row + t + tap / 3][column + tap % 3]);
              UNROLLED for (int o = 0; o < 3; o++) sum[o * ROWS + t] += filter[o * 27] * value;
            }
          }
        UNROLLED for (int t = 0; t < 3 * ROWS; t++)
          write(y + ((n * 3 + t / ROWS) * height + row + t % ROWS) * width + column, sum[t]);
      }
  }
}
