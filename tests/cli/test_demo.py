"""`svea demo` shows what it can and says what is missing."""

import pytest

from svea.cli import demo, main

SMALL = {
    "preset": "quick", "decisions": 40, "warmup": 20, "eval_every": 40, "eval_episodes": 1,
    "image_size": 24, "batch_size": 4, "episode_frames": 80, "network.layers": 2,
    "network.filters": 4, "network.hidden": 16,
}  # fmt: skip


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_without_the_zoo_there_is_only_training(how, tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("SVEA_ZOO", str(tmp_path / how))
    monkeypatch.setattr(demo.doctor, "measure_gl", lambda: {})
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--no-train"]) == 2
    assert main(["demo", "--no-train", "--skip-zoo"]) == 2
    assert main(["demo", "--no-train", "--finding"]) == 2
    trained: list[object] = []
    monkeypatch.setattr(demo, "train_one", lambda *arguments: trained.append(arguments))
    assert main(["demo"]) == 0 and len(trained) == 1
    assert "trained agents cannot be shown" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_with_damaged_agents_alone_it_fails(tmp_path, monkeypatch, capsys):
    for name in demo.AGENTS:
        (tmp_path / "zoo" / name).mkdir(parents=True)
        (tmp_path / "zoo" / name / "config.json").write_text("{}")
    monkeypatch.setenv("SVEA_ZOO", str(tmp_path / "zoo"))
    monkeypatch.setattr(demo.doctor, "measure_gl", lambda: {})
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--no-train"]) == 4
    said = capsys.readouterr()
    assert all(f"{name} of the zoo is" in said.out for name in demo.AGENTS)
    assert f"{demo.AGENTS[0]} of the zoo is" in said.err


def test_without_a_renderer_it_ends_at_once_with_the_cure(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MUJOCO_GL", "broken")
    assert main(["demo", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "MUJOCO_GL is 'broken'" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_without_an_encoder_all_but_the_videos_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "nothing"))
    monkeypatch.setattr(demo, "SETTINGS", SMALL)
    monkeypatch.setattr(demo, "EPISODES", 2)
    assert main(["demo", "--skip-zoo"]) == 0
    assert "without videos: ffmpeg" in capsys.readouterr().out
    page = (tmp_path / "runs/demo/report.html").read_text()
    assert "walker_stand" in page and "<video" not in page


@pytest.mark.slow
def test_the_whole_demo_at_a_small_size(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "SETTINGS", SMALL)
    monkeypatch.setattr(demo, "EPISODES", 2)
    monkeypatch.setattr(demo, "AGENTS", ("walker_walk-svea-100k",))  # the quicker one
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert "walker_walk-svea" in out and "SVEA, colours never seen" in out
    page = (tmp_path / "runs/demo/report.html").read_text()
    assert page.count("<video") >= 4  # the agent of the zoo and ours, in two modes each


@pytest.mark.slow
def test_the_finding_at_a_small_size(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "FINDING", SMALL)
    monkeypatch.setattr(demo, "EPISODES", 2)
    for _ in range(2):  # a repeat trains nothing again
        assert main(["demo", "--finding", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in (*demo.SIDES, "random"))
    runs = [path.name for path in (tmp_path / "runs/finding/runs").iterdir()]
    assert sorted(runs) == [
        "cartpole_swingup-drq-conv-s3", "cartpole_swingup-drq-none-s3",
        "cartpole_swingup-svea-conv-s3",
    ]  # fmt: skip
    assert (tmp_path / "runs/finding/finding.mp4").stat().st_size > 1000
    assert (tmp_path / "runs/finding/report.html").read_text().count("<video") == 6
