/* Convolutions for CPUs: compiled by cpu.py for the sizes of one network when a run starts.

   LAYERS is given on the command line: LAYER(number, side, channels, stride, filters, relu, tiled)
   for each of them, and REVERSED is the same from the last to the first. All sizes are constants, so
   that the compiler keeps whole tiles in registers. Tiled layers are computed by winograd.c.
   Views (views.c) have no sizes of their own. A vector holds 16 filters of one pixel: pictures are (batch, height, width,
   channels), but for the first layer's input, which is planar (batch, channels, height, width) as
   the replay has it. Kernels put weights in order as (tap, channels in, channels out). */

#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16")

/* Work comes in CHUNKS parts of a batch, and threads that call a function together take one after
   the other off a counter. A thread that comes late, because its core is busy, costs nothing but
   its help; and sums made part by part are the same for every number of threads. */
#define SHARE(PART)                                                                                \
  for (long PART; (PART = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED)) < CHUNKS;)
/* What sums nothing over the batch is shared a FEW pictures at a time: no one waits long. */
#define SHARE_PICTURES(b, batch)                                                                   \
  for (long few; (few = __atomic_fetch_add(next, FEW, __ATOMIC_RELAXED)) < batch;)                 \
    for (long b = few; b < batch && b < few + FEW; b++)
#define IN_PART(b, PART)                                                                           \
  for (long b = batch * PART / CHUNKS; b < batch * (PART + 1) / CHUNKS; b++)

/* Floats in a vector and pixels in a tile: a tile's sums fill most of the registers. */
#ifdef __AVX512F__
enum { LANES = 16, TILE = 14 };
#else
enum { LANES = 8, TILE = 12 };
#endif
enum { CHUNKS = 16, FEW = 4, MOST = 16 };  /* parts of a sum; pictures; channels in one pass */

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int mask __attribute__((vector_size(4 * LANES)));

INLINE vector read(const float *from) { return *(const vector *)from; }
INLINE void write(float *to, vector value) { *(vector *)to = value; }
INLINE vector keep(vector value, mask where) { return (vector)((mask)value & where); }
INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE int output_size(int side, int stride) { return (side - 3) / stride + 1; }
/* As few tiles as possible to a row, and all of one size; small pictures take several rows. */
INLINE int share(int whole, int part) { return (whole + part - 1) / part; }
INLINE int tile_columns(int size, int most) { return share(size, share(size, most)); }
INLINE int tile_rows(int size, int most) { return smaller(most / tile_columns(size, most), size); }

/* Vectors of filters in a tile. Before AVX-512 a pixel must be loaded into all lanes of a register
   before it is multiplied; two vectors share that load, and a tile has half as many pixels. With
   fewer than ten sums the next would have to wait for the last, so small pictures take one. */
INLINE int tile_vectors(int size, int filters) {
  const int pixels = tile_columns(size, TILE / 2) * tile_rows(size, TILE / 2);
  return LANES == 8 && filters % 16 == 0 && pixels >= 5 ? 2 : 1;
}

/* Memory that is needed soon, a few lines at a time between sums: a whole batch does not fit into
   the caches, and the processor does not foresee jumps from plane to plane. */
INLINE const float *fetch(const float *ahead, int lines) {
  UNROLLED for (int line = 0; line < lines; line++) __builtin_prefetch(ahead + 16 * line);
  return ahead + 16 * lines;
}

/* y = x * w + bias for one picture, clipped at 0 with relu. The last tiles overlap those before. */
INLINE void convolve(const float *x, const float *w, const float *bias, float *y, int relu,
                     int side, int channels, int stride, int filters, int planar) {
  const int size = output_size(side, stride), wide = tile_vectors(size, filters);
  const int rows = tile_rows(size, TILE / wide), columns = tile_columns(size, TILE / wide);
  const int pixel = planar ? 1 : channels, plane = planar ? side * side : 1;
  const int steps = filters / (wide * LANES) * share(size, rows) * share(size, columns);
  const float *ahead = x + side * side * channels;  /* the next picture */
  for (int f = 0; f < filters; f += wide * LANES)
    for (int r = 0; r < size; r += rows)
      for (int c = 0; c < size; c += columns) {
        const int row = smaller(r, size - rows), column = smaller(c, size - columns);
        vector sum[TILE];  /* (rows, columns, wide) */
        if (planar) ahead = fetch(ahead, share(side * side * channels, 16 * steps));
        UNROLLED for (int t = 0; t < rows * columns * wide; t++)
          sum[t] = read(bias + f + t % wide * LANES);
        for (int tap = 0; tap < 9; tap++) {
          const int place = (row * stride + tap / 3) * side + column * stride + tap % 3;
          for (int i = 0; i < channels; i++) {
            const float *weight = w + (tap * channels + i) * filters + f;
            const float *from = x + place * pixel + i * plane;
            UNROLLED for (int t = 0; t < rows * columns * wide; t++) {
              const int p = t / wide;
              sum[t] += from[(p / columns * side + p % columns) * stride * pixel] *
                        read(weight + t % wide * LANES);
            }
          }
        }
        UNROLLED for (int t = 0; t < rows * columns * wide; t++) {
          const vector value = relu ? keep(sum[t], ~(sum[t] < 0)) : sum[t];  /* NaN stays NaN */
          const int p = t / wide, at = (row + p / columns) * size + column + p % columns;
          write(y + at * filters + f + t % wide * LANES, value);
        }
      }
}

