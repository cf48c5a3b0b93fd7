"""Updates as one program each: small networks cost a CPU more Python, and a GPU more launches, than arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.envs.utils import set_exploration_type
from torchrl.modules import set_recurrent_mode
from typing_extensions import override

from torchrl_agent.core import ranks
from torchrl_agent.optimization.adam import LEAST_FUSED, FlatAdam, FusedAdam, TracedAdam, is_plain_adam
from torchrl_agent.optimization.tracing import TracedFunction
from torchrl_agent.optimization.updater import DETERMINISTIC, Updater


class TracedUpdater(Updater):
    """An updater that traces its whole update, with the optimizer's arithmetic written out (:class:`FlatAdam`) or, for
    all but small agents on a CPU, as one operator (:class:`FusedAdam`).

    Args:
        args, options: see :class:`~torchrl_agent.optimization.updater.Updater`.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options, compile=False)
        fused = self.device.type == "cpu" and sum(each.numel() for each in self.parameters) >= LEAST_FUSED
        self.adam: TracedAdam = (
            FusedAdam(self.optimizer, self._clip_gradients)
            if fused
            else FlatAdam(self.optimizer, self.parts, self.module_names, self.max_grad_norm)
        )
        self.program = TracedFunction("the update", self._update_at_once, True)
        self._names: list[str] = []

    @override
    def updates(self, minibatches: Iterable[TensorDictBase]) -> TensorDict:
        """Make an update with each minibatch; returns their diagnostics, [updates, ...]."""
        if self.adaptive is not None:
            return super().updates(minibatches)
        results = [self.program(minibatch) for minibatch in minibatches]
        scalars = torch.stack([scalars for scalars, _ in results]).unbind(1)
        others = {name: torch.stack([rest[name] for _, rest in results]) for name in results[0][1]}
        return TensorDict({**dict(zip(self._names, scalars, strict=True)), **others}, [len(results)])

    @override
    def update(self, minibatch: TensorDictBase) -> TensorDict:
        """Make one optimizer step, as the base class does."""
        scalars, others = self.program(minibatch)
        return TensorDict({**dict(zip(self._names, scalars.unbind(), strict=True)), **others})

    def _update_at_once(self, minibatch: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Make the update as one function of tensors; returns scalar diagnostics, by the names that it notes, and those
        of other shapes.
        """
        modes = set_exploration_type(DETERMINISTIC), set_recurrent_mode(minibatch.ndim == 2)
        with torch.enable_grad():
            with self.autocast(), modes[0], modes[1]:
                total, metrics = self.terms(minibatch)
            gradients = torch.autograd.grad(total, self.adam.parameters, allow_unused=True)
        with torch.no_grad():
            wanted = total.isfinite()
            if self.wanted is not None:
                wanted = wanted & self.wanted(metrics)
            norms, made = self.adam.step(gradients, wanted)
            bad = ~(total.isfinite() & norms["grad_norm"].isfinite())
            found = {**metrics, "loss": total.detach(), **norms, **self._count(made, bad)}
            scalars = {name: value.float() for name, value in found.items() if value.ndim == 0}
            self._names = list(scalars)
            return torch.stack(list(scalars.values())), {k: value for k, value in found.items() if value.ndim}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`."""
        super().load_state_dict(state)
        self.adam.take_moments()


def make_updater(
    loss: Callable[[TensorDictBase], TensorDictBase],
    optimizer: torch.optim.Optimizer,
    *args: Any,
    compile: bool,
    traced: bool,
    shards: Sequence[nn.Parameter] = (),
    precision: str = "float32",
    **options: Any,
) -> Updater:
    """Make an updater that compiles its loss, or its whole update where that can be ``traced``: on one rank, with Adam
    of :func:`~torchrl_agent.optimization.adam.make_adam` and without gradient scaling.
    """
    plain = ranks.size() == 1 and not shards and precision != "float16"
    if compile and traced and plain and is_plain_adam(optimizer):
        return TracedUpdater(loss, optimizer, *args, precision=precision, **options)
    return Updater(loss, optimizer, *args, shards=shards, precision=precision, compile=compile, **options)
