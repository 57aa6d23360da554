"""The objects of a loop's entry in a replaying process, by number: held while a restore may need them, not longer.

A program can see how long its objects live: by weak references, `WeakSet`, `__del__`. While its code runs, everything
is let go that can be found again: what has weak references by these, lists, dicts and cells by walking the state of
now, in which they are met under their addresses. What is not met then is gone. It had gone in the run too, which was
in the same state at this place; a checkpoint of a later place that has its number means another object, which was
born at its address, and of which an empty one is as good.

Things that don't work: to hold containers and release those that nobody else holds between iterations; what they
hold dies too late for a print in between. To look a container up by its address among all objects of the process:
the one that is there now may be a library's.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from typing import Any

from .kinds import Kind
from .kinds.base import live_reference
from .kinds.builtin import Instance, empty_instance
from .scan import HOLDERS, Entry, Scan

ARRAY = "numpy.ndarray"  # without weak references: `resize` refuses an array that has one, as one that others hold
GENERATOR = "generator"  # known to the entry by where it stands, which does not find it
# Containers that a walk meets wherever the program can reach them.
FOUND_BY_WALKING = frozenset({"list", "dict", "OrderedDict", "defaultdict", "set", "cell"})


class Live:
    """The objects of an entry by number, with the classes that they had then, since a program can change those."""

    def __init__(self, objects: Sequence[Any]) -> None:
        """All are held for good, unless `of` made it."""
        self.classes = [type(obj) for obj in objects]
        self._held: list[Any] = list(objects)
        self._entry: Entry | None = None
        self._kinds: Sequence[Kind] = ()
        self._arrays: set[int] = set()  # ids of those that are held for good
        self._views: dict[int, list[int]] = {}  # their numbers, by the id of what they are views of
        self._generators: dict[int, weakref.ref[Any] | None] = {}
        self.let_go = False

    @classmethod
    def of(cls, scan: Scan) -> Live:
        """The objects of a scan, held until they are released."""
        live = cls(scan.objects)
        live._entry, live._kinds = Entry(scan), list(scan.kinds)
        arrays = {
            number: obj
            for number, (obj, kind) in enumerate(zip(scan.objects, scan.kinds, strict=True))
            if kind.name == ARRAY and not live._owns_memory(number)
        }
        live._arrays = set(map(id, arrays.values()))
        for number, obj in arrays.items():
            live._views.setdefault(id(obj.base), []).append(number)
        live._generators = {
            number: live_reference(scan.objects[number])
            for number, kind in enumerate(scan.kinds)
            if kind.name == GENERATOR
        }
        HOLDERS.add(live)
        return live

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, number: int) -> Any:
        """The object; None if it is gone."""
        return self._held[number]

    def holds(self, obj: Any) -> bool:
        """Whether an array is held while the program runs."""
        return id(obj) in self._arrays

    def views_of(self, base: Any) -> list[Any]:
        """The arrays that are held while the program runs and are views of another."""
        held = (self._held[number] for number in self._views.get(id(base), ()))
        return [view for view in held if view is not None]

    def anew(self, number: int, cls: type) -> Any:
        """An empty object in the place of one that is gone; None where that needs to know more than its class."""
        kind = self._kinds[number] if self._kinds else None
        if kind is None or kind.alike or isinstance(kind, Instance):
            return empty_instance(cls)
        if kind.name == ARRAY and self._owns_memory(number) and self._entry is not None:
            return sys.modules["numpy"].ndarray.__new__(cls, (0,), self._entry.same(number))
        return None

    def _owns_memory(self, number: int) -> bool:
        """Whether an array can be resized to any other of its type."""
        return self._entry is not None and type(self._entry.same(number)) is str

    def _reference(self, number: int) -> weakref.ref[Any] | None:
        assert self._entry is not None
        return self._entry.reference(number) or self._generators.get(number)

    def _can_be_found(self, number: int, kind: Kind) -> bool:
        if kind.name in FOUND_BY_WALKING or self._reference(number) is not None:
            return True
        return kind.name == ARRAY and self._owns_memory(number)

    def release(self) -> None:
        """The program runs: from now on its objects live as long as it has them."""
        if self._entry is None or self.let_go:
            return
        for number, kind in enumerate(self._kinds):
            if self._can_be_found(number, kind):
                self._held[number] = None
        self.let_go = True

    def generators(self) -> list[Any]:
        """Those of the entry that are there."""
        return [self._held[number] for number in self._generators if self._held[number] is not None]

    def find(self, scan: Scan) -> None:
        """Hold again what is known by a weak reference, and what a walk of now meets."""
        assert self._entry is not None
        for number, obj in enumerate(self._held):
            reference = self._reference(number) if obj is None else None
            if reference is not None:
                self._held[number] = reference()
        numbers = self._entry.numbers(scan.keys, scan.objects, scan.kinds)
        for number, obj in zip(numbers, scan.objects, strict=True):
            if number >= 0 and self._held[number] is None:
                self._held[number] = obj
        self.let_go = False
