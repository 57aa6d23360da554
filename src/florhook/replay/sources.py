"""The edits since the record: which are probes and where, which are refused."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from ..errors import RefusedError
from ..hook.diff import Refusal, SourceDiff, compare
from ..hook.rewrite import rewrite
from ..store.rows import RunRow, SourceRow


@dataclass
class Edits:
    """All differences between a run's sources and those of now."""

    places: set[str] = field(default_factory=set)  # keys of the loops and functions that probes stand in
    lines: list[tuple[str, int]] = field(default_factory=list)  # of the probes: path, line
    refusals: list[Refusal] = field(default_factory=list)
    printing_changed: bool = False


def find_edits(sources: list[SourceRow], run: RunRow, cwd: str) -> Edits:
    """Compare every recorded module with its file of now. SyntaxErrors are the user's to see."""
    edits = Edits()
    for source in sources:
        path = path_now(source.path, run, cwd)
        new = _read(path, source.module)
        if new == source.source:
            continue
        diff = compare(source.source, new, path)
        edits.refusals += diff.refusals
        edits.printing_changed |= diff.printing_changed
        for place, line in probes_of(diff, source.module, path):
            edits.places.add(place)
            edits.lines.append((path, line))
    return edits


def probes_of(diff: SourceDiff, module: str, path: str) -> tuple[tuple[str, int], ...]:
    """The key of the innermost loop or function around each added statement, and its line."""
    return rewrite(diff.tree, module, path, added=diff.added).probes if diff.added else ()


def path_now(path: str, run: RunRow, cwd: str) -> str:
    """Where a recorded file is now, if the project's folder was moved or copied."""
    inside = run.cwd.rstrip(os.sep) + os.sep
    return os.path.join(cwd, path[len(inside) :]) if path.startswith(inside) else path


def _read(path: str, module: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise RefusedError(
            f"module {module} was recorded from {path}, which cannot be read: {error.strerror}"
        ) from None
