"""Which small functions run compiled: a switch that `speed` turns around the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

_on = False


@contextmanager
def region(on: bool = True) -> Iterator[None]:
    """A region in which `maybe_compiled` functions are compiled."""
    global _on  # a plain variable, because torch.compile cannot read context variables
    before, _on = _on, on
    try:
        yield
    finally:
        _on = before


def maybe_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or in a `region` what torch makes of it."""
    return _compiled(function) if _on else function


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for all; it is compiled anew for every shape."""
    return torch.compile(function, dynamic=False)
