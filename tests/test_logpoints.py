"""Probes named on the command line: `florhook replay --probe train.py:57:'loss.item() if epoch > 3'`."""

from __future__ import annotations

import ast
import json

import pytest
from conftest import Flor

from florhook.errors import UsageError
from florhook.hook.logpoints import Logpoint, Search, parse_logpoint, parse_search
from florhook.hook.placed import Placed, before_line, place_of, put


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("train.py:57:loss.item()", Logpoint("train.py", 57, ("loss.item()",))),
        ("a/b.py:1: x , y[1:2]", Logpoint("a/b.py", 1, ("x", "y[1:2]"))),
        ("t.py:3:(a, b)", Logpoint("t.py", 3, ("(a, b)",))),
        ("t.py:3:a if b else c", Logpoint("t.py", 3, ("a if b else c",))),
        ("t.py:3:a if b", Logpoint("t.py", 3, ("a",), "b")),
        ("t.py:3:a if b else c if d", Logpoint("t.py", 3, ("a if b else c",), "d")),
        (
            "t.py:3:[i for i in x if i], y if z > 1",
            Logpoint("t.py", 3, ("[i for i in x if i]", "y"), "z > 1"),
        ),
        ("t.py:3:f(x) if s == ' if '", Logpoint("t.py", 3, ("f(x)",), "s == ' if '")),
        ("c:x.py:3:d['a:1:b']", Logpoint("c:x.py", 3, ("d['a:1:b']",))),
    ],
)
def test_reads_a_probe(text: str, point: Logpoint) -> None:
    assert parse_logpoint(text) == point


@pytest.mark.parametrize(
    "text",
    [
        "train.py",
        "train.py:x",
        "train.py:3",
        "train.py:3:",
        "t.py:3:x = 1",
        "t.py:3:(x := 1)",
        "t.py:3:a if",
        "t.py:3:a\nb",
    ],
)
def test_says_what_a_probe_looks_like(text: str) -> None:
    with pytest.raises(UsageError, match="FILE:LINE:EXPRESSION"):
        parse_logpoint(text)


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("loss > 3", Search("loss > 3")),
        ("x[1:2:3] == y", Search("x[1:2:3] == y")),
        ("train.py:57:loss > 3", Search("loss > 3", "train.py", 57)),
    ],
)
def test_reads_a_search(text: str, search: Search) -> None:
    assert parse_search(text) == search


TREE = '''"""Module."""
from __future__ import annotations
import os

def f(a,
      b):
    """Docstring."""
    return (a +
            b)

if os.name:
    pass
elif os.sep:
    # a comment
    x = 1
else:
    x = 2
try:
    y = 1
except OSError:
    y = 2
finally:
    y = 3
'''


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (1, 3),  # behind the docstring and the import that has to come first
        (2, 3),
        (3, 3),
        (4, 5),  # blank: before what comes next
        (5, 5),
        (7, 8),  # behind the docstring
        (8, 8),
        (9, 8),  # inside a statement: before it
        (11, 11),
        (13, 13),
        (14, 15),
        (15, 15),
        (16, 17),
        (17, 17),
        (18, 18),
        (19, 19),
        (20, 21),
        (21, 21),
        (23, 23),
    ],
)
def test_finds_the_statement_of_a_line(line: int, at: int) -> None:
    tree = ast.parse(TREE)
    where = before_line(tree, line)
    assert where is not None
    before = {id(node) for node in ast.walk(tree)}
    put(tree, [Placed("m", where, "probe()", line)], 23)
    ast.parse(ast.unparse(tree))  # the result is a program
    # The statement that now follows the probe in its list.
    for node in ast.walk(tree):
        for _, field in ast.iter_fields(node):
            if isinstance(field, list):
                numbers = [n for n, each in enumerate(field) if id(each) not in before]
                if numbers:
                    assert field[numbers[0] + 1].lineno == at
                    return
    raise AssertionError("it was not put in")


def test_there_is_nothing_behind_the_last_line() -> None:
    assert before_line(ast.parse(TREE), 24) is None


def test_several_at_one_place_stay_in_order_and_have_lines_of_their_own() -> None:
    tree = ast.parse("a = 1\nfor x in y:\n    b = 2\nc = 3\n")
    loop, last = tree.body[1], tree.body[2]
    inner = before_line(tree, 3)
    assert inner == (("body", 1), ("body", 0))
    assert place_of(tree, last) == (("body", 2),)
    placed = [
        Placed("m", place_of(tree, loop), "p1", 2),
        Placed("m", inner, "p2", 3),
        Placed("m", place_of(tree, loop), "p3", 2),
        Placed("m", place_of(tree, last), "p4", 4),
    ]
    lines = put(tree, placed, 4)
    assert ast.unparse(tree).split() == [
        "a",
        "=",
        "1",
        "p1",
        "p3",
        "for",
        "x",
        "in",
        "y:",
        "p2",
        "b",
        "=",
        "2",
        "p4",
        "c",
        "=",
        "3",
    ]
    mine = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    assert len({node.lineno for node in mine}) == 4
    assert {node.value.id: lines[node.lineno] for node in mine} == {"p1": 2, "p2": 3, "p3": 2, "p4": 4}  # type: ignore[attr-defined]


