"""Continuous actions: exact probabilities of clipped normals, bounds from specs, learning, export, refusals."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from kinds import uncompiled
from line_world import arm
from tensordict import TensorDict
from torch.distributions import Normal
from torchrl.data import Bounded, Unbounded
from torchrl.envs.utils import ExplorationType, set_exploration_type
from town_goals import town_manager

from torchrl_agent import keys
from torchrl_agent.cli import main
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.judging import evaluate
from torchrl_agent.export import export_run
from torchrl_agent.loop import learn
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.sac_agent import SACAgent
from torchrl_agent.modules.distributions import ClippedNormal
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.social_model import SocialModelConfig
from torchrl_agent.modules.specs import action_bounds, action_heads
from torchrl_agent.modules.world_model import WorldModelConfig
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.run import train
from torchrl_agent.training.metrics import to_host

INFINITE = torch.tensor(math.inf)
TINY = [
    "device=cpu",
    "threads=1",
    "world.num_envs=4",
    "algorithm={rollout_steps: 32, minibatch_size: 64, num_epochs: 2}",
    "total_frames=256",
    "evaluation.episodes=2",
    "run.tensorboard=false",
]


def clipped(loc, scale, low=-1.0, high=1.0):
    """One number of an action."""
    return ClippedNormal(*(torch.tensor([float(value)]) for value in (loc, scale, low, high)))


# --- the distribution


def test_log_probabilities_by_hand():
    distribution = clipped(0.5, 0.5)
    # inside: z = (0.25 - 0.5) / 0.5 = -0.5, -z^2 / 2 - log 0.5 - log(2 pi) / 2 = -0.125 + 0.6931 - 0.9189
    assert distribution.log_prob(torch.tensor([0.25])).item() == pytest.approx(-0.3508, abs=1e-4)
    # everything above 1 is one deviation away: log 0.158655
    assert distribution.log_prob(torch.tensor([1.0])).item() == pytest.approx(math.log(0.158655), abs=1e-4)
    # everything below -1 is three away: log 0.0013499
    assert distribution.log_prob(torch.tensor([-1.0])).item() == pytest.approx(math.log(0.0013499), abs=1e-3)


def test_several_numbers_are_independent():
    loc, scale = torch.tensor([0.0, 0.3]), torch.tensor([1.0, 0.2])
    both = ClippedNormal(loc, scale, torch.tensor([-1.0, -2.0]), torch.tensor([1.0, 0.5]))
    parts = [clipped(0.0, 1.0, -1.0, 1.0), clipped(0.3, 0.2, -2.0, 0.5)]
    action = torch.tensor([[0.2, 0.5], [-1.0, 0.1]])
    expected = sum(part.log_prob(action[:, [number]]) for number, part in enumerate(parts))
    torch.testing.assert_close(both.log_prob(action), expected)
    torch.testing.assert_close(both.entropy(), sum(part.entropy() for part in parts))


@pytest.mark.parametrize(("loc", "scale"), [(0.0, 1.0), (0.8, 0.3), (-3.0, 2.0)])
def test_all_probability_lies_within_the_bounds(loc, scale):
    distribution = clipped(loc, scale)
    middles = (torch.arange(20_000) + 0.5) / 10_000 - 1
    inside = distribution.log_prob(middles.unsqueeze(-1)).exp().sum() / 10_000
    masses = distribution.log_prob(torch.tensor([[-1.0], [1.0]])).exp().sum()
    assert (inside + masses).item() == pytest.approx(1.0, abs=1e-3)


def test_samples_stay_within_the_bounds_and_gather_on_them_as_often_as_they_should():
    torch.manual_seed(0)
    actions = clipped(0.5, 0.5).sample((100_000,))
    assert actions.shape == (100_000, 1)
    assert actions.min() == -1
    assert actions.max() == 1
    # standard deviation of a share: sqrt(0.159 * 0.841 / 100,000) = 0.0012
    assert (actions == 1).float().mean().item() == pytest.approx(0.158655, abs=0.005)
    assert not actions.requires_grad


def test_gradients_by_hand_inside_and_on_a_bound():
    for action, expected in (
        (0.25, -1.0),  # z / scale = -0.5 / 0.5
        (1.0, 0.24197 / (0.158655 * 0.5)),  # density / (probability * scale), one deviation away
    ):
        loc = torch.tensor([0.5], requires_grad=True)
        bounds = torch.tensor([-1.0]), torch.tensor([1.0])
        ClippedNormal(loc, torch.tensor([0.5]), *bounds).log_prob(torch.tensor([action])).backward()
        assert loc.grad.item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("loc", [-1e3, -1.0, 0.0, 40.0, 1e3])
@pytest.mark.parametrize("bound", [1.0, math.inf])
def test_gradients_are_numbers_however_far_the_mean_is_away(loc, bound):
    loc = torch.tensor([loc], requires_grad=True)
    scale = torch.tensor([0.1], requires_grad=True)
    distribution = ClippedNormal(loc, scale, torch.tensor([-bound]), torch.tensor([bound]))
    for action in (-1.0, 0.5, 1.0):
        log_prob = distribution.log_prob(torch.tensor([action]))
        log_prob.backward()
        assert log_prob.isfinite()
        assert loc.grad.isfinite().all()
        assert scale.grad.isfinite().all()


def test_without_bounds_it_is_a_normal():
    distribution = ClippedNormal(torch.tensor([0.3]), torch.tensor([2.0]), -INFINITE, INFINITE)
    action = torch.tensor([[-7.0], [0.3], [9.0]])
    torch.testing.assert_close(distribution.log_prob(action), Normal(0.3, 2.0).log_prob(action).sum(-1))
    torch.testing.assert_close(distribution.entropy(), Normal(0.3, 2.0).entropy())


def test_the_deterministic_sample_is_the_clipped_mean():
    assert clipped(0.3, 1.0).deterministic_sample.item() == pytest.approx(0.3)
    assert clipped(-4.0, 1.0).deterministic_sample.item() == -1


# --- specs and agents


def test_bounds_are_read_from_specs():
    low, high = action_bounds(arm(Bounded(torch.tensor([[-1.0, 0.0]] * 2), torch.tensor([[1.0, 4.0]] * 2), (2, 2))))
    assert (low.tolist(), high.tolist()) == ([-1, 0], [1, 4])
    low, high = action_bounds(arm(Unbounded((2, 1))))
    assert (low.item(), high.item()) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="vectors"):
        action_bounds(arm(Bounded(-1, 1, (2, 2, 3))))


@pytest.mark.parametrize(("least", "most"), [(-0.1, 0.1), (0.7, 0.9), (-math.inf, 1e-9), (-1e-40, 1.0 + 1e-12)])
def test_bounds_in_double_precision_are_rounded_inwards(least, most):
    ends = [torch.full((2, 1), bound, dtype=torch.float64) for bound in (least, most)]
    low, high = action_bounds(arm(Bounded(*ends, (2, 1), dtype=torch.float64)))
    assert low.dtype == high.dtype == torch.float32
    assert least <= low.item() and high.item() <= most
    assert low.item() == pytest.approx(least, rel=1e-6) and high.item() == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize("make", [Agent, SACAgent])
def test_no_action_is_beyond_a_bound_in_double_precision(make):
    ends = [torch.tensor([[-0.1, 0.3, -7.7]] * 2, dtype=torch.float64), torch.tensor([[0.1, 0.7, 0.1]] * 2).double()]
    agent = make(arm(Bounded(*ends, (2, 3), dtype=torch.float64)), ModelConfig([8]))
    rows = TensorDict({keys.LOC: torch.randn(1000, 3) * 20, keys.SCALE: torch.ones(1000, 3)}, [1000])
    for mode in (ExplorationType.DETERMINISTIC, ExplorationType.RANDOM):
        with set_exploration_type(mode), torch.no_grad():
            action = agent.actor_head[-1](rows.clone())[keys.ACTION].double()
        assert (action >= ends[0][0]).all() and (action <= ends[1][0]).all()


def test_bounds_that_overflow_are_none_and_a_number_without_choice_is_refused():
    greatest = torch.finfo(torch.float32).max
    env = arm(Bounded(-greatest, greatest, (2, 1)))
    assert [bound.item() for bound in action_bounds(env)] == [-math.inf, math.inf]
    played = Agent(env, ModelConfig([8])).actor(env.reset())
    assert played[keys.ACTION].isfinite().all() and played[keys.LOG_PROB].isfinite().all()
    with pytest.raises(ValueError, match="this world's have none"):
        SACAgent(env, ModelConfig([8]))
    same = arm(Bounded(torch.tensor([[-1.0, 0.5]] * 2), torch.tensor([[1.0, 0.5]] * 2), (2, 2)))
    for make in (Agent, SACAgent):
        with pytest.raises(ValueError, match=r"number 1 of the world's actions can only be 0\.5"):
            make(same, ModelConfig([8]))


def test_the_first_policy_begins_in_the_middle_of_the_range_as_wide_as_was_asked_for():
    env = arm(Bounded(torch.tensor([[-1.0, 0.0]] * 2), torch.tensor([[1.0, 4.0]] * 2), (2, 2)))
    agent = Agent(env, ModelConfig([8], initial_std=0.5))
    root = agent.policy(env.reset())
    torch.testing.assert_close(root["loc"], torch.tensor([[0.0, 2.0]] * 2), atol=0.1, rtol=0)
    torch.testing.assert_close(root["scale"], torch.tensor([[0.5, 1.0]] * 2))
    assert agent.input_keys == ["observation"]
    assert env.action_spec.is_in(root["action"])
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert torch.equal(agent.policy(env.reset())["action"], root["loc"])


@pytest.mark.parametrize(
    ("module", "culprit"),
    [
        ({"world_model": WorldModelConfig(enabled=True)}, "model.world_model.enabled=false"),
        ({"social_model": SocialModelConfig(enabled=True)}, "model.social_model.enabled=false"),
        ({"perception": PerceptionConfig(enabled=True, prediction_coeff=1.0)}, "prediction_coeff"),
        ({"manager": town_manager()}, "does not show"),
        ({"initial_std": 0.0}, "model.initial_std"),
    ],
)
def test_modules_that_need_discrete_actions_say_so(module, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        Agent(arm(Bounded(-1, 1, (2, 1))), ModelConfig([8], **{"memory": "gru", **module}))
    assert "\n" not in str(caught.value)


def test_discrete_heads_of_a_continuous_world_are_refused():
    with pytest.raises(ValueError, match="continuous"):
        action_heads(arm(Bounded(-1, 1, (2, 1))))


# --- learning


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_learning_in_a_world_with_continuous_actions(memory):
    iterations = list(learn(Experiment.load("known/pendulum", *TINY, f"model.memory={memory}")))
    assert [iteration.frames for iteration in iterations] == [128, 256]
    last = iterations[-1]
    assert last.metrics["train/updates"] == 4
    assert last.metrics["train/skipped"] == 0
    assert last.rollout[keys.ACTION].abs().max() <= 2
    assert last.rollout[keys.ACTION].std() > 0.5
    # at first the deviation is half the range of -2 to 2: log(2) + log(2 pi e) / 2
    assert iterations[0].metrics["train/entropy"] == pytest.approx(0.6931 + 1.4189, abs=0.02)
    log_std = last.agent.actor_head[0].module.log_std
    assert log_std.item() != 0


def test_stored_log_probabilities_are_those_of_the_stored_actions():
    learner = Experiment.load("known/pendulum", *TINY).make_learner()
    rollout = learner.collector.collect().clone()
    assert (rollout[keys.ACTION].abs() == 2).float().mean() > 0.1  # some are clipped
    found = learner.agent.actor.get_dist(rollout.clone()).log_prob(rollout[keys.ACTION])
    torch.testing.assert_close(rollout[keys.LOG_PROB], found)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run of a continuous world."""
    folder = tmp_path_factory.mktemp("runs")
    for _ in train(Experiment.load("known/pendulum", *TINY, f"run.folder={folder}", "run.name=swing")):
        pass
    return folder / "swing"


