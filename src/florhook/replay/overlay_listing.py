"""What os.scandir gives for a folder that lies in both layers: an iterator of entries like os.DirEntry."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

Stat = Callable[[str, bool], os.stat_result]


class Entry:
    """One file of a listing. It remembers its first answers, as os.DirEntry does."""

    __slots__ = ("_followed", "_plain", "_stat", "_where", "name", "path")

    def __init__(self, name: Any, path: Any, where: str, stat_of: Stat) -> None:
        self.name = name
        self.path = path
        self._where = where
        self._stat = stat_of
        self._plain: os.stat_result | None = None
        self._followed: os.stat_result | None = None

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if self._plain is None:
            self._plain = self._stat(self._where, False)
        if not follow_symlinks or not stat.S_ISLNK(self._plain.st_mode):
            return self._plain
        if self._followed is None:
            self._followed = self._stat(self._where, True)
        return self._followed

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        return stat.S_ISLNK(self._mode(False))

    def is_junction(self) -> bool:
        return False

    def _mode(self, follow: bool) -> int:
        try:
            return self.stat(follow_symlinks=follow).st_mode
        except FileNotFoundError:
            return 0


class Listing:
    """An iterator over entries that can be closed and used in a with statement."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Listing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())
