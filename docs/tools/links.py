"""Links to the project's repository, all made from one setting: ``repo_url`` in mkdocs.yml.

``make links`` writes them into README.md, pyproject.toml, docs/notebooks.md and the notebooks; without the setting it
leaves them out. Colab opens notebooks of GitHub's repositories only.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COLAB = "https://colab.research.google.com"
BRANCH = "main"
BLOCK = re.compile(r"(.*<links>.*\n)(?:.*\n)*?(.*</links>.*\n)")


def write_links(root: Path = ROOT) -> None:
    """Write every link into the checkout ``root``, or take it out."""
    url = repository(root)
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    _fill(root / "README.md", badges(url))
    _fill(root / "pyproject.toml", f'[project.urls]\nRepository = "{url}"\n' if url else "")
    items = "".join(_item(path, url) for path in notebooks if colab(url, path.name))
    _fill(root / "docs" / "notebooks.md", f"\n{items}\n" if items else "")
    for path in notebooks:
        _fill_notebook(path, url)


def repository(root: Path) -> str:
    """The address in ``root``/mkdocs.yml, without a slash or ``.git`` at its end; empty where there is none."""
    found = re.search(
        r'^repo_url: *["\']?([^"\'#\s]*)', (root / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    return found[1].rstrip("/").removesuffix(".git") if found else ""


def colab(url: str, name: str) -> str:
    """A badge that opens notebook ``name`` on Colab; nothing for a repository that is not GitHub's."""
    place = url.partition("github.com/")[2]
    link = f"{COLAB}/github/{place}/blob/{BRANCH}/notebooks/{name}"
    return f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({link})" if place else ""


def badges(url: str) -> str:
    """What the README begins with."""
    if not url:
        return ""
    places = f"[Repository]({url}) · [Notebooks]({url}/tree/{BRANCH}/notebooks)"
    return f"{places} {colab(url, '01_meet_the_worlds.ipynb')}".rstrip() + "\n"


def _item(path: Path, url: str) -> str:
    title = _title(json.loads(path.read_text(encoding="utf-8")))["source"][0].lstrip("# ").rstrip()
    return f"- {title}: {colab(url, path.name)}\n"


def _title(notebook: dict) -> dict:
    return next(cell for cell in notebook["cells"] if cell["cell_type"] == "markdown")


def _fill(path: Path, text: str) -> None:
    """Put ``text`` between the lines of ``path`` that hold <links> and </links>."""
    old = path.read_text(encoding="utf-8")
    if BLOCK.search(old) is None:
        raise ValueError(f"{path.name} has no lines <links> and </links> to write links between: put them back.")
    path.write_text(BLOCK.sub(lambda block: block[1] + text + block[2], old), encoding="utf-8")


def _fill_notebook(path: Path, url: str) -> None:
    """The address in the first cell, and a badge below the title."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    first, title = notebook["cells"][0], _title(notebook)
    first["source"] = [re.sub(r'^REPOSITORY = ".*?"', f'REPOSITORY = "{url}"', line) for line in first["source"]]
    kept = [line for line in title["source"] if COLAB not in line]
    badge = colab(url, path.name)
    title["source"] = [kept[0], f"{badge}\n", *kept[1:]] if badge else kept
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_links()
