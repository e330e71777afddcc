"""Matrices of cameras, lights and mirrors, for several pictures at once and in double precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from svea.envs.rendering.scenes import DIRECTIONAL

_REVERSED = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, -0.5, 0.5], [0, 0, 0, 1]])
"""From OpenGL's depths, -1 to 1, to MuJoCo's, 1 (near) to 0 (far)."""


@dataclass
class Cameras:
    """Cameras: where they are, and matrices from the world to them and on to their pictures."""

    heads: np.ndarray
    eyes: np.ndarray
    clips: np.ndarray
    near: np.ndarray
    far: np.ndarray


def views(pairs: np.ndarray) -> Cameras:
    """What is seen from between each pair of cameras, on a square."""
    mean = {name: pairs[name].mean(1, dtype=float) for name in _AVERAGED}
    near, far, middle = (mean[f"frustum_{name}"] for name in ("near", "far", "center"))
    bottom, top = mean["frustum_bottom"], mean["frustum_top"]
    half = 0.5 * (top - bottom)
    eyes = look_at(mean["pos"], mean["forward"], mean["up"])
    clips = perspective(middle - half, middle + half, bottom, top, near, far) @ eyes
    return Cameras(mean["pos"], eyes, clips, near, far)


_AVERAGED = (
    *("pos", "forward", "up"),
    *(f"frustum_{name}" for name in ("center", "bottom", "top", "near", "far")),
)


def light_clips(lights: np.ndarray, reach: tuple[float, float], seen: Cameras) -> np.ndarray:
    """Matrices from the world to the lights' maps of shadows, one light for each picture."""
    along = lights["dir"].astype(float)
    eyes = look_at(lights["pos"].astype(float), along, _orthogonal(along))
    parallel = orthographic(reach[0], seen.near, seen.far)
    is_parallel = lights["type"] == DIRECTIONAL
    degrees = np.where(is_parallel, 90, np.minimum(2.0 * lights["cutoff"] * reach[1], 160))
    half = np.tan(degrees / 360 * np.pi) * seen.near
    cone = perspective(-half, half, -half, half, seen.near, seen.far)
    return np.where(is_parallel[:, None, None], parallel, cone) @ eyes


def look_at(position: np.ndarray, forward: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Matrices from the world to eyes that look along -z."""
    front = _unit(forward)
    side = _unit(_cross(front, up))
    made = np.zeros((len(front), 4, 4))
    made[:, 0, :3], made[:, 1, :3], made[:, 2, :3] = side, _unit(_cross(side, front)), -front
    made[:, :3, 3] = -(made[:, :3, :3] @ position[:, :, None])[:, :, 0]
    made[:, 3, 3] = 1
    return made


def perspective(
    left: np.ndarray,
    right: np.ndarray,
    bottom: np.ndarray,
    top: np.ndarray,
    near: np.ndarray,
    far: np.ndarray,
) -> np.ndarray:
    """OpenGL's frustum, with MuJoCo's depths."""
    made = np.zeros((len(near), 4, 4))
    made[:, 0, 0], made[:, 0, 2] = 2 * near / (right - left), (right + left) / (right - left)
    made[:, 1, 1], made[:, 1, 2] = 2 * near / (top - bottom), (top + bottom) / (top - bottom)
    made[:, 2, 2], made[:, 2, 3] = -(far + near) / (far - near), -2 * far * near / (far - near)
    made[:, 3, 2] = -1
    return _REVERSED @ made


def orthographic(half: float, near: np.ndarray, far: np.ndarray) -> np.ndarray:
    """OpenGL's parallel projection of a square, with MuJoCo's depths."""
    made = np.zeros((len(near), 4, 4))
    made[:, 0, 0] = made[:, 1, 1] = 1 / half
    made[:, 2, 2], made[:, 2, 3] = -2 / (far - near), -(far + near) / (far - near)
    made[:, 3, 3] = 1
    return _REVERSED @ made


def mirrors(position: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Matrices that mirror the world in planes."""
    made = np.zeros((len(normal), 4, 4))
    made[:, :3, :3] = np.eye(3) - 2 * normal[:, :, None] * normal[:, None]
    made[:, :3, 3] = 2 * normal * (normal * position).sum(1, keepdims=True)
    made[:, 3, 3] = 1
    return made


def _orthogonal(vectors: np.ndarray) -> np.ndarray:
    """Some vectors at right angles, as MuJoCo chooses them."""
    first = _cross(vectors, np.array([[-1.0, 0, 0]]))
    second = _cross(vectors, np.array([[0, 1.0, 0]]))
    return _unit(np.where((first**2).sum(1, keepdims=True) > 0.01, first, second))


def _cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """numpy.cross takes ten times longer."""
    a, b = one[:, [1, 2, 0]], one[:, [2, 0, 1]]
    return a * other[:, [2, 0, 1]] - b * other[:, [1, 2, 0]]


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.sqrt((vectors**2).sum(1, keepdims=True))
