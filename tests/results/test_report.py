"""The report: what it shows, what it refuses to hide, and that a browser can open it."""

import base64
import csv
import html
import io
import json
import re
import shutil
from datetime import UTC, datetime

import chromium
import lxml.html
import pytest
from fake_runs import add_media, write_run
from PIL import Image

from svea.results import report as page_of
from svea.results.groups import group_runs
from svea.results.read import read_run
from svea.results.report import next_steps, report

DATE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


def returns_of(page):
    """The rows of the table of all results, by the names of its columns."""
    rows = [[c.text_content().strip() for c in r] for r in page.xpath("//*[@id='returns']//tr")]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def make(tmp_path, *folders):
    """The parsed report about folders, and its text."""
    text = report(list(folders), tmp_path / "report.html", generated=DATE).read_text()
    return lxml.html.fromstring(text), text


def test_the_table_shows_ours_random_ratio_share_and_paper(tmp_path):
    folder = write_run(tmp_path / "demo", final={"train": 300, "color_hard": 240}, random=40)
    page, _ = make(tmp_path, folder)
    train, test = returns_of(page)
    assert (train["mode"], train["mean ± std"]) == ("train", "300")
    assert train["area"] == "150"  # half of a straight line's height
    assert train["random"] == "40 (7.5×)"
    assert (test["mode"], test["mean ± std"]) == ("color_hard", "240")
    assert test["of train"] == "80 %"
    assert test["paper"] == "760 ± 145† Table 1"


def test_a_small_run_is_never_mistaken_for_a_replication(tmp_path):
    _, text = make(tmp_path, write_run(tmp_path / "demo"))
    assert "not a replication" in text
    assert "6,000 decisions (1.2 %), 1 seed" in text
    assert "generated data, not the benchmark" in text


def test_configuration_and_command_are_exact(tmp_path):
    folder = write_run(tmp_path / "demo", odd={"a": [1, "<2>"]})
    _, text = make(tmp_path, folder)
    shown = re.search(r'<pre class="config">(.*?)</pre>', text, re.DOTALL).group(1)
    assert json.loads(html.unescape(shown)) == json.loads((folder / "config.json").read_text())
    assert "svea train walker_walk --method svea --seed 0" in text


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "svea train my:make --preset quick --seed 3 -o runs/x --decisions 600 --out=a",
            "svea train my:make --preset quick --decisions 600 --seeds 0-4",
        ),
        (
            "svea train my:make --seeds 0 1 2 --episode-frames 40",
            "svea train my:make --episode-frames 40 --seeds 0-4",
        ),
        ("svea train --seed 1 my:make --seeds 0 1", "svea train my:make --seeds 0-4"),
        ("python mine.py", "svea train walker_walk --method svea --preset quick --seeds 0-4"),
    ],
)
def test_more_seeds_are_of_the_same_setting(tmp_path, command, told):
    (group,) = group_runs([read_run(write_run(tmp_path / "a", command=command))])
    assert next_steps([group], [])[-1][1] == told


def test_media_are_inside_the_page_and_nothing_is_loaded(tmp_path):
    folder = write_run(tmp_path / "demo")
    add_media(folder)
    page, text = make(tmp_path, folder)
    videos = page.xpath("//video/@src")
    assert len(videos) == 2 and all(v.startswith("data:video/mp4;base64,") for v in videos)
    assert page.xpath("count(//img)") == 2
    addresses = page.xpath("//@src | //@href | //@action | //@*[name() = 'xlink:href']")
    assert addresses and all(a.startswith(("data:", "#")) for a in addresses)
    assert "@import" not in text and "url(http" not in text


def test_media_beyond_the_limit_are_named(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "demo")
    add_media(folder)
    monkeypatch.setattr(page_of, "VIDEO_BYTES", 200)
    page, text = make(tmp_path, folder)
    assert not page.xpath("//video") and len(page.xpath("//img")) == 2
    assert "pictures and videos of 1 run do not fit into the page" in text


def test_the_same_runs_give_the_same_page(tmp_path):
    folder = write_run(tmp_path / "demo")
    add_media(folder)
    assert make(tmp_path, folder)[1] == make(tmp_path, folder)[1]


