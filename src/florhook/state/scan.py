"""Walks the live object graph from named roots and writes it as one stream, bytes of leaves out of band.

Immutable values are written out wherever they stand (no memo: which equal strings are one object differs between
processes). Every mutable object gets a number when it is first met. The stream holds, for each root, its value,
then wave by wave the contents of the objects met so far; inside, a mutable object is a reference to its number. So
the stream depends on nothing but the values and on how they are shared: two processes in the same state write the same
stream, which is what verification compares. Which numbers stand for objects that were alive at a loop's entry,
and how to make the others, is said beside the stream (`Scan.table`).

The C pickler does the walking: `persistent_id` sees every object, containers are replaced by references there.
"""

from __future__ import annotations

import array
import copyreg
import ctypes
import functools
import importlib
import io
import itertools
import marshal
import math
import operator
import pickle
import sys
import time
import types
import weakref
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..dataclass import dataclass
from ..uncollected import no_collections
from .kinds import REGISTRY, Kind, load_imported
from .kinds.base import flat, live_reference, rebuild, reduce
from .kinds.opaque import UNKNOWN
from .kinds.special import SPECIAL

INLINE = 512  # bytes: shorter leaves stand in the stream itself
# Where a table says how to find an object: born since the entry; -2 - n: number n of the iterator's.
BORN, DRIVEN = -1, -2
REPLACED = ("reduced", "generator")  # kinds of mutable objects that a restore may put others in the place of
GLANCE = 1024  # objects between two looks at the clock
GIVEN = "__getnewargs__"
ATOMS: frozenset[type] = frozenset({int, str, float, bool, bytes, type(None), tuple, complex})
VARIOUS: Any = object()  # stands for the kind of a type of which only one object at a time can tell


class Holder(Protocol):
    """What keeps objects of the program for a replay, as the recorded process did not."""

    def holds(self, obj: Any) -> bool: ...

    def views_of(self, base: Any) -> Iterable[Any]: ...


HOLDERS: weakref.WeakSet[Holder] = weakref.WeakSet()


class TooLongError(Exception):
    """A walk was given up."""


class Environment(Protocol):
    """What the scan must know of the program: which modules are the user's, and names for their code."""

    user_modules: set[str]

    def code_key(self, code: types.CodeType) -> tuple[Any, ...] | None: ...

    def find_code(self, key: tuple[Any, ...]) -> types.CodeType: ...

    def free_variables(self, code: types.CodeType) -> tuple[str, ...]: ...

    def variables(self, code: types.CodeType) -> Collection[str] | None: ...


@dataclass(frozen=True)
class Root:
    """A named start of the walk, such as ("global", "__main__", "net")."""

    name: tuple[Any, ...]
    value: Any


@dataclass(frozen=True)
class Leaf:
    """Bytes that lie outside the stream, read in place: valid until the program runs on."""

    key: Hashable
    view: memoryview


@dataclass(frozen=True)
class Segment:
    """The part of the stream that a root added: its end offset, the leaves and the tensors with a graph by then."""

    name: tuple[Any, ...]
    end: int
    leaves: int
    graphs: int


