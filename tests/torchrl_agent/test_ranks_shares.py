"""What of a training is a rank's, and what ranks refuse together; no other process is started."""

from types import SimpleNamespace

import pytest

from torchrl_agent import Experiment
from torchrl_agent.core import ranks
from torchrl_agent.experiment.rank_checks import check_actors, check_ranks, own_num_envs, take_shard


@pytest.fixture
def third_of_three():
    """As if this were rank 2 of three."""
    with ranks.among(3, 2):
        yield


def test_a_rank_plays_its_share_of_the_worlds(third_of_three):
    experiment = Experiment.load("smoke", "device=cpu", "world.num_envs=12", "seed=5")
    assert own_num_envs(experiment) == 4
    parts = []
    ours = SimpleNamespace(batch_size=(4,), branchless=True, take_shard=lambda *part: parts.append(part))
    assert take_shard(experiment, ours) == 5
    assert parts == [(8, 12)]
    assert take_shard(experiment, SimpleNamespace(batch_size=(4,), branchless=True)) == 5 + 8
    with ranks.alone():
        assert own_num_envs(experiment) is None
        assert take_shard(experiment, ours) == 5
    assert len(parts) == 1


def test_ranks_that_differ_are_named(third_of_three, monkeypatch):
    experiment = Experiment.load("smoke", "device=cpu")
    monkeypatch.setattr(ranks, "all_gather", lambda facts: [facts] * 3)
    check_ranks(experiment)
    for fact in ("configuration", "version of the code", "run.shard", "run.spread_agents"):
        monkeypatch.setattr(ranks, "all_gather", lambda facts, fact=fact: [facts, facts, {**facts, fact: "another"}])
        with pytest.raises(ValueError, match=rf"rank 2 has another {fact} \(another\) than rank 0"):
            check_ranks(experiment)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["world.num_envs=15"], "15 does not divide among 2 actors, as one of 3 processes learns"),
        (["governor.enabled=true"], "governor.enabled takes back what actors have played with"),
    ],
)
def test_what_actors_cannot_play_is_refused_by_all(third_of_three, words, sentence):
    check_actors(Experiment.load("smoke", "algorithm=impala", "device=cpu"))
    with pytest.raises(ValueError, match=sentence):
        check_actors(Experiment.load("smoke", "algorithm=impala", "device=cpu", *words))
