"""Whether an added statement is hindsight: it may look at the program, and must not be known to change it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..dataclass import dataclass, replace
from .align import blocks
from .effects import Program, advances, changed_object, changes_by_name
from .names import FunctionNode, Scope, bound_names, evaluated_at_definition, imported


@dataclass(frozen=True)
class Place:
    """Where an added statement stands."""

    scope: Scope
    in_loop: bool = False  # in a loop that was added with it
    in_function: bool = False  # in a function that was added with it


class Judge:
    """Judges added statements against the recorded program."""

    def __init__(self, recorded: Program, edited: Program) -> None:
        self._recorded = recorded
        self._edited = edited

    def problems(self, stmt: ast.stmt, place: Place) -> list[tuple[ast.stmt, str]]:
        """The statements in `stmt` that are known to change the program, with how; empty for hindsight."""
        found: list[tuple[ast.stmt, str]] = []
        pending = [(stmt, place)]
        while pending:
            inner, at = pending.pop()
            if problem := next(self._problems_of(inner, at), None):
                found.append((inner, problem))
            pending.extend((child, below) for child, below in _children(inner, at))
        return sorted(found, key=lambda item: item[0].lineno)

    def name_problem(self, name: str, scope: Scope) -> str | None:
        """What speaks against an added statement that binds a name."""
        if scope.recorded is None:
            return None
        if name.startswith("__") and name.endswith("__"):
            return f"`{name}` has a meaning to Python"
        taken = isinstance(scope.node, ast.ClassDef) and name in self._recorded.mentioned
        return f"the program uses the name `{name}`" if taken or not scope.is_new(name) else None

    def _problems_of(self, stmt: ast.stmt, place: Place) -> Iterator[str]:
        """The problems of a statement itself, without the statements inside."""
        yield from _flow_problems(stmt, place)
        if isinstance(stmt, (ast.Import, ast.ImportFrom)):
            yield from self._import_problems(stmt, place.scope)
            return
        if isinstance(stmt, (ast.Global, ast.Nonlocal)):
            yield from (
                f"`{name}` belongs to the program" for name in stmt.names if not _is_new_outside(name, place)
            )
        if isinstance(stmt, (*FunctionNode, ast.ClassDef)) and (
            problem := self.name_problem(stmt.name, place.scope)
        ):
            yield problem
        for node in _own_expressions(stmt):
            yield from self._node_problems(node, stmt, place)

    def _import_problems(self, stmt: ast.Import | ast.ImportFrom, scope: Scope) -> Iterator[str]:
        if isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__":
            yield "it changes how the whole file is compiled"
        for pair in imported(stmt):
            if pair[0] == "*":
                yield "what `*` brings cannot be told"
            elif scope.recorded and pair in scope.recorded.imports:
                continue
            elif problem := self.name_problem(pair[0], scope):
                yield problem

    def _node_problems(self, node: ast.AST, stmt: ast.stmt, place: Place) -> Iterator[str]:
        scope = place.scope
        if isinstance(node, ast.Call):
            if problem := self._call_problem(node, stmt, scope):
                yield problem
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            if not isinstance(node.ctx, ast.Load) and not scope.is_fresh(node.value):
                yield f"it assigns to `{ast.unparse(node)}`"
        elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
            if not place.in_function:
                yield "it hands over control"
        elif isinstance(node, (ast.Name, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.ExceptHandler)):
            yield from (problem for name in bound_names(node) if (problem := self.name_problem(name, scope)))
            if isinstance(stmt, ast.AugAssign) and node is stmt.target and not scope.is_fresh(stmt.target):
                yield "it may change the object in place"

    def _call_problem(self, call: ast.Call, stmt: ast.stmt, scope: Scope) -> str | None:
        thrown_away = isinstance(stmt, ast.Expr) and call in (stmt.value, getattr(stmt.value, "elt", None))
        if self._edited.is_output_call(call):
            return None
        if changes_by_name(call, thrown_away=thrown_away):
            target = changed_object(call)
            changes = target is None or not scope.is_fresh(target)
        elif advances(call):
            changes = not scope.is_fresh(call.args[0])
        else:
            name = call.func.id if thrown_away and isinstance(call.func, ast.Name) else ""
            changes = self._recorded.is_impure(name)
        return f"`{ast.unparse(call.func)}` changes the program" if changes else None


def _flow_problems(stmt: ast.stmt, place: Place) -> Iterator[str]:
    if isinstance(stmt, (ast.Break, ast.Continue)):
        inside = place.in_loop
    else:
        inside = place.in_function or not isinstance(
            stmt, (ast.Return, ast.Raise, ast.Assert, ast.Delete, ast.Global, ast.Nonlocal)
        )
    if not inside:
        yield "it changes the program's course"


def _is_new_outside(name: str, place: Place) -> bool:
    scope: Scope | None = place.scope
    while scope is not None:
        if not scope.is_new(name):
            return False
        scope = scope.parent
    return True


def _own_expressions(stmt: ast.stmt) -> Iterator[ast.AST]:
    """All nodes of a statement but its inner statements, comprehension variables and annotations."""
    if isinstance(stmt, (*FunctionNode, ast.ClassDef)):
        stack = [node for node in evaluated_at_definition(stmt) if not isinstance(node, ast.stmt)]
    else:
        stack = [node for node in ast.iter_child_nodes(stmt) if not isinstance(node, ast.stmt)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.comprehension):
            stack.extend([node.iter, *node.ifs])
            continue
        yield node
        stack.extend(
            child for child in ast.iter_child_nodes(node) if not isinstance(child, (ast.stmt, ast.arg))
        )


def _children(stmt: ast.stmt, place: Place) -> Iterator[tuple[ast.stmt, Place]]:
    if isinstance(stmt, (*FunctionNode, ast.ClassDef)):
        in_function = not isinstance(stmt, ast.ClassDef)
        inside = Place(Scope(stmt, None, place.scope), in_function=in_function)
        yield from ((child, inside) for child in stmt.body)
        return
    loop = isinstance(stmt, (ast.For, ast.AsyncFor, ast.While))
    for index, block in enumerate(blocks(stmt)):
        # A loop's first block is its body; `break` in its `else` belongs to the loop around.
        below = replace(place, in_loop=True) if loop and index == 0 else place
        yield from ((child, below) for child in block)
