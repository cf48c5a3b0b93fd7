import pytest
import torch
from torchrl.envs import RewardSum

from envs import ArenaEnv, BranchlessTransformedEnv
from envs.arena.rules import THRUSTING, WALKING, Rules
from envs.arena.scripted import HORIZON, ScriptedPlayer, make_plans, play

RULES = Rules()
_, _, LEFT, RIGHT, SHOOT = THRUSTING
_, UP, DOWN, WEST, EAST, FIRE = WALKING


def lonely_spawner(style, x, y, rotation=0.0, num_envs=1):
    """The first phase with the ship at rest in the middle and its only spawner at (x, y)."""
    env = ArenaEnv(num_envs, style=style)
    env.state.ship.rotation.fill_(rotation)
    env.state.spawners.x[0] = x
    env.state.spawners.y[0] = y
    return env


def choice(env):
    return play(env.state, env.rules, env.style)[0].item()


def play_on(env, steps):
    """Statistics of the first episode of every world, final or after ``steps`` steps."""
    player, tensordict = ScriptedPlayer(env), env.reset()
    over = torch.zeros(env.num_envs, dtype=torch.bool)
    result = {name: value.clone() for name, value in (env.episode.statistics() | env.statistics(env.state)).items()}
    for step in range(steps):
        transition, tensordict = env.step_and_maybe_reset(player(tensordict))
        episode = transition["next", "episode"]
        for name, value in result.items():
            value.copy_(torch.where(over, value, episode[name][:, 0]))
        over |= transition["next", "done"][:, 0]
        if step % 100 == 0 and over.all():
            break
    return result, over


# --- small situations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "shoot"), [(1, SHOOT), (2, FIRE)])
def test_shoots_at_a_spawner_straight_ahead(style, shoot):
    assert choice(lonely_spawner(style, 1200, 640)) == shoot


@pytest.mark.parametrize(("style", "shoot"), [(1, SHOOT), (2, FIRE)])
def test_does_not_waste_an_action_while_the_gun_is_hot(style, shoot):
    env = lonely_spawner(style, 1200, 640)
    env.state.ship.cooldown.fill_(5)
    assert choice(env) != shoot
    env.state.ship.cooldown.fill_(1)  # it ticks before the shot
    assert choice(env) == shoot


@pytest.mark.parametrize(("y", "turn"), [(500, LEFT), (780, RIGHT)])
def test_style_1_turns_the_short_way_to_a_spawner(y, turn):
    assert choice(lonely_spawner(1, 1000, y)) == turn


def test_style_1_turns_round_and_shoots():
    env = lonely_spawner(1, 400, 640)
    actions = env.rollout(40, ScriptedPlayer(env), auto_reset=False, tensordict=started(env))["action"][0].tolist()
    assert SHOOT in actions
    assert sum(action in (LEFT, RIGHT) for action in actions[: actions.index(SHOOT)]) >= 30


def test_style_2_lines_up_along_the_shorter_way():
    assert choice(lonely_spawner(2, 900, 200)) == EAST
    assert choice(lonely_spawner(2, 700, 200)) == WEST
    assert choice(lonely_spawner(2, 1400, 740)) == DOWN
    assert choice(lonely_spawner(2, 1400, 540)) == UP


def test_style_2_faces_what_it_is_in_line_with():
    assert choice(lonely_spawner(2, 800, 200)) == UP
    assert choice(lonely_spawner(2, 400, 640)) == WEST


def test_shoots_an_enemy_that_is_ahead_anyway():
    env = lonely_spawner(1, 1200, 640, rotation=torch.pi)
    assert choice(env) in (LEFT, RIGHT)
    env.state.enemies.x[0], env.state.enemies.y[0], env.state.enemies.health[0] = 650, 640, 10
    assert choice(env) == SHOOT  # an enemy ahead is worth a shot on the way
    env.state.enemies.x[0] = 800 - 300
    assert choice(env) == SHOOT
    assert play(env.state, env.rules, env.style, 4)[0] in (LEFT, RIGHT), "far away it is not worth four steps"


@pytest.mark.parametrize(("style", "shoot"), [(1, SHOOT), (2, FIRE)])
@pytest.mark.parametrize("repeat", [1, 2, 4])
def test_holds_the_trigger_when_the_gun_cools_within_the_action(style, shoot, repeat):
    env = lonely_spawner(style, 1200, 640)
    for cooldown in (repeat, repeat + 1):
        env.state.ship.cooldown.fill_(cooldown)
        action = play(env.state, env.rules, env.style, repeat)[0].item()
        assert (action == shoot) == (cooldown == repeat)


