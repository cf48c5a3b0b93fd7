"""The page of one explained step: sections of sentences and tables, as text and as HTML."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import torch
from torch import Tensor

from torchrl_agent.core.checkpoint import write_output
from torchrl_agent.core.tables import printable
from torchrl_agent.explain.page_tables import Table, as_html_table, as_lines, as_number, as_numbers
from torchrl_agent.explain.thought import EMPTY, UNSEEN, ActionValues, Belief, Futures, Goal, Names, Others, Thought
from torchrl_agent.modules.dynamics import HIGH_VARIANCE, NOTHING, NOVEL_STATE

REASONS = {NOTHING: "none", NOVEL_STATE: "novel state", HIGH_VARIANCE: "high variance"}
"""Reasons of low confidence, in words."""
SHOWN = 24
"""Largest number of values shown of an observation without names."""
SMALLEST = 0.005
"""Values of an observation with names that are smaller round to 0 and are left out."""
STEPS = 8
"""Largest number of steps of an imagined future whose rewards are shown."""
CELLS = 4
"""Largest number of cells of a window's channel that are listed one by one."""
UNLIKELY = 0.01
"""Actions below this probability, unless chosen, and earlier steps below this weight are left out."""
FOUND = 5
"""Largest number of earlier steps that are listed of a retrieved memory."""
COLUMNS = 120
"""Width of the text for a terminal; longer sentences are wrapped."""
STYLE = """body { font: 15px/1.45 sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; margin: .6em 0 } th, td { padding: .15em .7em; text-align: left }
th { border-bottom: 1px solid #888 } tr:nth-child(even) td { background: #f3f3f3 } img { max-width: 100% }"""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    body: list[str | Table]
    pictures: list[str] = field(default_factory=list)
    """Names of the pictures that belong here."""


def sections(thought: Thought, diagnosis: list[str]) -> list[Section]:
    """Return the sections of the page in their order; modules that the agent lacks are left out."""
    names, chosen = thought.names, int(thought.action[0])
    parts = [Section("Scene", _scene(thought), ["scene"])]
    if thought.belief is not None:
        parts.append(Section("Perception: belief and truth", _belief(thought.belief, thought)))
        if thought.futures is not None:
            body = _futures(thought.futures, thought.belief, names, chosen)
            parts.append(Section("World model: imagined futures", body, ["futures", "states"]))
    if thought.others is not None:
        parts.append(Section("Social model: the others", _others(thought.others, names), ["found"]))
    choice = [*_goal(thought.goal), *_choice(thought)]
    title = "Policy: action" if thought.goal is None else "Policy: goal and action"
    parts.append(Section(title if thought.action_values is None else "Action values", choice, ["choice"]))
    return [*parts, Section("Diagnosis", list(diagnosis))]


def headline(thought: Thought) -> str:
    """Return the title: step, agent, world and ablated modules."""
    who = "the agent" if thought.agent is None else f"agent {thought.agent}"
    without = f"; ablated: {', '.join(thought.ablated)}" if thought.ablated else ""
    steps = f"steps 0 to {thought.length - 1} of its episode"
    return f"Step {thought.step} of {who} in world {thought.world} ({steps}{without})"


def as_text(thought: Thought, diagnosis: list[str]) -> str:
    """Return the page as text for a terminal."""
    lines = [headline(thought)]
    for section in sections(thought, diagnosis):
        lines += ["", section.title, "-" * len(section.title)]
        for part in section.body:
            if isinstance(part, str):
                lines += textwrap.wrap(printable(part), COLUMNS, subsequent_indent="  ")
            else:
                lines += as_lines(part)
    return "\n".join(lines)


