"""What a replay is spared: torch's compiler, which optimizers import, takes two seconds to be there.

torch has functions that its compiler is to leave alone. The first call of one imports the compiler, to ask it for that.
Where nobody has imported it, nothing is compiled, and there is nobody to ask.

Things that don't work: a module in the compiler's place, since others look into `sys.modules` for it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

ASKS, COMPILER = "torch._compile", "torch._dynamo"


def spare_the_compiler() -> None:
    """To be called once `torch._compile` has been imported, before others take from it what they decorate with."""
    module: Any = sys.modules[ASKS]
    original = module._disable_dynamo

    @functools.wraps(original)
    def disable(function: Callable[..., Any] | None = None, *how: Any, **named: Any) -> Any:
        if function is None:
            return lambda later: disable(later, *how, **named)
        asks = original(function, *how, **named)

        def call(*args: Any, **kwargs: Any) -> Any:
            return (asks if COMPILER in sys.modules else function)(*args, **kwargs)

        # To the compiler, should it come, and in tracebacks this is torch's own.
        call.__code__ = call.__code__.replace(co_filename=original.__code__.co_filename)
        return functools.update_wrapper(call, asks)

    module._disable_dynamo = disable
