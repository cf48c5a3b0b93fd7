"""Towns whose state is written by hand."""

import pytest
import torch
from tensordict import TensorDict

from envs import TownEnv

METERS = ("energy", "hygiene", "satiation", "money", "mood", "social", "health", "fitness")


class Scene:
    """One town with quiet agents; places are where the test puts them."""

    def __init__(self, level="L3", num_agents=1, num_envs=1, seed=0, rules=None, options=None, **changes):
        self.env = TownEnv(
            num_envs, num_agents=num_agents, level=level, seed=seed, rules=rules or changes, **(options or {})
        )
        self.env.reset()
        self.rules = self.env.rules
        self.clear()

    @property
    def state(self):
        return self.env.state

    def clear(self):
        """No places, every agent in the upper left corner."""
        self.state.layout.x.fill_(-1000)
        self.state.layout.y.fill_(-1000)
        self.put(x=0, y=0)

    def place(self, kind, x, y, which=0):
        slot = self.rules.kinds.index(kind) * self.rules.places_per_kind + which
        self.state.layout.x[slot], self.state.layout.y[slot] = x, y
        return slot

    def put(self, agent=slice(None), **values):
        for name, value in values.items():
            getattr(self.state.agents, name)[agent] = value

    def at_hour(self, hour):
        self.state.step.fill_(hour)

    def set(self, agent=slice(None), **levels):
        """Set meters; ``all`` first."""
        if "all" in levels:
            self.state.meters[:, agent] = levels.pop("all")
        for name, value in levels.items():
            self.state.meters[METERS.index(name), agent] = value

    def meters(self, agent=0, world=0):
        return dict(zip(METERS, self.state.meters[:, agent, world].tolist(), strict=True))

    def step(self, *actions):
        """Every world plays these actions, one per agent, by name or number (or (action, symbol))."""
        names = self.rules.action_names
        numbers = [
            [names.index(a[0]), a[1]] if isinstance(a, tuple) else names.index(a) if isinstance(a, str) else a
            for a in actions
        ]
        action = torch.tensor(numbers).expand(self.env.full_action_spec[self.env.action_key].shape)
        root = TensorDict({"agents": {"action": action}}, batch_size=self.env.batch_size)
        return self.env.step_and_maybe_reset(root)[0]["next"]

    def observe(self, agent=0, world=0):
        """What an agent sees now, by key, as lists."""
        seen = self.env.observe(self.state)["agents"]
        return {name: value[world, agent].tolist() for name, value in seen.items() if name != "privileged"}

    def mask(self, agent=0, world=0):
        """The actions that are legal now."""
        mask = self.observe(agent, world)["action_mask"]
        return {name for name, legal in zip(self.rules.action_names, mask, strict=False) if legal}

    def cues(self, agent=0, world=0):
        """The cues that an agent gives away."""
        bits = self.state.agents.cues[agent, world].item()
        return {name for number, name in enumerate(self.rules.cues) if bits >> number & 1}

    def where(self, agent=0, world=0):
        return self.state.agents.x[agent, world].item(), self.state.agents.y[agent, world].item()

    def reward(self, *actions):
        return self.step(*actions)["agents", "reward"][0, :, 0].tolist()


@pytest.fixture
def scene():
    """Make a :class:`Scene`."""
    return Scene
