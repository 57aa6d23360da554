"""The traps of this field, row by row (docs/hook.md): what no other test holds, and that each row has something."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import textwrap
import threading
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
from conftest import ROOT, Flor
from test_foreign_tools import assert_same, left_by, recorded_loops

from florhook.hook.finder import Finder, InstrumentingLoader
from florhook.hook.quiet import without_syntax_warnings
from florhook.hook.scope import Scope
from florhook.runtime import probes
from florhook.runtime.program import Program
from florhook.store.store import Store

PAGE = ROOT / "docs" / "hook.md"
TRAPS = ROOT.parent / "shared" / "TRAPS.md"


# The table -----------------------------------------------------------------------------------------------------


def rows() -> dict[int, str]:
    """Row number -> what holds it, from the page's table."""
    text = PAGE.read_text(encoding="utf-8")
    return {
        int(number): held.strip()
        for number, held in re.findall(r"^\| T(\d+) \| [^|]+ \| ([^|]+) \|$", text, re.MULTILINE)
    }


def names_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_bytes())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_row_is_held() -> None:
    """By tests that exist, or by a reason why it does not apply."""
    found = rows()
    assert list(found) == list(range(1, len(found) + 1))
    missing = []
    for number, held in found.items():
        named = re.findall(r"`(test_\w+)\.py::(\w+)`", held)
        assert named or held.startswith("not applicable: "), f"T{number}: {held}"
        missing += [
            f"T{number}: {file}::{name}"
            for file, name in named
            if name not in names_of(ROOT / "tests" / f"{file}.py")
        ]
    assert not missing


def test_no_row_is_forgotten() -> None:
    """Where the list of traps lies beside the project, the page has its rows."""
    if not TRAPS.exists():
        pytest.skip("the list of traps is not here")
    numbers = re.findall(r"^\| T(\d+) \|", TRAPS.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number in numbers] == list(rows())


# The hook ------------------------------------------------------------------------------------------------------


def test_only_get_code_is_overridden() -> None:
    """What a loader can do, ours can: `source_to_code` of any version, resources, data."""
    assert {name for name in vars(InstrumentingLoader) if not name.startswith("_")} == {"get_code"}
    assert issubclass(InstrumentingLoader, SourceFileLoader)
    assert not {"source_to_code", "exec_module"} & set(vars(InstrumentingLoader))


def test_a_module_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The spec that was found is given back, rewritten or not: Python does not search again."""
    asked = []

    class Spy:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            asked.append(name)
            return "a spec that is none of ours"

    finder = Finder(Scope(str(tmp_path), str(tmp_path)), lambda *_: None)
    monkeypatch.setattr(sys, "meta_path", [finder, Spy])
    monkeypatch.setattr(finder, "_consider", lambda name, spec: None)
    assert finder.find_spec("anything") == "a spec that is none of ours"
    assert asked == ["anything"]


SOURCE = "def f{n}(a):\n" + "    for i in a:\n        for j in a:\n            print(i)\n" * 30


def test_threads_may_rewrite_at_once() -> None:
    """Ids of loops and functions are not given twice, whichever thread imports first."""
    program, before = Program(), probes.reserve_marks(0)
    barrier, interval = threading.Barrier(8), sys.getswitchinterval()
    codes = {}

    def work(n: int) -> None:
        barrier.wait()
        codes[n] = program.transform(SOURCE.format(n=n).encode(), f"m{n}.py", f"m{n}")

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(program.sites) == 8 * 60
    assert probes.reserve_marks(0) - before == 8 * 62  # and one each for the module and its function
    used = set()
    for n, code in codes.items():
        (function,) = (const for const in code.co_consts if hasattr(const, "co_code"))
        ids = {const for const in function.co_consts if type(const) is int}
        sites = {index for index, site in enumerate(program.sites) if site.key.startswith(f"m{n}:")}
        assert sites <= ids
        used |= {name for name in function.co_names if re.fullmatch(r"m\d+", name)}
    assert len(used) == 8


def test_a_fork_while_another_thread_imports(flor: Flor) -> None:
    """A child imports the user's modules, whatever the other threads did when it was forked."""
    for n in range(30):
        flor.write(f"mod{n}.py", SOURCE.format(n=n))
    flor.write(
        "s.py",
        """
        import importlib, os, signal, sys, threading
        sys.setswitchinterval(1e-6)
        signal.alarm(60)
        def work(numbers):
            for n in numbers:
                importlib.import_module(f"mod{n}")
        thread = threading.Thread(target=work, args=(range(15),))
        thread.start()
        for n in range(15, 30):
            child = os.fork()
            if child == 0:
                work([n])
                os._exit(n)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
        """,
    )
    plain = assert_same(flor, "s.py", options=("-W", "ignore"))
    assert plain.stdout == "".join(f"{n}\n" for n in range(15, 30))


