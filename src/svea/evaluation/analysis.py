"""The paper's analyses of an agent: noise of Q-targets, Q-values under augmentation.

docs/evaluation.md defines every quantity. Each analysis of a run is kept as RUN/analysis/NAME.json,
where `svea report` finds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from svea.agents import make_replay
from svea.agents.diagnostics import q_gap_of, q_targets
from svea.augment import AUGMENTATIONS, augmentation
from svea.augment.images import ImageBank
from svea.config.names import split_number
from svea.core import files, machine
from svea.core.errors import StorageError, UserError, between, unknown_name
from svea.core.importing import is_import_path
from svea.evaluation.film import record
from svea.replay import Batch, Replay
from svea.runs import checkpoint, layout, tensors
from svea.runs.load import has_critic, load_agent, load_config

if TYPE_CHECKING:
    from svea.agents.agent import Agent
    from svea.config import Config

GAP_AUGMENTATIONS = ("affine_jitter", "rotation", "conv", "overlay", "blur", "cutout", "shift")
"""Those that leave the size of an observation as it is: the six of the paper, and shift."""


def open_replay(run: Path, seed: int = 0) -> Replay:
    """A run's replay buffer as its newest checkpoint left it, in main memory.

    Args:
        run: folder of a run; an export has no replay.
        seed: of the batches to be sampled.
    """
    config = load_config(run)
    saved = None if layout.is_export(run) else checkpoint.load(run)
    if saved is None or not saved.segments:
        raise UserError(
            f"{run} has no replay buffer to take transitions from. Allowed: the folder of a run "
            "with a checkpoint (an export holds the agent alone, and so does --no-save-replay)"
        )
    stored = sum(segment["size"] for segment in saved.segments)
    free, what = machine.available_bytes(), f"the replay buffer of {run}"
    machine.require(stored, free, what, "Use a machine with more memory")
    first = checkpoint.segment_path(run, saved.segments[0])
    try:
        actions = tensors.shapes(first, layout.SEGMENT_BYTES)["actions"][1]
    except tensors.DAMAGE as error:
        raise StorageError(
            f"{first} cannot be read: {error}. Restore the run from a copy"
        ) from error
    replay = make_replay(config, actions, seed=seed)
    checkpoint.restore_replay(run, saved, replay)
    return replay


def _played(agent: Agent, config: Config, transitions: int, seed: int) -> Batch:
    """Moments of an episode in train; without rewards, which a gap does not need."""
    recording = record(agent, config, "train", seed=seed, size=None)
    last = len(recording.actions) - 1
    chosen = np.unique(np.linspace(0, last, transitions).round().astype(int))
    observations, actions = (
        torch.as_tensor(np.stack(values)[chosen])
        for values in (recording.observations, recording.actions)
    )
    none = torch.zeros(len(chosen))
    return Batch(observations, actions, none, none, observations)


@dataclass(frozen=True)
class Sample:
    """An agent, and transitions of its own run."""

    run: Path
    config: Config
    agent: Agent
    batch: Batch
    draws: int
    seed: int

    @classmethod
    def of(
        cls, run: Path, transitions: int, draws: int, seed: int, device: str, gap: bool = False
    ) -> Sample:
        """Load the agent of a run and draw transitions from its replay.

        For `q_gap` (`gap`), an export that has its critic plays an episode instead.
        """
        between(1, 65_536).check("transitions", transitions)
        between(2, 65_536).check("draws", draws)
        agent = load_agent(run, device=device)
        config = load_config(run)
        if gap and layout.is_export(run) and has_critic(agent):
            batch = _played(agent, config, transitions, seed)
        else:
            batch = open_replay(run, seed).sample(transitions)
        return cls(run, config, agent, batch.to(agent.device), draws, seed)

    def generator(self) -> torch.Generator:
        """A fresh generator of the sample's seed: each quantity sees the same draws."""
        return torch.Generator(self.agent.device).manual_seed(self.seed)

    def keep(self, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Write the rows of an analysis of this sample; returns them."""
        about = {
            "decision": self.agent.decision,
            "transitions": len(self.batch.rewards),
            "draws": self.draws,
            "seed": self.seed,
        }
        write_analysis(self.run, name, about, rows)
        return rows


def write_analysis(run: Path, name: str, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write the rows of an analysis, with what they are about, to RUN/analysis/NAME.json."""
    files.write_whole(layout.analysis_file(run, name), files.to_json(about | {"rows": rows}))


def q_variance(sample: Sample) -> list[dict[str, Any]]:
    """Fig. 1, top: one row for what feeds the target, one for the strong view if there is one."""
    agent, batch = sample.agent, sample.batch
    names = dict.fromkeys(view for view, _ in agent.streams.target)
    columns: list[tuple[str, str, tuple[tuple[str, int], ...] | None]] = [
        ("target", " and ".join(names), None)
    ]
    if sample.config.augment != "none":
        columns.append(("strong", sample.config.augment, (("strong", 0),)))
    rows = []
    for column, seen, views in columns:
        targets = q_targets(agent, batch, sample.draws, sample.generator(), views)
        variance = float(targets.var(0).mean())
        level = float(targets.abs().mean())
        rows.append(
            {
                "view": column,
                "sees": seen,
                "variance": variance,
                "relative_std": math.sqrt(variance) / level if level else None,
            }
        )
    return sample.keep("q-variance", rows)


def q_gap(sample: Sample, names: Iterable[str]) -> list[dict[str, Any]]:
    """Fig. 1, bottom: one row per augmentation."""
    config = sample.config
    chosen = choose_augmentations(names)

    def bank() -> ImageBank:
        return ImageBank.find(
            config.overlay_dir or None, config.data_dir or None, sample.agent.device
        )

    agent, batch = sample.agent, sample.batch
    level = float(agent.q_value(batch.observations, batch.actions).abs().mean())
    rows: list[dict[str, Any]] = []
    for name in chosen:
        augment = augmentation(name, bank)
        try:  # a fresh generator, so that no draw depends on what else is in the list
            gap = q_gap_of(agent, batch, augment, sample.draws, sample.generator())
        except UserError as error:  # e.g. boxes that are larger than the picture
            rows.append({"augment": name, "gap": None, "relative": None, "why": str(error)})
            continue
        rows.append({"augment": name, "gap": gap, "relative": gap / level if level else None})
    return sample.keep("q-gap", rows)


def choose_augmentations(names: Iterable[str]) -> list[str]:
    """Spell out `all`, and refuse what cannot be compared with the plain observation."""
    chosen = list(dict.fromkeys(n for name in names for n in
                                (GAP_AUGMENTATIONS if name == "all" else [name])))  # fmt: skip
    if not chosen:
        raise UserError("no augmentation; name some, or all")
    for name in chosen:
        if name == "crop":
            raise UserError("crop changes the size of an observation; leave it out")
        for part in name.replace("|", "+").split("+"):
            if split_number(part)[0] not in AUGMENTATIONS and not is_import_path(part):
                raise unknown_name("augmentation", part, (*GAP_AUGMENTATIONS, "all"))
    return chosen
