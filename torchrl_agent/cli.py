"""The command ``torchrl-agent``: verbs for everything a run goes through. Errors are one sentence, exit code 2."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from torchrl_agent import bench, convert, doctor, export, pretrain, profiling, report
from torchrl_agent.experiment import Experiment, config_names
from torchrl_agent.explain import as_dict, explain, write_page
from torchrl_agent.explain.diagnosis import diagnose
from torchrl_agent.explain.page import as_text
from torchrl_agent.film import film_policy
from torchrl_agent.models.acting import acting_policy
from torchrl_agent.train import Iteration, evaluate, load_agent, train
from torchrl_agent.training.algorithm import NonFiniteError
from torchrl_agent.training.governor import CollapseError
from torchrl_agent.training.pretrained import MODULES

DESCRIPTION = """Train, judge and watch agents in GPU-batched TorchRL worlds.

examples:
  torchrl-agent train arena                               about five minutes on two CPU cores
  torchrl-agent train arena ppo.gamma=0.99 seed=1 run.name=first
  torchrl-agent pretrain world_model town_agent           teach one module from scripted and random players first
  torchrl-agent resume runs/first total_frames=20_000_000
  torchrl-agent evaluate runs/first --episodes 256 --json
  torchrl-agent film runs/first --output first.gif
  torchrl-agent explain runs/first --step 40              what the agent believed, foresaw, wanted and did, and why
  torchrl-agent plot runs/* --output curves.png           learning curves; one curve per configuration, over its seeds
  torchrl-agent compare runs/*                            a table of their figures
  torchrl-agent export runs/first --format onnx           the policy as a file that runs without this project
  torchrl-agent configs arena                             every key of a configuration with its value
  torchrl-agent convert sb3 model.zip --config cartpole   a run of a Stable-Baselines3 model; to-sb3 is the way back
  torchrl-agent bench arena --json
  torchrl-agent profile arena acceleration.step=false     where the time of an iteration goes
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    parsed = _parse(arguments)
    try:
        return parsed.run(parsed) or 0
    except (ValueError, NonFiniteError, CollapseError) as error:
        print(f"torchrl-agent: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "torchrl-agent: interrupted; a run continues from its last checkpoint with 'torchrl-agent resume RUN'.",
            file=sys.stderr,
        )
        return 130


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line; overrides may also stand behind options, where argparse does not look for them."""
    parser = _parser()
    parsed, rest = parser.parse_known_args(arguments)
    strange = [word for word in rest if word.startswith("-") or "=" not in word or not hasattr(parsed, "overrides")]
    if strange:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if rest:
        parsed.overrides = [*parsed.overrides, *rest]
    return parsed


def _train(parsed: argparse.Namespace) -> None:
    experiment = Experiment.load(parsed.config, *parsed.overrides)
    _follow(train(experiment), experiment)


def _resume(parsed: argparse.Namespace) -> None:
    run = Path(parsed.run_folder)
    if not (run / "config.yaml").is_file():
        raise ValueError(
            f"{run} is not a run (it has no config.yaml): give the path of a run folder, such as runs/NAME."
        )
    experiment = Experiment.load(run / "config.yaml", *parsed.overrides)
    _follow(train(experiment, resume=run), experiment, run)


def _follow(iterations: Iterator[Iteration], experiment: Experiment, run: Path | None = None) -> None:
    """Show a progress bar (on terminals only), then where the results are."""
    frames = 0
    with tqdm(total=experiment.total_frames, unit="frame", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
        for iteration in iterations:
            bar.update(iteration.frames - frames)
            frames = iteration.frames
            bar.set_postfix(_headline(iteration.metrics))
    folder = run or Path(experiment.run.folder) / str(experiment.run.name)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    print(f"{folder}: {summary['frames']:,} frames in {summary['seconds']:.0f} s")
    if "evaluation" in summary:
        _print_table(summary["evaluation"])


def _headline(metrics: dict[str, float]) -> dict[str, str]:
    shown = {
        "fps": "time/fps",
        "return": "rollout/ep_rew_mean",
        "wins": "rollout/success_rate",
        "stage": "curriculum/stage",
    }
    return {name: f"{metrics[tag]:,.3g}" for name, tag in shown.items() if tag in metrics}


def _evaluate(parsed: argparse.Namespace) -> None:
    overrides = [*parsed.changes, *([] if parsed.seed is None else [f"evaluation.seed={parsed.seed}"])]
    experiment, agent = load_agent(Path(parsed.run_folder), parsed.device, parsed.checkpoint, tuple(overrides))
    result = evaluate(experiment, agent, parsed.episodes, not parsed.stochastic)
    _print_table(result)
    if parsed.json:
        print(json.dumps(result))


def _film(parsed: argparse.Namespace) -> None:
    run = Path(parsed.run_folder)
    experiment, agent = load_agent(run, parsed.device, parsed.checkpoint, tuple(parsed.changes))
    if parsed.worlds < 1 or parsed.steps < 1 or parsed.every < 1:
        raise ValueError("--worlds, --steps and --every must be at least 1.")
    env = agent.attach(experiment.make_world(evaluation=True, num_envs=parsed.worlds, seed=experiment.evaluation.seed))
    folder = run if run.is_dir() else run.parent.parent
    output = Path(parsed.output or folder / "film.gif")
    path = film_policy(
        env,
        acting_policy(agent),
        output,
        parsed.steps,
        parsed.every,
        not parsed.stochastic,
        experiment.acceleration,
    )
    if path is None:
        raise ValueError(f"the world of {run} cannot be drawn: only worlds with a draw method can be filmed.")
    print(path)


def _explain(parsed: argparse.Namespace) -> None:
    thought = explain(
        parsed.run_folder, parsed.step, parsed.world, parsed.agent, parsed.device, which=parsed.checkpoint
    )
    diagnosis = diagnose(thought)
    print(as_text(thought, diagnosis))
    if parsed.output is not None:
        print(f"\n{write_page(thought, Path(parsed.output))}")
    if parsed.json:
        print(json.dumps(as_dict(thought, diagnosis)))


def _plot(parsed: argparse.Namespace) -> None:
    folders = [Path(folder) for folder in parsed.run_folders]
    print(report.plot(folders, parsed.metric or [report.METRIC], Path(parsed.output)))


def _compare(parsed: argparse.Namespace) -> None:
    entries = report.compare([Path(folder) for folder in parsed.run_folders])
    print(report.table(entries))
    if parsed.json:
        print(json.dumps({"configurations": entries}))


def _doctor(parsed: argparse.Namespace) -> int:
    checks = doctor.diagnose(deep=parsed.deep)
    print(doctor.report(checks))
    return 0 if all(check.ok for check in checks) else 2


def _configs(parsed: argparse.Namespace) -> None:
    if parsed.config is None:
        print("\n".join(config_names()))
    else:
        print(Experiment.load(parsed.config, *parsed.overrides).to_yaml(), end="")


def _print_table(values: dict[str, Any]) -> None:
    width = max(len(name) for name in values)
    for name, value in values.items():
        print(f"  {name:<{width}}  {value:,.4g}" if isinstance(value, float) else f"  {name:<{width}}  {value}")


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """One line, exit code 2."""
        print(f"torchrl-agent: {message}; see '{self.prog} --help'.", file=sys.stderr)
        raise SystemExit(2)


PLANNER: dict[str, Any] = {
    "action": "append_const",
    "const": "model.world_model.planner=cem",
    "dest": "changes",
    "default": [],
}
"""``--planner`` is a change of the run's configuration."""


OVERRIDES: dict[str, Any] = {
    "nargs": "*",
    "metavar": "KEY=VALUE",
    "help": "changes of the configuration, such as ppo.gamma=0.99",
}


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="torchrl-agent", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    _add_learning(verbs)
    _add_judging(verbs)
    _add_comparing(verbs)
    _add_tools(verbs)
    return parser


def _add_learning(verbs: Any) -> None:
    """The verbs that make or change a run's agent."""
    verb = verbs.add_parser("train", help="train the agent of a configuration")
    verb.add_argument("config", help=f"one of {', '.join(config_names())}, or the path of a YAML file")
    verb.add_argument("overrides", **OVERRIDES)
    verb.set_defaults(run=_train)

    verb = verbs.add_parser("pretrain", help="teach one module from rollouts of scripted and random players")
    verb.add_argument("module", choices=MODULES)
    verb.add_argument("config", help="as in train")
    verb.add_argument("overrides", **OVERRIDES)
    pretrain.add_arguments(verb)
    verb.set_defaults(run=pretrain.run)

    verb = verbs.add_parser("resume", help="continue a run from its last checkpoint")
    verb.add_argument("run_folder", metavar="RUN")
    verb.add_argument("overrides", **OVERRIDES)
    verb.set_defaults(run=_resume)


def _add_judging(verbs: Any) -> None:
    """The verbs that look at one run."""
    verb = verbs.add_parser("evaluate", help="judge a run's policy")
    _add_run(verb)
    _add_acting(verb)
    verb.add_argument("--episodes", type=int, help="worlds that play one episode each (256)")
    verb.add_argument("--seed", type=int, help="seed of the worlds")
    verb.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    verb.set_defaults(run=_evaluate)

    verb = verbs.add_parser("film", help="film a run's policy")
    _add_run(verb)
    _add_acting(verb)
    verb.add_argument("--output", help=".gif, or .mp4 with the extra 'video' (RUN/film.gif)")
    verb.add_argument("--worlds", type=int, default=4)
    verb.add_argument("--steps", type=int, default=900, help="longest film in steps of the world")
    verb.add_argument("--every", type=int, default=3, help="draw each so many steps")
    verb.set_defaults(run=_film)

    verb = verbs.add_parser("explain", help="open an agent's head in one step of an evaluation episode")
    _add_run(verb)
    verb.add_argument("--step", type=int, default=10, help="step of the episode, from 0 (10)")
    verb.add_argument("--world", type=int, default=0, help="number of the evaluation world (0)")
    verb.add_argument("--agent", type=int, default=0, help="number of the agent in its world (0)")
    verb.add_argument("--output", help="also write the page, with pictures, as one .html file")
    verb.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    verb.set_defaults(run=_explain)


def _add_run(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("run_folder", metavar="RUN", help="a run folder or a checkpoint file")
    verb.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    verb.add_argument("--checkpoint", choices=("last", "best"), default="last")


def _add_acting(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the most likely")
    verb.add_argument("--planner", help="act by plans of the agent's world model", **PLANNER)


def _add_comparing(verbs: Any) -> None:
    """The verbs that look at several runs."""
    verb = verbs.add_parser("plot", help="draw learning curves of runs, one per configuration, over its seeds")
    verb.add_argument("run_folders", metavar="RUN", nargs="+")
    verb.add_argument("--metric", action="append", help=f"a column of metrics.csv; repeat for panels ({report.METRIC})")
    verb.add_argument("--output", default="curves.png", help=".png, .svg or .pdf (curves.png)")
    verb.set_defaults(run=_plot)

    verb = verbs.add_parser("compare", help="a table of runs, with mean and deviation over a configuration's seeds")
    verb.add_argument("run_folders", metavar="RUN", nargs="+")
    verb.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    verb.set_defaults(run=_compare)


def _add_tools(verbs: Any) -> None:
    """The verbs that measure, take elsewhere, check and list."""
    verb = verbs.add_parser("bench", help="measure speed, skill and claims, or learning against Stable-Baselines3")
    bench.add_arguments(verb)
    verb.set_defaults(run=bench.run)

    verb = verbs.add_parser("export", help="write a run's agent, or one module, as a file for PyTorch or ONNX runtimes")
    export.add_arguments(verb)
    verb.set_defaults(run=export.run)

    verb = verbs.add_parser("profile", help="say where the time of a training iteration goes")
    verb.add_argument("config", help=f"one of {', '.join(config_names())}, or the path of a YAML file")
    verb.add_argument("overrides", **OVERRIDES)
    profiling.add_arguments(verb)
    verb.set_defaults(run=profiling.run)

    verb = verbs.add_parser("convert", help="make a run of a Stable-Baselines3 model, or the other way round")
    convert.add_arguments(verb)
    verb.set_defaults(run=convert.run)

    verb = verbs.add_parser("doctor", help="check versions, device and compiler, and say what to do")
    verb.add_argument("--deep", action="store_true", help="also compile a small function")
    verb.set_defaults(run=_doctor)

    verb = verbs.add_parser("configs", help="list configurations, or show one in full")
    verb.add_argument("config", nargs="?")
    verb.add_argument("overrides", **OVERRIDES)
    verb.set_defaults(run=_configs)


if __name__ == "__main__":
    os.environ.setdefault("RL_WARNINGS", "False")
    sys.exit(main())
