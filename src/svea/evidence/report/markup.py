"""HTML by function calls: everything that is not markup already is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already; every other string is escaped when it enters the page."""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """One HTML element. Children are escaped unless they are Markup; None is left out.

    Attribute names lose a trailing underscore and turn the others into hyphens.

    >>> element("td", "a < b", class_="text")
    '<td class="text">a &lt; b</td>'
    """
    pairs = [
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{name}{''.join(pairs)}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Markup:
    """Children one after another, escaped unless they are Markup."""
    shown = (child for child in children if child is not None)
    return Markup("".join(c if isinstance(c, Markup) else html.escape(str(c)) for c in shown))
