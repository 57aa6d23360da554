"""The command line: our options, split by hand from the program's, and the subcommands."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from . import __version__
from .descriptors import fill_standard_ones
from .errors import FlorError, RefusedError, StoreError, UsageError
from .hash_seed import HASH_SEED, pin_hash_seed
from .launch import Target, exit_status, folder_of, run_plainly
from .settings import Settings, from_sources
from .shadows import clashes, forget, working_folder
from .uncollected import no_collections

VALUES = (
    *("mode", "home", "run", "epsilon", "workers", "select", "log", "stats", "at", "max_bytes"),
    *("probe", "until", "runs", "executor", "cluster"),
)
SWITCHES = ("force", "trust", "plan", "monotone", "quiet", "help", "version")
SHORT = {"h": "help", "V": "version", "q": "quiet", "max-bytes": "max_bytes"}
SUBCOMMANDS = {  # where the function is that takes the settings and the words behind the subcommand
    "runs": ("views.tables", "runs"),
    "show": ("views.tables", "show"),
    "logs": ("views.logs", "logs"),
    "export": ("views.logs", "export_values"),
    "view": ("views.view", "view"),
    "diff": ("views.diff", "diff"),
    "verify": ("views.verify", "verify"),
    "shell": ("shell", "shell"),
    "doctor": ("doctor.report", "doctor"),
    "gc": ("views.retention", "gc"),
    "pin": ("views.retention", "pin"),
    "unpin": ("views.retention", "unpin"),
    "push": ("views.push", "push"),
    "init": ("init", "init"),
    "completion": ("completion", "completion"),
    "sitedir": ("activate", "show_sitedir"),
}
HERE = ("sitedir", "doctor", "init", "completion")  # what needs no store, or that of this machine

OURS = {"FLORHOOK_TASK", "FLORHOOK_RESUME"}  # in the environment of processes that ours have started
REPLAYS = ("plan", "probe", "until", "monotone")  # what only replays have


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the process's exit status is the program's own, or ours if we refuse."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        flags, rest = split(words)
        if "version" in flags:
            print(f"florhook {__version__}")
        elif "help" in flags or _asks_for_help(rest):
            from .help import page_for

            print(page_for(rest), end="")
        else:
            _dispatch(flags, rest)
    except FlorError as error:
        _say(str(error))
        raise SystemExit(error.exit_code) from None


def split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Our options, up to the first word that is none of ours; the rest belongs to the program."""
    flags: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        name, equals, value = words[at].lstrip("-").partition("=")
        name = SHORT.get(name, name)
        at += 1
        if words[at - 1] == "--":
            break
        if name in SWITCHES:
            flags[name] = ""
        elif name in VALUES:
            if not equals:
                if at == len(words):
                    raise UsageError(f"{words[at - 1]} needs a value")
                value, at = words[at], at + 1
            if name == "until" and name in flags:
                raise UsageError("--until asks for one expression")
            flags[name] = "\0".join([flags[name], value]) if name == "probe" and name in flags else value
        else:
            raise UsageError(f"unknown option {words[at - 1]}; see python -m florhook --help")
    return flags, words[at:]


def _asks_for_help(rest: list[str]) -> bool:
    """Whether it is the subcommand's help that is asked for; what follows a program of doctor's is the program's."""
    if not rest or rest[0] not in (*SUBCOMMANDS, "replay") or _is_program(rest[0]):
        return False
    return not {"--help", "-h"}.isdisjoint(rest[1:2] if rest[0] == "doctor" else rest[1:])


def _dispatch(flags: dict[str, str], rest: list[str]) -> None:
    here = working_folder()
    if not here:
        _go_without_folder(flags, rest)
        return
    settings = from_sources(os.environ, flags, Path(here))
    if "at" in flags and settings.mode != "resume" and rest[:1] not in (["shell"], ["pin"]):
        raise UsageError("--at goes with --mode resume, with shell or with pin")
    if rest[:1] == ["replay"] and not _is_program("replay"):
        _replay(flags, rest[1:])
        return
    if "runs" in flags:
        raise UsageError("--runs goes with florhook replay")
    for name in REPLAYS:
        if name in flags and settings.mode != "replay":
            raise UsageError(f"--{name} goes with replay: florhook replay, or --mode replay")
    if not rest:
        raise UsageError("no program was named; see python -m florhook --help")
    if rest[0] in SUBCOMMANDS and not _is_program(rest[0]):
        _tell_problem(settings)
        fill_standard_ones()
        try:
            _subcommand(settings, rest)
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:  # nobody reads on: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise SystemExit(1) from None
    else:
        _refuse_slips(rest[0])
        run_target(target_of(rest), settings)


def _go_without_folder(flags: dict[str, str], rest: list[str]) -> None:
    """The working folder was removed: Python runs a program all the same, and so do we."""
    problem = "the working folder is not there any more"
    mode = flags.get("mode", os.environ.get("FLOR_MODE") or "record")
    if mode not in ("record", "off") or not rest or (rest[0] in SUBCOMMANDS and not _is_program(rest[0])):
        raise UsageError(problem)
    _say(f"{problem}; the program runs without being recorded")
    run_plainly(target_of(rest))


