"""Small canvas for pictures of worlds: discs, polygons, lines, bars and text on a dark ground; used by all games."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

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
    """Drawing of ``size`` (width, height) pixels: a list of shapes, which becomes a picture or is read as vectors.

    A point (x, y) of the world is drawn at pixel ``origin + scale * (x, y)``, and sizes are in its unit too; only line
    widths and text are in pixels.

    Args:
        size: width and height in pixels.
        ground: color of the background.
        origin: pixel of the world's (0, 0).
        scale: pixels per unit of the world.
        smooth: factor by which a picture is painted larger and then shrunk, which smooths every edge; 1 leaves hard
            edges.

    Raises:
        ValueError: a size, the scale or ``smooth`` is not positive.
    """

    def __init__(
        self, size: tuple[int, int], ground: Color, origin: Point = (0, 0), scale: float = 1.0, smooth: int = 3
    ) -> None:
        if min(size) < 1 or scale <= 0 or smooth < 1:
            raise ValueError(f"a canvas of size {size}, scale {scale} and smooth {smooth}: all must be positive.")
        self.size, self.ground = size, ground
        self.origin, self.scale, self.smooth = origin, scale, smooth
        self._shapes: list[_Shape] = []

    def disc(self, center: Point, radius: float, color: Color, rim: Color | None = None, width: float = 1) -> None:
        """Draw a filled circle, with a rim of ``width`` pixels if it has a color."""
        reach = max(radius * self.scale, 0.5)
        self._shapes.append(_Shape("disc", [self.place(center)], color, rim, width, reach))

    def polygon(self, points: Sequence[Point], color: Color, rim: Color | None = None, width: float = 1) -> None:
        """Draw a filled polygon, with a rim of ``width`` pixels if it has a color."""
        self._shapes.append(_Shape("polygon", [self.place(point) for point in points], color, rim, width))

    def line(self, start: Point, end: Point, color: Color, width: float = 1) -> None:
        """Draw a straight line of ``width`` pixels."""
        self._shapes.append(_Shape("line", [self.place(start), self.place(end)], None, color, width))

    def box(
        self, corner: Point, opposite: Point, color: Color | None, rim: Color | None = None, width: float = 1
    ) -> None:
        """Draw a rectangle: filled, with a rim of ``width`` pixels, or both."""
        self._shapes.append(_Shape("box", [self.place(corner), self.place(opposite)], color, rim, width))

    def bar(self, center: Point, size: Point, share: float, color: Color, empty: Color) -> None:
        """Draw a horizontal bar of which the fraction ``share`` (0 to 1, from the left) is filled."""
        left, top = center[0] - size[0] / 2, center[1] - size[1] / 2
        filled = size[0] * min(max(share, 0.0), 1.0)
        self.box((left, top), (left + size[0], top + size[1]), empty)
        if filled > 0:
            self.box((left, top), (left + filled, top + size[1]), color)

    def text(self, pixel: Point, words: str, height: float, color: Color) -> float:
        """Write words of ``height`` pixels, the middle of their left side at a pixel; return the x of the right end."""
        self._shapes.append(_Shape("text", [pixel], color, None, 1, height, words))
        return pixel[0] + _font(round(height * self.smooth)).getlength(words) / self.smooth

    def picture(self) -> NDArray[np.uint8]:
        """Return the picture, uint8 [height, width, 3]."""
        smooth = self.smooth
        image = Image.new("RGB", (self.size[0] * smooth, self.size[1] * smooth), self.ground)
        pen = ImageDraw.Draw(image)
        for shape in self._shapes:
            shape.paint(pen, smooth)
        return np.array(image.reduce(smooth) if smooth > 1 else image)

    def vectors(self) -> dict[str, Any]:
        """Return the drawing as plain values: ``size`` and ``ground``, and ``shapes`` in the order in which they are
        drawn, each ``[kind, points, fill, stroke, width, size, words]`` without what stands last and is None; a size is
        a disc's radius or the height of text.
        """
        shapes = [shape.plain() for shape in self._shapes]
        return {"size": list(self.size), "ground": hexadecimal(self.ground), "shapes": shapes}

    def place(self, point: Point) -> Point:
        """Return the pixel at which a point of the world is drawn."""
        return self.origin[0] + self.scale * point[0], self.origin[1] + self.scale * point[1]


class _Shape(NamedTuple):
    """Shape with its points, widths and sizes in pixels."""

    kind: str
    points: list[Point]
    fill: Color | None
    stroke: Color | None
    width: float
    size: float | None = None
    words: str | None = None

    def paint(self, pen: ImageDraw.ImageDraw, smooth: int) -> None:
        """Paint the shape, enlarged by a factor."""
        points = [(x * smooth, y * smooth) for x, y in self.points]
        (x, y), width = points[0], max(1, round(self.width * smooth))
        if self.kind == "disc":
            reach = (self.size or 0) * smooth
            pen.ellipse((x - reach, y - reach, x + reach - 1, y + reach - 1), self.fill, self.stroke, width)
        elif self.kind == "polygon":
            pen.polygon(points, self.fill, self.stroke, width)
        elif self.kind == "line":
            pen.line(points, self.stroke, width)
        elif self.kind == "box":
            pen.rectangle((x, y, points[1][0] - 1, points[1][1] - 1), self.fill, self.stroke, width)
        else:
            pen.text((x, y), self.words or "", self.fill, _font(round((self.size or 0) * smooth)), anchor="lm")

    def plain(self) -> list[Any]:
        points = [round(number, 1) for point in self.points for number in point]
        fill, stroke = (None if color is None else hexadecimal(color) for color in (self.fill, self.stroke))
        width = None if stroke is None else round(self.width, 1)
        size = None if self.size is None else round(self.size, 1)
        values = [self.kind, points, fill, stroke, width, size, self.words]
        while values[-1] is None:
            values.pop()
        return values


def hexadecimal(color: Color) -> str:
    """Return a color as HTML writes it."""
    return "#{:02x}{:02x}{:02x}".format(*color)


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
