"""What came of a replay: told on stderr, kept beside its run, and given as exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..launch import INTERRUPTED
from ..logs.kept import publish
from ..logs.replays import keep
from ..store.rows import RunRow
from .attempt import Attempt
from .sources import Edits

DIVERGED = 4
UNCOUNTED = (
    "differences",
    "reasons",
    "clock",
    "moved",
    "notes",
    "printed",
    "ended",
    "reached",
    "raised",
    "output_difference",
)  # of a report, what is no figure
MOST_REASONS = 3
MOST_KEPT = 50  # of each kind of text in an account


def compare_the_ends(report: dict[str, Any], edits: Edits, run: RunRow) -> None:
    """A program that ends with another exit code than in the run is not what ran then.

    Unless the edits make it end so: an exception out of a statement that was added, or an edit that was forced.
    """
    ended = report.get("exit_code", run.exit_code)
    if run.exit_code in (None, ended) or ended == INTERRUPTED or report["raised"] or edits.refusals:
        return
    report["diverged"] += 1
    difference = f"the program ended with exit code {ended}, in the run with {run.exit_code}"
    report["differences"] = [*report["differences"], difference]


def say_what_happened(attempt: Attempt, edits: Edits, run: RunRow) -> dict[str, Any]:
    """Tell what a user has to know, on stderr; the figures for FLOR_STATS."""
    stats = {key: value for key, value in attempt.report.items() if key not in UNCOUNTED}
    for note in attempt.report.get("notes", []):
        sys.stderr.write(f"florhook: {note}\n")
    for difference in attempt.report.get("differences", []):
        sys.stderr.write(f"florhook: this replay is not exact: {difference}\n")
    for difference in _difference_printed(attempt.report):
        sys.stderr.write(f"florhook: {difference}\n")
    reasons = list(dict.fromkeys(attempt.report.get("reasons", [])))
    for reason in reasons[:MOST_REASONS]:
        sys.stderr.write(f"florhook: not verified: {reason}\n")
    if len(reasons) > MOST_REASONS:
        sys.stderr.write(f"florhook: not verified: {len(reasons) - MOST_REASONS} more stretches\n")
    for path in attempt.report.get("clock", []):
        sys.stderr.write(
            f"florhook: {path} holds a time of the clock: where it was read again, it is this replay's\n"
        )
    for path in attempt.report.get("moved", []):
        sys.stderr.write(
            f"florhook: {path} holds a path or a line number: where it was computed again, it is this replay's\n"
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


def keep_outcome(
    home: Path,
    run: RunRow,
    attempt: Attempt,
    edits: Edits,
    stats: Mapping[str, Any],
    account: Mapping[str, Any],
) -> None:
    """The lines that an exact replay printed join its run, and of each its account; one line where that cannot be."""
    about = {key: account[key] for key in ("replay", "started", "ended", "select")}
    probes = [f"{os.path.basename(path)}:{line}" for path, line in edits.lines]
    try:
        if attempt.report and not attempt.report.get("diverged") and not edits.refusals:
            publish(home, run.id, attempt.kept, {**about, "probes": probes})
        keep(home, run.id, {**account, **_findings(attempt, edits, stats)})
    except OSError as error:
        sys.stderr.write(f"florhook: this replay is not kept for florhook logs and show: {error.strerror}\n")
    finally:
        forget_lines(attempt)


def _findings(attempt: Attempt, edits: Edits, stats: Mapping[str, Any]) -> dict[str, Any]:
    """What a replay's account tells of its outcome."""
    report = attempt.report
    return {
        "exit_code": DIVERGED if report.get("diverged") else attempt.status,
        "figures": dict(stats),
        "differences": [*report.get("differences", []), *_difference_printed(report)],
        "reasons": [list(pair) for pair in Counter(report.get("reasons", [])).most_common(MOST_KEPT)],
        "notes": report.get("notes", [])[:MOST_KEPT],
        "clock": report.get("clock", [])[:MOST_KEPT],
        "moved": report.get("moved", [])[:MOST_KEPT],
        "forced": [f"{os.path.basename(each.path)}:{each.line}: {each.reason}" for each in edits.refusals],
    }


def _difference_printed(report: Mapping[str, Any]) -> list[str]:
    """At most one: the first piece of output that was another."""
    if not report.get("output_difference"):
        return []
    recorded, printed = (repr(text.strip())[:60] for text in report["output_difference"])
    if recorded == printed:  # what a progress bar draws on one line
        return []
    return [f"the program printed {printed} where it had printed {recorded} in the run"]


def forget_lines(attempt: Attempt) -> None:
    for path in attempt.kept:
        with contextlib.suppress(OSError):
            path.unlink()


def exit_status_of(attempt: Attempt) -> int:
    """That of the supervisor, which dies by the signal that ended the program."""
    if attempt.report.get("diverged"):
        return DIVERGED
    if attempt.status < 0:
        die_by(-attempt.status)
    return attempt.status


def die_by(number: int) -> None:
    """As the program did, or would have."""
    with contextlib.suppress(OSError):  # SIGKILL and SIGSTOP have no handler to reset
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
