"""Whose module is it: decided by name and place alone."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import timeit
from pathlib import Path

import pytest

from florhook.hook import scope as scope_module
from florhook.hook.scope import Decision, Scope


def touch(*parts: object) -> str:
    path = Path(*map(str, parts))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of our own, so that no project lies around what the tests make."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_files_beside_the_script_and_in_the_working_folder_are_the_users(home: Path) -> None:
    """And those below them; others are not."""
    scope = Scope(str(home / "a"), str(home / "b"))
    assert scope.decide("m", touch(home, "a/m.py")) == Decision(True, "in the script's folder")
    assert scope.decide("m.x", touch(home, "a/m/deep/x.py")).user
    assert scope.decide("n", touch(home, "b/n.py")) == Decision(True, "in the working folder")
    assert not scope.decide("o", touch(home, "o.py")).user
    assert not scope.decide("o", touch(home, "ab/o.py")).user  # a longer name is another folder


@pytest.mark.parametrize("mark", [".git", "pyproject.toml", "setup.cfg", "setup.py"])
def test_the_project_around_the_script_is_the_users(home: Path, mark: str) -> None:
    """The nearest folder that looks like a project counts, with its editable packages."""
    touch(home, "p", mark)
    scope = Scope(str(home / "p/examples"), str(home / "elsewhere"))
    assert scope.decide("lib", touch(home, "p/src/lib/__init__.py")) == Decision(
        True, f"in the project {home}/p"
    )
    assert not scope.decide("x", touch(home, "x.py")).user


def test_the_home_folder_is_no_project(home: Path) -> None:
    """Dotfiles kept in git do not make everything at home the user's program."""
    touch(home, ".git")
    scope = Scope(str(home / "p"), str(home / "p"))
    assert scope.user_folders == [str(home / "p")]


def test_installations_are_not_the_users() -> None:
    """Every folder of every scheme, also when the script's folder is one that holds them."""
    scope = Scope(sys.prefix, os.sep)
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    for scheme in sysconfig.get_scheme_names():
        paths = sysconfig.get_paths(scheme)
        folders += [paths[key] for key in ("purelib", "platlib", "scripts", "stdlib")]
    for folder in folders:
        assert not scope.decide("x", f"{folder}/x.py").user
    for module in (os, pytest, scope_module):
        assert not scope.decide(module.__name__, module.__file__).user
    assert scope.decide("x", scope_module.__file__).reason == "in florhook itself"


def test_a_virtual_environment_in_the_project_is_not_the_users(home: Path) -> None:
    """Whether it is this interpreter's or another's; the project itself may be an environment."""
    touch(home, "p/setup.py")
    touch(home, "p/.venv/pyvenv.cfg")
    touch(home, "p/pyvenv.cfg")
    scope = Scope(str(home / "p"), str(home / "p"))
    library = touch(home, "p/.venv/lib/python3.9/site-packages/lib/__init__.py")
    assert scope.decide("lib", library) == Decision(False, f"in the virtual environment {home}/p/.venv")
    assert not scope.decide("x", touch(home, "p/.venv/src/x.py")).user
    inner = touch(home, "p/lib/python3.9/site-packages/lib.py")
    assert scope.decide("lib", inner) == Decision(False, "in site-packages")
    assert scope.decide("m", touch(home, "p/m.py")).user


def test_a_project_may_lie_below_the_interpreters_prefix(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside or inside its lib folder, the libraries in it stay the interpreter's."""
    for name in ("prefix", "base_prefix", "exec_prefix", "base_exec_prefix"):
        monkeypatch.setattr(sys, name, str(home / "usr"))
    script = touch(home, "usr/lib/app/train.py")
    library = touch(home, "usr/lib/other/x.py")
    beside = touch(home, "usr/app/train.py")
    assert Scope(str(Path(script).parent), str(home)).decide("__main__", script).user
    scope = Scope(str(home / "usr/app"), str(home / "usr/app"))
    assert scope.decide("__main__", beside).user
    assert scope.decide("x", library) == Decision(False, "in the interpreter's libraries")


def test_links_are_followed(home: Path) -> None:
    """A file is where it really is, and the folders may be spelled by a link."""
    real = touch(home, "real/m.py")
    (home / "link").symlink_to("real")
    (home / "p").mkdir()
    (home / "p/m.py").symlink_to(real)
    assert Scope(str(home / "link"), str(home / "p")).decide("m", real).user
    assert Scope(str(home / "real"), str(home / "real")).decide("m", f"{home}/link/m.py").user
    assert not Scope(str(home / "p"), str(home / "p")).decide("m", f"{home}/p/m.py").user


def test_what_is_no_file_is_not_the_users(home: Path) -> None:
    """Names in angle brackets, missing files and modules without a file."""
    scope = Scope(str(home), str(home))
    assert not scope.decide("x", None).user
    assert not scope.decide("x", "<string>").user
    assert not scope.decide("x", str(home / "missing.py")).user
    assert scope.decide("x", Path(touch(home, "x.py"))).user


def test_relative_paths_count_from_the_working_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`__file__` may be relative."""
    touch(home, "p/m.py")
    monkeypatch.chdir(home / "p")
    assert Scope(None, str(home / "p")).decide("m", "m.py").user


def test_patterns_decide_before_places(home: Path) -> None:
    """Exclusion wins over inclusion, inclusion over location; a name stands for what is below it, and no more."""
    scope = Scope(
        str(home), str(home), include=("lib", "x*.train"), exclude=("lib.internal", "mine", "*_pb2")
    )
    mine = touch(home, "m.py")
    assert scope.decide("lib", os.__file__) == Decision(True, "included by lib")
    assert scope.decide("lib.loops.fit", os.__file__).user
    assert not scope.decide("library", os.__file__).user
    assert scope.decide("lib.internal.x", os.__file__) == Decision(False, "excluded by lib.internal")
    assert scope.decide("xyz.train", os.__file__).user
    assert not scope.decide("xyz.trainer", os.__file__).user
    assert not scope.decide("mine", mine).user
    assert not scope.decide("mine.sub", mine).user
    assert scope.decide("mines", mine).user
    assert not scope.decide("a.b_pb2", mine).user


def test_a_decision_is_a_frozen_value() -> None:
    """It compares by value and cannot be changed."""
    decision = Decision(True, "why")
    assert decision == Decision(True, "why")
    assert len({decision, Decision(True, "why"), Decision(False, "why")}) == 2
    assert repr(decision) == "Decision(True, 'why')"
    with pytest.raises(AttributeError):
        decision.user = False


def test_library_modules_are_decided_in_microseconds() -> None:
    """A program may import 3,000 of them."""
    scope = Scope(str(Path.cwd()), str(Path.cwd()))
    path = f"{site.getsitepackages()[0]}/package/module.py"
    seconds = min(timeit.repeat(lambda: scope.decide("package.module", path), number=1000, repeat=5)) / 1000
    assert seconds < 20e-6
