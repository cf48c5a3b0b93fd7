"""What every world promises, whatever its game."""

from __future__ import annotations

import io
import pickle
from collections import Counter

import pytest
import torch
from tensordict import TensorDict
from torch.utils._python_dispatch import TorchDispatchMode
from torchrl.envs import (
    Compose,
    FrameSkipTransform,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
    check_env_specs,
)

from envs import WORLDS, BranchlessTransformedEnv
from envs.arena import Rules
from envs.toolkit.records import named_tensors
from torchrl_agent.modules.specs import observation_shapes

SMALL_HOSTS = {"slots": 2, "width": 4, "updates": 1, "batch_size": 4, "validation_rows": 8}
"""Rules under which networks grow fast enough for many steps."""
ALL_KINDS = ["scale4", "point4", "taps2", "taps4", "lowrank4", "attention8"]
VARIANTS = {
    "arena": [
        {"style": 1, "observation": "classic"},
        {"style": 2, "observation": "dict"},
        {"style": 1, "observation": "pixels"},
        {"style": 2, "observation": "offsets", "mirror": True},
    ],
    "duel": [{"opponent": "random", "desynchronize": True, "action_repeat": 2}],
    "growth": [
        {"rules": SMALL_HOSTS},
        {"task": "markov", "rules": {**SMALL_HOSTS, "auto_advance": False}},
        {"rules": {**SMALL_HOSTS, "host": "cnn", "blueprints": ALL_KINDS}},
    ],
    "town": [
        {"level": "L6", "observation": "groups", "potential": True},
        {"level": "L7", "num_agents": 4, "drives": True, "traits": {"greed": 0.3}},
        {"level": "L3", "curriculum": "levels", "desynchronize": True},
    ],
}
SLOW_VARIANTS = {
    "arena": [
        {"style": 2, "observation": "classic"},
        {"style": 1, "observation": "extended"},
        {"style": 2, "observation": "heatmap"},
        {"style": 1, "curriculum": "ladder", "desynchronize": True},
    ],
    "duel": [{}, {"opponent": "scripted"}],
    "growth": [{"task": "markov", "rules": {**SMALL_HOSTS, "host": "transformer", "blueprints": ALL_KINDS}}],
    "town": [{"level": "L3"}, {"level": "L5", "num_agents": 3, "privileged": True}, {"level": "L8"}],
}
CASES = [
    pytest.param(WORLDS[name], options, id=f"{name}-{'-'.join(str(v) for v in options.values())}", marks=marks)
    for name in WORLDS
    for variants, marks in ((VARIANTS.get(name, [{}]), ()), (SLOW_VARIANTS.get(name, []), pytest.mark.slow))
    for options in variants
]
every_world = pytest.mark.parametrize(("make", "options"), CASES)
SHORT = {"desynchronize": True, "rules": {"max_steps": 40}}
"""Games some of which end in any step, also where there are few."""


def short(options):
    """The options with short games."""
    return {**options, **SHORT, "rules": {**options.get("rules", {}), **SHORT["rules"]}}


SYNCS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::masked_select"}


def actions(env, steps, seed=0):
    """Random actions [steps, *shape of the action]."""
    generator, spec = torch.Generator().manual_seed(seed), env.full_action_spec[env.action_key]
    return (torch.rand(steps, *spec.shape, generator=generator) * head_sizes(spec)).long()


def head_sizes(spec):
    """Number of choices of each action that an agent takes at once."""
    several = getattr(spec, "nvec", None)
    return torch.tensor([spec.space.n]) if several is None else several.reshape(-1, spec.shape[-1])[0]


def leaves(tensordict):
    """Keys of observations, wherever they are nested; statistics are none."""
    nested = [key if isinstance(key, tuple) else (key,) for key in tensordict.keys(True, True)]
    return [key for key in nested if key[0] != "episode"]


def frames(env, plan):
    """Every (played, root) of a plan of actions [steps, N], one at a time: pictures are large."""
    root = env.reset()
    for action in plan:
        played, root = env.step_and_maybe_reset(root.set(env.action_key, action))
        yield played.clone(), root.clone()


