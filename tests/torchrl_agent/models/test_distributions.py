"""The masked categorical: legal actions only, right frequencies, gradients that are numbers."""

import math

import pytest
import torch

from torchrl_agent.modules.distributions import ConditionedMultiCategorical, MaskedCategorical, MaskedMultiCategorical

LOGITS = torch.tensor([math.log(1.0), math.log(3.0), math.log(100.0), math.log(6.0)])
LEGAL = torch.tensor([True, True, False, True])
PROBABILITIES = torch.tensor([0.1, 0.3, 0.0, 0.6])


@pytest.mark.parametrize("legal_logit", [0.0, -1e4, 1e4])
def test_illegal_actions_are_never_sampled(legal_logit):
    torch.manual_seed(0)
    logits = torch.tensor([50.0, legal_logit, 50.0, legal_logit]).expand(20_000, 4)
    mask = torch.tensor([False, True, False, True]).expand(20_000, 4)
    actions = MaskedCategorical(logits, mask).sample()
    assert set(actions.tolist()) == {1, 3}


def test_frequencies_match_the_probabilities():
    torch.manual_seed(0)
    number = 100_000
    actions = MaskedCategorical(LOGITS, LEGAL).sample((number,))
    frequencies = torch.bincount(actions, minlength=4) / number
    # the standard deviation of a frequency is at most 0.5 / sqrt(number) = 0.0016
    torch.testing.assert_close(frequencies, PROBABILITIES, atol=0.007, rtol=0)


def test_samples_have_the_sample_shape_before_the_batch_shape_and_are_indices():
    distribution = MaskedCategorical(torch.zeros(2, 3, 5))
    assert distribution.sample().shape == (2, 3)
    assert distribution.sample((7,)).shape == (7, 2, 3)
    assert distribution.sample().dtype == torch.int64


def test_log_probabilities_are_normalized_over_the_legal_actions():
    log_prob = MaskedCategorical(LOGITS, LEGAL).log_prob(torch.arange(4))
    torch.testing.assert_close(log_prob[LEGAL], torch.tensor([0.1, 0.3, 0.6]).log())
    assert log_prob[2] < -1e30
    torch.testing.assert_close(log_prob.exp().sum(), torch.tensor(1.0))


def test_without_a_mask_every_action_is_legal():
    log_prob = MaskedCategorical(LOGITS).log_prob(torch.arange(4))
    torch.testing.assert_close(log_prob, torch.tensor([1, 3, 100, 6]).div(110).log())


def test_entropy_is_that_of_the_legal_actions():
    expected = -(0.1 * math.log(0.1) + 0.3 * math.log(0.3) + 0.6 * math.log(0.6))
    assert MaskedCategorical(LOGITS, LEGAL).entropy().item() == pytest.approx(expected, rel=1e-5)
    assert MaskedCategorical(torch.zeros(8)).entropy().item() == pytest.approx(math.log(8), rel=1e-5)


def test_the_gradient_of_entropy_is_finite_where_a_loss_is_scaled_up():
    logits = torch.tensor([[3.0, -2.0, 0.5]], requires_grad=True)
    entropy = MaskedCategorical(logits, torch.tensor([[True, False, True]])).entropy()
    (65536 * entropy.sum()).backward()
    assert logits.grad.isfinite().all() and logits.grad[0, 0] < 0 and logits.grad[0, 1] == 0


def test_with_one_legal_action_entropy_is_zero_and_gradients_are_finite():
    logits = torch.tensor([[3.0, -2.0, 0.5]], requires_grad=True)
    distribution = MaskedCategorical(logits, torch.tensor([[False, True, False]]))
    entropy, log_prob = distribution.entropy(), distribution.log_prob(torch.tensor([1]))
    assert entropy.item() == 0.0
    assert log_prob.item() == 0.0
    (entropy + log_prob).sum().backward()
    assert logits.grad.tolist() == [[0.0, 0.0, 0.0]]


def test_illegal_logits_get_no_gradient_and_legal_ones_the_usual():
    logits = LOGITS.clone().requires_grad_()
    MaskedCategorical(logits, LEGAL).log_prob(torch.tensor(0)).backward()
    # d log p_0 / d logit_j = [j = 0] - p_j
    torch.testing.assert_close(logits.grad, torch.tensor([0.9, -0.3, 0.0, -0.6]))


def test_the_deterministic_sample_is_the_most_likely_legal_action():
    assert MaskedCategorical(LOGITS, LEGAL).deterministic_sample.item() == 3
    assert MaskedCategorical(LOGITS).deterministic_sample.item() == 2


def test_half_precision_logits_are_computed_in_full_precision():
    distribution = MaskedCategorical(LOGITS.bfloat16(), LEGAL)
    assert distribution.log_prob(torch.tensor(1)).dtype == torch.float32
    torch.testing.assert_close(distribution.probs.sum(), torch.tensor(1.0))


