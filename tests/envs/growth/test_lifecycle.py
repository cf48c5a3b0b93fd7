"""Lifecycle of a slot through the step of the world: durations, gates, blends, and masks that say what is legal."""

import math

import pytest
import torch
from growing import act, grown, small, stages, wait

from envs.growth.lifecycle import ease
from envs.growth.rules import ADD, COSINE, DOWN, GATE, LINEAR, MULTIPLY, SIGMOID, Operation, Stage, make_rules


def course(env, steps, slot=0):
    """Stage and alpha after each step of waiting."""
    result = []
    for _ in range(steps):
        act(env)
        result.append((stages(env, slot), round(float(env.state.slots.alpha[slot, 0]), 4)))
    return result


def test_a_module_passes_through_its_life_by_itself():
    """Germination counts as its first step; six of training; a linear blend over three."""
    env = small()
    act(env, Operation.GERMINATE, tempo=0)
    assert stages(env) == Stage.TRAINING and stages(env, 1) == Stage.DORMANT
    assert course(env, 5) == [(Stage.TRAINING, 0.0)] * 5
    assert course(env, 4) == [*((Stage.BLENDING, alpha) for alpha in (0.0, 0.3333, 0.6667)), (Stage.HOLDING, 1.0)]
    assert course(env, 3) == [(Stage.HOLDING, 1.0)] * 3
    act(env, Operation.KEEP)
    assert course(env, 5) == [(Stage.PERMANENT, 1.0)] * 5
    act(env, Operation.PRUNE)
    assert stages(env) == Stage.PERMANENT and env.state.tally.success.tolist() == [0, 0]


def test_a_pruned_slot_is_empty_after_a_step_of_passing_an_embargo_and_another():
    env = grown()
    act(env, Operation.PRUNE, speed=0)
    passed = [(stages(env), 0.0), *course(env, 5)]
    assert [stage for stage, _ in passed] == [Stage.EMBARGOED] * 3 + [Stage.RESETTING] + [Stage.DORMANT] * 2
    assert float(env.state.slots.age[0, 0]) == 0


def test_a_slow_prune_fades_first_and_its_weights_are_frozen():
    env = grown()
    act(env, Operation.PRUNE, speed=1)
    assert stages(env) == Stage.BLENDING and env.state.slots.mode[0, 0] == DOWN
    before = env.state.weights.modules.up[0].clone()
    assert course(env, 1) == [(Stage.BLENDING, 0.3333)]
    assert torch.equal(env.state.weights.modules.up[0], before)
    assert course(env, 2) == [(Stage.PRUNED, 0.0), (Stage.EMBARGOED, 0.0)]


def test_alpha_goes_to_another_target_and_back():
    env = grown()
    act(env, Operation.RETARGET, target=0, speed=1)
    assert course(env, 3) == [(Stage.BLENDING, 0.6667), (Stage.BLENDING, 0.5), (Stage.BLENDING, 0.5)]
    act(env, Operation.KEEP)
    assert env.state.tally.operation.tolist() == [Operation.WAIT, Operation.WAIT]
    act(env, Operation.RETARGET, target=2, speed=0)
    assert stages(env) == Stage.HOLDING


def test_only_one_module_develops_at_a_time_but_a_blending_one_does_not_block():
    env = small()
    act(env, Operation.GERMINATE)
    act(env, Operation.GERMINATE, slot=1)
    assert stages(env, 1) == Stage.DORMANT
    while stages(env) != Stage.BLENDING:
        act(env)
    act(env, Operation.GERMINATE, slot=1)
    assert stages(env, 1) == Stage.TRAINING


def test_a_module_is_not_pruned_before_its_least_age():
    env = small()
    act(env, Operation.GERMINATE)
    wait(env, 3)
    act(env, Operation.PRUNE)
    assert stages(env) == Stage.TRAINING
    act(env, Operation.PRUNE)
    assert stages(env) == Stage.EMBARGOED


