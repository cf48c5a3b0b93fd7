"""TD3: arithmetic by hand, the delay of the policy, what it learns, what it refuses."""

from itertools import pairwise

import pytest
import torch
from line_world import Line
from tensordict import TensorDict
from torchrl.data import Bounded, Unbounded
from transitions import PLAIN, QUIET, fill, transition

from torchrl_agent import Experiment, evaluate, learn
from torchrl_agent.algorithms.td3 import TD3, TD3Config
from torchrl_agent.models.agent import ModelConfig
from torchrl_agent.models.td3_agent import TD3Agent
from torchrl_agent.optimization.compilation import AccelerationConfig

WORLD = Line(2, Bounded(-2, 2, (2, 1)))


def make(compiled=False, **changes):
    """TD3 with Q(x, a) = relu(x + a) and 3 relu(x + a), whose target networks both say 2 relu(x + a) and relu(x + a);
    the policy's action before the tanh is x / 10, the target policy's 0.
    """
    defaults = {"rollout_steps": 4, "replay_size": 100, "scale_rewards": False, "target_noise": 0.0, "gamma": 0.5}
    config = TD3Config(**{**defaults, "batch_size": 8, "learning_starts": 0, **changes})
    td3 = TD3(TD3.make_agent(WORLD, PLAIN, config), config, 2, AccelerationConfig(False, False, compiled))
    fill(td3.agent.deterministic_policy.network, 0.1)
    for network, slope in zip(td3.agent.action_values.networks, (1.0, 3.0), strict=True):
        fill(network, slope)
    _, values, policy = td3.loss.following
    fill(policy, 0.0)
    for network, slope in zip(values.networks, (2.0, 1.0), strict=True):
        fill(network, slope)
    return td3


def frame(action=1.0, **changes):
    found = transition(**changes).exclude("action_mask", ("next", "action_mask"))
    return found.set("action", torch.tensor([[action]]))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1 + 0.5 * 2),  # the smaller target value of x = 2 and action 0
        ({"steps": 3}, 1 + 0.125 * 2),
        ({"terminated": True}, 1.0),
        ({"truncated": True}, 1 + 0.5 * 2),
    ],
)
def test_targets_by_hand(changes, expected):
    assert make().loss.targets(frame(**changes)).item() == pytest.approx(expected)


def test_the_target_policy_is_smoothed_by_clipped_noise():
    td3 = make(target_noise=10.0, noise_clip=0.5)
    torch.manual_seed(0)
    targets = {round(td3.loss.targets(frame()).item(), 4) for _ in range(50)}
    low, high = 1 + 0.5 * 1.5, 1 + 0.5 * 2.5  # a noise of ten half ranges is nearly always clipped
    assert {low, high} <= targets
    assert all(low <= target <= high for target in targets)


def test_the_losses_by_hand():
    losses = make().loss(frame(action=1.0, terminated=True))  # in units of half the range the action is 0.5
    errors = [5.5 - 1, 16.5 - 1]
    assert losses["loss_value"].item() == pytest.approx(sum(error - 0.5 for error in errors))  # Huber
    assert losses["td_error"].item() == pytest.approx(max(errors) ** 2)
    assert losses["loss_actor"].item() == pytest.approx(-(5 + torch.tensor(0.5).tanh().item()))  # the first value alone


def test_each_loss_moves_its_own_weights_alone():
    td3 = make()
    for name, owner in {"loss_actor": td3.agent.actor_head, "loss_value": td3.agent.action_values}.items():
        td3.agent.zero_grad()
        td3.loss(frame())[name].backward()
        moved = {each for each in td3.agent.parameters() if each.grad is not None and each.grad.any()}
        assert moved and moved <= set(owner.parameters()), name