class Entry:
    """The objects that were alive at a loop's entry, by number; held weakly, so that nothing lives longer.

    An address that was freed and used again by an object of the same type is taken for the old object. That is
    right for whatever is restored completely in place: the restored program cannot tell which empty list was
    filled. What is not restored in place is confirmed by a weak reference.
    """

    def __init__(self, scan: Scan) -> None:
        self.roots = [segment.name for segment in scan.segments]
        self.shape = scan.shape()
        self.suspended = dict(scan.suspended)
        self.types = list(map(type, scan.objects))
        self._keys = list(scan.keys)
        self._by_value = {number for number, kind in enumerate(scan.kinds) if kind.how == "by value"}
        self._same: dict[int, Any] = {}
        self._references: dict[int, weakref.ref[Any] | None] = {}
        for number, kind in enumerate(scan.kinds):
            if not kind.alike:
                obj = scan.objects[number]
                same = self._same[number] = kind.same(obj)
                if same is None:
                    self._references[number] = live_reference(obj)

    @functools.cached_property
    def _numbers(self) -> dict[Any, int]:
        return dict(zip(self._keys, itertools.count(), strict=False))

    def number(self, key: Any, obj: Any, kind: Kind) -> int:
        """The object's number at the entry, or -1 for one that was born since."""
        number = self._numbers.get(key, -1)
        if number < 0 or number in self._by_value:
            return -1
        reference = self._references.get(number)
        if self.types[number] is not type(
            obj
        ):  # its class may have been changed, which only a weak reference can tell
            return number if reference is not None and reference() is obj else -1
        if reference is not None and reference() is not obj:
            return -1
        same = self._same.get(number)
        return number if same is None or same == kind.same(obj) else -1

    def reference(self, number: int) -> weakref.ref[Any] | None:
        """A weak reference to the object that had the number, where only that can confirm it."""
        return self._references.get(number)

    def same(self, number: int) -> Any:
        """What an object at the address of the one with that number must share with it (`Kind.same`)."""
        return self._same.get(number)

    def numbers(self, keys: Sequence[Any], objects: Sequence[Any], kinds: Sequence[Kind]) -> list[int]:
        """The same of many objects."""
        met = list(map(self._numbers.get, keys, itertools.repeat(-1)))
        unlike = map(operator.not_, map(operator.attrgetter("alike"), kinds))
        for index in {*itertools.compress(itertools.count(), unlike), *self.of_other_types(met, objects)}:
            if met[index] >= 0:
                met[index] = self.number(keys[index], objects[index], kinds[index])
        return met

    def of_other_types(self, numbers: Sequence[int], objects: Sequence[Any]) -> list[int]:
        """The places of the objects, by their numbers or -1, that are not of the type that they were at the entry."""
        if not self.types:
            return []
        # For -1 the last type is looked at, which does not matter.
        differ = map(operator.is_not, map(self.types.__getitem__, numbers), map(type, objects))
        return [place for place in itertools.compress(itertools.count(), differ) if numbers[place] >= 0]


