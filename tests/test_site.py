"""The site builds without a warning, and every link, picture and anchor in it leads somewhere.

The slow tests look at it in a real browser.
"""

import functools
import http.server
import importlib.util
import json
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import chromium
import pytest
from zoo_records import recorded_returns

from svea.config.modes import MODES, ROBOT_MODES, modes_of
from svea.core.words import number

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
        if tag in ("img", "script", "source", "video"):
            self.loaded += filter(None, (found.get("src"), found.get("poster")))
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


def test_tables_show_bars_without_a_backslash_and_keep_intervals_together(site: Path) -> None:
    page = (site / "results.html").read_text()
    assert "<code>svea + overlay&#124;overlay_drift</code>" in page and "overlay\\|" not in page
    assert re.search(r"<td>\d+(&nbsp;|\xa0)\[\d+,(&nbsp;|\xa0)\d+\]", page)


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
    page = (site / "architecture.html").read_text()
    assert "mermaid" not in page and re.search(r"<span>1 · core</span></div></div>|1 · core<", page)


# The gallery --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gallery(site: Path) -> str:
    return (site / "gallery.html").read_text()


def test_the_gallery_shows_the_benchmarks_modes_and_is_small(gallery: str) -> None:
    """A clip of an agent in each and in others; of the robot's, which has none, a picture."""
    shown = re.findall(r'<video [^>]*aria-label="zoo:(\S+) in (\S+)"', gallery)
    known = {mode.partition(":")[0] for _, mode in shown}
    assert set(MODES) <= known <= set(modes_of("walker_walk"))
    assert set(modes_of(None)) - set(modes_of("walker_walk")) == set(ROBOT_MODES) - {"train"}
    assert "images/robot-worlds.png" in gallery and "images/augmentations.png" in gallery
    assert len({mode for _, mode in shown if mode.startswith("distracting_cs:")}) == 2
    assert len({agent.partition("-")[0] for agent, _ in shown}) == 3
    files = list((ROOT / "docs/gallery").iterdir())
    assert sum(file.stat().st_size for file in files) <= 3_000_000
    listed = set(re.findall(r'(?:src|poster)="gallery/([^"]+)"', gallery))
    assert listed == {file.name for file in files} - {"clips.json"}


def test_a_number_in_the_gallery_is_of_the_agents_records(gallery: str) -> None:
    """The mean again, from the records of the run that the agent's card names."""
    caption = r"<figcaption><b>[^<]*</b>(?:<br>)?(.*?)</figcaption>"
    figures = re.findall(rf'aria-label="zoo:(\S+) in (\S+)">.*?{caption}', gallery, re.S)
    assert len(figures) > 40
    measured = 0
    for agent, mode, text in figures:
        card = json.loads((ROOT / f"zoo/{agent}/card.json").read_text())
        if not (returns := recorded_returns(ROOT / card["run"], card["decisions"], mode)):
            assert text == ""
            continue
        mean = number(sum(returns) / len(returns))
        assert text.startswith(f"{mean} [") and f", {len(returns)} episode" in text
        measured += 1
    assert measured > 10


# In a browser -------------------------------------------------------------------------------------

READY = "document.readyState === 'complete'"
PICTURES = """Promise.all([...document.images].map(async (image) => {
  image.loading = "eager";
  try { await image.decode(); } catch { return image.src; }
  return image.naturalWidth ? "" : image.src;
})).then((missing) => missing.filter(Boolean))"""
WIDER = """[...document.querySelectorAll("body *")].filter((e) => e.getClientRects().length
  && !e.closest("pre, .md-typeset__scrollwrap, .equation, .md-nav, .md-search, .md-tabs")
  && e.getBoundingClientRect().right > WIDTH + 1)
  .map((e) => e.tagName + "." + e.className).slice(0, 5)"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture(scope="module")
def browser(site, tmp_path_factory):
    tab = chromium.Browser(tmp_path_factory.mktemp("profile"))
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield tab, f"http://127.0.0.1:{server.server_port}"
        finally:
            tab.close()
            server.shutdown()


def go(browser: tuple[chromium.Browser, str], page: str) -> chromium.Browser:
    tab, address = browser
    tab.open(f"{address}/{page}")
    tab.until(f"location.pathname === '/{page}' && {READY}")
    return tab


@pytest.mark.slow
def test_every_page_is_whole_at_the_width_of_a_desk_and_of_a_phone(site, browser):
    problems = []
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).as_posix()
        browser[0].resize(1400, 900)
        tab = go(browser, page)
        problems += [f"{page}: no picture {source}" for source in tab.run(PICTURES)]
        for width in (1400, 390):
            tab.resize(width, 850)
            if tab.run("document.documentElement.scrollWidth") > width:
                wider = WIDER.replace("WIDTH", str(width))
                problems.append(f"{page} at {width}: {tab.run(wider)}")
    assert problems == []
    assert browser[0].console == []
