"""State: pandas' objects come back with their values, and with who shares whose memory."""

from __future__ import annotations

import gc
import itertools
import json
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Flor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_state import Session, carried, round_trip

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

COPIES = int(pd.__version__.partition(".")[0]) > 2  # whether every write copies what others share


def frame() -> Any:
    return pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "c": ["x", None, "z"]})


# What loops do to frames: the statement, and what it must have made -------------------------------------------


def append_row(s: dict[str, Any]) -> None:
    s["df"].loc[len(s["df"])] = [9, 9.5, "w"]


def add_to_column(s: dict[str, Any]) -> None:
    s["df"]["a"] += 1
    s["df"]["d"] = s["df"]["a"] * 2


def write_cell(s: dict[str, Any]) -> None:
    s["df"].at[1, "b"] = 7.0
    s["df"].iloc[0, 0] = 5


def concatenate(s: dict[str, Any]) -> None:
    s["df"] = pd.concat([s["df"], frame()], ignore_index=True)


def upcast(s: dict[str, Any]) -> None:
    s["df"]["a"] = s["df"]["a"].astype("float32")
    del s["df"]["b"]
    s["df"].index = pd.date_range("2020-01-30", periods=3, tz="Europe/Berlin")


def many_levels(s: dict[str, Any]) -> None:
    s["df"] = s["df"].set_index(["c", "a"])
    s["names"] = s["df"].index.names


def grouped(s: dict[str, Any]) -> None:
    s["means"] = s["df"].groupby(s["df"]["a"] % 2)["b"].mean()
    s["groups"] = s["df"].groupby("c")


def arrays(s: dict[str, Any]) -> None:
    s["df"]["cat"] = pd.Categorical(["u", "v", "u"], categories=["v", "u"], ordered=True)
    s["df"]["when"] = pd.to_datetime(["2020-01-01", None, "2021-05-05"])
    s["df"]["whole"] = pd.array([1, None, 3], dtype="Int64")
    s["df"]["flag"] = pd.array([True, None, False], dtype="boolean")
    s["df"]["text"] = pd.array(["u", None, "w"], dtype="string[python]")
    s["df"]["month"] = pd.period_range("2020-01", periods=3, freq="M")
    s["df"]["range"] = pd.interval_range(0, 3)
    s["df"]["sparse"] = pd.arrays.SparseArray([0.0, 0.0, 1.0])
    s["df"]["took"] = pd.to_timedelta([1, 2, 3], unit="s")
    s["stamps"] = {pd.Timestamp("2020-02-02", tz="UTC"): pd.Timedelta(3, "s"), pd.NaT: pd.Period("2020-03")}


def attributes(s: dict[str, Any]) -> None:
    s["df"].attrs["unit"] = "kg"
    s["df"].flags.allows_duplicate_labels = False
    s["df"].columns.name = "what"


STATEMENTS = (
    append_row, add_to_column, write_cell, concatenate, upcast, many_levels, grouped, arrays, attributes,
)  # fmt: skip


def spoil(s: dict[str, Any]) -> None:
    del s["df"][s["df"].columns[0]]
    s["df"]["spoilt"] = 1


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda each: each.__name__)
def test_what_a_loop_does_to_a_frame_comes_back(statement: Callable[[dict[str, Any]], None]) -> None:
    """In a process that is at the loop's entry, and in the one that went on; nothing forbids the checkpoint."""
    expected: dict[str, Any] = {"df": frame()}
    statement(expected)

    def make() -> dict[str, Any]:
        made = {"df": frame()}
        repr(made["df"]), made["df"]["a"], made["df"].index.is_unique  # fills caches
        return {**made, "held": [made["df"]]}

    state = carried(make, statement)
    again = round_trip(make(), statement, spoil)
    for each in (state, again):
        pd.testing.assert_frame_equal(each["df"], expected["df"])
        assert (each["held"][0] is each["df"]) == (statement not in (concatenate, many_levels))
        assert (each["df"].attrs, each["df"].flags) == (expected["df"].attrs, expected["df"].flags)
        assert each["df"].columns.name == expected["df"].columns.name
        if "groups" in each:
            assert str(each["groups"].sum()) == str(expected["groups"].sum())
            pd.testing.assert_series_equal(each["means"], expected["means"])
        assert each.get("stamps") == expected.get("stamps")


