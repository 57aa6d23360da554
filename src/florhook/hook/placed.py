"""Probes that stand in no file: statements put into a syntax tree as if somebody had typed them there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..dataclass import dataclass
from .align import is_inert

Where = tuple[tuple[str, int], ...]

_FIELDS = ("body", "handlers", "cases", "orelse", "finalbody")  # in the order of their lines


@dataclass(frozen=True)
class Placed:
    """`code` comes before a statement of a module.

    `where` leads there from the module down: field and index of each statement, or branch of one, in what is around it;
    the last index may be that of the list's end. `line` is named in messages; `said` is how its user put it.
    """

    module: str
    where: Where
    code: str
    line: int
    said: str = ""


def put(tree: ast.Module, placed: Sequence[Placed], last_line: int) -> dict[int, int]:
    """Put statements into a module's tree in place.

    They get lines of their own, behind the last one of the file: functions are told apart by their lines. Gives the
    line to be named in messages by the line in the tree.
    """
    found = [(*list_at(tree, each.where), each) for each in placed]
    lines = {}
    for number, (statements, index, each) in reversed(
        list(enumerate(sorted(found, key=lambda spot: spot[1])))
    ):
        line = last_line + 1 + number
        lines[line] = each.line
        statements[index:index] = _at_line(ast.parse(each.code), line)
    return lines


def before_line(tree: ast.Module, line: int) -> Where | None:
    """The place before the statement that stands on a line, or else before the next one; None behind the last."""
    for where, stmt, siblings in _statements(tree):
        is_simple = not any(getattr(stmt, field, None) for field in _FIELDS)
        if stmt.lineno >= line or (is_simple and (stmt.end_lineno or 0) >= line):
            field, index = where[-1]
            return (*where[:-1], (field, max(index, _beginning(siblings))))
    return None


def place_of(tree: ast.Module, wanted: ast.stmt) -> Where:
    """Where a statement stands in its module."""
    return next(where for where, stmt, _ in _statements(tree) if stmt is wanted)


def _statements(tree: ast.Module) -> Iterator[tuple[Where, ast.stmt, list[ast.stmt]]]:
    """All statements in the order of their lines, with their place and the list that they stand in."""
    pending: list[tuple[Where, ast.AST, list[ast.stmt]]] = [((), tree, [])]
    while pending:
        where, node, siblings = pending.pop()
        if isinstance(node, ast.stmt):
            yield where, node, siblings
        below = [(field, getattr(node, field, None)) for field in _FIELDS]
        pending.extend(
            reversed(
                [
                    ((*where, (field, index)), child, children)
                    for field, children in below
                    if isinstance(children, list)  # a lambda's body is none
                    for index, child in enumerate(children)
                ]
            )
        )


def _beginning(block: list[ast.stmt]) -> int:
    """What has to stay at the beginning: a docstring, and imports from `__future__`."""
    count = 0
    while count < len(block) and (
        (not count and is_inert(block[0]))
        or (isinstance(block[count], ast.ImportFrom) and block[count].module == "__future__")  # type: ignore[attr-defined]
    ):
        count += 1
    return count


def list_at(tree: ast.AST, where: Where) -> tuple[list[ast.stmt], int]:
    """The list of statements that a place is in, and its index there."""
    for field, index in where[:-1]:
        tree = getattr(tree, field)[index]
    return getattr(tree, where[-1][0]), where[-1][1]


def _at_line(tree: ast.Module, line: int) -> list[ast.stmt]:
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            vars(node).update(lineno=line, end_lineno=line, col_offset=0, end_col_offset=0)
    return tree.body
