"""Generated videos and pictures: backgrounds of the video and distracting modes, and overlay's.

Every clip is a seamless loop of `FRAMES` colour frames and one of four kinds in turn: clouds (two
layers of 1/f noise that drift apart), textures (warped waves that flow), blobs (shaded discs on
closed orbits) and scenes (hills that scroll at three speeds). A clip is a function of its set and
number. Making one takes a few milliseconds; its frames are computed when they are shown, in 0.1 to
0.3 ms each, so a clip holds a quarter of a megabyte and not 12. A picture is a clip's first frame.
"""

import functools
from collections.abc import Callable

import numpy as np

from svea.data.decode import OVERLAY_SIDE, SIDE

FRAMES = 256
VERSION = 1  # part of every result's provenance: other pictures need another number

_KEPT = 128  # clips per process: 32 MB

Random = np.random.RandomState
Painter = Callable[[int], np.ndarray]  # frame number to `(side, side, 3)` uint8


class ProceduralClip:
    """One endless video."""

    def __init__(self, name: str, number: int, side: int = SIDE) -> None:
        """Make clip `number` of the set `name`; another side is another clip."""
        # RandomState, because its stream is frozen for good.
        random = Random([VERSION, number, *name.encode()])
        self._paint = _KINDS[number % len(_KINDS)](random, side)

    def __len__(self) -> int:
        return FRAMES

    def frame(self, index: int) -> np.ndarray:
        """Compute a frame, `(side, side, 3)` uint8; the clip repeats forever."""
        return self._paint(index % FRAMES)


@functools.lru_cache(_KEPT)
def procedural_clip(name: str, number: int) -> ProceduralClip:
    """Return clip `number` of the set `name`, made when it is first asked for."""
    return ProceduralClip(name, number)


def procedural_pictures(count: int, seed: int = 0, side: int = OVERLAY_SIDE) -> np.ndarray:
    """Make pictures, uint8 `(count, side, side, 3)`, a quarter of each kind.

    They share what photographs share: amplitude falling roughly as 1/f, and colours that vary less
    than brightness.
    """
    name = f"pictures {seed}"
    return np.stack([ProceduralClip(name, number, side).frame(0) for number in range(count)])


def _clouds(random: Random, side: int) -> Painter:
    """Two layers of coloured 1/f noise that drift in different directions."""
    base = 255 * (0.25 + 0.5 * _colours(random, 1)[0])  # in the middle, to clip little
    near = (0.5 * _coloured_noise(random, side, 1.2) + base).astype(np.int16)
    far = (0.5 * _coloured_noise(random, side, 1.7)).astype(np.int16)
    speeds = _speeds(random), _speeds(random)

    def paint(index: int) -> np.ndarray:
        mixed = _drift(near, speeds[0], index) + _drift(far, speeds[1], index)
        return mixed.clip(0, 255).astype(np.uint8)

    return paint


def _textures(random: Random, side: int) -> Painter:
    """Bent waves; their colours flow through a cyclic palette while they drift."""
    angle = np.arange(side) * (2 * np.pi / side)
    row, column = angle[:, None], angle
    waves = sum(
        np.sin(
            random.randint(-6, 7) * row + random.randint(1, 7) * column + _noise(random, side, 1.8)
        )
        for _ in range(2)
    )
    phase = ((waves + 0.5 * _noise(random, side, 1.4)) * 48).astype(np.int16).astype(np.uint8)
    dark, light = 0.5 * _colours(random, 2) + [[0.0], [0.5]]
    cycle = np.arange(256)[:, None] * (2 * np.pi / 256)
    weight = 0.5 + 0.5 * np.cos(cycle + 0.6 * random.randn(3))
    palette = np.zeros((256, 4), np.uint8)  # four bytes a colour: looked up as one number
    palette[:, :3] = _to_bytes(255 * (dark + (light - dark) * weight))
    packed = palette.view(np.uint32)[:, 0]
    speed, flow = _speeds(random), random.choice([-2, -1, 1, 2])

    def paint(index: int) -> np.ndarray:
        colour = _drift(phase, speed, index) + np.uint8(flow * index & 255)
        frame = packed.take(colour).view(np.uint8).reshape(side, side, 4)
        return np.ascontiguousarray(frame[..., :3])

    return paint


