"""Which checkpoints go first when room is needed: those without which the others still lie evenly over the run.

Pure. What was kept at one moment of a run goes together: the exit of a loop and the boundary of the loop around it that
comes next share nearly all bytes, so that dropping one of them alone costs a jump and gives back nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

EXIT = -1


@dataclass(frozen=True, eq=False)
class Kept:
    """What has to be known of a checkpoint."""

    run: int
    ctx: int
    iteration: int
    parent: int  # the loop around, -1 for none
    parent_iteration: int
    taken: float
    witness: bool
    pinned: bool
    digests: tuple[bytes, ...]

    @property
    def moment(self) -> tuple[int, int]:
        """The iteration at whose end it was taken, as (ctx, iteration)."""
        if self.iteration == EXIT:
            return self.parent, self.parent_iteration
        return self.ctx, self.iteration - 1

    @property
    def stays(self) -> bool:
        """Whether it is never dropped: it is pinned, or makes the run what it was, as the entry of a main loop does."""
        return self.pinned or (self.iteration == 0 and self.parent < 0)


def order(checkpoints: Iterable[Kept]) -> Iterator[list[Kept]]:
    """What may be dropped of a run's checkpoints, moment by moment, in the order in which it goes."""
    moments: dict[tuple[int, ...], list[Kept]] = {}
    for kept in checkpoints:
        # loops outside all others have no iteration around them: their exits are moments of their own
        place = kept.moment if kept.moment[0] >= 0 else (kept.ctx, EXIT, EXIT)
        moments.setdefault(place, []).append(kept)
    groups = sorted(moments.values(), key=_time)
    free = [number for number, group in enumerate(groups) if not any(kept.stays for kept in group)]
    for number in _evenly([_time(group) for group in groups], free):
        yield groups[number]


def _time(group: list[Kept]) -> float:
    return max(kept.taken for kept in group)


def _evenly(times: Sequence[float], free: Iterable[int]) -> Iterator[int]:
    """Positions in ascending times, always the one that leaves the smallest gap; never the first and the last."""
    before, after = list(range(-1, len(times) - 1)), list(range(1, len(times) + 1))

    def gap(at: int) -> float:
        return times[after[at]] - times[before[at]]

    heap = [(gap(at), at) for at in free if 0 < at < len(times) - 1]
    heapq.heapify(heap)
    while heap:
        size, at = heapq.heappop(heap)
        if size < gap(at):  # a neighbour has gone since
            heapq.heappush(heap, (gap(at), at))
            continue
        yield at
        after[before[at]], before[after[at]] = after[at], before[at]
