"""Numbers of episodes by mode: what is typed, what is refused, what each mode gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svea.core.errors import UserError
from svea.evaluation.episodes import as_words, check_episodes, episodes_in, parse_episodes

MODES = ["train", "color_hard", "video_hard", "distracting_cs:0.1", "my_looks:Night"]
COUNTS = st.integers(1, 10**9) | st.just("all")


@given(default=st.none() | COUNTS, own=st.dictionaries(st.sampled_from(MODES), COUNTS))
def test_each_mode_gets_what_was_typed_for_it(default: Any, own: dict[str, Any]) -> None:
    words = [*([] if default is None else [str(default)]), *(f"{m}={n}" for m, n in own.items())]
    if not words:
        return
    episodes = parse_episodes(words)
    check_episodes(episodes, MODES)
    wanted = {mode: own.get(mode, default or 30) for mode in MODES}
    assert {mode: episodes_in(episodes, mode) for mode in MODES} == wanted
    again = parse_episodes(as_words(episodes, MODES))
    assert {mode: episodes_in(again, mode) for mode in MODES} == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "episodes names no number; allowed: one for all modes, e.g. 20 color_hard=100"),
        ("0", "episodes is 0; allowed: 1 to 1000000000, or 'all'"),
        ("-3", "episodes is '-3'; allowed"),
        ("runs/a", "episodes is 'runs/a', a file or folder; allowed"),
        ("20 color_hard=0", "episodes of color_hard is 0; allowed: 1 to"),
        ("20 color_hard=", "episodes of color_hard is ''; allowed"),
        (f"color_hard=1{'0' * 5000}", "episodes of color_hard is '1000"),
        ("20 30", "episodes is '20 30'; allowed: one number for all modes"),
        ("color_hard=5 color_hard=5", "allowed: one number for color_hard, e.g."),
        ("20 colour_hard=5", "unknown mode 'colour_hard'.*Did you mean 'color_hard'"),
        ("20 =5", "unknown mode ''"),
        ("20 geometry=5", "'geometry' stands for several modes; name one of them"),
        ("20 video_easy=5", "5 for video_easy, which is not among .*train, .*add it to --modes"),
    ],
)
def test_mistakes_are_named_with_their_cure(words: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_episodes(parse_episodes(words.split()), MODES)


@pytest.mark.parametrize("table", [{}, {"train": True}, {"train": None}, {5: 5}, {"train": {}}])
def test_tables_of_anything_are_numbers_or_refused(table: dict[Any, Any]) -> None:
    if table:
        with pytest.raises(UserError):
            check_episodes(table)
    else:
        check_episodes(table)
        assert episodes_in(table, "train") == 30
