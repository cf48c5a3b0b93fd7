"""PPO's objective head by head: its arithmetic by hand, and beside the joint ratio and TorchRL's loss."""

import math

import pytest
import torch
from by_hand import EAGER, played, with_gradients
from growing import small
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule
from torch import nn
from torchrl.envs import GymEnv
from torchrl.objectives import ClipPPOLoss

from torchrl_agent import keys
from torchrl_agent.algorithms.impala import IMPALA, IMPALAConfig
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.losses.per_head import PerHeadPPOLoss
from torchrl_agent.losses.policy_gradient import PPOLoss
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.heads import action_choice
from torchrl_agent.modules.distributions import ConditionedMultiCategorical
from torchrl_agent.training.collector import RolloutCollector

BEFORE = torch.tensor([0.5, 0.5, 0.25, 0.75]).log()
"""The behavior policy: probabilities of the first head, then of the last."""
LEAVES = torch.tensor([[True, False], [True, True]])
"""With its first value the last head leaves one value to the first, with its second both."""


class Constant(nn.Module):
    """The same logits for any observation."""

    def __init__(self, probabilities):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())

    def forward(self, observation):
        return self.logits.expand(*observation.shape[:-1], -1)


def make_loss(kind, probabilities=(0.25, 0.75, 0.5, 0.5), **settings):
    """A loss of a policy with these probabilities of both heads, and of a critic that says 0."""
    network = TensorDictModule(Constant(probabilities), ["observation"], [keys.LOGITS])
    read = {"logits": keys.LOGITS, "mask": keys.ACTION_MASK, "head_mask": keys.HEAD_MASK}
    choice = action_choice(read, ConditionedMultiCategorical, {"sizes": [2, 2]})
    critic = TensorDictModule(lambda seen: torch.zeros_like(seen), ["observation"], [keys.VALUE])
    return kind(ProbabilisticTensorDictSequential(network, choice), critic, entropy_coeff=0.1, **settings)


def minibatch(actions, advantages, valid=None):
    """Frames [B] that the behavior policy played."""
    count = len(actions)
    data = TensorDict(
        {
            "observation": torch.zeros(count, 1),
            keys.ACTION_MASK: torch.ones(count, 4, dtype=torch.bool),
            keys.HEAD_MASK: LEAVES.expand(count, 2, 2),
            keys.LOGITS: BEFORE.expand(count, 4),
            keys.ACTION: torch.tensor(actions),
            keys.ADVANTAGE: torch.tensor(advantages).unsqueeze(-1),
            keys.VALUE_TARGET: torch.zeros(count, 1),
            keys.VALUE: torch.zeros(count, 1),
        },
        [count],
    )
    behavior = ConditionedMultiCategorical(
        data[keys.LOGITS], data[keys.ACTION_MASK], data[keys.HEAD_MASK], sizes=[2, 2]
    )
    data[keys.LOG_PROB] = behavior.log_prob(data[keys.ACTION])
    return data if valid is None else data.set(keys.VALID, torch.tensor(valid))


def test_each_head_has_a_ratio_and_a_clip_of_its_own_by_hand():
    loss = make_loss(PerHeadPPOLoss, names=("place", "what to do"), normalize_entropy=True)
    found = loss(minibatch([[1, 1], [0, 0]], [2.0, -1.0]))
    # frame 1, A = 2: ratios 0.75 / 0.5 = 1.5, clipped to 1.2, and 0.5 / 0.75 = 2 / 3: 2.4 + 4 / 3
    # frame 2, A = -1: the first head has no choice; ratio 0.5 / 0.25 = 2, and -2 is less than -1.2
    assert found["loss_objective"].item() == pytest.approx(-(2.4 + 4 / 3 - 2) / 2, rel=1e-5)
    first = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) / math.log(2)
    assert found["entropy"].item() == pytest.approx((first + 1 + 1) / 2, rel=1e-5)
    assert found["loss_entropy"].item() == pytest.approx(-0.1 * (first + 2) / 2, rel=1e-5)
    assert found["entropy/place"].item() == pytest.approx(first, rel=1e-5), "of the frames in which it has a choice"
    assert found["entropy/what_to_do"].item() == pytest.approx(1.0, rel=1e-5)
    assert found["clip_fraction"].item() == 1.0 and found["relevant/place"].item() == 0.5
    assert found["max_ratio/place"].item() == pytest.approx(1.5, rel=1e-5)
    assert found["max_ratio/what_to_do"].item() == pytest.approx(2.0, rel=1e-5)
    # of the whole action the ratio is 1.5 * 2 / 3 = 1, and 2
    assert found["kl"].item() == pytest.approx((2 - 1 - math.log(2)) / 2, rel=1e-4)


def test_frames_that_do_not_count_change_nothing():
    loss = make_loss(PerHeadPPOLoss, normalize_entropy=True)
    alone = loss(minibatch([[1, 1]], [2.0]))
    beside = loss(minibatch([[1, 1], [1, 0]], [2.0, -50.0], valid=[True, False]))
    for name in ("loss_objective", "entropy", "kl", "max_ratio", "entropy/0", "entropy/1", "clip_fraction"):
        torch.testing.assert_close(alone[name], beside[name], msg=name)


