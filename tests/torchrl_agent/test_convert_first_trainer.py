"""Files of the Arena's first trainer become runs that act alike and train on, and runs such files."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from launching import Bomb
from tensordict import TensorDict
from torch import nn

from torchrl_agent import cli
from torchrl_agent.convert import from_reference, to_reference
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.runs.load import load_agent

EAGER = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false"]
QUIET = ["device=cpu", "run.tensorboard=false", "run.film=false", "run.final_evaluation=false", *EAGER]
SMALL = ["world.num_envs=4", "algorithm.rollout_steps=16", "algorithm.minibatch_size=32", *QUIET]
SIZE, ACTIONS = 32, 5
"""Numbers that the Arena shows, and its actions."""


class ActorCritic(nn.Module):
    """The trainer's network, by its description."""

    def __init__(self, size, actions, hidden_sizes):
        super().__init__()
        widths, own = [size, *hidden_sizes[:-1]], hidden_sizes[-1]
        shared = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.SiLU())]
        self.shared_net = nn.Sequential(*shared)
        self.actor = nn.Sequential(nn.Linear(widths[-1], own), nn.SiLU(), nn.Linear(own, actions))
        self.critic = nn.Sequential(nn.Linear(widths[-1], own), nn.SiLU(), nn.Linear(own, 1))

    def forward(self, observation):
        features = self.shared_net(observation)
        return self.actor(features), self.critic(features).squeeze(-1)


def observations():
    return torch.as_tensor(np.random.default_rng(2).normal(1.0, 3.0, (1000, SIZE)).astype(np.float32))


def statistics():
    chance = np.random.default_rng(1)
    obs = {"obs_mean": chance.normal(size=SIZE).tolist(), "obs_var": chance.uniform(0.5, 9, SIZE).tolist()}
    return {**obs, "obs_count": 4096.0, "ret_mean": [0.5], "ret_var": [4.0], "ret_count": 4096.0}


def save(path, hidden=(24, 16, 8), **changes):
    """A file as the trainer saves it after two steps of Adam; returns the network."""
    torch.manual_seed(3)
    network = ActorCritic(SIZE, ACTIONS, hidden)
    adam = torch.optim.Adam(network.parameters(), lr=2e-4, eps=1e-5)
    for _ in range(2):
        adam.zero_grad()
        logits, value = network(torch.randn(64, SIZE))
        (logits.square().mean() + (value - 1).square().mean()).backward()
        adam.step()
    with torch.no_grad():  # so that it does not always do the same
        network.actor[2].weight *= 30
        network.actor[2].bias.zero_()
    content = {
        "policy_state_dict": network.state_dict(),
        "optimizer_state_dict": adam.state_dict(),
        "num_timesteps": 512,
    }
    torch.save({**content, **changes}, path)
    path.with_name(f"{path.stem}_normalization.json").write_text(json.dumps(statistics()))
    return network


def normalized(raw):
    known = statistics()
    mean, var = (torch.tensor(known[f"obs_{name}"]) for name in ("mean", "var"))
    return ((raw - mean) / (var + 1e-8).sqrt()).clamp(-10, 10)


def both(agent, network, raw, shown):
    """Logits and values, ours and theirs."""
    with torch.no_grad():
        frames = agent.critic(agent.actor(TensorDict({"observation": raw}, [len(raw)])))
        return (frames["logits"], frames["state_value"].squeeze(-1)), network(shown)


def assert_alike(agent, network):
    raw = observations()
    mine, theirs = both(agent, network, raw, normalized(raw))
    assert torch.equal(mine[0].argmax(-1), theirs[0].argmax(-1)) and len(mine[0].argmax(-1).unique()) > 1
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hidden", [(24, 16, 8), (8,)], ids=["shared", "apart"])
def test_a_file_becomes_a_run_that_acts_alike_and_goes_back(tmp_path, hidden):
    network = save(tmp_path / "old.pt", hidden)
    run, notes = from_reference(tmp_path / "old.pt", "arena_long", [*SMALL, f"run.folder={tmp_path}"], "new")
    assert "the moments of the optimizer are taken over" in notes
    experiment, agent = load_agent(run, "cpu")
    assert_alike(agent, network)
    assert experiment.algorithm.learning_rate.initial == 2e-4 and experiment.algorithm.scale_rewards
    state = load_checkpoint(find_checkpoint(run))
    assert state["frames"] == 512
    assert state["algorithm"]["reward_scaler"]["running.var"].item() == 4.0
    (first, other), _ = to_reference(run, tmp_path / "back")
    before, after = torch.load(tmp_path / "old.pt"), torch.load(first)
    assert before.keys() == after.keys() and after["num_timesteps"] == 512
    weights, again = before["policy_state_dict"], after["policy_state_dict"]
    assert list(weights) == list(again) and all(torch.equal(weights[name], again[name]) for name in weights)
    moments, copies = (content["optimizer_state_dict"]["state"] for content in (before, after))
    for index, moment in moments.items():
        assert all(torch.equal(value, copies[index][name]) for name, value in moment.items())
    found = json.loads(other.read_text())
    assert found["ret_var"] == [4.0] and np.allclose(found["obs_mean"], statistics()["obs_mean"])
    adam = torch.optim.Adam(network.parameters())
    adam.load_state_dict(after["optimizer_state_dict"])  # as the trainer does
    assert adam.param_groups[0]["eps"] == 1e-5


