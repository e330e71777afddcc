"""Videos of an agent: they show the episode that was played, with its return and Q-value."""

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image
from tiny_runs import tiny
from toy import LENGTH, Toy

from svea.core.errors import StorageError, UserError, WorkerError
from svea.core.seeds import evaluation_seeds
from svea.evaluation.film import Recording, grid, record, record_episode, watch, write_video
from svea.runs.load import load_agent, load_config
from svea.training import train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("media") / "run", decisions=15))


@pytest.mark.parametrize("number", [0, 1])
def test_a_recording_is_an_episode_of_the_evaluation(run: Path, number: int) -> None:
    agent = load_agent(run)
    played = record(agent, load_config(run), "train", seed=4, number=number)
    environment, total = Toy(), 0.0
    observation, _ = environment.reset(seed=evaluation_seeds(4, 2)[number])
    for step in range(LENGTH):
        np.testing.assert_array_equal(played.observations[step], observation)
        assert bright_column(played.pictures[step]) == pytest.approx(
            bright_column(environment.render()), abs=0.02
        )
        assert played.totals[step] == pytest.approx(total)
        action = agent.act(observation)
        np.testing.assert_allclose(played.actions[step], action, atol=1e-6)
        q = agent.q_value(torch.as_tensor(observation)[None], torch.as_tensor(action)[None])
        assert played.q[step] == pytest.approx(float(q), abs=1e-5)
        observation, reward, *_ = environment.step(action)
        total += reward
    assert len(played.totals) == LENGTH and played.rate == 10


def bright_column(picture: np.ndarray) -> float:
    """Where the toy's column stands, as a share of the picture's width."""
    return float(np.mean(np.nonzero(picture[len(picture) // 2, :, 0] > 150)[0] + 0.5)) / len(
        picture
    )


def recording(length: int, mode: str = "train", side: int = 40) -> Recording:
    """A recording whose picture at decision k has the brightness 10 k."""
    pictures = [np.full((side, side, 3), 10 * k, np.uint8) for k in range(length)]
    totals = [float(k) for k in range(length)]
    return Recording(mode, pictures=pictures, totals=totals, q=[0.0] * length)


def test_a_grid_places_its_takes_and_holds_the_last_picture_of_the_short_ones() -> None:
    frames = list(grid([recording(3), recording(6), recording(2)]))
    assert len(frames) == 6
    height, width = 40 + 2 * 16, 40  # a bar of text above and one below
    assert frames[0].shape == (2 * height, 2 * width, 3)
    for decision, frame in enumerate(frames):
        seen = [frame[y, x, 0] for y, x in ((36, 20), (36, 60), (36 + height, 20))]
        assert seen == [10 * min(decision, last) for last in (2, 5, 1)]
        assert not frame[height:, width:].any(), "the fourth place stays empty"


def test_return_and_q_are_drawn_in() -> None:
    first, second = list(grid([recording(2)]))
    below = np.s_[-16:]
    assert first[below].max() > 200, "there is text"
    assert (first[below] != second[below]).any(), "and it changes with the return"


def test_a_long_title_fits() -> None:
    modes = ("train", "rotate_shift_unpaired_hard and another mode")
    bars = [next(iter(grid([recording(1, mode, 240)])))[:24] for mode in modes]
    assert (bars[0] != bars[1]).any()
    assert all(bar.max() > 150 for bar in bars)
    assert all(bar[:, [0, 1, -2, -1]].max() < 30 for bar in bars), "nothing is cut off"


def test_a_video_has_every_decision_and_the_gif_its_colours(run: Path, tmp_path: Path) -> None:
    problems: list[str] = []
    out = tmp_path / "new" / "film.mp4"
    film, gif = watch(
        run, ["train", "color_hard"], out, gif=True, on_problem=lambda m, error: problems.append(m)
    )
    assert problems == ["color_hard"]
    assert imageio_ffmpeg.count_frames_and_secs(str(film))[0] == LENGTH
    with Image.open(gif) as picture:
        assert picture.n_frames == LENGTH and picture.info["loop"] == 0
        frames = [np.asarray((picture.seek(k), picture.convert("RGB"))[1]) for k in (0, 9)]
    assert all(frame.max() > 200 for frame in frames) and (frames[0] != frames[1]).any()


def test_a_video_may_show_the_beginning_and_in_slow_motion(run: Path, tmp_path: Path) -> None:
    [film] = watch(run, ["train"], tmp_path / "a.mp4", seconds=LENGTH / 20, fps=5, on_problem=print)
    frames = round(LENGTH / 2)  # of ten a second
    shown = imageio_ffmpeg.count_frames_and_secs(str(film))
    assert shown == (frames, pytest.approx(frames / 5, abs=0.01))


@pytest.mark.parametrize(
    ("out", "options", "named"),
    [
        *(("a.mp4", {"fps": fps}, "fps") for fps in (-1, 1000, float("nan"))),
        ("a.mp4", {"seconds": -1}, "seconds"), ("a.mp4", {"size": 8}, "size"),
        ("a.avi", {}, "mp4"), ("a.mp4", {"modes": ["video_easy"]}, "toy:make"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(run, tmp_path, out, options, named):
    with pytest.raises(UserError, match=named):
        watch(run, out=tmp_path / out, on_problem=print, **{"modes": ["train"]} | options)


def test_a_video_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        write_video(tmp_path / "file" / "film.mp4", [np.zeros((16, 16, 3), np.uint8)], 10)


def test_one_mode_is_recorded_with_a_strip_of_frames(run: Path) -> None:
    path = record_episode(run, "train")
    assert path == run / "media" / "train.mp4"
    assert imageio_ffmpeg.count_frames_and_secs(str(path))[0] == LENGTH
    with Image.open(path.with_suffix(".png")) as strip:
        assert strip.size == (6 * 240, 240)


def test_another_function_and_a_look_can_be_watched(run: Path) -> None:
    agent, config = load_agent(run), load_config(run)
    seen = record(agent, config, "own_looks:NightMode", task="toy:make_terminating")
    assert seen.mode == "toy:make_terminating+own_looks:NightMode"
    assert len(seen.pictures) == 4
    with pytest.raises(WorkerError, match=r"toy:make_broken .*the toy broke \(\S*toy.py, line"):
        record(agent, config, "train", task="toy:make_broken")


def test_a_masker_shows_next_to_every_picture_and_below_the_strip(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", decisions=12, mask="madi"))
    agent = load_agent(run)
    with torch.no_grad():  # keeps what is bright
        first, second, last = (agent.masker.layers[k] for k in (0, 2, 4))
        for parameter in agent.masker.parameters():
            parameter.zero_()
        first.weight[0, :, 1, 1] = second.weight[0, 0, 1, 1] = last.weight[0, 0, 1, 1] = 10.0
        last.bias -= 500.0
    played = record(agent, load_config(run), "train", size=64)
    assert len(played.masks) == len(played.pictures) == LENGTH
    assert bright_column(played.masks[3]) == pytest.approx(
        bright_column(played.pictures[3]), abs=0.05
    )
    frame = next(iter(grid([played])))
    picture, mask = frame[16:-16, :64], frame[16:-16, 64:]
    assert picture.shape == mask.shape and set(np.unique(mask)) == {0, 255}
    path = record_episode(run, "train")
    assert path is not None
    with Image.open(path.with_suffix(".png")) as strip:
        assert strip.size == (6 * 240, 2 * 240)
