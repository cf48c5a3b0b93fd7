"""Links to the repository come from one setting, ``repo_url`` in mkdocs.yml, and are left out without it."""

from __future__ import annotations

import json
import re
import runpy
import shutil

import pytest

from torchrl_agent.experiment.compose import CONFIGS

ROOT = CONFIGS.parent
LINKS = runpy.run_path(str(ROOT / "docs" / "tools" / "links.py"))
URL = "https://github.com/somebody/torchrl_agent"
PLACEHOLDERS = re.compile(r"OWNER|YOUR[_-]|<user>|example\.(?:com|org)|git\+URL|github\.com/somebody")


@pytest.fixture
def checkout(tmp_path):
    """What holds links, and a function that writes them for an address."""
    for name in ("README.md", "pyproject.toml", "mkdocs.yml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("*.json", "*.gif", "*.png"))
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("runs"))

    def write(url):
        path = tmp_path / "mkdocs.yml"
        settings = re.sub(r"^repo_url: .*\n", "", path.read_text(), flags=re.MULTILINE)
        path.write_text(settings + (f'repo_url: "{url}"\n' if url else ""))
        LINKS["write_links"](tmp_path)
        return tmp_path

    return write


def texts(root):
    """Everything that readers see, by its path below ``root``."""
    kinds = ("README.md", "pyproject.toml", "docs/**/*.md", "notebooks/*.ipynb")
    return {str(path.relative_to(root)): path.read_text() for kind in kinds for path in root.glob(kind)}


def first_cells(root):
    return ["".join(json.loads(path.read_text())["cells"][0]["source"]) for path in root.glob("notebooks/*.ipynb")]


def test_what_is_committed_follows_from_the_setting(checkout):
    assert texts(checkout(LINKS["repository"](ROOT))) == texts(ROOT)


def test_without_an_address_there_is_no_link_to_a_repository_and_no_placeholder(checkout):
    root = checkout("")
    for name, text in texts(root).items():
        assert not PLACEHOLDERS.search(text), name
        assert "colab.research" not in text, name
    assert "[project.urls]" not in (root / "pyproject.toml").read_text()
    assert all('REPOSITORY = ""' in cell for cell in first_cells(root))


@pytest.mark.parametrize("given", [URL, f"{URL}/", f"{URL}.git"])
def test_with_an_address_every_link_is_filled(checkout, given):
    root = checkout(given)
    assert f'[project.urls]\nRepository = "{URL}"\n' in (root / "pyproject.toml").read_text()
    assert f"[Repository]({URL})" in (root / "README.md").read_text()
    assert all(f'REPOSITORY = "{URL}"' in cell for cell in first_cells(root))
    notebooks = sorted(root.glob("notebooks/*.ipynb"))
    assert len(notebooks) >= 7
    for path in notebooks:
        link = f"(https://colab.research.google.com/github/somebody/torchrl_agent/blob/main/notebooks/{path.name})"
        assert link in path.read_text()
        assert link in (root / "docs" / "notebooks.md").read_text()
        compile(first_cells(root)[0], "set-up", "exec")


def test_filling_twice_and_taking_out_again_changes_nothing(checkout):
    before = texts(checkout(""))
    filled = texts(checkout(URL))
    assert filled != before
    assert texts(checkout(URL)) == filled
    assert texts(checkout("")) == before


def test_colab_is_for_repositories_of_github(checkout):
    root = checkout("https://gitlab.com/somebody/torchrl_agent")
    assert not [name for name, text in texts(root).items() if "colab.research" in text]
    assert "gitlab.com/somebody" in (root / "README.md").read_text()