HOSTILE = "<script>alert('x')</script>\"'&--><!--"


def test_hostile_names_are_text(tmp_path):
    folder = write_run(
        tmp_path / "demo", task=HOSTILE, method=HOSTILE, final={"train": 1.0, HOSTILE: 2.0}
    )
    other = write_run(tmp_path / "other", task="b", method=f"$ {HOSTILE}", command=HOSTILE)
    page, text = make(tmp_path, folder, other)
    assert len(page.xpath("//script")) == 1  # ours
    assert "<script>alert" not in text
    assert any(HOSTILE in words for words in page.itertext())


# --- Bad input: named, and the rest is reported


def spoil(folder, how):
    """Damage a run folder in one of the ways that folders are found damaged."""
    if how == "no checkpoint":
        shutil.rmtree(folder / "checkpoints")
    elif how == "another version":
        config = json.loads((folder / "config.json").read_text())
        config |= {"svea_version": "9.9", "encoder": {"kind": "vit"}, "recipe": None, "new": [1]}
        (folder / "config.json").write_text(json.dumps(config))
    elif how == "corrupt":
        (folder / "config.json").write_bytes(b"\xff\x00{")
        (folder / "eval.jsonl").write_bytes(b"\xff\x00{\n[]\n3\n")
    else:
        shutil.rmtree(folder)
        folder.mkdir()


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("no checkpoint", "no checkpoint"),
        ("another version", "runs of different versions of svea: 0.1.0, 9.9"),
        ("corrupt", "config.json cannot be read"),
        ("empty", "config.json is missing"),
    ],
)
def test_a_bad_run_is_named_and_the_good_one_reported(tmp_path, how, named):
    good, bad = write_run(tmp_path / "good", seed=1), write_run(tmp_path / "bad", seed=2)
    spoil(bad, how)
    problems = []
    out = report([good, bad], tmp_path / "r.html", on_problem=problems.append)
    text = out.read_text()
    assert named in html.unescape(text)
    assert "good" in text and any(
        row["paper"].startswith("760") for row in returns_of(lxml.html.fromstring(text))
    )
    if how != "another version":  # a property of the set, so no single run is named for it
        assert any(named in problem and "bad" in problem for problem in problems)


# --- Files


def read_csv(path):
    """Rows as dicts."""
    with path.open() as file:
        return list(csv.DictReader(file))


def test_figures_are_written_with_the_numbers_they_show(tmp_path):
    svea = write_run(tmp_path / "s", final={"train": 300, "color_hard": 240})
    drq = write_run(tmp_path / "d", method="drq", augment="none", final={"train": 310})
    folder = tmp_path / "figures"
    report([svea, drq], tmp_path / "r.html", figures=folder)
    names = {"learning-walker_walk-train", "learning-walker_walk-color_hard"}
    names |= {"generalisation-walker_walk"}
    for name in names:
        with Image.open(folder / f"{name}.png") as picture:
            assert picture.size == (1160, 760)
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF-")
    assert {path.name for path in folder.iterdir()} == {
        *(f"{name}.{kind}" for name in names for kind in ("png", "pdf", "csv")),
        "results.csv", "table-results.tex", "table-results.md", "table-returns.tex",
        "table-returns.md",
    }  # fmt: skip
    curve = read_csv(folder / "learning-walker_walk-train.csv")
    ends = {row["setting"]: float(row["mean"]) for row in curve if row["decision"] == "6000.0"}
    assert ends == {"drq": 310, "svea + conv": 300}
    assert {row["low"] for row in curve} == {""}  # one seed: no interval, and no number for it
    rows = {(row["setting"], row["mode"]): row for row in read_csv(folder / "results.csv")}
    assert float(rows["svea + conv", "color_hard"]["mean"]) == pytest.approx(240)
    assert rows["svea + conv", "color_hard"]["paper_mean"] == "760.0"
    assert rows["drq", "train"]["is_replication"] == "False"
    assert "240 (760 ± 145†)" in (folder / "table-returns.md").read_text()