def play(env, plan):
    """All of :func:`frames`."""
    return list(frames(env, plan))


def same(left, right):
    return all(bool((a[0] == b[0]).all()) and bool((a[1] == b[1]).all()) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: BranchlessTransformedEnv(env, StepCounter())])
def test_what_locked_specs_keep_is_nothing_that_is_traced(wrap):
    env = wrap(WORLDS["arena"](2))
    asked = torch.compile(lambda: torch.tensor(env.is_spec_locked), backend="eager", fullgraph=True)
    assert env.is_spec_locked and not asked()
    env.is_spec_locked = False
    assert not env.is_spec_locked


@every_world
def test_specs_describe_what_the_world_does(make, options):
    check_env_specs(make(num_envs=3, **options), seed=1)


@every_world
def test_everything_that_is_seen_has_a_word_of_its_own(make, options):
    env = make(2, **options)
    words, shapes = env.names()["observation"], observation_shapes(env)
    assert {key: len(of_key) for key, of_key in words.items()} == {key: shape[0] for key, shape in shapes.items()}
    assert all(len(set(of_key)) == len(of_key) for of_key in words.values())


@every_world
def test_the_same_seed_is_the_same_game_and_another_seed_another(make, options):
    env, another = (make(num_envs=4, seed=seed, **options) for seed in (5, 6))
    plan = actions(env, 12)
    game, other = play(env, plan), play(another, plan)
    another.set_seed(5)
    assert not same(game, other)
    assert same(game, play(another, plan))


ROW_CASES = [
    pytest.param(WORLDS["arena"], {"style": style, "observation": observation}, id=f"arena-{style}-{observation}")
    for style in (1, 2)
    for observation in ("classic", "extended", "offsets", "dict", "pixels", "heatmap")
]
ROW_CASES += [
    pytest.param(WORLDS["town"], {"level": level, "potential": level in ("L6", "L8")}, id=f"town-{level}")
    for level in (f"L{number}" for number in range(9))
]
ROW_CASES += [
    case
    for case in CASES
    if case.values[1].keys() & {"rules", "opponent", "curriculum", "mirror", "drives", "privileged"}
]
SIZES = (1, 3, 7, 64)
"""Numbers of worlds: within a vector of any processor, and several of them."""


def rows_of_all_sizes(make, options, sizes, steps):
    """Per step what the worlds of the largest batch (the last of ``sizes``), and those of each smaller one, gave."""
    options = {**SHORT, **options, "rules": {**SHORT["rules"], **options.get("rules", {})}}
    worlds = [make(num_envs=size, seed=7, **options) for size in sizes]
    plan, ended = actions(worlds[-1], steps), 0
    for every in zip(*(frames(env, plan[:, : env.num_envs]) for env in worlds), strict=True):
        played, root = every[-1]
        ended += int(played["next", "done"].sum())
        for few, following in every[:-1]:
            yield played[: len(few)], few
            yield root[: len(few)], following
    assert ended > 0


@pytest.mark.parametrize(("make", "options"), ROW_CASES)
def test_a_row_depends_on_its_seed_and_number_alone(make, options):
    for many, few in rows_of_all_sizes(make, options, (1, 7, 64), 12):
        assert (many == few).all()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "options"), ROW_CASES)
def test_over_hundreds_of_steps_a_row_depends_on_its_seed_and_number_alone(make, options):
    for many, few in rows_of_all_sizes(
        make, {**options, "rules": {**options.get("rules", {}), "max_steps": 150}}, SIZES, 300
    ):
        assert (many == few).all()


def precise(**options):
    """Growing networks in float64: training amplifies the rounding of float32 until a row is judged otherwise."""
    return WORLDS["growth"](**options).double()


@pytest.mark.slow
@pytest.mark.parametrize("make", [precise if name == "growth" else make for name, make in WORLDS.items()])
def test_a_compiled_row_depends_on_its_seed_and_number_alone_up_to_rounding(make):
    torch._dynamo.reset()
    steps = 80 if make is precise else 40  # 80 hold a whole episode of each world
    for many, few in rows_of_all_sizes(make, {"compile": True}, (3, 64), steps):
        for key in leaves(few):
            torch.testing.assert_close(many[key], few[key], atol=1e-3, rtol=1e-3)


