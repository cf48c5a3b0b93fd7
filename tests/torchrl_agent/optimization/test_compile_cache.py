"""The folder of compiled code."""

import os

import pytest

from torchrl_agent import cli
from torchrl_agent.optimization import compile_cache


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv(compile_cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path
    os.environ.pop(compile_cache.VARIABLE, None)


def write(folder, name, size, age):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (1000 - age, 1000 - age))


def test_pytorch_keeps_compiled_code_in_the_users_cache(home):
    compile_cache.keep_compiled_code()
    folder = home / "torchrl_agent" / "compiled"
    assert os.environ[compile_cache.VARIABLE] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_chosen_stays(home, monkeypatch):
    monkeypatch.setenv(compile_cache.VARIABLE, "/elsewhere")
    compile_cache.keep_compiled_code()
    assert os.environ[compile_cache.VARIABLE] == "/elsewhere"


def test_a_folder_that_cannot_be_made_is_left_to_pytorch(home):
    (home / "torchrl_agent").write_text("a file", encoding="utf-8")
    compile_cache.keep_compiled_code()
    assert compile_cache.VARIABLE not in os.environ


def test_the_oldest_files_go_until_half_is_left(home):
    for age in range(5):
        write(compile_cache.own_folder(), f"of/{age}", 100, age)
    compile_cache.shrink(500)
    assert len(compile_cache.files_of(compile_cache.own_folder())) == 5
    compile_cache.shrink(400)
    assert sorted(path.name for *_, path in compile_cache.files_of(compile_cache.own_folder())) == ["0", "1"]


def test_a_folder_of_the_users_choice_is_not_deleted(home, monkeypatch, capsys):
    write(home, "mine/thesis.tex", 10, 0)
    monkeypatch.setenv(compile_cache.VARIABLE, str(home / "mine"))
    assert cli.main(["cache", "--clear"]) == 2
    assert "delete it yourself" in capsys.readouterr().err
    assert (home / "mine" / "thesis.tex").is_file()


def test_the_command_says_its_size_and_clears_it(home, capsys):
    folder = home / "torchrl_agent" / "compiled"
    write(folder, "code.so", 3 << 20, 0)
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{folder}: 1 files, 3 MiB\n"
    assert cli.main(["cache", "--clear"]) == 0
    assert not folder.exists()
