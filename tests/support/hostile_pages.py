"""What a hostile client sends to the playground."""

from __future__ import annotations

import json
import random

from svea.play.setting import LONGEST_MESSAGE


def malformed(rng: random.Random) -> str:
    """Something that a page never sends."""
    good = json.dumps({"do": "set", "setting": {"noise": 0.1}})
    kinds = [
        lambda: good[: rng.randrange(1, len(good))],
        lambda: "".join(chr(rng.randrange(1, 0xD7FF)) for _ in range(rng.randrange(1, 200))),
        lambda: "[" * rng.randrange(1, LONGEST_MESSAGE),
        lambda: '{"a":' * rng.randrange(1, 700),
        lambda: json.dumps({"do": rng.choice([None, 1, [], {}])}),
        lambda: json.dumps([good]),
        lambda: "9" * LONGEST_MESSAGE,
        lambda: '{"do": NaN}',
        lambda: " " * (LONGEST_MESSAGE + 1),
    ]
    return rng.choice(kinds)()
