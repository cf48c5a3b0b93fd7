"""One process learns, others play with a policy that lags; what starts several processes is slow."""

import csv
import shutil
from types import SimpleNamespace

import pytest
import torch
from launching import QUICK, assert_same, learned_by_hand, torchrun, two_ranks
from tensordict import TensorDict

from torchrl_agent import Experiment
from torchrl_agent.algorithms.lagged_policy import LaggedPolicy
from torchrl_agent.training import actor_learner as actors

IMPALA = ("smoke", "algorithm=impala", "world.stage=1", *QUICK)
LAG = ("algorithm.lag=2", "algorithm.refresh_every=1")
TOWN = (
    "town",
    "algorithm=impala",
    *QUICK,
    "world={num_envs: 4, num_agents: 4, level: L6, privileged: true}",
    "model.hidden_sizes=[16]",
    "algorithm={rollout_steps: 16, num_minibatches: 1}",
    "acceleration={step: false, advantages: false, update: false}",
    "total_frames=256",
)


def checkpoint(run, frames):
    state = torch.load(run / "checkpoints" / f"checkpoint_{frames}.pt", weights_only=True)
    del state["metadata"]
    return state


def rows(run):
    table = list(csv.DictReader((run / "metrics.csv").open()))
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in table]


# --- which version plays ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lag", "every", "versions"),
    [
        (0, 1, [0, 1, 2, 3, 4, 5, 6]),
        (2, 1, [0, 0, 0, 1, 2, 3, 4]),
        (0, 3, [0, 0, 0, 3, 3, 3, 6]),
        (1, 2, [0, 0, 0, 2, 2, 4, 4]),
    ],
)
def test_each_rollout_is_played_by_the_newest_version_that_is_old_enough(lag, every, versions):
    agent = torch.nn.Linear(1, 1)
    player = LaggedPolicy(agent, lag, every)
    played = []
    for iteration in range(7):
        played.append(player.version)
        assert player.version == player.version_for(iteration)
        if iteration:
            assert player.agent.bias.item() == player.version or player.version == 0
        agent.bias.data.fill_(iteration + 1)
        player.learned(agent)
        player.prepare(iteration + 1)
    assert played == versions
    # with the versions of n iterations all rollouts can be played that want none after n
    for iterations in range(3):
        count = player.rollouts_of(iterations)
        assert player.version_for(count - 1) <= iterations < player.version_for(count)


def test_ppo_may_lag_and_judges_by_todays_critic():
    learner = Experiment.load("smoke", "algorithm.lag=2", "device=cpu").make_learner()
    assert learner.collector.agent is learner.algorithm.behavior is not learner.agent
    assert "state_value" not in learner.collector.policy.out_keys
    lags = [learner.improve(learner.collector.collect(), 1e-3)["lag"].item() for _ in range(4)]
    assert lags == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["algorithm.lag=-1"], "algorithm.lag is -1"),
        (["algorithm.lag=1", "population.members=2"], "use algorithm.lag=0"),
    ],
)
def test_a_lag_that_cannot_be_is_refused(overrides, named):
    with pytest.raises(ValueError, match=named):
        Experiment.load("smoke", "device=cpu", *overrides).make_learner()


# --- actors ----------------------------------------------------------------------------------------------------------


def an_actor(monkeypatch, device="cpu", lag=1):
    """One without worlds of ours, to which the learner's next tickets come from a list."""
    tickets = []

    def receive(message, rank, tag):
        if message.shape == (3,) and message.dtype == torch.int64:
            message.copy_(torch.tensor(tickets.pop(0)))

    monkeypatch.setattr(actors.distributed, "irecv", receive)
    monkeypatch.setattr(actors, "wait", lambda work: None)
    collector = SimpleNamespace(env=SimpleNamespace(device=torch.device(device)))
    return actors.Actor(collector, LaggedPolicy(torch.nn.Linear(1, 1), lag)), tickets


def test_an_actor_forgets_stages_without_worlds(monkeypatch):
    actor, tickets = an_actor(monkeypatch)
    kept = []
    for number in range(1, 7):
        tickets.append([actors.GO_ON, number, 10 * number])
        assert actor._follow_ticket()
        kept.append(sorted(actor.stages))
        assert actor._stage_for(number + 1) == 10 * number
    # rollout n is played in the stage after n - 1 iterations; whoever begins there asks for the one before
    assert kept == [[1], [1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 6]]


def test_an_actor_goes_on_with_the_numbers_of_its_device(monkeypatch):
    state = {"cuda": torch.tensor([1], dtype=torch.uint8)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state[device.type].clone())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda value, device: state.update({device.type: value}))
    actor, _ = an_actor(monkeypatch, "cuda")
    saved = actors.snapshot(actor.collector)
    state["cuda"] += 1
    expected = torch.rand(3)
    begin = {"player": actor.player.state_dict(), "stages": {}, "world": None, "random": saved["random"]}
    actor._begin(begin)
    assert state["cuda"].tolist() == [1]
    assert torch.equal(torch.rand(3), expected)


