"""What differs between two sources of a module, statement by statement: for two runs, of which none is hindsight.

As in `diff.py`, statement lists are aligned level by level; comments, layout and docstrings do not count. A pair costs
what has to be changed in it, so that the cheapest alignment is that of the fewest changed statements.
"""

from __future__ import annotations

import ast
from collections import Counter
from itertools import zip_longest

from ..dataclass import dataclass, field
from .align import Fingerprints, Step, active, align, blocks
from .diff import whole_text_of
from .names import FunctionNode
from .quiet import without_syntax_warnings
from .rewrite import LoopNode

CHANGED, ADDED, REMOVED, MOVED = "changed", "added", "removed", "moved"
_HEAD = 1.0  # the price of a statement that is changed, without those inside
_LEAST = 0.5  # of one without others inside, by which it is more like another one than like none
_ALONE = 1.0  # of one that is added or removed
_DEFINITIONS = (*FunctionNode, ast.ClassDef)


@dataclass(frozen=True)
class Change:
    """One statement, with its lines in both sources; texts are without what is inside."""

    what: str  # CHANGED, ADDED, REMOVED, MOVED
    old_line: int | None
    new_line: int | None
    old: str = ""
    new: str = ""


@dataclass
class Changes:
    """All that differs, in the order of the new source."""

    changes: list[Change] = field(default_factory=list)
    loops: dict[int, int] = field(default_factory=dict)  # line of a loop in the old source -> in the new one


def changes(old: bytes, new: bytes, path: str) -> Changes:
    """Compare two sources of one module. SyntaxError where this Python cannot read one of them."""
    with without_syntax_warnings():
        old_tree, new_tree = ast.parse(old, path), ast.parse(new, path)
    comparison = _Comparison(old_tree, new_tree)
    comparison.compare()
    return Changes(sorted(comparison.found, key=_line), comparison.loops)


def _line(change: Change) -> int:
    return change.new_line or change.old_line or 0


class _Comparison:
    def __init__(self, old: ast.Module, new: ast.Module) -> None:
        self.prints = Fingerprints(old, new)
        self.found: list[Change] = []
        self.loops: dict[int, int] = {}
        self._pending = [(old.body, new.body)]

    def compare(self) -> None:
        while self._pending:
            old, new = self._pending.pop()
            self._level(align(active(old), active(new), _Prices(self.prints)))

    def _level(self, steps: list[Step]) -> None:
        gone: dict[object, list[ast.stmt]] = {}
        for step in steps:
            if step.old is not None and step.new is None:
                for key in self._keys(step.old):
                    gone.setdefault(key, []).append(step.old)
        moved: set[ast.stmt] = set()
        for step in steps:
            if step.new is not None and step.old is None:
                before = [
                    old for key in self._keys(step.new) for old in gone.get(key, ()) if old not in moved
                ]
                moved.update(before[:1])
                if before:
                    self._pair(before[0], step.new, moved=True)
                else:
                    self._add(ADDED, None, step.new)
        for step in steps:
            if step.old is not None and step.new is not None:
                self._pair(step.old, step.new)
            elif step.old is not None and step.old not in moved:
                self._add(REMOVED, step.old, None)

    def _keys(self, stmt: ast.stmt) -> list[object]:
        """By what a statement is found again at another place of its list: all of it, or the name of a definition."""
        return [self.prints.whole(stmt), *filter(None, [_name(stmt)])]

    def _pair(self, old: ast.stmt, new: ast.stmt, moved: bool = False) -> None:
        if self.prints.head(old) != self.prints.head(new):
            self._add(CHANGED, old, new)
        elif moved:
            self._add(MOVED, old, new)
        if isinstance(old, LoopNode) and isinstance(new, LoopNode):
            self.loops[old.lineno] = new.lineno
        self._pending.extend((a or [], b or []) for a, b in zip_longest(blocks(old), blocks(new)))

    def _add(self, what: str, old: ast.stmt | None, new: ast.stmt | None) -> None:
        self.found.append(
            Change(
                what,
                None if old is None else old.lineno,
                None if new is None else new.lineno,
                "" if old is None else whole_text_of(old),
                "" if new is None else whole_text_of(new),
            )
        )


class _Prices:
    """The costs of an alignment: how many statements are not as they were."""

    def __init__(self, prints: Fingerprints) -> None:
        self._prints = prints
        self._insides: dict[ast.stmt, Counter[int]] = {}

    def same(self, old: ast.stmt, new: ast.stmt) -> bool:
        return self._prints.whole(old) == self._prints.whole(new)

    def kept(self, old: ast.stmt, new: ast.stmt) -> bool:
        return self._prints.head(old) == self._prints.head(new)

    def removed(self, old: ast.stmt) -> float:
        return _ALONE + sum(self._inside(old).values())

    def added(self, new: ast.stmt) -> float:
        return _ALONE + sum(self._inside(new).values())

    def pair(self, old: ast.stmt, new: ast.stmt) -> float | None:
        if type(old) is not type(new) or _name(old) != _name(new):
            return None
        before, after = self._inside(old), self._inside(new)
        inside = sum((before - after).values()) + sum((after - before).values())
        if self.kept(old, new):
            return inside / 2
        own = _HEAD if blocks(new) else _LEAST + (2 * _ALONE - _LEAST) * self._unlike(old, new)
        return own + inside / 2

    def _inside(self, stmt: ast.stmt) -> Counter[int]:
        """The statements inside of one, by their heads."""
        if stmt not in self._insides:
            self._insides[stmt] = Counter(
                self._prints.head(node)
                for node in ast.walk(stmt)
                if isinstance(node, ast.stmt) and node is not stmt
            )
        return self._insides[stmt]

    def _unlike(self, old: ast.stmt, new: ast.stmt) -> float:
        """How much of two statements is not in both of them, from 0 to 1."""
        before, after = self._parts(old), self._parts(new)
        both = sum((before & after).values())
        return 1 - 2 * both / (sum(before.values()) + sum(after.values()))

    def _parts(self, stmt: ast.stmt) -> Counter[int]:
        return Counter(self._prints.whole(node) for node in ast.walk(stmt) if node is not stmt)


def _name(stmt: ast.stmt) -> str:
    """Definitions stand for each other by name only."""
    return stmt.name if isinstance(stmt, _DEFINITIONS) else ""
