"""Programs made at random, and the question whether a replay of each prints what a plain run prints."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PRELUDE = """\
import hashlib, random, time
random.seed(7)

class Model:
    calls = 0
    def __init__(self, size):
        self.weights = [0.0] * size
        self.history = {}
        self.best = None

    def step(self, rate):
        Model.calls += 1
        for place in range(len(self.weights)):
            self.weights[place] += rate * random.gauss(0, 1)
            #HERE
        total = sum(self.weights)
        if self.best is None or total > self.best[0]:
            self.best = (total, Model.calls)
        return total

    def walk(self):
        for place, weight in enumerate(self.weights):
            yield place, weight
            #HERE

def dump(value, depth=0):
    if isinstance(value, (int, float, str, bytes, bool, type(None), range)):
        return repr(value)
    if depth > 4:
        return "..."
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + str([dump(each, depth + 1) for each in value])
    if isinstance(value, (set, frozenset)):
        return "set" + str(sorted(dump(each, depth + 1) for each in value))
    if isinstance(value, dict):
        return "dict" + str([(dump(k, depth + 1), dump(v, depth + 1)) for k, v in value.items()])
    if hasattr(value, "tolist"):
        return "array" + repr(value.tolist())
    if type(value).__name__ in ("Model", "Meter"):
        return type(value).__name__ + dump(vars(value), depth + 1)
    return type(value).__name__

def show(tag, names):
    found = sorted((name, dump(value)) for name, value in names.items() if not name.startswith("__"))
    digests = [f"{name}={text[:12]}.{hashlib.md5(text.encode()).hexdigest()[:4]}" for name, text in found]
    print("@@", tag, *digests, Model.calls, random.getstate()[1][-1])

def helper(n, out=None):
    total = 0
    for k in range(n):
        total += k
        #HERE
        if total > 7:
            break
    else:
        total = -total
    if out is not None:
        out.append(total)
    return total

def fall(n):
    #HERE
    if n <= 0:
        return []
    found = fall(n - 1)
    for k in range(n):
        found.append(len(found) + k)
        #HERE
    return found

def numbers(n):
    state = 1
    while state < n:
        state = state * 2 + random.randrange(2)
        #HERE
        yield state
    #HERE
    Model.calls += 1

def below(n):
    #HERE
    return n > random.randrange(4)

def logged(function):
    def inner(*args):
        #HERE
        items.append(function.__name__)
        return function(*args)
    return inner

@logged
def decorated(n):
    found = {}
    for k in range(n):
        found[k] = len(found)
        #HERE
        if k == 2:
            return found
    return n

def counter_of(start):
    count = start
    def more(n):
        nonlocal count
        for k in range(n):
            count += k
            #HERE
        return count
    return more

def risky(n):
    for k in range(5):
        Model.calls += 1
        #HERE
        if k == n:
            raise KeyError(n)
    return n

class Meter:
    values = []
    for k in range(3):
        values.append(k)
        #HERE
    def __init__(self):
        self.total, self.last = 0, None
    def __iadd__(self, value):
        self.total, self.last = self.total + 1, value
        #HERE
        return self
    def __iter__(self):
        for k in range(self.total % 4):
            #HERE
            yield k
    def __del__(self):
        Model.calls += 1

more_of = counter_of(2)
meter = Meter()
pending = iter(range(1000))

