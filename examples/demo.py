"""Train SVEA from pixels on this machine, then evaluate it under colours it never saw.

`make demo` runs this. It writes a run folder with `report.html`, `summary.json`, curves, videos and
a checkpoint; if it is interrupted, the same command continues it. docs/demo.md says what to expect.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

import svea
from svea.errors import SveaError
from svea.evidence.film.video import record_episode
from svea.evidence.report import write_report
from svea.files import replace_json
from svea.runs.records import append_records

TASK = "cheetah_run"
MODES = ["train", "color_hard"]
EPISODES = 30


def seconds_so_far(run: Path) -> float:
    """Wall time that earlier, interrupted parts of the run took."""
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return float(json.loads(lines[-1])["seconds"]) if lines else 0.0


def main() -> None:
    """Train, evaluate, report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    options = parser.parse_args()

    started = time.monotonic() - seconds_so_far(options.out)

    # A slow or busy machine stops training early and shows what it has; run it again to continue.
    settings = {"preset": "quick", "seed": options.seed, "out": str(options.out)}
    run = svea.train(svea.configure(TASK, time_limit="11m", **settings))

    print("evaluating: the agent in train and color_hard, then the random policy")
    agent = svea.evaluate(run, MODES, EPISODES)
    random = svea.evaluate(run, ["train"], EPISODES, policy="random")
    append_records(run, agent + random)
    for mode in MODES:
        record_episode(run, mode)

    def mean_return(records: list, mode: str) -> float:
        return float(np.mean([r["return"] for r in records if r["mode"] == mode]))

    summary = {
        "task": TASK,
        "seed": options.seed,
        "random_return": mean_return(random, "train"),
        "train_return": mean_return(agent, "train"),
        "color_hard_return": mean_return(agent, "color_hard"),
        "episodes": EPISODES,
        "seconds": round(time.monotonic() - started, 1),
    }
    replace_json(run / "summary.json", summary)
    page = write_report([run], run / "report.html")

    print(f"\n{TASK}, mean return over {EPISODES} episodes, actions sampled from the policy")
    print(f"  random policy              {summary['random_return']:7.1f}")
    print(f"  SVEA, training colours     {summary['train_return']:7.1f}")
    print(f"  SVEA, colours never seen   {summary['color_hard_return']:7.1f}")
    print(f"\n{summary['seconds']:.0f} s. Open {page} in a browser.")


if __name__ == "__main__":
    try:
        main()
    except SveaError as error:
        print(f"demo: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("demo: stopped; the same command continues", file=sys.stderr)
        sys.exit(130)
