"""Plans in imagination: the best sequence is found, what is illegal is not done, and judges use the plan."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch._dynamo.utils import counters
from torchrl.envs.utils import ExplorationType, set_exploration_type
from town_goals import town_manager

from envs import ArenaEnv, TownEnv
from torchrl_agent import cli, keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.loop import learn
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.models.planned_policy import PlannedPolicy, acting_policy
from torchrl_agent.modules.networks import symlog
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.planner import CrossEntropyPlanner, PlannerConfig
from torchrl_agent.modules.social_model import SocialModelConfig
from torchrl_agent.modules.world_model import WorldModel, WorldModelConfig
from torchrl_agent.runs.run import save

CODE = (3, 1, 2, 3)
BAIT, BAIT_REWARD, OPEN_REWARD = 0, 1.1, 10.0


class Lock(WorldModel):
    """A lock that opens after the four actions of a code, one after the other. Right actions bring 1, 2, 3 and 4, the
    last one 10 more; a bait brings more than the first of them and begins again. The belief's first number says how
    many were right.
    """

    def forward(self, belief, known, action):
        stage = belief[..., 0].round().long()
        choice = action[..., : self.heads[0]].argmax(-1)
        code = torch.tensor([*CODE, -1])  # nothing is right once it is open
        right = choice == code[stage.clamp(max=len(CODE))]
        after = torch.where(stage == len(CODE), stage, torch.where(right, stage + 1, 0))
        opens = right & (after == len(CODE))
        reward = (
            right * (stage + 1).float() + OPEN_REWARD * opens + BAIT_REWARD * ((choice == BAIT) & (stage < len(CODE)))
        )
        opinions = torch.zeros(*choice.shape, self.config.ensemble, self.known_size + 1)
        following = torch.cat((after.unsqueeze(-1).float(), belief[..., 1:]), -1)
        end = torch.full_like(reward, -50.0)
        return {
            "belief": following,
            "proprioception": known,
            "reward": symlog(reward),
            "end": end,
            "opinions": opinions,
        }

    def symlog_value(self, belief, known):
        return torch.zeros_like(belief[..., 0])


def lock(heads=(5,), **changes):
    torch.manual_seed(0)
    model = Lock(3, 2, heads, WorldModelConfig(enabled=True, hidden_size=8), "silu", 0.9)
    return model, CrossEntropyPlanner(model, PlannerConfig(horizon=4, **changes))


def best_by_trying_all(model, belief, known, first=None):
    """Largest expected return [rows] over all sequences of 4 actions that begin with a legal one."""
    legal = range(model.heads[0]) if first is None else first
    all_of_them = torch.tensor([(one, *rest) for one in legal for rest in itertools.product(range(5), repeat=3)])
    actions = all_of_them.expand(*belief.shape[:-1], *all_of_them.shape)
    return model.expected_return(model.imagine(belief, known, actions)).amax(-1)


def stages():
    belief = torch.zeros(2, 2, 3)
    belief[..., 0] = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
    return belief, torch.zeros(2, 2, 2)


# --- the method -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["uniform", "proposal"])
@pytest.mark.parametrize("heads", [(5,), (5, 3)])
def test_it_finds_the_best_sequence_of_every_row(heads, start):
    model, planner = lock(heads, start=start, samples=512, elites=32)
    belief, known = stages()
    plan, promised = planner(belief, known)
    assert plan[0, 0].tolist() == list(CODE), "it does not take the bait"
    assert [plan[row, column, 0].item() for row, column in ((0, 1), (1, 0), (1, 1))] == list(CODE[1:])
    torch.testing.assert_close(promised, best_by_trying_all(model, belief, known))
    assert promised[0, 0].item() == pytest.approx(1 + 0.9 * 2 + 0.81 * 3 + 0.729 * 14, rel=1e-5)
    futures = model.imagine(belief, known, plan.unsqueeze(-2))
    torch.testing.assert_close(model.expected_return(futures).squeeze(-1), promised)


def test_later_iterations_find_more_than_the_first():
    belief, known = stages()
    _, drawn = lock(start="uniform", samples=16, elites=4, iterations=1)[1](belief, known)
    _, searched = lock(start="uniform", samples=16, elites=4, iterations=6)[1](belief, known)
    assert (searched >= drawn).all()
    assert searched.sum() > drawn.sum() + 1


def test_no_iteration_forgets_the_best_plan_so_far():
    belief, known = stages()
    found = [
        lock(start="uniform", samples=4, elites=2, smoothing=0.9, iterations=number)[1](belief, known)[1]
        for number in range(1, 9)
    ]
    assert all((later >= sooner).all() for sooner, later in itertools.pairwise(found))


def test_draws_follow_what_the_best_chose():
    """Without smoothing, what no elite chose is never drawn again."""
    model, planner = lock(start="uniform", samples=8, elites=1, smoothing=0.0, iterations=2)
    belief, known = stages()
    seen = []
    imagine = model.imagine
    model.imagine = lambda *arguments: (seen.append(arguments[2]), imagine(*arguments))[1]
    planner(belief, known)
    best = model.expected_return(imagine(belief, known, seen[0])).argmax(-1)
    chosen = seen[0].gather(-2, best.reshape(2, 2, 1, 1).expand(2, 2, 1, 4))
    assert torch.equal(seen[1], chosen.expand_as(seen[1]))


def test_an_illegal_first_action_is_never_planned():
    model, planner = lock(samples=512, elites=32)
    belief, known = stages()
    mask = torch.ones(2, 2, 5, dtype=torch.bool)
    mask[..., CODE[0]] = mask[..., CODE[3]] = False  # what the first and the last row want
    plan, promised = planner(belief, known, mask)
    assert mask.gather(-1, plan[..., :1]).all()
    assert plan[0, 1, 0].item() == CODE[1], "legal actions are planned as before"
    torch.testing.assert_close(promised, best_by_trying_all(model, belief, known, first=[0, 1, 2, 4]))
    only = torch.nn.functional.one_hot(torch.tensor([4, 0]), 5).bool().expand(2, 2, 5)
    assert torch.equal(planner(belief, known, only)[0][..., 0], torch.tensor([[4, 0], [4, 0]]))


def test_the_mask_of_other_heads_does_not_matter():
    _, planner = lock((5, 3))
    belief, known = stages()
    mask = torch.ones(2, 2, 8, dtype=torch.bool)
    mask[..., 5:7] = False
    assert torch.equal(planner(belief, known, mask)[0], planner(belief, known)[0])


def test_a_plan_must_promise_more_than_what_the_controller_likes():
    belief, known = torch.zeros(1, 3), torch.zeros(1, 2)
    code = 1 + 0.9 * 2 + 0.81 * 3 + 0.729 * 14
    bait = BAIT_REWARD + 0.9 * 1 + 0.81 * 2 + 0.729 * 3  # then the first three of the code
    controller = torch.zeros(1, 5)
    controller[:, BAIT] = 10.0
    for prior, first, worth in ((0.9, CODE[0], code), (1.1, BAIT, bait)):
        assert (10 * prior > code - bait) == (first == BAIT)
        _, planner = lock(prior=prior, start="uniform", samples=512, elites=32)
        plan, promised = planner(belief, known, None, controller)
        assert plan[0, 0].item() == first
        assert promised.item() == pytest.approx(worth, rel=1e-5), "what is promised is the return alone"


def test_a_plan_depends_on_its_row_alone_and_repeats_itself():
    torch.manual_seed(0)
    config = WorldModelConfig(enabled=True, hidden_size=16)
    model = WorldModel(6, 3, [4], config, "silu", 0.9)
    belief, known = 3 * torch.randn(9, 6), torch.rand(9, 3)
    torch.manual_seed(1)
    plan, _ = CrossEntropyPlanner(model, PlannerConfig())(belief, known)
    torch.manual_seed(2)
    again, _ = CrossEntropyPlanner(model, PlannerConfig())(belief[4:5], known[4:5])
    assert torch.equal(plan[4:5], again)
    assert len(plan[:, 0].unique()) > 1


# --- the policy -------------------------------------------------------------------------------------------------------


def config(**changes):
    sizes = PerceptionConfig(memory_size=12, belief_size=8, embedding_size=16)
    model, planner = WorldModelConfig(enabled=True, hidden_size=16), PlannerConfig(True, samples=16, elites=4)
    return ModelConfig([16], memory="gru", perception=sizes, world_model=model, planner=planner, **changes)


def town(**changes):
    settings = {"num_envs": 3, "level": "L7", "num_agents": 4, "observation": "groups", "privileged": True}
    return TownEnv(**settings, **changes)


@pytest.fixture(scope="module", params=[{}, {"rules": {"symbols": 3}}], ids=["one head", "two heads"])
def settled(request):
    """An agent with every module, and a tensordict of its world after a few steps."""
    env = town(**request.param)
    torch.manual_seed(0)
    social = SocialModelConfig(enabled=True, memory_size=6)
    agent = Agent(env, config(social_model=social, manager=town_manager()))
    with torch.no_grad():
        for module in (agent.world_model.ensemble, agent.world_model.proposal):
            module[-1].weight.mul_(20)  # so that actions differ in what they promise
        root = agent.attach(env).rollout(4, agent.policy, break_when_any_done=False)[:, -1]
    return agent, root.exclude(keys.NEXT)["agents"]


@torch.no_grad()
def test_all_but_the_first_heads_action_is_the_actors(settled):
    agent, row = settled
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        plain, planned = agent.actor(row.clone()), PlannedPolicy(agent)(row.clone())
    mine = [keys.ACTION, keys.LOG_PROB, keys.PLAN]
    assert (planned.exclude(*mine) == plain.exclude(*mine)).all(), "its memory is the actor's"
    assert (keys.NEXT, keys.HIDDEN) in planned.keys(True)
    heads = len(agent.world_model.heads)
    before, after = (values[keys.ACTION].reshape(3, 4, heads) for values in (plain, planned))
    assert (before[..., 0] != after[..., 0]).any(), "otherwise nothing was planned"
    assert torch.equal(before[..., 1:], after[..., 1:])
    assert torch.equal(after[..., 0], planned[keys.PLAN, "actions"][..., 0])
    assert planned[keys.ACTION_MASK].gather(-1, after[..., :1]).all()
    logits = planned[keys.LOGITS].masked_fill(~planned[keys.ACTION_MASK], -torch.inf).split(agent.world_model.heads, -1)
    pairs = zip(logits, after.unbind(-1), strict=True)
    log_prob = sum(part.log_softmax(-1).gather(-1, choice.unsqueeze(-1)).squeeze(-1) for part, choice in pairs)
    torch.testing.assert_close(planned[keys.LOG_PROB], log_prob, atol=1e-4, rtol=1e-4)


def test_a_world_is_played_by_plans_and_training_is_not():
    env = town()
    agent = Agent(env, config())
    played = agent.attach(env).rollout(5, acting_policy(agent), break_when_any_done=False)["agents"]
    assert torch.equal(played[keys.ACTION], played[keys.PLAN, "actions"][..., 0])
    assert played["action_mask"].gather(-1, played[keys.ACTION].unsqueeze(-1)).all()
    alone = ArenaEnv(2, observation="dict")
    agent = Agent(alone, config())
    assert keys.PLAN in agent.attach(alone).rollout(3, acting_policy(agent)).keys()
    assert keys.PLAN not in agent.attach(alone).rollout(3, agent.policy).keys()


def test_without_a_planner_the_policy_is_the_agents():
    agent = Agent(ArenaEnv(2, observation="dict"), ModelConfig([16], memory="gru"))
    assert acting_policy(agent) is agent.policy
    with pytest.raises(ValueError, match="world model"):
        PlannedPolicy(agent)


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        ({"elites": 65}, "64 samples"),
        ({"start": "nowhere"}, "model.planner.start"),
        (None, r"model\.world_model\.enabled=true"),
    ],
)
def test_what_cannot_work_is_one_sentence(changes, culprit):
    world_model = WorldModelConfig(enabled=changes is not None)
    settings = {"world_model": world_model, "planner": PlannerConfig(True, **(changes or {}))}
    with pytest.raises(ValueError, match=culprit):
        Agent(ArenaEnv(2), ModelConfig([16], memory="gru", **settings))


@pytest.mark.slow
@torch.no_grad()
def test_compiled_it_plans_the_same(settled):
    agent, row = settled
    torch._dynamo.reset()
    counters.clear()
    policy = PlannedPolicy(agent)
    compiled = torch.compile(lambda data: policy(data), fullgraph=True)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        eager, fast = policy(row.clone()), compiled(row.clone())
        compiled(row.clone())
    assert counters["stats"]["unique_graphs"] == 1
    assert torch.equal(eager[keys.ACTION], fast[keys.ACTION])
    assert torch.equal(eager[keys.PLAN, "actions"], fast[keys.PLAN, "actions"])
    promised = (keys.PLAN, "expected_return")
    torch.testing.assert_close(eager[promised], fast[promised], atol=1e-4, rtol=1e-4)


# --- on the command line ----------------------------------------------------------------------------------------------

SMALL = ["world={num_envs: 4, observation: dict}", "algorithm={rollout_steps: 16, minibatch_size: 64}", "device=cpu"]
SMALL += [f"model.perception.{name}_size=12" for name in ("embedding", "memory", "belief")]
SMALL += ["evaluation.episodes=2", "+evaluation.world.rules={max_steps: 12}", "threads=1"]


def make_run(folder, *overrides):
    experiment = Experiment.load("smoke", *SMALL, "model.memory=gru", *overrides)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(experiment.to_yaml())
    save(next(iter(learn(experiment))), folder)
    return str(folder)


def figures(capsys, *arguments):
    assert cli.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
def test_a_run_is_judged_and_filmed_by_its_plans(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path / "run", "model.world_model={enabled: true, hidden_size: 16}")
    planned = []
    plan = CrossEntropyPlanner.forward
    monkeypatch.setattr(CrossEntropyPlanner, "forward", lambda *tensors: planned.append(1) or plan(*tensors))
    plain = figures(capsys, "evaluate", run)
    assert not planned
    first = figures(capsys, "evaluate", run, "--planner")
    assert planned and first["episodes"] == plain["episodes"]
    assert figures(capsys, "evaluate", run, "--planner") == first, "nothing about it is random"
    planned.clear()
    film = str(tmp_path / "planned.gif")
    assert cli.main(["film", run, "--planner", "--steps", "2", "--worlds", "1", "--output", film]) == 0
    assert len(planned) == 2


def test_a_planner_without_a_world_model_is_one_sentence(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    for verb in ("evaluate", "film"):
        assert cli.main([verb, run, "--planner"]) == 2
        printed = capsys.readouterr()
        assert len(printed.err.splitlines()) == 1
        assert "world model, which this agent lacks" in printed.err
