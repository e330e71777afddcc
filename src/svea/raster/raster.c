/* Pictures as MuJoCo draws them with OpenGL, computed by the CPU: compiled by __init__.py.

   A picture has 84 x 84 pixels of 4 samples, and some ten thousand triangles, most of them smaller
   than a pixel. So triangles are sifted first, eight at a time: those that face away or touch no
   sample go. For each sample the nearest of the rest is found (this file), and only then are
   colours computed, once for each triangle that is seen in a pixel, from light at the vertices of
   those triangles only (raster_colors.c). Textures and skies are in raster_textures.c, and what a
   scene of MuJoCo's says is read in raster_scenes.c.

   Places in pictures are whole numbers of 1/256 pixel, as in Mesa, and the first row is the bottom
   one. Depths are MuJoCo's: 1 at the near end of what is seen, 0 at the far end. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 8, SAMPLES = 4, MOST_LIGHTS = 4, MOST_SHAPES = 1 << 11, MOST_TRIANGLES = 1 << 20 };
enum { SUBPIXELS = 256, BLOCK = 8, MOST_SIDE = 512, MOST_LEVELS = 16, NOTHING = -1 };

typedef float vf __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int vi __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE vf read(const float *from) { return *(const vf *)from; }
INLINE vi read_int(const int *from) { return *(const vi *)from; }
INLINE void write(float *to, vf value) { *(vf *)to = value; }
INLINE void write_int(int *to, vi value) { *(vi *)to = value; }
INLINE vf all(float value) { return value - (vf){}; }
INLINE vi all_int(int value) { return value - (vi){}; }
INLINE vf choose(vi where, vf a, vf b) { return (vf)((where & (vi)a) | (~where & (vi)b)); }
INLINE vi choose_int(vi where, vi a, vi b) { return (where & a) | (~where & b); }
INLINE vf low(vf a, vf b) { return choose(a < b, a, b); }
INLINE vf high(vf a, vf b) { return choose(a > b, a, b); }
INLINE vi low_int(vi a, vi b) { return choose_int(a < b, a, b); }
INLINE vi high_int(vi a, vi b) { return choose_int(a > b, a, b); }
INLINE vf clamp(vf x) { return low(high(x, all(0)), all(1)); }
INLINE vf to_float(vi x) { return __builtin_convertvector(x, vf); }
INLINE vi to_int(vf x) { return __builtin_convertvector(x, vi); }
INLINE vi floor_int(vf x) { const vi whole = to_int(x); return whole + (to_float(whole) > x); }
/* To the nearest whole number, for sizes below 2^22. */
INLINE vi nearest(vf x) { return (vi)(x + 12582912.f) - 0x4b400000; }
INLINE int smaller(int a, int b) { return a < b ? a : b; }
INLINE int larger(int a, int b) { return a > b ? a : b; }

#ifdef __AVX2__
INLINE vf root(vf x) { return (vf)_mm256_sqrt_ps((__m256)x); }
INLINE vf gather(const float *from, vi at) { return (vf)_mm256_i32gather_ps(from, (__m256i)at, 4); }
INLINE vi gather_int(const int *from, vi at) {
  return (vi)_mm256_i32gather_epi32(from, (__m256i)at, 4);
}
INLINE int bits(vi where) { return _mm256_movemask_ps((__m256)where); }
#else
INLINE vf root(vf x) {
  for (int k = 0; k < LANES; k++) x[k] = sqrtf(x[k]);
  return x;
}
INLINE vf gather(const float *from, vi at) {
  vf made;
  for (int k = 0; k < LANES; k++) made[k] = from[at[k]];
  return made;
}
INLINE vi gather_int(const int *from, vi at) {
  vi made;
  for (int k = 0; k < LANES; k++) made[k] = from[at[k]];
  return made;
}
INLINE int bits(vi where) {
  int made = 0;
  for (int k = 0; k < LANES; k++) made |= (where[k] < 0) << k;
  return made;
}
#endif

/* What is drawn
   ----------------------------------------------------------------------------------- */

/* Vertices as seven rows (place, normal, end of a capsule) and triangles as three rows of vertices;
   rows are filled up to whole vectors, with a triangle's last vertex three times. The texture's
   places are six rows: across and up at the three corners. A plane's are those of its vertices. */
