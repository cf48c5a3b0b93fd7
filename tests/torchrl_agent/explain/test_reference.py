"""Evidence for errors of modules, and the reference that it is compared with."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from torchrl_agent import cli, load_agent
from torchrl_agent.core.run_names import find_run
from torchrl_agent.explain import explain
from torchrl_agent.explain.diagnosis import NOTHING_UNUSUAL, diagnose, diagnose_evidence
from torchrl_agent.explain.evidence import IN_SIGHT, LEAST, SPAN, WORST, Probe, Quotient, summed
from torchrl_agent.explain.reference import FILE, _fit, find_reference, write_reference
from torchrl_agent.explain.thought import Evidence


def test_evidence_is_a_quotient_of_sums_within_the_episode():
    """Steps 0 to 9 are one episode and the rest another; every step is wrong by its number, of 2 that can be wrong."""
    steps = torch.arange(60.0).unsqueeze(0)
    begins = (steps == 0) | (steps == 10)
    found = summed(Quotient(steps, torch.full_like(steps, 2.0)), begins)[0]
    assert found[: LEAST - 1].isnan().all() and found[10 : 10 + LEAST - 1].isnan().all()
    assert found[9] == pytest.approx(4.5 / 2)  # the mean of 0 to 9
    assert found[20] == pytest.approx(15 / 2)  # the mean of 10 to 20
    assert found[59] == pytest.approx((59 - (SPAN - 1) / 2) / 2)


def test_steps_without_evidence_are_left_out():
    amount = torch.ones(1, 40)
    weight = torch.zeros(1, 40)
    weight[0, ::4] = 1
    found = summed(Quotient(amount * weight, weight), torch.arange(40).unsqueeze(0) == 0)[0]
    assert found[11].isnan() and found[12] == 1  # the fourth of them


def test_a_probe_reads_what_is_there_to_be_read():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, 50, 3, generator=generator)
    noise = torch.randn(8, 50, 1, generator=generator)
    targets = torch.cat((2 * inputs[..., :1] - inputs[..., 1:2] + 3, noise, torch.zeros_like(noise)), -1)
    probe = _fit(inputs, targets)
    assert probe.readable.tolist() == [True, False, False]
    assert probe.errors(inputs, targets)[0].mean() < 1e-4
    blind, there = probe.errors(torch.zeros_like(inputs), targets)
    assert blind.mean() == pytest.approx(1, abs=0.05)  # of what is there it reads nothing
    assert probe.errors(-inputs, targets)[0].mean() == pytest.approx(4, abs=0.2)  # (2 x)^2
    sight = probe.sight(torch.zeros_like(inputs), targets)
    assert torch.equal(sight.weight > 0, there > IN_SIGHT) and bool((sight.amount[there <= IN_SIGHT] == 0).all())


def test_a_module_is_named_where_its_evidence_is_beyond_the_limit():
    found = {
        "sight of map": Evidence(0.75, 0.05, 0.2),
        "needs": Evidence(0.9, 0.3, 0.8),
        "own state": Evidence(0.9, 0.5, 1.0),
        "own position": Evidence(0.9, 0.3, 1.0),
    }
    assert diagnose_evidence("perception", found) == ["its belief misses 75% of its map, usually 5%"]
    assert diagnose_evidence("social model", found) == [
        "over the last steps it was wrong about what others need: 3.0 times the usual error"
    ]
    assert diagnose_evidence("world model", found) == [] == diagnose_evidence("policy", found)
    found["own position"] = Evidence(1.2, 0.3, 1.0)
    assert diagnose_evidence("world model", found) == [
        "over the last steps its predictions of the own position were wrong: 4.0 times the usual error"
    ]


@pytest.fixture(scope="module")
def thought():
    return explain("shipped:tonight", 12, device="cpu")


def test_with_a_reference_a_step_is_compared_with_the_healthy_agent(thought):
    reference = find_reference(find_run("shipped:tonight"))
    assert thought.evidence.keys() <= reference.limits.keys()
    assert {"sight of map", "needs", "meters"} <= thought.evidence.keys()
    assert diagnose(thought) == [NOTHING_UNUSUAL]
    beyond = {name: each._replace(value=2 * each.limit) for name, each in thought.evidence.items()}
    named = diagnose(dataclasses.replace(thought, evidence=beyond))
    assert named[0].startswith("perception: ")
    assert any(sentence.startswith("social model") for sentence in named)


def test_a_reference_goes_through_its_file(tmp_path):
    reference = find_reference(find_run("shipped:tonight"))
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    source = find_run("shipped:tonight") / "checkpoints" / reference.checkpoint
    for path in source.parent.glob(f"{source.stem}*"):
        (run / "checkpoints" / path.name).write_bytes(path.read_bytes())
    assert find_reference(run) is None
    path = write_reference(reference, run / FILE)
    again = find_reference(run)
    assert (again.usual, again.limits, again.unit) == (reference.usual, reference.limits, reference.unit)
    for name, probe in reference.probes.items():
        assert all(torch.equal(part, other) for part, other in zip(probe, again.probes[name], strict=True))
    known = json.loads(path.read_text())
    path.write_text(json.dumps({**known, "checkpoint": "checkpoint_1.pt"}))
    assert find_reference(run) is None  # of another checkpoint
    path.write_text(json.dumps({**known, "version": 2}))
    with pytest.raises(ValueError, match=r"reference.json is of version 2, .* update it"):
        find_reference(run)
    path.write_text(json.dumps({**known, "probes": [1]}))
    with pytest.raises(ValueError, match="is no reference that can be read: make it anew"):
        find_reference(run)


def test_only_an_agent_with_modules_as_it_is_has_a_reference(capsys):
    assert cli.main(["evaluate", "shipped:tonight", "--reference", "--without", "memory"]) == 2
    assert "leave changes and --without out" in capsys.readouterr().err
    _, agent = load_agent("shipped:duel", "cpu")
    assert agent.perception is None
    assert cli.main(["evaluate", "shipped:duel", "--reference", "--episodes", "1"]) == 2
    assert "one plain network without modules to diagnose" in capsys.readouterr().err


def test_surprise_at_one_prediction_is_bounded():
    assert Probe._fields == ("weight", "mean", "deviation", "readable")
    assert WORST < 10
