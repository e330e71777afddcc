"""The renderer against dm_control's, and the choice of the OpenGL backend."""

import contextlib
import gc
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import threading
import types
import weakref

import numpy as np
import pytest

from svea.core.errors import RendererError, UserError
from svea.envs import make_env, prepare_simulator
from svea.envs.rendering import Renderer, backend

linux_only = pytest.mark.skipif(platform.system() != "Linux", reason="the choice is Linux's")


@pytest.fixture
def physics():
    """Load a suite task's physics in a drawn first state."""
    prepare_simulator()
    from dm_control import suite

    loaded = []

    def load(task):
        domain, name = next((d, t) for d, t in suite.ALL_TASKS if f"{d}_{t}" == task)
        env = suite.load(domain, name, task_kwargs={"random": 1})
        env.reset()
        loaded.append(env.physics)
        return env.physics

    yield load
    for each in loaded:
        each.free()


@pytest.mark.parametrize("task", ["walker_walk", "cartpole_swingup", "finger_spin"])
def test_full_rendering_is_dm_controls(physics, task):
    """Bit for bit, once dm_control draws with the same shadow map and OpenGL draws for us, too."""
    world = physics(task)
    renderer = Renderer(world.model.ptr, world.data.ptr, size=84, drawn_by="opengl")
    ours = renderer.draw().copy()
    large = renderer.draw(240).copy()
    world.model.vis.global_.offwidth = world.model.vis.global_.offheight = 240
    np.testing.assert_array_equal(ours, world.render(84, 84, camera_id=0))
    np.testing.assert_array_equal(large, world.render(240, 240, camera_id=0))
    np.testing.assert_array_equal(ours, renderer.draw())  # a larger picture leaves no trace
    renderer.close()


def drawn(world, **settings):
    renderer = Renderer(world.model.ptr, world.data.ptr, size=84, **settings)
    picture = renderer.draw().astype(int)
    renderer.close()
    return picture


def test_a_smaller_shadow_map_and_fast_rendering_change_little(physics, monkeypatch):
    world = physics("walker_walk")
    full, fast = drawn(world), drawn(world, rendering="fast")
    monkeypatch.setattr("svea.envs.rendering.renderer.SHADOW_MAP", 2048)
    assert np.abs(full - drawn(world)).mean() < 0.1
    assert 0.1 < np.abs(full - fast).mean() < 15
    one, two = (picture[..., 0] > picture[..., 2] + 40 for picture in (full, fast))  # is orange
    assert (one & two).sum() / (one | two).sum() > 0.75


@pytest.mark.parametrize(
    ("version", "good"),
    [("3.17.0", True), ("3.99.1", True), ("4.0.0", False), ("3.9.1", False), ("2.3.7", False)],
)
def test_mujoco_versions(monkeypatch, version, good):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with contextlib.nullcontext() if good else pytest.raises(UserError, match=version):
        prepare_simulator()


@linux_only
@pytest.mark.parametrize(
    ("egl", "osmesa", "given", "chosen"),
    [
        (True, True, "", "egl"),
        (True, False, "", "egl"),
        (False, True, "", "osmesa"),
        (False, False, "", RendererError),
        (True, True, "glfw", "glfw"),
        (True, True, "vulkan", UserError),
    ],
)
def test_backend_choice(monkeypatch, egl, osmesa, given, chosen):
    monkeypatch.setenv("MUJOCO_GL", given)
    monkeypatch.setattr(backend, "_egl_vendor", lambda: "Mesa Project" if egl else None)
    monkeypatch.setattr(backend, "_can_load", lambda *names: osmesa)
    works = isinstance(chosen, str)
    with contextlib.nullcontext() if works else pytest.raises(chosen, match=r"apt-get|vulkan"):
        prepare_simulator()
    assert os.environ["MUJOCO_GL"] == (chosen if works else given)


@linux_only
@pytest.mark.parametrize(
    ("vendor", "variable", "fallen", "gpu"),
    [
        ("NVIDIA", None, False, True),
        ("NVIDIA Corporation", "egl", False, True),
        ("NVIDIA", "osmesa", False, False),
        ("NVIDIA", "glfw", False, False),
        ("NVIDIA", None, True, False),
        ("Mesa Project", None, False, False),
        ("Mesa Project", "egl", False, False),
        (None, None, False, False),
    ],
)
def test_who_draws_on_a_gpu(monkeypatch, vendor, variable, fallen, gpu):
    monkeypatch.setattr(backend, "_egl_vendor", lambda: vendor)
    monkeypatch.setattr(backend, "fallen_back", fallen)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    if variable:
        monkeypatch.setenv("MUJOCO_GL", variable)
    assert backend.draws_on_gpu() is gpu


