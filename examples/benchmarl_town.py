"""BenchMARL's algorithms in the Town, in an environment of its own (docs/howto/benchmarl.md)."""

import sys

from benchmarl.algorithms import IppoConfig, IqlConfig, MappoConfig, QmixConfig
from benchmarl.environments.common import TaskClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from torchrl.data import Composite

from envs import TownEnv

GROUP = "agents"
ALGORITHMS = {"mappo": MappoConfig, "ippo": IppoConfig, "iql": IqlConfig, "qmix": QmixConfig}


class TownTask(TaskClass):
    """``config`` holds the arguments of TownEnv, such as ``level``."""

    def get_env_fun(self, num_envs, continuous_actions, seed, device):
        config = dict(self.config)
        return lambda: TownEnv(num_envs, device=device, seed=0 if seed is None else seed, **config)

    def supports_continuous_actions(self):
        return False

    def supports_discrete_actions(self):
        return True

    def has_render(self, env):
        return True

    def max_steps(self, env):
        return env.rules.max_steps

    def group_map(self, env):
        return env.group_map

    def action_spec(self, env):
        return env.full_action_spec_unbatched

    def observation_spec(self, env):
        return self._only(env, "observation")

    def action_mask_spec(self, env):
        return self._only(env, "action_mask")

    def state_spec(self, env):
        return Composite(state=env.full_observation_spec_unbatched["state"].clone())

    def info_spec(self, env):
        return None

    @staticmethod
    def env_name():
        return "town"

    def _only(self, env, key):
        agents = env.full_observation_spec_unbatched[GROUP]
        return Composite({GROUP: Composite({key: agents[key].clone()}, shape=agents.shape)})


def main(name: str = "mappo") -> None:
    """Train an algorithm for a thousand frames."""
    config = ExperimentConfig.get_from_yaml()
    config.loggers, config.save_folder, config.checkpoint_at_end = ["csv"], ".", False
    config.sampling_device = config.train_device = config.buffer_device = "cpu"
    config.max_n_frames = 1024
    config.on_policy_collected_frames_per_batch = config.off_policy_collected_frames_per_batch = 512
    config.on_policy_n_envs_per_worker = config.off_policy_n_envs_per_worker = 16
    config.on_policy_n_minibatch_iters, config.on_policy_minibatch_size = 2, 256
    config.off_policy_n_optimizer_steps, config.off_policy_train_batch_size = 4, 64
    config.evaluation_interval, config.evaluation_episodes, config.render = 1024, 4, False
    experiment = Experiment(
        task=TownTask("L6", {"level": "L6", "rules": {"max_steps": 32}}),
        algorithm_config=ALGORITHMS[name].get_from_yaml(),
        model_config=MlpConfig.get_from_yaml(),
        critic_model_config=MlpConfig.get_from_yaml(),
        seed=0,
        config=config,
    )
    experiment.run()
    print(name, "has seen", experiment.total_frames, "frames")


if __name__ == "__main__":
    main(*sys.argv[1:])