@every_world
def test_five_thousand_random_steps_stay_within_the_spec_and_leave_nothing_to_see_to_a_fresh_world(make, options):
    env = make(num_envs=128, seed=2, **options)
    for played, root in frames(env, actions(env, 40)):
        following = played["next"]
        for key in leaves(env.observation_spec):
            assert env.observation_spec[key].is_in(following[key]), key
            assert env.observation_spec[key].is_in(root[key]), key
        assert following[env.reward_key].isfinite().all()
    settings, chance = env._snapshot.settings, env._snapshot.chance
    anew, again = env.spawn(settings, chance, midway=False), env.respawn(env.state, settings, chance)
    for step in range(3):
        seen, other = (TensorDict(env.observe(state) | env.statistics(state)) for state in (anew, again))
        assert (seen == other).all(), step
        action, chance = actions(env, 1, seed=step)[0], chance.tick()
        anew, again = (env.advance(state, action, chance) for state in (anew, again))
        assert torch.equal(env.outcome(anew)[0], env.outcome(again)[0]), step


@every_world
def test_a_partial_reset_touches_only_its_rows(make, options):
    env = make(num_envs=5, seed=2, **options)
    play(env, actions(env, 20))
    before = {name: value.clone() for name, value in named_tensors(env._snapshot)}
    mask = torch.tensor([False, True, False, False, True]).unsqueeze(-1)
    root = env.observation_spec.zero().update({"_reset": mask, "done": torch.zeros_like(mask)})
    env.reset(root)
    rows = mask.squeeze(-1)
    changed = 0
    for name, value in named_tensors(env._snapshot):
        assert torch.equal(value[..., ~rows], before[name][..., ~rows]), name
        changed += int((value[..., rows] != before[name][..., rows]).any())
    assert changed > 3


@every_world
def test_what_a_step_returns_is_never_written_to_again(make, options):
    env = make(num_envs=3, seed=1, **options)
    root = env.reset()
    plan = actions(env, 6)
    live = {value.untyped_storage().data_ptr() for _, value in named_tensors(env._snapshot)}
    kept = []
    for action in plan:
        played, root = env.step_and_maybe_reset(root.set(env.action_key, action))
        for leaf in (*played["next"].values(True, True), *root.values(True, True)):
            assert leaf.untyped_storage().data_ptr() not in live
        kept.append((played["next"], played["next"].clone()))
    assert all((now == then).all() for now, then in kept)


@every_world
def test_the_last_observation_of_an_episode_is_kept_and_a_fresh_one_follows(make, options):
    env = make(num_envs=32, seed=3, **short(options))
    ended = 0
    for played, root in frames(env, actions(env, 20)):
        done = played["next", "done"].squeeze(-1)
        terminated, truncated = played["next", "terminated"], played["next", "truncated"]
        assert torch.equal(played["next", "done"], terminated | truncated)
        assert not root["done"].any()
        ended += int(done.sum())
        assert (root["episode", "length"][done] == 0).all()
        assert (played["next", "episode", "length"][done] > 0).all()
        for key in leaves(env.observation_spec):
            if key[-1] in ("observation", "pixels", "meters") and done.any():
                assert not torch.equal(root[key][done], played["next", key][done])
    assert ended > 0


@every_world
def test_a_world_that_ended_may_be_reset_before_its_next_step_and_that_changes_nothing(make, options):
    env = make(num_envs=32, seed=3, **short(options))
    env.reset()
    ended = 0
    for action in actions(env, 20):
        done = env.step(TensorDict({env.action_key: action}, batch_size=env.batch_size))["next", "done"]
        if not done.any():
            continue
        ended += int(done.sum())
        before = env.state_dict()
        seen = env.reset(TensorDict({"_reset": done}, batch_size=env.batch_size))
        assert all(torch.equal(value, before[name]) for name, value in named_tensors(env._snapshot))
        assert not seen["done"].any()
        rows = done.squeeze(-1)  # the others' observations TorchRL takes from the request
        observed = TensorDict(env.observe(env.state))
        for key in leaves(observed):
            assert torch.equal(seen[key][rows], observed[key][rows])
    assert ended > 0


