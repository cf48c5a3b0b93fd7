"""The duel: fair by construction, zero-sum, and every rule on a state written by hand."""

import math

import numpy as np
import pytest
import torch

from envs import DuelEnv
from envs.arena.rules import THRUSTING
from envs.duel.dynamics import advance, ends, result, reward
from envs.duel.observation import NAMES, observe
from envs.duel.rules import DUEL
from torchrl_agent import Experiment
from torchrl_agent.training.evaluator import evaluate_policy, summarize

IDLE = torch.zeros(2, 1, dtype=torch.long)


def standing(x=(200.0, 600.0), y=(320.0, 320.0), rotation=(0.0, math.pi), **ship):
    """Two ships at rest that face each other, without shots."""
    state = DuelEnv(1).state
    columns = {"x": x, "y": y, "rotation": rotation, "vx": (0.0, 0.0), "vy": (0.0, 0.0), **ship}
    return state._replace(
        ships=state.ships._replace(**{name: torch.tensor(values).view(2, 1) for name, values in columns.items()})
    )


def with_shot(state, seat, x, y, vx, vy, life=50.0, slot=-1):
    shots = [value.clone() for value in state.shots]
    for value, number in zip(shots, (x, y, vx, vy, life), strict=True):
        value[slot, seat, 0] = number
    return state._replace(shots=type(state.shots)(*shots))


def rollout(env, steps, seed=0):
    """Random play: every step's tensordict."""
    torch.manual_seed(seed)
    root = env.reset()
    for _ in range(steps):
        root.set(("agents", "action"), torch.randint(0, 5, (env.num_envs, env.num_agents)))
        played, root = env.step_and_maybe_reset(root)
        yield played


# --- fair


def test_equal_play_is_equal_from_both_seats():
    env = DuelEnv(64, seed=4)
    for step in range(150):
        both = env.state
        assert torch.allclose(both.ships.x.sum(0), torch.tensor(DUEL.width), atol=1e-2), step
        seen = env.observe(both)["agents"]["observation"]
        own = [NAMES.index(name) for name in ("x", "y", "cos of the rotation", "sin of the rotation")]
        rest = [index for index in range(len(NAMES)) if index not in own]
        torch.testing.assert_close(seen[:, 0, rest], seen[:, 1, rest], atol=1e-3, rtol=0)
        torch.testing.assert_close(seen[:, 0, own], -seen[:, 1, own], atol=1e-3, rtol=0)
        action = torch.randint(0, 5, (64, 1), generator=torch.Generator().manual_seed(step)).expand(-1, 2)
        env.step(action_of(env, action))


def action_of(env, action):
    return env.fake_tensordict().exclude("next").set(("agents", "action"), action.contiguous())


def test_swapped_actions_give_swapped_results_bit_for_bit():
    one = DuelEnv(32, seed=1).state
    two = swapped(one)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        action = torch.randint(0, 5, (2, 32), generator=generator)
        one, two = advance(one, action, DUEL), advance(two, action.flip(0), DUEL)
        for mine, theirs in zip(leaves(one), leaves(swapped(two)), strict=True):
            assert torch.equal(mine, theirs)
        assert torch.equal(reward(one, DUEL), reward(two, DUEL).flip(0))
    assert one.total.sum() > 0, "nobody was hit, so nothing is shown"


def swapped(state):
    """The same duel with the seats exchanged."""
    ships = type(state.ships)(*(value.flip(0) for value in state.ships))
    shots = type(state.shots)(*(value.flip(1) for value in state.shots))
    return state._replace(ships=ships, shots=shots, dealt=state.dealt.flip(0), total=state.total.flip(0))


def leaves(state):
    return [*state.ships, *state.shots, state.step, state.dealt, state.total]


def test_what_one_gets_the_other_loses():
    env = DuelEnv(64, seed=2, rules={"ship_cooldown": 6, "max_steps": 100})
    results = []
    for played in rollout(env, 400):
        rewards = played["next", "agents", "reward"]
        assert rewards.sum(1).abs().max() < 1e-6
        over = played["next", "done"].flatten()
        results += rewards[over, 0, 0].tolist()
    assert min(results) < -0.5
    assert max(results) > 0.5


# --- the rules, by hand


