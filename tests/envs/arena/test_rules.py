"""Rules that a random game hardly meets, on states written by hand, and what is no rule of a step; all others are
compared with the oracle (test_against_oracle.py). World 0 is looked at; a step is `play(env, action)`.
"""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch

from envs import ArenaEnv
from envs.arena import Rules
from envs.arena.observation import observation_names, observe
from envs.arena.rules import RULES, THRUSTING, WALKING

IDLE, THRUST, LEFT, RIGHT, SHOOT = THRUSTING
WAIT, UP, DOWN, WEST, EAST, FIRE = WALKING


@pytest.fixture
def env():
    """One world without enemies, whose only spawner stands far away and will not spawn for a while."""
    return quiet(ArenaEnv(num_envs=1))


@pytest.fixture
def walker():
    return quiet(ArenaEnv(num_envs=1, style=2))


def quiet(env):
    env.reset()
    put(env.state.spawners.cooldown, 1000)
    put(env.state.spawners.x, 800)
    put(env.state.spawners.y, 200)
    return env


def put(tensor, *rows):
    """Write numbers into the rows of a tensor [N] or [slots, N]."""
    if tensor.ndim == 1:
        tensor.fill_(rows[0])
        return
    for row, value in enumerate(rows):
        tensor[row] = value


def play(env, action=0):
    return env.step_and_maybe_reset(env.observation_spec.zero().set("action", torch.full((env.num_envs,), action)))[0][
        "next"
    ]


def shot(env, x, y, vx=0.0, vy=0.0, life=100, slot=-1):
    shots = env.state.shots
    for tensor, value in zip(shots, (x, y, vx, vy, life), strict=True):
        tensor[slot] = value


def enemy(env, row, x, y, cooldown=1000.0, speed=0.0):
    for tensor, value in zip(env.state.enemies, (x, y, 10.0, speed, cooldown), strict=True):
        tensor[row] = value


def enemy_shot(env, x, y, slot=0, life=100, vx=0.0, vy=0.0):
    for tensor, value in zip(env.state.enemy_shots, (x, y, vx, vy, life), strict=True):
        tensor[slot] = value


def close(value, expected, tolerance=1e-4):
    assert abs(float(value) - expected) <= tolerance * max(1, abs(expected)), (float(value), expected)


def two_spawners(env):
    """One that the next hit destroys at (800, 200), and one far away."""
    put(env.state.spawners.health, 10, 100)
    put(env.state.spawners.x, 800, 1300)
    put(env.state.spawners.y, 200, 1000)
    put(env.state.spawners.cooldown, 1000, 1000)


# --- the ship ---------------------------------------------------------------------------------------------------------


def test_a_ship_begins_at_rest_in_the_middle_facing_right(env):
    ship = env.state.ship
    assert [float(v) for v in ship] == [800, 640, 0, 0, 0, 150, 0]


@pytest.mark.parametrize(
    ("x", "y", "vx", "vy", "expected"),
    [
        (16, 640, -6, 0, (15, 640)),
        (1584, 640, 6, 0, (1585, 640)),
        (800, 16, 0, -6, (800, 15)),
        (800, 1264, 0, 6, (800, 1265)),
    ],
)
def test_the_ship_stays_inside_the_field(env, x, y, vx, vy, expected):
    ship = env.state.ship
    for tensor, value in zip(ship, (x, y, vx, vy), strict=False):
        put(tensor, value)
    play(env)
    close(ship.x, expected[0])
    close(ship.y, expected[1])


# --- shots ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y", "vx", "vy"), [(0, 600, -1, 0), (1600, 600, 1, 0), (300, 0, 0, -1), (300, 1280, 0, 1)]
)
def test_the_border_itself_belongs_to_the_field(env, x, y, vx, vy):
    shot(env, x - vx, y - vy, vx, vy)
    play(env)
    assert float(env.state.shots.life[-1]) == 99
    play(env)
    assert float(env.state.shots.life[-1]) == 0


# --- enemies ----------------------------------------------------------------------------------------------------------


def test_enemies_stay_inside_the_field(env):
    put(env.state.ship.x, 15)
    enemy(env, 0, 12, 500, speed=2.0)
    enemy(env, 1, 5, 300)
    play(env)
    assert float(env.state.enemies.x.min(0).values) >= 0
    close(env.state.enemies.x[1], 12)


