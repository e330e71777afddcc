/* Textures: smaller and smaller copies of them, and their colours at places. Part of raster.c.

   Filters are those of MuJoCo's textures: between the texels around a place, and between the two
   copies whose texels are about as large as pixels. How large a pixel is in texels, OpenGL leaves
   open within bounds. On flat textures Mesa takes the steps between the pixels of a block of two by
   two for all four, and it rounds to bytes at every step. */

typedef struct { vf r, g, b; } Color;
typedef struct { vi r, g, b; } Bytes;

INLINE Bytes unpacked(vi texel) {
  return (Bytes){texel & 255, texel >> 8 & 255, texel >> 16 & 255};
}
INLINE Color as_color(Bytes b) { return (Color){to_float(b.r), to_float(b.g), to_float(b.b)}; }
INLINE Color mixed(Color a, Color b, vf part) {
  return (Color){a.r + (b.r - a.r) * part, a.g + (b.g - a.g) * part, a.b + (b.b - a.b) * part};
}

/* The two copies that a step lies between whose length in texels has this square, and how far it is
   from the first. Mesa takes lines between powers of two for the logarithm. */
INLINE void levels(vf square, int last, vi *level, vf *part) {
  const vi whole = ((vi)square >> 23) - 127;
  const vf mantissa = (vf)(((vi)square & 0x7fffff) | 0x3f800000);
  const vf log = mantissa - 1.f;
  const vf lod = low(high((to_float(whole) + log) * 0.5f, all(0)), all((float)last));
  *level = to_int(lod);
  *part = lod - to_float(*level);
}

/* Between two colours of bytes, as Mesa rounds it: `part` is of 256. */
INLINE vi part_way(vi a, vi b, vi part) { return a + (((b - a) * part + 128) >> 8); }
INLINE Bytes bytes_between(Bytes a, Bytes b, vi part) {
  return (Bytes){part_way(a.r, b.r, part), part_way(a.g, b.g, part), part_way(a.b, b.b, part)};
}

INLINE vf fraction(vf x) { return x - to_float(floor_int(x)); }

/* A flat texture that repeats. */
INLINE Bytes flat_level(const Texture *t, vi level, vf u, vf v) {
  const vi width = gather_int(t->width, level), height = gather_int(t->height, level);
  const vi start = gather_int(t->start, level);
  const vf x = fraction(u) * to_float(width) - 0.5f, y = fraction(v) * to_float(height) - 0.5f;
  /* Within bounds whatever x and y are: a triangle seen edge on may have no place at all. */
  const vi column = low_int(high_int(floor_int(x), all_int(-1)), width - 1);
  const vi line = low_int(high_int(floor_int(y), all_int(-1)), height - 1);
  const vi fx = to_int((x - to_float(column)) * 256.f), fy = to_int((y - to_float(line)) * 256.f);
  const vi x0 = column + (width & (column < 0)), y0 = line + (height & (line < 0));
  const vi x1 = (column + 1) & (column + 1 < width), y1 = (line + 1) & (line + 1 < height);
  const vi row0 = start + y0 * width, row1 = start + y1 * width;
  const Bytes a = unpacked(gather_int(t->texels, row0 + x0));
  const Bytes b = unpacked(gather_int(t->texels, row0 + x1));
  const Bytes c = unpacked(gather_int(t->texels, row1 + x0));
  const Bytes d = unpacked(gather_int(t->texels, row1 + x1));
  return bytes_between(bytes_between(a, b, fx), bytes_between(c, d, fx), fy);
}

/* Colours (0 to 255) at places, and the places one pixel to the right and one above. */
static Color flat_color(const Texture *t, const vf *u, const vf *v, vf at_u, vf at_v) {
  const float width = t->width[0], height = t->height[0];
  const vf ux = (u[1] - u[0]) * width, uy = (u[2] - u[0]) * width;
  const vf vx = (v[1] - v[0]) * height, vy = (v[2] - v[0]) * height;
  vi level;
  vf part;
  levels(high(ux * ux + vx * vx, uy * uy + vy * vy), t->levels - 1, &level, &part);
  const Bytes near_one = flat_level(t, level, at_u, at_v);
  if (!bits(part > 0.f)) return as_color(near_one);
  const vi next = low_int(level + 1, all_int(t->levels - 1));
  return as_color(bytes_between(near_one, flat_level(t, next, at_u, at_v), to_int(part * 256.f)));
}

