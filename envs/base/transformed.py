"""TorchRL's transforms around a world, without losing its branchless reset."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import Compose, TransformedEnv

from envs.base.world import World


class BranchlessTransformedEnv(TransformedEnv):
    """:class:`~torchrl.envs.TransformedEnv` that keeps a :class:`World`'s branchless reset, so it compiles with
    ``fullgraph=True``.

    A plain ``TransformedEnv(world, transform)`` gives the same data, but synchronizes with the device at each step to
    find out if any world is done.
    """

    branchless = True
    is_spec_locked = World.is_spec_locked

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return the states of the worlds and of the transforms."""
        return {"world": self.base_env.state_dict(), "transform": self.transform.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Continue from :meth:`state_dict`, or from the transforms' state alone, which TorchRL's collectors save."""
        if state_dict.keys() != {"world", "transform"}:
            state_dict = {"world": {}, "transform": state_dict}
        self.base_env.load_state_dict(state_dict["world"], strict)
        self.transform.load_state_dict(state_dict["transform"], strict)

    @property
    def keeps_ends(self) -> bool:
        """True if episodes end with all transforms where they end without them."""
        parts = self.transform if isinstance(self.transform, Compose) else [self.transform]
        inside = self.base_env
        inner = not isinstance(inside, BranchlessTransformedEnv) or inside.keeps_ends
        return inner and all(getattr(part, "keeps_ends", False) for part in parts)

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Reset done rows by a masked select over the transformed observations."""
        done = tensordict.get("done")
        mask = done.reshape(self.batch_size)
        request = tensordict.select(*self.state_keys, strict=False).set("_reset", done)
        fresh = self._reset(request, replaced=self.keeps_ends).exclude("_reset")
        self.mark_reset()

        def pick(new: Tensor, old: Tensor | None) -> Tensor:
            if old is None:
                return new
            return torch.where(mask.reshape(mask.shape + (1,) * (new.ndim - mask.ndim)), new, old)

        return tensordict.update(fresh._fast_apply(pick, tensordict, default=None))

    def mark_reset(self) -> None:
        """See :meth:`World.mark_reset`."""
        self.base_env.mark_reset()


World.transformed_class = BranchlessTransformedEnv
