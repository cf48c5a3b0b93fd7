"""What the guides show works."""

from __future__ import annotations

import ast
import csv
import dataclasses
import glob
import importlib
import json
import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from short_games import STEPS, shorten

from envs import TownEnv
from envs.town.levels import LEVELS
from torchrl_agent.algorithms.registry import ALGORITHMS
from torchrl_agent.cli import main
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.models.agent import ModelConfig
from torchrl_agent.models.pretrained import MODULES
from torchrl_agent.pretrain import switch_on
from torchrl_agent.runs import train
from torchrl_agent.training.governor import GovernorConfig
from torchrl_agent.training.vital_signs import SIGNS

ROOT = CONFIGS.parent
DOCS = ROOT / "docs"
AGENT_PAGES, ALGORITHM_PAGES = (sorted((DOCS / part).glob("*.md")) for part in ("agent", "algorithms"))
UNFILMED = ("eyes", "apart", "forecaster", "regression", "regressed", "compared", "hasty", "in_half", "frugal")
UNFILMED += ("as_the_device_likes",)
UNCOMPILED = (
    "__import__('torchrl_agent.optimization.compilation').optimization.compilation.AccelerationConfig(*[False] * 4)"
)
SMALLER = {
    "num_envs=64": "num_envs=2",
    "resume runs/first total_frames=1_500_000": "resume runs/first total_frames=4096",
    "resume runs/slower total_frames=2_000_000": "resume runs/slower total_frames=6144",
    "run.name=first total_frames=1_000_000": "run.name=first",
    '"arena", "total_frames=1_500_000"': '"smoke", "total_frames=2048"',
    '"arena", "world.curriculum=null", "total_frames=500_000"': '"smoke", "world.curriculum=null", "total_frames=2048"',
    "total_frames=1_500_000": "total_frames=4096 run.film=false evaluation.episodes=2",
    "film shipped:arena": "film shipped:arena --steps 40 --worlds 1",
    "explain shipped:tonight --step 40": "explain shipped:tonight --step 20",
    "torchrl-agent train arena": "torchrl-agent train smoke",
    '"cartpole",': '"smoke",',
    "total_frames=100_000": "total_frames=8192",
    "total_frames=1_000_000": "total_frames=512 world.num_envs=4 algorithm.rollout_steps=32 "
    "algorithm.minibatch_size=128 run.film=false evaluation.episodes=2 "
    "'acceleration={step: false, advantages: false, update: false}'",
    "total_frames: 100_000": "total_frames: 4096\nevaluation: {episodes: 2}",
    "run.name=first": "run.name=first run.film=false",
    "run.name=rates": "run.name=rates run.film=false run.final_evaluation=false total_frames=512",
    **{f"run.name={name}": f"run.name={name} run.film=false" for name in UNFILMED},
    # processes of their own, where games are not short
    "torchrun --standalone --nproc_per_node=2 --no-python": "",  # what test_ranks.py starts
    "run.name=together": f"run.name=together run.film=false '+evaluation.world.rules={{max_steps: {STEPS}}}'",
    '"run.name=in_python"': '"run.name=in_python", "run.film=false", "run.final_evaluation=false"',
    "train smoke": "train smoke world.num_envs=64 algorithm.rollout_steps=8",  # as many frames in fewer steps
    "world, frames_per_batch=1024, total_frames=2048": "world, frames_per_batch=64, total_frames=128",
    "agent.policy, frames_per_batch=1024, total_frames=1024": "agent.policy, frames_per_batch=64, total_frames=64",
    "frames_per_batch=512, total_frames=1024": "frames_per_batch=512, total_frames=512",
    "rows=64)": f"rows=64, acceleration={UNCOMPILED})",
    "n_steps=128, batch_size=1024": "n_steps=16, batch_size=16",
    "learn(1_000_000)": "learn(32)",
    "total_frames=5_000_000": "total_frames=64 run.film=false evaluation.episodes=2 "
    "'acceleration={step: false, advantages: false, update: false}'",
}
"""What is shown in the guides, and what the tests run in its place to be quick."""


def blocks(path: Path) -> list[tuple[str, str]]:
    """(language, code) of every block of code."""
    return re.findall(r"```(\w+)\n(.*?)```", path.read_text(), re.DOTALL)


def block(path: Path, language: str) -> str:
    """The first block of code in a language."""
    return next(code for name, code in blocks(path) if name == language)


def smaller(code: str) -> str:
    for shown, small in SMALLER.items():
        code = code.replace(shown, small)
    return code


