"""Video files: decoding, bounds, and everything that can be wrong with a file."""

import hashlib
import json
import os
import time

import numpy as np
import pytest
import small_media
from PIL import Image

from svea.core.errors import UserError
from svea.data import clips, decode
from svea.data.clips import ClipSet, data_folder, in_data_folder, in_folder
from svea.data.decode import SIDE

COLOURS = [(200, 40, 40), (40, 160, 60), (60, 60, 200), (220, 220, 220), (20, 20, 20)]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch):
    monkeypatch.setattr(clips, "_cache", type(clips._cache)())


def write_video(path, colours=COLOURS, size=(64, 48)):
    """Write a video of plain frames."""
    plain = np.array(colours, np.uint8)[:, None, None]
    return small_media.write_video(path, np.broadcast_to(plain, (len(colours), *size[::-1], 3)))


def write_pictures(folder, colours=COLOURS, size=(64, 48), ending="png"):
    """Write a folder of plain frames."""
    folder.mkdir(parents=True)
    for number, colour in enumerate(colours):
        Image.new("RGB", size, colour).save(folder / f"{number:05}.{ending}")
    return folder


def only_clip(folder):
    return in_folder(folder).open(0)


def test_a_video_gives_its_frames_and_repeats(tmp_path):
    write_video(tmp_path / "clip.mp4")
    clip = only_clip(tmp_path)
    for index in (4, 0, 2, 1, 3, 5, 7, 5000):  # in any order, and past the end
        frame = clip.frame(index)
        assert frame.shape == (SIDE, SIDE, 3) and frame.dtype == np.uint8
        colour = COLOURS[index % len(COLOURS)]
        assert np.abs(frame.astype(int) - colour).max() < 12  # compression
    assert len(clip) == len(COLOURS)


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_a_folder_of_wide_frames_is_a_clip_of_squares(tmp_path, ending):
    folder = write_pictures(tmp_path / "wide", size=(200, 100), ending=ending)
    picture = Image.new("RGB", (200, 100), (0, 0, 0))
    picture.paste((255, 255, 255), (100, 0, 200, 100))
    picture.save(folder / f"00000.{ending}", quality=100)
    clip = only_clip(tmp_path)
    left, right = clip.frame(0)[:, : SIDE // 2 - 8], clip.frame(0)[:, SIDE // 2 + 8 :]
    assert len(clip) == len(COLOURS) and left.max() < 5 and right.min() > 250
    for index, colour in enumerate(COLOURS[1:], 1):
        assert np.abs(clip.frame(index).astype(int) - colour).max() < 4


def test_clips_are_ordered_by_name_and_other_files_ignored(tmp_path):
    write_pictures(tmp_path / "b")
    write_video(tmp_path / "a.mp4")
    write_video(tmp_path / "c.MKV")
    (tmp_path / "notes.txt").write_text("no video")
    (tmp_path / "empty").mkdir()
    assert in_folder(tmp_path).names == ("a.mp4", "b", "c.MKV")


def test_long_clips_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(clips, "MOST_FRAMES", 3)
    write_video(tmp_path / "a.mp4")
    write_pictures(tmp_path / "b")
    found = in_folder(tmp_path)
    for index in range(2):
        clip = found.open(index)
        assert len(clip) == 3
        assert np.abs(clip.frame(3).astype(int) - COLOURS[0]).max() < 12


# --- what can be wrong ----------------------------------------------------------------------------


def truncated(path, options=()):
    """A video of noise with its second half missing."""
    noise = np.random.default_rng(0).integers(0, 255, (60, 64, 64, 3), np.uint8)
    whole = small_media.write_video(path, noise, options).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n#EXT-X-ENDLIST\n"
DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("this is no video"),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(20_000)),
    "truncated, index last": truncated,
    "truncated, index first": lambda path: truncated(path, ["-movflags", "+faststart"]),
    "one frame": lambda path: write_video(path, COLOURS[:1]),
    "playlist of a file": lambda path: path.write_text(
        PLAYLIST.format(write_video(path.parent.parent / "secret.mp4"))
    ),
    "playlist of an address": lambda path: path.write_text(
        PLAYLIST.format("http://127.0.0.1:9/a.ts")
    ),
    "too large": lambda path: write_video(path, size=(128, 96)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_videos_are_refused_by_name(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(decode, "MOST_PIXELS", 100 * 100)
    folder = tmp_path / "videos"
    folder.mkdir()
    path = folder / "clip.mp4"
    DAMAGE[damage](path)
    clip = only_clip(folder)
    with pytest.raises(UserError, match=r"the video .*clip\.mp4 cannot be used: it .*Replace"):
        len(clip)
    with pytest.raises(UserError, match="cannot be used"):  # and again, without another wait
        clip.frame(0)
    path.unlink()
    write_video(path)
    assert len(only_clip(folder)) == len(COLOURS), "a repaired one is decoded"


BAD_FRAMES = {
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"no picture"),
    "header only": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "too large": lambda path: Image.new("RGB", (300, 300)).save(path),
}


@pytest.mark.parametrize("damage", BAD_FRAMES)
@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_bad_frames_are_refused_by_name(tmp_path, monkeypatch, ending, damage):
    monkeypatch.setattr(decode, "MOST_PICTURE_PIXELS", 200 * 200)
    folder = write_pictures(tmp_path / "bear", ending=ending)
    BAD_FRAMES[damage](folder / f"00003.{ending}")
    with pytest.raises(UserError, match=rf"bear cannot be used.*00003\.{ending}"):
        len(only_clip(tmp_path))


def test_a_decoder_that_hangs_is_stopped(tmp_path, monkeypatch):
    path = write_video(tmp_path / "clip.mp4")
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(program))
    monkeypatch.setattr(clips, "SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(UserError, match=r"took more than 0\.3 s"):
        clips._open_file(path).frame(0)
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("name", ["-i.mp4", "http:x.mp4", "concat:a|b'c.mp4"])
def test_strange_names_are_only_names(tmp_path, name):
    write_video(tmp_path / "plain.mp4").rename(tmp_path / name)
    assert len(only_clip(tmp_path)) == len(COLOURS)


# --- memory and provenance ------------------------------------------------------------------------


def test_clips_are_decoded_once_and_memory_is_bounded(tmp_path, monkeypatch):
    frame = SIDE * SIDE * 3
    monkeypatch.setattr(clips, "MOST_BYTES", 12 * frame)  # two clips of five frames
    for name in "abc":
        write_pictures(tmp_path / name)
    found = in_folder(tmp_path)
    first = found.open(0)
    assert found.open(0) is first
    for index in (0, 1, 2, 2):
        len(found.open(index))
        found.open(index)
        assert sum(clip.size for clip in clips._cache.values()) <= 12 * frame
    assert [path.name for path, *_ in clips._cache] == ["b", "c"]
    assert len(first) == len(COLOURS)  # one that is on show stays whole
    assert found.open(0) is not first


def test_provenance_counts_and_hashes_the_clips(tmp_path):
    write_pictures(tmp_path / "dmcgb" / "x" / "video0")
    write_video(tmp_path / "dmcgb" / "x" / "video2.mp4")
    names = ("video0", "video1", "video2")
    wanted = ClipSet("dmcgb", names, ("dmcgb/x/{}.mp4", "dmcgb/x/{}"))
    found = in_data_folder(wanted, tmp_path)
    provenance = found.provenance
    assert provenance["source"] == "dmcgb" and provenance["missing"] == ["video1"]
    assert (provenance["clips"], provenance["of"]) == (2, 3)

    def total(lines):
        return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()

    def sha(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    pictures = sorted((tmp_path / "dmcgb" / "x" / "video0").iterdir())
    video = tmp_path / "dmcgb" / "x" / "video2.mp4"
    frames = total([f"{picture.name} {sha(picture)}" for picture in pictures])
    file = total([f"video2.mp4 {sha(video)}"])
    assert provenance["sha256"] == total([f"video0 {frames}", f"video2 {file}"])


def test_only_files_with_the_benchmarks_hashes_are_its_own(tmp_path, monkeypatch):
    folder = tmp_path / "dmcgb" / "video_easy"
    folder.mkdir(parents=True)
    for number in (0, 1, 3):
        write_video(folder / f"video{number}.mp4")
    own = hashlib.sha256((folder / "video0.mp4").read_bytes()).hexdigest()[:16]
    kept = tmp_path / "hashes.json"

    def source(*known):
        kept.write_text(json.dumps({"video_easy": [*known, *[""] * (10 - len(known))]}))
        return clips.find("video_easy", tmp_path, None).provenance

    monkeypatch.setattr(clips, "HASHES", kept)
    assert source(own, own, "", own)["source"] == "dmcgb"
    assert source(own, own, "", "")["source"] == clips.NOT_IDENTIFIED
    assert source(own, own, "", "")["identified"] == 2
    assert source(own, "0" * 16, "", own)["source"] == clips.RECODED


def test_the_benchmarks_files_are_known_by_their_hashes(data_dir):
    """All 100 of video_hard, and the six of video_easy that have been at hand."""
    known = json.loads(clips.HASHES.read_text())
    assert [len(hashes) for hashes in known.values()] == [10, 100]
    assert [n for n, one in enumerate(known["video_easy"]) if not one] == [3, 4, 5, 7]
    assert all(known["video_hard"])
    for mode in known:
        provenance = clips.find(mode, data_dir, None).provenance
        assert provenance["source"] == "dmcgb"
        assert provenance["identified"] == provenance["clips"]


def test_records_from_before_clips_were_identified_are_not_taken_for_the_benchmarks():
    old = {"source": "dmcgb", "clips": 6}
    assert clips.source_of(old | {"stored": ["84 x 84"]}) == clips.RECODED
    assert clips.source_of(old | {"stored": ["352 x 352"]}) == clips.NOT_IDENTIFIED
    assert clips.source_of(old) == clips.NOT_IDENTIFIED
    assert clips.source_of(old | {"identified": 6}) == "dmcgb"
    assert clips.source_of({"source": "dmcgb", "settings": 100}) == "dmcgb"  # colours


def test_folders_without_clips_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none of the 2 clips.*a/x\.mp4 or b/x.*procedural"):
        in_data_folder(ClipSet("some", ("x", "y"), ("a/{}.mp4", "b/{}")), tmp_path)
    os.mkfifo(tmp_path / "clip.mp4")
    with pytest.raises(UserError, match=r"no videos in .*\.mp4"):
        in_folder(tmp_path)


def test_the_argument_beats_the_variable_and_both_must_exist(tmp_path, monkeypatch):
    monkeypatch.delenv("SVEA_DATA", raising=False)
    assert data_folder() is None
    monkeypatch.setenv("SVEA_DATA", str(tmp_path / "missing"))
    assert data_folder(tmp_path) == tmp_path
    with pytest.raises(UserError, match=r"the variable SVEA_DATA is .*missing', which is not a"):
        data_folder()
    with pytest.raises(UserError, match="data_dir is 'nowhere', which is not a folder"):
        data_folder("nowhere")
    monkeypatch.setenv("SVEA_DATA", "")
    assert data_folder() is None
