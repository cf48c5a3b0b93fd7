"""Gradient steps: a loss, its backward pass, clipping, and an optimizer step that is skipped where loss or gradient is
not finite. All of it is decided on the device, so that it can be part of a CUDA graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import set_recurrent_mode

from torchrl_agent.core import ranks
from torchrl_agent.core.errors import TrainingError
from torchrl_agent.optimization.compilation import CompiledFunction
from torchrl_agent.optimization.precision import PRECISIONS
from torchrl_agent.optimization.schedules import AdaptiveRate
from torchrl_agent.optimization.sharding import own, take_gradients, whole

DETERMINISTIC = ExplorationType.DETERMINISTIC
SKIPS_BEFORE_HALT = 3
EXTREMES = ("max_", "min_")
"""Prefixes of the names of diagnostics that are extremes, not means."""
OWN_OPTIONS = ("lr", "fused", "foreach", "capturable", "weight_decay", "decoupled_weight_decay")
"""Options of the optimizer that this device and the configuration set, not a checkpoint."""


class NonFiniteError(TrainingError):
    """The loss or its gradient was not finite in several updates in a row, or a rollout was not.

    Args:
        message: one sentence.
        culprits: keys of the entries of a rollout that were not finite.
    """

    def __init__(self, message: str, culprits: Sequence[tuple[str, ...]] = ()) -> None:
        super().__init__(message)
        self.culprits = list(culprits)


class Updater:
    """Makes gradient steps on a loss; owns optimizer, precision, gradient scaler and the counters of skipped updates.

    Args:
        loss: function from a minibatch, frames [B] or sequences [B, T], to ``loss_*``, whose sum is minimized, and
            diagnostics.
        optimizer: optimizer of the parameters that learn; its learning rate is a tensor where the device allows it.
        parts: groups of parameters, the gradient of each clipped by its own norm.
        module_names: name of each parameter's module, for the gradient norms that are reported.
        max_grad_norm: largest gradient norm of a group.
        precision: one of ``PRECISIONS``: autocast, with gradient scaling in float16.
        shards: sharded parameters, of which the optimizer has this rank's own shards (see ``sharding.py``).
        compile: compile the loss, and its backward pass with it.
        name: name of the loss, for the log.

    Attributes:
        loss: the sum of the ``loss_*`` and the detached diagnostics of a minibatch, perhaps compiled.
        parameters: parameters of the optimizer.
        fused: True if the optimizer is fused, so that it can skip a step without a device sync.
        autocast: precision in which the networks act and learn, as a context.
        wanted: function of the loss's diagnostics, True to make this update (bool [] on the device); None makes all.
        adaptive: factor of the learning rate that follows the ``kl`` of each of the :meth:`updates`, or None.
        program: the function that may be compiled: the loss, or the whole update.
    """

    def __init__(
        self,
        loss: Callable[[TensorDictBase], TensorDictBase],
        optimizer: torch.optim.Optimizer,
        parts: Sequence[Sequence[nn.Parameter]],
        module_names: Mapping[nn.Parameter, str],
        *,
        max_grad_norm: float,
        shards: Sequence[nn.Parameter] = (),
        precision: str = "float32",
        compile: bool = False,
        name: str = "the loss",
    ) -> None:
        self.program = CompiledFunction(name, self.terms, compile)
        self._terms_of, self.loss = loss, self.program.call
        self.optimizer, self.max_grad_norm = optimizer, max_grad_norm
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.parts, self.module_names, self.shards = list(parts), module_names, list(shards)
        self._in_parts = {own(parameter) for parameter in shards}
        self._shared = ranks.size() > 1
        self.device = self.parameters[0].device
        self.fused = bool(optimizer.defaults.get("fused"))
        self.precision, dtype = precision, PRECISIONS[precision]
        self.autocast: Callable[[], AbstractContextManager] = (
            nullcontext if dtype is None else partial(torch.autocast, self.device.type, dtype)
        )
        self.grad_scaler = torch.amp.GradScaler(self.device.type, enabled=precision == "float16")
        self.skips_in_row = torch.zeros((), device=self.device)
        self.most_skips_in_row = torch.zeros((), device=self.device)
        self.wanted: Callable[[dict[str, Tensor]], Tensor] | None = None
        self.adaptive: AdaptiveRate | None = None

    def begin(self, learning_rate: float | Tensor) -> None:
        """Set the learning rate, and reset the largest number of updates skipped in a row."""
        if self.adaptive is not None:
            learning_rate = learning_rate * self.adaptive.factor
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)  # its place is in compiled code and graphs
            else:
                group["lr"] = float(learning_rate)
        self.most_skips_in_row.zero_()

    def updates(self, minibatches: Iterable[TensorDictBase]) -> TensorDict:
        """Make an :meth:`update` with each minibatch; returns their diagnostics, [updates, ...]."""
        history = []
        for minibatch in minibatches:
            history.append(self.update(minibatch))
            if self.adaptive is not None:
                self._scale_rate(self.adaptive.follow(history[-1]["kl"]))
        updates = torch.stack(history)
        return self._extremes_of_all_ranks(updates) if self._shared else updates

    def update(self, minibatch: TensorDictBase) -> TensorDict:
        """Make one optimizer step, skipped where loss or gradient is not finite or it is not :attr:`wanted`; returns
        the loss's diagnostics, ``loss`` (the sum of ``loss_*``), ``grad_norm``, and ``made`` and ``skipped`` (1 or 0),
        all scalars.
        """
        self.optimizer.zero_grad(set_to_none=True)
        # set here, outside, the modes are the same in every call of compiled code; set inside, they would change for it
        with self.autocast(), set_exploration_type(DETERMINISTIC), set_recurrent_mode(minibatch.ndim == 2):
            total, metrics = self.loss(minibatch)
        self.grad_scaler.scale(total).backward()
        loss = total.detach()
        if self.shards:
            take_gradients(self.shards)
        if self._shared:
            loss, metrics = self._of_all_ranks(loss, metrics)
        self.grad_scaler.unscale_(self.optimizer)
        learning = [parameter for part in self.parts for parameter in part]
        norms = self._clip_gradients({each: each.grad for each in learning if each.grad is not None})

        loss_finite, norm_finite = loss.isfinite(), norms["grad_norm"].isfinite()
        # gradients that are scaled up may overflow, and the scaler then halves its scale; get_scale() would wait
        scaled_up = self.grad_scaler.scale(torch.ones_like(self.skips_in_row)) > 1
        bad = ~loss_finite | (~norm_finite & ~scaled_up)
        made = loss_finite & norm_finite
        if self.wanted is not None:
            made = made & self.wanted(metrics)
        self._apply_gradients(~made)
        return TensorDict({**metrics, "loss": loss, **norms, **self._count(made, bad)})

    def terms(self, minibatch: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Sum of the ``loss_*`` of a minibatch, and its detached diagnostics, which is what is compiled.

        Raises:
            ValueError: the loss gives no ``loss_*``.
        """
        losses = self._terms_of(minibatch)
        metrics = {key: value.detach() for key, value in losses.items()}
        total = sum(value for key, value in losses.items() if key.startswith("loss_"))
        if not isinstance(total, Tensor):
            raise ValueError(
                f"the algorithm's loss gives {', '.join(metrics) or 'nothing'}: let its forward return a TensorDict "
                "with at least one loss_*, such as loss_objective, which is minimized."
            )
        return total, metrics

    def _clip_gradients(self, gradients: Mapping[nn.Parameter, Tensor]) -> dict[str, Tensor]:
        """Clip the gradients of each group in place by the group's own norm, as large ones would otherwise scale down
        the others; returns the norms before clipping: ``grad_norm`` of all and ``grad_norm/<module>`` of each module.
        """
        norms = dict(zip(gradients, torch._foreach_norm(list(gradients.values())), strict=True))
        if self.shards:
            norms |= self._whole_norms(norms)
        of_parts, of_modules = [], defaultdict(list)
        for part in self.parts:
            learning = [parameter for parameter in part if parameter in norms]
            if not learning:
                continue
            of_parts.append(torch.linalg.vector_norm(torch.stack([norms[parameter] for parameter in learning])))
            factor = (self.max_grad_norm / (of_parts[-1] + 1e-6)).clamp_max(1.0)  # as PyTorch clips ``.grad``
            torch._foreach_mul_([gradients[parameter] for parameter in learning], factor)
        for parameter, norm in norms.items():
            of_modules[self.module_names[parameter]].append(norm)
        named = {f"grad_norm/{name}": torch.linalg.vector_norm(torch.stack(each)) for name, each in of_modules.items()}
        return {"grad_norm": torch.stack(of_parts).norm(), **named}

    def _apply_gradients(self, skip: Tensor) -> None:
        """Make one optimizer step, which changes nothing where ``skip`` (bool []) is True."""
        if self.fused:
            self.optimizer.found_inf = skip.float()  # where it is 1, fused Adam leaves weights, moments and steps alone
            self.optimizer.step()
        else:
            before = [each.clone() for each in self._optimized()]
            self.optimizer.step()
            now = self._optimized()
            before += [torch.zeros_like(each) for each in now[len(before) :]]  # moments that the first step has made
            for each, old in zip(now, before, strict=True):
                each.copy_(torch.where(skip.to(each.device), old, each))
        self.grad_scaler.update()

    def _count(self, made: Tensor, bad: Tensor) -> dict[str, Tensor]:
        """Count updates that were ``made`` and ``bad`` ones, whose loss or gradient is not finite, bool [] each."""
        self.skips_in_row.copy_(torch.where(bad, self.skips_in_row + 1, 0.0))
        self.most_skips_in_row.copy_(torch.maximum(self.most_skips_in_row, self.skips_in_row))
        return {"made": made.float(), "skipped": bad.float(), "skipped_in_row": self.most_skips_in_row.clone()}

    def _scale_rate(self, by: Tensor) -> None:
        """Multiply the learning rate, in place on the device where it is a tensor."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"].mul_(by) if isinstance(group["lr"], Tensor) else group["lr"] * float(by)

    def _of_all_ranks(self, loss: Tensor, metrics: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Average loss, diagnostics and, in place, gradients over the ranks, by one reduction: so all ranks skip, clip
        and stop together. Extremes are joined after all updates, and gradients of sharded parameters are means already.
        """
        gradients = [each.grad for each in self.parameters if each.grad is not None and each not in self._in_parts]
        names = [name for name in metrics if not name.startswith(EXTREMES)]
        loss, *parts = ranks.means([loss, *(metrics[name] for name in names), *gradients])
        torch._foreach_copy_(gradients, parts[len(names) :])
        return loss, {**metrics, **dict(zip(names, parts[: len(names)], strict=True))}

    def _extremes_of_all_ranks(self, updates: TensorDict) -> TensorDict:
        """Replace each rank's own extremes in diagnostics [updates, ...] by those of all ranks, by one reduction."""
        signs = {name: 1 if name.startswith("max_") else -1 for name in updates.keys() if name.startswith(EXTREMES)}
        if signs:
            mine = [sign * updates[name] for name, sign in signs.items()]
            parts = ranks.largest(torch.cat([each.flatten() for each in mine])).split([each.numel() for each in mine])
            for (name, sign), part in zip(signs.items(), parts, strict=True):
                updates[name] = sign * part.view_as(updates[name])
        return updates

    def _whole_norms(self, norms: Mapping[nn.Parameter, Tensor]) -> dict[nn.Parameter, Tensor]:
        """Norms of the whole gradients of sharded parameters, by one reduction over the ranks."""
        in_parts = [parameter for parameter in norms if parameter in self._in_parts]
        squares = torch.stack([norms[parameter] for parameter in in_parts]).square()
        return dict(zip(in_parts, ranks.total(squares).sqrt().unbind(), strict=True))

    def _optimized(self) -> list[Tensor]:
        """Tensors that an optimizer step changes."""
        states = [value for state in self.optimizer.state.values() for value in state.values()]
        return [each.data for each in (*self.parameters, *states) if isinstance(each, Tensor)]

    def check(self, metrics: Mapping[str, float], advice: str) -> None:
        """Raise NonFiniteError if several updates in a row had to be skipped (``metrics`` on the host).

        Args:
            metrics: diagnostics of updates.
            advice: advice on the fix, as the end of a sentence.
        """
        skipped = int(metrics.get("skipped_in_row", 0))
        if skipped >= SKIPS_BEFORE_HALT:
            raise NonFiniteError(f"the loss or its gradient was not finite in {skipped} updates in a row: {advice}.")

    # --- saving -------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Tensors that updates change besides the parameters, by name: the tensors themselves."""
        result = {"skips_in_row": self.skips_in_row}
        for index, parameter in enumerate(self.parameters):
            state = self.optimizer.state.get(parameter, {})
            result |= {f"optimizer.{index}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
        return result if self.adaptive is None else {**result, "adaptive_rate": self.adaptive.factor}

    def state_dict(self) -> dict[str, Any]:
        """State of optimizer, gradient scaler and the count of skips."""
        optimizer = self.optimizer.state_dict()
        for index, moments in self._moments_in_parts(optimizer):
            optimizer["state"][index] = {name: whole(value) if value.ndim else value for name, value in moments.items()}
        return {
            "optimizer": optimizer,
            "grad_scaler": self.grad_scaler.state_dict(),
            "skips_in_row": self.skips_in_row.clone(),
            **({} if self.adaptive is None else {"adaptive_rate": self.adaptive.factor.clone()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state_dict`; the moments of the optimizer are new tensors after that."""
        optimizer = {**state["optimizer"], "state": dict(state["optimizer"]["state"])}
        for index, moments in self._moments_in_parts(optimizer):
            own_rows = {name: ranks.own_rows(value, 0) if value.ndim else value for name, value in moments.items()}
            optimizer["state"][index] = own_rows
        mine = [{name: group.get(name) for name in OWN_OPTIONS} for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(optimizer)
        for group, options in zip(self.optimizer.param_groups, mine, strict=True):
            group.update(options)
        if self.adaptive is not None:
            self.adaptive.factor.fill_(state.get("adaptive_rate", 1.0))
        self.grad_scaler.load_state_dict(state["grad_scaler"])
        self.skips_in_row.copy_(state["skips_in_row"])

    def _moments_in_parts(self, optimizer: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
        """Indices of sharded parameters in an optimizer's state, and their moments."""
        places = [index for index, parameter in enumerate(self.parameters) if parameter in self._in_parts]
        return [(index, optimizer["state"][index]) for index in places if index in optimizer["state"]]


def summarize_updates(updates: TensorDict | dict[str, Tensor]) -> dict[str, Tensor]:
    """Compute means of diagnostics [updates, ...] over the updates that were made; extremes (``max_*``, ``min_*``) and
    counts over all.
    """
    made = updates["made"]
    count = made.sum(0).clamp_min(1)
    extremes = {key: updates[key].amax(0) for key in updates.keys() if key.startswith("max_")}
    extremes |= {key: updates[key].amin(0) for key in updates.keys() if key.startswith("min_")}
    counts = {
        "updates": made.sum(0),
        "skipped": updates["skipped"].sum(0),
        "skipped_in_row": updates["skipped_in_row"].amax(0),
    }
    kept = [key for key in updates.keys() if key not in (*extremes, *counts, "made")]
    values = torch.stack([updates[key] for key in kept])  # at once, as each operation is a launch
    means = torch.where(made > 0, values, 0.0).sum(1) / count
    return dict(zip(kept, means.unbind(), strict=True)) | extremes | counts
