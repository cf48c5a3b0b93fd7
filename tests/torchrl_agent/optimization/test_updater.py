"""An updater by hand: one weight, whose loss is ``(w x) ** 2 / 2`` or whatever a frame says."""

import copy
import math

import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.envs.utils import ExplorationType, exploration_type
from torchrl.modules import recurrent_mode

from torchrl_agent.optimization.adam import make_adam
from torchrl_agent.optimization.updater import NonFiniteError, Updater, summarize_updates


class Slope(nn.Module):
    """``loss_slope`` is the weight times the mean of ``x``, so the gradient is that mean; remembers what it saw."""

    def __init__(self, *start):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.tensor(each)) for each in start])
        self.seen = []

    def forward(self, minibatch):
        self.seen.append((exploration_type(), recurrent_mode(), torch.is_autocast_enabled("cpu")))
        slopes = minibatch["x"].flatten(0, -2).mean(0)
        terms = [slope * weight for slope, weight in zip(slopes, self.weights, strict=True)]
        return TensorDict({"loss_slope": sum(terms), "mean_x": slopes.mean()})


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def fused(parameters):
    return make_adam(parameters, 0.1, 1e-8)


def unfused(parameters):
    return torch.optim.Adam(parameters, 0.1)


def make(*start, optimizer=sgd, parts=None, shards=(), max_grad_norm=math.inf, precision="float32"):
    torch.manual_seed(0)
    loss = Slope(*start or (1.0,))
    parameters = list(loss.parameters())
    names = {parameter: f"weight{number}" for number, parameter in enumerate(parameters)}
    parts = [parameters] if parts is None else [[parameters[number] for number in part] for part in parts]
    optimizer = optimizer(parameters)
    shards = [parameters[number] for number in shards]
    updater = Updater(loss, optimizer, parts, names, shards=shards, max_grad_norm=max_grad_norm, precision=precision)
    return updater, loss


def slopes(*values):
    """A minibatch of one frame."""
    return TensorDict({"x": torch.tensor([values])}, [1])


def weights(updater):
    return [round(parameter.item(), 5) for parameter in updater.parameters]


def test_a_step_goes_down_the_gradient():
    updater, _ = make(1.0)
    metrics = updater.update(slopes(2.0))
    assert weights(updater) == [1.0 - 0.1 * 2.0]
    assert (metrics["loss_slope"], metrics["mean_x"], metrics["grad_norm"]) == (2.0, 2.0, 2.0)
    assert (metrics["made"], metrics["skipped"], metrics["skipped_in_row"]) == (1, 0, 0)
    updater.begin(0.5)
    updater.update(slopes(1.0))
    assert weights(updater) == [pytest.approx(0.8 - 0.5 * 1.0)]


@pytest.mark.parametrize("optimizer", [fused, unfused])
def test_the_learning_rate_given_is_the_one_used(optimizer):
    updater, _ = make(1.0, optimizer=optimizer)
    updater.begin(0.25)
    updater.update(slopes(3.0))
    assert weights(updater) == [pytest.approx(0.75, abs=1e-5)]  # Adam's first step is the rate


def test_parts_are_clipped_by_their_own_norms():
    updater, _ = make(0.0, 0.0, 0.0, parts=[(0, 1), (2,)], max_grad_norm=1.0)
    metrics = updater.update(slopes(30.0, 40.0, 0.5))
    assert weights(updater) == pytest.approx([-0.06, -0.08, -0.05], abs=1e-5)  # norms 50 and 0.5
    assert metrics["grad_norm"] == pytest.approx(math.hypot(50, 0.5))
    assert [metrics[f"grad_norm/weight{number}"].item() for number in range(3)] == [30.0, 40.0, 0.5]


