"""What a replay executes is held to the record: it says what it verified, what differs and by how much."""

from __future__ import annotations

import datetime
import enum
import functools
import io
import json
import math
import re
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import pytest
from conftest import Flor

from florhook.runtime.clock import Duration, Reading, Readings
from florhook.state.differences import Comparison, Read, between, by_how_much, same
from florhook.state.scan import Root, Scan

STEPS = """
import os, random, time
random.seed(1)
weights, history = [0.0, 0.0, 0.0], {{"loss": []}}
for epoch in range(6):
    total = 0.0
    for step in range(5):
        total += random.random()
        time.sleep(0.004)
    {body}
    history["loss"].append(total + weights[1])
    print(epoch, total)
print("end", total)
"""


def replayed(
    flor: Flor, body: str, probe: str = "print('@@', epoch, weights)", setup: str = "", **changes: str
) -> tuple[Any, Any]:
    """Record the program, add a probe to its epochs, replay. The process and the figures."""
    source = setup + STEPS.format(body=body)
    flor.write("train.py", source)
    done = flor("train.py", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    flor.write("train.py", source.replace("    history[", f"    {probe}\n    history[", 1))
    stats = flor.home.parent / "stats.json"
    again = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats), **changes)
    return again, json.loads(stats.read_text())


def test_a_replay_that_agrees_says_so(flor: Flor) -> None:
    """Each boundary that is reached, and the end, were compared."""
    done, figures = replayed(flor, "weights[1] += total")
    assert (done.returncode, done.stderr) == (0, "")
    assert (figures["verified"], figures["diverged"], figures["unverified"]) == (7, 0, 0)


@pytest.mark.parametrize("source", ["time.time() % 1", "int.from_bytes(os.urandom(6), 'big') / 2**48"])
def test_what_no_replay_can_know_is_named(source: str, flor: Flor) -> None:
    """Variable, iteration, both values and their distance; exit code 4; later epochs start from the recorded state."""
    done, figures = replayed(flor, f"weights[1] += {source} if epoch == 2 else 1")
    assert done.returncode == 4
    assert (figures["diverged"], figures["verified"]) == (1, 6)
    said = r"after epoch=2 of the loop at train\.py:4: weights\[1\]: (\S+) in the run, (\S+) now, (\S+) apart"
    match = re.search(said, done.stderr)
    assert match, done.stderr
    was, now, apart = map(float, match.groups())
    assert math.isclose(abs(was - now), apart, rel_tol=0.01)
    last = json.loads(done.stdout.splitlines()[-1].partition(" 5 ")[2])
    assert last[1] == pytest.approx(was + 3)  # epochs 3, 4 and 5 added one each to what was recorded


def test_times_of_the_clock_are_no_divergence(flor: Flor) -> None:
    """A start time and a duration are this replay's; that is said, and nothing else is wrong."""
    done, figures = replayed(flor, "now = time.time(); took = time.perf_counter() - history.get('at', now)")
    assert done.returncode == 0, done.stderr
    assert figures["diverged"] == 0
    assert "florhook: now holds a time of the clock" in done.stderr
    assert "florhook: took holds a time of the clock" in done.stderr


def test_the_clock_of_a_replay_goes_on_from_where_the_run_stood(flor: Flor) -> None:
    """So that a time limit is not over, when the run is a day old, before the first epoch."""
    done, _ = replayed(
        flor, "begun = history.setdefault('begun', time.time())", "print('@@', time.time() - begun < 5)"
    )
    assert done.stdout == "@@ True\n" * 6


def test_a_data_file_that_was_changed_is_named(flor: Flor) -> None:
    """Read again in each epoch, its new content makes the state another one."""
    flor.write("data.txt", "1.5\n")
    source = STEPS.format(body="weights[1] += float(open('data.txt').read())")
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("data.txt", "1.75\n")
    flor.write("train.py", source.replace("    history[", "    print('@@', weights[1])\n    history[", 1))
    done = flor("train.py", FLOR_MODE="replay")
    assert done.returncode == 4
    assert "data.txt was changed after the run read it" in done.stderr
    assert "weights[1]: 1.5 in the run, 1.75 now, 0.25 apart" in done.stderr


