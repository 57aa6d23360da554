"""The source diff tells hindsight from edits that change what the program computes."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from florhook.hook.diff import SourceDiff, compare

CASES = Path(__file__).parents[2] / "shared" / "cases"

PROGRAM = """
    '''A little training program.'''
    import logging
    import random
    import sys
    import torch
    from torch import nn

    log = logging.getLogger(__name__)
    lr = 0.1
    net = nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    shout = lambda *words: print(*words, sep="!")
    history = []


    class Meter:
        '''Counts.'''

        def __init__(self, start=0):
            self.total = start

        def add(self, value):
            self.total += value
            return self.total


    def train(model, x, scale=1.0):
        model.train()
        loss = model(x).sum() * scale
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()


    def report(epoch, loss):
        text = f"{epoch} {loss}"
        print(text)


    batches = iter([torch.ones(4)] * 9)
    meter = Meter()
    for epoch in range(3):
        total = 0.0
        for x in next(batches).split(2):
            if epoch == 1:
                total += 1
            elif epoch == 2:
                total += 2
        loss = train(net, torch.ones(1, 4))
        history.append(loss)
        print("epoch", epoch, loss)
        print("epoch", epoch, loss)
        log.info("loss %s", loss)
        if epoch % 2 == 0:
            print("even")
        report(epoch, loss)
        print("next", next(batches))
        print("luck", random.random())
    while lr > 1:
        lr = lr / 2
    try:
        final = history[-1]
    except IndexError:
        final = None
    with torch.no_grad():
        final_sum = net.weight.sum()
    shout("done", final)
