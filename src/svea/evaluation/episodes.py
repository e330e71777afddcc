"""How many episodes an evaluation plays: one number for all modes, or some with their own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from svea.config.modes import check_mode
from svea.core.errors import UserError
from svea.core.seeds import check_count

Episodes = int | str | Mapping[str, int | str]
"""A number, `all` (each of a mode's worlds once), or such by mode, `DEFAULT` for the others."""

DEFAULT, USUAL = "default", 30
_EXAMPLE = "e.g. 20 color_hard=100 video_hard=all"


def parse_episodes(
    words: Sequence[str], is_agent: Callable[[str], bool] = lambda word: False
) -> Episodes:
    """What is typed after `--episodes`: a number for all modes, and others as MODE=NUMBER.

    Args:
        words: as typed.
        is_agent: whether a word names an agent, which belongs elsewhere.

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
        count = int(text) if text.isdecimal() and len(text) < 20 else text
        if count != "all" and isinstance(count, str):
            _refuse_run(word, words, is_agent)
        check_count(f"episodes of {mode}" if equals else "episodes", count)
        if mode in table:
            for_what = mode if equals else "all modes"
            raise UserError(
                f"episodes is {' '.join(words)!r}; allowed: one number for {for_what}, {_EXAMPLE}"
            )
        table[mode] = count
    if not table:
        raise UserError(f"episodes names no number; allowed: one for all modes, {_EXAMPLE}")
    return table[DEFAULT] if [*table] == [DEFAULT] else table


def _refuse_run(word: str, words: Sequence[str], is_agent: Callable[[str], bool]) -> None:
    """Say where runs and files belong: the words after a flag are all its own."""

    def is_file(word: str) -> bool:
        return word.endswith((".toml", ".py")) or os.sep in word or os.path.exists(word)

    if is_file(word) or is_agent(word):
        what = "an agent of the zoo" if is_agent(word) else "a file or folder"
        first = [one for one in words if is_file(one) or is_agent(one)]
        counts = [one for one in words if one not in first] or [str(USUAL)]
        verb = "sweep" if word.endswith((".toml", ".py")) else "eval"
        typed = shlex.join([*first, "--episodes", *counts])
        raise UserError(
            f"episodes is {word!r}, {what}; allowed: numbers of episodes, {_EXAMPLE}. Name runs "
            f"and files before --episodes, which takes all words after it: svea {verb} {typed}"
        )


def check_episodes(episodes: object, modes: Collection[str] | None = None) -> None:
    """Refuse what is not a number of episodes, and a mode that is not evaluated.

    Args:
        episodes: as given.
        modes: those that are evaluated; None where they are not known yet.
    """
    table = episodes if isinstance(episodes, Mapping) else {DEFAULT: episodes}
    for mode, count in table.items():
        if mode == DEFAULT:
            check_count("episodes", count)
            continue
        check_mode(str(mode))
        check_count(f"episodes of {mode}", count)
        if modes is not None and mode not in modes:
            evaluated = ", ".join(modes) or "none"
            raise UserError(
                f"episodes has {count} for {mode}, which is not among the modes to evaluate "
                f"({evaluated}); leave it out, or add it to --modes"
            )


def episodes_in(episodes: Episodes, mode: str) -> int | str:
    """How many episodes are played in a mode.

    >>> episodes_in({"default": 20, "color_hard": "all"}, "train")
    20
    """
    if not isinstance(episodes, Mapping):
        return episodes
    return episodes.get(mode, episodes.get(DEFAULT, USUAL))
