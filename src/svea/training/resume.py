"""A run folder before and while a run is continued: is it this run's, is it finished, where was it?

`state_of` is what a checkpoint holds besides tensors, and `take_over` continues from it, bit for
bit on a CPU.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from svea import __version__
from svea.agents.learning import restore_generator
from svea.config import Config, differences, to_dict
from svea.config.modes import is_foreign
from svea.core import files, given
from svea.core.errors import SveaError, UserError
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
from svea.runs import checkpoint, layout, tensors
from svea.runs.load import ABOUT, PARTS, parts_in, read_config
from svea.runs.records import differing

if TYPE_CHECKING:
    from svea.agents import Agent
    from svea.training.trainer import Trainer


def open_folder(
    config: Config, stack: ExitStack, command: Sequence[str] = ()
) -> checkpoint.Checkpoint | None:
    """Make the run folder, lock it until the stack is closed, and write config.json.

    Returns the newest checkpoint of a run that is to be continued, None for a new run. A folder
    that holds something else, or a run with another configuration, is refused.
    """
    folder = files.output_folder(config.folder)
    unfinished = f".{layout.CONFIG}.*{files.PARTIAL}"  # of a run that was killed as it began
    others = [path for path in folder.glob("*") if not path.match(unfinished)]
    if others and not (folder / layout.CONFIG).exists():
        raise UserError(f"{folder} is not empty and not a run; name another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the run folder {folder}: {error}; name another --out"
        ) from error
    busy = f"another process is training in {folder}; wait for it to end, or name another --out"
    stack.enter_context(files.locked(folder, UserError(busy)))
    saved = checkpoint.load(folder)
    if saved and saved.decision == 0 and _has_no_replay(saved):
        saved = None  # stopped before its first decision: there is nothing to continue from
    stored = read_config(folder) if saved else {}
    if saved:  # without a checkpoint there is nothing yet that other options could contradict
        _check_same_run(config, stored, saved)
    program, *words = command or sys.argv
    typed = shlex.join([Path(program).name, *words])
    about: dict[str, Any] = {"svea_version": __version__, "command": typed}
    if function := given.fingerprint(config.task):
        about["function"] = {"name": config.task, "sha256": function}
    kept = ("pictures", "made_with", PARTS)
    about |= {name: stored[name] for name in kept if name in stored}
    files.replace_json(folder / layout.CONFIG, to_dict(config) | about)

    def remove_if_refused(kind: type[BaseException] | None, *_: object) -> None:
        """Leave no folder that looks like a run where a user's mistake kept one from beginning."""
        alone = [path.name for path in folder.iterdir()] == [layout.CONFIG]
        if kind and issubclass(kind, UserError) and alone:
            (folder / layout.CONFIG).unlink()
            folder.rmdir()

    stack.push(remove_if_refused)
    return saved


def _check_same_run(config: Config, stored: dict[str, Any], saved: checkpoint.Checkpoint) -> None:
    """Refuse to continue a run of another configuration, one that is further, or without replay."""
    folder = config.folder
    known = {name: value for name, value in stored.items() if name not in ABOUT}
    if differ := differences(known, to_dict(config)):
        raise UserError(
            f"{folder} holds a run with another configuration:\n  "
            + "\n  ".join(differ)
            + "\nGive the same options to continue it, or another --out"
        )
    function = stored.get("function")
    if isinstance(function, dict) and function.get("sha256") != given.fingerprint(config.task):
        raise UserError(
            f"{folder} holds a run of another {config.task}: the source of that function, "
            "or of what it uses, has changed. Give another out, or the function as it was"
        )
    where = f"the run in {folder} is at decision {saved.decision:,}"
    if saved.decision > config.decisions:
        raise UserError(
            f"{where}; decisions is {config.decisions:,}. Give at least as many, or another --out"
        )
    with _fitting(folder, saved):
        layout.check(saved.state, layout.STATE_SHAPE, layout.STATE)
    if _has_no_replay(saved) and not is_finished(config, saved):
        raise UserError(
            f"{where} and was saved without its replay (--no-save-replay), so it cannot be "
            "continued; its agent can be used. To train it from the beginning, remove the folder "
            "or name another --out"
        )


def _has_no_replay(saved: checkpoint.Checkpoint) -> bool:
    return not saved.segments and saved.state.get("replay") is None


def _fitting(folder: Path, saved: checkpoint.Checkpoint) -> AbstractContextManager[None]:
    """One message about a checkpoint that is whole and still cannot be continued from."""
    what = f"the checkpoint {saved.name} in {folder} does not fit this configuration and version"
    return tensors.whole(what, checkpoint.CURE, (SveaError,))


def is_finished(config: Config, saved: checkpoint.Checkpoint) -> bool:
    """Whether nothing is left to do: the last decision is made, and evaluated."""
    is_evaluated = saved.state["next_evaluation"] > saved.decision
    return saved.decision >= config.decisions and bool(is_evaluated)


# What draws and simulates, and what is mixed in ---------------------------------------------------


