"""Whether added statements carry a value of their own from one place to another: a list that grows, a counter."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from itertools import groupby

from .align import blocks
from .names import FunctionNode, bound_names, evaluated_at_definition, names_of_scopes

_IMPORTS = (ast.Import, ast.ImportFrom)
_BY_TEXT = frozenset(
    {"globals", "locals", "vars", "setattr", "exec", "eval"}
)  # by which names are reached unseen
_BY_FILE = frozenset({"open", "write_text", "write_bytes"})  # a file keeps what was written to it
_ONCE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.With)  # what they bind is bound after them


def carries(tree: ast.Module, added: Sequence[ast.stmt]) -> bool:
    """Where this is false, what the added statements print depends on the program's state alone.

    True wherever that is in doubt: what they bind, other than imports and functions, they must read only after that
    and in the same group of added statements.
    """
    nodes = [node for stmt in added for node in ast.walk(stmt)]
    if any(_keeps(node) for node in nodes):
        return True
    values = {name for stmt in added for name in _values(stmt)}
    functions = [node for node in nodes if isinstance(node, FunctionNode)]
    names = names_of_scopes(tree) if functions else {}
    if any(values & names[function].free for function in functions):
        return True
    outermost = set(added)
    groups = (
        list(group)
        for node in ast.walk(tree)
        for block in blocks(node)
        for is_added, group in groupby(block, key=outermost.__contains__)
        if is_added
    )
    return not all(_is_sound(group, values, frozenset()) for group in groups)


def _keeps(node: ast.AST) -> bool:
    """What keeps a value whatever the names are."""
    if isinstance(node, FunctionNode):
        return any(not isinstance(each, ast.Constant) for each in evaluated_at_definition(node))
    if isinstance(node, ast.Attribute) and node.attr in _BY_FILE:
        return True
    if isinstance(node, (ast.Attribute, ast.Subscript)):
        return not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Name):
        return node.id in _BY_TEXT or node.id in _BY_FILE
    return isinstance(node, (ast.ClassDef, ast.Global, ast.Nonlocal))


def _values(stmt: ast.stmt) -> Iterator[str]:
    """The names that a statement binds, with those inside it, to anything but modules and functions."""
    if isinstance(stmt, (*_IMPORTS, *FunctionNode)):
        return
    yield from _bound(stmt)
    for block in blocks(stmt):
        for inner in block:
            yield from _values(inner)


def _bound(stmt: ast.stmt) -> set[str]:
    return {name for node in _own(stmt) for name in bound_names(node)}


def _own(stmt: ast.stmt) -> Iterator[ast.AST]:
    """A statement's nodes without the statements inside, and without what only comprehensions bind."""
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        yield node
        inner = [node.iter, *node.ifs] if isinstance(node, ast.comprehension) else ast.iter_child_nodes(node)
        stack.extend(child for child in inner if not isinstance(child, ast.stmt))


def _is_sound(block: Sequence[ast.stmt], values: set[str], before: frozenset[str]) -> bool:
    """Whether a block reads of `values` only what it bound itself, or what was bound `before` in any case."""
    bound = set(before)
    for stmt in block:
        if isinstance(stmt, FunctionNode):
            continue
        read = {node.id for node in _own(stmt) if isinstance(node, ast.Name) and _is_read(node, stmt)}
        if read & values - bound:
            return False
        own = _bound(stmt)
        if not all(_is_sound(inner, values, frozenset(bound | own)) for inner in blocks(stmt)):
            return False
        if isinstance(stmt, _ONCE):
            bound |= own
    return True


def _is_read(name: ast.Name, stmt: ast.stmt) -> bool:
    return not isinstance(name.ctx, ast.Store) or (isinstance(stmt, ast.AugAssign) and name is stmt.target)
