"""Pictures and videos of an agent at work."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from svea.envs import make_env
from svea.errors import StorageError
from svea.evaluation import agent_policy, evaluation_seeds
from svea.export import load_agent, load_config

STRIP = 6  # pictures in the strip of sample frames


def record_episode(
    run: Path, mode: str, *, seed: int = 0, device: str = "cpu", data_dir: str | None = None
) -> Path | None:
    """Play an evaluation's first episode in a mode; write media/MODE.mp4 and media/MODE.png."""
    config, agent = load_config(run), load_agent(run, device=device)
    policy = agent_policy(agent, config)
    arguments = config.environment | {"mode": mode, "render_size": 240}
    if data_dir:
        arguments["data_dir"] = data_dir
    environment = make_env(**arguments)
    try:
        observation, _ = environment.reset(seed=evaluation_seeds(seed, 1)[0])
        pictures, done = [environment.render()], False
        while not done:
            action = policy(observation[None])[0]
            observation, _, terminated, truncated, _ = environment.step(action)
            pictures.append(environment.render())
            done = terminated or truncated
        rate = environment.metadata.get("render_fps", 25)
    finally:
        environment.close()
    shown = [np.asarray(picture) for picture in pictures if picture is not None]
    if not shown:  # a user's environment need not draw itself
        return None
    folder = run / "media"
    try:
        folder.mkdir(exist_ok=True)
        write_video(folder / f"{mode}.mp4", shown, rate)
        chosen = np.linspace(0, len(shown) - 1, STRIP).astype(int)
        Image.fromarray(np.concatenate([shown[k] for k in chosen], axis=1)).save(
            folder / f"{mode}.png"
        )
    except OSError as error:
        raise StorageError(f"cannot write into {folder}: {error}") from error
    return folder / f"{mode}.mp4"


def write_video(path: Path, pictures: Iterable[NDArray[np.uint8]], rate: float) -> None:
    """H.264 that every browser plays, from pictures (H, W, 3)."""
    pictures = list(pictures)
    height, width, _ = pictures[0].shape
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=rate,
        codec="libx264",
        pix_fmt_out="yuv420p",
        macro_block_size=2,  # yuv420p halves the colour planes
        output_params=["-crf", "26", "-movflags", "+faststart"],
        ffmpeg_log_level="error",
    )
    writer.send(None)
    for picture in pictures:
        writer.send(np.ascontiguousarray(picture))
    writer.close()
