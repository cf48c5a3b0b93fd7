"""Encoders and modules of the user's own: they get what they were promised, learn, and are refused in one sentence."""

from __future__ import annotations

import pytest
import torch
from kinds import uncompiled
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import nn
from torchrl.modules import set_recurrent_mode

from envs import ArenaEnv
from torchrl_agent import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.evaluation.ablation import without
from torchrl_agent.experiment import Experiment
from torchrl_agent.export import trace
from torchrl_agent.export.parts import flat_name, parts
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.pretrained import read_module, save_module
from torchrl_agent.modules.networks import NEARLY_SHUT
from torchrl_agent.modules.perception import Perception, PerceptionConfig
from torchrl_agent.modules.specs import observation_shapes
from torchrl_agent.pretrain import PretrainConfig, pretrain
from torchrl_agent.training.collector import agent_rows

GROUPS = ("player_state", "combat_targets", "mission_progress", "spatial_awareness", "enemy_count")
SMALL = [
    "world.num_envs=4",
    "algorithm.rollout_steps=8",
    "algorithm.minibatch_size=16",
    "model.memory=gru",
    "threads=1",
]


class Layer(nn.Linear):
    """An encoder of vectors."""

    def __init__(self, shape, out, bias=True):
        super().__init__(*shape, out, bias)


class Layers(nn.Sequential):
    """An encoder of vectors with a hidden layer."""

    def __init__(self, shape, out):
        super().__init__(nn.Linear(*shape, 4), nn.SiLU(), nn.Linear(4, out))


class Recorder(nn.Module):
    """An encoder that keeps what it was shown last."""

    def __init__(self, shape, out):
        super().__init__()
        self.out, self.shown = out, None

    def forward(self, observation):
        self.shown = observation
        return observation.flatten(1)[:, : self.out]


class Forecast(TensorDictModuleBase):
    """Foresees the reward."""

    def __init__(self, env, sizes, width=1):
        super().__init__()
        self.sizes, self.size = sizes, width
        self.in_keys, self.out_keys = [(keys.BELIEF, "mean")], ["forecast"]
        self.network = nn.Linear(sizes[keys.BELIEF, "mean"], width)
        self.loss = ForecastLoss()

    def forward(self, tensordict):
        return tensordict.set("forecast", self.network(tensordict.get((keys.BELIEF, "mean"))))


class ForecastLoss(nn.Module):
    def forward(self, tensordict):
        error = (tensordict.get("forecast") - tensordict.get(keys.REWARD)).square().mean(-1)
        valid = tensordict.get(keys.VALID, torch.ones_like(error, dtype=torch.bool))
        return TensorDict({"loss_forecast": masked_mean(error, valid)})


class Reader(TensorDictModuleBase):
    """Reads what the module before it wrote, and one of the world's observations; has no loss of its own."""

    def __init__(self, env, sizes):
        super().__init__()
        self.sizes, self.size = sizes, 2
        self.in_keys, self.out_keys = ["forecast", "observation"], ["read"]

    def forward(self, tensordict):
        return tensordict.set(
            "read", torch.cat((tensordict.get("forecast"), tensordict.get("observation")[..., :1]), -1)
        )


class Sizeless(nn.Module):
    def __init__(self, env, sizes):
        super().__init__()


def target(kind, **arguments):
    return {"_target_": f"{__name__}.{kind.__name__}", **arguments}


def perceive(encoders, observation="dict"):
    torch.manual_seed(0)
    env = ArenaEnv(3, observation=observation)
    return env, Perception(
        env, observation_shapes(env), PerceptionConfig(embedding_size=16, encoders=encoders), "none", "tanh"
    )


# --- encoders ---------------------------------------------------------------------------------------------------------


def test_each_group_may_have_an_encoder_of_its_own():
    _, apart = perceive(dict.fromkeys(GROUPS, "mlp"))
    sizes = [7, 17, 3, 4, 1]
    assert apart.vector_encoder is None
    assert [encoder[0].in_features for encoder in apart.encoders.values()] == sizes
    assert apart.fuse[0].in_features == 5 * 16
    observation = torch.randn(3, 32)
    encoded = [
        encoder(part) for encoder, part in zip(apart.encoders.values(), observation.split(sizes, -1), strict=True)
    ]
    silu = torch.nn.functional.silu
    torch.testing.assert_close(apart.embed(observation), silu(apart.fuse(silu(torch.cat(encoded, -1)))))


def test_vectors_that_are_not_named_share_an_encoder():
    _, mixed = perceive({"combat_targets": "mlp"})
    assert list(mixed.encoders) == ["1"]
    assert mixed.vector_encoder[0].in_features == 32 - 17
    assert mixed.fuse[0].in_features == 2 * 16
    changed = torch.zeros(2, 32)
    changed[1, 7 + 16] = 1.0  # the last number of the second group
    first, second = mixed.embed(changed)
    assert not torch.equal(first, second)
    assert torch.equal(*mixed.vector_encoder(torch.cat((changed[:, :7], changed[:, 24:]), -1)))


