"""Small pictures and files in the layouts that svea reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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
