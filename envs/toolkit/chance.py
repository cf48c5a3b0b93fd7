"""Counter-based randomness: (seed, world, clock, stream) -> numbers, without any generator.

A generator returns numbers in the order of the calls, so a world's numbers would depend on the number of worlds, and
``torch.Generator`` cannot be traced by ``torch.compile``. Here every number is a hash of its place of use: world 7
draws the same numbers alone or among others, eager or compiled, on a CPU or a GPU.

The mixer is the 32-bit integer hash "lowbias32" (C. Wellons, "Prospecting for Hash Functions", 2018), written for
signed 32-bit lanes because those vectorize everywhere; multiplication wraps around as intended.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_MULTIPLIER_A = 0x7FEB352D
_MULTIPLIER_B = 0x846CA68B - (1 << 32)
_CLOCK_STRIDE = 0x9E3779B1 - (1 << 32)
_LANE_STRIDE = 0x85EBCA77 - (1 << 32)
_LANES_PER_STREAM = 256
"""Number of values that one stream may return per world and clock tick; streams are spaced by it so that they never
overlap.
"""


class Chance(NamedTuple):
    """Random source of every world: a fixed key and a clock that ticks at every step and reset, both int32 [N]."""

    key: Tensor
    clock: Tensor

    def tick(self, worlds: Tensor | None = None) -> Chance:
        """Advance the clock to fresh numbers, in all worlds or in those of the bool mask ``worlds`` [N]."""
        step = 1 if worlds is None else worlds.to(torch.int32)
        return self._replace(clock=self.clock + step)

    def uniform(self, stream: int, count: int, width: int = 1) -> Tensor:
        """Draw ``count`` numbers per world, uniform in [0, 1), float32 [count, N], always the same for a stream and
        clock.

        A stream has up to 256 numbers; one of greater ``width`` also takes those of the following streams, which must
        be reserved for it.
        """
        if count > width * _LANES_PER_STREAM:
            raise ValueError(
                f"a stream of width {width} hands out at most {width * _LANES_PER_STREAM} numbers per step, not "
                f"{count}: give a greater width, and leave it the streams that follow."
            )
        lanes = torch.arange(count, dtype=torch.int32, device=self.key.device).unsqueeze(1)
        return self._uniform(stream, lanes)

    def uniform_at(self, stream: int, lanes: Tensor) -> Tensor:
        """Return the numbers of a stream at indices ``lanes``, int32 [..., N] or broadcastable, each below 256.

        The indices are data. For constant indices use :meth:`uniform`: from ``arange + 5`` and a mask, PyTorch 2.13
        compiled for CPUs makes the same number in every row.
        """
        # the mask changes no value; Inductor folds sums and multiples of indices, and Triton refuses beyond 32 bits
        return self._uniform(stream, lanes & (_LANES_PER_STREAM - 1))

    def _uniform(self, stream: int, lanes: Tensor) -> Tensor:
        # wrapped here: Inductor folds lanes and stream into one constant, which Triton refuses beyond 32 bits
        start = _signed(stream * _LANES_PER_STREAM * _LANE_STRIDE & 0xFFFFFFFF)
        bits = _mix(self.key ^ _mix(self.clock * _CLOCK_STRIDE + (lanes * _LANE_STRIDE + start)))
        return ((bits >> 8) & 0xFFFFFF).to(torch.float32) * (1.0 / (1 << 24))


def seed_chance(seed: int, num_envs: int, device: torch.device | str | None = None, first: int = 0) -> Chance:
    """Seed the random source of ``num_envs`` worlds from index ``first`` on; world i gets the same numbers whatever
    ``num_envs`` and ``first`` are.
    """
    low, high = (_signed((seed >> shift) & 0xFFFFFFFF) for shift in (0, 32))
    # the seed is mixed before it meets the index, or world 1 of seed 0 would be world 0 of seed 1
    mixed = _mix(_mix(torch.tensor(low, dtype=torch.int32, device=device) ^ _LANE_STRIDE) + high)
    key = _mix(torch.arange(first, first + num_envs, dtype=torch.int32, device=device) ^ mixed)
    return Chance(key=key, clock=torch.zeros_like(key))


SHUFFLE_ROUNDS = 8
"""Number of rounds. With 4, frequencies of pairs of cells on a 3 x 3 grid are off by up to 7 %; from 8 on no deviation
is seen in 100,000 worlds.
"""
SHUFFLE_STREAMS = 2 * SHUFFLE_ROUNDS
"""Number of streams that :func:`shuffled_cells` draws from."""


def shuffled_cells(chance: Chance, stream: int, count: int, width: Tensor, height: Tensor) -> tuple[Tensor, Tensor]:
    """Draw ``count`` different random cells of a grid: x and y, int32 [count, N].

    The first cells, numbered row by row, are mapped by a random permutation of the grid: rounds that shift each row and
    then each column cyclically by a random amount (an alternating Feistel network on width x height, Black and
    Rogaway, "Ciphers with arbitrary finite domains", 2002). Unlike a shuffle this needs no sorting and no loop over
    cells, so it costs only as much as ``count`` random numbers.

    Args:
        chance: random source of the worlds.
        stream: the first of ``SHUFFLE_STREAMS`` streams.
        count: number of cells; at most the cells of the grid, or some repeat.
        width: width of the grid, int32 [N], 2 to 256 (shifting a single row would only rotate it).
        height: height of the grid, likewise.
    """
    index = torch.arange(count, dtype=torch.int32, device=width.device).unsqueeze(1)
    y = torch.div(index, width, rounding_mode="floor")
    x = index - y * width
    for turn in range(0, SHUFFLE_STREAMS, 2):
        x = _shifted(x, chance.uniform_at(stream + turn, y), width)
        y = _shifted(y, chance.uniform_at(stream + turn + 1, x), height)
    return x, y


def _shifted(value: Tensor, share: Tensor, size: Tensor) -> Tensor:
    value = value + (share * size).to(torch.int32)
    return torch.where(value >= size, value - size, value)


def _mix(x: Tensor) -> Tensor:
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * _MULTIPLIER_A
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * _MULTIPLIER_B
    return x ^ ((x >> 16) & 0xFFFF)


def _signed(word: int) -> int:
    """Read the 32-bit pattern ``word`` as a signed number."""
    return word - (1 << 32) if word >= 1 << 31 else word
