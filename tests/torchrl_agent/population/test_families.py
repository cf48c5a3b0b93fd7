"""Generations: who has children with whom, and what children are given; by hand, and in towns."""

import csv
import math

import pytest
import torch

from benchmarks.evolution import judge_members
from torchrl_agent import Experiment, cli, train
from torchrl_agent.loop import iterate
from torchrl_agent.population.config import FamilyConfig, GeneConfig, PopulationConfig
from torchrl_agent.population.evolution import Evolution, deviate
from torchrl_agent.population.genes import cross, genetic
from torchrl_agent.runs.members import member_experiment

GREED, NEUTRAL, ENTROPY = "world.traits.greed", "neutral", "algorithm.entropy_coeff"
UNIT = GeneConfig(0.0, 1.0, "linear")
FITNESS = torch.tensor([3.0, 9.0, 1.0, 7.0, 5.0, 2.0, 8.0, 4.0])
"""Of eight: the order is 1, 6, 3, 4 and then 7, 0, 5, 2."""
ABLE, WORST = [1, 6, 3, 4], [7, 0, 5, 2]


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def generation(seed=0, genes=None, fitness=FITNESS, **changes):
    genes = torch.zeros(1, 8) if genes is None else genes
    return genetic(fitness, genes, FamilyConfig(**{"parents": 0.5, **changes}), rng(seed))


def test_the_fittest_stay_and_their_children_replace_the_others():
    seen = set()
    for seed in range(30):
        parents = generation(seed)
        assert parents[ABLE].tolist() == [[each, each] for each in ABLE]
        for first, second in parents[WORST].tolist():
            assert FITNESS[first] > FITNESS[second], "the fitter one comes first"
            seen.add((first, second))
    assert seen == {(1, 6), (3, 4)}, "neighbors by fitness"


def test_of_an_odd_number_of_parents_the_last_marries_its_neighbor_too():
    pairs = {tuple(pair) for seed in range(40) for pair in generation(seed, parents=0.625)[[0, 5, 2]].tolist()}
    assert pairs == {(1, 6), (3, 4), (4, 7)}


def test_those_whose_genes_differ_most_or_least_marry():
    genes = torch.zeros(2, 8, dtype=torch.float64)
    genes[:, [1, 6, 3, 4]] = torch.tensor([[0.0, 0.1, 0.9, 1.0], [0.0, 0.0, 0.3, 0.0]], dtype=torch.float64)
    # distances: 1-6 0.1, 1-3 0.95, 1-4 1.0, 6-3 0.85, 6-4 0.9, 3-4 0.32
    for mating, expected in (("distant", {(1, 4), (6, 4), (1, 3)}), ("within", {(1, 6), (3, 4)})):
        drawn = [generation(seed, genes, mating=mating)[WORST].tolist() for seed in range(40)]
        assert {tuple(pair) for pairs in drawn for pair in pairs} == expected


def test_couples_last_as_long_as_both_have_children():
    config, partners = FamilyConfig(parents=0.5, mating="lasting"), torch.arange(8)
    genes, generator = torch.zeros(1, 8), rng()

    def couples(fitness):
        parents = genetic(torch.tensor(fitness), genes, config, generator, partners)
        assert {tuple(sorted((a, partners[a].item()))) for a, _ in parents.tolist()} >= {
            tuple(sorted(pair)) for pair in parents.tolist() if pair[0] != pair[1]
        }, "children are of couples"
        return {tuple(sorted(pair)) for pair in enumerate(partners.tolist()) if pair[0] != pair[1]}

    assert couples(FITNESS.tolist()) == {(1, 6), (3, 4)}
    # of 3, 1, 4, 6 neighbors by fitness would be 3-1 and 4-6
    assert couples([3.0, 8.0, 1.0, 9.0, 7.0, 2.0, 6.0, 4.0]) == {(1, 6), (3, 4)}
    # 6 is replaced: 1 marries 0, which is new among the fittest
    assert couples([6.5, 8.0, 1.0, 9.0, 7.0, 2.0, 0.0, 4.0]) == {(0, 1), (3, 4)}


