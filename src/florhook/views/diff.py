"""`florhook diff`: what two runs differ in, and the first place at which their states part."""

from __future__ import annotations

import importlib.util
import itertools
import json
import sys
import warnings
from typing import Any

from ..dataclass import asdict
from ..errors import StoreError, UsageError
from ..replay.boundaries import Parting, States, Value
from ..replay.run_diff import CHANGED, FileChange, Line, Pair, RunDiff, compare_runs
from ..settings import Settings
from ..store.rows import RunRow
from ..store.store import Store, settle
from .options import options_of

PATIENCE = 30.0  # seconds for the writer of a run that ended just now
MOST_CHANGES = 40
MOST_VALUES = 10
LONGEST = 160  # characters of a line of output
LONGEST_CODE, LEAD = 90, 30  # characters of a statement, and of those before what differs in it
SAME = "the same"


def diff(settings: Settings, words: list[str]) -> None:
    """Compare two runs; exit status 1 where they differ."""
    options, names = options_of("diff", words, (), ("json",))
    if len(names) != 2:
        raise UsageError("diff takes two runs: ids, unique prefixes or last")
    _load_numpy()
    settle(settings.home, PATIENCE)
    with Store.open(settings.home) as store, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numbers that are no numbers are compared too
        try:
            found = compare_runs(store, *(store.find(name) for name in names))
        except ValueError as error:
            raise StoreError(
                f"a row cannot be read ({error}); florhook verify tells what is damaged"
            ) from None
    if options:
        print(json.dumps(as_json(found), indent=1))
    else:
        print("\n".join(_lines(found)))
    if found.differ:
        raise SystemExit(1)


def _load_numpy() -> None:
    """By how much memory differs is told where NumPy is there; that it differs is told without."""
    if "numpy" not in sys.modules and importlib.util.find_spec("numpy") is not None:
        importlib.import_module("numpy")


def as_json(found: RunDiff) -> dict[str, Any]:
    """All of it, for other programs."""
    return {
        "runs": [found.first.id, found.second.id],
        "differ": found.differ,
        "arguments": [asdict(pair) for pair in found.arguments],
        "environment": [asdict(pair) for pair in found.environment],
        "notes": found.notes,
        "code": [asdict(change) for change in found.code],
        "output": found.output and asdict(found.output),
        "exit": found.exit and asdict(found.exit),
        "state": asdict(found.states),
    }


def _lines(found: RunDiff) -> list[str]:
    pairs = [*map(_pair, found.arguments)], [*map(_pair, found.environment)]
    output = [] if found.output is None else _output(found.output)
    output += [] if found.exit is None else [_pair(found.exit)]
    notes = found.notes if found.output is not None or found.states.differ else []
    return [
        f"first        {_run(found.first)}",
        f"second       {_run(found.second)}",
        *_section("arguments", pairs[0]),
        *_section("environment", pairs[1] + notes, bool(pairs[1])),
        *_section("code", _code(found.code)),
        *_section("output", output),
        *_section("state", _states(found.states)),
    ]


def _section(name: str, lines: list[str], differs: bool = True) -> list[str]:
    """The name stands once, before the first line."""
    told = lines if lines and differs else [SAME, *lines]
    return [f"{name if index == 0 else '':12} {line}" for index, line in enumerate(told)]


def _run(run: RunRow) -> str:
    return " ".join([run.id, run.program, *run.argv])


def _pair(pair: Pair) -> str:
    return f"{pair.name}: {_given(pair.was)} | {_given(pair.now)}"


def _given(value: str | None) -> str:
    return "none" if value is None or value == "" else value


def _code(changes: list[FileChange]) -> list[str]:
    lines = [_change(each) for each in changes[:MOST_CHANGES]]
    return lines + ([f"and {len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else [])


def _change(each: FileChange) -> str:
    if each.change is None:
        run = "first" if each.new_path is None else "second"
        return f"{each.old_path or each.new_path} was imported in the {run} run only"
    change, moved = each.change, ""
    old, new = _cut(change.old, change.new)
    if change.new_line is None:
        return f"{each.old_path}:{change.old_line}, in the first run: removed `{old}`"
    if change.old_line not in (None, change.new_line):
        moved = f" (line {change.old_line} in the first run)"
    what = f"changed `{old}` to `{new}`" if change.what == CHANGED else f"{change.what} `{new}`"
    return f"{each.new_path}:{change.new_line}{moved}: {what}"


def _cut(old: str, new: str) -> tuple[str, str]:
    """Two texts of statements; of long ones, what is around the first place at which they differ."""
    start = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    start = 0 if start + LEAD < LONGEST_CODE else start - LEAD
    return _part(old, start), _part(new, start)


def _part(text: str, start: int) -> str:
    end = start + LONGEST_CODE
    return f"{'... ' if start else ''}{text[start:end]}{' ...' if len(text) > end else ''}"


def _output(line: Line) -> list[str]:
    ends = [run for run, text in (("first", line.was), ("second", line.now)) if text is None]
    if ends:
        rest = line.now if line.was is None else line.was
        return [
            f"ends before line {line.number} in the {ends[0]} run; in the other that is {_short(rest or '')}"
        ]
    if (line.was or "").removesuffix("\n") == (line.now or "").removesuffix("\n"):
        return [f"line {line.number}, {_short(line.was or '')}, has no end in one run"]
    return [f"line {line.number}: {_short(line.was or '')} | {_short(line.now or '')}"]


def _short(text: str) -> str:
    shown = repr(text.removesuffix("\n"))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 3] + "..."


def _states(states: States) -> list[str]:
    lines = []
    if not states.compared:
        lines.append(
            "nothing could be compared: there is no boundary of a loop at which both runs left digests"
        )
    elif not states.differ:
        lines.append(f"the same at all {states.compared} boundaries that both runs left digests of")
    elif states.same:
        lines.append(f"the same at {states.same} common boundaries, the last of them {states.last_same}")
    if states.start is not None:
        lines += _parting("differ from the first common boundary on", states.start)
        if states.parting is None and not states.counts:
            lines.append(f"nothing else differs at {states.compared} common boundaries")
    if states.parting is not None:
        lines += _parting("then part" if states.start is not None else "part", states.parting)
    if states.counts:
        lines.append(states.counts)
    if states.unread:
        lines.append(f"{states.unread} common boundaries could not be read")
    if states.clock:
        lines.append(
            f"not compared, since they hold times of the clock: {', '.join(states.clock[:MOST_VALUES])}"
        )
    return lines


def _parting(how: str, parting: Parting) -> list[str]:
    lines = [f"{how}, {parting.place}:", *(f"  {_value(value)}" for value in parting.values[:MOST_VALUES])]
    if len(parting.values) > MOST_VALUES:
        lines.append(f"  and {', '.join(value.name for value in parting.values[MOST_VALUES:])}")
    for run, names in (("first", parting.only_first), ("second", parting.only_second)):
        if names:
            lines.append(f"  only in the {run} run: {', '.join(names)}")
    return lines


def _value(value: Value) -> str:
    more = f"; and {value.more} more of {value.name}" if value.more else ""
    return f"{value.path}: {value.how}{more}"
