"""Ranks beside one process."""

import pytest

from benchmarks.__main__ import main
from benchmarks.distributed import efficiency


def test_efficiency_is_the_share_that_computes():
    # 8 * 1e6 * 3/4 bytes at 6e9/s are 1 ms, and 2 * log2(4) messages of 0.25 ms another one; 5 of them beside 10 ms
    assert efficiency(0.01, 4, 1_000_000, 5, 6e9, 0.25e-3) == pytest.approx(0.5)
    assert efficiency(0.01, 1, 1_000_000, 5, 6e9, 0.25e-3) == 1


def test_one_process_is_no_comparison(capsys):
    assert main(["distributed", "--processes", "1"]) == 2
    assert "--processes is 1: give at least 2." in capsys.readouterr().err


@pytest.mark.slow
def test_ranks_and_one_process_take_turns(capsys):
    assert main(["distributed", "smoke", "--rounds", "2"]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("times_as_fast", "communication_share", "64 GPUs, NVLink"))
    assert main(["distributed", "smoke", "world.num_envs=15"]) == 2
    assert "does not divide" in capsys.readouterr().err
