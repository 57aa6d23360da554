"""The very beginning of a recording: its row and its writer, which starts while all else is imported."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from . import __version__
from .hash_seed import pin_hash_seed
from .launch import Target, run_plainly
from .ranks import Rank
from .runs import new_id, program_name
from .runtime.clock import read_clocks
from .runtime.entropy import version_of_python
from .runtime.probes import CHILDREN, LOADERS
from .settings import Settings
from .store.memory import available_bytes
from .store.recording import Recording
from .store.rows import RunRow
from .uncollected import no_collections

STAGING_SHARE = 0.25  # of the memory that is available
MOST_STAGING = 8 << 30  # bytes

end_earlier: Callable[[], None] | None = None  # ends the recording that this process has made already


def record(target: Target, settings: Settings) -> None:
    """Record one run. Whatever fails here, the program runs."""
    if end_earlier is not None:
        # pdb has started the program once more: the modules that it has imported belong to the first run
        end_earlier()
        run_plainly(target)
        return
    seed = pin_hash_seed()
    if settings.problem:  # not before: the process may just have been started anew
        with contextlib.suppress(Exception):  # stderr is closed: there is nobody to tell
            sys.stderr.write(f"florhook: {settings.problem}\n")
    name = program_name(target, settings)
    rank = Rank.of(os.environ, " ".join([name, *target.argv]))
    row = RunRow(
        rank.run_id if rank else new_id(),
        name,
        tuple(target.argv),
        os.getcwd(),
        time.time(),
        meta(seed, settings, rank),
    )
    recording = Recording.start(settings.home, row, staging_limit, settings.max_bytes)
    with no_collections():
        from .record import record_program  # after that, since it takes longer than the writer's start

    record_program(target, settings, row, recording, rank)


def meta(seed: str, settings: Settings, rank: Rank | None = None) -> dict[str, Any]:
    ranks = {} if rank is None else {"rank": rank.number, "world": rank.world, "here": rank.here}
    return {
        **ranks,
        "florhook": __version__,
        "python": version_of_python(),
        "executable": sys.executable,
        "hash_seed": seed,
        "epsilon": str(settings.epsilon),
        "include": settings.include,
        "exclude": settings.exclude,
        "pid": os.getpid(),
        "clocks": read_clocks(),
        "marks": [CHILDREN, LOADERS],  # those that come before the modules'
    }


def staging_limit() -> int:
    """Bytes of staging memory: a share of what is free, however little that is."""
    return min(MOST_STAGING, int(available_bytes() * STAGING_SHARE))
