"""YAML files of configurations, read as they are written: a text stays a text, whatever YAML would make of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf
from omegaconf._utils import get_yaml_loader
from typing_extensions import override

from torchrl_agent.core.checkpoint import write_text
from torchrl_agent.core.run_names import CONFIG
from torchrl_agent.experiment.overrides import field_hints, fitted, inner_hint, is_text
from torchrl_agent.trust import check, record

if TYPE_CHECKING:
    from torchrl_agent.experiment import Experiment

SCHEMA = "experiment_schema"
SUFFIXES = (".yaml", ".yml")
_TEXT, _NULL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null"


def read_text(path: Path) -> str:
    """The text of a YAML file, which is within the limits of ``envs/toolkit/plain_yaml.py``.

    Raises:
        ValueError: it cannot be read, is not YAML, or is beyond a limit; the sentence names it.
    """
    from envs.toolkit import plain_yaml  # later than experiment.py says whether ``envs`` is this project's

    return plain_yaml.read_text(path)


def read_keys(text: str, path: Path, root: type) -> DictConfig:
    """The keys in a YAML file.

    Args:
        root: the dataclass whose fields it may give: where one is a text, so is ``3.10`` or ``1e5`` in the file.

    Raises:
        yaml.YAMLError: the file is not YAML.
        ValueError: it holds something other than keys.
    """
    loader = get_yaml_loader()(text)
    try:
        node = loader.get_single_node()
        if node is not None:
            _keep_texts(node, root)
        keys = {} if node is None else loader.construct_document(node)
    finally:
        loader.dispose()
    if not isinstance(keys, dict):
        raise ValueError(f"{path} holds {keys}: give keys, such as 'defaults: [{SCHEMA}, _self_]'.")
    return OmegaConf.create(fitted(keys, root, ""))


def _keep_texts(node: yaml.Node, hint: Any) -> None:
    """Mark scalars as texts where the field is one."""
    if isinstance(node, yaml.ScalarNode):
        if is_text(hint) and node.tag != _NULL:
            node.tag = _TEXT
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _keep_texts(each, inner_hint(hint))
    else:
        hints = field_hints(hint)
        for key, each in node.value:
            _keep_texts(each, hints.get(key.value, inner_hint(hint)))


class ConfigFiles(ConfigSource):
    """Hydra's source of the files in one folder. If the path is that of a file, this file is hidden, so that it may
    have the name of the configuration that it begins with.
    """

    def __init__(self, provider: str, path: str) -> None:
        super().__init__(provider, path)
        given = Path(self.path)
        self._hidden = given if given.is_file() else None
        self._folder = given if self._hidden is None else given.parent

    @staticmethod
    @override
    def scheme() -> str:
        """Prefix of its paths."""
        return "experiment"

    @override
    def load_config(self, config_path: str) -> ConfigResult:
        """Keys of a file, and the header for Hydra in its first lines."""
        file = self._file(config_path)
        if file is None:
            raise ConfigLoadError(f"there is no {config_path} in {self._folder}")
        root: Any = OmegaConf.get_type(ConfigStore.instance().load(f"{SCHEMA}.yaml").node)
        text = read_text(file)
        header = self._get_header_dict(text[:512])
        return ConfigResult(self.provider, self.full_path(), read_keys(text, file, root), header)

    @override
    def available(self) -> bool:
        """True if the folder exists."""
        return self._folder.is_dir()

    @override
    def is_group(self, config_path: str) -> bool:
        """True if it has a folder of this name."""
        return (self._folder / config_path).is_dir()

    @override
    def is_config(self, config_path: str) -> bool:
        """True if it has a file of this name."""
        return self._file(config_path) is not None

    @override
    def list(self, config_path: str, results_filter: Any) -> list[str]:
        """Names of files and folders in one of its folders."""
        found: list[str] = []
        for each in (self._folder / config_path).iterdir():
            self._list_add_result(found, f"{config_path}/{each.name}", each.name, results_filter)
        return sorted(set(found))

    def _file(self, name: str) -> Path | None:
        names = [name] if name.endswith(SUFFIXES) else [f"{name}{suffix}" for suffix in SUFFIXES]
        files = (self._folder / each for each in names)
        return next((each for each in files if each.is_file() and each != self._hidden), None)


def write_config(experiment: Experiment, folder: Path) -> None:
    """Write ``config.yaml`` and, if it needs one, a record that it is trusted: who trains has trusted it already."""
    path, text = folder / CONFIG, experiment.to_yaml()
    write_text(path, text)
    plain = dataclasses.asdict(experiment)
    if any(check.in_words(plain)) or any(check.in_targets(plain)):
        record.record(text, path)
