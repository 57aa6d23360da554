"""Probes under conditions on loop variables: only the iterations in which one holds are visited."""

from __future__ import annotations

import json
import textwrap

import pytest
from conftest import Flor

from florhook.hook.diff import compare
from florhook.replay.sources import probes_of

PROGRAM = """
import math, time

total = 0.0
for epoch, (name, rate) in enumerate(zip("abcdefghij", range(10))):
    total += math.sqrt(rate)
    time.sleep(0.003)
    if epoch % 4 == 1:
        total *= 2
    else:
        total += 1
    last = epoch
print(total)
"""
BODY = "    last = epoch\n"
IF = "        total *= 2\n"
ELSE = "        total += 1\n"


@pytest.mark.parametrize(
    ("after", "probe", "visited"),
    [
        (BODY, "if epoch % 5 == 0: print('@@', epoch, total)", {0, 5}),
        (BODY, "if name in ('c', 'h') and not epoch > 6:\n    print('@@', name, total)", {2}),
        (BODY, "if epoch == 3:\n    if rate >= 3:\n        print('@@', total)", {3}),
        (BODY, "if epoch == 3 or total > 1e9: print('@@', epoch)", set(range(10))),
        (BODY, "if epoch == 3:\n    print('@@ 3', total)\nif epoch == 7:\n    print('@@ 7', total)", {3, 7}),
        (BODY, "if epoch == 3: print('@@ 3')\nprint('@@', total)", set(range(10))),
        (BODY, "if last == 3: print('@@', total)", set(range(10))),
        (BODY, "if epoch == 3:\n    print('@@ 3')\nelse:\n    print('@@')", set(range(10))),
        (
            BODY,
            "if print('@@', epoch) is None:\n    if epoch == 3:\n        print('@@', total)",
            set(range(10)),
        ),
        (IF, "print('@@', total)", {1, 5, 9}),
        (ELSE, "if rate < 4: print('@@', total)", {0, 2, 3}),
    ],
)
def test_visits(flor: Flor, after: str, probe: str, visited: set[int]) -> None:
    """By hand; what is printed is what the plain program prints."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    margin = after[: len(after) - len(after.lstrip())]
    flor.write("train.py", PROGRAM.replace(after, after + textwrap.indent(probe, margin) + "\n"))
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted)
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_executed"] == len(visited)


STEPS = """
import time

total = 0
{kind}:
    total += step
    time.sleep(0.01)
    if step == 30:
        break
else:
    total = -1
