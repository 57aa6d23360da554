"""What goes between a store and its URL: finished rows and chunks up, runs and pack files down.

At the URL are `packs/far-DIGEST.pack`, each a pack file of some MB that never changes, and catalogs,
`runs/RUN.NUMBER-DIGEST.sqlite`, each of one run alone. Chunks go first, so that what a catalog names is there. A run
that goes on is uploaded again under the next number, and then the older ones are removed. DIGEST is that of what the
object holds, so that a torn one is not taken for whole. Small chunks (streams, sources) and large ones go into
different pack files, since much is asked of a run that needs the small ones only.

What was uploaded stands in `sent.sqlite` beside the catalog. One process at a time uploads (`upload.lock`), one stays
to do it again (`stay.lock`), and one fetches catalogs (`fetch.lock`). Chunks that others have uploaded are not counted
on: each store brings its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

from xxhash import xxh3_128

from florhook.errors import StoreError
from florhook.store import home as homes
from florhook.store import remote, schema
from florhook.store.bucket import PACKS, RUNS, Bucket
from florhook.store.catalog import connect, told
from florhook.store.coding import DELTA, RAW
from florhook.store.packs import MAGIC
from florhook.store.rows import split_digests
from florhook.store.store import Store

OBJECT = 8 << 20  # bytes of a pack file at the URL, where it holds more than one chunk
_SMALL = 1 << 16  # bytes of a chunk
_BLOCK = 1 << 20
_AT_ONCE = 8  # pack files that are fetched
_TRIES = 3  # where chunks are moved, or catalogs replaced, while they are read
_PERIOD_S = 10.0  # between uploads of a run that goes on,
_SHARE = 20  # or so many times what the last one took
_LOOK_S = 0.25  # how often it is looked whether a run has ended
_FIRST_RETRY_S, _LAST_RETRY_S = 2.0, 60.0
_GIVE_UP_S = 600.0  # that a URL cannot be reached, once no run goes on
_CATALOG = re.compile(r"([\w.-]+)\.(\d{6,})-([0-9a-f]{32})\.sqlite")
_PACK = re.compile(rf"{remote.FAR}[0-9a-f]{{32}}\.pack")
_SENT = """
CREATE TABLE IF NOT EXISTS chunks (
    digest BLOB PRIMARY KEY, pack TEXT NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL,
    codec INTEGER NOT NULL) WITHOUT ROWID;
-- so that no two stores give a pack file the same name
CREATE TABLE IF NOT EXISTS stores (salt BLOB NOT NULL);
-- ours: recorded in this store; whole: nothing will be added to it
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, object TEXT NOT NULL, ours INTEGER NOT NULL, whole INTEGER NOT NULL) WITHOUT ROWID;
-- by the catalogs of our runs
CREATE TABLE IF NOT EXISTS named (run TEXT NOT NULL, pack TEXT NOT NULL, PRIMARY KEY (run, pack)) WITHOUT ROWID;
"""


class _MovedError(StoreError):
    """A chunk is not where the catalog said: it has been moved or removed since."""


class _Chunk(NamedTuple):
    digest: bytes
    length: int  # bytes of the content
    pack: str
    offset: int
    size: int  # bytes in the file
    codec: int


@contextlib.contextmanager
def _sent(home: Path) -> Iterator[sqlite3.Connection]:
    """What was uploaded and fetched."""
    path = home / "sent.sqlite"
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with contextlib.closing(sqlite3.connect(path, timeout=60.0, isolation_level=None)) as db:
        db.executescript(_SENT)
        db.execute("INSERT INTO stores SELECT randomblob(16) WHERE NOT EXISTS (SELECT 1 FROM stores)")
        yield db


def _bucket(home: Path) -> Bucket:
    url = remote.url_of(home)
    if url is None:
        raise StoreError(f"{home} is a folder: there is nothing to upload to, and nothing to fetch from")
    return Bucket(url)


@contextlib.contextmanager
def _scratch(home: Path) -> Iterator[Path]:
    """A folder on the store's file system; `gc` removes one that was left behind."""
    (home / "runs").mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home / "runs") as folder:
        yield Path(folder)


def _uri(path: Path) -> str:
    return f"file:{quote(os.fsencode(path))}?mode=ro"


def _runs(home: Path) -> list[str]:
    if not homes.catalog_path(home).exists():
        return []
    with Store.open(home) as store:
        return [run.id for run in store.runs()]


def _live(home: Path) -> set[str]:
    """The runs that are being recorded."""
    return {lock.stem for lock in (home / "runs").glob("*.lock") if homes.is_live(home, lock.stem)}


