"""What differs between two captured states, down to the first value: by which path, and by how much.

Both streams are read without making any object: where an object's number stood is a `Ref`, contents are tuples.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from xxhash import xxh3_128_digest

from ..dataclass import dataclass
from .restore import Unpickler

GEOMETRY = 5  # parts of a strided tensor's place in its storage
OF_ATTRIBUTES = (
    "instance", "tqdm", "Logger", "LogRecord", "rich task", "rich column", "rich drawing",
    "pandas object", "pandas.Index", "pandas dtype", "pandas block manager", "pandas block", "pandas array",
)  # fmt: skip
LONGEST = 60  # characters of a value in a message
R = TypeVar("R", bound="Read")
Step = tuple[str, Any]  # what a path grows by, and the part of the content that it leads to


class Leaves(Protocol):
    """The leaves of one state, by index."""

    def digest(self, index: int) -> bytes: ...

    def data(self, index: int) -> Any:
        """Its bytes; None where they were not kept."""


@dataclass(frozen=True)
class Ref:
    """Stands for the object with that number."""

    number: int

    def __call__(self, *arguments: Any) -> Made:
        """Where the object is a class or function, which a stream says to make something with."""
        return Made((self, *arguments))


class Made(tuple[Any, ...]):
    """What a stream says how to make: the stand-in of the maker, its arguments, and the state that it is given."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __repr__(self) -> str:
        return f"{self[0]!r}({', '.join(map(repr, self[1:]))})"


