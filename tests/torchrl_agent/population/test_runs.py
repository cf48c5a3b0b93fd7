"""A population's run: its folders and tables, that it resumes bit by bit, and one sentence for what cannot be."""

import csv
import json

import pytest
import torch
from launching import smoke

from torchrl_agent import Experiment, cli, evaluate, learn, load_agent, train
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.loop import iterate
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.runs.members import member_experiment
from torchrl_agent.training.metrics import Figures

ENTROPY, GAMMA = "algorithm.entropy_coeff", "algorithm.gamma"
GENES = (
    f"+population.genes={{{ENTROPY}: {{low: 1e-4, high: 0.1}}, {GAMMA}: {{low: 0.9, high: 0.999, scale: one_minus}}}}"
)
QUICK = ("world.num_envs=32", "algorithm.rollout_steps=8", "algorithm.minibatch_size=128")
"""256 frames in few steps."""
PBT = (
    "population={members: 4, evolve: pbt, every: 1000, least_episodes: 1, margin: 0}",
    "world.rules={max_steps: 50}",  # many short episodes
    *QUICK,
    GENES,
)


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run with copies."""
    folder = tmp_path_factory.mktemp("runs")
    more = ("total_frames=4096", "run.checkpoint_every=2048", "run.tensorboard=true")
    for _ in train(smoke(folder, *PBT, *more)):
        pass
    return folder / "run"


def test_the_tables_agree_with_each_other_and_with_the_checkpoint(run):
    members, lineage = rows_of(run / "members.csv"), rows_of(run / "lineage.csv")
    steps = sorted({int(row["frames"]) for row in members})
    assert len(steps) >= 3
    assert len(members) == 4 * len(steps)
    assert lineage, "nobody was copied, so nothing is shown"
    fitness = {(int(row["frames"]), int(row["member"])): float(row["fitness"]) for row in members}
    genes = {(int(row["frames"]), int(row["member"])): float(row[ENTROPY]) for row in members}
    for row in lineage:
        frames, child, parent = (int(row[name]) for name in ("frames", "child", "parent"))
        assert child != parent
        assert float(row["child_fitness"]) == fitness[frames, child] < fitness[frames, parent]
        assert float(row[f"{ENTROPY} (parent)"]) == genes[frames, parent]
        later = [step for step in steps if step > frames]
        if later and not any(int(each["frames"]) == later[0] and each is not row for each in lineage):
            assert genes[later[0], child] == float(row[ENTROPY])
    state = load_checkpoint(find_checkpoint(run))
    last = rows_of(run / "metrics.csv")[-1]
    assert float(last["population/copies"]) == len(lineage)
    assert float(last["population/evolution_steps"]) == len(steps)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [each["frames"] for each in events if each["kind"] == "evolution step"] == steps
    assert len(state["evolution"]["steps"]) == len(steps)
    assert float(last[f"genes/{ENTROPY}_high"]) == pytest.approx(state["evolution"]["genes"][ENTROPY].max().item())


def test_every_member_is_a_run_of_its_own(run):
    state = load_checkpoint(find_checkpoint(run))
    for member in range(4):
        folder = run / "members" / f"{member:02d}"
        experiment, agent = load_agent(run, "cpu", member=member)
        assert experiment.population.members == 1
        assert experiment.seed == member
        assert experiment.algorithm.entropy_coeff == state["evolution"]["genes"][ENTROPY][member].item()
        mine = torch.cat([value.detach().flatten() for value in agent.parameters()])
        assert torch.equal(mine, state["algorithm"]["members"][member])
        mean = state["algorithm"]["others"]["agent.normalizer.running.mean"][member]
        assert torch.equal(agent.normalizer.running.mean, mean)
        assert len(rows_of(folder / "metrics.csv")) == len(rows_of(run / "metrics.csv"))
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        assert summary["metrics"]["rollout/ep_rew_mean"] == pytest.approx(
            float(rows_of(folder / "metrics.csv")[-1]["rollout/ep_rew_mean"])
        )
        assert list((folder / "tensorboard").glob("events*"))
    means = [float(rows_of(run / "members" / f"{m:02d}" / "metrics.csv")[-1]["train/entropy"]) for m in range(4)]
    assert float(rows_of(run / "metrics.csv")[-1]["train/entropy"]) == pytest.approx(sum(means) / 4, rel=1e-5)


def test_the_runs_own_agent_is_the_best_member(run):
    returns = [
        float(rows_of(run / "members" / f"{member:02d}" / "metrics.csv")[-1]["rollout/ep_rew_mean"])
        for member in range(4)
    ]
    best = load_agent(run, "cpu")[1], load_agent(run, "cpu", member=returns.index(max(returns)))[1]
    for mine, theirs in zip(*(agent.parameters() for agent in best), strict=True):
        assert torch.equal(mine, theirs)


def test_the_model_card_names_the_members_their_genes_and_what_was_copied(run):
    card = (run / "README.md").read_text(encoding="utf-8")
    assert f"| member | return | {ENTROPY} | {GAMMA} |\n|---|---|---|---|\n" in card
    genes = load_checkpoint(find_checkpoint(run))["evolution"]["genes"]
    for member in range(4):
        last = rows_of(run / "members" / f"{member:02d}" / "metrics.csv")[-1]["rollout/ep_rew_mean"]
        cells = [float(last), *(genes[name][member].item() for name in (ENTROPY, GAMMA))]
        line = " | ".join(f"{value:,.4g}" for value in cells)
        assert f"| [{member}](members/{member:02d}) | {line} |" in card
    steps = len(rows_of(run / "members.csv")) // 4
    copies = len(rows_of(run / "lineage.csv"))
    assert f"After {steps} evolution steps ([members.csv](members.csv)), {copies} were replaced" in card
    assert "](lineage.png)" in card and (run / "lineage.png").is_file()


def test_verbs_take_a_member(run, capsys):
    assert cli.main(["evaluate", str(run), "--member", "2", "--episodes", "2", "--stochastic", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 2
    assert cli.main(["explain", str(run), "--member", "best", "--step", "1"]) == 0
    for wrong in ("4", "x", "-1"):
        assert cli.main(["evaluate", str(run), f"--member={wrong}"]) == 2
        assert f"has no member {wrong}: use best, or a number from 0 to 3" in capsys.readouterr().err
    assert cli.main(["evaluate", str(run / "members" / "01"), "--member", "0"]) == 2
    assert "is not the run of a population" in capsys.readouterr().err


def test_a_member_goes_on_alone(run):
    folder = run / "members" / "01"
    state = load_checkpoint(find_checkpoint(folder))
    experiment = Experiment.load(folder / "config.yaml", "total_frames=7000", "run.tensorboard=false")
    learner = experiment.make_learner()
    learner.load_state_dict(state)
    adam = load_checkpoint(find_checkpoint(run))["algorithm"]["optimizer"]
    moments = torch.cat(
        [learner.algorithm.updater.optimizer.state[p]["exp_avg"].flatten() for p in learner.agent.parameters()]
    )
    assert torch.equal(moments, adam["mean"][1])
    first = next(iterate(learner))
    assert first.frames == state["frames"] + 512 // 2
    assert first.metrics["train/updates"] > 0


def test_a_member_and_its_population_do_not_train_at_once(tmp_path):
    """Whoever came first goes on; each folder is free again once its process has closed it."""
    two = ("population.members=2", *QUICK, "run.checkpoint_every=256")
    together = train(smoke(tmp_path, *two))
    next(together)
    folder = tmp_path / "run" / "members" / "01"
    with pytest.raises(ValueError, match=r"members/01 is in use: stop the process that trains it") as caught:
        next(train(Experiment.load(folder / "config.yaml", "total_frames=9000"), resume=folder))
    assert "\n" not in str(caught.value)
    together.close()
    alone = train(Experiment.load(folder / "config.yaml", "total_frames=9000", "run.checkpoint_every=9000"), folder)
    next(alone)
    refusals = []  # while an error is kept, so is all that its traceback knows
    for _ in range(2):
        with pytest.raises(ValueError, match=r"members/01 is in use") as caught:
            next(train(Experiment.load(tmp_path / "run" / "config.yaml", "total_frames=9000"), resume=tmp_path / "run"))
        refusals.append(caught.value)
    other = tmp_path / "run" / "members" / "00"
    beside = train(Experiment.load(other / "config.yaml", "total_frames=9000"), resume=other)
    next(beside)
    beside.close()
    alone.close()


def test_members_metrics_have_the_names_that_runs_have(run):
    alone = smoke(run.parent, name="alone")
    tags = set(next(learn(alone)).metrics)
    mine = set(rows_of(run / "members" / "00" / "metrics.csv")[0])
    of_modules = {tag for tag in tags if tag.startswith("train/grad_norm/")}  # members' are those of the whole
    assert {tag for tag in tags if tag.startswith(("train/", "rollout/", "curriculum/"))} - of_modules <= mine


def test_a_members_checkpoint_is_as_large_as_that_of_a_run(run):
    files = [find_checkpoint(run / "members" / f"{member:02d}").stat().st_size for member in range(4)]
    state = load_checkpoint(find_checkpoint(run))
    numbers = state["algorithm"]["members"][0].numel() * 4
    assert max(files) < 8 * numbers  # actor and critic by two names each, and two moments
    assert state["metadata"]["config_hash"] == Experiment.load(run / "config.yaml").hash()
    mine = load_checkpoint(find_checkpoint(run / "members" / "02"))["metadata"]["config_hash"]
    assert mine == Experiment.load(run / "members" / "02" / "config.yaml").hash()
    assert json.loads((run / "members" / "02" / "summary.json").read_text(encoding="utf-8"))["seed"] == 2


def test_numbers_that_are_no_genes_are_those_of_the_configuration_when_a_population_goes_on(run):
    changed = ["algorithm.learning_rate.initial=0.005", "algorithm.clip_epsilon=0.05", "total_frames=9000"]
    learner = Experiment.load(run / "config.yaml", *changed).make_learner()
    state = load_checkpoint(find_checkpoint(run))
    learner.load_state_dict(state)
    numbers = learner.algorithm.numbers
    assert numbers["algorithm.learning_rate.initial"].tolist() == pytest.approx([0.005] * 4)
    assert learner.algorithm.stack.others()["loss.objective.clip_epsilon"].tolist() == pytest.approx([0.05] * 4)
    assert torch.equal(numbers[ENTROPY], state["evolution"]["genes"][ENTROPY].float())
    assert torch.equal(learner.algorithm.stack.others()["scaler.gamma"], state["evolution"]["genes"][GAMMA].float())


def test_a_member_alone_begins_where_it_is_in_the_curriculum(tmp_path):
    overrides = [word for word in PBT if "rules" not in word]
    learner = smoke(tmp_path, *overrides, "world.curriculum=ladder").make_learner()
    good = {name: torch.full((100,), 100.0) for name in learner.collector.statistics} | {"stage": torch.zeros(100)}
    learner.env.update_curriculum(good, 1)
    alone = member_experiment(learner, 1).make_learner()
    alone.load_state_dict(learner.member_state(1))
    assert alone.env.curriculum.stage == 1
    assert alone.env._snapshot.stage.unique().tolist() == [1]


def test_a_copy_takes_its_sources_place_in_the_curriculum_and_its_record(tmp_path):
    overrides = [word for word in PBT if "rules" not in word]
    learner = smoke(tmp_path, *overrides, "world.curriculum=ladder").make_learner()
    good = {name: torch.full((100,), 100.0) for name in learner.collector.statistics} | {"stage": torch.zeros(100)}
    learner.env.update_curriculum(good, 2)
    for member, fitness in enumerate((3.0, 1.0, 4.0, 2.0)):
        episodes = {name: torch.full((5,), fitness) for name in learner.collector.statistics}
        learner.records.windows[member].add(episodes)
        learner.evolution.count(member, episodes)
        learner.member_metrics[member] = {"rollout/ep_rew_mean": fitness}
    learner.frames = 1000
    metrics = learner.end_iteration({}, Figures({}))
    assert metrics["population/copies"] == 1
    assert learner.evolution.steps[-1].parents[:, 0].tolist() == [0, 2, 2, 3]
    assert [curriculum.stage for curriculum in learner.env.curricula] == [0, 1, 1, 0]
    assert [window.metrics()["rollout/ep_rew_mean"] for window in learner.records.windows] == [3, 4, 4, 2]
    assert torch.equal(learner.algorithm.stack.flat[1], learner.algorithm.stack.flat[2])


def test_fitness_is_the_mean_of_whole_episodes(tmp_path):
    learner = smoke(tmp_path, *PBT, "population.least_episodes=2").make_learner()
    values = {"return": torch.tensor([1.0, 2.0, 30.0]), "complete": torch.tensor([1.0, 1.0, 0.0])}
    learner.evolution.count(0, values)
    learner.evolution.count(1, {name: each[1:] for name, each in values.items()})
    fitness = learner.fitness()
    assert fitness[0].item() == 1.5, "the third began midway"
    assert fitness[1:].isnan().all(), "one whole episode is too few, and so is none"


def test_a_member_that_broke_stops_no_other_and_is_replaced(tmp_path, caplog):
    short = ["population.every=512", "world.rules={max_steps: 50}", "population.evolve=none", "total_frames=4096"]
    overrides = [word for word in PBT if not word.startswith(("population.every", "population.evolve", "world.rules"))]
    learner = smoke(tmp_path, *overrides, *short).make_learner()
    with torch.no_grad():
        learner.algorithm.stack.flat[1] = torch.nan
    before = learner.algorithm.stack.flat.detach().clone()
    iterations = iterate(learner)
    for _ in range(3):
        iteration = next(iterations)
    assert "members [1] are not finite" in caplog.text
    assert caplog.text.count("are not finite") == 1
    changed = (learner.algorithm.stack.flat != before).any(1)
    assert changed[[0, 2, 3]].all()
    assert learner.algorithm.stack.flat[[0, 2, 3]].isfinite().all()
    assert iteration.metrics["train/skipped_in_row"] == 0
    assert learner.member_metrics[1]["train/updates"] == 0
    learner.algorithm.copy(torch.tensor([0, 0, 2, 3]))
    next(iterations)
    assert learner.algorithm.stack.flat.isfinite().all()
    assert learner.member_metrics[1]["train/updates"] > 0
    with torch.no_grad():
        learner.algorithm.stack.flat.fill_(torch.nan)
    with pytest.raises(NonFiniteError):
        next(iterations)


def test_members_without_evolution_are_seeds_that_never_meet(tmp_path):
    experiment = smoke(tmp_path, "population.members=2", *QUICK)
    alone = smoke(tmp_path, "seed=1", *QUICK).make_learner()
    learner = experiment.make_learner()
    first = torch.cat([value.detach().flatten() for value in alone.agent.parameters()])
    assert torch.equal(learner.algorithm.stack.flat[1].detach(), first), "member 1 begins as seed 1 begins"
    for iteration in iterate(learner):
        assert iteration.metrics["population/copies"] == 0
        assert iteration.rollout.shape == (8, 64)
    assert learner.frames == 2048, "frames are those of each member"


def test_members_go_through_the_curriculum_at_their_own_pace_and_copies_take_the_place_over():
    learner = Experiment.load("smoke", "device=cpu", *PBT, "world.curriculum=ladder").make_learner()
    env, size = learner.env, 32
    good = {name: torch.full((100,), 100.0) for name in learner.collector.statistics} | {"stage": torch.zeros(100)}
    env.update_curriculum(good, 2)
    assert [curriculum.stage for curriculum in env.curricula] == [0, 0, 1, 0]
    stages = env._snapshot.stage.unflatten(0, (4, size))
    assert stages.unique(dim=1).flatten().tolist() == [0, 0, 1, 0]
    env.copy_curricula([2, 1, 2, 3])
    assert [curriculum.stage for curriculum in env.curricula] == [1, 0, 1, 0]
    assert stages.unique(dim=1).flatten().tolist() == [1, 0, 1, 0]
    settings = env._snapshot.settings
    for field in settings:
        groups = field.unflatten(-1, (4, size))
        assert torch.equal(groups[..., 0, :], groups[..., 2, :])
    assert any(not torch.equal(field[:size], field[size : 2 * size]) for field in settings)
    again = Experiment.load("smoke", "device=cpu", *PBT, "world.curriculum=ladder").make_learner().env
    again.load_state_dict(env.state_dict())
    assert [curriculum.stage for curriculum in again.curricula] == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["population.members=0"], "population.members is 0"),
        (["population.evolve=pbt"], "set population.members above 1"),
        ([GENES], "set population.members above 1"),
        (["population.members=4", "population.evolve=ptb"], "population.evolve is 'ptb'"),
        (["population.members=3", "population.evolve=pbt", "population.every=9"], "of 3 members replaces none"),
        (["population.members=4", "population.evolve=pbt"], "population.every=1000000 is beyond"),
        (["population.members=4", "population.spread=wide"], "population.spread is 'wide'"),
        (["population.members=4", "population.replace=0.6"], "population.replace is 0.6"),
        (["population.members=4", "population.mutate=2"], "population.mutate is 2"),
        (["population.members=4", "population.factor=1"], "population.factor is 1"),
        (["population.members=4", "population.least_episodes=0"], "population.least_episodes is 0"),
        (["population.members=4", "population.warmup=-1"], "population.warmup is -1"),
        (
            ["population.members=4", "population.evolve=pbt", "population.every=9", "population.warmup=9999"],
            "warmup=9999",
        ),
        (
            [
                "population.members=2",
                "policy=gru",
                "model.world_model.enabled=true",
                f"+population.genes={{{GAMMA}: {{low: 0.9, high: 0.995}}}}",
            ],
            "modules take from the configuration",
        ),
        ([*PBT, "population.fitness=joy"], "population.fitness is 'joy'"),
        (["population.members=2", "algorithm=dqn"], "dqn learns one agent at a time"),
        (["population.members=2", "algorithm=impala"], "impala learns one agent at a time"),
        (["population.members=2", "algorithm=a2c", "algorithm.optimizer=rmsprop"], "not rmsprop"),
        (["population.members=2", "algorithm.precision=float16"], "bfloat16"),
        (["population.members=2", "governor.enabled=true"], "population.evolve=pbt"),
        (["population.members=2", "+population.genes={nose: {low: 1, high: 2}}"], "has nose"),
        (
            ["population.members=2", "+population.genes={algorithm.num_epochs: {low: 1, high: 2}}"],
            "algorithm.num_epochs",
        ),
        (["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0.9, high: 0.8}}}}"], "low below high"),
        (["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0, high: 1}}}}"], "must be above 0"),
        (["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0.9, high: 2}}}}"], "stay within [0, 1]"),
        (["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0.1, high: 0.2}}}}"], "outside the bounds"),
        (
            ["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0.1, high: 1, scale: one_minus}}}}"],
            "below 1",
        ),
        (["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0.1, high: 0.2, scale: x}}}}"], "scale is 'x'"),
        (["population.members=2", f"+population.genes={{{GAMMA}: {{low: 0.1}}}}"], "high"),
        ([*PBT, "shaping.scale=1", "+world.potential=true"], "algorithm.gamma is a gene"),
        (["population.members=2", "~world.num_envs"], "num_envs"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_and_leaves_nothing(tmp_path, capsys, overrides, sentence):
    files = [f"run.folder={tmp_path}", "run.name=run", "device=cpu"]
    assert cli.main(["train", "smoke", *files, *overrides]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_evaluations_on_the_way_are_those_of_the_best_member(tmp_path):
    short = ["world.rules={max_steps: 50}", "evaluation.every=256", "evaluation.episodes=4", "total_frames=768", *QUICK]
    learner = smoke(tmp_path, "population.members=3", *short).make_learner()
    for iteration in iterate(learner):
        judged = iteration.metrics["eval/return_mean"]
    assert judged == pytest.approx(evaluate(learner.experiment, learner.best_agent())["return_mean"])


@pytest.mark.parametrize(
    "overrides",
    [
        ["config=cartpole", "world.num_envs=4", "algorithm.rollout_steps=32", "algorithm.minibatch_size=64"],
        ["config=duel", "world.num_envs=4", "algorithm.rollout_steps=16", "algorithm.minibatch_size=64"],
        ["config=small_town", "world.num_envs=2", "algorithm.rollout_steps=16", "frozen=[perception]"],
    ],
)
def test_members_learn_in_other_worlds_and_what_is_frozen_stays(overrides):
    eager = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]
    config, rest = overrides[0].split("=")[1], overrides[1:]
    sizes = ["algorithm.minibatch_size=48"] if config == "small_town" else []
    learner = Experiment.load(config, "device=cpu", "population.members=2", *eager, *rest, *sizes).make_learner()
    before = {name: value.clone() for name, value in learner.algorithm.stack.tensors().items()}
    iteration = next(iterate(learner))
    assert iteration.metrics["train/updates"] > 0
    now = learner.algorithm.stack.tensors()
    frozen = [name for name in now if name.startswith("agent.perception.")]
    changed = [name for name in now if not torch.equal(now[name], before[name])]
    assert any(name.startswith("agent.actor_head") for name in changed)
    if config == "small_town":
        assert frozen
        assert not set(frozen) & set(changed)
