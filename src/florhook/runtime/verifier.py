"""Holds what was executed again to the record (the paper's deferred check, made exact).

Where a replay reaches a place of which the run left digests, its state is compared root by root. What differs is named,
down to the value: a difference is a divergence unless it is a reading of the clock.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import xxhash

from ..hook.sites import STATEMENT
from ..replay.record import Loop, Record
from ..state.differences import Comparison, Difference, Read
from ..state.kinds.attributes import getattr_dict
from ..state.lazy import computed_on_demand
from ..state.scan import Root, Scan
from ..store.rows import CheckpointRow
from .clock import Readings
from .context import Context
from .digests import Digests, Name
from .library import ATTRIBUTE
from .moved import Moved
from .program import Program
from .threads import running_threads
from .timers import is_taken_time

EXIT = -1
MOST_DIFFERENCES = 5
LEAST_ADDRESS = 1 << 32
# Where scikit-learn's searches keep the times that they took, which no wrapper of a clock is seen in.
TAKEN_TIMES = re.compile(r"\.refit_time_$|\['(?:mean|std)_(?:fit|score)_time'\]")
MOST_LOOKED_AT = 10_000  # differing values, to find one that is no reading of the clock
REST = 4.0  # how many times its own time a verification waits for the next
WORLDS = {"random": "Python's random state", "numpy": "NumPy's random state", "torch": "torch's random state or modes",
          "process": "an environment variable or the working folder"}  # fmt: skip


class Verifier:
    """Counts places that agree with the record and places that do not, and keeps what is to be said of them."""

    def __init__(self, program: Program, record: Record, readings: Readings, moved: Moved) -> None:
        self.program, self.record, self.readings, self.places = program, record, readings, moved
        self.verified = self.diverged = 0
        self.differences: list[str] = []
        self.unverified: list[str] = []  # the reasons
        self.clock: list[str] = []  # variables that hold a reading of the clock
        self.moved: list[str] = []  # those that name the folder of now or a line of now
        self._rest_until = 0.0
        self.restores = 0  # so far
        # By id and name: what an attribute held that only the replay had, and after how many restores.
        self._computed: dict[tuple[int, str], tuple[str, int]] = {}

    def is_due(self, context: Context) -> bool:
        """Whether it is time to look. What differs stays different: inside loops, not every place must be looked at."""
        return context.parent is None or time.perf_counter() >= self._rest_until

    def agrees(
        self, context: Context, loop: Loop, checkpoint: CheckpointRow, roots: Mapping[Name, Any]
    ) -> bool:
        """Compare the state with a checkpoint's."""
        began = time.perf_counter()
        problem = self._problem(checkpoint, roots)
        if problem is None:
            self.verified += 1
        elif problem:
            self.diverged += 1
            self._say(f"{place_of(self.program, context, loop, checkpoint.iteration)}: {problem}")
        now = time.perf_counter()
        self._rest_until = now + REST * (now - began)
        return not problem

    def _problem(self, checkpoint: CheckpointRow, roots: Mapping[Name, Any]) -> str | None:
        """What is wrong; None if nothing is, "" if that cannot be told."""
        digests = Digests.from_row(checkpoint)
        absent = next((name for name in digests.names if name not in roots), None)
        if absent is not None:
            return f"{title(absent)} is missing"
        try:
            scan = Scan(self.program, [Root(name, roots[name]) for name in digests.names])
        except Exception as error:
            self.cannot(f"its state cannot be read ({type(error).__name__}: {error})")
            return ""
        differing = digests.differing(scan)
        if not differing:
            return None
        if running_threads(self.program.user_modules):
            self.cannot("a thread of the program's is at work, and how far it has come depends on the moment")
            return ""
        return self._explain(scan, checkpoint, digests, differing)

    def _explain(
        self, scan: Scan, checkpoint: CheckpointRow, digests: Digests, differing: list[int]
    ) -> str | None:
        first = title(digests.names[differing[0]])
        try:
            if not self.record.store.trusted(self.record.run, checkpoint):
                return f"{first} is not as recorded"
            comparison = self._comparison(scan, checkpoint, digests)
            addresses = _Addresses(scan)
            for index in differing:
                name = title(digests.names[index])
                found = self._first_that_counts(comparison, index, name, addresses)
                if found is not None:
                    return readable(str(found))
            if comparison.arranged and not scan.arranged:
                return self._explain_arranged(scan, checkpoint, digests, comparison.arranged)
        except Exception as error:  # only the description failed: that something differs is certain
            return f"{first} is not as recorded (what differs in it cannot be read: {type(error).__name__}: {error})"
        return None

    def _explain_arranged(
        self, scan: Scan, checkpoint: CheckpointRow, digests: Digests, arranged: Mapping[int, Sequence[str]]
    ) -> str | None:
        """The same once what has been computed since, for a print say, is left out."""
        by_id = {id(scan.objects[number]): names for number, names in arranged.items()}
        again = Scan(self.program, scan.roots, arranged=by_id)
        differing = digests.differing(again)
        problem = self._explain(again, checkpoint, digests, differing) if differing else None
        return problem or self._first_computed_otherwise(scan, again, arranged)

    def _first_computed_otherwise(
        self, scan: Scan, again: Scan, arranged: Mapping[int, Sequence[str]]
    ) -> str | None:
        """An attribute that was computed before a restore took it away, and now once more with another value.

        The program with the print would have kept the first value. What is made of the program's own objects is not
        looked at, since those may have changed.
        """
        programs = set(again.keys)
        for number, names in arranged.items():
            obj = scan.objects[number]
            for name, value in (getattr_dict(obj) or {}).items():
                own = Scan(self.program, [Root((name,), value)]) if name not in names else None
                if own is None or not programs.isdisjoint(own.keys):
                    continue
                now = Digests.of(own, witness=True).to_text()
                was, restores = self._computed.setdefault((id(obj), name), (now, self.restores))
                if was != now and restores != self.restores:
                    return (
                        f"a print computes {type(obj).__name__}.{name} anew, with another value than before"
                    )
        return None

    def _first_that_counts(
        self, comparison: Comparison, index: int, name: str, addresses: _Addresses
    ) -> Difference | None:
        unseen = comparison.unseen
        found = list(itertools.islice(comparison.root(index, name), MOST_LOOKED_AT))
        if not found and comparison.unseen == unseen:
            if comparison.arranged and (
                not addresses.scan.arranged or (comparison.lacks and comparison.one_to_one)
            ):
                return None
            return Difference(name, None, None, "built or shared otherwise than in the run")
        found = [each for each in found if not addresses.are_both(each.was, each.now)]
        moved = [each for each in found if self.places.are_both(each.path, each.was, each.now)]
        found = [each for each in found if each not in moved]
        counting = [
            each
            for each in found
            if not (
                self.readings.are_both(each.was, each.now)
                or TAKEN_TIMES.search(each.path)
                or is_taken_time(
                    each.path, each.was, each.now, addresses.scan.objects, self.program.user_modules
                )
            )
        ]
        for each in found:
            if not counting:
                _note(self.clock, each.path)
        for each in moved:
            if not counting:
                _note(self.moved, each.path)
        return counting[0] if counting else None

    def _comparison(self, scan: Scan, checkpoint: CheckpointRow, digests: Digests) -> Comparison:
        stream = bytes(self.record.store.read(checkpoint.digests[0]))
        count = len(digests.roots)
        was = Read.of(stream, count, _Recorded(self.record, checkpoint, digests))
        now = Read.of(scan.stream, count, _Live(scan))

        def is_lazy(number: int, name: str) -> bool:
            cls: type = type(scan.objects[number])
            return computed_on_demand(cls, name)

        return Comparison(was, now, [kind.name for kind in scan.kinds], is_lazy)

    def _say(self, text: str) -> None:
        if len(self.differences) < MOST_DIFFERENCES:
            self.differences.append(text)

    def cannot(self, reason: str) -> None:
        """A stretch that cannot be compared with anything."""
        self.unverified.append(reason)