class Scan:
    """One walk. `stream`, `segments` and `leaves` hold the result."""

    outlines = False  # whether it is an iterator that is walked, which is driven rather than restored
    ranks = False  # whether it only ranks objects, by when it meets them without looking into sets

    def __init__(
        self,
        environment: Environment,
        roots: Iterable[Root],
        seconds: float = math.inf,
        arranged: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """TooLongError if the walk takes more than so many seconds.

        `arranged` says, by id, which attributes of some instances are written, and in which order, instead of all.
        """
        load_imported()
        self.arranged = arranged or {}
        self.environment = environment
        self.roots = list(roots)
        self._deadline = time.perf_counter() + seconds
        self.keys: list[Any] = []
        self.objects: list[Any] = []
        self.kinds: list[Kind] = []
        self.leaves: list[Leaf] = []
        self.segments: list[Segment] = []
        self.suspended: dict[int, tuple[Any, ...]] = {}
        self.live_graphs: list[int] = []  # numbers of tensors that hang on an autograd graph
        self._numbers: dict[Any, int] = {}
        self._kinds: dict[type, Kind | None] = dict.fromkeys(ATOMS)  # where all objects of a type are of one
        self._classes: dict[type, bool] = {}
        self._kept: list[Any] = []
        self._dicts: dict[int, Any] = {}  # by address of its `__dict__`: an instance
        self._alive: list[int] = []
        self._shown: dict[
            Hashable, list[list[tuple[int, int]]]
        ] = {}  # by leaf: the bytes that views show of it
        self._bases: dict[Hashable, tuple[Any, Callable[[Any], int], int]] = {}
        self._answers: dict[int, Any] = {}
        self._hints: dict[int, Any] = {}
        self._homes: dict[str, dict[int, str]] = {}  # by module: its globals by address
        self._done = 0
        self._ranking: Scan | None = None
        with no_collections():
            self.stream = self._write(self.roots)

    def _write(self, roots: Iterable[Root]) -> bytes:
        out = io.BytesIO()
        pickler = _Pickler(out, self)
        for root in roots:
            pickler.dump(root.value)
            while self._done < len(self.objects):
                first, self._done = self._done, len(self.objects)
                self._write_wave(pickler, self.kinds[first:], self.objects[first:])
            self.segments.append(Segment(root.name, out.tell(), len(self.leaves), len(self.live_graphs)))
        self._hide()
        return out.getvalue()

    def _write_wave(self, pickler: _Pickler, kinds: Sequence[Kind], objects: Sequence[Any]) -> None:
        pickler.dump(tuple([kind.content(obj, self) for kind, obj in zip(kinds, objects, strict=True)]))

    def number(self, obj: Any) -> Any:
        """The object's number; None for a value that the stream holds by itself."""
        return self.numberer()(obj)

    def numberer(self) -> Callable[[Any], Any]:
        """`number` as a closure, which is quicker than a method: it is asked for every object, value or not.

        The scan does not hold it, or it would hold itself, and buffers of the program's with it.
        """
        kinds_of_types, numbers = self._kinds, self._numbers
        keys, objects, kinds = self.keys, self.objects, self.kinds

        def number(obj: Any) -> int | None:
            kind = kinds_of_types.get(type(obj), VARIOUS)
            if kind is None:
                return None
            key: Any = id(obj)
            found = numbers.get(key)
            if found is not None:
                return found
            if kind is VARIOUS:
                kind = self._kind(obj)
                if kind is None:
                    return None
                key = kind.key(obj)
                found = numbers.get(key)
                if found is not None:
                    return found
            found = numbers[key] = len(objects)
            keys.append(key)
            objects.append(obj)
            kinds.append(kind)
            if not found % GLANCE and time.perf_counter() > self._deadline:
                raise TooLongError(f"its state has more than {found} objects, which take too long to walk")
            return found

        return number

    def _kind(self, obj: Any) -> Kind | None:
        """The kind of an object, which is remembered where it is that of all objects of the type."""
        kind = kind_of(obj, self.environment)
        if kind.alike if kind is not None else is_value_type(obj):
            self._kinds[type(obj)] = kind
        return kind

    # What kinds ask for --------------------------------------------------------------------------------------

    def met(self, obj: Any) -> int:
        """The number of an object that was met; else -1."""
        return self._numbers.get(id(obj), -1)

    def rank(self, obj: Any) -> int:
        """When a walk that looks into no set meets an object: last of all, where only sets lead to it."""
        if self._ranking is None:
            self._ranking = _Ranking(self.environment, self.roots, self._deadline - time.perf_counter())
        found = self._ranking.met(obj)
        return found if found >= 0 else sys.maxsize

    def glance(self, obj: Any) -> str:
        kind = kind_of(obj, self.environment)
        return "" if kind is None else kind.glance(obj)

    def bytes_of(self, key: Hashable, view: memoryview) -> bytes | int:
        """Content of a leaf: the bytes themselves, or the index of a leaf outside the stream."""
        if view.nbytes <= INLINE and not self._hidden(key, view.nbytes):
            return view.tobytes()
        self.leaves.append(Leaf(key, view))
        return len(self.leaves) - 1

    def memory(self, key: Hashable, address: int, size: int) -> bytes | int:
        """The same for `size` bytes of memory at an address."""
        if not size:
            return b""
        block = (ctypes.c_char * size).from_address(address)
        return self.bytes_of(key, memoryview(block).cast("B"))

    def shows(
        self, key: Hashable, places: list[tuple[int, int]], base: Any, count: Callable[[Any], int], ours: int
    ) -> None:
        """A view shows the bytes of a leaf from each start to its end.

        What no view shows, and nobody else who holds `base`, is no state. Programs and libraries make room and fill a
        part of it; the rest is whatever was in memory. `count(base)` is how many hold it, `ours` of them because of
        this walk.
        """
        self._shown.setdefault(key, []).append(places)
        self._bases[key] = base, count, ours

    def _hidden(self, key: Hashable, size: int) -> list[tuple[int, int]]:
        """The parts of a leaf that no view shows, as far as the walk has come."""
        if key not in self._shown:
            return []
        gaps, at = [], 0
        for start, end in sorted(itertools.chain.from_iterable(self._shown[key])):
            if start > at:
                gaps.append((at, start))
            at = max(at, end)
        return [*gaps, (at, size)] if at < size else gaps

    def _hide(self) -> None:
        """Put zeros for what nobody can see."""
        for index, leaf in enumerate(self.leaves):
            hidden = self._hidden(leaf.key, leaf.view.nbytes)
            if not hidden or self._is_held(leaf.key):
                continue
            data = bytearray(leaf.view)
            for start, end in hidden:
                data[start:end] = bytes(end - start)
            self.leaves[index] = Leaf(leaf.key, memoryview(data))

    def _is_held(self, key: Hashable) -> bool:
        """Whether what the views lie in is held by others too."""
        base, count, ours = self._bases[key]
        ours += sum(holder.holds(base) for holder in HOLDERS)
        # Views that the program has let go, and that a replay still holds, each hold the base.
        views = {id(view) for holder in HOLDERS for view in holder.views_of(base)}
        ours += sum(each not in self._numbers for each in views)
        return bool(count(base) > len(self._shown[key]) + ours)

    def hint(self, obj: Any, value: Any) -> None:
        """Something for the restore that two equal states may differ in, so that it is no part of the stream."""
        self._hints[self._numbers[id(obj)]] = value

    def first_with(self, attributes: dict[str, Any], obj: Any) -> Any:
        """The first object met that has this very `__dict__`: `obj`, unless several share it."""
        return self._dicts.setdefault(id(attributes), obj)

    def keep(self, obj: Any) -> Any:
        """Keep something alive that leaves lie in, until the scan is let go."""
        self._kept.append(obj)
        return obj

    def keeps_class(self, cls: type) -> bool:
        """Whether a class is the user's, or one that no import finds."""
        kept = self._classes.get(cls)
        if kept is None:
            kept = cls.__module__ in self.environment.user_modules or not is_importable(cls)
            self._classes[cls] = kept
        return kept

    def home_of(self, obj: Any) -> tuple[str, str] | None:
        """Under which name an object stands in its class's module, as the one-off objects of libraries do."""
        home = type(obj).__module__
        if home not in self._homes:
            module = None if home in self.environment.user_modules else sys.modules.get(home)
            self._homes[home] = {id(value): name for name, value in vars(module).items()} if module else {}
        name = self._homes[home].get(id(obj))
        return None if name is None else (home, name)

    def was_alive(self, number: int) -> bool:
        """For shells: whether an object need not be made, since it was there at the entry."""
        return self._alive[number] >= 0

    def code_key(self, code: types.CodeType) -> tuple[Any, ...]:
        return self.environment.code_key(code) or ("marshal", bytes_of_code(code))

    def once(self, obj: Any, ask: Callable[[Any], Any]) -> Any:
        """What `ask` gives for an object, asked once in this scan."""
        number = self._numbers[id(obj)]
        if number not in self._answers:
            self._answers[number] = ask(obj)
        return self._answers[number]

    def note_external(self, obj: Any, mark: Any) -> None:
        """State that no stream holds; `mark` is equal to an earlier one where it has not changed."""
        self.suspended[id(obj)] = ("external", mark, type(obj).__qualname__)

    def note_running(self, obj: Any, what: str) -> None:
        """Something that acts by itself, so that no placeholder can stand for it: it must have run at the entry."""
        self.suspended[id(obj)] = ("running", None, what)

    def note_suspended(self, obj: Any, values: tuple[Any, ...]) -> None:
        """A generator that may be drawn from; `values` are what its frame holds, as `position_of` gives them."""
        self.suspended[id(obj)] = (
            "generator",
            {id(each) for each in values[1] + values[2]},
            obj.__qualname__,
        )

    def note_graph(self, obj: Any) -> None:
        self.live_graphs.append(self._numbers[id(obj)])

    # What the stream does not say ----------------------------------------------------------------------------

    def shape(self) -> list[str]:
        """Kinds in order, by which two walks are matched before numbers of one are used in the other."""
        return [kind.name for kind in self.kinds]

    def table(self, entry: Entry, iterator: Mapping[Any, int] | None = None) -> bytes:
        """How to find or make each object: its number at the entry, or the recipe of an empty one.

        `iterator` numbers the objects, by key, that the loop's iterator makes when it is driven to its place.
        """
        numbers = entry.numbers(self.keys, self.objects, self.kinds)
        changed = {
            index: self._apart(type(self.objects[index]))
            for index in entry.of_other_types(numbers, self.objects)
        }
        if iterator:
            numbers = [
                DRIVEN - iterator[key] if number < 0 and key in iterator else number
                for key, number in zip(self.keys, numbers, strict=True)
            ]
        self._alive = numbers
        born = [
            (index, self.kinds[index].name, self._shell(index))
            for index in itertools.compress(itertools.count(), map(BORN.__eq__, numbers))
        ]
        if len(self.objects) != len(numbers):
            raise ValueError("an empty object needs one that the walk did not meet")
        return pickle.dumps((array.array("q", numbers), born, changed, self._hints), 5)

    def _shell(self, number: int) -> bytes:
        """Pickled by itself, since it may refer to objects that are made from other recipes."""
        shell = self.kinds[number].shell(self.objects[number], self)
        return b"" if shell is None else self._apart(shell)

    def _apart(self, value: Any) -> bytes:
        out = io.BytesIO()
        _Pickler(out, self).dump(value)
        return out.getvalue()

    def blockers(self, entry: Entry, driven: Collection[Any] = (), pinned: Collection[int] = ()) -> list[str]:
        """Reasons why this state cannot be restored from the entry's: what moved on that cannot be moved.

        `driven` are the keys of what moves with the loop's iterator, `pinned` the ids of what loops around iterate
        over: no placeholder can be put there, nor into the frame of another generator.
        """
        held = set(pinned)
        for key, where in self.suspended.items():
            if where[0] == "generator" and (key in driven or not self._born(key, entry)):
                held |= where[1]
        return [
            f"{where[-1]} has changed since the loop was entered"
            for key, where in self.suspended.items()
            if key not in driven and self._blocks(key, where, entry, held)
        ]

    def graph_born(self, entry: Entry) -> bool:
        """Whether a tensor that hangs on an autograd graph was born since the entry."""
        return any(self._born(self.keys[number], entry) for number in self.live_graphs)

    def stuck(self, entry: Entry, fixed: Callable[[tuple[Any, ...]], bool]) -> str | None:
        """A root that must stay the object that it is (`fixed` tells by name), but that a restore would replace."""
        for root in self.roots:
            parts = root.value if type(root.value) is tuple else (root.value,)
            if fixed(root.name) and any(self._is_replaced(part, entry) for part in parts):
                return str(root.name[-1])
        return None

    def _is_replaced(self, obj: Any, entry: Entry) -> bool:
        kind = None if type(obj) in ATOMS else kind_of(obj, self.environment)
        number = None if kind is None else self._numbers.get(kind.key(obj))
        if kind is None or number is None or kind.name not in REPLACED:
            return False
        return entry.number(self.keys[number], obj, kind) < 0

    def entangled(self) -> list[str]:
        """Iterators that a restore makes anew, beside objects that nobody can look into and that may draw from them."""
        opaque = [w[-1] for w in self.suspended.values() if w[0] == "external" and w[1] is UNKNOWN]
        if not opaque:
            return []
        anew = any(
            kind.how == "by value" and hasattr(type(obj), "__next__")
            for kind, obj in zip(self.kinds, self.objects, strict=True)
        )
        return [f"{opaque[0]} may draw from what the program draws from"] if anew else []

    def remade(self, ids: Collection[int]) -> str | None:
        """The type of an object among these that a restore makes anew, though somebody else holds it."""
        met = (self._numbers[each] for each in ids if each in self._numbers)
        return next((type(self.objects[n]).__name__ for n in met if self.kinds[n].how == "by value"), None)

    def _blocks(self, key: Any, where: tuple[Any, ...], entry: Entry, held: Collection[int]) -> bool:
        if where[0] == "generator":
            return key in held and self._born(key, entry)
        changed = where[1] is UNKNOWN or entry.suspended.get(key) != where
        return changed and not (where[0] == "external" and self._born(key, entry))

    def _born(self, key: Any, entry: Entry) -> bool:
        """Whether an object was born since the entry, so that a placeholder can stand for it."""
        number = self._numbers[key]
        return entry.number(key, self.objects[number], self.kinds[number]) < 0


class _Ranking(Scan):
    """Numbers objects for `Scan.rank`."""

    ranks = True


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, scan: Scan) -> None:
        super().__init__(out, protocol=5)
        self.fast = True
        self.persistent_id = scan.numberer()  # type: ignore[method-assign]

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        special = SPECIAL.get(cls)
        if special is not None:
            return special(obj)
        if cls in REGISTRY.exact or issubclass(cls, type):
            return NotImplemented
        return _reduce_value(obj)


