"""The command line: a table of verbs, whose modules are imported when they are used."""

import importlib
import signal
import sys
import warnings

from svea import __version__
from svea.core import importing
from svea.core.errors import unknown_name
from svea.core.process import exit_code, one_line_warning
from svea.core.terminal import filter_streams

VERBS = {
    "demo": ("demo:demo", "Show trained agents in new worlds, train one, report on both."),
    "train": ("train:run", "Train an agent, or continue a run (the same command again)."),
    "eval": ("evaluate:evaluate", "Evaluate runs or exports in any mode."),
    "watch": ("pictures:watch", "Film an agent in several modes side by side."),
    "play": ("pictures:play", "Change the world by hand on a page, and watch agents in it."),
    "analyze": ("analyze:PARTS", "Analyse as the paper does: Q-values, wall time, saliency."),
    "compare": ("evaluate:compare_sides", "Compare two methods over tasks and seeds."),
    "report": ("evaluate:report_page", "Write one self-contained HTML page about runs."),
    "export": ("train:export", "Write a small folder to share: actor, critic, configuration."),
    "zoo": ("lists:zoo_agents", "List trained agents to use by name: `svea watch zoo:NAME`."),
    "methods": ("lists:methods", "List methods: which views feed which part."),
    "tasks": ("lists:tasks", "List tasks, and the modes in which they can be evaluated."),
    "gallery": ("pictures:gallery", "Write contact sheets to look at."),
    "bench": ("bench:PARTS", "Measure the speed of augmentations, environments, training."),
    "sweep": ("sweep:run", "Run many runs: here, on a Ray cluster or under SLURM."),
    "paper": ("paper:paper", "Run and draw the paper's tables, figures and claims."),
    "data": ("data:PARTS", "List, check or download benchmark data; training needs none."),
    "doctor": ("doctor:run", "Check this machine, and say how to fix problems."),
    "completion": ("lists:completion", "Print a script: bash or zsh complete verbs and flags."),
}
"""What each verb is and does. It is a function whose flags tyro makes of its signature, or several
by the names of its parts; one named `run` reads its arguments itself."""


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; user errors are one message on stderr.

    Without arguments it is the process's own command, and the process ends with it.
    """
    ends, caller = arguments is None, (sys.stdout, sys.stderr)
    filter_streams()
    if ends:
        importing.count_typed_alone()
    words = sys.argv[1:] if arguments is None else arguments
    warnings.formatwarning = one_line_warning
    importing.trust_typed(words)
    verb, *rest = words or ["help"]
    try:
        return exit_code(lambda: run_verb(verb, rest), verb, ends)
    finally:
        if not ends:
            sys.stdout, sys.stderr = caller
        for number in (signal.SIGINT, signal.SIGTERM) if ends else ():
            # Everything is done, but Python takes a while to exit, and a signal during that time
            # would make the run look killed.
            signal.signal(number, signal.SIG_IGN)


def run_verb(verb: str, arguments: list[str]) -> int:
    """Import the module of a verb, read its arguments, and run it."""
    if verb in ("-h", "--help", "help"):
        print("svea: image-based reinforcement learning that stays stable under augmentation\n")
        for name, (_, about) in VERBS.items():
            print(f"  svea {name:<10} {about}")
        print("\n`svea VERB --help` lists its options; `svea doctor` checks this machine.")
        return 0
    if verb in ("-V", "--version", "version"):
        print(f"svea {__version__}")
        return 0
    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    module, _, name = VERBS[verb][0].partition(":")
    found = getattr(importlib.import_module(f"svea.cli.{module}"), name)
    if name == "run":
        return found(arguments) or 0
    from svea.cli.arguments import parse  # not at the top: `svea doctor` may run without tyro

    return parse(found, verb, arguments)
