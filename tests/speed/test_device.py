"""Where and how exactly is computed, and what is set up for the whole process."""

from collections.abc import Iterator

import pytest
import torch
from tiny_runs import tiny

from svea import speed
from svea.core.errors import DeviceError, UserError
from svea.runs import load
from svea.runs.load import load_config
from svea.speed import EXACT, device, learner
from svea.training import train, train_together

CPU = torch.device("cpu")


def test_an_absent_device_is_an_error_that_names_the_present_ones(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device.choose_device("auto") == device.choose_device("cpu") == CPU
    for absent in ("cuda", "gpu"):
        with pytest.raises(UserError, match=f"{absent}.*auto, cpu"):
            device.choose_device(absent)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device.choose_device("auto").type == "cuda"


def test_precision_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.choose_precision("auto", CPU) == torch.float32
    for name in ("float32", "float32-exact"):
        assert device.choose_precision(name, torch.device("cuda")) == torch.float32
    for native, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda native=native: native)
        assert device.choose_precision("auto", torch.device("cuda")) == expected
    assert device.choose_precision("bfloat16", torch.device("cuda")) == torch.bfloat16
    with pytest.raises(UserError, match="bfloat16"):
        device.choose_precision("bfloat16", CPU)


def test_speeds_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    monkeypatch.setattr(device, "missing_for_compiling", lambda _: "")
    for place, best in (("cpu", "compiled"), ("mps", "eager"), ("cuda", "captured")):
        assert device.choose_speed("auto", torch.device(place)) == best
    assert device.choose_speed("compiled", CPU) == "compiled"
    for wrong in ("captured", "fast"):
        with pytest.raises(UserError, match=wrong):
            device.choose_speed(wrong, CPU)
    monkeypatch.setattr(device, "missing_for_compiling", lambda _: "there is no Triton")
    with pytest.raises(UserError, match=r"there is no Triton.*--speed eager"):
        device.choose_speed("compiled", gpu)
    with pytest.warns(UserWarning, match="uncompiled.*Triton"):
        assert device.choose_speed("auto", gpu) == "eager"


def test_only_what_can_repeat_promises_it() -> None:
    with pytest.raises(UserError, match="mps"):
        device.repeat_exactly(torch.device("mps"))
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_gpu_that_is_full_or_fails_is_explained() -> None:
    with pytest.raises(UserError, match=r"no room.*--batch-size"), device.explained():
        raise torch.OutOfMemoryError("no room.\nmany details")
    with pytest.raises(DeviceError, match="the GPU failed") as caught, device.explained():
        raise torch.AcceleratorError("illegal address")
    assert caught.value.exit_code == 7


# The process --------------------------------------------------------------------------------------


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
