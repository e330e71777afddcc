"""What was made before a refactoring stays usable: a run, records and every flag.

tests/fixtures holds what 0.1.0 made; tools/freeze.py compares two commits bit for bit.
"""

import json
import runpy
import shutil
from pathlib import Path

import pytest
from exit_codes import call

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests/fixtures"
VERBS = dict(line.split(":") for line in (FIXTURES / "verbs.txt").read_text().splitlines())
REMOVED = {
    "--updates-per-decision": "no measured number needs another than 1",
    "--decisions-per-second": "a speed from another machine would only look like an estimate",
    "--drop-replay": "`--set save_replay=false` says the same",
}
"""Verbs and flags that are gone on purpose, with the reason."""

flags = runpy.run_path(str(ROOT / "tools/freeze.py"))["flags"]


def test_a_stored_run_continues_and_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FIXTURES / "run", "run")
    config, log = json.loads(Path("run/config.json").read_text()), Path("run/metrics.jsonl")
    before, command = log.read_text(), config["command"].split()[1:]
    assert call([*command, "--decisions", "80"]) == 0
    after = log.read_text()
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines()]
    assert {line["decision"] for line in added if line["kind"] == "train"} == {70, 80}
    assert call(["eval", "run", "--modes", "train", "--episodes", "1", "--envs", "1"]) == 0
    (record,) = [json.loads(line) for line in Path("run/eval.jsonl").read_text().splitlines()]
    assert record["decision"] == 80


def test_stored_records_make_the_same_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(FIXTURES / "records", "records")
    assert call(["report", "records", "-o", "page.html", "--figures", "figures"]) == 0
    for wanted in (FIXTURES / "tables").iterdir():
        made = Path("figures", wanted.name).read_text()
        if wanted.suffix == ".csv":
            assert made == wanted.read_text(), wanted.name
        else:
            assert rows(made) == rows(wanted.read_text()), wanted.name


def rows(page: str) -> list[str]:
    """Of a page's tables."""
    return [line for line in page.splitlines() if line.startswith("|")]


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - REMOVED.keys()))
def test_no_flag_is_lost(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*verb.split(), "--help"]) == 0
    gone = set(VERBS[verb].split()) - flags(capsys.readouterr().out)
    assert gone <= REMOVED.keys()
