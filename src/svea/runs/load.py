"""Loading: the configuration and the agent of a run or an export; and making exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from svea import files
from svea.agents import BASES, Agent, make_agent
from svea.config import Config, from_dict
from svea.errors import StorageError, UserError
from svea.runs import checkpoint, layout, tensors
from svea.speed import choose_device

# What config.json holds in addition to the configuration.
ABOUT = ("svea_version", "command", "pictures", "decision", "files")

# Which networks are in which file of an export. The targets are copies that only training needs.
EXPORTED = {
    layout.ACTOR: ("trunk", "actor"),
    layout.CRITIC: ("critic", "log_temperature", "auxiliary"),  # PAD's task adapts at test time
}


def load_config(run: Path) -> Config:
    """The configuration of a run or an export."""
    stored = read_config(run)
    return from_dict({key: value for key, value in stored.items() if key not in ABOUT})


def read_config(run: Path) -> dict[str, Any]:
    """config.json as it is: the configuration, and how it was made."""
    path = Path(run) / layout.CONFIG
    try:
        stored = files.read_json(path, layout.CONFIG_BYTES)
        if not isinstance(stored, dict):
            raise ValueError("it is not a configuration")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{run} is not a run or an export: it has no config.json. Allowed: a folder made by "
            "`svea train` or `svea export`"
        ) from None
    except (OSError, ValueError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    return stored


def load_agent(run: str | Path, device: str = "cpu") -> Agent:
    """The agent of a run (its newest checkpoint) or of an export.

    Example:
        >>> agent = load_agent("runs/demo")  # doctest: +SKIP
        >>> action = agent.act(observation)  # doctest: +SKIP
    """
    run = Path(run)
    config = load_config(run)
    if layout.is_export(run):
        state, decision = _exported_state(run), int(read_config(run).get("decision", 0))
    else:
        newest = checkpoint.load(run, replay=False)
        if newest is None:
            raise UserError(
                f"{run} has no checkpoint yet; the first one comes after {config.save_every:,} "
                "decisions (--save-every)"
            )
        state, decision = newest.agent, newest.decision
    try:
        actions = BASES[config.base].actions_in(state)
        agent = make_agent(config, actions, choose_device(device))
        agent.load_state_dict(state)
    except tensors.DAMAGE as error:
        raise StorageError(f"the weights in {run} do not fit its config.json: {error}") from error
    agent.decision = decision
    return agent


def export(run: str | Path, folder: str | Path) -> Path:
    """Write actor.safetensors, critic.safetensors and config.json: enough to act and evaluate.

    An export is whole or absent. What a killed one left is replaced.
    """
    run, folder = Path(run), Path(folder)
    target = folder.resolve()
    if target == Path.cwd() or (target.exists() and not _is_unfinished(target)):
        raise UserError(f"{folder} is not an empty folder; name a new one")
    write_export(target, load_agent(run), read_config(run))
    return folder


def write_export(target: Path, agent: Agent, config: dict[str, Any]) -> None:
    """Write the files of an export to a folder of another name, and rename it.

    Args:
        target: the export's folder; one that is there is replaced.
        agent: whose networks.
        config: config.json of its run.
    """
    state, stored = agent.state_dict(), config | {"decision": agent.decision}
    unfinished = files.partial(target)
    with files.writing(target):
        files.make_folder(target.parent)
        files.sweep_one(target)
        files.make_folder(unfinished)
        stored["files"] = {}
        for file, networks in EXPORTED.items():
            part = {k: v for k, v in state.items() if k.split(".")[0] in networks}
            stored["files"][file] = files.write(unfinished / file, tensors.blocks(part))
        files.write(unfinished / layout.CONFIG, [files.to_json(stored)])
        files.sync_folder(unfinished)
        if target.exists():
            files.remove(target)
        files.rename(unfinished, target)


def _is_unfinished(folder: Path) -> bool:
    """Whether a folder is empty, or has the weights of an export that was killed, and no more."""
    ours = (*EXPORTED, f"*{files.PARTIAL}")
    return folder.is_dir() and all(
        any(path.match(name) for name in ours) for path in folder.iterdir()
    )


def _exported_state(folder: Path) -> dict[str, Tensor]:
    """The networks of an export, its targets set equal to the trained networks."""
    try:
        for file, wanted in read_config(folder)["files"].items():
            tensors.verify(folder / Path(file).name, wanted, layout.WEIGHTS_BYTES)
        state = tensors.read(folder / layout.ACTOR, layout.WEIGHTS_BYTES)
        state |= tensors.read(folder / layout.CRITIC, layout.WEIGHTS_BYTES)
    except tensors.DAMAGE as error:
        raise StorageError(f"{folder} cannot be read: {error}") from error
    targets = {f"target_{k}": v for k, v in state.items() if k.startswith(("trunk.", "critic."))}
    return state | targets
