"""Soft actor-critic: arithmetic by hand, gradients that stay where they belong, what it learns, what it refuses."""

import math

import pytest
import torch
from line_world import Line
from tensordict import TensorDict
from torchrl.data import Bounded, MultiCategorical, Unbounded
from transitions import EAGER, PLAIN, QUIET, fill, transition

from torchrl_agent import Experiment, evaluate, learn
from torchrl_agent.algorithms.sac import SAC, SACConfig
from torchrl_agent.models.agent import ModelConfig
from torchrl_agent.models.sac_agent import ActionRange, SACAgent

LIKELY, UNLIKELY = 0.75, 0.25
ENTROPY = -(LIKELY * math.log(LIKELY) + UNLIKELY * math.log(UNLIKELY))
TEMPERATURE = 0.5


def make(**changes):
    """SAC with Q(x) = (x, 2x) and (3x, x / 2) for x >= 0, target networks that both say (2x, x), and a policy that
    takes action 1 three times out of four.
    """
    defaults = {"rollout_steps": 4, "replay_size": 100, "scale_rewards": False, "initial_temperature": TEMPERATURE}
    config = SACConfig(**{**defaults, "batch_size": 8, "learning_starts": 0, "gamma": 0.5, **changes})
    sac = SAC(SAC.make_agent(Line(2, masked=True), PLAIN, config), config, 2, EAGER)
    last = fill(sac.agent.actor_head[0].module, 0.0, 0.0)
    with torch.no_grad():
        last.bias.copy_(torch.tensor([UNLIKELY, LIKELY]).log())
    for network, slopes in zip(sac.agent.action_values.networks, ((1.0, 2.0), (3.0, 0.5)), strict=True):
        fill(network, *slopes)
    for network in sac.loss.following[1].networks:
        fill(network, 2.0, 1.0)
    return sac


# --- the losses


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # the target network says (4, 2) at x = 2
        ({}, 1 + 0.5 * (UNLIKELY * 4 + LIKELY * 2 + TEMPERATURE * ENTROPY)),
        ({"steps": 3}, 1 + 0.125 * (UNLIKELY * 4 + LIKELY * 2 + TEMPERATURE * ENTROPY)),
        ({"mask": (True, False)}, 1 + 0.5 * 4),  # one legal action: nothing to be undecided about
        ({"terminated": True}, 1.0),
        # an episode that is cut off could have gone on
        ({"truncated": True}, 1 + 0.5 * (UNLIKELY * 4 + LIKELY * 2 + TEMPERATURE * ENTROPY)),
    ],
)
def test_targets_by_hand(changes, expected):
    sac = make()
    found = sac.loss.targets(transition(**changes), torch.tensor(TEMPERATURE))
    assert found.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("action", "values"), [(0, (5.0, 15.0)), (1, (10.0, 2.5))])
def test_the_losses_by_hand(action, values):
    losses = make(target_entropy=0.3).loss(transition(action, terminated=True))  # the target is 1
    errors = [abs(value - 1) for value in values]
    assert losses["loss_value"].item() == pytest.approx(sum(error - 0.5 for error in errors), rel=1e-5)  # Huber
    assert losses["td_error"].item() == pytest.approx(max(errors) ** 2, rel=1e-5)
    worth = UNLIKELY * 5 + LIKELY * 2.5 + TEMPERATURE * ENTROPY  # the smaller of 5 and 15, and of 10 and 2.5
    assert losses["loss_actor"].item() == pytest.approx(-worth, rel=1e-5)
    assert losses["entropy"].item() == pytest.approx(ENTROPY, rel=1e-5)
    assert losses["temperature"].item() == pytest.approx(TEMPERATURE)
    assert losses["loss_temperature"].item() == pytest.approx(math.log(TEMPERATURE) * (ENTROPY - 0.3), rel=1e-4)


def test_importance_weighs_the_values_alone():
    sac, weighed = make(), transition().set("priority_weight", torch.tensor([0.5]))
    one, other = sac.loss(transition()), sac.loss(weighed)
    assert other["loss_value"].item() == pytest.approx(one["loss_value"].item() / 2)
    assert other["loss_actor"].item() == pytest.approx(one["loss_actor"].item())


