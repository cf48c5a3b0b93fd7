"""DQN's arithmetic by hand: n-step returns, double and masked targets, dueling streams, exploration, replay."""

import math

import pytest
import torch
from line_world import Line
from tensordict import TensorDict
from torchrl.data import MultiCategorical
from transitions import transition

from torchrl_agent.algorithms.dqn import DQN, DQNConfig, epsilon
from torchrl_agent.algorithms.replay import Replay, n_step_transitions
from torchrl_agent.models.agent import ModelConfig
from torchrl_agent.models.q_agent import ActionValues, EpsilonGreedy, QAgent
from torchrl_agent.optimization.compilation import AccelerationConfig

EAGER = AccelerationConfig(step=False, advantages=False, update=False, cudagraphs=False)


def make(num_envs=2, **changes):
    """A DQN with Q(x) = (x, 2x) for x >= 0 whose target network says (3x, -x)."""
    defaults = {"rollout_steps": 4, "replay_size": 100, "scale_rewards": False, "dueling": False}
    config = DQNConfig(**{**defaults, "batch_size": 8, "learning_starts": 0, **changes})
    model = ModelConfig([1], activation="relu", normalize_observations=False)
    agent = DQN.make_agent(Line(num_envs, masked=True), model, config)
    dqn = DQN(agent, config, num_envs, EAGER)
    network = agent.actor_head[0].module
    with torch.no_grad():
        for parameter in agent.parameters():
            parameter.fill_(1.0 if parameter.ndim == 2 else 0.0)
        network.advantages[0].weight.copy_(torch.tensor([[1.0], [2.0]]))
        for key, value in dqn.loss.loss.target_value_network_params.items(True, True):
            value.data.fill_(1.0 if value.ndim == 2 else 0.0)
            if "advantages" in key and key[-1] == "weight":
                value.data.copy_(torch.tensor([[3.0], [-1.0]]))
    return dqn


# --- n-step returns


def rollout():
    """World 0 terminates at its second step, world 1 is truncated at its third."""
    flag = torch.zeros(5, 2, 1, dtype=torch.bool)
    done, terminated = flag.clone(), flag.clone()
    done[1, 0] = terminated[1, 0] = done[2, 1] = True
    reward = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0], [16.0, 160.0]]).unsqueeze(-1)
    reached = torch.arange(10.0).reshape(5, 2, 1)
    following = {"observation": reached, "reward": reward, "done": done, "terminated": terminated}
    return TensorDict({"observation": reached - 1}, [5, 2]), TensorDict(following, [5, 2])


def test_n_step_returns_by_hand():
    found = n_step_transitions(*rollout(), gamma=0.5, steps=3)
    # world 0: 1 + 2/2 (ends), 2 (ends), 4 + 8/2 + 16/4, then the rollout ends: 8 + 16/2, 16
    # world 1: 10 + 20/2 + 40/4, 20 + 40/2 (cut), 40 (cut), then 80 + 160/2, 160
    expected = [[2.0, 30.0], [2.0, 40.0], [12.0, 40.0], [16.0, 160.0], [16.0, 160.0]]
    assert found["next", "reward"].squeeze(-1).tolist() == expected
    assert found["steps_to_next_obs"].squeeze(-1).tolist() == [[2, 3], [1, 2], [3, 1], [2, 2], [1, 1]]
    # what is reached is the frame after the last reward: places [[1, 2], [1, 2], [4, 2], [4, 4], [4, 4]]
    reached = [[2.0, 5.0], [2.0, 5.0], [8.0, 5.0], [8.0, 9.0], [8.0, 9.0]]
    assert found["next", "observation"].squeeze(-1).tolist() == reached
    assert found["next", "terminated"].squeeze(-1).tolist() == [[True, False]] * 2 + [[False, False]] * 3
    assert torch.equal(found["observation"], rollout()[0]["observation"])


def test_one_step_returns_are_the_rollout_itself():
    now, following = rollout()
    found = n_step_transitions(now, following, gamma=0.5, steps=1)
    for key in ("observation", "reward", "done", "terminated"):
        assert torch.equal(found["next", key], following[key])


# --- the loss