typedef struct {
  int vertices, triangles, closed;  /* closed: whether its outside hides its inside from light */
  float reach;  /* the largest coordinate of a vertex */
  const float *rows;
  const int *corners;
  const float *places;
} Mesh;

/* Pixels of four bytes, of each level the sides of a cube, or one. Sides of a cube have a border of
   one texel of their neighbours. */
typedef struct {
  int sides, levels, width[MOST_LEVELS], height[MOST_LEVELS], start[MOST_LEVELS];
  const int *texels;
} Texture;

/* Matrices go by columns. `size` ends with the texture's offset across, `texture` has the repeats,
   nothing, and the offset up; `material` is emission, specular, shininess, and the reflectance of
   the mirror of the picture. */
typedef struct {
  float eye[16], clip[16], mirror_eye[16], mirror_clip[16], light_clip[16];
  float mirror_plane[4], size[4], color[4], material[4], texture[4];
} Shape;

/* `kind` is whether the light is there, whether it casts shadows, and its cutoff. */
typedef struct {
  float position[4], spot[4], mirror_position[4], mirror_spot[4];
  float ambient[4], diffuse[4], specular[4], fading[4], kind[4];
} Light;

typedef struct {
  int side, shadow_side, shapes;
  int mirror, translucent;  /* numbers of the shapes that are, or NOTHING */
  int backdrop;  /* the sky as one more shape, if something translucent may be behind it */
  const Shape *shape;
  const Mesh *const *mesh;
  const Texture *const *texture;
  const Light *light;
  const Texture *sky;
  const float *sky_clip;
  unsigned char *out;
} Picture;

/* Room to work in --------------------------------------------------------------------------------
   */

typedef struct { int pixel, id, samples; } Fragment;

typedef struct {
  /* Of the shape that is being drawn, for each vertex: the place in pixels times w, depth times w,
     w; divided by w; in 1/256 pixel; and which of the planes to clip at it is beyond. */
  float *cx, *cy, *cz, *cw, *x, *y, *z, *cut;
  int *fx, *fy, *beyond, *kept;
  /* Of all vertices of the picture: their places on their shapes, and light in two parts. */
  float *place[3], *plain[3], *shaded[3];
  unsigned char *wanted;
  int *lit, start[MOST_SHAPES + 1];
  /* Of each sample: depth and triangle, of the world and of the mirrored world, and colour. */
  float *depth;
  int *seen, *color;
  Fragment *fragments, *sorted;
  int *shadows, room, room_triangles, room_samples, room_shadows;
  /* Of each shape. */
  Shape *shape;
  const Mesh **mesh;
  const Texture **texture;
  int room_shapes;
} Work;

static void release(Work *w);

static void *room(size_t count, size_t size) {
  void *made = NULL;
  return posix_memalign(&made, 64, (count + LANES) * size) ? NULL : made;
}

/* Make room for a picture; 0 without memory. */
static int make_room(Work *w, int vertices, int triangles, int samples, int shadows) {
  if (vertices <= w->room && triangles <= w->room_triangles && samples <= w->room_samples &&
      shadows <= w->room_shadows)
    return 1;
  release(w);
  float **const floats[] = {&w->cx, &w->cy, &w->cz, &w->cw, &w->x, &w->y, &w->z, &w->cut,
                            &w->place[0], &w->place[1], &w->place[2],
                            &w->plain[0], &w->plain[1], &w->plain[2],
                            &w->shaded[0], &w->shaded[1], &w->shaded[2]};
  int **const ints[] = {&w->fx, &w->fy, &w->beyond, &w->lit};
  int whole = 1;
  for (unsigned i = 0; i < sizeof floats / sizeof *floats; i++)
    whole &= (*floats[i] = room(vertices, sizeof(float))) != NULL;
  for (unsigned i = 0; i < sizeof ints / sizeof *ints; i++)
    whole &= (*ints[i] = room(vertices, sizeof(int))) != NULL;
  whole &= (w->wanted = room(vertices, 1)) != NULL;
  whole &= (w->kept = room(triangles, sizeof(int))) != NULL;
  whole &= (w->depth = room(samples, sizeof(float))) != NULL;
  whole &= (w->seen = room(samples, sizeof(int))) != NULL;
  whole &= (w->color = room(samples, sizeof(int))) != NULL;
  whole &= (w->fragments = room(samples, sizeof(Fragment))) != NULL;
  whole &= (w->sorted = room(samples, sizeof(Fragment))) != NULL;
  whole &= (w->shadows = room(shadows, sizeof(int))) != NULL;
  if (!whole) { release(w); return 0; }
  w->room = vertices, w->room_triangles = triangles;
  w->room_samples = samples, w->room_shadows = shadows;
  return 1;
}

