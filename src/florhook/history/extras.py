"""Packages that only some commands need."""

from __future__ import annotations

import importlib
from types import ModuleType

from ..errors import UsageError


def needed(module: str, extra: str) -> ModuleType:
    """The module; UsageError, which names the extra of ours that brings it, where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = module.partition(".")[0]
        raise UsageError(f"this needs {missing}: pip install 'florhook[{extra}]' ({error})") from None
