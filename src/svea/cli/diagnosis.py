"""What this machine has and lacks: a check looks at one thing and returns a `Check`.

Checks run one by one, and an exception in one of them becomes its own finding, so that it never
hides the others. Nothing here needs torch.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from svea.cli.gl_probe import measure_gl
from svea.core import machine
from svea.core.errors import DISTRIBUTION, StorageError, SveaError, UserError, install_hint
from svea.core.words import one_line, plural
from svea.data.folders import data_folder
from svea.data.inventory import inventory

if TYPE_CHECKING:
    from packaging.requirements import Requirement

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
    """Run every check.

    Args:
        data_dir: The data folder to look into; `SVEA_DATA` when not given.

    Returns:
        The findings, in the order in which they are printed.
    """
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
    folder = Path(__file__).parents[1]
    version = _installed_version(DISTRIBUTION)
    return Check("svea", f"{version or 'not installed, run'} from {folder}")


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
