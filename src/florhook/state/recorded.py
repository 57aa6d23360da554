"""Two recorded states side by side, without anything of the program: nothing is imported, nothing is called.

`differences.py` compares a recorded state with a live one, whose kinds of objects are known, and in a process that has
imported what the program imports. Of two records neither is there. So whatever a stream says how to make stays a
description, but for values of a few types of Python's own, and the kind of an object is told from the form of its
content. Where a form is that of two kinds (a list of two tuples, and a dict), only the path's words are a guess, never
whether something differs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..dataclass import dataclass
from .differences import GEOMETRY, Comparison, Difference, Leaves, Made, Read, Ref, Step, form_of
from .restore import Unpickler

VALUES = {
    "builtins": ("complex", "range", "slice"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "uuid": ("UUID",),
}
"""Types whose values are made: harmless to make, and shown as the program's author knows them."""
POSITION = re.compile(r"\d+\.\w")  # how slots are named
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")
LEAST_ADDRESS, MOST_ADDRESS, ALIGNED = 1 << 32, 1 << 48, 16
BYTES = "uint8"  # the form of memory whose numbers nobody knows
DICTS = ("dict", "OrderedDict")
DERIVED = "class derived from "
MOST_LOOKED_AT = 50  # parts of an object, by which it is found among others
CELL_ROOT = "cell"
WORLD_ROOT = "world"


