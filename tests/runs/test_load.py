import json
import math
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tiny_runs import tiny

from svea.agents import make_agent
from svea.augment.images import ImageBank
from svea.core.errors import StorageError, SveaError, UserError
from svea.evaluation.requests import evaluate
from svea.runs import checkpoint
from svea.runs.load import export, load_agent, load_config
from svea.training import train

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 9, 16, 16), dtype=np.uint8)


@pytest.fixture
def exported(run: Path, tmp_path: Path) -> Path:
    return export(run, tmp_path / "exported")


def test_an_export_acts_judges_and_evaluates_like_its_run(run: Path, exported: Path) -> None:
    original, copy = load_agent(run), load_agent(exported)
    assert np.array_equal(original.act(IMAGES), copy.act(IMAGES))
    q = [a.q_value(torch.from_numpy(IMAGES), torch.zeros(5, 1)) for a in (original, copy)]
    assert torch.equal(*q)
    assert copy.decision == original.decision == 16
    assert load_config(exported) == load_config(run)
    records = [evaluate(folder, episodes=2, environments=1) for folder in (exported, run)]
    assert records[0] == records[1]


def test_an_agent_of_a_run_is_its_newest_checkpoint(run: Path) -> None:
    saved = checkpoint.load(run)
    assert saved is not None
    for name, tensor in load_agent(run).state_dict().items():
        assert torch.equal(tensor, saved.agent[name]), name


def test_an_export_is_small_and_says_what_it_is(run: Path, exported: Path) -> None:
    names = sorted(path.name for path in exported.iterdir())
    assert names == ["actor.safetensors", "config.json", "critic.safetensors"]
    about = json.loads((exported / "config.json").read_text())
    assert about["decision"] == 16 and about["task"] == "toy:make" and "svea_version" in about
    whole = sum(p.stat().st_size for p in run.glob("checkpoints/000000016/*"))
    assert sum(p.stat().st_size for p in exported.iterdir()) < whole / 2


@pytest.mark.parametrize(
    ("option", "number"), [("hidden", 65_536), ("projection", 65_536), ("image_size", 1024)]
)
def test_sizes_in_config_json_are_compared_with_the_weights_before_memory_is_taken(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, number: int
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    stored = json.loads((copy / "config.json").read_text())
    (stored if option in stored else stored["network"])[option] = number
    (copy / "config.json").write_text(json.dumps(stored))
    made = []

    def make(config: Any, actions: int, device: Any, *rest: Any) -> Any:
        made.append(str(device))
        assert made == ["meta"], "memory is taken"
        return make_agent(config, actions, device, *rest)

    monkeypatch.setattr("svea.runs.load.make_agent", make)
    with pytest.raises(StorageError, match=r"config\.json"):
        load_agent(copy)
    assert made == ["meta"]


def change_config(folder: Path, **changes: object) -> None:
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | changes))


def test_an_export_that_does_not_count_its_decisions_is_refused(exported, tmp_path):
    for decision in ("many", math.nan, -3, None, True):
        change_config(exported, decision=decision)
        with pytest.raises(StorageError, match="decision"):
            export(exported, tmp_path / "again")


def test_an_export_can_be_exported_again(exported: Path, tmp_path: Path) -> None:
    again = export(exported, tmp_path / "again")
    for path in exported.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


def test_exports_overwrite_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    for place in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(UserError):
            export(run, place)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_export_is_whole_or_absent_and_an_unfinished_one_is_replaced(run, tmp_path, monkeypatch):
    target = tmp_path / "export"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("svea.core.files.rename", interrupt)
        export(run, target)
    assert not list(tmp_path.iterdir())
    (tmp_path / f".export.{2**22 + 1}.partial").mkdir()  # of a process that was killed
    target.mkdir()
    export(run, target)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    assert load_agent(target).decision == 16


