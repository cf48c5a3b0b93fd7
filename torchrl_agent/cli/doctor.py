"""Checks of this machine's requirements for training, one line per finding, with advice for each, and the folder of
compiled code.

`report(diagnose())` is the whole interface; nothing here changes the machine.
"""

import argparse
import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch
import yaml

from torchrl_agent.core.tables import aligned
from torchrl_agent.optimization.compile_cache import cache_folder, clear, files_of
from torchrl_agent.trust.hidden import foreign_worlds

OLDEST_PYTHON = (3, 10)

TESTED_VERSIONS = yaml.safe_load((Path(__file__).parents[1] / "tested_versions.yaml").read_text(encoding="utf-8"))
"""Tested versions by package: first that of constraints.txt, with which every commit is tested."""

EXTRAS = {
    "atari": {"ale-py": "ale_py", "opencv-python-headless": "cv2"},
    "bench": {"stable-baselines3": "stable_baselines3"},
    "box2d": {"box2d": "Box2D"},
    "browser": {"playwright": "playwright", "axe-playwright-python": "axe_playwright_python"},
    "cars": {"highway-env": "highway_env"},
    "dm_control": {"shimmy": "shimmy", "dm_control": "dm_control", "mujoco": "mujoco", "imageio": "imageio"},
    "minatar": {"minatar": "minatar"},
    "minigrid": {"minigrid": "minigrid"},
    "mujoco": {"mujoco": "mujoco", "imageio": "imageio"},
    "robotics": {"gymnasium-robotics": "gymnasium_robotics", "mujoco": "mujoco", "imageio": "imageio"},
    "render": {"pygame-ce": "pygame"},
    "docs": {"mkdocs": "mkdocs", "mkdocs-material": "material", "mkdocstrings": "mkdocstrings"},
    "export": {"onnx": "onnx", "onnxscript": "onnxscript", "onnxruntime": "onnxruntime"},
    "float8": {"torchao": "torchao"},
    "multiagent": {"pettingzoo": "pettingzoo", "mpe2": "mpe2"},
    "notebooks": {"ipykernel": "ipykernel", "nbclient": "nbclient", "nbformat": "nbformat"},
    "popgym": {"popgym": "popgym"},
    "ray": {"ray[tune]": "ray"},
    "sweeps": {"optuna": "optuna"},
    "sb3": {"stable-baselines3": "stable_baselines3", "sb3-contrib": "sb3_contrib"},
    "vmas": {"vmas": "vmas"},
    "video": {"imageio": "imageio", "imageio-ffmpeg": "imageio_ffmpeg"},
    "wandb": {"wandb": "wandb"},
    "dev": {
        "import-linter": "importlinter",
        "mypy": "mypy",
        "pettingzoo": "pettingzoo",
        "pytest": "pytest",
        "pytest-xdist": "xdist",
        "ruff": "ruff",
    },
}
"""Optional packages of pyproject.toml: extra -> {name to install: name to import}."""


@dataclass(frozen=True)
class Check:
    """A finding. A check that is ok may still carry advice, on an optional part that is missing."""

    name: str
    ok: bool
    found: str
    advice: str = ""


def diagnose(deep: bool = False) -> list[Check]:
    """Run all checks, first those whose failures hide later ones; `deep` compiles one line (up to a minute)."""
    pins = read_pins()
    return [
        check_python(),
        *(check_version(package, pins) for package in TESTED_VERSIONS),
        check_envs(),
        check_cuda(pins),
        check_cpu(),
        check_compiler(deep),
        check_tensorboard(pins),
        *(check_extra(extra, pins) for extra in EXTRAS),
        check_runs_folder(),
    ]


def report(checks: list[Check]) -> str:
    """Return the checks as text: `ok`, `note` (works, could be better) or `FAIL`, with advice on a line of its own."""
    rows = []
    for check in checks:
        mark = "FAIL" if not check.ok else "note" if check.advice else "ok"
        rows.append([mark, check.name, check.found])
        if check.advice:
            rows.append(["", "", f"-> {check.advice}"])
    lines = aligned(rows, words=3)
    failed = sum(not check.ok for check in checks)
    lines.append(f"{failed} of {len(checks)} checks failed." if failed else "Ready to train.")
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------------- versions