@pytest.mark.slow
def test_hostile_task_names_stay_inside_the_folder(tmp_path):
    tasks = ("../../evil", "evil", "\u2028")
    runs = [write_run(tmp_path / f"r{k}", task=task) for k, task in enumerate(tasks)]
    folder = tmp_path / "figures"
    before = {path for path in tmp_path.rglob("*") if "figures" not in path.parts}
    report(runs, tmp_path / "r.html", figures=folder)
    after = {path for path in tmp_path.rglob("*") if "figures" not in path.parts}
    assert after - before == {tmp_path / "r.html"}
    assert len(list(folder.glob("learning*.png"))) == len(tasks)  # none overwrote another


# --- Media: what fits goes in, the first seed of each setting first; the rest is named


def embedded(*folders):
    """The bytes of each file on the page, by its path in the run's folder; and what is left out."""
    groups = group_runs([read_run(folder) for folder in folders])
    sources, left_out = page_of.embed(groups)
    return {
        f"{file.parent.parent.name}/{file.name}": base64.b64decode(source.partition("base64,")[2])
        for file, source in sources.items()
    }, left_out


def test_pictures_and_videos_are_what_lies_in_the_folder(tmp_path):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    found, _ = embedded(folder)
    train, test = (
        Image.open(io.BytesIO(found[f"a/{mode}.png"])) for mode in ("train", "color_hard")
    )
    assert train.size == (256, 64)
    assert train.getpixel((250, 30))[0] > 200 > 60 > train.getpixel((250, 30))[1]  # red ramp
    assert test.getpixel((250, 30))[1] > 200 > 60 > test.getpixel((250, 30))[0]  # green ramp
    assert found["a/train.mp4"] == (folder / "media" / "train.mp4").read_bytes()


def test_saliency_has_a_section_of_its_own(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "analysis").mkdir()
    Image.new("RGB", (300, 100)).save(folder / "analysis" / "saliency-color_hard.png")
    page = report(folder, tmp_path / "report.html").read_text()
    assert 'id="saliency"' in page and "saliency color_hard" in page and 'id="gallery"' not in page


def test_first_seeds_come_before_second_ones(tmp_path, monkeypatch):
    folders = [
        write_run(tmp_path / f"{method}{seed}", method=method, seed=seed)
        for method in ("svea", "drq")
        for seed in (0, 1)
    ]
    for folder in folders:
        add_media(folder, ("train",))
    monkeypatch.setattr(page_of, "MOST_RUNS", 3)
    found, (left,) = embedded(*folders)
    shown = [name.partition("/")[0] for name in found if name.endswith(".mp4")]
    assert shown == ["drq0", "svea0", "drq1"]
    assert left.startswith("pictures and videos of 1 run do not fit") and "svea1" in left


def picture(kind):
    """What another program may have written."""
    Image.new("RGB", (30, 10)).save(content := io.BytesIO(), kind)
    return content.getvalue()


KINDS = {kind: picture(kind) for kind in ("GIF", "TIFF", "EPS", "PPM")}
DAMAGED = {"empty": b"", "head": b"\x89PNG\r\n\x1a\n", "half": picture("PNG")[:40], "0": b"\0" * 99}


@pytest.mark.parametrize("content", (KINDS | DAMAGED).values(), ids=KINDS | DAMAGED)
def test_only_what_svea_writes_is_decoded_and_the_rest_is_shown(tmp_path, content):
    folder = write_run(tmp_path / "a")
    add_media(folder)
    (folder / "media" / "train.png").write_bytes(content)
    found, (left,) = embedded(folder)
    assert left.startswith("media/train.png of ") and "cannot be read" in left
    assert sorted(found) == ["a/color_hard.mp4", "a/color_hard.png", "a/train.mp4"]


# --- In a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    tab = chromium.Browser(tmp_path_factory.mktemp("profile"))
    yield tab
    tab.close()


FUNCTIONS = """
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (selector) => all(selector).filter((e) =>
    e.checkVisibility() && getComputedStyle(e).display !== "none");
  const pause = () => new Promise((done) => setTimeout(done, 50));
"""


