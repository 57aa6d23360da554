"""Loggers: what they remember of levels is no state. Imported only once the program has imported logging."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from .attributes import getattr_dict
from .base import Registry
from .builtin import Instance

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

CACHE = "_cache"  # by level: whether it is enabled, as far as it was asked for


class Logger(Instance):
    """A logger; the levels that it was asked for are forgotten."""

    name = "Logger"

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        items, slots, cls = super().content(obj, scan)
        if items is not None:
            items = tuple(
                zip(
                    *((name, value) for name, value in zip(*items, strict=True) if name != CACHE), strict=True
                )
            )
        return items or ((), ()), slots, cls

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        cache = (getattr_dict(obj) or {}).get(CACHE, {})
        super().apply(obj, content, loader)
        cache.clear()
        vars(obj)[CACHE] = cache


def register(registry: Registry) -> None:
    registry.add(Logger(), logging.Logger, derived=True)
