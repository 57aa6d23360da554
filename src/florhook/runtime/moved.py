"""What a replayed program knows of where it lies: its folder, if that was moved or copied, and the lines of its files.

A path that is computed again leads to the folder of now, and a line below what was added has another number. Nothing is
wrong with either, and both are told apart from what the program computed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import PurePath
from typing import Any

NUMBER = re.compile(r"lineno(?:'\])?$")  # the path to a line's number: `.lineno`, `['co_firstlineno']`
PLACE = re.compile(r'(?<=", line )(\d+)')  # in the text of a traceback


class Moved:
    """Knows the run's folder and that of now, and which lines of the record a line of now may be."""

    def __init__(self, folders: tuple[str, str] | None, recorded: Callable[[int], Collection[int]]) -> None:
        self._recorded = recorded
        self._new = self._old = None
        if folders is not None and folders[0] != folders[1]:
            self._new = folders[1]
            self._old = re.compile(rf"(?<![\w/.-]){re.escape(folders[0])}(?![\w.-])")

    def are_both(self, path: str, was: Any, now: Any) -> bool:
        """Whether a value of the run and the replay's value in its place say the same of where the program lies."""
        if type(was) is not type(now):
            return False
        if type(now) is int:
            return NUMBER.search(path) is not None and self._is_line(was, now)
        if isinstance(now, PurePath):
            was, now = str(was), str(now)
        if type(now) is bytes:
            was, now = os.fsdecode(was), os.fsdecode(now)
        return isinstance(now, str) and self._say_the_same(was, now)

    def _say_the_same(self, was: str, now: str) -> bool:
        if self._old is not None:
            new = self._new or ""
            was = self._old.sub(lambda _: new, was)
        before, after = PLACE.split(was), PLACE.split(now)
        return before[::2] == after[::2] and all(
            self._is_line(int(one), int(other)) for one, other in zip(before[1::2], after[1::2], strict=True)
        )

    def _is_line(self, was: int, now: int) -> bool:
        return was == now or was in self._recorded(now)
