"""ImageBank: procedural pictures, folders with good and bad files, draws."""

import hashlib
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from augmented import seeded
from PIL import Image
from small_media import write_video
from torch import Tensor

from svea.augment import images
from svea.augment.images import TRIES, ImageBank, crop_sizes, resize_all
from svea.core.errors import UserError
from svea.data.decode import OVERLAY_SIDE as SIDE


def write_picture(path: Path, size: tuple[int, int] = (160, 120), seed: int = 0) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def test_procedural_pictures_are_the_same_for_a_seed_and_differ_between_seeds():
    first, second = ImageBank.procedural(8, seed=1), ImageBank.procedural(8, seed=1)
    other = ImageBank.procedural(8, seed=2)
    assert torch.equal(first.pictures, second.pictures)
    assert not torch.equal(first.pictures, other.pictures)
    assert first.pictures.shape == (8, 3, SIDE, SIDE) and first.pictures.dtype == torch.uint8
    what = f"8 procedural pictures (version 1, seed 1), side {SIDE}"
    assert first.record["sha256"] == hashlib.sha256(what.encode()).hexdigest()


def test_procedural_pictures_have_natural_statistics():
    """Photographs: amplitude falls about as 1/f, mid brightness, less colour than brightness."""
    pictures = ImageBank.procedural(32).pictures.double()
    grey = pictures.mean(1)
    assert 90 < grey.mean() < 150
    assert 30 < grey.std((1, 2)).mean() < 70
    assert 10 < (pictures - grey[:, None]).std() < grey.std()
    assert -1.6 < _slope(grey) < -0.9
    assert len({picture.numpy().tobytes() for picture in pictures}) == 32


def _slope(grey: Tensor) -> float:
    """The exponent of the mean amplitude spectrum between 2 and 45 cycles per picture."""
    amplitude = torch.fft.rfft2(grey - grey.mean((1, 2), keepdim=True)).abs().mean(0).numpy()
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE))
    band = (frequency > 2 / SIDE) & (frequency < 45 / SIDE)
    return np.polyfit(np.log(frequency[band]), np.log(amplitude[band]), 1)[0]


# --- folders --------------------------------------------------------------------------------------


def test_a_folder_is_read_with_its_subfolders_in_a_fixed_order(tmp_path):
    square = write_picture(tmp_path / "a" / "first.png", (SIDE, SIDE))
    write_picture(tmp_path / "b" / "deep" / "second.JPG", seed=1)
    (tmp_path / "notes.txt").write_text("not a picture")
    bank = ImageBank.folder(tmp_path)
    assert bank.pictures.shape == (2, 3, SIDE, SIDE) and bank.skipped == 0
    assert (bank.record["source"], bank.record["count"]) == (tmp_path.name, 2)
    assert torch.equal(bank.pictures[0], torch.from_numpy(square).permute(2, 0, 1))
    assert torch.equal(bank.pictures, ImageBank.folder(tmp_path).pictures)


def test_grey_transparent_and_palette_pictures_become_rgb(tmp_path):
    for mode in ("L", "RGBA", "P", "1", "CMYK"):
        name = f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        Image.new("RGB", (64, 64), "white").convert(mode).save(tmp_path / name)
    bank = ImageBank.folder(tmp_path)
    assert bank.pictures.shape == (5, 3, SIDE, SIDE) and bank.pictures.min() > 250


