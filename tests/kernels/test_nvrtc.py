"""CUDA kernels are compiled once and kept; what is in the way is said in one sentence."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from svea.core.compiled import read
from svea.kernels import chain, nvrtc

MACROS = (("LAYERS", 11), ("SIDE", 84))
GPU = torch.device("cuda", 0)


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The options of each call to a compiler that stands for NVRTC; the cache is empty."""
    calls: list[list[str]] = []

    def compile_source(source: str, options: Sequence[str]) -> bytes:
        calls.append(list(options))
        return f"machine code {len(calls)}".encode()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(nvrtc, "compile_source", compile_source)
    return calls


def compiled(macros: tuple[tuple[str, int], ...] = MACROS) -> bytes:
    """As in a new process, which knows only what is on disk."""
    return nvrtc.compiled.__wrapped__(tuple(chain.SOURCES), macros, GPU)


def test_kernels_are_compiled_once_for_a_network(compilations: list[list[str]]) -> None:
    assert [compiled(), compiled()] == [b"machine code 1"] * 2
    assert compiled((("LAYERS", 4), ("SIDE", 84))) == b"machine code 2"
    options = ["--gpu-architecture=sm_90", "--std=c++17", "-DLAYERS=11", "-DSIDE=84"]
    assert len(compilations) == 2 and compilations[0] == options


def test_products_of_four_warps_are_compiled_for_one_generation(compilations):
    compiled((("WIDE", 1),)), compiled((("WIDE", 0),))
    assert [options[0][-6:] for options in compilations] == ["sm_90a", "=sm_90"]


def test_damaged_kernels_are_compiled_again(compilations: list[list[str]], tmp_path: Path) -> None:
    compiled()
    (file,) = (tmp_path / "svea").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert compiled() == b"machine code 2" and read(file)


def test_a_cache_that_cannot_be_written_is_named(compilations, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(nvrtc.BuildError, match="XDG_CACHE_HOME says where"):
        compiled()


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "99.1")
    with pytest.raises(nvrtc.BuildError, match=r"libnvrtc\.so\.99, .* is not installed"):
        nvrtc.library()
