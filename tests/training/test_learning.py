"""Every method, base and encoder learns the toy from pixels; measured by return, never by time.

An untrained agent earns 1 to 3 of 10, random play 3.8, and 9 is nearly the best. With these budgets
seeds 0 to 2 of every case came to 7.7 or more.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import tiny

from svea.training import train

BUDGET: dict[str, Any] = {
    "decisions": 600,
    "warmup": 100,
    "batch_size": 32,
    "network": {"layers": 2, "filters": 8, "projection": 16, "hidden": 64},
    "sac": {"initial_temperature": 0.01},
    "eval_every": 10_000,  # at the beginning and at the end
    "eval_episodes": 20,
    "save_every": 10_000,
    "log_every": 10_000,
}
CROP = {"crop": 2}
CASES: dict[str, dict[str, Any]] = {
    "svea": {},
    "drq": {"method": "drq"},
    "sac": {"method": "sac"},
    "rad": {"method": "rad", **CROP},
    "curl": {"method": "curl", **CROP},
    "pad": {"method": "pad", **CROP, "network.head_layers": 1},
    "soda": {"method": "soda", "augment": "conv", "soda.batch_size": 64, **CROP},
    "sada": {"method": "sada"},
    "svea-drift": {"method": "svea-drift", "overlay_dir": "procedural"},
    "svea-motion": {"method": "svea-motion", "overlay_dir": "procedural"},
    "simgrl": {"method": "simgrl", "network.frame_layers": 1, "overlay_dir": "procedural"},
    "frames": {"encoder": "frames", "network.frame_layers": 1},
    "overlay_drift": {"augment": "overlay_drift", "overlay_dir": "procedural"},
    "spectrum": {"augment": "spectrum"},
    "amplitude_mix": {"augment": "amplitude_mix"},
    "svea-rad": {"method": "svea-rad", **CROP},
    "sgqn": {"method": "sgqn", "augment": "conv"},
    "madi": {"method": "madi", "augment": "conv", "madi.filters": 8},
    "ddpg": {"base": "ddpg", "ddpg": {"learning_rate": 1e-3, "noise_decisions": 400}},
    "dqn": {"base": "dqn", "action_bins": 3, "network.strided_layers": 2, "decisions": 300,
            "dqn": {"learning_rate": 1e-3, "epsilon_decisions": 200}},
    "vit": {"encoder": "vit", "network.patch": 4, "network.width": 32, "network.depth": 2,
            "network.heads": 4},
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ("svea", "dqn") else pytest.mark.slow) for n in CASES],
)
def test_it_improves_on_the_toy(name: str, tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", **(BUDGET | CASES[name])))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    before, after = (line["return_mean"] for line in lines if line["kind"] == "eval")
    assert after > before + 3 and after > 6.5, (before, after)
