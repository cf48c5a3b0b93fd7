"""The four modules, each alone on tensors made by hand, and together."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import set_recurrent_mode
from town_goals import town_manager

from envs import ArenaEnv, TownEnv
from torchrl_agent import keys
from torchrl_agent.core.ranks import masked_mean
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.dynamics import HIGH_VARIANCE, NOTHING, NOVEL_STATE, WorldModel, WorldModelConfig, spread
from torchrl_agent.modules.manager import ManagerConfig, ManagerLoss, semi_markov_advantage
from torchrl_agent.modules.networks import Attention, GatedConcat, first_head, have_later, symexp, symlog
from torchrl_agent.modules.perception import PerceptionConfig, PerceptionLoss
from torchrl_agent.modules.social_model import SocialModelConfig, SocialModelLoss, follow, met_before
from torchrl_agent.modules.world_model import PolicyImprovement, WorldModelLoss, WorldModelModule
from torchrl_agent.population.stack import entries
from torchrl_agent.training.collector import agent_rows

EAGER = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false", "threads=1"]
SMALL = [
    "world.num_envs=6",
    "algorithm.rollout_steps=16",
    "algorithm.minibatch_size=96",
    "model.hidden_sizes=[16]",
    "model.perception={memory_size: 12, belief_size: 8, embedding_size: 16}",
    "model.world_model.hidden_size=16",
    "model.manager.steps=4",
    "world.rules={max_steps: 9}",  # several episodes in each rollout
    *EAGER,
]

OPTIONS = [
    "model.manager.options=true",
    "model.manager.intrinsic_coeff=1.0",
    "model.world_model.enabled=false",
    "+model.manager.goals.grow={fitness: 2.0, energy: 2.0}",
    "model.manager.goals.explore=null",
]


def config(**changes):
    return ModelConfig(
        [16], memory="gru", perception=PerceptionConfig(memory_size=12, belief_size=8, embedding_size=16), **changes
    )


def whole(associations=0):
    return config(
        world_model=WorldModelConfig(enabled=True, hidden_size=16),
        social_model=SocialModelConfig(enabled=True, memory_size=6, associations=associations),
        manager=town_manager(steps=4),
        centralized_critic=True,
    )


def town(**changes):
    return TownEnv(
        **{"num_envs": 3, "level": "L7", "num_agents": 4, "observation": "groups", "privileged": True, **changes}
    )


@pytest.fixture
def learner():
    return Experiment.load("town_agent", *SMALL).make_learner()


def sequences(learner):
    """Those of a rollout, as the loss sees them."""
    return learner.algorithm.advantages(agent_rows(learner.collector.collect(), "agents"))[0]


@pytest.fixture
def data(learner):
    return sequences(learner)


def played(*changes):
    """A learner, and the sequences of its first rollout."""
    learner = Experiment.load("town_agent", *SMALL, *changes).make_learner()
    return learner, sequences(learner)


def discounted(wage, done, rate):
    """Sums of wages [T, N] up to the end of what they are paid in, worked out step by step."""
    total, sums = torch.zeros_like(wage[0]), torch.zeros_like(wage)
    for step in reversed(range(len(wage))):
        total = wage[step] + rate * torch.where(done[step], 0.0, total)
        sums[step] = total
    return sums


# --- together ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [(), ("model.social_model.associations=3",), ("algorithm.precision=bfloat16",)])
def test_every_parameter_of_every_module_learns(changes):
    learner, data = played(*changes)
    with learner.algorithm.updater.autocast(), set_recurrent_mode(True):
        total, _ = learner.algorithm.updater.terms(data)
    total.backward()
    parameters = learner.agent.named_parameters()
    still = [name for name, value in parameters if value.grad is None or not value.grad.any()]
    assert not still
    assert all(parameter.grad.isfinite().all() for parameter in learner.agent.parameters())


def test_the_critic_values_the_goals_that_were_pursued(learner):
    with torch.no_grad():
        for parameter in learner.agent.critic_head.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    rows = agent_rows(learner.collector.collect(), "agents")
    likeliest = learner.algorithm.values(rows)[..., :1]  # beside them stand the manager's own
    assert torch.equal(learner.algorithm.values(rows)[..., :1], likeliest), "deterministic"
    data, _ = learner.algorithm.advantages(rows)
    with torch.no_grad(), set_recurrent_mode(True):
        encoded = learner.agent.encoder(data.copy())
        values = learner.agent.critic_head(encoded)[keys.VALUE]
    torch.testing.assert_close(data[keys.VALUE], values, rtol=1e-4, atol=1e-5)
    decided = data["goal", "decided"]
    assert decided.sum() > 20
    others = (likeliest.transpose(0, 1) - values).abs().squeeze(-1) > 1e-4
    assert others[decided].any(), "another goal would have another value"
    assert not others[~decided].any()


def test_what_is_not_finite_or_only_judged_leaves_no_trace_in_the_world_model():
    model = WorldModel(2, 1, [3], WorldModelConfig(hidden_size=4), "relu", 0.9)
    model.update_usual_spread(torch.tensor(math.nan))
    model.update_usual_spread(torch.tensor(math.inf))
    assert model.usual_spread == 1
    model.update_usual_spread(torch.tensor(3.0))
    assert model.usual_spread == pytest.approx(1.02)


def test_a_module_with_large_losses_takes_nothing_from_the_others():
    norms = []
    for coeff in (0.5, 5000.0):
        torch.manual_seed(0)
        learner, data = played(f"model.world_model.coeff={coeff}")
        learner.algorithm.updater.update(data)
        parts = {"controller": learner.agent.actor_head, "dreams": learner.agent.world_model}
        norms.append(
            {
                name: torch.stack([each.grad.norm() for each in part.parameters()]).norm().item()
                for name, part in parts.items()
            }
        )
    assert norms[1]["controller"] == pytest.approx(norms[0]["controller"], rel=1e-4)
    assert norms[1]["controller"] > 1e-4
    assert norms[1]["dreams"] == pytest.approx(0.5, rel=1e-3)  # clipped by its own norm


def test_every_module_tells_the_norm_of_its_gradient():
    learner, data = played("algorithm.max_grad_norm=1e9")  # they stay as they were
    metrics = learner.algorithm.updater.update(data)
    agent = learner.agent
    modules = {
        **{name: getattr(agent, name) for name in ("perception", "world_model", "social_model", "manager")},
        "actor": agent.actor_head,
        "critic": agent.critic_head,
        "encoder": agent.encoder[-1],  # the gates
    }
    gradients = {
        name: torch.cat([each.grad.flatten() for each in module.parameters()]) for name, module in modules.items()
    }
    trained = [each.grad.flatten() for each in agent.auxiliary[0].parameters()]  # what teaches perception
    gradients["perception"] = torch.cat([gradients["perception"], *trained])
    found = {name.partition("/")[2]: value for name, value in metrics.items() if name.startswith("grad_norm/")}
    assert found.keys() == modules.keys()
    assert all(norm > 0 for norm in found.values())
    torch.testing.assert_close({name: found[name] for name in gradients}, {k: v.norm() for k, v in gradients.items()})
    torch.testing.assert_close(metrics["grad_norm"], torch.stack(list(found.values())).norm())


def test_values_that_a_rollout_recorded_are_the_critics(learner):
    rollout = agent_rows(learner.collector.collect(), "agents")
    recorded, algorithm = rollout.get(keys.VALUE), learner.algorithm
    assert recorded.std() > 0
    torch.testing.assert_close(algorithm.values(rollout, acted=True)[..., :1], recorded)
    data, _ = algorithm.advantages(rollout)
    assert torch.equal(data.get(keys.VALUE), recorded.transpose(0, 1))


def test_recorded_dreams_are_not_dreamed_again(learner, data):
    for parameter in learner.agent.world_model.parameters():
        parameter.data.fill_(torch.nan)  # whoever asks it now would know
    with set_recurrent_mode(True):
        encoded = learner.agent.encoder(data.copy())
    assert encoded.get(keys.FEATURES).isfinite().all()
    torch.testing.assert_close(encoded.get(keys.IMAGINATION_FEATURES), data.get(keys.IMAGINATION_FEATURES))
    with set_recurrent_mode(False), learner.agent.recall():
        assert learner.agent.encoder(data[:, 0].copy()).get(keys.FEATURES).isfinite().all()
    assert learner.agent.encoder(data[:, 0].copy()).get(keys.FEATURES).isnan().any(), "a new frame is dreamed of"


def test_recorded_thoughts_are_not_thought_again(learner, data):
    social = learner.agent.social_model
    with set_recurrent_mode(True):
        found = learner.agent.encoder(data.copy()).get(keys.SOCIAL_EMBEDDING)
        anew = learner.agent.encoder(data.exclude(keys.SOCIAL)).get(keys.SOCIAL_EMBEDDING)
    torch.testing.assert_close(found, anew, atol=1e-5, rtol=1e-4)  # nothing has been learned yet
    for parameter in (*social.embed.parameters(), *social.recurrence.parameters(), *social.heads.parameters()):
        parameter.data.fill_(torch.nan)  # whoever asks them now would know
    with set_recurrent_mode(True):
        torch.testing.assert_close(learner.agent.encoder(data.copy()).get(keys.SOCIAL_EMBEDDING), found)
    with set_recurrent_mode(False), learner.agent.recall():
        assert learner.agent.encoder(data[:, 0].copy()).get(keys.SOCIAL_EMBEDDING).isfinite().all()
    assert learner.agent.encoder(data[:, 0].copy()).get((keys.SOCIAL, "goal")).isnan().any(), (
        "a new frame is thought of"
    )


def test_thoughts_learn_from_labels_although_they_were_recorded(learner, data):
    loss = next(part for part in learner.agent.auxiliary if isinstance(part, SocialModelLoss))
    with set_recurrent_mode(True):
        encoded = learner.agent.encoder(data.copy())
        losses = [loss(part) for part in (encoded, encoded.clone().set(keys.SOCIAL, encoded[keys.SOCIAL] * 0.0))]
    for name in ("loss_social_goal", "loss_social_action", "loss_social_meters"):
        torch.testing.assert_close(*(each[name] for each in losses))  # what was recorded does not matter
    sum(value for name, value in losses[0].items() if name.startswith("loss_")).backward()
    social = learner.agent.social_model
    for part in (social.embed, social.recurrence, social.heads):
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
    assert not any(name.startswith("auxiliary") and "heads" in name for name in learner.agent.state_dict())


def test_modules_learn_from_their_fraction_of_a_minibatch():
    seen = {}

    class Spy(torch.nn.Module):
        def __init__(self, name, subsampled):
            super().__init__()
            self.name, self.subsampled = name, subsampled

        def forward(self, tensordict):
            seen[self.name] = tensordict.shape
            return TensorDict()

    learner, data = played("model.auxiliary_fraction=0.25")
    loss = learner.algorithm.loss
    subsampled = {type(part).__name__: getattr(part, "subsampled", False) for part in loss.auxiliary}
    assert subsampled == {"PerceptionLoss": True, "SocialModelLoss": True, "WorldModelLoss": True, "ManagerLoss": False}
    loss.auxiliary = torch.nn.ModuleList([Spy("all", False), Spy("share", True)])
    with set_recurrent_mode(True):
        loss(data)
    sequences, steps = data.shape
    assert seen == {"all": (sequences, steps), "share": (sequences // 4, steps)}


@pytest.mark.parametrize("module", ["world_model", "social_model"])
def test_what_is_predicted_changes_the_belief_only_if_it_is_asked_to(module):
    found = []
    for shapes in (False, True):
        learner, data = played(f"model.{module}.shapes_perception={shapes}", "model.perception.prediction_coeff=0")
        with set_recurrent_mode(True):
            encoded = learner.agent.encoder(data.copy())
            losses = learner.agent.agent_modules[module].losses[0](encoded)
        sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
        found.append(
            any(each.grad is not None and bool(each.grad.any()) for each in learner.agent.perception.parameters())
        )
    assert found == [False, True]


def test_the_gates_of_the_controller_are_nearly_shut_at_first():
    join = GatedConcat({"a": 1, "b": 2})
    seen = join(TensorDict({"a": torch.ones(3, 1), "b": torch.ones(3, 2)}, [3]))[keys.FEATURES]
    assert seen.tolist() == [[1.0, pytest.approx(0.1), pytest.approx(0.1)]] * 3
    seen.sum().backward()
    assert join.gates.grad.tolist() == [6.0]


def test_every_part_of_what_the_controller_reads_has_its_own_gate():
    join = GatedConcat({"a": 1, "b": 1, "c": 1})
    with torch.no_grad():
        join.gates.copy_(torch.tensor([0.5, 2.0]))
    assert join(TensorDict({name: torch.ones(1, 1) for name in "abc"}, [1]))[keys.FEATURES].tolist() == [[1, 0.5, 2]]


def test_the_first_update_of_a_rollout_finds_the_policy_and_its_goals_unchanged(learner, data):
    with set_recurrent_mode(True):
        losses = learner.algorithm.loss(data)
        goal = learner.agent.encoder(data.copy())[keys.GOAL]
    assert losses["max_ratio"] == pytest.approx(1, abs=1e-4)
    assert losses["min_ratio"] == pytest.approx(1, abs=1e-4)
    torch.testing.assert_close(goal["log_prob"], data["goal_old_log_prob"], atol=1e-5, rtol=1e-4)
    assert data[keys.GOAL, "decided"][data["is_init"].squeeze(-1)].all(), "every episode begins with a choice"


def test_no_label_is_an_input_at_execution():
    agent = Agent(town(), whole())
    flat = {part for key in agent.policy.in_keys for part in (key if isinstance(key, tuple) else (key,))}
    assert keys.PRIVILEGED not in flat
    assert keys.STATE not in flat, "the actor sees what the agent sees"
    assert keys.STATE in agent.critic.in_keys
    plain = TownEnv(3, level="L7", num_agents=4, observation="groups")
    world = agent.attach(plain)  # a world without labels will do to act in
    assert world.rollout(5, agent.policy, break_when_any_done=False).shape == (3, 5)


def test_a_module_that_is_off_is_not_there():
    agent = Agent(town(), config())
    names = " ".join(name for name, _ in agent.named_modules())
    assert agent.world_model is agent.social_model is agent.manager is None
    assert len(agent.auxiliary) == 0
    for word in ("social", "world", "manager"):
        assert word not in names
    assert set(agent.memory) == {"hidden"}


def test_a_single_agent_world_has_all_modules_but_the_social_model():
    env = ArenaEnv(3, observation="dict")
    modules = {"world_model": WorldModelConfig(enabled=True), "perception": PerceptionConfig(belief_size=8)}
    agent = Agent(env, ModelConfig([16], memory="lstm", **modules))
    played = agent.attach(env).rollout(4, agent.policy, break_when_any_done=False)
    assert played["action"].shape == (3, 4)
    assert played["futures", "rewards"].shape[-1] == 5


@pytest.mark.parametrize(
    ("env", "model", "sentence"),
    [
        (
            lambda: ArenaEnv(2),
            lambda: ModelConfig(world_model=WorldModelConfig(enabled=True)),
            "model.world_model works on",
        ),
        (lambda: ArenaEnv(2), lambda: config(social_model=SocialModelConfig(enabled=True)), "shows others"),
        (
            lambda: TownEnv(2, level="L7", observation="groups"),
            lambda: config(social_model=SocialModelConfig(enabled=True)),
            "privileged",
        ),
        (lambda: ArenaEnv(2), lambda: config(manager=town_manager()), "does not show"),
        (lambda: ArenaEnv(2), lambda: config(centralized_critic=True), "no 'state'"),
        (town, lambda: config(manager=town_manager(goals={"a": {"fame": 1.0}, "b": {}})), "fame"),
        (town, lambda: config(manager=town_manager(meter_names=["energy"])), "shows 8 meters"),
    ],
)
def test_what_does_not_fit_is_one_sentence(env, model, sentence):
    with pytest.raises(ValueError, match=sentence):
        Agent(env(), model())


# --- perception -------------------------------------------------------------------------------------------------------


def test_a_belief_says_what_it_promises():
    env = town()
    agent = Agent(env, whole())
    root = agent.attach(env).reset()
    belief = agent.encoder(root["agents"].clone())[keys.BELIEF]
    assert belief["mean"].shape == belief["log_std"].shape == (3, 4, 8)
    assert torch.equal(belief["proprioception"][..., :8], root["agents", "meters"])
    assert torch.equal(belief["social_cues"].flatten(-2), root["agents", "others"])
    assert torch.equal(belief["visible"], root["agents", "others_number"] < 4)
    assert belief["log_std"].abs().max() < 1


@pytest.mark.parametrize(
    ("ended", "error"),
    [(False, (9 + 1) / 2), (True, 9)],  # (5 - 2)^2 and (5 - 4)^2; what is seen after an end is another episode's
)
def test_the_prediction_is_of_the_next_observation_of_the_same_episode(ended, error):
    loss = PerceptionLoss(PerceptionConfig(belief_size=1, embedding_size=2, prediction_coeff=1.0), 1, [2], "relu")
    with torch.no_grad():
        for parameter in loss.predictor.parameters():
            parameter.zero_()
        loss.predictor[-1].bias.fill_(5.0)  # predicts 5 whatever is believed
    data = TensorDict(
        {keys.NORMALIZED: torch.tensor([[[1.0], [2.0], [4.0]]]), "action": torch.zeros(1, 3).long()}, [1, 3]
    )
    data["done"] = torch.tensor([[[False], [ended], [False]]])
    data["belief"] = TensorDict({"mean": torch.zeros(1, 3, 1), "log_std": torch.zeros(1, 3, 1)}, [1, 3])
    assert loss(data)["loss_perception_prediction"].item() == pytest.approx(error)


def test_pictures_are_read_where_they_are():
    """The same window, with one cell changed, gives another belief; the statistics keep shapes apart."""
    env = town()
    agent = Agent(env, config())
    root = agent.attach(env).reset()["agents"]
    other = root.clone()
    other["window"][..., 3, 2, 2] += 1.0
    one, two = (agent.encoder(version.clone())[keys.BELIEF, "mean"] for version in (root, other))
    assert not torch.allclose(one, two)


# --- world model ------------------------------------------------------------------------------------------------------


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = WorldModel(6, 3, [4], WorldModelConfig(enabled=True, hidden_size=16, candidates=3, horizon=4), "silu", 0.9)
    with torch.no_grad():
        model.end[-1].bias.fill_(-3.0)  # dreams go on
    return model


def test_imagination_equals_step_after_step(model):
    belief, known, actions = torch.randn(5, 6), torch.rand(5, 3), torch.randint(4, (5, 2, 4))
    futures = model.imagine(belief, known, actions)
    assert futures.shape == (5, 2)
    for candidate in range(2):
        now, own, spreads = belief, known, []
        for step in range(4):
            one_hot = torch.nn.functional.one_hot(actions[:, candidate, step], 4).float()
            outcome = model(now, own, one_hot)
            now, own = outcome["belief"], outcome["proprioception"]
            torch.testing.assert_close(futures["states"][:, candidate, step], own)
            torch.testing.assert_close(futures["rewards"][:, candidate, step], symexp(outcome["reward"]))
            torch.testing.assert_close(futures["dones"][:, candidate, step], outcome["end"].sigmoid())
            torch.testing.assert_close(futures["values"][:, candidate, step], symexp(model.symlog_value(now, own)))
            spreads.append(spread(outcome["opinions"]))
        doubt = torch.stack(spreads).mean(0) / 2  # in units of twice what is usual
        torch.testing.assert_close(futures["confidence"][:, candidate], torch.exp(-doubt))


def test_a_dream_that_ended_stands_still(model):
    with torch.no_grad():
        model.end[-1].weight.zero_()
        model.end[-1].bias.fill_(1.0)
    belief, known, actions = torch.randn(5, 6), torch.rand(5, 3), torch.randint(4, (5, 2, 4))
    futures = model.imagine(belief, known, actions)
    last = model(belief, known, torch.nn.functional.one_hot(actions[:, 0, 0], 4).float())["proprioception"]
    torch.testing.assert_close(futures["states"][:, 0], last.unsqueeze(1).expand(5, 4, 3))
    end = torch.tensor(1.0).sigmoid()
    torch.testing.assert_close(futures["dones"], torch.stack((end, *torch.ones(3))).expand(5, 2, 4))
    first, second = futures["rewards"][..., 0], futures["rewards"][..., 1]
    torch.testing.assert_close(model.expected_return(futures), first + 0.9 * (1 - end) * second)


def test_gradients_pass_through_dreams(model):
    belief = torch.randn(2, 6, requires_grad=True)
    model.imagine(belief, torch.rand(2, 3), torch.randint(4, (2, 1, 4)))["rewards"][..., -1].sum().backward()
    assert belief.grad.abs().sum() > 0


def test_a_dream_goes_on_with_what_the_agent_would_do_then(model):
    belief, known = torch.randn(5, 6), torch.rand(5, 3)
    futures = model.candidates(belief, known, None)
    first, later = futures["actions"][..., 0], futures["actions"][..., 1:]
    assert torch.equal(first, model.propose(belief, known).topk(3, -1).indices)
    assert (later != first.unsqueeze(-1)).any(), "no dream repeats its first action because it was the first"
    now, own = (value.unsqueeze(1).expand(5, 3, -1) for value in (belief, known))
    for step in range(3):
        outcome = model(now, own, model.first_head(futures["actions"][..., step]))
        now, own = outcome["belief"], outcome["proprioception"]
        assert torch.equal(later[..., step], model.propose(now, own).argmax(-1))


def test_only_the_likeliest_legal_candidates_are_imagined(model):
    mask = torch.tensor([[True, False, True, True], [True, True, True, False]])
    futures = model.candidates(torch.randn(2, 6), torch.rand(2, 3), mask)
    first = futures["actions"][..., 0]
    assert sorted(first[0].tolist()) == [0, 2, 3]
    assert sorted(first[1].tolist()) == [0, 1, 2]


def test_where_few_actions_are_legal_no_other_is_imagined(model):
    mask = torch.tensor([False, True, False, True])
    tensordict = TensorDict(
        {(keys.BELIEF, "mean"): torch.randn(6), (keys.BELIEF, "proprioception"): torch.rand(3), keys.ACTION_MASK: mask}
    )
    seen = WorldModelModule(model, masked=True)(tensordict)
    first = seen[keys.FUTURES, "actions"][:, 0]
    assert set(first.tolist()) == {1, 3} and len(first) == 3
    returns, confidence, imagined = seen[keys.IMAGINATION_FEATURES].unflatten(-1, (4, 3)).unbind(-1)
    assert imagined.tolist() == [0, 1, 0, 1]
    for number, action in enumerate(first.tolist()):  # what was imagined twice counts once
        expected = symlog(model.expected_return(seen[keys.FUTURES])[number])
        torch.testing.assert_close(returns[action], expected)
        torch.testing.assert_close(confidence[action], seen[keys.FUTURES, "confidence"][number])


@pytest.mark.parametrize(("weight", "gained"), [(10.0, 0.5), (1000.0, 5.0)])
def test_logits_gain_what_imagination_promises(weight, gained):
    imagined = torch.tensor([[1.0, 0.3, 1.0], [0.9, 0.3, 1.0], [0.0, 0.0, 0.0]])  # return, confidence, whether at all
    logits = torch.tensor([0.2, 0.2, 0.2, 7.0])  # the last one is another head's
    seen = PolicyImprovement(weight)(TensorDict({keys.LOGITS: logits, keys.IMAGINATION_FEATURES: imagined.flatten()}))
    torch.testing.assert_close(seen[keys.LOGITS], torch.tensor([0.2 + gained, 0.2 - gained, 0.2, 7.0]))
    unchanged = PolicyImprovement(weight)(TensorDict({keys.LOGITS: logits, keys.IMAGINATION_FEATURES: torch.zeros(9)}))
    assert torch.equal(unchanged[keys.LOGITS], logits), "without the world model it is the controller's policy"


@pytest.mark.parametrize("settings", [{"improvement": -1.0}, {"improvement": 1.0, "candidates": 0}])
def test_a_policy_cannot_be_improved_by_nothing(settings):
    with pytest.raises(ValueError, match=r"model\.world_model\.improvement"):
        Agent(town(), config(world_model=WorldModelConfig(enabled=True, **settings)))


def test_a_policy_that_imagination_improves_is_the_same_when_it_learns():
    learner, data = played("model.world_model.improvement=1000")
    agent = learner.agent
    with set_recurrent_mode(True):
        losses = learner.algorithm.loss(data)
        improved = agent.actor(data.copy()).get(keys.LOGITS)
        plain = agent.actor_head[0](agent.encoder(data.copy())).get(keys.LOGITS)
    assert losses["max_ratio"] == pytest.approx(1, abs=1e-4)
    assert losses["min_ratio"] == pytest.approx(1, abs=1e-4)
    assert (improved - plain).abs().amax() > 1


def test_expected_return_by_hand(model):
    futures = TensorDict(
        {
            "rewards": torch.tensor([[[1.0, 2.0]]]),
            "dones": torch.tensor([[[0.5, 0.0]]]),
            "values": torch.tensor([[[9.0, 10.0]]]),
            "confidence": torch.ones(1, 1),
        },
        [1, 1],
    )
    assert model.expected_return(futures).item() == pytest.approx(1 + 0.9 * 0.5 * 2 + 0.81 * 0.5 * 10)


def test_doubt_has_a_reason(model):
    belief, known, actions = torch.randn(1, 6), torch.rand(1, 3), torch.zeros(1, 1, 3, dtype=torch.int64)
    model.usual_spread.fill_(1e6)
    sure = model.imagine(belief, known, actions)
    assert sure["reason"].item() == NOTHING
    assert sure["confidence"].item() > 0.99
    model.usual_spread.fill_(1e-6)
    lost = model.imagine(belief, known, actions)
    assert lost["reason"].item() == NOVEL_STATE
    assert lost["confidence"].item() < 0.01
    with torch.no_grad():
        model.change[0].weight.mul_(100)  # beliefs run away, so that opinions part later on
        model.usual_spread.copy_(spread(model(belief, known, torch.eye(4)[:1])["opinions"]).squeeze())
        assert model.imagine(belief, known, actions)["reason"].item() == HIGH_VARIANCE


@pytest.mark.slow
def test_the_world_model_learns_what_follows(model):
    """A world in which action 1 raises the first number and brings a reward, and action 0 ends the episode."""
    torch.manual_seed(0)
    optimizer, loss = torch.optim.Adam(model.parameters(), 3e-3), WorldModelLoss(model)
    for _ in range(300):
        action = torch.randint(4, (64, 6))
        known = torch.cat(((action == 1).float().cumsum(1).roll(1, 1).unsqueeze(-1) * 0.1, torch.zeros(64, 6, 2)), -1)
        known[:, 0] = 0
        ends = (action == 0).unsqueeze(-1)
        data = TensorDict({"action": action, "reward": (action == 1).float().unsqueeze(-1), "done": ends}, [64, 6])
        data.update({"terminated": ends, "value_target": torch.zeros(64, 6, 1)})
        data["belief"] = TensorDict({"mean": torch.zeros(64, 6, 6), "proprioception": known}, [64, 6])
        losses = loss(data)
        optimizer.zero_grad()
        sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
        optimizer.step()
    one_hot = torch.eye(4)
    outcome = model(torch.zeros(4, 6), torch.full((4, 3), 0.2) * torch.tensor([1.0, 0.0, 0.0]), one_hot)
    assert outcome["proprioception"][1, 0].item() == pytest.approx(0.3, abs=0.03)
    assert outcome["proprioception"][2, 0].item() == pytest.approx(0.2, abs=0.03)
    rewards = symexp(outcome["reward"])
    assert rewards[1].item() == pytest.approx(1, abs=0.1)
    assert rewards[[0, 2, 3]].abs().max() < 0.1
    assert outcome["end"].sigmoid()[0] > 0.9
    assert outcome["end"].sigmoid()[1:].max() < 0.1


def two_frames(model, ended, died):
    """One sequence of two frames whose own state changes in between."""
    data = TensorDict({"action": torch.zeros(1, 2).long(), "reward": torch.zeros(1, 2, 1)}, [1, 2])
    data["done"] = torch.tensor([[[ended], [False]]])
    data["terminated"] = torch.tensor([[[died], [False]]])
    data["value_target"] = torch.zeros(1, 2, 1)
    known = torch.tensor([[[0.0] * 3, [1.0] * 3]])
    data["belief"] = TensorDict({"mean": torch.zeros(1, 2, 6), "proprioception": known}, [1, 2])
    return data


def test_nothing_is_predicted_beyond_an_episodes_end(model):
    model.config.stride = 2  # what is predicted starts from the first frame only
    loss = WorldModelLoss(model)
    assert loss(two_frames(model, False, False))["loss_world_state"].item() > 1
    assert loss(two_frames(model, True, True))["loss_world_state"].item() == 0


def test_every_predicted_step_learns_from_its_own_frame(model):
    """Two heads say that all becomes less by 0.1 and that rewards are -1, two say the contrary: in the mean nothing
    changes. Ends have a chance of one half, and values are 0.
    """
    with torch.no_grad():
        for part in (model.change, model.ensemble, model.end):
            part[-1].weight.zero_()
            part[-1].bias.zero_()
        model.ensemble[-1].bias.copy_(torch.tensor([-1.0, 1.0, -1.0, 1.0]).repeat_interleave(4))
        model.value[-1].weight.zero_()
    model.config.stride = 3  # from the first of three frames
    data = TensorDict({"action": torch.zeros(1, 3).long()}, [1, 3])
    data["reward"] = symexp(torch.tensor([[[2.0], [3.0], [9.0]]]))
    data["done"] = data["terminated"] = torch.tensor([[[False], [False], [False]]])
    data["value_target"] = symexp(torch.tensor([[[0.0], [1.0], [2.0]]]))
    known = torch.tensor([[[0.0] * 3, [0.1] * 3, [0.3] * 3]])
    mean = torch.tensor([[[0.0] * 6, [1.0] * 6, [2.0] * 6]])
    data["belief"] = TensorDict({"mean": mean, "proprioception": known}, [1, 3])
    found = {name: value.item() / model.config.coeff for name, value in WorldModelLoss(model)(data).items()}
    # errors of the own state are given in tenths; those of the belief count a tenth
    first, second = (0**2 + 2**2) / 2, (2**2 + 4**2) / 2
    assert found["loss_world_state"] == pytest.approx(first + 0.1 * 1 + second + 0.1 * 4, rel=1e-5)
    assert found["loss_world_reward"] == pytest.approx((1**2 + 3**2) / 2 + (2**2 + 4**2) / 2, rel=1e-5)
    assert found["loss_world_end"] == pytest.approx(2 * math.log(2), rel=1e-5)
    seen = (0 + 1 + 4) / 3
    assert found["loss_world_value"] == pytest.approx(seen + 1 + 4, rel=1e-5)
    assert found["world_error"] * model.config.coeff == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize(
    ("died", "cross_entropy"), [(True, math.log1p(math.exp(-2))), (False, 2 + math.log1p(math.exp(-2)))]
)
def test_only_a_death_is_an_end_not_a_time_limit(model, died, cross_entropy):
    model.config.stride = 2
    with torch.no_grad():
        model.end[-1].weight.zero_()
        model.end[-1].bias.fill_(2.0)
    found = WorldModelLoss(model)(two_frames(model, True, died))["loss_world_end"].item()
    assert found == pytest.approx(model.config.coeff * cross_entropy, rel=1e-5)


@pytest.mark.parametrize(("ended", "predicted"), [(False, (0.5 - 2.0) ** 2), (True, 0.0)])
def test_values_learn_where_they_are_predicted(model, ended, predicted):
    model.config.stride = 2
    with torch.no_grad():
        model.value[-1].weight.zero_()
        model.value[-1].bias.fill_(0.5)
    data = two_frames(model, ended, ended)
    data["value_target"] = symexp(torch.tensor([[[1.0], [2.0]]]))
    seen = (
        (0.5 - 1.0) ** 2 + (0.5 - 2.0) ** 2
    ) / 2  # of both frames, beside that of the second as the first predicts it
    found = WorldModelLoss(model)(data)["loss_world_value"].item()
    assert found == pytest.approx(model.config.coeff * (seen + predicted), rel=1e-5)


def test_what_dreams_promised_is_compared_with_what_came(model):
    data = two_frames(model, False, False)
    data["action"] = torch.tensor([[2, 1]])
    facts = torch.zeros(1, 2, 4, 3)  # return, confidence, imagined
    facts[0, 0, 2], facts[0, 0, 0] = torch.tensor([5.0, 1.0, 1.0]), torch.tensor([3.0, 1.0, 1.0])
    facts[0, 1, 1], facts[0, 1, 3] = torch.tensor([3.0, 1.0, 1.0]), torch.tensor([5.0, 1.0, 1.0])
    data["imagination_features"] = facts.flatten(-2)  # 1 above the mean, then 1 below
    data["advantage"] = torch.tensor([[[0.3], [0.1]]])
    loss = WorldModelLoss(model)
    assert loss(data)["imagination_correlation"].item() == pytest.approx(1)
    data["advantage"] = -data["advantage"]
    assert loss(data)["imagination_correlation"].item() == pytest.approx(-1)
    facts[0, 1, 1] = 0.0  # what the second frame did was not imagined: one frame is left
    data["imagination_features"] = facts.flatten(-2)
    assert loss(data)["imagination_correlation"].item() == 0


def test_the_last_frames_of_a_sequence_have_no_later_ones():
    sequences = torch.zeros(2, 4, 3)
    assert have_later(sequences, 1).tolist() == [True, True, True, False]
    assert have_later(sequences, 3).tolist() == [True, False, False, False]


def test_the_first_of_several_choices():
    several = torch.tensor([[2, 1], [0, 3]])
    assert first_head(several, [3, 4]).tolist() == [2, 0]
    assert first_head(several[0], [3]).tolist() == [2, 1]


def test_symlog_and_its_inverse():
    values = torch.tensor([-100.0, -1.0, 0.0, 0.5, 1000.0])
    torch.testing.assert_close(symexp(symlog(values)), values)
    assert symlog(torch.tensor(math.e - 1)).item() == pytest.approx(1)


# --- social model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["sum", "attention"])
def test_exchanging_others_exchanges_what_is_thought_of_them(pooling):
    env = town(rules={"sight": 14})
    agent = Agent(env, config(social_model=SocialModelConfig(enabled=True, pooling=pooling)))
    world = agent.attach(env)
    root = world.rollout(4, agent.policy, break_when_any_done=False)[:, -1]["agents"]
    assert (root["others_number"] < 4).all(), "everybody is in sight"
    found = agent.perception(agent.normalizer(root.exclude(keys.SOCIAL)))
    one, order = agent.social_model(found.clone()), [2, 0, 1]
    for name in ("social_cues", "number", "visible"):  # only the social model sees the exchange
        found[keys.BELIEF, name] = found[keys.BELIEF, name][:, :, order]
    two = agent.social_model(found)
    for name in ("goal", "next_action", "meters", *(["attention"] if pooling == "attention" else [])):
        torch.testing.assert_close(one[keys.SOCIAL, name][:, :, order], two[keys.SOCIAL, name])
    torch.testing.assert_close(one[keys.SOCIAL_EMBEDDING], two[keys.SOCIAL_EMBEDDING], atol=1e-5, rtol=1e-4)
    if pooling == "attention":
        torch.testing.assert_close(one[keys.SOCIAL, "attention"].sum(-1), torch.ones(3, 4))
        one[keys.SOCIAL_EMBEDDING].sum().backward()
        assert agent.social_model.attention.query.weight.grad.any()
        assert agent.perception.mean[-1].weight.grad.any(), "the policy may believe what helps it to attend"


def test_the_policy_learns_to_use_thoughts_and_does_not_change_them():
    env = town(rules={"sight": 14})
    agent = Agent(env, whole())
    root = agent.attach(env).reset()["agents"]
    found = agent.social_model(agent.perception(agent.normalizer(root.clone())))
    found[keys.SOCIAL_EMBEDDING].sum().backward()
    assert all(parameter.grad.any() for parameter in agent.social_model.each.parameters())
    assert all(
        parameter.grad is None or not parameter.grad.any() for parameter in agent.social_model.heads.parameters()
    )


def test_attention_by_hand():
    attention = Attention(1, 2)
    attention.query.weight.data, attention.query.bias.data = torch.tensor([[math.sqrt(2)], [0.0]]), torch.zeros(2)
    attention.key.weight.data = torch.eye(2)
    each = torch.tensor([[math.log(3.0), 9.0], [0.0, 9.0], [50.0, 9.0]]).requires_grad_()
    visible = torch.tensor([[True, True, False], [False, False, False]])
    weights = attention(torch.ones(2, 1), each.expand(2, 3, 2), visible)
    torch.testing.assert_close(weights, torch.tensor([[0.75, 0.25, 0.0], [0.0, 0.0, 0.0]]))  # odds of exp(ln 3) to 1
    weights.sum().backward()
    assert each.grad.isfinite().all(), "where nobody is in sight too"


def test_others_are_pooled_in_a_way_that_there_is():
    with pytest.raises(ValueError, match="pooling is 'mean': use one of sum, attention"):
        Agent(town(), config(social_model=SocialModelConfig(enabled=True, pooling="mean")))


@pytest.mark.parametrize("ended", [True, False])
def test_what_another_does_next_is_learned_within_an_episode_only(ended):
    model = SimpleNamespace(agents=2, config=SocialModelConfig(coeff=1.0), think=lambda data: data.get("social"))
    loss = SocialModelLoss(model)
    thoughts = {"goal": torch.zeros(1, 2, 1, 3), "meters": torch.zeros(1, 2, 1, 2)}
    thoughts["next_action"] = torch.tensor([[[[0.0, math.log(3.0)]]] * 2]).reshape(1, 2, 1, 2)  # 1/4, 3/4
    labels = {"others_need": torch.zeros(1, 2, 1).long(), "others_meters": torch.zeros(1, 2, 1, 2)}
    labels["others_action"] = torch.tensor([[[1], [0]]])  # it is seen to have done 0 a frame later
    data = TensorDict({"done": torch.tensor([[[ended], [False]]]), "social": TensorDict(thoughts, [1, 2])}, [1, 2])
    data["privileged"] = TensorDict(labels, [1, 2])
    seen = {"visible": torch.ones(1, 2, 1, dtype=torch.bool), "number": torch.zeros(1, 2, 1).long()}
    data["belief"] = TensorDict(seen, [1, 2])
    expected = 0.0 if ended else math.log(4.0)
    assert loss(data)["loss_social_action"].item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("visible", "counted"),
    [
        ([[True, True], [True, True]], [1, 1]),
        ([[True, True], [True, False]], [1, 0]),  # nobody sees what the second does next
        ([[True, False], [True, True]], [1, 0]),  # nobody saw the second, so there is nothing to learn of it
        ([[True, True], [False, False]], [0, 0]),
    ],
)
def test_what_is_learned_of_others_is_what_was_seen_of_them(visible, counted):
    model = SimpleNamespace(agents=2, config=SocialModelConfig(coeff=1.0), think=lambda data: data.get("social"))
    thoughts = {"goal": torch.zeros(1, 2, 2, 3), "meters": torch.zeros(1, 2, 2, 2)}
    thoughts["next_action"] = torch.tensor([[0.0, math.log(3.0)], [0.0, math.log(7.0)]]).expand(1, 2, 2, 2)
    labels = {"others_need": torch.zeros(1, 2, 2).long(), "others_meters": torch.zeros(1, 2, 2, 2)}
    labels["others_action"] = torch.tensor([[[1, 1], [0, 0]]])  # both do 0 next: with 1/4 and 1/8, say the thoughts
    number = torch.tensor([[[0, 1], [0, 1]]])
    belief = {"visible": torch.tensor([visible]), "number": torch.where(torch.tensor([visible]), number, 2)}
    parts = {"social": thoughts, "privileged": labels, "belief": belief}
    data = TensorDict({name: TensorDict(part, [1, 2]) for name, part in parts.items()}, [1, 2])
    data["done"] = torch.zeros(1, 2, 1, dtype=torch.bool)
    expected = (counted[0] * math.log(4.0) + counted[1] * math.log(8.0)) / max(sum(counted), 1)
    loss = SocialModelLoss(model)
    found = loss(data)
    assert found["loss_social_action"].item() == pytest.approx(expected)
    assert found["social_action_accuracy"].item() == 0
    seen = torch.tensor(visible).sum()
    assert found["loss_social_goal"].item() == pytest.approx(math.log(3.0) if seen else 0.0)
    data[keys.VALID] = torch.tensor([[False, False]])  # of an agent that is dead
    assert not any(value.any() for value in loss(data).values())


def test_a_new_episode_begins_among_strangers():
    hidden, seen = torch.ones(1, 2, 4), torch.ones(1, 2, 1, dtype=torch.bool)
    begins = torch.zeros(1, 1, 1, dtype=torch.bool)
    assert met_before(seen, begins, hidden).all()
    assert not met_before(seen, ~begins, hidden).any()


@pytest.mark.parametrize("associations", [0, 3])
def test_no_other_is_read_by_associations_of_an_earlier_episode(associations):
    env = town(rules={"sight": 14})
    agent = Agent(env, whole(associations))
    root, thoughts = agent.attach(env).reset()["agents"], []
    for left in (0.0, 1.0):
        frame = root.clone()
        frame["others_hidden"] = torch.full_like(root["others_hidden"], left)
        with torch.no_grad():
            thoughts.append(agent.encoder(frame)[keys.SOCIAL])
    assert (thoughts[0] == thoughts[1]).all()


def test_who_is_out_of_sight_is_not_thought_of():
    env = town(rules={"sight": 1, "width": 9, "height": 9})
    agent = Agent(env, whole())
    world = agent.attach(env)
    root = world.reset()
    for corner, (x, y) in enumerate([(0, 0), (0, 8), (8, 0), (8, 8)]):
        env.state.agents.x[corner], env.state.agents.y[corner] = x, y
    wait = torch.full(env.full_action_spec[env.action_key].shape, 5)
    root = agent.policy(world.step_and_maybe_reset(root.set(env.action_key, wait))[1])["agents"]
    assert (root["others_number"] == 4).all()
    assert not root[keys.SOCIAL, "goal"].any()
    assert not root[keys.SOCIAL_EMBEDDING].any()


def test_others_are_followed_by_number_not_by_slot():
    number = torch.tensor([[[2, 1, 3], [1, 2, 3]]])  # agents 1 and 2 change places; 3 is nobody
    action = torch.tensor([[[7, 7, 0], [4, 5, 0]]])
    following, seen = follow(number, action, number < 3, 3)
    assert following[0, 0].tolist() == [5, 4, 0]
    assert seen[0, 0].tolist() == [True, True, False]


def test_a_social_model_that_does_not_learn_needs_no_labels():
    with pytest.raises(ValueError, match="coeff=0"):
        Agent(town(privileged=False), config(social_model=SocialModelConfig(enabled=True)))
    env = town(privileged=False)
    agent = Agent(env, config(social_model=SocialModelConfig(enabled=True, coeff=0.0)))
    assert not agent.auxiliary
    assert agent.attach(env).rollout(2, agent.policy)["agents", "social", "goal"].shape[-1] == 1


@pytest.mark.parametrize("associations", [0, 3])
def test_who_was_never_seen_stays_new_and_sequences_find_what_steps_found(associations):
    env = town(rules={"sight": 14})
    agent = Agent(env, whole(associations))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in agent.parameters():  # as after training: no bias is 0
            parameter.add_(0.1 * torch.randn_like(parameter))
    root = agent.attach(env).reset()["agents"].select(*agent.encoder.in_keys, strict=False)
    nobody, hidden, steps, found = 4, root["others_hidden"], [], []
    for step in range(5):
        frame = root.clone()
        frame["is_init"] = torch.full_like(root["is_init"], step in (0, 4))
        frame["others_hidden"] = torch.zeros_like(hidden) if step in (0, 4) else hidden
        if step in (0, 2):
            frame["others_number"] = torch.full_like(root["others_number"], nobody)
            frame["others"] = torch.zeros_like(root["others"])
        steps.append(frame.clone())
        with torch.no_grad():
            out = agent.encoder(frame)
        hidden = out["next", "others_hidden"]
        found.append(out["social"].clone())
    visible, reasons = root["others_number"] != nobody, [social["reason"] for social in found]
    assert (reasons[0] == 0).all() and (reasons[2] == 0).all(), "nobody is there"
    assert (reasons[1][visible] == NOVEL_STATE).all(), "first seen in the second step"
    assert (reasons[3][visible] != NOVEL_STATE).all(), "seen two steps before"
    assert (reasons[4][visible] == NOVEL_STATE).all(), "a new episode"
    rows = torch.stack(steps, -1).flatten(0, 1)  # [N * A, T]
    model = agent.social_model
    with torch.no_grad(), set_recurrent_mode(True):
        whole_rows = model(agent.perception(agent.normalizer(rows)))
    for step, social in enumerate(found):
        for name in ("reason", "goal", "next_action", "meters"):
            torch.testing.assert_close(whole_rows["social", name][:, step], social[name].flatten(0, 1))


def test_memory_of_others_lasts_while_they_are_away():
    env = town(rules={"sight": 14})
    agent = Agent(env, whole())
    root = agent.attach(env).reset()["agents"]
    seen = agent.encoder(root.clone())
    later = root.clone().update({"is_init": torch.zeros_like(root["is_init"])})
    later["others_hidden"] = seen["next", "others_hidden"]
    later["others_number"].fill_(4)
    later["others"].zero_()
    away = agent.encoder(later)
    oneself = torch.eye(4, dtype=torch.bool)
    remembered = away["next", "others_hidden"].abs().sum(-1) > 0
    assert torch.equal(remembered, ~oneself.expand(3, 4, 4))


# --- manager ----------------------------------------------------------------------------------------------------------


def test_semi_markov_advantage_by_hand():
    """Two goals: the first lives two steps, the second three and is cut off by the rollout's end."""
    reward = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).unsqueeze(-1)
    decided = torch.tensor([True, False, True, False, False]).unsqueeze(-1)
    value = torch.tensor([10.0, 0.0, 20.0, 0.0, 0.0]).unsqueeze(-1)
    following = torch.tensor([0.0, 0.0, 0.0, 0.0, 30.0]).unsqueeze(-1)
    never = torch.zeros(5, 1, dtype=torch.bool)
    g, lmbda = 0.9, 0.8
    advantage, target = semi_markov_advantage(reward, never, decided, value, following, never, g, lmbda)
    second = 3 + g * 4 + g**2 * 5 + g**3 * 30 - 20
    first = 1 + g * 2 + g**2 * (20 + lmbda * second) - 10
    assert advantage.squeeze(-1).tolist() == pytest.approx([first, 0, second, 0, 0], rel=1e-5)
    assert target[0].item() == pytest.approx(first + 10)


