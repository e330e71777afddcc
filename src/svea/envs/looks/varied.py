"""Factors applied: any mode, with one or more things of its world changed by a measured amount.

Without a change it is the mode it shows, pixel for pixel. Colours are changed in textures and
materials, lamps and camera where the simulator has put them, so most factors cost nothing per
picture; a video is put behind what MuJoCo's segmentation gives the task, which takes about 2 ms.
The video's clips are generated ones, the same on every machine; the episode draws one.
"""

from __future__ import annotations

import copy
import io
import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from svea.config.factors import Drawn, Variation, changing, draw
from svea.config.modes import check_variation
from svea.core.errors import UserError
from svea.core.seeds import seed_for
from svea.data import clips
from svea.envs.looks import Mode, Scene
from svea.envs.looks.colors import ColorMode, texture
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.pictures import PictureMode, color_matrix
from svea.envs.looks.videos import VideoMode, fitted

AGENT = ("self", "effector")
"""Materials of the suite's agents."""
TEXTURES = {
    "agent": ("skin", "arm"),
    "floor": ("grid", "floor", "table"),
    "background": ("skybox", "background", "wall"),
}
"""Textures by the part of the world they cover, of the suite and of the robot."""
GREY = 127.5
DAYLIGHT = 6500  # K: the factor's training value, where lamps keep their colour
WORLDS = "training worlds"  # purpose of the seed that draws an episode's world

Places = dict[str, np.ndarray]
Coat = tuple[Callable[[np.ndarray, Any, Sequence[int]], None], Any, Sequence[int]]
"""What paints a texture's pixels, with what, and on which sides of the sky's cube."""
Coats = dict[int, list[Coat]]
"""By texture, one over the other."""
ALL_SIDES = range(6)
OF_ONE = ("video.", "picture.drop", "picture.delay")
"""Factors that keep something from picture to picture, or need what the first camera sees."""