/* Rows of a weight gradient that are summed at a time: what they need stays in the nearest cache.
   Before AVX-512 a picture is read so often that this is 1.5 times as fast at the paper's sizes. */
INLINE int rows_at_once(int side, int channels, int stride, int filters) {
  const int size = output_size(side, stride), numbers = 32768 / sizeof(float);
  const int rows = (numbers - 2 * side * channels) / (stride * side * channels + size * filters);
  return LANES == 16 || rows > size ? size : rows < 1 ? 1 : rows;
}

/* Add one picture's part of the gradients of weights and bias; g is the output's gradient. What is
   needed next, so many floats, is fetched meanwhile. */
INLINE void add_weight_gradient(const float *x, const float *g, float *dw, float *dbias,
                                int side, int channels, int stride, int filters, int planar,
                                const float *ahead, int floats) {
  const int size = output_size(side, stride), pixel = planar ? 1 : channels;
  const int plane = planar ? side * side : 1, block = channels % LANES ? channels : LANES;
  const int steps = filters / LANES * 9 * (channels / block) * size;
  const int rows = rows_at_once(side, channels, stride, filters);
  for (int f = 0; f < filters; f += LANES) {
    vector total = read(dbias + f);
    for (int p = 0; p < size * size; p++) total += read(g + p * filters + f);
    write(dbias + f, total);
  }
  for (int first = 0; first < size; first += rows)
    for (int f = 0; f < filters; f += LANES)
      for (int tap = 0; tap < 9; tap++)
        for (int i = 0; i < channels; i += block) {
          vector sum[MOST];
          float *to = dw + (tap * channels + i) * filters + f;
          UNROLLED for (int j = 0; j < block; j++) sum[j] = read(to + j * filters);
          for (int row = first; row < smaller(first + rows, size); row++) {
            ahead = fetch(ahead, share(floats, 16 * steps));
            for (int column = 0; column < size; column++) {
              const vector slope = read(g + (row * size + column) * filters + f);
              const float *from = x + i * plane +
                  ((row * stride + tap / 3) * side + column * stride + tap % 3) * pixel;
              UNROLLED for (int j = 0; j < block; j++) sum[j] += from[j * plane] * slope;
            }
          }
          UNROLLED for (int j = 0; j < block; j++) write(to + j * filters, sum[j]);
        }
}

/* One picture's gradient of the input, behind the ReLU that made it; w is (tap, out, in) here. One
   vector at a time: other tiles would add what overlaps in another order, for a percent. */
INLINE void input_gradient(const float *x, const float *g, const float *w, float *dx,
                           int side, int channels, int stride, int filters) {
  const int size = output_size(side, stride);
  const int rows = tile_rows(size, TILE), columns = tile_columns(size, TILE);
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

/* One part of the gradients, weights as (tap, channels, filters). */
typedef struct {
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  float weights_##NUMBER[9 * CHANNELS * FILTERS], bias_##NUMBER[FILTERS];
  LAYERS
#undef LAYER
} gradients;

/* The sums of all parts, weights' as (filters, tap, channels). */
void sum_gradients(const gradients *parts, float *const *dw, float *const *dbias, long *next) {
  (void)next;
  gradients *sum = (gradients *)memcpy(malloc(sizeof *sum), parts, sizeof *sum);
  for (int part = 1; part < CHUNKS; part++)
    for (unsigned i = 0; i < sizeof *sum / sizeof(float); i++)
      ((float *)sum)[i] += ((const float *)(parts + part))[i];
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  memcpy(dbias[NUMBER], sum->bias_##NUMBER, sizeof sum->bias_##NUMBER);                            \
  for (int i = 0; i < 9 * CHANNELS; i++)                                                           \
    for (int f = 0; f < FILTERS; f++)                                                              \
      dw[NUMBER][f * 9 * CHANNELS + i] = sum->weights_##NUMBER[i * FILTERS + f];
  LAYERS
#undef LAYER
  free(sum);
}

#include "winograd.c"

#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  enum { IN_##NUMBER = SIDE * SIDE * CHANNELS,                                                     \
         OUT_##NUMBER = ((SIDE - 3) / STRIDE + 1) * ((SIDE - 3) / STRIDE + 1) * FILTERS,           \
         SCRATCH_##NUMBER = !TILED ? 0 : TABLES(SIDE, CHANNELS) + TABLES(SIDE, FILTERS) +          \
                                         (SIDE + 2) * (SIDE + 2) * FILTERS };
LAYERS
#undef LAYER

enum { SCRATCH = 0  /* floats that tiled layers need, at least */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED) | SCRATCH_##NUMBER
    LAYERS
#undef LAYER
};

