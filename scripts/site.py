"""What MkDocs does not do for this repository by itself; mkdocs.yml names this file as a hook.

Pages of docs/ link to files outside it (source code, CHANGELOG.md), as readers of the repository
expect. Here each such file becomes a page under `source/`, and the links are pointed at it.
The clips of the gallery are put on its page, with the returns of the agents' cards.
Equations become MathML and the diagram of the rooms plain HTML at build time: every browser draws
them, and no script has to be fetched.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
import textwrap
from pathlib import Path

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from svea.core.words import interval, number, plural
from svea.methods import METHODS

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )((?:\.\./)*[^)\s:#]+)(#[^)\s]*)?(?=\)|$)", re.M)
CODE = re.compile(r"(```.*?^[ >]*```|`[^`\n]+`|<pre>.*?</pre>)", re.M | re.S)
BLOCK = re.compile(r"\$\$(.+?)\$\$", re.S)
INLINE = re.compile(r"(?<![\w\\$])\$(?=\S)([^$\n]+(?:\n[^$\n]+)?)(?<=\S)\$(?!\w)")
CELL_CODE = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
INTERVAL = re.compile(r"(?<=\d) (?=\[|±)|(?<=±) (?=\d)|(?<=\d,) (?=[\d.+-]+\])")
DIAGRAM = re.compile(r"```mermaid\nflowchart TD\n(.*?)```", re.S)
CLIPS = re.compile(r"<!-- clips: (\w+) -->")
LANGUAGES = {".py": "python", ".json": "json", ".xml": "xml", ".toml": "toml", ".cpp": "cpp"}
ALWAYS = ["CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/RESULTS.md", "results/README.md"]


def page_of(path: str) -> str:
    """Where the site shows a file or folder of the repository, given its path there."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def path_of(uri: str) -> str:
    """The path in the repository of a page of the site."""
    if not uri.startswith("source/"):
        return f"docs/{uri}"
    path = uri.removeprefix("source/")
    if path.endswith("/index.md"):
        return path.removesuffix("/index.md")
    return path if (ROOT / path).exists() else path.removesuffix(".md")


def outside(text: str, path: str) -> set[str]:
    """The files of the repository outside docs/ that the page at `path` links to."""
    folder = path if (ROOT / path).is_dir() else posixpath.dirname(path)
    targets = {posixpath.normpath(posixpath.join(folder, m[2])) for m in LINK.finditer(text)}
    return {t for t in targets if not t.startswith(("docs/", "http", "..")) and (ROOT / t).exists()}


