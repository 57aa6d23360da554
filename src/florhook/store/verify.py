"""Reads back all that a run has in the store, and says what is damaged. Nothing is unpickled.

Every piece of a checkpoint is read and held to its content digest (xxh3) and length, the streams to their seals
(BLAKE2b), each row to its MAC where the user's key signed the run. What another process removes meanwhile is no damage.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator

from florhook.errors import StoreError
from florhook.store import home as homes
from florhook.store import keys
from florhook.store.census import Census
from florhook.store.packs import MAGIC
from florhook.store.rows import CheckpointRow, RunRow
from florhook.store.store import Store

from ..dataclass import dataclass, field

SIGNED, UNSIGNED, FOREIGN = "signed", "unsigned", "another key"
Place = tuple[int, int]  # loop execution and iteration


@dataclass(frozen=True)
class Damage:
    """What is wrong. `place` is that of a checkpoint; without one, the run's other rows or sources are meant.

    `piece` is the number of the damaged piece, None where the row itself is.
    """

    reason: str
    place: Place | None = None
    piece: int | None = None


@dataclass
class RunReport:
    """What was found of one run."""

    run: RunRow
    live: bool = False  # it is being recorded: what was committed so far was read
    checkpoints: int = 0
    witnesses: int = 0  # digests without bytes
    size: int = 0  # bytes of the pieces, each content counted once
    key: str = SIGNED  # or UNSIGNED, FOREIGN
    damages: list[Damage] = field(default_factory=list)
    deleted: bool = False  # meanwhile


@dataclass
class StoreReport:
    """What is wrong with the files of the store, and what no run refers to."""

    damages: list[str] = field(default_factory=list)
    loose_chunks: int = 0
    loose_bytes: int = 0
    dead_bytes: int = 0  # of pack files, between and after their chunks
    left_over: list[str] = field(default_factory=list)  # names of pack files that the catalog does not know


class Verifier:
    """Reads runs of one store. What they share is read once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._key = keys.load_key()
        self._sizes: dict[bytes, int] = {}  # chunks that were read and found right
        self._damaged: dict[bytes, str] = {}
        self._seals: dict[bytes, bytes] = {}

    def run(self, run: RunRow) -> RunReport:
        """Read one run."""
        report = RunReport(run, self.store.is_live(run))
        report.damages += self._rows(run)
        checkpoints = self._checkpoints(report)
        wrong = {(row.ctx, row.iteration) for row in self._signatures(report, checkpoints)}
        for row in checkpoints:
            found = (
                [_altered(row.ctx, row.iteration)]
                if (row.ctx, row.iteration) in wrong
                else list(self._pieces(row))
            )
            if found:
                found = self._again(run, row, found)
            report.damages += found
            report.witnesses += row.is_witness
            report.checkpoints += not row.is_witness
        digests = {digest for row in checkpoints for digest in row.digests}
        report.size = sum(self._sizes.get(digest, 0) for digest in digests)
        if (report.damages or not checkpoints) and self._is_gone(run):
            report.damages, report.deleted = [], True
        return report

    def _checkpoints(self, report: RunReport) -> list[CheckpointRow]:
        try:
            return self.store.checkpoints(report.run)
        except (StoreError, ValueError, TypeError):
            pass  # one of them was altered: they are read one by one
        sql = "SELECT ctx, iteration FROM checkpoints WHERE run = (SELECT key FROM runs WHERE id = ?) ORDER BY rowid"
        try:
            places = self.store.connection.execute(sql, (report.run.id,)).fetchall()
        except sqlite3.Error as error:
            report.damages.append(Damage(f"the rows of its checkpoints cannot be read: {error}"))
            return []
        return [row for place in places if (row := self._one(report, place)) is not None]

    def _one(self, report: RunReport, place: Place) -> CheckpointRow | None:
        try:
            return self.store.checkpoint(report.run, *place)
        except StoreError:
            return None  # not any more
        except (ValueError, TypeError):
            report.damages.append(_altered(*place))
            return None

    # Rows and sources

    def _rows(self, run: RunRow) -> Iterator[Damage]:
        for module, digest in self.store.source_digests(run):
            problem = self._problem(digest)
            if problem:
                yield Damage(f"{_source(module)}: {problem}")
        try:
            labels = [row.labels for row in self.store.iterations(run)]
            _ = [
                self.store.contexts(run),
                self.store.output(run),
                self.store.files(run),
                self.store.logged(run),
            ]
        except (StoreError, ValueError, TypeError) as error:
            yield Damage(f"its rows cannot be read: {error}")
            return
        if not all(map(_is_json, labels)):
            yield Damage("the row of an iteration is not what was written")

    # Checkpoints

    def _signatures(self, report: RunReport, rows: list[CheckpointRow]) -> list[CheckpointRow]:
        """The rows whose MAC is wrong; none where no row bears this user's, which somebody else has signed then.

        A run that goes on from one that this user had not signed has rows without a MAC.
        """
        run, key = report.run, self._key
        signed = [row for row in rows if row.mac or "parent" not in run.meta]
        if not run.signed or (rows and not signed):
            report.key = UNSIGNED
            return []
        wrong = [row for row in signed if key is None or not keys.is_signed(key, run.id, row)]
        if signed and len(wrong) == len(signed):
            report.key = FOREIGN
            return []
        return wrong

    def _pieces(self, row: CheckpointRow) -> Iterator[Damage]:
        place = (row.ctx, row.iteration)
        if not _is_whole(row):
            yield _altered(row.ctx, row.iteration)
            return
        seals = dict(zip(row.streams, row.seals, strict=True))
        for piece, (digest, length) in enumerate(zip(row.digests, row.lengths, strict=True)):
            problem = self._problem(digest)
            if not problem and self._sizes[digest] != length:
                problem = f"has {self._sizes[digest]} bytes instead of {length}"
            if not problem and piece in seals and self._seal(digest) != seals[piece]:
                problem = "is not what was sealed when it was written"
            if problem:
                yield Damage(problem, place, piece)

    def _seal(self, digest: bytes) -> bytes:
        if digest not in self._seals:
            self._seals[digest] = keys.seal(self.store.read(digest))
        return self._seals[digest]

    def _problem(self, digest: bytes) -> str:
        """What is wrong with a chunk; "" if nothing is."""
        if digest in self._sizes:
            return ""
        if digest not in self._damaged:
            try:
                self._sizes[digest] = memoryview(self.store.read(digest)).nbytes
            except StoreError as error:
                self._damaged[digest] = self._told(str(error))
        return self._damaged.get(digest, "")

    def _told(self, text: str) -> str:
        for words in (f"the store {self.store.home} is damaged: ", f" {self.store.home}, or not any more"):
            text = text.replace(words, "")
        return text

    def _again(self, run: RunRow, row: CheckpointRow, found: list[Damage]) -> list[Damage]:
        """The damage, if the row is still there: retention may have removed it and its chunks meanwhile."""
        try:
            now = self.store.checkpoint(run, row.ctx, row.iteration)
        except StoreError:
            return []
        return found if now == row else list(self._pieces(now))

    def _is_gone(self, run: RunRow) -> bool:
        return all(each.id != run.id for each in self.store.runs())


