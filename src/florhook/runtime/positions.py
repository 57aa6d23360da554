"""Which iterables can be brought to their k-th item without running the k before it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

SEQUENCES = (range, list, tuple, str, bytes)
SAMPLES: tuple[Any, ...] = (range(0), [], (), "", b"", range(2**70))
ITERATORS = tuple(type(iter(each)) for each in SAMPLES)
WRAPPERS = (enumerate, zip, reversed)


def can_position(kind: str, iterable: Any) -> bool:
    """Whether a jump into the middle of a loop over `iterable` costs no more than counting."""
    if kind == "while":
        return True
    if type(iterable) in (*SEQUENCES, *ITERATORS) or _is_array(iterable):
        return True
    if type(iterable) in WRAPPERS:
        return all(can_position(kind, part) for part in _parts(iterable))
    return False


def positioned(iterator: Iterator[Any], count: int) -> None:
    """Pass over `count` items of an iterator over something that `can_position`."""
    next(itertools.islice(iterator, count, count), None)


def _parts(wrapper: Any) -> tuple[Any, ...]:
    """The iterators that an enumerate, zip or reversed draws from."""
    arguments: tuple[Any, ...] = wrapper.__reduce__()[1]
    return arguments[:1] if isinstance(wrapper, (enumerate, reversed)) else arguments


def _is_array(iterable: Any) -> bool:
    module = type(iterable).__module__.partition(".")[0]
    return (module == "numpy" and type(iterable).__name__ == "ndarray") or (
        module == "torch" and type(iterable).__name__ in ("Tensor", "Size")
    )
