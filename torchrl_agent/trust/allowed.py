"""Targets that any configuration may name, by the section that names them. Each builds an object from numbers, words
and other such objects; none runs a file, imports a module by its name, or writes. See ``docs/security.md``.
"""

from __future__ import annotations

import re

_WRAPPERS = (
    "envs.libs.gymnasium.VectorGymEnv",
    "envs.libs.pettingzoo.VectorPettingZooEnv",
    "envs.libs.vmas.VectorVmasEnv",
)
_GAMES = (
    f"envs.{module}{game.capitalize()}Env"
    for game in ("arena", "duel", "growth", "town")
    for module in ("", f"{game}.", f"{game}.env.")
)
_TORCHRL_WORLDS = (
    *("BraxEnv", "DMControlEnv", "GymEnv", "JumanjiEnv", "PendulumEnv", "PettingZooEnv", "TicTacToeEnv", "VmasEnv"),
    *("ParallelEnv", "SerialEnv", "TransformedEnv"),
)
TRANSFORM_NAMES = (
    *("CenterCrop", "Crop", "GrayScale", "PermuteTransform", "Resize", "TimeMaxPool", "ToTensorImage"),
    *("BinarizeReward", "LineariseRewards", "RewardClipping", "RewardScaling", "RewardSum", "TargetReturn"),
    *("CatFrames", "CatTensors", "FlattenObservation", "ObservationNorm", "SqueezeTransform", "UnsqueezeTransform"),
    *("ClipTransform", "DTypeCastTransform", "DoubleToFloat", "SignTransform", "VecNorm"),
    *("ActionMask", "DiscreteActionProjection", "FrameSkipTransform", "NoopResetEnv"),
    *("ExcludeTransform", "RemoveEmptySpecs", "RenameTransform", "SelectTransform", "TensorDictPrimer"),
    *("Compose", "FiniteTensorDictCheck", "InitTracker", "StepCounter"),
)
"""Transforms of TorchRL whose arguments are numbers and words."""
_LAYERS = (
    *("Identity", "Flatten", "Unflatten", "Sequential", "ModuleList", "ModuleDict"),
    *("Linear", "Bilinear", "Embedding", "EmbeddingBag"),
    *(f"{kind}{size}d" for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm") for size in (1, 2, 3)),
    *(f"{kind}Pool{size}d" for kind in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg") for size in (1, 2, 3)),
    *("GroupNorm", "LayerNorm", "RMSNorm", "LocalResponseNorm", "Dropout", "Dropout1d", "Dropout2d", "AlphaDropout"),
    *("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell", "MultiheadAttention"),
    *("Transformer", "TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder", "TransformerDecoderLayer"),
    *("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "GLU", "Tanh", "Sigmoid"),
    *("Softplus", "Softsign", "Hardtanh", "Hardswish", "Hardsigmoid", "Softmax", "LogSoftmax", "Tanhshrink"),
    *("Upsample", "PixelShuffle", "PixelUnshuffle", "ZeroPad2d", "ConstantPad2d", "ReflectionPad2d"),
)

WORLDS = {*_GAMES, *_WRAPPERS, *(f"torchrl.envs.{name}" for name in (*_TORCHRL_WORLDS, *TRANSFORM_NAMES))}
MODULES = {f"torch.nn.{name}" for name in _LAYERS}
_LEARNERS = ("PPO", "A2C", "IMPALA", "DQN", "SAC", "TD3")
ALGORITHMS = {f"torchrl_agent.algorithms.{name.lower()}.{name}" for name in _LEARNERS}
TARGETS: dict[tuple[str, ...], set[str]] = {
    ("world",): WORLDS,
    ("evaluation", "world"): WORLDS,
    ("model", "perception", "encoders"): MODULES,
    ("model", "custom_modules"): MODULES,
    ("algorithm",): ALGORITHMS,
    ("tuned",): ALGORITHMS,
}
"""Targets by the section of a configuration in which they are allowed; elsewhere none is."""

ARGUMENTS = {
    "module": re.compile(r"(pettingzoo|mpe2)(\.\w+)+"),  # which is imported
    "scenario": re.compile(r"\w+(/\w+)*"),  # VMAS runs the file of that name
}
"""Patterns of the words that worlds may be given under these names."""
ANY_ARGUMENT = re.compile(r"[^:]*|cuda:\d+|popgym:[^:]*", re.DOTALL)
"""Pattern of the words that worlds may be given under other names: Gymnasium imports the module before a colon."""


def allowed_targets(place: tuple[str, ...]) -> set[str]:
    """Return the targets that are allowed at a place, such as ``("world", "rules", "_target_")``."""
    return next((names for section, names in TARGETS.items() if place[: len(section)] == section), set())
