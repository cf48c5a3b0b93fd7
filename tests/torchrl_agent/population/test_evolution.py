"""Who is replaced by whom and how genes move, by hand."""

import math
import sys

import pytest
import torch

from torchrl_agent.population.config import GeneConfig, PopulationConfig
from torchrl_agent.population.evolution import Evolution, mutate, pbt

RATE = "algorithm.learning_rate.initial"
GAMMA = "algorithm.gamma"
GENES = {RATE: GeneConfig(1e-5, 1e-2), GAMMA: GeneConfig(0.9, 0.999, "one_minus")}
CONFIGURED = {RATE: 1e-3, GAMMA: 0.99}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def evolution(**changes):
    config = PopulationConfig(members=8, evolve="pbt", every=100, genes=GENES, **changes)
    return Evolution(config, CONFIGURED, seed=0)


def test_the_worst_quarter_copies_the_best_quarter():
    fitness = torch.tensor([5.0, 1.0, 7.0, 3.0, 2.0, 8.0, 6.0, 4.0])
    for seed in range(20):
        parents = pbt(fitness, rng(seed))
        assert parents[[0, 2, 3, 5, 6, 7]].tolist() == [0, 2, 3, 5, 6, 7]
        assert set(parents[[1, 4]].tolist()) <= {2, 5}
    drawn = {tuple(pbt(fitness, rng(seed))[[1, 4]].tolist()) for seed in range(40)}
    assert drawn == {(2, 2), (2, 5), (5, 2), (5, 5)}


def test_no_member_is_replaced_for_a_lead_within_the_margin():
    fitness = torch.tensor([1.00, 1.01, 1.02, 1.03])
    spread = fitness.std(correction=0).item()
    lead = 0.03 / spread
    assert pbt(fitness, rng(), margin=lead * 1.01).tolist() == [0, 1, 2, 3]
    assert pbt(fitness, rng(), margin=lead * 0.99).tolist() == [3, 1, 2, 3]
    assert pbt(torch.ones(4), rng()).tolist() == [0, 1, 2, 3]


def test_who_was_not_judged_is_neither_replaced_nor_copied():
    fitness = torch.tensor([math.nan, 1.0, 9.0, math.nan, 5.0, 6.0, 7.0, 8.0])
    for seed in range(10):
        parents = pbt(fitness, rng(seed))
        assert parents[[0, 3]].tolist() == [0, 3]
        assert set(parents[[1, 4]].tolist()) <= {2, 7}
    assert pbt(torch.full((8,), math.nan), rng()).tolist() == list(range(8))
    few = torch.tensor([1.0, 2.0, 3.0, *[math.nan] * 5])  # fewer than two quarters: a source would be replaced too
    assert pbt(few, rng()).tolist() == list(range(8))


def test_an_infinite_fitness_stops_no_member():
    assert pbt(torch.tensor([1.0, 2.0, 3.0, math.inf]), rng()).tolist() == [3, 1, 2, 3]
    assert pbt(torch.tensor([-math.inf, 2.0, 3.0, 4.0]), rng()).tolist() == [3, 1, 2, 3]


def test_a_configured_value_may_lie_on_a_bound():
    for low, high in ((0.99, 0.999), (0.9, 0.99)):
        genes = {GAMMA: GeneConfig(low, high, "one_minus")}
        config = PopulationConfig(members=2, genes=genes, spread="same")
        assert Evolution(config, {GAMMA: 0.99}, 0).genes[GAMMA].tolist() == [0.99, 0.99]


@pytest.mark.parametrize("answer", [torch.tensor([0, 1, 7]), torch.tensor([0.0, 1.0, 2.0]), torch.tensor([0]), None])
def test_what_a_rule_answers_is_looked_at(answer):
    one = Evolution(PopulationConfig(members=3, evolve="pbt"), {}, 0)
    one.rule = lambda fitness, genes, random: answer
    with pytest.raises(ValueError, match=r"population\.evolve answered"):
        one.step(1, torch.zeros(3))


def test_other_genes_do_not_go_on():
    other = Evolution(PopulationConfig(members=8, evolve="pbt"), {}, 0)
    with pytest.raises(ValueError, match="the saved members have the genes"):
        other.load_state_dict(evolution().state_dict())


def test_genes_move_by_their_factor_on_their_scale():
    values = torch.full((200,), 1e-3, dtype=torch.float64)
    moved = mutate(values, GENES[RATE], 1.25, 1.0, rng())
    assert {round(value, 9) for value in moved.tolist()} == {0.00125, 0.0008}
    moved = mutate(torch.full((200,), 0.99, dtype=torch.float64), GENES[GAMMA], 2.0, 1.0, rng())
    assert {round(value, 9) for value in moved.tolist()} == {0.98, 0.995}
    moved = mutate(torch.full((200,), 3.0, dtype=torch.float64), GeneConfig(0, 8, "linear"), 1.25, 1.0, rng())
    assert set(moved.tolist()) == {1.0, 5.0}
    assert torch.equal(mutate(values, GENES[RATE], 1.25, 0.0, rng()), values)
    many = torch.full((4000,), 1e-3, dtype=torch.float64)
    share = (mutate(many, GENES[RATE], 1.25, 0.3, rng()) != many).double().mean()
    assert 0.26 < share < 0.34