@dataclass(frozen=True)
class Seen:
    """What a tensor shows of its storage: `geometry` is its dtype, offset, shape and strides, in numbers."""

    storage: Ref
    geometry: tuple[Any, int, tuple[int, ...], tuple[int, ...], Any]

    def of(self, data: Any) -> Any:
        """The bytes that can be seen, in order; all where that cannot be told."""
        numpy: Any = sys.modules.get("numpy")
        dtype, offset, shape, strides, _ = self.geometry
        size = dtype.itemsize
        if numpy is None or data is None:
            return data
        words = numpy.frombuffer(data, f"V{size}", count=len(data) // size)[offset:]
        return numpy.lib.stride_tricks.as_strided(words, shape, [size * step for step in strides]).tobytes()


@dataclass
class Read:
    """A stream, read: the values of the roots, and the contents of the objects by number.

    `ends` are the numbers at which the objects of each root end.
    """

    roots: list[Any]
    contents: list[Any]
    leaves: Leaves
    ends: list[int]

    @classmethod
    def of(cls: type[R], stream: bytes, roots: int, leaves: Leaves) -> R:
        met = 0

        def refer(number: Any) -> Ref:
            nonlocal met
            met = max(met, number + 1)
            return Ref(number)

        unpickler = cls.unpickler(io.BytesIO(stream), refer)
        values: list[Any] = []
        contents: list[Any] = []
        ends: list[int] = []
        for _ in range(roots):
            values.append(unpickler.load())
            while len(contents) < met:
                contents.extend(unpickler.load())
            ends.append(met)
        return cls(values, contents, leaves, ends)

    @staticmethod
    def unpickler(source: io.BytesIO, refer: Callable[[int], Ref]) -> Unpickler:
        """What reads a stream."""
        return _Reader(source, refer)


class _Reader(Unpickler):
    """Makes nothing of what a stream says how to make, but a `Made`.

    A method of a `Ref` cannot be made, and a weak reference to one would be dead at once. Values that equal others
    made of the same parts (dtypes, dates) are made all the same, to be shown and compared as themselves.
    """

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        return _stand_in(found, module, name) if callable(found) else found


class _Maker(type):
    """The type of the stand-ins, since some of what pickle calls must be types."""

    found: Any

    def __repr__(cls) -> str:
        return repr(cls.found)


@functools.cache
def _stand_in(found: Any, module: str, name: str) -> _Maker:
    """What stands for a function or class of a stream: the same one in any stream."""

    def make(cls: _Maker, *arguments: Any) -> Any:
        if not any(map(_has_unmade, arguments)):
            real = _real(arguments)
            with contextlib.suppress(Exception):
                value = found(*real)
                if value == found(*real):
                    return value
        return Made((cls, *arguments))

    return _Maker(name, (), {"__new__": make, "__module__": module, "found": found})


def _has_unmade(part: Any) -> bool:
    if isinstance(part, (Ref, Made)):
        return True
    return isinstance(part, (tuple, frozenset)) and any(map(_has_unmade, part))


def _real(part: Any) -> Any:
    """A value with the functions and classes themselves for their stand-ins."""
    if isinstance(part, _Maker):
        return part.found
    return tuple(map(_real, part)) if type(part) is tuple else part


@dataclass(frozen=True)
class Difference:
    """`path` leads from the root to the values: ".fc.weight", "['lr']". Values of memory are not shown."""

    path: str
    was: Any
    now: Any
    size: str

    def __str__(self) -> str:
        return f"{self.path}: {self.size}"


class Comparison:
    """Walks two read streams side by side. `kinds` are the names of the live objects' kinds, by number."""

    words = ("in the run", "now")  # by which the two are told apart

    def __init__(
        self, was: Read, now: Read, kinds: Sequence[str], lazy: Callable[[int, str], bool] | None = None
    ) -> None:
        """`lazy(number, name)`: whether a live object computes that attribute when it is asked for and keeps it then.

        Such an attribute may be there on one side only, or have come at another time.
        """
        self.was, self.now, self.kinds, self._lazy = was, now, kinds, lazy
        self.arranged: dict[
            int, list[str]
        ] = {}  # by number now: the attributes that it had in the run, in order
        self.lacks = False  # whether any such attribute was there in the run only
        self.unseen = 0  # pieces of memory that differ where nothing shows it: most were never written
        self._met: set[tuple[int, int]] = set()

    def root(self, index: int, name: str, other: int | None = None) -> Iterator[Difference]:
        """The differences below one root, in the order of the walk; `other` is its place now, where that is another."""
        return self.walk(name, self.was.roots[index], self.now.roots[index if other is None else other])

    def walk(self, name: str, one: Any, another: Any) -> Iterator[Difference]:
        """The same below two values."""
        # A stack of its own: states are as deep as the program made them.
        pending = [(name, one, another, "")]
        while pending:
            path, was, now, form = pending.pop()
            if isinstance(was, Ref) and isinstance(now, Ref):
                if (was.number, now.number) not in self._met:
                    self._met.add((was.number, now.number))
                    pending.extend(reversed(self._contents(path, was.number, now.number, form)))
            elif isinstance(was, Seen) and isinstance(now, Seen):
                yield from self._seen(path, was, now, form)
            elif form:
                yield from self._memory(path, was, now, form)
            elif (
                type(was) is type(now)
                and (type(was) is tuple or isinstance(was, Made))
                and len(was) == len(now)
            ):
                pending.extend(reversed([(path, *pair, "") for pair in zip(was, now, strict=True)]))
                if isinstance(was, Made) and isinstance(now, Made):
                    pending.append((path, was.state, now.state, ""))
            elif not same(was, now):
                yield Difference(path, was, now, between(was, now, self.words))

    def _contents(self, path: str, was: int, now: int, form: str) -> list[tuple[str, Any, Any, str]]:
        kind, before, after = self.kinds[now], self.was.contents[was], self.now.contents[now]
        if kind == "storage":
            return [(path, before[0], after[0], ""), (path, before[1], after[1], form)]
        old, new = self._steps(kind, before), self._steps(kind, after)
        if old is not None and new is not None and self._lazy is not None:
            old, new = self._without_lazy(now, old, new)
        if old is None or new is None or [step for step, _ in old] != [step for step, _ in new]:
            return [(path, _summary(kind, before), _summary(kind, after), "")]
        form = form_of(kind, after)
        return [
            (path + step, a, b, form if step == "" else "")
            for (step, a), (_, b) in zip(old, new, strict=True)
        ]

    def _without_lazy(self, now: int, old: list[Step], new: list[Step]) -> tuple[list[Step], list[Step]]:
        """Parts that can be compared one by one, where attributes that are computed when asked for are in the way."""
        names, others = [step for step, _ in old], [step for step, _ in new]
        if names == others or self._lazy is None:
            return old, new
        lazy = {step for step in {*names, *others} if step[:1] == "." and self._lazy(now, step[1:])}
        if not lazy:
            return old, new
        both = lazy & set(names) & set(others)
        self.lacks = self.lacks or not lazy.isdisjoint(set(names) - both)
        self.arranged[now] = [step[1:] for step in names if step[:1] == "."]
        parts = [[part for part in side if part[0] not in lazy] for side in (old, new)]
        for side, found in zip((old, new), parts, strict=True):
            found += sorted((part for part in side if part[0] in both), key=lambda part: part[0])
        return parts[0], parts[1]

    @property
    def one_to_one(self) -> bool:
        """Whether each object that was met has one counterpart."""
        return len({was for was, _ in self._met}) == len(self._met) == len({now for _, now in self._met})

    def _steps(self, kind: str, content: Any) -> list[Step] | None:
        if kind == "torch.Tensor" and isinstance(content[0], Ref) and len(content[1]) == GEOMETRY:
            return [("", Seen(content[0], content[1])), *(steps(kind, content) or ())[1:]]
        return steps(kind, content)

    def _seen(self, path: str, was: Seen, now: Seen, form: str) -> Iterator[Difference]:
        before, after = self.was.contents[was.storage.number][1], self.now.contents[now.storage.number][1]
        if None in (before, after) or _digest(self.was.leaves, before) == _digest(self.now.leaves, after):
            return
        old, new = was.of(_data(self.was.leaves, before)), now.of(_data(self.now.leaves, after))
        if old == new or (
            old is None and new is not None and len(new) < self.now.contents[now.storage.number][0]
        ):
            self.unseen += 1
        else:
            yield Difference(path, None, None, by_how_much(old, new, form, self.words))

    def _memory(self, path: str, was: Any, now: Any, form: str) -> Iterator[Difference]:
        if _digest(self.was.leaves, was) == _digest(self.now.leaves, now):
            return
        old, new = _data(self.was.leaves, was), _data(self.now.leaves, now)
        yield Difference(path, None, None, by_how_much(old, new, form, self.words))


def steps(kind: str, content: Any) -> list[Step] | None:
    """The parts of an object's content, each with what it adds to a path; None where the content has no such parts."""
    if kind.startswith("class derived from "):
        inner = steps(kind.removeprefix("class derived from "), content[0])
        outer = steps("instance", content[1])
        return None if inner is None or outer is None else inner + outer
    if kind in ("dict", "OrderedDict"):
        return [(f"[{key!r}]", value) for key, value in zip(*content, strict=True)]
    if kind == "defaultdict":
        return steps("dict", content[1])
    if kind in ("list", "deque"):
        return [(f"[{index}]", value) for index, value in enumerate(content)]
    if kind in OF_ATTRIBUTES:
        attributes, slots = content[0] or ((), ()), content[1]
        named = list(zip(*attributes, strict=True))
        return [(f".{name}", value) for name, value in named] + [
            (f".{name.partition('.')[2]}", value) for name, value in slots
        ]
    if kind == "torch.Tensor":
        return [
            ("", content[0]),
            (".shape", content[1]),
            (".requires_grad", content[3]),
            (".grad", content[4]),
        ]
    if kind == "numpy.ndarray":
        return [(".shape", content[:2]), ("", content[6])]
    return [("", content)] if kind == "cell" else None


def form_of(kind: str, content: Any) -> str:
    """The type of an object's numbers, where it has memory."""
    if kind == "torch.Tensor":
        return str(content[1][0]).removeprefix("torch.")
    return str(content[0]) if kind == "numpy.ndarray" and isinstance(content[6], (int, bytes)) else ""


def _summary(kind: str, content: Any) -> Any:
    """What can be compared where two contents are built differently."""
    return (f"{kind} of {len(content)} parts", content) if isinstance(content, tuple) else content


def same(was: Any, now: Any) -> bool:
    """By type and bits: 0.0 is not -0.0, and one NaN is another."""
    if isinstance(was, float) and isinstance(now, float):
        return struct.pack("<d", was) == struct.pack("<d", now)
    return was is now or (type(was) is type(now) and bool(was == now))


def between(was: Any, now: Any, words: tuple[str, str] = Comparison.words) -> str:
    """Two values, and how far apart they are."""
    text = f"{short(was)} {words[0]}, {short(now)} {words[1]}"
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (was, now))
    if not numbers or not all(map(math.isfinite, (was, now))):
        return text
    return f"{text}, {abs(now - was):.3g} apart"