def verify_files(store: Store) -> StoreReport:
    """Hold the catalog to SQLite's own check, and the pack files to the catalog."""
    report = StoreReport()
    try:
        found = [str(row[0]) for row in store.connection.execute("PRAGMA integrity_check")]
        report.damages += [f"the catalog: {each}" for each in found if each != "ok"]
        census = Census(store.connection, store.home, lambda run: store.is_live(run))
    except (sqlite3.Error, TypeError, ValueError) as error:
        report.damages.append(f"the catalog: {error}")
        return report
    report.damages += _packs(store, census)
    loose = [chunk for chunk in census.chunks.values() if not census.held[chunk.digest]]
    report.loose_chunks, report.loose_bytes = len(loose), sum(chunk.size for chunk in loose)
    report.dead_bytes = sum(pack.dead for pack in census.packs.values() if pack.ours)
    known = {pack.name for pack in census.packs.values()}
    on_disk = sorted(path.name for path in homes.packs_path(store.home).glob("*.pack"))
    report.left_over = [name for name in on_disk if name not in known]
    return report


def _packs(store: Store, census: Census) -> Iterator[str]:
    """What is wrong with the pack files, as files."""
    for pack in census.packs.values():
        if not pack.chunks:
            continue  # nothing was committed to it
        try:
            with open(homes.packs_path(store.home) / pack.name, "rb") as file:
                head, size = (
                    file.read(len(MAGIC)),
                    os.fstat(file.fileno()).st_size,
                )  # it may have grown meanwhile
        except OSError as error:
            if _still_named(store, pack.number):
                yield f"{pack.name}: {error.strerror}; {len(pack.chunks)} chunks are lost"
            continue
        if head != MAGIC:
            yield f"{pack.name} does not begin as a pack file"
        if size < pack.end:
            lost = sum(chunk.offset + chunk.size > size for chunk in pack.chunks)
            yield f"{pack.name} ends at byte {size} instead of {pack.end}; {lost} chunks are lost"
    numbers = census.packs.keys()
    homeless = sum(chunk.pack not in numbers for chunk in census.chunks.values())
    if homeless:
        yield f"the catalog: {homeless} chunks are in no pack file"


def _still_named(store: Store, pack: int) -> bool:
    """Whether the catalog has the pack now: compaction may have replaced it since it was read."""
    return store.connection.execute("SELECT 1 FROM chunks WHERE pack = ?", (pack,)).fetchone() is not None


def _is_whole(row: CheckpointRow) -> bool:
    """Whether the parts of a row belong together."""
    return (
        len(row.digests) == len(row.lengths)
        and len(row.streams) == len(row.seals)
        and all(piece < len(row.digests) for piece in row.streams)
        and _is_json(row.meta)
    )


def _altered(ctx: int, iteration: int) -> Damage:
    return Damage("its row in the catalog is not what was written", (ctx, iteration))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _source(module: str) -> str:
    return f"the record of {module.strip('<>')}" if module.startswith("<") else f"the source of {module}"
