"""Loading: the configuration and the agent of a run or an export; and making exports."""

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from svea.agents import BASES, Agent, make_agent, pictures_of
from svea.agents.auxiliary import PAD
from svea.augment import Augment, augmentation
from svea.config import Config, from_dict
from svea.config.names import own_modules, own_names
from svea.core import files
from svea.core import importing as modules
from svea.core.errors import StorageError, UserError
from svea.runs import checkpoint, layout, tensors, zoo
from svea.speed import EXACT, choose_device
from svea.speed.device import multiply_float32

# What config.json holds in addition to the configuration.
ABOUT = ("svea_version", "command", "function", "pictures", "made_with", "decision", "files")

# Which networks are in which file of an export. The targets are copies that only training needs.
EXPORTED = {
    layout.ACTOR: ("trunk", "actor", "masker"),
    layout.CRITIC: ("critic", "log_temperature", "auxiliary"),  # PAD's task adapts at test time
}


def load_config(run: str | Path, trust: bool = False, to_play: bool = True) -> Config:
    """The configuration of a run or an export; its augmentation may be unknown here.

    Its environment must be known, or trusted, only if it is `to_play`.
    """
    stored = {key: value for key, value in read_config(run).items() if key not in ABOUT}
    if trust:
        modules.trust(*own_modules(stored))
    not_now = {"augment": ""} if to_play else {"augment": "", "task": ""}
    modules.require_trust(own_modules(stored | not_now), run)
    return from_dict(stored, to_train=False)


def read_config(run: str | Path) -> dict[str, Any]:
    """config.json as it is: the configuration, and how it was made."""
    path = zoo.source(run) / layout.CONFIG
    try:
        stored = files.read_json(path, layout.CONFIG_BYTES)
        if not isinstance(stored, dict):
            raise ValueError("it is not a configuration")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{run} is not a run or an export: it has no config.json. Allowed: a folder made by "
            "`svea train` or `svea export`, or zoo:NAME (`svea zoo` lists them)"
        ) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}. Restore it from a copy") from error
    return stored


def load_agent(run: str | Path, device: str = "cpu", *, trust: bool = False) -> Agent:
    """The agent of a run (its newest checkpoint), of an export, or of the zoo.

    On a GPU, float32 is multiplied from then on as the run's `precision` says.

    Args:
        run: folder of a run or of an export, or `zoo:NAME` (`svea zoo` lists them).
        device: where it computes: auto, cuda, mps or cpu.
        trust: import the modules of an encoder, a method and an augmentation of your own that its
            config.json names; those that you have imported, or named in Python, need no trust.

    Example:
        >>> agent = load_agent("zoo:walker_walk-svea")
        >>> agent.act(torch.zeros(9, 84, 84, dtype=torch.uint8)).shape  # of one observation
        (6,)
    """
    run = zoo.source(run)
    config, stored = load_config(run, trust, to_play=False), read_config(run)
    exported = layout.is_export(run) or "files" in stored  # whose weights may have been lost
    if exported:
        state, decision = _exported_state(run, stored)
    elif newest := checkpoint.load(run, replay=False):
        state, decision = newest.agent, newest.decision
    else:
        first = min(config.save_every, config.decisions)
        raise UserError(
            f"{run} has no weights: a run has some after its first {first:,} decisions "
            "(--save-every), and the bare record of a run has none. `svea zoo` lists agents that "
            "have theirs; svea train makes new ones"
        )
    chosen = choose_device(device)  # before the weights: a bad device is not their fault
    multiply_float32(chosen, config.precision == EXACT)
    what = f"the weights in {run} do not fit its config.json"
    with tensors.whole(what, "Restore both from a copy"):
        actions = BASES[config.base].actions_in(state)
        _check_sizes(run, config, actions, state, exported)
        agent = make_agent(config, actions, chosen, _made_when_asked(run, config, chosen))
        if exported:
            state = _completed(agent, state, run)
        agent.load_state_dict(state)
    agent.decision = decision
    return agent


def _check_sizes(
    run: Path, config: Config, actions: int, state: dict[str, Tensor], exported: bool
) -> None:
    """Refuse weights of other names or shapes than config.json describes, before memory is taken.

    An encoder of a user's own is made once, with the agent: nothing is known of it before.
    """
    if modules.is_import_path(config.encoder):
        return
    with torch.device("meta"):
        described = make_agent(config, actions, "meta", lambda x, generator=None: x)
    described.check_state_dict(_completed(described, state, run) if exported else state)


