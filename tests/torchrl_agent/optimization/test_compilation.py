"""Compiled parts really are compiled, once, and compute what the eager ones do; what cannot be compiled still runs."""

import copy
import inspect
import logging
from unittest import mock

import pytest
import torch
from kinds import uncompiled
from torch._dynamo.utils import counters

from torchrl_agent.experiment import Experiment
from torchrl_agent.optimization.compilation import AccelerationConfig, CompiledFunction, reason
from torchrl_agent.training.metrics import to_host

ON = ("acceleration.step=true", "acceleration.advantages=true", "acceleration.update=true")


# --- the fallback (fast)


def test_a_function_that_cannot_be_compiled_runs_eagerly_and_says_so_once(caplog):
    def asks_the_device(value):
        return value * 2 if value.sum().item() > 0 else value

    part = CompiledFunction("the step", asks_the_device, compile=True)
    assert part.compiled
    with caplog.at_level(logging.WARNING):
        results = [part(torch.ones(2)) for _ in range(3)]
    assert all(result.tolist() == [2.0, 2.0] for result in results)
    assert not part.compiled
    assert part.compile_seconds > 0
    ours = [record for record in caplog.records if record.name.startswith("torchrl_agent")]
    assert len(ours) == 1
    assert ours[0].getMessage().startswith("the step ")
    assert "eager" in ours[0].getMessage()
    assert "\n" not in ours[0].getMessage()


@torch._dynamo.config.patch(recompile_limit=2)
def test_a_shape_too_many_is_no_end(caplog):
    part = CompiledFunction("the step", lambda value: value * 2, compile=True)
    for size in range(1, 5):
        assert part(torch.ones(size)).tolist() == [2.0] * size
    assert part.mode == "eager"
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("torchrl_agent")]
    assert line.startswith("the step cannot be compiled, runs eagerly: FailOnRecompileLimitHit: ")


def test_a_fallback_names_the_file_and_the_line():
    def asks_the_device(value):
        return value * 2 if value.sum().item() > 0 else value  # the line that is meant

    line = inspect.getsourcelines(asks_the_device)[1] + 1
    with pytest.raises(Exception) as caught:
        torch.compile(asks_the_device, fullgraph=True)(torch.ones(2))
    assert reason(caught.value).endswith(f"(test_compilation.py:{line})")


def test_errors_of_an_eager_function_are_its_own(caplog):
    def fail(value):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        CompiledFunction("the step", fail, compile=False)(torch.ones(2))
    assert not caplog.records


def test_a_bad_argument_is_no_reason_to_give_up_compiling():
    def picky(value):
        raise ValueError("the action has a wrong shape")

    part = CompiledFunction("the step", picky, compile=False)
    with pytest.raises(ValueError, match="wrong shape"):
        part(torch.ones(2))


def test_switched_off_means_not_compiled():
    part = CompiledFunction("the step", lambda value: value + 1, compile=False)
    before = counters["stats"]["unique_graphs"]
    assert part(torch.ones(1)).item() == 2.0
    assert counters["stats"]["unique_graphs"] == before
    assert not part.compiled


def test_loops_over_time_are_compiled_on_cuda_alone():
    estimate = Experiment.load("smoke", "device=cpu", *ON).make_learner().algorithm.estimate
    assert not isinstance(estimate, CompiledFunction)
    on_cuda = [AccelerationConfig(advantages=on).advantages_on(torch.device("cuda")) for on in (True, False)]
    assert on_cuda == [True, False]


# --- the real thing (slow)


@pytest.fixture(scope="module")
def compiled():
    """A learner with everything on, as on CUDA, two iterations old, and the number of graphs that it took."""
    torch._dynamo.reset()
    counters.clear()
    with mock.patch.object(AccelerationConfig, "advantages_on", lambda config, device: config.advantages):
        learner = Experiment.load("smoke", "device=cpu", *ON).make_learner()
    for _ in range(2):
        metrics = to_host(learner.algorithm.learn(learner.collector.collect(), 1e-3))
    assert metrics["updates"] == 8
    yield learner, counters["stats"]["unique_graphs"]
    torch._dynamo.reset()


@pytest.mark.slow
def test_step_advantages_and_update_are_really_compiled(compiled):
    learner, graphs = compiled
    parts = (*learner.collector.accelerated, *learner.algorithm.accelerated)
    assert len(parts) == 3
    assert all(part.compiled for part in parts)
    assert all(part.compile_seconds > 0 for part in parts)
    assert learner.compile_seconds == pytest.approx(sum(part.compile_seconds for part in parts))
    assert graphs >= 2  # the update is traced without Dynamo, which counts
    assert not counters["graph_break"]


