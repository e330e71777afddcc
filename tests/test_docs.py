"""The documentation says what the code does, and its commands and snippets run."""

import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from test_rooms import SIDE, WINGS

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
]
PYTHON = re.compile(r"(?:<!-- (\S+) -->\n)?```python\n(.*?)```", re.S)  # (file it quotes, lines)
QUOTED = [
    pytest.param(page, *block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(PYTHON.findall(page.read_text()))
    if block[0]
]
COMMAND = re.compile(r"^ {4}(?:\$ |srun )?svea ((?:\\\n|[^\n#])*)|`svea ([a-z][^`]*)`", re.M)
HOP = re.compile(r"^\| \d+ \| \[`\S+`\]\(\.\./(\S+)\) \| (.*?) \|", re.M)  # (file, names)
PARTS = {  # second words that have a help of their own
    "bench": {"update", "env", "augment", "train"},
    "analyze": {"q-variance", "q-gap", "walltime", "saliency", "tid"},
    "data": {"list", "get"},
    "sweep": {"status"},
}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(("page", "file", "block"), QUOTED)
def test_code_is_quoted_whole_in_order_and_from_its_file(page: Path, file: str, block: str) -> None:
    """Contiguous lines of the named file, with their indentation or dedented."""
    source = (ROOT / file).read_text().splitlines()
    quoted = textwrap.dedent(block).splitlines()
    windows = (source[k : k + len(quoted)] for k in range(len(source)))
    assert any(textwrap.dedent("\n".join(w)).splitlines() == quoted for w in windows), (
        f"{named(page)} quotes {file} with lines that do not stand there together:\n{block}"
    )


def test_the_reading_list_is_short_and_counted() -> None:
    """At most 1,410 lines, each file's count as printed; the example comes before them."""
    page = (ROOT / "docs/how-it-works.md").read_text()
    assert page.index("examples/svea_in_plain_sac.py") < page.index("src/svea/")
    rows = re.findall(r"^\| \[`[^`]+`\]\(\.\./(src/svea/\S+)\) \| (\d+) \|", page, re.M)
    counts = {file: len((ROOT / file).read_text().splitlines()) for file, _ in rows}
    assert {file: int(count) for file, count in rows} == counts
    total = re.search(r"\*\*([\d,]+) lines\*\*", page)
    assert total and int(total[1].replace(",", "")) == sum(counts.values()) <= 1410
    plain = len((ROOT / "examples/svea_in_plain_sac.py").read_text().splitlines())
    for text in (page, (ROOT / "README.md").read_text()):
        assert f"in {plain} lines of plain PyTorch" in " ".join(text.split())


def test_the_architecture_page_has_every_room_and_names_what_is_in_its_files() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    layers = {room: number for number, room in re.findall(r"^\| (\d) \| `(\w+)` \|", page, re.M)}
    assert layers == {room: str(layer + 1) for room, (layer, _) in SIDE.items()}
    doors = dict(re.findall(r"^\| `(\w+)` \| .* \| `(\w+)` \|$", page, re.M))
    assert doors == {wing: next(iter(rooms)) for wing, rooms in WINGS.items()}
    hops = HOP.findall(page)
    for file, names in hops:
        text = (ROOT / file).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            owner, _, function = name.rpartition(".")
            assert re.search(rf"^ *(?:def|class) {function}\b", text, re.M), f"{file}: {name}"
            assert not owner or f"class {owner}" in text, f"{file}: {name}"


@pytest.mark.parametrize(
    ("path", "most"), [("transition", 12), ("result", 18), ("option", 15), ("study", 15)]
)
def test_paths_have_no_more_files_than_they_may(path: str, most: int) -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    section = page.partition(f"## The path of a{'n' * (path == 'option')} {path}")[2]
    files = {file for file, _ in HOP.findall(section.partition("\n## ")[0])}
    said = re.search(r"\*\*(\d+) files\*\*", section)
    assert said and int(said[1]) == len(files) <= most


def test_kinds_of_changes_have_their_files_and_a_test() -> None:
    page = (ROOT / "docs/architecture.md").read_text().partition("## Where does my change go")[2]
    rows = re.findall(r"^\| \*\*.*$", page, re.M)
    assert len(rows) == 11
    for row in rows:
        _, files, like, test = row.strip("|").split("|")
        assert "src/svea/" in files and "`" in like and "](../tests/" in test, row


def test_methods_has_a_section_or_row_for_every_method_base_encoder_and_task() -> None:
    from svea.agents import AUXILIARIES, BASES
    from svea.config import ENCODERS
    from svea.methods import METHODS

    text = (ROOT / "docs/methods.md").read_text()
    assert {*METHODS} == {page.stem for page in (ROOT / "docs/methods").iterdir()}
    for name in (*METHODS, *BASES, *ENCODERS, *AUXILIARIES):
        assert re.search(rf"(`|--\w+ ){re.escape(name)}`", text), name
    rows = [line for line in text.splitlines() if re.match(r"\| \d", line)]
    assert [int(n) for line in rows for n in line.split("|")[1].split(",")] == [*range(1, 13)]
    for line in rows:
        row = {int(n) for n in line.split("|")[1].split(",")}
        typed = re.findall(r"`([\w+-]+)(?: --augment conv)?`", line.split("|")[3])
        assert any({int(n) for n in METHODS[name].rows.split(", ")} == row for name in typed), line


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_and_files_exist_and_prose_is_wrapped(page: Path) -> None:
    text = page.read_text()
    for target, _, heading in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", text):
        if target.startswith("http"):
            continue
        path = (page.parent / target) if target else page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in anchors, f"{target}#{heading}"
    folders = "src/svea|tests|docs|examples|benchmarks|scripts"
    for name in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./-]*\w)", text):
        assert (ROOT / name).exists(), name
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S).splitlines()
    special = ("|", "$$", "![", "    ", "[", "<!--")
    assert [line for line in prose if len(line) > 100 and not line.startswith(special)] == []


