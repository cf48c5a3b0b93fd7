"""Explaining a step: the page tells the agent's own tensors, and the diagnosis follows from numbers."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pytest
import torch
from tensordict import TensorDict
from torchrl.envs import GymEnv
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv, TownEnv
from envs.town.panel import kind_color
from envs.town.picture import window_colors
from torchrl_agent import cli, keys
from torchrl_agent.experiment import Experiment
from torchrl_agent.explain import explain, figures, write_page
from torchrl_agent.explain.diagnosis import NOTHING_UNUSUAL, diagnose
from torchrl_agent.explain.page import Table, as_text, sections
from torchrl_agent.explain.page_tables import as_numbers
from torchrl_agent.explain.thinking import think, world_names
from torchrl_agent.explain.thought import Names
from torchrl_agent.loop import learn
from torchrl_agent.runs.load import load_agent
from torchrl_agent.runs.run import save

EAGER = ["acceleration.step=false", "acceleration.advantages=false", "acceleration.update=false", "threads=1"]
SMALL = [
    "world={num_envs: 4, rules: {max_steps: 9, sight: 14}}",
    "algorithm={rollout_steps: 8, minibatch_size: 32, num_epochs: 1}",
    "model.hidden_sizes=[16]",
    "model.perception={memory_size: 12, belief_size: 8, embedding_size: 16}",
    "model.world_model.hidden_size=16",
    "model.manager.steps=4",
    "device=cpu",
    *EAGER,
]
STEP, WORLD, AGENT = 3, 1, 2


def make_run(folder, config, *overrides):
    """A run that has learned for one iteration."""
    experiment = Experiment.load(config, f"run.folder={folder}", *overrides)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(experiment.to_yaml())
    save(next(iter(learn(experiment))), folder)
    return folder


@pytest.fixture(scope="module")
def town_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("town") / "run", "town_agent", *SMALL)


@pytest.fixture(scope="module")
def arena_run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("arena") / "run", "smoke", "device=cpu", "threads=1")


@pytest.fixture(scope="module")
def thought(town_run):
    return explain(town_run, STEP, WORLD, AGENT, "cpu")


@pytest.fixture(scope="module")
def played(town_run):
    """The same episode by TorchRL's own loop, among more worlds: [worlds, steps]."""
    experiment, agent = load_agent(town_run, "cpu")
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=3, seed=experiment.evaluation.seed))
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        return experiment, agent, env.rollout(20, agent.policy, break_when_any_done=True)


def test_the_record_holds_the_agents_own_tensors(thought, played):
    _, agent, rollout = played
    row = rollout[WORLD, STEP]["agents"][AGENT]
    assert thought.length == rollout.shape[1] == 9
    torch.testing.assert_close(thought.belief.mean, row[keys.BELIEF, "mean"])
    torch.testing.assert_close(thought.belief.proprioception[:8], row["meters"])
    usual = rollout[WORLD]["agents"][keys.BELIEF, "log_std"][:, AGENT].mean()
    assert thought.belief.usual == pytest.approx(usual.item(), abs=1e-5)
    assert thought.action.tolist() == [int(row["action"])]
    assert thought.probabilities[0].argmax() == row["action"]
    assert thought.probabilities[0][row["action"]].log().item() == pytest.approx(
        row["action_log_prob"].item(), abs=1e-4
    )
    for name in ("actions", "rewards", "states", "confidence", "reason"):
        torch.testing.assert_close(getattr(thought.futures, name), row[keys.FUTURES, name])
    expected = agent.world_model.expected_return(row[keys.FUTURES])
    torch.testing.assert_close(thought.futures.expected_return, expected)
    assert thought.goal.type == int(row["goal", "type"])
    assert thought.goal.probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    assert thought.goal.probabilities[thought.goal.type].item() == pytest.approx(thought.goal.priority, abs=1e-5)
    with torch.no_grad():
        state = rollout[WORLD, STEP]["state"]
        value = agent.critic_head(TensorDict({keys.FEATURES: row[keys.FEATURES], "state": state}))[keys.VALUE]
    assert thought.value == pytest.approx(value.item(), abs=1e-4)


