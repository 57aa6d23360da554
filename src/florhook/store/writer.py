"""The writer process: takes what the training process hands over, and commits it to the store in groups.

It lives until the training process says goodbye or is gone, and then commits all that it was given. It imports
neither the user's code nor anything large, and its only voice is the socket.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sqlite3
import stat
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_digest

from florhook.errors import FlorError
from florhook.store import home as homes
from florhook.store import keys
from florhook.store.catalog import DIGEST_OF_SOURCE, DIGESTS_OF_CHECKPOINT, ROWS, Catalog
from florhook.store.inherit import Heritage
from florhook.store.lean import COPIED, KNOWN, SMALL_COPY, STREAM, Generations
from florhook.store.packs import PackWriter
from florhook.store.rows import CheckpointRow, split_digests
from florhook.store.staging import SlabReader
from florhook.store.wire import Channel, Message

from ..dataclass import replace

if TYPE_CHECKING:
    from florhook.store.limit import Limit

_LINGER_S = 0.05  # a commit waits so long for company
_HEAVY = 64 << 20  # bytes in a group that waits no longer
_GOODBYE_S = 10.0
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE)


class Writer:
    """Serves one run."""

    def __init__(self, home: Path, channel: Channel) -> None:
        self._home = home
        self._channel = channel
        self._slabs = SlabReader()
        self._key = keys.load_key(create=True)
        self._run_id = ""
        self._batch: dict[str, list[tuple[Any, ...]]] = {}
        self._weight = 0
        self._since = 0.0  # when the first message of the group came
        self._seen = Generations()
        self._seals: dict[bytes, bytes] = {}  # streams of this run only: another run's may be forged
        self._sound: dict[str, int] = {}  # sizes of other pack files
        self._sources: dict[bytes, bytes] = {}  # contents of those in the batch
        self._max_bytes: int | None = None
        self._limit: Limit | None = None
        self._said = False  # that the limit cannot be kept
        self.ended = False

    def begin(self, *run: Any) -> None:
        """Opens the store for a run."""
        self._catalog = Catalog(homes.catalog_path(self._home))
        self._packs = PackWriter(homes.packs_path(self._home), run[0], self._catalog.add_pack)
        self._catalog.begin_run(run, self._key is not None)
        self._run_id = run[0]
        if homes.is_remote(self._home):
            from florhook.store.remote import start_upload

            start_upload(self._home)
        if self._max_bytes is not None:
            from florhook.store.limit import Limit  # which most runs need not

            self._limit = Limit(self._max_bytes, self._home, self._run_id)
            self._limit.shape(self._packs)

    def handle(self, message: Message) -> None:
        """Does what one message says, short of committing."""
        kind, *content = message
        if not self._since:
            self._since = time.monotonic()
        if kind == "rows":
            self._rows(*content)
        elif kind == "checkpoint":
            self._checkpoint(*content)
        elif kind == "slab":
            self._slabs.add(content[0], self._channel.fds.popleft(), content[1])
        elif kind == "drop":
            self._slabs.drop(content[0])
        elif kind == "limit":
            (self._max_bytes,) = content
        elif kind == "run":
            self.begin(*content)
        elif kind == "inherit":
            self._inherit(Heritage.unpacked(*content))
        elif kind == "end":
            self.commit()
            self._catalog.end_run(*content)
            self.ended = True

    def _rows(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        if table == "sources":
            contents = [source for _, _, source in rows]
            rows = [(module, path, self._store(source, True)) for module, path, source in rows]
            self._sources.update(zip((digest for _, _, digest in rows), contents, strict=True))
        if table not in ROWS:
            raise ValueError(f"no table {table}")
        self._batch.setdefault(table, []).extend(rows)
        self._weight += 100 * len(rows)

    def _inherit(self, heritage: Heritage) -> None:
        for table, rows in self._catalog.inherited(heritage, self._signed_anew(heritage.parent)).items():
            self._batch.setdefault(table, []).extend(rows)

    def _signed_anew(self, parent: str) -> Callable[[CheckpointRow, bytes], bytes]:
        """Signs for this run what was signed for another; what was not might be forged."""

        def sign(row: CheckpointRow, mac: bytes) -> bytes:
            signed = self._key is not None and keys.is_signed(self._key, parent, replace(row, mac=mac))
            return keys.sign(self._key, self._run_id, row) if self._key is not None and signed else b""

        return sign

    def _store(self, content: bytes | memoryview, compress: bool, digest: bytes = b"") -> bytes:
        digest = digest or xxh3_128_digest(content)
        if not self._has(digest, len(content)):
            chunk = self._packs.add(digest, content, compress)
            row = (chunk.digest, chunk.length, chunk.pack, chunk.offset, chunk.size, chunk.codec)
            self._batch.setdefault("chunks", []).append(row)
            self._weight += chunk.size
        self._seen.update((digest,))
        return digest

    def _has(self, digest: bytes, length: int) -> bool:
        if digest in self._seen:
            return True
        found = self._catalog.find_chunk(digest)
        if found is None:
            return False
        name, chunk = found
        return chunk.length == length and chunk.offset + chunk.size <= self._pack_size(name)

    def _pack_size(self, name: str) -> int:
        # somebody may have removed or cut a pack file; a chunk in it must be written again
        if name not in self._sound:
            try:
                self._sound[name] = (homes.packs_path(self._home) / name).stat().st_size
            except OSError:
                self._sound[name] = -1
        return self._sound[name]

    def _checkpoint(
        self,
        number: int,
        row: tuple[Any, ...],
        region: tuple[int, int, int] | bytes,
        places: bytes,
        digests: bytes,
        lengths: bytes,
    ) -> None:
        view = memoryview(region) if isinstance(region, bytes) else self._slabs.view(*region)
        draft = replace(CheckpointRow(*row), lengths=tuple(array("Q", lengths)))
        taken, learned = self._take(draft, view, places, digests)
        self._packs.flush()
        self._channel.post(("free", number, learned, self._packs.written))
        if self._key is not None:
            taken = replace(taken, mac=keys.sign(self._key, self._run_id, taken))
        self._batch.setdefault("checkpoints", []).append(
            (*row, b"".join(taken.digests), lengths, _packed(taken.streams), b"".join(taken.seals), taken.mac)
        )

    def _take(
        self, draft: CheckpointRow, view: memoryview, places: bytes, given: bytes
    ) -> tuple[CheckpointRow, list[bytes]]:
        """Stores the pieces: first in the region are the large ones, then the small."""
        digests: list[bytes] = []
        learned: list[bytes] = []
        seals: list[bytes] = []
        large = 0
        small = sum(
            length for length, place in zip(draft.lengths, places, strict=True) if place & 3 == COPIED
        )
        for index, (length, flagged) in enumerate(zip(draft.lengths, places, strict=True)):
            place, stream = flagged & 3, bool(flagged & STREAM)
            digest = given[16 * index : 16 * index + 16]
            if place == COPIED:
                content = view[large : large + length]
                large += length
                digest = self._store(content, stream)
                learned.append(digest)
            elif place == SMALL_COPY:
                content = view[small : small + length]
                small += length
                self._store(content, stream, digest)
            if stream:
                if place != KNOWN:
                    self._seals[digest] = keys.seal(content)
                seals.append(self._seals[digest])
            digests.append(digest)
        streams = tuple(index for index, flagged in enumerate(places) if flagged & STREAM)
        return replace(draft, digests=tuple(digests), streams=streams, seals=tuple(seals)), learned

    @property
    def patience(self) -> float | None:
        """How long to wait for the next message; None when nothing is waiting for its commit."""
        return _LINGER_S if self._since else None

    def is_due(self) -> bool:
        """Whether the group should be committed now."""
        heavy = _HEAVY if self._limit is None else min(_HEAVY, self._limit.group)
        return bool(self._since) and (self._weight > heavy or time.monotonic() - self._since >= _LINGER_S)

    def commit(self) -> None:
        """Makes everything handed over so far durable: chunks first, then the catalog."""
        if not self._run_id:
            return
        self._packs.sync()
        if self._batch:
            while missing := self._catalog.commit(self._batch):
                self._do_without(missing)
                self._packs.sync()
        self._batch, self._weight, self._since = {}, 0, 0.0
        self._sources.clear()
        if self._limit is not None:
            self._keep(self._limit)
        self._channel.post(("written", self._packs.written, time.process_time()))

    def _do_without(self, missing: set[bytes]) -> None:
        """Chunks of the batch were removed by `gc` or by another writer: those of sources are here, others are lost."""
        self._forget(missing)
        for digest in missing & self._sources.keys():
            self._store(self._sources[digest], True, digest)
        lost = missing - self._sources.keys()
        self._batch["sources"] = [
            row for row in self._batch.get("sources", []) if row[DIGEST_OF_SOURCE] not in lost
        ]
        self._batch["checkpoints"] = [
            row
            for row in self._batch.get("checkpoints", [])
            if lost.isdisjoint(split_digests(row[DIGESTS_OF_CHECKPOINT]))
        ]

    def _keep(self, limit: Limit) -> None:
        gone = limit.keep(self._catalog.connection, self._packs)
        if gone:
            self._forget(gone)
        problem = None if self._said else limit.problem()
        if problem:
            self._said = True
            self._channel.post(("note", problem))

    def _forget(self, digests: Iterable[bytes]) -> None:
        """Neither process takes these for stored from now on; what was handed over before finds out at its commit."""
        self._seen.forget(digests)
        self._channel.post(("forget", b"".join(digests)))

    def lose(self) -> None:
        """The training process is gone without a goodbye."""
        if self._run_id:
            self.commit()
            self._catalog.lose_run(time.time())

    def close(self) -> None:
        """Closes the files."""
        if self._run_id:
            self._packs.close()
            self._catalog.close()

    def abandon(self) -> None:
        """After a failure: leaves the store as it was at the last commit."""
        if self._run_id:
            self._packs.abandon()
            self._catalog.lose_run(time.time())


def _packed(numbers: tuple[int, ...]) -> bytes:
    return array("Q", numbers).tobytes()


def serve(writer: Writer, channel: Channel, pidfd: int) -> None:
    """Takes messages until the end, or until the training process is gone."""
    alive = True
    while not writer.ended:
        alive = alive and not _wait(channel, pidfd, writer.patience)
        for message in channel.receive():
            writer.handle(message)
            if writer.is_due():
                writer.commit()
        if not writer.ended and (channel.gone or (channel.drained and not alive)):
            writer.lose()
            return
        if writer.is_due():  # although nothing came
            writer.commit()
        _answer(channel)


def _wait(channel: Channel, pidfd: int, timeout: float | None) -> bool:
    """Waits for something to do; whether the training process has died."""
    poll = select.poll()
    poll.register(channel.sock, select.POLLIN | (select.POLLOUT if channel.waiting else 0))
    if pidfd >= 0:
        poll.register(pidfd, select.POLLIN)
    events = poll.poll(None if timeout is None else timeout * 1000)
    return any(fd == pidfd for fd, _ in events)


def _answer(channel: Channel) -> None:
    try:
        channel.flush()
    except OSError:
        channel.waiting = 0  # nobody listens any more; what was handed over is still to be written


def _say_goodbye(channel: Channel, message: Message) -> None:
    channel.post(message)
    deadline = time.monotonic() + _GOODBYE_S
    try:
        while not channel.flush() and time.monotonic() < deadline:
            poll = select.poll()
            poll.register(channel.sock, select.POLLOUT)
            poll.poll(100)
    except OSError:
        pass


def main(sock: str, lock: str, pidfd: str, home: str) -> None:
    """The process: `lock` is only held, it goes when the process goes."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    _offer_to_oom_killer()
    channel = Channel(socket.socket(fileno=int(sock)))
    channel.post(("hello", os.getpid()))
    writer = Writer(Path(home), channel)
    try:
        _answer(channel)
        serve(writer, channel, int(pidfd))
        _say_goodbye(channel, ("bye",))
        writer.close()
    except Exception as error:
        _fail(Path(home), writer, channel, error)
    _remove_lock(int(lock))


def _fail(home: Path, writer: Writer, channel: Channel, error: Exception) -> None:
    try:
        writer.abandon()
        import traceback  # which takes as long to import as a sixth of all else here

        (home / "writer-error.txt").write_text(traceback.format_exc())
    except Exception:
        pass  # what is reported is the first failure
    _say_goodbye(channel, ("failed", f"the store cannot be written: {_reason(error)}"))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) if isinstance(error, (FlorError, sqlite3.Error)) else f"{type(error).__name__}: {error}"


def _offer_to_oom_killer() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        pass


def _remove_lock(fd: int) -> None:
    """By its path of now, since the store may have been moved; nothing that is no lock of a run."""
    try:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if stat.S_ISREG(os.fstat(fd).st_mode) and path == homes.lock_path(path.parent.parent, path.stem):
            path.unlink()
    except OSError:
        pass
