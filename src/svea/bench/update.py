"""How long an update and its parts take, next to the least time they could take."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from svea import speed
from svea.agents import make_agent
from svea.bench import ACTIONS, Row, captured, median_ms, noise_replay, peak_gigabytes
from svea.config import Config, configure
from svea.config.names import find_method
from svea.core.errors import UserError, at_least
from svea.methods import METHODS

PEAKS = {"NVIDIA H200": (989e12, 4.8e12), "NVIDIA H100": (989e12, 3.35e12)}
"""Dense bfloat16 operations and bytes per second, from the data sheets."""


def time_updates(
    methods: Iterable[str],
    *,
    base: str = "sac",
    encoder: str = "",
    preset: str = "paper",
    device: torch.device,
    precision: str = "auto",
    how: str = "auto",
    batch: int | None = None,
    repeats: int = 40,
    parts: bool = True,
    on_row: Callable[[Row], object] = lambda row: None,
) -> list[Row]:
    """Time one update of each method, sampling included, on frames of noise: medians.

    `on_row` is called after each method: on a GPU each compiles first, and all take minutes.
    """
    at_least(1).check("repeats", repeats)
    settings: dict[str, Any] = {"base": base, "encoder": encoder, "preset": preset}
    settings |= {"batch_size": batch} if batch is not None else {}
    settings |= {"action_bins": 3} if base == "dqn" else {}
    configs = []
    for method in methods:
        one_step = base == "ddpg" and find_method(method).auxiliary == "pad"
        own = settings | {"method": method} | ({"ddpg.n_step": 1} if one_step else {})
        configs.append(configure("walker_walk", overlay_dir="procedural", **own))
    if not configs:
        raise UserError(f"no method is named; allowed: {', '.join(METHODS)}, all")
    chosen = speed.choose_speed(how, device)
    rows = []
    for config in configs:  # all were checked before the first is timed
        rows.append(time_update(config, device, precision, chosen, repeats, parts))
        on_row(rows[-1])
        torch.compiler.reset()  # another method's networks must not count as recompilations
    return rows


def time_update(
    config: Config, device: torch.device, precision: str, how: str, repeats: int, parts: bool
) -> Row:
    """Time one configuration."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    dtype, exact = speed.choose_precision(precision, device), precision == speed.EXACT
    replay = noise_replay(config, device)

    def make(how: str) -> speed.Learner:
        agent = make_agent(config, ACTIONS, device)
        return speed.Learner(
            agent, replay, config.batch_size, precision=dtype, exact=exact, speed=how
        )

    learner = make(how)
    agent = learner.agent
    cycle = 2 * max(1, agent.options.actor_every)
    for decision in range(cycle * (speed.WARM_UP + 1)):
        learner.step(decision)
    ms = median_ms(lambda: [learner.step(d) for d in range(cycle)], device, repeats) / cycle
    memory = peak_gigabytes(device)
    flop, moved = least_work(make("eager"))
    peaks = PEAKS.get(torch.cuda.get_device_name()) if device.type == "cuda" else None
    trained = [p for o in agent.optimisers.values() for p in o.param_groups[0]["params"]]
    return {
        "method": config.method,
        "base": config.base,
        "encoder": config.encoder,
        "speed": how,
        "precision": speed.EXACT if exact else str(dtype).removeprefix("torch."),
        "batch": config.batch_size,
        "ms": ms,
        "parts": part_times(learner, device, repeats) if parts else {},
        "parameters": sum({id(p): p.numel() for p in trained}.values()),  # each once
        "gflop": flop / 1e9,
        "tflop_per_second": flop / ms / 1e9,
        "gigabytes_per_second": moved / ms / 1e6,
        "floor_ms": 1e3 * max(flop / peaks[0], moved / peaks[1]) if peaks else None,
        "device_memory_gb": memory,
    }


def least_work(learner: speed.Learner) -> tuple[float, float]:
    """Operations and bytes that an average update needs at least, counted from its shapes.

    Bytes: every convolution and linear layer reads its input and weights and writes its output
    once; a backward pass reads and writes twice as much. Each number takes two bytes.
    """
    agent, moved = learner.agent, 0
    cycle = max(agent.options.actor_every, agent.auxiliary.every if agent.auxiliary else 1)

    def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal moved
        numbers = inputs[0].numel() + output.numel() + sum(p.numel() for p in module.parameters())
        moved += 2 * numbers * (3 if output.requires_grad else 1)

    handles = [
        module.register_forward_hook(count)
        for network in agent.networks.values()
        for module in network.modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    ]
    with FlopCounterMode(display=False) as counter:
        for decision in range(cycle):
            learner.step(decision)
    for handle in handles:
        handle.remove()
    return counter.get_total_flops() / cycle, moved / cycle


def part_times(learner: speed.Learner, device: torch.device, repeats: int) -> dict[str, float]:
    """Milliseconds of the parts of an update with a policy step, each timed by itself."""
    agent, batch = learner.agent, learner.sample()

    def views() -> tuple:
        now, successor = agent.views(batch.observations), agent.views(batch.next_observations)
        now.stack(agent.streams.prediction)
        successor.stack(agent.streams.target)
        return now, successor

    with learner.context():
        now, successor = views()
    trained = [agent.optimisers[name] for name in ("critic", "masker") if name in agent.optimisers]
    parameters = [p for optimiser in trained for p in optimiser.param_groups[0]["params"]]

    def forward() -> Tensor:
        return agent.critic_loss(batch, now, successor)[0]

    def optimise() -> None:
        for optimiser in trained:
            optimiser.step()
        agent.update_target()

    def timed(call: Callable[[], object]) -> float:
        """As the learner runs it: from a captured graph, if it captures."""

        def region() -> None:
            with learner.context():
                call()

        region()
        if learner.speed != "captured":
            return median_ms(region, device, repeats)
        graph = captured(region, (agent.generator, learner.replay.generator))
        return median_ms(graph.replay, device, repeats)

    calls: dict[str, Callable[[], object]] = {
        "sample": learner.sample,
        "augment": views,
        "forward": forward,
        "backward": lambda: torch.autograd.grad(forward(), parameters),
        "policy": lambda: agent.update_actor(now),
        "optimiser": optimise,
    }
    times = {name: timed(call) for name, call in calls.items()}
    times["backward"] -= times["forward"]
    return times
