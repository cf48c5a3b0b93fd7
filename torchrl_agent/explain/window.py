"""Picture of a window, the agent's observation of the cells around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchrl_agent.explain.thought import Names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Color = tuple[float, float, float]
"""Red, green, blue, 0 to 1."""
EMPTY: Color = (0.08, 0.1, 0.15)
SELF = "#ff4fa3"
"""Color of the agent's own mark."""
NAMED = 9
"""Largest side, in cells, of a window with names in its cells; in larger ones they would be unreadable."""


def draw_window(panel: Axes, key: str, seen: Tensor, names: Names) -> None:
    """Draw each cell in the color of its first channel, and its further channels as discs.

    Args:
        seen: its channels [C, height, width]; a cell is empty if all of its channels are 0.
        names: the world's words and colors; without colors each channel gets one of its own.
    """
    from matplotlib.lines import Line2D  # slow to import, and only needed here
    from matplotlib.patches import Patch

    height, width = seen.shape[1:]
    colors = {index: channel_color(names, key, index) for index in seen.flatten(1).any(1).nonzero().flatten().tolist()}
    picture = torch.tensor(EMPTY).repeat(height, width, 1)
    for y, x in seen.any(0).nonzero().tolist():
        first, *others = seen[:, y, x].nonzero().flatten().tolist()
        picture[y, x] = torch.tensor(colors[first])
        for index in others:
            panel.plot(x, y + 0.25, "o", color=colors[index], markeredgecolor="black", markersize=9)
        if max(height, width) <= NAMED:
            ink = "black" if sum(colors[first]) > 1.2 else "white"
            name = names.channel(key, first).replace(" ", "\n")
            panel.text(x, y - 0.1, name, color=ink, fontsize="xx-small", ha="center", va="center")
    panel.imshow(picture.numpy(), interpolation="nearest")
    panel.plot(
        width // 2, height // 2, "o", markersize=16, markerfacecolor="none", markeredgecolor=SELF, markeredgewidth=2
    )
    marks: list[Patch | Line2D] = [
        Line2D(
            [], [], marker="o", linestyle="", markerfacecolor="none", markeredgecolor=SELF, label="the agent itself"
        ),
        Patch(facecolor=EMPTY, edgecolor="gray", label="empty"),
        *(Patch(color=color, label=names.channel(key, index)) for index, color in colors.items()),
    ]
    panel.legend(handles=marks, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    panel.set_title(f"{key}: what it sees (discs: what else is in a cell)", fontsize="medium")


def channel_color(names: Names, key: str, index: int) -> Color:
    """Return the world's color of a channel; else one of matplotlib's twenty colors."""
    offered = names.colors.get(key, ())
    if index < len(offered):
        red, green, blue = (part / 255 for part in offered[index])
        return red, green, blue
    from matplotlib import colormaps  # slow to import, and only needed here

    red, green, blue, _ = colormaps["tab20"](index % 20)
    return red, green, blue
