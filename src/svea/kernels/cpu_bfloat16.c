/* A network's convolutions in bfloat16 with sums in float32: a part of cpu.c.

   What is summed over is what is paired: channels forward, filters in input gradients, and in
   weight gradients two pictures, whose numbers at one place are interleaved. Pictures come as planes
   (batch, channels, height, width) and features leave as planes in float32; between layers they are
   (batch, height, width, channels). Weights come and gradients leave as (filters, tap, channels) in
   float32. */

INLINE int pairs_of(int channels) { return share(channels, 2); }
INLINE int border(int stride) { return 2 / stride; }  /* zeros around slopes, for their gradient */
INLINE int bordered(int size, int stride) { return size + 2 * border(stride); }

/* y = x * w + bias for one picture of pairs, clipped at 0 with relu; the sums themselves go to
   `sums` if it is given. The last tiles overlap those before. */
INLINE void convolve_pairs(const int *x, const int *w, const float *bias, half *y, float *sums,
                           int relu, int side, int channels, int stride, int filters, int planar) {
  const int size = output_size(side, stride);
  const int rows = tile_rows(size, TILE), columns = tile_columns(size, TILE);
  const int count = pairs_of(channels), pixel = planar ? 1 : count;
  const int plane = planar ? side * side : 1;
  for (int f = 0; f < filters; f += LANES)
    for (int r = 0; r < size; r += rows)
      for (int c = 0; c < size; c += columns) {
        const int row = smaller(r, size - rows), column = smaller(c, size - columns);
        vector sum[TILE];
        UNROLLED for (int t = 0; t < rows * columns; t++) sum[t] = read(bias + f);
        for (int tap = 0; tap < 9; tap++) {
          const int place = (row * stride + tap / 3) * side + column * stride + tap % 3;
          for (int i = 0; i < count; i++) {
            const pairs weight = read_pairs(w + (tap * count + i) * filters + f);
            const int *from = x + place * pixel + i * plane;
            UNROLLED for (int t = 0; t < rows * columns; t++)
              sum[t] = dot(sum[t], weight,
                           both(from[(t / columns * side + t % columns) * stride * pixel]));
          }
        }
        UNROLLED for (int t = 0; t < rows * columns; t++) {
          const vector value = relu ? keep(sum[t], ~(sum[t] < 0)) : sum[t];  /* NaN stays NaN */
          const int at = ((row + t / columns) * size + column + t % columns) * filters + f;
          if (sums) write(sums + at, value);
          else *(halves *)(y + at) = rounded(value);
        }
      }
}

/* Add two pictures' part of the gradients of weights and bias: x and g are pairs of both's. */
INLINE void add_weight_gradient_pairs(const int *x, const int *g, float *dw, float *dbias, int side,
                                      int channels, int stride, int filters, int planar) {
  const int size = output_size(side, stride), pixel = planar ? 1 : channels;
  const int plane = planar ? side * side : 1, block = channels % LANES ? channels : LANES;
  for (int f = 0; f < filters; f += LANES) {
    vector total = read(dbias + f);
    for (int p = 0; p < size * size; p++)
      total = dot(total, read_pairs(g + p * filters + f), both(ONES));
    write(dbias + f, total);
    for (int tap = 0; tap < 9; tap++)
      for (int i = 0; i < channels; i += block) {
        vector sum[MOST];
        float *to = dw + (tap * channels + i) * filters + f;
        UNROLLED for (int j = 0; j < block; j++) sum[j] = read(to + j * filters);
        for (int row = 0; row < size; row++)
          for (int column = 0; column < size; column++) {
            const pairs slope = read_pairs(g + (row * size + column) * filters + f);
            const int *from = x + i * plane +
                ((row * stride + tap / 3) * side + column * stride + tap % 3) * pixel;
            UNROLLED for (int j = 0; j < block; j++)
              sum[j] = dot(sum[j], slope, both(from[j * plane]));
          }
        UNROLLED for (int j = 0; j < block; j++) write(to + j * filters, sum[j]);
      }
  }
}

/* The gradient of every stride-th pixel of the input in both directions, from (down, right) on,
   behind the ReLU that made x. It is gathered from the slopes g, pairs of filters with a border of
   zeros, and written within a border of its own. w is (tap, pairs of filters, channels). */
