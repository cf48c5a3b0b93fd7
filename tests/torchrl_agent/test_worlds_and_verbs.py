"""A table of worlds that users bring and of what can be done with a run in them: every cell."""

from __future__ import annotations

import json

import pytest
from strange_worlds import KINDS, registered

from torchrl_agent import cli
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.judging import EVALUATION_RETURN
from torchrl_agent.runs.metrics import read_metrics
from torchrl_agent.runs.run import train

TO_SB3 = {
    "Vector-v0": None,
    "Picture-v0": "picture|perception",
    "Parts-v0": "picture|perception",
    "Numbers-v0": None,
    "Heads-v0": None,
    "Mixed-v0": "choices and numbers at once",
}
"""Why a run cannot become one of Stable-Baselines3; None if it can."""


@pytest.fixture(scope="module", params=KINDS)
def brought(request, tmp_path_factory):
    """A short run in a world of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    small = ["world.num_envs=2", "algorithm.rollout_steps=16", "total_frames=64", "evaluation.episodes=2"]
    with registered():
        experiment = Experiment.load(f"gym:{request.param}", *small, "run.name=brought", f"run.folder={folder}")
        assert list(train(experiment))[-1].frames == 64
        yield request.param, folder / "brought"


def run_verb(capsys, *words):
    """Output of a command that must succeed."""
    code = cli.main([str(word) for word in words])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def test_it_was_filmed_when_it_ended(brought):
    assert (brought[1] / "film.gif").stat().st_size > 100


def test_its_figures_are_curves(brought):
    header = (brought[1] / "metrics.csv").read_text(encoding="utf-8").splitlines()[0]
    assert {"rollout/info_speed", "rollout/info_is_success", "rollout/ep_rew_mean"} <= set(header.split(","))


def test_it_is_evaluated(brought, capsys):
    printed = run_verb(capsys, "evaluate", brought[1], "--episodes", 2, "--json")
    assert json.loads(printed[printed.index("{") :])["return_mean"] == 6  # a reward of 1 in each of six steps


def test_it_is_explained(brought, capsys, tmp_path):
    name, run = brought
    page = run_verb(capsys, "explain", run, "--step", 2, "--output", tmp_path / "step.html")
    assert ("standard deviation" in page) == (name in ("Numbers-v0", "Mixed-v0"))
    assert ("probability" in page) == (name != "Numbers-v0")
    assert (tmp_path / "step.html").is_file()


@pytest.mark.parametrize(("verb", "file"), [("film", "film.gif"), ("plot", "curves.png"), ("export", "policy.pt2")])
def test_it_is_filmed_plotted_and_exported(brought, capsys, tmp_path, verb, file):
    steps = ["--steps", 4] if verb == "film" else []
    run_verb(capsys, verb, brought[1], *steps, "--output", tmp_path / file)
    assert (tmp_path / file).is_file()


def test_it_becomes_a_run_of_stable_baselines3_or_says_why_not(brought, capsys, tmp_path):
    pytest.importorskip("stable_baselines3")
    name, run = brought
    code = cli.main(["convert", "to-sb3", str(run), str(tmp_path / "model.zip")])
    said = capsys.readouterr().err
    assert code == (0 if TO_SB3[name] is None else 2), said
    if TO_SB3[name] is not None:
        assert said.count("\n") == 1 and any(word in said for word in TO_SB3[name].split("|"))


def test_it_goes_on(brought, capsys):
    run_verb(capsys, "resume", brought[1], "total_frames=96")
    assert json.loads((brought[1] / "summary.json").read_text(encoding="utf-8"))["frames"] == 96


# --- while it trains -------------------------------------------------------------------------------------------------

SMALL = ["world.num_envs=2", "algorithm.rollout_steps=16", "total_frames=96", "evaluation.episodes=2", "threads=1"]


def small(folder, *changes):
    return Experiment.load("gym:Vector-v0", *SMALL, "run.name=small", f"run.folder={folder}", *changes)


def test_films_are_made_on_the_way_and_change_nothing(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with registered():
        for name, changes in (("with", ["run.film_every=32"]), ("without", [])):
            list(train(small(tmp_path / name, "run.film=false", "run.final_evaluation=false", *changes)))
    run = tmp_path / "with" / "small"
    assert [film.name for film in sorted((run / "films").iterdir())] == [f"{frames:012}.gif" for frames in (32, 64, 96)]
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    shown = events.Images("film")
    assert [image.step for image in shown] == [32, 64, 96]
    assert shown[-1].encoded_image_string == (run / "films" / f"{96:012}.gif").read_bytes()
    runs = [read_metrics(tmp_path / name / "small" / "metrics.csv") for name in ("with", "without")]
    learned = [[{key: row[key] for key in row if not key.startswith("time/")} for row in rows] for rows in runs]
    assert learned[0] == learned[1]


def test_a_world_that_cannot_be_drawn_is_reported_once_and_trains_on(tmp_path, caplog):
    with registered():
        changes = ["run.film_every=32", "run.film=false", "run.final_evaluation=false"]
        experiment = Experiment.load(
            "gym:CliffWalking-v1", *SMALL, "run.name=cliff", f"run.folder={tmp_path}", *changes
        )
        experiment.evaluation.world["render_mode"] = "ansi"
        assert list(train(experiment))[-1].frames == 96
    assert caplog.text.count("no film") == 1


def test_callbacks_are_called(tmp_path):
    seen = {"iterations": [], "episodes": [], "evaluations": []}
    with registered():
        list(
            train(
                small(tmp_path, "evaluation.every=64", "run.film=false", "run.final_evaluation=false"),
                on_iteration=lambda iteration: seen["iterations"].append(iteration.frames),
                on_episode=seen["episodes"].append,
                on_evaluation=lambda iteration: seen["evaluations"].append(iteration.metrics[EVALUATION_RETURN]),
            )
        )
    assert seen["iterations"] == [32, 64, 96]
    assert (
        len(seen["episodes"]) == 2 * (48 // 6) and seen["episodes"][0]["return"] == seen["episodes"][0]["length"] == 6
    )
    assert seen["evaluations"] == [6]
