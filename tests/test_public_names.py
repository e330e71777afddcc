"""The public names: each says what it is, with an example, which runs as a test where it can."""

import inspect
from typing import Any

import pytest

import svea
from svea import envs, networks

NAMES = [
    *((name, getattr(svea, name)) for name in svea.__all__ if name != "__version__"),
    *inspect.getmembers(networks, inspect.isclass),
    *inspect.getmembers(envs, inspect.isfunction),
]


@pytest.mark.parametrize(("name", "thing"), NAMES, ids=[name for name, _ in NAMES])
def test_a_public_name_has_a_description_and_an_example(name: str, thing: Any) -> None:
    assert (thing.__doc__ or "").strip()
    together = networks.__doc__ or ""  # heads make sense with an encoder only
    assert ">>> " in (thing.__doc__ or "") or f"{name}(" in together or f"{name}, " in together