@pytest.mark.parametrize("terminated", [True, False])
def test_semi_markov_advantage_at_an_episodes_end(terminated):
    reward = torch.tensor([1.0, 2.0, 3.0]).unsqueeze(-1)
    done = torch.tensor([False, True, False]).unsqueeze(-1)
    decided = torch.tensor([True, False, True]).unsqueeze(-1)
    value = torch.tensor([10.0, 0.0, 20.0]).unsqueeze(-1)
    following = torch.tensor([0.0, 50.0, 30.0]).unsqueeze(-1)
    advantage, _ = semi_markov_advantage(reward, done, decided, value, following, done & terminated, 0.9, 0.8)
    after = 0.0 if terminated else 50.0
    assert advantage[0].item() == pytest.approx(1 + 0.9 * (2 + 0.9 * after) - 10, rel=1e-5)
    assert advantage[2].item() == pytest.approx(3 + 0.9 * 30 - 20, rel=1e-5)


def test_a_character_is_seen_by_the_manager_alone():
    env = town(level="L8")
    agent = Agent(env, whole())
    assert "traits" not in agent.normalizer.in_keys and "traits" in agent.manager.in_keys
    one = agent.attach(env).reset()["agents"]
    other = one.clone()
    other["traits"] = 1 - one["traits"]
    torch.nn.init.normal_(agent.manager.choose[-1].weight)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        one, other = (agent.encoder(version) for version in (one, other))
    assert torch.equal(one[keys.BELIEF, "mean"], other[keys.BELIEF, "mean"])
    assert not torch.allclose(one[keys.GOAL, "log_prob"], other[keys.GOAL, "log_prob"])
    flat = Agent(env, config())
    assert "traits" in flat.normalizer.in_keys, "without a manager perception sees it"


