"""How hard the fuzzers try: the same few examples in every run, or with ``make fuzz`` many, each time others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, settings

SECONDS = 60
"""Whatever takes longer hangs."""

shared = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("quick", max_examples=8, derandomize=True, **shared)
settings.register_profile("thorough", max_examples=500, print_blob=True, **shared)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile(config.getoption("--hypothesis-profile") or "quick")


class Outcome:
    """What became of something hostile: ``sentence`` holds the refusal, and is None where it was accepted."""

    sentence: str | None = None


@pytest.fixture
def outcome():
    """A context in which only one thing may be raised: a ValueError of a single sentence; and not too late."""
    return one_sentence


@contextmanager
def one_sentence(*others: type[Exception]) -> Iterator[Outcome]:
    def hangs(*_: object) -> None:
        raise TimeoutError(f"nothing came of it within {SECONDS} s")

    found, before = Outcome(), signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield found
    except (ValueError, *others) as error:
        found.sentence = str(error)
        assert found.sentence.strip(), "a refusal says why"
        assert "\n" not in found.sentence, f"a refusal is one line: {found.sentence}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
