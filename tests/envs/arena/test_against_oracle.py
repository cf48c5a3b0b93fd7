"""The batched Arena and the oracle, fed the same luck, tell the same story."""

import math

import pytest
import torch
from tensordict import TensorDict

from envs import ArenaEnv
from envs.arena.state import STREAM_SHOTS, STREAM_SITES, STREAM_SPAWNS
from envs.toolkit.chance import seed_chance

WORLDS, SEED = 9, 5
CLOSE_CALL = 2e-3
"""Pixels: nearer to a border than this, float32 and Python may decide differently and the step is not compared."""
LUCK = ((STREAM_SITES, 10), (STREAM_SHOTS, 8), (STREAM_SPAWNS, 55))
CIRCULAR = {"classic": (4, 11, 14, 17, 21, 25), "extended": (4, 11, 14, 17, 21, 25, 28, 31, 34, 37)}
"""Indices of angles scaled to a turn, where 0 and 1 are the same."""


class Match:
    """A batch of worlds, and what is needed to play oracles next to it."""

    def __init__(self, oracle_module, style, mode="classic", worlds=WORLDS, **options):
        self.oracle_module, self.style, self.mode = oracle_module, style, mode
        self.env = ArenaEnv(worlds, seed=SEED, style=style, observation=mode, **options)
        self.env.reset()
        self.chance = seed_chance(SEED, worlds).tick()  # the clock ticks with the reset and with every step
        self.compared = self.skipped = self.ended = 0
        self.draw()

    def draw(self):
        """The numbers that the next step uses, as a function (world) -> uniform(stream, count)."""
        self.numbers = {stream: self.chance.uniform(stream, count).T.tolist() for stream, count in LUCK}

    def luck(self, world):
        return lambda stream, count: self.numbers[stream][world][:count]

    def read(self, world):
        """An oracle that continues from the batched state."""
        return self.oracle_module.from_state(self.env.state, self.env.episode, world, self.luck(world), self.style)

    def read_all(self):
        return [self.read(world) for world in range(self.env.num_envs)]

    def step(self, actions):
        """One step of the batch; what it returns under ``next``."""
        self.chance = self.chance.tick()
        self.draw()
        td = TensorDict({"action": torch.tensor(actions)}, batch_size=self.env.batch_size)
        return self.env.step_and_maybe_reset(td)[0]["next"]

    def agree(self, oracle, action, step, world, tolerance=1e-3):
        """Play the oracle's step and compare everything, except after a close call; returns the state's own oracle, or
        None.
        """
        reward, terminated, truncated = oracle.step(action)
        observation = oracle.observation(self.mode)
        if oracle.closest_call < CLOSE_CALL:
            self.skipped += 1
            return None
        self.compared += 1
        where = f"world {world}, step {oracle.time}, action {action}"
        ends = {"terminated": terminated, "truncated": truncated, "done": terminated or truncated}
        assert {key: step[key][world].item() for key in ends} == ends, where
        assert alike(step["reward"][world].tolist(), [reward], tolerance, 1e-4), (where, step["reward"][world], reward)
        for name, value in oracle.statistics().items():
            mine = step["episode", name][world].tolist()
            assert alike(mine, [value], tolerance, 1e-3), (where, name, mine, value)
        for index, (mine, theirs) in enumerate(zip(step["observation"][world].tolist(), observation, strict=True)):
            away = abs(mine - theirs)
            away = min(away, 1 - away) if index in CIRCULAR[self.mode] else away
            assert away <= max(tolerance * abs(theirs), 1e-4), (where, index, mine, theirs)
        if terminated or truncated:
            self.ended += 1
            oracle = self.oracle_module.new_game(self.luck(world), self.style, oracle.difficulty)
        return self.same_state(oracle, world, where, tolerance)

    def same_state(self, oracle, world, where, tolerance):
        mine = self.read(world)
        for part in ("enemies", "spawners", "shots", "enemy_shots"):
            assert len(getattr(mine, part)) == len(getattr(oracle, part)), (where, part)
        assert alike(ship_of(mine), ship_of(oracle), tolerance), where
        assert abs(math.remainder(mine.rotation - oracle.rotation, 2 * math.pi)) < 1e-3, where
        assert (mine.time, mine.phase, mine.phase_began) == (oracle.time, oracle.phase, oracle.phase_began), where
        assert (mine.tracked is None) == (oracle.tracked is None), where
        assert alike(mine.tracked or (), oracle.tracked or (), tolerance), where
        for part in ("enemies", "spawners", "shots"):  # in list order, which the rules depend on
            for row, other in zip(rows_of(mine, part), rows_of(oracle, part), strict=True):
                assert alike(row, other, tolerance), (where, part, row, other)
        others = rows_of(oracle, "enemy_shots")
        for row in rows_of(mine, "enemy_shots"):
            assert any(alike(row, other, tolerance) for other in others), (where, row)
        return mine


