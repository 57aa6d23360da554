"""Values that are pickled in a way of our own: by type, what to make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SPECIAL: dict[type, Callable[[Any], Any]] = {}
