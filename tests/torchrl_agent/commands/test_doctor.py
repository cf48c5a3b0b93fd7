"""The doctor finds what is wrong and says what to do, on machines made up by monkeypatching."""

import collections
import re
import sys
from pathlib import Path

import pytest
import torch

from torchrl_agent.cli import doctor
from torchrl_agent.cli.doctor import Check

PINS = {package: versions[0] for package, versions in doctor.TESTED_VERSIONS.items()}


def with_version(monkeypatch, version):
    """Pretend that every package has this version (None: not installed)."""
    monkeypatch.setattr(doctor, "installed_version", lambda package: version)


def test_this_machine_is_diagnosed_and_reported():
    checks = doctor.diagnose()
    text = doctor.report(checks)
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    assert {"Python", "torch", "torchrl", "tensordict", "gymnasium", "CUDA", "torch.compile"} <= set(names)
    assert all(name in text for name in names)


def test_every_failed_check_gives_advice(monkeypatch, tmp_path):
    with_version(monkeypatch, None)
    monkeypatch.setattr(doctor.shutil, "which", lambda command: None)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda module: None)
    monkeypatch.chdir(tmp_path)
    Path("runs").write_text("a file where the folder should be")
    checks = doctor.diagnose()
    failed = {check.name for check in checks if not check.ok}
    assert failed == {*PINS, "torch.compile", "TensorBoard", "runs folder"}
    assert all(check.advice for check in checks if not check.ok)
    assert f"{len(failed)} of {len(checks)} checks failed." in doctor.report(checks)


# ------------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("package", "version", "ok"),
    [
        ("torch", "2.13.0", True),
        ("torch", "2.13.0+cpu", True),
        ("torch", "2.11.0+cu128", True),
        ("torch", "2.12.1", True),
        ("torch", "2.10.0", False),
        ("torch", "2.14.0", False),
        ("torchrl", "0.14.1", True),
        ("torchrl", "0.15.0", False),
        ("tensordict", "0.14.9", True),
        ("tensordict", "0.9.0", False),
        ("gymnasium", "2.0.0a1", False),
        ("gymnasium", None, False),
    ],
)
def test_versions_against_pins(monkeypatch, package, version, ok):
    with_version(monkeypatch, version)
    check = doctor.check_version(package, PINS)
    assert check.ok is ok
    assert check.advice == ("" if ok else f"pip install {package}=={PINS[package]}")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.13.0+cpu", ""),
        ("2.11.0", " (tested, every commit with 2.13.0)"),
        ("2.12.1", " (supported, tested with 2.11.0 and 2.13.0)"),
        ("2.99.0", " (untested, tested with 2.11.0 and 2.13.0)"),
    ],
)
def test_a_version_is_shown_beside_the_tested_ones(monkeypatch, version, words):
    monkeypatch.setitem(doctor.TESTED_VERSIONS, "torch", ["2.13.0", "2.11.0"])
    with_version(monkeypatch, version)
    assert doctor.check_version("torch", PINS).found == version + words


def test_pins_are_read_from_constraints(tmp_path):
    path = tmp_path / "constraints.txt"
    path.write_text('# a comment\ntorch==9.8.7\nnumpy==2.4.6; python_version >= "3.11"\n')
    assert doctor.read_pins(path) == PINS | {"torch": "9.8.7", "numpy": "2.4.6"}
    assert doctor.read_pins(tmp_path / "absent.txt") == PINS


