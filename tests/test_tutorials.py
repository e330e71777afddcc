"""Commands and snippets of the tutorials run, in order, at a small size; so do those of guides."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDES = ["README", "docs/index", "docs/augmentations", "docs/environments", "docs/logging",
          "docs/robot"]  # fmt: skip
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


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_the_snippets_of_a_guide_run(name: str, tmp_path: Path) -> None:
    """Those that do not quote the package, which tests/test_docs.py compares with its files."""
    text = (ROOT / f"{name}.md").read_text()
    log = tmp_path / "runs/first/metrics.jsonl"  # of a run that a page speaks of
    log.parent.mkdir(parents=True)
    log.write_text('{"kind": "eval", "decision": 0, "return_mean": 1.0}\n')
    blocks = re.findall(r"(<!-- \S+ -->\n)?```python\n(.*?)```", text, re.S)
    own = [body for quotes, body in blocks if not quotes]
    assert own
    for body in own:
        if file := NAMED.match(body):
            (tmp_path / next(filter(None, file.groups()))).write_text(body)
            body = f"import {file[2].removesuffix('.py')}"
        run(
            [sys.executable, "-c", f"if __name__ == '__main__':\n{indent(snippet(body))}"], tmp_path
        )


def indent(body: str) -> str:
    return textwrap.indent(body, "    ")


def test_every_tutorial_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in TUTORIALS if f"tutorials/{page.name}" not in text] == []