def test_folders_that_are_no_runs(run: Path, tmp_path: Path) -> None:
    def refused(kind: type[SveaError], named: str, folder: Path = tmp_path) -> None:
        with pytest.raises(kind, match=named):
            load_agent(folder)

    refused(UserError, r"config\.json")
    refused(UserError, "missing", tmp_path / "missing")
    shutil.copy(run / "config.json", tmp_path / "config.json")
    refused(UserError, "10 decisions .--save-every")
    (tmp_path / "config.json").write_text("{")
    refused(StorageError, r"config\.json")
    (tmp_path / "config.json").write_text('{"task": "walker_walk", "colour": 1}')
    refused(UserError, "colour")


def test_weights_that_are_damaged_missing_or_of_another_shape(exported, tmp_path):
    config = json.loads((exported / "config.json").read_text())
    change_config(exported, network=config["network"] | {"hidden": 7})
    with pytest.raises(StorageError, match=r"config\.json"):
        load_agent(exported)
    (exported / "actor.safetensors").write_bytes(b"junk")
    with pytest.raises(StorageError, match="actor"):
        load_agent(exported)
    (exported / "actor.safetensors").unlink()
    for use in (lambda: load_agent(exported), lambda: export(exported, tmp_path / "new")):
        with pytest.raises(StorageError, match="actor"):
            use()
    change_config(exported, files={})
    with pytest.raises(StorageError, match="actor"):
        load_agent(exported)


def test_a_device_that_is_not_there_is_not_the_fault_of_the_weights(exported: Path) -> None:
    missing = "mps" if torch.cuda.is_available() else "cuda"
    with pytest.raises(UserError, match=missing):
        load_agent(exported, missing)


@pytest.mark.parametrize(
    "changes",
    [
        {"augment": "gamma_of_a_script"},
        {"augment": "conv|no_such_module:gamma"},
        {"augment": "overlay", "overlay_dir": "/no/such/folder"},
    ],
)
def test_a_run_whose_augmentation_is_not_here_still_acts(changes, run, tmp_path):
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    change_config(copy, **changes)
    agent = load_agent(copy)
    assert np.array_equal(agent.act(IMAGES), load_agent(run).act(IMAGES))
    records, expected = (evaluate(folder, episodes=2, environments=1) for folder in (copy, run))
    assert [r["return"] for r in records] == [r["return"] for r in expected]
    export(copy, tmp_path / "exported")
    with pytest.raises(UserError, match="strong augmentation"):
        agent.views(torch.from_numpy(IMAGES))["strong", 0]


def test_pictures_are_made_when_the_strong_view_is_asked_for(run, tmp_path, monkeypatch):
    """They take seconds, and an agent that acts needs none."""
    copy, calls, find = Path(shutil.copytree(run, tmp_path / "copy")), [], ImageBank.find
    change_config(copy, augment="conv|overlay")
    monkeypatch.setattr(ImageBank, "find", lambda *given: calls.append(given) or find(*given))
    agent = load_agent(copy)
    images = torch.from_numpy(IMAGES)
    agent.act(IMAGES)
    assert calls == []
    usual = make_agent(load_config(copy), actions=agent.actions)
    usual.load_state_dict(agent.state_dict())
    assert torch.equal(agent.views(images)["strong", 0], usual.views(images)["strong", 0])
    agent.views(images)["strong", 0]
    assert len(calls) == 2, "once for each agent"


@pytest.mark.parametrize("augment", ["gamma_of_a_script", "no_such_module:gamma"])
def test_training_needs_the_augmentation(augment: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gamma"):
        train(tiny(tmp_path / "run", augment=augment))
    assert not (tmp_path / "run").exists(), "nothing was started"


def test_a_run_with_the_users_own_augmentation(tmp_path: Path, own_augments: ModuleType) -> None:
    run = train(tiny(tmp_path / "run", augment="conv|own_augments:own_gamma"))
    assert load_config(run).augment == "conv|own_augments:own_gamma"
    assert train(tiny(run, augment="conv|own_augments:own_gamma", decisions=50)) == run
    assert load_agent(run).decision == 50