INLINE void input_gradient_phase(const half *x, const int *g, const int *w, half *dx, int side,
                                 int channels, int stride, int filters, int edge, int down,
                                 int right) {
  const int wide = bordered(output_size(side, stride), stride), count = filters / 2;
  const int high = share(side - down, stride), across = share(side - right, stride);
  const int columns = tile_columns(across, TILE), rows = smaller(TILE / columns, high);
  for (int i = 0; i < channels; i += LANES)
    for (int r = 0; r < high; r += rows)
      for (int c = 0; c < across; c += columns) {
        const int row = smaller(r, high - rows), column = smaller(c, across - columns);
        vector sum[TILE];
        UNROLLED for (int t = 0; t < rows * columns; t++) sum[t] = (vector){0};
        for (int a = 0; down + a * stride < 3; a++)
          for (int b = 0; right + b * stride < 3; b++) {
            const int tap = (down + a * stride) * 3 + right + b * stride;
            const int *from = g + ((row - a + border(stride)) * wide + column - b + border(stride)) *
                                      count;
            for (int k = 0; k < count; k++) {
              const pairs weight = read_pairs(w + (tap * count + k) * channels + i);
              UNROLLED for (int t = 0; t < rows * columns; t++)
                sum[t] = dot(sum[t], weight,
                             both(from[(t / columns * wide + t % columns) * count + k]));
            }
          }
        UNROLLED for (int t = 0; t < rows * columns; t++) {
          const int to_row = (row + t / columns) * stride + down;
          const int to_column = (column + t % columns) * stride + right;
          const vector made = widened(x + (to_row * side + to_column) * channels + i);
          half *to = dx + ((to_row + edge) * (side + 2 * edge) + to_column + edge) * channels + i;
          *(halves *)to = rounded(keep(sum[t], ~(made <= 0)));
        }
      }
}

INLINE void input_gradient_pairs(const half *x, const int *g, const int *w, half *dx, int side,
                                 int channels, int stride, int filters, int edge) {
  input_gradient_phase(x, g, w, dx, side, channels, stride, filters, edge, 0, 0);
  if (stride == 1) return;
  input_gradient_phase(x, g, w, dx, side, channels, stride, filters, edge, 0, 1);
  input_gradient_phase(x, g, w, dx, side, channels, stride, filters, edge, 1, 0);
  input_gradient_phase(x, g, w, dx, side, channels, stride, filters, edge, 1, 1);
}

/* Weights as forward passes take them, (tap, pairs of channels, filters), and as input gradients do,
   (tap, pairs of filters, channels). */
INLINE void pair_channels(const float *w, int *to, int channels, int filters) {
  for (int tap = 0; tap < 9; tap++)
    for (int i = 0; i < channels; i += 2)
      for (int f = 0; f < filters; f++) {
        const float *from = w + (f * 9 + tap) * channels + i;
        *to++ = pair_of(round_one(from[0]), i + 1 < channels ? round_one(from[1]) : 0);
      }
}

INLINE void pair_filters(const float *w, int *to, int channels, int filters) {
  for (int tap = 0; tap < 9; tap++)
    for (int f = 0; f < filters; f += 2)
      for (int i = 0; i < channels; i++) {
        const float *from = w + (f * 9 + tap) * channels + i;
        *to++ = pair_of(round_one(from[0]), round_one(from[9 * channels]));
      }
}

/* A picture's planes, two and two; beside the last of an odd number are zeros. */
INLINE void pair_planes(const half *from, int *to, int channels, int pixels) {
  for (int i = 0; i + 1 < channels; i += 2, from += 2 * pixels, to += pixels)
    interleave(from, from + pixels, to, pixels);
  if (channels % 2)
    for (int p = 0; p < pixels; p++) to[p] = from[p];
}

/* Sizes of layers, what a thread needs to compute them, and their gradients. */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  enum { IN_##NUMBER = SIDE * SIDE * CHANNELS, SIZE_##NUMBER = (SIDE - 3) / STRIDE + 1,            \
         OUT_##NUMBER = SIZE_##NUMBER * SIZE_##NUMBER * FILTERS,                                   \
         WIDE_##NUMBER = SIZE_##NUMBER + 2 * (2 / STRIDE) };
LAYERS
#undef LAYER

enum { LAST = -1
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED) +1
  LAYERS
#undef LAYER
};

static const int STRIDES[] = {
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED) STRIDE,
  LAYERS
#undef LAYER
};

typedef struct {
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  int weights_##NUMBER[9 * ((CHANNELS + 1) / 2) * FILTERS];                                        \
  half slopes_##NUMBER[2][WIDE_##NUMBER * WIDE_##NUMBER * FILTERS];
  LAYERS
#undef LAYER
  union {
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
    int in_##NUMBER[IN_##NUMBER + LANES];
    LAYERS
#undef LAYER
  } x;
  union {
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED) int out_##NUMBER[OUT_##NUMBER];
    LAYERS
#undef LAYER
  } g;
} room;

/* All layers, picture by picture: x[0] are the images, x[n] what layer n - 1 made of them, of every
   picture if a gradient will be asked for (keep_all), else of the last one of each part. */
