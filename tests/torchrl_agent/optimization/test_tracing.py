"""Functions traced as one program. Code generation takes seconds, so the fast tests run the traced operations as they
are; the slow ones generate code.
"""

import copy
import logging

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from torchrl_agent import Experiment
from torchrl_agent.optimization import traced_updater, tracing
from torchrl_agent.optimization.adam import make_adam
from torchrl_agent.optimization.traced_updater import make_updater
from torchrl_agent.optimization.tracing import TracedFunction


@pytest.fixture
def interpreted(monkeypatch):
    """Traced operations run one by one; returns the number of programs made."""
    made = []

    def run_as_it_is(traced, inputs):
        made.append(traced)
        return traced

    monkeypatch.setattr(tracing, "generate", run_as_it_is)
    return made


def frames(*values):
    return TensorDict({"x": torch.tensor(values)}, [len(values)])


def test_a_program_uses_and_changes_tensors_in_place(interpreted):
    weight, total = torch.nn.Parameter(torch.tensor(2.0)), torch.zeros(())

    def add(tensordict):
        total.add_((weight * tensordict["x"]).sum())
        return {"doubled": weight * tensordict["x"]}, total.clone()

    function = TracedFunction("the sum", add, True)
    found, now = function(frames(1.0, 2.0))
    assert (found["doubled"].tolist(), now.item(), total.item()) == ([2.0, 4.0], 6.0, 6.0)
    weight.data.fill_(3.0)
    found, now = function(frames(1.0, 1.0))
    assert (found["doubled"].tolist(), now.item(), total.item()) == ([3.0, 3.0], 12.0, 12.0)
    assert len(interpreted) == 1
    assert not interpreted[0].state_dict()  # or they would be inputs twice
    assert not found["doubled"].requires_grad


def test_each_shape_has_a_program_of_its_own(interpreted):
    function = TracedFunction("the mean", lambda tensordict: tensordict["x"].mean(), True)
    assert [function(frames(*map(float, range(count)))).item() for count in (2, 3, 2)] == [0.5, 1.0, 0.5]
    assert len(interpreted) == 2
    assert function(TensorDict({"x": torch.arange(6.0)[::2]}, [3])).item() == 2.0  # of another layout
    assert len(interpreted) == 3


def test_a_function_inside_a_traced_one_is_part_of_it(interpreted):
    inner = TracedFunction("the inner one", lambda tensordict: tensordict["x"] + 1, True)
    outer = TracedFunction("the outer one", lambda tensordict: inner(tensordict) * 2, True)
    assert outer(frames(1.0, 2.0)).tolist() == [4.0, 6.0]
    assert len(interpreted) == 1


def test_bound_values_are_read_where_they_are(interpreted):
    given = frames(1.0, 2.0)
    call = TracedFunction("the square", lambda tensordict: tensordict["x"] ** 2, True).bound(given)
    assert call().tolist() == [1.0, 4.0]
    given["x"].add_(1)
    assert call().tolist() == [4.0, 9.0]


def test_what_waits_for_a_number_runs_eagerly_with_one_line(interpreted, caplog):
    def choose(tensordict):
        return tensordict["x"] if tensordict["x"].sum() > 0 else -tensordict["x"]

    function = TracedFunction("the choice", choose, True)
    with caplog.at_level(logging.WARNING):
        assert function(frames(-1.0, -2.0)).tolist() == [1.0, 2.0]
        assert function(frames(1.0, 2.0)).tolist() == [1.0, 2.0]
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the choice cannot be traced, runs eagerly"
    ]
    assert function.mode == "eager"


def test_errors_of_the_function_itself_are_raised(interpreted):
    function = TracedFunction("the sum", lambda tensordict: tensordict["y"].sum(), True)
    with pytest.raises(KeyError, match="y"):
        function(frames(1.0))


# --- updates ---------------------------------------------------------------------------------------------------------

OFF_POLICY = ["algorithm.learning_starts=32", "algorithm.batch_size=16", "algorithm.replay_ratio=4"]
CASES = {
    "ppo": ["gym:CartPole-v1", "algorithm.minibatch_size=24"],  # the last minibatch is filled up
    "ppo_stops": ["gym:CartPole-v1", "algorithm.minibatch_size=32", "algorithm.target_kl=0.0001"],
    "ppo_adapts": ["gym:CartPole-v1", "algorithm.minibatch_size=32", "algorithm.learning_rate.schedule=adaptive"],
    "ppo_continuous": ["gym:Pendulum-v1", "algorithm.minibatch_size=32", "algorithm.clip_value=0.2"],
    "ppo_bfloat16": ["gym:CartPole-v1", "algorithm.minibatch_size=32", "algorithm.precision=bfloat16"],
    "a2c": ["gym:CartPole-v1", "algorithm=a2c"],
    "impala": ["gym:CartPole-v1", "algorithm=impala", "algorithm.num_minibatches=2"],
    "dqn": ["gym:CartPole-v1", "algorithm=dqn", *OFF_POLICY],
    "dqn_prioritized": ["gym:CartPole-v1", "algorithm=dqn", *OFF_POLICY, "algorithm.priority_exponent=0.6"],
    "dqn_rarely": ["gym:CartPole-v1", "algorithm=dqn", *OFF_POLICY, "algorithm.target_interval=3"],
    "sac": ["gym:Pendulum-v1", "algorithm=sac", *OFF_POLICY],
    "sac_discrete": ["gym:CartPole-v1", "algorithm=sac", *OFF_POLICY],
    "td3": ["gym:Pendulum-v1", "algorithm=td3", *OFF_POLICY],
}