def test_what_followed_is_what_the_episode_brought(town_run, thought, played):
    experiment, agent, rollout = played
    mine = rollout[WORLD]["next", "agents"][:, AGENT]
    horizon = experiment.model.world_model.horizon
    following = slice(STEP, STEP + horizon)
    torch.testing.assert_close(thought.futures.true_states[:, :8], mine["meters"][following])
    rewards = mine["reward"][following].squeeze(-1)
    torch.testing.assert_close(thought.futures.true_rewards * thought.reward_unit, rewards)
    assert thought.reward * thought.reward_unit == pytest.approx(rewards[0].item(), rel=1e-4)
    assert abs(thought.reward_unit - 1) > 0.01, "or nothing would show which unit it is"
    (checkpoint,) = (town_run / "checkpoints").glob("*.pt")
    variance = torch.load(checkpoint, weights_only=True)["algorithm"]["reward_scaler"]["running.var"]
    assert thought.reward_unit == pytest.approx(variance.sqrt().item(), rel=1e-4)
    actions = rollout[WORLD]["agents", "action"][following, AGENT].reshape(1, -1)
    belief = thought.belief
    with torch.no_grad():
        dreamed = agent.world_model.imagine(belief.mean, belief.proprioception, actions)
    torch.testing.assert_close(thought.futures.predicted_states, dreamed["states"][0])


def test_an_episode_ends_for_an_agent_with_its_death(town_run, monkeypatch):
    experiment, agent = load_agent(town_run, "cpu")
    world = experiment.make_world(evaluation=True, num_envs=2, seed=1)
    env = agent.attach(world)
    reset = env.reset

    def starving():
        root = reset()
        env.state.meters[0, AGENT, WORLD] = 0.001
        return root

    monkeypatch.setattr(env, "reset", starving)
    assert think(env, agent, WORLD, AGENT, 0).length == 1
    with pytest.raises(ValueError, match="plays 1 steps"):
        think(env, agent, WORLD, AGENT, 1)


def test_minds_stand_beside_the_truth(thought, played):
    _, _, rollout = played
    group = rollout[WORLD, STEP]["agents"]
    row = group[AGENT]
    seen = row["others_number"] < 4
    others = thought.others
    assert others.number.tolist() == row["others_number"][seen].tolist() != []
    torch.testing.assert_close(others.goal, row["social", "goal"][seen].softmax(-1))
    torch.testing.assert_close(others.true_meters, group["meters"][others.number])
    assert others.true_next_action.tolist() == group["action"][others.number].tolist()
    assert others.true_goal.tolist() == row["privileged", "others_need"][seen].tolist()


def test_what_is_found_again_comes_from_the_steps_in_which_it_was_written(tmp_path):
    run = make_run(tmp_path / "run", "town_agent", *SMALL, "model.social_model.associations=3")
    thought = explain(run, STEP, WORLD, AGENT, "cpu")
    experiment, agent = load_agent(run, "cpu")
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=3, seed=experiment.evaluation.seed))
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        group = env.rollout(STEP + 1, agent.policy, break_when_any_done=True)[WORLD]["agents"][:, AGENT]
    numbers, social = group["others_number"], group["social"]
    assert len(thought.others.number)
    for slot, number in enumerate(thought.others.number.tolist()):
        there = numbers == number
        query = social["query"][STEP][there[STEP]].squeeze(0)
        alike = (there.unsqueeze(-1) * social["written"]).sum(1) @ query
        torch.testing.assert_close(thought.others.found[slot], alike / (alike.sum() + 1e-3))
        assert f"what agent {number} did in moments like this one, found again from: step " in as_text(thought, [])
    assert "found" in figures(thought)


