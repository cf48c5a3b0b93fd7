"""What is minimized: each objective's arithmetic by hand, and equal to TorchRL's where every frame counts."""

import ast
import dataclasses
import inspect
import math

import pytest
import torch
from by_hand import EAGER, frames, make_ppo, one_frame, played, simple_agent, with_gradients
from torchrl.objectives import A2CLoss, ClipPPOLoss

from torchrl_agent import keys
from torchrl_agent.algorithms import actor_critic, impala, ppo
from torchrl_agent.algorithms.a2c import A2C, A2CConfig
from torchrl_agent.algorithms.impala import IMPALA, IMPALAConfig
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.core import ranks
from torchrl_agent.losses import dqn as action_value_objective
from torchrl_agent.losses import policy_gradient as objectives
from torchrl_agent.optimization import updater as updates

# --- PPO by hand


@pytest.mark.parametrize(
    ("epsilon", "action", "advantage", "loss", "learns"),
    [
        (0.2, 1, 2.0, -2.4, False),  # ratio 0.75 / 0.5 = 1.5: min(1.5 * 2, 1.2 * 2)
        (0.1, 1, 2.0, -2.2, False),  # min(1.5 * 2, 1.1 * 2)
        (0.2, 1, -2.0, 3.0, True),  # min(1.5 * -2, 1.2 * -2)
        (0.2, 0, 2.0, -1.0, True),  # ratio 0.25 / 0.5 = 0.5: min(0.5 * 2, 0.8 * 2)
        (0.2, 0, -2.0, 1.6, False),  # min(0.5 * -2, 0.8 * -2)
    ],
)
def test_clipped_objective_by_hand(epsilon, action, advantage, loss, learns):
    ppo = make_ppo(clip_epsilon=epsilon, entropy_coeff=0.0)
    losses = ppo.loss(one_frame(action, 0.5, advantage))
    assert losses["loss_objective"].item() == pytest.approx(loss, rel=1e-5)
    assert losses["clip_fraction"].item() == 1.0
    losses["loss_objective"].backward()
    gradient = sum(p.grad.abs().sum().item() for p in ppo.agent.actor.parameters() if p.grad is not None)
    assert (gradient > 0) == learns


def test_within_the_clip_the_objective_is_ratio_times_advantage():
    ppo = make_ppo(clip_epsilon=0.2, entropy_coeff=0.0)
    losses = ppo.loss(one_frame(1, 0.7, 2.0))
    assert losses["loss_objective"].item() == pytest.approx(-2.0 * 0.75 / 0.7, rel=1e-5)
    assert losses["clip_fraction"].item() == 0.0
    ratio = 0.75 / 0.7
    assert losses["kl"].item() == pytest.approx(ratio - 1 - math.log(ratio), abs=1e-6)


def test_entropy_and_critic_losses_by_hand():
    losses = make_ppo(entropy_coeff=0.1, critic_coeff=0.5).loss(one_frame(1, 0.75, 0.0, value=3.0, target=7.0))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert losses["entropy"].item() == pytest.approx(entropy, rel=1e-5)
    assert losses["loss_entropy"].item() == pytest.approx(-0.1 * entropy, rel=1e-5)
    assert losses["loss_critic"].item() == pytest.approx(0.5 * 16.0, rel=1e-5)


@pytest.mark.parametrize(
    ("target", "clip_value", "squared_error"),
    [
        (2.0, None, 1.0),
        (2.0, 0.5, 1.0),  # V is 3, clipped to 1.5: max((3 - 2)^2, (1.5 - 2)^2)
        (3.0, 0.5, 2.25),  # max(0, (1.5 - 3)^2)
        (3.0, 5.0, 0.0),  # within the range nothing is clipped
    ],
)
def test_value_clipping_by_hand(target, clip_value, squared_error):
    ppo = make_ppo(clip_value=clip_value, critic_coeff=0.5)
    losses = ppo.loss(one_frame(1, 0.75, 0.0, value=3.0, target=target, old_value=1.0))
    assert losses["loss_critic"].item() == pytest.approx(0.5 * squared_error, abs=1e-6)


def test_advantages_are_normalized_in_each_minibatch_if_asked():
    batch = frames(
        observation=[1.0] * 4,
        action=[1] * 4,
        action_log_prob=[math.log(0.75)] * 4,
        advantage=[10.0, 20.0, 30.0, 40.0],
        value_target=[1.0] * 4,
        state_value=[1.0] * 4,
    )
    assert make_ppo(4, normalize_advantage=False).loss(batch)["loss_objective"].item() == pytest.approx(-25.0, rel=1e-5)
    assert make_ppo(4, normalize_advantage=True).loss(batch)["loss_objective"].item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("advantage", [-1.0, 1.0])