def test_the_last_of_an_odd_number_that_is_single_has_children_alone():
    config = FamilyConfig(parents=0.375, mating="lasting")
    pairs = set()
    for seed in range(30):
        parents = genetic(FITNESS, torch.zeros(1, 8), config, rng(seed), torch.arange(8))
        pairs |= {tuple(pair) for pair in parents[[4, 7, 0, 5, 2]].tolist()}
    assert pairs == {(1, 6), (3, 3)}


def test_who_was_not_judged_neither_has_children_nor_is_replaced():
    fitness = FITNESS.clone()
    fitness[[1, 2]] = math.nan
    for seed in range(10):
        parents = generation(seed, fitness=fitness)
        stay = [1, 2, 6, 3, 4]
        assert parents[stay].tolist() == [[each, each] for each in stay]
        assert set(parents[[0, 5, 7]].flatten().tolist()) <= {6, 3, 4}
    few = torch.tensor([1.0, 2.0, *[math.nan] * 6])
    assert torch.equal(generation(fitness=few)[:, 0], torch.arange(8))
    assert torch.equal(generation(fitness=few)[:, 1], torch.arange(8))


def test_a_gene_is_the_second_parents_with_the_chance_of_crossover():
    values = torch.arange(2000.0, dtype=torch.float64)
    parents = torch.tensor([[5, 9]]).repeat(2000, 1)
    crossed = cross(values, parents, 0.3, rng())
    assert set(crossed.tolist()) == {5.0, 9.0}
    assert (crossed == 9).double().mean().item() == pytest.approx(0.3, abs=0.04)
    assert (cross(values, parents, 0.0, rng()) == 5).all()
    assert (cross(values, parents, 1.0, rng()) == 9).all()


def test_a_mutation_is_as_wide_wherever_the_gene_lies_so_a_zero_moves():
    for gene, middle in ((UNIT, 0.5), (GeneConfig(1e-4, 1e-2), 1e-3), (GeneConfig(0.9, 0.99, "one_minus"), None)):
        middle = 1 - math.sqrt(0.1 * 0.01) if middle is None else middle
        moved = deviate(torch.full((20_000,), middle, dtype=torch.float64), gene, 0.1, 1.0, rng())
        config = PopulationConfig(members=2, genes={"g": gene})
        one = Evolution(config, {"g": middle}, 0)
        one.genes["g"] = moved[:2]
        place = {"linear": lambda x: x, "log": lambda x: x.log10() / 2 + 2, "one_minus": lambda x: -1 - (1 - x).log10()}
        places = place[gene.scale](moved)
        assert places.mean().item() == pytest.approx(0.5, abs=0.005)
        assert places.std().item() == pytest.approx(0.1, abs=0.003)
    zeros = deviate(torch.zeros(2000, dtype=torch.float64), UNIT, 0.1, 1.0, rng())
    assert (zeros > 0.02).double().mean() > 0.3
    assert zeros.min() == 0
    still = deviate(torch.full((2000,), 0.5, dtype=torch.float64), UNIT, 0.1, 0.25, rng())
    assert (still != 0.5).double().mean().item() == pytest.approx(0.25, abs=0.04)


def evolution(**family):
    genes = {GREED: UNIT, NEUTRAL: UNIT, ENTROPY: GeneConfig(1e-4, 1e-1)}
    family = FamilyConfig(**{"parents": 0.5, **family})
    config = PopulationConfig(members=8, evolve="genetic", every=100, genes=genes, family=family)
    return Evolution(config, {GREED: 0.5, ENTROPY: 0.01}, seed=0)


def test_children_have_their_parents_genes_and_the_neutral_one_moves_like_the_others():
    one = evolution(sigma=0.0)
    before = {name: values.clone() for name, values in one.genes.items()}
    step = one.step(100, FITNESS)
    assert step.children.tolist() == [index in WORST for index in range(8)]
    for name, values in one.genes.items():
        assert torch.equal(values[ABLE], before[name][ABLE])
        for child in WORST:
            first, second = step.parents[child].tolist()
            assert one.founders[child] == first
            theirs = before[name][[first, second]]
            assert (values[child] - theirs).abs().min() < 1e-12
    other = evolution(sigma=0.1)
    moved = other.step(100, FITNESS)
    for name in (GREED, NEUTRAL):
        parents = moved.before[name][moved.parents[WORST]]
        assert ((moved.after[name][WORST].unsqueeze(1) - parents).abs().amin(1) > 0).all()


