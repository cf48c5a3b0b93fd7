"""Overrides and files: names as they are typed, numbers for sections, new keys, files of any name."""

import pytest
import yaml

from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.overrides import parse_override, quoted, split, values_of
from torchrl_agent.optimization.schedules import LearningRateConfig

NAMES = [
    "3.10",
    "1e5",
    "true",
    "1_000",
    "12e4",
    "null pointer",
    "größe",
    "it's",
    "exp#1",
    "a b",
    'a "b"',
    "a\\b",
    "[a",
    "x:y",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_as_it_was_typed(name, tmp_path):
    loaded = Experiment.load("smoke", f"run.wandb={name}", f"run.folder=/home/{name}/runs")
    assert (loaded.run.wandb, loaded.run.folder) == (name, f"/home/{name}/runs")
    path = tmp_path / "stored.yaml"
    path.write_text(loaded.to_yaml(), encoding="utf-8")
    assert Experiment.load(path).run.wandb == name
    assert Experiment.load("smoke", f"run.wandb={quoted(name)}").run.wandb == name


@pytest.mark.parametrize("name", ["3.10", "1e5", "true", "1_000", "12e4", "größe", "it's", "exp#1", "2026-11-27"])
def test_a_name_in_a_file_is_as_it_was_written(name, tmp_path):
    (tmp_path / "base.yaml").write_text(f"defaults: [smoke, _self_]\nrun: {{name: {name}}}\n", encoding="utf-8")
    (tmp_path / "mine.yaml").write_text("defaults: [base, _self_]\nname: 3.10\n", encoding="utf-8")
    loaded = Experiment.load(tmp_path / "mine.yaml", trust=True)
    assert (loaded.run.name, loaded.name) == (name, "3.10")


def test_texts_in_lists_need_no_quotes():
    assert Experiment.load("smoke", "league.against=[runs/größe, 'a,b', 3.10]").league.against == [
        "runs/größe",
        "a,b",
        "3.10",
    ]


@pytest.mark.parametrize("override", ["speed=größe", "größe=3", "world.level=[ä]", "seed=größe", "seed='", "seed=)"])
def test_parse_errors_do_not_name_the_grammar(override):
    with pytest.raises(ValueError, match=override[:4]) as caught:
        Experiment.load("smoke", override)
    assert "Lexer" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_values_are_refused_where_one_is_wanted():
    for word in ("seed=1,2", "run.name=a,b", "seed=range(1,3)", "run.name=choice(a,b)"):
        with pytest.raises(ValueError, match="gives several values"):
            parse_override(word)
    assert parse_override("run.name='a,b'").value == "'a,b'"
    assert parse_override("world.rules={a: 1, b: 2}").value == "{a: 1, b: 2}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("1", ["1"]),
        ("a,b", ["a", "b"]),
        ("[1,2],[3]", ["[1,2]", "[3]"]),
        ("'a,b', \"c,d\"", ["'a,b'", '"c,d"']),
        ("it's,b's", ["it's", "b's"]),
        (r"'it\'s, it',b", [r"'it\'s, it'", "b"]),
        ("{a: [1,2], b: 'x,y'}", ["{a: [1,2], b: 'x,y'}"]),
        ("", [""]),
    ],
)
def test_commas_part_what_stands_in_no_quotes_and_no_brackets(text, parts):
    assert split(text) == parts


def test_names_of_a_sweep_are_as_typed():
    assert values_of("run.name=3.10,größe") == ["run.name=3.10", "run.name=größe"]


# --- numbers ---


@pytest.mark.parametrize("override", ["algorithm.learning_rate=1e-3", "tuned.ppo.learning_rate=0.001"])
def test_a_number_for_a_learning_rate_is_its_initial_value(override):
    schedule = "algorithm.learning_rate.schedule=linear"
    expected = LearningRateConfig(initial=1e-3, schedule="linear")
    assert Experiment.load("smoke", override, schedule).algorithm.learning_rate == expected
    assert Experiment.load("smoke", schedule, override).algorithm.learning_rate == expected


def test_no_worlds_are_refused():
    with pytest.raises(ValueError, match="num_envs is 0: give a whole number of worlds, at least 1"):
        Experiment.load("smoke", "world.num_envs=0").make_learner()


def test_a_word_for_a_learning_rate_is_refused():
    with pytest.raises(ValueError, match=r"algorithm\.learning_rate is 'fast': give a number, such as 3e-4\."):
        Experiment.load("smoke", "algorithm.learning_rate=fast")