def test_an_encoder_of_ones_own_gets_the_observation_in_its_shape():
    env, perception = perceive({"observation": target(Recorder)}, "heatmap")
    shown = env.rand_step(env.reset())["next", "observation"]
    perception.embed(shown.flatten(1).expand(5, 3, -1))
    assert torch.equal(perception.encoders["0"].network.shown, shown.repeat(5, 1, 1, 1))


def test_encoders_of_ones_own_learn_with_the_rest():
    encoders = {"observation": target(Layer, bias=False)}
    learner = Experiment.load("smoke", *SMALL, f"+model.perception.encoders={written(encoders)}").make_learner()
    before = learner.agent.perception.encoders["0"].network.weight.detach().clone()
    learner.improve(learner.collector.collect(), 1e-2)
    assert not torch.equal(learner.agent.perception.encoders["0"].network.weight, before)


def test_layer_norm_is_not_put_into_encoders_of_ones_own():
    perception = PerceptionConfig(enabled=True, embedding_size=16, encoders={"combat_targets": target(Layers)})
    config = ModelConfig([8], layer_norm=True, perception=perception)
    agent = Agent(ArenaEnv(3, observation="dict"), config)
    assert [type(part) for part in agent.perception.encoders["1"].network] == [nn.Linear, nn.SiLU, nn.Linear]
    assert type(agent.actor_head[0].module[1]) is nn.LayerNorm


# --- modules between belief and controller ----------------------------------------------------------------------------


def written(value):
    """As the command line takes it."""
    inner = (f"{key}: {written(part) if isinstance(part, dict) else part}" for key, part in value.items())
    return "{" + ", ".join(inner) + "}"


OWN = "+model.custom_modules=" + written({"forecast": target(Forecast), "reader": target(Reader)})


def make(*overrides):
    return Experiment.load("smoke", *SMALL, OWN, *overrides).make_learner()


@pytest.fixture
def learner():
    return make()


def test_modules_read_what_came_before_and_the_controller_reads_them(learner):
    modules = learner.agent.custom_modules
    belief = (keys.BELIEF, "mean")
    assert modules["forecast"].sizes == {belief: 64}
    assert modules["reader"].sizes == {belief: 64, "forecast": 1}
    seen = learner.agent.encoder(learner.env.reset())
    expected = [seen[belief], NEARLY_SHUT * seen["forecast"], NEARLY_SHUT * seen["read"]]
    torch.testing.assert_close(seen[keys.FEATURES], torch.cat(expected, -1))


def test_a_modules_loss_joins_the_algorithms(learner):
    data, _ = learner.algorithm.advantages(agent_rows(learner.collector.collect(), None))
    with set_recurrent_mode(True):
        total, losses = learner.algorithm.updater.terms(data)
        seen = learner.agent.encoder(data.copy())
    error = (seen["forecast"] - data[keys.REWARD]).square().mean()
    torch.testing.assert_close(losses["loss_forecast"], error.detach())
    total.backward()
    module = learner.agent.custom_modules["forecast"]
    assert all(parameter.grad.any() for parameter in module.parameters())
    parts = learner.agent.parts()
    assert [id(parameter) for parameter in parts[0]] == [id(parameter) for parameter in module.parameters()]
    assert sum(len(part) for part in parts) == len(list(learner.agent.parameters()))


@pytest.mark.slow
def test_an_agent_with_modules_of_ones_own_is_one_graph():
    torch._dynamo.reset()
    learner = make(*(f"acceleration.{part}=true" for part in ("step", "advantages", "update")))
    learner.improve(learner.collector.collect(), 1e-3)
    assert not uncompiled(learner)


