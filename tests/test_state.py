"""State: what a scan sees, a restore puts back into the live objects, with every identity."""

from __future__ import annotations

import _thread
import array
import collections
import contextlib
import copy
import csv
import dataclasses
import enum
import functools
import gc
import hashlib
import io
import itertools
import queue
import random
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import types
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from florhook.state.kinds import REGISTRY
from florhook.state.kinds.base import Missing
from florhook.state.live import Live
from florhook.state.restore import CannotRestoreError, Loader
from florhook.state.scan import Entry, Root, Scan

np = pytest.importorskip("numpy")


class Here:
    """The environment of a scan: this module is the user's; code is marshalled."""

    def __init__(self, *modules: str) -> None:
        self.user_modules = {__name__, *modules}

    def code_key(self, code: types.CodeType) -> None:
        return None

    def variables(self, code: types.CodeType) -> None:
        return None

    def free_variables(self, code: types.CodeType) -> tuple[str, ...]:
        return code.co_freevars

    def find_code(self, key: tuple[Any, ...]) -> types.CodeType:
        import marshal

        return marshal.loads(key[1])  # type: ignore[no-any-return]


@dataclasses.dataclass
class Kept:
    """A checkpoint: bytes alone."""

    names: list[tuple[Any, ...]]
    stream: bytes
    table: bytes
    leaves: list[bytes]


class Session:
    """The state of a little program: a dict of roots, entered once, captured and restored."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.here = Here()
        state.setdefault("classes", CLASSES)  # as the globals of a program hold them
        self.enter(state)

    def enter(self, state: dict[str, Any]) -> None:
        self.state = state
        scan = self.scan()
        self.entry = Entry(scan)
        self.live = Live.of(scan)

    def scan(self) -> Scan:
        return Scan(self.here, [Root(("global", name), value) for name, value in self.state.items()])

    def capture(self) -> Kept:
        scan = self.scan()
        leaves = [leaf.view.tobytes() for leaf in scan.leaves]
        return Kept([s.name for s in scan.segments], scan.stream, scan.table(self.entry), leaves)

    def restore(self, kept: Kept, touched: Any = None) -> None:
        more = () if touched is None else (touched,)
        if self.live.let_go:
            self.live.find(self.scan())
        loader = Loader(self.here, kept.stream, kept.table, kept.leaves.__getitem__, self.live, *more)
        values = loader.load(kept.names)
        self.state.clear()
        self.state.update((name[1], value) for name, value in values.items())

    def bytes(self) -> tuple[bytes, list[bytes]]:
        scan = self.scan()
        return scan.stream, [leaf.view.tobytes() for leaf in scan.leaves]


def round_trip(
    state: dict[str, Any], change: Callable[[dict[str, Any]], Any], spoil: Callable[[dict[str, Any]], Any]
) -> dict[str, Any]:
    """Enter with `state`, `change` it, capture, `spoil` it, restore; then a scan gives the same bytes again."""
    session = Session(state)
    change(state)
    kept, wanted = session.capture(), session.bytes()
    spoil(state)
    session.restore(kept)
    same = session.bytes() == wanted  # pytest would take minutes to show how they differ
    assert same
    return state


def carried(make: Callable[[], dict[str, Any]], change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """As a replay does: captured from one state, restored into another that was made by the same steps."""
    recorded, replayed = make(), make()
    first, second = Session(recorded), Session(replayed)
    change(recorded)
    kept, wanted = first.capture(), first.bytes()
    second.restore(kept)
    same = second.bytes() == wanted
    assert same
    return replayed


# Objects of each kind: entered, changed, spoiled ---------------------------------------------------------------


class Plain:
    kind = "plain"

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def method(self) -> Any:
        return self.__dict__.get("value")


class Slotted:
    __slots__ = ("a", "b")


class Both(Slotted):
    __slots__ = ("__dict__", "c")


@dataclasses.dataclass(slots=True)
class Point:
    x: Any = 0
    y: Any = 0


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    left: Any
    right: Any


class MyList(list):  # type: ignore[type-arg]
    pass


class MyDict(dict):  # type: ignore[type-arg]
    pass


class Text(str):
    pass


class Attributed(MyDict):
    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


class Other(Plain):
    pass


class Keyed:
    """Hashes by its attribute."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Keyed) and self.name == other.name


CLASSES = (Plain, Slotted, Both, Point, Color, Pair, MyList, MyDict, Text, Attributed, Other, Keyed)


def test_containers_come_back_in_place() -> None:
    """Every container is the same object with the recorded content, in the recorded order."""
    state: dict[str, Any] = {
        "list": [1, [2]], "dict": {"a": 1}, "set": {1, 2}, "deque": collections.deque([1], maxlen=3),
        "counter": collections.Counter("aab"), "default": collections.defaultdict(list, a=[1]),
        "ordered": collections.OrderedDict(a=1, b=2), "bytes": bytearray(b"abc"), "array": array.array("d", [1.0]),
        "mine": MyList([1]), "attributed": Attributed(a=1),
    }  # fmt: skip
    before = dict(state)
    everything = dict(state)

    def change(s: dict[str, Any]) -> None:
        s["list"][1].append(s["list"])
        s["dict"].update(b=s["set"], a=2)
        s["set"].add("x")
        s["deque"].extend([2, 3, 4])
        s["counter"].update("bc")
        s["default"]["b"].append(s["deque"])
        s["ordered"].move_to_end("a")
        s["bytes"] += b"d" * 1000
        s["array"].extend([2.0] * 100)
        s["mine"].append(s["mine"])
        s["mine"].tag = "tag"
        s["attributed"].b = 5

    def spoil(s: dict[str, Any]) -> None:
        for value in everything.values():
            value.clear() if hasattr(value, "clear") else value.pop()

    round_trip(state, change, spoil)
    assert all(state[name] is before[name] for name in before)
    assert state["list"][1][1] is state["list"]
    assert state["dict"] == {"b": {1, 2, "x"}, "a": 2}
    assert list(state["dict"]) == ["a", "b"]
    assert state["dict"]["b"] is state["set"]
    assert state["deque"] == collections.deque([2, 3, 4], maxlen=3)
    assert state["deque"].maxlen == 3
    assert state["counter"] == collections.Counter("aabbc")
    assert state["default"]["b"][0] is state["deque"]
    assert state["default"]["new"] == []
    assert list(state["ordered"]) == ["b", "a"]
    assert state["bytes"] == b"abc" + b"d" * 1000
    assert state["array"] == array.array("d", [1.0] + [2.0] * 100)
    assert state["mine"][1] is state["mine"]
    assert state["mine"].tag == "tag"
    assert state["attributed"] == {"a": 1, "b": 5}


