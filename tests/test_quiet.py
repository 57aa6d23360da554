"""Debuggers, tracers and profilers of a recorded program see what they see without florhook."""

from __future__ import annotations

import json
import sys

import pytest
from conftest import Flor

WORK = """
    class Thing:
        def __iter__(self):
            yield from (1, 2)

    def inner(n):
        while n > len([]):
            n -= 1
        return n

    def work():
        total = 0
        for x in Thing():
            for y in [x, x + 1]:
                total += inner(y)
            if x == 2:
                break
        else:
            total += 1
        add = lambda: total
        for x in range(3):
            try:
                if x:
                    raise KeyError(x)
            except KeyError:
                continue
            total += add()
        while True:
            total += len([1])
            if total > 3:
                return total
"""

TRACED = f"""{WORK}
    import os, sys
    seen = []

    def tracer(frame, event, arg):
        file = os.path.basename(frame.f_code.co_filename)
        if file != "train.py":
            seen.append((file, frame.f_code.co_name, event))
        else:
            seen.append((frame.f_code.co_name, event, frame.f_lineno))
        return tracer

    def profiler(frame, event, arg):
        name = getattr(arg, "__name__", "") if event.startswith("c_") else ""
        seen.append((os.path.basename(frame.f_code.co_filename), frame.f_code.co_name, event, name))

    for k in range(4):
        work()
        if k == 1:  # from here on this loop is traced in the middle
            sys.settrace(tracer)
            sys._getframe().f_trace = tracer
    sys.settrace(None)
    sys.setprofile(profiler)
    work()
    for k in range(2):
        work()
    sys.setprofile(None)
    print(len(seen))
    print(*seen, sep="\\n")
"""

MONITORED = f"""{WORK}
    import os, sys
    monitoring = sys.monitoring
    seen = []
    monitoring.use_tool_id(3, "judge")
    monitoring.register_callback(
        3, monitoring.events.PY_START, lambda code, *_: seen.append((os.path.basename(code.co_filename), code.co_name))
    )
    monitoring.set_events(3, monitoring.events.PY_START)
    for k in range(2):
        work()
    monitoring.set_events(3, 0)
    print(*seen, sep="\\n")
"""


def test_a_tracer_and_a_profiler_see_the_program_only(flor: Flor) -> None:
    """Every event is that of a plain run, also where tracing begins inside a loop; the recording goes on meanwhile."""
    flor.write("train.py", TRACED)
    plain = flor.python("train.py").stdout
    assert int(plain.splitlines()[0]) > 300
    stats = flor.folder / "stats.json"
    for epsilon in ("inf", "0.0667"):
        done = flor("train.py", FLOR_EPSILON=epsilon, FLOR_STATS=str(stats), FLOR_STRICT="1")
        assert done.stdout == plain, done.stderr
        assert "stopped" not in done.stderr
        assert json.loads(stats.read_text())["iterations_executed"] > 10


def test_monitoring_sees_the_program_only(flor: Flor) -> None:
    """`sys.monitoring` tells of no function of florhook's."""

    if not hasattr(sys, "monitoring"):
        pytest.skip("sys.monitoring is new in Python 3.12")
    flor.write("train.py", MONITORED)
    plain = flor.python("train.py").stdout
    assert "inner" in plain
    assert flor("train.py", FLOR_EPSILON="inf", FLOR_STRICT="1").stdout == plain


def test_pdb_never_steps_into_florhook(flor: Flor) -> None:
    """`step` goes from line to line of the program, from one loop's iterations to the next one's."""
    flor.write(
        "train.py", f"{WORK}\n    breakpoint()\n    for k in range(2):\n        work()\n    print('end')\n"
    )
    commands = "step\n" * 150 + "continue\n"
    plain = flor.python("train.py", stdin=commands).stdout
    assert plain.count("--Call--") > 5
    assert flor("train.py", stdin=commands, FLOR_EPSILON="inf", FLOR_STRICT="1").stdout == plain


DEEP = """
    import sys, traceback

    def nothing(n):
        return n

    def looping(n):
        for x in [n]:
            nothing(x)
        while n:
            nothing(n)
            break
        return n

    def at_depth(n, function):
        return at_depth(n - 1, function) if n else function(1)

    def forever(n):
        for x in [n, len([])]:
            forever(n + 1)

    failed = []
    for depth in range(900, 1000):
        try:
            at_depth(depth, looping)
        except RecursionError as error:
            failed.append(depth)
    print(failed[0] > 980, failed == list(range(failed[0], 1000)))
    try:
        forever(0)
    except RecursionError as error:
        names = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
        print(names == {__file__})

    def exact():
        # the lowest limit that is possible here: nothing of ours has any room
        low = 1
        while True:
            try:
                sys.setrecursionlimit(low)
            except RecursionError:
                low += 1
            else:
                break
        sys.setrecursionlimit(low + 20)

    before = sys.getrecursionlimit()
    exact()
    sys.setrecursionlimit(before)
    for n in range(3):
        nothing(n)
    print("done")
"""


def test_at_the_recursion_limit_the_recording_gives_way(flor: Flor) -> None:
    """The program gets its own RecursionErrors and none of florhook's.

    Known limit: where there is no room to send a row, the recording may end, and says so. It goes on in most runs.
    """
    flor.write("train.py", DEEP)
    plain = flor.python("train.py")
    assert plain.stdout.split() == ["True", "True", "True", "done"]
    done = flor("train.py", FLOR_EPSILON="inf")
    assert (done.stdout, done.returncode) == (plain.stdout, 0), done.stderr
    assert "internal error" not in done.stderr


NUMBERS = """
    import os
    kept = []
    for k in range(6):
        kept.append(bytearray(os.urandom(1 << 20)))
        first = os.open(os.devnull, os.O_RDONLY)
        second = os.dup(first)
        print(second - first, first)
        os.close(first)
        os.close(second)
"""


def test_checkpoints_leave_the_low_descriptors_to_the_program(flor: Flor) -> None:
    """A file that the program opens gets the number that it gets without florhook, also after checkpoints."""
    flor.write("train.py", NUMBERS)
    plain = flor.python("train.py").stdout
    assert flor("train.py", FLOR_EPSILON="inf").stdout == plain


IMPORTING = """
    import builtins
    asked = []
    plain = builtins.__import__

    def asking(name, *rest):
        asked.append(name)
        return plain(name, *rest)

    builtins.__import__ = asking
    kept = []
    for k in range(3):
        kept.append((Ellipsis, k, slice(k)))
        for n in range(2):
            kept.append(n)
    print(asked, builtins.__import__ is asking)
"""


def test_an_import_function_of_the_programs_is_not_asked(flor: Flor) -> None:
    """Taking a checkpoint imports, but not through what the program has put in the place of `__import__`."""
    flor.write("train.py", IMPORTING)
    assert flor.python("train.py").stdout == "[] True\n"
    assert flor("train.py", FLOR_EPSILON="inf").stdout == "[] True\n"
