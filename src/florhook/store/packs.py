"""Pack files: chunks one after another, appended by one writer, never changed afterwards."""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from xxhash import xxh3_128_digest

from florhook.store.coding import DELTA, ITEM, RAW, ZSTD, unshuffled, xored

from ..dataclass import dataclass

if TYPE_CHECKING:
    import zstandard

MAGIC = b"florhook pack 1\n"
LARGEST = 1 << 30
_MOST_VECTORS = 512
_BLOCK = 4096  # what O_DIRECT counts in, wherever it is
_DIRECT_FROM = 1 << 20  # bytes
_BOUNCE = 4 << 20  # bytes that are written at once


class DamagedError(Exception):
    """A chunk is not what its digest says."""


@dataclass(frozen=True)
class ChunkRow:
    """Where the bytes with a digest are."""

    digest: bytes
    length: int  # of the content
    pack: int
    offset: int
    size: int  # in the file
    codec: int  # see coding.py


class PackWriter:
    """Appends chunks to the pack files of a run.

    Much at once is written past the page cache (O_DIRECT), where the file system offers that: filling the cache
    takes many times the processor's time, which is the program's, and pushes out what the program reads.
    """

    def __init__(
        self, folder: Path, run_id: str, register: Callable[[str], int], largest: int = LARGEST
    ) -> None:
        self.written = 0
        self._folder = folder
        self._run_id = run_id
        self._register = register
        self.largest = largest  # begin another file past this
        self._files = 0
        self._fd = -1
        self._direct = -1  # the same file without the page cache
        self._bounce = mmap.mmap(-1, _BOUNCE)  # aligned, as O_DIRECT needs it
        self._pack = 0
        self._end = 0
        self._position = 0  # what was given to the operating system ends here
        self._synced = 0
        self._vectors: list[bytes | memoryview] = []

    def add(self, digest: bytes, content: bytes | memoryview, compress: bool) -> ChunkRow:
        """Appends a chunk. The bytes are read at the latest in `flush`."""
        data, codec = self._coded(content) if compress else (content, RAW)
        return self.put(digest, len(content), data, codec)

    def put(self, digest: bytes, length: int, data: bytes | memoryview, codec: int) -> ChunkRow:
        """Appends a chunk that is coded already."""
        if self._fd < 0 or self._end >= self.largest:
            self._next_file()
        chunk = ChunkRow(digest, length, self._pack, self._end, len(data), codec)
        self._vectors.append(data)
        self._end += len(data)
        if len(self._vectors) >= _MOST_VECTORS:
            self.flush()
        return chunk

    @functools.cached_property
    def _compressor(self) -> zstandard.ZstdCompressor:
        import zstandard  # not at the start, which it makes longer: a short run has nothing to compress

        return zstandard.ZstdCompressor(level=1)

    def _coded(self, content: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        data = self._compressor.compress(content)
        return (data, ZSTD) if len(data) < len(content) else (content, RAW)

    def flush(self) -> None:
        """Gives everything to the operating system; staging memory may be reused after it."""
        size, stream = self._end - self._position, _Stream(self._vectors)
        self._vectors = []
        if self._direct >= 0 and size >= _DIRECT_FROM:
            head = -self._position % _BLOCK
            self._write(stream.take(head))
            size -= head
            while self._direct >= 0 and size >= _BLOCK:
                size -= self._write_directly(stream, min(size - size % _BLOCK, _BOUNCE))
        self._write(stream.take(size))

    def _write(self, vectors: list[memoryview]) -> None:
        while vectors:
            done = self._advance(os.pwritev(self._fd, vectors[:_MOST_VECTORS], self._position))
            while vectors and done >= len(vectors[0]):
                done -= len(vectors.pop(0))
            if done:
                vectors[0] = vectors[0][done:]

    def _write_directly(self, stream: _Stream, size: int) -> int:
        at = 0
        for part in stream.take(size):
            self._bounce[at : at + len(part)] = part
            at += len(part)
        with memoryview(self._bounce) as bounce:
            try:
                at = self._advance(os.pwrite(self._direct, bounce[:size], self._position))
            except OSError as error:
                if error.errno != errno.EINVAL:  # what was promised when the file was opened is not kept
                    raise
                at = 0
            if at < size:
                self._close_direct()
                self._write([bounce[at:size]])
        return size

    def _advance(self, count: int) -> int:
        self.written += count
        self._position += count
        return count

    def _close_direct(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1

    def sync(self) -> None:
        """Makes everything durable."""
        self.flush()
        if self._fd >= 0 and self._synced < self._end:
            os.fdatasync(self._fd)
            self._synced = self._end

    def abandon(self) -> None:
        """After a failure: cuts off what was never committed, to give the room back."""
        if self._fd >= 0:
            os.ftruncate(self._fd, self._synced)

    def close(self) -> None:
        """Makes everything durable and closes the file."""
        self.sync()
        self._close_direct()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next_file(self) -> None:
        self.close()
        name = f"{self._run_id}-{self._files}.pack"
        self._files += 1
        path = self._folder / name
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError, AttributeError):  # not all systems and file systems have it
            self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        self._vectors = [MAGIC]
        self._end, self._position, self._synced = len(MAGIC), 0, 0
        self.flush()
        sync_folder(self._folder)
        self._pack = self._register(name)


class _Stream:
    """Bytes from several places, taken in order."""

    def __init__(self, parts: Iterable[bytes | memoryview]) -> None:
        self._parts = deque(memoryview(part) for part in parts if len(part))

    def take(self, count: int) -> list[memoryview]:
        """The next so many bytes."""
        taken = []
        while count:
            part = self._parts.popleft()
            if len(part) > count:
                self._parts.appendleft(part[count:])
                part = part[:count]
            taken.append(part)
            count -= len(part)
        return taken


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_chunk(
    fd: int, chunk: ChunkRow, base: Callable[[], bytes | memoryview] | None = None
) -> bytes | memoryview:
    """The content of a chunk, checked; `base` gives that of the one it was XORed with.

    DamagedError when it is not what it should be.
    """
    content = _decoded(read_stored(fd, chunk), chunk, base)
    if len(content) != chunk.length:
        raise DamagedError(f"has {len(content)} bytes instead of {chunk.length}")
    if xxh3_128_digest(content) != chunk.digest:
        raise DamagedError("has other bytes than were written")
    return content


def _decoded(
    stored: memoryview, chunk: ChunkRow, base: Callable[[], bytes | memoryview] | None
) -> bytes | memoryview:
    if chunk.codec == RAW:
        return stored
    content = _decompressed(stored, chunk.length)
    if chunk.codec >> ITEM:
        content = unshuffled(content, chunk.codec >> ITEM)
    if chunk.codec & DELTA:
        other = b"" if base is None else bytes(base())
        if len(other) != len(content):
            raise DamagedError("was stored as a difference to a chunk that is not there")
        content = xored(content, other)
    return content


def read_stored(fd: int, chunk: ChunkRow) -> memoryview:
    """The bytes of a chunk as they are in the file."""
    offset, size = chunk.offset, chunk.size
    if size > os.fstat(fd).st_size - offset:
        raise DamagedError("lies past the end of its file")
    buffer = memoryview(bytearray(size))
    done = 0
    while done < size:
        got = os.preadv(fd, [buffer[done:]], offset + done)
        if not got:
            raise DamagedError("lies past the end of its file")
        done += got
    return buffer


def _decompressed(data: memoryview, length: int) -> bytes:
    import zstandard

    try:
        # the frame's own size is what would be allocated, so it is checked first
        if zstandard.get_frame_parameters(data).content_size != length:
            raise DamagedError("has a wrong length")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    except zstandard.ZstdError as error:
        raise DamagedError(f"cannot be decompressed ({error})") from None
