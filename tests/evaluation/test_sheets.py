"""Contact sheets: what is drawn where."""

import numpy as np
import pytest
from PIL import Image

from svea.core.errors import RendererError, UserError
from svea.evaluation import sheets
from svea.evaluation.sheets import GAP, LABEL


@pytest.fixture
def grey_observations(monkeypatch):
    """Stand-ins for rendered observations, which need a simulator."""

    def observations(task: str, count: int, seed: int, size: int) -> np.ndarray:
        return np.full((count, 9, size, size), 0.25 if task == "one" else 0.75, np.float32)

    monkeypatch.setattr(sheets, "_observations", observations)


def test_sheet_has_a_row_for_each_augmentation_and_a_block_for_each_task(
    grey_observations, tmp_path
):
    out, rows = tmp_path / "new" / "sheet.png", ("none", "shift+cutout")
    sheets.augmentations(out, rows=rows, tasks=("one", "two"), samples=3)
    pixels = np.asarray(Image.open(out).convert("L"))
    head, side, block = 40, 84, 3 * (84 + GAP) + 3 * GAP
    assert pixels.shape == (head + 2 * (side + GAP) + GAP, LABEL + 2 * block)
    for row in range(2):
        for task, level in enumerate((64, 191)):
            for sample in range(3):
                top, left = head + row * (side + GAP), LABEL + task * block + sample * (side + GAP)
                cell = pixels[top : top + side, left : left + side]
                assert (cell == 0).any() == (row == 1)  # the black box of cutout
                assert set(np.unique(cell)) <= {0, level}


def test_the_full_sheet_draws_every_augmentation(grey_observations, tmp_path):
    from svea.augment import AUGMENTATIONS

    ours = {  # other tests may have registered some of their own
        name for name, one in AUGMENTATIONS.items() if one.function.__module__.startswith("svea.")
    }
    assert set(sheets.SHEET_ROWS) == {*ours, "none"}
    first, second, other = (
        sheets.augmentations(tmp_path / f"{number}.png", tasks=("one",), samples=2, seed=seed)
        for number, seed in enumerate((0, 0, 1))
    )
    assert first.read_bytes() == second.read_bytes() != other.read_bytes()


def test_a_drifting_overlay_is_shown_as_the_frames_of_a_stack(grey_observations, tmp_path):
    """The second frame is the first, moved; the fourth shows another picture."""
    out, rows = tmp_path / "a.png", ("overlay_drift",)
    sheets.augmentations(out, rows=rows, tasks=("one",), samples=4)
    pixels = np.asarray(Image.open(out).convert("L"), dtype=int)[40 : 40 + 84]
    cells = [pixels[:, LABEL + k * (84 + GAP) :][:, :84] for k in range(4)]

    def apart(one: np.ndarray, other: np.ndarray) -> float:
        """The least mean difference over all drifts of up to 6 pixels on each axis."""
        inner = one[6:-6, 6:-6]
        moved = (
            other[6 + y : 78 + y, 6 + x : 78 + x] for y, x in np.array(list(np.ndindex(13, 13))) - 6
        )
        return min(np.abs(inner - each).mean() for each in moved)

    assert apart(cells[0], cells[1]) < 1 and apart(cells[1], cells[2]) < 1
    assert apart(cells[0], cells[3]) > 3


def test_environments_have_a_row_for_each_mode(monkeypatch, tmp_path):
    asked = []

    def episodes(task, mode, count, seed, data_dir):
        asked.append((mode, task))
        return np.full((count, 9, 84, 84), len(asked) / 32)

    monkeypatch.setattr(sheets, "_episodes", episodes)
    out = sheets.environments(tmp_path / "sheet.png", samples=2)
    modes = list(dict.fromkeys(mode for mode, _ in asked))
    assert modes == list(sheets.SHEET_MODES) and len(asked) == 20
    pixels = np.asarray(Image.open(out).convert("L"))
    block = 2 * (84 + GAP) + 3 * GAP
    levels = [pixels[40 + r * (84 + GAP) + 9, LABEL + c * block + 9] for r, c in np.ndindex(10, 2)]
    assert levels == [round(255 * (k + 1) / 32) for k in range(20)]


def test_episodes_of_the_sheet_show_their_mode(monkeypatch):
    monkeypatch.delenv("SVEA_DATA", raising=False)
    try:
        plain = sheets._episodes("cartpole_balance", "train", 2, 0, None)
    except RendererError as error:
        pytest.skip(f"MuJoCo cannot draw here: {error}")
    other = sheets._episodes("cartpole_balance", "video_hard", 2, 0, None)
    assert plain.shape == other.shape == (2, 9, 84, 84)
    assert np.abs(plain - other).mean() > 0.1


def test_the_robots_sheet_shows_training_and_every_world(monkeypatch, tmp_path):
    asked = []

    def episodes(task, mode, count, seed, data_dir):
        asked.append((task, mode, [(seed + k) % 25 for k in range(count)]))
        return np.zeros((count, 9, 84, 84))

    monkeypatch.setattr(sheets, "_episodes", episodes)
    sheets.robot(tmp_path / "sheet.png", seed=3)
    for wanted in ("robot_reach", "robot_push"):
        assert [mode for task, mode, _ in asked if task == wanted] == ["train"] + ["test"] * 5
        worlds = [w for task, mode, each in asked if (task, mode) == (wanted, "test") for w in each]
        assert worlds == list(range(25))


def test_mistakes_are_refused(grey_observations, tmp_path):
    with pytest.raises(UserError, match=r"sheet\.pdf"):
        sheets.augmentations(tmp_path / "sheet.pdf", rows=("none",), samples=1)
    with pytest.raises(UserError, match="'video_easy'"):
        sheets.environments(tmp_path / "sheet.png", modes=("vido_easy",))
