"""`svea doctor`: what this machine has, what is wrong with it, and the command that fixes it.

A check looks at one thing and returns a `Check`; what it raises becomes its own finding, so that it
never hides the others. Nothing here needs torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from svea.core import machine, process
from svea.core.errors import (
    DISTRIBUTION,
    RendererError,
    StorageError,
    SveaError,
    UserError,
    WorkerError,
    install_hint,
)
from svea.core.terminal import console, waiting
from svea.core.words import one_line, plural
from svea.data.clips import data_folder
from svea.data.inventory import inventory

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DRAW = "svea.envs.rendering:gl_info"
GL_TIMEOUT_SECONDS = 60
"""A driver that has not drawn 20 small pictures by then hangs; software takes half a second."""


def measure_gl() -> dict[str, Any]:
    """What `gl_info` finds in a process of its own: a bad driver can hang or crash the process."""
    try:
        return dict(process.ask(DRAW, seconds=GL_TIMEOUT_SECONDS))
    except WorkerError as error:
        raise RendererError(
            f"the process that draws {error}; try another backend: export MUJOCO_GL=osmesa"
        ) from None


GIB = 2**30

REPLAY_GIB = 11
"""The paper's replay: 500,000 frames of 84 x 84 x 3 bytes, and what is stored with them."""


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


def diagnose(data_dir: str | os.PathLike[str] | None = None) -> list[Check]:
    """The findings of every check, in the order in which they are printed."""
    checks: dict[str, Callable[[], Check]] = {"python": check_python, "svea": check_svea}
    try:
        checks |= {each.name: partial(check_package, each) for each in requirements()}
    except ImportError as error:  # svea is not installed, or packaging is not
        value = f"their versions are unknown: {error}"
        checks["packages"] = partial(Check, "packages", value, "warning", install_hint())
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
    version = _installed_version(DISTRIBUTION) or "not installed, run"
    return Check("svea", f"{version} from {Path(__file__).parents[1]}")


def check_package(requirement: Requirement) -> Check:
    """Whether a package is there, in a version that svea works with."""
    wanted = f"{requirement.name}{in_order(requirement)}"
    install = f"pip install '{wanted}'"
    version = _installed_version(requirement.name)
    if version is None and requirement.marker:
        # The base install is the environments alone, and complete without this.
        value = "not installed: the environments work, training does not"
        return Check(requirement.name, value, "warning", install_hint())
    if version is None:
        return Check(requirement.name, "not installed", "problem", install, UserError.exit_code)
    if not requirement.specifier.contains(version, prereleases=True):
        value = f"{version}, but svea needs {wanted}"
        return Check(requirement.name, value, "problem", install, UserError.exit_code)
    return Check(requirement.name, version)


def requirements() -> list[Requirement]:
    """What the environments and training need, from the metadata of the installed svea."""
    from packaging.requirements import Requirement

    found = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ()]
    named = {"extra": "train"}
    return [each for each in found if not each.marker or each.marker.evaluate(named)]


def in_order(requirement: Requirement) -> str:
    """A range as one reads it, lower end first: >=3.17,<4."""
    return ",".join(sorted(map(str, requirement.specifier), reverse=True))


def check_device() -> Check:
    """What training runs on, and whether a GPU stands idle."""
    if _installed_version("torch") is None:
        return Check("device", "no torch", "warning", install_hint())
    import torch

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        listed = ", ".join(f"{gpu.name} ({gpu.total_memory / GIB:.0f} GiB)" for gpu in gpus)
        return Check("device", f"cuda: {listed}")
    if torch.backends.mps.is_available():
        return Check("device", "mps: Apple GPU")
    if not machine.has_nvidia_gpu():
        return Check("device", "cpu")
    why = f"CUDA {torch.version.cuda} does not start"
    cure = "update the driver until `nvidia-smi` shows that CUDA version or a newer one"
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} is a CPU build"
        cure = "pip install --force-reinstall torch"
    return Check("device", f"cpu, although an NVIDIA GPU is there: {why}", "warning", cure)


