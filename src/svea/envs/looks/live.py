"""A look that can be changed while an episode runs: any mode, and adjustments on top of it.

The playground plays in it. Without adjustments it is the mode it shows, pixel for pixel: an episode
that begins in it has the pictures of the mode's own environment.

What can be changed by hand on top of a look: values with bounds, colours, clips by name.
"""

import copy
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from svea.core.errors import UserError, between, unknown_name
from svea.data import clips
from svea.data.clips import CLIP_SETS
from svea.envs.looks import Mode, Scene, writable_arrays
from svea.envs.looks.colors import ColorMode, fill_checker, fill_sky, texture
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.pictures import PictureMode
from svea.envs.looks.videos import GREEN, VideoMode, is_green, show_behind

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
    video_speed: Annotated[float, between(0, 4)] = 1.0  # frames per decision
    roll: Annotated[float, between(-180, 180)] = 0.0  # of the camera, in degrees
    shift_x: Annotated[float, between(-1, 1)] = 0.0
    """Of the camera to its right, as a share of its distance to the agent."""
    shift_y: Annotated[float, between(-1, 1)] = 0.0
    light: Annotated[float, between(0, 3)] = 1.0  # factor of all lights
    light_tilt: Annotated[float, between(-90, 90)] = 0.0
    """Turns the lights around the agent, to its left or right in the picture, in degrees."""
    noise: Annotated[float, between(0, 0.5)] = 0.0
    """Standard deviation of Gaussian noise on every pixel, of 1."""
    drop: Annotated[float, between(0, 0.95)] = 0.0
    """How often the agent sees the last frame again instead of the new one."""


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
Places = dict[str, np.ndarray]
Coat = tuple[Callable[..., None], Sequence[float], Sequence[int]]
"""What paints a texture, in which colour, and on which sides of the sky's cube."""
_ALL = range(6)


