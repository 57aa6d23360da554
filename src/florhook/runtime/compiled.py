"""Tells whether torch.compile is reading the program right now: to its eyes a loop has no probes.

torch.compile (and torch.export) take torch's own `is_compiling` for a constant, so that what stands behind it is folded
away: no graph break, nothing to watch, nothing to compile again.

Things that don't work: the call in the rewritten code itself, as in `x if is_compiling() else loop(7, x)`, which would
hold every iterable twice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

is_compiling: Callable[[], bool] = bool  # without torch: False, as fast as Python can say it


def torch_is_there() -> None:
    """To be called once torch has been imported."""
    global is_compiling
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", bool)
