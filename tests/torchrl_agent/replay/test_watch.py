"""The page that follows a run: it reads the run's files, and answers this machine alone."""

from __future__ import annotations

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer

import pytest

from torchrl_agent import cli
from torchrl_agent.core.run_names import SHIPPED
from torchrl_agent.replay import RecordConfig
from torchrl_agent.replay.watch import KEPT, Watcher, follow, make_server


@pytest.fixture
def run(tmp_path):
    """A run as it is before its first iteration."""
    folder = tmp_path / "<b>run"
    (folder / "checkpoints").mkdir(parents=True)
    shutil.copy(SHIPPED / "duel" / "config.yaml", folder)
    return folder


@pytest.fixture
def watcher(run):
    return Watcher(run, RecordConfig(ahead=0, steps=2))


@pytest.fixture
def address(watcher):
    server = make_server(watcher, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def train(run):
    """Write what the training of the duel's agent has written."""
    for file in (SHIPPED / "duel" / "checkpoints").iterdir():
        shutil.copy(file, run / "checkpoints")
    shutil.copy(SHIPPED / "duel" / "metrics.csv", run)
    return next(path.name for path in (run / "checkpoints").glob("*.pt"))


def get(address, path="", **headers):
    with urllib.request.urlopen(urllib.request.Request(address + path, headers=headers), timeout=30) as answer:
        return answer.read().decode()


def test_the_page_waits_for_the_run_and_then_shows_it(run, watcher, address):
    assert "&lt;b&gt;run" in get(address) and "<b>run" not in get(address)
    watcher.record_newest()
    assert json.loads(get(address, "/state")) == {"curve": [], "replays": [], "problem": ""}
    name = train(run)
    watcher.record_newest()
    state = json.loads(get(address, "/state"))
    assert [each["name"] for each in state["replays"]] == [name]
    assert state["replays"][0]["frames"] > 0 and len(state["curve"]) > 100
    frames, value = state["curve"][-1]
    assert frames > 4096 and isinstance(value, float)
    assert get(address, f"/replay/{name}").startswith("<!doctype html>")


def test_a_checkpoint_is_recorded_once_and_the_newest_are_kept(run, watcher, monkeypatch):
    recorded = []
    monkeypatch.setattr("torchrl_agent.replay.watch.record_run", lambda path, config: recorded.append(path.name) or {})
    monkeypatch.setattr("torchrl_agent.replay.watch.as_page", lambda record: "page")
    for frames in range(KEPT + 2):
        (run / "checkpoints" / f"checkpoint_{frames}.pt").touch()
        watcher.record_newest()
        watcher.record_newest()
    names = [f"checkpoint_{frames}.pt" for frames in range(KEPT + 2)]
    assert recorded == names and list(watcher.replays) == names[2:]


def test_a_checkpoint_that_cannot_be_recorded_is_reported(run, watcher):
    (run / "config.yaml").write_text("color: green\n")
    (run / "checkpoints" / "checkpoint_5.pt").touch()
    watcher.record_newest()
    assert "is not an experiment" in watcher.state()["problem"] and not watcher.replays


def test_others_get_nothing(address):
    for path, headers, code in (
        ("/config.yaml", {}, 404),
        ("/replay/../config.yaml", {}, 404),
        ("/", {"Host": "evil.example"}, 403),
        ("/state", {"Host": "evil.example:80"}, 403),
    ):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(address, path, **headers)
        assert refused.value.code == code


def test_following_ends_when_it_is_stopped(watcher, monkeypatch):
    stopped = threading.Event()
    calls: list[int] = []

    def record_newest():
        calls.append(len(calls))
        stopped.set()

    monkeypatch.setattr(watcher, "record_newest", record_newest)
    follow(watcher, 60, stopped)
    assert calls == [0]


def test_the_command_refuses_in_a_sentence(address, run, capsys):
    port = address.rpartition(":")[2]
    for words, sentence in (
        (["missing"], "there is no run missing: give the path of a run folder"),
        ([str(run), "--port", port], f"port {port} cannot be used"),
        ([str(run), "--every", "0"], "--every is 0: give at least 1."),
    ):
        assert cli.main(["watch", *words]) == 2
        assert sentence in capsys.readouterr().err


def test_the_command_tells_its_address_and_serves_until_it_is_interrupted(run, monkeypatch, capsys):
    pages = []

    def serve_once(server):
        asking = threading.Thread(target=lambda: pages.append(get(f"http://127.0.0.1:{server.server_port}")))
        asking.start()
        server.handle_request()
        asking.join()
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", serve_once)
    assert cli.main(["watch", str(run), "--port", "0"]) == 0
    assert re.match(r"http://127.0.0.1:\d+/ follows .*run; Ctrl-C ends it.", capsys.readouterr().out)
    assert len(pages) == 1 and "Learning curve" in pages[0]
