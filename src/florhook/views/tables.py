"""What the terminal shows of the store: the runs, and one run in detail."""

from __future__ import annotations

import os
import time
from typing import Any

from ..errors import UsageError
from ..logs.replays import Account, accounts_of, verdict
from ..replay.record import line_of_statement, modules_of
from ..settings import Settings
from ..store.rows import CELL, RunRow
from ..store.store import WHOLE, Store

COLUMNS = (
    "run",
    "program",
    "arguments",
    "started",
    "took",
    "exit",
    "iterations",
    "checkpoints",
    "stored",
    "overhead",
    "ranks",
    "goes on from",
)


def runs(settings: Settings, words: list[str]) -> None:
    """One line for each run, oldest first; of several ranks, rank 0 stands for all."""
    if words:
        raise UsageError(f"runs takes no arguments, not {words[0]!r}")
    with Store.open(settings.home) as store:
        rows = [COLUMNS, *(cells_of(store, run) for run in store.runs() if run.rank == 0)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show(settings: Settings, words: list[str]) -> None:
    """One run: what it was, how it ended, its loops and what recording cost."""
    if len(words) > 1:
        raise UsageError("show takes one run: id, unique prefix or last")
    with Store.open(settings.home) as store:
        run = store.find(words[0] if words else settings.run)
        cells = dict(zip(COLUMNS, cells_of(store, run), strict=True))
        print(f"run          {run.id}")
        print(f"folder       {run.cwd}")
        for name in COLUMNS[1:-2]:
            print(f"{name:12} {cells[name]}")
        _show_ranks(store, run)
        if "parent" in run.meta:
            print(f"goes on      from {run.meta['parent']}, {run.meta['from']}")
        pins = store.pins(run)
        if pins:
            print(f"pinned       {'all' if WHOLE in pins else len(pins)} checkpoints")
        print(f"python       {run.meta.get('python', '?')}, florhook {run.meta.get('florhook', '?')}")
        for source in modules_of(store.sources(run)):
            print(f"module       {source.module} ({source.path})")
        _show_stall(run)
        _show_loops(store, run)
        for account in accounts_of(store.home, run.id):
            _show_replay(account)
        for reason, count in run.stats.get("refused", {}).items():
            print(f"not taken    {count} checkpoints: {reason}")


def _show_ranks(store: Store, run: RunRow) -> None:
    """What each of several ranks left; the loops below are this rank's."""
    if run.world == 1:
        return
    print(f"ranks        {run.world}; this is rank {run.rank}")
    prefix = run.id.removesuffix(f".{run.rank}")
    for other in store.runs():
        if other.id != run.id and other.id.partition(".")[0] == prefix:
            cells = dict(zip(COLUMNS, cells_of(store, other), strict=True))
            print(
                f"rank {other.rank:<7} {other.id}: exit {cells['exit']}, {cells['iterations']} iterations, "
                f"{cells['checkpoints']} checkpoints, {cells['stored']}, overhead {cells['overhead']}"
            )


def _show_stall(run: RunRow) -> None:
    """What the program waited for, and what ran beside it."""
    parts = run.stats.get("stall")
    if parts is None:
        return
    rest = run.stats["stall_s"] - sum(parts.values())
    told = ", ".join(f"{name} {seconds:.3f}" for name, seconds in {**parts, "other": rest}.items())
    print(
        f"stall        {run.stats['stall_s']:.3f} s: {told}; the writer used {run.stats['writer_cpu_s']:.2f} s of CPU"
    )


def _show_loops(store: Store, run: RunRow) -> None:
    taken: dict[int, int] = {}
    for checkpoint in store.checkpoints(run, pieces=False):
        taken[checkpoint.ctx] = taken.get(checkpoint.ctx, 0) + (not checkpoint.is_witness)
    sites: dict[str, list[float]] = {}
    for row in store.contexts(run):
        if row.site == CELL:
            continue
        figures = sites.setdefault(row.site, [0, 0, 0, 0.0])
        figures[0] += 1
        figures[1] += row.iterations or 0
        figures[2] += taken.get(row.ctx, 0)
        figures[3] += (row.left or row.entered) - row.entered
    for site, (executions, iterations, checkpoints, seconds) in sites.items():
        told = f"{checkpoints:.0f} checkpoints, {seconds:.2f} s"
        line = line_of_statement(site)
        if line is None:
            print(f"loop         {site}: {executions:.0f} executions, {iterations:.0f} iterations, {told}")
        else:
            around = site.rpartition(":")[0]
            print(f"statement    {around}, line {line}: {told}")
        for block in run.stats.get("blocks", ()):
            if block["site"] == site:
                print(f"             {_block(block)}")


def _show_replay(account: Account) -> None:
    """What a replay did, beside what was expected of it, and whether that was as in the run."""
    figures, plan = account["figures"], account["plan"]
    asked = ", ".join(f"{os.path.basename(probe['path'])}:{probe['line']}" for probe in account["probes"])
    print(f"replay       {account['replay']}: {asked or 'no statement was added'}")
    about = "" if plan is None else f", about {plan['seconds']:.2f} s expected"
    told = [
        f"{account['wall_s']:.2f} s{about}",
        f"{figures.get('iterations_executed', 0)} iterations executed",
    ]
    told += [f"{figures.get('iterations_skipped', 0)} skipped", f"{figures.get('jumps', 0)} restores"]
    counts = ", ".join(f"{figures.get(name, 0)} {name}" for name in ("verified", "diverged", "unverified"))
    print(f"             {', '.join(told)}; {verdict(account)}: {counts}")
    for difference in account["differences"]:
        print(f"             differs: {difference}")
    for reason, count in account["reasons"]:
        print(f"             not verified: {reason}{f' ({count} times)' if count > 1 else ''}")


def _block(block: dict[str, Any]) -> str:
    """What the budget made of a loop's exits, or of its boundaries."""
    if line_of_statement(block["site"]) is not None:
        what, took = "ends", "the statement"
    elif block["kind"] == "exit":
        what, took = "exits", "the loop"
    else:
        what, took = "boundaries", "an iteration"
    told = [f"{what}: {block['checkpoints']} checkpoints"]
    if block["checkpoints"]:
        told.append(f"the last cost {1000 * block['cost_s']:.1f} ms")
    told.append(f"{took} takes {1000 * block['mean_s']:.1f} ms")
    told += [f"{count} refused because {reason}" for reason, count in block["refused"].items()]
    return ", ".join(told)


def cells_of(store: Store, run: RunRow) -> tuple[str, ...]:
    stats = run.stats or _so_far(store, run)
    wall = stats.get("wall_s")
    overhead = f"{100 * stats['overhead_s'] / wall:.2f} %" if wall and "overhead_s" in stats else "?"
    return (
        run.id,
        run.program,
        " ".join(run.argv),
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started)),
        f"{wall:.1f} s" if wall else "?",
        _ending(store, run),
        str(stats.get("iterations_executed", "?")),
        str(stats.get("checkpoints", "?")),
        size_text(stats.get("bytes_written")),
        overhead,
        str(run.world) if run.world > 1 else "",
        str(run.meta.get("parent", "")),
    )


def _ending(store: Store, run: RunRow) -> str:
    if run.exit_code is not None:
        return str(run.exit_code)
    return "running" if store.is_live(run) else "no goodbye"


def _so_far(store: Store, run: RunRow) -> dict[str, Any]:
    """Figures of a run that goes on, or ended without goodbye, from what it left."""
    checkpoints = store.checkpoints(run)
    last = max([row.taken for row in checkpoints], default=None)
    figures: dict[str, Any] = {
        "iterations_executed": sum(1 for _ in store.iterations(run)),
        "checkpoints": sum(not row.is_witness for row in checkpoints),
    }
    if last is not None:
        figures["wall_s"] = (run.lost or time.time()) - run.started
    return figures


def size_text(count: int | None) -> str:
    """Bytes, as a person reads them."""
    if count is None:
        return "?"
    size, unit = float(count), "B"
    for bigger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, bigger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
