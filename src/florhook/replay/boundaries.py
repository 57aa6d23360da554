"""Two runs side by side, boundary by boundary: where their states part, and in what.

Both leave digests of their state at boundaries of their loops, each at those that its own budget allowed. Those that
both have are compared in program order. Equal digests are equal states. Where they are not, both streams are read
(`state/recorded.py`), and what is found is held to be no difference where it is none of the programs': times of the
clock, addresses, and random states that a run began with and never used.
"""

from __future__ import annotations

import ast
import datetime
import itertools
import json
import random
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..dataclass import dataclass, field, replace
from ..errors import StoreError
from ..hook.timed import timed_names
from ..runtime.clock import NANOSECONDS, SLACK
from ..runtime.digests import Digests, Name, RootDigest
from ..runtime.entropy import PYTHON, row_name
from ..runtime.verifier import readable, times_of, title
from ..state.differences import Difference, Ref, short
from ..state.recorded import Recorded, RecordedComparison, are_addresses
from ..store.rows import CheckpointRow
from .places import EXIT, LEAVES, STREAM, TABLE, place_text
from .record import Loop, Record

MOST_TURNS = 16  # of a random state, each of them 624 draws
MOST = 1000  # differences that are looked for below one root
WORDS = ("in the first", "in the second")
LAST_NAME = re.compile(r"(\w+|\['[^']*'\])(?:\[\d+\])*$")  # of a path: what its value is stored under
TIMES = (int, float, str, datetime.datetime, datetime.timedelta)
ENDED = ("end", "break")


@dataclass(frozen=True)
class Value:
    """One value that differs: its root and path, both values as text, and how they differ.

    `more` is how many other values below the same root differ, at most MOST.
    """

    name: str
    path: str
    was: str
    now: str
    how: str
    more: int = 0


@dataclass(frozen=True)
class Parting:
    """A boundary at which the states differ: the first value of each root, and the roots that only one run has."""

    place: str
    loop: str  # the site's key in the first run
    iteration: int  # EXIT at the loop's end
    values: tuple[Value, ...]
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()


@dataclass
class States:
    """What the comparison of two runs' states found."""

    compared: int = 0  # boundaries that both have
    same: int = 0  # of those, before the first at which something differs
    last_same: str = ""  # the last of these
    start: Parting | None = None  # what differs at the very first one: the runs began so
    parting: Parting | None = None  # the first one after that at which something else differs
    counts: str = ""  # how the numbers of iterations differ, where a loop ended earlier in one run
    unread: int = 0  # boundaries that could not be read
    clock: list[str] = field(default_factory=list)  # what holds times, which were not compared

    @property
    def differ(self) -> bool:
        return self.start is not None or self.parting is not None or bool(self.counts)


class Walk:
    """The places that two runs share, in program order; `sites` gives the second run's loops by the first's."""

    def __init__(self, first: Record, second: Record, sites: Mapping[str, str]) -> None:
        self.first, self.second, self.sites = first, second, sites
        self._inside: dict[tuple[int, int], list[Loop]] = {}
        for loop in sorted(first.loops.values(), key=lambda each: (each.row.entered, each.row.ctx)):
            self._inside.setdefault((loop.row.parent, loop.row.iteration), []).append(loop)

    def loops(self, ctx: int = -1, other_ctx: int = -1, iteration: int = -1) -> Iterator[tuple[Loop, Loop]]:
        """The loops that both runs entered in an iteration of a loop, or outside all loops."""
        for loop in self._inside.get((ctx, iteration), ()):
            place = (other_ctx, iteration, self.sites.get(loop.row.site, ""), loop.row.nth)
            if place in self.second.by_place:
                yield loop, self.second.by_place[place]

    def boundaries(self, loop: Loop, other: Loop) -> Iterator[tuple[Loop, Loop, int]]:
        """The boundaries of a loop, and of those inside, at which both runs left digests."""
        inside = {each.row.iteration for each in self.first.inside.get(loop.row.ctx, ())}
        numbers = {*loop.checkpoints, *loop.witnesses} & {*other.checkpoints, *other.witnesses}
        for iteration in sorted({*inside, *numbers} - {EXIT}):
            if iteration in numbers:
                yield loop, other, iteration
            for pair in self.loops(loop.row.ctx, other.row.ctx, iteration):
                yield from self.boundaries(*pair)
        if EXIT in numbers:
            yield loop, other, EXIT


