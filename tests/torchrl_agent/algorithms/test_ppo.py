"""PPO's arithmetic by hand, and what it does when numbers go wrong."""

import math

import pytest
import torch
from by_hand import EAGER, frames, make_ppo, one_frame

from envs import ArenaEnv
from torchrl_agent import keys
from torchrl_agent.algorithms import actor_critic as actor_critic_module
from torchrl_agent.algorithms.ppo import PPO, PPOConfig
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.optimization.schedules import LearningRateConfig
from torchrl_agent.training.collector import RolloutCollector
from torchrl_agent.training.metrics import to_host

EAGER_WORDS = ["device=cpu", *(f"acceleration.{part}=false" for part in ("step", "advantages", "update"))]


def hand_made_rollout():
    """Two worlds, four steps: the first terminates at its second step, the second is truncated there."""
    rollout = frames(
        observation=[[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [4.0, 8.0]],
        action=[[0, 1], [1, 1], [0, 0], [1, 0]],
        action_log_prob=[[math.log(0.25), math.log(0.75)]] * 4,
    )
    rollout["next"] = frames(
        observation=[[2.0, 4.0], [9.0, 10.0], [4.0, 8.0], [6.0, 0.0]],  # 9 and 10 are true last observations
        reward=[[1.0, 0.0], [5.0, 1.0], [3.0, 0.0], [4.0, 2.0]],
        done=[[False, False], [True, True], [False, False], [False, False]],
        terminated=[[False, False], [True, False], [False, False], [False, False]],
    )
    return rollout


ADVANTAGES = [
    # world 0: deltas 1 + .5*2 - 1 = 1, 5 - 2 = 3, 3 + .5*4 - 3 = 2, 4 + .5*6 - 4 = 3
    # world 1: deltas 0 + .5*4 - 2 = 0, 1 + .5*10 - 4 = 2, 0 + .5*8 - 6 = -2, 2 + 0 - 8 = -6
    [1 + 0.25 * 3, 0 + 0.25 * 2],
    [3, 2],
    [2 + 0.25 * 3, -2 + 0.25 * -6],
    [3, -6],
]
VALUES = [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0], [4.0, 8.0]]


# --- advantages


def test_advantages_by_hand_truncation_bootstraps_from_the_true_last_observation_termination_does_not():
    data, _ = make_ppo(2, 4, gamma=0.5, lmbda=0.5).advantages(hand_made_rollout())
    assert data.shape == (8,)
    torch.testing.assert_close(data["state_value"].reshape(4, 2), torch.tensor(VALUES))
    torch.testing.assert_close(data["advantage"].reshape(4, 2), torch.tensor(ADVANTAGES))
    torch.testing.assert_close(data["value_target"].reshape(4, 2), torch.tensor(ADVANTAGES) + torch.tensor(VALUES))


def test_advantages_see_scaled_rewards():
    scaled = make_ppo(2, 4, gamma=0.5, lmbda=0.0, scale_rewards=True)
    data, _ = scaled.advantages(hand_made_rollout())
    # running returns: 1, 5.5, then anew 3, 5.5; 0, 1, then anew 0, 2
    returns = torch.tensor([1.0, 5.5, 3.0, 5.5, 0.0, 1.0, 0.0, 2.0])
    deviation = returns.std(correction=0)
    # with lambda 0, the terminated frame's advantage is its scaled reward minus its value
    expected = 5.0 / deviation - 2.0
    torch.testing.assert_close(data["advantage"].reshape(4, 2)[1, 0], expected, rtol=1e-3, atol=1e-3)


def test_the_critic_may_evaluate_in_pieces(monkeypatch):
    whole, _ = make_ppo(2, 4).advantages(hand_made_rollout())
    monkeypatch.setattr(actor_critic_module, "FRAMES_AT_ONCE", 3)
    pieces, _ = make_ppo(2, 4).advantages(hand_made_rollout())
    torch.testing.assert_close(pieces["advantage"], whole["advantage"])


def test_explained_variance_is_that_of_the_critic_before_the_update():
    ppo = make_ppo(2, 4, gamma=0.5, lmbda=0.5, num_epochs=8)
    metrics = ppo.learn(hand_made_rollout(), 0.5)
    residual, values = torch.tensor(ADVANTAGES), torch.tensor(VALUES)
    expected = 1 - residual.var(correction=0) / (residual + values).var(correction=0)
    torch.testing.assert_close(metrics["explained_variance"], expected)
    after = ppo.agent.critic(frames(observation=[1.0]))["state_value"].item()
    assert abs(after - 1.0) > 0.1  # the update did change the critic


