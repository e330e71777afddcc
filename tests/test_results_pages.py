"""What README.md, docs/results.md, figures and model cards say is what results/ holds."""

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml
from zoo_records import recorded_returns

from svea.data.clips import source_of
from svea.runs.load import load_agent

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_script", ROOT / "scripts/results.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:  # for now: scripts/ has a module named site
        patch.syspath_prepend(ROOT / "scripts")
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def results(script: ModuleType) -> Any:
    return script.Results(ROOT)


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def write_lines(file: Path, records: Iterable[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records))


def texts(row: Sequence[Any]) -> tuple[str, ...]:
    """What stands in the cells of a row, without marks of code and bold print."""
    return tuple(cell.text.strip("`*") for cell in row)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The records, to be edited."""
    shutil.copytree(ROOT / "results", tmp_path / "results")
    return tmp_path


@pytest.mark.parametrize(("setting", "mode"), [
    ("drq", "color_hard"), ("drq + conv", "color_hard"), ("svea + conv", "color_hard"),
    ("svea + overlay", "video_hard"), ("svea-motion", "video_hard"),
])  # fmt: skip
def test_the_readmes_sentences_have_the_means_of_the_table(results: Any, setting: str, mode: str):
    text = (ROOT / "README.md").read_text()
    sentences = text[text.index("## Three results") : text.index("<!-- headline")]
    rows = results.comparison.means().rows
    (mean,) = (r.cells[mode].text for r in rows if r.cells["setting"].text == f"`{setting}`")
    assert re.search(rf"\b{mean}\b", sentences)


def test_pages_and_cards_are_what_results_give(results: Any) -> None:
    for path, wanted in results.contents().items():
        assert path.read_text() == wanted, "run `make results`, unless results/ was edited"
    assert f"there are {len(results.runs)} runs" in (ROOT / "docs/results.md").read_text()


def test_figures_draw_the_numbers_in_results(script: ModuleType, results: Any) -> None:
    figures = {path: drawn for path, drawn, _ in results.figures()}
    assert figures and figures == {path: script.drawn_numbers(path) for path in figures}


def test_curves_are_means_of_training_episodes(script: ModuleType, results: Any) -> None:
    """By hand for one point: DrQ with conv, decisions 40,001 to 50,000."""
    lines = {line.label: line.curve for line in script.training_curves(results.groups)}
    means = []
    for folder in sorted((ROOT / "results/runs").glob("*-drq-conv-s1")):
        episodes = [one for one in lines_of(folder / "metrics.jsonl") if one["kind"] == "episode"]
        ended = [one["return"] for one in episodes if 40_000 < one["decision"] <= 50_000]
        means.append(sum(ended) / len(ended))
    assert len(means) == 5
    assert lines["drq + conv"].decisions[4] == 45_000
    assert lines["drq + conv"].returns[4] == pytest.approx(sum(means) / 5)


def test_what_was_not_evaluated_is_never_shown_as_a_result(script: ModuleType, copy: Path) -> None:
    """Evaluations during training have other colours and fewer episodes: they are no result."""
    for run in ("s1", "s2", "500k-s3"):
        shutil.rmtree(copy / f"results/runs/walker_stand-svea-{run}")
    mode = "distracting_cs:0.1"  # left for the agent at 100,000 decisions alone
    file = copy / "results/runs/finger_spin-svea-s1/eval.jsonl"
    kept = [r for r in lines_of(file) if r["mode"] != mode or r["decision"] == 100_000]
    assert any(record["mode"] == mode for record in kept)
    write_lines(file, kept)
    file = copy / "results/runs/walker_walk-svea-s1/eval.jsonl"
    first, *others = lines_of(file)
    write_lines(file, [first | {"return": first["return"] + 1000.0}, *others])  # of 100 episodes
    shown = map(texts, reversed(script.Results(copy).final().lines()))  # the longer stands first
    rows = {row[:3]: row for row in shown}
    assert rows["finger_spin", "svea + conv", mode][3] == "not yet evaluated"
    assert rows["walker_stand", "svea + conv", "train"][3] == "not yet run"
    assert rows["walker_walk", "svea + conv", "train"][8] == "833 ± 91†"
    assert rows["walker_walk", "svea + conv", "train"][3] == "885", "875 before"


def test_the_search_lists_every_candidate_with_its_score(script: ModuleType, results: Any) -> None:
    """The numbers again, from the records alone."""
    returns: dict[tuple[str, str, str], list[float]] = {}
    for folder in (ROOT / "results/search").iterdir():
        config = json.loads((folder / "config.json").read_text())
        last = max(record["decision"] for record in lines_of(folder / "eval.jsonl"))
        for mode in script.SEARCHED:
            key = (config["augment"], config["task"], mode)
            returns[key] = recorded_returns(folder, last, mode)
    table = results.search()
    assert len(table.lines()) == len(list((ROOT / "results/search").iterdir()))
    for row in table.lines():
        name, score, task, *_, four, _ = texts(row)
        augment = name.removeprefix("svea + ")

        def mean_of_four(task: str, augment: str = augment) -> float:
            found = [returns.get((augment, task, mode), [np.nan]) for mode in script.SEARCHED]
            return float(np.mean([np.mean(one) for one in found]))

        both = (mean_of_four("finger_spin") + mean_of_four("cartpole_swingup")) / 2
        assert four == script.number(mean_of_four(task)) and score == script.number(both)


def test_candidates_are_chosen_on_some_seeds_and_shown_on_others(script, results):
    """The seeds that chose, again from their records; no table of results counts them."""
    returns: dict[tuple[str, int, str, str], list[float]] = {}
    for folder in (ROOT / "results/search-100k").iterdir():
        config = json.loads((folder / "config.json").read_text())
        assert config["augment"] == "overlay|overlay_drift"
        label = {1: f"svea + {config['augment']}", 3: "svea-motion"}[config["sac"]["n_step"]]
        for record in lines_of(folder / "eval.jsonl"):
            key = (label, config["seed"], config["task"], record["mode"])
            returns.setdefault(key, []).append(record["return"])
    four = {
        (label, seed): np.mean(
            [np.mean(returns[label, seed, t, m]) for t in script.TASKS for m in script.SEARCHED]
        )
        for label, seed, *_ in returns
    }
    listed = map(texts, results.comparison.candidates().lines())
    rows = {row[1:3]: row for row in listed if row[0] == "mean of the 5"}
    for (label, seed), score in four.items():
        assert rows[label, str(seed)][-2] == script.number(score)
    both = np.mean([score for (label, _), score in four.items() if label == "svea-motion"])
    name = "svea + overlay|overlay_drift"
    assert rows["svea-motion", "5 to 6"][-2] == script.number(both)
    shown = {row[0]: row for row in map(texts, results.comparison.means().lines())}
    assert shown[name][1] == rows[name, "1"][3] != rows[name, "4"][3]
    chose = {(label, seed) for label, seed, *_ in returns}
    assert not chose & {(group.label, run.seed) for group in results.groups for run in group.runs}


def test_unlike_settings_never_share_a_name(script: ModuleType, copy: Path) -> None:
    name = "svea + overlay|overlay_drift"
    folder = copy / "results/search-100k/walker_walk-overlay_or_drift-s4"
    other = shutil.copytree(folder, folder.with_name("walker_walk-n5-s4"))
    config = json.loads((folder / "config.json").read_text())
    longer = config | {"sac": config["sac"] | {"n_step": 5}}
    (other / "config.json").write_text(json.dumps(longer))
    rows = map(texts, script.Results(copy).comparison.candidates().lines())
    named = [row[1] for row in rows if row[0] == "walker_walk"]
    assert sorted(named) == [name, f"{name}, sac.n_step=5", "svea-motion"]
    (other / "config.json").write_text(json.dumps(config | {"envs": 4}))
    with pytest.raises(SystemExit, match="walker_walk are all named"):
        script.Results(copy)


def test_the_comparison_takes_agents_at_its_length_alone(script: ModuleType, results: Any) -> None:
    rows = {row[:2]: row for row in map(texts, results.comparison.settings().lines())}
    folders = [ROOT / f"results/runs/walker_walk-svea-s{seed}" for seed in (1, 2)]  # of 500,000 and
    means = [np.mean(recorded_returns(folder, 100_000, "train")) for folder in folders]  # 100,000
    assert rows["walker_walk", "svea + conv"][3] == script.number(np.mean(means))
    assert rows["walker_walk", "drq"][3] == "748"


def test_means_over_tasks_are_of_all_five_and_each_task_counts_once(script, results):
    """In front of re-coded clips, which all agents have played."""
    listed = map(texts, results.comparison.settings().lines())
    rows = {row[1]: row for row in listed if row[0].startswith("mean")}
    assert {"svea-drift", "svea + conv"} <= set(rows)
    assert "svea + conv|overlay_drift" not in rows  # on one task alone
    for setting, method in (("svea-drift", "svea-drift"), ("svea + conv", "svea")):
        means = []
        for task in script.TASKS:
            folders = (ROOT / "results/runs").glob(f"{task}-{method}-s[0-9]")
            played = [
                [r["return"] for r in lines_of(folder / "eval.jsonl") if r["policy"] == "agent"
                 and (r["decision"], r["mode"]) == (100_000, "video_hard")
                 and source_of(r["provenance"]) != "dmcgb"]
                for folder in folders
            ]  # fmt: skip
            means.append(np.mean([np.mean(seed) for seed in played]))
        cell = rows[setting][3 + script.MODES.index("video_hard")]
        assert cell == script.number(np.mean(means))


def test_geometry_and_lights_are_of_agents_that_played_all_of_their_modes(script, results):
    table = results.comparison.kinds()
    column = [c.title for c in table.columns].index("`svea-drift`")
    shown = {row[0]: row[column] for row in map(texts, table.lines())}
    found: dict[str, list[float]] = {}
    for task in script.TASKS:  # seed 1 alone was played there, so train is of it alone too
        lines = lines_of(ROOT / f"results/runs/{task}-svea-drift-s1/eval.jsonl")
        records = [r for r in lines if r["policy"] == "agent"]
        for mode in {r["mode"] for r in records}:
            returns = [r["return"] for r in records if r["mode"] == mode]
            found.setdefault(mode, []).append(float(np.mean(returns)))
    lights = [mode for mode in found if "light" in mode]
    assert len(lights) == 6
    for mode in ("train", "rotate_hard", *lights):
        assert shown[mode] == script.number(np.mean(found[mode]))
    assert shown["mean of lights"] == script.number(np.mean([found[mode] for mode in lights]))


def test_geometry_and_lights_are_of_the_seeds_that_show_where_both_were_played(script):
    module = sys.modules["comparison"]
    modes = ["train", *(mode for members in module.KINDS.values() for mode in members)]

    def played(value: float) -> dict[str, list[list[dict[str, Any]]]]:
        return {task: [[{"mode": m, "return": value} for m in modes]] for task in module.TASKS}

    comparison = module.Comparison([], [])
    comparison.shown, comparison.tried = {"a": played(1)}, {"a": played(2), "b": played(3)}
    table = comparison.kinds()
    assert [column.title for column in table.columns] == ["mode", "`a`", "`b`"]
    assert {texts(row[1:]) for row in table.lines()} == {("1.0", "3.0")}


def test_a_task_with_more_seeds_counts_no_more_and_missing_seeds_are_named(script):
    def played(value: float, episodes: int) -> dict[str, list[float]]:
        return {f"episode {k}": [value] for k in range(episodes)}

    mean_cell = sys.modules["comparison"].mean_cell
    one_seed, three = [played(100, 4)], [played(400, 4), played(500, 8), played(900, 4)]
    cell = mean_cell([one_seed, three])
    assert cell.text == script.number((100 + 600) / 2)
    low, high = (float(end) for end in cell.note.strip("[]").split(", "))
    assert low < 350 < high and high <= 500  # seeds of the second task are drawn again
    partly = mean_cell([[played(100, 4), {}]])
    assert partly.text == "100" and partly.note == "[100, 100], without 1 seed"
    assert mean_cell([one_seed, [{}]]).text == script.NOT_EVALUATED


def test_the_leaderboard_has_every_setting_and_its_records(script, results) -> None:
    rows = {row[:3]: row for row in map(texts, results.leaderboard.lines())}
    assert {row[0] for row in rows} == {group.label for group in results.groups}
    row = rows["svea-motion", "500,000", "finger_spin"]
    folder = ROOT / "results/runs/finger_spin-svea-motion-500k-s7"
    means = [np.mean(recorded_returns(folder, 500_000, mode)) for mode in script.MODES]
    assert [cell.split()[0] for cell in row[3:9]] == [*map(script.number, means)]
    shown = {(row[0], row[-1]): row for row in map(texts, results.blocks["published"]().lines())}
    assert shown["SADA", "SADA"][3] == script.number((270 + 702 + 363 + 662 + 566) / 5)


RUN = "walker_walk-svea-s1"


def damaged(line: str) -> dict[str, Callable[[Path], object]]:
    """Ways to damage a run's folder, by what should be said; `line` is one of its records."""

    def edit(file: str, *pairs: tuple[str, str]) -> Callable[[Path], object]:
        def change(folder: Path) -> None:
            text = (folder / file).read_text()
            for old, new in pairs:
                assert old in text
                text = text.replace(old, new, 1)
            (folder / file).write_text(text)

        return change

    record = json.loads(line)
    at = f'"decision": {record["decision"]},'
    return {
        "eval.jsonl is missing": lambda folder: (folder / "eval.jsonl").unlink(),
        "eval.jsonl": edit("eval.jsonl", (line, line[:40])),
        "return": edit("eval.jsonl", (str(record["return"]), "NaN")),
        "1 episode in": edit("eval.jsonl", (line, line.replace(at, '"decision": 1,'))),
        "config.json": lambda folder: (folder / "config.json").write_text("{"),
        "say 84 of all runs": edit("config.json", ('"image_size": 84', '"image_size": 40')),
        "provenance.json cannot be read": lambda folder: (folder / "provenance.json").unlink(),
        "lacks commit": lambda folder: (folder / "provenance.json").write_text("{}"),
        "lacks weights": edit("config.json", ('"seed": 1', '"made_with": {}, "seed": 1')),
        "'2' for command's --seed": edit("provenance.json", ("--seed 1", "--seed 2")),
        "480000 for reached_decisions": edit("provenance.json", ("479856,", "480000,")),
    }