def test_objects_born_since_the_entry_are_made() -> None:
    """New objects of every kind, with what they share, hang where they hung."""

    def change(s: dict[str, Any]) -> None:
        shared: list[Any] = []
        slotted = Slotted()
        slotted.a = shared
        both = Both()
        both.c, both.free = slotted, shared
        s["all"] = [
            shared, slotted, both, Point(shared, slotted), Plain(value=shared), Pair(shared, 1), Color.BLUE,
            collections.deque([shared], maxlen=5), collections.Counter("ab"), collections.defaultdict(list, a=shared),
            collections.OrderedDict(a=shared), bytearray(b"x" * 1000), array.array("i", [1, 2]), MyList([shared]),
            Attributed(a=shared), {Keyed("k"): shared}, {Keyed("m"), Keyed("n")}, frozenset([1]), range(3), slice(1, 2),
        ]  # fmt: skip
        shared.append(s["all"])

    state = round_trip({"all": []}, change, lambda s: s["all"].clear())
    shared, slotted, both, point, plain, pair, color, deque, counter = state["all"][:9]
    default, ordered, data, numbers, mine, attributed, keyed, keys = state["all"][9:17]
    assert shared == [state["all"]]
    assert shared[0] is state["all"]
    held = [slotted.a, both.free, point.x, plain.value, pair.left, deque[0], default["a"], ordered["a"]]
    for each in (*held, mine[0], attributed.a, keyed[Keyed("k")]):
        assert each is shared
    assert not hasattr(slotted, "b")
    assert (both.c, point.y) == (slotted, slotted)
    assert color is Color.BLUE
    assert (deque.maxlen, counter, data, numbers) == (
        5,
        collections.Counter("ab"),
        b"x" * 1000,
        array.array("i", [1, 2]),
    )
    assert default["missing"] == []
    assert keys == {Keyed("m"), Keyed("n")}
    assert type(mine) is MyList


def test_bound_slots_are_unbound_again() -> None:
    """A slot or attribute that was not there is not there."""
    slotted = Slotted()
    slotted.a = 1
    plain = Plain(x=1)

    def spoil(s: dict[str, Any]) -> None:
        slotted.b = 2
        plain.z = 3

    def change(s: dict[str, Any]) -> None:
        del slotted.a
        del plain.x
        plain.y = 2

    round_trip({"s": slotted, "p": plain}, change, spoil)
    assert (hasattr(slotted, "a"), hasattr(slotted, "b"), vars(plain)) == (False, False, {"y": 2})


def test_instances_change_their_class() -> None:
    """`obj.__class__ = Other` in a loop is part of the state."""
    thing = Plain(value=1)

    def change(s: dict[str, Any]) -> None:
        thing.__class__ = Other

    def spoil(s: dict[str, Any]) -> None:
        thing.__class__ = Plain

    round_trip({"t": thing}, change, spoil)
    assert type(thing) is Other


def counter_of(start: int) -> tuple[Callable[[], int], Callable[[], int]]:
    count = start
    unset: Any

    def bump(step: int = 1, *, history: Any = ()) -> int:
        nonlocal count
        count += step
        return count

    def read() -> int:
        return count

    def later() -> None:
        nonlocal unset
        unset = 1

    bump.later = later  # type: ignore[attr-defined]
    return bump, read


def test_closures_share_their_cells() -> None:
    """Functions keep their identity, cells, defaults and attributes, those made since the entry included."""
    bump, read = counter_of(10)

    def change(s: dict[str, Any]) -> None:
        bump()
        bump.tag = [read]  # type: ignore[attr-defined]
        bump.__defaults__ = (5,)
        bump.__kwdefaults__["history"] = [1]
        s["new"] = counter_of(100)
        s["new"][0]()
        s["partial"] = functools.partial(bump, 2)
        s["method"] = s["plain"].method
        s["lambda"] = lambda x=s["plain"]: x

    def spoil(s: dict[str, Any]) -> None:
        bump(1000)
        del bump.tag  # type: ignore[attr-defined]
        bump.__defaults__ = None
        s["new"][0](1000)

    state = round_trip({"bump": bump, "read": read, "plain": Plain(value=3)}, change, spoil)
    assert (state["bump"], state["read"]) == (bump, read)
    assert (read(), bump(), read()) == (11, 16, 16)
    assert bump.tag[0] is read  # type: ignore[attr-defined]
    assert bump.__kwdefaults__ == {"history": [1]}
    assert state["new"][1]() == 101
    assert (state["new"][0](), state["new"][1]()) == (102, 102)
    assert (state["partial"].func, state["partial"](), read()) == (bump, 18, 18)
    assert (state["method"](), state["method"].__self__) == (3, state["plain"])
    assert state["lambda"]() is state["plain"]


