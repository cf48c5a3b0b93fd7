"""Composition of configurations by Hydra: YAML files and overrides."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import json
import logging
import re
from collections.abc import Iterator, Sequence
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

from torchrl_agent.algorithms.ppo import PPOConfig
from torchrl_agent.core.progress import log
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.experiment import world_rules
from torchrl_agent.experiment.algorithm_section import SECTION, TUNED, choose_algorithm, separate
from torchrl_agent.experiment.config_files import SCHEMA, SUFFIXES, ConfigFiles, read_keys, read_text
from torchrl_agent.experiment.overrides import Override, field_hints, fitted, hint_at, inner_hint, values_of
from torchrl_agent.trust import check, record
from torchrl_agent.trust.targets import CALL

logger = logging.getLogger(__name__)

_INSTALLED = Path(__file__).resolve().parents[1] / "configs"
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else _INSTALLED.parents[1] / "configs"
"""The project's configurations: inside the package where it is installed, beside it in a clone."""

GIVEN = "given_file"
"""Hydra's name for the file that is read, whatever its own name is."""


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
            world_rules.unknown_prefix(str(config))
            or f"there is no configuration {str(config)!r}{did_you_mean(config, config_names())}: 'torchrl-agent "
            "configs' lists them, and the path of a YAML file will do as well, or a world such as gym:Hopper-v5. A "
            "level of a world is chosen by world.level=NAME."
        )
    return path


@dataclass
class ConfigFile:
    """A configuration, as it was read."""

    path: Path
    text: str
    ours: bool
    """True if it comes with the project."""
    trusted: bool
    """True if it may name any code and any file."""

    @functools.cached_property
    def content(self) -> DictConfig:
        """Content of the file, without its bases."""
        with _one_sentence(self.path):
            return read_keys(self.text, self.path, dict)


def read_config(config: Any, trust: bool = False, overrides: Sequence[str] = ()) -> ConfigFile:
    """A configuration, given by its name or its path; trusted if it is ours, was recorded, or ``trust`` says so. That
    of a world, such as ``gym:Hopper-v5``, is made by rules, which are logged.

    Args:
        config: its name or path, or a world, by name or as an object of Python's.
        trust: True if it may name any code and any file.
        overrides: overrides that the rules take into account.

    Raises:
        ValueError: there is none, it is no YAML, or it asks for other files without being trusted.
    """
    if world_rules.is_world(config):
        text, rules = world_rules.configuration(config, overrides, trust or CALL.get().trust)
        for rule in rules:
            log.info("rule: %s", rule)
        given = trust or not isinstance(config, str)
        return ConfigFile(CONFIGS / "world.yaml", text, ours=True, trusted=given)
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


@functools.cache
def _structured(root: type) -> DictConfig:
    """The schema of a configuration, of which users make copies."""
    return OmegaConf.structured(root)


def compose_experiment(file: ConfigFile, overrides: Sequence[str], root: type, weaker: Sequence[str] = ()) -> Any:
    """The configuration in a file, with overrides: all keys of the root class, and under ``algorithm`` those of its
    class.

    Args:
        file: as :func:`read_config` gives it.
        overrides: such as ``seed=1`` or ``algorithm.gamma=0.9``.
        root: a dataclass whose fields are what a file may hold.
        weaker: overrides applied before those, from the file itself.

    Raises:
        ValueError: the file does not begin with the schema; an unknown key, a value of the wrong type, or something
            that needs trust, which the sentence names.
    """
    path, schema = file.path, _structured(root)
    with _one_sentence(path, schema):
        (own, own_others), (asked, others) = separate(weaker), separate(overrides)
        loaded = _composed(file, [*own_others, *others], schema, root)
        plain: Any = OmegaConf.to_container(loaded)
        given = {place for override in others for place in _places(override, root)}
        check.check(check.in_words(plain), path, file.trusted, given)
        check.check(check.in_words({check.ON_CUDA: dict(own)}), path, file.trusted)
        check.check(check.in_words({check.ON_CUDA: dict(asked)}), path, trusted=True)
        section, layers, changes = choose_algorithm(plain, [*own, *asked], path)
        if _has_new_keys(plain, root):
            OmegaConf.merge(schema, plain)  # raises an error that names the key
        experiment: Any = loaded
        experiment[TUNED], experiment[SECTION] = plain[TUNED], section
        for layer in layers:
            OmegaConf.update(experiment, SECTION, fitted(layer, OmegaConf.get_type(section), SECTION))
        for key, value in changes:
            hint, _ = hint_at(OmegaConf.get_type(section), key.partition(".")[2])
            OmegaConf.update(experiment, key, fitted(value, hint, key))
        result: Any = OmegaConf.to_object(experiment)
        check.check(check.in_targets(dataclasses.asdict(result)), path, file.trusted, given)
        return result


