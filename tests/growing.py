"""Small worlds of growing networks, and players for tests."""

import torch

from envs import GrowthEnv
from envs.growth.rules import HEADS, PLACEHOLDERS, Head, Operation, Rules

SMALL = {"slots": 2, "width": 4, "updates": 1, "batch_size": 4, "validation_rows": 8, "max_steps": 40}
TAPS8 = Rules().blueprints.index("taps8")


def small(num_envs=2, *, level=3, seed=0, **rules):
    """A small world."""
    return GrowthEnv(num_envs, seed=seed, level=level, rules={**SMALL, **rules})


def act(env, operation=Operation.WAIT, slot=0, blueprint=TAPS8, style=0, tempo=0, target=2, speed=0, curve=0):
    """Take one action in all worlds; return what follows."""
    action = torch.tensor((*PLACEHOLDERS, Operation.WAIT))
    if operation != Operation.WAIT:
        values = {Head.SLOT: slot, Head.BLUEPRINT: blueprint, Head.STYLE: style, Head.TEMPO: tempo}
        values |= {Head.TARGET: target, Head.SPEED: speed, Head.CURVE: curve, Head.OPERATION: operation}
        action = torch.tensor([values[head] for head in range(len(HEADS))])
    request = env.fake_tensordict().exclude("next").set("action", action.expand(env.num_envs, -1).clone())
    return env.step(request)["next"]


def wait(env, steps):
    """Wait for some steps."""
    for _ in range(steps):
        act(env)


def stages(env, slot=0, world=0):
    """Stage of a slot."""
    return int(env.state.slots.stage[slot, world])


def grown(steps=12, **options):
    """A world whose first slot holds a module at alpha 1, in the stage of holding."""
    env = small(**options)
    act(env, Operation.GERMINATE)
    wait(env, steps)
    return env
