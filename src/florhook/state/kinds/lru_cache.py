"""`functools.lru_cache`: its entries and counts.

The dict of the C object is among what it refers to; where it counts hits and misses is found by counting on one of our
own. A cache with a limit keeps its order in objects that nothing gives out, but tells the garbage collector of each
entry's key and result, from the one that goes next on. Such a cache is filled by calling it, while its function is one
of ours that gives the recorded results.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from typing import TYPE_CHECKING, Any

from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

HITS, MISSES = 4321, 777  # counts that no other word of the object has


class LruCache(Kind):
    """Its entries, in the order in which they would be thrown away, and its counts."""

    name, how, late = "lru_cache", "in place", 1

    def shell(self, obj: Any, scan: Scan) -> str:
        return str(getattr(obj, "__qualname__", "a function"))

    def create(self, spec: str, loader: Loader) -> Any:
        from ..restore import CannotRestoreError

        raise CannotRestoreError(f"the cache of {spec} was made inside a loop")

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        info = obj.cache_info()
        calls = _calls_of(obj) if _counters() is not None else None
        attributes = tuple((name, value) for name, value in vars(obj).items() if name != "__wrapped__")
        if calls is None:
            scan.note_external(obj, tuple(info))
        return tuple(info), *(calls or ((), ())), obj.__wrapped__, attributes

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        (hits, misses, maxsize, _), keys, values, _, attributes = content
        for name in [name for name in vars(obj) if name != "__wrapped__"]:
            del vars(obj)[name]
        vars(obj).update(attributes)
        counters = _counters()
        if counters is None or _calls_of(obj) is None:
            return
        if maxsize is None:
            _refill(obj, keys, values)
        elif maxsize:
            _call_again(obj, keys, values)
        words = _words(obj)
        words[counters[0]], words[counters[1]] = hits, misses


def _calls_of(obj: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """What the entries were called with, and their results; None where that cannot be told.

    Without a limit these are the keys as they lie in the dict.
    """
    info = obj.cache_info()
    if info.maxsize is None:
        cache = _cache_of(obj)
        return None if cache is None else (tuple(cache.keys()), tuple(cache.values()))
    referents, mark = gc.get_referents(obj), _mark()
    first = (
        0
        if info.currsize == 0
        else next((place for place, each in enumerate(referents) if _is_link(each)), 0) - 2
    )
    entries = referents[first : first + 3 * info.currsize] if first >= 0 else []
    links = entries[2::3]
    if (
        len(links) != info.currsize
        or not all(map(_is_link, links))
        or mark is None
        or _function_place(obj) is None
    ):
        return None
    typed = obj.cache_parameters()["typed"]
    return tuple(_arguments(key, typed, mark) for key in entries[::3]), tuple(entries[1::3])


def _is_link(obj: Any) -> bool:
    return type(obj) is type and obj.__name__ == "_lru_list_elem"


def _arguments(key: Any, typed: bool, mark: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """A key as the arguments of the call, those by name as (name, value, name, value, ...)."""
    if type(key) is not tuple:
        return (key,), ()  # a number or a string
    at = next((place for place, each in enumerate(key) if each is mark), None)
    if at is None:
        return key[: len(key) // 2] if typed else key, ()
    named = key[at + 1 :]
    if typed:  # followed by the types of all values
        named = named[: (len(named) - at) // 3 * 2]
    return key[:at], named


@functools.cache
def _mark() -> Any:
    """What stands between arguments by place and by name in a key."""

    @functools.lru_cache(maxsize=2)
    def own(number: int) -> int:
        return number

    own(number=1)
    key = next((each for each in gc.get_referents(own) if type(each) is tuple and len(each) == 3), None)
    return None if key is None else key[0]


def _refill(obj: Any, keys: tuple[Any, ...], values: tuple[Any, ...]) -> None:
    cache = _cache_of(obj)
    if cache is not None:
        cache.clear()
        cache.update(zip(keys, values, strict=True))


def _call_again(obj: Any, calls: tuple[Any, ...], results: tuple[Any, ...]) -> None:
    """Fill a cache with a limit, from the entry that goes first on."""
    obj.cache_clear()
    given: list[Any] = []

    def give(*_: Any, **__: Any) -> Any:
        return given.pop()

    words, place = _words(obj), _function_place(obj)
    own = words[place]
    words[place] = id(give)  # borrowed, and given back before anyone else can see it
    try:
        for (arguments, named), result in zip(calls, results, strict=True):
            given.append(result)
            obj(*arguments, **dict(zip(named[::2], named[1::2], strict=True)))
    finally:
        words[place] = own


def _function_place(obj: Any) -> int | None:
    """Which word of a cache object is the function that it calls."""
    places = [index for index, word in enumerate(_words(obj)) if word == id(obj.__wrapped__)]
    return places[0] if len(places) == 1 else None


def _cache_of(obj: Any) -> dict[Any, Any] | None:
    attributes = obj.__dict__
    found = [each for each in gc.get_referents(obj) if type(each) is dict and each is not attributes]
    return found[0] if len(found) == 1 else None


def _words(obj: Any) -> Any:
    return (ctypes.c_ssize_t * (sys.getsizeof(obj) // ctypes.sizeof(ctypes.c_ssize_t))).from_address(id(obj))


@functools.cache
def _counters() -> tuple[int, int] | None:
    """Which words of a cache object count hits and misses; None where that cannot be told."""

    @functools.cache
    def own(number: int) -> int:
        return number

    for number in range(MISSES):
        own(number)
    for _ in range(HITS):
        own(0)
    places = [[index for index, word in enumerate(_words(own)) if word == count] for count in (HITS, MISSES)]
    return (places[0][0], places[1][0]) if [len(place) for place in places] == [1, 1] else None


def register(registry: Registry) -> None:
    registry.add(LruCache(), functools._lru_cache_wrapper)
