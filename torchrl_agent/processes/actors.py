"""Processes that play for one that learns: actors and a learner (Espeholt et al. 2018, "IMPALA").

Rank 0 learns, the others play equal shares of the worlds, all at the same time. Which version of the agent plays a
rollout is decided by :class:`~torchrl_agent.training.lag.LaggingPlayer`, not by who is quicker: so a run can be
repeated, and whoever is quicker waits where it would get too far ahead. What travels goes through the CPU: rollouts to
the learner; to the actors a ticket after every iteration, and the weights of new versions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection
from torch import Tensor, distributed
from torchrl.envs import EnvBase

from torchrl_agent.learner import Learner, load_random_state, random_state, rows_of, with_rows
from torchrl_agent.models.agent import Agent
from torchrl_agent.processes.messages import FRAMES, TICKETS, WORLDS, Outbox, on_cpu, pack, receive, send, unpack, wait
from torchrl_agent.spans import spanned
from torchrl_agent.training.acceleration import AccelerationConfig
from torchrl_agent.training.lag import LaggingPlayer
from torchrl_agent.training.rollout import RolloutCollector

LEARNER = 0
"""Its rank; actors have the others."""
GO_ON, SAVE, STOP = 0, 1, 2
"""What a ticket asks for."""


class RemoteCollector(RolloutCollector):
    """The learner's end: has the actors play, and puts their rollouts next to each other.

    Args:
        env: all worlds; as they are when the first rollout is asked for, the actors play them.
        player: says who plays.
        agent: that learns.
        steps: length T of a rollout.
        actors: how many there are.
        acceleration, autocast: as a collector that plays has them.
    """

    def __init__(
        self,
        env: EnvBase,
        player: LaggingPlayer,
        agent: Agent,
        steps: int,
        actors: int,
        acceleration: AccelerationConfig,
        autocast: Callable[[], AbstractContextManager] = nullcontext,
    ) -> None:
        super().__init__(env, player.agent, steps, acceleration, autocast, replays=True)
        self.player, self.learning, self.actors = player, agent, actors
        self.accelerated = ()
        self.stages: dict[int, int] = {}
        """The curriculum's stage after so many iterations, as long as somebody may have to know."""
        self.random: dict[str, Tensor | None] | None = None
        """State of the actors' generators with which they begin; by default these ones'."""
        self._mail = Outbox(2 * actors * (ahead(player) + 1))
        self._shares: list[TensorDict] = []
        self._packed: list[Tensor] = []
        self._coming: list[distributed.Work] = []
        """The actors' next rollouts, if they may have played them."""
        self._received = self._told = 0
        self._mode = super().mode

    @property
    def mode(self) -> str:
        """How the actors play."""
        return self._mode

    @property
    def begun(self) -> bool:
        """Whether actors play by now."""
        return bool(self._shares)

    @spanned("collect")
    def collect(self) -> TensorDict:
        """The next rollout [T, N]; its memory is used again by the next call."""
        if self.begun:
            self._send_ticket(GO_ON)
        else:
            self._begin()
        self._listen()
        self._receive()
        for share, packed in zip(self._shares, self._packed, strict=True):
            unpack(packed, share.values(True, True))
        if self._received < self.player.rollouts_of(self.player.iterations):
            self._listen()  # while this one is learnt from
        assert self._buffers is not None
        return self._buffers

    def worlds(self) -> tuple[dict[str, Tensor] | None, dict[str, Any] | None]:
        """Tensors of the worlds, and what the agent sees first, as the actors had them after the rollout learnt from
        last; None for worlds that cannot say.
        """
        self._send_ticket(SAVE)
        told = [receive(actor, WORLDS) for actor in range(1, self.actors + 1)]
        self.random = told[0]["random"]
        if told[0]["world"] is None:
            return None, None
        world = {name: torch.cat([each["world"][name] for each in told], -1) for name in told[0]["world"]}
        return world, torch.cat([TensorDict(each["root"]).auto_batch_size_(1) for each in told]).to_dict()

    def stop(self) -> None:
        """Let the actors end."""
        if not self.begun:
            distributed.broadcast_object_list([None], LEARNER)
            return
        self._mail.send(torch.tensor([STOP, 0, 0]), range(1, self.actors + 1), TICKETS)
        while self._received < self.player.rollouts_of(self._told):  # which they have played, or will before they ask
            self._listen()
            self._receive()
        self._mail.wait()

    def _begin(self) -> None:
        """Tell actors what they begin with, and hear what a rollout is made of."""
        self._note_stage()
        world = self.env.state_dict() if getattr(self.env, "branchless", False) else None
        begin = {
            "player": on_cpu(self.player.state_dict()),
            "stages": self.stages,
            "world": None if world is None else on_cpu(rows_of(world)),
            "root": None if world is None else on_cpu(self.root.to_dict()),
            "random": random_state(self.env.device) if self.random is None else self.random,
        }
        distributed.broadcast_object_list([begin], LEARNER)
        layouts = [receive(actor, WORLDS) for actor in range(1, self.actors + 1)]
        self._mode = layouts[0]["mode"]
        (steps, rows), entries = layouts[0]["shape"], layouts[0]["entries"]
        self._buffers = TensorDict({}, [steps, rows * self.actors], device=self.env.device)
        for key, shape, dtype in entries:
            whole = torch.zeros(steps, rows * self.actors, *shape, dtype=dtype, device=self.env.device)
            self._buffers.set(key, whole)
        for key, shape in layouts[0]["nested"]:
            self._buffers.get(key).batch_size = (steps, rows * self.actors, *shape)
        self._shares = [self._buffers[:, actor * rows : (actor + 1) * rows] for actor in range(self.actors)]
        size = sum(value.numel() * value.element_size() for value in self._shares[0].values(True, True))
        self._packed = [torch.empty(size, dtype=torch.uint8) for _ in self._shares]
        self._received = self._told = self.player.iterations

    def _listen(self) -> None:
        """Be ready for the next rollouts."""
        if not self._coming:
            self._coming = [distributed.irecv(row, actor, tag=FRAMES) for actor, row in enumerate(self._packed, 1)]

    def _receive(self) -> None:
        """Wait for them."""
        for work in self._coming:
            work.wait()
        self._coming = []
        self._received += 1

    def _note_stage(self) -> None:
        curriculum = getattr(self.env, "curriculum", None)
        if curriculum is not None:
            self.stages[self.player.iterations] = curriculum.stage
        self.stages = still_played(self.stages, self.player)

    def _send_ticket(self, wanted: int) -> None:
        everybody, number = range(1, self.actors + 1), self.player.iterations
        self._note_stage()
        self._mail.send(torch.tensor([wanted, number, self.stages.get(number, 0)]), everybody, TICKETS)
        if wanted == GO_ON:
            self._told = number
        if wanted == GO_ON and self.player.publishes():
            self._mail.send(pack(self.learning.state_dict().values()), everybody, TICKETS)


