"""What starts without torch and the simulator, whose import takes seconds; and the public names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = [
    "--help", "methods", "zoo", "sweep --tasks walker_walk --methods svea --dry-run",
    *(f"{verb} --help" for verb in (
        "train", "eval", "watch", "compare", "report", "export", "gallery", "sweep", "paper",
        "data", "analyze q-gap", "bench update",
    )),
]  # fmt: skip


def test_answers_without_torch_or_the_simulator(tmp_path: Path) -> None:
    """In one process: the first that imports them is named, as are all after it."""
    code = (
        "import sys\nfrom svea.cli import main\n"
        f"for command in {COMMANDS!r}:\n"
        "    try: code = main(command.split())\n"
        "    except SystemExit as end: code = end.code\n"
        "    heavy = {'torch', 'mujoco', 'dm_control', 'matplotlib'} & set(sys.modules)\n"
        "    assert not code and not heavy, (command, code, heavy)\n"
    )
    run(code, tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        "assert 'conv' in svea.augment.AUGMENTATIONS; assert svea.augment.shift",
        "assert all(getattr(svea, name) for name in svea.__all__); "
        "assert not hasattr(svea, 'nonsense')",
        # They are completed before they are imported.
        "assert set(svea.__all__) <= set(dir(svea)); "
        "assert not {'Any', 'importlib', 'TYPE_CHECKING'} & set(dir(svea))",
        # It would take longer than the status of thousands of runs, in every process of a study.
        "import sys, svea.studies.supervise, svea.cli.sweep; assert 'torch' not in sys.modules",
        "import sys, svea.envs; assert len(svea.envs.PAPER_TASKS) == 6; "
        "assert not {'torch', 'tyro', 'matplotlib', 'mujoco', 'dm_control'} & set(sys.modules)",
    ],
)
def test_what_is_imported_when(code: str, tmp_path: Path) -> None:
    run(f"import svea; {code}", tmp_path)


def run(code: str, folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
