"""Other tools see the program that its author wrote: debuggers, profilers, compilers, test runners, process pools.

Each program runs plainly and recorded, in one folder, and leaves the same: status, stdout, stderr, files.
"""

from __future__ import annotations

import pstats
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor

from florhook.store.store import Store

EPSILONS = ("0.0667", "inf")

MODULE = """
    def total(n):
        '''The sum of ones.'''
        s = 0
        for i in range(n):
            s += len([i])
        while s > 2:
            s -= len([1])
        return s

    def unused():
        for i in range(3):
            print(i)
"""

SCRIPT = """
    import mod

    def run(n):
        out = []
        for i in range(n):
            out.append(mod.total(i))
        return out

    x = run(4)
    for k in x:
        print(k)
    print("end")
"""


@dataclass(frozen=True)
class Left:
    """What a program leaves behind."""

    status: int
    stdout: str
    stderr: str
    files: dict[str, bytes]


def left_by(flor: Flor, *command: str, keep: bool = False, **changes: str) -> Left:
    """Runs a command of Python's in the program's folder; the files that it makes are taken away, unless kept."""
    before = files_in(flor.folder)
    done = flor.python(*command, stdin=changes.pop("stdin", None), PYTHONDONTWRITEBYTECODE="1", **changes)
    made = {name: data for name, data in files_in(flor.folder).items() if before.get(name) != data}
    if not keep:
        for name in made:
            (flor.folder / name).unlink()
    stderr = "".join(
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith("florhook: ")
    )
    stdout, stderr = (re.sub("0x[0-9a-f]+", "0x", text) for text in (done.stdout, stderr))
    return Left(done.returncode, stdout, stderr, made)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def assert_same(flor: Flor, *command: str, options: tuple[str, ...] = (), **changes: str) -> Left:
    """Compares a program with what is left of it recorded, whatever the budget; FLOR_STRICT makes faults loud."""
    plain = left_by(flor, *options, *command, **changes)
    for epsilon in EPSILONS:
        ours = left_by(
            flor,
            *options,
            "-m",
            "florhook",
            *command,
            FLOR_EPSILON=epsilon,
            FLOR_STRICT="1",
            **changes,
        )
        assert ours == plain
    return plain


def recorded_loops(flor: Flor, run: str = "last") -> set[str]:
    with Store.open(flor.home) as store:
        return {row.site for row in store.contexts(store.find(run))}


# Coverage ------------------------------------------------------------------------------------------------------


def test_coverage(flor: Flor) -> None:
    """Lines and branches of the user's files are those of a plain run, whichever of the two starts the other."""
    coverage = pytest.importorskip("coverage")
    flor.write("mod.py", MODULE)
    flor.write("s.py", SCRIPT)

    def measured(*command: str, **changes: str) -> dict[str, Any]:
        left = left_by(flor, "-m", *command, "s.py", keep=True, **changes)
        assert (left.status, left.stdout) == (0, "0\n1\n2\n2\nend\n")
        data = coverage.CoverageData(str(flor.folder / ".coverage"))
        data.read()
        arcs = {name: sorted(data.arcs(str(flor.folder / name))) for name in ("s.py", "mod.py")}
        (flor.folder / ".coverage").unlink()
        return arcs

    measure = ("coverage", "run", "--branch")
    plain = measured(*measure)
    # By hand: the `for` goes into its body and past it, the `while` too.
    assert {(4, 5), (5, 4), (4, 6), (6, 7), (7, 6), (6, 8)} <= set(plain["mod.py"])
    assert not {line for arc in plain["mod.py"] for line in arc} & {11, 12}
    for epsilon in EPSILONS:
        assert measured(*measure, "-m", "florhook", FLOR_EPSILON=epsilon) == plain
        assert measured("florhook", "-m", *measure, FLOR_EPSILON=epsilon) == plain
    assert "mod:total:0" in recorded_loops(flor)


# Debuggers -----------------------------------------------------------------------------------------------------

COMMANDS = (
    "b mod.py:5\nb s.py:6\nc\nn\nn\np i\nc\ns\ns\ns\ns\ns\ns\ns\ns\nc\nw\nu\np n\nd\nunt\ncl 1\ncl 2\n"
    "r\nr\nn\nn\nn\nn\nn\nn\nj 12\nn\nq\nq\n"
)


