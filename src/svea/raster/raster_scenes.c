/* Scenes: what `mjv_updateScene` left in memory, as shapes, lights and matrices. Part of raster.c.

   A matrix has its columns one after the other, and is computed with 53 bits: MuJoCo's pictures
   show the difference where edges meet samples. */

enum { PLANE = 0, CYLINDER = 5, BOX = 6, KINDS = 8 };  /* mjtGeom */
enum { SPOT = 0, DIRECTIONAL = 1 };          /* mjtLightType */

/* Where fields are in records, in bytes, and at last how long a record is. Versions of MuJoCo
   differ, so Python looks for them. */
typedef struct {
  int type, dataid, matid, texcoord, emission, specular, shininess, reflectance;
  int size, pos, mat, rgba, step;
} ShapeFields;
typedef struct {
  int type, castshadow, cutoff, exponent, pos, dir, attenuation, ambient, diffuse, specular, step;
} LightFields;
typedef struct {
  int orthographic, width, center, bottom, top, near, far, pos, forward, up, step;
} CameraFields;

typedef struct {
  const char *geoms, *lights, *cameras;  /* records; two cameras, of which the mean counts */
  const ShapeFields *geom_at;
  const LightFields *light_at;
  const CameraFields *camera_at;
  int geom_count, light_count, side, shadow_side, plane_count;
  const Mesh *kinds[KINDS];              /* none: not drawn here */
  const Mesh *plane;                     /* that is none of the model's */
  const Mesh *const *planes;             /* of the model */
  /* By material, and at last those of things that have none. */
  int materials;
  const Texture *const *textures;
  /* whether a texture can be drawn here, and is not stretched */
  const unsigned char *known, *uniform;
  const float *repeats;
  const Texture *sky;
  float shadow_clip, shadow_scale;
  unsigned char *out;
} Scene;

INLINE int whole_at(const char *record, int field) { return *(const int *)(record + field); }
INLINE float number_at(const char *record, int field) { return *(const float *)(record + field); }
INLINE const float *numbers_at(const char *record, int field) {
  return (const float *)(record + field);
}

/* Matrices ---------------------------------------------------------------------------------------
   */

static void multiply(const double *a, const double *b, double *made) {
  for (int c = 0; c < 4; c++)
    for (int r = 0; r < 4; r++) {
      double sum = 0;
      for (int k = 0; k < 4; k++) sum += a[4 * k + r] * b[4 * c + k];
      made[4 * c + r] = sum;
    }
}

static void cross(const double *a, const double *b, double *made) {
  for (int k = 0; k < 3; k++) made[k] = a[(k + 1) % 3] * b[(k + 2) % 3] - a[(k + 2) % 3] * b[(k +
      1) % 3];
}

static void unit(double *v) {
  const double each = 1 / sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  for (int k = 0; k < 3; k++) v[k] *= each;
}

/* From the world to an eye that looks along -z. */
static void look_at(const double *position, const double *forward, const double *up, double *made) {
  double front[3] = {forward[0], forward[1], forward[2]}, side[3], above[3];
  unit(front);
  cross(front, up, side), unit(side);
  cross(side, front, above), unit(above);
  memset(made, 0, 16 * sizeof *made);
  for (int k = 0; k < 3; k++) {
    made[4 * k] = side[k], made[4 * k + 1] = above[k], made[4 * k + 2] = -front[k];
    made[12] -= side[k] * position[k], made[13] -= above[k] * position[k];
    made[14] += front[k] * position[k];
  }
  made[15] = 1;
}

/* OpenGL's frustum, with depths from 1 (near) to 0 (far). */
static void perspective(double left, double right, double bottom, double top, double near,
                        double far, double *made) {
  memset(made, 0, 16 * sizeof *made);
  made[0] = 2 * near / (right - left), made[8] = (right + left) / (right - left);
  made[5] = 2 * near / (top - bottom), made[9] = (top + bottom) / (top - bottom);
  made[10] = 0.5 * (far + near) / (far - near) - 0.5, made[14] = far * near / (far - near);
  made[11] = -1;
}

/* OpenGL's parallel projection of a square, with the same depths. */
static void parallel(double half, double near, double far, double *made) {
  memset(made, 0, 16 * sizeof *made);
  made[0] = made[5] = 1 / half, made[10] = 1 / (far - near);
  made[14] = 0.5 * (far + near) / (far - near) + 0.5, made[15] = 1;
}

/* The world as a plane mirrors it. */
static void mirror_at(const float *position, const double *up, double *made) {
  double away = 0;
  memset(made, 0, 16 * sizeof *made);
  for (int k = 0; k < 3; k++) away += up[k] * position[k];
  for (int c = 0; c < 3; c++) {
    for (int r = 0; r < 3; r++) made[4 * c + r] = (c == r) - 2 * up[c] * up[r];
    made[12 + c] = 2 * up[c] * away;
  }
  made[15] = 1;
}

