"""The container and the release job, as far as they can be read without building them: commands exist and fit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from torchrl_agent import cli

ROOT = Path(__file__).parents[1]
KNOWN = {"FROM", "ARG", "RUN", "WORKDIR", "COPY", "ENV", "ENTRYPOINT", "CMD"}


def instructions():
    """Instructions of the Dockerfile and their arguments, in order."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def steps():
    """The job's steps, in order."""
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML reads "on" as true
    (job,) = workflow["jobs"].values()
    return job["steps"]


def shell(command, **environment):
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, env={**os.environ, **environment}, check=False)
    return done.returncode


def test_every_instruction_of_the_container_is_one_and_its_shell_is_valid():
    found = instructions()
    assert {word for word, _ in found} <= KNOWN
    assert found[0][0] == "FROM"
    for command in [rest for word, rest in found if word == "RUN"]:
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0


def test_the_container_installs_and_starts_as_the_guides_say():
    found = instructions()
    (install,) = [rest for word, rest in found if word == "RUN" and "make " in rest and "apt-get" not in rest]
    assert install.endswith("&& make install")
    assert "`make install`" in (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert dict(found)["ENTRYPOINT"] == '["torchrl-agent"]'
    assert dict(found)["ENV"] == 'PATH="/app/.venv/bin:$PATH"'
    comments = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    verbs = re.findall(r"docker run .* torchrl-agent (\w+)", comments) + re.findall(r'CMD \["(\w+)"', comments)
    assert len(verbs) == 3
    assert set(verbs) <= set(cli.VERBS)
    for line in re.findall(r"^# \w+: +(docker build .*)$", comments, re.MULTILINE):
        given = re.findall(r"--build-arg (\w+)=(\w+)", line)
        assert set(given) <= {("DEVICE", "cuda")}
        assert shlex.split(line)[-1] == "."


@pytest.mark.parametrize(("device", "index"), [("cpu", "https://download.pytorch.org/whl/cpu"), ("cuda", "")])
def test_the_build_argument_chooses_pytorchs_wheels(device, index, tmp_path):
    assert ("ARG", "DEVICE=cpu") in instructions()
    (install,) = [rest for word, rest in instructions() if word == "RUN" and rest.endswith("make install")]
    (tmp_path / "make").write_text('#!/bin/sh\nprintf "%s" "$PIP_EXTRA_INDEX_URL" > "$FOUND"\n', encoding="utf-8")
    (tmp_path / "make").chmod(0o755)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FOUND": str(tmp_path / "found")}
    assert shell(install, DEVICE=device, PIP_EXTRA_INDEX_URL="", **places) == 0
    assert (tmp_path / "found").read_text() == index


def test_a_release_is_checked_before_it_is_built_and_signed_and_is_not_published():
    words = [f"{step.get('uses', '')} {step.get('run', '')}" for step in steps()]
    order = [
        next(i for i, each in enumerate(words) if word in each) for word in (".ci/run", "build", "twine", "attest")
    ]
    assert order[0] < order[1] <= order[2] < order[3]
    assert not [each for each in words if "publish" in each or "twine upload" in each]
    assert (ROOT / ".ci" / "run").is_file()
    for step in [step["run"] for step in steps() if "run" in step]:
        assert subprocess.run(["bash", "-n", "-c", step], check=False).returncode == 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the job reads the version with tomllib")
def test_a_tag_of_another_version_is_no_release(tmp_path):
    (check,) = [step["run"] for step in steps() if "GITHUB_REF_NAME" in step.get("run", "")]
    (tmp_path / "python").symlink_to(sys.executable)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert shell(check, GITHUB_REF_NAME=f"v{version}", **places) == 0
    assert shell(check, GITHUB_REF_NAME="v9.9.9", **places) == 1
