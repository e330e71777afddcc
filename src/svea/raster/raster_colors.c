/* Colours: light at vertices, and what is seen of them in pixels. Part of raster.c. */

/* What is coloured: the world, the mirrored world, or the shape that one can see through. */
enum { WORLD, MIRRORED, TRANSLUCENT };

/* Powers of numbers from 0 to 1, to some 1e-5. */
INLINE vf power(vf base, float exponent) {
  const vi whole = ((vi)base >> 23) - 127;
  const vf m = (vf)(((vi)base & 0x7fffff) | 0x3f800000);
  /* The logarithm by a series in (m - c) / (m + c), c = sqrt 2. */
  const vf q = (m - 1.41421356f) / (m + 1.41421356f), q2 = q * q;
  const vf log = q * (2.88539008f + q2 * (0.961796694f + q2 * (0.577078016f + q2 * 0.412198583f)));
  const vf x = high((to_float(whole) + 0.5f + log) * exponent, all(-126));
  const vi n = floor_int(x);
  const vf f = x - to_float(n);
  const vf two = 1.f + f * (0.693147181f + f * (0.240226507f + f * (0.0555041087f +
                 f * (0.00961812911f + f * (0.00133335581f + f * 0.000154035304f)))));
  return choose(base > 0.f, two * (vf)((n + 127) << 23), all(exponent == 0));
}

