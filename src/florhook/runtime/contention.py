"""How much of the writer's work the program feels: none while cores are idle, all of it when every core is busy."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..descriptors import moved_up

AT_LEAST_S = 0.02  # of measuring: idle time is counted in ticks of 10 ms
UPTIME = "/proc/uptime"  # its second number is the idle time of all cores together, in seconds


class Contention:
    """Asked now and then, each time for the time since it was asked before."""

    def __init__(self) -> None:
        self._cores = _cores()
        self._uptime = _opened()
        self._before = self._now()
        self._share = 1.0

    def share(self) -> float:
        """Which share of a second of the writer's the program lost, from 0 to 1; 1 where nothing is known."""
        now = self._now()
        wall, used, idle = (later - earlier for later, earlier in zip(now, self._before, strict=True))
        if wall >= AT_LEAST_S:
            self._before = now
            self._share = felt(self._cores - used / wall, idle / wall)
        return self._share

    def close(self) -> None:
        """Where the process outlives its recording."""
        with contextlib.suppress(OSError):  # the program has closed it
            os.close(self._uptime)

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), self._idle()

    def _idle(self) -> float:
        # A descriptor that stays open, since the program's audit hooks would see each opening.
        try:
            return float(os.pread(self._uptime, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):  # the program has closed it
            return 0.0


def felt(allowed: float, idle: float) -> float:
    """The share that is felt where the process may use so many more cores, and so many are idle."""
    return min(1.0, max(0.0, 1.0 - min(allowed, idle)))


def _opened() -> int:
    try:
        return moved_up(os.open(UPTIME, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return -1


def _cores() -> float:
    """Those that this process may use: by its affinity, and by the quota of its control group."""
    cores = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        return cores  # no quota ("max"), or none that can be read
