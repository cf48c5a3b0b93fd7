"""Runs: repeatable, resumable bit by bit, complete on disk, and able to learn."""

import contextlib
import functools
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import types

import launching
import pytest
import torch
from launching import assert_same, numbers, play, weights
from PIL import Image
from tensordict import TensorDict
from torchrl.data import Bounded, Categorical, Composite
from torchrl.envs import EnvBase

from envs.arena import observation
from torchrl_agent import Experiment, cli, evaluate, learn, load_agent, train
from torchrl_agent.core.checkpoint import CheckpointError, checkpoints, load_checkpoint
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.experiment.judging import PeriodicEvaluator
from torchrl_agent.loop import check_finite
from torchrl_agent.optimization.updater import NonFiniteError
from torchrl_agent.runs import writer as run_writer
from torchrl_agent.runs.film import film_policy
from torchrl_agent.runs.metrics import read_metrics
from torchrl_agent.training.evaluator import clearly_other, evaluate_policy, intervals, summarize
from torchrl_agent.transforms import get_statistics

FEW_STEPS = ("world.num_envs=64", "algorithm.rollout_steps=8", "world.rules={max_steps: 40}")
"""As many frames of more worlds and shorter games."""


def smoke(folder, *overrides, **names):
    return launching.smoke(folder, *FEW_STEPS, *overrides, **names)


# --- worlds of the test's own, reached by name like any other


class Tiny(EnvBase):
    """One step per episode, or ``length``; a one-hot is observed, and naming it is worth 1."""

    def __init__(
        self, num_envs=8, device=None, size=3, length=1, poison_at=None, signals_at=None, signal_name="SIGINT"
    ):
        super().__init__(batch_size=[num_envs], device=device)
        self.size, self.length, self.poison_at = size, length, poison_at
        self.signals_at, self.signal = signals_at or (), getattr(signal, signal_name)
        self.observation_spec = Composite(observation=Bounded(0, 1, (num_envs, size)), shape=(num_envs,))
        self.action_spec = Categorical(size, shape=(num_envs,))
        self.reward_spec = Bounded(0, 1, (num_envs, 1))
        self.generator = torch.Generator()
        self.age = torch.zeros(num_envs, 1)
        self.steps = 0

    def _observe(self):
        self.answer = torch.randint(self.size, self.batch_size, generator=self.generator)
        return torch.nn.functional.one_hot(self.answer, self.size).float()

    def _reset(self, tensordict=None):
        rows = None if tensordict is None else tensordict.get("_reset", None)
        self.age = torch.zeros_like(self.age) if rows is None else torch.where(rows, 0.0, self.age)
        return TensorDict({"observation": self._observe()}, self.batch_size)

    def _step(self, tensordict):
        reward = (tensordict["action"] == self.answer).float().unsqueeze(-1)
        self.age, self.steps = self.age + 1, self.steps + 1
        if self.steps == self.poison_at:
            reward[0] = math.nan
        if self.steps in self.signals_at:
            signal.raise_signal(self.signal)
        done = self.age >= self.length
        values = {"observation": self._observe(), "reward": reward, "done": done, "terminated": done.clone()}
        return TensorDict(values, self.batch_size)

    def _set_seed(self, seed):
        self.generator.manual_seed(seed or 0)


class Staircase(Tiny):
    """World i gives reward 1 per step for i + 1 steps in its first episode, and 100 per step ever after."""

    def _reset(self, tensordict=None):
        fresh = super()._reset(tensordict)
        if tensordict is None or tensordict.get("_reset", None) is None:
            self.first = torch.ones_like(self.age)
        return fresh

    def _step(self, tensordict):
        stepped = super()._step(tensordict)
        done = self.age >= torch.arange(self.batch_size[0]).unsqueeze(-1) + 1
        reward = torch.where(self.first > 0, 1.0, 100.0)
        self.first = torch.where(done, 0.0, self.first)
        return stepped.update({"reward": reward, "done": done, "terminated": done.clone()})


@pytest.fixture
def tiny_worlds(monkeypatch):
    module = types.ModuleType("tiny_worlds")
    module.Tiny, module.Staircase = Tiny, Staircase
    monkeypatch.setitem(sys.modules, "tiny_worlds", module)


