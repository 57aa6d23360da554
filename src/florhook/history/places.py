"""An iteration of a loop that was around a printed line, and the columns that tables show of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..dataclass import dataclass, field
from ..hook.sites import Site
from ..replay.plan import Selection, value_or_number

# Columns of a table that are no loop variables.
RESERVED = frozenset(
    {"text", "source", "replay", "rank", "time", "via", "place", "name", "value", "global_step", "iterations"}
)
Key = tuple[str, int, int, str]


@dataclass(frozen=True)
class Place:
    """One iteration of one execution of a loop: the nth of its site in the iteration around.

    `ctx` is the number of its row, -1 where it has none. An `iteration` of -1 is one that nobody counted, in a loop
    that calls nothing but a hindsight statement.
    """

    site: str
    nth: int
    iteration: int
    labels: Mapping[str, Any] = field(default_factory=dict)  # values of the loop's own variables, where plain
    ctx: int = -1

    @property
    def key(self) -> Key:
        """What a recorded and a replayed line of the same iteration have in common."""
        return self.site, self.nth, self.iteration, repr(self.labels) if self.iteration < 0 else ""


class Columns:
    """The loop variables of a program's loops by which tables name iterations.

    They are those that ever had a plain value; where a loop has none, its iteration number stands under the name of its
    first variable, or under that of its line (`while True`).
    """

    def __init__(self, sites: Mapping[str, Site], places: Iterable[tuple[Place, ...]]) -> None:
        self._sites = sites
        plain: dict[str, dict[str, None]] = {}
        for place in {each.key: each for path in places for each in path}.values():
            plain.setdefault(place.site, {}).update(dict.fromkeys(place.labels))
        self._plain = plain

    def cells(self, path: tuple[Place, ...]) -> dict[str, Any]:
        """The variables around a line, from outside in; one that comes again is numbered."""
        cells: dict[str, Any] = {}
        for place in path:
            for name, value in self._of(place):
                count, unique = 1, f"loop {name}" if name in RESERVED else name
                while unique in cells:
                    count += 1
                    unique = f"{name}_{count}"
                cells[unique] = value
        return cells

    def _of(self, place: Place) -> list[tuple[str, Any]]:
        names = self._names(place.site)
        plain = self._plain.get(place.site) or {}
        found = [name for name in names if name in plain] or [name for name in plain if name not in names]
        if found:
            return [(name, place.labels.get(name)) for name in found]
        site = self._sites.get(place.site)
        name = names[0] if names else f"line{site.line}" if site else "loop"
        return [(name, place.iteration if place.iteration >= 0 else None)]

    def _names(self, site: str) -> list[str]:
        """The variables of a loop, as they stand in its header."""
        labels = self._sites[site].labels if site in self._sites else ()
        return [name for name, _ in sorted(labels, key=lambda label: label[1])]

    def takes(self, selection: Selection, path: tuple[Place, ...]) -> bool:
        """Whether a selection wants what was printed there, as a replay has it."""
        values = {}
        for place in path:
            for name in self._names(place.site):
                values[name] = value_or_number(place.labels.get(name), place.iteration)
        return all(name in values and selection.takes(name, values[name]) for name in selection.names())
