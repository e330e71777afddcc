"""The public names: each says what it is, with an example, which runs as a test where it can."""

import inspect
from types import ModuleType
from typing import Any

import pytest

import svea
from svea import envs, networks


def public(module: ModuleType) -> list[tuple[str, Any]]:
    return [(name, getattr(module, name)) for name in module.__all__ if name != "__version__"]


NAMES = [
    *public(svea),
    *public(networks),
    *inspect.getmembers(envs, inspect.isfunction),
]


@pytest.mark.parametrize(("name", "thing"), NAMES, ids=[name for name, _ in NAMES])
def test_a_public_name_has_a_description_and_an_example(name: str, thing: Any) -> None:
    assert (thing.__doc__ or "").strip()
    together = networks.__doc__ or ""  # heads make sense with an encoder only
    assert ">>> " in (thing.__doc__ or "") or f"{name}(" in together or f"{name}, " in together
