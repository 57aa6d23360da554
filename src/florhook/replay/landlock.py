"""Writes that the overlay does not catch, those of C code and of children, are refused by the kernel (Linux 5.13).

A process that has restricted itself by Landlock may read and run everything, and write below a few folders only; so may
all that it starts. What it had open before stays open. No privileges are needed. Source: the kernel's
Documentation/userspace-api/landlock.rst.

Things that don't work: leaving out one folder below one that is allowed (rights add up on the way down), hence nothing
is restricted where the user's own files lie below the folder of temporary files; lifting a restriction again.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from .overlay import compiler_caches

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, the same on all machines
VERSION = 1  # a flag of the first
PATH_BENEATH = 1
NO_NEW_PRIVILEGES = 38  # of prctl(2), which Landlock asks for

WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
# remove a folder or file; make a device, folder, file, socket, fifo, block device, symbolic link
CHANGE_FOLDER = sum(1 << bit for bit in range(4, 13))
REFER = 1 << 13  # move or link from one folder to another
SINCE = {REFER: 2, TRUNCATE: 3}  # the version of Landlock that a right came with


def only_write_below(home: Path, users: Sequence[str]) -> bool:
    """Let this process change files below the store (`home`), devices, caches and temporary files only.

    `users` are folders with the user's files. False where it cannot be done.
    """
    temporary = os.path.join(os.path.realpath(tempfile.gettempdir()), "")
    if any(os.path.join(os.path.realpath(user), "").startswith(temporary) for user in users):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(CREATE_RULESET, None, 0, VERSION)
    if version < 1:
        return False
    rights = WRITE_FILE | CHANGE_FOLDER
    rights |= sum(right for right, since in SINCE.items() if version >= since)
    attributes = struct.pack("=Q", rights)
    ruleset = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        places = (str(home), temporary, caches, *compiler_caches(), "/dev", "/proc")
        for path in (*places, "/proc/self/fd/1", "/proc/self/fd/2"):
            _allow(libc, ruleset, path, rights)
        if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return False
        return not libc.syscall(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    """Allow what is below a folder, or one file; nothing where there is none."""
    with suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISDIR(os.fstat(place).st_mode):
                rights &= WRITE_FILE | TRUNCATE
            rule = struct.pack("=Qi", rights, place)
            libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0)
        finally:
            os.close(place)