def check_updates() -> Check:
    """How `--speed auto` makes updates here."""
    if _installed_version("torch") is None:
        return Check("updates", "no torch", "warning", install_hint())
    from svea.speed.device import choose_device, missing_for_compiling

    device = choose_device("auto")
    missing = missing_for_compiling(device)
    if missing and device.type != "mps":
        on_cpu = "install gcc, or fix what the reason names"
        cure = on_cpu if device.type == "cpu" else "pip install triton"
        return Check("updates", f"as written, which takes much longer: {missing}", "warning", cure)
    ways = {
        "cuda": "captured in CUDA graphs",
        "cpu": "compiled: in C where it gains, as in preset quick",
    }
    return Check("updates", ways.get(device.type, "as written"))


def check_cpu() -> Check:
    """Cores that this process may use."""
    cores = machine.usable_cores()
    value = f"{plural(cores, 'core')}, {platform.machine()}"
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


REINSTALL_FFMPEG = "pip install --force-reinstall imageio-ffmpeg"


def check_ffmpeg() -> Check:
    """The ffmpeg that reads video backgrounds and writes recordings."""
    try:
        import imageio_ffmpeg

        from svea.data import ffmpeg
        from svea.data.decode import try_decoder

        try_decoder()
        version = imageio_ffmpeg.get_ffmpeg_version()
    except (ImportError, RuntimeError, OSError, UserError) as error:
        value = f"not usable ({one_line(error)}): no video backgrounds, no recordings"
        return Check("ffmpeg", value, "warning", REINSTALL_FFMPEG)
    try:
        ffmpeg.encoder()
    except UserError:
        value = f"{version}, decodes, but was built without {ffmpeg.H264}: no recordings"
        return Check("ffmpeg", value, "warning", REINSTALL_FFMPEG)
    return Check("ffmpeg", f"{version}, decodes and encodes")


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


def _isolated(name: str, check: Callable[[], Check]) -> Check:
    """Run one check; what it raises becomes its finding."""
    try:
        return check()
    except SveaError as error:
        return Check(name, "does not work", "problem", one_line(error), error.exit_code)
    except Exception as error:  # a broken installation can raise anything at import
        value = f"{type(error).__name__}: {one_line(error)}"
        cure = f"reinstall svea and its packages: {install_hint()} --force-reinstall"
        return Check(name, value, "problem", cure, SveaError.exit_code)


def _installed_version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def run(arguments: list[str]) -> int:
    """Read the flags and examine this machine; argparse, because tyro may be what is missing."""
    about = "Check this machine: versions, device, renderer, data; and say how to fix problems."
    parser = argparse.ArgumentParser(prog="svea doctor", description=about)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    return doctor(json=options.json, data_dir=options.data_dir)


def doctor(json: bool = False, data_dir: str | os.PathLike[str] | None = None) -> int:
    """Print the findings; returns 0 when svea can be used here, else the worst problem's code."""
    with _waiting():
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


def _waiting() -> AbstractContextManager[object]:
    """Something that moves, on a terminal: importing torch and drawing take seconds."""
    if not (sys.stderr.isatty() and importlib.util.find_spec("rich")):
        return nullcontext()
    return waiting("checking this machine")


def _print_lines(checks: list[Check]) -> None:
    """A line for each check and one for each cure, for logs and pipes."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{check.status:<8} {check.name:<{width}}  {check.value}")
        if check.cure:
            print(f"{'':<8} {'':<{width}}  fix: {check.cure}")
    print(_verdict(checks))


def _print_table(checks: list[Check]) -> None:
    """The same with colours and aligned wrapping, for people."""
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
    shown = console()
    shown.print(table)
    shown.print(Text(_verdict(checks)))


def _verdict(checks: list[Check]) -> str:
    """The last line: can svea be used here?"""
    problems = [check.name for check in checks if check.status == "problem"]
    warnings = [check.name for check in checks if check.status == "warning"]
    if problems:
        return f"svea cannot be used here yet: fix {', '.join(problems)}"
    return "svea can be used here" + (f"; look at {', '.join(warnings)}" if warnings else "")
