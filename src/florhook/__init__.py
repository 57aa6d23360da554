"""Hindsight logging: record an unmodified training program, ask it for more prints afterwards."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from .history.frame import dataframe
    from .registration import register_kind

    T = TypeVar("T")

__all__ = ["dataframe", "log", "register_kind"]
__version__ = "0.1.0"


def log(name: str, value: "T") -> "T":
    """Print `name=value`, recorded or not, and give the value back. `florhook logs` finds it under the name."""
    print(f"{name}={value}")
    return value


def __getattr__(name: str) -> object:
    """What the package offers is imported once it is asked for: programs may import it where nothing is recorded."""
    if name == "register_kind":
        from .registration import register_kind

        return register_kind
    if name == "dataframe":
        from .history.frame import dataframe

        return dataframe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(shell: object) -> None:
    """`%load_ext florhook` in IPython and Jupyter."""
    from .notebook.extension import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """`%unload_ext florhook`."""
    from .notebook.extension import unload

    unload(shell)
