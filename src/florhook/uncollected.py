"""Stretches in which the garbage collector would look again and again, and find nothing: walks, imports of our own."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """For what makes many objects at once, none of them garbage.

    In the main thread only: a walk of the state there asks whether the collector is on.
    """
    is_on = gc.isenabled() and threading.get_ident() == threading.main_thread().ident
    if is_on:
        gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()
