"""Names that were misspelled, wherever one is chosen."""

import pytest

from envs.arena.rules import make_rules
from envs.toolkit import names as of_worlds
from envs.town.levels import load_level
from torchrl_agent import cli, load_agent
from torchrl_agent.core.checkpoint import CheckpointError
from torchrl_agent.core.text import did_you_mean, nearest
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.compose import config_names


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("areena", "arena"),
        ("CartPole-v1", "cartpole"),
        ("known/lunarlander", "known/lunar_lander"),
        ("LunarLander-v3", "known/lunar_lander"),
        ("lunar_lander", "known/lunar_lander"),
        ("Pendulum-v1", "known/pendulum"),
        ("town-agent", "town_agent"),
        ("dynasty", "families/dynasty"),
    ],
)
def test_the_nearest_configuration_is_suggested(typed, meant):
    assert nearest(typed, config_names()) == [meant]
    with pytest.raises(ValueError, match=rf"\(did you mean {meant}\?\)"):
        Experiment.load(typed)


def test_nothing_is_suggested_where_nothing_is_like_it():
    assert did_you_mean("xyzzy", config_names()) == ""
    assert of_worlds.did_you_mean("xyzzy", ["L1", "L2"]) == ""
    with pytest.raises(ValueError, match="see 'torchrl-agent configs NAME'") as caught:
        Experiment.load("smoke", "model.xyzzy=3")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("algorithm.learnin_rate=1e-3", "learning_rate"),
        ("model.percepion.memory_size=3", "perception"),
        ("algorithm=pppo", "ppo"),
        ("model.memory=grru", "gru"),
        ("model.activation=Tanh", "tanh"),
        ("algorithm.learning_rate.schedule=linaer", "linear"),
        ("population.spread=perturbed", "perturb"),
        ("run.resume=Auto", "auto"),
        ("policy=lstn", "lstm"),
        ("world.action_repat=2", "action_repeat"),
        ("learning_rate=1e-3", "algorithm.learning_rate"),
        ("n_epochs=3", "algorithm.num_epochs"),
        ("algorithm.n_epochs=3", "num_epochs"),
        ("ent_coef=0.1", "algorithm.entropy_coeff"),
    ],
)
def test_the_nearest_key_or_choice_is_suggested(override, meant):
    with pytest.raises(ValueError, match=rf"\(did you mean {meant}\?\)"):
        Experiment.load("smoke", override)


@pytest.mark.parametrize(
    ("make", "meant"),
    [
        (lambda: load_level("l3"), "L3"),
        (lambda: make_rules("clasic"), "classic"),
        (lambda: make_rules({"max_step": 3}), "max_steps"),
    ],
)
def test_the_nearest_level_and_rules_are_suggested(make, meant):
    with pytest.raises(ValueError, match=rf"\(did you mean {meant}\?\)"):
        make()


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["trian", "smoke"], "train"), (["train", "smoke", "--sede", "1"], "--seed"), (["completion", "bahs"], "bash")],
)
def test_the_nearest_verb_or_option_is_suggested(words, meant, capsys):
    with pytest.raises(SystemExit):
        cli.main(words)
    assert f"(did you mean {meant}?)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train"], "arguments are required: config;"),
        (["train", "smoke", "--gamma", "0.9"], ": give keys as KEY=VALUE, such as algorithm.gamma=0.99;"),
    ],
)
def test_missing_and_unknown_arguments_are_named_with_the_way_to_give_them(words, said, capsys):
    with pytest.raises(SystemExit):
        cli.main(words)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"), [("first", "runs/first"), ("runs/frist", "runs/first"), ("duel", "shipped:duel")]
)
def test_the_nearest_run_is_suggested(typed, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "config.yaml").touch()
    with pytest.raises(CheckpointError, match=rf"there is no run {typed} \(did you mean {meant}\?\)"):
        load_agent(typed)


def test_the_nearest_module_is_suggested(capsys):
    assert cli.main(["pretrain", "world_modle", "smoke"]) == 2
    assert "(did you mean world_model?)" in capsys.readouterr().err
