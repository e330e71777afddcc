"""The benchmark's pickled tables: read to the bit, and never run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from archive_server import legacy_arrays, save_legacy

from svea.data.legacy_tables import KEYS, read_legacy_table
from svea.envs.looks.colors import generate_settings
from svea.errors import StorageError


def test_numbers_are_read_to_the_bit(tmp_path):
    random = np.random.default_rng(0)
    table = [{key: random.random(3).tolist() for key in KEYS} for _ in range(100)]
    assert read_legacy_table(save_legacy(tmp_path / "t.pt", legacy_arrays(table))) == table


def test_files_that_torch_writes_are_read(tmp_path):
    torch = pytest.importorskip("torch")
    table = generate_settings(0.2)
    torch.save(legacy_arrays(table), tmp_path / "t.pt", _use_new_zipfile_serialization=False)
    assert read_legacy_table(tmp_path / "t.pt") == table


def test_names_of_old_numpy_are_known(tmp_path):
    """Numpy 1 pickled itself as numpy.core; the same file otherwise."""
    path = save_legacy(tmp_path / "t.pt", legacy_arrays(generate_settings(0.1)))
    content = path.read_bytes()
    assert b"numpy._core.multiarray" in content
    path.write_bytes(content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))
    assert read_legacy_table(path) == generate_settings(0.1)


def test_the_benchmarks_own_numbers(tmp_path, data_dir):
    table = json.loads((data_dir / "dmcgb/color_hard.json").read_text())
    assert read_legacy_table(save_legacy(tmp_path / "t.pt", legacy_arrays(table))) == table


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -0.1, 1.5, 1e300])
def test_what_is_no_colour_is_refused(tmp_path, wrong):
    """As flipped bits leave it behind."""
    table = generate_settings(0.2)
    table[7]["self_rgb"][1] = wrong
    with pytest.raises(StorageError, match=r"self_rgb is .*, not three numbers from 0 to 1"):
        read_legacy_table(save_legacy(tmp_path / "t.pt", legacy_arrays(table)))


class Command:
    """What a hostile pickle would run."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("place", ["table", "before"])
def test_a_hostile_pickle_is_refused_and_not_run(tmp_path, place):
    target = tmp_path / "made"
    path = tmp_path / "t.pt"
    if place == "table":
        save_legacy(path, [*legacy_arrays(generate_settings(0.1)), Command(target)])
    else:
        path.write_bytes(pickle.dumps(Command(target), protocol=2) * 5)
    with pytest.raises(StorageError, match="mkdir"):
        read_legacy_table(path)
    assert not target.exists()


@pytest.mark.parametrize(
    "table",
    [
        [{"grid_rgb1": np.zeros(3)}],
        [{key: np.zeros(4) for key in KEYS}],
        legacy_arrays(generate_settings(0.1), ">f8"),
        legacy_arrays(generate_settings(0.1), "<f4"),
        [{key: [0.0, 0.0, 0.0] for key in KEYS}],
        {"x" * 24: "f8<"},
    ],
    ids=["three keys short", "four numbers", "big endian", "float32", "lists", "no table"],
)
def test_other_tables_are_refused(tmp_path, table):
    with pytest.raises(StorageError, match="no table of colours"):
        read_legacy_table(save_legacy(tmp_path / "t.pt", table))


@pytest.mark.parametrize("keep", [0, 1, 20, 200, 5000])
def test_a_truncated_file_is_refused(tmp_path, keep):
    path = save_legacy(tmp_path / "t.pt", legacy_arrays(generate_settings(0.1)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StorageError):
        read_legacy_table(path)


def test_a_huge_file_is_refused(tmp_path):
    (tmp_path / "t.pt").write_bytes(bytes(2**20 + 1))
    with pytest.raises(StorageError, match="too large"):
        read_legacy_table(tmp_path / "t.pt")