def test_pdb_steps_as_without(flor: Flor) -> None:
    """Breakpoints, steps, the stack and its frames: `s` at a loop comes into the user's code or nobody's."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", SCRIPT)
    plain = assert_same(flor, "-m", "pdb", "s.py", stdin=COMMANDS)
    # By hand: the first breakpoint is line 6 of s.py, and `n` goes back to the loop's line.
    stops = re.findall(r"> \S+/(\w+\.py)\((\d+)\)", plain.stdout)
    assert stops[:4] == [("s.py", "1"), ("s.py", "6"), ("s.py", "5"), ("s.py", "6")]
    assert "florhook" not in plain.stdout


def test_a_breakpoint_in_the_program(flor: Flor) -> None:
    """`breakpoint()` shows the program's frames only, and `q` ends it as ever."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", "breakpoint()\n" + Path(flor.write("t.py", SCRIPT)).read_text())
    plain = assert_same(flor, "s.py", stdin="b 7\nc\nw\ns\ns\ns\ns\ns\ns\ns\ns\nw\nup\nq\n")
    assert plain.stdout.count("florhook") == 0


def test_florhook_under_pdb(flor: Flor) -> None:
    """`python -m pdb -m florhook s.py` keeps its breakpoints, steps alike, sees exceptions, and starts again."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", SCRIPT)
    left = left_by(flor, "-m", "pdb", "-m", "florhook", "s.py", stdin="b s.py:9\nc\n" + COMMANDS)
    plain = left_by(flor, "-m", "pdb", "s.py", stdin="b s.py:9\nc\n" + COMMANDS)

    def stops(text: str) -> list[str]:
        return re.findall(r"^(?:\(Pdb\) |.*)?> \S+/((?:s|mod)\.py\(\d+\)\w+)", text, re.MULTILINE)[1:]

    assert len(stops(plain.stdout)) > 20
    assert stops(left.stdout) == [place for place in stops(plain.stdout) if place]
    flor.write("z.py", "for x in [1, 2]:\n    1 / len([x][2:])\n")
    left = left_by(flor, "-m", "pdb", "-m", "florhook", "z.py", stdin="c\np x\nc\nc\nq\n")
    assert left.stdout.count("Entering post mortem debugging") == 2  # it was started twice
    assert re.search(r"> \S+z\.py\(2\)<module>\(\)\n-> 1 / len\(\[x\]\[2:\]\)\n\(Pdb\) 1\n", left.stdout)


def test_debugpy(flor: Flor) -> None:
    """A program that waits for a debugger at a port, and finishes, says the same either way around."""
    pytest.importorskip("debugpy")
    flor.write("mod.py", MODULE)
    flor.write("s.py", SCRIPT)
    listen = ("-m", "debugpy", "--listen", "127.0.0.1:0")
    quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    plain = left_by(flor, *listen, "s.py", **quiet)
    assert (plain.status, plain.stdout) == (0, "0\n1\n2\n2\nend\n")
    assert left_by(flor, *listen, "-m", "florhook", "s.py", **quiet) == plain
    assert left_by(flor, "-m", "florhook", *listen, "s.py", **quiet) == plain


# Profilers and tracers -----------------------------------------------------------------------------------------


def test_cprofile(flor: Flor) -> None:
    """The functions of the user are the same, and are called as often."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", SCRIPT)

    def calls(*command: str, **changes: str) -> dict[tuple[str, int, str], tuple[int, int]]:
        left_by(flor, *command, "s.py", keep=True, **changes)
        stats: Any = pstats.Stats(str(flor.folder / "out.prof"))
        (flor.folder / "out.prof").unlink()
        here = str(flor.folder)
        found = {}
        for (file, line, name), (primitive, total, *_) in stats.stats.items():
            if (file.startswith(here) or file in ("s.py", "mod.py")) and name != "<module>":
                found[Path(file).name, line, name] = (primitive, total)
        return found

    profile = ("-m", "cProfile", "-o", "out.prof")
    plain = calls(*profile)
    assert plain == {("s.py", 3, "run"): (1, 1), ("mod.py", 1, "total"): (4, 4)}
    for epsilon in EPSILONS:
        assert calls(*profile, "-m", "florhook", FLOR_EPSILON=epsilon) == plain
        assert calls("-m", "florhook", *profile, FLOR_EPSILON=epsilon) == plain


