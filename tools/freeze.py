"""Compare what two commits compute, bit for bit: the licence for a refactoring.

    python tools/freeze.py main HEAD [--only 'svea *' tables ...] [--keep ~/digests]

Each commit is exported and runs in fresh interpreters, through the command line only. The exit code
is 1 if anything differs or fails. Digests are for one machine: bits differ between kinds of CPU.

- NAME eager, NAME compiled, envs, robot: 300 decisions, killed about half-way and continued by the
  same command. Every tensor of the last checkpoint counts, the replay, and the metrics without the
  clock. `whole` is `svea eager` without a kill, and must equal it.
- modes: the agent in tests/fixtures/run plays in every mode; pictures: sheets of `svea gallery`.
- tables: what `svea report` and `svea compare` make of tests/fixtures/records.
- results: the tables that scripts/results.py makes of results/.
- help: a verb or a flag that is gone counts; other wording is only shown.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests/fixtures"
AT_ONCE, PATIENCE = 2, 900  # commands of one thread each; seconds for one
SMALL = (
    "--preset quick --device cpu --decisions 300 --warmup 60 --save-every 50 --log-every 20 "
    "--image-size 32 --batch-size 8 --network.layers 3 --network.filters 16 --network.hidden 32 "
    "--network.projection 16 --overlay-dir procedural --rendering fast --episode-frames 200 "
    "--eval-every 200 --eval-episodes 1 --eval-envs 1 --no-eval-first"
)
METHODS = ("svea", "drq", "rad", "curl", "pad", "sac", "sada", "simgrl", "madi", "sgqn")
LEARNERS = {
    **{method: f"walker_walk --method {method}" for method in METHODS},
    "soda": "walker_walk --method soda --soda.batch-size 16",
    "ddpg": "walker_walk --base ddpg",
    "dqn": "cartpole_swingup --base dqn --action-bins 5",
    "vit": "walker_walk --encoder vit --network.width 32 --network.depth 2 --network.heads 2",
    "drqv2": "walker_walk --encoder drqv2 --network.layers 4",
    "frames": "walker_walk --encoder frames",
    "overlay": "walker_walk --augment overlay",
    "conv": "walker_walk --method drq+aug --augment conv",
}
RUNS = {f"{name} {speed}": f"{flags} {SMALL} --speed {speed}"
        for name, flags in LEARNERS.items() for speed in ("eager", "compiled")}  # fmt: skip
RUNS["whole"] = RUNS["svea eager"]
RUNS |= {"envs": f"walker_walk {SMALL} --envs 2", "robot": f"robot_push {SMALL}"}
BLOCK = re.compile(r"(<!-- ([\w-]+): written by make results -->\n).*?(<!-- end of \2 -->)", re.S)
Found = dict[str, str]  # what a case computes: digests or texts by name


def main() -> int:
    """Run the cases for both commits, unless they are kept, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commits", nargs=2, metavar="COMMIT")
    parser.add_argument("--only", nargs="+", default=["*"], help="cases; * and ? are patterns")
    parser.add_argument("--keep", type=Path, help="folder for what commits compute, for next time")
    given = parser.parse_args()
    names = [n for n in (*CASES, *RUNS) if any(fnmatch(n, pattern) for pattern in given.only)]
    one, two = (found_in(commit, names, given.keep) for commit in given.commits)
    old, new = ("\n".join(found.get("help", {}).values()).splitlines() for found in (one, two))
    print(*difflib.unified_diff(old, new, n=0, lineterm=""), sep="\n")
    different = [line for name in names for line in differences(name, one[name], two[name])]
    if {"svea eager", "whole"} <= set(names):
        different += differences("killed or not", one["svea eager"], one["whole"])
    print(*different or [f"equal: {len(names)} cases"], sep="\n")
    return 1 if different or not names else 0


def differences(name: str, one: Found, two: Found) -> Iterator[str]:
    """Lines that say what is not the same in a case."""
    if error := one.get("error") or two.get("error"):
        yield f"{name}: {error}"
    elif name == "help":
        for verb, text in one.items():
            if gone := flags(text) - flags(two.get(verb, "")):
                yield f"help: gone from `{verb}`: {', '.join(sorted(gone))}"
    elif unequal := [part for part in one | two if one.get(part) != two.get(part)]:
        yield f"{name}: different: {', '.join(unequal)}"


def found_in(commit: str, names: list[str], keep: Path | None) -> dict[str, Found]:
    """What a commit computes; kept results count while the command is the same."""
    commit = subprocess.check_output(["git", "rev-parse", commit], cwd=ROOT, text=True).strip()
    path = keep / f"digests-{commit[:7]}.json" if keep else Path(os.devnull)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = json.loads(path.read_text() or "{}") if path.exists() else {}
    missing = [n for n in names if kept.get(n, {}).get("command") != RUNS.get(n, n)]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(AT_ONCE) as pool:
        if missing:
            export(commit, Path(scratch, "tree"))
        for name, found in zip(missing, pool.map(lambda n: run(scratch, n), missing), strict=True):
            kept[name] = found | {"command": RUNS.get(name, name)}
            path.write_text(json.dumps({n: f for n, f in kept.items() if "error" not in f}))
    return {name: kept[name] for name in names}


def export(commit: str, tree: Path) -> None:
    """Write the files of a commit, and see that Python imports them."""
    tree.mkdir()
    subprocess.run(f"git archive {commit} | tar -x -C '{tree}'", shell=True, cwd=ROOT, check=True)
    where = python(tree, "-c print(__import__('svea').__file__)")
    if not where.startswith(str(tree)):
        raise SystemExit(f"python imports {where}, not {tree}")


