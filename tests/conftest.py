"""What every test may ask for."""

import importlib
import os
import random
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hypothesis
import numpy as np
import pytest

# Examples are not timed: the machine may be busy with other tests.
hypothesis.settings.register_profile("svea", deadline=None)
hypothesis.settings.load_profile("svea")

# One thread in every test process, which share the machine, and in what they start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# As in an activated environment: what is printed to type next says first how to get there.
os.environ["PATH"] = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"

# A shell starts `make test &` with Ctrl-C ignored, and so would be every process that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Numbers that a test draws without a seed are the same whenever it runs, alone or not.

    Set SVEA_TEST_SEED to draw others.
    """
    seed = zlib.crc32(f"{os.environ.get('SVEA_TEST_SEED', '')} {request.node.nodeid}".encode())
    random.seed(seed)
    np.random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


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


@pytest.fixture
def own_augments() -> Iterator[ModuleType]:
    """A user's module with augmentations, forgotten after the test."""
    module = importlib.import_module("own_augments")
    yield module
    from svea.augment import AUGMENTATIONS
    from svea.config.names import AUGMENTATION_NAMES

    AUGMENTATIONS.pop("own_gamma")
    AUGMENTATION_NAMES.remove("own_gamma")
    sys.modules.pop("own_augments")
