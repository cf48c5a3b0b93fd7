"""Checkpoints are whole or absent, few, and safe to read."""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launching import Bomb

from torchrl_agent.core import checkpoint
from torchrl_agent.core.checkpoint import (
    CheckpointError,
    best_score,
    checkpoints,
    find_checkpoint,
    load_checkpoint,
    save_checkpoint,
    write_atomically,
    write_json,
)

ROOT = Path(__file__).parents[3]


def save(folder, frames, score=0.0, keep=3, value=None):
    weights = torch.full((3,), float(frames if value is None else value))
    state = {"agent": {"weights": weights}, "frames": frames}
    return save_checkpoint(folder, frames, state, {"obs_count": 1.0}, "hash", score, keep)


def names(folder):
    return [path.name for path in checkpoints(folder)]


def test_scores_of_another_measure_are_not_compared(tmp_path):
    save(tmp_path, 1, score=9.0)
    save_checkpoint(tmp_path, 2, {"agent": {}}, {}, "hash", 1.0, 3, "eval/return_mean")
    save_checkpoint(tmp_path, 3, {"agent": {}}, {}, "hash", 0.5, 3, "eval/return_mean")
    assert json.loads((tmp_path / "best.json").read_text())["checkpoint"] == "checkpoint_2.pt"


def test_what_is_saved_is_loaded(tmp_path):
    path = save(tmp_path, 512, score=1.5)
    state = load_checkpoint(path)
    assert state["agent"]["weights"].tolist() == [512.0] * 3
    assert state["frames"] == 512
    assert state["metadata"]["config_hash"] == "hash"
    assert state["metadata"]["versions"]["torch"] == checkpoint.versions()["torch"]
    beside = json.loads(path.with_suffix(".json").read_text())
    sums = beside.pop("sha256")
    assert beside == state["metadata"]
    files = {end: path.with_suffix(end) for end in (".pt", ".normalization.json")}
    assert sums == {end: hashlib.sha256(file.read_bytes()).hexdigest() for end, file in files.items()}
    assert json.loads(path.with_suffix(".normalization.json").read_text()) == {"obs_count": 1.0}


def test_the_newest_and_the_best_are_kept_with_their_companions(tmp_path):
    for frames, score in ((100, 1.0), (200, 9.0), (300, 3.0), (400, 4.0), (1000, 5.0)):
        save(tmp_path, frames, score, keep=2)
    assert names(tmp_path) == ["checkpoint_200.pt", "checkpoint_400.pt", "checkpoint_1000.pt"]
    assert best_score(tmp_path) == 9.0
    kept = {
        f"checkpoint_{frames}{end}" for frames in (200, 400, 1000) for end in (".pt", ".json", ".normalization.json")
    }
    assert {path.name for path in tmp_path.iterdir()} == kept | {"best.json"}


def test_the_former_best_is_forgotten_once_it_is_neither_best_nor_new(tmp_path):
    for frames, score in ((1, 5.0), (2, 1.0), (3, 2.0), (4, 8.0), (5, 0.0), (6, 0.0)):
        save(tmp_path, frames, score, keep=1)
    assert names(tmp_path) == ["checkpoint_4.pt", "checkpoint_6.pt"]


