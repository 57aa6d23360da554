"""Puts a captured state into the live objects of a process that has come to the same loop's entry.

First everything is loaded, references resolved to live objects or to new empty ones; then each content is applied
in place. Identity and aliasing survive: the optimizer still points at the model's own parameters.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .kinds import REGISTRY, load_imported
from .kinds.base import Kind, Missing
from .scan import Environment, kind_of


class CannotRestoreError(Exception):
    """Why this checkpoint cannot be used here; the replay executes instead."""


def _raise(reason: str) -> NoReturn:
    raise CannotRestoreError(reason)


class Loader:
    """One restore. `leaf(index)` gives the bytes of a leaf outside the stream."""

    def __init__(
        self,
        environment: Environment,
        stream: bytes,
        table: bytes,
        leaf: Callable[[int], Any],
        live: Sequence[Any],
        touched: Callable[[str], NoReturn] = _raise,
        bring_file_to: Callable[[Any, int], None] | None = None,
    ) -> None:
        load_imported()
        self.environment = environment
        self.stream, self.leaf, self.live = stream, leaf, live
        self.touched = touched  # called when the program needs what a checkpoint does not hold
        self._bring_file_to = bring_file_to
        self.numbers, born, self.hints = pickle.loads(table)
        self.files: list[Any] = []  # open for writing, and brought to their positions
        self.at = -1  # the object whose content is being applied
        self.born: dict[int, tuple[str, bytes]] = {index: (kind, shell) for index, kind, shell in born}
        self.objects: dict[int, Any] = {}
        self.met = 0

    def load(self, names: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
        """Restore everything and give the values of the roots, which were written in the order of `names`."""
        unpickler = _Unpickler(io.BytesIO(self.stream), self._refer)
        values: dict[tuple[Any, ...], Any] = {}
        contents: list[Any] = []
        for name in names:
            values[name] = unpickler.load()
            while len(contents) < self.met:
                contents.extend(unpickler.load())
        self._apply(contents)
        return values

    def _apply(self, contents: list[Any]) -> None:
        kinds = [self._kind(number) for number in range(len(contents))]
        for number, content in enumerate(contents):
            kinds[number].prepare(self.objects[number], content, self)
        for late in (0, 1, 2):
            for number, content in enumerate(contents):
                if kinds[number].late == late:
                    self.at = number
                    kinds[number].apply(self.objects[number], content, self)

    def _kind(self, number: int) -> Kind:
        made = self.born.get(number)
        if made is not None:
            return REGISTRY.by_name[made[0]]
        kind = kind_of(self.objects[number], self.environment)
        if kind is None:
            raise CannotRestoreError(
                f"{type(self.objects[number]).__name__} is found by import here, not in the record"
            )
        return kind

    def _refer(self, number: int) -> Any:
        self.met = max(self.met, number + 1)
        return self.resolve(number)

    # What kinds ask for --------------------------------------------------------------------------------------

    def resolve(self, number: int) -> Any:
        """The live object with that number, or a new empty one."""
        if number not in self.objects:
            self.objects[number] = self._find(number)
        return self.objects[number]

    def _find(self, number: int) -> Any:
        place = self.numbers[number]
        if place >= 0:
            return self.live[place]
        kind, shell = self.born[number]
        spec = _Unpickler(io.BytesIO(shell), self.resolve).load() if shell else None
        return REGISTRY.by_name[kind].create(spec, self)

    def hint(self) -> Any:
        """What the scan noted beside the content of the object that is restored now."""
        return self.hints.get(self.at)

    def bytes_of(self, content: bytes | int) -> Any:
        return content if isinstance(content, bytes) else self.leaf(content)

    def copy_to(self, address: int, size: int, content: bytes | int) -> None:
        data = self.bytes_of(content)
        if len(data) != size:
            raise CannotRestoreError(f"memory of {size} bytes was {len(data)} bytes in the record")
        if isinstance(data, bytes):
            ctypes.memmove(address, data, size)
        else:
            ctypes.memmove(address, bytes(data), size)

    def code(self, key: tuple[Any, ...]) -> types.CodeType:
        return self.environment.find_code(key)

    def match_cells(
        self, code: types.CodeType, names: Sequence[str], cells: Sequence[Any]
    ) -> tuple[Any, ...] | None:
        """The closure for a code object that an edit may have given other free variables."""
        known = dict(zip(names, cells, strict=True))
        missing = [name for name in code.co_freevars if name not in known]
        if missing:
            raise CannotRestoreError(f"{code.co_name} now uses {missing[0]} of the function around it")
        return tuple(known[name] for name in code.co_freevars) or None

    def bring_file_to(self, file: Any, position: int) -> None:
        """Make a file that is being written what it was when it had that position."""
        if self._bring_file_to is None:
            raise CannotRestoreError(f"{file.name} was being written")
        self._bring_file_to(file, position)

    def missing(self, what: str) -> Missing:
        return Missing(what, self.touched)


class _Unpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, refer: Callable[[int], Any]) -> None:
        super().__init__(source)
        self.persistent_load = refer  # type: ignore[method-assign]
