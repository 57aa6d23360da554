"""Rewriting: what probes are put where, and that no program can tell."""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import sys
import textwrap
import time
import traceback
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from florhook import frames
from florhook.hook.rewrite import SIMPLE, rewrite
from florhook.hook.sites import Instrumented
from florhook.replay.plan import Question
from florhook.runtime import probes
from florhook.runtime.program import Program
from florhook.runtime.recorder import Recorder
from florhook.runtime.replayer import Replayer
from florhook.store.rows import CheckpointRow, Piece, RunRow


def parsed(source: str) -> tuple[ast.Module, str]:
    text = textwrap.dedent(source).strip("\n") + "\n"
    return ast.parse(text, "prog.py"), text


def rewritten(
    source: str,
    *,
    replaying: bool = False,
    added: tuple[int, ...] = (),
    every_statement: bool = False,
    first_statement: int = 0,
    keys: Mapping[int, str] = MappingProxyType({}),
) -> tuple[str, Instrumented]:
    """The rewritten source, once the compiler has taken it; `added` are the lines of hindsight statements.

    Statements that may take long are those of `keys`, by line, or all.
    """
    tree, _ = parsed(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno in added]
    named = {
        node: keys[node.lineno] for node in ast.walk(tree) if isinstance(node, SIMPLE) and node.lineno in keys
    }
    info = rewrite(
        tree,
        "m",
        "prog.py",
        replaying=replaying,
        added=nodes,
        statements=None if every_statement else named,
        first_statement=first_statement,
    )
    compile(tree, "prog.py", "exec", dont_inherit=True)
    return ast.unparse(tree), info


def canonical(source: str) -> str:
    return ast.unparse(parsed(source)[0])


# Golden rewrites -----------------------------------------------------------------------------------------------

RECORDED = {
    "for": (
        """
        for x in items:
            f(x)
        """,
        """
        for x in __flor__.loop(0, items):
            f(x)
        __flor__.leave(0)
        """,
    ),
    "for with else": (
        """
        for x in items:
            if f(x):
                break
        else:
            g()
        """,
        """
        for x in __flor__.loop(0, items):
            if f(x):
                break
        else:
            g()
        __flor__.leave(0)
        """,
    ),
    "while": (
        """
        while n > 0:
            n = f(n)
        """,
        """
        __flor__.enter(0)
        while (__flor__.t0() or __flor__.step(0)) and n > 0:
            n = f(n)
        __flor__.leave(0)
        """,
    ),
    "while with or and else": (
        """
        while a or b:
            f()
        else:
            g()
        """,
        """
        __flor__.enter(0)
        while (__flor__.t0() or __flor__.step(0)) and (a or b):
            f()
        else:
            g()
        __flor__.leave(0)
        """,
    ),
    "endless while": (
        """
        while True:
            if f():
                break
        """,
        """
        __flor__.enter(0)
        while True:
            if not __flor__.t0():
                __flor__.step(0)
            if f():
                break
        __flor__.leave(0)
        """,
    ),
    "a while that never runs": ("while 0:\n    f()", "while 0:\n    f()"),
    "nested, numbered outside in": (
        """
        for a in b:
            while c(a):
                f(a)
            else:
                for d in e:
                    f(d)
        for a in b:
            f(a)
        """,
        """
        for a in __flor__.loop(0, b):
            __flor__.enter(2)
            while (__flor__.t2() or __flor__.step(2)) and c(a):
                f(a)
            else:
                for d in __flor__.loop(3, e):
                    f(d)
                __flor__.leave(3)
            __flor__.leave(2)
        __flor__.leave(0)
        for a in __flor__.loop(1, b):
            f(a)
        __flor__.leave(1)
        """,
    ),
    "tight loops": (
        """
        for x in y:
            s += x
        while s < 3:
            s += 1
        """,
        """
        for x in __flor__.loop(0, y):
            s += x
        __flor__.leave(0)
        __flor__.enter(1)
        while s < 3:
            s += 1
        __flor__.leave(1)
        """,
    ),
    "function": (
        '''
        def f(n):
            """Doc."""
            for i in n:
                g(i)
            return i
        def h():
            """Nothing but this."""
        ''',
        '''
        def f(n):
            """Doc."""
            __flor__.m1[0] = True
            for i in __flor__.loop(0, n):
                g(i)
            __flor__.leave(0)
            return i
        def h():
            """Nothing but this."""
            __flor__.m2[0] = True
        ''',
    ),
    "method": (
        """
        class C:
            size = [0 for _ in range(3)]
            def m(self):
                for x in self:
                    f(x)
        """,
        """
        class C:
            size = [0 for _ in range(3)]
            def m(self):
                __flor__.m1[0] = True
                for x in __flor__.loop(0, self):
                    f(x)
                __flor__.leave(0)
        """,
    ),
    "a loop of a class body": (
        "class C:\n    for x in y:\n        f(x)",
        "class C:\n    for x in y:\n        f(x)",
    ),
    "closure": (
        """
        def f(n):
            total = 0
            def add(x):
                nonlocal total
                total += x
            for x in n:
                add(x)
            while total:
                total -= g()
            return lambda: total
        """,
        """
        def f(n):
            __flor__.m1[0] = True
            total = 0
            def add(x):
                __flor__.m2[0] = True
                nonlocal total
                total += x
            for x in __flor__.loop(0, n, lambda: (total,)):
                add(x)
            __flor__.leave(0)
            __flor__.enter(1, lambda: (total,))
            while (__flor__.t1() or __flor__.step(1)) and total:
                total -= g()
            __flor__.leave(1)
            return lambda: total
        """,
    ),
    "generator": (
        """
        def f(n):
            for x in n:
                yield x
            for y in n:
                g(y)
            z = yield
            h(z)
        """,
        """
        def f(n):
            __flor__.m1[0] = True
            for x in n:
                __flor__.m1[0] = True
                yield x
                __flor__.m1[0] = True
            for y in __flor__.loop(0, n):
                __flor__.m1[0] = True
                g(y)
            __flor__.leave(0)
            z = yield
            __flor__.m1[0] = True
            h(z)
        """,
    ),
    "async": (
        """
        async def f(n):
            async for x in n:
                g(x)
            for y in n:
                await g(y)
            for z in n:
                g(z)
        """,
        """
        async def f(n):
            __flor__.m1[0] = True
            async for x in n:
                __flor__.m1[0] = True
                g(x)
            __flor__.m1[0] = True
            for y in n:
                __flor__.m1[0] = True
                await g(y)
                __flor__.m1[0] = True
            for z in __flor__.loop(0, n):
                __flor__.m1[0] = True
                g(z)
            __flor__.leave(0)
        """,
    ),
    "global in a loop": (
        """
        def f():
            for x in y:
                global z
                z = g(x)
        """,
        """
        def f():
            __flor__.m1[0] = True
            for x in y:
                global z
                z = g(x)
        """,
    ),
    "compiled by others": (
        """
        @numba.njit(cache=True)
        def f(n):
            for x in n:
                g(x)
        @torch.jit.script
        def h(n):
            for x in n:
                g(x)
        @torch.compile
        def k(n):
            for x in n:
                g(x)
        """,
        """
        @numba.njit(cache=True)
        def f(n):
            for x in n:
                g(x)
        @torch.jit.script
        def h(n):
            for x in n:
                g(x)
        @torch.compile
        def k(n):
            for x in n:
                g(x)
        """,
    ),
    "match": (
        """
        match a:
            case [b]:
                for x in b:
                    f(x)
            case _:
                pass
        """,
        """
        match a:
            case [b]:
                for x in __flor__.loop(0, b):
                    f(x)
                __flor__.leave(0)
            case _:
                pass
        """,
    ),
    "try": (
        """
        try:
            for x in y:
                f(x)
        except E:
            for x in y:
                g(x)
        else:
            while t():
                f()
        finally:
            for x in y:
                h(x)
        """,
        """
        try:
            for x in __flor__.loop(0, y):
                f(x)
            __flor__.leave(0)
        except E:
            for x in __flor__.loop(1, y):
                g(x)
            __flor__.leave(1)
        else:
            __flor__.enter(2)
            while (__flor__.t2() or __flor__.step(2)) and t():
                f()
            __flor__.leave(2)
        finally:
            for x in __flor__.loop(3, y):
                h(x)
            __flor__.leave(3)
        """,
    ),
    "with, if": (
        """
        with a:
            for x in y:
                f(x)
        if a:
            pass
        elif b:
            for x in y:
                f(x)
        """,
        """
        with a:
            for x in __flor__.loop(0, y):
                f(x)
            __flor__.leave(0)
        if a:
            pass
        elif b:
            for x in __flor__.loop(1, y):
                f(x)
            __flor__.leave(1)
        """,
    ),
    "what runs when it is called": (
        "f = lambda: [x for x in y]\ng = (x for x in y)",
        "f = lambda: [x for x in y]\ng = (x for x in y)",
    ),
}