def tiny(folder, *overrides, target="Tiny"):
    path = folder / "tiny.yaml"
    path.write_text(
        "defaults: [experiment_schema, _self_]\nname: tiny\n"
        f"world: {{_target_: tiny_worlds.{target}, num_envs: 16}}\n"
        "total_frames: 8192\nmodel: {hidden_sizes: [16]}\n"
        "algorithm: {rollout_steps: 16, minibatch_size: 64, learning_rate: {initial: 0.01}}\n"
        "acceleration: {step: false, advantages: false, update: false}\n"
        f"run: {{folder: {folder}, name: run, checkpoint_every: 256, film: false, tensorboard: false}}\n"
        "evaluation: {episodes: 64}\n"
    )
    return Experiment.load(path, "device=cpu", *overrides, trust=True)


# --- repeating and resuming


def test_the_same_seed_gives_the_same_metrics_and_another_seed_others(tmp_path):
    first, second, other = (
        play(smoke(tmp_path, f"seed={seed}", "total_frames=1536", name=name))
        for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert len(first[0]) == 3
    assert first[0] == second[0]
    assert torch.equal(first[1], second[1])
    assert first[0] != other[0]
    assert not torch.equal(first[1], other[1])


def test_learn_is_train_without_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    experiment = Experiment.load("smoke", *FEW_STEPS, "total_frames=1024", "device=cpu")
    history = [numbers(iteration.metrics) for iteration in learn(experiment)]
    assert list(tmp_path.iterdir()) == []
    assert history == play(smoke(tmp_path, "total_frames=1024"))[0]


def test_resumed_equals_never_stopped_bit_by_bit(tmp_path):
    whole, whole_weights = play(smoke(tmp_path, name="whole"))
    begun, _ = play(smoke(tmp_path, "run.checkpoint_every=1000000", name="halves"), iterations=2)
    folder = tmp_path / "halves"
    experiment = Experiment.load(folder / "config.yaml")
    torch.manual_seed(99)  # whatever happened in between
    rest, rest_weights = play(experiment, resume=folder)
    assert len(whole) == 4
    assert begun + rest == whole
    assert torch.equal(rest_weights, whole_weights)
    rows = {name: read_metrics(tmp_path / name / "metrics.csv") for name in ("whole", "halves")}
    for one, other in zip(rows["whole"], rows["halves"], strict=True):
        assert numbers(one) == numbers(other)
    states = [load_checkpoint(tmp_path / name / "checkpoints" / "checkpoint_2048.pt") for name in ("whole", "halves")]
    assert_same(states[0]["world"], states[1]["world"])
    assert_same(states[0]["algorithm"], states[1]["algorithm"])


def test_a_finished_run_can_be_made_longer_but_not_resumed_as_it_is(tmp_path):
    play(smoke(tmp_path, "total_frames=512"))
    folder = tmp_path / "run"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="total_frames") as caught:
        play(Experiment.load(folder / "config.yaml", "evaluation.episodes=3"), resume=folder)
    assert "\n" not in str(caught.value)
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    history, _ = play(Experiment.load(folder / "config.yaml", "total_frames=1024"), resume=folder)
    assert len(history) == 1


def test_a_checkpoint_of_another_model_or_world_is_refused_in_a_sentence(tmp_path):
    play(smoke(tmp_path, "total_frames=512"))
    folder = tmp_path / "run"
    for change in ("model.hidden_sizes=[8]", "world.curriculum=null", "world.num_envs=32"):
        experiment = Experiment.load(folder / "config.yaml", "total_frames=1024", change)
        with pytest.raises(CheckpointError, match="does not fit") as caught:
            play(experiment, resume=folder)
        assert "\n" not in str(caught.value)


def test_an_agent_whose_observations_have_changed_since_is_refused_in_a_sentence(tmp_path, monkeypatch):
    play(smoke(tmp_path, "world.observation=offsets", "total_frames=512"))
    load_agent(tmp_path / "run", "cpu")
    names = observation.VECTORS["offsets"]
    monkeypatch.setitem(observation.VECTORS, "offsets", (*names, "something new"))
    with pytest.raises(CheckpointError, match="observations have changed since") as caught:
        load_agent(tmp_path / "run", "cpu")
    assert "\n" not in str(caught.value)


def test_the_learning_rate_falls_with_the_frames_seen(tmp_path):
    history, _ = play(
        smoke(tmp_path, "algorithm.learning_rate.schedule=linear", "algorithm.learning_rate.initial=0.004")
    )
    rates = [float(row["train/learning_rate"]) for row in history]
    assert rates == pytest.approx([0.004, 0.003, 0.002, 0.001])


