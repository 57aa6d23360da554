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

from ..dataclass import dataclass
from .kinds import REGISTRY, load_imported
from .kinds.base import Kind, Missing
from .live import Live
from .scan import DRIVEN, Environment, kind_of

_LIBC = ctypes.CDLL(None)


class CannotRestoreError(Exception):
    """Why this checkpoint cannot be used here; the replay executes instead."""


def _raise(reason: str) -> NoReturn:
    raise CannotRestoreError(reason)


class Touched:
    """Is told that the program needs what a checkpoint does not hold.

    A placeholder keeps this, and so nothing of what was restored with it.
    """

    __slots__ = ("_tell", "loading")

    def __init__(self, tell: Callable[[str], NoReturn]) -> None:
        self._tell, self.loading = tell, True

    def __call__(self, reason: str) -> None:
        if not self.loading:
            self._tell(reason)


class Loader:
    """One restore. `leaf(index)` gives the bytes of a leaf outside the stream."""

    def __init__(
        self,
        environment: Environment,
        stream: bytes,
        table: bytes,
        leaf: Callable[[int], Any],
        live: Live | Sequence[Any],
        touched: Callable[[str], NoReturn] = _raise,
        bring_file_to: Callable[[Any, int, str | None], None] | None = None,
        iterator: Sequence[Any] = (),
    ) -> None:
        """`iterator` are the objects of the loop's iterator, which was driven to its place, by number."""
        load_imported()
        self.environment = environment
        self.stream, self.leaf, self.iterator = stream, leaf, iterator
        self.live = live if isinstance(live, Live) else Live(live)
        self.touched = Touched(touched)
        self._bring_file_to = bring_file_to
        self.numbers, born, self.changed, self.hints = pickle.loads(table)
        self.files: list[Any] = []  # open for writing, and brought to their positions
        self.at = -1  # the object whose content is being applied
        self.born: dict[int, tuple[str, bytes]] = {index: (kind, shell) for index, kind, shell in born}
        self.objects: dict[int, Any] = {}
        self.met = 0
        self.waiting: dict[int, Waiting] = {}

    def load(self, names: Sequence[tuple[Any, ...]]) -> dict[tuple[Any, ...], Any]:
        """Restore everything and give the values of the roots, which were written in the order of `names`."""
        values, contents = self._read(names)
        if self.waiting:
            Makers(self, contents).make_all()
            self.waiting.clear()
            values, contents = self._read(names)
        self._apply(contents)
        self.touched.loading = False
        return values

    def _read(
        self, names: Sequence[tuple[Any, ...]]
    ) -> tuple[dict[tuple[Any, ...], Any], list[tuple[Any, ...]]]:
        self.met = 0
        unpickler = Unpickler(io.BytesIO(self.stream), self._refer)
        values: dict[tuple[Any, ...], Any] = {}
        contents: list[Any] = []
        for name in names:
            values[name] = unpickler.load()
            while len(contents) < self.met:
                contents.extend(unpickler.load())
        return values, contents

    def _apply(self, contents: list[Any]) -> None:
        kinds = [self._kind(number) for number in range(len(contents))]
        for number, content in enumerate(contents):
            kinds[number].prepare(self.objects[number], content, self)
        for late in (0, 1, 2, 3):
            for number, content in enumerate(contents):
                if kinds[number].late == late:
                    self.at = number
                    kinds[number].apply(self.objects[number], content, self)

    def fill(self, number: int, content: Any) -> None:
        """Give one object its content ahead of the others."""
        kind, self.at = self._kind(number), number
        kind.prepare(self.objects[number], content, self)
        kind.apply(self.objects[number], content, self)

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
            return self._with_class(self.live[place], number, place)
        if place <= DRIVEN:
            return self.iterator[DRIVEN - place]
        name, shell = self.born[number]
        parts: list[int] = []
        spec = Unpickler(io.BytesIO(shell), self._recording(parts)).load() if shell else None
        if name not in REGISTRY.by_name:
            load_imported()  # what the object is made from has imported its library
        kind = REGISTRY.by_name[name]
        waiting = kind.waits(spec) or any(type(self.objects.get(part)) is Waiting for part in parts)
        if not (parts and waiting):
            return kind.create(spec, self)
        return self.waiting.setdefault(number, Waiting(number, kind, shell, parts))

    def _recording(self, parts: list[int]) -> Callable[[int], Any]:
        def resolve(number: int) -> Any:
            parts.append(number)
            return self.resolve(number)

        return resolve

    def make(self, waiting: Waiting) -> Any:
        """What waited until the objects that it is made from had their contents."""
        spec = Unpickler(io.BytesIO(waiting.shell), self.resolve).load()
        self.objects[waiting.number] = made = waiting.kind.create(spec, self)
        return made

    def _with_class(self, obj: Any, number: int, place: int) -> Any:
        """A live object with the class that it had in the record."""
        other = self.changed.get(number)
        cls = self.live.classes[place] if other is None else Unpickler(io.BytesIO(other), self.resolve).load()
        if obj is None:  # nobody has the old one any more
            obj = self.live.anew(place, cls)
            if obj is None:
                raise CannotRestoreError(f"an object of type {cls.__name__} is not there any more")
            return obj
        if type(obj) is not cls:
            object.__setattr__(obj, "__class__", cls)
        return obj

    def hint(self) -> Any:
        """What the scan noted beside the content of the object that is restored now."""
        return self.hints.get(self.at)

    def bytes_of(self, content: bytes | int) -> Any:
        return content if isinstance(content, bytes) else self.leaf(content)

    def copy_to(self, address: int, size: int, content: bytes | int) -> None:
        data = self.bytes_of(content)
        if len(data) != size:
            raise CannotRestoreError(f"memory of {size} bytes was {len(data)} bytes in the record")
        data = data if isinstance(data, bytes) else bytes(data)
        if _LIBC.memcmp(
            ctypes.c_void_p(address), data, ctypes.c_size_t(size)
        ):  # it may be memory that is only read
            ctypes.memmove(address, data, size)

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

    def bring_file_to(self, file: Any, position: int, name: str | None = None) -> None:
        """Make a file that is being written what it was when it had that position, and that name."""
        if self._bring_file_to is None:
            raise CannotRestoreError(f"{file.name} was being written")
        self._bring_file_to(file, position, name)

    def missing(self, what: str) -> Missing:
        return Missing(what, self.touched)


