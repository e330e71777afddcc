/* Networks of two hidden ReLU layers in bfloat16 with sums in float32, and an output layer in
   float32 (networks/heads.py): a part of cpu.c.

   A product is made of panels: PANEL columns of the right matrix, whose pairs lie together, are
   multiplied with HEIGHT rows of the left one at a time, and the sums stay in registers. Rows of a
   batch come in tiles of HEIGHT; what the last tile lacks are rows of zeros. */

enum { PANEL = 2 * LANES, HEIGHT = 8 };

/* Tiles, or other units, of a part. */
#define UNITS_IN_PART(u, count, PART)                                                              \
  for (long u = (count) * PART / CHUNKS; u < (count) * (PART + 1) / CHUNKS; u++)

typedef vector sums[HEIGHT][2];

/* Pairs of the left matrix lie `row` apart from row to row, and `step` from pair to pair. */
INLINE void multiply(sums sum, const int *left, long row, long step, const int *panel, long count) {
  UNROLLED for (int t = 0; t < HEIGHT; t++) sum[t][0] = sum[t][1] = (vector){0};
  for (long k = 0; k < count; k++, left += step, panel += PANEL) {
    const pairs first = read_pairs(panel), second = read_pairs(panel + LANES);
    UNROLLED for (int t = 0; t < HEIGHT; t++) {
      const pairs value = both(left[t * row]);
      sum[t][0] = dot(sum[t][0], first, value);
      sum[t][1] = dot(sum[t][1], second, value);
    }
  }
}

/* Weights (rows, columns) as panels of pairs of columns, for forward passes: a panel has PANEL
   rows. An odd number of columns is filled with zeros. */
static void pack_columns(const float *w, int *to, long rows, long columns) {
  const long count = share(columns, 2);
  half row[2 * count];
  row[2 * count - 1] = 0;
  for (long r = 0; r < rows; r++) {
    int *panel = to + r / PANEL * count * PANEL + r % PANEL;
    round_row(w + r * columns, row, columns);
    for (long k = 0; k < count; k++) panel[k * PANEL] = ((const pair *)row)[k];
  }
}

/* Weights as panels of pairs of rows, for gradients of inputs: a panel has PANEL columns, and the
   last one zeros where there are none. */
static void pack_rows(const float *w, int *to, long rows, long columns) {
  const long wide = share(columns, PANEL) * PANEL;
  half both[2][wide];
  memset(both, 0, sizeof both);
  for (long r = 0; r < rows; r += 2) {
    for (int k = 0; k < 2; k++) round_row(w + (r + k) * columns, both[k], columns);
    for (long c = 0; c < wide; c += PANEL)
      interleave(both[0] + c, both[1] + c, to + (c * rows + r * PANEL) / 2, PANEL);
  }
}

/* A tile's rows of one hidden layer: y = x * w + bias, clipped at 0. */
INLINE void hidden_layer(const half *x, const int *w, const float *bias, half *y, long inputs,
                         long hidden) {
  for (long f = 0; f < hidden; f += PANEL) {
    sums sum;
    multiply(sum, (const int *)x, inputs / 2, 1, w + f * inputs / 2, inputs / 2);
    UNROLLED for (int t = 0; t < HEIGHT; t++)
      UNROLLED for (int v = 0; v < 2; v++) {
        const vector value = sum[t][v] + read(bias + f + v * LANES);
        *(halves *)(y + t * hidden + f + v * LANES) = rounded(keep(value, ~(value < 0)));
      }
  }
}

/* Outputs of a batch x. What hidden layers are given and make is kept as rows of bfloat16 (x_low,
   with an even number of columns; first; second) for `mlp_slopes`. Biases are the odd ones of w. */
