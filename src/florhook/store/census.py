"""What a store holds, read once: its checkpoints, which chunks they share, and how full the pack files are."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from florhook.store import home as homes
from florhook.store import remote, schema
from florhook.store.packs import MAGIC, ChunkRow
from florhook.store.rows import WITNESS, split_digests
from florhook.store.store import RETENTION, WHOLE
from florhook.store.thin import Kept, order

from ..dataclass import dataclass, field


@dataclass
class Pack:
    """A pack file that the catalog knows."""

    number: int
    name: str
    size: int  # bytes on the disk
    ours: bool  # whether nobody else writes to it
    chunks: list[ChunkRow] = field(default_factory=list)

    @property
    def live(self) -> int:
        """Bytes of the chunks in it."""
        return len(MAGIC) + sum(chunk.size for chunk in self.chunks)

    @property
    def end(self) -> int:
        """Where the last chunk ends."""
        return max([len(MAGIC), *(chunk.offset + chunk.size for chunk in self.chunks)])

    @property
    def dead(self) -> int:
        """Bytes that rewriting it would give back."""
        return max(0, self.size - self.live)


class Census:
    """One reading of the catalog. What is dropped is only counted here."""

    def __init__(self, db: sqlite3.Connection, home: Path, is_busy: Callable[[str], bool]) -> None:
        """`is_busy(run)`: somebody else is recording it."""
        self._db = db
        self._places: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.runs: dict[int, str] = dict(db.execute("SELECT key, id FROM runs"))
        self.busy = {key for key, name in self.runs.items() if is_busy(name)}
        self.packs = {
            number: Pack(number, name, size_of(home, name), not is_busy(owner_of(name)))
            for number, name in db.execute("SELECT id, name FROM packs")
            if not name.startswith(remote.FAR)  # they take no room here
        }
        self.chunks = {row[0]: ChunkRow(*row) for row in db.execute(_CHUNKS, (f"{remote.FAR}%",))}
        for chunk in self.chunks.values():
            if chunk.pack in self.packs:
                self.packs[chunk.pack].chunks.append(chunk)
        has_retention = schema.format_of(db) >= RETENTION
        self.bases: dict[bytes, bytes] = dict(db.execute(_DELTAS)) if has_retention else {}
        pins = set(db.execute("SELECT run, ctx, iteration FROM pins")) if has_retention else set()
        self.pinned = {key for key in self.runs if (key, *WHOLE) in pins}
        self.checkpoints = [self._kept(row, pins) for row in db.execute(_CHECKPOINTS, (len(WITNESS),))]
        self.sources: defaultdict[int, list[bytes]] = defaultdict(list)
        self.held: Counter[bytes] = Counter()  # by how many checkpoints, sources and deltas a chunk is needed
        for run, digest in db.execute("SELECT run, digest FROM sources"):
            self.sources[run].append(digest)
            self._hold(digest)
        for kept in self.checkpoints:
            for digest in kept.digests:
                self._hold(digest)
        self.dropped: list[Kept] = []

    def _kept(self, row: tuple[Any, ...], pins: set[tuple[int, ...]]) -> Kept:
        run, ctx, iteration, taken, meta, digests = row
        parent, around, depth = self._around(run, ctx)
        witness, pieces = meta == WITNESS, split_digests(digests)
        pinned = run in self.pinned or (run, ctx, iteration) in pins
        return Kept(run, ctx, iteration, parent, around, depth, taken, witness, pinned, pieces)

    def _around(self, run: int, ctx: int) -> tuple[int, int, int]:
        """The loop around one, its iteration, and how many there are."""
        found = self._places.get((run, ctx))
        if found is None:
            sql = "SELECT parent, iteration FROM contexts WHERE run = ? AND ctx = ?"
            # a row was never written, or is yet to come
            parent, iteration = self._db.execute(sql, (run, ctx)).fetchone() or (-1, -1)
            depth = self._around(run, parent)[2] + 1 if parent >= 0 else 0
            found = self._places[run, ctx] = parent, iteration, depth
        return found

    def _hold(self, digest: bytes) -> None:
        self.held[digest] += 1
        if self.held[digest] == 1 and digest in self.bases:
            self._hold(self.bases[digest])

    def _let_go(self, digest: bytes) -> int:
        """Bytes of chunks that nobody needs any more, where their files can be written anew."""
        self.held[digest] -= 1
        if self.held[digest]:
            return 0
        freed = self._let_go(self.bases[digest]) if digest in self.bases else 0
        chunk = self.chunks.get(digest)
        pack = None if chunk is None else self.packs.get(chunk.pack)
        return freed + (chunk.size if chunk is not None and pack is not None and pack.ours else 0)

    def _drop(self, kept: Kept) -> int:
        self.dropped.append(kept)
        return sum(self._let_go(digest) for digest in kept.digests)

    def drop_run(self, run: int) -> None:
        """Count a run out."""
        for digest in self.sources.pop(run, []):
            self._let_go(digest)
        for kept in self.checkpoints:
            if kept.run == run:
                self._drop(kept)
        self.checkpoints = [kept for kept in self.checkpoints if kept.run != run]

    def needed(self) -> int:
        """Bytes that pack files would have if all that can be given back was."""
        return sum(
            len(MAGIC) + sum(chunk.size for chunk in pack.chunks if self.held[chunk.digest])
            if pack.ours
            else pack.size
            for pack in self.packs.values()
        )

    def thin(self, goal: int) -> None:
        """Count checkpoints out until what is needed is at most `goal` bytes, or nothing more may go.

        The run that holds most loses most; of one run, what holds more, checkpoints or witnesses.
        """
        groups: defaultdict[tuple[int, bool], list[Kept]] = defaultdict(list)
        for kept in self.checkpoints:
            if kept.run not in self.busy:
                groups[kept.run, kept.witness].append(kept)
        sizes = {key: self._size(kepts) for key, kepts in groups.items()}
        orders = {key: order(kepts) for key, kepts in groups.items() if sizes[key]}
        needed = self.needed()
        while needed > goal and orders:
            key = max(orders, key=lambda each: sizes[each])
            moment = next(orders[key], None)
            if moment is None:
                del orders[key]
                continue
            sizes[key] -= self._size(moment)
            needed -= sum(self._drop(kept) for kept in moment)

    def _size(self, kepts: Iterable[Kept]) -> int:
        """Bytes that checkpoints refer to, shared ones as often as they do."""
        found = (self.chunks.get(digest) for kept in kepts for digest in kept.digests)
        return sum(chunk.size for chunk in found if chunk is not None)

    def settle(self) -> list[bytes]:
        """Forget the chunks that nobody needs any more; their digests."""
        unneeded = [digest for digest in self.chunks if not self.held[digest]]
        for digest in unneeded:
            del self.chunks[digest]
        for pack in self.packs.values():
            pack.chunks = [chunk for chunk in pack.chunks if chunk.digest in self.chunks]
        return unneeded


_CHUNKS = "SELECT * FROM chunks WHERE pack NOT IN (SELECT id FROM packs WHERE name LIKE ?)"
_DELTAS = "SELECT digest, base FROM deltas"
_CHECKPOINTS = (
    "SELECT run, ctx, iteration, taken, substr(meta, 1, ?), digests FROM checkpoints ORDER BY rowid"
)


def owner_of(name: str) -> str:
    """The run that a pack file was written for."""
    return name.rpartition("-")[0]


def bytes_of_packs(home: Path) -> int:
    """Of all pack files, whether or not the catalog knows them."""
    return sum(size_of(home, path.name) for path in homes.packs_path(home).glob("*.pack"))


def size_of(home: Path, name: str) -> int:
    """Bytes of a pack file; 0 where it is not there."""
    try:
        return (homes.packs_path(home) / name).stat().st_size
    except OSError:
        return 0
