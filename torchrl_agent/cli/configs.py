"""``torchrl-agent configs`` and ``completion``: configurations with their keys, and completion scripts for shells."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from typing_extensions import override

from torchrl_agent.cli import VERBS
from torchrl_agent.cli.arguments import add_overrides, add_trust
from torchrl_agent.core.tables import aligned
from torchrl_agent.experiment import Experiment
from torchrl_agent.experiment.compose import config_names
from torchrl_agent.experiment.meanings import explained, summary


def add_configs(parser: argparse.ArgumentParser) -> None:
    """Add a configuration, or none for the list."""
    parser.add_argument("config", nargs="?")
    add_overrides(parser)
    add_trust(parser)


def run_configs(parsed: argparse.Namespace) -> None:
    """Print a summary of each configuration, or every key of one with its value and meaning."""
    if parsed.config is None:
        print("\n".join(aligned([[name, summary(name)] for name in config_names()], words=2)))
    else:
        print(explained(Experiment.load(parsed.config, *parsed.overrides)), end="")


# --- completion by shells --------------------------------------------------------------------------------------------

BASH = """\
_torchrl_agent() {{
    local words
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    if [ "$COMP_CWORD" -eq 1 ]; then words="{verbs}"; fi
    COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _torchrl_agent torchrl-agent
"""
"""Completion script of bash; ``-o default`` completes files where no word fits: run folders, YAML files."""
ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=SHELLS, help="for bash: source <(torchrl-agent completion bash)")


def run_completion(parsed: argparse.Namespace) -> None:
    """Print the completion script of a shell."""
    words = {}
    for verb, (place, _) in VERBS.items():
        parser = _Recorder(prog=verb)
        getattr(importlib.import_module(f"torchrl_agent.cli.{place}"), f"add_{verb}")(parser)
        words[verb] = [*dict.fromkeys([*parser.words, "--quiet"])]
    print(SHELLS[parsed.shell](words), end="")


class _Recorder(argparse.ArgumentParser):
    """Parser that records the words of its command line, including those of its subjects."""

    def __init__(self, *arguments: Any, words: list[str] | None = None, **options: Any) -> None:
        self.words = [] if words is None else words
        super().__init__(*arguments, **options)

    @override
    def add_argument(self, *names: Any, **options: Any) -> Any:
        """Record the option's name, or its choices."""
        if options.get("help") != argparse.SUPPRESS:
            self.words += [name for name in names if name.startswith("--")]
            self.words += [str(choice) for choice in options.get("choices") or ()]
            self.words += config_names() if names[0] in ("config", "--config") else []
        return super().add_argument(*names, **options)

    @override
    def add_subparsers(self, **options: Any) -> Any:
        """Let the subjects' parsers record their words here."""
        return super().add_subparsers(**{**options, "parser_class": self._subject})

    def _subject(self, **options: Any) -> argparse.ArgumentParser:
        self.words.append(options["prog"].rpartition(" ")[2])
        return _Recorder(words=self.words, **options)


def _bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'        {verb}) words="{" ".join(known)}" ;;' for verb, known in words.items())
    return BASH.format(cases=cases, verbs=" ".join(words))


def _fish(words: dict[str, list[str]]) -> str:
    start, lines = "complete -c torchrl-agent", []
    for verb, known in words.items():
        purpose = VERBS[verb][1].replace("'", "\\'")
        lines.append(f"{start} -n __fish_use_subcommand -f -a {verb} -d '{purpose}'")
        lines.append(f"{start} -n '__fish_seen_subcommand_from {verb}' -a '{' '.join(known)}'")
    return "\n".join([*lines, ""])


SHELLS = {"bash": _bash, "zsh": lambda words: ZSH + _bash(words), "fish": _fish}
