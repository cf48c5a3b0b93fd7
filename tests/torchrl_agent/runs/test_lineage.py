"""Lineages: read from tables written by hand, and drawn."""

import csv
import math

import pytest
from PIL import Image

from torchrl_agent import cli
from torchrl_agent.runs.lineage import FIRST_PARENT, SECOND_PARENT, describe, draw, plot_lineage, read_lineage

FITNESS = {100: [1.0, math.nan, 3.0], 200: [2.0, 5.0, 4.0]}


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


@pytest.fixture
def run(tmp_path):
    """Three members and two steps: at the first, 0 becomes a copy of 2, at the second a child of 1 and 2."""
    members = [{"frames": f, "member": m, "fitness": v} for f, row in FITNESS.items() for m, v in enumerate(row)]
    write(tmp_path / "members.csv", members)
    births = [(100, 0, 2, 2), (200, 0, 1, 2)]
    names = ("frames", "child", "parent", "second_parent")
    write(tmp_path / "lineage.csv", [dict(zip(names, birth, strict=True)) for birth in births])
    return tmp_path


def lines(figure, color):
    """From and to, of the lines of a color: (step, member) each."""
    drawn = [line for line in figure.axes[0].get_lines() if line.get_color() == color and len(line.get_xdata())]
    return [tuple(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in drawn]


def test_evolution_steps_and_births_are_read(run):
    lineage = read_lineage(run)
    assert lineage.frames == [100, 200]
    assert lineage.fitness[1] == FITNESS[200]
    assert math.isnan(lineage.fitness[0][1])
    assert lineage.parents == [{0: (2, 2)}, {0: (1, 2)}]
    assert describe(lineage) == (
        "Who descends from whom among 3 members over 2 steps: 2 were replaced, 1 of them by children of two parents, "
        "the fittest at the last one 5."
    )


def test_lines_go_from_parents_to_children(run):
    figure = draw(read_lineage(run))
    assert lines(figure, FIRST_PARENT) == [((0, 2), (1, 0)), ((1, 1), (2, 0))]
    assert lines(figure, SECOND_PARENT) == [((1, 2), (2, 0))]
    stayed = {((step, member), (step + 1, member)) for step in (0, 1) for member in (1, 2)}
    assert set(lines(figure, "0.8")) == stayed
    unknown, judged = figure.axes[0].collections
    assert {tuple(point) for point in unknown.get_offsets().tolist()} == {(0, 1), (2, 0), (2, 1), (2, 2)}
    assert judged.get_array().tolist() == [1.0, 3.0, 2.0, 5.0, 4.0]


def test_the_verb_draws_a_picture_that_says_what_it_shows(run, capsys, tmp_path):
    output = tmp_path / "tree.png"
    assert cli.main(["plot", str(run), "--lineage", "--output", str(output)]) == 0
    assert capsys.readouterr().out.strip() == str(output)
    with Image.open(output) as picture:
        assert picture.info["Description"] == describe(read_lineage(run))
        assert picture.width > 200
    plot_lineage(run, tmp_path / "tree.svg")
    assert "descends from whom" in (tmp_path / "tree.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--output", "tree.pdf"], "cannot be written as 'tree.pdf': use a name that ends in .png, .svg"),
        (["--metric", "rollout/ep_len_mean"], "give one RUN and no --metric"),
        (["elsewhere"], "give one RUN and no --metric"),
    ],
)
def test_what_the_verb_refuses(run, capsys, arguments, sentence):
    assert cli.main(["plot", *arguments, str(run), "--lineage"]) == 2
    assert sentence in capsys.readouterr().err


def test_a_run_without_a_lineage_or_with_a_damaged_one(run, tmp_path):
    with pytest.raises(ValueError, match=r"has no members\.csv: give the run of a population that evolves"):
        read_lineage(tmp_path / "nothing")
    (run / "lineage.csv").unlink()  # no member was replaced yet
    assert read_lineage(run).parents == [{}, {}]
    write(run / "lineage.csv", [{"frames": 100, "child": 0, "parent": 7, "second_parent": 0}])
    with pytest.raises(ValueError, match=r"lineage\.csv is damaged"):
        read_lineage(run)
    write(run / "members.csv", [{"frames": "many", "member": 0, "fitness": 1}])
    with pytest.raises(ValueError, match=r"members\.csv is damaged"):
        read_lineage(run)
