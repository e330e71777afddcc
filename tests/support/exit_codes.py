"""Commands in this process."""

from __future__ import annotations

from svea import cli


def call(arguments: list[str]) -> int:
    """The exit code of `svea` with these arguments, returned or raised."""
    try:
        return cli.main(arguments)
    except SystemExit as stop:
        return int(stop.code or 0)
