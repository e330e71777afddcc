/* 3x3 convolutions with stride 1 by Winograd's minimal filtering, F(2x2, 3x3): a part of cpu.c.

   A tile is 4x4 pixels of the input, from which 2x2 of the output are made. Tile and filter are
   changed into 16 numbers each, which are multiplied one by one and changed back: 16 products for 4
   pixels instead of 36, and the changes are additions on whole vectors. A tile's 16 numbers lie in
   16 tables (POSITIONS) of one row to a tile, so that the products of each are a matrix product with
   the channels, whose sums stay in registers. The last tiles of a row or column of odd size overlap
   those before.

   Weights come as (position, channels in, channels out), changed already (cpu.py has the matrix).
   Their gradients are not made from tiles, which would be 1.7 times as fast: where a tap's gradient
   is zero and its neighbour's is not, tiles leave rounding, and Adam makes whole steps of it. */

enum { POSITIONS = 16, ROWS_OF_TILES = 2, ROWS_OF_SUMS = LANES == 16 ? 12 : 6 };

INLINE int tiles_of(int size) { return share(size, 2); }
/* Rows of a product whose sums are in registers at once: as even a part of the tiles as possible. */
INLINE int rows_of_sums(int size) {
  const int tiles = ROWS_OF_TILES * tiles_of(size);
  return share(tiles, share(tiles, ROWS_OF_SUMS));
}
/* Rows of a table: one for each tile, and those that fill the last product. */
INLINE int table_rows(int size) {
  return share(ROWS_OF_TILES * tiles_of(size), rows_of_sums(size)) * rows_of_sums(size);
}
/* Floats of the tables for a layer, at least; a constant, unlike what functions return. */
#define TABLES(SIDE, CHANNELS)                                                                     \
  (POSITIONS * (ROWS_OF_TILES * ((SIDE) / 2 + 1) + ROWS_OF_SUMS) * (CHANNELS))

/* The tables of some rows of tiles: B' d B for the 4x4 pixels d of each. */
INLINE void change_inputs(const float *x, float *table, int first, int rows, int size,
                          int channels) {
  const int side = size + 2, tiles = tiles_of(size), place = table_rows(size) * channels;
  for (int r = 0; r < rows; r++)
    for (int t = 0; t < tiles; t++)
      for (int c = 0; c < channels; c += LANES) {
        const int row = smaller(2 * (first + r), size - 2), column = smaller(2 * t, size - 2);
        const float *from = x + (row * side + column) * channels + c;
        float *to = table + (r * tiles + t) * channels + c;
        vector across[4][4];
        UNROLLED for (int i = 0; i < 4; i++) {
          vector pixel[4];
          UNROLLED for (int j = 0; j < 4; j++) pixel[j] = read(from + (i * side + j) * channels);
          across[i][0] = pixel[0] - pixel[2];
          across[i][1] = pixel[1] + pixel[2];
          across[i][2] = pixel[2] - pixel[1];
          across[i][3] = pixel[1] - pixel[3];
        }
        UNROLLED for (int j = 0; j < 4; j++) {
          write(to + j * place, across[0][j] - across[2][j]);
          write(to + (4 + j) * place, across[1][j] + across[2][j]);
          write(to + (8 + j) * place, across[2][j] - across[1][j]);
          write(to + (12 + j) * place, across[1][j] - across[3][j]);
        }
      }
}

/* product = table * w in every position. */
INLINE void multiply_tables(const float *table, const float *w, float *product, int count, int size,
                            int channels, int filters) {
  const int rows = rows_of_sums(size), all = table_rows(size);
  const int wide = filters % (2 * LANES) ? 1 : 2;  /* vectors of filters at once */
  for (int p = 0; p < POSITIONS; p++)
    for (int r = 0; r < count; r += rows)
      for (int f = 0; f < filters; f += wide * LANES) {
        vector sum[ROWS_OF_SUMS][2];
        UNROLLED for (int t = 0; t < rows; t++)
          UNROLLED for (int k = 0; k < wide; k++) sum[t][k] = (vector){0};
        const float *from = table + (p * all + r) * channels;
        for (int i = 0; i < channels; i++) {
          const float *weight = w + (p * channels + i) * filters + f;
          UNROLLED for (int t = 0; t < rows; t++)
            UNROLLED for (int k = 0; k < wide; k++)
              sum[t][k] += from[t * channels + i] * read(weight + k * LANES);
        }
        float *to = product + (p * all + r) * filters + f;
        UNROLLED for (int t = 0; t < rows; t++)
          UNROLLED for (int k = 0; k < wide; k++) write(to + t * filters + k * LANES, sum[t][k]);
      }
}

/* The 2x2 pixels A' m A of each tile's products m, plus the bias if there is one. With relu they are
   clipped at 0; if what a ReLU made is given, its slope is taken. */
INLINE void change_outputs(const float *product, const float *bias, const float *clipped, float *y,
                           int relu, int first, int rows, int size, int filters) {
  const int tiles = tiles_of(size), place = table_rows(size) * filters;
  for (int r = 0; r < rows; r++)
    for (int t = 0; t < tiles; t++)
      for (int f = 0; f < filters; f += LANES) {
        const int row = smaller(2 * (first + r), size - 2), column = smaller(2 * t, size - 2);
        const float *from = product + (r * tiles + t) * filters + f;
        vector down[2][4];
        UNROLLED for (int j = 0; j < 4; j++) {
          const vector second = read(from + (4 + j) * place), third = read(from + (8 + j) * place);
          down[0][j] = read(from + j * place) + second + third;
          down[1][j] = second - third - read(from + (12 + j) * place);
        }
        UNROLLED for (int k = 0; k < 4; k++) {
          const vector *sum = down[k / 2];
          vector value = k % 2 ? sum[1] - sum[2] - sum[3] : sum[0] + sum[1] + sum[2];
          const long at = ((row + k / 2) * size + column + k % 2) * filters + f;
          if (bias) value += read(bias + f);
          if (relu) value = keep(value, ~(value < 0));
          if (clipped) value = keep(value, ~(read(clipped + at) <= 0));
          write(y + at, value);
        }
      }
}

/* One picture's layer, `size` pixels wide behind it; `tables` has room for two. */
INLINE void convolve_tiles(const float *x, const float *w, const float *bias, const float *clipped,
                           float *y, float *tables, int relu, int size, int channels, int filters) {
  float *product = tables + TABLES(size, channels);
  for (int first = 0; first < tiles_of(size); first += ROWS_OF_TILES) {
    const int rows = smaller(ROWS_OF_TILES, tiles_of(size) - first);
    change_inputs(x, tables, first, rows, size, channels);
    multiply_tables(tables, w, product, rows * tiles_of(size), size, channels, filters);
    change_outputs(product, bias, clipped, y, relu, first, rows, size, filters);
  }
}

/* The gradient of the input: the gradient g of the output, with a border of zeros, convolved with
   the turned filters (w, changed); behind the ReLU that made x. */
INLINE void input_gradient_tiles(const float *x, const float *g, const float *w, float *dx,
                                 float *tables, int side, int channels, int filters) {
  const int size = side - 2, wide = side + 2;
  float *bordered = tables + TABLES(side, channels) + TABLES(side, filters);
  memset(bordered, 0, sizeof(float) * wide * wide * filters);
  for (int row = 0; row < size; row++)
    memcpy(bordered + ((row + 2) * wide + 2) * filters, g + row * size * filters,
           sizeof(float) * size * filters);
  convolve_tiles(bordered, w, NULL, x, dx, tables, 0, side, filters, channels);
}
