"""``train --multirun``: every combination of values, one after another, in a run folder of its own."""

import logging
import signal

import pytest

from torchrl_agent import Experiment, cli
from torchrl_agent.core import progress
from torchrl_agent.experiment.compose import combinations
from torchrl_agent.runs.metrics import read_metrics

QUICK = ("device=cpu", "total_frames=512", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false")
QUICK += ("world.num_envs=64", "algorithm.rollout_steps=8")  # as many frames in fewer steps


def sweep(folder, *words):
    return cli.main(["train", "smoke", *words, f"run.folder={folder}", *QUICK])


def runs(folder):
    return sorted(path.name for path in folder.iterdir())


def metrics(run):
    """What was learned, without the clock."""
    return [
        {name: value for name, value in row.items() if not name.startswith("time/")}
        for row in read_metrics(run / "metrics.csv")
    ]


def test_values_are_listed_as_hydras_grammar_does_and_the_last_changes_fastest():
    assert combinations(["seed=1"]) == [["seed=1"]]
    assert combinations(["seed=0,1", "model.hidden_sizes=[8,8],[16]", "name=x"]) == [
        ["seed=0", "model.hidden_sizes=[8,8]", "name=x"],
        ["seed=0", "model.hidden_sizes=[16]", "name=x"],
        ["seed=1", "model.hidden_sizes=[8,8]", "name=x"],
        ["seed=1", "model.hidden_sizes=[16]", "name=x"],
    ]
    assert combinations(["seed=range(1,4)"]) == [["seed=1"], ["seed=2"], ["seed=3"]]
    assert combinations(["+world.k=choice(a,'b,c')"]) == [["+world.k=a"], ["+world.k='b,c'"]]


def test_every_combination_is_trained_as_if_it_were_alone(tmp_path, capsys, caplog):
    assert sweep(tmp_path, "-m", "seed=0,1", "algorithm.gamma=0.9,0.99", "run.name=both") == 0
    assert runs(tmp_path) == ["both-1", "both-2", "both-3", "both-4"]
    loaded = [Experiment.load(tmp_path / name / "config.yaml") for name in runs(tmp_path)]
    assert [(each.seed, each.algorithm.gamma) for each in loaded] == [(0, 0.9), (0, 0.99), (1, 0.9), (1, 0.99)]
    said = [record.message for record in caplog.records if record.name == progress.__name__]
    assert said == [
        "1 of 4: seed=0 algorithm.gamma=0.9",
        "2 of 4: seed=0 algorithm.gamma=0.99",
        "3 of 4: seed=1 algorithm.gamma=0.9",
        "4 of 4: seed=1 algorithm.gamma=0.99",
    ]
    assert capsys.readouterr().out.count("512 frames") == 4
    assert sweep(tmp_path, "seed=1", "algorithm.gamma=0.9", "run.name=alone") == 0
    assert metrics(tmp_path / "both-3") == metrics(tmp_path / "alone") != metrics(tmp_path / "both-4")


def test_names_that_differ_stay_and_runs_without_a_name_get_one_each(tmp_path, monkeypatch):
    assert sweep(tmp_path, "-m", "seed=3,4", "run.name=seed${seed}") == 0
    assert runs(tmp_path) == ["seed3", "seed4"]
    assert sweep(tmp_path / "unnamed", "--multirun", "seed=range(0,2)") == 0
    first, second = runs(tmp_path / "unnamed")
    assert first.startswith("smoke-") and first.endswith("-1") and second == f"{first[:-1]}2"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["seed=0,1"], "seed=0,1 gives several values: give one, or train with each by 'torchrl-agent train -m'."),
        (["algorithm.gamma=range(0,1)"], "algorithm.gamma=range(0,1) gives several values"),
        (["-m", "seed=0,1", "algorithm.gamma=0.9,high"], "algorithm.gamma"),
        (["-m", "seed=0,1", "algorithm.gama=0.9"], "algorithm.gama"),
        (["-m", "seed=0,1", "run.resume=auto"], "give run.name="),
        (["-m", "algorithm.gamma=interval(0,1)"], "algorithm.gamma=interval(0,1) lists no values"),
        (["-m", "world=glob(*)"], "world=glob(*) lists no values: write KEY=VALUE, or several"),
        (["-m", "seed=choice(0,1"], "'choice(0,1'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence_before_anything_is_trained(words, sentence, tmp_path, capsys):
    assert sweep(tmp_path, *words) == 2
    printed = capsys.readouterr().err
    assert sentence in printed
    assert printed.startswith("torchrl-agent: ") and printed.count("\n") == 1
    assert not runs(tmp_path)


def test_a_training_that_fails_leaves_the_others_their_turn(tmp_path, capsys):
    (tmp_path / "taken-1").mkdir()
    (tmp_path / "taken-1" / "file").touch()
    assert sweep(tmp_path, "-m", "seed=0,1", "run.name=taken") == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("torchrl-agent: 1 of 2: run ") and "exists already" in printed.err
    assert str(tmp_path / "taken-2") in printed.out


def test_a_signal_ends_the_sweep(tmp_path, capsys, monkeypatch):
    class Interrupt(logging.Handler):
        def emit(self, record):
            if record.getMessage().startswith("2 of 3: 512 of 512 frames"):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress, "SECONDS", 0.0)
    handler = Interrupt()
    progress.log.addHandler(handler)
    try:
        assert sweep(tmp_path, "-m", "seed=0,1,2", "run.name=cut") == 130
    finally:
        progress.log.removeHandler(handler)
    assert runs(tmp_path) == ["cut-1", "cut-2"]
    monkeypatch.undo()
    assert sweep(tmp_path, "-m", "seed=0,1,2", "run.name=cut", "run.resume=auto") == 0
    assert [len(metrics(tmp_path / name)) for name in runs(tmp_path)] == [1, 1, 1]
