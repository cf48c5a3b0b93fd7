"""Hooks of the documentation site: notebooks are part of it, and pages can be edited where the repository is known."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Edit links lead to the branch ``main``; without an address of the repository there are none."""
    config.edit_uri = "edit/main/docs/" if config.repo_url else ""
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks, so that pages can link to them: the site is made of ``docs/`` alone otherwise."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
    return files
