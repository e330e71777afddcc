"""Decoding: what is accepted, and what is said of the rest."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from small_media import picture, put

from svea.data.decode import SIDE, DecodeError, check_picture, read_key_frames, read_picture


def test_a_picture_is_stretched_or_cut_to_a_square(tmp_path):
    wide = np.zeros((SIDE, 3 * SIDE, 3), np.uint8)
    wide[:, SIDE : 2 * SIDE] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert read_picture(tmp_path / "wide.png", square=True).min() == 200
    stretched = read_picture(tmp_path / "wide.png")
    assert stretched.shape == (SIDE, SIDE, 3)
    assert stretched[:, 0].max() == 0 and stretched[:, SIDE // 2].min() == 200


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not a picture"), (b"GIF89a", "not a picture"), (None, "not a file")],
)
def test_what_is_not_a_picture_is_named(tmp_path, content, words):
    path = tmp_path / "x.png"
    if content is not None:
        put(path, content)
    with pytest.raises(DecodeError, match=words):
        read_picture(path)


def test_limits_are_the_same_for_reading_and_for_checking(tmp_path, monkeypatch):
    monkeypatch.setattr("svea.data.decode.MOST_PICTURE_PIXELS", 50 * 50)
    large, small = picture(tmp_path, "large.png", 51, 50), picture(tmp_path, "small.png", 31, 40)
    for use in (read_picture, check_picture):
        with pytest.raises(DecodeError, match="too large: 51 x 50"):
            use(large)
    with pytest.raises(DecodeError, match="too small: 31 x 40"):
        check_picture(small)
    assert read_picture(small).shape == (SIDE, SIDE, 3)


def test_key_frames_of_a_video_and_of_garbage(tmp_path, video):
    assert read_key_frames(put(tmp_path / "v.mp4", video)).shape == (1, SIDE, SIDE, 3)
    assert len(read_key_frames(put(tmp_path / "g.mp4", b"garbage"))) == 0
