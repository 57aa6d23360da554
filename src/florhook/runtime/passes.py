"""A loop that was rewritten for a replay, run as the plain loop that it is: one pass over all of it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from ..frames import users_frame


class Passes:
    """Takes the calls of the injected code.

    Keeps of each open loop, by site and frame, what `open` was given, whether it began, and whether it ended without
    break.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], list[Any]] = {}

    def open(self, site: int, *arguments: Any) -> None:
        """The first argument is the iterable; a `while` has none, and asks for none."""
        self._open[site, id(users_frame(sys._getframe(1)))] = [arguments[:1], False, False]

    def segment(self, site: int) -> bool:
        found = self._open.get((site, id(users_frame(sys._getframe(1)))))
        if found is None or found[1]:
            return False
        found[1] = True
        return True

    def restoring(self, site: int) -> bool:
        return False

    def items(self, site: int) -> Any:
        found = self._open[site, id(users_frame(sys._getframe(1)))]
        (iterable,), found[0] = found[0], ()
        return iterable

    def step(self, site: int, frame: FrameType | None = None) -> bool:
        return True

    def enough(self, site: int) -> bool:
        return False

    def done(self, site: int) -> None:
        """The loop ended without break. It may have been opened in another form, and have no entry yet."""
        self._open.setdefault((site, id(users_frame(sys._getframe(1)))), [(), True, False])[2] = True

    def executes(self, statement: int) -> bool:
        return True

    def after(self, statement: int) -> None:
        pass

    def completed(self, site: int) -> bool:
        found = self._open.get((site, id(users_frame(sys._getframe(1)))))
        return found is not None and found[2]

    def shown_labels(self) -> list[tuple[str, Any]]:
        return []

    def found(self, text: str) -> None:
        pass

    def leave(self, site: int, frame: FrameType | None = None) -> None:
        self._open.pop((site, id(frame or users_frame(sys._getframe(1)))), None)
