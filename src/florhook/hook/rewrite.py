"""Puts probes into a module's syntax tree; knows nothing of imports or of what the probes do.

Recording, a loop and a function become

    for x in __flor__.loop(7, ITERABLE, lambda: (cell, ...)):
        BODY
    __flor__.leave(7)

    __flor__.enter(8, lambda: (cell, ...))
    while (__flor__.t8() or __flor__.step(8)) and (TEST):
        BODY
    __flor__.leave(8)

    while True:                          # with enter and leave as above
        __flor__.t8() or __flor__.step(8)
        BODY

    def f():
        __flor__.m3[0] = True
        BODY

(the lambda only where closures share variables with the loop's function), and simple statements in a row, directly in
the body of a loop, some of which call something

    if __flor__.h9:                      # once one of them is known to take long
        __flor__.begin(9)
        STATEMENT
        __flor__.end(9)
        STATEMENT                        # that calls nothing
        ...
    else:
        STATEMENT
        STATEMENT
        ...

Replaying, a loop becomes

    __flor__.open(7, ITERABLE, lambda: (cell, ...))      # a while has no ITERABLE
    while __flor__.segment(7):                           # one turn for each stretch that the plan executes
        if __flor__.restoring(7):
            if __flor__.has(7, 0): name = __flor__.value(7, 0)
            else: name = None; del name
        for x in __flor__.items(7):                      # while __flor__.step(7) and (TEST):
            BODY
        else:
            __flor__.done(7)
    if __flor__.completed(7):
        ORELSE
    __flor__.leave(7)

a statement after which the run left a checkpoint

    if __flor__.executes(9):
        STATEMENT
    else:                                                # as in a loop
        if __flor__.has(-10, 0): name = __flor__.value(-10, 0)
        else: name = None; del name
    __flor__.after(9)

and each hindsight statement stands in `with __flor__.hindsight:`.

Things that don't work: names of ours in the user's scopes (they show in `locals()`), moving a body into a
function (breaks nonlocal, return, super), a wrapper generator around the iterable (its frame shows in tracebacks), one
list for all marks (torch.compile watches every item of a list that it stores into, and compiles again whenever another
function ran), a test before and one after each statement, or one for each (a test takes 5 ns).
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping
from opcode import opmap
from types import CodeType, MappingProxyType
from typing import TypeVar

from ..dataclass import dataclass, field
from .conditions import condition, fixed_labels, guarded, guards_of
from .facts import SCOPES, Fact, Facts, FunctionNode, last_name
from .library import LibraryAttributes
from .quiet import without_syntax_warnings
from .sites import FOR, PROBE, STATEMENT, WHILE, Instrumented, Site, statement_key

LoopNode = ast.For | ast.While
SUSPENDS = (ast.Yield, ast.YieldFrom, ast.Await)
HOLDERS = (ast.ExceptHandler, ast.match_case)
PLAIN_STATEMENTS = (
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.Return,
    ast.Raise,
    ast.Pass,
    ast.Import,
    ast.ImportFrom,
)
SIMPLE = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
)  # of which a statement that takes long may be one
FIRST_PARTS = (
    "func",
    "value",
    "left",
    "test",
    "operand",
    "values",
    "elts",
)  # evaluated first, of whatever has them
QUICK_CALLS = {"abs", "append", "float", "getattr", "int", "isinstance", "len", "print", "str"}
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "stencil", "script", "script_method"}
NO_LINE = -1
NOWHERE = ast.Pass(lineno=NO_LINE, col_offset=NO_LINE)
RESUME = opmap.get("RESUME")  # what a function begins with, from Python 3.11 on
TOO_DEEP = "blocks are nested so deeply that Python has no room for one more around each loop"
Node = TypeVar("Node", bound=ast.AST)


def rewrite(
    tree: ast.Module,
    module: str,
    path: str,
    *,
    replaying: bool = False,
    added: Collection[ast.stmt] = (),
    first_site: int = 0,
    first_mark: int = 0,
    loops: bool = True,
    statements: Mapping[ast.AST, str] | None = MappingProxyType({}),
    first_statement: int = 0,
) -> Instrumented:
    """Instrument `tree` in place. `added` are its hindsight statements; ids count up from the given firsts.

    Without `loops`, functions get their marks, and loops stay as they are. `statements` are those that may take long,
    with their keys; None: all that have the form for it.
    """
    writer = _Writer(
        tree, module, path, replaying, {id(node) for node in added}, first_site, first_mark, loops
    )
    writer.chosen, writer.first_statement = statements, first_statement
    writer.run()
    return Instrumented(
        module,
        path,
        tuple(writer.sites),
        tuple(writer.marks),
        tuple(writer.probes),
        tuple(sorted(writer.left_alone)),
        tuple(writer.ends_early),
        tuple(writer.statements),
        tuple(writer.flags[first_statement + index] for index in range(len(writer.flags))),
        writer.attributes.paths(),
    )


@dataclass
class _Plain:
    """What the compiler makes of a function as it stands; it differs from version to version of Python."""

    cells: set[str] = field(default_factory=set)  # variables that closures share
    order: tuple[str, ...] = ()  # of the other variables
    first_line: int = NO_LINE  # where a debugger stops first


class _Scope:
    """A module or function while its statements are rewritten."""

    def __init__(
        self, name: str, node: ast.AST, plain: _Plain, class_name: str | None, facts: int = 0
    ) -> None:
        self.name = name  # qualified, "" for the module
        self.node = node
        self.class_name = class_name  # of the innermost class around, for private names
        self.mark: int | None = None
        self.loops = 0
        self.is_function = isinstance(node, FunctionNode)
        self.cells = tuple(sorted(plain.cells - {"__class__"}))
        self.order = {name: place for place, name in enumerate(plain.order)}
        self.first_line = plain.first_line
        self.global_names = _global_names(node) if self.is_function and facts & Fact.GLOBAL else set()
        self.suspends = self.is_function and bool(facts & Fact.SUSPENDS)
        self.rebound_by_closures: set[str] = set()
        if self.cells and facts & Fact.NONLOCAL_BELOW:
            declared = {_mangled(n, class_name) for n in _declared_below(node)}
            self.rebound_by_closures = declared & {_mangled(n, class_name) for n in _bound_names(node)}


@dataclass(frozen=True)
class _Body:
    """A list of statements still to be visited. `scope` is None directly in a class body."""

    statements: list[ast.stmt]
    scope: _Scope | None
    qual: str
    place: str  # the key of the innermost site, or else of the function or class
    class_name: str | None
    compiled: bool = False  # by others, with all that is nested in it
    guards: tuple[ast.expr, ...] = ()  # tests that hold here, from the innermost site inwards
    fixed: frozenset[str] = frozenset()  # variables of that site which only its header binds
    loop: str = ""  # the key of that site, if this is run in each of its iterations
    holder: ast.stmt | None = None  # whose suite it is


class _Writer:
    """Visits bodies with a stack of its own, since deep `elif` chains exhaust Python's.

    Bodies are numbered outside in and rewritten inside out, so that what a loop grows into is never taken for
    the user's.
    """

    def __init__(
        self,
        tree: ast.Module,
        module: str,
        path: str,
        replaying: bool,
        added: set[int],
        first_site: int,
        first_mark: int,
        with_loops: bool,
    ) -> None:
        self.tree, self.module, self.path = tree, module, path
        self.replaying, self.added, self.with_loops = replaying, added, with_loops
        self.first_site, self.first_mark = first_site, first_mark
        self.sites: list[Site] = []
        self.keys: set[str] = set()  # of the sites
        self.marks: list[str] = []
        self.probes: list[tuple[str, int, str]] = []
        self.left_alone: list[tuple[int, str]] = []  # line of a loop that is no site, and why
        self.ends_early: list[str] = []
        self.chosen: Mapping[ast.AST, str] | None = None
        self.first_statement = 0
        self.statements: list[Site] = []
        self.flags: dict[int, int] = {}  # by number of a statement, that of the first one of those in its row
        self.loops: dict[int, int] = {}  # id of a loop's node -> id of its site
        self.long_ones: dict[int, int] = {}  # id of a statement's node -> its number
        self.named: dict[str, int] = {}  # how many functions had a qualified name so far
        self.attributes = LibraryAttributes()
        self.facts = Facts(tree, added)
        self.plain = _compiled_plainly(tree, path, replaying, self.facts)

    def run(self) -> None:
        scope = _Scope("", self.tree, _Plain(), None)
        self._new_mark("")
        pending = [_Body(self.tree.body, scope, "", f"{self.module}:", None)]
        visited = []
        while pending:
            body = pending.pop()
            pending.extend(self._visit(body))
            visited.append(body)
        for body in reversed(visited):
            if body.scope is not None:
                self._emit(body.statements, body.scope)
            elif self.replaying:  # in a class body nothing is put but what marks the user's additions
                body.statements[:] = [
                    _hindsight(node) if id(node) in self.added else node for node in body.statements
                ]

    # What a body holds -------------------------------------------------------------------------------------

    def _visit(self, body: _Body) -> list[_Body]:
        inner: list[_Body] = []
        for index, node in enumerate(body.statements):
            if id(node) in self.added:
                test = condition([*body.guards, *guarded(node, body.fixed)], body.fixed)
                self.probes.append((body.place, node.lineno, test))
                continue
            self.attributes.see(
                node, once=not body.loop and body.scope is not None and not body.scope.is_function
            )
            if isinstance(node, SIMPLE):
                if body.loop and body.scope is not None:
                    self._long_one(node, body, body.scope, index)
            elif isinstance(node, FunctionNode):
                inner.append(self._function(node, body))
            elif isinstance(node, ast.ClassDef):
                qual = f"{body.qual}.{node.name}".lstrip(".")
                compiled = body.compiled or _compiled_by_others(node)
                inner.append(_Body(node.body, None, qual, body.place, node.name, compiled))
            else:
                inner.extend(self._compound(node, body))
        inner.reverse()  # the stack pops from its end
        return inner

    def _compound(self, node: ast.stmt, body: _Body) -> Iterator[_Body]:
        place, guards, fixed, loop = body.place, body.guards, body.fixed, body.loop
        if isinstance(node, LoopNode) and body.scope is not None:
            key = self._loop(node, body.scope, place)
            loop = key or ""
            if key is not None:
                place, guards, fixed = key, (), frozenset(self._fixed(node))
        elif isinstance(node, (ast.For, ast.While, ast.AsyncFor)):
            self.left_alone.append((node.lineno, _why_outside(node, body.compiled)))
        for suite in _suites(node):  # an `else` belongs to its loop, which is left only after it
            inside = (*guards, *guards_of(node, suite))
            repeated = "" if isinstance(node, LoopNode) and suite is node.orelse else loop
            yield _Body(
                suite,
                body.scope,
                body.qual,
                place,
                body.class_name,
                body.compiled,
                inside,
                fixed,
                repeated,
                node,
            )

    def _fixed(self, node: LoopNode) -> set[str]:
        if not self.added or not isinstance(node, ast.For):
            return set()
        return fixed_labels(node, {name for name, _ in _labels(node)}, self.tree)

    def _function(self, node: FunctionNode, body: _Body) -> _Body:
        qual = f"{body.qual}.{node.name}".lstrip(".")
        count = self.named.get(qual, 0)
        self.named[qual] = count + 1
        if count:
            qual += f"#{count}"
        if body.compiled or _compiled_by_others(node):
            return _Body(node.body, None, qual, body.place, body.class_name, compiled=True)
        scope = _Scope(qual, node, self._plain(node), body.class_name, self.facts.of(node))
        scope.mark = self._new_mark(qual)
        return _Body(node.body, scope, qual, f"{self.module}:{qual}", body.class_name)

    def _plain(self, node: FunctionNode) -> _Plain:
        found = self.plain.get((node.name, _first_line(node)))
        return found or _Plain(first_line=_only_line(node, self.facts) or NO_LINE)

    def _loop(self, node: LoopNode, scope: _Scope, place: str) -> str | None:
        number, scope.loops = scope.loops, scope.loops + 1
        hindrance = _hindrance(node, self.facts) if self.with_loops else TOO_DEEP
        if hindrance is not None:
            self.left_alone.append((node.lineno, hindrance))
            return None
        key = f"{self.module}:{scope.name}:{number}"
        kind = FOR if isinstance(node, ast.For) else WHILE
        parts = [*node.body, *([node.test] if isinstance(node, ast.While) else [])]
        tight = not any(self.facts.of(part) & Fact.CALLS and id(part) not in self.added for part in parts)
        self.loops[id(node)] = self.first_site + len(self.sites)
        outer = place if place in self.keys else ""
        names = self._restored_names(node, scope)
        site = Site(key, node.lineno, kind, names, scope.cells, _labels(node), tight, outer)
        self.sites.append(site)
        self.keys.add(key)
        self.marks.append(key)
        if self.added:
            self._end_early(node, self.loops[id(node)], key)
        return key

    def _restored_names(self, node: ast.stmt, scope: _Scope) -> tuple[str, ...]:
        """The function's variables that a restore assigns to, in an order in which they have their plain places."""
        if not (scope.is_function and self.replaying):
            return ()
        names = {_mangled(name, scope.class_name) for name in _bound_names(node)}
        names = (names | scope.rebound_by_closures) - scope.global_names
        return tuple(sorted(names, key=lambda name: (scope.order.get(name, len(scope.order)), name)))

    def _long_one(self, node: ast.stmt, body: _Body, scope: _Scope, index: int) -> None:
        """Number a statement that may take long."""
        if self.chosen is not None and node not in self.chosen:
            return
        facts = self.facts.of(node)
        if not facts & Fact.CALLS or facts & (Fact.SUSPENDS | Fact.WARNED_OF):
            return
        if self.chosen is None:
            if _is_quick(node, self.facts) or not _begins_a_line(node, body.statements, index, body.holder):
                return
            key = statement_key(self.module, scope.name, node.lineno, node.col_offset)
        else:
            key = self.chosen[node]
        self.long_ones[id(node)] = self.first_statement + len(self.statements)
        names = self._restored_names(node, scope)
        self.statements.append(Site(key, node.lineno, STATEMENT, names, outer=body.loop))

    def _new_mark(self, qual: str) -> int:
        self.marks.append(f"{self.module}:{qual}")
        return self.first_mark + len(self.marks) - 1

    # What is put in ----------------------------------------------------------------------------------------

    def _emit(self, body: list[ast.stmt], scope: _Scope) -> None:
        out: list[ast.stmt] = []
        first = -1
        if scope.mark is not None and body is getattr(scope.node, "body", None):
            first = int(_has_docstring(body))
        rows = self._rows(body)
        for index, node in enumerate(body):
            if index == first:
                out.append(_mark(scope.mark, scope.first_line))
            if id(node) in rows:
                out.extend(rows[id(node)])
                continue
            out.extend(self._statement(node))
            # After a suspension the function runs on in somebody else's iteration.
            if scope.suspends and id(node) not in self.added and _suspends_here(node):
                out.append(_mark(scope.mark))
        if first == len(body):
            out.append(_mark(scope.mark, scope.first_line))
        # A suite may be entered by a suspension in the header above it, or in what was tried.
        if scope.suspends and scope.mark is not None and first < 0 and body:
            out.insert(0, _mark(scope.mark))
        body[:] = out

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if id(node) in self.added:
            return [_hindsight(node)] if self.replaying else [node]
        if isinstance(node, SIMPLE) and id(node) in self.long_ones:
            ours = self.long_ones[id(node)]
            return _executed(node, ours, self.statements[ours - self.first_statement])
        number = self.loops.get(id(node))
        if number is None or not isinstance(node, LoopNode):
            return [node]
        site = self.sites[number - self.first_site]
        return _replayed(node, number, site) if self.replaying else _recorded(node, number, site)

    def _rows(self, body: list[ast.stmt]) -> dict[int, list[ast.stmt]]:
        """What becomes of simple statements in a row, some of which may take long: by id, all of it at the first."""
        found: dict[int, list[ast.stmt]] = {}
        if self.replaying or not any(id(node) in self.long_ones for node in body):
            return found
        for together, nodes in itertools.groupby(body, self._may_stand_twice):
            row = list(nodes)
            places = [at for at, node in enumerate(row) if id(node) in self.long_ones]
            if together and places:
                row = row[places[0] : places[-1] + 1]
                found.update((id(node), []) for node in row)
                found[id(row[0])] = [self._looked_at(row)]
        return found

    def _may_stand_twice(self, node: ast.stmt) -> bool:
        """Whether a copy of a statement is the same to everybody."""
        facts = self.facts.of(node)
        return isinstance(node, SIMPLE) and not facts & (Fact.SUSPENDS | Fact.WARNED_OF)

    def _looked_at(self, row: list[ast.stmt]) -> ast.stmt:
        flag = self.long_ones[id(row[0])]
        copy: list[ast.stmt] = []
        for node in row:
            number = self.long_ones.get(id(node))
            if number is None:
                copy.append(node)
                continue
            self.flags[number] = flag
            at = _quietly_at(node)
            begin, end = (_at(ast.Expr(_call(name, number, at)), at) for name in ("begin", "end"))
            copy += [begin, node, end]
        at = _quietly_at(row[0])
        test = _attribute(f"h{flag}", at)
        if (
            at is row[0]
        ):  # where a debugger's trace function may raise, and a traceback underlines what comes first
            for part in (test, test.value):
                ast.copy_location(part, _first_evaluated(row[0]))
        return _at(ast.If(test, copy, row), at)

    def _end_early(self, node: LoopNode, number: int, key: str) -> None:
        """Where an iteration begins with hindsight and has no more of it, ask whether the rest of it is needed."""
        places = [at for at, part in enumerate(node.body) if id(part) in self.added]
        inside = sum(
            id(inner) in self.added for part in (*node.body, *node.orelse) for inner in ast.walk(part)
        )
        if places != list(range(inside)) or inside == len(node.body):
            return
        self.ends_early.append(key)
        if self.replaying:
            left = _at(ast.If(_call("enough", number, NOWHERE), [_at(ast.Continue(), NOWHERE)], []), NOWHERE)
            node.body.insert(inside, left)


