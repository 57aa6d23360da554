"""Records one cell in the notebook's own process; afterwards the process is as if nothing had been recorded."""

from __future__ import annotations

import ast
import builtins
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from .. import frames
from ..begin import meta, staging_limit
from ..dataclass import astuple
from ..errors import StoreError
from ..hook import finder
from ..hook.scope import Scope
from ..launch import Target
from ..logs.output import Tee
from ..record import LISTING, scope_of
from ..replay.cell import Anywhere, Before
from ..runs import CELLS, new_id, program_name, write_stats
from ..runtime import compiled, entropy, probes, quiet
from ..runtime.cells import MAIN, CellProgram, script_of
from ..runtime.digests import Digests
from ..runtime.listing import as_row, files_below
from ..runtime.opened import TORCH, OpenedFiles
from ..runtime.patches import patches
from ..runtime.recorder import Recorder
from ..runtime.roots import outside, program_starts
from ..settings import Settings
from ..state.scan import Scan, kind_of
from ..store.recording import Recording
from ..store.rows import CELL, CheckpointRow, ContextRow, Piece, RunRow, SourceRow
from .definitions import Definition, definitions
from .swap import Swap, functions_of, twins

HOST = "IPython.core.interactiveshell"  # whose frames lie below those of a cell
PLAIN = (bool, int, float, str, type(None))
NUMBA = "numba.core.bytecode"
_files: list[OpenedFiles] = []  # the one whose audit hook this process has, since none can be taken out


def say(text: str) -> None:
    with contextlib.suppress(Exception):
        sys.stderr.write(f"florhook: {text}\n")


