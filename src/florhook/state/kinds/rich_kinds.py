"""rich's progress bars: what depends on the clock, and was drawn by it, is never compared.

Imported only once the program has imported rich's bars.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rich.live_render import LiveRender
from rich.progress import ProgressColumn, Task

from .attributes import getattr_dict
from .base import Registry
from .builtin import Instance

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

Moving = Mapping[str, Callable[[], Any]]
NUMBERS = (int, float, type(None))
SAMPLES = 1000  # that a task keeps, of rich


class Drawn(Instance):
    """A part of a progress bar: what depends on the clock is not compared; what was drawn is drawn anew."""

    def __init__(self, name: str, moving: Moving) -> None:
        """`moving` gives for each attribute that depends on the clock what stands there if no number does."""
        self.name, self.moving = name, moving

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        items, slots, cls = super().content(obj, scan)
        pairs = list(zip(*items, strict=True)) if items is not None else []
        kept = [pair for pair in pairs if pair[0] not in self.moving]
        moving = {name: value for name, value in pairs if name in self.moving}
        numbers = {name: value for name, value in moving.items() if type(value) in NUMBERS}
        scan.hint(obj, (tuple(moving), numbers))
        return (tuple(name for name, _ in kept), tuple(value for _, value in kept)), slots, cls

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        super().apply(obj, content, loader)
        attributes = getattr_dict(obj)
        if attributes is not None:
            names, numbers = loader.hint() or (self.moving, {})
            attributes.update({name: self.moving[name]() for name in names})
            attributes.update(numbers)


TASK: Moving = {
    "start_time": lambda: None,
    "stop_time": lambda: None,
    "finished_time": lambda: None,
    "finished_speed": lambda: None,
    "_progress": lambda: deque(maxlen=SAMPLES),
}
COLUMN: Moving = {
    "_renderable_cache": dict,
    "_update_time": lambda: None,
    "_tasks": dict,
}  # the last is Lightning's
DRAWING: Moving = {"_shape": lambda: None, "renderable": str}


def register(registry: Registry) -> None:
    registry.add(Drawn("rich task", TASK), Task, derived=True)
    registry.add(Drawn("rich column", COLUMN), ProgressColumn, derived=True)
    registry.add(Drawn("rich drawing", DRAWING), LiveRender, derived=True)
