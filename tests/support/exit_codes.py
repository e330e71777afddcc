"""Commands in this process, and in one of their own."""

import os
import subprocess
import sys
from typing import Any

from svea import cli


def call(arguments: list[str]) -> int:
    """The exit code of `svea` with these arguments, returned or raised."""
    try:
        return cli.main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)


def in_a_process(
    *arguments: str | bytes, variables: dict[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """`svea` with these arguments and further variables of the environment, as a shell runs it."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, "-m", "svea", *arguments], check=False, timeout=120,
        env=os.environ | {"PYTHONPATH": path} | (variables or {}),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options,
    )  # fmt: skip