def test_a_goal_can_be_taken_away():
    changes = ["model.manager.goals.social=null", "+model.manager.goals.rest={energy: 0.9}"]
    learner = Experiment.load("town_agent", *SMALL, *changes).make_learner()
    assert learner.agent.manager.names == ["survival", "thriving", "money", "explore", "rest"]
    assert learner.agent.manager.targets[-1].tolist() == pytest.approx([0.9, 0, 0, 0, 0, 0, 0, 0])


def test_goals_last_until_their_time_is_up_or_their_targets_are_met():
    env = town(num_envs=1, num_agents=2, rules={"max_steps": 50})
    goals = {"rich": {"money": 0.6}, "idle": {}}
    agent = Agent(env, config(manager=town_manager(steps=4, goals=goals)))
    manager = agent.manager
    meters = torch.zeros(1, 8)
    meters[0, 3] = 0.59
    assert manager.met(meters).tolist() == [[False, False]]
    meters[0, 3] = 0.6
    assert manager.met(meters).tolist() == [[True, False]], "a goal without targets ends by time alone"
    world = agent.attach(env)
    with torch.no_grad():
        manager.choose[-1].bias.copy_(torch.tensor([-99.0, 99.0]))  # always idle
        played = world.rollout(13, agent.policy, break_when_any_done=False)["agents", "goal"]
    assert played["decided"][0, :, 0].tolist() == [step % 4 == 0 for step in range(13)]
    assert played["steps_left"][0, :5, 0, 0].tolist() == [4, 3, 2, 1, 4]
    with torch.no_grad():
        manager.choose[-1].bias.copy_(torch.tensor([99.0, -99.0]))  # always rich, which it is not at first
        root = world.reset()["agents"]
        root["meters"][..., 3] = 0.5
        acted = agent.encoder(root)
        following = acted.clone().update({"is_init": torch.zeros_like(acted["is_init"])})
        following.update(acted["next"].select("held_goal", "goal_steps_left"))
        assert not agent.encoder(following.clone())["goal", "decided"].any(), "it still wants to be rich"
        following["meters"][..., 3] = 0.9
        assert agent.encoder(following)["goal", "decided"].all(), "it is"


