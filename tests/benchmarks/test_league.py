"""What a league gains, and what matches cost, in small."""

import pytest
import torch

from benchmarks import league, matches
from benchmarks.__main__ import main
from benchmarks.league import measure_league, rivals
from benchmarks.matches import measure_matches
from torchrl_agent import Experiment
from torchrl_agent.evaluation.matches import Competitor, Games, Snapshot
from torchrl_agent.profiling.timing import seconds_per_call
from torchrl_agent.training.collector import agent_rows

SMALL = [
    "device=cpu",
    "population.members=2",
    "league.slots=1",
    "world.num_envs=16",
    "+world.rules={max_steps: 24}",
    "+evaluation.world.rules={max_steps: 24}",
    "model.hidden_sizes=[8]",
    "algorithm.rollout_steps=4",
    "algorithm.minibatch_size=80",
    "league.snapshot_every=32",
    "total_frames=128",
    *(f"acceleration.{part}=false" for part in ("step", "advantages", "update")),
]


def test_rivals_learn_from_as_many_rows_in_as_many_updates():
    whole = Experiment.load("duel_league", *SMALL)
    populations = {"league": whole, **rivals(whole)}
    rows, iterations = {}, {}
    for name, experiment in populations.items():
        learner = experiment.make_learner()
        rows[name] = agent_rows(learner.collector.collect(), "agents", learner.learning).shape[1]
        iterations[name] = experiment.total_frames / (4 * learner.num_envs / 2)
    assert rows == dict.fromkeys(rows, 2 * 20)
    assert iterations == dict.fromkeys(iterations, 2)


@pytest.mark.slow
def test_shares_of_a_league_in_small():
    found = measure_league("duel_league", SMALL, [0], games=2, exploit_frames=64)
    assert len(found["of_each_seed"]) == 1
    for row in found["of_each_seed"]:
        assert set(row["exploited"]) == {"league", "alone", "fixed"}
        assert all(0 <= share <= 1 for share in row["exploited"].values())
    judged = found["found"]["against its members' older selves"]
    assert 0 <= judged["mean"] <= 1
    assert judged["asked"] == "above 0.55"
    row = found["of_each_seed"][0]
    assert len(row["against its members' past, oldest first"]) >= 3  # of 32, 64 and 96 frames


def test_past_selves_are_judged_by_their_age(monkeypatch):
    taken = {32: 1.0, 96: 0.5, 64: 0.0}  # of the points of each past self, by its frames
    past = [Snapshot(member, frames, None) for frames in taken for member in (0, 1)]

    def play(_, met, games):
        first, second = torch.triu_indices(len(met), len(met), 1)
        against = [taken.get(int(met[each].name), 0.0) for each in second.tolist()]
        points = torch.tensor(against) * (first == 0)
        return {league.WAY: Games(first, second, points)}

    monkeypatch.setattr(league, "snapshots_of", lambda *_: past)
    monkeypatch.setattr(league, "play_tournament", play)
    whole = Experiment.load("duel_league", *SMALL)  # of 128 frames
    found = league._against_past(whole, None, [Competitor("0"), Competitor("1")], games=2)
    assert found["against its members' past, oldest first"] == [1.0, 0.0, 0.5]
    assert found[league.OLDER] == 1.0  # those of fewer than 64 frames
    assert found[league.AGE] == pytest.approx(1 / 3)  # two pairs of three


def test_a_league_without_exploiters_or_without_a_past(monkeypatch):
    judged = {league.OLDER: 0.8, league.AGE: 1.0}
    monkeypatch.setattr(league, "_finish", lambda experiment: None)
    monkeypatch.setattr(league, "_judge", lambda *_: dict(judged))
    found = measure_league("duel_league", SMALL, [0, 1], games=2, exploit_frames=0)
    assert found["of_each_seed"] == [judged, judged]
    assert set(found["found"]) == set(judged)
    with pytest.raises(ValueError, match="snapshot_every is 64: keep a snapshot in the first half of 128 frames"):
        measure_league("duel_league", [*SMALL, "league.snapshot_every=64"], [0], games=2, exploit_frames=0)


def test_matches_are_timed_and_unbalanced_ones_refused(capsys, monkeypatch):
    monkeypatch.setattr(matches, "seconds_per_call", lambda act, _, device: seconds_per_call(act, 0.01, device))
    found = measure_matches(
        "duel", ["device=cpu", "model.hidden_sizes=[8]", "acceleration.step=false"], players=2, rows=16
    )
    assert found["times_as_long"] > 0
    for words, sentence in (
        (["matches", "--rows", "10", "--players", "3"], "--rows is 10: give a multiple of 6"),
        (["matches", "--players", "0"], "--players is 0"),
        (["league", "duel"], "has no league"),
        (["league", "--games", "3"], "games is 3: give an even number"),
        (["league", "--exploit-frames", "-1"], "--exploit-frames is -1: give 0"),
    ):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err


def test_a_league_is_needed():
    with pytest.raises(ValueError, match="configuration duel has no league"):
        measure_league("duel", ["device=cpu"], [0], games=2, exploit_frames=10)
