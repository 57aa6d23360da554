"""What is changed in libraries that the program imports, so that they see the program as it was written.

Each change is made right after the import of the module that it is named by, and lasts to the end of the process.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

from . import compiled, probes
from .program import Program

BY_VALUE = ("cloudpickle", "joblib.externals.cloudpickle", "ray.cloudpickle", "pyspark.cloudpickle", "dill")
LAUNCH = "florhook.launch"  # its frames lie below the program's


def patches(program: Program) -> dict[str, Callable[[], None]]:
    """By module: what is to be done once it has been imported."""
    return {
        "bdb": _keep_out,
        "numba.core.bytecode": functools.partial(_compile_as_written, program),
        "torch": compiled.torch_is_there,
        "torch.utils.data.dataloader": functools.partial(_note_workers, program),
        **dict.fromkeys(BY_VALUE, probes.expect_foreign_code),
    }


# Debuggers: whoever steps into a loop is not to come into the recorder ----------------------------------------


def _keep_out() -> None:
    """Let no debugger of the bdb family (pdb, IPython's) stop in what we run, nor show what lies below the program."""
    bdb: Any = sys.modules["bdb"]
    stop_here, get_stack = bdb.Bdb.stop_here, bdb.Bdb.get_stack

    @functools.wraps(stop_here)
    def stops_here(self: Any, frame: FrameType) -> Any:
        return not _runs_for_us(frame) and stop_here(self, frame)

    @functools.wraps(get_stack)
    def users_stack(self: Any, frame: Any, traceback: Any) -> Any:
        stack, index = get_stack(self, frame, traceback)
        first = 1 + max((at for at, (each, _) in enumerate(stack) if _name(each) == LAUNCH), default=-1)
        return (stack[first:], index - first) if first <= index else (stack, index)

    bdb.Bdb.stop_here, bdb.Bdb.get_stack = stops_here, users_stack


def _runs_for_us(frame: FrameType) -> bool:
    """Whether a frame is ours or was called by one of ours, but for the one that runs the program."""
    outer: FrameType | None = frame
    while outer is not None:
        name = _name(outer)
        if name == LAUNCH:
            return outer is frame
        if name.startswith("florhook."):
            return True
        outer = outer.f_back
    return False


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


# torch's DataLoader: workers that stay start once, and are given more work without anybody seeing them start ---


def _note_workers(program: Program) -> None:
    """A pass over a DataLoader with persistent workers is as one that starts them: a probe may lie in what they run."""
    loaders: Any = sys.modules["torch.utils.data.dataloader"]
    iterator = getattr(loaders, "_MultiProcessingDataLoaderIter", None)
    reset = getattr(iterator, "_reset", None)
    if iterator is None or reset is None:
        return

    @functools.wraps(reset)
    def begins_again(self: Any, *arguments: Any, **options: Any) -> Any:
        probes.marks[program.child_mark + 1][0] = True
        return reset(self, *arguments, **options)

    iterator._reset = begins_again


# numba: it reads bytecode, and knows no module with calls like ours -------------------------------------------


def _compile_as_written(program: Program) -> None:
    bytecode: Any = sys.modules["numba.core.bytecode"]
    identity = bytecode.FunctionIdentity
    original = identity.from_function.__func__

    @functools.wraps(original)
    def from_function(cls: Any, pyfunc: Any) -> Any:
        return original(cls, as_written(program, bytecode.get_function_object(pyfunc)))

    identity.from_function = classmethod(from_function)


def as_written(program: Program, function: Any) -> Any:
    """A function of the program without our probes."""
    code = getattr(function, "__code__", None)
    if type(function) is not FunctionType or not isinstance(code, CodeType):
        return function
    plain = program.plain_code(code)
    if plain is None or plain.co_freevars != code.co_freevars:
        return function
    name, defaults = function.__name__, function.__defaults__
    twin = FunctionType(plain, function.__globals__, name, defaults, function.__closure__)
    functools.update_wrapper(twin, function)
    twin.__kwdefaults__ = function.__kwdefaults__
    del twin.__wrapped__  # type: ignore[attr-defined]
    return twin
