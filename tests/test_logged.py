"""What a program hands to `logging` and to the trackers of experiments shows as what it prints does."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sqlite3
import types
from pathlib import Path
from typing import Any

import pytest
from conftest import Flor, new_flor
from telling import known, rows_of, said, told

from florhook.hook.tell import function_of, telling

# Small libraries with the functions that the real ones have, at the same places; they keep what they are given.
LIBRARIES = {
    "tqdm/__init__.py": "from .std import tqdm\n",
    "tqdm/std.py": '''
        class tqdm:
            """A bar."""
            def __init__(self, items):
                self.items, self.postfix = items, None

            def __iter__(self):
                return iter(self.items)

            def set_postfix(self, ordered_dict=None, refresh=True, **kwargs):
                self.postfix = {**(ordered_dict or {}), **kwargs}

            def set_postfix_str(self, s='', refresh=True):
                self.postfix = str(s)
        ''',
    "wandb/__init__.py": "from .sdk.wandb_run import Run\nrun = Run()\nlog = run.log\n",
    "wandb/sdk/__init__.py": "",
    "wandb/sdk/wandb_run.py": """
        import functools

        def _attach(function):
            @functools.wraps(function)
            def wrapper(self, *args, **kwargs):
                return function(self, *args, **kwargs)
            return wrapper

        class Run:
            @_attach
            def log(
                self, data, step=None, commit=None
            ):
                if not isinstance(data, dict):
                    raise ValueError("no dict")
                return sorted(
                    data
                )
        """,
    "mlflow/__init__.py": "from .tracking.fluent import log_metric, log_metrics\n",
    "mlflow/tracking/__init__.py": "",
    "mlflow/tracking/fluent.py": """
        def log_metric(key, value, step=None, synchronous=None):
            return float(value)

        def log_metrics(metrics, step=None, synchronous=None):
            return None
        """,
}
PROGRAM = """
    import logging, sys, time
    from collections import OrderedDict
    import mlflow, wandb
    from tqdm import tqdm

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    shown = logging.getLogger("shown")
    shown.propagate = False
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("[%(levelname)s]   %(message)s"))
    shown.addHandler(handler)

    for epoch in range(2):
        bar = tqdm(range(3, 5))
        for step in bar:
            time.sleep(0.003)
            logging.getLogger("train").info("loss=%.2f", epoch + step / 4)
            logging.debug("never=1")
            bar.set_postfix(OrderedDict(acc="0.5", phase="warm"), lr=0.1)
        shown.warning("val loss %s", 10 * epoch)
        print("printed", epoch)
        wandb.log({"eval": {"f1": 0.5 + epoch, "table": [1]}, "n": 7, "note": "ok"}, step=100 + epoch)
        mlflow.log_metric("auc", 0.75, epoch)
        mlflow.log_metrics({"p": 1, "r": 2.5})
        bar.set_postfix_str("best 0.9")
    logging.error("two\\nlines=2")
"""
HINDSIGHT = PROGRAM.replace(
    "            logging.debug(",
    '            logging.info("norm=%d", 10 * epoch + step)\n'
    '            mlflow.log_metric("late", step, step)\n            logging.debug(',
).replace("        shown.warning(", '        shown.info("twice=%d", 2 * epoch)\n        shown.warning(')


def with_libraries(flor: Flor, folder: Path) -> str:
    """A path on which they are, out of the user's folders."""
    libraries = Flor(folder / "libraries", flor.home)
    libraries.folder.mkdir()
    for name, text in LIBRARIES.items():
        libraries.write(name, text)
    return f"{libraries.folder}:{flor.environ()['PYTHONPATH']}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Flor:
    """A run of the program, and a replay of it that logs more."""
    folder = tmp_path_factory.mktemp("logged")
    flor = new_flor(folder)
    path = with_libraries(flor, folder)
    flor.write("train.py", PROGRAM)
    plain = flor.python("train.py", PYTHONPATH=path)
    done = flor("train.py", PYTHONPATH=path, FLOR_EPSILON="inf")
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)
    assert "loss=0.75\n" in done.stderr
    flor.write("train.py", HINDSIGHT)
    done = flor("train.py", PYTHONPATH=path, FLOR_MODE="replay")
    assert (done.returncode, done.stdout) == (0, "[INFO]   twice=0\n[INFO]   twice=2\n"), done.stderr
    return flor


