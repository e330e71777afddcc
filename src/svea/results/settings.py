"""Which settings of a run change what is learned, and which of them differ from the paper's."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from svea.config import Role, fields_with, flat, resolve, to_dict
from svea.core.errors import UserError
from svea.core.importing import is_import_path
from svea.results.run import Run

SETTINGS = fields_with(Role.WHAT, Role.LENGTH) - {"eval_mode"}
"""Fields of a configuration that say what is learned, not which seed, where or how watched."""

EARLIER = {"mask": "none", "network.frame_layers": "3"}
"""Settings that did not exist when earlier runs were recorded, and what those runs did."""

MACHINE = frozenset({"overlay_dir", "precision"})
"""Settings that the machine decides; the paper's are not known."""

PLACES, SMALLEST_PLACES = "places365_standard", 36_500
"""Where overlay's pictures lie in the paper's data set, and how many its smaller part has."""

PARTS = {"sac": "base", "ddpg": "base", "dqn": "base",
         "curl": "auxiliary", "soda": "auxiliary", "pad": "auxiliary", "sgqn": "auxiliary",
         "madi": "mask"}  # fmt: skip
"""Tables of a configuration that count only where this field names them."""


def settings_of(run: Run) -> dict[str, str]:
    """Every setting that changes what is learned, under its dotted name."""
    settings = dict(EARLIER)
    unused = {part for part, field in PARTS.items() if getattr(run, field) != part}
    counting = {k: v for k, v in run.config.items() if k in SETTINGS - unused}
    settings |= {name: str(value) for name, value in flat(counting).items()}
    own = {"method": run.method, "augment": run.augment}  # one spelling of each
    settings |= {name: value for name, value in own.items() if name in settings}
    if pictures := run.pictures:  # where they lay does not matter then
        settings.pop("overlay_dir", None)
        source, digest = pictures.get("source"), str(pictures.get("sha256"))[:8]
        count, side = pictures.get("count"), pictures.get("side")
        settings["pictures"] = f"{count} of {source} at {side} px ({digest})"
    return settings


def other_pictures(run: Run) -> str:
    """How the pictures of a run's overlay differ from the paper's, Places365; empty if not."""
    pictures = run.pictures
    if pictures is None:
        return ""
    if not pictures:
        return "overlay pictures not recorded"
    source, of = str(pictures.get("source")), pictures.get("of")
    if not source.startswith(PLACES):
        return f"overlay pictures not Places365 ({source})"
    if not isinstance(of, int) or of < SMALLEST_PLACES:
        return f"only {of} files of Places365 for overlay"
    since = pictures.get("since")
    return f"overlay pictures not recorded before decision {since:,}" if since else ""


def changed_settings(run: Run) -> list[str]:
    """Settings that differ from the paper's for a run's task, method, augmentation and encoder."""
    if is_import_path(run.method):  # a user's own, whose module is not needed to read its results
        return ["method"]
    try:
        paper = _paper_settings(run.task, run.method, run.augment, run.encoder)
    except UserError:  # a damaged record, or a method of this version no longer
        return ["method"]
    own = settings_of(run)
    compared = fields_with(Role.WHAT) - MACHINE
    return sorted(
        name
        for name in own.keys() & paper.keys()
        if name.partition(".")[0] in compared and own[name] != paper[name]
    )


@lru_cache
def _paper_settings(task: str, method: str, augment: str, encoder: str) -> dict[str, str]:
    """The settings of preset `paper`."""
    config = to_dict(resolve(task, method=method, augment=augment, encoder=encoder))
    return settings_of(Run(Path(), config, [], []))
