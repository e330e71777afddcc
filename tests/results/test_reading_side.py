"""Reading results needs no torch: a page of results can be made where nothing can be trained."""

from __future__ import annotations

import subprocess
import sys

MODULES = ("read", "run", "summary", "stats", "published", "tables.results", "tables.writers",
           "tables.comparison", "compare", "figures", "report")  # fmt: skip


def test_the_reading_side_imports_no_torch() -> None:
    imports = "; ".join(f"import svea.results.{name}" for name in MODULES)
    check = f"{imports}; import svea.cli.evaluate, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
