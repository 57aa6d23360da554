"""The command line: one subject a module, each with `measure(pairs)` and `LIMITS`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import hook
from .figures import BusyError, refuse_when_busy, report

SUBJECTS = {"hook": hook}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("subject", choices=sorted(SUBJECTS))
    parser.add_argument("--pairs", type=int, default=9, help="runs of each kind, alternating (default 9)")
    parser.add_argument(
        "--anyway", action="store_true", help="measure on a busy machine, and mark the figures"
    )
    options = parser.parse_args()
    if options.pairs < 5:
        parser.error("fewer than 5 pairs say nothing")
    try:
        busy = refuse_when_busy(options.anyway)
    except BusyError as error:
        print(f"bench: {error}; --anyway measures all the same", file=sys.stderr)
        return 1
    figures = SUBJECTS[options.subject].measure(options.pairs)
    folder = Path(__file__).resolve().parents[2] / "docs" / "bench"
    return report(options.subject, figures, folder, busy, options.pairs)


sys.exit(main())
