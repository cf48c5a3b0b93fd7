"""``torchrl-agent explain``, ``replay``, ``play``, ``watch`` and ``lab``: an agent's step, its episode, a game beside
it, a run in training, and an agent with a fault.
"""

from __future__ import annotations

import argparse
import contextvars
import threading
from pathlib import Path

from torchrl_agent.cli.arguments import (
    add_agent,
    add_json,
    add_overrides,
    add_run,
    add_trust,
    add_without,
    check_least,
    print_json,
    run_of,
)
from torchrl_agent.core.run_names import find_run, output_of
from torchrl_agent.explain import as_dict, explain, write_page
from torchrl_agent.explain.diagnosis import diagnose
from torchrl_agent.explain.page import as_text
from torchrl_agent.labs import check, find_lab, read_answer, record_lab, sentences, write_sheet
from torchrl_agent.replay import RecordConfig, game_of, read_record, record_run
from torchrl_agent.replay import write_page as write_replay
from torchrl_agent.replay.record import write_record
from torchrl_agent.replay.watch import LOOPBACK, Watcher, follow, make_server

CHECK = "check"
"""Word before an answer to a lab."""


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Add an agent and a step of an episode."""
    add_agent(parser)
    add_overrides(parser)
    parser.add_argument("--step", type=int, default=10, help="step of the episode, from 0 (10)")
    parser.add_argument("--world", type=int, default=0, help="number of the evaluation world (0)")
    parser.add_argument("--agent", type=int, default=0, help="number of the agent in its world (0)")
    add_without(parser)
    parser.add_argument("--output", help="also write the page, with pictures, as one .html file")
    add_json(parser)


def run_explain(parsed: argparse.Namespace) -> None:
    """Explain the step, and print the page."""
    where = (run_of(parsed), parsed.step, parsed.world, parsed.agent, parsed.device, parsed.checkpoint)
    thought = explain(*where, overrides=parsed.overrides, ablated=parsed.without)
    diagnosis = diagnose(thought)
    print(as_text(thought, diagnosis))
    if parsed.output is not None:
        print(f"\n{write_page(thought, Path(parsed.output))}")
    if parsed.json:
        print_json(parsed, as_dict(thought, diagnosis))


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add a run and the extent of the replay."""
    add_run(parser)
    add_overrides(parser)
    parser.add_argument("--world", type=int, default=0, help="number of the evaluation world (0)")
    parser.add_argument("--agent", type=int, default=0, help="number of the agent that is shown first (0)")
    parser.add_argument("--checkpoints", type=int, default=8, help="checkpoints of which the same game is shown (8)")
    parser.add_argument("--what-if", type=int, default=16, help="steps to play on with other actions (16); 0: none")
    parser.add_argument("--steps", type=int, default=400, help="longest episode (400)")
    parser.add_argument("--output", help="the .html file (RUN/replay.html; NAME_replay.html of shipped:NAME)")
    parser.add_argument("--record", help="also write the record alone, as compressed JSON (.json.gz)")


def run_replay(parsed: argparse.Namespace) -> None:
    """Record the episode, write the page and print its path; RUN may also be a file of --record, or of a saved game."""
    check_least(parsed, world=0, agent=0, checkpoints=1, what_if=0, steps=1)
    if parsed.run_folder.endswith((".json.gz", ".json")):
        record = read_record(parsed.run_folder)
        place = Path(parsed.run_folder.removesuffix(".gz").removesuffix(".json") + ".html")
    else:
        run = run_of(parsed)
        config = RecordConfig(parsed.world, parsed.checkpoints, parsed.what_if, parsed.steps)
        record, place = record_run(run, config, parsed.checkpoint, parsed.overrides), output_of(run, "replay.html")
    if parsed.agent >= record["agents"]:
        raise ValueError(f"there is no agent {parsed.agent}: choose an --agent of 0 to {record['agents'] - 1}.")
    if parsed.record is not None:
        print(write_record(record, Path(parsed.record)))
    print(write_replay({**record, "first": parsed.agent}, Path(parsed.output or place)))


