"""How many workers this machine can take, and which GPU each of them gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .record import Record

WORKER_BYTES = 500 << 20  # of a process with its libraries, beside the program's state
STATE_COPIES = 2  # the state itself, and what is read to restore it
GPUS = Path("/proc/driver/nvidia/gpus")


def workers_for(record: Record, environ: Mapping[str, str]) -> int:
    """As many as there are GPUs or, without any, cores; fewer if there is no memory for so many."""
    import psutil

    state = max(
        (
            sum(row.lengths)
            for block in (*record.loops.values(), *record.statements.values())
            for row in block.checkpoints.values()
        ),
        default=0,
    )
    room = int(psutil.virtual_memory().available) // (WORKER_BYTES + STATE_COPIES * state)
    return max(1, min(len(gpus(environ)) or len(os.sched_getaffinity(0)), room))


def gpus(environ: Mapping[str, str]) -> list[str]:
    """The names under which CUDA_VISIBLE_DEVICES has the GPUs that the program may use."""
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        return [str(number) for number in range(len(list(GPUS.iterdir())))]
    except OSError:
        return []


def device_of(number: int, environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker's environment says of its GPU; nothing where there are no two to choose from."""
    found = gpus(environ)
    return {"CUDA_VISIBLE_DEVICES": found[number % len(found)]} if len(found) > 1 else {}
