"""How far storing an agent small moves its actions, on observations that it sees itself.

python benchmarks/stored.py RUN --observations 300
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from svea.evaluation.film import record
from svea.runs.load import export, load_agent, load_config


def main() -> None:
    """Play episodes with the agent as it is; compare what both would do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a run or a whole export")
    parser.add_argument("--observations", type=int, default=300)
    parser.add_argument("--episodes", type=int, default=2)
    options = parser.parse_args()

    config, agent = load_config(options.run), load_agent(options.run)
    with tempfile.TemporaryDirectory() as folder:
        stored = load_agent(export(options.run, Path(folder) / "small", small=True))
    seen = [
        observation
        for seed in range(options.episodes)
        for observation in record(agent, config, "train", seed=seed, size=None).observations
    ]
    chosen = np.linspace(0, len(seen) - 1, options.observations).astype(int)
    actions = [np.concatenate([one.act(seen[k][None]) for k in chosen]) for one in (agent, stored)]
    gap = np.abs(actions[0] - actions[1])
    print(
        f"{options.run}: {len(chosen)} observations, actions in [-1, 1] with standard deviation "
        f"{actions[0].std():.2f}; difference mean {gap.mean():.4f}, 99th percentile "
        f"{np.quantile(gap, 0.99):.4f}, largest {gap.max():.4f}"
    )


if __name__ == "__main__":
    main()
