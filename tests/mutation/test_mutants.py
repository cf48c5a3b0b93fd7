"""The mutants keep up with the code, and the run tells the killed from the survivors."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("mutation_run", Path(__file__).with_name("run.py"))
run = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = run
spec.loader.exec_module(run)

MUTANTS = run.read_mutants()
LARGEST_SHARE_OF_SURVIVORS = 0.03


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_none_is_stale(mutant):
    assert mutant.stale(run.CHECKOUT) is None
    assert mutant.old != mutant.new
    assert mutant.tests


def test_names_are_unique_and_few_may_survive():
    assert max(Counter(mutant.name for mutant in MUTANTS).values()) == 1
    survivors = [mutant for mutant in MUTANTS if mutant.survives]
    assert len(survivors) <= LARGEST_SHARE_OF_SURVIVORS * len(MUTANTS)


def test_a_file_that_stands_twice_is_refused(tmp_path):
    """YAML would forget the mutants of the first."""
    one = "double.py: {mutants: {one: {old: a, new: b, tests: [c]}}}\n"
    (tmp_path / "all.yaml").write_text(one)
    assert [mutant.name for mutant in run.read_mutants(tmp_path)] == ["one"]
    (tmp_path / "all.yaml").write_text(one + one.replace("one", "two"))
    with pytest.raises(ValueError, match=r"double.py stands twice in .*all.yaml: put its mutants together"):
        run.read_mutants(tmp_path)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of one function and one test."""
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "double.py").write_text("def double(x):\n    return 2 * x\n")
    (root / "test_double.py").write_text(
        "from double import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
    )
    mutants = tmp_path / "mutants"
    mutants.mkdir()
    monkeypatch.setattr(run, "CHECKOUT", root)
    monkeypatch.setattr(run, "PRELOADED", ())
    monkeypatch.setattr(run, "read_mutants", lambda read=run.read_mutants: read(mutants))

    def hold(text):
        (mutants / "all.yaml").write_text(text)

    return hold


ONE = "double.py:\n  tests: [test_double.py{test}]\n  mutants:\n    one: {{old: {old}, new: {new}{rest}}}\n"


@pytest.mark.parametrize(
    ("mutant", "expected", "code"),
    [
        ({"old": "2 * x", "new": "3 * x"}, "killed    one", 0),
        ({"old": "2 * x", "new": "x * x"}, "survived  one", 1),
        ({"old": "2 * x", "new": "x + x", "rest": ", survives: the same"}, "survived  one", 0),
        ({"old": "2 * y", "new": "3 * x"}, "stale     one", 1),
        ({"old": "2 * x", "new": "3 * x", "test": "::test_gone"}, "stale     one", 1),
    ],
)
def test_fates(checkout, capsys, mutant, expected, code):
    checkout(ONE.format(**{"test": "", "rest": "", **mutant}))
    assert run.main(["one"]) == code
    assert capsys.readouterr().out.startswith(expected)


def test_a_word_that_names_none(checkout):
    checkout(ONE.format(old="2 * x", new="3 * x", test="", rest=""))
    with pytest.raises(SystemExit):
        run.main(["another"])
