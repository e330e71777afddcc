"""Packets between the playground's processes, and to its page: a JSON header and binary parts.

4 bytes, little endian: length of the header
the header, whose "parts" are the lengths of what follows
the parts: a JPEG of the scene, the pixels that the agent sees, what is laid over the newest, and
    JPEGs of the scene between the last decision and this one
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

LENGTH = struct.Struct("<I")
FRAME = struct.Struct("<I")  # in front of a packet on a socket between processes
LARGEST = 8 * 2**20


class Packet(NamedTuple):
    """A header and its parts, and both as bytes."""

    header: dict[str, Any]
    parts: list[bytes]
    raw: bytes


def pack(header: dict[str, Any], *parts: bytes) -> bytes:
    """A packet as bytes."""
    text = json.dumps(header | {"parts": [len(part) for part in parts]}, allow_nan=False).encode()
    return b"".join([LENGTH.pack(len(text)), text, *parts])


def unpack(raw: bytes) -> Packet:
    """What `pack` was given.

    >>> unpack(pack({"agent": 1}, b"jpeg")).parts
    [b'jpeg']
    """
    (length,) = LENGTH.unpack_from(raw)
    start = LENGTH.size + length
    header = json.loads(raw[LENGTH.size : start])
    parts = []
    for size in header["parts"]:
        parts.append(raw[start : start + size])
        start += size
    return Packet(header, parts, raw)


def framed(raw: bytes) -> bytes:
    """A packet with its length in front."""
    return FRAME.pack(len(raw)) + raw
