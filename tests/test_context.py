"""Contexts: which executions of loops are open, how they nest, where they stand and what ran in them."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from florhook.runtime import probes
from florhook.runtime.context import Context, Tracker, counted, flow_of, harvest, labels_of, marks_text
from florhook.runtime.positions import can_position, drive
from florhook.runtime.program import Program


class Watcher(Tracker):
    """Says what a recorder would write: (line, nth, parent's line, parent's iteration, begun, how, marks)."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.rows: list[tuple[Any, ...]] = []
        self.depths: list[int] = []

    def loop(self, site: int, iterable: Any, cells: Any = None) -> Any:
        context = self.push(site, sys._getframe(1))
        self.depths.append(len(self.stack))
        context.iterable = iterable
        return iterable if context.site.tight else counted(context, self.blocks, iterable)

    def blocks(self, context: Context, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        try:
            while True:
                self.close_inner(context)
                context.counts.clear()
                self.end_marks(context)
                before = context.begun
                yield itertools.islice(flow, 1)
                if context.begun == before:
                    return
        except GeneratorExit:
            context.broken = True

    def enter(self, site: int, cells: Any = None) -> None:
        self.push(site, sys._getframe(1))
        self.depths.append(len(self.stack))

    def step(self, site: int) -> bool:
        context = self.find(site, sys._getframe(1))
        assert context is not None
        self.close_inner(context)
        context.counts.clear()
        self.end_marks(context)
        context.position += 1
        return True

    def leave(self, site: int) -> None:
        context = self.find(site, sys._getframe(1))
        assert context is not None
        self.close_inner(context)
        self.pop_to(context)

    def closed(self, context: Context, abandoned: bool) -> None:
        parent = context.parent.site.line if context.parent else 0
        names = [
            self.program.marks[int(n)].partition(":")[2] for n in marks_text(context.total).split(",") if n
        ]
        self.rows.append(
            (
                context.site.line,
                context.nth,
                parent,
                context.parent_iteration,
                context.begun,
                abandoned,
                names,
            )
        )


@pytest.fixture
def watch() -> Iterator[Any]:
    """Runs a program and gives the rows of its contexts, in the order of their ends, and the contexts left open."""
    before, marks = dict(vars(probes)), list(probes.marks)
    probes.marks.clear()

    def run(source: str) -> Watcher:
        program = Program()
        module = sys.modules["prog"] = ModuleType("prog")
        code = program.transform(textwrap.dedent(source).lstrip("\n").encode(), "prog.py", "prog")
        watcher = Watcher(program)
        probes.use(watcher)
        exec(code, vars(module))
        return watcher

    yield run
    sys.modules.pop("prog", None)
    vars(probes).clear()
    vars(probes).update(before)
    probes.marks[:] = marks


def short(watcher: Watcher) -> list[tuple[Any, ...]]:
    return [row[:6] for row in watcher.rows]


def test_nesting(watch: Any) -> None:
    """Each execution knows its parent's iteration, and which of its site's executions there it is."""
    watcher = watch("""
        for a in range(2):
            for _ in "xy":
                for b in range(3): len("")
            n = 2
            while n: n -= len("a")
    """)
    inner = [(3, 0, 2, k, 3, False) for k in range(2)]
    one = [*inner, (2, 0, 1, 0, 2, False), (5, 0, 1, 0, 3, False)]
    two = [*inner, (2, 0, 1, 1, 2, False), (5, 0, 1, 1, 3, False)]
    assert short(watcher) == [*one, *two, (1, 0, 0, -1, 2, False)]
    assert watcher.stack == []


def test_executions_of_one_iteration_are_counted(watch: Any) -> None:
    """The same site twice in one iteration, and at the top."""
    watcher = watch("""
        def f():
            for x in range(2): len("")
        f()
        f()
        for a in range(2):
            f()
            f()
    """)
    assert [row[:4] for row in watcher.rows] == [
        (2, 0, 0, -1), (2, 1, 0, -1), (2, 0, 5, 0), (2, 1, 5, 0), (2, 0, 5, 1), (2, 1, 5, 1), (5, 0, 0, -1),
    ]  # fmt: skip


LEAVING = {
    "return from for": "for x in range(9):\n        len('')\n        if x == 1: return",
    "return from while": "while True:\n        len('')\n        return",
    "exception from for": "for x in range(9):\n        len('')\n        if x == 1: raise KeyError",
    "exception from while": "while True:\n        len('')\n        raise KeyError",
    "return from nested": (
        "for x in range(9):\n        while True:\n            for y in range(3):\n"
        "                len('')\n                return"
    ),
    "return from tight": "for x in range(9):\n        return",
    "return from while in for": "for x in range(9):\n        while True:\n            len('')\n            return",
}


@pytest.mark.parametrize("how", LEAVING)
def test_contexts_left_by_return_and_exception_are_dropped(watch: Any, how: str) -> None:
    """The next loop outside is not taken for one inside, at the top and in a loop."""
    body = LEAVING[how]
    watcher = watch(f"""
def f():
    {body}
def g():
    for z in range(2): len('')
def call():
    try: f()
    except KeyError: pass
call()
g()
for outer in range(2):
    call()
    g()
for last in range(1): len('')
""")
    line = watcher.program.sites
    g = next(site.line for site in line if site.key == "prog:g:0")
    outer = next(site.line for site in line if site.key == "prog::0")
    rows = [row[:6] for row in watcher.rows if row[0] == g]
    assert rows == [(g, 0, 0, -1, 2, False), (g, 0, outer, 0, 2, False), (g, 0, outer, 1, 2, False)]
    assert watcher.rows[-1][:6] == (outer + 3, 0, 0, -1, 1, False)
    abandoned = [row for row in watcher.rows if row[0] < g - 1]
    assert abandoned
    assert all(row[5] for row in abandoned)
    assert watcher.stack == []


def test_a_loop_that_was_left_in_the_same_frame(watch: Any) -> None:
    """An exception caught beside the loop: the loop after it is no part of it, the one inside is."""
    watcher = watch("""
        def f():
            while True:
                try:
                    while True:
                        len("")
                        raise KeyError
                except KeyError:
                    pass
                for x in range(2): len("")
                break
            try:
                for y in range(3):
                    len("")
                    raise KeyError
            except KeyError:
                for z in range(1): len("")
        f()
    """)
    assert short(watcher) == [
        (4, 0, 2, 0, 1, True), (9, 0, 2, 0, 2, False), (2, 0, 0, -1, 1, False), (12, 0, 0, -1, 1, True),
        (16, 0, 0, -1, 1, False),
    ]  # fmt: skip


def test_recursion(watch: Any) -> None:
    """Each activation has contexts of its own, at any depth."""
    watcher = watch("""
        def f(n):
            for x in range(2):
                if n: f(n - 1)
            while n:
                n -= len("a")
        f(2)
    """)
    fors = [row for row in watcher.rows if row[0] == 2]
    assert [row[4] for row in fors] == [2] * 7
    assert [(row[2], row[3]) for row in fors] == [(2, 0), (2, 1), (2, 0), (2, 0), (2, 1), (2, 1), (0, -1)]
    assert watcher.stack == []
    assert max(watcher.depths) == 3


def test_recursion_that_returns_out_of_loops(watch: Any) -> None:
    """Stale contexts of deeper activations do not hide the shallower ones."""
    watcher = watch("""
        def f(n):
            for x in range(3):
                while True:
                    len("")
                    if not n: return 1
                    f(n - 1)
                    break
            return 2
        f(3)
        for y in range(2): len("")
    """)
    assert watcher.rows[-1][:6] == (10, 0, 0, -1, 2, False)
    assert [row[4] for row in watcher.rows if row[:4] == (2, 0, 0, -1)] == [3]


def test_generators_that_loop_between_iterations(watch: Any) -> None:
    """A loop inside the iterable runs within the iteration before."""
    watcher = watch("""
        def g():
            for n in range(2): len("")
            yield 1
            for n in range(2): len("")
            yield 2
        for x in g():
            for y in range(1): len("")
    """)
    assert short(watcher) == [
        (2, 0, 6, -1, 2, False), (7, 0, 6, 0, 1, False), (4, 0, 6, 0, 2, False), (7, 0, 6, 1, 1, False),
        (6, 0, 0, -1, 2, False),
    ]  # fmt: skip


def test_marks_are_of_the_loops_they_ran_in(watch: Any) -> None:
    """A function, method or lambda's caller is known to have run in every loop around it, and in no other."""
    watcher = watch("""
        def a(): pass
        def b(): a()
        class C:
            def m(self): a()
        for x in range(1):
            for y in range(1): b()
            for z in range(1): C().m()
        for w in range(1): len("")
        a()
        for v in range(1): len("")
    """)
    found = {row[0]: set(row[6]) for row in watcher.rows}
    assert found == {
        6: {"a", "b", ":1"}, 7: {"a", "C.m", ":2"}, 5: {"a", "b", "C.m", ":0", ":1", ":2"}, 8: {":3"}, 10: {":4"},
    } or {line: len(names) for line, names in found.items()} == {6: 3, 7: 3, 5: 6, 8: 1, 10: 1}  # fmt: skip


def test_marks_of_generators_that_are_driven_later(watch: Any) -> None:
    """A generator made before the loop has run in each iteration that resumed it."""
    watcher = watch("""
        def g():
            while True:
                yield 1
        it = g()
        next(it)
        for x in range(2): next(it)
        for x in range(2): len("")
    """)
    assert ["g" in row[6] for row in watcher.rows if row[0] in (6, 7)] == [True, False]


BLIND = {
    "while": "while (yield): f()",
    "if": "yield\n    if (yield): f()\n    return",
    "finally": "try: yield\n    finally: f()",
    "except": "try: yield\n    except KeyError: f()",
    "return": "return f((yield))",
}


LATE = pytest.mark.xfail(strict=True, reason="nothing follows the suspension that a mark could stand before")


@pytest.mark.parametrize("how", [pytest.param(h, marks=LATE) if h == "return" else h for h in BLIND])
def test_marks_right_after_a_suspension(watch: Any, how: str) -> None:
    """Whatever runs after a `yield`, in the same statement, in its block or in a handler, is known to have run."""
    watcher = watch(f"""
f = len
def g():
    f = bool
    {BLIND[how]}
it = g()
next(it)
def drive():
    try:
        it.throw(KeyError) if {how in ("except", "finally")} else it.send(1)
    except (KeyError, StopIteration):
        pass
for x in range(1): drive()
""")
    assert "g" in watcher.rows[-1][6]


# Positions -----------------------------------------------------------------------------------------------------


def context_of(iterable: Any) -> tuple[Context, Iterator[Any]]:
    program = Program()
    sys.modules.pop("prog", None)
    program.transform(b"for x in y: f(x)", "prog.py", "prog")
    context = Context(0, program.sites[0], sys._getframe(), None)

    def blocks(context: Context, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        while True:
            before = context.begun
            yield itertools.islice(flow, 1)
            if context.begun == before:
                return

    return context, counted(context, blocks, iterable)


@pytest.mark.parametrize("items", [[], [1], [1, 2, 3], "abc", {1: 2}, range(5)])
def test_counted_says_how_many_were_begun(items: Any) -> None:
    """The items, with the number of those begun right inside each iteration and after the last."""
    context, iterator = context_of(items)
    assert context.begun == 0
    assert context.iteration == -1
    found = []
    for number, item in enumerate(iterator, 1):
        assert (context.begun, context.iteration) == (number, number - 1)
        found.append(item)
    assert found == list(items)
    assert context.begun == len(found)


def test_counted_asks_for_nothing_ahead() -> None:
    """`iter()` at the first step; each item when it is wanted; nothing after an error."""
    said = []

    class Source:
        def __iter__(self) -> Iterator[int]:
            said.append("iter")
            for n in range(2):
                said.append(n)
                yield n
            raise KeyError

    context, iterator = context_of(Source())
    assert said == []
    assert next(iterator) == 0
    assert said == ["iter", 0]
    assert next(iterator) == 1
    with pytest.raises(KeyError):
        next(iterator)
    assert said == ["iter", 0, 1]
    assert context.begun == 2


POSITIONS = {
    "range": (lambda: range(10), True), "list": (lambda: list("abcdef"), True), "tuple": (lambda: (1, 2, 3, 4), True),
    "str": (lambda: "abcdef", True), "bytes": (lambda: b"abcdef", True),
    "list iterator": (lambda: iter([1, 2, 3, 4]), True),
    "range iterator": (lambda: iter(range(2**70, 2**70 + 5)), True), "enumerate": (lambda: enumerate("abcd", 3), True),
    "zip": (lambda: zip("abcd", range(9), strict=False), True), "reversed range": (lambda: reversed(range(5)), True),
    "nested": (lambda: enumerate(zip("abcd", range(9), strict=False)), True),
    "generator": (lambda: (x for x in range(5)), False),
    "enumerate of a generator": (lambda: enumerate(x for x in range(5)), False),
    "zip of a map": (lambda: zip(range(5), map(abs, range(5)), strict=False), False),
    "map": (lambda: map(abs, range(5)), False), "set": (lambda: {1, 2, 3, 4}, False),
    "dict": (lambda: {1: 2}, False), "subclass": (lambda: type("L", (list,), {})([1, 2, 3, 4]), False),
    "count": (itertools.count, False),
}  # fmt: skip


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_can_be_positioned(name: str) -> None:
    """Only what runs none of the program's code when it is passed over. All can be driven past two items."""
    make, can = POSITIONS[name]
    assert can_position("for", make()) is can
    flow = flow_of(cast(Context, SimpleNamespace()), make())
    drive(flow, 2)
    assert list(itertools.islice(flow, 9)) == list(itertools.islice(make(), 2, 11))


def test_a_while_can_always_be_positioned() -> None:
    """All its state is the program's."""
    assert can_position("while", None)


def test_labels() -> None:
    """Plain values of the loop's own variables; a range says its own without a frame."""
    program = Program()
    program.transform(b"for i, (s, o) in y: f(i)\nfor x in y: f(x)", "prog.py", "prog")
    context = Context(0, program.sites[0], sys._getframe(), None)
    i, s, o = 3, "text", object()
    assert labels_of(context, sys._getframe(), 0) == {"i": i, "s": s}
    assert (o, labels_of(context, None, 0)) == (o, {})
    ranged = Context(1, program.sites[1], sys._getframe(), None)
    ranged.iterable = range(10, 20, 3)
    assert labels_of(ranged, None, 2) == {"x": 16}
    assert labels_of(ranged, None, 9) == {}


def test_marks_are_harvested_once() -> None:
    """Each mark is given once, by its number."""
    before = list(probes.marks)
    try:
        probes.marks[:] = [[False] for _ in range(20)]
        probes.marks[3][0] = probes.marks[17][0] = True
        assert marks_text(harvest()) == "3,17"
        assert marks_text(harvest()) == ""
        assert len(probes.marks) == 20
    finally:
        probes.marks[:] = before