# --- in towns ---------------------------------------------------------------------------------------------------------

GENES = (
    f"+population.genes={{{GREED}: {{low: 0, high: 1, scale: linear}}, {NEUTRAL}: {{low: 0, high: 1, scale: linear}}, "
    f"{ENTROPY}: {{low: 1e-4, high: 0.1}}}}"
)
FAMILIES = (
    "world={level: L2, num_agents: 2, num_envs: 4, rules: {max_steps: 10, traits: true}, desynchronize: false}",
    "+world.drives=true",
    "+world.traits={greed: 0.5}",
    "character.scale=1",
    "model.hidden_sizes=[8]",
    "algorithm={rollout_steps: 16, minibatch_size: 64, num_epochs: 1}",
    "algorithm.learning_rate={initial: 1e-3, schedule: constant}",  # as a run that is to go on needs
    "population={members: 4, evolve: genetic, every: 128, least_episodes: 1, family: {parents: 0.5}}",
    "device=cpu",
    *(f"acceleration.{part}=false" for part in ("step", "advantages", "update")),
)


def town(*overrides, folder=None, name="run"):
    files = [] if folder is None else [f"run.folder={folder}", f"run.name={name}", "run.tensorboard=false"]
    quick = ["run.film=false", "run.final_evaluation=false"]
    return Experiment.load("town", *FAMILIES, GENES, *files, *quick, *overrides)


def traits_of(learner):
    """Greed of everybody in each member's worlds, [P, ...]."""
    return learner.env.base_env.state.traits[1].T.reshape(learner.members, -1)


def until_a_generation(*overrides):
    """A population right after its first evolution step."""
    learner = town(*overrides, "total_frames=1024").make_learner()
    for _ in iterate(learner):
        if learner.evolution.steps:
            return learner
    raise AssertionError("nobody looked")


def test_members_people_have_their_traits_and_children_other_ones():
    learner = town("total_frames=1024").make_learner()
    greed = learner.evolution.genes[GREED].float()
    assert len(set(greed.tolist())) == 4
    assert torch.equal(traits_of(learner), greed.unsqueeze(1).expand(4, 8))
    iterations = iterate(learner)
    while not learner.evolution.steps:
        assert torch.equal(traits_of(learner), greed.unsqueeze(1).expand(4, 8))
        next(iterations)
    step = learner.evolution.steps[0]
    assert step.children.sum() == 2
    assert torch.equal(traits_of(learner), greed.unsqueeze(1).expand(4, 8)), "those who live stay who they are"
    next(iterations)  # longer than a life: everybody is born anew
    assert (step.after[GREED].float() != greed).tolist() == step.children.tolist()
    assert torch.equal(traits_of(learner), step.after[GREED].float().unsqueeze(1).expand(4, 8))


def test_statistics_of_all_members_are_not_set_at_once():
    with pytest.raises(ValueError, match="each member of a population has"):
        town().make_learner().set_normalization_stats({"ret_var": 2.0})


def test_members_are_judged_in_their_own_character():
    learner = town().make_learner()
    sent = []
    make_world = learner.experiment.make_world

    def watched(**arguments):
        env = make_world(**arguments)
        sent.append(env)
        return env

    learner.experiment.make_world = watched
    judge_members(learner, episodes=3, seed=5)
    greed = learner.evolution.genes[GREED].float()
    assert torch.equal(sent[0].state.traits[1].T.reshape(4, -1), greed.unsqueeze(1).expand(4, 6))


