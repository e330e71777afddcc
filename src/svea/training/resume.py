"""A run folder before and while a run is continued: is it this run's, is it finished, where was it?

`state_of` is what a checkpoint holds besides tensors, and `take_over` continues from it, bit for
bit on a CPU.
"""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from svea import __version__
from svea.agents.learning import restore_generator
from svea.config import Config, differences, to_dict
from svea.config.modes import is_foreign
from svea.core import files, given
from svea.core.errors import StorageError, SveaError, UserError
from svea.envs.rendering.backend import (
    AUTO,
    DRAWING,
    OPENGL,
    RASTER,
    asked_renderer,
    choose_renderer,
)
from svea.envs.workers.pool import OpenEpisode
from svea.replay.segments import counters
from svea.runs import checkpoint, layout, schema, tensors
from svea.runs.load import ABOUT, read_config
from svea.runs.records import differing

if TYPE_CHECKING:
    from svea.training.trainer import Trainer


def open_folder(config: Config, stack: ExitStack) -> checkpoint.Checkpoint | None:
    """Make and lock the run folder, and write config.json.

    Args:
        config: of the run.
        stack: the folder stays locked until it is closed.

    Returns:
        The newest checkpoint of a run that is to be continued, None for a new run.

    Raises:
        UserError: The folder holds something else, or a run with another configuration.
    """
    folder, settings = files.output_folder(config.folder), to_dict(config)
    is_run = (folder / layout.CONFIG).exists()
    unfinished = f".{layout.CONFIG}.*{files.PARTIAL}"  # of a run that was killed as it began
    others = (path for path in folder.glob("*") if not path.match(unfinished))
    if not is_run and folder.exists() and any(others):
        raise UserError(f"{folder} is not empty and not a run; name another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the run folder {folder}: {error}; name another --out"
        ) from error
    busy = f"another process is training in {folder}; wait for it to end, or name another --out"
    stack.enter_context(files.locked(folder, UserError(busy)))
    files.sweep(folder, layout.CONFIG)
    saved = checkpoint.load(folder)
    if saved and _is_empty(saved):
        saved = None
    if saved:  # without a checkpoint there is nothing yet that other options could contradict
        _check_same_run(config, settings, saved)
        _check_state(config, saved)
        if not is_finished(config, saved):
            _check_replay(config, saved)
    about: dict[str, Any] = {"svea_version": __version__, "command": command_line()}
    if function := given.fingerprint(config.task):
        about["function"] = {"name": config.task, "sha256": function}
    stored = read_config(folder) if saved else {}
    about |= {name: stored[name] for name in ("pictures", "made_with") if name in stored}
    files.replace_json(folder / layout.CONFIG, settings | about)

    def remove_if_refused(kind: type[BaseException] | None, *_: object) -> None:
        """Leave no folder that looks like a run where a user's mistake kept one from beginning."""
        alone = [path.name for path in folder.iterdir()] == [layout.CONFIG]
        if kind and issubclass(kind, UserError) and alone:
            (folder / layout.CONFIG).unlink()
            folder.rmdir()

    stack.push(remove_if_refused)
    return saved


def _check_same_run(config: Config, settings: dict[str, Any], saved: checkpoint.Checkpoint) -> None:
    """Refuse a run of another configuration, or one that is further than asked."""
    stored = {k: v for k, v in read_config(config.folder).items() if k not in ABOUT}
    if differ := differences(stored, settings):
        raise UserError(
            f"{config.folder} holds a run with another configuration:\n  "
            + "\n  ".join(differ)
            + "\nGive the same options to continue it, or another --out"
        )
    before = read_config(config.folder).get("function")
    if isinstance(before, dict) and before.get("sha256") != given.fingerprint(config.task):
        raise UserError(
            f"{config.folder} holds a run of another {config.task}: the source of that function, "
            "or of what it uses, has changed. Give another out, or the function as it was"
        )
    if saved.decision > config.decisions:
        raise UserError(
            f"decisions is {config.decisions:,}, but the run in {config.folder} is already "
            f"at {saved.decision:,}; give at least that many, or another --out"
        )