def _reduce_value(obj: Any) -> Any:
    """An immutable value of a class of its own; its state, if it has one, must not be a dict with a number."""
    reduced = reduce(obj)
    if isinstance(reduced, str):
        return reduced
    make, arguments, state, items, pairs, setter = (*reduced, None, None, None, None)[:6]
    if make is copyreg.__newobj__ and _takes_more(type(obj)):  # type: ignore[attr-defined]
        make, arguments = _value_of_class, (_builtin_base(type(obj)), *arguments)
    elif make is type(obj) and issubclass(make, frozenset):  # pickle has a list, which would be an object
        make, arguments = _value_of_class, (frozenset, make, frozenset(obj))
    if len(reduced) == 2:
        return make, arguments
    return rebuild, (make, arguments, flat(state), tuple(items or ()), tuple(pairs or ()), setter)


def _builtin_base(cls: type) -> Any:
    return next((base for base in (int, float, complex, str, bytes, tuple) if issubclass(cls, base)), None)


def _takes_more(cls: type) -> bool:
    """Whether a class derived from a plain value has a `__new__` of its own, and does not say what that takes."""
    base = _builtin_base(cls)
    own = isinstance(cls.__new__, types.FunctionType)
    return own and base is not None and getattr(cls, GIVEN, None) is getattr(base, GIVEN, None)