INLINE vf dot(const vf *a, const vf *b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

INLINE void normalise(vf *v) {
  const vf each = 1.f / root(dot(v, v));
  for (int k = 0; k < 3; k++) v[k] *= each;
}

/* OpenGL's light of one source at eight vertices, added to a sum. */
INLINE void add_light(const Light *light, const Shape *shape, const float *base, const vf *eye,
                      const vf *up, int mirrored, vf *sum) {
  const float *position = mirrored ? light->mirror_position : light->position;
  const float *spot = mirrored ? light->mirror_spot : light->spot, *fading = light->fading;
  vf way[3], strength = all(1), half[3], back[3];
  for (int k = 0; k < 3; k++) way[k] = position[k] - eye[k] * position[3], back[k] = -eye[k];
  const vf far = root(dot(way, way));
  for (int k = 0; k < 3; k++) way[k] /= far;
  if (position[3] != 0) {
    strength = 1.f / (fading[0] + far * (fading[1] + far * fading[2]));
    if (light->kind[2] < 180) {
      const float each = 1 / sqrtf(spot[0] * spot[0] + spot[1] * spot[1] + spot[2] * spot[2]);
      const vf along = -(way[0] * spot[0] + way[1] * spot[1] + way[2] * spot[2]) * each;
      strength *= choose(along >= spot[3], power(along, fading[3]), all(0));
    }
  }
  const vf facing = high(dot(up, way), all(0));
  normalise(back);
  for (int k = 0; k < 3; k++) half[k] = way[k] + back[k];
  normalise(half);
  vf shine = power(high(dot(up, half), all(0)), shape->material[2]);
  shine = choose(facing > 0.f, shine, all(0)) * shape->material[1];
  for (int k = 0; k < 3; k++)
    sum[k] += strength * (light->ambient[k] * base[k] + facing * (light->diffuse[k] * base[k]) +
                          shine * light->specular[k]);
}

/* Light at vertices of a shape, whose numbers in the picture are given. Where the world is drawn,
   that of the source that casts shadows is kept apart. */
static void light_vertices(Work *w, const Picture *p, int number, const int *list, int count,
                           int layer) {
  const Shape *shape = &p->shape[number];
  const Mesh *mesh = p->mesh[number];
  const int n = padded(mesh->vertices), mirrored = layer == MIRRORED;
  const float *m = mirrored ? shape->mirror_eye : shape->eye, *size = shape->size;
  const float round = 0.5f * (size[0] + size[1]);
  float base[3];
  for (int k = 0; k < 3; k++) base[k] = shape->color[k] * (mirrored ? shape->material[3] : 1);
  for (int i = 0; i < count; i += LANES) {
    const vi at = read_int(list + i), own = at - w->start[number];
    const vf x = gather(w->place[0], at), y = gather(w->place[1], at), z = gather(w->place[2], at);
    const vf end = gather(mesh->rows + 6 * n, own);
    const vf a = gather(mesh->rows + 3 * n, own) / size[0];
    const vf b = gather(mesh->rows + 4 * n, own) / size[1];
    const vf c = gather(mesh->rows + 5 * n, own) / choose(end == 0.f, all(size[2]), all(round));
    vf eye[3], up[3], plain[3], shaded[3];
    for (int k = 0; k < 3; k++) {
      eye[k] = m[k] * x + m[4 + k] * y + m[8 + k] * z + m[12 + k];
      up[k] = m[k] * a + m[4 + k] * b + m[8 + k] * c;
      plain[k] = all(base[k] * shape->material[0]), shaded[k] = all(0);
    }
    normalise(up);
    for (int l = 0; l < MOST_LIGHTS; l++) {
      const Light *light = &p->light[l];
      if (light->kind[0] > 0.5f)
        add_light(light, shape, base, eye, up, mirrored,
                  layer == WORLD && light->kind[1] > 0.5f ? shaded : plain);
    }
    for (int k = 0; k < 3; k++) {
      plain[k] = clamp(plain[k]), shaded[k] = clamp(shaded[k]);
      for (int lane = 0; lane < smaller(LANES, count - i); lane++) {
        w->plain[k][at[lane]] = plain[k][lane];
        w->shaded[k][at[lane]] = shaded[k][lane];
      }
    }
  }
}

/* Triangles in pixels ----------------------------------------------------------------------------
   */

/* Where eight triangles are: corners on the shape, and in pixels times w with w. */
typedef struct { vi corner[3]; vf place[3][3], x[3], y[3], w[3]; } Corners;

INLINE void find_corners(const Work *w, const Picture *p, int number, const float *m, vi triangle,
                         Corners *c) {
  const Mesh *mesh = p->mesh[number];
  const int n = padded(mesh->triangles);
  const float half = 0.5f * p->side;
  for (int i = 0; i < 3; i++) {
    c->corner[i] = gather_int(mesh->corners + i * n, triangle) + w->start[number];
    for (int k = 0; k < 3; k++) c->place[i][k] = gather(w->place[k], c->corner[i]);
    const vf *at = c->place[i];
    c->w[i] = m[3] * at[0] + m[7] * at[1] + m[11] * at[2] + m[15];
    c->x[i] = (m[0] * at[0] + m[4] * at[1] + m[8] * at[2] + m[12] + c->w[i]) * half;
    c->y[i] = (m[1] * at[0] + m[5] * at[1] + m[9] * at[2] + m[13] + c->w[i]) * half;
  }
}

/* How much each corner counts at a place in the picture, also outside of the triangle. */
INLINE void weights(const Corners *c, vf x, vf y, vf *made) {
  vf dx[3], dy[3];
  for (int i = 0; i < 3; i++) dx[i] = c->x[i] - x * c->w[i], dy[i] = c->y[i] - y * c->w[i];
  for (int i = 0; i < 3; i++) {
    const int j = (i + 1) % 3, k = (i + 2) % 3;
    made[i] = dx[j] * dy[k] - dx[k] * dy[j];
  }
  const vf each = 1.f / (made[0] + made[1] + made[2]);
  for (int i = 0; i < 3; i++) made[i] *= each;
}

INLINE vf between(const vf *weight, vf a, vf b, vf c) {
  return weight[0] * a + weight[1] * b + weight[2] * c;
}

INLINE vf light_between(const float *from, const Corners *c, const vf *weight) {
  const vi *at = c->corner;
  return between(weight, gather(from, at[0]), gather(from, at[1]), gather(from, at[2]));
}

/* Whether the light that casts shadows reaches places on a shape. */
INLINE vi is_lit(const Work *w, const Picture *p, const Shape *shape, const vf *place) {
  const float *m = shape->light_clip;
  vf at[4];
  for (int k = 0; k < 4; k++)
    at[k] = m[k] * place[0] + m[4 + k] * place[1] + m[8 + k] * place[2] + m[12 + k];
  const vf each = 1.f / at[3], side = all((float)p->shadow_side);
  const vf x = (at[0] * each * 0.5f + 0.5f) * side, y = (at[1] * each * 0.5f + 0.5f) * side;
  const vf most = all((float)(p->shadow_side - 1));
  const vi column = to_int(high(low(x, most), all(0))), line = to_int(high(low(y, most), all(0)));
  const vi stored = gather_int(w->shadows, line * p->shadow_side + column);
  return clamp(at[2] * each) >= to_float(stored) * (1.f / DEPTHS);
}

/* A texture's place between corners whose places on a shape of some size are given. */
INLINE void texture_place(const Shape *shape, const float *size, const vf (*at)[3],
                          const vf *weight, vf *u, vf *v) {
  const vf x = between(weight, at[0][0], at[0][1], at[0][2]) / size[0];
  const vf y = between(weight, at[1][0], at[1][1], at[1][2]) / size[1];
  *u = 0.5f * shape->texture[0] * x + shape->size[3];
  *v = -0.5f * shape->texture[1] * y + shape->texture[3];
}

/* The texture's colours from 0 to 1 where eight fragments are. */
static Color surface(const Picture *p, int number, const Corners *c, vi triangle, vf x, vf y,
                     const vf *weight) {
  static const float one[2] = {1, 1};
  const Shape *shape = &p->shape[number];
  const Mesh *mesh = p->mesh[number];
  const float *own = mesh->places, *size = own ? one : shape->size;
  const int n = padded(mesh->triangles);
  vf u[3], v[3], at_u, at_v, near_one[3], at[2][3];
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < 3; i++)
      at[k][i] = own ? gather(own + (3 * k + i) * n, triangle) : c->place[i][k];
  const vf even_x = to_float(to_int(x) & ~1) + 0.5f, even_y = to_float(to_int(y) & ~1) + 0.5f;
  for (int i = 0; i < 3; i++) {
    weights(c, even_x + (float)(i == 1), even_y + (float)(i == 2), near_one);
    texture_place(shape, size, at, near_one, &u[i], &v[i]);
  }
  texture_place(shape, size, at, weight, &at_u, &at_v);
  Color made = flat_color(p->texture[number], u, v, at_u, at_v);
  made.r *= 1.f / 255, made.g *= 1.f / 255, made.b *= 1.f / 255;
  return made;
}

