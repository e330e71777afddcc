"""For tests of the kernels in C: a mark, because they need a compiler, and other instructions."""

import functools
from pathlib import Path

import pytest

from svea.core import compiled
from svea.kernels import cpu


def cannot_build() -> str:
    """Why the kernels cannot be built here; nothing if they can."""
    try:
        cpu.library()
    except cpu.BuildError as error:
        return str(error)
    return ""


builds = pytest.mark.skipif(bool(cannot_build()), reason=cannot_build() or "it builds")


def compile_for(option: str, patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let kernels be compiled with an option in addition, in a cache apart."""
    if compiled.native() != "-march=native":
        pytest.skip("not an x86 processor: its own instructions are what the other tests use")
    patch.setenv("XDG_CACHE_HOME", str(folder))
    patch.setattr(cpu, "OPTIMISE", (*cpu.OPTIMISE, option))
    patch.setattr(cpu, "library", functools.cache(cpu.library.__wrapped__))