static void release(Work *w) {
  Shape *const shape = w->shape;
  const Mesh **const mesh = w->mesh;
  const Texture **const texture = w->texture;
  const int shapes = w->room_shapes;
  void *const all_of_it[] = {w->cx, w->cy, w->cz, w->cw, w->x, w->y, w->z, w->cut, w->fx, w->fy,
                             w->beyond, w->kept, w->place[0], w->place[1], w->place[2],
                             w->plain[0], w->plain[1], w->plain[2], w->shaded[0], w->shaded[1],
                             w->shaded[2], w->wanted, w->lit, w->depth, w->seen, w->color,
                             w->fragments, w->sorted, w->shadows};
  for (unsigned i = 0; i < sizeof all_of_it / sizeof *all_of_it; i++) free(all_of_it[i]);
  memset(w, 0, sizeof *w);
  w->shape = shape, w->mesh = mesh, w->texture = texture, w->room_shapes = shapes;
}

static void release_shapes(Work *w) {
  free(w->shape), free(w->mesh), free(w->texture);
  w->shape = NULL, w->mesh = NULL, w->texture = NULL, w->room_shapes = 0;
}

/* Make room for shapes; 0 without memory. */
static int make_shapes(Work *w, int count) {
  if (count <= w->room_shapes) return 1;
  release_shapes(w);
  w->shape = room(count, sizeof *w->shape);
  w->mesh = room(count, sizeof *w->mesh), w->texture = room(count, sizeof *w->texture);
  if (!w->shape || !w->mesh || !w->texture) { release_shapes(w); return 0; }
  w->room_shapes = count;
  return 1;
}

Work *raster_begin(void) { return calloc(1, sizeof(Work)); }

void raster_end(Work *w) {
  if (w) release(w), release_shapes(w);
  free(w);
}

/* Vertices ---------------------------------------------------------------------------------------
   */

INLINE int padded(int count) { return (count + LANES - 1) / LANES * LANES; }

/* Where vertices are on a shape of its size. */
static void place_vertices(Work *w, const Shape *shape, const Mesh *mesh, int start) {
  const int n = padded(mesh->vertices);
  const float *at = mesh->rows, *size = shape->size;
  const float round = 0.5f * (size[0] + size[1]);
  for (int v = 0; v < n; v += LANES) {
    const vf end = read(at + 6 * n + v), height = choose(end == 0.f, all(size[2]), all(round));
    write(w->place[0] + start + v, read(at + v) * size[0]);
    write(w->place[1] + start + v, read(at + n + v) * size[1]);
    write(w->place[2] + start + v, read(at + 2 * n + v) * height + end * size[2]);
  }
}

/* One of the passes: onto what squares of pixels the world is projected. */
typedef struct {
  int from, side;    /* the first pixel of the square in both directions, and its pixels */
  int samples;       /* of a pixel */
  int faces;         /* 1: triangles that turn left, -1: that turn right, 0: both */
  const float *cut;  /* a plane, in places on the shape, behind which nothing is drawn */
  float *depth;
  int *seen, *shadows;
  int width;         /* pixels of a row in memory */
  int low, high, left, right;  /* pixels that can be drawn at all, the last ones included */
} Pass;

/* Whether a ball around a shape's origin misses what the pass can show. */
static int misses(const Pass *pass, const float *m, float radius) {
  const float half = 0.5f * pass->side, from = pass->from + half;
  const float bounds[4] = {(pass->left - from) / half, (pass->right + 1 - from) / half,
                           (pass->low - from) / half, (pass->high + 1 - from) / half};
  for (int plane = 0; plane < 6; plane++) {
    float p[4];
    for (int c = 0; c < 4; c++) {
      const float *column = m + 4 * c;
      if (plane == 4) p[c] = column[2];
      else if (plane == 5) p[c] = pass->cut ? pass->cut[c] : 0;
      else {
        const float inside = column[plane / 2] - bounds[plane] * column[3];
        p[c] = plane % 2 ? -inside : inside;
      }
    }
    if (p[3] < -radius * sqrtf(p[0] * p[0] + p[1] * p[1] + p[2] * p[2])) return 1;
  }
  return 0;
}

