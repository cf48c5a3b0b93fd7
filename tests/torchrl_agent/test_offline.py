"""Learning from recordings: what they hold, what is refused, and which actions count how much."""

import json
import math

import pytest
import torch
from growing import SMALL as SMALL_HOSTS
from tensordict import TensorDict
from torch import nn

from torchrl_agent import keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.models.heads import action_choice
from torchrl_agent.models.pretrained import read_module
from torchrl_agent.modules.distributions import MaskedCategorical
from torchrl_agent.pretrain import PretrainConfig, prepare, pretrain
from torchrl_agent.pretrain.data import join_recordings
from torchrl_agent.pretrain.lessons import CloningLoss, RegressionLoss
from torchrl_agent.pretrain.recording import RecordingError, fit, read_recording, write_recording
from torchrl_agent.transforms import get_statistics

QUICK = [
    "device=cpu",
    "threads=1",
    "model.hidden_sizes=[16]",
    "algorithm.rollout_steps=12",
    "evaluation.episodes=4",
    "acceleration={step: false, advantages: false, update: false, cudagraphs: false}",
]
WORLDS = {
    "arena": ["world.num_envs=8", "world.curriculum=null"],
    "town": ["world.num_envs=8", "world.rules={max_steps: 9}"],
    "growth": [
        *("world.num_envs=8", "policy=lstm", "world.desynchronize=false"),
        f"world.rules={SMALL_HOSTS | {'max_steps': 12, 'min_training': 2}}".replace("'", ""),
    ],
}
CHOICE = action_choice([keys.LOGITS], MaskedCategorical, {})


def played(steps=5, rows=4):
    """A rollout of two worlds with two rows each, in which an episode ends with the second step."""
    done = torch.zeros(steps, rows, 1, dtype=torch.bool)
    done[1] = True
    following = TensorDict({"reward": torch.randn(steps, rows, 1), "done": done, "terminated": done}, [steps, rows])
    return TensorDict(
        {
            "observation": torch.randn(steps, rows, 3),
            keys.ACTION: torch.arange(steps * rows).reshape(steps, rows),
            keys.HIDDEN: torch.randn(steps, rows, 1, 2),
            "next": following,
        },
        [steps, rows],
    )


# --- recordings


def test_a_recording_gives_the_same_frames_without_the_memory(tmp_path):
    rollout = played()
    write_recording(tmp_path / "one", rollout, {"players": ["a", "b"], "worlds": 4})
    found, sheet = read_recording(tmp_path / "one")
    assert sheet == {"players": ["a", "b"], "worlds": 4}
    assert set(found.keys()) == {"observation", keys.ACTION, "next"}
    for key in found.keys(True, True):
        assert torch.equal(found[key], rollout[key]), key
    with pytest.raises(RecordingError, match="exists already: choose another --record"):
        write_recording(tmp_path / "one", rollout, {})


def _pickle(frames):
    (frames / "other.pickle").write_bytes(b"cos\nsystem\n(S'true'\ntR.")


def _other_type(frames):
    meta = json.loads((frames / "meta.json").read_text())
    (frames / "meta.json").write_text(json.dumps({**meta, "_type": "<class 'os.system'>"}))


def _other_inside(frames):
    meta = json.loads((frames / "meta.json").read_text())
    (frames / "meta.json").write_text(json.dumps({**meta, "next": {"type": "NonTensorData"}}))


def _shorter(frames):
    (frames / "observation.memmap").write_bytes(b"")


def _gone(frames):
    (frames / "meta.json").unlink()


@pytest.mark.parametrize("damage", [_pickle, _other_type, _other_inside, _shorter, _gone])
def test_what_is_no_recording_is_refused_unopened(tmp_path, damage):
    write_recording(tmp_path / "one", played(), {})
    damage(tmp_path / "one" / "frames")
    with pytest.raises(RecordingError, match=r"is no recording .*: give a folder of pretrain --record"):
        read_recording(tmp_path / "one")
    with pytest.raises(RecordingError, match="is no recording"):
        read_recording(tmp_path / "none")


def test_an_agents_memory_begins_where_an_episode_does(tmp_path):
    experiment = Experiment.load("cartpole", *QUICK, "policy=lstm", "world.num_envs=4")
    agent = experiment.make_agent(experiment.make_world())
    rollout = played()
    found = fit(rollout.set("observation", torch.randn(5, 4, 4)), agent)
    assert found[keys.IS_INIT][:, 0, 0].tolist() == [True, False, True, False, False]
    assert found[keys.CELL].abs().sum() == 0 and found[keys.HIDDEN].shape[-1] > 2
    with pytest.raises(RecordingError, match="the recording has no 'observation', which the agent reads"):
        fit(rollout.exclude("observation"), agent)


