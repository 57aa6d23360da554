"""Loops so short that most of their executions are only counted: what is recorded besides them is right."""

from __future__ import annotations

import json

import pytest
from conftest import Flor

from florhook.replay.record import Record
from florhook.runtime.recorder import LOST
from florhook.store.store import Store

FEW = {"FLOR_EPSILON": "3"}  # finite, so that there are quick loops; checkpoints of nearly all the others

PROGRAM = """
import time

total = 0

def add(count, pause=0.0):
    global total
    for k in range(count):
        total += abs(k)
        if pause:
            time.sleep(pause)

def first_above(limit, rows):
    for row in rows:
        for value in row:
            if abs(value) > limit:
                return value
    return -1

def picky(values):
    for value in values:
        if abs(value) > 7:
            raise ValueError(value)

def down(depth):
    for k in range(2):
        if abs(k) and depth:
            down(depth - 1)
        add(1)

for epoch in range(30):
    for step in range(12):
        add(3)
        total += first_above(5, [[1, 2], [3, 6], [9]])
        try:
            picky([1, 8, 2])
        except ValueError as error:
            total += error.args[0]
        down(3)
    add(4, 0.002)
    add(2)
    add(3, 0.002)
    while total % 3:
        total += abs(1)
    print(epoch, total)
print("end", total)
"""
PROBES = {
    "between the long ones": ("    add(2)\n", "    print('@@', epoch, total)\n"),
    "in the short and the long ones": (
        "        total += abs(k)\n",
        "        if epoch in (3, 29): print('@@', k, pause, total)\n",
    ),
    "in a function that returns from its loops": (
        "            if abs(value) > limit:\n",
        "            if total % 50 == 0: print('@@', value, row)\n",
    ),
    "before it is left by an exception": (
        "        if abs(value) > 7:\n",
        "        if value == 8 and total % 7 == 0: print('@@', total)\n",
    ),
    "in a recursion": (
        "        if abs(k) and depth:\n",
        "        if total % 11 == 0: print('@@', k, depth, total)\n",
    ),
    "in a while": ("        total += abs(1)\n", "        print('@@ w', total)\n"),
    "at the end": ('print("end"', "print('@@', total)\n"),
}


@pytest.mark.parametrize("probe", PROBES)
def test_replays_are_right(flor: Flor, probe: str) -> None:
    """Wherever the probe stands, it prints what the plain program prints; nothing differs from the record."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", **FEW).returncode == 0
    place, text = PROBES[probe]
    flor.write("train.py", PROGRAM.replace(place, text + place, 1))
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
    stats = json.loads((flor.folder / "stats.json").read_text())
    assert stats["diverged"] == 0
    if probe == "between the long ones":
        assert stats["blocks_skipped"] > 20, "the long loops"


def test_long_executions_have_their_number(flor: Flor) -> None:
    """They are the 1st and the 3rd of their site in the iteration, however many short ones are not looked at."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", **FEW).returncode == 0
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    epochs = next(loop for loop in record.loops.values() if loop.row.parent < 0)
    long = [
        loop
        for loop in record.loops.values()
        if loop.site.key == "__main__:add:0" and loop.row.parent == epochs.row.ctx
    ]
    assert {loop.row.nth: loop.row.iterations for loop in long}.items() >= {(0, 4), (2, 3)}
    assert {(loop.row.nth, loop.row.iterations) for loop in long} <= {(0, 4), (1, 2), (2, 3)}
    assert len([loop for loop in long if loop.row.nth != 1]) == 60


def test_what_runs_in_quick_loops_is_marked(flor: Flor) -> None:
    """A probe in a loop inside a quick one is found in each iteration in which that ran, and in no other."""
    program = """
    import time

    def inner(values):
        for value in values:
            abs(value)

    def outer():
        for k in range(3):
            inner([k])

    def other():
        return abs(-1)

    for epoch in range(40):
        time.sleep(0.003)
        outer() if epoch % 4 else other()
    """
    flor.write("train.py", program)
    assert flor("train.py", **FEW).returncode == 0
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    main = next(loop for loop in record.loops.values() if loop.row.parent < 0)
    mark = record.mark_ids["__main__:inner:0"]
    assert {epoch for epoch in range(40) if mark in main.marks_of(epoch)} == {k for k in range(40) if k % 4}


CALLS = 4096
COUNTED = """
    from florhook.runtime.context import Context

    opened, plain = {}, Context.__init__

    def count(self, number, site, *rest):
        opened[site.key] = opened.get(site.key, 0) + 1
        plain(self, number, site, *rest)

    Context.__init__ = count
"""
SEARCH = """
    def found(values):
        for value in values:
            if {test}:
                return value

    for epoch in range(2):
        for call in range({calls}):
            found((1, 8, 2))
    print(opened.get("__main__:found:0", 0), flush=True)
"""


