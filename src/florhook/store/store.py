"""Reads a store. Nothing here unpickles: what comes out is rows and bytes."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from florhook.descriptors import moved_up
from florhook.errors import StoreError
from florhook.store import home as homes
from florhook.store import keys, remote, schema
from florhook.store.catalog import as_read
from florhook.store.packs import ChunkRow, DamagedError, read_chunk
from florhook.store.rows import (
    CheckpointRow,
    ContextRow,
    FileRow,
    IterationRow,
    LoggedRow,
    RunRow,
    SourceRow,
)

from ..dataclass import replace

_MOST_OPEN = 32
FILES = 2  # the format that has a table of files
RETENTION = 3  # the format that has tables of pins and deltas
LOGGED = 4  # the format that has a table of what was logged
WHOLE = (-1, -1)  # a pin: all checkpoints of the run
_P = ParamSpec("_P")
_T = TypeVar("_T")
_RUN = "id, program, argv, cwd, started, meta, ended, exit_code, stats, lost, signed"
_CONTEXT = 'ctx, parent, iteration, site, nth, entered, out, "left", out_left, iterations, exit, marks, entry'
_PLACE = "SELECT name, digest, length, pack, offset, size, codec FROM chunks JOIN packs ON id = pack WHERE digest = ?"
_CHECKPOINT = "ctx, iteration, taken, out, meta, digests, lengths, streams, seals, mac"


def _named(method: Callable[Concatenate[Store, _P], _T]) -> Callable[Concatenate[Store, _P], _T]:
    """Tells a damaged catalog in one line."""

    def call(self: Store, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise StoreError(f"the store {self.home} cannot be read: {error}") from error

    call.__doc__ = method.__doc__
    call.__name__ = method.__name__
    return call


class Store:
    """A store, opened for reading."""

    def __init__(self, home: Path, db: sqlite3.Connection) -> None:
        self.home = home
        self._db = db
        self._key = keys.load_key()
        self._trust = False
        self._is_remote = homes.is_remote(home)
        self._files: OrderedDict[str, int] = OrderedDict()
        self._sealed: dict[bytes, bytes] = {}  # streams found to be signed, by digest

    @classmethod
    def open(cls, home: str | os.PathLike[str], untouched: bool = False, trust: bool = False) -> Store:
        """Opens the store in that folder; StoreError when there is none, or none that can be read.

        `trust`: whoever has signed it.
        `untouched`: without making the files beside the catalog that SQLite shares among processes, where none are.
        """
        path = Path(home).absolute()
        try:
            homes.catalog_path(path).stat()
        except OSError as error:
            raise StoreError(f"there is no store in {path}: {error.strerror}") from None
        try:
            store = cls(path, _connect(homes.catalog_path(path), untouched))
        except sqlite3.Error as error:
            raise StoreError(f"the store {path} cannot be read: {error}") from error
        try:
            store._check()
            store._trust = trust
        except BaseException:
            store.close()
            raise
        return store

    @_named
    def _check(self) -> None:
        if schema.check(self._db, str(self.home)) == 0:
            raise StoreError(f"the store {self.home} is empty")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its files."""
        self._db.close()
        while self._files:
            os.close(self._files.popitem()[1])

    @property
    def connection(self) -> sqlite3.Connection:
        """To the catalog, for reading."""
        return self._db

    @_named
    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        rows = self._db.execute(f"SELECT {_RUN} FROM runs ORDER BY started, key")
        return [_run_row(row) for row in rows]

    def find(self, which: str, program: str | None = None) -> RunRow:
        """The run with that id or unique prefix, or the `last` one; of that program only, where one is named.

        A run of several ranks is found as its rank 0, unless another one's full id is given.
        """
        runs = [run for run in self.runs() if run.rank == 0 or run.id == which]
        if which == "last":
            mine = [run for run in runs if program in (None, run.program)]
            if not mine:
                raise StoreError(
                    f"no run of {program} in {self.home}" if program else f"no run in {self.home}"
                )
            return mine[-1]
        matches = [run for run in runs if run.id.startswith(which)]
        for choice in (
            [run for run in matches if run.id == which],
            matches,
            [run for run in matches if run.program == program],
        ):
            if len(choice) == 1:
                return choice[0]
        if not matches:
            raise StoreError(f"no run {which!r} in {self.home}")
        names = ", ".join(run.id for run in matches[:4]) + (", ..." if len(matches) > 4 else "")
        raise StoreError(f"{which!r} names {len(matches)} runs: {names}")

    def is_live(self, run: RunRow | str) -> bool:
        """Whether a writer is still at the run."""
        return homes.is_live(self.home, _id(run))

    def wait(self, run: RunRow | str, timeout: float) -> bool:
        """Waits until the writer of the run has gone; whether it has."""
        return homes.wait(self.home, _id(run), timeout)

    @_named
    def sources(self, run: RunRow | str) -> list[SourceRow]:
        """The instrumented modules, in the order of import."""
        rows = self._select("module, path, digest", "sources", run, "rowid")
        found = [(*as_read(row[:2]), row[2]) for row in rows]
        self.fetch(digest for *_, digest in found)
        return [SourceRow(module, path, bytes(self.read(digest))) for module, path, digest in found]

    @_named
    def source_digests(self, run: RunRow | str) -> list[tuple[str, bytes]]:
        """The names of the modules and states, each with the digest of its content, in the same order."""
        rows = self._select("module, digest", "sources", run, "rowid")
        return [(str(as_read(row[:1])[0]), row[1]) for row in rows]

    @_named
    def contexts(self, run: RunRow | str) -> list[ContextRow]:
        """The loop executions, in the order of their numbers."""
        return [ContextRow(*as_read(row)) for row in self._select(_CONTEXT, "contexts", run, "ctx")]

    @_named
    def iterations(self, run: RunRow | str) -> list[IterationRow]:
        """The iterations, by context."""
        columns = "ctx, iteration, began, out, marks, labels"
        return [
            IterationRow(*as_read(row)) for row in self._select(columns, "iterations", run, "ctx, iteration")
        ]

    @_named
    def checkpoints(self, run: RunRow | str, pieces: bool = True) -> list[CheckpointRow]:
        """The checkpoints, in the order of taking; `pieces=False` leaves out what grows with their number."""
        columns = _CHECKPOINT if pieces else "ctx, iteration, taken, out, meta"
        return [_checkpoint_row(row) for row in self._select(columns, "checkpoints", run, "rowid")]

    @_named
    def checkpoint(self, run: RunRow | str, ctx: int, iteration: int) -> CheckpointRow:
        """One checkpoint, complete."""
        sql = (
            f"SELECT {_CHECKPOINT} FROM checkpoints WHERE run = (SELECT key FROM runs WHERE id = ?)"
            " AND ctx = ? AND iteration = ?"
        )
        row = self._db.execute(sql, (_id(run), ctx, iteration)).fetchone()
        if row is None:
            raise StoreError(f"run {_id(run)} has no checkpoint of loop {ctx} at {iteration}")
        return _checkpoint_row(row)

    @_named
    def files(self, run: RunRow | str) -> list[FileRow]:
        """The files that the program opened, in order; none in a store of the first format."""
        if schema.format_of(self._db) < FILES:
            return []
        rows = self._select("path, how, at, size, changed", "files", run, "rowid")
        return [FileRow(*as_read(row)) for row in rows]

    @_named
    def output(self, run: RunRow | str) -> list[tuple[int, str]]:
        """The output, as (characters before, text)."""
        rows = self._select("position, text", "output", run, "rowid")
        return [(position, *as_read((text,))) for position, text in rows]

    @_named
    def logged(self, run: RunRow | str) -> list[LoggedRow]:
        """What the program handed to libraries that log, in order; nothing in a store of an older format."""
        if schema.format_of(self._db) < LOGGED:
            return []
        columns = "at, out, out_after, loops, via, head, place, text, named"
        return [LoggedRow(*as_read(row)) for row in self._select(columns, "logged", run, "rowid")]

    def state_at(self, row: CheckpointRow) -> tuple[bytes, bytes, Callable[[int], bytes | memoryview]]:
        """The stream and the table of a checkpoint, and what reads its leaves by number."""
        stream, table, *leaves = row.digests
        return bytes(self.read(stream)), bytes(self.read(table)), lambda index: self.read(leaves[index])

    @_named
    def read(self, digest: bytes) -> bytes | memoryview:
        """The bytes with that digest, checked; StoreError when they are not there or damaged."""
        before = None
        while True:
            name, chunk = self._find(digest)
            try:
                content = read_chunk(self._file(name), chunk, lambda: self._base(digest))
                break
            except (DamagedError, OSError, ValueError) as error:
                if before == (name, chunk):
                    raise StoreError(
                        f"the store {self.home} is damaged: {digest.hex()} in {name} {error}"
                    ) from None
            before = name, chunk  # it may have been moved meanwhile
        if digest in self._sealed and keys.seal(content) != self._sealed[digest]:
            raise StoreError(f"the store {self.home} was changed: {digest.hex()} in {name}")
        return content

    @_named
    def fetch(self, digests: Iterable[bytes]) -> None:
        """Brings what `read` will ask for, where it is at a URL and not here yet."""
        if not self._is_remote:
            return
        names = {row[0] for digest in digests if (row := self._db.execute(_PLACE, (digest,)).fetchone())}
        wanted = [name for name in names if name.startswith(remote.FAR) and not self._path(name).exists()]
        if wanted:
            remote.fetch(self.home, sorted(wanted))

    def _find(self, digest: bytes) -> tuple[str, ChunkRow]:
        row = self._db.execute(_PLACE, (digest,)).fetchone()
        if row is None:
            raise StoreError(f"{digest.hex()} is not in the store {self.home}, or not any more")
        return row[0], ChunkRow(*row[1:])

    def _base(self, digest: bytes) -> bytes | memoryview:
        """The content that a chunk was XORed with."""
        row = self._db.execute("SELECT base FROM deltas WHERE digest = ?", (digest,)).fetchone()
        return b"" if row is None else self.read(row[0])

    @_named
    def pins(self, run: RunRow | str) -> set[tuple[int, int]]:
        """What is never thinned out: (ctx, iteration), or WHOLE."""
        if schema.format_of(self._db) < RETENTION:
            return set()
        return set(self._select("ctx, iteration", "pins", run, "ctx"))

    def trusted(self, run: RunRow | str, checkpoint: CheckpointRow) -> bool:
        """Whether this user's key signed the checkpoint and its streams; `read` holds them to it from then on.

        Always, where the store was opened as one to trust. What is at a URL is brought, since it is wanted next.
        """
        self.fetch(checkpoint.digests)
        if self._trust:
            return True
        if self._key is None or not keys.is_signed(self._key, _id(run), checkpoint):
            return False
        for index, expected in zip(checkpoint.streams, checkpoint.seals, strict=True):
            digest = checkpoint.digests[index]
            if keys.seal(self.read(digest)) != expected:
                return False
            self._sealed[digest] = expected
        return True

    def _select(self, columns: str, table: str, run: RunRow | str, order: str) -> sqlite3.Cursor:
        sql = (
            f"SELECT {columns} FROM {table} WHERE run = (SELECT key FROM runs WHERE id = ?) ORDER BY {order}"
        )
        return self._db.execute(sql, (_id(run),))

    def _path(self, name: str) -> Path:
        far = name.startswith(remote.FAR)
        return (remote.fetched_path(self.home) if far else homes.packs_path(self.home)) / name

    def _file(self, name: str) -> int:
        if name not in self._files:
            if Path(name).name != name:
                raise OSError(errno.EINVAL, "is no name of a pack file")
            if len(self._files) >= _MOST_OPEN:
                os.close(self._files.popitem(last=False)[1])
            if self._is_remote and name.startswith(remote.FAR) and not self._path(name).exists():
                remote.fetch(self.home, [name])
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
            self._files[name] = moved_up(descriptor)
        self._files.move_to_end(name)
        return self._files[name]


