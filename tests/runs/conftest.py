"""One tiny run for all tests of what is stored."""

from pathlib import Path

import pytest
from tiny_runs import tiny

from svea.training import train


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("trained") / "run", decisions=16))