/* Cubes ------------------------------------------------------------------------------------------
   */

/* The side that directions hit, and where, from -1 to 1 from the first texel on. */
INLINE void cube_side(vf x, vf y, vf z, vi *side, vf *s, vf *t) {
  const vf ax = high(x, -x), ay = high(y, -y), az = high(z, -z);
  const vi on_z = az >= high(ax, ay), on_x = ~on_z & (ax > ay);
  const vf major = choose(on_z, z, choose(on_x, x, y));
  const vi negative = (vi)major < 0;
  const vf each = 1.f / high(major, -major);
  const vf s_z = choose(negative, -x, x), s_x = choose(negative, z, -z);
  const vf t_y = choose(negative, -z, z);
  *side = choose_int(on_z, all_int(4), choose_int(on_x, all_int(0), all_int(2))) - negative;
  *s = choose(on_z, s_z, choose(on_x, s_x, x)) * each;
  *t = choose(on_z | on_x, -y, t_y) * each;
}

INLINE Color cube_level(const Texture *c, vi level, vi side, vf s, vf t) {
  const vi width = gather_int(c->width, level), row = width + 2;
  const vf wide = to_float(width);
  const vf x = (s * 0.5f + 0.5f) * wide + 0.5f, y = (t * 0.5f + 0.5f) * wide + 0.5f;
  const vi x0 = high_int(low_int(floor_int(x), width), all_int(0));
  const vi y0 = high_int(low_int(floor_int(y), width), all_int(0));
  const vi at = gather_int(c->start, level) + side * row * row + y0 * row + x0;
  const Color a = as_color(unpacked(gather_int(c->texels, at)));
  const Color b = as_color(unpacked(gather_int(c->texels, at + 1)));
  const Color below = as_color(unpacked(gather_int(c->texels, at + row)));
  const Color last = as_color(unpacked(gather_int(c->texels, at + row + 1)));
  const vf fx = x - to_float(x0), fy = y - to_float(y0);
  return mixed(mixed(a, b, fx), mixed(below, last, fx), fy);
}

/* The colours of a cube in directions, which change by so much from pixel to pixel. */
static Color cube_color(const Texture *c, const vf *at, const float *right, const float *above) {
  const vf ax = high(at[0], -at[0]), ay = high(at[1], -at[1]), az = high(at[2], -at[2]);
  const vi on_z = az >= high(ax, ay), on_x = ~on_z & (ax > ay);
  const vf each = 1.f / choose(on_z, at[2], choose(on_x, at[0], at[1]));
  const vf by_right = choose(on_z, all(right[2]), choose(on_x, all(right[0]),
      all(right[1]))) * each;
  const vf by_above = choose(on_z, all(above[2]), choose(on_x, all(above[0]),
      all(above[1]))) * each;
  vf across = {}, up = {};
  for (int k = 0; k < 3; k++) {
    const vf r = (right[k] - at[k] * by_right) * each, a = (above[k] - at[k] * by_above) * each;
    across += r * r, up += a * a;
  }
  const float half = 0.5f * c->width[0];
  vi level;
  vf part;
  levels(high(across, up) * (half * half), c->levels - 1, &level, &part);
  vi side;
  vf s, t;
  cube_side(at[0], at[1], at[2], &side, &s, &t);
  const Color near_one = cube_level(c, level, side, s, t);
  if (!bits(part > 0.f)) return near_one;
  return mixed(near_one, cube_level(c, low_int(level + 1, all_int(c->levels - 1)), side, s, t),
      part);
}

/* Smaller copies ---------------------------------------------------------------------------------
   */

INLINE int texel_between(int a, int b, int part) {
  int made = 0;
  for (int k = 0; k < 24; k += 8) {
    const int from = a >> k & 255, to = b >> k & 255;
    made |= (from + (((to - from) * part + 128) >> 8)) << k;
  }
  return made;
}

/* The mean of texels, byte by byte, rounded up. */
INLINE unsigned mean(unsigned a, unsigned b) { return (a | b) - (((a ^ b) & 0xfefefefe) >> 1); }

/* The mean of four texels, first across and then up. */
INLINE int mean_of_four(const int *at, int row) {
  return mean(mean(at[0], at[1]), mean(at[row], at[row + 1]));
}