class CellRecording:
    """One cell: `begin` gives the statements to be run in its place, `end` comes after them in any case."""

    def __init__(
        self, settings: Settings, number: int, main: ModuleType, hides: Callable[[str], bool]
    ) -> None:
        """`hides` tells which names of `main` are the notebook's own."""
        self.settings, self.main = settings, main
        self.run = new_id()
        self.path = settings.home / CELLS / self.run / f"In[{number}].py"
        self.target = Target("script", str(self.path), [])
        self.program = CellProgram()
        self.hides = hides
        self.undo = contextlib.ExitStack()
        self.swap = Swap()
        self.recorder: Recorder | None = None
        self.started = time.perf_counter()

    def begin(self, cell: str, earlier: Sequence[str], flags: int) -> list[ast.stmt]:
        """`cell` and `earlier` are texts as Python takes them; `flags` those of the compiler."""
        self.program.flags = flags
        known = self._matched(definitions(earlier, vars(self.main)), flags)
        script = script_of(cell, [each.text for each in known])
        self.program.offsets = _offsets(script, known)
        self.program.as_written(script.encode(), self.path.name)  # what cannot be compiled is no run
        self._write(script)
        recorder = self._start()
        code = self._instrumented(script.encode(), str(self.path), MAIN, vars(self.main))
        assert code is not None
        self._instrument_modules()
        self._keep_place(recorder, [name for each in known for name in each.names])
        return grouped(self.program.cell)

    def _matched(self, found: list[Definition], flags: int) -> list[Definition]:
        """Those definitions whose functions have the code that their text gives: others were made in another way."""
        alive = {function.__code__ for function in functions_of([vars(self.main)])}
        kept = []
        for each in found:
            tree = ast.parse(each.text)
            ast.increment_lineno(tree, each.line - 1)
            is_function = isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef)
            code = compile(tree, "", "exec", flags=flags, dont_inherit=True)
            inner = {const for const in code.co_consts if isinstance(const, CodeType)}
            if not is_function or inner & alive:
                kept.append(each)
        return kept

    def _write(self, script: str) -> None:
        self.path.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.path.write_text(script)

    def _start(self) -> Recorder:
        settings = self.settings
        seed = os.environ.get("PYTHONHASHSEED", "")
        about = meta(seed if seed.isdecimal() else "", settings)
        row = RunRow(self.run, program_name(self.target, settings), (), os.getcwd(), time.time(), about)
        recording = Recording.start(settings.home, row, staging_limit, settings.max_bytes)
        recorder = self.recorder = Recorder(self.program, recording, settings.epsilon, row.started)
        if recording.failed:
            raise StoreError(recording.failed)
        self._put_in_place(recorder, row)
        for library in (entropy.PYTHON, *(each for each in entropy.LIBRARIES if each in sys.modules)):
            self._keep_state(library)
        here = as_row(files_below(os.getcwd(), str(settings.home)))
        recording.rows("sources", [astuple(SourceRow(LISTING, "", here))])
        self._watch_imports(scope_of(self.target, settings))
        return recorder

    def _put_in_place(self, recorder: Recorder, row: RunRow) -> None:
        """Everything that is changed in this process, each with its undoing."""
        undo = self.undo
        builtins.__flor__ = probes  # type: ignore[attr-defined]
        # It stays there, inert: a suspended generator may need it.
        undo.callback(self._forget_probes)
        probes.use(recorder)
        quiet.install(recorder)
        undo.callback(quiet.uninstall)
        frames.host = HOST
        undo.callback(setattr, frames, "host", "")
        os.environ["FLOR_OWNER"] = f"{row.id}:{os.getpid()}"
        undo.callback(os.environ.pop, "FLOR_OWNER", None)
        program_starts()
        tee = Tee(recorder.wrote)
        tee.install()
        undo.callback(tee.uninstall)
        files = OpenedFiles(recorder.now, str(self.settings.home))
        files.child_mark = self.program.child_mark
        files = files.take_up(_files[0]) if _files else files
        _files[:] = [files]
        recorder.watch_files(files)
        undo.callback(setattr, files, "active", False)
        compiled.torch_is_there()
        files.watch_torch()
        undo.callback(files.leave_torch)
        _in_child[:] = [self._in_child]
        undo.callback(_in_child.clear)
        undo.callback(self.swap.undo)

    def _forget_probes(self) -> None:
        probes.be_inert()
        probes.marks.clear()
        for name in self.program.user_modules:
            module = sys.modules.get(name)
            if module is not None:
                vars(module).pop("__flor__", None)

    def _in_child(self) -> None:
        """In a process that the cell forked, nothing is recorded."""
        assert self.recorder is not None
        self.recorder.active = _files[0].active = False
        probes.be_inert()
        self.recorder.recording.after_fork_in_child()

    def _keep_state(self, library: str) -> None:
        assert self.recorder is not None
        state, version = entropy.read(library), entropy.version(library).encode()
        rows = [
            SourceRow(entropy.version_name(library), "", version),
            SourceRow(entropy.row_name(library), "", state),
        ]
        self.recorder.recording.rows("sources", [astuple(row) for row in rows])

    def _watch_imports(self, scope: Scope) -> None:
        self.scope = scope
        self.program.is_pythons = scope.is_pythons
        hook = finder.install(scope, self._of_import)
        self.undo.callback(hook.uninstall)
        hook.notices.update(dict.fromkeys(entropy.LIBRARIES, entropy.guarded(self._imported)))
        hook.notices[TORCH] = entropy.guarded(_files[0].watch_torch)
        hook.notices[NUMBA] = entropy.guarded(self._patch_numba)
        if NUMBA in sys.modules:
            self._patch_numba()

    def _imported(self, library: str) -> None:
        if library == "torch":
            compiled.torch_is_there()
        self._keep_state(library)

    def _patch_numba(self, _: str = "") -> None:
        """It reads bytecode, and gets functions as they were written."""
        identity: Any = sys.modules[NUMBA].FunctionIdentity
        before = vars(identity)["from_function"]
        patches(self.program)[NUMBA]()
        self.undo.callback(setattr, identity, "from_function", before)

    def _of_import(self, source: bytes, path: str, name: str) -> CodeType | None:
        """A module that the cell imports; once the recording has ended, its functions are as they were written."""
        code = self.program.transform(source, path, name)
        plain = compile(source, path, "exec", dont_inherit=True)
        self.swap.add(vars(sys.modules[name]), twins(self.program, name, plain, code))
        return code

    def _instrumented(self, source: bytes, path: str, name: str, space: dict[str, Any]) -> CodeType | None:
        """Give the functions of a module that is there already the code that records; None where they are not of it."""
        is_main = name == MAIN
        if is_main:
            plain = self.program.as_written(source, path)
        else:
            plain = compile(source, path, "exec", dont_inherit=True)
            written = {code for _, code in self.program.places(name, plain)}
            own = [each for each in functions_of([space]) if each.__code__.co_filename == path]
            if any(each.__code__ not in written for each in own):
                return None
        code = self.program.transform(source, path, name)
        self.swap.add(space, twins(self.program, name, plain, self.program.whole(name)))
        return code

    def _instrument_modules(self) -> None:
        changed = []
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            loader = getattr(getattr(module, "__spec__", None), "loader", None)
            if name == MAIN or type(loader) is not SourceFileLoader or not isinstance(path, str):
                continue
            if self.scope.decide(name, path).user:
                with contextlib.suppress(SyntaxError, OSError):
                    if self._instrumented(Path(path).read_bytes(), path, name, vars(module)) is None:
                        changed.append(name)
        if changed:
            say(
                f"changed since they were imported, so that neither their loops are recorded nor prints found that "
                f"are added to them: {', '.join(sorted(changed))}"
            )

    # The place before the cell ---------------------------------------------------------------------------------

    def _keep_place(self, recorder: Recorder, defined: Sequence[str]) -> None:
        """Store the state that the cell begins with."""
        lost = self._lost()
        self.program.hides = lambda name: name in lost or self.hides(name)
        try:
            scan = Scan(self.program, outside(self.program))
        except Exception:
            lost.update(self._unreadable())
            scan = Scan(self.program, outside(self.program))
        entry = Anywhere(scan, frozenset(defined).__contains__)
        table = scan.table(entry)
        variables = vars(self.main).items()
        plain = {
            name: value
            for name, value in variables
            if type(value) in PLAIN and not name.startswith("__") and not self.hides(name)
        }
        before = Before(entry.where, plain, lost, list(sys.path), self.program.flags)
        number, now = next(recorder.numbers), recorder.now()
        context = ContextRow(number, -1, -1, CELL, 0, now, 0, now, 0, 0, "end", "", before.to_text())
        recorder.recording.rows("contexts", [astuple(context)])
        pieces = [
            Piece(("stream", CELL), memoryview(scan.stream), compress=True),
            Piece(("table", CELL), memoryview(table), compress=True),
            *(Piece(leaf.key, leaf.view) for leaf in scan.leaves),
        ]
        row = CheckpointRow(number, 0, now, 0, Digests.of(scan).to_text())
        if not recorder.recording.checkpoint(row, pieces):
            reason = recorder.recording.failed or recorder.recording.skipped or "skipped"
            raise StoreError(f"the state before the cell could not be stored: {reason}")

    def _lost(self) -> dict[str, str]:
        """The variables with values that no checkpoint holds, if nothing rebinds them: name, and type."""
        bound = self.program.stored
        found = {}
        for name, value in vars(self.main).items():
            if not (name.startswith("__") or name in bound or self.hides(name)):
                kind = kind_of(value, self.program)
                if kind is not None and (kind.how == "opaque" or (kind.name == "file" and not value.closed)):
                    found[name] = f"{type(value).__module__}.{type(value).__qualname__}"
        return found

    def _unreadable(self) -> dict[str, str]:
        """The variables whose values cannot be walked, if nothing rebinds them."""
        found = {}
        for root in outside(self.program):
            if root.name[:2] == ("global", MAIN) and root.name[2] not in self.program.stored:
                try:
                    Scan(self.program, [root])
                except Exception:
                    found[root.name[2]] = f"{type(root.value).__module__}.{type(root.value).__qualname__}"
        return found

    # The end ---------------------------------------------------------------------------------------------------

    def end(self, exit_code: int) -> None:
        """Take everything out of this process again, and finish the record."""
        recorder = self.recorder
        try:
            self.undo.close()
        finally:
            if recorder is not None:
                stats = recorder.finish(exit_code)
                recorder.active = False
                recorder.contention.close()
                wall = time.perf_counter() - self.started
                about = {"mode": "record", "run_id": self.run, **stats, "wall_s": wall}
                write_stats(self.settings.stats, about)
                self.recorder = None

    def drop(self) -> None:
        """The recording could not begin."""
        recorder, self.recorder = self.recorder, None
        self.undo.close()
        if recorder is not None:
            recorder.active = False
            recorder.contention.close()
            recorder.recording.finish(time.time(), None, {}, 1.0)


