"""Evaluation against an environment whose returns are known."""

import dataclasses
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_runs import tiny
from toy import LENGTH, Toy, return_of_doing_nothing

from svea import __version__
from svea.agents.policies import agent_policy, random_policy
from svea.core.errors import UserError, WorkerError
from svea.core.seeds import EVALUATION, TRAINING, episode_seed, evaluation_seeds, world_order
from svea.envs.rendering import backend
from svea.envs.workers.pool import PER_GPU_PROCESS, Workers
from svea.evaluation import check_episodes, episodes_in, parse_episodes, requests
from svea.evaluation.play import EpisodeResult, Interrupted, Policy, play
from svea.evaluation.requests import Request, Scoring, evaluate, fingerprint
from svea.runs.load import export, load_agent, load_config
from svea.runs.records import append_records
from svea.speed import device
from svea.training import train


@pytest.fixture(scope="module")
def two_toys() -> Iterator[Workers]:
    with Workers([{"task": "toy:make", "image_size": 16}] * 2) as workers:
        yield workers


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("evaluation") / "run", decisions=20, eval_episodes=3))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def do_nothing(observations: NDArray[np.uint8], episodes: Any) -> NDArray[np.float32]:
    return np.zeros((len(observations), 1), np.float32)


def test_returns_and_lengths_are_the_environments(two_toys: Workers) -> None:
    seeds = [3, 1, 4, 1, 5]  # more episodes than workers, one of them twice
    finished: list[EpisodeResult] = []
    sizes: set[int] = set()

    def policy(observations: NDArray[np.uint8], episodes: Any) -> NDArray[np.float32]:
        sizes.add(len(observations))
        return do_nothing(observations, episodes)

    episodes = play(policy, two_toys, seeds, on_episode=finished.append)
    assert [episode.seed for episode in episodes] == seeds, "in the order of the seeds"
    for episode in episodes:
        assert episode.total == pytest.approx(return_of_doing_nothing(episode.seed))
        assert episode.length == LENGTH and episode.success is None
    assert episodes[1].total == episodes[3].total
    assert len(finished) == 5 and sizes == {2}, "the policy always sees all workers"


def test_success_is_what_the_last_decision_says_under_either_name() -> None:
    task = {"task": "toy:make_successful", "image_size": 16}
    with Workers([task]) as workers:
        episodes = play(do_nothing, workers, range(8))
    grounds = []
    for seed in range(8):
        toy = Toy()
        toy.reset(seed=seed)
        grounds.append(toy.ground)
    assert [episode.success for episode in episodes] == [ground % 2 == 0 for ground in grounds]


def test_an_evaluation_can_be_interrupted_and_begun_again(two_toys: Workers) -> None:
    calls = iter(range(100))
    with pytest.raises(Interrupted):
        play(do_nothing, two_toys, [1, 2, 3], should_stop=lambda: next(calls) > 4)
    assert play(do_nothing, two_toys, [7])[0].total == pytest.approx(return_of_doing_nothing(7))
    two_toys.reset = None  # type: ignore[assignment]  # would fail if it were called
    with pytest.raises(Interrupted):
        play(do_nothing, two_toys, [1, 2, 3], should_stop=lambda: True)
    del two_toys.reset


def test_ctrl_c_while_environments_start_begins_nothing_else(run, monkeypatch):
    """With agents that play at once: each waits for its environments when Ctrl-C comes."""
    starting, stopping = threading.Event(), threading.Event()
    started, loaded = [], []

    def start_slowly(environments: Any, **options: Any) -> Workers:
        started.append(environments)
        starting.set()
        assert stopping.wait(60)
        return Workers(environments, **options)

    def interrupt(futures: Any) -> None:
        assert starting.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(requests, "Workers", start_slowly)
    monkeypatch.setattr(requests, "wait", interrupt)
    monkeypatch.setattr(requests, "load_agent", lambda run, **_: loaded.append(run))
    with pytest.raises(KeyboardInterrupt):
        request = Request(("all",), 1, environments=1, jobs=2)
        Scoring([run], request, store=False).play(on_stop=stopping.set)
    assert loaded == [] and len(started) < 3, "the third mode's do not start"


@pytest.mark.parametrize(
    ("jobs", "given", "before", "threads"),
    [(1, "", 4, 3), (2, "", 4, 2), (8, "", 4, 1), (1, "OMP_NUM_THREADS", 4, 4), (1, "", 1, 1)],
)
def test_agents_leave_cores_to_the_environments(jobs, given, before, threads, monkeypatch):
    """OMP_NUM_THREADS, and fewer threads that were set in torch, stay."""
    monkeypatch.setattr(device, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "environ", {given: "4"})
    taken = [before]
    monkeypatch.setattr(torch, "get_num_threads", lambda: taken[-1])
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    with device.sharing_cores(torch.device("cpu"), jobs):
        assert taken[-1] == threads
    assert taken[-1] == before