def run(scratch: str, name: str) -> Found:
    """A case in a folder of its own, next to the tree; an error equals nothing."""
    begun, folder = time.monotonic(), Path(scratch, name)
    folder.mkdir()
    try:
        found = CASES[name](folder) if name in CASES else train(name, folder)
    except Exception as error:  # the other cases run all the same
        found = {"error": str(error)}
    print(f"{name}: {time.monotonic() - begun:.0f} s", found.get("error", ""), flush=True)
    return found


def start(folder: Path, arguments: str) -> subprocess.Popen[str]:
    """Python in a folder next to the tree: one thread, and nothing that a user has set."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SVEA_", "PYTHON"))}
    env |= {"PYTHONPATH": f"{folder.parent}/tree/src", "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    command, pipe = [sys.executable, *arguments.split()], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)


def python(folder: Path, arguments: str) -> str:
    """What Python prints."""
    process = start(folder, arguments)
    printed, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {errors[-2000:]}")
    return printed


def train(name: str, folder: Path) -> Found:
    """A run that is killed and continued, or `whole`."""
    command = f"-m svea train {RUNS[name]} --out run"
    if name != "whole":
        kill_half_way(command, folder)
    python(folder, command)
    *_, last = sorted(folder.glob("run/checkpoints/[0-9]*/*.safetensors"))
    replay = sorted(folder.glob("run/replay/[0-9]*.safetensors"))
    metrics = digest(json_lines(folder / "run/metrics.jsonl"))
    return {"metrics": metrics, **digests("agent", [last]), **digests("replay", replay)}


def kill_half_way(command: str, folder: Path) -> None:
    """Begin a run and kill it once it has saved enough; every later moment is as good."""
    process = start(folder, command)
    saved = "run/checkpoints/[0-9]*[1-9][0-9][0-9]/manifest.json"  # 100 decisions and more
    while process.poll() is None and not any(folder.glob(saved)):
        time.sleep(0.02)
    process.kill()
    if process.wait() == 0:  # one that failed fails again, and then says why
        raise RuntimeError("the run ended before it was killed")


def modes(folder: Path) -> Found:
    """Returns and lengths of episodes."""
    shutil.copytree(FIXTURES / "run", folder / "run")
    python(folder, "-m svea eval run --modes everything --episodes 1 --envs 1")
    played = json_lines(folder / "run/eval.jsonl")
    return {str(one["mode"]): f"{one['return']} {one['length']}" for one in played}


def pictures(folder: Path) -> Found:
    """Sheets of `svea gallery`."""
    for sheet in ("augmentations --overlay-dir procedural", "environments --modes all", "robot"):
        python(folder, f"-m svea gallery {sheet}")
    return {path.name: digest(path.read_bytes().hex()) for path in folder.glob("*.png")}


def tables(folder: Path) -> Found:
    """Tables, and the numbers behind figures."""
    shutil.copytree(FIXTURES / "records", folder / "records")
    python(folder, "-m svea report records -o page.html --figures figures")
    found = {"compare": python(folder, "-m svea compare svea drq --runs records --json")}
    paths = [path for path in folder.glob("figures/*") if path.suffix in (".csv", ".md", ".tex")]
    return found | {path.name: path.read_text() for path in paths}


def results(folder: Path) -> Found:
    """Rows of the tables in pages, which are emptied before they are written again."""
    tree = folder.parent / "tree"
    pages = [page for page in tree.rglob("*.md") if BLOCK.search(page.read_text())]
    for page in pages:
        page.write_text(BLOCK.sub(r"\1\3", page.read_text()))
    python(tree, "scripts/results.py")
    blocks = [block for page in pages for block in BLOCK.finditer(page.read_text())]
    return {block[2]: digest(re.findall(r"^\|.*", block[0], re.M)) for block in blocks}


def help_texts(folder: Path) -> Found:
    """The help of every verb, and of the verbs beneath it."""
    texts = {"svea": python(folder, "-m svea --help")}
    for verb in re.findall(r"^  svea (\w+)", texts["svea"], re.M):
        texts[verb] = python(folder, f"-m svea {verb} --help")
        for below in re.findall(rf"(?:• |`svea {verb} )([a-z][a-z-]*)", texts[verb]):
            texts[f"{verb} {below}"] = python(folder, f"-m svea {verb} {below} --help")
    return texts


CASES = dict(help=help_texts, tables=tables, results=results, modes=modes, pictures=pictures)


def flags(text: str) -> set[str]:
    """The flags that a help text defines."""
    heads = [line.strip("│ ").split("  ")[0] for line in text.splitlines()]
    return {flag for h in heads if h[:1] == "-" for flag in re.findall(r"(?<!\S)--?\w[\w.-]*", h)}


def json_lines(path: Path) -> list[dict[str, object]]:
    """The records in a file, without what the clock says."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in r.items() if not re.search("^seconds|_per_", k)} for r in records]


def digest(value: object) -> str:
    """Of what JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def digests(kind: str, paths: list[Path]) -> Found:
    """Of names, types, shapes and bytes of the tensors in files, by the first part of the name."""
    parts: dict[str, hashlib._Hash] = {}
    for path in paths:
        data = path.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = {k: v for k, v in json.loads(data[8:begin]).items() if k != "__metadata__"}
        for name, about in sorted(header.items()):
            part = parts.setdefault(f"{kind}: {name.partition('.')[0]}", hashlib.sha256())
            part.update(f"{name} {about['dtype']} {about['shape']}".encode())
            part.update(data[slice(*(begin + offset for offset in about["data_offsets"]))])
    return {name: part.hexdigest() for name, part in parts.items()}


if __name__ == "__main__":
    sys.exit(main())
