"""Actor and critic, which Hydra builds once although several nodes refer to them."""

from functools import cache

from tensordict.nn import TensorDictModule
from torch.distributions import Categorical
from torchrl.modules import MLP, ProbabilisticActor, ValueOperator

from envs import ArenaEnv

WORLD = ArenaEnv(num_envs=1)
SIZE, SPEC = WORLD.observation_spec["observation"].shape[-1], WORLD.action_spec_unbatched


@cache
def actor():
    """Policy over logits."""
    logits = TensorDictModule(MLP(SIZE, SPEC.n, num_cells=[64, 64]), ["observation"], ["logits"])
    kind = {"distribution_class": Categorical, "return_log_prob": True}
    return ProbabilisticActor(logits, spec=SPEC, in_keys=["logits"], **kind)


@cache
def critic():
    """State value."""
    return ValueOperator(MLP(SIZE, 1, num_cells=[64, 64]), ["observation"])