WARNINGS = """
    import sys, warnings
    def warn():
        warnings.warn("said once", UserWarning)
    warn()
    import mod
    warn()
    exec("for k in range(2): pass")
    warn()
    print(len(warnings.filters), mod.f(3))
"""


@pytest.mark.parametrize("option", ["default", "error::SyntaxWarning", "always", "ignore"])
def test_warnings_are_shown_as_often(flor: Flor, option: str) -> None:
    """Compiling a module with closures and loops warns once of it, and of nothing of the program's again."""
    flor.write(
        "mod.py", "def f(n):\n    for i in range(n):\n        g = lambda: i is 1\n        g()\n    return n\n"
    )
    flor.write("s.py", WARNINGS)
    for epsilon in ("0.0667", "inf"):
        plain = left_by(flor, "-W", option, "s.py")
        ours = left_by(flor, "-W", option, "-m", "florhook", "s.py", FLOR_EPSILON=epsilon)
        assert ours == plain
    assert plain.stderr.count("said once") == {"default": 2, "always": 6, "ignore": 0}.get(option, 2)
    assert plain.status == (1 if option.startswith("error") else 0)


def test_silence_is_for_the_compiler_alone(recwarn: pytest.WarningsRecorder) -> None:
    """Nothing is said of a source that is compiled inside, and the filters are as they were."""
    import warnings

    before = list(warnings.filters)
    with without_syntax_warnings():
        compile("x = 1 is 1", "s.py", "exec")
    assert (list(warnings.filters), len(recwarn)) == (before, 0)


def test_modules_that_came_before_are_named(flor: Flor) -> None:
    """What cannot be rewritten any more runs as it is, and is named once."""
    flor.write("early.py", "def f():\n    for i in range(3):\n        print('early', i)\n")
    flor.write("s.py", "import early\nfor k in range(2):\n    early.f()\n")
    flor.write("start.py", "import early, florhook.cli\nflorhook.cli.main(['s.py'])\n")
    done = flor.python("start.py")
    assert done.stdout == "early 0\nearly 1\nearly 2\n" * 2
    (line,) = (line for line in done.stderr.splitlines() if "imported before" in line)
    assert line.endswith(": early")
    assert recorded_loops(flor) == {"__main__::0"}


def test_a_module_that_is_also_the_program(flor: Flor) -> None:
    """Run as `__main__` and imported by name it is two modules; both are recorded and replayed, each as itself."""
    source = """
        import sys
        def f(n):
            total = 0
            for i in range(n):
                total += len([i])
            return total
        if __name__ == "__main__":
            import s
            for k in range(3):
                print(k, f(k), s.f(k + 1), s is sys.modules["__main__"])
    """
    flor.write("s.py", source)
    plain = assert_same(flor, "s.py")
    assert plain.stdout == "0 0 1 False\n1 1 2 False\n2 2 3 False\n"
    assert {"__main__::0", "__main__:f:0", "s:f:0"} <= recorded_loops(flor)
    flor.write("s.py", source.replace("len([i])", "len([i]); print('@@', __name__, n)"))
    expected = [line for line in left_by(flor, "s.py").stdout.splitlines(keepends=True) if line[0] == "@"]
    assert flor("s.py", FLOR_MODE="replay").stdout == "".join(expected)