print(total)
"""


@pytest.mark.parametrize(
    "kind",
    ["for step in range(40)", "for step in iter(range(40))", "step = 0\nwhile (step := step + 1) < 40"],
)
@pytest.mark.parametrize("log", ["hindsight", "all"])
def test_the_rest_of_an_iteration_is_left_out(flor: Flor, kind: str, log: str) -> None:
    """Behind a probe on the first line, where the next boundary, or the exit, is there to be restored."""
    flor.write("train.py", STEPS.format(kind=kind))
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write(
        "train.py",
        STEPS.format(kind=kind).replace("    total +=", "    print('@@', step, total)\n    total +="),
    )
    plain = flor.python("train.py").stdout
    wanted = (
        plain if log == "all" else "".join(x for x in plain.splitlines(keepends=True) if x.startswith("@@"))
    )
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json", FLOR_LOG=log)
    assert (done.returncode, done.stdout, done.stderr) == (0, wanted, "")
    stats = json.loads((flor.folder / "stats.json").read_text())
    assert stats["iterations_left_early"] >= plain.count("@@") - 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    total +=", "    seen = total if step else 0\n    if step: print('@@', seen)\n    total +="),
        ("    time.sleep", "    print('@@', total)\n    time.sleep"),
        ("    total = -1", "    print('@@', total)\n    total = -1"),
    ],
    ids=["a value is handed on", "something runs before it", "it stands in the else"],
)
def test_iterations_that_are_run_to_their_end(flor: Flor, before: str, after: str) -> None:
    program = STEPS.format(kind="for step in range(20)")
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    carried = "    last = seen\n" if "seen" in after else ""
    edited = program.replace(before, after).replace("    time.sleep", f"{carried}    time.sleep", 1)
    flor.write("train.py", edited.replace("if step else 0", "+ globals().get('last', 0)"))
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert done.stdout.splitlines() == wanted, done.stderr
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_left_early"] == 0


def conditions(program: str, probe: str) -> list[str]:
    old, new = (textwrap.dedent(program).replace("PROBE", text) for text in ("pass", f"pass; {probe}"))
    diff = compare(old.encode(), new.encode(), "train.py")
    assert not diff.refusals
    return [condition for _, _, condition in probes_of(diff, "__main__", "train.py").probes]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("for k in x:\n    if k > 2:\n        PROBE", "k > 2"),
        ("for k in x:\n    if k > 2:\n        pass\n    else:\n        PROBE", "not k > 2"),
        (
            "for k in x:\n    with y:\n        if k > 2:\n            if k < 9:\n                PROBE",
            "k > 2 and k < 9",
        ),
        ("for k in x:\n    for j in y:\n        if k > 2 and j:\n            PROBE", ""),
        ("for k in x:\n    for j in y:\n        if j:\n            PROBE", "j"),
        ("for k in x:\n    if k > 2:\n        for j in y:\n            PROBE", ""),
        ("for k in x:\n    k += 1\n    if k > 2:\n        PROBE", ""),
        ("for k in x:\n    if k > 2:\n        PROBE\n    for k in y:\n        pass", ""),
        ("for k in x:\n    if k > 2:\n        PROBE\n    del k", ""),
        ("for k in x:\n    if f(k):\n        PROBE", ""),
        ("for k in x:\n    if k > limit:\n        PROBE", ""),
        ("for k in x:\n    if (k := 3):\n        PROBE", ""),
        ("def f():\n    global k\n    k = 1\nfor k in x:\n    if k > 2:\n        PROBE", ""),
        (
            "def f():\n    for k in x:\n        def g():\n            nonlocal k\n        if k:\n            PROBE",
            "",
        ),
        ("for k in x:\n    import k\n    if k:\n        PROBE", ""),
        ("while k < 9:\n    if k > 2:\n        PROBE\n    k += 1", ""),
        ("def f():\n    if k > 2:\n        PROBE", ""),
        ("for k in x:\n    if k > 2:\n        PROBE\n    else:\n        f()", "k > 2"),
        ("for k in x:\n    class C:\n        if k:\n            PROBE", ""),
    ],
)
def test_conditions_that_are_seen(program: str, found: str) -> None:
    """Where anything else could bind the name, or anything else is read, there is none."""
    assert conditions(program, "print(1)") == [found]


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ("if k > 2:\n        if k < 9:\n            print(1)", "k > 2 and k < 9"),
        ("if k > 2:\n        if f(k):\n            if k < 9:\n                print(1)", "k > 2"),
        ("if f(k):\n        if k > 2:\n            print(1)", ""),
        ("if m > 2:\n        if k > 2:\n            print(1)", ""),
    ],
)
def test_conditions_behind_one_that_may_print(program: str, found: str) -> None:
    """To ask the first one may print, or run a function that does, whatever those inside say."""
    old = b"for k in x:\n    pass\n"
    diff = compare(old, f"for k in x:\n    pass\n    {program}\n".encode(), "train.py")
    assert [condition for _, _, condition in probes_of(diff, "__main__", "train.py").probes] == [found]


ROUNDED = """
import time
import numpy as np

total = 0
for {name} in {values}:
    total += 1
    time.sleep(0.003)
print(total)
"""


@pytest.mark.parametrize(
    ("values", "condition", "printed"),
    [
        ("np.array([0.5, 0.1, 0.25], dtype=np.float32)", "k == 0.1", ["@@ 2"]),  # 0.1 as a float32 is
        ("np.array([1, 100, 200], dtype=np.uint8)", "k * 2 < 150", ["@@ 1", "@@ 3"]),
        ("np.array([0.5, 0.1, 0.25])", "k == 0.1", ["@@ 2"]),
    ],
)
def test_loop_variables_that_do_not_compute_as_pythons_own(
    flor: Flor, values: str, condition: str, printed: list[str]
) -> None:
    """By NumPy's rules: single precision is rounded, and 400 in eight bits is 144."""
    pytest.importorskip("numpy", minversion="2")
    program = ROUNDED.format(name="k", values=values)
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = f"    if {condition}:\n        print('@@', total)\nprint"
    flor.write("train.py", program.replace("print", probe))
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout.splitlines()) == (0, printed), done.stderr
