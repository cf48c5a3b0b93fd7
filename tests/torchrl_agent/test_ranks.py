"""One training in several processes; what starts them is slow."""

import json
import math
import shutil

import pytest
import torch
from launching import QUICK, ROOT, checkpoint, flat, rows, torchrun
from tensordict import TensorDict
from torch import distributed
from torchrl.objectives import ClipPPOLoss

from torchrl_agent import Experiment
from torchrl_agent.cli import main
from torchrl_agent.core import ranks
from torchrl_agent.core import rendezvous as meeting
from torchrl_agent.core.checkpoint import code_digest
from torchrl_agent.core.ranks import normalized
from torchrl_agent.optimization.sharding import check_shards

EAGER = ("acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false")


# --- in one process --------------------------------------------------------------------------------------------------


def test_one_process_is_given_back_what_it_gave():
    value = torch.arange(3.0)
    assert (ranks.size(), ranks.rank()) == (1, 0)
    for function in (ranks.mean, ranks.largest, ranks.all_true):
        assert function(value) is value
    assert ranks.means([value])[0] is value
    assert ranks.moments(value, value, value) == (value, value, value)
    assert ranks.gather_rows({"x": value}, 0)["x"] is ranks.own_rows({"x": value}, 0)["x"] is value
    assert (ranks.first(lambda: 5), ranks.all_gather(5), ranks.highest(5), ranks.share(7, "x")) == (5, [5], 5, 7)
    with ranks.started(1.0):
        assert ranks.size() == 1


def test_one_process_draws_what_torch_draws():
    torch.manual_seed(3)
    mine = [ranks.draw(torch.rand, (4, 2), torch.device("cpu")), ranks.permutation(5, torch.device("cpu"))]
    torch.manual_seed(3)
    assert all(torch.equal(a, b) for a, b in zip(mine, [torch.rand(4, 2), torch.randperm(5)], strict=True))


def test_rows_of_two_ranks_are_drawn_and_found():
    """What a rank draws is its part of what one process draws, and leaves the generator where that does."""
    found = []
    for rank in (0, 1):
        torch.manual_seed(3)
        with ranks.among(2, rank):
            numbers, order = ranks.draw(torch.rand, (2, 3, 4), torch.device("cpu"), 1), ranks.permutation(5, "cpu")
            found.append((numbers, order, ranks.own_rows({"x": torch.arange(8).view(2, 4)}, -1)["x"], torch.rand(1)))
    torch.manual_seed(3)
    whole = torch.rand(2, 6, 4)
    torch.randperm(10)
    assert torch.equal(torch.cat([numbers for numbers, *_ in found], 1), whole)
    assert all(order.sort().values.tolist() == list(range(5)) for _, order, *_ in found)
    assert not torch.equal(found[0][1], found[1][1])
    assert [own.tolist() for _, _, own, _ in found] == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert found[0][3] == found[1][3] == torch.rand(1)


def test_advantages_are_normalized_in_each_minibatch():
    advantage, draws = torch.tensor([[1.0], [10.0], [3.0], [30.0]]), torch.tensor([[2, 0], [1, 3]])
    # mean 2 and deviation sqrt(2); mean 20 and deviation sqrt(200)
    expected = torch.tensor([[-1.0], [-1.0], [1.0], [1.0]]) / 2**0.5
    assert torch.allclose(normalized(advantage, draws), expected)


def test_advantages_of_the_dead_do_not_count():
    advantage = torch.tensor([1.0, -1, 2, -2, -5, -5, -5, -5]).unsqueeze(-1)
    valid = torch.tensor([True] * 4 + [False] * 4)
    alive = normalized(advantage, torch.arange(8).unsqueeze(0), valid)[:4].flatten()
    deviation = math.sqrt((1 + 1 + 4 + 4) / 4)
    assert alive.tolist() == pytest.approx([value / deviation for value in (1, -1, 2, -2)])
    loss = ClipPPOLoss.__new__(ClipPPOLoss)
    loss.normalize_advantage_exclude_dims = ()
    theirs = loss._standardize_advantage(advantage, TensorDict({"shifted_valid": valid}, [8]))
    torch.testing.assert_close(normalized(advantage, torch.arange(8).unsqueeze(0), valid), theirs)
    nobody = normalized(advantage, torch.arange(8).unsqueeze(0), torch.zeros(8, dtype=torch.bool))
    assert nobody.isfinite().all()


