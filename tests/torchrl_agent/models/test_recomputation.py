"""Networks that compute again what they do not keep: the same gradients, less kept."""

import copy

import pytest
import torch
from torch import nn

from torchrl_agent import Experiment
from torchrl_agent.modules.recomputation import Recomputed, recompute
from torchrl_agent.training.collector import agent_rows

EAGER = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]
MIND = (
    "device=cpu",
    "threads=1",
    "world.num_envs=2",
    "algorithm={rollout_steps: 8, minibatch_size: 64}",
    "model.perception={embedding_size: 16, memory_size: 16, belief_size: 8, channels: 2}",
    "model.world_model.hidden_size=256",
    *EAGER,
)
PARTS = ("perception", "world_model", "social_model", "manager", "actor", "critic")


def gradients_and_kept(*words):
    """Gradients of one loss by parameter, and the bytes kept for its backward pass, besides what networks that are
    computed again keep: their inputs.
    """
    learner = Experiment.load("town_agent", *MIND, *words).make_learner()
    algorithm = learner.algorithm
    rollout = agent_rows(learner.collector.collect(), learner.agent.group)
    data, _ = algorithm.advantages(rollout)
    kept = {}

    def pack(value):
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    algorithm.updater._apply_gradients = lambda skip: None  # the gradients stay to be looked at
    torch.manual_seed(3)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
        algorithm.updater.update(data)
    return {name: value.grad for name, value in learner.agent.named_parameters()}, sum(kept.values()), learner.agent


@pytest.fixture(scope="module")
def usual():
    return gradients_and_kept()


@pytest.mark.parametrize("names", [["world_model"], list(PARTS)], ids=["one", "all"])
def test_gradients_are_the_same_and_less_is_kept(usual, names):
    gradients, kept, agent = gradients_and_kept(f"model.recompute=[{','.join(names)}]")
    assert gradients.keys() == usual[0].keys()  # so checkpoints are the same files
    for name, value in gradients.items():
        assert (value is None) == (usual[0][name] is None), name
        if value is not None:  # those of a network that is used several times are added up in another order
            torch.testing.assert_close(value, usual[0][name], rtol=1e-4, atol=1e-6 * value.abs().max().item(), msg=name)
    assert kept < 0.9 * usual[1]
    assert any(isinstance(module, Recomputed) for module in agent.modules())


class Doubled(nn.Sequential):
    """A network with a way of its own to run its layers, which counts how often it runs."""

    def __init__(self):
        super().__init__(nn.Linear(2, 2), nn.Tanh())
        self.calls = 0

    def forward(self, left, *, right):
        self.calls += 1
        return 2 * super().forward(left) + right


def test_a_network_with_a_forward_of_its_own_keeps_it():
    usual = nn.ModuleList([Doubled()])
    module = copy.deepcopy(usual)
    network = module[0]
    recompute({"mine": [module], "other": [nn.ModuleList([network])]}, ["mine", "other"])
    assert module[0] is network
    assert isinstance(network, Recomputed)
    assert isinstance(network, Doubled)
    assert module.state_dict().keys() == usual.state_dict().keys()
    left, right = torch.randn(3, 2), torch.ones(3, 2)
    for each in (usual[0], network, copy.deepcopy(network)):
        found = each(left, right=right)
        assert torch.equal(found, 2 * torch.tanh(nn.functional.linear(left, each[0].weight, each[0].bias)) + 1)
        found.sum().backward()
    assert torch.equal(network[0].weight.grad, usual[0][0].weight.grad)
    assert network.calls == 2  # it is part of two, and is computed again once
    with torch.no_grad():
        network(left, right=right)
    assert network.calls == 3


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.RReLU(), nn.BatchNorm1d(2)])
def test_layers_that_find_something_else_when_run_again_are_refused(layer):
    network = nn.Sequential(nn.Linear(2, 2), nn.Sequential(layer))
    with pytest.raises(ValueError, match=rf"names 'mine', but its {type(layer).__name__} .*: leave it out"):
        recompute({"mine": [nn.ModuleList([network])]}, ["mine"])


def test_a_part_that_the_agent_has_not_is_refused():
    with pytest.raises(
        ValueError, match=r"model\.recompute names 'memory', which this agent has not: use actor, critic"
    ):
        Experiment.load("smoke", "device=cpu", "model.recompute=[memory]").make_learner()


@pytest.mark.parametrize("words", [["algorithm=dqn"], ["population.members=2"]])
def test_what_runs_networks_with_other_weights_refuses(words):
    with pytest.raises(ValueError, match=r"leave model\.recompute empty"):
        Experiment.load("smoke", "device=cpu", "model.recompute=[critic]", *words).make_learner()


@pytest.mark.slow
def test_it_compiles_as_one_graph_and_learns_the_same():
    weights = []
    for words in ([], ["model.recompute=[actor,critic]"]):
        learner = Experiment.load("smoke", "device=cpu", "threads=1", "acceleration.update=true", *words).make_learner()
        for _ in range(2):
            learner.improve(learner.collector.collect(), 1e-3)
        assert learner.algorithm.mode == "compiled"
        weights.append(torch.cat([value.detach().flatten() for value in learner.agent.parameters()]))
    torch.testing.assert_close(*weights)