def test_class_attributes_are_state() -> None:
    """Data of the user's classes comes back; definitions stay."""
    before = Plain.method

    def change(s: dict[str, Any]) -> None:
        Plain.kind = "changed"
        Plain.count = [1]  # type: ignore[attr-defined]

    def spoil(s: dict[str, Any]) -> None:
        Plain.kind = "spoiled"
        Plain.count.append(2)  # type: ignore[attr-defined]
        Plain.extra = 1  # type: ignore[attr-defined]

    try:
        round_trip({"Plain": Plain}, change, spoil)
        assert (Plain.kind, Plain.count, hasattr(Plain, "extra")) == ("changed", [1], False)  # type: ignore[attr-defined]
        assert Plain.method is before
    finally:
        Plain.kind = "plain"
        del Plain.count  # type: ignore[attr-defined]


def test_class_attributes_of_instances_are_state() -> None:
    """A user's class that only an instance leads to is captured too."""

    def change(s: dict[str, Any]) -> None:
        Plain.kind = "changed"

    def spoil(s: dict[str, Any]) -> None:
        Plain.kind = "spoiled"

    try:
        round_trip({"p": Plain()}, change, spoil)
        assert Plain.kind == "changed"
    finally:
        Plain.kind = "plain"


def test_weak_references() -> None:
    """They refer to the restored objects; what nothing else holds is dead."""
    target, other = Plain(value=1), Plain(value=2)
    values = weakref.WeakValueDictionary({"a": target})  # type: ignore[var-annotated]
    keys = weakref.WeakKeyDictionary({target: [1]})  # type: ignore[var-annotated]
    members = weakref.WeakSet([target])

    def change(s: dict[str, Any]) -> None:
        s["ref"] = weakref.ref(other)
        values["b"] = other
        keys[other] = s["ref"]
        members.discard(target)
        members.add(other)
        s["born"] = born = Plain(value=3)
        s["born ref"] = weakref.ref(born)
        s["dead"] = weakref.ref(Plain())

    def spoil(s: dict[str, Any]) -> None:
        values.clear()
        keys.clear()
        members.clear()
        s["ref"] = s["born"] = s["born ref"] = None

    state = round_trip({"t": target, "o": other, "v": values, "k": keys, "m": members}, change, spoil)
    assert state["ref"]() is other
    assert state["born ref"]() is state["born"]
    assert state["dead"]() is None
    assert (dict(values), list(members)) == ({"a": target, "b": other}, [other])
    assert keys[other]() is other


def test_weak_references_to_methods() -> None:
    """As matplotlib keeps who is to be called: the restored object's method, until that is gone, which is told once."""
    target, told = Plain(), []  # type: ignore[var-annotated]
    heard = {weakref.WeakMethod(target.method): 1}

    def change(s: dict[str, Any]) -> None:
        other = s["other"] = Plain()
        heard[weakref.WeakMethod(other.method, told.append)] = 2
        s["dead"] = weakref.WeakMethod(Plain().method)

    def spoil(s: dict[str, Any]) -> None:
        heard.clear()
        told.append("spoilt")
        s["other"] = s["dead"] = None

    state = round_trip({"t": target, "heard": heard, "told": told}, change, spoil)
    first, second = heard
    assert first() == target.method
    assert second() == state["other"].method
    assert (heard[weakref.WeakMethod(state["other"].method)], state["dead"](), told) == (2, None, [])
    del state["other"]
    gc.collect()
    assert [each() for each in told] == [None]


def test_random_generators_go_on_as_recorded() -> None:
    """Python's and NumPy's, old and new ones, with a normal deviate kept over."""
    state: dict[str, Any] = {
        "py": random.Random(1), "old": np.random.RandomState(1), "new": np.random.default_rng(1),
        "mt": np.random.Generator(np.random.MT19937(1)), "philox": np.random.Generator(np.random.Philox(1)),
    }  # fmt: skip

    def draw(s: dict[str, Any]) -> list[Any]:
        deviates = [s[name].normal() for name in ("old", "new", "mt", "philox")]
        return [
            s["py"].random(),
            s["py"].gauss(0, 1),
            *deviates,
            s["new"].integers(100),
            s["mt"].integers(9, dtype=np.uint32),
        ]

    def change(s: dict[str, Any]) -> None:
        draw(s)
        s["born py"], s["born old"] = random.Random(2), np.random.RandomState(2)
        s["born new"] = np.random.default_rng(2)

    expected = copy.deepcopy(state)
    change(expected)
    before = dict(state)
    round_trip(state, change, draw)
    assert all(state[name] is before[name] for name in before)
    assert [draw(state) for _ in range(3)] == [draw(expected) for _ in range(3)]
    assert state["born py"].random() == expected["born py"].random()
    assert state["born old"].normal() == expected["born old"].normal()
    assert state["born new"].normal() == expected["born new"].normal()


def test_a_capture_draws_nothing() -> None:
    """No generator is a step further after a scan."""
    mine: dict[str, Any] = {
        "py": random.Random(5),
        "old": np.random.RandomState(5),
        "new": np.random.default_rng(5),
        "a": np.arange(999),
    }
    states = (
        random.getstate(),
        repr(np.random.get_state()),
        mine["py"].getstate(),
        repr(mine["old"].get_state()),
        mine["new"].bit_generator.state,
    )
    Session(mine).capture()
    assert states == (
        random.getstate(),
        repr(np.random.get_state()),
        mine["py"].getstate(),
        repr(mine["old"].get_state()),
        mine["new"].bit_generator.state,
    )


# NumPy ---------------------------------------------------------------------------------------------------------


def arrays() -> dict[str, Any]:
    base = np.arange(600, dtype=np.float64).reshape(20, 30)
    shared: list[int] = []
    holder = np.empty(3, dtype=object)
    holder[:] = [shared, "b", None]
    return {
        "base": base, "rows": base[3:7], "column": base[:, 2], "reversed": base[::-1, ::2], "transposed": base.T,
        "fortran": np.asfortranarray(np.arange(400.0).reshape(20, 20)), "zero": np.array(5), "empty": np.zeros((0, 3)),
        "objects": holder, "shared": shared, "text": np.array(["a", "bcd"]), "bool": np.array([True] * 700),
        "viewed": base.view(np.int64), "broadcast": np.broadcast_to(np.arange(3), (4, 3)),
        "complex": np.ones(50, complex),
        "permuted": np.arange(600.0).reshape(2, 3, 100).transpose(2, 0, 1).copy(order="K"),
    }  # fmt: skip


