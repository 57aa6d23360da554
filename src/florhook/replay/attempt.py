"""How one attempt at a replay ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Attempt:
    """The exit status of a worker, and what it reported."""

    status: int
    report: dict[str, Any] = field(default_factory=dict)
