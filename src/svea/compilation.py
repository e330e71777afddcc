"""Which small functions run compiled: a switch that `speed` turns around the update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import torch

How = Literal["as written", "by torch", "in C"]

_how: How = "as written"


@contextmanager
def region(how: How) -> Iterator[None]:
    """A region in which small functions run in this way."""
    global _how  # a plain variable, because torch.compile cannot read context variables
    before, _how = _how, how
    try:
        yield
    finally:
        _how = before


def maybe_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, or in a region ``by torch`` what torch makes of it."""
    return _compiled(function) if _how == "by torch" else function


def in_c() -> bool:
    """Whether functions that have a version in C use it."""
    return _how == "in C"


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for all; it is compiled anew for every shape."""
    return torch.compile(function, dynamic=False)
