"""Numbers of episodes by mode: what is typed, what is refused, what each mode gets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svea.core.errors import UserError
from svea.evaluation import check_episodes, episodes_in, parse_episodes

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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("", "episodes"), ("0", "0"), ("-3", "'-3'"), ("runs/a", "before --episodes"),
        ("20 color_hard=0", "color_hard is 0"), ("20 color_hard=", "'color_hard='"),
        (f"color_hard=1{'0' * 5000}", "'color_hard=10"), ("20 30", "two"),
        ("color_hard=5 color_hard=5", "two numbers for color_hard"), ("20 =5", "''"),
        ("20 colour_hard=5", "'color_hard'"), ("20 geometry=5", "'geometry'"),
        ("20 video_easy=5", "5 for video_easy.*train"),
    ],
)  # fmt: skip
def test_mistakes_are_named(words: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        check_episodes(parse_episodes(words.split()), MODES)


@pytest.mark.parametrize("table", [{"train": True}, {"train": None}, {5: 5}, {"train": {}}])
def test_tables_of_anything_are_refused(table: dict[Any, Any]) -> None:
    with pytest.raises(UserError):
        check_episodes(table)
