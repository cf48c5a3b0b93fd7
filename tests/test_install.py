"""What pip installs starts without the sources, wherever it is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("envs", "torchrl_agent", "configs", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
SMALL = ("device=cpu", "total_frames=512", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.xdist_group("install")]  # one wheel for all


def run(command, folder, **environment):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, cwd=folder, env=kept | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Folder of the programs of a fresh environment that has the wheel, and the packages that are installed here."""
    folder = tmp_path_factory.mktemp("install")
    sources = folder / "sources"
    sources.mkdir()
    run(["tar", "cf", folder / "sources.tar", "--exclude=__pycache__", *SOURCES], ROOT)
    run(["tar", "xf", folder / "sources.tar"], sources)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources], folder)
    (wheel,) = folder.glob("torchrl_agent-*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    (place,) = environment.glob("lib/python*/site-packages")
    others = [entry for entry in sys.path if entry.endswith("-packages")]
    (place / "others.pth").write_text("\n".join(others) + "\n", encoding="utf-8")
    python = environment / "bin" / "python"
    run([*pip, "--python", python, "install", "--quiet", "--no-deps", "--force-reinstall", wheel], folder)
    assert str(place) in run([python, "-c", "import torchrl_agent; print(torchrl_agent.__file__)"], folder)
    return environment / "bin"


@pytest.fixture
def elsewhere(tmp_path):
    """A folder far from the sources, with folders that are named like ours."""
    for name in ("envs", "configs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('a stranger')", encoding="utf-8")
    (tmp_path / "configs" / "smoke.yaml").write_text("color: green\n", encoding="utf-8")
    return tmp_path


def test_it_lists_its_configurations_and_trains(programs, elsewhere):
    lines = run([programs / "torchrl-agent", "configs"], elsewhere).splitlines()
    assert [line.split()[0] for line in lines] == sorted(
        path.relative_to(ROOT / "configs").with_suffix("").as_posix() for path in (ROOT / "configs").rglob("*.yaml")
    )
    run([programs / "torchrl-agent", "train", "smoke", "run.name=first", *SMALL], elsewhere)
    summary = json.loads((elsewhere / "runs" / "first" / "summary.json").read_text(encoding="utf-8"))
    assert summary["frames"] == 512
    code = json.loads((elsewhere / "runs" / "first" / "code.json").read_text(encoding="utf-8"))
    assert "changes" not in code


def test_the_trained_agents_are_there_and_write_nothing_beside_themselves(programs, tmp_path):
    (place,) = programs.parent.glob("lib/python*/site-packages")
    before = {path.relative_to(place) for path in (place / "torchrl_agent" / "shipped").rglob("*")}
    assert {path.parent.name for path in before if path.name == "config.yaml"} == {
        path.parent.name for path in (ROOT / "torchrl_agent" / "shipped").glob("*/config.yaml")
    }
    assert "shipped:arena" in run([programs / "torchrl-agent", "runs"], tmp_path)
    film = [programs / "torchrl-agent", "film", "shipped:arena", "--steps", "40", "--worlds", "1"]
    assert run(film, tmp_path).split() == ["arena_film.gif"]
    assert [path.name for path in tmp_path.iterdir()] == ["arena_film.gif"]
    assert {path.relative_to(place) for path in (place / "torchrl_agent" / "shipped").rglob("*")} == before


def test_the_first_cell_of_a_notebook_finds_it(programs, tmp_path):
    notebook = json.loads((ROOT / "notebooks" / "01_meet_the_worlds.ipynb").read_text(encoding="utf-8"))
    first = "".join(next(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"))
    (tmp_path / "cell.py").write_text(first + "\nimport envs, torchrl_agent.cli\n", encoding="utf-8")
    run([programs / "python", tmp_path / "cell.py"], tmp_path)


def test_an_extra_is_added_to_what_is_installed(programs, tmp_path):
    """The command that errors give: pip takes the installed package and asks no index for it."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        programs / "python",
        "install",
        "--no-index",
        "--no-deps",
        "--dry-run",
    ]
    assert "already satisfied: torchrl-agent[vmas]" in run([*pip, "torchrl-agent[vmas]"], tmp_path)


def test_types_are_exported(programs):
    (place,) = programs.parent.glob("lib/python*/site-packages")
    assert (place / "envs" / "py.typed").is_file()
    assert (place / "torchrl_agent" / "py.typed").is_file()
