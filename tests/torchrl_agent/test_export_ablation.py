"""Exported policies with a factor for each module act as the agent does without it, in every format."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from test_programs import NODE, node
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import keys, load_agent
from torchrl_agent.evaluation.ablation import removable, without
from torchrl_agent.export import export_run
from torchrl_agent.export.game import policy_program, world_programs, world_record

RUN, STEPS = "shipped:village", 24
MODULES = ["social_model", "world_model", "manager", "memory"]


@pytest.fixture(scope="module")
def village():
    experiment, agent = load_agent(RUN, "cpu")
    return experiment, agent.eval()


def world(village):
    experiment, agent = village
    return agent.attach(experiment.make_world(evaluation=True, num_envs=1, seed=7))


def factors(ablated):
    return torch.tensor([float(name != ablated) for name in MODULES])


@pytest.fixture(scope="module", params=["torch_export", pytest.param("onnx", marks=pytest.mark.slow)])
def exported(request, tmp_path_factory):
    """The policy's file as a function of tensors by name."""
    if request.param == "onnx" and importlib.util.find_spec("onnxruntime") is None:
        pytest.skip("onnxruntime is not installed")
    suffix = {"torch_export": "pt2", "onnx": "onnx"}[request.param]
    path = tmp_path_factory.mktemp("exported") / f"policy.{suffix}"
    export_run(RUN, "policy", request.param, path, ablation=True)
    if request.param == "torch_export":
        return torch.export.load(path).module()
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [each.name for each in session.get_outputs()]
    read = {each.name for each in session.get_inputs()}

    def call(given):
        found = session.run(names, {name: value.numpy() for name, value in given.items() if name in read})
        return {name: torch.from_numpy(value) for name, value in zip(names, found, strict=True)}

    return call


@torch.no_grad()
@pytest.mark.parametrize("ablated", [None, *MODULES])
def test_a_file_acts_as_the_ablated_agent_through_an_episode(village, exported, ablated):
    _, agent = village
    assert list(removable(agent)) == MODULES
    env, carried, changed = world(village), None, 0
    root = env.reset()
    chance = torch.Generator().manual_seed(1)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for step in range(STEPS):
            if step % 2:  # an observation that no game has
                window = root["agents", "window"]
                window.copy_(torch.randn(window.shape, generator=chance))
            rows = root["agents"][0].select(*agent.actor.in_keys).clone()
            given = {**rows.to_dict(), **(carried or {}), keys.MODULE_FACTORS: factors(ablated).repeat(len(rows), 1)}
            found = exported(given)
            whole = agent.actor(rows.clone())[keys.LOGITS]
            with without(agent, [ablated] if ablated else []):
                root = agent.policy(root)
            torch.testing.assert_close(found[keys.LOGITS], root["agents", keys.LOGITS][0], atol=1e-5, rtol=1e-5)
            assert torch.equal(found[keys.ACTION], root["agents", keys.ACTION][0])
            changed += int(not torch.allclose(found[keys.LOGITS], whole, atol=1e-4))
            carried = {name: found[f"next_{name}"] for name in agent.memory}
            _, root = env.step_and_maybe_reset(root)
    if ablated != "memory":  # without which the next step alone is another one
        assert (changed > STEPS / 2) == (ablated is not None)


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="Node, which runs programs, is not installed")
@torch.no_grad()
def test_a_browser_plays_on_without_each_module(village):
    _, agent = village
    games = []
    same = world(village)
    programs = {**world_programs(same), "policy": policy_program(same, agent, ablation=True)}
    for ablated in (None, *MODULES):
        env, taken = world(village), []
        record, root = world_record(env), env.reset()
        with without(agent, [ablated] if ablated else []), set_exploration_type(ExplorationType.DETERMINISTIC):
            for _ in range(STEPS):
                root = agent.policy(root)
                taken.append(root[env.action_key].reshape(-1).tolist())
                _, root = env.step_and_maybe_reset(root)
        asked = factors(ablated).repeat(len(taken[0])).tolist()
        found = node(programs=programs, record=record, prefix="agents.", steps=STEPS, factors=asked)
        assert found["actions"] == taken
        games.append(str(taken))
    assert len(set(games)) > 2, "ablation changes what is done"


def test_what_has_no_modules_to_ablate_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="one plain network: it has no module to be ablated"):
        export_run("shipped:arena", output=tmp_path / "policy.pt2", ablation=True)
    with pytest.raises(ValueError, match="--ablation adds an input to a policy, not to manager as onnx: leave it out"):
        export_run(RUN, "manager", "onnx", ablation=True)
