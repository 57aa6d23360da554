"""Which text of each module a replay runs: the file of now or the recorded one, and what is put into it."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from typing import Any

from ..dataclass import asdict, dataclass
from ..errors import RefusedError, UsageError
from ..hook.diff import SourceDiff, compare
from ..hook.locate import find_spec
from ..hook.logpoints import Logpoint, Search
from ..hook.placed import Placed, before_line
from ..hook.scope import is_included
from ..store.rows import RunRow, SourceRow


@dataclass(frozen=True)
class Versions:
    """`placed` are statements that are put in; with `recorded`, files may have changed in any way since."""

    placed: tuple[Placed, ...] = ()
    recorded: bool = False

    def as_task(self) -> dict[str, Any]:
        """What a worker makes the same object of."""
        return asdict(self)

    @classmethod
    def from_task(cls, task: dict[str, Any]) -> Versions:
        placed = (
            Placed(**{**each, "where": tuple((field, index) for field, index in each["where"])})
            for each in task["placed"]
        )
        return cls(tuple(placed), task["recorded"])

    def text(self, row: SourceRow, path: str) -> bytes:
        """The module's source, as far as it stands in a file."""
        return row.source if self.recorded else _read(path, row.module)

    def compared(self, row: SourceRow, text: bytes, path: str) -> SourceDiff | None:
        """How it differs from the record; None where it does not. SyntaxErrors are the user's to see."""
        placed = [each for each in self.placed if each.module == row.module]
        if text == row.source and not placed:
            return None
        return compare(row.source, text, path, placed)


def with_probes(
    points: Sequence[Logpoint | Search], sources: Sequence[SourceRow], run: RunRow, cwd: str
) -> Versions:
    """The files of now, and in them what the command line names; UsageError where there is no such line."""
    placed = []
    for point in points:
        row = _named(point.file, sources, run, cwd)
        path = file_now(row, run, cwd)
        try:
            where = before_line(ast.parse(_read(path, row.module), path), point.line)
        except SyntaxError as error:
            raise RefusedError(f"{path}:{error.lineno}: {error.msg}") from None
        if where is None:
            raise UsageError(f"{point.file}:{point.line}: no statement stands there, or after it")
        placed.append(Placed(row.module, where, point.code, point.line, point.said))
    return Versions(tuple(placed))


def _named(file: str, sources: Sequence[SourceRow], run: RunRow, cwd: str) -> SourceRow:
    """The recorded module of a file that was named by its path, or by an unambiguous end of it."""
    wanted = os.path.realpath(os.path.join(cwd, file))
    paths = {row.module: os.path.realpath(file_now(row, run, cwd)) for row in sources}
    found = [row for row in sources if paths[row.module] == wanted]
    found = found or [row for row in sources if paths[row.module].endswith(os.sep + os.path.normpath(file))]
    if len(found) == 1:
        return found[0]
    names = ", ".join(sorted(os.path.relpath(path, cwd) for path in paths.values())[:5])
    kind = "several files are" if found else "no file is"
    raise UsageError(f"{kind} named {file} among those that run {run.id} was recorded from ({names})")


def file_now(source: SourceRow, run: RunRow, cwd: str) -> str:
    """Where a recorded module's file is now: the one that this Python would import, if it belongs to a library."""
    if is_library(source, run):
        spec = find_spec(source.module)
        if spec is not None and spec.has_location and spec.origin is not None:
            return spec.origin
    return path_now(source.path, run, cwd)


def path_now(path: str, run: RunRow, cwd: str) -> str:
    """Where a recorded file is now, if the project's folder was moved or copied."""
    inside = run.cwd.rstrip(os.sep) + os.sep
    return os.path.join(cwd, path[len(inside) :]) if path.startswith(inside) else path


def moved_folder(run: RunRow, cwd: str) -> tuple[str, str] | None:
    """The run's folder and that of now, if the project's folder was moved or copied."""
    old, new = run.cwd.rstrip(os.sep), cwd.rstrip(os.sep)
    return None if (old + os.sep).startswith(new + os.sep) else (old, new)


def is_library(source: SourceRow, run: RunRow) -> bool:
    """Whether a module was recorded for its name, wherever it lies."""
    return source.module != "__main__" and is_included(source.module, run.meta.get("include", ()))


def _read(path: str, module: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise RefusedError(
            f"module {module} was recorded from {path}, which cannot be read: {error.strerror}"
        ) from None
