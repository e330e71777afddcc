"""Named tensors as files: written block by block, read within a limit, or stored small.

Stored small, large matrices have 8 bits and everything else is in half precision. 64 weights in a
row are integers from -127 to 127 and share a scale. On agents of walker_walk and finger_spin this
moved actions by 0.003 on average (`benchmarks/stored.py`); 8 bits and one scale per row for every
matrix moved them by 0.01. Small layers hold few of the weights, and rounding them costs most.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor

from svea.core import files
from svea.core.errors import StorageError, SveaError

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


@contextlib.contextmanager
def whole(what: str, cure: str, passing: tuple[type[SveaError], ...] = ()) -> Iterator[None]:
    """A region that reads stored tensors: what is wrong with them is a StorageError."""
    try:
        yield
    except passing:
        raise
    except DAMAGE as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise StorageError(f"{what}: {reason or type(error).__name__}. {cure}") from error


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


SCALE = ":scale"
"""End of the name of a matrix's scales; no parameter has a colon in its name."""
LARGEST = 127
BLOCK = 64
LARGE = 2**18  # weights from which a matrix is stored in 8 bits


def shrink(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What `restore` gives back nearly."""
    small: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.dtype != torch.float32:
            small[name] = tensor
        elif tensor.ndim == 2 and tensor.numel() >= LARGE and tensor.numel() % BLOCK == 0:
            blocks = tensor.reshape(-1, BLOCK)
            least = torch.finfo(torch.float32).tiny
            scale = (blocks.abs().amax(1) / LARGEST).clamp_min(least).bfloat16()
            steps = (blocks / scale.float()[:, None]).round().clamp(-LARGEST, LARGEST)
            small |= {name: steps.to(torch.int8).view_as(tensor), name + SCALE: scale}
        else:
            small[name] = tensor.half()
    return small


def restore(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Everything in float32 again; what was not stored small stays as it is."""
    whole: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.dtype == torch.int8:
            blocks = tensor.float().reshape(-1, BLOCK) * state[name + SCALE].float()[:, None]
            whole[name] = blocks.view_as(tensor)
        elif not name.endswith(SCALE):
            whole[name] = tensor.float() if tensor.dtype == torch.float16 else tensor
    return whole
