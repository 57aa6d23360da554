"""The tables of the catalog, as named migrations: each is applied once, all in one transaction.

FORMAT is the number of migrations. A store of a newer format is refused, an older one is brought up to date by the
next recording into it (reading needs no change of the file: every format up to FORMAT can be read).
"""

from __future__ import annotations

import contextlib
import sqlite3
import time

from florhook.errors import StoreError

MIGRATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "first",
        (
            "CREATE TABLE format (number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied REAL NOT NULL)",
            """CREATE TABLE runs (
                key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, program TEXT NOT NULL, argv TEXT NOT NULL,
                cwd TEXT NOT NULL, started REAL NOT NULL, meta TEXT NOT NULL, ended REAL, exit_code INTEGER,
                stats TEXT NOT NULL DEFAULT '{}', lost REAL, signed INTEGER NOT NULL)""",
            """CREATE TABLE sources (
                run INTEGER NOT NULL, module TEXT NOT NULL, path TEXT NOT NULL, digest BLOB NOT NULL)""",
            "CREATE INDEX sources_of_run ON sources (run)",
            """CREATE TABLE contexts (
                run INTEGER NOT NULL, ctx INTEGER NOT NULL, parent INTEGER NOT NULL, iteration INTEGER NOT NULL,
                site TEXT NOT NULL, nth INTEGER NOT NULL, entered REAL NOT NULL, out INTEGER NOT NULL,
                "left" REAL, out_left INTEGER, iterations INTEGER, exit TEXT NOT NULL, marks TEXT NOT NULL,
                entry TEXT NOT NULL, PRIMARY KEY (run, ctx)) WITHOUT ROWID""",
            """CREATE TABLE iterations (
                run INTEGER NOT NULL, ctx INTEGER NOT NULL, iteration INTEGER NOT NULL, began REAL NOT NULL,
                out INTEGER NOT NULL, marks TEXT NOT NULL, labels TEXT NOT NULL,
                PRIMARY KEY (run, ctx, iteration)) WITHOUT ROWID""",
            "CREATE TABLE output (run INTEGER NOT NULL, position INTEGER NOT NULL, text TEXT NOT NULL)",
            "CREATE INDEX output_of_run ON output (run)",
            """CREATE TABLE checkpoints (
                run INTEGER NOT NULL, ctx INTEGER NOT NULL, iteration INTEGER NOT NULL, taken REAL NOT NULL,
                out INTEGER NOT NULL, meta TEXT NOT NULL, digests BLOB NOT NULL, lengths BLOB NOT NULL,
                streams BLOB NOT NULL, seals BLOB NOT NULL, mac BLOB NOT NULL, UNIQUE (run, ctx, iteration))""",
            "CREATE TABLE packs (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
            """CREATE TABLE chunks (
                digest BLOB PRIMARY KEY, length INTEGER NOT NULL, pack INTEGER NOT NULL, offset INTEGER NOT NULL,
                size INTEGER NOT NULL, codec INTEGER NOT NULL) WITHOUT ROWID""",
        ),
    ),
    (
        "files",
        (
            """CREATE TABLE files (
                run INTEGER NOT NULL, path TEXT NOT NULL, how TEXT NOT NULL, at REAL NOT NULL, size INTEGER NOT NULL,
                changed INTEGER NOT NULL)""",
            "CREATE INDEX files_of_run ON files (run)",
        ),
    ),
    (
        "retention",
        (
            """CREATE TABLE pins (
                run INTEGER NOT NULL, ctx INTEGER NOT NULL, iteration INTEGER NOT NULL,
                PRIMARY KEY (run, ctx, iteration)) WITHOUT ROWID""",
            "CREATE TABLE deltas (digest BLOB PRIMARY KEY, base BLOB NOT NULL) WITHOUT ROWID",
            "CREATE TABLE removals (count INTEGER NOT NULL)",  # how often chunks were removed
            "INSERT INTO removals VALUES (0)",
        ),
    ),
    (
        "logged",
        (
            """CREATE TABLE logged (
                run INTEGER NOT NULL, at REAL NOT NULL, out INTEGER NOT NULL, out_after INTEGER NOT NULL,
                loops TEXT NOT NULL, via TEXT NOT NULL, head TEXT NOT NULL, place TEXT NOT NULL, text TEXT NOT NULL,
                named TEXT NOT NULL)""",
            "CREATE INDEX logged_of_run ON logged (run)",
        ),
    ),
)
FORMAT = len(MIGRATIONS)


def format_of(db: sqlite3.Connection) -> int:
    """The format number of an open catalog; 0 for an empty file."""
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def check(db: sqlite3.Connection, name: str) -> int:
    """The format number; StoreError when it is newer than what this florhook reads."""
    number = format_of(db)
    if number > FORMAT:
        raise StoreError(
            f"{name} was written by a newer florhook (format {number}); this one reads up to {FORMAT}"
        )
    return number


def migrate(db: sqlite3.Connection, name: str) -> None:
    """Brings an open catalog to FORMAT."""
    if check(db, name) == FORMAT:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for number in range(check(db, name), FORMAT):  # again, as another writer may have been first
            title, statements = MIGRATIONS[number]
            for statement in statements:
                db.execute(statement)
            db.execute("INSERT INTO format VALUES (?, ?, ?)", (number + 1, title, time.time()))
            db.execute(f"PRAGMA user_version = {number + 1}")
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):  # a full disk has ended it already
            db.execute("ROLLBACK")
        raise