@dataclass(eq=False)
class Waiting:
    """Stands for an object that can be made only once those that it is made from have their contents."""

    number: int
    kind: Kind
    shell: bytes
    parts: list[int]


class Makers:
    """Makes the objects that wait, those inside others first; fills what they are made from ahead of the rest."""

    def __init__(self, loader: Loader, contents: list[tuple[Any, ...]]) -> None:
        self.loader, self.contents = loader, contents
        self.numbers = {id(obj): number for number, obj in loader.objects.items()}
        self.done: set[int] = set()

    def make_all(self) -> None:
        for number in list(self.loader.waiting):
            self._finish(number)

    def _finish(self, number: int) -> None:
        if number in self.done:
            return
        self.done.add(number)
        waiting = self.loader.waiting.get(number)
        for part in waiting.parts if waiting else ():
            self._finish(part)
        if waiting is not None:
            self.loader.make(waiting)
        for part in self._parts_of(self.contents[number]):
            self._finish(part)
        self.loader.fill(number, self._with_made(self.contents[number]))

    def _parts_of(self, content: Any) -> list[int]:
        found: list[int] = []
        work = [content]
        while work:
            each = work.pop()
            if type(each) in (tuple, frozenset):
                work.extend(each)
            elif id(each) in self.numbers:
                found.append(self.numbers[id(each)])
        return found

    def _with_made(self, content: Any) -> Any:
        if type(content) is Waiting:
            return self.loader.objects[content.number]
        return tuple(map(self._with_made, content)) if type(content) is tuple else content


class Unpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, refer: Callable[[int], Any]) -> None:
        super().__init__(source)
        self.persistent_load = refer  # type: ignore[method-assign]
