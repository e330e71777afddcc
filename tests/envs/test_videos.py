"""The green screen against the benchmark's rule, and which frame is shown when."""

import colorsys

import numpy as np
import pytest
from PIL import Image
from small_media import full_frames, write_video
from suite_models import recompiled

from svea.core.errors import UserError
from svea.data.clips import in_folder
from svea.data.decode import resample
from svea.envs import make_env
from svea.envs.looks.videos import VideoMode, is_green
from svea.envs.rendering import Renderer

SMALL = {"image_size": 32, "rendering": "fast"}


def margin(red, green, blue):
    """How far a colour is inside (above 0) or outside the benchmark's limits, by colorsys."""
    hue, saturation, value = colorsys.rgb_to_hsv(red / 255, green / 255, blue / 255)
    hue, saturation, value = 360 * hue, 255 * saturation, 255 * value
    return min(hue - 100, 185 - hue, saturation - 80, value - 70)


def test_green_is_the_benchmarks_green():
    """Of all the colours on a grid and many at random; exact ties may round either way."""
    grid = np.stack(np.meshgrid(*[np.arange(0, 256, 15)] * 3), axis=-1).reshape(-1, 3)
    rng = np.random.default_rng(0)
    near = rng.normal([[51, 204, 51], [40, 120, 130], [20, 75, 60]], 30, (4000, 3, 3))
    colours = np.concatenate([grid, near.reshape(-1, 3).clip(0, 255)]).astype(np.uint8)
    margins = np.array([margin(*map(int, colour)) for colour in colours])
    clear = np.abs(margins) > 1e-9
    found = is_green(colours[None])[0]
    np.testing.assert_array_equal(found[clear], margins[clear] > 0)
    assert found[~clear].all()  # what lies on a limit is inside
    assert 0.1 < found.mean() < 0.9 and clear.mean() > 0.95


@pytest.mark.parametrize(
    ("domain", "task", "mode", "rendering"),
    [("walker", "walk", "video_hard", "full"), ("cartpole", "balance", "video_easy", "fast")],
)
def test_the_screen_is_that_of_a_recompiled_model(domain, task, mode, rendering):
    import mujoco

    env = make_env(f"{domain}_{task}", mode, rendering=rendering).unwrapped
    env.reset(seed=0)
    scene, files = env._scene, ["skybox", "materials"][: 1 + (mode == "video_hard")]
    green = r'(rgb1|rgb2|markrgb)="[^"]*"', r'\1=".2 .8 .2"'
    model, data = recompiled(
        domain, [(f"./common/{file}.xml", *green) for file in files], scene.data
    )
    mujoco.mj_forward(scene.model, scene.data)
    renderer = Renderer(model, data, size=84, rendering=rendering)
    np.testing.assert_array_equal(scene.renderer.draw(), renderer.draw())
    assert is_green(renderer.draw()).mean() > (0.9 if mode == "video_hard" else 0.4) - 0.3
    renderer.close()
    env.close()


@pytest.fixture
def counting_videos(tmp_path):
    """Four clips: frame k of clip n has the grey level 10 (k + 1) and n in its red channel."""
    for clip in range(4):
        (tmp_path / f"clip{clip}").mkdir()
        for frame in range(6):
            level = 10 * (frame + 1)
            picture = Image.new("RGB", (8, 8), (50 * clip, level, level))
            picture.save(tmp_path / f"clip{clip}" / f"{frame}.png")
    return tmp_path


