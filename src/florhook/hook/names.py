"""Which names a scope uses, and whether a name of an added statement can only hold a value of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from ..dataclass import dataclass, field
from .facts import last_name

FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*FunctionNode, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Calls that hand out a part or a view of what they are given, so that changing the result changes that.
_ALIASING = words(
    "next iter getattr min max reversed zip map filter enumerate vars globals locals from_numpy as_tensor asarray "
    "parameters named_parameters modules named_modules children named_children buffers named_buffers "
    "get_parameter get_submodule get_buffer state_dict get setdefault pop values items keys choice "
    "view view_as detach reshape squeeze unsqueeze flatten ravel numpy cpu cuda to float double half contiguous "
    "t transpose permute expand narrow select chunk split unbind unfold"
)
_WRAPPERS = frozenset(
    {"enumerate", "zip", "sorted", "list", "tuple", "set", "reversed", "iter", "next", "filter"}
)
_ALWAYS_FRESH = (
    ast.Constant,
    ast.JoinedStr,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.Lambda,
    *_COMPREHENSIONS,
)


@dataclass(frozen=True)
class Names:
    """The names of one scope of the recorded source."""

    bound: frozenset[str]
    used: frozenset[str]  # bound, read or declared here, or left free by a scope inside
    free: frozenset[str]  # what the enclosing scope sees of them
    imports: frozenset[tuple[str, str]]  # (name, where it comes from)


def names_of_scopes(tree: ast.Module) -> dict[ast.AST, Names]:
    """The names of the module and of each function, class, lambda and comprehension in it."""
    table: dict[ast.AST, Names] = {}
    # Outer scopes are found first, so that the reverse order has each scope's inner ones ready.
    for scope in reversed([tree, *(node for node in ast.walk(tree) if isinstance(node, _SCOPES))]):
        table[scope] = _names_of(scope, table)
    return table


def _names_of(scope: ast.AST, table: dict[ast.AST, Names]) -> Names:
    nodes = list(own_nodes(scope))
    bound = {name for node in nodes for name in bound_names(node)}
    declared = {name for node in nodes if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    inner: set[str] = set().union(*(table[node].free for node in nodes if isinstance(node, _SCOPES)))
    if isinstance(scope, _COMPREHENSIONS):
        # A walrus binds outside of its comprehension.
        declared |= {node.target.id for node in nodes if isinstance(node, ast.NamedExpr)}
    used = bound | declared | read | inner
    free = read | inner | declared if isinstance(scope, ast.ClassDef) else used - (bound - declared)
    imports = {
        pair for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)) for pair in imported(node)
    }
    return Names(frozenset(bound), frozenset(used), frozenset(free), frozenset(imports))


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are evaluated in a scope itself, the heads of inner scopes included."""
    stack = _inside(scope)
    while stack:
        node = stack.pop()
        yield node
        stack.extend(_outside(node) if isinstance(node, _SCOPES) else ast.iter_child_nodes(node))


def _inside(scope: ast.AST) -> list[ast.AST]:
    if isinstance(scope, (*FunctionNode, ast.Lambda)):
        body = scope.body if isinstance(scope.body, list) else [scope.body]
        return [*arguments(scope.args), *getattr(scope, "type_params", ()), *body]
    if isinstance(scope, _COMPREHENSIONS):
        first = scope.generators[0].iter
        parts = [node for generator in scope.generators for node in ast.iter_child_nodes(generator)]
        results = [node for node in ast.iter_child_nodes(scope) if not isinstance(node, ast.comprehension)]
        return [node for node in parts if node is not first] + results
    body = getattr(scope, "body", [])
    return [*getattr(scope, "type_params", ()), *body]


def _outside(scope: ast.AST) -> list[ast.AST]:
    if isinstance(scope, _COMPREHENSIONS):
        return [scope.generators[0].iter]
    if isinstance(scope, ast.Lambda):
        return _defaults(scope.args)
    if isinstance(scope, FunctionNode):
        notes = [arg.annotation for arg in arguments(scope.args) if arg.annotation]
        returns = [scope.returns] if scope.returns else []
        return [*scope.decorator_list, *_defaults(scope.args), *notes, *returns]
    if isinstance(scope, ast.ClassDef):
        return [*scope.decorator_list, *scope.bases, *scope.keywords]
    return []


def arguments(args: ast.arguments) -> list[ast.arg]:
    starred = [arg for arg in (args.vararg, args.kwarg) if arg]
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *starred]


def _defaults(args: ast.arguments) -> list[ast.AST]:
    return [*args.defaults, *(default for default in args.kw_defaults if default)]


def evaluated_at_definition(node: ast.AST) -> list[ast.AST]:
    """What runs when a `def` or `class` statement does: decorators, defaults, bases, a class's body."""
    return _outside(node) + (list(node.body) if isinstance(node, ast.ClassDef) else [])


def evaluated(stmt: ast.stmt) -> Iterator[ast.AST]:
    """All nodes that may be evaluated as a statement runs: not the bodies of functions that it defines."""
    stack: list[ast.AST] = [stmt]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, (*FunctionNode, ast.ClassDef)):
            stack.extend(evaluated_at_definition(node))
        else:
            stack.extend(_outside(node) if isinstance(node, ast.Lambda) else ast.iter_child_nodes(node))


