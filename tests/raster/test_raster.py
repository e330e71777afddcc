"""Pictures drawn by a program of our own: MuJoCo's are the oracle."""

import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from svea import raster
from svea.core import compiled, machine
from svea.core.errors import UserError
from svea.envs import make_env
from svea.envs.rendering import Renderer, backend, draws_on_gpu, import_suite
from svea.envs.rendering import renderer as drawing
from svea.envs.rendering.context import Context, SharedContext
from svea.envs.rendering.renderer import configure_drawing
from svea.raster import shapes

SHADOW, FAR = 3, 8
"""Levels: rounding differs by less than the first; the second is visible."""


@pytest.fixture(autouse=True)
def _in_software() -> None:
    if draws_on_gpu():
        pytest.skip("MuJoCo's pictures are not Mesa's here")


class Stage:
    """A world, given as physics or as a task's name, and two renderers of it: ours and MuJoCo's."""

    def __init__(self, world: Any) -> None:
        self.physics = world
        if isinstance(world, str):
            domain, name = next(p for p in import_suite().ALL_TASKS if "_".join(p) == world)
            self.task = import_suite().load(domain, name, task_kwargs={"random": 1})
            self.task.reset()
            self.physics = self.task.physics
        self._ours, self._mujocos = self._renderer("raster"), self._renderer("opengl")
        self.renderers = [self._ours, self._mujocos]

    def _renderer(self, drawn_by: str) -> Renderer:
        configure_drawing(Context(), lambda: None)
        model, data = self.physics.model.ptr, self.physics.data.ptr
        return Renderer(model, data, size=84, drawn_by=drawn_by)

    def step(self) -> None:
        self.task.step(np.full(self.task.action_spec().shape, 0.5))

    def ours(self) -> np.ndarray:
        return self._ours.draw().astype(int)

    def mujocos(self) -> np.ndarray:
        return self._mujocos.draw().astype(int)

    @property
    def drawn(self) -> int:
        """How many pictures were not MuJoCo's, with one that is drawn when a renderer is made."""
        return self._ours.drawn

    def upload(self, texture: int) -> None:
        for renderer in self.renderers:
            renderer.upload_texture(texture)

    def close(self) -> None:
        for renderer in self.renderers:
            renderer.close()
        self.physics.free()


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

    def make(world: Any) -> Stage:
        made.append(Stage(world))
        return made[-1]

    backend.warn_of_opengl.cache_clear()
    raster._say_what_is_left.cache_clear()
    yield make
    for each in made:
        each.close()
    configure_drawing()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where changed programs are kept for the next test."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def source(monkeypatch, tmp_path, cache):
    """Lets a test change a part of the program, which is compiled anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(compiled, "OPTIMISE", ("-O1",))  # a third of the time

    def change(old: str, new: str) -> None:
        texts = {part.name: part.read_text() for part in raster.PARTS}
        assert any(old in text for text in texts.values())
        for name, text in texts.items():
            (tmp_path / name).write_text(text.replace(old, new))
        monkeypatch.setattr(raster, "PARTS", tuple(tmp_path / part.name for part in raster.PARTS))

    raster.library.cache_clear()
    yield change
    raster.library.cache_clear()


def share(one: np.ndarray, other: np.ndarray, levels: int) -> float:
    """The share of pixels that differ by more than so many levels."""
    return float((abs(one.astype(int) - other).max(-1) > levels).mean())


@pytest.mark.parametrize(
    "task",
    ["walker_walk", "cartpole_swingup", "ball_in_cup_catch", "finger_spin", "cheetah_run",
     "reacher_easy", "hopper_hop"],
)  # fmt: skip
def test_pictures_are_mujocos(stage, task, capsys):
    """But for rounding: hardly a pixel in a thousand differs by more than two levels."""
    world = stage(task)
    ours, mujocos = [], []
    for _ in range(12):
        world.step()
        ours.append(world.ours())
        mujocos.append(world.mujocos())
    assert world.drawn == 13
    assert share(np.stack(ours), np.stack(mujocos), 2) < 0.001
    assert share(np.stack(ours), np.stack(mujocos), 0) < 0.1
    assert "warning" not in capsys.readouterr().err


LOOKS = ["color_hard", "video_easy", "video_hard", "distracting_cs:0.1", "camera_hard",
         "rotate_shift_hard", "light_color_hard", "light_position_hard",
         "moving_light_hard"]  # fmt: skip
TURNS = ("walker_walk", "finger_spin")
OTHERS = ("humanoid_stand", "quadruped_walk", "fish_swim", "pendulum_swingup")


@pytest.mark.parametrize(
    ("task", "mode", "levels", "all_ours"),
    [
        *((TURNS[k % 2], mode, FAR, False) for k, mode in enumerate(LOOKS)),
        *((task, "train", FAR, False) for task in OTHERS),
        # Translucent floors, and the robot's patterns:
        ("cartpole_swingup", "distracting_cs", 2, True),
        ("finger_spin", "distracting_cs:0.5", 2, True),
        ("ball_in_cup_catch", "distracting_cs", 2, True),
        ("humanoid_stand", "distracting_cs", 2, True),  # whose sky hides the floor's far end
        ("robot_reach", "train", 2, True),
        ("robot_push", "test:2", 2, True),  # a gradient, checks and noise
        ("robot_reach_moving", "test:4", 2, True),
    ],
)
def test_modes_are_mujocos_pictures_too(task, mode, levels, all_ours, capsys):
    pictures, drawn = [], 0
    for renderer in ("raster", "opengl"):
        env = make_env(task, mode=mode, renderer=renderer)
        shown = [env.reset(seed=3)[0][-3:]]
        shown += [env.step(env.action_space.high)[0][-3:].copy() for _ in range(3)]
        pictures.append(np.stack(shown).transpose(0, 2, 3, 1))
        drawn += env.unwrapped._scene.renderer.drawn
        env.close()
    assert share(*pictures, levels) < 0.001
    assert share(*pictures, FAR) < (0.0005 if all_ours else 0.001)
    assert drawn == 5 or not all_ours
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize("side", [84, 85, 336])
def test_pictures_of_other_sizes(stage, side):
    world = stage("walker_walk")
    ours, mujocos = (renderer.draw(side).astype(int) for renderer in world.renderers)
    assert world.drawn == 2
    assert share(ours, mujocos, SHADOW) < 0.001


def darken_materials(world: Stage) -> None:
    world.physics.model.mat_rgba[:, 0] *= 0.5


def darken_textures(world: Stage) -> None:
    model = world.physics.model.ptr
    for texture in range(model.ntex):
        model.tex_data[model.tex_adr[texture] :] //= 2
        world.upload(texture)


def change_a_side_of_the_sky(world: Stage) -> None:
    model, (sky,) = world.physics.model.ptr, np.flatnonzero(world.physics.model.tex_type == 2)
    start, length = model.tex_adr[sky], 3 * model.tex_width[sky] ** 2
    model.tex_data[start + 5 * length : start + 6 * length] = 200
    for renderer in world.renderers:
        assert 5 in renderer.visible_sky_faces()
        renderer.upload_texture(int(sky), [5])


def make_the_sky_one_small_picture(world: Stage) -> None:
    """As videos do, whose picture is the same on all sides."""
    model, (sky,) = world.physics.model.ptr, np.flatnonzero(world.physics.model.tex_type == 2)
    model.tex_width[sky] = model.tex_height[sky] = 16
    rng = np.random.default_rng(0)
    model.tex_data[model.tex_adr[sky] :][: 3 * 16 * 16] = rng.integers(0, 255, 3 * 16 * 16)
    world.upload(int(sky))


@pytest.mark.parametrize(
    "change",
    [darken_materials, darken_textures, change_a_side_of_the_sky, make_the_sky_one_small_picture],
)
def test_worlds_that_change_are_drawn_as_they_are(stage, change):
    world = stage("walker_walk")
    before = world.ours()
    change(world)
    assert share(world.ours(), world.mujocos(), SHADOW) < 0.001
    assert share(world.ours(), before, FAR) > 0.05
    assert world.drawn == 4


def test_smaller_copies_of_textures_are_mesas(stage):
    """Byte for byte."""
    from OpenGL import GL

    model, context = (renderer := stage("walker_walk").renderers[0])._model, renderer._context
    renderer._gl._gl.make_current()
    GL.glPixelStorei(GL.GL_PACK_ALIGNMENT, 1)
    for number in range(model.ntex):
        flat = model.tex_type[number] == 0
        target = GL.GL_TEXTURE_2D if flat else GL.GL_TEXTURE_CUBE_MAP
        GL.glBindTexture(target, int(context.texture[number]))
        side = GL.GL_TEXTURE_2D if flat else GL.GL_TEXTURE_CUBE_MAP_POSITIVE_X + 4
        ours = raster.Texture(model, number)
        for level in range(ours._c.levels):
            size = GL.GL_RGB, GL.GL_UNSIGNED_BYTE
            theirs = np.frombuffer(GL.glGetTexImage(side, level, *size), np.uint8)
            np.testing.assert_array_equal(ours.level(level, 0 if flat else 4).ravel(), theirs)


@pytest.mark.parametrize(
    "odd",
    [
        {"material": 'rgba="1 1 1 .5"'},  # in a mirror
        {"material": 'shininess="0" specular="1"'},
        {"floor": 'size="0 4 .5" material="floor"'},
        {"floor": 'size="4 0 .5" material="floor"'},
        {"light": 'attenuation="0 0 0"'},
    ],
)
def test_what_would_not_look_the_same_is_left_to_mujoco(stage, odd, capsys):
    world = stage(physics_of(**odd))
    np.testing.assert_array_equal(world.ours(), world.mujocos())
    assert world.drawn == 0
    assert capsys.readouterr().err.count("warning") == 1


@pytest.mark.parametrize(
    "made",
    [
        {"thing": 'type="box"'},
        {"thing": 'type="ellipsoid"'},
        {"thing": 'type="cylinder"'},
        {"thing": 'type="capsule"'},
        *({"material": 'texture="checks" texrepeat="2 3"', "thing": f'type="{kind}"'}
          for kind in ("box", "sphere", "ellipsoid", "cylinder", "capsule")),
        {"material": 'texture="checks" texuniform="true"', "thing": 'type="capsule"'},
        {"material": 'rgba="1 1 1 .5"', "floor": 'size="4 4 .5"'},
        {"material": 'rgba="1 1 1 .5"', "floor": 'size="4 4 .5"', "thing": 'type="capsule"'},
        {"floor": 'size="1 2 .5" material="floor"'},
        {"floor": 'size="40 40 .5" material="floor"'},  # behind the camera, too
        {"textures": ("red", "checks")},
        {"light": 'directional="true"'},
        {"light": 'castshadow="false"'},
        {"light": 'cutoff="20" exponent="4"'},
    ],
)  # fmt: skip
def test_made_worlds(stage, made, capsys):
    world = stage(physics_of(**made))
    assert share(world.ours(), world.mujocos(), SHADOW) < 0.002
    assert world.drawn == 2
    assert "warning" not in capsys.readouterr().err


def show_nothing(world: Stage) -> None:
    for renderer in world.renderers:
        renderer._option.geomgroup[:] = renderer._option.sitegroup[:] = 0


def see_through_several_things(world: Stage) -> None:
    world.physics.model.mat_rgba[:, 3] = 0.5


@pytest.mark.parametrize("change", [show_nothing, see_through_several_things])
def test_worlds_that_become_odd_are_left_to_mujoco(stage, change, capsys):
    world = stage("walker_walk")
    change(world)
    for _ in range(2):
        np.testing.assert_array_equal(world.ours(), world.mujocos())
    assert world.drawn == 1
    assert capsys.readouterr().err.count("warning") == 1


# Faults -------------------------------------------------------------------------------------------


def left_to_mujoco(world: Stage, capsys: pytest.CaptureFixture[str]) -> str:
    """Check that MuJoCo draws and that this was said once; -> what was said."""
    np.testing.assert_array_equal(world.ours(), world.mujocos())
    np.testing.assert_array_equal(world.ours(), world.mujocos())
    said = capsys.readouterr().err
    assert said.startswith("warning: OpenGL draws all pictures, which is slower: ")
    assert said.count("warning") == 1
    assert world.drawn == 0
    return said


def no_such_field(*_: Any) -> None:
    raise AttributeError("no such field")


@pytest.mark.parametrize(
    ("owner", "name", "broken", "said"),
    [
        (shutil, "which", lambda name: None, "a C compiler (gcc) is not installed"),
        (raster, "records", no_such_field, "no such field"),
    ],
)
def test_what_is_missing_is_said_once_and_mujoco_draws(
    stage, source, monkeypatch, capsys, owner, name, broken, said
):
    monkeypatch.setattr(owner, name, broken)
    assert said in left_to_mujoco(stage("walker_walk"), capsys)
    stage("walker_walk").ours()
    assert not capsys.readouterr().err  # once is enough


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("int raster_draw(", "nonsense int raster_draw(", " says: "),
        ("light->ambient[k] * base[k]", "light->ambient[k]", r"[1-9].*% of .* not MuJoCo's"),
        ("posix_memalign(&made, 64, (count + LANES) * size) ? NULL : made", "NULL", "no memory"),
    ],
)
def test_a_faulty_program_leaves_mujoco_to_draw(stage, source, capsys, old, new, said):
    source(old, new)
    assert re.search(said, left_to_mujoco(stage("walker_walk"), capsys))


def test_pictures_that_go_wrong_later_are_found_out(stage, monkeypatch, capsys):
    world, usual = stage("walker_walk"), raster.Raster.draw

    def wrong(self: raster.Raster, buffer: np.ndarray) -> bool:
        return usual(self, buffer) and not buffer.fill(0)

    assert world.drawn == 1
    monkeypatch.setattr(raster.Raster, "draw", wrong)
    pictures = [world.ours() for _ in range(12)]
    assert [picture.any() for picture in pictures] == [False] * 8 + [True] * 4  # from the tenth on
    np.testing.assert_array_equal(pictures[-1], world.mujocos())
    assert "100.0% of a picture's pixels were not MuJoCo's" in capsys.readouterr().err


def test_the_check_waits_for_the_first_picture_that_can_be_drawn(stage, source, capsys):
    """A renderer whose first pictures are MuJoCo's must not have later ones taken on trust."""
    source("light->ambient[k] * base[k]", "light->ambient[k]")
    physics = physics_of()
    physics.model.geom_rgba[1, 3] = physics.model.mat_rgba[2, 3] = 0.5
    world = stage(physics)
    assert "some pictures" in capsys.readouterr().err
    physics.model.geom_rgba[1, 3] = physics.model.mat_rgba[2, 3] = 1
    assert "not MuJoCo's" in left_to_mujoco(world, capsys)


