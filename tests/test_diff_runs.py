"""`florhook diff`: what two runs differ in is named, the first place of it, and nothing else is."""

from __future__ import annotations

import ast
import random
from typing import Any

import diffs
import pytest
from conftest import Flor
from diffs import Compared
from hypothesis import given
from hypothesis import strategies as st

from florhook.hook.changes import changes
from florhook.hook.timed import timed_names
from florhook.replay.run_diff import first_line
from florhook.store.store import Store

STEPS = """
import random, sys, time

random.seed(int(sys.argv[1]))
rate = float(sys.argv[2])
weights, history = [0.0] * 4, {"loss": [], "seconds": []}
started = time.time()
for epoch in range(int(sys.argv[3])):
    begun = time.perf_counter()
    for step in range(3):
        weights[step] += rate * random.random()
        time.sleep(0.003)
    BODY
    history["loss"].append(sum(weights))
    history["seconds"].append(time.perf_counter() - begun)
    print(epoch, sum(weights))
for check in range(2):
    weights[3] += check
    time.sleep(0.003)
print("end", weights)
"""


compared = diffs.compared


def record(flor: Flor, *arguments: str, body: str = "pass", source: str = STEPS) -> str:
    """Record the program above, or another one; the run's id."""
    return diffs.record(flor, *arguments, source=source.replace("BODY", body))


def in_both(flor: Flor, first: str, second: str) -> int:
    """How many boundaries have a row in both runs, by the catalog; on a busy machine it may be some less than all."""

    def places(store: Store, run: str) -> set[tuple[Any, ...]]:
        loops = {row.ctx: row for row in store.contexts(run)}

        def place(ctx: int) -> tuple[Any, ...]:
            if ctx < 0:
                return ()
            row = loops[ctx]
            return (*place(row.parent), row.iteration, row.site, row.nth)

        return {(*place(row.ctx), row.iteration) for row in store.checkpoints(run, pieces=False)}

    with Store.open(flor.home) as store:
        return len(places(store, first) & places(store, second))


# Whole runs -----------------------------------------------------------------------------------------------


def test_the_same_run_twice(flor: Flor, compared: Compared) -> None:
    """Times, durations and hash seeds are no difference; how much was compared is said, and what was not."""
    first, second = record(flor, "1", "0.5", "3"), record(flor, "1", "0.5", "3")
    status, found, text = compared(first, second)
    assert (status, found["differ"]) == (0, False)
    # the boundaries after each iteration, and the exit; of loops outside all others also the entry
    assert 15 < found["state"]["compared"] <= 3 * (3 + 1) + (1 + 3 + 1) + (1 + 2 + 1)
    assert found["state"]["compared"] == found["state"]["same"] == in_both(flor, first, second)
    assert set(found["state"]["clock"]) >= {"started", "begun"}
    assert f"the same at all {found['state']['same']} boundaries" in text
    assert text.count("the same") == 5
    assert "history" not in text.replace("history['seconds']", "")


def test_another_seed(flor: Flor, compared: Compared) -> None:
    """The random state differs from the start; the first weight after the first step, by the two draws' distance."""
    first, second = record(flor, "1", "1", "2"), record(flor, "2", "1", "2")
    status, found, text = compared(first, second)
    assert status == 1
    assert [(pair["was"], pair["now"]) for pair in found["arguments"]] == [("1 1 2", "2 1 2")]
    assert (found["environment"], found["code"], found["exit"]) == ([], [], None)
    assert [value["name"] for value in found["state"]["start"]["values"]] == ["Python's random state"]
    parting = found["state"]["parting"]
    assert parting["place"] == "after step=0 of the loop at train.py:9, in epoch=0 of the loop at train.py:7"
    (value,) = parting["values"]
    draws = [random.Random(seed).random() for seed in (1, 2)]
    assert (value["path"], value["was"], value["now"]) == ("weights[0]", repr(draws[0]), repr(draws[1]))
    assert f"weights[0]: {draws[0]!r} in the first, {draws[1]!r} in the second" in text


def test_another_learning_rate(flor: Flor, compared: Compared) -> None:
    """The variable differs from the start, the random state never does."""
    status, found, _ = compared(record(flor, "1", "1", "2"), record(flor, "1", "0.5", "2"))
    assert status == 1
    (start,) = found["state"]["start"]["values"]
    assert (start["path"], start["was"], start["now"]) == ("rate", "1.0", "0.5")
    assert [value["path"] for value in found["state"]["parting"]["values"]] == ["weights[0]"]
    assert found["output"]["number"] == 1


