"""What the cells of a notebook define: the newest statements that bind names which are bound still."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from ..dataclass import dataclass
from ..hook.quiet import without_syntax_warnings
from ..runtime.cells import MAIN

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Definition:
    """One statement of a cell; `line` is where it began there."""

    names: tuple[str, ...]
    text: str
    line: int


def definitions(cells: Sequence[str], bound: Mapping[str, Any] | None = None) -> list[Definition]:
    """The imports, functions and classes of cells, oldest first; only those that `bound` variables are of, if given."""
    newest: dict[str, Definition] = {}
    for text in cells:
        for name, each in _of_cell(text):
            if bound is None or (name in bound and _can_be(each, bound[name])):
                newest.pop(name, None)
                newest[name] = each
    return list(dict.fromkeys(newest.values()))


def _of_cell(text: str) -> list[tuple[str, Definition]]:
    try:
        with without_syntax_warnings():
            tree = ast.parse(text)
    except (SyntaxError, ValueError):  # it failed, or awaits
        return []
    found = []
    lines = text.splitlines()
    for stmt in tree.body:
        names = _names(stmt)
        if names:
            first, last = first_line(stmt), stmt.end_lineno or stmt.lineno
            each = Definition(names, "\n".join(lines[first - 1 : last]), first)
            found += [(name, each) for name in names if _stands_alone(stmt, tree, each.text)]
    return found


def first_line(stmt: ast.stmt) -> int:
    """That of the first decorator, if there is one."""
    decorators: list[ast.expr] = getattr(stmt, "decorator_list", [])
    return min([stmt.lineno, *(each.lineno for each in decorators)])


def _stands_alone(stmt: ast.stmt, tree: ast.Module, text: str) -> bool:
    """Whether no other statement shares its lines."""
    try:
        return len(ast.parse(text).body) == 1
    except SyntaxError:
        return False


def _names(stmt: ast.stmt) -> tuple[str, ...]:
    """What a definition binds; nothing for other statements."""
    if isinstance(stmt, (*FUNCTIONS, ast.ClassDef)):
        return (stmt.name,)
    if isinstance(stmt, IMPORTS):
        if isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__":
            return ()
        return tuple(
            alias.asname or alias.name.partition(".")[0] for alias in stmt.names if alias.name != "*"
        )
    if isinstance(stmt, ast.Assign) and isinstance(
        stmt.value, ast.Call
    ):  # Point = namedtuple("Point", "x y")
        return tuple(each.id for each in stmt.targets if isinstance(each, ast.Name))
    return ()


def _can_be(definition: Definition, value: Any) -> bool:
    """Whether a variable's value may be what the statement made."""
    stmt = ast.parse(definition.text).body[0]
    if isinstance(stmt, IMPORTS):
        return isinstance(value, (ModuleType, type)) or callable(value)
    if isinstance(stmt, ast.ClassDef | ast.Assign):
        return isinstance(value, type) and value.__module__ == MAIN
    return isinstance(value, FunctionType) and value.__module__ == MAIN


def of_script(text: str) -> list[Definition]:
    """The definitions of a script, from its second part."""
    return list(dict.fromkeys(each for _, each in _of_cell(text)))


def edited(recorded: Sequence[Definition], now: Sequence[Definition]) -> list[str]:
    """The texts of recorded definitions, those taken that have been executed anew since."""
    newest = {each.names: each.text for each in now}
    return [newest.get(each.names, each.text) for each in recorded]
