"""What fast versions may take the place of."""

from typing import Any

from svea.agents import Agent
from svea.augment import Augment, Augmentation, transform


def parts(augment: Augment) -> list[Augmentation]:
    found: list[Augmentation] = []
    transform(augment, lambda each: found.append(each) or each)  # type: ignore[func-returns-value]
    return found


def made_of(agent: Agent) -> list[Any]:
    """Everything of an agent that may be replaced."""
    maker = agent.view_maker
    functions = [part.function for each in (maker.weak, maker.strong) for part in parts(each)]
    forwards = [vars(network).get("forward") for network in agent.networks.values()]
    return [*functions, *forwards, maker.pixels, agent.overlap]
