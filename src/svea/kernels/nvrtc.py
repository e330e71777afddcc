"""Kernels in CUDA, compiled on the machine that runs them by NVRTC, which comes with torch."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svea.core.compiled import own_folder, path_for, read, write
from svea.core.errors import StorageError, UserError

MOST_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
PLAIN_SHARED_MEMORY = 48 * 1024  # more must be asked for


class BuildError(UserError):
    """The kernels cannot be compiled or loaded here; the message says what is in the way."""


class Kernels:
    """The kernels of some sources, compiled for a GPU unless an earlier run did it."""

    def __init__(self, sources: Sequence[Path], macros: dict[str, int], device: torch.device):
        self._device = device
        self._image = compiled(tuple(sources), tuple(macros.items()), device)
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        self._functions: dict[str, tuple[ctypes.c_void_p, int]] = {}
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # torch makes its context when first used
            try:
                self._ask("cuModuleLoadData", ctypes.byref(self._module), self._image)
            except torch.AcceleratorError as error:  # a driver older than the compiler
                raise BuildError(f"the driver does not load them: {error}") from error
            self._context = ctypes.c_void_p()
            self._ask("cuCtxGetCurrent", ctypes.byref(self._context))

    def __call__(
        self, kernel: str, blocks: tuple[int, int], threads: int, memory: int, *arguments: Any
    ) -> None:
        """Start a kernel on the current stream.

        Args:
            kernel: its name.
            blocks: of the grid.
            threads: of a block.
            memory: shared, in bytes.
            arguments: tensors of the GPU, whole numbers, or structures.
        """
        values = [
            a
            if isinstance(a, ctypes.Structure)
            else ctypes.c_uint64(a.data_ptr() if isinstance(a, Tensor) else a)
            for a in arguments
        ]  # a shorter number is the lower half of 64 bits
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._enter_context()
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        self._ask(
            "cuLaunchKernel", self._function(kernel, memory),
            *blocks, 1, threads, 1, 1, memory, stream, places, None,
        )  # fmt: skip

    def _enter_context(self) -> None:
        """Let a thread that knows none, as autograd's at first, have torch's context."""
        context = ctypes.c_void_p()
        self._ask("cuCtxGetCurrent", ctypes.byref(context))
        if not context:
            self._ask("cuCtxSetCurrent", self._context)

    def _function(self, kernel: str, memory: int) -> ctypes.c_void_p:
        """The kernel, allowed to have so much shared memory."""
        function, allowed = self._functions.get(kernel, (ctypes.c_void_p(), PLAIN_SHARED_MEMORY))
        if kernel not in self._functions:
            self._ask("cuModuleGetFunction", ctypes.byref(function), self._module, kernel.encode())
        if memory > allowed:
            self._ask("cuFuncSetAttribute", function, MOST_SHARED_MEMORY, memory)
        self._functions[kernel] = function, max(memory, allowed)
        return function

    def _ask(self, name: str, *arguments: Any) -> None:
        """Call the driver."""
        status = getattr(self._driver, name)(*arguments)
        if status:
            said = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(said))
            reason = said.value.decode() if said.value else f"error {status}"
            raise torch.AcceleratorError(f"{name}: {reason}")


@functools.cache
def compiled(
    sources: tuple[Path, ...], macros: tuple[tuple[str, int], ...], device: torch.device
) -> bytes:
    """Machine code for a GPU."""
    major, minor = torch.cuda.get_device_capability(device)
    own = "a" if ("WIDE", 1) in macros else ""  # with what no other generation has (wide.cu)
    options = [f"--gpu-architecture=sm_{major}{minor}{own}", "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in macros]
    source = "\n".join(path.read_text() for path in sources)
    try:
        path = path_for([source, *options, str(torch.version.cuda)], "cubin")
        own_folder(path.parent)
        if not (made := read(path)):
            made = compile_source(source, options)
            write(path, made)
        return made
    except (OSError, RuntimeError, StorageError) as error:  # RuntimeError: there is no home folder
        raise BuildError(f"{error}; XDG_CACHE_HOME says where compiled kernels are kept") from error


def compile_source(source: str, options: Sequence[str]) -> bytes:
    """Compile a source."""
    nvrtc, program = library(), ctypes.c_void_p()
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    size = ctypes.c_size_t()

    def content(what: str) -> bytes:
        getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{what}")(program, room)
        return room.raw

    failed = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None
    )
    failed = failed or nvrtc.nvrtcCompileProgram(program, len(options), given)
    if failed:
        said = content("ProgramLog").rstrip(b"\0").decode(errors="replace") if program else ""
        raise BuildError(f"NVRTC says: {said[:500] or failed}")
    made = content("CUBIN")
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return made


def library() -> ctypes.CDLL:
    """NVRTC: torch's own, or the system's."""
    major = (torch.version.cuda or "").split(".")[0]
    name = f"libnvrtc.so.{major}"
    packages = Path(torch.__file__).parent.parent
    for place in [*packages.glob(f"nvidia/*/lib/{name}"), Path(name)]:
        try:
            for part in place.parent.glob(f"libnvrtc-builtins.so.{major}.*"):
                ctypes.CDLL(str(part))  # it looks for it by name alone
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    raise BuildError(f"{name}, NVIDIA's compiler library that torch comes with, is not installed")