def run_page(path: Path, having: str = "") -> dict:
    """Do what a page says, from its first block to its last: blocks that begin with the name of a file are written to
    it, the rest is run. Returns the names that its Python has defined. Blocks without the text ``having`` are left out.
    """
    names: dict = {}
    for language, code in blocks(path):
        if having not in code:
            continue
        code = smaller(code)
        file = re.match(r"# (\w+\.(?:py|yaml))\n", code)
        if file is not None:
            Path(file[1]).write_text(code)
        elif language == "python":
            exec(code, names)
        elif language == "bash":
            for line in code.splitlines():
                run_command(line)
        else:
            raise AssertionError(f"{path.name} has a block in {language} that nobody runs")
    return names


def run_command(line: str) -> None:
    words = [each for word in shlex.split(line) for each in sorted(glob.glob(word)) or [word]]
    if words[0] == "cp":
        assert words[1] == "-r"
        shutil.copytree(*words[2:])
    elif words[0] in ("python", "torchrun"):  # a file that the page has written; it may start processes
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}", "RL_WARNINGS": "False"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        started = [sys.executable, *(["-m", "torch.distributed.run"] if words[0] == "torchrun" else []), *words[1:]]
        done = subprocess.run(started, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        for file in (word for word in words if word.endswith(".py")):
            Path(file).with_suffix(".txt").write_text(done.stdout)
    else:
        assert words[0] == "torchrl-agent", line
        assert main(words[1:]) in (None, 0), line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, from which Python also imports; games are short."""
    shorten(monkeypatch.setitem, monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("world", "name", "shape"), [("arena", "data", (8, 100)), ("duel", "data", (8, 100)), ("town", "root", (8,))]
)
def test_the_first_lines_of_a_worlds_page_run(world, name, shape):
    names: dict = {}
    exec(block(DOCS / f"{world}.md", "python").replace("1024", "8").replace(", compile=True", ""), names)
    assert names[name].shape == shape


def test_the_towns_page_names_all_levels():
    page = (DOCS / "town.md").read_text()
    assert [level for level in LEVELS if not re.search(rf"\b{level}\b", page)] == []


@pytest.mark.slow
def test_the_pictures_of_the_guides_are_what_their_script_draws(tmp_path):
    runpy.run_path(str(DOCS / "tools" / "pictures.py"))["main"](tmp_path)
    for name in ("arena.png", "town.png", "town_levels.png"):
        drawn, shown = (np.asarray(Image.open(path / name).convert("RGB"), np.float32) for path in (tmp_path, DOCS))
        assert drawn.shape == shown.shape
        assert np.abs(drawn - shown).mean() < 1.0, f"{name}: draw it anew with make pictures"  # letters may differ


def test_a_town_of_your_own_has_its_places(tmp_path):
    path = tmp_path / "lazy_town.yaml"
    path.write_text(block(DOCS / "howto" / "own_town.md", "yaml"))
    env = TownEnv(2, level=path)
    assert env.rules.kinds[-1] == "CoffeeShop"
    assert env.rules.deployed == ["Bed", "Job", "HomeMeal", "CoffeeShop"]
    assert env.rollout(5).shape == (2, 5)


def agent_page(name: str) -> dict:
    """The names that the Python of a page about the agent defines, from first to last block, in small worlds."""
    names: dict = {}
    for language, code in blocks(DOCS / "agent" / f"{name}.md"):
        assert language == "python"
        exec(code.replace("64", "4"), names)
    return names


def test_the_agents_records_are_as_its_page_says():
    assert agent_page("index")["belief"].mean.shape == (4, 20, 1, 64)


def test_an_agent_with_memory_plays_as_its_page_says():
    names = agent_page("perception")
    assert names["played"]["agents", "hidden"].shape == (4, 20, 1, 1, 128)
    assert names["belief"].mean.shape == (4, 4, 64)
    assert names["belief"].proprioception.shape == (4, 4, 8 + 2)
    assert names["belief"].social_cues.shape == (4, 4, 3, 14)


def test_an_agent_imagines_and_plans_as_its_page_says():
    names = agent_page("world_model")
    assert names["futures"]["states"].shape == (4, 1, 2, 3, 8 + 2)
    assert names["futures"]["actions"].equal(names["plans"])
    assert names["dreamed"].shape == (4, 1, 5)
    assert names["planned"]["agents", "plan", "actions"].shape == (4, 3, 1, 5)


def test_an_agent_reads_others_as_its_page_says():
    names = agent_page("social_model")
    assert names["minds"].goal.shape == (4, 10, 4, 3, 8)
    assert names["seen"].shape == names["right"].shape == (4, 10, 4, 3)


@pytest.mark.slow
@pytest.mark.ci
def test_ten_minutes_are_as_their_page_says(folder):
    names = run_page(DOCS / "quickstart.md")
    assert names["played"].shape == (4, 50)
    assert names["iteration"].frames == 2048
    made = {"arena_film.gif", "ten_minutes.gif", "curve.png", "runs"}
    assert {path.name for path in folder.iterdir()} >= made


def test_an_agent_has_goals_as_its_page_says():
    names = agent_page("policy")
    decided = names["goal"].decided
    assert decided.shape == (4, 20, 4)
    assert decided[:, 0].all() and not decided.all(), "at the first step, and not in every step"
    assert names["value"].shape == (4, 4, 1)


def test_every_page_about_the_agent_is_tested():
    pages = {path.stem for path in AGENT_PAGES}
    assert pages == set(re.findall(r'agent_page\("(\w+)"\)', Path(__file__).read_text()))


def rows(path: Path, header: str) -> list[tuple[str, list[str]]]:
    """(first words of the header, cells) of every row of the tables whose header begins with these words."""
    found, inside = [], None
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            inside = None
        elif cells[0].startswith(header):
            inside = cells[0]
        elif inside is not None and set(cells[0]) != {"-"}:
            found.append((inside, cells))
    return found


def leaves(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting of a dataclass of settings by its dotted name."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        nested = dataclasses.is_dataclass(value)
        found |= leaves(value, f"{prefix}{field.name}.") if nested else {f"{prefix}{field.name}": value}
    return found


def settings(pages: list[Path], section: str) -> dict[str, Any]:
    """Every setting that the tables of some pages have of a section, by its dotted name, with the default there."""
    shown: dict[str, Any] = {}
    for path in pages:
        for header, (names, defaults, *_) in rows(path, f"key under `{section}"):
            prefix = re.search(rf"`{section}\.?(.*)`", header)[1]
            names, defaults = (re.findall(r"`([^`]+)`", cell) for cell in (names, defaults))
            for name, default in zip(names, defaults, strict=True):
                key = f"{prefix}.{name}" if prefix else name
                assert key not in shown, key
                shown[key] = yaml.safe_load(default)
    return shown


def test_the_pages_about_the_agent_have_all_settings_with_their_defaults():
    assert settings(AGENT_PAGES, "model") == leaves(ModelConfig())


def test_the_page_about_the_governor_has_its_settings_and_its_signs():
    page = DOCS / "howto" / "governor.md"
    assert settings([page], "governor") == leaves(GovernorConfig())
    signs = {name for _, (names, *_) in rows(page, "sign") for name in re.findall(r"`([^`]+)`", names)}
    assert signs == {*SIGNS, "grad_norm/..."}


def test_every_algorithm_has_a_page_with_all_settings_and_their_defaults():
    assert {path.stem for path in ALGORITHM_PAGES} == {"index", *ALGORITHMS}
    for name in ALGORITHMS:
        expected = leaves(ALGORITHMS[name].config_class())
        del expected["_target_"]
        shared: dict[str, Any] = {}
        for header, (key, default, *_) in rows(DOCS / "algorithms" / "index.md", "key of"):
            if header == "key of every algorithm" or name in header:
                shared[key.strip("`")] = yaml.safe_load(default.strip("`"))
        assert shared | settings([DOCS / "algorithms" / f"{name}.md"], "algorithm") == expected


def test_the_commands_of_the_page_about_pretraining_fit_together():
    page = (DOCS / "pretrain.md").read_text()
    lines = re.findall(r"^torchrl-agent (.* town_agent .+)$", page, re.MULTILINE)
    *lessons, (_, again, *overrides) = (shlex.split(line) for line in lines)
    assert [lesson[1] for lesson in lessons] == list(MODULES)
    outputs = {module: options[-1] for _, module, _, *options in lessons}
    for _, module, config, *options in lessons:
        assert (config, options[-2]) == (again, "--output")
        assert switch_on(module, Experiment.load(config)).name == config
        assert f"pretrained.perception={outputs['perception']}" == options[0] or len(options) == 2
    experiment = Experiment.load(again, *overrides)
    assert experiment.pretrained.paths() == {module: outputs[module] for module in ("world_model", "social_model")}
    assert set(experiment.frozen) <= set(MODULES)


PUBLIC_MODULES = (
    "torchrl_agent.core.keys",
    "torchrl_agent.core.ranks",
    "torchrl_agent.transforms",
    "torchrl_agent.cli",
    "envs.adapters.",
    "envs.libs.",
)
"""Public although no package lists them in ``__all__``."""


def imports(code: str) -> set[tuple[str, str]]:
    """(module, name) of everything of ours that some Python imports."""
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom) and node.module]
    ours = [node for node in nodes if str(node.module).split(".")[0] in ("envs", "torchrl_agent")]
    return {(str(node.module), alias.name) for node in ours for alias in node.names}


def test_guides_and_notebooks_import_only_what_is_public():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    shown = [code for page in pages for language, code in blocks(page) if language == "python"]
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        shown += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    found = {pair for code in shown for pair in imports(re.sub(r"^[!%].*$", "", code, flags=re.MULTILINE))}
    assert len(found) > 40
    hidden = [
        f"{module}.{name}"
        for module, name in found
        if not f"{module}.{name}".startswith(PUBLIC_MODULES)
        and name not in getattr(importlib.import_module(module), "__all__", [])
    ]
    assert hidden == []


@pytest.mark.slow
@pytest.mark.ci
def test_a_world_of_your_own_is_learned(folder):
    run_page(DOCS / "howto" / "own_world.md")
    assert float(re.search(r'"win_rate": ([\d.]+)', (folder / "runs/treasure/summary.json").read_text())[1]) > 0.95
    with Image.open(folder / "treasure.gif") as film:
        assert film.size == (440, 40) and film.info["duration"] == 200  # milliseconds: 5 steps a second


@pytest.mark.slow
def test_rewards_and_towns_of_your_own_work(folder):
    names = run_page(DOCS / "howto" / "own_town.md")
    assert names["town"].rules.reward.weights == {"money": 0.2}
    assert (folder / "runs/lazy/summary.json").is_file()
    assert "hasty.hasty_arena" in (folder / "runs/hasty/config.yaml").read_text()


@pytest.mark.slow
def test_modules_of_your_own_learn(folder):
    names = run_page(DOCS / "howto" / "own_module.md")
    assert names["forecast"].shape == (4, 10, 1)
    header = (folder / "runs/forecaster/metrics.csv").read_text().splitlines()[0]
    assert "train/loss_forecast" in header.split(",")
    assert (folder / "runs/apart/summary.json").is_file()


@pytest.mark.slow
def test_networks_of_your_own_grow(folder):
    names = run_page(DOCS / "howto" / "own_host.md")
    assert names["env"].rules.widths == (4, 8) and names["text"].rules.widths == (16, 16)
    assert names["grown"].any() and names["read"]["next", "episode", "germinated"].any()
    assert "garden.garden" in (folder / "runs/gardener/config.yaml").read_text()


@pytest.mark.slow
def test_an_algorithm_of_your_own_learns(folder):
    names = run_page(DOCS / "howto" / "own_algorithm.md")
    assert len(names["returns"]) == 4
    rows = list(csv.DictReader((folder / "runs/regression/metrics.csv").open()))
    assert int(float(rows[-1]["frames"])) == 3072
    assert math.isfinite(float(rows[-1]["train/policy_gradient_loss"]))
    assert "temperature: 0.3" in (folder / "runs/regressed/config.yaml").read_text()
    assert "algorithms.ppo.PPO" in (folder / "runs/compared/config.yaml").read_text()


@pytest.mark.slow
def test_processes_train_one_agent_together(folder):
    run_page(DOCS / "howto" / "distributed.md")
    frames = [int(line.split()[0]) for line in (folder / "train_together.txt").read_text().splitlines()]
    assert frames == [512, 1024, 1536, 2048]
    for name in ("together", "in_python"):
        assert (folder / "runs" / name / "checkpoints/checkpoint_2048.pt").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "names"),
    [
        (DOCS / "howto" / "precision.md", ("in_half", "as_the_device_likes")),
        (DOCS / "howto" / "memory.md", ("frugal",)),
    ],
    ids=["precision", "memory"],
)
def test_agents_learn_in_fewer_bits_and_in_less_memory(folder, page, names):
    run_page(page)
    assert all((folder / "runs" / name / "summary.json").is_file() for name in names)


@pytest.mark.slow
@pytest.mark.ci
def test_a_run_is_resumed_and_its_agent_taken_along(folder):
    names = run_page(DOCS / "howto" / "resume.md")
    assert names["iteration"].frames == 2048
    assert '"frames": 4096' in (folder / "runs/first/summary.json").read_text()
    assert '"frames": 6144' in (folder / "runs/slower/summary.json").read_text()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.filterwarnings("ignore")
def test_the_parts_work_in_torchrl(folder):
    names = run_page(DOCS / "howto" / "torchrl.md")
    assert names["batch"].shape == (8, 64)


def scalars(file: Path) -> list[tuple[int, float]]:
    """(step, value) of what TorchRL's CSV logger wrote."""
    return [(int(step), float(value)) for step, value in (line.split(",") for line in file.read_text().splitlines())]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_recipes_for_torchrls_scripts_learn(folder):
    names = run_page(DOCS / "howto" / "torchrl_recipes.md")
    for file in (ROOT / "examples" / "hydra_trainer").iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    assert (names["replayed"] - names["sample"]["action_log_prob"]).abs().max() < 1e-5, "memory is as it was"
    assert not names["sample"]["next", "done"][:, :-1].any(), "no slice reaches into the next episode"
    assert names["explore"].eps < 0.6
    assert torch.isfinite(names["losses"]["loss"])
    assert (folder / "collect.txt").read_text().count("collected 16 16") == 2
    assert list((folder / "logs/ppo-arena").glob("events*"))
    assert scalars(folder / "logs/ppo-arena/scalars/train/kl.csv")[0][0] == 1024
    (folder / "same.py").write_text(
        "import networks\nfrom train_arena import trainer\n"
        "names = [next(each.parameters()).data_ptr() for each in (networks.actor(), trainer.collector.policy)]\n"
        "print(set(names) == {next(trainer.loss_module.actor_network.parameters()).data_ptr()})\n"
    )
    run_command("python same.py")
    assert (folder / "same.txt").read_text().endswith("2048\nTrue\n"), "what collects is what learns"
    written = folder / "logs/ppo_arena/scalars"
    assert scalars(written / "optim_steps.csv") == [(2048, 2 * 4 * 5)]  # an epoch's end counts as its fifth minibatch
    assert math.isfinite(scalars(written / "loss_objective.csv")[-1][1])


@pytest.mark.slow
def test_the_gymnasium_and_pettingzoo_views_work(folder):
    pytest.importorskip("pettingzoo")
    names = run_page(DOCS / "howto" / "gymnasium.md")
    assert names["town"].agents == []
    assert (folder / "runs/acrobot/summary.json").is_file()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_models_come_from_stable_baselines_and_go_back(folder):
    pytest.importorskip("stable_baselines3")
    names = run_page(DOCS / "stable_baselines3.md")
    assert names["actions"].shape == (8,) and names["model"].num_timesteps == 64
    assert '"frames": 64' in (folder / "runs/mine/summary.json").read_text()
    kept, careful = (
        json.loads((folder / "runs" / run / "checkpoints" / "checkpoint_32.normalization.json").read_text())
        for run in ("mine", "careful")
    )
    assert kept == careful and kept["obs_count"] > 32


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_study_of_optunas_tries_shapes(folder):
    pytest.importorskip("optuna").logging.set_verbosity(40)
    study = run_page(DOCS / "howto" / "sweeps.md", having="optuna")["study"]
    assert len(study.trials) == 4
    assert study.best_params.keys() == {"width", "rollout_steps", "rate"}
    assert math.isfinite(study.best_value)
    assert not list(folder.iterdir()), "learn() touches no file"


def test_a_sweep_trains_every_combination_as_its_page_says(folder, capsys):
    run_page(DOCS / "howto" / "sweeps.md", having="torchrl-agent")
    printed = capsys.readouterr().out
    assert [path.name for path in sorted((folder / "runs").iterdir())] == [f"rates-{number}" for number in range(1, 5)]
    assert all(f"rates-{number}" in printed.rpartition("frames in")[2] for number in range(1, 5)), "compared"


@pytest.mark.slow
def test_ray_tunes_shapes(folder):
    pytest.importorskip("ray.tune")
    (folder / "ray_tune.py").write_text(smaller((ROOT / "examples" / "ray_tune.py").read_text()))
    run_command("python ray_tune.py")
    best, frames = (folder / "ray_tune.txt").read_text().splitlines()[-1].rsplit(" ", 1)
    assert ast.literal_eval(best).keys() == {"width", "rate"}
    assert int(frames) in range(2048, 8193, 2048)
    assert len(list((folder / "tuned").rglob("learner.pt"))) >= 2


def test_a_population_learns_as_its_page_says(folder):
    rule, learning = (code for name, code in blocks(DOCS / "population.md") if name == "python")
    (folder / "my_module.py").write_text(rule)
    names: dict = {}
    exec(learning.replace('"device=cpu"', '"device=cpu", "total_frames=512"'), names)
    assert len(names["population"].member_metrics) == 4
    assert names["agent"] is names["population"].best_agent(2)
    words = [
        "population.members=3",
        "population.every=256",
        "population.evolve={_target_: my_module.worst_copies_best}",
    ]
    evolution = Experiment.load("smoke", "device=cpu", *words).make_learner().evolution
    assert evolution.step(256, torch.tensor([3.0, 1.0, 2.0])).parents[:, 0].tolist() == [0, 0, 2]
    assert evolution.step(512, torch.tensor([3.0, math.nan, 2.0])).parents[:, 0].tolist() == [0, 1, 0]


def test_a_league_learns_as_its_page_says():
    names: dict = {}
    eager = ", ".join(f'"acceleration.{part}=false"' for part in ("step", "advantages", "update"))
    exec(block(DOCS / "league.md", "python").replace('"device=cpu"', f'"device=cpu", {eager}'), names)
    assert names["league"].ratings.rating[:4].isfinite().all()
    assert len(names["league"].pool.used) == 4


def test_the_growth_pages_lines_run():
    names: dict = {}
    code = "".join(code for language, code in blocks(DOCS / "growth.md") if language == "python")
    exec(code.replace("num_envs=64", "2").replace("rollout(64", "rollout(5").replace("ones(64", "ones(2"), names)
    assert names["data"]["next", "episode", "germinated"].shape == (2, 5, 1)


def test_a_replay_is_shown_and_written_as_its_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(block(DOCS / "replay.md", "python").replace("steps=20, ahead=4", "steps=2, ahead=1"), names)
    assert names["village"]._repr_html_().startswith("<iframe")
    assert Path("village.html").stat().st_size < 100_000


def test_every_how_to_page_is_tested():
    pages = {path.stem for path in (DOCS / "howto").glob("*.md")}
    tests = "".join(
        (ROOT / "tests" / name).read_text() for name in ("test_docs.py", "test_benchmarl.py", "test_clusters.py")
    )
    assert pages == set(re.findall(r'"howto" / "(\w+)\.md"', tests))


SEARCHED = {
    "hyperparameters": "algorithms/index.md",
    "vectorized": "worlds.md",
    "imitation learning": "pretrain.md",
    "behavior cloning": "pretrain.md",
    "mixed precision": "howto/precision.md",
    "frame stack": "faq.md",
    "MuJoCo": "worlds_you_bring.md",
    "Atari": "worlds_you_bring.md",
    "reward shaping": "howto/own_town.md",
    "intrinsic reward": "agent/policy.md",
    "troubleshooting": "faq.md",
    "FAQ": "faq.md",
}
"""Words of the field, and the page where the thing is: the site's search finds words only where they are written."""


def test_the_words_that_people_search_for_are_where_the_thing_is():
    pages = {page: (DOCS / page).read_text().lower() for page in SEARCHED.values()}
    assert [word for word, page in SEARCHED.items() if word.lower() not in pages[page]] == []


def test_the_sentences_among_the_questions_are_those_that_the_code_says(tmp_path):
    page = (DOCS / "faq.md").read_text()
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "metrics.csv").touch()
    with pytest.raises(ValueError) as error:
        next(train(Experiment.load("smoke", "device=cpu", f"run.folder={tmp_path}", "run.name=first")))
    assert str(error.value).replace(str(tmp_path), "runs").startswith("run runs/first exists already")
    assert "run runs/first exists already" in page


@pytest.mark.slow
def test_the_site_is_built_without_a_network_and_without_a_warning(tmp_path):
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings_handlers.python")
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https")}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "TownEnv" in (tmp_path / "api/games/index.html").read_text()
    assert "make train" in (tmp_path / "index.html").read_text()
    pages = {path: path.read_text() for path in tmp_path.rglob("*.html")}
    roles = r":(?:class|meth|func|attr|data|mod|exc|obj):\s*(?:`|<code)"
    assert [str(path) for path, page in pages.items() if re.search(roles, page)] == []
    assert (tmp_path / "notebooks" / "01_meet_the_worlds.ipynb").is_file()
    assert 'href="01_meet_the_worlds.ipynb"' in (tmp_path / "notebooks" / "index.html").read_text()
