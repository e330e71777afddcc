"""Planning: every combination of a grid, checked and named before anything starts."""

import pytest
from fake_studies import SHORT, short

from svea.cli.train import train_flags
from svea.config.presets import as_flags, parse_settings
from svea.core.errors import UserError
from svea.studies import Grid, parse_seeds, plan_runs, read_study_file


def test_a_grid_is_every_combination_once():
    tasks, methods, augments = (
        ["walker_walk", "cartpole_swingup"],
        ["svea", "drq"],
        ["conv", "blur"],
    )
    runs = plan_runs([Grid(tasks, methods, augments, "0-4")])
    assert len(runs) == len({run.name for run in runs}) == 2 * 2 * 2 * 5
    configs = {(c.task, c.method, c.augment, c.seed) for c in (run.config for run in runs)}
    assert ("cartpole_swingup", "drq", "blur", 3) in configs and len(configs) == 40
    runs = short(methods=["svea", "drq", "soda"])
    assert [run.config.augment for run in runs] == ["conv", "none", "overlay"], "their own"


def test_a_group_of_modes_is_what_each_task_has_of_it():
    grid = Grid(["walker_walk", "hopper_hop", "robot_push"])
    walker, hopper, robot = plan_runs([grid], modes=["usual"])
    assert walker.modes == hopper.modes == ("train", "color_hard")
    assert robot.modes == ("train", "test")
    walker, hopper = plan_runs([Grid(["walker_walk", "hopper_hop"])], modes=["geometry"])
    assert len(walker.modes) == 10 and len(hopper.modes) == 4
    with pytest.raises(UserError, match="'shift_easy' does not fit hopper_hop"):
        plan_runs([Grid(["hopper_hop"])], modes=["shift_easy"])
    with pytest.raises(UserError, match="robot_push has no mode of the group 'lights'"):
        plan_runs([Grid(["robot_push"])], modes=["lights"])


def test_what_a_grid_sets_is_part_of_its_names_and_what_all_share_is_not():
    grids = [Grid(["walker_walk"], ["drq"], ["conv"], set={"recipe": {"K": k}}) for k in (1, 2)]
    first, second = plan_runs(grids, {"decisions": 9})
    assert first.name == "walker_walk-drq-conv-recipe.K=1-s0"
    assert second.config.recipe.K == 2 and second.config.decisions == 9


def test_the_flags_of_a_run_resolve_to_its_configuration():
    """Every kind of value: nested, float, flag, text; read back by `svea train` itself."""
    values = {"recipe.alpha": 1.0, "tensorboard": True, "eval_mode": "video_easy", "envs": 2}
    (run,) = plan_runs([Grid(["finger_spin"], seeds=[3], set={"sac": {"q_tau": 0.5}})], values)
    flags = as_flags({name: value for name, value in run.values.items() if name != "task"})
    assert train_flags(["finger_spin", *flags])[0] == run.config
    assert as_flags({"dqn.dueling": False, "x_y": "z"}) == ["--dqn.no-dueling", "--x-y", "z"]


def test_seeds_and_settings_as_text():
    assert parse_seeds("0-2,7 9") == [0, 1, 2, 7, 9]
    assert parse_seeds([3, "5-6"]) == [3, 5, 6]  # type: ignore[list-item]
    words = ["eval-every=7", "--recipe.beta=0.25", "tensorboard=true", "augment=a=b"]
    values = {"eval_every": 7, "recipe.beta": 0.25, "tensorboard": True, "augment": "a=b"}
    assert parse_settings(words) == values
    for wrong in ("decisions", "decisions=ten", "tensorboard=maybe", "sede=x"):
        with pytest.raises(UserError, match=wrong.partition("=")[0]):
            parse_settings([wrong])


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (Grid(["waler_walk"]), ["'waler_walk'", "'walker_walk'"]),
        (Grid(["walker_walk"], ["sveaa"]), ["'sveaa'"]),
        (Grid(["walker_walk"], augments=["covn"]), ["'covn'", "'conv'"]),
        (Grid(["walker_walk"], augments=["none"]), ["svea", "none"]),
        (Grid(["walker_walk"], seeds="0-x"), ["'0-x'", "0-4"]),
        (Grid(["walker_walk"], seeds="4-0"), ["'4-0'"]),
        (Grid(["walker_walk"], seeds=[1, 1]), ["walker_walk-svea-conv-s1 is in the study twice"]),
        (Grid(["walker_walk"] * 2), ["twice"]),
        (Grid([]), ["no runs"]),
        (Grid(["walker_walk"], set={"decisions": 0}), ["decisions is 0"]),
        (Grid(["walker_walk"], set={"decisons": 5}), ["'decisons'", "'decisions'"]),
        (Grid(["walker_walk"], set={"out": "x"}), ["out"]),
        (Grid(["walker_walk"], set={"seed": 3}), ["seed", "seeds"]),
        (Grid(["walker_walk"], set={"augment": "blur"}), ["augment", "augments"]),
        (Grid(["walker_walk"], seeds=[10**12]), ["seed"]),
        (Grid("walker_walk", methods=[3]), ["methods is [3]"]),  # type: ignore[list-item]
    ],
)
def test_bad_grids_are_refused_by_name(grid, words):
    with pytest.raises(UserError) as error:
        plan_runs([grid])
    assert all(word in str(error.value) for word in words), error.value


def test_every_run_is_checked_and_one_under_two_names_is_a_duplicate():
    named = Grid(["walker_walk"], set={"batch_size": 128})  # the default
    with pytest.raises(UserError, match="walker_walk-svea-conv-s0"):
        plan_runs([Grid(["walker_walk"]), named])
    good, bad = Grid(["walker_walk"]), Grid(["walker_walk"], ["drq"], set={"recipe": {"K": 0}})
    with pytest.raises(UserError, match=r"recipe\.K is 0"):
        plan_runs([good, bad])


# Study files --------------------------------------------------------------------------------------


def test_toml_with_several_grids(tmp_path):
    (tmp_path / "study.toml").write_text(
        """
        modes = ["train", "color_hard"]
        episodes = { default = 20, color_hard = "all" }
        set = { decisions = 50 }
        [[grid]]
        tasks = ["walker_walk"]
        seeds = "0-1"
        [[grid]]
        tasks = ["finger_spin"]
        methods = ["drq"]
        augments = ["conv"]
        set.recipe = { K = 2, M = 2 }
        """
    )
    grids, settings = read_study_file(tmp_path / "study.toml")
    planned = plan_runs(grids, settings.pop("set"), **settings)
    assert [run.name for run in planned] == [
        "walker_walk-svea-conv-s0",
        "walker_walk-svea-conv-s1",
        "finger_spin-drq-conv-recipe.K=2-recipe.M=2-s0",
    ]
    assert planned[0].modes == ("train", "color_hard")
    assert planned[0].episodes == {"default": 20, "color_hard": "all"}


def test_episodes_of_a_mode_need_a_task_that_is_evaluated_in_it():
    robot, suite = Grid(["robot_push"]), Grid(["walker_walk"])
    episodes = {"test": 5, "color_hard": 7}
    for run in plan_runs([robot, suite], SHORT, modes=["usual"], episodes=episodes):
        assert run.episodes == episodes
    with pytest.raises(UserError, match=r"5 for test, which is not .* \(train, color_hard\)"):
        plan_runs([suite], SHORT, modes=["usual"], episodes=episodes)
    with pytest.raises(UserError, match=r"modes to evaluate \(none\); leave it out, or add it"):
        plan_runs([suite], SHORT, episodes={"train": 5})
