"""What stands beside a program's lines in the report: the statements that printed, of the run and of its replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..history.lines import History, Line
from ..history.printed import Printers, printers_in, shown_by
from ..history.tables import Value
from ..logs.replays import Account
from ..logs.values import values_in
from ..replay.record import Record

Key = tuple[str, int, str]  # module, line of the recorded source, text of one that was added


class Margins:
    """`statements` are those that printed anything; `of` gives the number of the one that printed a line.

    Of a statement that was added for several replays, the newest one that printed there counts.
    """

    def __init__(self, record: Record, history: History, accounts: Sequence[Account]) -> None:
        self._modules = {source.module: index for index, source in enumerate(record.sources)}
        self._printers = Printers(
            statement
            for source in record.sources
            for statement in printers_in(
                source.source,
                source.module,
                [site for site in record.sites.values() if site.key.startswith(f"{source.module}:")],
            )
        )
        self._probes = {
            (account["replay"], probe["module"], probe["line"]): probe
            for account in accounts
            for probe in account["probes"]
        }
        ages = {account["replay"]: number for number, account in enumerate(accounts)}
        keys = [(line, key) for line in history.lines if (key := self._key(line)) is not None]
        newest: dict[Key, str] = {}
        for line, key in keys:
            if ages.get(line.replay, -1) >= ages.get(newest.get(key, ""), -1):
                newest[key] = line.replay
        keys = [(line, key) for line, key in keys if line.replay == newest[key]]
        counts = Counter(key for _, key in keys)
        order = sorted(counts, key=lambda key: (self._modules[key[0]], key[1], not key[2], key[2]))
        numbers = {key: number for number, key in enumerate(order)}
        self._of = {id(line): numbers[key] for line, key in keys}
        self._lines = history.lines  # the numbers above are theirs as long as they live
        self.statements = [self._statement(key, counts[key], newest[key]) for key in order]

    def of(self, line: Line) -> int | None:
        """None where it is not known."""
        return self._of.get(id(line))

    def values(self) -> list[Value]:
        """What probes of the command line showed under names that are no words: `net.fc.weight.norm()=0.31`."""
        found = []
        for line in self._lines:
            probe = self._probe(line)
            known = set(values_in(line.text)) if probe else set()
            for name, value in shown_by(probe["text"], line.text) if probe else ():
                if (name, value) not in known:
                    found.append(Value(name, value, line))
        return found

    def _probe(self, line: Line) -> dict[str, Any] | None:
        return self._probes.get((line.replay, *line.at)) if line.at else None

    def _key(self, line: Line) -> Key | None:
        if line.replay:
            probe = self._probe(line)
            return None if probe is None else (probe["module"], probe["before"], probe["text"])
        found = self._printers.of(line.text, {place.site for place in line.places})
        return None if found is None else (*found, "")

    def _statement(self, key: Key, prints: int, replay: str) -> dict[str, Any]:
        """As the page has it; `line` is the one that a statement of a replay stands before."""
        module, line, text = key
        about = {"source": self._modules[module], "line": line, "prints": prints}
        return {**about, "text": text, "replay": replay} if replay else about