def settle(home: str | os.PathLike[str], timeout: float) -> bool:
    """Waits until the writers of all ended programs are done, so that a store opened now shows everything."""
    return homes.settle(Path(home).absolute(), timeout)


def _connect(path: Path, untouched: bool) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?mode=ro"
    log = path.with_name(path.name + "-wal")
    if untouched and not (log.exists() and log.stat().st_size):
        return _probed(f"{uri}&immutable=1")
    try:
        return _probed(uri)
    except sqlite3.OperationalError:
        # A log cannot be opened where nothing may be written; without it the last commits are not seen.
        return _probed(f"{uri}&immutable=1")


def _probed(uri: str) -> sqlite3.Connection:
    db = sqlite3.connect(uri, uri=True, timeout=30.0, isolation_level=None, check_same_thread=False)
    try:
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        db.close()
        raise
    return db


def _id(run: RunRow | str) -> str:
    return run if isinstance(run, str) else run.id


def _run_row(row: tuple[Any, ...]) -> RunRow:
    identity, program, argv, cwd, started, meta, ended, exit_code, stats, lost, signed = as_read(row)
    return RunRow(
        identity,
        program,
        tuple(json.loads(argv)),
        cwd,
        started,
        json.loads(meta),
        ended,
        exit_code,
        json.loads(stats),
        lost,
        bool(signed),
    )


def _checkpoint_row(row: tuple[Any, ...]) -> CheckpointRow:
    if len(row) == 5:
        return CheckpointRow(*as_read(row))
    digests, lengths, streams, seals, mac = row[5:]
    return replace(
        CheckpointRow(*as_read(row[:5])),
        digests=_split(digests, 16),
        lengths=tuple(array("Q", lengths)),
        streams=tuple(array("Q", streams)),
        seals=_split(seals, 32),
        mac=mac,
    )


def _split(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + size] for at in range(0, len(data), size))
