"""Gives functions that are there already the code that they would have had under florhook, and takes it back.

What a recorded cell calls was defined before anything was recorded: in earlier cells, and in modules that were
imported. A function keeps its identity when its code is another.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from types import CodeType, FunctionType
from typing import Any

from ..runtime.program import Program


def twins(program: Program, name: str, plain: CodeType, instrumented: CodeType) -> dict[CodeType, CodeType]:
    """By code as it was written: what became of it."""
    made = dict(program.places(name, instrumented))
    return {code: made[place] for place, code in program.places(name, plain) if place in made}


def functions_of(namespaces: Iterable[dict[str, Any]]) -> list[FunctionType]:
    """All functions whose globals are one of these."""
    wanted = {id(space) for space in namespaces}
    return [obj for obj in gc.get_objects() if type(obj) is FunctionType and id(obj.__globals__) in wanted]


class Swap:
    """The functions of some modules with other code, until `undo`."""

    def __init__(self) -> None:
        self._codes: dict[CodeType, CodeType] = {}
        self._spaces: list[dict[str, Any]] = []
        self._before: list[tuple[weakref.ref[FunctionType], CodeType]] = []

    def add(self, space: dict[str, Any], codes: Mapping[CodeType, CodeType]) -> None:
        """Let the functions of a module have the code on the right for that on the left."""
        self._spaces.append(space)
        self._codes.update(codes)
        for function in functions_of([space]):
            before = function.__code__
            after = codes.get(before)
            if after is not None and after.co_freevars == before.co_freevars:
                self._before.append((weakref.ref(function), before))
                function.__code__ = named(after, before.co_filename)

    def undo(self) -> None:
        """As it was; functions that were defined since get the code that they would have had."""
        plain = {after: before for before, after in self._codes.items()}
        for reference, code in self._before:
            function = reference()
            if function is not None and function.__code__ in plain:
                function.__code__ = code
        for function in functions_of(self._spaces):
            before = plain.get(function.__code__)
            if before is not None and before.co_freevars == function.__code__.co_freevars:
                function.__code__ = named(before, function.__code__.co_filename)


def named(code: CodeType, path: str) -> CodeType:
    """The code with another file name, and what is inside it too."""
    constants = tuple(named(each, path) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=path, co_consts=constants)