def test_a_run_goes_on_and_networks_apart_are_joined(tmp_path, capsys):
    save(tmp_path / "old_final.pt")
    (tmp_path / "old_final_normalization.json").rename(tmp_path / "old_normalization_final.json")
    words = [*SMALL, f"run.folder={tmp_path}", "--run-name", "new"]
    assert cli.main(["convert", "reference", str(tmp_path / "old_final.pt"), *words]) == 0
    assert cli.main(["resume", str(tmp_path / "new"), "total_frames=640"]) == 0
    state = load_checkpoint(find_checkpoint(tmp_path / "new"))
    assert state["frames"] == 640 and state["algorithm"]["optimizer"]["state"][0]["step"] > 2
    apart = ["total_frames=64", "model.hidden_sizes=[12,8]", "run.name=apart", f"run.folder={tmp_path}"]
    assert cli.main(["train", "smoke", *apart, *SMALL]) == 0
    capsys.readouterr()
    assert cli.main(["convert", "to-reference", str(tmp_path / "apart"), str(tmp_path / "wide.pt")]) == 0
    assert "hidden_sizes=(24, 8)" in capsys.readouterr().out
    _, agent = load_agent(tmp_path / "apart", "cpu")
    content, wide = torch.load(tmp_path / "wide.pt"), ActorCritic(SIZE, ACTIONS, (24, 8))
    wide.load_state_dict(content["policy_state_dict"])
    torch.optim.Adam(wide.parameters()).load_state_dict(content["optimizer_state_dict"])
    raw = observations()
    mine, theirs = both(agent, wide, raw, agent.normalizer.normalize(raw))
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def after_a_step(optimizer, forward, rate=1e-2):
    """Logits and values after one step on a loss of them."""
    optimizer.param_groups[0]["lr"] = torch.tensor(rate)
    optimizer.zero_grad()
    logits, values = forward()
    (logits.logsumexp(-1).mean() + (values - 1).square().mean()).backward()
    optimizer.step()
    with torch.no_grad():
        return forward()


