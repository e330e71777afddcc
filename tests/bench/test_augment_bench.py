"""`svea bench augment`: which rows there are."""

from __future__ import annotations

import pytest

from svea.bench.augment import REFERENCE, time_augmentations
from svea.core.errors import UserError


def test_every_augmentation_is_timed_with_its_loop_next_to_a_yardstick() -> None:
    reference, shift, of_bytes = time_augmentations(["shift"], batch=2, size=12, repeats=3)
    assert (reference.name, reference.loop_ms) == (REFERENCE, None)
    assert (shift.name, of_bytes.name) == ("shift", "shift (uint8)")
    assert shift.batch == (2, 9, 12, 12) and shift.ms > 0 and (shift.loop_ms or 0) > 0


def test_nothing_to_measure_is_refused() -> None:
    with pytest.raises(UserError, match=r"repeats is 0; allowed: 1 or more"):
        time_augmentations(["shift"], repeats=0)
    with pytest.raises(UserError, match="unknown augmentation 'shif'"):
        time_augmentations(["shif"])
