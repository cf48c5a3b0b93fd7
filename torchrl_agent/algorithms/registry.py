"""Registry of algorithms: built-in ones by a short name, any other by the dotted path of its class."""

from __future__ import annotations

from torchrl_agent.algorithms.a2c import A2C
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.dqn import DQN
from torchrl_agent.algorithms.impala import IMPALA
from torchrl_agent.algorithms.ppo import PPO
from torchrl_agent.algorithms.sac import SAC
from torchrl_agent.algorithms.td3 import TD3
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.trust.targets import find

ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in (PPO, A2C, IMPALA, DQN, SAC, TD3)}


def find_algorithm(name: str) -> type[Algorithm]:
    """Return the class with a short name, or at a dotted path such as ``my_package.Reinforce``.

    Raises:
        ValueError: there is no such class, or it is no :class:`Algorithm`.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    ours = f"use one of {', '.join(ALGORITHMS)}, or the dotted path of a class such as my_package.Reinforce"
    if "." not in str(name):
        raise ValueError(f"algorithm is {name!r}{did_you_mean(name, ALGORITHMS)}: {ours}.")
    try:
        kind = find(name)
    except Exception as error:  # whatever importing a user's module raises
        raise ValueError(f"algorithm {name} cannot be found ({' '.join(str(error).split())}): {ours}.") from None
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ValueError(f"algorithm {name} is no torchrl_agent.algorithms.algorithm.Algorithm: derive it from that.")
    return kind


def class_path(kind: type[Algorithm]) -> str:
    """Return the dotted path by which :func:`find_algorithm` finds a class."""
    return f"{kind.__module__}.{kind.__qualname__}"