@pytest.mark.parametrize(
    ("double", "mask", "terminated", "steps", "target"),
    [
        (True, (True, True), False, 1, 1 + 0.5 * -2),  # the learning network prefers action 1, the target's is -2
        (False, (True, True), False, 1, 1 + 0.5 * 6),  # the target network's best, 3 * 2
        (True, (True, False), False, 1, 1 + 0.5 * 6),  # action 1 is illegal there
        (False, (False, True), False, 1, 1 + 0.5 * -2),
        (True, (True, True), True, 1, 1.0),  # nothing follows
        (True, (True, True), False, 3, 1 + 0.125 * -2),
    ],
)
def test_the_temporal_difference_by_hand(double, mask, terminated, steps, target):
    losses = make(double=double, gamma=0.5).loss(transition(terminated=terminated, mask=mask, steps=steps))
    error = 5.0 - target  # Q(5, 0) = 5
    assert losses["td_error"].item() == pytest.approx(error**2, rel=1e-5)
    assert losses["loss_value"].item() == pytest.approx(abs(error) - 0.5, rel=1e-5)  # Huber, beyond 1


def test_frames_of_the_dead_do_not_count():
    dqn = make(gamma=0.5)
    both = torch.cat([transition(), transition(reward=100.0)])
    both["shifted_valid"] = torch.tensor([True, False])
    assert dqn.loss(both)["loss_value"].item() == pytest.approx(dqn.loss(transition())["loss_value"].item())


def test_dueling_streams_by_hand():
    network = ActionValues(1, 3, [], "relu", dueling=True)
    with torch.no_grad():
        network.value[0].weight.fill_(10.0)
        network.advantages[0].weight.copy_(torch.tensor([[1.0], [2.0], [6.0]]))
    assert network(torch.ones(1)).tolist() == pytest.approx([10 + 1 - 3, 10 + 2 - 3, 10 + 6 - 3])


@pytest.mark.parametrize(("interval", "updates"), [(2, [2, 4]), (1, [0, 1, 2, 3, 4])])  # made before: 1 is within each
def test_the_target_network_follows_at_its_rate_and_interval(interval, updates):
    dqn = make(target_rate=0.25, target_interval=interval)
    dqn.target.step()
    (weight,) = [
        value
        for key, value in dqn.loss.loss.target_value_network_params.items(True, True)
        if "advantages" in key and key[-1] == "weight"
    ]
    torch.testing.assert_close(weight.data, torch.tensor([[2.5], [-0.25]]))  # a quarter of the way to (1, 2)
    steps = []
    dqn.target.step = lambda: steps.append(dqn.updates)
    dqn.replay.add(eight(transition()))
    for _ in range(5):
        dqn._update()
    assert steps == updates


# --- exploring


def test_epsilon_greedy_probabilities_by_hand_and_never_an_illegal_action():
    values, mask = torch.tensor([[1.0, 9.0, 5.0, 2.0]]), torch.tensor([[True, False, True, True]])
    choice = EpsilonGreedy(values, torch.tensor([0.3]), mask)
    expected = torch.tensor([[0.1, 0.0, 0.8, 0.1]])
    torch.testing.assert_close(choice.probs, expected)
    drawn = choice.sample((20_000,)).flatten().bincount(minlength=4) / 20_000
    torch.testing.assert_close(drawn, expected.flatten(), atol=0.015, rtol=0)
    assert choice.log_prob(torch.tensor([2])).item() == pytest.approx(math.log(0.8), rel=1e-5)
    assert choice.deterministic_sample.item() == 2
    assert (EpsilonGreedy(values, torch.tensor([0.0]), mask).sample((1000,)) == 2).all()
    everything = EpsilonGreedy(values, torch.tensor([1.0]), mask)
    assert everything.deterministic_sample.item() == 2
    assert everything.sample((1000,)).unique().tolist() == [0, 2, 3]


def test_who_may_do_nothing_is_chosen_for_in_numbers():
    values, mask = torch.tensor([[1.0, 9.0], [1.0, 9.0]]), torch.tensor([[True, False], [False, False]])
    choice = EpsilonGreedy(values, torch.tensor([0.4, 0.4]), mask)
    assert choice.probs.isfinite().all() and choice.log_prob(choice.sample()).isfinite().all()
    assert choice.log_prob(torch.tensor([0, 0]))[0] == 0  # the other row is as it was


