"""The digests of a checkpoint, by root: what tells two states apart without their bytes."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import Any

import xxhash

from ..state.scan import Scan

Name = tuple[Any, ...]


@dataclass(frozen=True)
class RootDigest:
    """Of one root: the digest of its part of the stream, and how many leaves and autograd graphs came by then."""

    name: Name
    digest: str
    leaves: int
    graphs: int


@dataclass(frozen=True)
class Digests:
    """Of one checkpoint. `iterator` is the outline of the loop's iterator, where it had to be driven to its place."""

    roots: tuple[RootDigest, ...]
    iterator: str | None = None

    @classmethod
    def of(cls, scan: Scan, iterator: str | None = None) -> Digests:
        rows, start = [], 0
        for segment in scan.segments:
            digest = xxhash.xxh3_64_hexdigest(scan.stream[start : segment.end])
            rows.append(RootDigest(segment.name, digest, segment.leaves, segment.graphs))
            start = segment.end
        return cls(tuple(rows), iterator)

    @property
    def names(self) -> list[Name]:
        return [root.name for root in self.roots]

    def to_text(self) -> str:
        return json.dumps({"roots": [astuple(root) for root in self.roots], "iterator": self.iterator})

    @classmethod
    def from_text(cls, text: str) -> Digests:
        found = json.loads(text)
        rows = (RootDigest(tuple(name), *rest) for name, *rest in found["roots"])
        return cls(tuple(rows), found["iterator"])
