"""An exported perception under a training of the other modules; files of others are only read."""

from __future__ import annotations

import json
import pickle
import zipfile

import pytest
import torch
from launching import Bomb

from torchrl_agent import Experiment, load_agent, train
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.export import export_run
from torchrl_agent.models.exported import TABLE
from torchrl_agent.models.pretrained import ModuleError, read_module

TINY = [
    "town_agent",
    *("world.level=L6", "world.num_envs=4", "algorithm.rollout_steps=8", "algorithm.minibatch_size=64"),
    *("model.hidden_sizes=[8]", "model.perception.memory_size=8", "model.perception.belief_size=4"),
    *("model.perception.embedding_size=8", "model.world_model.hidden_size=8"),
    *("device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false"),
    *("acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false"),
]


@pytest.fixture(scope="module")
def eyes(tmp_path_factory):
    """A run of the four modules, and its exported perception."""
    folder = tmp_path_factory.mktemp("seen")
    list(train(Experiment.load(*TINY, "total_frames=64", f"run.folder={folder}", "run.name=first")))
    (path,) = export_run(folder / "first", "perception", output=folder / "eyes.pt2")
    return folder / "first", path


@pytest.mark.slow
def test_an_exported_perception_lies_frozen_under_a_training_of_the_others(eyes, tmp_path):
    run, path = eyes
    words = [f"pretrained.perception={path}", "frozen=[perception]", "total_frames=192", f"run.folder={tmp_path}"]
    before = Experiment.load(*TINY, *words).make_learner().agent.state_dict()
    iterations = list(train(Experiment.load(*TINY, *words, "run.name=second")))
    assert len(iterations) > 1
    trained, (_, agent) = iterations[-1].learner.agent, load_agent(run, "cpu")
    own, exported = trained.perception.state_dict(), agent.perception.state_dict()
    assert own.keys() == exported.keys() and all(torch.equal(own[name], exported[name]) for name in own)
    assert trained.normalizer.frozen and trained.normalizer.running.count == agent.normalizer.running.count > 0
    assert torch.equal(trained.normalizer.running.mean, agent.normalizer.running.mean)
    after = load_checkpoint(find_checkpoint(tmp_path / "second"))["agent"]
    for module in ("world_model", "social_model", "manager", "actor_head"):
        names = [name for name in after if name.startswith(f"{module}.") and name.endswith("weight")]
        assert any(not torch.equal(before[name], after[name]) for name in names), f"{module} learns"
    # the belief of the training is the program's
    seen = trained.attach(iterations[-1].learner.env).reset()["agents"].reshape(-1)
    given = torch.export.load(path).module()(
        {key: seen[key] for key in agent.perception.memory}
        | {
            name: seen[name]
            for name in [each["name"] for each in json.loads(path.with_name("eyes.pt2.json").read_text())["inputs"]]
        }
    )
    belief = trained.perception(trained.normalizer(seen))["belief", "mean"]
    torch.testing.assert_close(given["belief_mean"], belief, rtol=1e-5, atol=1e-5)


def rewritten(path, source, change):
    """A copy of an archive, each of its members by ``change(name, content)``."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return path


def test_programs_of_others_are_read_and_never_run(eyes, tmp_path):
    run, path = eyes
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"), protocol=2)

    def pickled(name, content):
        if name.endswith(TABLE):
            return content.replace(b'"use_pickle": false', b'"use_pickle": true')
        return bomb if "/weights/" in name else content

    def cut(name, content):
        return content[:-4] if name.endswith("weight_0") else content

    (policy,) = export_run(run, "policy", output=tmp_path / "policy.pt2")
    (tmp_path / "text.pt2").write_text("text")
    for other in (rewritten(tmp_path / "a.pt2", path, pickled), rewritten(tmp_path / "b.pt2", path, cut), policy):
        with pytest.raises(
            ModuleError, match="is damaged or no exported perception: make one with 'torchrl-agent export"
        ):
            read_module(other)
    with pytest.raises(ModuleError, match="is damaged or no exported perception"):
        read_module(tmp_path / "text.pt2")
    assert not (tmp_path / "exploded").exists()
    whole = rewritten(tmp_path / "c.pt2", path, lambda name, content: bomb if "sample_inputs" in name else content)
    assert read_module(whole).module == "perception" and not (tmp_path / "exploded").exists()
    with pytest.raises(ModuleError, match=r"is \[4, .* but \[6, "):
        words = [f"pretrained.perception={path}", "model.perception.belief_size=6"]
        Experiment.load(*TINY, *words).make_learner()
