"""Replay mode: takes the calls of the injected code, restores checkpoints and runs only what the plan asks for."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, NoReturn

from ..dataclass import replace
from ..frames import users_frame
from ..hook.sites import FOR, STATEMENT, WHILE
from ..replay.plan import EXIT, Question, Step, steps_for, value_or_number
from ..replay.record import Loop, Record
from ..replay.share import Share
from ..replay.versions import moved_folder
from ..state.iterators import iterator_in, replayed_outline
from ..state.kinds.generators import closing
from ..state.lazy import without_lazy
from ..state.live import Live
from ..state.restore import CannotRestoreError, Loader
from ..state.scan import Entry, Root, Scan
from ..store.rows import CheckpointRow
from . import compiled
from .clock import Readings
from .context import Context, Tracker, by_address, flow_of, labels_of
from .digests import Digests
from .moved import Moved
from .positions import drive
from .probes import UnknownLoopError
from .program import Program
from .recorder import shape_digest
from .roots import finalized, roots, set_world
from .threads import running_threads
from .verifier import Verifier, times_of

Name = tuple[Any, ...]
EVERYTHING = "*"  # to be avoided: all checkpoints but those of main loops' entries, which make a run its own
BUT_ITS_ENTRY = " but its entry"  # behind a site: the same for this one
LONG = 0.1  # seconds
ONLY_OURS = 3  # references: the list's, a variable's and an argument's


class Turn:
    """What the replayer keeps of an open loop."""

    def __init__(self, loop: Loop | None, cells: Callable[[], Any] | None) -> None:
        self.loop = loop
        self.cells = cells
        self.entry_names: list[Name] = []
        self.live: Live | None = None  # the objects of the entry scan, by number
        self.usable: set[int] = set()  # checkpoints that may be restored
        self.entry: Entry | None = None  # the same for who records from here on
        self.steps: deque[Step] = deque([Step(None)])
        self.step = Step(None)
        self.flow: Iterator[Any] | None = None  # the iterable's items, counted
        self.runs = False  # whether the step runs iterations at all
        self.stepping = False  # a `while`: its last `step` let it go on
        self.stopped = False  # the plan ended the step, not the program
        self.finished = False  # the program ended the loop without break
        self.restored: dict[Name, Any] | None = None
        self.verified = 0  # the last boundary at which the state was known to be the recorded one
        self.share: Share | None = (
            None  # where its steps come from, one by one, if others do part of the loop
        )


class Replayer(Tracker):
    """`restart(site, reason)` ends this process, which is run again without that site's checkpoints.

    `avoid` are the sites of which earlier attempts found that.
    """

    def __init__(
        self,
        program: Program,
        record: Record,
        question: Question,
        avoid: frozenset[str],
        restart: Callable[[str, str], NoReturn],
    ) -> None:
        super().__init__(program)
        self.record, self.question, self.avoid, self.restart = record, question, avoid, restart
        self.pid, self.main_thread = os.getpid(), threading.get_ident()
        self.foreign = threading.local()  # open loops of other threads
        self.on_restore: Callable[[CheckpointRow, float], None] = lambda checkpoint, before: None
        self.bring_file_to: Callable[[Any, int, str | None], None] | None = None
        self.on_end: Callable[[], None] = lambda: None  # the record goes no further
        self.found: Callable[[str], None] = lambda text: None  # an expression that was looked for is true
        self.on_work: Callable[[], None] = lambda: None  # at each loop that is more than a part of the start
        self.on_main_iteration: Callable[[int], None] = lambda count: None  # with how many have run so far
        self.in_main = 0  # iterations of main loops that have run
        self.left_early = 0  # iterations, after their last probe
        self.executed = self.skipped = self.blocks_skipped = self.jumps = 0
        moved = Moved(moved_folder(record.run, os.getcwd()), program.recorded_lines)
        self.verifier = Verifier(program, record, Readings(*times_of(record)), moved)
        self.ahead = {
            ctx for ctx, loop in record.loops.items() if loop.row.parent < 0
        }  # main loops still to come
        self.notes: list[str] = []
        self.restore_s = 0.0
        self.driving = 0  # an iterator is brought to its place: what runs is no part of the plan
        self.quietly: Callable[[], AbstractContextManager[object]] = nullcontext
        # Holds back what is printed, until it is told whether the program has printed that.
        self.hold: Callable[[], Callable[[bool], None]] = lambda: lambda _: None
        self.meet: Callable[[str], bool] | None = None  # of several ranks: wait for the others
        self.share: Share | None = None  # of several processes
        self.files: list[Any] = []  # open for writing, as the last restore knew them
        self.on_heard: Callable[[str, tuple[Any, ...], FrameType], None] | None = None  # what is logged
        self.dying: list[Any] = []  # what had a `__del__` or a `finally` to run before a restore
        self.statements: list[Context] = []  # recorded ones that run; they stand in no other list
        self.restoring_takes: dict[str, float] = {}  # seconds, by statement, the last time

    # Injected calls ------------------------------------------------------------------------------------------

    @compiled.aside
    def open(self, site: int, *arguments: Any) -> None:
        frame = users_frame(sys._getframe(1))
        is_for = self.program.sites[site].kind == FOR
        cells = arguments[int(is_for)] if len(arguments) > int(is_for) else None
        if not self._is_main():
            context = Context(site, self.program.sites[site], frame, None)
            self._foreign_stack().append(context)
        else:
            context = self.push(site, frame)
        context.iterable = arguments[0] if is_for else None
        turn = context.extra = Turn(self._recorded(context), cells)
        if turn.loop is not None:
            if turn.loop.row.entry or turn.loop.seconds(0, turn.loop.known) > LONG:
                self.on_work()
            self.ahead.discard(turn.loop.row.ctx)
            self._plan(context, turn, frame)
        elif self._is_beyond_the_record(context):
            self.on_end()

    @compiled.aside
    def segment(self, site: int) -> bool:
        frame = users_frame(sys._getframe(1))
        context = self._context(site, frame)
        turn: Turn = context.extra
        broken = context.broken or (turn.stepping and not turn.stopped)
        if turn.stopped and turn.step.last:
            self.on_end()
        if turn.finished or broken:
            return False
        whole = turn.stopped and turn.runs and not turn.step.early
        agrees = not whole or self._verify_end(context, turn, context.begun, frame)
        if not turn.steps and turn.share is not None:
            assert turn.loop is not None
            turn.steps.extend(turn.share.steps(turn.loop, turn.usable, context.begun if agrees else -1))
        if not turn.steps:
            return False
        turn.step = turn.steps.popleft()
        turn.stopped = turn.stepping = False
        turn.runs = turn.step.restore != EXIT
        if turn.step.restore is not None:
            self._restore(context, turn, turn.step.restore, frame)
        return True

    def restoring(self, site: int) -> bool:
        return self._context(site, users_frame(sys._getframe(1))).extra.restored is not None

    def has(self, site: int, index: int) -> bool:
        frame = users_frame(sys._getframe(1))
        return self._local(site, index, frame) in self._context(site, frame).extra.restored

    def value(self, site: int, index: int) -> Any:
        frame = users_frame(sys._getframe(1))
        return self._context(site, frame).extra.restored[self._local(site, index, frame)]

    def items(self, site: int) -> Any:
        context = self._context(site, users_frame(sys._getframe(1)))
        turn: Turn = context.extra
        self._taken_up(turn)
        if not turn.runs:
            return ()
        if context.site.tight:
            iterable, context.iterable = context.iterable, None  # it lives no longer than plainly
            return iterable
        return itertools.chain.from_iterable(self._blocks(context, turn, self._flow(context, turn)))

    def step(self, site: int, frame: FrameType | None = None) -> bool:
        frame = frame or users_frame(sys._getframe(1))
        context = self._context(site, frame)
        turn: Turn = context.extra
        self._taken_up(turn)
        if not turn.runs or context.position == turn.step.stop:
            turn.stopped, turn.stepping = True, False
            return False
        if not self._boundary(context, turn, frame):
            turn.stepping = False
            return False
        context.position += 1
        self._ran(context, turn)
        turn.stepping = True
        return True

    def enough(self, site: int) -> bool:
        context = self._context(site, users_frame(sys._getframe(1)))
        step: Step = context.extra.step
        leaves = step.early and context.begun == step.stop
        if leaves:
            self.left_early += 1
            loop = context.extra.loop
            self.skipped += self.record.iterations_inside(loop.row.ctx, context.iteration)
        return leaves

    def done(self, site: int) -> None:
        """The inner loop ended without break: by the program or, if `stopped`, by the plan."""
        turn: Turn = self._context(site, users_frame(sys._getframe(1))).extra
        turn.finished = turn.runs and not turn.stopped
        turn.stepping = False

    def completed(self, site: int) -> bool:
        return bool(self._context(site, users_frame(sys._getframe(1))).extra.finished)

    @compiled.aside
    def leave(self, site: int, frame: FrameType | None = None) -> None:
        frame = frame or users_frame(sys._getframe(1))
        context = self._context(site, frame)
        if not self._is_main():
            self._foreign_stack().remove(context)
            return
        turn: Turn = context.extra
        if turn.finished and turn.step.last:  # in the run nothing came after it
            self.on_end()
        self.close_inner(context)
        if turn.runs:
            self._verify_end(context, turn, EXIT, frame)
        self.pop_to(context)
        if turn.share is not None and turn.loop is not None:
            turn.share.left(turn.loop)

    @compiled.aside
    def executes(self, statement: int) -> bool:
        """Whether a statement that took long in the run is to be run; else it was, and its names are to be assigned."""
        if self.driving or not self._is_main() or os.getpid() != self.pid:
            return True
        frame = users_frame(sys._getframe(1))
        around = self.find(self.program.loops_of[statement], frame)
        if around is None or around.extra.loop is None:
            return True
        self.close_inner(around)
        # What an exception has left is over.
        self.statements = [s for s in self.statements if s.frame_id != hash(frame) and s.parent in self.stack]
        site = self.program.statements[statement]
        recorded = self.record.statement_at.get((around.extra.loop.row.ctx, around.iteration, site.key))
        if recorded is None or self._is_faster_run(recorded):
            return True
        context = Context(-1 - statement, site, frame, around)
        turn = context.extra = Turn(recorded, around.extra.cells)
        self.statements.append(context)
        began = time.perf_counter()
        self._plan(context, turn, frame)
        turn.step = turn.steps.popleft()
        turn.runs = turn.step.restore != EXIT
        if not turn.runs:
            self._restore(context, turn, EXIT, frame)
            self._go_on_counting(around, recorded)
            self.restoring_takes[site.key] = time.perf_counter() - began
        return turn.runs

    def _is_faster_run(self, statement: Loop) -> bool:
        """Whether a statement took less time in the run than the last restore after it took here."""
        took = statement.seconds(0, statement.known)
        return took < self.restoring_takes.get(statement.site.key, 0.0)

    @compiled.aside
    def after(self, statement: int) -> None:
        """The statement is over, or its names are assigned."""
        if not self._is_main() or not self.statements:
            return
        frame, context = users_frame(sys._getframe(1)), self.statements[-1]
        if context.site_id != -1 - statement or context.frame_id != hash(frame):
            return
        self.statements.pop()
        turn: Turn = context.extra
        self._taken_up(turn)
        if turn.runs and context.parent is not None:
            self.close_inner(context.parent)
            self._verify(context, turn, EXIT, frame)

    def _go_on_counting(self, around: Context, recorded: Loop) -> None:
        """As many executions of loops had been seen as there were in the run."""
        counts = json.loads(recorded.row.entry)[2]
        around.counts.clear()
        for number, site in enumerate(self.program.sites):
            if site.key in counts:
                around.counts[number] = counts[site.key]

    def heard(self, kind: str, *arguments: Any) -> None:
        """The program hands something to a library that logs. Whatever fails here, the program goes on."""
        if self.on_heard is None or compiled.is_compiling():
            return
        with contextlib.suppress(Exception):
            self.on_heard(kind, arguments, sys._getframe(1))

    # Finding one's way ---------------------------------------------------------------------------------------

    def _is_main(self) -> bool:
        return threading.get_ident() == self.main_thread

    def _foreign_stack(self) -> list[Context]:
        if not hasattr(self.foreign, "stack"):
            self.foreign.stack = []
        return self.foreign.stack  # type: ignore[no-any-return]

    def _context(self, site: int, frame: FrameType) -> Context:
        if site < 0 and self.statements and self.statements[-1].site_id == site:
            return self.statements[-1]
        for context in reversed(self._own_stack()):
            if context.site_id == site and context.frame_id == hash(frame):
                return context
        raise UnknownLoopError(f"no open loop of site {site}")

    def _recorded(self, context: Context) -> Loop | None:
        """The same execution of the loop in the record; none in other threads and in forked children."""
        if self.driving or not self._is_main() or os.getpid() != self.pid:
            return None
        parent = context.parent
        if parent is None:
            number = -1
        elif parent.extra.loop is None:
            return None
        else:
            number = parent.extra.loop.row.ctx
        return self.record.by_place.get((number, context.parent_iteration, self._key(context), context.nth))

    def _key(self, context: Context) -> str:
        """The recorded name of the loop."""
        return context.site.key

    def _is_beyond_the_record(self, context: Context) -> bool:
        """Whether a run that was killed had not come to this loop, outside all others, that is about to be entered."""
        killed = self.record.run.exit_code is None
        outside = self._is_main() and context.parent is None and not context.site.tight
        return killed and outside and not self.ahead and not self.driving

    def _local(self, site: int, index: int, frame: FrameType) -> Name:
        return ("local", 0, frame.f_code.co_name, self.program.site(site).names[index])

    def labels(self) -> Iterator[tuple[str, float]]:
        """The loop variables around the place that runs now."""
        frames = by_address(sys._getframe(1))
        for context in self.stack:
            values = labels_of(context, frames.get(context.frame_id), context.iteration)
            for name, _ in context.site.labels:
                yield name, value_or_number(values.get(name), context.iteration)

    def shown_labels(self) -> list[tuple[str, Any]]:
        """The plain loop variables with their values, and the numbers of iterations without; of all open loops."""
        shown: list[tuple[str, Any]] = []
        for _, _, iteration, values in self.loops() if self._is_main() else ():
            if iteration >= 0:
                shown += values.items() if values else [("iteration", iteration)]
        return shown

    def loops(self) -> list[tuple[str, int, int, dict[str, Any]]]:
        """Those around the place that runs now, from outside in: site, nth, iteration, and variables."""
        frames = by_address(sys._getframe(1))
        found = []
        for context in self._own_stack():
            frame = frames.get(context.frame_id)
            if not context.broken and frame is not None and frame.f_code is context.code:
                values = labels_of(context, frame, context.iteration)
                found.append((self._key(context), context.nth, context.iteration, values))
        return found

    def stamp(self) -> object:
        """Equal to another one only as long as `loops` gives the same."""
        stack = self._own_stack()
        if not stack:
            return None
        innermost = stack[-1]
        if (
            innermost.site.tight or innermost.site.kind == WHILE
        ):  # nobody counts it, or is told that it was left
            return object()
        return innermost, innermost.begun, innermost.broken

    def _own_stack(self) -> list[Context]:
        return self.stack if self._is_main() else self._foreign_stack()

    # Plan ----------------------------------------------------------------------------------------------------

    def _plan(self, context: Context, turn: Turn, frame: FrameType) -> None:
        loop = turn.loop
        assert loop is not None
        unusable = set(loop.checkpoints) if loop.site.key in self.avoid or not loop.row.entry else set()
        if not self.avoid.isdisjoint({EVERYTHING, loop.site.key + BUT_ITS_ENTRY}):
            unusable |= set(loop.checkpoints) - {0}
        if context.site.tight:
            unusable |= {k for k in loop.checkpoints if k > 0}
        turn.usable = set(loop.checkpoints) - unusable
        steps = self._steps(loop, unusable)
        wanted = any(step.restore is not None for step in steps) or (context.parent is None and turn.usable)
        if wanted and not (self._alone(context) and self._enter(context, turn, frame)):
            if self.meet is not None:
                self.restart(loop.site.key, self.notes[-1])  # the other ranks must not skip it, either
            steps, turn.usable = self._steps(loop, set(loop.checkpoints)), set()
        turn.steps = deque(steps)
        if self.share is not None and self.share.divides(loop):
            if not turn.usable:
                self.share.alone(self.notes[-1])
            turn.steps, turn.share = deque(), self.share

    def _steps(self, loop: Loop, unusable: set[int]) -> Sequence[Step]:
        """What to do in a recorded loop."""
        return steps_for(loop, self.question, unusable)

    @property
    def has_skipped(self) -> bool:
        """Whether any part of the run was left out so far."""
        return bool(self.skipped or self.blocks_skipped or self.left_early)

    def skip_no_more(self) -> None:
        """From here on, everything is executed."""
        self.avoid |= {EVERYTHING}
        for context in self.stack:
            turn: Turn = context.extra
            last = any(step.last for step in turn.steps)
            if not turn.step.last:
                turn.steps = deque([Step(None, turn.loop.known if turn.loop and last else None, last)])
            turn.step = replace(turn.step, early=False)

    def _alone(self, context: Context) -> bool:
        """Whether no thread is at work that a restore could not bring to where it was in the run, or to its end."""
        running = running_threads(self.program.user_modules)
        return not running or self._note(context, f"thread {running[0]} is running")

    def _enter(self, context: Context, turn: Turn, frame: FrameType) -> bool:
        """Walk the state at the entry as the recorder did, so that objects get the same numbers."""
        assert turn.loop is not None
        names, shape = json.loads(turn.loop.row.entry)[:2]
        turn.entry_names = [tuple(name) for name in names]
        found = self._roots(context, turn, frame)
        missing = [name for name in turn.entry_names if name not in found]
        if missing:
            return self._note(context, f"{' '.join(map(str, missing[0]))} is missing")
        try:
            scan = Scan(self.program, [Root(name, found[name]) for name in turn.entry_names])
            lazy = without_lazy(scan) if shape_digest(scan.shape()) != shape else None
            if lazy:  # a print may have filled them
                scan = Scan(self.program, scan.roots, arranged=lazy)
        except Exception as error:
            return self._note(context, f"its state cannot be read ({type(error).__name__}: {error})")
        if shape_digest(scan.shape()) != shape:
            return self._note(context, "its state has another structure than in the record")
        self._entered(turn, scan)
        return True

    def _entered(self, turn: Turn, scan: Scan) -> None:
        turn.live = Live.of(scan)

    def _roots(self, context: Context, turn: Turn, frame: FrameType) -> dict[Name, Any]:
        return {root.name: root.value for root in roots(self.program, frame, turn.cells, context.iterable)}

    def _note(self, context: Context, reason: str) -> bool:
        what = "statement" if context.site.kind == STATEMENT else "loop"
        self.notes.append(f"{what} at {self.program.place(context.site)}: {reason}; it is run in full")
        return False

    # Iterations ----------------------------------------------------------------------------------------------

    def _flow(self, context: Context, turn: Turn) -> Iterator[Any]:
        if turn.flow is None:
            turn.flow = flow_of(context, context.iterable)
        return turn.flow

    def _blocks(self, context: Context, turn: Turn, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        try:
            while True:
                if context.begun == turn.step.stop:
                    yield from self._stop(turn, flow)
                    return
                if not self._boundary(context, turn, sys._getframe(1)):
                    return
                before = context.begun
                yield itertools.islice(flow, 1)
                if context.begun == before:
                    return
                self._ran(context, turn)
        except GeneratorExit:
            self._ran(context, turn)
            context.broken = True
        finally:
            if not turn.stopped:  # as in a recording, the iterator lives no longer than plainly
                turn.flow = None
                if type(context.iterable) is not range:
                    context.iterable = None

    def _may_leave_by_itself(self, turn: Turn) -> bool:
        """Whether an exception of what is iterated over, or the loop's `else`, may have left it: not its body."""
        loop, step = turn.loop, turn.step
        return (
            step.last
            and loop is not None
            and step.stop == loop.known
            and not (loop.is_open or self.record.was_interrupted_in(loop))
        )

    def _stop(self, turn: Turn, flow: Iterator[Any]) -> Iterator[Iterator[Any]]:
        """The step ends here. Where the record does so too, the loop may be over: one more item is asked for.

        If there is none, or the iterator raises, that is how the run left the loop (by a return in its `else`, say). If
        there is one, the run had left the loop in another way, which is not to be had again.
        """
        if not self._may_leave_by_itself(turn):
            turn.stopped = True
            return
        let_go = self.hold()

        def is_beyond(_: Any) -> None:
            let_go(False)
            self.on_end()

        try:
            yield map(is_beyond, itertools.islice(flow, 1))
        finally:
            let_go(True)

    def _ran(self, context: Context, turn: Turn) -> None:
        self.executed += 1
        if context.parent is None and turn.loop is not None:
            self.in_main += 1
            self.on_main_iteration(self.in_main)

    @compiled.aside
    def _boundary(self, context: Context, turn: Turn, frame: FrameType) -> bool:
        """Between iterations. False: the loop must go on from the recorded state."""
        if not self._is_main():
            return True
        self.close_inner(context)
        context.counts.clear()
        begun = context.begun
        known = not begun or self._verify(context, turn, begun, frame)
        if not known and self._go_on_from(turn, begun):
            return False
        if context.site.kind == WHILE:
            context.labels = None
            context.labels = labels_of(context, frame, context.begun)
        return True

    # Restore -------------------------------------------------------------------------------------------------

    def _restore(self, context: Context, turn: Turn, iteration: int, frame: FrameType) -> None:
        loop = turn.loop
        assert loop is not None
        began = time.perf_counter()
        checkpoint = loop.checkpoints[iteration]
        if context.site.kind != STATEMENT:
            self.close_inner(context)
        before = context.begun
        self._meet(loop, before, iteration)
        self.dying.extend([*finalized(self.program.sources.values()), *closing()])
        if iteration == EXIT:
            self._drop_iterator(context, turn)
        try:
            if not self.record.store.trusted(self.record.run, checkpoint):
                raise PermissionError("it was not signed by this user")
            running = running_threads(self.program.user_modules)
            if running:
                raise CannotRestoreError(f"thread {running[0]} is running")
            if turn.live is not None and turn.live.let_go:
                turn.live.find(Scan(self.program, roots(self.program, frame, turn.cells, context.iterable)))
            self.dying.extend(turn.live.generators() if turn.live is not None else ())
            self._position(context, turn, iteration)
            with self._aside():
                values = self._load(checkpoint, turn, loop.site.key)
            self._set_globals(values, turn.entry_names)
            set_world(values)
        except Exception as error:
            # The entry of a main loop makes the run's names and draws its own, whatever else is to be executed.
            keeps_entry = iteration != 0 and loop.row.parent < 0 and 0 in turn.usable
            self.restart(loop.site.key + BUT_ITS_ENTRY * keeps_entry, f"{type(error).__name__}: {error}")
        turn.restored = values
        turn.verified = iteration
        context.counts.clear()
        self.skipped += (loop.known if iteration == EXIT else iteration) - before
        self.skipped += context.site.kind == STATEMENT  # which is a loop of one iteration, so to speak
        self.blocks_skipped += iteration == EXIT
        self.jumps += 1
        self.on_restore(checkpoint, loop.time_at(before))
        self._meet(loop, before, iteration)
        self.restore_s += time.perf_counter() - began

    def _taken_up(self, turn: Turn) -> None:
        """The program's variables have their restored values.

        What only we refer to now had died in the run, where its `__del__` ran and did what is in the restored state:
        it must not run again.
        """
        turn.restored = None
        if turn.live is not None:
            turn.live.release()
        if self.dying:
            for obj in self.dying:
                if sys.getrefcount(obj) <= ONLY_OURS:
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))  # for good
            self.dying.clear()

    def _meet(self, loop: Loop, before: int, iteration: int) -> None:
        """Where ranks leave out a part of the run, they do it together."""
        if self.meet is None or before == iteration:
            return
        if not self.meet(f"{loop.site.key} {loop.row.iteration} {loop.row.nth} {iteration}"):
            self.restart(EVERYTHING, "the ranks are at different places")

    def _position(self, context: Context, turn: Turn, iteration: int) -> None:
        if iteration == EXIT:
            return
        if context.site.kind == WHILE:
            context.position = iteration
        elif iteration > context.begun:
            with self._aside():
                drive(self._flow(context, turn), iteration - context.begun)
            if context.begun != iteration:
                raise CannotRestoreError(f"what the loop iterates over ends after {context.begun} items")

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """What runs of the program inside had run in the run: it is no part of the plan, and prints nothing."""
        self.driving += 1
        try:
            with self.quietly():
                yield
        finally:
            self.driving -= 1

    def _drop_iterator(self, context: Context, turn: Turn) -> None:
        """The run left the loop, and its iterator was closed then: what that did is in the state to be restored."""
        with self._aside():
            turn.flow = context.iterable = None

    def _load(self, checkpoint: CheckpointRow, turn: Turn, site: str) -> dict[Name, Any]:
        loader = Loader(
            self.program,
            *self.record.store.state_at(checkpoint),
            turn.live or Live([]),
            functools.partial(self.restart, site),
            self.bring_file_to,
        )
        self.verifier.restores += 1
        digests = Digests.from_row(checkpoint)
        if digests.iterator is None:
            values = loader.load(digests.names)
        else:
            values = self._load_around(loader, digests, turn)
        self.files = loader.files
        return values

    def _load_around(self, loader: Loader, digests: Digests, turn: Turn) -> dict[Name, Any]:
        """Restore what lies around the loop's iterator, which was driven to its place, and prove that it is there."""
        assert turn.flow is not None
        live, iterator = turn.live or Live([]), iterator_in(turn.flow)
        before = replayed_outline(self.program, iterator, live, loader.numbers)
        loader.iterator = before.objects
        values = loader.load(digests.names)
        after = replayed_outline(self.program, iterator, live, loader.numbers)
        if after.digest() != digests.iterator or not before.agrees(after, loader.numbers):
            raise CannotRestoreError(
                "what the loop iterates over does not come to its place by passing over items"
            )
        return values

    @staticmethod
    def _set_globals(values: dict[Name, Any], before: list[Name]) -> None:
        for name, value in values.items():
            if name[0] == "global":
                setattr(sys.modules[name[1]], name[2], value)
        for name in before:
            if name[0] == "global" and name not in values and hasattr(sys.modules[name[1]], name[2]):
                delattr(sys.modules[name[1]], name[2])

    # Verify --------------------------------------------------------------------------------------------------

    def _verify(self, context: Context, turn: Turn, iteration: int, frame: FrameType) -> bool:
        """Where execution reaches a place of which the run left digests, the state must be the recorded one."""
        loop = turn.loop
        checkpoint = None if loop is None else loop.at(iteration)
        if loop is None or checkpoint is None or iteration == turn.verified:
            return True
        if not self.verifier.is_due(context):
            return True
        turn.verified = iteration
        return self.verifier.agrees(context, loop, checkpoint, self._roots(context, turn, frame))

    def _verify_end(self, context: Context, turn: Turn, iteration: int, frame: FrameType) -> bool:
        """Where a stretch ends; one of a main loop with nothing to be compared with there is named."""
        agrees = self._verify(context, turn, iteration, frame)
        if (
            context.parent is None
            and turn.loop is not None
            and turn.verified not in (EXIT, iteration, context.begun)
        ):
            where = f"the loop at {self.program.place(context.site)} from iteration {turn.verified} on"
            self.verifier.cannot(f"{where} has nothing in the record to be compared with")
        return agrees

    def _go_on_from(self, turn: Turn, iteration: int) -> bool:
        """After a divergence: whether the rest can go on from the recorded state, and so be right again."""
        loop = turn.loop
        if loop is None or turn.live is None or iteration not in turn.usable:
            return False
        turn.steps.appendleft(Step(iteration, turn.step.stop, turn.step.last))
        turn.step = replace(turn.step, last=False)
        turn.stopped = True
        return True
