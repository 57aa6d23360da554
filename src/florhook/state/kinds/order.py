"""In which order the items of a set are written: one that goes by what they are, since a set's own goes by addresses.

Most objects hash by their address, which differs between two processes in the same state. What is compared must not
differ, nor the numbers that the walk gives to what it meets in a set. So plain values come first, sorted; then what the
walk has met already, by number; then the others by a *sketch*: what can be seen of them in a few steps. Where sketches
are equal, a walk that leaves sets out tells which is met first elsewhere. What still is equal is alike, or nearly.

Things that don't work: to sort by a scan of each item. An item of a graph leads to all others.
"""

from __future__ import annotations

import collections
import itertools
import types
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .attributes import getattr_dict, has_slot, slots_of

if TYPE_CHECKING:
    from ..scan import Scan

SORTED = (int, str, float, bytes, bool)  # types of items that are compared in another order than the set's
SHOWN = (*SORTED, complex, type(None))
GLANCES = (8, 200)  # objects that a sketch looks at: at first, and where that does not tell
PATIENCE = 20_000  # objects that all second looks of one set may look at
TEXT = 200  # characters or bytes of a value that count
ITEMS = 50  # items of a container that count


def canonical_order(items: tuple[Any, ...], scan: Scan) -> list[int]:
    """The places of a set's items in the order in which they are to be written."""
    plain = [index for index, item in enumerate(items) if is_plain(item)]
    try:
        plain.sort(key=items.__getitem__)
    except TypeError:
        plain.sort(key=lambda index: repr(items[index]))
    others = [index for index, item in enumerate(items) if not is_plain(item)]
    if scan.ranks:
        return plain
    if len(others) > 1:
        others = _by_number_or_sketch(others, items, scan)
    return plain + others


def is_plain(item: Any) -> bool:
    return type(item) in SORTED if type(item) is not tuple else all(type(part) in SORTED for part in item)


def _by_number_or_sketch(places: list[int], items: tuple[Any, ...], scan: Scan) -> list[int]:
    met = {place: scan.met(items[place]) for place in places}
    known = sorted((place for place in places if met[place] >= 0), key=met.__getitem__)
    new = [place for place in places if met[place] < 0]
    return known + _sorted(new, items, scan, GLANCES)


def _sorted(places: list[int], items: tuple[Any, ...], scan: Scan, limits: tuple[int, ...]) -> list[int]:
    """By sketches, which look at more and more; by the walk's rank at last."""
    if len(places) < 2:
        return places
    if not limits:
        return sorted(places, key=lambda place: scan.rank(items[place]))
    if len(places) * limits[0] > PATIENCE and limits is not GLANCES:
        return _sorted(places, items, scan, ())
    sketches = {place: sketch(items[place], scan, limits[0]) for place in places}
    ordered = sorted(places, key=sketches.__getitem__)
    groups = itertools.groupby(ordered, key=sketches.__getitem__)
    return [place for _, group in groups for place in _sorted(list(group), items, scan, limits[1:])]


def sketch(item: Any, scan: Scan, limit: int) -> str:
    """What can be seen of an object and of those that it leads to: `limit` of them, from the nearest on."""
    seen = [item]
    places = {id(item): 0}

    def name(obj: Any) -> str:
        if type(obj) in SHOWN:
            return repr(obj[:TEXT] if type(obj) in (str, bytes) else obj)
        number = scan.met(obj)
        if number >= 0:
            return f"#{number}"
        if id(obj) not in places and len(seen) < limit:
            places[id(obj)] = len(seen)
            seen.append(obj)
        return f"@{places[id(obj)]}" if id(obj) in places else _type_name(obj)

    # `seen` grows meanwhile.
    return "\n".join(f"{_type_name(obj)}({', '.join(_parts(obj, scan, name))})" for obj in seen)


def _type_name(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"


def _parts(obj: Any, scan: Scan, name: Callable[[Any], str]) -> Iterable[str]:
    """What an object shows; other objects by `name`. None of the program's own code is run."""
    cls = type(obj)
    if issubclass(cls, type):
        return (f"{obj.__module__}.{obj.__qualname__}",)
    if cls is types.FunctionType:
        return [repr(scan.code_key(obj.__code__)), *map(name, _held_by(obj))]
    base = next((base for base in _LOOKS if issubclass(cls, base)), None)
    parts = [] if base is None else _LOOKS[base](base, obj, name)
    if cls in _LOOKS:
        return parts
    attributes = getattr_dict(obj) or {}
    parts += [f"{key}={name(value)}" for key, value in itertools.islice(attributes.items(), ITEMS)]
    parts += [f"{key}={name(slot.__get__(obj))}" for key, slot in slots_of(cls) if has_slot(slot, obj)]
    return [*parts, scan.glance(obj)]


def _items(base: Any, obj: Any, name: Callable[[Any], str]) -> list[str]:
    return [str(base.__len__(obj)), *map(name, itertools.islice(base.__iter__(obj), ITEMS))]


def _pairs(base: Any, obj: Any, name: Callable[[Any], str]) -> list[str]:
    pairs = itertools.islice(base.items(obj), ITEMS)
    return [str(len(base.keys(obj))), *(f"{name(key)}: {name(value)}" for key, value in pairs)]


def _members(base: Any, obj: Any, name: Callable[[Any], str]) -> list[str]:
    """How many and, of plain ones, which: their order tells nothing."""
    items = tuple(base.__iter__(obj))
    return [str(len(items)), *sorted(repr(item) for item in items if is_plain(item))[:ITEMS]]


def _held_by(function: types.FunctionType) -> list[Any]:
    cells = [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]
    return [*cells, *(function.__defaults__ or ())]


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _method(base: Any, obj: Any, name: Callable[[Any], str]) -> list[str]:
    return [name(obj.__func__), name(obj.__self__)]


def _reference(base: Any, obj: weakref.ref[Any], name: Callable[[Any], str]) -> list[str]:
    return [name(obj())]


_LOOKS: dict[type, Callable[[Any, Any, Callable[[Any], str]], list[str]]] = {
    collections.OrderedDict: _pairs, dict: _pairs, list: _items, tuple: _items, collections.deque: _items,
    set: _members, frozenset: _members, types.MethodType: _method, weakref.ref: _reference,
    weakref.WeakMethod: _reference,
}  # fmt: skip
