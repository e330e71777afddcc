"""What every test may ask for."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

# Examples are not timed: the machine may be busy with other tests.
hypothesis.settings.register_profile("svea", deadline=None)
hypothesis.settings.load_profile("svea")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the benchmark's real files; tests that need them are skipped without it."""
    folder = os.environ.get("SVEA_DATA")
    if not folder:
        pytest.skip("needs the benchmark's files: set SVEA_DATA to the folder that holds them")
    return Path(folder)


@pytest.fixture
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The examples can be imported, here and in worker processes."""
    folder = Path(__file__).parents[1] / "examples"
    monkeypatch.syspath_prepend(str(folder))
    return folder
