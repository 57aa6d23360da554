"""Resume mode from end to end: which run goes on, from where, and the program's start on the way there.

There is one process: it looks at the record, then starts itself again (`execve`) as the program, with the run's hash
seed. If it finds on its way that a checkpoint cannot be used, it starts itself again without that one. So it keeps its
process id, signals reach the program, and its exit is the program's own.
"""

from __future__ import annotations

import builtins
import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn

from ..begin import meta, staging_limit
from ..dataclass import astuple
from ..descriptors import low_ones_reserved
from ..errors import RefusedError
from ..hash_seed import HASH_SEED, pin_hash_seed
from ..hook.diff import SourceDiff, compare
from ..hook.finder import Finder
from ..launch import INTERRUPTED, Target, run
from ..logs.held import Held
from ..logs.output import Tee
from ..record import LISTING, as_recorded, watch, watch_torch
from ..runs import new_id, program_name, write_stats
from ..runtime import entropy, probes
from ..runtime.listing import files_below, made_since
from ..runtime.opened import OpenedFiles
from ..runtime.program import Program
from ..runtime.recorder import Recorder
from ..runtime.resumer import Guide, Resumed, Resumer
from ..runtime.roots import program_starts
from ..settings import Settings
from ..state.restore import CannotRestoreError
from ..store.inherit import Heritage
from ..store.recording import Recording
from ..store.rows import CheckpointRow, RunRow, SourceRow
from ..store.store import Store, settle
from .asked import check_same_program, refuse_cells, refuse_ranks
from .files import CLOCK, LATER, FileHistory, Files, opened_now
from .handover import SOME, AppendWatch, Cut, Handover
from .overlay import Overlay
from .record import Record
from .resume_edits import Changes, find_changes, without_effect
from .resume_plan import (
    FROM_THE_BEGINNING,
    NOT_AFTER,
    Point,
    find_moment,
    leave_out,
    parse_moment,
    place_text,
    points,
)
from .versions import file_now

TASK = "FLORHOOK_RESUME"
WRITER_PATIENCE = 30.0  # seconds for the writer of a run that ended just now
MOMENT = 0.5  # seconds, where the run itself seems to be still there
MOST_ATTEMPTS = 20
AGAIN = 75  # the exit code of an attempt that had begun to record


def resume(target: Target, settings: Settings) -> None:
    """Continue a run. Returns or raises SystemExit as the program ends."""
    text = os.environ.pop(TASK, None)
    if text is None:
        _begin(target, settings)
    else:
        pin_hash_seed()
        with low_ones_reserved():
            attempt = Attempt(target, settings, json.loads(text))
        attempt.run()


def _begin(target: Target, settings: Settings) -> NoReturn:
    """Refuse what cannot be resumed, else start again as the program."""
    wanted = parse_moment(settings.at) if settings.at else None
    # Of a run that was killed just now, even the row may be on its way.
    settle(settings.home, WRITER_PATIENCE)
    with Store.open(settings.home) as store:
        run = store.find(settings.run, program_name(target, settings))
        if not store.wait(run, MOMENT if _runs(run) else WRITER_PATIENCE):
            raise RefusedError(f"run {run.id} is still running")
        record = Record(store, store.find(run.id))
        before = _look(target, settings, record, wanted)
    start_again({"run": run.id, "before": before, "avoid": [], "already": 0}, run, dict(os.environ))


def _look(target: Target, settings: Settings, record: Record, wanted: dict[str, int] | None) -> float | None:
    """Until when checkpoints are to be used (None: all), in seconds since the origin."""
    run = record.run
    check_same_program(target, settings, run)
    refuse_ranks(run, "resumed")
    refuse_cells(run, "resumed")
    if wanted is not None:
        began = find_moment(record, wanted).began
        return None if math.isinf(began) else began
    if run.exit_code == 0:
        raise RefusedError(f"run {run.id} ended well; --at epoch=7 takes it up again at a place inside it")
    changes = find_changes(record.sources, run, os.getcwd(), code_of(target))
    if changes.edits and not settings.force:
        edit = changes.edits[0]
        raise RefusedError(
            f"{edit.path}:{edit.line}: the program was edited since run {run.id} ({edit.reason}); "
            "--at epoch=7 makes an experiment of its own of it"
        )
    return None


