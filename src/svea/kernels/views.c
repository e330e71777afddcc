/* Views of pictures, as planes in float32: a part of cpu.c. */

/* e to the power of x within 2 units of the last place, for -87 < x < 88. */
INLINE vector exponential(vector x) {
  const vector magic = {0};
  const vector rounder = magic + 12582912.0f;  /* 1.5 * 2^23: adding it rounds to a whole number */
  const vector whole = (x * 1.44269504f + rounder) - rounder;
  const vector rest = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  vector sum = magic + 1.9875691500e-4f;
  sum = sum * rest + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * rest * rest + rest + 1.0f;
  return (vector)((mask)sum + (__builtin_convertvector(whole, mask) << 23));
}

/* 1 / (1 + e^-x); what is not a number stays so. */
INLINE vector sigmoid(vector x) {
  const vector limit = (vector){0} + 87.0f;
  vector bounded = (vector)(((mask)x & ~(x > limit)) | ((mask)limit & (x > limit)));
  bounded = (vector)(((mask)bounded & ~(x < -limit)) | ((mask)-limit & (x < -limit)));
  return 1.0f / (1.0f + exponential(-bounded));
}

/* The sigmoid of every sample's frames with its own 3x3 filter (out, in, 3, 3); the border is
   repeated. Planar; at least 16 pixels wide and 4 high. */
void random_convolution(const float *x, const float *w, float *y, long samples, long frames,
                        long height, long width, long *next) {
  enum { ROWS = 4 };
  const long batch = samples * frames;
  SHARE_PICTURES(n, batch) {
    float padded[3][height + 2][width + 2];
    for (int i = 0; i < 3; i++)
      for (long r = 0; r < height + 2; r++) {
        const long row = r < 1 ? 0 : r > height ? height - 1 : r - 1;
        const float *from = x + ((n * 3 + i) * height + row) * width;
        padded[i][r][0] = from[0];
        for (long c = 0; c < width; c++) padded[i][r][c + 1] = from[c];
        padded[i][r][width + 1] = from[width - 1];
      }
    float *to = y + n * 3 * height * width;
    for (long r = 0; r < height; r += ROWS)
      for (long c = 0; c < width; c += LANES) {
        const long row = r < height - ROWS ? r : height - ROWS;
        const long column = c < width - LANES ? c : width - LANES;
        vector sum[3 * ROWS];
        UNROLLED for (int t = 0; t < 3 * ROWS; t++) sum[t] = (vector){0};
        for (int i = 0; i < 3; i++)
          UNROLLED for (int tap = 0; tap < 9; tap++) {
            const float *filter = w + n / frames * 81 + i * 9 + tap;
            const float *from = &padded[i][row + tap / 3][column + tap % 3];
            UNROLLED for (int t = 0; t < ROWS; t++) {
              const vector value = read(from + t * (width + 2));
              UNROLLED for (int o = 0; o < 3; o++) sum[o * ROWS + t] += filter[o * 27] * value;
            }
          }
        UNROLLED for (int t = 0; t < 3 * ROWS; t++)
          write(to + (t / ROWS * height + row + t % ROWS) * width + column, sum[t]);
      }
    /* In a loop of its own: next to the sums it took twice as long. */
    const long count = 3 * height * width;
    const vector last = sigmoid(read(to + count - LANES));
    for (long k = 0; k < count - LANES; k += LANES) write(to + k, sigmoid(read(to + k)));
    write(to + count - LANES, last);
  }
}

/* x / 255, rounded as a division would: the product with 1 / 255 is corrected by what it lacks. */
INLINE float part_of_255(float x) {
  const float one = 1 / 255.0f, share = x * one;
  return __builtin_fmaf(__builtin_fmaf(-share, 255, x), one, share);
}

/* One window of every sample's bytes, divided by 255, in one pass. The window begins at the sample's
   corner (row, column) less pad, and the border is repeated. */
void window_pixels(const unsigned char *x, const long *corner, float *y, long batch, long channels,
                   long rows, long columns, long height, long width, long pad, long *next) {
  SHARE_PICTURES(b, batch) {
    const long top = corner[2 * b] - pad, left = corner[2 * b + 1] - pad;
    const long before = left < 0 ? smaller(-left, width) : 0;  /* columns that repeat the first */
    const long inside = smaller(left + width, columns) - left;  /* and where the last repeats */
    for (long c = 0; c < channels; c++) {
      const unsigned char *plane = x + (b * channels + c) * rows * columns;
      unsigned char bytes[height * width];
      for (long r = 0; r < height; r++) {
        const long row = top + r < 0 ? 0 : top + r < rows ? top + r : rows - 1;
        const unsigned char *from = plane + row * columns;
        unsigned char *line = bytes + r * width;
        for (long k = 0; k < before; k++) line[k] = from[0];
        if (inside > before) memcpy(line + before, from + left + before, inside - before);
        for (long k = inside < 0 ? 0 : inside; k < width; k++) line[k] = from[columns - 1];
      }
      float *to = y + (b * channels + c) * height * width;
      for (long k = 0; k < height * width; k++) to[k] = part_of_255(bytes[k]);
    }
  }
}