@pytest.mark.parametrize("old_log_prob", [-200.0, 200.0, -1e30])
def test_absurd_log_ratios_stay_finite(old_log_prob, advantage):
    ppo = make_ppo()
    batch = one_frame(1, 0.5, advantage)
    batch["action_log_prob"].fill_(old_log_prob)
    losses = ppo.loss(batch)
    assert all(value.isfinite().all() for value in losses.values())
    sum(losses[key] for key in losses.keys() if key.startswith("loss_")).backward()
    assert all(p.grad.isfinite().all() for p in ppo.updater.parameters if p.grad is not None)


def test_frames_of_the_dead_count_in_no_diagnostic():
    ppo = make_ppo(num_envs=2)
    data = frames(
        observation=[1.0, 5.0],
        action=[1, 0],
        action_log_prob=[math.log(0.75), -9.0],  # the second one's is far off
        advantage=[1.0, 0.0],
        state_value=[1.0, 5.0],
        value_target=[1.0, 5.0],
    )
    data[keys.VALID] = torch.tensor([True, False])
    found = ppo.loss(data)
    assert (found["max_ratio"].item(), found["min_ratio"].item()) == pytest.approx((1, 1))
    assert found["kl"].item() == pytest.approx(0, abs=1e-6)
    assert found["clip_fraction"].item() == 0
    assert found["entropy"].item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4), rel=1e-5)


# --- A2C by hand


def test_the_policy_gradient_critic_and_entropy_by_hand():
    a2c = A2C(simple_agent(), A2CConfig(entropy_coeff=0.1, critic_coeff=0.5), 1, EAGER)
    batch = frames(observation=[3.0, 1.0], action=[1, 0], action_log_prob=[0.0, 0.0])
    batch.update(frames(advantage=[2.0, -1.0], value_target=[7.0, 1.0]))
    losses = a2c.loss(batch)
    objective = -(math.log(0.75) * 2 + math.log(0.25) * -1) / 2  # what played does not matter
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert losses["loss_objective"].item() == pytest.approx(objective, rel=1e-5)
    assert losses["loss_critic"].item() == pytest.approx(0.5 * (16 + 0) / 2, rel=1e-5)
    assert losses["entropy"].item() == pytest.approx(entropy, rel=1e-5)
    assert losses["loss_entropy"].item() == pytest.approx(-0.1 * entropy, rel=1e-5)


def test_the_entropy_is_reported_also_where_its_coefficient_is_0():
    losses = A2C(simple_agent(), A2CConfig(entropy_coeff=0.0), 1, EAGER).loss(one_frame(1, 0.5, 2.0))
    assert losses["entropy"].item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4), rel=1e-5)
    assert losses["loss_entropy"] == 0


# --- V-trace by hand


def v_trace_by_definition(rewards, values, following, ratios, done, terminated, gamma, rho_clip, c_clip):
    """Targets and advantages of one sequence, each as the sum of equation 1 in Espeholt et al. 2018."""
    length = len(rewards)
    rho, c = [min(rho_clip, ratio) for ratio in ratios], [min(c_clip, ratio) for ratio in ratios]
    bootstrap = [0.0 if terminated[t] else following[t] for t in range(length)]
    delta = [rho[t] * (rewards[t] + gamma * bootstrap[t] - values[t]) for t in range(length)]
    targets = []
    for s in range(length):
        total, trace = values[s], 1.0
        for t in range(s, length):
            total += trace * delta[t]
            if done[t]:
                break
            trace *= gamma * c[t]
        targets.append(total)
    after = [bootstrap[t] if done[t] or t == length - 1 else targets[t + 1] for t in range(length)]
    return targets, [rho[t] * (rewards[t] + gamma * after[t] - values[t]) for t in range(length)]


