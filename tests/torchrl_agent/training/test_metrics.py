"""Numbers for people: windows, CSV, TensorBoard and what a resumed run drops."""

import importlib.machinery
import json
import math
import sys
import time
import types

import pytest
import torch
from growing import SMALL as GROWING
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torchrl.record.loggers import wandb as torchrl_wandb

from envs import GrowthEnv
from torchrl_agent import Experiment, cli, train
from torchrl_agent.runs.metrics import EventsWriter, MetricsWriter, read_metrics
from torchrl_agent.training.metrics import EpisodeWindow, Figures, fetch, to_host, window_size


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


def test_the_host_averages_few_episodes_whatever_the_number_of_worlds():
    assert [window_size(worlds) for worlds in (8, 1000, 65_536)] == [100, 1000, 4096]


def test_other_statistics_keep_their_names():
    window = EpisodeWindow(10)
    window.add(finished(**{"return": [1.0], "length": [5.0], "spawners_destroyed": [3.0], "stage": [2.0]}))
    assert set(window.metrics()) == {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/spawners_destroyed",
        "rollout/episodes",
    }


def test_a_statistic_that_begins_later_is_averaged_from_then_on():
    window = EpisodeWindow(10)
    window.add(finished(**{"return": [1.0], "length": [5.0]}))
    window.add(finished(**{"return": [3.0], "length": [5.0], "energy": [4.0]}))
    metrics = window.metrics()
    assert (metrics["rollout/ep_rew_mean"], metrics["rollout/energy"]) == (2.0, 4.0)


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
    first, second = Figures({"a": torch.tensor(3.0)}), Figures(values)
    fetch(first, second)
    assert (first.read(), second.read()) == ({"a": 3.0}, to_host(values))


def test_the_csv_has_a_row_per_iteration(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(100, {"train/loss": 0.5, "rollout/ep_rew_mean": float("nan")})
    writer.write(200, {"train/loss": 0.25, "rollout/ep_rew_mean": 3.0})
    rows = read_metrics(tmp_path / "metrics.csv")  # on the disk before the writer is closed
    writer.close()
    assert [row["frames"] for row in rows] == ["100", "200"]
    assert [float(row["train/loss"]) for row in rows] == [0.5, 0.25]
    assert rows[0]["rollout/ep_rew_mean"] == "nan"
    assert not (tmp_path / "tensorboard").exists()


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


def test_tensorboard_shows_what_a_run_is_made_from(tmp_path):
    experiment = Experiment.load("smoke", f"run.folder={tmp_path}", "run.name=run", "device=cpu", "total_frames=512")
    experiment.run.film = experiment.run.final_evaluation = False
    for _ in train(experiment):
        pass
    folder = tmp_path / "run" / "tensorboard"
    assert [path.is_file() for path in folder.iterdir()] == [True]  # no folder that would be another run
    accumulator = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    accumulator.Reload()
    (text,) = accumulator.Tensors("configuration/text_summary")
    written = text.tensor_proto.string_val[0].decode()
    assert written.startswith("```yaml\n")
    assert (tmp_path / "run" / "config.yaml").read_text().strip() in written
    content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    shown = HParamsPluginData.FromString(content).session_start_info.hparams
    assert shown["algorithm.gamma"].number_value == experiment.algorithm.gamma
    assert shown["algorithm"].string_value == "ppo"
    assert shown["model.hidden_sizes"].string_value == str(list(experiment.model.hidden_sizes))
    assert shown["world._target_"].string_value == "envs.ArenaEnv"
    assert not [name for name in shown if name.startswith(("run.", "tuned.")) or name == "algorithm.target_kl"]
    content = accumulator.SummaryMetadata("_hparams_/experiment").plugin_data.content
    table = HParamsPluginData.FromString(content).experiment
    assert {info.name for info in table.hparam_infos} == set(shown)
    assert {info.name.tag for info in table.metric_infos} <= set(accumulator.Tags()["scalars"])


def test_a_resumed_run_drops_the_rows_that_its_checkpoint_does_not_know(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=True)
    for frames in (100, 200, 300, 400):
        writer.write(frames, {"train/loss": frames / 100})
    writer.close()
    time.sleep(1.0 - time.time() % 1.0)  # TensorBoard reads files by name: by their second, then as "10" before "9"
    resumed = MetricsWriter(tmp_path, tensorboard=True, resumed_at=200)
    resumed.write(300, {"train/loss": 33.0})
    resumed.close()
    rows = [(row["frames"], float(row["train/loss"])) for row in read_metrics(tmp_path / "metrics.csv")]
    assert rows == [("100", 1.0), ("200", 2.0), ("300", 33.0)]
    assert events(tmp_path / "tensorboard")["train/loss"] == [(100, 1.0), (200, 2.0), (300, 33.0)]


def test_rows_are_not_lost_where_the_columns_cannot_be_written_anew(tmp_path, monkeypatch):
    writer = MetricsWriter(tmp_path, tensorboard=False)
    writer.write(1, {"a": 1.0})
    monkeypatch.setattr("torchrl_agent.core.checkpoint.os.replace", lambda *_: 1 / 0)  # as if killed just before
    with pytest.raises(ZeroDivisionError):
        writer.write(2, {"b": 2.0})
    assert read_metrics(tmp_path / "metrics.csv") == [{"frames": "1", "a": "1.0"}]


def test_resuming_without_a_csv_begins_one(tmp_path):
    writer = MetricsWriter(tmp_path, tensorboard=False, resumed_at=200)
    writer.write(300, {"train/loss": 3.0})
    assert [row["frames"] for row in read_metrics(tmp_path / "metrics.csv")] == ["300"]


class FakeRun:
    """What a run of wandb is to TorchRL's logger."""

    def __init__(self, **arguments):
        self.arguments, self.rows, self.axes, self.finished = arguments, [], {}, False
        self.id, self.config = arguments["id"], self
        self.shown = {}

    def update(self, values, **_):
        self.shown.update(values)

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, row, **_):
        self.rows.append(dict(row))

    def finish(self, *_, **__):
        self.finished = True


