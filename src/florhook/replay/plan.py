"""From probes and selection to the least work: which iterations of a loop run, and where to jump.

Pure: a recorded loop in, steps out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from types import CodeType
from typing import Any

from ..dataclass import dataclass, field, replace
from ..errors import UsageError
from .record import Loop, Record

EXIT = -1
RESTORE = 5e-3  # seconds, however small the checkpoint is
RESTORE_RATE = 1e9  # bytes a second


@dataclass(frozen=True)
class Step:
    """Restore the checkpoint `restore` (None: go on from where the loop is), then run up to boundary `stop`.

    `stop` is None to run until the loop ends by itself. With `restore` EXIT nothing is run: the loop is over.
    `early`: what the last iteration does after its last probe is left out.
    `last`: what comes after the stop is not in the record, since the run was killed; the replay ends there.
    """

    restore: int | None
    stop: int | None = None
    last: bool = False
    early: bool = False


@dataclass(frozen=True)
class Selection:
    """`epoch=3:5,step=::10`: by loop variable, which of its values are wanted."""

    slices: tuple[tuple[str, slice], ...] = ()

    def names(self) -> set[str]:
        return {name for name, _ in self.slices}

    def takes(self, name: str, value: float) -> bool:
        """Whether a loop variable's value is wanted."""
        return all(_within(part, value) for each, part in self.slices if each == name)


def parse_selection(text: str | None) -> Selection:
    parts = []
    for piece in re.split(r"[,;\s]+", text or ""):
        if not piece:
            continue
        match = re.fullmatch(r"(\w+)=(-?\d+)?(?:(:)(-?\d+)?(?::(-?\d+)?)?)?", piece)
        if match is None or (match[2] is None and match[3] is None) or match[5] == "0":
            raise UsageError(f"--select: {piece!r} is not of the form epoch=3:5, epoch=::10 or epoch=7")
        start, stop, step = (int(group) if group else None for group in (match[2], match[4], match[5]))
        if match[3] is None:
            stop = start + 1 if start is not None else None
        parts.append((match[1], slice(start, stop, step)))
    return Selection(tuple(parts))


def selection_of(record: Record, text: str | None) -> Selection:
    """The selection, of variables that the program has."""
    selection = parse_selection(text)
    strangers = selection.names() - {name for site in record.sites.values() for name, _ in site.labels}
    if strangers:
        raise UsageError(f"--select: no loop of the program has a variable {min(strangers)}")
    return selection


def value_or_number(value: Any, iteration: int) -> float:
    """What a selection compares: a loop variable's value, or the iteration's number where that is no number."""
    return iteration if isinstance(value, bool) or not isinstance(value, (int, float)) else value


def _within(part: slice, value: float) -> bool:
    if part.start is not None and value < part.start:
        return False
    if part.stop is not None and value >= part.stop:
        return False
    return part.step is None or (value - (part.start or 0)) % part.step == 0


@dataclass(frozen=True)
class Question:
    """What a replay asks: places of probes by key, the ids of their marks, and the selection.

    `conditions` are those, on variables of a loop, under one of which a probe in it runs at all. `ends_early` are the
    loops in which an iteration may be left once its last probe has run, for a restore of what follows.
    """

    places: frozenset[str]
    marks: frozenset[str]
    selection: Selection = Selection()
    conditions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ends_early: frozenset[str] = frozenset()
    loaders: str | None = (
        None  # the mark that the workers of a DataLoader, in which probes may run, were started
    )

    def concerns(self, loop: Loop) -> bool:
        """Whether a probe stands in a recorded loop, or ran in it."""
        ran = self.marks & set(loop.row.marks.split(","))
        return bool(
            loop.asked or ran or self.loaders in loop.row.marks.split(",") or loop.site.key in self.places
        )

    def wants(self, loop: Loop, iteration: int) -> bool:
        """Whether a probe ran in that iteration of a recorded loop and is asked for."""
        if iteration in loop.asked:
            return True
        here = loop.site.key in self.places and self._holds(loop, iteration)
        if not here and not (self.marks & loop.marks_of(iteration) or self._loads(loop, iteration)):
            return False
        if iteration not in loop.iterations:
            return True  # its variables were not recorded; what it prints is judged when it runs
        labels = loop.labels_of(iteration)
        return all(
            self.selection.takes(name, value_or_number(labels.get(name), iteration))
            for name, _ in loop.site.labels
        )

    def _loads(self, loop: Loop, iteration: int) -> bool:
        """Whether probes may have run in workers of a DataLoader, which go on after the iteration that starts them."""
        return self.loaders is not None and self.loaders in loop.marks_of(0) | loop.marks_of(iteration)

    def leaves_early(self, loop: Loop, iteration: int) -> bool:
        """Whether to leave an iteration after its last probe, if what follows can be restored."""
        if loop.site.key not in self.ends_early or iteration not in loop.iterations:
            return False
        others = self.marks & loop.marks_of(iteration) or self._loads(loop, iteration)
        return not (iteration in loop.asked or others)

    def _holds(self, loop: Loop, iteration: int) -> bool:
        """Whether a probe that stands in a loop may have run in an iteration, by the loop's variables."""
        conditions = self.conditions.get(loop.site.key)
        if conditions is None or iteration not in loop.iterations:
            return True
        labels = loop.computable_labels_of(iteration)
        return any(_is_true(_compiled(condition), labels) for condition in conditions)


