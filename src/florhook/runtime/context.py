"""Executions of loops: which are open, how they nest, and what ran inside them.

A loop execution is found again in another process by its parent, the parent's iteration, its site, and how many
executions of that site this iteration has seen before it.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ..frames import variables_of
from ..hook.sites import WHILE, Site
from . import probes, quiet
from .program import MARK_BITS, Program

FOREVER = sys.maxsize
SCALARS = (bool, int, float, str)
FLAG = operator.itemgetter(0)


class Context:
    """One execution of one loop, while it is open."""

    __slots__ = (
        "blind",
        "block",
        "broken",
        "code",
        "counted",
        "counts",
        "entry",
        "exhausted",
        "extra",
        "frame_id",
        "iterable",
        "labels",
        "marks",
        "nth",
        "number",
        "parent",
        "parent_iteration",
        "position",
        "selectors",
        "site",
        "site_id",
        "tells",
        "ticks",
        "ticks_most",
        "total",
    )  # fmt: skip

    def __init__(self, site_id: int, site: Site, frame: FrameType, parent: Context | None) -> None:
        self.site_id, self.site, self.frame_id = site_id, site, hash(frame)
        # The hash is the address, as `id` gives it with an audit event, for which hooks of ours would run. An address
        # is used again, seldom by the same function.
        self.code = frame.f_code
        self.parent = parent
        self.parent_iteration = parent.iteration if parent else -1
        self.nth = 0
        self.number = -1  # in the store, once it is worth a row
        self.position = 0  # iterations begun, where no selectors count them
        self.selectors: Any = None
        # Of a `while` that is not looked at: so many steps may be counted in C, and were not yet.
        self.ticks_most = 0
        self.ticks: itertools.repeat[bool] | None = None
        self.counts: dict[int, int] = {}  # of the sites inside, in the iteration `counted`
        self.counted = -1
        self.blind = False  # loops ran in this iteration that were not looked at, nor what ran in them
        self.block = 1  # iterations between two boundaries that are looked at
        self.marks = 0  # what ran in this iteration so far
        self.total = 0  # what ran in those before
        self.iterable: Any = None
        self.labels: dict[str, Any] | None = None  # of a `while`, as its iteration began
        self.tells = False  # `broken` is set at once
        self.broken = False  # its iterator was dropped: break, return or exception
        self.exhausted = False
        self.entry: Any = None
        self.extra: Any = None  # of the recorder or the replayer

    @property
    def begun(self) -> int:
        """How many iterations were begun."""
        if self.selectors is None:
            return self.position + self.ticked
        return FOREVER - int(self.selectors.__length_hint__()) + self.position

    @property
    def ticked(self) -> int:
        """How many steps were counted in C since the last one that was looked at."""
        return 0 if self.ticks is None else self.ticks_most - self.ticks.__length_hint__()

    def tick(self, most: int) -> None:
        """Have the next steps counted in C, so many at most."""
        self.ticks_most, self.ticks = most, itertools.repeat(True, most)
        probes.tick(self.site_id, functools.partial(next, self.ticks, False))

    def tick_no_more(self) -> int:
        """How many of those steps were left."""
        left = self.ticks_most - self.ticked
        self.position += self.ticked
        self.ticks_most, self.ticks = 0, None
        probes.tick(self.site_id, probes.AWAKE)
        return left

    @property
    def iteration(self) -> int:
        """The iteration that runs, or the one that ended last."""
        return self.begun - 1


class Nap:
    """An execution of a `while` that is only counted: nothing is looked at until it is left."""

    __slots__ = ("code", "frame_id", "parent", "site", "site_id")

    def __init__(self, site_id: int, site: Site, frame: FrameType, parent: Context | None) -> None:
        self.site_id, self.site, self.parent = site_id, site, parent
        self.frame_id, self.code = hash(frame), frame.f_code


class Tracker:
    """The open contexts of the main thread, innermost last."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.stack: list[Context] = []
        self.open_sites: dict[int, int] = {}  # how many contexts each site has there
        self.top_counts: dict[int, int] = {}
        self._insides: dict[tuple[int, str], bool] = {}

    def push(self, site_id: int, frame: FrameType) -> Context:
        self._drop_stale(site_id, frame)
        parent = self.stack[-1] if self.stack else None
        before = harvest()
        if parent is not None:
            parent.marks |= before
        context = self._place(site_id, frame, parent)
        context.marks = self.marks_of_others()
        # it ran around its iterations, not in one
        context.total = 1 << MARK_BITS * self.program.site_marks[site_id]
        return context

    def count(self, site_id: int, parent: Context | None) -> int:
        """How many executions of a site came before in the parent's iteration; one more from now on."""
        if parent is None:
            counts = self.top_counts
        else:
            counts = parent.counts
            if (
                parent.block != 1 and parent.counted != parent.iteration
            ):  # else it was cleared between the two
                counts.clear()
                parent.counted = parent.iteration
        before = counts.get(site_id, 0)
        counts[site_id] = before + 1
        return before

    def _place(self, site_id: int, frame: FrameType, parent: Context | None) -> Context:
        """A new innermost context, which knows how many of its site came before in the parent's iteration."""
        context = Context(site_id, self.program.sites[site_id], frame, parent)
        context.nth = self.count(site_id, parent)
        self.stack.append(context)
        self.open_sites[site_id] = self.open_sites.get(site_id, 0) + 1
        return context

    def pop(self) -> Context:
        """Take the innermost context away."""
        context = self.stack.pop()
        if context.ticks is not None:
            context.tick_no_more()
        self.open_sites[context.site_id] -= 1
        if context.site.kind == WHILE and not self.open_sites[context.site_id]:
            probes.tick(context.site_id)
        return context

    def find(self, site_id: int, frame: FrameType) -> Context | None:
        """The innermost context of that site in that frame."""
        frame_id = hash(frame)
        for context in reversed(self.stack):
            if context.site_id == site_id and context.frame_id == frame_id:
                return context
        return None

    def pop_to(self, context: Context) -> None:
        """Close `context` and whatever was left open inside it by a return or an exception."""
        while self.stack:
            top = self.pop()
            self._fold_marks(top)
            self.closed(top, abandoned=top is not context)
            if top is context:
                return

    def close_inner(self, context: Context) -> None:
        """At a boundary of `context` nothing can be open inside: what still is, a return or exception has left."""
        while self.stack and self.stack[-1] is not context:
            self.abandon_innermost()

    def closed(self, context: Context, abandoned: bool) -> None:
        """For the recorder and the replayer."""

    def _fold_marks(self, context: Context) -> None:
        self.end_marks(context)
        if context.parent is not None:
            context.parent.marks |= context.total

    def end_marks(self, context: Context) -> int:
        """What ran in the iteration that ends."""
        others = self.marks_of_others()
        marks = context.marks | harvest() | others
        if context.blind:
            marks, context.blind = self.program.with_loops_inside(marks), False
        context.total |= marks
        context.marks = others  # for the next iteration as well, in which they may end
        return marks

    def marks_of_others(self) -> int:
        """What other threads are running now, of interest to the recorder."""
        return 0

    def _drop_stale(self, site_id: int, frame: FrameType) -> None:
        """Contexts that a return or an exception left: the iterator of a `for` told us, the others have none."""
        while self.stack:
            top = self.stack[-1]
            unseen = top.site.kind == WHILE or top.site.tight or top.extra is None
            if not top.broken and not (unseen and self._left(top, site_id, frame)):
                return
            self.abandon_innermost()

    def abandon_innermost(self) -> None:
        """A return or an exception has left it."""
        top = self.pop()
        if top.extra is not None:  # else what ran stays to be harvested
            self._fold_marks(top)
        self.closed(top, abandoned=True)

    def _left(self, context: Context | Nap, site_id: int, frame: FrameType) -> bool:
        """Whether a loop cannot be running any more, since a loop of that site begins in that frame."""
        if context.frame_id == hash(frame) and context.code is frame.f_code:
            return not self._inside(site_id, context.site.key)
        outer = frame.f_back
        while outer is not None:
            if hash(outer) == context.frame_id and outer.f_code is context.code:
                return False
            outer = outer.f_back
        return True

    def _inside(self, site_id: int, key: str) -> bool:
        """Whether a loop stands in the loop of that key."""
        known = self._insides.get((site_id, key))
        if known is None:
            known, site = False, self.program.sites[site_id]
            while site.outer and not known:
                known = site.outer == key
                site = next(s for s in self.program.sites if s.key == site.outer)
            self._insides[site_id, key] = known
        return known