def test_frames_of_the_dead_do_not_count():
    sac = make()
    both = torch.cat([transition(), transition(reward=100.0)])
    both["observation"][1], both["action_mask"][1, 1] = 77.0, False
    both["shifted_valid"] = torch.tensor([True, False])
    counted, alone = sac.loss(both), sac.loss(transition())
    for name in ("loss_value", "loss_actor", "loss_temperature", "mean_td_error"):
        assert counted[name].item() == pytest.approx(alone[name].item()), name


@pytest.mark.parametrize("continuous", [False, True])
def test_each_loss_moves_its_own_weights_alone(continuous):
    action = Bounded(-1, 1, (2, 1)) if continuous else None
    config = SACConfig(rollout_steps=4, replay_size=100)
    agent = SAC.make_agent(Line(2, action), ModelConfig([4], normalize_observations=False), config)
    sac = SAC(agent, config, 2, EAGER)
    frame = transition().exclude("action_mask", ("next", "action_mask"))
    if continuous:
        frame["action"] = torch.tensor([[0.5]])
    owners = {
        "loss_actor": agent.actor_head,
        "loss_value": agent.action_values,
        "loss_temperature": torch.nn.ParameterList([agent.log_alpha]),
    }
    for name, owner in owners.items():
        agent.zero_grad()
        sac.loss(frame)[name].backward()
        moved = {parameter for parameter in agent.parameters() if parameter.grad is not None and parameter.grad.any()}
        assert moved, name
        assert moved <= set(owner.parameters()), name


def test_the_target_network_follows_at_its_rate():
    sac = make(target_rate=0.25)
    sac.target.step()
    last = sac.loss.following[1].networks[0][-1].weight  # a quarter of the way from (2, 1) to (1, 2)
    torch.testing.assert_close(last.flatten(), torch.tensor([1.75, 1.25]))


# --- the agent


def test_the_state_value_is_that_of_the_policys_actions():
    agent, seen = make().agent, transition()
    assert agent.critic(seen)["state_value"].item() == pytest.approx(UNLIKELY * 5 + LIKELY * 2.5)
    one_legal = seen.set("action_mask", torch.tensor([[False, True]]))
    assert agent.critic(one_legal)["state_value"].item() == pytest.approx(2.5)


def test_the_state_value_of_continuous_actions_is_the_smaller_one_of_the_likeliest():
    agent = SACAgent(Line(2, Bounded(-1, 1, (2, 1))), PLAIN)
    fill(agent.actor_head[0].module[0], 0.0, 0.0)  # the likeliest action is 0
    for network, slope in zip(agent.action_values.networks, (3.0, 1.0), strict=True):
        fill(network, slope)  # times x + action
    seen = TensorDict({"observation": torch.tensor([[5.0]])}, [1])
    assert agent.critic(seen)["state_value"].item() == pytest.approx(5.0)


def test_continuous_actions_fill_their_bounds_and_the_likeliest_is_the_squashed_mean():
    bounds = torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 4.0])
    agent = SACAgent(Line(2, Bounded(*(bound.expand(2, 2) for bound in bounds), (2, 2))), PLAIN)
    seen = TensorDict({"observation": torch.zeros(5000, 1)}, [5000])
    drawn = agent.policy(seen)["action"]
    assert (drawn >= bounds[0]).all()
    assert (drawn <= bounds[1]).all()
    torch.testing.assert_close(drawn.amin(0), bounds[0], atol=0.1, rtol=0)
    torch.testing.assert_close(drawn.amax(0), bounds[1], atol=0.1, rtol=0)
    distribution = agent.actor_head.get_dist(agent.encoder(seen.copy()))
    middle = distribution.deterministic_sample[0]  # of a mean of 0
    torch.testing.assert_close(middle, torch.tensor([1.0, 3.0]), atol=1e-4, rtol=0)
    assert agent.default_entropy == -2.0


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(None, 0.1 * math.log(2)), (0.3, 0.3)],  # a tenth of the greatest entropy of two actions
)
def test_the_entropy_that_discrete_actions_are_made_to_have(asked, expected):
    assert make(target_entropy=asked).loss.target_entropy == pytest.approx(expected)