def test_an_enemy_exactly_on_the_ship_shoots_to_the_right():
    rules = Rules(enemy_shoot_probability=1.0, ship_radius=1.0)  # so small that the shot gets away
    env = quiet(ArenaEnv(num_envs=1, rules=rules))
    enemy(env, 0, 800, 640, cooldown=0.0)
    play(env)
    flying = env.state.enemy_shots.life > 0
    assert [float(value[flying]) for value in env.state.enemy_shots] == [808, 640, 8, 0, 119]


def test_new_enemies_of_two_spawners_cannot_crowd_each_other():
    rules = RULES["classic"]
    # both jittered toward each other by 30 in x and y, both enemies 25 + 12 + 50 from their spawners on that line
    nearer = 2 * (math.hypot(30, 30) + 87)
    apart = [math.dist(a, b) for sites in rules.sites for a, b in itertools.combinations(sites, 2)]
    assert min(apart) - nearer > rules.spawn_clearance


def test_new_enemies_stay_inside_the_field():
    env = ArenaEnv(num_envs=300, seed=7)
    env.reset()
    put(env.state.spawners.x, 25)
    put(env.state.spawners.y, 1255)
    play(env)
    assert env.state.enemies.x[0].min() == 12
    assert env.state.enemies.y[0].max() == 1268


def test_crowded_spawners_use_the_way_out():
    env = ArenaEnv(num_envs=200, seed=1)
    env.reset()
    x, y = env.state.spawners.x[0].clone(), env.state.spawners.y[0].clone()
    enemy(env, 0, 0, 0)
    env.state.enemies.x[0], env.state.enemies.y[0] = x, y
    play(env)
    distance = torch.hypot(env.state.enemies.x[1] - x, env.state.enemies.y[1] - y)
    torch.testing.assert_close(distance, torch.full_like(distance, 42.0), atol=1e-2, rtol=0)


def test_spawners_are_served_in_order_until_eight_enemies_live(env):
    for row in range(7):
        enemy(env, row, 100 + 200 * row, 1200)
    put(env.state.spawners.health, 100, 100)
    put(env.state.spawners.x, 300, 1300)
    put(env.state.spawners.y, 300, 300)
    put(env.state.spawners.cooldown, 0, 0)
    play(env)
    assert int((env.state.enemies.health > 0).sum()) == 8
    assert abs(float(env.state.enemies.x[7]) - 300) < 100
    assert [float(env.state.spawners.cooldown[i]) for i in range(2)] == [120, 0]


# --- hits -------------------------------------------------------------------------------------------------------------


def test_discs_that_only_meet_do_not_touch(env):
    enemy(env, 0, 100, 100)
    shot(env, 115, 100)
    play(env)
    assert float(env.state.enemies.health[0]) == 10


def test_of_two_projectiles_on_one_enemy_the_older_hits_and_the_younger_flies_on(env):
    enemy(env, 0, 100, 100)
    shot(env, 105, 100, slot=-2)
    shot(env, 95, 100, slot=-1)
    play(env)
    assert env.state.shots.life[-2:, 0].tolist() == [0, 99]


def test_one_projectile_hits_the_first_of_two_enemies(env):
    enemy(env, 0, 100, 100)
    enemy(env, 1, 104, 100)
    shot(env, 102, 100)
    play(env)
    assert env.state.enemies.x[0, 0] == 104  # the second moved up to the first place
    assert env.state.enemies.health[:2, 0].tolist() == [10, 0]


def test_an_enemy_is_hit_before_a_spawner(env):
    enemy(env, 0, 800, 215)
    shot(env, 800, 212)
    play(env)
    assert float(env.state.spawners.health[0]) == 100
    assert float(env.state.enemies.health.max()) == 0


def test_a_destroyed_spawner_stops_no_second_projectile(env):
    two_spawners(env)
    shot(env, 800, 210, slot=-2)
    shot(env, 800, 190, slot=-1)
    close(play(env)["reward"], 10 + 75 + 50 + 0.01)
    assert env.state.shots.life[-2:, 0].tolist() == [0, 99]


@pytest.mark.parametrize(("begun", "extra"), [(0, 50), (-498, 50), (-499, 0)])
def test_a_destroyed_spawner_heals_half_and_pays_more_when_quick(env, begun, extra):
    two_spawners(env)
    put(env.state.ship.health, 50)
    put(env.state.progress.phase_step, begun)
    shot(env, 800, 210)
    close(play(env)["reward"], 10 + 75 + extra + 0.01)
    assert float(env.state.ship.health) == 125


def test_healing_comes_before_the_hits_of_the_same_step(env):
    put(env.state.spawners.health, 10, 100)
    put(env.state.spawners.cooldown, 1000, 1000)
    put(env.state.ship.health, 10)
    shot(env, 800, 210)
    enemy_shot(env, 810, 640)
    assert not bool(play(env)["terminated"])
    assert float(env.state.ship.health) == 75


