"""Explanation of one step of a trained agent: its belief, predictions, social predictions, goal and action, and their
errors (``torchrl-agent explain``).
"""

from __future__ import annotations

import base64
import dataclasses
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchrl_agent.core.checkpoint import find_checkpoint
from torchrl_agent.core.run_names import find_run
from torchrl_agent.evaluation.ablation import without
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain.diagnosis import diagnose
from torchrl_agent.explain.page import as_html, as_text, write_html
from torchrl_agent.explain.reference import FILE as REFERENCE
from torchrl_agent.explain.reference import find_reference, make_reference, write_reference
from torchrl_agent.explain.thinking import check_agent, think
from torchrl_agent.explain.thought import Thought, plain
from torchrl_agent.explain.window import draw_window
from torchrl_agent.models.agent import Agent
from torchrl_agent.runs.load import load_agent, load_reward_scaler

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Thought", "as_dict", "as_html", "as_text", "diagnose", "explain", "figures", "keep_reference", "write_page"]

CHOSEN, OTHER, REAL = "#D55E00", "#56B4E9", "#000000"
"""Colors of the chosen option, of the other options, and of the true outcome."""
LINES = (":", "--", "-.", "-")
"""Line styles of the candidates that were not chosen."""
NUMBERS, COLUMNS = 20, 5
"""Largest number of panels of the own state, and of panels in a row."""


def explain(
    run: Path | str,
    step: int = 10,
    world: int = 0,
    agent: int = 0,
    device: str = "auto",
    which: str = "last",
    overrides: Sequence[str] = (),
    ablated: Sequence[str] = (),
    trust: bool = False,
) -> Thought:
    """Return the record of one step of an evaluation episode (fixed seed, most likely actions).

    Args:
        run: a run folder, a checkpoint file inside one, or an agent that comes with the package (``shipped:NAME``).
        step: step of the episode, from 0.
        world: number of the evaluation world.
        agent: number of the agent, 0 in a world of one agent.
        device: device of the world and the agent.
        which: checkpoint, ``last`` or ``best``.
        overrides: changes of the run's configuration, such as other agents in its world.
        ablated: modules to ablate (:func:`torchrl_agent.evaluation.ablation.without`); their outputs are still shown.
        trust: see :func:`~torchrl_agent.runs.load.load_agent`.

    Raises:
        ValueError: there is no such run, world, agent, step or module.
    """
    experiment, player = load_agent(run, device, which, tuple(overrides), trust=trust)
    check_evaluation_world(experiment, world)
    if step < 0:
        raise ValueError(f"--step is {step}: steps are counted from 0.")
    # a world's game depends on seed and row alone, so the rows after it need not be stepped
    env = player.attach(experiment.make_world(evaluation=True, num_envs=world + 1, seed=experiment.evaluation.seed))
    check_agent(env, player, agent)
    with without(player, ablated):
        unit, reference = reward_unit(experiment, find_run(run), which), find_reference(find_run(run), which)
        thought = think(env, player, world, agent, step, unit, reference)
    return dataclasses.replace(thought, ablated=tuple(ablated))


def check_evaluation_world(experiment: Experiment, world: int) -> None:
    """Raise ValueError unless an experiment's evaluation has a world of this number."""
    count = experiment.evaluation.episodes
    if not 0 <= world < count:
        raise ValueError(
            f"there is no evaluation world {world}: the run has {count}, choose a --world of 0 to {count - 1}."
        )


def keep_reference(run: Path, which: str, experiment: Experiment, agent: Agent) -> Path:
    """Write the reference of a healthy agent into its run and return the file's path.

    Raises:
        ValueError: the agent has no modules, or the run cannot be written to.
    """
    checkpoint = find_checkpoint(run, which)
    reference = make_reference(experiment, agent, checkpoint.name, reward_unit(experiment, run, which))
    return write_reference(reference, checkpoint.parent.parent / REFERENCE)


def reward_unit(experiment: Experiment, run: Path, which: str = "last") -> float:
    """Return the divisor of the run's rewards, the unit of its values and imagined rewards."""
    return load_reward_scaler(experiment, run, which).unit.item()


def as_dict(thought: Thought, diagnosis: list[str]) -> dict[str, Any]:
    """Return all numbers of the page as plain lists, without the picture."""
    return {
        **plain(dataclasses.asdict(dataclasses.replace(thought, picture=None)), digits=None),
        "diagnosis": diagnosis,
    }


def write_page(thought: Thought, path: Path) -> Path:
    """Write the page as one self-contained HTML file.

    Raises:
        ValueError: it cannot be written there.
    """
    pictures = {name: _png(figure) for name, figure in figures(thought).items()}
    return write_html(as_html(thought, diagnose(thought), pictures), path)


def figures(thought: Thought) -> dict[str, Figure]:
    """Return Matplotlib figures by name: ``scene`` with the observed windows, ``futures``, own ``states``, retrieved
    memories of others (``found``), and the ``choice`` of goal and action; empty ones are left out.
    """
    drawn = {"choice": _draw_choice(thought)}
    seen = {key: values for key, values in thought.observation.items() if values.ndim == 3}
    if thought.picture is not None or seen:
        drawn["scene"] = _draw_scene(thought, seen)
    if thought.futures is not None:
        drawn["futures"], drawn["states"] = _draw_futures(thought), _draw_states(thought)
    if thought.others is not None and thought.others.found is not None and len(thought.others.number):
        drawn["found"] = _draw_found(thought.others.number.tolist(), thought.others.found)
    return drawn


