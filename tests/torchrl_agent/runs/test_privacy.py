"""Nothing that a run writes tells whose it is or on which machine it was made; names of runs stay in their folder."""

import socket

import pytest

from torchrl_agent import Experiment, cli, load_agent, train
from torchrl_agent.core.run_names import check_run_name
from torchrl_agent.core.text import with_tilde, without_tilde

HOST, USER = "hostofsecret", "userofsecret"
SMALL = ("world.num_envs=8", "algorithm={rollout_steps: 4, minibatch_size: 16}", "device=cpu", "total_frames=64")
QUICK = (
    "device=cpu",
    "run={film: false, checkpoint_every: 32}",
    "evaluation.episodes=2",
    "+evaluation.world.rules={max_steps: 4}",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder of a user whose name stands nowhere else, on a machine whose name does not either."""
    home = tmp_path / USER
    (home / "project").mkdir(parents=True)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, USER)
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    monkeypatch.chdir(home / "project")
    return home


def telling(folder):
    """Files that tell the user, or the machine, by their names or their content."""
    secrets = (HOST, USER)
    return [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if any(secret in path.relative_to(folder).as_posix() for secret in secrets)
        or (path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets))
    ]


def test_nothing_that_a_run_writes_tells_the_user_or_the_machine(home):
    files = [f"run.folder={home}/runs", "run.name=run", "population.members=2"]
    list(train(Experiment.load("smoke", *files, *SMALL, *QUICK)))
    folder = home / "runs" / "run"
    assert (folder / "README.md").is_file() and list((folder / "tensorboard").iterdir())
    assert telling(folder) == []
    assert cli.main(["export", str(folder), "--output", str(home / "policy.pt2")]) == 0
    assert telling(home) == []
    assert Experiment.load(folder / "config.yaml").run.folder == "~/runs"
    assert load_agent("~/runs/run")


def test_the_machine_is_named_where_it_is_asked_for(home):
    files = ["run.name=run", "run.record_host=true", "run.final_evaluation=false"]
    list(train(Experiment.load("smoke", *files, *SMALL, *QUICK)))
    (events,) = (home / "project" / "runs" / "run" / "tensorboard").iterdir()
    assert HOST in events.name


def test_paths_are_the_users_own_again_where_they_are_read(home):
    values = {"a": [f"{home}/b", str(home), f"{home}x/b", 3], "c": {"d": "~"}}
    assert with_tilde(values) == {"a": ["~/b", "~", f"{home}x/b", 3], "c": {"d": "~"}}
    assert without_tilde(with_tilde(values)) == {"a": [f"{home}/b", str(home), f"{home}x/b", 3], "c": {"d": str(home)}}


@pytest.mark.parametrize("name", ["first", "3.10", "größe", "arena-1", "group/first", "a b", "x" * 200])
def test_names_that_are_folders_are_taken(name):
    check_run_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        (".", "begin with a dot"),
        ("..", "begin with a dot"),
        ("../../escaped", "begin with a dot"),
        ("group/../../escaped", "begin with a dot"),
        ("/tmp/elsewhere", "begins or ends with a slash"),
        ("group/", "begins or ends with a slash"),
        ("C:\\runs", "':' cannot be in a name"),
        ("..\\escaped", "begin with a dot"),
        ("group\\..", r"'\\\\' cannot be in a name"),
        ("two\nlines", r"'\\n' cannot be in a name"),
        ("\x1b[31mred", r"'\\x1b' cannot be in a name"),
        ("\u202egpj", r"'\\u202e' cannot be in a name"),
        ("<img src=x>", "'<' cannot be in a name"),
        ("`code`", "'`' cannot be in a name"),
        ("nul", "Windows keeps that name"),
        ("COM1.txt", "Windows keeps that name"),
        ("ends.", "end with a dot"),
        (" padded ", "begin or end with a space"),
        ("x" * 201, "longer than 200 bytes"),
        ("ö" * 101, "longer than 200 bytes"),
    ],
)
def test_names_that_lead_elsewhere_or_harm_are_refused(tmp_path, monkeypatch, name, reason):
    monkeypatch.chdir(tmp_path)
    experiment = Experiment.load("smoke", "device=cpu")
    experiment.run.name = name
    for refuse in (lambda: check_run_name(name), lambda: next(train(experiment))):
        with pytest.raises(ValueError, match=reason) as caught:
            refuse()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../escaped", "/tmp/elsewhere", "."])
def test_a_configuration_that_leads_elsewhere_is_refused_as_it_is_loaded(name):
    with pytest.raises(ValueError, match=r"runs lie inside run\.folder"):
        Experiment.load("smoke", f"run.name={name}")
