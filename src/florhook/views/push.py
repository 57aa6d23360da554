"""`florhook push`: uploads what recordings left to upload."""

from __future__ import annotations

from ..errors import UsageError
from ..settings import Settings
from ..store import remote


def push(settings: Settings, words: list[str]) -> None:
    """Upload to the URL, and say what came of it."""
    if words:
        raise UsageError(f"push takes no arguments, not {words[0]!r}")
    if settings.remote is None:
        raise UsageError("push is for a store at a URL: FLOR_HOME=s3://bucket/prefix")
    for line in remote.push(settings.home):
        print(line)