def harvest() -> int:
    """The marks set since the last harvest, as a bitmask with MARK_BITS for each."""
    found = bytes(map(FLAG, probes.marks))
    at = found.find(1)
    while at >= 0:
        probes.marks[at][0] = False
        at = found.find(1, at + 1)
    return int.from_bytes(found, "little")


def counted(
    context: Context, blocks: Callable[[Context, Iterator[Any]], Iterator[Iterator[Any]]], items: Any
) -> Any:
    """An iterator over `items` that lets `blocks` run between blocks of them and counts what was taken.

    All of it is C but `blocks`, which is not running while the user's own iterator is: no frame of ours shows in a
    traceback, and `iter(items)` is called at the first step, after the entry.
    """
    flow = flow_of(context, items)
    return itertools.chain.from_iterable(quiet.iterate(blocks(context, flow), flow))


def flow_of(context: Context, items: Any) -> Iterator[Any]:
    """The items one by one, counted by `context.begun`; `iter(items)` is called at the first of them."""
    context.selectors = itertools.repeat(True, FOREVER)
    return itertools.compress(itertools.chain.from_iterable((items,)), context.selectors)


def labels_of(context: Context, frame: FrameType | None, item_index: int) -> dict[str, Any]:
    """Values of the loop's own variables, where they are plain."""
    if context.labels is not None:
        return context.labels
    return {name: _plain(value) for name, value in _label_values(context, frame, item_index)}