@every_world
def test_torchrls_transforms_see_the_same_game_with_and_without_the_branchless_wrapper(make, options):
    options = short(options)

    def transforms():
        return Compose(InitTracker(), StepCounter(), RewardSum())

    worlds = [make(num_envs=32, seed=8, **options) for _ in range(3)]
    plan = actions(worlds[0], 12)
    plain = frames(TransformedEnv(worlds[0], transforms()), plan)
    branchless = frames(BranchlessTransformedEnv(worlds[1], transforms()), plan)
    bare = frames(worlds[2], plan)
    ended = 0
    for (a, b), (c, d), (e, f) in zip(plain, branchless, bare, strict=True):
        ended += int(e["next", "done"].sum())
        assert (a == c).all()
        last = worlds[0].action_key
        assert (b.exclude(last) == d.exclude(last)).all()  # a reset may clear the last action or keep it
        assert (c["next"].select(*e["next"].keys(True, True)) == e["next"]).all()
        assert (d.select(*f.keys(True, True)).exclude(last) == f.exclude(last)).all()
    assert ended > 0


@every_world
def test_a_world_that_ended_stays_as_it_ended_until_its_reset(make, options):
    env, twin = (make(num_envs=32, seed=3, **short(options)) for _ in range(2))
    for action in actions(env, 40):
        request = TensorDict({env.action_key: action}, batch_size=[32])
        ended, _ = env.step(request)["next"], twin.step(request)
        done = ended["done"].squeeze(-1)
        if done.any():
            break
        env.mark_reset()
        twin.mark_reset()
    twin.mark_reset()
    expected, again = twin.step(request)["next"], env.step(request)["next"]
    assert (again[~done] == expected[~done]).all()
    assert (again.exclude(env.reward_key)[done] == ended.exclude(env.reward_key)[done]).all()
    assert (again[env.reward_key][done] == 0).all()
    env.reset(TensorDict({"_reset": ended["done"]}, batch_size=[32]))
    assert (env.step(request)["next"][done] == expected[done]).all()


class Watch(TorchDispatchMode):
    """Notes operations that make the host wait for the device."""

    def __init__(self):
        super().__init__()
        self.syncs = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.name().split(".")[0] in SYNCS:
            self.syncs.append(func.name())
        return func(*args, **(kwargs or {}))


@every_world
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_step_with_its_resets_never_waits_for_the_host(make, options, wrapped):
    env = make(num_envs=32, seed=3, **short(options))
    if wrapped:
        env = BranchlessTransformedEnv(env, Compose(InitTracker(), StepCounter(), RewardSum()))
    root = env.reset()
    plan = torch.zeros(4, *env.full_action_spec[env.action_key].shape, dtype=torch.int64)
    ended = 0
    for action in plan:
        with Watch() as watch:
            played, root = env.step_and_maybe_reset(root.set(env.action_key, action))
        assert not watch.syncs
        ended += int(played["next", "done"].sum())
    assert ended > 0


def test_the_watch_notices_a_sync():
    with Watch() as watch:
        bool(torch.ones(2).any())
    assert watch.syncs


@every_world
def test_saved_worlds_continue_from_a_file_of_plain_data_as_if_never_stopped(make, options):
    env, other = (make(num_envs=32, seed=seed, **short(options)) for seed in (6, 1))
    play(env, actions(env, 10))
    saved, file = env.state_dict(), io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    copies = torch.load(file, weights_only=True)
    other.load_state_dict(copies)
    roots = [env.observation_spec.zero(), other.observation_spec.zero()]
    for action in actions(env, 10, seed=1):
        steps = [
            world.step_and_maybe_reset(root.set(env.action_key, action))
            for world, root in zip((env, other), roots, strict=True)
        ]
        assert (steps[0][0]["next"] == steps[1][0]["next"]).all()
        roots = [step[1] for step in steps]
    for name, value in copies.items():  # what is saved does not change with the worlds
        assert not isinstance(value, torch.Tensor) or torch.equal(saved[name], value), name


