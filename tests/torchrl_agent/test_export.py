"""Exported agents: the file alone plays as the live agent does, memory and normalizer included."""

from __future__ import annotations

import importlib.util
import json
import shutil

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_agent import cli, load_agent
from torchrl_agent.core.checkpoint import find_checkpoint, load_checkpoint
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.compose import CONFIGS
from torchrl_agent.experiment.world_making import build_batched
from torchrl_agent.export import export_run
from torchrl_agent.export.parts import MEAN, flat_name, parts
from torchrl_agent.runs.run import train

QUICK = ["device=cpu", "threads=1", "run.film=false", "run.final_evaluation=false", "run.tensorboard=false"]
SMALL = ["model.hidden_sizes=[16]", "model.perception.memory_size=12", "model.perception.belief_size=8"]
WORLDS = {
    "arena": ["smoke", "total_frames=512"],
    "town": [
        "town",
        "world={level: L6, num_envs: 6, observation: groups}",
        "model.perception.enabled=true",
        "total_frames=1",
        "algorithm={rollout_steps: 16, minibatch_size: 96}",
        "acceleration={step: false, advantages: false, update: false}",
    ],
}
WORLDS["mind"] = [
    "town_agent",
    "world.num_envs=6",
    *WORLDS["town"][4:],
    "model.world_model.hidden_size=16",
    "model.manager.steps=5",  # goals are chosen anew several times
    "model.social_model.context=false",  # others are read by their cues alone
]
"""The four-module agent, which remembers its own past, others, and its goal."""
WORLDS["dreamer"] = [
    *WORLDS["mind"][:-1],
    "model={social_model: {pooling: attention, associations: 4}, world_model: {predict_others: true}}",
]
"""One that reads others in the light of what it believes, and dreams of them too."""
STEPS, RESET_AT = 80, 40


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Small runs by world and memory, each trained once; their weights are stirred so that every output matters."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def make(world, memory):
        name = f"{world}-{memory}"
        if name not in made:
            config, *overrides = WORLDS[world]
            named = [f"run.folder={folder}", f"run.name={name}", f"model.memory={memory}"]
            for _ in train(Experiment.load(config, *overrides, *QUICK, *SMALL, *named)):
                pass
            made[name] = folder / name
            stir(find_checkpoint(made[name]))
        return made[name]

    return make


def stir(path):
    state = load_checkpoint(path)
    generator = torch.Generator().manual_seed(3)
    for name, value in state["agent"].items():
        if name.endswith("weight") or "weight_" in name:
            value.add_(torch.randn(value.shape, generator=generator), alpha=0.3 / value[0].numel() ** 0.5)
    torch.save(state, path)
    path.with_suffix(".json").unlink(missing_ok=True)  # whose checksum is of other weights


def rows_of(tensordict, group):
    return (tensordict if group is None else tensordict[group]).reshape(-1)


def follow(run, name, call):
    """Play with the live agent; let ``call`` see the same observations with states of its own, and compare."""
    experiment, agent = load_agent(run, "cpu")
    assert float(agent.normalizer.running.count) > 90  # a normalizer that does something
    part = parts(agent)[name]
    if name == "policy":
        assert {("next", key) for key in agent.memory} <= set(part.out_keys), "or it could not be played on"
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=3, seed=7))
    root, carried, seen = env.reset(), {}, []
    torch.manual_seed(0)
    for step in range(STEPS):
        if step == RESET_AT:  # of the first world only; what its memory was is still handed in
            begin = torch.tensor([[True], [False], [False]])
            root = env.reset(root.clone().set("_reset", begin))
        rows = rows_of(root, agent.group)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            if name == "world_model":  # it reads a belief, and a plan that changes from step to step
                belief = agent.perception(agent.normalizer(rows.clone()))[MEAN]
                plan = torch.randint(8, (len(rows), agent.world_model.config.horizon))
                forecast = torch.rand(len(rows), agent.world_model.forecast_size)
                rows = rows.clone().update({MEAN: belief, "plan": plan, "forecast": forecast})
            live = part.module(rows.clone())
        read = [key for key in part.module.in_keys if key in rows.keys(True)]
        inputs = {flat_name(key): rows[key] for key in read} | carried
        given = call(inputs)
        expected = {flat_name(key): live[key] for key in part.out_keys}
        assert given.keys() == expected.keys()
        for key, value in expected.items():
            assert given[key].dtype == value.dtype
            exponential = key in ("futures_rewards", "futures_values")  # whose exponents differ by a millionth
            torch.testing.assert_close(given[key], value, atol=1e-5, rtol=1e-5 if exponential else 1e-6)
        if step == RESET_AT and carried:
            assert rows["is_init"].any() and not rows["is_init"].all()
            first = rows["is_init"].squeeze(-1)
            remembered = [value for key, value in carried.items() if "goal" not in key]  # 0 steps may be left
            assert all(value[first].abs().max() > 0.05 for value in remembered)
        carried = {key: given[f"next_{key}"] for key in agent.memory if f"next_{key}" in given}
        seen.append(next(value for value in given.values() if value.is_floating_point()))
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):  # goals are the likeliest, too
            acted = agent.policy(root)
        _, root = env.step_and_maybe_reset(env.rand_action(acted))  # the world is seen from many sides
    deviation = torch.stack(seen).std(0)
    varied = deviation.max() if name == "manager" else deviation.min()  # most goals' numbers are 0
    assert varied > 1e-3  # the outputs depend on what is seen


