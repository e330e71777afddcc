"""Agents of the playground: the same episodes as `svea eval`, and processes that end."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from processes import alive, wait_for
from tiny_runs import TINY

from svea.agents import make_agent
from svea.config import configure, to_dict
from svea.core.errors import UserError
from svea.evaluation.play import EpisodeResult
from svea.evaluation.requests import evaluate
from svea.play.player import Player
from svea.play.setting import DEFAULT, AgentSlot, Setting, read_setting
from svea.runs.load import write_export

SMALL = {name: TINY[name] for name in ("network", "shift", "precision", "device")}


def make_export(folder: Path, task: str, *, small: bool = False, **changes: Any) -> Path:
    """An agent that has learned nothing, of a task whose episodes are short."""
    chosen = {"method": "svea", "image_size": 48, "out": str(folder)} | SMALL | changes
    config = configure(task, **chosen)
    actions = {"walker_walk": 6, "robot_reach": 3, "cartpole_swingup": 1}[task]
    write_export(folder, make_agent(config, actions, torch.device("cpu")), to_dict(config),
                 small=small)  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_export(tmp_path_factory.mktemp("play") / "walker", "walker_walk", episode_frames=24)


@pytest.fixture
def player(walker: Path) -> Iterator[Player]:
    made = Player(AgentSlot(str(walker), rows=2), DEFAULT)
    yield made
    made.close()


def result_of(player: Player) -> EpisodeResult:
    assert player.episode is not None
    return player.episode.result


def play(player: Player, setting: Setting) -> float:
    player.begin(setting)
    while not player.done:
        player.decide()
    return result_of(player).total


@pytest.mark.parametrize(
    "modes",
    [
        ["color_hard"],
        pytest.param(["train", "color_easy", "video_easy", "video_hard", "distracting_cs",
                      "picture_colors", "picture_video"], marks=pytest.mark.slow),
    ],
    ids=["color_hard", "others"],
)  # fmt: skip
def test_an_episode_is_that_of_svea_eval(walker: Path, player: Player, modes: list[str]):
    records = evaluate(walker, modes, episodes=3, seed=7, environments=2)
    assert len({record["return"] for record in records}) == len(records), "they differ"
    for record in reversed(records):  # in any order, and after changes by hand
        setting = read_setting(
            {"mode": record["mode"], "seed": 7, "episode": record["episode"]}, []
        )
        player.begin(setting)
        player.decide()
        player.change(read_setting({"noise": 0.3, "roll": 30, "sky": "#ff0000"}, [], setting))
        player.decide()
        assert play(player, setting) == record["return"], record["mode"]
        situation = player.situation()
        assert (
            situation["world"] == record["world"] and result_of(player).length == record["length"]
        )


def test_changes_by_hand_change_what_the_agent_sees_and_does(player: Player):
    plain = play(player, DEFAULT)
    setting = read_setting({"noise": 0.5, "roll": 90}, [])
    assert play(player, setting) != plain
    player.begin(DEFAULT)
    before, scene = player.seen()[0], player.scene()
    player.change(setting)
    assert player.seen()[0] != before and player.scene() != scene
    assert len(before) == 3 * 48 * 48 * 3


@pytest.mark.parametrize("changes", [{"mode": "camera_hard"}, {"roll": 20, "shift_x": 0.3}])
def test_pictures_between_decisions_stand_as_the_scene_and_change_nothing(player, changes):
    setting = read_setting(changes, [])
    total = play(player, setting)
    player.begin(setting)
    while not player.done:
        player.decide(between=3)
        assert len(player.between) == player.repeat - 1
        # What the last step looks like is known: the scene itself.
        last = player._mode.draw_between([player.repeat], setting.size)
        player.decide()
        scene = np.asarray(player.env.render())
        np.testing.assert_array_equal(last, [scene])
    assert result_of(player).total == total


def test_saliency_is_laid_over_what_the_agent_sees(player: Player):
    player.begin(read_setting({"overlay": "saliency", "size": 480}, []))
    assert Image.open(io.BytesIO(player.scene())).size == (480, 480)
    frames, laid = player.seen()
    newest = np.frombuffer(frames, np.uint8).reshape(3, 48, 48, 3)[-1]
    over = np.frombuffer(laid, np.uint8).reshape(48, 48, 3)
    assert (over != newest).any() and (over[..., 0] >= over[..., 2]).all(), "heat is red"
    player.begin(read_setting({"overlay": "mask"}, []))
    assert len(player.seen()) == 1, "this agent has no mask"


def test_a_mask_is_shown_as_what_it_leaves(tmp_path: Path):
    folder = make_export(tmp_path / "madi", "walker_walk", method="madi", augment="conv")
    player = Player(AgentSlot(str(folder)), DEFAULT)
    assert player.about()["has_mask"] and player.agent is not None
    for overlay in ("mask", "saliency"):
        player.begin(read_setting({"overlay": overlay}, []))
        frames, laid = player.seen()
        newest = np.frombuffer(frames, np.uint8).reshape(3, 48, 48, 3)[-1].astype(float)
        over = np.frombuffer(laid, np.uint8).reshape(48, 48, 3)
        if overlay == "mask":
            images = torch.as_tensor(player.episode.observation)[None] / 255
            kept = player.agent.masker.masks(images)[0, -1].detach().numpy()  # type: ignore[union-attr]
            np.testing.assert_allclose(over, newest * kept[..., None], atol=1)
    player.close()


@pytest.mark.parametrize("small", [False, True])
def test_agents_without_q_functions_are_shown_without_them(tmp_path: Path, small: bool):
    """The random policy, and an export without its critic: it shows what moves its action."""
    slot = AgentSlot("", task="cartpole_swingup")
    if small:
        slot = AgentSlot(str(make_export(tmp_path, "walker_walk", small=True, episode_frames=8)))
    player = Player(slot, read_setting({"overlay": "saliency"}, []))
    player.begin(player.setting)
    for _ in range(2):
        player.decide()
    assert (player.about()["method"] == "random policy") == (not small)
    assert not player.about()["has_q"] and player.numbers["q"] == [None, None]
    assert len(player.numbers["actions"][0]) == (6 if small else 1)
    assert len(player.seen()) == (2 if small else 1)
    player.close()


def test_a_task_whose_actions_do_not_fit_is_refused(walker: Path):
    with pytest.raises(UserError, match="the agent learned with"):
        Player(AgentSlot(str(walker), task="cartpole_swingup"), DEFAULT)


def test_an_environment_of_ones_own_can_be_played_in():
    player = Player(AgentSlot("", task="toy:make"), DEFAULT)
    plain = play(player, DEFAULT)
    assert play(player, read_setting({"noise": 0.3, "drop": 0.5}, [])) == plain
    assert [name for name, fit in player.situation()["fits"].items() if fit] == ["picture"]
    play(player, read_setting({"mode": "picture_colors"}, []))
    assert len(player.situation()["worlds"]) == 100
    assert Image.open(io.BytesIO(player.scene())).size[0] >= 16
    play(player, read_setting({"mode": "video_hard"}, []))
    assert "does not fit" in player.problem
    player.close()


# --- Processes


def wait_until_gone(pids: list[int]) -> None:
    wait_for(lambda: not any(map(alive, pids)))


def children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(each) for each in found.stdout.split()]


class Serving:
    """`svea play` as a user runs it."""

    def __init__(self, *runs: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "svea", "play", *map(str, runs), "--no-browser"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[-1]

    def connect(self) -> Any:
        from websockets.sync.client import connect

        origin = self.address.rsplit("/", 2)[0]
        live = "ws" + self.address.removeprefix("http") + "live"
        return connect(live, origin=origin, max_size=None)  # type: ignore[arg-type]

    def close(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)


@pytest.fixture
def serving(walker: Path) -> Iterator[Serving]:
    pytest.importorskip("starlette", reason="needs the extra play")
    served = Serving(walker, walker)
    yield served
    if served.process.poll() is None:
        served.process.kill()
        served.process.wait()


def started(serving: Serving, line: Any) -> list[int]:
    """A page whose agents play; the ids of their processes."""
    line.recv(timeout=60)
    line.send(json.dumps({"do": "start"}))
    while not isinstance(line.recv(timeout=180), bytes):
        pass
    pids = children(serving.process.pid)
    assert len(pids) == 2
    return pids


@pytest.mark.slow
def test_processes_end_with_the_page_and_with_ctrl_c(serving: Serving):
    with serving.connect() as line:
        pids = started(serving, line)
    wait_until_gone(pids)
    assert serving.process.poll() is None, "the server waits for the next page"
    with serving.connect() as line:
        pids = started(serving, line)
        assert serving.close() == 0
        wait_until_gone(pids)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_a_killed_server(serving: Serving, how: signal.Signals):
    with serving.connect() as line:
        pids = started(serving, line)
        serving.process.send_signal(how)
        serving.process.wait(30)
        wait_until_gone(pids)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_agent_comes_back_and_a_stuck_one_does_not_hold_the_end_up(serving, how):
    with serving.connect() as line:
        pids = started(serving, line)
        os.kill(pids[1], how)
        if how == signal.SIGKILL:
            line.send(json.dumps({"do": "shown", "picture": 1}))
            while True:
                said = line.recv(timeout=180)
                if isinstance(said, str) and json.loads(said)["do"] == "restart":
                    break
            while line.recv(timeout=180) is None or len(children(serving.process.pid)) < 2:
                pass
            pids += children(serving.process.pid)
    wait_until_gone(pids)
    assert serving.close() == 0


def test_a_port_that_is_taken_is_a_users_mistake(walker: Path):
    pytest.importorskip("uvicorn", reason="needs the extra play")
    from svea.play.server import listen

    with listen("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(UserError, match="free port"):
            listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UserError, match="address"):
        listen("203.0.113.7", 0)
