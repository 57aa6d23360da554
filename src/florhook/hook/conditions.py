"""Conditions on loop variables alone, under which a statement of a loop's body runs: `if step % 100 == 0:`."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

_PLAIN = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub,
    ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Mod, ast.FloorDiv, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Tuple, ast.List, ast.Set,
)  # fmt: skip


def guards_of(node: ast.stmt, suite: Sequence[ast.stmt]) -> list[ast.expr]:
    """What holds wherever a suite directly below a statement runs, for all that is known."""
    if not isinstance(node, ast.If):
        return []
    return [node.test if suite is node.body else ast.UnaryOp(ast.Not(), node.test)]


def guarded(stmt: ast.stmt, names: Collection[str]) -> list[ast.expr]:
    """The conditions of an added `if` that does nothing otherwise, and of what stands alone inside.

    Up to the first that reads more than these names: to ask it may print something, whatever the ones inside say.
    """
    found = []
    while isinstance(stmt, (ast.If, ast.Try)) and not stmt.orelse:
        if isinstance(stmt, ast.If):
            if not _is_plain(stmt.test, names):
                break
            found.append(stmt.test)
        elif stmt.finalbody:
            break
        if len(stmt.body) > 1:
            break
        stmt = stmt.body[0]
    return found


def condition(guards: Sequence[ast.expr], names: Collection[str]) -> str:
    """Those guards that read nothing but these names, as one expression; empty where there are none."""
    kept = [guard for guard in guards if _is_plain(guard, names)]
    if not kept:
        return ""
    return ast.unparse(kept[0] if len(kept) == 1 else ast.BoolOp(ast.And(), kept))


def _is_plain(guard: ast.expr, names: Collection[str]) -> bool:
    nodes = list(ast.walk(guard))
    read = {node.id for node in nodes if isinstance(node, ast.Name)}
    return bool(read) and read <= set(names) and all(isinstance(node, _PLAIN) for node in nodes)


def fixed_labels(node: ast.For, labels: Collection[str], tree: ast.Module) -> set[str]:
    """The loop's variables that nothing but its header binds."""
    from .names import bound_names  # only replays come here, and recordings start without it

    rebound = {name for part in node.body for inner in ast.walk(part) for name in bound_names(inner)}
    declared = {
        name
        for inner in ast.walk(tree)
        if isinstance(inner, (ast.Global, ast.Nonlocal))
        for name in inner.names
    }
    return set(labels) - rebound - declared
