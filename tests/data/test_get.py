"""`svea data get`: what arrives, and what a bad network, server, archive or disk leaves behind."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from archive_server import make_tar, make_zip, redirect, send, serve, status
from small_media import picture, put

from svea.core.errors import StorageError, UserError
from svea.data import inventory
from svea.data.check import check_data
from svea.data.folders import DAVIS
from svea.data.get import (
    SOURCES,
    ArchiveError,
    DownloadError,
    Source,
    _alone_in,
    fetch,
    get_data,
    unpack,
)
from svea.envs.looks.videos import VideoMode


@pytest.fixture
def benchmark(video) -> bytes:
    """The benchmark's repository as an archive."""
    top = "dmcontrol-generalization-benchmark-main"
    return make_zip(
        (f"{top}/", b""),
        (f"{top}/LICENSE", b"MIT"),
        (f"{top}/src/train.py", b"raise SystemExit"),
        (f"{top}/src/env/data/color_hard.pt", b"a pickle"),
        (f"{top}/src/env/data/video_easy/video0.mp4", video),
        (f"{top}/src/env/data/video_hard/video99.mp4", video),
    )


def get(name: str, folder: Path, url: str, md5: str | None = None) -> int:
    sources: dict[str, Source] = dict(SOURCES)
    checksum = md5 and f"md5:{md5}"
    sources[name] = replace(SOURCES[name], url=url, checksum=checksum, size=100_000)
    return get_data(name, folder, sources=sources)


def problems(folder: Path, capsys) -> list[str]:
    check_data(folder)
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("problem")]


class TestGet:
    def test_the_benchmark_arrives_in_the_layout_that_the_modes_read(
        self, tmp_path, benchmark, capsys
    ):
        root = tmp_path / "new" / "data"
        with serve(send(benchmark)) as server:
            assert get("dmcgb", root, server.url) == 0
        out = capsys.readouterr().out
        assert VideoMode("video_hard", root).provenance["clips"] == 1
        assert "not pinned" in out
        files = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
        assert files == [
            "dmcgb/LICENSE", "dmcgb/video_easy/video0.mp4", "dmcgb/video_hard/video99.mp4",
            "downloads.json",
        ]  # fmt: skip
        record = json.loads((root / "downloads.json").read_text())["dmcgb"]
        assert record["sha256"] == hashlib.sha256(benchmark).hexdigest()
        assert record["url"] == server.url
        assert record["verified"] is None

    def test_what_was_downloaded_is_compared_afterwards(self, tmp_path, benchmark, video, capsys):
        with serve(send(benchmark)) as server:
            get("dmcgb", tmp_path, server.url)
        capsys.readouterr()
        assert check_data(tmp_path) == 0
        out = capsys.readouterr().out
        assert out.count("as downloaded") == 2
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
        found = {part.name: part for part in inventory.inventory(tmp_path)}
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
        put(tmp_path / ".downloads/dmcgb/dmcgb.zip", benchmark)
        put(tmp_path / ".downloads/dmcgb/tmp1234", b"of a killed download")
        put(tmp_path / ".downloads/dmcgb/unpacked/dmcgb/half-unpacked", b"")
        with serve(status(500)) as server:
            assert get("dmcgb", tmp_path, server.url) == 0
        assert server.requests == []
        assert not (tmp_path / "dmcgb/half-unpacked").exists()
        assert not (tmp_path / ".downloads").exists()

    @pytest.mark.parametrize("kind", ["pipe", "link"])
    def test_only_a_plain_file_is_taken_for_an_archive(self, tmp_path, benchmark, kind):
        work, other = tmp_path / "root/.downloads/dmcgb", put(tmp_path / "other", b"mine")
        work.mkdir(parents=True)
        if kind == "pipe":
            os.mkfifo(work / "dmcgb.zip")
        else:
            (work / "dmcgb.zip").symlink_to(other)
            (work / "unpacked").symlink_to(tmp_path)
        with serve(send(benchmark)) as server:
            assert get("dmcgb", tmp_path / "root", server.url) == 0
        assert other.read_bytes() == b"mine"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "root"]

    def test_a_linked_working_folder_is_refused(self, tmp_path):
        kept = put(tmp_path / "elsewhere/dmcgb/kept", b"mine")
        (tmp_path / ".downloads").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StorageError, match="is a link"):
            get_data("dmcgb", tmp_path)
        assert kept.read_bytes() == b"mine"

    def test_two_downloads_at_once_do_not_meet(self, tmp_path):
        work = tmp_path / ".downloads/dmcgb"
        with _alone_in(work, work / "x"), pytest.raises(UserError, match="another process"):
            get_data("dmcgb", tmp_path)

    def test_what_exists_is_not_written_over(self, tmp_path):
        kept = put(tmp_path / "dmcgb/video_easy/video0.mp4", b"mine")
        with pytest.raises(UserError, match="exists"):
            get_data("dmcgb", tmp_path)
        assert kept.read_bytes() == b"mine"

    def test_typing_errors_are_met_with_a_suggestion(self, tmp_path):
        with pytest.raises(UserError, match=r"Did you mean 'places365-val'"):
            get_data("places365_val", tmp_path)

    def test_a_folder_that_cannot_be_made(self, tmp_path):
        put(tmp_path / "file", b"")
        with pytest.raises(StorageError, match="file"):
            get_data("dmcgb", tmp_path / "file" / "below")


