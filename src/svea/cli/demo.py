"""`svea demo`: trained agents in worlds they never saw, then one trained here from scratch.

The demo writes one page, first about agents of the zoo and then also about the agent it trained. If
it is interrupted, the same command continues. docs/demo.md says what to expect.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

from svea.cli import doctor
from svea.cli.arguments import Out
from svea.core.errors import StorageError, SveaError, UserError
from svea.core.terminal import Steps, waiting

TASK = "walker_stand"
SETTINGS: dict[str, Any] = {"preset": "quick", "time_limit": "8m"}
"""A slow or busy machine stops training at the limit and shows what it has; a repeat continues."""

MODES = ("train", "color_hard")
EPISODES = 30
FINDING_TASK = "cartpole_swingup"
FINDING: dict[str, Any] = {"preset": "quick", "decisions": 20_000, "eval_first": False}
"""As in the miniature edition of the paper."""
SIDES = {"SVEA": ("svea", "conv"), "DrQ": ("drq", "none"), "DrQ + conv": ("drq", "conv")}
"""The slowest is first: two cores then end at about the same time."""

AGENTS = ("walker_walk-svea-100k", "walker_walk-drq")
"""Of the zoo."""


def demo(
    seed: int = 0,
    out: Out = None,
    skip_zoo: bool = False,
    no_train: bool = False,
    finding: bool = False,
) -> int:
    """Show trained agents in unseen worlds, train one here, and write a report about both.

    Args:
        seed: of the runs that are trained.
        out: folder of the page, report.html, and of the run, run/; default runs/demo, or
            runs/finding.
        skip_zoo: begin with the training.
        no_train: end after the agents of the zoo.
        finding: train DrQ, DrQ with strong augmentation, and SVEA side by side instead: the paper's
            finding, on this machine.
    """
    if no_train and (skip_zoo or finding):
        other = "--skip-zoo" if skip_zoo else "--finding"
        raise UserError(f"{other} and --no-train leave nothing to do; give one of them")
    with waiting("starting"):
        doctor.measure_gl()  # agents see pictures and nothing else
    if finding:
        return show_finding(out or Path("runs/finding"), seed)
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
    """Play each agent in two worlds, for a page; where `is_all`, one has to be there."""
    from svea.core.files import make_folder
    from svea.results.report import report
    from svea.runs import zoo

    print("trained agents of the zoo, an episode in training and in new colours (a minute)")
    shown, videos, problems = list[Path](), "", list[SveaError]()
    for name in AGENTS:
        with Steps("agents") as steps:
            try:
                copy = zoo.working_copy(f"{zoo.PREFIX}{name}")
                steps.doing(f"playing {name}")
                means = mean_returns(copy, 1)
            except SveaError as error:  # a damaged file, a full disk: the rest is still there
                problems.append(error)
                continue
            steps.doing(f"filming {name}")
            videos = film(copy)
        shown.append(copy)
        said = ", ".join(f"{mode} {mean:.0f}" for mode, mean in zip(MODES, means, strict=True))
        print(f"  {name:<20} {said}", flush=True)
    for problem in dict.fromkeys(map(str, problems)):
        print(f"  {problem}")
    if shown:
        make_folder(page.parent)
        report(shown, page, title="Trained agents in worlds they never saw")
        print(f"  open {page} in a browser, {videos}\n")
    elif is_all:
        raise problems[0]
    else:
        print("trained agents cannot be shown\n")
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


def show_finding(folder: Path, seed: int) -> int:
    """Train the three sides of the paper's finding, and write a page, a film and a table."""
    from svea.cli.sweep import EngineFlags, run_study
    from svea.results.report import report
    from svea.studies import Grid, open_study, plan_runs

    print(f"DrQ, DrQ with strong augmentation, and SVEA learn {FINDING_TASK} from pixels, a core")
    print("each; Ctrl-C saves, a repeat continues")
    grids = [Grid([FINDING_TASK], [one], [augment], [seed]) for one, augment in SIDES.values()]
    planned = plan_runs(grids, FINDING, modes=MODES, episodes=EPISODES)
    study = open_study(folder, planned, "finding")
    if code := run_study(study, EngineFlags(cpus=1.0)):
        return code
    runs = dict(zip(SIDES, (folder / "runs" / run.name for run in planned), strict=True))
    with Steps("parts", 3) as steps:
        steps.begin("playing the random policy")
        (random,) = mean_returns(runs["SVEA"], EPISODES, ("train",), "random")
        steps.finish("filming")
        videos = film_together(runs, folder / "finding.mp4")
        steps.finish("writing the page")
        page = report([*runs.values()], folder / "report.html", title="The finding on this machine")
    means = {name: mean_returns(run, EPISODES) for name, run in runs.items()}
    print(f"\n{FINDING_TASK}, seed {seed}, mean return of {EPISODES} episodes, of at most 1,000")
    print(f"  {'':<12} training colours   colours never seen")
    for name, (in_train, in_color_hard) in means.items():
        print(f"  {name:<12} {in_train:16.0f} {in_color_hard:20.0f}")
    print(f"  {'random':<12} {random:16.0f}")
    best = max(means, key=lambda name: means[name][1])
    print(f"\n{best} has the highest return under colours that no agent has seen.")
    if best != "SVEA":
        print("That is not the paper's order. docs/demo.md says how often it happens; --seed "
              f"{seed + 1} --out {folder}-{seed + 1} trains three more.")  # fmt: skip
    print(f"open {page} in a browser, {videos}")
    return 0


def film_together(runs: dict[str, Path], out: Path) -> str:
    """Each agent in an unseen world, and one film of all in the same; why not, if that fails."""
    from dataclasses import replace

    from svea.evaluation.film import grid, record, write_video
    from svea.runs.load import load_agent, load_config

    try:
        recordings = []
        for name, run in runs.items():
            film(run)
            seen = record(load_agent(run), load_config(run), "color_hard")
            recordings.append(replace(seen, mode=name))
        write_video(out, grid(recordings), recordings[0].rate)
    except SveaError as error:  # no encoder
        return f"without videos: {error}"
    return f"and {out}: the three in one world that they never saw"
