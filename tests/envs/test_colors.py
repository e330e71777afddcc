"""The colour modes against re-compiled models, and the settings they show."""

import json

import numpy as np
import pytest
from suite_models import recompiled

from svea.config.modes import COLOR_MODES
from svea.core.errors import UserError
from svea.envs import PAPER_TASKS, TASKS, make_env, prepare_simulator
from svea.envs.looks.colors import ColorMode, texture
from svea.envs.rendering import Renderer

# The hash of each table as JSON, converted from the benchmark's files.
GOLDEN = {
    "color_easy": "636a040f62895476b30fd4f3b8f35203c4a32d0fb22e20731bc1ccc6360c6e02",
    "color_hard": "f9e53dd05678b672b0e34831b3a70ffeb32c12862e80805735440aac46a47a00",
}


def edits(setting):
    """How the benchmark edits the suite's XML."""
    color = {key: " ".join(map(repr, channels)) for key, channels in setting.items()}
    body = 'name="self" rgba="{} 1"'.format
    return [
        ("./common/skybox.xml", 'rgb1=".4 .6 .8"', f'rgb1="{color["skybox_rgb"]}"'),
        ("./common/materials.xml", 'rgb1=".1 .2 .3"', f'rgb1="{color["grid_rgb1"]}"'),
        ("./common/materials.xml", 'rgb2=".2 .3 .4"', f'rgb2="{color["grid_rgb2"]}"'),
        ("./common/materials.xml", body(".7 .5 .3"), body(color["self_rgb"])),
    ]


@pytest.mark.parametrize(
    ("domain", "rendering"),
    [("walker", "full"), ("cartpole", "fast"), ("ball_in_cup", "full"), ("finger", "fast")],
)
def test_pixels_are_those_of_a_recompiled_model(domain, rendering):
    import mujoco

    task = next(task for task in PAPER_TASKS if task.startswith(domain))
    env = make_env(task, "color_hard", rendering=rendering)
    scene = env.unwrapped._scene
    # The first episode's colours must leave no trace in the second's.
    env.reset(seed=0)
    env.reset(seed=1)
    env.step(env.action_space.high)
    for setting in env.unwrapped.mode.settings[:2]:
        env.unwrapped.mode.apply(scene, setting)
        model, data = recompiled(domain, edits(setting), scene.data)
        model.site_rgba[:] = scene.model.site_rgba  # finger_spin hides its target
        renderer = Renderer(model, data, size=84, rendering=rendering)
        visible = scene.renderer.visible_sky_faces()
        skies = (texture(each, each.tex("skybox").id) for each in (scene.model, model))
        ours, theirs = (sky.reshape(6, -1)[visible] for sky in skies)
        np.testing.assert_array_equal(ours, theirs)
        grid = model.tex("grid").id
        np.testing.assert_array_equal(texture(scene.model, grid), texture(model, grid))
        np.testing.assert_array_equal(scene.model.mat_rgba, model.mat_rgba)
        mujoco.mj_forward(scene.model, scene.data)
        for size in (84, 240) if rendering == "fast" else (84,):
            np.testing.assert_array_equal(scene.renderer.draw(size), renderer.draw(size))
        renderer.close()
    env.close()


@pytest.mark.parametrize(
    "task",
    ["walker_walk", "finger_spin"] + [pytest.param(task, marks=pytest.mark.slow) for task in TASKS],
)
def test_sides_of_the_sky_that_are_not_sent_are_not_seen(task):
    """Every side that is not among the visible ones may have any colour."""
    env = make_env(task, image_size=64, rendering="fast").unwrapped
    env.reset(seed=0)
    model, renderer = env._scene.model, env._scene.renderer
    sky = model.tex("skybox").id
    faces = texture(model, sky).reshape(6, -1)
    hidden = [face for face in range(6) if face not in renderer.visible_sky_faces()]
    assert len(hidden) >= 4
    pictures = []
    for color in (0, 255):
        faces[hidden] = color
        renderer.upload_texture(sky)
        pictures.append(renderer.draw(240).copy())
    np.testing.assert_array_equal(*pictures)
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_writing_the_suites_own_colors_changes_nothing(task):
    """In every domain: sky, floor and agent are what the mode believes them to be."""
    env = make_env(task, "train", rendering="fast").unwrapped
    env.reset(seed=0)
    model = env._scene.model
    before, colors = model.tex_data.copy(), model.mat_rgba.copy()
    mode = ColorMode("color_hard")
    mode.prepare(model, "any")
    own = {"grid_rgb1": [0.1, 0.2, 0.3], "grid_rgb2": [0.2, 0.3, 0.4]}
    own |= {"self_rgb": [0.7, 0.5, 0.3], "skybox_rgb": [0.4, 0.6, 0.8]}
    mode.apply(env._scene, own)
    np.testing.assert_array_equal(model.tex_data, before)
    np.testing.assert_array_equal(model.mat_rgba, colors)
    env.close()


@pytest.mark.parametrize("mode", COLOR_MODES)
def test_the_settings_are_the_stored_ones(mode):
    provenance = ColorMode(mode).provenance
    assert (provenance["worlds"], provenance["sha256"]) == (100, GOLDEN[mode])


@pytest.mark.parametrize("mode", COLOR_MODES)
def test_the_numbers_are_those_of_the_benchmarks_files(data_dir, mode):
    assert ColorMode(mode).settings == json.loads((data_dir / f"dmcgb/{mode}.json").read_text())


def test_a_model_without_the_textures_is_refused():
    prepare_simulator()
    import mujoco

    with pytest.raises(UserError, match="color_easy"):
        ColorMode("color_easy").prepare(mujoco.MjModel.from_xml_string("<mujoco/>"), "any")
