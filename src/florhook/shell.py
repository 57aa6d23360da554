"""`florhook shell RUN --at epoch=12`: a Python prompt inside a recorded program, at a place of its run.

The recorded program is brought to the place as on the way of a resume (`replay/resume.py`), in an overlay; what is
different is what happens there.
"""

from __future__ import annotations

import code
import importlib
import json
import os
import shutil
import sys
from types import FrameType, ModuleType
from typing import Any, NoReturn

from .descriptors import high_copy, low_ones_reserved
from .errors import RefusedError, UsageError
from .hash_seed import pin_hash_seed
from .launch import run
from .record import watch
from .replay.asked import refuse_cells, refuse_ranks
from .replay.record import Record
from .replay.resume import TASK, Attempt, end_children, start_again
from .replay.resume_edits import Changes
from .replay.resume_plan import Moment, find_moment, parse_moment, place_text
from .replay.target import target_of
from .runtime import entropy
from .runtime.resumer import Resumed, Resumer
from .runtime.visitor import Visitor
from .settings import Settings
from .store.store import Store


def shell(settings: Settings, words: list[str]) -> None:
    """Open the prompt; does not return."""
    which, at = _arguments(settings, words)
    text = os.environ.pop(TASK, None)
    if text is None:
        with Store.open(settings.home) as store:
            record = Record(store, store.find(which))
        refuse_ranks(record.run, "entered by shell")
        refuse_cells(record.run, "entered by shell")
        _place(record, parse_moment(at) if at else {})  # refuses what never was
        if os.path.isdir(record.run.cwd):
            os.chdir(record.run.cwd)
        target = target_of(record.run, settings)
        if target.kind == "script" and not os.path.exists(target.value):
            raise RefusedError(f"{target.value}, which run {record.run.id} is of, is not there any more")
        task: dict[str, Any] = {"run": record.run.id, "before": None, "avoid": [], "already": 0}
        start_again({**task, "cwd": os.getcwd(), "home": str(settings.home)}, record.run, dict(os.environ))
    pin_hash_seed()
    task = json.loads(text)
    os.chdir(task["cwd"])
    with low_ones_reserved():
        visit = Visit(settings, task, at)
    visit.run()


def _arguments(settings: Settings, words: list[str]) -> tuple[str, str]:
    """The run and the moment, which may be given in front of `shell` or behind it."""
    which, at, rest = "", settings.at or "", list(words)
    while rest:
        word = rest.pop(0)
        if word == "--at":
            if not rest:
                raise UsageError("--at needs a value")
            at = ",".join(filter(None, [at, rest.pop(0)]))
        elif word.startswith("--at="):
            at = ",".join(filter(None, [at, word[len("--at=") :]]))
        elif word.startswith("-") or which:
            raise UsageError(f"shell takes a run and --at epoch=7, not {word!r}")
        else:
            which = word
    return which or settings.run, at


def _place(record: Record, wanted: dict[str, int]) -> tuple[Moment | None, dict[str, int]]:
    """The place as far as the record tells it, and what is left to be looked for while the program runs."""
    names = list(wanted)
    for count in range(len(names), 0, -1):
        some = {name: wanted[name] for name in names[:count]}
        try:
            moment = find_moment(record, some)
        except RefusedError:
            if _all_are_known(record, names[count - 1]):
                raise
            continue  # iterations that are too short to have rows can only be found by running
        return moment, wanted if count < len(names) else {}
    return None, wanted


def _all_are_known(record: Record, name: str) -> bool:
    """Whether the record has the values that a loop variable had in all iterations.

    Not those of loops inside others: executions that took no time have no rows.
    """
    loops = [loop for loop in record.loops.values() if name in dict(loop.site.labels)]
    return bool(loops) and all(
        loop.row.parent < 0 and len(loop.iterations) >= loop.known and not loop.site.tight for loop in loops
    )


