"""Abilities of worlds: ours have what the protocol says, and worlds that know nothing of it have its defaults."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import numbers
import typing
from pathlib import Path
from types import UnionType

import pytest
from torchrl.envs import EnvCreator, GymEnv, ParallelEnv, RewardSum, TransformedEnv

from envs import WORLDS
from envs.libs.gymnasium import VectorGymEnv
from torchrl_agent.core.abilities import WorldAbilities, abilities

HINTS = typing.get_type_hints(WorldAbilities)
METHODS = {
    name: method for name, method in vars(WorldAbilities).items() if name[0] != "_" and inspect.isfunction(method)
}
OWN = {**WORLDS, "gymnasium": lambda: VectorGymEnv("CartPole-v1", num_envs=1)}


def fits(value, hint):
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind in (typing.Union, UnionType):
        return any(fits(value, part) for part in parts)
    if kind is collections.abc.Callable:
        return callable(value)
    return hint is typing.Any or isinstance(value, numbers.Real if hint is float else kind or hint)


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_every_world_of_ours_satisfies_the_protocol(make):
    env = make()
    found = abilities(env)
    for name, hint in HINTS.items():
        assert fits(getattr(found, name), hint), name
    for name, method in METHODS.items():
        needed = list(inspect.signature(method).parameters)[1:]
        assert list(inspect.signature(getattr(found, name)).parameters)[: len(needed)] == needed, name
    env.close()


def test_a_stranger_has_the_defaults_and_its_processes_live():
    env = ParallelEnv(2, EnvCreator(lambda: GymEnv("CartPole-v1")))
    try:
        found = abilities(TransformedEnv(env, RewardSum()))
        assert {name: getattr(found, name) for name in HINTS} == {name: vars(WorldAbilities)[name] for name in HINTS}
        assert found.players() == found.experts() == found.names() == found.update_curriculum({}) == {}
        assert [found.check_game(), found.begin_stage(), found.split_curriculum(2), found.copy_curricula([0])] == [
            None
        ] * 4
        assert found.compile_options_on(env.device) is None
        assert env.reset().shape == (2,)
    finally:
        env.close()


def test_transforms_hide_no_ability_and_others_are_refused():
    env = TransformedEnv(WORLDS["town"](), RewardSum())
    assert abilities(env).branchless and abilities(env).num_agents == 1
    assert set(abilities(env).players()) == set(env.base_env.players())
    with pytest.raises(AttributeError, match="batch_size"):
        abilities(env).batch_size  # noqa: B018


def rows():
    """Rows of the table of abilities, from the source."""
    (tree,) = ast.parse(inspect.getsource(WorldAbilities)).body
    for part, words in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(part, ast.AnnAssign):
            name, default, meaning = part.target.id, ast.unparse(part.value), words.value.value
        elif isinstance(part, ast.FunctionDef):
            name = f"{part.name}({', '.join(each.arg for each in part.args.args[1:])})"
            default, meaning = ast.unparse(part.body[-1].value), ast.get_docstring(part)
        else:
            continue
        yield f"| `{name}` | `{default}` | {' '.join(meaning.split()).replace('``', '`')} |"


def test_the_guides_table_has_defaults_and_meanings_of_the_protocol():
    page = Path(__file__).parents[3] / "docs" / "howto" / "own_world.md"
    _, _, table = page.read_text().partition("| ability | default | meaning |\n|---|---|---|\n")
    shown = table.partition("\n\n")[0].splitlines()
    assert len(shown) > 5
    assert [row for row in shown if row not in set(rows())] == []
