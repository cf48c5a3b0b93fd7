"""Recorded episodes: they hold what explain says and what really follows, and their page is safe."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torchrl.envs.utils import ExplorationType, set_exploration_type

from envs import ArenaEnv, DuelEnv
from envs.arena.picture import viewport
from torchrl_agent import cli, load_agent
from torchrl_agent import replay as room
from torchrl_agent.evaluation.ablation import without
from torchrl_agent.explain import explain
from torchrl_agent.explain.thought import plain
from torchrl_agent.replay import RecordConfig, Replay, as_page, read_record, record_run
from torchrl_agent.replay.record import VERSION, pack, write_record

RUN, STEPS, AHEAD = "shipped:village", 6, 3  # as in conftest.py


def thoughts(record):
    return record["episodes"][-1]["thoughts"]


@pytest.mark.slow
def test_a_record_holds_what_explain_says(village):
    step, agent = 4, 1
    thought = explain(RUN, step, agent=agent, device="cpu")
    found = thoughts(village)[step][agent]
    assert found["action"] == thought.action.tolist()
    assert found["probabilities"] == plain(thought.probabilities)
    assert found["value"] == plain(thought.value)
    assert found["own"] == plain(thought.belief.proprioception)
    assert found["goal"]["type"] == thought.goal.type
    assert found["dreams"]["returns"] == plain(thought.futures.expected_return)
    assert found["others"]["true_action"] == thought.others.true_next_action.tolist()


def test_the_choice_without_a_module_is_that_of_the_ablated_agent(village):
    experiment, agent = load_agent(RUN, "cpu")
    with without(agent, ["world_model"]):
        env = agent.eval().attach(experiment.make_world(evaluation=True, num_envs=1, seed=experiment.evaluation.seed))
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            root = agent.policy(env.reset())
    first = [thought["without"]["world_model"] for thought in thoughts(village)[0]]
    logits, mask = root["agents", "logits"][0], root["agents", "action_mask"][0]
    shares = logits.masked_fill(~mask, -torch.inf).softmax(-1)
    assert [each["probabilities"] for each in first] == plain(shares, 2)
    assert first[0].keys() == {"action", "probabilities"}
    assert set(thoughts(village)[0][0]["without"]) == {"memory", "social_model", "world_model", "manager"}


def test_with_the_same_luck_the_chosen_action_brings_what_it_brought(village):
    episode = village["episodes"][-1]
    for step in range(STEPS - AHEAD):
        for agent, thought in enumerate(episode["thoughts"][step]):
            brought = sum(episode["thoughts"][later][agent]["reward"] for later in range(step, step + AHEAD))
            played = episode["what_if"][step][agent][thought["action"][0]]
            assert played["return"] == pytest.approx(brought, abs=2e-3)
            assert sum(played["parts"].values()) == pytest.approx(played["return"], abs=2e-3)
            x, y, _ = episode["scenes"][step + 1]["agents"][agent]
            grid = episode["scenes"][0]["grid"]
            place = [x / (grid["columns"] - 1), y / (grid["rows"] - 1)]
            assert played["path"][1] == pytest.approx(place, abs=0.01)


def test_other_actions_lead_elsewhere(village):
    """Up and down from a cell inside the town are other cells, whatever was chosen."""
    episode = village["episodes"][-1]
    grid, moved = episode["scenes"][0]["grid"], 0
    for step, here in enumerate(episode["what_if"]):
        for agent, by_action in enumerate(here):
            _, y, _ = episode["scenes"][step]["agents"][agent]
            if 0 < y < grid["rows"] - 1:
                up, down = by_action[0]["path"][1][1], by_action[1]["path"][1][1]
                assert [up, down] == pytest.approx(
                    [(y - 1) / (grid["rows"] - 1), (y + 1) / (grid["rows"] - 1)], abs=0.01
                )
                moved += 1
    assert moved


def test_the_parts_of_a_reward_sum_to_it(village):
    for here in thoughts(village):
        for thought in here:
            assert sum(thought["parts"].values()) == pytest.approx(thought["reward"], abs=2e-3)


def test_what_is_read_from_the_belief_is_what_is_there():
    """Places of work and food can be read; without a reference nothing is."""
    record = record_run("shipped:payday", RecordConfig(steps=3, ahead=0))
    names, read = record["names"]["observation"]["map"], set()
    for (thought,) in thoughts(record):
        for component, held in thought["belief"]["read"]["map"]:
            assert held == pytest.approx(thought["observation"]["map"][component], abs=0.1)
            read.add(names[component])
    assert {"Job x", "HomeMeal y"} <= read
    assert "read" not in thoughts(record_run("shipped:duel", RecordConfig(steps=1, ahead=0)))[0][0].get("belief", {})


def key_paths(value, prefix=""):
    """Dotted names of all keys in nested dicts and lists."""
    if isinstance(value, list):
        return set().union(*(key_paths(each, prefix) for each in value))
    if not isinstance(value, dict):
        return set()
    return {prefix + key for key in value}.union(*(key_paths(each, f"{prefix}{key}.") for key, each in value.items()))


def test_the_record_of_the_documentation_has_the_keys_that_pages_read(village):
    recorded = read_record(Path(__file__).parents[3] / "docs" / "village.json.gz")
    assert key_paths(village) <= key_paths(recorded)


def test_records_go_through_a_file_and_newer_ones_are_refused(village, tmp_path):
    path = write_record(village, tmp_path / "village.json.gz")
    again = read_record(path)
    assert {name: again[name] for name in village} == json.loads(json.dumps(village))
    assert pack(village) == path.read_bytes()
    (tmp_path / "newer.json").write_text(json.dumps({**again, "version": VERSION + 1}))
    with pytest.raises(ValueError, match=rf"newer.json is of version {VERSION + 1} of the format, .* update it"):
        read_record(tmp_path / "newer.json")
    (tmp_path / "broken.json.gz").write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="can be read: record it anew"):
        read_record(tmp_path / "broken.json.gz")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="is no recorded episode: give a file"):
        read_record(tmp_path / "other.json")


def test_names_never_become_markup(hostile):
    page = as_page(hostile)
    assert page.count("<script") == 2
    assert "<img" not in page and "<b>up" not in page
    assert "&lt;script&gt;" in page  # the title
    shown = Replay(hostile)._repr_html_()
    assert shown.startswith("<iframe") and shown.count("<") == 2


def test_a_notebook_shows_the_page_without_its_address(village):
    shown = Replay(village)._repr_html_()
    assert 'sandbox="allow-scripts"' in shown and "srcdoc=" in shown


def test_any_gymnasium_world_is_replayed_in_pictures(cartpole):
    earlier, episode = cartpole["episodes"]
    assert earlier["frames"] < episode["frames"]
    assert "observation" in episode["thoughts"][0][0] and "observation" not in earlier["thoughts"][0][0]
    assert [scene["size"] for scene in episode["scenes"]] == [[480, 320]] * 5
    assert len(episode["scenes"][0]["jpeg"]) < 20_000
    assert "what_if" not in episode and len(episode["thoughts"][0][0]["probabilities"][0]) == 2


@pytest.mark.parametrize("make", [lambda: ArenaEnv(1, seed=3, observation="extended"), lambda: DuelEnv(1, seed=3)])
def test_lines_lead_to_what_a_ship_observes(make):
    env = make()
    root = env.rollout(60, env.players()["scripted"], break_when_any_done=False)[:, -1]["next"]
    seen = root["observation"] if "observation" in root.keys() else root["agents", "observation"][0]
    (names,), numbers = env.names()["observation"].values(), seen[0]
    there = [name for name, x in zip(names, numbers, strict=True) if re.search("exists|is there", name) and x > 0]
    distances = [float(x) for name, x in zip(names, numbers, strict=True) if name.endswith("distance")]
    scene = env.scene(0)
    lines, scale = scene["sights"][0], viewport(env.rules, scene["size"])[1]
    assert len(lines) == len(there) + ("other ahead" in names) > 0
    lengths = [math.dist(line[:2], line[2:]) / scale / env.rules.diagonal for line in lines]
    assert all(min(abs(length - x) for length in lengths) < 2e-3 for x in distances if x < 1)


@pytest.mark.slow
def test_a_replay_of_200_steps_and_3_minds_is_small():
    page = as_page(record_run(RUN, RecordConfig(steps=200)))
    assert len(page) <= 400_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arena", "duel", "tonight"])
def test_every_kind_of_world_is_replayed(name):
    record = record_run(f"shipped:{name}", RecordConfig(steps=4, ahead=2))
    episode = record["episodes"][-1]
    assert len(episode["scenes"]) == len(episode["what_if"]) == 4
    assert episode["scenes"][0]["shapes"] and record["names"]["actions"]


def test_the_command_writes_a_page_and_refuses_in_a_sentence(village, tmp_path, capsys):
    source = write_record(village, tmp_path / "village.json.gz")
    assert cli.main(["replay", str(source)]) == 0
    assert (tmp_path / "village.html").read_text().startswith("<!doctype html>")
    capsys.readouterr()
    for options, sentence in (
        (["--agent", "7"], "there is no agent 7: choose an --agent of 0 to 2."),
        (["--output", str(tmp_path / "page.txt")], "use a name that ends in .html"),
        (["--record", str(tmp_path / "record.txt")], "use a name that ends in .json.gz"),
        (["--checkpoints", "0"], "--checkpoints is 0: give at least 1."),
    ):
        assert cli.main(["replay", str(source), *options]) == 2
        assert sentence in capsys.readouterr().err
    assert cli.main(["replay", "shipped:duel", "--world", "5000"]) == 2
    assert "there is no evaluation world 5000" in capsys.readouterr().err


def test_scripts_are_javascript():
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node, which checks scripts, is not installed")
    for path in sorted(Path(room.__file__).parents[1].rglob("*.js")):
        assert subprocess.run([node, "--check", path], check=False).returncode == 0, path