def _value_of_class(base: Any, cls: type, *arguments: Any) -> Any:
    return base.__new__(cls, *arguments)


def _reduce_module(obj: types.ModuleType) -> Any:
    return importlib.import_module, (obj.__name__,)


def _reduce_method(obj: types.MethodType) -> Any:
    # The write overlay's stand-ins for built-in functions are methods that an import finds.
    if _found_under_its_name(obj):
        return obj.__qualname__
    return _method, (obj.__func__, obj.__self__)


def _method(function: Any, owner: Any) -> types.MethodType:
    return types.MethodType(function, owner)


def _reduce_weak_reference(obj: weakref.ref[Any]) -> Any:
    target = obj()
    if target is None:
        return _dead_reference, ()
    callback = obj.__callback__
    return weakref.ref, (target,) if callback is None else (target, callback)


def _reduce_weak_method(obj: weakref.WeakMethod[Any]) -> Any:
    method = obj()
    if method is None:
        return _dead_method, ()
    wrapper: Any = obj.__callback__  # Python's own, around the one that it was given
    callback = wrapper.__closure__[wrapper.__code__.co_freevars.index("callback")].cell_contents
    return weakref.WeakMethod, (method,) if callback is None else (method, callback)


def _reduce_weak_proxy(obj: Any) -> Any:
    try:
        # Everything asked of a proxy is asked of its target, so that a bound method tells who that is.
        return weakref.proxy, (obj.__reduce_ex__.__self__,)
    except ReferenceError:
        return _dead_proxy, ()


