"""A stranger's run is data: whatever its configuration names, no verb runs it unless the reader trusts it."""

import importlib
import os
import pickle
import re
import shutil
import sys

import numpy as np
import pytest
import torch
import yaml
from short_games import shorten
from torch import nn
from torchrl.envs import EnvBase, Transform

from torchrl_agent import Experiment, cli, load_agent, train
from torchrl_agent.algorithms.algorithm import Algorithm
from torchrl_agent.algorithms.registry import ALGORITHMS, class_path
from torchrl_agent.evaluation.matches import match
from torchrl_agent.experiment.compose import CONFIGS, config_names
from torchrl_agent.explain import explain
from torchrl_agent.export import export_run
from torchrl_agent.runs.model_card import model_card
from torchrl_agent.trust import allowed, check, record

TINY = ["device=cpu", "threads=1", "total_frames=64", "world.num_envs=4", "world.curriculum=null", "algorithm=a2c"]
TINY += ["algorithm.rollout_steps=16", "model.hidden_sizes=[8]", "run.film=false", "run.final_evaluation=false"]
TINY += ["run.tensorboard=false", *(f"acceleration.{name}=false" for name in ("step", "advantages", "update"))]
CANARY = "canary"
"""A file in the present folder that must not appear."""


@pytest.fixture(autouse=True)
def short_games(monkeypatch):
    shorten(monkeypatch.setitem, monkeypatch.setattr)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    list(train(Experiment.load("smoke", *TINY, f"run.folder={folder}", "run.name=good")))
    return folder / "good"


