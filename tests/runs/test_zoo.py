import json
import shutil
from pathlib import Path

import pytest

import svea
from svea.cli import main
from svea.core.errors import SveaError, UserError
from svea.core.files import replace_json
from svea.results.read import find_runs
from svea.runs import zoo
from svea.runs.load import export, load_agent, load_config
from svea.runs.records import read_records

CARD = {
    "task": "toy:make", "method": "svea", "decisions": 16, "size": 9000, "licence": "MIT",
    "returns": [{"mode": "train", "shown": "train", "mean": 7.5, "episodes": 10, "worlds": 1}],
}  # fmt: skip


@pytest.fixture
def agents(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of one agent; commands run in an empty folder."""
    folder = tmp_path / "zoo"
    export(run, folder / "toy-svea", small=True)
    replace_json(folder / "toy-svea/card.json", CARD)
    monkeypatch.setenv("SVEA_ZOO", str(folder))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_loading_by_name_writes_nothing(agents: Path) -> None:
    agent = svea.load_agent("zoo:toy-svea")
    assert agent.decision == 16 and load_config("zoo:toy-svea").task == "toy:make"
    assert len(svea.evaluate("zoo:toy-svea", episodes=1, environments=1)) == 1
    assert list(Path().iterdir()) == []


def test_eval_records_in_a_working_copy_and_leaves_the_zoo_alone(agents: Path) -> None:
    before = sorted(agents.rglob("*"))
    command = ["eval", "zoo:toy-svea", "--modes", "train", "--episodes", "2", "--envs", "1"]
    assert main(command) == 0
    assert len(read_records(Path("runs/zoo/toy-svea"))) == 2
    assert sorted(agents.rglob("*")) == before
    assert main(command) == 0  # the copy is there, and the records count
    assert len(read_records(Path("runs/zoo/toy-svea"))) == 2


@pytest.mark.filterwarnings("ignore:.*without its critic")
@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("watch zoo:toy-svea --modes train --size 32", "watch.mp4"),
        ("analyze saliency zoo:toy-svea --modes train", "analysis/saliency.png"),
    ],
)
def test_an_agent_without_q_values_is_shown_in_its_working_copy(agents, command, made):
    assert main(command.split()) == 0
    assert (Path("runs/zoo/toy-svea") / made).stat().st_size > 0


@pytest.mark.parametrize("others", [[], ["runs/zoo/toy-svea"]])
def test_a_report_lies_in_the_working_copy(agents: Path, others: list[str]) -> None:
    assert main(["eval", "zoo:toy-svea", "--modes", "train", "--episodes", "1"]) == 0
    assert main(["report", "zoo:toy-svea", *others]) == 0
    page = Path("report.html") if others else Path("runs/zoo/toy-svea/report.html")
    assert page.stat().st_size > 0
    assert not any(path.name.startswith("zoo:") for path in Path().iterdir())


def test_analyses_that_need_more_than_the_acting_part_are_refused(agents: Path) -> None:
    for words in (["saliency", "--guided"], ["q-variance"], ["q-gap"]):
        assert main(["analyze", *words, "zoo:toy-svea"]) == 2


def test_a_copy_follows_its_source(agents: Path) -> None:
    copy = zoo.working_copy("zoo:toy-svea")
    (copy / "actor.safetensors").write_bytes(b"old")
    assert find_runs(["zoo:toy-svea"]) == [copy]
    assert load_agent(copy).decision == 16


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("zoo:toy-sve", "'toy-svea'"),
        ("zoo:TOY-SVEA", "'toy-svea'"),
        ("zoo:../zoo/toy-svea", "unknown agent"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_never_leads_out(agents, name, answer):
    for use in (zoo.working_copy, load_agent):
        with pytest.raises(UserError, match=answer):
            use(name)


def test_an_agent_is_not_a_task(agents: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["train"], ["gallery", "environments", "--tasks"]):
        assert main([*command, "zoo:toy-svea"]) == 2
        assert "task is 'zoo:toy-svea'" in capsys.readouterr().err


def flip(agent: Path) -> None:
    content = bytearray((agent / "actor.safetensors").read_bytes())
    content[-1] ^= 1
    (agent / "actor.safetensors").write_bytes(content)


def forget_files(agent: Path) -> None:
    stored = json.loads((agent / "config.json").read_text())
    replace_json(agent / "config.json", {k: v for k, v in stored.items() if k != "files"})


@pytest.mark.parametrize(
    ("damage", "verb", "named"),
    [
        (flip, "eval", "actor.safetensors"),
        (lambda agent: (agent / "actor.safetensors").unlink(), "watch", "actor.safetensors"),
        (lambda agent: (agent / "config.json").unlink(), "report", "config.json"),
        (forget_files, "eval", "config.json"),
        (flip, "export", "actor.safetensors"),
    ],
)
def test_a_damaged_agent_is_named_where_it_is(agents, damage, verb, named, capsys):
    copy = zoo.working_copy("zoo:toy-svea")
    before = {path: path.read_bytes() for path in copy.iterdir()}
    damage(agents / "toy-svea")
    assert main([verb, "zoo:toy-svea", *(["exported"] if verb == "export" else [])]) == 4
    said = capsys.readouterr().err
    assert f"{agents}/toy-svea" in said and named in said
    assert {path: path.read_bytes() for path in copy.iterdir()} == before  # a good copy stays good
    with pytest.raises(SveaError, match="toy-svea"):
        load_agent("zoo:toy-svea")


@pytest.mark.parametrize(
    ("card", "why"),
    [
        (None, "card.json"),
        ("{", "card.json"),
        ("[]", "card.json"),
        ("{}", "task"),
        (json.dumps(CARD | {"decisions": "many"}), "decisions"),
        (json.dumps(CARD | {"returns": [{"mode": "train"}]}), "mean"),
    ],
)
def test_a_bad_card_hides_no_other(agents, card, why, capsys):
    bad = Path(shutil.copytree(agents / "toy-svea", agents / "a-bad-one")) / "card.json"
    bad.unlink() if card is None else bad.write_text(card)
    for arguments in ([], ["--json"]):
        assert main(["zoo", *arguments]) == 4
        out, err = capsys.readouterr()
        assert "toy-svea" in out and "a-bad-one" not in out
        assert f"{agents}/a-bad-one of the zoo is damaged" in err and why in err


def test_the_list_has_a_common_licence_below_and_leaves_other_modes_to_the_card(agents, capsys):
    assert main(["zoo"]) == 0
    head, first, *notes = capsys.readouterr().out.splitlines()
    assert head.split() == ["agent", "decisions", "train"]
    assert first.split() == ["zoo:toy-svea", "16", "7.5"]
    assert "9000 bytes each; licence: MIT" in " ".join(notes)
    turned = {"mode": "rotate_easy", "mean": 3.25, "episodes": 6, "worlds": 6}
    other = Path(shutil.copytree(agents / "toy-svea", agents / "other"))
    changes = {"licence": "Apache-2.0", "returns": [*CARD["returns"], turned]}
    replace_json(other / "card.json", CARD | changes)
    assert main(["zoo"]) == 0
    shown = capsys.readouterr().out
    assert "MIT" in shown and "Apache-2.0" in shown and "rotate_easy" not in shown
    assert main(["zoo", "--json"]) == 0
    assert "rotate_easy" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["none", "empty"])
def test_without_agents_it_says_where_to_get_them(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SVEA_ZOO", str(tmp_path / folder))
    for command in (["zoo"], ["eval", "zoo:walker_walk-svea"]):
        assert main(command) == 2
        assert f"SVEA_ZOO is '{tmp_path / folder}'" in capsys.readouterr().err
