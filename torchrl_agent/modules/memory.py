"""Memory: what an agent carries from one step to the next (recurrent states, a goal), and recurrent networks that use
it.

A policy with memory reads its states from the tensordict, where ``is_init`` marks the first step of an episode, and
writes the following ones under ``"next"``. :class:`RecurrentState` is the transform that hands them on, so any TorchRL
loop over ``agent.attach(env)`` runs with memory.
"""

from __future__ import annotations

import inspect
import logging
import math

import torch
from tensordict import TensorDictBase
from tensordict.utils import expand_right
from torch import Tensor, nn
from torchrl.data import Categorical, Composite, TensorSpec, Unbounded
from torchrl.envs.transforms import Transform
from torchrl.modules import GRUModule, LSTMModule

from torchrl_agent.core import keys
from torchrl_agent.modules.networks import orthogonal

if torch.__version__ < (2, 13):  # 2.11 always prints the graphs of every scan
    from torch._higher_order_ops.partitioner import logger as scan_logger

    scan_logger.setLevel(logging.WARNING)

KINDS = ("none", "gru", "lstm")
"""Kinds of memory of a policy."""
FORGET_BIAS = 1.0
"""Initial bias of an LSTM's forget gate, so that it begins by keeping its state (Jozefowicz et al. 2015)."""


