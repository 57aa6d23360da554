"""Readings of the clock in a program's state: those of a replay are not those of the run, and nothing is wrong with it.

A value is taken for one if it lies between the start and the end of the run on one of the clocks, and the replay's
value in its place lies between the start of the replay and now on the same clock.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Mapping
from typing import Any

CLOCKS: dict[str, Callable[[], float]] = {
    "time": time.time,
    "monotonic": time.monotonic,
    "perf_counter": time.perf_counter,
}
NANOSECONDS = 1e9
SLACK = 1.0  # seconds


def read_clocks() -> dict[str, float]:
    """All clocks now, in seconds."""
    return {name: read() for name, read in CLOCKS.items()}


class Readings:
    """Knows the times of the run (`started` by clock, `elapsed` in seconds) and those of this process."""

    def __init__(self, started: Mapping[str, float], elapsed: float) -> None:
        self.started, self.elapsed = started, elapsed
        self.here = read_clocks()

    def are_both(self, was: Any, now: Any) -> bool:
        """Whether two values in one place are readings of the same clock, in the run and here."""
        before, after = _seconds(was), _seconds(now)
        if before is None or after is None or type(was) is not type(now):
            return False
        return any(
            -SLACK <= before - start <= self.elapsed + SLACK
            and -SLACK <= after - self.here[name] <= CLOCKS[name]() - self.here[name] + SLACK
            for name, start in self.started.items()
            if name in self.here
        )


def _seconds(value: Any) -> float | None:
    if type(value) is float:
        return value
    if type(value) is int:
        return value / NANOSECONDS
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    return None
