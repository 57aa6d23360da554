"""The replay of a notebook's cell: begins with the state that was there before the cell, all of it made anew.

There is no program before the cell that could be run again: cells are run in any order, more than once, and edited
in between. So the record has a checkpoint of that place, in which nothing counts as alive but what any process has:
modules, the random states and settings of libraries, classes, and the functions of modules. The classes come from
their own statements, which are executed first; everything else is made from the checkpoint.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn

from ..dataclass import asdict, dataclass, field
from ..errors import RefusedError
from ..runtime.cells import MAIN, CellProgram
from ..runtime.digests import Digests, Name
from ..runtime.roots import set_world, world
from ..state.kinds import Kind
from ..state.kinds.base import Missing
from ..state.live import Live
from ..state.restore import Loader
from ..state.scan import Entry, Scan, is_importable
from ..store.rows import CELL
from .record import Record

HARMLESS = frozenset(
    (
        *(
            "matplotlib",
            "config",
            "load_ext",
            "reload_ext",
            "unload_ext",
            "autoreload",
            "pip",
            "conda",
            "xmode",
        ),
        *(
            "who",
            "whos",
            "who_ls",
            "pinfo",
            "pinfo2",
            "psource",
            "pdoc",
            "precision",
            "colors",
            "history",
            "ls",
            "pwd",
        ),
    )
)  # magics that change nothing of the program's state
NAMED = ("class", "function", "lru_cache")  # kinds of what modules have under its own name


@dataclass(frozen=True)
class Before:
    """What else is known of the place before a cell: where what is alive anywhere is found, and the process."""

    live: list[list[str]] = field(default_factory=list)  # ["world", name] or [module, qualified name]
    plain: dict[str, Any] = field(
        default_factory=dict
    )  # variables with plain values, which definitions may use
    lost: dict[str, str] = field(
        default_factory=dict
    )  # variables whose values no checkpoint holds, and their types
    path: list[str] = field(default_factory=list)  # sys.path
    flags: int = 0  # of the compiler

    def to_text(self) -> str:
        return json.dumps(asdict(self))


class Anywhere(Entry):
    """The entry of a cell: of what the walk met, that which another process has too. `where` says where it is there."""

    def __init__(self, scan: Scan, defined: Callable[[str], bool]) -> None:
        """`defined` tells of a class of the notebook's by its name whether its statement is known."""
        self.where: list[list[str]] = []
        worlds = {id(root.value): root.name for root in scan.roots if root.name[0] == "world"}
        found: list[int] = []
        for number, (obj, kind) in enumerate(zip(scan.objects, scan.kinds, strict=True)):
            place = list(worlds[id(obj)]) if id(obj) in worlds else _named_place(obj, kind, defined)
            if place is not None:
                found.append(number)
                self.where.append(place)
        super().__init__(_Chosen(scan, found))


class _Chosen(Scan):
    """Some objects of a walk."""

    def __init__(self, scan: Scan, numbers: Sequence[int]) -> None:
        self.segments, self.suspended = scan.segments, scan.suspended
        self.keys = [scan.keys[number] for number in numbers]
        self.objects = [scan.objects[number] for number in numbers]
        self.kinds = [scan.kinds[number] for number in numbers]


def _named_place(obj: Any, kind: Kind, defined: Callable[[str], bool]) -> list[str] | None:
    if kind.name not in NAMED or not is_importable(obj):
        return None
    module, name = str(obj.__module__), str(obj.__qualname__)
    if module == MAIN and (kind.name != "class" or not defined(name.partition(".")[0])):
        return None
    return [module, name]