def test_the_folder_may_change(flor: Flor) -> None:
    """The store stays where it was, and modules and scripts are found as by plain python."""
    flor.write("lib/mod.py", "def f(n):\n    for i in range(n):\n        print(i)\n")
    flor.write("work/s.py", "import os, sys\nos.chdir('/')\nsys.path.append(LIB)\nimport mod\nmod.f(2)\n")
    script = flor.folder / "work" / "s.py"
    script.write_text(script.read_text().replace("LIB", repr(str(flor.folder / "lib"))))
    environment = {name: value for name, value in flor.environ().items() if name != "FLOR_HOME"}
    command = [sys.executable, "-m", "florhook", "work/s.py"]
    done = subprocess.run(command, cwd=flor.folder, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n1\n", "")
    assert (flor.folder / ".florhook").is_dir()
    with Store.open(flor.folder / ".florhook") as store:
        assert [run.exit_code for run in store.runs()] == [0]
        assert {row.module for row in store.sources(store.find("last"))} >= {"__main__", "mod"}


ENCODINGS = {
    "latin-1": "# -*- coding: latin-1 -*-\nfor x in 'é': print(ascii(x))\n".encode("latin-1"),
    "byte order mark": b"\xef\xbb\xbffor x in '\xc3\xa9': print(ascii(x))\n",
    "carriage returns": b"for x in '''a\r\nb''':\r\n    print(ascii(x))\r\n",
    "form feeds": b"\x0cfor x in 'ab':\n    \x0c\n    print(ascii(x))\n\x0cprint(1)\n",
    "utf-8 with a wrong cookie": b"# coding: ascii\nfor x in '\xc3\xa9': print(x)\n",
    "zero": b"for x in 'a': print(x)\n\0\n",
    "continued": b"for x in \\\n  'ab' \\\n  : print(ascii(x)); \\\n  print(2)\n",
    "tabs": b"for x in 'ab':\n\tif x:\n\t\tprint(x)\n        \nprint(3)\n",
    "no newline": b"for x in 'ab': print(x)",
    "nothing": b"",
}


def test_bytes_of_a_source(flor: Flor) -> None:
    """Whatever the encoding, line ends and white space, scripts and modules behave as without, their errors too."""
    names = []
    for number, data in enumerate(ENCODINGS.values()):
        names.append(f"enc{number}")
        (flor.folder / f"enc{number}.py").write_bytes(data)
    flor.write(
        "s.py",
        f"""
        import importlib
        for name in {names}:
            try:
                importlib.import_module(name)
            except Exception as error:
                print(name, type(error).__name__, error)
        """,
    )
    plain = assert_same(flor, "s.py")
    assert plain.stdout.startswith("'\\xe9'\n'\\xe9'\n'a'\n'\\n'\n'b'\n'a'\n'b'\n1\nenc4 SyntaxError")
    for name in names:
        if name in ("enc4", "enc5"):  # for scripts the text of these errors is another: a limit, docs/hook.md
            continue
        plain = left_by(flor, f"{name}.py")
        assert left_by(flor, "-m", "florhook", f"{name}.py", FLOR_STRICT="1") == plain


FLAGS = """
    def f(a: undefined) -> nowhere:
        for x in a:
            print(x)
    f([1])
    print(f.__annotations__)
"""


def test_our_own_future_flags_do_not_leak(flor: Flor) -> None:
    """florhook's modules have `annotations` from the future; the user's do not get it from them."""
    flor.write("lazy.py", "from __future__ import annotations\n" + textwrap.dedent(FLAGS))
    flor.write("eager.py", FLAGS)
    flor.write(
        "s.py",
        """
        import lazy
        try:
            import eager
            print(eager.f.__code__.co_flags == lazy.f.__code__.co_flags)
        except NameError as error:
            print(error)
        """,
    )
    plain = assert_same(flor, "s.py")
    assert "{'a': 'undefined', 'return': 'nowhere'}" in plain.stdout


# Processes and the store ---------------------------------------------------------------------------------------


def test_nothing_of_the_process_is_taken(flor: Flor) -> None:
    """No signal handler, no tracer, no patch of Popen or compile, no name in `globals()` but `__flor__`."""
    flor.write(
        "s.py",
        """
        import builtins, multiprocessing, os, signal, subprocess, sys, threading
        print([str(signal.getsignal(n)) for n in range(1, 32)])
        print(sys.gettrace(), sys.getprofile(), threading.active_count())
        print(compile, exec, builtins.__import__, os.fork, open, print)
        print(subprocess.Popen.__init__.__module__, subprocess.Popen.__module__, os.system, os.execv)
        print(sorted(set(globals()) - {"__flor__"}), sorted(locals()) == sorted(globals()))
        print(sorted(set(dir(builtins)) - {"__flor__"})[:20], sys.flags, sys.warnoptions)
        print([name for name in ("torch", "numpy", "multiprocessing.util") if name in sys.modules])
        print(os.environ.get("PYTHONHASHSEED"), sys.getswitchinterval(), sys.dont_write_bytecode)
        """,
    )
    assert assert_same(flor, "s.py").status == 0


def test_no_bytecode_is_left(flor: Flor) -> None:
    """The user's `__pycache__` is what a plain run leaves it, also for modules that it had no bytecode of."""
    flor.write("package/__init__.py", "from . import inner\n")
    flor.write("package/inner.py", "def f():\n    for x in range(2):\n        print(x)\n")
    flor.write("s.py", "import package\npackage.inner.f()\n")

    def cached() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in flor.folder.rglob("*.pyc")}

    variables = {"PYTHONDONTWRITEBYTECODE": ""}
    assert flor("s.py", **variables).stdout == "0\n1\n"
    assert cached() == {}
    assert flor.python("s.py", **variables).stdout == "0\n1\n"
    plain = cached()
    assert len(plain) == 2
    assert flor("s.py", **variables).stdout == "0\n1\n"
    assert flor.python("s.py", **variables).stdout == "0\n1\n"
    assert cached() == plain