def test_the_layout_of_a_rollout_has_nested_sizes():
    """[T, N] = [2, 3] with groups of 4, also of what followed."""
    agents = TensorDict({"action": torch.zeros(2, 3, 4)}, [2, 3, 4])
    frames = TensorDict({"agents": agents, "next": TensorDict({"agents": agents.clone()}, [2, 3])}, [2, 3])
    described = actors.layout(frames)
    assert described["shape"] == (2, 3)
    assert described["nested"] == [("agents", (4,)), ("next", ()), (("next", "agents"), (4,))]
    assert [(key, tuple(shape)) for key, shape, _ in described["entries"]] == [
        (("agents", "action"), (4,)),
        (("next", "agents", "action"), (4,)),
    ]


@pytest.mark.slow
def test_actors_play_a_town_and_go_on_in_it(tmp_path):
    """Worlds with a group, which has a nested tensordict of its own."""
    torchrun(tmp_path, "train", *TOWN, "run.name=whole", "run.checkpoint_every=128")
    assert_same(checkpoint(tmp_path / "runs/whole", 256)["agent"], learned_by_hand(Experiment.load(*TOWN), 4))
    torchrun(tmp_path, "train", *TOWN, "run.name=halves", "run.checkpoint_every=128", "total_frames=128")
    torchrun(tmp_path, "resume", "runs/halves", "total_frames=256", processes=3)
    assert_same(*(checkpoint(tmp_path / "runs" / name, 256) for name in ("whole", "halves")))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [(), LAG], ids=["refreshed", "lagging"])
def test_actors_play_what_one_process_plays(tmp_path, changes):
    words = (*IMPALA, *changes, "total_frames=4096")
    for processes in (2, 3):
        torchrun(tmp_path, "train", *words, f"run.name={processes}", processes=processes)
    two, three = (checkpoint(tmp_path / "runs" / name, 4096) for name in "23")
    assert_same(two, three)
    assert rows(tmp_path / "runs/2") == rows(tmp_path / "runs/3")
    expected = learned_by_hand(Experiment.load(*words), 8)
    assert_same(two["agent"], expected)
    lags = [float(row["train/lag"]) for row in rows(tmp_path / "runs/2")]
    assert lags == ([0, 1, 2, 2, 2, 2, 2, 2] if changes else [0, 1] * 4)


@pytest.mark.slow
def test_a_learner_and_its_actors_go_on_bit_by_bit(tmp_path):
    """With stages of the curriculum that begin while actors are ahead."""
    (tmp_path / "quick.yaml").write_text("defaults: [smoke, _self_]\nname: quick\nworld: {rules: {max_steps: 20}}\n")
    words = ("quick.yaml", "algorithm=impala", *QUICK, *LAG, "total_frames=4096", "run.checkpoint_every=512")
    torchrun(tmp_path, "train", *words, "run.name=whole")
    torchrun(tmp_path, "train", *words, "run.name=halves", "total_frames=2048")
    shutil.copytree(tmp_path / "runs/halves", tmp_path / "runs/alone")
    torchrun(tmp_path, "resume", "runs/halves", "total_frames=4096", processes=3)
    whole, halves = (checkpoint(tmp_path / "runs" / name, 4096) for name in ("whole", "halves"))
    assert_same(whole, halves)
    assert rows(tmp_path / "runs/whole") == rows(tmp_path / "runs/halves")
    torchrun(tmp_path, "resume", "runs/alone", "total_frames=3072", processes=1)  # and back
    torchrun(tmp_path, "resume", "runs/alone", "total_frames=4096")
    assert len(rows(tmp_path / "runs/alone")) == 8


FAULTY = """
defaults: [smoke, _self_]
name: faulty
world: {_target_: faulty_world.FaultyArena, fault: none, when: step, at: 100, rank: 1}
"""


@pytest.mark.slow
def test_an_actor_that_is_killed_is_started_again_and_changes_nothing(tmp_path):
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    words = ("train", "faulty.yaml", "--trust", "algorithm=impala", *QUICK, "run.resume=auto")
    torchrun(tmp_path, *words, "run.name=undisturbed")
    said = torchrun(tmp_path, *words, "run.name=killed", "world.fault=kill", restarts=1)
    assert "exitcode: -9" in said
    assert_same(*(checkpoint(tmp_path / "runs" / name, 2048) for name in ("undisturbed", "killed")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["world.fault=raise"], "rank 1: the ship sank"),
        (["world.fault=infinite"], "the rollout holds NaN or infinity in next.reward"),
        (["world.fault=raise", "world.when=report", "world.at=1", "world.rank=0"], "rank 0: the ship sank"),
        (["governor.enabled=true"], "governor.enabled takes back what actors have played"),
        (["algorithm.num_minibatches=5"], "does not divide the 16 sequences"),
    ],
)
def test_what_fails_on_one_end_ends_both(tmp_path, changes, sentence):
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    words = ("train", "faulty.yaml", "--trust", "algorithm=impala", *QUICK, "run.name=run", *changes)
    ended = two_ranks(tmp_path, words, words)
    assert [code for code, _ in ended] == [2, 2]
    assert all(sentence in said for _, said in ended), ended