def test_seeds_are_never_those_of_training() -> None:
    training = {episode_seed(0, TRAINING, env, n) for env in range(16) for n in range(100)}
    tests = {episode_seed(0, EVALUATION, 0, n) for n in range(100)}
    assert len(training) == 1600 and len(tests) == 100 and not training & tests
    assert set(evaluation_seeds(1, 30)).isdisjoint(evaluation_seeds(0, 30))
    assert all(0 <= seed < 2**31 for seed in training | tests)
    assert episode_seed(0, EVALUATION, 0, 0) == 1817441348, "the same on every machine"


def test_records_are_complete_and_true(run: Path) -> None:
    records = evaluate(run, ["train"], episodes=4, seed=9, environments=3)
    policy = load_agent(run).act
    for number, record in enumerate(records):
        seed = evaluation_seeds(9, 4)[number]
        assert {k: v for k, v in record.items() if k not in ("return", "provenance")} == {
            "policy": "agent", "task": "toy:make", "method": "svea", "augment": "conv",
            "run_seed": 0, "decision": 20, "mode": "train", "episode": number, "seed": seed,
            "length": LENGTH, "actions": "most_likely", "world": None,
            "weights": fingerprint(load_agent(run)), "svea_version": __version__,
        }  # fmt: skip
        assert record["return"] == pytest.approx(return_of(policy, seed), abs=1e-4)
    assert json.loads(json.dumps(records)) == records
    again = evaluate(run, ["train"], episodes=4, seed=9, environments=3)
    assert again == records


@pytest.mark.parametrize("kind", ["sampled", "random"])
def test_an_episode_that_draws_does_not_depend_on_those_beside_it(run, two_toys, kind):
    """And leaves the agent's own generator alone."""
    agent, config = load_agent(run), dataclasses.replace(load_config(run), eval_actions="sampled")
    before = agent.generator.get_state()

    def policy() -> Policy:
        return agent_policy(agent, config) if kind == "sampled" else random_policy(1)

    seeds = [5, 6, 7, 8, 9]
    together = play(policy(), two_toys, seeds)
    with Workers([{"task": "toy:make", "image_size": 16}]) as one_toy:
        alone = [play(policy(), one_toy, [seed])[0] for seed in reversed(seeds)][::-1]
    # The draws are the same; the network's last bits may differ with the size of the batch.
    tolerance = 1e-4 if kind == "sampled" else 0
    assert [e.total for e in together] == pytest.approx([e.total for e in alone], abs=tolerance)
    assert len({episode.total for episode in together}) == 5
    assert torch.equal(agent.generator.get_state(), before)


def test_random_choices_are_whole_numbers_in_range() -> None:
    policy = random_policy(1, choices=3)
    episodes = [EpisodeResult(seed) for seed in range(50)]
    drawn = policy(np.zeros((50, 1), np.uint8), episodes)
    assert drawn.shape == (50, 1) and set(drawn.ravel()) == {0.0, 1.0, 2.0}


def return_of(policy: Any, seed: int) -> float:
    """The episode of a seed, played in this process."""
    environment, total, done = Toy(), 0.0, False
    observation, _ = environment.reset(seed=seed)
    while not done:
        observation, reward, _, done, _ = environment.step(policy(observation))
        total += reward
    return total


