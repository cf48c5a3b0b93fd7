"""What every algorithm promises: arithmetic by hand, resuming, groups, compiling, learning, one sentence for errors."""

import copy
import math

import pytest
import torch
from kinds import uncompiled
from launching import play, smoke, weights
from torch._dynamo.utils import counters

from torchrl_agent import Experiment, cli, evaluate, learn, load_agent
from torchrl_agent.algorithms.registry import ALGORITHMS, class_path, find_algorithm
from torchrl_agent.core.checkpoint import CheckpointError
from torchrl_agent.training.metrics import to_host

OTHERS = ("a2c", "impala", "dqn", "sac")
SHORT = (  # several updates, refreshes and a full replay within the 2048 frames of the smoke configuration
    "world.num_envs=64",
    "world.rules={max_steps: 20}",  # episodes begin and end
    "tuned.a2c.rollout_steps=4",
    "tuned.impala={rollout_steps: 4, refresh_every: 3}",
    "tuned.dqn={rollout_steps: 4, learning_starts: 256, batch_size: 128, replay_size: 1024}",
    "tuned.sac={rollout_steps: 4, learning_starts: 256, batch_size: 128, replay_size: 1024}",
)


# --- A2C


def test_a2c_learns_once_from_each_rollout():
    learner = Experiment.load("smoke", "algorithm=a2c", "device=cpu").make_learner()
    metrics = to_host(learner.improve(learner.collector.collect(), 1e-3))
    assert metrics["updates"] == 1


def test_a2c_teaches_modules_by_other_frames_each_time():
    """The first of a draw, of which there is one."""
    whole, share = (
        Experiment.load("smoke", "algorithm=a2c", f"model.auxiliary_fraction={share}", "device=cpu")
        .make_learner()
        .algorithm
        for share in (1.0, 0.25)
    )
    assert list(whole.draws(64)) == [slice(None)]
    (one,), (other,) = share.draws(64), share.draws(64)
    assert one.sort().values.tolist() == other.sort().values.tolist() == list(range(64))
    assert one[:16].tolist() != other[:16].tolist()


