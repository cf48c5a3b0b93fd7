"""The worlds alone, under BenchMARL and the older TorchRL that it wants, in an environment of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "howto" / "benchmarl.md").read_text()
PINS = re.findall(r'"((?:benchmarl|torchrl|tensordict)==[\d.]+)"', PAGE)


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Python with BenchMARL and its TorchRL before everything that is installed here; ``BENCHMARL_PYTHON`` names one
    that is there already.
    """
    if "BENCHMARL_PYTHON" in os.environ:
        return os.environ["BENCHMARL_PYTHON"]
    folder = tmp_path_factory.mktemp("benchmarl")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    subprocess.run([own, "-m", "pip", "install", "-q", "--no-deps", *PINS], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    shared = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))]
    (packages / "shared.pth").write_text("\n".join(shared))
    return str(own)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["mappo", "ippo", "iql", "qmix"])
def test_benchmarls_algorithms_play_in_the_town(python, algorithm, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [python, str(ROOT / "examples" / "benchmarl_town.py"), algorithm]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{algorithm} has seen 1024 frames" in done.stdout


def test_the_page_pins_what_the_test_installs():
    assert [pin.split("==")[0] for pin in PINS] == ["benchmarl", "torchrl", "tensordict"]