def test_the_dead_explain_nothing():
    ppo, rollout = make_ppo(2, 4, gamma=0.5, lmbda=0.5), hand_made_rollout()
    rollout[keys.ALIVE] = alive = torch.tensor([[True, True], [True, True], [True, False], [True, False]])
    _, found = ppo.advantages(rollout)
    residual, values = torch.tensor(ADVANTAGES)[alive], torch.tensor(VALUES)[alive]
    expected = 1 - residual.var(correction=0) / (residual + values).var(correction=0)
    torch.testing.assert_close(found["explained_variance"], expected)


# --- learning from real rollouts


def arena(num_envs=8, steps=16, **changes):
    """Agent, collector and PPO on a small Arena."""
    torch.manual_seed(0)
    env = ArenaEnv(num_envs, desynchronize=True)
    agent = Agent(env, ModelConfig([16]))
    config = PPOConfig(rollout_steps=steps, **{"minibatch_size": num_envs * steps, "num_epochs": 1, **changes})
    return PPO(agent, config, num_envs, EAGER), RolloutCollector(env, agent, steps, EAGER)


def weights(ppo):
    return torch.cat([parameter.detach().flatten() for parameter in ppo.updater.parameters]).clone()


def test_the_first_minibatch_has_ratio_one_whatever_the_normalizer_has_learned():
    ppo, collector = arena()
    for _ in range(3):
        metrics = to_host(ppo.learn(collector.collect(), 1e-2))
        assert metrics["min_ratio"] == pytest.approx(1.0, abs=1e-5)
        assert metrics["max_ratio"] == pytest.approx(1.0, abs=1e-5)
        assert metrics["kl"] == pytest.approx(0.0, abs=1e-6)
        assert metrics["clip_fraction"] == 0.0
    assert ppo.agent.normalizer.running.count.item() == pytest.approx(3 * 128, abs=0.01)


FEW_FRAMES = ("world.num_envs=16", "algorithm.rollout_steps=8", "algorithm.minibatch_size=32", "algorithm.num_epochs=1")


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("config", "settings"),
    [("smoke", ()), ("smoke", ("policy=gru",)), ("known/pendulum", ())],
    ids=["plain", "memory", "continuous"],
)
def test_without_learning_every_ratio_is_one_in_every_precision(config, settings, precision):
    learner = Experiment.load(
        config, "device=cpu", *FEW_FRAMES, *settings, f"algorithm.precision={precision}"
    ).make_learner()
    for _ in range(2):  # in the second, normalization and memories are not what they began as
        metrics = learner.improve(learner.collector.collect(), 0.0)
        assert metrics["updates"] > 0
        found = [metrics[name].item() for name in ("min_ratio", "max_ratio", "kl")]
        # some CPUs sum rows of 16 and of 32 in other orders: up to 4e-7; a rollout in another precision is 6e-6 off or
        # more in the second iteration
        assert found == pytest.approx([1, 1, 0], abs=1e-6)


def test_minibatches_cover_each_frame_exactly_once_per_epoch_in_new_order():
    ppo, collector = arena(minibatch_size=32, num_epochs=2)
    rollout = collector.collect()
    update, seen = ppo.updater.update, []
    ppo.updater.update = lambda minibatch: (seen.append(minibatch["action_log_prob"].clone()), update(minibatch))[1]
    metrics = to_host(ppo.learn(rollout, 1e-3))
    assert [batch.numel() for batch in seen] == [32] * 8
    expected = rollout["action_log_prob"].flatten().sort().values
    first, second = torch.cat(seen[:4]), torch.cat(seen[4:])
    assert torch.equal(first.sort().values, expected)
    assert torch.equal(second.sort().values, expected)
    assert not torch.equal(first, second)
    assert expected.unique().numel() > 100  # frames can be distinguished by it
    assert metrics["updates"] == 8


def test_the_entropy_bonus_moves_to_its_final_weight():
    ppo, collector = arena(entropy_coeff=0.1, final_entropy_coeff=0.02)
    rows = collector.collect()
    for progress, weight in ((0.0, 0.1), (0.25, 0.08), (1.0, 0.02), (1.1, 0.02)):
        ppo.anneal(progress)
        metrics = ppo.learn(rows, 0.0)
        assert metrics["loss_entropy"].item() == pytest.approx(-weight * metrics["entropy"].item(), rel=1e-5)
    constant, _ = arena(entropy_coeff=0.1)
    constant.anneal(1.0)
    assert constant.loss.objective.entropy_coeff == pytest.approx(0.1)