def _refuse_slips(word: str) -> None:
    """A word that is no program, and almost a subcommand."""
    if not word.isalpha() or os.path.exists(word):
        return
    import difflib

    meant = difflib.get_close_matches(word, (*SUBCOMMANDS, "replay"), 1)
    if meant:
        raise UsageError(f"there is no file {word}; for the subcommand: florhook {meant[0]}")


def _replay(flags: dict[str, str], words: list[str]) -> None:
    """`florhook replay [RUN] [options]`: the recorded program with its arguments, and what is asked of it."""
    before, names = split(words)
    behind, rest = split(names[1:])
    if rest:
        raise UsageError(f"replay takes one run, and options; not {rest[0]!r}")
    parts = (flags, before, behind)
    probes = [part["probe"] for part in parts if "probe" in part]
    merged = {name: value for part in parts for name, value in part.items()} | {"mode": "replay"}
    if probes:
        merged["probe"] = "\0".join(probes)
    if names:
        merged["run"] = names[0]
    settings = from_sources(os.environ, merged, Path.cwd())
    if settings.remote is not None:
        _reach(settings, reading=True)
    if settings.runs is not None and not os.environ.get("FLORHOOK_TASK"):
        if settings.until is not None or settings.plan:
            raise UsageError("--runs goes without --until and --plan")
        from .replay.older import replay_runs

        raise SystemExit(replay_runs(settings))
    from .replay.target import target_asked_for

    run_target(target_asked_for(settings), settings)


def _is_program(path: str) -> bool:
    """Whether Python could run it; many have folders named `runs` or `logs`."""
    return os.path.exists(os.path.join(path, "__main__.py")) if os.path.isdir(path) else os.path.exists(path)


def target_of(words: list[str]) -> Target:
    """The program that words name, as python's own command line does."""
    first = words[0]
    if first in ("-m", "-c"):
        if len(words) == 1:
            raise UsageError(f"{first} needs {'a module' if first == '-m' else 'code'}")
        return Target("module" if first == "-m" else "code", words[1], words[2:])
    return Target("script", first, words[1:])


def run_target(target: Target, settings: Settings | None = None) -> None:
    """Run a program in the mode that the settings say. Returns or raises SystemExit as the program ends."""
    if settings is None:
        settings = from_sources(os.environ, {}, Path.cwd())
    if settings.mode == "off" or not (taken := clashes(folder_of(target))):
        _run(target, settings)
        return
    place = os.path.join(folder_of(target), taken[0])
    reason = f"{place} has the name of a module that florhook needs itself: give it another name"
    if settings.mode != "record":
        raise RefusedError(reason)
    _say(f"{reason}; the program runs without being recorded")
    forget(taken)
    run_plainly(target)


def _run(target: Target, settings: Settings) -> None:
    if settings.remote is not None:
        _reach(settings, reading=settings.mode in ("replay", "resume"))
    if settings.mode != "record":
        if HASH_SEED in os.environ and not OURS & os.environ.keys():
            pin_hash_seed()  # `pin_early` did not know of a mode in pyproject.toml: the variables are as they were
        _tell_problem(settings)
    if settings.mode == "replay" and not OURS & os.environ.keys():
        fill_standard_ones()
    if os.environ.get("FLORHOOK_TASK"):
        from .replay.worker import run_worker

        run_worker(target, settings)
    elif settings.mode == "record" and target.kind == "script" and not os.path.exists(target.value):
        run_plainly(target)  # which says so, as python does
    elif settings.mode == "record":
        with no_collections():
            from .begin import record

        record(target, settings)
    elif settings.mode == "replay" and settings.until is not None:
        from .replay.until import search

        raise SystemExit(search(target, settings))
    elif settings.plan:
        from .replay.supervisor import estimate
        from .views.plan import show_plan

        show_plan(*estimate(target, settings))
    elif settings.mode == "replay":
        from .replay.supervisor import replay

        raise SystemExit(replay(target, settings))
    elif settings.mode == "resume":
        from .replay.resume import resume

        resume(target, settings)
    else:
        run_plainly(target)


def _reach(settings: Settings, reading: bool) -> None:
    """A folder for a store at a URL; with what is new there, where we are going to read and have not looked yet."""
    from .store import remote
    from .store.home import catalog_path

    try:
        remote.attach(settings.home, settings.remote or "")
    except OSError as error:
        if reading:
            raise StoreError(f"{settings.home} cannot be made: {error.strerror}") from None
        return  # the recording will say so
    if reading and not OURS & os.environ.keys():
        try:
            for problem in remote.refresh(settings.home):
                _say(problem)
        except StoreError as error:
            if not catalog_path(settings.home).exists():
                raise
            _say(f"{error}; this is what {settings.home} has of it")


def _subcommand(settings: Settings, words: list[str]) -> None:
    if settings.remote is not None and words[0] not in HERE:
        _reach(settings, reading=words[0] != "push")
    module, name = SUBCOMMANDS[words[0]]
    function = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    function(settings, words[1:])


def _tell_problem(settings: Settings) -> None:
    if settings.problem and not OURS & os.environ.keys():
        _say(settings.problem)


def _say(text: str) -> None:
    sys.stderr.write(f"florhook: {text}\n")


__all__ = ["Target", "exit_status", "main", "run_target"]