def as_html(thought: Thought, diagnosis: list[str], pictures: dict[str, str]) -> str:
    """Return the page as self-contained HTML.

    Args:
        pictures: PNG in base64 by name; missing ones are left out.
    """
    parts = [f"<h1>{escape(headline(thought))}</h1>"]
    for section in sections(thought, diagnosis):
        parts.append(f"<h2>{escape(section.title)}</h2>")
        parts += [
            f'<img alt="{name}" src="data:image/png;base64,{pictures[name]}">'
            for name in section.pictures
            if name in pictures
        ]
        parts += [f"<p>{escape(part)}</p>" if isinstance(part, str) else as_html_table(part) for part in section.body]
    head = f'<meta charset="utf-8"><title>{escape(headline(thought))}</title><style>{STYLE}</style>'
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def write_html(text: str, path: Path) -> Path:
    """Write a page and return its path.

    Raises:
        ValueError: the name does not end in .html, or it cannot be written there.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page cannot be written as {path.name!r}: use a name that ends in .html.")
    return write_output(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _scene(thought: Thought) -> list[str | Table]:
    lines: list[str | Table] = []
    for name, values in thought.observation.items():
        if values.ndim == 1:
            lines.append(f"{name}: {_vector(name, values, thought.names)}")
        else:
            lines += [f"{name}: {line}" for line in _window(name, values, thought.names)]
    return lines


def _vector(name: str, values: Tensor, names: Names) -> str:
    """Return the numbers [K] of an observation by name, without those that are 0; where the world has no names, the
    first numbers.
    """
    if name not in names.observation:
        more = f" ... ({len(values)} numbers)" if len(values) > SHOWN else ""
        return " ".join(as_number(value) for value in values[:SHOWN]) + more
    entries = [
        f"{names.seen(name, index)} {as_number(value)}" for index, value in enumerate(values) if abs(value) >= SMALLEST
    ]
    rest = [] if len(entries) == len(values) else ["the rest 0" if entries else "0"]
    return ", ".join(entries + rest)


def _window(name: str, picture: Tensor, names: Names) -> list[str]:
    """Return the content of the channels [C, height, width] of a picture around the agent, in words."""
    lines, (height, width) = [], picture.shape[1:]
    for index, channel in enumerate(picture):
        cells = channel.nonzero().tolist()
        if len(cells) > CELLS:
            lines.append(f"{names.channel(name, index)} in {len(cells)} cells")
        elif cells:
            where = ", ".join(_way(x - width // 2, y - height // 2) for y, x in cells)
            lines.append(f"{names.channel(name, index)} {where}")
    return lines or ["nothing"]


def _way(right: int, down: int) -> str:
    across = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    along = f"{abs(down)} {'down' if down > 0 else 'up'}" if down else ""
    return " ".join(part for part in ("at", across, along) if part) if right or down else "here"


def _uncertainty(belief: Belief) -> str:
    if belief.usual is None:
        return "uncertainty: not known, as no loss of perception's own trains it"
    times = math.exp(belief.uncertainty - belief.usual)
    return (
        f"uncertainty: mean log_std {belief.uncertainty:.3f}, in this episode {belief.usual:.3f}: its deviation is "
        f"{times:.2f} times the usual one"
    )


def _belief(belief: Belief, thought: Thought) -> list[str | Table]:
    body: list[str | Table] = [
        _uncertainty(belief),
        Table(
            ["it knows of itself", "value"],
            [(name, as_number(value)) for name, value in zip(belief.known_names, belief.proprioception, strict=True)],
        ),
    ]
    need, meters = (thought.privileged.get(name) for name in ("others_need", "others_meters"))
    if thought.visible is None or need is None or meters is None:
        return body
    names, seen = thought.names, (thought.visible != EMPTY).nonzero().squeeze(-1).tolist()
    if not seen:
        return [*body, "the truth it cannot see: no other agent is in sight"]
    header = ["the truth it cannot see", "needs", *(names.meter(index) for index in range(meters.shape[1]))]
    rows = [
        (f"agent {thought.visible[slot]}", names.meter(int(need[slot])), *(as_number(value) for value in meters[slot]))
        for slot in seen
    ]
    return [*body, Table(header, rows)]


def _futures(futures: Futures, belief: Belief, names: Names, chosen: int) -> list[str | Table]:
    first, horizon = futures.actions[:, 0].tolist(), futures.actions.shape[1]
    per = min(horizon, STEPS)
    more = "" if horizon <= STEPS else " ..."
    ends = 1 - torch.cumprod(1 - futures.dones, -1)[:, -1]
    labels = [names.action(action) + (" *" if action == chosen else "") for action in first]
    returns, rewards = as_numbers(futures.expected_return), as_numbers(futures.rewards[:, :STEPS])
    candidates = [
        (
            label,
            returns[index],
            " ".join(rewards[index * per : (index + 1) * per]) + more,
            f"{ends[index]:.0%}",
            f"{futures.confidence[index]:.2f}",
            REASONS[int(futures.reason[index])],
            *([] if futures.gains is None else [f"{futures.gains[index]:+.2f}"]),
        )
        for index, label in enumerate(labels)
    ]
    states = [
        (name, *as_numbers(torch.cat((belief.proprioception[row : row + 1], futures.states[:, -1, row]))))
        for row, name in enumerate(belief.known_names)
    ]
    error = (futures.predicted_states - futures.true_states).abs()
    rewards = as_numbers(torch.cat((futures.predicted_rewards, futures.true_rewards)))
    followed = [
        (
            str(step + 1),
            rewards[step],
            rewards[step + len(error)],
            f"{futures.predicted_dones[step]:.0%}",
            "yes" if futures.true_dones[step] else "no",
            f"{error[step].mean():.3f}",
            f"{error[step].max():.3f} ({belief.known_names[int(error[step].argmax())]})",
        )
        for step in range(len(error))
    ]
    gains = [] if futures.gains is None else ["logit gains"]
    return [
        Table(
            ["first action", "return", f"rewards of {horizon} steps", "ends", "confidence", "doubt", *gains], candidates
        ),
        f"* what it did. Own state predicted after {horizon} steps of each:",
        Table(["own state", "now", *labels], states),
        "What it predicts of the actions that it then really took, and what followed:",
        Table(["step", "reward", "was", "end", "came", "error of own state", "largest"], followed),
    ]


def _others(others: Others, names: Names) -> list[str | Table]:
    if not len(others.number):
        return ["no other agent is in sight"]
    minds, meters = [], []
    for slot, number in enumerate(others.number.tolist()):
        need, act = int(others.goal[slot].argmax()), int(others.next_action[slot].argmax())
        acted = int(others.true_next_action[slot])
        minds.append(
            (
                f"agent {number}",
                f"{names.meter(need)} {others.goal[slot, need]:.0%}",
                "unknown" if others.true_goal is None else names.meter(int(others.true_goal[slot])),
                f"{names.action(act)} {others.next_action[slot, act]:.0%}",
                "unknown" if acted == UNSEEN else names.action(acted),
                f"{others.confidence[slot]:.2f}",
                REASONS[int(others.reason[slot])],
                *(() if others.attention is None else (f"{others.attention[slot]:.0%}",)),
            )
        )
        meters.append((f"agent {number}: it thinks", *(as_number(value) for value in others.meters[slot])))
        if others.true_meters is not None:
            meters.append(("true", *(as_number(value) for value in others.true_meters[slot])))
    header = ["", *(names.meter(number) for number in range(others.meters.shape[1]))]
    attention = [] if others.attention is None else ["attention"]
    return [
        Table(["other", "need", "true", "next action", "true", "confidence", "doubt", *attention], minds),
        Table(header, meters),
        *([] if others.found is None else map(_found, others.number.tolist(), others.found)),
    ]


def _found(number: int, shares: Tensor) -> str:
    """Return the steps of the largest weights, in the order of the episode."""
    steps = shares.topk(min(FOUND, len(shares))).indices.sort().values.tolist()
    found = [f"step {step} {shares[step]:.0%}" for step in steps if shares[step] >= UNLIKELY]
    return f"what agent {number} did in moments like this one, found again from: {', '.join(found) or 'nothing'}"


def _goal(goal: Goal | None) -> list[str | Table]:
    if goal is None:
        return []
    targets = [
        f"{name} {target:.2f} (now {level:.2f})"
        for name, target, level in zip(goal.meter_names, goal.target, goal.meters, strict=True)
        if target > 0
    ]
    age, order = goal.steps - goal.steps_left, goal.probabilities.argsort(descending=True).tolist()
    ranked = ", ".join(f"{goal.names[index]} {goal.probabilities[index]:.0%}" for index in order)
    when = "chosen in this step" if goal.decided else f"chosen {age} step{'' if age == 1 else 's'} ago"
    until = "its targets are met, at most" if targets else "its time is up,"
    return [
        f"goal {goal.names[goal.type]}, {when}: the agent keeps it until {until} {goal.steps_left} more steps",
        f"targets: {', '.join(targets) or 'none'}",
        f"if it chose now, by probability: {ranked}",
    ]


def _choice(thought: Thought) -> list[str | Table]:
    chosen = int(thought.action[0])
    body: list[str | Table] = []
    if thought.action_values is not None:
        body += _values(thought.action_values, thought.names, chosen)
    elif thought.probabilities:
        body += _probabilities(thought, chosen)
    if thought.numbers is not None:
        numbers, when = thought.numbers, " before squashing" if thought.numbers.squashed else ""
        rows = zip(numbers.taken, numbers.mean, numbers.deviation, strict=True)
        table = [(str(number), *(f"{value:.3f}" for value in row)) for number, row in enumerate(rows)]
        body.append(Table(["number of the action", "taken", f"mean{when}", f"standard deviation{when}"], table))
    worth = "value of the pay to come for this goal" if thought.goal and thought.goal.option else "state value"
    body.append(
        f"{worth} {thought.value:.3f}, reward of this step {thought.reward:.3f} (in units of "
        f"{thought.reward_unit:.3g} of the world's reward)"
    )
    return body


def _probabilities(thought: Thought, chosen: int) -> list[str | Table]:
    probabilities = thought.probabilities[0]
    order = probabilities.argsort(descending=True).tolist()
    rows = [
        (_starred(thought.names, index, chosen), f"{probabilities[index]:.1%}")
        for index in order
        if probabilities[index] >= UNLIKELY or index == chosen
    ]
    body: list[str | Table] = [Table(["action (* chosen)", "probability"], rows)]
    others = [
        (thought.names.head(head), *_choices(thought.names, head, int(choice), values))
        for head, (choice, values) in enumerate(zip(thought.action[1:], thought.probabilities[1:], strict=False), 1)
    ]
    return [*body, Table(["head of the action", "chosen", "others"], others)] if others else body


def _choices(names: Names, head: int, chosen: int, probabilities: Tensor) -> tuple[str, str]:
    """Return what a head chose, and what else it might have chosen, with probabilities [values]."""
    order = probabilities.argsort(descending=True).tolist()
    likely = [index for index in order if probabilities[index] >= UNLIKELY and index != chosen]
    words = {index: f"{names.choice(head, index)} {probabilities[index]:.1%}" for index in (chosen, *likely)}
    return words.pop(chosen), ", ".join(words.values()) or "-"


def _values(action_values: ActionValues, names: Names, chosen: int) -> list[str | Table]:
    values, legal = action_values.values, action_values.legal
    order = values.argsort(descending=True).tolist()
    rows = [
        (_starred(names, index, chosen), f"{values[index]:.3f}{'' if legal[index] else ' (illegal)'}")
        for index in order
    ]
    return [
        Table(["action (* chosen)", "action value"], rows),
        f"greedy: it takes the legal action of the highest value; in training it was epsilon-greedy, with a random "
        f"legal action in {action_values.epsilon:.1%} of the steps when this checkpoint was written",
    ]


def _starred(names: Names, index: int, chosen: int) -> str:
    return names.action(index) + (" *" if index == chosen else "")
