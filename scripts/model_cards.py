"""Model cards of the zoo's agents, as `scripts/results.py` writes them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from svea.config.modes import is_factor
from svea.core.words import interval, plural, size
from svea.data.clips import source_of
from svea.envs import describe
from svea.results import stats
from svea.results.read import Run, by_world
from svea.results.tables import Cell, Table, estimate, to_markdown
from svea.runs.records import Record

RETURN = "return [95 %]"
QUICK = (
    " A small agent of preset `quick`, trained in minutes on a CPU. It is in the zoo because it "
    "has its Q-functions, not for its returns."
)


def returns_of(run: Run, decision: int, stored: str) -> Iterator[dict[str, Any]]:
    """What the episodes of a run's agent come to, mode by mode.

    It learned up to `decision`; `stored` is the fingerprint of its weights in the zoo.
    """
    found: dict[str, list[Record]] = {}
    for record in run.agent_episodes:
        if record["decision"] == decision and not is_factor(record["mode"]):
            found.setdefault(record["mode"], []).append(record)
    for mode, played in found.items():
        ends = stats.bootstrap_interval([stats.SeedsAndWorlds.of([by_world(played)])], stats.mean)
        source = played[-1]["provenance"]
        yield {
            "mode": mode,
            "shown": describe(source),
            "mean": ends.point,
            "low": ends.low,
            "high": ends.high,
            "episodes": len(played),
            "worlds": len({record["world"] for record in played}),
            "data": source_of(source),
            "as_stored": all(record["weights"] == stored for record in played),
        }


def model_card(card: dict[str, Any], name: str, modes: Sequence[str]) -> str:
    """The page of one agent, with the front matter that Hugging Face's hub reads.

    `card` is what is known about it; it should be evaluated in `modes`.
    """
    rows = [
        {
            "mode": Cell(one["shown"]),
            RETURN: return_cell(one),
            "episodes": Cell(str(one["episodes"])),
            "worlds": Cell(str(one["worlds"])),
        }
        for one in card["returns"]
    ]
    parts = [
        f"# zoo:{name}",
        f"An agent for `{card['task']}` of the DeepMind Control Suite: {card['method']} with "
        f"{card['augment']}, {card['decisions']:,} decisions, training seed {card['seed']}. It "
        f"sees three stacked frames of {card['image_size']} × {card['image_size']} pixels and "
        f"gives actions in [-1, 1].{QUICK if card['preset'] == 'quick' else ''}",
        "## Use",
        f"    svea watch zoo:{name}\n    svea eval zoo:{name} --modes train color_hard",
        f'In Python: `svea.load_agent("zoo:{name}").act(observation)`. It is meant for research '
        "on visual generalisation in simulation, not for a real machine.",
        "## Evaluation",
        to_markdown(Table.of("returns", rows)).strip(),
        f"Written by `make results` from [{card['run']}](../../{card['run']}); most likely "
        "actions, mean return and its 95 % interval over worlds (of one world, over episodes).",
        "## Limits",
        " ".join(_limits(card, modes)),
        "## Training",
        f"At commit {card['commit']} on {card['machine']}, as by:",
        f"    {card['command']}",
        "## Files and licence",
        f"{_files(card)} Licence: {card['licence']}.",
        f"What {card['method']} is: [Methods](../../docs/methods.md). SVEA is from Hansen, Su and "
        "Wang, *Stabilizing Deep Q-Learning with ConvNets and Vision Transformers under Data "
        "Augmentation*, NeurIPS 2021, [arXiv:2107.00644](https://arxiv.org/abs/2107.00644).",
    ]
    body = "\n\n".join(part if part.startswith(("#", "|", " ")) else wrap(part) for part in parts)
    front = yaml.safe_dump(front_matter(card, name), sort_keys=False, allow_unicode=True, width=100)
    return f"---\n{front}---\n\n{body}\n"


def return_cell(one: dict[str, Any]) -> Cell:
    """One of a card's returns, with its interval."""
    return estimate(stats.Interval(one["mean"], one["low"], one["high"]))


def _files(card: dict[str, Any]) -> str:
    about = f"({size(card['size'])}, SHA-256 in config.json)"
    how, holds = "large layers in 8 bits, the rest in half precision.", "holds encoder and policy"
    if card["critic"]:
        critic = f"`critic.safetensors` the Q-functions {about}: {how}"
        return f"`actor.safetensors` {holds}, {critic}"
    return f"`actor.safetensors` {about} {holds}: {how} The Q-functions are not stored."


def _limits(card: dict[str, Any], modes: Sequence[str]) -> Iterator[str]:
    """What a reader of a card should not conclude from it."""
    yield "One training seed: another seed of the same method may do better or worse."
    if generated := [one["mode"] for one in card["returns"] if one["data"] == "generated"]:
        yield f"{', '.join(generated)} was evaluated under generated colours, not the benchmark's."
    if missing := [mode for mode in modes if mode not in {one["mode"] for one in card["returns"]}]:
        yield f"Not yet evaluated: {', '.join(missing)}."
    if other := [one["mode"] for one in card["returns"] if not one["as_stored"]]:
        yield (
            f"{', '.join(other)} was played with the agent in float32; how little storing it "
            "changes is in [Results](../../docs/results.md#agents-to-download)."
        )


def front_matter(card: dict[str, Any], name: str) -> dict[str, Any]:
    """Metadata of a card as https://github.com/huggingface/hub-docs/blob/main/modelcard.md has it.

    A mode is a configuration of the environment, which stands in the place of a data set as in the
    cards of other libraries for reinforcement learning. There is no data set to name: the agent
    learned from what it did. `mean_reward` is what those libraries call the mean return.
    """
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    results = [
        {
            "task": dict(task),
            "dataset": {
                "type": f"svea/{card['task']}-v0",
                "name": f"{card['task']}, {one['shown']}",
                "config": one["mode"],
            },
            "metrics": [
                {
                    "type": "mean_reward",
                    "value": round(one["mean"], 2),
                    "name": f"mean return over {plural(one['episodes'], 'episode')}, 95 % interval "
                    + interval(one["low"], one["high"]),
                }
            ],
        }
        for one in card["returns"]
    ]
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "visual-generalization",
            "dm_control", "mujoco", card["task"], card["method"]]  # fmt: skip
    return {
        "license": card["licence"].lower(),
        "library_name": "svea",
        "pipeline_tag": task["type"],
        "tags": tags,
        "model-index": [{"name": name, "results": results}],
    }


def wrap(text: str) -> str:
    """A paragraph in lines of at most 100 columns."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)
