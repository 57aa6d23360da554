"""Keeps how each replay of a run went: what was asked, planned, done and verified. One small file of JSON each.

They lie beside the lines that replays printed. An object has

- `replay` (its id), `started` and `ended` (seconds since the epoch), `wall_s`, `workers`, `select`, `exit_code`;
- `probes`: of each statement that was added `module`, `path`, `line`, `text`, and `before`, the line of the recorded
  source that it stands before;
- `plan`, or null where none could be made: `seconds` in all, `around` of them outside of the main loops, and `loops`,
  the main ones, each with `site`, `path`, `line`, `known` iterations, `runs` ([start, stop] of those that are run),
  `restores` and `seconds`; `more` counts those that are left out;
- `figures`: what FLOR_STATS has of it; `differences`, `notes`, `clock`: texts; `reasons`: [text, how often];
- `forced`: the edits that were no probes, where `--force` replayed all the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .kept import folder_of, write_whole

Account = dict[str, Any]


def keep(home: Path, run: str, account: Account) -> None:
    """OSError where that cannot be."""
    path = folder_of(home, run) / f"{account['replay']}.json"
    write_whole(path, json.dumps(account).encode() + b"\n")


def accounts_of(home: Path, run: str) -> list[Account]:
    """Of all replays of a run, oldest first. What cannot be read is passed over."""
    found = [account for path in folder_of(home, run).glob("*.json") if (account := _read(path)) is not None]
    return sorted(found, key=lambda account: (account["ended"], account["replay"]))


def _read(path: Path) -> Account | None:
    try:
        account: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    match account:
        case {
            "replay": str(),
            "started": int() | float(),
            "ended": int() | float(),
            "wall_s": int() | float(),
            "workers": int(),
            "exit_code": int(),
            "probes": list(),
            "plan": dict() | None,
            "figures": dict(),
            "differences": list(),
            "reasons": list(),
        }:
            return dict(account)
    return None


def verdict(account: Account) -> str:
    """What its verification came to, in one word or three."""
    figures = account["figures"]
    verified, unverified = figures.get("verified", 0), figures.get("unverified", 0)
    if figures.get("diverged", 0):
        return "diverged"
    if verified:
        return "verified in part" if unverified else "verified"
    return "not verified" if unverified or not figures else "nothing to verify"
