"""Evaluations during training show the same worlds each time, taken from all of them."""

from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch

from svea.config import configure
from svea.core.errors import UserError
from svea.core.seeds import world_order
from svea.envs import LIGHT_MODES
from svea.envs.rendering import backend
from svea.envs.workers.pool import PER_GPU_PROCESS
from svea.evaluation.play import EpisodeResult
from svea.training import evaluators


def test_curves_see_an_even_subset_of_the_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    def do_nothing(*_: Any) -> Any:
        return lambda observations, episodes: np.zeros((len(observations), 1), np.float32)

    monkeypatch.setattr(evaluators, "agent_policy", do_nothing)
    shown = []
    for seed, environments in ((0, 2), (4, 1)):
        config = configure(
            "cartpole_swingup", preset="quick", seed=seed, image_size=48, episode_frames=8,
            rendering="fast", eval_mode="color_hard", eval_episodes=5, eval_envs=environments,
        )  # fmt: skip
        with ExitStack() as stack:
            sets: Any = evaluators.Evaluators(config, stack, print, torch.device("cpu"))
            for _ in range(2):
                line = sets.play("color_hard", None, lambda: False, print)
                shown.append(line["worlds"])
                assert len(line["returns"]) == line["episodes"] == 5
            assert "worlds" not in sets.play("train", None, lambda: False, print)
    assert shown == [world_order(100)[::20]] * 4


def test_several_modes_and_groups_are_spelled_out() -> None:
    config = configure("walker_walk", eval_mode="color_hard, lights,train")
    assert config.eval_modes == ("train", "color_hard", *LIGHT_MODES)
    for mode, wrong in (("video_hard,color_hrad", "color_hrad"), ("shift_easy", "hopper_hop")):
        with pytest.raises(UserError, match=wrong):
            configure("hopper_hop", eval_mode=mode)


def test_environments_of_the_first_modes_are_kept_and_of_others_closed(monkeypatch):
    """And they share processes as those of training do, where a GPU draws and computes."""
    running: list[str] = []
    shared: list[int] = []

    class FakeWorkers:
        def __init__(
            self, arguments: list[dict[str, Any]], _: Any, per_process: int, *__: Any, **___: Any
        ) -> None:
            self.provenance: dict[str, Any] = {}
            self.mode = arguments[0]["mode"]
            running.append(self.mode)
            shared.append(per_process)

        def wait(self) -> None: ...

        def close(self) -> None:
            running.remove(self.mode)

    monkeypatch.setattr(evaluators, "Workers", FakeWorkers)
    monkeypatch.setattr(evaluators, "agent_policy", lambda *_: None)
    monkeypatch.setattr(evaluators, "play", lambda *_: [EpisodeResult(seed=0, total=1.0)])
    monkeypatch.setattr(backend, "draws_on_gpu", lambda: True)
    config = configure("walker_walk", eval_mode="geometry")
    for device, together in (("cuda", PER_GPU_PROCESS), ("cpu", 1)):
        with ExitStack() as stack:
            sets: Any = evaluators.Evaluators(config, stack, print, torch.device(device))
            sets.start()
            assert running == list(sets.modes[:3]) and len(sets.modes) == 11
            for mode in [*sets.modes, *sets.modes]:
                sets.play(mode, None, lambda: False, print)
                assert mode in running and len(running) <= 4
        assert running == [] and shared[-1] == together