def bound_names(node: ast.AST) -> list[str]:
    """The names that this node by itself binds or unbinds."""
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.split(".")[0]]
    name = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
    return [name] if isinstance(name, str) else []


def imported(node: ast.Import | ast.ImportFrom) -> list[tuple[str, str]]:
    """The names that an import binds, each with what it stands for."""
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (node.module or "")
        return [(alias.asname or alias.name, f"{origin}:{alias.name}") for alias in node.names]
    return [
        (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
        for alias in node.names
    ]


@dataclass(frozen=True)
class _Origin:
    """Where a name's value comes from: an expression or an element of it; no expression: something live or new."""

    value: ast.expr | None
    element: bool = False
    fresh: bool = False


@dataclass(frozen=True, eq=False)
class Scope:
    """A scope of the edited source, with what the recorded source has in its place (None: it is all added)."""

    node: ast.AST
    recorded: Names | None
    parent: Scope | None = field(default=None, repr=False)

    def is_new(self, name: str) -> bool:
        return self.recorded is None or name not in self.recorded.used

    @cached_property
    def _origins(self) -> dict[str, list[_Origin]]:
        found: dict[str, list[_Origin]] = {}
        for name, origin in _origins_in(self.node):
            found.setdefault(name, []).append(origin)
        if isinstance(self.node, FunctionNode):
            owned = self.parent is not None and self.parent.recorded is None and _is_class(self.parent.node)
            for position, arg in enumerate(arguments(self.node.args)):
                found.setdefault(arg.arg, []).append(_Origin(None, fresh=owned and position == 0))
        return found

    def is_fresh(self, node: ast.expr, *, element: bool = False, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a value (or its elements) belongs to added statements alone, as far as can be seen."""
        if isinstance(node, ast.Name):
            return self._is_fresh_name(node.id, element, seen)
        if isinstance(node, ast.Call):
            return self._is_fresh_call(node, element, seen)
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.NamedExpr)):
            return self.is_fresh(node.value, seen=seen)
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            parts = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            return all(self.is_fresh(part, element=element, seen=seen) for part in parts)
        if element and (parts := _elements(node)):
            return all(self.is_fresh(part, seen=seen) for part in parts)
        return isinstance(node, _ALWAYS_FRESH)

    def _is_fresh_call(self, call: ast.Call, element: bool, seen: frozenset[str]) -> bool:
        name = called_name(call)
        if name in _WRAPPERS and isinstance(call.func, ast.Name) and (element or name in _ALIASING):
            return all(self.is_fresh(arg, element=True, seen=seen) for arg in call.args)
        if name not in _ALIASING:
            return True
        receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else call.args
        return all(self.is_fresh(part, element=element, seen=seen) for part in receiver)

    def _is_fresh_name(self, name: str, element: bool, seen: frozenset[str]) -> bool:
        if name in seen:
            return True
        scope: Scope | None = self
        while scope is not None:
            if name in scope._origins:
                return scope.is_new(name) and all(
                    origin.fresh
                    if origin.value is None
                    else scope.is_fresh(origin.value, element=element or origin.element, seen=seen | {name})
                    for origin in scope._origins[name]
                )
            scope = scope.parent
        return False


def called_name(call: ast.Call) -> str:
    """`step` for `a.b.step()` and for `step()`; empty for other calls."""
    return last_name(call.func)


def _is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)


def _elements(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return node.elts
    if isinstance(node, ast.Dict):
        return node.values
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [node.elt]
    return [node.value] if isinstance(node, ast.DictComp) else []


def _origins_in(scope: ast.AST) -> Iterator[tuple[str, _Origin]]:
    pending: list[ast.AST] = [scope]
    while pending:
        for node in own_nodes(pending.pop()):
            if isinstance(node, _COMPREHENSIONS):
                pending.append(node)
            yield from _origins_of(node)


def _origins_of(node: ast.AST) -> Iterator[tuple[str, _Origin]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _bind(target, _Origin(node.value))
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        yield from _bind(node.target, _Origin(node.value))
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _bind(node.target, _Origin(node.iter, element=True))
    elif isinstance(node, ast.withitem) and node.optional_vars:
        yield from _bind(node.optional_vars, _Origin(node.context_expr))
    elif not isinstance(node, (ast.Name, ast.arg)):
        fresh = isinstance(node, (*FunctionNode, ast.ClassDef, ast.ExceptHandler))
        yield from ((name, _Origin(None, fresh=fresh)) for name in bound_names(node))


def _bind(target: ast.expr, origin: _Origin) -> Iterator[tuple[str, _Origin]]:
    if isinstance(target, ast.Name):
        yield target.id, origin
    elif isinstance(target, ast.Starred):
        yield from _bind(target.value, origin)
    elif isinstance(target, (ast.Tuple, ast.List)):
        value = origin.value
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) and not origin.element else []
        paired = len(parts) == len(target.elts) and not any(
            isinstance(p, ast.Starred) for p in [*parts, *target.elts]
        )
        for position, item in enumerate(target.elts):
            part = _Origin(parts[position]) if paired else _Origin(value, element=True, fresh=origin.fresh)
            yield from _bind(item, part)
