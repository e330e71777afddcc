"""The runs of results/, read with suspicion: what is published must not rest on a damaged file."""

from __future__ import annotations

import itertools
import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from svea.core.errors import SveaError
from svea.core.words import plural
from svea.results.read import Run, find_runs, is_number, read_run

PROVENANCE = "provenance.json"
FACTS = ("commit", "command", "made_by", "machine", "precision", "asked_for_decisions",
         "reached_decisions", "stopped_by", "wall_seconds", "data", "evaluation")  # fmt: skip
"""What provenance.json says of every run; of one whose renderer is recorded also `weights`, where
its acting part is kept."""
KNOWN = ("no checkpoint", "unfinished")
"""Beginnings of warnings that are no surprise: weights are apart, tables say what was reached."""
PLAYED_AGAIN = "source dmcgb, re-coded, later dmcgb;"
"""In front of the benchmark's own clips; pages show both."""
SAID = {"image_size": 84, "eval_actions": "most_likely", "encoder": "cnn"}
"""What pages say of every run: they would have to be changed for another."""
QUICK = SAID | {"preset": "quick", "image_size": 48}
"""The same of runs whose agents are in the zoo alone."""
FEWEST = 6  # episodes of an agent in a mode


def read_published(folder: Path, said: Mapping[str, Any] = SAID) -> list[Run]:
    """Every run in a folder; where one is damaged or incomplete, all that is wrong is said.

    `svea report` shows what can be read and warns. What is published must not become less in
    silence: without its records a row would show another run, and a lost line an episode less.
    `said` is what pages say of all runs.
    """
    runs, problems = [], []
    for place in find_runs([folder]):
        try:
            run = read_run(place)
        except SveaError as error:
            problems.append(str(error))
            continue
        runs.append(run)
        problems += [f"{place}: {problem}" for problem in _problems(run, said)]
    if problems:
        raise SystemExit(
            "results/ is damaged or incomplete, so nothing was written; `git checkout results` "
            "restores what was committed:\n" + "\n".join(problems)
        )
    return runs


def provenance(run: Run) -> dict[str, Any]:
    """How a run was made."""
    return dict(json.loads((run.folder / PROVENANCE).read_text()))


def _problems(run: Run, said: Mapping[str, Any]) -> Iterator[str]:
    yield from (w for w in run.warnings if not w.startswith(KNOWN) and PLAYED_AGAIN not in w)
    if missing := [name for name in ("task", "seed", "decisions") if name not in run.config]:
        yield f"config.json lacks {', '.join(missing)}"
        return
    for name, value in said.items():
        if (other := run.config.get(name, value)) != value:
            yield f"config.json has {other!r} for {name}; pages and cards say {value!r} of all runs"
    played = run.agent_episodes
    if not played:
        yield "eval.jsonl is missing or has no episode of the agent"
        return
    if any(not is_number(record.get("return")) for record in played):
        yield "eval.jsonl has a return that is not a finite number"
    counts = Counter((record["decision"], record["mode"]) for record in played)
    for (decision, mode), count in counts.items():
        if count < FEWEST:
            few = f"{plural(count, 'episode')} in {mode} at decision {decision:,}"
            yield f"eval.jsonl has {few}; allowed: {FEWEST} or more"
    yield from _contradictions(run, max((decision for decision, _ in counts), default=0))


def _contradictions(run: Run, last: int) -> Iterator[str]:
    """Where provenance.json does not fit the run."""
    try:
        about = provenance(run)
    except (OSError, ValueError) as error:
        yield f"{PROVENANCE} cannot be read: {error}"
        return
    facts = (*FACTS, "weights") if "made_with" in run.config else FACTS
    if missing := [name for name in facts if name not in about]:
        yield f"{PROVENANCE} lacks {', '.join(missing)}"
        return
    words = shlex.split(about["command"])
    given = dict(itertools.pairwise(words))
    stated = {
        "asked_for_decisions": (about["asked_for_decisions"], run.config["decisions"]),
        "reached_decisions": (about["reached_decisions"], last),
        "command's task": (words[2] if len(words) > 2 else "", run.config["task"]),
        "command's --seed": (given.get("--seed"), str(run.config["seed"])),
    }
    for name, (says, is_) in stated.items():
        if says != is_:
            yield f"{PROVENANCE} has {says!r} for {name}, the run {is_!r}"
