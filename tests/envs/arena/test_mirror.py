"""Worlds seen in a mirror: what is seen, what actions mean there, and that the game is the same."""

import functools
import math

import pytest
import torch
from tensordict import TensorDict

from envs import ArenaEnv
from envs.arena.dynamics import advance
from envs.arena.mirror import Mirrors, choose_mirrors, exchanged, mirrored
from envs.arena.observation import observe
from envs.arena.rules import RULES, THRUSTING, WALKING
from envs.toolkit.records import named_tensors

N = 64
AXES = {"x": (True, False), "y": (False, True), "both": (True, True), "none": (False, False)}


@functools.cache
def midgame(style, steps=150):
    """Worlds with enemies and shots about, in which nothing more is left to chance."""
    env = ArenaEnv(N, style=style, desynchronize=True, seed=3)
    env.rollout(steps, break_when_any_done=False)
    state, never = env.state, torch.full((), 1e6)
    return env, state._replace(
        enemies=state.enemies._replace(cooldown=torch.full_like(state.enemies.cooldown, never)),
        spawners=state.spawners._replace(
            cooldown=torch.full_like(state.spawners.cooldown, never), health=state.spawners.health * 100
        ),
    )


def mirrors(axes):
    return Mirrors(*(torch.full((N,), reversed_) for reversed_ in AXES[axes]))


def living(state):
    """The state without what is left of the dead, and with angles as points of a circle."""
    parts = {name: getattr(state, name) for name in ("enemies", "spawners", "shots", "enemy_shots")}
    for name, things in parts.items():
        alive = (things.life if hasattr(things, "life") else things.health) > 0
        parts[name] = type(things)(*(value * alive for value in things))
    ship = state.ship._replace(rotation=torch.stack((state.ship.rotation.cos(), state.ship.rotation.sin())))
    return state._replace(ship=ship, **parts)


def assert_alike(one, other):
    for (name, mine), (_, theirs) in zip(named_tensors(living(one)), named_tensors(living(other)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-3, msg=name)


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("style", [1, 2])
def test_a_step_in_the_mirror_is_the_mirror_image_of_a_step(style, axes):
    env, state = midgame(style)
    assert (state.enemies.health > 0).any()
    assert (state.enemy_shots.life > 0).any()
    turned = mirrors(axes)
    for number in range(5 if style == 1 else 6):
        action = torch.full((N,), number)
        after = advance(state, action, env._snapshot.chance, env.rules, style)
        image = mirrored(state, turned, env.rules)
        image = advance(image, exchanged(action, turned, style), env._snapshot.chance, env.rules, style)
        assert_alike(mirrored(image, turned, env.rules), after)


def test_where_things_are_in_the_mirror_by_hand():
    env, state = midgame(1)
    width, height = env.rules.width, env.rules.height
    image = mirrored(state, mirrors("both"), env.rules)
    torch.testing.assert_close(image.enemies.x, width - state.enemies.x)
    torch.testing.assert_close(image.spawners.y, height - state.spawners.y)
    torch.testing.assert_close(image.enemy_shots.vy, -state.enemy_shots.vy)
    ship = state.ship._replace(rotation=torch.full((N,), math.pi / 4))  # right and down
    for axes, degrees in (("x", 135.0), ("y", 315.0), ("both", 225.0), ("none", 45.0)):
        turned = mirrored(state._replace(ship=ship), mirrors(axes), env.rules).ship.rotation
        assert turned[0].item() == pytest.approx(math.radians(degrees), rel=1e-5)


@pytest.mark.parametrize(
    ("style", "axes", "swapped"),
    [
        (1, "x", {THRUSTING.left: THRUSTING.right, THRUSTING.right: THRUSTING.left}),
        (1, "both", {}),  # turned by half: left is left
        (2, "x", {WALKING.left: WALKING.right, WALKING.right: WALKING.left}),
        (2, "y", {WALKING.up: WALKING.down, WALKING.down: WALKING.up}),
    ],
)
def test_what_actions_are_in_the_mirror(style, axes, swapped):
    for number in range(5 if style == 1 else 6):
        found = exchanged(torch.full((N,), number), mirrors(axes), style)
        assert found.tolist() == [swapped.get(number, number)] * N


@pytest.mark.parametrize("style", [1, 2])
def test_the_nearest_spawner_is_always_on_the_same_side(style):
    plain, env = (ArenaEnv(N, style=style, mirror=mirror, desynchronize=True, seed=3) for mirror in (False, True))
    seen = env.rollout(100, break_when_any_done=False)["observation"]
    if style == 1:
        assert (seen[..., 17] >= 0.5).all()  # its bearing: 0.5 is ahead, more is to the right
        assert (plain.rollout(100, break_when_any_done=False)["observation"][..., 17] < 0.5).any()
    else:
        image = mirrored(env.state, choose_mirrors(env.state, style), env.rules)
        assert not any(turned.any() for turned in choose_mirrors(image, style))
    torch.testing.assert_close(
        env.observe(env.state),
        observe(
            mirrored(env.state, choose_mirrors(env.state, style), RULES["classic"]), RULES["classic"], "classic", style
        ),
    )


def test_spawners_that_are_gone_choose_no_mirror():
    """A living spawner far to the right, and one destroyed close by on the left."""
    _, state = midgame(2)
    places = torch.full_like(state.spawners.x, 10_000.0)
    places[0], places[1] = state.ship.x + 400.0, state.ship.x - 50.0
    for living_one, reversed_ in ((0, False), (1, True)):
        health = torch.zeros_like(places).index_fill(0, torch.tensor(living_one), 100.0)
        spawners = state.spawners._replace(x=places, y=state.ship.y.expand_as(places), health=health)
        assert choose_mirrors(state._replace(spawners=spawners), 2).x.tolist() == [reversed_] * N


@pytest.mark.parametrize("style", [1, 2])
def test_the_game_is_the_same_for_every_observer(style):
    plain, env = (
        ArenaEnv(N, style=style, mirror=mirror, desynchronize=True, seed=3, action_repeat=4) for mirror in (False, True)
    )
    generator = torch.Generator().manual_seed(0)
    changed = 0
    for _ in range(12):
        action = torch.randint(len(plain.names()["actions"]), (N,), generator=generator)
        seen = env.as_seen(action, env.state)
        changed += int((seen != action).sum())
        one, other = (
            world.step_and_maybe_reset(TensorDict({"action": each}, [N]))[0]["next"]
            for world, each in ((plain, action), (env, seen))
        )
        for key in ("reward", "done", ("episode", "damage_taken")):
            assert torch.equal(one[key], other[key])
    assert changed > 50


def test_the_scripted_player_plays_the_same_in_a_mirror():
    returns = []
    for mirror in (False, True):
        env = ArenaEnv(8, mirror=mirror, seed=1)
        data = env.rollout(40, env.players()["scripted"], break_when_any_done=False)
        returns.append(data["next", "reward"].sum())
    assert returns[0] == returns[1]