def test_fewer_epochs(flor: Flor, compared: Compared) -> None:
    """States are the same as long as both go on; then one loop has ended, and one run's output."""
    status, found, text = compared(record(flor, "1", "1", "4"), record(flor, "1", "1", "2"))
    assert status == 1
    assert found["output"]["number"] == 3
    assert (found["state"]["start"], found["state"]["parting"]) == (None, None)
    assert 8 < found["state"]["compared"] <= 2 * 4 + 3
    assert "the loop at train.py:7 ends after 4 iterations in the first, 2 in the second" in text


def test_an_edit(flor: Flor, compared: Compared) -> None:
    """The statement is named, and the first boundary and variable at which it tells; before that all is the same."""
    body = "weights[3] += 0.25 if epoch == 1 else 0"
    first, second = record(flor, "1", "1", "3"), record(flor, "1", "1", "3", body=body)
    status, found, text = compared(first, second)
    assert status == 1
    (edit,) = found["code"]
    assert (edit["change"]["what"], edit["change"]["new_line"], edit["new_path"]) == ("added", 12, "train.py")
    assert f"train.py:12: added `{body}`" in text
    assert found["output"]["number"] == 2
    assert found["state"]["start"] is None
    parting = found["state"]["parting"]
    assert parting["place"] == "after epoch=1 of the loop at train.py:7"
    values = {value["path"]: value["how"] for value in parting["values"]}
    assert list(values) == ["weights[3]", "history['loss'][1]"]
    assert values["weights[3]"] == "0.0 in the first, 0.25 in the second, 0.25 apart"
    assert values["history['loss'][1]"].endswith(", 0.25 apart")


def test_loops_are_found_again_after_an_edit(flor: Flor, compared: Compared) -> None:
    """A loop that was put in front of another one shifts its number; boundaries behind it are compared."""
    source = STEPS.replace("started =", "for extra in range(2):\n    time.sleep(0.003)\nstarted =")
    first, second = record(flor, "1", "1", "2"), record(flor, "1", "1", "2", source=source)
    status, found, _ = compared(first, second)
    assert status == 1
    assert [edit["change"]["what"] for edit in found["code"]] == ["added"]
    assert 10 < found["state"]["compared"] <= 2 * 4 + 4 + 4
    assert (found["state"]["start"], found["state"]["parting"]) == (None, None)


def test_comments_and_layout_are_no_difference(flor: Flor, compared: Compared) -> None:
    """Neither in the code nor in what is compared."""
    other = STEPS.replace("rate = float", "# the learning rate\n\nrate = float").replace("0.0] * 4", "0.0]*4")
    first, second = record(flor, "1", "1", "2"), record(flor, "1", "1", "2", source=other)
    status, found, _ = compared(first, second)
    assert (status, found["code"]) == (0, [])
    assert found["state"]["compared"] == in_both(flor, first, second)


def test_a_run_that_crashed(flor: Flor, compared: Compared) -> None:
    """It is compared as far as it goes; its end is a difference, its state is none."""
    first = record(flor, "1", "1", "3")
    second = record(flor, "1", "1", "3", body="open('gone') if epoch == 1 else None")
    status, found, text = compared(first, second)
    assert status == 1
    assert (found["exit"]["was"], found["exit"]["now"]) == ("0", "1")
    assert found["state"]["compared"] == in_both(flor, first, second) > 6
    assert (found["state"]["start"], found["state"]["parting"], found["state"]["counts"]) == (None, None, "")
    assert "exit code: 0 | 1" in text
    assert "ends before line 2 in the second run" in text or "line 2: '1 " in text


def test_a_variable_that_one_run_has(flor: Flor, compared: Compared) -> None:
    """With the same code, a name that is bound in one run only is a difference."""
    body = "if len(sys.argv) > 4: best = epoch"
    first, second = record(flor, "1", "1", "2", body=body), record(flor, "1", "1", "2", "x", body=body)
    _, found, text = compared(first, second)
    assert found["state"]["start"] is None
    parting = found["state"]["parting"]
    assert (parting["only_first"], parting["only_second"]) == ([], ["best"])
    assert parting["place"] == "after epoch=0 of the loop at train.py:7"
    assert "only in the second run: best" in text


