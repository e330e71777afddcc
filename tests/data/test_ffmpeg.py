"""An ffmpeg that does not work is named, in one message, without a long wait."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from svea.augment.images import ImageBank
from svea.data import clips, decode, ffmpeg
from svea.data.ffmpeg import FfmpegError

BROKEN = {
    "missing": None,
    "not executable": "#!/bin/sh\n",
    "garbage": "\x7fELF garbage",
    "fails": "#!/bin/sh\necho no such codec >&2\nexit 3\n",
    "hangs": "#!/bin/sh\nsleep 60\n",
    "hangs in its work": '#!/bin/sh\n[ "$1" = -version ] || sleep 60\n',
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A program in ffmpeg's place that does not do its work."""
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    if (content := BROKEN[request.param]) is not None:
        program.write_text(content)
        program.chmod(0o644 if request.param == "not executable" else 0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(program))
    monkeypatch.setattr(ffmpeg, "START_SECONDS", 0.5)
    monkeypatch.setattr(ffmpeg, "SILENT_SECONDS", 0.5)
    return str(program)


def folder_with(video: bytes, place: Path) -> Path:
    place.mkdir()
    for name in ("a.mp4", "b.mp4"):
        (place / name).write_bytes(video)
    return place


def background(folder: Path) -> None:
    clips.in_folder(folder).open(0).frame(0)


USES: dict[str, Callable[[Path], object]] = {
    "a moving background": background,
    "pictures for overlay": ImageBank.folder,
    "svea doctor": lambda folder: decode.try_decoder(),
}


@pytest.mark.parametrize("use", USES)
def test_a_broken_ffmpeg_is_named(broken: str, use: str, tmp_path: Path, video: bytes) -> None:
    folder = folder_with(video, tmp_path / "videos")
    with pytest.raises(ValueError, match="ffmpeg") as raised:
        USES[use](folder)
    assert broken in str(raised.value) and "IMAGEIO_FFMPEG_EXE" in str(raised.value)


def test_a_broken_ffmpeg_writes_no_video_and_leaves_nothing(broken: str, tmp_path: Path) -> None:
    from svea.core.errors import SveaError
    from svea.evaluation import film

    out = tmp_path / "out" / "film.mp4"
    pictures = [np.zeros((64, 64, 3), np.uint8)] * 400  # more than a pipe holds
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(film, "ENCODING_SECONDS", 0.5)
        with pytest.raises(SveaError, match=r"ffmpeg|no such codec"):
            film.write_video(out, pictures, 10)
    assert not out.parent.exists() or list(out.parent.iterdir()) == []


def test_what_a_broken_decoder_started_ends_with_it(tmp_path: Path) -> None:
    """A script's own child holds the pipe open after the script is killed."""
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\nsleep 60 &\nwait\n")
    program.chmod(0o755)
    with (
        pytest.raises(ffmpeg.Silent),
        ffmpeg.Process([str(program)], silent_seconds=0.3) as process,
    ):
        process.read(10)


def test_an_error_of_the_decoding_thread_reaches_the_one_who_waits(tmp_path, video, monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("the decoder broke")

    monkeypatch.setattr(clips, "read_video", fail)
    folder = folder_with(video, tmp_path / "videos")
    with pytest.raises(ValueError, match="ZeroDivisionError: the decoder broke"):
        background(folder)


def test_an_error_names_the_program_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", none)
    with pytest.raises(FfmpegError, match="no ffmpeg was found: No ffmpeg exe could be found"):
        ffmpeg.executable()


def test_an_ffmpeg_without_h264_is_named_and_not_the_disk(tmp_path, monkeypatch):
    """As some distributions build it: it decodes, and has no libx264."""
    from svea.cli.doctor import check_ffmpeg
    from svea.evaluation.film import write_video

    program = tmp_path / "ffmpeg"
    listing = '#!/bin/sh\ncase "$*" in *-encoders*) echo " V..... mpeg4";; '
    program.write_text(f'{listing} *) exec {ffmpeg.executable()} "$@";; esac\n')
    program.chmod(0o755)
    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", lambda: str(program))
    decode.try_decoder()
    with pytest.raises(FfmpegError, match=r"built without libx264, so it cannot write videos") as e:
        write_video(tmp_path / "film.mp4", [np.zeros((64, 64, 3), np.uint8)], 10)
    assert str(program) in str(e.value) and not (tmp_path / "film.mp4").exists()
    check = check_ffmpeg()
    assert check.status == "warning" and "decodes, but was built without libx264" in check.value
