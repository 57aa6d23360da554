"""Contents that are written by marshal in one piece."""

from __future__ import annotations

import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from florhook.state.packed import Form, pack, unpack


class Obj:
    """Stands for something that has a number."""

    def __init__(self, number: int) -> None:
        self.number = number


class Value:
    """Stands for something that pickle takes."""


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text(st.characters(exclude_categories=()))
    | st.binary()
)
NUMBERED = st.integers(0, 2**40).map(Obj)
VALUES = st.lists(PLAIN | NUMBERED, max_size=6).map(tuple)
PAIRS = st.lists(st.tuples(PLAIN | NUMBERED, PLAIN | NUMBERED), max_size=6).map(
    lambda pairs: (tuple(key for key, _ in pairs), tuple(value for _, value in pairs))
)
SLOTS = st.lists(st.tuples(st.text(max_size=4), PLAIN | NUMBERED), max_size=3).map(tuple)
ATTRIBUTES = st.tuples(st.none() | PAIRS, SLOTS, st.none() | NUMBERED)
CONTENTS = st.lists(
    st.tuples(st.just(Form.ITEMS), VALUES)
    | st.tuples(st.just(Form.PAIRS), PAIRS)
    | st.tuples(st.just(Form.ATTRIBUTES), ATTRIBUTES)
    | st.tuples(st.none(), VALUES),
    max_size=8,
)


def number(value: Any) -> int | None:
    return value.number if isinstance(value, Obj) else None


def shown(value: Any) -> Any:
    """By type and bits; an object by its number."""
    if isinstance(value, tuple):
        return tuple(map(shown, value))
    if isinstance(value, Obj):
        return ("number", value.number)
    return (type(value).__name__, repr(value))


@given(CONTENTS)
def test_comes_back_as_it_was(pairs: list[tuple[Form | None, Any]]) -> None:
    forms, contents = [form for form, _ in pairs], [content for _, content in pairs]
    left = list(contents)
    data = pack(forms, left, number)
    assert [each is None for each in left] == [form is not None for form in forms]
    back = left if data is None else unpack(data, left, Obj)
    assert shown(tuple(back)) == shown(tuple(contents))


@given(CONTENTS)
def test_equal_contents_give_equal_bytes(pairs: list[tuple[Form | None, Any]]) -> None:
    """Whichever of the equal values are one object, and however strings were interned."""
    forms = [form for form, _ in pairs]

    def copied(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([copied(part) for part in value])
        if isinstance(value, str):
            return sys.intern("".join(list(value))) if len(value) % 2 else "".join(list(value))
        return value

    one = pack(forms, [content for _, content in pairs], number)
    other = pack(forms, [copied(content) for _, content in pairs], number)
    assert one == other


def test_what_pickle_has_to_take_is_left() -> None:
    contents: list[Any] = [(1, (2, 3)), ((Value(),), (1,)), (True, 1), (((),), (2,))]
    before = list(contents)
    data = pack([Form.ITEMS, Form.PAIRS, Form.ITEMS, Form.PAIRS], contents, number)
    assert contents == [before[0], before[1], None, before[3]]
    assert data is not None
    assert unpack(data, contents, Obj) == before
    assert type(unpack(data, contents, Obj)[2][0]) is bool


def test_values_of_classes_derived_from_plain_ones_are_left() -> None:
    class Name(str):
        __slots__ = ()

    contents: list[Any] = [(Name("x"),)]
    assert pack([Form.ITEMS], contents, number) is None
    assert contents == [(Name("x"),)]
