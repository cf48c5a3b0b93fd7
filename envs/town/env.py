"""TorchRL environment of the Town: wiring, no game logic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, TensorSpec
from typing_extensions import override

from envs.base.curriculum import load_curriculum
from envs.base.game import Names
from envs.base.world import GROUP, World
from envs.toolkit.chance import Chance
from envs.toolkit.names import check_choice
from envs.town.dynamics import advance, legal_actions, show_cues, spawn
from envs.town.experts import STAY, YESTERDAY, Others, PlanningPlayer, SearchConfig, TryingPlayer
from envs.town.levels import level_settings, make_rules, stage_rules
from envs.town.observation import (
    MODES,
    action_mask,
    global_size,
    global_state,
    group_shapes,
    num_visible,
    observation_names,
    observe,
    others_number,
    privileged,
)
from envs.town.people import anybody, learners, move_in, send
from envs.town.picture import SIZE, legend, marks, scene, sketch, window_colors
from envs.town.rules import HOURS, Rules, Settings
from envs.town.scoring import calm, ends, feel, money, reward, reward_parts, statistics, wellbeing
from envs.town.scripted import ConstantPlayer, FogPlayer, GreedyPlayer
from envs.town.state import STREAM_START, TRAITS, State, Tables, make_tables

CURRICULA = Path(__file__).parent / "curricula"


class TownEnv(World):
    """Life simulation: agents keep their meters above zero by visiting places; ``num_envs`` towns at once on a device.

    Keys, with A agents: ``("agents", "observation")`` float32 [N, A, F] (or one key per group, see
    envs/town/observation.py), ``("agents", "others_number")`` int64 [N, A, V] (index of the agent in each slot of the
    visible others), ``("agents", "action_mask")`` bool [N, A, actions], ``("agents", "alive")`` bool [N, A],
    ``("agents", "action")`` int64 [N, A] (with a family channel [N, A, 2]: action and symbol), ``("agents", "reward")``
    [N, A, 1]; ``state`` [N, G], the global state for centralized critics; ``done``, ``terminated`` (all agents are
    dead), ``truncated`` (time is up: the survivors retire) [N, 1]; ``("episode", name)`` [N, 1], statistics of the
    running episode, means over the agents (with many agents their last bit may depend on ``num_envs``), final where
    ``("next", "done")``.

    Dead agents may only wait, get no reward and have no effect. Illegal actions become waiting and are counted.

    Args:
        num_envs: number of worlds.
        device: device of the worlds; the CPU by default.
        seed: world i has the same game for the same seed, whatever ``num_envs`` is.
        num_agents: number of agents in each world; by default the level's.
        level: one of ``envs.town.LEVELS``, or the path of a YAML file (envs/town/levels.py).
        rules: changes of the level (a mapping of its keys), or whole :class:`Rules` instead of a level.
        observation: ``flat`` or ``groups``.
        privileged: add ``("agents", "privileged", ...)``: the true meters and needs of visible others, as training
            labels only.
        potential: add ``("agents", "potential")`` [N, A, 1], the wellbeing of the living, for potential-based shaping.
        drives: add ``("agents", "drives")`` [N, A, 4], the signal of the last step for each trait
            (envs/town/scoring.py), and ``("agents", "character")`` [N, A, 4], the traits: not observations, but inputs
            of the agents' intrinsic rewards; and the statistic ``money``.
        traits: traits of all agents by name (``neuroticism``, ``greed``, ``agreeableness``, ``curiosity``), each in
            [0, 1]; those that are not named are drawn at every birth (see :meth:`set_people`).
        curriculum: None for the level itself; ``depletion`` or ``levels``, or the path of a YAML list of stages
            (envs/base/curriculum.py). A stage changes the settings of fresh towns: its ``level`` gives map size,
            places, initial meters and depletion, its multiplier ``depletion`` scales the latter; all else stays the
            level's.
        stage: with a curriculum: ``auto`` to move by its criteria, or the number of the stage to stay in.
        desynchronize: start worlds at random step counts, so that they do not all end at once.
        compile: (taken by TorchRL's metaclass) ``True``, or options of ``torch.compile``: see :meth:`World.compile`.

    Raises:
        ValueError: an argument or the level is invalid; the sentence names it and the valid values.
    """

    film_fps = 4

    def __init__(
        self,
        num_envs: int = 1,
        *,
        device: torch.device | str | None = None,
        seed: int = 0,
        num_agents: int | None = None,
        level: str | Path = "L3",
        rules: Rules | dict[str, Any] | None = None,
        observation: str = "flat",
        privileged: bool = False,
        potential: bool = False,
        drives: bool = False,
        traits: Mapping[str, float] | None = None,
        curriculum: str | Path | None = None,
        stage: int | str = "auto",
        desynchronize: bool = False,
    ) -> None:
        check_choice(observation, MODES, "observation")
        super().__init__(num_envs, device=device, seed=seed)
        self.rules = make_rules(level, rules, num_agents)
        if privileged and num_visible(self.rules) == 0:
            raise ValueError(
                "privileged labels are about visible others: use at least 2 agents and 1 of visible_agents."
            )
        if potential and not self.rules.needs:
            raise ValueError(f"town {self.rules.name} serves no need: it has no wellbeing to use as a potential.")
        self.num_agents, self.truncation_limit = self.rules.num_agents, self.rules.max_steps
        self.mode, self.privileged, self.potential, self.drives = observation, privileged, potential, drives
        if curriculum is not None:
            self.curriculum = load_curriculum(curriculum, CURRICULA, num_envs, stage, ("depletion",))
            self.stages = [stage_rules(stage, self.rules) for stage in self.curriculum.stages]
        self.tables: Tables = make_tables(self.rules, self.device)
        self.traits = traits
        self._build(self._observation_spec(), self._action_spec(), midway=desynchronize)

    def _observation_spec(self) -> Composite:
        n, agents, rules = self.num_envs, self.rules.num_agents, self.rules
        flat = {name: (len(words),) for name, words in observation_names(rules, "flat").items()}
        shapes = flat if self.mode == "flat" else group_shapes(rules)

        def box(*shape: int) -> Bounded:
            return Bounded(-1.0, 1.0, (n, *shape), device=self.device)

        def whole(count: int, *shape: int, dtype: torch.dtype = torch.int64) -> Categorical:
            return Categorical(count, shape=(n, *shape), dtype=dtype, device=self.device)

        specs: dict[str, TensorSpec] = {name: box(agents, *shape) for name, shape in shapes.items()}
        actions = len(rules.action_names) + rules.symbols
        specs["action_mask"] = Binary(actions, (n, agents, actions), dtype=torch.bool, device=self.device)
        specs["alive"] = whole(2, agents, dtype=torch.bool)
        seen, meters = num_visible(rules), len(rules.meters)
        if seen:
            specs["others_number"] = whole(rules.population + 1, agents, seen)
        if self.potential:
            specs["potential"] = box(agents, 1)
        if self.drives:
            specs |= {"drives": box(agents, len(TRAITS)), "character": box(agents, len(TRAITS))}
        if self.privileged:
            specs["privileged"] = Composite(
                others_meters=box(agents, seen, meters),
                others_need=whole(meters, agents, seen),
                others_action=whole(len(rules.action_names), agents, seen),
                shape=(n, agents),
                device=self.device,
            )
        group = Composite(**specs, shape=(n, agents), device=self.device)
        return Composite({GROUP: group, "state": box(global_size(rules))}, shape=(n,), device=self.device)

    def _action_spec(self) -> TensorSpec:
        shape, count = (self.num_envs, self.rules.num_agents), len(self.rules.action_names)
        if not self.rules.symbols:
            return Categorical(count, shape=shape, dtype=torch.int64, device=self.device)
        heads = [count, self.rules.symbols]
        return MultiCategorical(heads, shape=(*shape, 2), dtype=torch.int64, device=self.device)

    @override
    def settings(self) -> Settings:
        """Return the settings of the level, or of the curriculum's stage, for all worlds; people are kept."""
        rules = self.rules if self.curriculum is None else self.stages[self.curriculum.stage]
        if hasattr(self, "_snapshot"):
            return level_settings(rules, self._snapshot.settings.people)
        people = anybody(self.rules.num_agents, self.num_envs, self.device)
        send(people, self.traits, None)
        return level_settings(rules, people)

    @override
    def spawn(self, settings: Settings, chance: Chance, midway: bool) -> State:
        """Return towns at hour 0; with ``midway`` at random step counts, in which no agent acted."""
        state = spawn(self.rules, self.tables, settings, chance)
        if self.rules.num_residents:
            state = move_in(state, chance, self.rules, self.tables)
        state = show_cues(state, chance, self.rules, self.tables)
        if self.drives:
            state = calm(state, self.rules)
        if not midway:
            return state
        step = (chance.uniform(STREAM_START, 1)[0] * self.rules.max_steps).int()
        return state._replace(step=step)

    @override
    def advance(self, state: State, action: Tensor, chance: Chance) -> State:
        """Return the state after one step of the game."""
        heads = action.permute(*reversed(range(action.ndim)))  # [A, N], or [2, A, N] with a symbol
        chosen, symbol = (heads[0], heads[1]) if self.rules.symbols else (heads, None)
        after = advance(state, chosen, symbol, chance, self.rules, self.tables)
        return feel(after, state, self.rules) if self.drives else after

    @override
    def observe(self, state: State) -> dict[str, Any]:
        """Return observations by key."""
        groups: dict[str, Any] = observe(state, self.rules)
        if self.mode == "flat":
            groups = {"observation": torch.cat([value.flatten(2) for value in groups.values()], -1)}
        own = learners(state, self.rules)
        groups["action_mask"] = action_mask(legal_actions(own, self.rules, self.tables), own, self.rules)
        groups["alive"] = own.agents.alive.T.clone()
        if num_visible(self.rules):
            groups["others_number"] = others_number(state, self.rules)
        if self.potential:
            alive = own.agents.alive
            groups["potential"] = torch.where(alive, wellbeing(own, self.rules), 0.0).T.unsqueeze(-1).clone()
        if self.drives:
            groups["drives"] = state.drives.felt.permute(2, 1, 0).contiguous()
            groups["character"] = own.traits.permute(2, 1, 0).contiguous()
        if self.privileged:
            groups["privileged"] = privileged(state, self.rules, self.tables)
        return {GROUP: groups, "state": global_state(state, self.rules)}

    @override
    def outcome(self, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return reward [A, N], terminated and truncated of the last step."""
        own = learners(state, self.rules)
        return reward(own, self.rules), *ends(own, self.rules)

    @override
    def reward_parts(self, state: State) -> dict[str, Tensor]:
        """Return the reward of the last step by part, [A, N] each."""
        return reward_parts(learners(state, self.rules), self.rules)

    @override
    def statistics(self, state: State) -> dict[str, Tensor]:
        """Return the game's episode statistics (envs/town/scoring.py)."""
        own = learners(state, self.rules)
        found = statistics(own, self.rules)
        return {**found, "money": money(own, self.rules)} if self.drives else found

    @override
    def names(self) -> Names:
        """Return names of actions, meters and the observation's entries, the meters that some place raises, the
        observations that show places, and the colors of the window's channels.
        """
        rules = self.rules
        seen = observation_names(rules, self.mode)
        words: Names = {
            "actions": rules.action_names,
            "meters": rules.meter_names,
            "observation": seen,
            "raised": rules.raised,
            "around": [name for name in ("map", "window") if name in seen],
            "legend": legend(rules),
        }
        if "window" in seen:
            words["colors"] = {"window": window_colors(rules)}
        return words

    @override
    def players(self) -> dict[str, TensorDictModuleBase]:
        """Return scripted policies of this world instance, by name."""
        in_fog = {} if self.rules.view is None else {"remembering": FogPlayer(self, True, self.rules.num_agents)}
        return {
            "greedy": GreedyPlayer(self),
            **in_fog,
            "rest": ConstantPlayer(self, "rest"),
            "wait": ConstantPlayer(self, "wait"),
            **super().players(),
        }

    @override
    def experts(self) -> dict[str, tuple[TensorDictModuleBase, ...]]:
        """Return scripted policies that search the true town, know its map or learn from experience, each before those
        that lack this (docs/claims.md).
        """
        greedy, planner = GreedyPlayer(self), PlanningPlayer(self)
        actions = PlanningPlayer(self, SearchConfig(candidates="actions", every=4, action_steps=1))
        result: dict[str, tuple[TensorDictModuleBase, ...]] = {
            "foresight": (planner, greedy),
            "hierarchy": (planner, actions),
        }
        if self.rules.num_residents:
            expected = [None, STAY, YESTERDAY, *self.rules.characters]
            result["social"] = tuple(
                PlanningPlayer(self, SearchConfig(residents=each, every=4, horizon=3 * HOURS // 2)) for each in expected
            )
        elif self.rules.num_agents > 1:
            kinds: tuple[Others, ...] = ("repeat", "wait")
            result["social"] = (planner, *(PlanningPlayer(self, SearchConfig(others=others)) for others in kinds))
        if self.rules.lookalikes:
            adapts, forgets = TryingPlayer(self, "adapts"), TryingPlayer(self, "forgets")
            result["memory"] = (adapts, forgets)
            if self.rules.trades_every is not None:
                result["change"] = (adapts, TryingPlayer(self, "stubborn"), forgets)
        elif self.rules.view is not None:
            remembers, forgets_all = FogPlayer(self, remembers=True), FogPlayer(self, remembers=False)
            result |= {"memory": (remembers, forgets_all), "map": (greedy, remembers)}
            if self.rules.teaching:  # a teacher's knowledge, beside finding places alone
                result["teacher"] = (greedy, remembers, forgets_all)
        return result

    def set_people(
        self, traits: Mapping[str, float | Tensor] | None = None, money: float | Tensor | None = None
    ) -> None:
        """Set traits and initial money of the agents in each world from its next reset on; omitted values are kept.

        Args:
            traits: the learning agents' traits by name, numbers in [0, 1], or tensors that fit [N, A]; NaN where
                a trait is drawn at every birth.
            money: initial money in addition to the level's, likewise, such as an inheritance; money 1.0 is the maximum.

        Raises:
            ValueError: a trait is unknown, a number is outside [0, 1], or the town has no money.
        """
        if money is not None and "money" not in self.rules.meters:
            raise ValueError(f"town {self.rules.name} has no meter money: leave money out.")
        send(self._snapshot.settings.people, traits, money)

    def draw(self, world: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
        """Return a picture of one world's present state, uint8 [height, width, 3]; ``size`` is (width, height)."""
        return sketch(self.state, self.episode, world, self.rules, size).picture()

    def scene(self, world: int = 0) -> dict[str, Any]:
        """Return the drawing of one world's present state as vectors, with its grid, agents and places."""
        return scene(self.state, self.episode, world, self.rules)

    def marks(self) -> dict[str, Any]:
        """Return the drawing of any moment as shapes whose numbers are read from the record."""
        return marks(self.rules)

    @override
    def extra_repr(self) -> str:
        """See :meth:`World.extra_repr`."""
        return f"level={self.rules.name}, num_agents={self.num_agents}, {super().extra_repr()}"
