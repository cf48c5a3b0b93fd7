"""Labs: pages without answers, sheets that are read strictly, and checks that play the repaired agent."""

from __future__ import annotations

import json
import re

import pytest
import torch

from benchmarks.labs import COST, RESTORED, WRONG, Beside, judged, rows
from benchmarks.results_page import RESULTS
from torchrl_agent import cli, load_agent
from torchrl_agent.core.run_names import SHIPPED
from torchrl_agent.explain.reference import find_reference
from torchrl_agent.labs import LABS, Answer, answer, check, find_lab, read_answer, record_lab, sentences, sheet
from torchrl_agent.labs.faults import FAULTS
from torchrl_agent.labs.lab import Lab
from torchrl_agent.labs.repairs import RETRAIN
from torchrl_agent.replay import RecordConfig, as_page
from torchrl_agent.replay.recorder import record_agent

every_lab = pytest.mark.parametrize("number", LABS)
RIGHT = Answer(3, "social model", LABS[3].shows, LABS[3].right)


@pytest.fixture
def short(monkeypatch):
    """Labs with games of a few steps."""
    labs = {number: Lab(**{**vars(lab), "steps": 5}) for number, lab in LABS.items()}
    for number, lab in labs.items():
        monkeypatch.setitem(LABS, number, lab)


def filled(tmp_path, **answers):
    path = tmp_path / "answer.yaml"
    path.write_text(
        "".join(f"{name}: {value}\n" for name, value in {**vars(RIGHT), **answers}.items() if value is not None)
    )
    return path


# --- pages


@every_lab
def test_the_right_repair_is_one_of_several_of_the_right_module(number):
    lab = find_lab(number)
    assert lab.right in lab.repairs and len(lab.repairs) >= 4
    assert len({change for _, change in lab.repairs.values()}) == len(lab.repairs)
    _, change = lab.repairs[lab.right]
    kind = change.split()[0]
    assert kind == RETRAIN or FAULTS[kind].module == lab.module
    assert lab.module in answer.MODULES


def test_a_page_does_not_tell_the_answer(short):
    record = record_lab(3)
    lab, page, text = LABS[3], as_page(record), json.dumps(record)
    for words, change in [("mirrored", lab.fault), (lab.module, "hourless"), *lab.repairs.values()]:
        assert words not in text and change not in text and change not in page
    assert record["run"] == "lab 3" and not any(thought["surprises"] for here in thoughts(record) for thought in here)
    assert len(thoughts(record)) == 5


def thoughts(record):
    return record["episodes"][-1]["thoughts"]


def test_a_page_shows_the_agent_with_the_fault(short):
    faulty = thoughts(record_lab(3))[0][0]
    experiment, agent = load_agent(LABS[3].run, "cpu")
    env = agent.eval().attach(experiment.make_world(evaluation=True, num_envs=1, seed=experiment.evaluation.seed))
    with torch.no_grad():
        healthy = agent.policy(env.reset())["agents", "social", "goal"][0, 0]
    assert faulty["others"]["need"][0] != healthy[0].softmax(-1).mul(100).round().div(100).tolist()


def test_what_is_read_from_a_mirrored_belief_is_not_there():
    experiment, agent = LABS[1].agent(LABS[1].fault)
    record = record_agent(
        "lab", experiment, agent, RecordConfig(steps=2, ahead=0), 1.0, find_reference(SHIPPED / "payday")
    )
    (thought,) = thoughts(record)[0]
    seen = thought["observation"]["map"]
    wrong = [component for component, held in thought["belief"]["read"]["map"] if abs(held - seen[component]) > 0.1]
    assert wrong and all(record["names"]["observation"]["map"][component].endswith(" y") for component in wrong)


def test_a_sheet_asks_and_does_not_answer():
    text = sheet(1)
    assert "lab: 1" in text and "\nmodule:\n" in text and "\nstep:\n" in text and "\nrepair:\n" in text
    assert all(words in text for words, _ in LABS[1].repairs.values())
    assert LABS[1].fault not in text


# --- answers


