"""Python's own iterators by what they will still give.

What pickle makes of an iterator depends on how it came to its place: an exhausted one is another than a new one over
nothing, what is left of a dict's becomes a list, and a cycle that was put together again holds the end of its list
where the old one holds the beginning. Those that will give the same are written alike here: else a replay that
restored one would differ from the run for no reason that the program could see. An iterator over a list keeps the
list, which may grow.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

Parts = tuple[Any, ...]
NOTHING: Parts = (iter, ((),))  # an iterator that is exhausted, whatever it was over


def _over_values(iterator: Any) -> Parts:
    """An iterator over an immutable sequence: what is left of that. Derived classes are not asked for it."""
    parts = iterator.__reduce__()
    if len(parts) < 3:
        return NOTHING
    sequence, place = parts[1][0], parts[2]
    base = next(each for each in (tuple, str, bytes) if isinstance(sequence, each))
    rest = base.__getitem__(sequence, slice(place, None))
    return (iter, (rest,)) if rest else NOTHING


def _over_list(iterator: Any) -> Parts:
    parts: Parts = iterator.__reduce__()
    return parts if len(parts) > 2 else NOTHING


def _over_items(iterator: Any) -> Parts:
    """An iterator over a dict or a set, of which pickle makes a list."""
    rest = iterator.__reduce__()[1][0]
    return (iter, (tuple(rest),)) if rest else NOTHING


def _cycle(iterator: Any) -> Parts:
    parts: Parts = iterator.__reduce__()
    make, (inner,), (saved, whole) = parts
    if whole and inner.__length_hint__() == 0:  # the next round begins
        inner = iter(saved)
    return make, (inner,), (saved, whole)


def _chain(iterator: Any) -> Parts:
    return iterator.__reduce__() if _left_in(iterator) else NOTHING


def _left_in(chain: Any) -> list[Any]:
    """What a chain will still draw from, as far as that can be told; what gives nothing any more is left out."""
    parts = chain.__reduce__()
    source, *active = parts[2] if len(parts) > 2 else (iter(()),)
    left = [each for each in active if not _gives_nothing(each)]
    return left if _gives_nothing(source) else [*left, *_of_source(source)]


def _of_source(source: Any) -> list[Any]:
    known = type(source) is type(iter(()))
    return list(_over_values(source)[1][0]) if known else [source, source]  # any number


def _accumulate(iterator: Any) -> Parts:
    """Pickle puts an `initial` into a chain before what is accumulated."""
    parts: Parts = iterator.__reduce__()
    make, (inner, function), *total = parts
    while total != [None] and type(inner) is itertools.chain and len(left := _left_in(inner)) == 1:
        inner = left[0]
    return make, (inner, function), *total


def _islice(iterator: Any) -> Parts:
    parts: Parts = iterator.__reduce__()
    return NOTHING if parts[1][1:] == (0,) else parts  # as pickle has it once it is exhausted


def _zip_longest(iterator: Any) -> Parts:
    parts: Parts = iterator.__reduce__()
    make, inner, *state = parts
    return make, tuple(() if _gives_nothing(each) else each for each in inner), *state


def _gives_nothing(iterator: Any) -> bool:
    """Whether it can be told that an iterator will give nothing any more."""
    taken_apart = TAKEN_APART.get(type(iterator))
    return taken_apart is not None and taken_apart(iterator) is NOTHING


def _views() -> list[Any]:
    """One iterator of each type over dicts and sets."""
    dicts: list[dict[int, int]] = [{}, collections.OrderedDict()]
    found: list[Any] = [iter(set())]
    for each in dicts:
        for view in (each.keys(), each.values(), each.items()):
            found += [iter(view), reversed(view)]
    return found


TAKEN_APART: dict[type, Callable[[Any], Parts]] = {
    **dict.fromkeys(map(type, (iter(()), iter("a"), iter("\u1234"), iter(b""))), _over_values),
    **dict.fromkeys(map(type, (iter([]), reversed([]))), _over_list),
    **dict.fromkeys(map(type, _views()), _over_items),
    itertools.cycle: _cycle,
    itertools.chain: _chain,
    itertools.accumulate: _accumulate,
    itertools.islice: _islice,
    itertools.zip_longest: _zip_longest,
}
