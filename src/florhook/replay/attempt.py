"""How one attempt at a replay ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..dataclass import dataclass, field


@dataclass
class Attempt:
    """The exit status of a worker, what it reported, and where it kept the lines that hindsight statements printed."""

    status: int
    report: dict[str, Any] = field(default_factory=dict)
    kept: list[Path] = field(default_factory=list)
