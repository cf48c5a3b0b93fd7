"""Runs that begin or go on at once: one gets the folder, the others hear that it is in use and change nothing."""

import multiprocessing
from datetime import date
from types import SimpleNamespace

import pytest

from torchrl_agent import Experiment, train
from torchrl_agent.core.checkpoint import write_json
from torchrl_agent.runs import folder as run_folders
from torchrl_agent.runs.folder import hold_run, new_run, reserve_names, run_folder
from torchrl_agent.runs.locks import LOCK, HeldError, Locks, clean

PROCESSES, ROUNDS = 4, 5


def experiment(base, name=None):
    """As much of one as a folder is made from."""
    return SimpleNamespace(name="smoke", run=SimpleNamespace(folder=str(base), name=name))


def begin_at_once(base, name, barrier, results):
    for number in range(ROUNDS):
        mine = experiment(base / str(number), name)
        with Locks() as locks:
            barrier.wait()
            try:
                folder = new_run(mine, locks)
            except HeldError:
                folder = None
            barrier.wait()  # nobody lets go before all have tried
        results.put((number, None if folder is None else folder.name))


@pytest.mark.parametrize("name", ["one", None])
def test_processes_that_begin_at_once_never_share_a_folder(tmp_path, monkeypatch, name):
    monkeypatch.setattr(run_folders, "running_code", dict)
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(PROCESSES, timeout=60), context.Queue()
    arguments = (tmp_path, name, barrier, results)
    processes = [context.Process(target=begin_at_once, args=arguments) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in range(PROCESSES * ROUNDS)]
    for process in processes:
        process.join()
    for number in range(ROUNDS):
        names = [name for place, name in found if place == number and name is not None]
        assert len(names) == len(set(names)) == (1 if name else PROCESSES)
        assert sorted(names) == sorted(path.name for path in (tmp_path / str(number)).iterdir())


@pytest.mark.parametrize("after", ["mkdir", "hold", "code"])
def test_who_comes_at_the_worst_moment_does_not_share_a_folder(tmp_path, monkeypatch, after):
    """Another training begins right after the first has made the folder, holds it, or has written in it."""
    other, outcome = Locks(), []

    def intrude():
        if not outcome:
            outcome.append(None)
            try:
                outcome[0] = new_run(experiment(tmp_path, "run"), other)
            except HeldError as error:
                outcome[0] = error

    def between(function, before):
        def changed(*arguments):
            if before:
                intrude()
            result = function(*arguments)
            intrude()
            return result

        return changed

    if after == "code":
        monkeypatch.setattr(run_folders, "write_json", between(write_json, before=False))
    else:
        monkeypatch.setattr(Locks, "hold", between(Locks.hold, before=after == "mkdir"))
    with Locks() as locks, other:
        if after == "mkdir":
            with pytest.raises(HeldError, match=r"run .*run is in use: stop the process that trains it"):
                new_run(experiment(tmp_path, "run"), locks)
            assert outcome == [tmp_path / "run"]
        else:
            new_run(experiment(tmp_path, "run"), locks)
            assert isinstance(outcome[0], HeldError)


def test_whatever_is_replaced_in_a_folder_it_stays_held_until_it_is_let_go(tmp_path):
    with Locks() as locks, Locks() as others:
        folder = new_run(experiment(tmp_path, "run"), locks)
        write_json(folder / "code.json", {})
        for again in (lambda: new_run(experiment(tmp_path, "run"), others), lambda: hold_run(folder, others)):
            with pytest.raises(HeldError):
                again()
        locks.hold(folder)  # again is no harm
        locks.close()
        hold_run(folder, others)


def test_a_run_without_a_name_is_numbered_where_its_name_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folders, "datetime", SimpleNamespace(now=lambda: date(2026, 11, 27)))
    with Locks() as locks:
        nameless = [experiment(tmp_path) for _ in range(3)]
        folders = [new_run(each, locks) for each in nameless[:1]]
        with Locks() as others:
            folders += [new_run(nameless[1], others)]
            with Locks() as more:
                folders += [new_run(nameless[2], more)]
    default = "smoke-20261127-000000"
    assert [folder.name for folder in folders] == [default, f"{default}_2", f"{default}_3"]
    assert [run_folder(each) for each in nameless] == folders
    assert [reserve_names(experiment(tmp_path)) for _ in range(2)] == [default, f"{default}_2"]


def test_a_folder_that_is_no_run_is_left_without_a_trace(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "precious.txt").touch()
    with Locks() as locks, pytest.raises(ValueError, match="exists already"):
        new_run(experiment(tmp_path, "run"), locks)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["precious.txt"]


def test_a_link_that_leads_nowhere_is_a_sentence(tmp_path):
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere")
    for name in ("run", None):
        with (
            Locks() as locks,
            pytest.raises(ValueError, match="runs is no folder but a file, or a link that leads") as e,
        ):
            new_run(experiment(tmp_path / "runs", name), locks)
        assert "\n" not in str(e.value)


def test_a_run_that_goes_on_by_itself_twice_goes_on_once(tmp_path):
    def smoke():
        quiet = ["run.film=false", "run.final_evaluation=false", "run.tensorboard=false", "device=cpu"]
        small = ["world.num_envs=16", "algorithm.rollout_steps=8", "algorithm.minibatch_size=64"]
        files = [f"run.folder={tmp_path}", "run.name=run", "run.resume=auto", "total_frames=256"]
        return Experiment.load("smoke", *quiet, *small, *files)

    first = train(smoke())
    next(first)
    with pytest.raises(HeldError):  # before there is a checkpoint
        next(train(smoke()))
    assert len(list(first)) == 1
    with Locks() as locks:
        locks.hold(tmp_path / "run")
        with pytest.raises(HeldError):  # and after
            next(train(smoke()))
    assert next(train(smoke()), None) is None


def test_only_what_a_killed_process_had_not_finished_is_cleaned(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    kept = [LOCK, ".config.yaml", "notes.12", "checkpoints/best.json", ".hidden"]
    for name in [*kept, ".config.yaml.4711", "checkpoints/.checkpoint_8.pt.99", "checkpoints/.best.json.1"]:
        (tmp_path / name).touch()
    clean(tmp_path)

    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {*kept, "checkpoints"}
