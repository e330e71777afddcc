"""`svea doctor`: what this machine has, what is wrong with it, and the command that fixes it.

A check looks at one thing and returns a `Check`. Checks run one by one, and an exception in one of
them becomes its own finding, so that it never hides the others. Nothing here needs torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from json import JSONDecodeError, dumps, loads
from pathlib import Path
from typing import Any, Literal

from svea import machine
from svea.data.folders import data_folder
from svea.data.inventory import inventory
from svea.errors import RendererError, StorageError, SveaError, UserError

GIB = 2**30

GL_TIMEOUT_SECONDS = 60
"""A driver that has not drawn 20 small pictures by then hangs; software takes half a second."""

REPLAY_GIB = 11
"""The paper's replay: 500,000 frames of 84 x 84 x 3 bytes, and what stands beside them."""

_DRAW = """
import json
from svea.errors import RendererError, SveaError

try:
    from svea.envs.rendering import gl_info

    answer = gl_info()
except SveaError as error:
    answer = {"error": str(error), "exit_code": error.exit_code}
except Exception as error:
    cure = "try pip install --force-reinstall svea"
    answer = {
        "error": f"{type(error).__name__}: {error}; {cure}",
        "exit_code": RendererError.exit_code,
    }
# The prefix tells the answer from what drivers print.
print("\\nsvea-gl", json.dumps(answer), flush=True)
"""


@dataclass(frozen=True)
class Check:
    """One finding: `ok`, a `warning` (usable, but not as it should be) or a `problem`."""

    name: str
    value: str
    status: Literal["ok", "warning", "problem"] = "ok"
    cure: str = ""
    """The command that fixes it, or the sentence that says how."""
    exit_code: int = 0
    """What `svea doctor` exits with because of this; zero unless it is a problem."""


@dataclass(frozen=True)
class Package:
    """A package that svea imports and the versions that it works with, as in pyproject.toml."""

    name: str
    minimum: str
    below: str = ""
    extra: str = ""

    @property
    def requirement(self) -> str:
        """The range as pip writes it."""
        return f"{self.name}>={self.minimum}" + (f",<{self.below}" if self.below else "")


PACKAGES = (
    Package("gymnasium", "1.2", below="2"),
    Package("mujoco", "3.17", below="4"),
    Package("dm-control", "1.0.50", below="2"),
    Package("numpy", "2"),
    Package("pillow", "11"),
    Package("imageio-ffmpeg", "0.6"),
    Package("torch", "2.9", extra="train"),
    Package("tyro", "1", extra="train"),
    Package("rich", "13", extra="train"),
    Package("safetensors", "0.5", extra="train"),
    Package("matplotlib", "3.9", extra="train"),
    Package("scipy", "1.14", extra="train"),
)