def test_a_run_without_scores_yet_has_its_newest_as_best(tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    save(run / "checkpoints", 1, score=None)
    save(run / "checkpoints", 2, score=None)
    assert find_checkpoint(run, "best").name == "checkpoint_2.pt"
    save(run / "checkpoints", 3, score=-50.0)
    save(run / "checkpoints", 4, score=-60.0)
    assert find_checkpoint(run, "best").name == "checkpoint_3.pt"
    assert find_checkpoint(run).name == "checkpoint_4.pt"


def test_last_is_by_frames_and_not_by_name_and_a_file_is_itself(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for frames in (900, 1000, 20):
        save(folder, frames)
    assert find_checkpoint(tmp_path).name == "checkpoint_1000.pt"
    assert find_checkpoint(folder / "checkpoint_20.pt") == folder / "checkpoint_20.pt"


CHILD = """
import os, sys, torch
from pathlib import Path
from torchrl_agent.core.checkpoint import save_checkpoint

def half(state, path):
    whole = Path(str(path) + ".whole")
    write(state, whole)
    content = whole.read_bytes()
    whole.unlink()
    with open(path, "wb") as file:
        file.write(content[: len(content) // 2])
        file.flush()
        os.fsync(file.fileno())
    os.kill(os.getpid(), 9)

write, torch.save = torch.save, half
save_checkpoint(Path(sys.argv[1]), int(sys.argv[2]), {"agent": {"weights": torch.ones(1000)}}, {}, "hash", 99.0, 3)
"""


@pytest.mark.parametrize("frames", [pytest.param(200, marks=pytest.mark.slow), 100])
def test_kill_in_the_middle_of_a_save_leaves_the_previous_one(tmp_path, frames):
    """Also if it is a checkpoint of the same name that was being written again."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    save(folder, 100, score=1.0)
    environment = {**os.environ, "RL_WARNINGS": "False", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", CHILD, str(folder), str(frames)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert names(folder) == ["checkpoint_100.pt"]
    for which in ("last", "best"):
        state = load_checkpoint(find_checkpoint(tmp_path, which))
        assert state["agent"]["weights"].tolist() == [100.0] * 3
    save(folder, 300)  # and the run goes on
    assert load_checkpoint(find_checkpoint(tmp_path))["frames"] == 300


def test_a_failing_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"a": 1})

    def fail(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, fail)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="cannot be written") as caught:
        save(tmp_path / "missing", 1)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_that_torch_cannot_write_is_a_sentence(tmp_path):
    """torch.save tells of a missing folder or a full disk by RuntimeError, not by OSError."""
    with pytest.raises(ValueError, match="cannot be written"):
        write_atomically(tmp_path / "missing" / "file.pt", lambda path: torch.save({}, path))


def refused(path):
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_damaged_files_are_refused_in_a_sentence(tmp_path):
    whole = save(tmp_path, 1).read_bytes()
    path = tmp_path / "checkpoint_2.pt"
    for content in (b"", b"not a checkpoint", whole[: len(whole) // 2], whole[:-200]):
        path.write_bytes(content)
        assert "damaged" in refused(path)


@pytest.mark.parametrize("end", [".pt", ".normalization.json", ".replay.pt"])
def test_a_file_that_is_not_what_was_saved_is_damaged(tmp_path, end):
    """One bit among the weights: it would be read without complaint, and another agent be judged."""
    save(tmp_path, 1)
    state = {"agent": {"weights": torch.ones(300)}, "replay": {"rows": torch.ones(300)}}
    path = save_checkpoint(tmp_path, 2, state, {"obs_count": 1.0}, "hash", 0.0, 3)
    assert load_checkpoint(path, replay=True)
    file = path.with_suffix(end)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, replay=True)
    instead = (
        "the replay begins empty" if end == ".replay.pt" else "delete checkpoint_2.pt to go on with checkpoint_1.pt"
    )
    assert str(caught.value).startswith(f"{file} is damaged (it is not what checkpoint_2.json says): ")
    assert str(caught.value).endswith(f"{instead}.")


def test_a_checkpoint_without_checksums_is_read_and_a_damaged_manifest_is_reported(tmp_path):
    path = save(tmp_path, 1)
    manifest = path.with_suffix(".json")
    manifest.write_text(json.dumps({"format": 1}))  # as the last release wrote it
    assert load_checkpoint(path)["frames"] == 1
    for text in ("[]", "{", '{"sha256": 3}', "[" * 3000 + "]" * 3000):
        manifest.write_text(text)
        with pytest.raises(CheckpointError, match=r"checkpoint_1\.json is damaged: delete it"):
            load_checkpoint(path)
    manifest.unlink()
    assert load_checkpoint(path)["frames"] == 1


@pytest.mark.parametrize("at", ["checkpoint_1.normalization.json", "checkpoint_1.pt", "checkpoint_1.json"])
def test_a_save_of_the_same_frames_that_is_cut_off_leaves_a_good_one(tmp_path, monkeypatch, at):
    path, replace = save(tmp_path, 1, value=1.0), os.replace

    def kill(old, new):
        if new.name == at:
            raise KeyboardInterrupt
        replace(old, new)

    monkeypatch.setattr(checkpoint.os, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 1, value=2.0)
    assert load_checkpoint(path)["agent"]["weights"].tolist() == [2.0 if at.endswith("1.json") else 1.0] * 3


@pytest.mark.parametrize(
    "text",
    ["3", '"x"', "[]", "null", "[" * 3000 + "]" * 3000, '{"checkpoint": 3, "score": "x"}', '{"checkpoint": "../x"}'],
)
def test_a_damaged_note_of_the_best_gives_way_to_the_last(tmp_path, text):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    save(folder, 1)
    (tmp_path / "x").touch()
    (folder / "best.json").write_text(text)
    assert find_checkpoint(tmp_path, "best").name == "checkpoint_1.pt"
    save(folder, 2, score=-9.0)
    assert json.loads((folder / "best.json").read_text())["checkpoint"] == "checkpoint_2.pt"


def test_a_missing_file_is_refused_in_a_sentence(tmp_path):
    assert "there is no checkpoint" in refused(tmp_path / "checkpoint_1.pt")


@pytest.mark.parametrize(
    "foreign", [{"model": 1}, [1, 2], torch.ones(2), {"agent": {}}, {"metadata": {}}, {"metadata": 3, "agent": {}}]
)
def test_foreign_files_are_refused_in_a_sentence(tmp_path, foreign):
    torch.save(foreign, tmp_path / "foreign.pt")
    assert "not a checkpoint of torchrl_agent" in refused(tmp_path / "foreign.pt")


def test_another_format_is_refused_by_its_number(tmp_path):
    torch.save({"metadata": {"format": 99}, "agent": {}}, tmp_path / "future.pt")
    sentence = refused(tmp_path / "future.pt")
    assert "format 99" in sentence
    assert f"reads {checkpoint.FORMAT}" in sentence


def test_reading_a_checkpoint_never_runs_code(tmp_path):
    bomb = Bomb(tmp_path / "exploded")
    for write in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        write({"metadata": {"format": 1}, "agent": bomb}, tmp_path / "bomb.pt")
        refused(tmp_path / "bomb.pt")
    assert not (tmp_path / "exploded").exists()


def test_reading_a_replay_never_runs_code(tmp_path):
    path = save(tmp_path, 1)
    torch.save(Bomb(tmp_path / "exploded"), path.with_suffix(checkpoint.REPLAY))
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(path, replay=True)
    assert not (tmp_path / "exploded").exists()


def test_only_the_newest_checkpoint_has_its_replay_which_was_there_before_it(tmp_path, monkeypatch):
    order = []

    def record(path, write):
        order.append(path.name)
        write_atomically(path, write)

    monkeypatch.setattr(checkpoint, "write_atomically", record)
    for frames in (100, 200):
        state = {"agent": {}, "replay": {"rows": torch.full((2,), float(frames))}}
        save_checkpoint(tmp_path, frames, state, {}, "hash", None, keep=3)
        replay, whole = (order.index(f"checkpoint_{frames}{end}") for end in (checkpoint.REPLAY, ".pt"))
        assert replay < whole, "a checkpoint that is there has all that belongs to it"
    assert [path.name for path in tmp_path.glob(f"*{checkpoint.REPLAY}")] == ["checkpoint_200.replay.pt"]
    state = load_checkpoint(tmp_path / "checkpoint_200.pt", replay=True)
    assert state["replay"]["rows"].tolist() == [200.0, 200.0]


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(tmp_path, monkeypatch):
    path, order = tmp_path / "file.json", []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("flushed"), sync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda old, new: (order.append(old.read_text()), replace(old, new))[1])
    write_json(path, [1])
    assert order[:2] == ["flushed", "[\n  1\n]\n"]


def test_a_run_without_checkpoints_or_no_run_at_all_is_a_sentence(tmp_path):
    module = tmp_path / "friend_read"
    module.mkdir()
    (module / "module.pt").touch()
    refused = (
        (tmp_path, "no checkpoint yet"),
        (module, "pre-trained module"),
        (tmp_path / "nowhere", "there is no run"),
    )
    for run, text in refused:
        with pytest.raises(CheckpointError, match=text) as caught:
            find_checkpoint(run)
        assert "\n" not in str(caught.value)


def test_a_best_checkpoint_that_was_deleted_gives_way_to_the_last(tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    save(folder, 1, score=9.0).unlink()
    save(folder, 2, score=1.0)
    assert find_checkpoint(tmp_path, "best").name == "checkpoint_2.pt"
