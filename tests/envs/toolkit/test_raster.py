"""Shapes stamped onto batches of pictures, against the slow way: every pixel asked about every shape."""

from __future__ import annotations

import pytest
import torch

from envs.toolkit.raster import Stamp, around, box, capsule, colored, disc, overlap, put

SIZE = (12, 20)


@pytest.fixture
def points():
    """Points inside and beyond the edges of pictures of 12 rows and 20 columns, [40, 3] each."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(2, 40, 3, generator=generator)
    return x * 26 - 3, y * 18 - 3


def everywhere(x, y):
    """Offsets (dx, dy) of every pixel from every point, [N, K, 12, 20]."""
    columns, rows = torch.arange(SIZE[1]) + 0.5, (torch.arange(SIZE[0]) + 0.5).unsqueeze(1)
    return columns - x.T[..., None, None], rows - y.T[..., None, None]


@pytest.mark.parametrize("radius", [0.5, 0.75, 1.1, 2.3, 30.0])
def test_discs_are_what_asking_every_pixel_gives(points, radius):
    patches = around(*points, (radius + 0.5, radius + 0.5), SIZE)
    stamp = colored(patches, disc(patches, radius), torch.ones(40, 3), (1.0, 0.5, 0.0))
    found = put(torch.zeros(3, 3, *SIZE), [stamp])
    dx, dy = everywhere(*points)
    light = (radius + 0.5 - torch.sqrt(dx**2 + dy**2)).clamp(0, 1).amax(1)
    torch.testing.assert_close(found, torch.stack([light, light / 2, light * 0], 1), atol=1e-5, rtol=0)


def test_boxes_cover_what_they_overlap(points):
    patches = around(*points, (2.5, 1.0), SIZE)
    stamp = colored(patches, box(patches, -2.0, 1.0, 0.5), torch.ones(40, 3), (1.0, 1.0, 1.0))
    found = put(torch.zeros(3, 3, *SIZE), [stamp])
    dx, dy = everywhere(*points)
    light = (overlap(dx, -2.0, 1.0) * overlap(dy, -0.5, 0.5)).amax(1)
    torch.testing.assert_close(found[:, 0], light, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("start", "end", "shared"), [(-0.5, 0.5, 1.0), (0.0, 2.0, 0.5), (-0.1, 0.1, 0.2), (0.5, 3.0, 0.0), (2.0, 1.0, 0.0)]
)
def test_overlaps_are_lengths(start, end, shared):
    assert overlap(torch.zeros(1), start, end).item() == pytest.approx(shared)
    assert overlap(torch.zeros(1), torch.tensor(start), torch.tensor(end)).item() == pytest.approx(shared)


def test_a_capsule_is_lit_along_its_line():
    x, y, right, none = (torch.full((1, 1), value) for value in (5.5, 5.5, 4.0, 0.0))
    patches = around(x, y, (5.0, 5.0), SIZE)
    stamp = colored(patches, capsule(patches, right, none, 0.5), torch.ones(1, 1), (1.0, 1.0, 1.0))
    row = put(torch.zeros(1, 3, *SIZE), [stamp])[0, 0]
    assert row[5].tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10
    assert not row[4].any()


def test_the_brighter_light_stays_and_the_pictures_given_are_not_written_to():
    pictures = torch.full((2, 1, 2, 2), 0.3)
    stamp = Stamp(torch.tensor([[0, 0, 1], [3, 3, 3]]), torch.tensor([[[0.5, 0.4, 0.1]], [[0.0, 0.9, 0.2]]]))
    assert put(pictures, [stamp]).tolist() == [
        [[[pytest.approx(0.5), pytest.approx(0.3)], [pytest.approx(0.3), pytest.approx(0.3)]]],
        [[[pytest.approx(0.3), pytest.approx(0.3)], [pytest.approx(0.3), pytest.approx(0.9)]]],
    ]
    assert (pictures == 0.3).all()
