"""Gymnasium's worlds as batched TorchRL worlds, for all observation and action spaces, with true last observations."""

from __future__ import annotations

import functools
import importlib.util
import logging
import multiprocessing
import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.error import DependencyNotInstalled, NameNotFound, NamespaceNotFound, VersionNotFound
from gymnasium.spaces import Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded, Categorical, Composite, MultiCategorical, TensorSpec, Unbounded
from torchrl.envs import EnvBase
from typing_extensions import override

from envs.base.arguments import MOST_OBJECTS, checked_device, checked_number, checked_repeat
from envs.libs import Drawn, picture, to_device
from envs.libs.goals import goal_outcome
from envs.libs.gymnasium_packages import import_package
from envs.libs.gymnasium_world import EPISODE_INFO, PlainWorld
from envs.libs.gymnasium_wrappers import usual_wrappers, wrapped
from envs.libs.spaces import ACTION_MASK

logger = logging.getLogger(__name__)

PROBED_STEPS, PROBED_SECONDS = 50, 1.0
"""Largest number of probing steps and their time limit [s], to measure a world's step time and find its statistics."""
DEAR = 2e-3
"""Step time [s] above which worlds are worth a process each: messages cost some 0.5 ms of it."""
NO_BOUND = 1e38
"""Substitute in specs for a missing bound of an action that has only the other one; agents treat it as no bound."""
PATIENCE = 300.0
"""Time limit for a step of a world in a process of its own [s]."""


class HostStep(NamedTuple):
    """Result of a step of all worlds, as arrays of which the next step may overwrite the observations."""

    shown: dict[str, NDArray]
    """Observations by name, [N, ...]."""
    reward: NDArray
    terminated: NDArray
    truncated: NDArray
    episode: dict[str, NDArray]
    """Statistics of the episodes by name, [N, 1] each."""


