"""tqdm's progress bars: what depends on the clock is restored but never compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tqdm.std

from .attributes import getattr_dict
from .base import Registry
from .builtin import Instance

if TYPE_CHECKING:
    from ..restore import Loader
    from ..scan import Scan

CLOCK = frozenset(
    {"start_t", "last_print_t", "last_print_n", "miniters", "_ema_dn", "_ema_dt", "_ema_miniters"}
)


class ProgressBar(Instance):
    """A progress bar; what depends on the clock is restored but never compared."""

    name = "tqdm"

    def content(self, obj: Any, scan: Scan) -> tuple[Any, ...]:
        attributes = getattr_dict(obj) or {}
        kept = {name: value for name, value in attributes.items() if name not in CLOCK}
        clock = {
            name: value for name, value in attributes.items() if type(value) in (int, float) and name in CLOCK
        }
        scan.hint(obj, clock)
        return (tuple(kept.keys()), tuple(kept.values())), (), None

    def apply(self, obj: Any, content: tuple[Any, ...], loader: Loader) -> None:
        moving = {name: value for name, value in (getattr_dict(obj) or {}).items() if name in CLOCK}
        super().apply(obj, content, loader)
        vars(obj).update({**moving, **(loader.hint() or {})})


def register(registry: Registry) -> None:
    registry.add(ProgressBar(), tqdm.std.tqdm, derived=True)
