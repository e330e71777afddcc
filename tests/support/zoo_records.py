"""Returns of an agent of the zoo, read from the files of its run and nothing else."""

import json
from pathlib import Path


def recorded_returns(run: Path, decision: int, mode: str) -> list[float]:
    """Those of `svea eval`, else those played in training; none if neither evaluated the mode.

    Of several kinds of pictures the last: the benchmark's own clips came after re-coded ones.
    """
    where = (mode, decision)
    episodes = map(json.loads, (run / "eval.jsonl").read_text().splitlines())
    found = [r for r in episodes
             if r["policy"] == "agent" and (r["mode"], r["decision"]) == where]  # fmt: skip
    found = [r["return"] for r in found if r["provenance"] == found[-1]["provenance"]]
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    played = [r["returns"] for r in lines
              if r.get("kind") == "eval" and (r["mode"], r["decision"]) == where]  # fmt: skip
    return found or [value for returns in played[-1:] for value in returns]
