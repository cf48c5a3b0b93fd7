"""Hosts that are modules with named slots: a module of one's own, a small CNN and a transformer."""

import pickle

import pytest
import torch
from growing import SMALL, act, small, wait
from torch import nn
from torch.func import functional_call, grad
from typing_extensions import override

from envs import GrowthEnv
from envs.growth.dynamics import mix
from envs.growth.network import forward, host_forward, loss, twin_loss
from envs.growth.rules import Operation
from envs.growth.state import world_first

RULES = {**SMALL, "batch_size": 8, "blueprints": ["point4", "lowrank4", "attention8"]}


class Pictures(nn.Module):
    """A convolutional network for pictures [1, 4, 4]; its slots have 3 and 5 features."""

    def __init__(self, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.ReLU())
        self.dropout, self.head = nn.Dropout(0.9), nn.Linear(5, classes)

    def forward(self, pictures):
        return self.head(self.dropout(self.body(pictures)))


SLOTS = {"body.0": 1, "body.3": -1}


def pictures(rows=64, classes=3):
    """Pictures whose class is where they are bright."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    found = torch.randn(rows, 1, 4, 4, generator=generator) * 0.3
    found[torch.arange(rows), 0, labels] += 1
    return found, labels


def own(num_envs=2, host=None, slots=SLOTS, task=None, **rules):
    """A world of small networks for pictures."""
    torch.manual_seed(0)
    host = Pictures() if host is None else host
    return GrowthEnv(num_envs, host=host, slots=slots, task=task or pictures(), rules={**RULES, **rules})


def rows_of(env, count=6):
    index = torch.arange(env.num_envs * count).view(env.num_envs, count)
    return env.data.inputs[index], env.data.labels[index, 0]


def test_without_modules_the_logits_are_the_modules_with_each_worlds_own_parameters():
    env = own(3)
    inputs, _ = rows_of(env)
    weights = world_first(env.state.weights)
    together = host_forward(weights.host, inputs, env.rules)
    module = Pictures().eval()
    for world in range(3):
        named, values = {}, weights.host.parameters[world]
        for name, parameter in module.named_parameters():
            named[name], values = values[: parameter.numel()].view_as(parameter), values[parameter.numel() :]
        torch.testing.assert_close(together[world, 0], functional_call(module, named, (inputs[world],)))
    assert not torch.equal(weights.host.parameters[0], weights.host.parameters[1])


class Moved(Pictures):
    """The same network, which also shows the features of its convolution as the last axis."""

    def __init__(self):
        super().__init__()
        self.last = nn.Identity()

    @override
    def forward(self, pictures):
        seen = self.last(self.body[0](pictures).movedim(1, -1)).movedim(-1, 1)
        return self.head(self.body[1:](seen))


@pytest.mark.parametrize("blueprint", range(3))
def test_a_module_reads_the_axis_of_features_wherever_it_is(blueprint):
    found = []
    for host, slots in ((Pictures(), {"body.0": 1}), (Moved(), {"last": -1})):
        env = own(2, host, slots)
        act(env, Operation.GERMINATE, blueprint=blueprint)
        weights = world_first(env.state.weights)._replace(host=world_first(own(2).state.weights.host))
        modules = weights.modules._replace(up=torch.ones_like(weights.modules.up))
        mixed = mix(env.state.slots, torch.ones(2, 1, 1), None, env.tables)
        found.append(forward(weights._replace(modules=modules), rows_of(env)[0], mixed, env.rules))
    torch.testing.assert_close(found[0], found[1])
    assert found[0].std() > 0


def test_worlds_draw_parameters_with_the_mean_and_the_deviation_of_the_module_and_keep_constants():
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 32), nn.LayerNorm(32), nn.Linear(32, 3))
    nn.init.normal_(module[1].weight, 0.5, 0.1)
    drawn = own(64, module, ("1",)).state.weights.host.parameters
    first, norm = drawn[:512], drawn[512 + 32 : 512 + 64]
    assert float(first.mean()) == pytest.approx(0.5, abs=0.01) and float(first.std()) == pytest.approx(0.1, abs=0.01)
    assert torch.equal(norm, torch.ones_like(norm))


@pytest.mark.parametrize("blueprint", range(3))
def test_a_module_in_training_leaves_host_and_output_alone_and_blended_in_it_changes_both(blueprint):
    env = own(2)
    act(env, Operation.GERMINATE, blueprint=blueprint, slot=1)
    weights, rows = world_first(env.state.weights), rows_of(env)
    up = torch.randn(weights.modules.up.shape, generator=torch.Generator().manual_seed(1))
    weights = weights._replace(modules=weights.modules._replace(up=up))
    alone = grad(twin_loss)(weights.host, *rows, env.rules).parameters
    alpha = torch.tensor([0.0, 1.0]).expand(2, 1, 2)

    def mixed(value, training):
        isolated = torch.tensor([0.0, training]).expand(2, 2)
        return mix(env.state.slots, alpha.transpose(1, 2) * value, isolated, env.tables)

    isolated = grad(loss)(weights, *rows, mixed(0.0, 1.0), env.rules)
    torch.testing.assert_close(isolated.host.parameters, alone)
    assert isolated.modules.up[:, 1].any() and not isolated.modules.up[:, 0].any()
    host = host_forward(weights.host, rows[0], env.rules)
    assert torch.equal(forward(weights, rows[0], mixed(0.0, 1.0), env.rules), host)
    blended = forward(weights, rows[0], mixed(1.0, 0.0), env.rules)
    assert (blended - host).abs().max() > 0.01


def test_hosts_learn_grow_and_are_evaluated_in_every_configuration():
    env = own(3, updates=4, learning_rate=0.01)
    before = env.state.measures.loss.clone()
    act(env, Operation.GERMINATE, blueprint=0)
    torch.testing.assert_close(env.state.weights.host, env.state.twin.host, atol=1e-4, rtol=1e-3)
    wait(env, 12)
    act(env, Operation.KEEP, blueprint=0)
    state = env.state
    assert (state.measures.loss < before).all() and state.measures.twin.max() > 0.8
    assert (state.weights.host.parameters - state.twin.host.parameters).abs().max() > 0.01
    assert env.episode.total_reward.any() and state.tally.kept.any()


def test_rent_counts_what_a_module_has_at_the_width_of_its_slot():
    """point4 has (4 + 4) width + 4 parameters, low-rank 8 width, attention with 8 components 32 width."""
    env = own()
    assert env.rules.widths == (3, 5) and env.rules.width == 5
    assert env.tables.parameters.tolist() == [[28, 24, 96], [44, 40, 160]]
    assert env.action_spec.nvec[0].tolist() == list(env.rules.head_sizes) == [2, 3, 4, 3, 3, 4, 5, 6]
    assert sum("holds attention8" in name for name in env.names()["observation"]["observation"]) == 2


def test_a_world_with_a_host_of_ones_own_is_pickled_and_goes_on():
    env = own()
    act(env, Operation.GERMINATE, blueprint=2)
    again = pickle.loads(pickle.dumps(env))
    for each in (env, again):
        wait(each, 3)
    assert torch.equal(env.state.weights.host.parameters, again.state.weights.host.parameters)


@pytest.mark.slow
def test_a_cnn_learns_what_no_position_shows_alone():
    """The order of a pair of neighbors."""
    found = {}
    for name in ("cnn", "pointwise"):
        env = small(4, level=1, host=name, width=16, updates=8, batch_size=32, learning_rate=0.01)
        wait(env, 39)
        found[name] = float(env.state.measures.accuracy.mean())
    assert found["cnn"] > found["pointwise"] + 0.1
    assert "optimum" not in GrowthEnv(1, rules={**RULES, "host": "cnn"}).players()


def test_scripted_players_grow_the_last_blueprint():
    env = own(2, max_steps=20)
    env.rollout(6, env.players()["one"], break_when_any_done=False)
    assert env.state.slots.blueprint[0].tolist() == [2, 2] and (env.state.slots.stage[0] > 0).all()


class Twice(Pictures):
    @override
    def forward(self, pictures):
        return super().forward(pictures) + self.head(self.body(pictures))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.head = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, pictures):
        return self.head(self.both(pictures.squeeze(1))[0].mean(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slots": ("bdoy",)}, r"slot 'bdoy' has no place in the host \(did you mean body\?\): name one of its submod"),
        ({"slots": ("",)}, "slot '' has no place in the host"),
        ({"host": Twice(), "slots": ("body",)}, "slot 'body' is passed 2 times in a forward pass"),
        ({"slots": {"body.0": 4}}, r"slot 'body.0' with the features' axis 4 does not fit its output, \[2, 3, 4, 4\]"),
        ({"slots": {"body.0": 0}}, "an axis of it other than the first"),
        ({"host": Pair(), "slots": ("both",)}, "slot 'both' .* does not fit its output, no tensor for 2 rows"),
        ({"host": Pictures(classes=4)}, r"the host returns \[2, 4\] for 2 rows: return logits \[rows, 3\]"),
        (
            {"host": nn.Linear(5, 3), "slots": ()},
            r"the host does not take a batch \[2, 1, 4, 4\] of the task \(.*shape",
        ),
        ({"host": nn.Flatten(), "slots": ()}, "the host has 0 parameters: give one of 1 to 3,145,728"),
        ({"task": (pictures()[0], torch.zeros(64, dtype=torch.long))}, "the task has one class: nothing can be"),
        ({"task": (pictures()[0], torch.zeros(5, dtype=torch.long))}, "task has 64 rows and 5 classes: give one"),
        ({"task": (pictures()[0], pictures()[1] - 1)}, "classes are not all whole numbers from 0 on: number them so"),
        ({"host": "cnn"}, "host is 'cnn': give a PyTorch module, or name one of ours as rules.host"),
        ({"slots": "body"}, r"slots is 'body': give a list of names, such as \[body\]"),
        (
            {"blueprints": ["attention9"]},
            r"a blueprint is 'attention9' \(did you mean attention8\?\): use one of scale4",
        ),
        ({"blueprints": []}, r"rules.blueprints is empty: name at least one, such as \[taps8\]"),
        ({"blueprints": "taps8"}, r"rules.blueprints is 'taps8': give a list of names, such as \[point4, taps8\]"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        own(**arguments)


def test_slots_without_a_host_and_rows_that_a_host_of_ours_does_not_read_are_refused():
    with pytest.raises(ValueError, match="slots name places in a host of your own: give host, too"):
        GrowthEnv(1, slots=("body",))
    for host in ("pointwise", "cnn"):
        message = rf"rules.host is '{host}', which reads rows \[positions, features\], not \[1, 4, 4\]"
        with pytest.raises(ValueError, match=message):
            GrowthEnv(1, task=pictures(), rules={"host": host})
    assert GrowthEnv(1, task=pictures(), rules={**SMALL, "host": "mlp"}).rollout(2)["next", "reward"].isfinite().all()