def test_another_version_is_named(flor: Flor, tmp_path: Path) -> None:
    """A replay under another version of a library says which the run had, and which this is."""
    library = tmp_path / "stub"
    (library / "numpy").mkdir(parents=True)
    (library / "numpy" / "__init__.py").write_text(
        "import os\n__version__ = os.environ['NUMPY']\nimport numpy.random\n"
    )
    (library / "numpy" / "random.py").touch()
    path = os.pathsep.join([str(library), flor.environ()["PYTHONPATH"]])
    flor.write("s.py", "import numpy\nfor k in range(3):\n    len([k])\n")
    assert flor("s.py", PYTHONPATH=path, NUMPY="1.26.4").returncode == 0
    with (flor.folder / "s.py").open("a") as file:
        file.write("print('@@')\n")
    done = flor("s.py", FLOR_MODE="replay", PYTHONPATH=path, NUMPY="2.1.0")
    assert done.stdout == "@@\n"
    assert "florhook: the run had numpy 1.26.4, this is 2.1.0" in done.stderr
    assert "the run had" not in flor("s.py", FLOR_MODE="replay", PYTHONPATH=path, NUMPY="1.26.4").stderr


def test_user_code_that_fails_in_a_capture(flor: Flor) -> None:
    """`__reduce__`, `__getstate__`, `__eq__`, `__hash__` and `__del__` of the user's may do what they like."""
    flor.write(
        "s.py",
        """
        class Odd:
            def __reduce__(self): print("reduced"); raise ValueError
            def __reduce_ex__(self, protocol): print("reduced"); raise ValueError
            def __getstate__(self): print("state"); raise KeyError
            def __eq__(self, other): print("compared"); raise TypeError
            def __hash__(self): return 1
            def __bool__(self): print("asked"); raise OverflowError
            def __len__(self): print("measured"); return 3
            def __iter__(self): print("iterated"); return iter([])
            def __getattr__(self, name): print("attribute", name); raise AttributeError(name)
            def __repr__(self): print("shown"); return "odd"
        class Sub(dict):
            def __getitem__(self, key): print("item"); raise KeyError
            def items(self): print("items"); return []
        odd, kept, sub, seen = Odd(), [Odd()], Sub(a=1), {Odd(): 1}
        for epoch in range(3):
            kept.append(Odd())
            for step in range(2):
                odd.step = step
                odd.__dict__["other"] = sub
        print(len(kept), odd.__dict__["step"])
        """,
    )
    plain = assert_same(flor, "s.py")
    assert plain.stdout == "4 1\n"


