"""`gc --compact`: codes chunks anew, those of tensors as differences to the checkpoint before, where that is smaller.

A chain of differences is at most DEEPEST long, since a chunk is read by reading all that it goes back to.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Mapping

from florhook.errors import StoreError
from florhook.store.coding import DELTA, encode
from florhook.store.packs import ChunkRow
from florhook.store.reclaim import Coded
from florhook.store.rows import split_digests

DEEPEST = 3
_LEAST = 512  # bytes: what is smaller gains nothing
_MOST = 1 << 30  # bytes: what is larger takes too much memory
_PIECES = "SELECT run, ctx, digests, lengths, streams FROM checkpoints ORDER BY run, ctx, rowid"


def neighbours(db: sqlite3.Connection, known: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """For chunks of tensors, what stood in their place in the checkpoint before; `known` are differences already.

    No chunk goes back to itself: each gets its base when it is first met, and that was met before; one that others
    are a difference to from an earlier time gets none.
    """
    bases = dict(known)
    met = {*known.keys(), *known.values()}
    latest: dict[tuple[int, int], bytes] = {}
    loop = None
    for run, ctx, digests, lengths, streams in db.execute(_PIECES):
        if loop != (run, ctx):
            loop, latest = (run, ctx), {}
        skipped = set(array("Q", streams))
        for index, (digest, length) in enumerate(
            zip(split_digests(digests), array("Q", lengths), strict=True)
        ):
            if index in skipped:
                continue
            before = latest.get((index, length))
            latest[index, length] = digest
            if digest not in met and before is not None and _depth(bases, before) < DEEPEST:
                bases[digest] = before
            met.add(digest)
    return bases


def _depth(bases: Mapping[bytes, bytes], digest: bytes) -> int:
    depth = 0
    while digest in bases:
        digest = bases[digest]
        depth += 1
    return depth


def recoder(
    read: Callable[[bytes], bytes | memoryview], bases: Mapping[bytes, bytes]
) -> Callable[[ChunkRow, memoryview], Coded]:
    """How a chunk is to be stored from now on. `read(digest)` gives contents."""

    def recode(chunk: ChunkRow, stored: memoryview) -> Coded:
        unchanged = stored, chunk.codec, None
        if not _LEAST <= chunk.length <= _MOST:
            return unchanged
        base = bases.get(chunk.digest)
        try:
            content = bytes(read(chunk.digest))
            other = None if base is None else bytes(read(base))
        except StoreError:  # damaged: left as it is
            return unchanged
        data, codec = encode(content, other)
        return (data, codec, base if codec & DELTA else None) if len(data) < chunk.size else unchanged

    return recode
