"""The folder of a store: its layout, its permissions, and the locks by which others see a run being written.

.gitignore  catalog.sqlite  packs/RUN-N.pack  runs/RUN.lock (held by the writer until all is committed)
gc.lock (held by who removes chunks or pack files, for moments)  replays/ID/ (what a replay wrote)
logs/RUN/REPLAY.jsonl (what it printed)  logs/RUN/REPLAY.json (how it went)

Where it stands for a URL (remote.py), also: remote (the URL)  fetched/far-DIGEST.pack  sent.sqlite  upload.json
upload.lock  stay.lock  fetch.lock
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path


def catalog_path(home: Path) -> Path:
    """Where the catalog is."""
    return home / "catalog.sqlite"


def rewritten_path(home: Path) -> Path:
    """Where modules are kept that were rewritten once (`hook/kept.py`); nothing is lost with them."""
    return home / "rewritten"


def packs_path(home: Path) -> Path:
    """Where the pack files are."""
    return home / "packs"


def is_remote(home: Path) -> bool:
    """Whether the folder stands for a URL."""
    return (home / "remote").exists()


def lock_path(home: Path, run_id: str) -> Path:
    """The file that is locked while the run is being written."""
    return home / "runs" / f"{run_id}.lock"


def prepare(home: Path, run_id: str) -> int:
    """Makes the folders and gives the locked descriptor of the run. OSError when that cannot be."""
    for folder in (home, packs_path(home), home / "runs"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ignore = home / ".gitignore"
    if not ignore.exists():
        _write(ignore, b"*\n", os.O_TRUNC)
    # The training process takes the lock and the writer inherits it: there is no moment between the two at which
    # the run looks finished.
    fd = os.open(lock_path(home, run_id), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, b"%d\n" % os.getpid())
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write(path: Path, data: bytes, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def is_live(home: Path, run_id: str) -> bool:
    """Whether a writer still has the run."""
    try:
        fd = os.open(lock_path(home, run_id), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def collecting(home: Path, patient: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Keeps others from removing chunks or pack files; gives False where one is at it and we are not patient."""
    return alone(home, "gc.lock", patient)


@contextlib.contextmanager
def alone(home: Path, lock: str, patient: bool = True) -> Iterator[bool]:
    """Holds a lock file; gives False where another process has it and we are not patient."""
    fd = os.open(home / lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if patient else fcntl.LOCK_NB))
            mine = True
        except BlockingIOError:
            mine = False
        yield mine
    finally:
        os.close(fd)


def wait(home: Path, run_id: str, timeout: float) -> bool:
    """Waits until the writer of the run has gone; whether it has."""
    deadline = time.monotonic() + timeout
    while is_live(home, run_id):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def settle(home: Path, timeout: float) -> bool:
    """Waits for the writers whose training process has ended; those of programs that still run are let be."""
    deadline = time.monotonic() + timeout
    return all(
        wait(home, lock.stem, max(0.0, deadline - time.monotonic()))
        for lock in sorted((home / "runs").glob("*.lock"))
        if not _trains(lock)
    )


def _trains(lock: Path) -> bool:
    try:
        pid = int(lock.read_text())
    except (OSError, ValueError):
        return False
    return Path(f"/proc/{pid}").exists()
