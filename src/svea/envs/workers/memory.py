"""The memory in which workers and their parent see observations and actions."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Sequence
from typing import IO

import numpy as np

COUNT_FORMAT = struct.Struct("<q")  # of fixed size, so that reading it takes nothing that follows


class Shared:
    """Views into the shared memory: observations, last observations of ended episodes, actions."""

    def __init__(self, file: int, count: int, shape: Sequence[int], actions: int) -> None:
        pixels = count * int(np.prod(shape))
        self._map = mmap.mmap(file, self.size(count, shape, actions))
        self.observations = np.frombuffer(self._map, np.uint8, pixels).reshape(count, *shape)
        self.finals = np.frombuffer(self._map, np.uint8, pixels, pixels).reshape(count, *shape)
        self.actions = np.frombuffer(
            self._map, np.float32, count * actions, self._aligned(2 * pixels)
        ).reshape(count, actions)

    @classmethod
    def size(cls, count: int, shape: Sequence[int], actions: int) -> int:
        """Bytes needed."""
        return cls._aligned(2 * count * int(np.prod(shape))) + count * actions * 4

    @staticmethod
    def _aligned(size: int) -> int:
        return (size + 3) // 4 * 4


def anonymous_file(name: str) -> IO[bytes]:
    """An anonymous file: it has no path, so nothing stays on disk."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
