"""GPU kernels in CUDA on this CPU (emulation.cpp), and what they are compared with."""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="needs g++ for the emulation"
)
emulated = pytest.param("cpu", marks=needs_compiler)
on_gpu = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
        reason="needs an NVIDIA GPU of compute capability 9 or above",
    ),
)
"""Where kernels that need Hopper are tested: both as parameters."""


def no_kernel(*_: object) -> None:
    """A launcher for when no kernel may run."""
    raise AssertionError("no kernel of ours")


def error(found: Tensor, wanted: Tensor) -> float:
    """Relative to what is wanted."""
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm())


class Rounded(torch.autograd.Function):
    """bfloat16's rounding of what goes forward, of what comes back, or of both."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: bool = True, back: bool = True) -> Tensor:
        ctx.back = back
        return x.bfloat16().to(x.dtype) if there else x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        rounded = gradient.bfloat16().to(gradient.dtype) if ctx.back else gradient
        return rounded, None, None


def emulator(
    folder: Path, sources: Sequence[Path], macros: dict[str, int], kernels: Sequence[str] = ()
) -> Callable[..., None]:
    """Compile sources, and return what launches their kernels; by default the trunk's.

    The first of them is tensor_cores.cu, whose functions the emulation has. What a folder has
    already is not compiled again.
    """
    text = "\n".join(path.read_text() for path in sources[1:])
    definitions = [f"-D{name}={value}" for name, value in macros.items()]
    if kernels:
        definitions.append("-DLAUNCHERS=" + " ".join(f"LAUNCHER({name})" for name in kernels))
    name = hashlib.sha256("\n".join([text, *definitions]).encode()).hexdigest()[:16]
    source, library = folder / f"{name}.cu", folder / f"{name}.so"
    if not library.exists():
        source.write_text(text)
        # Fibers jump between stacks, which a fortified library takes for an accident.
        command = ["g++", "-O1", "-U_FORTIFY_SOURCE", "-std=c++17", "-fPIC", "-shared", "-w"]
        command += [
            *definitions,
            f'-DKERNELS="{source}"',
            str(Path(__file__).with_name("emulation.cpp")),
        ]
        subprocess.run([*command, "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))

    def launch(name: str, grid: tuple[int, int], threads: int, memory: int, *given: Any) -> None:
        arguments = (ctypes.c_uint64 * len(given))(*(number_of(g) for g in given))
        getattr(loaded, f"launch_{name}")(*grid, threads, memory, arguments)

    return launch


def number_of(given: Any) -> int:
    """A tensor's or a structure's address, or the number itself."""
    if isinstance(given, ctypes.Structure):
        return ctypes.addressof(given)
    return given.data_ptr() if isinstance(given, Tensor) else int(given)
