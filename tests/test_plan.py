"""Plans: the least work that answers the question, and never a wrong state."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from florhook.errors import UsageError
from florhook.hook.sites import Site
from florhook.replay.plan import EXIT, Question, Selection, Step, parse_selection, steps_for, value_or_number
from florhook.replay.record import Loop
from florhook.store.rows import CheckpointRow, ContextRow, IterationRow

KEY = "m::0"


def loop(
    iterations: int | None = 10,
    *,
    checkpoints: tuple[int, ...] = (),
    marks: dict[int, str] | None = None,
    every: str = "0,1",
    exit: str = "end",  # noqa: A002  # as the row calls it
    parent: int = 5,
    rows: int | None = None,
    items: str | None = None,
    goodbye: bool = True,
) -> Loop:
    """A recorded loop over `x` in range(iterations) or `items`; `marks` by iteration, "0" elsewhere."""
    context = ContextRow(
        7,
        parent,
        0,
        KEY,
        0,
        0.0,
        0,
        iterations=iterations,
        exit=exit,
        marks=every,
        entry="[]",
        left=float(iterations or 0) if exit else None,
    )
    known = (iterations or 0) if rows is None else rows
    found = {
        i: IterationRow(
            7, i, float(i), 0, (marks or {}).get(i, "0"), json.dumps({"x": items[i] if items else i})
        )
        for i in range(known)
    }
    kept = {k: CheckpointRow(7, k, 0.0, 0, "[]") for k in checkpoints}
    return Loop(context, Site(KEY, 1, "for", labels=(("x", ()),)), found, kept, goodbye=goodbye)


def asks(*marks: str, here: bool = False, select: str | None = None) -> Question:
    return Question(frozenset([KEY] if here else []), frozenset(marks), parse_selection(select))


ALL = Step(None)
NOTHING = asks("9")
EARLY = Question(frozenset([KEY]), frozenset(), ends_early=frozenset([KEY]))
CASES: list[tuple[str, Loop, Question, set[int], list[Step]]] = [
    ("no checkpoints", loop(), asks(here=True), set(), [ALL]),
    ("nothing is asked, nothing is there", loop(), NOTHING, set(), [ALL]),
    ("the exit skips it", loop(checkpoints=(EXIT,)), NOTHING, set(), [Step(EXIT)]),
    ("a main loop is restored at its entry", loop(checkpoints=(0,), parent=-1), asks(here=True), set(), [Step(0)]),
    ("an inner loop is not", loop(checkpoints=(0,)), asks(here=True), set(), [ALL]),
    ("the last boundary spares most", loop(checkpoints=(3, 8)), NOTHING, set(), [Step(8)]),
    ("a boundary that cannot be used", loop(checkpoints=(3, 8)), NOTHING, {8}, [Step(3)]),
    ("an exit that cannot be used", loop(checkpoints=(3, EXIT)), NOTHING, {EXIT}, [Step(3)]),
    ("none can be used", loop(checkpoints=(3, EXIT)), NOTHING, {3, EXIT}, [ALL]),
    ("one iteration", loop(checkpoints=(2, 4, 6, EXIT), marks={5: "0,9"}), NOTHING, set(), [Step(4, 6), Step(EXIT)]),
    ("one iteration, no exit", loop(checkpoints=(2, 4, 6), marks={5: "0,9"}), NOTHING, set(), [Step(4)]),
    ("one iteration, nothing after", loop(checkpoints=(2, 4), marks={5: "0,9"}), NOTHING, set(), [Step(4)]),
    ("the last iteration", loop(checkpoints=(2, 9, EXIT), marks={9: "9"}), NOTHING, set(), [Step(9)]),
    ("two, far apart", loop(checkpoints=(4, 8, EXIT), marks={1: "9", 8: "9"}), NOTHING, set(),
        [Step(None, 2), Step(8, 9), Step(EXIT)]),
    ("two, no jump between", loop(checkpoints=(EXIT,), marks={1: "9", 8: "9"}), NOTHING, set(),
        [Step(None, 9), Step(EXIT)]),
    ("a jump to where it is spares nothing", loop(checkpoints=(2, EXIT), marks={1: "9", 3: "9"}), NOTHING, set(),
        [Step(None, 4), Step(EXIT)]),
    ("selected", loop(checkpoints=(0, 4, EXIT), parent=-1), asks(here=True, select="x=5:7"), set(),
        [Step(4, 7), Step(EXIT)]),
    ("selected by number", loop(checkpoints=(0, 4, EXIT), items="abcdefghij"), asks(here=True, select="x=5:7"), set(),
        [Step(4, 7), Step(EXIT)]),
    ("another variable selects nothing here", loop(checkpoints=(EXIT,)), asks(here=True, select="y=5"), set(), [ALL]),
    ("a return happens again", loop(exit="abandoned", checkpoints=(5, 9)), NOTHING, set(), [Step(9, 10, last=True)]),
    ("a return with nothing to jump to", loop(exit="abandoned"), NOTHING, set(), [Step(None, 10, last=True)]),
    ("a return after an iteration", loop(exit="abandoned", checkpoints=(3, 9), marks={4: "9"}), NOTHING, set(),
        [Step(3, 5), Step(9, 10, last=True)]),
    ("a return after an iteration, no jump", loop(exit="abandoned", marks={4: "9"}), NOTHING, set(),
        [Step(None, 5), Step(None, 10, last=True)]),
    ("a return at once", loop(0, exit="abandoned"), NOTHING, set(), [Step(None, 0, last=True)]),
    ("a return from a main loop", loop(2, exit="abandoned", checkpoints=(0,), parent=-1), NOTHING, set(),
        [Step(0, 2, last=True)]),
    ("a break is left by its exit", loop(exit="break", checkpoints=(9, EXIT)), NOTHING, set(), [Step(EXIT)]),
    ("a killed run is replayed as far as it went", loop(None, rows=6, exit="", checkpoints=(4,), goodbye=False),
        NOTHING, set(), [Step(4, 6, last=True)]),
    ("a run that was killed at once", loop(None, rows=0, exit="", checkpoints=(0,), parent=-1, goodbye=False),
        NOTHING, set(), [Step(0, 0, last=True)]),
    ("recording stopped inside it", loop(None, rows=6, exit="", checkpoints=(4,)), NOTHING, set(), [Step(4)]),
    ("recording stopped inside it, after an iteration", loop(None, rows=6, exit="", checkpoints=(2, 4), marks={2: "9"}),
        NOTHING, set(), [Step(2, 3), Step(4)]),
    ("recording stopped at once", loop(None, rows=0, exit="", checkpoints=(0,), parent=-1), NOTHING, set(), [Step(0)]),
    ("nobody counted it", loop(0, checkpoints=(EXIT,)), asks(here=True), set(), [ALL]),
    ("nobody counted it, and nobody asks", loop(0, checkpoints=(EXIT,)), NOTHING, set(), [Step(EXIT)]),
    ("nobody counted it, and a probe ran in it", loop(0, every="9", checkpoints=(EXIT,)), asks("9"), set(), [ALL]),
    ("it never ran, no exit", loop(0), asks(here=True), set(), [ALL]),
    ("iterations without rows go by the whole loop", loop(10, rows=0, every="9", checkpoints=(5, EXIT)), NOTHING, set(),
        [ALL]),
    ("without rows nothing is selected", loop(10, rows=0, every="9", checkpoints=(5, EXIT)), asks("9", select="x=7"),
        set(), [ALL]),
    ("with rows for some", loop(10, rows=3, checkpoints=(3, EXIT)), asks(here=True, select="x=1"), set(),
        [Step(None, 2), Step(3)]),
    ("the rest of an iteration is left out", loop(4, checkpoints=(1, 2, 4, EXIT)), EARLY, set(),
        [Step(None, 1, early=True), Step(1, 2, early=True), Step(2, 4, early=True), Step(EXIT)]),
    ("the rest of a break's iteration too", loop(4, exit="break", checkpoints=(EXIT,)), EARLY, set(),
        [Step(None, 4, early=True), Step(EXIT)]),
    ("with rows for some, that lack the mark", loop(10, rows=3, checkpoints=(3, EXIT)), NOTHING, set(), [Step(EXIT)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("recorded", "question", "unusable", "steps"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_steps(recorded: Loop, question: Question, unusable: set[int], steps: list[Step]) -> None:
    """These steps, for these loops and questions."""
    assert steps_for(recorded, question, unusable) == steps


@st.composite
def plans(draw: st.DrawFn) -> tuple[Loop, Question, set[int]]:
    size = draw(st.integers(0, 12))
    wanted = draw(st.sets(st.integers(0, max(size - 1, 0))))
    kept = draw(st.sets(st.integers(0, size)))
    how = draw(st.sampled_from(["end", "break", "abandoned", ""]))
    if how in ("end", "break") and draw(st.booleans()):
        kept = {*kept, EXIT}
    unusable = draw(st.sets(st.sampled_from(sorted(kept)))) if kept else set()
    known = None if how == "" else size
    parent = draw(st.sampled_from([-1, 5]))
    recorded = loop(
        known,
        rows=size,
        exit=how,
        checkpoints=tuple(kept),
        marks=dict.fromkeys(wanted, "9"),
        parent=parent,
        goodbye=how != "" or draw(st.booleans()),
    )
    if not draw(st.booleans()):
        return recorded, NOTHING, unusable
    first = tuple(
        draw(st.sets(st.integers(0, max(size - 1, 0))))
    )  # where a probe stands at the body's beginning
    question = Question(
        frozenset([KEY]), frozenset(["9"]), conditions={KEY: [f"x in {first}"]}, ends_early=frozenset([KEY])
    )
    return recorded, question, unusable


def executed(recorded: Loop, steps: list[Step]) -> tuple[list[int], bool]:
    """The iterations that a replayer runs, in order, and whether it comes to the loop's end."""
    at, ran = 0, []
    for step in steps:
        if step.restore == EXIT:
            return ran, True
        at = at if step.restore is None else step.restore
        stop = recorded.known if step.stop is None else step.stop
        ran.extend(range(at, stop))
        at = max(at, stop)
        if step.stop is None or step.last:
            return ran, True
    return ran, False