def browse(browser, page, script, width=1200):
    """Open a page afresh; return what a script finds there."""
    browser.resize(width, 900)
    browser.open("about:blank")
    browser.open(page.as_uri())
    browser.until(f"location.href === '{page.as_uri()}' && document.readyState === 'complete'")
    found = browser.run(f"(async () => {{ {FUNCTIONS} {script} }})()")
    assert browser.console == []
    return found


@pytest.fixture(scope="module")
def large_page(tmp_path_factory):
    """A report with everything in it: two tasks, two methods, media, analyses, a robot."""
    root = tmp_path_factory.mktemp("page")
    one = write_run(root / "one", final={"train": 300, "color_hard": 99}, variance=2.0)
    add_media(one, ("train", "color_hard"))
    (one / "analysis").mkdir()
    Image.new("RGB", (300, 100), "red").save(one / "analysis" / "saliency.png")
    two = write_run(root / "two", method="drq", augment="none", final={"train": 1000})
    robot = write_run(root / "three", task="robot_reach", final={"test": 10}, success={"test": 0.4})
    return report([one, two, robot], root / "report.html")


@pytest.mark.slow
def test_a_browser_shows_pictures_and_plays_videos(browser, large_page):
    script = """
      for (const picture of document.images) { picture.loading = "eager"; await picture.decode(); }
      const videos = [];
      for (const video of all("video")) {
        await video.play();  // it may be at the seam of its loop
        for (let k = 0; k < 40 && video.readyState < 2; k++) await pause();
        videos.push([video.videoWidth, video.duration, video.error, video.readyState >= 2]);
      }
      const picture = document.querySelector(".modes img");
      picture.click();
      const opened = document.querySelector("dialog").open;
      document.querySelector("dialog").click();
      return {
        pictures: [...document.images].slice(0, 3).map((image) => image.naturalWidth), videos,
        opened, closed: !document.querySelector("dialog").open,
      };
    """
    found = browse(browser, large_page, script)
    assert sorted(found["pictures"]) == [256, 256, 300]
    assert found["videos"] == [[64, 1, None, True]] * 2
    assert found["opened"] and found["closed"]


@pytest.mark.slow
def test_a_browser_sorts_and_filters(browser, large_page):
    script = """
      const head = all("#returns th button").find((one) => one.textContent === "mean ± std");
      const column = head.closest("th").cellIndex;
      const rows = () => all("#returns tbody tr").map((row) => row.cells[column].textContent);
      head.click(); const rising = rows(); head.click(); const falling = rows();
      const choose = (kind, value) => {
        const select = document.querySelector(`select[data-filter=${kind}]`);
        select.value = value; select.dispatchEvent(new Event("change"));
        return {
          cards: seen(".card h3").map((h) => h.textContent),
          rows: seen("#returns tbody tr").length,
          lines: seen('[id$="-line"][data-series]').length,
          keys: seen('[id$="-text"][data-series]').map((key) => key.textContent.trim()),
          sections: seen("main > section").map((section) => section.id),
          links: seen("nav a").length,
          galleries: seen(".gallery").length, runs: seen("details.run").length,
          columns: seen(".matrix th[data-method]").map((th) => th.textContent),
          nothing: seen("#nothing").length,
        };
      };
      const before = choose("task", "");
      const robot = choose("task", "robot_reach");
      const none = choose("method", "drq");
      const drq = choose("task", "");
      const after = choose("method", "");
      return {rising, falling, before, robot, none, drq, after};
    """
    found = browse(browser, large_page, script)
    assert found["rising"] == ["10", "99", "300", "1,000"]  # by number, not by text
    assert found["falling"] == found["rising"][::-1]
    assert found["before"] == found["after"]
    assert found["before"]["rows"] == 4 and found["before"]["runs"] == 3
    assert found["robot"]["cards"] == ["svea + convrobot_reach"]
    assert "robot" in found["robot"]["sections"] and "gallery" not in found["robot"]["sections"]
    assert found["drq"]["cards"] == ["drqwalker_walk"]
    assert found["drq"]["rows"] == 1 and found["drq"]["galleries"] == 0
    assert set(found["drq"]["columns"]) == {"drq"} and "robot" not in found["drq"]["sections"]
    assert set(found["drq"]["keys"]) == {"drq"}
    assert 0 < found["drq"]["lines"] < found["before"]["lines"]
    assert found["none"]["cards"] == [] and found["none"]["nothing"] == 1
    assert found["drq"]["links"] == len(found["drq"]["sections"])