class VariedMode(PictureMode):
    """Shows a mode, or one of several drawn per episode, with factors at values of their own."""

    def __init__(
        self,
        task: str,
        bases: Sequence[Mode],
        variation: Drawn | None = None,
        *,
        name: str = "",
        shares: Sequence[float] = (1.0,),
    ) -> None:
        """Take what is shown and how often, and factors with values or ranges to draw from."""
        super().__init__(name or bases[0].name)
        self.bases, self.base, self._shares = bases, bases[0], shares
        self._task, self._drawn = task, check_variation(variation or {}, task, drawn=True)
        self.values: Variation = {}
        """Of the episode, as they were given or drawn."""
        self._changed: Variation = {}
        self._scene: Scene | None = None
        self._model: Any = None  # where one mode may be exchanged for another
        self._clips = clips.find("video_easy", None, clips.PROCEDURAL)
        self._fresh: Places = {}  # the visual part of the model as the task left it
        self._now: Places = {}  # what is changed in the scene,
        self._kept: Places = {}  # and a copy of how the mode left it
        self._painted: dict[int, np.ndarray] = {}  # own pixels of painted textures
        self._coats: Coats = {}  # what they are painted with
        self._found: Places = {}  # camera and lights as the simulator left them
        self._random = np.random.default_rng()  # of worlds, where `reset` has no seed
        self._begin_pictures(0)

    @property
    def provenance(self) -> dict[str, Any]:
        """That of the mode, under the name that can be typed again."""
        own = self.base.provenance | {"mode": self.name}
        if len(self.bases) > 1:
            own |= {"worlds": 1, "source": " + ".join(b.provenance["source"] for b in self.bases)}
        return own | video_provenance(self._drawn)

    @property
    def info(self) -> dict[str, Any]:
        """What the mode on show tells of the episode, and the factors that have a value."""
        shown = {"mode": self.base.name} if len(self.bases) > 1 else {}
        return self.base.info | shown | ({"variation": dict(self.values)} if self.values else {})

    @property
    def exchanges(self) -> bool:
        """Whether it may show another mode later."""
        return len(self.bases) > 1

    def prepare(self, model: Any, domain: str) -> None:
        """Remember the model's own textures, if other modes may be shown later."""
        self._model, self._domain = model, domain
        if self.exchanges:
            self._textures = [
                (int(model.tex_width[k]), int(model.tex_height[k]), texture(model, k).copy())
                for k in range(model.ntex)
            ]
        self.base.image_size = self.image_size
        self.base.prepare(model, domain)

    def choose(self, seed: int | None, options: dict[str, Any]) -> None:
        """Draw the episode's mode and values, or take those that `reset` is given."""
        given = options.get("variation")
        given = {} if given is None else check_variation(given, self._task)
        if seed is not None:
            self._random = np.random.default_rng(seed_for(seed, WORLDS))
        if len(self.bases) > 1:
            base = self.bases[self._random.choice(len(self.bases), p=self._shares)]
            if base is not self.base:
                self._exchange(base)
        self.values = draw(self._drawn, self._random) | given
        self._changed = changing(self.values)
        if self.pictures > 1 and (unfit := [n for n in self._changed if n.startswith(OF_ONE)]):
            raise UserError(
                f"{', '.join(unfit)} cannot be changed for an observation of {self.pictures} "
                "pictures; allowed: all other factors, or an observation of one picture."
            )
        self.base.choose(seed, options)

    def begin(self, scene: Scene | None, rng: np.random.Generator) -> None:
        """Change the scene as the mode does, then by the factors."""
        is_first, self._scene = self._scene is None, scene
        self._begin_pictures(int(copy.deepcopy(rng).integers(2**63)))
        if scene is not None:
            self._found = copied(places(scene))
            if is_first and self.exchanges:
                self._upload()
            self._unpaint()
            self._remove("head_")  # the environment has restored the rest
        self.base.begin(scene, rng)  # type: ignore[arg-type]
        self._keep_and_apply()

    def advance(self, scene: Scene) -> None:
        """Let the mode move on by a simulator step."""
        self.base.advance(scene)

    def update(self, scene: Scene | None) -> None:
        """Let the mode move on by a decision, without the changes of the last one."""
        if scene is not None:
            self._found = copied(places(scene))
        self._remove("light_d", "light_a", "light_s", "head_", "mat_")  # all that the model holds
        self.base.update(scene)  # type: ignore[arg-type]
        if isinstance(self.base, DistractingMode):  # it has painted the sky anew
            self._painted.pop(self.find("skybox"), None)
            self._coats.pop(self.find("skybox"), None)
        self._decision += 1
        self._frame += self._changed.get("video.speed", 1)
        self._keep_and_apply()

    def compose(self, picture: np.ndarray) -> np.ndarray:
        """The mode's picture, a video behind it, and what a camera and a line do to it."""
        shown = self.base.compose(picture)
        if isinstance(self.base, VideoMode) and self._repaints_agent():  # perhaps in green
            assert self._scene is not None
            seen = self._scene.renderer.foreground(len(picture))
            shown = np.where(seen[..., None], picture, shown)
        if not self._changed:
            return shown
        shown = self._behind(shown)
        shown = self._sensed(shown)
        return self._late(shown) if picture.shape[0] == self.image_size else shown

    # The scene -----------------------------------------------------------------------------------

    def _exchange(self, base: Mode) -> None:
        """Show another mode from here on, on a model that looks as it was compiled."""
        base.image_size = self.image_size
        if self._model is not None:
            self._remove()
            self._restore()
            base.prepare(self._model, self._domain)
            self._upload()
        self.base = base

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

    def _keep_and_apply(self) -> None:
        if self._scene is None:
            return
        model = self._scene.model
        head = model.vis.headlight
        lights = {"light_diffuse": model.light_diffuse, "light_ambient": model.light_ambient,
                  "light_specular": model.light_specular, "head_diffuse": head.diffuse,
                  "head_ambient": head.ambient, "head_specular": head.specular}  # fmt: skip
        self._now = lights | places(self._scene) | {"mat_rgba": model.mat_rgba}
        self._kept = copied(self._now)
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
        if "agent" in self._groups:
            self._colour_materials()
        if "light" in self._groups:
            self._light()
        if "camera" in self._groups:
            self._film()
        self._paint(self._coats_wanted())

    def _centre(self) -> np.ndarray:
        """What the camera and the lamps turn around: the agent."""
        assert self._scene is not None
        centres = self._scene.data.subtree_com
        return np.array(centres[min(1, len(centres) - 1)])

    def _light(self) -> None:
        """Strength and colour of the lamps and the headlight; where the lamps are."""
        value, now, kept = self._changed.get, self._now, self._kept
        gains = value("light.strength", 1.0) * whiteness(value("light.temperature", DAYLIGHT))
        for name in now:
            if name.startswith(("light_", "head_")) and not name.startswith("light_x"):
                now[name][...] = kept[name] * gains
        tilt, lean = value("light.tilt", 0.0), value("light.lean", 0.0)
        if tilt or lean:
            axes, centre = kept["cam_xmat"].reshape(3, 3), self._centre()
            turn = around(axes[:, 2], tilt) @ around(axes[:, 0], lean)
            now["light_xpos"][...] = (kept["light_xpos"] - centre) @ turn.T + centre
            now["light_xdir"][...] = kept["light_xdir"] @ turn.T

    def _film(self) -> None:
        """Move the camera around what it looks at, then away from it, aside, and turn it."""
        value, kept = self._changed.get, self._kept
        axes, place = kept["cam_xmat"].reshape(3, 3), kept["cam_xpos"]
        away = float(np.linalg.norm(place - self._centre()))  # as far as the agent
        yaw, height = value("camera.yaw", 0.0), value("camera.height", 0.0)
        if yaw or height:
            target = place - away * axes[:, 2]  # straight ahead
            axes = around(np.array([0.0, 0.0, 1.0]), yaw) @ around(axes[:, 0], -height) @ axes
            place = target + away * axes[:, 2]
        x, y = value("camera.shift_x", 0.0), value("camera.shift_y", 0.0)
        back = value("camera.distance", 1.0) - 1
        moved = away * (x * axes[:, 0] + y * axes[:, 1] + back * axes[:, 2])
        self._now["cam_xpos"][...] = place + moved
        roll = around(np.array([0.0, 0.0, 1.0]), value("camera.roll", 0.0))
        self._now["cam_xmat"][...] = (axes @ roll).ravel()

    # Colours -------------------------------------------------------------------------------------

    def _colour_materials(self) -> None:
        """Paint the agent's materials; they have one colour each, so contrast is about grey."""
        if not any(name.startswith("agent.") for name in self._changed):
            return
        materials = [k for name in AGENT if (k := self.find(name, "mat")) >= 0]
        change, contrast = part_colours(self._changed, "agent")
        colours = 255 * self._now["mat_rgba"][materials, :3]
        changed = colours @ change.T * contrast + GREY * (1 - contrast)
        self._now["mat_rgba"][materials, :3] = (changed / 255).clip(0, 1)

    @property
    def _groups(self) -> set[str]:
        """The parts of the world that are changed."""
        return {name.partition(".")[0] for name in self._changed}

    def _coats_wanted(self) -> Coats:
        """What each texture is to be painted with; where a mode has its screen, the video shows."""
        coats: Coats = defaultdict(list)
        if isinstance(self.base, ColorMode) and "camera" in self._groups:
            sky, faces = self.base.sky, self._sides("skybox")  # it has painted what it saw then
            coats[sky] = [(self.base.fill_sky, self.base.setting["skybox_rgb"], faces)]
        screens = {"video_easy": ["skybox"], "video_hard": ["skybox", "grid"]}
        for part, names in TEXTURES.items():
            own = {n: v for n, v in self._changed.items() if n.partition(".")[0] == part}
            for name in names if own else ():
                if (index := self.find(name)) >= 0 and name not in screens.get(self.base.name, []):
                    coats[index].append((recolour, own, self._sides(name)))
        return dict(coats)

    def _repaints_agent(self) -> bool:
        return "agent" in self._groups

    def _sides(self, name: str) -> Sequence[int]:
        """Those of a texture that can be seen, if it is the sky."""
        assert self._scene is not None
        return self._scene.renderer.visible_sky_faces() if name == "skybox" else ALL_SIDES

    def _paint(self, coats: Coats) -> None:
        """Paint textures, if they are not painted so already."""
        assert self._scene is not None
        if coats == self._coats:
            return
        self._unpaint()
        for index, several in coats.items():
            pixels = texture(self._scene.model, index)
            self._painted[index] = pixels.copy()
            for paint, color, sides in several:
                paint(pixels, color, sides)
                self._scene.renderer.upload_texture(index, sides)
        self._coats = coats

    def _unpaint(self) -> None:
        for index, pixels in self._painted.items():
            assert self._scene is not None
            texture(self._scene.model, index)[...] = pixels
            self._scene.renderer.upload_texture(index)
        self._painted, self._coats = {}, {}

    def find(self, name: str, kind: str = "tex") -> int:
        """The index of a texture, or of another kind of object; -1 without it."""
        model = self._model if self._scene is None else self._scene.model
        try:
            return int(getattr(model, kind)(name).id)
        except KeyError:
            return -1

    # The picture ---------------------------------------------------------------------------------

    def _begin_pictures(self, key: int) -> None:
        """Nothing was shown yet; the key seeds what is drawn only for pictures."""
        self._key, self._decision, self._frame = key, 0, 0.0
        self._shown: deque[tuple[int, np.ndarray]] = deque(maxlen=9)  # by decision, for the delay
        self._dropping: tuple[int, bool] = 0, False  # of the newest decision

    def _draws(self, stream: int) -> np.random.Generator:
        """Numbers of this decision: drawing a picture twice gives the same one."""
        return np.random.default_rng([self._key, stream, self._decision])

    def _behind(self, picture: np.ndarray) -> np.ndarray:
        """A video in the background, from the top of the picture down."""
        share, weight = (self._changed.get(f"video.{n}", 0.0) for n in ("share", "contrast"))
        if self._scene is None or not share or not weight:
            return picture
        frame = fitted(self._video_frame(picture), picture)
        here = ~self._scene.renderer.foreground(len(picture), self._sky_alone)
        here[round(share * len(here)) :] = False
        mixed = np.rint((1 - weight) * picture + weight * frame).astype(np.uint8)
        return np.where(here[..., None], mixed, picture)

    _sky_alone = False  # the video is in the sky, and not on the floor

    def _video_frame(self, picture: np.ndarray) -> np.ndarray:
        """The frame to show of the episode's clip."""
        return self._clips.open(self._key % len(self._clips)).frame(int(self._frame))

    def _sensed(self, shown: np.ndarray) -> np.ndarray:
        """What the camera makes of a picture: colours, blur, noise and compression."""
        value = self._changed.get
        if any(f"picture.{each}" in self._changed for each in COLOURS):
            change, contrast = part_colours(self._changed, "picture")
            shown = apply(change, contrast, shown.reshape(-1, 3)).reshape(shown.shape)
        if blur := value("picture.blur", 0.0):
            shown = blurred(shown, blur * len(shown) / self.image_size)
        if noise := value("picture.noise", 0.0):
            drawn = self._draws(0).standard_normal(shown.shape, np.float32)
            shown = to_bytes(shown + drawn * (255 * noise))
        if strength := value("picture.compression", 0.0):
            shown = compressed(shown, strength)
        return shown

    def _late(self, shown: np.ndarray) -> np.ndarray:
        """What has reached the agent by now: an earlier picture, or the last one again."""
        if self._shown and self._shown[-1][0] == self._decision:
            self._shown.pop()  # drawn again, after its look was changed by hand
        drop = self._changed.get("picture.drop", 0.0)
        if self._shown and drop and self._draws(1).random() < drop:
            shown = self._shown[-1][1]
        self._shown.append((self._decision, shown.copy()))
        delay = int(self._changed.get("picture.delay", 0))
        return self._shown[-1 - min(delay, len(self._shown) - 1)][1]