class CellStart:
    """The place before the cell, in a replay. `refuse` ends this process with a reason."""

    def __init__(self, record: Record, program: CellProgram, refuse: Callable[[str], NoReturn]) -> None:
        self.record, self.program, self.refuse = record, program, refuse
        row = next((row for row in record.store.contexts(record.run) if row.site == CELL), None)
        checkpoints = record.store.checkpoints(record.run) if row is not None else []
        self.checkpoint = next(
            (each for each in checkpoints if row is not None and each.ctx == row.ctx), None
        )
        self.before = Before(**json.loads(row.entry)) if row is not None and row.entry else Before()
        program.flags = self.before.flags
        program.hides = self.before.lost.__contains__
        self.failed: dict[str, Exception] = {}  # by what would have been defined

    def check(self) -> None:
        """Refuse what is known not to work, before anything is printed."""
        if self.checkpoint is None:
            reason = self.record.run.meta.get("not stored", "it was interrupted before")
            self.refuse(f"the state before the cell is not in the record: {reason}")
        if not self.record.store.trusted(self.record.run, self.checkpoint):
            self.refuse("the state before the cell was signed by another user's key (--trust restores it)")
        for stmt in self.program.cell:
            for line, what in notebook_calls(stmt):
                self.refuse(f"line {line}: {what} cannot be replayed")

    def enter(self, main: ModuleType) -> None:
        """Give the program the state that the notebook had before the cell."""
        sys.path[:] = self.before.path
        builtins.display = show  # type: ignore[attr-defined]
        builtins.get_ipython = Notebook  # type: ignore[attr-defined]
        vars(main).update(self.before.plain)
        for code in self.program.definitions:
            try:
                exec(code, vars(main))
            except Exception as error:
                self.failed[code.co_names[-1] if code.co_names else ""] = error
        assert self.checkpoint is not None
        names = Digests.from_row(self.checkpoint).names
        try:
            values = self._load(names)
        except Exception as error:
            self.refuse(f"the state before the cell cannot be restored: {error or type(error).__name__}")
        self._set_globals(main, values)
        set_world(values)

    def _load(self, names: list[Name]) -> dict[Name, Any]:
        assert self.checkpoint is not None
        for module in {name[1] for name in names if name[0] == "global"}:
            importlib.import_module(module)
        worlds = {root.name: root.value for root in world()}
        live = Live([self._find(place, worlds) for place in self.before.live])
        loader = Loader(self.program, *self.record.store.state_at(self.checkpoint), live, self.refuse)
        return loader.load(names)

    def _find(self, place: Sequence[str], worlds: dict[Name, Any]) -> Any:
        home, name = place
        if home == "world":
            return worlds[home, name]
        found: Any = importlib.import_module(home)
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except AttributeError:
            why = self.failed.get(name.partition(".")[0])
            reason = f" ({type(why).__name__}: {why})" if why is not None else ""
            raise RefusedError(f"{name} is not there any more{reason}") from None
        return found

    def _set_globals(self, main: ModuleType, values: dict[Name, Any]) -> None:
        for variable in [each for each in vars(main) if not each.startswith("__")]:
            if ("global", MAIN, variable) not in values:
                del vars(main)[variable]
        for name, value in values.items():
            if name[0] == "global":
                setattr(sys.modules[name[1]], name[2], value)
        for lost, kind in self.before.lost.items():
            vars(main)[lost] = Missing(f"{kind} (the variable {lost})", self.refuse)


def notebook_calls(stmt: ast.stmt) -> list[tuple[int, str]]:
    """Lines and names of what is asked of the notebook, but for what changes nothing."""
    found = []
    for node in ast.walk(stmt):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        owner = node.func.value
        if not (isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name)):
            continue
        if owner.func.id != "get_ipython":
            continue
        first = node.args[0] if node.args else None
        name = str(first.value) if isinstance(first, ast.Constant) else ""
        if node.func.attr == "run_line_magic" and name in HARMLESS:
            continue
        shown = {"run_line_magic": f"%{name}", "run_cell_magic": f"%%{name}"}.get(node.func.attr, f"!{name}")
        found.append((node.lineno, shown))
    return found


class Notebook:
    """Stands for the notebook's shell, of which a replay knows only what changes nothing."""

    def run_line_magic(self, *_: object) -> None:
        return


def show(*values: object, **_: object) -> None:
    """`display` without a notebook."""
    for value in values:
        print(repr(value))


def refusal(flush: Callable[[], object]) -> Callable[[str], NoReturn]:
    """What ends a replay with a reason, once what was printed before is out."""

    def refuse(reason: str) -> NoReturn:
        with contextlib.suppress(Exception):
            flush()
        sys.stderr.write(f"florhook: {reason}\n")
        sys.stderr.flush()
        os._exit(RefusedError.exit_code)

    return refuse
