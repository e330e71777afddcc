"""Pictures drawn as layers of one framebuffer: MuJoCo's own are the oracle."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from svea.envs import PAPER_TASKS, make_env
from svea.envs.rendering import batches, import_suite, scenes, shaders, shapes
from svea.envs.rendering.layers import Layers
from svea.envs.rendering.renderer import Renderer, configure_drawing
from svea.envs.rendering.shared import SharedContext

FINE = shapes.Fineness(slices=28, stacks=16, quads=4)


class Stage:
    """Two worlds in one context, whose pictures are drawn together."""

    def __init__(self, *physics: Any, layers: bool = True) -> None:
        self.context = SharedContext(len(physics), layers=layers)
        configure_drawing(self.context, lambda: None)
        self.physics = physics
        self.renderers = [Renderer(one.model.ptr, one.data.ptr, size=84) for one in physics]

    def together(self) -> np.ndarray:
        """Both pictures, as layers where that is possible."""
        tasks = [functools.partial(self._copy, renderer) for renderer in self.renderers]
        return np.stack(self.context.run(tasks)).astype(int)

    def alone(self) -> np.ndarray:
        """Both pictures, each drawn by MuJoCo."""
        return np.stack([self._copy(renderer) for renderer in self.renderers]).astype(int)

    @property
    def drew_layers(self) -> bool:
        """Whether the last pictures were layers."""
        return self.context._layers is not None and self.batch() is not None

    def batch(self) -> batches.Batch | None:
        """What the program would draw."""
        for renderer in self.renderers:
            renderer._update_scene()
        return batches.gather([renderer.reader for renderer in self.renderers])

    @staticmethod
    def _copy(renderer: Renderer) -> np.ndarray:
        return renderer.draw().copy()

    def close(self) -> None:
        for renderer, physics in zip(self.renderers, self.physics, strict=True):
            renderer.close()
            physics.free()
        self.context.close()


class TaskStage(Stage):
    """Two worlds of a task."""

    def __init__(self, task: str, *, layers: bool = True) -> None:
        domain, name = next(pair for pair in import_suite().ALL_TASKS if "_".join(pair) == task)
        self.worlds = [
            import_suite().load(domain, name, task_kwargs={"random": seed}) for seed in (1, 2)
        ]
        for world in self.worlds:
            world.reset()
        super().__init__(*(world.physics for world in self.worlds), layers=layers)


def physics_of(
    *,
    floor: str = 'size="4 4 .5" material="floor"',
    thing: str = 'type="sphere"',
    material: str = "",
    light: str = "",
    textures: tuple[str, str] = ("checks", "red"),
) -> Any:
    """A world of our own: a floor, a thing, a light."""
    import_suite()
    from dm_control import mujoco

    return mujoco.Physics.from_xml_string(f"""
        <mujoco>
          <statistic extent="4" center="0 0 0"/>
          <asset>
            <texture name="checks" type="2d" builtin="checker" rgb1=".1 .2 .3" rgb2=".6 .7 .8"
                     width="64" height="64"/>
            <texture name="red" type="2d" builtin="flat" rgb1=".9 .2 .3" width="64" height="64"/>
            <material name="floor" texture="{textures[0]}" reflectance=".2"/>
            <material name="other" texture="{textures[1]}"/>
            <material name="thing" {material}/>
          </asset>
          <worldbody>
            <light pos="0 0 4" dir=".1 0 -1" {light}/>
            <geom type="plane" {floor}/>
            <geom size=".4 .3 .5" pos="0 0 1" euler="20 30 0" {thing} material="thing"/>
            <camera pos="0 -4 2" xyaxes="1 0 0 0 .45 .9"/>
          </worldbody>
        </mujoco>""")


@pytest.fixture
def stage() -> Iterator[Any]:
    """Makes stages, and closes them."""
    made = []

    def make(*arguments: Any, **options: Any) -> Stage:
        kind = TaskStage if isinstance(arguments[0], str) else Stage
        made.append(kind(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
    configure_drawing()


@pytest.mark.parametrize("task", [*PAPER_TASKS, "cheetah_run", "reacher_easy", "hopper_hop"])
def test_layers_are_mujocos_pictures(stage, task, capsys):
    """But for rounding: hardly a pixel in a thousand differs, and by two levels at most."""
    both = stage(task)
    ours, mujocos = both.together(), both.alone()
    assert both.drew_layers
    assert (mujocos[0] != mujocos[1]).any()  # else pictures that change places would go unnoticed
    difference = abs(ours - mujocos)
    assert difference.max() <= 2
    assert (difference.max(-1) > 0).mean() < 0.002
    np.testing.assert_array_equal(ours, both.together())  # MuJoCo's pictures leave no trace
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "task", ["humanoid_stand", "quadruped_walk", "fish_swim", "pendulum_swingup"]
)
def test_other_tasks_are_mujocos_pictures_too(stage, task, capsys):
    """Whether they can be layers or not."""
    both = stage(task)
    difference = abs(both.together() - both.alone())
    assert (difference.max(-1) > 8).mean() < 0.001
    assert "warning" not in capsys.readouterr().err


def test_worlds_that_change_are_drawn_as_they_are(stage):
    both = stage("walker_walk")
    both.together()
    for world in both.worlds:
        for _ in range(5):
            world.step(np.full(world.action_spec().shape, 0.5))
    both.worlds[1].physics.model.mat_rgba[:, 0] *= 0.5
    assert abs(both.together() - both.alone()).max() <= 2


def test_textures_of_one_world_do_not_show_in_another(stage):
    both = stage("walker_walk")
    equal = both.batch()
    model = both.worlds[1].physics.model.ptr
    for texture in range(model.ntex):
        model.tex_data[model.tex_adr[texture] :] //= 2
        both.renderers[1].upload_texture(texture)
    ours, mujocos = both.together(), both.alone()
    assert abs(ours - mujocos).max() <= 2
    assert ours[1].mean() < 0.8 * ours[0].mean()
    different = both.batch()
    assert len(equal.skies) == 1
    assert len(different.skies) == 2  # one of each


@pytest.mark.parametrize(
    "other", [{"floor": 'size="1 2 .5" material="floor"'}, {"textures": ("red", "checks")}]
)
def test_worlds_that_differ_are_not_drawn_with_the_parts_of_one(stage, other, capsys):
    """The same numbers and pixels, but another grid, or another texture on the same material."""
    both = stage(physics_of(), physics_of(**other))
    ours, mujocos = both.together(), both.alone()
    assert (mujocos[0] != mujocos[1]).any()
    assert abs(ours - mujocos).max() <= 2
    assert "warning" not in capsys.readouterr().err


def test_readers_of_textures_that_changed_are_not_kept(stage):
    """A video makes one for each picture."""
    both = stage("walker_walk")
    both.together()
    old = weakref.ref(both.renderers[0]._reader)
    both.renderers[0].upload_texture(0)
    gc.collect()
    assert old() is None


def test_what_one_can_see_through_is_left_to_mujoco(stage, capsys):
    both = stage("walker_walk")
    both.worlds[0].physics.model.mat_rgba[:, 3] = 0.5
    np.testing.assert_array_equal(both.together(), both.alone())
    assert both.batch() is None
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "odd",
    [
        {"material": 'texture="checks"', "thing": 'type="box"'},
        {"material": 'texture="checks" texuniform="true"'},
        {"material": 'shininess="0" specular="1"'},
        {"floor": 'size="0 4 .5" material="floor"'},
        {"floor": 'size="4 0 .5" material="floor"'},
        {"light": 'attenuation="0 0 0"'},
    ],
)
def test_what_would_not_look_the_same_is_left_to_mujoco(stage, odd, capsys):
    usual = stage(physics_of(), physics_of())
    assert usual.batch() is not None
    both = stage(physics_of(**odd), physics_of(**odd))
    np.testing.assert_array_equal(both.together(), both.alone())
    assert both.batch() is None
    assert "warning" not in capsys.readouterr().err


def test_a_world_without_anything_in_it_is_left_to_mujoco(stage, capsys):
    both = stage("walker_walk")
    both.together()
    for renderer in both.renderers:
        renderer._option.geomgroup[:] = renderer._option.sitegroup[:] = 0
    np.testing.assert_array_equal(both.together(), both.alone())
    assert both.batch() is None
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("light.ambient.rgb * base", "light.ambient.rgb", "of their pixels are not MuJoCo's"),
        ("void main() {", "void main() { nonsense", "error: "),
    ],
)
def test_a_driver_that_draws_something_else_is_found_out(stage, monkeypatch, capsys, old, new, why):
    assert old in shaders.VERTEX
    monkeypatch.setattr(shaders, "VERTEX", shaders.VERTEX.replace(old, new))
    both = stage("walker_walk")
    np.testing.assert_array_equal(both.together(), both.alone())
    said = capsys.readouterr().err
    assert said.startswith("warning: pictures are drawn one by one, which is slower")
    assert why in said
    np.testing.assert_array_equal(both.together(), both.alone())
    assert not capsys.readouterr().err  # once is enough


def test_the_check_counts_the_pixels_of_pictures_only(stage, monkeypatch, capsys):
    """Not those of a sheet that is wider since `render()` was called for a larger picture."""
    changed = shaders.VERTEX.replace("light.ambient.rgb * base", "light.ambient.rgb")
    monkeypatch.setattr(shaders, "VERTEX", changed)
    stage("walker_walk").together()
    narrow = capsys.readouterr().err
    both = stage("walker_walk")
    both.context._with_layers = False
    both.context.run([functools.partial(renderer.draw, 336) for renderer in both.renderers])
    both.context._with_layers = True
    both.together()
    assert "% of their pixels" in narrow
    assert capsys.readouterr().err == narrow


@pytest.mark.parametrize("where", [shaders.SHADOWS, shaders.OUTLINE, shaders.MIRRORED, shaders.LIT])
def test_a_failure_halfway_leaves_mujocos_pictures_as_they_are(stage, monkeypatch, capsys, where):
    def fail(self: Layers, number: int, runs: Any) -> None:
        usual(self, number, runs)
        if number == where:
            raise MemoryError("no room")

    usual = Layers._pass
    before = stage("walker_walk", layers=False).together()
    monkeypatch.setattr(Layers, "_pass", fail)
    both = stage("walker_walk")
    np.testing.assert_array_equal(both.together(), before)
    np.testing.assert_array_equal(both.alone(), before)
    assert "no room" in capsys.readouterr().err


def test_layers_free_all_that_they_made(stage):
    """Names of objects of OpenGL are small numbers, each kind's its own."""

    def names() -> list[set[int]]:
        kinds = (GL.glIsBuffer, GL.glIsVertexArray, GL.glIsTexture, GL.glIsFramebuffer)
        return [
            {name for name in range(1, 300) if is_one(name)}
            for is_one in (*kinds, GL.glIsProgram, GL.glIsShader)
        ]

    both = stage("walker_walk")
    from OpenGL import GL

    both.context._with_layers = False
    both.together()  # makes the sheet
    before = names()
    both.context._with_layers = True
    both.together()
    assert names() != before
    both.context._layers.free()
    both.context._layers = None
    assert names() == before


