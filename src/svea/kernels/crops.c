/* Random resized crops of pictures, for the overlays: a part of cpu.c.

   Antialiased bilinear resizing as in Pillow, without its rounding between rows and columns: a
   triangle filter, widened when shrinking. What lies outside of a crop has no weight. */

INLINE float wider(float a, float b) { return a > b ? a : b; }

/* How many pixels a filter touches at most, for a length that becomes so many pixels. */
INLINE long taps_of(float length, long size) { return (long)(2 * wider(length / size, 1)) + 1; }

/* The filter of a pixel of the result: returns where it begins in the crop, and its weights. */
INLINE long filter_of(long pixel, float length, long size, long taps, float *weight) {
  const float step = length / size, reach = wider(step, 1), centre = (pixel + 0.5f) * step - 0.5f;
  const long first = (long)wider(__builtin_ceilf(centre - reach), 0);
  float total = 0;
  for (long k = 0; k < taps; k++) {
    const float inside = first + k < length ? 1 : 0;
    weight[k] = inside * wider(1 - __builtin_fabsf(first + k - centre) / reach, 0);
    total += weight[k];
  }
  for (long k = 0; k < taps; k++) weight[k] /= total;
  return first;
}

/* One row of the result from the crop's rows, before its columns are resized: four at a time, of
   which some have no weight, and might lie below the picture. */
INLINE void add_rows(const unsigned char *from, long side, const float *weight, long taps,
                     long wide, float *restrict row) {
  for (long x = 0; x < wide; x++) row[x] = 0;
  for (long k = 0; k < taps; k += 4) {
    const unsigned char *at[4];
    float w[4];
    for (int i = 0; i < 4; i++) {
      w[i] = k + i < taps ? weight[k + i] : 0;
      at[i] = w[i] != 0 ? from + (k + i) * side : from;
    }
    for (long x = 0; x < wide; x++)
      row[x] += w[0] * at[0][x] + w[1] * at[1][x] + w[2] * at[2][x] + w[3] * at[3][x];
  }
}

typedef float pixel __attribute__((vector_size(16), aligned(4), may_alias));  /* and nothing */
typedef int levels __attribute__((vector_size(16)));

/* A row's columns resized: all colours of a pixel at once. `to` are the rows of three planes. */
INLINE void add_columns(const pixel *row, const int *first, const float *weight, long taps,
                        long width, float *const *to) {
  for (long x = 0; x < width; x++) {
    pixel sum = {0};
    for (long k = 0; k < taps; k++) sum += weight[x * taps + k] * row[first[x] + k];
    sum = __builtin_convertvector(__builtin_convertvector(sum + 0.5f, levels), pixel) / 255;
    for (int channel = 0; channel < 3; channel++) to[channel][x] = sum[channel];
  }
}

/* Crops of bytes (pictures, 3, side, side) -> (batch, 3, height, width) in steps of 1/255. */
void resize_crops(const unsigned char *pictures, const long *chosen, const float *top,
                  const float *left, const float *tall, const float *wide,
                  const unsigned char *mirrored, float *y, long batch, long side, long height,
                  long width, long *next) {
  const long most = taps_of(side, width), plane = side * side;
  float *planes = malloc(sizeof(float) * 3 * side), *weight = malloc(sizeof(float) * most * width);
  float *own = malloc(sizeof(float) * taps_of(side, height));
  pixel *row = calloc(side + most, sizeof(pixel));  /* columns beyond a crop have no weight */
  int *first = malloc(sizeof(int) * width);
  SHARE_PICTURES(b, batch) {
    const long taps = taps_of(wide[b], width), rows = taps_of(tall[b], height), columns = wide[b];
    for (long x = 0; x < width; x++) {
      const long column = mirrored[b] ? width - 1 - x : x;
      first[x] = filter_of(column, columns, width, taps, weight + x * taps);
    }
    const unsigned char *corner = pictures + chosen[b] * 3 * plane + (long)top[b] * side;
    for (long r = 0; r < height; r++) {
      const unsigned char *from = corner + filter_of(r, tall[b], height, rows, own) * side;
      float *to[3];
      for (int channel = 0; channel < 3; channel++) {
        to[channel] = y + ((b * 3 + channel) * height + r) * width;
        add_rows(from + channel * plane + (long)left[b], side, own, rows, columns,
                 planes + channel * side);
      }
      for (long x = 0; x < columns; x++)
        row[x] = (pixel){planes[x], planes[side + x], planes[2 * side + x], 0};
      add_columns(row, first, weight, taps, width, to);
    }
  }
  free(planes), free(weight), free(own), free(row), free(first);
}
