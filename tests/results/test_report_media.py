"""Media on the page: what fits goes in, the first seed of each setting first; the rest is named."""

import base64
import io

import pytest
from fake_runs import add_media, write_run
from PIL import Image

from svea.results import report
from svea.results.groups import group_runs
from svea.results.read import read_run


def embedded(*folders):
    """The bytes of each file on the page, by its path in the run's folder; and what is left out."""
    groups = group_runs([read_run(folder) for folder in folders])
    sources, left_out = report.embed(groups)
    return {
        f"{file.parent.parent.name}/{file.name}": base64.b64decode(source.partition("base64,")[2])
        for file, source in sources.items()
    }, left_out


def test_pictures_and_videos_are_what_lies_in_the_folder(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    found, _ = embedded(folder)
    train, test = (
        Image.open(io.BytesIO(found[f"a/{mode}.png"])) for mode in ("train", "color_hard")
    )
    assert train.size == (256, 64)
    assert train.getpixel((250, 30))[0] > 200 > 60 > train.getpixel((250, 30))[1]  # red ramp
    assert test.getpixel((250, 30))[1] > 200 > 60 > test.getpixel((250, 30))[0]  # green ramp
    assert found["a/train.mp4"] == (folder / "media" / "train.mp4").read_bytes()


def test_saliency_has_a_section_of_its_own(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "analysis").mkdir()
    Image.new("RGB", (300, 100)).save(folder / "analysis" / "saliency-color_hard.png")
    page = report.report(folder, tmp_path / "report.html").read_text()
    assert 'id="saliency"' in page and "saliency color_hard" in page and 'id="gallery"' not in page


def test_first_seeds_come_before_second_ones(tmp_path, monkeypatch):
    folders = [
        write_run(tmp_path / f"{method}{seed}", method=method, seed=seed)
        for method in ("svea", "drq")
        for seed in (0, 1)
    ]
    for folder in folders:
        add_media(folder, ("train",))
    monkeypatch.setattr(report, "MOST_RUNS", 3)
    found, (left,) = embedded(*folders)
    shown = [name.partition("/")[0] for name in found if name.endswith(".mp4")]
    assert shown == ["drq0", "svea0", "drq1"]
    assert left.startswith("pictures and videos of 1 run do not fit") and "svea1" in left


def picture(kind):
    """What another program may have written."""
    Image.new("RGB", (30, 10)).save(content := io.BytesIO(), kind)
    return content.getvalue()


KINDS = {kind: picture(kind) for kind in ("GIF", "TIFF", "EPS", "PPM")}
DAMAGED = {"empty": b"", "head": b"\x89PNG\r\n\x1a\n", "half": picture("PNG")[:40], "0": b"\0" * 99}


@pytest.mark.parametrize("content", (KINDS | DAMAGED).values(), ids=KINDS | DAMAGED)
def test_only_what_svea_writes_is_decoded_and_the_rest_is_shown(tmp_path, content):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    (folder / "media" / "train.png").write_bytes(content)
    found, (left,) = embedded(folder)
    assert left.startswith("media/train.png of ") and "cannot be read" in left
    assert sorted(found) == ["a/color_hard.mp4", "a/color_hard.png", "a/train.mp4"]