def same_arrays(found: dict[str, Any], expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            got = found[name]
            assert (got.dtype, got.shape, got.strides, got.flags.writeable) == (
                value.dtype,
                value.shape,
                value.strides,
                value.flags.writeable,
            ), name
            assert got.tobytes() == value.tobytes() or value.dtype.hasobject, name
    assert found["objects"][0] is found["shared"]
    for name in ("rows", "column", "reversed", "transposed", "viewed"):
        assert np.shares_memory(found[name], found["base"]), name


def change_arrays(s: dict[str, Any]) -> None:
    s["base"] *= 2
    s["rows"][:] = 7
    s["fortran"][1, 2] = -1
    s["zero"][()] = 9
    s["objects"][2] = s["base"]
    s["shared"].append(1)
    s["text"][0] = "zzz"
    s["permuted"] += 1


def spoil_arrays(s: dict[str, Any]) -> None:
    s["base"][:] = -5
    s["fortran"].fill(0)
    s["zero"][()] = 0
    s["objects"][:] = None
    s["permuted"].fill(0)
    s["bool"][:] = False


def test_arrays_come_back_in_place() -> None:
    """Values, order, views and objects inside: as recorded, in the same memory."""
    state, expected = arrays(), arrays()
    change_arrays(expected)
    before = dict(state)
    addresses = {n: a.__array_interface__["data"] for n, a in state.items() if isinstance(a, np.ndarray)}
    round_trip(state, change_arrays, spoil_arrays)
    assert all(state[name] is before[name] for name in before)
    assert addresses == {
        n: a.__array_interface__["data"] for n, a in state.items() if isinstance(a, np.ndarray)
    }
    same_arrays(state, expected)
    assert state["objects"][2] is state["base"]


def test_arrays_born_since_the_entry_are_made() -> None:
    """New arrays have the recorded order and share memory as recorded."""
    expected = arrays()
    change_arrays(expected)

    def change(s: dict[str, Any]) -> None:
        s.update(arrays())
        change_arrays(s)

    state = round_trip({"old": np.arange(5)}, change, lambda s: None)
    same_arrays(state, expected)


def test_writing_through_a_restored_view_is_seen() -> None:
    """A view is a view again, of an array that existed as of one that did not."""

    def change(s: dict[str, Any]) -> None:
        s["view"] = s["base"][2:4]
        s["new"] = np.ones((30, 30), order="F")
        s["new view"] = s["new"][:, 3]

    state = round_trip({"base": np.zeros(900)}, change, lambda s: s.pop("view"))
    state["view"][:] = 3
    state["new view"][:] = 4
    assert state["base"][:5].tolist() == [0, 0, 3, 3, 0]
    assert state["new"][5, 2:5].tolist() == [1, 4, 1]


def test_read_only_arrays() -> None:
    """`flags.writeable` is state."""
    fixed = np.arange(300.0)

    def change(s: dict[str, Any]) -> None:
        fixed[0] = 5
        fixed.flags.writeable = False

    def spoil(s: dict[str, Any]) -> None:
        fixed.flags.writeable = True
        fixed[0] = 6

    round_trip({"fixed": fixed}, change, spoil)
    assert (fixed[0], fixed.flags.writeable) == (5, False)


def test_arrays_can_be_resized_in_place_while_recorded() -> None:
    """What the program may do to its arrays is what it may do without a recording; all that hold one share it."""
    grown = np.arange(5.0)
    state = round_trip(
        {"g": grown, "h": [grown]},
        lambda _: grown.resize(700, refcheck=False),
        lambda _: grown.resize(2, refcheck=False),
    )
    assert state["g"] is state["h"][0]
    assert (state["g"].shape, state["g"][4]) == ((700,), 4)


def test_resized_arrays_are_restored_in_place() -> None:
    """A caller's frame holds the array, where no other can be put."""
    grown = np.arange(5.0)
    state = round_trip(
        {"g": grown},
        lambda _: grown.resize(700, refcheck=False),
        lambda _: grown.resize(2, refcheck=False),
    )
    assert state["g"] is grown
    assert (grown.shape, grown[4]) == ((700,), 4)


def test_structured_arrays_born_since_the_entry_are_made() -> None:
    """In a process of its own, since it dies."""
    code = """
        from test_state import Session, np
        state = {}
        session = Session(state)
        state["a"] = np.zeros(40, dtype=[("a", "i4"), ("b", "f8", (2,))])
        session.restore(session.capture())
        assert state["a"].dtype.names == ("a", "b")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parent, capture_output=True
    )
    assert done.returncode == 0


@pytest.mark.parametrize("make", [lambda: Text("x"), lambda: ValueError("x")])
def test_attributes_of_values(make: Callable[[], Any]) -> None:
    """Instances of classes that derive from values, and exceptions, keep their attributes."""
    value = make()
    value.tag = [1]
    state = round_trip({}, lambda s: s.update(v=value), lambda s: s.pop("v"))
    assert state["v"].tag == [1]


def test_uuids() -> None:
    """Values whose pickle state is a dict."""
    import uuid

    value = uuid.UUID(int=5)
    assert round_trip({}, lambda s: s.update(v=value), lambda s: s.pop("v"))["v"] == value


@pytest.mark.parametrize("typed", [False, True])
def test_caches_with_a_limit(typed: bool) -> None:
    """Which entry goes next is as recorded; by hand: 2 was asked for again, so that of 2, "a", x=3 the second goes."""
    asked: list[Any] = []

    @functools.lru_cache(maxsize=4, typed=typed)
    def ask(*args: Any, **named: Any) -> Any:
        asked.append((args, named))
        return [args, named]

    session = Session({"ask": ask})
    for each in (0, 1, 2, "a"):
        ask(each)
    ask(2)
    ask(1, x=3)
    kept, wanted, info = session.capture(), session.bytes(), ask.cache_info()
    for each in range(20):
        ask(each)
    session.restore(kept)
    assert session.bytes() == wanted
    assert ask.cache_info() == info == (1, 5, 4, 4)
    asked.clear()
    assert [ask(2), ask(1, x=3), ask("a"), asked] == [[(2,), {}], [(1,), {"x": 3}], [("a",), {}], []]
    ask(9)  # for which 1 goes
    assert [ask(2), ask(1), asked] == [[(2,), {}], [(1,), {}], [((9,), {}), ((1,), {})]]


def test_frozen_sets_of_instances() -> None:
    """Members that hash by their attributes."""
    key = frozenset([Keyed("a")])
    assert round_trip({}, lambda s: s.update(v={key: 1}), lambda s: s.pop("v"))["v"] == {key: 1}


def _with(manager: Any) -> None:
    with manager:
        pass


# What cannot be captured ---------------------------------------------------------------------------------------


def test_live_opaque_objects_stay_new_ones_say_what_they_were() -> None:
    """A writer that was there is there; one born since says so when it is used, not before."""
    writer = csv.writer(io.StringIO())
    state: dict[str, Any] = {"writer": writer}
    session = Session(state)
    state["new"] = [csv.writer(io.StringIO())]
    state["holder"] = Plain(value=state["new"][0])
    kept = session.capture()
    session.restore(kept)
    assert state["writer"] is writer
    missing = state["new"][0]
    assert state["holder"].value is missing
    for use in (
        lambda: missing.writerow([]),
        lambda: missing.__enter__(),
        lambda: len(missing),
        lambda: setattr(missing, "a", 1),
    ):
        with pytest.raises(
            CannotRestoreError, match=r"object of type _csv\.writer, which no checkpoint holds"
        ):
            use()
    session.restore(kept, touched=lambda reason: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # the replayer's own reaction
        state["new"][0].writerow([])


@pytest.mark.parametrize(
    "use",
    [
        repr,
        str,
        _with,
        lambda m: m + 1,
    ],
)
def test_placeholders_are_touched_by_whatever_uses_them(use: Callable[[Any], Any]) -> None:
    """The program never sees the placeholder itself."""
    state: dict[str, Any] = {}
    session = Session(state)
    state["new"] = csv.writer(io.StringIO())
    session.restore(session.capture())
    with pytest.raises(CannotRestoreError):
        use(state["new"])


def test_what_holds_methods_of_a_lock_is_restored() -> None:
    """Events, conditions and queues hold `lock.acquire`, which is the method of the lock that they have."""
    state: dict[str, Any] = {}
    session = Session(state)
    state["event"], state["flag"], state["queue"] = threading.Event(), [1], queue.Queue()
    state["queue"].put(5)
    session.restore(session.capture())
    assert state["flag"] == [1]
    assert state["queue"].get() == 5
    assert state["queue"].not_empty.acquire.__self__ is state["queue"].mutex
    assert not state["event"].is_set()
    assert not state["event"].wait(0.001)


def test_a_lock_of_another_thread_has_no_copy() -> None:
    """Whose it is cannot be told: one that is alive stays as it is, a new one says so when it is used."""
    state: dict[str, Any] = {"old": threading.Lock()}
    session = Session(state)
    state["new"] = [threading.Lock(), threading.RLock(), threading.Lock()]
    done, holds = threading.Event(), threading.Event()

    def hold() -> None:
        with state["old"], state["new"][0], state["new"][1]:
            holds.set()
            done.wait()

    # A thread that the program knows nothing of: one of its own would forbid the checkpoint.
    _thread.start_new_thread(hold, ())
    holds.wait()
    count, threading.active_count = threading.active_count, lambda: 2
    try:
        kept = session.capture()
    finally:
        threading.active_count = count
        done.set()
    session.restore(kept)
    assert [type(each) for each in state["new"]] == [Missing, Missing, type(threading.Lock())]


def test_sockets_and_files(tmp_path: Path) -> None:
    """A file that is read is positioned; a new socket is a placeholder."""
    path = tmp_path / "text"
    path.write_text("one\ntwo\nthree\n")
    with path.open() as file, socket.socket() as server:
        state: dict[str, Any] = {"file": file}
        session = Session(state)
        file.readline()
        state["socket"] = server
        kept = session.capture()
        file.read()
        session.restore(kept)
        assert state["file"] is file
        assert file.readline() == "two\n"
        with pytest.raises(CannotRestoreError, match="socket"):
            state["socket"].send(b"")


def numbers_up() -> Any:
    n = 0
    while True:
        yield n
        n += 1


def test_generators_that_moved_on_are_placeholders() -> None:
    """One that stands where it stood at the entry is live; a placeholder says so when it is drawn from.

    A finished generator is finished again.
    """
    moved, still, ends = numbers_up(), numbers_up(), iter([1])
    session = Session({"m": moved, "s": still, "e": (x for x in ends), "z": zip(moved, [1, 2], strict=False)})
    next(moved)
    assert session.scan().blockers(session.entry) == []
    list(session.state["e"])
    kept = session.capture()
    again = numbers_up()
    session.state.update(m=moved, s=still)
    session.restore(kept)
    assert session.state["s"] is still
    assert list(session.state["e"]) == []
    assert again is not session.state["m"]
    with pytest.raises(CannotRestoreError, match="generator numbers_up"):
        next(session.state["m"])
    with pytest.raises(CannotRestoreError, match="generator numbers_up"):
        next(session.state["z"])


def test_generators_that_others_hold_block_a_checkpoint() -> None:
    """Where a loop around, or the frame of another generator, draws from it, no placeholder can be put."""
    moved = numbers_up()

    def wrapping(inner: Any) -> Any:
        yield from inner

    around = wrapping(moved)
    next(around)
    session = Session({"m": moved, "a": around})
    next(moved)
    assert session.scan().blockers(session.entry) == ["numbers_up has changed since the loop was entered"]
    session = Session({"m": moved})
    next(moved)
    assert session.scan().blockers(session.entry, pinned={id(moved)}) != []


def test_opaque_objects_that_may_have_changed_block_a_checkpoint() -> None:
    """Of an unknown type: always; of one that tells: once it says so; of one without a state: never."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        hashed = hashlib.sha256()
        session = Session({"c": connection, "l": threading.Lock(), "m": types.MappingProxyType({})})
        assert session.scan().blockers(session.entry) == []
        connection.execute("create table t (x)")
        connection.execute("insert into t values (1)")
        assert session.scan().blockers(session.entry) == ["Connection has changed since the loop was entered"]
        session = Session({"h": hashed, "z": zlib.compressobj()})
        assert session.scan().blockers(session.entry) == ["Compress has changed since the loop was entered"]
        hashed.update(b"x")
        assert "HASH has changed since the loop was entered" in session.scan().blockers(session.entry)


ITERATORS: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3, 4]),
    "range": lambda: iter(range(9)),
    "count": lambda: itertools.count(3),
    "cycle": lambda: itertools.cycle([1, 2]),
    "enumerate": lambda: enumerate([1, 2, 3]),
    "zip": lambda: zip([1, 2, 3], range(9), strict=False),
    "map": lambda: map(abs, [1, -2, 3]),
    "chain": lambda: itertools.chain([1, 2], [3]),
    "dict": lambda: iter({"a": 1, "b": 2, "c": 3}),
    "items": lambda: iter({"a": 1, "b": 2, "c": 3}.items()),
    "set": lambda: iter({1, 2, 3}),
}


