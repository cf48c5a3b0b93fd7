"""Our parts in TorchRL's hands: its collector, transforms, losses and trainer."""

import pytest
import torch
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.envs import Compose, InitTracker, RewardSum, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE
from torchrl.record import PixelRenderTransform, VideoRecorder
from torchrl.record.loggers.common import Logger
from torchrl.trainers.algorithms import PPOTrainer

from envs import ArenaEnv, TownEnv
from torchrl_agent import Experiment, learn
from torchrl_agent.models.agent import Agent, ModelConfig


@pytest.fixture
def arena():
    torch.manual_seed(0)
    env = ArenaEnv(8, seed=1, desynchronize=True)
    return env, Agent(env, ModelConfig([16]))


def test_the_collector_plays_our_world_with_our_actor(arena):
    env, agent = arena
    batches = list(Collector(env, agent.actor, frames_per_batch=64, total_frames=192, no_cuda_sync=True))
    assert [batch.shape for batch in batches] == [(8, 8)] * 3
    batch = batches[-1]
    assert env.action_spec.is_in(batch["action"][:, 0])
    expected = agent.actor.get_dist(batch.clone()).log_prob(batch["action"])
    torch.testing.assert_close(batch["action_log_prob"], expected)
    going = ~batch["next", "done"][:, :-1].squeeze(-1)
    after, before = batch["next", "observation"][:, :-1], batch["observation"][:, 1:]
    assert torch.equal(after[going], before[going])
    assert batch["observation"].isfinite().all()


def test_torchrl_transforms_agree_with_the_worlds_own_statistics():
    env = TransformedEnv(ArenaEnv(6, seed=1), Compose(RewardSum(), StepCounter(), InitTracker()))
    check_env_specs(env)
    rollout = env.rollout(40, break_when_any_done=False)
    assert rollout["is_init"][:, 0].all()
    torch.testing.assert_close(rollout["next", "episode_reward"], rollout["next", "episode", "return"])
    assert torch.equal(rollout["next", "step_count"].float(), rollout["next", "episode", "length"])


def test_torchrl_transforms_notice_where_our_world_resets_itself():
    env = TransformedEnv(ArenaEnv(6, seed=1), Compose(RewardSum(), StepCounter(), InitTracker()))
    root, counts, firsts = env.reset(), [], []
    env.base_env.state.progress.step.fill_(2990)  # ten steps before the time limit
    for _ in range(15):
        played, root = env.step_and_maybe_reset(env.rand_action(root))
        counts.append(played["next", "step_count"].flatten())
        firsts.append(root["is_init"].flatten())
    ended = torch.stack(firsts).float().argmax(0)
    assert (torch.stack(firsts).sum(0) == 1).all()
    assert (ended <= 9).all()  # the tenth step at the latest
    assert torch.equal(counts[-1], 14 - ended)


def test_torchrl_ppo_loss_and_advantages_take_one_step_with_our_networks(arena):
    env, agent = arena
    (data,) = Collector(env, agent.actor, frames_per_batch=128, total_frames=128)
    advantages = GAE(gamma=0.99, lmbda=0.95, value_network=agent.critic, average_gae=True)
    loss = ClipPPOLoss(agent.actor, agent.critic, entropy_coeff=0.01)
    optimizer = torch.optim.Adam(loss.parameters(), 1e-3)
    before = [parameter.detach().clone() for parameter in agent.parameters()]
    advantages(data)
    losses = loss(data.reshape(-1))
    total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
    total.backward()
    optimizer.step()
    assert total.isfinite()
    assert all(not torch.equal(new, old) for new, old in zip(agent.parameters(), before, strict=True))
    improved = loss(data.reshape(-1))
    assert improved["loss_critic"] < losses["loss_critic"]


