"""A trained agent, loaded from its run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from torchrl_agent.core.checkpoint import CheckpointError, find_checkpoint, load_checkpoint
from torchrl_agent.core.devices import resolve_device, use_device
from torchrl_agent.core.run_names import CONFIG, find_run, folder_of
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent
from torchrl_agent.runs.members import find_member
from torchrl_agent.transforms import RewardScaler


def load_agent(
    run: Path | str,
    device: str = "auto",
    which: str = "last",
    overrides: tuple[str, ...] = (),
    member: int | str | None = None,
    trust: bool = False,
) -> tuple[Experiment, Agent]:
    """A trained agent, with its normalization statistics, and the experiment it comes from.

    Args:
        run: a run folder, a checkpoint file inside one, or an agent that comes with the package (``shipped:NAME``).
        device: device of the agent.
        which: ``last`` or ``best``.
        overrides: changes of the run's configuration.
        member: of a population: its number, or ``best``, which it also is if none is named.
        trust: let the run's configuration name code that is not ours (see ``docs/security.md``).
    """
    run = find_run(run) if member is None else find_member(find_run(run), member)
    path = find_checkpoint(run, which)
    config = folder_of(run) / CONFIG
    if not config.is_file():
        raise ValueError(
            f"there is no {config}, which says what agent {path} holds: give a run folder, or a checkpoint inside one."
        )
    experiment = Experiment.load(config, f"device={device}", *overrides, trust=trust)
    use_device(experiment.device)
    with closing(experiment.make_world(evaluation=True, num_envs=1)) as world:
        agent = experiment.make_agent(world)
    state = load_checkpoint(path, resolve_device(experiment.device))
    try:
        agent.load_state_dict(state["agent"])
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{path} does not fit {config} ({reason}): put the config.yaml back that it was trained with; "
            "if that is it, observations have changed since: use the version of the code that code.json names."
        ) from None
    return experiment, agent


def load_reward_scaler(experiment: Experiment, run: Path, which: str = "last") -> RewardScaler:
    """The scaler of the rewards that a run's agent has learned from."""
    scaler = RewardScaler(1, experiment.algorithm.gamma, enabled=experiment.algorithm.scale_rewards)
    state = load_checkpoint(find_checkpoint(run, which))["algorithm"]["reward_scaler"]
    scaler.load_state_dict({**state, "returns": scaler.returns})
    return scaler


load = load_agent
"""Its name in the package: ``torchrl_agent.load``."""