def test_a_shot_that_touches_costs_a_sixth_of_the_health_and_is_gone():
    state = with_shot(standing(), 0, x=600 - 25.0, y=320.0, vx=8.0, vy=0.0)
    after = advance(state, IDLE, DUEL)  # 17 pixels before the middle: within 15 + 3
    assert after.ships.health.flatten().tolist() == [60, 50]
    assert after.dealt.flatten().tolist() == after.total.flatten().tolist() == [1, 0]
    assert after.shots.life.max() == 0
    assert reward(after, DUEL).flatten().tolist() == pytest.approx([0.1, -0.1])
    missed = advance(with_shot(standing(), 0, x=600 - 27.0, y=320.0, vx=8.0, vy=0.0), IDLE, DUEL)
    assert missed.ships.health.flatten().tolist() == [60, 60]
    own = advance(with_shot(standing(), 1, x=600 - 20.0, y=320.0, vx=8.0, vy=0.0), IDLE, DUEL)
    assert own.ships.health.flatten().tolist() == [60, 60], "nobody is hit by shots of its own"


def test_hits_of_both_count_at_once():
    state = standing(health=(10.0, 10.0))
    state = with_shot(with_shot(state, 0, 590.0, 320.0, 8.0, 0.0), 1, 210.0, 320.0, -8.0, 0.0)
    after = advance(state, IDLE, DUEL)
    assert after.ships.health.flatten().tolist() == [0, 0]
    assert [bool(each) for each in ends(after, DUEL)] == [True, False]
    assert result(after, DUEL).flatten().tolist() == [0, 0]


def test_no_more_hits_are_dealt_than_there_is_health():
    state = standing(health=(60.0, 10.0))
    for slot, x in ((-1, 585.0), (-2, 590.0), (-3, 592.0)):
        state = with_shot(state, 0, x, 320.0, 8.0, 0.0, slot=slot)
    after = advance(state, IDLE, DUEL)
    assert after.dealt.flatten().tolist() == [1, 0]
    assert reward(after, DUEL).flatten().tolist() == pytest.approx([1.1, -1.1])


def test_the_healthier_ship_wins_when_time_is_up():
    late = standing(health=(30.0, 40.0))._replace(step=torch.tensor([599.0]))
    assert result(late, DUEL).flatten().tolist() == [0, 0]
    after = advance(late, IDLE, DUEL)
    assert [bool(each) for each in ends(after, DUEL)] == [False, True]
    assert result(after, DUEL).flatten().tolist() == [-1, 1]
    even = advance(standing()._replace(step=torch.tensor([599.0])), IDLE, DUEL)
    assert result(even, DUEL).flatten().tolist() == [0, 0]


def test_ships_fly_and_shoot_as_in_the_arena():
    action = torch.tensor([[THRUSTING.thrust], [THRUSTING.shoot]])
    after = advance(standing(), action, DUEL)
    assert after.ships.vx.flatten().tolist() == pytest.approx([0.3 * 0.97, 0], abs=1e-6)
    assert after.ships.x.flatten().tolist() == pytest.approx([200 + 0.3 * 0.97, 600])
    assert after.ships.cooldown.flatten().tolist() == [0, 10]
    assert after.shots.life[-1].flatten().tolist() == [0, 119]
    assert after.shots.x[-1, 1].item() == pytest.approx(592)
    again = advance(after, action, DUEL)
    assert (again.shots.life[:, 1] > 0).sum() == 1, "it has not cooled down"


