"""Ranges: every number of a configuration has one, and what leaves it is named."""

import dataclasses
import math
from typing import get_args, get_type_hints

import pytest

from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.core import devices as capacity
from torchrl_agent.core.bounds import check_ranges, choice, count, number, share, weight
from torchrl_agent.experiment import Experiment, ExperimentFile
from torchrl_agent.experiment.overrides import field_hints, inner_hint
from torchrl_agent.pretrain import PretrainConfig

BOUNDS = {"least", "most", "above", "below"}


def sections(kind, seen):
    """A dataclass and all that its fields hold."""
    if kind in seen:
        return seen
    seen.append(kind)
    for hint in field_hints(kind).values():
        for each in (hint, inner_hint(hint), *get_args(hint)):
            if isinstance(each, type) and dataclasses.is_dataclass(each):
                sections(each, seen)
    return seen


KINDS = []
for root in (ExperimentFile, PretrainConfig, *(each.config_class for each in ALGORITHMS.values())):
    sections(root, KINDS)
NUMBERS = [
    (kind, field)
    for kind in KINDS
    for field in dataclasses.fields(kind)
    if {int, float} & {get_type_hints(kind)[field.name], inner_hint(get_type_hints(kind)[field.name])}
    or {int, float} & set(get_args(get_type_hints(kind)[field.name]))
]


def test_every_section_is_walked():
    assert {"PPOConfig", "SACConfig", "GeneConfig", "FamilyConfig", "ManagerConfig", "LearningRateConfig"} <= {
        kind.__name__ for kind in KINDS
    }
    assert len(NUMBERS) > 120


@pytest.mark.parametrize(("kind", "field"), NUMBERS, ids=lambda each: getattr(each, "__name__", None) or each.name)
def test_every_number_has_a_range(kind, field):
    assert set(field.metadata) & BOUNDS, f"{kind.__name__}.{field.name}: declare it by ranges.number or a kind of it"


@pytest.mark.parametrize(("kind", "field"), NUMBERS, ids=lambda each: getattr(each, "__name__", None) or each.name)
def test_what_is_out_of_range_is_refused_and_what_is_at_its_end_is_not(kind, field):
    limits = field.metadata
    hint = get_type_hints(kind)[field.name]
    hint = next((each for each in get_args(hint) if each == list[int]), hint)
    step = 1 if hint is int or int in get_args(hint) or hint == list[int] else 1e-3
    bad = [limits[name] - step for name in ("least",) if limits.get(name, -math.inf) > -math.inf]
    bad += [limits[name] + step for name in ("most",) if name in limits and limits[name] < 2**53]
    bad += [limits[name] for name in ("above", "below") if name in limits]
    for value in bad:
        with pytest.raises(ValueError, match=rf"x\.{field.name}"):
            check_ranges(with_value(kind, field, hint, value), "x.")
    for name in ("least", "most"):
        if abs(limits.get(name, math.inf)) < 2**53:
            check_ranges(with_value(kind, field, hint, limits[name]), "x.")


def with_value(kind, field, hint, value):
    """A section whose one field has this value."""
    value = int(value) if hint is int or hint == list[int] else value
    held = [value] if hint == list[int] else {"a": value} if hint == dict[str, float] else value
    made = kind.__new__(kind)
    for each in dataclasses.fields(kind):
        setattr(made, each.name, None)
    setattr(made, field.name, held)
    return made


@dataclasses.dataclass
class Limits:
    """One field of each kind."""

    bonus: float = weight(1.0)
    part: float = share(0.5)
    times: int = count(1)
    above: float = number(1.0, above=0)
    below: float = number(0.5, least=0, below=1)
    endless: float = number(1.0, above=0, infinite=True)
    word: str = choice("linear", ("linear", "cosine"))
    maybe: float | None = share(None)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("bonus", -1.0, "bonus is -1.0: it must be at least 0."),
        ("part", 1.5, "part is 1.5: it must be within [0, 1]."),
        ("part", -0.5, "part is -0.5: it must be within [0, 1]."),
        ("times", 0, "times is 0: it must be at least 1."),
        ("times", 1_000_001, "times is 1000001: it must be at most 1000000."),
        ("above", 0.0, "above is 0.0: it must be above 0."),
        ("below", 1.0, "below is 1.0: it must be below 1."),
        ("endless", -math.inf, "endless is -inf: it must be above 0."),
        ("bonus", math.inf, "bonus is inf: give a finite number."),
        ("word", "linaer", "word is 'linaer' (did you mean linear?): use one of linear, cosine."),
        ("word", "x", "word is 'x': use one of linear, cosine."),
        ("maybe", 2.0, "maybe is 2.0: it must be within [0, 1]."),
    ],
)
def test_the_sentence_says_the_bound(field, value, sentence):
    with pytest.raises(ValueError) as caught:
        check_ranges(Limits(**{field: value}))
    assert str(caught.value) == sentence


def test_what_is_within_the_range_passes():
    check_ranges(Limits(bonus=0.0, part=0.0, below=0.0, endless=math.inf, times=1_000_000))


@pytest.mark.parametrize(
    ("name", "overrides", "sentence"),
    [
        ("arena_pbt", ["population.members=100000"], "population.members is 100000: it must be at most 1000"),
        ("duel_league", ["world.action_repeat=2147483648"], "action_repeat is 2147483648: give at most 1000 steps"),
        ("cartpole", ["world.num_envs=1000000000"], "num_envs is 1000000000: give at most 100000 worlds"),
        (
            "arena_pbt",
            ["population.members=1000", "model.hidden_sizes=[512,256]", "world.num_envs=1"],
            r"a population of 1000 members would need at least [\d,.]+ GiB",
        ),
    ],
)
def test_sizes_without_an_end_are_refused_before_anything_is_made(name, overrides, sentence, monkeypatch):
    monkeypatch.setattr(capacity, "free_memory", lambda device: 2**30)
    with pytest.raises(ValueError, match=sentence):
        Experiment.load(name, "device=cpu", "algorithm.minibatch_size=64", *overrides).make_learner()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("model.perception.known=[metres]", r"known names 'metres', which there is not \(did you mean meters\?\)"),
        ("model.perception.others=otters", r"others names 'otters', which there is not \(did you mean others\?\)"),
        ("model.manager.traits=nonsense", r"model\.manager\.traits names 'nonsense', which there is not: use"),
    ],
)
def test_observations_that_a_world_does_not_show_are_refused_by_name(override, sentence):
    experiment = Experiment.load("small_town", "device=cpu", "world.num_envs=2", override)
    with pytest.raises(ValueError, match=sentence):
        experiment.make_agent(experiment.make_world())