/* One copy from the next larger one, between texels where a side is odd; rows of so many texels. */
static void shrink(const int *from, int width, int height, int row, int *to, int small_width,
                   int small_height, int small_row) {
  if (width == 2 * small_width && height == 2 * small_height) {
    for (int y = 0; y < small_height; y++)
      for (int x = 0; x < small_width; x++)
        to[y * small_row + x] = mean_of_four(from + 2 * y * row + 2 * x, row);
    return;
  }
  for (int y = 0; y < small_height; y++)
    for (int x = 0; x < small_width; x++) {
      const float u = (x + 0.5f) * width / small_width, v = (y + 0.5f) * height / small_height;
      const int fx = (int)floorf(u * 256) - 128, fy = (int)floorf(v * 256) - 128;
      const int x0 = larger(fx >> 8, 0), y0 = larger(fy >> 8, 0);
      const int x1 = smaller((fx >> 8) + 1, width - 1), y1 = smaller((fy >> 8) + 1, height - 1);
      to[y * small_row + x] = texel_between(
          texel_between(from[y0 * row + x0], from[y0 * row + x1], fx & 255),
          texel_between(from[y1 * row + x0], from[y1 * row + x1], fx & 255), fy & 255);
    }
}

/* How many texels a texture has with all its copies; sizes are written into `t`. */
int raster_plan(Texture *t, int sides, int width, int height) {
  const int border = sides == 6 ? 2 : 0;
  int total = 0, level = 0;
  t->sides = sides;
  for (;; level++) {
    if (level == MOST_LEVELS) return -1;
    t->width[level] = width, t->height[level] = height, t->start[level] = total;
    total += sides * (width + border) * (height + border);
    if (width == 1 && height == 1) break;
    width = larger(width / 2, 1), height = larger(height / 2, 1);
  }
  t->levels = level + 1;
  return total;
}

/* Fill one side and its copies from bytes of red, green and blue. */
void raster_fill(const Texture *t, int *texels, int side, const unsigned char *rgb) {
  const int border = t->sides == 6;
  int *before = NULL, before_row = 0;
  for (int level = 0; level < t->levels; level++) {
    const int width = t->width[level], height = t->height[level], row = width + 2 * border;
    int *here = texels + t->start[level] + side * row * (height + 2 * border) + border * (row + 1);
    if (level)
      shrink(before, t->width[level - 1], t->height[level - 1], before_row, here, width, height,
          row);
    else
      for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, rgb += 3)
          here[y * row + x] = rgb[0] | rgb[1] << 8 | rgb[2] << 16;
    before = here, before_row = row;
  }
}

/* The texel of a cube's level that a place just outside one of its sides belongs to. */
static int beyond_side(const Texture *c, const int *texels, int level, int side, int x, int y) {
  const int width = c->width[level], row = width + 2;
  const float edge = 1.0001f;  /* hardly beyond, so that other places along the edge stay */
  const float s = fminf(fmaxf((2 * x + 1.f) / width - 1, -edge), edge);
  const float t = fminf(fmaxf((2 * y + 1.f) / width - 1, -edge), edge);
  const float places[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1}, {-s,
      -t, -1}};
  vi other;
  vf across, down;
  cube_side(all(places[side][0]), all(places[side][1]), all(places[side][2]), &other, &across,
      &down);
  const int column = smaller(larger((int)floorf((across[0] + 1) / 2 * width), 0), width - 1);
  const int line = smaller(larger((int)floorf((down[0] + 1) / 2 * width), 0), width - 1);
  return texels[c->start[level] + other[0] * row * row + (line + 1) * row + column + 1];
}

/* Surround the sides of a cube with texels of their neighbours. */
void raster_border(const Texture *c, int *texels) {
  for (int level = 0; level < c->levels; level++)
    for (int side = 0; side < 6; side++) {
      const int width = c->width[level], row = width + 2;
      int *here = texels + c->start[level] + side * row * row + row + 1;
      for (int i = 0; i < width; i++) {
        here[-row + i] = beyond_side(c, texels, level, side, i, -1);
        here[width * row + i] = beyond_side(c, texels, level, side, i, width);
        here[i * row - 1] = beyond_side(c, texels, level, side, -1, i);
        here[i * row + width] = beyond_side(c, texels, level, side, width, i);
      }
      /* Three sides meet at a corner: the texel itself is as good as any mixture of theirs. */
      here[-row - 1] = here[0], here[-row + width] = here[width - 1];
      here[width * row - 1] = here[(width - 1) * row];
      here[width * row + width] = here[(width - 1) * row + width - 1];
    }
}
