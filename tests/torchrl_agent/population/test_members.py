"""Members of one program learn what they would learn alone, whatever happens to the others."""

from functools import cached_property, partial

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torch._dynamo.utils import counters

from torchrl_agent import Experiment, keys
from torchrl_agent.algorithms.ppo import PPO
from torchrl_agent.population.agent import Member
from torchrl_agent.population.algorithm import MembersAlgorithm
from torchrl_agent.population.stack import RowAdam, Stack, entries
from torchrl_agent.training.collector import RolloutCollector, agent_rows

EAGER = tuple(f"acceleration.{part}=false" for part in ("step", "advantages", "update"))
SMALL = ("device=cpu", "algorithm={rollout_steps: 8, minibatch_size: 16, num_epochs: 2}", "world.num_envs=8")
NET, QUICK = "model.hidden_sizes=[16,16]", "world.action_repeat=1"
RATES, ENTROPIES, GAMMAS, CLIPS = [1e-4, 1e-3, 3e-3], [0.0, 0.01, 0.1], [0.9, 0.99, 0.999], [0.1, 0.2, 0.3]
KINDS = {
    "plain": ("arena", QUICK, *SMALL, NET),
    "a2c": ("arena", QUICK, "device=cpu", "world.num_envs=8", "algorithm=a2c", "algorithm.num_minibatches=4", NET),
    "shared trunk": ("arena", QUICK, *SMALL, NET, "model.shared_trunk=true"),
    "pictures": (
        "arena",
        QUICK,
        "device=cpu",
        "world.observation=pixels",
        "policy=cnn",
        "world.num_envs=4",
        "algorithm={rollout_steps: 4, minibatch_size: 8, num_epochs: 2}",
        NET,
    ),
    "gru": ("arena", QUICK, *SMALL, NET, "policy=gru", "world.observation=classic"),
    "town": ("town", *SMALL, "world.num_envs=2", NET),
    "four modules": ("town_agent", *SMALL, "world.num_envs=2"),
}


class Played:
    """Members of a configuration with their worlds, and lone learners that begin as they do."""

    def __init__(self, kind, members=3, acceleration=EAGER, **differing):
        self.load = partial(Experiment.load, *KINDS[kind], *acceleration)
        self.experiment, self.members, self.differing = self.load(), members, differing
        self.worlds = self.experiment.world["num_envs"]
        self.algorithm = MembersAlgorithm([self.load(f"seed={m}").make_learner().algorithm for m in range(members)])
        for key, values in differing.items():
            self.algorithm.numbers[key].copy_(torch.tensor(values[:members]))
        self.algorithm.write_numbers()
        self.algorithm.anneal(0.0)
        env = self.algorithm.agent.attach(self.experiment.make_world(num_envs=members * self.worlds))
        steps = self.experiment.algorithm.rollout_steps
        self.collector = RolloutCollector(
            env, self.algorithm.behavior, steps, self.algorithm.acceleration, values=self.algorithm.reads_values
        )

    @cached_property
    def alone(self):
        """The lone learners."""
        return [
            self.load(f"seed={m}", *(f"{key}={values[m]}" for key, values in self.differing.items())).make_learner()
            for m in range(self.members)
        ]

    def rows(self):
        """A fresh rollout as the members learn from it, and a copy of each one's share."""
        rollout = self.collector.collect()
        n, group = self.worlds, self.algorithm.agent.group
        shares = [agent_rows(rollout[:, m * n : (m + 1) * n].clone(), group) for m in range(self.members)]
        return agent_rows(rollout, group), shares

    def learn(self, rows, seed=0):
        torch.manual_seed(seed)
        return self.algorithm.learn(rows, self.experiment.algorithm.learning_rate.initial)

    def difference(self, member):
        """Largest one between a member and its twin that learns alone, over weights, statistics and reward scale."""
        mine = self.algorithm.stack.member(member)
        theirs = Member(self.alone[member].algorithm)
        pairs = [(mine[name], value) for name, value in (*theirs.named_parameters(), *theirs.named_buffers())]
        return max((a - b).abs().max().item() for a, b in pairs if b.numel())


