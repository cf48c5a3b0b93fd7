"""Games of a person are data: they are played again, learned from, and refused where they are not of this world."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from torchrl_agent import cli, keys
from torchrl_agent.core.abilities import inner_world
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain.thought import plain
from torchrl_agent.pretrain.recording import RecordingError, read_recording
from torchrl_agent.replay.games import write_games
from torchrl_agent.replay.play import played_world
from torchrl_agent.replay.record import FORMAT, VERSION

STEPS, LENGTH = 160, 16
IDLE, THRUST, LEFT, RIGHT = range(4)
HEADING = 17
"""Component of the observation with the other ship's heading."""
SMALL = [
    *("device=cpu", "threads=1", "model.hidden_sizes=[32]", f"algorithm.rollout_steps={LENGTH}", "world.num_envs=4"),
    "acceleration={step: false, advantages: false, update: false, cudagraphs: false}",
    *("evaluation.episodes=4", "evaluation.max_steps=40"),
]


def person(observation):
    """A habit: thrust while the other one, which turns, heads away."""
    return THRUST if observation[HEADING] < 0 else IDLE


def saved(seed):
    """A game as the page saves it: a person as agent 1, who hands over in every fifth step, beside one that turns."""
    experiment = Experiment.load("duel", *SMALL)
    env = played_world(experiment, experiment.make_agent(experiment.make_world(num_envs=1)))
    functions, record = inner_world(env).programs()
    start = {name: value.flatten().tolist() for name, value in record.items()}
    record["chance.key"][0] = seed
    now, thoughts, seats = functions["reset"](record), [], []
    while len(thoughts) < STEPS and not bool(thoughts and (now["terminated"] | now["truncated"])):
        seats.append(None if len(seats) % 5 == 4 else 1)
        action = [RIGHT, person(now["agents.observation"][0, 1]) if seats[-1] else LEFT]
        kept = {name: now[name] for name in record}
        now = functions["step"]({"action": torch.tensor([action]), **kept})
        thoughts.append([{"action": [each]} for each in action])
    end = {"agents.observation": plain(now["agents.observation"].flatten())}
    return {
        **{"format": FORMAT, "version": VERSION, "config": "duel", "seed": seed},
        "world": {"name": "DuelEnv"},
        "episodes": [{"thoughts": thoughts, "start": start, "seats": seats, "end": end}],
    }


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    folder = tmp_path_factory.mktemp("games")
    found = {folder / f"game_{seed}.json": saved(seed) for seed in range(3)}
    for path, game in found.items():
        path.write_text(json.dumps(game))
    return found


def test_a_recording_holds_what_the_person_saw_and_did(games, tmp_path):
    frames, sheet = read_recording(write_games(list(games), Experiment.load("duel", *SMALL), tmp_path / "games"))
    counted, action = frames[keys.ALIVE], frames[keys.ACTION]
    steps = [seat for game in games.values() for seat in game["episodes"][0]["seats"]]
    assert int(counted.sum()) == len([seat for seat in steps if seat is not None]) > 100
    away = frames["observation"][..., HEADING] < 0
    assert torch.equal(action[counted], torch.where(away, THRUST, IDLE)[counted])
    assert {THRUST, IDLE} == set(action[counted].tolist())
    assert frames.shape == (LENGTH, sheet["worlds"]) and sheet["players"] == ["person"]


@pytest.mark.slow
def test_a_clone_acts_as_the_person_did(games, tmp_path, capsys):
    words = ["pretrain", "policy", "duel", *SMALL, "--updates", "150", "--learning-rate", "0.01"]
    assert cli.main([*words, "--data", *map(str, games), "--output", str(tmp_path / "clone")]) == 0, capsys.readouterr()
    report = json.loads((tmp_path / "clone" / "report.json").read_text())
    assert report["players"] == ["person"]
    assert report["figures"]["accuracy"] > 0.9 > report["figures"]["accuracy_of_the_most_frequent"]


def test_games_of_another_world_and_broken_ones_are_one_sentence(games, tmp_path, capsys):
    game = next(iter(games.values()))

    def refused(change, because, config="duel"):
        broken = copy.deepcopy(game)
        change(broken)
        (tmp_path / "broken.json").write_text(json.dumps(broken))
        with pytest.raises(RecordingError, match=because):
            write_games([tmp_path / "broken.json"], Experiment.load(config, *SMALL), tmp_path / "games")

    refused(lambda game: None, "was played in DuelEnv, and this configuration has ArenaEnv: name the one", "arena")
    refused(lambda game: game["episodes"][0].pop("seats"), "is no game of a person: save one in a page")
    other = "cannot be played again: it is damaged, or of another world than this configuration's"
    refused(lambda game: game.update(seed=99), other)
    refused(lambda game: game["episodes"][0]["start"].popitem(), other)
    refused(lambda game: game["episodes"][0]["thoughts"][3][0].update(action=[77]), other)
    refused(lambda game: game["episodes"][0]["thoughts"][3].pop(), other)
    refused(lambda game: game.update(episodes=3), other)
    handed_over = [None] * len(game["episodes"][0]["seats"])
    refused(
        lambda game: game["episodes"][0].update(seats=handed_over), "the games make 0 sequences of 16 steps and 3 are"
    )
    (tmp_path / "none.json").write_text("{")
    assert cli.main(["pretrain", "policy", "duel", *SMALL, "--data", str(tmp_path / "none.json")]) == 2
    assert "none.json is no recorded episode that can be read" in capsys.readouterr().err