void mlp_forward(const float *x, half *x_low, half *first, half *second, float *y,
                 const float *const *w, long batch, long inputs, long hidden, long outputs,
                 long *next) {
  const long even = 2 * share(inputs, 2);
  int *panels = malloc(sizeof(int) * hidden * (even + hidden) / 2);
  int *upper = panels + hidden * even / 2;
  pack_columns(w[0], panels, hidden, inputs);
  pack_columns(w[2], upper, hidden, hidden);
  SHARE(part) UNITS_IN_PART(tile, share(batch, HEIGHT), part) {
    const long row = tile * HEIGHT;
    memset(x_low + row * even, 0, sizeof(half) * HEIGHT * even);
    for (long r = row; r < row + HEIGHT && r < batch; r++)
      round_row(x + r * inputs, x_low + r * even, inputs);
    hidden_layer(x_low + row * even, panels, w[1], first + row * hidden, even, hidden);
    hidden_layer(first + row * hidden, upper, w[3], second + row * hidden, hidden, hidden);
    for (long r = row; r < row + HEIGHT && r < batch; r++)
      for (long o = 0; o < outputs; o++) {
        vector sum = {0};
        for (long f = 0; f < hidden; f += LANES)
          sum += widened(second + r * hidden + f) * read(w[4] + o * hidden + f);
        float total = w[5][o];
        for (int lane = 0; lane < LANES; lane++) total += sum[lane];
        y[r * outputs + o] = total;
      }
  }
  free(panels);
}

/* A tile of rows as products over a batch take it: pairs of rows, by `width` columns. */
INLINE void pair_rows(const half *rows, int *to, long tile, long tiles, long columns, int width) {
  for (int r = 0; r < HEIGHT; r += 2, rows += 2 * columns)
    for (long c = 0; c < columns; c += width) {
      int *at = to + (c * tiles * HEIGHT + (tile * HEIGHT + r) * width) / 2;
      if (columns - c < width) memset(at, 0, sizeof(int) * width);
      interleave(rows + c, rows + columns + c, at, columns - c < width ? columns - c : width);
    }
}

/* A tile's slopes behind the ReLU that made `second`, from those of the outputs. */
INLINE void output_slopes(const float *gradient, const half *second, const float *w, half *slopes,
                          long rows, long hidden, long outputs) {
  for (long r = 0; r < HEIGHT; r++)
    for (long f = 0; f < hidden; f += LANES) {
      vector sum = {0};
      for (long o = 0; r < rows && o < outputs; o++)
        sum += gradient[r * outputs + o] * read(w + o * hidden + f);
      const vector made = widened(second + r * hidden + f);
      *(halves *)(slopes + r * hidden + f) = rounded(keep(sum, ~(made <= 0)));
    }
}

/* A tile's slopes behind the ReLU that made `first`, from those behind the next one. */
INLINE void hidden_slopes(const half *above, const int *w, const half *first, half *slopes,
                          long hidden) {
  for (long f = 0; f < hidden; f += PANEL) {
    sums sum;
    multiply(sum, (const int *)above, hidden / 2, 1, w + f * hidden / 2, hidden / 2);
    UNROLLED for (int t = 0; t < HEIGHT; t++)
      UNROLLED for (int v = 0; v < 2; v++) {
        const long at = t * hidden + f + v * LANES;
        *(halves *)(slopes + at) = rounded(keep(sum[t][v], ~(widened(first + at) <= 0)));
      }
  }
}

/* The slopes of a tile's inputs. */
INLINE void input_slopes(const half *slopes, const int *w, float *dx, long rows, long inputs,
                         long hidden) {
  for (long i = 0; i < inputs; i += PANEL) {
    sums sum;
    multiply(sum, (const int *)slopes, hidden / 2, 1, w + i * hidden / 2, hidden / 2);
    for (long r = 0; r < HEIGHT && r < rows; r++)
      for (long k = i; k < i + PANEL && k < inputs; k++)
        dx[r * inputs + k] = ((float *)sum[r])[k - i];
  }
}

/* Slopes behind both hidden layers from those of the outputs, and those of the inputs (dx, if it is
   given). All is left in pairs of rows for `mlp_gradients`: x and first as panels, slopes as
   blocks. */
