"""``agent.predict``, as loops written for Stable-Baselines3's models call it."""

import numpy as np
import pytest
import torch
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv, TownEnv
from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.perception import PerceptionConfig

ROWS = 6


def make_agent(env, **options):
    """An agent that tells rows apart, and what it normalizes with."""
    torch.manual_seed(1)
    agent = Agent(env, ModelConfig([16], **options))
    for parameter in agent.actor_head.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter)
    seen = env.rollout(20, break_when_any_done=False)
    joined = agent.normalizer.join(seen if agent.group is None else seen[agent.group])
    agent.normalizer.update(joined.flatten(0, -2))
    return agent


def deterministic(agent, root):
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        return agent.policy(root.clone())


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_predicted_actions_are_the_policys_step_by_step(memory):
    env = ArenaEnv(ROWS, seed=2, desynchronize=True, rules={"max_steps": 40})
    agent = make_agent(env, memory=memory)
    world = agent.attach(env)
    root, state, starts, chosen = world.reset(), None, None, []
    for _ in range(30):
        played = deterministic(agent, root)
        action, state = agent.predict(root["observation"].numpy(), state, starts)
        assert isinstance(action, np.ndarray) and action.dtype == np.int64 and action.shape == (ROWS,)
        assert action.tolist() == played["action"].tolist()
        chosen.append(action)
        stepped, root = world.step_and_maybe_reset(played)
        starts = stepped["next", "done"].squeeze(-1).numpy()
    assert (state is None) == (memory == "none")
    assert np.unique(chosen).size > 1


def test_where_an_episode_starts_nothing_is_remembered():
    env = ArenaEnv(ROWS, seed=2)
    agent = make_agent(env, memory="gru")
    seen = [env.rollout(3, break_when_any_done=False)["observation"][:, step] for step in range(3)]
    _, state = agent.predict(seen[0])
    starts = torch.arange(ROWS) % 2 == 0
    _, (kept,) = agent.predict(seen[1], state, starts)
    _, (fresh,) = agent.predict(seen[1])
    _, (going,) = agent.predict(seen[1], state)
    assert torch.equal(kept[starts], fresh[starts]) and torch.equal(kept[~starts], going[~starts])
    assert not torch.equal(kept[~starts], fresh[~starts])


def test_one_observation_gets_one_action_and_tensors_get_tensors():
    env = ArenaEnv(ROWS, seed=2)
    agent = make_agent(env, memory="gru")
    seen = env.reset()["observation"]
    actions, (state,) = agent.predict(seen)
    assert isinstance(actions, torch.Tensor) and actions.shape == (ROWS,)
    for row in range(ROWS):
        action, (one,) = agent.predict(seen[row].double().tolist())
        assert isinstance(action, np.ndarray) and action.shape == () and action == actions[row]
        torch.testing.assert_close(one[0], state[row])


def test_dicts_masks_and_several_agents():
    env = TownEnv(3, level="L6", observation="groups", seed=1)
    agent = make_agent(env, perception=PerceptionConfig(enabled=True))
    root = env.reset()
    expected, group = deterministic(agent, root)["agents", "action"].numpy(), root["agents"]
    masks = group["action_mask"].numpy()
    seen = {key: group[key].numpy() for key in agent.input_keys if key != "action_mask"}
    assert np.array_equal(agent.predict(seen, action_masks=masks)[0], expected)
    assert np.array_equal(agent.predict({**seen, "action_mask": masks})[0], expected)
    one = {key: value[1, 2] for key, value in seen.items()}
    assert agent.predict(one, action_masks=masks[1, 2])[0] == expected[1, 2]
    with pytest.raises(ValueError, match="give action_masks"):
        agent.predict(seen)
    with pytest.raises(ValueError, match="give a dict"):
        agent.predict(next(iter(seen.values())))


def test_continuous_actions_and_drawn_ones():
    torch.manual_seed(0)  # of other weights all actions may lie at the same bounds, drawn or not
    env = VectorGymEnv("Pendulum-v1", ROWS, device="cpu")
    env.set_seed(0)
    agent = make_agent(env)
    seen = env.reset()["observation"]
    expected = deterministic(agent, env.reset().set("observation", seen))["action"]
    assert torch.equal(agent.predict(seen)[0], expected)
    torch.manual_seed(3)
    drawn, _ = agent.predict(seen.numpy(), deterministic=False)
    torch.manual_seed(3)
    assert np.array_equal(drawn, agent.actor(env.reset().set("observation", seen))["action"].detach().numpy())
    assert drawn.shape == (ROWS, 1) and not np.array_equal(drawn, expected.numpy())


@pytest.mark.parametrize(
    ("observation", "state", "named"),
    [
        (np.zeros(5), None, r"observation has shape \(5,\) but this agent reads \(32,\)"),
        (np.zeros((2, 5)), None, "a batch of them"),
        ((np.zeros(32), {}), None, "first part"),
        ({"pixels": np.zeros(32)}, None, "lacks observation"),
        (np.zeros((2, 32)), (np.zeros((3, 1, 128)),), "3 rows"),
        (np.zeros((2, 32)), (), "0 parts"),
        (np.zeros((2, 32)), (np.zeros((2, 5)),), "memory 'hidden'"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(observation, state, named):
    with pytest.raises(ValueError, match=named):
        make_agent(ArenaEnv(1), memory="gru").predict(observation, state)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_stable_baselines_evaluates_our_agent(memory):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    from envs.adapters.sb3 import StableBaselinesVecEnv

    options = {"seed": 4, "rules": {"max_steps": 12}}
    agent = make_agent(ArenaEnv(1), memory=memory)
    worlds = StableBaselinesVecEnv(ArenaEnv(4, **options))
    worlds.seed(4)
    returns, lengths = evaluate_policy(agent, worlds, n_eval_episodes=4, return_episode_rewards=True)
    root, total = agent.attach(world := ArenaEnv(4, **options)).reset(), torch.zeros(4)
    assert lengths == [12] * 4
    env = agent.attach(world)
    for _ in range(12):
        stepped, root = env.step_and_maybe_reset(deterministic(agent, root))
        total += stepped["next", "reward"].squeeze(-1)
    assert sorted(returns) == pytest.approx(sorted(total.tolist()), abs=1e-4)