def test_evaluation_plays_in_its_own_world_with_its_own_seed(tmp_path, tiny_worlds):
    torch.manual_seed(1)  # some fresh agents never answer right
    longer = tiny(tmp_path, "+evaluation.world.length=3", "evaluation.seed=1")
    agent = longer.make_agent(longer.make_world())
    figures = evaluate(longer, agent)
    assert figures["length_mean"] == 3
    assert figures == evaluate(longer, agent)
    assert (
        figures["return_mean"]
        != evaluate(tiny(tmp_path, "+evaluation.world.length=3", "evaluation.seed=2"), agent)["return_mean"]
    )


# --- what a run leaves


def test_a_run_folder_holds_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(run_writer, "film_policy", functools.partial(film_policy, steps=12))
    short = ["total_frames=1024", "+evaluation.world.rules={max_steps: 60}", "device=cpu"]
    experiment = Experiment.load("smoke", f"run.folder={tmp_path}", "run.name=full", *short)
    last = list(train(experiment))[-1]
    folder = tmp_path / "full"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        ".lock",
        "config.yaml",
        "code.json",
        "metrics.csv",
        "tensorboard",
        "checkpoints",
        "film.gif",
        "summary.json",
        "README.md",
    }
    assert Experiment.load(folder / "config.yaml") == experiment
    assert "torch" in json.loads((folder / "code.json").read_text())["versions"]
    assert len(read_metrics(folder / "metrics.csv")) == 2
    assert any((folder / "tensorboard").iterdir())
    assert len(checkpoints(folder / "checkpoints")) == 2
    with Image.open(folder / "film.gif") as film:
        assert film.n_frames > 1
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["config"], summary["seed"], summary["frames"]) == ("smoke", 0, 1024)
    assert summary["evaluation"]["episodes"] == 8
    assert summary["film"] == "film.gif"
    assert summary["metrics"]["train/updates"] == last.metrics["train/updates"] == 8


def test_checkpoints_hold_valid_json_even_before_an_episode_has_ended(tmp_path):
    play(smoke(tmp_path, "total_frames=512", "world.desynchronize=false"))

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    for path in (tmp_path / "run" / "checkpoints").glob("*.json"):
        json.loads(path.read_text(), parse_constant=refuse)


def test_metrics_have_the_tags_that_people_know(tmp_path):
    (iteration,) = learn(Experiment.load("smoke", "total_frames=512", "device=cpu"))
    assert {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/success_rate",
        "train/policy_gradient_loss",
        "train/value_loss",
        "train/entropy_loss",
        "train/approx_kl",
        "train/clip_fraction",
        "train/explained_variance",
        "train/learning_rate",
        "time/fps",
        "time/total_timesteps",
        "curriculum/stage",
    } <= set(iteration.metrics)
    assert iteration.metrics["time/total_timesteps"] == 512


def test_an_existing_run_is_refused_and_untouched(tmp_path):
    play(smoke(tmp_path, "total_frames=512"))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="exists already") as caught:
        play(smoke(tmp_path, "total_frames=1024"))
    assert "resume" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_an_existing_folder_that_is_no_run_is_refused_and_untouched(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("precious: true\n")
    with pytest.raises(ValueError, match="exists already"):
        play(smoke(tmp_path, "total_frames=512"))
    assert (tmp_path / "run" / "config.yaml").read_text() == "precious: true\n"


def test_a_run_that_cannot_begin_leaves_its_name_free(tmp_path):
    with pytest.raises(ValueError, match="centralized_critic"):
        play(smoke(tmp_path, "model.centralized_critic=true"))
    history, _ = play(smoke(tmp_path, "total_frames=512"))
    assert len(history) == 1


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ValueError, match=r"run\.folder") as caught:
        play(smoke(tmp_path / "file"))
    assert "\n" not in str(caught.value)


# --- stopping


def left_behind(folder):
    """Frames of the checkpoints and of the last row of metrics, and the summary, of a run."""
    saved = [int(path.stem.split("_")[1]) for path in checkpoints(folder / "checkpoints")]
    rows = read_metrics(folder / "metrics.csv")
    return saved, int(rows[-1]["frames"]), json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("way", ["break", "close", "error"])