@pytest.mark.parametrize("how", ["best", "mean", "fresh"])
def test_weights_of_a_child(how):
    learner = town(f"population.family.inherit={how}", "total_frames=1024").make_learner()
    iterations = iterate(learner)
    algorithm, before = learner.algorithm, []
    apply_step = learner._apply_step

    def watched(step):
        before.append({"flat": algorithm.stack.flat.detach().clone(), "mean": algorithm.optimizer.mean.clone()})
        apply_step(step)

    learner._apply_step = watched
    while not before:
        next(iterations)
    step, flat, old = learner.evolution.steps[0], algorithm.stack.flat.detach(), before[0]
    stay = ~step.children
    assert torch.equal(flat[stay], old["flat"][stay])
    first, second = (old["flat"][step.parents[step.children, index]] for index in (0, 1))
    children, moments = flat[step.children], algorithm.optimizer.mean[step.children]
    if how == "best":
        assert torch.equal(children, first)
    elif how == "mean":
        torch.testing.assert_close(children, (first + second) / 2)
        assert (children != first).any()
    if how == "fresh":
        seeds = [4, 5]  # the first ones after those of the four first members
        agents = [
            Experiment.load("town", *FAMILIES, f"seed={seed}", "population.members=1", "population.evolve=none")
            for seed in seeds
        ]
        for row, experiment in zip(children, agents, strict=True):
            alone = experiment.make_learner().agent
            theirs = torch.cat([value.detach().flatten() for part in alone.parts() for value in part])
            assert torch.equal(row, theirs)
        assert (moments == 0).all()
        assert (algorithm.optimizer.steps[step.children] == 0).all()
        counts = algorithm.stack.others()["agent.normalizer.running.count"].flatten()
        assert (counts[step.children] == 0).all()
        assert (counts[stay] > 0).all()
    else:
        assert torch.equal(moments, old["mean"][step.parents[step.children, 0]])


@pytest.mark.parametrize(
    ("schooling", "share"),
    [
        ("finetune", 0.1),
        pytest.param("full", 1.0, marks=pytest.mark.slow),
        pytest.param("frozen", 0.0, marks=pytest.mark.slow),
    ],
)
def test_schooling_is_a_childs_learning_rate_until_the_next_generation(schooling, share):
    learner = until_a_generation(f"population.family.schooling={schooling}", "population.every=192")
    step, algorithm = learner.evolution.steps[0], learner.algorithm
    before = algorithm.stack.flat.detach().clone()
    iteration = next(iterate(learner))
    expected = torch.where(step.children, share, 1.0)
    assert iteration.metrics["train/updates"] > 0
    assert torch.allclose(algorithm.rates / algorithm.rates.max(), expected)
    moved = (algorithm.stack.flat.detach() - before).abs().amax(1) > 0
    assert moved.tolist() == (expected > 0).tolist()
    while len(learner.evolution.steps) < 2:
        next(iterate(learner))
    assert algorithm.lr_scale.tolist() == torch.where(learner.evolution.steps[1].children, share, 1.0).tolist()


def test_children_begin_with_their_share_of_what_their_parents_owned():
    learner = town("population.family.wealth=0.5", "total_frames=1024", "population.every=192").make_learner()
    owned, inheritance = {member: [] for member in range(4)}, learner.inheritance
    count = inheritance.count

    def watched(member, finished):
        owned[member] += finished["money"][finished["complete"] > 0].tolist()
        count(member, finished)

    inheritance.count = watched
    iterations = iterate(learner)
    while not learner.evolution.steps:
        next(iterations)
    step = learner.evolution.steps[0]
    last = torch.tensor([sum(values) / len(values) for values in owned.values()], dtype=torch.float64)
    expected = torch.where(step.children, 0.5 * last[step.parents].mean(1), 0.0)
    assert expected.max() > 0.05
    torch.testing.assert_close(inheritance.inherited, expected, rtol=1e-5, atol=1e-7)
    learner.env.reset()
    money = learner.env.base_env.state.meters[3].T.reshape(4, -1)
    start = learner.env.base_env.rules.meters["money"].initial
    torch.testing.assert_close(money, (start + expected.float()).unsqueeze(1).expand(4, 8))


