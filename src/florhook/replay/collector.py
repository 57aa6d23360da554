"""The garbage collector while a replay starts, which importing large libraries is noticeably slowed down by.

It finds little then: modules are made to stay. So until the first long loop it looks less often, and whoever asks how
often is told what was set.
"""

from __future__ import annotations

import gc

RARELY = 20_000  # objects made between two collections; Python's own number is 700 (2,000 from 3.13 on)


class RareCollections:
    """From `begin` to `end`; the program's own setting ends it, too."""

    def __init__(self) -> None:
        self._own: tuple[int, int, int] | None = None

    def begin(self) -> None:
        own = gc.get_threshold()
        if not 0 < own[0] < RARELY:
            return
        self._own = own
        self._functions = gc.get_threshold, gc.set_threshold
        gc.get_threshold, gc.set_threshold = self._get_threshold, self._set_threshold
        self._functions[1](RARELY, *own[1:])

    def end(self) -> None:
        """Collect as often as plainly."""
        if self._own is None:
            return
        gc.get_threshold, gc.set_threshold = self._functions
        gc.set_threshold(*self._own)
        self._own = None

    def _get_threshold(self) -> tuple[int, int, int]:
        return self._functions[0]() if self._own is None else self._own

    def _set_threshold(self, *thresholds: int) -> None:
        self.end()
        self._functions[1](*thresholds)
