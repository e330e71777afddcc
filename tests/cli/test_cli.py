"""The command line: names, exit codes, one message, no traceback."""

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys

import pytest
from exit_codes import call, in_a_process
from tiny_runs import tiny

from svea import __version__, cli
from svea.cli import analyze
from svea.cli.train import train_flags
from svea.config import configure
from svea.core.errors import UserError
from svea.methods import METHODS
from svea.training import train


def test_help_lists_every_verb(capsys):
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        assert call(arguments) == 0
        shown = capsys.readouterr().out
        assert all(f"svea {verb} " in shown for verb in cli.VERBS)
        assert max(map(len, shown.splitlines())) <= 80
    assert call(["--version"]) == 0
    assert capsys.readouterr().out == f"svea {__version__}\n"


def test_without_a_word_there_is_a_list(capsys):
    listed = {"gallery": "augmentations", "paper": "table1", "analyze": "q-gap", "data": "check"}
    for verb, one in listed.items():
        assert call([verb]) == 0
        assert one in capsys.readouterr().out
    assert call(["tasks", "walker", "push"]) == 0
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:5]]
    assert shown == ["walker_walk", "walker_stand", "robot_push", "walker_run"]
    assert call(["tasks", "nothing_of_it"]) == 2


@pytest.mark.parametrize("verb", list(cli.VERBS))
def test_every_verb_explains_itself(verb, capsys):
    assert call([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"svea {verb}" in shown
    words = " ".join(shown.replace("│", " ").split())
    assert not re.search(r"\(default: (None|''|)\)", words), "says nothing"


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
def test_help_of_train_shows_the_defaults_of_the_command(words, defaults, capsys):
    call(["train", *words.split(), "--help"])
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag, default in zip(("decisions", "image-size", "augment"), defaults, strict=True):
        about = shown[shown.index(f"--{flag} ") :]
        assert about[about.index("(default: ") :].startswith(f"(default: {default})"), flag


# Flags --------------------------------------------------------------------------------------------


ON_RUNS = ["eval", "report", "watch", *(f"analyze {part}" for part in analyze.PARTS)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("trian walker_walk", ["unknown verb 'trian'", "'train'"]),
        ("train waler_walk", ["unknown task 'waler_walk'", "'walker_walk'"]),
        ("train walker_walk --seed x", ["--seed", "'x'"]),
        ("train walker_walk --sac.learning-rate small", ["--sac.learning-rate", "'small'"]),
        ("train walker_walk --out -x", ["--out"]),
        ("gallery environments -o -x", ["-o"]),
        ("train walker_walk --preset quik", ["quik", "quick"]),
        ("train walker_walk --sede 3", ["--sede", "--seed"]),
        ("train", ["required"]),
        *((f"{verb} missing-run", ["missing-run"]) for verb in ON_RUNS),
        ("export missing-run there", ["missing-run"]),
        ("eval", ["no run to evaluate"]),
        ("compare svea drq", ["'svea' is not a folder", "--runs"]),
        ("bench augment --names covn", ["unknown augmentation 'covn'", "'conv'"]),
        ("sweep --tasks hopper_hop --modes shift_easy", ["does not fit hopper_hop", "rotate_easy"]),
        ("gallery environments --modes geometry --tasks robot_push", ["no mode of the group"]),
        ("gallery robot --modes lights", ["--modes and --tasks choose what environments shows"]),
        ("bench env --tasks walker_walk --modes geometri", ["Did you mean 'geometry'"]),
    ],
)
def test_mistakes_are_one_message_on_stderr_and_exit_code_two(
    arguments, words, tmp_path, monkeypatch, capsys
):
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


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "methods needs torch"),
        (PermissionError(errno.EACCES, "Denied", "their/run"), "cannot use 'their/run': Denied\n"),
    ],
)
def test_what_a_verb_lacks_is_named(error, words, monkeypatch, capsys):
    def fails() -> int:
        raise error

    monkeypatch.setattr("svea.cli.lists.methods", fails)
    assert call(["methods"]) == 2
    assert words in capsys.readouterr().err


# A run through the verbs --------------------------------------------------------------------------


def test_eval_and_export_of_a_run(tmp_path, capsys):
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


@pytest.mark.parametrize(
    "options",
    [
        {"base": "ddpg", "preset": "quick"},
        {"method": "simgrl", "encoder": "cnn"},
        {"method": "drq", "seed": 7, "recipe.K": 2, "sac.discount": 0.9},
        # These only fit together.
        {"base": "dqn", "action_bins": 3},
        {"base": "ddpg", "method": "pad", "ddpg.n_step": 1},
        *({"method": method} for method in METHODS),
    ],
    ids=str,
)
def test_the_command_line_resolves_like_configure(options):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    assert train_flags(["walker_walk", *flags])[0] == configure("walker_walk", **options)


def test_seeds_are_read_and_mistakes_named():
    assert train_flags(["walker_walk", "--seeds", "0-2", "7"])[1] == [0, 1, 2, 7]
    for words in ("--seeds 0 0-1", "--seeds x", "--seeds 3-1", "--seed 3 --seeds 0"):
        with pytest.raises(UserError):
            train_flags(["walker_walk", *words.split()])


@pytest.mark.skipif(sys.platform != "linux", reason="limits are those of Linux")
@pytest.mark.parametrize(
    ("limit", "at_most", "words"),
    [("RLIMIT_AS", 560_000 * 1024, "not enough memory of 546 MiB"),
     ("RLIMIT_NOFILE", 10, "too many open files; 10 are allowed")],
)  # fmt: skip
def test_what_a_limit_keeps_from_starting_is_one_sentence(limit, at_most, words, tmp_path):
    number = getattr(resource, limit)
    few = ["--preset", "quick", "--decisions", "100", "--warmup", "50"]
    done = in_a_process(
        "train", "walker_walk", *few, "--out", str(tmp_path / "run"),
        preexec_fn=lambda: resource.setrlimit(number, (at_most, at_most)),
    )  # fmt: skip
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "unbuffered"), [("--help", "1"), ("methods", ""), ("export --help", "")]
)
def test_a_reader_that_closes_the_pipe_ends_a_command_silently(words, unbuffered):
    """As `svea --help | head -3` does: while something is printed, or at Python's end."""
    reading, writing = os.pipe()
    os.close(reading)
    variables = {"PYTHONUNBUFFERED": unbuffered}
    done = in_a_process(*words.split(), variables=variables, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_signal_after_the_last_word_does_not_look_like_a_kill():
    """Python takes a while to end; two of 40 finished runs were reported as killed."""
    code = (
        "import os, sys; from svea.cli import main; sys.argv = ['svea', '--version']; "
        f"done = main(); os.kill(os.getpid(), {int(signal.SIGTERM)}); sys.exit(done)"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, check=False
    )
    assert ended.returncode == 0


def test_without_the_folder_of_the_paper_its_verb_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "svea.paper", None)
    assert cli.main(["paper", "list"]) == 2
    assert "svea/paper" in capsys.readouterr().err
