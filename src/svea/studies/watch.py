"""The progress of a study as rows of text: counts, returns, time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from svea.core.words import duration, plural
from svea.studies.cost import updates_left
from svea.studies.state import STATES, RunState

MOST_ROWS = 30


def headline(states: Sequence[RunState], rate: float = 0.0) -> str:
    """Counts by state, and the time left at a rate (updates per second of all runs)."""
    counts = Counter(state.state for state in states)
    following = sum(bool(after_training(state)) for state in states)
    told = {"running": f" ({following} past training)" if following else ""}
    shown = [name for name in STATES if counts[name] or name != "stopped"]  # it is rare
    listed = ", ".join(f"{counts[name]} {name}{told.get(name, '')}" for name in shown)
    text = f"{plural(len(states), 'run')}: {listed}"
    if (left := updates_left(active(states))) and rate > 0:
        text += f"; ETA {duration(left / rate)}"
    return text


def active(states: Sequence[RunState]) -> list[RunState]:
    """The runs that are queued or running."""
    return [state for state in states if state.state in ("queued", "running")]


def rows(states: Sequence[RunState]) -> list[dict[str, Any]]:
    """One row per run, for `--json`."""
    return [
        {
            "run": state.run.name,
            "state": state.state,
            "decision": state.progress.known,
            "decisions": state.run.decisions,
            "can_continue": not state.progress.stopped,
            "seconds": state.progress.seconds,
            "returns": state.progress.returns,
            "failures": state.failures + state.failures_after,
            "reason": state.reason,
        }
        for state in states
    ]


def table(states: Sequence[RunState]) -> list[dict[str, str]]:
    """Rows of text: one per run; of many runs, one per setting, with its seeds together."""
    if len(states) <= MOST_ROWS:
        return [_row(state) for state in _by_interest(states)]
    groups: dict[str, list[RunState]] = {}
    for state in states:
        groups.setdefault(state.run.name.rpartition("-s")[0], []).append(state)
    return [_group_row(name, members) for name, members in groups.items()]


def _by_interest(states: Sequence[RunState]) -> list[RunState]:
    """Running ones first, then failed ones, then the rest."""
    order = {"running": 0, "failed": 1, "queued": 2, "stopped": 3, "done": 4}
    return sorted(states, key=lambda state: order[state.state])


def _row(state: RunState) -> dict[str, str]:
    """One run."""
    done, planned = state.progress.known, state.run.decisions
    failures = state.failures + state.failures_after
    failed = f"failed {failures}x" if failures else ""
    note = state.reason or failed or after_training(state) or reached(state)
    return {
        "run": state.run.name,
        "state": state.state,
        "decisions": f"{done:,}/{planned:,}",
        "last returns": _returns(state.progress.returns),
        "note": note,
    }


def _group_row(name: str, members: Sequence[RunState]) -> dict[str, str]:
    """The seeds of one setting."""
    counts = Counter(state.state for state in members)
    modes = dict.fromkeys(mode for state in members for mode in state.progress.returns)
    returns = {mode: [s.progress.returns[mode] for s in members if mode in s.progress.returns]
               for mode in modes}  # fmt: skip
    done = sum(state.progress.known for state in members)
    planned = sum(state.run.decisions for state in members)
    return {
        "run": name,
        "state": ", ".join(f"{counts[s]} {s}" for s in STATES if counts[s]),
        "decisions": f"{done:,}/{planned:,}",
        "last returns": _returns({m: sum(v) / len(v) for m, v in returns.items()}),
        "note": next(filter(None, (state.reason or reached(state) for state in members)), ""),
    }


def reached(state: RunState) -> str:
    """How far a run got that was stopped for good; nothing of others."""
    if not state.progress.stopped:
        return ""
    return (
        f"reached {state.progress.decision:,} of {state.run.decisions:,} decisions; cannot be "
        "continued (save_replay is false)"
    )


def what_continues(states: Sequence[RunState]) -> str:
    """What the same command does with runs that were stopped, or are about to be."""
    lost = sum(_is_lost(state) for state in states)
    if not lost:
        return "the same command continues"
    rest = "; the same command does the rest" if active(states) else ""
    return f"{plural(lost, 'run')} cannot be continued: save_replay is false{rest}"


def _is_lost(state: RunState) -> bool:
    """Whether a run has, or will have, a checkpoint that is not its last and has no replay."""
    saves = state.state == "running" and state.progress.decision > 0
    begun = saves or state.progress.saved > 0
    return begun and not state.progress.trained and not state.run.config.save_replay


def after_training(state: RunState) -> str:
    """What is done with a running run whose training has ended; nothing of one that trains."""
    progress = state.progress
    if state.state != "running" or not progress.ended:
        return ""
    waiting = "waiting for others of its process"
    if state.trains_together:
        return waiting
    if progress.missing_export:
        return "being exported"
    if progress.missing_modes:
        return f"being evaluated in {', '.join(progress.missing_modes)}"
    return "being analysed" if progress.missing_analyses else waiting


def _returns(returns: dict[str, float]) -> str:
    """Mean returns by mode."""
    return "  ".join(f"{mode} {value:.0f}" for mode, value in returns.items())