def source(url: str = "", kind: str = "zip", **changes) -> Source:
    pattern = r"(?:top/)?([ab]\.txt|deep/\w+\.bin)"
    return Source(url, kind, "a test", 10_000, "there", pattern, **changes)


def fails(reply, folder: Path, words: str, **changes) -> None:
    """The download fails in these words, and nothing is kept."""
    with serve(reply) as server, pytest.raises(DownloadError, match=words):
        fetch(source(server.url, **changes), folder / "x.zip")
    assert list(folder.iterdir()) == []


class TestFetching:
    def test_no_network_is_one_clear_error(self, tmp_path):
        with serve(status(500)) as server:
            pass  # nobody listens there any more
        with pytest.raises(DownloadError, match=r"cannot download .*Check the network"):
            fetch(source(server.url), tmp_path / "x.zip")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("code", [403, 404, 500, 503])
    def test_a_server_that_refuses_is_quoted(self, tmp_path, code):
        fails(status(code), tmp_path, rf"{code}.*docs/data\.md")

    def test_a_dropped_connection_leaves_nothing(self, tmp_path):
        fails(send(bytes(5000), cut=3000), tmp_path, "cannot download")

    def test_a_file_without_a_length_is_refused_where_it_becomes_too_large(self, tmp_path):
        fails(send(bytes(40_001), length=0), tmp_path, "it is not the archive")

    def test_a_file_that_is_far_too_large_is_refused_before_it_is_sent(self, tmp_path):
        fails(send(b"", length=40_001), tmp_path, "it is not the archive")

    @pytest.mark.parametrize("place", ["http://example.com/x.zip", "http://localhost/x.zip"])
    def test_only_https_is_used(self, tmp_path, place):
        with pytest.raises(DownloadError, match="only https"):
            fetch(source(place), tmp_path / "x.zip")

    def test_a_redirect_is_followed_but_never_away_from_https(self, tmp_path):
        with serve(send(b"content")) as other, serve(redirect(other.url)) as server:
            fetch(source(server.url), tmp_path / "x.zip")
        assert (tmp_path / "x.zip").read_bytes() == b"content"
        (tmp_path / "x.zip").unlink()
        with serve(send(b"evil")) as other:
            elsewhere = other.url.replace("127.0.0.1", "localhost")
            fails(redirect(elsewhere), tmp_path, "only https")

    def test_a_disk_that_is_too_small_is_refused_at_once(self, tmp_path, monkeypatch):
        usage = shutil.disk_usage(tmp_path)._replace(free=19_000)
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
        with serve(send(b"")) as server, pytest.raises(StorageError, match="are free"):
            fetch(source(server.url), tmp_path / "x.zip")
        assert server.requests == []

    def test_a_disk_that_fills_up_is_named_and_nothing_kept(self, tmp_path, monkeypatch):
        def fill(self, size):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("svea.data.get._Bar.update", fill)
        with serve(send(bytes(5000))) as server, pytest.raises(StorageError, match="No space left"):
            get("dmcgb", tmp_path, server.url)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []

    def test_every_public_source_is_https(self):
        assert all(known.url.startswith("https://") for known in SOURCES.values())


def unpacked(folder: Path, kind: str, content: bytes) -> dict[str, bytes]:
    archive = put(folder / f"archive.{kind}", content)
    target = folder / "inner" / "target"
    unpack(source(kind=kind), archive, target)
    paths = [path for path in folder.rglob("*") if path.is_file() and path != archive]
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in paths}