@pytest.mark.parametrize(
    "test", ["value > 7", "abs(value) > 7"]
)  # a loop that calls nothing, and one that does
def test_short_loops_that_are_left_by_return_are_looked_at_seldom(flor: Flor, test: str) -> None:
    """As those that end: a function that searches may be called millions of times."""
    flor.write("train.py", COUNTED + SEARCH.format(test=test, calls=CALLS))
    recorded = flor("train.py")
    assert recorded.returncode == 0, recorded.stderr
    assert 0 < int(recorded.stdout) < 2 * CALLS / 10


SAID = """
    print(opened.get("__main__:tiny:0", 0))
"""
SELDOM_LONG = """
    import time

    def tiny(n):
        total = 0
        for k in range(n):
            total += abs(k)
        return total

    def evaluate(step):
        total = 0
        for k in range(20):
            time.sleep(0.005)
            total += step - k
        return total

    for step in range(20_000):
        tiny(3)
        if step % 4_000 == 3_999:
            evaluate(step)
"""


def test_a_fast_loop_with_long_loops_in_few_iterations(flor: Flor) -> None:
    """Nothing inside is looked at until something took long; then what takes long is recorded, in its iteration."""
    flor.write("train.py", SELDOM_LONG)
    recorded = flor("train.py")
    assert recorded.returncode == 0, recorded.stderr
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    main = next(loop for loop in record.loops.values() if loop.row.parent < 0)
    long = [loop.row for loop in record.loops.values() if loop.site.key == "__main__:evaluate:0"]
    places = {(row.parent, row.iteration, row.nth) for row in long}
    every = [(main.row.ctx, step, 0) for step in range(3_999, 20_000, 4_000)]
    assert places in (set(every), set(every[1:])), "the first may have been slept through"
    probed = SELDOM_LONG.replace(
        "total += step - k\n", "total += step - k\n            print('@@', k, total)\n"
    )
    flor.write("train.py", probed)
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    assert len(wanted) == 100
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr


def test_calls_in_a_fast_loop_are_not_looked_at(flor: Flor) -> None:
    """Of 20,000 short loops in as many iterations."""
    flor.write("train.py", COUNTED + SELDOM_LONG.replace("step % 4_000 == 3_999", "False") + SAID)
    recorded = flor("train.py")
    assert recorded.returncode == 0, recorded.stderr
    assert 0 < int(recorded.stdout) < 2_000


WHILES = """
import threading

def count(limit, inner=0):
    n = 0
    while n < limit:
        n += 1
        if inner and n == limit // 2:
            count(inner)
        if n % 20000 == 0:
            print(n)
    return n

def until_raised(limit):
    n = 0
    while True:
        n += len("x")
        if n == limit:
            raise ValueError

def until_returned(limit):
    n = 0
    while True:
        n += len("x")
        if n == limit:
            return n
        if n % 9000 == 0:
            continue

for epoch in range(3):
    RUN
    print("epoch", epoch)
"""
IN_THREADS = "others = [threading.Thread(target=count, args=(30000,)) for _ in range(3)]"
RUNS = {  # what is run in each epoch: the lengths of the loops that are told of, by hand
    "alone": ("count(50000)", {50001}),
    "inside itself": ("count(50000, 30000)", {50001, 30001}),
    "inside itself, by a quick loop": (
        "count(50000); [count(20) for _ in range(9)]; count(50000, 12)",
        {50001},
    ),
    "beside threads": (
        IN_THREADS + "; [t.start() for t in others]; count(60000); [t.join() for t in others]",
        {60001},
    ),
    "around threads": (
        IN_THREADS + "; [t.start() for t in others]; [t.join() for t in others]; count(40000)",
        {40001},
    ),
}


