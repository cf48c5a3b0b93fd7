import sys

import numpy as np
import pytest
from PIL import Image

from envs.toolkit.film import grid, write_film


def moving_square(number=12, height=48, width=64):
    frames = np.full((number, height, width, 3), (20, 26, 38), np.uint8)
    for index, frame in enumerate(frames):
        frame[10:20, 4 * index : 4 * index + 8] = (224, 92, 22)
    return list(frames)


def test_a_gif_shows_every_frame_in_its_colors_for_ever(tmp_path):
    frames = moving_square()
    path = write_film(frames, tmp_path / "new folder" / "film.gif", fps=30)
    with Image.open(path) as film:
        assert film.n_frames == len(frames)
        assert film.info["loop"] == 0
        lengths = []
        for index, frame in enumerate(frames):
            film.seek(index)
            lengths.append(film.info["duration"])
            assert np.abs(np.array(film.convert("RGB")).astype(int) - frame).max() <= 8
    assert sum(lengths) == 400  # milliseconds, although 1/30 s is no whole number of hundredths
    assert path.stat().st_size < 3_000  # one palette, and only what moves


def test_a_longer_gif_of_pauses_keeps_its_length(tmp_path):
    frames = [frame for frame in moving_square() for _ in range(3)]
    with Image.open(write_film(frames, tmp_path / "film.gif", fps=20)) as film:
        total = 0
        for index in range(film.n_frames):
            film.seek(index)
            total += film.info["duration"]
    assert total == 50 * len(frames)


def test_an_mp4_can_be_read_back(tmp_path):
    imageio = pytest.importorskip("imageio.v2")
    pytest.importorskip("imageio_ffmpeg")
    frames = moving_square(height=49, width=65)  # odd: the last row and column are cut
    path = write_film(frames, str(tmp_path / "film.mp4"), fps=10)
    with imageio.get_reader(path) as film:
        pictures = [np.asarray(picture) for picture in film]
    assert len(pictures) == len(frames)
    assert pictures[0].shape == (48, 64, 3)
    assert np.abs(pictures[3].astype(int) - frames[3][:48, :64]).mean() < 8


@pytest.mark.parametrize("missing", ["imageio", "imageio_ffmpeg"])
def test_an_mp4_without_its_extra_names_the_pip_line(tmp_path, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match=r'pip install "torchrl-agent\[video\]"'):
        write_film(moving_square(), tmp_path / "film.mp4")
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_film_and_nothing_else(tmp_path, monkeypatch):
    path = write_film(moving_square(), tmp_path / "film.gif")
    before = path.read_bytes()

    def fail_halfway(image, name, **options):
        name.write_bytes(b"half a film")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail_halfway)
    with pytest.raises(OSError, match="disk full"):
        write_film(moving_square(), path)
    assert [file.name for file in tmp_path.iterdir()] == ["film.gif"]
    assert path.read_bytes() == before


def test_other_suffixes_and_frames_are_refused_in_a_sentence(tmp_path):
    for name in ("film.avi", "film"):
        with pytest.raises(ValueError, match=r"ends in \.gif or \.mp4"):
            write_film(moving_square(), tmp_path / name)
    with pytest.raises(ValueError, match="no frames"):
        write_film([], tmp_path / "film.gif")
    with pytest.raises(ValueError, match="frame 0 is float64"):
        write_film([np.zeros((4, 4, 3))], tmp_path / "film.gif")
    with pytest.raises(ValueError, match="frame 1 has shape"):
        write_film([np.zeros((4, 4, 3), np.uint8), np.zeros((4, 5, 3), np.uint8)], tmp_path / "film.gif")
    with pytest.raises(ValueError, match="fps is 0"):
        write_film(moving_square(), tmp_path / "film.gif", fps=0)
    assert not list(tmp_path.iterdir())


def test_a_grid_puts_frames_side_by_side_row_by_row():
    frames = [np.full((10, 20, 3), value, np.uint8) for value in (1, 2, 3, 4, 5)]
    whole = grid(frames, gap=2)
    assert whole.shape == (22, 64, 3)
    assert [whole[5, x, 0] for x in (10, 32, 54)] == [1, 2, 3]
    assert [whole[15, x, 0] for x in (10, 32, 54)] == [4, 5, 0]
    assert whole[5, 20:22].max() == 0
    assert grid(frames[:1]).shape == (10, 20, 3)
    assert grid(frames, columns=9, gap=0).shape == (10, 100, 3)