"""
SOURCE = textwrap.dedent(PROGRAM)


def diff(old: str, new: str) -> SourceDiff:
    return compare(old.encode(), new.encode(), "train.py")


def texts(found: SourceDiff) -> list[str]:
    return [ast.unparse(stmt) for stmt in found.added]


def edited(*edits: tuple[str, str]) -> str:
    """The program with lines replaced; the text of an edit must stand in it once."""
    source = SOURCE
    for before, after in edits:
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    return source


def inserted(after: str, *lines: str) -> str:
    """The program with lines put after the first line that holds `after`, with its margin."""
    rows = SOURCE.splitlines()
    at = next(n for n, row in enumerate(rows) if after in row)
    margin = rows[at][: len(rows[at]) - len(rows[at].lstrip())]
    return "\n".join(rows[: at + 1] + [margin + line for line in lines] + rows[at + 1 :])


ACCEPTED = [
    ("total = 0.0", ["print(epoch)"]),
    ("total = 0.0", ["print(epoch)", "print(epoch)"]),
    ('print("epoch", epoch, loss)', ['print("epoch", epoch, loss)']),
    ("loss.backward()", ["print(model.weight.grad.norm().item())"]),
    ("self.total += value", ["print(self.total)"]),
    ("if epoch == 1", ["    print('one')"]),
    ("log.info", ["log.debug('x')", "sys.stderr.write('y')", "sys.stdout.flush()", "wandb.log({'a': 1})"]),
    ("log.info", ["[print(p.norm()) for p in net.parameters()]", "shout('a')", "report(epoch, 3)"]),
    (
        "log.info",
        ["writer.add_scalar('a', 1)", "tqdm.write('x')", "pprint(history)", "epoch > 1 and print('x')"],
    ),
    ("log.info", ["norm = sum(p.norm() for p in net.parameters())", "print(norm)"]),
    ("log.info", ["count = 0", "for p in net.parameters():\n        count += p.numel()", "print(count)"]),
    (
        "log.info",
        ["rows = []", "for p in net.parameters():\n        rows.append(p.sum().item())", "print(rows)"],
    ),
    ("log.info", ["best: float = max(history)", "print(best)"]),
    ("log.info", ["a, (b, *c) = 1, (2, 3)", "print(a, b, c)"]),
    ("log.info", ["print((big := max(history)), big)"]),
    ("log.info", ["if epoch == 2:\n        print('x')\n    else:\n        print('y')"]),
    ("log.info", ["while False:\n        break"]),
    ("log.info", ["with torch.no_grad():\n        print(net(x))"]),
    ("log.info", ["with open('log.txt', 'w') as file:\n        file.write('x')"]),
    (
        "log.info",
        ["try:\n        print(x.grad.norm())\n    except AttributeError as problem:\n        print(problem)"],
    ),
    ("log.info", ["w = net.weight.detach().clone()", "w.mul_(2)", "w += 1", "print(w)"]),
    ("log.info", ["stats = {}", "stats['a'] = 1", "stats.setdefault('b', []).append(2)", "print(stats)"]),
    ("log.info", ["print(next(net.parameters()).sum())"]),
    ("log.info", ["net.weight.norm()"]),
    ("log.info", ["print(train(net, x))"]),
    ("log.info", ["import math", "print(math.pi)"]),
    ("from torch import nn", ["import torch", "import os.path", "from collections import Counter as Tally"]),
    ("history = []", ["def norm(m):\n    acc = 0\n    acc += 1\n    return acc", "print(norm(net))"]),
    (
        "history = []",
        ["class Probe:\n    def __init__(self):\n        self.n = 0", "probe = Probe()", "probe.n = 2"],
    ),
    ("return loss.item()", []),
    ("self.total = start", ["print(start)"]),
    ("total += 2", ["print(total)"]),
]


@pytest.mark.parametrize(("after", "lines"), ACCEPTED)
def test_added_statements_are_probes(after: str, lines: list[str]) -> None:
    """What only looks at the program is accepted, and nothing else is reported as added."""
    found = diff(SOURCE, inserted(after, *lines))
    assert found.refusals == []
    assert not found.printing_changed
    margin = next(row for row in SOURCE.splitlines() if after in row)
    depth = len(margin) - len(margin.lstrip())
    wanted = [
        ast.unparse(
            ast.parse(
                textwrap.dedent(" " * depth + line.lstrip()) if "\n" not in line else shift(line, depth)
            )
        )
        for line in lines
    ]
    assert texts(found) == wanted


def shift(line: str, depth: int) -> str:
    first, rest = line.split("\n", 1)
    return textwrap.dedent(" " * depth + first + "\n" + rest)


REFUSED = [
    ("lr = 0.1", "lr = 0.2", "changed `lr = 0.1` to `lr = 0.2`"),
    ("    opt.step()\n", "", "removed `opt.step()`"),
    (
        "    opt.zero_grad()\n    loss.backward()\n",
        "    loss.backward()\n    opt.zero_grad()\n",
        "moved `",
    ),
    (
        "scale=1.0",
        "scale=2.0",
        "changed `def train(model, x, scale=1.0):` to `def train(model, x, scale=2.0):`",
    ),
    ("range(3)", "range(4)", "changed `for epoch in range(3):` to `for epoch in range(4):`"),
    ("if epoch == 1", "if epoch == 0", "changed `if epoch == 1:` to `if epoch == 0:`"),
    ("    history.append(loss)\n", "", "removed `history.append(loss)`"),
    ("while lr > 1:", "while lr > 2:", "changed `while lr > 1:`"),
    (
        "except IndexError:",
        "except KeyError:",
        "changed `try: except IndexError:` to `try: except KeyError:`",
    ),
    ("with torch.no_grad():", "with torch.enable_grad():", "changed `with"),
    ("class Meter:", "class Meter(dict):", "changed `class Meter:`"),
    ("class Meter:", "class Meters:", "removed `class Meter:`"),
    ("import random\n", "", "removed `import random`"),
    ("class Meter:", "@functools.total_ordering\nclass Meter:", "changed the decorators of `class Meter:`"),
    ("from torch import nn\n", "from torch import nn, sys\n", "the name `sys`"),
    ('    print("next", next(batches))\n', "", "removed `print('next', next(batches))`"),
    ('print("next", next(batches))', 'print("next")', "`print('next', next(batches))`"),
    ('    print("luck", random.random())\n', "", "removed `print('luck', random.random())`"),
    ('        print("even")', "        lr = 3", "added `lr = 3`"),
    ("history = []", "history = [] + []", "changed `history = []`"),
    ("    return loss.item()", "    if lr:\n        return loss.item()", "removed `return loss.item()`"),
    (
        "        elif epoch == 2:",
        "        elif epoch == 3:\n                print()\n        elif epoch == 2:",
        "changed `if epoch == 2:`",
    ),
    (
        "    loss = train(",
        "    with torch.no_grad():\n        loss = train(",
        "removed `loss = train(",
    ),
    ("total = 0.0", "total = 0", "changed `total = 0.0` to `total = 0`"),
    ("while lr > 1:\n    lr = lr / 2", "while lr > 1:\n    pass", "removed `lr = lr / 2`"),
    ("    final_sum = net", "    final_sum = 1 + net", "changed `final_sum"),
]


@pytest.mark.parametrize(("before", "after", "reason"), REFUSED)
def test_edits_that_change_the_program_are_refused(before: str, after: str, reason: str) -> None:
    """A refusal names the code that was changed, added or removed."""
    found = diff(SOURCE, edited((before, after)))
    assert any(reason in refusal.reason for refusal in found.refusals), found.refusals
    assert all(refusal.path == "train.py" for refusal in found.refusals)


REFUSED_INSERTS = [
    "x.add_(1)", "opt.zero_grad()", "epoch = 3", "opt.step()", "loss.backward()", "return", "break", "raise ValueError",
    "del x", "assert x", "net.eval()", "history.append(1)", "history.clear()", "torch.manual_seed(1)", "random.seed(0)",
    "total += 1", "net.training = False", "history[0] = 1", "opt.param_groups[0]['lr'] = 1", "loss: float = 3",
    "for p in net.parameters(): p.zero_()", "for p in net.parameters(): p.grad = None", "[p.zero_() for p in q]",
    "for g in opt.param_groups: g['lr'] = 0", "for name, p in net.named_parameters(): p += 1",
    "w = net.weight; w += 1", "w = net.weight; w.mul_(2)", "w = net.weight.detach(); w.mul_(2)",
    "w = next(net.parameters()); w.zero_()", "print(w := 1, epoch := 2)", "print(x.add_(1))", "print(history.pop())",
    "print(next(batches))", "for epoch in range(2): print(epoch)", "import numpy as torch", "from os import *",
    "def train(): pass", "def f(m): m.eval()", "def f():\n        global lr\n        lr = 2",
    "with open('x') as loss: print()", "if opt.step(): print()", "if 1: opt.step()", "while 1: return",
    "print = 3", "len = 3; range = 2", "setattr(net, 'a', 1)", "sys.exit()", "exit()", "yield 3", "train(net, x)",
    "try: print()\n    except E as loss: print()", "nn.init.zeros_(net.weight)", "torch.save(net, 'x')",
    "torch.backends.cudnn.benchmark = True", "import torch as t; t.backends.cudnn.benchmark = True",
    "ps = list(net.parameters())\n    for p in ps: p.zero_()", "exec('lr = 3')", "random.shuffle(history)",
    "ok = 1 and opt.step()", "x and opt.step()", "net.to('cpu')", "lam = [history.append(1) for _ in '12']",
]  # fmt: skip


@pytest.mark.parametrize("line", REFUSED_INSERTS)
def test_added_statements_that_change_the_program_are_refused(line: str) -> None:
    """A statement in the loop that is known to change the program is refused at its own line."""
    found = diff(SOURCE, inserted("log.info", *line.split("; ")))
    at = next(n for n, row in enumerate(SOURCE.splitlines(), 1) if "log.info" in row)
    assert found.refusals, texts(found)
    assert all(refusal.line > at and refusal.reason.startswith("added `") for refusal in found.refusals)


def test_every_refusal_is_reported() -> None:
    """The user sees all edits that are no probes, in the order of the file."""
    found = diff(SOURCE, edited(("lr = 0.1", "lr = 0.2"), ("range(3)", "range(4)"), ("    opt.step()\n", "")))
    assert [refusal.reason.split()[0] for refusal in found.refusals] == ["changed", "removed", "changed"]
    lines = [refusal.line for refusal in found.refusals]
    assert SOURCE.splitlines()[lines[0] - 1] == "lr = 0.1"
    assert SOURCE.splitlines()[lines[1] - 1] == "    opt.step()"  # where it was missing


UNCHANGED = [
    ("lr = 0.1", "lr = (0.1)  # the rate"),
    ("'''Counts.'''", "'''Counts things.'''"),
    ("'''A little training program.'''", "'''Another text.'''"),
    ("    model.train()", "    '''New text.'''\n    model.train()\n    pass"),
    ("history = []\n", "history = [\n]\n\n\n"),
    ("    return loss.item()", "    return (loss\n            .item())"),
]


@pytest.mark.parametrize(("before", "after"), UNCHANGED)
def test_layout_comments_and_docstrings_are_no_changes(before: str, after: str) -> None:
    """What no computation depends on is not compared."""
    found = diff(SOURCE, edited((before, after)))
    assert (found.added, found.refusals, found.printing_changed) == ([], [], False)


CHANGED_OUTPUT = [
    ('log.info("loss %s", loss)', 'log.info("now %s", loss)', ["log.info('now %s', loss)"]),
    ('log.info("loss %s", loss)', 'print("now", loss)', ["print('now', loss)"]),
    ('    log.info("loss %s", loss)\n', "", []),
    ('    log.info("loss %s", loss)', "    if epoch:\n        log.info('x')", ["if epoch:\n    log.info('x')"]),
    ("    report(epoch, loss)\n", "", []),
    ("if epoch % 2 == 0:", "if epoch % 3 == 0:", ["if epoch % 3 == 0:\n    print('even')"]),
    ('print("even")', 'print("even", epoch)', ["print('even', epoch)"]),
    ('shout("done", final)', 'print("done", final)', ["print('done', final)"]),
    ('print("next", next(batches))', 'print("then", next(batches))', ["print('then', next(batches))"]),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "added"), CHANGED_OUTPUT)
def test_output_statements_may_be_changed_and_removed(before: str, after: str, added: list[str]) -> None:
    """A changed output statement is a probe, and the diff says that the recorded printing is another."""
    found = diff(SOURCE, edited((before, after)))
    assert (texts(found), found.refusals, found.printing_changed) == (added, [], True)


BRANCHES = [
    ("for i in x:\n    f(i)\n", "for i in x:\n    f(i)\nelse:\n    print(1)\n"),
    ("while x():\n    f(i)\n", "while x():\n    f(i)\nelse:\n    print(1)\n"),
    ("if a:\n    f(i)\n", "if a:\n    f(i)\nelse:\n    print(1)\n"),
    ("try:\n    f()\nexcept E:\n    g()\n", "try:\n    f()\nexcept E:\n    g()\nelse:\n    print(1)\n"),
    ("try:\n    f()\nexcept E:\n    g()\n", "try:\n    f()\nexcept E:\n    g()\nfinally:\n    print(1)\n"),
    ("try:\n    f()\nexcept E:\n    g()\n", "try:\n    f()\nexcept E:\n    print(1)\n    g()\n"),
    ("match a:\n    case 1:\n        f()\n", "match a:\n    case 1:\n        print(1)\n        f()\n"),
    ("if a: f()\n", "if a: print(1); f()\n"),
    (
        "async def f():\n    async with a:\n        b()\n",
        "async def f():\n    async with a:\n        b()\n        print(1)\n",
    ),
    ("def f():\n    pass\n", "def f():\n    print(1)\n"),
    ("def f():\n    'text'\n", "def f():\n    print(1)\n"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), BRANCHES)
def test_probes_in_any_block_are_found(old: str, new: str) -> None:
    """Also in an `else` or `finally` that did not exist, and in an empty body."""
    found = diff(old, new)
    assert (texts(found), found.refusals, found.printing_changed) == (["print(1)"], [], False)


def test_an_added_elif_must_be_a_probe_throughout() -> None:
    """Its condition runs wherever the one before it was false."""
    old = "if a:\n    f()\n"
    assert diff(old, old + "elif b.norm() > 1:\n    print(1)\n").refusals == []
    assert diff(old, old + "elif opt.step():\n    print(1)\n").refusals
    assert diff(old, old + "elif b:\n    opt.step()\n").refusals


MOVES = [
    ("def f():\n    a()\ndef g():\n    b()\n", "def g():\n    b()\ndef f():\n    a()\n", True),
    (
        "class A:\n    def f(self): a()\n    def g(self): b()\n",
        "class A:\n    def g(self): b()\n    def f(self): a()\n",
        True,
    ),
    ("def f():\n    a()\nx = 1\n", "x = 1\ndef f():\n    a()\n    print(x)\n", True),
    ("import os\ndef f():\n    a()\n", "def f():\n    a()\nimport os\n", True),
    ("def f():\n    a()\nmain()\n", "main()\ndef f():\n    a()\n", False),
    ("def f():\n    a()\nx = f\n", "x = f\ndef f():\n    a()\n", False),
    ("n = 3\ndef f(k=n):\n    a()\n", "def f(k=n):\n    a()\nn = 3\n", False),
    ("class A: pass\nclass B(A): pass\n", "class B(A): pass\nclass A: pass\n", False),
    ("@reg('a')\ndef f(): a()\n@reg('b')\ndef g(): b()\n", "@reg('b')\ndef g(): b()\n@reg('a')\ndef f(): a()\n", False),
    ("def f():\n    a()\ndef g():\n    b()\n", "def g():\n    c()\ndef f():\n    a()\n", False),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "accepted"), MOVES)
def test_definitions_may_move_where_nothing_depends_on_it(old: str, new: str, accepted: bool) -> None:
    """The order of definitions is no change, unless a statement in between may use or define what they need."""
    found = diff(old, new)
    assert (found.refusals == []) is accepted, found.refusals
    assert texts(found) == ["print(x)"] * ("print" in new) or not accepted


def test_future_imports_are_refused() -> None:
    """They change how the rest of the file is compiled."""
    line = "from __future__ import annotations\n"
    assert diff("x = 1\n", line + "x = 1\n").refusals
    assert diff(line + "x = 1\n", "x = 1\n").refusals


def test_a_new_method_needs_a_name_of_its_own() -> None:
    """A method by a name that the source mentions may replace an inherited one."""
    method = "\n\n    def {}(self):\n        return 1\n"
    at = "self.total = start"
    assert diff(SOURCE, edited((at, at + method.format("fresh_name")))).refusals == []
    assert diff(SOURCE, edited((at, at + method.format("backward")))).refusals
    assert diff(SOURCE, edited((at, at + method.format("__len__")))).refusals


def test_names_are_told_apart_by_scope() -> None:
    """A name of one function is free in another, and one that a function reads is not free in the module."""
    old = "def f():\n    k = 1\n    return k\ndef g():\n    return m\nq = [z for z in range(3)]\n"
    assert diff(old, old + "k = 2\nz = 3\nprint(k, z)\n").refusals == []
    assert diff(old, old + "m = 2\n").refusals
    assert diff(old, old + "range = 2\n").refusals
    assert diff(old, old + "q = 2\n").refusals
    assert diff(old, old.replace("    return m", "    k = 3\n    return m")).refusals == []
    assert diff(old, old.replace("    return k", "    print(k)\n    k = 3\n    return k")).refusals


def test_more_names_may_be_imported_in_one_statement() -> None:
    """`from m import a` may become `from m import a, b`; it keeps its counterpart."""
    found = diff("from m import a\na()\n", "from m import a, b\na()\nprint(b)\n")
    assert found.refusals == []
    assert texts(found) == ["from m import a, b", "print(b)"]
    assert len(found.pairs) == 2


def test_statements_are_paired_at_every_level() -> None:
    """All but the added statements have their counterpart, with equal text."""
    found = diff(SOURCE, inserted("loss.backward()", "print(1)"))
    every = [node for node in ast.walk(found.tree) if isinstance(node, ast.stmt)]
    assert set(every) - set(found.pairs) == set(found.added)
    for new, old in found.pairs.items():
        assert type(new) is type(old)
        if not hasattr(new, "body"):
            assert ast.unparse(new) == ast.unparse(old)


def test_equal_sources_are_paired_throughout() -> None:
    """No edit, nothing added, every statement has its counterpart."""
    found = diff(SOURCE, SOURCE)
    assert (found.added, found.refusals, found.printing_changed) == ([], [], False)
    assert {node for node in ast.walk(found.tree) if isinstance(node, ast.stmt)} == set(found.pairs)
    assert all(new.lineno == old.lineno for new, old in found.pairs.items() if isinstance(old, ast.stmt)
               and isinstance(new, ast.stmt))  # fmt: skip


def test_a_syntax_error_is_the_users() -> None:
    """The edited source is reported by Python itself."""
    with pytest.raises(SyntaxError):
        diff("x = 1\n", "x = \n")


def test_statements_with_refusals_keep_their_counterparts() -> None:
    """With --force a loop whose bound was changed still is the same loop."""
    found = diff(SOURCE, edited(("range(3)", "range(4)")))
    loops = [node for node in ast.walk(found.tree) if isinstance(node, ast.For)]
    assert all(loop in found.pairs for loop in loops)
    assert len(found.refusals) == 1
    assert found.added == []


def test_long_chains_are_compared() -> None:
    """1,200 `elif` branches and sums of 500 terms are deep trees."""
    chain = "if x == 0:\n    f(0)\n" + "".join(f"elif x == {n}:\n    f({n})\n" for n in range(1, 1200))
    total = "y = " + " + ".join(f"a{n}" for n in range(500)) + "\n"
    old = chain + total
    try:
        ast.parse(old)
    except RecursionError:
        pytest.skip("this Python cannot parse it either")
    found = diff(old, old.replace("    f(1100)\n", "    f(1100)\n    print(x)\n") + "print(y)\n")
    assert (texts(found), found.refusals) == (["print(x)", "print(y)"], [])
    assert diff(old, old.replace("f(1100)", "f(1101)")).refusals
    assert diff(old, old.replace("a499", "a498")).refusals
    assert diff(old, "# longer\n" + old).refusals == []


NAMESAKES = """
class Runner:
    def load(self, name):
        state = torch.load(name)
        self.epoch = state["epoch"]
    def first(self):
        value = second(self)
    def save(self):
        rows = [self.save() for row in self.rows]
