"""What there is: methods, tasks, agents of the zoo; and what a shell completes."""

from typing import Any, Literal

from svea.cli.arguments import Json, Positional
from svea.cli.printing import print_list, print_problems
from svea.config.names import find_method
from svea.core.errors import unknown_name
from svea.core.words import number, size
from svea.methods import METHODS
from svea.recipes import OWN


def methods(names: Positional[tuple[str, ...]] = (), json: Json = False) -> int:
    """List methods with the views that feed Q-prediction, Q-target and policy.

    Args:
        names: which; default: all. One of your own is named as module:name.
    """
    return print_list([views_row(name) for name in names or METHODS], json)


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


def tasks(names: Positional[tuple[str, ...]] = (), json: Json = False) -> int:
    """List every task with the length of a decision and of an episode, and all modes.

    With --json each task has the modes and factors that it has; shift is defined for five domains.

    Args:
        names: only tasks with one of these words in their names, such as walker.
    """
    from svea.config import modes
    from svea.config.factors import FACTORS
    from svea.envs import modes_of

    source = dict.fromkeys(modes.TASKS, "dm_control")
    source |= dict.fromkeys(modes.PAPER_TASKS, "dm_control, in the paper")
    source |= dict.fromkeys(modes.ROBOT_TASKS, "the paper's robot")
    rows: list[dict[str, Any]] = [
        {
            "task": task,
            "from": source[task],
            "frames per decision": modes.ACTION_REPEAT[task],
            "frames per episode": modes.EPISODE_FRAMES[task],
        }
        for task in modes.TASKS
        if not names or any(name in task for name in names)
    ]
    if not rows:
        raise unknown_name("task", " ".join(names), modes.TASKS)
    if json:
        for row in rows:
            row |= {"modes": [*modes_of(row["task"])], "factors": [*modes.factors_of(row["task"])]}
        return print_list(rows, json)
    listed = {
        "modes (all)": f"{', '.join(modes.MODES)}; robot tasks: {', '.join(modes.ROBOT_MODES)}",
        "geometry": ", ".join(modes.GEOMETRY_MODES),
        "lights": ", ".join(modes.LIGHT_MODES),
        "any task": f"{', '.join(modes.PICTURE_MODES)}, and module:class of your own",
        "factors": ", ".join(f"{one.name} {one.least:g}..{one.most:g}" for one in FACTORS.values()),
        "your own environment": "module:function, or a Gymnasium id such as CarRacing-v3 "
        "(docs/your-environment.md)",
    }
    return print_list(rows, json, [f"{what}: {which}" for what, which in listed.items()])


MODES = ("train", "color_hard", "video_easy", "video_hard")
"""Those with a column: more do not fit next to the names on 80 columns."""


def zoo_agents(json: Json = False) -> int:
    """List agents to use by name: `svea watch zoo:NAME`, `svea eval zoo:NAME`.

    What verbs write about an agent goes to runs/zoo/NAME.
    """
    from svea.runs import zoo

    cards, problems = zoo.cards()
    licences = sorted({card["licence"] for card in cards})
    if cards:
        rows = cards if json else [_row(card, len(licences) > 1) for card in cards]
        ends = [size(pick(card["size"] for card in cards)) for pick in (min, max)]
        sizes = " to ".join(dict.fromkeys(ends))
        notes = [
            f"Mean returns of one training seed each; {sizes} each; licence: {', '.join(licences)}",
            "Episodes, worlds, intervals, other modes, how they were made: `svea zoo --json`",
            f"and the model cards, {zoo.home()}/NAME/README.md",
        ]
        print_list(rows, json, notes)
    return print_problems(problems)


def _row(card: dict[str, Any], with_licence: bool) -> dict[str, str]:
    """An agent's line; the table leaves out columns that are empty in all."""
    means = {one["mode"]: number(one["mean"]) for one in card["returns"]}
    return {
        "agent": f"zoo:{card['name']}",
        "decisions": f"{card['decisions']:,}",
        # Two words, so that a narrow terminal can put one above the other.
        **{mode.replace("_", " "): means.get(mode, "") for mode in MODES},
        "licence": card["licence"] if with_licence else "",
    }


# Flags are read off `svea VERB --help` when they are asked for, so the script knows those of the
# version that is installed.
SCRIPT = """\
_svea() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" words=""
  case "$COMP_CWORD ${{COMP_WORDS[COMP_CWORD-1]}}" in
    "1 "*) words="{verbs} --help --version" ;;
    *" --method" | *" --methods") words="{methods}" ;;
    *" --modes" | *" --eval-mode") words="{modes}" ;;
    *" --tasks" | "2 train") words="{tasks}" ;;
  esac
  if [ "$COMP_CWORD" -gt 1 ] && [ "${{cur:0:1}}" = "-" ]; then
    words="$(COLUMNS=200 svea "${{COMP_WORDS[1]}}" --help 2>/dev/null |
      grep -oE -- '--[a-z][a-zA-Z0-9._-]*' | sort -u)"
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
