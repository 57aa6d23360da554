"""Staging memory: slabs of anonymous shared memory, filled by the training process and read by the writer.

Slabs are memfds, so that neither the size of /dev/shm nor a fork matters. They are used again and again, because
copying into warm pages is several times faster than into fresh ones.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from florhook.descriptors import low_ones_reserved

from ..dataclass import dataclass

_LEAST = 2 << 20
_STEP = 1 << 20


@dataclass(eq=False)
class Slab:
    """One memfd, mapped. Regions are handed out from its start on; it is empty again when all came back."""

    number: int
    fd: int
    size: int
    mapping: mmap.mmap
    view: memoryview
    used: int = 0
    regions: int = 0

    def close(self) -> None:
        """Unmaps it; the writer's mapping lives on."""
        try:
            self.view.release()
            self.mapping.close()
        except BufferError:
            pass  # part of it is in use, perhaps by a traceback; it goes with that


@dataclass(frozen=True, eq=False)
class Region:
    """A part of a slab, held by one checkpoint."""

    slab: Slab
    offset: int
    size: int

    @property
    def view(self) -> memoryview:
        """Its bytes."""
        return self.slab.view[self.offset : self.offset + self.size]


class StagingPool:
    """Gives out regions; all slabs together never exceed `limit_bytes`, which is asked for when it matters."""

    def __init__(self, limit_bytes: int | Callable[[], int]) -> None:
        self._limit = limit_bytes
        self.slabs: list[Slab] = []
        self.made: list[Slab] = []  # new, the writer has to be told; emptied by the owner
        self.dropped: list[int] = []
        self._numbers = 0

    @property
    def limit(self) -> int:
        """Bytes."""
        if not isinstance(self._limit, int):
            self._limit = self._limit()
        return self._limit

    @property
    def total(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.size for slab in self.slabs)

    def reserve(self, size: int) -> Region | None:
        """A region of that size, or None when the pool is full. OSError when the system has no memory for it."""
        fitting = [slab for slab in self.slabs if slab.size - slab.used >= size]
        slab = min(fitting, key=lambda slab: slab.size - slab.used, default=None) or self._grow(size)
        if slab is None:
            return None
        region = Region(slab, slab.used, size)
        slab.used += size
        slab.regions += 1
        return region

    def release(self, region: Region) -> None:
        """Takes a region back."""
        slab = region.slab
        slab.regions -= 1
        if not slab.regions:
            slab.used = 0

    def close(self) -> None:
        """Gives all memory back to the system."""
        for slab in self.made:
            os.close(slab.fd)
        for slab in self.slabs:
            slab.close()
        self.slabs, self.made = [], []

    def _grow(self, size: int) -> Slab | None:
        size = max(size, 1)
        busy = sum(slab.size for slab in self.slabs if slab.regions)
        if busy + size > self.limit:
            return None
        # a quarter of what there is, so that many small checkpoints never make many slabs
        wanted = min(max(_rounded(size), _LEAST, self.total // 4), self.limit - busy)
        for slab in sorted(self.slabs, key=lambda slab: slab.size):
            if self.total + wanted <= self.limit:
                break
            if not slab.regions:
                self._drop(slab)
        return self._make(wanted)

    def _make(self, size: int) -> Slab:
        with low_ones_reserved():  # a mapping has a descriptor of its own, which is chosen for it
            fd = os.memfd_create("florhook", os.MFD_CLOEXEC)
            try:
                _obtain(fd, size)
                mapping = mmap.mmap(fd, size)
            except BaseException:
                os.close(fd)
                raise
        self._numbers += 1
        slab = Slab(self._numbers, fd, size, mapping, memoryview(mapping))
        self.slabs.append(slab)
        self.made.append(slab)
        return slab

    def _drop(self, slab: Slab) -> None:
        self.slabs.remove(slab)
        self.dropped.append(slab.number)
        slab.close()


def _rounded(size: int) -> int:
    # states grow a little between checkpoints; room in steps of an eighth keeps the slab fitting
    step = max((1 << size.bit_length()) >> 3, 1 << 12)
    return -(-size // step) * step


def _obtain(fd: int, size: int) -> None:
    # Takes no longer than the page faults that it saves, and memory that is not there is an error, not a SIGBUS. In
    # steps, because a signal undoes the call: a profiler's timer would never let a large one end.
    for offset in range(0, size, _STEP):
        os.posix_fallocate(fd, offset, min(_STEP, size - offset))


class SlabReader:
    """The writer's view of the slabs that it was given."""

    def __init__(self) -> None:
        self._slabs: dict[int, tuple[mmap.mmap, memoryview]] = {}

    def add(self, number: int, fd: int, size: int) -> None:
        """Maps a slab; the descriptor is closed."""
        try:
            mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._slabs[number] = (mapping, memoryview(mapping))

    def drop(self, number: int) -> None:
        """Forgets a slab that the training process has given up."""
        mapping, view = self._slabs.pop(number)
        view.release()
        mapping.close()

    def view(self, number: int, offset: int, size: int) -> memoryview:
        """The bytes of a region."""
        return self._slabs[number][1][offset : offset + size]