enum { NEAR = 1, LEFT = 2, RIGHT = 4, BELOW = 8, ABOVE = 16, CUT = 32, PLANES = 6 };

/* How far, if above 0, a point is on the right side of a plane to clip at. Sideways that is a
   quarter of the picture beyond its edge, so that products of places stay small. */
INLINE float distance(const Pass *pass, int plane, const float *v) {
  const float from = pass->from - 0.25f * pass->side, to = pass->from + 1.25f * pass->side;
  switch (1 << plane) {
    case NEAR: return v[3] - v[2];
    case LEFT: return v[0] - from * v[3];
    case RIGHT: return to * v[3] - v[0];
    case BELOW: return v[1] - from * v[3];
    case ABOVE: return to * v[3] - v[1];
    default: return v[4];
  }
}

/* Project a shape's vertices; returns which planes any of them is beyond. */
static int project(Work *w, const Pass *pass, const float *m, int start, int count) {
  const float half = 0.5f * pass->side, shift = pass->samples == 1 ? 0.5f : 0;
  const float from = pass->from - 0.25f * pass->side, to = pass->from + 1.25f * pass->side;
  vi any = {};
  for (int v = 0; v < count; v += LANES) {
    const vf X = read(w->place[0] + start + v), Y = read(w->place[1] + start + v),
             Z = read(w->place[2] + start + v);
    const vf ww = m[3] * X + m[7] * Y + m[11] * Z + m[15];
    const vf z = m[2] * X + m[6] * Y + m[10] * Z + m[14];
    const vf x = (m[0] * X + m[4] * Y + m[8] * Z + m[12] + ww) * half + ww * (float)pass->from;
    const vf y = (m[1] * X + m[5] * Y + m[9] * Z + m[13] + ww) * half + ww * (float)pass->from;
    vi beyond = ((z > ww) & NEAR) | ((x < from * ww) & LEFT) | ((x > to * ww) & RIGHT) |
                ((y < from * ww) & BELOW) | ((y > to * ww) & ABOVE);
    if (pass->cut) {
      const float *p = pass->cut;
      const vf cut = p[0] * X + p[1] * Y + p[2] * Z + p[3];
      beyond |= (cut < 0.f) & CUT;
      write(w->cut + v, cut);
    }
    const vf each = 1.f / ww, sx = x * each, sy = y * each;
    write(w->cx + v, x), write(w->cy + v, y), write(w->cz + v, z), write(w->cw + v, ww);
    write(w->x + v, sx), write(w->y + v, sy), write(w->z + v, z * each);
    write_int(w->fx + v, nearest((sx - shift) * SUBPIXELS));
    write_int(w->fy + v, nearest((sy - shift) * SUBPIXELS));
    write_int(w->beyond + v, beyond);
    any |= beyond;
  }
  int made = 0;
  for (int k = 0; k < LANES; k++) made |= any[k];
  return made;
}

/* Triangles --------------------------------------------------------------------------------------
   */

/* Samples of two pixels in 1/256 pixel, side by side as in memory. */
static const vi ACROSS = {96, 224, 32, 160, 352, 480, 288, 416};
static const vi UP = {32, 96, 160, 224, 32, 96, 160, 224};
static const vi COUNT = {0, 1, 2, 3, 4, 5, 6, 7};

/* Whether any sample's place in one direction lies between two places, counted from its pixel. */
INLINE vi meets(vi least, vi most, int offset) {
  return ((least - offset - 1) >> 8) < ((most - offset) >> 8);
}

