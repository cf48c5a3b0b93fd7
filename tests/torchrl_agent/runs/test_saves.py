"""Saves, refusals and ends: a population is saved as a whole, a refusal changes nothing, who was stopped is judged."""

import json
import os
import shutil

import pytest

from torchrl_agent import Experiment, train
from torchrl_agent.core import checkpoint
from torchrl_agent.core.checkpoint import checkpoints, find_checkpoint, load_checkpoint
from torchrl_agent.runs import writer as run_writer
from torchrl_agent.runs.metrics import read_metrics
from torchrl_agent.training.collector import RolloutCollector

SMALL = ("world.num_envs=8", "algorithm.rollout_steps=4", "algorithm.minibatch_size=16", "device=cpu", "threads=1")
QUIET = ("run.film=false", "run.final_evaluation=false", "run.tensorboard=false", "run.checkpoint_every=32")


def smoke(folder, *overrides):
    return Experiment.load("smoke", f"run.folder={folder}", "run.name=run", *SMALL, *QUIET, *overrides)


def content(folder):
    """Every file's bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def rows(folder):
    """Of metrics.csv, without the clock."""
    clock = "time/"
    return [
        {key: value for key, value in row.items() if not key.startswith(clock)}
        for row in read_metrics(folder / "metrics.csv")
    ]


def same(one, other):
    """Whether two checkpoints hold the same bits."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "nan_to_num"):
        return one.shape == other.shape and bool((one.isclose(other, 0, 0, equal_nan=True)).all())
    return one == other or one != one


def go_on(folder, *overrides):
    return list(train(Experiment.load(folder / "config.yaml", *overrides), resume=folder))


# --- a population is saved as a whole


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture(scope="module")
def population(tmp_path_factory):
    """A population of two that has been saved at 32 and 64 frames, and the place of a run that only has the first."""
    base = tmp_path_factory.mktemp("population")
    for iteration in train(smoke(base, "population.members=2", "total_frames=64")):
        if iteration.number == 1:
            shutil.copytree(base / "run", base / "before")
    return base


def begin_to_save(folder, writes, monkeypatch):
    """Go on to the next save, and be killed at its write of this number; whether there were so many."""
    made, replace, save = [], os.replace, run_writer.RunWriter._save

    def killing(*paths):
        if made.append(paths) or len(made) == writes + 1:
            raise Killed
        replace(*paths)

    def saving(writer):
        monkeypatch.setattr(checkpoint.os, "replace", killing)
        save(writer)

    with monkeypatch.context() as patched:
        patched.setattr(run_writer.RunWriter, "_save", saving)
        run = train(Experiment.load(folder / "config.yaml"), resume=folder)
        try:
            next(run)
        except Killed:
            return True
        finally:
            monkeypatch.setattr(checkpoint.os, "replace", replace)
        run.close()
    return False


def after_a_kill(population, folder, writes, monkeypatch):
    shutil.copytree(population / "before", folder)
    if not begin_to_save(folder, writes, monkeypatch):
        return False
    go_on(folder)
    for place in ("", "members/00", "members/01"):
        assert rows(folder / place) == rows(population / "run" / place)
        assert names(folder / place) == names(population / "run" / place)
        found, whole = (load_checkpoint(find_checkpoint(each / place)) for each in (folder, population / "run"))
        assert same(found, whole)
    return True


def names(folder):
    """Of the checkpoints: one whose save was killed before its last write, the manifest, has no checksums."""
    return [path.name for path in checkpoints(folder / "checkpoints")]


def test_a_population_killed_between_its_members_saves_goes_on(population, tmp_path, monkeypatch):
    assert after_a_kill(population, tmp_path / "run", 8, monkeypatch)


@pytest.mark.slow
def test_a_population_killed_at_any_write_goes_on_to_the_same_end(population, tmp_path, monkeypatch):
    writes = 0
    while after_a_kill(population, tmp_path / str(writes), writes, monkeypatch):
        writes += 1
    assert writes == 2 + 3 * 3  # two configurations, and three files each of two members and their population


# --- a refusal changes nothing


def alone(folder):
    go_on(folder / "members" / "01", "total_frames=96")


def damage(name, text):
    def write(folder):
        (folder / name).write_text(text, encoding="utf-8")

    return write


