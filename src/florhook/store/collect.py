"""`florhook gc`: removes what no run needs, thins the runs to a limit, makes pack files smaller.

Everything is decided by a census of the catalog; a dry run stops there.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import stat
import time
from collections import Counter
from pathlib import Path

from florhook.errors import RefusedError
from florhook.store import home as homes
from florhook.store import remote
from florhook.store.catalog import connect, told
from florhook.store.census import Census, Pack, owner_of, size_of
from florhook.store.compact import neighbours, recoder
from florhook.store.packs import PackWriter
from florhook.store.reclaim import lasting, remove, rewrite, wasteful
from florhook.store.store import Store

from ..dataclass import dataclass, field, replace

LEFT_OVER_S = 7 * 86400.0  # seconds since its last change, after which a replay's folder or a lock is removed
COMPACT = "compact"
_AT_ONCE = 1 << 28  # bytes of pack files that are rewritten while others wait
_DEAD_SHARE = 8  # pack files are written anew where one byte in so many is needed by nobody


@dataclass(frozen=True)
class Request:
    """What is to be done."""

    home: Path
    max_bytes: int | None = None
    delete: tuple[str, ...] = ()  # ids of runs
    compact: bool = False


@dataclass
class Report:
    """What was done, or would be."""

    before: int = 0  # bytes of pack files
    after: int = 0
    deleted: list[str] = field(default_factory=list)
    thinned: dict[str, tuple[int, int]] = field(default_factory=dict)  # checkpoints dropped, of how many
    chunks: int = 0
    left: list[Path] = field(default_factory=list)  # files and folders of nobody
    left_bytes: int = 0
    compacted: int = 0  # pack files

    @property
    def freed(self) -> int:
        """Bytes given back, or to be given back without what compaction saves."""
        return self.before - self.after + self.left_bytes


def plan(request: Request) -> Report:
    """What `collect` would do. Changes nothing."""
    with Store.open(request.home, untouched=True) as store, told(request.home, "changed"):
        census, _, report = _decide(store.connection, request)
        report.chunks = len(census.settle())
        _without_tails(census)
        for pack in _to_rewrite(census, request):
            census.packs[pack.number].size = pack.live if pack.chunks else 0
        report.after = _size(census)
        report.compacted = len(_uncompacted(census)) if request.compact else 0
        _left_over(request.home, store.connection, report)
    return report


def collect(request: Request) -> Report:
    """Does it. StoreError where the store cannot be changed."""
    if request.compact and request.max_bytes is not None:  # what was made smaller need not be dropped
        first = collect(replace(request, max_bytes=None))
        second = collect(replace(request, delete=(), compact=False))
        return replace(first, after=second.after, thinned=second.thinned, chunks=first.chunks + second.chunks)
    Store.open(request.home).close()  # says whether there is one
    with told(request.home, "changed"), contextlib.closing(connect(homes.catalog_path(request.home))) as db:
        with homes.collecting(request.home):
            with lasting(db):
                census, runs, report = _decide(db, request)
                report.chunks = len(remove(db, census, runs))
            for pack in _without_tails(census):
                os.truncate(homes.packs_path(request.home) / pack.name, pack.size)
            _left_over(request.home, db, report)
            _remove_files(report)
        _rewrite(db, request, report)
        with contextlib.suppress(sqlite3.OperationalError):  # others are at it: another time
            if runs:
                db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        report.after = _size(_census(db, request.home))
    return report


def _census(db: sqlite3.Connection, home: Path) -> Census:
    return Census(db, home, functools.cache(functools.partial(homes.is_live, home)))


def _size(census: Census) -> int:
    return sum(pack.size for pack in census.packs.values())


def _decide(db: sqlite3.Connection, request: Request) -> tuple[Census, list[int], Report]:
    """The census less what goes, the keys of the runs that go, and the report so far."""
    census = _census(db, request.home)
    report = Report(before=_size(census), deleted=list(request.delete))
    runs = [key for key, name in census.runs.items() if name in request.delete]
    for run in runs:
        if run in census.busy:
            raise RefusedError(f"run {census.runs[run]} is being recorded")
        if run in census.pinned or any(kept.pinned for kept in census.checkpoints if kept.run == run):
            raise RefusedError(f"run {census.runs[run]} is pinned; florhook unpin lets it go")
        census.drop_run(run)
    before = Counter(kept.run for kept in census.checkpoints)
    gone = len(census.dropped)
    if request.max_bytes is not None:
        census.thin(request.max_bytes)
    for run, count in Counter(kept.run for kept in census.dropped[gone:]).items():
        report.thinned[census.runs[run]] = count, before[run]
    return census, runs, report


def _without_tails(census: Census) -> list[Pack]:
    """The pack files with a tail that no row names, as a crash leaves it; counted without."""
    found = [pack for pack in census.packs.values() if pack.ours and pack.chunks and pack.size > pack.end]
    for pack in found:
        pack.size = pack.end
    return found


def _to_rewrite(census: Census, request: Request) -> list[Pack]:
    limit = request.max_bytes
    return wasteful(
        census,
        lambda pack, size: pack.dead * _DEAD_SHARE >= pack.size or (limit is not None and size > limit),
    )


def _uncompacted(census: Census) -> list[Pack]:
    return [
        pack
        for pack in census.packs.values()
        if pack.ours and pack.chunks and not pack.name.startswith(COMPACT)
    ]


def _rewrite(db: sqlite3.Connection, request: Request, report: Report) -> None:
    """Some pack files at a time: others may remove chunks in between, so that each time it is looked anew."""
    done: set[int] = set()
    while _rewrite_some(db, request, done, report):
        pass


def _rewrite_some(db: sqlite3.Connection, request: Request, done: set[int], report: Report) -> bool:
    with homes.collecting(request.home):
        census = _census(db, request.home)
        packs = _to_rewrite(census, request)
        compact = (
            [pack for pack in _uncompacted(census) if pack.number not in done] if request.compact else []
        )
        packs = [pack for pack in (compact or packs) if pack.number not in done]
        if not packs:
            return False
        kind = COMPACT if compact else "gc"
        writer = PackWriter(
            homes.packs_path(request.home),
            f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}",
            lambda name: int(db.execute("INSERT INTO packs (name) VALUES (?)", (name,)).lastrowid or 0),
        )
        bases = neighbours(db, census.bases) if compact else {}
        with Store.open(request.home) as store, contextlib.closing(writer):
            size = 0
            for pack in packs:
                if size < _AT_ONCE:
                    rewrite(db, request.home, writer, pack, recoder(store.read, bases) if compact else None)
                    done.add(pack.number)
                    size += pack.size
                    report.compacted += bool(compact)
    return True


# What is left of crashed writers and of replays that are over ------------------------------------------------


def _left_over(home: Path, db: sqlite3.Connection, report: Report) -> None:
    """Pack files, replayed lines, old locks and folders of old replays that no run knows; what was fetched long ago."""
    packs = [
        path for path in homes.packs_path(home).glob("*.pack") if not homes.is_live(home, owner_of(path.name))
    ]
    known = {
        name for (name,) in db.execute("SELECT name FROM packs")
    }  # after that: a run may have ended just now
    for path in sorted(packs):
        if path.name not in known:
            _note(report, path, size_of(home, path.name))
    old = time.time() - LEFT_OVER_S
    locks = [path for path in (home / "runs").glob("*") if not homes.is_live(home, path.stem)]
    runs = {name for (name,) in db.execute("SELECT id FROM runs")}
    for path in sorted(path for path in (home / "logs").glob("*") if path.name not in runs):
        _note(report, path, sum(entry.lstat().st_size for entry in path.rglob("*")))
    others = (home / "replays", remote.fetched_path(home), homes.rewritten_path(home))
    for path in sorted([*locks, *(each for folder in others for each in folder.glob("*"))]):
        with contextlib.suppress(FileNotFoundError):  # its owner was first
            stats = [entry.lstat() for entry in (path, *path.rglob("*"))]
            if max(each.st_mtime for each in stats) < old:
                _note(report, path, sum(each.st_size for each in stats if stat.S_ISREG(each.st_mode)))


def _note(report: Report, path: Path, size: int) -> None:
    report.left.append(path)
    report.left_bytes += size


def _remove_files(report: Report) -> None:
    for path in report.left:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
