"""`svea demo`: trained agents in worlds they never saw, then one trained here from scratch.

The demo writes one page, first about agents of the zoo and then also about the agent it trained. If
it is interrupted, the same command continues. docs/demo.md says what to expect.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

from svea.cli import doctor
from svea.cli.arguments import Out
from svea.core.errors import StorageError, SveaError, UserError
from svea.core.terminal import Steps, starting

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
        doctor.measure_gl()  # agents see pictures and nothing else
    folder = out or Path("runs/demo")
    page = folder / "report.html"
    shown = [] if skip_zoo else show_zoo(page, no_train)
    if not no_train:
        train_one(folder / "run", page, seed, shown)
    return 0


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
    return "with videos"


def show_zoo(page: Path, is_all: bool = False) -> list[Path]:
    """An episode of each agent in its training world and in another, and a page about them.

    Where this is all there is to show, it is an error that no agent can be shown.
    """
    from svea.core.files import make_folder
    from svea.results.report import report
    from svea.runs import zoo

    print("trained agents of the zoo, an episode in training and in new colours (a minute)")
    shown, videos, names = list[Path](), "", list[str]()
    problem: SveaError = UserError(f"the zoo has none of {', '.join(AGENTS)}")
    try:
        names = [name for name in AGENTS if name in zoo.names()][:2]
    except SveaError as error:
        problem = error
    for name in names:
        with Steps("agents", len(names)) as steps:
            try:
                copy = zoo.working_copy(f"{zoo.PREFIX}{name}")
                steps.doing(f"playing {name}")
                means = mean_returns(copy, 1)
            except SveaError as error:  # a damaged file, a full disk: the rest is still there
                problem = error
                print(f"  {name}: {error}")
                continue
            steps.doing(f"filming {name}")
            videos = film(copy)
        shown.append(copy)
        said = ", ".join(f"{mode} {mean:.0f}" for mode, mean in zip(MODES, means, strict=True))
        print(f"  {name:<20} {said}", flush=True)
    if shown:
        make_folder(page.parent)
        report(shown, page, title="Trained agents in worlds they never saw")
        print(f"  open {page} in a browser, {videos}\n")
    elif is_all:
        raise problem
    else:
        print(f"trained agents cannot be shown: {problem}\n")
    return shown


def mean_returns(
    run: Path, episodes: int, modes: tuple[str, ...] = MODES, policy: str = "agent"
) -> list[float]:
    """The mean return of a policy in modes; episodes that are not on record are played."""
    from svea.evaluation.requests import Request, Scoring

    scoring = Scoring([run], Request(modes, episodes, policies=(policy,)))
    scoring.play()
    if scoring.problems:
        raise StorageError(scoring.problems[0])
    records = scoring.records[run]
    return [fmean(one["return"] for one in records if one["mode"] == mode) for mode in modes]


def train_one(folder: Path, page: Path, seed: int, shown: list[Path]) -> None:
    """Train from scratch, evaluate, and add it to the page."""
    from svea.config import configure
    from svea.results.report import report
    from svea.training import train
    from svea.training.display import next_commands

    print(f"now SVEA learns {TASK} from pixels on this machine; Ctrl-C saves, a repeat continues")
    config = configure(TASK, seed=seed, out=str(folder), **SETTINGS)
    run = train(config)
    print(f"evaluating with {EPISODES} episodes each instead of those few, next to random actions")
    with Steps("parts", 3) as steps:
        steps.begin("playing the agent")
        in_train, in_color_hard = mean_returns(run, EPISODES)
        steps.finish("playing the random policy")
        (random,) = mean_returns(run, EPISODES, ("train",), "random")
        steps.finish("filming")
        videos = film(run, again=True)  # the agent has learned more
    title = "Agents in worlds they never saw; the last one learned on this machine"
    report([*shown, run], page, title=title)
    print(f"\n{TASK}, mean return over {EPISODES} episodes, most likely actions, of at most 1,000")
    print(f"  random policy              {random:7.1f}")
    print(f"  SVEA, training colours     {in_train:7.1f}")
    print(f"  SVEA, colours never seen   {in_color_hard:7.1f}")
    print(f"\nopen {page} in a browser, {videos}")
    print(next_commands(config))
