"""Agents with memory: states handed on and forgotten at the right time, learned from in sequences."""

from __future__ import annotations

import subprocess
import sys
from unittest.mock import Mock

import pytest
import torch
from kinds import uncompiled
from tensordict import TensorDict
from torch.fx import GraphModule
from torchrl.collectors import Collector
from torchrl.data import Unbounded
from torchrl.envs import GymEnv, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.modules import set_recurrent_mode

from envs import ArenaEnv, TownEnv
from envs.arena.rules import Rules
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.memory import AssociativeMemory, RecurrentState, recurrence
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.training.collector import agent_rows

EAGER = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false", "threads=1"]
TOWN = [
    "world={level: L6, num_envs: 6}",
    "algorithm={rollout_steps: 24, minibatch_size: 144}",
    "model={hidden_sizes: [16], perception: {memory_size: 12}}",
    "world.rules={max_steps: 10}",  # several episodes in each rollout
    *EAGER,
]


def small(memory, **changes):
    return ModelConfig([16], memory=memory, perception=PerceptionConfig(memory_size=12, belief_size=8, **changes))


@pytest.fixture(params=["gru", pytest.param("lstm", marks=pytest.mark.slow)])
def kind(request):
    return request.param


def sequences(kind, batch=3, steps=7):
    module, states = recurrence(kind, 5, 4, "in", "out")
    torch.manual_seed(1)
    data = TensorDict({"in": torch.randn(batch, steps, 5)}, [batch, steps])
    data["is_init"] = torch.zeros(batch, steps, 1, dtype=torch.bool)
    if batch > 2:
        data["is_init"][1, 3] = data["is_init"][2, 0] = data["is_init"][2, 5] = True
    for name in states:
        data[name] = torch.zeros(batch, steps, 1, 4)
        data[name][0, 0] = torch.randn(1, 4)  # the first row goes on from a rollout before
    return module, states, data


def play(module, states, data):
    """The sequence step by step."""
    out, carried = [], {name: data[name][:, 0] for name in states}
    for step in range(data.shape[1]):
        frame = data[:, step].clone().update(carried)
        frame = module(frame)
        out.append(frame["out"])
        carried = {name: frame["next", name] for name in states}
    return torch.stack(out, 1)


@pytest.mark.parametrize("skips", [True, False])
def test_what_is_seen_has_a_way_around_the_memory_unless_that_is_switched_off(kind, skips):
    """A memory that takes nothing in: what is seen now changes the belief only by the skip connection."""
    env = TownEnv(3, level="L4")
    agent = Agent(env, small(kind, skip_connection=skips))
    for name, weights in agent.perception.recurrence.named_parameters():
        if "weight_ih" in name:
            weights.data.zero_()
    root = agent.attach(env).reset()["agents"]
    other = root.clone()
    other["observation"] += 1.0
    one, two = (agent.encoder(seen.clone())["belief", "mean"] for seen in (root, other))
    assert torch.equal(one, two) is not skips


