"""P modules of one kind as one: their parameters lie side by side in one tensor [P, D], of which the module sees views.

Operations on rows of that tensor are all that a population needs: acting and learning of all members at once, Adam with
a rate per member, copies of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torch.func import functional_call

from torchrl_agent.optimization.adam import adam_step, columns_of

Values = Mapping[NestedKey, Tensor]
"""Entries of a tensordict, by key."""
Function = Callable[[TensorDictBase], Mapping[NestedKey, Tensor] | TensorDictBase]
"""Function of a member on a tensordict."""
OneMember = Callable[[dict[str, Tensor], dict[str, Tensor], Values], dict[NestedKey, Tensor]]
"""The same of a member's parameters, its other tensors, and entries."""


class Stack(nn.Module):
    """Parameters and buffers of P modules of one kind; a template of that kind computes with each member's.

    Args:
        modules: of one architecture; their parameters and buffers are copied, and the first becomes the template.
        parts: parameters of the template that learn, of which each part shall have columns next to each other; by
            default all in one part.

    Attributes:
        flat: the parameters that learn, [P, D].
        ranges: of each part, its first column and the one after its last.
    """

    flat: nn.Parameter

    def __init__(self, modules: Sequence[nn.Module], parts: Sequence[Sequence[nn.Parameter]] | None = None) -> None:
        super().__init__()
        template = modules[0]
        # beside the registered modules: its own parameters belong to no member
        self.__dict__["_template"] = _Template(template)
        parts = [list(template.parameters())] if parts is None else parts
        known = {parameter: name for name, parameter in template.named_parameters()}
        self.names = [known[parameter] for part in parts for parameter in part]
        self.shapes = [parameter.shape for part in parts for parameter in part]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.ranges = columns_of(parts)
        states = [tensors_of(module) for module in modules]
        self.flat = nn.Parameter(torch.stack([torch.cat([s[name].flatten() for name in self.names]) for s in states]))
        self._places = {name: name.replace(".", "/") for name in states[0] if name not in self.names}
        for name, place in self._places.items():  # buffers, and parameters that do not learn
            self.register_buffer(place, torch.stack([state[name] for state in states]))

    @property
    def size(self) -> int:
        """Number of members P."""
        return self.flat.shape[0]

    def others(self) -> dict[str, Tensor]:
        """All tensors except parameters that learn, by their names in the template, [P, ...]."""
        return {name: getattr(self, place) for name, place in self._places.items()}

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters in rows [..., D] by their names, as views."""
        pieces = zip(self.names, flat.split(self.sizes, -1), self.shapes, strict=True)
        return {name: piece.reshape(*flat.shape[:-1], *shape) for name, piece, shape in pieces}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by their names in the template, [P, ...]."""
        return self.split(self.flat.detach()) | self.others()

    def member(self, index: int) -> dict[str, Tensor]:
        """All tensors of one member by their names in the template; writing to them changes the member."""
        return {name: value[index] for name, value in self.tensors().items()}

    @torch.no_grad()
    def show(self, index: int, module: nn.Module) -> None:
        """Write a member's tensors into a module of the kind."""
        theirs = self.member(index)
        for name, value in (*module.named_parameters(), *module.named_buffers()):
            value.copy_(theirs[name])

    def take(self, source: Tensor) -> Stack:
        """Copies of members, int64 [Q], as a stack of their own that does not learn."""
        taken = Stack.__new__(Stack)
        nn.Module.__init__(taken)
        for name in ("_template", "names", "shapes", "sizes", "ranges", "_places"):
            taken.__dict__[name] = self.__dict__[name]
        taken.flat = nn.Parameter(self.flat.detach()[source], requires_grad=False)
        for place in self._places.values():
            taken.register_buffer(place, getattr(self, place)[source])
        return taken

    @torch.no_grad()
    def put(self, rows: Tensor, source: Stack, theirs: Tensor) -> None:
        """Copy members of another stack of the kind to these members, int64 [n]."""
        pairs = [(self.flat, source.flat), *zip(self.others().values(), source.others().values(), strict=True)]
        for mine, other in pairs:
            mine[rows] = other.detach()[theirs]

    # --- calling ------------------------------------------------------------------------------------------------------

    def one(self, function: Function, batch_dims: int) -> OneMember:
        """Turn a function of the template, on entries with this many batch dimensions, into one that is also given the
        tensors to compute with; it may write to buffers.
        """

        def run(parameters: dict[str, Tensor], others: dict[str, Tensor], values: Values) -> dict[NestedKey, Tensor]:
            # Names are unique; with ties PyTorch would look for others and leave a member's tensor under them.
            given = {f"module.{name}": value for name, value in (parameters | others).items()}
            return functional_call(self._template, given, (function, values, batch_dims), tie_weights=False)

        return run

    def call(
        self, function: Function, values: Values, batch_dims: int, *, together: bool = True, randomness: str = "error"
    ) -> dict[NestedKey, Tensor]:
        """Apply a function of the template to every member's entries [P, ...].

        Args:
            function: while it runs, the template has the member's tensors; it may write to buffers.
            values: entries of the members' tensordicts.
            batch_dims: batch dimensions of each of these tensordicts.
            together: by ``torch.vmap``; else member after member, for what it cannot run.
            randomness: of ``torch.vmap``: ``different`` lets members draw different numbers.
        """
        run, inputs = self.one(function, batch_dims), (self.split(self.flat), self.others(), dict(values))
        if together:
            return torch.vmap(run, randomness=randomness)(*inputs)
        rows = [run(*({key: each[row] for key, each in part.items()} for part in inputs)) for row in range(self.size)]
        return stack_rows(rows)


