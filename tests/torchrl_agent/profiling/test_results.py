"""Files of results."""

from __future__ import annotations

import json

import pytest

from torchrl_agent.evaluation.results import put_result


def test_a_file_holds_one_result_per_configuration_and_keeps_what_people_added(tmp_path):
    path = tmp_path / "results.json"
    first = {"config": "a", "overrides": [], "return_mean": 1.0}
    put_result(path, first)
    put_result(path, {**first, "overrides": ["seed=1"]})
    entries = json.loads(path.read_text())
    entries[0]["published"] = "somebody's 2.0"
    path.write_text(json.dumps(entries))
    put_result(path, {**first, "return_mean": 3.0})
    entries = json.loads(path.read_text())
    assert [(entry["overrides"], entry["return_mean"]) for entry in entries] == [([], 3.0), (["seed=1"], 1.0)]
    assert entries[0]["published"] == "somebody's 2.0"
    path.write_text('{"rows": []}')
    with pytest.raises(ValueError, match="is no list of results"):
        put_result(path, first)
