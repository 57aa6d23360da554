"""Objects whose inside cannot be read: which of them may be left as they are, and which forbid a restore.

A live opaque object stays as it is in the replaying process. That is right only if it has no state, or its state is as
it was at the loop's entry. A *fingerprint* tells: as long as it is the same, so is the state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

UNKNOWN = object()  # the fingerprint of what may have changed without a sign

INERT = frozenset(
    {
        "_thread.lock",
        "_thread.RLock",
        "_csv.writer",
        "_abc._abc_data",
        "builtins.builtin_function_or_method",
        "builtins.method-wrapper",
        "builtins.module",
        "builtins.mappingproxy",
        "builtins.frame",
        "builtins.traceback",
        "builtins.getset_descriptor",
        "builtins.member_descriptor",
        "builtins.classmethod_descriptor",
        "builtins.PyCapsule",
        "ctypes.CDLL",
        "_ctypes.PyCFuncPtrType",
        "posix.DirEntry",
        "ssl.SSLContext",
        "_contextvars.Context",
        "florhook.state.kinds.base.Missing",  # the placeholder of one of these
    }
)
INERT_PACKAGES = ("torch", "torch._C", "numpy", "functools", "operator", "typing")


def _sqlite_connection(obj: Any) -> Any:
    return obj.total_changes, obj.in_transaction


FINGERPRINTS: dict[str, Callable[[Any], Any]] = {"sqlite3.Connection": _sqlite_connection}


def fingerprint(obj: Any) -> Any:
    """What stays equal while the object's state does; None for what has no state to speak of."""
    cls = type(obj)
    name = f"{cls.__module__}.{cls.__qualname__}"
    if (
        name in INERT
        or cls.__module__.partition(".")[0] in INERT_PACKAGES
        or cls.__module__ in INERT_PACKAGES
    ):
        return None
    if any(obj is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return None
    known = FINGERPRINTS.get(name)
    if known is None:
        return UNKNOWN
    try:
        return known(obj)
    except Exception:  # a closed connection, say: it is not what it was
        return UNKNOWN
