"""`queue.SimpleQueue`, which is written in C and shows its items to the garbage collector only."""

from __future__ import annotations

import _queue
import gc
import sys
from typing import TYPE_CHECKING, Any

from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class SimpleQueue(Kind):
    """Its items. Taking them out to look would let a thread that waits have them in another order."""

    name, how = "SimpleQueue", "in place"

    def create(self, spec: Any, loader: Loader) -> Any:
        return _queue.SimpleQueue()

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        size, held = obj.qsize(), gc.get_referents(obj)[:-1]  # the last one is its type
        # Until Python 3.12 they stand in one list, whose first places are empty after a `get`.
        items = held if sys.version_info >= (3, 13) else held[0]
        return tuple(items[len(items) - size :])

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        while not obj.empty():
            obj.get_nowait()
        for item in content:
            obj.put(item)


def register(registry: Registry) -> None:
    registry.add(SimpleQueue(), _queue.SimpleQueue)
