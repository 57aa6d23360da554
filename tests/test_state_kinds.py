"""State: kinds of objects beyond the common ones, each compared with values that come from elsewhere."""

from __future__ import annotations

import abc
import concurrent.futures
import contextvars
import copy
import csv
import dataclasses
import decimal
import functools
import io
import json
import logging
import mmap
import multiprocessing
import multiprocessing.pool
import pickle
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor
from test_state import Here, Keyed, Plain, Session, carried, round_trip

from florhook.state.kinds import settings as worlds
from florhook.state.kinds.base import Missing
from florhook.state.restore import CannotRestoreError
from florhook.state.scan import Root, Scan

np = pytest.importorskip("numpy")


# Python --------------------------------------------------------------------------------------------------------


class Early:
    def hello(self) -> str:
        return "early"


class Late:
    def hello(self) -> str:
        return "late"


class BranchError(Exception):
    """One whose `__init__` takes other arguments than it keeps."""

    def __init__(self, where: str, *, depth: int) -> None:
        super().__init__(f"{where} at {depth}")
        self.depth = depth


class Singleton:
    pass


SINGLETON = Singleton()


def test_a_changed_class_is_restored_in_both_directions() -> None:
    """Changed in the record and not yet in the replay, and changed in the replay only."""
    made: list[Any] = []

    def make() -> dict[str, Any]:
        thing = Early()
        made.append(thing)
        return {"t": thing, "classes": (Early, Late)}

    def change(s: dict[str, Any]) -> None:
        s["t"].__class__ = Late

    state = carried(make, change)
    assert state["t"] is made[1]
    assert state["t"].hello() == "late"
    session = Session(make())
    kept = session.capture()
    session.state["t"].__class__ = Late
    session.restore(kept)
    assert session.state["t"].hello() == "early"


def test_exceptions_keep_what_they_say() -> None:
    """Arguments, attributes, notes, cause and context, fields in C; `__init__` is not run again."""

    def change(s: dict[str, Any]) -> None:
        try:
            try:
                open("/nowhere/at/all")  # noqa: SIM115
            except OSError as error:
                raise BranchError("here", depth=3) from error
        except BranchError as error:
            error.__notes__ = ["a note"]  # type: ignore[attr-defined]
            s["e"] = error
        s["stop"], s["exit"] = StopIteration(5), SystemExit(3)
        s["decode"] = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")

    expected: dict[str, Any] = {}
    change(expected)
    state = carried(dict, change)
    error, wanted = state["e"], expected["e"]
    assert (str(error), error.args, error.depth, error.__notes__) == (
        "here at 3",
        ("here at 3",),
        3,
        ["a note"],
    )
    assert error.__context__ is error.__cause__
    assert error.__traceback__ is None
    cause = error.__cause__
    assert (str(cause), cause.errno, cause.filename) == (str(wanted.__cause__), 2, "/nowhere/at/all")
    assert type(cause) is FileNotFoundError
    assert (state["stop"].value, state["exit"].code) == (5, 3)
    assert str(state["decode"]) == str(expected["decode"])


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups came with 3.11")
def test_exception_groups() -> None:
    """Their parts are read-only: they are made with them."""
    make: Any = getattr(__builtins__, "ExceptionGroup", None) or __builtins__["ExceptionGroup"]  # type: ignore[index]
    state = carried(dict, lambda s: s.update(g=make("two", [ValueError(1), BranchError("b", depth=1)])))
    assert [repr(part) for part in state["g"].exceptions] == ["ValueError(1)", "BranchError('b at 1')"]


def test_frozen_sets_inside_each_other() -> None:
    """Hashes are taken once all members have their attributes; members are shared with the rest."""

    def change(s: dict[str, Any]) -> None:
        one, two = Keyed("one"), Keyed("two")
        inner = frozenset([one])
        s.update(one=one, table={frozenset([inner, two]): "both", inner: "inner"}, plain=frozenset("ab"))

    state = carried(dict, change)
    one, two = Keyed("one"), Keyed("two")
    assert state["table"][frozenset([frozenset([one]), two])] == "both"
    assert state["table"][frozenset([one])] == "inner"
    assert next(iter(list(state["table"])[1])) is state["one"]
    assert state["plain"] == {"a", "b"}


