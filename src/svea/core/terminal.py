"""What a terminal, a pipe or a file is given: words in its encoding, colours, progress.

`svea doctor` runs where rich is not installed, so it is imported where it is used.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.segment import Segment

CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\ufffd")
"""What stands for each control character but tab and line feed."""

LINE_SECONDS = 10.0  # between lines about progress where there is no terminal

PLAIN = str.maketrans({
    "±": "+-", "×": "x", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "→": "->", "…": "...",
    "†": "*", "·": ".", "α": "alpha", "β": "beta", "τ": "tau", "µ": "u", "Δ": "d",
    "“": '"', "”": '"', "’": "'", "‘": "'",
})  # fmt: skip
"""How the symbols in our texts are written without them."""


def console(stderr: bool = False) -> Console:
    """Standard output, or stderr, which is for problems and progress."""
    from rich.console import Console

    class Harmless(Console):
        """Its own escape codes are written, and none that are in a text."""

        def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
            for each in super().render(*arguments, **options):
                yield each if each.control else each._replace(text=harmless(each.text))

    kind: Any = None if wants_plain_text() else "auto"
    file = opened(sys.stderr if stderr else sys.stdout)
    return Harmless(file=file, stderr=stderr, color_system=kind, highlight=False)


def wants_plain_text() -> bool:
    """Whether the user (NO_COLOR) or the terminal (TERM=dumb) asks for no escape codes."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")


def can_redraw(console: Console) -> bool:
    """Whether lines may be drawn again: bars and panels; elsewhere progress is lines that stay."""
    return console.is_terminal and not wants_plain_text()


def note(text: str) -> None:
    """A line on stderr; results are on stdout, which only verbs print to."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """A warning that does not end the work."""
    note(f"warning: {text}")


class Steps:
    """How far something is, on stderr: a bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, unit: str, total: int | None = None) -> None:
        """Count steps of a unit, e.g. episodes; None: of an unknown number."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        shown = console(stderr=True)
        # What is printed meanwhile goes above the bar; but results in a pipe stay in the pipe.
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(), transient=True, console=shown, disable=not can_redraw(shown),
            redirect_stdout=sys.stdout.isatty(),
        )  # fmt: skip
        self._unit, self._total, self._done = unit, total, 0
        self._task = self._bar.add_task("", total=total, count="")
        self._last_line = time.monotonic()

    def __enter__(self) -> Steps:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove it."""
        self._bar.stop()

    def begin(self, doing: str, total: int | None = None) -> None:
        """Say what is begun, which may take minutes; the number of steps may be known by now."""
        self._total = self._total if total is None else total
        self.doing(doing, at_once=True)

    def finish(self, doing: str) -> None:
        """Count a step."""
        self._done += 1
        self.doing(doing)

    def reach(self, done: int, total: int, doing: str) -> None:
        """Count up to here; a total of 0 is unknown."""
        self._done, self._total = done, total or None
        self.doing(doing)

    def doing(self, doing: str, at_once: bool = False) -> None:
        """Say what is done now; where no bar is, with a line at once or if all takes long."""
        from rich.markup import escape

        of = f"{self._done}/{self._total}" if self._total else str(self._done or "")
        self._bar.update(
            self._task, completed=self._done, total=self._total, description=escape(doing), count=of
        )
        is_due = at_once or time.monotonic() - self._last_line > LINE_SECONDS
        if self._bar.disable and is_due:
            self._last_line = time.monotonic()
            counted = f": {of.replace('/', ' of ')} {self._unit} done" if of else ""
            note(f"{doing}{counted}")


def waiting(doing: str, shown: Console | None = None) -> contextlib.AbstractContextManager[object]:
    """A region in which a terminal shows what takes a while, as importing torch; on stderr."""
    from rich.text import Text

    shown = shown or console(stderr=True)
    return shown.status(Text(doing)) if can_redraw(shown) else contextlib.nullcontext()


@contextlib.contextmanager
def redrawn(shown: Console, drawn: Any = None, **options: Any) -> Iterator[Live | None]:
    """A part of the terminal that is drawn again and again; None where that cannot be."""
    if can_redraw(shown):
        from rich.live import Live

        with Live(drawn, console=shown, **options) as live:
            yield live
    else:
        yield None


class Filtered:
    """A stream without control characters: a folder's name may have commands to the terminal."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream  # by this name `opened` and rich find it

    def write(self, text: str) -> int:
        """Write what is left."""
        return int(self.rich_proxied_file.write(harmless(text)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


def harmless(text: str) -> str:
    """Text of others, in which a terminal finds no command."""
    return text.translate(CONTROLS)


def opened(stream: Any) -> Any:
    """The stream itself, under whatever filters what is printed to it."""
    while (beneath := getattr(stream, "rich_proxied_file", None)) is not None:
        stream = beneath
    return stream


def filter_streams() -> None:
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
    """Plain letters for a symbol; anything else, such as bytes of a path, as an escape."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return letters.translate(PLAIN).encode("ascii", "backslashreplace").decode(), error.end