def _has_new_keys(values: Any, hint: Any) -> bool:
    """True if a section that is not open holds a key that its class lacks: an override may bring one."""
    if not isinstance(values, dict):
        return False
    hints = field_hints(hint)
    if hints and not values.keys() <= hints.keys():
        return True
    return any(_has_new_keys(value, hints.get(name, inner_hint(hint))) for name, value in values.items())


def _composed(file: ConfigFile, overrides: Sequence[Override], schema: DictConfig, root: type) -> DictConfig:
    """Compose a file with its bases by Hydra, and apply overrides. A file begins with one of ours (such as ``defaults:
    [arena, _self_]``) or, if it is trusted, with one beside it.
    """
    ours = [each for each in overrides if each.key.split(".")[0] in list(schema)]  # the rest are Hydra's
    words = tuple(each.word for each in overrides if each not in ours)
    if file.trusted and not file.ours:  # its bases may be its owner's files
        loaded = _by_hydra(file.text, file.path, True, words, root)
    else:
        ages = tuple(path.stat().st_mtime_ns for path in sorted(CONFIGS.rglob("*.yaml")))
        beside = file.trusted and file.path.exists()
        loaded = copy.deepcopy(_by_hydra_once(file.text, file.path, beside, words, root, ages))
    if OmegaConf.get_type(loaded) is not root:
        raise ValueError(
            f"configuration {file.path.stem} is not an experiment: begin it with 'defaults: [{SCHEMA}, _self_]'."
        )
    for override in ours:
        _apply(loaded, override, root)
    return loaded


def _by_hydra(text: str, path: Path, trusted: bool, words: tuple[str, ...], root: type) -> DictConfig:
    """Compose a file, its bases and the overrides in Hydra's own grammar."""
    Plugins.instance().register(ConfigFiles)
    GlobalHydra.instance().clear()
    store = ConfigStore.instance()
    store.store(SCHEMA, _structured(root))
    store.store(GIVEN, read_keys(text, path, root))
    places = [path.resolve(), CONFIGS] if trusted else [CONFIGS]
    search = json.dumps([f"{ConfigFiles.scheme()}://{place.as_posix()}" for place in places], ensure_ascii=False)
    with initialize(version_base="1.3", config_path=None):
        return compose(GIVEN, [f"hydra.searchpath={search}", *words])


@functools.lru_cache(maxsize=64)
def _by_hydra_once(
    text: str, path: Path, trusted: bool, words: tuple[str, ...], root: type, ages: tuple[int, ...]
) -> DictConfig:
    """The same from a cache, as it takes most of a load; valid while our configurations are as old as ``ages``."""
    return _by_hydra(text, path, trusted, words, root)


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """Overrides of every training of a sweep: the Cartesian product of the values that they list, as in ``seed=0,1``,
    ``choice(0,1)`` or ``range(0,2)``. The last override changes fastest.

    Raises:
        ValueError: an override does not follow the grammar, or its values cannot be listed.
    """
    return [list(each) for each in itertools.product(*map(values_of, overrides))]


def _places(override: Override, root: type) -> set[str]:
    """Dotted keys that an override sets."""
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


# --- errors ----------------------------------------------------------------------------------------------------------


@contextmanager
def _one_sentence(path: Path, schema: DictConfig | None = None) -> Iterator[None]:
    """Turn any error of Hydra into one sentence that names the key."""
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
    """Suggestion of the known key that is most similar to an unknown one: of its section, or of PPO at the top."""
    unknown, section = getattr(error, "key", None), getattr(error, "parent_node", None)
    if not isinstance(unknown, str) or not isinstance(section, DictConfig):
        return ""
    names = [str(name) for name in section]
    if section._get_parent() is None:
        names += [f"{SECTION}.{name}" for name in field_hints(PPOConfig)]
    return "" if unknown in names else did_you_mean(unknown, names)
