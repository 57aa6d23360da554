"""Edits of a program that is taken up with `--at`: which loops are still the recorded ones, and what has no effect."""

from __future__ import annotations

import ast
import os
from types import FrameType

from ..dataclass import dataclass, field
from ..frames import line_of
from ..hook.diff import Refusal, compare
from ..hook.rewrite import LoopNode, rewrite
from ..hook.sites import Site
from ..store.rows import RunRow, SourceRow
from .versions import file_now

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class Changes:
    """All differences between a run's sources and those of now."""

    keys: dict[str, str] = field(default_factory=dict)  # loop of now -> the recorded one
    edits: list[Refusal] = field(default_factory=list)  # whatever is more than layout and comments
    trees: dict[str, ast.Module] = field(default_factory=dict)  # edited files
    lost: list[tuple[str, Site]] = field(
        default_factory=list
    )  # recorded loops that are no more, with their file


def find_changes(sources: list[SourceRow], run: RunRow, cwd: str, code: bytes | None = None) -> Changes:
    """Compare every recorded module with its file of now; `code` is the program where it has no file.

    A module whose file is gone has no loops any more.
    """
    changes = Changes()
    for source in sources:
        path = file_now(source, run, cwd)
        given = code if source.module == "__main__" else None
        _compare(changes, source, path, _read(path) if given is None else given)
    return changes


def _compare(changes: Changes, source: SourceRow, path: str, new: bytes | None) -> None:
    old = rewrite(ast.parse(source.source, source.path), source.module, source.path).sites
    if new is None:
        changes.edits.append(Refusal(path, 1, f"module {source.module} is not there any more"))
    if new is None or new == source.source:
        changes.keys.update((site.key, site.key) for site in old if new is not None)
        changes.lost += [(path, site) for site in old if new is None]
        return
    diff = compare(source.source, new, path)
    lines = {
        now.lineno: was.lineno
        for now, was in diff.pairs.items()
        if isinstance(now, LoopNode) and isinstance(was, LoopNode)
    }
    changes.edits += diff.refusals
    refused = {refusal.line for refusal in diff.refusals}
    changes.edits += [
        Refusal(path, node.lineno, "added") for node in diff.added if node.lineno not in refused
    ]
    if diff.printing_changed and not refused and not diff.added:
        changes.edits.append(Refusal(path, 1, "other output"))
    changes.trees[path] = ast.parse(new, path)
    at = {site.line: site.key for site in old}
    for site in rewrite(diff.tree, source.module, path).sites:
        if lines.get(site.line) in at:
            changes.keys[site.key] = at[lines[site.line]]
    found = set(changes.keys.values())
    changes.lost += [(path, site) for site in old if site.key not in found]


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def without_effect(changes: Changes, frame: FrameType | None, open_lines: dict[int, int]) -> list[Refusal]:
    """The edits before the place that the program is at: what they would have done was restored as recorded.

    `frame` is the innermost one of the program; `open_lines` maps the hashes of frames to the line of their outermost
    open loop, in which edits count from now on.
    """
    at: dict[tuple[str, int], int] = {}
    while frame is not None:
        line = line_of(frame) + (frame.f_lineno is None)  # in code of ours after a loop, all of it is over
        line = min(line, open_lines.get(hash(frame), line))
        code = frame.f_code
        at[os.path.realpath(code.co_filename), 0 if code.co_name == "<module>" else code.co_firstlineno] = (
            line
        )
        frame = frame.f_back
    found = []
    for edit in changes.edits:
        if edit.path in changes.trees:
            place = _function_around(changes.trees[edit.path], edit.line)
            here = at.get((os.path.realpath(edit.path), place))
            if (here is None and not place) or (here is not None and edit.line < here):
                found.append(edit)
    return found


def _function_around(tree: ast.Module, line: int) -> int:
    """The first line of the innermost function whose body holds the line; 0 for the module."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.body[0].lineno <= line <= (node.end_lineno or 0):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found = max(found, first)
    return found
