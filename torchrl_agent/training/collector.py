"""Collection of rollouts: the policy acts in every world, and frames are written to preallocated device buffers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs import EnvBase, TransformedEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent.core import keys, ranks
from torchrl_agent.core.abilities import abilities, own_seed
from torchrl_agent.core.spans import span, spanned
from torchrl_agent.models.agent import Agent, Behavior
from torchrl_agent.modules.distributions import Chooser, choosers
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction, CudaGraphFunction, fastest
from torchrl_agent.training.host_player import HostPlayer, plays_arrays

logger = logging.getLogger(__name__)

WIDE = 512
"""Number of worlds whose compiled step takes a CPU about as long as an uncompiled step of few."""
WRITTEN_TOGETHER = 16
"""Number of steps whose frames are written to the buffers together: each entry is then copied once in so many steps."""


class RolloutCollector:
    """Collects ``steps`` steps of every world at a time, continuing where the last rollout ended.

    TorchRL's ``Collector`` works with our worlds too; this one compiles policy, step and reset as a single graph, adds
    no host sync, and on CUDA collects a whole rollout as one CUDA graph. It samples actions, whatever exploration type
    is set around it: a loss that was compiled elsewhere may leave another one behind.

    Args:
        env: any batched TorchRL environment; one with a true ``branchless`` attribute is traced with the policy.
        agent: the agent that acts, or several as one.
        steps: length T of a rollout.
        acceleration: parts to compile and capture.
        autocast: precision of the agent's networks, as a context; the learner's, or its log-probabilities would differ
            from those that the agent acted with.
        replays: True if the learner needs the observation after every frame; otherwise images are kept once where
            possible (see :func:`kept_once`).
        values: keep the critic's ``state_value`` of every frame too, which costs the critic's head alone.

    Attributes:
        root: first observations of the next rollout; updated in place.
        num_ranks: number of ranks that the worlds are split over.
        frames: number of frames of a rollout, of all ranks' worlds together.
    """

    def __init__(
        self,
        env: EnvBase,
        agent: Behavior,
        steps: int,
        acceleration: AccelerationConfig,
        autocast: Callable[[], AbstractContextManager] = nullcontext,
        replays: bool = False,
        values: bool = False,
    ) -> None:
        self.env, self.agent, self.steps = env, agent, steps
        self.acceleration, self.autocast, self.replays, self.values = acceleration, autocast, replays, values
        self.policy = agent.policy_and_value() if values else agent.policy
        self._written = [keys.ACTION, keys.LOG_PROB, *([keys.VALUE] if values else [])]
        self._once = [] if replays else kept_once(env, agent, steps)
        self.statistics, self.num_ranks = episode_entries(env), ranks.size()
        self.frames = self.num_ranks * env.batch_size[0] * steps
        self._traceable = traceable = abilities(env).branchless
        self._host = None
        if plays_arrays(env, agent):
            self._host = HostPlayer(env, self._act, self._written, acceleration.step)
        self._play = CompiledFunction(
            "the policy with the world's step" if traceable else "the policy",
            (self._act_step_and_keep if self._once else self._act_and_step) if traceable else self._act,
            acceleration.step and self._host is None,
            abilities(env).compile_options_on(env.device) if traceable else None,
        )
        self.accelerated: tuple[CompiledFunction, ...] = (self._play if self._host is None else self._host.policy,)
        with autocast():
            mixed = torch.is_autocast_enabled("cpu" if env.device is None else env.device.type)
        lends = traceable and acceleration.step and ranks.size() == 1 and not mixed
        self._choosers = choosers(agent) if lends and isinstance(agent, Agent) else []
        for chooser in self._choosers:
            if chooser.greedy is None:
                chooser.greedy = torch.zeros((), dtype=torch.bool, device=env.device)
        self._rollout = CudaGraphFunction(
            "the rollout", self._play_steps, env.device if acceleration.cudagraphs and traceable else None
        )
        self.root: TensorDictBase = tidy_root(env, env.reset()).clone()
        if traceable:
            fill_caches(env)
        self._buffers: TensorDict | None = None
        self._finals = self.root.select(*self._once).clone()

    def lend(self, agent: Agent, wanted: int, make_world: Callable[[int], EnvBase]) -> RolloutCollector | None:
        """Return a collector for another agent, in as many other worlds, that runs the code compiled for this one,
        whatever the worlds' seeds, stages and start; None where that code does not fit, or does not pay. It never fits
        agents that plan, nor those with modules of your own, which may ask for the exploration type: it is that of
        rollouts.

        Args:
            agent: the agent that acts.
            wanted: number of worlds that are needed.
            make_world: function of a number of worlds that makes them.
        """
        worlds, on_cpu = self.env.batch_size[0], self.env.device is not None and self.env.device.type == "cpu"
        if not self._choosers or type(agent) is not type(self.agent) or (on_cpu and worlds > max(wanted, WIDE)):
            return None
        if agent.planner.enabled or agent.custom_modules or not isinstance(agent.actor_head[-1], Chooser):
            return None
        lent = None
        with ExitStack() as failed:
            try:
                env = failed.enter_context(closing(agent.attach(make_world(worlds))))
                options = (self.acceleration, self.autocast, self.replays, self.values)
                made = RolloutCollector(env, agent, self.steps, *options)
                made.step(made.root, otherwise="fail")
                if abilities(env).take_shard is not None:
                    lent = made
                    failed.pop_all()
            except (RuntimeError, ValueError) as error:  # other code would be compiled, or memory is short
                logger.debug("no compiled code is lent: %s", error)
        return lent

    @torch.no_grad()
    def step(self, root: TensorDictBase, otherwise: str = "eager") -> tuple[TensorDictBase, TensorDictBase]:
        """Take one step of every world from a ``root``, without compiling; returns its frame [N], as in rollouts, and
        the next root. If no compiled code fits, the step runs uncompiled; with ``otherwise="fail"`` it raises
        RuntimeError.
        """
        with torch.compiler.set_stance(f"{otherwise}_on_recompile"), set_exploration_type(ExplorationType.RANDOM):
            frame, following, _ = self._step(root, self._finals)
        return frame, following

    @contextmanager
    def acting(self, mode: ExplorationType) -> Iterator[None]:
        """Context in which :meth:`step` takes the most likely actions, or draws them, by the same code."""
        flags = [chooser.greedy for chooser in self._choosers if chooser.greedy is not None]
        for flag in flags:
            flag.fill_(mode is ExplorationType.DETERMINISTIC)
        try:
            yield
        finally:
            for flag in flags:
                flag.zero_()

    def restart(self, seed: int, *begun_at: int) -> None:
        """Begin new episodes in all worlds, with the seed of a training and the frames after which they begin."""
        self.env.set_seed(own_seed(self.env, seed, *begun_at))
        self.root.update_(tidy_root(self.env, self.env.reset()))

    def worlds(self) -> dict[str, Any]:
        """State of the ``world`` and its first observations, ``root``, on the first rank those of all ranks; both None
        for worlds without saved state.
        """
        if not abilities(self.env).branchless:
            return {"world": None, "root": None}
        root = ranks.gather_rows(self.root.to_dict(), 0)
        return {"world": with_rows(self.env.state_dict(), ranks.gather_rows), "root": root}

    def load_worlds(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`worlds`, each rank with its own; worlds without saved state go on as they are."""
        if state["world"] is not None:
            self.env.load_state_dict(with_rows(state["world"], ranks.own_rows))
            self.root.update_(TensorDict(ranks.own_rows(state["root"], 0)))

    @property
    def mode(self) -> str:
        """Execution mode of rollouts, see :data:`~torchrl_agent.optimization.compilation.MODES`."""
        return fastest(self._rollout, self._play if self._host is None else self._host.policy)

    @spanned("collect")
    @torch.no_grad()
    def collect(self) -> TensorDict:
        """Collect the next rollout [T, N]; the buffers are used again by the next call.

        Holds the agent's inputs, ``action``, ``action_log_prob`` and, under ``next``, the observations after the step
        (the true last ones where an episode ended), ``reward``, ``done``, ``terminated`` and the episode statistics;
        entries of agents stay under their group ([T, N, A], see :func:`agent_rows`).

        Images that are kept once (see :func:`kept_once`) are, under ``next``, those of the next frame, after a reset
        too; the last observation of a truncated episode is in ``("next", "final")``, [N] for all steps of the rollout.
        """
        with ranks.dealing(self.agent.dealt), set_exploration_type(ExplorationType.RANDOM):
            self._rollout()
        assert self._buffers is not None
        return self._buffers

    @spanned("metrics")
    def finished(self, rollout: TensorDictBase, count: int | None = None) -> dict[str, Tensor]:
        """Final statistics of the episodes that ended in a rollout [T, N], of all ranks' worlds, in the order of time,
        by name on the CPU. The host waits once less if the ``count`` of those of this rank is given, and copies nothing
        if it is 0.
        """
        following, final = rollout.get(keys.NEXT), torch.zeros(0, len(self.statistics))
        done = following.get(keys.DONE).squeeze(-1)
        count = int(done.sum()) if count is None else count
        if count:
            frames = torch.nonzero_static(done.flatten(), size=count).squeeze(-1)
            ends = [following.get(key).flatten()[frames].float() for key in self.statistics.values()]
            final = torch.stack(ends, -1).cpu()
        if self.num_ranks > 1:
            final = _in_order_of_time(final, done)
        return dict(zip(self.statistics, final.unbind(-1), strict=True))

    def _play_steps(self) -> None:
        """Fill the buffers and move the root."""
        if self._host is not None and self._buffers is not None:
            return self._host.play()
        root, finals = self.root, self._finals
        frames: list[TensorDictBase] = []
        for step in range(self.steps):
            frame, root, finals = self._step(root, finals)
            if self._buffers is None:
                self._buffers = self._allocate(frame)
            frames.append(frame)
            if len(frames) == (WRITTEN_TOGETHER if self._traceable else 1) or step == self.steps - 1:
                self._write(frames, step + 1)
                frames = []
        if self._once:
            assert self._buffers is not None
            self._buffers[-1].get(keys.NEXT).update_(root.select(*self._once))
            self._finals.update_(finals)
        self.root.update_(root)
        if self._host is not None:
            assert self._buffers is not None
            self._host.begin(self.root, self._buffers, self.policy.in_keys)

    def _write(self, frames: list[TensorDictBase], end: int) -> None:
        """Write the frames of the steps before ``end`` to the buffers, with one copy for each entry."""
        assert self._buffers is not None
        if len(frames) == 1:
            self._buffers[end - 1].update_(frames[0])
            return
        written = self._buffers[end - len(frames) : end]
        for key in frames[0].keys(True, True):
            torch.stack([frame.get(key) for frame in frames], out=written.get(key))

    def _allocate(self, frame: TensorDictBase) -> TensorDict:
        """Allocate buffers for frames [N] of every step; entries kept once have T + 1, ``next`` is a shifted view."""
        buffers = frame.exclude(*self._once).new_zeros(self.steps, *frame.shape)
        following = buffers.get(keys.NEXT)
        for key in self._once:
            whole = frame.get(key).new_zeros(self.steps + 1, *frame.get(key).shape)
            buffers.set(key, whole[:-1])
            following.set(key, whole[1:])
        if self._once:
            following.set(keys.FINAL, self._finals.unsqueeze(0).expand(self.steps, *frame.shape))
        return buffers

    def _step(
        self, root: TensorDictBase, finals: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase, TensorDictBase]:
        """Take a step; returns the frame to keep, the next root, and the last observations of truncated episodes."""
        if self._once:
            return self._play(root, finals)
        if self._traceable:
            return (*self._play(root), finals)
        return (*self._split(*self._step_world(self._play(root))), finals)

    def _act(self, root: TensorDictBase) -> TensorDictBase:
        with self.autocast():
            return self.policy(root.copy())  # a copy: the next call must not find its outputs

    @spanned("world")
    def _step_world(self, acted: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        return self.env.step_and_maybe_reset(acted)

    def _advance(self, root: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        with span("policy"):
            acted = self._act(root)
        return self._step_world(acted)

    def _act_and_step(self, root: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        return self._split(*self._advance(root))

    def _act_step_and_keep(
        self, root: TensorDictBase, finals: TensorDictBase
    ) -> tuple[TensorDictBase, TensorDictBase, TensorDictBase]:
        played, following = self._advance(root)
        after = played.get(keys.NEXT)
        truncated = (after.get(keys.DONE) & ~after.get(keys.TERMINATED)).squeeze(-1)
        kept = {key: choose_rows(truncated, after.get(key), finals.get(key)) for key in self._once}
        return (*self._split(played, following), TensorDict(kept, finals.batch_size, device=finals.device))

    def _split(self, played: TensorDictBase, following: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Split a step into the frame to keep, and the next root with only the world's entries."""
        group = self.agent.group
        alive, left = ([], []) if group is None else ([keys.ALIVE], [keys.TRUNCATED])
        mine = [*self.agent.recorded_keys, *self._written, *alive]
        later = [*(key for key in self.agent.critic.in_keys if key not in self._once), keys.REWARD, *alive, *left]
        world = [keys.DONE, keys.TERMINATED, *self.statistics.values()]
        shared = [] if group is None or keys.STATE not in self.agent.input_keys else [keys.STATE]
        frame = played.select(
            *shared,
            *(under(group, key) for key in mine),
            *(under(keys.NEXT, under(group, key)) for key in later),
            *(under(keys.NEXT, key) for key in (*world, *shared)),
            strict=group is None,
        )
        return frame, tidy_root(self.env, following)


def play(
    env: EnvBase, policy: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase, steps: int
) -> Iterator[TensorDictBase]:
    """Step all worlds with a policy, from the ``root`` of a reset on, and yield each step's tensordict [N], with the
    entries after the step under ``next``; worlds that end begin anew.

    Plain and uncompiled: use a :class:`RolloutCollector`, or an evaluation's ``Stepper``, for many steps.
    """
    for _ in range(steps):
        played, root = env.step_and_maybe_reset(policy(root))
        yield played


def rows_of(world: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of saved worlds, whose last axis is that of worlds."""
    if "transform" in world:
        return rows_of(world["world"])
    return {name: value for name, value in world.items() if isinstance(value, torch.Tensor)}


def with_rows(world: dict[str, Any], change: Callable[[dict[str, Any], int], dict[str, Any]]) -> dict[str, Any]:
    """Apply ``change`` to the tensors of saved worlds, whose last axis is that of worlds; the states of a curriculum
    and of transforms stay.
    """
    if "transform" in world:
        return {**world, "world": with_rows(world["world"], change)}
    return {**world, **change(rows_of(world), -1)}


def kept_once(env: EnvBase, agent: Behavior, steps: int) -> list[NestedKey]:
    """Keys that a rollout of ``steps`` steps need not hold twice, as a root and as ``next`` of the frame before.

    Images are most of a rollout's memory. Only where an episode ended does the next root differ from the observation
    after the step; an actor-critic reads that one where the episode was truncated, which happens to a world at most
    once in a rollout that is no longer than an episode may be (:func:`truncates_once`). So one buffer entry per world
    holds it. Worlds of which this is not known, and those without images, keep everything.
    """
    seen = [] if agent.group is not None else list(agent.critic.in_keys)
    specs = env.full_observation_spec
    pictures = [key for key in seen if key in specs.keys(True) and specs[key].dtype == torch.uint8]
    return pictures if abilities(env).branchless and truncates_once(env, steps) else []


def truncates_once(env: EnvBase, steps: int) -> bool:
    """True if no world is truncated twice in ``steps`` steps."""
    limit = truncation_limit(env)
    return limit is not None and steps <= limit


def truncation_limit(env: EnvBase) -> int | None:
    """Least number of steps between two truncations of a world; None if that is not known."""
    if isinstance(env, TransformedEnv):
        keeps_ends = hasattr(type(env), "keeps_ends") and env.keeps_ends  # "hasattr" of a world may ask its processes
        return truncation_limit(env.base_env) if keeps_ends else None
    return abilities(env).truncation_limit


def choose_rows(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Select the new values [N, ...] where ``rows`` [N] is True, else the old ones."""
    return torch.where(rows.reshape(rows.shape + (1,) * (new.ndim - rows.ndim)), new, old)


def under(outer: str | None, key: NestedKey) -> NestedKey:
    """Nest a key under another, or return it alone."""
    inner = (key,) if isinstance(key, str) else key
    return key if outer is None else (outer, *inner)


def agent_rows(rollout: TensorDictBase, group: str | None, chosen: Tensor | None = None) -> TensorDictBase:
    """Convert a rollout for the learner: every agent of every world is a row, [T, N * A], with flat keys.

    An agent is ``done`` when its world is or it leaves, and ``terminated`` when it dies, even if the world goes on; an
    agent that is only ``truncated`` leaves without having died. Frames in which it was dead already are marked by
    ``alive`` (left out if the world has no such key). All agents get the world's ``state``. The rollout of a world
    without a group is returned as it is. Of the rows only the ``chosen`` ones are returned (int64 [rows]), if given.
    """
    if group is None:
        return rollout
    mine, later = rollout.get(group).copy(), rollout.get((keys.NEXT, group)).copy()
    left = ~later.pop(keys.ALIVE).unsqueeze(-1) if keys.ALIVE in later.keys() else None
    cut = later.pop(keys.TRUNCATED).unsqueeze(-1) if keys.TRUNCATED in later.keys() else None
    died = left if left is None or cut is None else left & ~cut
    for key, own in ((keys.DONE, left), (keys.TERMINATED, died)):
        of_world = rollout.get((keys.NEXT, key)).unsqueeze(-2).expand(*mine.shape, 1)
        later.set(key, of_world if own is None else of_world | own)
    if keys.STATE in rollout.keys():
        for part, source in ((mine, rollout), (later, rollout.get(keys.NEXT))):
            state = source.get(keys.STATE).unsqueeze(-2)
            part.set(keys.STATE, state.expand(*mine.shape, state.shape[-1]))
    mine.set(keys.NEXT, later)
    rows = mine.flatten(1, 2)
    return rows if chosen is None else rows[:, chosen]


def fill_caches(env: EnvBase) -> None:
    """Make the world cache its lists of keys now: compiled code would notice a later change and recompile."""
    env.step_mdp(env.fake_tensordict())
    for name in ("reward_keys", "done_keys", "action_keys", "state_keys"):
        getattr(env, name)


def root_keys(env: EnvBase) -> list[NestedKey]:
    """Keys that a world's root tensordict holds between steps."""
    specs = (env.full_observation_spec, env.full_done_spec, env.full_state_spec)
    return [key for spec in specs for key in spec.keys(True, True)]


def tidy_root(env: EnvBase, root: TensorDictBase) -> TensorDictBase:
    """Return a root with the same keys in the same order every time, so that nothing recompiles."""
    return root.select(*sorted(root_keys(env), key=str), strict=False)


def episode_entries(env: EnvBase) -> dict[str, NestedKey]:
    """Keys of the episode statistics that the world reports, by name."""
    spec = env.observation_spec
    if keys.EPISODE in spec.keys():
        return {name: (keys.EPISODE, name) for name in spec[keys.EPISODE].keys()}
    found = {name: key for name, key in keys.TORCHRL_STATISTICS.items() if key in spec.keys()}
    return {**found, keys.EPISODE_LENGTH: keys.COUNTED_LENGTH} if keys.COUNTED_LENGTH in spec.keys() else found


def _in_order_of_time(final: Tensor, done: Tensor) -> Tensor:
    """Join all ranks' rows [episodes, ...], one where a world was ``done`` [T, N], in the order of one process."""
    steps = done.nonzero()[:, 0].cpu()
    gathered = [torch.cat(parts) for parts in zip(*ranks.all_gather((final, steps)), strict=True)]
    return gathered[0][gathered[1].argsort(stable=True)]


def finished_worlds(rollout: TensorDictBase) -> Tensor:
    """World of each episode of :meth:`RolloutCollector.finished`, as its index among the worlds of all ranks, int64
    [episodes] on the CPU.
    """
    done = rollout.get((keys.NEXT, keys.DONE)).squeeze(-1)
    first = ranks.rank() * done.shape[1]
    worlds = torch.arange(first, first + done.shape[1], device=done.device).expand(done.shape)[done].cpu()
    return _in_order_of_time(worlds, done) if ranks.size() > 1 else worlds
