"""A look that can be changed while an episode runs: any mode, and adjustments on top of it.

The playground plays in it. Without adjustments it is the mode it shows, pixel for pixel: an episode
that begins in it has the pictures of the mode's own environment.

What can be changed by hand on top of a look: values with bounds, colours, clips by name.
"""

import copy
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from svea.config.factors import Variation, changing
from svea.config.modes import factors_of
from svea.core.errors import UserError, unknown_name
from svea.data import clips
from svea.data.clips import CLIP_SETS
from svea.envs.looks import Mode, Scene, writable_arrays
from svea.envs.looks.colors import fill_checker, fill_sky, stars_in
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.varied import ALL_SIDES, Coats, Places, VariedMode, copied, places

COLOR = re.compile(r"#[0-9a-f]{6}|")
"""A colour as pages write it, #rrggbb, or nothing: the mode's own."""

Clip = tuple[clips.Clips, int]


@dataclass(frozen=True)
class Adjustments:
    """What is changed on top of a mode; the defaults change nothing."""

    body: str = ""  # colour of the agent
    floor: str = ""
    sky: str = ""
    video: str = ""  # the name of a clip that is shown behind the agent (`find_clips`)
    video_on_floor: bool = True
    variation: dict = field(default_factory=dict)  # type: ignore[type-arg]  # a bare type: checked
    """Values of factors (`svea.config.factors`)."""

    @property
    def values(self) -> Variation:
        """Values of factors, with those of a chosen clip."""
        return ({"video.share": 1.0} if self.video else {}) | self.variation


NEUTRAL = Adjustments()


def find_clips(data_dir: Path | None) -> dict[str, Clip]:
    """The clips that can be shown behind the agent, by name: generated ones and the data folder's.

    A page chooses among these names; it never names a file.
    """
    generated = clips.find("video_easy", None, clips.PROCEDURAL)
    found: dict[str, Clip] = {f"generated/{k}": (generated, k) for k in range(len(generated))}
    for name in CLIP_SETS if data_dir is not None else ():
        try:
            own = clips.find(name, data_dir, None)
        except UserError:  # the folder has none of this set
            continue
        found |= {f"{name}/{clip}": (own, k) for k, clip in enumerate(own.names)}
    return found