/* Numbers of the triangles that may cover a sample; with planes to clip at, those that need it. */
static int sift(Work *w, const Pass *pass, const Mesh *mesh, int beyond) {
  const int n = padded(mesh->triangles), *corners = mesh->corners;
  int *const kept = w->kept;
  int count = 0;
  const vi left = all_int(pass->left * SUBPIXELS - 256), right = all_int((pass->right + 1)
      * SUBPIXELS);
  const vi low = all_int(pass->low * SUBPIXELS - 256), high = all_int((pass->high + 1) * SUBPIXELS);
  for (int t = 0; t < n; t += LANES) {
    const vi a = read_int(corners + t), b = read_int(corners + n + t),
             c = read_int(corners + 2 * n + t);
    const vi ax = gather_int(w->fx, a), bx = gather_int(w->fx, b), cx = gather_int(w->fx, c);
    const vi ay = gather_int(w->fy, a), by = gather_int(w->fy, b), cy = gather_int(w->fy, c);
    const vf area = to_float(bx - ax) * to_float(cy - ay) - to_float(cx - ax) * to_float(by - ay);
    vi stays = pass->faces ? area * (float)pass->faces > 0.f : area != 0.f;
    const vi x0 = low_int(low_int(ax, bx), cx), x1 = high_int(high_int(ax, bx), cx);
    const vi y0 = low_int(low_int(ay, by), cy), y1 = high_int(high_int(ay, by), cy);
    stays &= (x1 > left) & (x0 < right) & (y1 > low) & (y0 < high);
    if (pass->samples == 1) stays &= meets(x0, x1, 0) & meets(y0, y1, 0);
    else
      stays &= (meets(x0, x1, 96) & meets(y0, y1, 32)) | (meets(x0, x1, 224) & meets(y0, y1, 96)) |
               (meets(x0, x1, 32) & meets(y0, y1, 160)) | (meets(x0, x1, 160) & meets(y0, y1, 224));
    if (beyond) {
      const vi out = gather_int(w->beyond, a), outs = gather_int(w->beyond, b),
               outer = gather_int(w->beyond, c);
      stays = choose_int((out | outs | outer) != 0, (out & outs & outer) == 0, stays);
    }
    for (int left_over = bits(stays); left_over; left_over &= left_over - 1)
      kept[count++] = t + __builtin_ctz(left_over);
  }
  while (count && kept[count - 1] >= mesh->triangles) count--;
  return count;
}

typedef struct {
  int id, fx[3], fy[3];  /* turning left */
  float x, y, z, across, up, lowest, highest;  /* the depth at a place, and how it changes */
} Triangle;

/* What the three edges say at a pixel's corner, 0 or more inside, and how it changes. Left and
   bottom edges belong to a triangle, as in Mesa. 0 if the whole block is outside. */
INLINE int edges(const Triangle *t, int x, int y, int columns, int rows, int *at, int *by_x,
    int *by_y) {
  for (int i = 0; i < 3; i++) {
    const int j = (i + 1) % 3;
    const int dx = t->fx[j] - t->fx[i], dy = t->fy[j] - t->fy[i];
    const int own = dy < 0 || (dy == 0 && dx > 0);
    const int64_t here = (int64_t)dx * (y * SUBPIXELS - t->fy[i]) -
                         (int64_t)dy * (x * SUBPIXELS - t->fx[i]) - !own;
    const int64_t most = here + (dx > 0 ? (int64_t)dx * rows : 0) * SUBPIXELS -
                         (dy < 0 ? (int64_t)dy * columns : 0) * SUBPIXELS;
    if (most < 0) return 0;
    at[i] = here > 1 << 30 ? 1 << 30 : here;
    by_x[i] = -dy, by_y[i] = dx;
  }
  return 1;
}

/* The samples of a block that a triangle covers and is nearest in. */
static inline void draw_samples(const Pass *pass, const Triangle *t, int x0, int y0, int x1,
    int y1) {
  int at[3], by_x[3], by_y[3];
  x0 &= ~1;  /* vectors have two pixels */
  if (!edges(t, x0, y0, x1 + 1 - x0, y1 + 1 - y0, at, by_x, by_y)) return;
  vi row[3];
  for (int i = 0; i < 3; i++) row[i] = at[i] + by_x[i] * ACROSS + by_y[i] * UP;
  const vf x = to_float(ACROSS) * (1.f / SUBPIXELS) + (x0 - t->x);
  const vf y = to_float(UP) * (1.f / SUBPIXELS) + (y0 - t->y);
  vf depth_row = t->z + t->across * x + t->up * y;
  for (int line = y0; line <= y1; line++) {
    vi a = row[0], b = row[1], c = row[2];
    vf depth = depth_row;
    float *old = pass->depth + SAMPLES * (line * pass->width + x0);
    int *seen = pass->seen + SAMPLES * (line * pass->width + x0);
    for (int column = x0; column <= x1; column += 2, old += LANES, seen += LANES) {
      const vf before = read(old), here = low(high(depth, all(t->lowest)), all(t->highest));
      const vi nearer = ~((a | b | c) >> 31) & (here >= before);
      if (bits(nearer)) {
        write(old, choose(nearer, here, before));
        write_int(seen, choose_int(nearer, all_int(t->id), read_int(seen)));
      }
      a += 2 * SUBPIXELS * by_x[0], b += 2 * SUBPIXELS * by_x[1], c += 2 * SUBPIXELS * by_x[2];
      depth += 2 * t->across;
    }
    for (int i = 0; i < 3; i++) row[i] += SUBPIXELS * by_y[i];
    depth_row += t->up;
  }
}

