"""Python's own types: containers, instances, functions, classes, cells, generators, files, random states."""

from __future__ import annotations

import array
import collections
import ctypes
import datetime
import functools
import importlib
import io
import itertools
import operator
import os
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .attributes import getattr_dict, has_slot, slots_of
from .base import Kind, Missing, Registry
from .opaque import UNKNOWN
from .order import canonical_order, is_plain

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

ATTEMPTS, SMALL_SET = 60, 64  # how many orders are tried to get back a set's order, up to which size
EMPTY_SET, SET_ENTRY, PROBES = (
    sys.getsizeof(set()),
    16,
    10,
)  # bytes, bytes, and how far from its place an item may lie
STANDARD_STREAMS = 2  # the highest of their descriptors
STANDARD_NAMES = ("__stdin__", "__stdout__", "__stderr__", "stdin", "stdout", "stderr")


class List(Kind):
    """Its items."""

    name, how, alike = "list", "in place", True

    def create(self, spec: Any, loader: Loader) -> list[Any]:
        return []

    def content(self, obj: list[Any], scan: Scan) -> tuple[Any, ...]:
        return tuple(list.__iter__(obj))

    def apply(self, obj: list[Any], content: tuple[Any, ...], loader: Loader) -> None:
        list.__setitem__(obj, slice(None), content)


class Dict(Kind):
    """Its keys and values in their order."""

    name, how, late, alike = "dict", "in place", 1, True

    def create(self, spec: Any, loader: Loader) -> dict[Any, Any]:
        return {}

    def content(self, obj: dict[Any, Any], scan: Scan) -> tuple[Any, Any]:
        return tuple(dict.keys(obj)), tuple(dict.values(obj))

    def apply(self, obj: dict[Any, Any], content: tuple[Any, Any], loader: Loader) -> None:
        keys, values = content
        if len(obj) != len(keys) or not all(map(_is_key, dict.keys(obj), keys)):
            dict.clear(obj)
        dict.update(obj, zip(keys, values, strict=True))


def _is_key(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) in (str, int, bytes) and one == other)


class OrderedDict(Dict):
    """The same, by its own methods."""

    name = "OrderedDict"

    def create(self, spec: Any, loader: Loader) -> dict[Any, Any]:
        return collections.OrderedDict()

    def content(self, obj: dict[Any, Any], scan: Scan) -> tuple[Any, Any]:
        keys = tuple(obj)
        return keys, tuple(dict.__getitem__(obj, key) for key in keys)

    def apply(self, obj: dict[Any, Any], content: tuple[Any, Any], loader: Loader) -> None:
        collections.OrderedDict.clear(obj)
        for key, value in zip(*content, strict=True):
            collections.OrderedDict.__setitem__(obj, key, value)


class DefaultDict(Dict):
    """The same, and its factory."""

    name = "defaultdict"

    def create(self, spec: Any, loader: Loader) -> dict[Any, Any]:
        return collections.defaultdict()

    def content(self, obj: Any, scan: Scan) -> tuple[Any, Any]:
        return obj.default_factory, super().content(obj, scan)

    def apply(self, obj: Any, content: tuple[Any, Any], loader: Loader) -> None:
        obj.default_factory = content[0]
        super().apply(obj, content[1], loader)


class Set(Kind):
    """Its items, in the order of iteration as far as adding them gives it again."""

    name, how, late, alike = "set", "in place", 1, True

    def create(self, spec: Any, loader: Loader) -> set[Any]:
        return set()

    def content(self, obj: set[Any], scan: Scan) -> tuple[Any, ...]:
        items = tuple(set.__iter__(obj))
        order = canonical_order(items, scan)
        scan.hint(obj, (order, sys.getsizeof(obj)))
        return tuple(items[index] for index in order)

    def apply(self, obj: set[Any], content: tuple[Any, ...], loader: Loader) -> None:
        order, size = loader.hint()
        items = list(content)
        for place, index in enumerate(order):
            items[index] = content[place]
        if not in_order(obj, items):
            refill(obj, items, size)


def in_order(obj: Any, items: list[Any]) -> bool:
    """Asked of the table itself, whatever a class made of `__iter__`; equal values are as good as the same."""
    found = list(set.__iter__(obj) if isinstance(obj, set) else frozenset.__iter__(obj))
    return len(found) == len(items) and all(map(same_item, found, items))


def same_item(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and is_plain(one) and bool(one == other))


def refill(obj: set[Any], items: list[Any], size: int) -> None:
    """Fill a set so that it iterates in that order, as far as can be: its order is that of a hash table."""
    for attempt in orders(items):
        set.clear(obj)
        for item in attempt:
            set.add(obj, item)
        widen(obj, size)
        if in_order(obj, items):
            return


def widen(obj: set[Any], size: int) -> None:
    """Give a set the table of one that once held more. `size` is that of the object in bytes.

    A table grows when items are added and keeps its size when they are taken away, so numbers that lie in it beside the
    items are added and taken away.
    """
    places = 1 << ((size - EMPTY_SET) // SET_ENTRY).bit_length() >> 1
    wanted = places // 4 - len(obj)  # adding a set makes a table of more than twice the items
    if sys.getsizeof(obj) >= size or wanted <= 0:
        return
    taken = {(hash(item) + step) % places for item in obj for step in range(PROBES)}
    free = (place + places for place in range(places) if place not in taken)
    fillers = {number for number in itertools.islice(free, wanted) if number not in obj}
    set.update(obj, fillers)
    set.difference_update(obj, fillers)


def orders(items: list[Any]) -> Iterator[list[Any]]:
    """Orders in which to add items to a set: that of iteration mostly gives itself again, else another one may."""
    yield items
    yield items[::-1]
    shuffled = list(items)
    draw = random.Random(0)
    for _ in range(ATTEMPTS if len(items) <= SMALL_SET else 0):
        draw.shuffle(shuffled)
        yield shuffled
    yield items


class FrozenSet(Kind):
    """Its items and their order. It is made once they have the attributes that they may hash by."""

    name, how, reads = "frozenset", "by value", True

    def shell(self, obj: frozenset[Any], scan: Scan) -> tuple[Any, ...]:
        return tuple(obj)

    def create(self, spec: tuple[Any, ...], loader: Loader) -> frozenset[Any]:
        made: frozenset[Any] = frozenset()
        for attempt in orders(list(spec)):
            made = frozenset(attempt)
            if in_order(made, list(spec)):
                break
        return made

    def content(self, obj: frozenset[Any], scan: Scan) -> tuple[Any, ...]:
        items = tuple(obj)
        return tuple(items[index] for index in canonical_order(items, scan))


class Deque(Kind):
    """Its items and its limit."""

    name, how = "deque", "in place"

    def shell(self, obj: collections.deque[Any], scan: Scan) -> int | None:
        return obj.maxlen

    def create(self, spec: int | None, loader: Loader) -> collections.deque[Any]:
        return collections.deque(maxlen=spec)

    def content(self, obj: collections.deque[Any], scan: Scan) -> tuple[Any, ...]:
        return tuple(collections.deque.__iter__(obj))

    def apply(self, obj: collections.deque[Any], content: tuple[Any, ...], loader: Loader) -> None:
        # What a loop around iterates over must not be touched in vain.
        if len(obj) == len(content) and all(map(operator.is_, collections.deque.__iter__(obj), content)):
            return
        collections.deque.clear(obj)
        collections.deque.extend(obj, content)


class ByteArray(Kind):
    """Its bytes; views of it stay valid where the length is the same."""

    name, how, alike = "bytearray", "in place", True

    def shell(self, obj: bytearray, scan: Scan) -> int:
        return len(obj)  # views of it are made before it has its content

    def create(self, spec: int, loader: Loader) -> bytearray:
        return bytearray(spec)

    def content(self, obj: bytearray, scan: Scan) -> Any:
        return scan.bytes_of(id(obj), memoryview(obj))

    def apply(self, obj: bytearray, content: Any, loader: Loader) -> None:
        data = loader.bytes_of(content)
        if len(data) == len(obj):
            memoryview(obj)[:] = data  # keeps memoryviews of it valid
        else:
            obj[:] = data


class Array(Kind):
    """Its items."""

    name, how = "array.array", "in place"

    def shell(self, obj: array.array[Any], scan: Scan) -> tuple[str, int]:
        return obj.typecode, len(obj) * obj.itemsize

    def create(self, spec: tuple[str, int], loader: Loader) -> array.array[Any]:
        return array.array(spec[0], bytes(spec[1]))

    def content(self, obj: array.array[Any], scan: Scan) -> bytes:
        return obj.tobytes()

    def apply(self, obj: array.array[Any], content: bytes, loader: Loader) -> None:
        if len(content) == len(obj) * obj.itemsize:
            memoryview(obj).cast("B")[:] = content
        else:
            obj[:] = array.array(obj.typecode, content)


class Instance(Kind):
    """An object of a class written in Python: its `__dict__`, its slots, and a container that it derives from."""

    name, how = "instance", "in place"

    def shell(self, obj: Any, scan: Scan) -> Any:
        return type(obj), scan.home_of(obj)

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, home = spec
        return empty_instance(cls) if home is None else found_at_home(*home)

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        slots = tuple((name, slot.__get__(obj)) for name, slot in slots_of(type(obj)) if has_slot(slot, obj))
        attributes = getattr_dict(obj)
        if attributes and id(obj) in scan.arranged:
            attributes = {name: attributes[name] for name in scan.arranged[id(obj)] if name in attributes}
        items = None if attributes is None else (tuple(attributes.keys()), tuple(attributes.values()))
        shared = _shared_dict(obj, attributes, scan)
        if shared:
            items, slots = None, (*slots, *shared)
        cls = type(obj)
        # A class that no import finds is reached through its instances alone.
        return items, slots, cls if scan.keeps_class(cls) else None

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        items, slots, _ = content
        bound = dict(slots)
        if DICT in bound:
            object.__setattr__(obj, "__dict__", bound.pop(DICT))
        elif SAME_DICT in bound:
            object.__setattr__(obj, "__dict__", getattr_dict(bound.pop(SAME_DICT)))
        elif items is not None:
            attributes = getattr_dict(obj)
            if attributes is not None:
                attributes.clear()
                attributes.update(zip(*items, strict=True))
        for name, slot in slots_of(type(obj)):
            if name in bound:
                slot.__set__(obj, bound[name])
            elif has_slot(slot, obj):
                slot.__delete__(obj)


# Among the slots: an object that is the instance's `__dict__` (an attribute dictionary is its own), or another instance
# that has the same one.
DICT, SAME_DICT = "0.__dict__", "1.__dict__"


def _shared_dict(obj: Any, attributes: dict[str, Any] | None, scan: Scan) -> tuple[tuple[str, Any], ...]:
    """What is said instead of the attributes where they are not the instance's alone."""
    if attributes is None:
        found = getattr(type(obj), "__dictoffset__", 0) and object.__getattribute__(obj, "__dict__")
        return ((DICT, found),) if isinstance(found, dict) else ()
    first = scan.first_with(attributes, obj)
    return () if first is obj else ((SAME_DICT, first),)


def empty_instance(cls: type) -> Any:
    """One whose `__init__` and own `__new__` did not run."""
    in_c: Any = next(
        base for base in cls.__mro__ if type(vars(base).get("__new__")) is types.BuiltinMethodType
    )
    obj = in_c.__new__(cls)
    for base in cls.__mro__:
        if base in CHANGED_BY_INIT:
            CHANGED_BY_INIT[base](obj)
    return obj


# What a library's `__init__` does to the class of an object.
CHANGED_BY_INIT: dict[type, Callable[[Any], None]] = {}


def found_at_home(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class Module(Kind):
    """A module that no import finds, such as a program makes for its settings: its names."""

    name, how = "module", "in place"

    def shell(self, obj: types.ModuleType, scan: Scan) -> str:
        return obj.__name__

    def create(self, spec: str, loader: Loader) -> types.ModuleType:
        return types.ModuleType(spec)

    def content(self, obj: types.ModuleType, scan: Scan) -> tuple[Any, ...]:
        found = {name: value for name, value in vars(obj).items() if not is_special(name)}
        return tuple(found), tuple(found.values())

    def apply(self, obj: types.ModuleType, content: tuple[Any, ...], loader: Loader) -> None:
        names = vars(obj)
        for name in [each for each in names if not is_special(each)]:
            del names[name]
        names.update(zip(*content, strict=True))


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class DerivedContainer(Instance):
    """An instance of a class written in Python that derives from a container."""

    late = 1

    def __init__(self, base: type, kind: Kind) -> None:
        self.base, self.kind = base, kind
        self.name = f"class derived from {kind.name}"

    def shell(self, obj: Any, scan: Scan) -> Any:
        return type(obj), self.kind.shell(obj, scan)

    def create(self, spec: Any, loader: Loader) -> Any:
        cls, inner = spec
        new: Any = self.base.__new__
        obj = new(cls, inner[0], bytes(inner[1])) if self.base is array.array else new(cls)
        if self.base is collections.deque:
            collections.deque.__init__(obj, (), inner)
        elif self.base is bytearray:
            bytearray.__init__(obj, inner)
        return obj

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        return self.kind.content(obj, scan), super().content(obj, scan)

    def prepare(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        super().apply(obj, content[1], loader)  # it may be hashed by its attributes

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        self.kind.apply(obj, content[0], loader)


class Cell(Kind):
    """What a closure shares: a value, or none yet."""

    name, how, alike = "cell", "in place", True

    def create(self, spec: Any, loader: Loader) -> types.CellType:
        return types.CellType()

    def content(self, obj: types.CellType, scan: Scan) -> tuple[Any, ...]:
        try:
            return (obj.cell_contents,)
        except ValueError:
            return ()

    def apply(self, obj: types.CellType, content: tuple[Any, ...], loader: Loader) -> None:
        if content:
            obj.cell_contents = content[0]
        else:
            try:
                del obj.cell_contents
            except ValueError:
                pass


DISPATCHED = "dispatch_cache"  # a variable of functools.singledispatch


class Function(Kind):
    """A function that no import finds, or one of the user's: defaults, attributes and closure; the code by place."""

    name, how = "function", "in place"

    def shell(self, obj: types.FunctionType, scan: Scan) -> Any:
        module = obj.__globals__.get("__name__", obj.__module__)
        code = obj.__code__
        closure = _closure(obj, scan)
        return (
            scan.code_key(code),
            tuple(closure),
            tuple(map(scan.number, closure.values())),
            module,
            obj.__name__,
            obj.__qualname__,
            obj.__module__,
        )

    def create(self, spec: Any, loader: Loader) -> types.FunctionType:
        code_key, names, closure, module, name, qualname, home = spec
        cells = tuple(loader.resolve(number) for number in closure)
        code = loader.code(code_key)
        space = vars(sys.modules[module])
        function = types.FunctionType(code, space, name, None, loader.match_cells(code, names, cells))
        function.__qualname__, function.__module__ = qualname, home
        return function

    def content(self, obj: types.FunctionType, scan: Scan) -> tuple[Any, ...]:
        if obj.__code__.co_filename == functools.__file__ and DISPATCHED in obj.__code__.co_freevars:
            # What singledispatch has looked up depends on who called it, a print that was added too.
            (obj.__closure__ or ())[obj.__code__.co_freevars.index(DISPATCHED)].cell_contents.clear()
        closure = tuple(_closure(obj, scan).values()) or None
        return obj.__defaults__, obj.__kwdefaults__, tuple(vars(obj).items()), closure

    def apply(self, obj: types.FunctionType, content: tuple[Any, ...], loader: Loader) -> None:
        obj.__defaults__, obj.__kwdefaults__ = content[0], content[1]
        attributes = vars(obj)
        attributes.clear()
        attributes.update(content[2])


def _closure(function: types.FunctionType, scan: Scan) -> dict[str, Any]:
    """The cells that a function uses, by name; without those that only statements use that were added since."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    names = scan.environment.free_variables(function.__code__)
    return {name: cells[name] for name in names if name in cells}


class File(Kind):
    """An open file: its position. What it holds is not captured, but found again on disk."""

    name, how = "file", "in place"

    def shell(self, obj: Any, scan: Scan) -> Any:
        standard = next((each for each in STANDARD_NAMES if getattr(sys, each) is obj), None)
        if standard is not None:
            return "", standard
        name = getattr(obj, "name", obj)
        return (
            (type(obj).__name__, name if isinstance(name, (str, bytes)) else "") if obj.closed else str(name)
        )

    def create(self, spec: Any, loader: Loader) -> Any:
        if isinstance(spec, str):
            return loader.missing(f"open file {spec}")
        return _closed_file(*spec) if spec[0] else getattr(sys, spec[1])

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        if obj.closed:
            return ("closed",)
        if scan.outlines:
            return ("driven",)  # by its lines
        try:
            if obj.fileno() <= STANDARD_STREAMS:
                return ("open",)
            if obj.seekable():
                if not obj.writable():
                    return ("at", obj.tell())
                if not _writes_a_file(obj):
                    scan.note_external(obj, UNKNOWN)
                    return ("open",)
                obj.flush()
                name = getattr(obj, "name", None)
                scan.hint(obj, name if isinstance(name, str) else None)
                return ("written", obj.tell())
            known = not obj.readable()  # what came through a pipe does not come again
        except (OSError, ValueError):
            known = False  # a text file in the middle of `for line in file` does not tell where it is
        if not known:
            scan.note_external(obj, UNKNOWN)
        return ("open",)

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        if isinstance(obj, Missing):
            return
        if content[0] == "closed" and not obj.closed:
            obj.close()
        elif content[0] == "at" and not obj.closed:
            obj.seek(content[1])
        elif content[0] == "written" and not obj.closed:
            loader.files.append(obj)
            name = loader.hint()
            if obj.tell() != content[1] or name not in (None, obj.name):
                loader.bring_file_to(obj, content[1], name)


def _writes_a_file(obj: Any) -> bool:
    """Whether what is flushed goes to a file as it is. A compressor would be told to end a block."""
    while not isinstance(obj, io.FileIO):
        obj = getattr(obj, "buffer", None) or getattr(obj, "raw", None)
        if obj is None:
            return False
    return True


def _closed_file(cls: str, name: str | bytes) -> Any:
    raw = io.FileIO(os.devnull, "r+")
    raw.name = name
    buffered = {"FileIO": None, "BufferedWriter": io.BufferedWriter, "BufferedRandom": io.BufferedRandom}
    kind = buffered.get(cls, io.BufferedReader)
    file: Any = raw if kind is None else kind(raw)
    if cls == "TextIOWrapper":
        file = io.TextIOWrapper(file, "utf-8")
    file.close()
    return file


class MemoryView(Kind):
    """A view of the bytes of another object."""

    name, how = "memoryview", "in place"

    def shell(self, obj: memoryview, scan: Scan) -> Any:
        if obj.ndim != 1 or not obj.c_contiguous or not isinstance(obj.obj, (bytearray, bytes, array.array)):
            return None
        start = _address(obj) - _address(memoryview(obj.obj))
        return scan.number(obj.obj), start, obj.nbytes, obj.format

    def create(self, spec: Any, loader: Loader) -> Any:
        if spec is None or spec[0] is None:
            return loader.missing("memoryview")
        base, start, size, form = spec
        # Its base may get its bytes later, so that they must be there to be viewed.
        owner = loader.resolve(base)
        if len(memoryview(owner).cast("B")) < start + size:
            return loader.missing("memoryview")
        return memoryview(owner).cast("B")[start : start + size].cast(form)

    def content(self, obj: memoryview, scan: Scan) -> Any:
        return obj.obj, obj.format, obj.nbytes


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes and not view.readonly else 0


class Partial(Kind):
    """Its function and arguments."""

    name, how = "partial", "in place"

    def shell(self, obj: Any, scan: Scan) -> type:
        return type(obj)

    def create(self, spec: type, loader: Loader) -> Any:
        new: Any = functools.partial.__new__
        return new(spec, int)

    def content(self, obj: Any, scan: Scan) -> Any:
        return functools.partial.__reduce__(obj)[2]

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        functools.partial.__setstate__(obj, content)  # type: ignore[attr-defined]


class StringIO(Kind):
    """A file in memory: what it holds, and the position."""

    name, how = "StringIO", "in place"

    def create(self, spec: Any, loader: Loader) -> Any:
        return io.StringIO()

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        return () if obj.closed else (obj.getvalue(), obj.tell())

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        if content:
            obj.seek(0)
            obj.truncate()
            obj.write(content[0])
            obj.seek(content[1])


class BytesIO(StringIO):
    """The same with bytes."""

    name = "BytesIO"

    def create(self, spec: Any, loader: Loader) -> Any:
        return io.BytesIO()


class PythonRandom(Kind):
    """Its state, a normal deviate kept over included."""

    name, how = "random.Random", "in place"

    def shell(self, obj: random.Random, scan: Scan) -> type:
        return type(obj)

    def create(self, spec: type, loader: Loader) -> Any:
        new: Any = spec.__new__
        return new(spec)

    def content(self, obj: random.Random, scan: Scan) -> Any:
        version, numbers, gauss = random.Random.getstate(obj)
        own = tuple((getattr_dict(obj) or {}).items())  # its Gaussian is among them, in C's own place
        return version, array.array("Q", numbers).tobytes(), gauss, own

    def apply(self, obj: random.Random, content: Any, loader: Loader) -> None:
        version, numbers, gauss, own = content
        attributes = getattr_dict(obj)
        if attributes is not None:
            attributes.clear()
            attributes.update(own)
        random.Random.setstate(obj, (version, tuple(array.array("Q", numbers)), gauss))


class WeakValues(Kind):
    """Its pairs, as far as something else holds the values."""

    name, how, late = "WeakValueDictionary", "in place", 1

    def create(self, spec: Any, loader: Loader) -> Any:
        return weakref.WeakValueDictionary()

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        return tuple(obj.items())

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        obj.clear()
        obj.update(content)


class WeakKeys(WeakValues):
    """Its pairs, as far as something else holds the keys."""

    name = "WeakKeyDictionary"

    def create(self, spec: Any, loader: Loader) -> Any:
        return weakref.WeakKeyDictionary()


class WeakSet(WeakValues):
    """Its members, as far as something else holds them."""

    name = "WeakSet"

    def create(self, spec: Any, loader: Loader) -> Any:
        return weakref.WeakSet()

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        items = tuple(obj)
        return tuple(items[index] for index in canonical_order(items, scan))


PLAIN: Iterable[type] = (
    int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), tuple, range,
    slice, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone,
    types.ModuleType, types.MethodType, types.BuiltinFunctionType, types.CodeType,
    weakref.ref, weakref.WeakMethod, weakref.ProxyType, weakref.CallableProxyType,
    types.GenericAlias, types.MethodDescriptorType, types.WrapperDescriptorType,
    property, staticmethod, classmethod,
)  # fmt: skip


def register(registry: Registry) -> None:
    containers: list[tuple[Kind, type]] = [
        (List(), list), (Dict(), dict), (Set(), set), (Deque(), collections.deque),
        (ByteArray(), bytearray), (Array(), array.array),
        (OrderedDict(), collections.OrderedDict), (DefaultDict(), collections.defaultdict),
    ]  # fmt: skip
    for kind, base in containers:
        registry.add(kind, base)
        derived = DerivedContainer(base, kind)
        registry.by_name[derived.name] = derived
        registry.derived.insert(0, (base, derived))
    registry.add(Instance())
    registry.add(FrozenSet(), frozenset)
    registry.add(Module())
    registry.add(Cell(), types.CellType)
    registry.add(Function(), types.FunctionType)
    registry.add(File(), io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.FileIO)
    registry.add(registry.opaque, types.MappingProxyType)
    registry.add(registry.by_name["instance"], types.SimpleNamespace)
    registry.add(MemoryView(), memoryview)
    registry.add(Partial(), functools.partial, derived=True)
    registry.add(StringIO(), io.StringIO)
    registry.add(BytesIO(), io.BytesIO)
    registry.add(PythonRandom(), random.Random, derived=True)
    registry.add(WeakValues(), weakref.WeakValueDictionary)
    registry.add(WeakKeys(), weakref.WeakKeyDictionary)
    registry.add(WeakSet(), weakref.WeakSet)
    registry.plain(*PLAIN)