@pytest.mark.parametrize("name", ITERATORS)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="itertools cannot be pickled any more")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_iterators_of_python_are_positioned(name: str) -> None:
    """Iterators that pickle can take apart are where they were, under one identity."""
    REGISTRY.found.clear()  # an earlier test may have met them with their warnings as errors
    state: dict[str, Any] = {}
    session = Session(state)
    iterator, expected = ITERATORS[name](), ITERATORS[name]()
    state["a"] = state["b"] = iterator
    next(iterator), next(expected)
    kept = session.capture()
    next(iterator)
    session.restore(kept)
    assert state["a"] is state["b"]
    assert next(state["a"]) == next(expected)


@pytest.mark.parametrize("name", ["list", "range"])
def test_live_iterators_are_positioned(name: str) -> None:
    """The same for an iterator that was there at the entry."""
    state: dict[str, Any] = {"a": ITERATORS[name]()}
    session = Session(state)
    next(state["a"])
    kept = session.capture()
    next(state["a"])
    session.restore(kept)
    expected = ITERATORS[name]()
    next(expected)
    assert next(state["a"]) == next(expected)


# torch ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


def training(torch: Any) -> dict[str, Any]:
    """A program in the middle of a training, with all that hangs together in it."""
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30), torch.nn.ReLU(), torch.nn.Linear(30, 2)
    )
    net[3].tied = net[0].bias
    opt = torch.optim.AdamW(net.parameters(), lr=0.1)
    state = {
        "net": net,
        "opt": opt,
        "sched": torch.optim.lr_scheduler.StepLR(opt, 2),
        "x": torch.randn(8, 20),
    }
    base = torch.arange(600.0)
    state.update(
        base=base, view=base[10:20], square=base.view(20, 30).t(), rng=torch.Generator().manual_seed(3)
    )
    return {
        **state,
        "half": torch.ones(300, dtype=torch.bfloat16),
        "scalar": torch.tensor(3),
        "numpy": base.numpy(),
        "best": 9.0,
    }