def line_of(program: str, text: str) -> str:
    """The place of the only line with that text."""
    (number,) = [n for n, line in enumerate(program.strip("\n").split("\n"), 1) if text in line]
    return f"train.py:{number}"


def test_lines(recorded: Flor) -> None:
    """Each with the loops around it, the library, who called it, and its own time; nothing twice."""
    rows = [row for row in rows_of(recorded) if row["source"] == "recorded"]
    found = [(row.get("epoch"), row.get("step"), row["via"], row["text"]) for row in rows]
    expected: list[tuple[Any, ...]] = []
    for epoch in range(2):
        for step in (3, 4):
            expected += [
                (epoch, step, "logging", f"INFO train: loss={epoch + step / 4:.2f}"),
                (epoch, step, "tqdm", "acc=0.5, phase=warm, lr=0.1"),
            ]
        expected += [
            (epoch, None, "logging", f"[WARNING]   val loss {10 * epoch}"),
            (epoch, None, "print", f"printed {epoch}"),
            (epoch, None, "wandb", f"eval.f1={0.5 + epoch}, n=7, note=ok (step {100 + epoch})"),
            (epoch, None, "mlflow", f"auc=0.75 (step {epoch})"),
            (epoch, None, "mlflow", "p=1, r=2.5"),
            (epoch, None, "tqdm", "best 0.9"),
        ]
    expected += [(None, None, "logging", "ERROR root: two"), (None, None, "logging", "ERROR root: lines=2")]
    assert found == expected
    marks = {
        "loss=": "loss=%",
        "val loss": "val loss",
        "eval.f1": "wandb.log",
        "p=1": "log_metrics(",
        "best": "best 0.9",
    }
    for start, call in marks.items():
        assert {row["place"] for row in rows if start in row["text"]} == {line_of(PROGRAM, call)}
    assert {row["place"] for row in rows if row["via"] == "print"} == {None}
    times = [row["time"] for row in rows if row["via"] != "print"]
    assert times == sorted(times)
    assert times[4] - times[0] > 0.003  # of two steps


def test_values(recorded: Flor) -> None:
    """Those that were given by name have it whatever it is; those in a message are found as in a printed line."""
    names = ("loss", "acc", "lr", "val loss", "eval.f1", "n", "auc", "p", "r", "best", "lines")
    values: dict[str, list[float]] = {}
    for row in rows_of(recorded, *names):
        values.setdefault(row["name"], []).append(row["value"])
    assert values == {
        "loss": [0.75, 1.0, 1.75, 2.0], "acc": [0.5] * 4, "lr": [0.1] * 4, "val loss": [0, 10],
        "eval.f1": [0.5, 1.5], "n": [7, 7], "auc": [0.75] * 2, "p": [1, 1], "r": [2.5, 2.5], "best": [0.9, 0.9],
        "lines": [2],
    }  # fmt: skip


def test_hindsight(recorded: Flor) -> None:
    """What only the edited program logs is marked, once where its library prints it, and all else stays recorded."""
    rows = [row for row in rows_of(recorded) if row["source"] == "hindsight"]
    found = [(row.get("epoch"), row.get("step"), row["via"], row["text"]) for row in rows]
    expected: list[tuple[Any, ...]] = []
    for epoch in range(2):
        for step in (3, 4):
            expected += [
                (epoch, step, "logging", f"INFO root: norm={10 * epoch + step}"),
                (epoch, step, "mlflow", f"late={step} (step {step})"),
            ]
        expected += [(epoch, None, "print", f"[INFO]   twice={2 * epoch}")]
    assert found == expected
    assert {row["place"] for row in rows if row["via"] == "mlflow"} == {line_of(HINDSIGHT, '"late"')}
    done = recorded("logs", "loss", "norm", "late", "--pivot", "--csv")
    assert done.stdout.splitlines() == [
        "epoch,step,global_step,norm,late,loss",
        *("0,3,0,3,3,0.75", "0,4,1,4,4,1.0", "1,3,2,13,3,1.75", "1,4,3,14,4,2.0"),
    ]


