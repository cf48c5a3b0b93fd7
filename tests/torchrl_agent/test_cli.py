"""The command line: every verb on a small run, and one line for everything that is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from torchrl_agent import cli
from torchrl_agent.training.metrics import read_metrics

ROOT = Path(__file__).parents[2]
QUICK = ("device=cpu", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A small run, trained through the command line."""
    folder = tmp_path_factory.mktemp("runs")
    assert cli.main(["train", "smoke", f"run.folder={folder}", "run.name=first", "total_frames=1024", *QUICK]) == 0
    return folder / "first"


def lines(text):
    return [line for line in text.split("\n") if line.strip()]


def test_train_leaves_a_run_and_says_where(tmp_path, capsys):
    arguments = ["train", "smoke", f"run.folder={tmp_path}", "run.name=said", "total_frames=512", *QUICK]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr()
    assert str(tmp_path / "said") in printed.out
    assert "512 frames" in printed.out
    assert printed.err == ""  # no progress bar where nobody watches
    assert (tmp_path / "said" / "checkpoints" / "checkpoint_512.pt").is_file()


def test_resume_goes_on_where_the_run_ended(tmp_path, capsys):
    cli.main(["train", "smoke", f"run.folder={tmp_path}", "run.name=longer", "total_frames=512", *QUICK])
    capsys.readouterr()
    assert cli.main(["resume", str(tmp_path / "longer"), "total_frames=1024"]) == 0
    assert "1,024 frames" in capsys.readouterr().out
    rows = read_metrics(tmp_path / "longer" / "metrics.csv")
    assert [row["frames"] for row in rows] == ["512", "1024"]


def test_a_run_that_was_moved_can_be_resumed(tmp_path, capsys):
    cli.main(["train", "smoke", f"run.folder={tmp_path}", "run.name=here", "total_frames=512", *QUICK])
    (tmp_path / "here").rename(tmp_path / "there")
    capsys.readouterr()
    assert cli.main(["resume", str(tmp_path / "there"), "total_frames=1024"]) == 0
    assert str(tmp_path / "there") in capsys.readouterr().out


@pytest.mark.parametrize("which", ["folder", "file"])
def test_evaluate_ends_with_one_line_of_json(run, capsys, which):
    path = run if which == "folder" else run / "checkpoints" / "checkpoint_512.pt"
    assert cli.main(["evaluate", str(path), "--episodes", "3", "--json", "--device", "cpu", "--seed", "5"]) == 0
    result = json.loads(lines(capsys.readouterr().out)[-1])
    assert result["episodes"] == 3
    assert {"return_mean", "return_std", "win_rate", "spawners_destroyed", "length_mean"} <= set(result)
    assert 0 < result["length_mean"] <= 3000
    assert 0.0 <= result["win_rate"] <= 1.0


def test_film_writes_the_film_it_names(run, tmp_path, capsys):
    path = tmp_path / "policy.gif"
    arguments = ["film", str(run), "--output", str(path), "--worlds", "2", "--steps", "8", "--every", "2"]
    assert cli.main([*arguments, "--device", "cpu"]) == 0
    assert lines(capsys.readouterr().out)[-1] == str(path)
    with Image.open(path) as film:
        assert film.n_frames == 4


def test_film_goes_into_the_run_by_default(run, capsys):
    assert cli.main(["film", str(run), "--worlds", "1", "--steps", "2", "--device", "cpu"]) == 0
    assert (run / "film.gif").is_file()
    assert str(run / "film.gif") in capsys.readouterr().out


def test_configs_lists_names_and_shows_one_in_full(tmp_path, capsys):
    assert cli.main(["configs"]) == 0
    assert {"arena", "cartpole", "smoke"} <= set(lines(capsys.readouterr().out))
    assert cli.main(["configs", "smoke", "ppo.gamma=0.5"]) == 0
    shown = capsys.readouterr().out
    assert "gamma: 0.5" in shown
    assert "lmbda: 0.95" in shown  # the defaults too
    path = tmp_path / "shown.yaml"
    path.write_text(shown)
    assert cli.main(["configs", str(path)]) == 0
    assert capsys.readouterr().out == shown