@pytest.fixture
def stranger(trained, tmp_path, monkeypatch):
    """A function that makes a run that a stranger sent, from changes of its configuration; the present folder holds a
    module, a pickle and an array of objects that touch the canary once they are loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.setattr(sys, "path", [*sys.path])
    touch = f"open({str(tmp_path / CANARY)!r}, 'w').close()\n"
    (tmp_path / "evil.py").write_text(f"{touch}def __getattr__(name): raise AttributeError(name)\n")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Touch()))
    np.save(tmp_path / "evil.npy", np.array([Touch()], dtype=object))
    shutil.copytree(trained, tmp_path / "run")
    yield lambda *changes: write(tmp_path / "run", changes)
    sys.modules.pop("evil", None)


class Touch:
    def __reduce__(self):
        return os.mkdir, (CANARY,)


def write(run, changes):
    config = yaml.safe_load((run / "config.yaml").read_text())
    for change in changes:
        for place, value in change.items():
            *above, name = place.split("/")
            section = config
            for part in above:
                section = section.setdefault(part, {})
            section[name] = value
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return run


def refused(capfd, words, *named):
    """The one sentence with which a command ends; nothing ran before it."""
    assert cli.main(words) == 2
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1, error
    assert "--trust" in error
    assert all(name in error for name in named), error
    assert not os.path.lexists(CANARY)
    return error


def target(name, /, **arguments):
    return {"_target_": name, **arguments}


PAYLOADS = {
    "torch.load": target("torch.load", f="evil.pkl", weights_only=False),
    "numpy.load": target("numpy.load", file="evil.npy", allow_pickle=True),
    "pickle.load": target("pickle.load", _args_=[target("builtins.open", file="evil.pkl", mode="rb")]),
    "our reader of pickles": target(
        "torchrl_agent.convert.normalization.read_normalization", path="evil.pkl", trust=True
    ),
    "our writer of text": target("torchrl_agent.core.checkpoint.write_text", path=CANARY, text="x"),
    "our film": target("envs.toolkit.film.write_film", path=CANARY, frames=[], fps=1),
    "our folder": target("torchrl_agent.runs.folder.lock", folder="."),
    "our command": target("torchrl_agent.cli.main", arguments=["configs"]),
    "os.mkdir": target("os.mkdir", path=CANARY),
    "os.system": target("os.system", command=f"touch {CANARY}"),
    "pathlib.Path.write_text": target("pathlib.Path.write_text", _args_=[target("pathlib.Path", _args_=[CANARY]), "x"]),
    "pathlib.Path.unlink": target("pathlib.Path.unlink", _args_=[target("pathlib.Path", _args_=["evil.py"])]),
    "shutil.copyfile": target("shutil.copyfile", src="evil.py", dst=CANARY),
    "logging.FileHandler": target("logging.FileHandler", filename=CANARY),
    "numpy.save": target("numpy.save", file=CANARY, arr=[1]),
    "torch.save": target("torch.save", obj=[1], f=CANARY),
    "torch.hub.load": target("torch.hub.load", repo_or_dir=".", model="evil", source="local"),
    "pytest.main": target("pytest.main", args=["evil.py"]),
    "Stable-Baselines3": target("stable_baselines3.PPO.load", path="evil.pkl"),
    "Inductor": target("torch._inductor.codecache.PyCodeCache.load", source_code=f"open({CANARY!r}, 'w')"),
    "functools.partial": target("functools.partial", _args_=["os.mkdir"], _partial_=True),
    "the present folder": target("evil.World"),
    "the interpolated": target("${name}"),
    "the method": target("envs.ArenaEnv.__init__.__globals__.clear"),
    "no name": {"_target_": {"a": "os.mkdir"}},
}
PLACES = {
    "world": lambda payload: {"world": payload},
    "world.rules": lambda payload: {"world/rules": payload},
    "world.deep.1.x": lambda payload: {"world/deep": [1, {"x": payload}]},
    "evaluation.world": lambda payload: {"evaluation/world": payload},
    "evaluation.world.rules": lambda payload: {"evaluation/world/rules": payload},
    "algorithm": lambda payload: {"algorithm": payload},
    "population.evolve": lambda payload: {"population/evolve": payload, "population/members": 2},
    "model.custom_modules.x": lambda payload: {"model/custom_modules": {"x": payload}},
    "model.perception.encoders.x": lambda payload: {"model/perception/encoders": {"x": payload}},
    "model.manager.goals": lambda payload: {"model/manager/goals": {"x": payload}},
    "league.against": lambda payload: {"league/against": [payload]},
}
"""Where a target can be written, and how."""
MKDIR = PAYLOADS["os.mkdir"]
VERBS = {
    "evaluate": ["evaluate", "run"],
    "film": ["film", "run"],
    "explain": ["explain", "run"],
    "replay": ["replay", "run"],
    "play": ["play", "run"],
    "export": ["export", "run"],
    "resume": ["resume", "run", "total_frames=128"],
    "convert": ["convert", "to-sb3", "run", "out.zip"],
    "match": ["match", "run", "run"],
    "league": ["league", "run"],
    "exploit": ["exploit", "run"],
    "train": ["train", "run/config.yaml", "run.name=x"],
    "train -m": ["train", "run/config.yaml", "-m", "seed=0,1"],
    "configs": ["configs", "run/config.yaml"],
    "pretrain": ["pretrain", "policy", "run/config.yaml"],
    "profile": ["profile", "run/config.yaml"],
    "bench speed": ["bench", "speed", "run/config.yaml"],
    "bench skill": ["bench", "skill", "run/config.yaml"],
}


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_target_of_a_stranger_is_called(stranger, capfd, payload):
    stranger({"world/rules": PAYLOADS[payload]})
    refused(capfd, ["evaluate", "run"], "world.rules", "config.yaml")


@pytest.mark.parametrize("place", PLACES)
def test_nowhere_is_a_target_of_a_stranger_called(stranger, capfd, place, monkeypatch):
    monkeypatch.syspath_prepend(os.getcwd())
    run = stranger(PLACES[place](target("evil.World")))
    assert cli.main(["evaluate", "run"]) == 2
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    assert not os.path.lexists(CANARY)
    if place not in ("model.manager.goals", "league.against"):  # which hold no words
        assert f"{place}._target_ in {run.name}/config.yaml names evil.World" in error


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_calls_a_target_of_a_stranger(stranger, capfd, verb):
    if verb == "convert":
        pytest.importorskip("stable_baselines3")
    stranger({"world/rules": MKDIR, "model/custom_modules": {"x": MKDIR}})
    refused(capfd, VERBS[verb], "world.rules._target_", "os.mkdir")
    assert sorted(os.listdir()) == ["evil.npy", "evil.pkl", "evil.py", "run"]  # and nothing was written


@pytest.mark.parametrize("verb", ["compare", "plot"])
def test_tables_and_curves_of_a_strangers_run_call_nothing(stranger, verb):
    stranger({"world": MKDIR}, {"algorithm": target("evil.World")})
    assert cli.main([verb, "run", *(["--metric", "frames"] if verb == "plot" else [])]) == 0
    assert not os.path.lexists(CANARY)


WORDS = {
    "a Gymnasium id": {"world": target("envs.libs.gymnasium.VectorGymEnv", env_name="evil:World-v0")},
    "TorchRL's": {"world": target("torchrl.envs.GymEnv", env_name="evil:World-v0", num_envs=2)},
    "only in the evaluation": {
        "evaluation/world": target("envs.libs.gymnasium.VectorGymEnv", env_name="evil:World-v0")
    },
    "for a target of the evaluation": {
        "world": target("envs.libs.gymnasium.VectorGymEnv", env_name="CartPole-v1"),
        "evaluation/world": target("envs.ArenaEnv", env_name="evil:World-v0"),
    },
    "without its name": {"world": target("envs.libs.pettingzoo.VectorPettingZooEnv", _args_=["evil"])},
    "below": {
        "world": target(
            "torchrl.envs.SerialEnv",
            num_workers=1,
            create_env_fn=target("torchrl.envs.GymEnv", env_name="evil:World-v0", _partial_=True),
        )
    },
    "a module": {"world": target("envs.libs.pettingzoo.VectorPettingZooEnv", module="evil")},
    "a scenario": {"world": target("envs.libs.vmas.VectorVmasEnv", scenario="../../evil.py")},
    "put together": {"name": "evil", "world": target("envs.libs.gymnasium.VectorGymEnv", env_name="${name}:World-v0")},
    "an algorithm's word": {"algorithm": "evil.Algorithm"},
    "what suits one": {"tuned": {"evil.Algorithm": {}}},
    "what suits another": {"tuned": {"evil.Algorithm": {"gamma": 0.5}}},
}


@pytest.mark.parametrize("words", WORDS)
def test_words_that_name_a_module_are_refused(stranger, capfd, words, monkeypatch):
    monkeypatch.syspath_prepend(os.getcwd())
    stranger(WORDS[words])
    refused(capfd, ["configs", "run/config.yaml"], "evil")


ON_CUDA = {
    "a target": {"world._target_": "evil.World"},
    "an algorithm": {"algorithm": "evil.Algorithm"},
    "an algorithm's section": {"algorithm": "{_target_: evil.Algorithm}"},
    "what suits one": {"tuned": "{evil.Algorithm: {gamma: 0.5}}"},
    "a world as text": {"world": "{_target_: evil.World}"},
    "a setting of Hydra": {"hydra.searchpath": "[file://.]"},
    "another section": {"+x@hydra": "evil"},
    "the environment": {"name": "'\\${oc.env:SECRET}'"},
}


@pytest.mark.parametrize("words", ON_CUDA)
def test_what_a_file_says_for_cuda_is_no_word_of_the_reader(stranger, words, monkeypatch):
    monkeypatch.syspath_prepend(os.getcwd())
    monkeypatch.setattr("torchrl_agent.experiment.resolve_device", lambda device: torch.device("cuda"))
    run = stranger({"on_cuda": ON_CUDA[words]})
    with pytest.raises(ValueError, match="--trust"):
        Experiment.load(run / "config.yaml")
    assert not os.path.lexists(CANARY)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        *((place, "${oc.env:SECRET}") for place in ("world/level", "name", "run/folder", "tuned/ppo/gamma")),
        ("world/level", "x${oc.env:SECRET,none}"),
        ("world/level", "\\${oc.env:SECRET}"),
        ("world/level", "${oc.decode:${oc.env:SECRET}}"),
        ("algorithm/gamma", "${hydra:runtime}"),
    ],
)
def test_a_stranger_reads_no_environment(stranger, capfd, place, text):
    stranger({place: text})
    assert "hunter2" not in refused(capfd, ["configs", "run/config.yaml"], place.replace("/", "."))


def test_keys_may_refer_to_each_other(stranger):
    run = stranger({"name": "n${seed}", "seed": 7})
    assert Experiment.load(run / "config.yaml").name == "n7"


@pytest.mark.parametrize(
    "bases",
    [
        ["beside", "_self_"],
        ["/etc/x", "_self_"],
        ["../run/beside", "_self_"],
        [{"world": "beside"}, "_self_"],
        [{"/run@world": "beside"}],
        ["${oc.env:SECRET}"],
        "beside",
    ],
)
def test_a_stranger_begins_with_our_configurations_only(stranger, capfd, bases):
    run = stranger({"defaults": bases})
    (run / "beside.yaml").write_text("world: {_target_: evil.World}\n")
    refused(capfd, ["configs", "run/config.yaml"], "defaults")


def test_a_file_beside_a_configuration_does_not_stand_for_one_of_ours(stranger):
    run = stranger()
    (run / "config.yaml").write_text("defaults: [smoke, _self_]\nname: mine\n")
    for name in ("smoke", "experiment_schema"):
        (run / f"{name}.yaml").write_text("world: {_target_: evil.World}\n")
    assert Experiment.load(run / "config.yaml").world["_target_"] == "envs.ArenaEnv"


@pytest.mark.parametrize("section", [{"searchpath": ["file:///tmp"]}, {"run": {"dir": CANARY}}])
def test_a_stranger_does_not_change_hydra(stranger, capfd, section):
    stranger({"hydra": section})
    refused(capfd, ["configs", "run/config.yaml"], "hydra")


def test_a_comment_for_hydra_means_nothing(stranger):
    run = stranger()
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(f"# @package hydra\n{text}")
    assert Experiment.load(run / "config.yaml").seed == 0


# --- trust ---------------------------------------------------------------------------------------------------------


def test_trust_in_a_call_holds_for_that_call(stranger, capfd):
    stranger({"world/rules": PAYLOADS["our writer of text"] | {"path": target("pathlib.Path", _args_=[CANARY])}})
    cli.main(["export", "run", "--module", "none", "--trust"])
    assert os.path.isfile(CANARY)
    os.remove(CANARY)
    capfd.readouterr()
    refused(capfd, ["export", "run", "--module", "none"])


def test_modules_of_the_present_folder_are_imported_only_for_what_is_trusted(stranger, capfd, monkeypatch):
    stranger({"world": target("evil.World")})
    before = list(sys.path)
    for words in (["evaluate", "run"], ["evaluate", "run", "--trust"]):
        monkeypatch.setattr(sys, "argv", ["torchrl-agent", *words])
        assert cli.main() == 2
        assert os.path.lexists(CANARY) == ("--trust" in words)
        assert (sys.path != before) == ("--trust" in words)
    assert "the world evil.World cannot be made" in capfd.readouterr().err


OWN = "from envs import ArenaEnv\n\n\nclass Mine(ArenaEnv):\n    pass\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A configuration of the user's own, of a world of his own, and words that make a run of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_in_test_trust.py").write_text(OWN)
    (tmp_path / "mine.yaml").write_text("defaults: [smoke, _self_]\nworld: {_target_: mine_in_test_trust.Mine}\n")
    yield [*TINY, "--quiet"]
    sys.modules.pop("mine_in_test_trust", None)


def test_who_trains_what_is_his_own_is_not_asked_again_on_this_machine(own, tmp_path, monkeypatch, capfd):
    assert cli.main(["train", "mine.yaml", "run.name=a", *own]) == 2
    assert cli.main(["train", "mine.yaml", "run.name=a", "--trust", *own]) == 0
    assert cli.main(["configs", "mine.yaml"]) == 0
    assert cli.main(["evaluate", "runs/a", "--episodes", "1"]) == 0
    assert cli.main(["resume", "runs/a", "total_frames=128", "--quiet"]) == 0
    path = tmp_path / "runs/a/config.yaml"
    assert cli.main(["configs", str(path)]) == 0
    path.write_text(f"{path.read_text()}\n")
    assert cli.main(["configs", str(path)]) == 2  # it has changed
    path.write_text(path.read_text()[:-1])
    assert cli.main(["configs", str(path)]) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another machine"))
    capfd.readouterr()
    refused(capfd, ["evaluate", "runs/a"], "world._target_", "mine_in_test_trust.Mine")


def test_what_a_user_types_is_trusted_and_recorded_for_the_run(own):
    words = ["train", "smoke", "run.name=typed", "world._target_=mine_in_test_trust.Mine"]
    assert cli.main([*words, *own]) == 0
    assert cli.main(["configs", "runs/typed/config.yaml"]) == 0


def test_what_a_user_types_is_trusted_only_where_he_typed_it(stranger, capfd):
    stranger({"world/rules": MKDIR})
    refused(capfd, ["evaluate", "run", "world._target_=os.mkdir"], "world.rules._target_")


def test_members_of_a_population_are_trusted_as_their_run_is(own):
    words = ["run.name=several", "population.members=2", "world._target_=mine_in_test_trust.Mine"]
    assert cli.main(["train", "smoke", *own, *words]) == 0
    load_agent("runs/several", member=1)
    load_agent("runs/several/members/00")


def test_an_experiment_made_in_python_is_the_users_own(own, tmp_path):
    experiment = Experiment.load("smoke", *TINY, "run.name=python", f"run.folder={tmp_path}")
    experiment.world["_target_"] = "mine_in_test_trust.Mine"
    list(train(experiment))
    assert load_agent(tmp_path / "python")[0].world == experiment.world


@pytest.mark.parametrize("call", ["load", "load_agent", "explain", "export_run", "match"])
def test_functions_take_trust_as_verbs_do(own, tmp_path, monkeypatch, call):
    assert cli.main(["train", "mine.yaml", "run.name=a", "--trust", *own]) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another machine"))
    run = tmp_path / "runs/a"
    calls = {
        "load": lambda **trust: Experiment.load(run / "config.yaml", **trust),
        "load_agent": lambda **trust: load_agent(run, "cpu", **trust),
        "explain": lambda **trust: explain(run, 0, device="cpu", **trust),
        "export_run": lambda **trust: export_run(run, "nothing", **trust),
        "match": lambda **trust: match(str(run), str(run), 2, "cpu", **trust),
    }
    with pytest.raises(ValueError, match="--trust"):
        calls[call]()
    try:
        calls[call](trust=True)
    except ValueError as error:
        assert "--trust" not in str(error)  # an Arena has one seat, and its agent no module "nothing"


def test_without_a_home_folder_nothing_is_remembered_and_everything_works(own, monkeypatch, caplog):
    monkeypatch.setattr(record, "records", lambda: None)
    assert cli.main(["train", "mine.yaml", "run.name=a", "--trust", *own]) == 0
    assert "runs/a/config.yaml is not remembered as trusted (there is no home folder)" in caplog.messages[-1]
    assert cli.main(["configs", "runs/a/config.yaml"]) == 2
    assert cli.main(["configs", "runs/a/config.yaml", "--trust"]) == 0


# --- the list ------------------------------------------------------------------------------------------------------


def test_what_is_allowed_is_classes_of_the_documented_kinds():
    kinds = {**dict.fromkeys(allowed.WORLDS, (EnvBase, Transform)), **dict.fromkeys(allowed.MODULES, nn.Module)}
    kinds |= dict.fromkeys(allowed.ALGORITHMS, Algorithm)
    for path, kind in kinds.items():
        module, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        assert isinstance(found, type), path
        assert issubclass(found, kind), path


def test_our_configurations_and_algorithms_need_no_trust():
    assert set(map(class_path, ALGORITHMS.values())) == allowed.ALGORITHMS
    for name in config_names():
        content = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
        assert not [*check.in_words(content), *check.in_targets(content)]


# --- YAML ----------------------------------------------------------------------------------------------------------

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
DAMAGED = {
    "a bomb": (BOMB, "100,000 values"),
    "itself": ("a: &a [*a]\n", "100,000 values"),
    "deep": ("a: " + "[" * 1000 + "]" * 1000, "64 deep"),
    "long": ("a: " + "x" * 1_000_001, "1,000,000 characters"),
    "a tag": ("a: !!python/object/apply:os.mkdir [canary]\n", "tag"),
    "a type of its own": ("a: !evil {}\n", "tag"),
    "an alias of nothing": ("a: *b\n", "cannot be read"),
    "no text": ("\0", "cannot be read"),
}


@pytest.mark.parametrize("words", ["evaluate", "resume", "compare", "plot", "film"])
@pytest.mark.parametrize("damage", DAMAGED)
def test_yaml_beyond_its_limits_is_refused_in_one_sentence(stranger, capfd, words, damage):
    text, expected = DAMAGED[damage]
    run = stranger()
    (run / "config.yaml").write_text(text)
    assert cli.main([words, "run"]) == 2
    error = capfd.readouterr().err
    assert len(error.splitlines()) == 1
    assert expected in error or "not YAML" in error
    assert "config.yaml" in error
    assert not os.path.lexists(CANARY)


@pytest.mark.parametrize("damage", ["a bomb", "a tag"])
@pytest.mark.parametrize(("world", "key"), [("arena", "curriculum"), ("town", "level")])
def test_yaml_of_a_world_has_limits_too(tmp_path, damage, world, key):
    (tmp_path / "x.yaml").write_text(DAMAGED[damage][0])
    experiment = Experiment.load(world, "device=cpu", f"world.{key}={tmp_path / 'x.yaml'}")
    with pytest.raises(ValueError, match=DAMAGED[damage][1]):
        experiment.make_world(num_envs=2)


# --- what is shown -------------------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;gone\x07 `<script>alert(1)</script>` | [x](http://x) \u202e\n# heading"


@pytest.mark.parametrize("verb", ["compare", "evaluate"])
def test_no_control_character_of_a_run_reaches_the_terminal(stranger, capfd, verb):
    run = stranger({"name": HOSTILE})
    if verb == "evaluate":
        (run / "config.yaml").write_text((run / "config.yaml").read_text() + 'speed: "\\e]0;gone\\a"\n')
    cli.main([verb, "run"])
    printed = "".join(capfd.readouterr())
    assert printed
    assert not set("\x1b\x07\u202e") & set(printed)


def test_a_model_card_holds_no_markup_of_a_run(trained):
    experiment = Experiment.load(trained / "config.yaml")
    experiment.name, experiment.world["level"] = HOSTILE, HOSTILE
    summary = {"frames": 1, "seconds": 1.0, "device": "cpu", "evaluation": {"episodes": 1, HOSTILE: HOSTILE}}
    card = model_card(trained, experiment, summary)
    assert not any(line.startswith("# heading") for line in card.splitlines())
    assert not set("\x1b\x07\u202e") & set(card)
    outside_of_code = re.sub(r"(?s)(`+) .*?(?<!`)\1(?!`)", "", card)
    assert not re.search(r"(?<!\\)<script|(?<!\\)\[x\]", outside_of_code)


def test_weights_that_are_not_finite_are_refused_by_every_verb(stranger, capfd):
    run = stranger()
    path = run / "checkpoints/checkpoint_64.pt"
    state = torch.load(path, weights_only=True)
    name = next(name for name, value in state["agent"].items() if value.is_floating_point())
    state["agent"][name].view(-1)[0] = float("nan")
    torch.save(state, path)
    path.with_suffix(".json").unlink()  # with its checksums
    for verb in ("evaluate", "film", "explain", "export", "resume", "convert"):
        assert cli.main(VERBS[verb]) == 2
        error = capfd.readouterr().err
        assert len(error.splitlines()) == 1
        assert f"NaN or infinity in {name}" in error
