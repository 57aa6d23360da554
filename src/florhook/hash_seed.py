"""Python's hash seed, by which sets iterate: a recorded run has a known one."""

# Imported in every process, some of which only start another one: nothing else is.

from __future__ import annotations

import os
import sys

HASH_SEED = "FLOR_HASH_SEED"  # "seed:what PYTHONHASHSEED was", between the first start and the second


def pin_hash_seed() -> str:
    """Start again with a known hash seed where Python drew one, since sets iterate by it; the seed.

    Python cannot be asked for the seed that it drew. The variable is as it was for the program and its children.
    """
    pinned = os.environ.pop(HASH_SEED, None)
    if pinned is not None:
        seed, _, before = pinned.partition(":")
        if before:
            os.environ["PYTHONHASHSEED"] = before
        else:
            os.environ.pop("PYTHONHASHSEED", None)
        return seed
    before = os.environ.get("PYTHONHASHSEED", "")
    if before not in ("", "random") or sys.flags.ignore_environment or not sys.flags.hash_randomization:
        return before if before.isdecimal() else ""
    if not _runs_first():
        return ""  # a debugger would forget its breakpoints, and what it has read of its commands
    seed = str(1 + int.from_bytes(os.urandom(8), "little") % (2**32 - 1))
    environment = {**os.environ, "PYTHONHASHSEED": seed, HASH_SEED: f"{seed}:{before}"}
    try:
        os.execve(sys.executable, sys.orig_argv, environment)
    except OSError:
        return ""


def pin_early() -> None:
    """Do it before anything else is imported, where the command line is plainly that of a recording."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    plain = first in ("-m", "-c") or (first[:1] not in ("", "-") and os.path.exists(first))
    if plain and HASH_SEED not in os.environ and os.environ.get("FLOR_MODE", "record") == "record":
        pin_hash_seed()


def _runs_first() -> bool:
    """Whether nothing but Python's own ways to start a program lies below us: no debugger, profiler or the like."""
    frame = sys._getframe(1)
    while True:
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] not in ("florhook", "__main__", "runpy", "sitecustomize"):
            return False
        if frame.f_back is None:
            return True
        frame = frame.f_back
