"""Turns registrations of others into kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...registration import Registration, registrations
from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class InPlace(Kind):
    """Made empty where it is new, then written to."""

    how, late = "in place", 2  # `write` may look into what the state consists of

    def __init__(self, told: Registration) -> None:
        self.told, self.name = told, told.name

    def create(self, spec: Any, loader: Loader) -> Any:
        return self.told.make()

    def content(self, obj: Any, scan: Scan) -> Any:
        return scan.once(obj, self.told.read)

    def apply(self, obj: Any, content: Any, loader: Loader) -> None:
        self.told.write(obj, content)  # type: ignore[misc]


class ByValue(Kind):
    """Made from its state, once that has its content."""

    how, reads = "by value", True

    def __init__(self, told: Registration) -> None:
        self.told, self.name = told, told.name

    def shell(self, obj: Any, scan: Scan) -> Any:
        return (scan.once(obj, self.told.read),)

    def create(self, spec: Any, loader: Loader) -> Any:
        return self.told.make(*spec)

    def content(self, obj: Any, scan: Scan) -> Any:
        return scan.once(obj, self.told.read)


def take_over(registry: Registry) -> None:
    """Add what was registered since the last call."""
    while registrations:
        told = registrations.pop(0)
        kind = ByValue(told) if told.write is None else InPlace(told)
        registry.add(kind, told.cls, derived=told.subclasses)
