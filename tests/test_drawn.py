"""Python's own iterators: one that was taken apart and put together again at any place goes on as the old one."""

from __future__ import annotations

import collections
import copyreg
import itertools
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Flor

from florhook.runtime.program import Program
from florhook.state.kinds.drawn import TAKEN_APART
from florhook.state.scan import Root, Scan

NUMBERS = {1: "a", 2: "b", 3: "c"}
MADE: dict[str, Callable[[], Iterator[Any]]] = {
    "tuple": lambda: iter((1, 2, 3)),
    "str": lambda: iter("abc"),
    "wide str": lambda: iter("\u1234\u1235"),
    "bytes": lambda: iter(b"abc"),
    "list": lambda: iter([1, 2, 3]),
    "range": lambda: iter(range(3)),
    "deque": lambda: iter(collections.deque([1, 2])),
    "reversed": lambda: reversed([1, 2, 3]),
    "keys": lambda: iter(NUMBERS),
    "items": lambda: iter(NUMBERS.items()),
    "values backwards": lambda: reversed(NUMBERS.values()),
    "ordered": lambda: iter(collections.OrderedDict(NUMBERS)),
    "set": lambda: iter({1, 2, 3}),
    "cycle": lambda: itertools.cycle("rgb"),
    "cycle of one": lambda: itertools.cycle([1]),
    "count": lambda: itertools.count(0.5, 0.25),
    "chain": lambda: itertools.chain([1, 2], (3, 4), "5"),
    "chain of none": lambda: itertools.chain.from_iterable([[], [1], [], [2, 3], []]),
    "islice": lambda: itertools.islice(range(100), 2, 20, 5),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
    "accumulate from": lambda: itertools.accumulate([1, 2, 3], initial=4),
    "accumulate chained": lambda: itertools.accumulate(itertools.chain([1], (2, 3)), initial=4),
    "zip": lambda: zip([1, 2, 3], "ab", strict=False),
    "zip_longest": lambda: itertools.zip_longest([1, 2, 3], "ab", fillvalue=0),
    "map": lambda: map(str, [1, 2, 3]),
    "filter": lambda: filter(None, [0, 1, 0, 2]),
    "enumerate": lambda: enumerate("abc", 5),
    "product": lambda: itertools.product("ab", [1, 2]),
    "combinations": lambda: itertools.combinations([1, 2, 3], 2),
    "repeat": lambda: itertools.repeat(3, 2),
    "compress": lambda: itertools.compress("abcd", [1, 0, 1, 1]),
    "starmap": lambda: itertools.starmap(pow, [(1, 2), (3, 4)]),
    "takewhile": lambda: itertools.takewhile(bool, [1, 2, 0, 3]),
    "dropwhile": lambda: itertools.dropwhile(bool, [1, 0, 3, 4]),
    "cycle in islice": lambda: itertools.islice(itertools.cycle([1, 2, 3]), 0, None, 2),
}
LONGEST = 6


@pytest.fixture(autouse=True)
def fixture_as_florhook_does(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let pickle take iterators apart as a scan does, so that it can stand for a checkpoint."""
    for cls, function in TAKEN_APART.items():
        monkeypatch.setitem(copyreg.dispatch_table, cls, function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def written(iterator: Iterator[Any]) -> bytes:
    return Scan(Program(), [Root(("global", "m", "it"), iterator)]).stream


@pytest.mark.parametrize("name", MADE)
def test_at_any_place(name: str) -> None:
    for drawn in range(LONGEST):
        old = MADE[name]()
        for _ in range(drawn):
            next(old, None)
        new = pickle.loads(pickle.dumps(old))
        for further in range(LONGEST):
            assert written(new) == written(old), (drawn, further)
            assert next(new, "end") == next(old, "end")


def test_a_list_that_grows() -> None:
    items = [1, 2]
    first, second = pickle.loads(pickle.dumps((items, iter(items))))
    assert [next(second), next(second)] == [1, 2]
    first.append(3)
    assert next(second) == 3


def test_what_is_drawn_from_twice_is_one_iterator() -> None:
    """What an accumulation has left is the program's own iterator, not a copy."""
    inner = iter([1, 2, 3, 4])
    sums = itertools.accumulate(inner, initial=0)
    next(sums)
    again, new = pickle.loads(pickle.dumps((inner, sums)))
    assert (next(again), next(new), next(again)) == (1, 2, 3)


PROGRAM = """
import itertools, time
numbers = {n: n * n for n in range(40)}
its = [
    iter(numbers), iter(numbers.items()), iter([1, 2, 3]), iter((1, 2)), itertools.cycle("rgb"), zip("ab", [1, 2, 3]),
    itertools.zip_longest([1], "abc"), itertools.accumulate([1, 2, 3], initial=0), itertools.chain([1], (2, 3)),
    itertools.islice(itertools.count(), 3, 9, 2),
]
total = 0
for epoch in range(9):
    drawn = [next(it, None) for it in its]
    for step in range(3):
        total += step
        time.sleep(0.004)
    print(epoch, total)
"""


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_replay_that_jumps_over_iterations_is_exact(flor: Flor, workers: str) -> None:
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", PROGRAM + "    print('@@', epoch, drawn)\n")
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    done = flor("train.py", FLOR_MODE="replay", FLOR_WORKERS=workers)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == wanted
