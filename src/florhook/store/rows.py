"""The rows that pass through the store, as plain dataclasses: what the recorder writes and the replayer reads."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ..dataclass import dataclass, field

DIGEST = 16  # bytes
FOLDER_GONE, LINK = "folder gone", "link "  # of a FileRow
CELL = "<cell>"  # instead of a loop's site: the place before a notebook's cell
WITNESS = '{"witness": true'  # how the meta of one begins


@dataclass(frozen=True)
class RunRow:
    """One recorded run. Times are seconds since the epoch; `meta` and `stats` are JSON objects."""

    id: str
    program: str  # what was asked for, made absolute: "/w/train.py", "-m shop.train", "-c"
    argv: tuple[str, ...]  # the program's own arguments, without its name
    cwd: str
    started: float
    meta: dict[str, Any] = field(default_factory=dict)
    ended: float | None = None
    exit_code: int | None = None
    stats: dict[str, Any] = field(default_factory=dict)
    lost: float | None = None  # when the writer saw that the program had gone without a goodbye
    signed: bool = False  # its checkpoints carry a MAC of the recording user's key

    @property
    def rank(self) -> int:
        """Which of the processes of a launch recorded it."""
        return int(self.meta.get("rank", 0))

    @property
    def world(self) -> int:
        """How many processes the launch had; 1 where the program ran alone."""
        return int(self.meta.get("world", 1))

    @property
    def origin(self) -> float:
        """The time from which all times in its rows count: its start, or that of the run which it continues."""
        return float(self.meta.get("origin", self.started))


@dataclass(frozen=True)
class SourceRow:
    """The source of one instrumented module as it was at record, in the order of import."""

    module: str
    path: str
    source: bytes


@dataclass(frozen=True)
class ContextRow:
    """One execution of one loop. Written at its entry and again, complete, when it is left.

    It is found again by (parent, iteration, site, nth): the nth execution of the site within that iteration of
    the parent context (-1, -1 for none).
    """

    ctx: int
    parent: int
    iteration: int
    site: str
    nth: int
    entered: float  # seconds since the start of the run
    out: int  # characters of output recorded before the entry
    left: float | None = None
    out_left: int | None = None
    iterations: int | None = None  # how many were begun so far, or in all once it is left
    exit: str = ""  # "" still open, "end", "break" (left normally), "abandoned" (return or exception)
    marks: str = ""  # hex bitmask: which functions and loops ran inside
    entry: str = ""  # JSON: names of the roots and digest of the structure at the entry scan


@dataclass(frozen=True)
class IterationRow:
    """One iteration of a recorded context, written after it has ended."""

    ctx: int
    iteration: int
    began: float
    out: int
    marks: str
    labels: str  # JSON object: values of the loop's own variables


@dataclass(frozen=True)
class CheckpointRow:
    """State at the boundary before `iteration` of `ctx`; iteration -1 is the exit of the loop."""

    ctx: int
    iteration: int
    taken: float
    out: int
    meta: str  # JSON: digests by root, what blocks its use
    digests: tuple[bytes, ...] = ()  # of its pieces, in order; filled in by the writer
    lengths: tuple[int, ...] = ()
    streams: tuple[
        int, ...
    ] = ()  # which pieces are pickle streams; these three are filled in by the writer too
    seals: tuple[bytes, ...] = ()  # BLAKE2b-256 of each of them
    mac: bytes = b""  # over all of the above with the user's key; empty when the run is unsigned

    @property
    def is_witness(self) -> bool:
        """Whether it holds digests only: a replay can be compared with it, not restored from it."""
        return self.meta.startswith(WITNESS)


def split_digests(digests: bytes) -> tuple[bytes, ...]:
    """As the catalog has them, one after another."""
    return tuple(digests[at : at + DIGEST] for at in range(0, len(digests), DIGEST))


@dataclass(frozen=True)
class FileRow:
    """A file that the program opened, and what it was then.

    `how` is "read" (the first time), "append" (the first time: `size` is that of before, -1 if it was not there),
    "write" (each time: its old content is lost), "folder" (it is about to be made), "folder gone", "link TARGET" (a
    symbolic link is about to be made; "link " alone: it is gone), or, of a file that was opened for
    writing, at a checkpoint, "size", "gone", or "content": `changed` is then a digest of its last MiB (-1: none).
    """

    path: str
    how: str
    at: float  # seconds since the start of the run
    size: int  # bytes
    changed: int  # nanoseconds since the epoch


@dataclass(frozen=True)
class LoggedRow:
    """What the program handed to a library that logs, as `runtime/loggers.py` tells it."""

    at: float  # seconds since the start of the run
    out: int  # characters of output before it
    out_after: int  # and when the library was done with it, which may have printed it
    loops: str  # JSON: of each loop around, from outside in, [site, nth, iteration, labels]
    via: str  # the library
    head: str  # in front of the text where lines are shown
    place: str  # "train.py:12"
    text: str
    named: str  # JSON: [name, number] of each value; "" where they are to be found in the text


@dataclass(frozen=True)
class Piece:
    """Bytes of a checkpoint, valid only during the call that hands them over.

    `key` names the same leaf in successive checkpoints (so that what never changes is hashed first and what
    always changes is copied first); `compress` is true for the object stream.
    """

    key: Hashable
    view: memoryview
    compress: bool = False