INLINE vi rounded(vf color) { return to_int(clamp(color) * 255.f + 0.5f); }

/* Colours of eight fragments of one shape, as bytes. */
static vi fragment_colors(const Work *w, const Picture *p, int number, vi pixel, vi triangle,
                          int layer, int width) {
  const Shape *shape = &p->shape[number];
  const vi line = pixel / width;
  const vf x = to_float(pixel - line * width), y = to_float(line);
  Corners c;
  vf weight[3], place[3];
  find_corners(w, p, number, layer == MIRRORED ? shape->mirror_clip : shape->clip, triangle, &c);
  weights(&c, x + 0.5f, y + 0.5f, weight);
  Color texture = {all(1), all(1), all(1)};
  if (p->texture[number]) texture = surface(p, number, &c, triangle, x, y, weight);
  const vf by[3] = {texture.r, texture.g, texture.b};
  vi lit = {}, made = {};
  if (layer == WORLD) {
    for (int k = 0; k < 3; k++)
      place[k] = between(weight, c.place[0][k], c.place[1][k], c.place[2][k]);
    lit = is_lit(w, p, shape, place);
  }
  for (int k = 0; k < 3; k++) {
    const float *from = w->plain[k];
    const vf plain = light_between(from, &c, weight);
    vi sum = rounded(plain * by[k]);
    if (layer == WORLD) {
      from = w->shaded[k];
      const vf shaded = light_between(from, &c, weight);
      sum = low_int(sum + (rounded(shaded * by[k]) & lit), all_int(255));
    }
    made |= sum << 8 * k;
  }
  return made;
}

/* From samples to a picture ----------------------------------------------------------------------
   */