def refused(folder: Path, kind: str, content: bytes, words: str = "the archive") -> None:
    """The archive is refused and deleted, and nothing is left of it."""
    with pytest.raises(ArchiveError, match=words):
        unpacked(folder, kind, content)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("kind", "make"), [("zip", make_zip), ("tar", make_tar)])
class TestUnpacking:
    def test_only_files_that_match_are_written_below_the_target(self, tmp_path, kind, make):
        content = make(
            ("top/a.txt", b"A"),
            ("top/other.txt", b"not wanted"),
            ("./top/b.txt", b"B" * 5000),
            ("top/deep/x.bin", bytes(range(256))),
        )
        assert unpacked(tmp_path, kind, content) == {
            "a.txt": b"A",
            "b.txt": b"B" * 5000,
            "deep/x.bin": bytes(range(256)),
        }

    @pytest.mark.parametrize(
        "name",
        ["../a.txt", "/a.txt", "top/../../a.txt", "top/deep/../../../x.bin", "C:/a.txt"],
    )
    def test_names_that_lead_out_are_not_written(self, tmp_path, kind, make, name):
        found = unpacked(tmp_path, kind, make(("top/b.txt", b"B"), (name, b"evil")))
        assert found == {"b.txt": b"B"}

    def test_an_archive_of_other_things_is_refused(self, tmp_path, kind, make):
        refused(tmp_path, kind, make(("readme", b"")), "none of the files")

    def test_a_bomb_is_refused_by_its_size(self, tmp_path, kind, make):
        refused(tmp_path, kind, make(("top/a.txt", bytes(40_001))), "40000 bytes")

    @pytest.mark.parametrize("keep", [0, 10, 300])
    def test_a_truncated_archive_is_refused(self, tmp_path, kind, make, keep):
        refused(tmp_path, kind, make(("top/a.txt", bytes(range(256)) * 20))[:keep])

    def test_disk_trouble_is_not_damage(self, tmp_path, kind, make):
        put(tmp_path / "inner", b"a file where a folder is needed")
        with pytest.raises(OSError):
            unpacked(tmp_path, kind, make(("top/a.txt", b"A")))
        assert (tmp_path / f"archive.{kind}").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_tar_links_and_devices_are_not_written(tmp_path, kind):
    link = tarfile.TarInfo("top/a.txt")
    link.type, link.linkname = kind, "/etc/passwd"
    content = make_tar((link, b""), ("top/b.txt", b"B"))
    assert unpacked(tmp_path, "tar", content) == {"b.txt": b"B"}


def test_a_zip_symlink_becomes_a_plain_file(tmp_path):
    link = zipfile.ZipInfo("top/a.txt")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    assert unpacked(tmp_path, "zip", make_zip((link, b"/etc/passwd"))) == {"a.txt": b"/etc/passwd"}
    assert not (tmp_path / "inner/target/a.txt").is_symlink()


def test_an_encrypted_zip_is_refused(tmp_path):
    content = bytearray(make_zip(("top/a.txt", b"A")))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    refused(tmp_path, "zip", bytes(content), "encrypted")


def test_a_zip_that_lies_about_its_sizes_is_refused(tmp_path):
    content = bytearray(make_zip(("top/a.txt", bytes(9_000))))
    entry = content.index(b"PK\x01\x02")
    struct.pack_into("<L", content, entry + 24, 10)  # the size after unpacking
    refused(tmp_path, "zip", bytes(content), "damaged")


def test_a_zip_with_a_damaged_byte_is_refused(tmp_path):
    content = bytearray(make_zip(("top/a.txt", bytes(range(256)))))
    content[60] ^= 1
    refused(tmp_path, "zip", bytes(content), "damaged")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_names_another_compression_is_refused(tmp_path, method):
    content = bytearray(make_zip(("top/a.txt", bytes(range(256)) * 20)))
    for signature, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        struct.pack_into("<H", content, content.index(signature) + place, method)
    refused(tmp_path, "zip", bytes(content), "damaged")


def test_a_zip_whose_member_begins_before_the_file_is_refused(tmp_path):
    content = bytearray(make_zip(("top/a.txt", bytes(range(256)))))
    place = content.index(b"PK\x05\x06") + 16  # where the table of contents is said to be
    struct.pack_into("<L", content, place, struct.unpack_from("<L", content, place)[0] + 1000)
    refused(tmp_path, "zip", bytes(content), "damaged")


def test_a_compressed_tar_is_not_taken_for_a_tar(tmp_path):
    import gzip

    refused(tmp_path, "tar", gzip.compress(make_tar(("top/a.txt", b"A"))), "damaged")
