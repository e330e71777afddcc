"""`svea doctor`: what this machine has, what is wrong with it, and the command that fixes it.

A check looks at one thing and returns a `Check`; what it raises becomes its own finding, so that it
never hides the others. Nothing here needs torch, tyro or rich.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svea.core import errors, machine, process
from svea.core.errors import DISTRIBUTION, SveaError, UserError, install_hint
from svea.core.process import exhausted
from svea.core.terminal import note
from svea.core.words import one_line, plural
from svea.data.clips import data_folder
from svea.data.inventory import inventory

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DRAW = "svea.envs.rendering:gl_info"
GL_TIMEOUT_SECONDS = 60
"""A driver that has not drawn 20 small pictures by then hangs; software takes half a second."""
GIB = 2**30
REPLAY_GIB = 11
"""The paper's replay: 500,000 frames of 84 x 84 x 3 bytes, and what is stored with them."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    value: str
    cure: str = ""
    """The command that fixes it, or the sentence that says how; empty if nothing is wrong."""
    exit_code: int = 0
    """What `svea doctor` exits with because of this: above zero, svea cannot be used."""

    @property
    def status(self) -> str:
        """`ok`, `warning` (usable, but not as it should be) or `problem`."""
        return "problem" if self.exit_code else "warning" if self.cure else "ok"


def measure_gl() -> dict[str, Any]:
    """What `gl_info` finds in a process of its own: a bad driver can hang or crash the process."""
    try:
        return dict(process.ask(DRAW, seconds=GL_TIMEOUT_SECONDS))
    except errors.WorkerError as error:
        raise errors.RendererError(
            f"the process that draws {error}; try another backend: export MUJOCO_GL=osmesa"
        ) from None


def diagnose(data_dir: str | os.PathLike[str] | None = None) -> list[Check]:
    """The findings of every check, in the order in which they are printed."""
    checks: dict[str, Callable[[], Check]] = {}
    version = _installed_version(DISTRIBUTION) or "not installed, run"
    findings = [
        Check("python", f"{platform.python_version()} ({sys.executable})"),
        Check("svea", f"{version} from {Path(__file__).parents[1]}"),
    ]
    try:
        checks |= {each.name: partial(check_package, each) for each in requirements()}
    except ImportError as error:  # svea is not installed, or packaging is not
        value = f"their versions are unknown: {error}"
        checks["packages"] = partial(Check, "packages", value, install_hint())
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
    for name, check in checks.items():
        try:
            findings.append(check())
        except SveaError as error:
            findings.append(Check(name, "does not work", one_line(error), error.exit_code))
        except Exception as error:  # a broken installation can raise anything at import
            value = f"{type(error).__name__}: {one_line(error)}"
            reinstall = f"reinstall svea and its packages: {install_hint()} --force-reinstall"
            cure = exhausted(error) or reinstall
            findings.append(Check(name, value, cure, SveaError.exit_code))
    return findings


def check_package(requirement: Requirement) -> Check:
    """Whether a package is there, in a version that svea works with."""
    name, version = requirement.name, _installed_version(requirement.name)
    # Lower end first, as one reads it: >=3.17,<4
    wanted = name + ",".join(sorted(map(str, requirement.specifier), reverse=True))
    if version is None and requirement.marker:
        # The base install is the environments alone, and complete without this.
        value = "not installed: the environments work, training does not"
        return Check(name, value, install_hint())
    if version is not None and requirement.specifier.contains(version, prereleases=True):
        return Check(name, version)
    value = "not installed" if version is None else f"{version}, but svea needs {wanted}"
    return Check(name, value, f"pip install '{wanted}'", UserError.exit_code)


def requirements() -> list[Requirement]:
    """What the environments and training need, from the metadata of the installed svea."""
    from packaging.requirements import Requirement

    found = [Requirement(text) for text in importlib.metadata.requires(DISTRIBUTION) or ()]
    named = {"extra": "train"}
    return [each for each in found if not each.marker or each.marker.evaluate(named)]


def check_device() -> Check:
    """What training runs on, and whether a GPU stands idle."""
    if _installed_version("torch") is None:
        return Check("device", "no torch", install_hint())
    import torch

    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        listed = ", ".join(f"{gpu.name} ({gpu.total_memory / GIB:.0f} GiB)" for gpu in gpus)
        return Check("device", f"cuda: {listed}")
    if torch.backends.mps.is_available() or not machine.has_nvidia_gpu():
        return Check("device", "mps: Apple GPU" if torch.backends.mps.is_available() else "cpu")
    why = f"CUDA {torch.version.cuda} does not start"
    cure = "update the driver until `nvidia-smi` shows that CUDA version or a newer one"
    if torch.version.cuda is None:
        why = f"torch {torch.__version__} is a CPU build"
        cure = "pip install --force-reinstall torch"
    return Check("device", f"cpu, although an NVIDIA GPU is there: {why}", cure)


def check_updates() -> Check:
    """How `--speed auto` makes updates here."""
    if _installed_version("torch") is None:
        return Check("updates", "no torch", install_hint())
    from svea.speed.device import choose_device, missing_for_compiling

    compiled = "compiled: in C where it gains, as in preset quick"
    ways = {
        "cpu": (compiled, "install gcc, or fix what the reason names"),
        "cuda": ("captured in CUDA graphs", "pip install triton"),
    }
    device = choose_device("auto")
    way, cure = ways.get(device.type, ("as written", ""))
    if cure and (missing := missing_for_compiling(device)):
        return Check("updates", f"as written, which takes much longer: {missing}", cure)
    return Check("updates", way)