def test_listing_unpickles_nothing(flor: Flor) -> None:
    """Whoever lists and shows runs executes nothing that a run has stored, nor of what others put there."""
    flor.write("s.py", "held = [1]\nfor k in range(3):\n    held.append(len([k]))\n")
    assert flor("s.py", FLOR_EPSILON="inf").returncode == 0
    guard = """if True:
        import pickle, sys
        pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = None
        from florhook.cli import main
        main(sys.argv[1:])
    """
    for words in (["runs"], ["show", "last"]):
        done = flor.python("-c", guard, *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert "s.py" in done.stdout


def test_no_pickler_of_others_is_used() -> None:
    """cloudpickle resets classes of `__main__`, and dill fails on optimizers: neither is imported anywhere."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & {"cloudpickle", "dill"}, path


# What real programs do: each is recorded without the lines behind #P and replayed with them ----------------------

REPLAYED = {
    "folders named by the time": """
        import os, time
        folder = f"runs/{time.time():.9f}"
        os.makedirs(folder)
        number = len(os.listdir("runs"))
        for epoch in range(3):
            with open(f"{folder}/{epoch}.txt", "w") as file:
                file.write(f"epoch {epoch}")
            #P print("@@", epoch, number, sorted(os.listdir(folder)), folder[:6], len(os.listdir("runs")))
        #P print("@@", open(f"{folder}/2.txt").read())
    """,
    "an interrupted loop": """
        import itertools, os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
        seen = []
        try:
            for step in itertools.count():
                seen.append(step)
                if step == 40:
                    os.kill(os.getpid(), signal.SIGINT)
                    while True:
                        len([])
                #P print("@@", step, len(seen))
        except KeyboardInterrupt:
            print("interrupted")
        #P print("@@ after", len(seen))
    """,
    "endless iterators": """
        import itertools

        class Endless:
            def __init__(self, items):
                self.items, self.it = items, iter(items)

            def next(self):
                try:
                    return next(self.it)
                except StopIteration:
                    self.it = iter(self.items)
                    return next(self.it)

        source, total = Endless([1, 2, 3]), 0
        for step in itertools.count(1):
            total += source.next()
            #P print("@@", step, total)
            if step == 8: break
        for step, item in zip(range(5), itertools.cycle("ab")):
            total += ord(item)
            #P print("@@", step, item, total)
        for index in range(10**10):
            total += index
            if index * len([1]) == 3: break
        #P print("@@", total)
    """,
    "callbacks of sort and reduce": """
        import functools
        calls = []
        def key(x):
            calls.append(x)
            for k in range(2):
                len([k])
            #P print("@@ key", x, len(calls))
            return -x
        for epoch in range(3):
            order = sorted(range(3), key=key)
            total = functools.reduce(lambda a, b: a * 2 + key(b), order)
            #P print("@@", epoch, order, total)
    """,
    "settings and scans": """
        import sys
        lr, steps, names = 0.1, 3, None
        exec("lr = 0.5\\nextra = [1]\\nfor steps in range(5): pass")
        keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, str))]
        config = {k: globals()[k] for k in keys}
        for epoch in range(4):
            sys.stderr.write(f"\\r{epoch}/4")
            globals()[f"made{epoch}"] = epoch
            globals()["lr"] *= 0.5
            for step in range(steps):
                config["lr"] = lr
                extra.append(step)
            #P print("@@", epoch, lr, sorted(config.items(), key=str), len(extra), made0)
        #P print("@@", sorted(k for k in globals() if k.startswith("made")), "__flor__" in keys)
    """,
    "state that no state_dict shows": """
        import random
        lr, hidden = 1.0, [0]
        store = {}
        class Layer:
            count = 0
            def __init__(self, n):
                self.weight, self.state = n, {"momentum": 0}
                store[n] = self
            def __call__(self, x):
                Layer.count += 1
                self.state["momentum"] += x
                for k in range(2):
                    self.weight += random.random() * len([k])
                return x + self.weight
        layers = [Layer(n) for n in range(3)]
        batches = iter([[n] for n in range(20)])
        batch = next(batches)
        def decay():
            global lr
            lr *= 0.9
        for epoch in range(4):
            for step in range(3):
                ahead = next(batches)
                for layer in layers:
                    hidden[0] += layer(batch[0])
                batch = ahead
            decay()
            #P print("@@", epoch, round(lr, 6), hidden[0] > 0, batch, Layer.count)
            #P print("@@", [layer.state for layer in layers], store[1] is layers[1])
        #P print("@@", batch, lr, Layer.count)
    """,
}
WITH_TORCH = """
    import torch
    torch.manual_seed(0)
    x = torch.randn(16, 3)
    net, log_alpha = torch.nn.Linear(3, 1), torch.zeros(1, requires_grad=True)
    opt = torch.optim.LBFGS([*net.parameters(), log_alpha], max_iter=3)
    calls = 0
    for epoch in range(4):
        def closure():
            global calls
            calls += 1
            opt.zero_grad()
            loss = ((net(x) - x.sum(1, keepdim=True)) ** 2).mean() + (log_alpha.exp() - epoch) ** 2
            loss.backward()
            #P print("@@ closure", epoch, calls, float(loss.detach()))
            return loss
        opt.step(closure)
        #P print("@@", epoch, calls, log_alpha.item())