FAST = ("ppo", "ppo_continuous", "impala", "dqn_prioritized", "sac")


def make_learner(case, traced):
    world, *overrides = CASES[case]
    torch.manual_seed(0)
    sizes = ["world.num_envs=4", "algorithm.rollout_steps=16", "model.hidden_sizes=[8]", "seed=3", "threads=1"]
    sizes.append("acceleration.step=false")
    switches = [f"acceleration.{part}={'true' if traced else 'false'}" for part in ("update", "advantages")]
    on_policy = case.partition("_")[0] in ("ppo", "a2c", "impala")  # whose advantages are compiled by torch.compile
    switches[1] = "acceleration.advantages=false" if on_policy else switches[1]
    return Experiment.load(world, *overrides, *sizes, *switches).make_learner()


def learn(eager, traced, iterations):
    """Let two learners learn from the rollouts of the first; return the diagnostics of the last iteration."""
    for iteration in range(iterations):
        torch.manual_seed(iteration)
        rollout = eager.collector.collect()
        found = []
        for learner in (eager, traced):
            torch.manual_seed(100 + iteration)
            found.append(learner.improve(rollout.clone(), 1e-2))
            learner.frames += rollout.numel()
    return found


def assert_same_agents(eager, traced):
    for mine, other in zip(traced.algorithm.tensors().items(), eager.algorithm.tensors().items(), strict=True):
        if not mine[0].startswith("optimizer."):
            torch.testing.assert_close(
                mine[1], other[1], rtol=2e-3, atol=2e-5, msg=lambda text, key=mine[0]: f"{key}: {text}"
            )


@pytest.fixture(params=[0, 10_000], ids=["fused", "flat"])
def least_fused(request, monkeypatch):
    """Both ways to make the optimizer's step."""
    monkeypatch.setattr(traced_updater, "LEAST_FUSED", request.param)


@pytest.mark.usefixtures("least_fused")
@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in FAST else pytest.mark.slow) for case in CASES])
def test_an_update_in_one_program_is_the_same(case, interpreted, caplog):
    eager, traced = make_learner(case, False), make_learner(case, True)
    one, other = learn(eager, traced, 3)
    assert interpreted and traced.algorithm.mode == "compiled"
    ours = [record for record in caplog.records if record.name.startswith("torchrl_agent")]
    assert not [record.message for record in ours if record.levelno >= logging.WARNING]
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name].float(), value.float(), rtol=1e-2, atol=1e-3, msg=name)
    assert_same_agents(eager, traced)


@pytest.mark.usefixtures("least_fused")
@pytest.mark.parametrize("case", ["ppo", pytest.param("sac", marks=pytest.mark.slow)])
def test_a_checkpoint_goes_on_with_the_program_and_without(case, interpreted):
    eager, traced = make_learner(case, False), make_learner(case, True)
    learn(eager, traced, 2)
    states = copy.deepcopy((eager.state_dict(), traced.state_dict()))
    learn(eager, traced, 1)
    eager.load_state_dict(states[1])
    traced.load_state_dict(states[0])
    learn(eager, traced, 2)
    assert_same_agents(eager, traced)


@pytest.mark.usefixtures("least_fused")
def test_gradients_of_another_layout_than_their_parameters_are_learned_from(interpreted):
    """A convolution of pictures whose channels come last has such a gradient."""

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(3, 4, 3)

        def forward(self, tensordict):
            return TensorDict({"loss_x": self.convolution(tensordict["x"].permute(0, 3, 1, 2)).square().mean()})

    pictures, learned = TensorDict({"x": torch.rand(5, 6, 6, 3)}, [5]), []
    for traced in (False, True):
        torch.manual_seed(0)
        loss = Loss()
        options = {"max_grad_norm": 1e9, "precision": "float32", "compile": traced, "traced": True}
        parameters = list(loss.parameters())
        names = dict.fromkeys(parameters, "encoder")
        updater = make_updater(loss, make_adam(parameters, 0.1, 1e-5), [parameters], names, **options)
        for _ in range(3):
            updater.update(pictures)
        learned.append(loss.convolution.weight.detach())
    torch.testing.assert_close(*learned)


@pytest.mark.slow
@pytest.mark.usefixtures("least_fused")
@pytest.mark.parametrize("case", ["ppo", "dqn"])
def test_generated_code_learns_the_same(case):
    eager, traced = make_learner(case, False), make_learner(case, True)
    learn(eager, traced, 3)
    assert traced.algorithm.mode == "compiled"
    assert_same_agents(eager, traced)