@pytest.mark.parametrize("gene", [*GENES.values(), GeneConfig(0.0, 1.0, "linear")])
def test_genes_stay_within_their_bounds_and_a_zero_can_move(gene):
    values = torch.full((50,), gene.low, dtype=torch.float64)
    random, seen = rng(), set()
    for _ in range(1000):
        values = mutate(values, gene, 1.25, 1.0, random)
        assert values.min() >= gene.low
        assert values.max() <= gene.high
        seen |= set(values.tolist())
    assert len(seen) > 3


@pytest.mark.parametrize("spread", ["same", "perturb", "resample"])
def test_first_genes(spread):
    genes = evolution(spread=spread).genes
    for name, gene in GENES.items():
        values = genes[name]
        assert ((values >= gene.low) & (values <= gene.high)).all()
        distinct = {"same": 1, "perturb": 2, "resample": 8}[spread]
        assert len({round(value, 12) for value in values.tolist()}) == distinct
    if spread == "same":
        assert genes[RATE].tolist() == [1e-3] * 8
    many = Evolution(PopulationConfig(members=4000, genes=GENES), CONFIGURED, 0).genes[RATE]
    assert abs(many.log10().median().item() - -3.5) < 0.1, "on a log scale the middle is the geometric mean"


def test_a_copy_takes_genes_and_founder_and_mutates_while_others_stay():
    one = evolution()
    before = {name: values.clone() for name, values in one.genes.items()}
    step = one.step(100, torch.arange(8.0))
    copies = step.children
    assert copies.tolist() == [True, True, *[False] * 6]
    for name, gene in GENES.items():
        assert torch.equal(one.genes[name][~copies], before[name][~copies])
        source = before[name][step.parents[:, 0]]
        for value, parent in zip(one.genes[name][copies].tolist(), source[copies].tolist(), strict=True):
            up, down = (mutate_once(parent, gene, way) for way in (1, -1))
            assert min(abs(value - up), abs(value - down)) < 1e-12
    assert one.founders.tolist() == step.parents[:, 0].tolist()
    assert torch.equal(step.before[RATE], before[RATE])
    assert torch.equal(step.after[RATE], one.genes[RATE])


def mutate_once(value, gene, way):
    moved = value * 1.25**way if gene.scale == "log" else 1 - (1 - value) * 1.25**way
    return min(max(moved, gene.low), gene.high)


def test_evolution_steps_come_when_they_are_due_and_copies_have_a_time_of_grace():
    one = evolution(warmup=300, grace=150)
    assert next(frames for frames in range(0, 1000, 50) if one.is_due(frames)) == 300
    one.step(300, torch.arange(8.0))
    resumed = evolution(warmup=300, grace=150)
    resumed.load_state_dict(one.state_dict())
    assert resumed.births == 2
    for each in (one, resumed):
        assert not each.is_due(350)
        assert each.is_due(400)
        worst_again = torch.arange(8.0)
        assert each.step(400, worst_again).parents[:2, 0].tolist() == [0, 1], "both were copied 100 frames ago"
        assert each.step(500, worst_again).parents[:2, 1].tolist() != [0, 1]
    assert next(frames for frames in range(0, 1000, 50) if evolution(warmup=20).is_due(frames)) == 100
    assert not Evolution(PopulationConfig(members=2, every=1), {}, 0).is_due(10**9)


def test_diversity_is_a_mean_distance_in_units_of_the_bounds():
    one = Evolution(PopulationConfig(members=2, genes={RATE: GENES[RATE]}), CONFIGURED, 0)
    one.genes[RATE] = torch.tensor([1e-5, 1e-2], dtype=torch.float64)
    assert one.diversity() == pytest.approx(0.5)  # two of four pairs are an agent and itself
    one.genes[RATE] = torch.tensor([1e-5, 1e-5], dtype=torch.float64)
    assert one.diversity() == 0


def keep_the_second(fitness, genes, random):
    """A rule of somebody's own."""
    return torch.ones(len(fitness), dtype=torch.long)


def test_a_rule_of_ones_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "a_rule", sys.modules[__name__])  # pytest gives test files names of its own
    config = PopulationConfig(members=3, evolve={"_target_": "a_rule.keep_the_second"}, genes=GENES)
    assert Evolution(config, CONFIGURED, 0).step(1, torch.zeros(3)).parents.tolist() == [[1, 1]] * 3
    config.evolve = {"_target_": "a_rule.nobody"}
    with pytest.raises(ValueError, match=r"a_rule\.nobody"):
        Evolution(config, CONFIGURED, 0)
