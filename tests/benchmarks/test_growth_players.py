"""The fixed schedules of the growth world, followed in one batch."""

import torch
from growing import small

from benchmarks.growth_players import COLUMNS, MixedSchedules, compared, final, schedules
from envs.growth.scripted import SchedulePlayer


def test_there_are_at_least_48_schedules_none_twice():
    plans = schedules()
    assert len(plans) == len(set(plans)) >= 48
    assert {len(plan) for plan in plans} == {0, 1, 2, 3}


def test_each_world_follows_its_own_schedule():
    plans = [schedules()[number] for number in (0, 1, 20)]
    assert [len(plan) for plan in plans] == [0, 1, 2]
    mixed = small(6, max_steps=30)
    found = final(mixed, MixedSchedules(mixed, plans))
    for number, plan in enumerate(plans):
        alone = small(6, max_steps=30)
        expected = final(alone, SchedulePlayer(alone, plan))
        for key in ("germinated", "permanent", "return", "accuracy"):
            assert torch.equal(found[key][number::3], expected[key][number::3]), (number, key)


def test_players_are_compared_with_rivals_in_the_same_worlds_also_with_later_ones():
    first, second = ({key: factor * torch.arange(4.0) for key in (*COLUMNS, "useful")} for factor in (1, 2))
    rows = compared({"first": first, "runs/second": second}, {"ahead": ("return", "runs/second")})
    assert [(row["player"], row["ahead"]["mean"]) for row in rows] == [("first", -1.5), ("second", 0.0)]