def test_overrides_may_stand_behind_options(capsys):
    arguments = ["--row", "--num-envs", "4", "--modes", "eager", "--seconds", "0.01", "--world-only"]
    assert cli.main(["bench", "smoke", *arguments, "world.max_steps=50"]) == 2  # no such key of the Arena
    assert "max_steps" in capsys.readouterr().err
    assert cli.main(["bench", "smoke", *arguments, "seed=3"]) == 0
    assert '"world"' in capsys.readouterr().out


def test_doctor_reports_and_its_exit_code_is_its_verdict(capsys):
    code = cli.main(["doctor"])
    report = capsys.readouterr().out
    assert "torchrl" in report
    assert code == (0 if "Ready to train." in report else 2)


def refused(arguments, capsys):
    """Exit code 2 and exactly one line on stderr, which is returned."""
    try:
        code = cli.main(arguments)
    except SystemExit as leaving:
        code = leaving.code
    printed = capsys.readouterr()
    assert code == 2
    assert len(printed.err.rstrip("\n").split("\n")) == 1, printed.err
    assert printed.err.startswith("torchrl-agent: ")
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ([], "VERB"),
        (["trian", "arena"], "trian"),
        (["train"], "config"),
        (["train", "nowhere"], "nowhere"),
        (["train", "smoke", "ppo.gama=1"], "ppo.gama"),
        (["train", "smoke", "ppo.gamma=high"], "ppo.gamma"),
        (["train", "smoke", "gamma"], "gamma"),
        (["train", "smoke", "world.num_envs=0"], "num_envs"),
        (["train", "smoke", "world.style=3"], "style"),
        (["train", "smoke", "world._target_=nowhere.World"], "nowhere.World"),
        (["train", "smoke", "ppo.minibatch_size=7"], "ppo.minibatch_size"),
        (["train", "smoke", "device=warp"], "warp"),
        (["train", "smoke", "threads=0"], "threads"),
        (["resume", "nowhere"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--episodes", "many"], "--episodes"),
        (["evaluate", "nowhere", "--checkpoint", "worst"], "worst"),
        (["film", "nowhere"], "nowhere"),
        (["configs", "nowhere"], "nowhere"),
        (["bench", "smoke", "--num-envs", "0"], "--num-envs"),
        (["bench", "smoke", "--modes", "warp"], "warp"),
    ],
)
def test_bad_input_is_one_line_that_names_the_culprit(arguments, culprit, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert culprit in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["evaluate", "RUN", "--episodes", "0"], "episodes"),
        (["evaluate", "RUN", "--device", "warp"], "warp"),
        (["film", "RUN", "--worlds", "0"], "--worlds"),
        (["resume", "RUN"], "total_frames"),
        (["resume", "RUN", "total_frames=4096", "model.hidden_sizes=[8]"], "config.yaml"),
        (["evaluate", "RUN/config.yaml"], "config.yaml"),
    ],
)
def test_bad_input_about_a_run_is_one_line(arguments, culprit, run, capsys):
    assert culprit in refused([argument.replace("RUN", str(run)) for argument in arguments], capsys)


def test_a_damaged_checkpoint_is_one_line(run, tmp_path, capsys):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.yaml").write_text((run / "config.yaml").read_text())
    (tmp_path / "checkpoints" / "checkpoint_512.pt").write_bytes(b"PK\x03\x04 half of it")
    assert "checkpoint_512.pt" in refused(["evaluate", str(tmp_path), "--device", "cpu"], capsys)


def test_the_command_runs_as_a_program(tmp_path):
    environment = {**os.environ, "RL_WARNINGS": "False", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torchrl_agent.cli", "train", "smoke", "device=cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "cuda" in lines(done.stderr)[-1]
    assert "Traceback" not in done.stderr


def test_interrupting_says_how_to_go_on(monkeypatch, capsys, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "train", interrupted)
    assert cli.main(["train", "smoke", f"run.folder={tmp_path}"]) == 130
    assert "resume" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def threads_are_kept():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