def test_epsilon_falls_linearly_over_frames():
    config = DQNConfig(epsilon_initial=1.0, epsilon_final=0.2, epsilon_frames=100)
    assert [epsilon(config, frames) for frames in (0, 50, 100, 10**9)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


# --- replay


def numbered(*values):
    return {"x": torch.tensor(values)}


def eight(frame):
    return dict(torch.cat([frame] * 8).items(True, True))


def test_the_replay_forgets_the_oldest_rollout_first():
    replay = Replay(7, 2)  # three rollouts of two
    for first in range(0, 8, 2):
        replay.add(numbered(first, first + 1))
        _, drawn = replay.sample(200, 0.0)
        oldest = max(0, first - 4)
        assert drawn["x"].unique().tolist() == list(range(oldest, first + 2))


def test_priorities_decide_how_often_and_weights_make_up_for_it():
    torch.manual_seed(0)
    replay = Replay(4, 4, exponent=0.5)
    replay.add(numbered(0, 1, 2, 3))
    replay.update_priorities(torch.arange(4), torch.tensor([[0.0], [1.0], [1.0], [81.0]]))  # |error| 0, 1, 1, 9
    index, drawn = replay.sample(40_000, importance=1.0)
    assert torch.equal(drawn["x"], index)
    priority = (torch.tensor([0.0, 1.0, 1.0, 9.0]) + 1e-3).sqrt()  # about 0.03, 1, 1, 3
    probability = priority / priority.sum()
    torch.testing.assert_close(index.bincount(minlength=4) / 40_000, probability, atol=0.01, rtol=0)
    weight = {int(place): float(value) for place, value in zip(index, drawn["priority_weight"], strict=True)}
    assert weight[3] / weight[1] == pytest.approx((1.001 / 9.001) ** 0.5, rel=1e-3)
    assert max(weight.values()) == pytest.approx(1.0)
    replay.add(numbered(4, 5, 6, 7))
    assert replay._priorities.tolist() == [pytest.approx(9.001**0.5)] * 4  # new frames are seen soon


def test_with_priorities_what_does_not_count_is_never_drawn():
    replay = Replay(4, 4, exponent=0.5)
    replay.add(numbered(0, 1, 2, 3) | {"shifted_valid": torch.tensor([True, False, True, False])})
    assert replay.sample(500, 0.4)[0].unique().tolist() == [0, 2]


def test_a_replay_does_not_go_on_in_another_size():
    replay = Replay(6, 2)
    replay.add(numbered(0, 1))
    replay.add(numbered(2, 3))
    with pytest.raises(ValueError, match=r"algorithm\.replay_size"):
        Replay(2, 2).load_state_dict(replay.state_dict())


def test_the_replay_ratio_sets_the_number_of_updates():
    dqn = make(batch_size=32, replay_ratio=3.0, learning_starts=16)
    updates = []
    for _ in range(9):
        dqn.replay.filled += 8
        updates.append(dqn._updates_due(8))
    assert updates[0] == 0  # before learning starts
    assert sum(updates[1:]) == 8 * 8 * 3 // 32


def test_an_emptied_replay_fills_before_learning_goes_on():
    dqn = make(batch_size=8, replay_ratio=1.0, learning_starts=16)
    dqn.frames = 1000  # resumed from an older checkpoint, whose replay is gone
    dqn.replay.load_state_dict(None)
    dqn.replay.filled = 8
    assert dqn._updates_due(8) == 0
    dqn.replay.filled = 16
    assert dqn._updates_due(8) == 1
    dqn = make(batch_size=8, replay_ratio=1.0, replay_size=8, learning_starts=16)
    dqn.replay.filled = 8
    assert dqn._updates_due(8) == 1  # more than the replay holds cannot be waited for


def test_rewards_of_the_replay_are_scaled_when_they_are_drawn():
    dqn = make(scale_rewards=True, gamma=0.5)
    dqn.scaler.running.var.fill_(16.0)
    dqn.scaler.running.count.fill_(100.0)
    dqn.replay.add(eight(transition(reward=8.0)))
    seen, update = [], dqn.updater.update
    dqn.updater.update = lambda batch: (seen.append(batch["next", "reward"]), update(batch))[1]
    dqn._update()
    torch.testing.assert_close(seen[0], torch.full((8, 1), 2.0))


def test_exploration_falls_with_the_frames_played():
    dqn = make(rollout_steps=5, epsilon_frames=40, learning_starts=100)
    now, following = rollout()
    played = now.set("action", torch.zeros(5, 2, dtype=torch.int64)).set("next", following)
    mask = torch.ones(5, 2, 2, dtype=torch.bool)
    for part in (played, played["next"]):
        part["action_mask"] = mask
    for expected in (1 - 0.95 * 10 / 40, 1 - 0.95 * 20 / 40):
        dqn.learn(played.clone(), 1e-3)
        assert dqn.agent.exploration.epsilon.item() == pytest.approx(expected)


# --- what cannot be


def test_several_actions_at_once_and_memory_are_refused_in_a_sentence():
    several = MultiCategorical([2, 3], shape=(2, 2))
    with pytest.raises(ValueError, match="takes 2 at once") as caught:
        QAgent(Line(2, several), ModelConfig([4]))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="policy=mlp") as caught:
        QAgent(Line(2), ModelConfig([4], memory="gru"))
    assert "\n" not in str(caught.value)
