"""What all modes say of a run: its id, its program's name, and its figures."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from .launch import Target
from .ranks import of_rank
from .settings import Settings

CELLS = "cells"  # the folder of a store for the programs that stand for cells of notebooks
KEYS = (
    "overhead_s", "stall_s", "checkpoints", "bytes_captured", "bytes_written", "iterations_executed",
    "iterations_skipped", "blocks_skipped", "jumps", "verified", "diverged", "unverified", "workers",
)  # fmt: skip


def program_name(target: Target, settings: Settings) -> str:
    """What the runs of one program have in common: its path as seen from the store, or how it was named."""
    if target.kind != "script":
        return "-c" if target.kind == "code" else f"-m {target.value}"
    path, base = os.path.abspath(target.value), str(settings.base)
    inside = path.startswith(base.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, base) if inside else path


def new_id() -> str:
    return time.strftime("%Y%m%d-%H%M%S-") + os.urandom(3).hex()


def is_cell(program: str) -> bool:
    """Whether a run of that name is one of a cell."""
    return f"{CELLS}/" in program and program.endswith("].py")


def write_stats(path: Path | None, stats: dict[str, Any], rank: int = 0) -> None:
    if path is None:
        return
    path = of_rank(path, rank)
    try:
        path.write_text(json.dumps({**dict.fromkeys(KEYS, 0), **stats}, indent=1) + "\n")
    except OSError as error:
        sys.stderr.write(f"florhook: cannot write the figures to {path}: {error.strerror}\n")
