"""Damaged files of a run, of a pre-trained module and of another library: read, or refused in one sentence."""

from __future__ import annotations

import random
import shutil
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchrl_agent import Experiment, cli, load_agent, train
from torchrl_agent.convert.archive import read_archive
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.runs.report import compare

QUIET = ["device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false"]
SMALL = ["world.num_envs=4", "algorithm={rollout_steps: 8, batch_size: 16, learning_starts: 16, replay_size: 64}"]
FILES = ["config.yaml", "metrics.csv", "summary.json", "code.json", "checkpoints/best.json"]
FILES += [f"checkpoints/checkpoint_64{end}" for end in (".pt", ".replay.pt", ".json", ".normalization.json")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of DQN, which leaves every kind of file."""
    folder = tmp_path_factory.mktemp("runs")
    named = [f"run.folder={folder}", "run.name=run", "total_frames=64", "run.checkpoint_every=32"]
    list(train(Experiment.load("smoke", "algorithm=dqn", *QUIET, *SMALL, *named)))
    assert all((folder / "run" / name).is_file() for name in FILES if not name.endswith("best.json"))
    return folder / "run"


def damage(data, content: bytes) -> bytes:
    """The content cut off, with bytes changed, with something put in, or something else altogether."""
    chance = random.Random(data.draw(st.integers(0, 1 << 30)))
    place = chance.randrange(len(content) + 1)
    rubbish = chance.randbytes(chance.choice([1, 4, 64]))
    changed = bytearray(content)
    for _ in range(chance.choice([1, 3, 30])):
        changed[chance.randrange(len(content))] = chance.randrange(256)
    text = chance.choice([b"nan", b"-1", b"1e999", b"null", b"[]", b"{}", b"\n", b",", b": ", b"\x00", b"\xff"])
    kinds = {
        "cut off": content[:place],
        "changed": bytes(changed),
        "with rubbish": content[:place] + rubbish + content[place:],
        "with text": content[:place] + text + content[place + len(text) :],
        "twice": content + content,
        "empty": b"",
        "rubbish": rubbish,
    }
    return kinds[data.draw(st.sampled_from(list(kinds)))]


@given(st.data())
def test_a_run_with_a_damaged_file_is_read_or_refused_in_a_sentence(outcome, run, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(run, folder)
    path = folder / data.draw(st.sampled_from([name for name in FILES if (run / name).is_file()]))
    if data.draw(st.integers(0, 9)):
        path.write_bytes(damage(data, path.read_bytes()))
    else:
        path.unlink()
    uses = {
        "load": lambda: load_agent(folder, "cpu", "best"),
        "read": lambda: load_checkpoint(find_checkpoint(folder), replay=True),
        "compare": lambda: compare([folder]),
        "resume": lambda: next(train(Experiment.load(folder / "config.yaml", "total_frames=96"), resume=folder)),
    }
    use = data.draw(st.sampled_from(list(uses)))
    intact = not path.is_file() or path.read_bytes() == (run / path.relative_to(folder)).read_bytes()
    with outcome() as found:
        uses[use]()
    if not intact and use != "compare" and path.name.startswith("checkpoint_64."):
        assert found.sentence is not None, "a checkpoint that is not what was saved is not used"
    shutil.rmtree(folder.parent)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """What Stable-Baselines3 saves of a model that has learned nothing yet."""
    gymnasium, baselines = pytest.importorskip("gymnasium"), pytest.importorskip("stable_baselines3")
    path = tmp_path_factory.mktemp("archives") / "model.zip"
    model = baselines.PPO("MlpPolicy", gymnasium.make("CartPole-v1"), policy_kwargs={"net_arch": [4]}, device="cpu")
    model.save(path)
    return path


@given(st.data())
def test_a_damaged_archive_is_read_or_refused_in_a_sentence(outcome, archive, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("archive")
    path = folder / "model.zip"
    with zipfile.ZipFile(archive) as source:
        parts = {name: source.read(name) for name in source.namelist()}
    name = data.draw(st.sampled_from(sorted(parts)))
    parts[name] = damage(data, parts[name])
    with zipfile.ZipFile(path, "w") as target:
        for name, content in parts.items():
            target.writestr(name, content)
    if data.draw(st.booleans()):
        path.write_bytes(damage(data, path.read_bytes()))
    with outcome():
        read = read_archive(path)
        read.layers("policy"), read.layers("value"), read.heads, read.observations
    files = [f"run.folder={folder}", "run.name=run"]
    assert cli.main(["convert", "sb3", str(path), "--config", "cartpole", *files]) in (0, 2)
    shutil.rmtree(folder)
