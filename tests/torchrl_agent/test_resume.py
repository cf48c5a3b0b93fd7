"""What a resume restores: all that training changes, found by walking through a learner's objects, whatever they say
that their state is.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

import pytest
import torch
from kinds import MIND, REPLAY, SMALL, UNCOMPILED
from tensordict import TensorDictBase
from torch import Tensor, nn

from torchrl_agent import Experiment
from torchrl_agent.loop import iterate
from torchrl_agent.training.learner import Learner

NEVER_SAME = (r"compile_seconds$", r"records\.metrics\.\d+\.time/")
"""What the clock says."""
MADE_ANEW = (
    r"collector\._buffers",
    r"updater\.most_skips_in_row$",
    r"optimizer\.param_groups\.0\.lr$",
    r"objective[./]entropy_coeff$",
    r"governor\.signs\.values$",
    r"algorithm\.rates$",
    r"truncates_once$",
)
"""What the next iteration makes anew before it reads it."""

SHORT = "++world.rules={max_steps: 6}"
GENES = "+population.genes={algorithm.entropy_coeff: {low: 0.001, high: 0.1}}"
POPULATION = ["population.every=64", "population.least_episodes=1", "total_frames=4096"]
LEAGUE = [
    "config=duel_league",
    "world.num_envs=16",
    "algorithm.minibatch_size=20",
    "league.refresh=2",
    "league.snapshot_every=32",  # so that an exploiter begins anew after 128 frames
    "population.members=3",
    "league.scripted={turret: 0.25, scripted: 0}",
    *POPULATION,
]
KINDS = {
    "ppo": [
        "world.curriculum=ladder",
        "algorithm={final_entropy_coeff: 0.0, learning_rate: {schedule: linear}}",
        "governor={enabled: true, warmup: 1, snapshot_every: 1}",
    ],
    "dqn": [
        "algorithm=dqn",
        *REPLAY,
        "algorithm.replay_size=64",  # full after two iterations
        "algorithm={priority_exponent: 0.6, num_steps: 2, target_interval: 3, batch_size: 24}",
    ],
    "sac": ["algorithm=sac", *REPLAY, "algorithm.batch_size=24"],
    "float16": ["algorithm.precision=float16"],
    "a2c": ["algorithm=a2c", "algorithm.rollout_steps=2", "algorithm.optimizer=rmsprop"],
    "impala": ["policy=gru", "algorithm=impala", "algorithm={rollout_steps: 2, lag: 2, refresh_every: 2}"],
    "mind": ["config=town_agent", *MIND],
    "population": ["population={members: 4, evolve: pbt, margin: 0}", "world.curriculum=ladder", *POPULATION, GENES],
    "families": [
        "config=town",
        "world={level: L2, num_agents: 2, num_envs: 4}",
        "+world.rules.traits=true",
        "+world.drives=true",
        "+world.traits={greed: 0.5}",
        "character.scale=1",
        "algorithm.minibatch_size=16",
        "population={members: 4, evolve: genetic, family: {parents: 0.5, wealth: 0.5, mating: lasting}}",
        *POPULATION,
        "+population.genes={world.traits.greed: {low: 0, high: 1, scale: linear}}",
    ],
    "league": [*LEAGUE, "league.exploiters=1"],
    "evolving league": [*LEAGUE, "population.evolve=pbt", "population.replace=0.4", "population.margin=0"],
}


def learner_of(kind: str) -> Learner:
    """Small, eager and with short episodes."""
    words = KINDS[kind]
    config = next((word.split("=")[1] for word in words if word.startswith("config=")), "smoke")
    rest = [word for word in words if not word.startswith("config=")]
    sizes = ["device=cpu", "model.hidden_sizes=[8]", "tuned.ppo.num_epochs=1", *UNCOMPILED, *SMALL, SHORT]
    return Experiment.load(config, *sizes, *rest).make_learner()


def everything(thing: object, path: str = "", seen: dict[int, object] | None = None) -> Iterator[tuple[str, object]]:
    """Tensors and plain values below an object, by the attributes that lead there; what several share stands once."""
    seen = {} if seen is None else seen
    if thing is None or isinstance(thing, bool | int | float | str):
        yield path, thing
    elif id(thing) not in seen:
        seen[id(thing)] = thing
        if isinstance(thing, Tensor):
            yield path, thing.detach().clone()
        elif isinstance(thing, torch.Generator):
            yield path, thing.get_state()
        for name, part in parts_of(thing):
            yield from everything(part, f"{path}.{name}", seen)


def parts_of(thing: object) -> Iterator[tuple[object, object]]:
    """What an object of this project, a container, a module or an optimizer is made of."""
    if isinstance(thing, torch.optim.Optimizer | torch.amp.GradScaler):
        thing = thing.state_dict()
    if isinstance(thing, TensorDictBase):
        yield from thing.items(True, True)
    elif isinstance(thing, Mapping):
        yield from thing.items()
    elif isinstance(thing, list | tuple):
        yield from enumerate(thing)
    else:
        if isinstance(thing, nn.Module):
            yield from (*thing._parameters.items(), *thing._buffers.items(), *thing._modules.items())
        if type(thing).__module__.startswith(("torchrl_agent.", "envs.")):
            yield from vars(thing).items()


def inside(learner: Learner) -> dict[str, object]:
    """All of a learner; the member that it shows is a copy, made whenever it is asked for."""
    learner.best_agent()
    return dict(everything(learner))


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.shape == other.shape
            and torch.equal(*(v.nan_to_num(77.0) for v in (one, other)))
        )
    return repr(one) == repr(other)


def unlike(one: dict[str, object], other: dict[str, object], but: tuple[str, ...]) -> list[str]:
    """Where two differ."""
    nowhere = object()
    paths = [path for path in {**one, **other} if not same(one.get(path, nowhere), other.get(path, nowhere))]
    return [path for path in paths if not any(re.search(each, path) for each in but)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_learner_is_one_that_never_stopped(kind):
    whole, resumed = learner_of(kind), learner_of(kind)
    fresh = inside(whole)
    iterations = iterate(whole)
    for _ in range(5):
        next(iterations)
    file = io.BytesIO()
    torch.save(whole.state_dict(), file)
    random = torch.get_rng_state()
    stopped = inside(whole)
    torch.manual_seed(99)  # whatever happened in between
    resumed.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    assert torch.equal(torch.get_rng_state(), random)
    changed = set(unlike(fresh, stopped, ()))
    assert not [path for path in unlike(stopped, inside(resumed), NEVER_SAME + MADE_ANEW) if path in changed]
    next(iterate(resumed))
    torch.set_rng_state(random)
    next(iterations)
    assert not [path for path in unlike(inside(whole), inside(resumed), NEVER_SAME) if path in changed]
