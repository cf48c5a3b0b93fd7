"""Small canvas for pictures of worlds: discs, polygons, lines, bars and text on a dark ground; used by all games."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Color: TypeAlias = tuple[int, int, int]
"""Red, green, blue, 0 to 255."""
Point: TypeAlias = tuple[float, float]


def check_picture(world: int, worlds: int, size: tuple[int, int]) -> None:
    """Raise ValueError if there is no such world among ``worlds``, or the picture would be too small."""
    if not 0 <= world < worlds:
        raise ValueError(f"there is no world {world}: use 0 to {worlds - 1}.")
    if min(size) < 32:
        raise ValueError(f"a picture of {size[0]} x {size[1]} pixels is too small: use at least 32 x 32.")


class Canvas:
    """Picture of ``size`` (width, height) pixels, drawn larger and shrunk at the end, which smooths every edge.

    A point (x, y) of the world is drawn at pixel ``origin + scale * (x, y)``, and sizes are in its unit too; only line
    widths and text are in pixels.

    Args:
        size: width and height in pixels.
        ground: color of the background.
        origin: pixel of the world's (0, 0).
        scale: pixels per unit of the world.
        smooth: factor by which the picture is drawn larger; 1 leaves hard edges.

    Raises:
        ValueError: a size, the scale or ``smooth`` is not positive.
    """

    def __init__(
        self, size: tuple[int, int], ground: Color, origin: Point = (0, 0), scale: float = 1.0, smooth: int = 3
    ) -> None:
        if min(size) < 1 or scale <= 0 or smooth < 1:
            raise ValueError(f"a canvas of size {size}, scale {scale} and smooth {smooth}: all must be positive.")
        self.size, self.origin, self.scale, self.smooth = size, origin, scale, smooth
        self._image = Image.new("RGB", (size[0] * smooth, size[1] * smooth), ground)
        self._pen = ImageDraw.Draw(self._image)

    def disc(self, center: Point, radius: float, color: Color, rim: Color | None = None, width: float = 1) -> None:
        """Draw a filled circle, with a rim of ``width`` pixels if it has a color."""
        self._pen.ellipse(self._box(center, radius), color, rim, self._pixels(width))

    def polygon(self, points: Sequence[Point], color: Color, rim: Color | None = None, width: float = 1) -> None:
        """Draw a filled polygon, with a rim of ``width`` pixels if it has a color."""
        self._pen.polygon([self._place(point) for point in points], color, rim, self._pixels(width))

    def line(self, start: Point, end: Point, color: Color, width: float = 1) -> None:
        """Draw a straight line of ``width`` pixels."""
        self._pen.line([self._place(start), self._place(end)], color, self._pixels(width))

    def box(
        self, corner: Point, opposite: Point, color: Color | None, rim: Color | None = None, width: float = 1
    ) -> None:
        """Draw a rectangle: filled, with a rim of ``width`` pixels, or both."""
        (left, top), (right, bottom) = self._place(corner), self._place(opposite)
        self._pen.rectangle((left, top, right - 1, bottom - 1), color, rim, self._pixels(width))

    def bar(self, center: Point, size: Point, share: float, color: Color, empty: Color) -> None:
        """Draw a horizontal bar of which the fraction ``share`` (0 to 1, from the left) is filled."""
        left, top = center[0] - size[0] / 2, center[1] - size[1] / 2
        filled = size[0] * min(max(share, 0.0), 1.0)
        self.box((left, top), (left + size[0], top + size[1]), empty)
        if filled > 0:
            self.box((left, top), (left + filled, top + size[1]), color)

    def text(self, pixel: Point, words: str, height: float, color: Color) -> float:
        """Write words of ``height`` pixels, the middle of their left side at a pixel; return the x of the right end."""
        font = _font(round(height * self.smooth))
        self._pen.text((pixel[0] * self.smooth, pixel[1] * self.smooth), words, color, font, anchor="lm")
        return pixel[0] + font.getlength(words) / self.smooth

    def picture(self) -> NDArray[np.uint8]:
        """Return the picture, uint8 [height, width, 3]."""
        return np.array(self._image.reduce(self.smooth) if self.smooth > 1 else self._image)

    def _place(self, point: Point) -> Point:
        x, y = self.origin[0] + self.scale * point[0], self.origin[1] + self.scale * point[1]
        return x * self.smooth, y * self.smooth

    def _box(self, center: Point, radius: float) -> tuple[float, float, float, float]:
        (x, y), reach = self._place(center), max(radius * self.scale, 0.5) * self.smooth
        return x - reach, y - reach, x + reach - 1, y + reach - 1

    def _pixels(self, width: float) -> int:
        return max(1, round(width * self.smooth))


def regular(center: Point, radius: float, corners: int, angle: float = 0.0) -> list[Point]:
    """Corners of a regular polygon, the first one at ``angle`` [rad]."""
    turns = (angle + math.tau * corner / corners for corner in range(corners))
    return [(center[0] + radius * math.cos(turn), center[1] + radius * math.sin(turn)) for turn in turns]


def mix(first: Color, second: Color, share: float) -> Color:
    """Interpolate between two colors: ``share`` 0 is the first, 1 the second."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return red, green, blue


@functools.lru_cache(maxsize=16)
def _font(height: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(max(1, height))
