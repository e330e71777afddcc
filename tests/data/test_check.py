"""`svea data`: what is said of a folder is what the loaders find in it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from archive_server import legacy_arrays, make_tar, make_zip, save_legacy, send, serve, status
from PIL import Image

from svea.data import check, downloads, inventory
from svea.data.archives import ArchiveError
from svea.data.check import check_data, get_data, list_data
from svea.data.downloads import SOURCES, DownloadError, Source
from svea.envs.looks.colors import ColorMode, generate_settings
from svea.envs.looks.distracting import DAVIS, DistractingMode
from svea.envs.looks.videos import VideoMode
from svea.errors import StorageError, UserError


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))


@pytest.fixture(scope="session")
def video(tmp_path_factory) -> bytes:
    """Five frames of 16 x 16 pixels."""
    from imageio_ffmpeg import get_ffmpeg_exe

    path = tmp_path_factory.mktemp("video") / "v.mp4"
    command = [get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "testsrc=size=16x16:rate=5"]
    subprocess.run([*command, "-frames:v", "5", str(path)], check=True, stdin=subprocess.DEVNULL)
    return path.read_bytes()


def picture(folder: Path, name: str, width: int = 40, height: int = 40) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(noise).save(path)
    return path


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def folder(tmp_path, video) -> Path:
    """A sound data folder with something of everything."""
    put(tmp_path / "dmcgb/color_easy.json", json.dumps(generate_settings(0.1)))
    put(tmp_path / "dmcgb/video_easy/video0.mp4", video)
    put(tmp_path / "dmcgb/video_easy/video9.mp4", video)
    picture(tmp_path, f"DAVIS/JPEGImages/480p/{DAVIS[0]}/00000.jpg")
    picture(tmp_path, f"DAVIS/JPEGImages/480p/{DAVIS[0]}/00001.jpg")
    picture(tmp_path, "photos/sub/a.png")
    picture(tmp_path, "photos/b.jpg")
    return tmp_path


def parts(root: Path) -> dict[str, inventory.Part]:
    return {part.name: part for part in inventory.inventory(root)}


class TestInventory:
    def test_counts_and_missing_names(self, folder):
        found = parts(folder)
        assert {name: part.summary for name, part in found.items()} == {
            "color_easy": "1 of 1 tables",
            "color_hard": "no tables",
            "video_easy": "2 of 10 clips",
            "video_hard": "no clips",
            "distracting_cs": "1 of 60 clips",
            "overlay": "2 pictures",
        }
        assert found["video_easy"].missing == tuple(f"video{i}" for i in range(1, 9))
        assert found["color_hard"].missing == ("color_hard.json",)
        assert found["video_hard"].missing == tuple(f"video{i}" for i in range(100))
        assert found["distracting_cs"].missing == DAVIS[1:]

    def test_it_agrees_with_the_modes(self, folder):
        found = parts(folder)
        easy = VideoMode("video_easy", folder).provenance
        assert (easy["clips"], tuple(easy["missing"])) == (2, found["video_easy"].missing)
        davis = DistractingMode(data_dir=folder, intensity=0.5).provenance
        assert davis["of"] == 60
        assert davis["clips"] == found["distracting_cs"].count
        with pytest.raises(UserError):
            VideoMode("video_hard", folder)

    def test_it_agrees_with_the_image_bank(self, folder):
        images = pytest.importorskip("svea.augment.images", exc_type=ImportError)
        bank = images.ImageBank.find(data_dir=folder)
        assert len(bank.pictures) == parts(folder)["overlay"].count

    def test_a_folders_hash_is_that_of_sha256sum(self, folder):
        lines = [f"{hashlib.sha256((folder / 'photos' / n).read_bytes()).hexdigest()}  {n}\n"
                 for n in ("b.jpg", "sub/a.png")]  # fmt: skip
        expected = hashlib.sha256("".join(lines).encode()).hexdigest()
        assert inventory.content_sha256(folder / "photos") == expected

    def test_torch_is_not_needed(self):
        code = "import svea.data.check, sys; sys.exit('torch' in sys.modules)"
        source = Path(check.__file__).parents[1]
        subprocess.run([sys.executable, "-c", code], check=True, cwd=source)


class TestList:
    def test_names_what_is_missing_and_how_to_get_it(self, folder, capsys):
        assert list_data(str(folder)) == 0
        out = capsys.readouterr().out
        assert "missing: video1, video2, video3, video4, video5, video6, video7, video8\n" in out
        assert "mode distracting_cs" in out
        assert "augmentation overlay" in out
        assert "svea data get dmcgb FOLDER\n" in out  # not this one: it has a part of it
        assert "places365-val" not in out  # photos will do

    def test_the_variable_is_used_and_the_argument_beats_it(self, folder, monkeypatch, capsys):
        monkeypatch.setenv("SVEA_DATA", str(folder))
        list_data(None)
        assert "2 of 10 clips" in capsys.readouterr().out
        (folder / "empty").mkdir()
        list_data(str(folder / "empty"))
        out = capsys.readouterr().out
        assert "2 of 10 clips" not in out
        assert "refused with this folder" in out

    def test_no_folder_is_no_error_but_a_wrong_one_is(self, monkeypatch, capsys):
        monkeypatch.delenv("SVEA_DATA", raising=False)
        assert list_data(None) == 0
        out = capsys.readouterr().out
        assert all(f"svea data get {name} FOLDER" in out for name in SOURCES)
        assert "refused" not in out
        with pytest.raises(UserError, match="not a folder"):
            list_data("/nowhere")
        monkeypatch.setenv("SVEA_DATA", "/nowhere")
        with pytest.raises(UserError, match="SVEA_DATA"):
            list_data(None)


def problems(folder: Path, capsys) -> list[str]:
    """The lines of the problems, without the folder's name."""
    code = check_data(folder)
    lines = capsys.readouterr().out.splitlines()
    found = [line.replace(str(folder), "") for line in lines if line.startswith("problem")]
    assert code == (2 if found else 0)
    return found