def test_a_dead_ship_ends_the_episode_and_takes_no_further_hits(env):
    put(env.state.ship.health, 10)
    for slot in range(3):
        enemy_shot(env, 805, 640, slot=slot)
    enemy(env, 0, 810, 640)
    played = play(env)
    assert bool(played["terminated"])
    assert not bool(played["truncated"])
    close(played["reward"], -2 - 100 + 0.01)
    assert float(played["episode", "damage_taken"]) == 10
    assert float(played["episode", "enemies_destroyed"]) == 0  # projectiles come first
    assert float(played["observation"][0, 31]) == 1 / 8


def test_a_ring_without_room_drops_the_oldest_shot_and_counts_it():
    env = quiet(ArenaEnv(num_envs=200, rules=Rules(max_enemy_projectiles=1)))
    enemy_shot(env, 100, 100)
    enemy(env, 0, 400, 640, cooldown=0.0)
    play(env)
    shooting = env.state.enemies.cooldown[0] == 60
    assert shooting.any()
    assert (env.state.events.shots_dropped == shooting).all()


# --- phases and ends --------------------------------------------------------------------------------------------------


def test_clearing_the_fifth_phase_wins(env):
    put(env.state.progress.phase, 4)
    put(env.state.progress.step, 1999)
    put(env.state.spawners.health, 10)
    shot(env, 800, 210)
    played = play(env)
    assert bool(played["terminated"])
    close(played["reward"], 10 + 75 + 100 + 0.01)
    assert float(played["episode", "win"]) == 1
    assert float(played["episode", "win_step"]) == 2000
    close(played["observation"][0, 7], 1.0)
    close(played["observation"][0, 8], 0.0)


def test_who_dies_in_the_last_step_is_terminated_not_truncated(env):
    put(env.state.progress.step, 2999)
    put(env.state.ship.health, 10)
    enemy_shot(env, 810, 640)
    played = play(env)
    assert bool(played["terminated"])
    assert not bool(played["truncated"])
    close(played["observation"][0, 9], 0.0)


# --- shaping ----------------------------------------------------------------------------------------------------------


def test_shaping_is_clipped(env):
    play(env)
    put(env.state.ship.health, 100)
    close(play(env)["reward"], 0.01 - 0.2)
    put(env.state.progress.tracked_spawners, 150)
    close(play(env)["reward"], 0.01 + 0.2)


# --- observation ------------------------------------------------------------------------------------------------------


def seen(env, mode="classic"):
    return observe(env.state, env.rules, mode, env.style)


def test_what_is_missing_is_far_straight_ahead_and_absent(env):
    put(env.state.spawners.health, 0)
    values = seen(env)["observation"][0].tolist()
    assert values[10:16] == [1, 0.5, 0] * 2
    assert values[16:24] == [1, 0.5, 0, 0] * 2
    assert values[24:27] == [1, 0.5, 0]


def surrounded(env):
    """A ship at (800, 640) heading down, an enemy to its right in the picture, a spawner, two shots of enemies, five of
    its own: two that will hit, one that passes, one that flies away, one that ends before.
    """
    state = env.state
    put(state.ship.rotation, math.pi / 2)
    put(state.ship.vx, 3)
    put(state.spawners.health, 40, 0)
    put(state.spawners.x, 400)
    put(state.spawners.y, 670)
    enemy(env, 0, 830, 640)
    enemy_shot(env, 800, 565, slot=3, vx=-8.0, vy=4.0)
    enemy_shot(env, 1500, 640, slot=7, vx=0.0, vy=-8.0)
    for slot, (x, y, vx, life) in enumerate(
        [(600, 670, -8, 60), (500, 697, -8, 60), (500, 699, -8, 60), (600, 670, 8, 60), (600, 670, -8, 24)]
    ):
        for tensor, value in zip(state.shots, (x, y, vx, 0, life), strict=True):
            tensor[slot] = value
    return seen(env, "offsets")["observation"][0].tolist()


def assert_by_index(values, expected):
    assert len(values) == len(expected) == 59
    for index, (value, wanted) in enumerate(zip(values, expected, strict=True)):
        assert abs(value - wanted) < 1e-5, (index, value, wanted)


