"""Counts of the house, on files written by hand, and what the house must hold."""

from __future__ import annotations

from pathlib import PurePosixPath

from benchmarks.structure import arrows, circles, count, room


def test_arrows_join_rooms_once_whatever_the_files():
    texts = {
        PurePosixPath("a/__init__.py"): "",
        PurePosixPath("a/one.py"): "from a.b.two import x\nimport a.b.three\nimport torch\n",
        PurePosixPath("a/b/two.py"): "from a.b import three\n",
        PurePosixPath("a/b/three.py"): "def f():\n    from a import one\n",
    }
    assert [room(path) for path in texts] == ["a/__init__", "a/one", "a/b", "a/b"]
    assert arrows(texts) == {"a/__init__": set(), "a/one": {"a/b"}, "a/b": {"a/one"}}


def test_circles_are_sets_of_rooms_that_reach_each_other():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert circles(graph) == [["a", "b", "c"], ["f", "g"]]


def test_the_house_has_no_circles_and_few_rooms():
    found = count()
    assert found["circles"] == []
    assert found["files at the roots"] == {"torchrl_agent": 3, "envs": 1}
    assert found["rooms"] <= 33 and found["arrows"] <= 200  # 30, and one each of growth, replay and labs
    assert max(found["largest folders"].values()) <= 14
    assert found["lines of tests"] <= 0.8 * (sum(found["lines"].values()) + found["lines of benchmarks"])
