"""Small pictures and files in the layouts that svea reads."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from imageio_ffmpeg import read_frames, write_frames
from PIL import Image


def picture(folder: Path, name: str, width: int = 40, height: int = 40) -> Path:
    """Write a picture of noise."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(noise).save(path)
    return path


def put(path: Path, content: bytes | str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_video(path: Path, frames: np.ndarray, options: Sequence[str] = ()) -> Path:
    """Write frames `(count, height, width, 3)`, of even height and width, as a video."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = (frames.shape[2], frames.shape[1])
    writer = write_frames(
        str(path), size, fps=25, quality=9, macro_block_size=1, output_params=list(options)
    )
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame).tobytes())
    writer.close()
    return path


def full_frames(path: Path) -> np.ndarray:
    """All frames of a video as they are stored, decoded without any code of ours."""
    reader = read_frames(str(path), pix_fmt="rgb24")
    width, height = next(reader)["source_size"]
    return np.stack([np.frombuffer(f, np.uint8).reshape(height, width, 3) for f in reader])