@pytest.mark.parametrize(
    ("variable", "asked", "drawn", "gpu", "together"),
    [
        (None, "auto", 1, False, False),
        (None, "auto", 1, True, True),
        ("auto", "raster", 1, True, False),
        (None, "opengl", 0, False, True),
        (" CPU ", "opengl", 1, False, True),
        ("opengl", "raster", 0, True, False),
    ],
)
def test_who_draws_depends_on_what_is_asked_and_on_nothing_else(
    monkeypatch, variable, asked, drawn, gpu, together
):
    """Not on cores, on the GPU's driver, or on how many environments share a process."""
    monkeypatch.setattr(machine, "usable_cores", lambda: 64 if together else 1)
    if gpu:
        name = "OpenGL: NVIDIA H200, 4.6.0 NVIDIA 580"
        monkeypatch.setattr(backend, "opengl_name", lambda: name)
    if variable is not None:
        monkeypatch.setenv("SVEA_DRAWING", variable)
    place = SharedContext(2) if together else Context()
    configure_drawing(place, lambda: None)
    try:
        env = make_env("cartpole_swingup", seed=1, renderer=asked)
        env.reset()
        assert env.unwrapped._scene.renderer.drawn == 2 * drawn
        name = env.unwrapped.provenance["renderer"]
        assert name.startswith("svea raster" if drawn else "OpenGL: ")
        env.close()
    finally:
        configure_drawing()
        if together:
            place.close()


