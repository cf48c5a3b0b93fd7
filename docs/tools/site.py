"""Hooks of the documentation site: notebooks and a replay join it; pages are edited where the repository is known."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from torchrl_agent.replay import as_page, read_record

DOCS = Path(__file__).parents[1]
NOTEBOOKS = DOCS.parent / "notebooks"
VILLAGE = DOCS / "village.json.gz"
"""Record of ``torchrl-agent replay shipped:village --record docs/village.json.gz``."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Edit links lead to the branch ``main``; without an address of the repository there are none."""
    config.edit_uri = "edit/main/docs/" if config.repo_url else ""
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks, so that pages can link to them, and the page of the recorded village: the site is made of
    ``docs/`` alone otherwise.
    """
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
    page = as_page(read_record(VILLAGE))
    files.append(File.generated(config, "village.html", content=page))
    return files
