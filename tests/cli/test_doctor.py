import importlib.metadata
import json
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from svea.cli import doctor
from svea.core import errors, machine
from svea.speed import device

# Kept before `healthy` replaces them.
MEASURE_GL = doctor.measure_gl
MISSING_FOR_COMPILING = device.missing_for_compiling

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
REQUIRES = PROJECT["dependencies"] + [
    f"{line}; extra == {extra!r}"
    for extra, lines in PROJECT["optional-dependencies"].items()
    for line in lines
]
"""What an installed svea says of itself."""

SOFTWARE_GL = {
    "backend": "egl", "vendor": "Mesa", "renderer": "llvmpipe", "is_software": True,
    "ms_per_frame": 9.5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def healthy(monkeypatch, tmp_path):
    """A machine on which every check passes, whatever machine this is."""
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: REQUIRES)
    versions = {"svea": "0.1.0"}
    for package in doctor.requirements():
        versions[package.name] = re.findall(r">=([\d.]+)", str(package.specifier))[0]
    monkeypatch.setattr(doctor, "_installed_version", versions.get)
    monkeypatch.setattr(doctor, "measure_gl", lambda: SOFTWARE_GL)
    monkeypatch.setattr(machine, "has_nvidia_gpu", lambda: False)
    monkeypatch.setattr(device, "choose_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(device, "missing_for_compiling", lambda _: "")
    monkeypatch.setattr(machine, "available_bytes", lambda: 64 * doctor.GIB)
    monkeypatch.setattr(machine, "usable_cores", lambda: 2)
    set_free(monkeypatch, 100 * doctor.GIB)
    monkeypatch.delenv("SVEA_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return versions


def set_free(monkeypatch, free: int) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))


def finding(name: str) -> doctor.Check:
    return next(check for check in doctor.diagnose() if check.name == name)


