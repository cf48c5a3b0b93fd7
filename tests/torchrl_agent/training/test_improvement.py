"""Policy improvement from dreams: the target by hand, whom it teaches, and what cannot be."""

import math

import pytest
import torch
from tensordict import TensorDict
from torchrl.modules import set_recurrent_mode

from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.training.improvement import PLAYED, ImprovementLoss, imagined_advantages
from torchrl_agent.training.rollout import agent_rows

TINY = (
    "device=cpu",
    "world.num_envs=2",
    "algorithm.rollout_steps=8",
    "tuned.ppo.minibatch_size=16",
    "model.world_model.improvement=0.5",
    "acceleration.step=false",
    "acceleration.advantages=false",
    "acceleration.update=false",
)


def dreams(worth, confidence, dreamt):
    """What Imagination writes of one frame's first actions, [1, 3 actions]."""
    worth = torch.tensor(worth)
    symlog = worth.sign() * worth.abs().log1p()
    return torch.stack((symlog, torch.tensor(confidence), torch.tensor(dreamt)), -1).reshape(1, -1)


def test_an_advantage_is_what_a_dream_promises_over_what_the_policy_expects():
    # the policy expects (1/2 * 2 + 1/4 * 5) / (3/4) = 3 of the actions dreamt of; the third was not
    imagined = dreams([2.0, 5.0, 0.0], [1.0, 0.5, 1.0], [1.0, 1.0, 0.0])
    advantages = imagined_advantages(imagined, torch.tensor([[0.5, 0.25, 0.25]]))
    torch.testing.assert_close(advantages, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_the_target_by_hand():
    played = torch.tensor([[0.5, 0.25, 0.25]])
    frame = TensorDict(
        {
            keys.IMAGINED: dreams([2.0, 5.0, 0.0], [1.0, 0.5, 1.0], [1.0, 1.0, 0.0]),
            PLAYED: played.log(),
            keys.LOGITS: torch.zeros(1, 3, requires_grad=True),
        },
        [1],
    )
    found = ImprovementLoss(3, coefficient=2.0, temperature=0.5)(frame)
    # advantages (-1, 1, 0) have size sqrt(2); odds are those played times exp(advantage / (0.5 sqrt(2)))
    step = 1 / (0.5 * math.sqrt(2))
    odds = played * torch.tensor([[-step, step, 0.0]]).exp()
    target = odds / odds.sum()
    assert found["loss_improvement"].item() == pytest.approx(2.0 * math.log(3), rel=1e-5)  # of a policy without opinion
    assert found["improvement_kl"].item() == pytest.approx((target * (target / played).log()).sum().item(), rel=1e-4)
    found["loss_improvement"].backward()
    torch.testing.assert_close(frame[keys.LOGITS].grad, 2.0 * (torch.full((1, 3), 1 / 3) - target))


def test_illegal_actions_and_frames_that_do_not_count_stay_out():
    played = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
    logits = torch.zeros(2, 3, requires_grad=True)
    frame = TensorDict(
        {
            keys.IMAGINED: dreams([2.0, 5.0, 9.0], [1.0, 1.0, 1.0], [1.0, 1.0, 0.0]).expand(2, -1).clone(),
            PLAYED: played,
            keys.LOGITS: logits,
            keys.ACTION_MASK: torch.tensor([[True, True, False]]).expand(2, -1),
            keys.VALID: torch.tensor([True, False]),
        },
        [2],
    )
    found = ImprovementLoss(3, coefficient=1.0, temperature=1.0)(frame)
    found["loss_improvement"].backward()
    assert found["loss_improvement"].isfinite() and found["improvement_kl"].isfinite()
    assert logits.grad[0, 2] == 0 and (logits.grad[1] == 0).all()
    assert logits.grad[0, 0] > 0 > logits.grad[0, 1]  # the second action promises more: it becomes likelier


def test_dreams_teach_the_policy_and_the_policy_teaches_no_dreams():
    learner = Experiment.load("town_agent", *TINY).make_learner()
    agent, ppo = learner.algorithm.agent, learner.algorithm
    rollout = agent_rows(learner.collector.collect(), agent.group)
    minibatch = rollout.select(*agent.recorded_keys, keys.ACTION, keys.LOG_PROB).transpose(0, 1)
    with set_recurrent_mode(True):
        encoded = agent.encoder(minibatch.copy())
    encoded.rename_key_(keys.LOGITS, PLAYED)
    agent.actor_head.get_dist(encoded)
    ppo.loss.improvement(encoded)["loss_improvement"].backward()
    moved = {name for p, name in agent.module_names().items() if p.grad is not None and p.grad.any()}
    assert "actor" in moved and "world_model" not in moved and "critic" not in moved


def test_an_iteration_tells_how_far_dreams_would_move_the_policy():
    learner = Experiment.load("town_agent", *TINY).make_learner()
    told = learner.improve(learner.collector.collect(), 1e-3)
    assert told["improvement_kl"] > 0
    assert told["loss_improvement"].isfinite()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("model.world_model.improvement=-1", "at least 0"),
        ("model.world_model.improvement_temperature=0", "above 0"),
        ("model.world_model.candidates=1", "candidates of at least 2"),
        ("model.world_model.enabled=false", "model.world_model.enabled=true"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(override, sentence):
    with pytest.raises(ValueError, match=sentence):
        Experiment.load("town_agent", *TINY, override).make_learner()