COLOURS = ("hue", "saturation", "brightness", "contrast")


def part_colours(values: Mapping[str, float], part: str) -> tuple[np.ndarray, float]:
    """What the factors of a part do to a colour's channels, as a matrix, and to their contrast."""
    hue, saturation, brightness, contrast = (
        values.get(f"{part}.{name}", usual)
        for name, usual in zip(COLOURS, (0.0, 1.0, 1.0, 1.0), strict=True)
    )
    return color_matrix(brightness, saturation, math.radians(hue)), contrast


def recolour(pixels: np.ndarray, values: Variation, sides: Sequence[int]) -> None:
    """Change the colours of a texture in place, of the sky on some sides."""
    part = next(iter(values)).partition(".")[0]
    change, contrast = part_colours(values, part)
    is_cube = pixels.shape[0] == 6 * pixels.shape[1]
    cube = pixels.reshape(6 if is_cube else 1, -1, pixels.shape[-1])
    for side in sides if is_cube else [0]:
        cube[side, :, :3] = apply(change, contrast, cube[side, :, :3])


def apply(change: np.ndarray, contrast: float, pixels: np.ndarray) -> np.ndarray:
    """Pixels `(N, 3)` with their colours changed; contrast is about mid-grey."""
    return to_bytes(pixels @ change.T * contrast + GREY * (1 - contrast))