def compare_states(first: Record, second: Record, sites: Mapping[str, str], same_code: bool) -> States:
    """Walk both runs until something differs that did not from the start."""
    found, comparer, walk = States(), _Comparer(first, second, same_code), Walk(first, second, sites)
    for pair in walk.loops():
        if not _compare_loop(found, comparer, walk, pair):
            break
    found.clock = comparer.clock
    return found


def _compare_loop(found: States, comparer: _Comparer, walk: Walk, pair: tuple[Loop, Loop]) -> bool:
    """Walk one loop outside all others; whether what comes after it can still be compared."""
    first = walk.first
    for loop, other, iteration in walk.boundaries(*pair):
        found.counts = _different_counts(first, loop, other) if iteration == EXIT else ""
        if found.counts:
            return False  # they are at different iterations
        parting = comparer.at(loop, other, iteration)
        if parting is None:
            found.unread += 1
            continue
        found.compared += 1
        if parting.values or parting.only_first or parting.only_second:
            if found.compared > 1:
                found.parting = parting
                return False
            found.start = parting
        elif found.start is None:
            found.same += 1
            found.last_same = parting.place
    found.counts = _different_counts(first, *pair)
    return not found.counts


def _different_counts(first: Record, loop: Loop, other: Loop) -> str:
    """How often a loop ran that was left normally by both runs; "" where that is the same, or not known."""
    known = loop.row.exit in ENDED and other.row.exit in ENDED and not loop.site.tight
    if not known or loop.row.iterations == other.row.iterations:
        return ""
    place = place_text(first, loop, 0).removeprefix("before ")
    return f"{place} ends after {loop.row.iterations} iterations in the first, {other.row.iterations} in the second"