void mlp_slopes(const float *gradient, const half *x_low, const half *first, const half *second,
                const float *const *w, float *dx, int *x_panels, int *first_panels,
                int *first_blocks, int *second_blocks, long batch, long inputs, long hidden,
                long outputs, long *next) {
  const long even = 2 * share(inputs, 2), tiles = share(batch, HEIGHT);
  const long wide = share(inputs, PANEL) * PANEL;
  int *panels = malloc(sizeof(int) * hidden * (wide + hidden) / 2);
  int *upper = panels + hidden * wide / 2;
  half *slopes = malloc(sizeof(half) * 2 * HEIGHT * hidden), *above = slopes + HEIGHT * hidden;
  if (dx) pack_rows(w[0], panels, hidden, inputs);
  pack_rows(w[2], upper, hidden, hidden);
  SHARE(part) UNITS_IN_PART(tile, tiles, part) {
    const long row = tile * HEIGHT, rows = batch - row;
    output_slopes(gradient + row * outputs, second + row * hidden, w[4], above, rows, hidden,
                  outputs);
    hidden_slopes(above, upper, first + row * hidden, slopes, hidden);
    if (dx) input_slopes(slopes, panels, dx + row * inputs, rows, inputs, hidden);
    pair_rows(x_low + row * even, x_panels, tile, tiles, even, PANEL);
    pair_rows(first + row * hidden, first_panels, tile, tiles, hidden, PANEL);
    pair_rows(slopes, first_blocks, tile, tiles, hidden, HEIGHT);
    pair_rows(above, second_blocks, tile, tiles, hidden, HEIGHT);
  }
  free(panels);
  free(slopes);
}

/* HEIGHT rows of a hidden layer's weights' gradient, and of its bias's. */
INLINE void hidden_gradient(const int *block, const int *panels, float *dw, float *dbias,
                            long count, long columns) {
  vector total = {0};
  for (long k = 0; k < count * HEIGHT; k += LANES)
    total = dot(total, read_pairs(block + k), both(ONES));
  for (int t = 0; t < HEIGHT; t++)
    dbias[t] = LANES == 16 ? total[t] + total[t + LANES - HEIGHT] : total[t];
  for (long c = 0; c < columns; c += PANEL) {
    sums sum;
    multiply(sum, block, 1, HEIGHT, panels + c * count, count);
    for (int t = 0; t < HEIGHT; t++)
      memcpy(dw + t * columns + c, sum[t],
             sizeof(float) * (columns - c < PANEL ? columns - c : PANEL));
  }
}

/* The gradients of all weights and biases, as they come in w. */
void mlp_gradients(const float *gradient, const half *second, const int *x_panels,
                   const int *first_panels, const int *first_blocks, const int *second_blocks,
                   float *const *dw, long batch, long inputs, long hidden, long outputs,
                   long *next) {
  const long count = share(batch, HEIGHT) * HEIGHT / 2;  /* pairs of rows */
  SHARE(part) {
    UNITS_IN_PART(u, hidden / HEIGHT, part) {
      const long f = u * HEIGHT;
      hidden_gradient(first_blocks + f * count, x_panels, dw[0] + f * inputs, dw[1] + f, count,
                      inputs);
      hidden_gradient(second_blocks + f * count, first_panels, dw[2] + f * hidden, dw[3] + f, count,
                      hidden);
    }
    for (long o = 0; o < outputs; o++) {
      UNITS_IN_PART(u, hidden / LANES, part) {
        vector sum = {0};
        for (long r = 0; r < batch; r++)
          sum += gradient[r * outputs + o] * widened(second + r * hidden + u * LANES);
        write(dw[4] + o * hidden + u * LANES, sum);
      }
      if (part) continue;
      dw[5][o] = 0;
      for (long r = 0; r < batch; r++) dw[5][o] += gradient[r * outputs + o];
    }
  }
}