@settings(max_examples=400, deadline=None)
@given(plans())
def test_plans_are_right(plan: tuple[Loop, Question, set[int]]) -> None:
    """Every wanted iteration is run, once, in order; jumps go forward, to checkpoints that can be used."""
    recorded, question, unusable = plan
    steps = steps_for(recorded, question, unusable)
    wanted = {i for i in range(recorded.known) if question.wants(recorded, i)}
    ends_there = recorded.row.exit == "abandoned" or recorded.is_open
    ran, ended = executed(recorded, steps)
    assert ended, "the loop is always brought to its end"
    assert wanted <= set(ran)
    assert ran == sorted(set(ran)), "nothing runs twice"
    at, left = 0, False  # the last iteration was left early
    for number, step in enumerate(steps):
        assert not left or step.restore is not None, "its state is not the one after it"
        if step.restore is not None:
            assert step.restore in recorded.checkpoints
            assert step.restore not in unusable
        if step.restore not in (None, EXIT):
            assert step.restore > at or ((left or number == 0) and step.restore == at)
            at = step.restore
        left = step.early
        if left:
            assert step.stop is not None
            assert step.stop - 1 in wanted
            assert "9" not in recorded.marks_of(step.stop - 1), "something else is asked of it"
            assert recorded.row.exit in ("end", "break")
        if step.restore == EXIT:
            assert recorded.row.exit in ("end", "break")
            assert number == len(steps) - 1
        assert step.last is (ends_there and number == len(steps) - 1)
        if step.stop is not None:
            assert at < step.stop or (step.last and not recorded.known)
            assert step.stop == recorded.known if step.last else step.stop <= recorded.known
            at = step.stop
        else:
            assert number == len(steps) - 1
            assert not ends_there, "what comes after it is not known"
    if recorded.row.exit not in ("end", "break") and recorded.known:
        assert recorded.known - 1 in ran, "what left it happens again"