def test_v_trace_by_hand():
    impala = IMPALA(simple_agent(), IMPALAConfig(gamma=0.5, num_minibatches=1, rho_clip=2.0), 1, EAGER)
    values, rewards = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 5.0, 3.0, 4.0, 2.0]
    bootstrap = [50.0, 9.0, 50.0, 10.0, 6.0]  # 50 where the next frame's value counts instead
    done, terminated = [False, True, False, True, False], [False, True, False, False, False]
    actions, probabilities = [1, 0, 1, 1, 0], [0.5, 0.5, 0.75, 0.25, 0.25]
    sequence = frames(observation=[values], action=[actions], action_log_prob=[[math.log(p) for p in probabilities]])
    sequence.update(
        frames(
            controller_reward=[rewards],
            controller_done=[done],
            controller_terminated=[terminated],
            bootstrap_value=[bootstrap],
        )
    )
    log_prob = torch.tensor([[0.25, 0.75]])[0, actions].log().reshape(1, -1, 1)
    encoded = impala.agent.encoder(sequence.copy())
    log_ratio, seen, advantage, target = impala.loss.objective.advantages(encoded, log_prob)
    ratios = [1.5, 0.5, 1.0, 3.0, 1.0]  # of (1/4, 3/4) to what played
    following = [2.0, 9.0, 4.0, 10.0, 6.0]
    targets, advantages = v_trace_by_definition(
        rewards, values, following, ratios, done, terminated, gamma=0.5, rho_clip=2.0, c_clip=1.0
    )
    # the first two by hand: delta 1.5 * (1 + 1 - 1) = 1.5 and 0.5 * (5 - 2) = 1.5, so 1 + 1.5 + 0.5 * 1 * 1.5 and 3.5
    assert targets[:2] == pytest.approx([3.25, 3.5])
    assert advantages[0] == pytest.approx(1.5 * (1 + 0.5 * 3.5 - 1))
    torch.testing.assert_close(log_ratio.exp().flatten(), torch.tensor(ratios))
    torch.testing.assert_close(seen.flatten(), torch.tensor(values))
    torch.testing.assert_close(target.flatten(), torch.tensor(targets))
    torch.testing.assert_close(advantage.flatten(), torch.tensor(advantages))


# --- beside TorchRL's own


@pytest.mark.parametrize("clip_value", [None, 0.3])
def test_ppo_is_torchrls_where_every_frame_counts(clip_value):
    agent, rollout = played()
    config = PPOConfig(rollout_steps=16, minibatch_size=128, clip_value=clip_value)
    ppo = PPO(agent, config, 8, EAGER)
    data, _ = ppo.advantages(rollout)
    data[keys.VALUE] += 0.5 * torch.randn_like(data[keys.VALUE])
    theirs = ClipPPOLoss(
        agent.actor,
        agent.critic,
        entropy_coeff=config.entropy_coeff,
        critic_coeff=config.critic_coeff,
        loss_critic_type="l2",
        normalize_advantage=True,
        functional=False,
        clip_value=clip_value,
    )
    expected, gradients = with_gradients(theirs, data.copy(), agent)
    found, own = with_gradients(ppo.loss, data.copy(), agent)
    assert found["clip_fraction"] > 0.1
    clipped = [] if clip_value is None else ["value_clip_fraction"]
    for name in ("loss_objective", "loss_critic", "loss_entropy", "entropy", "clip_fraction", "max_ratio", *clipped):
        assert found[name] == expected[name], name  # to the last bit
    torch.testing.assert_close(own, gradients)


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("clip_value", [None, 0.3])
def test_the_clipped_loss_takes_the_place_of_the_one_that_it_is_derived_from(clip_value, normalize):
    """In one object: its forward beside that of its parent, which TorchRL wrote, with tensors by name as well."""
    agent, rollout = played()
    data, _ = PPO(agent, PPOConfig(rollout_steps=16, minibatch_size=128), 8, EAGER).advantages(rollout)
    data[keys.VALUE] += 0.5 * torch.randn_like(data[keys.VALUE])
    settings = {"clip_value": clip_value, "normalize_advantage": normalize, "critic_coeff": 0.5, "entropy_coeff": 0.02}
    loss = objectives.PPOLoss(agent.actor, agent.critic, clip_epsilon=0.1, **settings)
    found, expected = loss(data.copy()), ClipPPOLoss.forward(loss, data.copy())
    for name in ("loss_objective", "loss_critic", "loss_entropy", "clip_fraction"):
        assert found[name] == expected[name], name
    named = loss(**{key: data[key] for key in loss.in_keys})
    assert named == tuple(found[name] for name in loss.out_keys)


def test_a_critic_whose_loss_has_no_weight_is_still_judged():
    agent, rollout = played()
    data, _ = PPO(agent, PPOConfig(rollout_steps=16, minibatch_size=128), 8, EAGER).advantages(rollout)
    found = objectives.PPOLoss(agent.actor, agent.critic, critic_coeff=0.0)(data)
    assert found["loss_critic"] == 0 and found["scaled_value_loss"] > 0


