"""Bringing a loop's iterator to its k-th item.

Of some iterables the place is all there is to know: these can be counted on. All others are driven: their items are
taken and thrown away, and what comes of it is compared with the record (`state/iterators.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ..state.iterators import iterator_in
from .loaders import without_loading

SEQUENCES = (range, list, tuple, str, bytes)
SAMPLES: tuple[Any, ...] = (range(0), [], (), "", b"", range(2**70))
ITERATORS = tuple(type(iter(each)) for each in SAMPLES)
WRAPPERS = (enumerate, zip, reversed)


def can_position(kind: str, iterable: Any) -> bool:
    """Whether nothing but its place tells one iterator over `iterable` from another."""
    if kind == "while":
        return True
    if type(iterable) in (*SEQUENCES, *ITERATORS) or _is_array(iterable):
        return True
    if type(iterable) in WRAPPERS:
        return all(can_position(kind, part) for part in _parts(iterable))
    return False


def drive(flow: Iterator[Any], count: int) -> None:
    """Pass over `count` items of `runtime.context.flow_of`, without loading any data where that is possible."""
    if count > 0 and next(flow, flow) is not flow:
        with without_loading(iterator_in(flow)):
            next(itertools.islice(flow, count - 1, count - 1), None)


def _parts(wrapper: Any) -> tuple[Any, ...]:
    """The iterators that an enumerate, zip or reversed draws from."""
    arguments: tuple[Any, ...] = wrapper.__reduce__()[1]
    return arguments[:1] if isinstance(wrapper, (enumerate, reversed)) else arguments


def _is_array(iterable: Any) -> bool:
    module = type(iterable).__module__.partition(".")[0]
    return (module == "numpy" and type(iterable).__name__ == "ndarray") or (
        module == "torch" and type(iterable).__name__ in ("Tensor", "Size")
    )
