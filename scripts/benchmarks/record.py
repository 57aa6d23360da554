"""What recording costs, process end to end with the writer, on programs of different kinds.

The wall clock of alternating runs tells all there is, but on most machines it is noisier than one percent. So the cost
is also accounted: the seconds that florhook kept the program waiting or computed itself, and the processor time of its
writer. Where the spread of the wall clock is wider than the limit, the accounted cost decides.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from florhook.store.store import Store

from .figures import Figure, Options, compared
from .runs import Bench, Ran, places, seconds_of, size

PAIRS = 5
EPSILON = 100 / 15  # percent, florhook's default budget
TIGHT = 1.0  # percent, the other budget that is tried
POOL = 1.2  # times the bytes of a checkpoint: the most that memory may grow by
MIB = 1 << 20
COSTS = ("stall_s", "hook_s", "end_s", "writer_cpu_s")


@dataclass(frozen=True)
class Workload:
    """A program with its arguments, and what is promised of it."""

    program: str
    full: str
    quick: str
    limit: float  # percent
    starts: bool = True  # whether the limit includes the start-up
    every_epoch: bool = False  # must be checkpointed
    pooled: bool = False  # memory may grow by the staging pool only


NAMES = {
    "small": Workload("small.py", "100 20000", "3 640", 2, starts=False),
    "medium": Workload("medium.py", "4 18 7 0", "2 2 1 0", 1),
    "fused": Workload("medium.py", "3 18 7 1", "2 2 1 1", 1),
    "large": Workload("large.py", "6 3 10000", "2 1 100", EPSILON, pooled=True),
    "waits": Workload("waits.py", "12 19 4096", "2 1 100", 1, every_epoch=True),
    "loops": Workload("loops.py", "40 750 40", "2 10 10", 5),
    "objects": Workload("objects.py", "30 200000", "2 100", 1),
    "tensors": Workload("tensors.py", "8 20 20000", "2 1 100", EPSILON),
}


def measure(options: Options) -> list[Figure]:
    programs = {name: workload.program for name, workload in NAMES.items()}
    found = places(options.wanted(NAMES), programs, options.threads)
    return [figure for part, place in found for figure in _figures(part, NAMES[part], place, options)]


def _figures(name: str, workload: Workload, place: Bench, options: Options) -> list[Figure]:
    command = [workload.program, *(workload.quick if options.quick else workload.full).split()]
    place.plain(workload.program, *workload.quick.split())  # warms up: libraries are read from the disk
    plain, hooked = [], []
    for _ in range(options.pairs):
        plain.append(place.plain(*command))
        hooked.append(place.recorded(*command))
    taken, possible = checkpoints(place.home)
    written = size(place.home)
    tight = place.recorded(*command, FLOR_EPSILON=str(TIGHT / 100))
    usual = statistics.median(run.wall for run in plain)
    bare = min(place.plain("-c", "pass").cpu for _ in range(3))

    def start(run: Ran) -> float:
        return max(0.0, float(run.stats["start_cpu_s"]) - bare)

    def accounted(run: Ran) -> float:
        seconds = sum(float(run.stats[part]) for part in COSTS)
        return 100 * (seconds + workload.starts * start(run)) / usual

    walls = tuple(run.wall - (not workload.starts) * start(run) for run in hooked)
    wall = compared(f"{name}: wall clock", seconds_of(plain), walls, workload.limit, "% more")
    raw = {part: tuple(float(run.stats[part]) for run in hooked) for part in ("start_cpu_s", *COSTS)}
    raw |= {"plain_cpu_s": tuple(run.cpu for run in plain), "hooked_cpu_s": tuple(run.cpu for run in hooked)}
    growth = tuple(b.peak - a.peak for a, b in zip(plain, hooked, strict=True))
    state = statistics.mean(run.stats["bytes_captured"] / max(1, run.stats["checkpoints"]) for run in hooked)
    return [
        replace(wall, decides=wall.spread <= workload.limit),
        Figure(f"{name}: accounted", tuple(map(accounted, hooked)), "% of plain", workload.limit, raw),
        Figure(f"{name}: accounted, budget of {TIGHT:g} %", (accounted(tight),), "% of plain", TIGHT),
        Figure(f"{name}: start-up", tuple(100 * start(run) / usual for run in hooked), "% of plain"),
        Figure(
            f"{name}: epochs without a checkpoint, of {possible}",
            (possible - taken,),
            "epochs",
            0 if workload.every_epoch else None,
        ),
        Figure(f"{name}: written", (written / MIB,), "MiB"),
        Figure(f"{name}: peak memory", growth, "MiB more", POOL * state / MIB if workload.pooled else None),
    ]


def checkpoints(home: Path) -> tuple[int, int]:
    """Of the main loop of the only run in a store: boundaries with a checkpoint, and all boundaries."""
    with Store.open(home) as store:
        run = store.find("last")
        loops = [row for row in store.contexts(run) if row.parent < 0 and row.left is not None]
        main = max(loops, key=lambda row: (row.left or 0.0) - row.entered)
        rows = store.checkpoints(run, pieces=False)
        taken = [row for row in rows if row.ctx == main.ctx and row.iteration > 0 and not row.is_witness]
        return len(taken), main.iterations or 0
