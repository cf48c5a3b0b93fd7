"""Page of a run in training, for this machine alone: the learning curve, and a replay at each new checkpoint."""

from __future__ import annotations

import html
import threading
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from typing_extensions import override

from torchrl_agent.core.checkpoint import CheckpointError, checkpoints, frames_of
from torchrl_agent.core.run_names import CONFIG, run_name_of, suggest_run
from torchrl_agent.core.text import to_json
from torchrl_agent.replay.page import as_page, filled, read_part
from torchrl_agent.replay.recorder import RecordConfig, record_run
from torchrl_agent.runs.report import METRIC, learning_curve

LOOPBACK = "127.0.0.1"
KEPT = 8
"""Number of replays that are kept, the newest ones."""
REPLAY = "/replay/"
"""Path of replays, before the checkpoint's name."""


class Watcher:
    """Reader of a run's files; the training notices nothing of it.

    Args:
        config: extent of the replays; each is of one checkpoint.

    Raises:
        ValueError: there is no run.
    """

    def __init__(self, run: Path, config: RecordConfig) -> None:
        if not (run / CONFIG).is_file():
            raise ValueError(
                f"there is no run {run}{suggest_run(run)}: give the path of a run folder, such as runs/NAME."
            )
        self.run, self.config = run, replace(config, checkpoints=1)
        self.replays: dict[str, str] = {}
        self.problem = ""
        """Reason why the newest checkpoint has no replay."""
        self._seen: set[str] = set()

    def record_newest(self) -> None:
        """Record the newest checkpoint, if it is a new one."""
        newest = next(reversed(checkpoints(self.run / "checkpoints")), None)
        if newest is None or newest.name in self._seen:
            return
        self._seen.add(newest.name)
        try:
            page = as_page(record_run(newest, self.config) | {"run": run_name_of(self.run)})
        except CheckpointError:  # deleted by its run meanwhile: a newer one is there
            return
        except ValueError as error:
            self.problem = str(error)
            return
        self.replays = dict([*self.replays.items(), (newest.name, page)][-KEPT:])

    def state(self) -> dict[str, Any]:
        """Return what the page shows: the curve as pairs of frames and return, and names of the replays."""
        try:
            curve = learning_curve([self.run], METRIC)
            points = [list(pair) for pair in zip(curve.x.tolist(), curve.mean.tolist(), strict=True)]
        except ValueError:  # no row yet
            points = []
        replays = [{"name": name, "frames": frames_of(Path(name))} for name in self.replays]
        return {"curve": points, "replays": replays, "problem": self.problem}

    def page(self) -> str:
        """Return the page, which asks for the state again and again."""
        title, style, script = html.escape(run_name_of(self.run)), read_part("page.css"), read_part("watch.js")
        return filled("watch.html", {"TITLE": title, "STYLE": style, "SCRIPT": script})


def make_server(watcher: Watcher, port: int) -> ThreadingHTTPServer:
    """Return a server of the page, which accepts connections from this machine alone.

    Args:
        port: 0 for any free one.

    Raises:
        ValueError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer with the page, the state or a replay."""
            names = {f"{host}:{server.server_port}" for host in (LOOPBACK, "localhost")}
            if self.headers.get("Host") not in names:  # a foreign page whose name was made to mean this machine
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._send(watcher.page(), "text/html")
            elif self.path == "/state":
                self._send(to_json(watcher.state()), "application/json")
            elif (found := watcher.replays.get(self.path.removeprefix(REPLAY))) is not None:
                self._send(found, "text/html")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, text: str, kind: str) -> None:
            content = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise ValueError(f"port {port} cannot be used ({error.strerror}): choose another --port.") from None
    return server


def follow(watcher: Watcher, every: float, stopped: threading.Event) -> None:
    """Look for new checkpoints until it is stopped.

    Args:
        every: seconds between two checks.
    """
    while not stopped.is_set():
        watcher.record_newest()
        stopped.wait(every)
