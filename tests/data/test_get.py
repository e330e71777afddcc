"""`svea data get`: what arrives, and what a bad network, server, archive or disk leaves behind."""

import errno
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archive_server import make_tar, make_zip, send, serve, status
from small_media import picture, put

from svea.cli import main
from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.data import get as getting
from svea.data import inventory
from svea.data.clips import DAVIS
from svea.data.get import SOURCES, Source, fetch, get_data, unpack
from svea.envs.looks.videos import VideoMode


@pytest.fixture
def benchmark(video: bytes) -> bytes:
    """The benchmark's repository as an archive."""
    top = "dmcontrol-generalization-benchmark-main"
    return make_zip(
        (f"{top}/", b""),
        (f"{top}/LICENSE", b"MIT"),
        (f"{top}/src/train.py", b"raise SystemExit"),
        (f"{top}/src/env/data/video_easy/video0.mp4", video),
        (f"{top}/src/env/data/video_hard/video99.mp4", video),
    )


Get = Callable[..., dict[str, Any]]


@pytest.fixture
def get(monkeypatch: pytest.MonkeyPatch) -> Get:
    """Download a data set from another address."""

    def get(name: str, folder: Path, url: str, checksum: str | None = None) -> dict[str, Any]:
        there = replace(SOURCES[name], url=url, checksum=checksum, size=100_000)
        monkeypatch.setitem(SOURCES, name, there)
        return get_data(name, folder)

    return get


def problems(folder: Path) -> list[str]:
    return [found.name for found in inventory.check(folder) if found.problem]