def test_a2c_learns_from_shares_of_a_rollout_each_frame_once():
    learner = Experiment.load("smoke", "algorithm=a2c", "algorithm.num_minibatches=4", "device=cpu").make_learner()
    seen, update = [], learner.algorithm.updater.update
    learner.algorithm.updater.update = lambda part: (seen.append(part["observation"]), update(part))[1]
    rollout = learner.collector.collect()
    assert to_host(learner.improve(rollout, 1e-3))["updates"] == 4
    assert [len(part) for part in seen] == [8 * 16 // 4] * 4
    learned, played = torch.cat(seen).sum(-1), rollout["observation"].reshape(8 * 16, -1).sum(-1)
    torch.testing.assert_close(learned.sort().values, played.sort().values)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a2cs_optimizers_learn_and_skip_what_is_not_finite(optimizer):
    learner = Experiment.load("smoke", "algorithm=a2c", f"algorithm.optimizer={optimizer}", "device=cpu").make_learner()
    assert type(learner.algorithm.updater.optimizer).__name__.lower() == optimizer
    rollout, before = learner.collector.collect(), weights(learner.agent.actor_head)
    bad = rollout.clone()
    bad["next", "reward"][0, 0] = math.nan
    learner.algorithm.scaler.enabled = False
    assert to_host(learner.improve(bad, 1e-2))["skipped"] == 1
    assert torch.equal(weights(learner.agent.actor_head), before)
    learner.improve(rollout, 0.0)
    assert torch.equal(weights(learner.agent.actor_head), before)  # the learning rate given is the one used
    learner.improve(rollout, 1e-2)
    assert not torch.equal(weights(learner.agent.actor_head), before)


def test_rmsprop_forgets_at_the_rate_asked_for():
    changes = ["algorithm.optimizer=rmsprop", "algorithm.rmsprop_decay=0.9"]
    learner = Experiment.load("smoke", "algorithm=a2c", *changes, "device=cpu").make_learner()
    learner.improve(learner.collector.collect(), 1e-2)
    for parameter in learner.algorithm.updater.parameters:  # after one update: 0.9 * 0 + 0.1 * g^2
        kept = learner.algorithm.updater.optimizer.state[parameter]["square_avg"]
        torch.testing.assert_close(kept, 0.1 * parameter.grad.square())


def test_rmsprop_has_no_decoupled_decay():
    changes = ["algorithm.optimizer=rmsprop", "algorithm.weight_decay=0.01"]
    with pytest.raises(
        ValueError, match=r"algorithm\.weight_decay=0\.01 is Adam's, but algorithm\.optimizer is rmsprop"
    ):
        Experiment.load("smoke", "algorithm=a2c", *changes, "device=cpu").make_learner()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_weights_decay_also_after_a_checkpoint_without_decay(algorithm):
    words = ["smoke", f"algorithm={algorithm}", "device=cpu"]
    before = Experiment.load(*words).make_learner().algorithm
    after = Experiment.load(*words, "algorithm.weight_decay=0.5").make_learner().algorithm
    after.load_state_dict(before.state_dict())
    assert [group["weight_decay"] for group in after.updater.optimizer.param_groups] == [0.5]


# --- IMPALA


def test_on_policy_v_trace_is_generalized_advantage_estimation_with_lambda_one():
    learner = Experiment.load("smoke", "algorithm=impala", "device=cpu").make_learner()
    rollout = learner.collector.collect()
    data = learner.algorithm.sequences(rollout)
    encoded = learner.agent.encoder(data.clone())
    log_prob = encoded["action_log_prob"].unsqueeze(-1)  # the policy is the one that played
    _, _, *found = learner.algorithm.loss.objective.advantages(encoded, log_prob)
    other = Experiment.load("smoke", "algorithm=a2c", "algorithm.lmbda=1", "device=cpu").make_learner()
    other.agent.load_state_dict(learner.agent.state_dict())
    expected, _ = other.algorithm.advantages(rollout)
    for key, value in zip(("advantage", "value_target"), found, strict=True):
        flat = value.transpose(0, 1).flatten()
        torch.testing.assert_close(flat, expected[key].flatten(), rtol=1e-4, atol=1e-4)


def test_impalas_player_is_stale_until_it_is_refreshed():
    words = ["algorithm=impala", "algorithm.refresh_every=3", "algorithm.rollout_steps=8", "device=cpu"]
    learner = Experiment.load("smoke", *words).make_learner()
    assert learner.collector.agent is learner.algorithm.behavior is not learner.agent
    first, ratios = weights(learner.collector.agent), []
    for iteration in range(1, 7):
        metrics = to_host(learner.improve(learner.collector.collect(), 1e-2))
        ratios.append(metrics["max_ratio"])
        fresh = torch.equal(weights(learner.collector.agent), weights(learner.agent))
        assert fresh == (iteration in (3, 6))
        assert torch.equal(weights(learner.collector.agent), first) == (iteration < 3)
    assert min(ratios[1:3]) > 1.001  # these frames were played by another policy


# --- every algorithm


def test_only_the_newest_checkpoint_has_a_replay_and_others_begin_with_an_empty_one(tmp_path):
    changes = ("algorithm=dqn", *SHORT, "run.checkpoint_every=512")
    play(smoke(tmp_path, *changes))
    folder = tmp_path / "run" / "checkpoints"
    assert [path.name for path in folder.glob("*.replay.pt")] == ["checkpoint_2048.replay.pt"]
    assert (folder / "checkpoint_2048.pt").stat().st_size < (folder / "checkpoint_2048.replay.pt").stat().st_size
    for newer in [*folder.glob("checkpoint_2048*"), folder / "best.json"]:
        newer.unlink(missing_ok=True)
    rest, _ = play(Experiment.load(tmp_path / "run" / "config.yaml"), resume=tmp_path / "run")
    assert len(rest) == 2


def test_a_checkpoint_of_another_algorithm_is_refused_in_a_sentence(tmp_path):
    play(smoke(tmp_path, "algorithm=a2c", "total_frames=512"))
    experiment = Experiment.load(tmp_path / "run" / "config.yaml", "total_frames=1024", "algorithm=ppo")
    with pytest.raises(CheckpointError, match="algorithm a2c wrote it") as caught:
        play(experiment, resume=tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", OTHERS)
def test_trained_agents_are_loaded_judged_and_play_legally(tmp_path, algorithm):
    play(smoke(tmp_path, f"algorithm={algorithm}", *SHORT))
    experiment, agent = load_agent(tmp_path / "run", device="cpu")
    assert experiment.algorithm_class.name == algorithm
    figures = evaluate(experiment, agent, episodes=4)
    assert math.isfinite(figures["return_mean"])
    again = evaluate(experiment, agent, episodes=4)
    assert figures == again  # deterministic, also with action values


TOWN = [
    "world.level=L6",  # several agents that can die, one action at a time
    "world.num_envs=4",
    "model.hidden_sizes=[16]",
    "tuned.a2c.rollout_steps=4",
    "tuned.impala.rollout_steps=4",
    "tuned.dqn={rollout_steps: 4, learning_starts: 0, batch_size: 64}",
    "tuned.sac={rollout_steps: 4, learning_starts: 0, batch_size: 64}",
    "threads=1",
    "device=cpu",
    *(f"acceleration.{part}=false" for part in ("step", "advantages", "update")),
]


@pytest.mark.parametrize("algorithm", OTHERS)
def test_agents_of_a_group_learn_as_rows_and_the_dead_do_not_count(algorithm):
    learner = Experiment.load("town", *TOWN, f"algorithm={algorithm}").make_learner()
    rollout = learner.collector.collect().clone()
    group = learner.agent.group
    alive = rollout[group, "alive"].clone()
    alive[:, :, 1:] = False  # one agent lives
    rollout[group, "alive"].copy_(alive)
    other = copy.deepcopy(learner.agent)
    results = []
    for poison in (0.0, 1000.0):
        twin = Experiment.load("town", *TOWN, f"algorithm={algorithm}").make_learner()
        twin.agent.load_state_dict(other.state_dict())
        version = rollout.clone()
        rewards = version["next", group, "reward"]
        rewards[~alive] = poison  # whatever the dead are given
        twin.algorithm.scaler.enabled = False
        torch.manual_seed(4)
        metrics = to_host(twin.improve(version, 1e-3))
        assert metrics["updates"] >= 1
        results.append(weights(twin.agent))
    assert torch.equal(*results)
    assert not torch.equal(results[0], weights(other))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_the_normalizer_learns_from_the_living_alone(algorithm):
    short = ["algorithm.rollout_steps=16", "tuned.ppo.minibatch_size=64"]
    learner = Experiment.load("town", *TOWN, *short, f"algorithm={algorithm}").make_learner()
    rollout = learner.collector.collect()
    alive = rollout[learner.agent.group, "alive"]
    alive[:, :, 1:] = False
    seen = learner.agent.normalizer.join(rollout[learner.agent.group])[alive].clone()
    learner.improve(rollout, 1e-3)
    running = learner.agent.normalizer.running
    assert running.count.item() == pytest.approx(16 * 4)
    torch.testing.assert_close(running.mean.float(), seen.mean(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["a2c", "impala"])
@pytest.mark.parametrize("policy", ["gru", "lstm"])
def test_agents_with_memory_learn_from_sequences(algorithm, policy):
    experiment = Experiment.load("smoke", f"algorithm={algorithm}", f"policy={policy}", *SHORT, "device=cpu")
    experiment.total_frames = 512
    (*_, last) = learn(experiment)
    assert last.agent.memory
    assert last.metrics["train/updates"] >= 1
    norms = [last.metrics[f"train/grad_norm/{name}"] for name in ("perception", "actor", "critic")]
    assert 0 < math.hypot(*norms) <= last.metrics["train/grad_norm"] * 1.001  # equal where one update was made


@pytest.mark.parametrize("algorithm", ["a2c", "impala"])
def test_all_modules_of_the_mind_learn_beside_each_algorithm(algorithm):
    """The world model's values too, from the targets that the algorithm's critic has."""
    modules = [f"model.{name}.enabled=true" for name in ("world_model", "social_model", "manager")]
    words = [*TOWN, *modules, "world={observation: groups, privileged: true}", "policy=gru", f"algorithm={algorithm}"]
    learner = Experiment.load("town", *words).make_learner()
    before = {name: weights(module.weights).clone() for name, module in learner.agent.agent_modules.items()}
    metrics = to_host(learner.improve(learner.collector.collect(), 1e-3))
    assert math.isfinite(metrics["loss_world_value"]) and metrics["loss_world_value"] > 0
    for name, module in learner.agent.agent_modules.items():
        assert not torch.equal(before[name], weights(module.weights)), name


# --- words


@pytest.mark.parametrize(
    ("word", "memory", "perception"),
    [("mlp", "none", False), ("gru", "gru", False), ("lstm", "lstm", False), ("cnn", "none", True)],
)
def test_a_policy_is_a_short_word_for_the_network(word, memory, perception):
    experiment = Experiment.load("smoke", f"policy={word}")
    assert (experiment.model.memory, experiment.model.perception.enabled) == (memory, perception)
    assert not hasattr(experiment, "policy")  # the stored configuration says it in full


def test_dqn_sees_pictures_through_perception():
    changes = ["world.observation=pixels", "policy=cnn", "algorithm=dqn", "world.num_envs=4", *SHORT]
    learner = Experiment.load(
        "smoke", *changes, "algorithm.learning_starts=0", "algorithm.batch_size=16", "device=cpu"
    ).make_learner()
    metrics = to_host(learner.improve(learner.collector.collect(), 1e-3))
    assert metrics["updates"] >= 1


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["algorithm=sarsa"], "algorithm is 'sarsa': use one of ppo, a2c, impala, dqn, sac"),
        (["policy=transformer"], "policy is 'transformer': use one of mlp, gru, lstm, cnn"),
        (["algorithm=dqn", "policy=gru"], "policy=mlp"),
        (["algorithm=a2c", "algorithm.optimizer=sgd"], "algorithm.optimizer"),
        (["algorithm=impala", "algorithm.num_minibatches=5"], "algorithm.num_minibatches"),
        (["algorithm=a2c", "algorithm.num_minibatches=5"], "does not divide the 128 frames of a rollout"),
        (["algorithm=a2c", "policy=gru", "algorithm.num_minibatches=5"], "does not divide the 16 sequences"),
        (["algorithm=impala", "algorithm.refresh_every=0"], "algorithm.refresh_every"),
        (["algorithm=dqn", "algorithm.replay_size=10"], "algorithm.replay_size"),
        (["algorithm=a2c", "algorithm.learning_rate.schedule=steps"], "algorithm.learning_rate.schedule"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_exit_code_two(capsys, tmp_path, arguments, culprit):
    assert cli.main(["train", "smoke", *arguments, f"run.folder={tmp_path}", "device=cpu"]) == 2
    said = capsys.readouterr().err.strip()
    assert culprit in said
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


def test_every_algorithm_is_found_by_its_name_and_by_its_path():
    assert set(ALGORITHMS) == {"ppo", *OTHERS, "td3"}
    for name, kind in ALGORITHMS.items():
        assert kind.name == name
        assert find_algorithm(name) is find_algorithm(class_path(kind)) is kind
        assert kind.config_class()._target_ == class_path(kind)


# --- compiled (slow)


HABITS = ["model.layer_norm=true", "algorithm.weight_decay=0.01", "algorithm.final_clip_epsilon=0.1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [*((name, []) for name in OTHERS), pytest.param("ppo", HABITS, id="layer norm, decay and a narrowing clip")],
)
def test_compiled_equals_eager_and_nothing_recompiles(algorithm, more):
    torch._dynamo.reset()
    counters.clear()
    on = [f"acceleration.{part}=true" for part in ("step", "advantages", "update")]
    options = [f"algorithm={algorithm}", *SHORT, "tuned.dqn={learning_starts: 0, batch_size: 256}", "device=cpu", *more]
    learner = Experiment.load("smoke", *options, *on).make_learner()
    for _ in range(2):
        learner.improve(learner.collector.collect(), 1e-3)
    assert not uncompiled(learner)
    assert not counters["graph_break"]
    graphs = counters["stats"]["unique_graphs"]
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rate in (1e-3, 5e-4, 1e-4):
            learner.improve(learner.collector.collect(), rate)
    assert counters["stats"]["unique_graphs"] == graphs
    eager = Experiment.load("smoke", *options).make_learner()
    eager.load_state_dict(copy.deepcopy(learner.state_dict()))
    rollout = learner.collector.collect().clone()
    results = []
    for one in (learner, eager):
        torch.manual_seed(7)
        metrics = to_host(one.improve(rollout.clone(), 1e-3))
        results.append((metrics, weights(one.agent)))
    (metrics, mine), (expected, others) = results
    assert metrics == pytest.approx(expected, rel=1e-3, abs=1e-4)
    torch.testing.assert_close(mine, others, rtol=1e-3, atol=1e-4)
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "number"), [("a2c", 60_000), ("impala", 60_000), ("dqn", 40_000)])
def test_every_algorithm_learns_to_balance_a_pole(algorithm, number):
    options = [f"algorithm={algorithm}", f"total_frames={number}", "evaluation.episodes=32", "device=cpu"]
    experiment = Experiment.load("cartpole", *options)
    (*_, last) = learn(experiment)
    assert evaluate(experiment, last.agent)["return_mean"] > 150
