"""`florhook replay --until EXPRESSION`: the first iteration after which it is true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor

from florhook.cli import split
from florhook.errors import UsageError
from florhook.settings import from_sources

PROGRAM = """
import time

def train(value, rates):
    for step, rate in enumerate(rates):
        value = value * rate
        time.sleep(0.001)
    return value

value, peak = 1.0, 0.0
for epoch in range(40):
    value = train(value, [1.5, 1.0, 0.8])
    if value > 100:
        value -= 90
    peak = max(peak, value)
for fold in "abc":
    value = value + 1000
    time.sleep(0.01)
print("end", value)
"""


def values() -> list[float]:
    """By hand: the value after each epoch."""
    value, found = 1.0, []
    for _ in range(40):
        value = value * 1.5 * 1.0 * 0.8
        if value > 100:
            value -= 90
        found.append(value)
    return found


def first(condition: Any) -> int:
    return next(epoch for epoch, value in enumerate(values()) if condition(value))


@pytest.fixture
def recorded(flor: Flor) -> Flor:
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    return flor


def search(flor: Flor, *args: str) -> tuple[int, str, str, dict[str, Any]]:
    done = flor("replay", *args, "--stats", str(flor.folder / "stats.json"))
    stats = flor.folder / "stats.json"
    return done.returncode, done.stdout, done.stderr, json.loads(stats.read_text()) if stats.exists() else {}


@pytest.mark.parametrize("more", [(), ("--monotone",)])
def test_the_first_epoch(recorded: Flor, more: tuple[str, ...]) -> None:
    """It is found by restoring boundaries: nothing runs but the steps of the epoch that was found."""
    epoch = first(lambda value: value > 50)
    status, out, errors, stats = search(recorded, "--until", "peak > 50", *more)
    assert (status, errors) == (0, "")
    assert out == f"peak > 50: first true after epoch={epoch} (train.py:10)\n"
    assert stats["iterations_executed"] <= 4
    assert stats["jumps"] >= (1 if more else epoch)


def test_not_only_what_stays_true(recorded: Flor) -> None:
    epochs = [epoch for epoch, value in enumerate(values()) if 60 < value < 70]
    assert epochs
    assert not 60 < values()[-1] < 70
    _, out, _, _ = search(recorded, "--until", "60 < value < 70")
    assert values()[epochs[0] - 1] * 1.5 > 70  # so it is not before the last step
    assert out == f"60 < value < 70: first true after epoch={epochs[0]} step=2 rate=0.8 (train.py:4)\n"


def test_the_step_inside_the_epoch(recorded: Flor) -> None:
    """`value` of train() is another variable, first over 90 after the first step of an epoch."""
    before = [1.0, *values()]
    epoch = first(lambda value: value > 70)
    assert before[epoch] * 1.5 > 70
    _, out, _, _ = search(recorded, "--until", "value > 70")
    assert out == f"value > 70: first true after epoch={epoch} step=0 rate=1.5 (train.py:4)\n"


def test_later_loops(recorded: Flor) -> None:
    _, out, _, stats = search(recorded, "--until", "value > 2000")
    assert out == "value > 2000: first true after fold=b (train.py:15)\n"
    assert stats["iterations_executed"] <= 2


def test_before_a_line(recorded: Flor) -> None:
    _, out, _, _ = search(recorded, "--until", "train.py:6:value > 70 and rate < 1")
    before = [1.0, *values()]
    epoch = next(n for n, value in enumerate(before) if value * 1.5 * 0.8 > 70)
    assert out == f"value > 70 and rate < 1: first true at epoch={epoch} step=2 rate=0.8 (train.py:6)\n"


def test_what_is_never_true(recorded: Flor) -> None:
    status, out, errors, _ = search(recorded, "--until", "value < 0")
    assert (status, out) == (1, "")
    assert errors == "florhook: value < 0 is not true after any iteration of the main loops\n"
    status, out, errors, _ = search(recorded, "--until", "train.py:6:value < 0")
    assert (status, out) == (1, "")
    assert errors == "florhook: value < 0 is not true wherever the run came to train.py:6\n"


def test_names_that_are_elsewhere_and_expressions_that_fail(recorded: Flor) -> None:
    status, out, errors, _ = search(recorded, "--until", "rate > 1")
    assert (status, out) == (2, "")
    assert (
        "name 'rate' is not defined between iterations of the main loops; ask where it is: --until FILE:LINE"
        in errors
    )
    status, out, errors, _ = search(recorded, "--until", "value + 'x'")
    assert (status, out) == (2, "")
    assert errors.startswith("florhook: --until: after epoch=0, value + 'x' raises TypeError: ")


@pytest.mark.parametrize("more", [(), ("--monotone",)])
def test_with_few_checkpoints(flor: Flor, more: tuple[str, ...]) -> None:
    """What has none is run: the answer is the same."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="0.02").returncode == 0
    epoch = first(lambda value: value > 50)
    status, out, _, _ = search(flor, "--until", "peak > 50", *more)
    assert (status, out) == (0, f"peak > 50: first true after epoch={epoch} (train.py:10)\n")


CRASHES = """
import time
total = 0
while total < 100:
    total += 7
    time.sleep(0.005)
    if total > 60:
        raise RuntimeError("stop")
"""


def test_a_run_that_crashed(flor: Flor) -> None:
    """The seventh iteration, by hand: 49; the ninth never ends."""
    flor.write("train.py", CRASHES)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 1
    status, out, _, _ = search(flor, "--until", "total >= 49")
    assert (status, out) == (0, "total >= 49: first true after total=42 (train.py:3)\n")
    status, out, errors, _ = search(flor, "--until", "total >= 63")
    assert (status, out) == (1, ""), errors


def test_a_run_that_is_not_the_same_again(flor: Flor) -> None:
    """The answer stands, and that it is not exact is said."""
    program = "import os, time\nx = 0\nfor epoch in range(3):\n    time.sleep(0.01)\n    for i in range(2):\n"
    program += "        time.sleep(0.01)\n        x = x + 1 + os.getpid() * 1e-9\n"
    (flor.folder / "train.py").write_text(program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    status, out, errors, stats = search(flor, "--until", "train.py:7:x > 3")
    assert (status, stats["exit_code"]) == (4, 4)
    assert out == "x > 3: first true at epoch=1 i=1 (train.py:7)\n"
    assert "florhook: this replay is not exact: " in errors


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--monotone",), "--monotone goes with --until"),
        (("--until", "a > 1", "--until=b"), "--until asks for one expression"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=f"^{reason}$"):
        from_sources({}, split([*words])[0], Path.cwd())


LEFT = """
import time

total = 0
for epoch in range(4):
    time.sleep(0.01)
    try:
        for step in iter([1, 2, 3]):
            time.sleep(0.006)
            total += step
            if step == 2 and epoch == 2:
                raise KeyError
    except KeyError:
        total = -total
    for k in range(3):
        time.sleep(0.004)
print(total)
"""


def test_a_loop_behind_one_that_an_exception_left(flor: Flor) -> None:
    """Its first iteration is asked after, whatever address the loop before had: 6 + 6 + 1 + 2, negated."""
    flor.write("train.py", LEFT)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    code, stdout, stderr, _ = search(flor, "--until", "total == -15")
    assert (code, stdout) == (0, "total == -15: first true after epoch=2 k=0 (train.py:14)\n"), stderr