class VectorGymEnv(Drawn, EnvBase):
    """``num_envs`` worlds of Gymnasium, reset by TorchRL.

    TorchRL 0.14.1's ``GymEnv`` builds Gymnasium 1.x vector environments that reset themselves one step late: the last
    observation of an episode is lost, and a frame without an effect of its action follows it. Neither happens here.

    ``envs/libs/spaces.py`` flattens the observation and action spaces: one key for each part of an observation,
    ``observation`` where there is only one; actions count from 0. ``action_mask`` shows the legal ones, if the world
    has it in its observation, in ``info``, or as a method. Numbers in ``info`` become episode statistics,
    ``info_NAME``: their means over the episode; for ``is_success`` and ``success`` their values at its end.

    Args:
        env_name: Gymnasium's id, such as ``CartPole-v1``, or a function that makes a world; ``module:id`` imports the
            module first, as POPGym's worlds need it: ``popgym:popgym-RepeatPreviousEasy-v0``.
        num_envs: number of worlds.
        shown: indices of the (vector) observation's components that agents observe, such as [0, 2] for CartPole without
            its velocities; None for all.
        atari: the usual Atari preprocessing (Machado et al. 2018): up to 30 idle steps at first, each action for 4
            frames of which the last two count as one, 84 x 84 gray pixels, the last 4 pictures.
        episode_life: (Atari) the loss of a life ends an episode; the game restarts then.
        frame_skip: number of steps for which each action is repeated, in each world by itself.
        wrappers: Gymnasium's, by name, in order: ``[{FrameStackObservation: {stack_size: 4}}, ClipReward]``. The usual
            ones have keys of their own, which come first: ``noop_start``, ``max_and_skip``, ``sticky_actions``,
            ``gray``, ``resize`` and ``frame_stack`` (see ``gymnasium_wrappers.USUAL``).
        from_pixels: show the world's rendered picture, ``pixels``, instead of its observation.
        pixels_only: False to show the observation beside it.
        processes: True to step each world in a process of its own; by default where steps are expensive enough.
        render_mode: ``rgb_array`` for worlds that can be drawn, ``human`` for a window.
        device: device of the tensors.
        **kwargs: the world's own arguments, such as ``max_episode_steps``.

    Attributes:
        time_limit: number of steps after which an episode is truncated; None if unknown.
        goal_outcome: rewards and terminations under other goals (see ``envs/libs/goals.py``); None for worlds without
            goals.
        action_choices: numbers of categories of the choices that precede the numbers in an action of both kinds; else
            empty.

    Raises:
        ValueError: there is no such world, its package is not installed, or a part of its spaces has no fixed size.
    """

    steps_arrays = True
    """True, as :meth:`begin` and :meth:`play` step it without tensordicts."""

    def __init__(
        self,
        env_name: str | Callable[..., gymnasium.Env],
        num_envs: int = 1,
        *,
        shown: Sequence[int] | None = None,
        atari: bool = False,
        episode_life: bool = False,
        frame_skip: int = 1,
        wrappers: Sequence[str | Mapping[str, Any]] = (),
        from_pixels: bool = False,
        pixels_only: bool = True,
        processes: bool | None = None,
        render_mode: str | None = None,
        device: torch.device | str | None = None,
        categorical_action_encoding: bool = True,
        **kwargs: Any,
    ) -> None:
        if not categorical_action_encoding:
            raise ValueError("categorical_action_encoding is false: actions are numbers here, leave it out.")
        num_envs = checked_number(num_envs, MOST_OBJECTS)
        super().__init__(device=checked_device(device), batch_size=torch.Size([num_envs]))
        self.env_name = env_name if isinstance(env_name, str) else getattr(env_name, "__name__", str(env_name))
        self.render_mode = render_mode
        render_mode = render_mode or ("rgb_array" if from_pixels else None)
        wrappers = [*usual_wrappers(kwargs), *wrappers]
        by_ale = atari and not (wrappers or episode_life or frame_skip != 1 or render_mode or processes is not None)
        if atari:
            kwargs["frameskip"] = 1
            preprocessing = {"AtariPreprocessing": {"terminal_on_life_loss": episode_life}}
            wrappers = [preprocessing, {"FrameStackObservation": {"stack_size": 4}}, *wrappers]
        if frame_skip != 1:
            wrappers = [{"RepeatAction": {"num_repeats": checked_repeat(frame_skip)}}, *wrappers]
        make = partial(
            _make_world,
            maker=partial(_make, env_name, self.env_name, {**kwargs, "render_mode": render_mode}),
            name=self.env_name,
            wrappers=wrappers,
            pixels=None if not from_pixels else pixels_only,
            shown=None if shown is None else list(shown),
        )
        self._env: Any = None
        self._info: list[tuple[str, ...]]
        seconds, mask_source = self._find_out(make)
        if by_ale:
            from envs.libs.ale import AleVector  # needs an extra

            self._env, self._info = AleVector(self.env_name, num_envs), []
        else:
            if processes is None:
                processes = num_envs > 1 and (os.cpu_count() or 1) > 1 and render_mode is None and seconds > DEAR
            makers = [partial(make, mask_source=mask_source, info=self._info)] * num_envs
            self._env = _vectorized(makers, processes)
        self._make_specs()
        self._seeds: list[int] | None = None

    def _find_out(self, make: Callable[[], PlainWorld]) -> tuple[float, str | None]:
        """Probe one world with random steps to find its observations, actions and statistics; return the seconds per
        step, and the source of its action mask.
        """
        probe = make()
        self.goal_outcome, self._goal_world = None, probe
        try:
            seconds, self._info = self._call("the first steps", lambda: probe.try_out(PROBED_STEPS, PROBED_SECONDS))
            self._actions, self._parts, self.metadata = probe.actions, probe.parts, dict(probe.metadata)
            self._masked = probe.mask_source is not None
            self.action_choices = tuple(self._actions.sizes) if self._actions.mixed else ()
            limit = None if probe.spec is None else probe.spec.max_episode_steps
            self.time_limit = limit or getattr(probe.unwrapped, "max_steps", None)
            for name in probe.left_out:
                _warn_of_text(str(self.env_name), name)
            self.goal_outcome = goal_outcome(probe.env)
            return seconds, probe.mask_source
        finally:
            if self.goal_outcome is None:
                probe.close()

    def _make_specs(self) -> None:
        n, device = self.batch_size[0], self.device
        shown = Composite(shape=self.batch_size, device=device)
        for part in self._parts:
            low, high = (torch.as_tensor(end, device=device) for end in (part.space.low, part.space.high))
            shown[part.name] = (
                Bounded(low.expand(n, *low.shape), high.expand(n, *low.shape), (n, *low.shape), device, low.dtype)
                if bool(low.isfinite().any() | high.isfinite().any())
                else Unbounded((n, *low.shape), device=device)
            )
        if self._masked:
            shown[ACTION_MASK] = Categorical(2, (n, sum(self._actions.sizes)), device=device, dtype=torch.bool)
        self._figures = [re.sub(r"\W+", "_", "_".join(("info", *path))) for path in self._info]
        names = ["return", "length", *self._figures]
        shown["episode"] = Composite({name: Unbounded((n, 1), device=device) for name in names}, shape=self.batch_size)
        self.observation_spec = shown
        self.action_spec = self._make_action_spec(n)
        self.reward_spec = Unbounded((n, 1), device=device)
        flag = Categorical(2, (n, 1), device=device, dtype=torch.bool)
        self.done_spec = Composite(
            done=flag, terminated=flag.clone(), truncated=flag.clone(), shape=self.batch_size, device=device
        )

    def _make_action_spec(self, n: int) -> TensorSpec:
        actions, device = self._actions, self.device
        if not len(actions.low):
            if isinstance(actions.shown, Discrete):
                return Categorical(actions.sizes[0], (n,), device=device)
            return MultiCategorical(actions.sizes, (n, len(actions.sizes)), device=device)
        if np.isinf(actions.shown.low).all() and np.isinf(actions.shown.high).all():
            return Unbounded((n, len(actions.low)), device=device)
        low, high = (
            torch.as_tensor(end, device=device).expand(n, -1).clone() for end in (actions.shown.low, actions.shown.high)
        )
        low, high = (end.clamp(-NO_BOUND, NO_BOUND) for end in (low, high))  # TorchRL samples none from infinite
        return Bounded(low, high, low.shape, device=device, dtype=torch.float32)

    # --- stepping ----------------------------------------------------------------------------------------------------

    @override
    def _set_seed(self, seed: int | None) -> None:
        self._seeds = None if seed is None else [seed + row for row in range(self.batch_size[0])]

    @override
    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        rows = None if tensordict is None else tensordict.get("_reset", None)
        return self._shown(self.begin(None if rows is None else rows.reshape(-1).cpu().numpy()))

    @override
    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        played = self.play(tensordict.get(self.action_key).cpu().numpy())
        result = self._shown(played.shown)
        result.set("reward", self._column(played.reward))
        over, cut = self._column(played.terminated), self._column(played.truncated)
        return result.update({"terminated": over, "truncated": cut, "done": over | cut})

    def begin(self, rows: NDArray | None = None) -> dict[str, NDArray]:
        """Begin episodes in some worlds, bool [N], or in all; return the observations of all worlds by name, arrays
        that the next call may overwrite.
        """
        if rows is None or bool(rows.all()):
            seeds, self._seeds = self._seeds, None
            seen, _ = self._call("reset", lambda: self._env.reset(seed=seeds, options=None))
            self._total = np.zeros((*self.batch_size, 2), np.float32)  # return and length of each episode
        else:
            seen, _ = self._call("reset", lambda: self._env.reset(options={"reset_mask": rows}))
            self._total[rows] = 0.0
        return self._by_name(seen)

    def play(self, action: NDArray) -> HostStep:
        """Step all worlds with actions [N, ...], as arrays: TorchRL's :meth:`step` without tensordicts."""
        seen, rewards, terminated, truncated, _ = self._call("step", lambda: self._play(action))
        reward = np.asarray(rewards, np.float32)
        self._total[:, 0] += reward
        self._total[:, 1] += 1
        shown = self._by_name(seen)
        return HostStep(shown, reward, np.asarray(terminated, bool), np.asarray(truncated, bool), self._episode(shown))

    def _by_name(self, seen: Any) -> dict[str, NDArray]:
        return seen if isinstance(seen, dict) else {self._parts[0].name: seen}

    def _episode(self, shown: dict[str, NDArray]) -> dict[str, NDArray]:
        """Statistics of the present episodes by name, [N, 1] each."""
        statistics = {"return": self._total[:, :1], "length": self._total[:, 1:]}
        for index, name in enumerate(self._figures):
            statistics[name] = shown[EPISODE_INFO][:, index : index + 1]
        return statistics

    def _column(self, values: NDArray) -> torch.Tensor:
        return to_device(values, self.device).unsqueeze(-1)

    def _play(self, action: NDArray) -> Any:
        if isinstance(self._env, AsyncVectorEnv):
            self._env.step_async(action)
            return self._env.step_wait(timeout=PATIENCE)
        return self._env.step(action)

    def _shown(self, arrays: dict[str, NDArray]) -> TensorDict:
        """Return observations and statistics, copied out of the vector environment's buffers."""
        shown = {name: array for name, array in arrays.items() if name != EPISODE_INFO}
        tensors = {name: to_device(array, self.device) for name, array in shown.items()}
        if self._masked:
            tensors[ACTION_MASK] = tensors[ACTION_MASK].bool()
        statistics = {name: to_device(values, self.device) for name, values in self._episode(arrays).items()}
        tensors["episode"] = TensorDict(statistics, self.batch_size, device=self.device)
        return TensorDict(tensors, self.batch_size, device=self.device)

    def _call(self, function: str, call: Callable[[], Any]) -> Any:
        """Call a function of the worlds; an error in one is raised as one sentence.

        Raises:
            ValueError: a world raised an error, its process ended, or it did not answer.
        """
        try:
            return call()
        except multiprocessing.TimeoutError:
            self._end_processes()
            raise ValueError(
                f"{function} of {self.env_name} took more than {PATIENCE:.0f} s: look at what it waits for."
            ) from None
        except Exception as error:
            if isinstance(error, (EOFError, ConnectionError)) and isinstance(self._env, AsyncVectorEnv):
                self._end_processes()
                raise ValueError(
                    f"a process of {self.env_name} ended in its {function} ({type(error).__name__}): use "
                    "world.processes=false to see why."
                ) from None
            raise ValueError(
                f"{function} of {self.env_name} failed ({_reason(error)}): fix the world there."
            ) from error

    def _end_processes(self) -> None:
        """Kill the processes of worlds that do not answer any more, without a request to close."""
        if isinstance(self._env, AsyncVectorEnv):
            for process in self._env.processes:
                process.kill()
            self._env.closed = True

    # --- the rest ----------------------------------------------------------------------------------------------------

    @override
    def _draw(self, world: int = 0) -> NDArray[np.uint8]:
        env = self._env
        render = env.envs[world].render if isinstance(env, SyncVectorEnv) else lambda: env.call("render")[world]
        try:
            return picture(self.env_name, render)
        except ValueError as error:
            if isinstance(error.__cause__, DependencyNotInstalled):
                reason = " ".join(str(error.__cause__).split())
                raise ValueError(
                    f"{self.env_name} cannot be drawn: {reason}, or pip install 'torchrl-agent[render]'."
                ) from None
            raise

    @override
    def close(self, *, raise_if_closed: bool = True) -> None:
        """Close every world."""
        self._env.close()
        if self.goal_outcome is not None:
            self._goal_world.close()
        super().close(raise_if_closed=raise_if_closed)

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}(env={self.env_name}, batch_size={self.batch_size}, device={self.device})"


