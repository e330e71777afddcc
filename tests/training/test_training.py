"""Several runs in one process."""

import dataclasses

import pytest
import torch
from tiny_runs import tiny
from whole_runs import assert_same

from svea.config import Config
from svea.core.errors import SveaError, UserError
from svea.envs.workers.pool import Workers
from svea.training import Trainer, train, train_each, train_together


def test_runs_that_take_turns_are_the_runs_alone(tmp_path, monkeypatch):
    """A trainer leaves a core to its environments, so the second begins with fewer threads.

    The layers are so large that the last bits of their decomposition show it, and have the 16
    filters that the kernels in C take.
    """
    network = {"layers": 4, "filters": 16, "projection": 50, "hidden": 256}
    short = {"decisions": 16, "eval_every": 16, "network": network}
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def config(name: str, seed: int) -> Config:
        torch.set_num_threads(2)  # as a process begins
        return tiny(tmp_path / f"{name}-{seed}", seed=seed, **short)

    try:
        alone = [train(config("alone", seed)) for seed in (0, 1)]
        together = train_together([config("together", seed) for seed in (0, 1)])
    finally:
        torch.set_num_threads(1)
    for one, other in zip(alone, together, strict=True):
        assert_same(one, other)


def test_the_processes_of_all_runs_start_before_any_is_waited_for(tmp_path, monkeypatch):
    """Environments for training and for the first evaluation, of both runs."""
    events: list[str] = []
    start, wait = Workers._start_all, Workers.wait
    monkeypatch.setattr(
        Workers, "_start_all", lambda self, count: [events.append("start"), start(self, count)]
    )
    monkeypatch.setattr(Workers, "wait", lambda self: [events.append("wait"), wait(self)])
    train_together([tiny(tmp_path / f"{seed}", seed=seed, decisions=4) for seed in (0, 1)])
    assert events[:4] == ["start"] * 4 and "start" not in events[4:]


def test_what_ends_one_run_does_not_end_the_others(uninterrupted, tmp_path, monkeypatch, capsys):
    """A broken environment, a refusal, a mistake in the program: each is printed with its run."""
    report = Trainer.report

    def mistaken(trainer: Trainer) -> None:
        if trainer.config.seed == 3:
            raise ZeroDivisionError("a mistake")
        report(trainer)

    monkeypatch.setattr(Trainer, "report", mistaken)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "thesis.tex").touch()
    tasks = ("make", "make_broken", "make", "make")
    runs = [tiny(tmp_path / str(seed), f"toy:{t}", seed=seed) for seed, t in enumerate(tasks)]
    fine, broken, refused, wrong = train_each(runs)
    assert fine is None and isinstance(broken, SveaError) and isinstance(refused, UserError)
    assert isinstance(wrong, ZeroDivisionError)
    out, err = capsys.readouterr()
    assert "toy:make svea s0: decision 40/40 (frame 40)  evaluation" in out
    assert "toy:make svea s0: done: 40 decisions" in out
    assert "toy:make_broken svea s1: environment 0 raised" in err
    assert "Traceback" in err, "it is a mistake in the program: show where"
    assert_same(uninterrupted, runs[0].folder)
    with pytest.raises(UserError, match=r"^toy:make svea s2: "):
        train_together([runs[2], dataclasses.replace(runs[0], decisions=41)])


def test_runs_of_different_lengths_end_together(tmp_path, monkeypatch):
    """The longer has more turns, evenly mixed with the other's, and each is the run alone."""
    turns: list[int] = []
    choose = Trainer.choose_actions
    monkeypatch.setattr(
        Trainer, "choose_actions", lambda self: [turns.append(self.config.seed), choose(self)][1]
    )
    lengths = {0: 8, 1: 32, 2: 8}
    runs = [tiny(tmp_path / str(seed), seed=seed, decisions=d) for seed, d in lengths.items()]
    assert train_each(runs) == [None, None, None]
    assert [turns.count(seed) for seed in lengths] == [8, 32, 8]
    for start in range(0, 48, 12):
        assert {turns[start : start + 12].count(seed) for seed in (0, 2)} == {2}
    alone = train(tiny(tmp_path / "alone", seed=1, decisions=32))
    assert_same(alone, runs[1].folder)
