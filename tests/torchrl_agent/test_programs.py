"""Programs for a browser, run by Node: they do what PyTorch does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torchrl.envs import GymEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv, DuelEnv, TownEnv
from envs.town.levels import LEVELS
from torchrl_agent import cli, export, load_agent
from torchrl_agent.export.game import policy_program, world_programs, world_record
from torchrl_agent.export.program import to_program

SCRIPTS = [str(Path(export.__file__).with_name(name)) for name in ("program.js", "instructions.js", "game.js")]
RUNNER = Path(__file__).parents[1] / "node" / "play.js"
NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node, which runs programs, is not installed")
STEPS = 300
FAST = {"duel": (DuelEnv, {"opponent": "scripted", "action_repeat": 2})}
SLOW = {
    "duel of two": (DuelEnv, {}),
    **{
        f"arena {observation}": (ArenaEnv, {"observation": observation, "style": style, "mirror": style == 1})
        for observation, style in (("classic", 2), ("extended", 1), ("offsets", 1), ("dict", 2), ("heatmap", 2))
    },
    "arena with a curriculum": (ArenaEnv, {"curriculum": "ladder", "action_repeat": 4}),
    "town": (TownEnv, {"level": "others_tonight"}),
    **{f"town {level}": (TownEnv, {"level": level}) for level in LEVELS},
    "town with drives": (TownEnv, {"level": "L7", "num_agents": 4, "drives": True}),
    "town with labels": (TownEnv, {"level": "L5", "num_agents": 3, "privileged": True, "observation": "groups"}),
}
CASES = [
    pytest.param(*case, id=name, marks=marks)
    for cases, marks in ((FAST, ()), (SLOW, pytest.mark.slow))
    for name, case in cases.items()
]


def node(**asked):
    done = subprocess.run(
        [NODE, RUNNER], input=json.dumps({"scripts": SCRIPTS, **asked}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plain(tensors):
    return {name: value.double().reshape(-1).tolist() for name, value in tensors.items()}


def assert_near(found, wanted, tolerance):
    """Equal names, and numbers within a tolerance, relative to the largest one of a tensor if it is above 1."""
    assert found.keys() == wanted.keys()
    for name, numbers in wanted.items():
        ours, theirs = torch.tensor(found[name]).double(), numbers.double().reshape(-1)
        assert ours.shape == theirs.shape, name
        reach = tolerance * max([1.0, *theirs[theirs.isfinite()].abs().tolist()])
        assert bool(((ours - theirs).abs() <= reach).logical_or(ours == theirs).all()), name


@pytest.mark.parametrize(("make", "options"), CASES)
def test_a_world_plays_as_pytorch_does(make, options):
    env = make(1, seed=3, **options)
    programs, (functions, record) = world_programs(env), env.programs()
    torch.manual_seed(0)
    actions = torch.stack([env.full_action_spec[env.action_key].rand() for _ in range(STEPS)])
    played = node(
        programs=programs, record=world_record(env), prefix="", steps=STEPS, actions=actions.reshape(STEPS, -1).tolist()
    )["results"]
    now = functions["reset"](record)
    assert_near({name: played[0][name] for name in record}, {name: now[name] for name in record}, 0)  # to the last bit
    assert_near(played[0], now, 1e-5)
    for action, found in zip(actions, played[1:], strict=False):
        now = functions["step"]({"action": action, **{name: now[name] for name in record}})
        assert_near(found, now, 1e-5)
    assert len(played) > 20


def test_the_functions_are_the_worlds_own_reset_and_step():
    env = TownEnv(1, seed=5, level="L6")
    functions, record = env.programs()
    now = functions["reset"](record)
    root = env.reset()
    action = torch.randint(0, 8, env.full_action_spec[env.action_key].shape)
    for _ in range(3):
        assert torch.equal(now["agents.observation"], root["agents", "observation"])
        now = functions["step"]({"action": action, **{name: now[name] for name in record}})
        played, root = env.step_and_maybe_reset(root.set(env.action_key, action))
        assert torch.equal(now["reward"].T, played["next", "agents", "reward"].squeeze(-1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["duel", "arena", "tonight", "payday", "village"])
def test_a_whole_game_of_a_trained_agent_action_for_action(name):
    experiment, agent = load_agent(f"shipped:{name}", "cpu")
    agent.eval()
    env, same = (agent.attach(experiment.make_world(evaluation=True, num_envs=1, seed=7)) for _ in range(2))
    record, policy = world_record(env), policy_program(same, agent)
    root, taken = env.reset(), []
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(400):
            root = agent.policy(root)
            taken.append(root[env.action_key].reshape(-1).tolist())
            played, root = env.step_and_maybe_reset(root)
            if bool(played["next", "done"]):
                break
    prefix = "" if agent.group is None else f"{agent.group}."
    programs = {**world_programs(env), "policy": policy}
    found = node(programs=programs, record=record, prefix=prefix, steps=400)
    assert found["actions"] == taken
    assert len(taken) > 20


def everything(given):
    """Most operations that programs know."""
    a, b, i = given["a"], given["b"], given["i"]
    rows, order = a.topk(2, -1)
    grown = torch.zeros(3, 6)
    grown[:, 1:5] = a
    grown[1] = 7.0
    return {
        "scaled": torch.add(a, b > 0, alpha=2.5),
        "elements": torch.where(a > 0.1, (a * 0.1 - b).abs().sqrt(), torch.atan2(a, b).clamp(-1, 1)) ** 2,
        "whole": torch.div(i * 7 - 9, 4, rounding_mode="floor") + (i - 3) % 5 + ((i << 3) ^ (i >> 1)),
        "wrapped": (i.int() * 2146121005 + 5) & 0x7FFFFFFF,
        "sums": torch.cat([a.sum(0), a.mean(-1), a.var(0), a.amax(1), a.prod(0)]),
        "where": torch.stack([a.argmax(-1), a.argmin(-1), order[:, 0]]),
        "softmax": torch.cat([a.softmax(0), a.log_softmax(-1), rows.repeat(1, 2), a.cumsum(1)]),
        "normalized": torch.nn.functional.layer_norm(a, (4,), b[0], b[1]),
        "taken": torch.cat(
            [a[i[0] % 3], a.gather(1, i % 4), a.flip(0, 1), a.T[:, :3].T[:, :4], a.index_select(0, i[0] % 3)], 0
        ),
        "put": torch.zeros(3, 4).scatter(1, i % 4, a).index_put((i[0] % 3, i[1] % 4), torch.ones(4), accumulate=True),
        "grown": torch.nn.functional.pad(grown, (1, -1, 0, 2)),
        "product": torch.bmm((a @ b.T).expand(2, 3, 3), a.expand(2, 3, 4)) + torch.addmm(b[0], a @ b.T, b),
        "seen": torch.conv2d(a.reshape(1, 1, 3, 4), b.reshape(2, 1, 2, 3)[:, :, :, :2], torch.ones(2), padding=1),
        "any": torch.stack([(a > 0).any(), (a > 0).all(), a.isnan().any()]),
        "one hot": torch.nn.functional.one_hot(i % 3, 3),
    }


def test_operations_by_themselves():
    generator = torch.Generator().manual_seed(1)
    a, b = torch.randn(2, 3, 4, generator=generator)
    given = {"a": a, "b": b, "i": torch.randint(0, 9, (3, 4), generator=generator)}
    program = to_program(everything, given, "everything")
    assert_near(node(programs={"function": program}, given=plain(given)), everything(given), 1e-6)


def test_what_cannot_be_exported_is_one_sentence():
    a = {"a": torch.ones(3)}
    with pytest.raises(
        ValueError, match=r"^f cannot be exported \(.*_local_scalar_dense.*\): write it without branches"
    ):
        to_program(lambda given: {"x": given["a"] * 2 if given["a"].sum() > 0 else given["a"]}, a, "f")
    with pytest.raises(ValueError, match=r"^f cannot be exported: it uses aten\.erfinv, which has no translation"):
        to_program(lambda given: {"x": given["a"].erfinv()}, a, "f")
    with pytest.raises(
        ValueError, match=r"^GymEnv cannot be exported: only worlds whose step is a function of tensors"
    ):
        world_programs(GymEnv("CartPole-v1"))


def test_the_command_writes_the_world_and_the_policy(tmp_path, capsys):
    for module, names in (("policy", {"policy"}), ("world", {"reset", "step", "record"})):
        path = tmp_path / f"{module}.json"
        arguments = ["export", "shipped:duel", "--format", "program", "--module", module, "--output", str(path)]
        assert cli.main(arguments) == 0, capsys.readouterr().err
        assert json.loads(path.read_text()).keys() == names
    assert cli.main(["export", "shipped:duel", "--format", "program", "--module", "manager"]) == 2
    assert "writes the policy or the world, not manager" in capsys.readouterr().err
