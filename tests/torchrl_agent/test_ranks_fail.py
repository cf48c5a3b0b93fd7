"""Ranks that fail: all end with one sentence, and go on where they were."""

import json
import shutil
import socket

import pytest
import torch
from launching import QUICK, ROOT, assert_same, torchrun, two_ranks

pytestmark = pytest.mark.slow

FAULTY = """
defaults: [smoke, _self_]
name: faulty
world: {_target_: faulty_world.FaultyArena, fault: none, when: step, at: 40, rank: 1}
"""
TUNED = ("algorithm.rollout_steps=32", "algorithm.minibatch_size=128", "algorithm.num_epochs=2")
"""What smoke has for PPO by name."""
TRAIN = ("train", "faulty.yaml", "--trust", *QUICK, "run.name=run")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["world.fault=raise"], "rank 1: the ship sank"),
        (["world.fault=infinite"], "the rollout on rank 1 holds NaN or infinity in next.reward"),
        (["world.fault=raise", "world.when=save", "world.at=0"], "rank 1: the ship sank"),
        (["world.num_envs=15"], "world.num_envs=15 does not divide among 2 processes"),
        (["algorithm.minibatch_size=1"], "algorithm.minibatch_size=1 does not divide among 2 processes"),
        (["algorithm=dqn"], "algorithm dqn cannot be trained by 2 processes"),
        (["population.members=3"], "population.members=3 does not divide among 2 processes"),
    ],
)
def test_what_fails_on_one_rank_ends_all_with_its_sentence(folder, changes, sentence):
    ended = two_ranks(folder, [*TRAIN, *changes], [*TRAIN, *changes])
    assert [code for code, _ in ended] == [2, 2]
    assert all(sentence in said and "rank " in said for _, said in ended), ended
    assert ended[0] == ended[1]


def test_a_folder_that_the_first_rank_may_not_write_to_ends_all(folder):
    (folder / "runs/run").mkdir(parents=True)
    (folder / "runs/run/mine.txt").write_text("")
    ended = two_ranks(folder, TRAIN, TRAIN)
    assert [code for code, _ in ended] == [2, 2]
    assert all(said.startswith("rank 0: run runs/run exists already") for _, said in ended)


def test_a_rank_with_another_configuration_is_named(folder):
    ended = two_ranks(folder, TRAIN, [*TRAIN, "seed=1"])
    assert [code for code, _ in ended] == [2, 2]
    assert all("rank 1 has another configuration" in said for _, said in ended)
    assert not (folder / "runs").exists()


def test_a_rank_with_other_code_is_named(folder):
    for package in ("envs", "torchrl_agent", "configs"):
        shutil.copytree(ROOT / package, folder / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "code/envs/world.py").open("a") as file:
        file.write("# another line\n")
    ended = two_ranks(folder, TRAIN, TRAIN, packages=folder / "code")
    assert [code for code, _ in ended] == [2, 2]
    assert all("rank 1 has another version of the code" in said for _, said in ended)


def test_a_rank_that_is_slow_is_named(folder):
    changes = ["world.fault=sleep", "run.rank_timeout=5"]
    ended = two_ranks(folder, [*TRAIN, *changes], [*TRAIN, *changes])
    assert [code for code, _ in ended] == [2, 2]
    assert "rank 1 is lost, or did not answer" in ended[0][1]
    assert "rank 0 is lost" in ended[1][1]  # which had to leave before rank 1 awoke


def test_the_rank_that_has_the_store_may_die(folder):
    changes = ["world.fault=kill", "world.rank=0"]
    ended = two_ranks(folder, [*TRAIN, *changes], [*TRAIN, *changes])
    assert ended[0] == (-9, "")
    assert ended[1][0] == 2
    assert "rank 0 is lost" in ended[1][1]


def test_a_rank_that_does_not_come_is_named(folder):
    ended = two_ranks(folder, [*TRAIN, "run.rank_timeout=2"])
    assert ended == [(2, "rank 1 has not come within 2 s: see what it says, or give a larger run.rank_timeout.")]


def test_a_place_to_meet_that_is_taken_is_named(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = two_ranks(folder, [*TRAIN, "run.rank_timeout=2"], port=port)
    assert ended[0][0] == 2
    assert f"rank 0: 127.0.0.1:{port}, where the ranks meet, cannot be used" in ended[0][1]


def last_checkpoint(run):
    state = torch.load(run / "checkpoints" / "checkpoint_2048.pt", weights_only=True)
    del state["metadata"]
    return state


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The last checkpoint of a run of two ranks to which nothing happened."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "faulty.yaml").write_text(FAULTY)
    torchrun(folder, *TRAIN)
    return last_checkpoint(folder / "runs/run")


@pytest.mark.parametrize(
    "changes",
    [
        ["world.fault=kill", "world.at=80"],
        ["algorithm._target_=faulty_world.FaultyPPO", *TUNED],
        ["world.fault=kill", "world.when=report", "world.at=2"],
        ["world.fault=kill", "world.when=save", "world.at=1"],
    ],
    ids=["rollout", "update", "report", "save"],
)
def test_a_killed_rank_is_started_again_and_changes_nothing(folder, undisturbed, changes):
    """In the third iteration of four: after the checkpoint of the second, or of the first."""
    said = torchrun(folder, *TRAIN, *changes, "run.resume=auto", restarts=1)
    assert "exitcode: -9" in said
    assert_same(undisturbed, last_checkpoint(folder / "runs/run"))
    assert json.loads((folder / "runs/run/summary.json").read_text())["frames"] == 2048


def test_other_numbers_of_ranks_go_on(folder):
    """Two ranks, then one, then two: what two never stopped would have done, up to rounding."""
    steady = ["algorithm.learning_rate.schedule=constant", "algorithm.minibatch_size=512"]
    torchrun(folder, *TRAIN, *steady, "total_frames=1024")
    torchrun(folder, "resume", "runs/run", "total_frames=1536", processes=1)
    torchrun(folder, "resume", "runs/run", "total_frames=2048")
    torchrun(folder, *TRAIN[:-1], *steady, "run.name=whole")
    one, other = (last_checkpoint(folder / "runs" / name) for name in ("whole", "run"))
    assert torch.equal(one["random"], other["random"])
    for name, value in one["agent"].items():
        torch.testing.assert_close(other["agent"][name], value, rtol=1e-4, atol=1e-6, msg=name)
    for name in ("x", "y", "health"):
        torch.testing.assert_close(other["world"][f"state.ship.{name}"], one["world"][f"state.ship.{name}"])