def test_training_evaluates_as_the_verb_does(run: Path) -> None:
    """metrics.jsonl and `svea eval` agree on the same episodes of the same agent."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if line["kind"] == "eval"][-1]
    records = evaluate(run, ["train"], episodes=3, environments=1)
    assert logged["returns"] == [record["return"] for record in records]
    assert logged["return_mean"] == pytest.approx(np.mean(logged["returns"]))
    assert logged["return_std"] == pytest.approx(np.std(logged["returns"], ddof=1))


def collect(runs: list[Path], request: Request) -> dict[Path, list[dict[str, Any]]]:
    """Records by run, of an evaluation without a problem."""
    scoring = Scoring(runs, request)
    scoring.play()
    assert scoring.problems == []
    return scoring.records


def test_known_episodes_are_passed_on_and_not_played(run: Path) -> None:
    true = evaluate(run, episodes=4, seed=9, environments=2)
    marked = [record | {"return": -1.0} for record in true[:2]]  # as no played episode has
    append_records(run, marked)
    found = collect([run], Request(episodes=4, seed=9, environments=2))[run]
    assert sorted(found, key=lambda record: record["episode"]) == [*marked, *true[2:]]


def test_episodes_of_another_protocol_are_played_again(run: Path) -> None:
    (true,) = evaluate(run, environments=1, episodes=1)
    changes: list[dict[str, Any]] = [
        {"weights": "another"}, {"decision": 1}, {"actions": "sampled"},
        {"provenance": true["provenance"] | {"renderer": "OpenGL: another"}},
        {"provenance": true["provenance"] | {"episodes": 0}},
        {"provenance": {"source": "another"}}, {"mode": "color_hard"}, {"policy": "random"},
    ]  # fmt: skip
    append_records(run, [true | {"return": -1.0} | change for change in changes])
    assert collect([run], Request(episodes=1, environments=1))[run] == [true]


def test_a_run_that_fails_keeps_no_other_from_being_evaluated(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text((run / "config.json").read_text())
    request = Request(("train", "color_hard"), episodes=1, environments=1)
    scoring = Scoring([broken, run, tmp_path / "missing"], request)
    scoring.play()
    assert [record["mode"] for record in scoring.records[run]] == ["train"]
    unfit, no_config, no_checkpoint = scoring.problems
    assert "does not fit toy:make, which has train" in unfit
    assert unfit.endswith(f"({broken}, {run})")
    assert "no config.json" in no_config and "missing" in no_config
    assert str(broken) in no_checkpoint and "has no weights" in no_checkpoint
    assert scoring.exit_code == 2


@pytest.mark.parametrize("restarts", [True, False])
def test_environments_that_die_are_started_again_for_the_next_run_if_they_can(
    restarts: bool, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actions of the first are not finite."""
    runs = [export(run, tmp_path / name) for name in ("sick", "well")]
    nan = lambda seen, episodes: do_nothing(seen, episodes) + np.nan  # noqa: E731
    policies = iter([nan, do_nothing])
    monkeypatch.setattr(requests, "deployed_policy", lambda *_: next(policies))
    first = iter([requests.Workers])

    def once(*arguments: Any, **options: Any) -> Workers:
        for make in first:
            return make(*arguments, **options)
        raise WorkerError("no process starts any more")

    if not restarts:
        monkeypatch.setattr(requests, "Workers", once)
    scoring = Scoring(runs, Request(episodes=1, environments=1))
    scoring.play()
    problem, *others = scoring.problems
    assert str(runs[0]) in problem
    assert [len(scoring.records.get(each, [])) for each in runs] == [0, int(restarts)]
    assert others == [f"no process starts any more ({runs[1]} in train)"] * (not restarts)


def test_the_random_policy_is_played_once_for_all_runs_of_a_task(run, tmp_path, monkeypatch):
    copy = export(run, tmp_path / "copy")
    played: list[int] = []

    def counting(policy: Any, workers: Workers, seeds: Any, **options: Any) -> list[EpisodeResult]:
        played.append(len(list(seeds)))
        return play(policy, workers, seeds, **options)

    monkeypatch.setattr(requests, "play", counting)
    records = collect([run, copy], Request(policies=("random",), episodes=3, environments=1))
    assert played == [3, 0]
    assert [r["return"] for r in records[run]] == [r["return"] for r in records[copy]]


