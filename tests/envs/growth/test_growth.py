"""The world of growing networks: rewards by hand, twins, the governor, tasks, players and refused input."""

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from growing import SMALL, act, grown, small, wait

from envs import GrowthEnv
from envs.growth.actions import legal_slots
from envs.growth.dynamics import panics
from envs.growth.rules import PLACEHOLDERS, Operation, Rules, Stage
from envs.growth.scoring import events, potential
from envs.growth.tasks import DISTANCES, LENGTH, POOL, make_task
from envs.toolkit.records import named_tensors
from torchrl_agent import Experiment
from torchrl_agent.transforms import PotentialShaping

# --- twins and rewards


def test_a_twin_is_its_host_while_nothing_is_grown():
    env = small(4)
    wait(env, 10)
    state = env.state
    for mine, twins in zip(state.weights.host, state.twin.host, strict=True):
        assert torch.equal(mine, twins)
    assert torch.equal(state.measures.accuracy, state.measures.twin)
    assert float(env.episode.total_reward.abs().max()) == 0


def test_hosts_learn_and_a_module_that_trains_leaves_its_host_as_the_twin():
    env = small(4)
    first = env.state.measures.loss.clone()
    act(env, Operation.GERMINATE)
    wait(env, 5)
    state = env.state
    for mine, twins in zip(state.weights.host, state.twin.host, strict=True):
        torch.testing.assert_close(mine, twins, atol=1e-5, rtol=1e-4)
    assert state.weights.modules.up[0].any() and not state.weights.modules.up[1].any()
    assert not torch.equal(first, state.measures.loss)


def test_a_reward_is_the_gain_less_rent_and_the_cost_of_an_operation():
    """taps8 of width 4 has 3 x 4 x 8 + 8 + 8 x 4 = 136 parameters; the host 8 x 4 + 2 x 20 + 4 x 8 + 8 = 112."""
    env = grown(num_envs=1)
    seen = act(env, Operation.KEEP)
    measures = env.state.measures
    gain = float(measures.accuracy - measures.twin)
    rent = math.log(1 + 136 / 112)
    assert float(env.state.tally.rent) == pytest.approx(rent, rel=1e-5)
    assert float(seen["reward"]) == pytest.approx(0.1 * gain - 0.02 * rent - 0.005, abs=1e-6)


def ending(steps=12, **rules):
    """Statistics of the last step but one and what the last one gives, in a world where a module holds."""
    env = small(1, max_steps=steps, **rules)
    act(env, Operation.GERMINATE)
    wait(env, steps - 3)
    before = act(env)
    return before["episode"], act(env)


@pytest.mark.parametrize(("reward", "paid"), [("net", "gain"), ("contribution", "contribution")])
def test_the_end_pays_what_is_rewarded_once_more_and_terminates(reward, paid):
    before, seen = ending(steps=23, reward=reward, validation_rows=64)
    episode = seen["episode"]
    rent = float(episode["rent"] - before["rent"])
    assert seen["terminated"].item() and not seen["truncated"].item() and rent > 0.5
    assert float(seen["reward"]) == pytest.approx(2.1 * float(episode[paid]) - 0.02 * rent, abs=1e-6)
    assert episode["gain"] != episode["contribution"]


def test_a_sparse_reward_is_that_of_permanent_modules_at_the_end():
    before, seen = ending(reward="sparse")
    episode = seen["episode"]
    rent = float(episode["rent"] - before["rent"])
    assert float(before["return"]) == 0
    expected = 2 * float(episode["committed_accuracy"]) - 0.02 * rent
    assert float(seen["reward"]) == pytest.approx(expected, abs=1e-6)


def test_shaping_adds_up_to_minus_the_first_potential_over_all_slots():
    """Sum of gamma^t (gamma phi(t+1) - phi(t)) = gamma^T phi(T) - phi(0), and phi(T) counts as 0."""
    gamma, small_rules = 0.9, {**SMALL, "max_steps": 20}
    games = []
    for shaped in (False, True):
        env = GrowthEnv(8, seed=3, rules=small_rules, potential=True)
        torch.manual_seed(0)
        shaping = PotentialShaping("potential", "reward", gamma, 1.0) if shaped else None
        games.append(grow_by_chance(env, gamma, shaping))
    torch.testing.assert_close(games[1] - games[0], torch.zeros(8, 1), atol=1e-5, rtol=0)


