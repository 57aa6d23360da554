"""Replay mode as the user sees it: refuse what is no probe, run a worker, say what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import RefusedError, UsageError
from ..hash_seed import HASH_SEED
from ..hook.logpoints import parse_logpoint
from ..launch import Target
from ..runs import new_id, write_stats
from ..runtime import trackers
from ..settings import AUTO, LOCAL, Settings
from ..store.rows import RunRow
from ..store.store import Store
from .account import Gathering, estimate_of
from .asked import Asked, asked
from .attempt import Attempt
from .display import Display, Plan, display_for
from .estimate import Estimate
from .group import Folder, Group
from .items import Item, divide
from .outcome import (
    compare_the_ends,
    die_by,
    exit_status_of,
    forget_lines,
    keep_outcome,
    say_what_happened,
)
from .plan import selection_of
from .pool import Pool, TroubleError
from .record import Record, modules_of
from .resources import device_of, workers_for
from .versions import Versions, file_now

MOST_ATTEMPTS = 20


def replay(target: Target, settings: Settings, versions: Versions | None = None) -> int:
    """Replay a run of the program, from the files of now if nothing else is said; the exit status."""
    started = time.perf_counter()
    question = asked(target, settings, [parse_logpoint(text) for text in settings.probe], versions)
    store, run, edits, rank = question.store, question.run, question.edits, question.rank
    group = None if rank is None else Group(settings.home / "replays" / rank.launch, rank, question.others)
    if group is not None and settings.executor != LOCAL:
        raise UsageError(f"--executor {settings.executor} goes with runs of one process")
    unseen = group is not None or settings.executor != LOCAL  # others write to the terminal, or tell nothing
    display = display_for(settings.quiet or unseen, _plan(settings, question))
    pool = None if group is not None else _pool(settings, question, display)
    if pool is None and settings.executor != LOCAL:
        sys.stderr.write("florhook: this replay is not divided: this machine does it\n")
    store.close()
    began, gathering = time.time(), Gathering(settings, run, question.versions, edits)
    with contextlib.closing(pool[0]) if pool is not None else contextlib.nullcontext():
        attempt, workers = run_until_done(settings, question, group, pool, display=display)
    compare_the_ends(attempt.report, edits, run)
    stats = say_what_happened(attempt, edits, run)
    account = {
        "replay": new_id(),
        "started": began,
        "ended": time.time(),
        "wall_s": time.perf_counter() - started,
        "select": settings.select,
        "workers": workers,
        **gathering.result(),
    }
    keep_outcome(settings.home, run, attempt, edits, stats, account)
    exit_code = exit_status_of(attempt)
    write_stats(
        settings.stats,
        {
            "mode": "replay",
            "run_id": run.id,
            "workers": workers,
            **stats,
            "exit_code": exit_code,
            "wall_s": time.perf_counter() - started,
        },
        run.rank,
    )
    return exit_code


def estimate(target: Target, settings: Settings) -> tuple[Estimate, int]:
    """What a replay would do, and by how many workers at the most."""
    question = asked(target, settings, [parse_logpoint(text) for text in settings.probe])
    with question.store as store:
        found = estimate_of(store, settings, question.run, question.edits)
        return found, _most(settings, found.record)


def _plan(settings: Settings, asked: Asked) -> Plan:
    """For who shows how far a replay is; reads the record anew, in a thread."""

    def plan() -> tuple[int, float, float]:
        with Store.open(settings.home) as store:
            found = estimate_of(store, settings, store.find(asked.run.id), asked.edits)
            counted = (each.iterations for each in found.loops if not each.loop.site.tight)
            return sum(counted), found.around, found.seconds - found.around

    return plan


def _pool(settings: Settings, asked: Asked, display: Display) -> tuple[Pool, int] | None:
    """Several workers, where there are several things to do; and how many."""
    edits, away = asked.edits, settings.executor != LOCAL
    if settings.workers == 1 and not away:
        return None
    if away and settings.workers == AUTO:
        raise UsageError(f"--executor {settings.executor} needs the number of workers: --workers 4")
    if edits.carries:
        sys.stderr.write(
            "florhook: what was added hands values from one place to another: one process replays it\n"
        )
        return None
    if edits.printing_changed and settings.log == "all":
        return None  # what stands between the items is not in the record as it would be printed now
    record = Record(asked.store, asked.run)
    question = edits.question(record, selection_of(record, settings.select))
    most = _most(settings, record)
    items = divide(record, question, most)
    count = min(most, sum(item.start >= 0 for item in items))
    if count < (1 if away else 2):
        return None
    folder = settings.home / "replays" / new_id()
    if away:
        return _pool_away(settings, asked, items, folder), count

    def start(task: dict[str, Any], stdin: int, number: int) -> subprocess.Popen[bytes]:
        whole = {"avoid": [], "already": {}, **task}
        try:
            device = device_of(number, os.environ)
            return _start_worker(asked, whole, folder / f"overlay-{number}", device, display, stdin)
        finally:
            os.close(stdin)

    return Pool(items, folder, start, display=display), count


def _pool_away(settings: Settings, asked: Asked, items: list[Item], folder: Path) -> Pool:
    """One whose workers run on other machines."""
    from .dispatch import Dispatch

    task = {"avoid": [], "already": {}, **_about(asked)}
    cwd = os.getcwd()
    paths = {file_now(row, asked.run, cwd) for row in modules_of(asked.store.sources(asked.run))}
    sources = sorted(os.path.relpath(path, cwd) for path in paths if os.path.exists(path))
    dispatch = Dispatch(settings, folder, task, _hash_seed(asked.run), sources)
    return Pool(items, folder, dispatch.start, dispatch.close)


def _most(settings: Settings, record: Record) -> int:
    return workers_for(record, os.environ) if settings.workers == AUTO else settings.workers


def run_until_done(
    settings: Settings,
    asked: Asked,
    group: Group | None = None,
    pool: tuple[Pool, int] | None = None,
    more: Mapping[str, Any] | None = None,
    display: Display | None = None,
) -> tuple[Attempt, int]:
    """Run workers until one gets through; each leaves out the checkpoints that the one before could not use.

    `more` is what a worker is told besides. The attempt that did, and how many workers it had.
    """
    avoid: list[str] = []
    already: dict[str, int] = {}
    display = display or Display()
    if pool is not None:
        try:
            with display.attempt(pool[1]):
                return pool[0].run(pool[1]), pool[1]
        except TroubleError as trouble:
            sys.stderr.write(f"florhook: one process replays this ({trouble})\n")
            avoid += trouble.report.get("again", [])
            already = {"left_out": pool[0].printed, "digest": pool[0].digest.intdigest()}
        except BrokenPipeError:  # nobody reads what is printed
            pool[0].close()
            die_by(signal.SIGPIPE)
        except KeyboardInterrupt:
            pool[0].close()
            die_by(signal.SIGINT)
    place = _place_in_stdin()
    for number in range(MOST_ATTEMPTS):
        if place is not None:
            os.lseek(0, place, os.SEEK_SET)  # an attempt before may have read from it
        folder = None if group is None else group.attempt(number)
        task = {"avoid": avoid, "already": already, **(more or {})}
        attempt = _run_worker(settings, asked, task, folder, display)
        if "again" not in attempt.report:
            return attempt, 1
        forget_lines(attempt)
        avoid += attempt.report["again"]
        already = _printed_by_now(already, attempt.report["printed"])
        if attempt.report.get("reason"):
            sys.stderr.write(
                f"florhook: a checkpoint cannot be used ({attempt.report['reason']}); running such loops in full\n"
            )
    raise RefusedError(
        "too many checkpoints of this run cannot be used; replay with --force, or record again"
    )


def _printed_by_now(before: dict[str, int], attempt: dict[str, int]) -> dict[str, int]:
    """What the next attempt leaves out, by what the last one had to leave out and how far it came."""
    if attempt["left_out"]:
        return before  # it only came to what several processes had printed, and printed nothing itself
    counts = {name: max(count, before.get(name, 0)) for name, count in attempt.items()}
    return {**counts, "left_out": 0, "digest": 0}


def _run_worker(
    settings: Settings, asked: Asked, task: dict[str, Any], folder: Folder | None, display: Display
) -> Attempt:
    overlay = settings.home / "replays" / new_id() if folder is None else folder.overlay
    kept = overlay.parent / f"{overlay.name}-{asked.run.rank}.kept"
    overlay.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
    read, write = os.pipe()
    task = {**task, "status": write, "kept": str(kept)}
    address: dict[str, str] = {}
    if folder is not None:
        task["ranks"] = folder.as_task()
        address = folder.address()
    with _interrupts_left_to_the_worker(), display.attempt(1):
        worker = _start_worker(asked, task, overlay, address, display)
        os.close(write)
        with os.fdopen(read, "rb") as reports:
            report = _report(reports, display)
        if folder is not None and "again" in report:  # the worker stands still
            report["again"] = folder.halt()
            worker.kill()
        status = worker.wait()
    if folder is not None and status == 0 and not folder.wait_for_the_end():
        report["again"] = folder.halt()
    return Attempt(status, report, [kept])


def _report(lines: Iterable[bytes], display: Display) -> dict[str, Any]:
    """The first that is more than a count of iterations; nothing where the worker has died."""
    for line in lines:
        message: dict[str, Any] = json.loads(line)
        if "ran" not in message:
            return message
        display.ran(0, message["ran"])
    return {}


def _place_in_stdin() -> int | None:
    try:
        return os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:
        return None


def _start_worker(
    asked: Asked,
    task: dict[str, Any],
    overlay: Path,
    more: Mapping[str, str],
    display: Display,
    stdin: int | None = None,
) -> subprocess.Popen[bytes]:
    """One that has a standard input of its own does not belong to the terminal's foreground, either."""
    overlay.mkdir(parents=True, mode=0o700, exist_ok=True)
    task = {**task, **_about(asked), "overlay": str(overlay), "progress": display.wanted}
    offline = trackers.environment(overlay / trackers.SCRATCH, os.environ, asked.trackers)
    environment = {**os.environ, **offline, **more, **_hash_seed(asked.run)}
    return subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        stdin=stdin,
        stdout=display.stdout,
        stderr=display.stderr,
        env={**environment, "FLORHOOK_TASK": json.dumps(task)},
        pass_fds=[task["status"]],
        start_new_session=stdin is not None,
    )


def _about(asked: Asked) -> dict[str, Any]:
    """What all workers of a replay are told."""
    return {"run": asked.run.id, "versions": asked.versions.as_task(), "trackers": asked.trackers}


def _hash_seed(run: RunRow) -> dict[str, str]:
    """The variables that give a worker the run's hash seed."""
    seed = str(run.meta.get("hash_seed", ""))
    before = os.environ.get("PYTHONHASHSEED", "")
    return {HASH_SEED: f"{seed}:{before}", "PYTHONHASHSEED": seed or "random"}


@contextlib.contextmanager
def _interrupts_left_to_the_worker() -> Iterator[None]:
    """Ctrl-C reaches the worker too, which answers.

    By a handler: a worker would inherit that the signal is ignored, and its program would see that.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