@every_world
def test_saved_worlds_of_another_game_are_refused_by_name(make, options):
    env = make(num_envs=2, **options)
    saved = env.state_dict()
    saved["state.wings"] = torch.zeros(2)
    with pytest.raises(ValueError, match=r"state\.wings"):
        env.load_state_dict(saved)


@every_world
def test_saved_worlds_need_the_same_number_of_worlds(make, options):
    with pytest.raises(ValueError, match="num_envs"):
        make(num_envs=3, **options).load_state_dict(make(num_envs=2, **options).state_dict())


@pytest.mark.slow
@every_world
def test_compiled_equals_eager_and_nothing_recompiles(make, options):
    torch._dynamo.reset()
    options = {**options, "desynchronize": True}
    eager = make(num_envs=128, seed=7, **options)
    compiled = make(num_envs=128, seed=7, compile=True, **options)
    plan = actions(eager, 60)
    slow = play(eager, plan)
    assert any(played["next", "done"].any() for played, _ in slow), "fresh worlds are compared too"
    root = compiled.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for action, (played, following) in zip(plan, slow, strict=True):
            result, root = compiled.step_and_maybe_reset(root.set(compiled.action_key, action))
            for key in following.keys(True, True):
                tolerance = 1 if following[key].dtype == torch.uint8 else 1e-3  # a byte may be rounded the other way
                torch.testing.assert_close(root[key], following[key], atol=tolerance, rtol=1e-3)
            reward = [step["next"][eager.reward_key] for step in (result, played)]
            torch.testing.assert_close(*reward, atol=1e-3, rtol=1e-3)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] >= 1


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
@pytest.mark.parametrize("make", WORLDS.values())
def test_impossible_numbers_of_worlds_are_refused(make, number):
    with pytest.raises(ValueError, match="num_envs"):
        make(num_envs=number)


@pytest.mark.parametrize("make", WORLDS.values())
def test_absent_devices_are_refused(make):
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="CUDA"):
            make(num_envs=2, device="cuda")
    with pytest.raises(ValueError, match="unknown"):
        make(num_envs=2, device="toaster")


@pytest.mark.parametrize("make", WORLDS.values())
def test_an_action_of_the_wrong_shape_is_refused(make):
    env = make(num_envs=3)
    root = env.reset()
    with pytest.raises(ValueError, match="shape"):
        env.step(root.set(env.action_key, torch.zeros(3, env.num_agents or 1, 1, 1, dtype=torch.int64)))
    with pytest.raises(ValueError, match="whole numbers"):
        env._step(root.set(env.action_key, env.full_action_spec[env.action_key].zero().float()))


@pytest.mark.parametrize("wrapper", [TransformedEnv, BranchlessTransformedEnv])
def test_frames_that_are_skipped_swallow_no_end(wrapper):
    worlds, limit, skip = 16, 42, 4
    env = wrapper(WORLDS["arena"](num_envs=worlds, rules=Rules(max_steps=limit)), FrameSkipTransform(skip))
    plan = torch.zeros(33, worlds, dtype=torch.int64)
    history = play(env, plan)
    ends = torch.stack([played["next", "done"].squeeze(-1) for played, _ in history])
    assert ends.nonzero()[:, 0].unique().tolist() == [10, 21, 32]  # 11 choices last 42 steps, the last one only 2
    assert ends.sum() == 3 * worlds
    lengths = torch.stack([played["next", "episode", "length"].squeeze(-1) for played, _ in history])
    assert (lengths[ends] == limit).all()
    returns = torch.stack([played["next", "reward"].squeeze(-1) for played, _ in history])
    stated = torch.stack([played["next", "episode", "return"].squeeze(-1) for played, _ in history])
    torch.testing.assert_close(returns[:11].sum(0), stated[10])


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_action_that_is_repeated_is_as_good_as_given_again(compile):
    """Games are not reset here, so one that ends within a step stays as it ended in either world."""
    options = {"num_envs": 16, "rules": Rules(max_steps=42), "desynchronize": True}
    by_one, by_four = WORLDS["arena"](**options), WORLDS["arena"](**options, action_repeat=4, compile=compile)
    seen, other = by_one.reset(), by_four.reset()
    for action in torch.randint(5, (11, 16)):
        total = torch.zeros(16, 1)
        for _ in range(4):
            seen = by_one.step(seen.set("action", action))["next"]
            total += seen["reward"]
        other = by_four.step(other.set("action", action))["next"]
        torch.testing.assert_close(other["reward"], total)
        torch.testing.assert_close(other.exclude("reward").to_dict(), seen.exclude("reward", "action").to_dict())
    assert other["done"].all() and other["episode", "length"].unique().numel() > 4