def test_unseeded_runs(flor: Flor, compared: Compared) -> None:
    """A random state that nobody draws from is no difference; one that is drawn from is."""
    source = "import time\nn = 0\nfor step in range(3):\n    n += DRAW\n    time.sleep(0.003)\n"
    quiet = source.replace("DRAW", "1")
    assert compared(record(flor, source=quiet), record(flor, source=quiet))[0] == 0
    flor.write("library.py", "import random\nrandom.getrandbits(32 * 1500)\n")
    importing = quiet.replace("import time", "import time, library")
    assert compared(record(flor, source=importing), record(flor, source=importing))[0] == 0
    drawn = source.replace("DRAW", "random.random()").replace("import time", "import time, random")
    status, found, _ = compared(record(flor, source=drawn), record(flor, source=drawn))
    assert status == 1
    assert found["state"]["start"] is None
    names = [value["name"] for value in found["state"]["parting"]["values"]]
    assert names == ["n", "Python's random state"]


def test_addresses_are_no_difference(flor: Flor, compared: Compared) -> None:
    """Neither in the state nor in the output."""
    source = """
        import time
        class Net: pass
        net = Net()
        net.number, net.name = id(net), repr(net)
        for step in range(3):
            net.step = step
            time.sleep(0.003)
        print(net)
    """
    lines = [line.removeprefix(" " * 8) for line in source.splitlines()]
    program = "\n".join(lines)
    assert compared(record(flor, source=program), record(flor, source=program))[0] == 0


def test_what_runs_share_and_what_they_do_not(flor: Flor, compared: Compared) -> None:
    """Two lists in one run, one list under two names in the other: equal values, and a difference."""
    source = "import sys, time\na = [1]\nb = a if sys.argv[1:] else [1]\nfor n in range(3):\n    time.sleep(0.003)\n"
    first, second = record(flor, source=source), record(flor, "x", source=source)
    _, found, _ = compared(first, second)
    assert [value["path"] for value in found["state"]["start"]["values"]] == ["b"]


def test_forms_of_values(flor: Flor, compared: Compared) -> None:
    """Paths through dicts, attributes, slots and containers lead to the value, and say both."""
    source = """
import collections, datetime, decimal, enum, pathlib, sys, time
other = len(sys.argv) > 1
class Color(enum.Enum):
    RED, BLUE = 1, 2
class Slotted:
    __slots__ = ("left", "right")
class Deep:
    pass
class Counts(dict):
    pass
deep, slotted, counts = Deep(), Slotted(), Counts(x=1)
deep.table = {"a": [1, {"b": (2, 3)}]}
slotted.left, slotted.right = 1, 2
pair, keyed = [(1, "x"), (2, "y")], {(1, "k"): 5}
color, when, path = Color.RED, datetime.date(2020, 1, 2), pathlib.PurePosixPath("a/b")
exact, buffer, queue = decimal.Decimal("0.1"), bytearray(b"abcd"), collections.deque([1, 2], maxlen=3)
short, missing, big = [1, 2], None, bytearray(3000)
if other:
    deep.table["a"][1]["b"] = (2, 4)
    slotted.right, counts["x"], keyed[1, "k"] = 3, 2, 6
    pair[1] = (2, "z")
    color, when, path = Color.BLUE, datetime.date(2020, 1, 3), pathlib.PurePosixPath("a/c")
    exact, buffer[1], queue[0] = decimal.Decimal("0.2"), 0, 9
    short.append(3)
    missing, big[7] = [], 1
for n in range(2):
    time.sleep(0.003)
"""
    first, second = record(flor, source=source), record(flor, "x", source=source)
    _, found, _ = compared(first, second)
    values = {value["path"]: (value["was"], value["now"]) for value in found["state"]["start"]["values"]}
    hows = {value["path"]: value["how"] for value in found["state"]["start"]["values"]}
    assert values["deep.table['a'][1]['b']"] == ("3", "4")
    assert values["slotted.right"] == ("2", "3")
    assert values["counts['x']"] == ("1", "2")
    assert values["keyed[(1, 'k')]"] == ("5", "6")
    assert values["pair[1]"] == ("'y'", "'z'")
    assert values["color"] == ("1", "2")
    assert values["when"] == ("datetime.date(2020, 1, 2)", "datetime.date(2020, 1, 3)")
    assert values["exact"] == ("Decimal('0.1')", "Decimal('0.2')")
    assert values["queue[0]"] == ("1", "9")
    assert values["short"] == ("2 items", "3 items")
    assert values["missing"][0] == "None"
    assert "1 of 4" in hows["buffer"]
    assert "1 of 3000" in hows["big"]
    assert values["other"] == ("False", "True")