@pytest.mark.parametrize(
    ("happens", "changes", "sentence"),
    [
        (alone, ["total_frames=128"], "members/01 has gone on alone, to checkpoint_96.pt"),
        (damage("metrics.csv", "frames\nx\n"), ["total_frames=128"], "metrics.csv is damaged"),
        (damage("events.jsonl", "{}\n"), ["total_frames=128"], "events.jsonl is damaged"),
        (damage("members/01/metrics.csv", "a\n1\n"), ["total_frames=128"], "members/01/metrics.csv is damaged"),
        (damage("checkpoints/checkpoint_64.pt", "x"), ["total_frames=128"], "checkpoint_64.pt is damaged"),
        (None, [], "has already trained for its 64 frames"),
        (None, ["total_frames=128", "population.members=4"], "2 members wrote it, these are 4"),
        (None, ["total_frames=128", "model.hidden_sizes=[8]"], "the checkpoint does not fit"),
        (None, ["total_frames=128", "algorithm.minibatch_size=7"], "minibatch_size"),
        (None, ["total_frames=128", "run.wandb=project"], "wandb is not installed"),
    ],
)
def test_a_refused_resume_changes_nothing(population, tmp_path, monkeypatch, happens, changes, sentence):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    folder = tmp_path / "run"
    shutil.copytree(population / "run", folder)
    if happens is not None:
        happens(folder)
    before = content(folder)
    with pytest.raises(ValueError, match=sentence) as caught:
        go_on(folder, *changes)
    assert "\n" not in str(caught.value)
    assert content(folder) == before


# --- who was stopped while it was judged is judged


@pytest.mark.parametrize("part", ["evaluate_ways", pytest.param("film_policy", marks=pytest.mark.slow)])
def test_a_run_stopped_while_it_was_judged_is_judged_when_it_goes_on(tmp_path, monkeypatch, part):
    wanted = ["run.final_evaluation=true", "evaluation.episodes=2", "+evaluation.world.rules={max_steps: 4}"]
    wanted += ["run.film=true", "total_frames=32", "run.resume=auto"]
    folder = tmp_path / "run"

    def summary():
        return json.loads((folder / "summary.json").read_text())

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, part, stop)
        with pytest.raises(KeyboardInterrupt):
            list(train(smoke(tmp_path, *wanted)))
    first = summary()
    assert not first["judged"]
    assert "evaluation" not in first
    assert list(train(smoke(tmp_path, *wanted))) == []  # nothing is learned again
    second = summary()
    assert second["judged"]
    assert second["evaluation"]["episodes"] == 2
    assert second["film"] == "film.gif"
    assert second["metrics"] == first["metrics"]
    assert second["seconds"] >= first["seconds"]
    before = content(folder)
    monkeypatch.setattr(RolloutCollector, "collect", stop)
    assert list(train(smoke(tmp_path, *wanted))) == []
    assert content(folder) == before
    with pytest.raises(ValueError, match="has already trained"):
        go_on(folder)


def test_a_run_stopped_after_its_last_iteration_is_judged_when_it_goes_on(tmp_path):
    run = train(smoke(tmp_path, "total_frames=32"))
    next(run)
    run.close()  # as a signal in the last iteration does
    path = tmp_path / "run" / "summary.json"
    assert (json.loads(path.read_text())["ended"], json.loads(path.read_text())["judged"]) == ("stopped", False)
    assert go_on(tmp_path / "run") == []
    assert (json.loads(path.read_text())["ended"], json.loads(path.read_text())["judged"]) == ("total_frames", True)


def test_a_run_stopped_while_it_was_judged_at_its_mark_learns_no_more(tmp_path, monkeypatch):
    mark = ["evaluation.every=32", "evaluation.mark=-1000000", "evaluation.stop_at_mark=true", "total_frames=96"]
    wanted = [*mark, "evaluation.episodes=2", "+evaluation.world.rules={max_steps: 4}", "run.final_evaluation=true"]

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run_writer, "evaluate_ways", stop)
        with pytest.raises(KeyboardInterrupt):
            list(train(smoke(tmp_path, *wanted)))
    for _ in range(2):
        assert list(train(smoke(tmp_path, *wanted, "run.resume=auto"))) == []
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["judged"]
    assert len(checkpoints(tmp_path / "run" / "checkpoints")) == 1
