"""Runs that several tests look at."""

import shutil
from pathlib import Path

import pytest
from tiny_runs import tiny

from svea.training import train


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("runs") / "uninterrupted"))


@pytest.fixture
def copied(uninterrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(uninterrupted, tmp_path / "copied"))