def test_the_page_about_logging_has_every_field_of_the_log() -> None:
    """Against the logs of real runs in results/."""
    page = (ROOT / "docs/logging.md").read_text()
    common = set(re.findall(r"`(\w+)`", page.split("Each line has ")[1].split("```")[0]))
    fields: dict[str, set[str]] = {}
    for log in (ROOT / "results").rglob("metrics.jsonl"):
        for line in map(json.loads, log.read_text().splitlines()):
            fields.setdefault(line["kind"], set()).update(line.keys() - common - {"kind"})
    for kind, names in fields.items():
        row = re.search(rf"^\| `{kind}` \|(.*)$", page, re.M)
        assert row and names <= set(re.findall(r"`(\w+)`", row[1])), kind


def test_every_command_on_a_page_has_a_verb_and_flags_that_exist(monkeypatch, capsys):
    from svea.cli import VERBS, main

    monkeypatch.setenv("COLUMNS", "200")
    helps: dict[tuple[str, ...], str] = {}

    def help_of(*words: str) -> str:
        if words not in helps:
            with contextlib.suppress(SystemExit):
                main([*words, "--help"])
            helps[words] = "".join(capsys.readouterr())
        return helps[words]

    commands = 0
    for page in (page for page in PAGES if page.name != "CHANGELOG.md"):  # it names what is gone
        for match in COMMAND.finditer(page.read_text()):
            line = re.sub(r"\\?\n\s*", " ", match[1] or match[2])
            verb, *rest = line.split()
            assert verb in VERBS, f"{named(page)}: svea {line}"
            known = help_of(verb, *(word for word in rest[:1] if word in PARTS.get(verb, ())))
            for flag in re.findall(r" (--[a-z][\w.-]*)", line):
                found = re.search(rf"{re.escape(flag)}\b", known) or flag == "--help"
                assert found, f"{named(page)}: svea {line} has {flag}"
            commands += 1
    assert commands > 150


# What pages let a reader run, at a small size -----------------------------------------------------

