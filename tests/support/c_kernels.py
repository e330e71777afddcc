"""For tests of the kernels in C: a mark, because they need a compiler, and other instructions."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

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


def compile_for(
    option: str, modules: list[ModuleType], patch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Let modules use kernels that are compiled with an option in addition, in a cache apart."""
    if compiled.native() != "-march=native":
        pytest.skip("not an x86 processor: its own instructions are what the other tests use")
    patch.setenv("XDG_CACHE_HOME", str(folder))
    patch.setattr(cpu, "OPTIMISE", (*cpu.OPTIMISE, option))
    fresh, made = cpu.library.__wrapped__, dict[Any, Any]()

    def library(*key: Any) -> Any:
        return made.get(key) or made.setdefault(key, fresh(*key))

    for module in modules:
        patch.setattr(module, "library", library)
