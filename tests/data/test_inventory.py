"""What is found in a data folder is what the modes and the image bank find."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from svea.core.errors import UserError
from svea.data import inventory
from svea.data.folders import DAVIS
from svea.envs.looks.distracting import DistractingMode
from svea.envs.looks.videos import VideoMode


def parts(root: Path) -> dict[str, inventory.Part]:
    return {part.name: part for part in inventory.inventory(root)}


class TestInventory:
    def test_counts_and_missing_names(self, folder):
        found = parts(folder)
        assert {name: part.summary for name, part in found.items()} == {
            "video_easy": "2 of 10 clips",
            "video_hard": "no clips",
            "distracting_cs": "1 of 60 clips",
            "overlay": "2 pictures",
        }
        assert found["video_easy"].missing == tuple(f"video{i}" for i in range(1, 9))
        assert found["video_hard"].missing == tuple(f"video{i}" for i in range(100))
        assert found["distracting_cs"].missing == DAVIS[1:]

    def test_it_agrees_with_the_modes(self, folder):
        found = parts(folder)
        easy = VideoMode("video_easy", folder).provenance
        assert (easy["clips"], tuple(easy["missing"])) == (2, found["video_easy"].missing)
        davis = DistractingMode(data_dir=folder, intensity=0.5).provenance
        assert davis["of"] == 60
        assert davis["clips"] == found["distracting_cs"].count
        with pytest.raises(UserError):
            VideoMode("video_hard", folder)

    def test_it_agrees_with_the_image_bank(self, folder):
        images = pytest.importorskip("svea.augment.images", exc_type=ImportError)
        bank = images.ImageBank.find(data_dir=folder)
        assert len(bank.pictures) == parts(folder)["overlay"].count

    def test_a_folders_hash_is_that_of_sha256sum(self, folder):
        lines = [f"{hashlib.sha256((folder / 'photos' / n).read_bytes()).hexdigest()}  {n}\n"
                 for n in ("b.jpg", "sub/a.png")]  # fmt: skip
        expected = hashlib.sha256("".join(lines).encode()).hexdigest()
        assert inventory.content_sha256(folder / "photos") == expected
