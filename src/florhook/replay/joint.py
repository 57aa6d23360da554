"""One plan for all ranks of a run: what one of them skips, the others skip, or they would wait for each other.

Each rank reads the records of all. Of a loop that all ranks went through alike, the iterations that any of them is
asked for are wanted of all, and those checkpoints can be used that all have. Other loops are executed.
"""

from __future__ import annotations

from .plan import Question
from .record import Loop, Record

Path = tuple[tuple[int, str, int], ...]  # of a loop from outside in: iteration of the one around, site, nth


def join(own: Record, others: list[tuple[Record, Question]]) -> None:
    """Make a rank's record one that gives the same plan as those of the other ranks, of which the same is asked."""
    if len(others) + 1 < own.run.world:  # the others ran on other machines
        for loop in own.loops.values():
            _execute(loop)
        return
    found = [(question, _by_path(other)) for other, question in others]
    for path, loop in _by_path(own).items():
        peers = [(question, loops[path]) for question, loops in found if path in loops]
        if len(peers) < len(found) or any(not _alike(loop, peer) for _, peer in peers):
            _execute(loop)
            continue
        loop.limit, loop.cut = (
            min([loop.known, *(peer.known for _, peer in peers)]),
            loop.is_open or any(peer.is_open for _, peer in peers),
        )
        loop.asked = frozenset(
            i for i in range(loop.limit) if any(question.wants(peer, i) for question, peer in peers)
        )
        _execute(loop, set(loop.checkpoints).intersection(*(peer.checkpoints for _, peer in peers)))


def _by_path(record: Record) -> dict[Path, Loop]:
    paths: dict[int, Path] = {-1: ()}
    for number in sorted(record.loops):
        row = record.loops[number].row
        if row.parent in paths:
            paths[number] = (*paths[row.parent], (row.iteration, row.site, row.nth))
    return {path: record.loops[number] for number, path in paths.items() if path}


def _alike(loop: Loop, other: Loop) -> bool:
    return loop.is_open or other.is_open or (loop.row.exit, loop.known) == (other.row.exit, other.known)


def _execute(loop: Loop, usable: set[int] | None = None) -> None:
    """Keep the other checkpoints only to compare with."""
    for iteration in set(loop.checkpoints) - (usable or set()):
        loop.witnesses[iteration] = loop.checkpoints.pop(iteration)