def settle_renderer(config: Config) -> Config:
    """The configuration with who draws: decided once for a run, and kept when it is continued.

    Raises:
        UserError: The run was begun with another renderer than is asked for now.
    """
    if is_foreign(config.task):
        return config
    asked = asked_renderer(config.renderer)
    begun = bool(layout.checkpoints(config.folder))
    before = read_config(config.folder).get("renderer", AUTO) if begun else AUTO
    is_known = before in (RASTER, OPENGL)
    if is_known and asked not in (AUTO, before):
        raise UserError(
            f"the run in {config.folder} has its pictures drawn by {before!r}, but {asked!r} is "
            f"asked for (--renderer, {DRAWING}). Ask for {before!r} or 'auto' to continue it, or "
            "give another --out"
        )
    settled: Any = before if is_known else choose_renderer(asked)
    return replace(config, renderer=settled)


def record_renderer(
    config: Config, provenance: dict[str, Any], saved: checkpoint.Checkpoint | None
) -> str:
    """Write down what draws and simulates for a run; return a warning, empty if all is well.

    Args:
        config: of the run.
        provenance: of its environments.
        saved: the checkpoint that it continues from.
    """
    names = ("renderer", "episodes", "mujoco", "dm_control")
    now = {name: provenance[name] for name in names if name in provenance}
    stored = read_config(config.folder)
    before, warning = stored.get("made_with"), ""
    if saved and isinstance(before, dict):
        if not (changed := differing(before, now)):
            return ""
        said = "; ".join(f"{name} {old}, now {new}" for name, (old, new) in changed.items())
        warning = f"warning: other pictures or physics than so far: {said}"
    elif saved:
        warning = f"warning: who drew this run so far is not recorded; now {now.get('renderer')}"
    if saved:
        now |= {"since": saved.decision, "before": before}
    files.replace_json(config.folder / layout.CONFIG, stored | {"made_with": now})
    return warning


def record_pictures(config: Config, pictures: dict[str, Any] | None) -> None:
    """Write down which pictures a run is trained with.

    Args:
        config: of the run.
        pictures: what its augmentation mixes in (`ImageBank.record`), None if nothing.

    Raises:
        UserError: The run was trained with other pictures so far.
    """
    if pictures is None:
        return
    stored = read_config(config.folder)
    before = stored.get("pictures")
    if isinstance(before, dict) and before.get("sha256") != pictures["sha256"]:
        cure = "Name the same with --overlay-dir, --data-dir or SVEA_DATA to continue it"
        if before.get("side") != pictures["side"]:
            cure = f"This version holds pictures at {pictures['side']} px: continue the run with "
            cure += "the version that started it"
        raise UserError(
            f"the run in {config.folder} was trained with {_in_words(before)}, but overlay has "
            f"{_in_words(pictures)} now. {cure}, or give another --out"
        )
    if not before:
        files.replace_json(config.folder / layout.CONFIG, stored | {"pictures": pictures})


def _in_words(pictures: dict[str, Any]) -> str:
    """Pictures as an error names them."""
    short = str(pictures.get("sha256"))[:8]
    count, source, side = (pictures.get(name) for name in ("count", "source", "side"))
    return f"{count} pictures of {source} at {side} px (sha256 {short}…)"


def is_finished(config: Config, saved: checkpoint.Checkpoint | None) -> bool:
    """Whether nothing is left to do: the last decision is made, and evaluated."""
    return (
        saved is not None
        and saved.decision >= config.decisions
        and saved.state["next_evaluation"] > saved.decision
    )