def test_a_mask_that_allows_nothing_says_nothing():
    free = MaskedCategorical(LOGITS)
    stuck = MaskedCategorical(LOGITS, torch.zeros_like(LEGAL))
    torch.testing.assert_close(stuck.probs, free.probs)
    torch.testing.assert_close(stuck.log_prob(torch.tensor(2)), free.log_prob(torch.tensor(2)))
    heads = MaskedMultiCategorical(torch.zeros(5), torch.tensor([False, False, True, False, False]), sizes=[3, 2])
    # the first head may do one thing, the second takes either of two
    assert heads.log_prob(torch.tensor([2, 1])).item() == pytest.approx(math.log(0.5))


def test_a_floor_keeps_every_legal_action_possible():
    logits = torch.tensor([0.0, -1e9, 5.0, 0.0])
    floored = MaskedCategorical(logits, LEGAL, least=0.1)
    # over three legal actions p (1 - 3 * 0.1) + 0.1; p is 1/2, 0, 1/2
    torch.testing.assert_close(floored.probs, torch.tensor([0.45, 0.1, 0.0, 0.45]))
    assert floored.log_prob(torch.tensor(2)) < -1e30, "illegal actions stay so"
    many = MaskedCategorical(torch.tensor([9.0, -9.0]), least=0.5).probs
    # at most half of 1/2 each
    torch.testing.assert_close(many, torch.tensor([0.75, 0.25]), atol=1e-4, rtol=0)
    alone = MaskedCategorical(torch.zeros(2), torch.tensor([True, False]), least=0.1)
    assert alone.log_prob(torch.tensor(0)).item() == 0.0 and alone.entropy().item() == 0.0


def test_the_gradient_of_a_floored_choice_is_finite():
    logits = torch.tensor([0.0, -1e4, 5.0, 0.0], requires_grad=True)
    floored = MaskedCategorical(logits, LEGAL, least=0.1)
    (floored.log_prob(torch.tensor(1)) + floored.entropy()).backward()
    assert logits.grad.isfinite().all() and logits.grad[2] == 0


CHOICES = torch.tensor([math.log(1.0), math.log(3.0), 0.0, math.log(2.0), 0.0, math.log(4.0), 0.0])
"""Of heads with 2, 2 and 3 values, of which the last leads."""
LEAVES = torch.tensor([[True, True, True, False], [False, True, True, True], [True, False, True, False]])


def conditioned(last=(True, True, False)):
    """Actions whose last head may take its first two values."""
    mask = torch.cat([torch.ones(4, dtype=torch.bool), torch.tensor(last)])
    return ConditionedMultiCategorical(CHOICES, mask, LEAVES, sizes=[2, 2, 3])


def test_the_last_head_decides_what_is_legal_in_the_others():
    torch.manual_seed(0)
    actions = conditioned().sample((20_000,))
    assert set(map(tuple, actions.tolist())) == {(0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 1)}
    share = (actions[:, 2] == 0).float().mean()
    assert share.item() == pytest.approx(1 / 5, abs=0.01)
    # probabilities 1/5 * 3/4 * 1 and 4/5 * 1 * 2/3
    found = conditioned().log_prob(torch.tensor([[1, 0, 0], [1, 1, 1]]))
    torch.testing.assert_close(found.exp(), torch.tensor([0.15, 8 / 15]))
    assert conditioned().deterministic_sample.tolist() == [1, 1, 1]


def test_its_entropy_is_that_of_all_actions():
    probabilities = torch.tensor([1 / 5 * 1 / 4, 1 / 5 * 3 / 4, 4 / 5 * 1 / 3, 4 / 5 * 2 / 3])
    expected = -(probabilities * probabilities.log()).sum()
    torch.testing.assert_close(conditioned().entropy(), expected)


def test_heads_by_themselves():
    found = conditioned().heads(torch.tensor([1, 1, 1]))
    assert found.count.tolist() == [1, 2, 2] and found.relevant.tolist() == [False, True, True]
    torch.testing.assert_close(found.log_prob.exp(), torch.tensor([1.0, 2 / 3, 4 / 5]))
    second = -(1 / 3 * math.log(1 / 3) + 2 / 3 * math.log(2 / 3))
    assert found.normalized_entropy[0].item() == 0.0
    assert found.normalized_entropy[1].item() == pytest.approx(second / math.log(2), rel=1e-5)
    joint = conditioned().log_prob(torch.tensor([1, 1, 1]))
    torch.testing.assert_close(found.log_prob.sum(), joint)
    plain = MaskedMultiCategorical(CHOICES, sizes=[2, 2, 3]).heads(torch.tensor([1, 1, 1]))
    assert plain.count.tolist() == [2, 2, 3]
