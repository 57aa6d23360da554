"""Where the user's key is, and the key. A program's process reads it, and imports nothing for that."""

from __future__ import annotations

import os
from pathlib import Path

BYTES = 32


def key_path() -> Path:
    """Where the key of this user is: FLOR_KEY names the file where machines are to share one."""
    named = os.environ.get("FLOR_KEY")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path("~/.config").expanduser()) / "florhook" / "key"


def read_key() -> bytes | None:
    """The user's key; None when there is none."""
    try:
        key = key_path().read_bytes()
    except (OSError, RuntimeError):
        return None
    return key if len(key) == BYTES else None
