"""Generated videos: loops in colour that never change."""

import numpy as np
import pytest

from svea.data.procedural import FRAMES, SIDE, ProceduralClip, procedural_clip

KINDS = range(4)
# Mean colour of frame 77 of the first clip of each kind, as the first version made it.
GOLDEN = {
    0: (141.0, 135.7, 161.8),
    1: (55.9, 64.5, 64.6),
    2: (191.7, 101.0, 135.3),
    3: (192.5, 206.1, 184.0),
}


@pytest.fixture(scope="module")
def loops():
    """All frames of one clip of each kind."""
    clips = [ProceduralClip("video_hard", number) for number in KINDS]
    return [np.stack([clip.frame(k) for k in range(FRAMES)]) for clip in clips]


def change(first, second):
    return np.abs(first.astype(int) - second).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_colour_pictures_with_contrast(loops, kind):
    frames = loops[kind]
    assert frames.shape == (FRAMES, SIDE, SIDE, 3) and frames.dtype == np.uint8
    assert frames[0].std() > 10
    assert np.abs(frames[0].astype(int) - frames[0].mean(axis=2, keepdims=True)).mean() > 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_loop_is_seamless_and_never_rests(loops, kind):
    frames = loops[kind]
    steps = [change(frames[k], frames[k - 1]) for k in range(FRAMES)]  # k = 0: over the seam
    pairs = [steps[k] + steps[k - 1] for k in range(FRAMES)]  # half pixels move at every second
    assert pairs[0] < 2 * np.median(pairs) and pairs[1] < 2 * np.median(pairs)
    assert min(pairs) > 0.1
    assert change(frames[0], frames[FRAMES // 3]) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_a_function_of_set_clip_and_number(loops, kind):
    again = ProceduralClip("video_hard", kind)
    for index in (200, 3, 77):  # in any order
        np.testing.assert_array_equal(again.frame(index), loops[kind][index])
    np.testing.assert_array_equal(again.frame(FRAMES + 5), loops[kind][5])
    assert change(ProceduralClip("video_easy", kind).frame(3), loops[kind][3]) > 5
    assert change(ProceduralClip("video_hard", kind + 4).frame(3), loops[kind][3]) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_pictures_of_this_version_never_change(loops, kind):
    """A result names the generator's version: other pictures need another number."""
    assert loops[kind][77].mean(axis=(0, 1)) == pytest.approx(GOLDEN[kind], abs=0.5)


def test_showing_a_frame_does_not_change_the_clip():
    clip = procedural_clip("video_hard", 2)
    first = clip.frame(0)
    kept = first.copy()
    first[:] = 0
    np.testing.assert_array_equal(clip.frame(0), kept)
    assert procedural_clip("video_hard", 2) is clip
