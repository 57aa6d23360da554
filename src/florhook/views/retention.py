"""What the terminal shows of retention: `gc`, `pin` and `unpin`."""

from __future__ import annotations

import sys

from ..errors import RefusedError, UsageError
from ..replay.record import Record
from ..replay.resume_plan import find_moment, parse_moment
from ..settings import Settings, byte_count
from ..store.collect import Report, Request, collect, plan
from ..store.pins import pin as pin_places
from ..store.pins import unpin as unpin_runs
from ..store.remote import withdraw
from ..store.rows import RunRow
from ..store.store import WHOLE, Store, settle
from .options import options_of
from .tables import size_text

PATIENCE = 30.0  # seconds for the writer of a run that ended just now


def gc(settings: Settings, words: list[str]) -> None:
    """Remove what nobody needs, and tell what it was."""
    options, rest = options_of("gc", words, ("max-bytes", "delete"), ("dry-run", "compact"))
    if rest:
        raise UsageError(f"gc takes no arguments, not {rest[0]!r}")
    limit = byte_count("".join(options.get("max-bytes", [])[-1:]), "--max-bytes") or settings.max_bytes
    settle(settings.home, PATIENCE)
    with Store.open(settings.home, untouched=True) as store:
        delete = tuple(run.id for which in options.get("delete", []) for run in _ranks(store, which))
    request = Request(settings.home, limit, delete, "compact" in options)
    dry = "dry-run" in options
    report = plan(request) if dry else collect(request)
    _tell(report, dry)
    if settings.remote is not None and not dry:
        for line in withdraw(settings.home, delete):
            sys.stderr.write(f"florhook: {line}\n")
    if limit is not None and report.after > limit:
        sys.stderr.write(
            f"florhook: {size_text(report.after)} are left, more than --max-bytes: the first, the last and pinned "
            "checkpoints of each run, and runs that are being recorded\n"
        )


def _tell(report: Report, dry: bool) -> None:
    for run in report.deleted:
        print(f"{run}: {'would be ' * dry}deleted")
    for run, (count, of) in report.thinned.items():
        print(f"{run}: {count} of {of} checkpoints {'would be ' * dry}dropped")
    if report.chunks:
        print(f"{report.chunks} chunks that nothing refers to {'would be ' * dry}removed")
    for path in report.left:
        print(f"{path}: {'would be ' * dry}removed")
    if report.compacted:
        print(f"{report.compacted} pack files {'would be ' * dry}compacted")
    verb = "would free" if dry else "freed"
    print(f"{verb} {size_text(report.freed)}: the checkpoints take {size_text(report.after)}")


def pin(settings: Settings, words: list[str]) -> None:
    """Keep a run's checkpoints, or the one from which a place is reached, whatever `gc` does."""
    options, rest = options_of("pin", words, ("at",), ())
    at = ",".join(options.get("at", [])) or settings.at
    with Store.open(settings.home) as store:
        runs = _ranks(store, _only_run("pin", rest, settings))
        places = [(run.id, *(_place(store, run, at) if at else WHOLE)) for run in runs]
    pin_places(settings.home, places)
    for run, ctx, iteration in places:
        what = f"iteration {iteration} of loop execution {ctx}" if at else "all checkpoints"
        print(f"{run}: {what} pinned")


def unpin(settings: Settings, words: list[str]) -> None:
    """Let a run's checkpoints go, as far as `gc` wants them."""
    _, rest = options_of("unpin", words, (), ())
    with Store.open(settings.home) as store:
        runs = _ranks(store, _only_run("unpin", rest, settings))
    unpin_runs(settings.home, [run.id for run in runs])


def _only_run(name: str, words: list[str], settings: Settings) -> str:
    if len(words) > 1:
        raise UsageError(f"{name} takes one run: id, unique prefix or last")
    return words[0] if words else settings.run


def _place(store: Store, run: RunRow, at: str) -> tuple[int, int]:
    """The checkpoint at a place, or else the newest before it in that loop."""
    moment = find_moment(Record(store, run), parse_moment(at))
    before = [number for number in moment.loop.checkpoints if 0 <= number <= moment.iteration]
    if not before:
        raise RefusedError(f"run {run.id} has no checkpoint at {at}, or before it in that loop")
    return moment.loop.row.ctx, max(before)


def _ranks(store: Store, which: str) -> list[RunRow]:
    """A run, with all its ranks."""
    run = store.find(which)
    return [each for each in store.runs() if each.id == run.id or each.id.partition(".")[0] == run.id]
