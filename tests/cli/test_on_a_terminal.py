"""Every verb on terminals of several widths, with and without colours."""

import re

import pytest
from fake_runs import write_run
from pseudo_terminal import all_on_a_terminal

from svea.cli import VERBS
from svea.methods import METHODS

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
CHEAP = {
    "--help": 0,
    "--version": 0,
    "methods": 0,
    "tasks": 0,
    "zoo": 0,
    "data list": 0,
    "data check .": 2,
    "compare svea drq": 0,
    "analyze walltime runs": 0,
    "report runs": 0,
    "sweep --tasks walker_walk --methods svea drq --seeds 0-1 --dry-run": 0,
    "completion bash": 0,
    "eval nowhere": 2,
    "watch nowhere": 2,
    "export nowhere there": 2,
    "train walker_wlak": 2,
    **{f"{verb} --help": 0 for verb in VERBS},
}
"""What takes a second at most, and its exit code."""
SMALL = (
    "train toy:make --preset quick --decisions 30 --warmup 20 --batch-size 8 --image-size 16 "
    "--shift 1 --network.layers 2 --network.filters 4 --eval-every 30 --eval-episodes 1 "
    "--eval-envs 1 --no-save-replay --out "
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two finished runs."""
    folder = tmp_path_factory.mktemp("terminal")
    for method in ("svea", "drq"):
        write_run(folder / "runs" / method, method=method)
    return folder


def visible(text: str) -> list[str]:
    """The lines that stay, without colours; what was written over is gone."""
    lines = ESCAPE.sub("", text).split("\n")
    return [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in lines]


@pytest.mark.parametrize(
    "columns",
    [60, pytest.param(40, marks=pytest.mark.slow), pytest.param(80, marks=pytest.mark.slow)],
)
def test_without_colours_no_verb_writes_escape_codes_and_tables_fit(columns, folder):
    written = all_on_a_terminal(list(CHEAP), columns, folder, NO_COLOR="1")
    for command, (text, code) in written.items():
        assert code == CHEAP[command], text
        assert "\x1b" not in text and "Traceback" not in text
        ruled = [line for line in visible(text) if "──" in line or "━━" in line or "│" in line]
        assert all(len(line) <= columns for line in ruled), command


def test_no_name_gives_the_terminal_a_command(tmp_path):
    title = "\x1b]0;title\x07\x9b1A"
    for seed in (0, 1):
        final = {"train": 9.0, f"color_hard{title}": 8.0}
        write_run(tmp_path / f"runs/{title}{seed}", seed=seed, augment=title, final=final)
    runs = f"runs/{title}0 runs/{title}1"
    commands = [f"compare {runs}", f"analyze walltime {runs}", f"eval {title}"]
    for command, (text, _) in all_on_a_terminal(commands, 80, tmp_path).items():
        assert "\ufffd" in text, command
        assert not set("\x07\x9b") & set(text) and "\x1b]" not in text, command


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_names_are_whole_and_prose_ends_between_words(columns, folder):
    shown = all_on_a_terminal(["methods", "compare svea drq", "tasks"], columns, folder)
    methods, compared, tasks = (visible(text) for text, _ in shown.values())
    assert set(METHODS) <= set(" ".join(methods).split())
    assert max(map(len, compared)) <= columns and max(map(len, tasks)) <= columns
    assert {"bootstrap", "intervals"} <= set(" ".join(compared).split())
    assert {"rotate_shift_unpaired_hard,", "(docs/your-environment.md)"} <= set(
        " ".join(tasks).split()
    )


@pytest.mark.parametrize(
    "variables", [{"NO_COLOR": "1"}, pytest.param({"TERM": "dumb"}, marks=pytest.mark.slow)]
)
def test_training_where_nothing_may_be_redrawn_is_lines(variables, tmp_path):
    (text, code) = all_on_a_terminal([f"{SMALL}run"], 60, tmp_path, **variables)[f"{SMALL}run"]
    assert code == 0 and "\x1b" not in text, text
    assert "evaluation: train" in text and "done: 30 decisions" in text


@pytest.mark.slow
def test_on_a_terminal_training_says_that_it_starts_and_has_a_panel_that_fits(tmp_path):
    (text, code) = all_on_a_terminal([f"{SMALL}run"], 60, tmp_path)[f"{SMALL}run"]
    assert code == 0 and "starting the environments" in text
    panel = [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", text)) if "│" in line]
    assert panel and all(len(line) == 60 for line in panel)
