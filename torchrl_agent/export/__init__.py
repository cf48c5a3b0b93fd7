"""Export of a trained agent to a file that runs without this project: a PyTorch program (torch.export), or ONNX for
other runtimes.

The inputs and outputs of a file are named tensors of any number of rows, and it keeps no state between calls: an agent
with memory takes its states as inputs, and ``is_init`` where an episode begins. The frozen normalizer is included. In
a world of several agents it is one agent's module, and a row is an agent.
"""

from __future__ import annotations

import importlib.util
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.data import Composite

from torchrl_agent.core import keys
from torchrl_agent.core.checkpoint import find_checkpoint, versions, write_json, write_output
from torchrl_agent.core.run_names import find_run, output_of
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.experiment import Experiment
from torchrl_agent.export import game, run_folder
from torchrl_agent.export.parts import Part, Plain, flat_name, gated_policy, meaning, parts
from torchrl_agent.export.preparation import prepared
from torchrl_agent.models.agent import Agent
from torchrl_agent.modules.specs import group_spec
from torchrl_agent.runs.load import load_agent

SUFFIXES = {"torch_export": ".pt2", "onnx": ".onnx"}
"""File suffixes by format."""
ONNX_PACKAGES = ("onnx", "onnxscript")
BATCH = "batch"

__all__ = ["check_format", "export_run", "trace"]


def export_run(
    run: Path | str,
    module: str = "policy",
    format: str = "torch_export",
    output: Path | str | None = None,
    checkpoint: str = "last",
    trust: bool = False,
    ablation: bool = False,
) -> list[Path]:
    """Write a part of a run's agent as a file, with a JSON file beside it that describes its inputs and outputs.

    Args:
        run: a run folder, a checkpoint file inside one, or an agent that comes with the package (``shipped:NAME``).
        module: ``perception`` (observations to beliefs), ``world_model`` (a belief and a plan to futures),
            ``social_model`` (agents in sight to predictions of them), ``manager`` or a module of your own (observations
            to what the controller reads of it), ``policy`` (observations to actions: the whole agent), or ``all`` that
            the agent has.
        format: ``torch_export`` (read by ``torch.export.load``), ``onnx``, ``program`` for a browser (policy or
            ``world``: see :func:`~torchrl_agent.export.game.write_program`), or ``run``: a run folder to share, see
            :func:`~torchrl_agent.export.run_folder.write_run`.
        output: the file, or the folder of the files of ``all`` or of the run; by default ``<module>.pt2`` or ``.onnx``
            in the run.
        checkpoint: ``last`` or ``best``.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.
        ablation: give the policy a further input ``module_factors``, by which its modules can be ablated.

    Returns:
        the files written, without their JSON files; the folder of a run.

    Raises:
        ValueError: the agent has no such part, the format is unknown or its packages are missing, the part cannot be
            traced, or the output cannot be written.
    """
    run = find_run(run)
    if ablation and (module != game.POLICY or format == run_folder.FORMAT):
        raise ValueError(f"--ablation adds an input to a policy, not to {module} as {format}: leave it out.")
    if format == run_folder.FORMAT:
        _check_whole(module)
        return [run_folder.write_run(run, output, checkpoint, trust)]
    if format == game.FORMAT:
        return [game.write_program(run, module, output, checkpoint, trust, ablation)]
    check_format(format)
    experiment, agent = load_agent(run, "cpu", checkpoint, trust=trust)
    gated = {game.POLICY: gated_policy(agent)} if ablation else {}
    found, outside = prepared(parts(agent) | gated, experiment)
    if module != "all" and module not in found:
        hint = (
            "" if module == "policy" else "; a perception comes with model.memory=gru or model.perception.enabled=true"
        )
        raise ValueError(f"this agent has no module {module!r} to export: use {', '.join(found)} or all{hint}.")
    path = find_checkpoint(run, checkpoint)
    written = []
    for name in found if module == "all" else [module]:
        target = _target(run, name, format, output, several=module == "all")
        origin = {
            "folder": path.parent.parent.resolve().name,
            "checkpoint": path.name,
            "config": experiment.name,
            "config_hash": experiment.hash(),
            "world": {**outside.world, **outside.evaluation.world},  # with what prepares the inputs
        }
        _write(target, found[name], name, format, _example(experiment, agent, found[name]), origin)
        written.append(target)
    return written