@pytest.mark.parametrize("optimizer", [fused, unfused])
@pytest.mark.parametrize("poison", [math.nan, math.inf, "gradient"])
def test_what_is_not_finite_leaves_no_trace(optimizer, poison):
    updater, _ = make(1.0, optimizer=optimizer)
    updater.update(slopes(1.0))
    before = copy.deepcopy((weights(updater), updater.optimizer.state_dict()["state"]))
    if poison == "gradient":  # of a finite loss
        hook = updater.parameters[0].register_hook(lambda gradient: gradient * math.inf)
        metrics = updater.update(slopes(1.0))
        hook.remove()
    else:
        metrics = updater.update(slopes(poison))
    assert (metrics["made"], metrics["skipped"], metrics["skipped_in_row"]) == (0, 1, 1)
    assert (weights(updater), updater.optimizer.state_dict()["state"]) == before
    assert updater.update(slopes(1.0))["made"] == 1
    assert weights(updater) != before[0]


def test_a_first_step_that_is_skipped_leaves_moments_of_nothing():
    updater, _ = make(1.0, optimizer=unfused)
    updater.update(slopes(math.nan))
    assert weights(updater) == [1.0]
    (state,) = updater.optimizer.state_dict()["state"].values()
    assert all(value == 0 for value in state.values())


def test_skips_in_a_row_are_counted_and_three_halt():
    updater, _ = make(1.0)
    rows = [updater.update(slopes(x))["skipped_in_row"].item() for x in (math.nan, math.nan, 1.0, math.nan)]
    assert rows == [1, 2, 2, 2]  # the most since it began
    updater.check({"skipped_in_row": 2.0}, "do something")
    updater.begin(0.1)
    metrics = [updater.update(slopes(math.nan)) for _ in range(2)][-1]
    with pytest.raises(NonFiniteError, match=r"not finite in 3 updates in a row: do something\.$"):
        updater.check({"skipped_in_row": metrics["skipped_in_row"].item()}, "do something")


def test_an_update_that_is_not_wanted_is_not_made_and_no_skip():
    updater, _ = make(1.0)
    updater.wanted = lambda metrics: metrics["mean_x"] < 2
    metrics = updater.update(slopes(3.0))
    assert (metrics["made"], metrics["skipped"]) == (0, 0)
    assert weights(updater) == [1.0]
    assert updater.update(slopes(1.0))["made"] == 1


def test_the_loss_is_asked_in_the_modes_of_learning():
    updater, loss = make(1.0, precision="bfloat16")
    updater.update(TensorDict({"x": torch.ones(4, 1)}, [4]))
    updater.update(TensorDict({"x": torch.ones(4, 3, 1)}, [4, 3]))
    assert loss.seen == [(ExplorationType.DETERMINISTIC, recurrent, True) for recurrent in (False, True)]


def test_scaled_gradients_that_overflow_are_no_skip_but_halve_the_scale():
    updater, _ = make(1.0, precision="float16")
    before = updater.grad_scaler.get_scale()
    updater.parameters[0].register_hook(lambda gradient: gradient * math.inf)
    metrics = updater.update(slopes(1.0))
    assert (metrics["made"], metrics["skipped"]) == (0, 0)
    assert updater.grad_scaler.get_scale() == before / 2


def test_scaled_gradients_that_are_never_finite_end_as_others_do():
    updater, _ = make(1.0, precision="float16")
    updater.parameters[0].register_hook(lambda gradient: gradient * math.inf)
    halvings = round(math.log2(updater.grad_scaler.get_scale()))
    skipped = [updater.update(slopes(1.0))["skipped_in_row"].item() for _ in range(halvings + 3)]
    assert skipped == [0.0] * halvings + [1, 2, 3]  # from a scale of 1 on nothing is scaled up that could overflow
    with pytest.raises(NonFiniteError, match="not finite in 3 updates in a row"):
        updater.check({"skipped_in_row": skipped[-1]}, "do something")