def test_a_loop_that_is_left_leaves_a_checkpoint_of_the_last_iteration_and_a_summary(tmp_path, tiny_worlds, way):
    run = train(tiny(tmp_path, "run.checkpoint_every=1000000"))
    with contextlib.suppress(ZeroDivisionError):
        for iteration in run:
            if iteration.number == 3 and way == "error":
                raise ZeroDivisionError
            if iteration.number == 3 and way == "break":
                break
            if iteration.number == 3:
                run.close()
    del run  # as the end of a function does
    saved, last, summary = left_behind(tmp_path / "run")
    assert (saved, last) == ([768], 768)
    assert (summary["frames"], summary["ended"]) == (768, "stopped")
    assert "stopped before its end" in (tmp_path / "run" / "README.md").read_text()


FORGOTTEN = """
from torchrl_agent import Experiment, train
run = train(Experiment.load("smoke", "device=cpu", "threads=1", "run.name=run", "run.checkpoint_every=1000000"))
next(run)
"""


@pytest.mark.slow
def test_a_loop_that_is_left_open_when_python_ends_leaves_the_same(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(CONFIGS.parent)}
    command = [sys.executable, "-c", FORGOTTEN]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert "Exception ignored" not in done.stderr
    saved, last, summary = left_behind(tmp_path / "runs" / "run")
    assert (saved, last, summary["ended"]) == ([512], 512, "stopped")


def test_a_signal_in_the_middle_of_an_iteration_waits_for_its_end(tmp_path, tiny_worlds):
    """16 steps of 16 worlds are an iteration; the signal comes in the third."""
    handler = signal.getsignal(signal.SIGINT)
    experiment = tiny(tmp_path, "run.checkpoint_every=1000000", "+world.signals_at=[40]")
    with pytest.raises(KeyboardInterrupt):
        play(experiment)
    saved, last, summary = left_behind(tmp_path / "run")
    assert (saved, last, summary["frames"], summary["ended"]) == ([768], 768, 768, "stopped")
    assert "evaluation" not in summary
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_second_signal_stops_at_once_and_saves_nothing_half_done(tmp_path, tiny_worlds):
    experiment = tiny(tmp_path, "run.checkpoint_every=300", "+world.signals_at=[55,60]")
    with pytest.raises(KeyboardInterrupt):
        play(experiment)
    saved = [path.name for path in checkpoints(tmp_path / "run" / "checkpoints")]
    assert saved == ["checkpoint_512.pt"]
    assert len(read_metrics(tmp_path / "run" / "metrics.csv")) == 3
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_the_command_that_a_stopped_run_advises_works(tmp_path, tiny_worlds, capsys, name, code):
    tiny(tmp_path)  # writes tiny.yaml
    arguments = ["train", str(tmp_path / "tiny.yaml"), "--trust", "device=cpu", "run.checkpoint_every=1000000"]
    signalled = ["+world.signals_at=[40]", f"+world.signal_name={name}"]
    assert cli.main([*arguments, *signalled, "total_frames=1024"]) == code
    advice = capsys.readouterr().err.splitlines()[-1]
    assert "a checkpoint at 768 frames" in advice
    command = re.search(r"'torchrl-agent (.+)'", advice)[1]
    assert cli.main([*shlex.split(command), "world.signals_at=[]"]) == 0
    assert left_behind(tmp_path / "run")[2]["frames"] == 1024


def test_a_run_that_never_wrote_a_checkpoint_leaves_its_name_free(tmp_path, tiny_worlds, capsys):
    tiny(tmp_path)
    arguments = ["train", str(tmp_path / "tiny.yaml"), "--trust", "device=cpu", "total_frames=512"]
    assert cli.main([*arguments, "+world.signals_at=[5,6]"]) == 130
    assert "its name is free" in capsys.readouterr().err
    assert not checkpoints(tmp_path / "run" / "checkpoints")
    assert cli.main(arguments) == 0
    assert left_behind(tmp_path / "run")[1] == 512


def test_a_run_that_is_in_use_is_left_alone(tmp_path, tiny_worlds):
    experiment = tiny(tmp_path, "run.checkpoint_every=1000000")
    first = train(experiment)
    next(first)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="in use") as caught:
        next(train(tiny(tmp_path)))
    assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    first.close()
    with pytest.raises(ValueError, match="exists already"):  # it has a checkpoint now
        next(train(tiny(tmp_path)))