LINE = (ROOT / "results/runs" / RUN / "eval.jsonl").read_text().splitlines()[3]


@pytest.mark.parametrize("said", damaged(LINE))
def test_nothing_is_published_from_a_damaged_run(said, script, tmp_path):
    folder = tmp_path / RUN
    shutil.copytree(ROOT / "results/runs" / RUN, folder)
    damaged(LINE)[said](folder)
    with pytest.raises(SystemExit) as refused:
        script.read_published(tmp_path)
    assert said in str(refused.value) and RUN in str(refused.value)


def test_the_agents_of_the_zoo_are_small_whole_and_have_cards() -> None:
    folders = [path.parent for path in (ROOT / "zoo").glob("*/config.json")]
    assert len(folders) >= 4
    assert sum(f.stat().st_size for f in (ROOT / "zoo").rglob("*")) <= 40_000_000
    for folder in folders:
        card = json.loads((folder / "card.json").read_text())
        agent = load_agent(folder)  # checks the hash
        assert agent.decision == card["decisions"] and card["returns"]
        kinds = {path.suffix for path in folder.iterdir()}
        assert kinds == {".json", ".md", ".safetensors"}


# What the hub's specification of a card requires (hub-docs, modelcard.md).
REQUIRED = {"task": {"type"}, "dataset": {"type", "name"}, "metrics": {"type", "value"}}
OPTIONAL = {"task": {"name"}, "dataset": {"config"}, "metrics": {"name"}}


