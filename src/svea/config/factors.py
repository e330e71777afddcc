"""Factors: what of a world can be changed one thing at a time, as data.

Each has a unit, a range, and the value that the training world has, at which a picture is that of
training, bit for bit. `svea.envs.looks.varied` applies them; the playground's sliders, modes such
as `light.strength=0.4`, `svea eval --vary` and `--train-vary` all read this table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from svea.core.errors import UserError, between, unknown_name

Variation = dict[str, float]
"""Values of factors by their names."""

Drawn = Mapping[str, float | tuple[float, float]]
"""The same, or ranges from which each episode draws evenly."""

EXAMPLE = "e.g. light.strength=0.4"


@dataclass(frozen=True)
class Factor:
    """Something that can be changed by itself."""

    name: str
    unit: str
    least: float
    most: float
    training: float
    about: str
    whole: bool = False
    """Whether its values are whole numbers."""
    usual: float | None = None
    """Its value where another factor of its group is changed; the training value if None."""
    was: str = ""
    """Its name in links of the playground that were made before there was this table."""

    @property
    def group(self) -> str:
        """The part of the world that it belongs to: what stands before the dot."""
        return self.name.partition(".")[0]

    @property
    def neutral(self) -> float:
        """The value that changes nothing by itself, whatever else of its group is changed."""
        return self.training if self.usual is None else self.usual

    @property
    def span(self) -> str:
        """Its range in words."""
        return f"{self.least:g} to {self.most:g} {self.unit}, {self.training:g} in training"

    def check(self, value: Any) -> float:
        """A value of it; anything else is refused with its range."""
        if isinstance(value, bool) or not isinstance(value, Real):
            raise UserError(f"{self.name} is {str(value)[:40]!r}; allowed: a number, {self.span}")
        number = float(value)
        if not self.least <= number <= self.most or (self.whole and number % 1):
            kind = "a whole number, " if self.whole else ""
            raise UserError(f"{self.name} is {number:g}; allowed: {kind}{self.span}")
        return number

    def parse(self, text: str) -> float:
        """The same from a text."""
        try:
            return self.check(float(text))
        except ValueError as error:
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"{self.name} is {text[:40]!r}; allowed: a number, {self.span}"
            ) from None

    def ends(self, low: Any, high: Any) -> tuple[float, float]:
        """The ends of a range of its values."""
        if self.check(low) > self.check(high):
            raise UserError(f"{self.name} is {low:g}..{high:g}; allowed: the lower end first")
        return float(low), float(high)

    def values(self, count: int) -> list[float]:
        """So many values over its range, evenly to each side of the training value, which is one.

        >>> FACTORS["light.strength"].values(4), FACTORS["camera.roll"].values(2)
        ([0.0, 1.0, 2.0, 3.0], [0.0, 180.0])
        """
        between(2, 1000).check("values", count)
        steps = count - 1
        below = round(steps * (self.training - self.least) / (self.most - self.least))
        if self.least < self.training < self.most and steps > 1:
            below = min(max(below, 1), steps - 1)  # something of both sides
        low = np.linspace(self.least, self.training, below + 1) if below else [self.training]
        high = np.linspace(self.training, self.most, steps - below + 1)[1:]
        found = np.concatenate([low, high])
        rounded = np.rint(found) if self.whole else [float(f"{value:.4g}") for value in found]
        return np.unique(rounded).tolist()  # names of four digits


def _table() -> list[Factor]:
    """Ranges end where hardly anyone would still call it the same task."""
    parts = {
        "agent": "of the agent",
        "floor": "of the floor",
        "background": "of sky and walls",
        "picture": "of the whole picture",
    }
    rows = []
    for part, whose in parts.items():
        rows += [
            Factor(f"{part}.hue", "degrees", -180, 180, 0, f"Turns the hue {whose}."),
            Factor(f"{part}.saturation", "×", 0, 2, 1, f"Saturation {whose}; 0 is grey."),
            Factor(f"{part}.brightness", "×", 0, 2, 1, f"Brightness {whose}; 0 is black."),
            Factor(f"{part}.contrast", "×", 0, 2, 1, f"Contrast {whose}, about mid-grey."),
        ]
    rows += [
        Factor("light.strength", "×", 0, 3, 1, "Strength of all lamps.", was="light"),
        Factor("light.temperature", "K", 2000, 12_000, 6500,
               "Colour of all lamps: lower is redder, higher is bluer."),
        Factor("light.tilt", "degrees", -90, 90, 0,
               "Turns the lamps around the agent, to its left or right in the picture.",
               was="light_tilt"),
        Factor("light.lean", "degrees", -90, 90, 0,
               "Turns the lamps around the agent, away from the camera or towards it."),
        Factor("camera.roll", "degrees", -180, 180, 0, "Turns the picture.", was="roll"),
        Factor("camera.yaw", "degrees", -90, 90, 0,
               "Moves the camera around what it looks at, to the left or right."),
        Factor("camera.height", "degrees", -30, 60, 0,
               "Moves the camera around what it looks at, down or up."),
        Factor("camera.distance", "×", 0.5, 2, 1, "Distance of the camera to the agent."),
        Factor("camera.shift_x", "×", -1, 1, 0, was="shift_x",
               about="Moves the camera to its right, as a share of its distance to the agent."),
        Factor("camera.shift_y", "×", -1, 1, 0,
               "Moves the camera up, as a share of its distance to the agent.", was="shift_y"),
        Factor("video.share", "×", 0, 1, 0,
               "Shows a video behind the agent, in this share of the picture's rows.", usual=1),
        Factor("video.contrast", "×", 0, 1, 0,
               "Shows a video behind the agent, mixed with this weight into what is there.",
               usual=1),
        Factor("video.speed", "frames", 0, 4, 0,
               "Shows a video behind the agent, so many frames per decision.", usual=1,
               was="video_speed"),
        Factor("picture.noise", "×", 0, 0.5, 0,
               "Standard deviation of noise on every pixel, of its range.", was="noise"),
        Factor("picture.blur", "pixels", 0, 4, 0, "Radius of a Gaussian blur."),
        Factor("picture.compression", "%", 0, 100, 0,
               "Strength of JPEG compression: 100 less its quality; 0 is none."),
        Factor("picture.drop", "×", 0, 0.95, 0,
               "How often the agent sees the last picture again.", was="drop"),
        Factor("picture.delay", "decisions", 0, 8, 0,
               "How many decisions late pictures come.", whole=True),
    ]  # fmt: skip
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: groups.index(row.group))


FACTORS = {factor.name: factor for factor in _table()}
"""All factors by name, group by group."""

PICTURE = "picture"
"""The group that needs only the drawn picture: a user's own environment has no other."""