def test_the_policy_gradient_is_torchrls_where_every_frame_counts():
    agent, rollout = played()
    config = A2CConfig(rollout_steps=16)
    a2c = A2C(agent, config, 8, EAGER)
    data, _ = a2c.advantages(rollout)
    coefficients = {"entropy_coeff": config.entropy_coeff, "critic_coeff": config.critic_coeff}
    theirs = A2CLoss(agent.actor, agent.critic, **coefficients, loss_critic_type="l2", functional=False)
    expected, gradients = with_gradients(theirs, data.copy(), agent)
    found, own = with_gradients(a2c.loss, data.copy(), agent)
    for name in ("loss_objective", "loss_critic", "loss_entropy", "entropy"):
        assert found[name] == expected[name], name
    torch.testing.assert_close(own, gradients)


def test_impala_is_torchrls_policy_gradient_with_v_traces_advantages():
    agent, rollout = played()
    config = IMPALAConfig(rollout_steps=16, num_minibatches=1)
    impala = IMPALA(agent, config, 8, EAGER)
    data = impala.sequences(rollout)
    log_prob = agent.actor.get_dist(data.copy()).log_prob(data["action"]).unsqueeze(-1).detach()
    log_ratio, _, advantage, target = impala.loss.objective.advantages(agent.encoder(data.copy()), log_prob)
    given = data.copy().update({"advantage": advantage, "value_target": target})
    coefficients = {"entropy_coeff": config.entropy_coeff, "critic_coeff": config.critic_coeff}
    theirs = A2CLoss(agent.actor, agent.critic, **coefficients, loss_critic_type="l2", functional=False)
    expected, gradients = with_gradients(theirs, given, agent)
    found, own = with_gradients(impala.loss, data.copy(), agent)
    for name in ("loss_objective", "loss_critic", "loss_entropy", "entropy"):
        assert found[name] == expected[name], name
    assert (found["max_ratio"], found["min_ratio"]) == (log_ratio.exp().max(), log_ratio.exp().min())
    torch.testing.assert_close(own, gradients)


@pytest.mark.parametrize("old_log_prob", [-200.0, 200.0, -1e30])
def test_absurd_log_ratios_stay_finite_in_v_trace(old_log_prob):
    """Without a largest importance weight too."""
    agent, rollout = played()
    impala = IMPALA(agent, IMPALAConfig(rollout_steps=16, num_minibatches=1, rho_clip=math.inf), 8, EAGER)
    data = impala.sequences(rollout)
    data["action_log_prob"].fill_(old_log_prob)
    found = impala.loss(data)
    assert all(value.isfinite().all() for value in found.values())
    assert math.exp(-20) <= found["min_ratio"] * 1.0001
    assert found["max_ratio"] <= math.exp(20) * 1.0001


# --- frames that do not count


@pytest.mark.parametrize(
    ("kind", "config"), [(PPO, PPOConfig(minibatch_size=128, normalize_advantage=False)), (A2C, A2CConfig())]
)
def test_what_does_not_count_might_as_well_not_be_there(kind, config):
    agent, rollout = played()
    config = dataclasses.replace(config, rollout_steps=16)
    algorithm = kind(agent, config, 8, EAGER)
    data, _ = algorithm.advantages(rollout)
    counted = torch.rand(data.shape) < 0.6
    expected, gradients = with_gradients(algorithm.loss, data[counted], agent)
    nonsense = data.copy().set(keys.VALID, counted)
    for key in (keys.LOG_PROB, keys.ADVANTAGE, keys.VALUE_TARGET):
        nonsense[key] = torch.where(counted.view(-1, *[1] * (nonsense[key].ndim - 1)), nonsense[key], -1e3)
    found, own = with_gradients(algorithm.loss, nonsense, agent)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)
    torch.testing.assert_close(own, gradients)


@pytest.mark.parametrize(
    ("module", "private"),
    [
        (objectives, {"_maybe_normalize_advantage"}),
        (action_value_objective, set()),
        (ranks, set()),
        (updates, {"_foreach_norm", "_foreach_mul_", "_foreach_copy_"}),
        (actor_critic, set()),
        (ppo, set()),
        (impala, set()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_these_are_the_private_names_of_other_libraries_on_a_rewards_way(module, private):
    """Whoever needs another one adds it here, so that it is known what may break when a library moves."""
    tree = ast.parse(inspect.getsource(module))
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    used |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name for name in used if name.startswith("_")} - own == private