def test_views_and_frames(recorded: Flor) -> None:
    """The page has their curves; so has a frame, where pandas is installed."""
    assert recorded("view", "-o", "page.html").returncode == 0
    assert '"eval.f1"' in (recorded.folder / "page.html").read_text()
    if importlib.util.find_spec("pandas") is not None:
        code = "import florhook; print(florhook.dataframe('auc', 'best').to_csv(index=False), end='')"
        done = recorded.python("-c", code)
        assert done.stdout.splitlines() == ["epoch,global_step,auc,best", "0,0,0.75,0.9", "1,1,0.75,0.9"], (
            done.stderr
        )


def test_a_store_from_before(recorded: Flor, tmp_path: Path) -> None:
    """One that has no such rows shows what was printed."""
    copy = Flor(recorded.folder, tmp_path / "store")
    copy.home.mkdir()
    connect = [sqlite3.connect(folder / "catalog.sqlite") for folder in (recorded.home, copy.home)]
    with contextlib.closing(connect[0]) as old, contextlib.closing(connect[1]) as new:
        old.backup(new)
        new.execute("DROP TABLE logged")
        new.execute("PRAGMA user_version = 3")
    (copy.home / "packs").symlink_to(recorded.home / "packs")
    texts = [row["text"] for row in rows_of(copy)]
    assert texts == ["[WARNING]   val loss 0", "printed 0", "[WARNING]   val loss 10", "printed 1"]


LEFT = """
    import logging, sys, threading, time
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)

    def say(*words):
        logging.info(" ".join(map(str, words)))

    def first(limit):
        for step in range(9):
            time.sleep(0.003)
            say(f"epoch={epoch} step={step} | looks")
            if step == limit:
                return step

    def fails():
        for step in range(9):
            if step == 1:
                raise ValueError(step)

    def waits():
        left = 9
        while True:
            left -= 1
            say(f"epoch={epoch} left={left + 1} | waits")
            if left == 7:
                return left

    def gives_up():
        left = 3
        try:
            while left:
                left -= 1
                if left == 1:
                    raise ValueError
        except ValueError:
            say(f"epoch={epoch} | gave up")

    say("| start")
    for epoch in range(2):
        say(f"epoch={epoch} | found", first(1))
        try:
            fails()
        except ValueError as error:
            say(f"epoch={epoch} | caught", error)
        say(f"epoch={epoch} | waited until", waits())
        gives_up()
        for step in range(2):
            say(f"epoch={epoch} step={step} | over")
        other = threading.Thread(target=say, args=(f"epoch={epoch} | elsewhere",))
        other.start()
        other.join()
    say("| end")
"""


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
def test_loops_that_were_left(flor: Flor, epsilon: str) -> None:
    """What is logged after a return, an exception or a break is not in the loop that ended by it."""
    flor.write("train.py", LEFT)
    done = flor("train.py", FLOR_EPSILON=epsilon)
    assert done.returncode == 0, done.stderr
    rows = told([{**row, "text": row["text"].removeprefix("INFO root: ")} for row in rows_of(flor)])
    assert [row["text"] for row in rows] == [
        line.removeprefix("INFO:root:") for line in done.stderr.splitlines()
    ]
    for row in rows:
        # Of a `while` that is left out of the budget, the variables of its test are not kept.
        assert known(row).items() <= said(row["text"]).items(), row
        assert epsilon != "inf" or known(row) == said(row["text"]), row


UNSEEN = """
    import inspect, logging, os, pickle, sys, time, traceback

    class Counted:
        made = 0
        def __str__(self):
            Counted.made += 1
            return "counted=1"

    class Fails(logging.Handler):
        def handle(self, record):
            raise KeyError("of the program")

    class Broken(logging.Handler):
        def emit(self, record):
            try:
                raise ValueError("in emit")
            except ValueError:
                self.handleError(record)

    def log_all():
        quiet = logging.getLogger("quiet")
        quiet.propagate = False
        quiet.addHandler(logging.NullHandler())
        for epoch in range(2):
            quiet.warning("%s", Counted())
            quiet.warning("epoch %d of %s", epoch, "two")
            quiet.warning("wrong %d", "x")
            quiet.warning("")
        quiet.addHandler(Broken())
        quiet.warning("broken=1")
        quiet.handlers[:] = [Fails()]
        try:
            quiet.warning("fails=1")
        except KeyError:
            traceback.print_exc()

    log_all()
    call = logging.Logger.callHandlers
    print(Counted.made, pickle.loads(pickle.dumps(call)) is call, inspect.signature(call), inspect.getsource(call))
    print(call.__code__.co_filename, call.__code__.co_firstlineno, vars(call), call.__qualname__, call.__doc__)
    print(logging.root.handlers, logging.getLogger("quiet").handlers, logging.Logger.__subclasses__())
    if os.fork() == 0:
        logging.warning("child=1")
        os._exit(0)
    os.wait()
    seen = []
    def trace(frame, event, argument):
        seen.append(os.path.basename(frame.f_code.co_filename))
        return trace
    sys.settrace(trace)
    logging.warning("traced=1")
    sys.settrace(None)
    print(sorted(set(seen)))
"""


