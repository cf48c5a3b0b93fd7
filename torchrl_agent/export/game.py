"""Export of a game to a browser: a world's reset and step, observations included, and the policy that plays in it, as
programs (``program.js``); ``game.js`` plays them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities, inner_world, world_name
from torchrl_agent.core.checkpoint import write_output
from torchrl_agent.core.run_names import output_of
from torchrl_agent.export.parts import Plain, flat_name, gated_policy, parts
from torchrl_agent.export.program import as_list, to_program
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import group_spec
from torchrl_agent.runs.load import load_agent

FORMAT, WORLD, RESET, STEP, POLICY = "program", "world", "reset", "step", "policy"


def write_program(
    run: Path,
    module: str,
    output: Path | str | None = None,
    checkpoint: str = "last",
    trust: bool = False,
    ablation: bool = False,
) -> Path:
    """Write the policy of a run's agent, or its evaluation world with the record of the first game, as programs.

    Args:
        run: a run folder, or a checkpoint file inside one.
        module: ``policy`` or ``world``.
        output: the ``.json`` file; by default ``<module>.program.json`` in the run.
        checkpoint: ``last`` or ``best``.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.
        ablation: see :func:`policy_program`.

    Raises:
        ValueError: there is no such module, it cannot be exported, or the file cannot be written.
    """
    if module not in (POLICY, WORLD):
        raise ValueError(
            f"format {FORMAT} writes the policy or the world, not {module}: give --module policy or world."
        )
    path = output_of(run, f"{module}.{FORMAT}.json") if output is None else Path(output)
    if path.suffix != ".json":
        raise ValueError(f"--output is {output}: files of format {FORMAT} end in .json.")
    experiment, agent = load_agent(run, "cpu", checkpoint, trust=trust)
    with closing(agent.attach(experiment.make_world(evaluation=True, num_envs=1))) as env:
        if module == POLICY:
            found = {POLICY: policy_program(env, agent.eval(), ablation)}
        else:
            found = {**world_programs(env), "record": world_record(env)}
    text = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return write_output(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def world_programs(env: EnvBase) -> dict[str, Any]:
    """Return the programs ``reset`` and ``step`` of a world, for its number of worlds.

    Both take and return the world's record, tensors by dotted name; ``step`` also takes ``action``, and returns
    ``reward``, ``terminated`` and ``truncated``. Both return the observations of the new record.

    Raises:
        ValueError: the world has no functions of tensors, or one of them cannot be exported.
    """
    functions, record = _programs(env)
    name = world_name(env)
    action = env.full_action_spec[env.action_key].zero()
    given = {RESET: record, STEP: {keys.ACTION: action, **record}}
    return {part: to_program(functions[part], given[part], f"the {part} of {name}") for part in given}


def _programs(env: EnvBase) -> tuple[dict[str, Callable], dict[str, Tensor]]:
    offered = abilities(env).programs
    if offered is None:
        raise ValueError(
            f"{world_name(env)} cannot be exported: only worlds whose step is a function of tensors (envs.World) can."
        )
    return offered()


def world_record(env: EnvBase) -> dict[str, list]:
    """Return the present record of a world that can be exported: flat lists of numbers by dotted name."""
    _, record = _programs(env)
    return {name: as_list(value) for name, value in record.items()}


def policy_program(env: EnvBase, agent: Agent, ablation: bool = False) -> dict[str, Any]:
    """Return the program of an agent's policy, without sampling, for all agents of one world.

    Args:
        env: the world, with the agent's transforms.
        agent: on the CPU.
        ablation: add the input ``module_factors`` [agents, modules], by which modules can be ablated.

    Raises:
        ValueError: it reads what the world's record does not give, or it cannot be exported.
    """
    part, spec = gated_policy(agent) if ablation else parts(agent)[POLICY], group_spec(env)
    given, leading = _given(env, agent), len(spec.shape)
    rows = 1 if agent.group is None else spec.shape[-1]
    example: dict[str, Tensor] = {}
    for key in part.module.in_keys:
        name = flat_name(key)
        if key in keys.MEMORY or key in agent.memory:
            zero = spec[key].zero()
            example[name] = zero.reshape(-1, *zero.shape[leading:])[:1].expand(rows, *zero.shape[leading:]).clone()
        elif name in given:
            example[name] = given[name]
        elif key in part.examples:
            example[name] = part.examples[key][:1].repeat(rows, 1)
        else:
            raise ValueError(
                f"the policy reads {name!r}, which {world_name(env)} does not give without its transforms: a browser "
                "plays agents without them only."
            )
    return to_program(Plain(part).eval(), example, "the policy")


def _given(env: EnvBase, agent: Agent) -> dict[str, Tensor]:
    """Return the first observations of the world inside the transforms, [agents, ...] by name."""
    root = inner_world(env).reset()[:1]
    if agent.group is not None:
        root = root.get(agent.group)[0]
    return {str(key): value for key, value in root.items() if isinstance(value, Tensor)}