def test_an_export_has_its_runs_fingerprint(run: Path, tmp_path: Path) -> None:
    assert fingerprint(load_agent(export(run, tmp_path / "copy"))) == fingerprint(load_agent(run))
    other = load_agent(run)
    with torch.no_grad():
        next(other.trunk.parameters()).add_(1e-6)
    assert fingerprint(other) != fingerprint(load_agent(run))


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in pictures that are drawn."""
    folder = tmp_path_factory.mktemp("drawn") / "run"
    return train(tiny(folder, "cartpole_swingup", decisions=4, eval_every=0, episode_frames=64))


def test_records_do_not_depend_on_which_environments_share_a_process(cartpole, monkeypatch):
    """Seeds, worlds in turn and returns, bit for bit, through `environments_per_process`."""
    if backend.draws_on_gpu():
        pytest.skip("a GPU may round a pixel otherwise from one picture to the next")
    started: list[int] = []

    def counting(environments: Any, **options: Any) -> Workers:
        started.append(options["per_process"])
        return Workers(environments, **options)

    monkeypatch.setattr(requests, "Workers", counting)
    played = []
    for together in (1, 3):
        monkeypatch.setattr(requests, "environments_per_process", lambda *_, n=together: n)
        played.append(evaluate(cartpole, ["color_hard"], 7, environments=3))
    assert started == [1, 3] and played[0] == played[1]
    assert [record["world"] for record in played[0]] == world_order(100)[:7]
    assert len({record["return"] for record in played[0]}) == 7


def test_evaluations_on_a_gpu_that_draws_ask_it_less_often(run, cartpole, monkeypatch):
    asked: list[tuple[str, int]] = []

    def none(environments: Any, per_process: int, **_: Any) -> Workers:
        asked.append((environments[0]["task"], per_process))
        raise WorkerError("not today")

    monkeypatch.setattr(requests, "Workers", none)
    monkeypatch.setattr(backend, "draws_on_gpu", lambda: True)
    monkeypatch.setattr(requests, "choose_device", lambda _: torch.device("cuda"))
    Scoring([cartpole, run], Request(environments=2)).play()
    assert set(asked) == {("cartpole_swingup", PER_GPU_PROCESS), ("toy:make", 1)}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"seed": -1}, "seed is -1"), ({"environments": -1}, "envs is -1"), ({"modes": []}, "mode"),
        ({"modes": ["colour_hard"]}, "'color_hard'"), ({"episodes": 0}, "episodes is 0"),
        ({"policy": "rnadom"}, "'rnadom'"), ({"device": "tpu"}, "tpu"), ({"run": "runs"}, "runs"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_anything_starts(run, options, named, monkeypatch):
    monkeypatch.setattr(requests, "Workers", None)  # would fail if it were called
    with pytest.raises(UserError, match=named):
        evaluate(**{"run": run} | options)


def test_a_run_is_evaluated_in_another_function_and_in_looks_of_the_users_own(run: Path) -> None:
    plain = evaluate(run, ["train"], 2)
    other = evaluate(run, ["train", "own_looks:NightMode"], 2, task="toy:make_terminating")
    name = "toy:make_terminating"
    assert [r["mode"] for r in other] == [name] * 2 + [f"{name}+own_looks:NightMode"] * 2
    assert [r["length"] for r in other] == [4] * 4 and plain[0]["length"] == LENGTH
    assert {r["task"] for r in other} == {"toy:make"}, "whose agent it is"
    looks = evaluate(run, ["train", "picture_colors", "own_looks:NightMode"], 2)
    assert looks[:2] == plain and len({r["mode"] for r in looks}) == 3
    with pytest.raises(UserError, match=r"a vector of 2.* a vector of 1"):
        evaluate(run, ["train"], 1, task="toy:make_wide")


# Numbers of episodes by mode ----------------------------------------------------------------------

MODES = ["train", "color_hard", "video_hard", "distracting_cs:0.1", "my_looks:Night"]
COUNTS = st.integers(1, 10**9) | st.just("all")


@given(default=st.none() | COUNTS, own=st.dictionaries(st.sampled_from(MODES), COUNTS))
def test_each_mode_gets_what_was_typed_for_it(default: Any, own: dict[str, Any]) -> None:
    words = [*([] if default is None else [str(default)]), *(f"{m}={n}" for m, n in own.items())]
    if not words:
        return
    episodes = parse_episodes(words)
    check_episodes(episodes, MODES)
    wanted = {mode: own.get(mode, default or 30) for mode in MODES}
    assert {mode: episodes_in(episodes, mode) for mode in MODES} == wanted


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "episodes"), ("0", "0"), ("-3", "'-3'"), ("runs/a", "before --episodes"),
        ("20 color_hard=0", "color_hard is 0"), ("20 color_hard=", "'color_hard='"),
        (f"color_hard=1{'0' * 5000}", "'color_hard=10"), ("20 30", "two"),
        ("color_hard=5 color_hard=5", "two numbers for color_hard"), ("20 =5", "''"),
        ("20 colour_hard=5", "'color_hard'"), ("20 geometry=5", "'geometry'"),
        ("20 video_easy=5", "5 for video_easy.*train"),
    ],
)  # fmt: skip
def test_numbers_of_episodes_that_are_none_are_named(words: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        check_episodes(parse_episodes(words.split()), MODES)


@pytest.mark.parametrize(
    "table", [*({"train": one} for one in (True, None, {}, 1.5, "every", "30", -1)), {5: 5}]
)
def test_tables_of_anything_are_refused(table: dict[Any, Any]) -> None:
    with pytest.raises(UserError):
        check_episodes(table)