class Symbol(type):
    """The type of what stands for functions and classes, since some of what pickle calls must be types."""

    module: str

    def __repr__(cls) -> str:
        return cls.__name__ if cls.module == "builtins" else f"{cls.module}.{cls.__name__}"

    @property
    def itemsize(cls) -> int:
        """Bytes of a number, of torch's dtypes."""
        bits = re.search(r"\d+", cls.__name__)
        return 1 if bits is None else max(1, int(bits[0]) // 8)


@functools.cache
def symbol(module: str, name: str) -> Symbol:
    """What stands for a function or class: the same one in any stream."""

    def describe(cls: Symbol, *arguments: Any, **_: Any) -> Any:
        if (module, name) in (("_pickle", "loads"), ("pickle", "loads")):
            return _inner(cls, arguments)
        if (module, name) == ("numpy", "dtype"):
            return NumpyType((cls, *arguments))
        if name in VALUES.get(module, ()) and not any(isinstance(part, (Ref, Made)) for part in arguments):
            with contextlib.suppress(Exception):
                return getattr(importlib.import_module(module), name)(*arguments)
        return Made((cls, *arguments))

    return Symbol(name, (), {"__new__": describe, "__module__": module, "module": module})


class NumpyType(Made):
    """A dtype of NumPy's, as it pickles itself."""

    def __str__(self) -> str:
        order = self.state[1] if isinstance(self.state, tuple) and len(self.state) > 1 else "|"
        return f"{order}{self[1]}".replace("=", "").replace("|", "")


def _inner(cls: Symbol, arguments: tuple[Any, ...]) -> Any:
    """What lies in a stream as a stream of its own."""
    try:
        return _Describer(io.BytesIO(arguments[0]), Ref).load()
    except Exception:  # whatever it is, its bytes can be compared
        return Made((cls, *arguments))


class _Describer(Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return symbol(module, name)


class Recorded(Read):
    """A recorded state, read, with a guess of each object's kind."""

    kinds: list[str]
    certain: bool  # whether all sets among them are known

    @classmethod
    def load(
        cls, stream: bytes, table: bytes | None, roots: Sequence[tuple[Any, ...]], leaves: Leaves
    ) -> Recorded:
        """`roots` are their names; the `table` beside the stream knows the kinds of some objects for certain."""
        read = cls.of(stream, len(roots), leaves)
        read.certain = table is not None
        read.kinds = _Kinds(read, roots, _known(table)).all()
        return read

    @staticmethod
    def unpickler(source: io.BytesIO, refer: Any) -> Unpickler:
        return _Describer(source, refer)


def _known(table: bytes | None) -> dict[int, str]:
    """The kinds of the objects that were born since the loop's entry, and of all sets, whose order stands there."""
    if table is None:
        return {}
    try:
        _, rows, _, hints = _Describer(io.BytesIO(table), Ref).load()
        sets = {number: "set" for number, hint in hints.items() if _is_order(hint)}
        return sets | {number: kind for number, kind, _ in rows}
    except Exception:  # another form of table: kinds are guessed
        return {}


def _is_order(hint: Any) -> bool:
    """Places of items and a size, as sets have beside their contents."""
    return _is_tuple(hint, 2) and type(hint[0]) is list and type(hint[1]) is int


class _Kinds:
    """Tells kinds by the forms of contents, and by who refers to an object."""

    def __init__(self, read: Recorded, roots: Sequence[tuple[Any, ...]], known: dict[int, str]) -> None:
        self._contents, self._known = read.contents, known
        named = list(zip(roots, read.roots, strict=True))
        self._cells = {
            value.number for name, value in named if name[0] == CELL_ROOT and isinstance(value, Ref)
        }
        self._worlds = {
            value.number for name, value in named if name[0] == WORLD_ROOT and isinstance(value, Ref)
        }
        self._storages: set[int] = set()

    def all(self) -> list[str]:
        kinds = [self._kind(number, content) for number, content in enumerate(self._contents)]
        for number in self._storages:
            if _is_tuple(self._contents[number], 2):
                kinds[number] = "storage"
        for number in self._cells:
            if _is_tuple(self._contents[number], 1) and number not in self._known:
                kinds[number] = "cell"
        return kinds

    def _kind(self, number: int, content: Any) -> str:
        if _is_tensor(content):
            self._storages.add(content[0].number)
            return "torch.Tensor"
        if _is_sparse(content):
            self._storages.update(place[0].number for place in content[0][3])
            return "sparse torch.Tensor"
        if type(content) is tuple and _is_array(content) and isinstance(content[4], Ref):
            base = self._contents[content[4].number]
            if _is_tuple(base, 2) and type(base[0]) is int:
                self._storages.add(content[4].number)
        if number in self._known:
            return self._known[number]
        if number in self._worlds and _are_pairs(content):
            return "settings"
        if _is_function(content):
            self._cells.update(part.number for part in content[3] or ())
            return "function"
        return kind_of_form(content)


def kind_of_form(content: Any) -> str:
    """The kind that a content looks like; "memory" for bytes or a leaf, "parts" for what has no better name."""
    if isinstance(content, bytes) or type(content) is int:
        return "memory"
    if not isinstance(content, tuple):
        return "parts"
    if _is_array(content):
        return "numpy.ndarray"
    if _is_instance(content):
        return "instance"
    if len(content) == 2 and _is_instance(content[1]):
        return DERIVED + kind_of_form(content[0])
    if _is_dict(content):
        return "dict"
    if len(content) == 2 and _is_dict(content[1]) and isinstance(content[0], (Ref, Symbol, type(None))):
        return "defaultdict"
    return "list"


def _is_tuple(content: Any, length: int) -> bool:
    return type(content) is tuple and len(content) == length


def _is_tensor(content: Any) -> bool:
    return (
        type(content) is tuple
        and len(content) > 6
        and isinstance(content[0], Ref)
        and _is_tuple(content[1], GEOMETRY)
        and isinstance(content[1][0], Symbol)
        and content[1][0].module == "torch"
    )


def _is_sparse(content: Any) -> bool:
    """Of its parts the last are places in storages."""
    if type(content) is not tuple or len(content) < 6 or not _is_tuple(content[0], 4):
        return False
    layout, _, _, places = content[0]
    return isinstance(layout, Symbol) and layout.module == "torch" and type(places) is tuple


def _is_array(content: Any) -> bool:
    return (
        len(content) == 7
        and isinstance(content[0], NumpyType)
        and type(content[1]) is tuple
        and isinstance(content[2], bool)
    )


def _is_instance(content: Any) -> bool:
    if not _is_tuple(content, 3) or type(content[1]) is not tuple:
        return False
    named = content[0] is None or (_is_dict(content[0]) and all(type(key) is str for key in content[0][0]))
    slots = all(
        _is_tuple(slot, 2) and type(slot[0]) is str and POSITION.match(slot[0]) for slot in content[1]
    )
    return named and slots and isinstance(content[2], (Ref, Symbol, type(None)))


def _is_dict(content: Any) -> bool:
    """Keys and values: as many of them, keys that are all different and of one type."""
    if not _is_tuple(content, 2) or not all(type(part) is tuple for part in content):
        return False
    keys, values = content
    if len(keys) != len(values) or len({type(key) for key in keys}) > 1:
        return False
    try:
        return len(set(keys)) == len(keys)
    except TypeError:
        return False


def _are_pairs(content: Any) -> bool:
    return type(content) is tuple and all(_is_tuple(part, 2) and type(part[0]) is str for part in content)


def _is_function(content: Any) -> bool:
    """Defaults, those by keyword, attributes, closure."""
    if not _is_tuple(content, 4) or not _are_pairs(content[2]):
        return False
    defaults, by_keyword, _, closure = content
    optional = isinstance(defaults, (tuple, type(None))) and isinstance(by_keyword, (Ref, type(None)))
    cells = closure is None or (type(closure) is tuple and all(isinstance(part, Ref) for part in closure))
    return optional and cells


@dataclass(frozen=True)
class Words:
    """Stands for what is not shown itself."""

    text: str

    def __repr__(self) -> str:
        return self.text


MISSING = Words("missing")
_Entry = tuple[Any, ...]  # an item of a set, or a key with its value


class RecordedComparison(Comparison):
    """Walks two recorded states side by side; how objects are shared counts too.

    Objects in a set lie by their addresses, so that it is not known which of them are each other's counterparts: that
    is left until all else was walked, by which most of them are met. The same goes for the keys of dicts where the two
    processes had other hash seeds (`ordered` is false), since the order of a dict is often that of a set.
    """

    was: Recorded
    now: Recorded

    def __init__(self, was: Recorded, now: Recorded, words: tuple[str, str], ordered: bool) -> None:
        super().__init__(was, now, now.kinds)
        self.words, self.ordered = words, ordered
        self._root = ""
        self._later: list[tuple[str, str, list[_Entry], list[_Entry]]] = []
        self._there: dict[int, int] = {}
        self._back: dict[int, int] = {}

    def walk(self, name: str, one: Any, another: Any) -> Iterator[Difference]:
        for found in super().walk(name, one, another):
            texts = isinstance(found.was, str) and isinstance(found.now, str)
            if not texts or without_addresses(found.was) != without_addresses(found.now):
                yield found  # else they name objects by their addresses

    def root(self, index: int, name: str, other: int | None = None) -> Iterator[Difference]:
        self._root = name
        return super().root(index, name, other)

    def unordered(self) -> Iterator[tuple[str, Iterator[Difference]]]:
        """What was left: the differences in each set, with the name of the root that it was met under."""
        while self._later:
            root, path, old, new = self._later.pop(0)
            self._root = root
            yield root, self._matched(path, old, new)

    def _matched(self, path: str, old: list[_Entry], new: list[_Entry]) -> Iterator[Difference]:
        """First those that are known to be each other's, then by what they look like."""
        left = {_identity(entry[0]): entry for entry in new}
        rest = []
        for entry in old:
            partner = left.pop(self._counterpart(entry[0]), None)
            if partner is None:
                rest.append(entry)
            else:
                yield from self.walk(path, entry, partner)
        rest.sort(key=lambda entry: self._look(self.was, entry[0]))
        others = sorted(left.values(), key=lambda entry: self._look(self.now, entry[0]))
        if len(rest) != len(others):
            yield Difference(
                path,
                Words(f"{len(old)} items"),
                Words(f"{len(new)} items"),
                f"{len(old)} items {self.words[0]}, {len(new)} {self.words[1]}",
            )
        for entry, partner in zip(rest, others, strict=False):
            yield from self.walk(path, entry, partner)

    def _counterpart(self, was: Any) -> Any:
        """What tells the item that is known to be an item's counterpart; None where none is."""
        return self._there.get(was.number) if isinstance(was, Ref) else _identity(was)

    @staticmethod
    def _look(read: Recorded, part: Any, depth: int = 2) -> str:
        """What can be said of a value that is the same in both processes: forms, names and small numbers."""
        if isinstance(part, Ref):
            if not depth:
                return read.kinds[part.number]
            inner = RecordedComparison._look(read, read.contents[part.number], depth - 1)
            return f"{read.kinds[part.number]}{inner}"
        if isinstance(part, tuple):
            return (
                f"({','.join(RecordedComparison._look(read, each, depth) for each in part[:MOST_LOOKED_AT])})"
            )
        plain = isinstance(part, (str, bool, Symbol, type(None))) or (
            type(part) is int and part < LEAST_ADDRESS
        )
        return without_addresses(repr(part)) if plain else type(part).__name__

    def take_as_same(self, index: int, other: int) -> None:
        """A root whose part of the stream is the same: so are the objects in it, and their numbers."""
        start, end = (self.was.ends[index - 1] if index else 0), self.was.ends[index]
        if self.now.ends[other] == end:
            for number in range(start, end):
                self._there[number] = self._back[number] = number
                self._met.add((number, number))

    def _contents(self, path: str, was: int, now: int, form: str) -> list[tuple[str, Any, Any, str]]:
        if self._there.setdefault(was, now) != now or self._back.setdefault(now, was) != was:
            return [(path, Words("shared with others"), Words("shared otherwise"), "")]
        kind, other = self.now.kinds[now], self.was.kinds[was]
        if kind != other:
            return [(path, Words(f"an object ({other})"), Words(f"an object ({kind})"), "")]
        before, after = self.was.contents[was], self.now.contents[now]
        if kind == "memory":
            return [(path, before, after, BYTES)]
        if kind == "storage":
            return [(path, before[0], after[0], ""), (path, before[1], after[1], form or BYTES)]
        if kind == "set" or self._is_in_doubt(kind, before, after):
            self._later.append((self._root, path, [(part,) for part in before], [(part,) for part in after]))
            return []
        if kind in DICTS and not self.ordered and _has_object(before[0] + after[0]):
            self._later.append(
                (self._root, path, list(zip(*before, strict=True)), list(zip(*after, strict=True)))
            )
            return []
        if kind == "torch.Tensor" and not (_fits(self.was, before) and _fits(self.now, after)):
            return [(path, before[1:], after[1:], ""), (path, before[0], after[0], "")]
        old, new = self._parts(kind, before), self._parts(kind, after)
        if old is None or new is None:
            return [(path, before, after, "")]
        found = _side_by_side(path, kind, old, new, _form(kind, after))
        names = [step for step, _ in old], [step for step, _ in new]
        if self.ordered and kind in DICTS and names[0] != names[1] and sorted(names[0]) == sorted(names[1]):
            found.insert(0, (path, Words("its keys in one order"), Words("in another"), ""))
        return found

    def _is_in_doubt(self, kind: str, before: Any, after: Any) -> bool:
        """Whether this may be a set of which no table tells: all objects, and others at these places."""
        if kind != "list" or len(before) != len(after) or self.was.certain or self.now.certain:
            return False
        if not all(isinstance(part, Ref) for part in (*before, *after)):
            return False
        looks = [
            [self._look(read, part) for part in parts]
            for read, parts in ((self.was, before), (self.now, after))
        ]
        return looks[0] != looks[1] and sorted(looks[0]) == sorted(looks[1])

    def _parts(self, kind: str, content: Any) -> list[Step] | None:
        """All parts of a content, each with what it adds to a path."""
        if kind == "torch.Tensor":
            return [
                *(self._steps(kind, content) or ()),
                (".is_leaf", content[2]),
                (" (attributes)", content[5:]),
            ]
        if kind == "numpy.ndarray":
            return [
                (".shape", content[:2]),
                ("", content[6]),
                (".base", content[4:6]),
                (".flags", content[2:4]),
            ]
        if kind in DICTS or (kind == "settings" and _are_pairs(content)):
            pairs = content if kind == "settings" else zip(*content, strict=True)
            return [step for index, (key, value) in enumerate(pairs) for step in _entry(index, key, value)]
        if kind == "defaultdict":
            return [*(self._parts("dict", content[1]) or ()), (".default_factory", content[0])]
        if kind == "instance":
            return [*(self._steps(kind, content) or ()), (".__class__", content[2])]
        if kind.startswith(DERIVED):
            inner = kind.removeprefix(DERIVED)
            own = [("", content[0])] if inner == "memory" else self._parts(inner, content[0])
            return None if own is None else [*own, *(self._parts("instance", content[1]) or ())]
        if kind == "cell" or type(content) is not tuple:
            return [("", content)]
        return [(f"[{index}]", part) for index, part in enumerate(content)]


def _form(kind: str, content: Any) -> str:
    """The type of an object's numbers, where it has memory."""
    if kind == DERIVED + "memory":
        return BYTES
    return form_of(kind, content)


def _side_by_side(
    path: str, kind: str, old: list[Step], new: list[Step], form: str
) -> list[tuple[str, Any, Any, str]]:
    """The parts of two contents by their names; those that only one has are missing in the other."""
    there, here = dict(old), dict(new)
    found: list[tuple[str, Any, Any, str]] = []
    if kind == "list" and len(old) != len(new):
        found.append((path, Words(f"{len(old)} items"), Words(f"{len(new)} items"), ""))
        there = {step: part for step, part in there.items() if step in here}
        here = {step: part for step, part in here.items() if step in there}
    for step in dict.fromkeys([*there, *here]):
        was, now = there.get(step, MISSING), here.get(step, MISSING)
        found.append((path + step, was, now, form if step == "" and MISSING not in (was, now) else ""))
    return found


def _identity(part: Any) -> Any:
    """An object's number, or the type and looks of a value."""
    return part.number if isinstance(part, Ref) else (type(part).__name__, repr(part))


def _entry(index: int, key: Any, value: Any) -> list[Step]:
    """A key that is an object is told by its place."""
    if _has_object(key):
        return [(f".keys()[{index}]", key), (f".values()[{index}]", value)]
    return [(f"[{key!r}]", value)]


def _has_object(part: Any) -> bool:
    return isinstance(part, (Ref, Made)) or (isinstance(part, tuple) and any(map(_has_object, part)))


def _fits(read: Recorded, content: Any) -> bool:
    """Whether what a tensor shows lies within its storage: nobody has vouched for the record."""
    dtype, offset, shape, strides, _ = content[1]
    numbers = (offset, *shape, *strides)
    if not all(type(number) is int and number >= 0 for number in numbers) or len(shape) != len(strides):
        return False
    reach = sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) + 1 if all(shape) else 0
    storage = read.contents[content[0].number]
    return (
        _is_tuple(storage, 2)
        and (offset + reach) * dtype.itemsize <= storage[0]
        and _has_its_size(read, storage)
    )


def _has_its_size(read: Recorded, storage: Any) -> bool:
    size, content = storage
    data = read.leaves.data(content) if type(content) is int else content
    return data is None or len(data) == size


def without_addresses(text: str) -> str:
    """A text in which objects may be named by where they lie, as `repr` does: without these numbers."""
    return ADDRESS.sub("0x", text)


def are_addresses(was: Any, now: Any) -> bool:
    """Whether two numbers look like places in the memory of two processes, such as `id(x)` gives."""
    return all(
        type(value) is int and LEAST_ADDRESS <= value < MOST_ADDRESS and value % ALIGNED == 0
        for value in (was, now)
    )
