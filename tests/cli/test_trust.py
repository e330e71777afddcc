"""What a folder from a stranger names as `module:name` is imported only when the user says so."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import tiny

from svea.cli import main
from svea.config import configure
from svea.core import importing
from svea.core.errors import UserError
from svea.core.process import environment
from svea.evaluation.requests import evaluate
from svea.runs.load import export, load_agent, load_config
from svea.studies import Grid, open_study, plan_runs, read_study
from svea.training import train

STRANGE = "import pathlib\npathlib.Path(__file__).with_name('executed').touch()\n"
OURS = STRANGE + "from svea.methods import METHODS\nfrom toy import make\nown = METHODS['svea']\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tiny(tmp_path_factory.mktemp("trust") / "run", decisions=16))


@pytest.fixture
def asked(monkeypatch):
    """Nothing has been named or imported yet."""
    monkeypatch.setattr(importing, "_users", set())
    monkeypatch.delitem(sys.modules, "toy", raising=False)
    monkeypatch.delitem(sys.modules, "strange", raising=False)


@pytest.fixture
def strange(run, tmp_path, monkeypatch, asked):
    """Makes an export that names a module, which lies in it and in the working folder."""

    def make(option: str, value: str) -> Path:
        made = export(run, tmp_path / "export") if not (tmp_path / "export").exists() else None
        folder = made or tmp_path / "export"
        stored = json.loads((folder / "config.json").read_text()) | {"task": "walker_walk"}
        (folder / "config.json").write_text(json.dumps(stored | {option: value}))
        (folder / "strange.py").write_text(OURS)
        return folder

    importing.trust("toy:make")
    made = make("task", "toy:make")
    importing._users.clear()
    monkeypatch.chdir(made)
    return make


@pytest.mark.parametrize(
    ("option", "value"),
    [("task", "strange:make"), ("method", "strange:own"), ("encoder", "strange:make"),
     ("augment", "conv|strange:make"), ("task", "os:abort"), ("encoder", "svea.cli:main")],
)  # fmt: skip
def test_what_config_json_names_is_not_imported(strange, option, value):
    folder = strange(option, value)
    if option in ("task", "augment"):
        load_agent(folder)  # which needs neither an environment nor a strong augmentation
    refused = {"task": [load_config, evaluate], "augment": []}
    for use in refused.get(option, [load_config, evaluate, load_agent]):
        with pytest.raises(UserError, match="--trust"):
            use(folder)
    assert not (folder / "executed").exists()


def test_it_is_imported_when_the_user_says_so(strange, monkeypatch):
    folder = strange("method", "strange:own")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_config(folder, trust=True).method == "strange:own"
    assert (folder / "executed").exists()
    assert load_agent(folder).decision == 16, "once is enough"


def test_a_module_that_was_imported_or_named_in_python_needs_no_trust(strange, monkeypatch):
    folder = strange("task", "toy:make")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "toy", sys)
        assert load_config(folder).task == "toy:make"
        patch.setattr(importing, "_counts_imported", False)  # as in `svea eval`
        with pytest.raises(UserError, match="--trust"):
            load_config(folder)
    configure("toy:make")
    assert load_config(folder).task == "toy:make"


def test_environments_of_gymnasium_itself_need_none(strange):
    assert load_config(strange("task", "gymnasium:CarRacing-v3")).task == "gymnasium:CarRacing-v3"
    with pytest.raises(UserError, match="--trust"):
        load_config(strange("task", "gymnasium.utils.play:play"))


def svea(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "svea", *words],
        env=environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_on_the_command_line_a_flag_or_the_name_says_so(strange):
    folder = strange("task", "strange:make")
    (folder / "strange:make").mkdir()  # a name that a shell may complete
    words = ["eval", ".", "--modes", "train", "--episodes", "1", "--envs", "1"]
    for refused in (words, ["eval", ".", "strange:make", *words[2:]]):
        done = svea(*refused)
        assert done.returncode == 2 and "--trust" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and not (folder / "executed").exists()
    (folder / "strange:make").rmdir()
    for allowed in ([*words, "--trust"], [*words, "--task", "strange:make", "--again"]):
        assert svea(*allowed).returncode == 0
    assert (folder / "executed").exists()


def test_a_method_in_study_json_is_not_imported(tmp_path, asked, monkeypatch, capsys):
    open_study(tmp_path / "study", plan_runs([Grid(["walker_walk"])], {"decisions": 100})).save()
    path = tmp_path / "study/study.json"
    path.write_text(path.read_text().replace('"method": "svea"', '"method": "strange:own"'))
    (tmp_path / "strange.py").write_text(OURS)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--trust"):
        read_study(tmp_path / "study")
    path.write_text(path.read_text().replace("strange:own", "svea").replace("walker_walk", "a:b"))
    name = read_study(tmp_path / "study").runs[0].name
    for verb in ("train", "export"):
        assert main(["sweep", verb, "study", name]) == 2
    assert "--trust" in capsys.readouterr().err
    assert not (tmp_path / "executed").exists()


def test_words_of_a_command_line_are_names_unless_they_are_files(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("evil:mod")
    importing.trust_typed(shlex.split("eval evil:mod --task=a.b:c --augment 'conv|d:e+f:g' e:h=20"))
    assert importing._users == {"a.b", "d", "f", "e"}
