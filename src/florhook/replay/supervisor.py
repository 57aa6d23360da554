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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..begin import new_id, program_name
from ..dataclass import dataclass
from ..errors import RefusedError, UsageError
from ..hash_seed import HASH_SEED
from ..hook.logpoints import Logpoint, Search, parse_logpoint
from ..launch import INTERRUPTED, Target
from ..logs.kept import publish
from ..logs.replays import keep
from ..ranks import Rank, member_id
from ..record import write_stats
from ..runtime import trackers
from ..runtime.cells import is_cell
from ..settings import AUTO, LOCAL, Settings
from ..store.rows import RunRow
from ..store.store import Store, settle
from .account import Gathering
from .attempt import Attempt
from .display import Display, Plan, display_for
from .estimate import Estimate
from .group import Folder, Group
from .items import Item, divide
from .plan import parse_selection, selection_of
from .pool import Pool, TroubleError
from .record import Record, modules_of
from .resources import device_of, workers_for
from .sources import Edits, find_edits
from .versions import Versions, file_now, with_probes

DIVERGED = 4
UNCOUNTED = (
    "differences",
    "reasons",
    "clock",
    "notes",
    "printed",
    "ended",
    "reached",
    "raised",
    "output_difference",
)  # of a report, what is no figure
PATIENCE = 30.0  # seconds for the writer of a run that ended just now
MOST_ATTEMPTS = 20
MOST_REASONS = 3
MOST_KEPT = 50  # of each kind of text in an account


@dataclass(frozen=True)
class Asked:
    """What is to be replayed: a run in an open store, the ids of the other ranks' parts, the texts and the edits.

    `trackers` are those that the run used.
    """

    store: Store
    run: RunRow
    others: list[str]
    versions: Versions
    edits: Edits
    rank: Rank | None
    trackers: list[str]


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
    _compare_the_ends(attempt.report, edits, run)
    stats = _say_what_happened(attempt, edits, run)
    times = {"replay": new_id(), "started": began, "ended": time.time(), "select": settings.select}
    kept = _keep_lines(settings, run, attempt, edits, times)
    account = {
        **times,
        "wall_s": time.perf_counter() - started,
        "workers": workers,
        "exit_code": DIVERGED if attempt.report.get("diverged") else attempt.status,
        **gathering.result(),
        **_findings(attempt, edits, stats),
    }
    if kept:
        _keep_account(settings, run, account)
    exit_code = _exit_code(attempt)
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
        record = Record(store, question.run)
        plan = question.edits.question(record, selection_of(record, settings.select))
        return Estimate(record, plan), _most(settings, record)


def _plan(settings: Settings, asked: Asked) -> Plan:
    """For who shows how far a replay is; reads the record anew, in a thread."""

    def plan() -> tuple[int, float, float]:
        with Store.open(settings.home) as store:
            record = Record(store, store.find(asked.run.id))
            found = Estimate(record, asked.edits.question(record, selection_of(record, settings.select)))
            counted = (each.iterations for each in found.loops if not each.loop.site.tight)
            return sum(counted), found.around, found.seconds - found.around

    return plan


def asked(
    target: Target,
    settings: Settings,
    probes: Sequence[Logpoint | Search],
    versions: Versions | None = None,
) -> Asked:
    """What is to be replayed; RefusedError where that must not be.

    `probes` are put into the files of now, if `versions` do not say what to replay.
    """
    parse_selection(settings.select)
    rank = Rank.of(os.environ, " ".join([program_name(target, settings), *target.argv]))
    # Of a run that was killed just now, even the row may be on its way.
    settle(settings.home, PATIENCE)
    store = Store.open(settings.home)
    run = store.find(settings.run, program_name(target, settings))
    run, others = _of_this_rank(store, run, rank)
    check_same_program(target, settings, run)
    rows = store.sources(run)
    sources = modules_of(rows)
    if versions is None:
        versions = with_probes(probes, sources, run, os.getcwd())
    try:
        edits = find_edits(sources, run, os.getcwd(), versions)
    except SyntaxError as error:
        raise RefusedError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    _refuse_unsafe(edits, settings)
    used = trackers.used(row.source for row in rows if row.module.startswith(trackers.ROW))
    return Asked(store, run, others, versions, edits, rank, used)