def labels_text(context: Context, frame: FrameType | None, item_index: int) -> str:
    """The same as JSON, in which the name "" has the names of those that do not compute as Python's own values do."""
    if context.labels is not None:
        return json.dumps(context.labels)
    values = dict(_label_values(context, frame, item_index))
    labels: dict[str, Any] = {name: _plain(value) for name, value in values.items()}
    unlike = [name for name, value in values.items() if type(value) is not type(labels[name])]
    return json.dumps({**labels, "": unlike} if unlike else labels)


def _label_values(context: Context, frame: FrameType | None, item_index: int) -> Iterator[tuple[str, Any]]:
    site = context.site
    if type(context.iterable) is range and len(site.labels) == 1:
        name, place = site.labels[0]
        if not place and 0 <= item_index < len(context.iterable):
            yield name, context.iterable[item_index]
            return
    if frame is None:
        return
    values = variables_of(frame)
    for name, _ in site.labels:
        value: Any = values.get(name)
        if type(value) in SCALARS or _is_number_of_numpy(value):
            yield name, value


def _is_number_of_numpy(value: Any) -> bool:
    return hasattr(value, "item") and getattr(value, "ndim", 1) == 0 and type(value).__module__ == "numpy"


def _plain(value: Any) -> Any:
    return value if type(value) in SCALARS else value.item()


def by_address(frame: FrameType | None) -> dict[int, FrameType]:
    """A frame and those that called it, by `Context.frame_id`."""
    found = {}
    while frame is not None:
        found[hash(frame)] = frame
        frame = frame.f_back
    return found


def marks_text(marks: int) -> str:
    """The ids of the marks in a bitmask of `harvest`, as "3,17"."""
    data = marks.to_bytes((marks.bit_length() + 7) // 8, "little")
    return ",".join(str(index) for index, byte in enumerate(data) if byte)
