"""Pages of recorded results: as fresh as the files, with a table of each, and cells worked out by hand."""

from __future__ import annotations

import json

import pytest

from benchmarks import results_page
from benchmarks.results_page import FOLDER, LEFT_OUT, PAGES, RESULTS, agents, cells, hardware, markdown, page, recorded


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_as_fresh_as_the_files(name):
    assert (FOLDER / f"{name}.md").read_text(encoding="utf-8") == page(PAGES[name]), "python -m benchmarks results_page"


def test_every_file_of_results_has_a_table():
    files = {file for module in PAGES.values() for section in recorded(module) for file in section.files}
    assert files.isdisjoint(LEFT_OUT)
    assert files | set(LEFT_OUT) == {path.name for path in RESULTS.iterdir()}


def test_an_awaited_file_gets_its_table_once_it_is_recorded(tmp_path, monkeypatch):
    assert "One card" not in page(hardware)
    row = {"name": "arena", "first_update_s": 97.25, "loop_fps": 5_300_000, "of_goal": 0.265}
    (tmp_path / "gpu.json").write_text(json.dumps([{"rows": [row]}]))
    monkeypatch.setattr(results_page, "RESULTS", tmp_path)
    (section,) = [each for each in recorded(hardware) if "gpu.json" in each.files]
    assert "| arena |  | 97.25 |  |  |  |  | 5,300,000 |  |  | 0.265 |" in results_page.shown(section)


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (102.813, 1.96, "102.8 ± 2.0"),
        (-0.2377, 0.2092, "-0.24 ± 0.21"),
        (3017.9, 1336.7, "3,018 ± 1,337"),
        (5, 0, "5.0 ± 0.0"),
    ],
)
def test_an_interval_has_two_digits(mean, half, text):
    assert cells.plus_minus(mean, half) == text


def test_a_spread_is_students_interval():
    """Mean 4, deviation 1, three seeds: 4.303 / sqrt(3) = 2.484."""
    assert cells.spread([3.0, 5.0, 4.0]) == "4.0 ± 2.5"
    assert cells.spread([3.0]) == "3"


def test_numbers_and_ranges_are_short():
    assert [cells.number(each) for each in (12345, 12345.6, 0.12345, None)] == ["12,345", "12,346", "0.1235", ""]
    assert cells.between([0.25, 1.0, 0.5], 100, " %") == "25 to 100 %" and cells.between([2.0, 2.0]) == "2"
    assert cells.between([5209.7, 4057.9]) == "4,058 to 5,210"


def test_figures_of_both_modes_share_a_cell():
    rows = [{"worlds": 8, "mode": "eager", "speed": 10}, {"worlds": 8, "mode": "compiled", "speed": 3000}]
    rows.append({"worlds": 16, "mode": "compiled", "speed": 4000})
    header, found = cells.by_mode(rows, {"worlds": "worlds"}, {"steps/s": "speed"})
    assert header == ["worlds", "steps/s"]
    assert found == [["8", "10 / 3,000"], ["16", "4,000"]]


def test_a_table_in_markdown():
    assert markdown((["a", "b"], [["1", "2"]])) == "| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_a_claim_is_shown_with_its_ablation_and_further_seeds():
    figures = {
        "with": {"return_mean": [3.0, 5.0], "return_without_memory": [1.0, 1.0]},
        "without": {"return_mean": [2.0, 2.0]},
    }
    found = [{"check": "return with against without", "holds": True}]
    found.append({"check": "return of the trained agent beside return_without_memory", "holds": False})
    further = {"seeds": [2], "with": {"return_mean": [4.0]}, "without": {"return_mean": [2.0]}}
    claims = {"way back": {"figures": figures, "checks": found, "further_seeds": further}}
    _, rows = agents.level_claims({"claims": claims, "seeds": [0, 1]})
    assert rows == [["`way back`", "3", "4.0 ± 2.5", "2.0 ± 0.0", "2.0 ± 2.5 (+100%)", "1.0 ± 0.0 (2 seeds)"]]


def test_a_claim_that_holds_is_bold():
    figures = {"with": {"return_mean": [3.0, 5.0]}, "without": {"return_mean": [2.0, 2.0]}}
    claim = {"figures": figures, "checks": [{"check": "return with against without", "holds": True}]}
    _, rows = agents.level_claims({"claims": {"rival": claim}, "seeds": [0, 1]})
    assert rows[0][4] == "**2 ± 13 (+100%)**"


def test_the_command_writes_the_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(results_page, "FOLDER", tmp_path)
    results_page.run(None)
    assert {path.stem for path in tmp_path.iterdir()} == set(PAGES)
    assert (tmp_path / "hardware.md").read_text(encoding="utf-8") == page(PAGES["hardware"])