def test_without_auto_advance_a_module_waits_at_each_gate():
    env = small(auto_advance=False)
    act(env, Operation.GERMINATE)
    wait(env, 2)
    assert stages(env) == Stage.GERMINATED
    act(env, Operation.ADVANCE)
    wait(env, 8)
    assert stages(env) == Stage.TRAINING
    act(env, Operation.ADVANCE)
    wait(env, 4)
    assert stages(env) == Stage.BLENDING and float(env.state.slots.alpha[0, 0]) == 1
    act(env, Operation.ADVANCE)
    assert stages(env) == Stage.HOLDING


def third(steepness):
    """Fraction of a sigmoid blend that is done after a third of its time."""
    low, high = (1 / (1 + math.exp(sign * steepness / 2)) for sign in (1, -1))
    return (1 / (1 + math.exp(steepness / 6)) - low) / (high - low)


@pytest.mark.parametrize(
    ("style", "operator", "done"), [(0, ADD, 1 / 3), (1, MULTIPLY, 1 / 3), (2, ADD, third(12)), (3, GATE, 1 / 3)]
)
def test_a_style_is_an_operator_and_the_curve_of_the_blend(style, operator, done):
    env = small()
    act(env, Operation.GERMINATE, style=style, tempo=0)
    wait(env, 7)
    assert env.state.slots.alpha[0].tolist() == pytest.approx([done] * 2, abs=1e-6)
    assert env.state.slots.operator[0].tolist() == [operator] * 2


@pytest.mark.parametrize(("curve", "done"), list(enumerate((1 / 3, 0.25, third(6), third(12), third(24)))))
def test_a_later_change_of_alpha_follows_its_curve(curve, done):
    env = grown()
    act(env, Operation.RETARGET, target=0, speed=1, curve=curve)
    assert env.state.slots.alpha[0].tolist() == pytest.approx([1 - done / 2] * 2, abs=1e-6)


@pytest.mark.parametrize("curve", [LINEAR, COSINE, SIGMOID])
def test_a_blend_eases_from_0_to_1(curve):
    time = torch.linspace(0, 1, 11)
    found = ease(time, torch.full((11,), curve), torch.full((11,), 12.0))
    assert found[0].abs() < 1e-6 and (found[-1] - 1).abs() < 1e-6 and (found.diff() > 0).all()
    low = 1 / (1 + math.exp(6))
    by_hand = {LINEAR: 0.2, COSINE: (1 - math.cos(0.2 * math.pi)) / 2}
    by_hand[SIGMOID] = (1 / (1 + math.exp(12 * 0.3)) - low) / (1 - 2 * low)
    assert float(found[2]) == pytest.approx(by_hand[curve], abs=1e-5)


@pytest.mark.parametrize("auto", [True, False])
def test_what_the_masks_allow_is_carried_out(auto):
    env = small(16, auto_advance=auto, max_steps=61)
    player, root = env.players()["random"], env.reset()
    seen = set()
    for _ in range(60):
        root = player(root)
        asked = root["action"][:, -1].clone()
        following = env.step(root)["next"]
        assert torch.equal(env.state.tally.operation, asked)
        seen |= set(asked.tolist())
        root = following
    assert seen >= ({0, 1, 2, 3, 4} if auto else {0, 1, 3, 5})


def test_heads_that_cannot_matter_have_one_legal_value():
    env = grown(num_envs=1)
    seen = env.observe(env.state)
    sizes = make_rules({"slots": 2}).head_sizes
    for operation, free in (
        (Operation.WAIT, ()),
        (Operation.PRUNE, (0, 5, 6)),
        (Operation.RETARGET, (0, 2, 4, 5, 6)),
        (Operation.GERMINATE, (0, 1, 2, 3, 4)),
    ):
        counts = [int(head.sum()) for head in seen["head_mask"][0, operation].split(sizes[:-1])]
        assert all(count == 1 for head, count in enumerate(counts[:7]) if head not in free), operation
        assert all(counts[head] == sizes[head] for head in free if head), operation
        assert counts[0] == 1, "only one slot holds a module, and only one is empty"
    nothing = small(1)
    mask = nothing.observe(nothing.state)["action_mask"]
    counts = [int(head.sum()) for head in mask.split(sizes, 1)]
    assert counts == [2, 6, 4, 3, 3, 1, 1, 2], "an empty host has no alpha to change"