/* Which triangles are seen in which samples of pixels; -> how many fragments. */
static int find_fragments(Work *w, const Picture *p, int width) {
  int count = 0;
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < p->side; x++) {
      const int pixel = y * width + x, *id = w->seen + SAMPLES * pixel;
      if (id[0] == id[1] && id[1] == id[2] && id[2] == id[3]) {
        if (id[0] != NOTHING) w->fragments[count++] = (Fragment){pixel, id[0], 15};
        continue;
      }
      for (int s = 0, done = 0; s < SAMPLES; s++) {
        if (id[s] == NOTHING || done >> s & 1) continue;
        int same = 0;
        for (int other = s; other < SAMPLES; other++) same |= (id[other] == id[s]) << other;
        done |= same;
        w->fragments[count++] = (Fragment){pixel, id[s], same};
      }
    }
  return count;
}

/* Put fragments in the order of their shapes; `first` has where each shape's begin. */
static void sort_fragments(Work *w, const Picture *p, int count, int *first) {
  int next[MOST_SHAPES + 1] = {0};
  for (int i = 0; i < count; i++) next[w->fragments[i].id / MOST_TRIANGLES + 1]++;
  for (int s = 0; s < p->shapes; s++) next[s + 1] += next[s];
  memcpy(first, next, (p->shapes + 1) * sizeof *first);
  for (int i = 0; i < count; i++)
    w->sorted[next[w->fragments[i].id / MOST_TRIANGLES]++] = w->fragments[i];
}

/* Light the vertices that fragments of a shape need. */
static void light_fragments(Work *w, const Picture *p, int number, const Fragment *f, int count,
                            int layer) {
  const Mesh *mesh = p->mesh[number];
  const int n = padded(mesh->triangles), start = w->start[number];
  int wanted = 0;
  memset(w->wanted, 0, mesh->vertices);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < 3; k++) {
      const int v = mesh->corners[k * n + f[i].id % MOST_TRIANGLES];
      if (!w->wanted[v]) w->wanted[v] = 1, w->lit[wanted++] = start + v;
    }
  for (int i = wanted; i < padded(wanted); i++) w->lit[i] = start;
  light_vertices(w, p, number, w->lit, wanted, layer);
}

/* Two colours' sum, each channel at most 255. */
INLINE int added(int a, int b) {
  int made = 0;
  for (int k = 0; k < 24; k += 8) made |= smaller((a >> k & 255) + (b >> k & 255), 255) << k;
  return made;
}

/* What one can see through over a colour: MuJoCo draws it twice. */
INLINE int covered(int below, int above, float part) {
  int made = 0;
  for (int k = 0; k < 24; k += 8) {
    const int old = below >> k & 255, own = above >> k & 255;
    const int once = old + part * (own - old) + 0.5f;
    made |= (int)(once + part * (own - once) + 0.5f) << k;
  }
  return made;
}

/* Colour the samples of all fragments; those of the mirrored world are added to the mirror's. */
static void color_fragments(Work *w, const Picture *p, int layer, int width) {
  static __thread int first[MOST_SHAPES + 1];
  sort_fragments(w, p, find_fragments(w, p, width), first);
  for (int number = 0; number < p->shapes; number++) {
    const Fragment *f = w->sorted + first[number];
    const int count = first[number + 1] - first[number];
    const float part = p->shape[number].color[3];
    if (!count) continue;
    light_fragments(w, p, number, f, count, layer);
    for (int i = 0; i < count; i += LANES) {
      vi pixel, triangle;
      const int here = smaller(LANES, count - i);
      for (int k = 0; k < LANES; k++) {
        const Fragment *one = &f[i + smaller(k, here - 1)];
        pixel[k] = one->pixel, triangle[k] = one->id % MOST_TRIANGLES;
      }
      const vi colors = fragment_colors(w, p, number, pixel, triangle, layer, width);
      for (int k = 0; k < here; k++) {
        int *to = w->color + SAMPLES * f[i + k].pixel;
        for (int s = 0; s < SAMPLES; s++)
          if (f[i + k].samples >> s & 1)
            to[s] = layer == WORLD ? colors[k] : layer == MIRRORED ? added(to[s], colors[k])
                                               : covered(to[s], colors[k], part);
      }
    }
  }
}