def test_digests_are_kept_where_bytes_are_not(flor: Flor) -> None:
    """With a budget that has no room for checkpoints, what is executed is verified all the same."""
    body = "weights[1] += total; big = bytearray(random.randbytes(4_000_000)); time.sleep(0.5)"
    flor.write("train.py", STEPS.format(body=body))
    assert flor("train.py", FLOR_EPSILON="0.05").returncode == 0
    flor.write("train.py", STEPS.format(body=body + "; print('@@', weights)"))
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert done.returncode == 0, done.stderr
    assert json.loads(stats.read_text())["verified"] >= 3


def test_what_is_beyond_the_record_is_said(flor: Flor) -> None:
    """A stretch with nothing after it to compare with is not verified, and the reason is given."""
    body = "thing = open('/dev/null').fileno; weights[1] += total"
    flor.write("train.py", "import threading\nlock = [threading.Thread()]\n" + STEPS.format(body=body))
    assert flor("train.py", FLOR_EPSILON="1e-9").returncode == 0
    path = flor.folder / "train.py"
    path.write_text(path.read_text().replace("    history[", "    print('@@', epoch)\n    history[", 1))
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout == "".join(f"@@ {epoch}\n" for epoch in range(6))
    assert (
        "florhook: not verified: the loop at train.py:7 from iteration 0 on has nothing in the record"
        in done.stderr
    )


@pytest.mark.needs_torch
def test_a_tensor_is_named_as_the_program_names_it(flor: Flor) -> None:
    """One value of a layer's weight differs: net[1].weight, how many values, by how much."""
    setup = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 3))\n"
    body = "net[1].weight.data[2, 1] = float(os.urandom(1)[0]) + 300 * (epoch == 5)"
    done, _ = replayed(flor, body, "print('@@', epoch)", setup)
    assert done.returncode == 4
    assert re.search(
        r"after epoch=\d of the loop at train.py:7: net\[1\]\.weight: 1 of 6 values differ, by up to \d+",
        done.stderr,
    )


@pytest.mark.needs_torch
def test_memory_that_nothing_shows_is_no_state(flor: Flor) -> None:
    """Of a storage that the program holds one number of, the others may be anything."""
    setup = "import torch\n"
    body = "big = torch.tensor(list(os.urandom(1000)), dtype=torch.float32); big[3] = total; loss = big[3]; del big"
    done, _ = replayed(flor, body, "print('@@', loss.item())", setup)
    assert (done.returncode, done.stderr) == (0, "")


def test_values_are_compared_by_bits() -> None:
    """NaN is itself, 0.0 is not -0.0, True is not 1."""
    assert same(math.nan, math.nan)
    assert not same(0.0, -0.0)
    assert not same(True, 1)
    assert between(1, 3) == "1 in the run, 3 now, 2 apart"


def test_how_much_memory_differs() -> None:
    """By the type of its numbers; bytes that were not kept are no numbers."""
    pytest.importorskip("numpy")
    was, now = b"\x00\x00\x80\x3f" * 3, b"\x00\x00\x80\x3f" * 2 + b"\x00\x00\x00\x40"  # 1, 1, 1 and 1, 1, 2
    assert by_how_much(was, now, "float32") == "1 of 3 values differ, by up to 1 (the largest is 1)"
    assert (
        by_how_much(b"\x80\x3f", b"\x00\x40", "bfloat16")
        == "1 of 1 values differ, by up to 1 (the largest is 1)"
    )
    assert "not kept" in by_how_much(None, now, "float32")
    assert by_how_much(was, now[:4], "float32") == "12 bytes in the run, 4 bytes now"


def test_readings_and_durations() -> None:
    """A difference of readings stays a duration through arithmetic; a reading times a number is a number."""
    start, now = Reading(1000.0), Reading(1002.5)
    assert type(now - start) is Duration
    assert now - start == 2.5
    assert type(0 + 2 * (now - start) / 3) is Duration
    assert type(sum([now - start, now - start])) is Duration
    assert type(now * 2) is float
    assert type(now - 1000.0) is Duration
    assert f"{now:.1f} {now - start}" == "1002.5 2.5"


