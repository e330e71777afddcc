"""The notebook's cells run from top to bottom, at a small size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from test_tutorials import snippet

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples/first_steps.ipynb"


def cells(kind: str) -> list[str]:
    notebook = json.loads(NOTEBOOK.read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_notebook_is_stored_without_output_and_compiles() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    for number, text in enumerate(cells("code")):
        compile(text, f"cell {number}", "exec")


@pytest.mark.slow
def test_every_cell_runs(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    body = "\n".join(snippet(text) for text in cells("code"))
    script.write_text(f"if __name__ == '__main__':\n    exec({body!r}, globals())\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "SVEA_ZOO": str(ROOT / "zoo"),
    }
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, timeout=600,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "color_hard" in done.stdout and "episodes" in done.stdout
