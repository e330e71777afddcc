"""The documentation says what the code does."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import textwrap
from pathlib import Path

import pytest

from test_rooms import ORDER

ROOT = Path(__file__).parent.parent
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
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


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> list[str]:
    """The lines of a page that can be wrapped."""
    lines, code = [], False
    for line in page.read_text().splitlines():
        code ^= line.startswith("```")
        if not code and not line.startswith(("|", "$$", "![", "    ", "[", "<!--")):
            lines.append(line)
    return lines


@pytest.mark.parametrize(("page", "file", "block"), QUOTED)
def test_code_is_quoted_whole_in_order_and_from_its_file(page: Path, file: str, block: str) -> None:
    """Contiguous lines of the named file, with their indentation or dedented."""
    source = (ROOT / file).read_text().splitlines()
    quoted = textwrap.dedent(block).splitlines()
    windows = (source[k : k + len(quoted)] for k in range(len(source)))
    assert any(textwrap.dedent("\n".join(window)).splitlines() == quoted for window in windows), (
        f"{named(page)} quotes {file} with lines that do not stand there together:\n{block}"
    )


@pytest.mark.parametrize("page", ["how-it-works.md", "methods.md"])
def test_every_python_block_of_these_pages_names_its_file(page: str) -> None:
    blocks = PYTHON.findall((ROOT / "docs" / page).read_text())
    assert len(blocks) > 5 and all(file for file, _ in blocks)


def test_the_reading_list_is_short_and_counted() -> None:
    """At most 1,600 lines, each file's count as printed; the example comes before them."""
    page = (ROOT / "docs/how-it-works.md").read_text()
    assert page.index("examples/svea_in_plain_sac.py") < page.index("src/svea/")
    rows = re.findall(r"^\| \[`[^`]+`\]\(\.\./(src/svea/\S+)\) \| (\d+) \|", page, re.M)
    counts = {file: len((ROOT / file).read_text().splitlines()) for file, _ in rows}
    assert {file: int(count) for file, count in rows} == counts
    total = re.search(r"\*\*([\d,]+) lines\*\*", page)
    assert total and int(total.group(1).replace(",", "")) == sum(counts.values()) <= 1600
    rooms = {file.split("/")[2].removesuffix(".py") for file in counts}
    method = {"recipes", "views", "methods", "augment", "networks", "agents", "replay"}
    assert rooms == {*method, "training"}


