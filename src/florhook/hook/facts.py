"""What each statement of a module holds, found in one pass over its tree: asked of every loop and function.

A fact holds of a statement or function if it holds of a node in it. The first ones end at functions and classes, which
have a scope of their own; what a decorator does, it does outside. The last ones hold of everything below.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Fact:
    """Bits: flags of `enum` would take most of the time."""

    SUSPENDS = 1  # yield, await
    ASYNC_BLOCK = 2  # async for, async with
    GLOBAL = 4
    NONLOCAL = 8
    LOOP = 16
    CLOSURE = 32  # a function, class, lambda or comprehension
    CALLS = 64  # calls, imports, `with`, classes
    NONLOCAL_BELOW = 128
    REMAINDER = 256  # `%`, with text on its left an operation that the compiler moves
    WARNED_OF = 512  # what the compiler may warn of, each time that it sees it


BELOW = Fact.CALLS | Fact.NONLOCAL_BELOW | Fact.REMAINDER | Fact.WARNED_OF
OF_TYPE: dict[type, int] = {
    ast.Yield: Fact.SUSPENDS,
    ast.YieldFrom: Fact.SUSPENDS,
    ast.Await: Fact.SUSPENDS,
    ast.AsyncFor: Fact.ASYNC_BLOCK,
    ast.AsyncWith: Fact.ASYNC_BLOCK,
    ast.Global: Fact.GLOBAL,
    ast.Nonlocal: Fact.NONLOCAL | Fact.NONLOCAL_BELOW,
    ast.For: Fact.LOOP,
    ast.While: Fact.LOOP,
    ast.FunctionDef: Fact.CLOSURE,
    ast.AsyncFunctionDef: Fact.CLOSURE,
    ast.Lambda: Fact.CLOSURE,
    ast.ClassDef: Fact.CLOSURE | Fact.CALLS,
    ast.ListComp: Fact.CLOSURE,
    ast.SetComp: Fact.CLOSURE,
    ast.DictComp: Fact.CLOSURE,
    ast.GeneratorExp: Fact.CLOSURE,
    ast.Call: Fact.CALLS,
    ast.With: Fact.CALLS,
    ast.Import: Fact.CALLS,
    ast.ImportFrom: Fact.CALLS,
}
NAMED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
NO_NODES = {
    "ctx",
    "op",
    "ops",
    "name",
    "names",
    "arg",
    "attr",
    "id",
    "rest",
    "kwd_attrs",
    "type_comment",
    "kind",
}
NO_NODES |= {"simple", "conversion", "is_async", "type_ignores", "asname", "module", "level"}
_fields: dict[type, tuple[str, ...]] = {ast.Constant: (), ast.MatchSingleton: (), type(None): ()}


class Facts:
    """Of one module. `added` are the ids of statements that do not count as calls."""

    def __init__(self, tree: ast.Module, added: Collection[int]) -> None:
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        nodes: list[ast.AST] = [tree]
        parents = [0]
        for number, node in enumerate(nodes):  # which grow meanwhile
            kind = type(node)
            fields = _fields.get(kind)
            if fields is None:
                fields = _fields[kind] = tuple(name for name in kind._fields if name not in NO_NODES)
            for name in fields:
                value = getattr(node, name, None)
                if value is None:
                    continue
                to = parents[number] if name == "decorator_list" else number
                if type(value) is list:
                    nodes += value
                    parents += [to] * len(value)
                else:
                    nodes.append(value)
                    parents.append(to)
        self._facts = self._gather(nodes, parents, added)

    def _gather(self, nodes: list[ast.AST], parents: list[int], added: Collection[int]) -> dict[int, int]:
        masks = [OF_TYPE.get(type(node), 0) for node in nodes]
        facts = {}
        for number in range(len(nodes) - 1, 0, -1):
            mask, node = masks[number], nodes[number]
            look = _LOOK.get(type(node))
            if look is not None:
                mask |= look(node)
            if mask:
                facts[id(node)] = mask
                if isinstance(node, SCOPES):
                    mask = mask & BELOW | Fact.CLOSURE
                    if isinstance(node, FunctionNode):
                        self.functions.append(node)
                if id(node) in added:
                    mask &= ~Fact.CALLS
                masks[parents[number]] |= mask
        return facts

    def of(self, node: ast.AST) -> int:
        """What holds of a node and everything in it; of a function, what holds inside."""
        return self._facts.get(id(node), 0)


def last_name(node: ast.expr) -> str:
    """`step` for `a.b.step` and for `step`; empty for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _of_operation(node: Any) -> int:
    return Fact.REMAINDER if type(node.op) is ast.Mod else 0


def _of_comparison(node: Any) -> int:
    """`x is None` is never warned of, `x is 1` is."""
    if not any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return 0
    operands = [node.left, *node.comparators]
    plain = all(isinstance(each, NAMED) or _is_none(each) for each in operands)
    return 0 if plain else Fact.WARNED_OF


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_call(node: Any) -> int:
    return 0 if isinstance(node.func, NAMED) else Fact.WARNED_OF


def _of_subscript(node: Any) -> int:
    return 0 if isinstance(node.value, NAMED) else Fact.WARNED_OF


_LOOK: dict[type, Callable[[Any], int]] = {
    ast.BinOp: _of_operation,
    ast.AugAssign: _of_operation,
    ast.Compare: _of_comparison,
    ast.Call: _of_call,
    ast.Subscript: _of_subscript,
}
