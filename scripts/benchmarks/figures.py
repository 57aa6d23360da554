"""Figures: medians, spread, limits; as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

BUSY = 15.0  # percent of all cores that others may use
LOOK = 2.0  # seconds to look at them
Values = tuple[float, ...]
COMPARED: dict[str, Callable[[float, float], float]] = {  # of A (plain) and B (with florhook), in seconds
    **dict.fromkeys(("times", "times plain", "times least"), lambda plain, hooked: hooked / plain),
    "% more": lambda plain, hooked: 100 * (hooked / plain - 1),
    "ms more": lambda plain, hooked: 1000 * (hooked - plain),
}


class BusyError(Exception):
    """Somebody else is using this machine: nothing measured now could be believed."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for."""

    pairs: int
    threads: int
    quick: bool = False
    only: tuple[str, ...] = ()

    def wanted(self, names: Mapping[str, object]) -> list[str]:
        return [name for name in names if not self.only or name in self.only]


@dataclass(frozen=True)
class Figure:
    """What was measured, one value a pair of runs. `limit` is what is promised of the median."""

    name: str
    each: Values
    unit: str
    limit: float | None = None
    raw: Mapping[str, Values] = field(default_factory=dict)  # what it was computed from
    decides: bool = True  # False: it is too noisy for its limit, and another figure stands for it

    @property
    def value(self) -> float:
        return statistics.median(self.each)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles."""
        if len(self.each) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.each, n=4)
        return (high - low) / 2

    @property
    def is_beyond(self) -> bool:
        return self.limit is not None and self.decides and self.value > self.limit

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        if not self.decides:
            return "too noisy to tell"
        return "BEYOND THE LIMIT" if self.is_beyond else "kept"


def compared(
    name: str, plain: Values, hooked: Values, limit: float | None = None, unit: str = "times"
) -> Figure:
    """A figure of A (plain) and B (with florhook), in turn."""
    each = tuple(COMPARED[unit](a, b) for a, b in zip(plain, hooked, strict=True))
    return Figure(name, each, unit, limit, {"plain_s": plain, "hooked_s": hooked})


def alternate(plain: Callable[[], float], hooked: Callable[[], float], pairs: int) -> tuple[Values, Values]:
    """A B A B ...; the first pair warms up and does not count."""
    found = [(plain(), hooked()) for _ in range(pairs + 1)][1:]
    return tuple(a for a, _ in found), tuple(b for _, b in found)


def refuse_when_busy(anyway: bool) -> float:
    """How busy the machine is, in percent of all its cores."""
    used = float(psutil.cpu_percent(LOOK))
    if used > BUSY and not anyway:
        raise BusyError(f"the machine is busy: {used:.0f} % of its cores are used by others")
    return used


def report(subject: str, figures: list[Figure], options: Options, busy: float, folder: Path) -> int:
    """Print the table and write the JSON; how many figures are beyond their limits."""
    version = platform.python_version()
    width = max(len(figure.name) for figure in figures)
    print(f"{'':{width}}  {'median':>10}  {'± spread':>9}  {'limit':>7}")
    for figure in figures:
        limit = "" if figure.limit is None else f"{figure.limit:g}"
        print(
            f"{figure.name:{width}}  {figure.value:10.3f}  {figure.spread:9.3f}  {limit:>7}  "
            f"{figure.unit:12}  {figure.verdict}".rstrip()
        )
    notes = [
        f"{options.pairs} pairs of alternating runs",
        f"{os.cpu_count()} cores, {options.threads} threads",
        f"Python {version}",
        *(["QUICK: tiny sizes, these figures mean nothing"] if options.quick else []),
        *([f"BUSY, {busy:.0f} % used by others"] if busy > BUSY else []),
    ]
    print("; ".join(notes))
    content = {
        "subject": subject,
        "measured": time.strftime("%Y-%m-%d"),
        "python": version,
        "cores": os.cpu_count(),
        "busy_percent": busy,
        **asdict(options),
        "figures": [as_json(figure) for figure in figures],
    }
    folder.mkdir(parents=True, exist_ok=True)
    parts = [subject, *options.only, *(["quick"] if options.quick else []), version.rpartition(".")[0]]
    (folder / f"{'-'.join(parts)}.json").write_text(json.dumps(content, indent=1) + "\n")
    return sum(figure.is_beyond for figure in figures)


def as_json(figure: Figure) -> dict[str, object]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        "median": round(figure.value, 4),
        "spread": round(figure.spread, 4),
        "limit": figure.limit,
        "verdict": figure.verdict,
        "each": [round(value, 4) for value in figure.each],
        **{name: [round(value, 5) for value in values] for name, values in figure.raw.items()},
    }
