"""How long it takes to ask a recorded run for more: the new prints outside the inner loop, in it, and at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from florhook.store.store import Store

from .figures import Figure, Options, compared
from .runs import Bench, Ran, places, seconds_of, with_line

PAIRS = 5
BANDWIDTH = 1e9  # bytes a second that a restore may be expected to make
MARGIN = 1.1  # times the least that a replay can take
PRINT = 'print("probe", sum(p.double().norm().item() for p in model.parameters()))'
INNER, OUTER, END = "total +=", 'print(f"epoch', 'print(f"done'  # the lines that new prints come before


@dataclass(frozen=True)
class Workload:
    """A program, and its arguments less the number of epochs."""

    program: str
    epochs: int
    full: str
    quick: str


NAMES = {
    "small": Workload("small.py", 60, "20000", "640"),
    "medium": Workload("medium.py", 3, "16 7 0", "2 1 0"),
    "large": Workload("large.py", 5, "3 10000", "1 100"),
    "waits": Workload("waits.py", 6, "19 4096", "1 100"),
}


def measure(options: Options) -> list[Figure]:
    programs = {name: workload.program for name, workload in NAMES.items()}
    found = places(options.wanted(NAMES), programs, options.threads)
    return [figure for part, place in found for figure in _figures(part, NAMES[part], place, options)]


def _figures(name: str, workload: Workload, place: Bench, options: Options) -> list[Figure]:
    epochs = 2 if options.quick else workload.epochs
    rest = (workload.quick if options.quick else workload.full).split()
    command = [workload.program, str(epochs), *rest]
    path = place.folder / workload.program
    source = path.read_text()
    place.recorded(*command)
    state = _bytes_of_state(place.home)

    def replay(before: str, *options: str) -> Ran:
        path.write_text(with_line(source, before, PRINT))
        ran = place.asked(place.hooked("--mode", "replay", *options, *command))
        path.write_text(source)
        return ran

    plain, start, outer, inner, end = [], [], [], [], []
    for _ in range(options.pairs):
        plain.append(place.plain(*command))
        start.append(place.plain(workload.program, "0", *rest))
        outer.append(replay(OUTER))
        inner.append(replay(INNER, "--select", f"epoch={epochs // 2}"))
        end.append(replay(END))
    asked = {"outer": outer, "inner, one epoch": inner, "end": end}
    figures = [
        compared(f"{name}: {what}", seconds_of(plain), seconds_of(runs), unit="times plain")
        for what, runs in asked.items()
    ]
    for what, restores in (("outer", epochs), ("end", 1)):
        least = tuple(seconds + restores * state / BANDWIDTH for seconds in seconds_of(start))
        figures.append(compared(f"{name}: {what}", least, seconds_of(asked[what]), MARGIN, "times least"))
    return figures


def _bytes_of_state(home: Path) -> int:
    """Of the largest checkpoint."""
    with Store.open(home) as store:
        return max(sum(row.lengths) for row in store.checkpoints(store.find("last")))