def short(value: Any) -> str:
    text = str(value[0]) if isinstance(value, tuple) and value and isinstance(value[0], str) else repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def by_how_much(was: Any, now: Any, form: str, words: tuple[str, str] = Comparison.words) -> str:
    """How two pieces of memory differ; `form` is the type of the numbers in it. None: bytes that were not kept."""
    if was is None or now is None:
        return "other values (their bytes were not kept: by how much cannot be said)"
    if len(was) != len(now):
        return f"{len(was)} bytes {words[0]}, {len(now)} bytes {words[1]}"
    old, new = _numbers(was, form), _numbers(now, form)
    if old is None or new is None:
        return (
            f"{sum(a != b for a, b in zip(bytes(was), bytes(now), strict=True))} of {len(was)} bytes differ"
        )
    different = int((old != new).sum())
    apart, largest = float(abs(new - old).max()), float(abs(old).max())
    return f"{different} of {len(old)} values differ, by up to {apart:.3g} (the largest is {largest:.3g})"


def _numbers(data: Any, form: str) -> Any:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if form == "bfloat16":
        return (numpy.frombuffer(data, "uint16").astype("uint32") << 16).view("float32").astype("float64")
    try:
        return numpy.frombuffer(data, form).astype("float64")
    except (TypeError, ValueError):
        return None


def _digest(leaves: Leaves, part: Any) -> bytes:
    return leaves.digest(part) if type(part) is int else xxh3_128_digest(part)


def _data(leaves: Leaves, part: Any) -> Any:
    return leaves.data(part) if type(part) is int else part
