"""The difference of two sources as syntax trees: probes that were added, and edits that change the program.

Statement lists are aligned level by level. What has no counterpart in the recorded source must be hindsight
(`probes.Judge`), what has none in the edited source must have been output (`effects.Program`), and everything else
must be equal; comments, layout, docstrings and the order of definitions do not count.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from ..dataclass import dataclass, field
from .align import Fingerprints, Step, active, align, blocks, is_inert
from .effects import Program
from .names import FunctionNode, Scope, bound_names, evaluated, imported, names_of_scopes
from .placed import Placed, put
from .probes import Judge, Place
from .quiet import without_syntax_warnings

_DEFINITIONS = (*FunctionNode, ast.ClassDef)
_INNER = frozenset({"body", "orelse", "finalbody", "decorator_list"})
_BRANCHES = frozenset({"handlers", "cases"})
_REASON_LENGTH = 72

# The prices of an alignment: any refusal costs more than all that is accepted in a statement list.
_REFUSED = 10_000.0
_CHANGED = 15_000.0  # a changed statement reads better than one removed and one added
_CHANGED_HEAD = 6_000.0
_LOST_INSIDE = 10.0
_REMOVED_OUTPUT = 3.0
_CHANGED_OUTPUT = 3.0
_MOVED = 2.0
_KEPT_HEAD = 2.0
_ADDED = 1.0
_LOST_OUTPUT = 0.1


@dataclass(frozen=True)
class Refusal:
    """An edit that is no probe: where it is in the edited source, and what it changes."""

    path: str
    line: int
    reason: str


@dataclass(frozen=True)
class SourceDiff:
    """What was edited since the recording; `added` is hindsight throughout where `refusals` is empty."""

    tree: ast.Module
    old_tree: ast.Module
    added: list[ast.stmt] = field(
        default_factory=list
    )  # outermost statements of `tree` without a counterpart
    pairs: dict[ast.AST, ast.AST] = field(default_factory=dict)  # statement of `tree` -> of `old_tree`
    printing_changed: bool = False
    refusals: list[Refusal] = field(default_factory=list)
    lines: Mapping[int, int] = field(default_factory=dict)  # of what was put in: in `tree` -> in messages


def compare(old: bytes, new: bytes, path: str, placed: Sequence[Placed] = ()) -> SourceDiff:
    """Compare the recorded source of a module with its current one; SyntaxError if the latter has one.

    `placed` are probes that are put into the current one.
    """
    same = old == new and not placed
    try:
        tree, old_tree = _parse(new, path), _parse(old, path)
    except (RecursionError, MemoryError):
        nothing = ast.Module([], [])
        return SourceDiff(nothing, nothing, refusals=[] if same else [_too_deep(path)])
    if same:
        return SourceDiff(tree, old_tree, pairs=_same_pairs(tree, old_tree))
    lines = put(tree, placed, new.count(b"\n") + 1)
    try:
        return _Comparison(old_tree, tree, path, lines).result()
    except RecursionError:
        return SourceDiff(tree, old_tree, refusals=[_too_deep(path)])


def _parse(source: bytes, path: str) -> ast.Module:
    with without_syntax_warnings():  # running the module warns of what is wrong in it
        return ast.parse(source, path)


def _too_deep(path: str) -> Refusal:
    return Refusal(path, 1, "too deeply nested to compare")


def _same_pairs(tree: ast.AST, old_tree: ast.AST) -> dict[ast.AST, ast.AST]:
    both = zip(ast.walk(tree), ast.walk(old_tree), strict=True)
    return {new: old for new, old in both if isinstance(new, ast.stmt)}


@dataclass(frozen=True)
class _Level:
    """Two statement lists that stand for each other."""

    old: list[ast.stmt]
    new: list[ast.stmt]
    scope: Scope
    line: int  # of the statement that holds them


class _Comparison:
    def __init__(self, old_tree: ast.Module, tree: ast.Module, path: str, lines: Mapping[int, int]) -> None:
        self._old_tree, self._tree, self._path, self._lines = old_tree, tree, path, lines
        self.prints = Fingerprints(old_tree, tree)
        self._old_names = names_of_scopes(old_tree)
        self._recorded, self._edited = Program(old_tree), Program(tree)
        self.judge = Judge(self._recorded, self._edited)
        self._added: list[ast.stmt] = []
        self._pairs: dict[ast.AST, ast.AST] = {}
        self._refusals: list[Refusal] = []
        self._printing_changed = False

    def result(self) -> SourceDiff:
        pending = [
            _Level(
                self._old_tree.body, self._tree.body, Scope(self._tree, self._old_names[self._old_tree]), 1
            )
        ]
        while pending:
            level = pending.pop()
            for old, new in self._match(level):
                self._pairs[new] = old
                scope = self._inner_scope(old, new, level.scope)
                pending.extend(
                    _Level(a or [], b or [], scope, new.lineno)
                    for a, b in zip_longest(blocks(old), blocks(new))
                    if a or b
                )
        return SourceDiff(
            self._tree,
            self._old_tree,
            sorted(self._added, key=lambda stmt: (stmt.lineno, stmt.col_offset)),
            self._pairs,
            self._printing_changed,
            sorted(self._refusals, key=lambda refusal: refusal.line),
            self._lines,
        )

    def _inner_scope(self, old: ast.stmt, new: ast.stmt, scope: Scope) -> Scope:
        return Scope(new, self._old_names[old], scope) if isinstance(new, _DEFINITIONS) else scope

    # One level

    def _match(self, level: _Level) -> list[tuple[ast.stmt, ast.stmt]]:
        """Pair the statements of a level, and report what is left."""
        self._pairs.update(zip(filter(is_inert, level.new), filter(is_inert, level.old), strict=False))
        old, new = active(level.old), active(level.new)
        steps, pairs = self._moved_definitions(align(old, new, _Prices(self, old, new, level.scope)))
        line = level.line
        left, moved = self._moved_statements(steps)
        pairs += moved
        for step, following in zip(left, _next_lines(steps), strict=True):
            if step.new is not None:
                line = step.new.lineno
            if step.old is not None and step.new is not None:
                if self._accept_pair(step.old, step.new, level.scope):
                    pairs.append((step.old, step.new))
            elif step.new is not None:
                self._accept_added(step.new, level.scope)
            elif step.old is not None:
                self._accept_removed(step.old, following or line)
        return pairs

    def _accept_pair(self, old: ast.stmt, new: ast.stmt, scope: Scope) -> bool:
        """Report how two paired statements differ; whether they still are one statement."""
        if self.prints.head(old) == self.prints.head(new):
            return True
        if _is_longer_import(old, new):
            self._accept_added(new, scope)
            return True
        if self.is_changed_output(old, new):
            self._printing_changed = True
            if self._lost_effects(old):
                self._added.append(new)  # with the very same effects as before
            else:
                self._accept_added(new, scope)
            return False
        was, now = text_of(old), text_of(new)
        if _decorators(old) != _decorators(new):
            self._refuse(new.lineno, f"changed the decorators of `{was}`")
        else:
            self._refuse(new.lineno, f"changed `{was}` to `{now}`")
        if not blocks(new):
            self._added.append(new)
        return bool(blocks(new))

    def _accept_added(self, new: ast.stmt, scope: Scope) -> None:
        self._added.append(new)
        for stmt, problem in self.judge.problems(new, Place(scope)):
            self._refuse(stmt.lineno, f"added `{text_of(stmt)}`: {problem}")

    def _accept_removed(self, old: ast.stmt, line: int) -> None:
        if self.is_removable(old):
            self._printing_changed = True
        else:
            self._refuse(line, f"removed `{text_of(old)}`")

    def _refuse(self, line: int, reason: str) -> None:
        self._refusals.append(Refusal(self._path, self._lines.get(line, line), reason))

    # Output statements

    def is_removable(self, old: ast.stmt) -> bool:
        return self._recorded.is_output(old) and not self._lost_effects(old)

    def is_changed_output(self, old: ast.stmt, new: ast.stmt) -> bool:
        if not (self._recorded.is_output(old) and self._edited.is_output(new)):
            return False
        effects = self._lost_effects(old)
        return not effects or effects == self._lost_effects(new)

    def _lost_effects(self, stmt: ast.stmt) -> list[int]:
        return [self.prints.whole(node) for node in self._recorded.effects(stmt)]

    def summary(self, stmt: ast.stmt) -> tuple[int, bool]:
        return self.prints.head(stmt), self._recorded.is_output(stmt)

    # What moved

    def _moved_statements(self, steps: list[Step]) -> tuple[list[Step], list[tuple[ast.stmt, ast.stmt]]]:
        """Report each statement that only changed places once, not as one removed and one added."""
        gone = {
            self.prints.whole(step.old): (n, step.old)
            for n, step in enumerate(steps)
            if step.old and not step.new and not self.is_removable(step.old)
        }
        left, pairs = list(steps), []
        for n, step in enumerate(steps):
            if step.new and not step.old and (found := gone.pop(self.prints.whole(step.new), None)):
                self._refuse(step.new.lineno, f"moved `{text_of(step.new)}`")
                pairs.append((found[1], step.new))
                left[found[0]] = left[n] = Step(None, None)
        return left, pairs

    def _moved_definitions(self, steps: list[Step]) -> tuple[list[Step], list[tuple[ast.stmt, ast.stmt]]]:
        """Take out definitions that only changed places; those that others depend on are refused."""
        gone = {name: n for n, step in enumerate(steps) if step.new is None and (name := _defined(step.old))}
        moves = [
            (gone[name], n)
            for n, step in enumerate(steps)
            if step.old is None and (name := _defined(step.new)) in gone
        ]
        pairs = []
        for start, end in moves:
            old, new = steps[start].old, steps[end].new
            if old is None or new is None or type(old) is not type(new):
                continue
            for crossed in steps[min(start, end) + 1 : max(start, end)]:
                if crossed.old and crossed.new and _depend(crossed.new, new):
                    self._refuse(new.lineno, f"moved `{text_of(new)}` across `{text_of(crossed.new)}`")
                    break
            if self._accept_pair(old, new, Scope(self._tree, None)):
                pairs.append((old, new))
        taken = {n for move in moves for n in move}
        return [step for n, step in enumerate(steps) if n not in taken], pairs


class _Prices:
    """The costs of an alignment in one scope: what will be accepted is cheap."""

    def __init__(
        self, comparison: _Comparison, old: list[ast.stmt], new: list[ast.stmt], scope: Scope
    ) -> None:
        self._comparison = comparison
        self._place = Place(scope)
        self._movable = _unique_definitions(old) & _unique_definitions(new)
        self._contents: dict[ast.stmt, Counter[tuple[int, bool]]] = {}

    def same(self, old: ast.stmt, new: ast.stmt) -> bool:
        return self._comparison.prints.whole(old) == self._comparison.prints.whole(new)

    def kept(self, old: ast.stmt, new: ast.stmt) -> bool:
        return self._comparison.prints.head(old) == self._comparison.prints.head(new)

    def removed(self, old: ast.stmt) -> float:
        if _defined(old) in self._movable:
            return _MOVED
        return _REMOVED_OUTPUT if self._comparison.is_removable(old) else _REFUSED

    def added(self, new: ast.stmt) -> float:
        if _defined(new) in self._movable:
            return _MOVED
        return _ADDED + _REFUSED * len(self._comparison.judge.problems(new, self._place))

    def pair(self, old: ast.stmt, new: ast.stmt) -> float | None:
        if type(old) is not type(new) or _defined(old) != _defined(new):
            return None
        if self.kept(old, new):
            return _KEPT_HEAD + (0 if _defined(new) else self._lost_inside(old, new))
        if _is_longer_import(old, new) or self._comparison.is_changed_output(old, new):
            return _CHANGED_OUTPUT
        return _CHANGED_HEAD + self._lost_inside(old, new) if blocks(new) else _CHANGED

    def _lost_inside(self, old: ast.stmt, new: ast.stmt) -> float:
        lost = self._inside(old) - self._inside(new)
        return sum(count * (_LOST_OUTPUT if output else _LOST_INSIDE) for (_, output), count in lost.items())

    def _inside(self, stmt: ast.stmt) -> Counter[tuple[int, bool]]:
        if stmt not in self._contents:
            self._contents[stmt] = Counter(
                self._comparison.summary(node)
                for node in ast.walk(stmt)
                if isinstance(node, ast.stmt) and node is not stmt
            )
        return self._contents[stmt]


def _next_lines(steps: list[Step]) -> list[int | None]:
    """For each step, the line of the next statement of the edited source."""
    lines: list[int | None] = []
    line = None
    for step in reversed(steps):
        lines.append(line)
        line = step.new.lineno if step.new is not None else line
    return lines[::-1]


def _defined(stmt: ast.stmt | None) -> str:
    return stmt.name if isinstance(stmt, _DEFINITIONS) else ""


def _unique_definitions(stmts: list[ast.stmt]) -> set[str]:
    counts = Counter(map(_defined, stmts))
    return {name for name, count in counts.items() if count == 1 and name}


def _is_longer_import(old: ast.stmt, new: ast.stmt) -> bool:
    """`from torch import nn` became `from torch import nn, linalg`."""
    if not isinstance(old, (ast.Import, ast.ImportFrom)) or type(old) is not type(new):
        return False
    return isinstance(new, (ast.Import, ast.ImportFrom)) and set(imported(old)) < set(imported(new))


def _depend(crossed: ast.stmt, moved: ast.stmt) -> bool:
    """Whether a definition that moved across another statement may have changed what either does."""
    here, there = list(evaluated(crossed)), list(evaluated(moved))
    bound = (
        {_defined(crossed)} if _defined(crossed) else {name for node in here for name in bound_names(node)}
    )
    if _defined(moved) in bound | _read(here) or bound & _read(there):
        return True
    # A call may reach the moved function by other names; two decorators may depend on their order.
    return _calls(here) and (not _defined(crossed) or _calls(there))


def _read(nodes: list[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def _calls(nodes: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Call) for node in nodes)


def _decorators(stmt: ast.stmt) -> list[str]:
    return [ast.dump(each) for each in getattr(stmt, "decorator_list", [])]


def text_of(stmt: ast.stmt) -> str:
    """A statement in one line, without the statements inside, cut where it is long."""
    text = whole_text_of(stmt)
    return text if len(text) <= _REASON_LENGTH else text[: _REASON_LENGTH - 4] + " ..."


def whole_text_of(stmt: ast.stmt) -> str:
    """The same, however long it is."""
    match stmt:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name("__flor__"), "show"), pairs)):  # what --probe asked for
            return ", ".join(str(pair.elts[0].value) for pair in pairs)  # type: ignore[attr-defined]
    try:
        lines = ast.unparse(_head(stmt)).splitlines()
    except RecursionError:
        return f"{type(stmt).__name__.lower()} of line {stmt.lineno}"
    return " ".join(line.strip() for line in lines)


def _head(node: Any) -> Any:
    fields: dict[str, Any] = {name: [] if name in _INNER else value for name, value in ast.iter_fields(node)}
    for name in _BRANCHES & fields.keys():
        fields[name] = [_head(branch) for branch in fields[name]]
    return ast.copy_location(type(node)(**fields), node) if blocks(node) else node