def make_class(base: type = object) -> type:
    bonus = 10

    class Local(base):  # type: ignore[misc]
        """A class of a function."""

        count = 0
        __slots__ = (
            ("slot",) if hasattr(base, "__dictoffset__") and base.__dictoffset__ else ("__dict__", "slot")
        )

        def __init__(self, value: int) -> None:
            super().__init__()
            self.value, self.slot = value, -value

        def total(self) -> int:
            nonlocal bonus
            bonus += 1
            return int(self.value + bonus)

        @property
        def double(self) -> int:
            return 2 * int(self.value)

        @staticmethod
        def static() -> str:
            return "static"

        @classmethod
        def named(cls) -> str:
            return cls.__name__

    return Local


@pytest.mark.parametrize("base", [object, Early, abc.ABC])
def test_classes_born_inside_a_loop(base: type) -> None:
    """Methods, properties, data, slots, closures and `super()`; instances belong to it."""

    def change(s: dict[str, Any]) -> None:
        made = make_class(base)
        made.count = 7  # type: ignore[attr-defined]
        s.update(cls=made, a=made(1))
        s["a"].total()

    state = carried(dict, change)
    made, a = state["cls"], state["a"]
    assert (type(a), made.__mro__[1]) == (made, base)
    assert (a.value, a.slot, a.double, a.static(), a.named(), made.count) == (1, -1, 2, "static", "Local", 7)
    assert (a.total(), made(2).total()) == (13, 15)
    assert (made.__doc__, made.__qualname__) == ("A class of a function.", "make_class.<locals>.Local")


def test_dataclasses_born_inside_a_loop() -> None:
    """Their fields are compared with one-off objects of the library, which stay those."""

    def change(s: dict[str, Any]) -> None:
        @dataclasses.dataclass
        class Point:
            x: int
            y: Any = dataclasses.field(default_factory=list)

        s.update(cls=Point, p=Point(3), missing=dataclasses.MISSING)

    state = carried(dict, change)
    assert dataclasses.asdict(state["p"]) == {"x": 3, "y": []}
    assert state["cls"](4) != state["p"]
    assert [f.name for f in dataclasses.fields(state["cls"])] == ["x", "y"]
    assert state["missing"] is dataclasses.MISSING


def test_classes_that_cannot_be_made_say_so() -> None:
    """Making one would run the program's `__init_subclass__` again."""

    class Registering:
        def __init_subclass__(cls) -> None:
            pass

    def change(s: dict[str, Any]) -> None:
        s["cls"] = type("New", (Registering,), {"__module__": "nowhere"})

    with pytest.raises(CannotRestoreError, match=r"class nowhere\.New was defined inside a loop"):
        carried(lambda: {"base": Registering}, change)


def test_what_is_made_from_others_reads_their_content() -> None:
    """An object of C code copies from what it is made from, which must not be empty then."""

    def change(s: dict[str, Any]) -> None:
        s["numbers"] = [3, 1, 2]
        s["view"] = functools.partial(max, s["numbers"])
        s["iterator"] = iter(s["numbers"])
        s["reader"] = Reader(bytearray(b"abc" * 300))

    state = carried(dict, change)
    assert state["view"]() == 3
    assert state["view"].args[0] is state["numbers"]
    assert bytes(state["reader"]) == b"abc" * 300


class Reader(bytes):
    pass


def test_thread_locals() -> None:
    """The main thread's attributes."""
    local = threading.local()
    local.value, local.gone = [1], 1

    class Mine(threading.local):
        limit = 5

    def change(s: dict[str, Any]) -> None:
        local.value.append(2)
        del local.gone
        s["new"] = threading.local()
        s["new"].shared = local.value

    state = round_trip({"l": local, "cls": Mine}, change, lambda s: local.__dict__.clear())
    assert local.__dict__ == {"value": [1, 2]}
    assert state["new"].shared is local.value


def test_context_variables() -> None:
    """Values in the context of the loop; defaults; what had no value cannot lose one."""
    step: contextvars.ContextVar[Any] = contextvars.ContextVar("step", default=0)
    unset: contextvars.ContextVar[Any] = contextvars.ContextVar("unset")

    def change(s: dict[str, Any]) -> None:
        step.set([4])
        s["new"] = contextvars.ContextVar("new", default="d")

    state = round_trip({"step": step, "unset": unset}, change, lambda s: step.set(9))
    assert step.get() == [4]
    assert state["new"].get() == "d"
    session = Session({"unset": unset})
    kept = session.capture()
    unset.set(1)
    with pytest.raises(CannotRestoreError, match="context variable unset had no value"):
        session.restore(kept)


