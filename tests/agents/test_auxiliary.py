"""Auxiliary tasks: whole updates with them, against a second derivation on raw tensors."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from rederivation import (
    LAYERS,
    B,
    PlainAdam,
    PlainDQN,
    PlainSAC,
    Reference,
    Weights,
    make_agent,
    make_batch,
    mlp,
    project,
    record_inputs,
    trunk,
    view,
    weights_of,
)
from torch import Tensor

from svea.agents import DQN, SAC, Agent
from svea.agents.auxiliary import CURL, PAD, SODA
from svea.config.options import CURLOptions, PADOptions, SODAOptions
from svea.replay import Batch

RATE, TAU = 2e-3, 0.3  # a slow branch that is fast enough for the difference to show
TASKS: dict[str, Callable[[Agent], Any]] = {
    "curl": partial(CURL, options=CURLOptions(learning_rate=RATE)),
    "soda": partial(SODA, options=SODAOptions(learning_rate=RATE, batch_size=8, tau=TAU)),
    "pad": partial(PAD, options=PADOptions(learning_rate=RATE)),
    "rotation": partial(PAD, options=PADOptions(learning_rate=RATE, task="rotation")),
}
TRAINED = {  # the parameters that each task's optimiser steps
    "curl": ("trunk.", "critic.projection.", "auxiliary.bilinear"),
    "soda": ("trunk.", "auxiliary.projection.", "auxiliary.predictor."),
    "pad": ("trunk.", "auxiliary."),
    "rotation": ("trunk.", "auxiliary."),
}


def with_task(task: str, base: type[Agent] = SAC, **changes: Any) -> Any:
    return make_agent("drq", base=base, make_auxiliary=TASKS[task], **changes)


def with_own_layers(task: str, own: int) -> Any:
    """PAD with a task that has the last convolutions for itself."""
    make = partial(TASKS[task], own_layers=own)
    return make_agent("drq", make_auxiliary=make)


def shared_only(own: int) -> tuple[str, ...]:
    """What PAD's task then trains: of the trunk, the first convolutions."""
    return (*(f"trunk.layers.{2 * layer}." for layer in range(LAYERS - own)), "auxiliary.")


# The second derivation ----------------------------------------------------------------------------


def cross_entropy(logits: Tensor, answers: list[int]) -> Tensor:
    """The mean surprise of the right answers."""
    surprise = [
        -(row[answer] - row.max() - (row - row.max()).exp().sum().log())
        for row, answer in zip(logits, answers, strict=True)
    ]
    return torch.stack(surprise).mean()


def curl_loss(w: Weights, batch: Batch, own: Batch, draw: Tensor) -> Tensor:
    anchor = project(w, "critic", trunk(w, view(batch.observations, "weak", 0)))
    slow = trunk(w, view(batch.observations, "weak", 1), "target_trunk")
    positive = project(w, "target_critic", slow).detach()
    logits = torch.stack(
        [
            torch.stack([one @ w["auxiliary.bilinear"] @ other for other in positive])
            for one in anchor
        ]
    )
    return cross_entropy(logits, list(range(B)))


def bottleneck(w: Weights, name: str, x: Tensor) -> Tensor:
    """Linear, batch norm over this batch, ReLU, linear."""
    x = x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"]
    x = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    x = (x * w[f"{name}.1.weight"] + w[f"{name}.1.bias"]).clamp(min=0)
    return x @ w[f"{name}.3.weight"].T + w[f"{name}.3.bias"]


def soda_loss(w: Weights, batch: Batch, own: Batch, draw: Tensor) -> Tensor:
    online = trunk(w, view(own.observations, "strong", 0))
    online = bottleneck(w, "auxiliary.predictor", bottleneck(w, "auxiliary.projection", online))
    slow = trunk(w, view(own.observations, "weak", 1), "auxiliary.target_trunk")
    target = bottleneck(w, "auxiliary.target_projection", slow).detach()
    online, target = (x / x.norm(dim=1, keepdim=True) for x in (online, target))
    return ((online - target) ** 2).mean()


def pad_features(w: Weights, images: Tensor) -> Tensor:
    """The first convolutions are everyone's, the last ones and the projection the task's own."""
    own = sum(name.startswith("auxiliary.head.") and name.endswith("weight") for name in w)
    x = trunk(w, images, layers=LAYERS - own)
    for layer in range(own):
        key = f"auxiliary.head.layers.{2 * layer + 1}"
        filters = w[f"{key}.weight"].shape[1]
        maps = x.reshape(len(x), filters, *[round((x.shape[1] / filters) ** 0.5)] * 2)
        x = torch.nn.functional.conv2d(
            maps.clamp(min=0), w[f"{key}.weight"], w[f"{key}.bias"]
        ).flatten(1)
    return project(w, "auxiliary", x)


def inverse_dynamics_loss(w: Weights, batch: Batch, own: Batch, draw: Tensor) -> Tensor:
    states = [
        pad_features(w, view(images, "weak", 0))
        for images in (batch.observations, batch.next_observations)
    ]
    guess = mlp(w, "auxiliary.mlp", torch.cat(states, 1))
    if batch.actions.shape[1] == 1:
        return cross_entropy(guess, [int(choice) for choice in batch.actions[:, 0]])
    return ((guess - batch.actions) ** 2).mean()


