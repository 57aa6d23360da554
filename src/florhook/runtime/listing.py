"""Which files were there when a run began, so that a replay can begin without those that the run made."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

MOST_FILES = 20_000
MOST_SECONDS = 0.05
SKIPPED = {".git", ".florhook", "__pycache__", "node_modules", ".venv", "venv"}


def files_below(folder: str, home: str) -> list[str] | None:
    """Paths of the files below a folder, relative to it; None if there are too many to look at."""
    found: list[str] = []
    until = time.perf_counter() + MOST_SECONDS
    for path in _walk(folder, os.path.realpath(home)):
        found.append(os.path.relpath(path, folder))
        if len(found) > MOST_FILES or time.perf_counter() > until:
            return None
    return found


def _walk(folder: str, home: str) -> Iterator[str]:
    for base, folders, names in os.walk(folder):
        folders[:] = [
            n for n in folders if n not in SKIPPED and os.path.realpath(os.path.join(base, n)) != home
        ]
        yield from (os.path.join(base, name) for name in names)


def as_row(listing: list[str] | None) -> bytes:
    return json.dumps(listing).encode()


def made_since(row: bytes | None, folder: str, home: str, started: float, ended: float | None) -> list[str]:
    """Absolute paths of the files that a run made and that are still as it left them."""
    before = json.loads(row) if row else None
    now = files_below(folder, home) if before is not None else None
    if before is None or now is None:
        return []
    made = []
    for name in set(now) - set(before):
        path = os.path.join(folder, name)
        try:
            changed = os.lstat(path).st_mtime
        except OSError:
            continue
        if changed >= started - 0.01 and (ended is None or changed <= ended + 2.0):
            made.append(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
    return made
