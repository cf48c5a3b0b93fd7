"""Another folder or package named ``envs`` is named in a sentence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchrl_agent.trust import hidden

ROOT = Path(__file__).parents[2]


def run(folder, *command):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    started = [sys.executable, *command]
    return subprocess.run(started, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.mark.parametrize(
    ("name", "line"),
    [("envs.py", "from torchrl_agent import train"), ("envs/__init__.py", "import torchrl_agent.experiment")],
)
def test_what_hides_the_worlds_is_named(tmp_path, name, line):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    done = run(tmp_path, "-c", line)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("torchrl_agent.core.errors.HiddenPackageError: ")
    assert str(tmp_path / name) in last
    assert "PYTHONPATH" in last


def test_a_folder_without_code_hides_nothing(tmp_path):
    (tmp_path / "envs").mkdir()
    assert run(tmp_path, "-c", "from torchrl_agent.trust import hidden; hidden.check_envs()").returncode == 0


def test_a_package_installed_over_the_worlds_is_named(tmp_path, monkeypatch):
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("def load(): ...", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(hidden, "OURS", tmp_path / "envs")
    monkeypatch.delitem(sys.modules, "envs", raising=False)
    with pytest.raises(hidden.HiddenPackageError, match="uninstall"):
        hidden.check_envs()