class LiveMode(PictureMode):
    """Shows a mode, `base`, which can be exchanged at any time, with adjustments on top."""

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__("live")
        self.base = Mode("train")
        self.clips = find_clips(data_dir)
        self.adjustments = NEUTRAL
        self._model: Any = None
        self._scene: Scene | None = None
        self._rng: np.random.Generator | None = None
        self._seed: int | None = None
        self._fresh: Places = {}  # the visual part of the model at the beginning of the episode
        self._now: Places = {}  # what adjustments change in the scene,
        self._kept: Places = {}  # and a copy of how the mode left it
        self._painted: dict[int, np.ndarray] = {}  # own pixels of painted textures
        self._coats: dict[int, Coat] = {}  # what they are painted with
        self._screen = 0
        self._frame = 0.0
        self._last: np.ndarray | None = None
        self._found: Places = {}  # camera and lights as the simulator left them
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
        """Which adjustments change anything here."""
        if self._model is None:  # a user's environment: there is a picture alone
            return dict.fromkeys(("body", "floor", "sky", "video", "camera", "light"), False)
        sky, grid = self._find("skybox"), self._find("grid")
        own_sky = sky >= 0 and self._model.tex_width[sky] == self._textures[sky][0]
        still = not isinstance(self.base, DistractingMode)  # its sky is a video by itself
        return {
            "body": self._body >= 0 or self._find(ROBOT_BODY) >= 0,
            "floor": grid >= 0 or self._find(ROBOT_FLOOR) >= 0,
            "sky": bool(own_sky and still),
            "video": sky >= 0 and grid >= 0 and still,
            "camera": True,
            "light": True,
        }

    def replace_base(self, base: Mode) -> None:
        """Show another mode from here on, also in the middle of an episode."""
        base.image_size = self.image_size
        if self._model is not None:
            self._remove()
            self._restore()
            base.prepare(self._model, self._domain)
            self._upload()
        self.base = base
        if self._rng is not None:  # an episode runs
            base.choose(self._seed, {})
            base.begin(self._scene, copy.deepcopy(self._rng))  # type: ignore[arg-type]
            self._keep_and_apply()

    def _restore(self) -> None:
        """Make the model look as it was compiled, or as the task left it at reset."""
        import mujoco

        self._painted, self._coats = {}, {}
        for index, (width, height, pixels) in enumerate(self._textures):
            self._model.tex_width[index], self._model.tex_height[index] = width, height
            texture(self._model, index)[...] = pixels
        for name, values in self._fresh.items():
            getattr(self._model, name)[...] = values
        if self._scene is not None:
            mujoco.mj_camlight(self._model, self._scene.data)

    def _upload(self) -> None:
        """Send all textures after another mode has prepared them."""
        if self._scene is not None:
            for index in range(self._model.ntex):
                self._scene.renderer.upload_texture(index)

    def adjust(self, adjustments: Adjustments) -> None:
        """Apply adjustments in place of the last ones; raises on an unknown clip."""
        if adjustments.video and adjustments.video not in self.clips:
            raise unknown_name("clip", adjustments.video, self.clips)
        self._remove()
        self.adjustments = adjustments
        self._apply()

    def prepare(self, model: Any, domain: str) -> None:
        """Remember the model's own textures, to be able to show other modes later."""
        self._model, self._domain = model, domain
        self._textures = [
            (int(model.tex_width[k]), int(model.tex_height[k]), texture(model, k).copy())
            for k in range(model.ntex)
        ]
        self._body = self._find("self", "mat")
        sky = self._find("skybox")
        self._stars = np.flatnonzero(texture(model, sky)[..., 0] == 255) if sky >= 0 else None
        self.base.image_size = self.image_size
        self.base.prepare(model, domain)

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Take the seed, which chooses the mode's world."""
        self._seed = seed
        self.base.choose(seed, options)

    def begin(self, scene: Scene | None, rng: np.random.Generator) -> None:
        """Change the scene as the mode does, then adjust it."""
        is_first, self._scene, self._rng = self._scene is None, scene, copy.deepcopy(rng)
        self._draws = np.random.default_rng(self._seed)  # of noise and dropped frames
        self._frame, self._last, self._between = 0.0, None, None
        if scene is not None:
            self._found = _copied(_places(scene))
            if is_first:
                self._upload()
            self._unpaint()
            self._remove("head_")  # the environment has restored the rest
            arrays = writable_arrays(scene.model)
            self._fresh = _copied({k: arrays[k] for k in arrays if k.startswith(_VISUAL)})
        self.base.begin(scene, rng)  # type: ignore[arg-type]
        self._keep_and_apply()

    def advance(self, scene: Scene) -> None:
        """Let the mode move on by a simulator step; draw it, if it is one that was asked for."""
        self.base.advance(scene)
        if self._between is not None and scene is not None:
            self._between.step += 1
            if self._between.step in self._between.wanted:
                places = _places(scene)
                kept = _copied(places)
                self._between.move(places)
                picture = self.compose(scene.renderer.draw(self._between.size))
                self._between.pictures.append(np.array(picture))
                for name, values in kept.items():
                    places[name][...] = values

    def draw_between(self, steps: Collection[int], size: int) -> list[np.ndarray]:
        """Have pictures drawn after some simulator steps of the next decision, for people.

        Camera and lights stand in them as they stood to the simulator's own at the last decision.
        The agent's observations do not depend on them.
        """
        if self._scene is None:  # a user's environment: there is a picture alone
            return []
        self._between = Between(steps, size, self._found, _places(self._scene))
        return self._between.pictures

    def update(self, scene: Scene | None) -> None:
        """Let the mode move on by a decision, without the adjustments of the last one."""
        self._between = None
        if scene is not None:
            self._found = _copied(_places(scene))
        self._remove("light_d", "light_a", "light_s", "head_", "mat_")  # all that the model holds
        self.base.update(scene)  # type: ignore[arg-type]
        self._frame += self.adjustments.video_speed
        self._keep_and_apply()

    def compose(self, picture: np.ndarray) -> np.ndarray:
        """The mode's picture or the chosen clip behind it, then noise and dropped frames."""
        chosen, is_seen = self.adjustments, picture.shape[0] == self.image_size
        if self._shows_video:
            found, index = self.clips[chosen.video]
            sharp: dict[str, Any] = {"side": self.image_size, "smooth": False} if is_seen else {}
            frame = found.open(index, **sharp).frame(int(self._frame))
            shown = show_behind(picture, frame, self._screen)
        elif self._screen and isinstance(self.base, VideoMode):
            shown = show_behind(picture, self.base.frame(picture), self._screen)
        else:
            shown = self.base.compose(picture)
        if chosen.noise:
            noise = self._draws.standard_normal(shown.shape, np.float32) * (255 * chosen.noise)
            shown = np.rint((shown + noise).clip(0, 255)).astype(np.uint8)
        if is_seen:
            if self._last is not None and chosen.drop and self._draws.random() < chosen.drop:
                return self._last
            self._last = shown.copy()
        return shown

    def _keep_and_apply(self) -> None:
        if self._scene is None:
            return
        model = self._scene.model
        head = model.vis.headlight
        lights = {"light_diffuse": model.light_diffuse, "light_ambient": model.light_ambient,
                  "light_specular": model.light_specular, "head_diffuse": head.diffuse,
                  "head_ambient": head.ambient, "head_specular": head.specular}  # fmt: skip
        self._now = lights | _places(self._scene) | {"mat_rgba": model.mat_rgba}
        self._kept = _copied(self._now)
        self._apply()

    def _remove(self, *names: str) -> None:
        """Leave the scene, or what begins with these names, as the mode did."""
        for name, values in self._kept.items():
            if name.startswith(names or ""):
                self._now[name][...] = values

    def _apply(self) -> None:
        """Change the scene from what the mode left."""
        if self._scene is None or not self._kept:
            return
        chosen, now = self.adjustments, self._now
        if chosen.body and self._body >= 0:
            now["mat_rgba"][self._body, :3] = channels(chosen.body)
        for name in now:
            if name.startswith(("light_", "head_")) and not name.startswith("light_x"):
                now[name][...] = self._kept[name] * chosen.light
        axes = self._kept["cam_xmat"].reshape(3, 3)
        centre = self._scene.data.subtree_com[min(1, len(self._scene.data.subtree_com) - 1)]
        if chosen.light_tilt:
            turn = _around(axes[:, 2], math.radians(chosen.light_tilt))
            now["light_xpos"][...] = (self._kept["light_xpos"] - centre) @ turn.T + centre
            now["light_xdir"][...] = self._kept["light_xdir"] @ turn.T
        if chosen.roll or chosen.shift_x or chosen.shift_y:
            away = float(np.linalg.norm(self._kept["cam_xpos"] - centre))
            moved = away * (chosen.shift_x * axes[:, 0] + chosen.shift_y * axes[:, 1])
            now["cam_xpos"][...] = self._kept["cam_xpos"] + moved
            turned = axes @ _around(np.array([0.0, 0.0, 1.0]), math.radians(chosen.roll))
            now["cam_xmat"][...] = turned.ravel()
        self._paint()

    @property
    def _shows_video(self) -> bool:
        return bool(self.adjustments.video) and self.fits["video"]

    def _choose_screen(self) -> int:
        """Which colour stands for the video: green, or another that nothing is painted in."""
        chosen = self.adjustments
        if not (self._shows_video or isinstance(self.base, VideoMode)):
            return 0
        used = [channels(color) for color in (chosen.body, chosen.floor) if color]
        if used and not chosen.body and self._body >= 0:
            used.append(self._kept["mat_rgba"][self._body, :3].tolist())
        pixels = np.array([[[255 * channel for channel in color] for color in used]], np.uint8)
        keyed = (used and is_green(np.roll(pixels, -screen, axis=-1)).any() for screen in range(3))
        return next((screen for screen, bad in enumerate(keyed) if not bad), 0)

    def _paint(self) -> None:
        assert self._scene is not None
        self._screen = self._choose_screen()
        coats = self._choose_coats()
        if coats == self._coats:
            return
        self._unpaint()
        for index, (paint, color, faces) in coats.items():
            pixels = texture(self._model, index)
            self._painted[index] = pixels.copy()
            paint(pixels, color, faces)
            self._scene.renderer.upload_texture(index, faces)
        self._coats = coats

    def _choose_coats(self) -> dict[int, Coat]:
        """What floor, sky and the robot's body are painted in: colours, or the video's screen."""
        assert self._scene is not None
        chosen, fits, coats = self.adjustments, self.fits, dict[int, Coat]()
        grid, sky, arm, table = map(self._find, ("grid", "skybox", ROBOT_BODY, ROBOT_FLOOR))
        screen = tuple(np.roll(GREEN, self._screen) / 255)
        own = isinstance(self.base, VideoMode)  # it has painted a screen, which is green
        on_floor = (self._shows_video and chosen.video_on_floor) or self.base.name == "video_hard"
        if on_floor and not chosen.floor:
            coats[grid] = _flat, screen, _ALL
        elif chosen.floor and table >= 0:
            coats[table] = _flat, channels(chosen.floor), _ALL
        elif chosen.floor and fits["floor"]:
            coats[grid] = _checker, channels(chosen.floor), _ALL
        if chosen.body and arm >= 0:
            coats[arm] = _flat, channels(chosen.body), _ALL
        sky_color = channels(chosen.sky) if chosen.sky else None
        if sky_color is None and isinstance(self.base, ColorMode) and chosen.roll:
            sky_color = self.base.setting["skybox_rgb"]  # it has painted what it saw unrolled
        if self._shows_video or (own and self._screen):
            coats[sky] = _flat, screen, _ALL
        elif sky_color and fits["sky"]:
            coats[sky] = self._starry, sky_color, self._scene.renderer.visible_sky_faces()
        return coats

    def _starry(self, pixels: np.ndarray, color: Sequence[float], faces: Any) -> None:
        fill_sky(pixels, color, faces)
        pixels.reshape(-1, 3)[self._stars] = 255

    def _unpaint(self) -> None:
        for index, pixels in self._painted.items():
            texture(self._model, index)[...] = pixels
            if self._scene is not None:
                self._scene.renderer.upload_texture(index)
        self._painted, self._coats = {}, {}

    def _find(self, name: str, kind: str = "tex") -> int:
        """The index of a texture, or of another kind of object; -1 without it."""
        try:
            return int(getattr(self._model, kind)(name).id)
        except KeyError:
            return -1


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


def _copied(arrays: Places) -> Places:
    return {name: array.copy() for name, array in arrays.items()}


def _places(scene: Scene) -> Places:
    """Where the camera and the lights are: the simulator sets it in every step."""
    data, camera = scene.data, scene.camera
    return {"cam_xpos": data.cam_xpos[camera], "cam_xmat": data.cam_xmat[camera],
            "light_xpos": data.light_xpos, "light_xdir": data.light_xdir}  # fmt: skip


def _around(axis: np.ndarray, angle: float) -> np.ndarray:
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