# State outside the graph ---------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[dict[str, Any]]:
    """A state with Python's and NumPy's settings, which are as before after the test."""
    Session({"array": np.zeros(1)}).scan()  # from the first scan of it on NumPy's settings are known
    with warnings.catch_warnings(), decimal.localcontext(), np.errstate():
        options, disabled = np.get_printoptions(), logging.root.manager.disable
        yield {"python": worlds.WORLDS["python"], "numpy": worlds.WORLDS["numpy"]}
        np.set_printoptions(**options)
        logging.disable(disabled)


def test_settings_of_the_process(world: dict[str, Any]) -> None:
    """Warnings, decimal numbers, NumPy's error state and print options."""

    def change(s: dict[str, Any]) -> None:
        warnings.filterwarnings("ignore", "odd .*", UserWarning)
        decimal.getcontext().prec = 5
        np.seterr(over="raise")
        np.set_printoptions(precision=2)

    def spoil(s: dict[str, Any]) -> None:
        warnings.resetwarnings()
        decimal.getcontext().prec = 50
        np.seterr(over="ignore")
        np.set_printoptions(precision=9)

    round_trip(world, change, spoil)
    with warnings.catch_warnings(record=True) as seen:
        warnings.warn("odd thing", UserWarning, stacklevel=1)
    assert seen == []
    assert str(decimal.Decimal(1) / 3) == "0.33333"
    with pytest.raises(FloatingPointError):
        np.float32(3e38) * np.float32(10)
    assert str(np.array([1 / 3])) == "[0.33]"


def test_loggers(world: dict[str, Any]) -> None:
    """Levels and handlers of named loggers, whether the program keeps them in a variable or not."""
    handler, other = logging.NullHandler(), logging.NullHandler()
    logger = logging.getLogger("a.b")

    def change(s: dict[str, Any]) -> None:
        logger.setLevel("DEBUG")
        logger.addHandler(handler)

    def spoil(s: dict[str, Any]) -> None:
        logger.setLevel("ERROR")
        logger.handlers[:] = [other]
        logging.getLogger("a.c").setLevel("INFO")

    round_trip({**world, "handler": handler}, change, spoil)
    assert (logger.level, logger.handlers, logging.getLogger("a.c").level) == (logging.DEBUG, [handler], 0)
    assert logger.isEnabledFor(logging.DEBUG)
    logger.setLevel(0)
    logger.handlers.clear()


def test_loggers_of_libraries(world: dict[str, Any]) -> None:
    """Their levels are the process's, whatever imports have made of them meanwhile; a logger does not lead to them."""
    library = logging.getLogger("json.decoder")

    def change(s: dict[str, Any]) -> None:
        s["logger"] = logging.getLogger("a.d")
        library.setLevel("DEBUG")
        library.propagate = False

    def spoil(s: dict[str, Any]) -> None:
        library.setLevel("ERROR")
        library.propagate = True
        logging.getLogger("json.encoder").setLevel("INFO")

    state = round_trip(world, change, spoil)
    assert (library.level, library.propagate) == (logging.DEBUG, False)
    assert logging.getLogger("json.encoder").level == 0
    assert vars(state["logger"])["manager"] is logging.root.manager
    scan = Session({"logger": state["logger"]}).scan()
    assert [each.name for each in scan.objects if isinstance(each, logging.Logger)] == ["a.d", "root"]
    library.setLevel(0)
    library.propagate = True


# What stands for something outside the process -----------------------------------------------------------------


def executor() -> Any:
    return concurrent.futures.ThreadPoolExecutor(1)


RESOURCES: dict[str, Callable[[], Any]] = {
    "process": lambda: multiprocessing.Process(target=print),
    "pipe": lambda: multiprocessing.Pipe()[0],
    "queue": multiprocessing.SimpleQueue,
    "mp lock": multiprocessing.Lock,
    "popen": lambda: subprocess.Popen(["true"], stdout=subprocess.PIPE),
    "executor": executor,
    "temporary": tempfile.NamedTemporaryFile,
}


@pytest.mark.parametrize("name", RESOURCES)
@pytest.mark.filterwarnings("ignore")
def test_resources_are_never_plain_instances(name: str) -> None:
    """Born since the entry, they do not forbid the checkpoint; a placeholder stands for them until it is used."""
    session = Session({})
    session.state["r"] = resource = RESOURCES[name]()
    assert session.scan().blockers(session.entry) == []
    kept = session.capture()
    session.restore(kept)
    assert type(session.state["r"]) is Missing
    with pytest.raises(CannotRestoreError, match="which no checkpoint holds"):
        session.state["r"].close()
    for end in ("wait", "close", "shutdown"):
        with_end = getattr(resource, end, None)
        if with_end is not None:
            with_end()