@pytest.mark.filterwarnings("ignore")
def test_torchrls_trainer_trains_our_agent_in_our_world(arena):
    env, agent = arena
    before = [parameter.detach().clone() for parameter in agent.parameters()]
    loss = ClipPPOLoss(agent.actor, agent.critic, entropy_coeff=0.01)
    trainer = PPOTrainer(
        collector=Collector(env, agent.actor, frames_per_batch=128, total_frames=256),
        total_frames=256,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), 1e-3),
        num_epochs=1,
        replay_buffer=TensorDictReplayBuffer(
            storage=LazyTensorStorage(128), sampler=SamplerWithoutReplacement(), batch_size=64
        ),
        gamma=0.99,
        lmbda=0.95,
        progress_bar=False,
    )
    trainer.train()
    assert trainer.collected_frames == 256
    assert all(not torch.equal(new, old) for new, old in zip(agent.parameters(), before, strict=True))


class Gallery(Logger):
    """Keeps the videos that a recorder hands to its logger."""

    def __init__(self):
        super().__init__("gallery", "nowhere")
        self.videos = []

    def _create_experiment(self):
        return None

    def log_video(self, name, video, step=None, **kwargs):
        self.videos.append(video)

    def log_scalar(self, name, value, step=None):
        raise AssertionError("a recorder logs videos")

    def log_hparams(self, cfg):
        raise AssertionError("a recorder logs videos")


@pytest.mark.filterwarnings("ignore")
def test_torchrls_recorder_films_the_pixels_that_the_agent_sees():
    logger = Gallery()
    recorder = VideoRecorder(logger, tag="played", skip=1)
    world = TransformedEnv(ArenaEnv(1, observation="pixels"), recorder)
    world.rollout(5)
    recorder.dump()
    (video,) = logger.videos
    assert video.shape == (1, 6, 3, 64, 64)
    assert video.dtype == torch.uint8


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("worlds", [1, 3])
def test_torchrls_recorder_films_any_world_that_draws(worlds):
    logger = Gallery()
    recorder = VideoRecorder(logger, tag="played", skip=1)
    world = TransformedEnv(TownEnv(worlds, level="L3"), Compose(PixelRenderTransform(env_index=None), recorder))
    check_env_specs(world)
    seen = world.rollout(5)
    assert seen["pixels"].shape[:2] == (worlds, 5)
    assert seen["pixels"].dtype == torch.uint8
    recorder.dump()
    assert logger.videos[-1].shape[2] == 3


def test_a_recorded_episode_ends_with_its_own_last_picture():
    rendered = TransformedEnv(ArenaEnv(1, rules={"max_steps": 4}), PixelRenderTransform(env_index=None))
    played, root = rendered.step_and_maybe_reset(rendered.reset().set("action", torch.tensor([4])))
    for _ in range(3):
        played, root = rendered.step_and_maybe_reset(root.set("action", torch.tensor([4])))
    assert played["next", "done"].all()
    assert (played["next", "pixels"] != root["pixels"]).any()
    assert (root["pixels"][0] == torch.from_numpy(rendered.base_env.draw(0))).all()

    assert (played["next", "pixels"] != played["pixels"]).any()


def test_one_picture_is_what_scripts_for_vmas_ask_for():
    town = TownEnv(3, level="L6")
    picture = town.render(mode="rgb_array", agent_index_focus=None)
    assert picture.ndim == 3
    assert (picture == town.draw(0)).all()


def test_training_keeps_pictures_as_bytes():
    changes = (
        "world.observation=pixels",
        "policy=cnn",
        "world.num_envs=4",
        "algorithm={rollout_steps: 8, num_epochs: 1}",
    )
    rest = ("algorithm.minibatch_size=16", "total_frames=32", "acceleration.step=false", "acceleration.update=false")
    experiment = Experiment.load("arena", *changes, *rest, "acceleration.advantages=false", "device=cpu")
    (iteration,) = learn(experiment)
    assert iteration.rollout["pixels"].dtype == torch.uint8
    assert iteration.rollout["pixels"].float().mean() > 5
    assert iteration.agent.normalizer.running.mean.max() <= 1