def alike(mine, theirs, tolerance, floor=1e-2):
    """Equal within a share ``tolerance`` of the value, or within ``floor`` (pixels, for states)."""
    return all(abs(a - b) <= max(tolerance * abs(b), floor) for a, b in zip(mine, theirs, strict=True))


def ship_of(oracle):
    return [oracle.x, oracle.y, oracle.vx, oracle.vy, oracle.health, oracle.cooldown]


def rows_of(oracle, part):
    return [list(vars(row).values()) for row in getattr(oracle, part)]


def choose_action(oracle, world, generator):
    """A third of the worlds plays at random, a third mostly shoots, a third hunts the nearest spawner."""
    shoot = 4 if oracle.style == 1 else 5
    random_action = int(torch.randint(shoot + 1, (), generator=generator))
    if world % 3 == 0:
        return random_action
    if world % 3 == 1:
        return shoot if torch.rand((), generator=generator) < 0.7 else random_action
    return hunt(oracle, shoot, random_action)


def hunt(oracle, shoot, random_action):
    """Aim at the nearest spawner and fire; move at random while the cannon cools down."""
    target = min(oracle.spawners, key=lambda s: math.hypot(s.x - oracle.x, s.y - oracle.y))
    dx, dy = target.x - oracle.x, target.y - oracle.y
    if oracle.style == 1:
        miss = math.remainder(math.atan2(dy, dx) - oracle.rotation, 2 * math.pi)
        if abs(miss) > math.radians(4):
            return 3 if miss > 0 else 2
        return shoot if oracle.cooldown <= 1 else random_action if oracle.time % 40 == 0 else 0
    short, long = sorted((abs(dx), abs(dy)))
    if short > 15:  # not yet on a line with it
        horizontal = abs(dx) == short
    else:
        horizontal = abs(dx) == long
        facing = math.remainder(math.atan2(dy, dx) - oracle.rotation, 2 * math.pi)
        if abs(facing) < math.pi / 4:
            return shoot
    return (4 if dx > 0 else 3) if horizontal else (2 if dy > 0 else 1)


