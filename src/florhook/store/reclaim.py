"""Gives the room of dropped checkpoints back: rows first, in one lasting transaction, then the files.

Pack files are never changed where somebody may read them: what is still needed is copied into a new file, the catalog
is told, and the old one is unlinked. A process that is killed in between leaves a file, or the tail of one, that no row
names; the next `gc` finds it. What removes chunks or files does it under `home.collecting`, and never touches the
files of a run that is being recorded by another process.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from florhook.store import home as homes
from florhook.store.census import Census, Pack
from florhook.store.packs import ChunkRow, DamagedError, PackWriter, read_stored

Coded = tuple[bytes | memoryview, int, bytes | None]  # bytes, codec, what they are a difference to
_LARGE = 1 << 16  # bytes
_OF_A_RUN = ("sources", "contexts", "iterations", "output", "files", "logged", "checkpoints", "pins")


@contextlib.contextmanager
def lasting(db: sqlite3.Connection) -> Iterator[None]:
    """A transaction that a power cut does not take back, as the files that it speaks of will be gone."""
    (before,) = db.execute("PRAGMA synchronous").fetchone()
    db.execute("PRAGMA synchronous = FULL")
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # a full disk has ended it already
                    db.execute("ROLLBACK")
            raise
    finally:
        db.execute(f"PRAGMA synchronous = {before}")


def remove(db: sqlite3.Connection, census: Census, runs: Iterable[int] = ()) -> list[bytes]:
    """Within a transaction: takes what the census has dropped out of the catalog; the digests of lost chunks."""
    keys = [(kept.run, kept.ctx, kept.iteration) for kept in census.dropped]
    db.executemany("DELETE FROM checkpoints WHERE run = ? AND ctx = ? AND iteration = ?", keys)
    for run in runs:
        for table in _OF_A_RUN:
            db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
        db.execute("DELETE FROM runs WHERE key = ?", (run,))
    digests = census.settle()
    for table in ("chunks", "deltas"):
        db.executemany(f"DELETE FROM {table} WHERE digest = ?", ((digest,) for digest in digests))
    if digests:
        db.execute("UPDATE removals SET count = count + 1")
    return digests


def wasteful(census: Census, worth: Callable[[Pack, int], bool]) -> list[Pack]:
    """The pack files to write anew, those that give most back for it first; `worth(pack, bytes of all)`."""
    chosen, size = [], sum(pack.size for pack in census.packs.values())
    ours = [pack for pack in census.packs.values() if pack.ours and (pack.dead or not pack.chunks)]
    for pack in sorted(ours, key=lambda pack: pack.live / (pack.dead + 1)):
        if not pack.chunks or worth(pack, size):
            chosen.append(pack)
            size -= pack.size - (pack.live if pack.chunks else 0)
    return chosen


def rewrite(
    db: sqlite3.Connection,
    home: Path,
    packs: PackWriter,
    pack: Pack,
    recode: Callable[[ChunkRow, memoryview], Coded] | None = None,
) -> bool:
    """Moves what is in a pack file to another one; False where it cannot be read, and stays as it is."""
    path = homes.packs_path(home) / pack.name
    moved: list[tuple[ChunkRow, bytes | None]] = []
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if pack.chunks else -1
        try:
            for chunk in sorted(pack.chunks, key=lambda chunk: chunk.offset):
                stored = read_stored(fd, chunk)
                data, codec, base = (stored, chunk.codec, None) if recode is None else recode(chunk, stored)
                moved.append((packs.put(chunk.digest, chunk.length, data, codec), base))
                if len(data) > _LARGE:
                    packs.flush()  # else it stays in memory
        finally:
            if fd >= 0:
                os.close(fd)
    except (FileNotFoundError, DamagedError):
        return False
    packs.sync()
    with lasting(db):
        db.executemany(
            "UPDATE chunks SET pack = ?, offset = ?, size = ?, codec = ? WHERE digest = ?",
            ((new.pack, new.offset, new.size, new.codec, new.digest) for new, _ in moved),
        )
        db.executemany(
            "INSERT OR REPLACE INTO deltas VALUES (?, ?)",
            ((new.digest, base) for new, base in moved if base is not None),
        )
        db.execute("DELETE FROM packs WHERE id = ?", (pack.number,))
    path.unlink(missing_ok=True)
    return True
