"""Reward of a step, end of the episode, and episode statistics."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import State


def reward(state: State, rules: Rules) -> Tensor:
    """Compute the reward of the last step, [N]."""
    return functools.reduce(torch.add, reward_parts(state, rules).values())


def reward_parts(state: State, rules: Rules) -> dict[str, Tensor]:
    """Compute the reward of the last step by part, [N] each, in the order in which they are summed."""
    events, difficulty = state.events, state.difficulty
    shaping = rules.shaping_scale * difficulty.shaping * events.shaping
    return {
        "survival": torch.full_like(events.shots, rules.reward_survival),
        "shots": rules.reward_shot * events.shots,
        "enemy hits": rules.reward_enemy_hit * events.enemy_hits,
        "enemies destroyed": rules.reward_enemy_destroyed * events.enemies_shot,
        "spawner hits": rules.reward_spawner_hit * events.spawner_hits,
        "spawners destroyed": rules.reward_spawner_destroyed * events.spawners_destroyed,
        "quick spawners": rules.reward_quick_spawner * events.quick_spawners,
        "phases": rules.reward_phase_complete * events.phases_completed,
        "hits taken": rules.reward_hit_taken * difficulty.hit_penalty * events.hits_taken,
        "death": rules.reward_death * events.died,
        "shaping": shaping.clamp(-rules.shaping_clip, rules.shaping_clip),
    }


def ends(state: State, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return (terminated, truncated), bool [N]: dead or won; out of time."""
    terminated = (state.events.died + state.events.won) > 0
    return terminated, (state.progress.step >= rules.max_steps) & ~terminated


def statistics(state: State) -> dict[str, Tensor]:
    """Return the statistics of the episode so far, float32 [N]; ``win_step`` is 0 unless won."""
    won = state.events.won
    return {"win": won, "win_step": won * state.progress.step, **state.tally._asdict()}