def _of_this_rank(store: Store, run: RunRow, rank: Rank | None) -> tuple[RunRow, list[str]]:
    """The part of a run that this process recorded, and the ids of the other ranks' parts."""
    world = 1 if rank is None else rank.world
    if world != run.world:
        raise RefusedError(
            f"run {run.id} had {run.world} ranks, and this launch has {world}: start the replay as the run was started"
        )
    members = [store.find(member_id(run.id, number)) for number in range(int(run.meta.get("here", 1)))]
    for member in members:
        store.wait(member, PATIENCE)
    own = member_id(run.id, 0 if rank is None else rank.number)
    return store.find(own), [member.id for member in members if member.id != own]


def check_same_program(target: Target, settings: Settings, run: RunRow) -> None:
    """A run is continued and replayed by its own program, with its own arguments."""
    name = program_name(target, settings)
    if run.program != name:
        raise RefusedError(f"run {run.id} is one of {run.program}, not of {name}")
    if tuple(target.argv) != run.argv and not settings.force:
        was, now = " ".join(run.argv) or "(none)", " ".join(target.argv) or "(none)"
        raise RefusedError(
            f"run {run.id} had other arguments: {was}; now: {now} (--force goes on all the same)"
        )


def refuse_ranks(run: RunRow, done: str) -> None:
    """What cannot be done yet with a run of several ranks."""
    if run.world > 1:
        raise RefusedError(
            f"run {run.id} had {run.world} ranks: such runs can be replayed, but not {done} yet"
        )


def refuse_cells(run: RunRow, done: str) -> None:
    """What cannot be done with a cell, which is no program by itself."""
    if is_cell(run.program):
        raise RefusedError(
            f"run {run.id} is one of a notebook's cell: such runs can be replayed, but not {done}"
        )


def _refuse_unsafe(edits: Edits, settings: Settings) -> None:
    if not edits.refusals or settings.force:
        return
    for refusal in edits.refusals:
        sys.stderr.write(f"florhook: {refusal.path}:{refusal.line}: {refusal.reason}\n")
    raise RefusedError(
        "the edit is no probe: what the program computes was changed (see above); "
        "record it as a new run, or replay all the same with --force"
    )


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
            _die_by(signal.SIGPIPE)
        except KeyboardInterrupt:
            pool[0].close()
            _die_by(signal.SIGINT)
    place = _place_in_stdin()
    for number in range(MOST_ATTEMPTS):
        if place is not None:
            os.lseek(0, place, os.SEEK_SET)  # an attempt before may have read from it
        folder = None if group is None else group.attempt(number)
        task = {"avoid": avoid, "already": already, **(more or {})}
        attempt = _run_worker(settings, asked, task, folder, display)
        if "again" not in attempt.report:
            return attempt, 1
        _forget_lines(attempt)
        avoid += attempt.report["again"]
        already = {
            name: max(count, already.get(name, 0)) for name, count in attempt.report["printed"].items()
        }
        if attempt.report.get("reason"):
            sys.stderr.write(
                f"florhook: a checkpoint cannot be used ({attempt.report['reason']}); running such loops in full\n"
            )
    raise RefusedError(
        "too many checkpoints of this run cannot be used; replay with --force, or record again"
    )


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


def _keep_lines(
    settings: Settings, run: RunRow, attempt: Attempt, edits: Edits, times: Mapping[str, Any]
) -> bool:
    """What an exact replay printed joins its run; False where the store cannot take it."""
    try:
        if attempt.report and not attempt.report.get("diverged") and not edits.refusals:
            probes = [f"{os.path.basename(path)}:{line}" for path, line in edits.lines]
            publish(settings.home, run.id, attempt.kept, {**times, "probes": probes})
    except OSError as error:
        sys.stderr.write(f"florhook: what was printed is not kept for florhook logs: {error.strerror}\n")
        return False
    finally:
        _forget_lines(attempt)
    return True


def _keep_account(settings: Settings, run: RunRow, account: Mapping[str, Any]) -> None:
    try:
        keep(settings.home, run.id, dict(account))
    except OSError as error:
        sys.stderr.write(f"florhook: this replay is not kept for florhook show: {error.strerror}\n")