def test_the_check_waits_for_the_first_pictures_that_are_layers(stage, monkeypatch, capsys):
    """A worker whose first pictures are MuJoCo's must not take later ones on trust."""
    changed = shaders.VERTEX.replace("light.ambient.rgb * base", "light.ambient.rgb")
    monkeypatch.setattr(shaders, "VERTEX", changed)
    both = stage("walker_walk")
    materials = both.worlds[0].physics.model.mat_rgba
    usual = materials[:, 3].copy()
    materials[:, 3] = 0.5
    both.together()
    materials[:, 3] = usual
    np.testing.assert_array_equal(both.together(), both.alone())
    assert "not MuJoCo's" in capsys.readouterr().err


def test_layers_are_off_unless_asked_for(stage):
    both = stage("walker_walk", layers=False)
    np.testing.assert_array_equal(both.together(), both.alone())
    assert both.context._layers is None


@pytest.mark.parametrize("layers", [False, True])
def test_scenes_that_cannot_be_read_are_left_to_mujoco(stage, monkeypatch, capsys, layers):
    """Training without layers must not depend on where MuJoCo keeps its scenes."""

    def fail(*_: Any, **__: Any) -> None:
        raise AttributeError("no such field")

    monkeypatch.setattr("svea.envs.rendering.renderer.SceneReader", fail)
    both = stage("walker_walk", layers=layers)
    np.testing.assert_array_equal(both.together(), both.alone())
    assert ("no such field" in capsys.readouterr().err) == layers