class ActorsLearner(Learner):
    """A learner whose rollouts come from actors; a checkpoint is that of one process, and of any number of them."""

    collector: RemoteCollector

    def state_dict(self) -> dict[str, Any]:
        """What one process would save, and what the actors begin with besides."""
        state = super().state_dict()
        return {**state, "actors": {"random": self.collector.random, "stages": dict(self.collector.stages)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from it, or from what one process saved."""
        super().load_state_dict(state)
        actors = state.get("actors", {"random": None, "stages": {}})
        self.collector.random, self.collector.stages = actors["random"], dict(actors["stages"])

    def _worlds(self) -> dict[str, Any]:
        if not self.collector.begun:
            return super()._worlds()
        world, root = self.collector.worlds()
        if world is None:
            return {"world": None, "root": None}
        return {"world": with_rows(self.env.state_dict(), lambda mine, axis: world), "root": root}


class Actor:
    """The end of an actor: plays rollouts, as far ahead of the learner as it may, and sends them.

    Args:
        env: its worlds.
        player: says who plays.
        collector: plays.
        number: of this actor, from 0.
        actors: how many there are.
    """

    def __init__(
        self, env: EnvBase, player: LaggingPlayer, collector: RolloutCollector, number: int, actors: int
    ) -> None:
        self.env, self.player, self.collector = env, player, collector
        self.number, self.actors = number, actors
        self.stages: dict[int, int] = {}
        self._stage: int | None = None
        self._snapshots: dict[int, dict[str, Any]] = {}
        """What this actor was after so many rollouts, as long as the learner may ask for it."""
        self._mail = Outbox(ahead(player) + 1)

    def run(self) -> None:
        """Play until the learner needs no more."""
        begin: list[Any] = [None]
        distributed.broadcast_object_list(begin, LEARNER)
        if begin[0] is None:
            return
        self._begin(begin[0])
        first = self.player.iterations
        for rollout in itertools.count(first):
            self._snapshots[rollout] = self._snapshot()
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
            mine = {name: rows.chunk(self.actors, -1)[self.number] for name, rows in begin["world"].items()}
            self.env.load_state_dict(with_rows(self.env.state_dict(), lambda _, axis: mine))
            root = TensorDict(begin["root"]).auto_batch_size_(1)
            self.collector.root.update_(root.chunk(self.actors)[self.number])
        load_random_state(begin["random"], self.env.device)
        self._stage = self._stage_for(self.player.iterations - 1)

    def _follow_ticket(self) -> bool:
        """Wait for the learner's next ticket and do what it asks for; False if that is to end."""
        ticket = torch.empty(3, dtype=torch.int64)
        wait(distributed.irecv(ticket, LEARNER, tag=TICKETS))
        wanted, number, stage = ticket.tolist()
        if wanted == SAVE:
            send(self._snapshots[number], LEARNER, WORLDS, self._mail)
        elif wanted == GO_ON:
            self.player.iterations = number
            self.stages = still_played({**self.stages, number: stage}, self.player)
            self._snapshots = {place: each for place, each in self._snapshots.items() if place > number}
            if self.player.publishes():
                state = {name: value.clone() for name, value in self.player.agent.state_dict().items()}
                packed = pack(state.values())
                wait(distributed.irecv(packed, LEARNER, tag=TICKETS))
                unpack(packed, state.values())
                self.player.keep(number, state)
        return wanted != STOP

    def _snapshot(self) -> dict[str, Any]:
        known = getattr(self.env, "branchless", False)
        return {
            "world": on_cpu(rows_of(self.env.state_dict())) if known else None,
            "root": on_cpu(self.collector.root.clone().to_dict()) if known else None,
            "random": random_state(self.env.device),
        }

    def _stage_for(self, rollout: int) -> int | None:
        """The curriculum's stage in which a rollout is played: that of the version that plays."""
        version = self.player.version_for(rollout)
        known = [number for number in self.stages if number <= version]
        return self.stages[max(known)] if known else None

    def _set_stage(self, rollout: int) -> None:
        stage = self._stage_for(rollout)
        if stage is not None and stage != self._stage and getattr(self.env, "curriculum", None) is not None:
            self.env.curriculum.stage = self._stage = stage
            self.env.begin_stage()


def ahead(player: LaggingPlayer) -> int:
    """Rollouts that an actor may have played since the one that is learnt from."""
    return player.lag + player.refresh_every


def layout(frames: TensorDictBase) -> dict[str, Any]:
    """What frames [T, N] are made of, as plain values: shapes of entries and of nested tensordicts behind [T, N]."""
    return {
        "shape": tuple(frames.shape),
        "entries": [(key, value.shape[2:], value.dtype) for key, value in frames.items(True, True)],
        "nested": [(key, value.shape[2:]) for key, value in frames.items(True) if is_tensor_collection(value)],
    }


def still_played(stages: Mapping[int, int], player: LaggingPlayer) -> dict[int, int]:
    """Of stages, by the iterations after which they began, those in which somebody may yet play, or played last."""
    oldest = player.version_for(player.iterations - 1)
    first = max((number for number in stages if number <= oldest), default=oldest)
    return {number: stage for number, stage in stages.items() if number >= first}
