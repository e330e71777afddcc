"""Media on the page: what fits goes in, the first seed of each setting first; the rest is named."""

from __future__ import annotations

import base64
import io

import pytest
from fake_runs import add_media, write_run
from PIL import Image

from svea.results.groups import group_runs
from svea.results.read import read_run
from svea.results.report import media
from svea.results.report.media import Media


def media_of(*folders):
    """The media of runs."""
    return Media(group_runs([read_run(folder) for folder in folders]))


def sources(blocks, kind):
    """The data URLs of one kind."""
    shown = [one for _, seeds in blocks for _, members in seeds for one in members]
    return [getattr(one, kind) for one in shown if getattr(one, kind)]


def decoded(source):
    """The bytes of a data URL."""
    return base64.b64decode(source.partition("base64,")[2])


def pictures(blocks):
    """The embedded pictures, decoded."""
    return [Image.open(io.BytesIO(decoded(source))) for source in sources(blocks, "frames")]


def test_pictures_are_what_lies_in_the_folder(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    train, test = pictures(media_of(folder).of_modes())
    assert train.size == (256, 64)
    assert train.getpixel((250, 30))[0] > 200 > 60 > train.getpixel((250, 30))[1]  # red ramp
    assert test.getpixel((250, 30))[1] > 200 > 60 > test.getpixel((250, 30))[0]  # green ramp


def test_videos_are_embedded_as_they_are(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder, ("train",))
    (source,) = sources(media_of(folder).of_modes(), "video")
    assert decoded(source) == (folder / "media" / "train.mp4").read_bytes()


def test_saliency_has_a_section_of_its_own(tmp_path):
    folder = write_run(tmp_path / "a")
    assert media_of(folder).of_analyses() == []
    (folder / "analysis").mkdir()
    Image.new("RGB", (300, 100)).save(folder / "analysis" / "saliency-color_hard.png")
    found = media_of(folder)
    assert found.of_modes() == []
    ((_, ((_, (picture,)),)),) = found.of_analyses()
    assert picture.caption == "saliency color_hard" and len(pictures(found.of_analyses())) == 1


def test_first_seeds_come_before_second_ones(tmp_path, monkeypatch):
    folders = [
        write_run(tmp_path / f"{method}{seed}", method=method, seed=seed)
        for method in ("svea", "drq")
        for seed in (0, 1)
    ]
    for folder in folders:
        add_media(folder, ("train",))
    monkeypatch.setattr(media, "MOST_RUNS", 3)
    found = media_of(*folders)
    shown = [(group.method, [run.seed for run, _ in seeds]) for group, seeds in found.of_modes()]
    assert shown == [("drq", [0, 1]), ("svea", [0])]
    (left,) = found.left_out
    assert left.startswith("pictures and videos of 1 run do not fit") and "svea1" in left


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "EPS", "PPM"])
def test_only_what_svea_writes_is_decoded(tmp_path, kind):
    folder = write_run(tmp_path / "a")
    (folder / "media").mkdir()
    Image.new("RGB", (30, 10)).save(folder / "media" / "train.png", kind)
    (left,) = media_of(folder).left_out
    assert "train.png" in left and "cannot be read" in left


@pytest.mark.parametrize("damage", [b"", b"\x89PNG\r\n\x1a\n", "half", b"<html>", b"\0" * 99])
def test_damaged_pictures_are_named_and_the_rest_is_shown(tmp_path, damage):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    file = folder / "media" / "train.png"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage == "half" else damage)
    found = media_of(folder)
    (left,) = found.left_out
    assert left.startswith("media/train.png of ") and "cannot be read" in left
    shown = found.of_modes()
    assert (len(sources(shown, "frames")), len(sources(shown, "video"))) == (1, 2)
