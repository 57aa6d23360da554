"""Structural fingerprints of syntax trees, and the cheapest alignment of two lists of statements."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from ..dataclass import dataclass

_BLOCK_FIELDS = ("body", "orelse", "finalbody")
_BRANCH_FIELDS = ("handlers", "cases")
_NO_MEANING = frozenset({"ctx", "kind", "type_comment", "type_ignores"})


def is_inert(stmt: ast.AST) -> bool:
    """`pass`, docstrings and other bare constants: they compute nothing."""
    return isinstance(stmt, ast.Pass) or (isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant))


def active(stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [stmt for stmt in stmts if not is_inert(stmt)]


def blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """The statement lists of a statement; `else` and `finally` count where they are empty too."""
    found: list[list[ast.stmt]] = []
    for field in _BLOCK_FIELDS:
        block = getattr(node, field, None)
        if isinstance(block, list):
            found.append(block)
    for field in _BRANCH_FIELDS:
        found.extend(branch.body for branch in getattr(node, field, ()))
    return found


class Fingerprints:
    """Numbers that are equal exactly where two pieces of code are, whatever their layout and docstrings.

    Trees are walked without recursion: an `elif` chain of 1,200 branches is as deep as it is long.
    """

    def __init__(self, *trees: ast.AST) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._whole: dict[ast.AST, int] = {}
        self._heads: dict[ast.AST, int] = {}
        for tree in trees:
            for node in reversed(list(_preorder(tree))):
                self._whole[node] = self._number(node, with_blocks=True)
                self._heads[node] = (
                    self._number(node, with_blocks=False) if blocks(node) else self._whole[node]
                )

    def whole(self, node: ast.AST) -> int:
        return self._whole[node]

    def head(self, node: ast.AST) -> int:
        """The fingerprint without the statements inside: `for x in y:`, `def f(a):`."""
        return self._heads[node]

    def _number(self, node: ast.AST, *, with_blocks: bool) -> int:
        numbers = self._whole if with_blocks else self._heads
        key: list[Hashable] = [type(node).__name__]
        for field, value in ast.iter_fields(node):
            if field not in _NO_MEANING and (with_blocks or not _is_block(field, value)):
                key.append(self._part(value, numbers if field in _BRANCH_FIELDS else self._whole))
        return self._numbers.setdefault(tuple(key), len(self._numbers))

    def _part(self, value: object, numbers: dict[ast.AST, int]) -> Hashable:
        if isinstance(value, ast.AST):
            return self._whole[value]
        if isinstance(value, list):
            return tuple(
                self._part(item, numbers) if not isinstance(item, ast.AST) else numbers[item]
                for item in value
                if not (isinstance(item, ast.stmt) and is_inert(item))
            )
        # The type keeps 1, 1.0 and True apart.
        return (type(value), value)


def _is_block(field: str, value: object) -> bool:
    return field in _BLOCK_FIELDS and isinstance(value, list)


def _preorder(tree: ast.AST) -> Iterator[ast.AST]:
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(ast.iter_child_nodes(node))


@dataclass(frozen=True)
class Step:
    """One step of an alignment: both sides for a pair, one for what was added or removed."""

    old: ast.stmt | None
    new: ast.stmt | None


class Costs(Protocol):
    """What an alignment pays for each step."""

    def same(self, old: ast.stmt, new: ast.stmt) -> bool:
        """Whether two statements are equal, with all that is inside; such a pair is free."""

    def kept(self, old: ast.stmt, new: ast.stmt) -> bool:
        """Whether two statements are equal but for the statements inside."""

    def pair(self, old: ast.stmt, new: ast.stmt) -> float | None:
        """The price of letting two statements stand for each other; None where they cannot."""

    def removed(self, old: ast.stmt) -> float: ...

    def added(self, new: ast.stmt) -> float: ...


def align(old: list[ast.stmt], new: list[ast.stmt], costs: Costs) -> list[Step]:
    """The cheapest alignment of two statement lists, in program order."""
    start = 0
    while start < min(len(old), len(new)) and costs.same(old[start], new[start]):
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and costs.same(old[-1 - end], new[-1 - end]):
        end += 1
    head = [Step(a, b) for a, b in zip(old[:start], new[:start], strict=True)]
    middle = _align_middle(old[start : len(old) - end], new[start : len(new) - end], costs)
    tail = [Step(a, b) for a, b in zip(old[len(old) - end :], new[len(new) - end :], strict=True)]
    return head + middle + tail


def _align_middle(old: list[ast.stmt], new: list[ast.stmt], costs: Costs) -> list[Step]:
    if len(old) == len(new) == 1 and costs.kept(old[0], new[0]):
        return [Step(old[0], new[0])]
    removed = [costs.removed(stmt) for stmt in old]
    added = [costs.added(stmt) for stmt in new]
    pairs: dict[tuple[int, int], float] = {}
    # total[i][j]: the price of aligning old[i:] with new[j:].
    total = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
    for i in range(len(old), -1, -1):
        for j in range(len(new), -1, -1):
            choices = []
            if i < len(old):
                choices.append(removed[i] + total[i + 1][j])
            if j < len(new):
                choices.append(added[j] + total[i][j + 1])
            if i < len(old) and j < len(new):
                price = 0.0 if costs.same(old[i], new[j]) else costs.pair(old[i], new[j])
                if price is not None:
                    pairs[i, j] = price
                    choices.append(price + total[i + 1][j + 1])
            total[i][j] = min(choices, default=0.0)
    return list(_backtrack(old, new, total, pairs, removed))


def _backtrack(
    old: list[ast.stmt],
    new: list[ast.stmt],
    total: list[list[float]],
    pairs: dict[tuple[int, int], float],
    removed: list[float],
) -> Iterator[Step]:
    i = j = 0
    while i < len(old) or j < len(new):
        if (i, j) in pairs and total[i][j] == pairs[i, j] + total[i + 1][j + 1]:
            yield Step(old[i], new[j])
            i, j = i + 1, j + 1
        elif i < len(old) and total[i][j] == removed[i] + total[i + 1][j]:
            yield Step(old[i], None)
            i += 1
        else:
            yield Step(None, new[j])
            j += 1