OBSERVERS = """
    import atexit, contextvars, faulthandler, gc, inspect, logging, os, signal, sys, threading, tracemalloc, warnings
    import mod

    logging.basicConfig(stream=sys.stdout, format="%(filename)s:%(lineno)d:%(funcName)s:%(message)s", level="INFO")
    atexit.register(print, "registered first")
    atexit.register(print, "registered last")


    def log(n):
        for i in range(n):
            logging.info("step %d", i, stacklevel=1 + i % 2)
            warnings.warn(f"step {i % 2}")
        while n > len([1]):
            n -= 1
            logging.warning("left %d", n)


    log(3)

    # tracers and profilers of the program's own, for its own files
    seen = []


    def trace(frame, event, argument):
        if os.path.basename(frame.f_code.co_filename) not in ("s.py", "mod.py"):
            return None
        seen.append((event, frame.f_code.co_name, frame.f_lineno))
        return trace


    def profile(frame, event, argument):
        if os.path.basename(frame.f_code.co_filename) in ("s.py", "mod.py") and event in ("call", "return"):
            seen.append((event, frame.f_code.co_name))


    sys.settrace(trace)
    mod.total(3)
    sys.settrace(None)
    sys.setprofile(profile)
    mod.total(3)
    sys.setprofile(None)
    print(seen)


    # signals in the middle of a loop
    def handler(number, frame):
        print("signal", signal.Signals(number).name, frame.f_code.co_name, os.path.basename(frame.f_code.co_filename))


    signal.signal(signal.SIGUSR1, handler)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)
    print(before)
    for i in range(3):
        os.kill(os.getpid(), signal.SIGUSR1)
        print("after", i)

    with open("trace.txt", "w+") as file:
        faulthandler.dump_traceback(file, all_threads=False)
        file.seek(0)
        print([line.split("/")[-1] for line in file][:2])
    os.remove("trace.txt")

    tracemalloc.start()
    kept = []
    for i in range(10):
        kept.append(bytearray(100_000 + i))
    top = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)]).statistics("lineno")[0]
    print(os.path.basename(top.traceback[0].filename), top.traceback[0].lineno, top.count > 20, top.size > 1_000_000)
    tracemalloc.stop()

    variable = contextvars.ContextVar("variable", default=0)
    for i in range(3):
        variable.set(variable.get() + i)
    print(variable.get(), contextvars.copy_context().get(variable))

    print(sorted(threading.enumerate(), key=str) == [threading.main_thread()], gc.isenabled(), gc.get_threshold())
    print(sorted(name for name in globals() if "flor" in name and name != "__flor__"))
    print(sys.gettrace(), sys.getprofile(), sys.flags.optimize, __debug__)
    for warning in range(2):
        for i in range(2):
            warnings.warn("once")
    assert not __debug__ or mod.total(1) == 1
    print("step" in inspect.getsource(log), inspect.getsourcelines(mod.total)[1])
    for frame in inspect.stack()[:1]:
        print(frame.function, frame.lineno, os.path.basename(frame.filename))
"""


@pytest.mark.parametrize(
    "options",
    [(), ("-O",), ("-W", "error::SyntaxWarning"), ("-X", "faulthandler"), ("-W", "error")],
    ids=" ".join,
)
def test_what_the_program_observes_of_itself(flor: Flor, options: tuple[str, ...]) -> None:
    """Logging, warnings, tracers, signals, memory, frames: with each option of Python's as without florhook."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", OBSERVERS)
    plain = assert_same(flor, "s.py", options=options)
    if options == ("-W", "error"):
        assert plain.status == 1
    else:
        assert (plain.status, plain.stderr.count("UserWarning: once")) == (0, 1)
        assert "signal SIGUSR1 <module> s.py\nafter 2\n" in plain.stdout
        assert plain.stdout.endswith("registered last\nregistered first\n")


def test_importtime(flor: Flor) -> None:
    """`-X importtime` names the user's modules, in the order of a plain run."""
    flor.write("mod.py", "import json\n" + Path(flor.write("m.py", MODULE)).read_text())
    flor.write("s.py", SCRIPT)

    def order(*command: str) -> list[str]:
        done = flor.python("-X", "importtime", *command, "s.py")
        names = [line.split("|")[-1].strip() for line in done.stderr.splitlines() if "import time:" in line]
        return [name for name in names if name in ("mod", "m")]

    assert order("-m", "florhook") == order() == ["mod"]