def run(arguments: list[str]) -> int:
    """Read the flags and examine this machine; argparse, because tyro may be what is missing."""
    parser = argparse.ArgumentParser(
        prog="svea doctor",
        description="Check this machine: versions, device, renderer, data; and say how to fix "
        "problems.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    return doctor(json=options.json, data_dir=options.data_dir)


def doctor(json: bool = False, data_dir: str | os.PathLike[str] | None = None) -> int:
    """Examine this machine and print the findings.

    Args:
        json: Print one JSON object instead of lines.
        data_dir: The data folder to look into; `SVEA_DATA` when not given.

    Returns:
        The exit code: 0 when svea can be used here, else that of the worst problem.
    """
    checks = diagnose(data_dir)
    code = max(check.exit_code for check in checks)
    if json:
        report = {"usable": code == 0, "exit_code": code, "checks": [asdict(c) for c in checks]}
        print(dumps(report, indent=2))
    elif sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _print_table(checks)
    else:
        _print_lines(checks)
    return code


def diagnose(data_dir: str | os.PathLike[str] | None = None) -> list[Check]:
    """Run every check.

    Args:
        data_dir: The data folder to look into; `SVEA_DATA` when not given.

    Returns:
        The findings, in the order in which they are printed.
    """
    checks: dict[str, Callable[[], Check]] = {"python": check_python, "svea": check_svea}
    checks |= {package.name: partial(check_package, package) for package in PACKAGES}
    checks |= {
        "device": check_device,
        "updates": check_updates,
        "cpu": check_cpu,
        "memory": check_memory,
        "rendering": check_rendering,
        "ffmpeg": check_ffmpeg,
        "data": partial(check_data, data_dir),
        "disk": check_disk,
    }
    return [_isolated(name, check) for name, check in checks.items()]


def check_python() -> Check:
    """The interpreter."""
    return Check("python", f"{platform.python_version()} ({sys.executable})")


def check_svea() -> Check:
    """The version of svea and where it is imported from."""
    folder = Path(__file__).parent
    version = _installed_version("svea")
    return Check("svea", f"{version or 'not installed, run'} from {folder}")


def check_package(package: Package) -> Check:
    """Whether a package is there, in a version that svea works with."""
    install = f"pip install '{package.requirement}'"
    version = _installed_version(package.name)
    if version is None and package.extra:
        # The base install is the environments alone, and complete without this.
        value = "not installed: the environments work, training does not"
        return Check(package.name, value, "warning", f"pip install 'svea[{package.extra}]'")
    if version is None:
        return Check(package.name, "not installed", "problem", install, UserError.exit_code)
    too_old = _order(version) < _order(package.minimum)
    too_new = package.below and _order(version) >= _order(package.below)
    if too_old or too_new:
        value = f"{version}, but svea needs {package.requirement}"
        return Check(package.name, value, "problem", install, UserError.exit_code)
    return Check(package.name, version)


def check_device() -> Check:
    """What training runs on, and whether a GPU stands idle."""
    if _installed_version("torch") is None:
        return Check("device", "no torch", "warning", "pip install 'svea[train]'")
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        listed = ", ".join(f"{gpu.name} ({gpu.total_memory / GIB:.0f} GiB)" for gpu in names)
        return Check("device", f"cuda: {listed}")
    if torch.backends.mps.is_available():
        return Check("device", "mps: Apple GPU")
    if machine.has_nvidia_gpu() and torch.version.cuda is None:
        value = f"cpu, although an NVIDIA GPU is there: torch {torch.__version__} is a CPU build"
        return Check("device", value, "warning", "pip install --force-reinstall torch")
    if machine.has_nvidia_gpu():
        value = f"cpu, although an NVIDIA GPU is there: CUDA {torch.version.cuda} does not start"
        cure = "update the driver until `nvidia-smi` shows that CUDA version or a newer one"
        return Check("device", value, "warning", cure)
    return Check("device", "cpu")


def check_updates() -> Check:
    """How `--speed auto` makes updates here."""
    if _installed_version("torch") is None:
        return Check("updates", "no torch", "warning", "pip install 'svea[train]'")
    from svea.speed.device import choose_device, missing_for_compiling

    device = choose_device("auto")
    missing = missing_for_compiling(device)
    if missing and device.type != "mps":
        on_cpu = "install gcc, or mend what the reason says"
        cure = on_cpu if device.type == "cpu" else "pip install triton"
        return Check("updates", f"as written, which takes much longer: {missing}", "warning", cure)
    ways = {
        "cuda": "captured in CUDA graphs",
        "cpu": "compiled: in C where it gains, as in preset quick",
    }
    return Check("updates", ways.get(device.type, "as written"))


def check_cpu() -> Check:
    """Cores that this process may use, and the bf16 instructions that speed up updates."""
    cores = machine.usable_cores()
    flags = _cpu_flags()
    fast = [flag for flag in ("avx512_bf16", "amx_bf16", "bf16") if flag in flags]
    bf16 = f"bf16 in hardware ({', '.join(fast)})" if fast else "no bf16 in hardware"
    value = f"{cores} core{'s' * (cores != 1)}, {platform.machine()}, {bf16}"
    if cores < 2:
        cure = "give the process two cores: one draws the environments, one learns"
        return Check("cpu", value, "warning", cure)
    return Check("cpu", value)


def check_memory() -> Check:
    """Whether the replay of the paper's setting fits into memory."""
    available = machine.available_bytes()
    if available is None:
        return Check("memory", "unknown: this system does not tell")
    value = f"{available / GIB:.1f} GiB available"
    if machine.HEADROOM * available < REPLAY_GIB * GIB:
        value += f"; the paper preset's replay takes {REPLAY_GIB} GiB"
        return Check("memory", value, "warning", "svea train TASK --preset quick")
    return Check("memory", value)


def check_rendering() -> Check:
    """What draws the pictures and how fast, with a warning when a GPU is there but unused."""
    gl = measure_gl()
    value = f"{gl['renderer']} ({gl['backend']}), {gl['ms_per_frame']:.1f} ms per frame"
    if gl["is_software"] and machine.has_nvidia_gpu():
        cure = (
            "export MUJOCO_GL=egl; apt-get install -y libegl1; in a container, also start it with"
            " -e NVIDIA_DRIVER_CAPABILITIES=all"
        )
        return Check("rendering", f"{value}: software, although a GPU is there", "warning", cure)
    return Check("rendering", value + (", software" if gl["is_software"] else ""))


def check_ffmpeg() -> Check:
    """The ffmpeg that reads video backgrounds and writes recordings."""
    try:
        import imageio_ffmpeg

        version = imageio_ffmpeg.get_ffmpeg_version()
    except (ImportError, RuntimeError, OSError) as error:
        value = f"not usable ({_one_line(error)}): no video backgrounds, no recordings"
        return Check("ffmpeg", value, "warning", "pip install --force-reinstall imageio-ffmpeg")
    return Check("ffmpeg", version)


def check_data(data_dir: str | os.PathLike[str] | None = None) -> Check:
    """Which of the public benchmark files are at hand; none is needed."""
    try:
        root = data_folder(data_dir or None)
    except UserError as error:
        cure = "export SVEA_DATA=FOLDER with a folder that exists, or unset SVEA_DATA"
        return Check("data", str(error), "problem", cure, UserError.exit_code)
    if root is None:
        return Check("data", "no folder given (--data-dir or SVEA_DATA): svea makes its own")
    parts = inventory(root)
    value = f"{root}: " + ", ".join(f"{part.name} {part.summary}" for part in parts)
    if not any(part.count for part in parts):
        cure = "point SVEA_DATA at the folder that holds dmcgb/, davis/ or photos/"
        return Check("data", f"{value}: nothing svea knows", "warning", cure)
    incomplete = [part.name for part in parts if part.count and part.missing]
    if incomplete:
        cure = f"svea data list --data-dir {root} names what {', '.join(incomplete)} lack"
        return Check("data", value, "warning", cure)
    return Check("data", value)


def check_disk() -> Check:
    """Whether runs can be written where the command is called."""
    runs = Path("runs")
    folder = (runs if runs.is_dir() else Path.cwd()).absolute()
    free = shutil.disk_usage(folder).free
    value = f"{free / GIB:.1f} GiB free in {folder}"
    elsewhere = "choose a folder on another disk with --out DIR"
    if not os.access(folder, os.W_OK):
        value = f"{folder} cannot be written to"
        return Check("disk", value, "problem", elsewhere, StorageError.exit_code)
    if free < GIB:
        return Check("disk", value, "problem", elsewhere, StorageError.exit_code)
    # A checkpoint holds the replay, and the old one stays until the new one is complete.
    if free < 2 * REPLAY_GIB * GIB:
        value += f"; a checkpoint of the paper preset needs up to {2 * REPLAY_GIB} GiB"
        return Check("disk", value, "warning", elsewhere)
    return Check("disk", value)


def measure_gl() -> dict[str, Any]:
    """Draw some pictures in a process of their own: a bad driver can hang or crash the process.

    Returns:
        What `svea.envs.rendering.gl_info` returns.

    Raises:
        SveaError: Nothing could be drawn; the message has the cure.
    """
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[1]), os.getenv("PYTHONPATH"))))
    try:
        child = subprocess.run(
            [sys.executable, "-c", _DRAW],
            env={**os.environ, "PYTHONPATH": path},
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


def _isolated(name: str, check: Callable[[], Check]) -> Check:
    """Run one check; what it raises becomes its finding."""
    try:
        return check()
    except SveaError as error:
        return Check(name, "does not work", "problem", _one_line(error), error.exit_code)
    except Exception as error:  # a broken installation can raise anything at import
        value = f"{type(error).__name__}: {_one_line(error)}"
        cure = "reinstall svea and its packages: pip install --force-reinstall 'svea[train]'"
        return Check(name, value, "problem", cure, SveaError.exit_code)


def _print_lines(checks: list[Check]) -> None:
    """One line a check, for logs and pipes."""
    for line in _lines(checks):
        print(line)
    print(_verdict(checks))


def _lines(checks: list[Check]) -> Iterator[str]:
    """A line for each check, and one for each cure."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:<8} {check.name:<{width}}  {check.value}"
        if check.cure:
            yield f"{'':<8} {'':<{width}}  fix: {check.cure}"


def _print_table(checks: list[Check]) -> None:
    """The same with colours and aligned wrapping, for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "bold red")}
    table = Table(box=None, show_header=False, padding=(0, 1))
    for check in checks:
        mark, style = marks[check.status]
        value = Text(check.value)
        if check.cure:
            value.append(f"\nfix: {check.cure}", style=style)
        table.add_row(Text(mark, style=style), check.name, value)
    console = Console()
    console.print(table)
    console.print(Text(_verdict(checks)))


def _verdict(checks: list[Check]) -> str:
    """The last line: can svea be used here?"""
    problems = [check.name for check in checks if check.status == "problem"]
    warnings = [check.name for check in checks if check.status == "warning"]
    if problems:
        return f"svea cannot be used here yet: fix {', '.join(problems)}"
    return "svea can be used here" + (f"; look at {', '.join(warnings)}" if warnings else "")


def _installed_version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _order(version: str) -> tuple[int, ...]:
    """The release numbers of a version, to compare: `2.13.0+cpu` is `(2, 13, 0)`."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else (0,)


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


def _cpu_flags() -> set[str]:
    """The instruction sets that Linux lists for the first core."""
    match = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return set(match.group(1).split()) if match else set()


def _read(path: str) -> str:
    """A file of the kernel, or nothing where the kernel has no such file."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _one_line(error: BaseException) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__