def test_a_checkpoint_is_also_written_every_so_many_minutes(tmp_path, tiny_worlds):
    changes = ("run.checkpoint_every=1000000", "total_frames=768")
    play(tiny(tmp_path, *changes, "run.name=often", "run.checkpoint_minutes=1e-9"))
    play(tiny(tmp_path, *changes, "run.name=seldom", "run.checkpoint_minutes=1000"))
    assert left_behind(tmp_path / "often")[0] == [256, 512, 768]
    assert left_behind(tmp_path / "seldom")[0] == [768]


# --- numbers that are not


def test_nan_from_a_world_stops_the_run_and_keeps_the_last_checkpoint(tmp_path, tiny_worlds):
    experiment = tiny(tmp_path, "+world.poison_at=40")  # in the third rollout of 16 steps
    with pytest.raises(NonFiniteError, match=r"next\.reward") as caught:
        play(experiment)
    assert "\n" not in str(caught.value)
    kept = checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name for path in kept] == ["checkpoint_256.pt", "checkpoint_512.pt"]
    state = load_checkpoint(kept[-1])
    assert all(value.isfinite().all() for value in state["agent"].values())
    assert len(read_metrics(tmp_path / "run" / "metrics.csv")) == 2
    assert "checkpoint_512.pt, is good" in str(caught.value)


def test_divergence_before_the_first_checkpoint_says_so(tmp_path):
    with pytest.raises(NonFiniteError, match="no checkpoint was written yet") as caught:
        play(smoke(tmp_path, "algorithm.learning_rate.initial=1e30"))
    assert "\n" not in str(caught.value)
    play(smoke(tmp_path, "total_frames=512"))  # its name is free


# --- learning and judging


@pytest.mark.slow
def test_the_identity_task_is_learned_in_seconds(tmp_path, tiny_worlds):
    experiment = tiny(tmp_path)
    first, *_, last = train(experiment)
    assert first.metrics["rollout/ep_rew_mean"] < 0.6  # a third by chance
    assert last.metrics["rollout/ep_rew_mean"] > 0.9
    assert last.metrics["rollout/ep_len_mean"] == 1.0
    loaded, agent = load_agent(tmp_path / "run", "cpu")
    result = evaluate(loaded, agent)
    assert result["episodes"] == 64
    assert result["return_mean"] == 1.0
    assert result["return_std"] == 0.0


# --- judging during training


SAMPLED = ("evaluation.every=512", "evaluation.episodes=16", "evaluation.deterministic=false")  # draws random numbers


def test_evaluation_on_the_way_changes_nothing_about_training(tmp_path, tiny_worlds):
    """Iterations are 256 frames."""
    without, weights_without = play(tiny(tmp_path, "total_frames=1280", "run.name=without"))
    judged, weights_judged = play(tiny(tmp_path, "total_frames=1280", "run.name=judged", *SAMPLED))
    assert torch.equal(weights_judged, weights_without)
    figures = [{tag for tag in row if tag.startswith("eval/")} for row in judged]
    assert [bool(row) for row in figures] == [False, True, False, True, False]
    assert {"eval/return_mean", "eval/return_std", "eval/length_mean"} <= figures[1]
    assert [{tag: row[tag] for tag in row if not tag.startswith("eval/")} for row in judged] == without
    rows = read_metrics(tmp_path / "judged" / "metrics.csv")
    assert [row["eval/return_mean"] != "" for row in rows] == [False, True, False, True, False]


def test_a_run_that_judges_itself_resumes_as_if_never_stopped(tmp_path):
    """In the Arena, where resuming is exact; episodes of a few steps, as these take a while."""
    short = ("evaluation.every=512", "evaluation.episodes=2", "evaluation.deterministic=false", "total_frames=1536")
    brief = "+evaluation.world.rules={max_steps: 8}"
    whole, whole_weights = play(smoke(tmp_path, *short, brief, name="whole"))
    begun, _ = play(smoke(tmp_path, *short, brief, name="halves"), iterations=1)
    rest, rest_weights = play(Experiment.load(tmp_path / "halves" / "config.yaml"), resume=tmp_path / "halves")
    assert all("eval/return_mean" in row for row in whole)
    assert begun + rest == whole
    assert torch.equal(rest_weights, whole_weights)