def test_idle_pools_stay_as_they_are() -> None:
    """A pool that was there at the entry is the same object; while it works, nothing is recorded."""
    gate = threading.Event()
    with executor() as pool:
        session = Session({"pool": pool})
        assert pool.submit(int, "5").result() == 5
        while pool._idle_semaphore._value == 0:
            pass
        assert session.scan().blockers(session.entry) == []
        future = pool.submit(gate.wait)
        assert session.scan().blockers(session.entry) == [
            "ThreadPoolExecutor has changed since the loop was entered"
        ]
        gate.set()
        future.result()


def ended_executor() -> Any:
    with executor() as pool:
        pool.submit(int, "5").result()
    return pool


def ended_process() -> Any:
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()
    return process


def ended_pool() -> Any:
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert pool.map(abs, [-1, 2]) == [1, 2]
    pool.join()
    return pool


def closed_socket() -> Any:
    with socket.socket() as closed:
        return closed


def closed_map() -> Any:
    with mmap.mmap(-1, 8) as closed:
        return closed


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("make", [ended_executor, ended_process, ended_pool, closed_socket, closed_map])
def test_what_has_ended_forbids_nothing(make: Callable[[], Any]) -> None:
    """A pool, process, socket or map that a `with` statement has left: it can be in one state only."""
    ended = make()
    session = Session({"ended": ended, "flag": [1]})
    assert session.scan().blockers(session.entry) == []
    assert session.scan().entangled() == []
    session.state["flag"].append(2)
    kept = session.capture()
    session.state["flag"].clear()
    session.restore(kept)
    assert (session.state["ended"] is ended, session.state["flag"]) == (True, [1, 2])


NAMES = """
import concurrent.futures, threading
names = []
def work():
    names.append(threading.current_thread().name)
def pooled():
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: threading.current_thread().name).result()
for epoch in range(3):
    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    names.append(pooled())
for epoch in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    names.append(pooled())
"""


