"""A run folder to share: the same agent with the same figures, without what only training needs."""

from __future__ import annotations

import json
import shutil

import pytest

from torchrl_agent import cli, evaluate, load
from torchrl_agent.core.checkpoint import checkpoints, load_checkpoint
from torchrl_agent.explain import explain
from torchrl_agent.models.pretrained import save_module
from torchrl_agent.transforms import RewardScaler

QUICK = ("device=cpu", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false", "evaluation.episodes=3")
QUICK += ("world.num_envs=64", "algorithm.rollout_steps=8", "world.rules={max_steps: 8}")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run whose policy began with a file that is gone by now."""
    folder = tmp_path_factory.mktemp("runs")
    first = ["train", "smoke", f"run.folder={folder}", *QUICK]
    assert cli.main([*first, "run.name=teacher", "total_frames=512"]) == 0
    module = folder / "module.pt"
    save_module(module, load(folder / "teacher", "cpu")[1], "policy", RewardScaler(1))
    begun = [f"pretrained.policy={module}", "frozen=[policy]", "run.name=first", "total_frames=1024"]
    assert cli.main([*first, *begun]) == 0
    module.unlink()
    return folder / "first"


@pytest.fixture(scope="module")
def shared(run, tmp_path_factory):
    """It, exported by the command and moved."""
    folder = tmp_path_factory.mktemp("shared")
    assert cli.main(["export", str(run), "--format", "run", "--output", str(folder / "there" / "given")]) == 0
    return shutil.move(folder / "there" / "given", folder / "got")


def test_it_holds_the_agent_alone(run, shared):
    (path,) = checkpoints(shared / "checkpoints")
    state, whole = load_checkpoint(path), load_checkpoint(checkpoints(run / "checkpoints")[-1])
    assert set(state) == {"metadata", "agent", "algorithm", "frames"}
    assert all(state["agent"][name].equal(value) for name, value in whole["agent"].items())
    assert set(state["algorithm"]) == {"name", "reward_scaler"}
    size = sum(file.stat().st_size for file in shared.rglob("*") if file.is_file())
    assert size < 200_000 < sum(file.stat().st_size for file in run.rglob("*") if file.is_file())


def test_its_figures_are_those_of_its_agent(run, shared):
    summary = json.loads((shared / "summary.json").read_text(encoding="utf-8"))
    assert summary["ways"]["deterministic"] == summary["evaluation"] == evaluate(*load(shared, "cpu"))
    assert summary["evaluation"] == evaluate(*load(run, "cpu"))
    assert set(summary["ways"]) == {"deterministic", "stochastic"}
    assert summary["frames"] == 1024
    assert summary["metrics"] == json.loads((run / "summary.json").read_text(encoding="utf-8"))["metrics"]


def test_it_needs_no_other_file_and_names_none(run, shared):
    experiment, _ = load(shared, "cpu")
    assert experiment.pretrained.paths() == {}
    assert experiment.frozen == []
    assert str(run.parent) not in "".join(
        file.read_text(encoding="utf-8") for file in shared.rglob("*") if file.suffix in (".yaml", ".json")
    )
    card = (shared / "README.md").read_text(encoding="utf-8")
    assert "| pre-trained modules | policy (frozen) |" in card
    assert "torchrl-agent resume" not in card


def test_whatever_takes_a_run_takes_it(run, shared, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", str(shared), "--episodes", "2", "--json"]) == 0
    assert cli.main(["film", str(shared), "--steps", "4", "--worlds", "1"]) == 0
    assert (shared / "film.gif").is_file()
    assert cli.main(["plot", str(shared), str(run), "--output", "curves.png"]) == 0
    assert cli.main(["compare", str(shared)]) == 0
    assert explain(shared, 3, device="cpu").probabilities[0].equal(explain(run, 3, device="cpu").probabilities[0])


def test_it_cannot_be_resumed_but_says_what_can_be_done(shared, capsys):
    before = {file: file.stat().st_mtime_ns for file in shared.rglob("*")}
    assert cli.main(["resume", str(shared), "total_frames=2048"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "was exported without its optimizer and worlds, so it cannot be resumed" in line
    assert f"torchrl-agent train {shared / 'config.yaml'}" in line
    assert {file: file.stat().st_mtime_ns for file in shared.rglob("*")} == before


def test_what_cannot_be_written_is_refused(run, shared, tmp_path, capsys):
    for words, said in (
        ([], "format run writes a new folder: give it with --output."),
        (["--output", str(shared)], f"{shared} exists already: give a new folder with --output."),
        (["--output", str(tmp_path / "x"), "--module", "all"], "format run writes the whole agent, not all alone"),
        (["--output", str(shared / "README.md" / "x")], "cannot be made"),
    ):
        assert cli.main(["export", str(run), "--format", "run", *words]) == 2
        assert said in capsys.readouterr().err
