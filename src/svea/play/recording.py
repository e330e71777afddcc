"""Films of the playground: some seconds of all agents side by side, as an mp4 next to a run."""

from __future__ import annotations

import io
import math
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from svea.core.errors import UserError
from svea.runs import layout, zoo

if TYPE_CHECKING:
    from svea.play.wire import Packet

SECONDS = 10.0
MOST_PICTURES = 1000
LONGEST_PICTURE = 1.0
"""Seconds that a picture stands in a film, at most: a pause is cut."""
MOST_FILMS = 100
"""Of one server; each is some megabytes."""


class Film:
    """Pictures of agents, as they are played: ten seconds of what a page shows."""

    def __init__(self) -> None:
        """No picture yet."""
        self._shown: list[list[Packet]] = []
        self._at, self._seconds = 0.0, 0.0

    def add(self, answers: list[Packet]) -> None:
        """One decision of every agent."""
        if answers and all(answer.parts for answer in answers):
            now = time.monotonic()
            self._seconds += min(now - self._at, LONGEST_PICTURE) if self._shown else 0.0
            self._at = now
            self._shown.append(answers)

    @property
    def seconds(self) -> int:
        """How long it is."""
        return int(self._seconds)

    @property
    def is_whole(self) -> bool:
        """Whether it is long enough."""
        return self._seconds >= SECONDS or len(self._shown) >= MOST_PICTURES

    @property
    def rate(self) -> float:
        """Pictures a second, as they were played."""
        return (len(self._shown) - 1) / max(self._seconds, 1e-3)

    def write(self, path: Path) -> None:
        """Write the mp4."""
        from svea.evaluation.film import Recording, grid, write_video

        by_agent: dict[int, Recording] = {}
        side = 0
        for answers in self._shown:
            for answer in answers:
                header = answer.header
                picture = Image.open(io.BytesIO(answer.parts[0])).convert("RGB")
                side = side or picture.width  # the page may change the size meanwhile
                if picture.size != (side, side):
                    picture = picture.resize((side, side))
                record = by_agent.setdefault(header["agent"], Recording(header["mode"]))
                record.pictures.append(np.asarray(picture))
                record.totals.append(header["return"])
                q = header["q"][-1] if header["q"] else None
                record.q.append(math.nan if q is None else q)
        write_video(path, grid([by_agent[k] for k in sorted(by_agent)]), self.rate)


class Films:
    """The films that this server has written; a page asks for one by its number."""

    def __init__(self, run: str) -> None:
        """Take the run next to which they go; without one, they go to runs/."""
        self._run, self._paths, self._writing = run, list[Path](), threading.Lock()

    def __getitem__(self, number: int) -> Path:
        return self._paths[number]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._paths)

    def write(self, film: Film) -> tuple[int, Path]:
        """Write a film under a new name; returns its number and path."""
        with self._writing:  # one at a time: encoding takes a core
            if len(self._paths) >= MOST_FILMS:
                raise UserError(f"{MOST_FILMS} films were recorded; start svea play again for more")
            folder = zoo.working_copy(self._run) if self._run else Path("runs")
            stem = f"play-{datetime.now():%Y%m%d-%H%M%S}"
            path = layout.media_file(folder, stem, ".mp4")
            again = 1
            while path.exists():
                again += 1
                path = layout.media_file(folder, f"{stem}-{again}", ".mp4")
            film.write(path)
            self._paths.append(path)
            return len(self._paths) - 1, path