REGIONS = {"duel": [3], "arena": [3, 2]}
"""Number of calls of each region that a step of three game steps compiles once; the Arena observes twice."""


@pytest.mark.parametrize("name", ["duel", pytest.param("arena", marks=pytest.mark.slow)])
def test_game_steps_of_one_action_are_compiled_once(name):
    graphs = []

    def keep(module, inputs, options=None):
        graphs.append(module)
        return module.forward

    env = WORLDS[name](num_envs=4, action_repeat=3).compile(backend=keep)
    env.step(env.rand_action(env.reset()))
    (graph,) = graphs
    calls = [node.args[1] for node in graph.graph.nodes if node.target is torch.ops.higher_order.invoke_subgraph]
    assert sorted(Counter(calls).values(), reverse=True) == REGIONS[name]


def test_repeated_actions_are_counted():
    assert WORLDS["arena"](action_repeat=4).truncation_limit == 750
    with pytest.raises(ValueError, match="action_repeat is 2147483648: give at most 1000 steps"):
        WORLDS["arena"](action_repeat=2**31)
    with pytest.raises(ValueError, match="action_repeat is 0: give a whole number of steps, at least 1"):
        WORLDS["arena"](action_repeat=0)


@pytest.mark.parametrize("make", WORLDS.values())
@pytest.mark.parametrize("action", [99, -1, 2**32, 2**40])
def test_an_action_that_cannot_be_is_refused_by_its_number(make, action):
    env = make(num_envs=3)
    root = env.reset()
    every = env.full_action_spec[env.action_key].zero()
    every[1] = action
    with pytest.raises(ValueError, match=f"action {action}: its actions are 0 to"):
        env.step(root.set(env.action_key, every))


def test_of_several_actions_each_has_its_own_range():
    env = WORLDS["town"](num_envs=2, level="L8")
    root, every = env.reset(), env.full_action_spec[env.action_key].zero()
    every[0, 0, 1] = env.rules.symbols
    with pytest.raises(ValueError, match="0 to each of"):
        env.step(root.set(env.action_key, every))


@pytest.mark.parametrize("name", WORLDS)
def test_an_unchecked_illegal_action_is_the_nearest_legal_one(name):
    worlds = [WORLDS[name](num_envs=4, seed=3) for _ in range(2)]
    spec = worlds[0].full_action_spec[worlds[0].action_key]
    highest = (head_sizes(spec) - 1).expand(spec.shape)
    for wild, tame in ((torch.full(spec.shape, 2**40), highest), (torch.full(spec.shape, -7), spec.zero())):
        for env, action in zip(worlds, (wild, tame), strict=True):
            env._advance_and_replace(action, env._snapshot)
        pairs = zip(*(named_tensors(env._snapshot) for env in worlds), strict=True)
        assert all(torch.equal(a, b) for (_, a), (_, b) in pairs)


@every_world
def test_the_random_player_takes_all_kinds_of_actions_and_only_legal_ones(make, options):
    env = make(num_envs=32, seed=1, **options)
    player, root, taken = env.players()["random"], env.reset(), []
    assert list(player.children()) == [], "a policy does not own its world"
    for _ in range(10):
        action = player(root)[env.action_key]
        spec = env.full_action_spec[env.action_key]
        heads, sizes = action.unbind(-1) if hasattr(spec, "nvec") else (action,), head_sizes(spec)
        if player.in_keys:
            masks = root[player.in_keys[0]].split(sizes.tolist(), -1)
            assert all(mask.gather(-1, head.unsqueeze(-1)).all() for mask, head in zip(masks, heads, strict=False))
        taken.append(heads[sizes.argmax()].flatten())
        root = env.step_and_maybe_reset(root)[1]
    assert torch.cat(taken).unique().numel() >= 5