@functools.cache  # once, not for every batch of the world
def _warn_of_text(env_name: str, name: str) -> None:
    logger.warning("%s: the observation %s is a text and is left out.", env_name, name)


def _vectorized(makers: Sequence[Callable[[], PlainWorld]], processes: bool) -> VectorEnv:
    """Vectorize worlds, one after another in this process, or each in a process of its own."""
    if processes:
        # forked, so that a script needs no guard around what it runs; the worlds use nothing of torch
        start = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
        return AsyncVectorEnv(makers, copy=False, context=start, autoreset_mode=AutoresetMode.DISABLED)
    return SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)


def _make(env_name: str | Callable[..., gymnasium.Env], name: str, arguments: dict[str, Any]) -> gymnasium.Env:
    """Make a world by its id or function.

    Raises:
        ValueError: there is no such world, or its package is missing.
    """
    arguments = {key: value for key, value in arguments.items() if key != "render_mode" or value is not None}
    if not isinstance(env_name, str):
        return env_name(**arguments)
    module = env_name.rpartition(":")[0]
    if module and importlib.util.find_spec(module) is None:
        raise ValueError(f"{env_name} is a world of the package {module}, which is not installed: pip install it.")
    import_package(env_name)
    try:
        return gymnasium.make(env_name, disable_env_checker=True, **arguments)
    except (NameNotFound, NamespaceNotFound, VersionNotFound) as error:
        reason = " ".join(str(error).split())
        fix = "" if "Did you mean" in reason else f" A world of another package is named PACKAGE:{env_name}."
        raise ValueError(f"there is no world {env_name}: {reason}{fix}") from None
    except (DependencyNotInstalled, ImportError) as error:
        raise ValueError(f"{env_name} needs another package: {' '.join(str(error).split())}") from None


def _make_world(
    maker: Callable[[], gymnasium.Env],
    name: str,
    wrappers: Sequence[str | Mapping[str, Any]],
    pixels: bool | None,
    shown: list[int] | None,
    mask_source: str | None = None,
    info: Sequence[tuple[str, ...]] | None = None,
) -> PlainWorld:
    """Make one world in its wrappers and in :class:`PlainWorld`."""
    env = maker()
    try:
        if pixels is not None:
            env = gymnasium.wrappers.AddRenderObservation(env, render_only=pixels)
        env = wrapped(env, wrappers)
        return PlainWorld(env, name, "pixels" if pixels else "observation", shown, mask_source, info)
    except Exception:
        env.close()
        raise


def _reason(error: BaseException) -> str:
    """Describe an error and the place where it was raised."""
    places = traceback.extract_tb(error.__traceback__)
    theirs = [place for place in places[-1:] if os.path.dirname(place.filename) != os.path.dirname(__file__)]
    where = "".join(f", {os.path.basename(place.filename)}:{place.lineno}" for place in theirs)
    text = " ".join(str(error).split()) or "it says nothing"
    return f"{type(error).__name__}: {text}{where}"