def check_cpu() -> Check:
    """Cores that this process may use."""
    cores = machine.usable_cores()
    cure = "give the process two cores: one draws the environments, one learns"
    return Check("cpu", f"{plural(cores, 'core')}, {platform.machine()}", cure if cores < 2 else "")


def check_memory() -> Check:
    """Whether the replay of the paper's setting fits into memory."""
    available, cure = machine.available_bytes(), ""
    if available is None:
        return Check("memory", "unknown: this system does not tell")
    value = f"{available / GIB:.1f} GiB available"
    if machine.HEADROOM * available < REPLAY_GIB * GIB:
        value += f"; the paper preset's replay takes {REPLAY_GIB} GiB"
        cure = "svea train TASK --preset quick"
    return Check("memory", value, cure)


def check_rendering() -> Check:
    """What draws the pictures and how fast, with a warning when a GPU is there but unused."""
    gl, cure = measure_gl(), ""
    value = f"{gl['renderer']} ({gl['backend']}), {gl['ms_per_frame']:.1f} ms per frame"
    value += ", software" if gl["is_software"] else ""
    if gl["is_software"] and machine.has_nvidia_gpu():
        value += ", although a GPU is there"
        cure = "export MUJOCO_GL=egl; apt-get install -y libegl1; in a container, also start it "
        cure += "with -e NVIDIA_DRIVER_CAPABILITIES=all"
    return Check("rendering", value, cure)


def check_ffmpeg() -> Check:
    """The ffmpeg that reads video backgrounds and writes recordings."""
    cure = "pip install --force-reinstall imageio-ffmpeg"
    try:
        import imageio_ffmpeg

        from svea.data import ffmpeg
        from svea.data.decode import try_decoder

        try_decoder()
        value = f"{imageio_ffmpeg.get_ffmpeg_version()}, decodes"
    except (ImportError, RuntimeError, OSError, UserError) as error:
        value = f"not usable ({one_line(error)}): no video backgrounds, no recordings"
        return Check("ffmpeg", value, cure)
    try:
        ffmpeg.encoder()
    except UserError:
        value += f", but was built without {ffmpeg.H264}: no recordings"
        return Check("ffmpeg", value, cure)
    return Check("ffmpeg", f"{value} and encodes")


def check_data(data_dir: str | os.PathLike[str] | None = None) -> Check:
    """Which of the public benchmark files are at hand; none is needed."""
    try:
        root = data_folder(data_dir or None)
    except UserError as error:
        cure = "export SVEA_DATA=FOLDER with a folder that exists, or unset SVEA_DATA"
        return Check("data", str(error), cure, UserError.exit_code)
    if root is None:
        return Check("data", "no folder given (--data-dir or SVEA_DATA): svea makes its own")
    parts, cure = inventory(root), ""
    value = f"{root}: " + ", ".join(f"{part.name} {part.summary}" for part in parts)
    if not any(part.count for part in parts):
        value += ": nothing svea knows"
        cure = "point SVEA_DATA at the folder that holds dmcgb/, davis/ or photos/"
    elif incomplete := [part.name for part in parts if part.count and part.missing]:
        cure = f"svea data list --data-dir {root} names what {', '.join(incomplete)} lack"
    return Check("data", value, cure)


def check_disk() -> Check:
    """Whether runs can be written where the command is called."""
    runs = Path("runs")
    folder = (runs if runs.is_dir() else Path.cwd()).absolute()
    free = shutil.disk_usage(folder).free
    value, code = f"{free / GIB:.1f} GiB free in {folder}", 0
    if not os.access(folder, os.W_OK):
        value, code = f"{folder} cannot be written to", errors.StorageError.exit_code
    elif free < GIB:
        code = errors.StorageError.exit_code
    # A checkpoint holds the replay, and the old one stays until the new one is complete.
    elif free < 2 * REPLAY_GIB * GIB:
        value += f"; a checkpoint of the paper preset needs up to {2 * REPLAY_GIB} GiB"
    else:
        return Check("disk", value)
    return Check("disk", value, "choose a folder on another disk with --out DIR", code)


def _installed_version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def run(arguments: list[str]) -> int:
    """Examine this machine; 0 when svea can be used here, else the worst problem's code."""
    about = "Check this machine: versions, device, renderer, data; and say how to fix problems."
    parser = argparse.ArgumentParser(prog="svea doctor", description=about)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    if sys.stderr.isatty():
        note("checking this machine; importing torch and drawing take seconds")
    checks = diagnose(options.data_dir)
    code = max(check.exit_code for check in checks)
    if options.json:
        found = [asdict(check) | {"status": check.status} for check in checks]
        print(dumps({"usable": code == 0, "exit_code": code, "checks": found}, indent=2))
        return code
    for check in checks:
        print(f"{check.status:<8} {check.name:<18} {check.value}")
        if check.cure:
            print(f"{'':<27} fix: {check.cure}")
    bad = {kind: [c.name for c in checks if c.status == kind] for kind in ("problem", "warning")}
    if bad["problem"]:
        print(f"svea cannot be used here yet: fix {', '.join(bad['problem'])}")
    else:
        look = f"; look at {', '.join(bad['warning'])}" if bad["warning"] else ""
        print(f"svea can be used here{look}")
    return code