enum { DEPTHS = (1 << 24) - 1 };  /* of a map of shadows, as whole numbers */

/* The same for a map of shadows, where only depths count and a pixel is one sample. */
static inline void draw_shadow(const Pass *pass, const Triangle *t, int x0, int y0, int x1,
    int y1) {
  int at[3], by_x[3], by_y[3];
  if (!edges(t, x0, y0, x1 - x0, y1 - y0, at, by_x, by_y)) return;
  vi row[3];
  for (int i = 0; i < 3; i++) row[i] = at[i] + SUBPIXELS * by_x[i] * COUNT;
  const float slope = fmaxf(fabsf(t->across), fabsf(t->up));
  const float aside = -1.5f * slope - 4.f / DEPTHS;  /* glPolygonOffset(-1.5, -4), as in MuJoCo */
  const vf x = to_float(COUNT) + (x0 + 0.5f - t->x);
  vf depth_row = t->z + aside + t->across * x + t->up * (y0 + 0.5f - t->y);
  for (int line = y0; line <= y1; line++) {
    int *old = pass->shadows + line * pass->width + x0;
    const vi inside = ~((row[0] | row[1] | row[2]) >> 31) & (COUNT <= x1 - x0);
    const vi depth = to_int(clamp(depth_row) * (float)DEPTHS + 0.5f) & inside;
    write_int(old, high_int(read_int(old), depth));
    for (int i = 0; i < 3; i++) row[i] += SUBPIXELS * by_y[i];
    depth_row += t->up;
  }
}

/* Draw a triangle with these corners: places in pixels, depths, and places in 1/256 pixel. */
static void draw_triangle(const Pass *pass, const float (*v)[3], const int (*f)[2], int id) {
  const float ux = v[1][0] - v[0][0], uy = v[1][1] - v[0][1], uz = v[1][2] - v[0][2];
  const float vx = v[2][0] - v[0][0], vy = v[2][1] - v[0][1], vz = v[2][2] - v[0][2];
  const int64_t area = (int64_t)(f[1][0] - f[0][0]) * (f[2][1] - f[0][1]) -
                       (int64_t)(f[2][0] - f[0][0]) * (f[1][1] - f[0][1]);
  if (!area || area * pass->faces < 0) return;
  const float each = 1 / (ux * vy - vx * uy);
  const int b = area > 0 ? 1 : 2, c = 3 - b;
  Triangle t = {.id = id, .fx = {f[0][0], f[b][0], f[c][0]}, .fy = {f[0][1], f[b][1], f[c][1]},
                .x = v[0][0], .y = v[0][1], .z = v[0][2], .across = (uz * vy - vz * uy) * each,
                .up = (ux * vz - vx * uz) * each,
                .lowest = fminf(fminf(v[0][2], v[1][2]), v[2][2]),
                .highest = fmaxf(fmaxf(v[0][2], v[1][2]), v[2][2])};
  const int least_x = smaller(smaller(t.fx[0], t.fx[1]), t.fx[2]) >> 8;
  const int least_y = smaller(smaller(t.fy[0], t.fy[1]), t.fy[2]) >> 8;
  const int most_x = larger(larger(t.fx[0], t.fx[1]), t.fx[2]) >> 8;
  const int most_y = larger(larger(t.fy[0], t.fy[1]), t.fy[2]) >> 8;
  const int x0 = larger(least_x, pass->left), x1 = smaller(most_x, pass->right);
  const int y0 = larger(least_y, pass->low), y1 = smaller(most_y, pass->high);
  for (int y = y0; y <= y1; y += BLOCK)
    for (int x = x0; x <= x1; x += BLOCK) {
      const int to_x = smaller(x + BLOCK - 1, x1), to_y = smaller(y + BLOCK - 1, y1);
      if (pass->samples == 1) draw_shadow(pass, &t, x, y, to_x, to_y);
      else draw_samples(pass, &t, x, y, to_x, to_y);
    }
}