def stir(env, world, oracle_module, generator):
    """Throw world ``world`` into the middle of a fight: any phase, weak spawners, enemies and projectiles around a weak
    ship.
    """

    def rand(low, high, count=None):
        values = low + (high - low) * torch.rand(count or 1, generator=generator)
        return values if count else values.item()

    def whole(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    state = env.state
    phase = whole(0, 4)
    sites = oracle_module.PHASES[phase][0]
    x, y = rand(50, 1550), rand(50, 1230)
    write(state.ship, world, x=x, y=y, vx=rand(-4, 4), vy=rand(-4, 4), health=10 * whole(1, 15), cooldown=whole(0, 10))
    state.ship.rotation[world] = rand(0, 2 * math.pi) if env.style == 1 else math.pi / 2 * whole(-1, 2)
    step = whole(0, 2990) if whole(0, 3) else whole(2985, 2998)
    write(state.progress, world, phase=phase, step=step, phase_step=max(0, step - whole(0, 1000)), tracking=0)
    write(env.episode, world, length=whole(0, 1) * step)
    near = clamp(x + rand(-90, 90), 25, 1575), clamp(y + rand(-90, 90), 25, 1255)
    for slot in range(state.spawners.x.shape[0]):
        place = near if slot == 0 else sites[min(slot, len(sites) - 1)]
        apart = slot == 0 or math.dist(near, place) > 324  # as all are: 87 from each to its enemies, 150 between them
        exists = slot < len(sites) and apart and (slot == 0 or whole(0, 1))
        health = 10 * whole(1, 3) if exists else 0
        write(state.spawners, (slot, world), x=place[0], y=place[1], health=health, cooldown=whole(0, 4))
    alive = whole(0, 8)
    for slot in range(state.enemies.x.shape[0]):
        values = {"x": clamp(x + rand(-150, 150), 12, 1588), "y": clamp(y + rand(-150, 150), 12, 1268)}
        cooldown = whole(0, 5)
        write(state.enemies, (slot, world), health=10 * (slot < alive), speed=rand(1, 2), cooldown=cooldown, **values)
    state.ring_head[world] = 0  # of the enemies' slots, those below the last ten are empty
    scatter(state.shots, world, (x, y), 4, whole)
    scatter(state.enemy_shots, world, (x, y), whole(0, 10), whole)


def scatter(shots, world, center, number, whole):
    """The youngest ``number`` slots hold projectiles around ``center``, the others are empty."""
    slots = shots.life.shape[0]
    for slot in range(slots):
        bearing = math.radians(whole(0, 359))
        values = {"x": center[0] + whole(-120, 120), "y": center[1] + whole(-120, 120)}
        velocity = {"vx": 8 * math.cos(bearing), "vy": 8 * math.sin(bearing)}
        write(shots, (slot, world), life=whole(1, 60) * (slot >= slots - number), **values, **velocity)


def write(record, place, **values):
    for name, value in values.items():
        getattr(record, name)[place] = value


def clamp(value, low, high):
    return max(low, min(high, value))


@pytest.mark.parametrize(
    ("style", "mode"),
    [
        (1, "extended"),
        (2, "classic"),
        pytest.param(1, "classic", marks=pytest.mark.slow),
        pytest.param(2, "extended", marks=pytest.mark.slow),
    ],
)
def test_every_step_of_a_fight_agrees_with_the_oracle(oracle, style, mode):
    """Teacher forcing: before each step the oracle takes over the batched state; worlds are stirred again and again."""
    match = Match(oracle, style, mode)
    play(match, steps=160, stir_every=40, seed=style)
    assert match.skipped < 0.05 * match.compared
    assert match.ended > 10


@pytest.mark.parametrize("style", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_undisturbed_game_agrees_step_by_step(oracle, style):
    """From the real start: spawning, waiting, shots of full lifetime, whole phases."""
    match = Match(oracle, style)
    play(match, steps=350, stir_every=None, seed=10 + style)
    assert match.skipped < 0.02 * match.compared
    assert match.env.state.progress.phase.max() >= 1, (
        "nobody reached the second phase: this test shows less than it should"
    )


def test_every_grade_of_difficulty_agrees_with_the_oracle(oracle):
    """The multipliers of the rules' curriculum table, one grade per world."""
    grades = {
        "spawn_cooldown": [2.5, 2.0, 1.8, 1.4, 1.15, 1.0],
        "max_enemies": [0.3, 0.5, 0.6, 0.75, 0.85, 1.0],
        "spawner_health": [0.4, 0.5, 0.65, 0.8, 0.9, 1.0],
        "enemy_speed": [0.2, 0.85, 0.9, 0.95, 1.0, 1.0],
        "shaping": [4.0, 3.0, 2.5, 1.8, 1.0, 0.5],
        "hit_penalty": [0.3, 0.6, 0.9, 1.2, 1.3, 1.0],
    }
    match = Match(oracle, style=1, worlds=6)
    match.env.set_difficulty(**{name: torch.tensor(values) for name, values in grades.items()})
    match.env.reset()
    match.chance = match.chance.tick()
    match.draw()
    for world, start in enumerate(match.read_all()):
        values = {name: column[world] for name, column in grades.items()}
        assert vars(start.difficulty) == pytest.approx(values)
        match.same_state(oracle.new_game(match.luck(world), 1, oracle.Difficulty(**values)), world, "start", 1e-3)
    play(match, steps=150, stir_every=75, seed=30)
    assert match.skipped < 0.05 * match.compared


def play(match, steps, stir_every, seed):
    """Step the batch, and before each step let the oracles take over its state; every step must agree."""
    generator = torch.Generator().manual_seed(seed)
    players = match.read_all()
    for time in range(steps):
        for world in range(len(players)):
            if stir_every and (time + 7 * world) % stir_every == 0:
                stir(match.env, world, match.oracle_module, generator)
                players[world] = match.read(world)
        actions = [choose_action(player, world, generator) for world, player in enumerate(players)]
        step = match.step(actions)
        for world, (player, action) in enumerate(zip(players, actions, strict=True)):
            players[world] = match.agree(player, action, step, world) or match.read(world)
        assert not match.env.state.tally.shots_dropped.any()


@pytest.mark.parametrize("style", [1, 2])
def test_oracles_running_freely_stay_together_with_the_batch(oracle, style):
    """No teacher forcing: rounding may add up over 120 steps; after a close call that oracle starts from the state
    again.
    """
    match = Match(oracle, style)
    generator = torch.Generator().manual_seed(20 + style)
    players = [oracle.new_game(match.luck(world), style) for world in range(WORLDS)]
    for world, player in enumerate(players):
        match.same_state(player, world, f"start of world {world}", 1e-3)
    together = [0] * WORLDS
    for _ in range(120):
        actions = [choose_action(player, world, generator) for world, player in enumerate(players)]
        step = match.step(actions)
        for world, action in enumerate(actions):
            state = match.agree(players[world], action, step, world)
            if state is None or step["done"][world].item():
                players[world], together[world] = match.read(world), 0
            else:
                together[world] += 1
    assert max(together) > 100