def test_an_unknown_drawing_is_an_error_that_names_the_choices(monkeypatch):
    monkeypatch.setenv("SVEA_DRAWING", "gpu")
    with pytest.raises(UserError, match=r"SVEA_DRAWING.*'gpu'"):
        make_env("walker_walk", seed=1)


@pytest.mark.parametrize(("opengl", "drawn"), [("llvmpipe", 0), ("NVIDIA H200", 1)])
def test_a_gpus_driver_may_light_edges_in_its_own_way(stage, monkeypatch, capsys, opengl, drawn):
    """In software any more difference is a fault. Ours are the same on both."""
    monkeypatch.setattr(backend, "opengl_name", lambda: opengl)
    monkeypatch.setattr(drawing, "MOST_DIFFERENT", -1.0)
    assert stage("walker_walk").drawn == drawn
    assert ("not MuJoCo's" in capsys.readouterr().err) == (not drawn)


NVIDIA = Path(__file__).parents[1] / "support" / "nvidia_pictures.npz"
"""MuJoCo 3.17's pictures of states on an H200 (driver 580.159.04), two of each task."""


@pytest.mark.parametrize(
    "task", ["walker_walk", "cartpole_swingup", "ball_in_cup_catch", "finger_spin"]
)
def test_nvidias_driver_draws_the_same_but_for_edges(stage, task):
    world = stage(task)
    with np.load(NVIDIA) as kept:
        for name in (key for key in kept if key.startswith(task) and key.endswith("picture")):
            world.physics.data.qpos[:] = kept[name.replace("picture", "qpos")]
            world.physics.forward()
            assert 0.008 < share(world.ours(), kept[name], FAR) < 0.03
            assert share(world.ours(), kept[name], 100) < 0.01