def grow_by_chance(env, gamma, shaping):
    """Discounted return of random play."""
    player, root, total = env.players()["random"], env.reset(), 0.0
    highest = 0.0
    for time in range(env.rules.max_steps):
        root = player(root)
        following = env.step(root)["next"]
        highest = max(highest, float(following["potential"].max()))
        if shaping is not None:
            following = shaping._step(root, following)
        total = total + gamma**time * following["reward"]
        root = following
    assert highest > 0.1
    return total


def test_shaping_with_another_discount_than_the_learners_is_refused():
    changes = ["world.potential=true", "shaping.scale=0.1", "shaping.gamma=0.9", "world.num_envs=2"]
    with pytest.raises(ValueError, match=r"gamma 0\.9 but the learner has 0\.99"):
        Experiment.load("growth", *changes).make_learner()


def test_the_potential_counts_every_slot():
    slots = small(1).state.slots
    slots = slots._replace(stage=torch.tensor([[Stage.PERMANENT], [2]]))
    assert float(potential(slots)) == pytest.approx((6 + 2) / 2 / 6)


# --- the governor


def history(losses, count=10, streak=0.0):
    guard = small(1).state.guard
    return guard._replace(
        losses=torch.tensor(losses).view(-1, 1), count=torch.tensor([float(count)]), streak=torch.tensor([streak])
    )


@pytest.mark.parametrize(
    ("loss", "guard", "expected"),
    [
        (math.nan, {"count": 0}, True),
        (math.inf, {"count": 0}, True),
        (math.log(8), {}, True),  # was at 1.0, below 0.6 ln 8, and guesses now
        (1.3, {}, False),
        (11.0, {}, False),  # diverged once
        (11.0, {"streak": 1.0}, True),
        (11.0, {"streak": 1.0, "count": 5}, False),  # too short a history
        (10.0, {"streak": 1.0}, False),  # below five times the random guess
    ],
)
def test_vital_signs(loss, guard, expected):
    found, _ = panics(torch.tensor([loss]), history([1.0] * 10, **guard), torch.tensor(math.log(8)))
    assert found.tolist() == [expected]


def test_a_rollback_restores_host_and_permanent_modules_and_prunes_live_ones():
    env = grown(num_envs=2, seed=1, snapshot_every=1, slots=3)
    act(env, Operation.KEEP)
    act(env, Operation.GERMINATE, slot=1)
    wait(env, 2)
    saved, slots = env.state.guard.saved, env.state.slots
    env.state.weights.host.embedding[..., 0] = math.nan
    action = torch.tensor((*PLACEHOLDERS, Operation.WAIT)).expand(2, -1)
    state = env.advance(env.state, action, env._snapshot.chance.tick())
    assert state.guard.panics.tolist() == [True, False]
    reward, terminated, _ = env.outcome(state)
    assert terminated.tolist() == [True, False]
    assert float(reward[0] + env.episode.total_reward[0]) == pytest.approx(env.rules.reward_rollback, abs=1e-5)
    for mine, old in zip(state.weights.host, saved.host, strict=True):
        assert torch.equal(mine[..., 0], old[..., 0])
    assert torch.equal(state.weights.modules.up[0, ..., 0], saved.modules.up[0, ..., 0])
    assert slots.stage[:2, 0].tolist() == [Stage.PERMANENT, Stage.TRAINING]
    assert state.slots.stage[:2].T.tolist() == [[Stage.PERMANENT, Stage.PRUNED], [Stage.PERMANENT, Stage.TRAINING]]
    assert not any(value[..., 0].any() for _, value in named_tensors(state.adam.first))
    assert state.adam.host_updates[0] == 0 < state.adam.host_updates[1]
    assert all(value.isfinite().all() for value in (*env.observe(state).values(), reward))


def test_injected_faults_are_found_and_without_a_governor_they_are_not():
    faulty = {"fault_probability": 0.2, "fault_scale": 1e6, "max_steps": 30, "snapshot_every": 1, "history": 3}
    rollbacks = {}
    for governor in (True, False):
        env = small(16, governor=governor, **faulty)
        root = env.reset()
        rollbacks[governor] = 0.0
        for _ in range(15):
            played, root = env.step_and_maybe_reset(env.players()["wait"](root))
            rollbacks[governor] += float(played["next", "episode", "rollbacks"].sum())
            assert played["next", "observation"].isfinite().all()
    assert rollbacks[True] > 0 and rollbacks[False] == 0


