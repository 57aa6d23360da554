"""Compiles in silence: of what is wrong in a file Python warns once, however often we compile it.

Things that don't work: `warnings.catch_warnings`, which tells the warnings module that its filters have changed, so
that it forgets which warnings of the program it has shown.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FILTERS: list[Any] = [("ignore", None, category, None, 0) for category in (SyntaxWarning, DeprecationWarning)]


@contextmanager
def without_syntax_warnings() -> Iterator[None]:
    """Nothing is said of the sources that are compiled inside."""
    filters: Any = warnings.filters
    filters[:0] = FILTERS
    try:
        yield
    finally:
        for ours in FILTERS:
            if ours in filters:
                filters.remove(ours)