def second(x):
    value = x.first()
"""


def test_functions_that_call_their_namesakes() -> None:
    """`torch.load` inside a method `load`: whether that only prints is asked once. By hand: nothing here is changed."""
    calls = "json.load(open(name)), first(), second(1), x.save()"
    found = diff(NAMESAKES, NAMESAKES + f"print({calls})\n")
    assert (texts(found), found.refusals) == ([f"print({calls})"], [])
    assert diff(NAMESAKES, NAMESAKES.replace("    value = x.first()", "    value = x.last()")).refusals


def test_functions_that_change_something_after_a_circle() -> None:
    """`a` calls `b`, which calls `a` and changes a global: a call of either is no probe."""
    old = "def a():\n    return b()\ndef b():\n    global n\n    n = a()\n    return n\n"
    assert [r.reason for r in diff(old, old + "a()\n").refusals] != []
    assert [r.reason for r in diff(old, old + "b()\n").refusals] != []


def probes() -> list[Any]:
    return [
        pytest.param(case, probe, id=f"{case.parent.name}-{probe['name']}")
        for case in sorted(CASES.glob("*/case.json"))
        for probe in json.loads(case.read_text(encoding="utf-8"))["probes"]
    ]


@pytest.mark.parametrize(("case", "probe"), probes())
def test_the_probes_of_the_handed_cases_are_accepted(case: Path, probe: dict[str, Any]) -> None:
    """Exactly the inserted statements are found, wherever they stand."""
    old = (case.parent / probe["file"]).read_text(encoding="utf-8")
    rows = old.splitlines()
    (at,) = [n for n, row in enumerate(rows) if probe.get("after", probe.get("before")) in row]
    margin = rows[at][: len(rows[at]) - len(rows[at].lstrip())]
    where = at + 1 if "after" in probe else at
    new = "\n".join(rows[:where] + [margin + line for line in probe["insert"]] + rows[where:]) + "\n"
    found = diff(old, new)
    assert found.refusals == []
    assert not found.printing_changed
    assert texts(found) == [
        ast.unparse(stmt) for stmt in ast.parse(textwrap.dedent("\n".join(probe["insert"]))).body
    ]


def sources() -> list[str]:
    files = sorted(CASES.glob("*/*.py")) + sorted(CASES.glob("package_module/shop/*.py"))
    return [SOURCE, *(file.read_text(encoding="utf-8") for file in files)]


PROBES = [
    "print(1)", "print('a', f'{2}')", "logging.info('x')", "import sys as probe_sys", "probe_a = sum([1, 2])",
    "for probe_i in range(2): print(probe_i)", "if len('ab') > 1: print('x')", "probe_b = []",
    "[print(v) for v in 'ab']",
    "def probe_f(x): return x + 1", "with open('x') as probe_file: probe_file.write('x')",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_probes_at_random_places_are_found(data: st.DataObject) -> None:
    """Whatever is inserted wherever, exactly that is found."""
    old = data.draw(st.sampled_from(sources()))
    tree = ast.parse(old)
    bodies = [
        node.body
        for node in ast.walk(tree)
        if isinstance(getattr(node, "body", None), list) and not isinstance(node, ast.ClassDef)
    ]
    wanted = data.draw(st.lists(st.sampled_from(PROBES), min_size=1, max_size=6))
    for text in wanted:
        body = data.draw(st.sampled_from(bodies))
        first = 1 + max((n for n, stmt in enumerate(body) if is_early(stmt)), default=-1)
        body.insert(data.draw(st.integers(first, len(body))), ast.parse(text).body[0])
    found = diff(old, ast.unparse(ast.fix_missing_locations(tree)))
    assert found.refusals == []
    assert sorted(texts(found)) == sorted(ast.unparse(ast.parse(text)) for text in wanted)


def is_early(stmt: ast.stmt) -> bool:
    docstring = isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant)
    return docstring or (isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__")


class Bump(ast.NodeTransformer):
    """Changes the n-th constant that is computed with."""

    def __init__(self, position: int) -> None:
        self.left = position

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        self.left -= 1
        if self.left != -1:
            return node
        value = node.value
        changed = (
            value + 1
            if isinstance(value, (int, float))
            else value + value[:1] + "x"
            if isinstance(value, str)
            else 7
        )
        return ast.Constant(changed)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_changed_constant_is_refused(data: st.DataObject) -> None:
    """A constant outside of output statements, and of conditions on those alone, belongs to the computation."""
    old = ast.unparse(ast.parse(data.draw(st.sampled_from(sources()))))
    count = Bump(-1)
    count.visit(ast.parse(old))
    total = -1 - count.left
    assume(total > 0)
    tree = Bump(data.draw(st.integers(0, total - 1))).visit(ast.parse(old))
    new = ast.unparse(ast.fix_missing_locations(tree))
    found = diff(old, new)
    if not found.refusals:
        (condition,) = found.added
        assert found.printing_changed
        assert isinstance(condition, ast.If)