def test_a_run_can_be_loaded_and_judged(run):
    experiment, agent = load_agent(run)
    figures = [evaluate(experiment, agent, episodes=3) for _ in range(2)]
    assert figures[0] == figures[1]
    assert -2000 < figures[0]["return_mean"] < 0
    assert figures[0]["length_mean"] == 200


def test_an_exported_policy_gives_the_clipped_mean(run):
    (path,) = export_run(run)
    program = torch.export.load(str(path)).module()
    _, agent = load_agent(run)
    observation = torch.randn(5, 3)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        expected = agent.policy(TensorDict({"observation": observation}, [5]))
    found = program({"observation": observation})
    assert set(found) == {"action", "loc", "scale"}
    torch.testing.assert_close(found["action"], expected["action"])


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [(["film"], "cannot be drawn: pygame is not installed"), (["pretrain", "perception"], "continuous")],
)
def test_commands_that_cannot_be_say_so_in_one_sentence(run, capsys, monkeypatch, arguments, culprit):
    monkeypatch.setitem(sys.modules, "pygame", None)  # with which Pendulum draws
    target = ["known/pendulum", *TINY] if arguments[0] == "pretrain" else [str(run)]
    assert main([*arguments, *target]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert culprit in line


@pytest.mark.slow
def test_compiled_learning_computes_what_the_eager_one_does():
    torch._dynamo.reset()
    off = Experiment.load("known/pendulum", *TINY).make_learner()
    on = Experiment.load(
        "known/pendulum", *TINY, "acceleration.update=true", "acceleration.advantages=true"
    ).make_learner()
    on.agent.load_state_dict(off.agent.state_dict())
    rollout = off.collector.collect().clone()
    results = []
    for one in (off, on):
        torch.manual_seed(7)
        results.append(to_host(one.algorithm.learn(rollout.clone(), 1e-3)))
    assert uncompiled(on) == {"the policy"}
    for name, value in results[0].items():
        assert results[1][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


@pytest.mark.slow
def test_acting_and_scoring_compile_as_one_graph():
    def act(loc, scale, low, high):
        distribution = ClippedNormal(loc, scale, low, high)
        action = distribution.sample()
        return action, distribution.log_prob(action), distribution.entropy(), distribution.deterministic_sample

    values = torch.randn(64, 3), torch.rand(64, 3) + 0.1, -torch.ones(3), torch.ones(3)
    action, log_prob, entropy, mean = torch.compile(act, fullgraph=True)(*values)
    eager = ClippedNormal(*values)
    torch.testing.assert_close(log_prob, eager.log_prob(action), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(entropy, eager.entropy())
    torch.testing.assert_close(mean, eager.deterministic_sample)