def test_every_tested_version_of_torch_is_one_that_the_makefile_tries():
    makefile = (Path(doctor.__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    *tried, newest = re.search(r"^TORCH \?= (.*)$", makefile, re.MULTILINE)[1].split()
    tested = {".".join(map(str, doctor.minor(version))) for version in doctor.TESTED_VERSIONS["torch"]}
    assert newest == "newest"
    assert tested == set(tried)


def test_constants_agree_with_constraints():
    pins = doctor.read_pins()
    assert {package: pins[package] for package in PINS} == PINS
    untested = {"ray[tune]", "wandb"}
    assert {package for extra in doctor.EXTRAS.values() for package in extra} - set(pins) == untested


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads TOML from 3.11 on")
def test_extras_are_those_of_the_project():
    import tomllib

    path = Path(doctor.__file__).parents[2] / "pyproject.toml"
    declared = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    bare = {extra: {re.split(r"[\[<>=]", name)[0] for name in names} for extra, names in declared.items()}
    bare["box2d"] = {"box2d"}  # what the extra of Gymnasium brings
    del bare["worlds"]  # all of these
    bare["ray"] = {"ray[tune]"}  # without its own extra, Ray tunes nothing
    listed = {extra: set(names) for extra, names in doctor.EXTRAS.items()}
    assert listed.pop("dev") <= bare.pop("dev")
    assert listed == bare


@pytest.mark.parametrize(("version", "ok"), [((3, 9, 18), False), ((3, 10, 0), True), ((3, 12, 4), True)])
def test_python_version(monkeypatch, version, ok):
    monkeypatch.setattr(doctor.sys, "version_info", version)
    assert doctor.check_python().ok is ok


# ------------------------------------------------------------------------------------------------------- hardware


@pytest.mark.parametrize(
    ("driver", "cuda_build", "ok", "words"),
    [
        (None, None, True, ""),
        ("nvidia-smi", None, False, "pip install --force-reinstall torch==2.13.0"),
        ("nvidia-smi", "12.8", False, "driver"),
    ],
)
def test_machine_without_a_usable_cuda_device(monkeypatch, driver, cuda_build, ok, words):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda command: driver)
    monkeypatch.setattr(torch.version, "cuda", cuda_build)
    check = doctor.check_cuda(PINS)
    assert check.ok is ok
    assert words in check.advice


def test_cuda_device_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Imagined Card")
    assert doctor.check_cuda(PINS).found.startswith("2 x Imagined Card")


def test_too_many_threads_are_noted(monkeypatch):
    monkeypatch.setattr(doctor.os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    check = doctor.check_cpu()
    assert check.ok
    assert "OMP_NUM_THREADS=2" in check.advice


# ------------------------------------------------------------------------------------------------------- compilation


def test_compiler_and_headers_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "my-compiler")
    monkeypatch.setattr(doctor.shutil, "which", lambda command: command)
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    assert doctor.check_compiler().found == "my-compiler, but no Python.h"
    (tmp_path / "Python.h").touch()
    assert doctor.check_compiler() == Check("torch.compile", True, "my-compiler")
    monkeypatch.setattr(doctor.shutil, "which", lambda command: None)
    assert doctor.check_compiler().found == "no C++ compiler named my-compiler"


def test_deep_check_shows_the_first_line_of_an_error(monkeypatch, tmp_path):
    def broken_compile(function, **options):
        raise RuntimeError("linker is missing\nand much more")

    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(doctor.shutil, "which", lambda command: command)
    monkeypatch.setattr(torch, "compile", broken_compile)
    check = doctor.check_compiler(deep=True)
    assert not check.ok
    assert check.found == "linker is missing"


@pytest.mark.slow
def test_deep_check_compiles_for_real():
    assert doctor.compile_error() is None


# ------------------------------------------------------------------------------------------------------- surroundings


def test_missing_extra_is_a_note_with_the_pip_line(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda module: None)
    check = doctor.check_extra("video", PINS | {"imageio": "2.38.1"})
    assert check.ok
    assert check.advice == "pip install imageio==2.38.1 imageio-ffmpeg"


def test_runs_folder(monkeypatch, tmp_path):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: usage(0, 0, 5e9))
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: path == tmp_path)
    assert doctor.check_runs_folder(tmp_path / "runs").found.endswith("is writable, 5 GB free")
    assert not doctor.check_runs_folder(tmp_path / "absent" / "runs").ok


def test_report_marks_ok_note_and_failure():
    text = doctor.report(
        [Check("a", True, "fine"), Check("b", True, "fair", "try c"), Check("c", False, "bad", "do d")]
    )
    assert text.splitlines() == [
        "ok    a  fine",
        "note  b  fair",
        "         -> try c",
        "FAIL  c  bad",
        "         -> do d",
        "1 of 3 checks failed.",
    ]