# --- tasks, players, contexts


def test_the_order_tasks_labels_say_what_can_be_seen_at_which_distance():
    task = make_task("order", 64, torch.device("cpu"))
    symbols, labels = task.inputs.argmax(-1), task.labels
    for row in range(50):
        marker = int((symbols[row] == 1).any())
        bits = [marker]
        for first, distance in ((2, DISTANCES[0]), (4, DISTANCES[1])):
            place = int((symbols[row] == first + 1).nonzero())
            bits.append(int(symbols[row, (place + distance) % LENGTH] == first))
        near, far = bits[1:]
        expected = [marker + 2 * (near if a else marker) + 4 * (far if b else marker) for b in (0, 1) for a in (0, 1)]
        assert labels[row].tolist() == expected


def stand_ins(count=40):
    """Packages of digits, whose rows hold nothing but their own number, of which they show the last digit."""
    numbers = np.arange(count)
    digits = SimpleNamespace(images=16.0 * numbers[:, None, None] * np.ones((8, 8)), target=numbers % 10)
    signals = {"x": numbers[:, None] * np.ones(40), "y": numbers % 10}
    return {
        "sklearn.datasets": SimpleNamespace(load_digits=lambda: digits),
        "mnist1d.data": SimpleNamespace(get_dataset_args=dict, make_dataset=lambda arguments: signals),
    }


@pytest.mark.parametrize(
    ("task", "package", "shape"), [("digits", "scikit-learn", (8, 8)), ("mnist1d", "mnist1d", (40, 1))]
)
def test_a_task_of_digits_asks_three_questions_and_validates_on_others_than_it_trains_on(
    task, package, shape, monkeypatch
):
    for name, module in stand_ins().items():
        monkeypatch.setitem(sys.modules, name.split(".")[0], SimpleNamespace())
        monkeypatch.setitem(sys.modules, name, module)
    env = GrowthEnv(2, task=task, rules=SMALL)
    inputs, labels = env.data.inputs, env.data.labels
    numbers = inputs.flatten(1)[:, 0].long()
    assert inputs.shape[1:] == shape and torch.equal(inputs[:, -1, -1].long(), numbers)
    assert torch.equal(labels, torch.stack((numbers % 2, numbers % 10 % 5, numbers % 10), 1))
    training, validation = (set(part.tolist()) for part in (numbers[:POOL], numbers[POOL:]))
    assert len(training) == 30 and not training & validation
    wait(env, 2)
    assert env.state.measures.loss.isfinite().all()
    for name in stand_ins():
        monkeypatch.setitem(sys.modules, name.split(".")[0], None)
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"task '{task}' needs .*{package}: pip install {package}"):
        GrowthEnv(2, task=task)