/* Clip a triangle at the planes that it crosses, and draw what is left. */
static void draw_clipped(Work *w, const Pass *pass, const int *corners, int id) {
  enum { MOST = 3 + PLANES };
  float polygon[2][MOST][5];
  int count = 3, crossed = 0, now = 0;
  for (int i = 0; i < 3; i++) {
    const int v = corners[i];
    const float each[5] = {w->cx[v], w->cy[v], w->cz[v], w->cw[v], pass->cut ? w->cut[v] : 0};
    memcpy(polygon[0][i], each, sizeof each);
    crossed |= w->beyond[v];
  }
  for (int plane = 0; plane < PLANES && count; plane++) {
    if (!(crossed >> plane & 1)) continue;
    int made = 0;
    for (int i = 0; i < count; i++) {
      const float *here = polygon[now][i], *next = polygon[now][(i + 1) % count];
      const float a = distance(pass, plane, here), b = distance(pass, plane, next);
      if (a >= 0) memcpy(polygon[!now][made++], here, sizeof polygon[0][0]);
      if ((a >= 0) != (b >= 0) && made < MOST) {
        const float part = a / (a - b);
        float *corner = polygon[!now][made++];
        for (int k = 0; k < 5; k++) corner[k] = here[k] + part * (next[k] - here[k]);
      }
    }
    count = made, now = !now;
  }
  const float shift = pass->samples == 1 ? 0.5f : 0;
  float v[MOST][3];
  int f[MOST][2];
  for (int i = 0; i < count; i++) {
    const float *at = polygon[now][i];
    for (int k = 0; k < 3; k++) v[i][k] = at[k] / at[3];
    for (int k = 0; k < 2; k++) f[i][k] = lrintf((v[i][k] - shift) * SUBPIXELS);
  }
  for (int i = 2; i < count; i++) {
    const float part[3][3] = {{v[0][0], v[0][1], v[0][2]}, {v[i - 1][0], v[i - 1][1], v[i - 1][2]},
                              {v[i][0], v[i][1], v[i][2]}};
    const int fixed[3][2] = {{f[0][0], f[0][1]}, {f[i - 1][0], f[i - 1][1]}, {f[i][0], f[i][1]}};
    draw_triangle(pass, part, fixed, id);
  }
}

/* Draw one shape with a matrix. */
static void draw_shape(Work *w, const Picture *p, const Pass *pass, int number, const float *m) {
  const Mesh *mesh = p->mesh[number];
  const float *size = p->shape[number].size, thick = fmaxf(size[0], size[1]);
  const float long_one = size[2] + thick;
  if (misses(pass, m, mesh->reach * sqrtf(2 * thick * thick + long_one * long_one))) return;
  const int beyond = project(w, pass, m, w->start[number], padded(mesh->vertices));
  const int count = sift(w, pass, mesh, beyond), n = padded(mesh->triangles);
  for (int i = 0; i < count; i++) {
    const int t = w->kept[i], id = number * MOST_TRIANGLES + t;
    const int corners[3] = {mesh->corners[t], mesh->corners[n + t], mesh->corners[2 * n + t]};
    const int a = corners[0], b = corners[1], c = corners[2];
    if (beyond && (w->beyond[a] | w->beyond[b] | w->beyond[c])) {
      draw_clipped(w, pass, corners, id);
      continue;
    }
    const float v[3][3] = {{w->x[a], w->y[a], w->z[a]}, {w->x[b], w->y[b], w->z[b]},
                           {w->x[c], w->y[c], w->z[c]}};
    const int f[3][2] = {{w->fx[a], w->fy[a]}, {w->fx[b], w->fy[b]}, {w->fx[c], w->fy[c]}};
    draw_triangle(pass, v, f, id);
  }
}
#include "raster_textures.c"
#include "raster_colors.c"
#include "raster_scenes.c"
