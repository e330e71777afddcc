"""The site builds without a warning, and every link, picture and anchor in it leads somewhere."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="needs the extra `docs`"
)


class Links(HTMLParser):
    """What a page refers to, and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if identifier := found.get("id"):
            self.anchors.add(identifier)
        if tag == "a" and (target := found.get("href")):
            self.targets.append(target)
        if tag in ("img", "script", "source") and (target := found.get("src")):
            self.loaded.append(target)
        if tag == "link" and found.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(found.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    pages = {}
    for path in site.rglob("*.html"):
        pages[path.resolve()] = links = Links()
        links.feed(path.read_text())
    return pages


def test_every_link_and_picture_leads_somewhere(site: Path, pages: dict[Path, Links]) -> None:
    assert len(pages) > 40
    dead = []
    for page, links in pages.items():
        if page.name == "404.html":  # its links are absolute, for a site at the root of a server
            continue
        for link in links.targets + links.loaded:
            target, anchor = urldefrag(link)
            if ":" in target.partition("/")[0] or target == "..":
                continue
            file = (page.parent / unquote(target)).resolve() if target else page
            if not file.exists() or (
                anchor and file in pages and anchor not in pages[file].anchors
            ):
                dead.append(f"{page.relative_to(site)}: {link}")
    assert dead == []


def test_nothing_is_fetched_from_elsewhere(pages: dict[Path, Links]) -> None:
    assert [link for links in pages.values() for link in links.loaded if "//" in link] == []


def test_equations_and_the_diagram_are_drawn_without_scripts(site: Path) -> None:
    text = (site / "how-it-works.html").read_text()
    assert text.count("<math") == 8 and "$$" not in text
    assert "mermaid" not in (site / "architecture.html").read_text()


def test_every_method_has_a_page_with_its_row_and_section(site: Path) -> None:
    from svea.methods import METHODS

    for name in METHODS:
        text = (site / f"methods/{name}.html").read_text()
        assert f"--method {name}" in text and "Q-prediction" in text and "Results" in text


def test_search_finds_methods_and_functions(site: Path) -> None:
    index = json.loads((site / "search/search_index.json").read_text())["docs"]
    text = " ".join(entry["title"] + " " + entry["text"] for entry in index)
    for word in ("load_agent", "color_hard", "overlay", "SLURM"):
        assert word in text


def test_public_names_are_in_the_reference(pages: dict[Path, Links]) -> None:
    import svea

    anchors = {name for page, links in pages.items() if page.parent.name == "api"
               for name in links.anchors}  # fmt: skip
    for name, module in svea._LAZY.items():
        if name != "augment":  # a room: its members are listed
            assert f"{module}.{name}" in anchors
    assert {f"svea.augment.{name}" for name in ("conv", "shift", "register")} <= anchors