@pytest.mark.slow
def test_nothing_recompiles_after_warming_up(compiled):
    learner, graphs = compiled
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rate in (1e-3, 5e-4, 1e-4):  # a schedule changes the rate, and no graph
            learner.algorithm.learn(learner.collector.collect(), rate)
    assert counters["stats"]["unique_graphs"] == graphs


@pytest.mark.slow
def test_episodes_still_end_and_begin_in_compiled_rollouts(compiled):
    learner, _ = compiled
    learner.env.state.progress.step.fill_(2990)  # ten steps before the time limit
    rollout = learner.collector.collect()
    done = rollout["next", "done"].squeeze(-1)
    assert done.any(0).all()
    assert (done.float().argmax(0) <= 9).all()
    lengths = rollout["next", "episode", "length"].squeeze(-1)
    assert (lengths[-1] == 31 - done.float().argmax(0)).all()  # counted anew since


@pytest.mark.slow
def test_a_compiled_update_computes_what_the_eager_one_does(compiled):
    learner, _ = compiled
    eager = Experiment.load("smoke", "device=cpu").make_learner()
    eager.agent.load_state_dict(learner.agent.state_dict())
    eager.algorithm.load_state_dict(copy.deepcopy(learner.algorithm.state_dict()))  # optimizers share what they load
    rollout = learner.collector.collect().clone()
    results = []
    for one in (learner, eager):
        torch.manual_seed(7)
        metrics = to_host(one.algorithm.learn(rollout.clone(), 1e-3))
        results.append((metrics, [parameter.detach().clone() for parameter in one.agent.parameters()]))
    (metrics, parameters), (expected, expected_parameters) = results
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    for parameter, other in zip(parameters, expected_parameters, strict=True):
        torch.testing.assert_close(parameter, other, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(learner.algorithm.scaler.running.var, eager.algorithm.scaler.running.var)
    torch.testing.assert_close(learner.agent.normalizer.running.mean, eager.agent.normalizer.running.mean)


@pytest.mark.slow
def test_a_compiled_policy_plays_legal_and_varied_actions_with_their_own_probabilities(compiled):
    learner, _ = compiled
    rollout = learner.collector.collect()
    assert rollout["action"].unique().tolist() == [0, 1, 2, 3, 4]
    expected = learner.agent.actor.get_dist(rollout.clone()).log_prob(rollout["action"])
    torch.testing.assert_close(rollout["action_log_prob"], expected, rtol=1e-4, atol=1e-4)


# --- the four-module agent (slow)

FOUR_MODULES = (
    "device=cpu",
    "world.num_envs=8",
    "algorithm={rollout_steps: 8, minibatch_size: 64, num_epochs: 1}",
    "model.perception={embedding_size: 16, memory_size: 16, belief_size: 8, channels: 4, prediction_coeff: 0.0}",
    "model.hidden_sizes=[16]",
    "model.world_model.hidden_size=16",
)


def learned(learner, rollout):
    torch.manual_seed(7)
    return to_host(learner.improve(rollout.clone(), 1e-3))


DREAMING_OF_OTHERS = (
    "model={social_model: {pooling: attention, associations: 4}, world_model: {predict_others: true}}",
)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "more"), [("float32", ()), ("bfloat16", ()), ("float32", DREAMING_OF_OTHERS)])
def test_the_whole_agent_acts_and_learns_in_one_graph_each_and_never_compiles_again(precision, more, caplog):
    torch._dynamo.reset()
    counters.clear()
    changes = (*FOUR_MODULES, *more)
    learner = Experiment.load("town_agent", *changes, *ON, f"algorithm.precision={precision}").make_learner()
    for _ in range(2):
        metrics = to_host(learner.improve(learner.collector.collect(), 1e-3))
    assert not uncompiled(learner)
    assert not [record for record in caplog.records if record.name.startswith("torchrl_agent")]
    assert not counters["graph_break"]
    assert metrics["skipped"] == 0
    graphs = counters["stats"]["unique_graphs"]
    with torch._dynamo.config.patch(error_on_recompile=True):
        learner.improve(learner.collector.collect(), 5e-4)
    assert counters["stats"]["unique_graphs"] == graphs
    if precision == "float32":
        off = [each.replace("true", "false") for each in ON]
        eager = Experiment.load("town_agent", *changes, *off).make_learner()
        eager.agent.load_state_dict(learner.agent.state_dict())
        eager.algorithm.load_state_dict(copy.deepcopy(learner.algorithm.state_dict()))
        rollout = learner.collector.collect().clone()
        found, expected = learned(learner, rollout), learned(eager, rollout)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=2e-3, abs=2e-4), name
    torch._dynamo.reset()
