"""Every command and snippet of the tutorials runs, in order, at a small size."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
BLOCK = re.compile(r"^```(bash|python|toml)\n(.*?)^```", re.M | re.S)
NAMED = re.compile(r"Save this as `(\S+)`|# (\S+\.py)\n")
SMALL = {
    "decisions": 40, "warmup": 20, "eval_every": 40, "eval_episodes": 1, "image_size": 24,
    "batch_size": 4, "episode_frames": 80, "network.layers": 2, "network.filters": 4,
    "network.hidden": 16,
}  # fmt: skip
FLAGS = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in SMALL.items())
SETTINGS = " ".join(f"{name}={value}" for name, value in SMALL.items())


def small(command: str) -> str:
    """The same command with fewer decisions, smaller pictures and networks."""
    command = re.sub(r"^svea ", f"{sys.executable} -m svea ", command)
    if " svea train " in command:
        size = "--image-size 84 --network.layers 4" if "drqv2" in command else ""
        command += f" {FLAGS} {size}"
    if " svea sweep --tasks " in command:
        command = command.replace("--set ", f"--set {SETTINGS} ")
    return command


def snippet(text: str) -> str:
    given = ", ".join(f'"{name}": {value}' for name, value in SMALL.items())
    return text.replace('preset="quick"', f'preset="quick", **{{{given}}}')


def run(command: str | list[str], folder: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}",
        "OMP_NUM_THREADS": "1",
        "SVEA_ZOO": str(ROOT / "zoo"),
    }
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=environment, timeout=600,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        language, body = block.groups()
        before = text[: block.start()].rstrip().splitlines()[-1]
        name = NAMED.search(before) or NAMED.match(body)
        if language == "bash":
            for command in body.replace("\\\n", " ").splitlines():
                run(small(command), tmp_path)
        elif name:
            if language == "toml":
                pairs = ", ".join(f'"{k}" = {v}' for k, v in SMALL.items() if "." not in k)
                nets = ", ".join(f"{k[8:]} = {v}" for k, v in SMALL.items() if "." in k)
                body = body.replace(
                    'preset = "quick"', f'preset = "quick", {pairs}, network = {{{nets}}}'
                )
            (tmp_path / next(filter(None, name.groups()))).write_text(body)
        else:
            run([sys.executable, "-c", snippet(body)], tmp_path)


def test_every_tutorial_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in TUTORIALS if f"tutorials/{page.name}" not in text] == []
