"""What Linux forgives and other systems do not: modules of Unix alone, and files in the encoding of the machine."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from torchrl_agent.core.run_names import check_run_name

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for package in ("envs", "torchrl_agent") for path in (ROOT / package).rglob("*.py"))
UNIX_ONLY = ("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog")
IMPORT_ALL = f"""
import importlib, pkgutil, sys
import hydra, matplotlib.pyplot, tensorboard, torch.utils.tensorboard, torchrl.envs, torchrl.objectives, tqdm
for name in {UNIX_ONLY}:
    sys.modules[name] = None  # an import of it fails from here on
import envs, torchrl_agent
for package in (envs, torchrl_agent):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            absent = error.name or ""
            assert absent.split(".")[0] in {{"pettingzoo", "stable_baselines3", "sb3_contrib", "vmas"}}, error
print("all imported")
"""


@pytest.mark.slow
def test_everything_is_imported_where_there_are_no_modules_of_unix():
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.endswith("all imported\n"), done.stderr


def opened_without_encoding(path):
    """Places that read or write text in whatever encoding the machine has."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        name, modes = getattr(node.func, "attr", getattr(node.func, "id", None)), map(ast.unparse, node.args[-1:])
        if ast.unparse(node.func) == "os.open":  # bytes
            continue
        text = (name == "read_text" and not node.args) or (name == "open" and not any("b" in mode for mode in modes))
        if text or (name == "write_text" and isinstance(node.func, ast.Attribute)):
            yield f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("name", ["nul", "COM1", "aux.txt", "group/con", 'a"b', "dot."])
def test_a_run_cannot_have_a_name_that_windows_does_not_take(name):
    with pytest.raises(ValueError, match=r"run\.name is "):
        check_run_name(name)
    check_run_name("console")


def test_text_is_read_and_written_in_an_encoding_that_is_named():
    assert [place for path in SOURCES for place in opened_without_encoding(path)] == []
