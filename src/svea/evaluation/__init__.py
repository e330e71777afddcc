"""Evaluation: whole episodes of a trained agent in any mode, films of them, and what moves it.

`play` plays episodes with a policy, `requests` evaluates runs. Here stands how many episodes an
evaluation plays: one number for all modes, or some modes with their own.
"""

from collections.abc import Collection, Mapping, Sequence

from svea.config.modes import parse_mode
from svea.core.errors import LARGEST, UserError
from svea.core.seeds import ALL

Episodes = int | str | Mapping[str, int | str]
"""A number, `all` (each of a mode's worlds once), or such by mode, `DEFAULT` for the others."""

DEFAULT, USUAL = "default", 30
_EXAMPLE = "e.g. 20 color_hard=100 video_hard=all"


def parse_episodes(words: Sequence[str]) -> Episodes:
    """What is typed after `--episodes`: a number for all modes, and others as MODE=NUMBER.

    Example:
        >>> parse_episodes(["20", "color_hard=100", "video_hard=all"])
        {'default': 20, 'color_hard': 100, 'video_hard': 'all'}
        >>> parse_episodes(["all"])
        'all'
    """
    table: dict[str, int | str] = {}
    for word in words:
        mode, equals, text = word.rpartition("=")
        mode = mode if equals else DEFAULT
        if text != ALL and not (text.isdecimal() and len(text) < 20):
            raise UserError(
                f"episodes is {word[:60]!r}; allowed: numbers or {ALL}, {_EXAMPLE}. Runs and files "
                "are named before --episodes, which takes all words after it"
            )
        if mode in table:
            raise UserError(f"episodes has two numbers for {mode}; allowed: one, {_EXAMPLE}")
        table[mode] = text if text == ALL else int(text)
    if not table:
        raise UserError(f"episodes names no number; allowed: one for all modes, {_EXAMPLE}")
    check_episodes(table)
    return table[DEFAULT] if [*table] == [DEFAULT] else table


def check_episodes(episodes: object, modes: Collection[str] | None = None) -> None:
    """Refuse what is no number of episodes, and a mode that is not among those evaluated."""
    table = episodes if isinstance(episodes, Mapping) else {DEFAULT: episodes}
    for mode, count in table.items():
        if mode != DEFAULT:
            parse_mode(str(mode))
        if count != ALL and not (type(count) is int and 1 <= count <= LARGEST):
            name = "episodes" if mode == DEFAULT else f"episodes of {mode}"
            raise UserError(
                f"{name} is {count!r}; allowed: 1 to {LARGEST}, or {ALL!r} for each of a mode's "
                "worlds once"
            )
        if modes is not None and mode not in (DEFAULT, *modes):
            raise UserError(
                f"episodes has {count} for {mode}, which is not among the modes to evaluate "
                f"({', '.join(modes) or 'none'}); leave it out, or add it to --modes"
            )


def episodes_in(episodes: Episodes, mode: str) -> int | str:
    """How many episodes are played in a mode.

    >>> episodes_in({"default": 20, "color_hard": "all"}, "train")
    20
    """
    if not isinstance(episodes, Mapping):
        return episodes
    return episodes.get(mode, episodes.get(DEFAULT, USUAL))