def rollout(steps=4):
    frames = torch.stack([torch.cat([frame(reward=float(step)), frame(reward=1.0)]) for step in range(steps)])
    return frames.exclude("steps_to_next_obs")


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_the_policy_learns_from_every_dth_update_alone(delay):
    td3, moved = make(policy_delay=delay, replay_ratio=12, batch_size=8), []
    step, policy = td3.updater.optimizer.step, td3.agent.deterministic_policy.network[0].weight
    target = td3.loss.following[1].networks[0][0].weight

    def counted(*args, **kwargs):
        before, followed = policy.clone(), target.clone()
        result = step(*args, **kwargs)
        moved.append((not torch.equal(before, policy), followed))
        return result

    td3.updater.optimizer.step = counted
    diagnostics = td3.learn(rollout(), 1e-2)
    assert len(moved) == 12 and diagnostics["updates"].item() == 12
    assert [learns for learns, _ in moved] == ([False] * (delay - 1) + [True]) * (12 // delay)
    followed = [not torch.equal(one[1], other[1]) for one, other in pairwise(moved)]
    assert followed == (([False] * (delay - 1) + [True]) * (12 // delay))[:-1]


@pytest.mark.slow
def test_compiled_updates_are_those_of_eager_code():
    weights = []
    for compiled in (False, True):
        torch.manual_seed(0)
        td3 = make(replay_ratio=8, compiled=compiled)
        td3.replay.sample = lambda *_, replay=td3.replay: (None, replay._frames[: replay.filled])  # drawn alike by both
        for _ in range(3):
            td3.learn(rollout(), 1e-2)
        assert td3.updater.program.compiled is compiled
        weights.append(torch.cat([parameter.detach().flatten() for parameter in td3.agent.parameters()]))
    torch.testing.assert_close(*weights)


def test_it_explores_widely_until_it_learns():
    td3 = make(learning_starts=16, exploration_noise=0.1)
    seen = TensorDict({"observation": torch.zeros(4000, 1)}, [4000])
    td3.learn(rollout(), 1e-3)
    assert td3.agent.policy(seen.copy())["scale"][0].item() == 2.0  # half the range
    td3.learn(rollout(), 1e-3)
    played = td3.agent.policy(seen.copy())
    assert played["scale"][0].item() == pytest.approx(0.2)
    assert played["action"].std().item() == pytest.approx(0.2, rel=0.1)


def test_actions_keep_to_their_bounds_and_the_likeliest_is_the_policys():
    low, high = torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 4.0])
    agent = TD3Agent(Line(2, Bounded(low.expand(2, 2), high.expand(2, 2), (2, 2))), PLAIN)
    seen = TensorDict({"observation": torch.zeros(1000, 1)}, [1000])
    drawn = agent.policy(seen)["action"]
    assert (drawn >= low).all() and (drawn <= high).all()
    best = agent.actor_head.get_dist(agent.encoder(seen.copy())).deterministic_sample[0]
    torch.testing.assert_close(best, torch.tensor([1.0, 3.0]), atol=1e-3, rtol=0)


def test_gradients_are_clipped_apart():
    agent = make().agent
    policy, rest = agent.parts()
    assert set(policy) == set(agent.actor_head.parameters())
    assert len(policy) + len(rest) == len(list(agent.parameters()))


@pytest.mark.slow
def test_it_learns():
    options = ["algorithm=td3", "algorithm.rollout_steps=4", "algorithm.learning_starts=64", "algorithm.batch_size=64"]
    options += ["algorithm.learning_rate.initial=0.01", "algorithm.gamma=0.0", "algorithm.scale_rewards=false"]
    options += ["algorithm.replay_ratio=2", "model.hidden_sizes=[16]"]
    experiment = Experiment.load("smoke", *options, *QUIET, "total_frames=12800")
    experiment.world = {"_target_": "one_step_worlds.Copying", "num_envs": 16}
    experiment.evaluation.world = {}
    (*_, last) = learn(experiment)
    assert evaluate(experiment, last.agent, episodes=64)["return_mean"] > -0.1


@pytest.mark.parametrize(
    ("world", "model", "culprit"),
    [
        (Line(2), PLAIN, "algorithm=dqn, sac"),
        (Line(2, Unbounded((2, 1))), PLAIN, "this world's have none"),
        (WORLD, ModelConfig([4], memory="gru"), "policy=mlp"),
        (WORLD, ModelConfig([4], centralized_critic=True), "model.centralized_critic=false"),
    ],
)
def test_agents_that_cannot_be_are_refused_in_a_sentence(world, model, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        TD3Agent(world, model)
    assert "\n" not in str(caught.value)
