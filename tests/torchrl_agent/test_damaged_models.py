"""Damaged and malicious models of Stable-Baselines3: one sentence each, and nothing in them is executed."""

import copy
import json
import pickle
import random
import zipfile

import pytest
from launching import Bomb

from torchrl_agent.convert import from_sb3

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO

KINDS = {"ppo": PPO, "a2c": A2C, "dqn": DQN}
MUTATIONS = 8
"""Of each kind of model."""
VALUES = (None, True, -1, 0, 2**70, float("nan"), float("inf"), "text", "", [], [[]], {}, {":type:": 3}, 1e300)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, kind in KINDS.items():
        kind("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [4]}, device="cpu").save(folder / f"{name}.zip")
    return folder


def flip(content, chance):
    """Some bytes changed anywhere in the file."""
    damaged = bytearray(content)
    for _ in range(chance.choice([1, 10, 1000])):
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    return bytes(damaged)


def cut(content, chance):
    """The end of the file is missing."""
    return content[: chance.randrange(len(content))]


def parts_of(path):
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(path, parts):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return path


def edit(parts, chance):
    """Entries of the JSON, or of the objects in it, are missing or something else; or a part is missing or damaged."""
    parts = copy.copy(parts)
    kind = chance.choice(["entry", "entry", "entry", "inside", "inside", "part", "bytes", "deep"])
    if kind == "part":
        parts.pop(chance.choice(sorted(parts)))
    elif kind == "bytes":
        name = chance.choice(["data", "policy.pth"])
        parts[name] = flip(parts[name], chance)
    elif kind == "deep":
        parts["data"] = b"[" * 100_000 if chance.random() < 0.5 else b'{"a":' * 100_000
    else:
        data = json.loads(parts["data"])
        owner = data
        if kind == "inside":
            owner = data[chance.choice([name for name, value in data.items() if isinstance(value, dict) and value])]
        name = chance.choice(sorted(owner))
        if chance.random() < 0.3:
            del owner[name]
        else:
            owner[name] = chance.choice(VALUES)
        parts["data"] = json.dumps(data).encode()
    return parts


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_model_is_understood_or_refused_in_one_sentence(kind, models, tmp_path):
    whole, chance = models / f"{kind}.zip", random.Random(f"damage {kind}")
    content, parts = whole.read_bytes(), parts_of(whole)
    refused = 0
    for number in range(MUTATIONS):
        path = tmp_path / f"{number}.zip"
        how = chance.choice(["flip", "cut", "edit", "edit", "edit"])
        if how == "edit":
            write(path, edit(parts, chance))
        else:
            path.write_bytes({"flip": flip, "cut": cut}[how](content, chance))
        try:
            small = ["device=cpu", f"run.folder={tmp_path / 'runs'}", "world.num_envs=1"]
            from_sb3(path, "cartpole", small, str(number))
        except ValueError as error:
            refused += 1
            assert str(error).endswith(".") and "\n" not in str(error), (number, str(error))
    assert MUTATIONS / 4 < refused < MUTATIONS


def test_what_a_model_wants_to_execute_is_named_and_not_done(models, tmp_path):
    parts = parts_of(models / "ppo.zip")
    parts["policy.pth"] = pickle.dumps(Bomb(tmp_path / "exploded"), protocol=2)
    path = write(tmp_path / "bomb.zip", parts)
    with pytest.raises(ValueError, match=r"bomb\.zip wants to execute \w+\.mkdir .* do not use this file\.$"):
        from_sb3(path, "cartpole")
    assert not (tmp_path / "exploded").exists()


def test_layers_that_do_not_fit_are_refused(models, tmp_path):
    import io

    import torch

    parts = parts_of(models / "ppo.zip")
    weights = torch.load(io.BytesIO(parts["policy.pth"]), weights_only=True)
    for name, wrong, said in (
        ("action_net.weight", torch.zeros(2, 5), r"action_net.weight has shape \[2, 5\] and not \[2, 4\]"),
        ("action_net.bias", torch.full((2,), torch.nan), "no finite numbers in action_net.bias"),
        ("action_net.bias", "text", "cannot be understood"),
    ):
        file = io.BytesIO()
        torch.save({**weights, name: wrong}, file)
        path = write(tmp_path / "wrong.zip", {**parts, "policy.pth": file.getvalue()})
        with pytest.raises(ValueError, match=said):
            from_sb3(path, "cartpole", ["device=cpu"])