class Visit(Attempt):
    """One start of the program, up to the place."""

    def __init__(self, settings: Settings, task: dict[str, Any], at: str) -> None:
        self.wanted = parse_moment(at) if at else {}
        with Store.open(settings.home) as store:
            target = target_of(store.find(task["run"]), settings)
        super().__init__(target, settings, task)
        self.program.text = self.record.text_of  # the program as it was, whatever has become of it since
        self.stdin = high_copy(0) if sys.stdin is not None else -1
        self.arrived = False

    def _find_changes(self) -> Changes:
        return Changes({key: key for key in self.record.sites})

    def run(self) -> None:
        watch(self.target, self.settings, self.program, entropy.guarded(self._set_state))
        run(self.target, self.program.transform, self.start, self._at_exit)

    def _at_start(self, module: ModuleType) -> None:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # what is typed is for the prompt
        os.close(nothing)
        if not self.wanted and self.point is None:
            self._cannot("it has no checkpoint; --at epoch=7 runs it up to there")
        if not self.wanted:
            super()._at_start(module)
            return
        self._begin_program(module)
        moment, wanted = _place(self.record, self.wanted)
        around = {} if moment is None else moment.around(self.record)
        self._guide(Visitor(self.program, self.record, around, wanted, self.again, self._open, self._missed))

    def _take_over(self, resumer: Resumer | None) -> Resumed:
        """The newest state was asked for."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") not in self.program.user_modules:
            frame = frame.f_back
        assert frame is not None
        self._open(frame)

    def _open(self, frame: FrameType) -> NoReturn:
        """The prompt; leaving it ends the process, and nothing after it is run."""
        self.arrived = True
        self.held.release("", 0)
        if self.stdin >= 0:
            os.dup2(self.stdin, 0)
        self._say_where(frame)
        try:
            _prompt(frame)
        except SystemExit:
            pass
        finally:
            self._leave(0)

    def again(self, name: str, reason: str) -> NoReturn:
        if self.arrived:
            raise LookupError(reason)  # for whoever typed it
        if self.stdin >= 0:
            os.dup2(self.stdin, 0)
        super().again(name, reason)

    def _leave(self, status: int) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                continue
        end_children()
        if self.overlay is not None:
            with self.overlay.paused():
                shutil.rmtree(os.path.dirname(self.overlay.version_of("")), ignore_errors=True)
        os._exit(status)

    def _say_where(self, frame: FrameType) -> None:
        if self.wanted:
            where = ", ".join(f"{name}={value}" for name, value in self.wanted.items())
            where = f"at the first line of the loop's body with {where}"
        else:
            where = place_text(self.record, self.point) if self.point is not None else "at its start"
        line = f":{frame.f_lineno}" if frame.f_lineno else ""
        sys.stderr.write(
            f"florhook: run {self.run_before.id} {where}, {frame.f_code.co_filename}{line}; "
            "leave with exit() or Ctrl-D\n"
        )
        sys.stderr.flush()

    def _missed(self) -> NoReturn:
        said = ", ".join(f"{name}={value}" for name, value in self.wanted.items())
        sys.stderr.write(f"florhook: run {self.run_before.id} has no iteration with {said}\n")
        self._leave(RefusedError.exit_code)

    def _at_exit(self, exit_code: int) -> None:
        if not self.arrived:
            self._missed()


def _prompt(frame: FrameType) -> None:
    """IPython on a terminal, where it is installed, else Python's own prompt."""
    names = frame.f_globals
    if frame.f_locals is not frame.f_globals:
        # One dict, so that comprehensions and functions of the prompt see the locals too.
        names = {**frame.f_globals, **frame.f_locals}
    if _is_terminal() and _ipython(names):
        return
    console = _Console(names) if not _is_terminal() else code.InteractiveConsole(names)
    if _is_terminal():
        _enable_history(names)
    console.interact(banner="", exitmsg="")


def _is_terminal() -> bool:
    return os.isatty(0) and os.isatty(1)


def _ipython(names: dict[str, Any]) -> bool:
    try:
        embed: Any = importlib.import_module("IPython.terminal.embed")
    except ImportError:
        return False
    module = ModuleType("__main__")
    vars(module).update(names)
    embed.InteractiveShellEmbed(banner1="", exit_msg="", confirm_exit=False)(local_ns=names, module=module)
    return True


def _enable_history(names: dict[str, Any]) -> None:
    try:
        import readline
        import rlcompleter
    except ImportError:
        return
    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")


class _Console(code.InteractiveConsole):
    """Reads from a pipe, without prompts among the output."""

    def raw_input(self, prompt: str = "") -> str:
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")
