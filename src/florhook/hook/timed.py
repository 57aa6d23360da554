"""Which names of a program hold what its clock said, told from the source alone.

Two runs of one program have other times, and nothing is wrong with that. A recorded time is a plain number: that it is
one can be told by its size where it is a reading, but not where it is the difference of two. So names are followed
from calls of a clock, by arithmetic and assignment, to variables, attributes and string keys, by whichever part is
named last: `self.took["epoch"].append(time.time() - start)` makes the key `epoch` one, written "['epoch']". Names are
taken as they are written, whatever scope they stand in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .names import FunctionNode, words

_MODULES = frozenset({"time", "datetime", "timeit", "date"})
_CLOCKS = words(
    "time perf_counter monotonic process_time thread_time time_ns perf_counter_ns monotonic_ns process_time_ns "
    "thread_time_ns now utcnow today default_timer ctime asctime localtime gmtime strftime"
)
_ALONE = _CLOCKS - {"time", "now", "today", "strftime"} | {
    "time_ns"
}  # that mean a clock without a module in front
_ARITHMETIC = frozenset({"round", "abs", "float", "int", "min", "max", "sum", "str", "divmod"})
_ADDERS = frozenset({"append", "extend", "insert", "add", "appendleft", "setdefault", "put"})
_METHODS = frozenset({"total_seconds", "timestamp", "isoformat", "strftime", "item"})


def timed_names(trees: Iterable[ast.Module]) -> frozenset[str]:
    """The names, of variables, attributes and keys, that hold times in some of these modules."""
    found: set[str] = set()
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = _imported(nodes)
    while True:
        before = len(found)
        for node in nodes:
            found.update(_Rule(found, imported).names(node))
        if len(found) == before:
            return frozenset(found)


def _imported(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Clocks that are called by a name of their own: `from time import time as now`."""
    return frozenset(
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES
        for alias in node.names
        if alias.name in _CLOCKS
    )


class _Rule:
    def __init__(self, known: set[str], imported: frozenset[str]) -> None:
        self._known, self._imported = known, imported

    def names(self, node: ast.AST) -> Iterator[str]:
        """What a node makes hold a time."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from self._bound(target, node.value)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)) and node.value is not None:
            yield from self._bound(node.target, node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None and self._is_timed(value):
                    yield from _text(key)
        elif isinstance(node, ast.keyword) and node.arg is not None and self._is_timed(node.value):
            yield node.arg
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _ADDERS and any(map(self._is_timed, node.args)):
                yield from _last_name(node.func.value)
        elif isinstance(node, FunctionNode) and self._returns_time(node):
            yield node.name

    def _bound(self, target: ast.expr, value: ast.expr) -> Iterator[str]:
        if isinstance(target, (ast.Tuple, ast.List)):
            pairs = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            values = (
                value.elts
                if pairs and isinstance(value, (ast.Tuple, ast.List))
                else [value] * len(target.elts)
            )
            for inner, part in zip(target.elts, values, strict=True):
                yield from self._bound(inner, part)
        elif self._is_timed(value):
            yield from _last_name(target)

    def _is_timed(self, value: ast.expr) -> bool:
        """Whether a value is a time, or computed from one, or holds one."""
        if isinstance(value, ast.Call):
            return self._is_timed_call(value)
        if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
            return any(name in self._known for name in _last_name(value))
        if isinstance(value, ast.BinOp):
            return self._is_timed(value.left) or self._is_timed(value.right)
        if isinstance(value, (ast.UnaryOp, ast.Await, ast.Starred, ast.FormattedValue)):
            return self._is_timed(value.operand if isinstance(value, ast.UnaryOp) else value.value)
        if isinstance(value, ast.IfExp):
            return self._is_timed(value.body) or self._is_timed(value.orelse)
        if isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            return any(map(self._is_timed, value.elts))
        return isinstance(value, ast.JoinedStr) and any(map(self._is_timed, value.values))

    def _is_timed_call(self, call: ast.Call) -> bool:
        name = call.func
        if isinstance(name, ast.Name):
            if name.id in self._imported or name.id in _ALONE or name.id in self._known:
                return True
            return name.id in _ARITHMETIC and any(map(self._is_timed, call.args))
        if not isinstance(name, ast.Attribute):
            return False
        owner = next(_last_name(name.value), "")
        if (name.attr in _CLOCKS and owner in _MODULES) or name.attr in _ALONE:
            return True
        return name.attr in self._known or (name.attr in _METHODS and self._is_timed(name.value))

    def _returns_time(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
        returns = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
        return any(value is not None and self._is_timed(value) for value in returns)


def _last_name(target: ast.expr) -> Iterator[str]:
    """The part of a target that is named last: x of `x[3]`, y of `x.y`, z of `x.y["z"][0]`."""
    while isinstance(target, ast.Subscript):
        named = list(_text(target.slice))
        if named:
            yield from named
            return
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, ast.Starred):
        yield from _last_name(target.value)


def _text(key: ast.expr) -> Iterator[str]:
    if isinstance(key, ast.Constant) and isinstance(key.value, str):
        yield f"[{key.value!r}]"