def channels(color: str) -> list[float]:
    """A colour #rrggbb as channels in [0, 1]."""
    return [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def to_text(color: Any) -> str:
    """Channels in [0, 1] as #rrggbb."""
    return "#" + "".join(f"{round(255 * float(each)):02x}" for each in color)


PATH = f"{__name__}:LiveMode"  # how `make_env` is asked for it

ROBOT_BODY, ROBOT_FLOOR = "arm", "table"  # textures that are painted as body and floor
# The visual part of a model: what modes write, and what is put back before another one begins.
_VISUAL = ("mat_", "cam_", "light_", "geom_rgba", "geom_matid", "site_rgba", "tendon_rgba")


class LiveMode(VariedMode):
    """Shows a mode, `base`, which can be exchanged at any time, with adjustments on top."""

    exchanges = True

    def __init__(self, task: str, data_dir: Path | None = None) -> None:
        super().__init__(task, [Mode("train")], name="live")
        self.clips = find_clips(data_dir)
        self.adjustments = NEUTRAL
        self._rng: np.random.Generator | None = None
        self._seed: int | None = None
        self._between: Between | None = None

    @property
    def provenance(self) -> dict[str, Any]:
        """That of the mode of the moment."""
        return self.base.provenance

    @property
    def info(self) -> dict[str, Any]:
        """What the mode on show tells of the episode."""
        return self.base.info

    @property
    def fits(self) -> dict[str, bool]:
        """Which colours and groups of factors change anything here."""
        own = {factor.group for factor in factors_of(self._task).values()}
        groups = ("agent", "floor", "background", "light", "camera", "video", "picture")
        fits = {group: group in own for group in groups}
        if self._model is None:  # a user's environment: there is a picture alone
            return fits | dict.fromkeys(("body", "floor", "sky"), False)
        sky, grid = self.find("skybox"), self.find("grid")
        own_sky = sky >= 0 and self._model.tex_width[sky] == self._textures[sky][0]
        still = not isinstance(self.base, DistractingMode)  # its sky is a video by itself
        return fits | {
            "body": self._body >= 0 or self.find(ROBOT_BODY) >= 0,
            "floor": grid >= 0 or self.find(ROBOT_FLOOR) >= 0,
            "sky": bool(own_sky and still),
        }

    def replace_base(self, base: Mode) -> None:
        """Show another mode from here on, also in the middle of an episode."""
        self._exchange(base)
        if self._rng is not None:  # an episode runs
            base.choose(self._seed, {})
            base.begin(self._scene, copy.deepcopy(self._rng))  # type: ignore[arg-type]
            self._keep_and_apply()

    def adjust(self, adjustments: Adjustments) -> None:
        """Apply adjustments in place of the last ones; raises on an unknown clip."""
        if adjustments.video and adjustments.video not in self.clips:
            raise unknown_name("clip", adjustments.video, self.clips)
        self._remove()
        self.adjustments = adjustments
        own = factors_of(self._task)  # agents of different tasks share a page
        self._changed = changing({n: v for n, v in adjustments.values.items() if n in own})
        self._apply()

    def prepare(self, model: Any, domain: str) -> None:
        """Remember where the stars are, too."""
        super().prepare(model, domain)
        self._body, sky = self.find("self", "mat"), self.find("skybox")
        self._stars = stars_in(self._textures[sky][2]) if sky >= 0 else None

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the seed, which chooses the mode's world; the factors stay."""
        self._seed = seed
        self.base.choose(seed, options)

    def begin(self, scene: Scene | None, rng: np.random.Generator) -> None:
        """Change the scene as the mode does, then adjust it."""
        self._rng, self._between = copy.deepcopy(rng), None
        if scene is not None:
            arrays = writable_arrays(scene.model)
            self._fresh = copied({k: arrays[k] for k in arrays if k.startswith(_VISUAL)})
        super().begin(scene, rng)

    def advance(self, scene: Scene) -> None:
        """Let the mode move on by a simulator step; draw it, if it is one that was asked for."""
        self.base.advance(scene)
        if self._between is not None and scene is not None:
            self._between.step += 1
            if self._between.step in self._between.wanted:
                shown = places(scene)
                kept = copied(shown)
                self._between.move(shown)
                picture = self.compose(scene.renderer.draw(self._between.size))
                self._between.pictures.append(np.array(picture))
                for name, values in kept.items():
                    shown[name][...] = values

    def draw_between(self, steps: Collection[int], size: int) -> list[np.ndarray]:
        """Have pictures drawn after some simulator steps of the next decision, for people.

        Camera and lights stand in them as they stood to the simulator's own at the last decision.
        The agent's observations do not depend on them.
        """
        if self._scene is None:  # a user's environment: there is a picture alone
            return []
        self._between = Between(steps, size, self._found, places(self._scene))
        return self._between.pictures

    def update(self, scene: Scene | None) -> None:
        """Let the mode move on by a decision, without the adjustments of the last one."""
        self._between = None
        super().update(scene)

    @property
    def _sky_alone(self) -> bool:  # type: ignore[override]
        return not self.adjustments.video_on_floor

    def _video_frame(self, picture: np.ndarray) -> np.ndarray:
        """The frame to show of the clip that was chosen by hand, else of the episode's."""
        if not self.adjustments.video:
            return super()._video_frame(picture)
        is_seen = len(picture) == self.image_size
        sharp: dict[str, Any] = {"side": self.image_size, "smooth": False} if is_seen else {}
        found, index = self.clips[self.adjustments.video]
        return found.open(index, **sharp).frame(int(self._frame))

    def _colour_materials(self) -> None:
        """The colour that was chosen by hand, then the factors."""
        if self.adjustments.body and self._body >= 0:
            self._now["mat_rgba"][self._body, :3] = channels(self.adjustments.body)
        super()._colour_materials()

    def _repaints_agent(self) -> bool:
        return bool(self.adjustments.body) or super()._repaints_agent()

    @property
    def _groups(self) -> set[str]:
        """The parts of the world that are changed."""
        return super()._groups | ({"agent"} if self.adjustments.body else set())

    def _coats_wanted(self) -> Coats:
        """Colours that were chosen by hand for floor, sky and the robot's body, below factors."""
        chosen, fits, found = self.adjustments, self.fits, super()._coats_wanted()
        grid, sky, arm, table = map(self.find, ("grid", "skybox", ROBOT_BODY, ROBOT_FLOOR))
        coats: Coats = {}
        if chosen.floor and fits["floor"]:
            on_table = table >= 0
            paint = _flat if on_table else _checker
            coats[table if on_table else grid] = [(paint, channels(chosen.floor), ALL_SIDES)]
        if chosen.body and arm >= 0:
            coats[arm] = [(_flat, channels(chosen.body), ALL_SIDES)]
        if chosen.sky and fits["sky"]:
            faces = self._sides("skybox")
            coats[sky] = [(self._starry, channels(chosen.sky), faces)]
            found[sky] = found.get(sky, [])[-1:] if "background" in self._groups else []
        return {index: coats.get(index, []) + found.get(index, []) for index in {*coats, *found}}

    def _starry(self, pixels: np.ndarray, color: Sequence[float], faces: Sequence[int]) -> None:
        fill_sky(pixels, color, faces)
        pixels.reshape(-1, 3)[self._stars] = 255


class Between:
    """Pictures between two decisions."""

    def __init__(self, wanted: Collection[int], size: int, found: Places, shown: Places) -> None:
        """Take the steps to draw after, and how camera and lights were found and are shown."""
        self.wanted, self.size, self.step = wanted, size, 0
        self.pictures: list[np.ndarray] = []
        axes, turned = (each["cam_xmat"].reshape(3, 3) for each in (found, shown))
        self._turn = axes.T @ turned
        self._moved = {name: shown[name] - found[name] for name in found if name != "cam_xmat"}

    def move(self, places: Places) -> None:
        """Move camera and lights in the same way, from where the simulator has them now."""
        places["cam_xmat"][...] = (places["cam_xmat"].reshape(3, 3) @ self._turn).ravel()
        for name, moved in self._moved.items():
            places[name] += moved


def _flat(pixels: np.ndarray, color: Sequence[float], faces: Any) -> None:
    pixels[:] = np.rint(255 * np.array(color))


def _checker(pixels: np.ndarray, color: Sequence[float], faces: Any) -> None:
    fill_checker(pixels, color, [min(1.0, channel + 0.1) for channel in color])
