"""The command ``torchrl-agent``: verbs for every stage of a run. Errors are one sentence, exit code 2.

A verb's module is imported only when the verb is used, so that help and version are fast.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any, NoReturn

from typing_extensions import override

from torchrl_agent.core.errors import HiddenPackageError, TrainingError
from torchrl_agent.core.tables import printable
from torchrl_agent.core.text import did_you_mean
from torchrl_agent.optimization.compile_cache import keep_compiled_code
from torchrl_agent.trust.hidden import check_envs
from torchrl_agent.trust.targets import calling

DESCRIPTION = """Train, judge and watch agents in GPU-batched TorchRL worlds.

examples:
  torchrl-agent film shipped:arena                        a trained agent that comes with the package
  torchrl-agent train arena                               six minutes on two quiet CPU cores
  torchrl-agent train arena algorithm.gamma=0.99 --seed 1 --name first
  torchrl-agent train arena -m seed=0,1,2                 every combination of values, one after another
  torchrl-agent pretrain world_model town_agent           pre-train one module on scripted and random policies first
  torchrl-agent resume runs/first total_frames=20_000_000
  torchrl-agent evaluate runs/first --episodes 256 --json
  torchrl-agent film runs/first --output first.gif
  torchrl-agent explain shipped:tonight --step 40         what an agent believed, predicted and did
  torchrl-agent replay shipped:village                    the same for a whole episode, as one page for a browser
  torchrl-agent lab 1                                     a replay of an agent with a fault that you are to find
  torchrl-agent plot runs/* --output curves.png           learning curves; one curve per configuration, over its seeds
  torchrl-agent compare runs/*                            a table of their figures
  torchrl-agent export runs/first --format onnx           the policy as a file that runs without this project
  torchrl-agent configs arena                             every key of a configuration with its value
  torchrl-agent convert sb3 model.zip --config cartpole   a run of a Stable-Baselines3 model; to-sb3 is the way back
  torchrl-agent bench arena --json
  torchrl-agent profile arena acceleration.step=false     where the time of an iteration goes
"""

VERBS = {
    "train": ("train", "train the agent of a configuration"),
    "pretrain": ("pretrain", "pre-train one module on rollouts of scripted and random policies"),
    "resume": ("train", "continue a run from its last checkpoint"),
    "evaluate": ("evaluate", "judge a run's policy"),
    "match": ("match", "two agents against each other, in a world with two seats"),
    "league": ("match", "ratings and the cross-play table of runs, past selves and scripted players"),
    "exploit": ("match", "train fresh agents against a run's agent: how far can it be beaten"),
    "film": ("film", "film a run's policy"),
    "explain": ("explain", "open an agent's head in one step of an evaluation episode"),
    "replay": ("explain", "write an evaluation episode and the agents' minds as one page for a browser"),
    "lab": ("explain", "an agent with one fault to be found and repaired, as a page with questions; lab check ANSWER"),
    "play": ("explain", "write a game for a person beside trained agents as one page for a browser"),
    "watch": ("explain", "follow a run in training: its curve and a replay at each checkpoint, as a local page"),
    "plot": ("compare", "draw learning curves of runs, one per configuration, over its seeds"),
    "compare": ("compare", "a table of runs, with mean and deviation over a configuration's seeds"),
    "bench": ("bench", "measure the speed and skill of a configuration"),
    "export": ("export", "write a run's agent, or one module, for PyTorch or ONNX runtimes, or to share"),
    "profile": ("bench", "say where the time of a training iteration goes"),
    "cache": ("doctor", "size of the compiled code that is kept for the next process, or clear it"),
    "convert": ("export", "make a run of a Stable-Baselines3 model, or the other way round"),
    "completion": ("configs", "print what a shell needs to complete this command's words"),
    "doctor": ("doctor", "check versions, device and compiler, and say what to do"),
    "runs": ("compare", "list runs and the agents that come with the package, with their figures"),
    "configs": ("configs", "list configurations, or show one in full"),
}
"""Verbs: the module of each, which has ``add_VERB`` and ``run_VERB`` (and perhaps ``complete_VERB``, for words that may
be left out), and its help text."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    _open_streams()
    rank = os.environ.get("RANK", "0") if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
    logging.basicConfig(level=logging.WARNING, format="%(message)s" if rank is None else f"rank {rank}: %(message)s")
    try:
        parsed = _parse(sys.argv[1:] if arguments is None else arguments)
        logging.getLogger("torchrl_agent.core.progress").setLevel(
            logging.WARNING if parsed.quiet or rank not in (None, "0") else logging.INFO
        )
        keep_compiled_code()
        # trusted modules may lie in the present folder, from which the command itself imports nothing
        with calling(getattr(parsed, "trust", False), os.getcwd() if arguments is None else None):
            code = parsed.run(parsed) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        _discard_output()
        return 141
    except OSError as error:
        _discard_output()
        print(f"torchrl-agent: {_of_the_system(error)}", file=sys.stderr)
        return 2
    except (ValueError, TrainingError, HiddenPackageError) as error:
        print(f"torchrl-agent: {printable(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("torchrl-agent: interrupted.", file=sys.stderr)
        return 130


def _open_streams() -> None:
    """Open the standard streams that the process was started without, or its files would get their descriptors."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """Discard output that cannot be printed, or Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _of_the_system(error: OSError) -> str:
    """Return an error of a file or a stream as a sentence."""
    reason = error.strerror or str(error)
    if error.filename is None:
        return f"output cannot be written ({reason}): give it a place that can be written to."
    return f"{error.filename} cannot be read or written ({reason}): give a path that can."


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; overrides may also follow options, where argparse does not look for them."""
    chosen = next((word for word in arguments if not word.startswith("-")), "")
    parser, verb, complete = _parser(chosen)
    if chosen == "roofline":
        parser.error("roofline is a study: run 'python -m benchmarks roofline' from a clone")
    if complete is not None:
        behind = arguments.index(chosen) + 1
        arguments = [*arguments[:behind], *complete(arguments[behind:])]
    parsed, rest = parser.parse_known_args(arguments)
    overrides = vars(parsed).get("overrides")  # None of a verb that takes none
    strange = [word for word in rest if word.startswith("-") or "=" not in word or overrides is None]
    if strange:
        meant = did_you_mean(strange[0].partition("=")[0], verb.options()) if strange[0].startswith("-") else ""
        if overrides is not None:
            meant += ": give keys as KEY=VALUE, such as algorithm.gamma=0.99"
        parser.error(f"unrecognized arguments: {' '.join(strange)}{meant}")
    if overrides is not None:
        parsed.overrides = [*overrides, *rest, *getattr(parsed, "short", [])]
    return parsed


def _parser(chosen: str) -> tuple[_Parser, _Parser, Callable[[list[str]], list[str]] | None]:
    """Return the parser of all verbs, of which only the chosen one has arguments, that verb's parser and completion."""
    complete = None
    parser = _Parser(
        prog="torchrl-agent", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"torchrl-agent {_version()}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    asked = parser
    for name, (place, purpose) in VERBS.items():
        verb = verbs.add_parser(name, help=purpose)
        if name == chosen:
            asked = verb
            if name != "doctor":  # which checks this itself, and reports more
                check_envs()
            module = importlib.import_module(f"torchrl_agent.cli.{place}")
            getattr(module, f"add_{name}")(verb)
            verb.add_argument("--quiet", action="store_true", help="show no progress")
            verb.set_defaults(run=getattr(module, f"run_{name}"))
            complete = getattr(module, f"complete_{name}", None)
    return parser, asked, complete


def _version() -> str:
    try:
        return metadata.version("torchrl_agent")
    except metadata.PackageNotFoundError:
        return "(not installed)"


class _Parser(argparse.ArgumentParser):
    """Parser whose error messages are one line."""

    @override
    def error(self, message: str) -> NoReturn:
        """Print one line and exit with code 2."""
        print(f"torchrl-agent: {message}; see '{self.prog} --help'.", file=sys.stderr)
        raise SystemExit(2)

    @override
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError with the nearest of the choices."""
        if action.choices is not None and value not in action.choices:
            choices = ", ".join(map(str, action.choices))
            message = f"{value!r} is none of the choices{did_you_mean(value, action.choices)}: use {choices}"
            raise argparse.ArgumentError(action, message)

    def options(self) -> list[str]:
        """Return the options, which begin with a dash."""
        return list(self._option_string_actions)