@pytest.mark.parametrize("rendering", ["full", "fast"])
def test_fast_rendering_and_masks_are_mujocos(rendering):
    env = make_env("walker_walk", seed=1, rendering=rendering).unwrapped
    env.reset()
    renderer = env._scene.renderer
    before = renderer.drawn
    assert 0 < renderer.foreground().mean() < 0.5
    assert renderer.drawn == before
    assert (before > 0) == (rendering == "full")
    env.close()


def test_environments_of_one_process_draw_in_their_own_threads(monkeypatch):
    """The same pictures as those of an environment by itself."""
    place = SharedContext(2)
    configure_drawing(place, lambda: None)
    try:
        envs = [make_env("walker_walk", mode="color_hard", seed=seed) for seed in (1, 2)]
        asked = list[int]()
        usual = place._draw_all
        count = lambda pictures: asked.append(len(pictures)) or usual(pictures)  # noqa: E731
        monkeypatch.setattr(place, "_draw_all", count)
        together = place.run([lambda env=env: env.reset()[0].copy() for env in envs])
        assert not asked
        for env in envs:
            env.close()
    finally:
        configure_drawing()
        place.close()
    for seed, ours in enumerate(together, start=1):
        env = make_env("walker_walk", mode="color_hard", seed=seed)
        np.testing.assert_array_equal(ours, env.reset()[0])
        env.close()


