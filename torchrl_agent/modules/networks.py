"""Plain networks with the initialization that suits PPO."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.modules import MLP

from torchrl_agent.core import keys

NEARLY_SHUT = 0.1
"""Initial gate of a module's output among the controller's features."""
ACTIVATIONS = {"silu": nn.SiLU, "relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "gelu": nn.GELU}


def mlp(width: int, out: int, hidden: Sequence[int], activation: str, gain: float = math.sqrt(2)) -> nn.Sequential:
    """A multi-layer perceptron with orthogonal weights (gain sqrt(2) inside, ``gain`` at the end) and zero biases."""
    network = MLP(width, out, num_cells=list(hidden), depth=len(hidden), activation_class=ACTIVATIONS[activation])
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    for layer in layers:
        orthogonal(layer, gain if layer is layers[-1] else math.sqrt(2))
    return network


def add_layer_norms(module: nn.Module, custom: Collection[nn.Module] = ()) -> None:
    """Insert a layer normalization (Ba et al. 2016) between every linear layer and the activation after it, except in
    ``custom`` modules.
    """
    for network in [each for each in module.modules() if isinstance(each, nn.Sequential) and each not in custom]:
        for index, (layer, following) in reversed(list(enumerate(pairwise(network)))):
            if isinstance(layer, nn.Linear) and isinstance(following, tuple(ACTIVATIONS.values())):
                network.insert(index + 1, nn.LayerNorm(layer.out_features, device=layer.weight.device))


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    """Orthogonal weights and zero biases (Saxe et al. 2014)."""
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def channels_last(picture: Tensor) -> Tensor:
    """Return the same pictures [B, C, H, W] with the channels of a pixel side by side in memory. ``torch.vmap`` knows
    no memory formats, so it is written as two permutations.
    """
    return picture.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


class PictureEncoder(nn.Module):
    """Convolutions over a picture [..., C, H, W] that has been flattened to [..., C * H * W]; gives [..., out]."""

    network: nn.Module
    channels_last = False
    """True to read pictures with the channels last on CUDA, as tensor cores do."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, flat: Tensor) -> Tensor:
        """Features of the picture."""
        picture = flat.reshape(-1, *self.shape)
        if self.channels_last and flat.device.type == "cuda":
            picture = channels_last(picture)
        return self.network(picture).reshape(*flat.shape[:-1], -1)


class ConvEncoder(PictureEncoder):
    """Convolutions that keep the resolution of small pictures (such as a window of 5 x 5 cells), and halve large ones
    down to 8 cells or less.
    """

    def __init__(self, shape: Sequence[int], out: int, channels: int, activation: str) -> None:
        super().__init__(shape)
        depth, height, width = self.shape
        layers: list[nn.Module] = []
        while max(height, width) > 8:
            layers += [nn.Conv2d(depth, channels, 4, stride=2, padding=1), ACTIVATIONS[activation]()]
            depth, height, width = channels, height // 2, width // 2
        layers += [nn.Conv2d(depth, channels, 3, padding=1), ACTIVATIONS[activation](), nn.Flatten()]
        self.network = nn.Sequential(*layers, mlp(channels * height * width, out, [], activation))
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                orthogonal(layer, math.sqrt(2))