def _catalogs(objects: Iterable[str]) -> dict[str, list[tuple[int, str, str]]]:
    """The catalogs at the URL by run, the newest first: number, digest, name."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    for name in objects:
        match = _CATALOG.fullmatch(name)
        if match:
            found.setdefault(match[1], []).append((int(match[2]), match[3], name))
    return {run: sorted(each, reverse=True) for run, each in found.items()}


def _digest(path: Path) -> str:
    digest = xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


# Up ----------------------------------------------------------------------------------------------------------


class Uploader:
    """Uploads what the runs of one store have."""

    def __init__(self, home: Path, sent: sqlite3.Connection, bytes_sent: dict[str, int]) -> None:
        """`bytes_sent` is counted up, by run."""
        self._home, self._sent, self._bytes_sent = home, sent, bytes_sent
        self._bucket = _bucket(home)

    def forget_what_is_gone(self) -> None:
        """Somebody may have emptied the bucket."""
        sizes = self._bucket.sizes(PACKS)
        ends = self._sent.execute("SELECT pack, max(offset + size) FROM chunks GROUP BY pack").fetchall()
        gone = [(pack,) for pack, end in ends if sizes.get(pack) != end]
        self._sent.executemany("DELETE FROM chunks WHERE pack = ?", gone)
        there = self._bucket.sizes(RUNS)
        known = self._sent.execute("SELECT object FROM runs WHERE ours").fetchall()
        self._sent.executemany(
            "DELETE FROM runs WHERE object = ?", [name for name in known if name[0] not in there]
        )

    def upload(self) -> bool:
        """One round over the runs; whether one is still being recorded."""
        done = {run for (run,) in self._sent.execute("SELECT id FROM runs WHERE whole OR NOT ours")}
        goes_on = False
        for run in _runs(self._home):
            if run not in done:
                live = homes.is_live(self._home, run)  # before its rows are read
                self._upload_run(run, not live)
                goes_on |= live
        return goes_on

    def _upload_run(self, run: str, whole: bool) -> None:
        for left in reversed(range(_TRIES)):
            try:
                with _scratch(self._home) as folder:
                    self._upload_copy(run, folder / "run.sqlite", whole)
                return
            except _MovedError as error:
                if not left:
                    raise StoreError(f"run {run} cannot be uploaded: {error}") from None

    def _upload_copy(self, run: str, path: Path, whole: bool) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, uri=True)) as db:
            if not _copy(db, self._home, run):
                return  # it was deleted
            self._upload_chunks(run, _unsent(db))
            _place(db)
            packs = [(run, name) for (name,) in db.execute("SELECT name FROM main.packs")]
        digest = _digest(path)
        sizes = self._bucket.sizes(RUNS)
        known = _catalogs(sizes).get(run, [])
        name = f"{run}.{known[0][0] + 1 if known else 1:06}-{digest}.sqlite"
        if known and known[0][1] == digest:
            name = known[0][2]
        if sizes.get(name) != path.stat().st_size:
            self._bucket.put_file(RUNS, name, path)
        self._bucket.remove(RUNS, [old for _, _, old in known if old != name])
        if run not in _runs(self._home):  # deleted meanwhile
            self._bucket.remove(RUNS, [name])
            return
        self._sent.execute("BEGIN")
        self._sent.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, 1, ?)", (run, name, whole))
        self._sent.execute("DELETE FROM named WHERE run = ?", (run,))
        self._sent.executemany("INSERT INTO named VALUES (?, ?)", packs)
        self._sent.execute("COMMIT")

    def _upload_chunks(self, run: str, chunks: Iterable[_Chunk]) -> None:
        """In pack files that hold chunks of one kind, small or large."""
        group: list[_Chunk] = []
        size = 0
        for chunk in chunks:
            full = size + chunk.size > OBJECT
            if group and (full or (group[0].size < _SMALL) != (chunk.size < _SMALL)):
                self._upload_pack(run, group)
                group, size = [], 0
            group.append(chunk)
            size += chunk.size
        if group:
            self._upload_pack(run, group)

    def _upload_pack(self, run: str, chunks: list[_Chunk]) -> None:
        (salt,) = self._sent.execute("SELECT salt FROM stores").fetchone()
        digest, end = xxh3_128(salt), len(MAGIC)
        places = []
        for chunk in chunks:
            # what it is a difference to goes its own way
            size, codec = (chunk.length, RAW) if chunk.codec & DELTA else (chunk.size, chunk.codec)
            places.append((chunk.digest, end, size, codec))
            digest.update(b"%b %d %d " % (chunk.digest, size, codec))
            end += size
        name = f"{remote.FAR}{digest.hexdigest()}.pack"
        if self._bucket.size(PACKS, name) != end:  # one that may be named already is never touched
            self._bucket.put(PACKS, name, self._blocks(chunks))
        self._sent.execute("BEGIN")
        rows = ((digest, name, *place) for digest, *place in places)
        self._sent.executemany("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?)", rows)
        self._sent.execute("COMMIT")
        self._bytes_sent[run] = self._bytes_sent.get(run, 0) + sum(chunk.size for chunk in chunks)
        _tell(self._home, None, self._bytes_sent)

    def _blocks(self, chunks: list[_Chunk]) -> Iterator[bytes | memoryview]:
        yield MAGIC
        for chunk in chunks:
            if chunk.codec & DELTA:
                yield self._content(chunk)
            else:
                yield from self._stored(chunk)

    def _stored(self, chunk: _Chunk) -> Iterator[bytes]:
        try:
            with open(homes.packs_path(self._home) / chunk.pack, "rb") as file:
                file.seek(chunk.offset)
                left = chunk.size
                while left:
                    block = file.read(min(left, _BLOCK))
                    if not block:
                        raise _MovedError(f"{chunk.digest.hex()} lies past the end of {chunk.pack}")
                    left -= len(block)
                    yield block
        except OSError as error:
            raise _MovedError(f"{chunk.pack}: {error.strerror}") from None

    def _content(self, chunk: _Chunk) -> bytes | memoryview:
        try:
            with Store.open(self._home) as store:
                return store.read(chunk.digest)
        except StoreError as error:
            raise _MovedError(str(error)) from None


def _copy(db: sqlite3.Connection, home: Path, run: str) -> bool:
    """Copies the rows of a run into an empty database, and lists its chunks; False where there is no such run."""
    schema.migrate(db, "the copy of a run")
    db.execute("UPDATE format SET applied = 0")  # equal runs are to be equal files
    db.execute("ATTACH ? AS store", (_uri(homes.catalog_path(home)),))
    db.execute("ATTACH ? AS sent", (_uri(home / "sent.sqlite"),))
    db.execute("BEGIN")
    found = db.execute("SELECT key FROM store.runs WHERE id = ?", (run,)).fetchone()
    if found is not None:
        _copy_rows(db, "store", "main", found[0], 1)
        db.execute("CREATE TEMP TABLE needed (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        db.execute("INSERT OR IGNORE INTO needed SELECT digest FROM main.sources")
        for (digests,) in db.execute("SELECT digests FROM main.checkpoints"):
            pieces = ((digest,) for digest in split_digests(digests))
            db.executemany("INSERT OR IGNORE INTO needed VALUES (?)", pieces)
        db.execute(
            "CREATE TEMP TABLE held AS SELECT digest, length, name, offset, size, codec, name LIKE 'far-%' AS far"
            " FROM needed JOIN store.chunks USING (digest) JOIN store.packs ON id = pack"
        )
    db.execute("COMMIT")
    return found is not None


def _copy_rows(db: sqlite3.Connection, source: str, target: str, key: int, new: int) -> None:
    """All rows of a run but its pins, in order, under another key; of tables and columns that both databases have."""
    for table in sorted(_tables(db, source) & _tables(db, target)):
        of_run = "key" if table == "runs" else "run"
        columns = sorted(_columns(db, source, table) & _columns(db, target, table) - {of_run})
        names = ", ".join(f'"{name}"' for name in columns)
        (sql,) = db.execute(f"SELECT sql FROM {source}.sqlite_master WHERE name = ?", (table,)).fetchone()
        order = "" if "WITHOUT ROWID" in sql else "ORDER BY rowid"
        db.execute(
            f"INSERT INTO {target}.{table} ({of_run}, {names})"
            f" SELECT ?, {names} FROM {source}.{table} WHERE {of_run} = ? {order}",
            (new, key),
        )


def _tables(db: sqlite3.Connection, schema_name: str) -> set[str]:
    """Those that have rows of runs."""
    names = db.execute(
        f"SELECT name FROM {schema_name}.sqlite_master WHERE type = 'table' AND name != 'pins'"
    )
    found = [name for (name,) in names.fetchall() if re.fullmatch(r"\w+", name)]
    return {name for name in found if name == "runs" or "run" in _columns(db, schema_name, name)}


def _columns(db: sqlite3.Connection, schema_name: str, table: str) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM pragma_table_info(?, ?)", (table, schema_name))}


def _unsent(db: sqlite3.Connection) -> list[_Chunk]:
    rows = db.execute(
        "SELECT digest, length, name, offset, size, codec FROM held"
        " WHERE NOT far AND digest NOT IN (SELECT digest FROM sent.chunks) ORDER BY size >= ?, name, offset",
        (_SMALL,),
    )
    return [_Chunk(*row) for row in rows]


def _place(db: sqlite3.Connection) -> None:
    """Says in the copy where the chunks are at the URL."""
    db.execute("BEGIN")
    db.execute(
        "CREATE TEMP TABLE placed AS SELECT digest, length, name, offset, size, codec FROM held WHERE far UNION ALL"
        " SELECT digest, length, there.pack, there.offset, there.size, there.codec"
        " FROM held JOIN sent.chunks AS there USING (digest) WHERE NOT far"
    )
    db.execute("INSERT INTO main.packs (name) SELECT DISTINCT name FROM placed ORDER BY name")
    db.execute(
        "INSERT INTO main.chunks (digest, length, pack, offset, size, codec)"
        " SELECT digest, length, id, offset, size, codec FROM placed JOIN main.packs USING (name)"
    )
    db.execute("COMMIT")


def _tell(home: Path, error: str | None, sent: dict[str, int]) -> None:
    draft = remote.status_path(home).with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({"error": error, "sent": sent, "pid": os.getpid()}))
    draft.replace(remote.status_path(home))


def stay(home: Path) -> None:
    """Uploads until no run is being recorded and nothing is left; for a while also where that cannot be."""
    with homes.alone(home, "stay.lock"):
        retry, failing, looked = _FIRST_RETRY_S, None, False
        bytes_sent: dict[str, int] = {}
        while True:
            began, live = time.monotonic(), _live(home)
            try:
                with told(home, "used"), homes.alone(home, "upload.lock"), _sent(home) as sent:
                    uploader = Uploader(home, sent, bytes_sent)
                    if not looked:
                        uploader.forget_what_is_gone()
                    goes_on = uploader.upload()
                _tell(home, None, bytes_sent)
                if not goes_on and not _live(home):
                    return
                retry, failing, looked = _FIRST_RETRY_S, None, True
                pause = max(_PERIOD_S, _SHARE * (time.monotonic() - began))
            except Exception as error:  # nobody else would hear of it
                failing, looked = failing or began, False
                if not live and began - failing > _GIVE_UP_S:
                    return
                pause, retry = retry, min(2 * retry, _LAST_RETRY_S)
                internal = f"internal error: {type(error).__name__}: {error}; please report it"
                _tell(home, str(error) if isinstance(error, StoreError) else internal, bytes_sent)
            _wait(home, live, pause)


def _wait(home: Path, live: set[str], pause: float) -> None:
    """Until a run has ended, but no longer than that."""
    deadline = time.monotonic() + pause
    while live <= _live(home) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def push(home: Path) -> Iterator[str]:
    """Uploads what there is; says what it was."""
    with told(home, "used"), homes.alone(home, "upload.lock", patient=False) as mine, _sent(home) as sent:
        if not mine:
            yield f"another process is uploading to {remote.shown(home)}"
            return
        bytes_sent: dict[str, int] = {}
        uploader = Uploader(home, sent, bytes_sent)
        uploader.forget_what_is_gone()
        goes_on = uploader.upload()
        yield f"{sum(bytes_sent.values()) / 1e6:.1f} MB uploaded to {remote.shown(home)}"
        if goes_on:
            yield "a run goes on: what it records from now on is uploaded later"


def withdraw(home: Path, runs: Iterable[str]) -> Iterator[str]:
    """Takes runs away from the URL, and the pack files that nothing names then; says which runs it leaves.

    Pack files stay for the time being where an upload is going on.
    """
    with told(home, "used"), homes.alone(home, "upload.lock", patient=False) as mine, _sent(home) as sent:
        bucket = _bucket(home)
        there = _catalogs(bucket.sizes(RUNS))
        for run in runs:
            found = sent.execute("SELECT ours FROM runs WHERE id = ?", (run,)).fetchone()
            if found is not None and not found[0]:
                yield f"run {run} was recorded in another store, and stays at {remote.shown(home)}"
            elif found is not None:
                bucket.remove(RUNS, [name for _, _, name in there.get(run, [])])
                sent.execute("DELETE FROM runs WHERE id = ?", (run,))
                sent.execute("DELETE FROM named WHERE run = ?", (run,))
        if mine:
            sent.execute(
                "ATTACH ? AS store", (str(homes.catalog_path(home)),)
            )  # what others' runs need of ours
            unnamed = sent.execute(
                "SELECT DISTINCT pack FROM chunks WHERE pack NOT IN (SELECT pack FROM named)"
                " AND pack NOT IN (SELECT name FROM store.packs)"
            ).fetchall()
            sent.executemany("DELETE FROM chunks WHERE pack = ?", unnamed)
            bucket.remove(PACKS, [pack for (pack,) in unnamed])


# Down --------------------------------------------------------------------------------------------------------


def refresh(home: Path) -> Iterator[str]:
    """Brings the catalogs of runs that are new at the URL; says of which that was not possible, and why."""
    with told(home, "used"), homes.alone(home, "fetch.lock"), _sent(home) as sent:
        bucket = _bucket(home)
        problems: dict[str, str] = {}
        for _ in range(_TRIES):
            there, mine = _catalogs(bucket.sizes(RUNS)), set(_runs(home))
            known = {
                run: (name, ours) for run, name, ours in sent.execute("SELECT id, object, ours FROM runs")
            }
            problems.clear()
            for run, catalogs in there.items():
                name, ours = known.get(run, ("", run in mine))
                if not ours and name != catalogs[0][2]:
                    problem = _bring(home, bucket, sent, run, catalogs)
                    if problem:
                        problems[run] = problem
            if not problems:
                break
        for run, problem in problems.items():
            yield f"run {run} at {remote.shown(home)} is left out: {problem}"


def _bring(
    home: Path, bucket: Bucket, sent: sqlite3.Connection, run: str, catalogs: list[tuple[int, str, str]]
) -> str | None:
    """Takes the newest whole catalog of a run over; what was in the way."""
    problem = None
    for _, digest, name in catalogs:
        with _scratch(home) as folder:
            path = folder / "run.sqlite"
            try:
                bucket.get(RUNS, name, path)
                if _digest(path) != digest:
                    raise StoreError(f"{name} is not whole")
                _merge(home, path, run)
            except StoreError as error:
                problem = problem or str(error)
                continue
            sent.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, 0, 0)", (run, name))
            return None
    return problem


def _merge(home: Path, path: Path, run: str) -> None:
    """Takes a catalog's rows over, in the place of those that the store has of the run."""
    with contextlib.closing(connect(homes.catalog_path(home))) as db:
        db.execute("PRAGMA trusted_schema = OFF")
        try:
            db.execute("ATTACH ? AS far", (str(path),))
            if db.execute("PRAGMA far.user_version").fetchone()[0] > schema.FORMAT:
                raise StoreError("a newer florhook has written it")
            found = db.execute("SELECT key FROM far.runs WHERE id = ?", (run,)).fetchone()
            packs = [name for (name,) in db.execute("SELECT name FROM far.packs")]
        except sqlite3.Error as error:
            raise StoreError(f"it cannot be read: {error}") from error
        if found is None or not all(_PACK.fullmatch(name) for name in packs):
            raise StoreError("it is no catalog of that run")
        db.execute("BEGIN IMMEDIATE")
        (key,) = db.execute("SELECT key FROM main.runs WHERE id = ?", (run,)).fetchone() or (
            db.execute("SELECT coalesce(max(key), 0) + 1 FROM main.runs").fetchone()
        )
        for table in _tables(db, "main"):
            db.execute(f"DELETE FROM main.{table} WHERE {'key' if table == 'runs' else 'run'} = ?", (key,))
        _copy_rows(db, "far", "main", found[0], key)
        db.execute("INSERT OR IGNORE INTO main.packs (name) SELECT name FROM far.packs")
        db.execute(
            "INSERT OR IGNORE INTO main.chunks (digest, length, pack, offset, size, codec)"
            " SELECT digest, length, here.id, offset, size, codec FROM far.chunks"
            " JOIN far.packs AS there ON there.id = pack JOIN main.packs AS here ON here.name = there.name"
        )
        db.execute("COMMIT")


def fetch(home: Path, names: Iterable[str]) -> None:
    """Brings pack files into the folder of those that were fetched."""
    with told(home, "used"):
        remote.fetched_path(home).mkdir(mode=0o700, exist_ok=True)
        bucket = _bucket(home)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda name: _fetch(home, bucket, name), names))


def _fetch(home: Path, bucket: Bucket, name: str) -> None:
    if not _PACK.fullmatch(name):
        raise StoreError(f"{name!r} is no name of a pack file at {remote.named(home)}")
    path = remote.fetched_path(home) / name
    if path.exists():
        return
    draft = path.with_name(f".{name}.{os.getpid()}")
    try:
        bucket.get(PACKS, name, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


COMMANDS: dict[str, Callable[[Path, list[str]], Iterable[str] | None]] = {
    "stay": lambda home, _: stay(home),
    "push": lambda home, _: push(home),
    "fetch": fetch,
    "refresh": lambda home, _: refresh(home),
    "withdraw": withdraw,
}