@pytest.mark.parametrize("name", ["order", "markov"])
def test_every_task_is_the_same_each_time_and_trains(name):
    one, two = (make_task(name, 16, torch.device("cpu")) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    env = GrowthEnv(2, task=name, rules=SMALL)
    wait(env, 3)
    assert env.state.measures.loss.isfinite().all()


@pytest.mark.slow
def test_growing_pays_where_it_should_and_the_optimum_knows_where():
    returns, modules = {}, {}
    for level in (0, 3):
        env = GrowthEnv(6, level=level)
        for name in ("wait", "optimum", "two"):
            env.set_seed(0)
            seen, player = env.reset(), env.players()[name]
            for _ in range(env.rules.max_steps):
                seen = env.step(player(seen))["next"]
            returns[name, level] = float(seen["episode", "return"].mean())
            modules[name, level] = float(seen["episode", "permanent"].mean())
    assert modules["optimum", 0] == 0 and modules["optimum", 3] == 2
    assert returns["optimum", 3] > 1.5 and returns["two", 0] < returns["optimum", 0] == returns["wait", 0] == 0


def test_a_trial_is_pruned_followed_by_another_or_watched_by_the_accuracy_reached():
    env = small(3)
    saved = env.state_dict()
    saved["state.step"].fill_(8)
    saved["state.measures.accuracy"].copy_(torch.tensor((0.95, 0.25, 0.45)))
    for name, value in (("stage", Stage.BLENDING), ("age", 8)):
        saved[f"state.slots.{name}"][0] = value
    env.load_state_dict(saved)
    legal = legal_slots(env.state.slots, env.state.measures.accuracy, env.rules)
    action = env.players()["trial"].choose(legal)
    assert action[-1].tolist() == [Operation.PRUNE, Operation.GERMINATE, Operation.WAIT] and action[0].tolist() == [
        0,
        1,
        0,
    ]


def test_a_step_works_in_inference_mode_as_without_gradients():
    found = []
    for mode in (torch.no_grad, torch.inference_mode):
        env = small(2)
        with mode():
            act(env, Operation.GERMINATE)
            wait(env, 8)
            found.append({name: value.clone() for name, value in named_tensors(env.state)})
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "ordre"}, r"task is 'ordre' \(did you mean order\?\): use one of order"),
        ({"task": ["order"]}, r"task is \['order'\].*: use one of order"),
        ({"level": 4}, "level is 4: task 'order' has 0 to 3"),
        ({"level": "hard"}, "level is 'hard': task 'order' has 0 to 3"),
        ({"rules": {"max_steps": 8}}, "rules.max_steps is 8: a module needs 9 steps"),
        ({"rules": {"slots": 17}}, "rules.slots is 17: a host has places for at most 16"),
        ({"rules": {"widht": 4}}, r"rules.widht is unknown \(did you mean width\?\)"),
        ({"rules": {"width": 0}}, "rules.width is 0: it must be at least 1"),
        ({"rules": {"fault_probability": -1.0}}, "rules.fault_probability is -1.0: it must be at least 0"),
        ({"rules": {"width": "a"}}, "rules.width is 'a': give a whole number, such as 16"),
        ({"rules": {"blend": "lurp"}}, r"rules.blend is 'lurp' \(did you mean lerp\?\)"),
        ({"rules": {"noise": [0.3, 0.1]}}, "give a range from 0 on"),
        ({"rules": {"noise": 1}}, "rules.noise is 1: give two numbers"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        GrowthEnv(2, **arguments)


def test_rules_may_be_an_object():
    assert GrowthEnv(1, rules=Rules(slots=1)).rules.slots == 1


@pytest.mark.slow
def test_an_mlp_host_sees_what_no_position_shows_alone():
    """The order of a pair of neighbors, which a pointwise host cannot see."""
    pointwise, mlp = (small(8, level=1, host=host, width=16, updates=8, batch_size=32) for host in ("pointwise", "mlp"))
    assert mlp.data.inputs.shape == (pointwise.data.inputs.shape[0], 1, 8 * 8)
    assert torch.equal(mlp.data.inputs[5, 0], pointwise.data.inputs[5].flatten())
    assert "optimum" in pointwise.players() and "optimum" not in mlp.players(), "what pays is known for one host alone"
    found = []
    for env in (pointwise, mlp):
        wait(env, 25)
        found.append(env.state.measures.accuracy.mean().item())
    assert found[1] > found[0] + 0.1


def test_events_tell_what_happened_to_a_module():
    env = small(2, min_training=2)
    act(env, Operation.GERMINATE)
    wait(env, 7)
    act(env, Operation.PRUNE)
    wait(env, 6)
    found = env.events(1)
    assert [event["kind"] for event in found] == ["germinated", "stage", "stage", "pruned", "stage", "stage"]
    assert found[0]["step"] == 1 and found[0]["before"] == "dormant" and found[0]["slot"] == 0
    assert [event["after"] for event in found[1:3]] == ["blending", "holding"]
    assert found[3]["step"] == 9 and found[-1]["after"] == "dormant"


def test_a_rollback_is_an_event_of_the_whole_host():
    env = grown(num_envs=2)
    env.state.weights.host.embedding[..., 0] = math.nan
    action = torch.tensor((*PLACEHOLDERS, Operation.WAIT)).expand(2, -1)
    state = env.advance(env.state, action, env._snapshot.chance.tick())
    assert events(state, 0)[-1].as_dict() == {"step": 14, "kind": "rollback"}
    assert "rollback" not in [event.kind for event in events(state, 1)]
