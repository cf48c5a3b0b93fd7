"""Actor processes that collect for one learner process (Espeholt et al. 2018, "IMPALA").

Rank 0 learns, the others act in equal shares of the worlds, all at the same time. The version of the agent that
collects a rollout is decided by :class:`~torchrl_agent.algorithms.lagged_policy.LaggedPolicy`, not by timing: so a run
can be repeated, and a faster process waits where it would get too far ahead. Messages go through the CPU: rollouts to
the learner; to the actors a ticket after every iteration, and the weights of new versions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection
from torch import Tensor, distributed
from torch.utils._pytree import tree_map
from torchrl.envs import EnvBase
from typing_extensions import override

from torchrl_agent.algorithms.actor_critic import ActorCritic
from torchrl_agent.algorithms.lagged_policy import LaggedPolicy
from torchrl_agent.core import ranks
from torchrl_agent.core.abilities import abilities, world_seed
from torchrl_agent.core.spans import spanned
from torchrl_agent.training.collector import RolloutCollector, rows_of, with_rows
from torchrl_agent.training.learner import load_random_state, random_state
from torchrl_agent.training.messages import FRAMES, TICKETS, WORLDS, Outbox, on_cpu, pack, receive, send, unpack, wait

LEARNER = 0
"""Rank of the learner; actors have the others."""
GO_ON, SAVE, STOP = 0, 1, 2
"""Requests of a ticket."""


class RemoteCollector(RolloutCollector):
    """The learner's end: has the actors collect, and joins their rollouts along the axis of worlds.

    Args:
        env: all worlds; the actors start from their state when the first rollout is requested.
        algorithm: the algorithm, with a lagged behavior policy.
        actors: number of actors.
    """

    def __init__(self, env: EnvBase, algorithm: ActorCritic, actors: int) -> None:
        assert algorithm.player is not None
        player, steps, autocast = algorithm.player, algorithm.config.rollout_steps, algorithm.updater.autocast
        super().__init__(env, player.agent, steps, algorithm.acceleration, autocast, replays=True)
        self.player, self.learning = player, algorithm.agent
        self.accelerated = ()
        self.stages: dict[int, int] = {}
        """Stage of the curriculum by number of iterations, as long as an actor may need it."""
        self.random: dict[str, Tensor | None] | None = None
        """Initial state of the actors' random generators; by default that of this process."""
        self.seed: int | None = None
        """Seed of the actors' worlds, where they begin new episodes because worlds could not be saved."""
        self._actors = range(LEARNER + 1, LEARNER + 1 + actors)
        self._mail = Outbox(2 * actors * (player.ahead + 1))
        self._shares: list[TensorDict] = []
        self._packed: list[Tensor] = []
        self._coming: list[distributed.Work] = []
        """Pending receives of the actors' next rollouts, if these may have been collected."""
        self._received = self._sent = 0
        self._mode = super().mode

    @override
    @property
    def mode(self) -> str:
        """Execution mode of the actors."""
        return self._mode

    @property
    def begun(self) -> bool:
        """True once the actors have begun."""
        return bool(self._shares)

    @override
    @spanned("collect")
    def collect(self) -> TensorDict:
        """The next rollout [T, N]; its memory is used again by the next call."""
        if self.begun:
            self._send_ticket(GO_ON)
        else:
            self._begin()
        self._receive()
        for share, packed in zip(self._shares, self._packed, strict=True):
            unpack(packed, share.values(True, True))
        if self._received < self.player.rollouts_of(self.player.iterations):
            self._listen()  # while this one is learned from
        assert self._buffers is not None
        return self._buffers

    @override
    def worlds(self) -> dict[str, Any]:
        """State of worlds and first observations, as the actors had them after the rollout learned from last; and of
        the ``actors`` what these begin with.
        """
        state = super().worlds()
        if self.begun:
            self._send_ticket(SAVE)
            states = [receive(actor, WORLDS) for actor in self._actors]
            self.random = states[0]["random"]
            if states[0]["world"] is not None:
                world = tree_map(lambda *rows: torch.cat(rows, -1), *(each["world"] for each in states))
                root = tree_map(lambda *rows: torch.cat(rows), *(each["root"] for each in states))
                state = {"world": with_rows(self.env.state_dict(), lambda mine, axis: world), "root": root}
        return {**state, "actors": {"random": self.random, "stages": dict(self.stages)}}

    @override
    def load_worlds(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`worlds`, or from the worlds of one process."""
        super().load_worlds(state)
        actors = state.get("actors", {"random": None, "stages": {}})
        self.random, self.stages = actors["random"], dict(actors["stages"])

    @override
    def restart(self, seed: int, *begun_at: int) -> None:
        """Begin new episodes in all worlds, the actors' too."""
        super().restart(seed, *begun_at)
        self.seed = world_seed(self.env, seed, *begun_at)

    def stop(self) -> None:
        """Stop the actors."""
        if not self.begun:
            distributed.broadcast_object_list([None], LEARNER)
            return
        self._send_ticket(STOP)
        while self._received < self.player.rollouts_of(self._sent):  # collected already, or before their next ticket
            self._receive()
        self._mail.wait()

    def _begin(self) -> None:
        """Send the actors their initial state, and allocate buffers for their rollouts."""
        self._note_stage()
        begin = {"player": on_cpu(self.player.state_dict()), "stages": self.stages, "seed": self.seed, **snapshot(self)}
        if self.random is not None:
            begin["random"] = self.random
        distributed.broadcast_object_list([begin], LEARNER)
        first, *_ = [receive(actor, WORLDS) for actor in self._actors]  # all the same
        self._mode, self._buffers = first["mode"], self._make_room(first)
        self._shares = list(self._buffers.chunk(len(self._actors), 1))
        size = sum(value.numel() * value.element_size() for value in self._shares[0].values(True, True))
        self._packed = [torch.empty(size, dtype=torch.uint8) for _ in self._shares]
        self._received = self._sent = self.player.iterations

    def _make_room(self, shapes: Mapping[str, Any]) -> TensorDict:
        """Allocate buffers for the rollouts of all actors, each of a :func:`layout`."""
        steps, rows = shapes["shape"]
        shape = (steps, rows * len(self._actors))
        room = TensorDict({}, shape, device=self.env.device)
        for key, rest, dtype in shapes["entries"]:
            room.set(key, torch.zeros(*shape, *rest, dtype=dtype, device=self.env.device))
        for key, rest in shapes["nested"]:
            room.get(key).batch_size = (*shape, *rest)
        return room

    def _listen(self) -> None:
        """Post the receives of the next rollouts."""
        ends = zip(self._actors, self._packed, strict=True)
        self._coming = self._coming or [distributed.irecv(row, actor, tag=FRAMES) for actor, row in ends]

    def _receive(self) -> None:
        """Wait for the next rollouts."""
        self._listen()
        for work in self._coming:
            work.wait()
        self._coming = []
        self._received += 1

    def _note_stage(self) -> None:
        curriculum = abilities(self.env).curriculum
        if curriculum is not None:
            self.stages[self.player.iterations] = curriculum.stage
        self.stages = self.player.still_played(self.stages)

    def _send_ticket(self, wanted: int) -> None:
        self._note_stage()
        number = self.player.iterations
        self._mail.send(torch.tensor([wanted, number, self.stages.get(number, 0)]), self._actors, TICKETS)
        if wanted == GO_ON:
            self._sent = number
            if self.player.publishes():
                self._mail.send(pack(self.learning.state_dict().values()), self._actors, TICKETS)


class Actor:
    """The end of an actor: collects rollouts, as far ahead of the learner as it may, and sends them.

    Args:
        collector: collector of its worlds.
        player: the behavior policy, which selects the version for each rollout.
    """

    def __init__(self, collector: RolloutCollector, player: LaggedPolicy) -> None:
        self.collector, self.env, self.player = collector, collector.env, player
        self.stages: dict[int, int] = {}
        self._stage: int | None = None
        self._snapshots: dict[int, dict[str, Any]] = {}
        """Snapshots of this actor by number of rollouts, as long as the learner may request them."""
        self._mail = Outbox(player.ahead + 1)

    def run(self) -> None:
        """Collect until the learner needs no more."""
        begin: list[Any] = [None]
        distributed.broadcast_object_list(begin, LEARNER)
        if begin[0] is None:
            return
        self._begin(begin[0])
        first = self.player.iterations
        for rollout in itertools.count(first):
            self._snapshots[rollout] = snapshot(self.collector)
            while self.player.rollouts_of(self.player.iterations) <= rollout:
                if not self._follow_ticket():
                    self._mail.wait()
                    return
            self.player.prepare(rollout)
            self._set_stage(rollout)
            frames = self.collector.collect()
            if rollout == first:
                send({**layout(frames), "mode": self.collector.mode}, LEARNER, WORLDS, self._mail)
            self._mail.send(pack(frames.values(True, True)), [LEARNER], FRAMES)

    def _begin(self, begin: Mapping[str, Any]) -> None:
        self.player.load_state_dict(begin["player"])
        self.stages = dict(begin["stages"])
        if begin["world"] is not None:
            mine = ranks.own_rows(begin["world"], -1)
            self.env.load_state_dict(with_rows(self.env.state_dict(), lambda _, axis: mine))
            self.collector.root.update_(TensorDict(ranks.own_rows(begin["root"], 0)))
        elif begin.get("seed") is not None:
            self.collector.restart(begin["seed"])
        load_random_state(begin["random"], self.env.device)
        self._stage = self._stage_for(self.player.iterations - 1)

    def _follow_ticket(self) -> bool:
        """Wait for the learner's next ticket and carry it out; False if it is to stop."""
        ticket = torch.empty(3, dtype=torch.int64)
        wait(distributed.irecv(ticket, LEARNER, tag=TICKETS))
        wanted, number, stage = ticket.tolist()
        if wanted == SAVE:
            send(self._snapshots[number], LEARNER, WORLDS, self._mail)
        elif wanted == GO_ON:
            self.player.iterations = number
            self.stages = self.player.still_played({**self.stages, number: stage})
            self._snapshots = {place: each for place, each in self._snapshots.items() if place > number}
            if self.player.publishes():
                state = {name: value.clone() for name, value in self.player.agent.state_dict().items()}
                packed = pack(state.values())
                wait(distributed.irecv(packed, LEARNER, tag=TICKETS))
                unpack(packed, state.values())
                self.player.keep(number, state)
        return wanted != STOP

    def _stage_for(self, rollout: int) -> int | None:
        """Stage of the curriculum for a rollout: that of the version that collects it."""
        version = self.player.version_for(rollout)
        known = [number for number in self.stages if number <= version]
        return self.stages[max(known)] if known else None

    def _set_stage(self, rollout: int) -> None:
        stage, world = self._stage_for(rollout), abilities(self.env)
        if stage is not None and stage != self._stage and world.curriculum is not None:
            world.curriculum.stage = self._stage = stage
            world.begin_stage()


def snapshot(collector: RolloutCollector) -> dict[str, Any]:
    """Tensors of the worlds and the agent's first observations, None for worlds without saved state, and the random
    generators' states; on the CPU.
    """
    env, known = collector.env, abilities(collector.env).branchless
    return {
        "world": on_cpu(rows_of(env.state_dict())) if known else None,
        "root": on_cpu(collector.root.clone().to_dict()) if known else None,
        "random": random_state(env.device),
    }


def layout(frames: TensorDictBase) -> dict[str, Any]:
    """Describe frames [T, N] in plain values: shapes of entries and of nested tensordicts after [T, N]."""
    return {
        "shape": tuple(frames.shape),
        "entries": [(key, value.shape[2:], value.dtype) for key, value in frames.items(True, True)],
        "nested": [(key, value.shape[2:]) for key, value in frames.items(True) if is_tensor_collection(value)],
    }
