"""The notebooks as files of the documentation site, which is made of ``docs/`` alone (a hook of mkdocs.yml)."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files


def on_files(files: Files, config: Any) -> Files:
    """Add the notebooks, so that pages can link to them."""
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.name}", abs_src_path=str(path)))
    return files
