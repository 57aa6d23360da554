"""Modules of the user's that have the name of one that florhook uses: `random.py` beside the program.

`python -m` puts the working folder before the standard library, and florhook uses more of that than a program that
imports nothing. So it imports with the folder left out. Where the program's own folder has such a name, one of the two
would get the other's module: the program is not recorded then.
"""

from __future__ import annotations

import os
import sys

# What is imported when it is needed, by which time the program's folder comes first; and what these import.
LATER = {
    *("ast", "ctypes", "decimal", "difflib", "dis", "hashlib", "inspect", "linecache"),
    *("logging", "opcode", "pkgutil", "psutil", "token", "tokenize", "tomllib"),
}
PACKAGES = {"dill", "xxhash", "zstandard"}
SUFFIXES = (".py", ".so", ".pyc")

_before: frozenset[str] = frozenset(sys.modules)
_hidden: list[str] = []


def hide_folder() -> None:
    """Leave the folder that `python -m florhook` has put first out of the search for modules."""
    global _before
    _before = frozenset(sys.modules)  # the same are there plainly, or were looked for in that folder already
    if sys.path and not _hidden and sys.path[0] in ("", working_folder()):
        _hidden.append(sys.path.pop(0))


def show_folder() -> None:
    """Undo `hide_folder`: the program is about to have its own in this place."""
    if _hidden:
        sys.path.insert(0, _hidden.pop())


def clashes(folder: str) -> list[str]:
    """Files and packages in the program's folder that have the name of a module that florhook needs."""
    found = _modules_in(folder)
    names = found.keys() & (sys.stdlib_module_names | PACKAGES) - _before
    if not names:
        return []
    import hmac  # noqa: F401  what the store imports when it needs it

    import zstandard  # noqa: F401

    from . import record  # noqa: F401  to see what it imports
    from .replay import resume, worker  # noqa: F401

    return sorted(found[name] for name in names if name in sys.modules or name in LATER | PACKAGES)


def forget(files: list[str]) -> None:
    """Let the program's imports find its own modules. What has imported the others already keeps them."""
    names = {file.partition(".")[0] for file in files}
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            del sys.modules[name]


def _modules_in(folder: str) -> dict[str, str]:
    """By the name of the module, the file or package."""
    try:
        entries = os.listdir(folder or ".")
    except OSError:
        return {}
    return {
        entry.partition(".")[0]: entry
        for entry in entries
        if entry.endswith(SUFFIXES) or os.path.exists(os.path.join(folder, entry, "__init__.py"))
    }


def working_folder() -> str:
    """Nothing where it was removed, as in CPython."""
    try:
        return os.getcwd()
    except OSError:
        return ""