/* The direction in the sky that is seen at a picture's corner, and how it changes from pixel to
   pixel; a cube has its second axis up. */
static void find_directions(const Picture *p, float *corner, float *right, float *above) {
  const float *m = p->sky_clip, step = 2.f / p->side;
  float row[3][3], way = 0;
  for (int k = 0; k < 3; k++) row[0][k] = m[4 * k], row[1][k] = m[4 * k + 1],
      row[2][k] = m[4 * k + 3];
  float made[3][3];
  for (int k = 0; k < 3; k++) {  /* straight ahead, across and up, in the world */
    const int i = (k + 1) % 3, j = (k + 2) % 3;
    made[0][k] = row[0][i] * row[1][j] - row[0][j] * row[1][i];
    made[1][k] = row[1][i] * row[2][j] - row[1][j] * row[2][i];
    made[2][k] = row[2][i] * row[0][j] - row[2][j] * row[0][i];
    way += made[0][k] * row[2][k];
  }
  static const int from[3] = {0, 2, 1}, sign[3] = {1, 1, -1};
  for (int k = 0; k < 3; k++) {
    const float ahead = way < 0 ? -sign[k] : sign[k];
    right[k] = made[1][from[k]] * ahead * step, above[k] = made[2][from[k]] * ahead * step;
    corner[k] = (made[0][from[k]] - made[1][from[k]] - made[2][from[k]]) * ahead;
  }
}

/* Colour the samples where nothing is with the sky, which is infinitely far away. */
static void color_sky(Work *w, const Picture *p, int width) {
  float corner[3], right[3], above[3];
  find_directions(p, corner, right, above);
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < p->side; x += LANES) {
      int any = 0;
      const int here = smaller(LANES, p->side - x), *seen = w->seen + SAMPLES * (y * width + x);
      for (int i = 0; i < SAMPLES * here; i++) any |= seen[i] == NOTHING;
      if (!any) continue;
      vf at[3];
      for (int k = 0; k < 3; k++)
        at[k] = corner[k] + (to_float(COUNT + x) + 0.5f) * right[k] + (y + 0.5f) * above[k];
      const Color sky = cube_color(p->sky, at, right, above);
      const vi color = nearest(sky.r) | nearest(sky.g) << 8 | nearest(sky.b) << 16;
      for (int i = 0; i < SAMPLES * here; i++)
        if (seen[i] == NOTHING) w->color[SAMPLES * (y * width + x) + i] = color[i / SAMPLES];
    }
}

/* The mean of each pixel's samples. */
static void resolve(const Work *w, const Picture *p, int width) {
  unsigned char *out = p->out;
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < p->side; x++, out += 3) {
      const int *c = w->color + SAMPLES * (y * width + x);
      int both = 0, green = 0;
      for (int s = 0; s < SAMPLES; s++) both += c[s] & 0xff00ff, green += c[s] >> 8 & 255;
      out[0] = ((both & 0xffff) + 2) >> 2, out[1] = (green + 2) >> 2, out[2] = ((both >> 16) + 2)
          >> 2;
    }
}

/* Passes -----------------------------------------------------------------------------------------
   */

static void draw_shadows(Work *w, const Picture *p) {
  /* A pixel is left free around the map, so that nothing outside of it is in a shadow. */
  Pass pass = {.from = 1, .side = p->shadow_side - 2, .samples = 1, .shadows = w->shadows,
               .width = p->shadow_side, .low = 1, .high = p->shadow_side - 2, .left = 1,
               .right = p->shadow_side - 2};
  memset(w->shadows, 0, sizeof(int) * p->shadow_side * p->shadow_side);
  for (int s = 0; s < p->shapes; s++) {
    /* MuJoCo draws both sides of everything; what is closed hides its own far side. */
    pass.faces = p->mesh[s]->closed;
    draw_shape(w, p, &pass, s, p->shape[s].light_clip);
  }
}

