import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from svea.core.errors import DISTRIBUTION, install_hint

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {
    name: [Requirement(line) for line in lines]
    for name, lines in PROJECT["optional-dependencies"].items()
}
BASE = [Requirement(line) for line in PROJECT["dependencies"]]
LOCK = (ROOT / "requirements.txt").read_text()
TRAINING_ONLY = ("torch", "safetensors", "matplotlib", "jinja2")

BASE_INSTALL = f"""
import sys

ABSENT = {TRAINING_ONLY!r}

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def locked() -> dict[str, str]:
    """Each pinned package with its version."""
    pins = re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def python(code: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SVEA_DATA": ""}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)


def base_install(
    *arguments: str, absent: tuple[str, ...] = TRAINING_ONLY
) -> subprocess.CompletedProcess[str]:
    """The command `svea` where some packages are not installed."""
    call = f"ABSENT = {absent!r}\nsys.argv = {['svea', *arguments]!r}\n"
    return python(f"{BASE_INSTALL}{call}from svea.cli import main\nsys.exit(main())")


@pytest.mark.parametrize("extra", ["base", "train"])
def test_every_required_package_is_imported_by_some_source_file(extra):
    packages = BASE if extra == "base" else EXTRAS[extra]
    names = {"pillow": "PIL", "dm-control": "dm_control", "imageio-ffmpeg": "imageio_ffmpeg"}
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE))
    assert {names.get(r.name, r.name) for r in packages} <= imported


def test_every_pin_has_hashes_and_nothing_else_is_in_the_file():
    entries = re.split(r"\n(?=\S)", "\n" + re.sub(r"^#.*\n", "", LOCK, flags=re.MULTILINE).strip())
    entries = [entry for entry in entries if entry.strip()]
    assert len(entries) == len(locked()) > 40
    for entry in entries:
        head, *hashes = entry.replace("\\\n", "\n").splitlines()
        assert re.fullmatch(r"[\w.-]+==\S+( ; .+)?", head.strip()), head
        assert hashes, f"{head} has no hash"
        assert all(re.fullmatch(r"\s+--hash=sha256:[0-9a-f]{64}\s*", line) for line in hashes)


def test_the_file_names_no_address_and_no_torch():
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", LOCK)
    awkward = [n for n in locked() if re.match(r"(torch|torchvision|triton|nvidia-|cuda-)", n)]
    assert awkward == []


def test_the_pins_cover_and_satisfy_the_ranges():
    ranges = BASE + EXTRAS["train"] + EXTRAS["tensorboard"] + EXTRAS["dev"]
    pins = locked()
    for requirement in ranges:
        if requirement.name != "torch":
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_makefile_installs_a_torch_of_the_range():
    (pin,) = re.findall(r"^TORCH \?= torch==(\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pin in next(r for r in EXTRAS["train"] if r.name == "torch").specifier


def test_the_distribution_is_named_once():
    assert PROJECT["name"] == DISTRIBUTION


def test_the_version_is_the_same_everywhere():
    import svea

    version = svea.__version__  # pyproject reads it from src/svea/__init__.py
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "walker_walk"], 2, install_hint("train")),
        (["eval", "runs/none"], 2, install_hint("train")),
        (["data", "list"], 0, "video_hard"),
        (["tasks"], 0, "walker_walk"),
        (["gallery", "environments", "-o", "sheet.txt"], 2, ".png"),  # imports alone: no renderer
        (["gallery", "robot", "-o", "sheet.txt"], 2, ".png"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_verbs_without_the_training_packages_work_or_name_the_extra(arguments, code, words):
    result = base_install(*arguments)
    assert result.returncode == code, result.stderr
    assert words in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_doctor_runs_without_even_the_command_lines_packages():
    result = base_install("doctor", "--json", absent=(*TRAINING_ONLY, "tyro", "rich"))
    assert "Traceback" not in result.stderr
    report = json.loads(result.stdout)
    assert report["exit_code"] == result.returncode
    assert "rendering" in {check["name"] for check in report["checks"]}


@pytest.mark.parametrize("folder", ["src", "docs", "examples", "benchmarks", "scripts", "."])
def test_no_hint_installs_the_other_project_called_svea(folder):
    found = (ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*")
    texts = [path for path in found if path.suffix in (".py", ".md", ".toml", ".j2", "")]
    for path in filter(Path.is_file, texts):
        text = path.read_text()
        assert not re.search(r"pip install [^#`\n]*\bsvea\b|['\"]svea\[", text), path