void forward_pairs(const half *images, half *const *x, float *features, const float *const *w,
                   const float *const *bias, long batch, long keep_all, long *next) {
  room *own = malloc(sizeof(room));
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  pair_channels(w[NUMBER], own->weights_##NUMBER, CHANNELS, FILTERS);
  LAYERS
#undef LAYER
  SHARE(part) IN_PART(b, part) {
    const long place = keep_all ? b : part;
    float *sums = (float *)&own->g;
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
    {                                                                                              \
      if (NUMBER == 0)                                                                             \
        pair_planes(images + b * IN_0, own->x.in_0, CHANNELS, SIDE * SIDE);                        \
      const int *input = NUMBER ? (const int *)(x[NUMBER] + place * IN_##NUMBER) : own->x.in_0;    \
      half *output = NUMBER == LAST ? NULL : x[NUMBER + 1] + place * OUT_##NUMBER;                 \
      convolve_pairs(input, own->weights_##NUMBER, bias[NUMBER], output,                           \
                     NUMBER == LAST ? sums : NULL, RELU, SIDE, CHANNELS, STRIDE, FILTERS,          \
                     !NUMBER);                                                                     \
      for (int f = 0; NUMBER == LAST && f < FILTERS; f++)                                          \
        for (int p = 0; p < SIZE_##NUMBER * SIZE_##NUMBER; p++)                                    \
          features[b * OUT_##NUMBER + f * SIZE_##NUMBER * SIZE_##NUMBER + p] =                     \
              sums[p * FILTERS + f];                                                               \
    }
    LAYERS
#undef LAYER
  }
  free(own);
}

/* Planes of slopes, rounded, with their channels together and within a border; zeros if none. */
INLINE void lay_out_slopes(const float *planes, half *to, int size, int stride, int filters) {
  const int wide = bordered(size, stride), edge = border(stride);
  for (int p = 0; p < size * size; p++)
    for (int f = 0; f < filters; f++)
      to[((p / size + edge) * wide + p % size + edge) * filters + f] =
          planes ? round_one(planes[f * size * size + p]) : 0;
}

/* One layer's part: of its gradients from two pictures x and their slopes, and the slopes before it
   unless it is the first. */
INLINE void backward_layer(const half *const *x, half *const *slopes, half *const *before,
                           const int *w, int *x_pairs, int *g_pairs, float *dw, float *dbias,
                           int number, int side, int channels, int stride, int filters) {
  const int size = output_size(side, stride), edge = border(stride), row = size * filters;
  for (int r = 0; r < size; r++) {
    const int from = ((r + edge) * bordered(size, stride) + edge) * filters;
    interleave(slopes[0] + from, slopes[1] + from, g_pairs + r * row, row);
  }
  interleave(x[0], x[1], x_pairs, side * side * channels);
  add_weight_gradient_pairs(x_pairs, g_pairs, dw, dbias, side, channels, stride, filters, !number);
  for (int k = 0; number && k < 2; k++)
    input_gradient_pairs(x[k], (const int *)slopes[k], w, before[k], side, channels, stride,
                         filters, border(STRIDES[number - 1]));
}

/* The gradients of all weights and biases, in CHUNKS parts; gradient is that of the features. If
   first is given, it gets the gradient of the first layer's output, within a border. */
void backward_pairs(const half *const *x, const float *gradient, const float *const *w,
                    gradients *parts, half *first, long batch, long *next) {
  room *own = calloc(1, sizeof(room));
  half *const slopes[][2] = {
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
    {own->slopes_##NUMBER[0], own->slopes_##NUMBER[1]},
    LAYERS
#undef LAYER
  };
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
  if (NUMBER) pair_filters(w[NUMBER], own->weights_##NUMBER, CHANNELS, FILTERS);
  LAYERS
#undef LAYER
  SHARE(part)
    for (long end = batch * (part + 1) / CHUNKS, b = batch * part / CHUNKS; b < end; b += 2) {
      const long other = b + 1 < end ? b + 1 : b;  /* without slopes, if there is no other */
#define LAYER(NUMBER, SIDE, CHANNELS, STRIDE, FILTERS, RELU, TILED)                                \
      {                                                                                            \
        const half *both[] = {x[NUMBER] + b * IN_##NUMBER, x[NUMBER] + other * IN_##NUMBER};       \
        for (int k = 0; NUMBER == LAST && k < 2; k++)                                              \
          lay_out_slopes(b + k < end ? gradient + (b + k) * OUT_##NUMBER : NULL,                   \
                         slopes[NUMBER][k], SIZE_##NUMBER, STRIDE, FILTERS);                       \
        backward_layer(both, slopes[NUMBER], slopes[NUMBER ? NUMBER - 1 : 0],                      \
                       own->weights_##NUMBER, (int *)&own->x, (int *)&own->g,                      \
                       parts[part].weights_##NUMBER, parts[part].bias_##NUMBER, NUMBER, SIDE,      \
                       CHANNELS, STRIDE, FILTERS);                                                 \
        for (int k = 0; NUMBER == 0 && first && b + k < end && k < 2; k++)                         \
          memcpy(first + (b + k) * WIDE_0 * WIDE_0 * FILTERS, slopes[0][k],                        \
                 sizeof own->slopes_0[0]);                                                         \
      }
      REVERSED
#undef LAYER
    }
  free(own);
}