@pytest.mark.parametrize("hidden", [(24, 16, 8), (8,)], ids=["shared", "apart"])
def test_the_next_step_of_the_optimizer_is_the_trainers(tmp_path, hidden):
    network = save(tmp_path / "old.pt", hidden)
    run, _ = from_reference(tmp_path / "old.pt", "arena_long", [*SMALL, f"run.folder={tmp_path}"], "new")
    learner, raw = load_agent(run, "cpu")[0].make_learner(), observations()
    learner.load_state_dict(load_checkpoint(find_checkpoint(run)))
    adam = torch.optim.Adam(network.parameters())
    adam.load_state_dict(torch.load(tmp_path / "old.pt")["optimizer_state_dict"])

    def ours():
        frames = learner.agent.critic(learner.agent.actor(TensorDict({"observation": raw}, [len(raw)])))
        return frames["logits"], frames["state_value"].squeeze(-1)

    shown = normalized(raw)
    before = network(shown)
    mine = after_a_step(learner.algorithm.updater.optimizer, ours)
    theirs = after_a_step(adam, lambda: network(shown))
    for one, other, old in zip(mine, theirs, before, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        assert (one - old).abs().max() > 0.01


def test_damaged_and_foreign_files_are_one_sentence(tmp_path):
    def refused(path, *overrides):
        with pytest.raises(ValueError) as caught:
            from_reference(path, "arena_long", [*QUIET, f"run.folder={tmp_path}", *overrides], "no")
        assert "\n" not in str(caught.value) and str(caught.value).endswith(".") and not (tmp_path / "no").exists()
        return str(caught.value)

    save(tmp_path / "old.pt")
    assert "no file" in refused(tmp_path / "missing.pt")
    (tmp_path / "text.pt").write_text("text")
    assert "is damaged" in refused(tmp_path / "text.pt")
    torch.save({"agent": {}}, tmp_path / "other.pt")
    assert "no file of the trainer" in refused(tmp_path / "other.pt")
    torch.save({"policy_state_dict": Bomb(tmp_path / "exploded")}, tmp_path / "bomb.pt")
    assert "wants to execute" in refused(tmp_path / "bomb.pt") and not (tmp_path / "exploded").exists()
    save(tmp_path / "nothing.pt", optimizer_state_dict={})
    assert "cannot be understood" in refused(tmp_path / "nothing.pt")
    (tmp_path / "alone.pt").write_bytes((tmp_path / "old.pt").read_bytes())
    assert "--statistics" in refused(tmp_path / "alone.pt")
    assert "sees 32 numbers" in refused(tmp_path / "old.pt", "world.style=2")
    assert "use algorithm=ppo" in refused(tmp_path / "old.pt", "algorithm=a2c")
    assert "decides what the model is" in refused(tmp_path / "old.pt", "model.memory=gru")
    adam = torch.load(tmp_path / "old.pt")["optimizer_state_dict"]
    adam["state"][0]["exp_avg"] = adam["state"][0]["exp_avg"].T
    save(tmp_path / "turned.pt", optimizer_state_dict=adam)
    assert "shared_net.0.weight has shape [32, 24] and not [24, 32]" in refused(tmp_path / "turned.pt")


@pytest.mark.parametrize(
    ("options", "moments", "note"),
    [
        ({"betas": (0.5, 0.9)}, {}, "another betas"),
        ({"weight_decay": 0.1}, {}, "another weight_decay"),
        ({"lr": 0.0}, {}, "the learning rate has fallen to 0"),
        ({}, {"exp_avg": torch.full((24, 32), torch.nan)}, "not finite"),
        ({}, {"exp_avg_sq": None}, "trained with another one"),
    ],
)
def test_an_optimizer_unlike_ours_is_noted(tmp_path, options, moments, note):
    save(tmp_path / "old.pt")
    adam = torch.load(tmp_path / "old.pt")["optimizer_state_dict"]
    adam["param_groups"][0] |= options
    state = {**adam["state"][0], **moments}
    adam["state"][0] = {name: value for name, value in state.items() if value is not None}
    save(tmp_path / "old.pt", optimizer_state_dict=adam)
    run, notes = from_reference(tmp_path / "old.pt", "arena_long", [*SMALL, f"run.folder={tmp_path}"], "new")
    assert any(note in each for each in notes)
    fresh = not load_checkpoint(find_checkpoint(run))["algorithm"]["optimizer"]["state"]
    assert fresh == any(each.startswith("the optimizer starts afresh") for each in notes) == ("lr" not in options)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("model.layer_norm=true", "more than plain networks"),
        ("model.critic_hidden_sizes=[12,4]", "last hidden layers of different widths"),
    ],
)
def test_an_agent_that_the_trainer_cannot_hold_is_refused(tmp_path, override, named):
    words = ["total_frames=64", "model.hidden_sizes=[12,8]", override, "run.name=other", f"run.folder={tmp_path}"]
    assert cli.main(["train", "smoke", *words, *SMALL]) == 0
    with pytest.raises(ValueError, match=named):
        to_reference(tmp_path / "other", tmp_path / "other.pt")


def test_statistics_and_the_learning_rate_are_set_by_their_old_names(tmp_path):
    save(tmp_path / "old.pt")
    run, _ = from_reference(tmp_path / "old.pt", "arena_long", [*SMALL, f"run.folder={tmp_path}"], "new")
    learner = load_agent(run, "cpu")[0].make_learner()
    learner.set_normalization_stats({"ret_var": 9.0})
    assert learner.statistics()["ret_var"] == 9.0 and learner.statistics()["ret_count"] == 0
    with pytest.raises(ValueError, match="obs_mean has shape"):
        learner.set_normalization_stats({"obs_mean": [0.0]})
    learner.set_learning_rate(5e-4)
    from torchrl_agent import iterate

    assert next(iter(iterate(learner))).metrics["train/learning_rate"] == pytest.approx(5e-4)
    with pytest.raises(ValueError, match=r"learning_rate\.initial"):
        learner.set_learning_rate(0.0)
