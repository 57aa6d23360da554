"""Which bytes of a checkpoint have to be handed over, and which are known to be stored already.

Small pieces are copied and hashed at once. A large piece that had not changed on the last occasion of the kind is
hashed, and copied only if it has changed now; any other is copied, and the writer hashes the copy. A digest is always
that of the copy: the original may be changed by another thread between the two.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable

from xxhash import xxh3_128_digest

from florhook.store.rows import Piece

from ..dataclass import dataclass, field

SMALL = 4096
KNOWN, COPIED, SMALL_COPY, STREAM = 0, 1, 2, 4  # where a piece is; STREAM is a flag
UNKNOWN = bytes(16)
Key = tuple[Hashable, Hashable]  # of a piece, and the occasion
_MOST = 200_000  # digests or keys to remember in each generation


class Generations:
    """A bounded set of digests, which forgets the older half at a time."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._new: set[bytes] = set()
        self._old: set[bytes] = set()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._new or digest in self._old

    def update(self, digests: Iterable[bytes]) -> None:
        """Remembers the digests."""
        self._new.update(digests)
        if len(self._new) > self._most:
            self._old, self._new = self._new, set()

    def forget(self, digests: Iterable[bytes]) -> None:
        """They are not known any more."""
        self._new.difference_update(digests)
        self._old.difference_update(digests)


@dataclass
class Draft:
    """A checkpoint about to be handed over: what is known of each piece, and what must be copied."""

    occasion: Hashable
    places: bytearray = field(default_factory=bytearray)
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    digests: list[bytes] = field(default_factory=list)
    copies: list[memoryview] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)  # of the copies
    smalls: list[bytes] = field(default_factory=list)
    fresh: set[bytes] = field(default_factory=set)  # digests of the smalls

    @property
    def large(self) -> int:
        """Bytes to copy."""
        return sum(len(view) for view in self.copies)


class Lean:
    """Remembers, for one run, which digests are stored and which pieces tend not to change."""

    def __init__(self) -> None:
        self._stored = Generations()
        self._last: dict[Hashable, bytes] = {}  # the digest that a piece had last
        self._changing: set[Key] = (
            set()
        )  # pieces that were found to have changed since then, on such an occasion

    def select(self, pieces: Iterable[Piece], occasion: Hashable = None) -> Draft:
        """Decides what has to be copied. `occasion`: what changes between two boundaries may not before an exit."""
        draft = Draft(occasion)
        for piece in pieces:
            length = piece.view.nbytes
            draft.lengths.append(length)
            if length <= SMALL:
                self._small(draft, piece)
            else:
                self._large(draft, piece)
        return draft

    def _small(self, draft: Draft, piece: Piece) -> None:
        data = bytes(piece.view)
        digest = xxh3_128_digest(data)
        draft.digests.append(digest)
        if piece.compress:
            # never left out: the writer seals the bytes of a stream, not its digest
            draft.places.append(SMALL_COPY | STREAM)
            draft.smalls.append(data)
        elif digest in draft.fresh or digest in self._stored:
            draft.places.append(KNOWN)
        else:
            draft.places.append(SMALL_COPY)
            draft.smalls.append(data)
            draft.fresh.add(digest)

    def _large(self, draft: Draft, piece: Piece) -> None:
        view = flat(piece.view)
        flag = STREAM if piece.compress else 0
        key, last = (piece.key, draft.occasion), self._last.get(piece.key)
        if last is not None and key not in self._changing:
            digest = xxh3_128_digest(view)
            if digest == last or (not flag and digest in self._stored):
                draft.places.append(KNOWN | flag)
                draft.digests.append(digest)
                self._last[piece.key] = digest
                return
            self._changing.add(key)
        draft.places.append(COPIED | flag)
        draft.digests.append(UNKNOWN)
        draft.copies.append(view)
        draft.keys.append(key)

    def sent(self, draft: Draft) -> None:
        """The draft is with the writer: what was in it counts as stored, since messages keep their order."""
        self._stored.update(draft.fresh)

    def learned(self, keys: list[Key], digests: list[bytes]) -> None:
        """The writer has hashed the copies of an earlier draft."""
        if len(self._last) + len(self._changing) > _MOST:
            self._last.clear()
            self._changing.clear()
        for key, digest in zip(keys, digests, strict=True):
            if self._last.get(key[0]) == digest:
                self._changing.discard(key)
            self._last[key[0]] = digest
        self._stored.update(digests)

    def forget(self, digests: Iterable[bytes]) -> None:
        """The writer has removed them: they are to be copied again."""
        gone = set(digests)
        self._stored.forget(gone)
        self._last = {key: last for key, last in self._last.items() if last not in gone}


def flat(view: memoryview) -> memoryview:
    """The same bytes in one dimension."""
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    if view.c_contiguous:
        return view.cast("B")
    return memoryview(view.tobytes())