def test_threads_are_numbered_as_in_the_run(flor: Flor) -> None:
    """By hand: six threads and three pools in the first loop, so the second goes on with 7 and 3."""
    flor.write("train.py", NAMES)
    flor("train.py", FLOR_EPSILON="inf")
    flor.write("train.py", NAMES + "    print('@@', epoch, names[-2].split()[0], names[-1])\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    wanted = "@@ 0 Thread-7 ThreadPoolExecutor-3_0\n@@ 1 Thread-8 ThreadPoolExecutor-4_0\n"
    assert (done.returncode, done.stdout) == (0, wanted)
    assert "run in full" not in done.stderr, "a thread that is over is an object as any other"
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"] > 0


def test_flags_of_decimal_numbers_are_restored_and_not_compared() -> None:
    """A print of a third raises flags."""
    context = decimal.Context(prec=5)
    session = Session({"context": context})
    kept, wanted = session.capture(), session.bytes()
    assert str(context.divide(1, 3)) == "0.33333"
    assert context.flags[decimal.Inexact]
    assert session.bytes() == wanted
    session.restore(kept)
    assert not context.flags[decimal.Inexact]


def test_running_threads_forbid_a_checkpoint() -> None:
    """Nobody touches a thread that works: a placeholder would not be noticed."""
    gate = threading.Event()
    session = Session({"gate": gate})
    session.state["thread"] = thread = threading.Thread(target=gate.wait, name="worker")
    assert session.scan().blockers(session.entry) == []
    thread.start()
    assert session.scan().blockers(session.entry) == ["thread worker has changed since the loop was entered"]
    gate.set()
    thread.join()
    assert session.scan().blockers(session.entry) == []


@pytest.mark.parametrize(
    "use",
    [
        lambda m: isinstance(m, dict), lambda m: m == 1, hash, lambda m: m < 1, float, copy.copy, copy.deepcopy,
        lambda m: f"{m}", lambda m: np.asarray(m) + 1, lambda m: m.length, lambda m: 1 @ m, list, dir,
    ],
)  # fmt: skip
def test_whatever_is_asked_of_a_placeholder_counts(use: Callable[[Any], Any]) -> None:
    """Even questions that every object answers would be answered wrongly."""
    session = Session({})
    session.state["new"] = csv.writer(io.StringIO())
    session.restore(session.capture())
    with pytest.raises(CannotRestoreError):
        use(session.state["new"])


def test_placeholders_as_keys() -> None:
    """A restore may put one into a set: that is no use of it."""
    session = Session({})
    session.state["set"] = {csv.writer(io.StringIO())}
    session.restore(session.capture())
    assert [type(each) for each in session.state["set"]] == [Missing]


def test_text_files_in_the_middle_of_an_iteration(tmp_path: Path) -> None:
    """Such a file does not tell its position: there is no checkpoint until it does again."""
    path = tmp_path / "lines"
    path.write_text("1\n2\n3\n")
    with path.open() as file:
        session = Session({"f": file})
        for _ in file:
            break
        assert session.scan().blockers(session.entry) == [
            "TextIOWrapper has changed since the loop was entered"
        ]
        rest = list(file)
        assert rest == ["2\n", "3\n"]
        assert session.scan().blockers(session.entry) == []


# NumPy ---------------------------------------------------------------------------------------------------------


def test_arrays_with_objects_in_them() -> None:
    """Lists of one length, arrays without dimensions, Fortran's order and fields: each item as it is."""
    inner = np.array(5)

    def change(s: dict[str, Any]) -> None:
        lists = np.empty(2, dtype=object)
        lists[0], lists[1] = [1, 2], [3, 4]
        fortran = np.empty((2, 3), dtype=object, order="F")
        for i in range(2):
            for j in range(3):
                fortran[i, j] = (i, j)
        fields = np.zeros(3, dtype=[("a", object), ("b", "f8", (2,)), ("c", [("d", object), ("e", "i4")])])
        fields["a"], fields["b"], fields["c"]["d"], fields["c"]["e"] = ["x"], 2.5, [None], [1, 2, 3]
        fields["a"][1] = lists[0]
        nothing = np.empty(1, dtype=object)
        nothing[:] = np.fromiter([inner], dtype=object, count=1)
        s.update(lists=lists, fortran=fortran, fields=fields, nothing=nothing)

    state = carried(dict, change)
    assert state["lists"].tolist() == [[1, 2], [3, 4]]
    assert state["fortran"].tolist() == [[(0, 0), (0, 1), (0, 2)], [(1, 0), (1, 1), (1, 2)]]
    assert state["fortran"].flags.f_contiguous
    assert state["fields"]["a"][1] is state["lists"][0]
    assert state["fields"]["b"].tolist() == [[2.5, 2.5]] * 3
    assert state["fields"]["c"].tolist() == [(None, 1), (None, 2), (None, 3)]
    assert type(state["nothing"][0]) is np.ndarray


def test_functions_of_frompyfunc() -> None:
    """They have no state, and no import finds them: live ones stay, born ones are placeholders."""
    known = np.frompyfunc(abs, 1, 1)
    session = Session({"known": known, "add": np.add, "flag": [1]})
    assert session.scan().blockers(session.entry) == []
    session.state["half"] = np.vectorize(lambda x: x / 2, otypes=[float])
    assert session.state["half"]([4, 6]).tolist() == [2, 3]
    kept = session.capture()
    session.state["flag"].clear()
    session.restore(kept)
    assert (session.state["known"] is known, session.state["add"] is np.add) == (True, True)
    assert session.state["flag"] == [1]


def test_masked_arrays() -> None:
    """Mask, fill value and data, in place and new; `masked` itself is one object."""
    old = np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0], fill_value=-1)

    def change(s: dict[str, Any]) -> None:
        old[0] = np.ma.masked
        s["new"] = np.ma.masked_less(np.arange(5), 2)
        s["none"] = np.ma.array([1, 2])
        s["masked"] = old[0]

    def spoil(s: dict[str, Any]) -> None:
        old.mask = False
        old[:] = 0

    state = round_trip({"old": old}, change, spoil)
    assert str(old) == "[-- -- 3.0]"
    assert old.filled().tolist() == [-1, -1, 3]
    assert str(state["new"]) == "[-- -- 2 3 4]"
    assert state["none"].mask is np.ma.nomask
    assert state["masked"] is np.ma.masked


def test_arrays_of_other_types() -> None:
    """Dates, records, text of any length, a dtype changed in place, views of views."""
    cast = np.arange(4, dtype=np.int32)

    def change(s: dict[str, Any]) -> None:
        s["dates"] = np.array(["2020-01-02", "NaT"], dtype="datetime64[ns]")
        s["record"] = np.rec.array([(1, 2.0)], dtype=[("x", int), ("y", float)])
        s["base"] = np.arange(100.0)
        s["view"] = s["base"][10:50][::2].reshape(4, 5).T[1:]
        if hasattr(np.dtypes, "StringDType"):
            s["strings"] = np.array(["a", "b" * 99], dtype=np.dtypes.StringDType())
        s["cast"] = cast.view(np.float32)

    state = round_trip({"old": cast}, change, lambda s: s.pop("view"))
    assert str(state["dates"]) == "['2020-01-02T00:00:00.000000000'                           'NaT']"
    assert (state["record"].x[0], type(state["record"])) == (1, np.recarray)
    state["view"][:] = -1
    assert state["base"][12] == -1
    assert state["base"][10] == 10
    assert state["cast"].base is state["old"]
    if "strings" in state:
        assert state["strings"].tolist() == ["a", "b" * 99]


