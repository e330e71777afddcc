"""Evaluation: whole episodes of a trained agent in any mode.

`play` plays episodes with a policy, `requests` evaluates runs, `adaptation` is PAD at test time.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from svea.envs.episodes import Episodes
from svea.envs.given import Factory, name_task
from svea.errors import SveaError
from svea.evidence.evaluation.requests import POLICIES, Request, evaluate_runs
from svea.files import trust as modules
from svea.runs.load import load_config
from svea.runs.records import Record

__all__ = ["POLICIES", "Request", "evaluate", "evaluate_runs"]


def evaluate(
    run: str | Path,
    modes: Iterable[str] = ("train",),
    episodes: Episodes = 30,
    *,
    seed: int = 0,
    policy: str = "agent",
    environments: int = 0,
    device: str = "cpu",
    data_dir: str | None = None,
    task: str | Factory = "",
    trust: bool = False,
) -> list[Record]:
    """Evaluate a run's (or an exported) agent, and return one record per episode.

    Args:
        run: folder of a run or of an export.
        modes: where to evaluate.
        episodes: per mode, or ``all``: each of a mode's worlds once; or by mode, such as
            ``{"color_hard": 100, "default": 20}``.
        seed: of the evaluation; the same seed gives every agent the same episodes.
        policy: ``agent``, or ``random`` for the baseline that needs no learning.
        environments: in parallel; 0 is one per core.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        task: play in this task instead of the run's: a function that makes your world in another
            look, or its ``module:function``; it stands in the records' mode. A run of a function
            of a notebook needs that function here in another process.
        trust: import the modules that the run's config.json names, as in `load_agent`.

    Example:
        >>> records = evaluate("runs/demo", ["train", "color_hard"], episodes=10)  # doctest: +SKIP
        >>> sum(r["return"] for r in records if r["mode"] == "train") / 10  # doctest: +SKIP
    """
    modes, task = tuple(modes), name_task(task)
    modules.trust(task)
    if task == load_config(run, trust).task:
        task = ""
    request = Request(modes, episodes, seed, (policy,), environments, device, data_dir, task)

    def fail(run: Path, mode: str, error: SveaError) -> None:
        raise error

    records: list[Record] = []
    evaluate_runs([Path(run)], request, on_record=lambda _, r: records.append(r), on_problem=fail)
    order = list(dict.fromkeys(record["mode"] for record in records))
    return sorted(records, key=lambda record: (order.index(record["mode"]), record["episode"]))
