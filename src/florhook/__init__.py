"""Hindsight logging: record an unmodified training program, ask it for more prints afterwards."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .registration import register_kind

__all__ = ["register_kind"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """What the package offers is imported once it is asked for: programs may import it where nothing is recorded."""
    if name == "register_kind":
        from .registration import register_kind

        return register_kind
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