def test_worlds_of_a_part_play_the_games_of_the_set():
    """Rows 2 and 3 of a set of four, by a world of two."""
    whole, part = (Experiment.load("smoke", "device=cpu", f"world.num_envs={n}").make_world() for n in (4, 2))
    part.take_shard(2, 4)
    assert part.curriculum.num_envs == 4
    seen = []
    for world in (whole, part):
        world.set_seed(7)
        root = world.reset()
        for _ in range(40):
            root.set("action", torch.ones(world.batch_size, dtype=torch.int64))
            _, root = world.step_and_maybe_reset(root)
        seen.append(root.get("observation"))
    assert torch.equal(seen[0][2:], seen[1])


@pytest.mark.parametrize("cuda", [False, True])
def test_a_rank_that_cannot_talk_says_so_before_anybody_waits_for_it(monkeypatch, cuda):
    monkeypatch.setattr(distributed, "is_backend_available", lambda name: name == "gloo" and cuda)
    monkeypatch.setattr(meeting, "_meet", lambda *_: pytest.fail("nobody shall wait for it"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    sentence = f"rank 1: torch was built without {'nccl' if cuda else 'gloo'}, by which ranks talk"
    with pytest.raises(ValueError, match=sentence), ranks.started(5.0, cuda):
        pass
    assert ranks.size() == 1


def test_a_run_goes_on_by_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ("train", "smoke", "run.name=a", "run.resume=auto", *QUICK, "total_frames=1024")
    assert main([*words]) == 0
    whole = (tmp_path / "runs/a/metrics.csv").read_text()
    assert main([*words]) == 0  # nothing is left to do
    assert (tmp_path / "runs/a/metrics.csv").read_text() == whole
    (tmp_path / "runs/a/checkpoints/checkpoint_1024.pt").unlink()  # as if it had been killed before
    assert main([*words]) == 0
    again = rows(tmp_path / "runs/a")
    assert [row["frames"] for row in again] == [512, 1024]
    assert main([*words, "seed=1"]) == 2
    assert "another configuration" in capsys.readouterr().err
    assert main(["train", "smoke", "run.resume=auto"]) == 2
    assert "give run.name=" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("override", "named"), [("run.resume=always", "use one of never, auto"), ("run.rank_timeout=0", "above 0")]
)
def test_settings_that_cannot_be_are_refused(override, named):
    with pytest.raises(ValueError, match=named):
        Experiment.load("smoke", override)


def test_any_other_code_has_another_digest(monkeypatch, tmp_path):
    before = code_digest()
    assert before == code_digest()
    for package in ("envs", "torchrl_agent"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("torchrl_agent.core.checkpoint.SOURCE", tmp_path)
    assert code_digest() == before
    with (tmp_path / "envs/base/world.py").open("a") as file:
        file.write("# another line\n")
    assert code_digest() != before


# --- two ranks are one process ---------------------------------------------------------------------------------------

LEARNS_COMPILED = ("acceleration.advantages=true", "acceleration.update=true")  # where ranks talk
ARENA = ("arena", "world.num_envs=64", "model.hidden_sizes=[64,64]", "algorithm.minibatch_size=4096", *EAGER)
IN_PARTS = (  # two of three layers of each network; the last has one output, or its biases alone would be whole
    "smoke",
    "run.shard=true",
    "model.hidden_sizes=[256,128]",
    "algorithm.minibatch_size=512",
    *EAGER,
)
TOWN = (
    "town",
    "world={num_envs: 8, level: L6}",
    "model={hidden_sizes: [32,32], centralized_critic: true}",
    "algorithm.minibatch_size=2048",
    *EAGER,
)
FOUR_MODULES = (
    "town_agent",
    "world.num_envs=4",
    "algorithm={rollout_steps: 16, minibatch_size: 256}",
    "model.perception.prediction_coeff=0",  # its noise belongs to a place in the minibatch, not to a frame
    *EAGER,
)


@pytest.mark.slow
def test_two_ranks_find_what_one_process_finds(tmp_path):
    torchrun(tmp_path, module="ranks_arithmetic")


def test_every_learner_learns_the_same_in_two_ranks(tmp_path):
    torchrun(tmp_path, module="ranks_learners")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("configuration", "iterations", "tolerance"),
    [
        (ARENA, 4, 1e-6),  # 16 updates
        (("smoke", "algorithm=a2c", "governor.enabled=true", "evaluation.every=256"), 4, 1e-6),
        (("smoke", "algorithm.minibatch_size=512", *LEARNS_COMPILED), 4, 1e-6),
        (IN_PARTS, 4, 1e-6),
        (TOWN, 1, 1e-6),
        (FOUR_MODULES, 1, 1e-5),
    ],
    ids=["arena", "a2c", "compiled", "in_parts", "town", "four_modules"],
)
def test_two_ranks_are_one_process(tmp_path, monkeypatch, configuration, iterations, tolerance):
    monkeypatch.chdir(tmp_path)
    experiment = Experiment.load(*configuration)
    frames = iterations * experiment.algorithm.rollout_steps * experiment.world["num_envs"]
    words = ("train", *configuration, *QUICK, f"total_frames={frames}")
    assert main([*words, "run.name=one"]) == 0
    torchrun(tmp_path, *words, "run.name=two")

    one, two = (checkpoint(tmp_path / "runs" / name, frames) for name in ("one", "two"))
    assert one.keys() == two.keys()
    assert (flat(one["agent"]) - flat(two["agent"])).norm() <= tolerance * flat(one["agent"]).norm()
    for name, value in one["algorithm"]["reward_scaler"].items():
        torch.testing.assert_close(two["algorithm"]["reward_scaler"][name], value, rtol=1e-5, atol=1e-6, msg=name)
    assert torch.equal(one["random"], two["random"])
    for name, value in one["world"].items():
        if name != "curriculum":
            torch.testing.assert_close(two["world"][name], value, rtol=1e-5, atol=1e-4, msg=name)
    for mine, theirs in zip(rows(tmp_path / "runs/one"), rows(tmp_path / "runs/two"), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-2, abs=1e-4, nan_ok=True)
    described = [json.loads((tmp_path / "runs" / name / "summary.json").read_text()) for name in ("one", "two")]
    assert described[0]["frames"] == described[1]["frames"] == frames


@pytest.mark.slow
def test_a_model_in_parts_goes_on_in_one_process_and_in_parts_again(tmp_path):
    steady = ("algorithm.learning_rate.schedule=constant", "run.name=run")
    torchrun(tmp_path, "train", *IN_PARTS, *QUICK, *steady, "total_frames=1024")
    torchrun(tmp_path, "resume", "runs/run", "total_frames=1536", processes=1)
    torchrun(tmp_path, "resume", "runs/run", "total_frames=2048")
    torchrun(tmp_path, "train", *IN_PARTS, *QUICK, *steady[:1], "run.name=whole", "total_frames=2048", processes=1)
    one, other = (checkpoint(tmp_path / "runs" / name, 2048) for name in ("whole", "run"))
    assert torch.equal(one["random"], other["random"])
    assert (flat(one["agent"]) - flat(other["agent"])).norm() <= 1e-5 * flat(one["agent"]).norm()
    for index, moments in one["algorithm"]["optimizer"]["state"].items():
        theirs = other["algorithm"]["optimizer"]["state"][index]
        torch.testing.assert_close(theirs["exp_avg"], moments["exp_avg"], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["evaluation.every=256"], "run.shard is set but evaluation.every needs the whole agent"),
        (["governor.enabled=true"], "run.shard is set but governor.enabled needs the whole agent"),
        (["algorithm.lag=2"], "run.shard is set but algorithm.lag needs the whole agent"),
    ],
)
def test_what_needs_the_whole_agent_is_refused_where_it_is_in_parts(words, sentence):
    with ranks.among(2, 0), pytest.raises(ValueError, match=sentence):
        Experiment.load("smoke", "device=cpu", "run.shard=true", *words).make_learner()


@pytest.mark.parametrize("words", [["algorithm=impala"], ["algorithm.lag=2"]])
def test_where_players_lag_no_rank_learns_by_a_loop_of_ranks(monkeypatch, words):
    monkeypatch.setattr(ranks, "all_gather", lambda facts: [facts, facts])
    with ranks.among(2, 0), pytest.raises(ValueError, match="where players lag, one of several processes learns"):
        Experiment.load("smoke", "device=cpu", *words).make_learner()


@pytest.mark.parametrize("precision", ["float16", "float8"])
def test_parts_learn_in_no_precision_that_scales(precision):
    with pytest.raises(ValueError, match=f"algorithm.precision is {precision}: use bfloat16 or float32"):
        check_shards([torch.nn.Parameter(torch.zeros(1))], precision)
    check_shards([], precision)