def rotation_loss(w: Weights, batch: Batch, own: Batch, draw: Tensor) -> Tensor:
    answers = [int(4 * number) for number in draw]
    images = view(batch.observations, "weak", 0)
    turned = []
    for image, quarters in zip(images, answers, strict=True):
        for _ in range(quarters):
            image = image.transpose(1, 2).flip(1)  # a quarter turn to the left
        turned.append(image)
    logits = mlp(w, "auxiliary.mlp", pad_features(w, torch.stack(turned)))
    return cross_entropy(logits, answers)


LOSSES = {
    "curl": curl_loss,
    "soda": soda_loss,
    "pad": inverse_dynamics_loss,
    "rotation": rotation_loss,
}


def check(
    agent: Agent, reference: Reference, task: str, trained: tuple[str, ...] | None = None
) -> None:
    """Whole updates: Q-functions, policy, target, and then the task."""
    discrete = agent.discrete
    reference.groups = reference.groups | {"auxiliary": trained or TRAINED[task]}
    reference.adam["auxiliary"] = PlainAdam(RATE)
    for decision in (2, 4):
        batch = make_batch(decision, discrete)
        own = make_batch(decision + 10, discrete, rows=8)
        noise = reference.noise_of(agent)
        w, losses = reference.update(weights_of(agent), batch, noise)
        loss = LOSSES[task](w, batch, own, noise["auxiliary"])
        w = reference.step(w, "auxiliary", loss)
        if task == "soda":
            for name in [name for name in w if name.startswith("auxiliary.target_")]:
                online = name.replace("auxiliary.target_trunk.", "trunk.").replace("target_", "")
                w[name] = TAU * w[online] + (1 - TAU) * w[name]
        found = agent.update(batch, agent.schedule(decision), own if task == "soda" else None)
        torch.testing.assert_close(
            found["auxiliary_loss"], loss.detach(), rtol=2e-5, atol=1e-6, msg=task
        )
        torch.testing.assert_close(
            found["critic_loss"], losses["critic_loss"].detach(), rtol=2e-5, atol=1e-6
        )
        reference.assert_equal(agent, w)


@pytest.mark.parametrize("task", TASKS)
def test_updates_equal_a_plain_rederivation(task: str) -> None:
    check(with_task(task), PlainSAC("drq"), task)


@pytest.mark.parametrize("task", ["pad", "rotation"])
@pytest.mark.parametrize("own", [1, 2])
def test_updates_where_pads_task_has_the_last_convolutions_for_itself(task: str, own: int) -> None:
    """Policy and Q-functions share theirs, which the Q-loss alone trains; so does the target's."""
    agent = with_own_layers(task, own)
    assert f"auxiliary.head.layers.{2 * own - 1}.weight" in weights_of(agent)
    check(agent, PlainSAC("drq"), task, shared_only(own))


@pytest.mark.parametrize("task", ["pad", "curl"])
def test_updates_with_discrete_actions(task: str) -> None:
    check(with_task(task, DQN), PlainDQN("drq"), task)


# What a task's loss may move ----------------------------------------------------------------------


def test_sodas_batch_norms_stay_in_training_and_are_not_averaged() -> None:
    agent = with_task("soda")
    norm, slow = agent.auxiliary.projection[1], agent.auxiliary.target_projection[1]
    assert norm.training and slow.training
    agent.update(make_batch(), agent.schedule(2), make_batch(9, rows=8))
    assert int(norm.num_batches_tracked) == int(slow.num_batches_tracked) == 1
    # Both have seen their own batch; an average would lie 0.005 of the way to the other's.
    assert not torch.allclose(norm.running_mean, slow.running_mean, rtol=0.1)


def test_curls_contrast_begins_uniform_and_its_positive_is_a_view_nobody_has_seen() -> None:
    agent, batch = with_task("curl"), make_batch()
    bilinear = agent.auxiliary.bilinear
    assert bilinear.shape == (10, 10) and bilinear.min() >= 0 and bilinear.max() < 1
    seen = record_inputs(agent.target_trunk)
    first = agent.update(batch, agent.schedule(1))
    torch.testing.assert_close(seen[-1], view(batch.observations, "weak", 1))
    for _ in range(60):
        last = agent.update(make_batch(), agent.schedule(1))
    assert last["auxiliary_loss"] < 0.5 * first["auxiliary_loss"]
    assert float(first["auxiliary_accuracy"]) < float(last["auxiliary_accuracy"]) == 1


@pytest.mark.parametrize(("task", "every"), [("curl", 1), ("soda", 2), ("pad", 2)])
def test_how_often_a_task_is_due(task: str, every: int) -> None:
    agent = with_task(task)
    for decision in range(6):
        own = make_batch(9, rows=8) if agent.auxiliary.batch_size else None
        losses = agent.update(make_batch(), agent.schedule(decision), own)
        assert ("auxiliary_loss" in losses) == (decision % every == 0)


def test_the_papers_numbers() -> None:
    assert CURLOptions() == CURLOptions(1e-3, 1)
    assert SODAOptions() == SODAOptions(3e-4, 2, 256, 0.005)
    assert PADOptions() == PADOptions(1e-3, 2, "inverse_dynamics", 32)
