"""Ranks of one launch take the same checkpoints: a replay can only use those that all of them have.

Each rank measures other times, so that each budget would decide differently. Rank 0 decides for all, always one
occasion ahead: at a boundary for the next boundary, at a loop's entry for its next entry. Ranks that work in step wait
for each other in between, in a collective operation, so that the others find the decision when they come there. Nobody
waits for it: what is not found was decided against.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from pathlib import Path

from ..descriptors import low_ones_reserved

SLOTS = 1 << 16
SIZE = 8  # bytes of a slot, which holds the digest of what was decided for


class Agreement:
    """A file that all ranks have mapped."""

    def __init__(self, path: Path, leads: bool) -> None:
        self.path, self.leads = path, leads
        with low_ones_reserved(), open(path, "a+b") as file:  # a mapping keeps a descriptor of its own
            os.ftruncate(file.fileno(), SLOTS * SIZE)
            self._table = mmap.mmap(file.fileno(), SLOTS * SIZE)

    def settle(self, local: bool, what: str, now: int, then: int, first: bool) -> bool:
        """What holds for the occasion `now`; `local` is what this rank's budget would say.

        `first`: nobody can have decided for it before.
        """
        if self.leads and local:
            place, digest = self._slot(f"{what} {then}")
            self._table[place : place + SIZE] = digest
        if first:
            return local
        place, digest = self._slot(f"{what} {now}")
        return self._table[place : place + SIZE] == digest

    @staticmethod
    def _slot(what: str) -> tuple[int, bytes]:
        digest = hashlib.blake2b(what.encode("utf-8", "surrogateescape"), digest_size=SIZE).digest()
        return int.from_bytes(digest[:4], "little") % SLOTS * SIZE, digest

    def close(self) -> None:
        """The run is over: nobody comes to look for the file any more."""
        if self.leads:
            with contextlib.suppress(OSError):
                self.path.unlink()