def test_the_offsets_of_a_walker_by_index(walker):
    values = surrounded(walker)
    expected = [*seen(walker)["observation"][0, :10].tolist(), 0, 1]
    expected += [30 / 1600, 0, 0.2, 0, 1] + [0] * 5  # enemies, the nearer one first
    expected += [-400 / 1600, 30 / 1280, -1, 0.2, 1, 0.4, 0.2, 1] + [0] * 8  # spawners
    expected += [0, -0.5, -1, 0.5, 1, 0, 0, -1] + [0] * 12  # shots: where, and where to
    assert_by_index(values, [*expected, 1 / 8])


def test_the_offsets_of_a_ship_that_turns_are_along_its_heading_and_across(env):
    values = surrounded(env)  # ahead is down, across is to the left in the picture
    own = seen(env)["observation"][0, :10].tolist()
    expected = [*own[:2], 0, -3 / 6, *own[4:], 0, 1]
    expected += [0, -30 / 1280, 0, -0.2, 1] + [0] * 5
    expected += [30 / 1600, 400 / 1280, 0.2, 1, 1, 0.4, 0.2, 1] + [0] * 8
    expected += [-0.5, 0, 0.5, 1, 0, -1, -1, 0] + [0] * 12
    assert_by_index(values, [*expected, 1 / 8])


def test_words_say_what_the_offsets_are(walker):
    words = dict(zip(observation_names("offsets")["observation"], surrounded(walker), strict=True))
    shown = {name: words[name] for name in ("enemy 1 x", "enemy 2 exists", "spawner 1 y", "spawner 1 health to come")}
    assert shown == pytest.approx(
        {"enemy 1 x": 30 / 1600, "enemy 2 exists": 0, "spawner 1 y": 30 / 1280, "spawner 1 health to come": 0.2}
    )
    assert words["shot 1 near y"] == pytest.approx(-0.5) and words["enemies"] == 1 / 8


def test_words_say_what_the_classic_numbers_are(env):
    words = dict(zip(observation_names("classic")["observation"], seen(env)["observation"][0].tolist(), strict=True))
    assert words["health"] == words["to the left wall"] + words["to the right wall"] == 1
    assert (words["enemy 1 exists"], words["enemies"]) == (0, 0) and words["spawner 1 exists"] == 1


def test_a_spawner_that_the_shots_on_their_way_will_destroy_needs_no_other(walker):
    def condition():
        return seen(walker, "offsets")["observation"][0, 27:30].tolist()

    surrounded(walker)  # two shots will hit it
    put(walker.state.spawners.health, 21, 0)
    assert condition() == pytest.approx([0.21, 0.01, 1])
    put(walker.state.spawners.health, 20, 0)
    assert condition() == pytest.approx([0.2, 0, 0])


def test_the_grouped_observation_is_the_classic_one_by_subject(env):
    vector = seen(env)["observation"]
    groups = seen(env, "dict")
    assert [value.shape[-1] for value in groups.values()] == [7, 17, 3, 4, 1]
    joined = [
        groups[name]
        for name in ("player_state", "mission_progress", "combat_targets", "spatial_awareness", "enemy_count")
    ]
    assert torch.equal(torch.cat(joined, -1), vector)


# --- bad rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"style": 3}, "style"),
        ({"observation": "smell"}, "observation"),
        ({"rules": "chess"}, "rules"),
        ({"curriculum": "none.yaml"}, "curriculum"),
        ({"curriculum": "ladder", "stage": 99}, "stage"),
        ({"curriculum": "ladder", "stage": "hard"}, "stage"),
    ],
)
def test_unknown_options_are_refused(options, named):
    with pytest.raises(ValueError, match=named):
        ArenaEnv(num_envs=1, **options)


def test_unknown_difficulties_are_refused(env):
    with pytest.raises(ValueError, match="luck"):
        env.set_difficulty(luck=2.0)


def test_rules_may_be_a_mapping_of_what_differs():
    env = ArenaEnv(2, rules={"max_steps": 3})
    assert (env.rules.max_steps, env.rules.width) == (3, ArenaEnv(1).rules.width)
    assert env.rollout(10)["next", "done"].squeeze(-1).tolist() == [[False, False, True]] * 2


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ({"max_step": 3}, "rules.max_step is unknown (did you mean max_steps?): use"),
        ({"max_steps": "3"}, "rules.max_steps is '3': give a number."),
        ({"max_steps": 0}, "rules.max_steps is 0"),
        ({"phases": ()}, "phases"),
        ({"spawner_radius": 400.0}, "spawner"),
        ({"ship_cooldown": 1}, "ship_cooldown"),
        ("classical", "rules 'classical' is unknown (did you mean classic?): use one of classic, a mapping"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ArenaEnv(1, rules=rules)
