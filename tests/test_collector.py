"""The garbage collector while a replay starts."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator

import pytest
from conftest import Flor

from florhook.replay.collector import RARELY, RareCollections


@pytest.fixture
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    gc.set_threshold(500, 7, 9)
    yield (500, 7, 9)
    gc.set_threshold(*before)


def test_collects_rarely_and_says_what_was_set(thresholds: tuple[int, int, int]) -> None:
    rare = RareCollections()
    real = gc.get_threshold
    rare.begin()
    try:
        assert gc.get_threshold() == thresholds
        assert real() == (RARELY, 7, 9)
    finally:
        rare.end()
    assert gc.get_threshold is real
    assert real() == thresholds
    rare.end()  # again: nothing
    assert real() == thresholds


def test_a_program_that_sets_it_has_what_it_set(thresholds: tuple[int, int, int]) -> None:
    rare = RareCollections()
    rare.begin()
    gc.set_threshold(300, 5)
    assert gc.get_threshold() == (300, 5, 9)
    rare.end()
    assert gc.get_threshold() == (300, 5, 9)


@pytest.mark.parametrize("first", [0, RARELY])
def test_leaves_alone_who_collects_never_or_seldom(first: int, thresholds: tuple[int, int, int]) -> None:
    gc.set_threshold(first, 7, 9)
    rare = RareCollections()
    rare.begin()
    assert gc.get_threshold() == (first, 7, 9)
    rare.end()
    assert gc.get_threshold() == (first, 7, 9)


PROGRAM = """
import gc, sys, time
seen = []
gc.callbacks.append(lambda phase, info: seen.append(phase))
lists = [[i] for i in range(5000)]
before = gc.get_threshold()
for epoch in range(3):
    time.sleep(0.05)
    inside = gc.get_threshold()
seen.clear()
lists += [[i] for i in range(5000)]
late = len(seen)
"""


def test_in_a_replay(flor: Flor) -> None:
    """Seldom before the loop, as often as plainly after it."""
    flor.write("train.py", PROGRAM)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write(
        "train.py",
        PROGRAM.replace("before =", "sys.stderr.write(f'{len(seen) > 1}\\n')\nbefore =")
        + "print('@@', [late > 1, before == inside == gc.get_threshold()])\n",
    )
    done = flor.python("train.py")
    assert (done.stdout, done.stderr) == ("@@ [True, True]\n", "True\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout) == (0, "@@ [True, True]\n"), done.stderr
    assert done.stderr.splitlines()[0] == "False"
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"] == 3