def test_nothing_of_a_frame_forbids_a_checkpoint() -> None:
    """Also where it has been written since the entry."""
    session = Session({"df": frame(), "cut": frame()[1:]})
    for statement in (arrays, add_to_column, write_cell, attributes, grouped):
        statement(session.state)
        scan = session.scan()
        assert scan.blockers(session.entry) == []


READS: tuple[Callable[[Any], Any], ...] = (
    repr,
    lambda df: df["a"].sum(),
    lambda df: df.c.str.upper(),
    lambda df: df.describe(),
    lambda df: df.loc[1],
    lambda df: df.at[2, "a"],
    lambda df: df.index.get_loc(1) + df.columns.get_loc("b"),
    lambda df: df.groupby("c")[["a", "b"]].mean(),
    lambda df: df.isna().sum(),
    lambda df: df.to_numpy(),
    lambda df: df.values,
    lambda df: df[df.a > 1],
    lambda df: df.dtypes,
    lambda df: df.head(),
    lambda df: df.sort_values("b"),
    lambda df: df.set_index("c").index.is_unique,
    lambda df: df.to_csv(),
    lambda df: df.to_dict(),
    lambda df: df.memory_usage(),
    lambda df: df["when"].dt.year,
    lambda df: df["kind"].cat.codes,
    lambda df: df["kind"].value_counts(),
    lambda df: list(df.itertuples()),
    lambda df: df[["a", "b"]].mean(axis=1),
    lambda df: df.merge(df, on="a"),
    lambda df: df.pivot_table(index="kind", values="b", observed=True),
    lambda df: df.b.rolling(2).mean(),
    lambda df: df.sum(numeric_only=True),
    lambda df: df.a.unique(),
    lambda df: df.query("a > 1"),
    lambda df: df.equals(df),
    lambda df: df.dropna(),
    lambda df: df.b.fillna(0),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(READS)))
def test_a_print_of_a_frame_is_no_change(number: int) -> None:
    """What pandas computes and keeps when it is asked is no state."""
    df = frame()
    df["when"] = pd.to_datetime(["2020-01-01", None, "2021-05-05"])
    df["kind"] = pd.Categorical(["u", "v", "u"])
    session = Session({"df": df, "cut": df[1:], "column": df["b"]})
    before = session.bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        READS[number](df)
    same = session.bytes() == before
    assert same


def test_views_of_a_frame_share_its_memory_again() -> None:
    """A column, an array, and a slice that were kept in variables: as in the process that was recorded."""

    def make() -> dict[str, Any]:
        df = pd.DataFrame(np.arange(12.0).reshape(4, 3), columns=list("abc"))
        return {"df": df, "values": df.values, "column": df["b"], "cut": df[1:3]}

    def change(s: dict[str, Any]) -> None:
        s["df"].iloc[0, 1] = 50.0
        s["new"] = s["df"].values
        s["column"].iloc[3] = 60.0
        s["newer"] = pd.DataFrame({"x": np.arange(3)})
        s["part"] = s["newer"]["x"]

    expected = make()
    change(expected)
    state = carried(make, change)
    assert _sharing(state) == _sharing(expected)
    for each in (state, expected):
        each["newer"].iloc[0, 0] = 77
        each["df"].iloc[2, 2] = 88.0
        each["part"].iloc[2] = 99
    assert _texts(state) == _texts(expected)
    assert _sharing(state) == _sharing(expected)


