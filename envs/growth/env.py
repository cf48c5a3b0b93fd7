"""TorchRL environment of growing networks: wiring, no logic of the game."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.data import Binary, Bounded, Composite, MultiCategorical
from typing_extensions import override

from envs.base.game import Names, NoSettings
from envs.base.world import World
from envs.growth.actions import Tables, action_mask, head_mask, legal_slots, make_tables
from envs.growth.dynamics import advance
from envs.growth.hosts import EXAMPLES, OwnHost, example
from envs.growth.observation import COLORS, SIZE, names, observe, sketch
from envs.growth.rules import HEADS, OPERATIONS, Rules, make_rules
from envs.growth.scoring import ends, events, potential, statistics
from envs.growth.scripted import players
from envs.growth.state import STREAM_START, State, spawn
from envs.growth.tasks import NEEDED, Task, at_once, make_task
from envs.toolkit.chance import Chance
from envs.toolkit.records import map_record


class GrowthEnv(World):
    """Host networks in training, ``num_envs`` at once on one device; the agent decides how each grows.

    A step trains a host on a few minibatches. Before it the agent may germinate a module of some blueprint in a slot,
    change how far a module is blended in, prune it, or make it permanent.

    Keys: ``observation`` float32 [N, F] (envs/growth/observation.py names the components); ``action`` int64 [N, 8]:
    slot, blueprint, style, tempo, alpha target, alpha speed, alpha curve, operation (envs/growth/rules.py);
    ``action_mask`` bool [N, values of all heads], values that are legal in some action; ``head_mask`` bool
    [N, 6, values of the others], the values that each operation leaves to the other heads (one where a head cannot
    matter);
    ``reward`` [N, 1]; ``done``, ``terminated`` (time is up, or the host was rolled back), ``truncated`` (never) [N, 1];
    ``("episode", name)`` [N, 1], statistics of the running episode (envs/growth/scoring.py).

    An operation that is illegal at its slot becomes waiting.

    Args:
        num_envs: number of worlds.
        device: device of the worlds; the CPU by default.
        seed: world i has the same game for the same seed, whatever ``num_envs`` is.
        task: data that hosts learn: ``order``, ``markov``, ``digits`` (needs scikit-learn) or ``mnist1d`` (needs the
            package mnist1d); or rows [rows, ...] and their classes, int64 [rows] or [rows, levels].
        level: hidden level of the task in every world; by default drawn at each reset.
        rules: mapping of what differs from :class:`~envs.growth.rules.Rules`.
        host: a module of one's own, which takes rows [B, ...] of the task and returns logits [B, classes].
        slots: names of the submodules behind which the host has a slot, with the axis of their features; in a plain
            sequence that is the last one (:class:`~envs.growth.hosts.OwnHost`).
        potential: add ``potential`` [N, 1], how far the slots' modules are in their lives, for potential-based shaping.
        desynchronize: start worlds at random step counts, so that they do not all end at once.
        compile: (taken by TorchRL's metaclass) ``True``, or options of ``torch.compile``: see :meth:`World.compile`.

    Raises:
        ValueError: an argument is out of its range; the sentence names it and the valid values.
    """

    film_fps = 6

    def __init__(
        self,
        num_envs: int = 1,
        *,
        device: torch.device | str | None = None,
        seed: int = 0,
        task: str | tuple[Tensor, Tensor] = "order",
        level: int | None = None,
        rules: Rules | Mapping[str, Any] | None = None,
        host: nn.Module | None = None,
        slots: Sequence[str] | Mapping[str, int] = (),
        potential: bool = False,
        desynchronize: bool = False,
    ) -> None:
        super().__init__(num_envs, device=device, seed=seed)
        self.rules, self.level, self.potential = make_rules(rules), level, potential
        self.task = task if isinstance(task, str) else "your own"
        self.truncation_limit = self.rules.max_steps
        self.data: Task = make_task(task, self.rules.validation_rows, self.device)
        if self.rules.host == "mlp":
            self.data = at_once(self.data)
        self.levels, self.classes = self.data.labels.shape[1], self.data.classes()
        self._take_host(host, slots)
        if level not in (None, *range(self.levels)):
            raise ValueError(f"level is {level!r}: task {self.task!r} has 0 to {self.levels - 1}.")
        self.needed = NEEDED.get(self.task) if self.rules.host == "pointwise" else None
        useful = range(self.levels) if self.needed is None else [len(slots) for slots in self.needed]
        self.tables: Tables = make_tables(self.rules, [float(each) for each in useful], self.classes, self.device)
        sizes = self.rules.head_sizes
        shaping = {"potential": Bounded(0.0, 1.0, (num_envs, 1), device=self.device)} if potential else {}
        observations = Composite(
            observation=Bounded(-1.0, 1.0, (num_envs, len(names(self.rules))), device=self.device),
            action_mask=self._flags(sum(sizes)),
            head_mask=self._flags(len(OPERATIONS), sum(sizes[:-1])),
            **shaping,
            shape=(num_envs,),
            device=self.device,
        )
        actions = MultiCategorical(sizes, shape=(num_envs, len(sizes)), dtype=torch.int64, device=self.device)
        self._build(observations, actions, midway=desynchronize)

    def _take_host(self, module: nn.Module | None, slots: Sequence[str] | Mapping[str, int]) -> None:
        """Put a host of one's own, or an example of one, into the rules."""
        rows, rules = self.data.inputs, self.rules
        if module is None and slots:
            raise ValueError("slots name places in a host of your own: give host, too.")
        if not isinstance(module, nn.Module | None):
            raise ValueError(f"host is {module!r}: give a PyTorch module, or name one of ours as rules.host.")
        if isinstance(slots, str):
            raise ValueError(f"slots is {slots!r}: give a list of names, such as [{slots}].")
        if module is None and rules.host != "mlp" and rows.ndim != 3:
            shape = list(rows.shape[1:])
            raise ValueError(f"rules.host is {rules.host!r}, which reads rows [positions, features], not {shape}.")
        if module is None and rules.host in EXAMPLES:
            module, slots = example(rules.host, rows, self.classes, rules.width)
        if module is not None:
            host = OwnHost(module, slots, rows, self.classes)
            self.rules = replace(rules, host=host, slots=len(host.widths), width=max(host.widths, default=1))

    def _flags(self, *shape: int) -> Binary:
        return Binary(shape[-1], (self.num_envs, *shape), dtype=torch.bool, device=self.device)

    @override
    def spawn(self, settings: NoSettings, chance: Chance, midway: bool) -> State:
        """Return fresh hosts without modules; with ``midway`` at random step counts, but as untrained."""
        features = self.data.inputs.shape[-1]
        state = spawn(settings.worlds, chance, self.rules, features, self.classes, self.levels)
        if self.level is not None:
            state = state._replace(level=torch.full_like(state.level, self.level))
        if not midway:
            return state
        return state._replace(step=torch.floor(chance.uniform(STREAM_START, 1)[0] * self.rules.max_steps))

    @override
    def advance(self, state: State, action: Tensor, chance: Chance) -> State:
        """Return the state after one step of the game."""
        return advance(state, action.T, chance, self.data, self.rules, self.tables)

    @override
    def observe(self, state: State) -> dict[str, Tensor]:
        """Return observation and masks."""
        legal = legal_slots(state.slots, state.measures.accuracy, self.rules)
        mask = action_mask(legal, self.rules)
        seen = {
            "observation": observe(state, self.rules, self.tables),
            "action_mask": mask.T.contiguous(),
            "head_mask": head_mask(mask, legal, self.tables).permute(2, 0, 1).contiguous(),
        }
        return {**seen, "potential": potential(state.slots).unsqueeze(-1)} if self.potential else seen

    @override
    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return reward, terminated and truncated of the last step."""
        return state.tally.reward, *ends(state, self.rules)

    @override
    def statistics(self, state: State) -> dict[str, Tensor]:
        """Return the game's episode statistics (envs/growth/scoring.py)."""
        return statistics(state, self.tables.useful)

    @override
    def names(self) -> Names:
        """Return names of the heads, their values and the observation's components, and the colors of stages."""
        slots, *others = self.rules.head_values
        places, observed = [f"slot {slot}" for slot in slots], {"observation": names(self.rules)}
        words = [[str(value[0] if isinstance(value, tuple) else value) for value in values] for values in others]
        choices = [places, *words]
        return {"actions": places, "heads": HEADS, "choices": choices, "observation": observed, "legend": COLORS}

    @override
    def players(self) -> dict[str, TensorDictModuleBase]:
        """Return scripted policies of this world instance, by name (envs/growth/scripted.py)."""
        return players(self)

    def events(self, world: int = 0) -> list[dict[str, Any]]:
        """Return the events of one world's running episode, as plain values (envs/growth/scoring.py)."""
        return [event.as_dict() for event in events(self.state, world)]

    def episode_events(self) -> list[dict[str, Any]]:
        """Return the events of the longest of the running episodes, with the number of their world."""
        world = int(self.state.step.argmax())
        return [{"world": world, **event} for event in self.events(world)]

    def draw(self, world: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
        """Return a picture of one world's present state, uint8 [height, width, 3]; ``size`` is (width, height)."""
        return sketch(self.state, world, self.rules, size).picture()

    def scene(self, world: int = 0) -> dict[str, Any]:
        """Return the drawing of one world's present state as vectors."""
        return sketch(self.state, world, self.rules).vectors()

    @override
    def extra_repr(self) -> str:
        """See :meth:`World.extra_repr`."""
        return f"task={self.task}, slots={self.rules.slots}, {super().extra_repr()}"

    @override
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> World:
        super()._apply(fn, recurse)
        self.data = map_record(fn, self.data)
        if isinstance(self.rules.host, OwnHost):
            self.rules.host.to(fn)
        return self
