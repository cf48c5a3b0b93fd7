"""What a run's folder says about the code, and about no other code."""

import json
import subprocess
from importlib import metadata

import pytest

from torchrl_agent.runs.folder import code_state


def git(folder, *arguments):
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with an uncommitted change."""
    (tmp_path / "torchrl_agent").mkdir()
    (tmp_path / "notes.txt").write_text("first\n", encoding="utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "First")
    (tmp_path / "notes.txt").write_text("schön\n", encoding="utf-8")
    return tmp_path


def installed_from(monkeypatch, origin):
    class Distribution:
        def read_text(self, name):
            return {"direct_url.json": origin}[name]

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())


def test_a_checkout_tells_its_commit_and_changes(repository):
    state = code_state(repository)
    assert state["commit"] == git(repository, "rev-parse", "HEAD")
    assert "+schön" in state["changes"]


def test_a_repository_around_the_installed_code_is_not_recorded(repository, monkeypatch):
    installed_from(monkeypatch, None)
    packages = repository / ".venv" / "site-packages"
    (packages / "torchrl_agent").mkdir(parents=True)
    assert code_state(packages) == {}


def test_the_commit_that_pip_installed_is_recorded(tmp_path, monkeypatch):
    origin = {"url": "https://example.org/it.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    installed_from(monkeypatch, json.dumps(origin))
    assert code_state(tmp_path) == {"commit": "abc"}


def test_code_that_came_without_any_trace_tells_nothing(tmp_path, monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert code_state(tmp_path) == {}