def to_bytes(pixels: np.ndarray) -> np.ndarray:
    """Rounded, and cut off at both ends."""
    return np.rint(pixels.clip(0, 255)).astype(np.uint8)


def blurred(picture: np.ndarray, radius: float) -> np.ndarray:
    """A Gaussian blur."""
    from PIL import Image, ImageFilter

    return np.asarray(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


def compressed(picture: np.ndarray, strength: float) -> np.ndarray:
    """A picture after a JPEG of this strength, 0 to 100."""
    from PIL import Image

    stored = io.BytesIO()
    Image.fromarray(picture).save(stored, "JPEG", quality=max(1, round(100 - strength)))
    return np.asarray(Image.open(stored))


def whiteness(kelvin: float) -> np.ndarray:
    """What a lamp of a colour temperature gives of red, green and blue; daylight is 1, 1, 1.

    Helland's fit to black bodies (2012, https://tannerhelland.com/2012/09/18), divided by its own
    values at daylight.
    """
    return _helland(kelvin) / _helland(DAYLIGHT)


def _helland(kelvin: float) -> np.ndarray:
    hundreds = kelvin / 100
    if hundreds <= 66:
        red, green = 255.0, 99.47 * math.log(hundreds) - 161.12
        blue = 138.52 * math.log(hundreds - 10) - 305.04
    else:
        red, green = 329.7 * (hundreds - 60) ** -0.1332, 288.12 * (hundreds - 60) ** -0.0755
        blue = 255.0
    return np.clip([red, green, blue], 0, 255)


def video_provenance(variation: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of its pictures where factors show a video; nothing where they do not."""
    shows = any(name.startswith("video.") for name in variation)
    return clips.find("video_easy", None, clips.PROCEDURAL).provenance if shows else {}


def varied(mode: Mode, task: str, options: Mapping[str, Any] | None) -> Mode:
    """The mode to show after a `reset` with these options: itself, if nothing is to be varied."""
    if isinstance(mode, VariedMode) or not options or options.get("variation") is None:
        return mode
    look = VariedMode(task, [mode])
    look.image_size, look.pictures = mode.image_size, mode.pictures
    return look


def copied(arrays: Places) -> Places:
    """Copies of arrays by name."""
    return {name: array.copy() for name, array in arrays.items()}


def places(scene: Scene) -> Places:
    """Where the camera and the lights are: the simulator sets it in every step."""
    data, camera = scene.data, scene.camera
    return {"cam_xpos": data.cam_xpos[camera], "cam_xmat": data.cam_xmat[camera],
            "light_xpos": data.light_xpos, "light_xdir": data.light_xdir}  # fmt: skip


def around(axis: np.ndarray, degrees: float) -> np.ndarray:
    """The rotation about an axis."""
    x, y, z = axis
    angle = math.radians(degrees)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + math.sin(angle) * cross + (1 - math.cos(angle)) * cross @ cross