def test_what_is_seen_of_the_other_by_hand():
    state = standing(rotation=(0.0, math.pi / 2), vx=(0.0, 3.0), health=(60.0, 30.0), cooldown=(0.0, 5.0))
    state = with_shot(state, 1, x=400.0, y=420.0, vx=-8.0, vy=0.0)
    seen = dict(zip(NAMES, observe(state, DUEL)[0, 0].tolist(), strict=True))
    size = math.hypot(800, 640)
    assert seen["other ahead"] == pytest.approx(400 / size)
    assert seen["other aside"] == pytest.approx(0)
    assert seen["bearing ahead"] == pytest.approx(1)
    assert seen["other's velocity ahead"] == pytest.approx(3 / 12)
    assert (seen["other points ahead"], seen["other points aside"]) == pytest.approx((0, 1), abs=1e-6)
    assert seen["other aims at me"] == pytest.approx(0, abs=1e-6)
    assert (seen["health"], seen["other's health"], seen["other's cooldown"]) == pytest.approx((1, 0.5, 0.5))
    assert (seen["shot 0 ahead"], seen["shot 0 aside"]) == pytest.approx((200 / size, 100 / size))
    assert seen["shot 0 velocity ahead"] == pytest.approx(-8 / 14)
    assert [seen[f"shot {number} is there"] for number in range(3)] == [1, 0, 0]
    other = dict(zip(NAMES, observe(state, DUEL)[0, 1].tolist(), strict=True))
    assert other["other aside"] == pytest.approx(400 / size), "down is its front, so what lies at -x is to its right"
    assert [other[f"shot {number} is there"] for number in range(3)] == [0, 0, 0], "it does not see its own shots"


# --- players, opponents, pictures


@pytest.mark.parametrize(("player", "opponent", "least", "most"), [
    ("scripted", "idle", 0.99, 1),
    pytest.param("scripted", "random", 0.97, 1, marks=pytest.mark.slow),
    ("turret", "scripted", 0.8, 0.97),
    pytest.param("random", "turret", 0, 0.02, marks=pytest.mark.slow),
    ("scripted", "scripted", 0, 0),
])  # fmt: skip
def test_the_players_order(player, opponent, least, most):
    env = DuelEnv(128, seed=7, opponent=opponent)
    figures = summarize(evaluate_policy(env.players()[player], env))
    assert least <= figures["win_rate"] <= most
    if player == opponent:
        assert figures["draw"] == 1


def test_statistics_are_those_of_the_first_seat():
    env = DuelEnv(64, seed=3, opponent="turret", rules={"max_steps": 200})
    figures = evaluate_policy(env.players()["scripted"], env)
    won, lost = figures["win"] > 0, (figures["win"] == 0) & (figures["draw"] == 0)
    assert won.any()
    assert lost.any()
    assert (figures["hits_dealt"][won] > figures["hits_taken"][won]).all()
    assert (figures["hits_dealt"][lost] < figures["hits_taken"][lost]).all()
    reckoned = 0.1 * (figures["hits_dealt"] - figures["hits_taken"]) + won.float() - lost.float()
    torch.testing.assert_close(figures["return"], reckoned, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"opponent": "nobody"}, "opponent is 'nobody': use one of scripted, turret, random, idle"),
        ({"rules": {"speed": 3}}, "rules.speed is unknown"),
        ({"rules": {"max_steps": 0}}, "rules.max_steps is 0"),
        ({"num_envs": 0}, "num_envs"),
    ],
)
def test_what_cannot_be_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence.replace(".", r"\.")):
        DuelEnv(**options)


def test_the_picture_shows_both_ships_where_they_are():
    env = DuelEnv(2, seed=0)
    picture = env.draw(1)
    assert picture.shape == (544, 640, 3)
    assert picture.dtype == np.uint8
    ships = env.state.ships
    for color, seat in (((86, 180, 233), 0), ((230, 159, 0), 1)):
        rows, columns = np.nonzero((picture == color).all(-1))
        scale = 640 / DUEL.width
        assert abs(columns.mean() / scale - ships.x[seat, 1].item()) < 12
        assert len(rows) > 20
    with pytest.raises(ValueError, match="there is no world 2"):
        env.draw(2)


def test_one_policy_learns_from_both_seats_and_plays_against_an_opponent():
    small = ("device=cpu", "world.num_envs=8", "algorithm.rollout_steps=8", "algorithm.minibatch_size=32")
    eager = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]
    experiment = Experiment.load("duel", *small, *eager)
    learner = experiment.make_learner()
    rollout = learner.collector.collect()
    assert rollout["agents", "observation"].shape == (8, 8, 2, len(NAMES))
    assert learner.improve(rollout, 1e-3)["updates"] == 8 * 8 * 2 / 32 * 4
    env = experiment.make_world(evaluation=True, num_envs=4)
    assert env.num_agents == 1
    assert set(evaluate_policy(learner.agent.policy, env)) >= {"win", "draw", "return"}
