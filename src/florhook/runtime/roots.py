"""The named starts of a scan: state outside the graph, the user's modules, the frames, the loop's iterable.

Names are the same in every process that runs the program up to the same place:
("world", "torch") ("global", "__main__", "net") ("local", 0, "train", "loss") ("cell", "best") ("iterable",)
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from ..state.scan import Root
from .program import Program

Name = tuple[Any, ...]
NOT_STATE = {"__flor__", "__builtins__"}
CONTAINERS = (list, tuple, dict, set)


def roots(program: Program, frame: FrameType, cells: Callable[[], Any] | None, iterable: Any) -> list[Root]:
    """All roots of a loop in `frame`, in their order."""
    found = [*_world(), *_globals(program), *_locals(frame)]
    for cell, name in zip(getattr(cells, "__closure__", None) or (), _free_names(cells), strict=True):
        found.append(Root(("cell", name), cell))
    if isinstance(iterable, CONTAINERS):
        found.append(Root(("iterable",), iterable))
    return found


def set_world(values: dict[Name, Any]) -> None:
    """Put back the state outside the graph; random states of Python and NumPy are objects of the graph."""
    state = values.get(("world", "torch"))
    if state is not None:
        from ..state.kinds import torch_kinds

        torch_kinds.set_world(state)


def _world() -> Iterator[Root]:
    yield Root(("world", "random"), random._inst)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        yield Root(("world", "numpy"), numpy_random.mtrand._rand)
    if "torch" in sys.modules:
        from ..state.kinds import torch_kinds

        yield Root(("world", "torch"), torch_kinds.world())


def _globals(program: Program) -> Iterator[Root]:
    for info in program.modules:
        module = sys.modules.get(info.module)
        if isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                if not (name.startswith("__") and name.endswith("__")):
                    yield Root(("global", info.module, name), value)


def _locals(frame: FrameType) -> Iterator[Root]:
    depth = 0
    outer: FrameType | None = frame
    while outer is not None:
        code = outer.f_code
        if code.co_name != "<module>" and not _is_ours(outer):
            for name, value in list(outer.f_locals.items()):
                yield Root(("local", depth, code.co_name, name), value)
            depth += 1
        outer = outer.f_back


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in ("florhook", "runpy", "importlib")


def _free_names(cells: Callable[[], Any] | None) -> tuple[str, ...]:
    return () if cells is None else cells.__code__.co_freevars
