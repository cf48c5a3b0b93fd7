"""What has moved is found where it was, with a warning that says where it is."""

from __future__ import annotations

import importlib

import pytest
import torch

import envs
import envs.moved
import torchrl_agent
import torchrl_agent.moved
from envs.arena import ArenaEnv
from torchrl_agent.training import evaluation

TABLES = {**envs.moved.MODULES, **torchrl_agent.moved.MODULES}


@pytest.mark.parametrize("old", TABLES)
def test_a_module_is_found_where_it_was(old):
    module = importlib.import_module(old)
    place = importlib.import_module(TABLES[old][0])
    name = next(name for name in vars(place) if not name.startswith("_") and name != "annotations")
    with pytest.warns(DeprecationWarning, match=f"{old}.{name} is now"):
        assert getattr(module, name) is getattr(place, name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        module.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("old", "name", "place", "new"),
    [
        ("envs.multi_agent", "VmasWorld", "envs.libs.vmas", "VectorVmasEnv"),
        ("envs.multi_agent", "PettingZooWorld", "envs.libs.pettingzoo", "VectorPettingZooEnv"),
        ("envs.transformed_world", "TransformedWorld", "envs.transformed", "BranchlessTransformedEnv"),
        ("envs", "TransformedWorld", "envs.transformed", "BranchlessTransformedEnv"),
        ("torchrl_agent.train", "iterate", "torchrl_agent.loop", "iterate"),
        ("torchrl_agent.train", "save", "torchrl_agent.runs.run", "save"),
        ("torchrl_agent.trained", "evaluate", "torchrl_agent.judging", "evaluate"),
        ("torchrl_agent.bench_skill", "record", "torchrl_agent.benchmarks.results", "put_result"),
    ],
)
def test_a_name_is_found_where_it_was(old, name, place, new):
    with pytest.warns(DeprecationWarning, match=f"{old}.{name} is now {place}.{new}"):
        assert getattr(importlib.import_module(old), name) is getattr(importlib.import_module(place), new)


def test_the_function_train_is_not_hidden_by_the_module_that_was():
    importlib.import_module("torchrl_agent.train")
    assert torchrl_agent.train is importlib.import_module("torchrl_agent.runs.run").train


def test_summarise_is_summarize():
    episodes = {"return": torch.tensor([1.0, 3.0]), "length": torch.tensor([2.0, 2.0])}
    with pytest.warns(DeprecationWarning, match="summarise is called summarize now"):
        assert evaluation.summarise(episodes) == evaluation.summarize(episodes)


def test_record_is_update_curriculum():
    env = ArenaEnv(2, curriculum="ladder")
    finished = {name: torch.zeros(0) for name in ("stage", "complete")}
    with pytest.warns(DeprecationWarning, match="record is called update_curriculum now"):
        assert env.record(finished) == env.update_curriculum(finished)


def test_other_names_are_still_missing():
    with pytest.raises(ModuleNotFoundError, match=r"torchrl_agent\.nothing"):
        importlib.import_module("torchrl_agent.nothing")
    with pytest.raises(AttributeError, match="nothing"):
        envs.nothing  # noqa: B018