def test_numpy(flor: Flor, compared: Compared) -> None:
    """Arrays and NumPy's random state, seeded or not used."""
    pytest.importorskip("numpy")
    source = """
import sys, time, numpy
if len(sys.argv) > 2:
    numpy.random.seed(int(sys.argv[2]))
table = numpy.zeros((30, 40))
for epoch in range(3):
    table[epoch] += float(sys.argv[1]) * (numpy.random.random(40) if len(sys.argv) > 2 else 1)
    time.sleep(0.003)
"""
    same = record(flor, "1", source=source), record(flor, "1", source=source)
    assert compared(*same)[0] == 0
    seeded = record(flor, "1", "5", source=source), record(flor, "1", "5", source=source)
    assert compared(*seeded)[0] == 0
    _, found, _ = compared(same[0], record(flor, "1.5", source=source))
    (value,) = found["state"]["parting"]["values"]
    assert value["path"] == "table"
    rows = int(value["how"].partition(" of 1200 values differ, by up to 0.5 ")[0]) // 40
    assert found["state"]["parting"]["place"] == f"after epoch={rows - 1} of the loop at train.py:5"


def test_with_the_usual_budget(flor: Flor, compared: Compared) -> None:
    """What both runs happen to have left is enough to see that nothing differs, or what does."""
    flor.write("train.py", STEPS.replace("BODY", "pass").replace("0.003", "0.03"))
    for seed in ("1", "1", "2"):
        assert flor("train.py", seed, "1", "4").returncode == 0
    ids = [line.split()[0] for line in flor("runs").stdout.splitlines()[1:]]
    status, found, _ = compared(ids[0], ids[1])
    assert status == 0
    assert found["state"]["compared"] >= 1
    assert compared(ids[0], ids[2])[0] == 1


def test_files_that_were_read(flor: Flor, compared: Compared) -> None:
    """A data file of another size is named, whatever became of it."""
    source = "import time\nn = len(open('data.txt').read())\nfor k in range(2):\n    time.sleep(0.003)\n"
    flor.write("data.txt", "12345")
    first = record(flor, source=source)
    flor.write("data.txt", "1234567")
    status, found, _ = compared(first, record(flor, source=source))
    assert status == 1
    assert found["environment"] == [{"name": "data.txt", "was": "5 bytes", "now": "7 bytes"}]
    assert [value["path"] for value in found["state"]["start"]["values"]] == ["n"]


def test_damaged_or_foreign_records_are_read_with_care(flor: Flor, compared: Compared) -> None:
    """Nothing that a stream names is imported or called; what cannot be read is counted."""
    source = """
import pathlib, time
class Trap:
    def __reduce__(self):
        return print, ("the trap was sprung",)
module = __import__("helper")
trap, path = [module.made], pathlib.PurePosixPath("x")
for n in range(3):
    trap[0].count = n
    time.sleep(0.003)
"""
    flor.write("helper.py", "print('imported')\nclass Made: pass\nmade = Made()\n")
    first, second = (
        record(flor, source=source),
        record(flor, source=source.replace("count = n", "count = -n")),
    )
    flor.write("helper.py", "print('imported now')\nraise SystemExit(9)\n")
    status, found, text = compared(first, second)
    assert status == 1
    assert found["state"]["parting"]["values"][0]["was"] == "1"
    assert "imported now" not in text
    (pack, *_) = sorted((flor.home / "packs").iterdir())
    data = bytearray(pack.read_bytes())
    data[60:] = bytes(len(data) - 60)
    pack.write_bytes(data)
    done = flor("diff", first, second)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 3)


def test_wrong_words(flor: Flor) -> None:
    """Wrong usage is 2, no such run 3; one line each."""
    assert flor("diff", "a").returncode == 2
    assert flor("diff", "a", "b", "c").returncode == 2
    assert flor("diff", "--deep", "a", "b").returncode == 2
    assert flor("diff", "a", "b").returncode == 3
    run = record(flor, "1", "1", "1")
    done = flor("diff", run, "nothing")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert flor("diff", run, run).returncode == 0