def test_a_write_copies_exactly_when_it_did() -> None:
    """Whose memory is shared is known again, and who is gone is forgotten: the array at hand shows it."""

    def make() -> dict[str, Any]:
        df = pd.DataFrame({"a": [1, 2, 3]})
        return {"df": df, "view": df["a"], "array": df["a"].to_numpy()}

    def drop(s: dict[str, Any]) -> None:
        s["view"] = None

    def keep(s: dict[str, Any]) -> None:
        s["more"] = s["df"][:]

    for change in (drop, keep):
        expected = make()
        change(expected)
        state, recorded = make(), make()
        first, second = Session(recorded), Session(state)
        change(recorded)
        second.restore(first.capture())
        second.live.release()
        for each in (state, expected):
            each["df"].iloc[0, 0] = 7
        assert state["array"].tolist() == expected["array"].tolist()
        assert _texts(state) == _texts(expected)


def test_an_index_that_shares_a_columns_memory() -> None:
    """A write to the column must not change the index that was made of it."""

    def change(s: dict[str, Any]) -> None:
        s["df"] = pd.DataFrame({"a": [1, 2, 3]})
        s["index"] = pd.Index(s["df"]["a"])

    state = carried(dict, change)
    state["df"].iloc[0, 0] = 100
    assert state["df"]["a"].tolist() == [100, 2, 3]
    assert state["index"].tolist() == ([1, 2, 3] if COPIES else [100, 2, 3])


def test_options_are_state() -> None:
    """Set inside a loop, they are restored; those that were not are left alone."""
    from florhook.state.kinds.settings import WORLDS

    plain = pd.get_option("display.precision")
    try:
        with pd.option_context("display.precision", 3, "display.max_rows", 7):
            session = Session({"world": WORLDS["pandas"]})
            kept = session.capture()
        pd.set_option("display.max_columns", 5)
        session.restore(kept)
        now = [pd.get_option(f"display.{name}") for name in ("precision", "max_rows", "max_columns")]
        assert now[:2] == [3, 7]
        assert now[2] != 5
    finally:
        pd.reset_option("display")
    assert pd.get_option("display.precision") == plain


def test_arrays_of_pyarrow() -> None:
    """Text, numbers with gaps, slices, chunks, lists, dictionaries: made anew with what they held."""
    pa = pytest.importorskip("pyarrow")

    def change(s: dict[str, Any]) -> None:
        text = pa.array(["one", None, "three" * 200])
        s["arrays"] = [
            text, text[1:], pa.chunked_array([["a"], ["b", None]]), pa.array([[1, 2], None]),
            pa.array([1, None, 3])[1:], text.dictionary_encode(), pa.array([], pa.float64()),
            pa.chunked_array([], pa.int8()),
        ]  # fmt: skip
        s["same"] = s["arrays"][0]
        s["frame"] = pd.DataFrame({"n": pd.array([1, None], dtype="int64[pyarrow]")})

    expected: dict[str, Any] = {}
    change(expected)
    state = carried(dict, change)
    for got, wanted in zip(state["arrays"], expected["arrays"], strict=True):
        assert got.equals(wanted)
        assert got.type == wanted.type
    assert state["same"] is state["arrays"][0]
    pd.testing.assert_frame_equal(state["frame"], expected["frame"])


LOOPS = """
import time
import pandas as pd
df = pd.DataFrame({"a": [1, 2, 3], "kind": list("uvu")})
seen = pd.DataFrame(columns=["epoch", "total"])
history, parts, cut = pd.Series(dtype=float), [], df["a"]
for epoch in range(5):
    time.sleep(0.01)
    for step in range(3):
        time.sleep(0.002)
        df["a"] += step
    df.loc[len(df)] = [epoch, "w"]
    seen.loc[len(seen)] = [epoch, int(df["a"].sum())]
    history[f"e{epoch}"] = df["a"].mean()
    parts.append(df.groupby("kind")["a"].sum())
    table = pd.concat(parts, axis=1)
    print("epoch", epoch, len(table))
"""
PROBES = (
    "print('@@', epoch, df.a.tolist(), df.kind.str.upper().tolist(), seen.total.sum(), df.describe().shape)",
    "print('@@', history.to_dict(), table.fillna(0).values.sum(), cut.tolist(), df.set_index('kind').loc['u'].a.max())",
)


