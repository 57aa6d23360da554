"""Loggers: what they remember of levels is no state, nor is whom they lead to. And what was logged, where it is kept.

Imported only once logging is.
"""

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
CHANCE = ("created", "msecs", "relativeCreated", "process", "thread")  # of a record: another in each process
MANAGER = "manager"  # knows every logger of the process, of which libraries make hundreds


class Logger(Instance):
    """A logger; the levels that it was asked for are forgotten, and the process's other loggers are not its own."""

    name = "Logger"

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        items, slots, cls = super().content(obj, scan)
        mine = [
            (name, value)
            for name, value in zip(*items or ((), ()), strict=True)
            if not _is_common(name, value)
        ]
        return tuple(zip(*mine, strict=True)) or ((), ()), slots, cls

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        cache = (getattr_dict(obj) or {}).get(CACHE, {})
        super().apply(obj, content, loader)
        cache.clear()
        vars(obj)[CACHE] = cache
        if obj is not logging.root:
            vars(obj).setdefault(MANAGER, logging.Logger.manager)


class LogRecord(Instance):
    """What was logged. Its times, and the numbers of process and thread, are restored but never compared."""

    name = "LogRecord"

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        items, slots, cls = super().content(obj, scan)
        if items is None:
            return items, slots, cls
        names, values = items
        found = {each: value for each, value in zip(names, values, strict=True) if _is_chance(each, value)}
        scan.hint(obj, found)
        return (
            (names, tuple(None if each in found else value for each, value in zip(*items, strict=True))),
            slots,
            cls,
        )

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        super().apply(obj, content, loader)
        vars(obj).update(loader.hint() or {})  # they have their places already


def _is_chance(name: str, value: Any) -> bool:
    return name in CHANCE and type(value) in (int, float)


def _is_common(name: str, value: Any) -> bool:
    return name == CACHE or (name == MANAGER and value is logging.Logger.manager)


def register(registry: Registry) -> None:
    registry.add(Logger(), logging.Logger, derived=True)
    registry.add(LogRecord(), logging.LogRecord, derived=True)
