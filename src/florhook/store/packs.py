"""Pack files: chunks one after another, appended by one writer, never changed afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zstandard
from xxhash import xxh3_128_digest

from florhook.store.coding import DELTA, ITEM, RAW, ZSTD, unshuffled, xored

MAGIC = b"florhook pack 1\n"
LARGEST = 1 << 30
_MOST_VECTORS = 512


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
    """Appends chunks to the pack files of a run."""

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
        self._pack = 0
        self._end = 0
        self._synced = 0
        self._vectors: list[bytes | memoryview] = []
        self._compressor = zstandard.ZstdCompressor(level=1)

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

    def _coded(self, content: bytes | memoryview) -> tuple[bytes | memoryview, int]:
        data = self._compressor.compress(content)
        return (data, ZSTD) if len(data) < len(content) else (content, RAW)

    def flush(self) -> None:
        """Gives everything to the operating system; staging memory may be reused after it."""
        vectors, self._vectors = [vector for vector in self._vectors if len(vector)], []
        while vectors:
            done = os.writev(self._fd, vectors)
            self.written += done
            while vectors and done >= len(vectors[0]):
                done -= len(vectors.pop(0))
            if done:
                vectors[0] = memoryview(vectors[0])[done:]

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
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next_file(self) -> None:
        self.close()
        name = f"{self._run_id}-{self._files}.pack"
        self._files += 1
        self._fd = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._vectors = [MAGIC]
        self._end, self._synced = len(MAGIC), 0
        self.flush()
        sync_folder(self._folder)
        self._pack = self._register(name)


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
    try:
        # the frame's own size is what would be allocated, so it is checked first
        if zstandard.get_frame_parameters(data).content_size != length:
            raise DamagedError("has a wrong length")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    except zstandard.ZstdError as error:
        raise DamagedError(f"cannot be decompressed ({error})") from None
