"""Lives measured on the reference game: no place in reach, or one place and all meters at one half."""

import pytest
import torch
from tensordict import TensorDict

ENERGY_HEALTH = {"reward": "energy_health"}


def live(scene, *lives, **rules):
    """Lives side by side, one world each, which repeat their actions until the agent dies or time is up: of each the
    last step, the undiscounted return, and the meters by step.
    """
    town = scene(num_envs=len(lives), **ENERGY_HEALTH, **rules)
    histories, found = [[] for _ in lives], {}
    for step in range(1, 2001):
        names = [actions[step % len(actions)] for actions in lives]
        chosen = torch.tensor([town.rules.action_names.index(name) for name in names])
        root = TensorDict({"agents": {"action": chosen.unsqueeze(1)}}, batch_size=[len(lives)])
        seen = town.env.step_and_maybe_reset(root)[0]["next"]
        for life, history in enumerate(histories):
            if life in found:
                continue
            reward = seen["agents", "reward"][life].item()
            history.append((reward, seen["agents", "observation"][life, 0, :8].tolist()))
            if seen["done"][life].item():
                rewards, meters = zip(*history, strict=True)
                found[life] = step, sum(rewards), meters
        if len(found) == len(lives):
            return [found[life] for life in range(len(lives))]
    raise AssertionError("still alive")


def test_empty_lives(scene):
    lives = {("wait",): (191, 93.376), ("rest",): (247, 133.994), ("meditate",): (164, 79.273)}
    lives[("left", "right")] = (101, 48.454)
    found = live(scene, *lives)
    for actions, (death, total), (step, earned, _) in zip(lives, lives.values(), found, strict=True):
        residue = int(actions[0] == "left")  # that of float32 decides the last step of moving
        assert abs(step - death) <= residue
        assert earned == pytest.approx(total, abs=3e-3), actions
    history = found[0][2]
    expected = {
        1: (0.995, 0.997, 0.996, 0.5, 0.999, 0.994, 0.9995, 0.998),
        50: (0.75, 0.85, 0.80, 0.5, 0.95, 0.70, 0.96863, 0.90),
        100: (0.50, 0.70, 0.60, 0.5, 0.90, 0.40, 0.92475, 0.80),
        150: (0.24084, 0.55, 0.40, 0.5, 0.80422, 0.10, 0.86838, 0.70),
    }
    for when, meters in expected.items():
        assert history[when - 1] == pytest.approx(meters, abs=2e-5), when
    assert history[-1][4:] == pytest.approx((0.60967, 0.0, 0.80557, 0.618), abs=2e-4)


@pytest.mark.slow
def test_slow_depletion_lets_idlers_retire_but_not_who_moves_about(scene):
    waiting, resting, meditating, moving = live(
        scene, ("wait",), ("rest",), ("meditate",), ("left", "right"), depletion=0.2
    )
    for (step, earned, _), total in ((waiting, 320.928), (resting, 417.0), (meditating, 224.44)):
        assert step == 500
        assert earned == pytest.approx(total, abs=0.05)
    assert waiting[2][-1][0] == pytest.approx(0.50001, abs=2e-5)
    assert waiting[2][-1][6] == pytest.approx(0.62475, abs=2e-5)
    assert moving[0] == 167
    assert moving[1] == pytest.approx(80.324, abs=5e-3)


@pytest.mark.parametrize(
    ("kind", "reward", "meters"),
    [
        ("Bed", 0.51306, {"energy": 0.99, "money": 0.45, "health": 0.51824}),
        ("Job", 0.15920, {"energy": 0.34, "money": 1.0, "social": 0.514, "health": 0.46824}),
        ("Bar", 0.12999, {"energy": 0.29, "satiation": 0.796, "money": 0.35, "social": 0.994, "health": 0.44824}),
    ],
)
def test_one_visit_with_all_meters_at_one_half(scene, kind, reward, meters):
    town = scene(**ENERGY_HEALTH)
    town.place(kind, 0, 0)
    town.set(all=0.5)
    got = town.reward("interact")[0]
    found = town.meters()
    for name, value in meters.items():
        assert found[name] == pytest.approx(value, abs=2e-5), name
    assert got == pytest.approx(reward, abs=2e-5)
