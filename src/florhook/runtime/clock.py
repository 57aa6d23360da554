"""Times of the clock in a replayed program: they are not those of the run, and nothing is wrong with that.

In a replay the user's modules get a clock that goes on from where the run's stood, and gives `Reading`s; a difference
of two is a `Duration`, and so is what is computed from one. So it is known of a value that the clock, and not the
state, made it. What went through a restore is a plain number again: it is taken for a reading if it lies between the
start and the end of the run, and the replay's value in its place between the start of the replay and now.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

CLOCKS: dict[str, Callable[[], float]] = {
    "time": time.time,
    "monotonic": time.monotonic,
    "perf_counter": time.perf_counter,
}
TIMERS = frozenset(
    (
        "transformers.trainer_utils",
        "lightning.pytorch.callbacks.timer",
        "pytorch_lightning.callbacks.timer",
        "skorch.callbacks.logging",
        "ignite.handlers.timing",
        "ignite.handlers.time_limit",
    )
)
"""Modules of libraries that take the time of epochs, between which a replay jumps."""
NANOSECONDS = 1e9
SLACK = 1.0  # seconds


def read_clocks() -> dict[str, float]:
    """All clocks now, in seconds."""
    return {name: read() for name, read in CLOCKS.items()}


class Duration(float):
    """Seconds between two readings, or a number computed from such."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Duration, (float(self),)


class Reading(float):
    """What a clock says."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Reading, (float(self),)

    def __sub__(self, other: Any) -> Any:
        return _as(Duration, float.__sub__(self, other))

    def __rsub__(self, other: Any) -> Any:
        return _as(Duration, float.__rsub__(self, other))

    def __add__(self, other: Any) -> Any:
        return _as(Reading, float.__add__(self, other))

    __radd__ = __add__


def _as(kind: Callable[[float], float], value: Any) -> Any:
    return kind(value) if isinstance(value, float) else value


def _stays_a_duration(name: str) -> None:
    plain = getattr(float, name)

    def operation(self: Duration, *others: Any) -> Any:
        result = plain(self, *others)
        if isinstance(result, tuple):
            return tuple(_as(Duration, each) for each in result)
        return _as(Duration, result)

    operation.__name__ = name
    setattr(Duration, name, operation)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod"):
    _stays_a_duration(f"__{_name}__")
    _stays_a_duration(f"__r{_name}__")
for _name in ("neg", "abs", "round", "pos"):
    _stays_a_duration(f"__{_name}__")


class ReplayClock:
    """Stands in for the functions of `time`, for the user's modules and those that time them."""

    def __init__(self, user_modules: Collection[str], started: Mapping[str, float]) -> None:
        """`started`: what the clocks said when the run began."""
        self.user_modules, self.started = user_modules, started
        self.ahead = dict.fromkeys(started, 0.0)  # of the real clocks, in seconds

    def install(self) -> None:
        for name in self.started.keys() & CLOCKS.keys():
            setattr(time, name, self._stand_in(name))
        self.goes_on_from(0.0)

    @staticmethod
    def uninstall() -> None:
        for name, real in CLOCKS.items():
            setattr(time, name, real)

    def goes_on_from(self, seconds: float) -> None:
        """The program was brought to the place where it had been so many seconds after its start."""
        for name, start in self.started.items():
            if name in CLOCKS:
                self.ahead[name] = start + seconds - CLOCKS[name]()

    def _stand_in(self, name: str) -> Callable[[], float]:
        real, ahead, mine = CLOCKS[name], self.ahead, self.user_modules

        def read() -> float:
            name_of_caller = sys._getframe(1).f_globals.get("__name__")
            if name_of_caller not in mine and name_of_caller not in TIMERS:
                return real()  # a library that waits for something must not see the time jump
            return Reading(real() + ahead[name])

        read.__name__ = read.__qualname__ = name
        read.__module__ = "time"
        return read


class Readings:
    """Knows the times of the run (`started` by clock, `elapsed` in seconds) and those of this process."""

    def __init__(self, started: Mapping[str, float], elapsed: float) -> None:
        self.started, self.elapsed = started, elapsed
        self.here = read_clocks()

    def are_both(self, was: Any, now: Any) -> bool:
        """Whether a value of the run and the replay's value in its place are both the clock's."""
        if isinstance(now, (Reading, Duration)):
            return isinstance(was, (int, float))
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
        return value / NANOSECONDS if value > 1e12 else float(value)
    if isinstance(value, datetime.datetime):
        return value.timestamp()
    return None
