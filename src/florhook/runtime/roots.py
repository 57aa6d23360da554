"""The named starts of a scan: state outside the graph, the user's modules, the frames, the loop's iterable.

Names are the same in every process that runs the program up to the same place:
("world", "torch") ("global", "__main__", "net") ("local", 0, "train", "loss") ("cell", "best") ("iterable",)
("attribute", "torch", "backends", "flag")
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, ModuleType
from typing import Any

from .. import frames
from ..frames import variables_of
from ..state.kinds import load_imported
from ..state.kinds.settings import WORLDS
from ..state.scan import Root
from .entropy import names_state
from .library import library_attributes, set_library_attributes
from .program import Program

Name = tuple[Any, ...]
OF_DYNAMO = (
    "__builtins_dict__",
    "__compiled_fn",
    "__resume_at",
    "__import_",
)  # what torch.compile puts there
CONTAINERS = (list, tuple, dict, set)

# How variables begin that are ours, or hold the address of the process of wandb's.
OF_A_PROCESS = ("FLOR", "WANDB_SERVICE")
CACHE_OF_COMPILER = "TORCHINDUCTOR_CACHE_DIR"  # its import sets it, which a replay may do without


def roots(program: Program, frame: FrameType, cells: Callable[[], Any] | None, iterable: Any) -> list[Root]:
    """All roots of a loop in `frame`, in their order."""
    load_imported()  # which imports what belongs to a library: its state is a root in any process then
    found = [*outside(program), *_locals(frame)]
    for cell, name in zip(getattr(cells, "__closure__", None) or (), _free_names(cells), strict=True):
        found.append(Root(("cell", name), cell))
    if issubclass(
        type(iterable), CONTAINERS
    ):  # `isinstance` would ask an object of the user for its `__class__`
        found.append(Root(("iterable",), iterable))
    return found


def outside(program: Program) -> list[Root]:
    """Those of no frame."""
    return [*world(), *library_attributes(program), *_globals(program)]


class _Process:
    """What the program changed of its process: environment variables, working folder, garbage collection, recursion."""

    def __init__(self) -> None:
        self.variables = dict(os.environ)
        self.folder = os.getcwd()
        self.recursion = frames.recursion_limit()

    def read(self) -> tuple[Any, ...]:
        now = dict(os.environ)
        names = sorted(name for name in {*now, *self.variables} if not name.startswith(OF_A_PROCESS))
        changed = tuple((n, now.get(n)) for n in names if now.get(n) != self.variables.get(n))
        changed = tuple(each for each in changed if not _is_the_compilers(*each))
        return changed, os.path.relpath(os.getcwd(), self.folder), gc.isenabled(), self._limit()

    def _limit(self) -> int | None:
        """The recursion limit, once the program has set one."""
        limit = frames.recursion_limit()
        return None if limit == self.recursion else limit

    def write(self, state: tuple[Any, ...]) -> None:
        changed, folder, collecting, limit = state
        for name, _ in self.read()[0]:
            _set_variable(name, self.variables.get(name))
        for name, value in changed:
            _set_variable(name, value)
        os.chdir(os.path.join(self.folder, folder))
        (gc.enable if collecting else gc.disable)()
        frames.set_recursion_limit(self.recursion if limit is None else limit)


def _is_the_compilers(name: str, value: str | None) -> bool:
    """Whether torch's compiler has set a variable to its default, as it does when it is imported."""
    place: Any = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    default = getattr(place, "default_cache_dir", None) if name == CACHE_OF_COMPILER else None
    return default is not None and value == os.path.abspath(default())


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


_process = _Process()


def program_starts() -> None:
    """From here on, what is changed of the process is changed by the program."""
    global _process
    _process = _Process()


def set_world(values: dict[Name, Any]) -> None:
    """Put back what the program changed of its process and set on libraries; other state is objects of the graph."""
    process = values.get(("world", "process"))
    if process is not None:
        _process.write(process)
    set_library_attributes(values)


def world() -> Iterator[Root]:
    """The state outside the graph."""
    load_imported()
    yield Root(("world", "random"), random._inst)
    yield Root(("world", "process"), _process.read())
    names = names_state()
    if names is not None:
        yield Root(("world", "tempfile"), names)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        yield Root(("world", "numpy"), numpy_random.mtrand._rand)
    for name, world in WORLDS.items():
        yield Root(("world", f"{name} settings"), world)


def _globals(program: Program) -> Iterator[Root]:
    for info in program.modules:
        module = sys.modules.get(info.module)
        if isinstance(module, ModuleType):
            for name, value in list(vars(module).items()):
                hidden = info.module == "__main__" and program.hides(name)
                if not (hidden or name.startswith(OF_DYNAMO) or (name[:2] == name[-2:] == "__")):
                    yield Root(("global", info.module, name), value)


def _locals(frame: FrameType) -> Iterator[Root]:
    depth = 0
    outer: FrameType | None = frame
    while outer is not None and not (frames.host and outer.f_globals.get("__name__") == frames.host):
        code = outer.f_code
        if code.co_name != "<module>" and not _is_ours(outer):
            for name, value in list(variables_of(outer).items()):
                yield Root(("local", depth, code.co_name, name), value)
            depth += 1
        outer = outer.f_back


def _is_ours(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in ("florhook", "runpy", "importlib")


def _free_names(cells: Callable[[], Any] | None) -> tuple[str, ...]:
    return () if cells is None else cells.__code__.co_freevars


def finalized(sources: Iterable[tuple[str, bytes]]) -> list[Any]:
    """All objects that have a `__del__`, if the program writes any; `sources` are its modules' paths and sources."""
    if not any(b"__del__" in source for _, source in sources):
        return []
    return [obj for obj in gc.get_objects() if hasattr(type(obj), "__del__")]
