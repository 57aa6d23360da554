"""Times that libraries take themselves are no differences; what only looks like one is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor

from florhook.runtime.timers import is_taken_time

LIBRARY = """
import collections
import time

class Bar:
    __slots__ = ("count", "elapsed")

    def __init__(self):
        self.count, self.elapsed = 0.0, 0.0

    def update(self, start):
        now = time.perf_counter()
        self.count += 1
        self.elapsed = now - start

class Episodes:
    def __init__(self):
        self.times, self.lengths = collections.deque(), []

    def add(self, start, length):
        self.times.append(round(time.time() - start, 6))
        self.lengths.append(length)
"""


class Own:
    """Of the program, whose modules get the run's clock."""

    elapsed = 0.0

    def __init__(self) -> None:
        self.elapsed = 1.0


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "timing_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    import timing_library  # type: ignore[import-not-found]

    yield timing_library
    del sys.modules["timing_library"]


def test_what_a_library_takes(library: Any) -> None:
    """By the attribute's name in the source of its class, be it a slot, an attribute, or a list of them."""
    bar, episodes = library.Bar(), library.Episodes()

    def taken(path: str, was: Any = 1.5, now: Any = 2.5, *more: Any) -> bool:
        return is_taken_time(path, was, now, [bar, episodes, *more], {__name__})

    assert taken("self.bar.elapsed")
    assert taken("envs[0].times[3]")
    assert not taken("self.bar.count")
    assert not taken("envs[0].lengths[3]")
    assert not taken("elapsed")
    assert not taken("self.bar.elapsed", None, 2.5)
    assert not taken("own.elapsed", 1.5, 2.5, Own())


PROGRAM = """
import time
import timing_library

bar = timing_library.Bar()
for epoch in range(4):
    start = time.perf_counter()
    for step in range(3):
        time.sleep(0.02)
    bar.update(start)
"""


def test_a_replay_of_a_program_with_such_a_library(flor: Flor, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "timing_library.py").write_text(LIBRARY)
    flor.write("train.py", PROGRAM)
    known = {"PYTHONPATH": str(folder), "FLOR_EPSILON": "inf", "FLOR_EXCLUDE": "timing_library"}
    assert flor("train.py", **known).returncode == 0
    flor.write("train.py", PROGRAM.replace("        time.sl", "        print('@@', step)\n        time.sl"))
    done = flor("train.py", FLOR_MODE="replay", **known)
    assert done.stdout == "".join(f"@@ {step}\n" for _ in range(4) for step in range(3))
    assert done.returncode == 0, done.stderr
    assert "bar.elapsed holds a time of the clock" in done.stderr