def test_mapped_arrays(tmp_path: Path) -> None:
    """Read only: the file is what it is. Writable: nobody knows, so that nothing is recorded."""
    np.arange(10, dtype=np.uint16).tofile(tmp_path / "data")
    read = np.memmap(tmp_path / "data", dtype=np.uint16, mode="r")
    session = Session({"r": read, "part": read[2:4], "bytes": np.frombuffer(b"abcd" * 9, np.uint8)})
    assert session.scan().blockers(session.entry) == []
    session.restore(session.capture())
    assert session.state["part"].tolist() == [2, 3]
    write = np.memmap(tmp_path / "data", dtype=np.uint16, mode="r+")
    session = Session({"w": write})
    assert session.scan().blockers(session.entry) == ["memmap has changed since the loop was entered"]


def test_sparse_arrays_of_scipy() -> None:
    """Classes written in Python around arrays, changed in place."""
    sparse = pytest.importorskip("scipy.sparse")

    def make() -> dict[str, Any]:
        return {
            "m": sparse.csr_matrix(np.eye(4)),
            "l": sparse.lil_matrix((3, 3)),
            "d": sparse.dok_matrix((3, 3)),
        }

    def change(s: dict[str, Any]) -> None:
        s["m"].data *= 3
        s["m"].resize((5, 4))
        s["l"][1, 2] = 4
        s["d"][0, 1] = 5
        s["new"] = sparse.coo_array(([1.0], ([0], [2])), shape=(2, 3))
        s["stack"] = sparse.vstack([s["m"], s["m"]])

    expected = make()
    change(expected)
    state = carried(make, change)
    for name in ("m", "l", "d", "new", "stack"):
        assert state[name].toarray().tolist() == expected[name].toarray().tolist(), name


def test_memory_behind_a_view_that_nobody_sees() -> None:
    """What was never written differs from process to process, and is no state."""

    def change(fill: int) -> Callable[[dict[str, Any]], None]:
        def make(s: dict[str, Any]) -> None:
            memory = np.full(1000, fill)
            memory[:600] = 1
            s["part"], s["pair"] = memory[:600], np.full(9, fill)
            s["pair"] = (s["pair"], s["pair"][2:4])

        return make

    sessions = [Session({}) for _ in range(2)]
    for fill, session in enumerate(sessions):
        change(fill)(session.state)
        session.state["pair"][0][:] = 5
    assert sessions[0].bytes() == sessions[1].bytes()
    kept = sessions[0].capture()
    sessions[1].restore(kept)
    part, (whole, middle) = sessions[1].state["part"], sessions[1].state["pair"]
    assert part.tolist() == [1] * 600
    middle[:] = 7
    assert whole.tolist() == [5, 5, 7, 7, 5, 5, 5, 5, 5]


def test_sparse_arrays_of_pydata() -> None:
    """COO and GCXS, new ones and ones whose attributes were set."""
    sparse = pytest.importorskip("sparse")

    def change(s: dict[str, Any]) -> None:
        s["c"] = sparse.concatenate([s["c"], s["c"]]).reshape((2, 8))
        s["g"].data[:] = 7
        s["d"][1, 1] = 3.0

    def make() -> dict[str, Any]:
        eye = sparse.COO(np.eye(2).reshape(1, 4).repeat(2, 0))
        return {"c": eye, "g": sparse.GCXS(eye), "d": sparse.DOK((2, 2))}

    expected = make()
    change(expected)
    state = carried(make, change)
    for name in ("c", "g", "d"):
        assert state[name].todense().tolist() == expected[name].todense().tolist(), name


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_views_of_arrays_that_were_unpickled(protocol: int) -> None:
    """Such an array lies over the bytes that it came from, and so do its views with gaps."""

    def make() -> dict[str, Any]:
        whole = pickle.loads(pickle.dumps(np.arange(12.0).reshape(3, 4), protocol))
        return {"part": whole[:2, :3], "whole": whole, "row": whole[1]}

    def change(s: dict[str, Any]) -> None:
        s["part"] += 10
        s["new"] = s["whole"][:, 1:3]

    session = Session(make())
    change(session.state)
    assert session.scan().blockers(session.entry) == []
    state = carried(make, change)
    assert state["whole"].tolist() == [[10, 11, 12, 3], [14, 15, 16, 7], [8, 9, 10, 11]]
    state["whole"][1, 1] = 0.0
    assert (state["part"][1, 1], state["row"][1], state["new"][1, 0]) == (0.0, 0.0, 0.0)


