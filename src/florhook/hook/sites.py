"""Identity of loops, statements and functions: the same one is found again after lines were added above it."""

from __future__ import annotations

from ..dataclass import dataclass

FOR, WHILE, STATEMENT = "for", "while", "statement"
PROBE = "__flor__"  # the name of the module whose functions rewritten code calls


@dataclass(frozen=True)
class Site:
    """One loop of the source, or one statement in a loop's body that may take long.

    `key` is "module:qualified name:n", the nth loop of that function in source order, probes not counted; of a
    statement it is "module:qualified name:@line.column", its place in the recorded source.
    `names` are the local variables that the loop can rebind (empty at module level, where the module's dict is
    restored instead); `cells` the variables of the function that closures share. `labels` maps each plain
    loop variable to its place in the item (`()`: the item itself, `(1, 0)`: item[1][0]); for a `while` they are
    the names that its test reads. A `tight` loop calls nothing: it is entered and left, never looked into.
    A statement has neither cells (those of its loop are the same) nor labels.
    """

    key: str
    line: int
    kind: str  # FOR, WHILE or STATEMENT
    names: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    labels: tuple[tuple[str, tuple[int, ...]], ...] = ()
    tight: bool = False
    outer: str = ""  # the key of the loop around it in the same function


@dataclass(frozen=True)
class Instrumented:
    """What the rewriting of one module produced: its loops' sites, and the keys of its marks, in order of their ids.

    `probes` are the places of hindsight statements: the key of the innermost site (directly within that loop)
    or else of the function they stand in, with their line. and the condition on that loop's
    variables without which they do nothing. `left_alone` are the loops that are no sites, by line, and why they are
    none. `ends_early` are the sites whose body begins with hindsight and has no more of it, but something else.
    `statements` are the sites of statements that may take long; they have ids of their own. `flags` are those of the
    statements whose flags they share, where they have any. `attributes` are what the module sets on what it imports, as
    paths from a module on.
    """

    module: str
    path: str
    sites: tuple[Site, ...]
    marks: tuple[str, ...]
    probes: tuple[tuple[str, int, str], ...] = ()
    left_alone: tuple[tuple[int, str], ...] = ()
    ends_early: tuple[str, ...] = ()
    statements: tuple[Site, ...] = ()
    flags: tuple[int, ...] = ()
    attributes: tuple[tuple[str, ...], ...] = ()


def statement_key(module: str, function: str, line: int, column: int) -> str:
    """The name of a statement by its place in the recorded source."""
    return f"{module}:{function}:@{line}.{column}"


def place_of_statement(key: str) -> tuple[int, int] | None:
    """Line and column in the recorded source; None for the key of a loop."""
    place = key.rpartition(":")[2]
    if not place.startswith("@"):
        return None
    line, _, column = place[1:].partition(".")
    return int(line), int(column)
