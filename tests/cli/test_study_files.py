"""Study files, and the files of a study, with anything in them: one message, no traceback."""

import json
from typing import Any

import pytest
from fake_studies import short
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svea import cli
from svea.studies import Grid, open_study
from svea.studies.plan import FILE_SETTINGS

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["walker_walk", "svea", "0-4", "conv", "nan", "..", "a/b", "\0", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)
WITHIN = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and stderr; an exception that is not an exit fails the test."""
    code = cli.main(list(arguments))
    return code, capsys.readouterr().err


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    code, err = run(capsys, *arguments)
    assert code in (0, 2), err
    assert "Traceback" not in err
    assert (code == 0) == ("svea: " not in err), err


# Study files --------------------------------------------------------------------------------------


def as_toml(value: Any) -> str:
    """A value as TOML; JSON's text is TOML's, except for tables and what JSON lacks."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, float):
        return repr(value)  # nan and inf as TOML writes them
    return json.dumps(value)


@WITHIN
@given(
    name=st.sampled_from([*FILE_SETTINGS, *Grid.__dataclass_fields__, "grid", "title"]),
    value=ANYTHING,
)
def test_any_value_in_a_toml_file(name, value, tmp_path, capsys):
    whole = {"tasks": ["walker_walk"], "set": {"decisions": 100, "replay": 100}} | {name: value}
    file = tmp_path / "study.toml"
    text = "".join(f"{k} = {as_toml(v)}\n" for k, v in whole.items())
    file.write_bytes(text.encode(errors="surrogatepass"))
    check(capsys, "sweep", str(file), "--dry-run", "--out", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"tasks = [", "TOMLDecodeError"),
        (b"taks = ['walker_walk']", "Did you mean 'tasks'"),
        (b"methods = ['svea']", "names no tasks"),
        (b"\xff\xfe", "UnicodeDecodeError"),
        (b"tasks = " + b"[" * 100_000, "RecursionError"),
        (b"set" + b".a" * 5000 + b" = 1", "study file"),
        (b"tasks = ['walker_walk']\nset" + b".a" * 200 + b" = 1", "nested too deeply"),
        (b"[grid]\ntasks = ['walker_walk']", "tables headed [[grid]]"),
        (b"tasks = ['walker_walk']\nseeds = true", "seeds is True"),
        (b"tasks = ['walker_walk']\nseeds = 2020-01-01", "seeds is "),
        (b"tasks = ['walker_walk']\nepisodes = '9'", "episodes is '9'"),
        (b"tasks = ['walker_walk']\nmodes = 3", "modes is 3"),
        (b"tasks = ['walker_walk']\nexport = 3", "export is 3; allowed: the name of a"),
        (b"tasks = ['walker_walk']\nset.data_dir = 5", "data_dir is 5"),
    ],
    ids=str,
)  # fmt: skip
def test_malformed_files_are_one_message(content, words, tmp_path, capsys):
    file = tmp_path / "a.toml"
    file.write_bytes(content)
    code, err = run(capsys, "sweep", str(file), "--dry-run", "--out", str(tmp_path / "o"))
    assert code == 2 and words in err, err
    assert err.count("svea: ") == 1


# study.json, journals and logs --------------------------------------------------------------------


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    if not isinstance(value, dict | list):
        return [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(p for key, item in inner for p in leaves(item, (*path, key)))]


def edited(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = edited(value[path[0]], path[1:], new)
    return copy


@WITHIN
@given(data=st.data(), new=ANYTHING)
def test_a_status_over_an_edited_plan(data, new, tmp_path, capsys):
    study = open_study(tmp_path / "s", short(seeds="0-1"))
    study.save()
    file = study.folder / "study.json"
    before = file.read_text()
    content = json.loads(before)
    path = data.draw(st.sampled_from(leaves(content)))
    file.write_text(json.dumps(edited(content, path, new)))
    try:
        for flags in ([], ["--json"]):
            check(capsys, "sweep", "status", str(study.folder), *flags)
    finally:
        file.write_text(before)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b"5", b"[]", b"\xff", b""])
def test_a_study_that_is_not_json(content, tmp_path, capsys):
    (tmp_path / "study.json").write_bytes(content)
    for verb in (["status", str(tmp_path)], ["cancel", str(tmp_path)]):
        code, err = run(capsys, "sweep", *verb)
        assert code == 2 and "cannot be read" in err and "Move it away" in err