@pytest.mark.parametrize("run", RUNS)
def test_steps_are_counted_exactly(flor: Flor, run: str) -> None:
    """However many of them are counted in C, where the same loop runs inside itself and in threads.

    The last step of each loop is that in which its test fails.
    """
    line, lengths = RUNS[run]
    flor.write("train.py", WHILES.replace("RUN", line))
    plain = flor.python("train.py")
    done = flor("train.py")
    assert sorted(done.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    assert done.stderr == ""
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    found = [loop.row.iterations for loop in record.loops.values() if loop.site.key == "__main__:count:0"]
    assert {each for each in found if each > 1000} == lengths


@pytest.mark.parametrize(("function", "steps"), [("until_raised", 70000), ("until_returned", 40000)])
def test_steps_of_loops_that_are_left_are_counted_exactly(flor: Flor, function: str, steps: int) -> None:
    """By an exception or a return, again and again, with the same loop's next execution right after."""
    call = f"""
    for limit in ({steps}, 500, {steps}):
        try:
            {function}(limit)
        except ValueError:
            pass
    """
    flor.write("train.py", WHILES.replace("    RUN", call))
    assert flor("train.py").stdout == "epoch 0\nepoch 1\nepoch 2\n"
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    found = [
        loop.row.iterations
        for loop in record.loops.values()
        if loop.site.key.startswith(f"__main__:{function}")
    ]
    assert {each for each in found if each > 1000} == {steps}
    assert len(found) >= 3


def test_most_steps_are_counted_in_c(flor: Flor) -> None:
    """Of a fast `while` hardly one in a hundred comes to code of ours."""
    asks = (
        "import sys, florhook.runtime.probes as probes\n"
        "step, seen = probes.step, []\n"
        "probes.step = lambda site: seen.append(site) or step(site, sys._getframe(1))\n"
    )
    flor.write("train.py", asks + WHILES.replace("RUN", "count(100000)") + "print(len(seen) < 3000)\n")
    assert flor("train.py").stdout.splitlines()[-1] == "True"


LEFT = """
import time

total = 0

def tiny(n):
    global total
    for k in range(n):
        total += abs(k)

def work(n):
    global total
    for k in range(n):
        time.sleep(0.003)
        total += abs(k)

def until_returned(limit):
    n = 0
    while True:
        n += len("x")
        tiny(2)
        if n == limit:
            return n

def until_raised(limit):
    n = 0
    while n < limit:
        n += len("x")
        tiny(2)
    while n:
        n -= len("x")
        tiny(1)
        if n == 5:
            raise ValueError(n)

def search(limit):
    n = 0
    while n < 50:
        n += abs(1)
        tiny(1)
        if n == limit:
            return n

ALONE
for epoch in range(4):
    work(3)
    until_returned(900)
    tiny(3)
    work(4)
    for k in range(15):
        search(k)
    try:
        until_raised(900)
    except ValueError as error:
        tiny(2)
        work(5)
        total += error.args[0]
    tiny(4)
    work(6)
    print(epoch, total)
print("end", total)
"""
BEFORE_ALL = {
    "nothing": "",
    "a return": "until_returned(3000)",
    "an exception": "try:\n    until_raised(3000)\nexcept ValueError as error:\n    kept = error",
}
LEFT_PROBES = {
    "in the long ones": ("        time.sleep(0.003)\n", "        print('@@', k, n, total)\n"),
    "in the fast ones": (
        "        if n == limit:\n            return n\n\ndef until_r",
        "        if n % 300 == 0: print('@@', n, total)\n",
    ),
    "in the tiny ones": ("        total += abs(k)\n\ndef work", "        if n == 4: print('@@', k, total)\n"),
    "between": ("    work(6)\n", "    print('@@', epoch, total)\n"),
}


@pytest.mark.parametrize("before", BEFORE_ALL)
@pytest.mark.parametrize("epsilon", ["3", "0.5"])
def test_fast_whiles_that_are_left_by_return_or_exception(flor: Flor, before: str, epsilon: str) -> None:
    """What comes after them is recorded under its own number, or not at all; and a replay prints the truth."""
    program = LEFT.replace("ALONE", BEFORE_ALL[before])
    flor.write("train.py", program)
    recorded = flor("train.py", FLOR_EPSILON=epsilon)
    assert recorded.stdout == flor.python("train.py").stdout
    assert recorded.stderr == ""
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    loops = list(record.loops.values())
    (epochs,) = (each.row for each in loops if each.site.key == "__main__::0")
    assert (epochs.parent, epochs.nth, epochs.iterations) == (-1, 0, 4)
    long = [each.row for each in loops if each.site.key == "__main__:work:0"]
    lengths = {row.nth: row.iterations for row in long if row.nth < LOST}
    assert lengths.items() <= {0: 3, 1: 4, 2: 5, 3: 6}.items()
    assert 0 in lengths
    for place, text in LEFT_PROBES.values():
        flor.write("train.py", program.replace(place, text + place, 1))
        wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
        assert wanted
        done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
        assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr
        assert json.loads((flor.folder / "stats.json").read_text())["diverged"] == 0


EVENTS = """
    def emit(handlers):
        for handler in handlers:
            handler(1)

    def run(events):
        done = 0
        while done < events:
            done += 1
            emit([abs, abs])

    run(30_000)
    print(opened.get("__main__:emit:0", 0))
"""


def test_loops_in_a_fast_while_are_slept_through(flor: Flor) -> None:
    """Of 30,000 in as many iterations of a loop that nothing lies around."""
    flor.write("train.py", COUNTED + EVENTS)
    recorded = flor("train.py")
    assert recorded.returncode == 0, recorded.stderr
    assert 0 < int(recorded.stdout) < 3_000