model = Model(3)
shared = model.weights
items, table, seen = [], {}, set()
counter = 0
text = ""
"""


NUMPY = """\
import numpy as np
np.random.seed(3)
rng = np.random.default_rng(5)
arr, mat = np.zeros(6), np.arange(12.0).reshape(3, 4)
view, column = arr[1:4], mat[:, 1]
"""
NUMPY_LINES = [
    "arr += rng.normal(size=len(arr))",
    "view[0] = counter",
    "column *= 0.5",
    "mat = mat.T.copy()",
    "column = mat[:, 0]",
    "view = arr[::2]",
    "arr = np.append(arr[:5], counter)",
    "items.append(float(arr.sum()) + np.random.rand())",
    "mat[counter % 3] = arr[:1]",
    "shared.append(float(rng.integers(5))) if len(shared) < 6 else shared.pop()",
    "table['view'] = view",
    "np.random.shuffle(arr)",
    "model.best = (arr, view)",
    "rng = np.random.default_rng(counter)",
]

IMPORTED = "# a module that the script imports\n"


class Writer:
    """Writes one program; `#HERE` lines are places for probes."""

    def __init__(self, seed: int, numpy: bool = False) -> None:
        self.random, self.numpy = random.Random(seed), numpy
        self.lines: list[str] = []
        self.names = 0
        self.budget = 26
        self.functions: list[str] = []

    def program(self) -> str:
        """The whole of it."""
        for _ in range(self.random.randint(0, 3)):
            self._function()
        self._block(0, [], loops=0, function=False, least=3)
        self._put(0, 'print("end", counter, dump(items), dump(table), dump(seen), dump(model), text)')
        self._put(0, "#HERE")
        return PRELUDE + NUMPY * self.numpy + "\n".join(self.lines) + "\n"

    def _put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def _name(self, stem: str) -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def _function(self) -> None:
        name = self._name("work")
        self._put(0, f"def {name}(n, *more):")
        self._put(1, "global counter, text")
        self._put(1, "local, kept = 0, []")
        self._block(1, ["n", "local"], loops=0, function=True, least=2)
        self._put(1, f"return {self.random.choice(['local', 'kept', 'len(kept) + n', 'None'])}")
        self._put(0, "")
        self.functions.append(name)

    def _block(self, depth: int, numbers: list[str], *, loops: int, function: bool, least: int = 1) -> None:
        for _ in range(self.random.randint(least, least + 2)):
            self._statement(depth, numbers, loops, function)
            if self.random.random() < 0.45:
                self._put(depth, "#HERE")

    def _statement(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        self.budget -= 1
        big = self.budget > 0 and depth < 5
        choices: list[tuple[int, Callable[[int, list[str], int, bool], None]]] = [(10, self._simple)]
        if big and loops < 3:
            choices += [(9, self._for), (3, self._while)]
        if big:
            choices += [(3, self._if), (2, self._try), (1, self._with)]
        if loops:
            choices.append((1, self._leave))
        weights = [weight for weight, _ in choices]
        (_, write) = self.random.choices(choices, weights)[0]
        write(depth, numbers, loops, function)

    def _number(self, numbers: list[str]) -> str:
        pick = self.random.choice
        return pick([*numbers, "counter", "len(items)", str(self.random.randrange(5))])

    def _simple(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        n, r = self._number(numbers), self.random
        own = [
            "local += 1",
            f"local = {n} * 2 - local",
            f"kept.append({n})",
            "kept = kept[-3:]",
            "more = kept",
        ]
        calls = [f"{name}({n} % 3)" for name in self.functions]
        choices = [
            "counter += 1",
            f"counter = (counter * 3 + {n}) % 1009",
            f"items.append({n})",
            f"items.append([{n}, items[-1:]])",
            f"table[{n}] = len(table)",
            "table[counter] = items[-2:]",
            f"seen.add({n})",
            f"seen.discard({n})",
            f"text = text[-20:] + str({n})",
            "items[:] = items[-5:]",
            f"model.step(0.1 * {n})",
            "model.history[counter] = model.best",
            "shared[0] += 1.0",
            "shared.append(0.5) if len(shared) < 6 else shared.pop()",
            "random.random()",
            "counter += random.randrange(4)",
            f"helper({n} % 5, items)",
            f"counter += helper({n} % 6)",
            f"items.extend(fall({n} % 4)[-2:])",
            f"items.extend(numbers({n} % 9))",
            "time.sleep(0.002)",
            "print(counter, len(items))",
            f"open('log.txt', 'a').write(str({n}) + ';')",
            "items.append(open('log.txt', 'a+').tell())",
            "items.append(sum(weight for _, weight in model.walk()))",
            "del items[:1]",
            "model = model if counter % 5 else Model(3)",
            "meter += counter",
            "meter = Meter()",
            "Meter.values.append(len(Meter.values)) if len(Meter.values) < 9 else Meter.values.clear()",
            f"counter += more_of({n} % 4)",
            "more_of = counter_of(counter % 5)",
            f"items.append(decorated({n} % 5))",
            "items.append(next(pending))",
            f"items.extend(sorted(range({n} % 5), key=lambda k: -len(items) * k))",
            f"items.append([helper(k) for k in range({n} % 4)])",
            "first, *rest = items[-3:] or [0]",
            "items.append(sum(meter))",
            "random.seed(counter)",
            "random.shuffle(shared)",
            "frozen = frozenset(k for k in shared if k > 0)",
            f"table.setdefault('list', []).append({n})",
            "table.pop('list', None)",
            "snapshot = (list(shared), shared, model)",
            "print(counter)",
            *(own * 2 if function else []),
            *calls,
            *calls,
            *(NUMPY_LINES if self.numpy and not function else []),
        ]
        line = r.choice(choices)
        if function and line.partition(" ")[0] in ("model", "meter", "more_of"):
            line = "pass"
        self._put(depth, line)

    def _for(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        r, name, n = self.random, self._name("i"), self._number(numbers)
        count = r.randint(1, 5)
        many = [
            f"for {name} in range({count}):",
            f"for {name} in range({n} % 4):",
            f"for {name}, item in enumerate(items[-{count}:]):",
            f"for {name} in list(table):",
            f"for {name} in sorted(seen, key=str):",
            f"for {name} in numbers({count * 3}):",
            f"for {name}, weight in model.walk():",
            f"for {name} in 'abc':",
            f"for {name}, other in zip(range({count}), items):",
            f"for {name} in iter(random.random, None):",
            f"for {name} in items:",
            f"for {name} in (k * k for k in range({count})):",
            f"for {name} in map(abs, range(-{count}, 0)):",
            f"for {name} in reversed(range({count})):",
            f"for {name} in meter:",
            f"for {name} in range(helper({n} % 6) % 4):",
            f"for {name} in [decorated, helper]:",
            f"for {name} in pending:",
            f"for {name}, (left, right) in zip(range({count}), [(1, 2), (3, 4), (5, 6)]):",
            f"for model.best in [(k, k) for k in range({count})]:",
            f"for table[{n}] in range({count}):",
        ]
        line = r.choice(many)
        self._put(depth, line)
        if "None)" in line or "in items:" in line or "in pending" in line:
            self._put(depth + 1, "counter += 1")
            self._put(depth + 1, "if counter % 3 == 0 or len(items) > 40: break")
        counted = ["range", "enumerate", "zip", "numbers", "map", "k * k"]
        known = [*numbers, name] if any(each in line for each in counted) and "[" not in line else numbers
        self._block(depth + 1, known, loops=loops + 1, function=function)
        self._else(depth, numbers, loops, function)

    def _while(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        name = self._name("w")
        limit = self.random.randint(1, 5)
        self._put(depth, f"{name} = 0")
        endless = self.random.random() < 0.3
        asked = self.random.random() < 0.2
        test = "True" if endless else f"below({limit}) and {name} < 9" if asked else f"{name} < {limit}"
        self._put(depth, f"while {test}:")
        self._put(depth + 1, f"{name} += 1")
        if endless:
            self._put(depth + 1, f"if {name} > {limit}: break")
        self._block(depth + 1, [*numbers, name], loops=loops + 1, function=function)
        self._else(depth, numbers, loops, function)

    def _else(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        if self.random.random() < 0.25:
            self._put(depth, "else:")
            self._block(depth + 1, numbers, loops=loops, function=function)

    def _if(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        tests = [
            f"{self._number(numbers)} % 2",
            "len(items) > 3",
            "random.random() < 0.5",
            "counter % 3 == 1",
        ]
        self._put(depth, f"if {self.random.choice(tests)}:")
        self._block(depth + 1, numbers, loops=loops, function=function)
        if self.random.random() < 0.4:
            self._put(depth, "else:")
            self._block(depth + 1, numbers, loops=loops, function=function)

    def _try(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        self._put(depth, "try:")
        self._block(depth + 1, numbers, loops=loops, function=function)
        way = [
            "if counter % 2: raise ValueError({})",
            "items.append(risky({} % 7))",
            "items.append({} // (counter % 2))",
        ]
        self._put(depth + 1, self.random.choice(way).format(self._number(numbers)))
        self._put(depth, "except (ValueError, KeyError, ZeroDivisionError) as error:")
        self._put(depth + 1, "items.append(str(error))")
        if self.random.random() < 0.3:
            self._put(depth, "finally:")
            self._put(depth + 1, "counter += 1")

    def _with(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        self._put(depth, "with open('out.txt', 'w') as out:")
        self._put(depth + 1, "out.write(str(counter))")
        self._block(depth + 1, numbers, loops=loops, function=function)

    def _leave(self, depth: int, numbers: list[str], loops: int, function: bool) -> None:
        ways = ["continue", "break", "continue"] + (["return local"] if function else [])
        self._put(depth, f"if {self._number(numbers)} % 4 == 2: {self.random.choice(ways)}")


def check(seed: int, folder: Path, numpy: bool = False) -> list[str]:
    """Differences; the folder is left only if there are some."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = (IMPORTED if seed % 7 == 3 else "") + Writer(seed, numpy).program()
    chance = random.Random(seed)
    epsilon = chance.choice(["inf", "inf", "0.0667", "5"])
    found = []
    plain = _plainly(seed, folder / "plain", source)
    options = ["-m", "florhook", "--epsilon", epsilon]
    recorded = _run(folder / "run", source, options)
    told = "".join(line for line in recorded.stderr.splitlines() if "checkpoints were not taken" not in line)
    if (recorded.stdout, told, recorded.returncode) != (plain.stdout, "", 0):
        found.append(f"recorded at {epsilon}: {told or 'other output'}")
    places = source.count("#HERE")
    for number in range(3):
        chosen = set(chance.sample(range(places), min(places, chance.choice([1, 1, 2, 4]))))
        probed = _probed(source, chosen)
        wanted = _plainly(seed, folder / f"plain{number}", probed)
        log, workers = chance.choice(["hindsight", "all"]), chance.choice(["1", "3"])
        options = ["-m", "florhook", "--mode", "replay", "--log", log, "--workers", workers]
        done = _run(folder / "run", probed, options)
        lines = [line for line in wanted.stdout.splitlines() if line.startswith("@@") or log == "all"]
        if done.stdout.splitlines() != lines:
            (folder / f"probed{number}.py").write_text(probed)
            how = f"epsilon {epsilon}, {workers} workers, probed{number}.py"
            found.append(f"{how}: other lines, exit {done.returncode}; {done.stderr}")
        elif done.returncode:
            (folder / f"probed{number}.py").write_text(probed)
            found.append(f"epsilon {epsilon}, probed{number}.py: exit {done.returncode}: {done.stderr}")
        elif number == 0 and (differs := _logs_differ(folder / "run", probed, wanted.stdout)):
            (folder / f"probed{number}.py").write_text(probed)
            found.append(f"epsilon {epsilon}, probed{number}.py: logs: {differs}")
    if not found:
        shutil.rmtree(folder)
    return found


