"""`florhook replay --runs`: the same probes, asked of runs that were recorded from older versions of the program."""

from __future__ import annotations

import pytest
from conftest import Flor

FIRST = """
import sys
rate = float(sys.argv[1])
x = 1.0
for epoch in range(3):
    x = x * rate
    x += 1
print("x", x)
"""
SECOND = """
import sys
rate = float(sys.argv[1])
x = 1.0
scale = 10

def shrink(x):
    y = x / 2
    return y

for epoch in range(3):
    x = x * rate + scale
    x = shrink(x)
print("x", x)
"""


def run_ids(flor: Flor) -> list[str]:
    """In the order in which they were recorded."""
    return [line.split()[0] for line in flor("runs").stdout.splitlines() if line[:2] == "20"]


def record(flor: Flor, text: str, rate: str) -> None:
    flor.write("train.py", text)
    assert flor("train.py", rate, FLOR_EPSILON="inf").returncode == 0


def xs(rate: float, second: bool) -> list[float]:
    """By hand: x at the end of each epoch."""
    x, found = 1.0, []
    for _ in range(3):
        x = (x * rate + 10) / 2 if second else x * rate + 1
        found.append(x)
    return found


def test_a_print_is_placed_in_each_version(flor: Flor) -> None:
    record(flor, FIRST, "2")
    record(flor, FIRST, "3")
    record(flor, SECOND, "2")
    flor.write("train.py", SECOND.replace("print(", "    print('@@', epoch, x)\nprint("))
    done = flor("replay", "--runs", "last:3")
    first, second, third = run_ids(flor)
    wanted = ["run" + " " * (len(first) - 3) + "  output"]
    for name, rate, is_second in ((first, 2, False), (second, 3, False), (third, 2, True)):
        wanted += [f"{name}  @@ {epoch} {x}" for epoch, x in enumerate(xs(rate, is_second))]
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr


def test_probes_of_the_command_line(flor: Flor) -> None:
    record(flor, FIRST, "2")
    record(flor, SECOND, "2")
    done = flor("replay", "--runs", "all", "--probe", "train.py:13:x if epoch == 2")
    first, second = run_ids(flor)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        f"{first}  x={xs(2, False)[2]}",  # before the print behind the loop, in that version
        f"{second}  x={xs(2, True)[2]}",
    ]


def test_runs_by_their_arguments_and_ids(flor: Flor) -> None:
    record(flor, FIRST, "2")
    record(flor, FIRST, "3")
    first, second = run_ids(flor)
    probe = ("--probe", "train.py:7:x")
    done = flor("replay", "--runs", "args:3", *probe)
    assert done.stdout.splitlines()[1:] == [f"{second}  x={xs(3, False)[2]}"]
    done = flor("replay", "--runs", first, *probe)
    assert done.stdout.splitlines()[1:] == [f"{first}  x={xs(2, False)[2]}"]


def test_what_cannot_be_placed_is_left_out_with_the_reason(flor: Flor) -> None:
    record(flor, FIRST, "2")
    record(flor, SECOND, "2")
    flor.write("train.py", SECOND.replace("    return y", "    print('@@', y)\n    return y"))
    done = flor("replay", "--runs", "all")
    first, second = run_ids(flor)
    assert done.stdout.splitlines()[1:] == [f"{second}  @@ {y}" for y in xs(2, True)]
    assert (
        f"florhook: {first} is left out: train.py:8: nothing around the probe is in that version\n"
        in done.stderr
    )
    assert done.returncode == 0


def test_nothing_tells_a_probe_from_a_change(flor: Flor) -> None:
    record(flor, FIRST, "2")
    flor.write("train.py", FIRST.replace("x += 1", "x += 2"))
    done = flor("replay", "--runs", "all")
    assert (done.returncode, done.stdout) == (3, "")
    assert "what was added cannot be told from what was changed" in done.stderr


@pytest.mark.parametrize("text", ["last:0", "last:x", "nosuch", "args:nothing"])
def test_wrong_choices(flor: Flor, text: str) -> None:
    record(flor, FIRST, "2")
    done = flor("replay", "--runs", text)
    assert done.returncode == 2
    assert "--runs" in done.stderr
    assert "Traceback" not in done.stderr


STEPS = """
import time, util
x = 0
for epoch in range(3):
    time.sleep(0.01)
    x = util.step(x)
    y = x
"""


@pytest.mark.parametrize(("probe", "steps"), [("train.py:6:x", 1), ("util.py:2:x", 0)])
def test_an_older_version_of_an_imported_module(flor: Flor, probe: str, steps: int) -> None:
    """By hand: one is added to x in each epoch of the first run, 100 in those of the second.

    The probe stands after the step, or at the beginning of a function that was changed whole.
    """
    flor.write("train.py", STEPS)
    for more in (1, 100):
        flor.write("util.py", f"def step(x):\n    return x + {more}\n")
        assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    done = flor("replay", "--runs", "all", "--probe", probe)
    first, second = run_ids(flor)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == [
        *(f"{first}  epoch={epoch} x={epoch + steps}" for epoch in range(3)),
        *(f"{second}  epoch={epoch} x={100 * (epoch + steps)}" for epoch in range(3)),
    ]