@pytest.mark.parametrize("optimizer", [fused, unfused])
def test_what_is_saved_goes_on(optimizer):
    updater, _ = make(1.0, optimizer=optimizer)
    for x in (1.0, -3.0, math.nan):
        updater.update(slopes(x))
    other, _ = make(*[parameter.item() for parameter in updater.parameters], optimizer=optimizer)
    rate = other.optimizer.param_groups[0]["lr"]
    other.load_state_dict(copy.deepcopy(updater.state_dict()))
    assert other.optimizer.param_groups[0]["lr"] is rate, "what is compiled reads it there"
    results = [each.update(slopes(math.nan))["skipped_in_row"].item() for each in (updater, other)]
    results += [each.update(slopes(2.0))["made"].item() for each in (updater, other)]
    assert results == [2, 2, 1, 1]
    assert weights(updater) == weights(other)


def test_its_tensors_are_all_that_updates_change():
    updater, _ = make(1.0, optimizer=fused)
    updater.update(slopes(1.0))
    held = {name: value.clone() for name, value in updater.tensors().items()}
    assert set(held) == {"skips_in_row", "optimizer.0.step", "optimizer.0.exp_avg", "optimizer.0.exp_avg_sq"}
    start = weights(updater)
    first = updater.update(slopes(5.0)), weights(updater)
    for name, value in updater.tensors().items():
        value.copy_(held[name])
    with torch.no_grad():
        updater.parameters[0].fill_(start[0])
    again = updater.update(slopes(5.0)), weights(updater)
    assert again[1] == first[1]


def test_means_are_over_the_updates_that_were_made():
    rows = {
        "loss": [1.0, 9.0, 3.0],
        "max_ratio": [1.0, 9.0, 2.0],
        "min_ratio": [1.0, 0.1, 2.0],
        "made": [1.0, 0.0, 1.0],
    }
    rows |= {"skipped": [0.0, 1.0, 0.0], "skipped_in_row": [0.0, 1.0, 1.0]}
    found = summarize_updates(TensorDict({name: torch.tensor(row) for name, row in rows.items()}, [3]))
    expected = {"loss": 2.0, "max_ratio": 9.0, "min_ratio": 0.1, "updates": 2, "skipped": 1, "skipped_in_row": 1}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected)


def test_norms_of_parameters_in_parts_are_those_of_the_whole_by_one_reduction(monkeypatch):
    reduced = []

    def total(squares):  # the other rank's parts have gradients of 4 and 12
        reduced.append(squares.tolist())
        return squares + torch.tensor([16.0, 144.0])

    monkeypatch.setattr("torchrl_agent.optimization.updater.ranks.total", total)
    monkeypatch.setattr("torchrl_agent.optimization.updater.take_gradients", lambda parameters: None)
    updater, _ = make(0.0, 0.0, 0.0, parts=[[0, 1], [2]], shards=[0, 2], max_grad_norm=1.3)
    metrics = updater.update(slopes(3.0, 12.0, 5.0))
    assert reduced == [[9.0, 25.0]]
    assert [metrics[f"grad_norm/weight{number}"].item() for number in range(3)] == [5, 12, 13]
    assert metrics["grad_norm"].item() == pytest.approx(math.hypot(5, 12, 13))
    # both parts have the norm 13: a tenth of each gradient is left, and a tenth of that is the step
    assert weights(updater) == [-0.03, -0.12, -0.05]


@pytest.mark.parametrize(
    ("terms", "named"), [({}, "nothing"), ({"kl": torch.zeros(()), "error": torch.ones(())}, "kl, error")]
)
def test_a_loss_without_terms_is_an_error(terms, named):
    weight = nn.Parameter(torch.ones(()))
    updater = Updater(lambda _: TensorDict(terms), sgd([weight]), [[weight]], {weight: "slope"}, max_grad_norm=1.0)
    with pytest.raises(ValueError, match=rf"loss gives {named}: let its forward return .* at least one loss_\*"):
        updater.update(TensorDict({"x": torch.ones(2, 1)}, [2]))
