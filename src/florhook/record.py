"""Record mode, once it has begun: hook, recorder and store around one run of a program."""

from __future__ import annotations

import builtins
import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import begin
from .dataclass import astuple, replace
from .hook import finder
from .hook.kept import KeptModules
from .hook.scope import Scope
from .launch import Target, run
from .logs.output import Tee
from .ranks import Rank
from .runs import write_stats
from .runtime import entropy, loggers, probes, quiet, trackers
from .runtime.listing import as_row, files_below
from .runtime.opened import TORCH, OpenedFiles
from .runtime.patches import patches
from .runtime.program import Program
from .runtime.recorder import Recorder
from .runtime.roots import program_starts
from .settings import Settings
from .store.home import rewritten_path
from .store.own_key import read_key
from .store.recording import Recording
from .store.rows import RunRow, SourceRow

LISTING = "<files>"  # a row among the sources: the files that were there when the run began


def record_program(
    target: Target, settings: Settings, row: RunRow, recording: Recording, rank: Rank | None
) -> None:
    """Record one run, whose row and writer are there. Whatever fails here, the program runs."""
    program = Program()
    key = read_key()
    if key is not None and not recording.failed:
        program.kept = KeptModules(rewritten_path(settings.home), key)
    recorder = Recorder(program, recording, settings.epsilon, row.started)
    if rank is not None and not recording.failed:
        from .runtime.agreement import Agreement

        with contextlib.suppress(OSError):
            recorder.agreement = Agreement(settings.home / "runs" / f"{rank.launch}.ranks", rank.number == 0)
    tee = Tee(recorder.wrote)
    files = OpenedFiles(recorder.now, str(settings.home))
    files.child_mark = program.child_mark
    started = time.perf_counter()
    start_cpu = 0.0

    def at_start(module: ModuleType) -> None:
        nonlocal start_cpu
        builtins.__flor__ = probes  # type: ignore[attr-defined]
        vars(module)["__flor__"] = probes
        probes.use(recorder)
        quiet.install(recorder)
        os.register_at_fork(after_in_child=in_child)
        os.environ["FLOR_OWNER"] = f"{row.id}:{os.getpid()}"
        program_starts()
        tee.install()
        recorder.watch_files(files)
        if recording.failed:
            recorder.give_up(recording.failed)
        start_cpu = time.process_time()

    def in_child() -> None:
        recorder.active = files.active = False
        probes.be_inert()
        tee.uninstall()
        recording.after_fork_in_child()

    def at_exit(exit_code: int) -> None:
        tee.uninstall()
        files.active = False
        ended = time.perf_counter()
        stats = recorder.finish(exit_code)
        if recorder.agreement is not None:
            recorder.agreement.close()
        now = time.perf_counter()
        times = {"start_cpu_s": start_cpu, "end_s": now - ended, "wall_s": now - started}
        write_stats(settings.stats, {"mode": "record", "run_id": row.id, **stats, **times}, row.rank)

    def keep_state(library: str) -> None:
        version = entropy.version(library).encode()
        recording.rows("sources", [astuple(SourceRow(entropy.version_name(library), "", version))])
        recording.rows("sources", [astuple(SourceRow(entropy.row_name(library), "", entropy.read(library)))])

    answers = itertools.count()

    def note(key: str, answer: Any) -> None:
        if recorder.active and (number := next(answers)) < trackers.MOST_ANSWERS:
            noted = trackers.row(recorder.now(), key, answer)
            recording.rows("sources", [astuple(SourceRow(trackers.row_name(number), "", noted))])

    def stop() -> None:
        recorder.active = files.active = False
        probes.be_inert()
        tee.uninstall()

    begin.end_earlier = stop
    keep_state(entropy.PYTHON)
    here = as_row(files_below(os.getcwd(), str(settings.home)))
    recording.rows("sources", [astuple(SourceRow(LISTING, "", here))])
    hook = watch(target, settings, program, entropy.guarded(keep_state))
    hook.library_notices.update((name, entropy.guarded(do)) for name, do in trackers.noting(note).items())
    watch_torch(files, hook)
    run(target, program.transform, at_start, at_exit)


def watch(
    target: Target, settings: Settings, program: Program, notice: Callable[[str], None]
) -> finder.Finder:
    """Install the import hook for the user's modules; `notice` is called for each library with random states."""
    scope = scope_of(target, settings)
    program.is_pythons = scope.is_pythons
    _name_what_came_before(scope)
    wanted = patches(program)

    patch = entropy.guarded(lambda module: wanted[module]())

    def imported(module: str) -> None:
        if module in wanted:
            patch(module)
        if module in entropy.LIBRARIES:
            notice(module)

    for module in wanted.keys() & sys.modules.keys():  # a debugger may run us
        patch(module)
    if entropy.NAMES in sys.modules:
        notice(entropy.NAMES)
    hook = finder.install(scope, program.transform)
    hook.notices.update(dict.fromkeys({*wanted, *entropy.LIBRARIES}, imported))
    logging_ones = loggers.patches()
    listen = entropy.guarded(lambda module: logging_ones[module]())
    for module in logging_ones.keys() & sys.modules.keys():
        listen(module)
    hook.library_notices.update(dict.fromkeys(logging_ones, listen))
    return hook


def watch_torch(files: OpenedFiles, hook: finder.Finder) -> None:
    """See what torch writes, as soon as it is imported."""
    files.watch_torch()
    hook.notices[TORCH] = entropy.guarded(files.watch_torch)


def scope_of(target: Target, settings: Settings) -> Scope:
    """Whose module is whose, for a program."""
    folder = os.path.dirname(os.path.realpath(target.value)) if target.kind == "script" else None
    return Scope(folder, os.getcwd(), settings.include, settings.exclude)


def _name_what_came_before(scope: Scope) -> None:
    """Say which of the user's modules cannot be rewritten any more: something imported them before us."""
    found = []
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        # What Python itself starts with is no module of the program's.
        started = name in ("__main__", "__mp_main__", "sitecustomize", "usercustomize")
        if not started and isinstance(path, str) and scope.decide(name, path).user:
            found.append(name)
    if found:
        sys.stderr.write(
            f"florhook: imported before florhook, so that neither their loops are recorded nor prints found that "
            f"are added to them: {', '.join(sorted(found))}\n"
        )


def as_recorded(settings: Settings, run: RunRow) -> Settings:
    """The settings with the run's own patterns of modules: whose module is whose must be as it was."""
    patterns = {name: tuple(run.meta.get(name, getattr(settings, name))) for name in ("include", "exclude")}
    return replace(settings, include=patterns["include"], exclude=patterns["exclude"])
