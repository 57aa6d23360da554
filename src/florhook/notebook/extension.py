"""The magics: `%%record`, `%%replay` and `%florhook`.

A cell that begins with `%%record` is no argument of a magic: its first line becomes a comment, and its syntax tree is
rewritten before IPython runs it as any other cell. So what it displays, raises and leaves in `Out` is as without.
"""

from __future__ import annotations
import __future__

import ast
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import cli
from ..errors import FlorError, RefusedError, UsageError
from ..hook.diff import compare
from ..launch import INTERRUPTED, exit_status
from ..runs import is_cell
from ..runtime.cells import MAIN, script_of, split
from ..settings import Settings, from_sources
from ..store.rows import RunRow
from ..store.store import Store, settle
from .definitions import definitions, edited, of_script
from .recording import CellRecording, say
from .stream import run_florhook

FIRST_LINE = re.compile(r"%%record(?:[ \t](?P<words>.*))?$")
RECORD_OPTIONS = {"home", "epsilon", "max_bytes", "stats"}
ATTRIBUTE = "_florhook"  # of the shell
OWN = re.compile(r"_{1,3}|_i{1,3}|_i?\d+|_[di]h|_oh|In|Out|get_ipython|exit|quit|open|_exit_code")
FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
PATIENCE = 30.0  # seconds for the writer of a cell that ended just now


def load(shell: Any) -> None:
    """`%load_ext florhook`."""
    if not hasattr(shell, ATTRIBUTE):
        extension = Extension(shell)
        extension.put_in_place()
        setattr(shell, ATTRIBUTE, extension)


def unload(shell: Any) -> None:
    """`%unload_ext florhook`."""
    extension = getattr(shell, ATTRIBUTE, None)
    if extension is not None:
        extension.take_away()
        delattr(shell, ATTRIBUTE)


