"""Contents that are written in one piece by `marshal`, which is several times as fast as asking about each value.

Of many objects the content is nothing but plain values and other objects: those of a *wave* (see `scan.py`) are packed
together, in front of the rest. A number stands in a tuple of its own: packed values hold no other tuples. Equal
contents give equal bytes: version 2 of the format knows nothing of which equal values are one object.
"""

from __future__ import annotations

import enum
import marshal
from collections.abc import Callable, Sequence
from typing import Any

VERSION = 2
PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
Number = Callable[[Any], Any]


class Form(enum.IntEnum):
    """How a kind's content is built."""

    ITEMS = 1  # a tuple
    PAIRS = 2  # a tuple of keys and one of values
    ATTRIBUTES = 3  # the same or None, a tuple of names and values of slots, and a class or None


def pack(forms: Sequence[Form | None], contents: list[Any], number: Number) -> bytes | None:
    """The contents that can be packed; None stands for each of them in the list from now on.

    `number` gives an object's number, or None for a value that pickle has to take.
    """
    places, codes, parts = [], [], []
    for place, (form, content) in enumerate(zip(forms, contents, strict=True)):
        if form is None:
            continue
        part = _PACKERS[form](content, number)
        if part is not None:
            places.append(place)
            codes.append(form)
            parts.append(part)
    if not parts:
        return None
    try:
        data = marshal.dumps((places, bytes(codes), parts), VERSION)
    except ValueError:  # a value of more than 2 GiB
        return None
    for place in places:
        contents[place] = None
    return data


def unpack(data: bytes, contents: Sequence[Any], refer: Callable[[Any], Any]) -> list[Any]:
    """All contents of a wave, in order; `refer` gives what stands for a number."""
    found = list(contents)
    for place, code, part in zip(*marshal.loads(data), strict=True):
        found[place] = _UNPACKERS[code](part, refer)
    return found


def _flat(values: tuple[Any, ...], number: Number) -> tuple[Any, ...] | None:
    if PLAIN.issuperset(map(type, values)):
        return values
    found = []
    for value in values:
        if type(value) not in PLAIN:
            known = number(value)
            if known is None:
                return None
            value = (known,)
        found.append(value)
    return tuple(found)


def _pairs(content: tuple[Any, Any], number: Number) -> Any:
    keys = _flat(content[0], number)
    values = None if keys is None else _flat(content[1], number)
    return None if values is None else (keys, values)


def _attributes(content: tuple[Any, Any, Any], number: Number) -> Any:
    items, slots, cls = content
    pairs = _pairs(items or ((), ()), number)
    names = tuple(name for name, _ in slots)
    values = None if pairs is None else _flat(tuple(value for _, value in slots), number)
    known = None if values is None else _flat((cls,), number)
    return None if known is None else (items is not None, *pairs, names, values, *known)


def _resolved(values: tuple[Any, ...], refer: Callable[[Any], Any]) -> tuple[Any, ...]:
    if tuple not in map(type, values):
        return values
    return tuple([refer(value[0]) if type(value) is tuple else value for value in values])


def _attributes_of(part: Any, refer: Callable[[Any], Any]) -> tuple[Any, ...]:
    has_dict, keys, values, names, slots, cls = part
    items = (_resolved(keys, refer), _resolved(values, refer))
    found = tuple(zip(names, _resolved(slots, refer), strict=True))
    return items if has_dict else None, found, *_resolved((cls,), refer)


_PACKERS: dict[Form, Callable[[Any, Number], Any]] = {
    Form.ITEMS: _flat,
    Form.PAIRS: _pairs,
    Form.ATTRIBUTES: _attributes,
}
_UNPACKERS: dict[int, Callable[[Any, Callable[[Any], Any]], Any]] = {
    Form.ITEMS: _resolved,
    Form.PAIRS: lambda part, refer: (_resolved(part[0], refer), _resolved(part[1], refer)),
    Form.ATTRIBUTES: _attributes_of,
}
