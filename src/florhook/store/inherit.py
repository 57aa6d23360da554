"""What a run that continues another has of it: the rows up to the place at which it was taken up.

Chunks are content-addressed, so that the checkpoints' bytes are shared; only rows are copied, within the catalog. They
are signed anew for the new run where the user's key had signed them, and else stay unsigned.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from florhook.store.catalog import as_read
from florhook.store.rows import CheckpointRow

from ..dataclass import dataclass, field, replace

Rows = dict[str, list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Heritage:
    """How far a run's rows are taken over. Names of loops and ids of marks may be others in the new run's sources."""

    parent: str  # the run's id
    until: float  # seconds since the origin
    out: int  # characters of output
    open: dict[int, int] = field(
        default_factory=dict
    )  # loop executions that go on -> the iteration they are in
    sites: dict[str, str] = field(default_factory=dict)  # old name -> new name
    marks: dict[str, str] = field(default_factory=dict)  # old id -> new id

    def packed(self) -> tuple[Any, ...]:
        """As a message to the writer."""
        tables = (self.open, self.sites, self.marks)
        return (self.parent, self.until, self.out, *(tuple(table.items()) for table in tables))

    @classmethod
    def unpacked(cls, *message: Any) -> Heritage:
        """The opposite."""
        parent, until, out, *tables = message
        return cls(parent, until, out, *(dict(table) for table in tables))


def inherited(
    db: sqlite3.Connection, heritage: Heritage, sign: Callable[[CheckpointRow, bytes], bytes]
) -> Rows:
    """The rows of the new run, by table; `sign(row, mac)` gives a checkpoint's MAC for the new run."""
    found = db.execute("SELECT key FROM runs WHERE id = ?", (heritage.parent,)).fetchone()
    key = found[0]
    contexts = list(_contexts(db, key, heritage))
    kept = {row[0] for row in contexts}
    return {
        "sources": list(_states(db, key)),
        "contexts": contexts,
        "iterations": [row for row in _iterations(db, key, heritage) if row[0] in kept],
        "output": list(_output(db, key, heritage.out)),
        "files": list(_files(db, key, heritage.until)),
        "logged": list(_logged(db, key, heritage)),
        "checkpoints": [row for row in _checkpoints(db, key, heritage, sign) if row[0] in kept],
    }


def _states(db: sqlite3.Connection, key: int) -> Iterator[tuple[Any, ...]]:
    """Random states and the listing of files, which no module's name stands for; modules are recorded anew."""
    for module, path, digest in db.execute(
        "SELECT module, path, digest FROM sources WHERE run = ? ORDER BY rowid", (key,)
    ):
        if as_read((module,))[0].startswith("<"):
            yield module, path, digest


def _contexts(db: sqlite3.Connection, key: int, heritage: Heritage) -> Iterator[tuple[Any, ...]]:
    sql = (
        'SELECT ctx, parent, iteration, site, nth, entered, out, "left", out_left, iterations, exit, marks, entry'
        " FROM contexts WHERE run = ? AND entered <= ? ORDER BY ctx"
    )
    for row in db.execute(sql, (key, heritage.until)):
        ctx, parent, iteration, site, nth, entered, out, left, out_left, begun, how, marks, entry = as_read(
            row
        )
        if site not in heritage.sites:
            continue  # the edited program has no such loop
        if ctx in heritage.open:
            left, out_left, begun, how = None, None, None, ""
        site, marks = heritage.sites[site], _translated(marks, heritage.marks)
        yield ctx, parent, iteration, site, nth, entered, out, left, out_left, begun, how, marks, entry


def _iterations(db: sqlite3.Connection, key: int, heritage: Heritage) -> Iterator[tuple[Any, ...]]:
    sql = "SELECT ctx, iteration, began, out, marks, labels FROM iterations WHERE run = ? AND began <= ?"
    for row in db.execute(sql, (key, heritage.until)):
        ctx, iteration, began, out, marks, labels = as_read(row)
        if iteration < heritage.open.get(ctx, iteration + 1):
            yield ctx, iteration, began, out, _translated(marks, heritage.marks), labels


def _output(db: sqlite3.Connection, key: int, out: int) -> Iterator[tuple[int, str]]:
    sql = "SELECT position, text FROM output WHERE run = ? AND position < ? ORDER BY rowid"
    for position, text in db.execute(sql, (key, out)):
        yield position, as_read((text,))[0][: out - position]


def _files(db: sqlite3.Connection, key: int, until: float) -> Iterator[tuple[Any, ...]]:
    sql = "SELECT path, how, at, size, changed FROM files WHERE run = ? AND at <= ? ORDER BY rowid"
    for row in db.execute(sql, (key, until)):
        yield as_read(row)


def _logged(db: sqlite3.Connection, key: int, heritage: Heritage) -> Iterator[tuple[Any, ...]]:
    sql = (
        "SELECT at, out, out_after, loops, via, head, place, text, named FROM logged"
        " WHERE run = ? AND at <= ? ORDER BY rowid"
    )
    for row in db.execute(sql, (key, heritage.until)):
        at, out, out_after, loops, *what = as_read(row)
        around = [[heritage.sites.get(site, site), *where] for site, *where in json.loads(loops)]
        yield at, out, min(out_after, heritage.out), json.dumps(around), *what


def _checkpoints(
    db: sqlite3.Connection, key: int, heritage: Heritage, sign: Callable[[CheckpointRow, bytes], bytes]
) -> Iterator[tuple[Any, ...]]:
    sql = (
        "SELECT ctx, iteration, taken, out, meta, digests, lengths, streams, seals, mac"
        " FROM checkpoints WHERE run = ? AND taken <= ? ORDER BY rowid"
    )
    for row in db.execute(sql, (key, heritage.until)):
        head, (digests, lengths, streams, seals, mac) = as_read(row[:5]), row[5:]
        checkpoint = replace(
            CheckpointRow(*head),
            digests=_split(digests, 16),
            lengths=tuple(array("Q", lengths)),
            streams=tuple(array("Q", streams)),
            seals=_split(seals, 32),
        )
        yield (*head, digests, lengths, streams, seals, sign(checkpoint, mac))


def _translated(marks: str, names: dict[str, str]) -> str:
    return ",".join(names[mark] for mark in marks.split(",") if mark in names)


def _split(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + size] for at in range(0, len(data), size))
