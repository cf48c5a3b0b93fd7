"""Which arrays are pictures, and where their channels are."""

import pytest

from envs.toolkit.pictures import picture_axes


@pytest.mark.parametrize(
    ("shape", "is_bytes", "axes"),
    [
        ((3, 64, 48), False, (0, 1, 2)),
        ((64, 48, 3), False, (2, 0, 1)),
        ((9, 9, 9), False, (2, 0, 1)),
        ((3, 64, 4), False, None),  # 4 columns
        ((5, 5), True, (0, 1)),
        ((5, 5), False, None),
        ((4, 64, 48, 3), True, (0, 3, 1, 2)),
        ((4, 64, 48, 3), False, None),
        ((8,), True, None),
    ],
)
def test_the_shape_decides(shape, is_bytes, axes):
    assert picture_axes(shape, is_bytes) == axes