@settings(max_examples=400, deadline=None)
@given(plans())
def test_plans_are_least(plan: tuple[Loop, Question, set[int]]) -> None:
    """An iteration that nobody asked for runs only where no usable checkpoint spares it."""
    recorded, question, unusable = plan
    ran, _ = executed(recorded, steps_for(recorded, question, unusable))
    known = recorded.known
    usable = {k for k in recorded.checkpoints if k not in unusable and k >= 0}
    can_exit = EXIT in recorded.checkpoints and EXIT not in unusable and recorded.row.exit in ("end", "break")
    needed = {i for i in range(known) if question.wants(recorded, i)}
    if recorded.row.exit not in ("end", "break") and known:
        needed.add(known - 1)
    for i in set(ran) - needed:
        after = [n for n in needed if n > i]
        target = min(after) if after else known
        assert not any(i < k <= target for k in usable), (i, "a boundary spares it")
        assert after or not can_exit, (i, "the exit spares it")


SELECTIONS: list[tuple[str | None, dict[str, list[float]]]] = [
    (None, {"x": [0, 1, 2]}),
    ("", {"x": [0, 1, 2]}),
    ("x=1", {"x": [1], "y": [0, 1, 2]}),
    ("x=1:", {"x": [1, 2]}),
    ("x=:1", {"x": [0]}),
    ("x=:", {"x": [0, 1, 2]}),
    ("x=::2", {"x": [0, 2]}),
    ("x=1::2", {"x": [1]}),
    ("x=0:2,y=2", {"x": [0, 1], "y": [2]}),
    ("x=0:2;y=2", {"x": [0, 1], "y": [2]}),
    ("x=0:2 y=2", {"x": [0, 1], "y": [2]}),
    ("x=-1:1", {"x": [0]}),
    ("x=1:,x=:2", {"x": [1]}),
]


@pytest.mark.parametrize(("text", "taken"), SELECTIONS)
def test_selections(text: str | None, taken: dict[str, list[float]]) -> None:
    """What `--select` takes of 0, 1 and 2."""
    selection = parse_selection(text)
    for name, values in taken.items():
        assert [value for value in (0, 1, 2) if selection.takes(name, value)] == values


@pytest.mark.parametrize("text", ["x", "x=", "=3", "x=a", "x=1:2:0", "x=1:2:3:4", "x=1.5", "x==3", "x=3:y"])
def test_selections_that_are_none(text: str) -> None:
    """They are refused with what was written."""
    with pytest.raises(UsageError, match="--select"):
        parse_selection(text)


@pytest.mark.parametrize("value", [True, "1", None, (1,)])
def test_values_that_are_no_numbers(value: Any) -> None:
    """The number of the iteration stands for them; a variable that is not named takes all."""
    assert value_or_number(value, 7) == 7
    assert value_or_number(2.5, 7) == 2.5
    assert parse_selection("y=1").takes("x", 7)
    assert Selection().takes("x", 7)


def test_negative_steps() -> None:
    """A step counts from the start, downwards as upwards."""
    assert parse_selection("x=::-2").takes("x", 4)