def test_a_head_without_a_choice_gets_no_gradient():
    loss = make_loss(PerHeadPPOLoss, normalize_entropy=True)
    found = loss(minibatch([[0, 0]], [1.0]))
    (found["loss_objective"] + found["loss_entropy"]).backward()
    gradient = loss.actor_network[0].module.logits.grad
    assert gradient[:2].tolist() == [0.0, 0.0]
    loss = make_loss(PerHeadPPOLoss, normalize_entropy=True)
    loss(minibatch([[0, 1]], [1.0]))["loss_objective"].backward()
    assert (loss.actor_network[0].module.logits.grad != 0).all()


def test_at_the_behavior_policy_the_gradient_is_that_of_the_joint_ratio():
    gradients = []
    for kind in (PPOLoss, PerHeadPPOLoss):
        loss = make_loss(kind, BEFORE.exp().tolist())
        loss(minibatch([[1, 1], [0, 0], [0, 1]], [2.0, -1.0, 0.5]))["loss_objective"].backward()
        gradients.append(loss.actor_network[0].module.logits.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0.1


@pytest.mark.parametrize("before", [-1e4, 1e4])
def test_absurd_ratios_of_a_head_stay_finite(before):
    loss, data = make_loss(PerHeadPPOLoss), minibatch([[1, 1]], [-1.0])
    data[keys.LOGITS] = torch.tensor([[0.0, before, 0.0, before]])
    found = loss(data)
    found["loss_objective"].backward()
    assert found["loss_objective"].isfinite() and found["kl"].isfinite()
    assert loss.actor_network[0].module.logits.grad.isfinite().all()


def test_with_a_single_head_it_is_torchrls_loss():
    config = PPOConfig(rollout_steps=16, minibatch_size=128, ratio="per_head")
    ppo, rollout = played(make=lambda agent: PPO(agent, config, 8, EAGER))
    agent = ppo.agent
    data, _ = ppo.advantages(rollout)
    theirs = ClipPPOLoss(
        agent.actor,
        agent.critic,
        entropy_coeff=0.01,
        critic_coeff=0.5,
        loss_critic_type="l2",
        normalize_advantage=True,
        functional=False,
    )
    (expected, gradients), (found, own) = (with_gradients(loss, data.copy(), agent) for loss in (theirs, ppo.loss))
    assert found["clip_fraction"] > 0.1
    for name in ("loss_objective", "loss_critic", "loss_entropy", "entropy", "clip_fraction", "max_ratio"):
        torch.testing.assert_close(found[name], expected[name], msg=name)
    torch.testing.assert_close(own, gradients)


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_ppo_learns_head_by_head_in_a_world_whose_operation_leads(memory):
    torch.manual_seed(0)
    env = small(4, max_steps=12, min_training=2)
    agent = Agent(env, ModelConfig([16], memory=memory, least_probability=0.01))
    config = PPOConfig(rollout_steps=8, minibatch_size=16, num_epochs=2, ratio="per_head", normalize_entropy=True)
    ppo = PPO(agent, config, 4, EAGER)
    rollout = RolloutCollector(agent.attach(env), agent, 8, EAGER, values=True).collect()
    before = [parameter.clone() for parameter in agent.actor_head.parameters()]
    found = ppo.learn(rollout, 1e-3)
    assert 0 < found["entropy/operation"] <= 1 and found["skipped"] == 0
    assert found["relevant/blueprint"] < 1, "it does not matter where nothing germinates"
    assert any(not torch.equal(old, new) for old, new in zip(before, agent.actor_head.parameters(), strict=True))


def test_impala_normalizes_entropies_too():
    env = small(4, max_steps=12, min_training=2)
    agent = Agent(env, ModelConfig([16], memory="lstm"))
    config = IMPALAConfig(rollout_steps=8, num_minibatches=2, normalize_entropy=True)
    impala = IMPALA(agent, config, 4, EAGER)
    rollout = RolloutCollector(agent.attach(env), impala.behavior, 8, EAGER).collect()
    found = impala.learn(rollout, 1e-3)
    assert found["skipped"] == 0 and 0 < found["entropy"] < 8


@pytest.mark.parametrize("setting", [{"ratio": "per_head"}, {"normalize_entropy": True}])
def test_continuous_actions_have_no_heads(setting):
    env = GymEnv("Pendulum-v1", num_envs=2)
    with pytest.raises(ValueError, match="needs discrete actions, but this world's are continuous"):
        PPO(Agent(env, ModelConfig([8])), PPOConfig(rollout_steps=4, minibatch_size=8, **setting), 2, EAGER)


@pytest.mark.slow
def test_compiled_it_is_one_graph_and_the_same():
    loss, data = make_loss(PerHeadPPOLoss, normalize_entropy=True), minibatch([[1, 1], [0, 0]], [2.0, -1.0])
    expected, found = loss(data.copy()), torch.compile(loss.forward, fullgraph=True)(data.copy())
    for name in expected.keys():
        torch.testing.assert_close(found[name], expected[name], msg=name)


def test_members_of_a_population_learn_head_by_head():
    experiment = Experiment.load(
        *("arena_pbt", "world.num_envs=8", "algorithm.rollout_steps=8", "algorithm.minibatch_size=32"),
        *("total_frames=64", "population.members=2", "population.replace=0.5", "population.every=64"),
        *("population.warmup=0", "algorithm.ratio=per_head"),
        *("acceleration={step: false, advantages: false, update: false, cudagraphs: false}", "threads=1", "device=cpu"),
    )
    *_, last = learn(experiment)
    assert any("entropy/0" in name for name in last.metrics)
