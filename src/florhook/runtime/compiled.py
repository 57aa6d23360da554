"""What torch does with the program right now: compile it, or follow what is done with its tensors.

To the eyes of torch.compile a loop has no probes. It takes torch's own `is_compiling` for a constant, as torch.export
does, so that what stands behind it is folded away: no graph break, nothing to watch, nothing to compile again. A loop
in the form of a replay needs to know whether it has run. Frames cannot be asked for there, so that is kept by site.

Things that don't work: the call in the rewritten code itself, as in `x if is_compiling() else loop(7, x)`, which would
hold every iterable twice. States of all sites in one list: it would be watched as a whole.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

is_compiling: Callable[[], bool] = bool  # without torch: False, as fast as Python can say it
compile_by: Callable[[Any], Any] = bool  # puts in, for this thread, what is asked at each call of a function
states: dict[
    int, list[Any]
] = {}  # by site, in a list of one: what `open` was given, then BROKEN or COMPLETED
BROKEN, COMPLETED = 0, 1


def torch_is_there() -> None:
    """To be called once torch has been imported."""
    global is_compiling, compile_by
    from . import probes  # which imports this

    probes.torch_is_there()
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "compiler"):
        older = getattr(torch._utils, "is_compiling", bool)  # of 2.2
        is_compiling = getattr(torch.compiler, "is_compiling", older)
        compile_by = torch._C._dynamo.eval_frame.set_eval_frame


def aside(method: Callable[P, T]) -> Callable[P, T]:
    """For what we do between two steps of the program: torch.compile would compile it too, where it is at work."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        before = compile_by(None)
        try:
            return method(*args, **kwargs)
        finally:
            compile_by(before)

    return call


def follower() -> str:
    """Who follows all that is done with tensors, if anybody does: to read state would be taken for the program's doing.

    torch.jit.trace crashes of it, a CUDA graph cannot be captured, a mode or profiler counts our operations.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "compiler"):  # it is being imported
        return ""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace"
    if torch._C._len_torch_dispatch_stack() or _has_function_mode(torch):
        return "a mode of torch"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func"
    if torch._C._autograd._profiler_enabled():
        return "torch's profiler"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph"
    return ""


def _has_function_mode(torch: Any) -> bool:
    """Whether a mode of the program's takes calls of torch's functions. A default device is one too, of torch's own."""
    modes = [torch._C._get_function_stack_at(at) for at in range(torch._C._len_torch_function_stack())]
    return any(type(mode).__module__ != "torch.utils._device" for mode in modes)


def add_sites(numbers: Iterable[int]) -> None:
    """Room for the states of loops in the form of a replay."""
    states.update((number, [BROKEN]) for number in numbers)


# The calls of a loop in the form of a replay ------------------------------------------------------------------


def open(site: int, *arguments: Any) -> None:  # noqa: A001
    states[site][0] = arguments


def segment(site: int) -> bool:
    return type(states[site][0]) is tuple


def items(site: int) -> Any:
    iterable = states[site][0][0]
    states[site][0] = BROKEN
    return iterable


def step(site: int) -> bool:
    states[site][0] = BROKEN
    return True


def done(site: int) -> None:
    states[site][0] = COMPLETED


def completed(site: int) -> bool:
    """Known limit: wrong after a break, if the same loop ran to its end deeper in a recursion."""
    return states[site][0] == COMPLETED  # type: ignore[no-any-return]