PROGRAM = """
import helper

class Net:
    def __init__(self):
        self.__weight = 1.0
    def step(self, x):
        self.__weight += x
        return self.__weight

net = Net()
for epoch in range(4):
    total = 0
    for i, x in enumerate([0.5, 0.25]):
        y = net.step(x)
        total += helper.twice(y)
    print("epoch", epoch, total)
print("done")
"""
HELPER = """
def twice(y):
    z = y * 2
    return z
"""


def probed(flor: Flor, *args: str, **changes: str) -> tuple[int, list[str], str]:
    done = flor("replay", *args, **changes)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture
def recorded(flor: Flor) -> Flor:
    flor.write("helper.py", HELPER)
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    return flor


# net.step adds 0.5 and 0.25 in turn: y is 1.5, 1.75, 2.25, 2.5, 3.0, 3.25, 3.75, 4.0.
YS = [1.5, 1.75, 2.25, 2.5, 3.0, 3.25, 3.75, 4.0]


def test_shows_before_a_line(recorded: Flor) -> None:
    status, lines, errors = probed(recorded, "--probe", "train.py:16:total")
    assert (status, errors) == (0, "")
    # total is twice the sum of an epoch's two ys
    assert lines == [f"epoch={n} total={2 * (YS[2 * n] + YS[2 * n + 1])}" for n in range(4)]


def test_shows_inside_loops_and_functions_with_conditions(recorded: Flor) -> None:
    status, lines, _ = probed(
        recorded,
        *("--probe", "train.py:15:y, y * 10 if epoch == 2"),
        *("--probe", "helper.py:3:z if z > 7"),
        *("--probe", "train.py:8:self.__weight if x == 0.25"),
    )
    assert status == 0
    wanted = []
    for n, y in enumerate(YS):
        epoch, i = divmod(n, 2)
        x = (0.5, 0.25)[i]
        here = f"epoch={epoch} i={i} x={x}"
        if x == 0.25:
            wanted.append(f"{here} self.__weight={y - x + x}")
        if epoch == 2:
            wanted.append(f"{here} y={y} y * 10={y * 10}")
        if 2 * y > 7:
            wanted.append(f"{here} z={2 * y}")
    # the weight is shown before the addition of line 8 returns: line 8 is the `return`
    assert lines == wanted


def test_visits_only_iterations_whose_condition_holds(recorded: Flor) -> None:
    status, lines, _ = probed(
        recorded, "--probe", "train.py:16:total if epoch == 1", "--stats", str(recorded.folder / "s.json")
    )
    assert (status, lines) == (0, ["epoch=1 total=9.5"])
    assert json.loads((recorded.folder / "s.json").read_text())["iterations_executed"] <= 3


def test_an_expression_that_fails_is_told_once_and_changes_nothing(recorded: Flor) -> None:
    status, lines, errors = probed(recorded, "--probe", "train.py:12:missing", "--probe", "train.py:17:total")
    assert (status, lines) == (0, ["total=15.5"])
    assert errors.count("florhook: --probe at train.py:12: NameError: name 'missing' is not defined\n") == 1


def test_goes_with_the_other_options_and_with_an_edit(recorded: Flor) -> None:
    recorded.write("train.py", PROGRAM.replace("    print(", "    print('@@', epoch)\n    print("))
    status, lines, _ = probed(
        recorded, "last", "--probe=helper.py:3:z", "--select", "epoch=1", "--workers", "2"
    )
    assert status == 0
    assert lines == [
        "epoch=1 i=0 x=0.5 z=4.5",
        "epoch=1 i=1 x=0.25 z=5.0",
        "@@ 1",
    ]
    done = recorded("--mode", "replay", "--probe", "train.py:18:epoch", "train.py")
    assert (done.returncode, done.stdout) == (0, "@@ 0\n@@ 1\n@@ 2\n@@ 3\nepoch=3\n")


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (["--probe", "nothing.py:3:x"], 2, "no file is named nothing.py"),
        (["--probe", "train.py:99:x"], 2, "train.py:99: no statement stands there"),
        (["--probe", "train.py:5:x = 1"], 2, "no expression of Python's"),
        (["--probe", "train.py:16:net.weights.append(1)"], 3, "train.py:16: added"),
        (["nosuch"], 3, "no run 'nosuch'"),
        (["last", "more"], 2, "replay takes one run"),
        (["--until", "loss >"], 2, "no expression of Python's"),
        (["--until", "x", "--probe", "train.py:5:x"], 2, "--until goes alone"),
        (["--runs", "what"], 2, "is none of last:5"),
    ],
)
def test_wrong_arguments_in_one_line(recorded: Flor, args: list[str], status: int, said: str) -> None:
    done = recorded("replay", *args)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_only_replays_have_probes(recorded: Flor) -> None:
    for option in ("--probe=train.py:5:x", "--until=x", "--monotone", "--runs=all"):
        done = recorded(option, "train.py")
        assert done.returncode == 2
        assert option.partition("=")[0] in done.stderr


def test_a_refused_probe_is_named_as_it_was_asked_for(flor: Flor) -> None:
    """Not as the statement that stands for it."""
    flor.write("s.py", "items = []\nfor epoch in range(3):\n    items.append(epoch)\n    print(epoch)\n")
    assert flor("s.py").returncode == 0
    refused = flor("replay", "last", "--probe", "s.py:4:epoch, items.pop() if epoch")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "s.py:4: added `epoch, items.pop()`: `items.pop` changes the program" in refused.stderr
