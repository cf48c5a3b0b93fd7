"""What a step was worth, and whether it was the last."""

from __future__ import annotations

from torch import Tensor

from envs.arena.rules import Rules
from envs.arena.state import State, Tally

STATISTICS = (
    "return",
    "length",
    "win",
    "win_step",
    "spawners_destroyed",
    "enemies_destroyed",
    "damage_dealt",
    "damage_taken",
    "shots_dropped",
    "complete",
    "stage",
)
"""Names of the episode statistics: ``win_step`` is 0 unless won; ``complete`` is 0 for an episode that began midway
(desynchronised).
"""


def reward(state: State, rules: Rules) -> Tensor:
    """Reward of the last step, [N]."""
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
    """(terminated, truncated), bool [N]: dead or won; out of time."""
    terminated = (state.events.died + state.events.won) > 0
    return terminated, (state.progress.step >= rules.max_steps) & ~terminated


def count(state: State, reward: Tensor, rules: Rules) -> State:
    """Add the last step to the episode's statistics."""
    tally, events = state.tally, state.events
    hits = events.enemy_hits + events.spawner_hits
    tally = Tally(
        total_reward=tally.total_reward + reward,
        first_step=tally.first_step,
        spawners_destroyed=tally.spawners_destroyed + events.spawners_destroyed,
        enemies_destroyed=tally.enemies_destroyed + events.enemies_shot + events.enemies_rammed,
        damage_dealt=tally.damage_dealt + hits * rules.projectile_damage,
        damage_taken=tally.damage_taken,
        shots_dropped=tally.shots_dropped + events.shots_dropped,
    )
    return state._replace(tally=tally)


def statistics(state: State) -> dict[str, Tensor]:
    """The episode so far by name, float32 [N]."""
    tally, won = state.tally, state.events.won
    values = (
        tally.total_reward,
        state.progress.step - tally.first_step,
        won,
        won * state.progress.step,
        tally.spawners_destroyed,
        tally.enemies_destroyed,
        tally.damage_dealt,
        tally.damage_taken,
        tally.shots_dropped,
        (tally.first_step == 0).float(),
        state.difficulty.stage,
    )
    return dict(zip(STATISTICS, values, strict=True))