enum { LAST = -1  /* the last layer's number */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED) +1
    LAYERS
#undef LAYER
};

enum { LARGEST = 0  /* at least the size of every output, and of every input but the images */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED) | OUT_##NUMBER
    LAYERS
#undef LAYER
};

/* Rows and columns of a table change places. */
INLINE void turn(const float *from, float *to, int rows, int columns) {
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < columns; c++) to[c * rows + r] = from[r * columns + c];
}

/* All layers, picture by picture, so that a picture stays in the cache: x[0] are the images, x[n]
   what layer n - 1 made of them, if a gradient will be asked for (keep_all). Features are planar;
   weights are (filters, tap, channels) but for tiled layers. */
void forward(float *const *x, float *features, const float *const *w, const float *const *bias,
             long batch, long keep_all, long *next) {
  float *tables = calloc(SCRATCH + LANES, sizeof(float));
  float *inside = malloc(sizeof(float) * 2 * (LARGEST + LANES));
  gradients *own = malloc(sizeof *own);  /* the weights in order */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  for (int i = 0; !TILED && i < 9 * CHANNELS; i++)                                                 \
    for (int f = 0; f < FILTERS; f++)                                                              \
      own->weights_##NUMBER[i * FILTERS + f] = w[NUMBER][f * 9 * CHANNELS + i];
  LAYERS
#undef LAYER
  SHARE_PICTURES(b, batch) {
    const float *input = NULL;
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
    {                                                                                              \
      if (NUMBER == 0) input = x[0] + b * IN_##NUMBER;                                             \
      const int kept = keep_all && NUMBER < LAST;                                                  \
      float *output = kept ? x[NUMBER + 1] + b * OUT_##NUMBER : inside + NUMBER % 2 * LARGEST;     \
      if (TILED)                                                                                   \
        convolve_tiles(input, w[NUMBER], bias[NUMBER], NULL, output, tables, RELU, SIDE - 2,       \
                       CHANNELS, FILTERS);                                                         \
      else                                                                                         \
        convolve(input, own->weights_##NUMBER, bias[NUMBER], output, RELU, SIDE, CHANNELS, STRIDE, \
                 FILTERS, !NUMBER);                                                                \
      if (NUMBER == LAST)                                                                          \
        turn(output, features + b * OUT_##NUMBER, OUT_##NUMBER / FILTERS, FILTERS);                \
      input = output;                                                                              \
    }
    LAYERS
#undef LAYER
  }
  free(tables);
  free(inside);
  free(own);
}

/* The gradients of all weights and biases, in CHUNKS parts; gradient is that of the features. If
   first is given, it gets the gradient of the first layer's output. */
void backward(float *const *x, const float *gradient, const float *const *w, gradients *parts,
              float *first, long batch, long *next) {
  float *slopes = malloc(sizeof(float) * 3 * (LARGEST + LANES));
  float *last = slopes + 2 * LARGEST;
  float *tables = calloc(SCRATCH + LANES, sizeof(float));
  gradients *own = malloc(sizeof *own);  /* the weights as (tap, filters, channels) */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  for (int k = 0; NUMBER && !TILED && k < 9 * FILTERS; k++)                                        \
    memcpy(own->weights_##NUMBER + k * CHANNELS,                                                   \
           w[NUMBER] + (k % FILTERS * 9 + k / FILTERS) * CHANNELS, sizeof(float) * CHANNELS);
  LAYERS
#undef LAYER
  SHARE(part) IN_PART(b, part) {
    const float *g = NULL;
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
    {                                                                                              \
      const float *input = x[NUMBER] + b * IN_##NUMBER;                                            \
      if (NUMBER == LAST)                                                                          \
        turn(gradient + b * OUT_##NUMBER, last, FILTERS, OUT_##NUMBER / FILTERS);                  \
      const float *slope = NUMBER == LAST ? last : g;                                              \
      float *scratch = slopes + NUMBER % 2 * LARGEST;                                              \
      float *before = NUMBER == 1 && first ? first + b * IN_##NUMBER : scratch;                    \
      add_weight_gradient(input, slope, parts[part].weights_##NUMBER,                              \
                          parts[part].bias_##NUMBER, SIDE, CHANNELS, STRIDE, FILTERS,              \
                          !NUMBER, NUMBER == 1 ? x[0] + b * IN_0 : x[1] + (b + 1) * OUT_0,         \
                          NUMBER == 1 ? IN_0 : NUMBER == 0 ? OUT_0 : 0);                           \
      if (NUMBER && TILED)                                                                         \
        input_gradient_tiles(input, slope, w[NUMBER], before, tables, SIDE, CHANNELS, FILTERS);    \
      else if (NUMBER)                                                                             \
        input_gradient(input, slope, own->weights_##NUMBER, before, SIDE, CHANNELS, STRIDE,        \
                       FILTERS);                                                                   \
      g = before;                                                                                  \
    }
    REVERSED
#undef LAYER
  }
  free(slopes);
  free(tables);
  free(own);
}

#include "team.c"
#include "views.c"
#include "steps.c"
#include "crops.c"
