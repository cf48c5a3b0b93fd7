"""Studies that are run from a clone: what they keep, continue from and print."""

import json

import pytest

from benchmarks import __main__ as studies
from benchmarks import against_sb3, lag
from benchmarks.against_sb3 import welch
from torchrl_agent import cli
from torchrl_agent.core.tables import student


def test_studies_are_listed_and_unknown_ones_refused(capsys):
    assert studies.main([]) == 0 and studies.main(["nothing"]) == 2
    printed = capsys.readouterr().out
    assert all(f"python -m benchmarks {name}" in printed for name in studies.STUDIES)


@pytest.mark.parametrize("name", studies.STUDIES)
def test_each_study_says_what_it_takes(name, capsys):
    with pytest.raises(SystemExit) as ended:
        studies.main([name, "--help"])
    assert ended.value.code == 0 and f"python -m benchmarks {name}" in capsys.readouterr().out


def test_a_result_is_recorded_with_what_it_was_measured_of(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(studies, "RESULTS", tmp_path)
    monkeypatch.setattr(lag, "measure_lag", lambda config, overrides, seeds, lags, steps: {"seeds": seeds, "rows": []})
    assert studies.main(["lag", "--seeds", "3", "4", "--json", "--record", "cartpole", "seed=1"]) == 0
    (recorded,) = json.loads((tmp_path / "lag.json").read_text())
    assert recorded["config"] == "cartpole" and recorded["overrides"] == ["seed=1"] and recorded["seeds"] == [3, 4]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["versions"] == recorded["versions"]


@pytest.mark.parametrize(
    "words", [["bench", "league"], ["bench", "modules"], ["bench", "learn", "--seconds", "3"], ["roofline", "arena"]]
)
def test_the_command_says_where_its_former_studies_are(words, capsys):
    try:
        code = cli.main(words)
    except SystemExit as ended:
        code = ended.code
    assert code == 2 and "python -m benchmarks" in capsys.readouterr().err


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(against_sb3, "RESULTS", tmp_path)
    return tmp_path


def put(side, seed, value, seconds=10.0):
    result = {"side": side, "return_mean": value, "processor_seconds": seconds}
    against_sb3.file_of("hopper_ppo", side, seed).write_text(json.dumps(result))


def test_the_table_has_means_intervals_and_their_difference(results, capsys):
    ours, theirs = (900.0, 1100.0, 1000.0), (500.0, 700.0)
    for side, values in zip(against_sb3.SIDES, (ours, theirs), strict=True):
        for seed, value in enumerate(values):
            put(side, seed, value, 10.0 + seed)
    assert studies.main(["against_sb3", "--table"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("hopper_ppo"))
    difference, half = welch(ours, theirs)
    assert difference == 400.0
    for expected in ("200,000", "1000 ±", "(3)", "600 ±", "(2)", f"{400 - half:.4g} to {400 + half:.4g}", "11", "10"):
        assert expected in row, expected


def test_a_study_goes_on_from_what_there_is(results, monkeypatch):
    put(against_sb3.SIDES[0], 0, 1.0)
    trained = []
    monkeypatch.setattr(against_sb3, "train_missing", trained.extend)
    studies.main(["against_sb3", "hopper_ppo", "--seeds", "0", "1"])
    ours, theirs = against_sb3.SIDES
    assert trained == [("hopper_ppo", theirs, 0), ("hopper_ppo", ours, 1), ("hopper_ppo", theirs, 1)]


def test_unknown_tasks_are_refused(results, capsys):
    assert studies.main(["against_sb3", "walker"]) == 2
    assert "there is no task walker: use one of hopper_ppo" in capsys.readouterr().err


def test_welchs_interval_by_hand():
    """Squared errors of the means 1 / 3 and 14.75 / 12; degrees of freedom by Welch and Satterthwaite."""
    ones, others = (9.0, 10.0, 11.0), (3.0, 4.0, 4.0, 8.0)  # a mean of 4.75, a variance of 14.75 / 3
    errors = 1 / 3, 14.75 / 3 / 4
    freedom = int(sum(errors) ** 2 / (errors[0] ** 2 / 2 + errors[1] ** 2 / 3))
    difference, half = welch(ones, others)
    assert difference == pytest.approx(5.25)
    assert half == pytest.approx(student(freedom) * sum(errors) ** 0.5)
    with pytest.raises(ValueError, match="give two or more each"):
        welch((1.0,), others)


def test_code_of_a_stranger_runs_only_if_it_is_trusted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "evil.yaml").write_text(
        "defaults: [experiment_schema, _self_]\nname: evil\nworld: {_target_: evil.World, num_envs: 1}\n"
    )
    assert studies.main(["population", "evil.yaml"]) == 2
    assert "names evil.World" in capsys.readouterr().err
