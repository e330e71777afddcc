import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from svea.config import configure
from svea.core.errors import NumericsError, UserError
from svea.runs import log
from svea.runs.log import (
    Accumulator,
    Log,
    Rates,
    TensorBoard,
    WeightsAndBiases,
    check_loggers,
    scalars,
)

CPU = torch.device("cpu")


def test_means_count_each_name_by_itself_and_keep_their_own_copy() -> None:
    figures, value = Accumulator(), torch.tensor(1.0)
    figures.add({"critic_loss": value, "actor_loss": torch.tensor(5.0)})
    value.fill_(100)
    figures.add({"critic_loss": torch.tensor(4.0, requires_grad=True)})
    assert figures.take() == {"critic_loss": 2.5, "actor_loss": 5.0}
    assert figures.take() == {}


def test_state_survives_json_bit_for_bit() -> None:
    one, two = Accumulator(), Accumulator()
    for step in range(7):
        one.add({"loss": torch.tensor(0.1 * step)})
    two.load_state(json.loads(json.dumps(one.state())), CPU)
    for figures in (one, two):
        figures.add({"loss": torch.tensor(1 / 3)})
    assert one.take() == two.take()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("read", [Accumulator.take, Accumulator.state])
def test_divergence_is_an_error_wherever_figures_are_read(bad: float, read: Any) -> None:
    figures = Accumulator()
    figures.add({"actor_loss": torch.tensor(1.0), "critic_loss": torch.tensor(bad)})
    with pytest.raises(NumericsError, match="critic_loss"):
        read(figures)


class Sink:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.closed = False

    def write(self, record: dict[str, Any]) -> None:
        self.records.append(record)

    def close(self) -> None:
        self.closed = True


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_on_disk_at_once_and_in_the_sinks(tmp_path: Path) -> None:
    path, sink = tmp_path / "metrics.jsonl", Sink()
    log = Log(path, sinks=[sink])
    log.write("train", decision=1, critic_loss=0.5)
    assert lines(path) == sink.records == [{"kind": "train", "decision": 1, "critic_loss": 0.5}]
    assert log.offset == path.stat().st_size
    log.close()
    assert sink.closed


def test_a_resumed_log_forgets_what_came_after_the_checkpoint_and_is_not_padded(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = Log(path)
    log.write("train", decision=1)
    offset = log.offset
    log.write("train", decision=2)
    log.close()
    for at, decisions in ((offset, [1, 3]), (500, [1, 3, 3])):
        log = Log(path, at)
        log.write("train", decision=3)
        log.close()
        assert [line["decision"] for line in lines(path)] == decisions


def test_scalars_of_a_line() -> None:
    where = {"decision": 5, "frame": 20, "seconds": 1.5}
    record = {"kind": "eval", "mode": "train", "return_mean": 2.0, "returns": [1, 3]}
    assert scalars(record | where) == {"eval/train/return_mean": 2.0}
    assert scalars({"kind": "episode", "env": 3, "return": 7.0} | where) == {"episode/return": 7.0}


def test_tensorboard_takes_a_run(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = Log(tmp_path / "metrics.jsonl", sinks=[TensorBoard(tmp_path, 0)])
    log.write("train", decision=3, critic_loss=0.5)
    log.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (event,) = events.Scalars("train/critic_loss")
    assert (event.step, event.value) == (3, 0.5)


def test_a_sink_that_fails_is_dropped_and_the_log_goes_on(tmp_path, capsys):
    class Full(Sink):
        def write(self, record: dict[str, Any]) -> None:
            raise OSError("no space left")

    healthy = Sink()
    log = Log(tmp_path / "metrics.jsonl", sinks=[Full(), healthy])
    for decision in (1, 2):
        log.write("train", decision=decision)
    log.close()
    assert len(lines(tmp_path / "metrics.jsonl")) == len(healthy.records) == 2 and healthy.closed
    assert capsys.readouterr().err.count("Full") == 1


def test_numbers_that_are_not_finite_are_named_and_not_logged(tmp_path: Path) -> None:
    log = Log(tmp_path / "metrics.jsonl")
    with pytest.raises(NumericsError, match="return_mean"):
        log.write("eval", decision=1, return_mean=float("nan"))
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_weights_and_biases_that_cannot_begin_is_one_message(tmp_path, monkeypatch):
    def init(**settings: Any) -> None:
        raise ConnectionError("api.wandb.ai cannot be reached")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    with pytest.raises(UserError, match=r"api\.wandb\.ai"):
        WeightsAndBiases(tmp_path, configure("walker_walk"))


def test_weights_and_biases_groups_seeds_and_draws_over_decisions(tmp_path, monkeypatch):
    wandb = MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    for seed in (0, 1):
        sink = WeightsAndBiases(tmp_path, configure("walker_walk", seed=seed))
        begun = wandb.init.call_args.kwargs
        assert (begun["project"], begun["group"]) == ("theirs", "walker_walk-svea-conv-cnn-sac")
    run = wandb.init.return_value
    axes = [(*call.args, *call.kwargs.values()) for call in run.define_metric.call_args_list]
    assert axes[:2] == [("decision",), ("*", "decision")]
    sink.write({"kind": "train", "decision": 7, "frame": 28, "critic_loss": 0.5})
    run.log.assert_called_once_with({"train/critic_loss": 0.5, "decision": 7, "frame": 28})
    WeightsAndBiases(tmp_path, configure("walker_walk", wandb_project="mine"))
    assert wandb.init.call_args.kwargs["project"] == "mine"


def test_weights_and_biases_itself_takes_a_run_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="pip install wandb to run this")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    config = configure("walker_walk", wandb_project="mine")
    log = Log(tmp_path / "metrics.jsonl", sinks=[WeightsAndBiases(tmp_path, config)])
    log.write("train", decision=3, frame=12, critic_loss=0.5)
    log.write("eval", decision=3, frame=12, mode="color_hard", return_mean=7.0)
    assert len(log.sinks) == 1
    log.close()
    wandb.teardown()  # waits until its service has written the file
    (stored,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    for name in ("train/critic_loss", "eval/color_hard/return_mean", "frame", "mine"):
        assert name.encode() in stored.read_bytes()


@pytest.mark.parametrize("options", [{"wandb": True}, {"wandb_project": "mine"}])
def test_a_logger_that_is_missing_is_named_before_anything_starts(options, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    config = configure("walker_walk", out=str(tmp_path / "run"), **options)
    with pytest.raises(UserError, match="wandb"):
        check_loggers(config)


def test_rates_are_since_the_last_time_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: clock[0])
    measured = Rates(updates=100, decision=50)
    clock[0] = 3.0
    with measured.paused():
        clock[0] = 9.0
    clock[0] = 11.0
    assert measured.take(150, 60) == {"updates_per_second": 10.0, "decisions_per_second": 2.0}
    clock[0] = 12.0
    assert measured.take(153, 64) == {"updates_per_second": 3.0, "decisions_per_second": 4.0}