def test_recordings_are_joined_player_by_player():
    # four worlds of two players with one row each, and three worlds of one player: two groups of three players
    rollout = played(rows=4)
    other = played(steps=4, rows=3)
    other[keys.ACTION] += 100
    found, players, worlds = join_recordings([(rollout, ["a", "b"], 4), (other, ["c"], 3)])
    assert players == ["a", "b", "c"] and worlds == 6
    assert found[keys.ACTION][0].tolist() == [0, 1, 100, 2, 3, 101]
    assert found.shape == (4, 6)


# --- which actions count


def test_weights_by_hand():
    loss = RegressionLoss([2], CHOICE, temperature=0.5)
    # deviations 1 and -1 of the two that count, so exp(2) and exp(-2), divided by their mean
    found = loss.weights(torch.tensor([[3.0, 1.0, 50.0]]), torch.tensor([[True, True, False]]))
    mean = (math.exp(2) + math.exp(-2)) / 2
    torch.testing.assert_close(found, torch.tensor([[math.exp(2) / mean, math.exp(-2) / mean, 0.0]]))
    many = torch.zeros(1, 1000)
    many[0, 0] = 1e6
    assert loss.weights(many, torch.ones(1, 1000, dtype=torch.bool)).max() == RegressionLoss.LARGEST_WEIGHT


def test_from_a_mixture_regression_learns_the_better_action():
    """Of four players one takes action 1, which alone is rewarded, by 1."""
    frames = TensorDict(
        {
            keys.ACTION: torch.tensor([[0, 0, 0, 1]]),
            keys.VALUE_TARGET: torch.tensor([[0.0, 0.0, 0.0, 1.0]]).unsqueeze(-1),
            keys.VALID: torch.ones(1, 4, dtype=torch.bool),
        },
        [1, 4],
    )
    shares = []
    for loss in (CloningLoss([2], CHOICE), RegressionLoss([2], CHOICE, temperature=1.0)):
        logits, value = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.Adam([logits, value], 0.05)
        for _ in range(300):
            seen = {keys.LOGITS: logits.expand(1, 4, 2), keys.VALUE: value.expand(1, 4, 1)}
            terms = loss(frames.copy().update(seen))
            optimizer.zero_grad()
            sum(term for name, term in terms.items() if name.startswith("loss_")).backward()
            optimizer.step()
        shares.append(logits.softmax(0)[1].item())
    # the value is 1/4, the deviation sqrt(3)/4: weights exp(sqrt(3)) and exp(-1/sqrt(3))
    rewarded, other = math.exp(math.sqrt(3)), 3 * math.exp(-1 / math.sqrt(3))
    assert shares == pytest.approx([0.25, rewarded / (rewarded + other)], abs=0.01)
    assert value.item() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize(
    "world", [pytest.param(name, marks=[pytest.mark.slow] * (name in ("arena", "growth"))) for name in WORLDS]
)
def test_a_policy_learns_from_a_recording_of_any_world(world, tmp_path):
    experiment = Experiment.load(world, *QUICK, *WORLDS[world])
    players = list(experiment.make_world().players())[:2]
    record = str(tmp_path / "frames")
    _, data = prepare("policy", experiment, PretrainConfig(frames=96, players=players, record=record))
    settings = PretrainConfig(frames=96, updates=3, data=[record], temperature=0.5)
    _, again = prepare("policy", experiment, settings)
    for key in (keys.ACTION, keys.REWARD, keys.VALUE_TARGET, keys.DONE):
        assert torch.equal(data.train[key], again.train[key]), key
    report = pretrain("policy", experiment, settings, tmp_path / "out")
    assert report["players"] == players and report["validation_after"]["loss_critic"] > 0
    file = read_module(tmp_path / "out")
    learner = Experiment.load(world, *QUICK, *WORLDS[world], f"pretrained.policy={file.path}").make_learner()
    critic, scaler = learner.agent.critic_head.state_dict(), learner.algorithm.scaler
    assert critic.keys() == file.auxiliary.keys()
    assert all(torch.equal(critic[name], file.auxiliary[name]) for name in critic)
    assert get_statistics(learner.agent.normalizer, scaler) == file.statistics and not scaler.frozen


def test_a_trained_agent_can_be_recorded(tmp_path):
    experiment = Experiment.load("arena", *QUICK, *WORLDS["arena"])
    config = PretrainConfig(frames=96, updates=1, players=["shipped:arena"], record=str(tmp_path / "frames"))
    prepare("policy", experiment, config)
    rollout, sheet = read_recording(tmp_path / "frames")
    assert sheet["players"] == ["shipped:arena"] and rollout.shape == (12, 8)