def test_trees_of_sklearn() -> None:
    """Objects of C code that read arrays while they are made."""
    tree = pytest.importorskip("sklearn.tree")
    x, y = np.random.default_rng(1).normal(size=(50, 3)), np.arange(50) % 3

    def change(s: dict[str, Any]) -> None:
        s["t"] = tree.DecisionTreeClassifier(random_state=1).fit(x, y)

    expected: dict[str, Any] = {}
    change(expected)
    state = carried(dict, change)
    assert state["t"].predict_proba(x).tolist() == expected["t"].predict_proba(x).tolist()
    assert Plain not in type(state["t"]).__mro__


@pytest.mark.parametrize("size", [3, 30, 300, 3000])
@pytest.mark.parametrize("make", [int, float], ids=["int", "float"])
def test_sets_that_shrank_iterate_as_they_did(size: int, make: Callable[[int], Any]) -> None:
    """A set keeps the table of the time when it was large, and its order, in which `pop` takes the items."""

    def change(s: dict[str, Any]) -> None:
        s["old"].update(map(make, range(7, size)))
        s["new"] = set(map(make, range(size, 2 * size)))
        for name in ("old", "new"):
            while len(s[name]) > 5:
                s[name].pop()

    def start() -> dict[str, Any]:
        return {"old": {make(1)}}

    expected = start()
    change(expected)
    state = carried(start, change)
    for name in ("old", "new"):
        assert list(state[name]) == list(expected[name])


# What is restored in place, or is no state ---------------------------------------------------------------------


class Twice(functools.partial):  # type: ignore[type-arg]
    """A partial of a class of its own."""


def add_to(values: list[int], *more: int, by: int = 1) -> list[int]:
    values += [each * by for each in more]
    return values


def test_partials_are_restored_in_place() -> None:
    """Whoever holds one holds it still; arguments are shared with the program."""

    def make() -> dict[str, Any]:
        values: list[int] = []
        return {
            "values": values,
            "held": functools.partial(add_to, values, by=2),
            "twice": Twice(add_to, [1]),
        }

    def change(s: dict[str, Any]) -> None:
        s["held"](3)
        s["held"].keywords["by"] = 5
        s["twice"].__dict__["note"] = "mine"
        s["born"] = functools.partial(add_to, s["values"], 4)

    state = make()
    session = Session(state)
    held = state["held"]
    change(state)
    kept = session.capture()
    held.keywords["by"] = 100
    held.args[0].clear()
    session.restore(kept)
    assert state["held"] is held
    assert held(1) == [6, 5]
    assert state["values"] == [6, 5]

    s = carried(make, change)
    assert s["held"](2) == [6, 10] == s["values"]
    assert s["born"]() is s["values"]
    assert s["values"] == [6, 10, 4]
    assert (type(s["twice"]), s["twice"].note, s["twice"](2)) == (Twice, "mine", [1, 2])


def test_what_a_logger_remembers_of_levels_is_no_state() -> None:
    """Asking changes nothing; after a restore the levels are those of the record."""
    logger = logging.Logger("own", logging.INFO)  # noqa: LOG001
    session = Session({"logger": logger})
    before = session.bytes()
    assert not logger.isEnabledFor(logging.DEBUG)
    assert session.bytes() == before
    kept = session.capture()
    logger.level = logging.DEBUG  # `setLevel` would forget the answers of all
    logger._cache.clear()  # type: ignore[attr-defined]
    assert logger.isEnabledFor(logging.DEBUG)
    session.restore(kept)
    assert not logger.isEnabledFor(logging.DEBUG)