@pytest.mark.parametrize(("schedule", "middle"), [("linear", 0.15), ("exponential", 0.02**0.5), ("cosine", 0.15)])
def test_the_clipping_range_moves_to_its_final_width(schedule, middle):
    ppo, collector = arena(clip_epsilon=0.2, final_clip_epsilon=0.1, clip_schedule=schedule)
    rows = collector.collect()
    for progress, width in ((0.0, 0.2), (0.5, middle), (1.0, 0.1), (1.1, 0.1)):
        ppo.anneal(progress)
        assert ppo.learn(rows, 0.0)["clip_range"].item() == pytest.approx(width)
    constant, _ = arena(clip_epsilon=0.3)
    constant.anneal(1.0)
    assert constant.loss.objective.clip_epsilon == pytest.approx(0.3)


def test_an_exponential_clipping_range_needs_an_end_above_0():
    with pytest.raises(ValueError, match=r"give algorithm\.final_clip_epsilon above 0"):
        arena(final_clip_epsilon=0.0, clip_schedule="exponential")


def test_a_learner_says_how_far_it_is():
    learner = Experiment.load(
        "smoke", *EAGER_WORDS, "algorithm.entropy_coeff=0.1", "algorithm.final_entropy_coeff=0.0", "total_frames=1000"
    ).make_learner()
    learner.frames = 250
    learner.improve(learner.collector.collect(), 1e-3)
    assert learner.algorithm.loss.objective.entropy_coeff == pytest.approx(0.075)


def test_diagnostics_are_device_scalars():
    ppo, collector = arena(num_epochs=2, minibatch_size=32)
    metrics = ppo.learn(collector.collect(), 1e-3)
    assert all(isinstance(value, torch.Tensor) and value.shape == () for value in metrics.values())
    assert all(math.isfinite(value) for value in to_host(metrics).values())


# --- when numbers go wrong


def refuse_fused(monkeypatch):
    adam = torch.optim.Adam

    def refusing(*args, fused=None, **kwargs):
        if fused:
            raise RuntimeError("`fused=True` is not for this device")
        return adam(*args, **kwargs)

    monkeypatch.setattr(torch.optim, "Adam", refusing)


def test_adam_falls_back_to_foreach_and_learns_the_same(monkeypatch):
    results = []
    for fallback in (False, True):
        if fallback:
            refuse_fused(monkeypatch)
        ppo, collector = arena(minibatch_size=32, num_epochs=2)
        assert ppo.updater.fused == (not fallback)
        before = weights(ppo)
        for rate in (1e-2, 1e-3):
            metrics = to_host(ppo.learn(collector.collect(), rate))
        assert metrics["learning_rate"] == pytest.approx(1e-3)
        assert (weights(ppo) - before).abs().max() > 1e-2
        results.append(weights(ppo))
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)


def test_only_the_minibatch_with_the_bad_frame_is_skipped():
    ppo, collector = arena(minibatch_size=32)
    bad = collector.collect().clone()
    bad["action_log_prob"][3, 2] = math.nan
    metrics = to_host(ppo.learn(bad, 1e-2))
    assert (metrics["updates"], metrics["skipped"]) == (3, 1)
    means = ("loss_objective", "loss_critic", "kl", "entropy", "grad_norm")
    assert all(math.isfinite(metrics[name]) for name in means)  # means over the updates made


def test_the_target_kl_stops_the_updates_of_an_iteration():
    ppo, collector = arena(minibatch_size=32, num_epochs=4, target_kl=1e-4)
    update, history = ppo.updater.update, []
    ppo.updater.update = lambda minibatch: (update(minibatch), history.append(weights(ppo)))[0]
    metrics = to_host(ppo.learn(collector.collect(), 1e-2))
    made = int(metrics["updates"])
    assert 1 <= made < 4
    assert len(history) == 4  # the first epoch is finished on the device, without effect; no other begins
    assert all(torch.equal(later, history[made - 1]) for later in history[made:])
    assert metrics["skipped"] == 0
    assert ppo.learn(collector.collect(), 1e-2)["updates"] >= 1  # the next iteration learns again


