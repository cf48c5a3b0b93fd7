"""Precisions: which layers float8 takes, that it is emulated where it has to be, and what ``auto`` stands for."""

import importlib.util

import pytest
import torch

from torchrl_agent import Experiment
from torchrl_agent.experiment.build import make_algorithm
from torchrl_agent.optimization import precision
from torchrl_agent.optimization.precision import large_layers, resolve, without_float8

torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs torchao (extra float8)")

EAGER = tuple(f"acceleration.{part}=false" for part in ("step", "advantages", "update"))
MIND = (
    "device=cpu",
    "world.num_envs=4",
    "algorithm={rollout_steps: 8, minibatch_size: 32, num_epochs: 1}",
    "model.perception={embedding_size: 32, memory_size: 32, belief_size: 32, channels: 2}",
    "model.world_model.hidden_size=32",
    *EAGER,
)
FLOAT8 = ("algorithm.precision=float8", "algorithm.float8_smallest_layer=32")
LARGE = {"vector_encoder.0", "fuse.0", "mean.0", "log_std.0", "body.2", "change.0", "predictor.2"}
"""Layers of 32 or more inputs and outputs, multiples of 16 (the encoder's have 144): those of perception, of its
predictor, whose own inputs are 32 and 13 numbers, and of the world model. Its first layers also read actions.
"""


@pytest.fixture(scope="module")
def mind():
    return Experiment.load("town_agent", *MIND).make_learner().agent


def float8_layers(agent):
    return [layer for layer in agent.modules() if type(layer).__name__ == "SwitchedFloat8Linear"]


def test_large_layers_of_perception_and_world_model_alone_are_taken(mind):
    named = dict.fromkeys(name for name, _ in mind.named_modules())
    taken = {id(getattr(parent, name)) for parent, name in large_layers(mind, 32)}
    found = {name for name in named if id(mind.get_submodule(name)) in taken}
    assert {".".join(name.split(".")[-2:]) for name in found} == LARGE
    assert len(large_layers(mind, 33)) < len(LARGE)
    assert large_layers(mind, 4096) == []
    plain = Experiment.load("smoke", "device=cpu").make_learner().agent
    assert large_layers(plain, 1) == []


@torchao
def test_float8_acts_as_it_learns_with_weights_and_optimizer_in_float32():
    learner = Experiment.load("town_agent", *MIND, *FLOAT8).make_learner()
    assert len(float8_layers(learner.agent)) == len(LARGE)
    for _ in range(2):  # rows have their own scales: the same in a rollout of 16 and in minibatches of 32
        metrics = learner.improve(learner.collector.collect(), 0.0)
        assert metrics["updates"] > 0
        assert (metrics["min_ratio"], metrics["max_ratio"], metrics["kl"]) == (1, 1, 0)
    before = [layer.weight.detach().clone() for layer in float8_layers(learner.agent)]
    metrics = learner.improve(learner.collector.collect(), 1e-3)
    assert metrics["max_ratio"] > 1
    for old, layer in zip(before, float8_layers(learner.agent), strict=True):
        assert not torch.equal(old, layer.weight)
    tensors = learner.algorithm.tensors()
    assert {value.dtype for value in tensors.values()} <= {torch.float32, torch.float64, torch.int64}


@torchao
def test_a_layer_multiplies_numbers_that_8_bits_hold_where_autocast_is_on():
    """e4m3 has three bits behind the leading one: 1.1 becomes 1.125, if it is scaled by a power of two."""
    learner = Experiment.load("town_agent", *MIND, *FLOAT8).make_learner()
    layer = float8_layers(learner.agent)[0]
    torch.nn.init.eye_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    row = torch.zeros(1, layer.in_features)
    row[0, 0], row[0, 1] = 448.0, 110.0  # the largest number of e4m3, so the scale is 1; 110 = 13.75 * 8
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(row)
    assert found.dtype == torch.bfloat16
    assert found[0, :2].tolist() == [448.0, 112.0]
    assert layer(row)[0, :2].tolist() == [448.0, 110.0]  # where nothing is cast, nothing is rounded


@torchao
def test_what_learns_in_float8_is_saved_and_loaded_as_in_float32():
    learners = [Experiment.load("town_agent", *MIND, *words).make_learner() for words in (FLOAT8, ())]
    learners[0].improve(learners[0].collector.collect(), 1e-3)
    learners[1].load_state_dict(learners[0].state_dict())
    states = [learner.agent.state_dict() for learner in learners]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


@torchao
def test_float8_without_a_layer_for_it_is_refused():
    with pytest.raises(ValueError, match="no linear layer of perception or world model has 4096"):
        Experiment.load("town_agent", *MIND, "algorithm.precision=float8").make_learner()


@torchao
def test_members_of_a_population_cannot_learn_in_float8():
    words = ("population.members=2", "model.perception={enabled: true, embedding_size: 32}", *FLOAT8)
    with pytest.raises(ValueError, match="cannot learn in float8"):
        Experiment.load("smoke", "device=cpu", *words).make_learner()


def test_float8_without_torchao_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setattr(precision, "has_torchao", lambda: False)
    with pytest.raises(ValueError, match=r"pip install 'torchrl-agent\[float8\]'"):
        Experiment.load("town_agent", *MIND, *FLOAT8).make_learner()


@pytest.mark.parametrize(
    ("capability", "installed", "smallest", "expected"),
    [
        ((6, 1), True, 32, "float32"),
        ((7, 5), True, 32, "float16"),
        ((8, 0), True, 32, "bfloat16"),
        ((9, 0), True, 32, "float8"),
        ((8, 9), True, 64, "bfloat16"),
        ((9, 0), False, 32, "bfloat16"),
    ],
)
def test_auto_takes_what_the_device_is_made_for(monkeypatch, mind, capability, installed, smallest, expected):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    monkeypatch.setattr(precision, "has_torchao", lambda: installed)
    assert resolve("auto", smallest, mind, torch.device("cuda")) == expected
    assert resolve("auto", smallest, mind, torch.device("cpu")) == "float32"
    assert resolve("float16", smallest, mind, torch.device("cuda")) == "float16"


def test_auto_scales_no_gradients_where_they_cannot_be_scaled(monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 5))
    assert without_float8("auto", torch.device("cuda")) == "float32"


AUTO = ("algorithm.precision=auto", "algorithm.float8_smallest_layer=32")


def test_auto_is_bfloat16_for_members_on_a_device_with_float8(monkeypatch):
    monkeypatch.setattr(precision, "_has", lambda device, capability: True)
    words = ("population.members=2", "model.perception={enabled: true, embedding_size: 32}", *EAGER, *AUTO)
    learner = Experiment.load("smoke", "device=cpu", *words).make_learner()
    assert learner.algorithm.updater.precision == "bfloat16"
    assert large_layers(learner.algorithm.template.agent, 32)


def test_auto_is_bfloat16_for_a_model_in_parts_on_a_device_with_float8(monkeypatch):
    monkeypatch.setattr(precision, "_has", lambda device, capability: True)
    monkeypatch.setattr("torchrl_agent.experiment.build.shard", lambda module, device: None)
    experiment = Experiment.load("town_agent", *MIND, *AUTO, "run.shard=true")
    env = experiment.make_world()
    monkeypatch.setattr("torchrl_agent.experiment.build.ranks.size", lambda: 2)
    assert make_algorithm(experiment, env, 4, False).updater.precision == "bfloat16"


@pytest.mark.parametrize("asked", ["float8", "float16", "float32"])
def test_what_is_asked_for_is_not_changed_where_float8_cannot_be(asked):
    assert without_float8(asked, torch.device("cuda")) == asked