# Shapes --------------------------------------------------------------------------------------------------------


def _recorded(node: LoopNode, number: int, site: Site) -> list[ast.stmt]:
    after = _after("leave", number)
    if isinstance(node, ast.For):
        node.iter = _as_iterated(node.iter)
        node.iter = _call("loop", number, node.iter, node.iter, *_cells(site, node.iter))
        return [node, after]
    test = node.test  # which may begin on a line after the `while`
    before = _at(ast.Expr(_call("enter", number, test, *_cells(site, test))), test)
    if not site.tight and _is_endless(node):
        # Python 3.13.0 refuses an `or` that has no line at the start of an endless loop ("Invalid CFG").
        uncounted = _at(ast.UnaryOp(ast.Not(), _ticks(number, NOWHERE)), NOWHERE)
        step = _at(ast.Expr(_call("step", number, NOWHERE)), NOWHERE)
        node.body.insert(0, _at(ast.If(uncounted, [step], []), NOWHERE))
    elif not site.tight:
        node.test = _and(_counted_step(number, node.test), node.test)
    return [before, node, after]


def _replayed(node: LoopNode, number: int, site: Site) -> list[ast.stmt]:
    iterable = [_as_iterated(node.iter)] if isinstance(node, ast.For) else []
    opened = _call("open", number, node, *iterable, *_cells(site, node))
    orelse, node.orelse = node.orelse, [_after("done", number)]
    if isinstance(node, ast.For):
        node.iter = _call("items", number, node.iter)
    else:
        node.test = _and(_call("step", number, node.test), node.test)
    turn: list[ast.stmt] = [*_restores(number, site, node), node]
    out: list[ast.stmt] = [
        _at(ast.Expr(opened), node),
        _at(ast.While(test=_call("segment", number, node), body=turn, orelse=[]), node),
    ]
    if orelse:
        out.append(_at(ast.If(test=_call("completed", number, node), body=orelse, orelse=[]), node))
    return [*out, _after("leave", number)]


