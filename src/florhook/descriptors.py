"""Keeps our files away from the low descriptors: a program must get the numbers that it gets without us."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

HIGH = 512
STANDARD = 3  # below it are stdin, stdout and stderr


@contextlib.contextmanager
def low_ones_reserved(count: int = 64) -> Iterator[None]:
    """What is opened inside gets a number above the lowest `count` that are free; fewer where few are allowed."""
    count = min(count, os.sysconf("SC_OPEN_MAX") // 4)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    reserved = [nowhere]
    try:
        while len(reserved) < count:
            reserved.append(os.dup(nowhere))
        yield
    finally:
        for descriptor in reserved:
            os.close(descriptor)


def high_copy(descriptor: int) -> int:
    """The same file under a high number, closed in programs that are started."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH)
    except OSError:  # so many descriptors are not allowed here
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, STANDARD)


def moved_up(descriptor: int) -> int:
    """The same, in the place of the original."""
    moved = high_copy(descriptor)
    os.close(descriptor)
    return moved


def fill_standard_ones() -> None:
    """Lets those of stdin, stdout and stderr that are closed lead nowhere.

    Else the next file that is opened gets the number, and a process that is started takes it for its stream.
    """
    for number in range(STANDARD):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