def _blobs(random: Random, side: int) -> Painter:
    """Discs, lit from the top left, that circle over a cloudy ground."""
    count = 8
    ground = _to_bytes(0.35 * _coloured_noise(random, side, 1.4) + 255 * _colours(random, 1)[0])
    radii = random.uniform(0.06, 0.2, count) * side
    centres = random.uniform(0.1, 0.9, (count, 2)) * side
    reach = random.uniform(0.1, 0.4, (count, 2)) * side
    turns = random.choice([-2, -1, 1, 2], (count, 2))
    starts = random.uniform(0, 2 * np.pi, (count, 2))
    discs = [
        _disc(radius, colour) for radius, colour in zip(radii, _colours(random, count), strict=True)
    ]

    def paint(index: int) -> np.ndarray:
        frame = ground.copy()
        places = centres + reach * np.sin(2 * np.pi * turns * index / FRAMES + starts)
        for (pixels, inside), (row, column) in zip(discs, np.rint(places).astype(int), strict=True):
            _stamp(frame, pixels, inside, row - len(pixels) // 2, column - len(pixels) // 2)
        return frame

    return paint


def _scenes(random: Random, side: int) -> Painter:
    """A sky and three ranges of hills: the nearer, the faster they pass."""
    colours = _colours(random, 4)
    rows = np.linspace(0, 1, side)[:, None, None]
    light = 0.4 + 0.6 * colours[0]
    sky = _to_bytes(255 * light * (0.7 + 0.3 * rows) + 0.25 * _coloured_noise(random, side, 1.6))
    direction = random.choice([-1, 1])
    layers = []
    for distance, colour in zip((3, 2, 1), colours[1:], strict=True):
        ridge = (0.85 - 0.16 * distance) * side + 7 * side / SIDE * _noise(random, side, 1.5)[0]
        hill = 255 * (colour * (4 - distance) + light * distance) / 4  # haze
        grain = 0.2 * _coloured_noise(random, side, 0.9)
        outside = np.where(np.arange(side)[:, None] < ridge, 255, 0).astype(np.uint8)
        outside = np.repeat(outside[..., None], 3, axis=2)
        speed = (0, direction * (4 - distance))
        layers.append((outside, _to_bytes(hill + grain) & ~outside, speed))

    def paint(index: int) -> np.ndarray:
        frame = _drift(sky, (0, direction), index)
        for outside, pixels, speed in layers:
            frame &= _drift(outside, speed, index)  # bitwise: ten times faster than choosing
            frame |= _drift(pixels, speed, index)
        return frame

    return paint


_KINDS: tuple[Callable[[Random, int], Painter], ...] = (_clouds, _textures, _blobs, _scenes)


def _noise(random: Random, side: int, power: float) -> np.ndarray:
    """Periodic noise with amplitude 1/f**power, mean 0 and deviation 1."""
    noise = np.fft.irfft2(np.fft.rfft2(random.randn(side, side)) / _decay(side, power))
    return noise / noise.std()


@functools.lru_cache(16)
def _decay(side: int, power: float) -> np.ndarray:
    """f**power for every wave of a picture; infinite for the mean."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    return frequency**power


def _coloured_noise(random: Random, side: int, power: float) -> np.ndarray:
    """Noise `(side, side, 3)` in levels: strong in brightness, weaker in two colours."""
    strength = random.uniform(50, 90) * np.array([1.0, 0.45, 0.35])
    axes = np.stack([np.ones(3), [1, 0, -1], [-0.5, 1, -0.5]])
    fields = np.stack([_noise(random, side, power) for _ in range(3)], axis=-1)
    return (fields * strength) @ axes


def _colours(random: Random, count: int) -> np.ndarray:
    """Colours `(count, 3)` in [0, 1] as photographs have them: any brightness, mostly muted."""
    tint = 0.16 * random.randn(count, 3)
    brightness = random.beta(1.6, 1.6, (count, 1))
    return (brightness + tint - tint.mean(axis=1, keepdims=True)).clip(0, 1)


def _speeds(random: Random) -> tuple[int, int]:
    """A speed down and across in half pixels per frame, so that every loop closes."""
    while True:
        down, across = random.randint(-3, 4, 2)
        if down or across:
            return int(down), int(across)


def _drift(field: np.ndarray, speed: tuple[int, int], index: int) -> np.ndarray:
    """Shift a periodic field by its speed times the frame number."""
    down, across = (half_pixels * index // 2 for half_pixels in speed)
    return np.roll(field, (down, across), (0, 1))


def _disc(radius: float, colour: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The pixels of a lit disc and which of them lie inside."""
    reach = int(radius) + 1
    across = np.arange(-reach, reach + 1) / radius
    light = (1 - 0.3 * (across + across[:, None])).clip(0.5, 1.4)
    return _to_bytes(255 * colour * light[..., None]), np.hypot(across, across[:, None]) < 1


def _stamp(frame: np.ndarray, pixels: np.ndarray, inside: np.ndarray, top: int, left: int) -> None:
    """Paint what lies inside onto the frame, cut off at its edges."""
    first_row, first_column = max(0, top), max(0, left)
    last_row = min(len(frame), top + len(pixels))
    last_column = min(len(frame), left + len(pixels))
    if first_row < last_row and first_column < last_column:
        part = (
            slice(first_row - top, last_row - top),
            slice(first_column - left, last_column - left),
        )
        target = frame[first_row:last_row, first_column:last_column]
        np.copyto(target, pixels[part], where=inside[part][..., None])


def _to_bytes(levels: np.ndarray) -> np.ndarray:
    return levels.clip(0, 255).round().astype(np.uint8)