def _findings(attempt: Attempt, edits: Edits, stats: Mapping[str, Any]) -> dict[str, Any]:
    """What a replay's account tells of its outcome."""
    report = attempt.report
    printed = [repr(text.strip())[:60] for text in report.get("output_difference") or ()]
    return {
        "figures": dict(stats),
        "differences": [
            *report.get("differences", []),
            *(
                [f"the program printed {printed[1]} where it had printed {printed[0]} in the run"]
                if printed
                else []
            ),
        ],
        "reasons": [list(pair) for pair in Counter(report.get("reasons", [])).most_common(MOST_KEPT)],
        "notes": report.get("notes", [])[:MOST_KEPT],
        "clock": report.get("clock", [])[:MOST_KEPT],
        "forced": [f"{os.path.basename(each.path)}:{each.line}: {each.reason}" for each in edits.refusals],
    }


def _forget_lines(attempt: Attempt) -> None:
    for path in attempt.kept:
        with contextlib.suppress(OSError):
            path.unlink()


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


def _compare_the_ends(report: dict[str, Any], edits: Edits, run: RunRow) -> None:
    """A program that ends with another exit code than in the run is not what ran then.

    Unless the edits make it end so: an exception out of a statement that was added, or an edit that was forced.
    """
    ended = report.get("exit_code", run.exit_code)
    if run.exit_code in (None, ended) or ended == INTERRUPTED or report["raised"] or edits.refusals:
        return
    report["diverged"] += 1
    difference = f"the program ended with exit code {ended}, in the run with {run.exit_code}"
    report["differences"] = [*report["differences"], difference]


def _say_what_happened(attempt: Attempt, edits: Edits, run: RunRow) -> dict[str, Any]:
    stats = {key: value for key, value in attempt.report.items() if key not in UNCOUNTED}
    for note in attempt.report.get("notes", []):
        sys.stderr.write(f"florhook: {note}\n")
    for difference in attempt.report.get("differences", []):
        sys.stderr.write(f"florhook: this replay is not exact: {difference}\n")
    if attempt.report.get("output_difference"):
        recorded, printed = (repr(text.strip())[:60] for text in attempt.report["output_difference"])
        sys.stderr.write(
            f"florhook: the program printed {printed} where it had printed {recorded} in the run\n"
        )
    reasons = list(dict.fromkeys(attempt.report.get("reasons", [])))
    for reason in reasons[:MOST_REASONS]:
        sys.stderr.write(f"florhook: not verified: {reason}\n")
    if len(reasons) > MOST_REASONS:
        sys.stderr.write(f"florhook: not verified: {len(reasons) - MOST_REASONS} more stretches\n")
    for path in attempt.report.get("clock", []):
        sys.stderr.write(
            f"florhook: {path} holds a time of the clock: where it was read again, it is this replay's\n"
        )
    if attempt.report.get("ended") and run.exit_code == 0:
        sys.stderr.write(
            "florhook: a loop goes on longer than in the run, which was interrupted in it or waited for something: "
            "this replay ends here\n"
        )
    elif attempt.report.get("ended"):
        sys.stderr.write("florhook: the recorded run ended here: it was killed or interrupted\n")
    elif run.exit_code is None and "exit_code" in attempt.report:
        sys.stderr.write(
            "florhook: the run was killed: what comes after its last loop may not have been reached\n"
        )
    if not edits.lines:
        sys.stderr.write("florhook: no statement was added to the program since it was recorded\n")
    elif not attempt.report.get("reached", True) and run.world == 1 and not attempt.report["diverged"]:
        path, line = edits.lines[0]
        sys.stderr.write(
            f"florhook: {os.path.basename(path)}:{line}: the run did not come to what was added, or only in "
            "programs that it started (subprocess, joblib): these are not replayed\n"
        )
    return stats


def _exit_code(attempt: Attempt) -> int:
    if attempt.report.get("diverged"):
        return DIVERGED
    if attempt.status < 0:
        _die_by(-attempt.status)
    return attempt.status


def _die_by(number: int) -> None:
    """As the program did, or would have."""
    with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no handler to reset
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
