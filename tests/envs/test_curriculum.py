"""Stages as data: who counts, when the next begins, and what fresh worlds get."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from envs import WORLDS, ArenaEnv
from envs.base.curriculum import Curriculum, Stage, load_stages

STAGES = [
    Stage("easy", {"enemy_speed": 0.5}, {"spawners_destroyed": (2, None), "damage_taken": (None, 50)}, min_episodes=10),
    Stage("hard", {}),
]


def episodes(number, stage=0, complete=1.0, spawners=3.0, damage=10.0, win=0.0, win_step=0.0):
    values = {
        "stage": stage,
        "complete": complete,
        "spawners_destroyed": spawners,
        "damage_taken": damage,
        "win": win,
        "win_step": win_step,
    }
    return {name: torch.full((number,), float(value)) for name, value in values.items()}


def test_a_stage_ends_when_its_criteria_hold_over_enough_episodes():
    curriculum = Curriculum(STAGES, num_envs=4)
    assert not curriculum.update(episodes(9))
    assert curriculum.update(episodes(1))
    assert curriculum.current.name == "hard"
    assert not curriculum.update(episodes(500, stage=1))


def test_as_many_episodes_as_worlds_are_waited_for():
    stages = [dataclasses.replace(STAGES[0], min_episodes=None), STAGES[1]]
    curriculum = Curriculum(stages, num_envs=64)
    assert not curriculum.update(episodes(63))
    assert curriculum.update(episodes(1))
    assert Curriculum(STAGES, num_envs=64).update(episodes(10)), "a stage may ask for fewer"


@pytest.mark.parametrize("spoiled", [{"spawners": 1.0}, {"damage": 51.0}])
def test_every_criterion_must_hold(spoiled):
    curriculum = Curriculum(STAGES, num_envs=1)
    assert not curriculum.update(episodes(100, **spoiled))
    assert curriculum.metrics()["criteria_met"] == 0.5
    assert curriculum.update(episodes(100))  # a hundred new ones push the old ones out


@pytest.mark.parametrize("ignored", [{"complete": 0.0}, {"stage": 1}])
def test_cut_episodes_and_those_of_another_stage_do_not_count(ignored):
    curriculum = Curriculum(STAGES, num_envs=1)
    assert not curriculum.update(episodes(100, **ignored))
    assert curriculum.metrics()["stage_episodes"] == 0


def test_of_many_episodes_at_once_the_latest_that_count_are_judged():
    first, cut, latest = episodes(100, spawners=0.0), episodes(50, complete=0.0, spawners=0.0), episodes(100)
    curriculum = Curriculum(STAGES, num_envs=1)
    assert curriculum.update({name: torch.cat((first[name], latest[name], cut[name])) for name in first})


def test_the_time_of_wins_is_averaged_over_wins():
    stages = [Stage("fast", {}, {"win_step": (None, 900)}), Stage("end", {})]
    curriculum = Curriculum(stages, num_envs=1)
    assert not curriculum.update(episodes(50))  # no win, no time
    assert not curriculum.update(episodes(1, win=1, win_step=1000))
    assert curriculum.update(episodes(9, win=1, win_step=800))


def test_a_mean_that_just_reaches_its_bounds_is_enough():
    assert Curriculum(STAGES, num_envs=1).update(episodes(10, spawners=2.0, damage=50.0))


def test_a_new_stage_is_judged_by_its_own_episodes_alone():
    stages = [STAGES[0], dataclasses.replace(STAGES[0], name="middle", min_episodes=2), Stage("hard", {})]
    curriculum = Curriculum(stages, num_envs=1)
    assert curriculum.update(episodes(10))
    assert curriculum.metrics()["stage_episodes"] == 0
    assert not curriculum.update(episodes(1, stage=1)), "two of its own are asked for"
    assert not curriculum.update(episodes(1, stage=1, spawners=0.0)), "their mean is 1.5; with those before it is 2.75"


@pytest.mark.parametrize(
    ("played", "stage"),
    [({"win": 0.1, "damage": 90.0}, 0), ({"win": 0.1, "damage": 50.0}, 1), ({"win": 0.5, "damage": 90.0}, 1)],
)
def test_a_stage_is_left_backwards_only_if_all_says_that_it_is_too_hard(played, stage):
    retreat = {"win": (None, 0.2), "damage_taken": (80, None)}
    stages = [Stage("easy", {}), Stage("hard", {}, criteria={"win": (0.9, None)}, retreat=retreat)]
    curriculum = Curriculum(stages, num_envs=10, stage=1)
    assert curriculum.update(episodes(10, stage=1, **played)) == (stage == 0)
    assert curriculum.stage == stage


def test_a_fixed_stage_stays():
    assert not Curriculum(STAGES, num_envs=1, automatic=False).update(episodes(1000))


def test_a_saved_curriculum_continues():
    first, second = Curriculum(STAGES, num_envs=1), Curriculum(STAGES, num_envs=1)
    first.update(episodes(9))
    second.load_state_dict(first.state_dict())
    assert second.update(episodes(1))
    first, second = Curriculum(STAGES, num_envs=1), Curriculum(STAGES, num_envs=1)
    first.update(episodes(9, spawners=0.0))
    second.load_state_dict(first.state_dict())
    assert not second.update(episodes(1, spawners=10.0)), "their mean is 1, that of the last alone would do"


def test_worlds_get_the_new_stage_at_their_next_reset():
    env = ArenaEnv(num_envs=16, curriculum="ladder")
    env.reset()
    assert (env.state.difficulty.max_enemies == 0.5).all()
    passing = {name: torch.zeros(200) for name in env.observation_spec["episode"].keys()}
    passing["spawners_destroyed"] += 10
    passing["complete"] += 1
    metrics = env.update_curriculum(passing)
    assert metrics["stage"] == 1
    torch.testing.assert_close(env.state.difficulty.spawner_health, torch.full((16,), 0.3))
    env.reset()
    torch.testing.assert_close(env.state.difficulty.spawner_health, torch.full((16,), 0.6))
    assert (env.episode.stage == 1).all()


def test_the_reference_has_its_six_grades():
    env = ArenaEnv(num_envs=1, curriculum="reference", stage=4)
    env.reset()
    assert len(env.curriculum.stages) == 6
    torch.testing.assert_close(env.state.difficulty.spawn_cooldown, torch.tensor([1.15]))
    assert env.curriculum.current.criteria["length"] == (700, 1200)


def test_rows_may_have_difficulties_of_their_own():
    env = ArenaEnv(num_envs=3)
    env.set_difficulty(spawner_health=torch.tensor([0.2, 0.5, 1.0]))
    env.reset()
    assert env.state.spawners.health[0].tolist() == [20, 50, 100]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "empty"),
        ("- {difficulty: {}}", "name"),
        ("- {name: a, difficulty: {luck: 1}}", "luck"),
        ("- {name: a, criteria: {win: 3}}", "least, most"),
        ("- {name: a, difficulty: {enemy_speed: -1}}", "enemy_speed"),
        ("- {name: a, color: red}", "color"),
        ("- [", "read"),
    ],
)
def test_files_that_cannot_be_are_refused(tmp_path, text, named):
    path = tmp_path / "stages.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=named):
        load_stages(path, ("enemy_speed",))


@pytest.mark.parametrize("rule", ["criteria", "retreat"])
@pytest.mark.parametrize(("world", "known"), [("arena", "spawners_destroyed"), ("town", "visits")])
def test_a_criterion_is_about_something_that_the_world_reports(tmp_path, world, known, rule):
    path = tmp_path / "stages.yaml"
    path.write_text(f"[{{name: a, {rule}: {{return: [1, 2], {known}: [1, 2]}}}}]")
    WORLDS[world](num_envs=1, curriculum=path)
    path.write_text(f"[{{name: a}}, {{name: b, {rule}: {{charm: [1, 2]}}}}]")
    with pytest.raises(ValueError, match=f"statistic 'charm' in stage 'b' .* is unknown: use return, .*{known}"):
        WORLDS[world](num_envs=1, curriculum=path)