@pytest.mark.parametrize("make", WORLDS.values())
def test_a_step_without_an_action_is_refused(make):
    env = make(num_envs=3)
    with pytest.raises(ValueError, match="without an action"):
        env.step(env.reset())


@pytest.mark.parametrize("make", WORLDS.values())
@pytest.mark.parametrize("seed", [1.5, None, "a", -1, True])
def test_seeds_that_are_no_whole_numbers_are_refused(make, seed):
    with pytest.raises(ValueError, match="seed is"):
        make(num_envs=2, seed=seed)
    with pytest.raises(ValueError, match="seed is"):
        make(num_envs=2).set_seed(seed)


@pytest.mark.parametrize("make", WORLDS.values())
def test_a_picture_after_the_last_step_shows_how_the_episode_ended(make):
    rules = {"max_steps": 3, **({"min_training": 0} if make is WORLDS["growth"] else {})}
    env, twin = (make(num_envs=2, seed=1, rules=rules) for _ in range(2))
    assert env.render(env_index=None).shape[0] == 2
    wait = torch.zeros(3, *env.full_action_spec[env.action_key].shape, dtype=torch.int64)
    before = play(twin, wait[:2])[-1][1]
    play(env, wait[:2])
    ended = twin.advance(twin.state, wait[2], twin._snapshot.chance.tick())
    statistics = twin.episode.add(twin.outcome(ended)[0])
    twin._snapshot = twin._snapshot._replace(state=ended, episode=statistics)
    assert env.step(before.set(env.action_key, wait[2]))["next", "done"].all()
    assert (env.render() == twin.draw(0)).all()
    env.maybe_reset(before)
    assert (env.render() != twin.draw(0)).any()
    assert (env.render(env_index=1) == env.draw(1)).all()


def test_pictures_are_refused_in_words():
    env = WORLDS["arena"](num_envs=1)
    with pytest.raises(ValueError, match="'human'"):
        env.render(mode="human")
    with pytest.raises(ValueError, match="no world 7"):
        env.render(env_index=7)


@pytest.mark.parametrize("make", WORLDS.values())
def test_worlds_that_will_be_compiled_can_be_pickled(make):
    env = make(num_envs=3, seed=2, compile=True)
    copy = pickle.loads(pickle.dumps(env))
    assert copy._compiled == {}
    assert copy._transition is not copy._advance_and_replace
    plan = actions(env, 20)
    assert same(play(env.eager(), plan), play(copy.eager(), plan))


def test_the_ends_of_desynchronized_worlds_are_spread_and_their_first_episodes_called_incomplete():
    worlds, length = 400, 50
    rules = Rules(max_steps=length)
    env = WORLDS["arena"](num_envs=worlds, seed=0, desynchronize=True, rules=rules)
    history = play(env, torch.zeros(2 * length, worlds, dtype=torch.int64))
    ends = torch.stack([played["next", "done"].squeeze(-1) for played, _ in history])
    assert (ends[:length].sum(0) == 1).all()
    assert (ends[length:].sum(0) == 1).all()
    assert ends.sum(1).max() < 0.06 * worlds
    complete = torch.stack([played["next", "episode", "complete"].squeeze(-1) for played, _ in history])
    lengths = torch.stack([played["next", "episode", "length"].squeeze(-1) for played, _ in history])
    late = torch.arange(2 * length).unsqueeze(1) >= length
    assert (complete[ends & late] == 1).all()
    assert (lengths[ends & late] == length).all()
    assert (complete[ends & ~late] == 0).all()


def test_worlds_in_step_end_at_once():
    env = WORLDS["arena"](num_envs=8, seed=0, rules=Rules(max_steps=5))
    history = play(env, torch.zeros(10, 8, dtype=torch.int64))
    ends = [played["next", "done"].sum().item() for played, _ in history]
    assert ends == [0, 0, 0, 0, 8] * 2