# --- what does not fit ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoders", "sentence"),
    [
        ({"radar": "mlp"}, "names 'radar', which the world does not show: use some of player_state"),
        ({"player_state": "cnn"}, r"player_state is 'cnn' for an observation of shape \(7,\): use mlp"),
        ({"player_state": "transformer"}, "player_state is 'transformer'"),
        ({"player_state": {"size": 3}}, "player_state is {'size': 3}: give it a _target_"),
        ({"player_state": {"_target_": "nowhere.Eyes"}}, "player_state cannot be made: .*nowhere"),
        ({"player_state": target(Layer, depth=3)}, "player_state cannot be made: .*depth"),
        ({"player_state": {"_target_": "torch.nn.Bilinear", "in2_features": 1, "out_features": 1}}, "player_state can"),
        ({"player_state": {"_target_": "torch.nn.Flatten"}}, "player_state can"),
        ({"player_state": target(Recorder)}, r"player_state gives \[2, 7\] for 2 rows.*\[2, 16\]"),
    ],
)
def test_an_encoder_that_does_not_fit_is_one_sentence(encoders, sentence):
    with pytest.raises(ValueError, match=rf"model\.perception\.encoders.*{sentence}") as raised:
        perceive(encoders)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (ModelConfig(custom_modules={"x": target(Forecast)}), "custom_modules.x works on beliefs"),
        (ModelConfig(memory="gru", custom_modules={"x": target(Sizeless)}), "is a Sizeless: it must be a TensorDict"),
        (ModelConfig(memory="gru", custom_modules={"x": target(Forecast, hidden=3)}), "x cannot be made: .*hidden"),
        (ModelConfig(memory="gru", custom_modules={"a.b": target(Forecast)}), "a.b cannot be called so"),
        (ModelConfig(memory="gru", custom_modules={"items": target(Forecast)}), "items cannot be called so"),
        (ModelConfig(memory="gru", custom_modules={"x": "forecast"}), "x is 'forecast': give it a _target_"),
    ],
)
def test_a_module_that_does_not_fit_is_one_sentence(model, sentence):
    with pytest.raises(ValueError, match=rf"model\.custom_modules.*{sentence}|model\.{sentence}") as raised:
        Agent(ArenaEnv(2), model)
    assert "\n" not in str(raised.value)


# --- frozen, saved, loaded and exported as the built-in ones ----------------------------------------------------------


def test_a_module_of_ones_own_is_saved_loaded_and_frozen_by_its_name(tmp_path):
    one, file = make("seed=3"), tmp_path / "module.pt"
    save_module(file, one.agent, "forecast", one.algorithm.scaler)
    assert set(read_module(file).parts) == {"perception", "forecast"}, "with what it was trained with"
    loaded = [f"pretrained.custom_modules.forecast={file}", "frozen=[forecast]"]
    other = make(*(f"+{each}" if "custom" in each else each for each in loaded))
    before = {name: value.clone() for name, value in one.agent.custom_modules["forecast"].state_dict().items()}
    other.improve(other.collector.collect(), 1e-2)
    after = other.agent.custom_modules["forecast"].state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert not any(each.requires_grad for each in other.agent.custom_modules["forecast"].parameters())
    with pytest.raises(ValueError, match=r"there is no module 'forcast' .did you mean forecast"):
        make("frozen=[forcast]")


def test_a_module_of_ones_own_is_pretrained_frozen_exported_and_ablated(tmp_path):
    small = ["smoke", *SMALL[1:], "world.num_envs=6", OWN]
    short = PretrainConfig(frames=96, updates=12, learning_rate=1e-2)
    report = pretrain("forecast", Experiment.load(*small), short, tmp_path / "forecast")
    before, after = (report[f"validation_{when}"]["loss_forecast"] for when in ("before", "after"))
    assert after < before and set(report["figures"]) == {"loss_forecast"}

    begun = [f"+pretrained.custom_modules.forecast={tmp_path / 'forecast'}", "frozen=[forecast]", "total_frames=48"]
    trained = Experiment.load(*small, *begun).make_learner()
    trained.improve(trained.collector.collect(), 1e-2)
    kept = read_module(tmp_path / "forecast").parts["forecast"]
    agent = trained.agent
    assert all(torch.equal(agent.custom_modules["forecast"].state_dict()[name], kept[name]) for name in kept)

    root, part = trained.env.reset(), parts(agent)["forecast"]
    rows = {flat_name(key): root[key] for key in part.module.in_keys}
    exported = trace(part, rows).module()(rows)["forecast"]
    torch.testing.assert_close(exported, agent.encoder(root.clone())["forecast"])
    with without(agent, ["forecast"]):
        assert not agent.encoder(root.clone())["forecast"].any()
    assert agent.encoder(root.clone())["forecast"].all()


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("reader", "reader has 0 losses: pre-training needs a module with one 'loss'"),
        ("readr", r"there is no module 'readr' .did you mean reader.*use one of perception, .*, forecast, reader"),
    ],
)
def test_a_module_that_cannot_learn_alone_is_not_pretrained(module, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        pretrain(module, Experiment.load("smoke", *SMALL, OWN), PretrainConfig(frames=32), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_module_of_ones_own_and_the_manager_are_exported_alone(learner):
    found = parts(learner.agent)
    assert list(found) == ["perception", "forecast", "reader", "policy"]
    root = learner.env.reset()
    seen = found["reader"].module(root.clone())
    assert found["reader"].out_keys[0] == "read" and seen["read"].shape == (4, 2)
    torch.testing.assert_close(seen["read"], learner.agent.encoder(root.clone())["read"])
    town = Experiment.load("town_agent", "world.num_envs=2", "threads=1").make_learner().agent
    assert "manager" in parts(town) and parts(town)["manager"].out_keys[0] == keys.GOAL_EMBEDDING
