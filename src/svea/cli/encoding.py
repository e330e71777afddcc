"""What a terminal or a pipe is given: words in its encoding, and no commands to a terminal."""

from __future__ import annotations

import codecs
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from svea.core.machine import harmless, opened

PLAIN = {
    "±": "+-", "×": "x", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "→": "->", "…": "...",
    "†": "*", "·": ".", "α": "alpha", "β": "beta", "τ": "tau", "µ": "u", "Δ": "d",
    "“": '"', "”": '"', "’": "'", "‘": "'",
}  # fmt: skip
"""How the symbols in our texts are written without them."""


class Filtered:
    """A stream without control characters: a folder's name may have commands to the terminal."""

    def __init__(self, stream: Any) -> None:
        """Take the stream itself, under the name by which `opened` and rich find it."""
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        """Write what is left."""
        return int(self.rich_proxied_file.write(harmless(text)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def write_what_streams_can_show() -> None:
    """Let stdout and stderr spell out what their encoding lacks (LC_ALL=C), and filter them."""
    codecs.register_error("svea-plain", spell_out)
    for name in ("stdout", "stderr"):
        stream = opened(getattr(sys, name))
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="svea-plain")
        setattr(sys, name, Filtered(stream))


@contextlib.contextmanager
def unfiltered() -> Iterator[None]:
    """For what colours its own words, and has no others: the help."""
    kept = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(opened, kept)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = kept


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