def _draw_scene(thought: Thought, seen: dict[str, Tensor]) -> Figure:
    """Draw the world, and each observed window."""
    figure, panels = _panels((thought.picture is not None) + len(seen), 4.5)
    for panel in panels:
        panel.set_axis_off()
    if thought.picture is not None:
        panels[0].imshow(thought.picture, interpolation="nearest")
        panels[0].set_title("scene")
    for panel, (key, values) in zip(panels[len(panels) - len(seen) :], seen.items(), strict=True):
        draw_window(panel, key, values, thought.names)
    return figure


def _draw_futures(thought: Thought) -> Figure:
    """Draw imagined rewards of the candidates beside the true rewards."""
    futures = thought.futures
    assert futures is not None
    figure, (rewards,) = _panels(1, 4.0)
    chosen = int(thought.action[0])
    steps = range(1, futures.rewards.shape[1] + 1)
    for index, action in enumerate(futures.actions[:, 0].tolist()):
        color, line = (CHOSEN, "-") if action == chosen else (OTHER, LINES[index % len(LINES)])
        rewards.plot(steps, futures.rewards[index].numpy(), line, color=color, label=thought.names.action(action))
    followed = futures.true_rewards.numpy()
    rewards.plot(steps[: len(followed)], followed, "o", color=REAL, label="what followed")
    rewards.set(title="imagined rewards (orange: what it did)", xlabel="steps ahead", xticks=steps)
    rewards.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _draw_states(thought: Thought) -> Figure:
    """Draw the predicted and the true own state, a panel for each number; of many the ones predicted worst."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    futures, belief = thought.futures, thought.belief
    assert futures is not None and belief is not None, "a world model dreams in beliefs"
    error = (futures.predicted_states - futures.true_states).abs().amax(0)
    shown = error.topk(min(NUMBERS, len(error))).indices.sort().values.tolist()
    rows = math.ceil(len(shown) / COLUMNS)
    figure = Figure(figsize=(2.2 * COLUMNS, 1.6 * rows + 0.4), layout="constrained")
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False, sharex=True).flat)
    for panel, index in zip(panels, shown, strict=False):
        now = belief.proprioception[index : index + 1]
        panel.plot(torch.cat((now, futures.true_states[:, index])).numpy(), color=REAL)
        panel.plot(torch.cat((now, futures.predicted_states[:, index])).numpy(), "--", color=CHOSEN)
        panel.set_title(belief.known_names[index], fontsize="small")
        panel.tick_params(labelsize="x-small")
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    figure.suptitle("own state over the steps ahead: what came (black), what was predicted (dashed)", fontsize="medium")
    return figure


def _draw_found(numbers: list[int], found: Tensor) -> Figure:
    """Draw the weights of earlier steps in the memory retrieved of each other agent."""
    figure, (panel,) = _panels(1, 3.0)
    for number, shares in zip(numbers, found, strict=True):
        panel.plot(shares.numpy(), label=f"agent {number}")
    panel.set(title="steps that what others did is found again from", xlabel="step", ylabel="share")
    panel.legend(fontsize="small")
    return figure


def _draw_choice(thought: Thought) -> Figure:
    """Draw probabilities of goals and actions; for an agent without a policy the values of its actions, and for
    continuous actions the taken ones, with the standard deviation of samples.
    """
    numbers, goal = None if thought.probabilities else thought.numbers, thought.goal
    count = len(thought.probabilities[0]) if numbers is None else len(numbers.taken)
    figure, panels = _panels(1 if goal is None else 2, max(2.5, 0.25 * count))
    panel, names, chosen = panels[-1], [thought.names.action(index) for index in range(count)], int(thought.action[0])
    if numbers is not None:
        spread = None if numbers.squashed else numbers.deviation.numpy()
        panel.barh(range(count), numbers.taken.numpy(), xerr=spread, color=CHOSEN, ecolor=REAL)
        panel.set(title="numbers of the action", yticks=range(count))
        panel.invert_yaxis()
    elif thought.action_values is not None:
        _bars(panel, "action values", names, thought.action_values.values, chosen)
    else:
        _bars(panel, "actions", names, thought.probabilities[0], chosen).set(xlim=(0, 1))
    if goal is not None:
        _bars(panels[0], "goals", goal.names, goal.probabilities, goal.type).set(xlim=(0, 1))
    return figure


def _bars(panel: Axes, title: str, names: list[str], lengths: Tensor, chosen: int) -> Axes:
    colors = [CHOSEN if index == chosen else OTHER for index in range(len(names))]
    panel.barh(names, lengths.numpy(), color=colors)
    panel.invert_yaxis()
    panel.set(title=title)
    return panel


def _panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure  # slow to import, and only needed here; such a figure needs no display

    figure = Figure(figsize=(5.5 * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _png(figure: Figure) -> str:
    """Return the figure as PNG in base64."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return base64.b64encode(buffer.getvalue()).decode()
