"""The records are exactly what the modules write."""

from __future__ import annotations

import pytest
import torch
from tensordict import is_tensorclass
from torchrl.envs.utils import ExplorationType, set_exploration_type
from town_goals import town_manager

from envs import ArenaEnv, TownEnv
from torchrl_agent import keys
from torchrl_agent.models.agent import Agent, ModelConfig
from torchrl_agent.modules.manager import RECORDED
from torchrl_agent.modules.perception import PerceptionConfig
from torchrl_agent.modules.records import Belief, Futures, Goal, SocialPredictions
from torchrl_agent.modules.social_model import THOUGHTS, SocialModelConfig
from torchrl_agent.modules.world_model import WorldModelConfig

BATCH, FUTURES, STEPS, SLOTS, BELIEF, KNOWN, METERS, ACTIONS, GOALS = (3, 4), 4, 5, 3, 8, 10, 8, 8, 8
ASSOCIATIONS = 6
RECORDS = {
    keys.BELIEF: (
        Belief,
        BATCH,
        {
            "mean": (BELIEF,),
            "log_std": (BELIEF,),
            "proprioception": (KNOWN,),
            "social_cues": (SLOTS, 24),
            "visible": (SLOTS,),
            "number": (SLOTS,),
        },
    ),
    keys.FUTURES: (
        Futures,
        (*BATCH, FUTURES),
        {
            "actions": (STEPS,),
            "states": (STEPS, KNOWN),
            "rewards": (STEPS,),
            "dones": (STEPS,),
            "values": (STEPS,),
            "confidence": (),
            "reason": (),
        },
    ),
    keys.SOCIAL: (
        SocialPredictions,
        BATCH,
        {
            "goal": (SLOTS, GOALS),
            "next_action": (SLOTS, ACTIONS),
            "meters": (SLOTS, METERS),
            "confidence": (SLOTS,),
            "reason": (SLOTS,),
            "attention": (SLOTS,),
            "query": (SLOTS, ASSOCIATIONS),
            "written": (SLOTS, ASSOCIATIONS),
        },
    ),
    keys.GOAL: (
        Goal,
        BATCH,
        {
            "type": (),
            "decided": (),
            "log_prob": (),
            "value": (1,),
            "priority": (1,),
            "target": (METERS,),
            "steps_left": (1,),
            "entropy": (),
        },
    ),
}
DTYPES = {"visible": torch.bool, "decided": torch.bool}
DTYPES |= dict.fromkeys(("number", "actions", "reason", "type"), torch.int64)


@pytest.fixture(scope="module")
def written():
    """What an agent with every module has written after a step."""
    env = TownEnv(3, level="L7", num_agents=4, observation="groups", privileged=True)
    config = ModelConfig(
        [16],
        memory="gru",
        perception=PerceptionConfig(memory_size=12, belief_size=BELIEF, embedding_size=16),
        world_model=WorldModelConfig(enabled=True, hidden_size=16, candidates=FUTURES, horizon=STEPS),
        social_model=SocialModelConfig(enabled=True, memory_size=6, pooling="attention", associations=ASSOCIATIONS),
        manager=town_manager(),
    )
    agent = Agent(env, config)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        return agent.policy(agent.attach(env).reset())["agents"]


@pytest.mark.parametrize("key", RECORDS)
def test_a_module_writes_its_record_and_nothing_else(written, key):
    kind, batch, sizes = RECORDS[key]
    record = kind.from_tensordict(written.get(key))
    assert is_tensorclass(record) and record.batch_size == batch
    assert {field: tuple(getattr(record, field).shape) for field in sizes} == {
        field: (*batch, *size) for field, size in sizes.items()
    }
    assert set(written[key].keys()) == set(kind.__annotations__) == set(sizes)
    for field in sizes:
        assert getattr(record, field).dtype == DTYPES.get(field, torch.float32), field
        assert getattr(record, field).data_ptr() == written[key, field].data_ptr(), "nothing is copied"


@pytest.mark.parametrize("key", RECORDS)
def test_a_record_goes_there_and_back(written, key):
    kind = RECORDS[key][0]
    record = kind.from_tensordict(written.get(key))
    back = record.to_tensordict()
    assert set(back.keys()) == set(written[key].keys())
    assert (back == written[key]).all()
    again = kind.from_tensordict(back)
    for part in (record[1, 2], torch.stack([record, again])[0], again.clone().cpu()):
        assert isinstance(part, kind)
    assert (record[1, 2].to_tensordict() == written[key][1, 2]).all()


def test_what_a_world_does_not_show_and_a_rollout_does_not_keep_is_none(written):
    goal = Goal.from_tensordict(written.select(*RECORDED)[keys.GOAL])
    assert goal.priority is goal.target is goal.steps_left is goal.entropy is None
    assert set(goal.to_tensordict().keys()) == {name for _, name in RECORDED}
    social = SocialPredictions.from_tensordict(written.select(*THOUGHTS)[keys.SOCIAL])
    assert social.confidence is social.reason is social.attention is None
    env = ArenaEnv(2, observation="dict")
    agent = Agent(env, ModelConfig([16], perception=PerceptionConfig(enabled=True, belief_size=8)))
    belief = Belief.from_tensordict(agent.policy(env.reset()).get(keys.BELIEF))
    assert belief.mean.shape == (2, 8)
    assert belief.social_cues is belief.visible is belief.number is None


def test_a_field_that_no_record_knows_is_refused(written):
    with pytest.raises(ValueError, match="strange"):
        Belief.from_tensordict(written[keys.BELIEF].copy().set("strange", written[keys.BELIEF, "mean"]))