# Sources -------------------------------------------------------------------------------------------------------

SOURCES = """
    from __future__ import annotations

    import copy, dataclasses, doctest, functools, inspect, linecache, pickle, typing
    import mod


    @dataclasses.dataclass(order=True)
    class Point:
        '''A point.

        >>> Point(1).doubled()
        [2, 2]
        '''

        x: int
        y: typing.Optional[int] = None
        for_all: typing.ClassVar[list[int]] = []

        def doubled(self):
            out = []
            for _ in range(2):
                out.append(self.x * 2)
            return out

        @functools.lru_cache(maxsize=None)
        def cached(self: Point) -> int:
            for n in range(3):
                len([n])
            return n

        __hash__ = object.__hash__


    class Meta(type):
        def __prepare__(name, bases, **more):
            return {"made": name}


    class Made(metaclass=Meta):
        for k in range(2):
            exec(f"attr{k} = {k}")


    def annotated(a: int, *rest: "Point", key: dict[str, Point] | None = None) -> list[Point]:
        for r in rest:
            len([r])
        return list(rest)


    def closure():
        held = []

        def inner(n):
            nonlocal held
            for i in range(n):
                held = held + [i]
            return held

        return inner


    for thing in (Point, Point.doubled, annotated, closure, mod, mod.total):
        print(inspect.getsource(thing))
        print(inspect.getsourcelines(thing)[1], inspect.getdoc(thing), inspect.isfunction(thing))
    print(inspect.signature(annotated), inspect.getclosurevars(closure()).nonlocals)
    print(typing.get_type_hints(Point), typing.get_type_hints(annotated)["return"])
    print(dataclasses.fields(Point)[1].default, sorted([Point(2), Point(1)])[0], Point(3).cached())
    print(doctest.testmod(), Made.made, Made.attr1, Made.k)
    print(pickle.loads(pickle.dumps([Point(4), annotated, Point.doubled])), copy.deepcopy(Point(5)))
    print(linecache.getline(__file__, 3).split()[1], annotated.__code__.co_filename == __file__)
    print(annotated.__code__.co_varnames, annotated.__code__.co_freevars, closure().__code__.co_freevars)
    print([name for name in vars(Point) if not name.startswith("__")])
    for number in (1, 2):
        code = compile("for k in range(3): total = k", "<text>", "exec")
        exec(code)
        print(total, eval("[k for k in range(number)]"), "__flor__" in code.co_names)
"""


