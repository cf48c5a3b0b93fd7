"""The model card: written with every finished training, true, and with instructions that work."""

import functools
import json
import re
import shlex
from pathlib import Path

import pytest

from torchrl_agent import Experiment, cli, train
from torchrl_agent.core.checkpoint import checkpoints
from torchrl_agent.runs import writer as run_writer
from torchrl_agent.runs.film import film_policy
from torchrl_agent.runs.model_card import model_card

OFF = ("run.film=false", "run.final_evaluation=false")
EAGER = "acceleration={step: false, advantages: false, update: false}"
SMALL = {
    "smoke": ("world.num_envs=64", "algorithm.rollout_steps=8", "+evaluation.world.rules={max_steps: 60}"),
    "cartpole": (EAGER, "total_frames=1024"),
    "town": (
        EAGER,
        "world={level: L1, num_envs: 4}",
        "algorithm={rollout_steps: 16, minibatch_size: 64}",
        "total_frames=128",
        "+evaluation.world.rules={max_steps: 60}",
    ),
}
"""What makes a configuration train for seconds."""
SUMMARY = {"frames": 2048, "seconds": 12.3, "device": "cpu", "metrics": {}}


def trained(folder, *overrides, config="smoke"):
    """Train for an iteration and return the run's folder and card."""
    changes = (f"run.folder={folder}", "run.tensorboard=false", "device=cpu", "total_frames=512", *overrides)
    experiment = Experiment.load(config, *changes)
    for _ in train(experiment):
        pass
    run = folder / experiment.run.name
    return run, (run / "README.md").read_text(encoding="utf-8")


def blocks(card):
    """The Python snippet and the commands."""
    return [block for _, block in re.findall(r"```(python)?\n(.*?)```", card, re.DOTALL)]


@pytest.mark.parametrize(
    "config", ["smoke", pytest.param("cartpole", marks=pytest.mark.slow), pytest.param("town", marks=pytest.mark.slow)]
)
def test_the_snippet_and_the_commands_work(config, tmp_path, capsys, monkeypatch):
    """In worlds of one agent, of Gymnasium and of several agents; in a folder that must be quoted."""
    monkeypatch.chdir(tmp_path)
    run, card = trained(Path("our runs"), "run.name=run", *OFF, *SMALL[config], config=config)
    snippet, commands = blocks(card)
    assert len(snippet.splitlines()) == 4
    names = {}
    exec(snippet, names)
    assert names["experiment"].name == config
    assert names["played"].batch_size[0] == 4
    verbs = [shlex.split(line)[1:] for line in commands.splitlines()]
    assert [(verb, path) for verb, path, *_ in verbs] == [(verb, str(run)) for verb in ("evaluate", "film", "resume")]
    assert cli.main([*verbs[0], "--episodes", "2"]) == 0
    if config != "cartpole":
        assert cli.main([*verbs[1], "--steps", "4", "--worlds", "1"]) == 0
    (frames,) = (int(path.stem.split("_")[1]) for path in checkpoints(run / "checkpoints"))
    assert cli.main(verbs[2]) == 0
    assert (run / "checkpoints" / f"checkpoint_{2 * frames}.pt").is_file()


def test_a_card_tells_what_was_trained_and_with_what(tmp_path):
    run, card = trained(tmp_path, "run.name=first", "seed=3", *OFF)
    code = json.loads((run / "code.json").read_text())
    assert card.startswith("# first\n")
    for part in (
        "configuration `smoke` and seed 3",
        "`envs.ArenaEnv` `num_envs=16`, `style=1`",
        "| seed | 3 |",
        "| frames | 512 (",
        f"torch {code['versions']['torch']}",
        code.get("commit") or "unknown",
        "One training run with one seed (3)",
    ):
        assert part in card, part
    assert "film.gif" not in card
    assert "Not yet: `torchrl-agent evaluate`, below, does it." in card


def test_a_card_shows_the_evaluation_and_the_film(tmp_path, monkeypatch):
    monkeypatch.setattr(run_writer, "film_policy", functools.partial(film_policy, steps=4))
    run, card = trained(tmp_path, "run.name=full", "+evaluation.world.rules={max_steps: 60}")
    evaluation = json.loads((run / "summary.json").read_text())["evaluation"]
    assert "most likely actions in the first episode of each of 8 worlds with seed 10000" in card
    assert "`desynchronize=false`, `curriculum=null`, " in card
    assert f"| return_mean | {evaluation['return_mean']:,.4g} |" in card
    assert all(f"| {name} | " in card for name in evaluation)
    assert "![The trained policy, in the best of 4 episodes](film.gif)" in card
    assert (run / "film.gif").is_file()


def test_resuming_renews_the_card(tmp_path):
    run, card = trained(tmp_path, "run.name=longer", *OFF)
    assert "| frames | 512 (" in card
    assert cli.main(["resume", str(run), "total_frames=1024"]) == 0
    assert "| frames | 1,024 (" in (run / "README.md").read_text()
    assert [path.name for path in run.glob(".*")] == [".lock"]


def test_the_card_of_a_run_that_was_stopped_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train(Experiment.load("smoke", f"run.folder={tmp_path}", "run.name=stopped", "device=cpu", *OFF))
    next(run)
    run.close()
    card = (tmp_path / "stopped" / "README.md").read_text()
    assert "stopped before its end" in card
    assert "Not yet" in card
    resume = re.search(r"^torchrl-agent (resume .*)$", card, re.MULTILINE)[1]
    assert cli.main(shlex.split(resume)) == 0
    assert "stopped before its end" not in (tmp_path / "stopped" / "README.md").read_text()


def test_a_card_says_what_it_does_not_know(tmp_path):
    """No git checkout, no code.json, a world that cannot be drawn, sampled actions."""
    experiment = Experiment.load("cartpole", "evaluation.deterministic=false")
    evaluation = {"episodes": 4, "return_mean": 1234.5}
    card = model_card(tmp_path, experiment, {**SUMMARY, "film": None, "evaluation": evaluation})
    assert "| commit | unknown" in card
    assert "| versions | unknown |" in card
    assert "torchrl-agent film" not in card
    assert "sampled its actions" in card
    (tmp_path / "code.json").write_text(json.dumps({"versions": {"torch": "9.9"}, "commit": "abc", "changes": "diff"}))
    card = model_card(tmp_path, experiment, SUMMARY)
    assert "torch 9.9" in card
    assert "`abc` with uncommitted changes" in card
    assert "torchrl-agent film" in card


def test_settings_do_not_break_the_table(tmp_path):
    experiment = Experiment.load("smoke")
    experiment.world["note"] = "a|b"
    (row,) = [line for line in model_card(tmp_path, experiment, SUMMARY).splitlines() if "a\\|b" in line]
    assert row.startswith("| world | ")