def step(torch: Any, s: dict[str, Any]) -> None:
    loss = s["net"](s["x"]).square().mean()
    s["opt"].zero_grad()
    loss.backward()
    s["opt"].step()
    s["sched"].step()
    s["view"] += torch.rand(10, generator=s["rng"])
    s["half"] *= 2
    s["scalar"] += 1
    s["best"] = min(s["best"], loss.item())
    s["loss"] = loss


def print_of(torch: Any, s: dict[str, Any]) -> list[Any]:
    """Everything that the program could print of it."""
    opt, net = s["opt"], s["net"]
    tensors = [*net.state_dict().values(), *(p.grad for p in net.parameters() if p.grad is not None)]
    moments = [v for p in net.parameters() for v in opt.state.get(p, {}).values()]
    others = [s[name] for name in ("base", "view", "square", "half", "scalar")]
    return [
        [t.tolist() for t in [*tensors, *moments, *others]], s["sched"].state_dict(), s["best"],
        s["rng"].get_state().tolist(), [{k: v for k, v in g.items() if k != "params"} for g in opt.param_groups],
    ]  # fmt: skip


@pytest.mark.needs_torch
def test_a_training_comes_back_in_place(torch: Any) -> None:
    """Model, optimizer with its moments, scheduler, views and generators; then it goes on as recorded."""
    expected = training(torch)
    for _ in range(2):
        step(torch, expected)
    at_capture = print_of(torch, expected)
    step(torch, expected)
    after = print_of(torch, expected)

    state = training(torch)
    parameters = list(state["net"].parameters())

    def run(s: dict[str, Any]) -> None:
        for _ in range(2):
            step(torch, s)

    round_trip(state, run, run)
    assert print_of(torch, state) == at_capture
    assert all(new is old for new, old in zip(state["net"].parameters(), parameters, strict=True))
    assert all(p is q for p, q in zip(state["opt"].param_groups[0]["params"], parameters, strict=True))
    assert list(state["opt"].state) == parameters
    assert state["net"][3].tied is state["net"][0].bias
    assert state["sched"].optimizer is state["opt"]
    assert state["view"].untyped_storage().data_ptr() == state["base"].data_ptr()
    assert state["numpy"].__array_interface__["data"][0] == state["base"].data_ptr()
    step(torch, state)
    assert print_of(torch, state) == after


