"""Hindsight experience replay: which goals frames get, what they are worth then, what cannot be."""

from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from tensordict import TensorDict

from envs.libs.gymnasium import VectorGymEnv
from examples.goals import FlipBits
from torchrl_agent import Experiment, learn
from torchrl_agent.algorithms.hindsight import HindsightReplay
from torchrl_agent.experiment.judging import evaluate

ROWS, STEPS = 2, 3


def outcome(achieved, desired):
    """0 at the goal and -1 elsewhere; a goal that is reached ends the episode."""
    reached = (achieved == desired).all(-1, keepdim=True)
    return reached.float() - 1, reached


def rollout(first, done=()):
    """Frames [STEPS * ROWS] from time ``first`` on: at time t world w is at 10 t + w, and at the next step it has
    achieved that of t + 1; nobody achieves what is desired. ``done`` are pairs of time and world.
    """
    time = torch.arange(first, first + STEPS).repeat_interleave(ROWS)
    world = torch.arange(ROWS).repeat(STEPS)
    place = (10.0 * time + world).unsqueeze(-1)
    ended = torch.tensor([[(int(t), int(w)) in done] for t, w in zip(time, world, strict=True)])
    following = {"achieved_goal": place + 10, "desired_goal": torch.full_like(place, -1.0), "done": ended}
    following |= {"reward": torch.full_like(place, -7.0), "terminated": torch.zeros_like(ended)}
    now = {"achieved_goal": place, "desired_goal": torch.full_like(place, -1.0)}
    return TensorDict({**now, "next": TensorDict(following, [len(place)])}, [len(place)])


def replay(rollouts, size=100, share=1.0):
    found = HindsightReplay(size, STEPS * ROWS, 0.0, ROWS, share)
    found.outcome = outcome
    for each in rollouts:
        found.add(dict(each.items(True, True)))
    return found


def goals_by_place(found, count=4000):
    """Goals that frames get, by what they have achieved after their step."""
    torch.manual_seed(0)
    _, batch = found.sample(count, 0.0)
    goals = {}
    for place, goal in zip(batch["next", "achieved_goal"].flatten(), batch["desired_goal"].flatten(), strict=True):
        goals.setdefault(int(place), set()).add(int(goal))
    return goals, batch


def test_goals_are_reached_later_in_the_same_episode_of_the_same_world():
    goals, batch = goals_by_place(replay([rollout(0), rollout(3, done=[(4, 0)])]))
    # world 0 ends its first episode at time 4, when it achieves 50; world 1 is not known to end
    assert goals[10] == {10, 20, 30, 40, 50} and goals[50] == {50} and goals[60] == {60}
    assert goals[11] == {11, 21, 31, 41, 51, 61} and goals[61] == {61}
    reached = (batch["next", "achieved_goal"] == batch["desired_goal"]).all(-1, keepdim=True)
    assert torch.equal(batch["next", "reward"], reached.float() - 1)
    assert torch.equal(batch["next", "terminated"], reached)
    assert torch.equal(batch["desired_goal"], batch["next", "desired_goal"])


def test_later_goals_are_drawn_alike():
    found = replay([rollout(0)])
    _, batch = goals_by_place(found, 20_000)
    first = batch["desired_goal"][batch["next", "achieved_goal"] == 10]
    shares = torch.stack([(first == goal).float().mean() for goal in (10, 20, 30)])
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3), atol=0.03, rtol=0)


def test_the_ring_goes_round_and_old_frames_are_no_goals():
    found = replay([rollout(0), rollout(3), rollout(6, done=[(7, 1)])], size=2 * STEPS * ROWS)
    goals, _ = goals_by_place(found)
    assert set(goals) == {40, 50, 60, 70, 80, 90, 41, 51, 61, 71, 81, 91}  # times 0 to 2 are overwritten
    assert goals[40] == {40, 50, 60, 70, 80, 90} and goals[90] == {90}
    assert goals[41] == {41, 51, 61, 71, 81} and goals[91] == {91}


def test_a_share_of_the_frames_keeps_goal_reward_and_end():
    _, batch = goals_by_place(replay([rollout(0)], share=0.8), 20_000)
    kept = (batch["desired_goal"] == -1).flatten()
    assert kept.float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert (batch["next", "reward"][kept] == -7).all()
    assert (batch["next", "reward"][~kept] != -7).all()