@pytest.mark.parametrize("style", [1, 2])
@pytest.mark.parametrize("repeat", [2, 4, 7])
def test_plans_are_made_of_whole_actions(style, repeat):
    """An action of seven steps turns a ship by 35 degrees, or moves it by 35 pixels, or does neither."""
    plans = make_plans(RULES, style, torch.device("cpu"), repeat)
    whole = HORIZON // repeat * repeat
    dx, dy = (torch.diff(each, dim=1, prepend=torch.zeros(len(each), 1)) for each in (plans.dx, plans.dy))
    moves = plans.rotation if style == 1 else torch.stack((dx, dy), -1).flatten(1, 2)
    if style == 1:
        moves = torch.diff(moves, dim=1, prepend=torch.zeros(len(moves), 1))
    held = moves[:, : whole * moves.shape[1] // HORIZON].reshape(len(moves), whole // repeat, repeat, -1)
    torch.testing.assert_close(held, held[:, :, :1].expand_as(held), atol=1e-4, rtol=0)
    assert len(plans.first.unique()) == (4 if style == 1 else 5), "every action but the shot begins some plan"


@pytest.mark.parametrize("style", [1, 2])
@pytest.mark.parametrize("distance", [160, 240])
def test_dodges_a_projectile_that_would_hit(style, distance):
    def health_after_40_steps(player):
        env = lonely_spawner(style, 800, 1100, rotation=torch.pi / 2)
        shots = env.state.enemy_shots
        shots.x[0], shots.y[0], shots.vx[0], shots.life[0] = 800 - distance, 640, 8, 100
        env.state.spawners.cooldown.fill_(1000)
        env.rollout(40, player(env), auto_reset=False, tensordict=started(env))
        return env.state.ship.health.item()

    def sleeper(env):
        return lambda tensordict: tensordict.set("action", env.action_spec.zero())

    assert health_after_40_steps(sleeper) == RULES.ship_health - RULES.projectile_damage
    assert health_after_40_steps(ScriptedPlayer) == RULES.ship_health


def started(env):
    """What a reset would return, without a reset."""
    return env.fake_tensordict().exclude("next", "action")


# --- as a policy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [1, 2])
def test_plays_a_world_the_same_alone_and_in_a_crowd(style):
    def actions(num_envs):
        env = ArenaEnv(num_envs, seed=4, style=style)
        return env.rollout(60, ScriptedPlayer(env), break_when_any_done=False)["action"]

    crowd = actions(3)
    assert crowd.dtype == torch.int64
    assert crowd.unique().numel() > 3
    assert torch.equal(crowd[:1], actions(1))


def test_fits_a_wrapped_world_and_does_not_own_it():
    env = BranchlessTransformedEnv(ArenaEnv(2, seed=1), RewardSum())
    player = ScriptedPlayer(env)
    rollout = env.rollout(120, player, break_when_any_done=False)
    assert env.action_spec.is_in(rollout["action"][:, 0])
    assert rollout["next", "episode_reward"][:, -1].min() > 0
    assert not list(player.children()) and not player.state_dict()


# --- whole games -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("repeat", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_destroys_a_spawner_on_average_in_a_tenth_of_an_episode(style, repeat):
    result, _ = play_on(ArenaEnv(64, seed=1, style=style, action_repeat=repeat), steps=300 // repeat)
    assert result["spawners_destroyed"].mean() >= 1


@pytest.mark.slow
@pytest.mark.parametrize("style", [1, 2])
def test_wins_most_games(style):
    result, over = play_on(ArenaEnv(32, seed=1, style=style), steps=RULES.max_steps)
    assert over.all()
    assert result["spawners_destroyed"].mean() >= 14
    assert result["win"].mean() >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("style", [1, 2])
def test_actions_of_four_steps_cost_it_the_last_spawner_at_most(style):
    """It runs out of time then: it wins few games."""
    result, over = play_on(ArenaEnv(32, seed=1, style=style, action_repeat=4), steps=RULES.max_steps // 4)
    assert over.all()
    assert result["spawners_destroyed"].mean() >= 13.5
