"""Speed of the growth world beside single hosts, in the smallest sizes."""

from benchmarks.__main__ import main
from benchmarks.growth_speed import GROWN, plain_speed, table


def test_rows_are_one_after_another_then_batched_for_every_number_of_slots(capsys):
    sizes = ["--worlds", "2", "--slots", "1", "4", "--steps", "1", "--threads", "1"]
    assert main(["growth_speed", "--eager", *sizes]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [" ".join(line[-5:-3]) for line in lines[1:7]] == ["1 1", "1 2", "1 2", "4 1", "4 2", "4 2"]
    assert [line[-1] for line in lines[1:7:3]] == ["1.0", "1.0"]


def test_times_are_those_of_the_same_number_of_slots():
    batched = next(iter(GROWN))
    speeds = (("alone", 1, 1, 10.0), (batched, 1, 1, 40.0), ("alone", 2, 1, 5.0), (batched, 2, 8, 40.0))
    keys = ("what", "slots", "worlds", "per_processor_second")
    rows = [{**dict(zip(keys, row, strict=True)), "per_second": 1.0} for row in speeds]
    assert [line.split()[-1] for line in table(rows).splitlines()[1:]] == ["1.0", "4.0", "1.0", "8.0"]


def test_a_plain_host_of_more_slots_trains():
    assert plain_speed(4, 1)["per_second"] > 0