def test_loops_over_frames_are_recorded_and_replayed(flor: Flor) -> None:
    """Checkpoints are taken, jumped to, and found the same; what a print looks at is no difference."""
    flor.write("train.py", LOOPS)
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert (recorded.returncode, recorded.stderr) == (0, "")
    flor.write("train.py", LOOPS + "".join(f"    {probe}\n" for probe in PROBES))
    plain = flor.python("train.py").stdout
    wanted = [line for line in plain.splitlines() if line.startswith("@@")]
    stats = flor.home.parent / "stats.json"
    for select, lines in (("", wanted), ("epoch=3:5", wanted[6:10])):
        done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), FLOR_SELECT=select)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == lines
        figures = json.loads(stats.read_text())
        assert (figures["diverged"], figures["unverified"]) == (0, 0)
        assert figures["blocks_skipped"] == len(lines) // 2


def test_a_frame_that_differs_is_named(flor: Flor) -> None:
    """By its variable and by how much."""
    source = (
        "import os, time\n"
        "import pandas as pd\n"
        "df = pd.DataFrame({'a': [1.0, 2.0], 'b': [3, 4]})\n"
        "for epoch in range(3):\n"
        "    time.sleep(0.01)\n"
        "    df.loc[1, 'a'] += float(os.environ['STEP'])\n"
    )
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf", STEP="1").returncode == 0
    flor.write("train.py", source + "    print('@@', epoch)\n")
    done = flor("train.py", FLOR_MODE="replay", STEP="3")
    assert done.returncode == 4
    assert "df: 1 of 2 values differ, by up to 2 (the largest is 3)" in done.stderr


# Random histories ------------------------------------------------------------------------------------------------


