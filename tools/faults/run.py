"""The fault kit: everything that can go wrong, tried; one table of what survived.

    python tools/faults/run.py                       # all of it: at most 2 hours on 2 cores
    python tools/faults/run.py --scale 0.1 --jobs 16
    python tools/faults/run.py kills hostile         # some parts

It needs Linux, svea's training packages, and nothing else: no network, no pytest.
"""

import argparse
import ctypes.util
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT / part) for part in ("src", "tools", "tests/support")]  # not this folder
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # small tensors; and results must not depend on the machine
os.environ.pop("SVEA_DATA", None)
if ctypes.util.find_library("OSMesa"):
    os.environ.setdefault("MUJOCO_GL", "osmesa")  # draws the same each time, which GPUs do not

from faults import (  # noqa: E402
    configurations,
    damage,
    disks,
    endurance,
    environments,
    hostile,
    kills,
    undefined,
)
from faults.tally import MOST_REPORTS, Part, Tally, run  # noqa: E402

SHARD_SECONDS = 7200.0

PARTS = (  # the longest first, so that no core waits for it at the end
    Part("soak", "decisions of a long run, in thousands", 200, 200, endurance.soak),
    Part("rendered-soak", "the same with rendering, in hundreds", 50, 50, endurance.rendered_soak),
    Part("kills", "SIGKILL at a random time, then the same command", 100, 10, kills.kills),
    Part("gpu-kills", "SIGKILL of a run on a GPU, --deterministic", 16, 4, kills.gpu_kills),
    Part("nan", "NaN and infinity put into an update", 180, 18, undefined.nan_injections),
    Part("workers", "runs with four worker failures each", 25, 5, environments.worker_failures),
    Part("signals", "SIGINT and SIGTERM at a random time", 40, 10, kills.signals),
    Part("truncations", "truncated files, of each of 8 kinds", 4000, 500, damage.truncations),
    Part("bit-flips", "files with flipped bits, of each of 8 kinds", 5000, 500, damage.bit_flips),
    Part("save-kills", "SIGKILL at each system call of a save", 1000, 250, disks.save_kills),
    Part("storage", "six errors at each write", 1000, 250, disks.storage_errors),
    Part("full-disks", "runs with a storage error", 36, 6, disks.full_disks),
    Part("media-truncations", "truncated pictures and videos", 200, 50, damage.media_truncations),
    Part("media-bit-flips", "the same with flipped bits", 200, 50, damage.media_bit_flips),
    Part("cycles", "environments made and closed", 200, 200, environments.cycles),
    Part("physics", "simulations that diverge", 300, 300, undefined.physics),
    Part("configurations", "random configurations", 5000, 1250, configurations.fuzzed),
    Part("hostile", "hostile files", 61, 61, hostile.hostile),
    Part("special", "pipes, devices and sparse files", 105, 27, hostile.special_files),
)


def main() -> int:
    """Read the flags, run the parts, print the table; the exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    names = [part.name for part in PARTS]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of: {', '.join(names)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (2)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full size (1.0)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (0)")
    parser.add_argument("--shard", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.parts) - set(names):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; allowed: {', '.join(names)}")
    parts = [part for part in PARTS if part.name in options.parts or not options.parts]
    if options.shard:
        return run_shard(parts[0], range(*options.shard), options.seed)
    began = time.monotonic()
    start = lambda part, cases: start_shard(part, cases, options.seed)  # noqa: E731
    results = run(parts, options.jobs, options.scale, start)
    print(table(results), footer(options, time.monotonic() - began), sep="\n\n")
    for part, tally in results:
        for loss in tally.losses[:MOST_REPORTS]:
            print(f"\nLOST in {part.name}: {loss}", file=sys.stderr)
    return int(any(tally.losses for _, tally in results))


def start_shard(part: Part, cases: range, seed: int) -> Tally:
    """One shard, in a process of its own: a crash there is a loss, not the end."""
    words = [part.name, "--shard", str(cases.start), str(cases.stop), "--seed", str(seed)]
    try:
        command = [sys.executable, __file__, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SHARD_SECONDS)
    except subprocess.TimeoutExpired:
        return Tally(len(cases), 0, [f"{cases}: no end after {SHARD_SECONDS:.0f} s"])
    if done.returncode:
        return Tally(len(cases), 0, [f"the shard {cases} itself failed:\n{done.stderr[-3000:]}"])
    return Tally(**json.loads(done.stdout.splitlines()[-1]))


def run_shard(part: Part, cases: range, seed: int) -> int:
    """In the shard's process: try, and print the count as the last line."""
    with tempfile.TemporaryDirectory(prefix="svea-faults-") as folder:
        tally = part.function(cases, seed, Path(folder))
    print("\n" + json.dumps(dataclasses.asdict(tally)), flush=True)
    return 0


def table(results: list[tuple[Part, Tally]]) -> str:
    """The table, as in docs/reliability.md."""
    lines = ["| part | tried | survived | lost | worst measured |", "|---|---:|---:|---:|---|"]
    for part, tally in results:
        found = [f"{name}: {value:.3g}" for name, value in tally.measured.items()]
        remarks = "; ".join(filter(None, [*found, tally.skipped]))
        counts = f"{tally.tried:,} | {tally.survived:,} | {tally.tried - tally.survived:,}"
        lines.append(f"| {part.title} | {counts} | {remarks} |")
    return "\n".join(lines)


def footer(options: argparse.Namespace, seconds: float) -> str:
    """Command, machine and date."""
    import torch

    words = [*options.parts, f"--scale {options.scale:g}", f"--jobs {options.jobs}"]
    words += [f"--seed {options.seed}"]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return (
        f"`python tools/faults/run.py {' '.join(words)}`, {today}: {seconds / 60:.0f} minutes on "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}."
    )


if __name__ == "__main__":
    sys.exit(main())
