"""What is found in a data folder is what the modes and the image bank find."""

import hashlib
import os
from pathlib import Path

import pytest
from PIL import Image
from small_media import picture, put

from svea.augment.images import ImageBank
from svea.cli.data import check, show
from svea.core.errors import UserError
from svea.data import clips, inventory
from svea.data.clips import DAVIS
from svea.data.get import SOURCES
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.videos import VideoMode


def parts(root: Path) -> dict[str, inventory.Part]:
    return {part.name: part for part in inventory.inventory(root)}


class TestInventory:
    def test_counts_and_missing_names(self, folder):
        found = parts(folder)
        assert {name: part.summary for name, part in found.items()} == {
            "video_easy": "2 of 10 clips",
            "video_hard": "no clips",
            "distracting_cs": "1 of 60 clips",
            "overlay": "2 pictures",
        }
        assert found["video_easy"].missing == tuple(f"video{i}" for i in range(1, 9))
        assert found["video_hard"].missing == tuple(f"video{i}" for i in range(100))
        assert found["distracting_cs"].missing == DAVIS[1:]

    def test_it_agrees_with_the_modes_and_the_image_bank(self, folder):
        found = parts(folder)
        easy = VideoMode("video_easy", folder).provenance
        assert (easy["clips"], tuple(easy["missing"])) == (2, found["video_easy"].missing)
        davis = DistractingMode(data_dir=folder, intensity=0.5).provenance
        assert (davis["of"], davis["clips"]) == (60, found["distracting_cs"].count)
        bank = ImageBank.find(data_dir=folder)
        assert len(bank.pictures) == found["overlay"].count

    def test_a_folders_hash_is_that_of_sha256sum(self, folder):
        lines = [f"{hashlib.sha256((folder / 'photos' / n).read_bytes()).hexdigest()}  {n}\n"
                 for n in ("b.jpg", "sub/a.png")]  # fmt: skip
        expected = hashlib.sha256("".join(lines).encode()).hexdigest()
        assert inventory.content_sha256(folder / "photos") == expected


class TestList:
    def test_names_what_is_missing_and_how_to_get_it(self, folder, capsys):
        assert show(str(folder)) == 0
        out = capsys.readouterr().out
        assert "missing: video1, video2, video3, video4, video5, video6, video7, video8\n" in out
        assert "mode distracting_cs" in out
        assert "augmentation overlay" in out
        assert "svea data get dmcgb FOLDER\n" in out  # not this one: it has a part of it
        assert "places365-val" not in out  # photos will do

    def test_no_folder_is_no_error_but_a_wrong_one_is(self, tmp_path, monkeypatch, capsys):
        monkeypatch.delenv("SVEA_DATA", raising=False)
        assert show() == 0
        out = capsys.readouterr().out
        assert all(f"svea data get {name} FOLDER" in out for name in SOURCES)
        assert "refused" not in out
        assert show(str(tmp_path)) == 0
        assert "refused with this folder" in capsys.readouterr().out
        with pytest.raises(UserError, match="not a folder"):
            show("/nowhere")


def problems(folder: Path, capsys) -> list[str]:
    """The lines of the problems, without the folder's name."""
    code = check(folder)
    lines = capsys.readouterr().out.splitlines()
    found = [line.replace(str(folder), "") for line in lines if line.startswith("problem")]
    assert code == (2 if found else 0)
    return found


class TestCheck:
    def test_a_sound_folder_is_hashed_file_by_file(self, folder, video, capsys):
        put(folder / "dmcgb/video_easy/video10.mp4", video)
        assert check(folder) == 0
        out = capsys.readouterr().out
        sha256 = hashlib.sha256((folder / "dmcgb/video_easy/video0.mp4").read_bytes()).hexdigest()
        assert f"video0.mp4  5 frames  sha256 {sha256}  unverified, not the benchmark's own" in out
        assert "480p/bear  2 frames" in out
        assert "photos  2 sound pictures" in out
        assert "note: video_easy has 2 of 10 clips" in out
        assert "note: dmcgb/video_easy/video10.mp4 is not read" in out

    def test_the_benchmarks_own_clips_are_known(self, folder, monkeypatch, capsys):
        clip = folder / "dmcgb/video_easy/video0.mp4"
        own = hashlib.sha256(clip.read_bytes()).hexdigest()[:16]
        known = dict.fromkeys(clips.CLIP_SETS["video_easy"].names, "") | {"video0": own}
        monkeypatch.setattr(clips, "published_hashes", lambda mode: known)
        assert check(folder) == 0
        assert ", the benchmark's own" in capsys.readouterr().out

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
        Image.new("RGB", (6001, 6000)).save(folder / "photos/large.png")
        put(folder / "photos/cut.jpg", (folder / "photos/b.jpg").read_bytes()[:-400])
        put(folder / "photos/text.jpg", b"hello")
        os.mkfifo(folder / "photos/pipe.jpg")
        found = [line.split(maxsplit=2)[1:] for line in problems(folder, capsys)]
        assert [name for name, _ in found] == [
            "photos/cut.jpg", "photos/large.png", "photos/pipe.jpg", "photos/small.png",
            "photos/text.jpg",
        ]  # fmt: skip
        words = ["damaged", "6001 x 6000", "not a file", "too small", "not a picture"]
        assert all(word in text for word, (_, text) in zip(words, found, strict=True))

    def test_folders_with_nothing_to_check(self, tmp_path):
        with pytest.raises(UserError, match=r"nothing in .* docs/data.md"):
            check(tmp_path)
        with pytest.raises(UserError, match="not a folder"):
            check(tmp_path / "nowhere")