def _logs_differ(folder: Path, probed: str, wanted: str) -> str:
    """What is wrong with the lines of the run and its replay together: they are those of a plain run, in that order."""
    done = _run(folder, probed, ["-m", "florhook", "logs", "--json"], program=[])
    lines = [json.loads(line)["text"] for line in done.stdout.splitlines()]
    return "" if lines == wanted.splitlines() else f"other lines, exit {done.returncode}; {done.stderr}"


STOP = """\
import os, signal
ticks = 0
def stop():
    global ticks
    ticks += 1
    if os.path.exists("die") and ticks == int(open("die").read()):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def check_resume(seed: int, folder: Path) -> list[str]:
    """The same of a run that is killed at a random place, and continued: output and files as if it had not been."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    source = STOP + Writer(seed).program().replace("#HERE", "stop()") + "print('ticks', ticks)\n"
    epsilon = chance.choice(["inf", "0.0667", "5"])
    plain = _plainly(seed, folder / "plain", source)
    ticks = int(plain.stdout.split()[-1])
    (folder / "run").mkdir()
    found = []
    for mode in chance.choice([["record"], ["record", "resume"]]):
        (folder / "run" / "die").write_text(str(chance.randint(1, max(1, ticks))))
        done = _run(folder / "run", source, ["-m", "florhook", "--mode", mode, "--epsilon", epsilon])
    (folder / "run" / "die").unlink()
    done = _run(folder / "run", source, ["-m", "florhook", "--mode", "resume"])
    if "ended well" in done.stderr:
        return []  # the second place to die lay before the first
    if done.stdout != plain.stdout or done.returncode:
        found.append(f"resumed at {epsilon}: other output, exit {done.returncode}; {done.stderr}")
    for name in ("log.txt", "out.txt"):
        here, there = folder / "run" / name, folder / "plain" / name
        texts = [path.read_text() if path.exists() else None for path in (here, there)]
        # It is said where the run before was killed ahead of its writer.
        if texts[0] != texts[1] and "will be in it twice" not in done.stderr:
            found.append(f"resumed at {epsilon}: another {name}; {done.stderr}")
    if not found:
        shutil.rmtree(folder)
    return found


def _probed(source: str, chosen: set[int]) -> str:
    lines = []
    number = 0
    for line in source.splitlines():
        if line.strip() == "#HERE":
            if number in chosen:
                indent = line[: -len("#HERE")]
                lines.append(f"{indent}show({number}, {{**globals(), **locals()}})")
            number += 1
        lines.append(line)
    return "\n".join(lines) + "\n"


def _plainly(seed: int, folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    done = _run(folder, source, [])
    if done.returncode:
        raise AssertionError(f"seed {seed}: the program in {folder} is wrong\n{done.stderr}")
    return done


def _run(
    folder: Path, source: str, options: list[str], program: Sequence[str] = ("train.py",)
) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    imported = source.startswith(IMPORTED)
    (folder / ("program.py" if imported else "train.py")).write_text(source)
    if imported:
        (folder / "train.py").write_text(
            "import program\nfor last in range(2):\n    print(last, program.counter)\n"
        )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLOR_")}
    environ["PYTHONHASHSEED"] = "0"
    command = [sys.executable, *options, *program]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