class Frames:
    """Frames, series, indexes and arrays that a random history makes, writes and forgets."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.held: list[Any] = [frame()]
        self.number = 0

    def play(self, moves: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(moves):
                move = self.random.choice(MOVES)
                number = self.random.randrange(len(self.held))
                try:
                    made = move(self.held[number], self.random.randrange(100))
                except (
                    ArithmeticError,
                    AttributeError,
                    TypeError,
                    ValueError,
                    LookupError,
                ):  # not for this one
                    made = None
                if made is not None:
                    self.held.append(made)
                if len(self.held) > 6:
                    del self.held[self.random.randrange(len(self.held))]


def _set(target: Any, key: Any, value: Any) -> None:
    target[key] = value


MOVES: tuple[Callable[[Any, int], Any], ...] = (
    lambda obj, n: _set(obj, "ab"[n % 2], n) if isinstance(obj, pd.DataFrame) else None,
    lambda obj, n: _set(obj, f"n{n % 5}", n / 2) if isinstance(obj, pd.DataFrame) else None,
    lambda obj, n: _set(obj.iloc, n % len(obj), n) if obj.ndim == 1 else _set(obj.iloc, (n % len(obj), 0), n),
    lambda obj, n: _set(obj.loc, len(obj) + n, [n] * len(obj.columns)) if len(obj) < 9 else None,
    lambda obj, n: obj.iloc[:, n % obj.shape[1]],
    lambda obj, n: obj.iloc[n % 3 :],
    lambda obj, n: obj[:],
    lambda obj, n: obj.values,
    lambda obj, n: obj.to_numpy() if isinstance(obj, pd.Series) else None,
    lambda obj, n: _set(obj, n % len(obj), n) if isinstance(obj, np.ndarray) and obj.ndim == 1 else None,
    lambda obj, n: obj.T if n % 4 == 0 else None,
    lambda obj, n: pd.concat([obj, obj.iloc[:1]]) if len(obj) < 9 else None,
    lambda obj, n: obj.rename(columns={"a": "b", "b": "a"}),
    lambda obj, n: obj.rename(f"s{n}"),
    lambda obj, n: pd.Index(obj) if obj.ndim == 1 else obj.index,
    lambda obj, n: obj.set_index(obj.columns[0]) if obj.shape[1] > 1 else None,
    lambda obj, n: obj.set_index(list(obj.columns[:2])) if obj.shape[1] > 2 else None,
    lambda obj, n: _set(obj, "b", obj["b"] * 0.5),
    lambda obj, n: obj.reset_index(drop=bool(n % 2)),
    lambda obj, n: obj.sort_index(),
    lambda obj, n: obj.astype("category") if obj.ndim == 1 else None,
    lambda obj, n: obj.astype(float),
    lambda obj, n: obj.groupby(obj.columns[0]).size(),
    lambda obj, n: obj.copy(deep=bool(n % 2)),
    lambda obj, n: obj.drop(columns=obj.columns[0]) if obj.shape[1] > 1 else None,
    lambda obj, n: obj.pop(obj.columns[-1]) if obj.shape[1] > 1 else None,
    lambda obj, n: obj.index.get_loc(obj.index[0]) and None,
    lambda obj, n: repr(obj) and None,
    lambda obj, n: frame() if n % 3 == 0 else None,
    lambda obj, n: obj.array if not isinstance(obj, pd.RangeIndex) else None,
    lambda obj, n: pd.date_range("2020", periods=len(obj)),
    lambda obj, n: _set(obj, "when", pd.date_range("2020", periods=len(obj))) if obj.ndim == 2 else None,
)  # fmt: skip


def _arrays_of(obj: Any) -> list[Any]:
    """The memory that an object shows."""
    if isinstance(obj, np.ndarray):
        return [obj]
    if isinstance(obj, pd.RangeIndex):  # keeps no memory but in its cache
        return []
    if isinstance(obj, pd.DataFrame):
        return [each for number in range(obj.shape[1]) for each in _arrays_of(obj.iloc[:, number])]
    values = getattr(obj, "_values", obj)
    return [each for each in (getattr(values, "_ndarray", values),) if isinstance(each, np.ndarray)]


def _sharing(state: dict[str, Any]) -> list[bool]:
    arrays = [each for name, obj in sorted(state.items()) if name != "classes" for each in _arrays_of(obj)]
    return [np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2)]


def _texts(state: dict[str, Any]) -> list[str]:
    pairs = ((name, obj) for name, obj in sorted(state.items()) if name != "classes")
    return [f"{name} {type(obj).__name__} {getattr(obj, 'dtype', '')}\n{obj}" for name, obj in pairs]


@pytest.fixture
def no_older_garbage() -> Iterator[None]:
    """The collector looks at what a test makes only, not at all that the tests before it left: it is called often."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("no_older_garbage")
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(0, 15), st.integers(0, 20), st.integers(0, 12))
def test_random_histories_go_on_as_they_did(seed: int, before: int, between: int, after: int) -> None:
    """Restored into a process at the entry: the same texts, the same sharing, and what comes then is the same too."""
    recorded, replayed, reference = (Frames(seed) for _ in range(3))
    for each in (recorded, replayed, reference):
        each.play(before)
    sessions = [Session({"held": each.held}) for each in (recorded, replayed)]
    sessions[0].live.release()
    recorded.play(between)
    reference.play(between)
    gc.collect()
    kept, wanted = sessions[0].capture(), sessions[0].bytes()
    sessions[1].restore(kept)
    sessions[1].live.release()
    same = sessions[1].bytes() == wanted
    assert same
    replayed.held = sessions[1].state["held"]
    replayed.random.setstate(recorded.random.getstate())
    for _ in range(2):
        states = [{f"{n:02}": obj for n, obj in enumerate(each.held)} for each in (replayed, reference)]
        assert _texts(states[0]) == _texts(states[1])
        assert _sharing(states[0]) == _sharing(states[1])
        states.clear()
        for each in (recorded, replayed, reference):
            each.play(after)
        gc.collect()
        # Of the bytes, those that no view shows may differ, since lookup tables hold what the views lie in.
        same = sessions[1].scan().stream == sessions[0].scan().stream
        assert same
