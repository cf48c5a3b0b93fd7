"""Members dealt out among ranks are the population of one process."""

import csv
import json

import pytest
import torch
from launching import QUICK, torchrun, two_ranks

from torchrl_agent.cli import main
from torchrl_agent.core import ranks

GENES = "+population.genes={algorithm.entropy_coeff: {low: 1e-4, high: 0.1}}"
EVOLVES = (
    "population={members: 4, every: 1000, least_episodes: 1}",
    "world.num_envs=8",
    "world.rules={max_steps: 50}",  # many short episodes
    "algorithm.minibatch_size=64",
)
PBT = ("smoke", *EVOLVES, GENES, "population.evolve=pbt", "population.margin=0", "total_frames=4096")
MEMORY = (*PBT[:-1], "model.memory=gru", "total_frames=3072")
FAMILIES = (
    "families",
    "population={members: 4, every: 512, least_episodes: 1, family: {inherit: mean, wealth: 0.5}}",
    "world={num_envs: 8, rules: {max_steps: 16}}",
    "model.hidden_sizes=[16,16]",
    "algorithm.minibatch_size=256",
    "total_frames=1536",
    "acceleration={step: false, advantages: false, update: false}",
)
FRESH = (*FAMILIES, "population.family={inherit: fresh}")


def state(run):
    (path,) = [*sorted((run / "checkpoints").glob("checkpoint_*[0-9].pt"), key=lambda p: len(p.name))][-1:]
    return torch.load(path, weights_only=True)


def assert_close(one, other, where=""):
    """Nested values that are equal up to rounding."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            assert_close(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list):
        assert len(one) == len(other), where
        for place, pair in enumerate(zip(one, other, strict=True)):
            assert_close(*pair, f"{where}[{place}]")
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6, equal_nan=True, msg=where)
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-2, abs=1e-4, nan_ok=True), where
    else:
        assert other == one, where


def rows(path):
    return [{name: float(value or "nan") for name, value in row.items()} for row in csv.DictReader(path.open())]


def metrics(run):
    return [
        {name: value for name, value in row.items() if not name.startswith("time/")}
        for row in rows(run / "metrics.csv")
    ]


def assert_same_population(one, two):
    """Two runs: checkpoints of the whole and of each member, lineage, and members' metrics."""
    for folder in ("", *(f"members/{member:02d}" for member in range(4))):
        states = [state(run / folder) for run in (one, two)]
        for each in states:
            del each["metadata"]
        assert_close(*states, where=folder)
        assert_close(*({"rows": metrics(run / folder)} for run in (one, two)), where=folder)
    for table in ("members.csv", "lineage.csv"):
        assert rows(one / table), "nobody was replaced, so nothing is shown"
        assert_close(*({"rows": rows(run / table)} for run in (one, two)), where=table)


def test_rows_that_another_rank_wants_travel(monkeypatch):
    """Two ranks of two rows each; who broadcasts receives what the other sent."""
    whole, places = torch.tensor([[10.0], [11.0], [12.0], [13.0]]), torch.tensor([3, 1, 2, 1])
    sent = {}
    for turn in range(2):  # in the first turn each learns what it sends, in the second what the other sent
        taken = []
        for rank in (0, 1):

            def broadcast(values, source, rank=rank, turn=turn):
                if source == rank:
                    sent[source] = [value.clone() for value in values]
                elif turn:
                    [value.copy_(theirs) for value, theirs in zip(values, sent[source], strict=True)]

            monkeypatch.setattr(ranks, "broadcast", broadcast)
            with ranks.among(2, rank):
                taken.append(ranks.fetch_rows(whole[2 * rank : 2 * rank + 2], places))
    assert torch.cat(taken).flatten().tolist() == [13, 11, 12, 11]
    assert {source: values[0].tolist() for source, values in sent.items()} == {0: [[11.0]], 1: [[13.0]]}


def test_members_of_two_ranks_draw_what_those_of_one_process_draw():
    def draw(_):
        return ranks.draw(torch.rand, (8,), torch.device("cpu"))

    found = []
    for rank in (0, 1):
        torch.manual_seed(3)
        with ranks.among(2, rank), ranks.dealing("members"):
            found.append(torch.vmap(draw, randomness="different")(torch.zeros(2)))
        after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.cat(found), torch.vmap(draw, randomness="different")(torch.zeros(4)))
    assert torch.equal(after, torch.rand(1))


@pytest.mark.slow
@pytest.mark.parametrize("configuration", [PBT, MEMORY, FAMILIES, FRESH], ids=["pbt", "memory", "families", "fresh"])
def test_members_of_two_ranks_are_those_of_one_process(tmp_path, monkeypatch, configuration):
    monkeypatch.chdir(tmp_path)
    words = ("train", *configuration, *QUICK)
    assert main([*words, "run.name=one"]) == 0
    torchrun(tmp_path, *words, "run.name=two")
    assert_same_population(tmp_path / "runs/one", tmp_path / "runs/two")
    summaries = [json.loads((tmp_path / "runs" / name / "summary.json").read_text()) for name in ("one", "two")]
    assert_close(summaries[0]["population"], summaries[1]["population"])


@pytest.mark.slow
def test_a_population_goes_on_with_other_numbers_of_ranks(tmp_path):
    """Two ranks, then one, then two, judged on the way: what one process does that never stopped."""
    judged = [word for word in QUICK if "final_evaluation" not in word]
    words = ("train", *PBT, *judged, "algorithm.learning_rate.schedule=constant", "evaluation.every=1024")
    torchrun(tmp_path, *words, "run.name=run", "total_frames=1536")
    torchrun(tmp_path, "resume", "runs/run", "total_frames=2560", processes=1)
    torchrun(tmp_path, "resume", "runs/run", "total_frames=4096")
    torchrun(tmp_path, *words, "run.name=whole", processes=1)
    assert_same_population(tmp_path / "runs/whole", tmp_path / "runs/run")


@pytest.mark.slow
def test_a_league_of_ranks_is_refused(tmp_path):
    words = ("train", "duel_league", *QUICK)
    ended = two_ranks(tmp_path, words, words)
    assert [code for code, _ in ended] == [2, 2]
    assert all("a league cannot be trained by 2 processes" in said for _, said in ended)
