from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Five frames of 16 x 16 pixels."""
    from imageio_ffmpeg import get_ffmpeg_exe

    path: Path = tmp_path_factory.mktemp("video") / "v.mp4"
    command = [get_ffmpeg_exe(), "-v", "error", "-f", "lavfi", "-i", "testsrc=size=16x16:rate=5"]
    subprocess.run([*command, "-frames:v", "5", str(path)], check=True, stdin=subprocess.DEVNULL)
    return path.read_bytes()