# Parts ----------------------------------------------------------------------------------------------------


def edits(old: str, new: str) -> list[tuple[str, int | None, int | None]]:
    found = changes(old.encode(), new.encode(), "x.py").changes
    return [(change.what, change.old_line, change.new_line) for change in found]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a = 1\nb = 2\n", "a = 1\nb = 3\n", [("changed", 2, 2)]),
        ("a = 1\nb = 2\n", "a = 1\n\n# note\nc = f()\nb = 2\n", [("added", None, 4)]),
        ("a = 1\nf(a)\nb = 2\n", "a = 1\nb = 2\n", [("removed", 2, None)]),
        ("def f():\n    a()\n    b()\n", "def f():\n    'doc'\n    b()\n    a()\n", [("moved", 2, 4)]),
        ("for x in y:\n    f(x)\n", "for x in z:\n    f(x)\n", [("changed", 1, 1)]),
        ("if a:\n    f()\nelse:\n    g()\n", "if a:\n    f()\nelse:\n    g(1)\n", [("changed", 4, 4)]),
        (
            "def f(): return 1\ndef g(): return 2\n",
            "def g(): return 2\ndef f(): return 3\n",
            [("moved", 1, 2), ("changed", 1, 2)],
        ),
        ("f( 1,2 )\n", "f(1, 2)  # the same\n", []),
        ("x = 1\n", "x = 1.0\n", [("changed", 1, 1)]),
    ],
)
def test_code_changes(old: str, new: str, expected: list[tuple[str, int | None, int | None]]) -> None:
    """The statements that changed, with their lines in both sources."""
    assert edits(old, new) == expected


STATEMENTS = st.lists(
    st.sampled_from(["a()", "b(1)", "c = 2", "if d:\n    e()", "for f in g:\n    h()\n    i()"]), max_size=7
)


@given(STATEMENTS, STATEMENTS)
def test_equal_sources_are_those_without_changes(old: list[str], new: list[str]) -> None:
    """No change is told exactly where the trees are equal; what is told is in the source at that line."""
    was, now = "\n".join(old) + "\n", "\n".join(new) + "\n"
    found = changes(was.encode(), now.encode(), "x.py").changes
    assert bool(found) == (ast.dump(ast.parse(was)) != ast.dump(ast.parse(now)))
    for change in found:
        for text, line, source in ((change.old, change.old_line, was), (change.new, change.new_line, now)):
            assert line is None or source.splitlines()[line - 1].strip() == text.splitlines()[0].strip()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import time\nt = time.time()", {"t"}),
        ("from time import perf_counter as now\nt = now()", {"t"}),
        ("import time\nt = time.time()\nd = round(time.time() - t, 2)\nx = f(d)", {"t", "d"}),
        ("import time\nself.h['s'].append(time.monotonic())", {"['s']"}),
        ("import time\nd = {'took': time.time(), 'loss': 1}", {"['took']"}),
        ("import datetime\nstamp = datetime.datetime.now().isoformat()", {"stamp"}),
        ("import time\ndef age(): return time.time() - 5\na, b = age(), 1", {"age", "a"}),
        ("import time\ntime.sleep(1)\nx = time.gmtime", set()),
        ("x = self.time(3)\ny = now()", set()),
    ],
)
def test_names_of_times(source: str, names: set[str]) -> None:
    """Names that hold times are followed by arithmetic and assignment, and by nothing else."""
    assert timed_names([ast.parse(source)]) == names


def test_first_line() -> None:
    """Numbers count from 1; addresses do not count; an output that has ended is None; a last line may lack an end."""
    assert first_line("a\nb\n", "a\nb\n") is None
    assert first_line("<X at 0x7f0011223344>\n", "<X at 0x7f9911223300>\n") is None
    found = first_line("a\nb\n", "a\nc\n")
    assert found is not None
    assert (found.number, found.was, found.now) == (2, "b", "c")
    found = first_line("a\n", "a\nb\n")
    assert found is not None
    assert (found.number, found.was, found.now) == (2, None, "b\n")
    found = first_line("a\nb", "a\nb\n")
    assert found is not None
    assert (found.number, found.was, found.now) == (2, "b", "b\n")