def test_a_number_for_a_learning_rate_in_a_file_leaves_its_schedule(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("defaults: [arena, _self_]\nalgorithm: {learning_rate: 2e-3}\n")
    assert Experiment.load(path, "device=cpu").algorithm.learning_rate == LearningRateConfig(2e-3, schedule="linear")


@pytest.mark.parametrize(("typed", "frames"), [("1e6", 1_000_000), ("2.5e3", 2500), ("1_000", 1000)])
def test_whole_numbers_may_be_typed_with_an_exponent(typed, frames, tmp_path):
    assert Experiment.load("smoke", f"total_frames={typed}").total_frames == frames
    assert Experiment.load("smoke", f"algorithm.minibatch_size={typed}").algorithm.minibatch_size == frames
    path = tmp_path / "mine.yaml"
    path.write_text(f"defaults: [smoke, _self_]\ntotal_frames: {typed}\n")
    assert Experiment.load(path).total_frames == frames


@pytest.mark.parametrize("key", ["run.name", "threads", "algorithm.target_kl", "evaluation.mark"])
def test_none_is_no_value_where_there_may_be_none(key):
    for nothing in ("null", "None"):
        loaded = Experiment.load("smoke", f"{key}=3", f"{key}={nothing}")
        for name in key.split("."):
            loaded = getattr(loaded, name)
        assert loaded is None


# --- new keys ---


def test_open_sections_take_new_keys_without_a_plus():
    loaded = Experiment.load(
        "known/pendulum",
        "world.max_episode_steps=50",
        "evaluation.world.max_episode_steps=60",
        "model.custom_modules.forecast={_target_: mine.Forecast, size: 3}",
        "tuned.a2c.num_minibatches=2",
        "league.scripted.turret=0.5",
        "population.genes={algorithm.gamma: {low: 0.9, high: 0.99}}",
        "population.members=2",
    )
    assert loaded.population.genes["algorithm.gamma"].low == 0.9
    assert loaded.world["max_episode_steps"] == 50
    assert loaded.evaluation.world["max_episode_steps"] == 60
    assert loaded.model.custom_modules == {"forecast": {"_target_": "mine.Forecast", "size": 3}}
    assert loaded.tuned["a2c"]["num_minibatches"] == 2
    assert loaded.league.scripted == {"turret": 0.5}


@pytest.mark.parametrize("override", ["world.curiculum=ladder", "evaluation.world.curiculum=ladder"])
def test_an_argument_that_a_world_of_ours_does_not_take_is_refused(override):
    with pytest.raises(ValueError, match=r"did you mean curriculum\?.*it takes num_envs, .*stage"):
        Experiment.load("smoke", override)


# --- files ---


def written(path, text="defaults: [smoke, _self_]\nseed: 3\n"):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_may_end_in_yml_and_so_may_what_it_begins_with(tmp_path):
    written(tmp_path / "base.yml")
    assert Experiment.load(written(tmp_path / "a.yml", "defaults: [base, _self_]\nname: a\n"), trust=True).seed == 3


def test_a_link_of_another_name_in_another_folder_is_the_file(tmp_path):
    written(tmp_path / "real" / "base.yaml")
    real = written(tmp_path / "real" / "mine.yaml", "defaults: [base, _self_]\nname: a\n")
    link = tmp_path / "other.yaml"
    link.symlink_to(real)
    assert Experiment.load(link, trust=True) == Experiment.load(real, trust=True)


def test_a_file_may_be_called_as_the_configuration_that_it_begins_with(tmp_path):
    loaded = Experiment.load(written(tmp_path / "smoke.yaml"))
    assert loaded.seed == 3
    assert loaded.algorithm.rollout_steps == Experiment.load("smoke").algorithm.rollout_steps


def test_files_that_begin_with_each_other_are_refused(tmp_path):
    written(tmp_path / "one.yaml", "defaults: [two, _self_]\n")
    written(tmp_path / "two.yaml", "defaults: [two, _self_]\n")
    with pytest.raises(ValueError, match="begins with one that begins with it"):
        Experiment.load(tmp_path / "one.yaml", trust=True)


@pytest.mark.parametrize("folder", ["größe", "it's", 'a "b"', "a b", "a,b", "#1"])
def test_a_file_may_lie_anywhere(folder, tmp_path):
    written(tmp_path / folder / "base.yaml")
    path = written(tmp_path / folder / "mine #1.yaml", "defaults: [base, _self_]\nname: a\n")
    assert Experiment.load(path, trust=True).seed == 3


@pytest.mark.parametrize("text", ["3", "- a", "text"])
def test_a_file_without_keys_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match="give keys"):
        Experiment.load(written(tmp_path / "mine.yaml", text))


def test_a_stored_configuration_is_read_by_anything(tmp_path):
    assert yaml.safe_load(Experiment.load("smoke", "run.name=3.10").to_yaml())["run"]["name"] == "3.10"
