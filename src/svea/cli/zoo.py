"""`svea zoo`: the trained agents that come with the repository."""

from __future__ import annotations

import json as jsonlib
from typing import Any

from svea.cli.arguments import parse
from svea.words import number, plural


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "zoo", arguments)


def command(json: bool = False) -> int:
    """List agents to use by name: `svea watch zoo:NAME`, `svea eval zoo:NAME`.

    What verbs write about an agent goes to runs/zoo/NAME.

    Args:
        json: print all that is known about them as JSON instead of a table.
    """
    from svea.cli.terminal import print_table, say
    from svea.runs import zoo
    from svea.words import size

    cards = zoo.cards()
    if json:
        print(jsonlib.dumps(cards, indent=1))
        return 0
    print_table(
        [
            {
                "agent": zoo.PREFIX + card["name"],
                "task": card["task"],
                "method": card["method"],
                "decisions": f"{card['decisions']:,}",
                "mean return": "; ".join(map(_shown, zoo.listed(card))),
                "size": size(card["size"]),
                "licence": card["licence"],
            }
            for card in cards
        ]
    )
    say(f"model cards: {zoo.home()}/NAME/README.md; one training seed behind each agent")
    return 0


def _shown(result: dict[str, Any]) -> str:
    """A mode, its mean return, and the episodes behind it."""
    return f"{result['shown']} {number(result['mean'])} ({plural(result['episodes'], 'episode')})"
