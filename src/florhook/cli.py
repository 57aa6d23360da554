"""The command line: our options, split by hand from the program's, and the subcommands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import __version__
from .errors import FlorError, StoreError, UsageError
from .launch import Target, exit_status
from .settings import Settings, from_sources
from .store.home import catalog_path

VALUES = ("mode", "home", "run", "epsilon", "workers", "select", "log", "stats", "at", "max_bytes")
SWITCHES = ("force", "trust", "plan", "help", "version")
SUBCOMMANDS = ("runs", "show", "sitedir", "shell", "doctor", "gc", "pin", "unpin", "push")
LATER = ("logs", "diff", "view", "verify", "export", "replay")

HELP = """\
usage: python -m florhook [options] script.py [args...]     record (also: -m package.module, -c code, a folder, a zip)
       FLOR_MODE=replay python -m florhook script.py [args...]
       FLOR_MODE=resume python -m florhook script.py [args...]      continue a run that crashed or was killed
       python -m florhook runs                              the recorded runs
       python -m florhook show RUN                          one run in detail
       python -m florhook shell RUN [--at epoch=7]          a Python prompt at a place of a run
       python -m florhook gc [--dry-run] [--compact] [--max-bytes N] [--delete RUN]...
                                                            gives back room: what no run needs, what a limit is short of
       python -m florhook pin RUN [--at epoch=7] | unpin RUN     what gc and --max-bytes never remove
       python -m florhook push                              uploads what is left, where the store is at a URL
       python -m florhook doctor [-v] [script.py [args...]] what is recorded of a program; or whether it works here
       python -m florhook sitedir                           the folder for PYTHONPATH that makes plain python record

Records an unmodified program; after you have added a print, replays what it would have shown.

options (each also as a variable, FLOR_MODE for --mode and so on):
  --mode MODE        record (default), replay, resume, off
  --home FOLDER      the store (default: .florhook in the working folder), or a URL: s3://bucket/prefix
  --run RUN          which run to replay or resume: id, unique prefix or last (default)
  --epsilon SHARE    the most that recording may add (default 0.0667); inf: every boundary
  --workers N        replay processes (default 1), or auto: by cores or GPUs, and memory
  --select CHOICE    which iterations to replay: epoch=3:5, epoch=::10, step=400:, by the loop variable's value,
                     or by the iteration's number where the variable is no number
  --at PLACE         resume before the iteration with that loop variable, epoch=7, as a new run of the program of now
  --max-bytes N      the most that the store may take, 500M or 20G: older checkpoints are thinned out evenly
  --log WHAT         what a replay prints: hindsight (default) or all
  --plan             show what a replay would run and about how long that takes, and stop
  --stats FILE       write the figures of the run to FILE as JSON
  --force            replay in spite of an edit that changes the program, or replay or resume with other arguments
  --trust            replay a store that another user wrote
  --help, --version
also: FLOR_INCLUDE, FLOR_EXCLUDE: patterns of modules to treat as yours, or not; FLOR_KEY: the file of the key that
signs what is recorded.
"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; the process's exit status is the program's own, or ours if we refuse."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        flags, rest = split(words)
        if "version" in flags:
            print(f"florhook {__version__}")
        elif "help" in flags:
            print(HELP, end="")
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
        name = {"h": "help", "V": "version", "max-bytes": "max_bytes"}.get(name, name)
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
            flags[name] = value
        else:
            raise UsageError(f"unknown option {words[at - 1]}; see python -m florhook --help")
    return flags, words[at:]


def _dispatch(flags: dict[str, str], rest: list[str]) -> None:
    settings = from_sources(os.environ, flags, Path.cwd())
    if "at" in flags and settings.mode != "resume" and rest[:1] not in (["shell"], ["pin"]):
        raise UsageError("--at goes with --mode resume, with shell or with pin")
    if settings.plan and settings.mode != "replay":
        raise UsageError("--plan goes with --mode replay")
    if not rest:
        raise UsageError("no program was named; see python -m florhook --help")
    if rest[0] in SUBCOMMANDS and not os.path.exists(rest[0]):
        try:
            _subcommand(settings, rest)
            sys.stdout.flush()
        except BrokenPipeError:  # nobody reads on: `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise SystemExit(1) from None
    elif rest[0] in LATER and not os.path.exists(rest[0]):
        raise UsageError(f"the subcommand {rest[0]} is not there yet")
    else:
        run_target(target_of(rest), settings)


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
    if settings.remote is not None:
        _reach(settings, reading=settings.mode in ("replay", "resume"))
    if os.environ.get("FLORHOOK_TASK"):
        from .replay.worker import run_worker

        run_worker(target, settings)
    elif settings.mode == "record":
        from .begin import record

        record(target, settings)
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
        from .record import run_plainly

        run_plainly(target)


def _reach(settings: Settings, reading: bool) -> None:
    """A folder for a store at a URL; with what is new there, where we are going to read and have not looked yet."""
    from .store import remote

    try:
        remote.attach(settings.home, settings.remote or "")
    except OSError as error:
        if reading:
            raise StoreError(f"{settings.home} cannot be made: {error.strerror}") from None
        return  # the recording will say so
    if reading and not {"FLORHOOK_TASK", "FLORHOOK_RESUME"} & os.environ.keys():
        try:
            for problem in remote.refresh(settings.home):
                _say(problem)
        except StoreError as error:
            if not catalog_path(settings.home).exists():
                raise
            _say(f"{error}; this is what {settings.home} has of it")


def _push(settings: Settings, words: list[str]) -> None:
    from .store import remote

    if len(words) > 1:
        raise UsageError(f"push takes no arguments, not {words[1]!r}")
    if settings.remote is None:
        raise UsageError("push is for a store at a URL: FLOR_HOME=s3://bucket/prefix")
    for line in remote.push(settings.home):
        print(line)


def _subcommand(settings: Settings, words: list[str]) -> None:
    if settings.remote is not None and words[0] not in ("sitedir", "doctor"):
        _reach(settings, reading=words[0] != "push")
    if words[0] == "push":
        _push(settings, words)
        return
    if words[0] == "sitedir":
        from .activate import sitedir

        print(sitedir())
        return
    if words[0] == "doctor":
        from .doctor.report import doctor

        doctor(settings, words[1:])
        return
    if words[0] == "shell":
        from .shell import shell

        shell(settings, words[1:])
        return
    if words[0] == "gc":
        from .views.retention import gc

        gc(settings, words[1:])
        return
    if words[0] in ("pin", "unpin"):
        from .views.retention import pin

        pin(settings, words[1:], words[0] == "pin")
        return
    from .views.tables import runs_table, show_run

    if words[0] == "runs":
        if len(words) > 1:
            raise UsageError(f"runs takes no arguments, not {words[1]!r}")
        runs_table(settings.home)
    else:
        if len(words) > 2:
            raise UsageError("show takes one run: id, unique prefix or last")
        show_run(settings.home, words[1] if len(words) == 2 else settings.run)


def _say(text: str) -> None:
    sys.stderr.write(f"florhook: {text}\n")


__all__ = ["Target", "exit_status", "main", "run_target"]
