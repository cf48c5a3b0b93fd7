"""Checks that a model of Stable-Baselines3 is of a kind that this project has too."""

from __future__ import annotations

import re

import torch

from torchrl_agent.convert import layout
from torchrl_agent.convert.archive import Archive, understanding
from torchrl_agent.convert.layout import DEFAULT_ACTIVATIONS, NETWORKS, SUPPORTED
from torchrl_agent.modules.networks import ACTIVATIONS


def check_archive(archive: Archive) -> None:
    """Raise ValueError naming what of a model cannot be converted."""
    with understanding(archive.path):
        for name, value in archive.policy.items():
            if not value.is_floating_point() or not bool(value.isfinite().all()):
                raise ValueError(f"{archive.path} holds no finite numbers in {name}: save the model again.")
        _check_policy(archive)
        _check_spaces(archive)


def _check_policy(archive: Archive) -> None:
    """Raise ValueError naming the part of the policy that cannot be converted."""
    foreign = layout.foreign_part(archive.algorithm, list(archive.policy))
    if foreign is not None:
        raise ValueError(f"{archive.path} holds {foreign}: {SUPPORTED}.")
    if archive.algorithm == "A2C" and "batch_size" in archive.data:  # an A2C has none
        raise ValueError(f"{archive.path} was trained by an algorithm that looks like A2C but is not: {SUPPORTED}.")
    extractor = policy_text(archive, "features_extractor_class")
    if not any(known in str(extractor) for known in ("None", "FlattenExtractor", "NatureCNN", "CombinedExtractor")):
        raise ValueError(f"{archive.path} has the features extractor {extractor}: {SUPPORTED}.")
    if policy_text(archive, "normalize_images") == "False":
        raise ValueError(f"{archive.path} sees bytes as they are (normalize_images=False), ours divide them by 255.")
    for name in archive.policy:
        if name.startswith(layout.EXTRACTORS) and not torch.equal(archive.policy[name], archive.policy[name[3:]]):
            raise ValueError(
                f"{archive.path} has two features extractors (share_features_extractor=False), ours share one."
            )
    if archive.algorithm in layout.SQUASHED and not any("qf1." in name for name in archive.policy):
        raise ValueError(f"{archive.path} has one network of action values (n_critics=1, or a DDPG): ours are two.")
    if archive.algorithm in layout.SQUASHED and len(archive.layers("value")[-1][1]) > 1:
        raise ValueError(f"{archive.path} holds quantiles of action values (a TQC): {SUPPORTED}.")
    if any(f"{memory}bias_hh_l0" not in archive.policy for memory in archive.memories):
        raise ValueError(f"{archive.path} has an LSTM without biases (lstm_kwargs): ours have them.")


def _check_spaces(archive: Archive) -> None:
    """Raise ValueError naming the space that cannot be converted."""
    observed, chosen = (archive.space(name) for name in ("observation_space", "action_space"))
    for name, kind in (("observation_space", observed), ("action_space", chosen)):
        if not kind:
            raise ValueError(
                f"{archive.path} does not say what its {name} is: save the model again with its environment."
            )
    shapes, pictures = archive.observations, archive.embedding_size is not None
    listed = str(archive.data["observation_space"].get("spaces"))
    complete = observed == "Box" or (observed == "Dict" and listed.count("': ") == len(shapes) > 0)
    if not complete or any(len(shape) not in ((1, 3) if pictures else (1,)) for shape in shapes.values()):
        what = listed if observed == "Dict" else archive.data["observation_space"].get("_shape")
        raise ValueError(f"{archive.path} sees a {observed} of shape {what}: {SUPPORTED}.")
    actions, log_std = archive.layers("policy")[-1][1].shape, archive.policy.get("log_std")
    if bool(archive.data.get("use_sde")) or (log_std is not None and log_std.shape != actions):
        raise ValueError(f"{archive.path} explores by state (use_sde=True): {SUPPORTED}.")
    continuous = archive.action_size is not None
    fits = chosen == "Box" if continuous else chosen in ("Discrete", "MultiDiscrete")
    if not fits or (not continuous and sum(archive.heads) != actions[0]):
        raise ValueError(f"{archive.path} acts in a space of kind {chosen}: {SUPPORTED}.")


def policy_text(archive: Archive, name: str) -> str | None:
    """Return the readable text of one of ``policy_kwargs``; None if it was not given."""
    arguments = archive.data.get("policy_kwargs") or {}
    return str(arguments[name]) if isinstance(arguments, dict) and name in arguments else None


def find_activation(archive: Archive, asked: str | None) -> tuple[str, str]:
    """Return the name of the activation function, and the source of that knowledge.

    Raises:
        ValueError: this project lacks the function, or it contradicts the requested one.
    """
    pictures = archive.embedding_size is not None
    if pictures and not any(archive.hidden_sizes(network) for network in NETWORKS[archive.algorithm]):
        return "relu", "that of its convolutions"
    name, source = _named_activation(archive, asked)
    if pictures and name != "relu":
        raise ValueError(
            f"{archive.path} has convolutions with relu before layers with {name}, ours have one function for all: "
            "train it with activation_fn=ReLU, or with net_arch=[]."
        )
    return name, source


def _named_activation(archive: Archive, asked: str | None) -> tuple[str, str]:
    text = policy_text(archive, "activation_fn")
    known = {kind.__name__: name for name, kind in ACTIVATIONS.items()}
    found = None if text is None else re.search(r"torch\.nn\.modules\.activation\.(\w+)'>$", text)
    if text is None:
        default = "Stable-Baselines3's default, as policy_kwargs name no other: assumed"
        return (asked, "as asked for") if asked else (DEFAULT_ACTIVATIONS[archive.algorithm], default)
    name = known.get(found[1]) if found else None
    if name is None and (found or not asked):
        raise ValueError(
            f"{archive.path} has the activation function {text}: ours are {', '.join(ACTIVATIONS)}"
            f"{'' if found else '; name one of them with --activation if it is the same'}."
        )
    if name is None:
        return str(asked), f"as asked for, policy_kwargs only say {text}"
    if asked not in (None, name):
        raise ValueError(f"{archive.path} was trained with activation {name}, not {asked}: leave --activation out.")
    return name, "named in policy_kwargs"