def test_a_goal_that_the_manager_hardly_wants_any_more_is_given_up():
    env = town(num_envs=1, num_agents=2)
    goals = {"rich": {"money": 0.9}, "fit": {"fitness": 2.0}}
    for give_up, kept in ((0.0, True), (0.2, True), (0.3, False)):
        manager = Agent(env, config(manager=town_manager(goals=goals, give_up=give_up))).manager
        with torch.no_grad():
            manager.choose[-1].weight.zero_()
            manager.choose[-1].bias.copy_(torch.tensor([math.log(0.25), math.log(0.75)]))
        keys_and_sizes = {key: (2, 1) for key in (keys.HELD_GOAL, keys.GOAL_STEPS)}
        row = TensorDict({key: torch.zeros(2, 4) for key in manager.in_keys if key not in keys_and_sizes}, [2])
        row.update({key: torch.zeros(size) for key, size in keys_and_sizes.items()})
        row.update({key: torch.zeros(2, size) for key, size in zip(manager.features, [8, 8], strict=False)})
        row.update({"meters": torch.zeros(2, 8), keys.IS_INIT: torch.zeros(2, 1, dtype=torch.bool)})
        row.set(keys.GOAL_STEPS, torch.full((2, 1), 7.0))
        goal = manager(row)["goal"]
        assert goal["decided"].tolist() == [not kept] * 2, give_up
        chances = torch.tensor([[0.25], [0.75]])
        torch.testing.assert_close(goal["priority"], chances[goal["type"]])
        row.set(keys.IS_INIT, torch.ones(2, 1, dtype=torch.bool))
        assert manager(row)["goal", "decided"].all(), "a new episode begins with a choice"