@linux_only
def test_asking_who_draws_starts_no_threads_and_keeps_no_cache(tmp_path):
    """A process that is forked later would wait for llvmpipe's threads, which it does not have;
    Mesa's cache ends a process with SIGBUS when its disk is full."""
    code = (
        "import pathlib; from svea.envs.rendering import Renderer, backend\n"
        "backend.draws_on_gpu()\n"
        "physics = backend.import_suite().load('cartpole', 'swingup').physics\n"
        "renderer = Renderer(physics.model.ptr, physics.data.ptr, size=84)\n"
        "names = [p.read_text() for p in pathlib.Path('/proc/self/task').glob('*/comm')]\n"
        "print(sum('llvmpipe' in name for name in names))"
    )
    assert run_python(code, XDG_CACHE_HOME=str(tmp_path)).stdout.split() == ["0"]
    assert not (tmp_path / "mesa_shader_cache").exists()


@linux_only
def test_the_vendor_is_the_one_that_draws():
    """As OpenGL itself says, in a process where it has drawn."""
    if backend._egl_vendor() is None:
        pytest.skip("needs EGL")
    code = (
        "from svea.envs import gl_info; from svea.envs.rendering import backend\n"
        "vendor = backend._egl_vendor()\n"
        "print('nvidia' in (vendor or '').lower(), 'NVIDIA' in gl_info()['vendor'])\n"
        "import os; os.environ['MUJOCO_EGL_DEVICE_ID'] = '99'; print(backend._egl_vendor())"
    )
    told, drawn, other = run_python(code, MUJOCO_GL="egl").stdout.split()
    assert told == drawn and other == "None", "there is no such device"


@pytest.fixture
def neighbours(physics):
    """A renderer of ours that OpenGL draws for, and dm_control's own next to it."""
    if backend._egl_vendor() is None or os.environ.get("MUJOCO_GL") != "egl":
        pytest.skip("needs EGL")
    world = physics("walker_walk")
    renderer = Renderer(world.model.ptr, world.data.ptr, size=84, drawn_by="opengl")
    yield renderer, physics("cartpole_swingup")
    renderer.close()


def test_dm_control_may_draw_in_the_same_process(neighbours):
    """It takes for granted that its context stays current."""
    renderer, other = neighbours
    ours, theirs = renderer.draw().copy(), other.render(84, 84, camera_id=0)
    for _ in range(2):
        np.testing.assert_array_equal(renderer.draw(), ours)
        np.testing.assert_array_equal(other.render(84, 84, camera_id=0), theirs)


def test_a_renderer_may_be_used_in_another_thread(neighbours):
    renderer, _ = neighbours
    ours, theirs = renderer.draw().copy(), []
    thread = threading.Thread(target=lambda: theirs.append(renderer.draw()))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(theirs, [ours])


def test_garbage_of_dm_controls_is_not_freed_while_we_draw(neighbours, monkeypatch):
    """Freeing its context leaves none current, and OpenGL's calls fail."""
    from dm_control import suite

    renderer, _ = neighbours
    ours, render, usual = renderer.draw().copy(), renderer.render, gc.get_threshold()

    def render_with_garbage(size):
        gc.set_threshold(*usual)  # from here on it may be collected
        assert [[] for _ in range(2 * usual[0])]
        render(size)

    monkeypatch.setattr(renderer, "render", render_with_garbage)
    gc.set_threshold(10**9)
    garbage = suite.load("cartpole", "swingup", task_kwargs={"random": 1})
    garbage.physics.render(84, 84, camera_id=0)
    garbage.cycle, freed = garbage, weakref.ref(garbage)
    del garbage
    renderer.upload_texture(0)
    np.testing.assert_array_equal(renderer.draw(), ours)
    gc.collect()
    assert freed() is None


def run_python(code, **variables):
    drawing = ("MUJOCO_GL", "PYOPENGL_PLATFORM", "LP_NUM_THREADS",
               "MESA_SHADER_CACHE_DISABLE")  # fmt: skip
    settings = {name: value for name, value in os.environ.items() if name not in drawing}
    settings |= {"PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], env=settings, capture_output=True, text=True
    )


@linux_only
def test_osmesa_draws_the_same_worlds():
    if not backend._can_load("OSMesa", "libOSMesa.so.8") or backend._egl_vendor() is None:
        pytest.skip("needs libOSMesa and EGL")
    modes = [f"{name}_hard" for name in ("color", "rotate", "shift", "rotate_shift", "camera")]
    modes += [f"{name}_hard" for name in ("light_position", "light_color", "moving_light")]
    code = (
        "from svea.envs import make_env\n"
        f"for mode in {modes}:\n"
        "    env = make_env('cartpole_balance', mode, render_mode='rgb_array')\n"
        "    env.reset(seed=30)\n"
        "    for _ in range(3): seen = env.step([0.5])[0]\n"
        "    print(*seen[-3:, ::4, ::4].ravel(), env.render().std() > 5)\n"
        "    env.close()\n"
    )
    drawn = [run_python(code, MUJOCO_GL=name) for name in ("osmesa", "egl")]
    assert drawn[0].stderr == "" and drawn[0].stdout.count("True") == len(modes)
    lines = zip(modes, *(run.stdout.splitlines() for run in drawn), strict=True)
    worlds = set()
    for mode, *found in lines:
        ours, theirs = (np.array(re.findall(r"\d+", line), int) for line in found)
        assert np.abs(ours - theirs).mean() < 2, f"{mode}: the same world, however it is drawn"
        worlds.add(found[0])
    assert len(worlds) == len(modes), "each mode changes the picture in its own way"