class Extension(ast.NodeTransformer):
    """What one shell has of florhook. It is a transformer of syntax trees, too, as IPython calls them."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.waiting: tuple[str, int, Settings] | None = (
            None  # the cell that is about to run, its number, and how
        )
        self.recording: CellRecording | None = None
        self.recorded: list[str] = []  # ids of this notebook's runs

    def put_in_place(self) -> None:
        shell = self.shell
        shell.input_transformers_cleanup.append(self.uncover)
        shell.ast_transformers.append(self)
        shell.events.register("pre_run_cell", self.before_cell)
        shell.events.register("post_run_cell", self.after_cell)
        shell.register_magic_function(self.record, "cell", "record")
        shell.register_magic_function(self.replay, "cell", "replay")
        shell.register_magic_function(self.florhook, "line", "florhook")

    def take_away(self) -> None:
        shell = self.shell
        shell.input_transformers_cleanup.remove(self.uncover)
        shell.ast_transformers.remove(self)
        shell.events.unregister("pre_run_cell", self.before_cell)
        shell.events.unregister("post_run_cell", self.after_cell)
        for kind, name in (("cell", "record"), ("cell", "replay"), ("line", "florhook")):
            shell.magics_manager.magics[kind].pop(name, None)

    # %%record ------------------------------------------------------------------------------------------------

    def uncover(self, lines: list[str]) -> list[str]:
        """The first line of a cell that is to be recorded is a comment; asked for cells that are not run, too."""
        match = FIRST_LINE.match(lines[0].rstrip("\n")) if lines else None
        if match is None or _asks_for_help(match) or _settings_or_reason(match)[1]:
            return lines
        return ["# " + lines[0], *lines[1:]]

    def before_cell(self, info: Any) -> None:
        """IPython is about to run a cell."""
        self.waiting = None
        match = FIRST_LINE.match(info.raw_cell.partition("\n")[0])
        if match is not None:
            settings, reason = _settings_or_reason(match)
            if not reason and settings.mode != "off":
                number = self.shell.execution_count - bool(info.store_history)
                self.waiting = info.raw_cell, number, settings

    def visit(self, node: ast.AST) -> ast.AST:
        """IPython has parsed a cell."""
        waiting, self.waiting = self.waiting, None
        if waiting is None or not isinstance(node, ast.Module) or self.recording is not None:
            return node
        raw, number, settings = waiting
        shell = self.shell
        main = sys.modules.get(MAIN)
        if main is None or main is not shell.user_module:
            say("this cell is not recorded: its variables are not those of __main__")
            return node
        recording = CellRecording(settings, number, main, self._hidden(node))
        try:
            cell = shell.transform_cell(raw)
            body = recording.begin(cell, self._earlier(), shell.compile.flags & FUTURES)
        except BaseException as error:
            recording.drop()
            if not isinstance(error, Exception):
                raise
            say(f"this cell is not recorded ({_reason(error)})")
            return node
        self.recording = recording
        return ast.Module(body, [])

    def after_cell(self, result: Any) -> None:
        """IPython has run a cell."""
        self.waiting = None
        recording, self.recording = self.recording, None
        if recording is None:
            return
        error = result.error_before_exec or result.error_in_exec
        try:
            recording.end(_exit_code(error))
        except Exception as failure:
            say(f"the record of this cell is not complete ({_reason(failure)})")
        self.recorded.append(recording.run)

    def _hidden(self, tree: ast.AST) -> Callable[[str], bool]:
        """Which variables are the notebook's own, and no state: those that the cell itself names are."""
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - {"get_ipython"}
        return lambda name: name not in named and OWN.fullmatch(name) is not None

    def _earlier(self) -> list[str]:
        """The cells of before, oldest first; the last of the history is the one that runs."""
        return list(self.shell.user_ns.get("In", []))[:-1]

    def record(self, line: str, cell: str) -> None:
        """Record the cell: `%%record [--epsilon SHARE] [--max-bytes N] [--home FOLDER] [--stats FILE]`.

        It must be the first line of the cell.
        """
        match = FIRST_LINE.match(f"%%record {line}")
        reason = _settings_or_reason(match)[1] if match is not None else ""
        raise _error(reason or "%%record must be the first line of a cell")

    # %%replay ------------------------------------------------------------------------------------------------

    def replay(self, line: str, cell: str) -> None:
        """Show what the statements added to a recorded cell would have printed: `%%replay [RUN] [options]`.

        The options are those of `florhook replay`. Nothing of the notebook is changed.
        """
        try:
            self._replay(shlex.split(line), cell)
        except FlorError as error:
            raise _error(str(error)) from None

    def _replay(self, words: list[str], cell: str) -> None:
        flags, rest = cli.split(words)
        more, behind = cli.split(rest[1:])
        if behind:
            raise UsageError(f"%%replay takes one run, and options; not {behind[0]!r}")
        settings = from_sources(os.environ, {**flags, **more, "mode": "replay"}, Path.cwd())
        text = self.shell.transform_cell(f"# %%replay\n{cell}")
        run, path, recorded = self._run_of(settings, text, rest[0] if rest else None)
        now = definitions(self._earlier())
        script = script_of(text, edited(of_script(split(recorded)[1]), now))
        folder = run.cwd if os.path.isdir(run.cwd) else os.getcwd()
        options = [*words[: len(words) - len(rest)], *rest[1:], "--home", str(settings.home)]
        path.write_text(script)
        try:
            status = run_florhook(["replay", run.id, *options], folder)
        finally:
            path.write_text(recorded)
        if status in (RefusedError.exit_code, UsageError.exit_code):
            raise RefusedError(f"the replay of run {run.id} was refused, for the reason given above")
        if status == 4:
            raise RefusedError(f"the replay of run {run.id} is not exact; see above")

    def _run_of(self, settings: Settings, text: str, wanted: str | None) -> tuple[RunRow, Path, str]:
        """The recorded cell that a text is an edit of: the newest that it adds probes to, or the one that is named."""
        settle(settings.home, PATIENCE)
        with Store.open(settings.home) as store:
            if wanted is not None:
                runs = [store.find(wanted)]
            else:
                runs = [
                    run for run in reversed(store.runs()) if is_cell(run.program) and run.id in self.recorded
                ]
                runs = runs or [run for run in reversed(store.runs()) if is_cell(run.program)]
            if not runs or not is_cell(runs[0].program):
                raise RefusedError("no cell was recorded; begin a cell with %%record, and run it")
            sources = {run.id: _script(store, run) for run in runs}
        fitting = (run for run in runs if _adds_probes(sources[run.id], text))
        run = next(fitting, runs[0])
        path = Path(settings.base, run.program)
        path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        return run, path, sources[run.id]

    # %florhook -----------------------------------------------------------------------------------------------

    def florhook(self, line: str) -> None:
        """Run a subcommand: `%florhook runs`, `%florhook show last`, ..."""
        words = shlex.split(line) or ["--help"]
        if words[0] == "shell":
            raise _error("florhook shell needs a terminal")
        status = run_florhook(words, os.getcwd())
        if status:
            raise _error(f"florhook {words[0]} ended with status {status}")


def _script(store: Store, run: RunRow) -> str:
    return next((row.source.decode() for row in store.sources(run) if row.module == MAIN), "")


def _adds_probes(recorded: str, text: str) -> bool:
    """Whether nothing but hindsight was added to a cell."""
    try:
        _, known = split(recorded)
        new = script_of(text, [known] if known else [])
        return not compare(recorded.encode(), new.encode(), "").refusals
    except SyntaxError:
        return False


def _exit_code(error: BaseException | None) -> int:
    """That of a program which ends as the cell did."""
    if isinstance(error, SystemExit):
        return exit_status(error.code)
    return 0 if error is None else INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _asks_for_help(match: re.Match[str]) -> bool:
    return (match["words"] or "").endswith("?")


def _settings_or_reason(match: re.Match[str]) -> tuple[Settings, str]:
    """What the words behind `%%record` say, or what is wrong with them."""
    nothing = from_sources({}, {}, Path.cwd())
    try:
        flags, rest = cli.split(shlex.split(match["words"] or ""))
        unknown: Sequence[str] = [*rest, *(f"--{name}" for name in flags.keys() - RECORD_OPTIONS)]
        if unknown:
            return nothing, f"%%record does not take {unknown[0]}"
        settings = from_sources(os.environ, flags, Path.cwd())
    except (FlorError, ValueError) as error:
        return nothing, str(error)
    return (nothing, "%%record stores in a folder, not at a URL") if settings.remote else (settings, "")


def _error(text: str) -> Exception:
    """What IPython shows as one line."""
    from IPython.core.error import UsageError as ShownError

    error: Exception = ShownError(text)
    return error


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, FlorError) else f"{type(error).__name__}: {error}"