def test_the_controller_is_paid_for_what_the_goal_lacks_less():
    goals = {"rich": {"money": 0.6}, "well": {"energy": 0.5, "health": 0.4}, "idle": {}}
    manager = Agent(town(), config(manager=town_manager(goals=goals, intrinsic_coeff=2.0))).manager
    names = manager.config.meter_names
    before, after = torch.zeros(3, 1, 8), torch.zeros(3, 1, 8)
    before[:, 0, names.index("money")] = 0.5
    after[:, 0, names.index("money")] = 0.7  # 0.1 of it beyond what was wanted
    before[:, 0, names.index("energy")], after[:, 0, names.index("energy")] = 0.45, 0.40
    rollout = TensorDict(
        {"meters": before, ("next", "meters"): after, ("goal", "type"): torch.arange(3)[:, None]}, [3, 1]
    )
    assert manager.intrinsic_reward(rollout).flatten().tolist() == pytest.approx([0.2, -0.1, 0.0], abs=1e-6)
    world = tuple(torch.zeros(3, 1, 1) for _ in range(3))
    assert Agent(town(), whole()).agent_modules["manager"].rewrite_rewards(rollout, *world) == world


def test_an_option_whose_targets_are_met_cannot_be_chosen():
    goals = {"rich": {"money": 0.6}, "well": {"energy": 0.5, "health": 0.4}}
    for options in (False, True):
        change = {"goals": goals, "intrinsic_coeff": 1.0, "options": options}
        manager = Agent(town(), config(manager=town_manager(**change))).manager
        names = manager.config.meter_names
        meters = torch.zeros(3, 8)
        meters[0, names.index("money")] = 0.7
        meters[1:, names.index("energy")] = meters[1:, names.index("health")] = 0.5
        meters[2, names.index("money")] = 0.6
        with torch.no_grad():
            manager.choose[-1].weight.zero_()
            manager.choose[-1].bias.copy_(torch.tensor([math.log(0.25), math.log(0.75)]))
        context = torch.zeros(3, manager.choose[0].in_features)
        some = torch.tensor([0.25, 0.75])
        expected = [torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), some] if options else [some] * 3
        torch.testing.assert_close(manager.choice(context, manager.met(meters)).probs, torch.stack(expected))


