"""The album: what fits goes in, the first seed of each setting first; the rest is named."""

from __future__ import annotations

import base64
import io
import re

import pytest
from fake_runs import add_media, write_run
from PIL import Image

from svea.evidence.read import read_run
from svea.evidence.report import media
from svea.evidence.report.media import Album
from svea.evidence.results import group_runs


def album_of(*folders):
    """The album of runs."""
    return Album(group_runs([read_run(folder) for folder in folders]))


def pictures(markup):
    """The embedded pictures, decoded."""
    found = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', markup)
    return [Image.open(io.BytesIO(base64.b64decode(text))) for text in found]


def test_pictures_are_what_lies_in_the_folder(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    train, test = pictures(album_of(folder).gallery())
    assert train.size == (256, 64)
    assert train.getpixel((250, 30))[0] > 200 > 60 > train.getpixel((250, 30))[1]  # red ramp
    assert test.getpixel((250, 30))[1] > 200 > 60 > test.getpixel((250, 30))[0]  # green ramp


def test_videos_are_embedded_as_they_are(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder, ("train",))
    (text,) = re.findall(r'src="data:video/mp4;base64,([^"]+)"', album_of(folder).gallery())
    assert base64.b64decode(text) == (folder / "media" / "train.mp4").read_bytes()


def test_wide_pictures_shrink_to_what_is_shown(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "media").mkdir()
    Image.new("RGB", (4000, 100)).save(folder / "media" / "train.png")
    (picture,) = pictures(album_of(folder).gallery())
    assert picture.size == (media.PICTURE_WIDTH, 24)


def test_saliency_has_a_section_of_its_own(tmp_path):
    folder = write_run(tmp_path / "a")
    assert album_of(folder).analyses() is None
    (folder / "analysis").mkdir()
    Image.new("RGB", (300, 100)).save(folder / "analysis" / "saliency-color_hard.png")
    found = album_of(folder)
    assert found.gallery() is None
    assert "saliency color_hard" in found.analyses() and len(pictures(found.analyses())) == 1


def test_first_seeds_come_before_second_ones(tmp_path, monkeypatch):
    folders = [
        write_run(tmp_path / f"{method}{seed}", method=method, seed=seed)
        for method in ("svea", "drq")
        for seed in (0, 1)
    ]
    for folder in folders:
        add_media(folder, ("train",))
    monkeypatch.setattr(media, "MOST_RUNS", 3)
    found = album_of(*folders)
    shown = re.findall(r"<h3>walker_walk · (\w+)|<summary>(seed \d)", found.gallery())
    flat = [one or other for one, other in shown]
    assert flat == ["drq", "seed 0", "seed 1", "svea", "seed 0"]
    (left,) = found.left_out
    assert left.startswith("pictures and videos of 1 run do not fit") and "svea1" in left


def test_a_video_that_lost_its_last_byte_is_not_shown(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder, ("train",))
    file = folder / "media" / "train.mp4"
    file.write_bytes(file.read_bytes()[:-1])
    assert "<video" not in album_of(folder).gallery()


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "EPS", "PPM"])
def test_only_what_svea_writes_is_decoded(tmp_path, kind):
    folder = write_run(tmp_path / "a")
    (folder / "media").mkdir()
    Image.new("RGB", (30, 10)).save(folder / "media" / "train.png", kind)
    (left,) = album_of(folder).left_out
    assert "train.png" in left and "cannot be read" in left


@pytest.mark.parametrize("damage", [b"", b"\x89PNG\r\n\x1a\n", "half", b"<html>", b"\0" * 99])
@pytest.mark.parametrize("name", ["train.png", "train.mp4"])
def test_damaged_files_are_named_and_the_rest_is_shown(tmp_path, name, damage):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    file = folder / "media" / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage == "half" else damage)
    found = album_of(folder)
    (left,) = found.left_out
    assert left.startswith(f"media/{name} of ") and "cannot be read" in left
    assert len(re.findall("<img|<video", found.gallery())) == 3
