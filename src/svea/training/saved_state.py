"""What a checkpoint's state.json must hold before a run continues from it.

`TrainingState` writes it. Its hash is right by now, but a hash does not say that it makes sense.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svea.config import Config
from svea.core import files
from svea.core.errors import LARGEST, StorageError, UserError
from svea.core.seeds import TRAINING, episode_seed
from svea.runs import checks, layout, tensors
from svea.runs.checkpoint import Checkpoint
from svea.speed.device import SPEEDS


def check(config: Config, saved: Checkpoint) -> None:
    """Refuse a state that no run of this configuration has.

    Raises:
        StorageError: Something is missing, or of another type or range.
    """
    try:
        _check_counters(config, saved.decision, saved.state)
        _check_random(saved.state["random"])
        updates = saved.state["updates"]
        _check_losses(saved.state["figures"], updates)
        _check_log(config.folder / layout.METRICS, saved.state["log_offset"])
        for index, episode in enumerate(
            checks.listing("episodes", saved.state["episodes"], config.envs)
        ):
            checks.mapping("an episode", episode, ("seed", "number", "actions", "total"))
            checks.integer("an episode's number", episode["number"], 0, saved.decision)
            seed = episode_seed(config.seed, TRAINING, index, episode["number"])
            checks.integer("an episode's seed", episode["seed"], seed, seed)
            checks.number("an episode's total", episode["total"])
        for name, tensor in saved.agent.items():
            if name.endswith(".step") and bool((tensor > updates).any()):
                raise ValueError(f"{name} is {float(tensor.max()):g} after {updates} updates")
        for name in ("generator", "replay.generator"):
            if name not in saved.agent:
                raise ValueError(f"{name} is missing in {layout.AGENT}")
    except tensors.DAMAGE as error:
        raise unusable(config.folder, saved, error) from error


def check_replay(config: Config, saved: Checkpoint) -> None:
    """Refuse to continue a run that was saved without its replay.

    Raises:
        UserError: It was.
    """
    if _has_no_replay(saved):
        raise UserError(
            f"the run in {config.folder} stands at decision {saved.decision:,} and was saved "
            "without its replay (--no-save-replay), so it cannot be continued. Its agent can be "
            "evaluated, watched and exported. To train it from the beginning, remove the folder "
            "and give the same command, or name another --out; leave --no-save-replay out to be "
            "able to continue it"
        )


def is_empty(saved: Checkpoint) -> bool:
    """Whether a run that was stopped before its first decision left nothing to continue from."""
    return saved.decision == 0 and _has_no_replay(saved)


def _has_no_replay(saved: Checkpoint) -> bool:
    return not saved.segments and saved.state.get("replay") is None


def check_episodes(episodes: list[dict[str, Any]], action_size: int) -> None:
    """Refuse open episodes whose actions the environments cannot take.

    Raises:
        ValueError: An action is not a list of that many finite numbers.
    """
    for episode in episodes:
        for action in checks.listing("an episode's actions", episode["actions"]):
            for value in checks.listing("an action", action, action_size):
                checks.number("an action", value, -LARGEST, LARGEST)


def unusable(folder: Path, saved: Checkpoint, error: BaseException) -> StorageError:
    """The one message about a checkpoint that is whole and still cannot be continued from."""
    reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    return StorageError(
        f"the checkpoint {saved.name} in {folder} does not fit this configuration and version: "
        f"{reason or type(error).__name__}. Restore the run from a copy, or start again with "
        "another --out"
    )


def _check_counters(config: Config, decision: int, state: dict[str, Any]) -> None:
    """Refuse counters that would make the loop wait, hurry or stop forever."""
    checks.text("speed", state["speed"], SPEEDS)
    due = decision - 1 if decision >= config.warmup else 0
    burst = config.warmup - 1  # what the warm-up left owing
    made = due - checks.integer("owed_updates", state["owed_updates"], 0, min(due, burst))
    checks.integer("updates", state["updates"], made, made)
    checks.integer("next_evaluation", state["next_evaluation"], 0, decision + LARGEST)
    for name in ("next_save", "next_log"):
        checks.integer(name, state[name], decision + 1, decision + LARGEST)
    checks.integer("log_offset", state["log_offset"], 0, layout.LOG_BYTES)
    checks.number("seconds", state["seconds"], 0, 1e12)


def _check_random(state: Any) -> None:
    """Refuse what is not the state of numpy's default generator."""
    checks.mapping("random", state, ("bit_generator", "state", "has_uint32", "uinteger"))
    checks.text("random's bit_generator", state["bit_generator"], ("PCG64",))
    checks.mapping("random's state", state["state"], ("state", "inc"))
    for name, value in state["state"].items():
        checks.integer(f"random's {name}", value, 0, 2**128 - 1)
    checks.integer("random's has_uint32", state["has_uint32"], 0, 1)
    checks.integer("random's uinteger", state["uinteger"], 0, 2**32 - 1)


def _check_log(path: Path, offset: int) -> None:
    """Refuse an offset in the middle of a line; a log that is shorter or gone will do."""
    if offset and path.exists():
        with files.open_plain(path, layout.LOG_BYTES) as log:
            log.seek(offset - 1)
            if log.read(1) not in (b"", b"\n"):
                raise ValueError(f"log_offset is {offset}, in the middle of a line of {path.name}")


def _check_losses(state: Any, updates: int) -> None:
    """Refuse open sums of losses without their counts."""
    checks.mapping("figures", state, ("sums", "counts"))
    sums = checks.mapping("sums", state["sums"])
    counts = checks.mapping("counts", state["counts"], sums)
    for name in sums:
        checks.number(f"the sum of {name}", sums[name], -3e38, 3e38)
        checks.integer(f"the count of {name}", counts[name], 1, updates)
