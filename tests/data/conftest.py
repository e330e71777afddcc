import subprocess
from pathlib import Path

import pytest
from small_media import picture, put

from svea.data.clips import DAVIS


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Five frames of 16 x 16 pixels."""
    from imageio_ffmpeg import get_ffmpeg_exe

    path: Path = tmp_path_factory.mktemp("video") / "v.mp4"
    command = [get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "testsrc=size=16x16:rate=5"]
    subprocess.run([*command, "-frames:v", "5", str(path)], check=True, stdin=subprocess.DEVNULL)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path, video: bytes) -> Path:
    """A sound data folder with something of everything."""
    put(tmp_path / "dmcgb/video_easy/video0.mp4", video)
    put(tmp_path / "dmcgb/video_easy/video9.mp4", video)
    picture(tmp_path, f"DAVIS/JPEGImages/480p/{DAVIS[0]}/00000.jpg")
    picture(tmp_path, f"DAVIS/JPEGImages/480p/{DAVIS[0]}/00001.jpg")
    picture(tmp_path, "photos/sub/a.png")
    picture(tmp_path, "photos/b.jpg")
    return tmp_path
