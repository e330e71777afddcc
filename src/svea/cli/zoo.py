"""`svea zoo`: the trained agents that come with the repository."""

from __future__ import annotations

import json as jsonlib
from typing import Any

from svea.cli.arguments import parse
from svea.core.words import number, size

MODES = ("train", "color_hard", "video_easy", "video_hard")
"""Those with a column: more do not fit next to the names on 80 columns."""


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "zoo", arguments)


def command(json: bool = False) -> int:
    """List agents to use by name: `svea watch zoo:NAME`, `svea eval zoo:NAME`.

    What verbs write about an agent goes to runs/zoo/NAME.

    Args:
        json: print all that is known about them as JSON instead of a table.
    """
    from svea.cli.printing import print_problems, print_table, say
    from svea.runs import zoo

    cards, problems = zoo.cards()
    if json:
        print(jsonlib.dumps(cards, indent=1))
    elif cards:
        licences = {card["licence"] for card in cards}
        print_table([_row(card, licences) for card in cards])
        for note in _notes(cards, licences):
            say(note)
        say(f"and the model cards, {zoo.home()}/NAME/README.md")
    return print_problems(problems)


def _row(card: dict[str, Any], licences: set[str]) -> dict[str, str]:
    """An agent's line; the table leaves out columns that are empty in all."""
    means = {one["mode"]: number(one["mean"]) for one in card["returns"]}
    return {
        "agent": f"zoo:{card['name']}",
        "decisions": f"{card['decisions']:,}",
        # Two words, so that a narrow terminal can put one above the other.
        **{mode.replace("_", " "): means.get(mode, "") for mode in MODES},
        "licence": card["licence"] if len(licences) > 1 else "",
    }


def _notes(cards: list[dict[str, Any]], licences: set[str]) -> list[str]:
    """What stands behind the numbers, and what the table leaves out."""
    shown = [one for card in cards for one in card["returns"] if one["mode"] in MODES]
    worlds = {m: [one["worlds"] for one in shown if one["mode"] == m] for m in MODES}
    notes = []
    if shown:
        of_each = ", ".join(f"{mode} {_range(counts)}" for mode, counts in worlds.items() if counts)
        episodes = _range([one["episodes"] for one in shown])
        notes.append(f"Mean returns over {episodes} episodes; worlds: {of_each}.")
    sizes = [card["size"] for card in cards]
    between = " to ".join(dict.fromkeys(size(one) for one in (min(sizes), max(sizes))))
    licence = f" Licence: {min(licences)}." if len(licences) == 1 else ""
    return [
        *notes,
        f"One training seed behind each agent; {between} each.{licence}",
        "Other modes such as distracting_cs, intervals, how they were made: `svea zoo --json`",
    ]


def _range(counts: list[int]) -> str:
    """All of some numbers: '30 to 100', or '6'."""
    return " to ".join(str(one) for one in dict.fromkeys((min(counts), max(counts))))
