"""Ranks that share the agents of every world find what one process finds."""

import pytest
import torch
from launching import QUICK, checkpoint, flat, rows, torchrun, two_ranks

from torchrl_agent.cli import main
from torchrl_agent.core import ranks

TOWN = (
    "town",
    *QUICK,
    "world={num_envs: 8, level: L6}",
    "model.hidden_sizes=[32,32]",
    "algorithm.minibatch_size=2048",
    "acceleration={step: false, advantages: false, update: false}",
    "total_frames=512",
)


def test_agents_of_two_ranks_draw_what_those_of_one_process_draw():
    """Of [2 worlds, 4 agents, 3 actions] each rank's two agents."""
    found = []
    for rank in (0, 1):
        torch.manual_seed(3)
        with ranks.among(2, rank), ranks.dealing("agents"):
            found.append(ranks.draw(torch.rand, (2, 2, 3), torch.device("cpu")))
    torch.manual_seed(3)
    assert torch.equal(torch.cat(found, 1), torch.rand(2, 4, 3))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [("model.centralized_critic=true",), ("model.memory=gru",)], ids=["ctde", "memory"])
def test_agents_of_two_ranks_are_those_of_one_process(tmp_path, monkeypatch, changes):
    monkeypatch.chdir(tmp_path)
    words = ("train", *TOWN, *changes)
    assert main([*words, "run.name=one"]) == 0
    torchrun(tmp_path, *words, "run.name=two", "run.spread_agents=true")
    one, two = (checkpoint(tmp_path / "runs" / name, 512) for name in ("one", "two"))
    assert (flat(one["agent"]) - flat(two["agent"])).norm() <= 1e-5 * flat(one["agent"]).norm()
    torch.testing.assert_close(
        two["algorithm"]["reward_scaler"], one["algorithm"]["reward_scaler"], rtol=1e-4, atol=1e-4
    )
    assert torch.equal(one["random"], two["random"])
    for part in ("world", "root"):
        tensors = [{n: v for n, v in each[part].items() if isinstance(v, torch.Tensor)} for each in (one, two)]
        assert tensors[0].keys() == tensors[1].keys()
        for name, value in tensors[0].items():
            torch.testing.assert_close(tensors[1][name], value, rtol=1e-4, atol=1e-4, msg=name)
    for name, value in one["root"]["agents"].items():
        torch.testing.assert_close(two["root"]["agents"][name], value, rtol=1e-3, atol=1e-3, msg=name)
    for mine, theirs in zip(rows(tmp_path / "runs/one"), rows(tmp_path / "runs/two"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-3, nan_ok=True)
    torchrun(tmp_path, "resume", "runs/two", "total_frames=1024")
    torchrun(tmp_path, "resume", "runs/two", "total_frames=1536", processes=1)
    assert [row["frames"] for row in rows(tmp_path / "runs/two")] == [512, 1024, 1536]


@pytest.mark.slow
def test_spread_agents_with_privileged_observations_go_on(tmp_path):
    """These are a nested tensordict of the group."""
    words = ("train", *TOWN, "world.privileged=true", "run.spread_agents=true")
    torchrun(tmp_path, *words, "run.name=run")
    seen = checkpoint(tmp_path / "runs/run", 512)["root"]["agents"]
    agents = {value.shape[1] for name, value in seen.items() if name != "privileged"}
    assert {value.shape[1] for value in seen["privileged"].values()} == agents
    torchrun(tmp_path, "resume", "runs/run", "total_frames=1024")
    assert [row["frames"] for row in rows(tmp_path / "runs/run")] == [512, 1024]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["smoke", *QUICK], "this world has no several agents"),
        ([*TOWN, "world.num_agents=3"], "does not divide among 2 processes"),
        ([*TOWN, "algorithm.lag=1"], "run.spread_agents is for a single agent"),
    ],
)
def test_what_cannot_be_spread_is_refused(tmp_path, words, sentence):
    line = ["train", *words, "run.spread_agents=true"]
    ended = two_ranks(tmp_path, line, line)
    assert [code for code, _ in ended] == [2, 2]
    assert all(sentence in said for _, said in ended), ended
