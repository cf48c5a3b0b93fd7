"""Numbers for people: windows, CSV, TensorBoard and what a resumed run drops."""

import math

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from torchrl_agent.training.metrics import EpisodeWindow, MetricsWriter, read_metrics, to_host


def finished(**columns):
    return {name: torch.tensor(values) for name, values in columns.items()}


def test_means_are_over_the_latest_episodes_of_the_window():
    window = EpisodeWindow(3)
    window.add(finished(**{"return": [100.0, 1.0], "length": [10.0, 20.0], "win": [1.0, 0.0]}))
    window.add(finished(**{"return": [2.0, 6.0], "length": [30.0, 40.0], "win": [0.0, 1.0]}))
    assert window.metrics() == pytest.approx(
        {
            "rollout/ep_rew_mean": 3.0,  # of 1, 2, 6
            "rollout/ep_len_mean": 30.0,
            "rollout/success_rate": 1 / 3,
            "rollout/episodes": 4.0,
        }
    )


def test_other_statistics_keep_their_names():
    window = EpisodeWindow(10)
    window.add(finished(**{"return": [1.0], "length": [5.0], "spawners_destroyed": [3.0], "stage": [2.0]}))
    assert set(window.metrics()) == {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/spawners_destroyed",
        "rollout/episodes",
    }


def test_before_any_episode_the_means_are_nan():
    window = EpisodeWindow(10)
    window.add(finished(**{"return": [], "length": []}))
    metrics = window.metrics()
    assert math.isnan(metrics["rollout/ep_rew_mean"])
    assert metrics["rollout/episodes"] == 0.0


def test_incomplete_episodes_are_not_counted_once_there_is_a_whole_one():
    window = EpisodeWindow(10)
    window.add(finished(**{"return": [5.0, 7.0], "length": [3.0, 3.0], "complete": [0.0, 0.0]}))
    assert window.metrics()["rollout/ep_rew_mean"] == 6.0  # better than nothing
    window.add(finished(**{"return": [100.0, 3.0, 200.0], "length": [9.0, 8.0, 9.0], "complete": [1.0, 0.0, 1.0]}))
    metrics = window.metrics()
    assert metrics["rollout/ep_rew_mean"] == 150.0
    assert metrics["rollout/ep_len_mean"] == 9.0
    assert "rollout/complete" not in metrics


def test_a_window_goes_on_from_its_saved_state():
    first, second = EpisodeWindow(3), EpisodeWindow(3)
    first.add(finished(**{"return": [1.0, 2.0, 3.0, 4.0]}))
    second.load_state_dict(first.state_dict())
    for window in (first, second):
        window.add(finished(**{"return": [5.0]}))
    assert second.metrics() == first.metrics()
    assert second.metrics()["rollout/ep_rew_mean"] == 4.0
    assert second.metrics()["rollout/episodes"] == 5.0


def test_device_scalars_come_to_the_host_together():
    values = {"a": torch.tensor(1.5), "b": torch.tensor([2]), "c": torch.tensor(True)}
    assert to_host(values) == {"a": 1.5, "b": 2.0, "c": 1.0}
    assert to_host({}) == {}


def test_the_csv_has_a_row_per_iteration(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(100, {"train/loss": 0.5, "rollout/ep_rew_mean": float("nan")})
    writer.write(200, {"train/loss": 0.25, "rollout/ep_rew_mean": 3.0})
    writer.close()
    rows = read_metrics(tmp_path / "metrics.csv")
    assert [row["frames"] for row in rows] == ["100", "200"]
    assert [float(row["train/loss"]) for row in rows] == [0.5, 0.25]
    assert rows[0]["rollout/ep_rew_mean"] == "nan"
    assert not (tmp_path / "tensorboard").exists()


def test_rows_are_on_disk_before_the_writer_is_closed(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(100, {"train/loss": 0.5})
    assert len(read_metrics(tmp_path / "metrics.csv")) == 1


def test_statistics_that_appear_later_are_in_the_csv_too(tmp_path):
    """The first iterations of a world with long episodes know no episode statistics by name."""
    window, writer = EpisodeWindow(10), MetricsWriter(tmp_path, tensorboard=False)
    writer.write(100, window.metrics())
    window.add(finished(**{"return": [1.0], "length": [5.0], "spawners_destroyed": [3.0]}))
    writer.write(200, window.metrics())
    writer.close()
    rows = read_metrics(tmp_path / "metrics.csv")
    assert rows[1]["rollout/ep_rew_mean"] == "1.0"
    assert rows[1].get("rollout/spawners_destroyed") == "3.0"


def events(folder):
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}


def test_tensorboard_gets_the_same_tags_over_frames(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=True)
    writer.write(100, {"train/value_loss": 0.5, "rollout/ep_rew_mean": 1.0})
    writer.write(200, {"train/value_loss": 0.25, "rollout/ep_rew_mean": 3.0})
    writer.close()
    assert events(tmp_path / "tensorboard") == {
        "train/value_loss": [(100, 0.5), (200, 0.25)],
        "rollout/ep_rew_mean": [(100, 1.0), (200, 3.0)],
    }


def test_a_resumed_run_drops_the_rows_that_its_checkpoint_does_not_know(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=True)
    for frames in (100, 200, 300, 400):
        writer.write(frames, {"train/loss": frames / 100})
    writer.close()
    resumed = MetricsWriter(tmp_path, tensorboard=True, resumed_at=200)
    resumed.write(300, {"train/loss": 33.0})
    resumed.close()
    rows = [(row["frames"], float(row["train/loss"])) for row in read_metrics(tmp_path / "metrics.csv")]
    assert rows == [("100", 1.0), ("200", 2.0), ("300", 33.0)]
    assert (300, 33.0) in events(tmp_path / "tensorboard")["train/loss"]


def test_resuming_without_a_csv_begins_one(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False, resumed_at=200)
    writer.write(300, {"train/loss": 3.0})
    assert [row["frames"] for row in read_metrics(tmp_path / "metrics.csv")] == ["300"]
