"""The world model as an environment: TorchRL's contract, the model's own numbers, gradients, resets."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.envs import check_env_specs
from torchrl.envs.utils import ExplorationType, set_exploration_type
from town_goals import town_manager

from envs import ArenaEnv, TownEnv
from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.imagined_world import WorldModelEnv, controller
from torchrl_agent.models.planned_policy import PlannedPolicy
from torchrl_agent.modules.networks import symexp
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.social_model import SocialModelConfig
from torchrl_agent.modules.world_model import WorldModel, WorldModelConfig

OTHERS = (
    "device=cpu",
    "world.num_envs=4",
    "algorithm.rollout_steps=8",
    "tuned.ppo.minibatch_size=16",
    "model.world_model.predict_others=true",
    "acceleration={step: false, advantages: false, update: false}",
)


def make_model(heads=(4,), **changes):
    torch.manual_seed(0)
    config = WorldModelConfig(enabled=True, hidden_size=16)
    return WorldModel(6, 3, heads, config, "silu", 0.9)


def beliefs(*shape):
    parts = {"mean": torch.randn(*shape, 6), "proprioception": torch.rand(*shape, 3)}
    return TensorDict({keys.BELIEF: TensorDict(parts, shape)}, shape)


def never_ends(model):
    with torch.no_grad():
        model.end[-1].bias.fill_(-20.0)
    return model


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
@pytest.mark.parametrize("heads", [(4,), (4, 3)])
def test_it_is_a_torchrl_environment(shape, heads):
    env = WorldModelEnv(make_model(heads), shape)
    check_env_specs(env, seed=0)
    played = env.rollout(6, break_when_any_done=False)
    assert played.shape == (*shape, 6)
    assert played[keys.BELIEF, "mean"].shape == (*shape, 6, 6)
    assert played[keys.ACTION].shape == ((*shape, 6) if len(heads) == 1 else (*shape, 6, 2))


def test_step_after_step_is_what_the_model_imagines():
    model = never_ends(make_model())
    start, actions = beliefs(5), torch.randint(4, (5, 7))
    following = iter(actions.unbind(-1))
    policy = TensorDictModule(lambda _: next(following), [(keys.BELIEF, "mean")], [keys.ACTION])
    played = WorldModelEnv(model, (5,)).rollout(7, policy, tensordict=start.clone())
    futures = model.imagine(start[keys.BELIEF, "mean"], start[keys.BELIEF, "proprioception"], actions.unsqueeze(1))[
        :, 0
    ]
    torch.testing.assert_close(played[keys.BELIEF][:, 0], start[keys.BELIEF])
    torch.testing.assert_close(played[keys.NEXT, keys.BELIEF, "proprioception"], futures["states"])
    torch.testing.assert_close(played[keys.NEXT, keys.REWARD].squeeze(-1), futures["rewards"])
    torch.testing.assert_close(played[keys.NEXT, keys.END_PROBABILITY].squeeze(-1), futures["dones"])
    assert torch.equal(played[keys.BELIEF, "mean"][:, 1:], played[keys.NEXT, keys.BELIEF, "mean"][:, :-1])


def test_gradients_of_an_imagined_return_reach_the_first_belief_and_every_weight():
    model = never_ends(make_model())
    start = beliefs(5)
    mean = start[keys.BELIEF, "mean"].requires_grad_()
    played = WorldModelEnv(model, (5,)).rollout(4, tensordict=start)
    last = played[keys.NEXT, keys.BELIEF][:, -1]
    alive = (1 - played[keys.NEXT, keys.END_PROBABILITY]).cumprod(1)
    value = symexp(model.symlog_value(last["mean"], last["proprioception"]))
    ((alive * played[keys.NEXT, keys.REWARD]).sum() + value.sum()).backward()
    assert (mean.grad.abs().sum(-1) > 0).all()
    weights = [(name, weight) for name, weight in model.named_parameters() if not name.startswith("proposal")]
    assert not [name for name, weight in weights if weight.grad is None or not weight.grad.any()]


def test_likely_ends_end_and_those_rows_begin_again_where_they_began():
    model = make_model()
    with torch.no_grad():
        model.end[-1].weight.zero_()
        model.end[-1].bias.fill_(1.0)
    env, start = WorldModelEnv(model, (3,)), beliefs(3)
    root = env.reset(start.clone())
    assert not root[keys.DONE].any()
    played, following = env.step_and_maybe_reset(env.rand_action(root))
    assert played[keys.NEXT, keys.END_PROBABILITY].flatten().tolist() == pytest.approx([0.7310586] * 3)
    assert played[keys.NEXT, keys.TERMINATED].all()
    torch.testing.assert_close(following[keys.BELIEF, "mean"], start[keys.BELIEF, "mean"])
    moved = played[keys.NEXT].select(keys.BELIEF).clone()
    moved["_reset"] = torch.tensor([[True], [False], [True]])
    again = env.reset(moved)[keys.BELIEF, "mean"]
    torch.testing.assert_close(again[[0, 2]], start[keys.BELIEF, "mean"][[0, 2]])
    torch.testing.assert_close(again[1], played[keys.NEXT, keys.BELIEF, "mean"][1])
    assert not env.reset()[keys.BELIEF, "mean"].any(), "without beliefs it begins at zeros"


def test_unlikely_ends_do_not_end():
    env = WorldModelEnv(never_ends(make_model()), (3,))
    assert env.rollout(9).shape == (3, 9)


def test_one_environment_takes_beliefs_of_any_shape():
    env = WorldModelEnv(never_ends(make_model()))
    assert env.rollout(3, tensordict=beliefs(2, 5)).shape == (2, 5, 3)
    assert env.rollout(3, tensordict=beliefs(7)).shape == (7, 3)


SIZES = {"memory": "gru", "perception": PerceptionConfig(memory_size=12, belief_size=8, embedding_size=16)}


@pytest.mark.parametrize("whole", [False, True])
def test_an_agents_controller_acts_in_imagination_as_it_does_in_the_world(whole):
    env = TownEnv(3, level="L7", num_agents=4, observation="groups", privileged=True)
    others = {"social_model": SocialModelConfig(enabled=True), "manager": town_manager()} if whole else {}
    agent = Agent(env, ModelConfig([16], world_model=WorldModelConfig(enabled=True), **SIZES, **others))
    never_ends(agent.world_model)
    policy = controller(agent)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        lived = agent.actor(agent.attach(env).reset()["agents"])
        dream = WorldModelEnv(agent.world_model, (3, 4)).rollout(5, policy, tensordict=lived.select(*policy.in_keys))
    assert torch.equal(dream[keys.ACTION][..., 0], lived[keys.ACTION])
    torch.testing.assert_close(dream[keys.LOGITS][..., 0, :], lived[keys.LOGITS])
    assert not torch.allclose(dream[keys.LOGITS][..., 0, :], dream[keys.LOGITS][..., 4, :])
    kept = [keys.ACTION_MASK, *([keys.SOCIAL_EMBEDDING, keys.GOAL_EMBEDDING] if whole else [])]
    for key in kept:
        assert torch.equal(dream[key][..., 4, :], lived[key]), "what is not predicted stays"


def test_without_beliefs_there_is_no_imagination():
    with pytest.raises(ValueError, match="no beliefs"):
        controller(Agent(ArenaEnv(2), ModelConfig([16])))


def test_a_model_that_dreams_of_others_carries_what_it_predicts_of_them_through_the_dream():
    torch.manual_seed(0)
    config = WorldModelConfig(enabled=True, hidden_size=16, predict_others=True)
    model = never_ends(WorldModel(6, 3, (4,), config, "silu", 0.9, forecast_size=5))
    check_env_specs(WorldModelEnv(model, (2,)), seed=0)
    start, action = beliefs(2).set(keys.FORECAST, torch.rand(2, 5)), torch.tensor([1, 3])
    env = WorldModelEnv(model, (2,))
    following = env.step(env.reset(start.clone()).set(keys.ACTION, action))[keys.NEXT]
    belief = torch.cat((start[keys.BELIEF, "mean"], start[keys.FORECAST]), -1)
    known = start[keys.BELIEF, "proprioception"]
    outcome = model(belief, known, model.first_head(action))
    torch.testing.assert_close(following[keys.FORECAST], outcome["belief"][:, 6:])
    torch.testing.assert_close(following[keys.BELIEF, "mean"], outcome["belief"][:, :6])
    other = model(torch.cat((belief[:, :6], belief[:, 6:] + 1), -1), known, model.first_head(action))
    assert (other["reward"] != outcome["reward"]).all()  # what others will do changes what an action brings


def test_a_dream_of_others_that_begins_without_them_is_refused():
    config = WorldModelConfig(enabled=True, hidden_size=16, predict_others=True)
    env = WorldModelEnv(WorldModel(6, 3, (4,), config, "silu", 0.9, forecast_size=5), (2,))
    with pytest.raises(ValueError, match="begins with 'forecast' too"):
        env.reset(beliefs(2))


def test_the_forecast_is_the_sum_over_those_in_sight():
    learner = Experiment.load("town_agent", *OTHERS).make_learner()
    encoder, model = learner.algorithm.agent.encoder, learner.algorithm.agent.social_model
    thought = encoder(learner.collector.collect()[-1]["agents"].select(*encoder.in_keys))
    social, visible = thought[keys.SOCIAL], thought[keys.BELIEF, "visible"].unsqueeze(-1)
    parts = (social["goal"].softmax(-1), social["next_action"].softmax(-1), social["meters"])
    expected = torch.cat([*parts, torch.ones_like(visible.float())], -1).mul(visible).sum(-2)
    torch.testing.assert_close(thought[keys.FORECAST], expected)
    assert thought[keys.FORECAST].shape[-1] == model.forecast_size
    assert visible.any()


def test_an_agent_that_dreams_of_others_learns_and_plans():
    learner = Experiment.load("town_agent", *OTHERS).make_learner()
    metrics = learner.improve(learner.collector.collect(), 1e-3)
    assert metrics["loss_world_state"].isfinite()
    planned = PlannedPolicy(learner.algorithm.agent)
    assert planned(learner.collector.collect()[-1]["agents"].exclude(keys.NEXT))[keys.PLAN, "actions"].shape[-1] == 5


def test_imagination_of_others_needs_the_social_model():
    with pytest.raises(ValueError, match=r"model.social_model.enabled=true"):
        Experiment.load("town_agent", *OTHERS, "model.social_model.enabled=false").make_learner()