def left(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


class TestGet:
    def test_the_benchmark_arrives_as_modes_read_it(self, tmp_path, benchmark, monkeypatch, capsys):
        root = tmp_path / "new" / "data"
        with serve(send(benchmark)) as server:
            monkeypatch.setitem(SOURCES, "dmcgb", replace(SOURCES["dmcgb"], url=server.url))
            assert main(["data", "get", "dmcgb", str(root)]) == 0
        assert f"--data-dir {root}" in capsys.readouterr().out
        assert VideoMode("video_hard", root).provenance["clips"] == 1
        assert left(root) == [
            "dmcgb/LICENSE", "dmcgb/video_easy/video0.mp4", "dmcgb/video_hard/video99.mp4",
            "downloads.json",
        ]  # fmt: skip
        record = json.loads((root / "downloads.json").read_text())["dmcgb"]
        assert record["sha256"] == hashlib.sha256(benchmark).hexdigest()
        assert (record["url"], record["verified"]) == (server.url, None)

    def test_what_was_downloaded_is_compared_afterwards(self, tmp_path, get, benchmark, video):
        with serve(send(benchmark)) as server:
            get("dmcgb", tmp_path, server.url)
        assert all("as downloaded" in found.detail for found in inventory.check(tmp_path))
        put(tmp_path / "dmcgb/video_easy/video0.mp4", video + b"\0" * 8)
        assert problems(tmp_path) == ["dmcgb/video_easy/video0.mp4"]
        put(tmp_path / "downloads.json", "{")
        assert problems(tmp_path) == ["downloads.json"]
        with pytest.raises(StorageError, match=r"downloads.json"):
            get_data("davis", tmp_path)

    def test_davis_and_places_are_read_where_they_land(self, tmp_path: Path, get: Get) -> None:
        frame = picture(tmp_path, "frame.jpg").read_bytes()
        clip, other = f"DAVIS/JPEGImages/480p/{DAVIS[59]}", "DAVIS/JPEGImages/480p/blackswan"
        davis = make_zip(
            *((f"{clip}/{i:05}.jpg", frame) for i in range(3)),
            (f"{other}/00000.jpg", frame),  # a validation clip
            (f"DAVIS/Annotations/480p/{DAVIS[59]}/00000.png", b""),
        )
        places = make_tar(*((f"val_256/Places365_val_{i:08}.jpg", frame) for i in range(1, 4)))
        md5 = f"md5:{hashlib.md5(places).hexdigest()}"
        with serve(send(davis)) as server:
            get("davis", tmp_path, server.url)
        with serve(send(places)) as server:
            assert get("places365-val", tmp_path, server.url, md5)["verified"] == md5
        found = {part.name: part for part in inventory.inventory(tmp_path)}
        assert found["distracting_cs"].summary == "1 of 60 clips"
        assert found["overlay"].summary == "3 pictures"
        assert not (tmp_path / other).exists()
        assert problems(tmp_path) == []
        record = json.loads((tmp_path / "downloads.json").read_text())
        assert set(record) == {"davis", "places365-val"}

    def test_wrong_bytes_leave_nothing_and_the_next_try_is_fresh(self, tmp_path, get):
        frame = picture(tmp_path, "frame.jpg").read_bytes()
        places = make_tar(("val_256/Places365_val_00000001.jpg", frame))
        md5 = f"md5:{hashlib.md5(places).hexdigest()}"
        with serve(send(places[:-1] + b"?"), send(places)) as server:
            with pytest.raises(StorageError, match="md5"):
                get("places365-val", tmp_path, server.url, md5)
            assert not (tmp_path / "places365_standard").exists()
            get("places365-val", tmp_path, server.url, md5)

    @pytest.mark.parametrize("content", [b"<html>please log in</html>", b"", make_zip(("a", b"a"))])
    def test_what_is_not_the_archive_leaves_nothing(self, tmp_path, get, content):
        with serve(send(content)) as server, pytest.raises(StorageError, match="It was deleted"):
            get("dmcgb", tmp_path, server.url)
        assert left(tmp_path) == [] and not (tmp_path / "dmcgb").exists()

    def test_an_archive_that_is_there_is_not_fetched_again(self, tmp_path, get, benchmark):
        put(tmp_path / ".downloads/dmcgb/dmcgb.zip", benchmark)
        put(tmp_path / ".downloads/dmcgb/tmp1234", b"of a killed download")
        put(tmp_path / ".downloads/dmcgb/unpacked/dmcgb/half-unpacked", b"")
        busy = files.locked(tmp_path / ".downloads/dmcgb", UserError("held by this test"))
        with busy, pytest.raises(UserError, match="another process"):
            get_data("dmcgb", tmp_path)
        with serve(status(500)) as server:
            get("dmcgb", tmp_path, server.url)
        assert server.requests == []
        assert not (tmp_path / "dmcgb/half-unpacked").exists()
        assert not (tmp_path / ".downloads").exists()

    def test_what_exists_is_not_written_over_and_names_are_suggested(self, tmp_path: Path) -> None:
        kept = put(tmp_path / "dmcgb/video_easy/video0.mp4", b"mine")
        with pytest.raises(UserError, match="dmcgb"):
            get_data("dmcgb", tmp_path)
        assert kept.read_bytes() == b"mine"
        with pytest.raises(UserError, match=r"'places365-val'"):
            get_data("places365_val", tmp_path)
        with pytest.raises(StorageError, match="video0"):
            get_data("dmcgb", kept / "below")


def source(url: str = "", kind: str = "zip") -> Source:
    return Source(url, kind, "a test", 10_000, "there", r"(?:top/)?([ab]\.txt|deep/\w+\.bin)")


class TestFetching:
    @pytest.mark.parametrize(
        ("reply", "named"),
        [(status(404), "404"), (status(503), "503"), (send(bytes(5000), cut=3000), "127.0.0.1")],
        ids=["404", "503", "dropped"],
    )
    def test_a_server_that_fails_is_quoted(self, tmp_path, reply, named):
        with serve(reply) as server, pytest.raises(StorageError, match=named):
            fetch(source(server.url), tmp_path / "x.zip", print)
        assert left(tmp_path) == []

    def test_a_disk_that_is_too_small_is_refused_at_once(self, tmp_path, monkeypatch):
        usage = shutil.disk_usage(tmp_path)._replace(free=19_000)
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
        with serve(send(b"")) as server, pytest.raises(StorageError, match="free"):
            fetch(source(server.url), tmp_path / "x.zip", print)
        assert server.requests == []

    def test_a_disk_that_fills_up_is_named_and_nothing_kept(self, tmp_path, get, monkeypatch):
        def fill(self: object, size: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(getting._Bytes, "update", fill)
        with serve(send(bytes(5000))) as server, pytest.raises(StorageError, match="No space left"):
            get("dmcgb", tmp_path, server.url)
        assert left(tmp_path) == []


@pytest.mark.parametrize(("kind", "make"), [("zip", make_zip), ("tar", make_tar)])
class TestUnpacking:
    def test_only_files_that_match_are_written_below_the_target(self, tmp_path, kind, make):
        content = make(
            ("top/a.txt", b"A"),
            ("top/other.txt", b"not wanted"),
            ("./top/b.txt", b"B" * 5000),
            ("top/deep/x.bin", bytes(range(256))),
        )
        archive, target = put(tmp_path / f"archive.{kind}", content), tmp_path / "inner/target"
        unpack(source(kind=kind), archive, target)
        archive.unlink()
        assert left(tmp_path) == [f"inner/target/{n}" for n in ("a.txt", "b.txt", "deep/x.bin")]
        assert (target / "a.txt").read_bytes() == b"A"
        assert (target / "deep/x.bin").read_bytes() == bytes(range(256))

    @pytest.mark.parametrize("keep", [0, 10, 300])
    def test_a_truncated_archive_is_refused(self, tmp_path, kind, make, keep):
        content = make(("top/a.txt", bytes(range(256)) * 20))[:keep]
        archive = put(tmp_path / f"archive.{kind}", content)
        with pytest.raises(StorageError):
            unpack(source(kind=kind), archive, tmp_path / "target")
        assert left(tmp_path) == []

    @pytest.mark.parametrize("name", ["../a.txt", "top/deep/../../../x.bin", "/tmp/a.txt", "link"])
    def test_an_archive_that_leads_out_of_its_folder_is_harmless(self, tmp_path, kind, make, name):
        evil: str | tarfile.TarInfo = name
        if name == "link" and kind == "tar":
            evil = tarfile.TarInfo("top/a.txt")
            evil.type, evil.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive = put(tmp_path / f"inner/archive.{kind}", make((evil, b"evil")))
        with pytest.raises(StorageError):
            unpack(source(kind=kind), archive, tmp_path / "inner/target")
        assert left(tmp_path) == []
