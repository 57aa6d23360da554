"""Record mode: watches the loops, takes checkpoints within the budget, hands rows to the store.

Nothing here may harm the program: every probe is guarded, and the first failure ends the recording with one line.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import itertools
import json
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import xxhash

from ..dataclass import astuple, dataclass, field, replace
from ..frames import users_frame
from ..hook.sites import STATEMENT, WHILE
from ..state.iterators import Outline, iterated_over, iterator_in, recorded_outline
from ..state.scan import Entry, Scan, TooLongError
from ..store.recording import PARTS, Recording
from ..store.rows import CheckpointRow, ContextRow, IterationRow, Piece, SourceRow
from . import compiled, probes
from .budget import SPENT, Block, Budget
from .contention import Contention
from .context import Context, Nap, Tracker, counted, labels_of, labels_text, marks_text
from .digests import Digests
from .logged import Logged
from .loggers import LOGGING, SHOWN
from .long_ones import LongOnes, Running
from .opened import OpenedFiles
from .positions import can_position
from .program import Program
from .roots import roots
from .threads import marks_of_others, running_threads

if TYPE_CHECKING:
    from .agreement import Agreement

STALL = ("walk", *PARTS)  # what the program waits for at a checkpoint
EXIT = -1  # the "iteration" of a checkpoint at a loop's exit
DETAIL = 2e-4  # seconds: shorter iterations get no row of their own
LOOK_AGAIN = 2e-3  # seconds between two boundaries of a fast loop that are looked at
MOST_AT_ONCE = 1 << 16
LONG_SLEEP = 10 * LOOK_AGAIN  # between two boundaries: something inside may have taken long that was not seen
RESTLESS_FOR = 64  # boundaries
MOST_ALARM = 16 * LONG_SLEEP
NAP_COST = 1e-6  # seconds that it takes to count an execution that is not looked at,
ASKING = 4  # and so many times as much to see where it is
DEAR = 0.05  # of an iteration's time: if those in it take more, the next ones are slept through,
WATCHFUL = 8  # but each so many-th
MOST_SLEPT = 0.5  # seconds: no longer iterations are slept through
LOST = 1 << 20  # executions of a loop that an iteration may have seen, and nobody counted
QUICK = 1e-3  # seconds: loops that take less are looked at seldom, and get no row
QUICK_AFTER, QUICK_FOR, QUICK_MOST = 8, 64, 4096  # executions
LOOKING = 0.01  # what looking at a quick loop now and then may add to its time
MOST_QUICK = 1e-2  # seconds: no loop that takes longer is quick, whatever looking at it takes
MAIN_QUICK_AFTER = 64  # of a loop outside all others: the next one may be what the program is all about
FIRST_COST = 2e-3  # seconds: what a checkpoint is taken to cost before one was made
WRITER_COST = 5e-10  # seconds of CPU that the writer takes for a byte, until that is known of
KNOWN_OF = 256 << 20  # bytes
NEW_GRAPH = "the statement made a tensor that hangs on an autograd graph"
OF_RANK_0 = "rank 0 refused it for all"
TOO_NEAR = "the last checkpoint was near"
NEVER_WALKED = "the loop was not walked at its entry"
LINES_SHARE = 0.5  # of what recording may add: if lines cost more, those of progress bars are left out
OWN_START = 0.5  # seconds that a replay takes before the program begins
FLUSH = 0.5  # seconds of a run that may be missing in the record if it is killed
PATIENCE = 1.5  # seconds that the writer may take to finish when the program has ended, in any case
UNBOUNDED_PATIENCE = 6.0  # seconds more, where there is no budget
MOST_PATIENCE = 60.0  # seconds, where the budget has so much left
MAIN_LOOPS = 3  # entries of a loop outside all loops that are checkpointed whatever they cost
DYNAMO = "torch._dynamo"
IMPORT = builtins.__import__
P = ParamSpec("P")
R = TypeVar("R")


def accounted(method: Callable[Concatenate[Recorder, P], R]) -> Callable[Concatenate[Recorder, P], R]:
    """What it takes is counted, less what checkpoints take, and is no time of the program's.

    Pickle imports what it names; where the program has put a function of its own in the place, it is not asked.
    """

    @functools.wraps(method)
    def call(self: Recorder, /, *args: P.args, **kwargs: P.kwargs) -> R:
        began = self.halted = self.ran()
        theirs = builtins.__import__
        try:
            if theirs is IMPORT:
                return method(self, *args, **kwargs)
            builtins.__import__ = IMPORT
            return method(self, *args, **kwargs)
        finally:
            if theirs is not IMPORT:
                builtins.__import__ = theirs
            self.halted = None
            seconds = self.ran() - began
            self.hooked += seconds
            self.budget.spent += seconds

    return call


@dataclass
class Watch:
    """What the recorder keeps of an open loop. Times are seconds since the start of the run.

    Those named `ran` are seconds that the program ran, less what recording took.
    """

    entered: float
    entered_ran: float
    out: int
    cells: Callable[[], Any] | None
    began: float = 0.0  # the running iteration
    began_ran: float = 0.0
    began_out: int = 0
    ended: int = 0  # iterations that were accounted for
    left: bool = False  # its iterable is no state any more
    out_left: int | None = None  # a `for`: how much had been printed when its iterator was dropped
    skip: int = 0  # steps of a `while` that are only counted
    entry: str = ""
    wants_exit: bool = False
    boundaries: bool = False
    exit_objection: str = ""  # the budget's, at the entry, to the exit,
    objection: str = ""  # and to the boundaries
    sleeps: bool = False  # nothing is looked at inside the running iterations
    dear: bool = False  # too many loops ran inside for what they take
    holds_long: bool = False  # and none may be slept through
    naps: int = 0  # `Recorder.naps` as the iteration began
    hooked: float = 0.0  # seconds that looking had taken at the entry
    driven: bool = False  # its iterator comes to a place by running only
    flow: Iterator[Any] | None = None  # the iterator's items, while it is iterated over
    checkpoints: int = 0
    checkpoint_ran: float = 0.0  # the last one
    checkpoint_at: float = 0.0
    iterations: list[IterationRow] = field(default_factory=list)
    latest: IterationRow | None = None  # the row of the iteration that ended last, if it has one
    latest_marks: int = 0
    inside: float = 0.0  # seconds of this iteration that loops inside took,
    stated: float = 0.0  # and statements that are looked at, less the loops in these
    statement: Running | None = None  # the one that runs
    walk_s: float = 0.0  # of a statement: seconds of the walk before it


class Recorder(Tracker):
    """Takes the calls of the injected code.

    A RecursionError in them is no failure: the program is at its limit, and about to get its own.
    """

    def __init__(self, program: Program, recording: Recording, epsilon: float, started: float) -> None:
        """`started`: the time of the run's row, from which all other times count."""
        super().__init__(program)
        self.recording = recording
        self.budget = Budget(epsilon)
        self.everything = math.isinf(epsilon)
        self.origin = time.perf_counter() - (time.time() - started)
        self.main_thread = threading.get_ident()
        self.active = True
        self.problem = ""  # why it is not active any more
        self.numbers = itertools.count(1)
        self.checkpoints = 0
        self.places = 0  # those of them that are no entries
        self.stall = 0.0
        self.took = dict.fromkeys(STALL, 0.0)  # seconds of it
        self.walks = 0
        self.hooked = 0.0  # seconds of the injected calls between iterations, at entries and exits, besides
        self.halted: float | None = None  # what `ran` tells while they run
        self.contention = Contention()
        self.iterations = 0
        self.refused: dict[str, int] = {}
        self.crowded: set[str] = set()  # those reasons among them for which the store took no checkpoint
        self.written = 0  # characters of output so far
        # By site and that of the loop around: how many executions more are not looked at,
        self.quick: dict[tuple[int, int], int] = {}
        self.quick_ones: dict[
            tuple[int, int], int
        ] = {}  # and how many in a row were looked at and found quick.
        # Not empty while a loop runs inside which nothing is looked at.
        self.asleep: list[weakref.ref[set[Any]] | Context | Nap] = probes.asleep
        self.asleep.clear()
        self.napped: set[int] = set()  # sites of loops that were met there,
        self.in_while = False  # whether it is a `while` that is slept in,
        self.nap_site = -1  # the site of that which is napped through,
        self.naps = 0  # and how often `NAP_COST` was paid
        self.last_blocks: dict[int, int] = {}  # by site: how many iterations there were between boundaries
        self.restless: dict[
            int, float
        ] = {}  # by site: between how many boundaries more everything is looked at
        self.alarms: dict[int, float] = {}  # by site, for `_alarm`
        self.flushed = 0.0  # when rows were sent last
        self._output: list[str] = []
        self.logged = Logged(self)
        self.files: OpenedFiles | None = None
        self.agreement: Agreement | None = None  # of several ranks
        self.entries: dict[int, int] = {}  # by site, for them
        self.long_ones = LongOnes(self)
        program.on_module = self.on_module

    def now(self) -> float:
        return time.perf_counter() - self.origin

    def ran(self) -> float:
        """What a block computes is measured on this clock, which stands still while code of ours runs."""
        if self.halted is not None:
            return self.halted
        return time.perf_counter() - self.origin - self.stall - self.hooked

    # Injected calls ------------------------------------------------------------------------------------------

    def loop(
        self,
        site: int,
        iterable: Any,
        cells: Callable[[], Any] | None = None,
        frame: FrameType | None = None,
    ) -> Any:
        try:
            if compiled.is_compiling() or not self.active:
                return iterable
            if self.asleep and (site in self.napped or self._sleeps_on(site, frame or sys._getframe(1))):
                return iterable
            if threading.get_ident() != self.main_thread:
                self._ran_elsewhere(site)
                return iterable
            key = site, self.stack[-1].site_id if self.stack else -1
            rest = self.quick.get(key, 0)
            if rest > 0 and self._knows_its_place():
                self.quick[key] = rest - 1
                return self._unseen(site, iterable)
            frame = frame or sys._getframe(1)
            if self._is_quick(site, frame):
                return self._unseen(site, iterable)
            context = self._open(site, frame, iterable, cells)
            if context.site.tight or not _iterates(type(iterable)):
                context.iterable = None
                return iterable
            context.tells = True
            return counted(context, self._blocks, iterable)
        except RecursionError:
            return iterable
        except Exception as error:
            self.stop(error)
            return iterable

    def enter(
        self, site: int, cells: Callable[[], Any] | None = None, frame: FrameType | None = None
    ) -> None:
        try:
            if compiled.is_compiling():
                return
            if self.open_sites.get(site):
                probes.tick(site, probes.AWAKE)  # which counts the steps of one execution only
            if not self.active:
                return
            if self.asleep and (site in self.napped or self._sleeps_on(site, frame or sys._getframe(1))):
                return
            if threading.get_ident() != self.main_thread:
                self._ran_elsewhere(site)
                return
            if site in self.program.leaves and self._knows_its_place():
                key = site, self.stack[-1].site_id if self.stack else -1
                rest = self.quick.get(key, 0)
                if rest > 0:
                    self.quick[key] = rest - 1
                    self._only_count(site)
                    return
            frame = frame or sys._getframe(1)
            if self._is_quick(site, frame):
                self._nap(site, frame)
            else:
                self._open(site, frame, None, cells)
                probes.tick(site, probes.AWAKE)
        except RecursionError:
            return
        except Exception as error:
            self.stop(error)

    def step(self, site: int, frame: FrameType | None = None) -> bool:
        try:
            if compiled.is_compiling():
                return True
            if self.asleep:
                if not self.in_while or not self.open_sites.get(site):
                    return True
                frame = frame or sys._getframe(1)
                if not self._wakes(site, frame):
                    return True
            if self.active and threading.get_ident() == self.main_thread:
                top = self.stack[-1] if self.stack else None
                if top is not None and top.site_id == site:
                    watch = top.extra
                    if watch is None:
                        return True
                    if top.ticks is not None:
                        watch.skip = top.tick_no_more()
                    if watch.skip:
                        watch.skip -= 1
                        top.position += 1
                        return True
                frame = frame or sys._getframe(1)
                context = self.find(site, frame)
                if context is not None:
                    if context.ticks is not None:
                        context.tick_no_more()
                    context.counts.clear()
                    self._boundary(context, frame)
                    context.position += 1
                    self._skip(context)
        except RecursionError:
            return True
        except Exception as error:
            self.stop(error)
        return True

    def _skip(self, context: Context) -> None:
        """The next steps of a `while` are only counted; in C, where neither threads nor torch.compile can see it."""
        context.extra.skip = context.block - 1
        if context.block > 1 and not (
            self.program.replaying or self.marks_of_others() or DYNAMO in sys.modules
        ):
            context.tick(context.extra.skip)
            context.extra.skip = 0
            if self._may_sleep(context):
                self._sleep(context)

    def leave(self, site: int, frame: FrameType | None = None) -> None:
        try:
            if (not self.open_sites.get(site) and site != self.nap_site) or compiled.is_compiling():
                return
            if self.active and threading.get_ident() == self.main_thread:
                if self.asleep and not self.in_while:
                    return
                frame = frame or sys._getframe(1)
                if self.asleep and not self._wakes(site, frame):
                    return
                context = self.find(site, frame)
                if context is not None:
                    self._exit(context, frame)
        except RecursionError:
            return
        except Exception as error:
            self.stop(error)

    def begin(self, statement: int, frame: FrameType | None = None) -> None:
        try:
            if compiled.is_compiling() or self.asleep or not self.active:
                return
            if statement in self.long_ones.looked_at and threading.get_ident() == self.main_thread:
                self._begin_statement(statement, frame or sys._getframe(1))
        except RecursionError:
            return
        except Exception as error:
            self.stop(error)

    def end(self, statement: int, frame: FrameType | None = None) -> None:
        try:
            if compiled.is_compiling() or self.asleep or not self.active:
                return
            if statement in self.long_ones.looked_at and threading.get_ident() == self.main_thread:
                self._end_statement(statement, frame or sys._getframe(1))
        except RecursionError:
            return
        except Exception as error:
            self.stop(error)

    def heard(self, kind: str, *arguments: Any, frame: FrameType | None = None) -> None:
        """The program hands something to a library that logs. Whatever fails here, that line alone is not kept."""
        if not self.active or compiled.is_compiling():
            return
        try:
            if kind == LOGGING:
                self.logged.begins()
            elif kind not in SHOWN or self.everything or self._affords_more_lines():
                self._hear(kind, arguments, frame or sys._getframe(1))
        except Exception:
            return

    def _affords_more_lines(self) -> bool:
        return self.logged.seconds < LINES_SHARE * self.budget.epsilon * self.now()

    @compiled.aside
    def _hear(self, kind: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        began = time.perf_counter()
        is_full = self.logged.take(kind, arguments, frame)
        if threading.get_ident() != self.main_thread:
            return
        if is_full:
            self._flush_output()
        if self.halted is None:
            seconds = time.perf_counter() - began
            self.hooked += seconds
            self.budget.spent += seconds
            self.logged.seconds += seconds

    # The life of a loop --------------------------------------------------------------------------------------

    def _ran_elsewhere(self, site: int) -> None:
        """Loops of other threads are not recorded; that they ran in an iteration of the main thread's is."""
        probes.marks[self.program.site_marks[site]][0] = True

    def marks_of_others(self) -> int:
        return marks_of_others(self.program)

    def _knows_its_place(self) -> bool:
        """Whether the innermost context is the one around, for certain, without asking for a frame."""
        return not self.stack or (self.stack[-1].tells and not self.stack[-1].broken)

    def _unseen(self, site: int, iterable: Any) -> Any:
        """An execution that is only counted, and in which nothing is looked at.

        That it is over is told by C code, whichever way it is left: its iterator goes, with it a set that only this
        holds, and with that the reference in `asleep`.
        """
        self._only_count(site)
        if site in self.program.leaves:
            return iterable
        if self.stack:
            self.stack[-1].blind = True
        held: set[Any] = set()
        self.asleep.append(weakref.ref(held, self.asleep.remove))
        return itertools.chain(iterable, held)

    def _only_count(self, site: int) -> None:
        self.naps += 1
        self.count(site, self.stack[-1] if self.stack else None)
        probes.marks[self.program.site_marks[site]][0] = True

    def _nap(self, site: int, frame: FrameType) -> None:
        """An execution of a `while` that is only counted. Its exit tells that it is over; else see `_sleeps_on`."""
        self._only_count(site)
        if site in self.program.leaves:
            return
        around = self.stack[-1] if self.stack else None
        if around is not None:
            around.blind = True
        self.nap_site, self.in_while = site, True
        self.napped.clear()
        self.asleep.append(Nap(site, self.program.sites[site], frame, around))

    def _alarm(self, context: Context) -> float:
        """How many seconds between two boundaries make the recorder look what takes so long."""
        return self.alarms.get(context.site_id, LONG_SLEEP)

    def _sleep(self, context: Context) -> None:
        """Nothing inside is looked at until the next boundary."""
        context.extra.sleeps = context.blind = True
        if context.block > 1:
            self.long_ones.leave_all_alone(context)
        if context.site.kind == WHILE:
            self.in_while = True
            self.napped.clear()
        self.asleep.append(context)

    def _sleeps_on(self, site: int, frame: FrameType) -> bool:
        """Whether a loop that begins is slept through.

        Nobody tells that a `while` was left by an exception or a return. That is seen when a loop begins elsewhere that
        was not met before; how often those ran which were met, nobody knows for the rest of the iteration around.
        """
        sleeper = self.asleep[-1]
        if not isinstance(sleeper, weakref.ref) and sleeper.site.kind == WHILE:
            if threading.get_ident() != self.main_thread:
                return True
            if self._left(sleeper, site, frame):
                self._wake()
                counts = self.top_counts if sleeper.parent is None else sleeper.parent.counts
                for each in self.napped:
                    self.count(each, sleeper.parent)
                    counts[each] += LOST
                return False
            if site == sleeper.site_id:
                return True
        self.napped.add(site)
        return True

    def _wakes(self, site: int, frame: FrameType) -> bool:
        """Whether the sleep is over, since a `while` makes a step, or is left, that is slept in or lies around."""
        sleeper = self.asleep[-1]
        if isinstance(sleeper, weakref.ref) or sleeper.site.kind != WHILE:
            return False
        if threading.get_ident() != self.main_thread:
            return False
        own = sleeper.site_id == site and sleeper.frame_id == hash(frame)
        if not own and self.find(site, frame) is None:
            return False
        self._wake()
        return True

    def _wake(self, context: Context | None = None) -> None:
        """From the sleep in this `for`, or in a `while`, which lies inside."""
        for sleeper in list(self.asleep):
            if sleeper is context or (not isinstance(sleeper, weakref.ref) and sleeper.site.kind == WHILE):
                self.asleep.remove(sleeper)
        self.nap_site, self.in_while = -1, False

    def _is_quick(self, site: int, frame: FrameType) -> bool:
        """Whether this execution is not looked at, since its site's are too short."""
        if self.everything:
            return False
        self.naps += ASKING
        self._drop_stale(site, frame)
        key = site, self.stack[-1].site_id if self.stack else -1
        rest = self.quick.get(key, 0)
        self.quick[key] = rest - 1
        return rest > 0

    @compiled.aside
    @accounted
    def _open(self, site: int, frame: FrameType, iterable: Any, cells: Callable[[], Any] | None) -> Context:
        context = self.push(site, frame)
        watch = context.extra = self.watch_for(cells)
        if context.parent is not None and self.agreement is None:
            context.block = self.last_blocks.get(site, 1)
        context.iterable = iterable
        self._enter(context, watch, frame, watch.entered)
        if self._is_main_loop(context):
            self._write_open(context)
            self.long_ones.look_at_all(context)
        return context

    def watch_for(self, cells: Callable[[], Any] | None) -> Watch:
        """What is kept of a block that is entered now."""
        now, ran = self.now(), self.ran()
        return Watch(
            now,
            ran,
            self.written,
            cells,
            began=now,
            began_ran=ran,
            began_out=self.written,
            hooked=self.hooked,
        )

    @staticmethod
    def _is_main_loop(context: Context) -> bool:
        return context.parent is None and not context.site.tight and context.nth < MAIN_LOOPS

    def _enter(self, context: Context, watch: Watch, frame: FrameType, now: float) -> None:
        """Walk the state at the entry if this execution may be checkpointed."""
        exits = self.budget.block(context.site_id, "exit")
        boundaries = self.budget.block(context.site_id, "boundary")
        typical = self._typical_cost()
        main_loop = self._is_main_loop(context)
        watch.exit_objection = self.budget.objection(exits, now, 2 * typical)
        worth = self._agreed(not watch.exit_objection, context, "entry", self._count_entry(context))
        watch.wants_exit = main_loop or worth
        watch.boundaries = not context.site.tight
        watch.driven = not can_position(context.site.kind, context.iterable)
        if watch.boundaries and not main_loop and boundaries.executions:
            watch.objection = self.budget.objection(boundaries, now, typical, boundaries.mean)
        if watch.boundaries and not (main_loop or watch.wants_exit or self._affords(typical, now)):
            watch.objection = watch.objection or SPENT
        watch.boundaries = watch.boundaries and not watch.objection
        if not (main_loop or watch.wants_exit or watch.boundaries):
            return
        began = time.perf_counter()
        scan = self._scan(context, watch, frame, None if main_loop else boundaries)
        if scan is None:
            watch.wants_exit = watch.boundaries = False
            watch.exit_objection = watch.objection = NEVER_WALKED
            return
        self._entered(context, watch, scan)
        if main_loop:
            self._store(context, watch, scan, 0, boundaries, began)
        else:
            self._spend(time.perf_counter() - began)

    @staticmethod
    def _entered(context: Context, watch: Watch, scan: Scan) -> None:
        context.entry = Entry(scan)
        watch.entry = json.dumps([context.entry.roots, shape_digest(context.entry.shape)])

    def _affords(self, cost: float, now: float) -> bool:
        return self.everything or self.budget.spent + cost < self.budget.epsilon * now

    def _blocks(self, context: Context, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        """Runs between iterations, never while the program's own iterator does."""
        watch: Watch = context.extra
        watch.flow = flow
        try:
            while True:
                if self.active:
                    context.counts.clear()
                    try:
                        self._boundary(context, users_frame(sys._getframe(1)))
                    except RecursionError:
                        pass
                    except Exception as error:
                        self.stop(error)
                wanted = context.begun + context.block
                if self._may_sleep(context):
                    self._sleep(context)
                yield itertools.islice(flow, context.block)
                self._wake(context)
                if context.begun < wanted:
                    context.exhausted = True
                    return
        except GeneratorExit:
            context.broken = True
            watch.out_left = self.written
            self._wake(context)
        finally:
            watch.flow = None
            if type(context.iterable) is not range:
                context.iterable = None  # the program's object lives no longer than without us

    def _may_sleep(self, context: Context) -> bool:
        """Whether nothing is looked at inside the next iterations: so many of them at once are too short for it.

        Not where loops inside were seen to take long, or may have: then each of them is to be counted, as far as the
        budget goes.
        """
        if not self.active or self.everything or self.agreement is not None:
            return False
        if context.block == 1:
            return context.extra.dear and context.begun % WATCHFUL > 0
        rest = self.restless.get(context.site_id, 0)
        if rest:
            self.restless[context.site_id] = rest - 1
            if rest == 1:  # in vain: something else held the program up
                self.alarms[context.site_id] = min(2 * self._alarm(context), MOST_ALARM)
        return not rest or NAP_COST * self.naps > self.budget.epsilon * self.now()

    @compiled.aside
    @accounted
    def _boundary(self, context: Context, frame: FrameType) -> None:
        watch: Watch = context.extra
        self.close_inner(context)
        begun = context.begun
        if begun:
            self._end_iteration(context, watch, frame)
            self._consider_boundary(context, watch, frame, begun)
        if context.site.kind == WHILE:
            detailed = begun == 0 or self.everything or bool(watch.iterations)
            context.labels = None if detailed else {}
            context.labels = labels_of(context, frame, begun)
        watch.began, watch.began_ran, watch.began_out = self.now(), self.ran(), self.written
        watch.naps = self.naps

    def _end_iteration(self, context: Context, watch: Watch, frame: FrameType) -> None:
        seconds = self.ran() - watch.began_ran
        count = context.begun - watch.ended
        watch.ended = context.begun
        self.iterations += count
        self.budget.block(context.site_id, "boundary").ran(seconds, count)
        if count == 1:
            self.long_ones.iteration_ended(context, seconds - watch.inside - watch.stated)
        watch.inside = watch.stated = 0.0
        if watch.sleeps and seconds > self._alarm(context):
            self.restless[context.site_id] = RESTLESS_FOR
            self.long_ones.iteration_ended(context, seconds)
        if not watch.sleeps:
            naps = NAP_COST * (self.naps - watch.naps)
            watch.dear = naps > DEAR * seconds and not watch.holds_long and seconds < MOST_SLEPT
        watch.sleeps, watch.naps = False, self.naps
        if not self.everything:
            if seconds < LOOK_AGAIN:
                context.block = min(2 * context.block, MOST_AT_ONCE)
            elif context.block > 1:
                context.block = max(1, int(context.block * LOOK_AGAIN / seconds))
        watch.latest = None
        if count != 1 or (seconds < DETAIL and not self.everything):
            return
        index = context.iteration
        labels = labels_text(context, frame, index)
        watch.latest_marks = self.end_marks(context)
        row = IterationRow(-1, index, watch.began, watch.began_out, marks_text(watch.latest_marks), labels)
        watch.iterations.append(row)
        watch.latest = row
        if watch.began - self.flushed > FLUSH:
            self._write_open(context)

    def _add_the_end(self, context: Context, watch: Watch) -> None:
        """What ran after the last iteration: the test that failed, the rest of a generator, the loop's `else`.

        A replay comes there by running the last iteration, so it counts as part of that.
        """
        marks = self.end_marks(context)
        if watch.latest is not None and marks | watch.latest_marks != watch.latest_marks:
            watch.iterations.append(replace(watch.latest, marks=marks_text(marks | watch.latest_marks)))

    def _consider_boundary(self, context: Context, watch: Watch, frame: FrameType, begun: int) -> None:
        block = self.budget.block(context.site_id, "boundary")
        spacing = self.ran() - (watch.checkpoint_ran or watch.entered_ran)
        possible = watch.boundaries and context.entry is not None
        objection = watch.objection
        if possible:
            objection = self._too_near(context) or self.budget.objection(
                block, self.now(), self._typical_cost(), spacing, self._reserved(context)
            )
        if self._agreed(possible and not objection, context, "boundary", begun) and possible:
            self._checkpoint(context, watch, frame, begun, block)
        else:
            block.refused[objection or self._why_not()] += 1
            self._witness(context, watch, frame, begun, block, self.ran() - watch.began_ran)

    def _reserved(self, context: Context) -> float:
        """Seconds of the budget that are kept for the next boundaries of the loops around."""
        reserved, outer = 0.0, context.parent
        while outer is not None:
            if outer.extra is not None and outer.extra.boundaries:
                reserved += self.budget.block(outer.site_id, "boundary").cost
            outer = outer.parent
        return reserved

    def _too_near(self, context: Context) -> str:
        """Why a boundary of an inner loop is not worth a checkpoint: a replay takes longer to come to the main loop."""
        if context.parent is None or self.everything:
            return ""
        last = max((each.extra.checkpoint_at for each in self.stack if each.extra is not None), default=0.0)
        return TOO_NEAR if self.now() - last < OWN_START + self.stack[0].extra.entered else ""

    def _why_not(self) -> str:
        """Why a checkpoint that the budget allows is not taken."""
        return NEVER_WALKED if self.agreement is None else OF_RANK_0

    def _count_entry(self, context: Context) -> int:
        """Which execution of its loop begins, from 0 on; counted for several ranks only."""
        if self.agreement is None:
            return 0
        self.entries[context.site_id] = self.entries.get(context.site_id, -1) + 1
        return self.entries[context.site_id]

    def _agreed(self, local: bool, context: Context, kind: str, number: int) -> bool:
        """What the budget says of that boundary, or of that execution of the loop; or what rank 0's does."""
        if self.agreement is None:
            return local
        if kind != "boundary":
            return self.agreement.settle(local, f"{kind} {context.site.key}", number, number + 1, number == 0)
        what = f"{kind} {' '.join(_place(context))}"
        return self.agreement.settle(local, what, number, number + context.block, number <= 1)

    @compiled.aside
    @accounted
    def _exit(self, context: Context, frame: FrameType) -> None:
        """The loop is left normally: exhausted, by its test, or by break."""
        watch: Watch = context.extra
        self.close_inner(context)
        if context.begun > watch.ended:
            self._end_iteration(context, watch, frame)
        else:
            self._add_the_end(context, watch)
        watch.left = True
        block = self.budget.block(context.site_id, "exit")
        seconds = self.ran() - watch.entered_ran
        block.ran(seconds)
        self._learn_how_quick(context, seconds)
        possible = watch.wants_exit and context.entry is not None
        objection = watch.exit_objection
        if self.everything:
            objection = ""
        elif possible:
            objection = self.budget.objection(
                block, self.now(), self._typical_cost(), seconds, self._reserved(context)
            )
        worth = self._agreed(not objection, context, "exit", self.entries.get(context.site_id, 0))
        if possible and worth:
            self._checkpoint(context, watch, frame, EXIT, block)
        else:
            block.refused[objection or self._why_not()] += 1
            self._witness(context, watch, frame, EXIT, block, seconds)
        self.pop_to(context)

    def _learn_how_quick(self, context: Context, seconds: float) -> None:
        main = context.parent is None
        key = context.site_id, -1 if context.parent is None else context.parent.site_id
        took = self.hooked - context.extra.hooked  # seconds, of what looking at it takes
        if self.halted is not None:
            took += time.perf_counter() - self.origin - self.stall - self.hooked - self.halted
        limit = max(QUICK, min(MOST_QUICK, 2 * took / self.budget.epsilon))
        in_a_row = self.quick_ones[key] = self.quick_ones.get(key, 0) + 1 if seconds < limit else 0
        if in_a_row >= (MAIN_QUICK_AFTER if main else QUICK_AFTER) and not self.everything:
            rest = int(took / LOOKING / max(seconds, 1e-6))
            self.quick[key] = min(max(QUICK_FOR, rest), QUICK_MOST)

    @compiled.aside
    @accounted
    def _begin_statement(self, statement: int, frame: FrameType) -> None:
        self.long_ones.begin(statement, frame)

    @compiled.aside
    @accounted
    def _end_statement(self, statement: int, frame: FrameType) -> None:
        self.long_ones.end(statement, frame)

    def objection_to(self, context: Context, block: Block) -> str:
        """Why no checkpoint is taken after a statement; empty if one is."""
        typical = self._typical_cost() * (1 if context.entry is not None else 2)
        return self.budget.objection(block, self.now(), typical, None, self._reserved(context))

    def walk_entry(self, context: Context, frame: FrameType, block: Block) -> None:
        """Before a statement that will be checkpointed."""
        began = time.perf_counter()
        scan = self._scan(context, context.extra, frame, block)
        if scan is not None:
            self._entered(context, context.extra, scan)
            context.extra.walk_s = time.perf_counter() - began
            self._spend(context.extra.walk_s)

    def checkpoint_exit(self, context: Context, frame: FrameType, block: Block) -> None:
        """After a statement, and its row. The walk before it is a part of what it costs: there was none otherwise.

        Rows of the loops around are sent when they would be without it.
        """
        checkpoints, flushed = block.checkpoints, self.flushed
        self._checkpoint(context, context.extra, frame, EXIT, block)
        if block.checkpoints > checkpoints:
            block.cost += context.extra.walk_s
        if context.number >= 0:
            self._write_context(context, context.extra, "end")
            self.flushed = flushed

    def end_marks(self, context: Context) -> int:
        self.long_ones.abandon(context)
        return super().end_marks(context)

    def closed(self, context: Context, abandoned: bool) -> None:
        watch: Watch | None = context.extra
        if watch is None:
            return
        if self.asleep and context in self.asleep:
            self._wake(context)
        self.last_blocks[context.site_id] = context.block
        seconds = self.ran() - watch.entered_ran
        if context.parent is not None and context.parent.extra is not None:
            context.parent.extra.inside += seconds
            context.parent.extra.holds_long |= seconds >= LONG_SLEEP
            if seconds >= LONG_SLEEP and context.parent.block > 1:
                self.restless[context.parent.site_id] = math.inf
        if abandoned and seconds < QUICK:  # where it is not, the loop may have been left long ago
            self._learn_how_quick(context, seconds)
        if context.number < 0 and seconds < QUICK:
            return
        self._number(context)
        how = "abandoned" if abandoned else ("break" if context.broken else "end")
        self._write_context(context, watch, how)

    # Rows ----------------------------------------------------------------------------------------------------

    def _number(self, context: Context) -> int:
        """The context's number in the store; its parents get theirs too."""
        if context.number < 0:
            if context.parent is not None:
                self._number(context.parent)
            context.number = next(self.numbers)
        return context.number

    def _write_context(self, context: Context, watch: Watch, how: str) -> None:
        parent = context.parent.number if context.parent is not None else -1
        row = ContextRow(
            ctx=context.number,
            parent=parent,
            iteration=context.parent_iteration,
            site=context.site.key,
            nth=context.nth,
            entered=watch.entered,
            out=watch.out,
            left=self.now() if how else None,
            out_left=self._out_left(watch, how),
            iterations=context.begun,
            exit=how,
            marks=marks_text(context.total),
            entry=watch.entry,
        )
        self.recording.rows("contexts", [astuple(row)])
        rows = [(context.number, *astuple(iteration)[1:]) for iteration in watch.iterations]
        watch.iterations.clear()
        self.recording.rows("iterations", rows)
        self._flush_output()
        self.flushed = self.now()

    def _out_left(self, watch: Watch, how: str) -> int | None:
        """That a loop was left by a return or an exception is seen later; when its iterator went is known."""
        if how == "abandoned" and watch.out_left is not None:
            return watch.out_left
        return self.written if how else None

    def on_module(self, name: str, path: str, source: bytes) -> None:
        self.recording.rows("sources", [astuple(SourceRow(name, path, source))])

    def wrote(self, text: str) -> None:
        """The program wrote to stdout."""
        self.written += len(text)
        self._output.append(text)
        if len(self._output) > 1000:
            self._flush_output()

    def watch_files(self, files: OpenedFiles) -> None:
        """Have the files that the program opens in the record."""
        self.files = files
        files.announce = self._send_files
        files.install()

    def _send_files(self) -> None:
        if self.files is not None:
            self.recording.rows("files", [astuple(row) for row in self.files.rows()])

    def _flush_output(self) -> None:
        self._send_files()
        if self._output:
            text = "".join(self._output)
            self._output.clear()
            self.recording.rows("output", [(self.written - len(text), text)])
        self.recording.rows("logged", self.logged.taken())

    # Checkpoints ---------------------------------------------------------------------------------------------

    def _scan(
        self, context: Context, watch: Watch, frame: FrameType, block: Block | None = None
    ) -> Scan | None:
        """Walk the state; within the patience of the block, if there is one."""
        follower = compiled.follower()
        if follower:
            self._refuse(f"{follower} follows what is done with tensors")
            return None
        began = time.perf_counter()
        patience = math.inf
        if block is not None:
            patience = self.budget.patience(block, self.now(), self._typical_cost())
        try:
            iterable = None if watch.left else context.iterable
            return Scan(self.program, roots(self.program, frame, watch.cells, iterable), patience)
        except TooLongError:  # as where the budget did not allow it in the first place
            if block is not None:
                self.budget.took_too_long(block, time.perf_counter() - began)
            self._spend(time.perf_counter() - began)
            return None
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")
            return None
        finally:
            self.walks += 1
            self._lap("walk", began)

    def _checkpoint(
        self, context: Context, watch: Watch, frame: FrameType, iteration: int, block: Block
    ) -> None:
        began = time.perf_counter()
        scan = self._scan(context, watch, frame, block)
        if scan is not None:
            self._store(context, watch, scan, iteration, block, began)

    def _witness(
        self, context: Context, watch: Watch, frame: FrameType, iteration: int, block: Block, spacing: float
    ) -> None:
        """Keep the digests alone, if they are worth it; `spacing` is what they would verify, in seconds."""
        if context.site.tight:
            return
        if self.budget.allows_witness(block, self.now(), self._typical_cost(), spacing):
            began = time.perf_counter()
            scan = self._scan(context, watch, frame, block)
            if scan is not None:
                self._witness_of(context, scan, iteration, block, began)

    def _witness_of(
        self, context: Context, scan: Scan, iteration: int, block: Block, began: float | None = None
    ) -> None:
        lap = time.perf_counter()
        began = lap if began is None else began
        digests = Digests.of(scan, witness=True)
        self._lap("digest", lap)
        row = CheckpointRow(self._number(context), iteration, self.now(), self.written, digests.to_text())
        stream = Piece(("stream", context.site_id), memoryview(scan.stream), compress=True)
        self.recording.checkpoint(row, [stream])
        seconds = time.perf_counter() - began
        self.stall += seconds
        self.budget.witness(block, seconds)
        self._check()

    def _store(
        self, context: Context, watch: Watch, scan: Scan, iteration: int, block: Block, began: float
    ) -> None:
        lap = time.perf_counter()
        try:
            outline = self._outline(context, watch, scan) if iteration > 0 else None
            numbers = outline.numbers() if outline is not None else {}
            shared = scan.remade(self._iterators(context))
            blockers = [f"{shared} is drawn from by a loop and by the program"] if shared else []
            blockers += scan.entangled()
            stuck = scan.stuck(context.entry, lambda name: self._is_fixed(context, name))
            if stuck is not None:
                blockers.append(f"{stuck} is a variable that the loop does not assign to")
            if iteration != 0 and not blockers:
                blockers = self._blockers(context, scan, outline, numbers)
            if not blockers and context.site.kind == STATEMENT and scan.graph_born(context.entry):
                blockers = [NEW_GRAPH]
            if blockers:
                self._refuse(blockers[0])
                self._spend(time.perf_counter() - began)
                block.executions += 1 if not block.executions else 0
                self._witness_of(context, scan, iteration, block)
                return
            table = scan.table(context.entry, numbers)
        except Exception as error:
            self._refuse(f"{type(error).__name__}: {error}")
            self._spend(time.perf_counter() - began)
            return
        lap = self._lap("walk", lap)
        number = self._number(context)
        digests = Digests.of(scan, outline.digest() if outline is not None else None)
        self._lap("digest", lap)
        row = CheckpointRow(number, iteration, self.now(), self.written, digests.to_text())
        pieces = [
            Piece(("stream", context.site_id), memoryview(scan.stream), compress=True),
            Piece(("table", context.site_id), memoryview(table), compress=True),
            *(Piece(leaf.key, leaf.view) for leaf in scan.leaves),
        ]
        if self.files is not None:
            self.files.note_states(row.taken)
        self._flush_output()  # first, so that no checkpoint is there without what had been printed by then
        sent, memory = self.recording.bytes_sent, self.recording.took.get("memory", 0.0)
        taken = self.recording.checkpoint(row, pieces)
        seconds = time.perf_counter() - began
        self.stall += seconds
        if not taken:
            self.budget.spent += seconds
            reason = self.recording.failed or self.recording.skipped or "skipped"
            self._refuse(reason)
            self.crowded.add(reason)
            self._check()
            return
        seconds += self._felt(self.recording.bytes_sent - sent)
        self.budget.took(block, seconds, self.recording.took.get("memory", 0.0) - memory)
        self.checkpoints += 1
        self.places += iteration != 0
        watch.checkpoints += 1
        watch.checkpoint_ran, watch.checkpoint_at = self.ran(), self.now()
        if context.site.kind != STATEMENT and (watch.checkpoints == 1 or iteration > 0):
            self._write_open(context)
        self._tell_note()

    @staticmethod
    def _outline(context: Context, watch: Watch, scan: Scan) -> Outline | None:
        if not watch.driven or watch.flow is None:
            return None
        return recorded_outline(scan, context.entry, iterator_in(watch.flow))

    def _blockers(
        self, context: Context, scan: Scan, outline: Outline | None, driven: Mapping[Any, int]
    ) -> list[str]:
        unreadable = outline.unreadable() if outline is not None else None
        if unreadable is not None:
            return [f"the place in {unreadable} cannot be read"]
        running = [f"thread {name} is running" for name in running_threads(self.program.user_modules)]
        return [*scan.blockers(context.entry, driven, self._pinned(context)), *running]

    @staticmethod
    def _is_fixed(context: Context, name: tuple[Any, ...]) -> bool:
        """Whether a root is a variable that no restore assigns to: in a replay it keeps the object that it has."""
        return name[0] == "local" and (name[1] > 0 or name[3] not in context.site.names)

    def _iterators(self, context: Context) -> set[int]:
        """What the open loops draw from: it is theirs, whatever a restore makes of the program's variables."""
        found = self._pinned(context)
        if hasattr(type(context.iterable), "__next__"):
            found.add(id(context.iterable))
        if context.extra.flow is not None and context.begun:
            found |= iterated_over(context.extra.flow)
        return found

    def _pinned(self, context: Context) -> set[int]:
        """What the loops around iterate over: they hold it where no restore comes to."""
        around = (each.extra.flow for each in self.stack if each is not context and each.extra is not None)
        return {each for flow in around if flow is not None for each in iterated_over(flow)}

    def _write_open(self, context: Context) -> None:
        """So that a run that is killed has its loops, with all around them."""
        self._number(context)
        outer: Context | None = context
        while outer is not None:
            self._write_context(outer, outer.extra, "")
            outer = outer.parent

    def _felt(self, size: int) -> float:
        """The seconds that the writer will take from the program for so many bytes, by what it took so far."""
        known, cpu = self.recording.bytes_sent, self.recording.writer_cpu_s
        rate = (cpu + KNOWN_OF * WRITER_COST) / (known + KNOWN_OF)
        return size * rate * self.contention.share()

    def _lap(self, part: str, began: float) -> float:
        now = time.perf_counter()
        self.took[part] += now - began
        return now

    def _spend(self, seconds: float) -> None:
        self.stall += seconds
        self.budget.spent += seconds

    def _typical_cost(self) -> float:
        return self.stall / self.checkpoints if self.checkpoints else FIRST_COST

    def _refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    # Ends ----------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.recording.failed is not None and self.active:
            self.give_up(self.recording.failed)

    def _tell_note(self) -> None:
        note, self.recording.note = self.recording.note, None
        if note is not None:
            _say(note)

    def stop(self, error: BaseException) -> None:
        internal = f"internal error: {type(error).__name__}: {error}; please report it"
        self.give_up("out of memory" if isinstance(error, MemoryError) else internal)

    def give_up(self, reason: str) -> None:
        self.active = False
        if self.files is not None:
            self.files.active = False
        self.problem = reason
        _say(f"recording stopped ({reason}); the program runs on without it")

    def finish(self, exit_code: int) -> dict[str, Any]:
        """The program has ended: write what is open, wait for the writer; gives the figures of the run."""
        wall = self.now()
        while self.active and self.stack:  # left by what ended the program, or it would not be open
            self.abandon_innermost()
        self._flush_output()
        stats = self.figures(exit_code, wall)
        if self.problem:
            stats["stopped"] = self.problem
        complete = self.recording.finish(time.time(), exit_code, stats, self._patience(wall))
        self._tell_note()
        if self.recording.left is not None:
            _say(self.recording.left)
        if self.active and self.recording.failed:
            self.give_up(self.recording.failed)
        elif self.active and not complete:
            _say("the record is not complete yet: its writer goes on alone")
        elif self.active:
            self._say_what_was_refused()
        recording = self.recording
        return {**stats, "bytes_written": recording.bytes_written, "writer_cpu_s": recording.writer_cpu_s}

    def _patience(self, wall: float) -> float:
        """How many seconds the writer may take to finish: what the budget has left, and a moment."""
        left = UNBOUNDED_PATIENCE if self.everything else self.budget.epsilon * wall - self.budget.spent
        return min(MOST_PATIENCE, PATIENCE + max(0.0, left))

    def _say_what_was_refused(self) -> None:
        """Once, and only where the store had no room, or nothing but the entries of main loops could be kept."""
        said = {reason: n for reason, n in self.refused.items() if not self.places or reason in self.crowded}
        if said:
            reason, count = max(said.items(), key=lambda item: item[1])
            _say(f"{count} checkpoints were not taken ({reason}); a replay executes what lies between")

    def figures(self, exit_code: int, wall: float) -> dict[str, Any]:
        return {
            "exit_code": exit_code,
            "wall_s": wall,
            "overhead_s": self.budget.spent,
            "stall_s": self.stall,
            "walks": self.walks,
            "hook_s": self.hooked,
            "checkpoints": self.checkpoints,
            "bytes_captured": self.recording.bytes_captured,
            "bytes_written": self.recording.bytes_written,
            "iterations_executed": self.iterations,
            "iterations_skipped": 0,
            "refused": self.refused,
            "stall": {part: self.took[part] + self.recording.took.get(part, 0.0) for part in STALL},
            "writer_cpu_s": self.recording.writer_cpu_s,
            "blocks": [
                {"site": self.program.site(site).key, "kind": kind, **block.figures()}
                for (site, kind), block in self.budget.blocks.items()
                if block.checkpoints or block.refused
            ],
        }


def _say(text: str) -> None:
    with contextlib.suppress(Exception):  # stderr is closed: there is nobody to tell
        sys.stderr.write(f"florhook: {text}\n")


def _iterates(cls: type) -> bool:
    """Asked of the type, since asking the object would call the user's `__getattribute__`."""
    return hasattr(cls, "__iter__") or hasattr(cls, "__getitem__")


def shape_digest(shape: list[str]) -> str:
    return xxhash.xxh3_128_hexdigest("\n".join(shape).encode())


def _place(context: Context) -> Iterator[str]:
    """The names of a loop and of those around it, as other ranks would give them."""
    inside: Context | None = context
    while inside is not None:
        yield f"{inside.site.key} {inside.nth} {inside.parent_iteration}"
        inside = inside.parent