/* Views of the world, and of the mirrored world, of a picture. */
typedef struct {
  double head[3], eye[16], clip[16], near, far;
  double mirror[16], mirror_eye[16], mirror_clip[16], mirror_plane[4], light_clip[16];
  float reflectance;
} Views;

static double mean_at(const Scene *s, int field, int k) {
  const char *second = s->cameras + s->camera_at->step;
  return 0.5 * ((double)numbers_at(s->cameras, field)[k] + numbers_at(second, field)[k]);
}

static int find_camera(const Scene *s, Views *v) {
  const CameraFields *at = s->camera_at;
  for (int c = 0; c < 2; c++) {
    const char *record = s->cameras + c * at->step;
    if (whole_at(record, at->orthographic) || number_at(record, at->width) != 0) return 0;
  }
  double forward[3], up[3], frustum[16];
  for (int k = 0; k < 3; k++) {
    v->head[k] = mean_at(s, at->pos, k);
    forward[k] = mean_at(s, at->forward, k), up[k] = mean_at(s, at->up, k);
  }
  const double middle = mean_at(s, at->center, 0), bottom = mean_at(s, at->bottom, 0);
  const double top = mean_at(s, at->top, 0), half = 0.5 * (top - bottom);
  v->near = mean_at(s, at->near, 0), v->far = mean_at(s, at->far, 0);
  look_at(v->head, forward, up, v->eye);
  perspective(middle - half, middle + half, bottom, top, v->near, v->far, frustum);
  multiply(frustum, v->eye, v->clip);
  return 1;
}

/* What a light sees, for its map of shadows. */
static void find_shadows(const Scene *s, const char *light, Views *v) {
  const LightFields *at = s->light_at;
  const float *from = numbers_at(light, at->pos), *to = numbers_at(light, at->dir);
  const double position[3] = {from[0], from[1], from[2]}, along[3] = {to[0], to[1], to[2]};
  const double left[3] = {-1, 0, 0}, ahead[3] = {0, 1, 0};
  double up[3], eye[16], projection[16];
  cross(along, left, up);  /* some direction at a right angle, as MuJoCo chooses it */
  if (up[0] * up[0] + up[1] * up[1] + up[2] * up[2] <= 0.01) cross(along, ahead, up);
  unit(up);
  look_at(position, along, up, eye);
  if (whole_at(light, at->type) == DIRECTIONAL) parallel(s->shadow_clip, v->near, v->far,
      projection);
  else {
    const double degrees = fmin(2.0 * number_at(light, at->cutoff) * s->shadow_scale, 160);
    const double half = tan(degrees / 360 * M_PI) * v->near;
    perspective(-half, half, -half, half, v->near, v->far, projection);
  }
  multiply(projection, eye, v->light_clip);
}

/* Lights -----------------------------------------------------------------------------------------
   */

/* A light's position (or direction) and axis as an eye sees them. */
static void see_light(const double *eye, const double *position, const double *along, float cosine,
                      float *at, float *spot) {
  for (int r = 0; r < 4; r++) {
    double sum = 0, way = 0;
    for (int c = 0; c < 4; c++) sum += eye[4 * c + r] * position[c];
    for (int c = 0; c < 3; c++) way += eye[4 * c + r] * along[c];
    at[r] = sum, spot[r] = way;
  }
  spot[3] = cosine;
}

/* The record of the light that casts shadows (or the first), or NULL where MuJoCo has to draw. */
static const char *find_lights(const Scene *s, const Views *v, Light *lights, int write_them) {
  const LightFields *at = s->light_at;
  const char *casting = s->lights;
  int casts = 0;
  if (s->light_count < 1 || s->light_count > MOST_LIGHTS) return NULL;
  memset(lights, 0, MOST_LIGHTS * sizeof *lights);
  for (int l = 0; l < s->light_count; l++) {
    const char *record = s->lights + l * at->step;
    Light *light = &lights[l];
    const int type = whole_at(record, at->type), shadow = *(record + at->castshadow) != 0;
    const float *fading = numbers_at(record, at->attenuation), *to = numbers_at(record, at->dir);
    const float *from = numbers_at(record, at->pos);
    /* A light that does not fade would be divided by 0. */
    const int fades = fading[0] > 0 || fading[1] > 0 || fading[2] > 0;
    if (type != DIRECTIONAL && !(type == SPOT && fades)) return NULL;
    if (shadow && casts++) return NULL;
    if (shadow) casting = record;
    if (!write_them) continue;
    const double along[3] = {to[0], to[1], to[2]};
    const float cutoff = type == SPOT ? number_at(record, at->cutoff) : 180;
    double position[4] = {-to[0], -to[1], -to[2], 0};
    if (type == SPOT) {
      for (int k = 0; k < 3; k++) position[k] = from[k];
      position[3] = 1;
    }
    const float cosine = cos(cutoff * M_PI / 180);
    see_light(v->eye, position, along, cosine, light->position, light->spot);
    see_light(v->mirror_eye, position, along, cosine, light->mirror_position, light->mirror_spot);
    for (int k = 0; k < 3; k++) {
      light->ambient[k] = numbers_at(record, at->ambient)[k];
      light->diffuse[k] = numbers_at(record, at->diffuse)[k];
      light->specular[k] = numbers_at(record, at->specular)[k];
      light->fading[k] = fading[k];
    }
    light->fading[3] = number_at(record, at->exponent);
    light->kind[0] = 1, light->kind[1] = shadow, light->kind[2] = cutoff;
  }
  return casting;
}