def test_a_replay_goes_on_from_its_state():
    found = replay([rollout(0), rollout(3, done=[(4, 0)])])
    other = replay([])
    other.load_state_dict(found.state_dict())
    assert goals_by_place(other)[0] == goals_by_place(found)[0]


# --- worlds of Gymnasium with goals


class Reaching(gymnasium.Env):
    """A goal space of two axes and float64; its methods take one goal at a time and end where it is reached."""

    goal = Box(-5, 5, (2, 1), np.float64)
    observation_space = Dict(observation=Box(-1, 1, (3,)), achieved_goal=goal, desired_goal=goal)
    action_space = Box(-1, 1, (2,))

    def seen(self):
        return {"observation": np.zeros(3, np.float32), "achieved_goal": self.place, "desired_goal": np.ones((2, 1))}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = np.zeros((2, 1))
        return self.seen(), {}

    def step(self, action):
        self.place = self.place + action.reshape(2, 1)
        return self.seen(), -1.0, False, False, {}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -float(np.abs(achieved_goal - desired_goal).max())

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return bool(np.abs(achieved_goal - desired_goal).max() < 0.1)


@pytest.mark.parametrize(
    ("world", "achieved", "desired", "rewards"),
    [
        (Reaching, [[0.0, 0.0], [1.0, 1.0]], [[2.0, 1.0], [1.0, 1.0]], [[-2.0], [0.0]]),
        (partial(FlipBits, bits=4), [[0.0, 1, 0, 0], [1, 1, 1, 1]], [[0.0, 1, 0, 0], [1, 1, 1, 0]], [[0.0], [-1.0]]),
    ],
    ids=["one by one", "at once"],
)
def test_goals_are_judged_as_the_world_takes_them(world, achieved, desired, rewards):
    env = VectorGymEnv(world, 3)
    reward, terminated = env.goal_outcome(torch.tensor(achieved), torch.tensor(desired))
    assert reward.tolist() == rewards and terminated.tolist() == [[each == 0] for (each,) in rewards]
    env.close()


def test_a_world_without_goals_says_so():
    assert VectorGymEnv("CartPole-v1", 1).goal_outcome is None
    with pytest.raises(ValueError, match=r"algorithm\.hindsight .* shows no achieved_goal: set it to 0"):
        next(learn(Experiment.load("gym:CartPole-v1", "algorithm=dqn", "algorithm.hindsight=0.8", NUM_STEPS)))


NUM_STEPS = "algorithm.num_steps=1"


def test_a_method_that_fails_is_named():
    class Failing(Reaching):
        def compute_reward(self, achieved_goal, desired_goal, info):
            return info["nothing"]

    env = VectorGymEnv(Failing, 1)
    with pytest.raises(ValueError, match="compute_reward of the world failed"):
        env.goal_outcome(torch.zeros(1, 2), torch.zeros(1, 2))
    env.close()


def test_returns_of_several_steps_are_refused():
    with pytest.raises(ValueError, match=r"algorithm\.num_steps=1"):
        next(learn(Experiment.load(FlipBits, "algorithm=dqn", "algorithm.num_steps=3")))


@pytest.mark.parametrize(("algorithm", "world"), [("sac", Reaching), ("td3", Reaching), ("dqn", FlipBits)])
def test_worlds_with_goals_train_with_hindsight_by_default(algorithm, world):
    small = ["total_frames=512", "algorithm.learning_starts=64", "algorithm.batch_size=16", "algorithm.replay_ratio=1"]
    limit = ["+world.bits=4"] if world is FlipBits else []
    experiment = Experiment.load(world, f"algorithm={algorithm}", *small, *limit, "evaluation.max_steps=20")
    assert experiment.algorithm.hindsight == 0.8
    *_, last = learn(experiment)
    assert last.metrics["train/updates"] > 0 and np.isfinite(last.metrics["train/loss_value"])


@pytest.mark.slow
@pytest.mark.parametrize(("hindsight", "least", "most"), [(0.8, 0.95, 1.0), (0.0, 0.0, 0.6)])
def test_bits_are_flipped_with_hindsight_alone(hindsight, least, most):
    changes = [f"algorithm.hindsight={hindsight}", "total_frames=16000", "+world.bits=8", "threads=1"]
    experiment = Experiment.load(FlipBits, "algorithm=dqn", *changes)
    *_, last = learn(experiment)
    assert least <= evaluate(experiment, last.agent, 100, deterministic=True)["info_is_success"] <= most
