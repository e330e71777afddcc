"""GPU kernels in Triton: on a GPU, or in Triton's interpreter if it is there."""

import os
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton", reason="needs Triton, which comes with torch's CUDA builds")

from triton.runtime import interpreter

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
_original = interpreter._patch_lang_tensor


def _patched(tensor: Any, scope: Any) -> None:
    """Let a scalar be a loop's bound: it is an array of one, which NumPy 2.5 takes for no int."""
    _original(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patched
