"""Gradients and blending: what trains what, and that a module which is off changes nothing."""

import pytest
import torch
from growing import SMALL, small
from torch.func import grad, vmap

from envs.growth.network import Mixture, configurations, cross_entropy, forward, host_forward, loss, module, twin_loss
from envs.growth.optimizer import Pace, step, world_norm
from envs.growth.rules import KINDS, MAX_RANK, make_rules
from envs.growth.state import Twin, Weights, world_first
from envs.toolkit.records import map_record

RULES = make_rules(SMALL)
WORLDS, ROWS = 3, 6


@pytest.fixture
def weights():
    """Hosts with a module in each slot whose output is not zero."""
    generator = torch.Generator().manual_seed(1)
    found = world_first(small(WORLDS).state.weights)
    modules = map_record(lambda value: torch.randn(value.shape, generator=generator) * 0.5, found.modules)
    return Weights(found.host, modules)


@pytest.fixture
def rows():
    env = small(WORLDS)
    index = torch.arange(WORLDS * ROWS).view(WORLDS, ROWS)
    return env.data.inputs[index], env.data.labels[index, 3]


def mixture(alpha=0.0, training=0.0, multiplies=False, gated=False, rank=MAX_RANK, taps=1.0, kind="add"):
    """The same mixture in every slot."""
    shape = WORLDS, RULES.slots
    return Mixture(
        torch.full((*shape, 1), alpha),
        torch.full(shape, training),
        torch.full(shape, KINDS.index(kind)),
        torch.full(shape, multiplies),
        torch.full(shape, gated),
        torch.full(shape, rank),
        torch.full(shape, taps),
    )


def same(left, right, **tolerance):
    map_record(lambda a, b: torch.testing.assert_close(a, b, **tolerance), left, right)


def test_a_module_in_training_leaves_its_hosts_output_and_gradient_as_they_are(weights, rows):
    alone, isolated = (grad(loss)(weights, *rows, mixture(training=training), RULES) for training in (0.0, 1.0))
    assert torch.equal(
        forward(weights, rows[0], mixture(training=1.0), RULES), host_forward(weights.host, rows[0], RULES)
    )
    same(alone.host, isolated.host)
    same(isolated.host, grad(twin_loss)(weights.host, *rows, RULES))
    assert all(not value.any() for value in alone.modules)
    assert (world_norm(isolated.modules[:3], 2) > 1e-4).all()


@pytest.mark.parametrize("options", [{}, {"multiplies": True}, {"gated": True}])
def test_at_alpha_0_every_operator_is_the_host_and_at_1_it_is_not(weights, rows, options):
    host = host_forward(weights.host, rows[0], RULES)
    assert torch.equal(forward(weights, rows[0], mixture(0.0, **options), RULES), host)
    assert (forward(weights, rows[0], mixture(1.0, **options), RULES) - host).abs().max() > 0.01


def test_a_fresh_module_is_the_identity(weights, rows):
    fresh = weights._replace(modules=weights.modules._replace(up=torch.zeros_like(weights.modules.up)))
    for options in ({}, {"multiplies": True}, {"gated": True}):
        blended = forward(fresh, rows[0], mixture(1.0, **options), RULES)
        assert torch.equal(blended, host_forward(weights.host, rows[0], RULES))


def test_the_gradient_of_the_blocks_before_a_slot_stays_whole_in_residual_blending_and_vanishes_by_the_lerp_rule(
    weights, rows
):
    """The last slot's lerp cuts off everything before it."""
    norms = {}
    for blend in ("residual", "lerp"):
        rules = make_rules({**SMALL, "blend": blend})
        norms[blend] = [grad(loss)(weights, *rows, mixture(alpha), rules).host.embedding.norm() for alpha in (0.5, 1.0)]
    assert min(norms["residual"]) > 1e-3 and norms["lerp"][0] > 1e-3
    assert norms["lerp"][1] == 0
    assert torch.allclose(
        forward(weights, rows[0], mixture(0.7), make_rules({**SMALL, "blend": "lerp"})),
        forward(weights, rows[0], mixture(0.7), RULES),
        atol=1e-5,
    )


def test_hosts_do_not_mix_so_the_sums_gradient_is_each_ones_own(weights, rows):
    together = grad(loss)(weights, *rows, mixture(0.5), RULES)
    parts = Mixture(*(value[:1] for value in mixture(0.5)))

    def one(weights, inputs, labels):
        single = map_record(lambda value: value.unsqueeze(0), weights)
        return loss(single, inputs.unsqueeze(0), labels.unsqueeze(0), parts, RULES)

    same(together, vmap(grad(one))(weights, *rows), atol=1e-5, rtol=1e-4)


