"""One replay process: runs the edited program, restoring and skipping by plan."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from ..descriptors import low_ones_reserved, moved_up
from ..errors import UsageError
from ..hook.diff import SourceDiff, compare
from ..launch import Target, run
from ..logs.hindsight import Printed, ReplayOutput
from ..record import LISTING, pin_hash_seed, watch
from ..runtime import entropy, probes
from ..runtime.clock import ReplayClock
from ..runtime.listing import made_since
from ..runtime.program import Program
from ..runtime.replayer import EVERYTHING, Replayer
from ..runtime.roots import program_starts
from ..runtime.verifier import times_of
from ..settings import Settings
from ..store.rows import CheckpointRow
from ..store.store import Store
from .files import FileHistory, Files, opened_now
from .overlay import Overlay
from .plan import Question, parse_selection
from .record import Record
from .sources import find_edits, path_now

PR_SET_PDEATHSIG = 1  # of prctl(2)
AGAIN = 75  # exit status: run again without the checkpoints of the site in the report


def run_worker(target: Target, settings: Settings) -> None:
    """Run the program as FLORHOOK_TASK says, a JSON object: run, avoid, already, status (a descriptor), overlay."""
    pin_hash_seed()
    _end_with_the_supervisor()
    task = json.loads(os.environ.pop("FLORHOOK_TASK"))
    with low_ones_reserved():
        task["status"] = moved_up(task["status"])
        start = _prepare(target, settings, task)
    start()


def _end_with_the_supervisor() -> None:
    """Nobody would read on if it was killed."""
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prepare(target: Target, settings: Settings, task: dict[str, Any]) -> Callable[[], None]:
    """Everything but the program's own run."""
    store = Store.open(settings.home)
    record = Record(store, store.find(task["run"]))
    edits = find_edits(record.sources, record.run, os.getcwd())
    selection = parse_selection(settings.select)
    strangers = selection.names() - {name for site in record.sites.values() for name, _ in site.labels}
    if strangers:
        raise UsageError(f"--select: no loop of the program has a variable {min(strangers)}")
    marks = frozenset(record.mark_ids[place] for place in edits.places if place in record.mark_ids)
    program = Program(replaying=True)
    program.diff = _differ(record)

    def restart(site: str, reason: str) -> NoReturn:
        output.flush()
        _report(task["status"], {"again": site, "reason": reason, "printed": asdict(output.printed)})
        os._exit(AGAIN)

    question = Question(frozenset(edits.places), marks, selection)
    replayer = Replayer(program, record, question, frozenset(task["avoid"]), restart)

    def asked_for() -> bool:
        if not selection.slices:
            return True
        labels = dict(replayer.labels())
        return all(name in labels and selection.takes(name, labels[name]) for name in selection.names())

    output = ReplayOutput(
        settings.log == "all",
        lambda: record.output,
        asked_for,
        Printed(**task["already"]),
        not edits.printing_changed,
    )

    def end() -> NoReturn:
        output.flush()
        exit_code = record.run.exit_code or 0
        report = {"ended": True, "exit_code": exit_code, **_figures(replayer, output)}
        _report(task["status"], report)
        os._exit(exit_code)

    overlay = Overlay(Path(task["overlay"]), through=[settings.home])
    opened = opened_now(store.files(record.run), record.run)
    history = FileHistory(record.run.origin, record.run.ended, opened)

    def unknown(path: str) -> None:
        if EVERYTHING not in task["avoid"]:
            restart(EVERYTHING, f"{path} was written again later in the run")
        replayer.notes.append(f"{path} is there as the run left it, not as it was at this place")

    files = Files(
        overlay,
        history,
        unknown,
        lambda path: replayer.notes.append(
            f"{path} was changed after the run read it: what depends on it is not as it was"
        ),
        {os.path.realpath(path_now(source.path, record.run, os.getcwd())) for source in record.sources},
    )

    clock = ReplayClock(program.user_modules, times_of(record)[0])

    def restored(checkpoint: CheckpointRow, before: float) -> None:
        clock.goes_on_from(checkpoint.taken)
        files.jumped(before, checkpoint.taken)
        output.restored(checkpoint.out)

    replayer.quietly = output.quietly
    replayer.on_restore, replayer.on_end, replayer.bring_file_to = restored, end, files.bring_to

    def at_start(module: ModuleType) -> None:
        builtins.__flor__ = probes  # type: ignore[attr-defined]
        vars(module)["__flor__"] = probes
        probes.use(replayer)
        probes.hindsight = output.hindsight
        program_starts()
        clock.install()
        entropy.guarded(set_state)(entropy.PYTHON)
        output.install()
        overlay.before_read(files.before_read)
        overlay.install()
        made = made_since(
            record.states.get(LISTING), os.getcwd(), str(settings.home), record.run.origin, record.run.ended
        )
        with overlay.paused():
            files.begin_without(made)

    def at_exit(exit_code: int) -> None:
        output.end()
        _report(task["status"], {"exit_code": exit_code, **_figures(replayer, output)})

    def set_state(library: str) -> None:
        entropy.compare_version(library, record.states.get(entropy.version_name(library)))
        state = record.states.get(entropy.row_name(library))
        if state is not None:
            entropy.write(library, state)

    watch(target, settings, program, entropy.guarded(set_state))
    return lambda: run(target, program.transform, at_start, at_exit)


def _differ(record: Record) -> Any:
    def diff(name: str, path: str, source: bytes) -> SourceDiff | None:
        recorded = record.source_of(name)
        if recorded is None or recorded.source == source:
            return None
        return compare(recorded.source, source, path)

    return diff


def _figures(replayer: Replayer, output: ReplayOutput) -> dict[str, Any]:
    verifier = replayer.verifier
    return {
        "printed": asdict(output.printed),
        "output_difference": output.difference,
        "iterations_executed": replayer.executed,
        "iterations_skipped": replayer.skipped,
        "blocks_skipped": replayer.blocks_skipped,
        "jumps": replayer.jumps,
        "verified": verifier.verified,
        "diverged": verifier.diverged,
        "unverified": len(verifier.unverified),
        "restore_s": replayer.restore_s,
        "differences": verifier.differences,
        "reasons": verifier.unverified,
        "clock": verifier.clock,
        "notes": replayer.notes,
    }


def _report(descriptor: int, message: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(message).encode())