# Their parts --------------------------------------------------------------------------------------


def test_plane_lines():
    """By hand: two padding strips, and cells of twice the spacing between them."""
    assert shapes.plane_lines(4, 1, 1, 100) == (-4, -4, -2, 0, 2, 4, 4)
    assert shapes.plane_lines(0.6, 10, 1, 100) == (-0.6, 0.0, 0.6)
    endless = shapes.plane_lines(0, 1, 2, 100)
    assert len(endless) == shapes.MAX_PLANE_GRID + 1
    assert endless[100] == 0
    assert endless[-1] > 100  # beyond what the camera sees


def test_records_are_what_python_reads(stage):
    world = stage("finger_spin")
    world.ours()
    scene = world.renderers[0]._scene
    for items, count, fields in (
        (scene.geoms, scene.ngeom, raster.SHAPE),
        (scene.lights, scene.nlight, raster.LIGHT),
        (scene.camera, 2, raster.CAMERA),
    ):
        for record, item in zip(raster.records(items, count, fields), items, strict=False):
            for name in fields:
                np.testing.assert_array_equal(record[name], np.ravel(getattr(item, name)).squeeze())


def test_the_parts_of_the_source_are_known():
    """Else a process would load what an older source made: `svea.core.compiled`."""
    included = re.findall(r'#include "(.+)"', raster.SOURCE.read_text())
    assert [part.name for part in raster.PARTS] == [raster.SOURCE.name, *included]


def test_the_golden_episodes_are_of_this_version():
    """tests/envs/test_golden.py says what to do after a change of the pictures."""
    kept = Path(__file__).parents[1] / "support" / "golden_episodes.json"
    assert json.loads(kept.read_text())["raster"] == raster.VERSION


def test_without_the_wing_opengl_draws_and_a_request_for_it_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert backend.choose_renderer() == "opengl"
    with pytest.raises(UserError, match=r"svea\.raster"):
        backend.choose_renderer("raster")
    monkeypatch.setenv("SVEA_DRAWING", "cpu")
    with pytest.raises(UserError, match=r"svea\.raster"):
        make_env("walker_walk")
