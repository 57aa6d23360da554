"""Pins: what retention never removes, a run as a whole or single checkpoints of it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from florhook.errors import StoreError
from florhook.store import home as homes
from florhook.store.catalog import connect


def pin(home: Path, places: Iterable[tuple[str, int, int]]) -> None:
    """Pins checkpoints: (run, ctx, iteration), or (run, *WHOLE)."""
    sql = "INSERT OR REPLACE INTO pins SELECT key, ?, ? FROM runs WHERE id = ?"
    _change(home, sql, ((ctx, iteration, run) for run, ctx, iteration in places))


def unpin(home: Path, runs: Iterable[str]) -> None:
    """Takes all pins of runs away."""
    _change(
        home, "DELETE FROM pins WHERE run = (SELECT key FROM runs WHERE id = ?)", ((run,) for run in runs)
    )


def _change(home: Path, sql: str, rows: Iterable[tuple[object, ...]]) -> None:
    try:
        with contextlib.closing(connect(homes.catalog_path(home))) as db:
            db.executemany(sql, rows)
    except (sqlite3.Error, OSError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise StoreError(f"the store {home} cannot be changed: {reason}") from error
