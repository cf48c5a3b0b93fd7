"""What a shell completes, asked of the shells themselves."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from torchrl_agent import cli
from torchrl_agent.cli import VERBS
from torchrl_agent.cli.configs import SHELLS
from torchrl_agent.experiment.compose import config_names


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """Path of a shell's script, by its name."""
    folder = tmp_path_factory.mktemp("completion")

    def write(shell, text):
        (folder / shell).write_text(text)
        return folder / shell

    return write


@pytest.fixture
def printed(capsys, script):
    def of(shell):
        assert cli.main(["completion", shell]) == 0
        return script(shell, capsys.readouterr().out)

    return of


def ask_bash(path, *words):
    """What bash offers for the last of the words."""
    listed = " ".join(f"'{word}'" for word in ("torchrl-agent", *words))
    asked = f"source {path}; COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _torchrl_agent; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_verbs_options_configurations_and_files(printed):
    path = printed("bash")
    assert ask_bash(path, "") == list(VERBS)
    assert ask_bash(path, "tra") == ["train"]
    assert ask_bash(path, "train", "smo") == ["smoke"]
    options = {"--help", "--multirun", "--print-config", "--quiet", "--seed", "--device", "--name", "--trust"}
    assert set(ask_bash(path, "train", "")) == {*config_names(), *options}
    assert ask_bash(path, "evaluate", "runs/first", "--j") == ["--json"]
    assert {"last", "best"} <= set(ask_bash(path, "evaluate", "runs/first", "--checkpoint", ""))
    assert ask_bash(path, "bench", "sk") == ["skill"]
    assert ask_bash(path, "bench", "speed", "--world") == ["--world-only"]
    assert "--row" not in ask_bash(path, "bench", "speed", "--ro"), "an option that is not shown"
    assert ask_bash(path, "completion", "f") == ["fish"]
    assert ask_bash(path, "evaluate", "runs/") == []  # then bash looks for files
    shown = subprocess.run(["bash", "-c", f"source {path}; complete -p torchrl-agent"], capture_output=True, text=True)
    assert "-o default" in shown.stdout


def test_zsh_uses_what_bash_does_and_fish_has_its_own(printed):
    bash, zsh, fish = (printed(shell).read_text() for shell in SHELLS)
    assert zsh == "autoload -U +X bashcompinit && bashcompinit\n" + bash
    lines = fish.splitlines()
    assert len(lines) == 2 * len(VERBS)
    assert any(line.endswith(r"-a film -d 'film a run\'s policy'") for line in lines)
    assert f"complete -c torchrl-agent -n __fish_use_subcommand -f -a plot -d '{VERBS['plot'][1]}'" in lines
    (of_train,) = (line for line in lines if "seen_subcommand_from train'" in line)
    assert "smoke" in of_train.split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_can_read_their_scripts(printed, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    subprocess.run([shell, "-c", f"source {printed(shell)}"], check=True)


def test_another_shell_is_refused_in_one_line(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["completion", "csh"])
    assert "csh" in capsys.readouterr().err