REPLAYED = {
    "for": (
        "for x in items:\n    f(x)",
        """
        __flor__.open(0, items)
        while __flor__.segment(0):
            for x in __flor__.items(0):
                f(x)
            else:
                __flor__.done(0)
        __flor__.leave(0)
        """,
    ),
    "for with else": (
        """
        for x in items:
            if f(x):
                break
        else:
            g()
        """,
        """
        __flor__.open(0, items)
        while __flor__.segment(0):
            for x in __flor__.items(0):
                if f(x):
                    break
            else:
                __flor__.done(0)
        if __flor__.completed(0):
            g()
        __flor__.leave(0)
        """,
    ),
    "while in a while": (
        """
        while a:
            while True:
                if f():
                    break
            else:
                continue
        """,
        """
        __flor__.open(0)
        while __flor__.segment(0):
            while __flor__.step(0) and a:
                __flor__.open(1)
                while __flor__.segment(1):
                    while __flor__.step(1):
                        if f():
                            break
                    else:
                        __flor__.done(1)
                if __flor__.completed(1):
                    continue
                __flor__.leave(1)
            else:
                __flor__.done(0)
        __flor__.leave(0)
        """,
    ),
    "locals": (
        """
        def f(n):
            for i, *k in n:
                g(i)
            return i
        """,
        """
        def f(n):
            __flor__.m1[0] = True
            __flor__.open(0, n)
            while __flor__.segment(0):
                if __flor__.restoring(0):
                    if __flor__.has(0, 0):
                        i = __flor__.value(0, 0)
                    else:
                        i = None
                        del i
                    if __flor__.has(0, 1):
                        k = __flor__.value(0, 1)
                    else:
                        k = None
                        del k
                for i, *k in __flor__.items(0):
                    g(i)
                else:
                    __flor__.done(0)
            __flor__.leave(0)
            return i
        """,
    ),
    "private names": (
        """
        class C:
            def m(self, n):
                for __x in n:
                    self.g(__x)
        """,
        """
        class C:
            def m(self, n):
                __flor__.m1[0] = True
                __flor__.open(0, n)
                while __flor__.segment(0):
                    if __flor__.restoring(0):
                        if __flor__.has(0, 0):
                            _C__x = __flor__.value(0, 0)
                        else:
                            _C__x = None
                            del _C__x
                    for __x in __flor__.items(0):
                        self.g(__x)
                    else:
                        __flor__.done(0)
                __flor__.leave(0)
        """,
    ),
    "cells": (
        """
        def f(n):
            for x in n:
                g(lambda: x)
        """,
        """
        def f(n):
            __flor__.m1[0] = True
            __flor__.open(0, n, lambda: (x,))
            while __flor__.segment(0):
                if __flor__.restoring(0):
                    if __flor__.has(0, 0):
                        x = __flor__.value(0, 0)
                    else:
                        x = None
                        del x
                for x in __flor__.items(0):
                    g(lambda: x)
                else:
                    __flor__.done(0)
            __flor__.leave(0)
        """,
    ),
    "a global is restored with its module": (
        """
        def f(n):
            global w
            for w in n:
                g(w)
        """,
        """
        def f(n):
            __flor__.m1[0] = True
            global w
            __flor__.open(0, n)
            while __flor__.segment(0):
                for w in __flor__.items(0):
                    g(w)
                else:
                    __flor__.done(0)
            __flor__.leave(0)
        """,
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_program_gets_these_probes(name: str) -> None:
    """Each construct of the language is recorded as the module's docstring says."""
    before, after = RECORDED[name]
    assert rewritten(before)[0] == canonical(after)


@pytest.mark.parametrize("name", REPLAYED)
def test_a_replayed_program_gets_these_probes(name: str) -> None:
    """Each construct of the language is replayed as the module's docstring says."""
    before, after = REPLAYED[name]
    assert rewritten(before, replaying=True)[0] == canonical(after)


LONG_ONES = """
    def f(n):
        before(n)
        for x in n:
            y = make(x).fit(n)
            xs.append(y)
            if y:
                a.b += slow(
                    y)
            for z in x:
                z += 1
            else:
                slow(z)
            slow(x); slow(
                x)
            v: int = slow(1)
            z = x if x is 1 else slow(x)
    """
RECORDED_LONG_ONES = """
    def f(n):
        __flor__.m1[0] = True
        before(n)
        for x in __flor__.loop(0, n):
            if __flor__.h5:
                __flor__.begin(5)
                y = make(x).fit(n)
                __flor__.end(5)
            else:
                y = make(x).fit(n)
            xs.append(y)
            if y:
                if __flor__.h8:
                    __flor__.begin(8)
                    a.b += slow(y)
                    __flor__.end(8)
                else:
                    a.b += slow(y)
            for z in __flor__.loop(1, x):
                z += 1
            else:
                slow(z)
            __flor__.leave(1)
            if __flor__.h6:
                __flor__.begin(6)
                slow(x)
                __flor__.end(6)
                slow(x)
                __flor__.begin(7)
                v: int = slow(1)
                __flor__.end(7)
            else:
                slow(x)
                slow(x)
                v: int = slow(1)
            z = x if x is 1 else slow(x)
        __flor__.leave(0)
    """


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_statements_that_may_take_long_get_a_flag() -> None:
    """Those that call something and stand directly in a loop's body; not what cannot be put in without being seen."""
    text, info = rewritten(LONG_ONES, every_statement=True, first_statement=5)
    assert text == canonical(RECORDED_LONG_ONES)
    assert [(site.line, site.kind, site.outer) for site in info.statements] == [
        (4, "statement", "m:f:0"),
        (13, "statement", "m:f:0"),
        (15, "statement", "m:f:0"),
        (7, "statement", "m:f:0"),
    ]
    assert info.flags == (5, 6, 6, 8)
    assert [site.key for site in info.statements[::3]] == ["m:f:@4.8", "m:f:@7.12"]
    assert [site.key for site in info.sites] == ["m:f:0", "m:f:1"]


def test_a_replay_puts_in_what_a_statement_had_left() -> None:
    """Only of the statements that are named, with the names that each of them binds; none at module level."""
    inside = "def f():\n    for x in y:\n        a, (b.c, d) = g(e := x)\n        g(x)"
    text, info = rewritten(inside, replaying=True, first_statement=5, keys={3: "m:f:@9.9"})
    names = info.statements[0].names
    assert set(names) == {"a", "d", "e"}
    taken = [
        line
        for n, name in enumerate(names)
        for line in (
            f"    if __flor__.has(-6, {n}):",
            f"        {name} = __flor__.value(-6, {n})",
            "    else:",
            f"        {name} = None",
            f"        del {name}",
        )
    ]
    kept = ast.unparse(ast.parse("a, (b.c, d) = g(e := x)"))  # with more brackets on Python 3.10
    form = ["if __flor__.executes(5):", f"    {kept}", "else:", *taken]
    form += ["__flor__.after(5)", "g(x)"]
    assert textwrap.indent("\n".join(form), " " * 12) in text
    assert info.statements[0].key == "m:f:@9.9"
    text, info = rewritten("for x in y:\n    z = g(x)", replaying=True, keys={2: "m::@8.8"})
    assert text == canonical("""
        __flor__.open(0, y)
        while __flor__.segment(0):
            for x in __flor__.items(0):
                if __flor__.executes(0):
                    z = g(x)
                else:
                    pass
                __flor__.after(0)
            else:
                __flor__.done(0)
        __flor__.leave(0)
    """)
    assert info.statements[0].names == ()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* is new in Python 3.11")
def test_loops_under_except_star_are_found() -> None:
    """`TryStar` is a node of its own that a walker may miss."""
    source = "try:\n    f()\nexcept* E as e:\n    for x in e.exceptions:\n        f(x)"
    loop = "for x in __flor__.loop(0, e.exceptions):\n        f(x)\n    __flor__.leave(0)"
    assert rewritten(source)[0] == f"try:\n    f()\nexcept* E as e:\n    {loop}"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are new in Python 3.12")
def test_type_parameters_are_left_alone() -> None:
    """Annotations and type parameters come out as they went in; the function's loop is found."""
    source = "type A[T] = list[T]\ndef f[T: int](x: T) -> T:\n    for y in x:\n        g(y)\n    return (lambda: y)"
    text, info = rewritten(source)
    assert text.startswith("type A[T] = list[T]\n\ndef f[T: int](x: T) -> T:\n")
    assert info.sites[0].cells == ("y",)


def test_hindsight_statements_stand_in_a_with() -> None:
    """In a replay what was added prints through florhook, definitions aside; in a record nothing is known of it."""
    source = """
        for x in y:
            f(x)
            print(x)
        def show():
            print(1)
        show()
    """
    text, info = rewritten(source, replaying=True, added=(3, 4, 5, 6))
    assert text == canonical("""
        __flor__.open(0, y)
        while __flor__.segment(0):
            for x in __flor__.items(0):
                f(x)
                with __flor__.hindsight:
                    print(x)
            else:
                __flor__.done(0)
        __flor__.leave(0)
        def show():
            print(1)
        with __flor__.hindsight:
            show()
    """)
    assert info.probes == (("m:", 4, ""), ("m:", 6, ""), ("m::0", 3, ""))
    assert info.marks == ("m:", "m::0")


def test_hindsight_loops_and_functions_are_not_counted() -> None:
    """The keys of the recorded loops and functions are the same after probes were added above and inside them."""
    plain = "def f():\n    for x in y:\n        g(x)\nfor x in y:\n    g(x)"
    edited = (
        "for q in y:\n    print(q)\ndef f():\n    for x in y:\n        for q in y:\n            print(q)\n"
        "        g(x)\nfor x in y:\n    g(x)"
    )
    before, after = rewritten(plain)[1], rewritten(edited, replaying=True, added=(1, 5))[1]
    assert [site.key for site in before.sites] == [site.key for site in after.sites] == ["m::0", "m:f:0"]
    assert before.marks == after.marks


def test_hindsight_calls_do_not_make_a_loop_worth_looking_into() -> None:
    """A tight loop stays tight when a print is added to it."""
    source = "for x in y:\n    s += x\n    print(s)"
    assert rewritten(source, replaying=True, added=(3,))[1].sites[0].tight
    assert not rewritten(source)[1].sites[0].tight


def test_sites_are_named_by_place() -> None:
    """Functions of one name are told apart; loops are numbered in each, those that are no sites included."""
    source = """
        def f():
            for x in y:
                yield x
            for x in y:
                g(x)
        def f():
            def k():
                for x in y:
                    g(x)
        class C:
            def f(self):
                while g():
                    for x in y:
                        g(x)
    """
    info = rewritten(source)[1]
    assert [site.key for site in info.sites] == ["m:f:1", "m:f#1.k:0", "m:C.f:0", "m:C.f:1"]
    assert [site.outer for site in info.sites] == ["", "", "", "m:C.f:0"]
    assert [mark for mark in info.marks if mark.count(":") == 1] == ["m:", "m:f", "m:f#1", "m:f#1.k", "m:C.f"]


BINDERS = {
    "for x in y: g()": "x",
    "for a, (b, *c) in y: g()": "a b c",
    "for a.b, c[0] in y: g()": "",
    "for x in y:\n import p.q, r.s as t\n from u import v, w as z": "p t v x z",
    "for x in y:\n def k(i): j = 1": "k x",
    "for x in y:\n class K(g()): j = 1": "K x",
    "for x in y:\n with g() as (a, b), h() as c.d: pass": "a b x",
    "for x in y:\n try: g()\n except E as e: f = 1": "e f x",
    "for x in y:\n match g():\n  case {'k': [p, *q], **r}: pass\n  case K(s) as t: pass": "p q r s t x",
    "for x in y: g(a := 1)": "a x",
    "for x in y: g([b for b in y if (a := b)])": "a x",
    "for x in y: g(lambda z: (c := z))": "x",
    "for x in y: del a, b[0], c.d; g()": "a x",
    "for x in y: a: int = g(); b += 1": "a b x",
    "for x in y:\n for z in y: g()\n else: w = 1": "w x z",
    "while g():\n a = 1\nelse:\n b = 2": "a b",
    "while (n := g()): pass": "n",
    "for x in y: g({k: 1 for k in y}, (i for i in y))": "x",
}


@pytest.mark.parametrize("loop", BINDERS)
def test_names_that_a_loop_can_rebind(loop: str) -> None:
    """Every binder of the grammar is known, comprehensions and inner scopes bind nothing."""
    info = rewritten("def f(y):\n" + textwrap.indent(loop, " "), replaying=True)[1]
    assert sorted(info.sites[0].names) == BINDERS[loop].split()


def test_what_closures_rebind_is_restored_too() -> None:
    """A call in the loop may run any nested function that declares a name nonlocal, but no global."""
    source = """
        def f(y):
            a = b = c = 0
            def k():
                nonlocal a
                global w
                a = w = b
            for x in y:
                k()
    """
    site = rewritten(source, replaying=True)[1].sites[0]
    assert (site.names, site.cells) == (("x", "a"), ("a", "b"))


def test_labels_are_the_loop_variables() -> None:
    """By name and place in the item; for a while what it counts."""
    source = "for i, ((j, k), *l, m) in y: g()\nfor a.b in y: g()\nwhile s < 3 and g(t): s += 1"
    labels = [dict(site.labels) for site in rewritten(source)[1].sites]
    assert labels == [{"i": (0,), "j": (1, 0, 0), "k": (1, 0, 1)}, {}, {"s": ()}]


def test_loops_are_found_in_every_compound_statement() -> None:
    """Whatever statement of this Python's grammar holds statements is looked into."""
    loop = ast.parse("for x in y:\n    f(x)").body
    holders = {
        "If": "if a: pass\nelse: pass", "For": "for a in b: f()\nelse: pass", "While": "while a: f()\nelse: pass",
        "With": "with a: pass", "Try": "try: pass\nexcept A: pass\nexcept B: pass\nelse: pass\nfinally: pass",
        "FunctionDef": "def f(): pass", "AsyncFunctionDef": "async def f(): pass",
        "Match": "match a:\n case 1: pass\n case 2: pass",
        "AsyncFor": "async for a in b: pass\nelse: pass", "AsyncWith": "async with a: pass",
        "TryStar": "try: pass\nexcept* A: pass\nelse: pass\nfinally: pass",
    }  # fmt: skip
    names = [
        name
        for name, cls in vars(ast).items()
        if isinstance(cls, type)
        and issubclass(cls, ast.stmt)
        and {"body", "cases"} & set(cls._fields)
        and name != "ClassDef"
    ]
    assert set(names) <= set(holders), "a statement that this test does not know"
    for name in names:
        text = holders[name]
        if name in ("AsyncFor", "AsyncWith"):
            text = "async def g():\n" + textwrap.indent(text, " ")
        tree = ast.parse(text)
        suites = 0
        for node in list(ast.walk(tree)):
            for suite in (
                getattr(node, "body", None),
                getattr(node, "orelse", None),
                getattr(node, "finalbody", None),
            ):
                if isinstance(suite, list) and suite and isinstance(suite[0], ast.Pass):
                    suite[:] = [
                        ast.fix_missing_locations(ast.copy_location(each, suite[0]))
                        for each in ast.parse(ast.unparse(loop[0])).body
                    ]
                    suites += 1
        info = rewrite(ast.parse(ast.unparse(tree)), "m", "prog.py")
        own = name in ("For", "While")
        assert len(info.sites) == suites + own, name


# Deep and large programs ---------------------------------------------------------------------------------------


def test_deep_programs_are_rewritten() -> None:
    """What compiles is not refused by the rewriter for being deep: sums of 500 terms, chains of 1200 branches."""
    chain = "if a == 0: f()\n" + "".join(f"elif a == {n}: f()\n" for n in range(1, 1200))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)  # for the parser
    try:
        trees = [
            ast.parse("for x in y: z = " + "+".join(["x"] * 500)),
            ast.parse(chain + "else:\n for x in y: g(x)\n"),
        ]
        sys.setrecursionlimit(300)
        infos = [rewrite(tree, "m", "prog.py") for tree in trees]
    finally:
        sys.setrecursionlimit(limit)
    assert [len(info.sites) for info in infos] == [1, 1]


# Programs run plainly and rewritten ----------------------------------------------------------------------------


class FakeRecording:
    """Takes what a recorder hands over, and copies it as the writer does."""

    failed = skipped = note = left = None
    bytes_captured = bytes_written = bytes_sent = 0
    writer_cpu_s = 0.0

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self.tables: dict[str, list[tuple[Any, ...]]] = {}
        self.taken: list[tuple[CheckpointRow, list[bytes]]] = []

    def rows(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        self.tables.setdefault(table, []).extend(rows)

    def checkpoint(self, row: CheckpointRow, pieces: list[Piece]) -> bool:
        self.taken.append((row, [bytes(piece.view) for piece in pieces]))
        return True

    def finish(self, *_: Any) -> bool:
        return True


@contextlib.contextmanager
def probes_go_to(handler: object | None) -> Iterator[None]:
    before = dict(vars(probes))
    if handler is not None:
        probes.use(handler)
    try:
        yield
    finally:
        vars(probes).clear()
        vars(probes).update(before)


Outcome = tuple[str, str]  # stdout, and what is known of the exception


def outcome_of(code: CodeType, module: ModuleType) -> Outcome:
    out = io.StringIO()
    trace = ""
    with contextlib.redirect_stdout(out):
        try:
            exec(code, vars(module))
        except BaseException as error:
            steps = traceback.extract_tb(error.__traceback__)[1:]
            places = [(frame.filename, frame.lineno, frame.name) for frame in steps]
            trace = f"{type(error).__name__}: {error} {places} {error.__context__!r} {error.__cause__!r}"
    return out.getvalue(), trace


def run_in(mode: str, source: str) -> Outcome:
    """Runs a program plainly, or rewritten in one of the ways in which florhook runs it."""
    text = parsed(source)[1]
    module = sys.modules["prog"] = ModuleType("prog")
    program = EveryStatement(replaying=True) if mode == "replay all" else Program(replaying=mode == "replay")
    problems: list[str] = []
    try:
        if mode == "plain":
            return outcome_of(compile(text, "prog.py", "exec", dont_inherit=True), module)
        handler = handler_of(mode, program, problems)
        frames.host = __name__  # what pytest holds, which may be much, is not the program's
        code = program.transform(text.encode(), "prog.py", "prog")
        with probes_go_to(handler):
            if mode == "record all":
                for number in program.statements:
                    probes.look_at(number, True)
            outcome = outcome_of(code, module)
        if isinstance(handler, Recorder):
            handler.finish(0)
        assert not problems
        return outcome
    finally:
        frames.host = ""
        del sys.modules["prog"]


def handler_of(mode: str, program: Program, problems: list[str]) -> Any:
    if mode == "inert":
        return None
    if program.replaying:
        run = RunRow("id", "-c", (), "/", 0.0, ended=1.0, exit_code=0)
        empty: Any = SimpleNamespace(by_place={}, loops={}, statement_at={}, store=None, run=run)
        return Replayer(
            program,
            empty,
            Question(frozenset(), frozenset()),
            frozenset(),
            lambda *why: problems.append(str(why)),
        )  # type: ignore[arg-type,return-value]
    recording: Any = FakeRecording()
    recorder = Recorder(program, recording, float("inf") if mode == "record all" else 0.0667, time.time())
    recorder.stop = lambda error: problems.append(repr(error))  # type: ignore[method-assign]
    return recorder


class EveryStatement(Program):
    """A program in the form of a replay, in which any statement may be skipped."""

    def _long_ones(self, name: str, tree: ast.Module, diff: object) -> dict[ast.AST, str]:
        return {node: f"{name}:f:@{number}.0" for number, node in enumerate(ast.walk(tree))}


MODES = ["inert", "record", "record all", "replay", "replay all"]

PROGRAMS = {
    "for else": """
        for n in range(3):
            for x in range(n):
                print(n, x)
            else:
                print("else", n)
    """,
    "break continue": """
        for n in range(6):
            if n == 1:
                continue
            for m in range(4):
                if m == n:
                    break
                if m == 1:
                    continue
                print(n, m)
            else:
                print("else")
                if n > 4:
                    break
                continue
            print("broke", n)
        else:
            print("never")
        print(n, m)
    """,
    "while": """
        def f():
            n = 0
            while n < 5:
                n += 1
                if n == 2: continue
                if n == 4: break
                print(n)
            else:
                print("else")
            while n < 8:
                n += len("a")
            else:
                print("else", n)
            while True:
                n -= 1
                if not n: return "done"
        print(f())
    """,
    "while with a test that prints": """
        def t(x):
            print("t", x)
            return x
        n = 3
        while t(n) and t(n - 1) or t(0):
            n -= 1
        while not t(n > 2):
            n += 1
        while (k := t(n)):
            n -= 1
        print(k, n)
    """,
    "truth is asked once": """
        class T:
            def __init__(self): self.n = 0
            def __bool__(self):
                self.n += 1
                print("bool", self.n)
                return self.n < 3
        t = T()
        while t:
            print("body")
        else:
            print("else")
    """,
    "return out of nested loops": """
        def f(stop):
            for a in range(3):
                n = 0
                while n < 3:
                    for b in "xyz":
                        if (a, n, b) == stop:
                            return stop
                    n += 1
            return "all"
        for stop in [(0, 0, "x"), (1, 2, "y"), (2, 2, "z"), None]:
            print(f(stop))
    """,
    "exceptions": """
        def f(a):
            for x in a:
                try:
                    for y in a:
                        if y == 1: raise ValueError(x)
                        print(y)
                except ValueError as e:
                    print("caught", e)
                    continue
                finally:
                    print("finally")
                while True:
                    raise KeyError(x)
        for a in [[0, 1], [2], []]:
            try:
                print(f(a))
            except KeyError as e:
                print("key", e)
        for z in range(3):
            f([z])
    """,
    "what is not iterable": """
        class Bad:
            def __iter__(self): return 5
        class Raises:
            def __iter__(self): raise OSError("iter")
        class Old:
            def __getitem__(self, n):
                if n > 2: raise IndexError
                return n
        class No:
            __iter__ = None
            def __getitem__(self, n): return n
        for each in [5, None, Bad(), Raises(), Old(), No(), Old]:
            try:
                for x in each:
                    print(x)
            except Exception as e:
                print(type(e), e)
        for x in 5:
            pass
    """,
    "an iterator that raises": """
        def g():
            yield 1
            raise ZeroDivisionError("in g")
        def f():
            for x in g():
                print(x)
        f()
    """,
    "StopIteration by hand": """
        it = iter(range(10))
        for x in it:
            print(x, next(it))
            if x > 5: next(iter(()))
    """,
    "the iterable is not touched": """
        class L(list):
            def __iter__(self):
                print("iter")
                return super().__iter__()
            def __len__(self):
                print("len")
                return 3
            def __getattribute__(self, name):
                print("get", name)
                return super().__getattribute__(name)
        for x in L([1, 2]):
            print(x)
    """,
    "a list that grows": """
        a = [1]
        for x in a:
            if len(a) < 5: a.append(x + 1)
            print(x)
        d = {1: 2}
        for k in d:
            d[len(d) + 1] = 1
    """,
    "generators": """
        def count(n):
            try:
                for x in range(n):
                    got = yield x
                    for y in range(2):
                        print("in", x, y, got)
            finally:
                for z in range(2): print("closing", z)
        for x in count(2):
            for y in count(1):
                print(x, y)
        g = count(3)
        print(next(g), g.send("a"))
        g.close()
        def both():
            r = yield from count(1)
            while (yield r): print("again")
        for x in both(): print(x)
    """,
    "a generator is closed when its loop is left": """
        def g():
            try:
                yield 1
                yield 2
            finally:
                print("closed")
        def breaks():
            for x in g():
                print(x)
                break
            else:
                print("else")
            print("after")
        breaks()
    """,
    "an exhausted iterable in else": """
        class Thing:
            def __iter__(self): return iter([1, 2])
        for x in Thing():
            print(len([x]))
        else:
            print("else")
        print("after")
    """,
    "unbound names": """
        def f(n):
            for x in range(n):
                y = x
                len([])
                if n == 1: del y
            return y
        def g(n):
            for x in range(n):
                len([])
            return x
        for h in f, g:
            for n in 2, 1, 0:
                try:
                    print(h(n))
                except NameError as e:
                    print(type(e).__name__, e)
        for e in [1]:
            try: raise ValueError
            except ValueError as e: print(repr(e))
        print(e)
    """,
    "del in loops": """
        a = {1: 2, 3: 4}
        for k in list(a):
            del a[k], k
            print(a)
        try: k
        except NameError as e: print(e)
    """,
    "closures": """
        def f():
            total = 0
            adders = []
            for x in range(3):
                def add(y):
                    nonlocal total
                    total += x + y
                    return total
                adders.append(add)
                add(10)
            while total < 50:
                adders[0](x)
            return total, [a(0) for a in adders], (lambda: x)()
        print(f())
        def g():
            for x in range(2):
                class C:
                    y = x
                    def m(self): return x, __class__.y
                print(C().m())
        g()
    """,
    "globals in functions": """
        n = 0
        def f():
            global n
            for n in range(3): len("a")
            while n < 5: n += len("a")
            def g():
                global n
                for n in range(n, n + 2): len("a")
            g()
        f()
        print(n)
        def h():
            for x in range(2):
                global late
                late = x
        h()
        print(late)
    """,
    "walrus and comprehensions": """
        def f(a):
            while (n := len(a)) > 1:
                a.pop()
                print(n, [y for x in a if (y := x + 1) > 0], y)
            return [x for x in a for a in range(3)], {x: [z for z in range(x)] for x in range(3)}
        print(f([1, 2, 3]))
        print(list(x for x in [y for y in range(3)]), any((last := x) > 1 for x in range(5)), last)
    """,
    "recursion": """
        def f(n):
            r = []
            for x in range(n):
                r.append(f(x))
                if len(r) > 2: return r
            while n > 3:
                n -= 1
                r.append(f(1))
            return r
        print(f(5))
    """,
    "class bodies": """
        class C:
            names = []
            for n in range(3):
                names.append(n)
                def m(self, k=n): return k
            while n:
                n -= 1
            __x = 5
            def f(self):
                for __y in range(2):
                    print(__y, self.__x)
                return sorted(locals())
        print(C.names, C.n, C().m(), C().f())
        print(sorted(k for k in vars(C) if not k.startswith("__")))
    """,
    "match": """
        for subject in [1, [1, 2, 3], {"a": 1, "b": 2}, "text", (4, 5)]:
            match subject:
                case int(n):
                    for _ in range(n): print("int", n)
                case [a, *rest]:
                    for r in rest:
                        if r == 3: break
                        print(a, r)
                case {"a": a, **rest}:
                    while rest: print(rest.popitem())
                case _ as other:
                    for c in other: print(c)
    """,
    "try in all its parts": """
        def f(n):
            try:
                for x in range(3):
                    try:
                        if x == n: return x
                        print("x", x)
                    finally:
                        for y in range(2):
                            if y: break
                            print("fin", y)
            finally:
                while n < 2: n += len("a")
                print("n", n)
        for n in range(4): print(f(n))
        def swallow():
            for x in range(3):
                try:
                    1 / 0
                finally:
                    if x < 2: continue
                    break
            return x
        print(swallow())
    """,
    "context managers": """
        import contextlib
        @contextlib.contextmanager
        def cm(n):
            print("enter", n)
            try:
                yield n
            except ValueError:
                for x in range(2): print("handled", x)
            finally:
                print("exit", n)
        for n in range(2):
            with cm(n) as a, cm(n + 10):
                for x in range(3):
                    if x: raise ValueError
            with cm(5):
                while True:
                    break
    """,
    "async": """
        import asyncio
        async def agen(n):
            for x in range(n):
                await asyncio.sleep(0)
                yield x
        async def work(name):
            async for x in agen(2):
                for y in range(2): print(name, x, y)
            else:
                print("else")
            r = [x async for x in agen(3) if x]
            for x in range(2):
                async with asyncio.Lock():
                    print(name, "locked", r)
            while r:
                r.pop()
                await asyncio.sleep(0)
            return name
        async def main():
            print(await asyncio.gather(work("a"), work("b")))
        asyncio.run(main())
    """,
    "threads": """
        import threading
        found = []
        def f(n):
            for x in range(n):
                while n > 2: n -= 1
                found.append(x)
        for k in range(3):
            threads = [threading.Thread(target=f, args=(n,)) for n in range(4)]
            for t in threads: t.start()
            for t in threads: t.join()
        print(sorted(found))
    """,
    "what can be seen of names": """
        import sys
        def f(a):
            for x in a:
                b = len(a)
            while b: b -= len("a")
            return sorted(locals()), f.__code__.co_varnames, f.__code__.co_freevars, f.__closure__
        print(f([1]))
        for x in range(2): pass
        print(sorted(n for n in globals() if not n.startswith("__")))
        print(sorted(dir()) == sorted(globals()))
    """,
    "targets that run code": """
        class T:
            def __setattr__(self, name, value): print("set", name, value)
            def __setitem__(self, key, value): print("item", key, value)
        t = T()
        def i(n):
            print("i", n)
            return n
        for t.a, t[i(1)] in [(1, 2), (3, 4)]:
            print("body")
        for t[i(2)] in []: pass
        for a, *b in [(1, 2, 3), (4,)]: print(a, b)
        for a, b in [(1,)]: pass
    """,
    "iterators that change": """
        it = iter([1, 2, 3, 4, 5, 6])
        for x in it:
            for y in it:
                print(x, y)
                break
        for x in zip(it, "ab"): print(x)
        for n, (a, b) in enumerate(zip(range(3), "xyz"), 1): print(n, a, b)
        for x in reversed([1, 2]): print(x)
        for x in map(str, range(3)): print(x)
        import itertools
        for x in itertools.count():
            if x > 3: break
            print(x)
        for x in iter(lambda c=itertools.count(): next(c), 4): print(x)
    """,
    "sys.exit in a loop": """
        import sys
        for x in range(3):
            while True:
                sys.exit(f"bye {x}")
    """,
    "decorators and defaults": """
        def deco(f):
            print("deco", f.__name__)
            return f
        for n in range(2):
            @deco
            def f(x=[i for i in range(n)], *, y=n):
                '''Doc.'''
                for z in x: print(z)
                return y
            print(f(), f.__doc__, f.__defaults__, f.__kwdefaults__)
    """,
    "docstrings and futures": """
        '''Module.'''
        from __future__ import annotations
        def f(x: undefined) -> nothing:
            'Doc'
        for n in range(2):
            a: missing = n
        print(__doc__, f.__doc__, f.__annotations__)
    """,
    "tight loops left in every way": """
        def f(a, how):
            s = 0
            for x in a:
                s += x
                if x == how: break
                if x == -how: return s
            else:
                s = -s
            while s < 9:
                s += 1
                if s == 7: return "seven"
            return s
        for how in range(-3, 4): print(f([0, 1, 2], how))
        def g(a):
            for x in a: x + a
        try: g([1])
        except TypeError as e: print(e)
        print(f([5], 5))
    """,
}
if sys.version_info >= (3, 11):
    PROGRAMS["except star"] = """
        for n in range(3):
            try:
                raise ExceptionGroup("g", [ValueError(n), KeyError(n)])
            except* ValueError as e:
                for x in e.exceptions:
                    if n == 1: break
                    print("value", repr(x))
                else:
                    print("else")
            except* KeyError as e:
                while n: n -= len("a")
                print(repr(e))
    """


@pytest.mark.parametrize(("name", "mode"), list(itertools.product(PROGRAMS, MODES)))
def test_no_program_can_tell(name: str, mode: str) -> None:
    """Output, exceptions and their tracebacks are those of the plain program."""
    assert run_in(mode, PROGRAMS[name]) == run_in("plain", PROGRAMS[name])


def lives(name: str, mode: str) -> Any:
    """Cells are held until the next loop is entered."""
    marks = [pytest.mark.xfail(strict=True, reason="Watch.cells lives on")] if name == "closure" else []
    return pytest.param(name, mode, marks=marks)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        lives(name, mode)
        for name in ["return closes", "exception closes", "tight", "list", "closure", "else"]
        for mode in MODES[1:]
    ],
)
def test_nothing_lives_longer(name: str, mode: str) -> None:
    """Iterables and what closures hold are let go when plain Python lets them go: generators close, objects die."""
    thing = """
        class T:
            def __del__(self): print("del")
            def __iter__(self):
                try: yield 1
                finally: print("closed")
        def call(f):
            try: f()
            except KeyError: print("caught")
            print("after")
    """
    uses = {
        "return closes": "def f():\n    for x in T.__iter__(0):\n        len([])\n        return\ncall(f)",
        "exception closes": "def f():\n    for x in T.__iter__(0):\n        raise KeyError(len([]))\ncall(f)",
        "tight": "def f():\n    for x in T():\n        return\ncall(f)",
        "list": "def f():\n    for x in [T()]:\n        len([])\n        return\ncall(f)",
        "closure": (
            "def f():\n    t = T()\n    k = lambda: t\n    while True:\n"
            "        len([])\n        return\ncall(f)"
        ),
        "else": "for x in T(): len([])\nelse: print('else')\nprint('after')",
    }
    source = textwrap.dedent(thing) + uses[name]
    assert run_in(mode, source) == run_in("plain", source)