def _made_when_asked(run: Path, config: Config, device: torch.device) -> Augment:
    """The strong augmentation, made at its first use: acting needs none, and it may not be here."""

    @functools.cache
    def made() -> Augment:
        try:
            modules.require_trust(own_names(config.augment), run)
            return augmentation(config.augment, pictures_of(config, device))
        except UserError as error:
            raise UserError(f"{run}: the strong augmentation cannot be made: {error}") from error

    return lambda x, generator=None: made()(x, generator)


class NotStored(nn.Module):
    """In place of the Q-functions of an agent that was stored without them."""

    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run = run

    def forward(self, *_: Any) -> Tensor:
        """Say what is missing."""
        raise UserError(
            f"{self.run} holds only the acting part of an agent (svea export --small): it has no "
            "Q-values. Use it with svea eval, watch, play or analyze saliency (without --guided), "
            "or take a run or a whole export"
        )


def has_critic(agent: Agent) -> bool:
    """Whether an agent can be asked for Q-values."""
    return not isinstance(agent.critic, NotStored)


def _completed(agent: Agent, state: dict[str, Tensor], run: Path) -> dict[str, Tensor]:
    """The state of an export with targets; what it does not hold is taken from the agent."""
    stored = {name.split(".")[0] for name in state}
    if "critic" not in stored:
        absent: Any = NotStored(run)
        agent.critic = agent.target_critic = absent
    if "auxiliary" not in stored:
        agent.auxiliary = None
    targets = {f"target_{name}": tensor for name, tensor in state.items()}
    return state | {k: v for k, v in targets.items() if k.split(".")[0] in agent.networks}


def export(
    run: str | Path, folder: str | Path, *, small: bool = False, critic: bool = False
) -> Path:
    """Write actor.safetensors, critic.safetensors and config.json: enough to act and evaluate.

    An export is whole or absent. What a killed one left is replaced. A small one is the acting part
    alone, most of it in 8 bits: a tenth of the size, and Q-functions only with `critic`.
    """
    target = Path(folder).resolve()
    if target == Path.cwd() or layout.is_taken(target):
        raise UserError(f"{folder} is not an empty folder; name a new one")
    agent = load_agent(run)
    if not has_critic(agent) and (critic or not small):
        raise UserError(
            f"{run} holds no critic to export; --small without --critic exports the acting part"
        )
    write_export(target, agent, read_config(run), small, critic)
    return Path(folder)


def write_export(
    target: Path, agent: Agent, config: dict[str, Any], small: bool = False, critic: bool = False
) -> None:
    """Write the files of an export, as `export`."""
    state, stored = agent.state_dict(), config | {"decision": agent.decision}
    with files.replacing(target) as unfinished:
        files.make_folder(unfinished)
        stored["files"] = {}
        for file, networks in (_small(agent, critic) if small else EXPORTED).items():
            part = {k: v for k, v in state.items() if k.split(".")[0] in networks}
            part = tensors.shrink(part) if small else part
            stored["files"][file] = files.write(unfinished / file, tensors.blocks(part))
        files.write(unfinished / layout.CONFIG, [files.to_json(stored)])


def _small(agent: Agent, critic: bool) -> dict[str, tuple[str, ...]]:
    """What it takes to act: DQN reads its policy off the Q-function, PAD adapts as it acts."""
    policy = "critic" if agent.discrete else "actor"
    adapts = ("auxiliary",) if isinstance(agent.auxiliary, PAD) else ()
    asked = {layout.CRITIC: ("critic",)} if critic and not agent.discrete else {}
    return {layout.ACTOR: ("trunk", policy, "masker", "log_temperature", *adapts)} | asked


def _exported_state(folder: Path, config: dict[str, Any]) -> tuple[dict[str, Tensor], int]:
    """The networks of an export, and for how many decisions they were trained."""
    state: dict[str, Tensor] = {}
    cure = "Restore it from a copy, or export the run again"
    with tensors.whole(f"{folder} cannot be read", cure):
        for name, wanted in layout.exported_files(config).items():
            files.verify(folder / name, wanted, layout.WEIGHTS_BYTES)
            state |= tensors.restore(tensors.read(folder / name, layout.WEIGHTS_BYTES))
        return state, layout.check(config.get("decision", 0), int, "decision")