"""


def assert_replayed(flor: Flor, program: str, epsilon: str) -> None:
    program = textwrap.dedent(program).lstrip("\n")
    (flor.folder / "s.py").write_text("".join(line for line in program.splitlines(True) if "#P " not in line))
    recorded = flor("s.py", FLOR_EPSILON=epsilon)
    assert recorded.returncode == 0, recorded.stderr
    (flor.folder / "s.py").write_text(program.replace("#P ", ""))
    elsewhere = Flor(flor.folder.parent / f"plain{epsilon}", flor.home)
    elsewhere.folder.mkdir()
    elsewhere.write("s.py", program.replace("#P ", ""))
    expected = [line for line in elsewhere.python("s.py").stdout.splitlines() if line.startswith("@@")]
    done = flor("s.py", FLOR_MODE="replay")
    assert expected
    assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr


@pytest.mark.parametrize("epsilon", ["0.0667", "inf"])
@pytest.mark.parametrize("name", REPLAYED)
def test_what_real_programs_do(flor: Flor, name: str, epsilon: str) -> None:
    """The added lines print what they would have printed, whatever the budget."""
    assert_replayed(flor, REPLAYED[name], epsilon)


@pytest.mark.needs_torch
def test_a_probe_in_a_closure_that_the_optimizer_calls(flor: Flor) -> None:
    """A function that each iteration defines anew, and that is called from a library."""
    assert_replayed(flor, WITH_TORCH, "inf")