@pytest.mark.slow
def test_a_browser_reads_values_off_a_curve(browser, large_page):
    script = """
      const figure = all("figure.chart").find((one) => one.textContent.includes("walk: train"));
      const svg = figure.querySelector("svg");
      svg.scrollIntoView();
      const box = svg.getBoundingClientRect();
      const [left, top, right, bottom] = svg.dataset.box.split(" ").map(Number);
      const scale = box.width / svg.viewBox.baseVal.width;
      const at = { clientX: box.left + (right - 6) * scale, clientY: box.top + (top + 9) * scale };
      svg.dispatchEvent(new PointerEvent("pointermove", at));
      const tip = figure.querySelector(".tip");
      const rows = [...tip.children].map((row) => row.textContent);
      const texts = [tip.firstChild.textContent, ...rows];
      const shown = !tip.hidden;
      svg.dispatchEvent(new PointerEvent("pointerleave"));
      return {texts, shown, gone: tip.hidden};
    """
    found = browse(browser, large_page, script)
    assert found == {
        "texts": ["6,000", "drq 1,000", "svea + conv 300"], "shown": True, "gone": True
    }  # fmt: skip


@pytest.mark.slow
def test_a_browser_reads_bars_and_offers_figures_and_tables_as_files(browser, large_page):
    script = """
      const figure = all("figure.chart").find((one) => one.textContent.includes("return per mode"));
      const svg = figure.querySelector("svg");
      svg.scrollIntoView();
      const bar = svg.querySelector('[id*="-bar"][data-series] path').getBoundingClientRect();
      const at = { clientX: bar.left + bar.width / 2, clientY: bar.top + 2 };
      svg.dispatchEvent(new PointerEvent("pointermove", at));
      const tip = figure.querySelector(".tip").textContent;
      const saved = [];
      URL.createObjectURL = (blob) => { saved.push([blob.type, blob.size]); return "data:,"; };
      figure.querySelectorAll(".take button").forEach((button) => button.click());
      document.querySelector("#returns").parentElement.querySelector(".take button").click();
      for (let k = 0; k < 100 && saved.length < 3; k++) await pause();
      const lines = () => asCsv(document.querySelector("#returns table")).split("\\n");
      const csv = lines().length;
      const cell = document.querySelector("#returns td");
      delete cell.dataset.value;
      cell.textContent = "=1+1";
      return {tip, saved, csv, formula: lines().some((line) => line.startsWith("'=1+1"))};
    """
    seen = browse(browser, large_page, script)
    assert any(digit.isdigit() for digit in seen["tip"])
    assert {kind for kind, _ in seen["saved"]} == {"image/svg+xml", "image/png", "text/csv"}
    assert all(size > 200 for _, size in seen["saved"])
    assert seen["formula"], "a spreadsheet takes it for text"
    assert seen["csv"] > 4  # a head, a row per result, and the last line break


@pytest.mark.slow
@pytest.mark.parametrize("width", [500, 1200])
def test_a_browser_fits_phones_and_switches_to_dark(browser, large_page, width):
    script = """
      const ground = () => getComputedStyle(document.body).backgroundColor;
      const inks = () => getComputedStyle(
        document.querySelector('figure [id$="series-0-line"] path')).stroke;
      const before = [ground(), inks()];
      document.querySelector("#theme").click();
      await pause();
      const after = [ground(), inks()];
      const page = document.documentElement;
      return {before, after, wide: page.scrollWidth - page.clientWidth};
    """
    found = browse(browser, large_page, script, width)
    assert found["wide"] <= 0
    brightness = [sum(map(int, re.findall(r"\d+", side[0]))) for side in
                  (found["before"], found["after"])]  # fmt: skip
    assert max(brightness) > 3 * 200 and min(brightness) < 3 * 40
    assert found["before"][1] != found["after"][1]