def test_nothing_is_seen_of_it(flor: Flor) -> None:
    """Neither by the program, nor in tracebacks, what logging says of broken handlers, or by a tracer."""
    flor.write("train.py", UNSEEN)
    plain, done = flor.python("train.py"), flor("train.py", FLOR_EPSILON="inf")
    # What lies below the program is known to be there.
    below = r'  File "(<frozen runpy>|[^"]*/runpy.py|[^"]*/florhook/\w+.py)".*\n(    .*\n)*'
    assert (done.stdout, re.sub(below, "", done.stderr), done.returncode) == (plain.stdout, plain.stderr, 0)
    assert "Call stack" in done.stderr
    assert "of the program" in done.stderr
    logged = [row["text"] for row in rows_of(flor) if row["via"] == "logging"]
    assert logged == [
        *("WARNING quiet: %s", "WARNING quiet: epoch 0 of two", "WARNING quiet: wrong %d"),
        *("WARNING quiet: %s", "WARNING quiet: epoch 1 of two", "WARNING quiet: wrong %d"),
        *("WARNING quiet: broken=1", "WARNING quiet: fails=1", "WARNING root: traced=1"),
    ]


def test_a_module_of_the_same_name(flor: Flor) -> None:
    """The program's own is a part of it like any other: its loops are recorded, and it tells nothing."""
    flor.write("wandb/__init__.py", "")
    flor.write("wandb/sdk/__init__.py", "")
    flor.write("wandb/sdk/wandb_run.py", """
        class Run:
            def log(self, data, step=None):
                for name in data:
                    print("own", name)
        """)  # fmt: skip
    flor.write("train.py", "from wandb.sdk.wandb_run import Run\nRun().log({'loss': 1})\n")
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    rows = rows_of(flor)
    assert [
        (row["text"], row["via"], row["name"] if "name" in row else row["loop name"]) for row in rows
    ] == [("own loss", "print", "loss")]


def test_a_resumed_run(flor: Flor) -> None:
    """Has what was logged before the place, and then its own; nothing twice, nothing of what was lost."""
    program = """
        import logging, os, time
        logging.basicConfig(level=logging.INFO)
        total = 0
        for epoch in range(6):
            time.sleep(0.003)
            total += epoch
            logging.info("total=%d", total)
            if epoch == 3 and os.path.exists("die"):
                raise RuntimeError("out of luck")
    """
    flor.write("die", "")
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 1
    (flor.folder / "die").unlink()
    assert flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf").returncode == 0
    rows = rows_of(flor, "total")
    assert [(row["epoch"], row["value"]) for row in rows] == [
        (0, 0),
        (1, 1),
        (2, 3),
        (3, 6),
        (4, 10),
        (5, 15),
    ]


