"""Contexts of decimal numbers."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any

from .base import Kind, Registry

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan


class DecimalContext(Kind):
    """Precision, rounding, traps and flags of decimal numbers. A print may raise flags, so they are not compared."""

    name, how = "decimal.Context", "in place"

    def shell(self, obj: decimal.Context, scan: Scan) -> type:
        return type(obj)

    def create(self, spec: Any, loader: Loader) -> decimal.Context:
        return decimal.Context()

    def content(self, obj: decimal.Context, scan: Scan) -> Any:
        numbers = (obj.prec, obj.rounding, obj.Emin, obj.Emax, obj.capitals, obj.clamp)
        scan.hint(obj, tuple(s for s, on in obj.flags.items() if on))
        return numbers, tuple(s for s, on in obj.traps.items() if on)

    def apply(self, obj: decimal.Context, content: Any, loader: Loader) -> None:
        numbers, *flags, traps = content  # runs of before have the flags there
        obj.prec, obj.rounding, obj.Emin, obj.Emax, obj.capitals, obj.clamp = numbers
        for signals, on in ((obj.flags, loader.hint() or (flags[0] if flags else ())), (obj.traps, traps)):
            for signal in signals:
                signals[signal] = signal in on


def register(registry: Registry) -> None:
    registry.add(DecimalContext(), decimal.Context)