def test_environments_can_be_drawn_as_layers():
    """With segmentation, other modes and new episodes, as workers use them."""
    context = SharedContext(2, layers=True)
    configure_drawing(context, lambda: None)
    try:
        envs = [make_env("walker_walk", mode="color_hard", seed=seed) for seed in (1, 2)]
        first = context.run([lambda env=env: env.reset()[0].copy() for env in envs])
        assert context._layers is not None
        for env in envs:
            env.close()
    finally:
        configure_drawing()
        context.close()
    alone = []
    for seed in (1, 2):
        env = make_env("walker_walk", mode="color_hard", seed=seed)
        alone.append(env.reset()[0].copy())
        env.close()
    assert abs(np.stack(first).astype(int) - np.stack(alone).astype(int)).max() <= 2


# Their parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mesh",
    [
        shapes.sphere(FINE),
        shapes.capsule(FINE),
        shapes.cylinder(FINE),
        shapes.box(FINE),
        shapes.plane((-1.0, 0.5, 1.0), (-2.0, 2.0)),
    ],
)
def test_quads_face_where_their_normals_point(mesh):
    corners = mesh.vertices[mesh.quads].reshape(-1, 4, 7).astype(float)
    at = corners[..., :3] + np.array([0, 0, 1.0]) * corners[..., 6:]  # a capsule's ends, apart
    facing = np.cross(at[:, 1] - at[:, 0], at[:, 2] - at[:, 0])
    assert (np.einsum("qi,qi->q", facing, corners[:, :, 3:6].mean(1)) > 0).all()


