"""Films of policies."""

from __future__ import annotations

import json

import pytest
import torch
from gather_world import GatherEnv
from PIL import Image

from envs import ArenaEnv, TownEnv
from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent import Experiment, train
from torchrl_agent.core.abilities import world_seed
from torchrl_agent.runs.film import best_world, film_policy, film_rate


def film(env, path, **options):
    return film_policy(env, env.players()["random"], path / "film.gif", **options)


def seconds(path):
    """Length of a film."""
    with Image.open(path) as pictures:
        total = 0
        for index in range(pictures.n_frames):
            pictures.seek(index)
            total += pictures.info["duration"]
    return total / 1000


@pytest.mark.parametrize(("repeat", "pictures"), [(1, 8), (2, 12), (4, 6), (5, 5)])
def test_a_film_has_as_many_pictures_however_many_steps_of_the_game_a_decision_takes(tmp_path, repeat, pictures):
    with Image.open(film(ArenaEnv(1, action_repeat=repeat), tmp_path, steps=24, every=3)) as shown:
        assert shown.n_frames == pictures


@pytest.mark.parametrize("repeat", [1, 4])
def test_sixty_steps_of_the_arena_last_a_second(tmp_path, repeat):
    """At most 20 pictures a second, or one for each decision where that is fewer."""
    path = film(ArenaEnv(1, action_repeat=repeat), tmp_path, steps=60)
    assert seconds(path) == pytest.approx(1.0)
    with Image.open(path) as shown:
        assert shown.n_frames == {1: 20, 4: 15}[repeat]


def test_every_hour_of_a_town_is_shown_four_a_second(tmp_path):
    path = film(TownEnv(1, level="L3"), tmp_path, steps=20)
    assert seconds(path) == pytest.approx(5.0)
    with Image.open(path) as shown:
        assert shown.n_frames > 10  # Pillow keeps an hour in which nothing changes as a longer one


def test_the_rate_can_be_chosen_and_the_length_does_not_depend_on_the_pictures(tmp_path):
    env = ArenaEnv(1)
    for every in (None, 1, 6):
        assert seconds(film(env, tmp_path, steps=12, every=every, fps=12)) == pytest.approx(1.0)
    for rate in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"fps is {rate}"):
            film(env, tmp_path, steps=12, fps=rate)


def test_a_name_that_no_film_has_is_refused_before_a_step(tmp_path):
    env = ArenaEnv(1)
    env.reset = env.step = None
    with pytest.raises(ValueError, match=r"ends in \.gif or \.mp4"):
        film_policy(env, env.players()["random"], tmp_path / "film.avi")


@pytest.mark.parametrize("make", [lambda: ArenaEnv(4), lambda: VectorGymEnv("CartPole-v1", 4, processes=False)])
def test_the_best_world_plays_its_episode_again(make):
    env = make()

    def policy(root):  # the same in every pass, and another in every world
        return root.set("action", torch.arange(4) % env.full_action_spec["action"].n)

    best = best_world(env, policy, 60, seed=3)
    runs = []
    for _ in range(2):
        root, seen, total, over = env.reset(), [], torch.zeros(4), torch.zeros(4, dtype=torch.bool)
        for _ in range(60):
            played, root = env.step_and_maybe_reset(policy(root))
            following = played["next"]
            total = torch.where(over, total, following["episode", "return"].squeeze(-1))
            over |= following["done"].squeeze(-1)
            seen.append(total.clone())
        runs.append(torch.stack(seen))
        assert total[best] == total.max()
        env.set_seed(world_seed(env, 3))
    assert torch.equal(*runs)


def test_the_best_world_is_filmed_alone(tmp_path):
    env = ArenaEnv(4)
    with Image.open(film(env, tmp_path, steps=8, every=4, best_from=1)) as alone:
        width = alone.width
    with Image.open(film(env, tmp_path, steps=8, every=4)) as together:
        assert together.width > width


def test_worlds_of_others_name_their_rate_in_their_metadata():
    world = VectorGymEnv("CartPole-v1", 2)
    assert film_rate(world) == 50
    world.close()


def test_a_world_that_says_nothing_is_shown_ten_steps_a_second_and_one_without_a_picture_not_at_all(tmp_path):
    env = GatherEnv(1)
    assert film_rate(env) == 10
    with pytest.raises(ValueError, match="GatherEnv cannot be drawn"):
        film(env, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_run_of_a_world_without_a_picture_ends_well_and_says_why_it_has_no_film(tmp_path, caplog):
    (tmp_path / "gather.yaml").write_text(
        "defaults: [experiment_schema, _self_]\nname: gather\ntotal_frames: 64\n"
        "world: {_target_: gather_world.GatherEnv, num_envs: 8}\nmodel: {hidden_sizes: [8]}\n"
        "algorithm: {rollout_steps: 8, minibatch_size: 64}\n"
        "acceleration: {step: false, advantages: false, update: false}\n"
    )
    run = f"run={{folder: {tmp_path}, name: run, tensorboard: false, final_evaluation: false}}"
    for _ in train(Experiment.load(str(tmp_path / "gather.yaml"), "device=cpu", run, trust=True)):
        pass
    assert "no film: GatherEnv cannot be drawn" in caplog.text
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["film"] is None
