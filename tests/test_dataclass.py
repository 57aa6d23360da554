"""Our dataclasses beside the standard library's: the same classes made by both behave the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from florhook import dataclass as ours

MADE = {"ours": ours, "stdlib": dataclasses}


def classes(made: Any) -> SimpleNamespace:
    @made.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 2

        @property
        def sum(self) -> int:
            return self.x + self.y

    @made.dataclass
    class Bag:
        name: str
        items: list[Any] = made.field(default_factory=list)
        hidden: int = made.field(default=7, repr=False)
        end: Point | None = None

    @made.dataclass(eq=False)
    class Node:
        value: int

    @made.dataclass(frozen=True)
    class One:
        value: Any

    @made.dataclass(frozen=True)
    class Own:
        value: int

        def __repr__(self) -> str:
            return "own"

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", self.value + 1)

    return SimpleNamespace(Point=Point, Bag=Bag, Node=Node, One=One, Own=Own)


@pytest.fixture(params=MADE, name="made")
def fixture_made(request: pytest.FixtureRequest) -> SimpleNamespace:
    module = MADE[request.param]
    return SimpleNamespace(module=module, **vars(classes(module)))


def test_constructor_takes_positions_names_and_defaults(made: SimpleNamespace) -> None:
    assert (made.Point(1).x, made.Point(1).y, made.Point(y=5, x=4).sum) == (1, 2, 9)
    first, second = made.Bag("a"), made.Bag("b", hidden=1)
    first.items.append(3)
    assert (first.items, second.items, second.hidden, made.Bag("c", [9]).items) == ([3], [], 1, [9])
    assert made.Own(3).value == 4
    for wrong in (lambda: made.Point(), lambda: made.Point(1, 2, 3), lambda: made.Point(1, z=2)):
        with pytest.raises(TypeError, match="argument"):
            wrong()


def test_equality_and_hash(made: SimpleNamespace) -> None:
    assert made.Point(1) == made.Point(1, 2) != made.Point(1, 3)
    assert len({made.Point(1), made.Point(1, 2), made.Point(2)}) == 2
    assert made.Bag("a") == made.Bag("a") != made.Bag("b")
    assert made.Point(1) != (1, 2)
    assert made.One((1,)) == made.One((1,))
    assert hash(made.One(5)) == hash(made.One(5))
    node = made.Node(1)
    assert node == node != made.Node(1)
    assert hash(node) == hash(node)
    with pytest.raises(TypeError, match="unhashable"):
        hash(made.Bag("a"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(made.One([]))


def test_frozen(made: SimpleNamespace) -> None:
    point = made.Point(1)
    with pytest.raises(AttributeError, match="cannot assign to field 'x'"):
        point.x = 3
    with pytest.raises(AttributeError, match="cannot delete field 'y'"):
        del point.y
    assert (point.x, point.y) == (1, 2)
    bag = made.Bag("a")
    bag.name = "b"
    assert bag.name == "b"


def test_shown(made: SimpleNamespace) -> None:
    assert repr(made.Point(1)).endswith("Point(x=1, y=2)")
    assert repr(made.Bag("a", [1], end=made.Point(3))).count("hidden") == 0
    assert repr(made.Own(1)) == "own"


def test_patterns_and_copies(made: SimpleNamespace) -> None:
    match made.Point(4, 5):
        case made.Point(x, y):
            assert (x, y) == (4, 5)
        case _:
            pytest.fail("no match by position")
    bag = made.Bag("a", [1, [2]], 3, made.Point(1))
    twin = copy.deepcopy(bag)
    assert twin == bag
    assert twin.items[1] is not bag.items[1]


def test_replace_asdict_astuple(made: SimpleNamespace) -> None:
    module, bag = made.module, made.Bag("a", [made.Point(1)], 3, made.Point(8, 9))
    assert module.replace(bag, name="z") == made.Bag("z", [made.Point(1)], 3, made.Point(8, 9))
    assert module.replace(made.Point(1), y=7) == made.Point(1, 7)
    assert module.asdict(bag) == {
        "name": "a",
        "items": [{"x": 1, "y": 2}],
        "hidden": 3,
        "end": {"x": 8, "y": 9},
    }
    assert module.astuple(made.Point(1)) == (1, 2)


@ours.dataclass(frozen=True)
class Sent:
    """Found by pickle under its module's name."""

    path: str
    size: int = 0


def test_pickles() -> None:
    assert pickle.loads(pickle.dumps(Sent("a", 3))) == Sent("a", 3)


def test_astuple_copies_nothing() -> None:
    items = [1]
    assert ours.astuple(Sent(items))[0] is items  # type: ignore[arg-type]


def test_a_recording_starts_without_what_makes_the_standard_ones_slow() -> None:
    code = """
import sys
before = {*sys.modules}
import florhook.begin, florhook.cli, florhook.record
print(*({"dataclasses", "inspect"} & sys.modules.keys() - before))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == []
