"""Environments in processes: order, automatic resets, errors, and nobody left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import alive, wait_for
from toy import LENGTH, Toy

from svea.core.errors import NumericsError, RendererError, UserError, WorkerError
from svea.envs.rendering import backend, renderer
from svea.envs.workers import pool, worker
from svea.envs.workers.pool import PER_GPU_PROCESS, OpenEpisode, Workers, environments_per_process

Patch = pytest.MonkeyPatch
Printed = pytest.CaptureFixture[str]
TOY = {"task": "toy:make", "image_size": 16}


@pytest.fixture(scope="module", params=[1, 2], ids="{} in a process".format)
def three(request: pytest.FixtureRequest) -> Iterator[Workers]:
    with Workers([TOY] * 3, per_process=request.param) as workers:
        yield workers


def alone(seed: int, actions: list[float]) -> tuple[np.ndarray, list[float]]:
    """The same episode in this process: last observation and rewards."""
    environment = Toy()
    observation, _ = environment.reset(seed=seed)
    rewards = []
    for action in actions:
        observation, reward, *_ = environment.step(np.array([action], np.float32))
        rewards.append(reward)
    return observation, rewards


def pids(workers: Workers) -> list[int]:
    return [worker.process.pid for worker in workers._workers]


def send_alike(workers: Workers, action: float, next_seeds: list[int | None]) -> None:
    workers.send(np.full((len(workers), 1), action, np.float32), next_seeds)


def test_each_environment_gets_its_own_seed_and_action(three: Workers) -> None:
    assert three.action_size == 1 and three.observation_shape == (9, 16, 16)
    assert three.observations.shape == (3, 9, 16, 16) and three.observations.dtype == np.uint8
    three.reset([11, 12, 13])
    for index, seed in enumerate([11, 12, 13]):
        assert np.array_equal(three.observations[index], alone(seed, [])[0])
    actions = [0.5, -0.25, 1.0]
    three.send(np.array(actions, np.float32)[:, None], [None] * 3)
    steps = three.receive()
    for index, (seed, action) in enumerate(zip([11, 12, 13], actions, strict=True)):
        observation, rewards = alone(seed, [action])
        assert np.array_equal(three.observations[index], observation)
        assert steps[index].reward == rewards[-1]
        assert abs(steps[index].info["x"]) == pytest.approx(1 - rewards[-1])
        assert not steps[index].done


def test_the_next_episode_starts_from_its_seed_and_the_last_picture_is_kept(three: Workers) -> None:
    three.reset([4, 5, 6])
    actions = [0.3] * LENGTH
    for step in range(LENGTH):
        send_alike(three, 0.3, [40, None, 60])
        answers = three.receive()
        assert [a.truncated for a in answers] == [step == LENGTH - 1] * 3
        assert not any(a.terminated for a in answers)
    for index, seed in enumerate([4, 5, 6]):
        assert np.array_equal(three.finals[index], alone(seed, actions)[0])
    assert np.array_equal(three.observations[0], alone(40, [])[0])
    assert np.array_equal(three.observations[1], alone(5, actions)[0]), "without a seed it stays"
    assert np.array_equal(three.observations[2], alone(60, [])[0])


def test_restoring_brings_an_environment_into_the_middle_of_an_episode(three: Workers) -> None:
    three.restore(1, OpenEpisode(77, actions=[[0.1], [-0.7], [0.2]]))
    assert np.array_equal(three.observations[1], alone(77, [0.1, -0.7, 0.2])[0])
    three.send(np.array([[0.5]], np.float32), [None], [1])
    assert three.receive()[0].reward == alone(77, [0.1, -0.7, 0.2, 0.5])[1][-1]


def test_the_pool_keeps_every_open_episode(three: Workers) -> None:
    """Its seed, number, actions and rewards: what a checkpoint needs to play it again."""
    three.reset([4, 5, 6])
    for step in range(LENGTH + 2):
        send_alike(three, 0.25, [40, 50, 60])
        steps = three.receive()
        if step == LENGTH - 1:
            assert [len(step.episode.actions) for step in steps] == [LENGTH] * 3
    rewards = alone(40, [0.25, 0.25])[1]
    assert three.episodes[0] == OpenEpisode(40, 1, [[0.25], [0.25]], sum(rewards))
    assert [step.episode for step in steps] == three.episodes
    assert [episode.seed for episode in three.episodes] == [40, 50, 60]


@pytest.mark.parametrize("broken", [0, 1])
def test_an_error_in_the_environment_arrives_with_its_traceback(broken: int) -> None:
    """By itself, and in one of several of a process."""
    environments = [TOY] * (3 * broken or 1)
    environments[broken] = TOY | {"task": "toy:make_broken"}
    with Workers(environments, Incidents().append, per_process=3) as workers:
        workers.reset(list(range(len(workers))))
        for _ in range(2):
            send_alike(workers, 0.0, [None] * len(workers))
            workers.receive()
        send_alike(workers, 0.0, [None] * len(workers))
        with pytest.raises(WorkerError) as error:
            workers.receive()
    said = (
        rf"environment {broken} raised ZeroDivisionError: the toy broke \(\S*toy.py, line \d+, .*"
    )
    assert re.fullmatch(said, str(error.value))
    (trace,) = error.value.__notes__
    assert "toy.py" in trace and "Traceback" in trace


def test_our_own_errors_keep_their_class(capfd: Printed) -> None:
    with pytest.raises(UserError, match="waler_walk"):
        Workers([{"task": "waler_walk"}] * 3)
    with pytest.raises(UserError, match="color_hard"):
        Workers([TOY, TOY, TOY | {"mode": "color_hard"}], per_process=3)
    with pytest.raises(UserError, match="spaces"):
        Workers([TOY, TOY | {"image_size": 20}], per_process=2)
    assert capfd.readouterr() == ("", ""), "the others end without a word"


def test_processes_start_while_their_parent_does_something_else() -> None:
    with Workers([TOY] * 2, wait=False) as workers:
        assert len(workers) == 2 and not hasattr(workers, "action_size")
        workers.wait()
        workers.wait()  # again: nothing to do
        workers.reset([0, 1])
        assert workers.action_size == 1
    failing = Workers([{"task": "waler_walk"}] * 2, wait=False)
    processes = [worker.process for worker in failing._workers]
    with pytest.raises(UserError, match="waler_walk"):
        failing.wait()
    assert all(process.poll() is not None for process in processes)


def test_sets_that_started_before_another_fell_back_to_osmesa_follow_it(monkeypatch, capsys):
    monkeypatch.setattr(backend, "fallen_back", False)
    monkeypatch.setattr(backend, "environment_of_workers", dict)
    failed: list[Workers] = []

    def fail_once(self: Workers) -> list[dict[str, Any]]:
        if self not in failed:
            failed.append(self)
            raise RendererError("no picture")
        return introductions(self)

    introductions = Workers._introductions
    monkeypatch.setattr(Workers, "_introductions", fail_once)
    monkeypatch.setattr(backend, "can_fall_back", lambda: not backend.fallen_back)
    with Workers([TOY], wait=False) as one, Workers([TOY], wait=False) as other:
        one.wait()
        other.wait()
    assert capsys.readouterr().err.count("OSMesa") == 1
    with pytest.raises(RendererError):
        Workers([TOY])  # it began with OSMesa, so there is no way out


@pytest.mark.parametrize(
    ("device", "task", "gpu", "together"),
    [
        ("cuda", "walker_walk", True, PER_GPU_PROCESS),
        ("cuda", "robot_push", True, PER_GPU_PROCESS),
        ("cuda", "walker_walk", False, 1),
        ("cuda", "toy:make", True, 1),
        ("cpu", "walker_walk", True, 1),
    ],
)
def test_environments_draw_together_where_a_gpu_computes(device, task, gpu, together, monkeypatch):
    monkeypatch.setattr(backend, "draws_on_gpu", lambda: gpu)
    assert environments_per_process(task, device) == together


@pytest.mark.parametrize(("per_process", "processes"), [(3, [2, 2]), (8, [4])])
def test_processes_share_the_environments_evenly(per_process: int, processes: list[int]) -> None:
    with Workers([TOY] * 4, per_process=per_process) as workers:
        assert [len(worker.indices) for worker in workers._workers] == processes
        assert len(workers) == 4 and len(pids(workers)) == len(processes)


class Incidents(list[dict[str, Any]]):
    """What went wrong, in order."""

    @property
    def causes(self) -> list[str]:
        return [incident["cause"] for incident in self]


def test_a_death_that_comes_back_ends_the_run_with_its_signal(monkeypatch: Patch) -> None:
    monkeypatch.setattr(pool, "RESTARTS", 1)
    incidents = Incidents()
    with Workers([TOY, TOY | {"task": "toy:make_dying"}], incidents.append) as workers:
        workers.reset([0, 1])
        pid = pids(workers)[1]
        send_alike(workers, 0.0, [None, None])
        with pytest.raises(WorkerError, match="signal 9"):
            workers.receive()
    (cause,) = incidents.causes
    assert f"environment 1 (process {pid})" in cause and "signal 9" in cause


class Played:
    """Episodes in a set of workers beside the same ones here: nobody may be able to tell."""

    def __init__(self, workers: Workers, seeds: list[int]) -> None:
        self.workers, self.seeds, self.random = workers, list(seeds), np.random.default_rng(0)
        self.actions: list[list[float]] = [[] for _ in seeds]
        workers.reset(seeds)
        self.check()

    def send(self, indices: list[int]) -> None:
        """Let some step; an episode that ends is followed by the one with the next seed."""
        self.indices, self.chosen = indices, self.random.uniform(-1, 1, len(indices)).round(3)
        seeds = [self.seeds[index] + 1000 for index in indices]
        self.workers.send(self.chosen[:, None].astype(np.float32), seeds, indices)

    def receive(self) -> None:
        """Compare every answer and every picture."""
        steps = self.workers.receive()
        for index, action, step in zip(self.indices, self.chosen, steps, strict=True):
            self.actions[index].append(float(np.float32(action)))
            seen, rewards = alone(self.seeds[index], self.actions[index])
            assert step.reward == rewards[-1]
            assert step.truncated == (len(rewards) == LENGTH)
            if step.done:
                assert np.array_equal(self.workers.finals[index], seen)
                self.seeds[index], self.actions[index] = self.seeds[index] + 1000, []
        self.check()

    def check(self) -> None:
        for index, (seed, actions) in enumerate(zip(self.seeds, self.actions, strict=True)):
            assert np.array_equal(self.workers.observations[index], alone(seed, actions)[0])


def test_a_shared_worker_is_replaced_for_all_its_environments_and_nobody_can_tell() -> None:
    """Killed between steps, during one, before a reset, and while some stand still or are done."""
    incidents = Incidents()
    with Workers([TOY] * 3, incidents.append, per_process=3) as workers:
        kill(workers)
        played = Played(workers, [4, 5, 6])
        for turn in range(LENGTH + 3):
            if turn == 2:
                kill(workers)
            played.send([2, 0] if turn in (1, 4, 5) else [0, 1, 2])  # their episodes end apart
            if turn in (5, LENGTH - 1):
                kill(workers)
            played.receive()
        kill(workers)
        workers.reset([9], [1])
        played.seeds[1], played.actions[1] = 9, []
        played.check()
        played.send([1])
        played.receive()
    assert len(incidents) == 5 and incidents[0]["environment"] == [0, 1, 2]
    assert all("environments 0 to 2 (process" in cause for cause in incidents.causes)
    assert all("signal 9" in cause for cause in incidents.causes)


@pytest.fixture
def faults(monkeypatch: Patch, tmp_path: Path) -> Path:
    """Where a toy reads how it fails."""
    monkeypatch.setenv("SVEA_FAULTS", str(tmp_path / "plan"))
    return tmp_path / "plan"


@pytest.mark.parametrize("kind", ["raise", "hang"])
def test_an_accident_in_one_of_several_is_mended(kind: str, faults: Path) -> None:
    """The others have made their step already, or wait; all make it again."""
    faults.write_text(json.dumps([[5, 3, kind]]))
    incidents = Incidents()
    faulty = TOY | {"task": "toy:make_faulty"}
    with Workers([faulty] * 3, incidents.append, 3, step_timeout=1.0) as workers:
        played = Played(workers, [4, 5, 6])
        for _ in range(5):
            played.send([0, 1, 2])
            played.receive()
    (cause,) = incidents.causes
    assert {"raise": "ZeroDivisionError", "hang": "environments 0 to 2"}[kind] in cause
    assert "toy.py" in incidents[0]["details"], "where it happened"


def test_episodes_of_different_ends_share_a_process() -> None:
    """Cut off, really over, and broken off by the simulation."""
    incidents = Incidents()
    tasks = [f"toy:make{kind}" for kind in ("", "_terminating", "_diverging", "_successful")]
    with Workers([TOY | {"task": task} for task in tasks], incidents.append, 4) as workers:
        workers.reset([0, 1, 2, 3])
        ends = []
        for _ in range(LENGTH):
            send_alike(workers, 0.5, [7, 8, 9, None])
            steps = workers.receive()
            ends.append([(step.terminated, step.truncated) for step in steps])
    info = steps[3].info
    assert type(info["is_success"]) is bool, "NumPy's own numbers are told"
    assert info["distance"] == 0.5 and "seen" not in info
    ongoing, over, cut = (False, False), (True, False), (False, True)
    assert [end[0] for end in ends] == [ongoing] * (LENGTH - 1) + [cut]
    assert [end[1] for end in ends] == ([ongoing] * 3 + [over]) * 2 + [ongoing] * 2
    assert [end[2] for end in ends] == ([ongoing] * 3 + [cut]) * 2 + [ongoing] * 2
    assert [(i["environment"], i["cause"]) for i in incidents] == [(2, "the toy diverged")] * 2


@pytest.fixture
def slow_step(faults: Path) -> dict[str, Any]:
    """The toy whose step takes two seconds, once."""
    faults.write_text(json.dumps([[5, 0, "slow"]]))
    return TOY | {"task": "toy:make_faulty"}


def test_a_step_timeout_names_the_line_that_hangs(slow_step: dict[str, Any]) -> None:
    incidents = Incidents()
    with Workers([slow_step], incidents.append, step_timeout=0.5) as workers:
        workers.reset([5])
        before = pids(workers)
        send_alike(workers, 0.5, [None])
        assert workers.receive()[0].reward == alone(5, [0.5])[1][-1]
        assert pids(workers) != before
    (cause,) = incidents.causes
    assert re.search(r"0.5 s.* \S*toy.py, line \d+, in happen$", cause), "not the library's"


def test_an_environment_may_take_any_time_if_asked(slow_step, monkeypatch, capsys):
    """Nothing is killed; it is said once where it is."""
    with Workers([slow_step], step_timeout=0) as workers:
        workers.reset([5])
        monkeypatch.setattr(worker, "PATIENT_SECONDS", 0.5)
        before = pids(workers)
        send_alike(workers, 0.5, [None])
        assert workers.receive()[0].reward == alone(5, [0.5])[1][-1]
        assert pids(workers) == before
    said = capsys.readouterr().err
    assert said.count("warning:") == 1 and "toy.py, line" in said and "--step-timeout" in said


def test_a_process_that_starts_slowly_is_not_ended_by_the_question_where_it_is(monkeypatch, capsys):
    """Importing takes longer than this patience."""
    monkeypatch.setattr(worker, "PATIENT_SECONDS", 0.01)
    with Workers([TOY], step_timeout=0) as workers:
        workers.reset([4])
        assert np.array_equal(workers.observations[0], alone(4, [])[0])
    said = capsys.readouterr().err
    assert said.count("warning:") == 1


@pytest.mark.parametrize(
    ("number", "cause", "details"),
    [
        (signal.SIGBUS, "A disk", "Bus error"),  # a page of a file could not be had
        (signal.SIGSEGV, "signal 11", "Segmentation fault"),
    ],
)
def test_a_crash_in_native_code_leaves_its_stack(number: int, cause: str, details: str) -> None:
    incidents = Incidents()
    with Workers([TOY], incidents.append) as workers:
        workers.reset([4])
        os.kill(pids(workers)[0], number)
        send_alike(workers, 0.5, [None])
        workers.receive()
    assert cause in incidents.causes[0]
    assert details in incidents[0]["details"] and "process.py" in incidents[0]["details"]


@pytest.mark.parametrize("what", ["action", "reward", "observation"])
def test_nan_is_refused(what: str) -> None:
    task = "toy:make" if what == "action" else f"toy:make_undefined_{what}"
    with Workers([TOY | {"task": task}]) as workers:
        workers.reset([0])
        with pytest.raises(NumericsError, match="nan"):
            send_alike(workers, float("nan") if what == "action" else 0.0, [None])
            workers.receive()


@pytest.fixture
def osmesa(monkeypatch: Patch) -> None:
    """A process that may fall back to OSMesa, and has not."""
    if sys.platform != "linux":
        pytest.skip("elsewhere there is no OSMesa")
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(backend, "fallen_back", False)
    monkeypatch.setattr(backend, "_can_load", lambda *names: True)


@pytest.mark.usefixtures("osmesa")
def test_a_renderer_that_is_stuck_falls_back_to_software_and_says_so(monkeypatch, capsys):
    """The toy stands for a driver: it announces its first picture, then hangs unless MUJOCO_GL."""
    monkeypatch.setattr(renderer, "FIRST_PICTURE_SECONDS", 0.3)
    with Workers([TOY | {"task": "toy:make_stuck"}] * 2, per_process=2) as workers:
        workers.reset([0, 1])
        assert np.array_equal(workers.observations[1], alone(1, [])[0])
        assert len(pids(workers)) == 2, "in software each has a process"
    said = capsys.readouterr().err
    assert said.count("warning:") == 1 and "OSMesa" in said


@pytest.mark.usefixtures("osmesa")
def test_an_environment_that_is_made_slowly_is_no_stuck_renderer(monkeypatch, capsys):
    """The second one is made after the first one's picture, in the same process."""
    monkeypatch.setattr(renderer, "FIRST_PICTURE_SECONDS", 0.5)
    with Workers([TOY | {"task": "toy:make_slowly"}] * 2, per_process=2) as workers:
        assert len(pids(workers)) == 1
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("osmesa")
def test_the_users_choice_of_a_renderer_is_respected(monkeypatch: Patch) -> None:
    monkeypatch.setattr(backend, "_chosen", None)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert not backend.can_fall_back()
    monkeypatch.setattr(backend, "_chosen", "egl")
    assert backend.can_fall_back(), "this process chose it itself"
    backend.fallen_back = True
    assert backend.environment_of_workers()["MUJOCO_GL"] == "osmesa"
    assert not backend.can_fall_back(), "once is enough"


@pytest.mark.skipif(not backend._can_load("OSMesa", "libOSMesa.so.8"), reason="needs OSMesa")
def test_workers_fall_back_although_their_parent_has_drawn(monkeypatch: Patch) -> None:
    """MuJoCo leaves PyOpenGL's variable behind in a process that draws."""
    monkeypatch.setattr(backend, "fallen_back", False)
    monkeypatch.setenv("MUJOCO_GL", "egl")
    monkeypatch.setenv("PYOPENGL_PLATFORM", "egl")
    backend.fallen_back = True
    with Workers([{"task": "cartpole_swingup", "image_size": 16}]) as workers:
        workers.reset([0])
        assert workers.observations.std() > 1


def kill(workers: Workers) -> None:
    os.kill(pids(workers)[0], signal.SIGKILL)


@pytest.mark.parametrize(("task", "per_process"), [("toy:make", 1), ("cartpole_swingup", 2)])
def test_close_leaves_no_process(task: str, per_process: int, capfd: Printed) -> None:
    workers = Workers([{"task": task, "image_size": 16}] * 2, per_process=per_process)
    workers.reset([0, 1])
    processes = [worker.process for worker in workers._workers]
    workers.close()
    assert [process.poll() for process in processes] == [0] * (2 // per_process)
    assert capfd.readouterr() == ("", ""), "they end without a word"
    workers.close()  # twice is harmless


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_script_needs_no_main_guard_and_workers_end_when_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        textwrap.dedent("""
            import time
            from svea.envs.workers.pool import Workers
            print("started")
            workers = Workers([{"task": "toy:make", "image_size": 16}] * 2)
            workers.reset([0, 1])
            print(*[w.process.pid for w in workers._workers], flush=True)
            time.sleep(600)
        """)
    )
    path = os.pathsep.join(p for p in sys.path if p)
    script = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        text=True,
    )
    assert script.stdout is not None and script.stdout.readline() == "started\n"
    children = [int(pid) for pid in script.stdout.readline().split()]
    assert len(children) == 2 and all(alive(pid) for pid in children)
    script.kill()
    script.communicate()
    wait_for(lambda: not any(map(alive, children)))