def test_masked_units_and_neighbors_neither_act_nor_learn(weights, rows):
    part = mixture(1.0, rank=2, taps=0.0)
    gradient = grad(loss)(weights, *rows, part, RULES).modules
    assert not gradient.up[:, :, 2:].any() and gradient.up[:, :, :2].any()
    assert not gradient.down[:, :, :, [0, 2]].any() and not gradient.down[..., 2:].any()
    assert gradient.down[:, :, :, 1, :2].any()


def change(weights, kind, rank=MAX_RANK):
    """Change by a module of a kind, as a function of features [N, 1, B, L, C]."""
    rules = make_rules({**SMALL, "blueprints": ["lowrank4", "attention8"]})
    blend = mixture(rank=rank, kind=kind)
    return lambda seen: module(seen, weights.modules, blend, 0, rules)


def features(seed=0):
    return torch.randn(WORLDS, 1, ROWS, 8, RULES.width, generator=torch.Generator().manual_seed(seed))


def test_a_low_rank_module_is_linear_and_of_its_rank(weights):
    weights.modules.down[:, :, :, [0, 2]] = 0  # without neighbors
    one, two, apply = features(0), features(1), change(weights, "low-rank", rank=2)
    torch.testing.assert_close(apply(one + 3 * two), apply(one) + 3 * apply(two), atol=1e-4, rtol=1e-3)
    assert [int(torch.linalg.matrix_rank(each, atol=1e-3)) for each in apply(one).flatten(1, 3)] == [2] * WORLDS


def test_attention_is_the_mean_of_values_weighted_by_query_and_key(weights):
    """PyTorch's own attention, position by position, with the first components alone."""
    rank, seen, modules = 3, features(), weights.modules
    query, center, key = (torch.einsum("ngblc,ncr->ngblr", seen, modules.down[:, 0, :, part]) for part in range(3))
    parts = (part[..., :rank] for part in (query, key, center))
    expected = torch.nn.functional.scaled_dot_product_attention(*parts)
    expected = torch.einsum("ngblr,nrc->ngblc", expected, modules.up[:, 0, :rank])
    torch.testing.assert_close(change(weights, "attention", rank)(seen), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("training", [0.0, 1.0])
def test_in_bfloat16_types_are_aligned_and_modules_still_learn(weights, rows, training):
    with torch.autocast("cpu", torch.bfloat16):
        gradient = grad(loss)(weights, *rows, mixture(1.0 - training, training), RULES)
        logits = forward(weights, rows[0], mixture(0.5), RULES)
    assert logits.dtype == torch.float32
    assert (world_norm(gradient.modules[:3], 2) > 1e-4).all() and (world_norm(gradient.host, 1) > 1e-4).all()
    exact = grad(loss)(weights, *rows, mixture(1.0 - training, training), RULES)
    torch.testing.assert_close(gradient.host.classifier, exact.host.classifier, atol=0.05, rtol=0.1)


def test_all_configurations_are_one_batch(weights, rows):
    alpha = torch.tensor([[0.5, 1.0]]).expand(WORLDS, -1)
    every = configurations(alpha, torch.tensor([[0.0, 1.0]]).expand(WORLDS, -1))
    assert every[0].T.tolist() == [[0.5, 1], [0, 1], [0.5, 0], [0, 0], [0, 1]]
    together = forward(weights, rows[0], mixture()._replace(alpha=every, training=None), RULES)
    for index in range(every.shape[-1]):
        alone = mixture()._replace(alpha=every[..., index : index + 1], training=None)
        torch.testing.assert_close(together[:, index], forward(weights, rows[0], alone, RULES)[:, 0])
    torch.testing.assert_close(together[:, 3], host_forward(weights.host, rows[0], RULES)[:, 0])


def test_cross_entropy_of_a_uniform_guess_is_the_logarithm_of_the_number_of_classes():
    found = cross_entropy(torch.zeros(2, 1, 5, 8), torch.zeros(2, 5, dtype=torch.long))
    assert found.flatten().tolist() == pytest.approx([2.0794415] * 2)


def test_the_first_step_of_adam_is_the_learning_rate_against_the_sign_where_a_slot_is_active():
    """m / sqrt(v) = g / |g| after the correction of both means; epsilon makes a hundredth at most."""
    zeros = Twin(*[torch.zeros(1, 2, 3)] * 3)  # any record of weights
    gradient = Twin(*[torch.tensor([[[1.0, -1.0, 0.0], [1.0, 1.0, 1.0]]])] * 3)
    pace = Pace(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), 0.02)
    after, first, _ = step(zeros, gradient, zeros, zeros, pace)
    torch.testing.assert_close(after.host[0, 0], torch.tensor([-0.02, 0.02, 0.0]), atol=2e-4, rtol=0)
    assert not after.host[0, 1].any() and not first.host[0, 1].any()