def test_what_is_taken_for_a_reading() -> None:
    """A value inside the run's time, with one inside the replay's in its place; nothing else."""
    readings = Readings({"time": 5000.0}, elapsed=10.0)
    here = readings.here["time"]
    assert readings.are_both(5003.0, here)
    assert not readings.are_both(5003.0, 5004.0)
    assert not readings.are_both(4000.0, here)
    assert readings.are_both(17.0, Duration(16.0))
    assert not readings.are_both("a", "b")


# Reading two states without making anything of them ------------------------------------------------------------


class Color(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    first: Any
    second: Any


class Clock:
    def tick(self) -> None:
        pass


class Here:
    """An environment in which this module is the user's, so that its classes and functions are objects."""

    user_modules: ClassVar[set[str]] = {__name__}

    def code_key(self, code: types.CodeType) -> tuple[Any, ...]:
        return (code.co_qualname if sys.version_info >= (3, 11) else code.co_name,)

    def variables(self, code: types.CodeType) -> None:
        return None

    def free_variables(self, code: types.CodeType) -> tuple[str, ...]:
        return code.co_freevars

    def find_code(self, key: tuple[Any, ...]) -> types.CodeType:
        raise KeyError(key)


class Bytes:
    """The leaves of a scan."""

    def __init__(self, scan: Scan) -> None:
        self.leaves = [leaf.view.tobytes() for leaf in scan.leaves]

    def digest(self, index: int) -> bytes:
        return self.leaves[index]

    def data(self, index: int) -> bytes:
        return self.leaves[index]


HELD: dict[str, Callable[[Clock, Any], Any]] = {
    "a method": lambda clock, value: clock.tick,
    "a method of a file": lambda clock, value: io.StringIO(str(value)).write,
    "a weak reference": lambda clock, value: weakref.ref(clock),
    "a partial": lambda clock, value: functools.partial(clock.tick, [value]),
    "a named tuple": lambda clock, value: Pair([value], clock),
    "an enum": lambda clock, value: Color.RED,
    "a date": lambda clock, value: datetime.datetime(2020, 1, 1),
    "a property": lambda clock, value: property(Clock.tick),
    "a static method": lambda clock, value: staticmethod(Clock.tick),
}


@pytest.mark.parametrize("what", HELD)
def test_what_differs_is_found_beside_values_made_of_objects(what: str) -> None:
    """None of them can be made while the objects that they are made of are numbers, and none of them differs."""
    clock = Clock()

    def differences(was: int, now: int) -> list[str]:
        reads, kinds = [], []
        for number in (was, now):
            state = {"held": HELD[what](clock, 7), "clock": clock, "value": number}
            scan = Scan(Here(), [Root(("global", __name__, "state"), state)])
            reads.append(Read.of(scan.stream, 1, Bytes(scan)))
            kinds = [kind.name for kind in scan.kinds]
        return [str(each) for each in Comparison(*reads, kinds).root(0, "state")]

    assert differences(1, 3) == ["state['value']: 1 in the run, 3 now, 2 apart"]


def test_a_difference_in_what_a_value_is_made_of() -> None:
    """It is named by the path to the value that holds it."""
    reads, kinds = [], []
    for number in (1, 3):
        scan = Scan(
            Here(),
            [Root(("global", __name__, "state"), {"when": weakref.ref(Clock()), "pair": Pair(number, [])})],
        )
        reads.append(Read.of(scan.stream, 1, Bytes(scan)))
        kinds = [kind.name for kind in scan.kinds]
    found = [str(each) for each in Comparison(*reads, kinds).root(0, "state")]
    assert found == ["state['pair']: 1 in the run, 3 now, 2 apart"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_replay_that_ends_otherwise_than_the_run_is_not_exact(
    flor: Flor, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    """An exception that the run never had is no answer, and exit code 1 could be the program's own."""
    monkeypatch.setenv("SCALE", "3")
    flor.write(
        "train.py",
        'import os\nprint("begins")\nfor epoch in range(3):\n    w = epoch * int(os.environ["SCALE"])\n',
    )
    assert flor("train.py").returncode == 0
    monkeypatch.delenv("SCALE")
    flor.write("train.py", (flor.folder / "train.py").read_text() + "    print('@@', w)\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_WORKERS=workers)
    assert (done.returncode, done.stdout) == (4, "")
    assert "KeyError: 'SCALE'" in done.stderr
    ours = [line for line in done.stderr.splitlines() if line.startswith("florhook:")]
    assert ours == [
        "florhook: this replay is not exact: the program ended with exit code 1, in the run with 0"
    ]


def test_a_probe_that_raises_ends_the_replay_as_it_would_have_ended_the_program(flor: Flor) -> None:
    """That is the answer, not a difference."""
    flor.write("train.py", "for epoch in range(3):\n    w = epoch\nprint(w)\n")
    assert flor("train.py").returncode == 0
    flor.write(
        "train.py", "for epoch in range(3):\n    w = epoch\n    print('@@', nothing_like_it)\nprint(w)\n"
    )
    done = flor("train.py", FLOR_MODE="replay")
    assert done.returncode == 1
    assert "NameError: name 'nothing_like_it'" in done.stderr
    assert "florhook" not in done.stderr


def test_a_print_that_calls_a_generic_function_is_innocent(flor: Flor) -> None:
    """functools.singledispatch keeps what it has looked up."""
    setup = "import functools\n@functools.singledispatch\ndef show(x): return 'any'\n"
    setup += "@show.register\ndef _(x: int): return 'int'\n"
    done, figures = replayed(
        flor, "weights[1] += len(show(2))", "print('@@', show(epoch), show(2.5), show('a'))", setup
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "@@ int any any\n" * 6
    assert figures["diverged"] == 0


@pytest.mark.parametrize("loop", ["for epoch in range(6):", "while (epoch := epoch + 1) < 6:"])
def test_after_a_difference_a_loop_that_an_exception_leaves_goes_on_to_its_end(flor: Flor, loop: str) -> None:
    """The run went on too, and was not killed."""
    source = f"""
import random, sys
w, epoch = 0.0, -1
try:
    {loop}
        for step in range(4000):
            w += step * 0.1
        print(epoch, w)
        if epoch == 4:
            raise LookupError("enough")
except LookupError:
    sys.exit(5)
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 5
    flor.write(
        "train.py",
        source.replace("        print(", "        print('@@', epoch, random.random() < 2)\n        print("),
    )
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout) == (4, "".join(f"@@ {epoch} True\n" for epoch in range(5)))
    assert "killed or interrupted" not in done.stderr


def test_a_print_in_a_closure_that_uses_more_of_the_function_around(flor: Flor) -> None:
    """What only the print uses is no state of the function."""
    source = """
def main():
    total, seen = [0.0], []
    def step(k):
        total[0] += k * 0.5
        return total[0]
    for epoch in range(4):
        for k in range(4000):
            value = step(k)
        seen.append(value)
        print(epoch, value)
main()
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write(
        "train.py",
        source.replace(
            "        return", "        print('@@', k, len(seen)) if not k else None\n        return"
        ),
    )
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="epoch=2:", FLOR_STATS=str(stats))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "@@ 0 2\n@@ 0 3\n")
    figures = json.loads(stats.read_text())
    assert (figures["diverged"], figures["iterations_skipped"] >= 2) == (0, True)


def test_times_that_a_search_of_scikit_learns_took(flor: Flor) -> None:
    """They are the replay's own, and no difference."""
    pytest.importorskip("sklearn")
    source = """
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
x = np.random.default_rng(0).normal(size=(60, 3))
y = (x[:, 0] > 0).astype(int)
for epoch in range(3):
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0 + epoch]}, cv=3).fit(x, y)
    print(epoch, search.best_score_)
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", source.replace("    print(", "    print('@@', search.best_params_)\n    print("))
    done = flor("train.py", FLOR_MODE="replay")
    plain = flor.python("train.py").stdout.splitlines(keepends=True)
    assert (done.returncode, done.stdout) == (0, "".join(line for line in plain if line.startswith("@@")))
    assert "not exact" not in done.stderr
    assert "search.refit_time_ holds a time of the clock" in done.stderr


BOX = """
from functools import cached_property
class Box:
    def __init__(self):
        self.items = [1, 2, 3]
    @cached_property
    def total(self):
        return {value}
box = Box()
"""
EARLIER = """
    if epoch == 1:
        box.mark = epoch
    if epoch == 3:
        weights[2] += sum(box.total)
"""


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("weights[1] += total", "[len(self.items)]"),
        ("box.mark = box.items[:epoch]", "[self.items]"),
        (EARLIER.strip(), "[len(self.items)]"),
    ],
    ids=["only in the replay", "sharing what the program has", "earlier in the replay"],
)
def test_a_print_that_fills_a_cached_property(body: str, value: str, flor: Flor) -> None:
    """It would be computed all the same where it was not: no difference, and no reason to run more than else."""
    setup = BOX.format(value=value)
    done, figures = replayed(flor, body, "print('@@', epoch, len(box.total))", setup)
    assert done.stdout == "".join(f"@@ {epoch} 1\n" for epoch in range(6))
    assert (done.returncode, done.stderr) == (0, "")
    assert (figures["verified"], figures["diverged"], figures["unverified"]) == (7, 0, 0)
    assert figures["blocks_skipped"] == 6


def test_a_cached_property_of_another_moment(flor: Flor) -> None:
    """Where both have it, it must be the same: here the print made it too early."""
    source = BOX.format(value="len(self.items)") + (
        "import time\n"
        "for epoch in range(4):\n"
        "    time.sleep(0.01)\n"
        "    if epoch == 2:\n"
        "        print(box.total)\n"
        "    box.items.append(epoch)\n"
    )
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").stdout == "5\n"
    flor.write("train.py", source + "    print('@@', box.total)\n")
    done = flor("train.py", FLOR_MODE="replay")
    assert done.returncode == 4
    assert "box.total: 5 in the run, 4 now, 1 apart" in done.stderr


def test_a_cached_property_that_a_restore_took_away(flor: Flor) -> None:
    """The program with the print would have kept its first value: where the next is another, the replay says so."""
    setup = BOX.format(value="len(self.items)")
    done, _ = replayed(flor, "box.items.append(epoch)", "print('@@', box.total)", setup)
    assert done.returncode == 4
    assert "a print computes Box.total anew, with another value than before" in done.stderr


def test_a_cached_property_that_only_the_run_had(flor: Flor) -> None:
    """The print that filled it was changed: it is compared no more, all else is."""
    source = BOX.format(value="sum(self.items)") + STEPS.format(body="print(box.total)")
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", source.replace("print(box.total)", "print('@@', epoch)"))
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"@@ {epoch}\n" for epoch in range(6))


def test_what_a_thread_does_meanwhile_is_not_compared(flor: Flor) -> None:
    """How far it has come differs from run to run: that is said, and is no divergence. Here the run had none at all."""
    program = """
        import os, queue, threading, time
        tasks, done, threads = queue.Queue(), [], []
        def work():
            while True:
                task = tasks.get()
                if task is None:
                    return
                time.sleep(0.02)
                done.append(task)
        for epoch in range(2):
            if "THREAD" in os.environ:
                threads.append(threading.Thread(target=work, name="worker"))
                threads[0].start()
            for step in range(3):
                tasks.put(step)
                if not threads:
                    done.append(tasks.get())
            tasks.put(None)
            if threads:
                threads.pop().join()
            else:
                tasks.get()
    """
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write(
        "train.py", program.replace("tasks.put(step)\n", "tasks.put(step)\n                print(step)\n")
    )
    done = flor("train.py", FLOR_MODE="replay", THREAD="1", FLOR_STATS="stats.json")
    assert (done.returncode, done.stdout) == (0, "0\n1\n2\n" * 2), done.stderr
    assert "a thread of the program's is at work" in done.stderr
    stats = json.loads((flor.folder / "stats.json").read_text())
    assert (stats["diverged"], stats["verified"] > 0, stats["unverified"] > 0) == (0, True, True)