@pytest.mark.parametrize("target_kl", [None, 1e-4])
def test_an_iteration_of_ones_own_is_called(target_kl):
    class Own(PPO):
        def improve(self, rollout):
            return {**super().improve(rollout), "own": torch.ones(())}

    ppo, collector = arena(minibatch_size=32, num_epochs=2, target_kl=target_kl)
    own = Own(ppo.agent, ppo.config, ppo.rows, ppo.acceleration)
    for _ in range(2):
        found = own.learn(collector.collect(), 1e-2)
        assert found["own"] == 1 and found["updates"] >= 1


@pytest.mark.parametrize(("factor", "made"), [(1.4, 1.0), (1.6, 0.0)])
def test_an_update_is_made_up_to_one_and_a_half_times_the_target_kl(factor, made):
    kl = 1.5 - 1 - math.log(1.5)  # of the ratio 0.75 / 0.5
    ppo = make_ppo(target_kl=kl / factor)
    assert ppo.updater.update(one_frame(1, 0.5, 1.0))["made"].item() == made


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_learns_with_weights_in_full_precision(precision):
    ppo, collector = arena(precision=precision, num_epochs=2)
    before = weights(ppo)
    for _ in range(2):
        metrics = to_host(ppo.learn(collector.collect(), 1e-3))
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["updates"] >= 1
    assert weights(ppo).dtype == torch.float32
    assert weights(ppo).isfinite().all()
    assert not torch.equal(weights(ppo), before)


@pytest.mark.parametrize(("precision", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_networks_compute_in_the_precision_asked_for(precision, dtype):
    ppo, collector = arena(precision=precision)
    data, _ = ppo.advantages(collector.collect())
    seen = set()
    for module in ppo.agent.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    ppo.updater.update(data)
    assert seen == {dtype}


# --- hyper-parameters


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_what_fills_up_the_last_minibatch_counts_nothing(memory):
    after = []
    for shorter in (False, True):
        torch.manual_seed(0)
        env = ArenaEnv(8, desynchronize=True)
        agent = Agent(env, ModelConfig([16], memory=memory))
        config = PPOConfig(rollout_steps=16, minibatch_size=48, num_epochs=2, normalize_advantage=False)
        ppo = PPO(agent, config, 8, EAGER)
        rollout = RolloutCollector(agent.attach(env), agent, 16, EAGER).collect()
        if shorter:  # the oracle: minibatches of 48, 48 and 32 frames
            ppo.fills_up = False
        assert ppo.learn(rollout, 1e-2)["updates"] == 6
        after.append(weights(ppo))
    torch.testing.assert_close(*after, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [64, 128, 512])
def test_a_minibatch_holds_the_frames_of_a_rollout_at_most(size):
    ppo, collector = arena(minibatch_size=size)
    assert ppo.drawn_at_once == min(size, 128) and not ppo.fills_up
    assert ppo.learn(collector.collect(), 1e-3)["updates"] == 128 / min(size, 128)


def test_an_adaptive_rate_moves_with_every_update_and_goes_on_from_where_it_was():
    rate = LearningRateConfig(1e-3, schedule="adaptive")  # never reached: the rate rises
    ppo, collector = arena(minibatch_size=32, num_epochs=1, learning_rate=rate, adaptive_kl=1e3)
    rollout = collector.collect()
    updates = rollout.numel() // 32
    metrics = ppo.learn(rollout, 1e-3)
    expected = min(1e-2, 1e-3 * 1.5**updates)
    assert metrics["learning_rate"].item() == pytest.approx(expected, rel=1e-5)
    assert ppo.updater.optimizer.param_groups[0]["lr"].item() == pytest.approx(expected, rel=1e-5)
    other, _ = arena(minibatch_size=32, num_epochs=1, learning_rate=rate)
    other.load_state_dict(ppo.state_dict())
    assert other.updater.adaptive.factor.item() == ppo.updater.adaptive.factor.item() > 1


@pytest.mark.parametrize("algorithm", ["a2c", "dqn", "impala", "sac"])
def test_who_measures_no_divergence_has_no_adaptive_rate(algorithm):
    experiment = Experiment.load("smoke", f"algorithm={algorithm}", "algorithm.learning_rate.schedule=adaptive")
    with pytest.raises(ValueError, match="use algorithm=ppo, or another schedule"):
        experiment.make_learner()
