"""A new user's path: in a fresh shell the commands of the first pages work one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FIRST = ["README.md", "docs/index.md", "docs/tutorials/first-agent.md"]
"""What a user reads before anything is installed."""
LATER = sorted({*ROOT.glob("docs/tutorials/*.md"), ROOT / "docs/commands.md"})
ACTIVATE = "source .venv/bin/activate"
COMMAND = re.compile(r"^(?:    )?((?:make|source|svea) .*)$", re.M)


@pytest.mark.parametrize("page", FIRST)
def test_the_commands_of_the_first_pages_run_in_a_fresh_shell(page: str, tmp_path: Path) -> None:
    """Of a clone in which `make` makes a real virtual environment, with a `svea` that only logs."""
    made = tmp_path / "bin/make"
    made.parent.mkdir()
    made.write_text(
        f"#!/bin/bash\n{sys.executable} -m venv --without-pip .venv\n"
        "printf '#!/bin/bash\\necho svea \"$@\" >> log\\n' > .venv/bin/svea\n"
        "chmod +x .venv/bin/svea\n"
    )
    made.chmod(0o755)
    lines = [line.partition(" #")[0].strip() for line in COMMAND.findall((ROOT / page).read_text())]
    commands = [line for line in lines if line.startswith("svea ")]
    assert commands and lines[0].startswith("make ")
    environment = {"PATH": f"{made.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    shell = ["bash", "--noprofile", "--norc", "-efc", "\n".join(lines)]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text().splitlines() == commands


@pytest.mark.parametrize("page", LATER, ids=lambda page: page.stem)
def test_later_pages_say_once_how_the_shell_finds_svea(page: Path) -> None:
    text = page.read_text()
    first = next(m.start() for m in COMMAND.finditer(text) if m[1].startswith("svea "))
    assert text[:first].count(ACTIVATE) == 1


@pytest.mark.parametrize("target", ["setup", "demo"])
def test_make_ends_with_how_the_shell_finds_svea(target: str) -> None:
    command = ["make", "-n", "--no-print-directory", target]  # `make test` runs this test
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ACTIVATE in said.stdout.splitlines()[-1], said.stderr
