"""Films of pictures: GIF by Pillow, MP4 by imageio where the extra ``video`` is installed."""

from __future__ import annotations

import itertools
import math
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Frame: TypeAlias = NDArray[np.uint8]
"""Picture, uint8 [height, width, 3]."""

PALETTE_SAMPLES = 16
"""Approximate number of frames of a film from which the colors of its GIF are chosen."""
NUM_COLORS = 128
"""Number of colors of a GIF; one of the format's 256 must be left for "unchanged"."""


def check_suffix(path: Path) -> None:
    """Raise ValueError if a name does not end as that of a film."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ValueError(f"a film cannot be written as {path.name!r}: use a name that ends in .gif or .mp4.")


def write_film(frames: Sequence[Frame], path: str | os.PathLike[str], fps: float = 30) -> Path:
    """Write ``frames`` as a film that repeats (``.gif``) or as a video (``.mp4``) and return its path.

    The film appears under its name only once it is complete. GIFs count time in hundredths of a second: above 50 frames
    per second some players slow down.

    Raises:
        ValueError: the suffix is unknown, the extra that it needs is missing, or the frames do not make a film.
    """
    path = Path(path)
    writers = {".gif": _write_gif, ".mp4": _write_mp4}
    check_suffix(path)
    if not fps > 0:
        raise ValueError(f"fps is {fps}: give the frames per second, above 0.")
    _check(frames)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix.lower()}")
    try:
        writers[path.suffix.lower()](frames, unfinished, fps)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def grid(frames: Sequence[Frame], columns: int | None = None, gap: int = 4) -> Frame:
    """Join several frames of one size into one, row by row; by default with about as many columns as rows."""
    _check(frames)
    if columns is None:
        columns = math.ceil(math.sqrt(len(frames)))
    if columns < 1 or gap < 0:
        raise ValueError(f"a grid of {columns} columns with a gap of {gap} pixels: use at least 1 and 0.")
    columns = min(columns, len(frames))
    rows = math.ceil(len(frames) / columns)
    height, width, _ = frames[0].shape
    whole = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 3), np.uint8)
    for index, frame in enumerate(frames):
        top, left = index // columns * (height + gap), index % columns * (width + gap)
        whole[top : top + height, left : left + width] = frame
    return whole


def _check(frames: Sequence[Frame]) -> None:
    if len(frames) == 0:
        raise ValueError("there are no frames: draw at least one.")
    for index, frame in enumerate(frames):
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[-1] != 3:
            raise ValueError(f"frame {index} is {frame.dtype} {frame.shape}: frames are uint8 [height, width, 3].")
        if frame.shape != frames[0].shape:
            raise ValueError(f"frame {index} has shape {frame.shape}, frame 0 {frames[0].shape}: make them equal.")


def _write_gif(frames: Sequence[Frame], path: Path, fps: float) -> None:
    """Write a GIF with one palette for all frames, and of each frame only the pixels that change (``optimize``)."""
    samples = frames[:: max(1, len(frames) // PALETTE_SAMPLES)]
    palette = Image.fromarray(np.concatenate(samples)).quantize(NUM_COLORS, Image.Quantize.FASTOCTREE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    # a frame lasts whole hundredths of a second: spread the rounding, so that the film has the right total length
    marks = [round(index * 100 / fps) for index in range(len(frames) + 1)]
    durations = [10 * max(1, later - mark) for mark, later in itertools.pairwise(marks)]
    images[0].save(
        path,
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
        optimize=True,
        palette=bytes(palette.getpalette() or ()),
    )


def _write_mp4(frames: Sequence[Frame], path: Path, fps: float) -> None:
    try:
        import imageio.v2
        import imageio_ffmpeg  # noqa: F401  (imageio finds it by itself, but names it only when it fails)
    except ImportError:
        raise ValueError(
            'an .mp4 film needs the extra "video": pip install "torchrl-agent[video]", or write a .gif.'
        ) from None
    height, width = (size - size % 2 for size in frames[0].shape[:2])  # the codec halves the colors' resolution
    writer: Any
    with imageio.v2.get_writer(path, fps=fps, codec="libx264", quality=8, macro_block_size=1) as writer:
        for frame in frames:
            writer.append_data(frame[:height, :width])
