"""Normalization statistics of Stable-Baselines3's ``VecNormalize``."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchrl_agent.transforms import STATISTICS, read_statistics

EPSILON = 1e-8
"""Constant that both libraries add to a variance."""


@dataclass(frozen=True)
class Normalization:
    """Settings of ``VecNormalize``, with statistics by this project's names (``transforms.STATISTICS``)."""

    statistics: dict[str, Any]
    observations: bool = False
    rewards: bool = False
    clip_observations: float = 10.0
    clip_rewards: float = 10.0
    gamma: float | None = None


def read_normalization(path: Path, trust: bool) -> Normalization:
    """Read statistics from a file: this project's JSON, or a trusted pickle of ``VecNormalize.save``.

    Raises:
        ValueError: the file is missing, damaged or not trusted, or its normalization is not supported.
    """
    if not path.is_file():
        raise ValueError(f"there is no statistics file {path}: give what VecNormalize.save wrote, or our JSON.")
    if path.suffix == ".json":
        found = read_statistics(path)
        _check_names(path, found)
        # a count of 0 means never updated, as in checkpoints of runs that do not normalize
        return Normalization(found, bool(found.get("obs_count")), bool(found.get("ret_count")))
    if not trust:
        raise ValueError(
            f"{path} is a pickle, and reading a pickle executes whatever its author put into it: add --trust if you "
            "know where it comes from, or give its numbers as JSON (docs/stable_baselines3.md)."
        )
    return _understand(path, _unpickle(path))


def _check_names(path: Path, found: dict[str, Any]) -> None:
    """Raise ValueError unless the statistics of observations, of returns, or of both are complete."""
    given = {name.split("_")[0] for name in found} & {"obs", "ret"} or {"obs"}
    missing = [name for name in STATISTICS if name.split("_")[0] in given and name not in found]
    if missing:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}: give mean, var and count of whatever VecNormalize normalized."
        )


def _unpickle(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return pickle.load(file)  # the user has consented
    except ImportError as error:
        raise ValueError(
            f'{path} needs {error.name or "a package"} to be read: pip install "torchrl-agent[sb3]".'
        ) from None
    except Exception as error:  # a damaged pickle raises anything
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is no file of VecNormalize ({reason}): give what VecNormalize.save wrote.") from None


def _understand(path: Path, found: Any) -> Normalization:
    if type(found).__name__ != "VecNormalize":
        raise ValueError(f"{path} holds a {type(found).__name__}: give what VecNormalize.save wrote.")
    if (found.norm_obs or found.norm_reward) and found.epsilon != EPSILON:
        raise ValueError(f"{path} was made with epsilon={found.epsilon}: only {EPSILON}, the default, is supported.")
    several = found.norm_obs and isinstance(found.obs_rms, dict)
    if several and set(found.obs_rms) != set(found.observation_space.spaces):
        raise ValueError(f"{path} normalizes some of the observations (norm_obs_keys): ours normalize all or none.")
    parts = {"obs": found.obs_rms if found.norm_obs else None, "ret": found.ret_rms if found.norm_reward else None}
    statistics = {
        f"{name}_{field}": _by_key(running, field) if isinstance(running, dict) else _plain(getattr(running, field))
        for name, running in parts.items()
        if running is not None
        for field in ("mean", "var", "count")
    }
    return Normalization(
        statistics, found.norm_obs, found.norm_reward, found.clip_obs, found.clip_reward, float(found.gamma)
    )


def _plain(value: Any) -> Any:
    return torch.as_tensor(value, dtype=torch.float64).tolist()


def _by_key(running: dict[str, Any], field: str) -> Any:
    """Statistics of several observations by name; their counts are one."""
    found = {key: _plain(getattr(each, field)) for key, each in running.items()}
    return next(iter(found.values())) if field == "count" else found


def joined(statistics: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return statistics with those of several observations side by side, in the order of their ``names``."""
    return {
        name: [each for key in names for each in value[key]] if isinstance(value, dict) else value
        for name, value in statistics.items()
    }


def apart(statistics: dict[str, Any], sizes: dict[str, int]) -> dict[str, dict[str, Any]]:
    """Return the statistics of each observation, of joined ones with these sizes by name."""
    result, begin = {}, 0
    for key, size in sizes.items():
        fields = {name: statistics[name][begin : begin + size] for name in ("obs_mean", "obs_var")}
        result[key] = {**fields, "obs_count": statistics["obs_count"]}
        begin += size
    return result