def test_what_rich_draws_by_the_clock_is_no_state() -> None:
    """Two bars that went the same way at other times are equal; one that was restored goes on."""
    progress = pytest.importorskip("rich.progress")
    console = pytest.importorskip("rich.console")
    streams = []
    for seconds in (0.0, 0.05):
        bar = progress.Progress(console=console.Console(file=io.StringIO()), auto_refresh=False)
        bar.add_task("epochs", total=4)
        task, columns = bar.tasks[0], bar.columns
        session = Session({"columns": columns, "task": task})
        time.sleep(seconds)
        bar.update(task.id, advance=2)
        for column in columns:
            column(task)
        streams.append(session.bytes()[0])
        kept = session.capture()
        bar.update(task.id, advance=2)
        assert task.finished_time is not None
        session.restore(kept)
        assert (task.completed, task.finished_time) == (2, None)
        bar.update(task.id, advance=2)
        assert task.finished
    assert streams[0] == streams[1]


LIBRARY = """
import ctypes, time
libc = ctypes.CDLL(None)
absolute = libc.labs
absolute.argtypes, absolute.restype = [ctypes.c_long], ctypes.c_long
total = 0
for epoch in range(4):
    time.sleep(0.01)
    total += absolute(-epoch) + libc.abs(-1)
print(total, libc.abs(-7))
"""


def test_shared_libraries_are_those_of_the_process(flor: Flor) -> None:
    """Their handles and addresses are numbers that mean nothing in another process; by hand: 0+1+2+3 and 4 times 1."""
    flor.write("train.py", LIBRARY)
    assert flor("train.py", FLOR_EPSILON="inf").stdout == "10 7\n"
    flor.write("train.py", LIBRARY + "print('@@', total, libc.abs(-8), absolute(-9))\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout, done.stderr) == (0, "@@ 10 8 9\n", "")
    assert json.loads((flor.folder / "stats.json").read_text())["iterations_skipped"] == 4


def test_simple_queues_keep_their_order() -> None:
    """Of one that was taken from, and of one that holds a list alone."""
    taken, single = queue.SimpleQueue[Any](), queue.SimpleQueue[Any]()
    shared = [1, 2]

    def change(state: dict[str, Any]) -> None:
        for item in ("a", shared, None, 4):
            taken.put(item)
        assert taken.get() == "a"
        single.put(shared)

    def spoil(state: dict[str, Any]) -> None:
        taken.get()
        taken.put(5)
        single.get()
        shared.append(3)

    state = round_trip({"taken": taken, "single": single, "shared": shared}, change, spoil)
    assert state["taken"] is taken
    items = [taken.get_nowait() for _ in range(taken.qsize())]
    assert items == [[1, 2], None, 4]
    assert items[0] is single.get_nowait() is shared


def test_code_is_the_same_however_often_it_is_referred_to() -> None:
    """The marshal format tells parts with several references apart, and names that are interned."""
    code = compile("for z in range(3):\n    made.append(z * number)", "<made>", "exec")
    session = Session({"code": code})
    before = session.bytes()
    names = [code.co_names, code.co_consts, *code.co_names]  # more references than before
    same = session.bytes() == before
    assert same
    assert names
    made: list[int] = []
    session.restore(session.capture())
    exec(session.state["code"], {"made": made, "number": 5})
    assert made == [0, 5, 10]


def test_kept_log_records_differ_in_what_was_said_only() -> None:
    """Times and the numbers of process and thread come back, in their places, and are not compared."""
    record = logging.LogRecord("name", logging.INFO, "a.py", 3, "said %d", (7,), None)
    record.process, record.created = 123, 1.5
    session = Session({"record": record})
    kept, wanted, order = session.capture(), session.bytes(), list(vars(record))
    record.process, record.created, record.msecs = 456, 2.5, 0.25
    same = session.bytes() == wanted
    assert same
    record.args = (8,)
    same = session.bytes() == wanted
    assert not same
    session.restore(kept)
    assert (record.process, record.created, record.getMessage()) == (123, 1.5, "said 7")
    assert list(vars(record)) == order


def test_a_view_that_only_a_replay_holds_shows_nothing() -> None:
    """What no view of the program's shows of an array is no state, though the replay still has another view of it."""

    def rows() -> list[Any]:
        return list(np.arange(200.0).reshape(2, 100).copy())

    replayed, recorded = {"rows": rows()}, {"rows": rows()}
    session = Session(replayed)
    session.live.release()
    del replayed["rows"][0], recorded["rows"][0]
    here = Here()
    roots = [Root(("global", "rows"), recorded["rows"])]
    plain = Scan(here, roots)
    now = Scan(here, [Root(("global", "rows"), replayed["rows"])])
    assert [leaf.view.tobytes() for leaf in now.leaves] == [leaf.view.tobytes() for leaf in plain.leaves]
    assert now.leaves[0].view.tobytes()[:800] == bytes(800)