GUIDES = ["README", "docs/index", "docs/augmentations", "docs/environments", "docs/logging",
          "docs/robot"]  # fmt: skip
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))
NOTEBOOK = ROOT / "examples/first_steps.ipynb"
BLOCK = re.compile(r"^```(bash|python|toml)\n(.*?)^```", re.M | re.S)
NAMED = re.compile(r"Save this as `(\S+)`|# (\S+\.py)\n")
SMALL = {
    "decisions": 40, "warmup": 20, "eval_every": 40, "eval_episodes": 1, "image_size": 24,
    "batch_size": 4, "episode_frames": 80, "network.layers": 2, "network.filters": 4,
    "network.hidden": 16,
}  # fmt: skip


def small(command: str) -> str:
    """The same command with fewer decisions, smaller pictures and networks."""
    command = re.sub(r"^svea ", f"{sys.executable} -m svea ", command)
    if " svea train " in command:
        flags = (f"--{name.replace('_', '-')} {value}" for name, value in SMALL.items())
        size = "--image-size 84 --network.layers 4" if "drqv2" in command else ""
        command += f" {' '.join(flags)} {size}"
    if " svea sweep --tasks " in command:
        settings = " ".join(f"{name}={value}" for name, value in SMALL.items())
        command = command.replace("--set ", f"--set {settings} ")
    return command


def script(text: str) -> list[str]:
    """A command that runs a snippet at a small size, also where it starts processes."""
    given = ", ".join(f'"{name}": {value}' for name, value in SMALL.items())
    body = text.replace('preset="quick"', f'preset="quick", **{{{given}}}')
    return ["-c", f"if __name__ == '__main__':\n{textwrap.indent(body, '    ')}"]


def small_toml(body: str) -> str:
    pairs = ", ".join(f'"{k}" = {v}' for k, v in SMALL.items() if "." not in k)
    nets = ", ".join(f"{k[8:]} = {v}" for k, v in SMALL.items() if "." in k)
    given = f'preset = "quick", {pairs}, network = {{{nets}}}'
    return body.replace('preset = "quick"', given)


def run(command: str | list[str], folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{folder}",
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
        "SVEA_ZOO": str(ROOT / "zoo"),
    }
    shell = isinstance(command, str)
    done = subprocess.run(
        command if isinstance(command, str) else [sys.executable, *command], shell=shell,
        cwd=folder, env=environment, timeout=600, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(page: Path, tmp_path: Path) -> None:
    text = page.read_text()
    assert f"tutorials/{page.name}" in (ROOT / "mkdocs.yml").read_text()
    blocks = list(BLOCK.finditer(text))
    assert blocks
    for block in blocks:
        language, body = block.groups()
        before = text[: block.start()].rstrip().splitlines()[-1]
        if language == "bash":
            for command in body.replace("\\\n", " ").splitlines():
                run(small(command), tmp_path)
        elif name := NAMED.search(before) or NAMED.match(body):
            content = small_toml(body) if language == "toml" else body
            (tmp_path / next(filter(None, name.groups()))).write_text(content)
        else:
            run(script(body), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_the_snippets_of_a_guide_run(name: str, tmp_path: Path) -> None:
    """Those that do not quote the package, which is compared with its files above."""
    log = tmp_path / "runs/first/metrics.jsonl"  # of a run that a page speaks of
    log.parent.mkdir(parents=True)
    log.write_text('{"kind": "eval", "decision": 0, "return_mean": 1.0}\n')
    own = [body for quotes, body in PYTHON.findall((ROOT / f"{name}.md").read_text()) if not quotes]
    assert own
    for body in own:
        if file := NAMED.match(body):
            (tmp_path / next(filter(None, file.groups()))).write_text(body)
            body = f"import {file[2].removesuffix('.py')}"
        run(script(body), tmp_path)


def test_the_notebook_is_stored_without_output_and_compiles() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert notebook["nbformat"] == 4
    assert not any(cell.get("outputs") for cell in notebook["cells"])
    compile("\n".join(notebook_code()), "notebook", "exec")


def notebook_code() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path: Path) -> None:
    (_, body) = script("\n".join(notebook_code()))
    (tmp_path / "notebook.py").write_text(body)
    printed = run(["notebook.py"], tmp_path)
    assert "color_hard" in printed and "episodes" in printed
