"""`svea demo`: trained agents in worlds they never saw, then one trained here from scratch.

The demo writes one page, first about agents of the zoo and then also about the agent it trained. If
it is interrupted, the same command continues. docs/demo.md says what to expect.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from svea.cli.arguments import Out
from svea.core.errors import SveaError, UserError
from svea.core.terminal import Steps, starting
from svea.core.words import plural

TASK = "walker_stand"
SETTINGS: dict[str, Any] = {"preset": "quick", "time_limit": "8m"}
"""A slow or busy machine stops training at the limit and shows what it has; a repeat continues."""

MODES = ("train", "color_hard")
EPISODES = 30
AGENTS = ("walker_walk-svea-100k", "walker_walk-drq", "finger_spin-svea")
"""Of the zoo; those that are there are shown."""


def demo(seed: int = 0, out: Out = None, skip_zoo: bool = False, no_train: bool = False) -> int:
    """Show trained agents in unseen worlds, train one here, and write a report about both.

    Args:
        seed: of the run that is trained.
        out: folder of the page, report.html, and of the run, run/; default runs/demo.
        skip_zoo: begin with the training.
        no_train: end after the agents of the zoo.
    """
    if skip_zoo and no_train:
        raise UserError("--skip-zoo and --no-train leave nothing to do; give one of them")
    with starting():
        check_drawing()
    folder = out or Path("runs/demo")
    page = folder / "report.html"
    shown = [] if skip_zoo else show_zoo(page, no_train)
    if not no_train:
        train_one(folder / "run", page, seed, shown)
    return 0


def check_drawing() -> None:
    """Refuse a machine that draws nothing at once: agents see pictures and nothing else."""
    from svea.cli.doctor import measure_gl

    try:
        measure_gl()
    except SveaError as error:
        raise type(error)(
            f"nothing can be drawn here, so no agent can act or learn: {str(error).rstrip('.')}. "
            "`svea doctor` checks the rest of this machine, `svea zoo` lists what trained agents "
            "reached elsewhere"
        ) from error


def film(run: Path, again: bool = False) -> str:
    """Record an episode in each mode, or only in those without one; why not, if that fails."""
    from svea.evaluation.film import record_episode
    from svea.runs import layout

    try:
        for mode in MODES:
            if again or not layout.media_file(run, mode, ".mp4").exists():
                record_episode(run, mode)
    except SveaError as error:  # no encoder
        return f"without videos: {error}"
    return ""


def show_zoo(page: Path, is_all: bool = False) -> list[Path]:
    """An episode of each agent in its training world and in another, and a page about them.

    Args:
        page: to write.
        is_all: whether nothing follows; without any agent that is an error.
    """
    from svea.core.files import make_folder
    from svea.evaluation.requests import evaluate
    from svea.results.report import report
    from svea.runs import zoo
    from svea.runs.records import append_records

    try:
        names = [name for name in AGENTS if name in zoo.names()][:2]
        if not names:
            raise UserError(f"{zoo.home()} has none of {', '.join(AGENTS)}")
    except SveaError as error:
        if is_all:
            raise
        print(f"trained agents cannot be shown: {error}\n")
        return []
    print("trained agents of the zoo, in training and in colours they never saw (about a minute)")
    shown, without = list[Path](), ""
    for name in names:
        try:
            copy = zoo.working_copy(f"{zoo.PREFIX}{name}")
            missing = [mode for mode in MODES if not _of_agent(copy, mode)]
            if missing:  # the demo was not run here before
                with Steps("episodes") as steps:
                    steps.doing(f"playing {name}")
                    append_records(copy, evaluate(copy, missing, episodes=1))
        except SveaError as error:  # a damaged file, a full disk: the rest is still there
            if is_all and not shown and name == names[-1]:
                raise
            print(f"  {name}: {error}")
            continue
        shown.append(copy)
        print(f"  {name:<20} {_returns(copy)}", flush=True)
        with Steps("videos") as steps:
            steps.doing(f"filming {name}")
            without = film(copy) or without
    if shown:
        make_folder(page.parent)
        report(shown, page, title="Trained agents in worlds they never saw")
        print(f"  open {page} in a browser, {without or 'with their videos'}\n")
    return shown


def train_one(folder: Path, page: Path, seed: int, shown: list[Path]) -> None:
    """Train from scratch, evaluate, and add it to the page."""
    from svea.config import configure
    from svea.core.files import replace_json
    from svea.evaluation.requests import evaluate
    from svea.results.report import report
    from svea.runs.records import append_records
    from svea.training import train
    from svea.training.display import next_commands

    started = time.monotonic() - _seconds_so_far(folder)
    print(f"now SVEA learns {TASK} from pixels on this machine; Ctrl-C saves, a repeat continues")
    run = train(configure(TASK, seed=seed, out=str(folder), **SETTINGS))
    print(
        f"evaluating with {EPISODES} episodes each instead of those few: the agent in train and "
        "color_hard, then the random policy"
    )
    with Steps("parts", 3) as steps:
        steps.begin("playing the agent")
        agent = evaluate(run, list(MODES), EPISODES)
        steps.finish("playing the random policy")
        random = evaluate(run, ["train"], EPISODES, policy="random")
        append_records(run, agent + random)
        steps.finish("filming")
        without = film(run, again=True)  # the agent has learned more
    summary = {
        "task": TASK,
        "seed": seed,
        "random_return": _mean(random, "train"),
        "train_return": _mean(agent, "train"),
        "color_hard_return": _mean(agent, "color_hard"),
        "episodes": EPISODES,
        "seconds": round(time.monotonic() - started, 1),
    }
    replace_json(run / "summary.json", summary)
    title = "Agents in worlds they never saw; the last one learned on this machine"
    report([*shown, run], page, title=title)
    print(f"\n{TASK}, mean return over {EPISODES} episodes, most likely actions, of at most 1,000")
    print(f"  random policy              {summary['random_return']:7.1f}")
    print(f"  SVEA, training colours     {summary['train_return']:7.1f}")
    print(f"  SVEA, colours never seen   {summary['color_hard_return']:7.1f}")
    print(f"\n{summary['seconds']:.0f} s. Open {page} in a browser, {without or 'with videos'}")
    print(next_commands(folder, TASK))


def _mean(records: list[dict[str, Any]], mode: str) -> float:
    """The mean return in a mode."""
    returns = [record["return"] for record in records if record["mode"] == mode]
    return sum(returns) / len(returns)


def _returns(run: Path) -> str:
    """The agent's mean return in each mode and how many episodes it is of, from its records."""
    played = {mode: _of_agent(run, mode) for mode in MODES}
    return ", ".join(
        f"{mode} {_mean(records, mode):.0f} ({plural(len(records), 'episode')})"
        for mode, records in played.items()
    )


def _of_agent(run: Path, mode: str) -> list[dict[str, Any]]:
    """A run's records of its agent in a mode."""
    from svea.runs.records import read_records

    return [r for r in read_records(run) if (r["policy"], r["mode"]) == ("agent", mode)]


def _seconds_so_far(run: Path) -> float:
    """Wall time that earlier, interrupted parts of the run took."""
    from svea.results.read import read_run
    from svea.runs import layout

    return read_run(run).seconds or 0.0 if (run / layout.METRICS).exists() else 0.0
