"""Where a run was when it had printed so many characters: which iterations of which loops ran, and at what time.

Nothing was recorded for this. A character was printed after everything that was recorded with at most as many
characters before it, and before everything that was recorded with more; what is then still open is left open.
"""

from __future__ import annotations

import ast
import bisect
from functools import cached_property
from typing import Any

from ..replay.record import Loop, Record
from .headers import Count, counts
from .places import Place

Bounds = tuple[list[int], list[int]]  # characters, ascending, and the iterations that they bound


class Positions:
    """Of one run."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._inside = {
            ctx: sorted(loops, key=lambda loop: (loop.row.out, loop.row.entered, loop.row.ctx))
            for ctx, loops in record.inside.items()
        }
        self._starts = {ctx: [loop.row.out for loop in loops] for ctx, loops in self._inside.items()}
        self._counts: dict[str, dict[int, Count]] = {}  # by module
        self._known: dict[int, tuple[Bounds, Bounds]] = {}
        self._read: dict[tuple[int, int], dict[str, Any]] = {}  # labels, by loop and iteration

    def at(self, position: int) -> tuple[Place, ...]:
        """The loops around the character at a position, from outside in, as far as their iterations are known."""
        places: list[Place] = []
        loop = self._child(-1, position)
        while loop is not None:
            inner = self._child(loop.row.ctx, position)
            iteration = self._iteration(loop, position) if inner is None else inner.row.iteration
            if iteration is None or iteration < 0:
                break
            row = loop.row
            places.append(Place(row.site, row.nth, iteration, self._labels(loop, iteration), row.ctx))
            loop = inner
        return tuple(places)

    def _labels(self, loop: Loop, iteration: int) -> dict[str, Any]:
        """The loop's variables, as recorded or as its header counts them."""
        if iteration in loop.iterations:
            key = loop.row.ctx, iteration
            if key not in self._read:
                self._read[key] = loop.labels_of(iteration)
            return self._read[key]
        module, line = loop.site.key.partition(":")[0], loop.site.line
        if module not in self._counts:
            source = self.record.source_of(module)
            self._counts[module] = {} if source is None else counts(ast.parse(source.source))
        count = self._counts[module].get(line)
        return {
            name: count.start + count.step * iteration
            for name, place in loop.site.labels
            if count is not None and place == count.place
        }

    def _child(self, ctx: int, position: int) -> Loop | None:
        index = bisect.bisect_right(self._starts.get(ctx, []), position) - 1
        if index < 0:
            return None
        loop = self._inside[ctx][index]
        return loop if loop.row.out_left is None or position < loop.row.out_left else None

    def _iteration(self, loop: Loop, position: int) -> int | None:
        """Which iteration of a loop ran, if the record tells."""
        first, last = self._bounds(loop, position)
        return first if first == last else None

    def _bounds(self, loop: Loop, position: int) -> tuple[int, int | None]:
        least, most = self._bounds_of(loop)
        at = bisect.bisect_right(least[0], position)
        first = least[1][at - 1] if at else 0
        # Of a `while` that a return or an exception left, nobody is told when that was.
        ended = loop.row.exit in ("end", "break") or (loop.row.exit and loop.site.kind == "for")
        limits = [loop.known - 1] if ended else []
        at = bisect.bisect_right(most[0], position)
        limits += [most[1][at]] if at < len(most[0]) else []
        return first, min(limits, default=None)

    def _bounds_of(self, loop: Loop) -> tuple[Bounds, Bounds]:
        """From which positions on at least, and before which ones at most, which iterations run."""
        if loop.row.ctx not in self._known:
            boundaries = [(row.out, row.iteration) for row in loop.iterations.values()]
            for kept in (loop.checkpoints, loop.witnesses):
                boundaries += [(row.out, row.iteration) for row in kept.values() if row.iteration >= 0]
            entries = [(inner.row.out, inner.row.iteration) for inner in self._inside.get(loop.row.ctx, ())]
            exits = [
                (inner.row.out_left, inner.row.iteration)
                for inner in self._inside.get(loop.row.ctx, ())
                if inner.row.out_left is not None
            ]
            least = _sorted(boundaries + entries)
            most = _sorted([(out, number - 1) for out, number in boundaries] + entries + exits)
            self._known[loop.row.ctx] = least, most
        return self._known[loop.row.ctx]

    def nearest(self, places: tuple[Place, ...], position: int) -> int:
        """The position next to another one at which an iteration ran, as far as the record tells."""
        for place in reversed(places):
            loop = self.record.loops.get(place.ctx)
            if loop is not None:
                known = list(zip(*self._bounds_of(loop)[0], strict=True))
                first = max((out for out, number in known if number <= place.iteration), default=loop.row.out)
                last = min(
                    (out for out, number in known if number > place.iteration), default=loop.row.out_left
                )
                return max(first, position if last is None else min(last, position))
        return position

    def time_at(self, position: int) -> float | None:
        """Seconds from the start of the run to the last thing recorded before a character was printed."""
        index = bisect.bisect_right(self._times[0], position) - 1
        return self._times[1][index] if index >= 0 else None

    def time_of(self, places: tuple[Place, ...]) -> float | None:
        """Seconds from the start of the run to the beginning of an iteration, as far as known."""
        for place in reversed(places):
            loop = self.record.loops.get(place.ctx)
            if loop is not None:
                return loop.time_at(place.iteration)
        return None

    @cached_property
    def _times(self) -> tuple[list[int], list[float]]:
        known: list[tuple[int, float]] = []
        for loop in self.record.loops.values():
            known.append((loop.row.out, loop.row.entered))
            if loop.row.out_left is not None and loop.row.left is not None:
                known.append((loop.row.out_left, loop.row.left))
            known += [(row.out, row.began) for row in loop.iterations.values()]
            for kept in (loop.checkpoints, loop.witnesses):
                known += [(row.out, row.taken) for row in kept.values()]
        known.sort()
        return [out for out, _ in known], [time for _, time in known]

    def recorded(self, loops: list[tuple[str, int, int, dict[str, Any]]]) -> tuple[Place, ...]:
        """Places as a replay names them, with the numbers that their loops have in the record."""
        places: list[Place] = []
        ctx, before = -1, -1
        lost = False
        for site, nth, iteration, labels in loops:
            found = None if lost else self.record.by_place.get((ctx, before, site, nth))
            lost = found is None
            ctx, before = (-1 if found is None else found.row.ctx), iteration
            if found is not None:
                labels = found.labels_of(iteration) or labels
            places.append(Place(site, nth, iteration, labels, ctx))
        return tuple(places)

    @cached_property
    def iterations_before(self) -> dict[int, int]:
        """By number of a loop's execution: how many iterations those of the same loop before it had."""
        counts: dict[str, int] = {}
        before = {}
        for ctx, loop in sorted(self.record.loops.items(), key=lambda each: (each[1].row.entered, each[0])):
            before[ctx] = counts.get(loop.site.key, 0)
            counts[loop.site.key] = before[ctx] + loop.known
        return before


def _sorted(known: list[tuple[int, int]]) -> Bounds:
    known.sort()
    return [position for position, _ in known], [iteration for _, iteration in known]
