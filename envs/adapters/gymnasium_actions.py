"""Conversion of actions from Gymnasium's users, in numpy or torch, to integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def whole_numbers(actions: Any, shape: tuple[int, ...], count: int) -> NDArray[np.int64]:
    """Return ``actions`` as int64 of ``shape``; they are an array, a tensor on any device, a number or a list of them.

    Raises:
        ValueError: they have another shape, are not whole numbers, do not lie in 0 to ``count`` - 1, or are a list of
            numpy's and torch's together.
    """
    array = _array(actions)
    if array.shape != shape or not np.issubdtype(array.dtype, np.integer):
        wanted = f"{shape[0]} whole numbers, one per world" if shape else "one whole number"
        raise ValueError(f"actions have shape {array.shape} and type {array.dtype}: give {wanted}.")
    if array.min() < 0 or array.max() >= count:
        raise ValueError(f"actions reach from {array.min()} to {array.max()}: they must lie within 0 and {count - 1}.")
    return array.astype(np.int64)


def _array(actions: Any) -> NDArray:
    if isinstance(actions, (list, tuple)):
        tensors = sum(isinstance(action, torch.Tensor) for action in actions)
        if 0 < tensors < len(actions):
            raise ValueError("actions mix torch tensors with other numbers: give one tensor, one array or one list.")
        if len({np.shape(action) for action in actions}) > 1:
            raise ValueError("actions have different shapes: give one whole number per world.")
        actions = torch.stack(list(actions)) if tensors else actions
    if isinstance(actions, torch.Tensor):
        # numpy knows no bfloat16; as fractions are refused in any case, their precision does not matter
        return (actions.double() if actions.is_floating_point() else actions).detach().cpu().numpy()
    return np.asarray(actions)
