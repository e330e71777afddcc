"""The program that draws layers: OpenGL's fixed light and textures, as MuJoCo uses them."""

from __future__ import annotations

from svea.envs.rendering.scenes import MOST_LIGHTS

SHADOWS, OUTLINE, MIRRORED, LIT, SKY = range(5)
"""Passes: lights' maps of shadows, mirrors' outlines, the mirrored world, the world, and the sky.

MuJoCo draws the world twice, without and with the light that casts shadows, and adds the second to
the first, rounded to 8 bits each. Here one pass adds the two."""

INTERPOLATIONS = ("", "centroid")
"""Where light is taken from in a pixel that a shape covers in part: from its middle, as in Mesa, or
from where it is covered, as in NVIDIA's driver. OpenGL leaves that open for fixed light."""

SHAPE_FLOATS = 5 * 16 + 5 * 4
LIGHT_FLOATS = 9 * 4

_DATA = f"""
#version 450 compatibility
#extension GL_ARB_shader_viewport_layer_array : enable
#extension GL_AMD_vertex_shader_layer : enable

struct Shape {{
    mat4 eye, clip, mirror_eye, mirror_clip, light_clip;
    vec4 mirror_plane, size, color, material, texture;
}};
struct Light {{
    vec4 position, spot, mirror_position, mirror_spot, ambient, diffuse, specular, fading, kind;
}};
layout(std430, binding = 0) readonly buffer Shapes {{ Shape shapes[]; }};
layout(std430, binding = 1) readonly buffer Lights {{ Light lights[]; }};
layout(location = 0) uniform int pass;
layout(location = 1) uniform int first;
const int SHADOWS = {SHADOWS}, OUTLINE = {OUTLINE}, MIRRORED = {MIRRORED}, LIT = {LIT}, SKY = {SKY};
"""

VERTEX = (
    _DATA
    + """
layout(location = 0) in vec3 at;
layout(location = 1) in vec3 normal;
layout(location = 2) in float end;
out float gl_ClipDistance[1];
out vec3 plain, shaded;
out vec3 texture_place;
out vec4 shadow_place;
flat out int layer;

// OpenGL's light at a vertex: that of lights which cast shadows, or of the others, or of all.
vec3 light_at(Shape shape, vec3 eye, vec3 up, bool mirrored, bool casting) {
    vec3 base = shape.color.rgb * (mirrored ? shape.material.w : 1.0);
    vec3 sum = casting ? vec3(0) : base * shape.material.x;
    for (int i = 0; i < MOST_LIGHTS; i++) {
        Light light = lights[layer * MOST_LIGHTS + i];
        if (light.kind.x < 0.5 || (!mirrored && (light.kind.y > 0.5) != casting)) continue;
        vec4 position = mirrored ? light.mirror_position : light.position;
        vec4 spot = mirrored ? light.mirror_spot : light.spot;
        vec3 way = position.xyz - eye * position.w;
        float distance = length(way);
        vec3 to_light = way / distance;
        float strength = 1.0;
        if (position.w != 0.0) {
            vec4 fading = light.fading;
            strength = 1.0 / (fading.x + distance * (fading.y + distance * fading.z));
            if (light.kind.z < 180.0) {
                float along = dot(-to_light, normalize(spot.xyz));
                strength *= along >= spot.w ? pow(along, fading.w) : 0.0;
            }
        }
        float facing = max(dot(up, to_light), 0.0);
        vec3 half_way = normalize(to_light + normalize(-eye));
        float shine = facing > 0.0 ? pow(max(dot(up, half_way), 0.0), shape.material.z) : 0.0;
        sum += strength * (light.ambient.rgb * base + facing * light.diffuse.rgb * base
                           + shine * light.specular.rgb * shape.material.y);
    }
    return clamp(sum, 0.0, 1.0);
}

void main() {
    Shape shape = shapes[first + gl_InstanceID];
    layer = int(shape.texture.z);
    gl_Layer = layer;
    vec3 size = shape.size.xyz;
    float height = end == 0.0 ? size.z : 0.5 * (size.x + size.y);
    vec4 place = vec4(at * vec3(size.xy, height) + vec3(0, 0, end * size.z), 1);
    vec3 leaning = normal / vec3(size.xy, height);
    bool mirrored = pass == MIRRORED;
    gl_ClipDistance[0] = mirrored ? dot(shape.mirror_plane, place) : 1.0;
    vec4 from_light = shape.light_clip * place;
    if (pass == SHADOWS) gl_Position = from_light;
    else if (mirrored) gl_Position = shape.mirror_clip * place;
    else gl_Position = shape.clip * place;
    plain = shaded = vec3(0);
    if (mirrored || pass == LIT) {
        mat4 view = mirrored ? shape.mirror_eye : shape.eye;
        vec3 eye = (view * place).xyz, up = normalize((view * vec4(leaning, 0)).xyz);
        plain = light_at(shape, eye, up, mirrored, false);
        if (!mirrored) shaded = light_at(shape, eye, up, false, true);
    }
    vec2 flat_place = vec2(0.5, -0.5) * shape.texture.xy * at.xy;
    texture_place = pass == SKY ? vec3(at.x, at.z, -at.y)
        : vec3(flat_place + vec2(shape.size.w, shape.texture.w), 0);
    shadow_place = vec4(0.5 * from_light.xy + 0.5 * from_light.w, from_light.zw);
}
""".replace("MOST_LIGHTS", str(MOST_LIGHTS))
)

_FRAGMENT = (
    _DATA
    + """
layout(binding = 0) uniform sampler2D picture;
layout(binding = 1) uniform sampler2DArrayShadow shadows;
layout(binding = 2) uniform samplerCube sky;
layout(location = 2) uniform bool textured;
INTERPOLATION in vec3 plain, shaded;
in vec3 texture_place;
in vec4 shadow_place;
flat in int layer;
out vec4 painted;

vec3 rounded(vec3 color) { return floor(255.0 * clamp(color, 0.0, 1.0) + 0.5) / 255.0; }

void main() {
    vec3 surface = vec3(1), color = plain;
    if (pass == SKY) color = texture(sky, texture_place).rgb;
    else if (textured) surface = texture(picture, texture_place.xy).rgb;
    color *= surface;
    if (pass == LIT) {
        vec3 place = shadow_place.xyz / shadow_place.w;
        float lit = texture(shadows, vec4(place.xy, layer, clamp(place.z, 0.0, 1.0)));
        color = rounded(color) + (lit > 0.5 ? rounded(shaded * surface) : vec3(0));
    }
    painted = vec4(color, 1);
}
"""
)


def fragment(interpolation: str) -> str:
    """The program of pixels, with one of `INTERPOLATIONS`."""
    return _FRAGMENT.replace("INTERPOLATION", interpolation)