def _quietly_at(node: ast.stmt) -> ast.stmt:
    """The statement's own line, or none where that would be one more step of a debugger's."""
    return node if node.lineno == node.end_lineno else NOWHERE


def _first_evaluated(node: ast.stmt) -> ast.AST:
    """The part of a simple statement that the first instruction belongs to."""
    part: ast.AST = node.target if isinstance(node, ast.AugAssign) else node
    while True:
        inner = next((each for name in FIRST_PARTS if (each := getattr(part, name, None))), None)
        if isinstance(inner, list):
            inner = inner[0]
        if not isinstance(inner, ast.expr):
            return part
        part = inner


def _executed(node: ast.stmt, number: int, site: Site) -> list[ast.stmt]:
    restored = _assignments(-1 - number, site, node) or [_at(ast.Pass(), node)]
    turn = ast.If(_call("executes", number, node), [node], restored)
    return [_at(turn, node), _after("after", number)]


def _as_iterated(node: ast.expr) -> ast.expr:
    """The compiler makes a tuple of a list of constants that a `for` iterates over, in one step of a debugger's."""
    if isinstance(node, ast.List) and all(map(_is_constant, node.elts)):
        return ast.copy_location(ast.Tuple(node.elts, ast.Load()), node)
    return node


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return all(map(_is_constant, node.elts))
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _restores(number: int, site: Site, at: ast.AST) -> list[ast.stmt]:
    body = _assignments(number, site, at)
    return [_at(ast.If(_call("restoring", number, at), body, []), at)] if body else []