def test_closed_shapes_enclose_their_volumes():
    """By Gauss: a sixth of the sum of triple products, close to the round shape's volume."""

    def volume(mesh: shapes.Mesh) -> float:
        corners = mesh.vertices[mesh.quads].reshape(-1, 4, 7).astype(float)
        at = corners[..., :3] + np.array([0, 0, 1.0]) * corners[..., 6:]
        halves = [at[:, [0, 1, 2]], at[:, [0, 2, 3]]]
        return sum(np.linalg.det(half).sum() for half in halves) / 6

    assert volume(shapes.box(FINE)) == pytest.approx(8)
    assert volume(shapes.sphere(FINE)) == pytest.approx(4 / 3 * np.pi, rel=0.03)
    assert volume(shapes.cylinder(FINE)) == pytest.approx(2 * np.pi, rel=0.03)
    assert volume(shapes.capsule(FINE)) == pytest.approx((2 + 4 / 3) * np.pi, rel=0.03)


def test_plane_lines():
    """By hand: two padding strips, and cells of twice the spacing between them."""
    assert shapes.plane_lines(4, 1, 1, 100) == (-4, -4, -2, 0, 2, 4, 4)
    assert shapes.plane_lines(0.6, 10, 1, 100) == (-0.6, 0.0, 0.6)
    endless = shapes.plane_lines(0, 1, 2, 100)
    assert len(endless) == shapes.MAX_PLANE_GRID + 1
    assert endless[100] == 0
    assert endless[-1] > 100  # beyond what the camera sees


def test_records_are_what_python_reads(stage):
    both = stage("finger_spin")
    assert both.batch() is not None
    found, layers = scenes.all_shapes([renderer.reader for renderer in both.renderers])
    numbers = {0: 0, 1: 0}
    for record, layer in zip(found, layers, strict=True):
        scene = both.renderers[layer]._scene
        geom = scene.geoms[numbers[layer]]
        numbers[layer] += 1
        for name in found.dtype.names:
            np.testing.assert_array_equal(record[name], np.ravel(getattr(geom, name)).squeeze())
    lights = scenes.all_lights([renderer.reader for renderer in both.renderers])
    for row, renderer in zip(lights, both.renderers, strict=True):
        for record, light in zip(
            row[: renderer._scene.nlight], renderer._scene.lights, strict=False
        ):
            for name in lights.dtype.names:
                np.testing.assert_array_equal(
                    record[name], np.ravel(getattr(light, name)).squeeze()
                )