def command_line() -> str:
    """The command that started this process, as one would type it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


# Where a run was ----------------------------------------------------------------------------------


def state_of(run: Trainer) -> dict[str, Any]:
    """Everything that draws or counts, except tensors."""
    return {
        "speed": run.speed,
        "updates": run.updates,
        "owed_updates": run.owed_updates,
        "next_evaluation": run.next_evaluation,
        "next_save": run.next_save,
        "next_log": run.next_log,
        "log_offset": run.log.offset,
        "seconds": run.seconds,
        "random": run.random.bit_generator.state,
        "figures": run.losses.state(),
        "episodes": [vars(episode) for episode in run.environments.episodes],
        "replay": counters(run.replay) if run.config.save_replay else None,
    }


def _check_state(config: Config, saved: checkpoint.Checkpoint) -> None:
    """Refuse a state that another version wrote, or another number of environments.

    Raises:
        StorageError: Something is missing, or of another type.
    """
    try:
        schema.check(saved.state, schema.STATE, layout.STATE)
        if len(saved.state["episodes"]) != config.envs:
            raise ValueError(f"it has {len(saved.state['episodes'])} episodes")
        _check_log(config.folder / layout.METRICS, saved.state["log_offset"])
    except tensors.DAMAGE as error:
        raise _unusable(config.folder, saved, error) from error


def _check_replay(config: Config, saved: checkpoint.Checkpoint) -> None:
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


def _is_empty(saved: checkpoint.Checkpoint) -> bool:
    """Whether a run that was stopped before its first decision left nothing to continue from."""
    return saved.decision == 0 and _has_no_replay(saved)


def _has_no_replay(saved: checkpoint.Checkpoint) -> bool:
    return not saved.segments and saved.state.get("replay") is None


def _check_log(path: Path, offset: int) -> None:
    """Refuse an offset in the middle of a line; a log that is shorter or gone will do."""
    if offset and path.exists():
        with files.open_plain(path, layout.LOG_BYTES) as log:
            log.seek(offset - 1)
            if log.read(1) not in (b"", b"\n"):
                raise ValueError(f"log_offset is {offset}, in the middle of a line of {path.name}")


def _unusable(folder: Path, saved: checkpoint.Checkpoint, error: BaseException) -> StorageError:
    """The one message about a checkpoint that is whole and still cannot be continued from."""
    reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
    return StorageError(
        f"the checkpoint {saved.name} in {folder} does not fit this configuration and version: "
        f"{reason or type(error).__name__}. Restore the run from a copy, or start again with "
        "another --out"
    )


def take_over(run: Trainer, saved: checkpoint.Checkpoint) -> None:
    """Continue a run; a checkpoint that is whole may still be of another version."""
    try:
        _take_over(run, saved)
    except SveaError:
        raise
    except tensors.DAMAGE as error:
        raise _unusable(run.folder, saved, error) from error


def _take_over(run: Trainer, saved: checkpoint.Checkpoint) -> None:
    """Take over a checkpoint, and play every open episode up to where it was."""
    state = saved.state
    run.decision, run.updates = saved.decision, state["updates"]
    run.owed_updates = state["owed_updates"]
    run.next_evaluation = state["next_evaluation"]
    # The run's end may have moved, or evaluations may have been switched off.
    if run.next_evaluation > run.decision or not run.config.eval_every:
        run.plan_evaluation()
    every = run.config.save_every, run.config.log_every  # they may have changed
    soonest = [(run.decision // interval + 1) * interval for interval in every]
    run.next_save = min(state["next_save"], soonest[0])
    run.next_log = min(state["next_log"], soonest[1])
    run.log_offset, run.segments = state["log_offset"], saved.segments
    run.seconds_before = state["seconds"]
    run.random.bit_generator.state = state["random"]
    run.losses.load_state(state["figures"], run.device)
    run.agent.load_state_dict(saved.agent)
    checkpoint.restore_replay(run.folder, saved, run.replay)
    checkpoint.remove_newer(run.folder, saved)
    ours = (run.agent.generator, run.replay.generator)
    theirs = (saved.agent["generator"], saved.agent["replay.generator"])
    if not all(restore_generator(*pair) for pair in zip(ours, theirs, strict=True)):
        run.display.say("warning: the run comes from another device; from here on draws differ")
    if state["speed"] != run.speed:
        run.display.say(
            f"warning: updates ran {state['speed']} before and run {run.speed} now (--speed); "
            "from here on the run differs from an uninterrupted one by rounding"
        )
    for index, episode in enumerate(state["episodes"]):
        run.environments.restore(index, OpenEpisode(**episode))
        newest = run.replay.newest_frame(index).numpy()
        if not np.array_equal(run.environments.observations[index, -3:], newest):
            run.display.say(
                f"warning: environment {index} does not repeat its episode exactly, so this "
                "run is not bit for bit an uninterrupted one (GPU renderers differ by a level)"
            )
    run.display.say(f"resumed at decision {run.decision:,}")
