"""Verbs write what the stream can show: no symbol ends a command under LC_ALL=C."""

import os

import pytest
from exit_codes import in_a_process
from fake_runs import write_run

OLD = {
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "io-encoding": {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for method in ("svea", "drq"):
        for seed in (0, 1):
            write_run(folder / f"{method}-{seed}", method=method, seed=seed)
    return folder


@pytest.mark.parametrize(
    ("arguments", "shown", "kind"),
    [
        ("methods", b"alpha", "ascii"),
        ("tasks", b"walker_walk", "io-encoding"),
        ("compare svea drq --verbose --runs RUNS", b"P(svea > drq)", "ascii"),
        ("report RUNS -o PAGE", b".html", "io-encoding"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_tables_are_printed(arguments, shown, kind, runs, tmp_path):
    names = {"RUNS": str(runs), "PAGE": str(tmp_path / "page.html")}
    done = in_a_process(
        *(names.get(word, word) for word in arguments.split()), variables=OLD[kind], text=False
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert b"Traceback" not in done.stderr
    done.stdout.decode("ascii")


def test_a_message_with_a_path_that_is_not_text(tmp_path):
    done = in_a_process(
        "export", os.fsencode(tmp_path) + b"/a\xff\xc2\xb1", "shared", variables=OLD["ascii"],
        text=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith(b"svea: ")
    assert b"Traceback" not in done.stderr