def _dead_proxy() -> Any:
    return weakref.proxy(_Gone())


def bytes_of_code(code: types.CodeType) -> bytes:
    """The same in any process: later formats tell how often a part is referred to, and which names are interned."""
    return marshal.dumps(code, 2)


def _reduce_code(obj: types.CodeType) -> Any:
    return marshal.loads, (bytes_of_code(obj),)


def _reduce_property(obj: property) -> Any:
    return property, (obj.fget, obj.fset, obj.fdel, obj.__doc__)


def _reduce_wrapper(obj: Any) -> Any:
    return type(obj), (obj.__func__,)


class _Gone:
    def method(self) -> None:
        """For what refers to a method of something that is gone."""


def _dead_reference() -> weakref.ref[Any]:
    return weakref.ref(_Gone())


def _dead_method() -> weakref.WeakMethod[Any]:
    return weakref.WeakMethod(_Gone().method)


SPECIAL.update(
    {
        types.ModuleType: _reduce_module,
        types.MethodType: _reduce_method,
        weakref.ref: _reduce_weak_reference,
        weakref.WeakMethod: _reduce_weak_method,
        weakref.ProxyType: _reduce_weak_proxy,
        weakref.CallableProxyType: _reduce_weak_proxy,
        types.CodeType: _reduce_code,
        property: _reduce_property,
        staticmethod: _reduce_wrapper,
        classmethod: _reduce_wrapper,
    }
)


