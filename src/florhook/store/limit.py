"""`--max-bytes` while a run is recorded: after each commit the store is thinned to where the next one fits.

Room is made ahead, for as much as the largest commit so far has written, so that the newest checkpoint is durable
before any older one goes. Runs that have ended are thinned as well, as soon as they hold more than this one; of the
others that are being recorded nothing is touched.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from florhook.store import home as homes
from florhook.store.census import Census, bytes_of_packs
from florhook.store.packs import LARGEST, PackWriter
from florhook.store.reclaim import lasting, remove, rewrite, wasteful

_FILES = 32  # pack files that fill the limit: the smaller they are, the less has to be moved
_SLACK = 16  # one part in so many is given back beyond what is needed, so that it is not done at each commit


class Limit:
    """Keeps the store of one writer below a number of bytes."""

    def __init__(self, max_bytes: int, home: Path, run: str) -> None:
        self._max, self._home, self._run = max_bytes, home, run
        self.group = max_bytes // _FILES  # bytes that are committed at once
        self._written = self._most_written = 0

    def shape(self, packs: PackWriter) -> None:
        """Lets pack files be as large as fits the limit."""
        packs.largest = min(LARGEST, self.group)

    def keep(self, db: sqlite3.Connection, packs: PackWriter) -> list[bytes]:
        """After a commit: makes room for the next. Gives the digests of chunks that are not there any more."""
        self._most_written = max(self._most_written, packs.written - self._written)
        try:
            if bytes_of_packs(self._home) + self._most_written <= self._max:
                return []
            with homes.collecting(self._home, patient=False) as mine:
                return self._thin(db, packs) if mine else []
        finally:
            self._written = packs.written

    def _thin(self, db: sqlite3.Connection, packs: PackWriter) -> list[bytes]:
        packs.close()  # so that this file can be moved like others; the next chunk begins another one
        goal = max(0, self._max - self._most_written)
        slack = self._max // _SLACK
        with lasting(db):
            census = Census(db, self._home, self._is_busy)
            if census.needed() > goal - slack:
                census.thin(goal - 2 * slack)
            gone = remove(db, census)
        for pack in wasteful(census, lambda pack, size: size > goal - slack):
            rewrite(db, self._home, packs, pack)
        return gone

    def _is_busy(self, run: str) -> bool:
        return run != self._run and homes.is_live(self._home, run)

    def problem(self) -> str | None:
        """What to say if the limit is not kept."""
        used = bytes_of_packs(self._home)
        if used <= self._max:
            return None
        return (
            f"the store takes {used} bytes, more than --max-bytes {self._max}: what is left are the first, the last "
            "and pinned checkpoints, and runs that others record"
        )
