"""Agents against each other: who sits where, how points are counted, and what cannot meet."""

import json
from pathlib import Path

import pytest
import torch

from envs import DuelEnv
from torchrl_agent import Experiment, cli, train
from torchrl_agent.evaluation.matches import Competitor, Games, match, points, seat_competitors
from torchrl_agent.population.seats import pairings
from torchrl_agent.training.evaluator import evaluate_policy

EAGER = [f"acceleration.{part}=false" for part in ("step", "advantages", "update")]


def trained(folder, name, *overrides):
    """A run of one iteration."""
    small = ["world.num_envs=8", "algorithm.rollout_steps=8", "algorithm.minibatch_size=64", "total_frames=64"]
    small += ["+world.rules={max_steps: 60}"]
    kept = [f"run.folder={folder}", f"run.name={name}", "run.film=false", "run.final_evaluation=false"]
    for _ in train(Experiment.load("duel", "device=cpu", "run.tensorboard=false", *small, *kept, *EAGER, *overrides)):
        pass
    return str(folder / name)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return trained(folder, "a"), trained(folder, "b", "seed=1")


def test_each_has_the_first_seat_in_half_of_the_worlds():
    env = DuelEnv(6, seed=0)
    players = env.players()
    seated = seat_competitors([Competitor("scripted"), Competitor("turret")], pairings(2, 6), env)
    root = env.reset()
    for _ in range(30):  # until they do not do the same
        actions = {name: players[name](root.copy())["agents", "action"] for name in ("scripted", "turret")}
        found = seated(root.copy())["agents", "action"]
        for world in range(6):
            order = ("scripted", "turret") if world < 3 else ("turret", "scripted")
            assert found[world].tolist() == [actions[name][world, seat].item() for seat, name in enumerate(order)]
        _, root = env.step_and_maybe_reset(seated(root))
    assert not torch.equal(actions["scripted"], actions["turret"])


def test_points_by_hand():
    won = torch.tensor([1.0, 0, 0.5, 1, 0, 0.5])
    found = points(Games(*pairings(2, 6).T, won))  # first half: won, lost, drawn; with seats changed: lost, won, drawn
    assert (found["won"], found["drawn"], found["lost"]) == (2, 2, 2)
    assert found["share"] == 0.5
    assert found["low"] < 0.5 < found["high"]
    assert found["high"] - 0.5 == pytest.approx(0.5 - found["low"])


def test_the_turret_takes_most_points_of_the_one_that_flies_from_either_seat():
    env = DuelEnv(256, seed=3, action_repeat=2)
    shares, seats = [], pairings(2, 256)
    for order in (("turret", "scripted"), ("scripted", "turret")):
        env.set_seed(3)
        found = evaluate_policy(seat_competitors([Competitor(name) for name in order], seats, env), env)
        shares.append(points(Games(*seats.T, found["win"] + found["draw"] / 2)))
    assert shares[0]["share"] > 0.8
    assert shares[0]["share"] + shares[1]["share"] == pytest.approx(1)


def test_a_run_meets_a_run_and_a_scripted_player(runs, capsys):
    one, other = runs
    found = match(one, other, games=16, device="cpu")
    back = match(other, one, games=16, device="cpu")
    for way in ("deterministic", "stochastic"):
        assert found[way]["won"] + found[way]["drawn"] + found[way]["lost"] == 16
    assert found["deterministic"]["share"] == 1 - back["deterministic"]["share"]
    assert match(one, other, games=16, device="cpu") == found, "the same games again"
    assert cli.main(["match", one, "turret", "--games", "16", "--device", "cpu", "--json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("deterministic actions: ")
    assert json.loads(printed[-1])["deterministic"]["share"] < 0.5
    config = Path(one) / "config.yaml"
    stated = config.read_text().replace("  num_envs: 8", "  num_envs: 8\n  opponent: null")
    config.write_text(stated.replace("    opponent: scripted", "    opponent: scripted\n    rules: {max_steps: 20}"))
    assert match(one, other, games=16, device="cpu")["deterministic"]["drawn"] >= found["deterministic"]["drawn"]


@pytest.mark.slow
def test_agents_that_remember_meet_each_other_and_scripted_players(tmp_path):
    short = ["policy=gru", "world.rules.max_steps=40"]
    one, other = (trained(tmp_path, f"gru {seed}", *short, f"seed={seed}") for seed in range(2))
    assert match(one, "turret", games=8, device="cpu")["deterministic"]["share"] < 0.6
    found, back = match(one, other, games=8, device="cpu"), match(other, one, games=8, device="cpu")
    assert found["deterministic"]["share"] == 1 - back["deterministic"]["share"]


def test_what_cannot_meet_is_refused_in_one_sentence(runs, tmp_path, capsys):
    one, _ = runs
    remembers = trained(tmp_path, "gru", "policy=gru")
    against = trained(tmp_path, "one seat", "+world.opponent=turret")
    for words, sentence in (
        ((one, "shipped:village"), "match agents alike"),
        ((one, "nobody"), "nobody is no run and no player of this world: use a run, or scripted, turret, random"),
        (("turret", "scripted"), "neither turret nor scripted is a run"),
        ((one, "turret", "--games", "3"), "games is 3"),
        ((one, remembers), "agents that remember can only meet those that remember alike"),
        ((against, one), "no two seats"),
    ):
        assert cli.main(["match", *words, "--device", "cpu"]) == 2
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