def _offsets(script: str, known: Sequence[Definition]) -> list[int]:
    """By how many lines each definition stood elsewhere in its own cell."""
    tree = ast.parse(script)
    stmts = tree.body[len(tree.body) - len(known) :] if known else []
    firsts = (
        min([stmt.lineno, *(each.lineno for each in getattr(stmt, "decorator_list", ()))]) for stmt in stmts
    )
    return [each.line - first for each, first in zip(known, firsts, strict=True)]


def grouped(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of a cell, a loop with what was put around it as one: IPython runs each in a frame of its own."""
    found: list[ast.stmt] = []
    loop: list[ast.stmt] = []
    for stmt in [*body, None]:
        if stmt is not None and (isinstance(stmt, ast.For | ast.While) or _is_ours(stmt)):
            loop.append(stmt)
            continue
        if loop:
            place = next((each for each in loop if not _is_ours(each)), loop[0])
            found.append(
                ast.copy_location(ast.If(ast.copy_location(ast.Constant(True), place), loop, []), place)
            )
            loop = []
        if stmt is not None:
            found.append(stmt)
    return found


def _is_ours(stmt: ast.stmt) -> bool:
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id == "__flor__"


_in_child: list[Callable[[], None]] = []  # what the recording does in a process that was forked


def _after_fork() -> None:
    for call in _in_child:
        call()


os.register_at_fork(after_in_child=_after_fork)
