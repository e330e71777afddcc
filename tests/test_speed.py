from __future__ import annotations

import subprocess
from typing import Any

import pytest
import torch

from svea import speed
from svea.agents import make_agent
from svea.errors import UserError
from svea.replay import Batch
from tiny_runs import tiny

CPU = torch.device("cpu")
torch.set_num_threads(1)


def test_an_absent_device_is_an_error_that_names_the_present_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert speed.choose_device("auto") == speed.choose_device("cpu") == CPU
    with pytest.raises(UserError, match="device cuda is not available; allowed here: auto, cpu"):
        speed.choose_device("cuda")
    with pytest.raises(UserError, match="device gpu is not available"):
        speed.choose_device("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert speed.choose_device("auto").type == "cuda"


def test_precision_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert speed.choose_precision("auto", CPU) == torch.float32
    assert speed.choose_precision("float32", torch.device("cuda")) == torch.float32
    for native, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda native=native: native)
        assert speed.choose_precision("auto", torch.device("cuda")) == expected


def test_bfloat16_on_a_cpu_is_tried_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def trial(status: int) -> Any:
        return lambda *_, **__: subprocess.CompletedProcess([], status)

    monkeypatch.setattr(subprocess, "run", trial(0))
    assert speed.choose_precision("bfloat16", CPU) == torch.bfloat16
    monkeypatch.setattr(subprocess, "run", trial(-4))  # an illegal instruction
    with pytest.raises(UserError, match=r"bfloat16, but this CPU.*--precision float32"):
        speed.choose_precision("bfloat16", CPU)


def test_the_context_is_autocast_only_below_float32() -> None:
    with speed.precision_context(CPU, torch.float32):
        assert not torch.is_autocast_enabled("cpu")
    with speed.precision_context(CPU, torch.bfloat16):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16


def test_preparing_an_agent_changes_nothing_but_speed(tmp_path: Any) -> None:
    config = tiny(tmp_path)
    plain, prepared = make_agent(config, 1), make_agent(config, 1)
    speed.prepare(prepared)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (8, 9, 16, 16), dtype=torch.uint8, generator=random)
    batch = Batch(images, torch.zeros(8, 1), torch.ones(8), torch.zeros(8), images.flip(0))
    for agent in (plain, prepared):
        agent.update(batch, 2)
    first, second = plain.state_dict(), prepared.state_dict()
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-4, atol=1e-5, msg=name)