def read_pins(path: Path = Path(__file__).parents[2] / "constraints.txt") -> dict[str, str]:
    """Return the version of each package that every commit is tested with: from constraints.txt beside this package if
    it exists, else the first of :data:`TESTED_VERSIONS`.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pins = (re.match(r"([\w.-]+)==([^\s;]+)", line) for line in lines)
    first = {package: versions[0] for package, versions in TESTED_VERSIONS.items()}
    return first | {pin[1]: pin[2] for pin in pins if pin}


def check_python() -> Check:
    """Check that this Python is new enough."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    advice = f"install Python {oldest} or newer, then: make install PYTHON=python{oldest}"
    ok = sys.version_info[:2] >= OLDEST_PYTHON
    return Check("Python", ok, platform.python_version(), "" if ok else advice)


def check_version(package: str, pins: dict[str, str]) -> Check:
    """Check that `package` has a tested version, or a supported one, whose minor version lies between tested ones."""
    pin, install = pins[package], f"pip install {requirement(package, pins)}"
    version, tested = installed_version(package), {pin, *TESTED_VERSIONS[package]}
    if version is None:
        return Check(package, False, "not installed", install)
    release, known = version.split("+")[0], " and ".join(sorted(tested, key=minor))
    if release == pin:
        return Check(package, True, version)
    if release in tested:
        return Check(package, True, f"{version} (tested, every commit with {pin})")
    if min(map(minor, tested)) <= minor(version) <= max(map(minor, tested)):
        return Check(package, True, f"{version} (supported, tested with {known})")
    return Check(package, False, f"{version} (untested, tested with {known})", install)


def installed_version(package: str) -> str | None:
    """Return the version in the package's metadata, without importing it; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def minor(version: str) -> tuple[int, ...]:
    """Return the major and minor version: `2.13.0+cpu` -> (2, 13)."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def requirement(package: str, pins: dict[str, str]) -> str:
    """Return the requirement for pip: with the tested version where one is known."""
    return f"{package}=={pins[package]}" if package in pins else package


# ------------------------------------------------------------------------------------------------------- hardware


def check_envs() -> Check:
    """Check that the package 'envs' is this project's."""
    found = foreign_worlds()
    advice = "" if found is None else "rename it, or keep its folder off Python's path (PYTHONPATH)"
    return Check("worlds", found is None, "ours" if found is None else f"{found} hides the package 'envs'", advice)


def check_cuda(pins: dict[str, str]) -> Check:
    """Check for a usable CUDA device; fail only if there is a card that PyTorch cannot use."""
    if torch.cuda.is_available():
        count, name = torch.cuda.device_count(), torch.cuda.get_device_name()
        return Check("CUDA", True, f"{count} x {name}, CUDA {torch.version.cuda}")
    if shutil.which("nvidia-smi") is None:
        return Check("CUDA", True, "no device: training runs on the CPU")
    if torch.version.cuda is None:
        advice = f"install a build of PyTorch with CUDA: pip install --force-reinstall {requirement('torch', pins)}"
        return Check("CUDA", False, "an NVIDIA driver, but a PyTorch without CUDA", advice)
    advice = f"run nvidia-smi to see that it lists a card, and update the driver to one for CUDA {torch.version.cuda}"
    return Check("CUDA", False, f"a PyTorch for CUDA {torch.version.cuda}, but no usable device", advice)


