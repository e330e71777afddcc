"""`svea gallery`: contact sheets of augmentations and environments."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from svea.cli.arguments import Out, Positional, parse
from svea.core.errors import UserError
from svea.core.files import output_file

Sheet = Literal["augmentations", "environments", "robot"]


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    if not arguments:
        print("\n".join(f"  svea gallery {name}" for name in get_args(Sheet)))
        return 0
    return parse(command, "gallery", arguments)


def command(
    sheet: Positional[Sheet],
    out: Out = None,
    overlay_dir: str = "",
    data_dir: str = "",
    seed: int = 0,
    modes: tuple[str, ...] = (),
    tasks: tuple[str, ...] = (),
) -> int:
    """Write a contact sheet as PNG.

    Example: svea gallery environments --modes train geometry --tasks walker_walk

    Args:
        sheet: what to show: augmentations, environments or robot.
        out: the picture; default SHEET.png.
        overlay_dir: pictures for overlay, or `procedural`.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        seed: of everything that is drawn at random.
        modes: rows of environments: modes, or groups such as geometry and lights; default the
            paper's, and those that fit any environment.
        tasks: columns of environments; default walker_walk and cartpole_swingup.
    """
    from svea.core.terminal import Steps
    from svea.evaluation import sheets

    if sheet != "environments" and (modes or tasks):
        raise UserError(
            f"--modes and --tasks choose what environments shows, not {sheet}; leave them out"
        )
    path = output_file(out or Path(f"{sheet}.png"))
    sheets.check_name(path)
    with Steps("rows") as steps:
        steps.begin("drawing the sheet")
        if sheet == "environments":
            shown = sheets.environments(
                path, modes=modes or sheets.SHEET_MODES, tasks=tasks or sheets.SHEET_TASKS,
                seed=seed, data_dir=data_dir or None, on_row=steps.finish,
            )  # fmt: skip
        elif sheet == "robot":
            shown = sheets.robot(path, seed=seed, on_row=steps.finish)
        else:
            from svea.augment.images import ImageBank

            bank = ImageBank.find(overlay_dir or None, data_dir or None)
            shown = sheets.augmentations(path, seed=seed, images=bank, on_row=steps.finish)
    print(shown)
    return 0
