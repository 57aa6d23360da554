"""Takes over a program that was started as plain `python train.py`; called by `sitecustomize/sitecustomize.py`."""

# Paths are asked about as CPython spells them, and pathlib would slow every start.

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from florhook.hook.scope import Decision, Scope
from florhook.launch import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from florhook.settings import Settings


def sitedir() -> Path:
    """The folder to put on PYTHONPATH: beside the package in a wheel, at the root of the source tree."""
    from pathlib import Path

    package = Path(__file__).resolve().parent
    for folder in (package / "sitecustomize_dir", package.parent.parent / "sitecustomize"):
        if (folder / "sitecustomize.py").is_file():
            return folder.resolve()
    raise FileNotFoundError(f"there is no sitecustomize folder in or beside {package}")


def show_sitedir(settings: Settings, words: list[str]) -> None:
    """For the command line."""
    print(sitedir())


def take_over(event: str, argument: str) -> None:
    """Runs the user's program by florhook and raises SystemExit with its status; returns if it is not the user's.

    `event` is the audit event that announces the program, `argument` what came with it.
    """
    target = _target(event, argument)
    if not decide(target).user:
        return
    from florhook.cli import run_target

    run_target(target)
    raise SystemExit(0)


def decide(target: Target) -> Decision:
    """Tells whether a program is the user's: console scripts and modules in site-packages are not."""
    if target.kind == "module":
        return _decide_module(target.value)
    path = os.path.realpath(target.value)
    if os.path.isdir(path):
        return Scope(path, os.getcwd()).decide_folder(path)
    return Scope(os.path.dirname(path), os.getcwd()).decide("__main__", path)


def _decide_module(name: str) -> Decision:
    """Decides from the top package alone: looking for the module itself would import its parents."""
    spec = PathFinder.find_spec(name.partition(".")[0])
    scope = Scope(None, os.getcwd())
    if spec is None:
        return Decision(False, "no such module")
    if spec.origin is not None:
        return scope.decide(name, spec.origin)
    return scope.decide_folder(next(iter(spec.submodule_search_locations or ()), ""))


def _target(event: str, argument: str) -> Target:
    if event == "cpython.run_module" and sys.argv[0] == "-m":
        return Target("module", argument, sys.argv[1:])
    return Target("script", sys.argv[0], sys.argv[1:])
