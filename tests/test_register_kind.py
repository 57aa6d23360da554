"""`florhook.register_kind`: what others tell about their own types."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import ROOT, Flor
from test_state import Session, carried, round_trip

import florhook
from florhook.state.kinds import REGISTRY, load_imported
from florhook.state.kinds.base import Missing
from florhook.state.restore import CannotRestoreError

TABLES: dict[int, list[Any]] = {}  # stands for memory behind a library


class Handle:
    """Holds a number that means something to its library alone."""

    def __init__(self, items: Any = ()) -> None:
        self.number = len(TABLES) + 1
        TABLES[self.number] = list(items)

    def items(self) -> list[Any]:
        return TABLES[self.number]

    def replace(self, items: Any) -> None:
        TABLES[self.number][:] = items


class Derived(Handle):
    pass


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """As it was before the test."""
    load_imported()  # what is loaded in a test would be lost after it
    kept = dict(REGISTRY.exact), list(REGISTRY.derived), dict(REGISTRY.by_name)
    yield
    REGISTRY.exact, REGISTRY.derived, REGISTRY.by_name = kept
    REGISTRY.found.clear()


def test_in_place() -> None:
    """Live objects are written to, new ones are made empty first; what the state refers to is shared."""
    florhook.register_kind(Handle, read=lambda h: tuple(h.items()), make=Handle, write=Handle.replace)
    shared: list[Any] = [1]

    def make() -> dict[str, Any]:
        return {"shared": shared, "old": Handle(["a"])}

    def change(s: dict[str, Any]) -> None:
        s["old"].items().append(s["shared"])
        s["new"] = Handle([s["shared"], s["old"]])

    state = make()
    old = state["old"]
    round_trip(state, change, lambda s: s["old"].replace(()))
    assert state["old"] is old
    assert old.items() == ["a", shared]
    assert state["new"].items()[0] is shared
    assert state["new"].items()[1] is old
    assert carried(make, change)["new"].number != old.number


def test_by_value() -> None:
    """Without `write`, each restore makes another object, from a state that has its content."""
    florhook.register_kind(Handle, read=lambda h: list(h.items()), make=lambda items: Handle(list(items)))
    state = carried(dict, lambda s: s.update(h=Handle([1, 2]), again=[s.get("h")]))
    assert state["h"].items() == [1, 2]


def test_subclasses_are_covered_where_that_was_said() -> None:
    """Otherwise they are what they would be without the registration."""
    florhook.register_kind(
        Handle, read=lambda h: tuple(h.items()), make=Derived, write=Handle.replace, subclasses=True
    )
    state = carried(dict, lambda s: s.update(d=Derived([3])))
    assert (type(state["d"]), state["d"].items()) == (Derived, [3])


def test_a_type_written_in_c() -> None:
    """One that nothing can be read of: registered, it does not forbid a checkpoint any more."""
    session = Session({"z": zlib.compressobj()})
    session.state["z"].compress(b"x")
    assert session.scan().blockers(session.entry) != []
    florhook.register_kind(
        type(zlib.compressobj()),
        read=lambda z: z.copy().flush(),
        make=zlib.compressobj,
        write=lambda z, state: None,
    )
    session = Session({"z": zlib.compressobj()})
    session.state["z"].compress(b"x")
    assert session.scan().blockers(session.entry) == []
    session.state["new"] = zlib.compressobj()
    session.restore(session.capture())
    assert type(session.state["new"]) is not Missing


@pytest.mark.parametrize(
    "wrong", [{"cls": 5}, {"read": None}, {"make": 3}, {"write": "x"}], ids=lambda wrong: next(iter(wrong))
)
def test_wrong_arguments_are_refused_at_once(wrong: dict[str, Any]) -> None:
    """Not at the first checkpoint, where nobody sees it."""
    right: dict[str, Any] = {"cls": Handle, "read": len, "make": Handle}
    with pytest.raises(TypeError, match="register_kind"):
        florhook.register_kind(**{**right, **wrong})


def test_what_fails_in_a_registered_function_is_contained() -> None:
    """The checkpoint is refused by the recorder; a restore is given up."""
    florhook.register_kind(Handle, read=lambda h: tuple(h.items()), make=Handle, write=lambda h, s: 1 / 0)
    session = Session({"h": Handle()})
    with pytest.raises(ZeroDivisionError):
        session.restore(session.capture())
    assert issubclass(CannotRestoreError, Exception)


def test_importing_florhook_imports_nothing() -> None:
    """Programs may import it to register a kind, recorded or not."""
    code = "import sys; before = set(sys.modules); import florhook; print(sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "['florhook']"


def test_a_registered_kind_is_recorded_and_replayed(flor: Flor) -> None:
    """End to end: the program registers its own type, the loop is skipped, its state is there."""
    flor.write(
        "train.py",
        """
        import florhook

        class Counter:
            def __init__(self):
                self.handle = open("/dev/null")

        COUNTS = Counter()
        florhook.register_kind(Counter, read=lambda c: total[0], make=Counter, write=lambda c, n: setattr(c, "n", n))
        total = [0]
        for step in range(3):
            total[0] += step
            COUNTS.n = total[0]
        print("end", COUNTS.n)
        """,
    )
    assert flor("train.py", FLOR_EPSILON="inf").stdout == "end 3\n"
    flor.write("train.py", (flor.folder / "train.py").read_text() + 'print("more", COUNTS.n)\n')
    replay = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats")
    assert replay.stdout == "more 3\n", replay.stderr
    assert '"blocks_skipped": 1' in (flor.folder / "stats").read_text()
