"""A cell of a notebook as a program: its text, and behind it what earlier cells had defined.

The script that stands for a cell has the cell's own lines first, so that they have their numbers, then the imports,
functions and classes of earlier cells that are still bound. The cell alone is run. The rest gives functions their
places, by which they are found again, and is where probes may be put that lie in them.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType
from typing import Any

from .program import Program

MAIN = "__main__"
DEFINITIONS = "# florhook: what earlier cells had defined"  # the line between


def script_of(cell: str, definitions: Sequence[str]) -> str:
    """The text of the script, which ends with a line break."""
    return "\n".join([cell.rstrip("\n"), DEFINITIONS, *(text.rstrip("\n") for text in definitions), ""])


def split(text: str) -> tuple[str, str]:
    """The cell, and the definitions."""
    cell, _, definitions = text.rpartition(DEFINITIONS + "\n")
    return cell, definitions


class CellProgram(Program):
    """The program whose `__main__` is a cell.

    After `transform`, `cell` holds the statements to be run, and `definitions` the codes of the others, one by one.
    """

    def __init__(self, replaying: bool = False) -> None:
        super().__init__(replaying)
        self.flags = 0  # of the compiler: what `from __future__` earlier cells had said
        self.offsets: Sequence[int] = ()  # of the definitions: by how many lines they stood elsewhere
        self._script = b""
        self.cell: list[ast.stmt] = []
        self.stored: set[str] = set()  # the names that something in the script assigns to
        self.cell_code: CodeType | None = None
        self.definitions: list[CodeType] = []

    def transform(self, source: bytes, path: str, name: str) -> CodeType:
        if name != MAIN:
            return super().transform(source, path, name)
        self._script = self.text(name, source)
        super().transform(source, path, name)
        assert self.cell_code is not None
        return self.cell_code

    def _compiled(self, tree: ast.Module, path: str, name: str) -> CodeType:
        if name != MAIN:
            return super()._compiled(tree, path, name)
        self.cell, definitions = divided(tree, self._script, self.offsets)
        self.stored = {
            node.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        }
        if self.replaying and self.cell and not split(self._script.decode())[0].rstrip().endswith(";"):
            _displayed(self.cell[-1])
        self.cell_code = self._compile(self.cell, path)
        self.definitions = [self._compile([stmt], path) for stmt in definitions]
        return _holding([*self._of_cell(self.cell, path), *self.definitions])

    def _of_cell(self, body: list[ast.stmt], path: str) -> list[CodeType]:
        """The codes of the cell as they are run: by IPython each statement alone, by a replay all at once.

        That makes a difference: of a name that the same code imports, the compiler calls methods in another way.
        """
        return (
            [self._compile(body, path)] if self.replaying else [self._compile([stmt], path) for stmt in body]
        )

    def _compile(self, body: list[ast.stmt], path: str) -> CodeType:
        code: CodeType = compile(ast.Module(body, []), path, "exec", flags=self.flags, dont_inherit=True)
        return code

    def as_written(self, source: bytes, path: str) -> CodeType:
        """The code of the whole script, without anything of ours."""
        cell, definitions = divided(ast.parse(source, path), source, self.offsets)
        return _holding([*self._of_cell(cell, path), *(self._compile([stmt], path) for stmt in definitions)])


def _holding(codes: Sequence[CodeType]) -> CodeType:
    """A code that is never run: what these hold is found in it."""
    constants = [each for code in codes for each in code.co_consts if isinstance(each, CodeType)]
    return compile("", "", "exec").replace(co_consts=tuple(constants))


def _displayed(stmt: ast.stmt) -> None:
    """An expression that was added at the end of a cell shows its value."""
    added = isinstance(stmt, ast.With)
    while isinstance(stmt, ast.With):
        stmt = stmt.body[-1]
    if added and isinstance(stmt, ast.Expr):
        shown = ast.parse('__import__("sys").displayhook(0)', mode="eval").body
        assert isinstance(shown, ast.Call)
        shown.args = [stmt.value]
        stmt.value = ast.fix_missing_locations(ast.copy_location(shown, stmt.value))


def divided(
    tree: ast.Module, source: bytes, offsets: Sequence[int] = ()
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements of the cell and the definitions, these with the lines that they had in their own cells."""
    lines = source.decode().splitlines()
    border = max((number for number, line in enumerate(lines, 1) if line == DEFINITIONS), default=len(lines))
    cell: list[ast.stmt] = []
    definitions: list[ast.stmt] = []
    for stmt in tree.body:  # what was put in has lines behind all others
        behind = definitions or border < _first_line(stmt) <= len(lines)
        (definitions if behind else cell).append(stmt)
    for stmt, offset in zip(definitions, offsets, strict=False):
        _move(stmt, offset)
    return cell, definitions


def _first_line(stmt: ast.stmt) -> int:
    """Of what stands on a line."""
    return min((line for node in ast.walk(stmt) if (line := getattr(node, "lineno", 0)) > 0), default=0)


def _move(stmt: ast.stmt, offset: int) -> None:
    """By so many lines; what stands on no line stays there."""
    seen: set[int] = set()
    for node in ast.walk(stmt):
        place: Any = node  # one node may stand at several places of a tree
        if id(node) in seen or getattr(node, "lineno", 0) <= 0:
            continue
        seen.add(id(node))
        place.lineno += offset
        place.end_lineno = (place.end_lineno or place.lineno) + offset