def shown(observation):
    """Clip and frame of each stacked picture, read from a corner of the sky."""
    pixels = observation.reshape(3, 3, *observation.shape[1:])[:, :, 1, 1]
    return [(int(red) // 50, int(green) // 10 - 1) for red, green, _ in pixels]


def test_every_decision_shows_the_next_frame_and_keeps_the_stacked_ones(counting_videos):
    settings = SMALL | {"render_mode": "rgb_array"}
    env = make_env("cartpole_balance", "video_hard", videos=counting_videos, **settings)
    observation, _ = env.reset(seed=3)
    clip = shown(observation)[0][0]
    assert shown(observation) == [(clip, 0)] * 3
    frames = [0, 0, 0]
    for decision in range(1, 9):
        observation, *_ = env.step(np.zeros(1, np.float32))
        frames = [*frames[1:], decision % 6]
        assert shown(observation) == [(clip, frame) for frame in frames]
        assert env.render()[2, 2, 1] // 10 - 1 == decision % 6  # and does not move the video on
    observation, _ = env.reset(seed=3)
    assert shown(observation) == [(clip, 0)] * 3
    env.close()


def test_sequential_order_is_the_benchmarks(counting_videos):
    env = make_env(
        "cartpole_balance", "video_easy", videos=counting_videos, order="sequential", **SMALL
    )
    assert [shown(env.reset(seed=9)[0])[0][0] for _ in range(6)] == [1, 2, 3, 0, 1, 2]
    assert env.unwrapped.provenance["order"] == "sequential"
    env.close()


@pytest.mark.parametrize(("name", "count"), [("video_easy", 10), ("video_hard", 100)])
def test_clips_are_generated_without_a_data_folder_and_not_made_up_with_one(name, count, tmp_path):
    expected = {"mode": name, "source": "procedural", "clips": count, "version": 1}
    shown = {"order": "random", "worlds": count, "shown": "84 x 84"}
    assert VideoMode(name).provenance == expected | shown
    with pytest.raises(UserError, match=r"video0\.mp4"):
        VideoMode(name, tmp_path)


@pytest.fixture
def fine_video(tmp_path):
    """A folder with one clip of 354 x 200 pixels, with detail far above what 84 pixels can show."""
    picture = np.random.default_rng(0).integers(0, 256, (3, 200, 354, 3), np.uint8)
    return write_video(tmp_path / "videos" / "fine.mp4", picture)


def test_the_background_is_the_full_frame_resampled_without_smoothing(fine_video):
    originals = full_frames(fine_video)
    env = make_env(
        "cartpole_balance", "video_hard", videos=fine_video.parent, render_mode="rgb_array",
    )  # fmt: skip
    observation, _ = env.reset(seed=0)
    for frame in originals[1:]:
        observation, *_ = env.step(np.zeros(1, np.float32))
        background = resample(frame, 84).transpose(2, 0, 1)
        equal = (observation[-3:] == background).all(axis=0)
        assert equal[:20].mean() > 0.9, "no agent in the sky; a star or a shaded floor may stay"
    smooth = env.render()[:40].astype(float)
    assert np.diff(smooth, axis=1).std() < 0.2 * np.diff(background[:, :20] * 1.0, axis=2).std()
    assert env.unwrapped.provenance["stored"] == ["354 x 200"]
    assert env.unwrapped.provenance["shown"] == "84 x 84"
    env.close()


STORED = (("dmcgb", 352), ("dmcgb-84", 84))
"""Folders of clips, and the side at which they are stored."""


def test_the_benchmarks_files_are_shown_as_the_benchmark_shows_them(data_dir):
    """Its own files at full size, and copies stored at 84 pixels, which stay as they are."""
    folders = [(data_dir / name / "video_hard", stored) for name, stored in STORED]
    if missing := [folder for folder, _ in folders if not folder.is_dir()]:
        pytest.skip(f"needs clips in {missing[0]}")
    for folder, stored in folders:
        clips = in_folder(folder)
        number = clips.names.index("video9.mp4")
        frames, clip = full_frames(folder / "video9.mp4"), clips.open(number, 84, smooth=False)
        assert len(clip) == len(frames) == 500 and frames.shape[1:] == (stored, stored, 3)
        for index in (0, 123, 499):
            np.testing.assert_array_equal(clip.frame(index), resample(frames[index], 84))


def test_a_damaged_clip_is_reported_by_reset(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(b"")
    env = make_env("cartpole_balance", "video_easy", videos=tmp_path, **SMALL)
    with pytest.raises(UserError, match=r"clip\.mp4"):
        env.reset(seed=0)
    env.close()