@pytest.mark.parametrize("page", ["README.md", "docs/how-it-works.md"])
def test_the_plain_script_is_as_long_as_the_pages_say(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    lines = len((ROOT / "examples/svea_in_plain_sac.py").read_text().splitlines())
    assert re.search(r"in (\d+) lines of plain PyTorch", text).group(1) == str(lines)


def test_the_rooms_of_the_architecture_page_are_those_of_the_package() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    diagram = re.search(r"```mermaid\nflowchart TD\n(.*?)```", page, re.S).group(1)
    chains = [line.split(" --> ") for line in diagram.strip().splitlines()]
    order = [chains[0][0].strip()]
    for chain in chains:  # each chain continues where the one before it ended
        assert chain[0].strip() == order[-1]
        order += [level.strip() for level in chain[1:]]
    assert order == [" & ".join(level.split()) for level in ORDER]
    rows = re.findall(r"^\| `(\w+)` \|", page, re.M)
    assert rows == " ".join(ORDER).split()
    entries = {path.name.removesuffix(".py") for path in (ROOT / "src/svea").iterdir()}
    assert set(rows) == entries - {"__pycache__", "__init__", "__main__", "py.typed"}


def test_every_hop_of_the_architecture_page_is_in_its_file() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    hops = re.findall(r"^\| \d+ \| \[`\S+`\]\(\.\./(\S+)\) \| (.*?) \|", page, re.M)
    assert len(hops) > 15
    for file, names in hops:
        text = (ROOT / file).read_text()
        for name in re.findall(r"`([\w.]+)`", names):
            owner, _, function = name.rpartition(".")
            assert re.search(rf"^ *(?:def|class) {function}\b", text, re.M), f"{file}: {name}"
            assert not owner or f"class {owner}" in text, f"{file}: {name}"


def test_methods_has_a_section_or_row_for_every_method_base_encoder_and_task() -> None:
    from svea.agents import AUXILIARIES, BASES
    from svea.config import ENCODERS
    from svea.methods import METHODS

    text = (ROOT / "docs/methods.md").read_text()
    for name in (*METHODS, *BASES, *ENCODERS, *AUXILIARIES):
        assert re.search(rf"(`|--\w+ ){re.escape(name)}`", text), name
    rows = [line for line in text.splitlines() if re.match(r"\| \d", line)]
    numbers = [int(n) for line in rows for n in line.split("|")[1].split(",")]
    assert numbers == list(range(1, 13))
    for line in rows:
        row = {int(n) for n in line.split("|")[1].split(",")}
        typed = re.findall(r"`([\w+-]+)(?: --augment conv)?`", line.split("|")[3])
        assert any({int(n) for n in METHODS[name].rows.split(", ")} == row for name in typed), line


def test_every_name_in_the_walk_through_of_algorithm_1_exists() -> None:
    table = (ROOT / "docs/how-it-works.md").read_text().split("## Algorithm 1")[1].split("\n## ")[0]
    for owner, name in re.findall(r"`(\w+)\.(\w+)`", table):
        body = re.search(rf"^class {owner}\b.*?(?=^(?:class|def) |\Z)", SOURCE, re.S | re.M)
        assert body, owner
        assert f"def {name}(" in body.group(), f"{owner}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, _, heading in re.findall(r"\]\(([^)#\s]*)(#([^)\s]*))?\)", page.read_text()):
        if target.startswith("http"):
            continue
        path = (page.parent / target) if target else page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
            assert heading in anchors, f"{target}#{heading}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_named_on_a_page_exist(page: Path) -> None:
    folders = "src/svea|tests|docs|examples|benchmarks|scripts"
    for name in re.findall(rf"(?<![\w/.-])((?:{folders})/[\w./-]*\w)", page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_prose_is_wrapped(page: Path) -> None:
    assert [line for line in prose(page) if len(line) > 100] == []


def test_the_readme_is_short_and_its_moving_picture_small() -> None:
    """It is read in a minute, and sent with every view of the page."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 100 and line[0] not in "|!"] == []
    assert (ROOT / "docs/images/hero.webp").stat().st_size <= 3_000_000


def test_agents_shown_side_by_side_were_trained_equally_long() -> None:
    """Else a picture, or what a reader opens, shows training and not methods."""
    files = [*PAGES, ROOT / "src/svea/cli/play.py", ROOT / "scripts/hero.py"]
    lines = [line for file in files for line in file.read_text().splitlines()]
    shown = [line for line in lines if re.search(r"(svea play|scripts/hero.py) zoo:", line)]
    assert len(shown) >= 5
    for line in shown:
        spelled = re.sub(
            r"(zoo:[^\s{]+){(.*?)}", lambda m: m[1] + f" {m[1]}".join(m[2].split(",")), line
        )
        cards = [ROOT / "zoo" / name / "card.json" for name in re.findall(r"zoo:([\w-]+)", spelled)]
        lengths = {json.loads(card.read_text())["decisions"] for card in cards}
        assert len(lengths) == 1, line


def test_the_moving_picture_shows_the_median_lead_of_the_episodes_that_all_have() -> None:
    spec = importlib.util.spec_from_file_location("hero", ROOT / "scripts/hero.py")
    hero = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hero)
    first, second = {0: 10.0, 1: 20.0, 2: 5.0, 3: 0.0}, {0: 11.0, 1: 0.0, 2: 90.0, 3: 0.0}
    assert hero.typical([first, second, {0: 0.0, 1: 0.0, 2: 0.0}]) == 0  # leads 1, -20, 85
    assert hero.typical([first, second]) == 3  # leads 1, -20, 85, 0: the lower of 0 and 1


def test_commands_shown_in_the_readme_name_real_verbs_and_methods() -> None:
    from svea.cli import VERBS
    from svea.methods import METHODS

    text = (ROOT / "README.md").read_text()
    verbs = re.findall(r"^    svea (\w+)", text, re.M)
    assert verbs and set(verbs) <= set(VERBS)
    assert set(re.findall(r"--method (\S+)", text)) <= set(METHODS)


def test_the_page_about_logging_has_every_field_of_the_log() -> None:
    """Against the logs of real runs in results/."""
    import json

    page = (ROOT / "docs/logging.md").read_text()
    common = set(re.findall(r"`(\w+)`", page.split("Each line has ")[1].split("```")[0]))
    missing = set()
    for log in (ROOT / "results").rglob("metrics.jsonl"):
        for line in map(json.loads, log.read_text().splitlines()):
            row = re.search(rf"^\| `{line['kind']}` \|(.*)$", page, re.M)
            assert row, line["kind"]
            fields = line.keys() - common - {"kind"}
            missing |= {f"{line['kind']}: {name}" for name in fields if f"`{name}`" not in row[1]}
    assert not missing


COMMAND = re.compile(r"^ {4}(?:\$ |srun )?svea ((?:\\\n|[^\n#])*)|`svea ([a-z][^`]*)`", re.M)
PARTS = {  # second words that have a help of their own
    "bench": {"update", "env", "augment", "train"},
    "analyze": {"q-variance", "q-gap", "walltime", "saliency", "tid"},
    "data": {"list", "get"},
    "sweep": {"status"},
}


def test_every_command_on_a_page_has_a_verb_and_flags_that_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for page in PAGES:
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