@pytest.fixture
def fake_wandb(monkeypatch):
    """A stand-in for the package; the runs that were begun with it."""
    runs = []
    module = types.ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    module.init = lambda **arguments: runs.append(FakeRun(**arguments)) or runs[-1]
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(torchrl_wandb, "_has_wandb", True)
    return runs


QUICK = ["device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false"]


def test_weights_and_biases_gets_the_metrics_and_a_resumed_run_goes_on_there(tmp_path, fake_wandb):
    named = [f"run.folder={tmp_path}", "run.name=first", "run.wandb=moons", "total_frames=1024"]
    assert cli.main(["train", "smoke", *QUICK, *named]) == 0
    assert cli.main(["resume", str(tmp_path / "first"), "total_frames=1536"]) == 0
    first, second = fake_wandb
    assert first.arguments["project"] == "moons" and first.arguments["name"] == "first"
    assert first.arguments["id"] == second.arguments["id"] and len(first.id) == 8
    assert first.shown["algorithm"]["rollout_steps"] == 32
    assert "env" not in first.shown, "what is installed here is nobody's business"
    assert first.axes["train/value_loss"] == "train/step"
    rows = read_metrics(tmp_path / "first" / "metrics.csv")
    written = [*first.rows, *second.rows]
    assert [row["train/step"] for row in written] == [int(row["frames"]) for row in rows] == [512, 1024, 1536]
    assert [row["train/value_loss"] for row in written] == [float(row["train/value_loss"]) for row in rows]
    assert first.finished and second.finished


def test_a_run_without_the_package_is_refused_in_one_line_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["train", "smoke", *QUICK, f"run.folder={tmp_path}", "run.name=first", "run.wandb=moons"]) == 2
    error = capsys.readouterr().err
    assert "run.wandb is moons but wandb is not installed: pip install" in error and error.count("\n") == 1
    assert not (tmp_path / "first").exists()


def events_of(folder):
    return [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]


def test_events_are_lines_of_what_changed_and_a_resumed_run_drops_the_newer_ones(tmp_path):
    env, writer = GrowthEnv(2, rules=GROWING), EventsWriter(tmp_path)
    writer.write(10, {}, {"governor/returns": 0.0, "curriculum/stage": 0.0}, env)
    assert not (tmp_path / "events.jsonl").exists(), "nothing has happened"
    writer.write(20, {"governor/returns": 0.0, "a": 1.0}, {"governor/returns": 1.0, "a": 2.0}, env)
    env.rollout(3, env.players()["one"], break_when_any_done=False)
    writer.write(30, {"curriculum/stage": 1.0}, {"curriculum/stage": 2.0}, env)
    rollback = {"frames": 20, "kind": "governor rollback", "before": 0.0, "after": 1.0}
    stage = {"frames": 30, "kind": "curriculum stage", "before": 1.0, "after": 2.0}
    grown = {"frames": 30, "world": 0, "step": 3, "kind": "germinated", "slot": 0}
    assert events_of(tmp_path) == [rollback, stage, {**grown, "before": "dormant", "after": "training"}]
    resumed = EventsWriter(tmp_path, resumed_at=20)
    assert len(events_of(tmp_path)) == 3, "nothing is touched before the first line"
    resumed.write(30, {}, {}, GrowthEnv(2, rules=GROWING))
    assert events_of(tmp_path) == [rollback]


def test_damaged_events_are_refused_by_name(tmp_path):
    (tmp_path / "events.jsonl").write_text('{"kind": "stage"}\n')
    with pytest.raises(ValueError, match=r"events.jsonl is damaged \('frames'\): move it away"):
        EventsWriter(tmp_path, resumed_at=5)
