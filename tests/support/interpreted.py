"""Triton's interpreter, made to work with the NumPy of today."""

from __future__ import annotations

from typing import Any


def accept_scalars_as_bounds() -> None:
    """Let a scalar be a loop's bound: it is an array of one, which NumPy 2.5 takes for no int."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched
