"""TID: hand-made overlaps, a slow second derivation, and masks that lie under their frames."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import tiny

from svea.agents import Agent, make_agent
from svea.agents.diagnostics import guided_action_gradient, guided_gradient
from svea.cli import main
from svea.config import Config, configure, to_dict
from svea.core.errors import UserError
from svea.envs.dmc import DMControlEnv
from svea.evaluation.analysis import read_quantile, tid, tid_in, tid_of
from svea.evaluation.film import record
from svea.runs.load import write_export
from svea.training import train


def test_overlaps_by_hand() -> None:
    """Ten pixels a frame: the two most influential, next to four, two and one of the task's."""
    influence = torch.zeros(1, 3, 1, 10)
    influence[0, :, 0, :2] = torch.tensor([2.0, 1.0])
    objects = torch.zeros(1, 3, 1, 10, dtype=torch.bool)
    objects[0, 0, 0, :4] = objects[0, 1, 0, 1:3] = objects[0, 2, 0, 5] = True
    found = tid_of(influence, objects, quantile=0.8)
    overlaps = [2 / math.sqrt(4 * 2), 1 / math.sqrt(2 * 2), 0.0]
    assert found.score == pytest.approx(3 / math.sqrt(7 * 6))
    assert found.variance == pytest.approx(np.var([100 * overlap for overlap in overlaps]))
    same = tid_of(influence, influence > 0, quantile=None)  # 20 %: exactly those two
    assert (same.score, same.variance, same.observations) == (pytest.approx(1.0), 0.0, 1)


def test_observations_without_the_task_in_a_frame_do_not_count() -> None:
    influence, objects = torch.rand(3, 3, 8, 8), torch.ones(3, 3, 8, 8, dtype=torch.bool)
    objects[1, 2] = False
    assert tid_of(influence, objects, 0.9).observations == 2
    nothing = tid_of(influence, torch.zeros_like(objects), 0.9)
    assert nothing.observations == 0 and math.isnan(nothing.score)


def walker(**changes: Any) -> tuple[Config, Agent]:
    network = {"layers": 2, "filters": 8, "projection": 16, "hidden": 32}
    config = configure(
        "walker_walk", image_size=40, rendering="fast", episode_frames=24, shift=1,
        network=network, **changes,
    )  # fmt: skip
    return config, make_agent(config, actions=6)


@pytest.mark.parametrize("changes", [{}, {"method": "rad"}])
def test_every_frames_mask_lies_under_that_frame(changes, monkeypatch):
    """Where all but the task is drawn black, what is not black is the mask."""
    whole = DMControlEnv._picture

    def masked(env: DMControlEnv, size: int | None = None, camera: int | None = None) -> Any:
        return whole(env, size, camera) * env.foreground()[..., None]

    monkeypatch.setattr(DMControlEnv, "_picture", masked)
    config, agent = walker(**changes)
    played = record(agent, config, "train", size=None, objects=True)
    assert len(played.objects) == len(played.observations) == 6
    for seen, objects in zip(played.observations, played.objects, strict=True):
        shown = seen.reshape(3, 3, *seen.shape[1:]).any(1)
        np.testing.assert_array_equal(shown, shown & objects)
        assert shown.sum() > 0.9 * objects.sum() > 0
    assert tid_in(agent, played, 6, None).observations == 6, "cropped as the agent sees it"


def test_the_measure_equals_a_slow_derivation() -> None:
    """As SimGRL defines it: sums over colours, a quantile per frame, counts."""
    config, agent = walker()
    played = record(agent, config, "train", size=None, objects=True)
    found = tid_in(agent, played, 3, 0.9)
    scores, variances = [], []
    for moment in (0, 2, 5):
        image = torch.as_tensor(played.observations[moment])[None] / 255
        action = torch.as_tensor(played.actions[moment])[None]
        gradient = guided_gradient(agent, image, action)[0].abs().numpy()
        pairs = []
        for frame in range(3):
            total = gradient[3 * frame : 3 * frame + 3].sum(0)
            looked = total >= np.quantile(total, 0.9)
            wanted = played.objects[moment][frame]
            pairs.append((int((looked & wanted).sum()), int(wanted.sum()), int(looked.sum())))
        both, area, looks = (sum(column) for column in zip(*pairs, strict=True))
        scores.append(math.sqrt(both**2 / (area * looks)))
        variances.append(np.var([100 * math.sqrt(b**2 / (a * m)) for b, a, m in pairs]))
    assert found.score == pytest.approx(np.mean(scores), abs=1e-3)
    assert found.variance == pytest.approx(np.mean(variances), abs=0.5)


@pytest.mark.parametrize(
    ("small", "of", "name"), [(False, "Q", "tid"), (True, "action", "tid-action")]
)
def test_a_run_is_measured_printed_and_kept(small, of, name, tmp_path, capsys):
    config, agent = walker()
    run, kept = tmp_path / "export", tmp_path / "export/analysis" / f"{name}.json"
    write_export(run, agent, to_dict(config), small=small)
    command = ["analyze", "tid", str(run), "--samples", "3", "--modes"]
    assert main([*command, "train"]) == 0
    printed = capsys.readouterr().out
    assert "train score" in printed and "train variance" in printed
    found = json.loads(kept.read_text())
    (row,) = found["rows"]
    assert found["quantile"] == "auto" and 0 <= row["score"] <= 1
    assert row["mode"] == "train" and row["of"] == of and len([*kept.parent.iterdir()]) == 1
    assert tid(run, ["train"], samples=3, on_problem=print) == found["rows"]
    assert main([*command, "test"]) == 2, "a mode of the robot's tasks"
    assert json.loads(kept.read_text()) == found, "what an earlier call found stays"


def test_the_guided_gradient_of_an_action_is_its_plain_one_where_all_is_positive() -> None:
    """One linear layer, then a ReLU that is open: guided or not, the gradient is the same."""
    head = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(9 * 4 * 4, 4, bias=False), torch.nn.ReLU()
    )
    weights = torch.rand(4, 9 * 4 * 4)
    head[1].weight = torch.nn.Parameter(weights)
    agent: Any = SimpleNamespace(
        trunk=torch.nn.Identity(), actor=head, masker=None, masked=lambda x: x,
        encode=lambda x, _: x,
        choose=lambda features, explore, generator: head(features),
    )  # fmt: skip
    images = torch.rand(2, 9, 4, 4)
    actions = images.flatten(1) @ weights.T
    expected = (actions @ weights / actions.norm(dim=1, keepdim=True)).view_as(images)
    torch.testing.assert_close(guided_action_gradient(agent, images), expected)


def test_what_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", decisions=12))
    assert main(["analyze", "tid", str(run)]) == 2, "a toy has no segmentation"
    with pytest.raises(UserError, match="toy:make"):
        tid(run, ["train"], on_problem=print)
    for text in ("1.0", "many", "-0.1"):
        with pytest.raises(UserError, match=text):
            read_quantile(text)
    with pytest.raises(UserError, match="samples is 0"):
        tid(run, ["train"], samples=0, on_problem=print)
