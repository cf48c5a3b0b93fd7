"""The Town's curricula: stages change fresh towns only, in both directions."""

from __future__ import annotations

import pytest
import torch

from envs import TownEnv


def finished(env, survival, episodes):
    number = float(env.curriculum.stage)
    columns = {"survival": survival, "stage": number, "complete": 1.0, "win": 0.0}
    return {name: torch.full((episodes,), value) for name, value in columns.items()}


def test_survival_moves_on_and_failure_moves_back_with_room_between():
    env = TownEnv(4, curriculum="depletion")
    assert env.state.settings.depletion.tolist() == pytest.approx([0.2] * 4)
    env.update_curriculum(finished(env, 0.5, 50))
    assert env.curriculum.stage == 0
    env.update_curriculum(finished(env, 0.9, 100))
    assert env.curriculum.stage == 1
    env.update_curriculum(finished(env, 0.5, 200))
    assert env.curriculum.stage == 1, "between the two thresholds nothing happens"
    env.update_curriculum(finished(env, 0.1, 100))
    assert env.curriculum.stage == 0
    env.update_curriculum(finished(env, 0.1, 100))
    assert env.curriculum.stage == 0, "there is no stage before the first"


def test_a_new_stage_is_played_from_the_next_episode_on():
    env = TownEnv(2, curriculum="levels", seed=3)
    assert env.state.settings.width.tolist() == [5, 5]
    env.update_curriculum(finished(env, 0.9, 100))
    assert env.state.settings.width.tolist() == [5, 5]
    env.reset()
    assert env.state.settings.width.tolist() == [8, 8]
    assert env.state.settings.depletion.tolist() == pytest.approx([0.4, 0.4])
    assert int((env.state.layout.x[:, 0] >= 0).sum()) == 14


def test_stages_place_their_own_affordances_on_their_own_map():
    env = TownEnv(50, curriculum="levels", seed=3)
    names = env.rules.kinds
    present = {names[slot] for slot in range(14) if env.state.layout.x[slot, 0] >= 0}
    assert present == {"Bed", "Job", "HomeMeal"}
    assert env.state.layout.x.max() == 4
    assert env.state.agents.x.max() == 4
    assert env.state.meters[0].max() == 0.5


def test_the_curriculum_is_saved_with_the_worlds():
    env = TownEnv(2, curriculum="depletion")
    env.update_curriculum(finished(env, 0.9, 100))
    other = TownEnv(2, curriculum="depletion")
    other.load_state_dict(env.state_dict())
    assert other.curriculum.stage == 1
    assert torch.equal(other._snapshot.settings.depletion, env._snapshot.settings.depletion)
    with pytest.raises(ValueError, match="curriculum"):
        TownEnv(2).load_state_dict(env.state_dict())


def test_a_fixed_stage_stays():
    env = TownEnv(2, curriculum="depletion", stage=2)
    env.update_curriculum(finished(env, 0.9, 500))
    assert env.curriculum.stage == 2


def test_stages_of_another_world_are_refused(tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text("- {name: all, level: L3}\n")
    with pytest.raises(ValueError, match="which level L2 lacks"):
        TownEnv(2, level="L2", curriculum=path)
    path.write_text("- {name: odd, retreat: {joy: [null, 1]}}\n")
    with pytest.raises(ValueError, match="joy"):
        TownEnv(2, curriculum=path)


def test_a_stage_whose_map_cannot_hold_the_places_that_are_dealt_out_is_refused(tmp_path):
    level, path = tmp_path / "tiny.yaml", tmp_path / "tight.yaml"
    level.write_text("extends: L3\nwidth: 3\nheight: 3\naffordances: [Bed, Job, HomeMeal, Park]\n")
    path.write_text(f"- {{name: tight, level: {level}}}\n")
    with pytest.raises(ValueError, match="its 9 cells hold no 15 places and agents of level L3"):
        TownEnv(2, level="L3", curriculum=path)
