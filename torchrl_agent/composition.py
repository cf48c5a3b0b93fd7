"""Configurations put together: YAML files and overrides by Hydra, the algorithm's section by its class."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.toolkit import plain_yaml
from torchrl_agent.training.algorithm import AlgorithmConfig
from torchrl_agent.training.algorithms import class_path, find_algorithm
from torchrl_agent.trust import check, record
from torchrl_agent.trust.targets import CALL

logger = logging.getLogger(__name__)

_INSTALLED = Path(__file__).resolve().parent / "configs"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "configs"
"""The project's configurations: inside the package where it is installed, beside it in a clone."""
SCHEMA = "experiment_schema"
SECTION, TARGET, TUNED = "algorithm", "_target_", "tuned"
OLD_SECTIONS = ("ppo", "a2c", "impala", "dqn")
"""Sections that the algorithms of the last release had of their own, such as ``ppo.gamma``."""

GIVEN = "given_file"
"""Where Hydra finds a file that is not ours."""

Change = tuple[str, Any]
"""What an override changes: a dotted key, and its value."""


def config_names() -> list[str]:
    """Names of the configurations that come with the project."""
    return sorted(path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml"))


def config_file(config: str | Path) -> Path:
    """The file of a configuration, given by its name or its path.

    Raises:
        ValueError: there is none.
    """
    path = Path(config)
    if path.suffix not in (".yaml", ".yml"):
        path = CONFIGS / f"{config}.yaml"
    if not path.is_file():
        raise ValueError(
            f"there is no configuration {str(config)!r}: use one of {', '.join(config_names())}, or the path of a YAML "
            "file. A level of a world is chosen by world.level=NAME."
        )
    return path


@dataclass
class ConfigFile:
    """A configuration, as it was read."""

    path: Path
    text: str
    ours: bool
    """It comes with the project."""
    trusted: bool
    """It may name whatever it likes."""

    @functools.cached_property
    def content(self) -> DictConfig:
        """What the file says, without its bases."""
        with _one_sentence(self.path):
            content = OmegaConf.create(self.text)
        if not isinstance(content, DictConfig):
            raise ValueError(_not_an_experiment(self.path))
        return content


def read_config(config: str | Path, trust: bool = False) -> ConfigFile:
    """A configuration, given by its name or its path; trusted if it is ours, was recorded, or ``trust`` says so.

    Raises:
        ValueError: there is none, it is no YAML, or it asks for other files without being trusted.
    """
    path = config_file(config)
    text = plain_yaml.read_text(path)
    ours = CONFIGS in path.resolve().parents
    trusted = ours or trust or CALL.get().trust or record.is_recorded(text)
    file = ConfigFile(path, text, ours, trusted)
    if not trusted:
        plain: Any = OmegaConf.to_container(file.content)
        check.check(check.in_file(plain, ["_self_", SCHEMA, *config_names()]), path, trusted)
    return file


def trust_file(config: str | Path) -> None:
    """Record that a configuration is trusted, as it is now; ours needs no record."""
    file = read_config(config, trust=True)
    if not file.ours:
        record.record(file.text, file.path)


def compose_experiment(
    file: ConfigFile, overrides: Sequence[str], schema: DictConfig, weaker: Sequence[str] = ()
) -> Any:
    """The configuration in a file, with overrides: all keys of the schema, and under ``algorithm`` those of its class.

    Args:
        file: as :func:`read_config` gives it.
        overrides: such as ``seed=1`` or ``algorithm.gamma=0.9``.
        schema: a structured configuration whose fields are what a file may hold.
        weaker: overrides before those, which are the file's own words.

    Raises:
        ValueError: the file does not begin with the schema; an unknown key, a value of the wrong type, or something
            that needs trust, which the sentence names.
    """
    path = file.path
    with _one_sentence(path, schema):
        (own, own_others), (asked, others) = _split(weaker), _split(overrides)
        loaded = _composed(file, [*own_others, *others], schema)
        plain: Any = OmegaConf.to_container(loaded)
        for name in map(str, schema):  # inside the sections Hydra refuses such overrides itself
            if name not in plain:
                raise ValueError(f"{name} cannot be taken away: give it a value, such as {name}=VALUE.")
        check.check(check.in_words(plain), path, file.trusted, others)
        check.check(check.in_words({check.ON_CUDA: dict(own)}), path, file.trusted)
        check.check(check.in_words({check.ON_CUDA: dict(asked)}), path, trusted=True)
        section, layers, changes = _choose_algorithm(plain, [*own, *asked], path)
        # merging once more refuses keys that a "+key=value" override slipped past the schema
        experiment: Any = OmegaConf.merge(schema, plain)
        experiment[SECTION] = section
        for layer in layers:
            OmegaConf.update(experiment, SECTION, layer)
        for key, value in changes:
            OmegaConf.update(experiment, key, value)
        result: Any = OmegaConf.to_object(experiment)
        check.check(check.in_targets(dataclasses.asdict(result)), path, file.trusted, others)
        return result


def _composed(file: ConfigFile, overrides: Sequence[str], schema: DictConfig) -> DictConfig:
    """A file on its bases, by Hydra. One of ours is found by its name, any other file is content that begins with one
    of ours (``defaults: [arena, _self_]``) or, if it is trusted, with one beside it.
    """
    store = ConfigStore.instance()
    store.store(SCHEMA, schema)
    if not file.ours:
        store.store(GIVEN, file.content)
    GlobalHydra.instance().clear()
    above = file.path.resolve().parent
    name, folder, beside = (file.path.stem, above, CONFIGS) if file.ours else (GIVEN, CONFIGS, above)
    search = [f'hydra.searchpath=["file://{beside.as_posix()}"]'] if file.trusted else []
    with initialize_config_dir(str(folder), version_base="1.3"):
        loaded = compose(name, [*search, *overrides])
    if OmegaConf.get_type(loaded) is not OmegaConf.get_type(schema):
        raise ValueError(_not_an_experiment(file.path))
    return loaded


def _not_an_experiment(path: Path) -> str:
    return f"configuration {path.stem} is not an experiment: begin it with 'defaults: [{SCHEMA}, _self_]'."


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """Overrides of every training of a sweep: the Cartesian product of the values that Hydra's grammar lists, as in
    ``seed=0,1``, ``choice(0,1)`` or ``range(0,2)``. The last override changes fastest.

    Raises:
        ValueError: an override does not follow the grammar, or its values cannot be listed.
    """
    return [list(each) for each in itertools.product(*map(_values, overrides))]


def _values(text: str) -> list[str]:
    """An override once for each of its values."""
    try:
        override = OverridesParser.create().parse_override(text)
        if not override.is_sweep_override():
            return [text]
        return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
    except HydraException:
        raise ValueError(
            f"{text} lists no values: write KEY=VALUE, or several as KEY=VALUE,VALUE, KEY=choice(...) or "
            "KEY=range(...)."
        ) from None


# --- the algorithm's section -----------------------------------------------------------------------------------------


def _split(overrides: Iterable[str]) -> tuple[list[Change], list[str]]:
    """What overrides change of the algorithms, and those that are Hydra's."""
    changes: list[Change] = []
    others = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            raise ValueError(
                f"{override.input_line} gives several values: give one, or train with each by 'torchrl-agent train -m'."
            )
        key = override.key_or_group
        if override.type is OverrideType.DEL or key.split(".")[0] not in (SECTION, TUNED, *OLD_SECTIONS):
            others.append(str(override.input_line))
        elif key != TUNED and "." not in key and isinstance(value := override.value(), dict):
            changes += [(f"{key}.{name}", each) for name, each in value.items()]
        else:
            changes.append((f"{key}.{TARGET}" if key == SECTION else key, override.value()))
    return changes, others


def _choose_algorithm(
    plain: dict[str, Any], changes: list[Change], path: Path
) -> tuple[DictConfig, list[dict[str, Any]], list[Change]]:
    """The section of the algorithm that is chosen, as its class has it, and what changes it, the weakest first: what
    suits the world, what the file says, what the overrides say. Takes the sections out of ``plain``.
    """
    written = plain.pop(SECTION)
    written = {TARGET: written} if not isinstance(written, dict) else written
    of_file = find_algorithm(written.get(TARGET) or OLD_SECTIONS[0])
    asked = [value for key, value in changes if key == f"{SECTION}.{TARGET}"]
    kind = find_algorithm(asked[-1]) if asked else of_file
    if kind is not of_file:  # of what was written for another, only the discount, or what was meant for all
        shared = {"gamma"} if written.get(TARGET) else {each.name for each in dataclasses.fields(AlgorithmConfig)}
        written = {name: value for name, value in written.items() if name in shared}
    section = OmegaConf.structured(kind.config_class)
    own = {**written, TARGET: class_path(kind)}
    plain[TUNED] = _suiting(plain[TUNED], changes, path)
    suiting = [row for name, row in plain[TUNED].items() if find_algorithm(str(name)) is kind]
    layers = [*suiting, own, *_old_layers(plain, kind.name, path)]
    named = [change for change in changes if change[0] != f"{SECTION}.{TARGET}"]
    return section, layers, [change for each in named for change in _current(each, kind.name)]


def _suiting(rows: Any, changes: list[Change], path: Path) -> dict[str, dict[str, Any]]:
    """What suits the world, by algorithm, with what overrides change of it."""
    tuned = OmegaConf.create({TUNED: rows})
    for key, value in changes:
        if key.split(".")[0] == TUNED:
            OmegaConf.update(tuned, key, value)
    plain: Any = OmegaConf.to_container(tuned)
    rows = plain[TUNED]
    sections = {TUNED: rows}
    sections |= {f"{TUNED}.{name}": row for name, row in rows.items()} if isinstance(rows, dict) else {}
    for key, section in sections.items():
        if not isinstance(section, dict):
            raise ValueError(f"configuration {path.stem}: {key} is {section}: give keys, such as {TUNED}.ppo.gamma.")
    return rows


def _old_layers(plain: dict[str, Any], chosen: str, path: Path) -> Iterator[dict[str, Any]]:
    """What a file of the last release says in the sections that each algorithm had of its own."""
    old = {name: plain.pop(name) for name in OLD_SECTIONS}
    for name, said in old.items():
        if said is not None and not isinstance(said, dict):
            raise ValueError(f"configuration {path.stem}: {name} is {said}: give its keys under {SECTION}.")
    if any(old.values()):
        logger.warning("%s has sections of the last release: what was under %s is under %s now", path, chosen, SECTION)
    discount = (old[OLD_SECTIONS[0]] or {}).get("gamma")  # that of the first was everybody's
    yield {} if discount is None else {"gamma": discount}
    yield old.get(chosen) or {}


def _current(change: Change, chosen: str) -> Iterator[Change]:
    """A change by its present key; none if it is of an algorithm that does not learn."""
    key, value = change
    section, _, name = key.partition(".")
    if section == SECTION:
        yield change
    if section in (SECTION, TUNED):
        return
    if not name:
        raise ValueError(f"{key} is {value}: give a key of it, such as {SECTION}.gamma.")
    logger.warning("%s is called %s.%s now", key, SECTION, name)
    if section == chosen or (section, name) == (OLD_SECTIONS[0], "gamma"):
        yield f"{SECTION}.{name}", value


# --- errors ----------------------------------------------------------------------------------------------------------


@contextmanager
def _one_sentence(path: Path, schema: DictConfig | None = None) -> Iterator[None]:
    """Whatever Hydra raises, told in a sentence that names the key."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML ({' '.join(str(error).split())}): mend that place.") from None
    except (HydraException, OmegaConfBaseException, OverflowError) as error:
        raise ValueError(f"configuration {path.stem}: {_sentence(error, schema)}") from None


def _sentence(error: BaseException, schema: DictConfig | None) -> str:
    """An error of Hydra, with its causes, as one sentence that names the key."""
    parts: list[str] = []
    key = meant = ""
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause)
        match = re.search(r"full_key: (\S+)", text)
        key = key or (match[1] if match else "")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().endswith(":")]
        part = lines[0].split("To append")[0].strip().rstrip(".") if lines else ""
        parts += [part] if part and part not in parts else []
        meant = meant or _meant(cause)
        cause = cause.__cause__
    sentence = ": ".join(parts)
    for name in map(str, schema or ()):  # a section replaced by something else is named by its class only
        kind = OmegaConf.get_type(schema, name)
        key = key or (name if dataclasses.is_dataclass(kind) and kind.__name__ in sentence else "")
    where = f" (key {key})" if key not in sentence else ""
    return f"{sentence}{where}{meant}; see 'torchrl-agent configs NAME' for the keys."


def _meant(error: BaseException) -> str:
    """A question after the key that an unknown one is most like."""
    unknown, section = getattr(error, "key", None), getattr(error, "parent_node", None)
    names = [str(name) for name in section] if isinstance(section, DictConfig) else []
    if not isinstance(unknown, str) or unknown in names:
        return ""
    return "".join(f" (did you mean {name}?)" for name in difflib.get_close_matches(unknown, names, 1))