class TestCheck:
    def test_a_sound_folder_is_hashed_file_by_file(self, folder, capsys):
        assert check_data(folder) == 0
        out = capsys.readouterr().out
        sha256 = hashlib.sha256((folder / "dmcgb/video_easy/video0.mp4").read_bytes()).hexdigest()
        assert f"ok       dmcgb/video_easy/video0.mp4  5 frames  sha256 {sha256}  unverified" in out
        assert "dmcgb/color_easy.json  100 settings" in out
        assert "480p/bear  2 frames" in out
        assert "photos  2 sound pictures" in out
        assert "note: video_easy has 2 of 10 clips" in out

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (json.dumps(generate_settings(0.1)[:99]), "99 settings"),
            (json.dumps(generate_settings(0.1)).replace("0.", "7.", 1), "0 to 1"),
            (json.dumps(generate_settings(0.1)).replace("self_rgb", "self", 1), "self_rgb"),
            ("[" * 100_000, "unsound"),
            ("[NaN]", "unsound"),
            ("", "unsound"),
            (b"\xff\xfe", "unsound"),
            (" " * (2**20 + 1), "too large"),
        ],
        ids=["99", "range", "key", "deep", "nan", "empty", "bytes", "large"],
    )
    def test_unsound_tables(self, folder, capsys, content, words):
        put(folder / "dmcgb/color_easy.json", content)
        (line,) = problems(folder, capsys)
        assert "dmcgb/color_easy.json" in line
        assert words in line

    def test_each_unsound_clip_is_named(self, folder, video, capsys):
        put(folder / "dmcgb/video_easy/video1.mp4", b"")
        put(folder / "dmcgb/video_easy/video2.mp4", video[: len(video) // 2])
        put(folder / "dmcgb/video_hard/video3.mp4", b"#EXTM3U\nfile:///etc/passwd\n")
        put(folder / f"DAVIS/JPEGImages/480p/{DAVIS[0]}/00001.jpg", b"no picture")
        picture(folder, f"davis/{DAVIS[1]}/0.jpg")
        found = problems(folder, capsys)
        assert [line.split()[1] for line in found] == [
            "dmcgb/video_easy/video1.mp4",
            "dmcgb/video_easy/video2.mp4",
            "dmcgb/video_hard/video3.mp4",
            f"DAVIS/JPEGImages/480p/{DAVIS[0]}",
            f"davis/{DAVIS[1]}",
        ]
        assert "1 frames" in found[-1]

    def test_each_unsound_picture_is_named(self, folder, capsys):
        picture(folder, "photos/small.png", 31, 400)
        Image.new("RGB", (4096, 2305)).save(folder / "photos/large.png")
        put(folder / "photos/cut.jpg", (folder / "photos/b.jpg").read_bytes()[:-400])
        put(folder / "photos/text.jpg", b"hello")
        os.mkfifo(folder / "photos/pipe.jpg")
        found = [line.split(maxsplit=2)[1:] for line in problems(folder, capsys)]
        assert [name for name, _ in found] == [
            "photos/cut.jpg", "photos/large.png", "photos/pipe.jpg", "photos/small.png",
            "photos/text.jpg",
        ]  # fmt: skip
        words = ["damaged", "4096 x 2305", "no file", "too small", "no picture"]
        assert all(word in text for word, (_, text) in zip(words, found, strict=True))

    def test_names_that_no_mode_reads_are_noted(self, folder, video, capsys):
        put(folder / "dmcgb/video_easy/video10.mp4", video)
        put(folder / "dmcgb/color_hard.pt", b"")
        assert check_data(folder) == 0
        out = capsys.readouterr().out
        assert "note: dmcgb/video_easy/video10.mp4 is not read" in out
        assert "note: dmcgb/color_hard.pt is not read" in out

    def test_folders_with_nothing_to_check(self, tmp_path):
        with pytest.raises(UserError, match=r"nothing in .* docs/data.md"):
            check_data(tmp_path)
        (tmp_path / "src/env/data").mkdir(parents=True)
        with pytest.raises(UserError, match="repository of DMControl-GB"):
            check_data(tmp_path)
        with pytest.raises(UserError, match="not a folder"):
            check_data(tmp_path / "nowhere")

    def test_the_real_tables_and_some_real_clips(self, data_dir, tmp_path, capsys):
        for name in ("dmcgb/color_easy.json", "dmcgb/color_hard.json", "davis/bear.mp4"):
            put(tmp_path / name, (data_dir / name).read_bytes())
        assert problems(tmp_path, capsys) == []


# --- getting --------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(tmp_path_factory, video) -> bytes:
    """The benchmark's repository as an archive."""
    table = save_legacy(
        tmp_path_factory.mktemp("pt") / "t.pt", legacy_arrays(generate_settings(0.1))
    )
    top = "dmcontrol-generalization-benchmark-main"
    return make_zip(
        (f"{top}/", b""),
        (f"{top}/LICENSE", b"MIT"),
        (f"{top}/src/train.py", b"raise SystemExit"),
        (f"{top}/src/env/data/color_easy.pt", table.read_bytes()),
        (f"{top}/src/env/data/color_hard.pt", b"garbage"),
        (f"{top}/src/env/data/video_easy/video0.mp4", video),
        (f"{top}/src/env/data/video_hard/video99.mp4", video),
    )


def get(name: str, folder: Path, url: str, md5: str | None = None) -> int:
    sources: dict[str, Source] = dict(SOURCES)
    sources[name] = replace(SOURCES[name], url=url, md5=md5, size=100_000)
    return get_data(name, folder, sources=sources, loopback=True)


class TestGet:
    def test_the_benchmark_arrives_in_the_layout_that_the_modes_read(
        self, tmp_path, benchmark, capsys
    ):
        root = tmp_path / "new" / "data"
        with serve(send(benchmark, cut=700), send(benchmark)) as server:
            assert get("dmcgb", root, server.url) == 0
        out = capsys.readouterr().out
        assert ColorMode("color_easy", root).settings == generate_settings(0.1)
        assert VideoMode("video_hard", root).provenance["clips"] == 1
        assert "left out" in out  # the garbage
        assert "unverified" in out
        files = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
        assert files == [
            "dmcgb/LICENSE", "dmcgb/color_easy.json", "dmcgb/video_easy/video0.mp4",
            "dmcgb/video_hard/video99.mp4", "downloads.json",
        ]  # fmt: skip
        record = json.loads((root / "downloads.json").read_text())["dmcgb"]
        assert record["sha256"] == hashlib.sha256(benchmark).hexdigest()
        assert record["url"] == server.url
        assert record["verified_md5"] is None

    def test_what_was_downloaded_is_compared_afterwards(self, tmp_path, benchmark, video, capsys):
        with serve(send(benchmark)) as server:
            get("dmcgb", tmp_path, server.url)
        capsys.readouterr()
        assert check_data(tmp_path) == 0
        out = capsys.readouterr().out
        assert out.count("as downloaded") == 3
        assert "unverified" not in out
        put(tmp_path / "dmcgb/video_easy/video0.mp4", video + b"\0" * 8)
        (line,) = problems(tmp_path, capsys)
        assert "video0.mp4" in line
        put(tmp_path / "downloads.json", "{")
        (line,) = problems(tmp_path, capsys)
        assert "downloads.json" in line
        with pytest.raises(StorageError, match=r"downloads.json is damaged"):
            get("davis", tmp_path, server.url)

    def test_davis_and_places_are_read_where_they_land(self, tmp_path, capsys):
        frame = picture(tmp_path, "frame.jpg").read_bytes()
        clip, other = f"DAVIS/JPEGImages/480p/{DAVIS[59]}", "DAVIS/JPEGImages/480p/blackswan"
        davis = make_zip(
            *((f"{clip}/{i:05}.jpg", frame) for i in range(3)),
            (f"{other}/00000.jpg", frame),  # a validation clip
            (f"DAVIS/Annotations/480p/{DAVIS[59]}/00000.png", b""),
        )
        places = make_tar(*((f"val_256/Places365_val_{i:08}.jpg", frame) for i in range(1, 4)))
        with serve(send(davis)) as server:
            get("davis", tmp_path, server.url)
        with serve(send(places)) as server:
            get("places365-val", tmp_path, server.url, hashlib.md5(places).hexdigest())
        assert "as published" in capsys.readouterr().out
        found = parts(tmp_path)
        assert found["distracting_cs"].summary == "1 of 60 clips"
        assert found["overlay"].summary == "3 pictures"
        assert not (tmp_path / other).exists()
        assert check_data(tmp_path) == 0
        assert capsys.readouterr().out.count("as downloaded") == 2
        assert set(json.loads((tmp_path / "downloads.json").read_text())) == {
            "davis",
            "places365-val",
        }

    def test_wrong_bytes_leave_nothing_and_the_next_try_is_fresh(self, tmp_path):
        frame = picture(tmp_path, "frame.jpg").read_bytes()
        places = make_tar(("val_256/Places365_val_00000001.jpg", frame))
        md5 = hashlib.md5(places).hexdigest()
        with serve(send(places[:-1] + b"?"), send(places)) as server:
            with pytest.raises(DownloadError, match="md5"):
                get("places365-val", tmp_path, server.url, md5)
            assert not (tmp_path / "places365_standard").exists()
            assert get("places365-val", tmp_path, server.url, md5) == 0

    @pytest.mark.parametrize(
        "hostile",
        [
            make_zip(("x/src/env/data/../../../../evil", b"evil")),
            make_zip(("/evil", b"evil")),
            make_zip(("x/src/env/data/video_easy/video0.mp4", bytes(500_000))),
            b"<html>please log in</html>",
            b"",
        ],
        ids=["dots", "absolute", "bomb", "page", "empty"],
    )
    def test_hostile_archives_leave_nothing(self, tmp_path, hostile):
        root = tmp_path / "root"
        with serve(send(hostile)) as server, pytest.raises(ArchiveError, match="It was deleted"):
            get("dmcgb", root, server.url)
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
        assert not (root / "dmcgb").exists()

    def test_an_archive_that_is_there_is_not_fetched_again(self, tmp_path, benchmark):
        put(tmp_path / ".downloads/dmcgb.zip", benchmark)
        put(tmp_path / ".downloads/dmcgb/half-unpacked", b"")
        with serve(status(500)) as server:
            assert get("dmcgb", tmp_path, server.url) == 0
        assert server.requests == []
        assert not (tmp_path / "dmcgb/half-unpacked").exists()

    def test_what_exists_is_not_written_over(self, folder):
        before = inventory.content_sha256(folder / "dmcgb/color_easy.json")
        with pytest.raises(UserError, match="exists"):
            get_data("dmcgb", folder)
        assert inventory.content_sha256(folder / "dmcgb/color_easy.json") == before

    def test_typing_errors_are_met_with_a_suggestion(self, tmp_path):
        with pytest.raises(UserError, match=r"Did you mean 'places365-val'"):
            get_data("places365_val", tmp_path)

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        put(tmp_path / "file", b"")
        with pytest.raises(StorageError, match="file"):
            get_data("dmcgb", tmp_path / "file" / "below")
