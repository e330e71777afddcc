"""Named tensors as files: written block by block, verified byte for byte, read within a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from svea.core import files
from svea.core.errors import StorageError

_TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip
DAMAGE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, IndexError),  # of another shape
    *(OverflowError, RecursionError, MemoryError, RuntimeError, safetensors.SafetensorError),
    StorageError,  # not a plain file, or too large
)
"""What reading a damaged or hostile file may raise."""


def blocks(tensors: dict[str, Tensor]) -> Iterator[memoryview | bytes]:
    """The bytes of a safetensors file, tensor by tensor, so that no copy of all is made."""
    # The widest types first: every tensor then begins at a multiple of its own width.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            yield flat.view(torch.uint8).numpy().data


def read(path: Path, limit: int) -> dict[str, Tensor]:
    """The tensors of a plain file of at most `limit` bytes."""
    with files.open_plain(path, limit):
        return load_file(path)


def shapes(path: Path, limit: int) -> dict[str, list[int]]:
    """The shape of each tensor in a file; none is read."""
    with files.open_plain(path, limit), safetensors.safe_open(path, "pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