@pytest.mark.slow
@pytest.mark.parametrize("skips", [True, False])
def test_layer_norm_standardizes_what_is_recalled_and_leaves_states_alone(skips):
    env = ArenaEnv(4, seed=1)
    agent = Agent(
        env, ModelConfig([16], layer_norm=True, memory="gru", perception=PerceptionConfig(skip_connection=skips))
    )
    frames, recalled = agent.attach(env).reset(), []
    frames["hidden"].normal_()
    frames["is_init"].zero_()
    agent.perception.memory_norm.register_forward_hook(lambda _, given, result: recalled.append((given[0], result)))
    after = agent.actor(frames)["next", "hidden"].squeeze(-2)
    ((raw, normalized),) = recalled
    torch.testing.assert_close(raw, after)  # the state is what the network recalls, before normalization
    torch.testing.assert_close(normalized.mean(-1), torch.zeros(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(normalized.var(-1, correction=0), torch.ones(4), rtol=0, atol=0.01)


def test_compiled_sequences_are_one_operator(kind):
    graphs = []

    def keep(graph, inputs):
        graphs.extend(part.graph for part in graph.modules() if isinstance(part, GraphModule))
        return graph.forward

    module, _, data = sequences(kind)
    with set_recurrent_mode(True):
        torch.compile(module, fullgraph=True, backend=keep)(data)
    calls = [str(node.target) for graph in graphs for node in graph.nodes if node.op == "call_function"]
    assert calls.count("scan") == (2 if kind == "gru" else 1)  # TorchRL's GRU brings its gradient along


@pytest.mark.slow
def test_making_an_agent_leaves_scans_possible():
    """In a process of its own: what was found out once is remembered."""
    program = (
        "from hoptorch.scan import ensure_scan_backward\nfrom torchrl_agent import Experiment\n"
        "experiment = Experiment.load('smoke', 'device=cpu', 'policy=gru')\n"
        "experiment.make_agent(experiment.make_world())\nassert ensure_scan_backward('cpu')"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_sequences_equal_steps(kind):
    module, states, data = sequences(kind)
    with set_recurrent_mode(True):
        at_once = module(data.clone())["out"]
    torch.testing.assert_close(at_once, play(module, states, data), atol=1e-6, rtol=1e-5)


def test_cut_sequences_begin_with_what_was_remembered_then(kind):
    """A replay calls the first frame of a cut sequence a beginning; one without a batch is a sequence too."""
    module, states, data = sequences(kind, batch=1)
    whole, carried = [], {name: data[name][:, 0] for name in states}
    for step in range(data.shape[1]):
        for name in states:
            data[name][:, step] = carried[name]
        frame = module(data[:, step].clone())
        whole.append(frame["out"])
        carried = {name: frame["next", name] for name in states}
    cut = data[:, 4:].clone()
    cut["is_init"][:, 0] = True
    with set_recurrent_mode(True):
        torch.testing.assert_close(module(cut.clone())["out"], torch.stack(whole[4:], 1), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(module(cut[0].clone())["out"], torch.cat(whole[4:]), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", ["steps", "sequences"])
def test_nothing_before_a_reset_reaches_what_comes_after(kind, mode):
    module, states, data = sequences(kind)
    other = data.clone()
    other["in"][1, :3] = 99.0
    for name in states:
        other[name][1, 0] = -5.0
    results = []
    for version in (data, other):
        with set_recurrent_mode(mode == "sequences"):
            results.append(module(version.clone())["out"] if mode == "sequences" else play(module, states, version))
    assert torch.equal(results[0][1, 3:], results[1][1, 3:]), "bit by bit"
    assert not torch.equal(results[0][1, :3], results[1][1, :3])


def test_what_is_remembered_matters_and_is_trained(kind):
    module, _, data = sequences(kind)
    value = data["in"].requires_grad_()
    with set_recurrent_mode(True):
        module(data.set("in", value))["out"][0, -1].sum().backward()
    assert value.grad[0, 0].abs().sum() > 0, "the gradient goes back through time"
    assert value.grad[1].abs().sum() == 0
    assert all(parameter.grad.abs().sum() > 0 for parameter in module.parameters() if parameter.ndim == 2)


def associative(keys=2):
    """What it is given first is the moment, by number, and what comes next is remembered of it; it writes it all."""
    memory = AssociativeMemory(keys + 1, keys)
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.zero_()
        for layer in (memory.key, memory.query):
            layer.weight[:, :keys] = 100.0 * torch.eye(keys)
        memory.value.weight[0, keys] = 1.0
        memory.out.weight[0, 0] = 1.0
        memory.gate.bias.fill_(100.0)
    return memory


def moments(*pairs):
    """A sequence of (moment, content)."""
    return torch.tensor([[[float(moment == 0), float(moment == 1), content] for moment, content in pairs]])


def recalled(memory, features, seen=None, begins=None, before=None):
    shape = (*features.shape[:2], 1)
    seen = torch.ones(shape, dtype=torch.bool) if seen is None else torch.tensor(seen).reshape(shape)
    begins = torch.zeros(shape, dtype=torch.bool) if begins is None else torch.tensor(begins).reshape(shape)
    before = torch.zeros(*shape[:2], memory.size) if before is None else before
    found, state, *_ = memory(features, seen, begins, before)
    return found[0, :, 0], state


def test_an_associative_memory_finds_the_mean_of_what_was_written_in_moments_like_this():
    found, _ = recalled(associative(), moments((0, 5.0), (1, 7.0), (0, 1.0), (1, 9.0)))
    torch.testing.assert_close(found, torch.tensor([5.0, 7.0, 3.0, 8.0]), rtol=2e-3, atol=0)


def test_an_associative_memory_writes_what_is_seen_only():
    pairs = moments((0, 5.0), (0, 1.0), (1, 2.0))
    found, _ = recalled(associative(), pairs, seen=[True, False, False])
    torch.testing.assert_close(found, torch.tensor([5.0, 5.0, 0.0]), rtol=2e-3, atol=1e-6)


def test_an_associative_memory_begins_with_the_state_given_there():
    memory, pairs = associative(), moments((0, 5.0), (0, 1.0), (0, 3.0), (1, 4.0))
    _, past = recalled(memory, moments((0, 9.0), (1, 2.0)))
    before = torch.zeros(1, 4, memory.size)
    before[0, 2] = past[0, -1]
    found, _ = recalled(memory, pairs, begins=[False, False, True, False], before=before)
    torch.testing.assert_close(found, torch.tensor([5.0, 3.0, 6.0, 3.0]), rtol=2e-3, atol=0)
    found, _ = recalled(memory, pairs, begins=[False, True, False, True])
    torch.testing.assert_close(found, torch.tensor([5.0, 1.0, 2.0, 4.0]), rtol=2e-3, atol=0)


def test_an_associative_memory_finds_in_sequences_what_it_finds_step_by_step():
    torch.manual_seed(0)
    memory = AssociativeMemory(6, 3)
    features, before = torch.randn(4, 9, 6), torch.rand(4, 9, memory.size)
    seen, begins = torch.rand(4, 9, 1) > 0.3, torch.rand(4, 9, 1) > 0.8
    found, states, *_ = memory(features, seen, begins, before)
    state = before[:, 0]
    for step in range(9):
        state = torch.where(begins[:, step], before[:, step], state)
        frame = [value[:, step : step + 1] for value in (features, seen, begins)]
        out, after, *_ = memory(*frame, state.unsqueeze(1))
        torch.testing.assert_close(out[:, 0], found[:, step])
        torch.testing.assert_close(after, states[:, step : step + 1])
        state = after[:, 0]


def test_an_associative_memory_tells_how_much_of_what_is_found_comes_from_each_step():
    memory, features = associative(), moments((0, 5.0), (1, 7.0), (0, 1.0))
    written = torch.ones(1, 3, 1, dtype=torch.bool), torch.zeros(1, 3, 1, dtype=torch.bool)
    *_, query, weights = memory(features, *written, torch.zeros(1, 3, memory.size))
    shares = memory.shares(query[0], weights.expand(3, -1, -1))
    expected = torch.tensor([[0.5, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    torch.testing.assert_close(shares, expected, rtol=0, atol=2e-3)
    assert not memory.shares(query[0], 0 * weights[0]).any()


def test_what_an_associative_memory_finds_is_what_was_written_by_those_shares():
    memory, features = AssociativeMemory(6, 3), torch.randn(4, 9, 6)
    seen, begins = torch.rand(4, 9, 1) > 0.3, torch.zeros(4, 9, 1, dtype=torch.bool)
    found, _, query, weights = memory(features, seen, begins, torch.zeros(4, 9, memory.size))
    shares = memory.shares(query[:, -1], weights)
    torch.testing.assert_close(memory.out((shares.unsqueeze(-1) * memory.value(features)).sum(1)), found[:, -1])


def test_gates_begin_orthogonal_and_an_lstm_begins_by_keeping():
    module, _ = recurrence("lstm", 6, 6, "in", "out")
    parameters = dict(module.named_parameters())
    for name, value in parameters.items():
        if "weight" in name:
            for gate in value.split(6):
                torch.testing.assert_close(gate @ gate.T, torch.eye(6))
    bias = sum(value for name, value in parameters.items() if "bias" in name)
    assert bias.tolist() == [0.0] * 6 + [1.0] * 6 + [0.0] * 12
    assert all(
        not value.any() for name, value in recurrence("gru", 6, 6, "in", "out")[0].named_parameters() if "bias" in name
    )


@pytest.mark.parametrize(
    "make", [lambda: ArenaEnv(4, rules=Rules(max_steps=5)), lambda: TownEnv(4, level="L6", rules={"max_steps": 5})]
)
def test_states_start_at_zero_go_on_and_start_again(make, kind):
    env = make()
    agent = Agent(env, small(kind))
    world = agent.attach(env)
    check_env_specs(world)
    path = (lambda key: key) if agent.group is None else (lambda key: ("agents", key))
    root = world.reset()
    assert root[path("is_init")].all()
    assert not root[path("hidden")].any()
    for step in range(1, 13):
        played, root = world.step_and_maybe_reset(agent.policy(root))
        ended = played["next", "done"].any()
        assert bool(ended) == (step % 5 == 0)
        assert bool(root[path("is_init")].all()) == bool(ended)
        assert bool(root[path("hidden")].any()) != bool(ended)
        assert not played["next"][path("is_init")].any()
        if not ended:
            assert torch.equal(root[path("hidden")], played["next"][path("hidden")])


def test_a_step_with_memory_replaces_and_shows_each_world_once(monkeypatch):
    env, plain = (ArenaEnv(4, rules=Rules(max_steps=5)) for _ in range(2))
    world = env.transformed_class(env, RecurrentState({"hidden": Unbounded((1, 2))}, None))
    root, alone = world.reset(), plain.reset()
    respawn, observe = (Mock(wraps=getattr(env, name)) for name in ("respawn", "observe"))
    monkeypatch.setattr(env, "respawn", respawn)
    monkeypatch.setattr(env, "observe", observe)
    for step in range(1, 13):
        action = plain.action_spec.rand()
        root = world.step_and_maybe_reset(root.set("action", action))[1]
        alone = plain.step_and_maybe_reset(alone.set("action", action))[1]
        assert (respawn.call_count, observe.call_count) == (step, 2 * step), "before and after the replacement"
        assert (root.select(*alone.keys(True, True)) == alone).all()
    limited = world.append_transform(StepCounter(3)).rollout(4, break_when_any_done=False)
    assert limited["next", "episode", "length"].max() == 3


def test_a_partial_reset_leaves_the_other_rows_their_memory(kind):
    env = ArenaEnv(4)
    agent = Agent(env, small(kind))
    world = agent.attach(env)
    root = world.reset()
    for _ in range(3):
        _, root = world.step_and_maybe_reset(agent.policy(root))
    before = root["hidden"].clone()
    request = root.clone().set("_reset", torch.tensor([True, False, False, True]).unsqueeze(-1))
    after = world.reset(request)
    assert after["is_init"].squeeze(-1).tolist() == [True, False, False, True]
    assert not after["hidden"][[0, 3]].any()
    assert torch.equal(after["hidden"][1:3], before[1:3])


def test_the_transform_itself_clears_only_the_rows_that_begin():
    memory = RecurrentState({"hidden": Unbounded((1, 2))}, None)
    root = TensorDict({"hidden": torch.ones(3, 1, 2), "_reset": torch.tensor([[True], [False], [True]])}, [3])
    after = memory._reset(root, TensorDict({}, [3]))
    assert after["hidden"].squeeze(1).tolist() == [[0, 0], [1, 1], [0, 0]]
    assert after["is_init"].squeeze(-1).tolist() == [True, False, True]


def test_a_random_player_leaves_the_memory_as_it_is():
    env = ArenaEnv(2)
    world = Agent(env, small("gru")).attach(env)
    root = world.rand_step(world.reset())
    assert not root["next", "hidden"].any()


def test_plain_worlds_remember_too():
    env = TransformedEnv(GymEnv("CartPole-v1", num_envs=2, categorical_action_encoding=True))
    agent = Agent(env, small("gru"))
    world = agent.attach(env)
    assert any(isinstance(part, RecurrentState) for part in world.transform)
    data = world.rollout(150, agent.policy, break_when_any_done=False)
    first = data["is_init"].squeeze(-1)
    assert first[:, 0].all()
    assert first[:, 1:].any(), "an episode ended"
    assert not data["hidden"][first].any()
    assert data["hidden"][~first].flatten(1).any(-1).all()


def test_torchrls_collector_plays_an_agent_with_memory():
    env = TownEnv(4, level="L6", rules={"max_steps": 5})
    agent = Agent(env, small("lstm"))
    for data in Collector(agent.attach(env), agent.policy, frames_per_batch=48, total_frames=48):
        first = data["agents", "is_init"].squeeze(-1)
        assert first[:, [0, 5, 10]].all()
        assert int(first.sum()) == 4 * 4 * 3
        assert data["agents", "cell"][~first].flatten(1).any(-1).all()


def test_the_first_update_of_a_rollout_finds_the_policy_unchanged(kind):
    learner = Experiment.load("town", *TOWN, f"model.memory={kind}").make_learner()
    rollout = learner.collector.collect()
    rows = agent_rows(rollout, "agents")
    assert rows["is_init"][1:].any(), "there are resets inside the rollout"
    data, _ = learner.algorithm.advantages(rows)
    assert data.shape == (24, 24)
    with set_recurrent_mode(True):
        losses = learner.algorithm.loss(data)
    assert losses["max_ratio"] == pytest.approx(1, abs=1e-5)
    assert losses["min_ratio"] == pytest.approx(1, abs=1e-5)
    assert losses["kl"].abs() < 1e-8


def learned(learner, data, terms=None):
    """Loss, metrics and gradients."""
    learner.agent.zero_grad()
    with set_recurrent_mode(True):
        total, metrics = (terms or learner.algorithm.updater.terms)(data)
    total.backward()
    return total, metrics, gradients(learner.agent)


def gradients(agent):
    return [parameter.grad.clone() for parameter in agent.parameters() if parameter.grad is not None]


def test_an_update_learns_through_time(kind):
    learner = Experiment.load("town", *TOWN, f"model.memory={kind}", "algorithm.max_grad_norm=1e9").make_learner()
    data, _ = learner.algorithm.advantages(agent_rows(learner.collector.collect(), "agents"))
    *_, expected = learned(learner, data)
    learner.algorithm.updater.update(data)
    torch.testing.assert_close(gradients(learner.agent), expected, atol=1e-6, rtol=1e-4)


def test_values_after_a_truncation_are_those_of_the_life_that_would_go_on():
    learner = Experiment.load(
        "town", *TOWN, "model.memory=gru", "world.level=L3", "algorithm.minibatch_size=24"
    ).make_learner()
    rows = agent_rows(learner.collector.collect(), "agents")
    following = rows["next"]
    cut = (following["done"] & ~following["terminated"]).squeeze(-1)
    assert cut.any()
    values = learner.algorithm.values(following)
    frame = following[cut]
    assert not frame["is_init"].any()
    assert frame["hidden"].any()
    torch.testing.assert_close(values[cut], learner.agent.critic(frame.clone())["state_value"])


def test_an_unknown_memory_and_broken_sequences_are_refused():
    with pytest.raises(ValueError, match="none, gru, lstm"):
        Agent(ArenaEnv(2), ModelConfig(memory="elephant"))
    with pytest.raises(ValueError, match="whole sequences"):
        Experiment.load("town", *TOWN, "model.memory=gru", "algorithm.minibatch_size=36").make_learner()
    with pytest.raises(ValueError, match="memory_size"):
        Agent(ArenaEnv(2), ModelConfig(memory="gru", perception=PerceptionConfig(memory_size=0)))


def test_what_the_dead_see_changes_no_gradient():
    learner = Experiment.load("town", *TOWN, "model.memory=gru").make_learner()
    data, _ = learner.algorithm.advantages(agent_rows(learner.collector.collect(), "agents"))
    data["shifted_valid"][:, 15:] = False
    data["action_mask"][:, 15:] = torch.eye(8, dtype=torch.bool)[5]
    other = data.clone()
    other["value_target"][:, 15:] = 77.0
    other["advantage"][:, 15:] = -9.0
    torch.testing.assert_close(*(learned(learner, version)[-1] for version in (data, other)))


@pytest.mark.slow
def test_compiled_learning_equals_eager(kind):
    learner = Experiment.load("town", *TOWN, f"model.memory={kind}").make_learner()
    data, _ = learner.algorithm.advantages(agent_rows(learner.collector.collect(), "agents"))
    fast = torch.compile(learner.algorithm.updater.terms, fullgraph=True, dynamic=False)
    (eager, eager_metrics, expected), (compiled, metrics, found) = learned(learner, data), learned(learner, data, fast)
    torch.testing.assert_close(compiled, eager)
    for name, value in eager_metrics.items():
        torch.testing.assert_close(metrics[name], value, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.slow
def test_everything_is_compiled_and_nothing_recompiles(kind):
    compiling = [override.replace("false", "true") for override in EAGER[:3]]
    torch._dynamo.reset()
    for iteration in learn(Experiment.load("town", *TOWN, *compiling, f"model.memory={kind}", "total_frames=576")):
        assert not uncompiled(iteration.learner)
        if iteration.number == 2:
            counters = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == counters


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_a_memory_of_other_rows_is_refused(memory):
    env = ArenaEnv(4)
    agent = Agent(env, ModelConfig(memory=memory))
    root = agent.attach(env).reset()
    loose = TensorDict({key: root[key] for key in agent.input_keys})  # no batch size that would find it out
    agent.policy(loose.clone())
    for hidden, found in ((root["hidden"][:3], r"has shape \(3, 1, 128\)"), (None, "is missing")):
        other = loose.clone()
        other = other.exclude("hidden") if hidden is None else other.set("hidden", hidden)
        with pytest.raises(ValueError, match=rf"the memory 'hidden' {found} .* \(4,\) rows .* shape \(4, 1, 128\)"):
            agent.policy(other)


@pytest.mark.slow
def test_a_memory_that_is_not_needed_hardly_slows_learning_with_short_rollouts(tmp_path):
    path = tmp_path / "gather.yaml"
    path.write_text(
        "defaults: [experiment_schema, _self_]\nname: gather\ntotal_frames: 30_000\ndevice: cpu\n"
        "world: {_target_: gather_world.GatherEnv, num_envs: 64}\nmodel: {memory: gru, hidden_sizes: [64, 64]}\n"
        "algorithm: {rollout_steps: 16, minibatch_size: 256, learning_rate: {initial: 1.0e-3}}\n"
    )
    *_, last = learn(Experiment.load(path, *EAGER, trust=True))
    assert last.metrics["rollout/ep_rew_mean"] > 9  # a perfect player has about 12, chance 0.7
