"""Figures of alternating runs: medians, spread, limits; as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

BUSY = 15.0  # percent of all cores that others may use
LOOK = 2.0  # seconds to look at them


class BusyError(Exception):
    """Somebody else is using this machine: nothing measured now could be believed."""


@dataclass(frozen=True)
class Figure:
    """What was measured of A (plain) and B (with florhook), in turn. `limit` is what is promised of `value`."""

    name: str
    plain: tuple[float, ...]
    hooked: tuple[float, ...]
    limit: float
    unit: str = "times"  # or "ms more"

    @property
    def each(self) -> list[float]:
        """One value for each pair."""
        pairs = zip(self.plain, self.hooked, strict=True)
        if self.unit == "times":
            return [hooked / plain for plain, hooked in pairs]
        return [1000 * (hooked - plain) for plain, hooked in pairs]

    @property
    def value(self) -> float:
        return statistics.median(self.each)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles."""
        low, _, high = statistics.quantiles(self.each, n=4)
        return (high - low) / 2


def alternate(
    plain: Callable[[], float], hooked: Callable[[], float], pairs: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A B A B ...; the first pair warms up and does not count."""
    found = [(plain(), hooked()) for _ in range(pairs + 1)][1:]
    return tuple(a for a, _ in found), tuple(b for _, b in found)


def refuse_when_busy(anyway: bool) -> float:
    """How busy the machine is, in percent of all its cores."""
    used = psutil.cpu_percent(LOOK)
    if used > BUSY and not anyway:
        raise BusyError(f"the machine is busy: {used:.0f} % of its cores are used by others")
    return used


def report(subject: str, figures: list[Figure], folder: Path, busy: float, pairs: int) -> int:
    """Print the table and write the JSON; how many figures are beyond their limits."""
    width = max(len(figure.name) for figure in figures)
    beyond = 0
    print(f"{'':{width}}  {'median':>9}  {'± spread':>9}  {'limit':>7}")
    for figure in figures:
        over = figure.value > figure.limit
        beyond += over
        mark = "  beyond the limit" if over else ""
        print(
            f"{figure.name:{width}}  {figure.value:9.3f}  {figure.spread:9.3f}  {figure.limit:7g}"
            f"  {figure.unit}{mark}"
        )
    busy_note = f"; BUSY, {busy:.0f} % used by others" if busy > BUSY else ""
    print(
        f"{pairs} pairs of alternating runs, {os.cpu_count()} cores, Python {platform.python_version()}{busy_note}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "subject": subject,
        "measured": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "pairs": pairs,
        "busy_percent": busy,
        "figures": [
            {
                "name": figure.name,
                "unit": figure.unit,
                "median": round(figure.value, 4),
                "spread": round(figure.spread, 4),
                "limit": figure.limit,
                "plain_s": [round(value, 5) for value in figure.plain],
                "hooked_s": [round(value, 5) for value in figure.hooked],
            }
            for figure in figures
        ],
    }
    path = (
        folder / f"{subject}-{platform.python_version_tuple()[0]}.{platform.python_version_tuple()[1]}.json"
    )
    path.write_text(json.dumps(content, indent=1) + "\n")
    return beyond