@pytest.mark.needs_torch
def test_a_model_born_in_a_loop_is_made(torch: Any) -> None:
    """Folds make their model inside the loop: it comes back with all that hangs together in it."""
    expected = training(torch)
    step(torch, expected)
    del expected["numpy"], expected["loss"]

    def change(s: dict[str, Any]) -> None:
        s.update(training(torch))
        step(torch, s)
        del s["numpy"], s["loss"]

    def spoil(s: dict[str, Any]) -> None:
        for name in list(s):
            if name != "classes":
                del s[name]

    state = round_trip({}, change, spoil)
    assert print_of(torch, state) == print_of(torch, expected)
    step(torch, state)
    step(torch, expected)
    assert print_of(torch, state) == print_of(torch, expected)
    assert isinstance(state["net"][0].weight, torch.nn.Parameter)


@pytest.mark.needs_torch
def test_a_loss_looks_as_it_did_and_cannot_be_differentiated(torch: Any) -> None:
    """A tensor with a graph has its value and its repr; backward through it asks for execution."""
    weight = torch.ones(3, requires_grad=True)
    state: dict[str, Any] = {"w": weight}
    session = Session(state)
    state["loss"] = (weight * 2).sum()
    state["list"] = [state["loss"], weight.exp()]
    texts = [repr(state["loss"]), repr(state["list"][1])]
    kept = session.capture()
    state.pop("loss")
    session.restore(kept)
    loss = state["loss"]
    assert state["list"][0] is loss
    assert [repr(loss), repr(state["list"][1])] == texts
    assert (loss.item(), loss.requires_grad, loss.is_leaf, loss.detach().requires_grad) == (
        6.0,
        True,
        False,
        False,
    )
    with pytest.raises(CannotRestoreError, match="whose graph was not recorded"):
        (loss + weight.sum()).backward()


@pytest.mark.needs_torch
def test_an_array_over_a_tensor_that_was_born(torch: Any) -> None:
    """`tensor.numpy()` shares the tensor's memory, then as before."""

    def change(s: dict[str, Any]) -> None:
        s["t"] = torch.arange(600.0)
        s["n"] = s["t"].numpy()

    state = carried(dict, change)
    assert state["n"].__array_interface__["data"][0] == state["t"].data_ptr()


@pytest.mark.needs_torch
def test_a_loss_that_was_born_is_the_same_state(torch: Any) -> None:
    """A restored tensor with a stand-in for its graph is written as it was recorded."""

    def make() -> dict[str, Any]:
        return {"w": torch.ones(3, requires_grad=True)}

    carried(make, lambda s: s.update(loss=(s["w"] * 2).mean()))


@pytest.mark.needs_torch
def test_a_live_tensor_that_got_a_graph_since(torch: Any) -> None:
    """`total += loss` in place: the tensor of the entry cannot get a graph, so that the loop is executed."""

    def make() -> dict[str, Any]:
        return {"w": torch.ones(3, requires_grad=True), "total": torch.zeros(1)}

    def change(s: dict[str, Any]) -> None:
        s["total"] += s["w"].sum()

    with pytest.raises(CannotRestoreError, match="has got an autograd graph"):
        carried(make, change)


@pytest.mark.needs_torch
def test_gradients_and_flags_are_undone(torch: Any) -> None:
    """No gradient where there was none, `requires_grad` as recorded, shapes and types of `.data` too."""
    p, q = torch.nn.Parameter(torch.ones(200)), torch.nn.Parameter(torch.ones(200))
    frozen, cast = torch.nn.Parameter(torch.ones(3)), torch.nn.Linear(20, 20)

    def change(s: dict[str, Any]) -> None:
        q.sum().backward()
        frozen.requires_grad_(False)

    def spoil(s: dict[str, Any]) -> None:
        (p * 2).sum().backward()
        q.grad = None
        frozen.requires_grad_(True)
        cast.double()

    round_trip({"p": p, "q": q, "f": frozen, "c": cast}, change, spoil)
    assert p.grad is None
    assert q.grad.tolist() == [1.0] * 200
    assert (frozen.requires_grad, cast.weight.dtype, p.is_leaf) == (False, torch.float32, True)


@pytest.mark.needs_torch
def test_a_capture_draws_nothing_from_torch(torch: Any) -> None:
    """Neither the default generator nor the program's own is a step further after a scan."""
    state = training(torch)
    before = (torch.get_rng_state().tolist(), state["rng"].get_state().tolist())
    Session(state).capture()
    assert before == (torch.get_rng_state().tolist(), state["rng"].get_state().tolist())


@pytest.mark.needs_torch
@pytest.mark.parametrize("make", ["to_sparse", "quantize", "nested", "meta"])
def test_tensors_of_other_layouts_never_end_the_recording(torch: Any, make: str) -> None:
    """What has no storage of its own is refused or captured, but never crashes the process."""
    tensor = {
        "to_sparse": lambda: torch.eye(3).to_sparse(),
        "quantize": lambda: torch.empty(3, device="meta"),
        "nested": lambda: torch.ones(3).expand(4, 3),
        "meta": lambda: torch.nn.Parameter(torch.empty(2, device="meta")),
    }[make]()
    state: dict[str, Any] = {"t": tensor}
    try:
        session = Session(state)
    except Exception:
        return  # `Recorder._scan` refuses this checkpoint
    session.restore(session.capture())
    assert state["t"].shape == tensor.shape


# Random graphs -------------------------------------------------------------------------------------------------

