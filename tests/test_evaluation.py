"""Evaluation against an environment whose returns are known."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from svea import evaluation
from svea.envs.vector import Workers
from svea.errors import StorageError, UserError
from svea.evaluation import (
    EVALUATION,
    TRAINING,
    Episode,
    Interrupted,
    append_records,
    episode_seed,
    evaluate,
    evaluate_and_record,
    evaluation_seeds,
    parallel_environments,
    play,
)
from svea.training import train
from tiny_runs import tiny
from toy import LENGTH, Toy, return_of_doing_nothing

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def two_toys() -> Iterator[Workers]:
    with Workers([{"task": "toy:make", "image_size": 16}] * 2) as workers:
        yield workers


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("evaluation") / "run", decisions=20, eval_episodes=3))


def do_nothing(observations: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.zeros((len(observations), 1), np.float32)


def test_returns_and_lengths_are_the_environments(two_toys: Workers) -> None:
    seeds = [3, 1, 4, 1, 5]  # more episodes than workers, one of them twice
    finished: list[Episode] = []
    episodes = play(do_nothing, two_toys, seeds, on_episode=finished.append)
    assert [episode.seed for episode in episodes] == seeds, "in the order of the seeds"
    for episode in episodes:
        assert episode.total == pytest.approx(return_of_doing_nothing(episode.seed))
        assert episode.length == LENGTH and episode.success is None
    assert episodes[1].total == episodes[3].total
    assert len(finished) == 5


def test_the_policy_always_sees_all_workers(two_toys: Workers) -> None:
    sizes: set[int] = set()

    def policy(observations: NDArray[np.uint8]) -> NDArray[np.float32]:
        sizes.add(len(observations))
        return do_nothing(observations)

    play(policy, two_toys, [1, 2, 3])
    assert sizes == {2}


def test_an_evaluation_can_be_interrupted_and_begun_again(two_toys: Workers) -> None:
    calls = iter(range(100))
    with pytest.raises(Interrupted):
        play(do_nothing, two_toys, [1, 2, 3], should_stop=lambda: next(calls) > 4)
    assert play(do_nothing, two_toys, [7])[0].total == pytest.approx(return_of_doing_nothing(7))


def test_seeds_are_paired_and_never_those_of_training() -> None:
    assert evaluation_seeds(0, 30)[:10] == evaluation_seeds(0, 10)
    training = {episode_seed(0, TRAINING, env, n) for env in range(16) for n in range(100)}
    tests = {episode_seed(0, EVALUATION, 0, n) for n in range(100)}
    assert len(training) == 1600 and len(tests) == 100 and not training & tests
    assert set(evaluation_seeds(1, 30)).isdisjoint(evaluation_seeds(0, 30))
    assert all(0 <= seed < 2**31 for seed in training | tests)
    assert episode_seed(0, EVALUATION, 0, 0) == 1817441348, "the same on every machine"


def test_records_are_complete_and_true(run: Path) -> None:
    records = evaluate(run, ["train"], episodes=4, seed=9, environments=3)
    agent = evaluation_policy(run)
    for number, record in enumerate(records):
        seed = evaluation_seeds(9, 4)[number]
        assert {k: v for k, v in record.items() if k not in ("return", "provenance")} == {
            "policy": "agent", "task": "toy:make", "method": "svea", "augment": "conv",
            "run_seed": 0, "decision": 20, "mode": "train", "episode": number, "seed": seed,
            "length": LENGTH, "actions": "most_likely",
        }  # fmt: skip
        assert record["return"] == pytest.approx(return_of(agent, seed), abs=1e-4)
    assert json.loads(json.dumps(records)) == records
    again = evaluate(run, ["train"], episodes=4, seed=9, environments=3)
    assert again == records


def test_sampled_evaluations_repeat_and_draw_from_a_generator_of_their_own(run: Path) -> None:
    from svea.evaluation import agent_policy
    from svea.export import load_agent, load_config

    agent = load_agent(run)
    config = dataclasses.replace(load_config(run), eval_actions="sampled")
    before = agent.generator.get_state()
    observations = np.zeros((2, *Toy().observation_space.shape), np.uint8)
    first, again = (agent_policy(agent, config)(observations) for _ in range(2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], first[1]), "each observation has its own sample"
    assert torch.equal(agent.generator.get_state(), before)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"seed": -1}, "seed is -1"),
        ({"environments": -1}, "envs is -1"),
        ({"modes": []}, "no modes"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(run: Path, request_: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        evaluate(run, **{"modes": ["train"], "episodes": 1} | request_)


def evaluation_policy(run: Path) -> Any:
    from svea.export import load_agent

    return load_agent(run).act


def return_of(policy: Any, seed: int) -> float:
    """The episode of a seed, played in this process."""
    environment, total, done = Toy(), 0.0, False
    observation, _ = environment.reset(seed=seed)
    while not done:
        observation, reward, _, done, _ = environment.step(policy(observation))
        total += reward
    return total


def test_the_random_policy_is_random_but_repeatable(run: Path) -> None:
    first = evaluate(run, episodes=3, policy="random", environments=1)
    assert first == evaluate(run, episodes=3, policy="random", environments=1)
    assert {record["policy"] for record in first} == {"random"}
    other = evaluate(run, episodes=3, policy="random", environments=1, seed=1)
    assert [r["return"] for r in other] != [r["return"] for r in first]


def test_training_evaluates_as_the_verb_does(run: Path) -> None:
    """metrics.jsonl and `svea eval` agree on the same episodes of the same agent."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["kind"] == "eval"][-1]
    records = evaluate(run, ["train"], episodes=3, environments=1)
    assert logged["returns"] == [record["return"] for record in records]
    assert logged["return_mean"] == pytest.approx(np.mean(logged["returns"]))
    assert logged["return_std"] == pytest.approx(np.std(logged["returns"]))


