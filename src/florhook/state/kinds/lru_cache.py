"""`functools.lru_cache`: the entries and the counts of a cache without a limit.

The dict of the C object is among what it refers to; where it counts hits and misses is found by counting on one of our
own. A cache with a limit keeps its order in objects that nothing gives out: it can only be found unchanged.
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
    """Entries and counts of a cache without a limit; one with a limit is found unchanged, or there is no checkpoint."""

    name, how, late = "lru_cache", "in place", 1

    def shell(self, obj: Any, scan: Scan) -> str:
        return str(getattr(obj, "__qualname__", "a function"))

    def create(self, spec: str, loader: Loader) -> Any:
        from ..restore import CannotRestoreError

        raise CannotRestoreError(f"the cache of {spec} was made inside a loop")

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        info = obj.cache_info()
        cache = _cache_of(obj) if info.maxsize is None else None
        attributes = tuple((name, value) for name, value in vars(obj).items() if name != "__wrapped__")
        if cache is None or _counters() is None:
            scan.note_external(obj, tuple(info))
            return tuple(info), (), (), obj.__wrapped__, attributes
        return tuple(info), tuple(cache.keys()), tuple(cache.values()), obj.__wrapped__, attributes

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        (hits, misses, maxsize, _), keys, values, _, attributes = content
        for name in [name for name in vars(obj) if name != "__wrapped__"]:
            del vars(obj)[name]
        vars(obj).update(attributes)
        counters = _counters()
        cache = _cache_of(obj)
        if maxsize is not None or counters is None or cache is None:
            return
        cache.clear()
        cache.update(zip(keys, values, strict=True))
        words = _words(obj)
        words[counters[0]], words[counters[1]] = hits, misses


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
