"""The command line: one subject a module, each with `measure(options)`, the `NAMES` for --only, and `PAIRS`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import disk, hook, peers, record, replay, stall
from .figures import BusyError, Options, refuse_when_busy, report

SUBJECTS = {
    "disk": disk,
    "hook": hook,
    "peers": peers,
    "record": record,
    "replay": replay,
    "stall": stall,
}
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "bench"
FEWEST = 5  # pairs


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument(
        "--pairs", type=int, help="runs of each kind, alternating (default 5; hook 9; stall 15 checkpoints)"
    )
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this part; repeatable")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of torch (default: all cores)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, no more")
    parser.add_argument(
        "--anyway", action="store_true", help="measure on a busy machine, and mark the figures"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for the JSON")
    asked = parser.parse_args()
    subject = SUBJECTS[asked.subject]
    unknown = set(asked.only) - set(subject.NAMES)
    if unknown:
        parser.error(f"{asked.subject} has no {', '.join(sorted(unknown))}, but {', '.join(subject.NAMES)}")
    pairs = asked.pairs or (1 if asked.quick else subject.PAIRS)
    if pairs < FEWEST and not asked.quick:
        parser.error(f"fewer than {FEWEST} pairs say nothing")
    options = Options(pairs, asked.threads, asked.quick, tuple(asked.only))
    try:
        busy = refuse_when_busy(asked.anyway)
    except BusyError as error:
        print(f"bench: {error}; --anyway measures all the same", file=sys.stderr)
        return 1
    return report(asked.subject, subject.measure(options), options, busy, asked.out)


sys.exit(main())
