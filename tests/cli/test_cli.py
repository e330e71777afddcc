"""The command line: names, exit codes, one message, no traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from exit_codes import call
from tiny_runs import tiny

from svea import __version__, cli
from svea.cli.train import train_flags
from svea.config import PRESETS, configure
from svea.core.errors import UserError
from svea.core.outcome import exhausted, one_line_warning
from svea.methods import METHODS
from svea.training import train


def in_a_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-m", "svea", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        timeout=120,
    )


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        assert call(arguments) == 0
        shown = capsys.readouterr().out
        assert all(f"svea {verb} " in shown for verb in cli.VERBS)


def test_without_a_word_there_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {"gallery": "augmentations", "paper": "table1", "analyze": "q-gap", "data": "check"}
    for verb, one in listed.items():
        assert call([verb]) == 0
        assert one in capsys.readouterr().out
    assert call(["tasks", "walker", "push"]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:5]]
    assert shown == ["walker_walk", "walker_stand", "robot_push", "walker_run"]
    assert call(["tasks", "nothing_of_it"]) == 2


def test_the_list_of_verbs_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_help_has_no_lines_that_end_early(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["eval", "--help"]) == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    first = next(n for n, line in enumerate(lines) if line.startswith("where to evaluate"))
    assert all(len(line) > 40 for line in lines[first : first + 4])


@pytest.mark.parametrize(
    ("words", "allowed"),
    [("--decisions 10k", "10_000"), ("--sac.learning-rate small", "1e-4")],
)
def test_a_text_that_is_no_number_is_answered_with_one(
    words: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["train", "walker_walk", *words.split()]) == 2
    assert allowed in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"svea {__version__}\n"


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"svea {verb}" in shown
    words = " ".join(shown.replace("│", " ").split())
    assert not re.search(r"\(default: (None|''|)\)", words), "says nothing"


EXAMPLES = [
    *("train", "eval", "watch", "report", "compare", "sweep", "paper", "export", "bench update"),
    *("analyze q-variance", "analyze q-gap", "analyze walltime", "analyze saliency", "data get"),
]


@pytest.mark.parametrize("verb", EXAMPLES)
def test_help_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*verb.split(), "--help"]) == 0
    assert f"Example: svea {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "defaults"),
    [
        ("", ["500000", "84", "conv"]),
        ("--preset paper", ["500000", "84", "conv"]),
        ("cartpole_swingup --preset quick --method drq", ["15000", "48", "none"]),
        ("walker_walk --encoder vit", ["300000", "96", "conv"]),
        ("no_such_task --method drq", ["500000", "84", "none"]),
    ],
)
def test_help_of_train_shows_the_defaults_of_the_command(
    words: str, defaults: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call(["train", *words.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag, default in zip(("decisions", "image-size", "augment"), defaults, strict=True):
        about = shown[shown.index(f"--{flag} ") :]
        assert about[about.index("(default: ") :].startswith(f"(default: {default})"), flag


def test_help_of_train_shows_the_words_of_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["train", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in ("--recipe.alpha", "Coefficient of the unaugmented stream", "--sac.q-tau"):
        assert words in shown


def test_methods_are_plain_lines_where_there_is_no_terminal() -> None:
    done = in_a_process("methods")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    start = lines[0].index("method")
    assert [line[start:].split()[0] for line in lines] == ["method", *METHODS]
    assert all(line.isascii() and "\x1b" not in line for line in lines)


# Flags --------------------------------------------------------------------------------------------


def test_flags_beat_task_beats_preset_beats_default(monkeypatch: pytest.MonkeyPatch) -> None:
    preset = {"batch_size": 64, "action_repeat": 3, "eval_every": 5, "network": {"filters": 5}}
    monkeypatch.setitem(PRESETS, "quick", preset)
    config = train_flags(["cartpole_swingup", "--preset", "quick", "--eval-every", "6"])[0]
    assert config.batch_size == 64 and config.network.filters == 5
    assert config.action_repeat == 8 and config.eval_every == 6
    config = train_flags(["cartpole_swingup", "--preset", "quick", "--action-repeat", "2"])[0]
    assert config.action_repeat == 2 and config.eval_every == 5


def test_flags_are_the_same_as_configure() -> None:
    from svea.config import configure

    flags = "walker_walk --method drq --seed 7 --recipe.K 2 --sac.discount 0.9 --tensorboard"
    assert train_flags(flags.split())[0] == configure(
        "walker_walk",
        method="drq",
        seed=7,
        recipe={"K": 2},
        sac={"discount": 0.9},
        tensorboard=True,
    )
    assert train_flags(["walker_walk", "--method", "drq"])[0].augment == "none"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("trian walker_walk", ["unknown verb 'trian'", "'train'"]),
        ("train waler_walk", ["unknown task 'waler_walk'", "'walker_walk'"]),
        ("train walker_walk --method sveaa", ["unknown method 'sveaa'", "'svea'"]),
        ("train walker_walk --augment covn", ["'covn'", "'conv'"]),
        ("train walker_walk --eval-mode color_hrad", ["'color_hrad'", "'color_hard'"]),
        ("train walker_walk --seed -1", ["seed is -1", "0 to"]),
        ("train walker_walk --seed x", ["--seed", "x"]),
        ("train walker_walk --preset quik", ["quik", "quick"]),
        ("train walker_walk --sede 3", ["--sede", "--seed"]),
        ("train walker_walk --sac.discount 2", ["sac.discount is 2", "0 to 1"]),
        ("train walker_walk --time-limit soon", ["time_limit is 'soon'"]),
        ("train", ["required"]),
        ("eval missing-run", ["missing-run is not a run or an export"]),
        ("eval missing-run --modes colour_hard", ["'colour_hard'", "'color_hard'"]),
        ("eval", ["no run to evaluate"]),
        ("export missing-run there", ["missing-run is not a run or an export"]),
        ("report missing-run", ["missing-run"]),
        ("analyze q-variance missing-run", ["missing-run is not a run or an export"]),
        ("analyze q-gap missing-run", ["missing-run is not a run or an export"]),
        ("analyze walltime missing-run", ["no run at 'missing-run'"]),
        ("compare svea drq", ["'svea' is not a folder", "--runs"]),
        ("compare svea drq --runs nowhere", ["'nowhere'"]),
        ("watch missing-run", ["missing-run is not a run"]),
        ("analyze saliency missing-run", ["missing-run is not a run"]),
        ("bench augment --names covn", ["unknown augmentation 'covn'", "'conv'"]),
        ("bench augment --batch 0", ["batch is 0", "1 or more"]),
        ("train hopper_hop --eval-mode shift_easy", ["does not fit hopper_hop", "walker", "has"]),
        ("train robot_push --eval-mode lights", ["robot_push has no mode of the group 'lights'"]),
        ("sweep --tasks hopper_hop --modes shift_easy", ["does not fit hopper_hop", "rotate_easy"]),
        ("gallery environments --modes geometry --tasks robot_push", ["no mode of the group"]),
        ("gallery robot --modes lights", ["--modes and --tasks choose what environments shows"]),
        ("bench env --tasks walker_walk --modes geometri", ["Did you mean 'geometry'"]),
    ],
)
def test_mistakes_are_one_message_on_stderr_and_exit_code_two(
    arguments: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("an environment was started")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("svea.envs.workers.pool.Workers.__init__", never)
    assert call(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(word in captured.err for word in words), captured.err
    assert "Traceback" not in captured.err
    messages = captured.err.count("svea: ") + captured.err.count("For full helptext")
    assert messages == 1, "exactly one message"
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def test_a_mistake_in_a_real_process() -> None:
    done = in_a_process("train", "waler_walk")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("svea: unknown task 'waler_walk'. Did you mean 'walker_walk'")
    assert done.stderr.count("\n") == 1


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> int:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("svea.cli.lists.methods", missing)
    assert call(["methods"]) == 2
    assert "methods needs torch" in capsys.readouterr().err


def test_a_folder_that_may_not_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(run: str) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", "their/run")

    monkeypatch.setattr("svea.cli.evaluate.report_page", forbidden)
    assert call(["report", "--run", "their/run"]) == 2
    assert capsys.readouterr().err == "svea: cannot use 'their/run': Permission denied\n"


# A run through the verbs --------------------------------------------------------------------------


def test_eval_and_export_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tiny(tmp_path / "run", decisions=14))
    capsys.readouterr()
    flags = ["--modes", "train", "--episodes", "2", "--envs", "1", "--random-policy"]
    assert call(["eval", str(run), *flags, "--verbose", "--videos"]) == 0
    header, row = capsys.readouterr().out.splitlines()[:2]
    assert "random" in header.split() and row.split()[:5] == (
        ["toy:make", "svea", "+", "conv", "train"]
    )
    records = (run / "eval.jsonl").read_text().splitlines()
    assert len(records) == 4
    assert (run / "media" / "train.mp4").stat().st_size > 500
    assert (run / "media" / "train.png").read_bytes().startswith(b"\x89PNG")
    assert call(["export", str(run), str(tmp_path / "small")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "small")
    assert call(["eval", str(tmp_path / "small"), *flags, "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in printed] == [json.loads(line) for line in records]
    assert call(["export", str(run), str(tmp_path / "small")]) == 2
    for verb in ["watch"], ["analyze", "saliency"]:
        assert call([*verb, str(run), "--modes", "colour_hard"]) == 2
        assert "unknown mode 'colour_hard'" in capsys.readouterr().err


def test_train_twice_by_the_same_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        "train toy:make --image-size 16 --shift 1 --network.layers 2 --network.filters 4 "
        "--network.hidden 16 --network.projection 8 --decisions 5 --warmup 3 --batch-size 4 "
        f"--eval-episodes 1 --eval-envs 1 --device cpu --precision float32 --out {tmp_path}/run"
    ).split()
    assert call(command) == 0
    assert "done: 5 decisions" in capsys.readouterr().out
    assert call(command) == 0
    assert "is finished (5 decisions)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags",
    ["--base ddpg --preset quick", "--encoder vit", "--method simgrl --encoder cnn"]
    + [f"--method {method}" for method in METHODS],
)
def test_the_command_line_resolves_like_configure(flags: str) -> None:
    words = flags.split()
    named = {words[i].removeprefix("--"): words[i + 1] for i in range(0, len(words), 2)}
    assert train_flags(["walker_walk", *words])[0] == configure("walker_walk", **named)


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ("--base dqn --action-bins 3", "action_bins", 3),
        ("--base ddpg --method pad --ddpg.n-step 1", "auxiliary", "pad"),
    ],
)
def test_flags_that_only_fit_together_are_taken_together(
    flags: str, field: str, value: object
) -> None:
    assert getattr(train_flags(["walker_walk", *flags.split()])[0], field) == value


def test_seeds_are_read_and_mistakes_named() -> None:
    assert train_flags(["walker_walk", "--seeds", "0-2", "7"])[1] == [0, 1, 2, 7]
    for words, said in ((["0", "0-1"], "each seed once"), (["x"], "allowed"), (["3-1"], "allowed")):
        with pytest.raises(UserError, match=said):
            train_flags(["walker_walk", "--seeds", *words])
    with pytest.raises(UserError, match="one of them"):
        train_flags(["walker_walk", "--seed", "3", "--seeds", "0"])


def test_warnings_for_users_are_one_line_without_code() -> None:
    assert one_line_warning("slow", UserWarning, "a.py", 3) == "warning: slow\n"
    assert one_line_warning("old", FutureWarning, "a.py", 3) == "a.py:3: FutureWarning: old\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize(
    ("limit", "at_most", "words"),
    [("RLIMIT_AS", 600_000 * 1024, "not enough memory of 585 MiB"),
     ("RLIMIT_NOFILE", 10, "too many open files; 10 are allowed")],
)  # fmt: skip
def test_what_a_limit_keeps_from_starting_is_one_sentence(
    limit: str, at_most: int, words: str, tmp_path: Path
) -> None:
    number = getattr(resource, limit)
    done = subprocess.run(
        [sys.executable, "-m", "svea", "train", "walker_walk", "--preset", "quick",
         "--decisions", "100", "--warmup", "50", "--out", str(tmp_path / "run")],
        preexec_fn=lambda: resource.setrlimit(number, (at_most, at_most)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("error", [ImportError("no name"), RuntimeError("a bug"), OSError("x")])
def test_other_errors_are_not_taken_for_limits(error: Exception) -> None:
    assert exhausted(error) == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_last_word_does_not_look_like_a_kill(number: signal.Signals) -> None:
    """Python takes a while to end; two of 40 finished runs were reported as killed."""
    code = (
        "import os, sys; from svea.cli import main; sys.argv = ['svea', '--version']; "
        f"done = main(); os.kill(os.getpid(), {int(number)}); sys.exit(done)"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert ended.returncode == 0


def test_without_the_folder_of_the_paper_its_verb_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "svea.paper", None)
    assert cli.main(["paper", "list"]) == 2
    assert "svea/paper" in capsys.readouterr().err
