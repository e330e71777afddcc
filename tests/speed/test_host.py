"""What is set up for the whole process."""

from collections.abc import Iterator

import pytest
import torch
from tiny_runs import tiny

from svea import speed
from svea.core.errors import UserError
from svea.runs import load
from svea.runs.load import load_config
from svea.speed import EXACT, device, learner
from svea.training import train, train_together


@pytest.fixture
def flags() -> Iterator[None]:
    """What these tests change in torch is put back."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark
    yield
    torch.set_float32_matmul_precision(before[0])
    cudnn.allow_tf32, cudnn.benchmark = before[1:]


def test_float32_on_a_gpu_is_tf32_unless_exact(flags, tmp_path, monkeypatch):
    """Of a learner; and of `load_agent`, as `svea eval`, `watch` and `analyze` have no learner."""
    runs = [train(tiny(tmp_path / p, precision=p, decisions=13)) for p in ("float32", EXACT)]
    monkeypatch.setattr(load, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(load, "_check_sizes", lambda *given: pytest.skip("nothing is made"))
    for loads in (False, True):
        for exact in (False, True, False):  # the last: a later run in the process
            if loads:
                with pytest.raises(pytest.skip.Exception):
                    load.load_agent(runs[exact], device="cuda")
            else:
                device.prepare(torch.device("cuda"), exact=exact)
            assert torch.backends.cuda.matmul.allow_tf32 is not exact
            assert torch.backends.cudnn.allow_tf32 is not exact
            assert torch.get_float32_matmul_precision() == ("highest" if exact else "high")


@pytest.mark.parametrize("precision", ["float32", EXACT])
def test_the_option_reaches_the_process_and_is_recorded(precision, tmp_path, monkeypatch, capsys):
    asked: list[bool] = []
    monkeypatch.setattr(learner, "prepare", lambda device, exact: asked.append(exact))
    run = train(tiny(tmp_path / "run", precision=precision, decisions=13))
    train(tiny(run, precision=precision, decisions=15))
    assert asked == [precision == EXACT] * 2
    assert load_config(run).precision == precision
    assert f"cpu in {precision}, " in capsys.readouterr().out


def test_runs_of_both_kinds_do_not_share_a_process_on_a_gpu(tmp_path, monkeypatch):
    configs = [tiny(tmp_path / p, precision=p) for p in ("float32", EXACT)]
    monkeypatch.setattr(speed, "choose_device", lambda name: torch.device("cuda"))
    with pytest.raises(UserError, match=r"float32-exact and with another cannot share a process"):
        train_together(configs)