def settle_renderer(config: Config) -> Config:
    """The configuration with who draws: decided once for a run, and kept when it is continued."""
    if is_foreign(config.task):
        return config
    asked = asked_renderer(config.renderer)
    is_begun = bool(layout.checkpoints(config.folder))
    before = read_config(config.folder).get("renderer") if is_begun else None
    settled: Any = before
    if before not in (RASTER, OPENGL):
        settled = choose_renderer(asked)
    elif asked not in (AUTO, before):
        raise UserError(
            f"the run in {config.folder} has its pictures drawn by {before!r}, but {asked!r} is "
            f"asked for (--renderer, {DRAWING}). Ask for {before!r} or 'auto' to continue it, or "
            "give another --out"
        )
    return replace(config, renderer=settled)


def record_circumstances(
    agent: Agent,
    config: Config,
    provenance: dict[str, Any],
    saved: checkpoint.Checkpoint | None,
) -> str:
    """Write down what draws and simulates for a run, and what its agent sees and mixes in.

    Returns a warning where a continued run is drawn or simulated otherwise than so far; other
    parts of observations, and other pictures to mix in, than so far are refused.
    """
    stored = read_config(config.folder)
    names = ("renderer", "episodes", "mujoco", "dm_control")
    now: dict[str, Any] = {name: provenance[name] for name in names if name in provenance}
    before, warning = stored.get("made_with") if saved else None, ""
    if saved and (changed := differing(before, now)):
        said = "; ".join(f"{name} {old}, now {new}" for name, (old, new) in changed.items())
        warning = f"warning: other pictures or physics than so far: {said}"
        now |= {"since": saved.decision, "before": before}
    about = {"made_with": now if warning else before or now}
    before_parts = parts_in(stored)
    if saved and agent.parts != before_parts:
        raise UserError(
            f"the run in {config.folder} was trained with {before_parts}, but {config.task} shows "
            f"{agent.parts} now. Let it show the same to continue, or give another --out"
        )
    if agent.parts.names:
        about[PARTS] = asdict(agent.parts)
    if agent.pictures is not None:
        about["pictures"] = _same_pictures(config.folder, stored.get("pictures"), agent.pictures)
    files.replace_json(config.folder / layout.CONFIG, stored | about)
    return warning


def _same_pictures(folder: Path, before: Any, now: dict[str, Any]) -> Any:
    """The pictures of a run as they are recorded; others than so far are refused."""
    if not isinstance(before, dict) or before.get("sha256") == now["sha256"]:
        return before or now
    cure = "Name the same with --overlay-dir, --data-dir or SVEA_DATA to continue it"
    if before.get("side") != now["side"]:
        cure = "Continue it with the version of svea that started it, which holds them at that size"
    was, found = (
        f"{one.get('count')} pictures of {one.get('source')} at {one.get('side')} px "
        f"(sha256 {str(one.get('sha256'))[:8]}…)"
        for one in (before, now)
    )
    raise UserError(
        f"the run in {folder} was trained with {was}, but overlay has {found} now. {cure}, or give "
        "another --out"
    )


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


def take_over(run: Trainer, saved: checkpoint.Checkpoint) -> None:
    """Continue from a checkpoint, and play every open episode up to where it was."""
    with _fitting(run.folder, saved):
        _take_over_counters(run, saved)
        run.agent.load_state_dict(saved.agent)
        checkpoint.restore_replay(run.folder, saved, run.replay)
        checkpoint.remove_newer(run.folder, saved)
        ours = (run.agent.generator, run.replay.generator)
        theirs = (saved.agent["generator"], saved.agent["replay.generator"])
        if not all(restore_generator(*pair) for pair in zip(ours, theirs, strict=True)):
            run.display.say("warning: the run comes from another device; from here on draws differ")
        if saved.state["speed"] != run.speed:
            run.display.say(
                f"warning: updates ran {saved.state['speed']} before and run {run.speed} now "
                "(--speed); from here on the run differs from an uninterrupted one by rounding"
            )
        _play_again(run, saved.state["episodes"])
    run.display.say(f"resumed at decision {run.decision:,}")


def _take_over_counters(run: Trainer, saved: checkpoint.Checkpoint) -> None:
    """What counts or draws, but for tensors; options of the run may have changed since."""
    state = saved.state
    run.decision, run.segments = saved.decision, saved.segments
    for name in ("updates", "owed_updates", "next_evaluation", "log_offset"):
        setattr(run, name, state[name])
    run.seconds_before = state["seconds"]
    # The run's end may have moved, or evaluations may have been switched off.
    if run.next_evaluation > run.decision or not run.config.eval_every:
        run.plan_evaluation()
    run.next_save = min(state["next_save"], run.next_multiple(run.config.save_every))
    run.next_log = min(state["next_log"], run.next_multiple(run.config.log_every))
    run.random.bit_generator.state = state["random"]
    run.losses.load_state(state["figures"], run.device)


def _play_again(run: Trainer, episodes: list[dict[str, Any]]) -> None:
    """Play every open episode up to where it was."""
    for index, episode in zip(range(run.config.envs), episodes, strict=True):
        run.environments.restore(index, OpenEpisode(**episode))
        shown = run.newest(run.environments.observations, index)
        known = run.replay.newest(index)
        if not all(np.array_equal(a, b) for a, b in zip(shown, known, strict=True)):  # type: ignore[arg-type]
            run.display.say(
                f"warning: environment {index} does not repeat its episode exactly, so this "
                "run is not bit for bit an uninterrupted one (GPU renderers differ by a level)"
            )