@pytest.mark.parametrize(
    ("world", "memory"),
    [
        ("arena", "none"),
        pytest.param("arena", "gru", marks=pytest.mark.slow),
        pytest.param("town", "lstm", marks=pytest.mark.slow),
        pytest.param("arena", "lstm", marks=pytest.mark.slow),
        pytest.param("town", "none", marks=pytest.mark.slow),
        pytest.param("town", "gru", marks=pytest.mark.slow),
    ],
)
def test_a_reloaded_program_plays_as_the_live_agent_does(run_of, tmp_path, world, memory):
    run = run_of(world, memory)
    path = tmp_path / "deep" / "agent.pt2"
    assert export_run(run, "policy", output=path) == [path]
    program = torch.export.load(path).module()
    follow(run, "policy", program)


def test_the_checkpoint_asked_for_is_the_one_exported(run_of, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(run_of("arena", "none"), run)
    best = find_checkpoint(run)
    (best.parent / "best.json").write_text(json.dumps({"checkpoint": best.name, "score": 1.0}))
    shutil.copy(best, best.with_name("checkpoint_1024.pt"))
    stir(best.with_name("checkpoint_1024.pt"))
    seen, logits = torch.randn(2, 32, generator=torch.Generator().manual_seed(0)), {}
    for which in ("best", "last"):
        (path,) = export_run(run, output=tmp_path / f"{which}.pt2", checkpoint=which)
        logits[which] = torch.export.load(path).module()({"observation": seen})["logits"]
        _, agent = load_agent(run, "cpu", which)
        live = agent.policy(TensorDict({"observation": seen}, [2]))["logits"]
        torch.testing.assert_close(logits[which], live, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(logits["best"], logits["last"])


@pytest.mark.parametrize(("world", "memory"), [("arena", "gru"), pytest.param("town", "lstm", marks=pytest.mark.slow)])
def test_perception_alone_gives_belief_and_states(run_of, tmp_path, world, memory):
    path = tmp_path / "eyes.pt2"
    export_run(run_of(world, memory), "perception", output=path)
    follow(run_of(world, memory), "perception", torch.export.load(path).module())


READS = {
    ("mind", "world_model"): ["belief_mean", "meters", "position", "plan"],
    ("dreamer", "world_model"): ["belief_mean", "forecast", "meters", "position", "plan"],
    ("mind", "social_model"): ["others", "others_number", "is_init", "others_hidden"],
}
"""What modules that run alone are given, besides beliefs only what the world shows."""


def test_no_output_is_called_like_an_input():
    """Which ONNX does not allow."""
    config, *overrides = WORLDS["mind"]
    agent = Experiment.load(config, *overrides, *QUICK, *SMALL).make_learner().agent
    found = parts(agent)
    assert {"perception", "world_model", "social_model", "manager", "policy"} <= found.keys()
    for part in found.values():
        assert not {flat_name(key) for key in part.module.in_keys} & {flat_name(key) for key in part.out_keys}


@pytest.mark.slow
@pytest.mark.parametrize("world", ["mind", "dreamer"])
@pytest.mark.parametrize("name", ["perception", "world_model", "social_model", "manager", "policy"])
def test_each_module_of_a_whole_mind_does_as_the_live_one(run_of, tmp_path, name, world):
    run = run_of(world, "gru")
    (path,) = export_run(run, name, output=tmp_path / "part.pt2")
    follow(run, name, torch.export.load(path).module())
    described = json.loads((tmp_path / "part.pt2.json").read_text())
    read = [entry["name"] for entry in described["inputs"]]
    assert read == READS.get((world, name), read)
    of_the_world = {
        entry["name"] for entry in described["inputs"] if entry["meaning"].startswith("observation of the world")
    }
    assert not of_the_world & {"belief_mean", "plan", "is_init", "hidden", "others_hidden", "held_goal", "action_mask"}
    assert not any(entry["meaning"].startswith("observation of the world") for entry in described["outputs"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "memory"),
    [*((world, memory) for world in ("arena", "town") for memory in ("none", "gru", "lstm")), ("mind", "gru")],
)
def test_onnx_plays_as_the_live_agent_does(run_of, tmp_path, world, memory):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    run = run_of(world, memory)
    for path in export_run(run, "all", "onnx", tmp_path):
        assert b"pkg.torch" not in path.read_bytes()  # the exporter's notes, nearly half of a file
        session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [entry.name for entry in session.get_outputs()]
        assert all(entry.shape[0] == "batch" for entry in session.get_inputs())

        def call(inputs, session=session, names=names):
            values = session.run(None, {name: value.numpy() for name, value in inputs.items()})
            return {name: torch.from_numpy(value) for name, value in zip(names, values, strict=True)}

        follow(run, path.stem, call)


def test_any_number_of_rows_and_any_order_of_names(run_of, tmp_path):
    path = tmp_path / "policy.pt2"
    export_run(run_of("arena", "gru"), output=path)
    program = torch.export.load(path).module()
    inputs = {
        "hidden": torch.randn(7, 1, 12),
        "observation": torch.randn(7, 32),
        "is_init": torch.zeros(7, 1, dtype=torch.bool),
    }
    together = program(inputs)["logits"]
    alone = [program({name: value[row : row + 1] for name, value in inputs.items()})["logits"] for row in range(7)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_the_description_says_what_goes_in_and_comes_out(run_of, tmp_path):
    run = run_of("town", "lstm")
    export_run(run, "all", output=tmp_path)
    described = json.loads((tmp_path / "policy.pt2.json").read_text())
    assert described["run"]["folder"] == run.name
    assert described["run"]["checkpoint"] == find_checkpoint(run).name
    world = described["run"]["world"]
    assert world["_target_"] == "envs.TownEnv" and build_batched({**world, "num_envs": 2}).batch_size == (2,)
    assert {"torch", "torchrl", "tensordict"} <= described["versions"].keys()
    inputs = {entry["name"]: entry for entry in described["inputs"]}
    assert inputs["cell"]["shape"] == ["batch", 1, 12]
    assert inputs["is_init"]["dtype"] == "bool"
    assert inputs["others_number"]["dtype"] == "int64"
    assert "legal" in inputs["action_mask"]["meaning"]
    made = {
        name: torch.ones([4, *entry["shape"][1:]], dtype=getattr(torch, entry["dtype"]))
        for name, entry in inputs.items()
    }
    given = torch.export.load(tmp_path / "policy.pt2").module()(made)
    outputs = {entry["name"]: entry for entry in described["outputs"]}
    assert list(outputs) == list(given) == ["action", "logits", "next_hidden", "next_cell"]
    for name, value in given.items():
        assert [4, *outputs[name]["shape"][1:]] == list(value.shape)
        assert outputs[name]["dtype"] == str(value.dtype).removeprefix("torch.")
    beliefs = json.loads((tmp_path / "perception.pt2.json").read_text())["outputs"]
    assert [entry["name"] for entry in beliefs][:2] == ["belief_mean", "belief_log_std"]


def test_an_illegal_action_is_never_the_most_likely(run_of, tmp_path):
    path = tmp_path / "policy.pt2"
    export_run(run_of("town", "none"), output=path)
    _, agent = load_agent(run_of("town", "none"), "cpu")
    described = json.loads((tmp_path / "policy.pt2.json").read_text())
    inputs = {
        entry["name"]: torch.zeros([8, *entry["shape"][1:]], dtype=getattr(torch, entry["dtype"]))
        for entry in described["inputs"]
    }
    inputs["action_mask"] = torch.eye(8, dtype=torch.bool)
    assert torch.export.load(path).module()(inputs)["action"].tolist() == list(range(8))
    assert agent.actor.in_keys  # the live agent is untouched


def test_the_file_does_not_tell_where_the_code_lives(run_of, tmp_path):
    export_run(run_of("arena", "lstm"), output=tmp_path / "policy.pt2")
    content = (tmp_path / "policy.pt2").read_bytes()
    assert str(tmp_path.parent).encode() not in content
    assert b"site-packages" not in content
    assert b"memory.py" not in content


def test_the_command_writes_into_the_run_and_says_where(run_of, capsys):
    run = run_of("arena", "gru")
    assert cli.main(["export", str(run), "--module", "all", "--checkpoint", "best"]) == 0
    assert capsys.readouterr().out.split() == [str(run / "perception.pt2"), str(run / "policy.pt2")]
    written = {f"{name}.pt2{end}" for name in ("perception", "policy") for end in ("", ".json")}
    assert {path.name for path in run.glob("p*.pt2*")} == written


def test_what_cannot_be_exported_is_one_sentence(run_of, tmp_path, capsys):
    plain, blocked = str(run_of("arena", "none")), tmp_path / "file"
    blocked.write_text("in the way")
    wrong = {
        "perception": ["--module", "perception"],
        "'social'": ["--module", "social"],
        "'world_model'": ["--module", "world_model"],
        "'brain'": ["--module", "brain"],
        "'tflite'": ["--format", "tflite"],
        "end in .pt2": ["--output", str(tmp_path / "policy.onnx")],
        "--output": ["--output", str(blocked / "policy.pt2")],
    }
    for named, arguments in wrong.items():
        assert cli.main(["export", plain, *arguments]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert len(printed.err.strip().split("\n")) == 1
        assert named in printed.err
    assert cli.main(["export", str(tmp_path / "nowhere")]) == 2
    assert "there is no run" in capsys.readouterr().err
    assert blocked.read_text() == "in the way"


def test_without_its_packages_onnx_says_what_to_install(run_of, tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else found(name))
    with pytest.raises(ValueError, match=r"needs (onnx and )?onnxscript.*torchrl-agent\[export\]"):
        export_run(run_of("arena", "none"), format="onnx", output=tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_part_that_cannot_be_traced_leaves_the_old_file_alone(run_of, tmp_path, monkeypatch):
    path = tmp_path / "policy.pt2"
    path.write_text("old")

    def fail(*_, **__):
        raise RuntimeError("no such operator\nand a page of advice")

    monkeypatch.setattr(torch.export, "export", fail)
    with pytest.raises(ValueError, match=r"^the policy of this agent cannot .*no such operator\)\.$"):
        export_run(run_of("arena", "none"), output=path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.pt2"]
    assert path.read_text() == "old"


def test_the_guides_loop_runs(run_of, tmp_path, monkeypatch):
    export_run(run_of("arena", "gru"), output=tmp_path / "policy.pt2")
    monkeypatch.chdir(tmp_path)
    guide = (CONFIGS.parent / "docs" / "export.md").read_text()
    code = guide.split("```python\n")[1].split("```")[0].replace("128", "12")
    actions = []
    exec(code, {"observe": lambda: torch.randn(1, 32), "act": actions.append})
    assert len(actions) == 100
    assert all(action.shape == (1,) for action in actions)


def test_rows_of_a_group_are_its_agents():
    world = TensorDict({"agents": TensorDict({"x": torch.arange(6.0).reshape(2, 3)}, [2, 3])}, [2])
    assert rows_of(world, "agents")["x"].tolist() == [0, 1, 2, 3, 4, 5]