def test_options_end_when_met_in_time_or_given_up_also_where_the_rollout_or_the_episode_does():
    goals = {"rich": {"money": 0.6}, "well": {"energy": 0.5}}
    change = {"goals": goals, "intrinsic_coeff": 1.0, "options": True, "steps": 3}
    agent = Agent(town(), config(manager=town_manager(**change)))
    money = agent.manager.config.meter_names.index("money")
    meters = torch.zeros(4, 3, 8)
    meters[3, 0, money] = 0.6  # what the first is after, at the rollout's end; the others want to be well
    meters[:, 1, money] = 0.6
    decided = torch.tensor([[True, True, True], [False, False, False], [True, False, True], [False, True, True]])
    done = torch.tensor([[False, False, False], [False, False, True], [False, True, False], [False, False, False]])
    left = torch.tensor([[2.0, 2.0, 2.0], [1.0, 1.0, 1.0], [2.0, 0.0, 2.0], [1.0, 2.0, 2.0]])  # after the step
    rollout = TensorDict(
        {
            "goal": {"decided": decided, "type": torch.tensor([[0, 1, 1]]).expand(4, 3)},
            "next": {"done": done.unsqueeze(-1), "meters": meters, keys.GOAL_STEPS: left.unsqueeze(-1)},
        },
        [4, 3],
    )
    given_up, cut_off_in_time, of_an_earlier_episode = agent.manager.option_done(rollout).squeeze(-1).T.tolist()
    assert given_up == [False, True, False, True]  # given up after two steps; then met with the rollout's last
    assert cut_off_in_time == [False, False, True, False]  # three steps are up as the episode is cut off
    assert of_an_earlier_episode == [False, False, True, False]  # a new episode begins with a goal, which ends none


