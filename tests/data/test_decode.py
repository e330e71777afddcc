"""Decoding: what is accepted, and what is said of the rest."""

import numpy as np
import pytest
from PIL import Image
from small_media import picture, put, write_video

from svea.data.clips import in_folder
from svea.data.decode import OVERLAY_SIDE as SIDE
from svea.data.decode import (
    read_key_frames,
    read_picture,
    resample,
    stored_size,
)


def test_a_picture_is_cut_to_its_middle_square(tmp_path):
    wide = np.zeros((SIDE, 3 * SIDE, 3), np.uint8)
    wide[:, SIDE : 2 * SIDE] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    square = read_picture(tmp_path / "wide.png")
    assert square.shape == (SIDE, SIDE, 3) and square.min() == 200
    assert read_picture(tmp_path / "wide.png", side=40).shape == (40, 40, 3)


def test_key_frames_of_a_video_and_of_garbage(tmp_path, video):
    (frame,) = read_key_frames(put(tmp_path / "v.mp4", video))
    assert frame.shape == (SIDE, SIDE, 3)
    assert read_key_frames(put(tmp_path / "g.mp4", b"garbage")) == []


@pytest.mark.parametrize("side", [84, 96, 100])
@pytest.mark.parametrize(("height", "width"), [(352, 352), (240, 218), (60, 90)])
def test_resampling_is_torchs_interpolation_without_smoothing(height, width, side):
    """In the benchmark's words. Where the exact value is a whole number, as in flat regions, the
    last bit of torch's arithmetic, which depends on the machine, decides about the byte.
    """
    import torch

    frame = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    frame[: height // 3] = 80

    def interpolate(dtype):
        x = torch.from_numpy(frame.transpose(2, 0, 1).copy()).to(dtype)[None] / 255
        size = (side, side)
        x = torch.nn.functional.interpolate(x, size, mode="bilinear", align_corners=False) * 255
        return x[0].permute(1, 2, 0)

    ours, theirs = resample(frame, side), interpolate(torch.float32).byte().numpy()
    exact = interpolate(torch.float64).numpy()
    clear = np.abs(exact - exact.round()) > 0.01
    assert ours.shape == (side, side, 3) and ours.dtype == np.uint8
    np.testing.assert_array_equal(ours[clear], theirs[clear])
    assert np.abs(ours.astype(int) - theirs).max() <= 1 and clear.mean() > 0.4


def test_a_frame_of_the_size_asked_for_is_shown_as_it_is():
    frame = np.random.default_rng(0).integers(0, 256, (84, 84, 3), np.uint8)
    np.testing.assert_array_equal(resample(frame, 84), frame)


def test_a_clip_takes_the_memory_of_what_is_shown(tmp_path):
    write_video(tmp_path / "a.mp4", np.zeros((4, 352, 352, 3), np.uint8))
    clip = in_folder(tmp_path).open(0, 84, smooth=False)
    assert len(clip) == 4 and clip.size == sum(clip.frame(k).nbytes for k in range(4)) == 84672
    assert all(clip.frame(k).base is None or clip.frame(k).base.nbytes < 25_000 for k in range(4))


def test_the_stored_size_is_read_from_the_header(tmp_path):
    video = write_video(tmp_path / "a.mp4", np.zeros((2, 48, 64, 3), np.uint8))
    assert stored_size(video) == (64, 48)
    assert stored_size(picture(tmp_path, "b.png", 30, 20)) == (30, 20)
    whole = video.read_bytes()
    for name, content in {"half.mp4": whole[: len(whole) // 2], "none.mp4": b"", "x.mkv": b"1" * 99,
                          "loop.mp4": b"\0" * 4096, "bad.png": b"no"}.items():  # fmt: skip
        assert stored_size(put(tmp_path / name, content)) is None, name