class _Template(nn.Module):
    """Module in which functions that refer to the template run."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Function, values: Values, batch_dims: int) -> dict[NestedKey, Tensor]:
        """Apply the function to the entries."""
        shape = next(iter(values.values())).shape[:batch_dims]
        found = function(TensorDict(dict(values), shape))
        return dict(found.items(True, True)) if isinstance(found, TensorDictBase) else dict(found)


def stack_rows(rows: Sequence[Mapping[NestedKey, Tensor]]) -> dict[NestedKey, Tensor]:
    """Entries of every member, by key, [P, ...]."""
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


def entries(tensordict: TensorDictBase, keys: Iterable[NestedKey] | None = None) -> dict[NestedKey, Tensor]:
    """Tensors of a tensordict by key: all, or those of ``keys`` that it has."""
    if keys is None:
        return dict(tensordict.items(True, True))
    return {key: value for key in keys if (value := tensordict.get(key, None)) is not None}


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by their names, each once."""
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


# --- Adam by rows ----------------------------------------------------------------------------------------------------


class RowAdam:
    """Adam (Kingma and Ba 2015) on a tensor [P, D] whose rows are independent of each other.

    Args:
        flat: the parameters that learn.
        ranges: of the columns whose gradient is clipped together, the first and the one after the last.
        weight_decay: fraction of the learning rate by which a step shrinks the parameters.

    Attributes:
        mean, square: running means of the gradient and of its square, [P, D].
        steps: that each row has made, [P, 1].
    """

    def __init__(
        self, flat: Tensor, ranges: Sequence[tuple[int, int]], epsilon: float = 1e-8, weight_decay: float = 0.0
    ) -> None:
        self.flat, self.epsilon, self.weight_decay = flat, epsilon, weight_decay
        self.parts = [[columns] for columns in ranges]
        self.mean, self.square = torch.zeros_like(flat.detach()), torch.zeros_like(flat.detach())
        self.steps = torch.zeros(flat.shape[0], 1, device=flat.device)

    @torch.no_grad()
    def step(self, gradient: Tensor, rate: Tensor, max_norm: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Make one step of the rows that are ``wanted`` and whose gradient is finite; the others keep weights, moments
        and count.

        Args:
            gradient: [P, D].
            rate: learning rates, [P].
            max_norm: largest norms of the gradient of each range, [P].
            wanted: rows that are to make the step, bool [P].

        Returns:
            The norms of the whole gradients before clipping, and a mask of the rows that made the step, [P] each.
        """
        places, steps = (self.flat, self.mean, self.square), self.steps + 1
        options = (self.epsilon, None, self.weight_decay)
        after = adam_step(self.flat, gradient, places[1:], steps, rate, max_norm, self.parts, wanted, *options)
        for place, value in zip(places, after, strict=False):
            place.copy_(value)
        self.steps.copy_(torch.where(after.made.unsqueeze(1), steps, self.steps))
        return after.norm, after.made

    def tensors(self) -> dict[str, Tensor]:
        """State of the optimizer by name, [P, ...] each."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from :meth:`tensors`."""
        for name, value in self.tensors().items():
            value.copy_(tensors[name])