def test_a_healthy_machine_has_no_cures_and_exit_code_0(capsys):
    assert {check.status for check in doctor.diagnose()} == {"ok"}
    assert doctor.run([]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "svea can be used here"


def test_a_check_that_raises_does_not_hide_the_others(monkeypatch):
    names = [check.name for check in doctor.diagnose()]

    def explode(*_):
        raise RuntimeError("first line\nsecond line")

    checks = [name for name in vars(doctor) if name.startswith("check_")]
    assert len(checks) >= 9
    for check in checks:
        monkeypatch.setattr(doctor, check, explode)
    broken = doctor.diagnose()
    assert [check.name for check in broken] == names
    broken = broken[2:]  # python and svea: nothing there could raise
    assert {check.value for check in broken} == {"RuntimeError: first line second line"}
    assert all(check.status == "problem" and check.cure for check in broken)
    assert doctor.run([]) == errors.SveaError.exit_code


def test_without_torch_the_environments_are_usable_and_the_cure_is_the_train_extra(healthy):
    del healthy["torch"]
    assert finding("torch").status == "warning"
    assert finding("torch").cure == finding("device").cure == errors.install_hint()
    assert doctor.run([]) == 0


def test_without_a_compiler_updates_are_slow_and_gcc_is_the_cure(healthy, monkeypatch, tmp_path):
    cpu = pytest.importorskip("svea.kernels.cpu")
    cpu.library.cache_clear()  # its answer may be known already
    monkeypatch.setattr(device, "missing_for_compiling", MISSING_FOR_COMPILING)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # what was compiled before needs no gcc
    monkeypatch.delenv("CC", raising=False)
    check = finding("updates")
    assert check.status == "warning" and "gcc" in check.cure and "gcc" in check.value


def test_a_torch_that_does_not_import_is_reported_and_not_raised(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert finding("device").status == "problem" and "torch" in finding("device").value
    assert finding("disk").status == "ok"


def test_the_cure_for_too_little_memory_is_no_new_installation(monkeypatch):
    error = ImportError("libtorch_cpu.so: failed to map segment from shared object")
    monkeypatch.setattr(doctor, "check_device", mock.Mock(side_effect=error))
    assert "memory" in finding("device").cure and "reinstall" not in finding("device").cure


def test_a_mujoco_out_of_range_is_named_with_the_range_that_works(healthy):
    for version in ("4.0.0", "4.1.0rc1", "3.16.9", "2.3.7"):
        healthy["mujoco"] = version
        assert version in finding("mujoco").value
        assert finding("mujoco").cure == "pip install 'mujoco>=3.17,<4'"
    assert doctor.run([]) == errors.UserError.exit_code
    for version in ("3.17.0", "3.17", "3.100.2", "3.17.1+local"):  # compared as numbers
        healthy["mujoco"] = version
        assert finding("mujoco") == doctor.Check("mujoco", version)


def test_an_uninstalled_source_tree_is_checked_without_versions(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.importlib.metadata, "requires", absent)
    assert finding("packages").status == "warning" and finding("disk").status == "ok"
    assert doctor.run([]) == 0


@pytest.mark.parametrize(
    ("is_software", "gpu", "status"),
    [(True, True, "warning"), (True, False, "ok"), (False, True, "ok")],
)
def test_software_rendering_is_a_warning_only_beside_a_gpu(monkeypatch, is_software, gpu, status):
    monkeypatch.setattr(doctor, "measure_gl", lambda: SOFTWARE_GL | {"is_software": is_software})
    monkeypatch.setattr(machine, "has_nvidia_gpu", lambda: gpu)
    check = finding("rendering")
    assert check.status == status and "9.5 ms per frame" in check.value


class TestTheProcessThatDraws:
    @pytest.fixture(autouse=True)
    def real_process(self, monkeypatch, healthy):
        monkeypatch.setattr(doctor, "measure_gl", MEASURE_GL)

    def test_a_crash_and_a_hang_of_the_driver_are_findings(self, healthy, monkeypatch):
        healthy["mujoco"] = "4.0.0"  # less bad
        for function, cure in (("os:abort", "SIGABRT"), ("signal:pause", "MUJOCO_GL=osmesa")):
            monkeypatch.setattr(doctor, "DRAW", function)
            assert cure in finding("rendering").cure
            monkeypatch.setattr(doctor, "GL_TIMEOUT_SECONDS", 0.2)
        assert doctor.run([]) == errors.RendererError.exit_code > errors.UserError.exit_code

    def test_what_the_driver_prints_is_not_taken_for_the_answer(self, monkeypatch, tmp_path):
        (tmp_path / "noisy.py").write_text(
            f"def draw():\n    print('MESA: hello')\n    return {SOFTWARE_GL!r}\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(doctor, "DRAW", "noisy:draw")
        assert doctor.measure_gl() == SOFTWARE_GL

    def test_a_wrong_backend_is_bad_input(self, monkeypatch):
        monkeypatch.setenv("MUJOCO_GL", "rubbish")
        assert "'rubbish'" in finding("rendering").cure
        assert finding("rendering").exit_code == errors.UserError.exit_code

    def test_this_machine_draws(self):
        gl = doctor.measure_gl()
        assert gl["renderer"] in finding("rendering").value


def test_too_little_memory_and_disk_are_warnings_and_a_full_disk_a_problem(monkeypatch):
    monkeypatch.setattr(machine, "available_bytes", lambda: 4 * doctor.GIB)
    assert finding("memory").cure == "svea train TASK --preset quick"
    set_free(monkeypatch, 5 * doctor.GIB)
    assert finding("disk").status == "warning"
    set_free(monkeypatch, 2**20)
    assert finding("disk").exit_code == errors.StorageError.exit_code


def test_data_that_is_incomplete_missing_or_not_data(tmp_path, monkeypatch):
    monkeypatch.setenv("SVEA_DATA", str(tmp_path / "nowhere"))
    assert "nowhere" in finding("data").value
    assert doctor.run([]) == errors.UserError.exit_code
    assert doctor.run(["--data-dir", str(tmp_path)]) == 0  # the flag beats the variable
    assert doctor.check_data(tmp_path).status == "warning"
    for name in ("dmcgb/video_easy/video3.mp4", "davis/bear.mp4"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    check = doctor.check_data(tmp_path)
    assert "video_easy 1 of 10 clips" in check.value
    assert check.cure.startswith("svea data list") and "video_easy" in check.cure


def test_lines_say_what_json_says(healthy, capsys):
    healthy["numpy"] = "1.26.4"
    assert doctor.run(["--json"]) == errors.UserError.exit_code
    report = json.loads(capsys.readouterr().out)
    assert (report["usable"], report["exit_code"]) == (False, errors.UserError.exit_code)
    problems = [check for check in report["checks"] if check["status"] == "problem"]
    assert [(check["name"], check["cure"]) for check in problems] == [
        ("numpy", "pip install 'numpy>=2'")
    ]
    doctor.run([])
    words = " ".join(capsys.readouterr().out.split())
    for check in report["checks"]:
        assert f"{check['status']} {check['name']} {' '.join(check['value'].split())}" in words
    assert "fix: pip install 'numpy>=2'" in words and words.endswith("yet: fix numpy")
