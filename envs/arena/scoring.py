"""Reward of a step, end of the episode, and episode statistics."""

from __future__ import annotations

from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import State


def reward(state: State, rules: Rules) -> Tensor:
    """Compute the reward of the last step, [N]."""
    events, difficulty = state.events, state.difficulty
    shaping = rules.shaping_scale * difficulty.shaping * events.shaping
    return (
        rules.reward_survival
        + rules.reward_shot * events.shots
        + rules.reward_enemy_hit * events.enemy_hits
        + rules.reward_enemy_destroyed * events.enemies_shot
        + rules.reward_spawner_hit * events.spawner_hits
        + rules.reward_spawner_destroyed * events.spawners_destroyed
        + rules.reward_quick_spawner * events.quick_spawners
        + rules.reward_phase_complete * events.phases_completed
        + rules.reward_hit_taken * difficulty.hit_penalty * events.hits_taken
        + rules.reward_death * events.died
        + shaping.clamp(-rules.shaping_clip, rules.shaping_clip)
    )


def ends(state: State, rules: Rules) -> tuple[Tensor, Tensor]:
    """Return (terminated, truncated), bool [N]: dead or won; out of time."""
    terminated = (state.events.died + state.events.won) > 0
    return terminated, (state.progress.step >= rules.max_steps) & ~terminated


def statistics(state: State) -> dict[str, Tensor]:
    """Return the statistics of the episode so far, float32 [N]; ``win_step`` is 0 unless won."""
    won = state.events.won
    return {"win": won, "win_step": won * state.progress.step, **state.tally._asdict()}
