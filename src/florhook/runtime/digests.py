"""The digests of a checkpoint, by root: what tells two states apart without their bytes.

A *witness* is a checkpoint of which nothing but the digests and the object stream are kept: it cannot be restored, but
a replay is compared with it like with any other.
"""

from __future__ import annotations

import json
from typing import Any

import xxhash

from ..dataclass import astuple, dataclass
from ..state.scan import Scan
from ..store.rows import CheckpointRow

Name = tuple[Any, ...]
DIGEST = 16  # bytes


@dataclass(frozen=True)
class RootDigest:
    """Of one root: the digest of its part of the stream, and how many leaves and autograd graphs came by then."""

    name: Name
    digest: str
    leaves: int
    graphs: int


@dataclass(frozen=True)
class Digests:
    """Of one checkpoint.

    `iterator` is the outline of the loop's iterator, where it had to be driven to its place; `leaves` are the digests
    of the leaves, which a witness has here and other checkpoints have among their pieces.
    """

    roots: tuple[RootDigest, ...]
    iterator: str | None = None
    leaves: bytes | None = None

    @classmethod
    def of(cls, scan: Scan, iterator: str | None = None, witness: bool = False) -> Digests:
        rows, start = [], 0
        for segment in scan.segments:
            digest = xxhash.xxh3_64_hexdigest(scan.stream[start : segment.end])
            rows.append(RootDigest(segment.name, digest, segment.leaves, segment.graphs))
            start = segment.end
        leaves = b"".join(xxhash.xxh3_128_digest(leaf.view) for leaf in scan.leaves) if witness else None
        return cls(tuple(rows), iterator, leaves)

    @property
    def names(self) -> list[Name]:
        return [root.name for root in self.roots]

    def to_text(self) -> str:
        return json.dumps(
            {
                "witness": self.leaves is not None,
                "roots": [astuple(root) for root in self.roots],
                "iterator": self.iterator,
                "leaves": None if self.leaves is None else self.leaves.hex(),
            }
        )

    @classmethod
    def from_row(cls, row: CheckpointRow) -> Digests:
        """With the digests of the leaves, wherever they are."""
        found = json.loads(row.meta)
        rows = (RootDigest(tuple(name), *rest) for name, *rest in found["roots"])
        leaves = found["leaves"]
        return cls(
            tuple(rows),
            found["iterator"],
            b"".join(row.digests[2:]) if leaves is None else bytes.fromhex(leaves),
        )

    def leaf(self, index: int) -> bytes:
        assert self.leaves is not None
        return self.leaves[DIGEST * index : DIGEST * index + DIGEST]

    def differing(self, scan: Scan) -> list[int]:
        """Which roots are not the same in a scan of roots with the same names."""
        found, first = [], 0
        for index, (was, now) in enumerate(zip(self.roots, Digests.of(scan).roots, strict=True)):
            same = was.digest == now.digest and was.leaves == now.leaves
            if not same or any(
                xxhash.xxh3_128_digest(scan.leaves[leaf].view) != self.leaf(leaf)
                for leaf in range(first, was.leaves)
            ):
                found.append(index)
            first = was.leaves
        return found