class _Comparer:
    """Compares boundaries, and remembers what differed before, which is not told again."""

    def __init__(self, first: Record, second: Record, same_code: bool) -> None:
        self.records, self.same_code = (first, second), same_code
        self.clock: list[str] = []
        self._told: set[str] = set()  # paths
        self._full: set[Name] = set()  # roots below which not all was looked at
        self._only: set[Name] = set()
        self._unseeded: dict[Name, tuple[str, str] | None] = {}  # the digests of a random state at first
        seeds = [record.run.meta.get("hash_seed") for record in self.records]
        self._ordered = seeds[0] == seeds[1]
        self._clocks = tuple(_Clock(record) for record in self.records)
        trees = (ast.parse(source.source) for record in self.records for source in record.sources)
        self._timed = timed_names(trees)

    def at(self, loop: Loop, other: Loop, iteration: int) -> Parting | None:
        """What differs at a boundary and did not before; None where it cannot be read."""
        rows = loop.at(iteration), other.at(iteration)
        place = place_text(self.records[0], loop, iteration)
        if rows[0] is None or rows[1] is None:
            return None
        try:
            states = _State(self.records[0], rows[0]), _State(self.records[1], rows[1])
            values = self._values(*states)
        except (
            StoreError,
            ValueError,
            TypeError,
            KeyError,
            IndexError,
            EOFError,
            AttributeError,
            RecursionError,
        ):
            return None  # damaged, or in a form that is not known
        only = self._only_in_one(*states)
        values.sort(key=lambda value: value.name in _WORLD)  # stable: the program's own variables first
        return Parting(place, loop.row.site, iteration, tuple(values), *only)

    def _only_in_one(self, was: _State, now: _State) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Variables that one run has and the other has not: with other code, that is the code's difference."""
        if not self.same_code:
            return (), ()
        found = []
        for mine, others in ((was, now), (now, was)):
            names = [
                name for name in mine.digests.names if name not in others.places and name not in self._only
            ]
            self._only.update(names)
            found.append(tuple(title(name) for name in names if name[0] != "world"))
        return found[0], found[1]

    def _values(self, was: _State, now: _State) -> list[Value]:
        names = [name for name in was.digests.names if name in now.places and name not in self._full]
        differing = {name for name in names if not _same_root(was, now, name)}
        differing -= {name for name in differing if self._is_unused(was, now, name)}
        if not differing:
            return []
        comparison = RecordedComparison(was.read(), now.read(), WORDS, self._ordered)
        found: dict[str, Value] = {}
        for name in names:
            here, there = was.places[name], now.places[name]
            if name not in differing:
                comparison.take_as_same(here, there)
            elif not self._tell(found, title(name), comparison.root(here, title(name), there)):
                self._full.add(name)
        for root, rest in comparison.unordered():
            self._tell(found, root, rest)
        return list(found.values())

    def _is_unused(self, was: _State, now: _State, name: Name) -> bool:
        """Whether a random state is, in both runs, one that nobody seeded, and that did not move since we first looked.

        Python and NumPy begin with another one in each process, and libraries draw from it while they are imported.
        """
        if name not in _STATES:
            return name == NAMES_STATE
        key = was.root(name).digest, now.root(name).digest
        if name not in self._unseeded:
            self._unseeded[name] = key if _is_unseeded(was, name) and _is_unseeded(now, name) else None
        return self._unseeded[name] == key

    def _tell(self, values: dict[str, Value], root: str, differences: Iterator[Difference]) -> bool:
        """Keep the first difference of a root that counts and was not told, remember all; whether these are all."""
        found = list(itertools.islice(differences, MOST))
        counting = [each for each in found if self._is_theirs(each)]
        new = [each for each in counting if each.path not in self._told]
        self._told.update(each.path for each in counting)
        if new:
            first = values.get(root)
            more = len(new) if first is not None else len(new) - 1
            first = _value(root, new[0]) if first is None else first
            values[root] = replace(first, more=first.more + more)
        return len(found) < MOST

    def _is_theirs(self, found: Difference) -> bool:
        """Whether a difference is one of the programs', and not of the clock or the memory."""
        was, now = found.was, found.now
        if are_addresses(was, now):
            return False
        last = LAST_NAME.search(found.path)
        timed = (
            last is not None and last[1] in self._timed and isinstance(was, TIMES) and isinstance(now, TIMES)
        )
        if timed or (type(was) is type(now) and self._clocks[0].names(was) & self._clocks[1].names(now)):
            path = readable(found.path)
            if path not in self.clock:
                self.clock.append(path)
            return False
        return True


_WORLD = frozenset(title(("world", name)) for name in ("random", "numpy", "torch", "process"))
NAMES_STATE = (
    "world",
    "tempfile",
)  # which nobody seeds: it decides no more than what temporary files are called


def _value(root: str, found: Difference) -> Value:
    if root in _WORLD and isinstance(found.was, (bytes, tuple, int)):
        return Value(root, root, "", "", "is not the same")
    if isinstance(found.was, bytes) and isinstance(found.now, bytes):
        return Value(root, readable(found.path), "", "", "other bytes")
    if found.was is None and found.now is None:
        return Value(root, readable(found.path), "", "", found.size)
    return Value(root, readable(found.path), short(found.was), short(found.now), found.size)