def _assignments(number: int, site: Site, at: ast.AST) -> list[ast.stmt]:
    """Of the restored values; a name that was not bound then is unbound."""
    body: list[ast.stmt] = []
    for index, name in enumerate(site.names):
        place = _at(ast.Constant(index), at)
        bind = ast.Assign([_at(ast.Name(name, ast.Store()), at)], _call("value", number, at, place))
        empty = ast.Assign([_at(ast.Name(name, ast.Store()), at)], _at(ast.Constant(None), at))
        unbind = ast.Delete([_at(ast.Name(name, ast.Del()), at)])
        test = _call("has", number, at, _at(ast.Constant(index), at))
        body.append(_at(ast.If(test, [_at(bind, at)], [_at(empty, at), _at(unbind, at)]), at))
    return body


def _is_endless(node: ast.While) -> bool:
    """The compiler leaves out what comes after such a loop, as long as its test stays as it is."""
    return isinstance(node.test, ast.Constant) and bool(node.test.value)


def _ticks(number: int, at: ast.AST) -> ast.expr:
    """C code counts the iterations before the next one that is looked at, where there are any."""
    return _at(ast.Call(_attribute(f"t{number}", at), [], []), at)


def _counted_step(number: int, at: ast.AST) -> ast.expr:
    return _at(ast.BoolOp(ast.Or(), [_ticks(number, at), _call("step", number, at)]), at)


