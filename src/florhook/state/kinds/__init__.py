"""Kinds of objects: how each type's state is read, and put back into the live object.

One file for each library. A kind that belongs to numpy or torch is loaded once the program itself has imported
that library.
"""

from __future__ import annotations

import importlib
import sys

from .base import Kind, Registry
from .builtin import register as _register_builtin
from .classes import register as _register_classes
from .exceptions import register as _register_exceptions
from .foreign import take_over
from .generators import register as _register_generators
from .lru_cache import register as _register_lru_cache
from .settings import register as _register_settings
from .threads import register as _register_threads
from .values import register as _register_values

__all__ = ["REGISTRY", "Kind", "Registry", "load_imported"]

REGISTRY = Registry()
for _register in (
    _register_builtin, _register_classes, _register_exceptions, _register_threads, _register_settings,
    _register_generators,
    _register_lru_cache, _register_values,
):  # fmt: skip
    _register(REGISTRY)
_PENDING = {
    "_queue": "queue_kinds",
    "decimal": "decimal_kinds",
    "logging": "logging_kinds",
    "numpy": "numpy_kinds",
    "pandas": "pandas_kinds",
    "pyarrow": "arrow_kinds",
    "rich.progress": "rich_kinds",
    "scipy.spatial": "scipy_kinds",
    "torch": "torch_kinds",
    "torch.utils.data": "loader_kinds",
    "tqdm.std": "tqdm_kinds",
    "wandb.sdk.wandb_run": "wandb_kinds",
}


def load_imported() -> None:
    """Load the kinds of the libraries that the program has imported, and those registered, since the last call."""
    for library in [name for name in _PENDING if name in sys.modules]:
        module = importlib.import_module(f"{__name__}.{_PENDING[library]}")
        module.register(REGISTRY)
        del _PENDING[library]
    take_over(REGISTRY)
