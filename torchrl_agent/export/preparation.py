"""Transforms of a world's observations inside an exported program, so that its inputs are what the world gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase, TensorDictSequential
from tensordict.utils import NestedKey
from torchrl.envs import Compose, EnvBase, ObservationNorm, Transform

from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.world_making import TRANSFORMS, transform_arguments, with_transforms
from torchrl_agent.export.parts import Part

WITHOUT_STATE = (
    *("CatTensors", "CenterCrop", "Crop", "DTypeCastTransform", "DoubleToFloat", "FlattenObservation", "GrayScale"),
    *("ObservationNorm", "PermuteTransform", "Resize", "SqueezeTransform", "ToTensorImage", "UnsqueezeTransform"),
)
"""Transforms of TorchRL that compute an observation from observations of the same step alone."""


class Preparation(TensorDictModuleBase):
    """Transforms of observations [B, ...] as a module, of the keys that the first of them to read a key finds."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        super().__init__()
        self.transforms = Compose(*(each.clone() for each in transforms)).eval()  # clones belong to no environment
        for each in self.transforms.transforms:
            if isinstance(each, ObservationNorm):  # an exporter cannot branch on a tensor
                standard = bool(each.standard_normal)
                del each.standard_normal
                each.standard_normal = standard
        read: dict[NestedKey, None] = {}
        written: dict[NestedKey, None] = {}
        for each in transforms:
            read |= {key: None for key in each.in_keys if key not in written}
            written |= dict.fromkeys(each.out_keys)
        self.in_keys, self.out_keys = list(read), list(written)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the transformed observations."""
        return self.transforms(tensordict)


def prepared(found: dict[str, Part], experiment: Experiment) -> tuple[dict[str, Part], Experiment]:
    """Put a world's last transforms of observations into the parts that read what they write.

    A transform with a state, such as a stack of frames, stays with the world, and with it all that comes earlier; so do
    those of worlds of several agents. The world model reads what perception gives, and stays as it is.

    Returns:
        the parts, and the experiment whose evaluation world gives their inputs.
    """
    listed = {**experiment.world, **experiment.evaluation.world}.get(TRANSFORMS, ())
    kept = len(listed)
    while kept and transform_arguments(listed[kept - 1])[0] in WITHOUT_STATE:
        kept -= 1
    if kept == len(listed):
        return found, experiment
    evaluation = replace(experiment.evaluation, world={**experiment.evaluation.world, TRANSFORMS: listed[:kept]})
    outside = replace(experiment, evaluation=evaluation)
    env = outside.make_world(evaluation=True, num_envs=2)
    spec, transforms = env.observation_spec, []
    for each in listed[kept:]:
        env = with_transforms(env, [each], evaluation=True)
        transforms.append(_last(env))
    env.close()
    preparation = Preparation(transforms)
    if any(isinstance(key, tuple) for key in preparation.in_keys):
        return found, experiment
    examples = {key: spec[key].zero() for key in preparation.in_keys}
    for name, part in found.items():
        if name != "world_model" and not set(part.module.in_keys).isdisjoint(preparation.out_keys):
            module = TensorDictSequential(preparation, part.module)
            found[name] = replace(part, module=module, examples={**part.examples, **examples})
    return found, outside


def _last(env: EnvBase) -> Transform:
    """Return the outermost transform of an environment."""
    transform = env.transform
    while isinstance(transform, Compose):
        transform = transform[-1]
    return transform