def _and(step: ast.expr, test: ast.expr) -> ast.expr:
    if isinstance(test, ast.Constant) and test.value:
        return step
    return _at(ast.BoolOp(ast.And(), [step, test]), test)


def _hindsight(node: ast.stmt) -> ast.stmt:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node
    return _at(ast.With(items=[ast.withitem(_attribute("hindsight", node), None)], body=[node]), node)


def _mark(mark: int | None, line: int = NO_LINE) -> ast.stmt:
    """A line of its own would be one more step of a debugger's."""
    at = NOWHERE if line == NO_LINE else ast.Pass(lineno=line, col_offset=0)
    target = ast.Subscript(_attribute(f"m{mark}", at), _at(ast.Constant(0), at), ast.Store())
    return _at(ast.Assign([_at(target, at)], _at(ast.Constant(True), at)), at)


def _cells(site: Site, at: ast.AST) -> list[ast.expr]:
    """`lambda: (a, b)`: its closure is the only way to a running frame's cells."""
    if not site.cells:
        return []
    names: list[ast.expr] = [_at(ast.Name(name, ast.Load()), at) for name in site.cells]
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return [_at(ast.Lambda(arguments, _at(ast.Tuple(names, ast.Load()), at)), at)]


def _call(name: str, number: int, at: ast.AST, *arguments: ast.expr) -> ast.Call:
    call = _at(ast.Call(_attribute(name, at), [_at(ast.Constant(number), at), *arguments], []), at)
    if isinstance(at, ast.expr) and at in arguments:
        # What `iter()` raises is shown at the iterable, over its whole width.
        call.end_lineno, call.end_col_offset = at.end_lineno, at.end_col_offset
    return call


