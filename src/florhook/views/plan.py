"""What `--plan` shows of a replay before it is run."""

from __future__ import annotations

import os

from ..replay.estimate import Estimate, LoopPlan
from ..replay.record import Record

MOST_RUNS = 6
MOST_LOOPS = 30


def show_plan(estimate: Estimate, workers: int) -> None:
    """The main loops with what is run of each, and the time that the replay will take about."""
    run = estimate.record.run
    took = f", which took {run.stats['wall_s']:.1f} s" if "wall_s" in run.stats else ""
    print(f"run       {run.id} of {run.program}{took}")
    print(f"around    {estimate.around:8.2f} s  the program up to its main loops, between and after them")
    for plan in estimate.loops[:MOST_LOOPS]:
        print(f"loop      {plan.seconds:8.2f} s  {_told(estimate.record, plan)}")
    rest = estimate.loops[MOST_LOOPS:]
    if rest:
        print(f"loops     {sum(plan.seconds for plan in rest):8.2f} s  {len(rest)} more")
    print(f"in all    {estimate.seconds:8.2f} s, about, by one worker")
    if workers > 1:
        shared = sum(plan.seconds for plan in estimate.loops) / workers
        print(f"          {estimate.around + shared:8.2f} s, about, by {workers} workers, if each has a core")


def _told(record: Record, plan: LoopPlan) -> str:
    loop = plan.loop
    source = record.source_of(loop.site.key.partition(":")[0])
    name = "" if source is None else os.path.basename(source.path)
    runs = [f"{start}" if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in plan.runs]
    more = f" and {len(runs) - MOST_RUNS} more stretches" if len(runs) > MOST_RUNS else ""
    which = f" ({', '.join(runs[:MOST_RUNS])}{more})" if runs and plan.iterations < loop.known else ""
    done = (
        f"{plan.iterations} of {loop.known} iterations run{which}"
        if loop.known
        else "its iterations were not counted"
    )
    statements = f", {plan.skipped} of them instead of statements" if plan.skipped else ""
    return f"{name}:{loop.site.line}: {done}, {plan.restores} checkpoints restored{statements}"