def shown(path: str) -> str:
    """The text of the page for a file or folder outside docs/."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(p.name for p in place.iterdir() if p.name[0] not in "._")
        rows = [f"- [{n}]({n})" if n.endswith(".md") else f"- `{n}`" for n in names]
        return f"# {path}/\n\n" + "\n".join(rows) + "\n"
    text = place.read_text()
    if path.endswith(".md"):
        return text
    fence = "`````"
    return f"# {path}\n\n{fence}{LANGUAGES.get(place.suffix, 'text')}\n{text}\n{fence}\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give every method its page in the navigation."""
    pages = [f"methods/{name}.md" for name in METHODS]
    for entry in config.nav or []:
        if "Methods" in entry:
            entry["Methods"] += pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for every file outside docs/ that a page links to, and so on from there."""
    waiting = set(ALWAYS)
    for file in files.documentation_pages():
        waiting |= outside(file.content_string, f"docs/{file.src_uri}")
    done = set()
    while waiting:
        path = waiting.pop()
        done.add(path)
        if path == "README.md":
            continue
        text = shown(path)
        files.append(File.generated(config, page_of(path), content=text))
        if path.endswith(".md"):
            waiting |= outside(text, path) - done
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, and turn equations into MathML; code stays as it is."""
    uri = page.file.src_uri
    here = path_of(uri)
    folder = here if (ROOT / here).is_dir() else posixpath.dirname(here)
    if uri.startswith("source/"):
        page.meta["search"] = {"exclude": not here.endswith(".md")}

    def point(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if not (ROOT / target).exists() or (
            target.startswith("docs/") and here.startswith("docs/")
        ):
            return match[0]
        relative = posixpath.relpath(page_of(target), posixpath.dirname(uri) or ".")
        return f"{match[1]}{relative}{match[3] or ''}"

    markdown = re.sub(r"^\|.*$", lambda line: table_row(line[0]), markdown, flags=re.M)
    markdown = CLIPS.sub(lambda match: clips(match[1]), markdown)
    parts = CODE.split(DIAGRAM.sub(layers, markdown))
    for index in range(0, len(parts), 2):
        parts[index] = mathml(parts[index], uri)
    text = "".join(parts)
    # Links may have code as their text, so they are looked for in the whole page but for fences.
    parts = re.split(r"(^[ >]*(?:`{3,}).*?^[ >]*`{3,})", text, flags=re.M | re.S)
    parts[::2] = [LINK.sub(point, part) for part in parts[::2]]
    return "".join(parts)


def table_row(line: str) -> str:
    """A row whose intervals stay in one line, and whose code may hold an escaped bar.

    GitHub takes the backslash of such a bar away, also in code; Python-Markdown leaves it there.
    """
    line = INTERVAL.sub("&nbsp;", line)
    return CELL_CODE.sub(
        lambda m: f"<code>{html.escape(m[1]).replace(chr(92) + '|', '&#124;')}</code>", line
    )


def mathml(text: str, uri: str) -> str:
    """Replace `$$…$$` and `$…$` by MathML."""

    def one(display: str) -> str:
        def replace(match: re.Match[str]) -> str:
            try:
                made = convert(match[1].replace(r"\big", "").replace(r"\Big", ""), display=display)
            except Exception as error:  # the converter raises many kinds
                raise PluginError(
                    f"{uri}: cannot convert {match[0]!r} to MathML: {error}"
                ) from error
            return f"\n<div class='equation'>{made}</div>\n" if display == "block" else made

        return replace

    return INLINE.sub(one("inline"), BLOCK.sub(one("block"), text))


def layers(match: re.Match[str]) -> str:
    """A Mermaid diagram as boxes from top to bottom, each as low as its longest way from above."""
    names = {m[1]: m[2] for m in re.finditer(r'(\w+)\(?\["(.*?)"\]', match[1])}
    bare = re.sub(r'\(?\[".*?"\]\)?', "", match[1])
    edges = re.findall(r"(\w+) (?:-->|-\. \w+ \.->) (\w+)", bare)
    depth = dict.fromkeys(names, 0)
    for _ in names:  # as often as the longest way can be long
        for above, below in edges:
            depth[below] = max(depth[below], depth[above] + 1)
    levels = [[names[n] for n in names if depth[n] == k] for k in range(max(depth.values()) + 1)]
    rows = ("".join(f"<span>{name}</span>" for name in level) for level in levels)
    return "<div class='layers'>" + "".join(f"<div>{row}</div>" for row in rows) + "</div>\n"


def clips(section: str) -> str:
    """The clips of a section of the gallery: a heading per mode where it shows several agents."""
    listed = json.loads((ROOT / "docs/gallery/clips.json").read_text())
    chosen = [clip for clip in listed["clips"] if clip["section"] == section]
    if not chosen:
        raise PluginError(f"docs/gallery/clips.json has no clips of the section {section!r}")
    modes = {clip["mode"]: [c for c in chosen if c["mode"] == clip["mode"]] for clip in chosen}
    if all(len(shown) == 1 for shown in modes.values()):
        return grid([figure(clip, listed["size"], clip["mode"]) for clip in chosen])
    return "\n\n".join(
        f"### `{mode}`\n\n" + grid([figure(clip, listed["size"], "") for clip in shown], "row")
        for mode, shown in modes.items()
    )


def grid(figures: list[str], kind: str = "") -> str:
    """Figures side by side."""
    return f'<div class="clips {kind}">\n' + "\n".join(figures) + "\n</div>"


def figure(clip: dict[str, str], size: int, title: str) -> str:
    """One clip with its caption."""
    what = html.escape(f"zoo:{clip['agent']} in {clip['mode']}")
    about = "<br>".join(filter(None, (f"<b>{title or clip['agent']}</b>", measured(clip))))
    return (
        f'<figure><video class="clip" src="gallery/{clip["file"]}" width="{size}" height="{size}" '
        f'poster="gallery/{clip["still"]}" preload="none" muted loop playsinline controls '
        f'aria-label="{what}"><img src="gallery/{clip["still"]}" loading="lazy" alt="{what}">'
        f"</video><figcaption>{about}</figcaption></figure>"
    )


def measured(clip: dict[str, str]) -> str:
    """The agent's return in the mode of a clip, from its card; nothing where it has none."""
    file = ROOT / "zoo" / clip["agent"] / "card.json"
    if not file.exists():
        raise PluginError(f"the gallery shows {clip['agent']}, which the zoo does not have: change "
                          "scripts/gallery.py and run it")  # fmt: skip
    card = json.loads(file.read_text())
    for one in card["returns"]:
        if one["mode"] == clip["mode"]:
            ends = interval(one["low"], one["high"])
            played = plural(one["episodes"], "episode")
            where = one["shown"].removeprefix(one["mode"]).strip(" ()")
            return html.escape(
                ", ".join(filter(None, (f"{number(one['mean'])} {ends}", played, where)))
            )
    return ""


class Docstrings(griffe.Extension):
    """Shows docstrings as they are written here."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Show `>>>` lines as code, whether `Example:` stands above them or nothing."""
        if obj.docstring and ">>>" in obj.docstring.value:
            paragraphs = obj.docstring.value.split("\n\n")
            for k, text in enumerate(paragraphs):
                if text.startswith(">>>"):
                    paragraphs[k] = "Examples:\n" + textwrap.indent(text, "    ")
            obj.docstring.value = re.sub(r"(?m)^Example:$", "Examples:", "\n\n".join(paragraphs))

    def on_attribute(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Leave out what `Annotated` adds to the type of an option: its bounds and its role."""
        kind = attr.annotation
        if isinstance(kind, griffe.ExprSubscript) and str(kind.left) == "Annotated":
            attr.annotation = next(iter(kind.slice.elements))
