"""Downloads from a server on this machine that drops, lies, refuses and redirects."""

from __future__ import annotations

import errno
import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from archive_server import Server, redirect, send, send_chunks, serve, stall, status

from svea.data import downloads
from svea.data.downloads import SOURCES, DownloadError, Source, check_url, fetch, verify
from svea.errors import StorageError

CONTENT = np.random.default_rng(0).bytes(3_000_000)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(downloads, "PAUSES", (0.0, 0.0))


def source(server: Server, **changes) -> Source:
    return replace(SOURCES["places365-val"], url=server.url, size=len(CONTENT), md5=None, **changes)


def get(server: Server, folder: Path, **changes) -> bytes:
    fetch(source(server, **changes), folder / "x.tar", loopback=True)
    assert [p.name for p in folder.iterdir()] == ["x.tar"]  # no part, no note
    return (folder / "x.tar").read_bytes()


def fails(server: Server, folder: Path, words: str, **changes) -> None:
    with pytest.raises(DownloadError, match=words):
        get(server, folder, **changes)
    assert not (folder / "x.tar").exists()


class TestResuming:
    def test_a_dropped_connection_goes_on_where_it_broke(self, tmp_path):
        with serve(send(CONTENT, cut=1_200_000), send(CONTENT)) as server:
            assert get(server, tmp_path) == CONTENT
        assert "Range" not in server.requests[0]
        assert server.requests[1]["Range"] == "bytes=1200000-"
        assert server.requests[1]["If-Range"] == '"v1"'

    def test_a_server_without_tags_is_asked_by_the_date(self, tmp_path):
        date = "Sun, 15 Nov 2026 08:00:00 GMT"
        first, second = (send(CONTENT, version=date, cut=cut) for cut in (500_000, None))
        with serve(first, second) as server:
            assert get(server, tmp_path) == CONTENT
        assert server.requests[1]["Range"] == "bytes=500000-"
        assert server.requests[1]["If-Range"] == date

    def test_a_file_of_unannounced_length_is_not_taken_for_complete(self, tmp_path):
        with serve(send_chunks(CONTENT, cut=1_000_000), send_chunks(CONTENT)) as server:
            assert get(server, tmp_path) == CONTENT
        assert len(server.requests) == 2

    def test_a_server_that_falls_silent_has_dropped_the_connection(self, tmp_path, monkeypatch):
        monkeypatch.setattr(downloads, "SECONDS", 0.2)
        over = threading.Event()
        with serve(stall(CONTENT, over), send(CONTENT)) as server:
            assert get(server, tmp_path) == CONTENT
            over.set()
        assert server.requests[1]["Range"] == f"bytes={len(CONTENT) // 2}-"

    def test_many_drops_are_borne_as_long_as_each_brings_a_megabyte(self, tmp_path):
        drops = [send(CONTENT, cut=1_048_576)] * 2
        with serve(status(503), *drops, status(500), send(CONTENT)) as server:
            assert get(server, tmp_path) == CONTENT
        assert len(server.requests) == 5  # four failures, where PAUSES allows two in a row

    def test_a_later_run_goes_on_from_the_part(self, tmp_path):
        with serve(send(CONTENT, cut=1_000_000), status(503)) as server:
            fails(server, tmp_path, r"503.*1000000 bytes are kept.*run the command again")
            assert (tmp_path / "x.tar.part").read_bytes() == CONTENT[:1_000_000]
            server.replies[:] = [send(CONTENT)]
            assert get(server, tmp_path) == CONTENT
        assert server.requests[-1]["Range"] == "bytes=1000000-"

    def test_ctrl_c_leaves_a_part_that_can_be_resumed(self, tmp_path, monkeypatch):
        def interrupt(self, size):
            if size > 1_000_000:
                raise KeyboardInterrupt

        with serve(send(CONTENT)) as server:
            with monkeypatch.context() as patch:
                patch.setattr(downloads.Progress, "show", interrupt)
                with pytest.raises(KeyboardInterrupt):
                    get(server, tmp_path)
            kept = (tmp_path / "x.tar.part").stat().st_size
            assert 1_000_000 < kept < len(CONTENT)
            assert get(server, tmp_path) == CONTENT
        assert server.requests[1]["Range"] == f"bytes={kept}-"

    def test_a_complete_part_needs_no_request(self, tmp_path):
        with serve(send(CONTENT)) as server:
            (tmp_path / "x.tar.part").write_bytes(CONTENT)
            note = {"url": server.url, "version": '"v1"', "total": len(CONTENT)}
            (tmp_path / "x.tar.part.json").write_text(json.dumps(note))
            assert get(server, tmp_path) == CONTENT
        assert server.requests == []

    @pytest.mark.parametrize(
        "second",
        [
            send(CONTENT, ranges=False),
            send(CONTENT, version='"v2"'),
        ],
        ids=["server without ranges", "new version"],
    )
    def test_it_starts_anew_where_it_cannot_go_on(self, tmp_path, second):
        older = b"older" * 600_000
        with serve(send(older, cut=1_000_000), second) as server:
            assert get(server, tmp_path) == CONTENT

    @pytest.mark.parametrize("version", [None, 'W/"weak"'])
    def test_without_a_strong_version_nothing_is_resumed(self, tmp_path, version):
        first, second = (send(CONTENT, version=version, cut=cut) for cut in (500_000, None))
        with serve(first, second) as server:
            assert get(server, tmp_path) == CONTENT
        assert "Range" not in server.requests[1]

    @pytest.mark.parametrize(
        "middle", [send(CONTENT, first=5), send(CONTENT + b"more"), status(416)]
    )
    def test_a_wrong_partial_answer_is_not_appended(self, tmp_path, middle):
        with serve(send(CONTENT, cut=500_000), middle, send(CONTENT)) as server:
            assert get(server, tmp_path) == CONTENT
        assert "Range" in server.requests[1]
        assert "Range" not in server.requests[2]

    @pytest.mark.parametrize("note", ["", "[]", "{}", '{"url": "https://elsewhere/"}'])
    def test_a_part_of_unknown_origin_is_not_used(self, tmp_path, note):
        (tmp_path / "x.tar.part").write_bytes(b"other" * 100)
        (tmp_path / "x.tar.part.json").write_text(note)
        with serve(send(CONTENT)) as server:
            assert get(server, tmp_path) == CONTENT