def check_cpu() -> Check:
    """Check that PyTorch has no more threads than this process has cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    advice = f"more threads than cores slow each other down: export OMP_NUM_THREADS={cores}" if threads > cores else ""
    return Check("CPU", True, f"{cores} cores, {threads} threads", advice)


# ------------------------------------------------------------------------------------------------------- compilation


def check_compiler(deep: bool = False) -> Check:
    """Check that torch.compile finds a C++ compiler and Python's headers; `deep` compiles one line."""
    name = "torch.compile"
    default = "clang++" if sys.platform == "darwin" else "g++"
    compiler = os.environ.get("CXX", default)
    if shutil.which(compiler) is None:
        advice = f"install {default} (Debian: apt-get install g++), or train with compilation switched off"
        return Check(name, False, f"no C++ compiler named {compiler}", advice)
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        advice = (
            "install Python's headers (Debian: apt-get install python3-dev), or train with compilation switched off"
        )
        return Check(name, False, f"{compiler}, but no Python.h", advice)
    error = compile_error() if deep else None
    if error is not None:
        return Check(name, False, error, "train with compilation switched off until this one-line function compiles")
    return Check(name, True, f"{compiler}, compiled one line" if deep else compiler)


def compile_error() -> str | None:
    """Return the first line of the error of compiling one line on the best device; None if it works."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    numbers = torch.arange(4.0, device=device)
    try:
        compiled = torch.compile(lambda value: value.sin() + 1, fullgraph=True)(numbers)
    except Exception as error:  # any error of the compiler's toolchain is the finding
        return str(error).strip().split("\n")[0] or type(error).__name__
    return None if torch.allclose(compiled, numbers.sin() + 1) else f"the compiled function is wrong on {device}"


# ------------------------------------------------------------------------------------------------------- surroundings


def check_tensorboard(pins: dict[str, str]) -> Check:
    """Check that metrics can be written for TensorBoard."""
    version = installed_version("tensorboard")
    if version is None:
        return Check("TensorBoard", False, "not installed", f"pip install {requirement('tensorboard', pins)}")
    return Check("TensorBoard", True, version)


def check_extra(extra: str, pins: dict[str, str]) -> Check:
    """Check the packages of an optional extra; never a failure."""
    packages = EXTRAS[extra]
    missing = [package for package, module in packages.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return Check(f"extra: {extra}", True, ", ".join(packages))
    advice = "pip install " + " ".join(requirement(package, pins) for package in missing)
    return Check(f"extra: {extra}", True, f"without {', '.join(missing)} (optional)", advice)


def check_runs_folder(folder: Path = Path("runs")) -> Check:
    """Check that training may write its run folder here."""
    name = "runs folder"
    if folder.exists() and not folder.is_dir():
        return Check(name, False, f"{folder} is a file", f"move it away: mv {folder} {folder}.old")
    existing = folder if folder.exists() else folder.absolute().parent
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"change to a folder that you may write to, or: chmod u+wx {existing}"
        return Check(name, False, f"{folder} cannot be written", advice)
    free_gigabytes = shutil.disk_usage(existing).free / 1e9
    return Check(name, True, f"{folder} is writable, {free_gigabytes:.0f} GB free")


# --- the verb --------------------------------------------------------------------------------------------------------


def add_doctor(parser: argparse.ArgumentParser) -> None:
    """Add the option of a deep check."""
    parser.add_argument("--deep", action="store_true", help="also compile a small function")


def run_doctor(parsed: argparse.Namespace) -> int:
    """Print the report, and return the exit code: 2 if a check failed."""
    checks = diagnose(deep=parsed.deep)
    print(report(checks))
    return 0 if all(check.ok for check in checks) else 2


def add_cache(parser: argparse.ArgumentParser) -> None:
    """Add the switch to clear it."""
    parser.add_argument(
        "--clear", action="store_true", help="delete all compiled code; it is compiled anew when needed"
    )


def run_cache(parsed: argparse.Namespace) -> None:
    """Print folder and size, or clear it."""
    files = files_of(cache_folder())
    size = sum(each for _, each, _ in files) / 2**20
    if parsed.clear:
        clear()
    print(f"{cache_folder()}: {len(files)} files, {size:,.0f} MiB{' deleted' if parsed.clear else ''}")
