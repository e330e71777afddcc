"""The report: what it shows, what it refuses to hide, and that a browser can open it."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from fake_runs import add_media, write_lines, write_run
from svea import report
from svea.errors import StorageError, UserError
from svea.report import Markup, element, write_report

DATE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


class Page(HTMLParser):
    """What a reader of the page gets: tables, texts, and the addresses it would load."""

    def __init__(self, text):
        """Parse the page."""
        super().__init__()
        self.rows, self.addresses, self.tags, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Collect tags and addresses; open rows and cells."""
        self.tags.append((tag, dict(attrs)))
        self.addresses += [v for k, v in attrs if k in ("src", "href", "xlink:href", "action")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        """Collect words, and put them into the cell they are in."""
        self.words.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def count(self, tag, **wanted):
        """How many elements have these attributes."""
        return sum(t == tag and wanted.items() <= attrs.items() for t, attrs in self.tags)


def make(tmp_path, *folders):
    """The parsed report about folders, and its text."""
    text = write_report(list(folders), tmp_path / "report.html", generated=DATE).read_text()
    return Page(text), text


def test_elements_escape_all_but_markup():
    assert element("b", "<i>", Markup("<i></i>"), None, data_x='"') == (
        '<b data-x="&quot;">&lt;i&gt;<i></i></b>'
    )


def test_the_table_shows_ours_random_ratio_share_and_paper(tmp_path):
    folder = write_run(tmp_path / "demo", final={"train": 300, "color_hard": 240}, random=40)
    page, _ = make(tmp_path, folder)
    train, test = page.rows[1], page.rows[2]
    assert train[0] == "train" and train[1] == "300"
    assert train[3:5] == ["40", "7.5×"]
    assert test[0] == "color_hard" and test[1] == "240"
    assert test[5] == "80 %"
    assert test[-1].startswith("760 ± 145† Table 1")


def test_a_small_run_is_never_mistaken_for_a_replication(tmp_path):
    _, text = make(tmp_path, write_run(tmp_path / "demo"))
    assert "not a replication" in text
    assert "6,000 decisions (1.2 %), 1 seed" in text
    assert "few seeds: 1 where the paper has 5" in text
    assert "procedural or generated data" in text


def test_a_replication_carries_no_dagger(tmp_path):
    folders = [
        write_run(tmp_path / str(s), seed=s, preset="paper", decisions=500_000) for s in range(5)
    ]
    page, text = make(tmp_path, *folders)
    assert page.rows[2][-1].startswith("760 ± 145 Table 1")
    assert "ot a replication" not in text


def test_decisions_and_frames_are_both_named(tmp_path):
    _, text = make(tmp_path, write_run(tmp_path / "demo"))
    assert "6,000 decisions = 24,000 frames" in text


def test_configuration_and_command_are_exact(tmp_path):
    folder = write_run(tmp_path / "demo", odd={"a": [1, "<2>"]})
    _, text = make(tmp_path, folder)
    shown = re.search(r'<pre class="config">(.*?)</pre>', text, re.DOTALL).group(1)
    assert json.loads(html.unescape(shown)) == json.loads((folder / "config.json").read_text())
    assert "svea train walker_walk --method svea --seed 0" in text


def test_media_are_inside_the_page_and_nothing_is_loaded(tmp_path):
    folder = write_run(tmp_path / "demo")
    add_media(folder)
    page, text = make(tmp_path, folder)
    videos = [attrs["src"] for tag, attrs in page.tags if tag == "video"]
    assert len(videos) == 2 and all(v.startswith("data:video/mp4;base64,") for v in videos)
    assert page.count("img") == 2
    assert all(a.startswith(("data:", "#")) for a in page.addresses)
    assert "@import" not in text and "url(http" not in text


def test_media_beyond_the_limit_are_named(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "demo")
    add_media(folder)
    monkeypatch.setattr(report, "MEDIA_BYTES", 2000)
    page, text = make(tmp_path, folder)
    assert page.count("video") == 0
    assert "media/train.mp4 of" in text and "does not fit into the page" in text


def test_filters_appear_only_where_there_is_a_choice(tmp_path):
    one = write_run(tmp_path / "one")
    page, _ = make(tmp_path, one)
    assert page.count("select") == 0
    page, _ = make(tmp_path, one, write_run(tmp_path / "two", method="drq", augment="none"))
    assert [a["data-filter"] for tag, a in page.tags if tag == "select"] == ["method"]
    assert page.count("tr", **{"data-method": "drq"}) == 2


def test_the_same_runs_give_the_same_page(tmp_path):
    folder = write_run(tmp_path / "demo")
    add_media(folder)
    assert make(tmp_path, folder)[1] == make(tmp_path, folder)[1]


def test_nothing_but_the_page_is_written(tmp_path):
    folder = write_run(tmp_path / "demo")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    out = write_report([folder], folder)
    assert out == folder / "report.html"
    after = {path: path.stat().st_mtime_ns for path in folder.iterdir() if path != out}
    assert before == after


HOSTILE = "<script>alert('x')</script>\"'&--><!--"


def test_hostile_names_are_text(tmp_path):
    folder = write_run(
        tmp_path / "demo", task=HOSTILE, method=HOSTILE, final={"train": 1.0, HOSTILE: 2.0}
    )
    other = write_run(tmp_path / "other", task="b", method=f"$ {HOSTILE}", command=HOSTILE)
    page, text = make(tmp_path, folder, other)
    assert page.count("script") == 1  # ours
    assert "<script>alert" not in text
    assert any(HOSTILE in words for words in page.words)


def test_huge_and_missing_values_do_not_stop_the_report(tmp_path):
    folder = write_run(tmp_path / "demo", decisions=6000)
    bad = [float("nan"), float("-inf"), 1e300, None]
    records = [
        {"policy": "agent", "mode": "train", "decision": 6000, "episode": 50 + i, "return": value}
        for i, value in enumerate(bad)
    ]
    metrics = [{"kind": "eval", "mode": "train", "decision": 1e300, "return_mean": 1.0}]
    for name, lines in (("eval.jsonl", records), ("metrics.jsonl", metrics)):
        with (folder / name).open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    page, text = make(tmp_path, folder)
    assert page.rows[1][1] == "300"
    assert "4 return(s) are not finite or not plausible" in text


def test_an_empty_run_is_reported_as_such(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    write_lines(folder / "metrics.jsonl", [])
    page, text = make(tmp_path, folder)
    assert "no evaluation yet" in text and "metrics.jsonl holds no record" in text
    assert page.count("table") == 0


def test_what_cannot_be_read_is_named_and_the_rest_reported(tmp_path):
    _, text = make(tmp_path, write_run(tmp_path / "good"), tmp_path / "absent")
    assert "absent" in text and "not there" in text
    with pytest.raises(UserError, match="absent"):
        write_report([tmp_path / "absent"], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_a_page_that_cannot_be_written_is_one_clear_error(tmp_path):
    folder = write_run(tmp_path / "demo")
    with pytest.raises(StorageError, match="cannot write"):
        write_report([folder], folder / "config.json" / "report.html")


# --- In a browser

CHECKS = """
<script>
addEventListener("load", async () => {
  const videos = [...document.querySelectorAll("video")];
  await Promise.all(videos.map((v) => v.readyState >= 2 ? 0 : new Promise((done) => {
    v.addEventListener("loadeddata", done); v.addEventListener("error", done);
  })));
  const visible = (selector) => [...document.querySelectorAll(selector)].filter(
    (e) => !e.hidden && e.style.display !== "none").length;
  const rows = () => [...document.querySelectorAll("tbody tr")].map((r) => r.cells[2].textContent);
  const head = document.querySelectorAll("th button")[2];
  head.click(); const rising = rows()[0]; head.click(); const falling = rows()[0];
  const series = visible("[data-series]");
  const select = document.querySelector("select[data-filter=method]");
  select.value = "drq"; select.dispatchEvent(new Event("change"));
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  document.documentElement.dataset.checks = JSON.stringify({
    rising, falling, rows: visible("tbody tr"), cards: visible(".card"), wide,
    hiddenSeries: series - visible("[data-series]"),
    videos: videos.map((v) => [v.videoWidth, v.error === null]),
    pictures: [...document.images].map((i) => i.naturalWidth),
  });
});
</script>
"""


@pytest.mark.slow
def test_a_real_browser_opens_sorts_filters_and_plays(tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    one = write_run(tmp_path / "one", final={"train": 300, "color_hard": 99})
    add_media(one, ("train",))
    two = write_run(tmp_path / "two", method="drq", augment="none", final={"train": 1000})
    out = write_report([one, two], tmp_path / "report.html")
    out.write_text(out.read_text().replace("</body>", CHECKS + "</body>"))
    switches = "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync dump-dom"
    switches += " disable-background-networking disable-component-update enable-logging=stderr"
    switches += " virtual-time-budget=8000 window-size=600,900"
    flags = [f"--{switch}" for switch in switches.split()]
    done = subprocess.run(
        [browser, *flags, f"--user-data-dir={tmp_path / 'profile'}", out.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'data-checks="([^"]*)"', done.stdout)
    assert found, f"the page's script did not finish: {done.stderr[-2000:]}"
    checks = json.loads(html.unescape(found.group(1)))
    assert (checks["rising"], checks["falling"]) == ("99", "1,000")  # by number, not by text
    assert (checks["rows"], checks["cards"]) == (1, 1)
    assert checks["hiddenSeries"] > 0
    assert checks["videos"] == [[64, True]]
    assert checks["pictures"] == [256]
    assert not checks["wide"]
