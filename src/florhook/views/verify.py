"""`florhook verify`: whether all that the runs have in the store is there, and as it was written."""

from __future__ import annotations

from ..errors import StoreError, UsageError
from ..replay.places import piece_text, place_text
from ..replay.record import Record
from ..settings import Settings
from ..store.rows import CheckpointRow, RunRow
from ..store.store import Store, settle
from ..store.verify import FOREIGN, UNSIGNED, Damage, RunReport, StoreReport, Verifier, verify_files
from .options import options_of
from .tables import size_text

PATIENCE = 30.0  # seconds for the writer of a run that ended just now
MOST_SHOWN = 10  # damages of a run
KEYS = {FOREIGN: ", signed with another key than yours", UNSIGNED: ", not signed"}


def verify(settings: Settings, words: list[str]) -> None:
    """Read back one run, or all; exit status 1 where something is damaged."""
    options, names = options_of("verify", words, (), ("all",))
    if len(names) > 1 or (names and options):
        raise UsageError("verify takes one run: id, unique prefix or last; or --all")
    settle(settings.home, PATIENCE)
    with Store.open(settings.home) as store:
        runs = _runs(store, names[0] if names else None)
        verifier = Verifier(store)
        damaged = [_tell(store, verifier.run(run)) for run in runs]
        files = verify_files(store)
    _tell_files(files)
    if any(damaged) or files.damages:
        raise SystemExit(1)


def _runs(store: Store, which: str | None) -> list[RunRow]:
    """All runs, or one with all its ranks."""
    try:
        runs = store.runs()
        if which is None:
            return runs
        found = store.find(which)
    except ValueError as error:
        raise StoreError(
            f"the store {store.home} is damaged: the row of a run is not JSON: {error}"
        ) from None
    return [run for run in runs if run.id == found.id or (run.rank and run.id.startswith(f"{found.id}."))]


def _tell(store: Store, report: RunReport) -> bool:
    """One line for the run, and one for each damage; whether there is any."""
    if report.deleted:
        return False
    counts = [f"{report.checkpoints} checkpoints"]
    if report.witnesses:
        counts.append(f"{report.witnesses} witnesses")
    counts.append(size_text(report.size))
    verdict = f"{len(report.damages)} damaged" if report.damages else "ok"
    live = ", still being recorded" if report.live else ""
    run = report.run
    print(f"{run.id}  {run.program}: {', '.join(counts)}: {verdict}{KEYS.get(report.key, '')}{live}")
    if report.damages:
        _tell_damages(store, report)
    return bool(report.damages)


def _tell_damages(store: Store, report: RunReport) -> None:
    places = _Places(store, report.run)
    for damage in report.damages[:MOST_SHOWN]:
        print(f"  {places.text(damage)}")
    if len(report.damages) > MOST_SHOWN:
        print(f"  and {len(report.damages) - MOST_SHOWN} more")
    if any(damage.place is None for damage in report.damages):
        print("  without its sources and rows the run cannot be replayed or resumed")
    if any(damage.place is not None for damage in report.damages):
        print(
            "  a replay that would restore a damaged checkpoint executes that loop instead, with the same result"
        )


class _Places:
    """Names the places of a run's checkpoints as far as the rest of it can be read."""

    def __init__(self, store: Store, run: RunRow) -> None:
        self._record: Record | None = None
        try:
            self._record = Record(store, run)
        except (StoreError, ValueError, TypeError, KeyError, SyntaxError):
            return  # what is damaged is what places are named by

    def text(self, damage: Damage) -> str:
        if damage.place is None:
            return damage.reason
        ctx, iteration = damage.place
        loop = None if self._record is None else self._record.execution(ctx)
        if self._record is None or loop is None:
            return self._told(f"of loop execution {ctx} at iteration {iteration}", None, damage)
        row = loop.checkpoints.get(iteration) or loop.witnesses.get(iteration)
        return self._told(place_text(self._record, loop, iteration), row, damage)

    @staticmethod
    def _told(place: str, row: CheckpointRow | None, damage: Damage) -> str:
        if damage.piece is None:
            return f"checkpoint {place}: {damage.reason}"
        of = "" if row is None else f" of {len(row.digests)} ({piece_text(row, damage.piece)})"
        return f"checkpoint {place}: piece {damage.piece + 1}{of}: {damage.reason}"


def _tell_files(report: StoreReport) -> None:
    for damage in report.damages:
        print(f"damaged: {damage}")
    if report.loose_chunks:
        print(
            f"{report.loose_chunks} chunks, {size_text(report.loose_bytes)}, belong to no run: gc removes them"
        )
    if report.dead_bytes:
        print(f"{size_text(report.dead_bytes)} of pack files belong to no chunk: gc may give them back")
    for name in report.left_over:
        print(f"{name} is no pack file of the catalog: gc removes it once it is old")
