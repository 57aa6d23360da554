"""The iterator of a loop as a state: nothing can set it, but driving it brings it to its place, and this tells whether.

A generator, a DataLoader's iterator or a `zip` of them is made anew by the program, or is there at the loop's entry.
Passing over k items brings it where it was before the k-th iteration, if it is deterministic. Its *outline* proves
that: a stream of all that it consists of, where what the program knew at the loop's entry, and can still reach, stands
as that object's number. Equal outlines are equal iterators.
"""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import xxhash

from .kinds import Kind
from .kinds.opaque import UNKNOWN
from .live import Live
from .scan import ATOMS, DRIVEN, Entry, Environment, Root, Scan, kind_of

Anchor = Callable[[Any, Any, Kind], int]  # key, object, kind -> its number at the entry, or -1


class Outline(Scan):
    """The objects that an iterator consists of; `anchor` tells those at which the walk ends."""

    outlines = True

    def __init__(self, environment: Environment, iterator: Any, anchor: Anchor) -> None:
        self._anchor = anchor
        super().__init__(environment, [Root(("iterator",), iterator)])

    def numberer(self) -> Callable[[Any], Any]:
        number = super().numberer()

        def outlined(obj: Any) -> Any:
            if type(obj) in ATOMS:
                return None
            kind = kind_of(obj, self.environment)
            if kind is None:
                return None
            if not moves(obj, kind):
                known = self._anchor(kind.key(obj), obj, kind)
                if known >= 0:
                    return ("entry", known)
            return number(obj)

        return outlined

    def digest(self) -> str:
        found = xxhash.xxh3_128(self.stream)
        for leaf in self.leaves:
            found.update(leaf.view)
        return found.hexdigest()

    def unreadable(self) -> str | None:
        """What of the iterator has a state that nobody can read."""
        return next((str(where[-1]) for where in self.suspended.values() if where[1] is UNKNOWN), None)

    def agrees(self, later: Outline, table: Iterable[int]) -> bool:
        """Whether the objects that the program has too, which a table finds here, have the same numbers later."""
        shared = [DRIVEN - number for number in table if number <= DRIVEN]
        return all(self.keys[number : number + 1] == later.keys[number : number + 1] for number in shared)

    def numbers(self) -> dict[Any, int]:
        """By key, for `Scan.table` and `Scan.blockers`."""
        return {key: number for number, key in enumerate(self.keys)}


def recorded_outline(scan: Scan, entry: Entry, iterator: Any) -> Outline:
    """The outline beside a scan that was made at the same moment."""
    reachable = set(scan.keys)

    def anchor(key: Any, obj: Any, kind: Kind) -> int:
        return entry.number(key, obj, kind) if key in reachable else -1

    return Outline(scan.environment, iterator, anchor)


def replayed_outline(environment: Environment, iterator: Any, live: Live, table: list[int]) -> Outline:
    """The same in another process: `live` are the entry's objects, `table` says which of them the scan met."""
    known: dict[Any, int] = {}
    for number in {number for number in table if number >= 0}:
        obj = live[number]
        kind = None if obj is None else kind_of(obj, environment)
        if kind is not None:
            known[kind.key(obj)] = number

    def anchor(key: Any, obj: Any, kind: Kind) -> int:
        return known.get(key, -1)

    return Outline(environment, iterator, anchor)


def moves(obj: Any, kind: Kind) -> bool:
    """Whether an object is an iterator, so that the walk must go into it though it is known."""
    return kind.moves or (kind.name in ("instance", "file") and hasattr(type(obj), "__next__"))


def iterated_over(flow: Iterator[Any]) -> set[int]:
    """The ids of an open loop's iterator and of what it draws from directly."""
    iterator = iterator_in(flow)
    if isinstance(iterator, types.GeneratorType):
        return {id(iterator)}  # what its frame holds, a scan sees
    return {id(iterator), *(id(each) for each in gc.get_referents(iterator))}


def iterator_in(flow: Iterator[Any]) -> Any:
    """The iterator inside `runtime.context.flow_of`, once an item was taken from it."""
    chain = next(each for each in gc.get_referents(flow) if type(each) is itertools.chain)
    return gc.get_referents(chain)[-1]