def test_entropy_counts_actions_in_units_of_half_their_range():
    """Uniform in a box of 4 x 0.02 the density is 1 / 0.08; in -1 to 1 it is 1 / 4, whatever the box."""
    box = ActionRange(torch.tensor([-1.0, 0.01]), torch.tensor([3.0, 0.03]))
    log_prob = torch.tensor([-math.log(4 * 0.02)])
    assert box.entropy(log_prob).item() == pytest.approx(math.log(4), rel=1e-5)
    edges = torch.tensor([[-1.0, 0.03], [1.0, 0.02]])
    torch.testing.assert_close(box(edges), torch.tensor([[-1.0, 1.0], [0.0, 0.0]]))


@pytest.mark.parametrize("half_range", [100.0, 0.1, 0.001])
def test_losses_do_not_depend_on_the_unit_of_the_actions(half_range):
    found = []
    for low, high in ((-1.0, 1.0), (0.5 - half_range, 0.5 + half_range)):
        torch.manual_seed(3)
        config = SACConfig(rollout_steps=4, replay_size=100, scale_rewards=False)
        model = ModelConfig([4], normalize_observations=False)
        sac = SAC(SAC.make_agent(Line(2, Bounded(low, high, (2, 1))), model, config), config, 2, EAGER)
        frame = transition().exclude("action_mask", ("next", "action_mask"))
        frame["action"] = torch.tensor([[(low + high) / 2 + 0.5 * (high - low) / 2]])
        losses = sac.loss(frame)
        value = sac.agent.critic(frame)["state_value"]
        found.append(torch.stack([*(losses[name].mean() for name in sorted(losses.keys())), value.mean()]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)


def test_gradients_are_clipped_apart():
    agent = make().agent
    parts = agent.parts()
    assert [len(part) for part in parts[:2]] == [4, 1]
    assert sum(len(part) for part in parts) == len(list(agent.parameters()))
    assert agent.module_names()[agent.log_alpha] == "temperature"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("Naming", 0.9), ("Copying", -0.15)])
def test_it_learns_discrete_and_continuous_actions(kind, least):
    options = ["algorithm=sac", "algorithm.rollout_steps=4", "algorithm.learning_starts=64", "algorithm.batch_size=64"]
    options += ["algorithm.learning_rate.initial=0.01", "algorithm.gamma=0.0", "algorithm.scale_rewards=false"]
    options += ["algorithm.initial_temperature=0.1", "algorithm.replay_ratio=2", "model.hidden_sizes=[16]"]
    experiment = Experiment.load("smoke", *options, *QUIET, "total_frames=12800")
    experiment.world = {"_target_": f"one_step_worlds.{kind}", "num_envs": 16}
    experiment.evaluation.world = {}
    (*_, last) = learn(experiment)
    assert evaluate(experiment, last.agent, episodes=64)["return_mean"] > least


# --- what cannot be


@pytest.mark.parametrize(
    ("world", "model", "culprit"),
    [
        (Line(2, MultiCategorical([2, 3], shape=(2, 2))), PLAIN, "takes 2 at once"),
        (Line(2, Unbounded((2, 1))), PLAIN, "this world's have none"),
        (Line(2), ModelConfig([4], memory="gru"), "policy=mlp"),
        (Line(2), ModelConfig([4], centralized_critic=True), "model.centralized_critic=false"),
    ],
)
def test_agents_that_cannot_be_are_refused_in_a_sentence(world, model, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        SACAgent(world, model)
    assert "\n" not in str(caught.value)


def test_impossible_hyper_parameters_are_refused_by_name():
    for name, value in {"initial_temperature": 0.0, "replay_size": 7, "target_rate": 1.5}.items():
        with pytest.raises(ValueError, match=rf"algorithm\.{name}"):
            make(**{name: value})