class NatureEncoder(PictureEncoder):
    """The convolutions of Mnih et al. 2015 ("Human-level control through deep reinforcement learning", Methods), for
    pictures whose sides have at least 36 pixels; the fully connected layer behind them has the requested size.
    """

    def __init__(self, shape: Sequence[int], out: int, activation: str) -> None:
        super().__init__(shape)
        if min(shape[-2:]) < 36:
            raise ValueError(f"a picture of shape {self.shape} is too small for the encoder 'nature': use cnn.")
        layers: list[nn.Module] = []
        depth, *sides = self.shape
        for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            layers += [nn.Conv2d(depth, channels, kernel, stride), ACTIVATIONS[activation]()]
            orthogonal(layers[-2], math.sqrt(2))
            depth, sides = channels, [(side - kernel) // stride + 1 for side in sides]
        self.network = nn.Sequential(*layers, nn.Flatten(), mlp(depth * math.prod(sides), out, [], activation))


class ImpalaEncoder(PictureEncoder):
    """The deep convolutions of Espeholt et al. 2018 ("IMPALA", figure 3): three stages of a convolution, a pooling that
    halves the picture and two residual blocks; the fully connected layer behind them has the requested size.
    """

    def __init__(self, shape: Sequence[int], out: int, activation: str) -> None:
        super().__init__(shape)
        layers: list[nn.Module] = []
        depth, *sides = self.shape
        for channels in (16, 32, 32):
            layers += [nn.Conv2d(depth, channels, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
            layers += [Residual(channels, activation), Residual(channels, activation)]
            depth, sides = channels, [(side + 1) // 2 for side in sides]
        layers += [ACTIVATIONS[activation](), nn.Flatten()]
        self.network = nn.Sequential(*layers, mlp(depth * math.prod(sides), out, [], activation))


class Residual(nn.Module):
    """Two convolutions whose output is added to their input (He et al. 2016, figure 4e)."""

    def __init__(self, channels: int, activation: str) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)]
        self.network = nn.Sequential(*(part for each in convolutions for part in (ACTIVATIONS[activation](), each)))

    def forward(self, picture: Tensor) -> Tensor:
        """Return the picture [B, C, H, W] plus the convolutions' output."""
        return picture + self.network(picture)


class Attention(nn.Module):
    """Attention over the other agents: scaled dot products of one query with a key of each (Vaswani et al. 2017,
    section 3.2.1), whatever their number and order.

    Args:
        width: size of the query's input.
        size: size of each key's input, and of a key.
    """

    def __init__(self, width: int, size: int) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(width, size), nn.Linear(size, size, bias=False)
        orthogonal(self.query, 1.0)
        orthogonal(self.key, 1.0)

    def forward(self, believed: Tensor, each: Tensor, visible: Tensor) -> Tensor:
        """Weights [..., V], which sum to 1 over the ``visible`` [..., V] and are 0 elsewhere, of a belief [..., width]
        and features of others [..., V, size].
        """
        score = (self.key(each) * self.query(believed).unsqueeze(-2)).sum(-1).float() / math.sqrt(each.shape[-1])
        score = torch.where(visible, score, torch.finfo(score.dtype).min)
        return torch.where(visible, score.softmax(-1), 0.0)


def one_hot_actions(action: Tensor, heads: Sequence[int]) -> Tensor:
    """Discrete actions, [...] of one head or [..., heads] of several, as one-hot choices side by side."""
    parts = [action] if len(heads) == 1 else action.unbind(-1)
    return torch.cat([F.one_hot(part, size) for part, size in zip(parts, heads, strict=True)], -1).float()


def first_head(action: Tensor, heads: Sequence[int]) -> Tensor:
    """The first choice [...] of discrete actions, [...] of one head or [..., heads] of several."""
    return action if len(heads) == 1 else action[..., 0]


def have_later(sequences: Tensor, ahead: int) -> Tensor:
    """Mask of frames of ``sequences`` [B, T, ...] that have another one ``ahead`` steps later, bool [T]."""
    steps = sequences.shape[1]
    return torch.arange(steps, device=sequences.device) < steps - ahead


def symlog(value: Tensor) -> Tensor:
    """``sign(x) log(1 + |x|)``: compresses large numbers (Hafner et al. 2023, section 3)."""
    return value.sign() * torch.log1p(value.abs())


def symexp(value: Tensor) -> Tensor:
    """Inverse of :func:`symlog`."""
    return value.sign() * torch.expm1(value.abs())


class GatedConcat(TensorDictModuleBase):
    """Concatenates the controller's inputs into ``features``: the belief as it is, and the other modules' outputs
    behind gates that are nearly shut at first, so that untrained modules do not disturb (after Alayrac et al. 2022,
    section 2.2).
    """

    def __init__(self, sizes: dict[NestedKey, int]) -> None:
        super().__init__()
        self.in_keys, self.out_keys, self.size = list(sizes), [keys.FEATURES], sum(sizes.values())
        self.gates = nn.Parameter(torch.full((len(sizes) - 1,), NEARLY_SHUT))

    def open_gate(self, key: NestedKey) -> None:
        """Open the gate of the input under a key, if it has one."""
        if key in self.in_keys[1:]:
            self.gates.data[self.in_keys.index(key) - 1] = 1.0

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        belief, *added = (tensordict.get(key) for key in self.in_keys)
        gated = [self.gates[index] * part for index, part in enumerate(added)]  # none may be added
        return tensordict.set(keys.FEATURES, torch.cat([belief, *gated], -1))


class ConcatMLP(nn.Module):
    """A network that reads several tensors side by side."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *parts: Tensor) -> Tensor:
        return self.network(torch.cat(parts, -1))
