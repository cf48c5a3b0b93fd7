"""A policy that acts in a window, at the world's own pace."""

from __future__ import annotations

import time
from typing import Any

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys
from torchrl_agent.core.abilities import abilities, world_name
from torchrl_agent.experiment import Experiment
from torchrl_agent.runs.film import film_rate, film_world
from torchrl_agent.training.collector import play


def live_world(experiment: Experiment) -> EnvBase:
    """One evaluation world that is visible while a policy acts in it: with its ``live_arguments``, such as
    ``render_mode="human"``, which opens a window of its own, or one that can be drawn.
    """
    world = film_world(experiment, 1, live=True)
    if abilities(world).live_arguments:
        return world
    world.close()
    return film_world(experiment, 1)


@torch.no_grad()
def play_live(
    env: EnvBase, policy: TensorDictModuleBase, steps: int, deterministic: bool = True, fps: float | None = None
) -> int:
    """Run a policy in the first world of ``env`` until its episode ends; return the number of steps.

    Args:
        env: a world of :func:`live_world`; one with ``draw`` gets a :class:`Window`.
        fps: steps per second in a :class:`Window`; by default the world's rate.

    Raises:
        ValueError: the world cannot be seen, or there is no display.
    """
    draw = abilities(env).draw
    if draw is None and not abilities(env).live_arguments:
        raise ValueError(
            f"{world_name(env)} can be neither drawn nor opened in a window of its own: give it a draw method."
        )
    window = None if draw is None else Window(world_name(env))
    pace = 1 / (film_rate(env) if fps is None else fps)
    mode = ExplorationType.DETERMINISTIC if deterministic else ExplorationType.RANDOM
    played = 0
    with set_exploration_type(mode):
        for frame in play(env, policy, env.reset(), steps):
            played += 1
            if window is not None and draw is not None and not window.show(draw(0), pace):
                break
            if bool(frame.get((keys.NEXT, keys.DONE))[0]):
                break
    return played


class Window:
    """A window of matplotlib's that shows one picture after another.

    Raises:
        ValueError: there is no display.
    """

    def __init__(self, title: str) -> None:
        from matplotlib import pyplot
        from matplotlib.backends import BackendFilter, backend_registry

        if pyplot.get_backend().lower() not in backend_registry.list_builtin(BackendFilter.INTERACTIVE):
            raise ValueError("there is no display to open a window on: make a film instead, without --live.")
        self.pyplot = pyplot
        self.image: Any = None
        self.figure: Any = pyplot.figure(title)
        self.next = time.monotonic()

    def show(self, picture: Any, seconds: float) -> bool:
        """Show a picture for this many seconds; return True if the window is still open."""
        if self.image is None:
            axes = self.figure.add_axes((0, 0, 1, 1))
            axes.axis("off")
            self.image = axes.imshow(picture)
        self.image.set_data(picture)
        self.next = max(self.next + seconds, time.monotonic())
        self.pyplot.pause(max(1e-3, self.next - time.monotonic()))
        return bool(self.pyplot.fignum_exists(self.figure.number))