def test_the_lineage_names_both_parents_and_members_have_their_traits_in_their_configurations(tmp_path):
    experiment = town("total_frames=192", folder=tmp_path)
    for iteration in train(experiment):
        learner = iteration.learner
    with (tmp_path / "run" / "lineage.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(learner.evolution.steps) > 0
    assert (tmp_path / "run" / "lineage.png").is_file()
    assert "(lineage.png)" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    for row in rows:
        child, first, second = (int(row[name]) for name in ("child", "parent", "second_parent"))
        assert len({child, first, second}) == 3
        fitness = [float(row[f"{who}_fitness"]) for who in ("parent", "second_parent", "child")]
        assert fitness == sorted(fitness, reverse=True)
        assert {f"{GREED} (parent)", f"{GREED} (second_parent)", GREED, NEUTRAL} <= row.keys()
    for member in range(4):
        alone = member_experiment(learner, member)
        assert alone.world["traits"]["greed"] == learner.evolution.genes[GREED][member].item()
        assert Experiment.load(tmp_path / "run" / "members" / f"{member:02d}" / "config.yaml").world["drives"]


def test_traits_evolve_by_population_based_training_too():
    learner = until_a_generation("population.evolve=pbt", "population.margin=0", "population.replace=0.25")
    step = learner.evolution.steps[0]
    assert step.children.sum() == 1
    assert torch.equal(step.parents[:, 0], step.parents[:, 1])
    assert learner.algorithm.lr_scale.tolist() == [1.0] * 4
    learner.env.reset()
    assert torch.equal(traits_of(learner)[:, 0], step.after[GREED].float())


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["population.family.mating=love"],
            "population.family.mating is 'love': use one of rank, distant, within, lasting",
        ),
        (["population.family.inherit=all"], "population.family.inherit is 'all': use one of best, mean, fresh"),
        (["population.family.schooling=none"], "population.family.schooling is 'none': use one of full, finetune"),
        (["population.family.parents=0.3"], "parents=0.3 of 4 members are 1 parents"),
        (["population.family.parents=1"], "are 4 parents: let at least 2 have children, and at least one be replaced"),
        (["population.family.parents=1.5"], "population.family.parents is 1.5: it must be within"),
        (["population.family.crossover=-1"], "population.family.crossover is -1"),
        (["population.family.sigma=2"], "population.family.sigma is 2"),
        (["population.family.sigma=nan"], "population.family.sigma is nan"),
        (["population.family.wealth=1.1"], "population.family.wealth is 1.1"),
        (["population.family.joy=1"], "joy"),
        (["population.members=3"], "population.members is 3: families of population.evolve=genetic need at least 4"),
        (["~world.traits"], f"has {GREED}, but the world was given no such trait: set {GREED}=0.5"),
        (["world.traits={greed: 2}"], "trait greed is 2: give a number in [0, 1]"),
        (["+world.traits.wit=0.5"], "trait 'wit' is unknown"),
        (["population.family.wealth=0.5", "world.drives=false", "character.scale=0"], "reports no statistic money"),
        (["world.drives=false"], "character.scale is set but the world shows no drives"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_and_leaves_nothing(tmp_path, capsys, overrides, sentence):
    files = [f"run.folder={tmp_path}", "run.name=run"]
    assert cli.main(["train", "town", *FAMILIES, GENES, *files, *overrides]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_generation_hands_down_genes():
    with pytest.raises(ValueError, match=r"genetic has nothing to hand down: give population\.genes"):
        Experiment.load("town", *FAMILIES)


PRESETS = {"meritocratic": "rank", "dynasty": "within", "arranged": "distant", "polygamous": "rank"}


@pytest.mark.parametrize(("preset", "mating"), PRESETS.items())
def test_presets_differ_from_families_in_the_family_alone(preset, mating):
    base, one = (Experiment.load(name, "device=cpu") for name in ("families", f"families/{preset}"))
    assert one.population.family.mating == mating
    assert one.population.family != base.population.family
    one.population.family, one.name = base.population.family, base.name
    assert one == base


@pytest.mark.parametrize(("low", "high"), [(-0.5, 1), (0, 1.5)])
def test_a_trait_stays_within_0_and_1(low, high):
    bounds = f"+population.genes={{{GREED}: {{low: {low}, high: {high}, scale: linear}}}}"
    with pytest.raises(ValueError, match=r"stay within \[0, 1\]"):
        Experiment.load("town", *FAMILIES, bounds).make_learner()