def test_the_best_checkpoint_is_the_one_that_was_judged_best(tmp_path, tiny_worlds):
    play(tiny(tmp_path, "total_frames=2048", "run.checkpoint_every=1000000", *SAMPLED))
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.csv") if row["eval/return_mean"]]
    scores = {int(row["frames"]): float(row["eval/return_mean"]) for row in rows}
    best = json.loads((tmp_path / "run" / "checkpoints" / "best.json").read_text())
    latest_of_the_best = max(frames for frames, score in scores.items() if score == max(scores.values()))
    assert len(scores) == 4
    assert best["measure"] == "eval/return_mean"
    assert best["score"] == max(scores.values())
    assert best["checkpoint"] == f"checkpoint_{latest_of_the_best}.pt"
    assert (tmp_path / "run" / "checkpoints" / best["checkpoint"]).is_file()


def test_evaluations_during_training_use_other_games_than_the_final_one(tmp_path):
    experiment = smoke(tmp_path, "evaluation.episodes=4", "+evaluation.world.rules={max_steps: 60}")
    agent = experiment.make_learner().agent
    look = PeriodicEvaluator(experiment, agent)()
    experiment.evaluation.seed += 1
    assert look["eval/return_mean"] == evaluate(experiment, agent)["return_mean"]
    experiment.evaluation.seed -= 1
    assert look["eval/return_mean"] != evaluate(experiment, agent)["return_mean"]