def _after(name: str, number: int) -> ast.stmt:
    """A call without a line, so that no debugger stops at it and no line is stepped on anew."""
    return _at(ast.Expr(_call(name, number, NOWHERE)), NOWHERE)


def _attribute(name: str, at: ast.AST) -> ast.Attribute:
    return _at(ast.Attribute(_at(ast.Name(PROBE, ast.Load()), at), name, ast.Load()), at)


def _at(node: Node, where: ast.AST) -> Node:
    """Give `node` the start of `where` as its place, its end collapsed onto it."""
    node.lineno = node.end_lineno = where.lineno  # type: ignore[attr-defined]
    node.col_offset = node.end_col_offset = where.col_offset  # type: ignore[attr-defined]
    return node


# Questions about the user's code -------------------------------------------------------------------------------


def _suites(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Every list of statements directly below a statement, in source order."""
    for name in node._fields:
        value = getattr(node, name, None)
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], ast.stmt):
            yield value
        elif hasattr(value[0], "body"):  # handlers of a try, cases of a match
            yield from (part.body for part in value)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a function or statement that runs in its own scope; what is nested is left out."""
    work = list(ast.iter_child_nodes(node))
    while work:
        inner = work.pop()
        yield inner
        if isinstance(inner, SCOPES):
            work.extend(getattr(inner, "decorator_list", []))
        else:
            work.extend(ast.iter_child_nodes(inner))


def _suspends_here(node: ast.stmt) -> bool:
    """Whether a statement of one line, so to speak, suspends: blocks hold statements that are asked themselves."""
    if isinstance(node, SCOPES):
        return False
    if isinstance(node, (ast.AsyncFor, ast.AsyncWith)):
        return True
    headers = [child for child in ast.iter_child_nodes(node) if not isinstance(child, (ast.stmt, *HOLDERS))]
    return any(isinstance(inner, SUSPENDS) for h in headers for inner in (h, *_own_nodes(h)))


def _hindrance(node: LoopNode, facts: Facts) -> str | None:
    """Why a loop of a module or function is no site.

    A loop that suspends outlives the iterations around it; declarations must come before any use.
    """
    if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and not node.test.value:
        return "it never runs"
    if not facts.of(node) & (Fact.SUSPENDS | Fact.ASYNC_BLOCK | Fact.GLOBAL | Fact.NONLOCAL):
        return None
    for inner in _own_nodes(node):
        if isinstance(inner, (*SUSPENDS, ast.AsyncFor, ast.AsyncWith)):
            return f"it suspends (line {inner.lineno}: yield, await or the like)"
        if isinstance(inner, (ast.Global, ast.Nonlocal)):
            word = "global" if isinstance(inner, ast.Global) else "nonlocal"
            return f"it holds a {word} statement (line {inner.lineno})"
    return None


def _is_quick(node: ast.stmt, facts: Facts) -> bool:
    """Whether all that a statement calls is known to take no time."""
    call = getattr(node, "value", None)
    if not isinstance(call, ast.Call):
        return False
    func = call.func
    parts = [*call.args, *(word.value for word in call.keywords)]
    parts += [func.value] if isinstance(func, ast.Attribute) else []
    parts += node.targets if isinstance(node, ast.Assign) else []
    return last_name(func) in QUICK_CALLS and not any(facts.of(part) & Fact.CALLS for part in parts)


def _begins_a_line(node: ast.stmt, suite: list[ast.stmt], index: int, holder: ast.stmt | None) -> bool:
    """Whether a statement is all on one line, or begins on a line of its own.

    Else what is put in before it can stand on no line: a debugger would stop there once more.
    """
    if node.lineno == node.end_lineno:
        return True
    if index:
        return suite[index - 1].end_lineno != node.lineno
    return holder is None or node.lineno > _end_of_header(holder, suite)


def _end_of_header(holder: ast.stmt, suite: list[ast.stmt]) -> int:
    """The last line of what stands before a suite in its own clause."""
    parts = [*getattr(holder, "handlers", ()), *getattr(holder, "cases", ())]
    clause = next((part for part in parts if part.body is suite), holder)
    heads = (each for each in ast.iter_child_nodes(clause) if not isinstance(each, (ast.stmt, *HOLDERS)))
    lines = [getattr(each, "end_lineno", None) or 0 for each in heads]
    return max([getattr(clause, "lineno", 0), *lines])


def _why_outside(node: ast.stmt, compiled: bool) -> str:
    """Why a loop that no scope of ours holds is no site."""
    if isinstance(node, ast.AsyncFor):
        return "it is an async for"
    return "it is compiled by numba or torch" if compiled else "it stands in a class body"


def _compiled_by_others(node: FunctionNode | ast.ClassDef) -> bool:
    """Whether a decorator hands the function's code to a compiler that does not know our probes."""
    for decorator in node.decorator_list:
        words = _dotted(decorator)
        if "numba" in words or COMPILERS & set(words[-1:]) or words[-2:] == ["torch", "compile"]:
            return True
    return False


def _dotted(node: ast.expr) -> list[str]:
    """`a.b.c(...)` and `a.b.c` as a, b, c."""
    words: list[str] = []
    while isinstance(node, (ast.Call, ast.Attribute)):
        if isinstance(node, ast.Call):
            node, words = node.func, []
        else:
            words.append(node.attr)
            node = node.value
    if isinstance(node, ast.Name):
        words.append(node.id)
    return words[::-1]


def _bound_names(place: ast.AST) -> set[str]:
    """The names of its own scope that a loop (or function) can bind, rebind or unbind."""
    bound: set[str] = set()
    for node in _own_nodes(place):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
    bound.discard("*")
    return bound - _comprehension_variables(place)


def _comprehension_variables(place: ast.AST) -> set[str]:
    """Names that only comprehensions bind: they have a scope of their own, `:=` in them aside."""
    inside: set[str] = set()
    outside: set[str] = set()
    work: list[tuple[ast.AST, bool]] = [(place, False)]
    while work:
        node, in_target = work.pop()
        if isinstance(node, SCOPES) and node is not place:
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            (inside if in_target else outside).add(node.id)
        for name, value in ast.iter_fields(node):
            target = in_target or (isinstance(node, ast.comprehension) and name == "target")
            children = value if isinstance(value, list) else [value]
            work.extend((child, target) for child in children if isinstance(child, ast.AST))
    return inside - outside


def _global_names(function: ast.AST) -> set[str]:
    return {name for inner in _own_nodes(function) if isinstance(inner, ast.Global) for name in inner.names}


def _declared_below(function: ast.AST) -> set[str]:
    """Names that functions nested in this one declare nonlocal."""
    own = {name for inner in _own_nodes(function) if isinstance(inner, ast.Nonlocal) for name in inner.names}
    everything = {
        name for inner in ast.walk(function) if isinstance(inner, ast.Nonlocal) for name in inner.names
    }
    return everything - own


def _labels(node: LoopNode) -> tuple[tuple[str, tuple[int, ...]], ...]:
    if isinstance(node, ast.While):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)}
        counted = {
            n.target.id
            for n in _own_nodes(node)
            if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
        }
        return tuple((name, ()) for name in sorted(names & counted))
    found: list[tuple[str, tuple[int, ...]]] = []
    work: list[tuple[ast.expr, tuple[int, ...]]] = [(node.target, ())]
    while work:
        target, place = work.pop()
        if isinstance(target, ast.Name):
            found.append((target.id, place))
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, part in enumerate(target.elts):
                if isinstance(part, ast.Starred):
                    break
                work.append((part, (*place, index)))
    return tuple(sorted(found, key=lambda label: label[1]))  # in the order of the source