@pytest.mark.parametrize("folder", sorted((ROOT / "zoo").iterdir()), ids=lambda path: path.name)
def test_a_model_card_has_front_matter_that_the_hub_takes(folder: Path) -> None:
    """Its numbers again, from the records of the run that the card names."""
    empty, front, body = (folder / "README.md").read_text().split("---\n", 2)
    found, card = yaml.safe_load(front), json.loads((folder / "card.json").read_text())
    assert not empty and body.startswith(f"\n# zoo:{folder.name}\n")
    assert set(found) == {"license", "library_name", "pipeline_tag", "tags", "model-index"}
    assert found["license"] == "mit" and found["pipeline_tag"] == "reinforcement-learning"
    assert found["tags"] and all(isinstance(tag, str) for tag in found["tags"])
    (model,) = found["model-index"]
    assert model["name"] == folder.name and model["results"]
    for result in model["results"]:
        (metric,) = result["metrics"]
        for part, has in {**result, "metrics": metric}.items():
            assert REQUIRED[part] <= has.keys() <= REQUIRED[part] | OPTIONAL[part]
        mode = result["dataset"]["config"]
        assert result["dataset"]["type"] == f"svea/{card['task']}-v0"
        returns = recorded_returns(ROOT / card["run"], card["decisions"], mode)
        assert metric["value"] == pytest.approx(np.mean(returns), abs=0.006)
        assert f"over {len(returns)} episodes" in metric["name"]
    modes = [result["dataset"]["config"] for result in model["results"]]
    assert modes == list(dict.fromkeys(modes))  # the hub takes a configuration once