@pytest.mark.needs_torch
def test_tensorboard(flor: Flor) -> None:
    """The real SummaryWriter: numbers, tensors and arrays; its files are as plainly."""
    pytest.importorskip("tensorboard")
    flor.write("train.py", """
        import time
        import numpy, torch
        from torch.utils.tensorboard import SummaryWriter
        writer = SummaryWriter("events")
        for epoch in range(2):
            time.sleep(0.003)
            writer.add_scalar("Loss/train", torch.tensor(0.5 + epoch, requires_grad=True), epoch)
            writer.add_scalar("size", numpy.float64(3), epoch)
            writer.add_scalars("all", {"a": 1, "b": torch.tensor([2.5])}, global_step=epoch)
        writer.close()
        """)  # fmt: skip
    done = flor("train.py", FLOR_EPSILON="inf")
    assert done.returncode == 0, done.stderr
    rows = [(row["epoch"], row["via"], row["text"]) for row in rows_of(flor)]
    texts = (
        "Loss/train={loss} (step {epoch})",
        "size=3.0 (step {epoch})",
        "all/a=1, all/b=2.5 (step {epoch})",
    )
    assert rows == [
        (epoch, "tensorboard", text.format(loss=0.5 + epoch, epoch=epoch))
        for epoch in range(2)
        for text in texts
    ]
    assert [row["value"] for row in rows_of(flor, "Loss/train")] == [0.5, 1.5]


# How a function is made to tell -----------------------------------------------------------------------------------

SOURCE = """import contextlib

def around(function):
    def inner(*args):
        return function(*args)
    inner.__wrapped__ = function
    return inner

class Writer:
    @around
    def add(self, tag, *rest,
            step=0):
        "doc"
        with contextlib.suppress(KeyError): self.__last = contextlib.nullcontext(tag)
        return (tag,
                rest, step, super().__init__()
        )

def outer(tag):
    def inner():
        return tag
    return inner
inside = outer("x")
"""


class Teller:
    """Stands for the module that is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def heard(self, *arguments: Any) -> None:
        self.told.append(arguments)


def library() -> types.ModuleType:
    module = types.ModuleType("library")
    exec(compile(SOURCE, "library.py", "exec"), vars(module))
    return module


def test_a_function_tells() -> None:
    """At its begin and its end, whatever it returns; lines and columns of its own code are as they were."""
    module, teller = library(), Teller()
    function = function_of(module, "Writer.add")
    assert function is not None
    before = function.__code__
    code = telling(function, SOURCE.splitlines(True), teller, "'begin', tag, step", "'end', self")
    assert code is not None
    function.__code__ = code
    writer = module.Writer()
    assert writer.add("loss", 1) == ("loss", (1,), 0, None)
    assert vars(writer).keys() == {"_Writer__last"}
    assert teller.told == [("begin", "loss", 0), ("end", writer)]
    assert {line for *_, line in code.co_lines()} == {line for *_, line in before.co_lines()}
    assert (code.co_varnames, code.co_flags, code.co_consts[0]) == (
        before.co_varnames,
        before.co_flags,
        "doc",
    )


@pytest.mark.parametrize(
    ("path", "change", "begin"),
    [
        ("Writer.add", ("rest, step,", "rest, None,"), "tag"),  # the file has changed
        ("Writer.add", ("", ""), "tags"),  # it has another parameter
        ("inside", ("", ""), "tag"),  # of the function around
    ],
)
def test_what_is_not_as_expected_is_left_alone(path: str, change: tuple[str, str], begin: str) -> None:
    """A function that is not the library's any more, or has become another one."""
    function = function_of(library(), path)
    assert function is not None
    lines = SOURCE.replace(*change).splitlines(True) if change[0] else SOURCE.splitlines(True)
    assert telling(function, lines, Teller(), begin) is None
    assert function_of(library(), "Writer.missing") is None
    assert function_of(library(), "contextlib.nothing.add") is None


SLOW = ("tensorboardX.writer", "wandb.sdk.wandb_run", "mlflow.tracking.fluent")  # to import


@pytest.mark.parametrize(
    "name", ["logging", "tqdm.std", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_the_real_libraries(flor: Flor, name: str) -> None:
    """As far as they are installed, all their functions are found to be what is expected."""
    if importlib.util.find_spec(name.partition(".")[0]) is None:
        pytest.skip(f"{name} is not installed")
    flor.write("look.py", f"""
        import importlib
        from florhook.hook.tell import function_of, telling
        from florhook.runtime.loggers import FUNCTIONS
        module = importlib.import_module({name!r})
        lines = open(module.__file__, encoding="utf-8").readlines()
        for each in FUNCTIONS[{name!r}]:
            print(telling(function_of(module, each.path), lines, None, each.begin, each.end) is not None)
        """)  # fmt: skip
    done = flor.python("look.py")
    assert set(done.stdout.split()) == {"True"}, done.stderr
