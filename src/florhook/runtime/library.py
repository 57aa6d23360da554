"""State that the program keeps on libraries: attributes of their modules and classes that its code sets."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from ..state.scan import Root
from .program import Program

ATTRIBUTE = "attribute"  # how the names of such roots begin; the path follows


def library_attributes(program: Program) -> Iterator[Root]:
    """Each with its value in a tuple, which is empty where nothing is there (yet, or any more)."""
    for path in sorted({path for info in program.modules for path in info.attributes}):
        holder = _holder(path, program.user_modules)
        if holder is not None:
            attributes = vars(holder)
            yield Root((ATTRIBUTE, *path), (attributes[path[-1]],) if path[-1] in attributes else ())


def set_library_attributes(values: Mapping[tuple[Any, ...], Any]) -> None:
    for name, value in values.items():
        if name[0] != ATTRIBUTE:
            continue
        path = name[1:]
        importlib.import_module(path[0])  # the recorded run had done so
        holder = _holder(path, set())
        if holder is None:
            raise LookupError(f"{'.'.join(path[:-1])} is not there")
        now = vars(holder)
        if value and not (path[-1] in now and now[path[-1]] is value[0]):
            setattr(holder, path[-1], value[0])
        elif not value and path[-1] in now:
            delattr(holder, path[-1])


def _holder(path: tuple[str, ...], users: set[str]) -> ModuleType | type | None:
    """The module or class that a path leads to; None where there is none, or it is one of the user's."""
    found: Any = sys.modules.get(path[0])
    for part in path[1:-1]:
        if not _has_attributes(found):
            return None
        found = vars(found).get(part)
    if not _has_attributes(found):
        return None
    home = vars(found).get("__name__" if issubclass(type(found), ModuleType) else "__module__")
    return None if type(home) is str and home in users else found


def _has_attributes(obj: object) -> bool:
    """Whether it is a module or a class, of which attributes are looked up without running any code."""
    return issubclass(type(obj), (ModuleType, type))
