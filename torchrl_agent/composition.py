"""Configurations put together: YAML files and overrides by Hydra, the algorithm's section by its class."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from torchrl_agent.config_files import SCHEMA, SUFFIXES, ConfigFiles, read_keys, read_text
from torchrl_agent.names import did_you_mean
from torchrl_agent.overrides import Override, fitted, hint_at, parse_override, values_of
from torchrl_agent.training.algorithm import AlgorithmConfig
from torchrl_agent.training.algorithms import class_path, find_algorithm
from torchrl_agent.trust import check, record
from torchrl_agent.trust.targets import CALL

logger = logging.getLogger(__name__)

_INSTALLED = Path(__file__).resolve().parent / "configs"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "configs"
"""The project's configurations: inside the package where it is installed, beside it in a clone."""
SECTION, TARGET, TUNED = "algorithm", "_target_", "tuned"
OLD_SECTIONS = ("ppo", "a2c", "impala", "dqn")
"""Sections that the algorithms of the last release had of their own, such as ``ppo.gamma``."""

GIVEN = "given_file"
"""Hydra's name of the file that is read, whatever it is called."""

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
    if path.suffix not in SUFFIXES:
        path = CONFIGS / f"{config}.yaml"
    if not path.is_file():
        raise ValueError(
            f"there is no configuration {str(config)!r}{did_you_mean(config, config_names())}: 'torchrl-agent configs' "
            "lists them, and the path of a YAML file will do as well. A level of a world is chosen by world.level=NAME."
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
            return read_keys(self.text, self.path, dict)


def read_config(config: str | Path, trust: bool = False) -> ConfigFile:
    """A configuration, given by its name or its path; trusted if it is ours, was recorded, or ``trust`` says so.

    Raises:
        ValueError: there is none, it is no YAML, or it asks for other files without being trusted.
    """
    path = config_file(config)
    text = read_text(path)
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
    path, root = file.path, OmegaConf.get_type(schema)
    assert root is not None
    with _one_sentence(path, schema):
        (own, own_others), (asked, others) = _separate(weaker), _separate(overrides)
        loaded = _composed(file, [*own_others, *others], schema, root)
        plain: Any = OmegaConf.to_container(loaded)
        given = {place for override in others for place in _places(override, root)}
        check.check(check.in_words(plain), path, file.trusted, given)
        check.check(check.in_words({check.ON_CUDA: dict(own)}), path, file.trusted)
        check.check(check.in_words({check.ON_CUDA: dict(asked)}), path, trusted=True)
        section, layers, changes = _choose_algorithm(plain, [*own, *asked], path)
        # merging once more refuses keys that are new in a section that is not open
        experiment: Any = OmegaConf.merge(schema, plain)
        experiment[SECTION] = section
        for layer in layers:
            OmegaConf.update(experiment, SECTION, fitted(layer, OmegaConf.get_type(section), SECTION))
        for key, value in changes:
            hint, _ = hint_at(OmegaConf.get_type(section), key.partition(".")[2])
            OmegaConf.update(experiment, key, fitted(value, hint, key))
        result: Any = OmegaConf.to_object(experiment)
        check.check(check.in_targets(dataclasses.asdict(result)), path, file.trusted, given)
        return result


def _composed(file: ConfigFile, overrides: Sequence[Override], schema: DictConfig, root: type) -> DictConfig:
    """A file on its bases, by Hydra, with overrides. A file begins with one of ours (``defaults: [arena, _self_]``) or,
    if it is trusted, with one beside it.
    """
    Plugins.instance().register(ConfigFiles)
    GlobalHydra.instance().clear()
    store = ConfigStore.instance()
    store.store(SCHEMA, schema)
    store.store(GIVEN, read_keys(file.text, file.path, root))
    places = [file.path.resolve(), CONFIGS] if file.trusted else [CONFIGS]
    search = json.dumps([f"{ConfigFiles.scheme()}://{place.as_posix()}" for place in places], ensure_ascii=False)
    ours = [each for each in overrides if each.key.split(".")[0] in list(schema)]  # the rest are Hydra's
    with initialize(version_base="1.3", config_path=None):
        words = [each.word for each in overrides if each not in ours]
        loaded = compose(GIVEN, [f"hydra.searchpath={search}", *words])
    if OmegaConf.get_type(loaded) is not root:
        raise ValueError(_not_an_experiment(file.path))
    for override in ours:
        _apply(loaded, override, root)
    return loaded


def _not_an_experiment(path: Path) -> str:
    return f"configuration {path.stem} is not an experiment: begin it with 'defaults: [{SCHEMA}, _self_]'."


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """Overrides of every training of a sweep: the Cartesian product of the values that they list, as in ``seed=0,1``,
    ``choice(0,1)`` or ``range(0,2)``. The last override changes fastest.

    Raises:
        ValueError: an override does not follow the grammar, or its values cannot be listed.
    """
    return [list(each) for each in itertools.product(*map(values_of, overrides))]


def _places(override: Override, root: type) -> set[str]:
    """Dotted places that an override gives a value."""
    if override.value is None:
        return set()
    value = fitted(override.value, hint_at(root, override.key)[0], override.key)
    return {".".join(place) for place, _ in check.leaves(value, (override.key,))}


def _apply(loaded: DictConfig, override: Override, root: type) -> None:
    """Change a configuration in place."""
    key, name = override.key, override.key.rpartition(".")[2]
    if override.value is not None:
        hint, is_open = hint_at(root, key)
        value = fitted(override.value, hint, key)
        OmegaConf.update(loaded, key, value, force_add=is_open or isinstance(value, dict))
        return
    section = OmegaConf.select(loaded, key.rpartition(".")[0]) if "." in key else None
    if section is None or OmegaConf.get_type(section) is not dict:
        raise ValueError(f"{key} cannot be taken away: give it a value, such as {key}=VALUE.")
    if name not in section:
        raise ValueError(f"{override.word} takes nothing away: there is no {key}{did_you_mean(name, section)}.")
    with open_dict(section):
        del section[name]


# --- the algorithm's section -----------------------------------------------------------------------------------------


def _separate(words: Iterable[str]) -> tuple[list[Change], list[Override]]:
    """Overrides of the algorithm, and the others."""
    changes: list[Change] = []
    others = []
    for override in map(parse_override, words):
        key, value = override.key, override.value
        if value is None or key.split(".")[0] not in (SECTION, TUNED, *OLD_SECTIONS):
            others.append(override)
        elif "." in key or key == TUNED:
            changes.append((key, fitted(value, Any, key) if value.startswith("{") else value))
        else:
            read = fitted(value, Any, key)
            given = read if isinstance(read, dict) else {TARGET if key == SECTION else "": read}
            changes += [(f"{key}.{name}".rstrip("."), each) for name, each in given.items()]
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
    kind = find_algorithm(fitted(asked[-1], str, SECTION)) if asked else of_file
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
        section, _, rest = key.partition(".")
        if section == TUNED:
            name, _, inner = rest.partition(".")
            hint = hint_at(find_algorithm(name).config_class, inner)[0] if inner else Any
            OmegaConf.update(tuned, key, fitted(value, hint, key))
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
        raise ValueError(f"{path} is not YAML ({' '.join(str(error).split())}): fix that place.") from None
    except RecursionError:
        raise ValueError(
            f"configuration {path.stem} begins with one that begins with it: change its defaults."
        ) from None
    except OverrideParseException as error:
        key = error.override.partition("=")[0]
        raise ValueError(f"{error.override}: there is no key {key}{did_you_mean(key, list(schema or ()))}.") from None
    except (HydraException, OmegaConfBaseException, OverflowError) as error:
        raise ValueError(f"configuration {path.stem}: {_sentence(error, schema, path)}") from None


def _sentence(error: BaseException, schema: DictConfig | None, path: Path) -> str:
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
    sentence = ": ".join(parts).replace(GIVEN, path.stem)
    for name in map(str, schema or ()):  # a section replaced by something else is named by its class only
        kind = OmegaConf.get_type(schema, name)
        key = key or (name if dataclasses.is_dataclass(kind) and kind.__name__ in sentence else "")
    where = f" (key {key})" if key not in sentence else ""
    return f"{sentence}{where}{meant}; see 'torchrl-agent configs NAME' for the keys."


def _meant(error: BaseException) -> str:
    """A question after the key that an unknown one is most like."""
    unknown, section = getattr(error, "key", None), getattr(error, "parent_node", None)
    names = [str(name) for name in section] if isinstance(section, DictConfig) else []
    return "" if not isinstance(unknown, str) or unknown in names else did_you_mean(unknown, names)