ALL = "all"


def find_factor(name: str, among: Mapping[str, Any] = FACTORS) -> Factor:
    """A factor by its name; an unknown one is refused with the nearest."""
    if name not in FACTORS:
        raise unknown_name("factor", name, among)
    return FACTORS[name]


def at(name: str, value: float) -> str:
    """How modes, records and tables name a factor at a value; at that of training, `train`.

    >>> at("light.strength", 0.4), at("light.strength", 1)
    ('light.strength=0.4', 'train')
    """
    return "train" if value == FACTORS[name].training else f"{name}={value:.12g}"


def read_mode(mode: str) -> tuple[str, float] | None:
    """The factor and the value of a mode that is named so; None of any other.

    >>> read_mode("light.strength=0.4"), read_mode("color_hard")
    (('light.strength', 0.4), None)
    """
    name, equals, text = mode.partition("=")
    if not equals or name not in FACTORS:
        return None
    try:
        return name, float(text)
    except ValueError:
        return None


def parse_ranges(text: str) -> dict[str, tuple[float, float]]:
    """Factors with ranges, as they are typed for training.

    >>> parse_ranges("light.strength=0.3..1.5, camera.roll=-10..10")
    {'light.strength': (0.3, 1.5), 'camera.roll': (-10.0, 10.0)}
    """
    found: dict[str, tuple[float, float]] = {}
    for word in text.replace(",", " ").split():
        name, _, ends = word.partition("=")
        factor, (low, dots, high) = find_factor(name), ends.partition("..")
        if not dots:
            raise UserError(
                f"train_vary is {word!r}; allowed: a factor and its range, e.g. {name}=0.3..1.5 "
                f"({factor.span})"
            )
        if name in found:
            raise UserError(f"train_vary names {name} twice; allowed: once")
        found[name] = factor.ends(factor.parse(low), factor.parse(high))
    return found


def draw(drawn: Drawn, random: np.random.Generator) -> Variation:
    """The values of an episode."""
    values = {}
    for name, value in drawn.items():
        if isinstance(value, tuple):
            low, high = value
            if FACTORS[name].whole:
                value = float(random.integers(int(low), int(high) + 1))
            else:
                value = float(random.uniform(low, high))
        values[name] = value
    return values


def changing(values: Variation) -> Variation:
    """Those that are not the training world's, with the usual ones of a group that needs them.

    A video shows where any factor of it is above 0; those that are not named are then 1.

    >>> changing({"light.strength": 1, "video.speed": 2})
    {'video.speed': 2, 'video.share': 1, 'video.contrast': 1}
    """
    found = {name: value for name, value in values.items() if value != FACTORS[name].training}
    groups = {FACTORS[name].group for name in found}
    for name, factor in FACTORS.items():
        if factor.usual is not None and factor.group in groups:
            found.setdefault(name, values.get(name, factor.neutral))
    return found


def share_of_range(name: str, value: float) -> float:
    """How far a value is from training's: 1 at the end of its side of the range.

    >>> share_of_range("light.strength", 2), share_of_range("light.strength", 0.5)
    (0.5, 0.5)
    """
    factor = FACTORS[name]
    end = factor.most if value > factor.training else factor.least
    way = abs(end - factor.training)
    return abs(value - factor.training) / way if way else math.nan
