"""One evaluation of some runs: what they have on record is kept, what is missing is played."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from svea.config.modes import modes_for
from svea.core.errors import StorageError, SveaError, UserError
from svea.core.words import listed, plural
from svea.evaluation.episodes import episodes_in
from svea.runs.records import (
    Record,
    append_records,
    latest,
    protocol_key,
    read_records,
    replayed,
)

if TYPE_CHECKING:
    from svea.evaluation.requests import Request


class Scoring:
    """What was requested, what has been played, and what went wrong."""

    def __init__(self, runs: Sequence[Path], request: Request, again: bool = False) -> None:
        """Read what the runs have on record.

        Args:
            runs: folders of runs or exports.
            request: what to play.
            again: play recorded episodes, too.
        """
        if not runs:
            raise UserError(
                "no run to evaluate; name at least one folder made by `svea train`, or an agent of "
                "the zoo, before --modes and --episodes: they take all words after them"
            )
        self.runs, self.request = list(runs), request.check()
        self.records: dict[Path, list[Record]] = defaultdict(list)
        self.played = 0
        self.exit_code = 0
        self._places: dict[str, list[str]] = defaultdict(list)
        self._recorded = {run: [] if again else _recorded(run) for run in self.runs}
        self._known = {run: set(map(protocol_key, self._recorded[run])) for run in self.runs}
        self._counting = {
            run: set(map(protocol_key, latest(self._recorded[run]))) for run in self.runs
        }
        self._unwritable: dict[Path, StorageError] = {}

    @property
    def problems(self) -> list[str]:
        """What went wrong, each with the places that the error itself does not name."""
        return [
            f"{problem} ({listed(named)})" if (named := list(filter(None, places))) else problem
            for problem, places in self._places.items()
        ]

    @property
    def total(self) -> int | None:
        """How many episodes there will be; None where a mode's worlds are not counted yet."""
        counts = [count for run in self.runs for count in self._episodes(run)]
        numbers = [count for count in counts if isinstance(count, int)]
        return len(self.request.policies) * sum(numbers) if numbers == counts else None

    def play(
        self,
        on_episode: Callable[[Path, Record], None] = lambda run, record: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Play and record; what fails is a problem, and the rest is played.

        Args:
            on_episode: called with each record and its run.
            on_stop: called when Ctrl-C came and several agents still play.
        """
        from svea.evaluation.requests import evaluate_runs

        def take(run: Path, record: Record) -> None:
            self.records[run].append(record)
            key = protocol_key(record)
            self.played += key not in self._known[run]
            if key not in self._counting[run]:  # new, or evaluated with other pictures since
                self._write(run, record)
            on_episode(run, record)

        evaluate_runs(
            self.runs,
            self.request,
            known=self._recorded.__getitem__,
            on_record=take,
            on_problem=self._note,
            on_stop=on_stop,
        )
        self.records = {run: self.records[run] for run in self.runs if run in self.records}
        for error in self._unwritable.values():  # last, because the results still count
            self._fail("", error)

    @property
    def kept(self) -> str:
        """What an interrupted evaluation has on record."""
        played = plural(self.played, "new episode")
        return f"{played} recorded, the same command continues"

    def replayed(self) -> dict[str, int]:
        """How many recorded episodes were played again, by why."""
        found: dict[str, int] = defaultdict(int)
        for run, records in self.records.items():
            new = (record for record in records if protocol_key(record) not in self._known[run])
            for why, count in replayed(new, self._recorded[run]).items():
                found[why] += count
        return found

    def _episodes(self, run: Path) -> list[int | str]:
        """How many episodes a run is to play in each of its modes."""
        from svea.runs.load import load_config

        try:
            task = self.request.task or load_config(run).task
            modes = modes_for(task, self.request.modes, lambda *_: None)
        except SveaError:
            return []
        return [episodes_in(self.request.episodes, mode) for mode in modes]

    def _write(self, run: Path, record: Record) -> None:
        """Record an episode at once; a folder that cannot be written to is named once."""
        try:
            append_records(run, [record])
        except StorageError as error:
            self._unwritable.setdefault(run, error)

    def _note(self, run: Path, mode: str, error: SveaError) -> None:
        """Remember what could not be evaluated, and where as far as the error does not say."""
        where = [str(run)] if str(run) not in str(error) else []
        where += [f"in {mode}"] if mode and repr(mode) not in str(error) else []
        self._fail(" ".join(where), error)

    def _fail(self, where: str, error: SveaError) -> None:
        self._places[str(error)].append(where)
        self.exit_code = self.exit_code or error.exit_code


def _recorded(run: Path) -> list[Record]:
    """A run's records; a folder that cannot be read is named when it is evaluated."""
    try:
        return read_records(run)
    except StorageError:
        return []