def test_sources(flor: Flor) -> None:
    """getsource, doctest, dataclasses, annotations, pickles, code objects: all as written."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", SOURCES)
    plain = assert_same(flor, "s.py")
    assert plain.status == 0, plain.stderr
    assert "TestResults(failed=0, attempted=1)" in plain.stdout
    assert plain.stdout.endswith("2 [0] False\n2 [0, 1] False\n")


# Processes and threads -----------------------------------------------------------------------------------------

PROCESSES = """
    import asyncio, concurrent.futures, multiprocessing, os, subprocess, sys, threading
    import mod


    class Answer:
        def __init__(self, value):
            self.value = value


    def work(value):
        for i in range(3):
            value += len([i])
        return Answer(value)


    def serve(tasks, answers):
        while (n := tasks.get()) is not None:
            answers.put((n, mod.total(n)))


    async def ask(n):
        for i in range(2):
            await asyncio.sleep(0)
        return [x async for x in numbers(n)]


    async def numbers(n):
        for i in range(n):
            yield i
            await asyncio.sleep(0)


    def main():
        for method in ("spawn", "forkserver", "fork"):
            context = multiprocessing.get_context(method)
            with context.Pool(2) as pool:
                answers = pool.map(work, range(4))
                pool.close()
                pool.join()  # else a worker may be killed at any point of its start
                print(method, [a.value for a in answers], {type(a) is Answer for a in answers})
            tasks, answers = context.Queue(), context.Queue()
            process = context.Process(target=serve, args=(tasks, answers))
            process.start()
            for n in (1, 5, None):
                tasks.put(n)
            print(sorted(answers.get() for _ in range(2)), process.join(), process.exitcode)
        with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
            for answer in pool.map(work, range(3)):
                print("process", answer.value)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for answer in pool.map(work, range(3)):
                print("thread", answer.value)
        found = []
        threads = [threading.Thread(target=lambda n=n: found.append(mod.total(n))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sorted(found))

        async def all_of_them():
            return await asyncio.gather(*(ask(n) for n in range(3)))

        for _ in range(2):
            print(asyncio.run(all_of_them()))
        done = subprocess.run([sys.executable, "other.py", "3"], capture_output=True, text=True)
        print("subprocess", done.returncode, done.stdout, done.stderr)
        sys.stdout.flush()
        for n in range(2):
            child = os.fork()
            if child == 0:
                for k in range(3):
                    print("child", n, mod.total(k), flush=True)
                os._exit(n)
            print("exit", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(sorted(name for name in os.environ if name.startswith("FLOR_") and name not in ALLOWED))
        sys.stdout.flush()
        for how in sys.argv[1:]:
            os.execv(sys.executable, [sys.executable, "other.py", how])


    ALLOWED = ("FLOR_HOME", "FLOR_EPSILON", "FLOR_STRICT", "FLOR_OWNER")
    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("command", [("s.py", "exec"), ("-m", "s")], ids=" ".join)
def test_processes(flor: Flor, command: tuple[str, ...]) -> None:
    """Pools of every kind, queues, futures, threads, coroutines, children: as without, and none of them records."""
    flor.write("mod.py", MODULE)
    flor.write("s.py", PROCESSES)
    flor.write("other.py", "import sys\nfor i in range(3):\n    print(sys.argv[1], i)\nsys.exit(7)\n")
    path = flor.environ()["PYTHONPATH"]
    site = subprocess.run(
        [sys.executable, "-m", "florhook", "sitedir"], env=flor.environ(), capture_output=True
    )
    plain = assert_same(
        flor, *command, PYTHONPATH=f"{site.stdout.decode().strip()}:{path}", PYTHONWARNINGS="ignore"
    )
    assert plain.status == (7 if "exec" in command else 0), plain.stderr
    assert "spawn [3, 4, 5, 6] {True}\n[(1, 1), (5, 2)] None 0\n" in plain.stdout
    with Store.open(flor.home) as store:
        assert len(store.runs()) == len(EPSILONS)


SENT = """
    import cloudpickle, joblib, subprocess, sys

    def work(n, deep=2):
        s = 0
        for i in range(n):
            s += len([i])
            if i == 3: break
        else:
            s += 1000
        while s > 1003:
            s -= len([1])
        else:
            s += 100
        if deep:
            return [s, *work(n + 1, deep - 1)]
        return [s]

    for round in range(2):
        print(joblib.Parallel(n_jobs=2)(joblib.delayed(work)(i) for i in range(4)))
    data = cloudpickle.dumps(lambda n: [work(n) for _ in range(2)])
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(2))"
    for round in range(2):
        print(subprocess.run([sys.executable, "-c", code], input=data, capture_output=True).stdout.decode())
"""


def test_functions_sent_to_other_processes(flor: Flor) -> None:
    """By value, as joblib and cloudpickle send them: they run plainly there, also those of a replayed program."""
    pytest.importorskip("joblib")
    pytest.importorskip("cloudpickle")
    flor.write("s.py", SENT)
    plain = assert_same(flor, "s.py")
    # by hand: 0 to 2 ones and the `else`, 1003 is no more than 1003, or 4 ones and a break
    assert "[[1100, 1101, 1102], [1101, 1102, 1103], [1102, 1103, 104], [1103, 104, 104]]" in plain.stdout
    with (flor.folder / "s.py").open("a") as file:
        file.write('print("@@", work(3))\n')
    replayed = flor("--log", "all", "s.py", FLOR_MODE="replay")
    assert replayed.stdout == plain.stdout + "@@ [1103, 104, 104]\n"


# pytest --------------------------------------------------------------------------------------------------------


def test_pytest(flor: Flor) -> None:
    """Assertions are rewritten by pytest, modules of the project by florhook; outcomes and reports are the same."""
    flor.write("project/mod.py", MODULE)
    flor.write(
        "project/test_mod.py",
        """
        import mod, pytest

        @pytest.fixture
        def three():
            for n in range(4):
                pass
            return n

        @pytest.mark.parametrize("n", [1, 2])
        def test_right(n, three):
            assert mod.total(n) == n

        def test_wrong(three):
            for n in range(3, 5):
                assert mod.total(n) == three

        def test_raises(capsys):
            print("heard")
            assert capsys.readouterr().out == "heard\\n"
            with pytest.raises(TypeError):
                mod.total("a")
        """,
    )

    def outcome(*command: str, **changes: str) -> Left:
        left = left_by(flor, *command, "-m", "pytest", "-q", "-p", "no:cacheprovider", "project", **changes)
        return Left(left.status, re.sub(r"in \d+\.\d+s", "in a moment", left.stdout), left.stderr, left.files)

    plain = outcome()
    assert plain.status == 1
    assert "E           assert 2 == 3" in plain.stdout
    assert "1 failed, 3 passed" in plain.stdout
    for epsilon in EPSILONS:
        assert outcome("-m", "florhook", FLOR_EPSILON=epsilon) == plain
        assert "mod:total:0" in recorded_loops(flor)


# Compilers -----------------------------------------------------------------------------------------------------

HELPER = """
    import torch

    def scale(x, n):
        for i in range(n):
            x = x * torch.tensor(1.0 + i)
        return x

    def until(x, n):
        while n > 0:
            x = torch.add(x, 1)
            n -= len([1])
        else:
            x = x * 2
        return x

    def first(x, n: int):
        for i in range(n):
            if i == 2:
                return torch.add(x, i)
        return x

    def parts(x):
        out = []
        for i in range(2):
            for part in torch.split(x, 1):
                out.append(torch.sin(part) * i)
            else:
                out.append(out[-1] + 1)
        return torch.cat(out)

    def broken(x):
        total = torch.zeros(2)
        n = 0
        while n < 3:
            total = total + torch.sin(x)
            print("break", n)
            n += len([1])
        for i in range(2):
            print("for", i)
            total = total * 2
        return total
"""

COMPILED = """
    import sys, warnings
    import torch
    from torch import nn
    from torch._dynamo.utils import counters
    import helper

    warnings.simplefilter("ignore")


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            for layer in self.layers:
                nn.init.constant_(layer.weight, 0.1)
                nn.init.constant_(layer.bias, 0.0)

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            x = helper.scale(x, 3)
            k = 2
            while k > 0:
                x = torch.sin(x)
                k -= 1
            return helper.until(helper.parts(x), 2)


    class Shift(nn.Module):
        def forward(self, x):
            for i in range(2):
                x = x + i
            return x


    def other():
        return 1


    net = Net()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for epoch in range(4):
        for step in range(3):
            optimizer.zero_grad()
            loss = compiled(torch.ones(2, 4) * (step + 1)).sum()
            loss.backward()
            optimizer.step()
            if step == epoch:
                other()
        print(epoch, float(loss.detach()), float(net.layers[0].bias[0]))
        #PROBE
    for function in (helper.until, helper.first, helper.scale):
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        for i in range(3):
            print(compiled(torch.ones(2), 3).tolist())
    import late
    late.all()
    print(compiled(torch.ones(2), 3).tolist())
    with_breaks = torch.compile(helper.broken, backend="eager")
    for i in range(3):
        print(with_breaks(torch.ones(2)).tolist())
    scripted, traced = torch.jit.script(Shift()), torch.jit.trace(Shift(), torch.ones(2))
    script = torch.jit.script(helper.first)
    print(scripted(torch.ones(2)).tolist(), traced(torch.zeros(2)).tolist(), script(torch.ones(2), 3).tolist())
    print("aten::add" in str(scripted.graph), str(traced.graph).count("aten::add"))
    print({name: dict(found) for name, found in counters.items() if name in ("stats", "graph_break", "recompiles")})
"""


@pytest.mark.needs_torch
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_torch_compile(flor: Flor) -> None:
    """No graph break and no graph more, in models and helpers of other modules; and a replay compiles alike."""
    flor.write("helper.py", HELPER)
    flor.write("late.py", "def all():\n    for i in range(2):\n        len([i])\n")
    program = flor.write("s.py", COMPILED)
    plain = left_by(flor, "s.py")
    assert plain.status == 0, plain.stderr
    # by hand: (1 + 3) * 2, and 1 + 2 where `first` returns, and 1 * 1 * 2 * 3
    assert "[8.0, 8.0]\n" * 3 + "[3.0, 3.0]\n" * 3 + "[6.0, 6.0]\n" * 4 in plain.stdout
    assert left_by(flor, "-m", "florhook", "s.py", FLOR_EPSILON="inf", FLOR_STRICT="1") == plain
    program.write_text(
        program.read_text().replace("#PROBE", 'print("@@", epoch, float(net.layers[0].bias[0]))')
    )
    replayed = flor("--log", "all", "s.py", FLOR_MODE="replay")
    expected = re.sub(r"(?m)^(\d) \S+ (\S+)\n", r"\g<0>@@ \1 \2\n", plain.stdout)
    assert expected.count("@@") == 4
    assert (replayed.returncode, replayed.stdout) == (0, expected), replayed.stderr


FOLLOWED = """
    import torch
    from torch import nn
    from torch.fx import symbolic_trace
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode


    class Count(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))


    class Calls(torch.overrides.TorchFunctionMode):
        seen = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
            for p in self.parameters():
                nn.init.constant_(p, 0.5)

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            return x


    @torch.compiler.disable
    def disabled(x):
        for i in range(2):
            x = x + len([i])
        return x


    def broken(x):
        for i in range(2):
            x = disabled(x) * 2
        return x


    def power(x):
        out = x
        for i in range(3):
            out = out * x.sum()
        return out


    net, one = Net(), torch.ones(1, 2)
    for mode in (Count(), Calls()):
        with mode:
            for step in range(3):
                net(one)
        print(type(mode).__name__, mode.seen)
    print(symbolic_trace(net).code, make_fx(net)(one).code.count("relu"))
    print(torch.vmap(power)(torch.ones(2, 2)).tolist(), torch.func.jacrev(power)(torch.ones(2)).tolist())
    traced = torch.jit.trace(net, one)
    print(str(traced.inlined_graph).count("relu"), traced(one).tolist())
    print(len(torch.export.export(net, (one,), strict=False).graph.nodes))
    print(torch.compile(broken, backend="eager")(torch.ones(1)).tolist())
    with torch.autograd.profiler.profile() as profile:
        for i in range(2):
            net(one)
    print(sorted((each.key, each.count) for each in profile.key_averages()))
"""


@pytest.mark.needs_torch
@pytest.mark.slow
def test_what_torch_follows(flor: Flor) -> None:
    """Traces, transforms, modes and profiles hold the program's operations only, and torch compiles nothing of ours."""
    flor.write("s.py", FOLLOWED)
    plain = left_by(flor, "s.py")
    assert plain.status == 0, plain.stderr
    # by hand: in each of 3 steps 2 layers, each a linear and a relu
    assert "Calls 12\n" in plain.stdout
    ours = left_by(flor, "-m", "florhook", "s.py", FLOR_EPSILON="inf", FLOR_STRICT="1")
    assert (ours.status, ours.stdout) == (0, plain.stdout)
    assert "recompile_limit" not in ours.stderr


NUMBA = """
    import numba, numpy

    @numba.njit
    def decorated(n):
        s = 0
        for i in range(n):
            s += i
        return s

    def by_call(n):
        s = 0
        for i in range(n):
            for j in range(i):
                s += j
        while s > 50:
            s -= decorated(3)
        return s

    def with_inner(a):
        def inner(x):
            t = 0.0
            for i in range(3):
                t += x * i
            return t
        out = 0.0
        for x in a:
            out += inner(x)
        return out

    def closing(k):
        def add(n):
            for i in range(3):
                n += k
            return n
        return numba.njit(add)

    compiled = numba.njit(by_call)
    print(decorated(5), compiled(10), by_call(10), compiled.py_func is by_call)
    print(numba.njit(with_inner)(numpy.arange(4.0)), closing(5)(1), closing(2)(1))

    def scalar(x):
        for i in range(2):
            x += i
        return x

    print(numba.vectorize(["int64(int64)"])(scalar)(numpy.arange(3)))
"""


@pytest.mark.slow
def test_numba(flor: Flor) -> None:
    """Functions are compiled as they were written, decorated or not."""
    pytest.importorskip("numba")
    flor.write("s.py", NUMBA)
    plain = assert_same(flor, "s.py")
    assert plain.status == 0, plain.stderr
    # by hand: 0+1+2+3+4; sum of triangular numbers up to 36 is 120, less 3 until at most 50
    assert plain.stdout == "10 48 48 True\n18.0 16 7\n[1 2 3]\n"
