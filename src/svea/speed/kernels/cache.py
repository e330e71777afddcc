"""Compiled kernels on disk: a file's name says what it was made from, its end that it is whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from svea import files

HASH = 32  # bytes of a SHA-256


def path_for(made_from: Iterable[str], suffix: str) -> Path:
    """Where kernels lie that were made from these texts."""
    name = hashlib.sha256("\n".join(made_from).encode()).hexdigest()[:16]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "svea" / f"kernels-{name}.{suffix}"


def is_whole(file: Path) -> bool:
    """Whether a file is there and ends with its own hash; damaged kernels would crash Python."""
    content = file.read_bytes() if file.exists() else b""
    return hashlib.sha256(content[:-HASH]).digest() == content[-HASH:]


def write(file: Path, content: bytes) -> None:
    """Keep kernels; several processes may do so at once, and each leaves a whole file."""
    files.make_folder(file.parent)
    files.replace(file, [content, hashlib.sha256(content).digest()])