class _State:
    """A boundary of one run: its digests, and its stream once it is asked for."""

    def __init__(self, record: Record, row: CheckpointRow) -> None:
        self.record, self.row = record, row
        self.digests = Digests.from_row(row)
        self.places = {name: index for index, name in enumerate(self.digests.names)}
        self._read: Recorded | None = None

    def read(self) -> Recorded:
        if self._read is None:
            store, digests = self.record.store, self.row.digests
            table = None if self.row.is_witness else bytes(store.read(digests[TABLE]))
            self._read = Recorded.load(bytes(store.read(digests[STREAM])), table, self.digests.names, self)
        return self._read

    def digest(self, index: int) -> bytes:
        return self.digests.leaf(index)

    def data(self, index: int) -> Any:
        """The bytes of a leaf; None where they were not kept."""
        return None if self.row.is_witness else self.record.store.read(self.row.digests[LEAVES + index])

    def root(self, name: Name) -> RootDigest:
        return self.digests.roots[self.places[name]]

    def leaves(self, place: int) -> list[bytes]:
        """The digests of the leaves that came with a root."""
        first = self.digests.roots[place - 1].leaves if place else 0
        return [self.digest(leaf) for leaf in range(first, self.digests.roots[place].leaves)]


def _same_root(was: _State, now: _State, name: Name) -> bool:
    """By digests. What lies in the part of another root, which is referred to, is that root's."""
    same = was.root(name).digest == now.root(name).digest
    return same and was.leaves(was.places[name]) == now.leaves(now.places[name])


# Random states that nobody has seeded ----------------------------------------------------------------------


def _is_unseeded(state: _State, name: Name) -> bool:
    """Whether a random state can have come, by not too many draws, from the one that the run began with."""
    library, words_of_start, words_of_content = _STATES[name]
    recorded = state.record.states.get(row_name(library))
    read = state.read()
    root = read.roots[state.places[name]]
    if recorded is None or not isinstance(root, Ref):
        return False
    words, position = words_of_start(json.loads(recorded))
    wanted = words_of_content(read.contents[root.number])
    # Both libraries have the same generator, whose words change all at once when they are used up.
    source = random.Random()
    source.setstate((3, (*words, position), None))
    for _ in range(MOST_TURNS):
        if list(source.getstate()[1][:-1]) == wanted:
            return True
        source.getrandbits(32 * len(wanted))
    return False


def _thawed(frozen: Any) -> Any:
    """What `freeze` of NumPy's kinds made plain, its arrays as bytes."""
    if frozen[0] == "dict":
        return {key: _thawed(value) for key, value in frozen[1]}
    return frozen[3] if frozen[0] == "array" else frozen[1]


_STATES: dict[Name, tuple[str, Callable[[Any], tuple[list[int], int]], Callable[[Any], list[int]]]] = {
    ("world", "random"): (
        PYTHON,
        lambda start: (start[1][:-1], start[1][-1]),
        lambda content: list(array("Q", content[1]))[:-1],
    ),
    ("world", "numpy"): (
        "numpy.random",
        lambda start: (start["state"]["key"], start["state"]["pos"]),
        lambda content: list(array("I", _thawed(content[1])["state"]["key"])),
    ),
}
"""By root: the library; from its recorded start, the generator's words and position; from a content, its words."""


# Times ----------------------------------------------------------------------------------------------------


class _Clock:
    """Knows what the clocks of a run said."""

    def __init__(self, record: Record) -> None:
        self._started, self._elapsed = times_of(record)

    def names(self, value: Any) -> set[str]:
        """The clocks that may have said a value while the run went on."""
        return {
            name
            for name, start in self._started.items()
            if (seconds := _seconds(value, name)) is not None
            and -SLACK <= seconds - start <= self._elapsed + SLACK
        }


def _seconds(value: Any, clock: str) -> float | None:
    if type(value) is float:
        return value
    if clock != "time":
        return value / NANOSECONDS if type(value) is int and value > NANOSECONDS else None
    if type(value) is int:
        return value / NANOSECONDS if value > NANOSECONDS**2 / 10 else float(value)
    return value.timestamp() if isinstance(value, datetime.datetime) else None