def test_an_answer_is_read_as_people_write(tmp_path):
    read = read_answer(filled(tmp_path, module="Social_model", repair=RIGHT.repair.lower()))
    assert read == RIGHT


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({"lab": 9}, "there is no lab 9: choose one of"),
        ({"module": "sozial model"}, r"module: 'sozial model' \(did you mean social model\?\): use perception"),
        ({"module": None}, "has no module: write your answer behind 'module:'"),
        ({"step": "late"}, "has step: 'late': give a number from 0"),
        ({"step": -1}, "has step: -1: give a number from 0"),
        ({"step": "true"}, "has step: True: give a number from 0"),
        ({"repair": "Z"}, "has repair: 'Z': use one of A, B"),
        ({"modul": 1}, r"names 'modul', which there is not \(did you mean module\?\)"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, answers, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_answer(filled(tmp_path, **answers))


def test_what_is_no_sheet_is_refused(tmp_path):
    path = tmp_path / "answer.yaml"
    for text, sentence in (("- 1\n- 2\n", "is no sheet of a lab"), ("lab: [1\n", "YAML")):
        path.write_text(text)
        with pytest.raises(ValueError, match=sentence):
            read_answer(path)
    with pytest.raises(ValueError, match=re.escape("missing.yaml")):
        read_answer(tmp_path / "missing.yaml")


# --- checks


def test_a_check_plays_and_says_what_came_back_but_not_the_answer(monkeypatch):
    lab, played = LABS[3], []

    def returns(lab, changes, episodes):
        played.append(changes)
        repaired = 97.0 if changes[1:] == (lab.repairs[lab.right][1],) else 61.0
        return (100.0, 60.0, repaired)[len(changes)]

    monkeypatch.setattr(answer, "played", returns)
    right = check(RIGHT, 8)
    assert played == [(), (lab.fault,), (lab.fault, lab.repairs[lab.right][1])]
    assert right["share"] == pytest.approx(0.97) and right["module"] and right["step"] and right["repair"]
    praise = "\n".join(sentences(RIGHT, right))
    assert praise.count("is right") == 3
    assert "100.0 healthy, 60.0 with the fault (40% lost), 97.0 repaired (97%" in praise
    wrong = Answer(3, "perception", lab.shows + answer.NEAR + 1, "A")
    result = check(wrong, 8)
    assert not result["module"] and not result["step"] and not result["repair"]
    said = "\n".join(sentences(wrong, result))
    assert "perception is wrong: the fault is elsewhere" in said and "is wrong: it does not bring" in said
    assert lab.module not in said and f"{lab.shows} " not in said.partition("repair")[0]


@pytest.mark.slow
def test_the_command_repairs_the_agent(tmp_path, capsys):
    assert cli.main(["lab", "check", str(filled(tmp_path)), "--episodes", "16", "--json"]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert result["repair"] and result["share"] >= RESTORED
    assert result["returns"]["faulty"] < (1 - COST) * result["returns"]["healthy"]


def test_the_command_writes_page_and_sheet_and_keeps_answers(short, tmp_path, capsys):
    words = ["lab", "3", "--output", str(tmp_path / "mine.html")]
    assert cli.main(words) == 0
    assert (tmp_path / "mine.html").read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "mine.html"), str(tmp_path / "mine.yaml")]
    (tmp_path / "mine.yaml").write_text("lab: 3 # mine")
    assert cli.main(words) == 0
    assert (tmp_path / "mine.yaml").read_text() == "lab: 3 # mine"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["9"], "there is no lab 9: choose one of 1"),
        (["first"], "'first' is no lab: give its number, or 'check ANSWER.yaml'."),
        (["1", "answer.yaml"], "to check an answer, use 'lab check answer.yaml'."),
        (["check"], "there is nothing to check: use 'lab check ANSWER.yaml'"),
        (["1", "--episodes", "0"], "--episodes is 0: give at least 1."),
    ],
)
def test_the_command_refuses_in_a_sentence(words, sentence, capsys):
    assert cli.main(["lab", *words]) == 2
    assert sentence in capsys.readouterr().err


# --- admission


def test_a_lab_is_admitted_by_four_conditions():
    lab = LABS[3]
    good = {letter: 80.0 for letter in lab.repairs} | {lab.right: 96.0}
    measured = {"healthy": 100.0, "faulty": 75.0, **good, "rises": {"perception": 0.4, lab.module: 2.0}, "first": [3]}
    assert judged(lab, measured)["admitted"]
    wrong = next(letter for letter in lab.repairs if letter != lab.right)
    for change in (
        {"faulty": 100 * (1 - COST) + 1},
        {lab.right: 100 * RESTORED - 1},
        {wrong: 100 * WRONG + 1},
        {"rises": {"perception": 3.0, lab.module: 2.0}},
    ):
        assert not judged(lab, {**measured, **change})["admitted"], change
    (_, line) = rows({"3": judged(lab, measured)})
    assert line[2:6] == ["100.0", "75%", "96%", "80%"] and line[-1] == "admitted"


def test_every_lab_is_admitted_by_what_is_recorded():
    recorded = json.loads((RESULTS / "labs.json").read_text(encoding="utf-8"))[-1]["labs"]
    assert recorded.keys() == {str(number) for number in LABS}
    for number, lab in LABS.items():
        found = recorded[str(number)]
        assert found["admitted"] and found["shares"].keys() == {"faulty", *lab.repairs}
        assert found["first"][lab.world] == lab.shows < lab.steps


def test_the_healthy_agent_beside_itself_does_the_same():
    experiment, agent = load_agent("shipped:tonight", "cpu")
    env = agent.eval().attach(experiment.make_world(evaluation=True, num_envs=2))
    beside, root = Beside(agent.policy), env.reset()
    with torch.no_grad():
        for _ in range(4):
            root = agent.policy(root)
            acted = beside(root)
            assert torch.allclose(acted["agents", "logits"], root["agents", "logits"], atol=1e-5)
            _, root = env.step_and_maybe_reset(root)
