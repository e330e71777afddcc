"""Pictures on disk. No torch."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from svea.core import files


def write_picture(path: Path, picture: Image.Image) -> None:
    """A PNG, making its folder."""
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    files.write_whole(path, buffer.getvalue())
