"""The agents that come with the package: small, documented, and as good as their figures say."""

from __future__ import annotations

import json
import math
import re

import pytest

from torchrl_agent import cli, evaluate, load
from torchrl_agent.core.run_names import SHIPPED, find_run, output_of, run_name_of, shipped_runs
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.experiment.judging import WAYS
from torchrl_agent.training.evaluator import intervals

FEW = 4
RUNS = shipped_runs()
every_agent = pytest.mark.parametrize("name", RUNS)
EXPECTED = ("shipped:arena", "shipped:arena_style2", "shipped:duel")
EXPECTED += ("shipped:market_day", "shipped:payday", "shipped:tonight", "shipped:village", "shipped:way_back")
QUICK = ("shipped:duel",)
"""Agents whose games take a second."""


def recorded(name):
    return json.loads((RUNS[name] / "summary.json").read_text(encoding="utf-8"))


def test_these_come_with_the_package():
    assert tuple(RUNS) == EXPECTED


@every_agent
def test_it_is_small_needs_no_other_file_and_tells_how_it_was_made(name):
    folder = RUNS[name]
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 1_000_000
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    assert not re.search(r"runs/|/home|/work|/tmp", config.replace("folder: runs\n", ""))
    code = json.loads((folder / "code.json").read_text(encoding="utf-8"))
    assert len(code["commit"]) == 40 and not code["changes"] and code["versions"]["torch"]
    table = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert f"`{name}`" in table
    assert re.search(
        rf"train {recorded(name)['config']} .*run\.name={recorded(name)['origin']['run'].split('/')[0]}", table
    )
    assert f'load("{name}")' in (folder / "README.md").read_text(encoding="utf-8")


@every_agent
def test_its_weights_fit_its_configuration(name):
    experiment, agent = load(name, "cpu")
    world = agent.attach(experiment.make_world(evaluation=True, num_envs=2))
    assert world.rollout(2, agent.policy).shape[0] == 2


@pytest.mark.parametrize("name", QUICK)
def test_a_few_games_are_within_what_is_recorded(name):
    experiment, agent = load(name, "cpu")
    figures, known = evaluate(experiment, agent, FEW), recorded(name)["evaluation"]
    spread = max(known["return_std"], 0.01 * abs(known["return_mean"]))
    assert abs(figures["return_mean"] - known["return_mean"]) < 4 * spread / math.sqrt(FEW)


@pytest.mark.slow
@every_agent
@pytest.mark.parametrize("way", WAYS)
def test_all_games_are_as_recorded(name, way):
    experiment, agent = load(name, "cpu")
    known = recorded(name)["ways"][way]
    figures = evaluate(experiment, agent, known["episodes"], WAYS[way])
    for figure, (low, high) in intervals(known).items():  # of as many drawn games: each as far from the truth
        assert low - (high - low) <= figures[figure] <= high + (high - low), figure


# --- their names


def test_a_name_is_a_folder_and_a_folder_has_its_name(tmp_path):
    assert find_run("shipped:arena") == SHIPPED / "arena"
    assert run_name_of(SHIPPED / "arena") == "shipped:arena"
    assert find_run(str(tmp_path)) == find_run(tmp_path) == tmp_path
    assert run_name_of(tmp_path) == str(tmp_path)


def test_an_unknown_name_gets_the_nearest_one(capsys):
    with pytest.raises(ValueError, match=r"no agent shipped:arenaa comes .*\(did you mean shipped:arena\?\): use one"):
        load("shipped:arenaa")
    for words in (["film"], ["evaluate"], ["explain"], ["export"], ["plot"], ["compare"], ["resume"], ["league"]):
        assert cli.main([*words, "shipped:tonigth"]) == 2
        assert "(did you mean shipped:tonight?)" in capsys.readouterr().err
    assert cli.main(["match", "turret", "shipped:tonigth"]) == 2
    assert "(did you mean shipped:tonight?)" in capsys.readouterr().err


def test_what_is_made_of_one_goes_to_the_present_folder(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    assert output_of(run, "film.gif") == run / "film.gif"
    assert output_of(SHIPPED / "arena", "film.gif").as_posix() == "arena_film.gif"
    (checkpoint,) = (SHIPPED / "arena" / "checkpoints").glob("checkpoint_*.pt")
    assert output_of(checkpoint, "film.gif").as_posix() == "arena_film.gif"


# --- commands


@pytest.fixture
def untouched(tmp_path, monkeypatch):
    """An empty present folder; afterward the package is as it was."""
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in SHIPPED.rglob("*")}
    yield tmp_path
    assert {path: path.stat().st_mtime_ns for path in SHIPPED.rglob("*")} == before


def test_commands_take_their_names(untouched, capsys):
    for words in (
        ["film", "shipped:tonight", "--steps", "6", "--worlds", "1"],
        ["plot", "shipped:arena", "--output", "curves.png"],
        ["compare", "shipped:arena"],
        ["runs"],
    ):
        assert cli.main(words) == 0, words
    assert {path.name for path in untouched.iterdir()} == {"tonight_film.gif", "curves.png"}
    printed = capsys.readouterr().out
    assert all(name in printed for name in RUNS)


@pytest.mark.slow
def test_exported_files_go_to_the_present_folder(untouched):
    assert cli.main(["export", "shipped:tonight", "--module", "all"]) == 0
    assert (untouched / "tonight_policy.pt2").is_file()
    assert cli.main(["explain", "shipped:tonight", "--step", "40", "--output", "thought.html"]) == 0
    assert (untouched / "thought.html").is_file()


def test_none_can_be_resumed(untouched, capsys):
    assert cli.main(["resume", "shipped:tonight"]) == 2
    assert "shipped:tonight was exported without its optimizer" in capsys.readouterr().err


def test_runs_lists_own_runs_before_them_and_leaves_out_what_is_damaged(untouched, capsys):
    (untouched / "runs" / "broken").mkdir(parents=True)
    (untouched / "runs" / "broken" / "config.yaml").write_text("color: green\n", encoding="utf-8")
    own = untouched / "runs" / "own"
    own.mkdir()
    for name in ("config.yaml", "summary.json"):
        (own / name).write_text((RUNS["shipped:tonight"] / name).read_text(encoding="utf-8"), encoding="utf-8")
    assert cli.main(["runs", "--json"]) == 0
    *lines, found = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("left out: runs/broken")
    rows = json.loads(found)["runs"]
    assert [row["run"] for row in rows] == ["runs/own", *RUNS]
    for row in rows[1:]:
        assert row["return_mean"] == recorded(row["run"])["evaluation"]["return_mean"]
        assert row["config"] in {path.stem for path in CONFIGS.glob("*.yaml")}