def _runs(run: RunRow) -> bool:
    """Whether the run's process is there, and not only waiting to be buried by its parent."""
    try:
        with open(f"/proc/{run.meta.get('pid')}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def start_again(task: dict[str, Any], run: RunRow, environ: dict[str, str]) -> NoReturn:
    seed = str(run.meta.get("hash_seed", ""))
    hash_seed = {HASH_SEED: f"{seed}:{environ.get('PYTHONHASHSEED', '')}", "PYTHONHASHSEED": seed or "random"}
    os.execve(
        sys.executable,
        [sys.executable, *sys.orig_argv[1:]],
        {**environ, **hash_seed, TASK: json.dumps(task)},
    )


class Attempt:
    """One start of the program: to a checkpoint and on from there, or from the beginning."""

    def __init__(self, target: Target, settings: Settings, task: dict[str, Any]) -> None:
        self.target, self.task = target, task
        self.started = time.perf_counter()
        self.environ, self.folder = dict(os.environ), os.getcwd()
        self.store = Store.open(settings.home, trust=settings.trust)
        self.record = Record(self.store, self.store.find(task["run"]))
        self.run_before = self.record.run
        self.settings = as_recorded(settings, self.run_before)
        leave_out(self.record, self.task["avoid"])
        self.changes = self._find_changes()
        self.program = Program(replaying=True, ordinary=True)
        self.program.diff = self._diff
        opened = opened_now(self.store.files(self.run_before), self.run_before)
        self.history = FileHistory(self.run_before.origin, self.run_before.ended, opened)
        self.point = self._choose()
        self.held = Held()
        self.tee: Tee | None = None
        self.recorder: Resumed | None = None
        self.row: RunRow | None = None
        self.resumer: Resumer | None = None
        self.overlay: Overlay | None = None
        self.opened: OpenedFiles | None = None
        self.hook: Finder | None = None
        self.new_states: list[str] = []  # libraries whose random state the run before does not have

    def run(self) -> None:
        """The program's own run."""
        self.hook = watch(self.target, self.settings, self.program, entropy.guarded(self._set_state))
        run(self.target, self.program.transform, self.start, self._at_exit)

    def _find_changes(self) -> Changes:
        return find_changes(self.record.sources, self.run_before, self.folder, code_of(self.target))

    def _choose(self) -> Point | None:
        sites = set(self.changes.keys.values())
        before = math.inf if self.task["before"] is None else self.task["before"]
        found = points(self.record, self.task["avoid"], sites, before)
        signed = (p for p in found if self.store.trusted(self.run_before, p.checkpoint))
        return next(signed, None)

    def _diff(self, name: str, path: str, source: bytes) -> SourceDiff | None:
        recorded = self.record.source_of(name)
        if recorded is None or recorded.source == source:
            return None
        return compare(recorded.source, source, path)

    # The program starts --------------------------------------------------------------------------------------

    def start(self, module: ModuleType) -> None:
        """The program is about to begin. It is rewritten, so that it cannot be run without what is set up here."""
        try:
            self._at_start(module)
        except Exception as error:
            self._cannot(f"{type(error).__name__}: {error}")

    def _begin_program(self, module: ModuleType) -> None:
        builtins.__flor__ = probes  # type: ignore[attr-defined]
        vars(module)["__flor__"] = probes
        program_starts()
        entropy.guarded(self._set_state)(entropy.PYTHON)
        self.held.install()

    def _at_start(self, module: ModuleType) -> None:
        self._begin_program(module)
        if self.point is None:
            self._take_over(None)
            return
        self.resumer = Resumer(
            self.program, self.record, self.point, self.changes.keys, self.again, self._take_over
        )
        self._guide(self.resumer)

    def _guide(self, guide: Guide) -> None:
        """Let the program run to its place, in an overlay."""
        self.overlay = Overlay(self._scratch("replays"), through=[self.settings.home])
        files = self._files(self.overlay, guide)
        probes.use(guide)
        self.overlay.before_read(files.before_read)
        self.overlay.install()
        with self.overlay.paused():
            files.begin_without(self._made())

    def _files(self, overlay: Overlay, guide: Guide) -> Files:
        """Which versions of files the program finds on its way to the point."""
        history = self.history
        sources = {
            os.path.realpath(file_now(source, self.run_before, self.folder)) for source in self.record.sources
        }

        def unknown(path: str) -> None:
            # The place that it jumped to last needs no file on the way.
            jumped = history.restored_at - history.started
            self.again(f"{NOT_AFTER}{jumped}", f"{path} was written again later in the run")

        files = Files(overlay, history, unknown, lambda path: None, sources)

        def restored(checkpoint: CheckpointRow, before: float) -> None:
            files.jumped(before, checkpoint.taken)

        guide.on_restore, guide.bring_file_to = restored, files.bring_to
        return files

    def _made(self) -> list[str]:
        listing, home = self.record.states.get(LISTING), str(self.settings.home)
        return made_since(listing, self.folder, home, self.run_before.origin, self.run_before.ended)

    def _scratch(self, name: str) -> Path:
        folder = self.settings.home / name / new_id()
        folder.mkdir(parents=True, mode=0o700)
        return folder

    def _set_state(self, library: str) -> None:
        entropy.compare_version(library, self.record.states.get(entropy.version_name(library)))
        name = entropy.row_name(library)
        if name in self.record.states:
            entropy.write(library, self.record.states[name])
        elif self.recorder is None:
            self.new_states.append(library)
        else:
            self._keep_state(self.recorder, library)

    @staticmethod
    def _keep_state(recorder: Recorder, library: str) -> None:
        row = SourceRow(entropy.row_name(library), "", entropy.read(library))
        recorder.recording.rows("sources", [astuple(row)])

    # The point -----------------------------------------------------------------------------------------------

    def _take_over(self, resumer: Resumer | None) -> Resumed:
        """From here on the run goes on: the files are the user's, the output is printed, everything is recorded."""
        cut = self._leave_overlay(resumer.files if resumer is not None else [])
        row = self.row = self._new_row()
        recording = Recording.start(self.settings.home, row, staging_limit, self.settings.max_bytes)
        recorder = self.recorder = Resumed(
            self.program, recording, self.settings.epsilon, row.origin, self.started
        )
        self.opened = OpenedFiles(recorder.now, str(self.settings.home))
        if self.point is not None:
            self.opened.goes_on(self.history.written_by(self.point.checkpoint.taken))
        recorder.watch_files(self.opened)
        assert self.hook is not None
        watch_torch(self.opened, self.hook)
        recording.inherit(self._heritage(resumer))
        for library in self.new_states:
            self._keep_state(recorder, library)
        for name, (path, source) in self.program.sources.items():
            recorder.on_module(name, path, source)
        if resumer is not None:
            recorder.adopt(resumer)
        self.program.forget_record()
        self._print(recorder)
        probes.use(recorder)
        os.register_at_fork(after_in_child=self._in_child)
        os.environ["FLOR_OWNER"] = f"{row.id}:{os.getpid()}"
        if recording.failed:
            recorder.give_up(recording.failed)
        self._say(row, cut)
        self.store.close()
        return recorder

    def _leave_overlay(self, files: list[Any]) -> list[str]:
        """Back to the user's files; those that were cut."""
        cut = Cut(self._scratch("cut"))
        known, unknown = set[str](), set[str]()
        if self.overlay is not None:
            known, unknown = self._hand_over(Handover(self.overlay, cut), files)
        taken = 0.0 if self.point is None else self.point.checkpoint.taken
        late = self._written_after(taken) - known
        late -= self._cut_appended(cut, late - unknown, taken)
        AppendWatch(late - set(cut.paths)).tell(late & unknown)
        if not cut.paths:
            with contextlib.suppress(OSError):
                cut.kept.rmdir()
        return cut.paths

    def _hand_over(self, handover: Handover, files: list[Any]) -> tuple[set[str], set[str]]:
        """Real files that are open for writing: as the checkpoint knows them, and without it knowing them."""
        try:
            handover.check()
        except CannotRestoreError as error:
            self.again(FROM_THE_BEGINNING, str(error))
        try:
            handover.run(self.program.user_modules, [file.fileno() for file in files if not file.closed])
        except OSError as error:
            self._cannot(f"{error.filename}: {error.strerror}")
        return handover.known, handover.unknown

    def _cut_appended(self, cut: Cut, paths: set[str], taken: float) -> set[str]:
        """Files that are appended to again get the length that they had at the point; those of which it is known.

        One that the run made after the point is not there again.
        """
        known, made = set(), set(self._made())
        for path in paths:
            size = self.history.size_at(path, taken)
            if path in made and self.history.written.get(path, 0.0) > taken:
                cut.take_away(path)
            elif size is not None:
                cut.bring_to(path, size)
            else:
                continue
            known.add(path)
        return known

    def _cannot(self, reason: str) -> NoReturn:
        """Nothing was run that the record does not have, so that ending here loses nothing."""
        sys.stderr.write(f"florhook: run {self.run_before.id} cannot be taken up here: {reason}\n")
        sys.stderr.flush()
        end_children()
        os._exit(RefusedError.exit_code)

    def _written_after(self, taken: float) -> set[str]:
        """Files below the working folder that the run before wrote to after a place of it."""
        run, found = self.run_before, set()
        ended = run.ended or run.lost or math.inf
        for name in files_below(self.folder, str(self.settings.home)) or ():
            path = os.path.realpath(os.path.join(self.folder, name))
            with contextlib.suppress(OSError):
                now = os.stat(path)
                # Clocks of files are coarser: written just before that place, or just after?
                is_longer = self.history.size_at(path, taken) not in (None, now.st_size)
                if run.origin + taken - CLOCK * is_longer < now.st_mtime <= ended + LATER:
                    found.add(path)
        return found

    def _new_row(self) -> RunRow:
        run, point = self.run_before, self.point
        info = {
            **meta(str(run.meta.get("hash_seed", "")), self.settings),
            "origin": run.origin if point is not None else time.time(),
            "parent": run.id,
            "from": "the beginning" if point is None else place_text(self.record, point),
        }
        return RunRow(
            new_id(),
            program_name(self.target, self.settings),
            tuple(self.target.argv),
            self.folder,
            time.time(),
            info,
        )

    def _heritage(self, resumer: Resumer | None) -> Heritage:
        if resumer is None:
            return Heritage(self.run_before.id, -1.0, 0)
        taken = resumer.point.checkpoint
        sites = {old: new for new, old in self.changes.keys.items()}
        return Heritage(
            self.run_before.id, taken.taken, taken.out, resumer.point.open, sites, resumer.marks()
        )

    def _print(self, recorder: Resumed) -> None:
        out = self.point.checkpoint.out if self.point is not None else 0
        skip = self.held.release(self.record.output[:out], self.task["already"])
        self.tee = Tee(recorder.wrote, skip)
        self.tee.install()

    def _say(self, row: RunRow, cut: list[str]) -> None:
        lines = []
        if self.point is None:
            lines.append(
                f"run {self.run_before.id} has no checkpoint that can be used; run {row.id} starts from the beginning"
            )
        else:
            lines.append(f"run {self.run_before.id} goes on as run {row.id} {row.meta['from']}")
            lines += self._what_edits_do(self.point)
        if self.settings.at and cut:
            more = f" and {len(cut) - SOME} more" if len(cut) > SOME else ""
            lines.append(f"{', '.join(cut[:SOME])}{more}: cut to what the run had written by then")
        sys.stderr.write("".join(f"florhook: {line}\n" for line in lines))

    def _what_edits_do(self, point: Point) -> list[str]:
        """What of an edited program has no effect, or an earlier one than was asked for."""
        if not self.changes.edits:
            return []
        frame: FrameType | None = sys._getframe()
        open_lines: dict[int, int] = {}
        for context in reversed(self.recorder.stack if self.recorder is not None else []):
            open_lines[context.frame_id] = context.site.line
        lines = [
            f"{edit.path}:{edit.line}: {edit.reason}: this lies before the place where the run goes on, "
            "and what it would change is as recorded"
            for edit in without_effect(self.changes, frame, open_lines)
        ]
        lines += [
            f"{path}: the recorded loop of line {site.line} cannot be matched with one of now"
            for path, site in self.changes.lost
        ]
        if self._executes_forward(point):
            lines.append(f"no checkpoint is right before {self.settings.at}: the edits count from there on")
        return lines

    def _executes_forward(self, point: Point) -> bool:
        """Whether iterations lie between the point and the moment that was asked for."""
        if not self.settings.at:
            return False
        moment = find_moment(self.record, parse_moment(self.settings.at))
        rows = moment.loop.iterations.values()
        return any(point.checkpoint.taken < row.began < moment.began for row in rows)

    def _in_child(self) -> None:
        if self.recorder is None:
            return
        if self.opened is not None:
            self.opened.active = False
        self.recorder.active = False  # its methods stay: the program is rewritten to call them
        if self.tee is not None:
            self.tee.uninstall()
        self.recorder.recording.after_fork_in_child()

    # Ends ----------------------------------------------------------------------------------------------------

    def again(self, name: str, reason: str) -> NoReturn:
        """Start again without what has that name."""
        avoid = [*self.task["avoid"], name]
        if len(avoid) > MOST_ATTEMPTS:
            avoid.append(FROM_THE_BEGINNING)
        already = max(self.task["already"], self.recorder.written if self.recorder is not None else 0)
        sys.stderr.write(f"florhook: a checkpoint cannot be used ({reason}); running from an earlier place\n")
        sys.stderr.flush()
        if self.recorder is not None:
            if sys.stdout is not None:
                sys.stdout.flush()
            self.recorder.problem = reason
            self.recorder.finish(AGAIN)
        end_children()
        os.chdir(self.folder)
        start_again({**self.task, "avoid": avoid, "already": already}, self.run_before, self.environ)

    def _at_exit(self, exit_code: int) -> None:
        recorder = self.recorder
        if recorder is None and exit_code == INTERRUPTED:
            return  # Ctrl-C on the way to the point
        if recorder is None:
            self.again(FROM_THE_BEGINNING, "the program ended before the place where the run is to go on")
        if self.tee is not None:
            self.tee.uninstall()
        figures = recorder.finish(exit_code)
        skipped = {} if self.resumer is None else _figures(self.resumer, recorder)
        assert self.row is not None
        figures = {**figures, **skipped, "mode": "resume", "run_id": self.row.id}
        write_stats(self.settings.stats, {**figures, "wall_s": time.perf_counter() - self.started})


def code_of(target: Target) -> bytes | None:
    """The program itself, where it was given on the command line."""
    return target.value.encode() if target.kind == "code" else None


def _figures(resumer: Resumer, recorder: Recorder) -> dict[str, Any]:
    return {
        "iterations_executed": recorder.iterations + resumer.executed,
        "iterations_skipped": resumer.skipped,
        "blocks_skipped": resumer.blocks_skipped,
        "jumps": resumer.jumps,
    }


def end_children() -> None:
    """Workers of the program's would wait for a parent that is not theirs any more."""
    processes = sys.modules.get("multiprocessing.process")
    for child in getattr(processes, "active_children", list)():
        child.kill()
