"""The catalog: one SQLite file that says what is in the store. This is the writer's side of it.

The transaction of a checkpoint comes after the fsync of its chunks, so whatever the catalog names can be read. With
WAL and synchronous=NORMAL a commit survives the death of any process; a power cut may take the last commits, whole.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from florhook.errors import StoreError
from florhook.store import schema
from florhook.store.packs import ChunkRow
from florhook.store.rows import split_digests

if TYPE_CHECKING:
    from florhook.store.inherit import Heritage
    from florhook.store.rows import CheckpointRow

_PATIENCE_S = 60.0  # for the transactions of other writers, which are short


def _insert(table: str, columns: int) -> str:
    return f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * columns)})"


_INSERTS = {
    "chunks": _insert("chunks", 6),
    "sources": _insert("sources", 4),
    "contexts": _insert("contexts", 14),
    "iterations": _insert("iterations", 7),
    "output": _insert("output", 3),
    "files": _insert("files", 6),
    "logged": _insert("logged", 10),
    "checkpoints": _insert("checkpoints", 11),
}
DIGEST_OF_SOURCE, DIGESTS_OF_CHECKPOINT = 2, 5  # where they stand in the rows of a batch
# what a recording may add rows to
ROWS = frozenset(("sources", "contexts", "iterations", "output", "files", "logged"))


class Catalog:
    """The connection of one writer, for one run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = connect(path)
        self._identity = os.stat(path)
        self._run = 0
        self._removals = self._count_removals()

    @property
    def connection(self) -> sqlite3.Connection:
        """For `limit.py`."""
        return self._db

    def _count_removals(self) -> int:
        return int(self._db.execute("SELECT count FROM removals").fetchone()[0])

    def begin_run(self, row: tuple[Any, ...], signed: bool) -> None:
        """Adds the run: (id, program, argv, cwd, started, meta)."""
        sql = "INSERT INTO runs (id, program, argv, cwd, started, meta, signed) VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._run = int(self._db.execute(sql, (*map(as_stored, row), signed)).lastrowid or 0)

    def end_run(self, ended: float, exit_code: int | None, stats: str) -> None:
        """The program has said goodbye."""
        self._look_for_the_file()
        self._db.execute(
            "UPDATE runs SET ended = ?, exit_code = ?, stats = ? WHERE key = ?",
            (ended, exit_code, stats, self._run),
        )

    def lose_run(self, when: float) -> None:
        """The program has gone without a goodbye."""
        self._db.execute("UPDATE runs SET lost = ? WHERE key = ?", (when, self._run))

    def add_pack(self, name: str) -> int:
        """Gives the number of a new pack file."""
        return int(self._db.execute("INSERT INTO packs (name) VALUES (?)", (name,)).lastrowid or 0)

    def find_chunk(self, digest: bytes) -> tuple[str, ChunkRow] | None:
        """The chunk with that digest, of whatever run, and the name of its file."""
        sql = (
            "SELECT name, digest, length, pack, offset, size, codec FROM chunks JOIN packs ON id = pack"
            " WHERE digest = ?"
        )
        row = self._db.execute(sql, (digest,)).fetchone()
        return None if row is None else (row[0], ChunkRow(*row[1:]))

    def inherited(
        self, heritage: Heritage, sign: Callable[[CheckpointRow, bytes], bytes]
    ) -> dict[str, list[tuple[Any, ...]]]:
        """The rows that the run has of the one it continues; see `inherit.py`."""
        from florhook.store.inherit import inherited

        return inherited(self._db, heritage, sign)

    def commit(self, batch: dict[str, list[tuple[Any, ...]]]) -> set[bytes]:
        """Writes rows of several tables in one transaction; all but chunks get the run in front.

        Where chunks that the rows need have been removed meanwhile, nothing is written, and their digests come back.
        """
        self._look_for_the_file()
        try:
            return self._commit(batch, lambda value: value)
        except UnicodeEncodeError:
            return self._commit(batch, as_stored)

    def _commit(self, batch: dict[str, list[tuple[Any, ...]]], convert: Callable[[Any], Any]) -> set[bytes]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            missing = self._missing(batch) if self._count_removals() != self._removals else set()
            if missing:
                self._db.execute("ROLLBACK")
                return missing
            for table, sql in _INSERTS.items():
                front = () if table == "chunks" else (self._run,)
                self._db.executemany(sql, ((*front, *map(convert, row)) for row in batch.get(table, ())))
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # a full disk has ended it already
                    self._db.execute("ROLLBACK")
            raise
        return set()

    def _missing(self, batch: dict[str, list[tuple[Any, ...]]]) -> set[bytes]:
        needed = {row[DIGEST_OF_SOURCE] for row in batch.get("sources", ())}
        for row in batch.get("checkpoints", ()):
            needed.update(split_digests(row[DIGESTS_OF_CHECKPOINT]))
        needed.difference_update(row[0] for row in batch.get("chunks", ()))
        sql = "SELECT 1 FROM chunks WHERE digest = ?"
        return {digest for digest in needed if self._db.execute(sql, (digest,)).fetchone() is None}

    def _look_for_the_file(self) -> None:
        # A file that was removed, or whose mount has gone, can be written to for ever, and nobody will find it.
        try:
            found = os.path.samestat(os.stat(self._path), self._identity)
        except OSError:
            found = False
        if not found:
            raise StoreError(f"{self._path} is not there any more")

    def close(self) -> None:
        """Moves the log into the catalog, so that a read-only copy of the folder is complete, and closes."""
        try:
            # Who waits for a reader here keeps all other writers waiting.
            self._db.execute("PRAGMA busy_timeout = 0")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError:
            pass  # the next writer does it
        self._db.close()


@contextlib.contextmanager
def told(home: Path, what: str) -> Iterator[None]:
    """What goes wrong with a store that is to be used or changed (`what`), in one line."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"the store {home} cannot be {what}: {error}") from error
    except OSError as error:
        raise StoreError(f"the store {home} cannot be {what}: {error.strerror}: {error.filename}") from error


def connect(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
    schema.check(db, str(path.parent))
    db.execute(f"PRAGMA synchronous = {'NORMAL' if _use_wal(db) else 'FULL'}")
    schema.migrate(db, str(path.parent))
    return db


def _use_wal(db: sqlite3.Connection) -> bool:
    # Two writers that create the store at once: SQLite does not wait here, whatever its timeout.
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            # some network filesystems have none
            return bool(db.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def as_stored(value: Any) -> Any:
    """Text that is no Unicode (file names, surrogate escapes in output) is stored as bytes."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def as_read(row: Iterable[Any]) -> tuple[Any, ...]:
    """The opposite, for the text columns of a row."""
    return tuple(
        value.decode("utf-8", "surrogatepass") if isinstance(value, bytes) else value for value in row
    )
