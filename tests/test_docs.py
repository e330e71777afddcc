"""The documentation says what the code does."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
SOURCE_LINES = {line.strip() for line in SOURCE.splitlines()}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", ["how-it-works.md", "methods.md"])
def test_every_line_quoted_from_the_source_stands_there(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    quoted = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(quoted) > 10
    assert [line for line in quoted if line not in SOURCE_LINES] == []


def test_methods_has_a_section_or_row_for_every_method_base_encoder_and_task():
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


def test_every_name_in_the_walk_through_of_algorithm_1_exists():
    table = (ROOT / "docs/how-it-works.md").read_text().split("## Algorithm 1")[1].split("\n## ")[0]
    for owner, name in re.findall(r"`(\w+)\.(\w+)`", table):
        body = re.search(rf"^class {owner}\b.*?(?=^(?:class|def) |\Z)", SOURCE, re.S | re.M)
        assert body, owner
        assert f"def {name}(" in body.group(), f"{owner}.{name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_commands_shown_in_the_readme_name_real_verbs_and_methods():
    from svea.cli import VERBS
    from svea.methods import METHODS

    text = (ROOT / "README.md").read_text()
    verbs = re.findall(r"^    svea (\w+)", text, re.M)
    assert verbs and set(verbs) <= set(VERBS)
    assert set(re.findall(r"--method (\S+)", text)) <= set(METHODS)
