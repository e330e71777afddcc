"""Which data folder is used."""

from __future__ import annotations

import pytest

from svea.core.errors import UserError
from svea.data.clips import CLIP_SETS, DAVIS, data_folder


def test_the_argument_beats_the_variable_and_both_must_exist(tmp_path, monkeypatch):
    monkeypatch.delenv("SVEA_DATA", raising=False)
    assert data_folder() is None
    monkeypatch.setenv("SVEA_DATA", str(tmp_path / "missing"))
    assert data_folder(tmp_path) == tmp_path
    with pytest.raises(UserError, match=r"the variable SVEA_DATA is .*missing', which is not a"):
        data_folder()
    with pytest.raises(UserError, match="data_dir is 'nowhere', which is not a folder"):
        data_folder("nowhere")
    monkeypatch.setenv("SVEA_DATA", "")
    assert data_folder() is None


def test_the_benchmarks_have_their_numbers_of_clips():
    assert {name: len(clips.names) for name, clips in CLIP_SETS.items()} == {
        "video_easy": 10, "video_hard": 100, "distracting_cs": 60,
    }  # fmt: skip
    assert list(DAVIS) == sorted(set(DAVIS))