@pytest.mark.parametrize("labeled", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_resident_did_what_the_world_says_or_it_is_unknown(labeled):
    """At four in the afternoon the friend sets out, who is agent 1 and learns nothing."""
    labels = [] if labeled else ["world.privileged=false", "model.social_model.coeff=0"]
    experiment = Experiment.load("others_tonight", "model.hidden_sizes=[16]", *EAGER, *labels)
    env = experiment.make_world(evaluation=True, num_envs=2, seed=4)
    agent = experiment.make_agent(env)
    thought = think(agent.attach(env), agent, WORLD, 0, 16)
    env.set_seed(4)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        agent.attach(env).rollout(17, agent.policy)
    acted = int(env.state.agents.action[1, WORLD])
    assert thought.others.number.tolist() == [1]
    assert thought.others.true_next_action.tolist() == [acted if labeled else -1]
    assert acted < 4  # it walks
    if labeled:
        truth = _tables(thought, "Perception")[1]
        assert truth.header[0] == "the truth it cannot see" and [row[0] for row in truth.rows] == ["agent 1"]
    (shown,) = _tables(thought, "Social model")[0].rows
    assert shown[4] == (thought.names.action(acted) if labeled else "unknown")


def test_the_page_tells_what_imagination_changed_in_the_policy():
    """The controller begins with nearly no opinion, so that the policy is what imagination makes of it."""
    dreams = ["model.world_model.improvement=1000", "model.world_model.horizon=12", "model.world_model.open_loop=12"]
    experiment = Experiment.load("foresight_payday", "model.hidden_sizes=[16]", *EAGER, *dreams)
    env = experiment.make_world(evaluation=True, num_envs=2, seed=4)
    agent = experiment.make_agent(env)
    agent.actor_head[0].module[-1].weight.data.zero_()
    thought = think(agent.attach(env), agent, WORLD, 0, 3)
    (candidates, *_) = _tables(thought, "World model")
    assert candidates.header[-1] == "logit gains"
    gained = {row[0].removesuffix(" *"): float(row[-1]) for row in candidates.rows}
    first = thought.futures.actions[:, 0]
    assert len(gained) == len(candidates.rows) == len(first) < experiment.model.world_model.candidates, "each once"
    probabilities = thought.probabilities[0][first]
    torch.testing.assert_close(probabilities.sum(), torch.tensor(1.0))  # nothing but legal actions is imagined
    for action in first.tolist():
        name = thought.names.action(action)
        others = sum(math.exp(gained[thought.names.action(other)]) for other in first.tolist())
        assert thought.probabilities[0][action].item() == pytest.approx(math.exp(gained[name]) / others, abs=0.02)
    assert max(gained.values()) > 1
    assert candidates.rows[0][2].endswith(" ..."), "the rewards of eight steps and no more"


def test_the_page_shows_the_records_numbers(thought):
    page = as_text(thought, diagnose(thought))
    assert f"Step {STEP} of agent {AGENT} in world {WORLD}" in page
    (candidates, *_), chosen = _tables(thought, "World model"), thought.names.action(int(thought.action[0]))
    shown = [float(row[1]) for row in candidates.rows]
    returns = thought.futures.expected_return
    assert shown == pytest.approx(returns.tolist(), abs=0.06 * float(returns.max() - returns.min()))
    assert f"{chosen} *" in page
    assert f"state value {thought.value:.3f}" in page
    paid = dataclasses.replace(thought, goal=dataclasses.replace(thought.goal, option=True))
    assert f"value of the pay to come for this goal {thought.value:.3f}" in as_text(paid, [])
    known = _tables(thought, "Perception")[0].rows
    assert [row[0] for row in known[:2]] == ["energy", "hygiene"]
    assert known[0][1] == f"{thought.belief.proprioception[0]:.2f}"
    (minds, _) = _tables(thought, "Social model")
    assert [row[0] for row in minds.rows] == [f"agent {number}" for number in thought.others.number]


def test_numbers_that_are_compared_have_as_many_decimals_as_show_how_they_differ(thought):
    assert as_numbers(torch.tensor([0.067, 0.073, 0.07])) == ["0.0670", "0.0730", "0.0700"]
    assert as_numbers(torch.tensor([[-12.0, 3.5], [0.25, 40.0]])) == ["-12.00", "3.50", "0.25", "40.00"]
    assert as_numbers(torch.tensor([1.0, 1.0])) == ["1.00", "1.00"]
    assert as_numbers(torch.tensor([0.5, 0.5 + 1e-7])) == ["0.500000", "0.500000"]
    assert as_numbers(torch.tensor([0.5, math.inf])) == ["0.50", "inf"] and as_numbers(torch.zeros(0)) == []
    alike = 0.067 + 0.001 * torch.arange(thought.futures.rewards.numel()).reshape_as(thought.futures.rewards)
    close = dataclasses.replace(thought, futures=dataclasses.replace(thought.futures, rewards=alike))
    shown = [number for row in _tables(close, "World model")[0].rows for number in row[2].split()]
    assert len(set(shown)) == alike.numel()


def test_a_goal_is_shown_with_its_age_and_its_end(thought):
    def page(**changes):
        (section,) = (part for part in sections(of(**changes), []) if part.title.startswith("Policy"))
        return [part for part in section.body if isinstance(part, str)]

    def of(**changes):
        return dataclasses.replace(thought, goal=dataclasses.replace(thought.goal, steps=50, **changes))

    name, target = thought.goal.names[thought.goal.type], torch.zeros_like(thought.goal.target)
    fresh = page(decided=True, steps_left=50, target=target)
    assert fresh[0] == f"goal {name}, chosen in this step: the agent keeps it until its time is up, 50 more steps"
    assert fresh[1] == "targets: none"
    target[0] = 0.8
    held = page(decided=False, steps_left=47, target=target)
    assert (
        held[0]
        == f"goal {name}, chosen 3 steps ago: the agent keeps it until its targets are met, at most 47 more steps"
    )
    assert held[1].startswith(f"targets: {thought.goal.meter_names[0]} 0.80 (now ")
    assert "chosen 1 step ago:" in page(decided=False, steps_left=49)[0]
    best = thought.goal.names[int(thought.goal.probabilities.argmax())]
    assert held[2].startswith(f"if it chose now, by probability: {best} ")


def test_own_state_has_a_panel_for_each_number_with_what_came_and_what_was_predicted(thought):
    panels = [panel for panel in figures(thought)["states"].axes if panel.lines]
    assert [panel.get_title() for panel in panels] == thought.belief.known_names
    for index, panel in enumerate(panels):
        for line, states in zip(
            panel.lines, (thought.futures.true_states, thought.futures.predicted_states), strict=True
        ):
            expected = torch.cat((thought.belief.proprioception[index : index + 1], states[:, index]))
            torch.testing.assert_close(torch.as_tensor(line.get_ydata()), expected)


def _tables(thought, title):
    (section,) = (part for part in sections(thought, []) if part.title.startswith(title))
    return [part for part in section.body if isinstance(part, Table)]


def test_another_world_and_ablated_modules_are_explained_too(town_run, thought, capsys):
    other = explain(town_run, STEP, WORLD, AGENT, "cpu", overrides=["world.rules.max_steps=7"], ablated=["manager"])
    assert other.length == 7 and thought.length == 9
    assert "ablated: manager" in as_text(other, []) and "ablated" not in as_text(thought, [])
    heard, unheard = (explain(town_run, 0, WORLD, AGENT, "cpu", ablated=names) for names in ([], ["manager"]))
    torch.testing.assert_close(heard.goal.probabilities, unheard.goal.probabilities)  # it thinks all the same
    assert not torch.equal(heard.probabilities[0], unheard.probabilities[0])
    options = ["--step", "2", "--device", "cpu", "--without", "social_model", "world.rules.max_steps=7"]
    assert cli.main(["explain", str(town_run), *options]) == 0
    assert "(steps 0 to 6 of its episode; ablated: social_model)" in capsys.readouterr().out


def test_parts_of_missing_modules_are_missing(thought):
    assert thought.others.found is None and "found" not in figures(thought)
    assert len(sections(thought, [])) == 6
    lonely = dataclasses.replace(thought, others=None, goal=None)
    assert [part.title[0] for part in sections(lonely, [])] == list("SPWPD")


@pytest.mark.slow
def test_an_agent_of_plain_networks_has_a_shorter_page(arena_run):
    plain = explain(arena_run, 5, device="cpu")
    assert plain.agent is None
    assert plain.belief is plain.futures is plain.others is plain.goal is None
    assert [part.title for part in sections(plain, [])] == ["Scene", "Policy: action", "Diagnosis"]
    assert set(figures(plain)) == {"scene", "choice"}
    assert diagnose(plain) == [NOTHING_UNUSUAL]
    experiment, agent = load_agent(arena_run, "cpu")
    env = experiment.make_world(evaluation=True, num_envs=1, seed=experiment.evaluation.seed)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        row = agent.critic(env.rollout(6, agent.policy)[0, 5])
    assert plain.action.tolist() == [int(row["action"])]
    torch.testing.assert_close(plain.probabilities[0], row["logits"].softmax(-1))
    assert plain.value == pytest.approx(row["state_value"].item(), abs=1e-4)


@pytest.fixture(scope="module")
def value_run(tmp_path_factory):
    """A DQN in a world with masks, after one iteration."""
    settings = ["world.num_envs=4", "algorithm=dqn", "policy=mlp", "model.hidden_sizes=[16]", "device=cpu", *EAGER]
    town = ["world.level=L3", "algorithm.learning_starts=8", "algorithm.batch_size=8", "algorithm.epsilon_frames=64"]
    return make_run(tmp_path_factory.mktemp("dqn") / "run", "town", *settings, *town)


@pytest.mark.slow
def test_action_values_are_no_probabilities(value_run, capsys):
    step = explain(value_run, 2, device="cpu")
    experiment, agent = load_agent(value_run, "cpu")
    env = experiment.make_world(evaluation=True, num_envs=1, seed=experiment.evaluation.seed)
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        row = env.rollout(3, agent.policy)[0, 2]["agents"][0]
    torch.testing.assert_close(step.action_values.values, agent.actor(row.clone())["logits"])
    assert step.action_values.legal.tolist() == row["action_mask"].tolist()
    legal = step.action_values.values.where(row["action_mask"], -torch.inf)
    assert step.action.tolist() == [int(legal.argmax())]
    assert step.value == pytest.approx(legal.amax().item(), abs=1e-5)
    epsilon = step.action_values.epsilon
    assert epsilon == pytest.approx(1 - 0.95 * 32 / 64, abs=1e-6)  # after 4 worlds x 8 steps of 64 frames
    expected = epsilon * row["action_mask"] / row["action_mask"].sum()
    expected[int(step.action[0])] += 1 - epsilon
    torch.testing.assert_close(step.probabilities[0], expected)
    assert cli.main(["explain", str(value_run), "--step", "2", "--device", "cpu"]) == 0
    page = capsys.readouterr().out
    assert "Action values" in page and "greedy" in page and "probability" not in page and "Policy" not in page
    assert f"{step.names.action(int(step.action[0]))} *" in page and f"{legal.amax():.3f}" in page
    assert f"{epsilon:.1%} of the steps" in page
    (panel,) = figures(step)["choice"].axes
    assert panel.get_title() == "action values"
    lengths = torch.tensor([bar.get_width() for bar in panel.patches], dtype=torch.float32)
    torch.testing.assert_close(lengths, step.action_values.values)


def test_without_labels_the_truth_is_unknown(tmp_path):
    overrides = ("world.privileged=false", "model.social_model.enabled=false", "evaluation.episodes=2")
    run = make_run(tmp_path / "run", "town_agent", *SMALL, *overrides)
    blind = explain(run, 0, device="cpu")
    assert blind.privileged == {}
    assert blind.others is None
    assert "cannot see" not in as_text(blind, [])


def test_through_the_command_line(town_run, tmp_path, capsys):
    page = tmp_path / "pages" / "step.html"
    arguments = ["explain", str(town_run), "--step", str(STEP), "--agent", str(AGENT), "--world", str(WORLD)]
    assert cli.main([*arguments, "--device", "cpu", "--output", str(page), "--json"]) == 0
    printed = capsys.readouterr().out
    for part in ("Perception", "World model", "Social model", "Policy", "Diagnosis", str(page)):
        assert part in printed
    result = json.loads(printed.strip().splitlines()[-1])
    assert result["step"] == STEP
    assert len(result["futures"]["rewards"]) == 4
    assert result["diagnosis"]
    html = page.read_text()
    assert html.count("data:image/png;base64,") == 4
    assert "<script" not in html
    assert "http" not in html


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--step", "9"], "agent 0 plays 9 steps in world 0, choose a --step of 0 to 8"),
        (["--step", "-1"], "steps are counted from 0"),
        (["--world", "256"], "there is no evaluation world 256"),
        (["--agent", "4"], "there is no agent 4: each world has 4"),
        (["--step", "1", "--output", "page.pdf"], "ends in .html"),
        (["--step", "1", "--output", "/dev/null/page.html"], "cannot be written"),
    ],
)
def test_what_cannot_be_is_one_sentence(town_run, options, sentence, capsys):
    assert cli.main(["explain", str(town_run), "--device", "cpu", *options]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert len(error.strip().splitlines()) == 1


def test_a_page_without_a_picture_can_be_written(thought, tmp_path):
    blind = dataclasses.replace(thought, picture=None)
    assert write_page(blind, tmp_path / "page.html").read_text().count("data:image/png") == 4


def test_nonzero_observations_are_described_in_words(thought):
    (scene, *_) = sections(thought, [])
    for line in (line for line in scene.body if line.startswith("standing_on: ")):
        assert line in {f"standing_on: {place} 1.00, the rest 0" for place in thought.names.observation["standing_on"]}
    windows = {re.split(" at | in | here", line)[0] for line in scene.body if line.startswith("window: ")}
    windows = {window.removeprefix("window: ") for window in windows}
    assert windows <= set(thought.names.observation["window"]), "channels have names, walls and agents too"
    observation = {"meters": torch.tensor([0.2, -0.01, 0.004, 0, 0, 0, 0, 1]), "progress": torch.zeros(1)}
    (scene, *_) = sections(dataclasses.replace(thought, observation=observation), [])
    assert scene.body == ["meters: energy 0.20, hygiene -0.01, fitness 1.00, the rest 0", "progress: 0"]
    (scene, *_) = sections(dataclasses.replace(thought, observation=observation, names=Names()), [])
    assert scene.body == ["meters: 0.20 -0.01 0.00 0.00 0.00 0.00 0.00 1.00", "progress: 0.00"]
    (scene, *_) = sections(dataclasses.replace(thought, names=Names()), [])
    assert any("channel" in line for line in scene.body)


def test_a_window_says_where_things_are(thought):
    window = torch.zeros(16, 5, 5)
    window[0, 2, 2] = window[3, 1, 2] = window[3, 2, 0] = window[14, 4, 3] = window[15, :, 4] = 1
    (scene, *_) = sections(dataclasses.replace(thought, observation={"window": window}), [])
    expected = ["Bed here", "HomeMeal at 1 up, at 2 left", "other agent at 1 right 2 down", "wall in 5 cells"]
    assert scene.body == [f"window: {line}" for line in expected]


def window_panel(thought, names):
    """A bed in one cell, with somebody in it, and a wall on the right."""
    window = torch.zeros(16, 5, 5)
    window[0, 1, 1] = window[14, 1, 1] = window[15, :, 4] = 1
    shown = dataclasses.replace(thought, picture=None, observation={"window": window}, names=names)
    (panel,) = figures(shown)["scene"].axes
    (image,) = panel.get_images()
    return panel, image.get_array()


def test_the_picture_of_a_window_has_the_towns_colors_and_says_what_is_empty(thought):
    panel, picture = window_panel(thought, thought.names)
    rules = TownEnv(1, level="L6").rules
    bed, *_, other, wall = window_colors(rules)
    assert bed == kind_color(rules, "Bed")
    assert (255 * picture[1, 1]).round().astype(int).tolist() == list(bed)
    assert (255 * picture[3, 4]).round().astype(int).tolist() == list(wall)
    assert [text.get_text() for text in panel.get_legend().get_texts()] == [
        "the agent itself",
        "empty",
        "Bed",
        "other agent",
        "wall",
    ]
    empty = panel.get_legend().get_patches()[0].get_facecolor()[:3]
    assert picture[0, 0].tolist() == pytest.approx(empty)
    assert all(abs(picture[0, 0] - picture[y, x]).max() > 0.1 for y, x in ((1, 1), (3, 4))), "unlike anything there"
    discs = {(line.get_xdata()[0], line.get_ydata()[0]): line.get_markerfacecolor() for line in panel.lines}
    assert discs[1, 1.25] == pytest.approx([part / 255 for part in other]), "who is there"
    assert (2, 2) in discs, "the agent itself"
    assert {text.get_text() for text in panel.texts} == {"Bed", "wall"}


def test_a_world_without_colors_gets_one_for_each_channel(thought):
    panel, picture = window_panel(thought, Names())
    assert [text.get_text() for text in panel.get_legend().get_texts()][2:] == ["channel 0", "channel 14", "channel 15"]
    assert len({tuple(picture[y, x].tolist()) for y, x in ((0, 0), (1, 1), (0, 4))}) == 3


def test_worlds_name_their_actions_meters_and_what_is_seen():
    town, arena = (world_names(make(1)) for make in (TownEnv, ArenaEnv))
    assert town.actions[:6] == ("up", "down", "left", "right", "interact", "wait")
    assert town.meters[0] == "energy"
    assert town.channel("window", 0) == "channel 0" and arena.seen("observation", 0) == "x"
    assert arena.actions == ("idle", "thrust", "left", "right", "shoot") and not arena.meters
    assert world_names(ArenaEnv(1, style=2)).actions[-3:] == ("left", "right", "shoot")
    assert world_names(GymEnv("CartPole-v1")).action(1) == "action 1"
