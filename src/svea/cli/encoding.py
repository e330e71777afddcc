"""What a terminal or a pipe can show: an older encoding gets plain words instead of an error."""

from __future__ import annotations

import codecs
import sys

PLAIN = {
    "±": "+-", "×": "x", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "→": "->", "…": "...",
    "†": "*", "·": ".", "α": "alpha", "β": "beta", "τ": "tau", "µ": "u", "Δ": "d",
    "“": '"', "”": '"', "’": "'", "‘": "'",
}  # fmt: skip
"""How the symbols in our texts are written without them."""


def write_what_streams_can_show() -> None:
    """Let stdout and stderr spell out what their encoding lacks (LC_ALL=C), as it was meant."""
    codecs.register_error("svea-plain", spell_out)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="svea-plain")


def spell_out(error: UnicodeError) -> tuple[str, int]:
    r"""Plain letters for a symbol; anything else, such as bytes of a path, as an escape.

    >>> codecs.register_error("svea-plain", spell_out)
    >>> "892 ± 65 in a\udcff".encode("ascii", "svea-plain")
    b'892 +- 65 in a\\udcff'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    escaped = (
        PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in letters
    )
    return "".join(escaped), error.end
