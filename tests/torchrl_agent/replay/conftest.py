"""A short record of a shipped agent with four modules, for all tests of replays."""

import copy

import pytest

from torchrl_agent.replay import RecordConfig, record_run


@pytest.fixture(scope="session")
def village():
    return record_run("shipped:village", RecordConfig(steps=6, ahead=3))


@pytest.fixture
def hostile(village):
    """The record with names that would be markup."""
    record = copy.deepcopy(village)
    record["run"] = "<script>alert(1)</script>"
    record["config"] = '"><img src=x onerror=alert(1)>'
    record["names"]["actions"][0] = "<b>up</b>"
    record["episodes"][-1]["thoughts"][4][0]["surprises"] = ["social model: <i>it was wrong</i>"]
    return record
