"""A mark for tests of the kernels in C: they need a compiler."""

from __future__ import annotations

import pytest

from svea.speed.kernels import cpu


def cannot_build() -> str:
    """Why the kernels cannot be built here; nothing if they can."""
    try:
        cpu.library()
    except cpu.BuildError as error:
        return str(error)
    return ""


builds = pytest.mark.skipif(bool(cannot_build()), reason=cannot_build() or "it builds")
