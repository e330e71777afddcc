"""The kernels for batches, views and losses against what is written: emulated, and on a GPU."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from emulated import emulated, emulator, needs_compiler, on_gpu
from torch import Tensor

from svea import configure
from svea.agents import make_agent
from svea.agents.agent import SAC
from svea.augment import conv
from svea.kernels import random_convolution as in_cuda
from svea.kernels import updates
from svea.kernels.updates import FusedLosses, FusedSampling
from svea.replay import Batch, Replay

KERNELS = ["sample", "weighted_error", "policy_losses"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where emulated kernels are kept for the next test."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def emulation(folder: Path) -> Any:
    return emulator(folder, updates.SOURCES, {}, KERNELS)


def replay_of(decisions: int, n_step: int, environments: int, device: str) -> Replay:
    """Noise in a ring of 20."""
    replay = Replay(
        20, 16, 3, environments=environments, episode_length=7, device=device, seed=1,
        n_step=n_step,
    )  # fmt: skip
    random = np.random.default_rng(0)

    def frame() -> np.ndarray:
        return random.integers(256, size=(3, 16, 16), dtype=np.uint8)

    for environment in range(environments):
        replay.begin(environment, frame())
    for number, environment in itertools.product(range(decisions), range(environments)):
        ends = (number + environment) % 7 == 6
        action = random.uniform(-1, 1, 3).astype(np.float32)
        over = ends and number % 2 == 0
        replay.append(environment, action, random.normal(), over, frame(), ends)
        if ends:
            replay.begin(environment, frame())
    return replay


@pytest.mark.parametrize("device", [emulated, on_gpu])
@pytest.mark.parametrize("decisions", [5, 60])  # young, and several times round the ring
@pytest.mark.parametrize(("n_step", "environments"), [(1, 1), (3, 1), (3, 2), (9, 2)])
def test_batches_are_the_replays_own(device, decisions, n_step, environments, emulation):
    replay = replay_of(decisions, n_step, environments, device)
    fast = FusedSampling(replay, emulation if device == "cpu" else None)
    state = replay.generator.get_state()
    for size in (1, 33):
        replay.generator.set_state(state)
        wanted: Batch = Replay.sample(replay, size)
        replay.generator.set_state(state)
        for name, found in fast(size):
            rounding = 0 if n_step == 1 or found.dtype == torch.uint8 else 1e-6
            torch.testing.assert_close(
                found, getattr(wanted, name), rtol=rounding, atol=rounding, msg=name
            )
    assert fast.right


@needs_compiler
@pytest.mark.parametrize("wrong", ["observations", "rewards", "next_observations"])
def test_a_replay_whose_kernel_is_wrong_samples_by_itself(wrong: str, emulation: Any) -> None:
    replay = replay_of(60, 3, 2, "cpu")
    launched: list[int] = []

    def launch(kernel: str, *given: Any) -> None:
        emulation(kernel, *given)
        _, _, _, _, observations, successors, _, rewards, *_ = given
        tensors = {
            "observations": observations, "next_observations": successors, "rewards": rewards
        }  # fmt: skip
        tensors[wrong].view(-1)[-1] += 1
        launched.append(1)

    fast, state = FusedSampling(replay, launch), replay.generator.get_state()
    with pytest.warns(UserWarning, match=f"our kernel's {wrong} are not the replay's"):
        found = dict(fast(16))
    replay.generator.set_state(state)
    for name, tensor in Replay.sample(replay, 16):
        assert torch.equal(found[name], tensor)
    fast(16)
    assert len(launched) == 1, "it is asked once"


def test_which_replays_fit() -> None:
    assert updates.has_right_frames(Replay(2, 84, 1))
    assert not updates.has_right_frames(Replay(2, 85, 1))
    assert not FusedSampling.fits(Replay(2, 84, 1)), "it lies on a CPU"


@pytest.mark.parametrize("device", [emulated, on_gpu])
@pytest.mark.parametrize("shape", [(5, 9, 24, 20), (2, 3, 14, 4), (1, 6, 43, 12), (3, 9, 84, 84)])
def test_the_random_convolution_is_what_is_written(folder, device, shape):
    if device == "cpu" and shape[-1] == 84:
        pytest.skip("takes long where it is emulated")
    random = torch.Generator().manual_seed(sum(shape))
    x = torch.rand(shape, generator=random).bfloat16()
    weight = 2 * torch.randn(len(x), 3, 3, 3, 3, generator=random)
    launch = (
        emulator(folder, in_cuda.SOURCES, {}, ["convolve"])
        if device == "cpu"
        else in_cuda.kernels(torch.device("cuda"))
    )
    assert in_cuda.fits(x) and launch
    found = in_cuda.convolve(x.to(device), weight.to(device), launch).cpu()
    wanted = conv.apply(x.double(), {"weight": weight.double()})
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=1e-6)  # one rounding


@needs_compiler
def test_a_random_convolution_that_is_wrong_is_noticed(folder: Path) -> None:
    cpu = torch.device("cpu")
    launch = emulator(folder, in_cuda.SOURCES, {}, ["convolve"])
    in_cuda.check(launch, cpu)

    def without_a_frame(*given: Any) -> None:
        launch(*given)
        given[6][1, 3:6] = 0.5

    with pytest.raises(ArithmeticError, match=r"away from the library's"):
        in_cuda.check(without_a_frame, cpu)
    assert not in_cuda.fits(torch.zeros(1, 3, 8, 6, dtype=torch.bfloat16))
    assert not in_cuda.fits(torch.zeros(1, 3, 8, 8))
    assert not in_cuda.fits(torch.zeros(193, dtype=torch.bfloat16)[1:].view(1, 3, 8, 8))


def agent_for(method: str, device: str) -> SAC:
    config = configure("walker_walk", method=method, preset="quick", overlay_dir="procedural")
    agent = make_agent(config, 2, torch.device(device))
    assert isinstance(agent, SAC)
    return agent


@pytest.mark.parametrize("device", [emulated, on_gpu])
@pytest.mark.parametrize("targets", [1, 2])
def test_weighted_errors_are_what_is_written(device: str, targets: int, emulation: Any) -> None:
    agent, batch = agent_for("svea", device), 37
    fast = FusedLosses(agent, emulation if device == "cpu" else None)
    q = torch.randn(2, 2 * batch, device=device, requires_grad=True)
    exact = q.detach().double().requires_grad_()
    target = torch.randn(targets, batch, device=device)
    wanted, found = agent.weighted_error(exact, target.double()), fast.weighted_error(q, target)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)
    same_slopes(0.3 * found, 0.3 * wanted, [q], [exact])


@pytest.mark.parametrize("device", [emulated, on_gpu])
def test_policy_losses_are_what_is_written(device: str, emulation: Any) -> None:
    agent, batch = agent_for("svea", device), 300  # more than a block has threads
    fast = FusedLosses(agent, emulation if device == "cpu" else None)
    q, probability = torch.randn(2, batch, device=device), torch.randn(batch, device=device)
    q[1, 5] = q[0, 5]  # both the smallest: each gets half
    ours = [x.clone().requires_grad_() for x in (q, probability)]
    theirs = [x.double().requires_grad_() for x in (q, probability)]
    found, wanted = fast.policy_losses(*ours), agent.policy_losses(*theirs)
    for one, other in zip(found[:2], wanted[:2], strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-6)
    assert found[2].keys() == wanted[2].keys()
    for name, value in found[2].items():
        torch.testing.assert_close(value.double(), wanted[2][name].double())
    same_slopes(0.7 * found[0], 0.7 * wanted[0], ours, theirs)
    temperature = [agent.log_temperature]
    same_slopes(0.7 * found[1], 0.7 * wanted[1], temperature, temperature)


def same_slopes(ours: Tensor, theirs: Tensor, x: list[Tensor], exact: list[Tensor]) -> None:
    found, wanted = torch.autograd.grad(ours, x), torch.autograd.grad(theirs, exact)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-5, atol=1e-7)
