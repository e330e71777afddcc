"""Unpacking: what is picked arrives to the byte, and hostile archives leave nothing behind."""

from __future__ import annotations

import stat
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest
from archive_server import make_tar, make_zip
from hypothesis import given
from hypothesis import strategies as st

from svea.data.archives import ArchiveError, is_hostile, unpack
from svea.errors import StorageError

PICKS = ((r"top/(a|b)\.txt", r"\1.txt"), (r"top/deep/(.+\.bin)", r"deep/\1"))


def unpack_bytes(
    folder: Path, kind: str, content: bytes, files: int = 10, size: int = 10_000
) -> dict[str, bytes]:
    archive = folder / f"archive.{kind}"
    archive.write_bytes(content)
    target = folder / "inner" / "target"
    written = unpack(archive, kind, PICKS, target, most_files=files, most_bytes=size)
    found = {
        p.relative_to(target).as_posix(): p.read_bytes() for p in target.rglob("*") if p.is_file()
    }
    assert written == sum(map(len, found.values()))
    return found


def refused(folder: Path, kind: str, content: bytes, words: str, **limits: int) -> None:
    """The archive is refused, and nothing at all was written."""
    with pytest.raises(ArchiveError, match=words):
        unpack_bytes(folder, kind, content, **limits)
    assert [p.name for p in folder.rglob("*") if p.is_file()] == [f"archive.{kind}"]


@pytest.mark.parametrize(("kind", "make"), [("zip", make_zip), ("tar", make_tar)])
class TestBothKinds:
    def test_only_picked_files_are_written_under_their_new_names(self, tmp_path, kind, make):
        content = make(
            ("top/a.txt", b"A"),
            ("top/other.txt", b"not wanted"),
            ("./top/b.txt", b"B" * 5000),
            ("top/deep/x/y.bin", bytes(range(256))),
        )
        assert unpack_bytes(tmp_path, kind, content) == {
            "a.txt": b"A",
            "b.txt": b"B" * 5000,
            "deep/x/y.bin": bytes(range(256)),
        }

    @pytest.mark.parametrize(
        "name",
        ["../evil.txt", "/etc/evil.txt", "top/deep/../../../evil.bin", "C:/evil", "top\\a.txt"],
    )
    def test_names_that_lead_out_refuse_the_whole_archive(self, tmp_path, kind, make, name):
        refused(tmp_path, kind, make(("top/a.txt", b"A"), (name, b"evil")), "leads out")

    def test_duplicates_are_refused_also_when_only_case_differs(self, tmp_path, kind, make):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zipfile's own, on making it
            content = make(("top/a.txt", b"A"), ("top/a.txt", b"other"))
        refused(tmp_path, kind, content, "twice")
        content = make(("top/deep/x.bin", b"A"), ("top/deep/X.bin", b"other"))
        refused(tmp_path, kind, content, "twice")

    def test_too_many_files_and_too_many_bytes_are_refused(self, tmp_path, kind, make):
        many = make(*((f"top/deep/{i}.bin", b"1") for i in range(11)))
        refused(tmp_path, kind, many, "more than 10 files")
        assert len(unpack_bytes(tmp_path, kind, many, files=11)) == 11

    def test_an_archive_of_other_things_is_refused(self, tmp_path, kind, make):
        refused(tmp_path, kind, make(("readme", b"")), "none of the files")

    def test_a_bomb_is_refused_by_its_size(self, tmp_path, kind, make):
        refused(tmp_path, kind, make(("top/a.txt", bytes(10_001))), "10000 bytes")

    @pytest.mark.parametrize("keep", [0, 10, 300])
    def test_a_truncated_archive_is_refused(self, tmp_path, kind, make, keep):
        whole = make(("top/a.txt", bytes(range(256)) * 20))
        with pytest.raises(ArchiveError):
            unpack_bytes(tmp_path, kind, whole[:keep])

    def test_disk_trouble_is_no_damage(self, tmp_path, kind, make):
        (tmp_path / "inner").write_text("a file where a folder is needed")
        with pytest.raises(StorageError) as caught:
            unpack_bytes(tmp_path, kind, make(("top/a.txt", b"A")))
        assert not isinstance(caught.value, ArchiveError)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_tar_links_and_devices_are_refused(tmp_path, kind):
    link = tarfile.TarInfo("top/a.txt")
    link.type, link.linkname = kind, "/etc/passwd"
    refused(tmp_path, "tar", make_tar((link, b"")), "a link, a device")


def test_links_that_are_not_picked_are_left(tmp_path):
    link = tarfile.TarInfo("top/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    assert unpack_bytes(tmp_path, "tar", make_tar((link, b""), ("top/a.txt", b"A"))) == {
        "a.txt": b"A"
    }


def test_zip_symlinks_are_refused(tmp_path):
    link = zipfile.ZipInfo("top/a.txt")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    refused(tmp_path, "zip", make_zip((link, b"/etc/passwd")), "a link, a device")


def test_a_name_that_zipfile_would_mend_is_refused(tmp_path):
    content = make_zip(("top/a.txt?/../../evil", b"A"), ("top/b.txt", b"B"))
    refused(tmp_path, "zip", content.replace(b"a.txt?/../", b"a.txt\0/xx/"), "leads out")


def test_a_sparse_tar_member_is_refused(tmp_path):
    hole = tarfile.TarInfo("top/a.txt")
    hole.type = tarfile.GNUTYPE_SPARSE
    refused(tmp_path, "tar", make_tar((hole, b"")), "a link, a device")


def test_an_encrypted_zip_is_refused(tmp_path):
    content = bytearray(make_zip(("top/a.txt", b"A")))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    refused(tmp_path, "zip", bytes(content), "encrypted")


def test_a_zip_that_lies_about_its_sizes_writes_no_more_than_it_said(tmp_path):
    content = bytearray(make_zip(("top/a.txt", bytes(9_000))))
    entry = content.index(b"PK\x01\x02")
    struct.pack_into("<L", content, entry + 24, 10)  # the size after unpacking
    with pytest.raises(ArchiveError, match="damaged"):
        unpack_bytes(tmp_path, "zip", bytes(content))
    assert all(p.stat().st_size <= 11 for p in (tmp_path / "inner").rglob("*.txt"))


def test_a_zip_with_a_damaged_byte_is_refused(tmp_path):
    content = bytearray(make_zip(("top/a.txt", bytes(range(256)))))
    content[60] ^= 1
    with pytest.raises(ArchiveError, match="damaged"):
        unpack_bytes(tmp_path, "zip", bytes(content))


def test_a_zip_with_a_huge_table_of_contents_is_refused_before_it_is_read(tmp_path):
    content = bytearray(make_zip(("top/a.txt", b"A")))
    struct.pack_into("<L", content, content.rindex(b"PK\x05\x06") + 12, 2**31)
    refused(tmp_path, "zip", bytes(content), "table of contents")


def test_a_compressed_tar_is_not_taken_for_a_tar(tmp_path):
    import gzip

    refused(tmp_path, "tar", gzip.compress(make_tar(("top/a.txt", b"A"))), "damaged")


@given(st.text(max_size=30))
def test_a_name_that_passes_stays_inside(name):
    if not is_hostile(name):
        inside = Path("/folder/target").joinpath(name)
        assert inside.is_relative_to("/folder/target")
        assert ".." not in inside.parts