@pytest.mark.parametrize("population", [False, True])
def test_in_an_option_the_controller_learns_from_its_pay_alone(population):
    """With values of 0, advantages are discounted sums of wages up to the option's end; the manager's of rewards."""
    changes = [*SMALL, *OPTIONS, "model.manager.steps=3", "algorithm.gamma=0.9", "algorithm.normalize_advantage=false"]
    changes += ["population.members=2", "world.num_envs=6"] if population else []
    learner = Experiment.load("town_agent", *changes).make_learner()
    algorithm = learner.algorithm
    rollout = agent_rows(learner.collector.collect(), "agents")
    agent = algorithm.template.agent if population else learner.agent
    wage, ends = agent.manager.intrinsic_reward(rollout), agent.manager.option_done(rollout)
    assert wage.abs().max() > 0.01 and ends.any()
    done, lmbda = rollout.get(("next", keys.DONE)) | ends, algorithm.config.lmbda
    terminated = rollout.get(("next", keys.TERMINATED)) | ends
    zero = torch.zeros_like(wage)
    paid = tuple(rollout.get(("next", key)) for key in (keys.REWARD, keys.DONE, keys.TERMINATED))
    found = agent.agent_modules["manager"].rewrite_rewards(rollout, *paid)
    assert torch.equal(found[0], wage) and torch.equal(found[2], terminated)
    expected = discounted(wage, done, 0.9 * lmbda)
    if population:
        played = {key: value.unflatten(1, (2, -1)).transpose(0, 1) for key, value in entries(rollout).items()}
        advantage, *_ = algorithm._estimate(played, *[zero.unflatten(1, (2, -1)).transpose(0, 1)] * 2)
        advantage = advantage.transpose(0, 1).flatten(1, 2)
    else:
        advantage, *_ = algorithm._estimate(rollout, zero, zero)
    torch.testing.assert_close(advantage, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "impala"])
def test_every_actor_critic_learns_from_options(algorithm):
    """The world's reward, which is the manager's, does not move the controller."""
    changes = [each for each in (*SMALL, *OPTIONS) if "minibatch_size" not in each]
    # one update: after it how sure the manager is, which the controller reads, tells of the rewards, too
    once = ["minibatch_size=384", "num_epochs=1"] if algorithm == "ppo" else ["num_minibatches=1"]
    changes += [f"algorithm={algorithm}", *(f"algorithm.{each}" for each in once)]
    learned = []
    for luck in (0.0, 5.0):
        learner = Experiment.load("town_agent", *changes).make_learner()
        rollout = learner.collector.collect()
        rollout["next", "agents", "reward"].add_(luck * torch.linspace(-1, 1, rollout.shape[0])[:, None, None, None])
        torch.manual_seed(1)
        learner.improve(rollout, 1e-3)
        learned.append(learner.agent)
    weights = [[each.detach() for each in agent.actor_head.parameters()] for agent in learned]
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))
    goals = [[each.detach() for each in agent.manager.parameters()] for agent in learned]
    assert not all(torch.equal(one, other) for one, other in zip(*goals, strict=True))