@linux_only
def test_simulator_imported_first_by_the_user():
    """MuJoCo then fixed its own backend, which needs a screen; ours is still used."""
    code = (
        "import mujoco\n"
        "from svea.envs import make_env\n"
        "print(make_env('cartpole_balance').reset(seed=0)[0].std() > 5)"
    )
    run = run_python(code)
    assert run.stdout.split() == ["True"], run.stderr


@linux_only
def test_a_backend_that_fails_is_one_sentence(monkeypatch, physics):
    class Broken:
        def __init__(self, width, height):
            raise RuntimeError("no display")

    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setattr("mujoco.egl.GLContext", Broken)
    later = []
    monkeypatch.setattr(sys, "unraisablehook", later.append)
    world = physics("cartpole_balance")
    with pytest.raises(RendererError, match=r"'egl'.*no display.*apt-get"):
        Renderer(world.model.ptr, world.data.ptr, size=16)
    gc.collect()
    assert later == [], "and nothing more when the renderer goes"


@linux_only
def test_a_backend_that_fails_while_dm_control_is_imported_is_named_with_the_cure(monkeypatch):
    """dm_control tries EGL as it is imported, before any context of ours."""
    fake = types.ModuleType("dm_control")

    def broken(name: str) -> None:
        raise ImportError("no EGL display.")

    fake.__getattr__ = broken
    monkeypatch.setitem(sys.modules, "dm_control", fake)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(RendererError, match=r"'egl'.*no EGL display.*apt-get"):
        backend.import_suite()


# What the task is about, by the simulator's own segmentation --------------------------------------


SIZE = 48


def played(task, mode="train", **settings):
    """An environment after two decisions, and what it shows."""
    env = make_env(task, mode, image_size=SIZE, seed=3, **settings)
    env.reset(seed=3)
    for _ in range(2):
        seen, *_ = env.step(np.zeros(env.action_space.shape, np.float32))  # type: ignore[arg-type]
    return env.unwrapped, seen


@pytest.mark.parametrize(
    ("task", "kept"),
    [
        ("cartpole_swingup", {"cart", "pole_1"}),
        ("reacher_easy", {"target", "arm", "hand"}),
        ("robot_push", {"mark"}),
    ],
)
def test_the_foreground_is_what_rays_hit(task: str, kept: set[str]) -> None:
    """A second derivation without a renderer: a ray through the middle of every pixel."""
    import mujoco

    env, _ = played(task, rendering="fast")
    model, data = env.physics.model.ptr, env.physics.data.ptr
    reach = np.tan(np.radians(model.cam_fovy[0]) / 2)
    axis = ((np.arange(SIZE) + 0.5) / SIZE * 2 - 1) * reach
    visible = np.array([1, 1, 1, 0, 0, 0], np.uint8)  # groups that are drawn
    wanted, names, hit = np.zeros((SIZE, SIZE), bool), set(), np.zeros(1, np.int32)
    for row, up in enumerate(-axis):
        for column, right in enumerate(axis):
            ray = data.cam_xmat[0].reshape(3, 3) @ np.array([right, up, -1.0])
            mujoco.mj_ray(model, data, data.cam_xpos[0], ray, visible, True, -1, hit)
            geom = model.geom(int(hit[0])) if hit[0] >= 0 else None
            flat = geom is None or geom.type[0] == mujoco.mjtGeom.mjGEOM_PLANE
            table = geom is not None and geom.bodyid[0] == 0 and geom.type[0] == 6  # a box
            wanted[row, column] = not (flat or table)
            names |= {geom.name} if wanted[row, column] and geom is not None else set()
    assert kept <= names and 0 < wanted.mean() < 0.3
    differing = env.foreground() != wanted
    assert differing.mean() < 0.005, "but for pixels on an edge"
    env.close()


@pytest.mark.parametrize(
    ("mode", "rendering"), [("train", "fast"), ("video_hard", "full"), ("rotate_hard", "fast")]
)
def test_asking_for_the_foreground_leaves_no_trace(mode: str, rendering: str) -> None:
    env, plain = played("walker_walk", mode, rendering=rendering)
    foreground = env.foreground()
    assert 0.01 < foreground.mean() < 0.3
    assert (plain[-3:][:, ~foreground] > 0).mean() > 0.5, "around it there is something"
    again, *_ = env.step(np.zeros(6, np.float32))
    fresh, _ = played("walker_walk", mode, rendering=rendering)
    np.testing.assert_array_equal(fresh.step(np.zeros(6, np.float32))[0], again)
    for each in (env, fresh):
        each.close()
