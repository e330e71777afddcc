"""Draws some pictures in a process of their own: a bad driver can hang or crash the process."""

from __future__ import annotations

import signal
import subprocess
from json import JSONDecodeError, loads
from typing import Any

from svea.core.errors import RendererError, UserError
from svea.core.machine import child_environment, python_child

GL_TIMEOUT_SECONDS = 60
"""A driver that has not drawn 20 small pictures by then hangs; software takes half a second."""

_DRAW = """
import json
from svea.core.errors import RendererError, SveaError, install_hint

try:
    from svea.envs.rendering import gl_info

    answer = gl_info()
except SveaError as error:
    answer = {"error": str(error), "exit_code": error.exit_code}
except Exception as error:
    answer = {
        "error": f"{type(error).__name__}: {error}; reinstall svea: {install_hint()}",
        "exit_code": RendererError.exit_code,
    }
# The prefix tells the answer from what drivers print.
print("\\nsvea-gl", json.dumps(answer), flush=True)
"""


def measure_gl() -> dict[str, Any]:
    """Draw in another process, and measure.

    Returns:
        What `svea.envs.rendering.gl_info` returns.

    Raises:
        SveaError: Nothing could be drawn; the message has the cure.
    """
    try:
        child = subprocess.run(
            python_child("-c", _DRAW),
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=GL_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RendererError(
            f"drawing one small picture hangs (given up after {GL_TIMEOUT_SECONDS} s);"
            " try another backend: export MUJOCO_GL=osmesa"
        ) from None
    answer = _answer(child.stdout)
    if answer is None:
        raise RendererError(
            f"the process that draws ended with {_ending(child.returncode)};"
            " try another backend: export MUJOCO_GL=osmesa"
        )
    if "error" in answer:
        error = RendererError if answer["exit_code"] == RendererError.exit_code else UserError
        raise error(answer["error"])
    return answer


def _answer(stdout: str) -> dict[str, Any] | None:
    """What the drawing process said, or None if it did not get that far."""
    for line in reversed(stdout.splitlines()):
        if line.startswith("svea-gl "):
            try:
                return loads(line.removeprefix("svea-gl "))
            except JSONDecodeError:
                return None
    return None


def _ending(returncode: int) -> str:
    """How a process ended, in words."""
    if returncode < 0:
        return signal.Signals(-returncode).name
    return f"exit code {returncode}"