def test_what_the_controller_is_paid_is_not_the_managers():
    changes = ["+model.manager.goals.grow={fitness: 2.0, energy: 2.0}", "algorithm.gamma=0.9"]
    changes.append("model.world_model.enabled=false")
    paid, unpaid = (
        Experiment.load("town_agent", *SMALL, *changes, f"model.manager.intrinsic_coeff={coeff}").make_learner()
        for coeff in (1.0, 0.0)
    )
    rollout = agent_rows(unpaid.collector.collect(), "agents")
    paid.agent.load_state_dict(unpaid.agent.state_dict())
    (one, _), (other, _) = (learner.algorithm.advantages(rollout) for learner in (paid, unpaid))
    for key in ("goal_advantage", "goal_value_target", keys.REWARD):
        assert torch.equal(one.get(key), other.get(key))
    difference = (one.get(keys.ADVANTAGE) - other.get(keys.ADVANTAGE)).squeeze(-1)
    wage = paid.agent.manager.intrinsic_reward(rollout)
    # the same values, so only discounted wages differ
    expected = discounted(wage, rollout.get(("next", keys.DONE)), 0.9 * paid.algorithm.config.lmbda)
    torch.testing.assert_close(difference, expected.transpose(0, 1).squeeze(-1), rtol=1e-4, atol=1e-5)
    assert wage.abs().max() > 0.01


def test_the_manager_learns_from_its_own_values_where_a_rollout_ends():
    one, other = (Experiment.load("town_agent", *SMALL).make_learner() for _ in range(2))
    rollout = agent_rows(one.collector.collect(), "agents")
    with torch.no_grad():
        for parameter in other.agent.critic_head.parameters():
            parameter.fill_(0.5)
    (before, _), (after, _) = (learner.algorithm.advantages(rollout) for learner in (one, other))
    assert torch.equal(before.get("goal_advantage"), after.get("goal_advantage")), "the critic has no say"
    assert not torch.equal(before.get(keys.ADVANTAGE), after.get(keys.ADVANTAGE))


@pytest.mark.parametrize(
    ("other", "coeff", "reason"),
    [
        ({"well": {"energy": 0.5}}, 0.0, "intrinsic_coeff is 0.0"),
        ({"idle": {}}, 1.0, "goal 'idle' has none above 0"),
        ({"idle": {"energy": 0.0}}, 1.0, "goal 'idle' has none above 0"),
    ],
)
def test_options_that_pay_nothing_are_refused(other, coeff, reason):
    goals = {"rich": {"money": 0.6}, **other}
    with pytest.raises(ValueError, match=f"{reason}: give model.manager.intrinsic_coeff above 0"):
        Agent(town(), config(manager=town_manager(goals=goals, options=True, intrinsic_coeff=coeff)))


@pytest.mark.parametrize("options", [False, True])
def test_wages_beside_dreams_of_the_worlds_reward_are_refused(options):
    goals = {"rich": {"money": 0.6}, "well": {"energy": 0.5}}
    manager, dreams = town_manager(goals=goals, options=options, intrinsic_coeff=1.0), WorldModelConfig(enabled=True)
    with pytest.raises(ValueError, match="set it to 0, or model"):
        Agent(town(), config(manager=manager, world_model=dreams))


@pytest.mark.parametrize(
    ("change", "bound"),
    [
        ({"intrinsic_coeff": -1.0}, "at least 0"),
        ({"give_up": 1.0}, "below 1"),
        ({"clip_epsilon": 0.0}, "above 0"),
        ({"coeff": -1.0}, "at least 0"),
        ({"entropy_coeff": -1.0}, "at least 0"),
    ],
)
def test_a_manager_that_punishes_learns_nothing_or_never_holds_a_goal_is_refused(change, bound):
    with pytest.raises(ValueError, match=rf"model\.manager\.{next(iter(change))} is .*: it must be {bound}"):
        Agent(town(), config(manager=town_manager(**change)))


@pytest.mark.parametrize("targets", [{"money": "much"}, 0.6])
def test_goals_that_are_no_levels_of_meters_are_refused(targets):
    with pytest.raises(ValueError, match=r"goal 'rich' is .*: give meters and the level of each, such as"):
        Agent(town(), config(manager=town_manager(goals={"rich": targets, "well": {"energy": 0.5}})))


@pytest.mark.parametrize(
    ("change", "goal", "targets"),
    [
        ("model.manager.goals.survival={health: 0.8}", "survival", {"health": 0.8}),
        ("model.manager.goals.earn={money: 0.7}", "earn", {"money": 0.7}),
        ("+model.manager.goals.earn={money: 0.7, energy: 0.2}", "earn", {"money": 0.7, "energy": 0.2}),
    ],
)
def test_a_goal_that_a_configuration_has_or_took_away_is_written_anew(change, goal, targets):
    assert Experiment.load("foresight_market_day", change).model.manager.goals[goal] == targets


def test_the_managers_loss_by_hand():
    """Two decisions with advantages 3 and 1, normalized to 1 and -1; ratios 1.5; a third frame decides nothing."""
    loss = ManagerLoss(SimpleNamespace(config=ManagerConfig(clip_epsilon=0.2, entropy_coeff=0.1, coeff=2.0)))
    log_prob = torch.full((1, 3), math.log(0.75))
    goal = {
        "log_prob": log_prob,
        "decided": torch.tensor([[True, True, False]]),
        "entropy": torch.tensor([[0.5, 0.7, 9.0]]),
    }
    goal["value"] = torch.tensor([[[1.0], [2.0], [99.0]]])
    data = TensorDict(
        {"goal": TensorDict(goal, [1, 3]), "goal_old_log_prob": torch.full((1, 3), math.log(0.5))}, [1, 3]
    )
    data["goal_advantage"] = torch.tensor([[3.0, 1.0, 0.0]])
    data["goal_value_target"] = torch.tensor([[2.0, 4.0, 0.0]])
    found = loss(data)
    assert found["loss_manager_objective"].item() == pytest.approx(-2 * (1.2 - 1.5) / 2)
    assert found["loss_manager_critic"].item() == pytest.approx(0.5 * 2 * (1 + 4) / 2)
    assert found["loss_manager_entropy"].item() == pytest.approx(-2 * 0.1 * 0.6)
    assert found["manager_decisions"].item() == pytest.approx(2 / 3)
    data[keys.VALID] = torch.tensor([[True, True, False]])  # of an agent that is dead in the third
    assert loss(data)["manager_decisions"].item() == 1.0
    data[keys.GOAL, "decided"] = torch.ones(1, 3, dtype=torch.bool)  # and decides all the same
    dead = loss(data)
    for name in ("loss_manager_objective", "loss_manager_critic", "loss_manager_entropy"):
        assert dead[name].item() == pytest.approx(found[name].item()), name


def test_choosing_goals_does_not_change_the_belief(learner, data):
    with set_recurrent_mode(True):
        losses = next(part for part in learner.agent.auxiliary if isinstance(part, ManagerLoss))(
            learner.agent.encoder(data.copy())
        )
    sum(value for name, value in losses.items() if name.startswith("loss_")).backward()
    assert all(parameter.grad.any() for parameter in learner.agent.manager.choose.parameters())
    assert all(
        parameter.grad is None or not parameter.grad.any() for parameter in learner.agent.perception.parameters()
    )


def test_the_most_likely_goal_is_taken_when_exploration_is_off():
    env = town()
    agent = Agent(env, whole())
    root = agent.attach(env).reset()
    with torch.no_grad():
        agent.manager.choose[-1].bias.copy_(torch.tensor([0.0, 0.0, 0.5, 0.0, 0.0]))
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        assert (agent.policy(root.clone())["agents", "goal", "type"] == 2).all()
    torch.manual_seed(0)
    assert len(set(agent.policy(root.clone())["agents", "goal", "type"].flatten().tolist())) > 1


def test_masked_mean():
    values, counted = torch.tensor([1.0, 5.0, torch.nan]), torch.tensor([True, True, False])
    assert masked_mean(values, counted).item() == 3
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)).item() == 0