def check_format(format: str) -> None:
    """Raise ValueError if there is no such format, or if the packages that it needs are missing."""
    if format not in SUFFIXES:
        known = (*SUFFIXES, game.FORMAT, run_folder.FORMAT)
        raise ValueError(f"format {format!r} is unknown{did_you_mean(format, known)}: use one of {', '.join(known)}.")
    missing = [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if format == "onnx" and missing:
        raise ValueError(
            f"format onnx needs {' and '.join(missing)}, not installed here: pip install 'torchrl-agent[export]'."
        )


def _check_whole(module: str) -> None:
    if module != "policy":
        raise ValueError(f"format {run_folder.FORMAT} writes the whole agent, not {module} alone: leave --module out.")


def trace(part: Part, example: dict[str, Tensor]) -> torch.export.ExportedProgram:
    """Trace the part as a program for any number of rows."""
    rows = ({name: {0: torch.export.Dim(BATCH, min=1)} for name in example},)
    with torch.no_grad():
        program = torch.export.export(Plain(part).eval(), (example,), dynamic_shapes=rows, strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # which would reveal the code's path on this machine
    return program


def _example(experiment: Experiment, agent: Agent, part: Part) -> dict[str, Tensor]:
    """Return two rows of input to trace the part with: all zeros, every action legal."""
    spec: Composite = group_spec(agent.attach(experiment.make_world(evaluation=True, num_envs=2)))
    example = {}
    for key in part.module.in_keys:
        if key in part.examples:
            example[flat_name(key)] = part.examples[key]
        elif key in spec.keys():
            rows = spec[key].zero().reshape(-1, *spec[key].shape[len(spec.shape) :])[:2]
            example[flat_name(key)] = torch.ones_like(rows) if key == keys.ACTION_MASK else rows.clone()
    return example


def _write(path: Path, part: Part, name: str, format: str, example: dict[str, Tensor], origin: dict[str, Any]) -> None:
    try:
        with _quiet():
            program = trace(part, example)
            content = _torch_bytes(program) if format == "torch_export" else _onnx_bytes(program, part, example)
    except Exception as error:  # tracing fails in as many ways as there are modules
        reason = str(error).strip().split("\n")[0][:200]
        raise ValueError(
            f"the {name} of this agent cannot be exported as {format} ({type(error).__name__}: {reason})."
        ) from None
    with torch.no_grad():
        result = Plain(part)(example)
    description = {
        "module": name,
        "format": format,
        "file": path.name,
        "inputs": [_describe(part, key, example[flat_name(key)]) for key in _inputs(part, example)],
        "outputs": [_describe(part, key, result[flat_name(key)]) for key in part.out_keys],
        "run": origin,
        "versions": {**versions(), **({name: version(name) for name in ONNX_PACKAGES} if format == "onnx" else {})},
    }
    write_output(path, lambda temporary: temporary.write_bytes(content))
    write_output(path.with_name(f"{path.name}.json"), lambda temporary: write_json(temporary, description))


def _torch_bytes(program: torch.export.ExportedProgram) -> bytes:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _onnx_bytes(program: torch.export.ExportedProgram, part: Part, example: dict[str, Tensor]) -> bytes:
    converted: Any = torch.onnx.export(
        program,
        dynamo=True,
        input_names=list(example),
        output_names=[flat_name(key) for key in part.out_keys],
        dynamic_shapes=({name: {0: BATCH} for name in example},),  # names the dimension of rows
        verbose=False,
    )
    return _without_metadata(converted.model_proto).SerializeToString()


def _without_metadata(model: Any) -> Any:
    """Return the model without the exporter's notes on where each node comes from, nearly half of the file."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer, *graph.value_info):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Context that suppresses the exporters' messages about their own packages."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _inputs(part: Part, example: dict[str, Tensor]) -> list[NestedKey]:
    """Return the part's inputs, in the order of the example."""
    return [key for key in part.module.in_keys if flat_name(key) in example]


def _describe(part: Part, key: NestedKey, value: Tensor) -> dict[str, Any]:
    dtype, what = str(value.dtype).removeprefix("torch."), part.meanings.get(key, meaning(key))
    return {"name": flat_name(key), "shape": [BATCH, *value.shape[1:]], "dtype": dtype, "meaning": what}


def _target(run: Path, name: str, format: str, output: Path | str | None, several: bool) -> Path:
    suffix = SUFFIXES[format]
    if output is None:
        return output_of(run, f"{name}{suffix}")
    if several:
        return Path(output) / f"{name}{suffix}"
    if Path(output).suffix != suffix:
        raise ValueError(f"--output is {output}: files of format {format} end in {suffix}.")
    return Path(output)
