"""What starts without torch and the simulator: importing them takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from svea.cli import VERBS


def in_a_fresh_interpreter(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120
    )


def test_helps_and_lists_answer_without_torch_or_the_simulator(tmp_path):
    """One after the other in one interpreter: none may leave them imported."""
    others = "--help, methods, zoo, sweep --tasks walker_walk --methods svea --dry-run"
    lines = [*others.split(", "), *(f"{verb} --help" for verb in VERBS)]
    lines += ["analyze q-gap --help", "bench update --help"]
    code = (
        "import sys\nfrom svea.cli import main\n"
        f"for line in {lines!r}:\n"
        "    try: code = main(line.split())\n"
        "    except SystemExit as end: code = end.code\n"
        "    heavy = sorted({'torch', 'mujoco', 'dm_control', 'matplotlib'} & set(sys.modules))\n"
        "    if code or heavy: sys.exit(f'{line}: {code}, imports {heavy}')\n"
    )
    done = in_a_fresh_interpreter(code, tmp_path)
    assert done.returncode == 0 and done.stdout, done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "assert 'conv' in svea.augment.AUGMENTATIONS; assert svea.augment.shift",
        "assert all(getattr(svea, name) for name in svea.__all__); "
        "assert not hasattr(svea, 'nonsense')",
        # They are completed before they are imported.
        "assert set(svea.__all__) <= set(dir(svea)); "
        "assert not {'Any', 'importlib', 'TYPE_CHECKING'} & set(dir(svea))",
    ],
)
def test_every_public_name_is_there_and_no_other(code, tmp_path):
    done = in_a_fresh_interpreter(f"import svea; {code}", tmp_path)
    assert done.returncode == 0, done.stderr
