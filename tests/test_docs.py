"""The documentation says what the code does."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "src").rglob("*.py")))
SOURCE_LINES = {line.strip() for line in SOURCE.splitlines()}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_line_quoted_in_how_it_works_stands_in_the_source():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-it-works.md").read_text(), re.S)
    quoted = [line.strip() for block in blocks for line in block.splitlines() if line.strip()]
    assert len(quoted) > 10
    assert [line for line in quoted if line not in SOURCE_LINES] == []


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