def _has_docstring(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _mangled(name: str, class_name: str | None) -> str:
    """PEP 8's private names: `__x` in `class C` is `_C__x`."""
    stripped = (class_name or "").lstrip("_")
    if not stripped or not name.startswith("__") or name.endswith("__") or "." in name:
        return name
    return f"_{stripped}{name}"


def _first_line(node: FunctionNode) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _compiled_plainly(
    tree: ast.Module, path: str, replaying: bool, facts: Facts
) -> dict[tuple[str, int], _Plain]:
    """What is asked of the compiler, by function (name, first line); nothing if nothing has to be."""
    found: dict[tuple[str, int], _Plain] = {}
    if not _has_to_be_compiled(facts, replaying):
        return found
    with without_syntax_warnings():  # the compilation that counts warns again
        work = [compile(tree, path, "exec", dont_inherit=True)]
    while work:
        code = work.pop()
        new = _Plain(order=code.co_varnames, first_line=_first_stop(code))
        plain = found.setdefault((code.co_name, code.co_firstlineno), new)
        plain.cells.update(code.co_cellvars, code.co_freevars)
        work.extend(const for const in code.co_consts if isinstance(const, CodeType))
    return found


def _has_to_be_compiled(facts: Facts, replaying: bool) -> bool:
    for node in facts.functions:
        held = facts.of(node)
        if held & Fact.LOOP and (replaying or held & Fact.CLOSURE):
            return True
        if _only_line(node, facts) is None:
            return True
    return False


def _only_line(node: FunctionNode, facts: Facts) -> int | None:
    """The line of what runs first in a function, where all that may be the first stands on one line."""
    body = node.body[int(_has_docstring(node.body)) :]
    if not body:
        return None
    first = body[0]
    # "%s" % x is optimised, and some versions lose its line.
    if facts.of(first) & Fact.REMAINDER:
        return None
    if isinstance(first, PLAIN_STATEMENTS):
        return first.lineno if first.lineno == first.end_lineno else None
    header = _header(first)
    one_line = header is not None and first.lineno == header.lineno == header.end_lineno
    return first.lineno if one_line and _is_evaluated(header) else None


def _header(node: ast.stmt) -> ast.expr | None:
    """What a block begins with."""
    if isinstance(node, (ast.If, ast.While)):
        return node.test
    if isinstance(node, ast.For):
        return node.iter
    return node.items[0].context_expr if isinstance(node, ast.With) else None


def _is_evaluated(node: ast.expr | None) -> bool:
    """Whether an expression begins with a name, which the compiler cannot leave out as it does with constants."""
    while node is not None and not isinstance(node, ast.Name):
        node = next(
            (getattr(node, name) for name in ("func", "value", "left", "operand") if hasattr(node, name)),
            None,
        )
        node = node if isinstance(node, ast.expr) else None
    return isinstance(node, ast.Name) and node.id != "__debug__"


def _first_stop(code: CodeType) -> int:
    """The line of what runs first. Until Python 3.10 what has no line of its own takes none from the `def`."""
    if RESUME is None:
        return NO_LINE
    start = code.co_code[::2].find(RESUME) * 2 + 2
    return next((line for _, end, line in code.co_lines() if end > start), None) or NO_LINE
