"""Inner rewards: by hand, learned from, and never what members are judged by."""

import pytest
import torch
from tensordict import TensorDict

from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.transforms.character import CharacterReward

REWARD = ("agents", "reward")
SMALL = [
    "world={num_envs: 4, level: L7, num_agents: 2, desynchronize: false}",
    "algorithm={rollout_steps: 16, minibatch_size: 64}",
    "total_frames=64",
    "threads=1",
    "device=cpu",
    *(f"acceleration.{part}=false" for part in ("step", "advantages", "update")),
]
DRIVES = "+world.drives=true"


def test_the_inner_reward_by_hand():
    inner = CharacterReward("drives", "character", "reward", scale=2.0)
    after = TensorDict(
        {
            "drives": torch.tensor([[-1.0, 0.5, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]),
            "character": torch.tensor([[0.1, 0.2, 0.9, 0.3], [1.0, 1.0, 1.0, 1.0]]),
            "reward": torch.tensor([[1.0], [3.0]]),
        },
        [2],
    )
    added = inner._step(after, after)["reward"].flatten().tolist()
    assert added == pytest.approx([1 + 2 * (-0.1 + 0.1 + 0.3), 3.0])


def test_the_world_pays_and_reports_what_it_did_before():
    plain, inner = (Experiment.load("town", *SMALL, DRIVES, *more).make_world() for more in ([], ["character.scale=3"]))
    first, second = plain.reset(), inner.reset()
    torch.manual_seed(0)
    seen = 0.0
    for _ in range(40):
        first = plain.rand_action(first)
        second["agents", "action"] = first["agents", "action"]
        one, first = plain.step_and_maybe_reset(first)
        two, second = inner.step_and_maybe_reset(second)
        agents = two["next", "agents"]
        added = 3 * (agents["drives"] * agents["character"]).sum(-1, keepdim=True)
        torch.testing.assert_close(agents["reward"], one["next", REWARD] + added)
        assert torch.equal(one["next", "episode", "return"], two["next", "episode", "return"])
        seen = max(seen, added.abs().max().item())
    assert seen > 0.1, "nobody felt anything, so nothing is shown"


def test_it_is_learned_from_in_training_alone():
    weights = []
    for scale in (0, 5):
        experiment = Experiment.load("town", *SMALL, DRIVES, f"character.scale={scale}")
        (iteration,) = learn(experiment)
        weights.append(torch.cat([value.detach().flatten() for value in iteration.learner.agent.parameters()]))
        assert type(experiment.make_world(evaluation=True)).__name__ == "TownEnv"
    assert not torch.equal(*weights)


def test_with_shaping_both_are_added():
    more = [DRIVES, "world.potential=true", "shaping.scale=1", "character.scale=1"]
    env = Experiment.load("town", *SMALL, *more).make_world()
    assert [type(part).__name__ for part in env.transform] == ["PotentialShaping", "CharacterReward"]
    with pytest.raises(ValueError, match="gamma"):
        Experiment.load("town", *SMALL, *more, "shaping.gamma=0.5").make_learner()


def test_a_world_without_drives_is_refused():
    with pytest.raises(ValueError, match=r"character\.scale is set but the world shows no drives: use world\.drives"):
        Experiment.load("town", *SMALL, "character.scale=1").make_world()
    with pytest.raises(ValueError, match=r"use world\.drives=true"):
        Experiment.load("smoke", "device=cpu", "character.scale=1").make_world()
