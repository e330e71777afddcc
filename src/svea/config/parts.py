"""What an observation consists of: one picture, or by name one or two pictures and a vector.

Environments show such an observation as a dictionary, and agents take one. In between, in shared
memory and in batches, pictures lie on one axis of channels, each with its own frames together, and
the vector lies behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from svea.core.errors import NumericsError, UserError

MOST_PICTURES = 2


@dataclass(frozen=True)
class Parts:
    """The parts of an observation; by default it is one picture, without a name."""

    pictures: tuple[str, ...] = ()
    """Their names, in the order in which they lie on the axis of channels."""
    vector: str = ""
    """Its name; none: there is no vector."""
    numbers: int = 0
    """In the vector."""

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Parts:
        """From JSON, as `dataclasses.asdict` gave it."""
        return cls(tuple(map(str, stored["pictures"])), stored["vector"], int(stored["numbers"]))

    @property
    def count(self) -> int:
        """How many pictures there are."""
        return len(self.pictures) or 1

    @property
    def names(self) -> tuple[str, ...]:
        """Of all parts, pictures first; nothing where an observation is the picture itself."""
        return (*self.pictures, self.vector) if self.vector else self.pictures

    def __str__(self) -> str:
        if not self.pictures:
            return "one picture"
        shown = f"pictures {' and '.join(map(repr, self.pictures))}"
        return shown + (f", vector {self.vector!r} of {self.numbers}" if self.vector else "")

    def dtype(self, shape: tuple[int, ...]) -> np.dtype[Any]:
        """One observation in memory, whose pictures together have a shape (channels, H, W)."""
        pictures = np.dtype((np.uint8, shape))
        if not self.numbers:
            return pictures
        fields = [("pictures", pictures), ("vector", np.float32, (self.numbers,))]
        return np.dtype(fields, align=True)

    def pack(self, observation: Any) -> Any:
        """What an environment shows, or several of that, as it lies in memory.

        >>> parts = Parts(("front", "wrist"), "joints", 7)
        >>> picture = np.zeros((9, 84, 84), np.uint8)
        >>> packed = parts.pack({"front": picture, "wrist": picture, "joints": np.zeros(7)})
        >>> packed["pictures"].shape, packed["vector"].shape
        ((18, 84, 84), (7,))
        """
        if not self.pictures:
            return observation
        self.check_names(observation)
        shown = [np.asarray(observation[name]) for name in self.pictures]
        if shown[0].shape != shown[-1].shape:
            shapes = " and ".join(str(picture.shape) for picture in shown)
            raise UserError(f"an observation has pictures shaped {shapes}; allowed: both alike.")
        pictures = np.concatenate(shown, axis=-3) if len(shown) > 1 else shown[0]
        if not self.numbers:
            return pictures
        rows = pictures.shape[:-3]
        packed = np.empty(rows, self.dtype(pictures.shape[-3:]))
        packed["pictures"], packed["vector"] = pictures, self.read_vector(observation, rows)
        return packed

    def split(self, observations: Any) -> tuple[Any, Any]:
        """Pictures and vectors (None if there are none) of what is packed or given by name."""
        if isinstance(observations, Mapping):
            self.check_names(observations)
            observations = self.pack(observations)
        if not self.numbers:
            return observations, None
        if not getattr(getattr(observations, "dtype", None), "names", None):
            self.check_names(observations)
        return np.ascontiguousarray(observations["pictures"]), observations["vector"].copy()

    def newest(self, observation: Any) -> tuple[Any, Any]:
        """The newest frames of one packed observation on one axis of channels, and its vector."""
        pictures, vector = self.split(observation)
        if self.count == 1:
            return pictures[-3:], vector
        frames = pictures.reshape(self.count, -1, *pictures.shape[1:])[:, -3:]
        return frames.reshape(-1, *pictures.shape[1:]), vector

    def check_names(self, observation: Any) -> None:
        """Refuse other parts than these."""
        given = f"{type(observation).__name__} {getattr(observation, 'shape', '')}".strip()
        if isinstance(observation, Mapping):
            if self.pictures and observation.keys() == {*self.names}:
                return
            given = f"a dictionary of {', '.join(map(repr, observation)) or 'nothing'}"
        wanted = f"a dictionary of {self}" if self.pictures else "just the picture, as an array"
        raise UserError(f"an observation is {given}; allowed: {wanted}.")

    def read_vector(self, observation: Mapping[str, Any], rows: tuple[int, ...] = ()) -> np.ndarray:
        """The vector, of one observation or of rows; another length, or no number, is refused."""
        given = np.asarray(observation[self.vector])
        vector = given.astype(np.float32)
        if vector.shape != (*rows, self.numbers) or given.dtype.kind != "f":
            raise UserError(
                f"{self.vector!r} is {given.dtype} shaped {given.shape}; allowed: floats shaped "
                f"{(*rows, self.numbers)}, at every step as in the observation space."
            )
        if not np.isfinite(vector).all():
            raise NumericsError(f"{self.vector!r} is not finite: {vector.tolist()}")
        return vector


PLAIN = Parts()
JOINTS = 14  # of the robot: the angles of its seven joints, then their velocities

OBSERVATIONS = {
    "pictures": PLAIN,
    "pictures+joints": Parts(("view",), "joints", JOINTS),
    "pictures+gripper": Parts(("view", "gripper")),
    "pictures+gripper+joints": Parts(("view", "gripper"), "joints", JOINTS),
}
"""What a robot task may show, by the names that users type."""
