"""What a training run shows: a live panel on a terminal, plain lines elsewhere."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svea.config import Config, Role, fields
from svea.config.names import own_modules
from svea.core.given import fingerprint
from svea.core.terminal import console, redrawn, waiting
from svea.core.words import duration, plural

QUIET_SECONDS = 30.0  # the longest that a log file shows no line while something is done
SETTLING = 10  # turns in which updates are compiled and captured


class Display:
    """Progress of a training run."""

    def __init__(self, config: Config, start: int = 0, name: str = "") -> None:
        """Show a run; its name stands before its lines where several share a process.

        The time left follows from the decisions after the warm-up, which are slower, and after the
        first of the process, which wait for updates to be compiled.
        """
        self.config, self.name, self.decision = config, name, start
        self._prefix = f"{name}: " if name else ""
        self.console = console()
        self.values: dict[str, Any] = {}
        self._steady = max(start, config.warmup) + SETTLING * config.envs
        self._first: int | None = None  # of the decisions that tell the time left
        self._began = self._last_line = time.monotonic()
        self._live: Live | None = None
        self._doing, self._returns = "", ""

    @contextmanager
    def show(self) -> Iterator[None]:
        """Show the panel while the run works (on a terminal)."""
        with redrawn(self.console, self, refresh_per_second=4) as self._live:
            yield
        self._live = None

    def waiting(self, doing: str) -> AbstractContextManager[object]:
        """Say what takes a while before there is anything to show (on a terminal)."""
        return waiting(f"{self._prefix}{doing}", self.console)

    def say(self, text: str) -> None:
        """Print lines that stay."""
        self._last_line = time.monotonic()
        for line in text.splitlines():
            self.console.print(f"{self._prefix}{line}", markup=False, soft_wrap=True)

    def progress(
        self, decision: int, doing: str = "", values: dict[str, Any] | None = None
    ) -> None:
        """Show the newest values; where there is no panel, a line if there was none for long."""
        self.decision, self._doing = decision, doing
        if self._first is None and decision >= self._steady:
            self._first, self._began = decision, time.monotonic()
        self.values |= values or {}
        if self._live is None and time.monotonic() - self._last_line > QUIET_SECONDS:
            self.line(doing)

    def line(self, text: str, stays: bool = False) -> None:
        """Print how far the run is: where there is a panel, above it if the line `stays`."""
        if stays or self._live is None:
            self.say("  ".join(filter(None, (self._where(), text, self._eta()))))

    def evaluation(self, decision: int, means: dict[str, float], episodes: int) -> None:
        """The mean returns of an evaluation, by mode, and of how many episodes: it stays."""
        self.progress(decision, values={f"return_{mode}": mean for mode, mean in means.items()})
        shown = ", ".join(f"{mode} {mean:.1f}" for mode, mean in means.items())
        self._returns = f"{shown} ({plural(episodes, 'episode')} each)"
        self.line(f"evaluation: {self._returns}", stays=True)

    def done(self) -> None:
        """The last lines of a run: its returns, and what to type next."""
        returns = f"; last returns: {self._returns}" if self._returns else ""
        said = f"done: {self.decision:,} decisions in {self.config.folder}{returns}"
        self.say(f"{said}\n{next_commands(self.config)}")

    def _where(self) -> str:
        frames = self.decision * self.config.action_repeat
        return f"decision {self.decision:,}/{self.config.decisions:,} (frame {frames:,})"

    def _eta(self) -> str:
        if self._first is None or self.decision <= self._first:
            return ""
        done = self.decision - self._first
        each = (time.monotonic() - self._began) / done
        return f"ETA {duration((self.config.decisions - self.decision) * each)}"

    def __rich__(self) -> Panel:
        """The panel."""
        table = Table.grid(padding=(0, 2))
        values = list(self.values.items())
        for start in range(0, len(values), 3):
            cells = []
            for name, value in values[start : start + 3]:
                shown = f"{value:,.3g}" if isinstance(value, float) else str(value)
                cells.append(Text.assemble((name.replace("_", " ") + " ", "dim"), shown))
            table.add_row(*cells)
        head = Text(f"{self._where()}   {self._eta()}   {self._doing}")
        bar = Table.grid(expand=True)  # a bar alone does not end its line: the next row was cut off
        bar.add_row(ProgressBar(total=self.config.decisions, completed=self.decision))
        # Not the whole width: what the terminal shows for Ctrl-C would begin a line of its own, and
        # the panel be drawn over from one line too low.
        wide, framed = self.console.width - 4, Group(head, bar, table)
        title = f"svea · {self.config.task} · {self.config.method} · seed {self.config.seed}"
        return Panel(framed, title=title, title_align="left", width=wide)


def next_commands(config: Config) -> str:
    """What one does with a finished run, as commands, which trust what is the user's own.

    A task that was given as a function is played in from Python alone.
    """
    run = shlex.quote(str(config.folder))
    if fingerprint(config.task) is not None:
        here = f"`svea.evaluate({str(config.folder)!r}, modes=['train', 'picture_colors'])`"
        return f"next: in Python {here}; then `svea report {run}`"
    trust = " --trust" if own_modules(vars(config)) else ""
    verbs = (f"eval {run}{trust}", f"report {run}", f"watch {run}{trust}")
    return "next: " + ", ".join(f"`svea {verb}`" for verb in verbs)


def run_names(configs: Sequence[Config]) -> list[str]:
    """What several runs of one process are called in its lines: task, method and seed.

    Runs with the same task and method are told apart by the other options in which they differ.
    """
    settings = [
        {option.path: option.value for option in fields(config) if option.role is Role.WHAT}
        for config in configs
    ]
    names = []
    for config, own in zip(configs, settings, strict=True):
        same = [s for s in settings if (s["task"], s["method"]) == (config.task, config.method)]
        extra = [  # names such as vit or overlay speak for themselves
            value if isinstance(value, str) and value else f"{name}={value}"
            for name, value in own.items()
            if any(other[name] != value for other in same)
        ]
        names.append(" ".join([config.task, config.method, *extra, f"s{config.seed}"]))
    return names
