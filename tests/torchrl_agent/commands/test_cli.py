"""The command line: every verb on a small run, and one line for everything that is wrong."""

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from PIL import Image

from torchrl_agent import Experiment, cli
from torchrl_agent.cli.arguments import print_ways
from torchrl_agent.cli.train import follow
from torchrl_agent.core import progress
from torchrl_agent.experiment.compose import config_names
from torchrl_agent.runs.metrics import read_metrics

ROOT = Path(__file__).parents[3]
QUICK = ("device=cpu", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false")
QUICK += ("world.num_envs=64", "algorithm.rollout_steps=8")  # as many frames in fewer steps


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


def test_without_a_terminal_there_is_a_line_now_and_then_unless_quiet(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    arguments = ["train", "smoke", f"run.folder={tmp_path}", "total_frames=1536", "world.rules={max_steps: 8}", *QUICK]
    assert cli.main([*arguments, "run.name=printed"]) == 0
    _, second, _ = (record.message for record in caplog.records if record.name == progress.__name__)
    assert re.fullmatch(
        r"1,024 of 1,536 frames, [\d,.]+ frames/s, return [-\d.]+, wins 0, stage 0, [\d:]+ left", second
    )
    caplog.clear()
    assert cli.main([*arguments, "run.name=quiet", "--quiet"]) == 0
    assert caplog.records == []


@pytest.mark.parametrize("compiles", [True, False])
def test_whoever_waits_for_compilation_is_told(compiles, caplog):
    def stopped():
        raise KeyboardInterrupt
        yield

    caplog.set_level("INFO", logger=progress.__name__)
    assert follow(stopped(), Experiment.load("smoke", f"acceleration={{step: {compiles}, update: false}}")) == 130
    assert caplog.messages == ["compiling: the first iteration takes longer"] * compiles


def test_a_run_that_was_moved_can_be_resumed(tmp_path, capsys):
    cli.main(["train", "smoke", f"run.folder={tmp_path}", "run.name=here", "total_frames=512", *QUICK])
    (tmp_path / "here").rename(tmp_path / "there")
    capsys.readouterr()
    assert cli.main(["resume", str(tmp_path / "there"), "total_frames=1024"]) == 0
    printed = capsys.readouterr().out
    assert str(tmp_path / "there") in printed and "1,024 frames" in printed
    assert [row["frames"] for row in read_metrics(tmp_path / "there" / "metrics.csv")] == ["512", "1024"]


@pytest.mark.parametrize("which", ["folder", "file"])
def test_evaluate_ends_with_one_line_of_json(run, capsys, which):
    path = run if which == "folder" else run / "checkpoints" / "checkpoint_512.pt"
    short = "+evaluation.world.rules={max_steps: 60}"
    assert cli.main(["evaluate", str(path), short, "--episodes", "3", "--json", "--device", "cpu", "--seed", "5"]) == 0
    result = json.loads(lines(capsys.readouterr().out)[-1])
    assert result["episodes"] == 3
    assert {"return_mean", "return_std", "win_rate", "spawners_destroyed", "length_mean"} <= set(result)
    assert 0 < result["length_mean"] <= 60
    assert 0.0 <= result["win_rate"] <= 1.0


def test_evaluate_shows_both_ways_of_acting(run, capsys):
    common = ["evaluate", str(run), "+evaluation.world.rules={max_steps: 60}", "--json", "--device", "cpu"]
    common += ["--episodes", "3", "--quiet"]
    assert cli.main(common) == 0
    *table, last = lines(capsys.readouterr().out)
    result = json.loads(last)
    likeliest, sampled = result["ways"]["deterministic"], result["ways"]["stochastic"]
    assert table[0].split() == ["actions", "deterministic", "stochastic"]
    assert result["return_mean"] == likeliest["return_mean"] != sampled["return_mean"]
    assert cli.main([*common, "evaluation.deterministic=false"]) == 0
    assert json.loads(lines(capsys.readouterr().out)[-1])["return_mean"] == sampled["return_mean"], "the same samples"
    assert cli.main([*common, "--stochastic"]) == 0
    assert "ways" not in json.loads(lines(capsys.readouterr().out)[-1])


def test_a_difference_between_ways_of_acting_is_reported(capsys):
    figures = {"episodes": 100, "return_mean": 10.0, "return_std": 5.0, "win_rate": 0.8}
    print_ways({"deterministic": {**figures, "win_rate": 0.01}, "stochastic": figures})
    table, printed = capsys.readouterr().out.rsplit("win_rate", 1)
    assert "10 (9.003 to 11)" in table  # 1.984 * 5 / sqrt(99)
    assert printed.startswith(" depends on how actions are taken: 0.01 deterministic, 0.8 stochastic;")
    print_ways({"deterministic": figures, "stochastic": figures})
    assert "depends" not in capsys.readouterr().out
    one = {"episodes": 1, "return_mean": 10.0, "return_std": 0.0}
    print_ways({"deterministic": one, "stochastic": {**one, "return_mean": 9.0}})
    printed = capsys.readouterr().out
    assert "depends" not in printed and "(" not in printed, "of one episode there is no interval"


def test_evaluate_and_film_take_changes_of_the_configuration(run, tmp_path, capsys):
    common = ["evaluate", str(run), "+evaluation.world.rules={max_steps: 8}", "--json", "--device", "cpu"]
    assert cli.main([*common, "evaluation.episodes=2", "evaluation.seed=5"]) == 0
    changed = json.loads(lines(capsys.readouterr().out)[-1])
    assert changed["episodes"] == 2
    assert changed["length_mean"] == 8
    assert cli.main([*common, "--episodes", "2", "--seed", "5"]) == 0
    assert json.loads(lines(capsys.readouterr().out)[-1]) == changed
    assert "evaluation.nothing" in refused(["film", str(run), "evaluation.nothing=1", "--device", "cpu"], capsys)


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
    listed = dict(line.split(maxsplit=1) for line in lines(capsys.readouterr().out))
    assert list(listed) == config_names()
    assert listed["smoke"] == "Every part on, in seconds: for tests and for a first look."
    assert cli.main(["configs", "smoke", "algorithm.gamma=0.5"]) == 0
    shown = capsys.readouterr().out
    assert "gamma: 0.5" in shown
    assert "lmbda: 0.95  # Lambda of generalized advantage estimation (GAE)." in shown  # the defaults too
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


def test_short_options_are_the_overrides_that_they_stand_for(capsys, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("torchrl_agent.cli.train.train", lambda experiment: seen.append(experiment) or iter(()))
    monkeypatch.setattr("torchrl_agent.cli.train.follow", lambda *_, **__: 0)
    assert cli.main(["train", "smoke", "--seed", "1", "--device", "cpu", "--name", "it's, 1e5", "threads=1"]) == 0
    (loaded,) = seen
    assert (loaded.seed, loaded.device, loaded.run.name, loaded.threads) == (1, "cpu", "it's, 1e5", 1)
    assert cli.main(["train", "smoke", "-m", "--seed", "3,4", "--name", "both"]) == 0
    assert [(each.seed, each.run.name) for each in seen[1:]] == [(3, "both-1"), (4, "both-2")]


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
        (["train", "smoke", "algorithm.gama=1"], "algorithm.gama"),
        (["train", "smoke", "world.style=3"], "style"),
        (["resume", "nowhere"], "nowhere"),
        (["evaluate", "nowhere"], "nowhere"),
        (["evaluate", "nowhere", "--episodes", "many"], "--episodes"),
        (["evaluate", "nowhere", "--checkpoint", "worst"], "worst"),
        (["film", "nowhere"], "nowhere"),
        (["configs", "nowhere"], "nowhere"),
        (["bench", "smoke", "--num-envs", "4", "0"], "--num-envs is 0: give at least 1."),
        (["bench", "smoke", "--seconds", "0"], "--seconds is 0"),
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
        (["evaluate", "RUN", "--without", "ears"], "ears"),
        (["film", "RUN", "--worlds", "0"], "--worlds is 0: give at least 1."),
        (["film", "RUN", "--every", "0"], "--every is 0"),
        (["resume", "RUN"], "total_frames"),
        (["resume", "RUN", "total_frames=4096", "model.hidden_sizes=[8]"], "leave out changes of world, network"),
        (["evaluate", "RUN/config.yaml"], "config.yaml"),
        (["evaluate", "RUN/../lost.pt"], "lost.pt"),
    ],
)
def test_bad_input_about_a_run_is_one_line(arguments, culprit, run, capsys):
    assert culprit in refused([argument.replace("RUN", str(run)) for argument in arguments], capsys)


def test_an_agent_outside_its_run_is_one_line(run, tmp_path, capsys):
    (tmp_path / "x.pt").write_bytes((run / "checkpoints" / "checkpoint_512.pt").read_bytes())
    printed = refused(["evaluate", str(tmp_path / "x.pt"), "--device", "cpu"], capsys)
    assert "give a run folder" in printed
    assert "PosixPath" not in printed


LIGHT = """
import sys
from torchrl_agent import cli
try:
    cli.main(sys.argv[1:])
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("word", "shown"), [("--help", "resume"), ("--version", f"torchrl-agent {metadata.version('torchrl_agent')}\n")]
)
def test_help_and_version_come_without_pytorch(word, shown):
    done = subprocess.run([sys.executable, "-c", LIGHT, word], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0
    assert shown in done.stdout
    assert done.stderr == "False\n"


def test_every_verb_is_there(capsys):
    for verb in cli.VERBS:
        with pytest.raises(SystemExit, match="0"):
            cli.main([verb, "--help"])
        assert "--quiet" in capsys.readouterr().out


def test_a_hidden_world_is_one_line_and_the_doctor_sees_it(tmp_path):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").touch()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def command(*words):
        started = [sys.executable, "-c", "import sys; from torchrl_agent.cli import main; sys.exit(main())", *words]
        return subprocess.run(started, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)

    refusal = command("train", "smoke")
    assert refusal.returncode == 2
    assert len(lines(refusal.stderr)) == 1
    assert str(tmp_path / "envs" / "__init__.py") in refusal.stderr
    seen = command("doctor")
    assert seen.returncode == 2
    assert str(tmp_path / "envs" / "__init__.py") in seen.stdout


def test_the_command_runs_as_a_program(tmp_path):
    environment = {**os.environ, "RL_WARNINGS": "False", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "torchrl_agent", "train", "smoke", "device=cuda"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 2
    assert "cuda" in lines(done.stderr)[-1]
    assert "Traceback" not in done.stderr


@pytest.fixture(autouse=True)
def threads_are_kept():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