def test_damaged_and_tiny_pictures_are_skipped_and_counted(tmp_path):
    write_picture(tmp_path / "good.png")
    write_picture(tmp_path / "tiny.png", (31, 200))
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("hello")
    write_picture(tmp_path / "whole.png", seed=1)
    cut = (tmp_path / "whole.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(cut[: len(cut) // 2])
    (tmp_path / "noise.mp4").write_bytes(b"\0" * 1000)
    with pytest.warns(UserWarning, match="5 of 7"):
        bank = ImageBank.folder(tmp_path)
    assert len(bank.pictures) == 2 and bank.skipped == 5


def test_folders_without_a_picture_are_refused(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        ImageBank.folder(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"\.jpg.*\.mp4"):
        ImageBank.folder(tmp_path)
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(UserError, match="none of the 1 "):
        ImageBank.folder(tmp_path)
    with pytest.raises(UserError, match="places365_standard/train"):
        ImageBank.find(data_dir=tmp_path)


def test_large_folders_are_sampled_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MOST_PICTURES", 4)
    for index in range(12):
        Image.new("RGB", (64, 64), (20 * index,) * 3).save(tmp_path / f"{index:02}.png")
    levels = ImageBank.folder(tmp_path).pictures[:, 0, 0, 0].tolist()
    assert levels == [0, 60, 120, 180]


def test_agents_of_one_process_share_the_pictures_of_a_folder(tmp_path):
    write_picture(tmp_path / "a.png")
    first = ImageBank.folder(tmp_path)
    assert ImageBank.folder(tmp_path) is first
    write_picture(tmp_path / "a.png", seed=1)
    assert ImageBank.folder(tmp_path) is not first, "other content"
    assert ImageBank.procedural(4) is ImageBank.procedural(4)


def test_the_hash_tells_at_which_size_pictures_are_held(tmp_path, monkeypatch):
    write_picture(tmp_path / "a.png")
    banks = ImageBank.folder(tmp_path), ImageBank.procedural(3)
    monkeypatch.setattr(images, "OVERLAY_SIDE", 128)
    images._procedural.cache_clear()
    others = ImageBank.folder(tmp_path), ImageBank.procedural(3)
    images._procedural.cache_clear()
    for bank, other in zip(banks, others, strict=True):
        assert bank.record["side"] == 256 and bank.record["sha256"] != other.record["sha256"]


def test_videos_give_their_key_frames(tmp_path):
    ramp = np.arange(0, 200, 10, np.uint8)[:, None, None, None]
    write_video(tmp_path / "ramp.mp4", np.broadcast_to(ramp, (20, 64, 96, 3)))
    bank = ImageBank.folder(tmp_path)
    assert len(bank.pictures) >= 1
    assert bank.pictures[0].float().mean() < 20  # the first frame is black


# --- which folder ---------------------------------------------------------------------------------


def test_find_prefers_overlay_dir_then_data_dir_then_the_environment(tmp_path, monkeypatch):
    for place in ("overlay", "data/photos", "variable/places365_standard/val/abbey"):
        write_picture(tmp_path / place / "picture.png")
    write_picture(tmp_path / "variable/photos/picture.png")
    monkeypatch.setenv("SVEA_DATA", str(tmp_path / "variable"))
    made = ImageBank.procedural(1)
    monkeypatch.setattr(images, "_procedural", lambda count, seed, device: made)
    overlay, data = tmp_path / "overlay", tmp_path / "data"
    assert ImageBank.find(overlay, data).record["source"] == "overlay"
    assert ImageBank.find(None, data).record["source"] == "photos"
    assert ImageBank.find().record["source"] == "places365_standard/val"
    assert ImageBank.find("procedural", data) is made
    monkeypatch.delenv("SVEA_DATA")
    assert ImageBank.find() is made


@pytest.mark.skipif("SVEA_DATA" not in os.environ, reason="SVEA_DATA is not set")
def test_real_photographs_load():
    bank = ImageBank.find()
    assert len(bank.pictures) > 100 and bank.skipped == 0
    assert 1.0 < -_slope(bank.pictures.double().mean(1)) < 1.6


# --- draws ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank() -> ImageBank:
    return ImageBank.procedural(8)


def test_draws_are_pictures_in_range_and_follow_the_generator(bank):
    first = bank.draw(16, 50, 84, seeded(0))
    assert first.shape == (16, 3, 50, 84) and first.dtype == torch.float32
    assert first.min() >= 0 and first.max() <= 1
    assert torch.equal(first, bank.draw(16, 50, 84, seeded(0)))
    assert not torch.equal(first, bank.draw(16, 50, 84, seeded(1)))
    assert len({picture.numpy().tobytes() for picture in first}) == 16


def test_draws_are_the_references_pixels(bank):
    """Pillow crops, resizes and mirrors, as torchvision asks it to; both ways agree with it."""
    crops = bank.crops(64, seeded(3))
    expected = []
    for chosen, top, left, tall, wide, mirrored in zip(*map(Tensor.tolist, crops), strict=True):
        picture = Image.fromarray(bank.pictures[chosen].permute(1, 2, 0).numpy())
        piece = picture.crop((left, top, left + wide, top + tall))
        small = piece.resize((84, 60), Image.Resampling.BILINEAR)
        expected.append(np.asarray(small)[:, :: -1 if mirrored else 1].transpose(2, 0, 1))
    wanted = torch.from_numpy(np.stack(expected)).int()
    drawn = (bank.draw(64, 60, 84, seeded(3)) * 255).round().int()
    at_once = (resize_all(bank.pictures, crops, 60, 84) * 255).round().int()
    assert (drawn - wanted).abs().max() <= 1 and (at_once - wanted).abs().max() <= 1
    assert (drawn != wanted).float().mean() < 0.1  # how libraries round
    assert crops.mirrored.any() and not crops.mirrored.all()


def test_crops_cover_the_stated_area_and_all_of_the_picture(monkeypatch):
    """A picture of its own coordinates tells where every crop came from."""
    monkeypatch.setattr(images, "FLIP", 0)
    ramp = torch.arange(SIDE, dtype=torch.uint8)
    across, down = ramp.expand(SIDE, SIDE), ramp[:, None].expand(SIDE, SIDE)
    bank = ImageBank(torch.stack([across, down, torch.zeros_like(down)])[None])
    y = bank.draw(4000, 8, 8, seeded(0)) * 255
    # between the centres of pixels 1 and 6 lie 5 of 8 parts; edges flatten a little
    width = (y[:, 0, 4, 6] - y[:, 0, 4, 1]) / 5 * 8
    height = (y[:, 1, 6, 4] - y[:, 1, 1, 4]) / 5 * 8
    area, aspect = width * height / SIDE**2, width / height
    assert 0.075 < area.min() < 0.1 and 0.95 < area.max() < 1.03
    assert 0.73 < aspect.min() < 0.78 and 1.28 < aspect.max() < 1.37
    assert abs(area.median() - 0.48) < 0.03
    assert y[:, 0, 4, 0].min() < 8 and y[:, 0, 4, -1].max() > SIDE - 9


def test_crops_have_torchvisions_law():
    """Of 256 pixels: mean area .480, and .9 % as wide or as high as the picture (a plain loop)."""
    draws, side = torch.rand(2, TRIES, 100_000, generator=seeded(0)), 256
    tall, wide = crop_sizes(*draws, side)
    assert float((tall * wide).mean()) / side**2 == pytest.approx(0.480, abs=0.002)
    assert float(((tall == side) | (wide == side)).float().mean()) == pytest.approx(0.009, abs=1e-3)
    for sample in range(200):
        expected = side, side
        for a, q in draws[:, :, sample].T.tolist():
            pixels = side**2 * (0.08 + 0.92 * a)
            ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * q)
            size = round(math.sqrt(pixels / ratio)), round(math.sqrt(pixels * ratio))
            if max(size) <= side:
                expected = size
                break
        assert (int(tall[sample]), int(wide[sample])) == expected
    never = torch.ones(TRIES, 1)
    assert crop_sizes(never, never, side) == (side, side)
