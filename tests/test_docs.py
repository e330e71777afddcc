"""The documentation says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
SOURCE_LINES = {line.strip() for line in SOURCE.splitlines()}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "benchmarks").glob("*.md")),
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


@pytest.mark.parametrize("page", ["how-it-works.md", "methods.md"])
def test_every_line_quoted_from_the_source_stands_there(page: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    quoted = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(quoted) > 10
    assert [line for line in quoted if line not in SOURCE_LINES] == []


def test_methods_has_a_section_or_row_for_every_method_base_encoder_and_task() -> None:
    from svea.agents import BASES
    from svea.agents.auxiliary import AUXILIARIES
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
def test_files_named_in_code_spans_exist(page: Path) -> None:
    for name in re.findall(
        r"`((?:src/svea|tests|docs|examples|benchmarks)/[\w./-]+)`", page.read_text()
    ):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_prose_is_wrapped(page: Path) -> None:
    assert [line for line in prose(page) if len(line) > 100] == []


def test_commands_shown_in_the_readme_name_real_verbs_and_methods() -> None:
    from svea.cli import VERBS
    from svea.methods import METHODS

    text = (ROOT / "README.md").read_text()
    verbs = re.findall(r"^    svea (\w+)", text, re.M)
    assert verbs and set(verbs) <= set(VERBS)
    assert set(re.findall(r"--method (\S+)", text)) <= set(METHODS)