def _is_true(condition: CodeType, labels: dict[str, Any]) -> bool:
    try:
        return bool(eval(condition, {"__builtins__": {}}, labels))
    except Exception:  # a variable that was not recorded, or is none of Python's own numbers
        return True


@functools.lru_cache
def _compiled(condition: str) -> CodeType:
    return compile(condition, "<condition>", "eval")


def steps_for(loop: Loop, question: Question, unusable: Collection[int] = ()) -> list[Step]:
    """What to do in a recorded loop. `unusable` are checkpoints (by iteration) that cannot be restored."""
    usable = sorted(set(loop.checkpoints) - set(unusable) - {EXIT})
    if loop.is_open or loop.row.exit == "abandoned":
        return _until_it_is_left(loop, question, usable)
    if not loop.known and question.concerns(loop):  # nobody counted, as in a tight loop
        return [Step(0 if 0 in usable and loop.row.parent < 0 else None)]
    left_normally = loop.row.exit in ("end", "break")
    can_exit = left_normally and EXIT in loop.checkpoints and EXIT not in unusable
    wanted = [i for i in range(loop.known) if question.wants(loop, i)]
    if not left_normally and loop.known:
        wanted = sorted({*wanted, loop.known - 1})  # recording stopped inside it
    steps: list[Step] = []
    at = 0
    early = {
        i
        for i in wanted
        if left_normally and question.leaves_early(loop, i) and _is_worth_a_restore(loop, i, usable, can_exit)
    }
    for start, stop in _runs(wanted, early):
        cut = bool(steps) and steps[-1].early
        jump = max((k for k in usable if at < k + cut <= start + cut), default=None)
        last = stop == loop.known
        leaves = start in early
        if jump is None and steps:
            steps[-1] = Step(steps[-1].restore, None if last and not leaves else stop, early=leaves)
        else:
            steps.append(Step(jump, None if last and not leaves else stop, early=leaves))
        at = stop
    if not wanted or at < loop.known or steps[-1].early:
        left = bool(steps) and steps[-1].early
        steps.append(_ending(at - left, usable, can_exit))
        if len(steps) > 1 and steps[-1] == Step(None):
            steps[-2:] = [Step(steps[-2].restore)]
    if steps[0].restore is None and 0 in usable and loop.row.parent < 0:
        steps[0] = replace(steps[0], restore=0)
    return steps


def steps_to(loop: Loop, boundaries: Sequence[int], unusable: Collection[int] = ()) -> list[Step]:
    """What to do in a recorded loop to stand still at boundaries, in order, with as little as possible run on the way.

    The boundary behind the last iteration is the loop's end.
    """
    usable = sorted(set(loop.checkpoints) - set(unusable) - {EXIT})
    left = not loop.is_open and loop.row.exit in ("end", "break")
    can_exit = left and EXIT in loop.checkpoints and EXIT not in unusable
    steps: list[Step] = []
    at = 0
    for boundary in boundaries:
        if left and boundary >= loop.known:
            steps.append(Step(EXIT) if can_exit else Step(max((k for k in usable if k > at), default=None)))
            at = loop.known
            break
        jump = max((k for k in usable if at < k <= boundary), default=None)
        if jump is None and not steps and 0 in usable and loop.row.parent < 0:
            jump = 0
        steps.append(Step(jump, boundary))
        at = boundary
    if not left:
        steps = [*steps[:-1], replace(steps[-1], last=True)] if steps else [Step(None, 0, last=True)]
    elif at < loop.known:
        steps.append(_ending(at, usable, can_exit))
    return steps


def _until_it_is_left(loop: Loop, question: Question, usable: list[int]) -> list[Step]:
    """All that was asked for, and the last iteration known.

    It left the loop by a return or an exception, which must happen again, or the run ended inside it. If the loop is
    not left by then (it was an interruption from outside), there is nothing to go on to.
    """
    wanted = [i for i in range(loop.known) if question.wants(loop, i) or i == loop.known - 1]
    steps = []
    at = 0
    for start, stop in _runs(wanted):
        jump = max((k for k in usable if at < k <= start), default=None)
        steps.append(Step(jump, stop, last=stop == loop.known))
        at = stop
    if not steps:
        steps.append(Step(None, 0, last=True))
    if steps[0].restore is None and 0 in usable and loop.row.parent < 0:
        steps[0] = Step(0, steps[0].stop, steps[0].last)
    return steps


def _ending(at: int, usable: list[int], can_exit: bool) -> Step:
    if can_exit:
        return Step(EXIT)
    jump = max((k for k in usable if k > at), default=None)
    return Step(jump)


def _is_worth_a_restore(loop: Loop, iteration: int, usable: list[int], can_exit: bool) -> bool:
    """Whether what follows an iteration can be restored, in less time than the iteration took."""
    after = iteration + 1
    checkpoint = loop.checkpoints[after] if after in usable else None
    if after == loop.known and can_exit:
        checkpoint = loop.checkpoints[EXIT]
    if checkpoint is None:
        return False
    return loop.seconds(iteration, after) > RESTORE + sum(checkpoint.lengths) / RESTORE_RATE


def _runs(wanted: list[int], alone: Collection[int] = ()) -> list[tuple[int, int]]:
    """Consecutive numbers as half-open ranges, but for those that stand alone."""
    runs: list[tuple[int, int]] = []
    for number in wanted:
        if runs and runs[-1][1] == number and number not in alone and number - 1 not in alone:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