/* Shapes -----------------------------------------------------------------------------------------
   */

INLINE int material_of(const Scene *s, const char *record) {
  const int number = whole_at(record, s->geom_at->matid);
  return number >= 0 && number < s->materials ? number : s->materials;
}

INLINE int is_translucent(const Scene *s, const char *record) {
  return numbers_at(record, s->geom_at->rgba)[3] < 0.995f;
}

/* What a shape is drawn as; NULL if MuJoCo has to draw it. */
static const Mesh *mesh_of(const Scene *s, const Views *v, const char *record) {
  const ShapeFields *at = s->geom_at;
  const int type = whole_at(record, at->type), number = whole_at(record, at->dataid);
  const int material = material_of(s, record);
  const float *size = numbers_at(record, at->size), shininess = number_at(record, at->shininess);
  if (type < 0 || type >= KINDS || whole_at(record, at->texcoord) || !s->known[material])
    return NULL;
  /* 0 to the power of 0 is whatever a driver makes of it. */
  if (shininess <= 0 && number_at(record, at->specular) > 0) return NULL;
  if (type != PLANE) {
    const int is_mirror = type == BOX && number_at(record, at->reflectance) > 0;
    return is_mirror ? NULL : s->kinds[type];
  }
  /* A plane without end moves with the camera and has haze at its horizon. */
  if (size[0] <= 0 || size[1] <= 0 || number >= s->plane_count) return NULL;
  const float *position = numbers_at(record, at->pos), *m = numbers_at(record, at->mat);
  float above = 0;
  for (int k = 0; k < 3; k++) above += ((float)v->head[k] - position[k]) * m[3 * k + 2];
  if (above < 0) return NULL;
  return number < 0 ? s->plane : s->planes[number];
}

/* Each picture's mirror is the first opaque plane that reflects; -> its number, or -1. */
static int find_mirror(const Scene *s, Views *v) {
  const ShapeFields *at = s->geom_at;
  int found = NOTHING;
  memset(v->mirror, 0, sizeof v->mirror);
  for (int k = 0; k < 4; k++) v->mirror[5 * k] = 1, v->mirror_plane[k] = k == 3 ? -1 : 0;
  for (int g = 0; g < s->geom_count && found == NOTHING; g++) {
    const char *record = s->geoms + (size_t)g * at->step;
    v->reflectance = number_at(record, at->reflectance);
    if (whole_at(record, at->type) != PLANE || v->reflectance <= 0 || is_translucent(s, record))
      continue;
    const float *position = numbers_at(record, at->pos), *m = numbers_at(record, at->mat);
    const double up[3] = {m[2], m[5], m[8]};
    double plane[4] = {-up[0], -up[1], -up[2], 0};
    for (int k = 0; k < 3; k++) plane[3] += up[k] * position[k];
    mirror_at(position, up, v->mirror);
    for (int c = 0; c < 4; c++) {  /* the plane, in the world before it is mirrored */
      v->mirror_plane[c] = 0;
      for (int k = 0; k < 4; k++) v->mirror_plane[c] += plane[k] * v->mirror[4 * c + k];
    }
    found = g;
  }
  if (found == NOTHING) v->reflectance = 0;
  multiply(v->eye, v->mirror, v->mirror_eye);
  multiply(v->clip, v->mirror, v->mirror_clip);
  return found;
}

static void seen_from(const double *view, const double *place, float *made) {
  double product[16];
  multiply(view, place, product);
  for (int i = 0; i < 16; i++) made[i] = product[i];
}

