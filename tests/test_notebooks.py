"""The notebooks are small, clean and run from their first cell to their last."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib import util

import pytest

from torchrl_agent.experiment.compose import CONFIGS

ROOT = CONFIGS.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SMALL = {
    "01_meet_the_worlds": {"NUM_ENVS": 4, "STEPS": 20, "SPEED_SIZES": [2], "SPEED_STEPS": 3},
    "02_train_the_arena": {"TOTAL_FRAMES": 8_192, "NUM_ENVS": 32, "EPISODES": 2, "FILM_STEPS": 12, "COMPILE": False},
    "03_compose_your_own_pipeline": {"NUM_ENVS": 8, "STEPS": 16, "TOTAL_FRAMES": 512, "EPOCHS": 1, "MINIBATCH": 64},
    "04_a_day_in_town": {"NUM_ENVS": 2, "DAYS_BEFORE": 1, "HOURS": 4, "REPLAY_STEPS": 4},
    "05_look_inside_the_agent": {
        "NUM_ENVS": 10,
        "FRAMES": 320,
        "UPDATES": 5,
        "TOTAL_FRAMES": 320,
        "EPISODES": 4,
        "LIFETIME": 40,
        "STEP": 5,
        "STEPS": 24,
        "HORIZON": 5,
        "REPLAY_STEPS": 4,
    },
    "06_from_stable_baselines3": {
        "THEIR_FRAMES": 512,
        "OUR_FRAMES": 16_384,
        "NUM_ENVS": 8,
        "OBSERVATIONS": 1000,
        "EPISODES": 2,
        "FILM_STEPS": 8,
        "COMPILE": False,
    },
    "07_a_league": {
        "NUM_ENVS": 16,
        "TOTAL_FRAMES": 2_048,
        "SNAPSHOT_EVERY": 1_024,
        "GAMES": 4,
        "PAST": 2,
        "FILM_STEPS": 12,
    },
}
"""Sizes for a quick run, in place of those of the cell tagged ``parameters``."""
SHOWS = ("Image(", "pictures[", "plt.show()", "replay(")
"""Beginnings of the last lines of cells that show a picture or a page."""
SUBMITTED = ("01_meet_the_worlds", "03_compose_your_own_pipeline")
"""Notebooks that every submission runs."""
NEEDS = {"06_from_stable_baselines3": "stable_baselines3"}
"""What a notebook would install."""

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def cells(path, kind=None):
    found = json.loads(path.read_text())["cells"]
    return [cell for cell in found if kind in (None, cell["cell_type"])]


def text(cell):
    return "".join(cell["source"])


def parameters(path):
    tagged = [cell for cell in cells(path, "code") if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1
    return tagged[0]


def test_every_notebook_has_small_sizes_for_the_test():
    assert [path.stem for path in NOTEBOOKS] == list(SMALL)


@every_notebook
def test_it_is_committed_without_what_it_printed(path):
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@every_notebook
def test_it_begins_with_the_set_up_that_all_share(path):
    first = cells(path)[0]
    assert first["metadata"]["tags"] == ["set-up"]
    assert text(first) == text(cells(NOTEBOOKS[0])[0])
    assert 'find_spec("torchrl_agent")' in text(first)


@every_notebook
def test_it_names_no_place_of_the_machine_it_was_written_on(path):
    assert not re.search(r"""["'(\s](/|~/|[A-Z]:\\)\w""", "\n".join(map(text, cells(path))))


@every_notebook
def test_its_small_sizes_are_those_it_has(path):
    names = [node.targets[0].id for node in ast.parse(text(parameters(path))).body]
    assert names == list(SMALL[path.stem])


@pytest.fixture
def missing(monkeypatch, tmp_path):
    """A notebook's folder where the project is not installed; the commands that the set-up runs."""
    commands = []
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append((command[1:], check)))
    return commands


INSTALL = ["-m", "pip", "install", "--quiet"]


def test_the_set_up_does_nothing_where_the_project_is_installed(missing, monkeypatch):
    monkeypatch.setattr(util, "find_spec", lambda name: sys)
    exec(text(cells(NOTEBOOKS[0])[0]), {})
    assert missing == []


def set_up(repository):
    """The first cell, with an address in it."""
    return re.sub(r'(?m)^REPOSITORY = ".*?"', f'REPOSITORY = "{repository}"', text(cells(NOTEBOOKS[0])[0]))


def test_the_set_up_asks_for_the_address_of_the_repository_where_there_is_no_clone(missing):
    with pytest.raises(SystemExit, match="write the address of its git repository into REPOSITORY"):
        exec(set_up(""), {})
    assert missing == []


def test_the_set_up_installs_from_the_clone_or_from_the_repository(missing, tmp_path):
    exec(set_up("https://example.org/it.git"), {})
    (tmp_path / "pyproject.toml").touch()
    exec(set_up(""), {})
    assert missing == [([*INSTALL, "git+https://example.org/it.git"], True), ([*INSTALL, ".."], True)]


@pytest.fixture(scope="module")
def kernel():
    """The kernel of all notebooks: each would take seconds to import what they share."""
    for needed in ("ipykernel", "nbclient", "nbformat"):
        pytest.importorskip(needed)
    from jupyter_client.manager import AsyncKernelManager
    from jupyter_core.utils import run_sync

    with pytest.MonkeyPatch.context() as patch:
        paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        manager = AsyncKernelManager(kernel_name="python3")
        yield manager  # the first notebook starts it
        run_sync(manager.shutdown_kernel)(now=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=pytest.mark.ci if path.stem in SUBMITTED else ()) for path in NOTEBOOKS],
)
def test_it_runs(path, tmp_path, kernel):
    import nbclient
    import nbformat

    pytest.importorskip(NEEDS.get(path.stem, "torch"))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    sizes = "\n".join(f"{name} = {value!r}" for name, value in SMALL[path.stem].items())
    sizes += "\nimport short_games\nshort_games.shorten()"
    sizes += "\nimport functools, torch"  # to trace shows that it can be compiled; to generate code takes a minute
    sizes += "\ntorch.compile = functools.partial(torch.compile, backend='eager')"
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = sizes
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}"))
    nbclient.NotebookClient(notebook, timeout=600, km=kernel).execute()
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [cell for cell in code if cell.source.splitlines()[-1].startswith(SHOWS)]
    assert shown
    for cell in shown:
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        assert kinds & {"image/png", "image/gif", "text/html"}, cell.source
    assert not [output.text for cell in code for output in cell.outputs if "\x1b[" in output.get("text", "")]