def test_functions_inside_compiled_ones_are_left_alone() -> None:
    """numba compiles the inner function with the outer one, from its bytecode; a class in it as it stands."""
    source = (
        "@njit\ndef f(n):\n\n    def g(x):\n        return x\n\n    class C:\n\n        def m(self):\n"
        "            for x in self:\n                g(x)\n    return g(n)"
    )
    assert rewritten(source)[0] == source


# Positions -----------------------------------------------------------------------------------------------------


def steps_of(mode: str, source: str) -> list[tuple[str, str, int]]:
    """What a debugger steps through."""
    seen: list[tuple[str, str, int]] = []

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen.append((frame.f_code.co_name, event, frame.f_lineno))
        return local

    def start(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != "prog.py":
            return None
        seen.append((frame.f_code.co_name, event, frame.f_lineno))
        return local

    before = sys.gettrace()
    sys.settrace(start)
    try:
        run_in(mode, source)
    finally:
        sys.settrace(before)
    return seen


STEPS = {
    "function": "def f():\n    a = 1\n    return a\nf()",
    "docstring": "def f():\n    'doc'\n    a = 1\n    return a\nf()",
    "generator": "def f():\n    yield 1\n    a = yield 2\n    return a\nlist(f())",
    "yielding loop": "def f():\n    for x in range(2):\n        yield x\n    len([])\nlist(f())",
    "one line": "for x in range(2): len([])\ny = 1",
    "for": "for x in range(2):\n    len([])\ny = 1",
    "for else": "for x in range(2):\n    len([])\nelse:\n    z = 1\ny = 1",
    "break": "for x in range(2):\n    if x:\n        break\n    len([])\ny = 1",
    "break from while": "n = 3\nwhile n > len([]):\n    n -= 1\n    if n: break\ny = 1",
    "endless while": "n = 3\nwhile True:\n    n -= len([1])\n    if n: break\ny = 1",
    "while": "n = 3\nwhile n > len([]):\n    n -= 1\ny = 1",
    "tight": "n = 3\nwhile n:\n    n -= 1\ny = 1",
    "nested": "for x in range(2):\n    for y in range(2):\n        len([])\n    z = 1\ny = 1",
    "calls": "for x in range(2):\n    id(x)\n    y = id(x); id(y)\n    id(y)\ny = 1",
    "calls on several lines": (
        "for x in range(2):\n    id(\n    x\n    )\n    y = (\n        id(x))\n    id(y); id(\n        y)\ny = 1"
    ),
    "calls behind headers": (
        "for x in range(2): id(x)\nfor x in range(2): id(\n    x)\nfor x in range(2):\n    if x: id(x)\n"
        "    else: id(\n        x)\n    try: id(\n        x)\n    finally: id(x); id(\n        1)\ny = 1"
    ),
    "calls that raise": (
        "for x in range(2):\n    try:\n        id(\n            1 / x)\n    except Exception: id(x)\ny = 1"
    ),
    "ends on several lines": "for x in range(2):\n    len(\n    []\n    )\ny = 1",
    "nothing but a docstring": "def f():\n    'doc'\nf()",
    "first statement on several lines": "def f():\n    return (\n        1)\nf()",
    "first statement is decorated": "def f():\n    @id\n    def g(): pass\n    return 1\nf()",
    "a declaration first": "def f():\n    global g\n    g = [\n        1]\nf()",
    "a block first": "def f():\n    with open(\n        '/dev/null') as g:\n        pass\nf()",
    "a loop over several lines": (
        "for y in 1, 2:\n    for x in [\n        len([]),\n        len([y])]:\n        len([x])\n    if x: pass\n"
    ),
    "a test on a line of its own": "n = 3\nwhile (\n    n > len([])\n):\n    n -= 1\ny = 1",
    "a test on several lines": "n = 3\nwhile (\n    n).real and [\n    n]:\n    n -= len([1])\ny = 1",
    "a loop first": "def f():\n    for x in [\n        len([])]:\n        len([x])\nf()",
    "suspension on several lines": "def f():\n    a = (\n        yield 1\n    )\n    return a\nlist(f())",
    "suspension in a header": (
        "def f():\n    if (yield 1):\n        a = 1\n    else:\n        b = [\n            len([])]\n"
        "    c = 1\nlist(f())"
    ),
    "a comprehension first": "def f():\n    return [\n        len([x]) for x in\n        (1, 2)]\nf()",
    "constant list on several lines": "for x in [\n    1,\n    2]:\n    len([x])\ny = 1",
}

OFF = dict.fromkeys(
    ["a loop over several lines", "a test on several lines", "a loop first"],
    "a loop's header over several lines is stepped on once more, before what it is made of",
)

if sys.version_info < (3, 12):
    OFF["a test on a line of its own"] = "the `while` is one more step, on the line of its keyword"


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.xfail(strict=True, reason=OFF[n])) if n in OFF else n for n in STEPS],
)
def test_a_debugger_steps_through_the_same_lines(name: str) -> None:
    """Recorded, also under a real recorder that looks at each statement, its line events are the plain one's."""
    plain = steps_of("plain", STEPS[name])
    assert steps_of("record", STEPS[name]) == plain
    assert steps_of("record all", STEPS[name]) == plain