def test_the_verb_replaces_its_records(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {
        "seed": 0, "random_policy": True, "videos": False, "environments": 1, "device": "cpu",
        "data_dir": None,
    }  # fmt: skip
    evaluate_and_record(run, ["train"], 2, **options, as_json=False)
    table = capsys.readouterr().out
    assert "agent" in table and "random" in table and "(2 episodes)" in table
    evaluate_and_record(run, ["train"], 3, **options, as_json=True)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    stored = [json.loads(line) for line in (run / "eval.jsonl").read_text().splitlines()]
    assert stored == printed and len(stored) == 6


def test_records_of_other_agents_and_seeds_stay(tmp_path: Path) -> None:
    def record(**changes: Any) -> dict[str, Any]:
        line = {"policy": "agent", "decision": 1, "mode": "train", "seed": 1, "return": 0.0}
        return line | changes

    append_records(tmp_path, [record(), record(mode="color_hard"), record(seed=2)])
    (tmp_path / "eval.jsonl").open("a").write('{"policy": "age')  # killed while writing
    append_records(tmp_path, [record(**{"return": 5.0}), record(decision=2)])
    stored = [json.loads(line) for line in (tmp_path / "eval.jsonl").read_text().splitlines()]
    assert stored == [
        record(mode="color_hard"), record(seed=2), record(**{"return": 5.0}), record(decision=2),
    ]  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["eval.jsonl"]


def test_an_unwritable_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot write .*eval\.jsonl"):
        append_records(tmp_path / "missing", [])


def test_mistakes_are_refused_before_anything_starts(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "Workers", None)  # would fail if it were called
    with pytest.raises(UserError, match=r"unknown mode 'colour_hard'.*color_hard"):
        evaluate(run, ["colour_hard"])
    with pytest.raises(UserError, match="no modes to evaluate"):
        evaluate(run, [])
    with pytest.raises(UserError, match="episodes is 0; allowed: 1 or more"):
        evaluate(run, episodes=0)
    with pytest.raises(UserError, match="unknown policy 'rnadom'"):
        evaluate(run, policy="rnadom")
    with pytest.raises(UserError, match="is not a run or an export"):
        evaluate(run / "checkpoints")


def test_parallel_environments() -> None:
    assert parallel_environments(4, 30) == 4
    assert parallel_environments(4, 3) == 3
    assert 1 <= parallel_environments(0, 30) <= 16