def _note(kept: list[str], path: str) -> None:
    if path not in kept and len(kept) < MOST_DIFFERENCES:
        kept.append(path)


class _Addresses:
    """Knows what a program keeps of its objects' addresses, which are others in each process: `self._id = id(x)`."""

    def __init__(self, scan: Scan) -> None:
        self.scan = scan
        self._known: set[int] | None = None

    def are_both(self, was: Any, now: Any) -> bool:
        if type(was) is not int or type(now) is not int or min(was, now) < LEAST_ADDRESS:
            return False
        if self._known is None:
            parts = (value for obj in self.scan.objects for value in (getattr_dict(obj) or {}).values())
            self._known = {id(obj) for obj in itertools.chain(self.scan.objects, parts)}
        return now in self._known


class _Recorded:
    def __init__(self, record: Record, checkpoint: CheckpointRow, digests: Digests) -> None:
        self.record, self.checkpoint, self.digests = record, checkpoint, digests

    def digest(self, index: int) -> bytes:
        return self.digests.leaf(index)

    def data(self, index: int) -> Any:
        return None if self.checkpoint.is_witness else self.record.store.read(self.digests.leaf(index))


class _Live:
    def __init__(self, scan: Scan) -> None:
        self.scan = scan

    def digest(self, index: int) -> bytes:
        return xxhash.xxh3_128_digest(self.scan.leaves[index].view)

    def data(self, index: int) -> Any:
        return self.scan.leaves[index].view


def title(name: Name) -> str:
    """A root as the program's user calls it."""
    if name[0] == "world":
        return WORLDS.get(name[1], str(name[1]))
    if name[0] == "iterable":
        return "what the loop iterates over"
    if name[0] == ATTRIBUTE:
        return ".".join(name[1:])
    return str(name[-1])


def readable(path: str) -> str:
    """A module's parts as the user writes them: net.fc.weight, net[0].bias; of a frame nothing but its name."""
    path = re.sub(r"\._mgr(?:\.blocks(?:\.values)?)?(?=\W|$)", "", path)
    path = re.sub(r"\._modules\['(\d+)'\]", r"[\1]", path)
    return re.sub(r"\._(?:parameters|modules|buffers)\['(\w+)'\]", r".\1", path)


def place_of(program: Program, context: Context, loop: Loop | None, iteration: int) -> str:
    """ "after epoch=3 of the loop at train.py:41" """
    if context.site.kind == STATEMENT:
        return f"after the statement at {program.place(context.site)}"
    where = f"the loop at {program.place(context.site)}"
    if iteration == EXIT:
        return f"at the end of {where}"
    if iteration == 0:
        return f"before {where}"
    labels = loop.labels_of(iteration - 1) if loop is not None else {}
    named = ", ".join(f"{name}={value!r}" for name, value in labels.items())
    return f"after {named or f'iteration {iteration - 1}'} of {where}"


def times_of(record: Record) -> tuple[dict[str, float], float]:
    """What the clocks said when a run began, and how many seconds it took."""
    run = record.run
    taken = (row.taken for loop in record.loops.values() for row in loop.checkpoints.values())
    ended = run.ended or run.lost or run.origin + max(taken, default=0.0)
    clocks = run.meta.get("clocks", {"time": run.started})
    before = clocks["time"] - run.origin  # of a run that continues another, what was recorded by that one
    return {name: started - before for name, started in clocks.items()}, ended - run.origin
