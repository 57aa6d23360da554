"""One replay process: runs the edited program, restoring and skipping by plan."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import itertools
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from ..dataclass import asdict, replace
from ..descriptors import low_ones_reserved, moved_up
from ..frames import line_of, users_frame
from ..hash_seed import pin_hash_seed
from ..hook.diff import SourceDiff
from ..hook.kept import KeptModules
from ..launch import Target, run
from ..logs.hindsight import Printed, ReplayOutput
from ..logs.kept import KeptLines, Logged
from ..record import LISTING, as_recorded, watch
from ..runs import is_cell
from ..runtime import entropy, loggers, probes, trackers
from ..runtime.cells import CellProgram
from ..runtime.clock import ReplayClock
from ..runtime.listing import made_since
from ..runtime.program import Program
from ..runtime.replayer import EVERYTHING, Replayer
from ..runtime.roots import program_starts
from ..runtime.searcher import Inquiry, Searcher
from ..runtime.verifier import times_of
from ..settings import Settings
from ..store.home import rewritten_path
from ..store.own_key import read_key
from ..store.rows import CheckpointRow, FileRow, RunRow
from ..store.store import Store
from .cell import CellStart, refusal
from .children import HOOKED, Children, rewrite_main
from .collector import RareCollections
from .files import NOTED, FileHistory, Files, opened_now
from .group import Folder, Member
from .joint import join
from .landlock import only_write_below
from .overlay import Overlay
from .plan import Selection, selection_of
from .record import Record
from .share import Part, Share, asks
from .sources import find_edits
from .spared import ASKS, spare_the_compiler
from .stdin import watch_stdin
from .versions import Versions, file_now, moved_folder

PR_SET_PDEATHSIG = 1  # of prctl(2)
NO_PROCESS = 0  # no process has this number
TORN = "the first lines come from several processes, and one process prints others"
TELL_EVERY = 0.2  # seconds
AGAIN = 75  # exit status: run again without the checkpoints of the site in the report


def run_worker(target: Target, settings: Settings) -> None:
    """Run the program as FLORHOOK_TASK says, a JSON object: run, avoid, already, status (a descriptor), overlay."""
    pin_hash_seed()
    _end_with_the_supervisor()
    task = json.loads(os.environ.pop("FLORHOOK_TASK"))
    task["status"] = moved_up(task["status"])  # first: its number is one of those to be kept free
    with low_ones_reserved():
        worker = Worker(target, settings, task)
    worker.start()


def _end_with_the_supervisor() -> None:
    """Nobody would read on if it was killed."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Worker:
    """Everything that one attempt consists of; `start` runs the program in it."""

    def __init__(self, target: Target, settings: Settings, task: dict[str, Any]) -> None:
        self.target, self.settings, self.task = target, settings, task
        self._told = 0.0  # when the supervisor was told how far the replay is
        self.store = Store.open(settings.home, trust=settings.trust)
        self.record = Record(self.store, self.store.find(task["run"]))
        self.folder = Folder.from_task(task["ranks"]) if "ranks" in task else None
        names = self.folder.others if self.folder else []
        self.others = [Record(self.store, self.store.find(name)) for name in names]
        self.versions = Versions.from_task(task["versions"])
        self.edits = find_edits(self.record.sources, self.record.run, os.getcwd(), self.versions)
        self._added = {
            module: list(group)
            for module, group in itertools.groupby(self.edits.added, lambda each: each.module)
        }
        self.selection = self._selection()
        cell = CellProgram(replaying=True) if is_cell(self.record.run.program) else None
        self.program = cell or Program(replaying=True)
        key = read_key()
        if cell is None and key is not None:
            self.program.kept = KeptModules(rewritten_path(settings.home), key)
        self.program.diff = self._differs
        self.program.wanted = self.record.skippable()
        if self.versions.recorded:
            self.program.text = self.record.text_of
        if self.folder is not None:
            join(self.record, [(other, self.edits.question(other, self.selection)) for other in self.others])
        question = self.edits.question(self.record, self.selection)
        avoid = frozenset(task["avoid"])
        kind = Searcher if "search" in task else Replayer
        self.replayer = kind(self.program, self.record, question, avoid, self.restart)
        self.output = ReplayOutput(
            settings.log == "all" and settings.until is None,
            lambda: self.record.output,
            self.asked_for,
            Printed(**task["already"]),
            not self.edits.printing_changed and "output" not in task,
            task.get("output"),
        )
        self.cell = None if cell is None else CellStart(self.record, cell, refusal(self.output.flush))
        self.kept = self.output.kept = KeptLines(
            self.replayer.loops, self.replayer.stamp, self.replayer.notes.append, self.statement
        )
        self.kept.goes_to(task.get("kept"))
        self.children = Children(target, settings, task, self.output.descriptor, self.child_begins)
        self.share = self._share()
        self.member = None if self.folder is None else Member(self.folder, self.halt)
        moved = moved_folder(self.record.run, os.getcwd())
        self.overlay = Overlay(Path(task["overlay"]), through=[settings.home], moved=moved)
        self.files = self._files()
        self.answers = trackers.Answers(self.record.answers)
        self.clock = ReplayClock(self.program.user_modules, times_of(self.record)[0])
        self.collections = RareCollections()
        self._connect()

    def _selection(self) -> Selection:
        return selection_of(self.record, self.settings.select)

    def _share(self) -> Share | None:
        """What this worker has to do, if there are others."""
        if "share" not in self.task or "output" in self.task:
            return None
        ask = asks(self.task["status"], self.idle)
        share = Share(Part.from_task(self.task["share"]), self.output, ask, self.alone)
        self.replayer.share = share
        return share

    def _files(self) -> Files:
        run = self.record.run
        opened = opened_now(self.store.files(run), run)
        # What another rank noted holds for its own places.
        others = (row for other in self.others for row in _opened(self.store, other.run, run))
        opened += [row for row in others if row.how not in NOTED]
        return Files(
            self.overlay,
            FileHistory(run.origin, run.ended, opened),
            self.unknown_version,
            lambda path: self.replayer.notes.append(
                f"{path} was changed after the run read it: what depends on it is not as it was"
            ),
            {os.path.realpath(file_now(source, run, os.getcwd())) for source in self.record.sources},
        )

    def _connect(self) -> None:
        replayer = self.replayer
        replayer.quietly, replayer.hold = self.output.quietly, self.output.hold
        replayer.meet = None if self.member is None else self.member.meet
        replayer.on_restore, replayer.on_end = self.restored, self.end
        replayer.bring_file_to = self.files.bring_to
        replayer.found = self.found
        if isinstance(replayer, Searcher):
            replayer.look_for(Inquiry.from_task(self.task["search"]), self.tell)
        replayer.on_work = self.collections.end
        replayer.on_heard = self.heard
        if self.task.get("progress"):
            replayer.on_main_iteration = self.ran

    # What the parts call -------------------------------------------------------------------------------------

    def restart(self, site: str, reason: str) -> NoReturn:
        """A checkpoint cannot be used: the supervisor starts again without those of its site."""
        if self.member is not None:
            self.member.again(site, reason)
        self.halt([{"site": site, "reason": reason}])
        os._exit(AGAIN)

    def halt(self, reasons: list[dict[str, Any]]) -> None:
        """Print nothing from here on, and report."""
        self.output.halt()
        sites, reason = [each["site"] for each in reasons], reasons[0]["reason"]
        self._report({"again": sites, "reason": reason, "printed": asdict(self.output.printed)})

    def alone(self, reason: str) -> NoReturn:
        """Of several processes, one has to do it all."""
        self.halt([{"site": "", "reason": reason}])
        os._exit(AGAIN)

    def idle(self) -> NoReturn:
        """Others do what is left."""
        self._report({"idle": True, "reached": self._reached(), **_figures(self.replayer, self.output)})
        os._exit(0)

    def asked_for(self) -> bool:
        """Whether the place that runs now was selected."""
        if not self.selection.slices:
            return True
        labels = dict(self.replayer.labels())
        names = self.selection.names()
        return all(name in labels and self.selection.takes(name, labels[name]) for name in names)

    def statement(self) -> tuple[str, int] | None:
        """Which of those that were added runs now: its module, and its line in messages."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            for added in self._added.get(str(frame.f_globals.get("__name__")), ()):
                if added.start <= line_of(frame) <= added.stop:
                    return added.module, added.line
            frame = frame.f_back
        return None

    def unknown_version(self, path: str) -> None:
        """The program is about to read a file of which nobody knows what it held at this place."""
        if EVERYTHING not in self.task["avoid"]:
            self.restart(EVERYTHING, f"{path} was written again later in the run")
        self.replayer.notes.append(f"{path} is there as the run left it, not as it was at this place")

    def reads_stdin(self) -> None:
        """The program is about to read its standard input, of which nobody knows what a skipped part had read."""
        if os.getpid() != self.replayer.pid:
            return
        again = stat.S_ISREG(os.fstat(0).st_mode)  # whether another attempt could read what this one has read
        if self.share is not None and not again:
            self.alone("the program reads its standard input")
        if self.replayer.has_skipped and EVERYTHING not in self.task["avoid"]:
            self.restart(EVERYTHING, "the program reads its standard input")
        if not again:
            self.replayer.skip_no_more()

    def child_begins(self) -> None:
        """The program starts a process of its own, which runs in full."""
        if self.share is not None:
            self.alone("the program starts processes of its own")
        self.output.flush()
        reason = (
            "processes that the program starts are not in the record: what they print is not compared with it"
        )
        if self.edits.places and reason not in self.replayer.verifier.unverified:
            self.replayer.verifier.cannot(reason)

    def _fork_begins(self) -> None:
        self.output.flush()
        self.collections.end()
        self.children.begins()

    def restored(self, checkpoint: CheckpointRow, before: float) -> None:
        """The program was brought to a later place."""
        self.clock.goes_on_from(checkpoint.taken)
        self.answers.jumped(checkpoint.taken)
        self.files.jumped(before, checkpoint.taken)
        self.output.restored(checkpoint.out)

    def end(self) -> NoReturn:
        """The record goes no further."""
        self.output.flush()
        exit_code = self.record.run.exit_code or 0
        figures = _figures(self.replayer, self.output)
        self._report({"ended": True, "exit_code": exit_code, "reached": self._reached(), **figures})
        os._exit(exit_code)

    def ran(self, count: int) -> None:
        """So many iterations of main loops have run."""
        now = time.perf_counter()
        if now - self._told >= TELL_EVERY and os.getpid() == self.replayer.pid:
            self._told = now
            os.write(self.task["status"], json.dumps({"ran": count}).encode() + b"\n")

    def heard(self, kind: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        """The program hands something to a library that logs."""
        output = self.output
        if kind == loggers.LOGGING:
            output.overheard = ""
            return

        def said() -> tuple[str, Logged] | None:
            found = loggers.said(kind, arguments, frame, self.program.user_modules)
            if found is None:
                return None
            return found.text, (found.via, found.head, found.place, found.named)

        output.logged(said)
        output.overheard = None

    def found(self, text: str) -> None:
        """What is looked for is true at the place that runs now."""
        frame = users_frame(sys._getframe(1))
        line = next(each.line for each in self.versions.placed)
        where = f"{os.path.basename(frame.f_code.co_filename)}:{line}"
        self.tell({"labels": self.replayer.shown_labels(), "where": where})

    def tell(self, answer: dict[str, Any]) -> NoReturn:
        """The search is over."""
        self.output.flush()
        self._report({"found": answer, **_figures(self.replayer, self.output)})
        os._exit(0)

    def _report(self, message: dict[str, Any]) -> None:
        with self.output.lock:
            self.kept.finish()
        os.write(self.task["status"], json.dumps(message).encode() + b"\n")

    # The run -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Run the program."""
        users = [
            os.getcwd(),
            self.record.run.cwd,
            *(os.path.dirname(row.path) for row in self.record.sources),
        ]
        only_write_below(self.settings.home, users)
        self._watch(self._set_state)
        self.collections.begin()
        run(self.target, self.program.transform, self._at_start, self._at_exit)

    def _watch(self, notice: Callable[[str], None]) -> None:
        settings = as_recorded(self.settings, self.record.run)
        notices = watch(self.target, settings, self.program, entropy.guarded(notice)).notices
        scratch = Path(self.task["overlay"]) / trackers.SCRATCH
        for name, patch in trackers.answering(self.answers, scratch).items():
            notices[name] = entropy.guarded(patch)
        notices[ASKS] = entropy.guarded(lambda _: spare_the_compiler())
        for name in HOOKED:
            if name in sys.modules:
                self.children.hook(name)
            else:
                notices[name] = self.children.hook

    def enter_child(self) -> None:
        """This process was started by a replayed one: nothing of it is in the record, so it runs in full."""
        self.replayer.pid = NO_PROCESS
        self._watch(lambda library: None)
        if self.target.kind == "script":
            rewrite_main(os.path.realpath(self.target.value), self.program.transform)
        self._put_in_place()
        self.overlay.install()

    def _put_in_place(self) -> None:
        builtins.__flor__ = probes  # type: ignore[attr-defined]
        probes.use(self.replayer)
        probes.hindsight = self.output.hindsight
        self.clock.install()
        self.output.install()
        watch_stdin(self.reads_stdin)
        os.register_at_fork(before=self._fork_begins)

    def _at_start(self, module: ModuleType) -> None:
        vars(module)["__flor__"] = probes
        program_starts()
        entropy.guarded(self._set_state)(entropy.PYTHON)
        self._put_in_place()
        listing, recorded = self.record.states.get(LISTING), self.record.run
        made = made_since(listing, os.getcwd(), str(self.settings.home), recorded.origin, recorded.ended)
        self.overlay.before_read(self.files.before_read, self.files.before_list)
        self.overlay.install()
        with self.overlay.paused():
            self.files.begin_without(made)
        if self.cell is not None:
            self.cell.check()
            with self.output.quietly():
                self.cell.enter(module)

    def _at_exit(self, exit_code: int) -> None:
        self.output.end()
        figures = _figures(self.replayer, self.output)
        raised = self.output.hindsight.raised
        self._report({"exit_code": exit_code, "raised": raised, "reached": self._reached(), **figures})

    def _reached(self) -> bool:
        return self.output.hindsight.reached or self.children.begun or bool(self.selection.slices)

    def _differs(self, name: str, path: str, source: bytes) -> SourceDiff | None:
        recorded = self.record.source_of(name)
        return None if recorded is None else self.versions.compared(recorded, source, path)

    def _set_state(self, library: str) -> None:
        entropy.compare_version(library, self.record.states.get(entropy.version_name(library)))
        state = self.record.states.get(entropy.row_name(library))
        if state is not None:
            entropy.write(library, state)


def _opened(store: Store, run: RunRow, own: RunRow) -> list[FileRow]:
    """The files that a rank opened, at times of this rank's clock."""
    later = run.origin - own.origin
    return [replace(row, at=row.at + later) for row in opened_now(store.files(run), run)]


def _figures(replayer: Replayer, output: ReplayOutput) -> dict[str, Any]:
    verifier = replayer.verifier
    torn = [TORN] if output.printed.torn else []
    return {
        "printed": asdict(output.printed),
        "output_difference": output.difference,
        "iterations_executed": replayer.executed,
        "iterations_skipped": replayer.skipped,
        "iterations_left_early": replayer.left_early,
        "blocks_skipped": replayer.blocks_skipped,
        "jumps": replayer.jumps,
        "verified": verifier.verified,
        "diverged": verifier.diverged + output.printed.torn,
        "unverified": len(verifier.unverified),
        "restore_s": replayer.restore_s,
        "differences": [*torn, *verifier.differences],
        "reasons": verifier.unverified,
        "clock": verifier.clock,
        "moved": verifier.moved,
        "notes": replayer.notes,
    }