MUTABLE = [
    "list",
    "dict",
    "set",
    "deque",
    "default",
    "ordered",
    "plain",
    "slotted",
    "both",
    "point",
    "mine",
    "cell",
    "array",
    "view",
]


class Graph:
    """A heap of objects that refer to each other at random, the same for the same numbers."""

    def __init__(self, kinds: list[str]) -> None:
        self.nodes: list[Any] = []
        for kind in kinds:
            self.add(kind)

    def add(self, kind: str) -> None:
        self.nodes.append(self._make(kind))

    def _make(self, kind: str) -> Any:
        if kind == "view":
            bases = [n for n in self.nodes if isinstance(n, np.ndarray) and n.base is None]
            return bases[0][2:5] if bases else np.arange(100.0)
        return {
            "list": list, "dict": dict, "set": set, "deque": lambda: collections.deque(maxlen=4), "plain": Plain,
            "default": lambda: collections.defaultdict(list), "ordered": collections.OrderedDict, "slotted": Slotted,
            "both": Both, "point": Point, "mine": MyList, "cell": types.CellType, "array": lambda: np.arange(200.0),
        }[kind]()  # fmt: skip

    def link(self, source: int, target: int, key: int) -> None:
        """Put one node (or a value) somewhere into another."""
        a, b = self.nodes[source % len(self.nodes)], self.nodes[target % len(self.nodes)]
        value = (b, key) if key % 3 == 0 else b
        if isinstance(a, np.ndarray):
            a[key % len(a)] = key
        elif isinstance(a, (list, collections.deque)):
            a.append(value)
        elif isinstance(a, dict):
            a.pop(key, None)
            a[key] = value
        elif isinstance(a, set):
            a.symmetric_difference_update({key, str(key)})
        elif isinstance(a, types.CellType):
            a.cell_contents = value
        else:
            setattr(a, {Slotted: "ab", Both: "abcd", Point: "xy"}.get(type(a), "pqr")[key % 2], value)

    def cut(self, source: int, *_: int) -> None:
        """Take something out."""
        a = self.nodes[source % len(self.nodes)]
        if isinstance(a, np.ndarray):
            a[:] = 0
        elif isinstance(a, (list, collections.deque)) and a:
            a.pop()
        elif isinstance(a, dict) and a:
            a.popitem()
        elif isinstance(a, set):
            a.clear()
        elif isinstance(a, Slotted) and hasattr(a, "a"):
            del a.a
        elif isinstance(a, Plain):
            vars(a).clear()

    def drop(self, source: int, *_: int) -> None:
        """Let go of a node."""
        if len(self.nodes) > 1:
            del self.nodes[source % len(self.nodes)]


def fingerprint(root: Any) -> list[Any]:
    """A graph as numbers and values, walked without any of florhook: equal for graphs that are alike."""
    numbers: dict[int, int] = {}
    bases: dict[int, int] = {}  # which arrays share memory; what lies there beside the views is not looked at
    out: list[Any] = []
    work = [root]
    while work:
        obj = work.pop()
        if isinstance(obj, (int, float, str, type(None))):
            out.append(repr(obj))
            continue
        if id(obj) in numbers and not isinstance(obj, tuple):
            out.append(numbers[id(obj)])
            continue
        numbers[id(obj)] = len(numbers)
        parts: list[Any] = []
        if isinstance(obj, np.ndarray):
            base = obj if obj.base is None else obj.base
            parts = [repr(obj.tolist()), bases.setdefault(id(base), len(bases)), obj.strides[0]]
        elif isinstance(obj, (list, tuple, collections.deque)):
            parts = list(obj)
        elif isinstance(obj, dict):
            parts = [part for pair in obj.items() for part in pair]
        elif isinstance(obj, set):
            parts = sorted(map(repr, obj))
        elif isinstance(obj, types.CellType):
            try:
                parts = [obj.cell_contents]
            except ValueError:
                parts = ["empty"]
        else:
            names = [
                *getattr(obj, "__dict__", {}),
                *(n for n in ("a", "b", "c", "x", "y") if n not in getattr(obj, "__dict__", {})),
            ]
            parts = [part for name in names for part in (name, getattr(obj, name, "unset"))]
        out.append((type(obj).__name__, getattr(obj, "maxlen", None), len(parts)))
        work.extend(reversed(parts))
    return out


links = st.tuples(
    st.sampled_from(["link", "link", "cut", "drop"]),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 8),
)
histories = st.tuples(
    st.lists(st.sampled_from(MUTABLE), min_size=1, max_size=12),
    st.lists(links, max_size=25),
    st.lists(st.one_of(links, st.tuples(st.just("add"), st.sampled_from(MUTABLE))), max_size=25),
    st.lists(links, max_size=15),
)


def play(graph: Graph, moves: list[Any]) -> None:
    for name, *arguments in moves:
        getattr(graph, name)(*arguments)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
def test_random_graphs_come_back(history: Any) -> None:
    """Into the process that captured them, further on, and into another one at the entry: node by node as they were."""
    kinds, before, between, after = history
    recorded, replayed = Graph(kinds), Graph(kinds)
    for graph in (recorded, replayed):
        play(graph, before)
    states = [{"nodes": graph.nodes, "graph": graph} for graph in (recorded, replayed)]
    sessions = [Session(state) for state in states]
    play(recorded, between)
    kept, wanted, seen = sessions[0].capture(), sessions[0].bytes(), fingerprint(recorded.nodes)
    alive = [(number, node) for number, node in enumerate(sessions[1].live)]
    play(recorded, after)
    for session, state in zip(sessions, states, strict=True):
        session.restore(kept)
        assert fingerprint(state["nodes"]) == seen
        same = session.bytes() == wanted
        assert same, "the same state is written as the same bytes"
    assert replayed.nodes is states[1]["nodes"]
    assert all(sessions[1].live[number] is node for number, node in alive)