def is_value_type(obj: Any) -> bool:
    """Whether all objects of the type are values, since this one is: modules and functions are values by their name."""
    by_name = issubclass(type(obj), (types.ModuleType, types.BuiltinFunctionType))
    return REGISTRY.of(obj) is None and not by_name


def kind_of(obj: Any, environment: Environment) -> Kind | None:
    """The kind of an object; functions and classes that an import finds are written by name."""
    kind = REGISTRY.of(obj)
    if kind is not None and kind.varies:
        kind = kind.variant(obj)
    if kind is None:
        owner = getattr(obj, "__self__", None) if type(obj) is types.BuiltinFunctionType else None
        if owner is not None and REGISTRY.of(owner) is REGISTRY.opaque:
            return REGISTRY.opaque  # a method of a lock, say
        if issubclass(type(obj), (types.ModuleType, types.BuiltinFunctionType)) and not is_importable(obj):
            return REGISTRY.by_name["module"] if type(obj) is types.ModuleType else REGISTRY.opaque
        return None
    if kind.name in ("function", "class", "lru_cache"):
        home = getattr(obj, "__module__", None)
        if home not in environment.user_modules and is_importable(obj):
            return None
    return kind


def is_importable(obj: Any) -> bool:
    """Whether the import system finds this very object under its own name."""
    if issubclass(type(obj), types.ModuleType):
        return sys.modules.get(obj.__name__) is obj
    home = getattr(obj, "__module__", None)
    owner = getattr(obj, "__self__", None)
    if owner is not None and not issubclass(type(owner), types.ModuleType):
        return True  # a method of an object: pickled by that object and its name
    if _found_under_its_name(obj, home or getattr(owner, "__name__", "")):
        return True
    return type(obj) is types.BuiltinFunctionType and _is_static(obj)


def _is_static(obj: types.BuiltinFunctionType) -> bool:
    """Whether it is a static method of a class written in C, as torch's functions are: pickled by class and name."""
    reduced = obj.__reduce__()
    return type(reduced) is tuple and getattr(reduced[1][0], reduced[1][1], None) is obj


def _found_under_its_name(obj: Any, home: Any = None) -> bool:
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", "")
    found: Any = sys.modules.get(str(home or getattr(obj, "__module__", None)))
    for part in str(name).split("."):
        found = getattr(found, part, None)
    return found is obj