/* Let the mirrored world be drawn where the mirror is seen only; 0 if it is not. */
static int open_mirror(Work *w, const Picture *p, Pass *pass) {
  pass->low = pass->left = p->side, pass->high = pass->right = 0;
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < pass->width; x++) {
      const int at = SAMPLES * (y * pass->width + x);
      int any = 0;
      for (int s = at; s < at + SAMPLES; s++) {
        const int is_mirror = w->seen[s] != NOTHING && w->seen[s] / MOST_TRIANGLES == p->mirror;
        w->depth[s] = is_mirror ? 0 : 2;  /* nearer than anything */
        w->seen[s] = NOTHING, any |= is_mirror;
      }
      if (!any) continue;
      pass->low = smaller(pass->low, y), pass->high = larger(pass->high, y);
      pass->left = smaller(pass->left, x), pass->right = larger(pass->right, x);
    }
  pass->right = smaller(pass->right, p->side - 1);
  return pass->low <= pass->high;
}

static void draw_mirrored(Work *w, const Picture *p, Pass pass) {
  if (!open_mirror(w, p, &pass)) return;
  pass.faces = -1;
  for (int s = 0; s < p->shapes; s++) {
    if (s == p->mirror) continue;
    pass.cut = p->shape[s].mirror_plane;
    draw_shape(w, p, &pass, s, p->shape[s].mirror_clip);
  }
  color_fragments(w, p, MIRRORED, pass.width);
}

/* Draw what one can see through over all else. The sky hides what is behind it, as in MuJoCo, where
   it is the inside of a cylinder. */
static void draw_translucent(Work *w, const Picture *p, Pass pass) {
  pass.faces = -1;
  if (p->backdrop >= 0) draw_shape(w, p, &pass, p->backdrop, p->shape[p->backdrop].clip);
  memset(w->seen, 255, sizeof(int) * SAMPLES * pass.width * p->side);
  pass.faces = 1;
  draw_shape(w, p, &pass, p->translucent, p->shape[p->translucent].clip);
  color_fragments(w, p, TRANSLUCENT, pass.width);
}

/* Draw a picture; 0 without memory. */
static int draw_picture(Work *w, const Picture *p) {
  const int width = (p->side + 1) & ~1;
  const int shapes = p->shapes + (p->backdrop >= 0);
  int vertices = 0, triangles = 0, casts = 0;
  for (int s = 0; s < shapes; s++) {
    w->start[s] = vertices;
    vertices += padded(p->mesh[s]->vertices);
    triangles = larger(triangles, padded(p->mesh[s]->triangles));
  }
  if (!make_room(w, vertices, triangles, SAMPLES * width * p->side,
      p->shadow_side * p->shadow_side))
    return 0;
  for (int s = 0, v = 0; s < shapes; v += padded(p->mesh[s++]->vertices)) {
    w->start[s] = v;
    place_vertices(w, &p->shape[s], p->mesh[s], v);
  }
  for (int l = 0; l < MOST_LIGHTS; l++) casts |= p->light[l].kind[0] > 0.5f &&
      p->light[l].kind[1] > 0.5f;
  if (casts) draw_shadows(w, p);
  const Pass pass = {.side = p->side, .samples = SAMPLES, .faces = 1, .depth = w->depth,
      .seen = w->seen,
                     .width = width, .high = p->side - 1, .right = p->side - 1};
  memset(w->depth, 0, sizeof(float) * SAMPLES * width * p->side);
  memset(w->seen, 255, sizeof(int) * SAMPLES * width * p->side);
  memset(w->color, 0, sizeof(int) * SAMPLES * width * p->side);
  for (int s = 0; s < p->shapes; s++)
    if (s != p->translucent) draw_shape(w, p, &pass, s, p->shape[s].clip);
  color_fragments(w, p, WORLD, width);
  if (p->sky) color_sky(w, p, width);
  if (p->mirror >= 0) draw_mirrored(w, p, pass);
  if (p->translucent >= 0) draw_translucent(w, p, pass);
  resolve(w, p, width);
  return 1;
}
