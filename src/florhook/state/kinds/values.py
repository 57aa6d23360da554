"""Values that pickle cannot take apart: matches of regular expressions, views of dicts, formats of structures.

And what finds modules in a folder.
"""

from __future__ import annotations

import gc
import re
import struct
from importlib.machinery import FileFinder
from typing import Any

from .base import Registry
from .special import SPECIAL

VIEWS: dict[type, str] = {type(getattr({}, name)()): name for name in ("keys", "values", "items")}


def _reduce_view(view: Any) -> Any:
    shown: Any = next(iter(gc.get_referents(view)), None)
    if (
        not issubclass(type(shown), dict) or "__doc__" in shown
    ):  # what a class or module defines is no dict of the program's
        raise TypeError(f"cannot tell of what {type(view).__name__} is a view")
    return _view, (VIEWS[type(view)], shown)


def _view(name: str, shown: dict[Any, Any]) -> Any:
    return getattr(dict, name)(shown)


def _reduce_match(match: re.Match[Any]) -> Any:
    """By what is asked again. A scanner that the program drives itself may give one that is not found again."""
    what = match.re, match.string, match.pos, match.endpos, match.regs, match.lastindex
    if type(match.string) not in (str, bytes):
        raise TypeError(f"cannot hold a match in a {type(match.string).__name__}")
    _match(*what)
    return _match, what


def _match(pattern: Any, string: Any, pos: int, endpos: int, regs: Any, last: int | None) -> Any:
    def is_it(found: Any) -> bool:
        return found is not None and found.regs == regs and found.lastindex == last

    for ask in (pattern.search, pattern.match, pattern.fullmatch):
        found = ask(string, pos, endpos)
        if is_it(found):
            return found
    for found in pattern.finditer(string, pos, endpos):
        if is_it(found):
            return found
        if found.start() > regs[0][0]:
            break
    raise TypeError("cannot find a match again")


def _reduce_struct(form: struct.Struct) -> Any:
    return struct.Struct, (form.format,)


def _reduce_finder(finder: FileFinder) -> Any:
    """The import system has one for each folder. In place it would lead that folder's imports to the run's folder."""
    from pkgutil import get_importer  # who holds a finder has asked that module for it

    return get_importer, (finder.path,)


def register(registry: Registry) -> None:
    registry.plain(re.Match, struct.Struct, FileFinder, *VIEWS)
    SPECIAL.update({re.Match: _reduce_match, struct.Struct: _reduce_struct, FileFinder: _reduce_finder})
    SPECIAL.update(dict.fromkeys(VIEWS, _reduce_view))