class RecurrentState(Transform):
    """Transform that hands an agent's states on from step to step, and resets them to zero with every episode.

    Args:
        specs: specs of one agent's states by key, without batch dimensions.
        group: key of the agents' tensordict in a world of several, else None.
    """

    keeps_ends = True
    """Episodes end with it where they end without it (see ``envs/base/transformed.py``)."""

    def __init__(self, specs: dict[str, TensorSpec], group: str | None) -> None:
        super().__init__()
        self.specs, self.group = specs, group

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        """Add the states and ``is_init`` to the agent's observations."""
        inner = observation_spec if self.group is None else observation_spec[self.group]
        shape = inner.shape
        inner[keys.IS_INIT] = Categorical(2, shape=(*shape, 1), dtype=torch.bool, device=inner.device)
        for key, spec in self.specs.items():
            inner[key] = spec.expand(*shape, *spec.shape).clone().to(inner.device)
        return observation_spec

    def transform_input_spec(self, input_spec: Composite) -> Composite:
        """Add the states to the inputs of a partial reset, which needs them to keep the other rows' memory."""
        state = input_spec["full_state_spec"]
        if state is None:
            input_spec["full_state_spec"] = state = Composite(shape=input_spec.shape, device=input_spec.device)
        shape = self.parent.full_action_spec[self.parent.action_key].shape[: 1 if self.group is None else 2]
        specs = {
            key: spec.expand(*shape, *spec.shape).clone().to(input_spec.device) for key, spec in self.specs.items()
        }
        if self.group is None:
            for key, spec in specs.items():
                state[key] = spec
        else:
            state[self.group] = Composite(specs, shape=shape, device=input_spec.device)
        return input_spec

    def _reset(self, tensordict: TensorDictBase, tensordict_reset: TensorDictBase) -> TensorDictBase:
        inner = self._inner(tensordict_reset)
        reset = None if tensordict is None else tensordict.get("_reset", None)
        old = self._inner(tensordict) if reset is not None else None
        begins = torch.ones(*inner.shape, 1, dtype=torch.bool, device=inner.device)
        if reset is not None and old is not None:
            begins = begins & reset.reshape(-1, *[1] * len(inner.shape))
        inner.set(keys.IS_INIT, begins)
        for key, spec in self.specs.items():
            fresh = torch.zeros(*inner.shape, *spec.shape, dtype=spec.dtype, device=inner.device)
            before = None if old is None else old.get(key, None)
            new = fresh if before is None else torch.where(expand_right(begins, fresh.shape), fresh, before)
            inner.set(key, new)
        return tensordict_reset

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        now, following = self._inner(tensordict), self._inner(next_tensordict)
        following.set(keys.IS_INIT, torch.zeros(*following.shape, 1, dtype=torch.bool, device=following.device))
        for key in self.specs:
            if following.get(key, None) is None:  # a policy without this memory acted: nothing has changed
                following.set(key, now.get(key))
        return next_tensordict

    def _inner(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict if self.group is None else tensordict.get(self.group)


class GRU(GRUModule):
    """TorchRL's GRU without device synchronization, compiled as one graph and exportable for any number of worlds."""

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """One step [...], or with TorchRL's ``set_recurrent_mode(True)`` sequences [B, T]."""
        if self.recurrent_mode and torch.compiler.is_compiling():
            return _GRU_SCAN(self, tensordict)
        return _remember(self, self.gru, tensordict)


class LSTM(LSTMModule):
    """TorchRL's LSTM, with the same properties as :class:`GRU`."""

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """One step [...], or with TorchRL's ``set_recurrent_mode(True)`` sequences [B, T]."""
        if self.recurrent_mode and torch.compiler.is_compiling():
            return super().forward(tensordict)
        return _remember(self, self.lstm, tensordict)


_GRU_SCAN = inspect.unwrap(GRUModule.forward)  # without a decorator that sets an environment variable


def _remember(module: GRU | LSTM, network: nn.Module, tensordict: TensorDictBase) -> TensorDictBase:
    """Run one step, or all steps of sequences one after the other. Where an episode begins a step starts from 0, and a
    sequence, as TorchRL's do, from the states recorded there: a replay that cuts sequences marks their first frames as
    beginnings too.

    TorchRL's eager code for sequences synchronizes with the device to read the episodes' lengths, and takes 1.0 to 1.8
    times as long on a CPU; the numbers are the same.
    """
    value = tensordict.get(module.in_keys[0])
    state_keys = [key for key in module.in_keys[1:] if key != keys.IS_INIT]
    shape, before = value.shape[:-1], [tensordict.get(key) for key in state_keys]
    steps = shape[-1] if module.recurrent_mode else 1
    value = value.reshape(-1, steps, value.shape[-1])
    begins = tensordict.get(keys.IS_INIT).reshape(-1, steps, 1)
    recorded = [state.reshape(-1, steps, state.shape[-1]) for state in before]
    states = [state[:, 0].unsqueeze(0) for state in recorded]  # [1, rows, size], as the network takes them
    outs, history = [], []
    for step in range(steps):
        starts = [state[:, step].unsqueeze(0) if module.recurrent_mode else 0.0 for state in recorded]
        begin = begins[:, step].unsqueeze(0)
        states = [torch.where(begin, start, state) for start, state in zip(starts, states, strict=True)]
        out, following = network(value[:, step : step + 1], states[0] if len(states) == 1 else tuple(states))
        states = [following] if len(states) == 1 else list(following)
        outs.append(out)
        history.append([state.squeeze(0) for state in states])
    tensordict.set(module.out_keys[0], torch.cat(outs, 1).reshape(*shape, -1))
    for key, reached, like in zip(module.out_keys[1:], zip(*history, strict=True), before, strict=True):
        tensordict.set(key, torch.stack(reached, 1).reshape(like.shape))
    return tensordict


class AssociativeMemory(nn.Module):
    """Recall of moments like this one: the mean of all values written since the memory began, each weighted by the
    similarity of its key to the query and by the gate at its writing.

    Linear attention as a recurrent network (Katharopoulos et al. 2020, section 3.4; the feature map is a softmax, and
    a gate is learned besides). A GRU learns how to store each content that it meets; retrieval here does not depend on
    the content, so contents that were met only in parts are remembered, too.

    Args:
        width: M, size of input and of output.
        keys: K, number of moments that can be distinguished.
    """

    VALUE_SIZE = 16
    """V, size of a value."""
    SHUT = -2.0
    """Initial bias of the gate: little is written."""
    LEAST = 1e-3
    """Added to the sum of weights, so that a memory that was hardly written to recalls nothing."""

    def __init__(self, width: int, keys: int) -> None:
        super().__init__()
        self.keys = keys
        self.key, self.query = nn.Linear(width, keys), nn.Linear(width, keys)
        self.value, self.gate = nn.Linear(width, self.VALUE_SIZE), nn.Linear(width, 1)
        self.out = nn.Linear(self.VALUE_SIZE, width)
        for layer in (self.key, self.query, self.value, self.out):
            orthogonal(layer, math.sqrt(2))
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, self.SHUT)

    @property
    def size(self) -> int:
        """Size of a state, K * (V + 1): for each key the sum of values, and of their weights."""
        return self.keys * (self.VALUE_SIZE + 1)

    def forward(
        self, features: Tensor, seen: Tensor, begins: Tensor, before: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Write this step, then read.

        Args:
            features: [..., T, M].
            seen: True where there is something to write, bool [..., T, 1].
            begins: True where the memory begins with this step, bool [..., T, 1].
            before: states before each step, [..., T, K * (V + 1)]; the first step's and those of beginnings are read.

        Returns:
            output [..., T, M], the states after each step, and the inputs of :meth:`shares`, which attributes the
            output to steps: each step's query, and the weights under which it was written, [..., T, K].
        """
        value = self.value(features).float()
        value = torch.cat((value, torch.ones_like(value[..., :1])), -1)
        weight = self.key(features).float().softmax(-1) * self.gate(features).float().sigmoid() * seen
        written = (weight.unsqueeze(-1) * value.unsqueeze(-2)).flatten(-2)
        # the state before the latest beginning, and all that was written since
        total = written.cumsum(-2)
        step = torch.arange(features.shape[-2], device=features.device)
        latest = torch.where(begins.squeeze(-1), step, 0).cummax(-1).values.unsqueeze(-1).expand_as(total)
        state = total + (before - total + written).gather(-2, latest)
        query = self.query(features).float().softmax(-1)
        found = (query.unsqueeze(-1) * state.unflatten(-1, (self.keys, -1))).sum(-2)
        read = found[..., :-1] / (found[..., -1:] + self.LEAST)
        return self.out(read.to(features.dtype)), state, query, weight

    @classmethod
    def shares(cls, query: Tensor, written: Tensor) -> Tensor:
        """Fractions [..., T] of a query's [..., K] output that come from each step since the memory began, from weights
        [..., T, K]; they sum to 1, or to less where hardly anything was written.
        """
        alike = (written @ query.unsqueeze(-1)).squeeze(-1)
        return alike / (alike.sum(-1, keepdim=True) + cls.LEAST)


def check_states(tensordict: TensorDictBase, specs: dict[str, TensorSpec], batch: torch.Size) -> None:
    """Raise ValueError if a state is missing, or has not the shape of the batch."""
    for key, spec in specs.items():
        state, expected = tensordict.get(key, None), (*batch, *spec.shape)
        if state is None or state.shape != expected:
            found = "is missing" if state is None else f"has shape {tuple(state.shape)}"
            raise ValueError(
                f"the memory {key!r} {found} where observations of {tuple(batch)} rows are seen: give it the shape "
                f"{expected}, as agent.attach(env).reset() does."
            )


def recurrence(
    kind: str, width: int, size: int, in_key: str, out_key: str, device: torch.device | None = None
) -> tuple[GRU | LSTM, dict[str, TensorSpec]]:
    """Make a recurrent network with orthogonal weights, and the specs of its states by key.

    Args:
        kind: ``gru`` or ``lstm``.
        width: size of its input.
        size: size of its output, and of each state.
        in_key: key that it reads besides its states and ``is_init``.
        out_key: key that it writes besides ``("next", state)``.
    """
    names = [keys.HIDDEN] if kind == "gru" else [keys.HIDDEN, keys.CELL]
    module = (GRU if kind == "gru" else LSTM)(
        input_size=width,
        hidden_size=size,
        in_keys=[in_key, *names],
        out_keys=[out_key, *((keys.NEXT, name) for name in names)],
        python_based=True,  # the other kind cannot be traced
        recurrent_backend="scan",  # checks now, before anything is traced, that scans work on this device
        device=device,
    )
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.zeros_(parameter)
        else:
            for gate in parameter.data.split(size):
                nn.init.orthogonal_(gate)
        if kind == "lstm" and "bias_ih" in name:
            parameter.data[size : 2 * size].fill_(FORGET_BIAS)
    return module, {name: Unbounded((1, size)) for name in names}


def try_scan(device: torch.device) -> None:
    """Let TorchRL check whether compiled code can scan sequences on a device, and cache the answer. It does so when the
    first recurrent network is made, but the check fails where a dispatch mode is active.
    """
    recurrence("gru", 1, 1, "value", "out", device)