/* Write what is drawn of a shape. */
static void write_shape(const Scene *s, const Views *v, const char *record, Shape *made) {
  const ShapeFields *at = s->geom_at;
  const float *m = numbers_at(record, at->mat), *position = numbers_at(record, at->pos);
  const float *size = numbers_at(record, at->size);
  const int material = material_of(s, record), is_plane = whole_at(record, at->type) == PLANE;
  const int of_model = whole_at(record, at->dataid) >= 0;
  const double place[16] = {m[0], m[3], m[6], 0, m[1], m[4], m[7], 0, m[2], m[5], m[8], 0,
                            position[0], position[1], position[2], 1};
  seen_from(v->eye, place, made->eye), seen_from(v->clip, place, made->clip);
  seen_from(v->mirror_eye, place, made->mirror_eye), seen_from(v->mirror_clip, place,
      made->mirror_clip);
  seen_from(v->light_clip, place, made->light_clip);
  for (int c = 0; c < 4; c++) {
    double sum = 0;
    for (int k = 0; k < 4; k++) sum += v->mirror_plane[k] * place[4 * c + k];
    made->mirror_plane[c] = sum;
  }
  for (int k = 0; k < 3; k++) made->size[k] = size[k];
  if (is_plane) made->size[2] = 1;
  if (is_plane && of_model) made->size[0] = made->size[1] = 1;  /* its grid has its size */
  memcpy(made->color, numbers_at(record, at->rgba), sizeof made->color);
  made->material[0] = number_at(record, at->emission), made->material[1] = number_at(record,
      at->specular);
  made->material[2] = 128 * number_at(record, at->shininess), made->material[3] = v->reflectance;
  for (int k = 0; k < 2; k++) {
    /* How often the texture repeats on the whole shape, and within two units of its places. */
    const float repeats = s->repeats[2 * material + k];
    const float whole = s->uniform[material] && size[k] > 0 ? repeats * size[k] : repeats;
    made->texture[k] = of_model && size[k] > 0 ? whole / size[k] : whole;
    if (k) made->texture[3] = 0.5f * whole;
    else made->size[3] = 0.5f * whole;
  }
}

/* The cylinder that MuJoCo paints the sky on, around the camera. */
static void find_sky(const Views *v, float *made) {
  double place[16] = {0};
  for (int k = 0; k < 3; k++) place[5 * k] = 0.7 * v->far, place[12 + k] = v->head[k];
  place[15] = 1;
  seen_from(v->clip, place, made);
}

enum { DRAWN = 0, MUJOCOS = 1, NO_MEMORY = 2 };

/* Draw a scene's picture, or say that MuJoCo has to. */
int raster_draw(Work *w, const Scene *s) {
  Views v;
  Light lights[MOST_LIGHTS];
  const int count = s->geom_count;
  const char *casting = find_lights(s, &v, lights, 0);
  if (!count || count >= MOST_SHAPES || s->side > MOST_SIDE || s->shadow_side > MOST_SIDE ||
      !casting ||
      !find_camera(s, &v))
    return MUJOCOS;
  if (!make_shapes(w, count + 1)) return NO_MEMORY;
  const int mirror = find_mirror(s, &v);
  int translucent = NOTHING;
  find_shadows(s, casting, &v);
  find_lights(s, &v, lights, 1);
  for (int g = 0; g < count; g++) {
    /* The mirror is drawn first, as by MuJoCo: what touches it is seen. */
    const int number = mirror <= 0 || g > mirror ? g : g ? g - 1 : mirror;
    const char *record = s->geoms + (size_t)number * s->geom_at->step;
    w->mesh[g] = mesh_of(s, &v, record);
    if (!w->mesh[g]) return MUJOCOS;
    if (is_translucent(s, record)) {  /* in a mirror, or next to one more, it would be sorted */
      if (mirror >= 0 || translucent >= 0) return MUJOCOS;
      translucent = g;
    }
    w->texture[g] = s->textures[material_of(s, record)];
    write_shape(s, &v, record, &w->shape[g]);
  }
  w->mesh[count] = s->kinds[CYLINDER];
  w->shape[count] = (Shape){.size = {1, 1, 1}};
  find_sky(&v, w->shape[count].clip);
  const Picture picture = {.side = s->side, .shadow_side = s->shadow_side, .shapes = count,
                           .mirror = mirror < 0 ? NOTHING : 0, .translucent = translucent,
                           .backdrop = s->sky && translucent >= 0 ? count : NOTHING,
                           .shape = w->shape, .mesh = w->mesh, .texture = w->texture,
                               .light = lights,
                           .sky = s->sky, .sky_clip = w->shape[count].clip, .out = s->out};
  return draw_picture(w, &picture) ? DRAWN : NO_MEMORY;
}
