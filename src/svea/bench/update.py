"""How long an update and its parts take, next to the least time they could take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from svea import speed
from svea.agents import Agent, make_agent
from svea.bench.timing import ACTIONS, median_ms, noise_replay
from svea.config import Config, configure
from svea.config.names import find_method
from svea.core.errors import UserError
from svea.methods import METHODS

PEAKS = {"NVIDIA H200": (989e12, 4.8e12), "NVIDIA H100": (989e12, 3.35e12)}
"""Dense bfloat16 operations and bytes per second, from the data sheets."""


@dataclass(frozen=True)
class UpdateRow:
    """One method's update. Times are medians in milliseconds."""

    method: str
    base: str
    encoder: str
    speed: str
    precision: str
    batch: int
    ms: float
    parts: dict[str, float]
    parameters: int
    gflop: float
    tflop_per_second: float
    gigabytes: float
    gigabytes_per_second: float
    floor_ms: float | None
    device_memory_gb: float | None


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
    on_row: Callable[[UpdateRow], object] = lambda row: None,
) -> list[UpdateRow]:
    """Time one update of each method, sampling included, on frames of noise.

    `on_row` is called after each method: on a GPU each compiles first, and all take minutes.
    """
    if repeats < 1:
        raise UserError(f"repeats is {repeats}; allowed: 1 or more")
    configs = []
    for method in methods:
        settings = {"base": base, "encoder": encoder, "preset": preset, "method": method}
        if batch is not None:
            settings["batch_size"] = batch  # type: ignore[assignment]
        if base == "dqn":
            settings["action_bins"] = 3  # type: ignore[assignment]
        if base == "ddpg" and find_method(method).auxiliary == "pad":
            settings["ddpg.n_step"] = 1  # type: ignore[assignment]
        configs.append(configure("walker_walk", overlay_dir="procedural", **settings))
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
) -> UpdateRow:
    """Time one configuration."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    dtype = speed.choose_precision(precision, device)
    agent = make_agent(config, ACTIONS, device)
    replay = noise_replay(config, device)
    exact = precision == speed.EXACT
    learner = speed.Learner(
        agent, replay, config.batch_size, precision=dtype, exact=exact, speed=how
    )
    cycle = 2 * max(1, agent.options.actor_every)
    for decision in range(cycle * (speed.WARM_UP + 1)):
        learner.step(decision)
    ms = median_ms(lambda: [learner.step(d) for d in range(cycle)], device, repeats) / cycle
    memory = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    fresh = make_agent(config, ACTIONS, device)
    work = Work(speed.Learner(fresh, replay, config.batch_size, precision=dtype, exact=exact))
    split = PartTimes(learner, device, repeats).all() if parts else {}
    peaks = PEAKS.get(torch.cuda.get_device_name()) if device.type == "cuda" else None
    floor = 1e3 * max(work.flop / peaks[0], work.bytes / peaks[1]) if peaks else None
    return UpdateRow(
        config.method, config.base, config.encoder, how,
        speed.EXACT if exact else str(dtype).removeprefix("torch."),
        config.batch_size, ms, split, parameter_count(agent), work.flop / 1e9,
        work.flop / ms / 1e9, work.bytes / 1e9, work.bytes / ms / 1e6, floor, memory,
    )  # fmt: skip


def parameter_count(agent: Agent) -> int:
    """Numbers that are trained: every parameter that an optimiser holds, once."""
    held = [p for o in agent.optimisers.values() for p in o.param_groups[0]["params"]]
    return sum({id(p): p.numel() for p in held}.values())


class Work:
    """Operations and bytes that an average update needs at least, counted from its shapes.

    Bytes: every convolution and linear layer reads its input and weights and writes its output
    once; a backward pass reads and writes twice as much. Each number takes two bytes.
    """

    def __init__(self, learner: speed.Learner) -> None:
        agent = learner.agent
        cycle = max(agent.options.actor_every, agent.auxiliary.every if agent.auxiliary else 1)
        self._bytes = 0
        handles = [
            module.register_forward_hook(self._count)
            for network in agent.networks.values()
            for module in network.modules()
            if isinstance(module, nn.Conv2d | nn.Linear)
        ]
        with FlopCounterMode(display=False) as counter:
            for decision in range(cycle):
                learner.step(decision)
        for handle in handles:
            handle.remove()
        self.flop = counter.get_total_flops() / cycle
        self.bytes = self._bytes / cycle

    def _count(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        moved = inputs[0].numel() + output.numel() + sum(p.numel() for p in module.parameters())
        self._bytes += 2 * moved * (3 if output.requires_grad else 1)


class PartTimes:
    """The parts of an update with a policy step, each timed alone, as the learner runs it."""

    def __init__(self, learner: speed.Learner, device: torch.device, repeats: int) -> None:
        self.learner, self.device, self.repeats = learner, device, repeats
        self.agent = learner.agent

    def all(self) -> dict[str, float]:
        """Milliseconds by part."""
        learner, agent = self.learner, self.agent
        batch = learner.sample()

        def views() -> tuple:
            now, successor = agent.views(batch.observations), agent.views(batch.next_observations)
            now.stack(agent.streams.prediction)
            successor.stack(agent.streams.target)
            return now, successor

        with learner.context():
            now, successor = views()

        def forward() -> Tensor:
            return agent.critic_loss(batch, now, successor)[0]

        trained = [
            agent.optimisers[name] for name in ("critic", "masker") if name in agent.optimisers
        ]
        parameters = [p for optimiser in trained for p in optimiser.param_groups[0]["params"]]

        def forward_backward() -> object:
            return torch.autograd.grad(forward(), parameters)

        def optimise() -> None:
            for optimiser in trained:
                optimiser.step()
            agent.update_target()

        calls: dict[str, Callable[[], object]] = {
            "sample": learner.sample,
            "augment": views,
            "forward": forward,
            "backward": forward_backward,
            "policy": lambda: agent.update_actor(now),
            "optimiser": optimise,
        }
        times = {name: self._time(call) for name, call in calls.items()}
        times["backward"] -= times["forward"]
        return times

    def _time(self, call: Callable[[], object]) -> float:
        """Time a call; from a captured graph, if the learner captures."""

        def region() -> None:
            with self.learner.context():
                call()

        region()
        if self.learner.speed != "captured":
            return median_ms(region, self.device, self.repeats)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            region()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        for generator in (self.agent.generator, self.learner.replay.generator):
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph):
            region()
        return median_ms(graph.replay, self.device, self.repeats)
