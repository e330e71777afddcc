"""A page per method in docs/methods/, from the registry, scripts/methods.toml and the results."""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from comparison import MODES
from model_cards import wrap

from svea.cli.lists import views_row
from svea.config import configure
from svea.config.names import find_method
from svea.config.run import fields
from svea.methods import METHODS, SAME_RUN, uses_strong
from svea.results.tables import Table, to_markdown

HELP = re.compile(r'^    (\w+): [^\n]*(?:\n        [^\n]*)*?\n    """(.*?)"""', re.M | re.S)
NAMES = {"row": "rows of the paper's ablation table", "weak": "weak view", "strong": "strong view"}
SHOWN = ("setting", "decisions", "tasks", *MODES[:4], "seeds")
NOT_TRAINED = "Not yet trained on the benchmark with this code."


def pages(root: Path, leaderboard: Table) -> dict[Path, str]:
    """Every method's page."""
    known = tomllib.loads((root / "scripts/methods.toml").read_text())
    helps = _helps(root)
    return {
        root / f"docs/methods/{name}.md": "\n".join(_page(name, known[name], helps, leaderboard))
        for name in METHODS
    }


def overview(root: Path) -> str:
    """A heading and a sentence for each method."""
    known = tomllib.loads((root / "scripts/methods.toml").read_text())
    lines = []
    for name in METHODS:
        first = re.split(r"(?<=\.)\s", known[name]["idea"].strip())[0].split(": ")[0]
        text = re.sub(r"\]\((?!http)", "](methods/", " ".join(first.split()).rstrip("."))
        lines += [f"### `{name}`", "", wrap(f"{text} ([more](methods/{name}.md))."), ""]
    return "\n".join(["", *lines])


def _page(
    name: str, known: dict[str, Any], helps: dict[str, str], leaderboard: Table
) -> Iterator[str]:
    yield f"# {name}\n"
    yield f"How to train `{name}`, what its options do, and what it has reached.\n"
    yield f"    svea train walker_walk --method {name}\n"
    yield known["idea"]
    yield f"$${known['equation'].strip()}$$\n"
    row = {key: value for key, value in views_row(name).items() if value not in ("none", "-")}
    named = [
        f"{NAMES.get(key, key)}: `{row[key]}`" for key in row if key not in ("method", "about")
    ]
    yield wrap(f"{'; '.join(named)}.".replace("rows of", "Rows of")) + "\n"
    yield "## Options\n"
    options = [f"`--{path.replace('_', '-')}` ({v}): {helps[path]}." for path, v in _options(name)]
    yield from [textwrap.fill(f"- {one}", 100, subsequent_indent="  ") for one in options]
    yield from [] if options else ["None of its own."]
    yield from ["", known["settings"]] if "settings" in known else [""]
    yield from ["## Where it differs\n", known["differs"]] if "differs" in known else []
    yield f"## Results\n\n{_results(name, leaderboard)}"
    code = [_link(one) for one in known.get("code", ())]
    yield wrap(f"Code: {', '.join(['[`recipes.py`](../../src/svea/recipes.py)', *code])}.") + "\n"


def _options(name: str) -> Iterator[tuple[str, Any]]:
    """The options that this method adds, with its defaults."""
    method, config = METHODS[name], configure("walker_walk", method=name)
    recipe = find_method(name).recipe_for(method.augment)
    strong = uses_strong(recipe, method.auxiliary) or method.augmented_recipe
    wanted = ["augment"] if strong else []
    wanted += ["recipe.alpha", "recipe.beta"] if recipe.is_mixed else []
    wanted += ["recipe.K", "recipe.M"] if name == "drq" else []
    wanted += ["crop"] if method.crop else ["shift"] if "weak" in recipe.views else []
    wanted += ["sac.n_step"] if method.n_step > 1 else []
    wanted += ["encoder"] if method.encoder != "cnn" else []
    wanted += ["network.head_layers"] if method.own_heads else []
    groups = tuple(f"{group}." for group in (method.auxiliary, method.mask) if group != "none")
    for option in fields(config):
        if option.path in wanted or (groups and option.path.startswith(groups)):
            yield option.path, option.value


def _helps(root: Path) -> dict[str, str]:
    """The first clause of every option's help, by its dotted name."""
    found = {}
    for file in ("config/run.py", "config/options.py", "recipes.py"):
        for part in re.split(r"(?m)^class ", (root / "src/svea" / file).read_text())[1:]:
            group = part.partition("Options")[0].lower() + "." if "Options" in part[:20] else ""
            for field, text in HELP.findall(part):
                found[group + field] = _clause(text)
    for field in [name for name in found if name.startswith("agent.")]:
        found["sac." + field.partition(".")[2]] = found[field]
    return found


def _clause(text: str) -> str:
    """What comes before the first stop, without what is in brackets."""
    text = re.sub(r"\s*\([^()]*\)", "", " ".join(text.split()))
    return re.split(r"[.:;](?: |$)", text)[0]


def _results(name: str, leaderboard: Table) -> str:
    """The rows of the leaderboard for a method."""
    default = METHODS[name].augment
    names = {f"`{name}`", f"`{SAME_RUN.get(name, name)} + {default}`"}
    rows = tuple(row for row in leaderboard.rows if row.cells["setting"].text in names)
    if not rows:
        return f"{NOT_TRAINED}\n"
    columns = tuple(one for one in leaderboard.columns if one.title in SHOWN)
    shown = to_markdown(replace(leaderboard, columns=columns, rows=rows, notes=()))
    return f"{shown}\nEpisodes, protocol and other modes: [leaderboard](../leaderboard.md).\n"


def _link(where: str) -> str:
    file, _, names = where.partition(": ")
    return f"[`{names}`](../../src/svea/{file})"
