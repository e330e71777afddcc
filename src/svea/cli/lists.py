"""What there is: methods, tasks, agents of the zoo; and what a shell completes."""

from __future__ import annotations

import json as jsonlib
from typing import Any, Literal

from svea.cli.arguments import Positional
from svea.config.names import find_method
from svea.core.errors import unknown_name
from svea.core.words import number, size
from svea.methods import METHODS
from svea.recipes import OWN


def methods(names: Positional[tuple[str, ...]] = (), json: bool = False) -> int:
    """List methods with the views that feed Q-prediction, Q-target and policy.

    Args:
        names: which; default: all. One of your own is named as module:name.
        json: print JSON instead of a table.
    """
    from svea.cli.printing import print_table

    rows = [views_row(name) for name in names or METHODS]
    if json:
        print(jsonlib.dumps(rows, indent=1))
    else:
        print_table(rows)
    return 0


def views_row(name: str) -> dict[str, str]:
    """A method's row for `svea methods`."""
    method = find_method(name)
    recipe = method.recipe_for(method.augment)
    prediction = ", ".join(
        view if coefficient == 1 else f"{view} {coefficient}"
        for view, coefficient in recipe.prediction
    )
    target = "each stream its own" if recipe.target == OWN else recipe.target
    if method.n_step > 1:
        target += f" ({method.n_step}-step)"
    policy = ", ".join(recipe.policy)
    if recipe.policy_q != OWN:
        policy += f" (Q on {recipe.policy_q})"
    return {
        "row": method.rows or "-",
        "method": name,
        "Q-prediction": prediction,
        "Q-target": target,
        "policy": policy,
        "weak": "crop" if method.crop else "none" if recipe.views == {"clean"} else "shift",
        "strong": method.augment,
        "encoder": method.encoder,
        "auxiliary": method.auxiliary,
        "mask": method.mask,
        "about": method.about,
    }


def tasks(names: Positional[tuple[str, ...]] = (), json: bool = False) -> int:
    """List every task with the length of a decision and of an episode, and all modes.

    With --json each task has the modes that it has; shift is defined for five domains only.

    Args:
        names: only tasks with one of these words in their names, such as walker.
        json: print JSON instead of a table.
    """
    from svea.cli.printing import print_table, say
    from svea.config.modes import ACTION_REPEAT, EPISODE_FRAMES, ROBOT_TASKS, TASKS
    from svea.envs import GROUPS, MODES, PAPER_TASKS, PICTURE_MODES, ROBOT_MODES, modes_of

    def source(task: str) -> str:
        suite = "dm_control, in the paper" if task in PAPER_TASKS else "dm_control"
        return "the paper's robot" if task in ROBOT_TASKS else suite

    rows = [
        {
            "task": task,
            "from": source(task),
            "frames per decision": ACTION_REPEAT[task],
            "frames per episode": EPISODE_FRAMES[task],
        }
        for task in TASKS
        if not names or any(name in task for name in names)
    ]
    if not rows:
        raise unknown_name("task", " ".join(names), TASKS)
    if json:
        rows = [row | {"modes": list(modes_of(str(row["task"])))} for row in rows]
        print(jsonlib.dumps(rows, indent=1))
        return 0
    print_table(rows)
    say(f"modes (all): {', '.join(MODES)}; robot tasks: {', '.join(ROBOT_MODES)}")
    for group in ("geometry", "lights"):
        say(f"{group}: {', '.join(GROUPS[group])}")
    say(f"any task: {', '.join(PICTURE_MODES)}, and module:class of your own")
    say(
        "your own environment: module:function, or a Gymnasium id such as CarRacing-v3 "
        "(docs/your-environment.md)"
    )
    return 0


MODES = ("train", "color_hard", "video_easy", "video_hard")
"""Those with a column: more do not fit next to the names on 80 columns."""


def zoo_agents(json: bool = False) -> int:
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


# Flags are read off `svea VERB --help` when they are asked for, so the script knows those of the
# version that is installed.
SCRIPT = """\
_svea_flags() {{
  COLUMNS=200 svea "$1" --help 2>/dev/null | grep -oE -- '--[a-z][a-zA-Z0-9._-]*' | sort -u
}}
_svea() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  local verb="${{COMP_WORDS[1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{verbs} --help --version"
  else
    case "$prev" in
      --method|--methods) words="{methods}" ;;
      --modes|--eval-mode) words="{modes}" ;;
      --tasks) words="{tasks}" ;;
    esac
    if [ -z "$words" ]; then
      case "$cur" in
        -*) words="$(_svea_flags "$verb")" ;;
        *) if [ "$verb" = train ] && [ "$COMP_CWORD" -eq 2 ]; then words="{tasks}"; fi ;;
      esac
    fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _svea svea
"""


def completion(shell: Positional[Literal["bash", "zsh"]]) -> int:
    """Print a completion script: eval "$(svea completion bash)".

    Args:
        shell: whose script; put the line above into ~/.bashrc or ~/.zshrc to keep it.
    """
    from svea.cli import VERBS
    from svea.config.modes import GROUPS, TASKS, modes_of
    from svea.methods import METHODS

    if shell == "zsh":
        print("autoload -U +X compinit && compinit && autoload -U +X bashcompinit && bashcompinit")
    names = {"verbs": [*VERBS], "methods": [*METHODS], "tasks": [*TASKS]}
    names["modes"] = [*modes_of(None), *GROUPS]
    print(SCRIPT.format(**{kind: " ".join(words) for kind, words in names.items()}))
    return 0