def add_play(parser: argparse.ArgumentParser) -> None:
    """Add a run or a world, and the page."""
    parser.add_argument(
        "run_folder", metavar="RUN|WORLD", help="a run or shipped:NAME, or a configuration to play alone"
    )
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")
    add_trust(parser)
    add_overrides(parser)
    parser.add_argument(
        "--output", help="the .html file (RUN/play.html; NAME_play.html of shipped:NAME and of a WORLD)"
    )


def run_play(parsed: argparse.Namespace) -> None:
    """Write the page of the game and print its path."""
    source = parsed.run_folder
    game = game_of(source, parsed.checkpoint, tuple(parsed.overrides), parsed.trust)
    run = find_run(source)
    place = output_of(run, "play.html") if run.is_dir() or run.suffix == ".pt" else Path(f"{run.stem}_play.html")
    print(write_replay(game, Path(parsed.output or place)))


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add a run, and the extent of its replays."""
    parser.add_argument("run_folder", metavar="RUN", help="the folder of a run that is training")
    add_trust(parser)
    parser.add_argument("--port", type=int, default=8765, help="port of the page (8765); 0: any free one")
    parser.add_argument("--every", type=int, default=5, help="seconds between two checks for a new checkpoint (5)")
    parser.add_argument("--steps", type=int, default=200, help="longest replay (200)")
    parser.add_argument("--what-if", type=int, default=0, help="steps to play on with other actions (0: none)")


def run_watch(parsed: argparse.Namespace) -> None:
    """Serve the page, and print its address, until Ctrl-C."""
    check_least(parsed, port=0, every=1, steps=1, what_if=0)
    watcher = Watcher(find_run(parsed.run_folder), RecordConfig(ahead=parsed.what_if, steps=parsed.steps))
    server, stopped = make_server(watcher, parsed.port), threading.Event()
    trusting = contextvars.copy_context()  # a thread begins without the trust that the command was given
    threading.Thread(target=trusting.run, args=(follow, watcher, parsed.every, stopped), daemon=True).start()
    print(f"http://{LOOPBACK}:{server.server_port}/ follows {parsed.run_folder}; Ctrl-C ends it.", flush=True)
    try:
        with server:
            server.serve_forever()
    except KeyboardInterrupt:
        return
    finally:
        stopped.set()


def add_lab(parser: argparse.ArgumentParser) -> None:
    """Add a lab, or an answer to be checked."""
    parser.add_argument("lab", metavar="NUMBER|check", help="number of a lab, or check")
    parser.add_argument("answer", nargs="?", metavar="ANSWER.yaml", help="with check: the sheet with your answers")
    parser.add_argument("--output", help="the .html file (lab_NUMBER.html); the sheet stands beside it")
    parser.add_argument("--episodes", type=int, default=64, help="with check: games to play (64)")
    add_json(parser)


def run_lab(parsed: argparse.Namespace) -> None:
    """Write page and sheet of a lab and print their paths, or check an answer and print what came of it."""
    check_least(parsed, episodes=1)
    if parsed.lab == CHECK:
        _check_answer(parsed)
        return
    if not parsed.lab.isdecimal():
        raise ValueError(f"{parsed.lab!r} is no lab: give its number, or 'check ANSWER.yaml'.")
    if parsed.answer is not None:
        raise ValueError(f"{parsed.answer} is not needed here: to check an answer, use 'lab check {parsed.answer}'.")
    number = int(parsed.lab)
    find_lab(number)
    page = Path(parsed.output or f"lab_{number}.html")
    print(write_replay(record_lab(number), page))
    print(write_sheet(number, page.with_suffix(".yaml")))


def _check_answer(parsed: argparse.Namespace) -> None:
    if parsed.answer is None:
        raise ValueError("there is nothing to check: use 'lab check ANSWER.yaml', the sheet with your answers.")
    answer = read_answer(Path(parsed.answer))
    result = check(answer, parsed.episodes)
    print("\n".join(sentences(answer, result)))
    print_json(parsed, result)
