"""Which checkpoints go first when room is needed: those without which the others still lie evenly over the run.

Pure. What was kept at one moment of a run goes together: the exit of a loop and the boundary of the loop around it that
comes next share nearly all bytes, so that dropping one of them alone costs a jump and gives back nothing. Places inside
inner loops go first, since a replay comes there by way of a boundary of each loop around.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Sequence

from ..dataclass import dataclass

EXIT = -1


@dataclass(frozen=True, eq=False)
class Kept:
    """What has to be known of a checkpoint."""

    run: int
    ctx: int
    iteration: int
    parent: int  # the loop around, -1 for none
    parent_iteration: int
    depth: int  # how many loops are around
    taken: float
    witness: bool
    pinned: bool
    digests: tuple[bytes, ...]

    @property
    def moment(self) -> tuple[int, ...]:
        """The iteration at whose end it was taken, by depth, ctx and number."""
        if self.iteration != EXIT:
            return self.depth, self.ctx, self.iteration - 1
        if self.parent < 0:  # there is no iteration around: a moment of its own
            return 0, self.ctx, EXIT, EXIT
        return self.depth - 1, self.parent, self.parent_iteration

    @property
    def stays(self) -> bool:
        """Whether it is never dropped: it is pinned, or makes the run what it was, as the entry of a main loop does."""
        return self.pinned or (self.iteration == 0 and self.parent < 0)


def order(checkpoints: Iterable[Kept]) -> Iterator[list[Kept]]:
    """What may be dropped of a run's checkpoints, moment by moment, in the order in which it goes."""
    moments: dict[tuple[int, ...], list[Kept]] = {}
    for kept in checkpoints:
        moments.setdefault(kept.moment, []).append(kept)
    groups = sorted(moments.values(), key=_time)
    depths = [group[0].moment[0] for group in groups]
    stay = {number for number, group in enumerate(groups) if any(kept.stays for kept in group)}
    stay |= {
        0,
        *dict(zip(depths, range(len(groups)), strict=True)).values(),
    }  # the first, and the last of each depth
    for number in _evenly([_time(group) for group in groups], depths, stay):
        yield groups[number]


def _time(group: list[Kept]) -> float:
    return max(kept.taken for kept in group)


def _evenly(times: Sequence[float], depths: Sequence[int], stay: Container[int]) -> Iterator[int]:
    """Positions in ascending times, of the deepest always the one that leaves the smallest gap."""
    before, after = list(range(-1, len(times) - 1)), list(range(1, len(times) + 1))

    def key(at: int) -> tuple[int, float, int]:
        return -depths[at], times[after[at]] - times[before[at]], at

    heap = [key(at) for at in range(len(times)) if at not in stay]
    heapq.heapify(heap)
    while heap:
        found = heapq.heappop(heap)
        at = found[-1]
        if found < key(at):  # a neighbour has gone since
            heapq.heappush(heap, key(at))
            continue
        yield at
        after[before[at]], before[after[at]] = after[at], before[at]
