"""Marks: shapes whose places are read from a world's record, so that a page draws every moment without Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envs.toolkit.drawing import Color, Point, hexadecimal

Number = Any
"""A number, or a :class:`Term`."""


class Term:
    """A number that is computed from a world's record: ``["name", first, stride]`` is the entry ``first + i * stride``
    of a flat tensor for the i-th shape of a mark, and ``[operation, ...]`` computes with terms and numbers.
    """

    def __init__(self, plain: list[Any]) -> None:
        self.plain = plain

    def __add__(self, other: Number) -> Term:
        return Term(["+", self.plain, _plain(other)])

    def __sub__(self, other: Number) -> Term:
        return Term(["-", self.plain, _plain(other)])

    def __mul__(self, other: Number) -> Term:
        return Term(["*", self.plain, _plain(other)])

    def __mod__(self, other: Number) -> Term:
        return Term(["%", self.plain, _plain(other)])

    __radd__, __rmul__ = __add__, __mul__

    def cos(self) -> Term:
        """Return the cosine of an angle [rad]."""
        return Term(["cos", self.plain])

    def sin(self) -> Term:
        """Return the sine of an angle [rad]."""
        return Term(["sin", self.plain])


def entry(name: str, first: int = 0, stride: int = 1) -> Term:
    """Return the entry of a tensor of the record by its dotted name; ``stride`` 0 is the same for all shapes."""
    return Term(["entry", name, first, stride])


def _plain(number: Number) -> Any:
    return number.plain if isinstance(number, Term) else number


class Marks:
    """Drawing of ``size`` (width, height) pixels, like a :class:`~envs.toolkit.drawing.Canvas`: points are in units of
    the world, drawn at pixel ``origin + scale * point``. Each method draws ``count`` shapes, those whose term ``shown``
    is above 0; a ``rim`` has a ``width`` in pixels.
    """

    def __init__(self, size: tuple[int, int], ground: Color, origin: Point, scale: float) -> None:
        self.size, self.ground, self.origin, self.scale = size, ground, origin, scale
        self.shapes: list[dict[str, Any]] = []
        self.entries: list[list[Any]] = []

    def disc(self, center: Sequence[Number], radius: float, color: Color, count: int = 1, **more: Any) -> None:
        """Draw filled circles."""
        self._add("disc", [center], color, count, size=radius * self.scale, **more)

    def polygon(self, points: Sequence[Sequence[Number]], color: Color, count: int = 1, **more: Any) -> None:
        """Draw filled polygons."""
        self._add("polygon", points, color, count, **more)

    def box(
        self, corner: Sequence[Number], opposite: Sequence[Number], color: Color, count: int = 1, **more: Any
    ) -> None:
        """Draw filled rectangles."""
        self._add("box", [corner, opposite], color, count, **more)

    def text(
        self, middle: Sequence[Number], words: Sequence[str], height: float, color: Color, count: int = 1, **more: Any
    ) -> None:
        """Write words of ``height`` pixels around their middle, one of them for each shape."""
        self._add("text", [middle], color, count, size=height, words=list(words), **more)

    def _add(
        self,
        kind: str,
        points: Sequence[Sequence[Number]],
        color: Color,
        count: int,
        rim: Color | None = None,
        shown: Term | None = None,
        **more: Any,
    ) -> None:
        places = [[_plain(number) for number in point] for point in points]
        self.shapes.append(
            {
                "kind": kind,
                "points": places,
                "fill": hexadecimal(color),
                "stroke": None if rim is None else hexadecimal(rim),
                "count": count,
                "shown": None if shown is None else shown.plain,
                **more,
            }
        )

    def entry(self, name: str, value: Term, full: float | None = None, color: Color | None = None) -> None:
        """Add a number of the i-th agent, with a bar where the largest value ``full`` is given."""
        self.entries.append([name, value.plain, full, None if color is None else hexadecimal(color)])

    def plain(self) -> dict[str, Any]:
        """Return the drawing as plain values."""
        return {
            "size": list(self.size),
            "ground": hexadecimal(self.ground),
            "origin": [round(number, 2) for number in self.origin],
            "scale": round(self.scale, 4),
            "shapes": self.shapes,
            "entries": self.entries,
        }
