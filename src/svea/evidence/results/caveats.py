"""What a reader must know before comparing results with anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from svea.evidence import published
from svea.evidence.results.groups import Group
from svea.evidence.results.settings import other_pictures
from svea.evidence.run import Run
from svea.words import listed

Caveats = dict[str, list[str]]
"""Each sentence, with the settings or runs it is about; none where it is about all of them."""


def all_caveats(groups: Sequence[Group]) -> Caveats:
    """All caveats of groups and warnings about their runs, equal ones once."""
    found: Caveats = {}
    for group in groups:
        for text in caveats_of(group):
            found.setdefault(text, []).append(group.name)
    found = {text: [] if len(who) == len(groups) else who for text, who in found.items()}
    runs = [run for group in groups for run in group.runs]
    for run in runs:
        for text in run.warnings:
            found.setdefault(text, []).append(run.name)
    versions = {str(run.config.get("svea_version", "unknown")) for run in runs}
    if len(versions) > 1:
        found[f"runs of different versions of svea: {', '.join(sorted(versions))}"] = []
    return found


def caveat_notes(groups: Sequence[Group]) -> list[str]:
    """All of them as lines below a table, each with what it is about."""
    about = {text: listed(who, most=3, between="; ") for text, who in all_caveats(groups).items()}
    return [text + (f" ({who})" if who else "") for text, who in about.items()]


def caveats_of(group: Group) -> list[str]:
    """What a reader must know before comparing this group with anything."""
    found = []
    of_paper = group.task in published.TASKS
    seeds = Counter(run.seed for run in group.runs)
    if len(group.runs) < published.SEEDS:
        than = f" where the paper has {published.SEEDS}" if of_paper else ""
        found.append(f"few seeds: {len(group.runs)}{than}")
    if repeated := sorted(str(seed) for seed, count in seeds.items() if count > 1):
        found.append(f"several runs have the same seed ({', '.join(repeated)}); each counts")
    run = group.runs[0]
    if run.preset not in ("paper", "unknown"):
        is_not = ", not a replication" if of_paper else ""
        found.append(f"preset {run.preset!r}: a smaller setting than the paper's{is_not}")
    elif other := [d for d in group.departures if "decisions" in d or "settings" in d]:
        found.append(f"{', '.join(other)}: not the paper's, so not a replication")
    if pictures := other_pictures(run):
        found.append(f"{pictures}; the paper's are Places365")
    if run.mask == "oracle":
        found.append(
            "upper bound: all pixels but the task's own are black, by the simulator's "
            "segmentation, which no agent outside it has; not a method"
        )
    if group.unsaid:
        unsaid = listed(group.unsaid)
        found.append(f"settings of these runs differ in more than their labels say: {unsaid}")
    if run.config.get("eval_actions") == "sampled":
        found.append("evaluations sample actions; the paper takes the policy's most likely one")
    for what, modes in _generated(run).items():
        named = ", ".join(sorted(modes))
        found.append(f"{named}: procedural or generated data, not the benchmark's ({what})")
    return found


def _generated(run: Run) -> dict[str, list[str]]:
    """How provenance records say that pictures were made up, and the modes that say so."""
    found: dict[str, list[str]] = {}
    for mode, provenance in run.provenance().items():
        telling = [f"{k}: {v}" for k, v in provenance.items() if _says_generated(k, v)]
        if telling:
            found.setdefault("; ".join(telling), []).append(mode)
    return found


def _says_generated(key: str, value: Any) -> bool:
    """Whether one entry of a provenance record means generated pictures."""
    words = ("procedural", "generated", "synthetic")
    if isinstance(value, bool):
        return value and any(word in key.lower() for word in words)
    return isinstance(value, str) and any(word in value.lower() for word in words)