class TestRefusing:
    def test_a_missing_file_is_final(self, tmp_path):
        with serve(status(404)) as server:
            fails(server, tmp_path, r"404 Not Found.*docs/data.md")
        assert len(server.requests) == 1

    def test_a_failing_server_is_asked_a_few_times(self, tmp_path):
        with serve(status(500)) as server:
            fails(server, tmp_path, "500")
        assert len(server.requests) == 3

    def test_a_server_that_is_not_there(self, tmp_path):
        with serve(status(500)) as server:
            pass
        fails(server, tmp_path, "no answer")

    @pytest.mark.parametrize(
        "target",
        ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://example.invalid/x", "data:,x"],
    )
    def test_redirects_away_from_https_are_refused(self, tmp_path, target):
        with serve(redirect(target)) as server:
            fails(server, tmp_path, "not allowed|only https is used")
        assert not list(tmp_path.iterdir())

    def test_redirects_within_the_rules_are_followed(self, tmp_path):
        with serve(send(CONTENT)) as other, serve(redirect(other.url)) as server:
            assert get(server, tmp_path) == CONTENT

    def test_an_endless_redirect_ends(self, tmp_path):
        with serve(status(500)) as server:
            server.replies[:] = [redirect(server.url)]
            fails(server, tmp_path, "302")

    def test_too_long_files_are_refused_before_and_while_they_arrive(self, tmp_path):
        with serve(send(CONTENT, length=10**9)) as server:
            fails(server, tmp_path, "too many to be the archive")
        assert not list(tmp_path.iterdir())
        with serve(send(CONTENT * 5, length=0)) as server:
            fails(server, tmp_path, "more bytes than it should")

    def test_a_claimed_length_that_never_arrives(self, tmp_path):
        with serve(send(CONTENT, length=len(CONTENT) + 7, ranges=False)) as server:
            fails(server, tmp_path, f"{len(CONTENT)} of {len(CONTENT) + 7} bytes")

    @pytest.mark.parametrize("url", ["http://127.0.0.1/x", "file:///x", "ftp://h/x", "x"])
    def test_plain_http_is_for_tests_only(self, tmp_path, url):
        bad = replace(SOURCES["dmcgb"], url=url)
        with pytest.raises(DownloadError, match="only https"):
            fetch(bad, tmp_path / "x.zip")


class TestDisk:
    def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(self, tmp_path, monkeypatch):
        free = SimpleNamespace(free=2 * len(CONTENT) - 1)
        monkeypatch.setattr(downloads.shutil, "disk_usage", lambda _: free)
        with serve(send(CONTENT)) as server:
            with pytest.raises(StorageError, match=r"MB free.*need 5 MB"):
                get(server, tmp_path)
            assert not list(tmp_path.iterdir())
            free.free += 1
            assert get(server, tmp_path) == CONTENT

    def test_a_disk_that_fills_up_is_named_and_the_part_kept(self, tmp_path, monkeypatch):
        def fill(self, size):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(downloads.Progress, "show", fill)
        with serve(send(CONTENT)) as server, pytest.raises(StorageError, match="No space left"):
            get(server, tmp_path)
        assert (tmp_path / "x.tar.part").stat().st_size > 0
        assert len(server.requests) == 1  # no second try: the disk is no fuller tomorrow

    def test_a_folder_that_cannot_be_written(self, tmp_path):
        with serve(send(CONTENT)) as server, pytest.raises(StorageError, match="No such file"):
            fetch(source(server), tmp_path / "nowhere" / "x.tar", loopback=True)


class TestVerifying:
    def test_wrong_bytes_are_found_and_deleted(self, tmp_path):
        published = hashlib.md5(CONTENT).hexdigest()
        archive = tmp_path / "x.tar"
        archive.write_bytes(CONTENT)
        checked = replace(SOURCES["dmcgb"], md5=published)
        assert verify(checked, archive) == hashlib.sha256(CONTENT).hexdigest()
        archive.write_bytes(CONTENT[:-1] + b"?")
        with pytest.raises(DownloadError, match=f"should be {published}"):
            verify(checked, archive)
        assert not archive.exists()

    def test_every_public_source_is_https(self):
        for known in SOURCES.values():
            check_url(known.url, loopback=False)


def test_progress_is_shown_about_ten_times_where_there_is_no_terminal(tmp_path, capsys):
    with serve(send(CONTENT)) as server:
        get(server, tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "x.tar: 3.0 of 3.0 MB"
    assert 5 <= len(lines) <= 12
