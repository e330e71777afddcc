"""The playground in a real browser, with real agents."""

import re
import subprocess
import time
from pathlib import Path

import chromium
import pytest
from test_playground import Serving, make_export

from svea.data import ffmpeg

pytest.importorskip("starlette", reason="needs the extra play")

PICTURE = """(async () => {
  const image = document.querySelectorAll(".scene img")[AGENT];
  for (let tries = 0; ; tries += 1) {  // the next picture may come while this one is decoded
    try { await image.decode(); break; } catch (error) { if (tries === 50) throw error; }
  }
  const canvas = new OffscreenCanvas(32, 32);
  const pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0, 32, 32);
  const data = pen.getImageData(0, 0, 32, 32).data;
  let [r, g, b] = [0, 0, 0];
  for (let k = 0; k < data.length; k += 4) { r += data[k]; g += data[k + 1]; b += data[k + 2]; }
  return [r, g, b].map((sum) => sum / 1024);
})()"""
DECISIONS = "Math.min(...[...document.querySelectorAll('.decision')].map((e) => +e.textContent))"
RETURNS = "[...document.querySelectorAll('.return')].map((e) => +e.textContent)"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("browser")
    return [
        make_export(root / name, "walker_walk", seed=seed, episode_frames=4000)
        for seed, name in enumerate(("walker", "other"))
    ]


@pytest.fixture(scope="module")
def page(folders, tmp_path_factory):
    chromium.find()
    serving = Serving(*folders)
    browser = chromium.Browser(tmp_path_factory.mktemp("profile"))
    browser.open(serving.address + "#noise=0.02&speed=8")
    browser.until(f"document.querySelector('.decision') && {DECISIONS} >= 3", 240)
    yield browser
    assert browser.console == [], "no errors on the console"
    browser.close()
    assert serving.close() == 0


def drag(page: chromium.Browser, control: str, value: object) -> None:
    """Move a slider, as a hand does."""
    page.run(
        f"(() => {{ const c = document.getElementById('{control}'); c.value = {value!r};"
        " c.dispatchEvent(new Event('input')); c.dispatchEvent(new Event('change')); })()"
    )


def after_some_decisions(page: chromium.Browser, more: int = 3) -> None:
    page.until(f"{DECISIONS} >= {page.run(DECISIONS) + more}", 120)


@pytest.mark.slow
def test_the_page_shows_agents_and_the_setting_of_its_link(page: chromium.Browser):
    assert page.run("document.querySelectorAll('.agent').length") == 2
    assert page.run("document.getElementById('picture.noise').value") == "0.02"
    assert page.run("document.getElementById('notice').hidden")
    assert "Changed by hand" in page.run("document.getElementById('exact').textContent")
    drag(page, "picture.noise", 0)
    page.run("document.getElementById('reset').click()")
    page.until("document.getElementById('exact').textContent.startsWith('Exact: episode 0')")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("control", "value", "channel"), [("sky", "#00ff00", 1), ("floor", "#ff0000", 0)]
)
def test_a_slider_changes_the_pixels_of_every_agent(page, control, value, channel):
    before = [page.run(PICTURE.replace("AGENT", str(k))) for k in range(2)]
    drag(page, control, value)
    after_some_decisions(page)
    after = [page.run(PICTURE.replace("AGENT", str(k))) for k in range(2)]
    assert all(now[channel] > then[channel] + 8 for now, then in zip(after, before, strict=True))
    page.run("document.getElementById('neutral').click()")


@pytest.mark.slow
def test_pause_holds_the_episode_and_a_step_is_one_decision(page: chromium.Browser):
    page.run("document.getElementById('play').click()")
    time.sleep(1.0)
    held = page.run(DECISIONS)
    time.sleep(0.5)
    assert page.run(DECISIONS) == held
    page.run("document.getElementById('step').click()")
    page.until(f"{DECISIONS} === {held + 1}")
    before = page.run(PICTURE.replace("AGENT", "0"))
    drag(page, "light.strength", 0.1)  # also while it pauses
    page.until(f"(async () => (await {PICTURE.replace('AGENT', '0')})[0] < {before[0]} - 5)()", 60)
    page.run("document.getElementById('neutral').click()")
    page.run("document.getElementById('play').click()")
    after_some_decisions(page)


@pytest.mark.slow
def test_agents_differ_in_a_hard_setting(page: chromium.Browser):
    drag(page, "mode", "video_hard")
    page.until("document.getElementById('world').options.length > 50")
    page.run("document.getElementById('reset').click()")
    page.until(f"{DECISIONS} < 5")
    after_some_decisions(page, 20)
    first, second = page.run(RETURNS)
    assert first != second


@pytest.mark.slow
def test_recording_writes_a_film_that_plays(page: chromium.Browser, folders: list[Path]):
    drag(page, "speed", 0)
    drag(page, "size", 256)
    page.run("document.getElementById('record').click()")
    page.until("document.getElementById('notice').textContent.includes('Recorded')", 300)
    (film,) = (folders[0] / "media").glob("play-*.mp4")
    command = [ffmpeg.executable(), "-i", str(film), "-f", "rawvideo", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True)
    assert re.search(rb"Duration: 00:00:1[0-2]", decoded.stderr), decoded.stderr
    assert len(decoded.stdout) > 10 * 512 * 256, "more than ten pictures of two agents"
    fetched = "fetch(document.querySelector('#notice a').href)"
    kind = f"{fetched}.then((answer) => answer.status + answer.headers.get('content-type'))"
    assert page.run(kind) == "200video/mp4"


@pytest.mark.slow
def test_a_page_says_that_it_starts_what_is_the_most_and_what_was_changed_by_hand(tmp_path: Path):
    chromium.find()
    serving = Serving(make_export(tmp_path / "short", "walker_walk", episode_frames=80))
    browser = chromium.Browser(tmp_path / "profile")
    shown = "[...document.querySelectorAll('.scene > :not(figcaption)')]"
    shown = f"{shown}.filter((one) => !one.hidden).map((one) => one.tagName).join()"
    browser.open(serving.address + "#light=2")
    browser.until("!!document.querySelector('.agent')")
    assert browser.run(shown) == "P", "no picture that is broken"
    browser.until("document.querySelector('.history').textContent", 240)
    assert browser.run(shown) == "IMG"
    assert browser.run("document.querySelector('.most').textContent").endswith(" 80")
    assert "in train, changed by hand" in browser.run(
        "document.querySelector('.history').textContent"
    )
    browser.close()
    assert serving.close() == 0


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 768, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(page: chromium.Browser, width: int, dark: bool):
    page.resize(width, 850, dark)
    assert page.run("document.documentElement.scrollWidth") <= width
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == dark
    page.resize(1400, 1000)
