"""Who plays, and what a page may ask for: checked, bounded, short enough for a link. No torch."""

import dataclasses
import json
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from svea.config.checks import check_values
from svea.config.factors import FACTORS
from svea.config.modes import GROUPS, check_variation, modes_of, parse_mode
from svea.config.run import fields
from svea.core.errors import UserError, between, unknown_name
from svea.envs.looks.live import COLOR, NEUTRAL, Adjustments

OVERLAYS = ("none", "saliency", "mask")
"""What may be laid over the agent's view."""
LONGEST_MESSAGE = 4096
"""Bytes; a whole setting takes 500."""
MOST_EPISODES = 10_000


@dataclass(frozen=True)
class AgentSlot:
    """Who plays: chosen on the command line, never by a page."""

    run: str = ""
    """A folder or a name of the zoo; nothing for the random policy."""
    task: str = ""
    """Another task than the run's; needed for the random policy."""
    data_dir: str | None = None
    device: str = "cpu"
    rows: int = 0
    """In how large a batch actions are computed: as many as `svea eval` has environments, because
    other sizes take other kernels, whose last bits differ. 0 is what `svea eval` takes here."""

    @property
    def name(self) -> str:
        """What the page calls it."""
        return Path(self.run).name.removeprefix("zoo:") if self.run else "random policy"


@dataclass(frozen=True)
class Setting(Adjustments):
    """A mode, an episode, adjustments, and how it is shown: everything that a link restores."""

    mode: str = "train"
    intensity: Annotated[float, between(0.001, 1)] = 0.1
    """Of `distracting_cs`."""
    seed: Annotated[int, between(0, 2**31 - 1)] = 0
    """Of the evaluation, as in `svea eval --seed`."""
    episode: Annotated[int, between(0, MOST_EPISODES - 1)] = 0
    """Which of the evaluation's episodes; in a mode with several worlds it shows one of them."""
    speed: Annotated[float, between(0.1, 8)] = 1.0
    """Of the first agent's real time."""
    size: Annotated[int, between(128, 480)] = 256
    """Side of the scene in pixels."""
    overlay: str = "none"

    @property
    def mode_name(self) -> str:
        """The mode as `svea eval` names it."""
        return f"{self.mode}:{self.intensity:g}" if self.mode == "distracting_cs" else self.mode

    @property
    def is_exact(self) -> bool:
        """Whether nothing is adjusted on top of the mode: the benchmark's own setting."""
        return self.look == (self.mode_name, *dataclasses.astuple(NEUTRAL))

    @property
    def look(self) -> tuple[Any, ...]:
        """What changes pictures."""
        return self.mode_name, *(getattr(self, f.name) for f in dataclasses.fields(Adjustments))

    def mode_in(self, task: str) -> tuple[str, dict[str, Any], str]:
        """The mode for a task, its options, and why it is another one, if it is."""
        try:
            return *parse_mode(self.mode_name, task), ""
        except UserError as error:
            return "train", {}, str(error)


DEFAULT = Setting()
OPTIONS = {option.path: option for option in fields(DEFAULT)}
FORMER: dict[Any, str] = {one.was: one.name for one in FACTORS.values() if one.was}
"""Factors by their names in links that are older than the registry."""


def sliders() -> list[dict[str, Any]]:
    """What a page needs to show a slider for each factor, group by group."""
    former = {name: was for was, name in FORMER.items()}
    return [
        {
            "name": one.name,
            "unit": one.unit,
            "least": one.least,
            "most": one.most,
            "step": 1 if one.whole else 10 ** math.floor(math.log10((one.most - one.least) / 100)),
            "usual": one.neutral,
            "about": one.about,
            "was": former.get(one.name, ""),
        }
        for one in FACTORS.values()
    ]


def grouped_modes(tasks: Collection[str]) -> dict[str, list[str]]:
    """The modes that any of these tasks has, in groups, for a list to choose from."""
    fitting = [mode for mode in modes_of(None) if any(mode in modes_of(task) for task in tasks)]
    groups: dict[str, Collection[str]] = {"training": ["train"]}
    groups |= {name: GROUPS[name] for name in ("colors", "videos", "geometry", "lights")}
    named = {mode for modes in groups.values() for mode in modes}
    groups["others"] = [mode for mode in fitting if mode not in named]
    shown = {name: [mode for mode in modes if mode in fitting] for name, modes in groups.items()}
    return {name: modes for name, modes in shown.items() if modes}


def read_setting(given: Any, clips: Collection[str], base: Setting = DEFAULT) -> Setting:
    """Check some of the fields, which a page sent or a link says; the rest are those of `base`."""
    if not isinstance(given, dict):
        raise UserError(f"a setting is {type(given).__name__}; it must be an object.")
    named = {str(FORMER.get(name, name)): value for name, value in given.items()}
    varied = check_variation({k: v for k, v in named.items() if k in FACTORS}, None)
    plain = {name: value for name, value in named.items() if name not in varied}
    for name in plain.keys() - OPTIONS.keys():
        raise unknown_name("part of a setting", name, OPTIONS)
    setting = dataclasses.replace(base, **plain)
    merged = check_variation(setting.variation, None) | varied
    kept = {name: value for name, value in merged.items() if value != FACTORS[name].neutral}
    setting = dataclasses.replace(setting, variation=kept)
    check_values(setting)
    choices = {"mode": modes_of(None), "overlay": OVERLAYS, "video": ("", *clips)}
    for name, offered in choices.items():
        if (value := getattr(setting, name)) not in offered:
            raise UserError(f"{name} is {value!r}, which is not offered here.")
    for name in ("body", "floor", "sky"):
        if not COLOR.fullmatch(value := getattr(setting, name)):
            raise UserError(f"{name} is {value!r}; allowed: a colour like #ff8800, or nothing.")
    return setting


def read_message(text: str) -> dict[str, Any]:
    """A page's message: a JSON object with what to `do`, within limits."""
    if len(text) > LONGEST_MESSAGE:
        raise UserError(f"a message has {len(text)} characters; allowed: {LONGEST_MESSAGE}.")
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"a message is not JSON: {str(error)[:80]}") from None
    if not isinstance(message, dict) or not isinstance(message.get("do"), str):
        raise UserError('a message must be an object with a "do".')
    return message