@pytest.mark.parametrize(
    "kind",
    ["plain", "town", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gru", "shared trunk", "pictures"))],
)
def test_a_member_learns_what_it_would_learn_alone(kind):
    rates = {"algorithm.learning_rate.initial": RATES, "algorithm.entropy_coeff": ENTROPIES}
    played = Played(kind, **rates, **{"algorithm.gamma": GAMMAS, "algorithm.clip_epsilon": CLIPS})
    before = played.algorithm.stack.flat.detach().clone()
    for iteration in range(2):
        rows, shares = played.rows()
        played.learn(rows, iteration)
        for member, learner in enumerate(played.alone):
            torch.manual_seed(iteration)
            learner.algorithm.anneal(0.0)
            learner.algorithm.learn(shares[member], RATES[member])
    assert ((played.algorithm.stack.flat - before).abs().amax(1) > 1e-4).all(), "nobody learned, so nothing is shown"
    tolerance = 1e-4 if kind in ("gru", "pictures") else 1e-5  # sums of many products, in another order
    assert max(played.difference(member) for member in range(3)) < tolerance


def test_members_anneal_their_own_clipping_ranges():
    played = Played("plain", **{"algorithm.clip_epsilon": [0.1, 0.2, 0.4]})
    config, clips = played.algorithm.config, played.algorithm.stack.others()["loss.objective.clip_epsilon"]
    config.final_clip_epsilon = 0.0
    played.algorithm.anneal(0.75)
    torch.testing.assert_close(clips.flatten(), torch.tensor([0.025, 0.05, 0.1]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a2c", "four modules"])
def test_so_does_a_population_of_one_of_other_kinds(kind):
    # the losses of the four modules draw random numbers, which a lone learner draws in the same order
    played = Played(kind, members=1)
    (learner,) = played.alone
    for iteration in range(2):
        rows, (share,) = played.rows()
        played.learn(rows, iteration)
        torch.manual_seed(iteration)
        learner.algorithm.anneal(0.0)
        learner.algorithm.learn(share, played.experiment.algorithm.learning_rate.initial)
    assert played.difference(0) < 1e-5


def test_the_dead_are_left_out_of_a_members_statistics():
    played = Played("town")
    rows, _ = played.rows()
    assert keys.ALIVE in rows.keys()
    rows[keys.ALIVE][:, : rows.shape[1] // 3] = False
    played.learn(rows)
    counts = played.algorithm.stack.others()["agent.normalizer.running.count"]
    assert counts.flatten().tolist()[0] == 0
    assert (counts.flatten()[1:] > 0).all()


def test_members_play_by_their_own_weights_in_their_own_worlds():
    played = Played("plain")
    stack = played.algorithm.stack
    with torch.no_grad():  # the last layer's bias: member m always does action m
        for m in range(3):
            stack.member(m)["agent.actor_head.module.0.module.4.bias"].copy_(100.0 * torch.eye(5)[m])
    actions = played.collector.collect()[keys.ACTION].unflatten(1, (3, 8))
    assert [actions[:, m].unique().tolist() for m in range(3)] == [[0], [1], [2]]


def test_nan_in_one_members_rewards_leaves_the_others_alone():
    played, clean = Played("plain"), Played("plain")
    for one in (played, clean):
        torch.manual_seed(3)
        rows, _ = one.rows()
        rows = rows.clone()
        if one is played:
            rows[keys.NEXT, keys.REWARD][:, :8] = torch.nan
        before = one.algorithm.stack.flat.detach().clone()
        metrics = one.learn(rows)
        one.changed = (one.algorithm.stack.flat != before).any(1).tolist()
    assert played.changed == [False, True, True]
    assert clean.changed == [True, True, True]
    assert metrics["skipped"].tolist() == [0, 0, 0]
    assert torch.equal(played.algorithm.stack.flat[1:], clean.algorithm.stack.flat[1:])
    assert played.algorithm.optimizer.steps.flatten().tolist() == [0, 8, 8]
    assert played.algorithm.stack.flat.isfinite().all()


def test_permuted_members_learn_permuted_results():
    played, other = Played("plain"), Played("plain")
    order = torch.tensor([2, 0, 1])
    other.algorithm.copy(order)
    rows, _ = played.rows()
    shuffled = rows.unflatten(1, (3, 8))[:, order].flatten(1, 2)
    played.learn(rows)
    other.learn(shuffled)
    torch.testing.assert_close(other.algorithm.stack.flat, played.algorithm.stack.flat[order], atol=1e-6, rtol=0)


def test_a_copy_is_its_source_bit_for_bit_and_keeps_its_worlds():
    played = Played("plain", **{"algorithm.gamma": GAMMAS})
    for _ in range(2):
        played.learn(played.rows()[0])
    algorithm = played.algorithm
    returns = algorithm.stack.others()["scaler.returns"].clone()
    before = [value.clone() for value in everything(algorithm)]
    algorithm.copy(torch.arange(3))
    assert all(torch.equal(a, b) for a, b in zip(everything(algorithm), before, strict=True))
    algorithm.copy(torch.tensor([1, 1, 2]))
    for now, old in zip(everything(algorithm), before, strict=True):
        assert torch.equal(now, old[[1, 1, 2]])
    assert torch.equal(algorithm.stack.others()["scaler.returns"], returns)


def everything(algorithm):
    others = algorithm.stack.others()
    return [
        algorithm.stack.flat.detach(),
        *(others[name] for name in others if name != "scaler.returns"),
        *algorithm.optimizer.tensors().values(),
        *algorithm.numbers.values(),
    ]


@pytest.mark.parametrize(
    "kind", [kind if kind in ("plain", "town") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]
)
def test_the_template_keeps_its_own_parameters(kind):
    played = Played(kind, members=2)
    template = Member(played.algorithm.template)
    mine = {name: id(value) for name, value in (*template.named_parameters(), *template.named_buffers())}
    values = [value.detach().clone() for value in template.parameters()]
    played.learn(played.rows()[0])
    assert {name: id(value) for name, value in (*template.named_parameters(), *template.named_buffers())} == mine
    assert all(type(value) is nn.Parameter for value in template.parameters())
    assert all(torch.equal(a, b) for a, b in zip(values, template.parameters(), strict=True))


def test_target_kl_stops_the_member_that_went_too_far_and_no_other():
    played = Played("plain", **{"algorithm.learning_rate.initial": [1e-5, 1e-5, 1.0]})
    played.algorithm.config.target_kl = 0.01
    metrics = played.learn(played.rows()[0])
    updates = metrics["updates"].tolist()
    assert updates[:2] == [8, 8]
    assert 1 <= updates[2] < 8
    played.algorithm.config.target_kl = 1e9
    assert played.learn(played.rows()[0])["updates"].tolist() == [8, 8, 8], "it learns in the next iteration"


def test_updates_that_members_skipped_are_counted_over_a_resume(tmp_path):
    played, other = (Played("plain", members=2) for _ in range(2))
    rows, _ = played.rows()
    rows[keys.NEXT, keys.REWARD][:, : rows.shape[1] // 2] = torch.nan
    played.learn(rows)
    assert played.algorithm.skips_in_row.tolist() == [8, 0]
    other.algorithm.load_state_dict(played.algorithm.state_dict())
    assert other.algorithm.skips_in_row.tolist() == [8, 0]


def test_an_algorithm_with_an_iteration_of_its_own_is_refused():
    class OneOfOnesOwn(PPO):
        name = "own"

        def improve(self, rollout):
            return super().improve(rollout)

    learner = Experiment.load(*KINDS["plain"], *EAGER).make_learner()
    own = OneOfOnesOwn(learner.agent, learner.algorithm.config, 8)
    with pytest.raises(ValueError, match="own learns one agent at a time"):
        MembersAlgorithm([own, own])


# --- rows


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_row_adam_is_adam_with_a_rate_and_a_clipping_per_row(decay):
    torch.manual_seed(0)
    start, rates, norms = torch.randn(2, 6), [0.1, 0.01], [0.5, 100.0]
    flat = nn.Parameter(start.clone())
    adam = RowAdam(flat, [(0, 2), (2, 6)], epsilon=1e-5, weight_decay=decay)
    twins = [[nn.Parameter(row[:2].clone()), nn.Parameter(row[2:].clone())] for row in start]
    options = {"eps": 1e-5, "weight_decay": decay}
    theirs = [torch.optim.AdamW(twin, lr=rate, **options) for twin, rate in zip(twins, rates, strict=True)]
    for step in range(5):
        gradient = torch.randn(2, 6) * 3
        norm, made = adam.step(gradient, torch.tensor(rates), torch.tensor(norms), torch.tensor([True, step != 2]))
        assert made.tolist() == [True, step != 2]
        torch.testing.assert_close(norm, gradient.norm(dim=1))
        for row, (twin, optimizer) in enumerate(zip(twins, theirs, strict=True)):
            if row == 1 and step == 2:
                continue
            twin[0].grad, twin[1].grad = gradient[row, :2].clone(), gradient[row, 2:].clone()
            for part in twin:
                torch.nn.utils.clip_grad_norm_([part], norms[row])
            optimizer.step()
    torch.testing.assert_close(flat.detach(), torch.stack([torch.cat([p.detach() for p in twin]) for twin in twins]))
    assert adam.steps.flatten().tolist() == [5, 4]


def test_a_stack_calls_every_member_and_lets_it_write_its_buffers():
    modules = [nn.BatchNorm1d(2, affine=True) for _ in range(3)]
    with torch.no_grad():
        for number, module in enumerate(modules):
            module.weight.fill_(number)
            module.running_mean.fill_(number)
    stack = Stack(modules)

    def double(values):
        modules[0].running_mean.mul_(2)
        return {"y": values["x"] * modules[0].weight + modules[0].running_mean}

    for together in (True, False):
        found = stack.call(double, {"x": torch.ones(3, 4, 2)}, 1, together=together)["y"]
        factor = 2 if together else 4
        assert found[:, 0, 0].tolist() == [0.0, 1 + factor, 2 + 2 * factor]
    assert stack.others()["running_mean"][:, 0].tolist() == [0, 4, 8]
    assert modules[0].running_mean.tolist() == [0, 0]
    assert entries(TensorDict({"a": torch.ones(2), "b": {"c": torch.ones(2)}}, [2])).keys() == {"a", ("b", "c")}


# --- compiled


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "gru"])
def test_compiled_members_learn_as_eager_ones_and_nothing_is_compiled_anew(kind):
    compiled, eager = Played(kind, acceleration=()), Played(kind)
    for iteration in range(3):
        rows, _ = compiled.rows()
        for one in (compiled, eager):
            one.learn(rows.clone(), iteration)
    torch.testing.assert_close(compiled.algorithm.stack.flat, eager.algorithm.stack.flat, atol=2e-5, rtol=0)
    assert compiled.algorithm.mode == compiled.collector.mode == "compiled"

    graphs = counters["stats"]["unique_graphs"]
    algorithm = compiled.algorithm
    algorithm.copy(torch.tensor([0, 0, 1]))
    for name, factor in (("algorithm.gamma", 0.9), ("algorithm.clip_epsilon", 2), ("algorithm.entropy_coeff", 0.5)):
        algorithm.numbers[name].mul_(factor)
    algorithm.write_numbers()
    compiled.learn(compiled.rows()[0])
    assert counters["stats"]["unique_graphs"] == graphs
