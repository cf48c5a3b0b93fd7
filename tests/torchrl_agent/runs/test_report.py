"""Learning curves and tables: the numbers that are drawn and printed, from run folders written by hand."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchrl_agent import cli
from torchrl_agent.experiment import Experiment
from torchrl_agent.runs import report

RETURN = "rollout/ep_rew_mean"


def make_run(folder, seed=0, returns=(1.0, 2.0), summary=None, config="smoke", **settings):
    """A run folder with a row of metrics.csv each 512 frames."""
    folder.mkdir(parents=True)
    changes = [f"{name.replace('__', '.')}={value}" for name, value in settings.items()]
    experiment = Experiment.load(config, f"seed={seed}", f"run.name={folder.name}", *changes)
    (folder / "config.yaml").write_text(experiment.to_yaml())
    write_metrics(folder, returns)
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def write_metrics(folder, returns):
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["frames", RETURN, "train/entropy"])
        writer.writerows([512 * (row + 1), value, 0.5] for row, value in enumerate(returns))


def make_summary(seconds, score, **evaluation):
    return {"frames": 1024, "seconds": seconds, "metrics": {RETURN: score}, **evaluation}


def refused(arguments, capsys):
    """Exit code 2 and exactly one line on stderr, which is returned."""
    assert cli.main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.rstrip("\n").split("\n")) == 1, printed.err
    assert printed.err.startswith("torchrl-agent: ")
    return printed.err


def drawn(panel):
    """What a panel shows: label, frames and values of each curve."""
    return {line.get_label(): (line.get_xdata().tolist(), line.get_ydata().tolist()) for line in panel.get_lines()}


# --- which runs belong together


def test_seeds_of_one_configuration_are_one_group_and_settings_tell_groups_apart(tmp_path):
    folders = [make_run(tmp_path / f"low-{seed}", seed, algorithm__gamma=0.9) for seed in (0, 1)]
    folders += [make_run(tmp_path / f"high-{seed}", seed, algorithm__gamma=0.99, run__film=False) for seed in (0, 1, 2)]
    folders.append(make_run(tmp_path / "pole", config="cartpole"))
    groups = report.group_runs(folders)
    assert {label: [run.seed for run in runs] for label, runs in groups.items()} == {
        "smoke algorithm.gamma=0.9": [0, 1],
        "smoke algorithm.gamma=0.99": [0, 1, 2],
        "cartpole": [0],
    }


def test_pre_trained_modules_among_runs_are_left_out_and_alone_are_drawn(tmp_path):
    run, module = make_run(tmp_path / "first"), make_run(tmp_path / "friend_read")
    (module / "module.pt").touch()
    (runs,) = report.group_runs([run, module]).values()
    assert [read.folder for read in runs] == [run]
    (alone,) = report.group_runs([module]).values()
    assert [read.folder for read in alone] == [module]


def test_a_seed_given_again_begins_another_group(tmp_path):
    folders = [make_run(tmp_path / f"{age}-{seed}", seed) for age in ("old", "new") for seed in (0, 1)]
    groups = report.group_runs(folders)
    assert {label: [run.folder for run in runs] for label, runs in groups.items()} == {
        f"smoke from {folders[0]}": folders[:2],
        f"smoke from {folders[2]}": folders[2:],
    }


def test_configurations_that_differ_in_much_are_named_by_a_run(tmp_path):
    plain = make_run(tmp_path / "plain")
    other = make_run(
        tmp_path / "other", algorithm__gamma=0.5, algorithm__lmbda=0.5, total_frames=99, algorithm__num_epochs=9
    )
    assert list(report.group_runs([plain, other])) == [f"smoke from {plain}", f"smoke from {other}"]


# --- curves


@pytest.mark.parametrize(
    ("returns", "mean", "low", "high"),
    [
        ([(1.0, 5.0)], [1, 5], [1, 5], [1, 5]),  # one run as it is
        ([(1.0, 8.0), (3.0, 2.0)], [2, 5], [1, 2], [3, 8]),  # between the smallest and the largest
        # of 0, 3, 6 a resample is all 0 once in 27, more than 2.5 %: the bootstrap interval is all of [0, 6]
        ([(0.0, 7.0), (3.0, 7.0), (6.0, 7.0)], [3, 7], [0, 7], [6, 7]),
    ],
)
def test_seeds_are_their_mean_and_how_far_it_may_be_off(returns, mean, low, high, tmp_path):
    curve = report.learning_curve([make_run(tmp_path / str(i), i, each) for i, each in enumerate(returns)], RETURN)
    assert curve.x.tolist() == [512, 1024]
    assert [part.tolist() for part in (curve.mean, curve.low, curve.high)] == [
        pytest.approx(p) for p in (mean, low, high)
    ]


def test_the_interval_of_many_seeds_is_that_of_a_normal_mean(tmp_path):
    """Fifty values of deviation 1: 1.96 / sqrt(50) = 0.277 to either side of the mean."""
    values = np.random.default_rng(1).normal(size=50)
    values = (values - values.mean()) / values.std()
    folders = [tmp_path / str(seed) for seed in range(50)]
    for folder, value in zip(folders, values, strict=True):
        folder.mkdir()
        write_metrics(folder, (value,))
    curve = report.learning_curve(folders, RETURN)
    assert curve.mean == pytest.approx([0.0], abs=1e-12)
    assert curve.low == pytest.approx([-0.277], abs=0.03)
    assert curve.high == pytest.approx([0.277], abs=0.03)
    again = report.learning_curve(folders, RETURN)
    assert (again.low, again.high) == (curve.low, curve.high)


def test_a_curve_holds_only_frames_where_every_seed_has_a_number(tmp_path):
    longer = make_run(tmp_path / "longer", 0, ("nan", 2.0, 4.0, 6.0))
    shorter = make_run(tmp_path / "shorter", 1, (1.0, 4.0, ""))
    curve = report.learning_curve([longer, shorter], RETURN)
    assert (curve.x.tolist(), curve.mean.tolist()) == ([1024.0], [3.0])


def test_the_figure_shows_a_panel_per_metric_and_a_curve_per_configuration(tmp_path):
    folders = [make_run(tmp_path / f"s{seed}", seed, (seed, 2.0 + seed)) for seed in (0, 2)]
    folders.append(make_run(tmp_path / "pole", 7, (9.0,), config="cartpole"))
    figure = report.draw(report.group_runs(folders), [RETURN, "train/entropy"])
    first, second = figure.axes
    smoke, pole = "smoke (mean of 2 seeds, smallest to largest)", "cartpole (seed 7)"
    assert drawn(first) == {smoke: ([512, 1024], [1.0, 3.0]), pole: ([512], [9.0])}
    assert drawn(second) == {smoke: ([512, 1024], [0.5, 0.5]), pole: ([512], [0.5])}
    assert (first.get_ylabel(), second.get_ylabel()) == (RETURN, "train/entropy")
    assert "frames" in second.get_xlabel()
    (band,) = first.collections
    corners = {tuple(corner) for corner in band.get_paths()[0].vertices.tolist()}
    assert {(512, 0.0), (512, 2.0), (1024, 2.0), (1024, 4.0)} <= corners
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [smoke, pole]
    assert len({line.get_color() for line in first.get_lines()}) == 2


def test_no_two_of_many_curves_look_alike(tmp_path):
    folders = [make_run(tmp_path / str(frames), total_frames=frames) for frames in range(1, 16)]
    (panel,) = report.draw(report.group_runs(folders), [RETURN]).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in panel.get_lines()}) == 15


def test_plot_writes_the_picture_that_it_names_and_nothing_else(tmp_path, capsys):
    run, path = make_run(tmp_path / "run"), tmp_path / "new" / "curves.png"
    arguments = ["plot", str(run), "--metric", RETURN, "--metric", "train/entropy", "--metric", RETURN]
    assert cli.main([*arguments, "--output", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert [found.name for found in path.parent.iterdir()] == ["curves.png"]
    with Image.open(path) as two:
        two.load()
        assert cli.main(["plot", str(run), "--output", str(path)]) == 0
        with Image.open(path) as one:
            assert one.width == two.width
            assert one.height < two.height


def test_smoothing_weighs_what_lies_before_less_and_less():
    assert report.smoothed([4.0, 8.0, 0.0], 0.5) == pytest.approx([4.0, 20 / 3, 20 / 7])  # (2+8)/1.5, (1+4+0)/1.75
    assert report.smoothed([4.0, 8.0], 0.0) == [4.0, 8.0]


def test_against_time_runs_are_read_where_all_of_them_have_been(tmp_path):
    """At 512 and 256 frames per second: one after 1 and 2 seconds, the other after 2 and 4."""
    folders = [make_run(tmp_path / str(seed), seed) for seed in range(2)]
    for folder, returns, speed in zip(folders, ((0.0, 4.0), (10.0, 30.0)), (512, 256), strict=True):
        rows = [{"frames": 512 * (row + 1), RETURN: value, "time/fps": speed} for row, value in enumerate(returns)]
        with (folder / "metrics.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    alone = report.learning_curve(folders[:1], RETURN, report.WALL)
    assert (alone.x.tolist(), alone.mean.tolist()) == ([1.0, 2.0], [0.0, 4.0])
    both = report.learning_curve(folders, RETURN, report.WALL)
    assert (both.x[0], both.x[-1]) == (2.0, 2.0)  # the first ends where the second begins
    assert (both.mean[0], both.low[0], both.high[0]) == (7.0, 4.0, 10.0)
    assert (
        cli.main(["plot", *map(str, folders), "--x", "wall", "--smooth", "0.6", "--output", f"{tmp_path}/a.svg"]) == 0
    )
    assert (tmp_path / "a.svg").stat().st_size > 1000
    figure = report.draw(report.group_runs(folders), [RETURN], report.WALL)
    assert figure.axes[0].get_xlabel() == "seconds of collecting and learning"


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_plot_writes_vector_graphics(kind, tmp_path, capsys):
    path = tmp_path / f"curves.{kind}"
    assert cli.main(["plot", str(make_run(tmp_path / "run")), "--output", str(path)]) == 0
    assert path.stat().st_size > 1000


# --- tables


def test_compare_gives_each_run_and_mean_and_deviation_over_seeds(tmp_path):
    """Returns 10, 20, 30: mean 20, deviation of a sample 10."""
    folders = [
        make_run(
            tmp_path / f"s{seed}",
            seed,
            summary=make_summary(
                4.0 + seed, 5.0, evaluation={"episodes": 8, "return_mean": 10.0 * (seed + 1), "win_rate": 0.5}
            ),
        )
        for seed in range(3)
    ]
    alone = make_run(tmp_path / "alone", 4, config="cartpole", summary=make_summary(9.0, None))
    smoke, cartpole = report.compare([*folders, alone])
    assert smoke["config"] == "smoke"
    assert smoke["runs"][1] == {
        "run": str(folders[1]),
        "seed": 1,
        "frames": 1024,
        "seconds": 5.0,
        "training_return": 5.0,
        "episodes": 8,
        "return_mean": 20.0,
        "win_rate": 0.5,
    }
    assert (smoke["mean"]["return_mean"], smoke["standard_deviation"]["return_mean"]) == (20.0, pytest.approx(10.0))
    assert (smoke["mean"]["seconds"], smoke["standard_deviation"]["seconds"]) == (5.0, pytest.approx(1.0))
    assert smoke["mean"]["win_rate"] == 0.5
    assert "seed" not in smoke["mean"]
    assert cartpole.keys() == {"config", "runs"}
    assert cartpole["runs"][0]["training_return"] is None


def test_a_mean_is_over_all_runs_or_missing(tmp_path):
    judged = make_run(tmp_path / "judged", 0, summary=make_summary(4.0, 5.0, evaluation={"return_mean": 1.0}))
    unjudged = make_run(tmp_path / "unjudged", 1, summary=make_summary(4.0, 7.0))
    (entry,) = report.compare([judged, unjudged])
    assert "return_mean" not in entry["mean"]
    assert entry["mean"]["training_return"] == 6.0


def test_a_run_that_has_not_finished_shows_what_is_known(tmp_path):
    (entry,) = report.compare([make_run(tmp_path / "begun", returns=(1.0, 3.0))])
    (row,) = entry["runs"]
    assert (row["frames"], row["seconds"], row["training_return"]) == (1024, None, 3.0)


def test_compare_prints_rows_under_one_another_and_one_object_last(tmp_path, capsys):
    folders = [
        make_run(tmp_path / str(seed), seed, summary=make_summary(seed, 2500.5, evaluation={"win_rate": seed / 4}))
        for seed in (1, 2)
    ]
    assert cli.main(["compare", *map(str, folders), "--json"]) == 0
    *rows, last = capsys.readouterr().out.rstrip("\n").split("\n")
    assert [row.split() for row in rows] == [
        ["run", "config", "seed", "frames", "seconds", "training_return", "win_rate"],
        [str(folders[0]), "smoke", "1", "1,024", "1", "2,500", "0.25"],
        [str(folders[1]), "smoke", "2", "1,024", "2", "2,500", "0.5"],
        ["smoke", "mean", "1,024", "1.5", "2,500", "0.375"],
        ["smoke", "std", "0", "0.7071", "0", "0.1768"],
    ]
    assert len({len(row) for row in rows}) == 1
    assert json.loads(last)["configurations"] == report.compare(folders)


def test_four_runs_have_an_interquartile_mean_and_tables_have_other_forms(tmp_path, capsys):
    """Of 1, 2, 3 and 100 the middle half is 2 and 3."""
    folders = [
        make_run(tmp_path / str(seed), seed, summary=make_summary(1.0, value))
        for seed, value in enumerate((1.0, 2.0, 3.0, 100.0))
    ]
    (entry,) = report.compare(folders)
    assert entry["interquartile_mean"]["training_return"] == 2.5
    assert "interquartile_mean" not in report.compare(folders[:3])[0]
    assert cli.main(["compare", *map(str, folders), "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["seed"] for row in rows] == ["0", "1", "2", "3", "mean", "std", "iqm"]
    assert [float(row["training_return"]) for row in rows[-3:]] == [
        26.5,
        entry["standard_deviation"]["training_return"],
        2.5,
    ]
    assert cli.main(["compare", *map(str, folders), "--markdown"]) == 0
    header, line, *others = capsys.readouterr().out.splitlines()
    assert header == "| run | config | seed | frames | seconds | training_return |"
    assert line == "|" + "---|" * 6
    assert others[-1] == "|  | smoke | iqm | 1,024 | 1 | 2.5 |"


# --- what cannot be


@pytest.mark.parametrize("verb", ["plot", "compare"])
def test_what_is_not_a_run_is_named(verb, tmp_path, capsys):
    (tmp_path / "note").write_text("not a folder")
    (tmp_path / "empty").mkdir()
    for name in ("note", "empty", "nowhere"):
        said = refused([verb, make_run(tmp_path / f"run-{name}"), tmp_path / name], capsys)
        assert str(tmp_path / name) in said
        assert "not a run" in said


@pytest.mark.parametrize("verb", ["plot", "compare"])
@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        *(("config.yaml", content, "config.yaml") for content in (b"", b"[1, 2]", b"a: [", b"seed: 1")),
        ("metrics.csv", None, "metrics.csv has no rows"),
        ("metrics.csv", b"", "metrics.csv has no rows"),
        ("metrics.csv", b"frames,rollout/ep_rew_mean\n", "metrics.csv has no rows"),
        ("metrics.csv", b"frames,rollout/ep_rew_mean\n512,much\n", "metrics.csv is damaged"),
        ("metrics.csv", b"\xff\xfe\x00", "metrics.csv is damaged"),
    ],
)
def test_a_file_that_is_missing_empty_or_damaged_is_named(verb, name, content, sentence, tmp_path, capsys):
    run = make_run(tmp_path / "run")
    (run / name).unlink()
    if content is not None:
        (run / name).write_bytes(content)
    assert sentence in refused([verb, run], capsys)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--metric", "rollout/fame"], ["rollout/fame", f"{RETURN}, train/entropy"]),
        (["--metric", RETURN], [RETURN]),  # without any number
        (["--output", "curves.doc"], ["curves.doc", ".png"]),
        (["--x", "wall", "--metric", "train/entropy"], ["from which its time is known: use --x frames"]),
        (["--smooth", "1"], ["--smooth is 1: give the weight"]),
    ],
)
def test_what_cannot_be_drawn_is_named(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    said = refused(["plot", make_run(tmp_path / "run", returns=("nan", "")), *words], capsys)
    assert all(name in said for name in named)


def test_seeds_without_a_common_frame_are_named(tmp_path, capsys):
    folders = [make_run(tmp_path / "a", 0, (1.0, "nan")), make_run(tmp_path / "b", 1, ("nan", 1.0))]
    said = refused(["plot", *folders], capsys)
    assert str(folders[0]) in said
    assert str(folders[1]) in said


@pytest.mark.parametrize("verb", ["plot", "compare"])
def test_a_run_given_twice_is_refused(verb, tmp_path, capsys):
    run = make_run(tmp_path / "run")
    assert "twice" in refused([verb, run, run / ".." / "run"], capsys)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"frames": 1, "seconds": "long", "metrics": {}}'])
def test_a_damaged_summary_is_named(text, tmp_path, capsys):
    run = make_run(tmp_path / "run")
    (run / "summary.json").write_text(text)
    assert "summary.json is damaged" in refused(["compare", run], capsys)


def test_an_output_that_cannot_be_written_is_named_and_nothing_is_left(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for output in (tmp_path / "file" / "curves.png", tmp_path / "folder.png", tmp_path / f"{'long' * 99}.png"):
        said = refused(["plot", run, "--output", output], capsys)
        assert str(output) in said
        assert "--output" in said
    assert sorted(tmp_path.rglob("*")) == before


def test_the_default_output_is_in_the_present_folder(tmp_path, monkeypatch, capsys):
    make_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plot", "run"]) == 0
    assert Path("curves.png").is_file()