def test_training_ends_at_the_wanted_skill(tmp_path, tiny_worlds):
    judging = ("evaluation.every=256", "evaluation.mark=0.7", "evaluation.stop_at_mark=true")
    play(tiny(tmp_path, *judging, "evaluation.deterministic=false"))
    saved, last, summary = left_behind(tmp_path / "run")
    scores = [float(row["eval/return_mean"]) for row in read_metrics(tmp_path / "run" / "metrics.csv")]
    assert max(scores[:-1]) < 0.7 <= scores[-1]
    assert saved[-1] == last == summary["frames"] < 8192
    assert summary["ended"] == "mark"
    assert "when it reached its mark" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "culprit"),
    [
        (["evaluation.every=0"], "evaluation.every"),
        (["evaluation.stop_at_mark=true", "evaluation.every=512"], "evaluation.mark"),
        (["evaluation.stop_at_mark=true", "evaluation.mark=1"], "evaluation.every"),
        (["run.checkpoint_minutes=0"], "run.checkpoint_minutes"),
        (["run.checkpoint_minutes=nan"], "run.checkpoint_minutes"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, changes, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        smoke(tmp_path, *changes)
    assert "\n" not in str(caught.value)


def test_evaluation_takes_the_first_episode_of_every_world(tmp_path, tiny_worlds):
    experiment = tiny(tmp_path, target="Staircase")
    env = experiment.make_world(evaluation=True, num_envs=5)
    agent = experiment.make_agent(env)
    episodes = evaluate_policy(agent.actor, env)
    assert episodes["return"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert episodes["length"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    summary = summarize(episodes)
    assert summary["return_mean"] == 3.0
    assert summary["return_std"] == pytest.approx(math.sqrt(2.0))
    assert (summary["length_mean"], summary["episodes"]) == (3.0, 5)
    assert evaluate(experiment, agent, episodes=3)["return_mean"] == 2.0


def test_intervals_by_hand():
    summary = {"episodes": 10, "return_mean": 3.0, "return_std": 2.0, "win_rate": 0.8}
    found = intervals(summary)
    half = 2.262 * 2.0 / math.sqrt(9)  # the deviation is that of the ten
    assert found["return_mean"] == pytest.approx((3.0 - half, 3.0 + half))
    # (0.8 + 0.19208 -+ 1.96 sqrt(0.016 + 0.009604)) / 1.38416
    assert found["win_rate"] == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert clearly_other(summary, {**summary, "win_rate": 0.1}) == ["win_rate"]
    assert clearly_other(summary, {**summary, "win_rate": 0.6, "return_mean": 6.1}) == ["return_mean"]
    one = {"episodes": 1, "return_mean": 5.0, "return_std": 0.0}
    assert intervals(one)["return_mean"] == (-math.inf, math.inf)
    assert clearly_other(one, {**one, "return_mean": 9.0}) == []


def test_evaluation_stops_at_a_world_that_never_ends_and_says_so(tmp_path, tiny_worlds, caplog):
    experiment = tiny(tmp_path, "+world.length=1000000")
    env = experiment.make_world(num_envs=2)
    found = summarize(evaluate_policy(experiment.make_agent(env).actor, env, max_steps=100))
    (said,) = [record.getMessage() for record in caplog.records]
    assert "2 of 2 worlds did not finish an episode within the 100 steps" in said
    assert "change evaluation.max_steps" in said
    assert (found["unfinished"], found["episodes"], found["length_mean"]) == (2, 2, 100.0)


def test_evaluations_that_do_not_end_cost_their_figures_alone(tmp_path, tiny_worlds):
    """The last one's episodes that have ended are reported."""
    frames = ("total_frames=768", "evaluation.every=256", "evaluation.episodes=4", "evaluation.max_steps=10")
    experiment = tiny(tmp_path, "+world.length=8", "+evaluation.world.length=1000000", *frames)
    metrics = [iteration.metrics for iteration in train(experiment)]
    assert [row["eval/unfinished"] for row in metrics] == [4.0, 4.0, 4.0]
    assert not any("eval/return_mean" in row for row in metrics)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["frames"] == 768
    for figures in summary["ways"].values():
        assert (figures["unfinished"], figures["episodes"], figures["length_mean"]) == (4, 4, 10.0)


def test_episodes_that_have_not_finished_count_as_far_as_they_have_come(tmp_path, tiny_worlds):
    """World i ends after i + 1 steps, of which five are played."""
    experiment = tiny(tmp_path, target="Staircase")
    env = experiment.make_world(num_envs=8)
    found = evaluate_policy(experiment.make_agent(env).actor, env, max_steps=2)
    assert found["length"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0]
    assert found["unfinished"].tolist() == [0.0] * 5 + [1.0] * 3


def test_an_evaluation_on_a_cpu_ends_soon_after_its_last_game(tmp_path, tiny_worlds):
    experiment, steps = tiny(tmp_path, "+world.length=7"), []
    env = experiment.make_world(num_envs=2)
    actor = experiment.make_agent(env).actor
    evaluate_policy(lambda root: steps.append(root) or actor(root), env)
    assert len(steps) == 10


def test_evaluating_nothing_is_refused(tmp_path, tiny_worlds):
    experiment = tiny(tmp_path)
    with pytest.raises(ValueError, match="episodes"):
        evaluate(experiment, experiment.make_agent(experiment.make_world()), episodes=0)


def test_a_loaded_agent_is_the_trained_one_with_its_statistics(tmp_path):
    short = "+evaluation.world.rules={max_steps: 60}"
    last = list(train(smoke(tmp_path, "total_frames=1024", short)))[-1]
    experiment, agent = load_agent(tmp_path / "run", "cpu")
    assert torch.equal(weights(agent), weights(last.agent))
    assert agent.normalizer.running.count.item() == pytest.approx(1024, abs=1)
    path = tmp_path / "run" / "checkpoints" / "checkpoint_1024.normalization.json"
    assert json.loads(path.read_text()) == get_statistics(last.agent.normalizer, last.learner.algorithm.scaler)
    before = weights(agent)
    first, second = (evaluate(experiment, agent, episodes=4) for _ in range(2))
    assert first == second
    assert torch.equal(weights(agent), before)  # judging does not move the statistics
    _, earlier = load_agent(tmp_path / "run" / "checkpoints" / "checkpoint_512.pt", "cpu")
    assert not torch.equal(weights(earlier), before)


def masked_rollout(mask, alive):
    group = TensorDict({"action_mask": torch.tensor(mask), "alive": torch.tensor(alive), "reward": torch.ones(2)}, [2])
    return TensorDict({"agents": group}, [2])


def test_finite_values_may_be_too_large_to_be_added():
    check_finite(TensorDict({"reward": torch.full((2,), 3e38)}, [2]))
    with pytest.raises(NonFiniteError, match="NaN or infinity in reward"):
        check_finite(TensorDict({"reward": torch.tensor([3e38, math.inf])}, [2]))


def test_a_mask_must_leave_the_living_an_action():
    check_finite(masked_rollout([[True, False], [False, False]], alive=[True, False]))
    with pytest.raises(ValueError, match=r"agents\.action_mask leaves a living agent no action"):
        check_finite(masked_rollout([[True, False], [False, False]], alive=[True, True]))
    alone = TensorDict({"action_mask": torch.tensor([[False, False]]), "reward": torch.ones(1)}, [1])
    with pytest.raises(ValueError, match="action_mask leaves"):
        check_finite(alone)
