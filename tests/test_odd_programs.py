"""Programs that do what few do: a replay prints what a plain run prints, at every budget, and finds nothing inexact."""

from __future__ import annotations

import zipfile

import pytest
from conftest import Flor

# Lines behind `#P ` are added after the recording.
PROGRAMS = {
    "an iterator that the loop and the program draw from": """
        words = iter("a b c d e f g h".split())
        for word in words:
            skipped = next(words)
            #P print("@@", word, skipped)
    """,
    "a callable iterator with a sentinel": """
        numbers = iter([1, 2, 3, 4, 5, 6, 7].__iter__().__next__, 6)
        for n in numbers:
            for k in range(2):
                #P print("@@", n, k)
                pass
            next(numbers, None)
    """,
    "worker threads that a loop sends home": """
        import queue, threading, time
        tasks, done = queue.Queue(), []
        def worker():
            while (i := tasks.get()) is not None:
                done.append(i * i)
        threads = [threading.Thread(target=worker) for _ in range(2)]
        for thread in threads:
            thread.start()
        for i in range(6):
            tasks.put(i)
            time.sleep(0.02)
        for thread in threads:
            tasks.put(None)
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        total = 0
        for n in range(4):
            total += sum(done) * n
        #P print("@@", total, [thread.is_alive() for thread in threads])
    """,
    "a thread of a class of its own, that nobody holds": """
        import threading, time
        stop = threading.Event()
        counts = []
        class Beat(threading.Thread):
            def run(self):
                while not stop.wait(0.001):
                    pass
                counts.append(1)
        Beat().start()
        for n in range(5):
            time.sleep(0.002)
        stop.set()
        while not counts:
            time.sleep(0.001)
        for n in range(5):
            counts.append(n)
        #P print("@@", counts)
    """,
    "prints in loops of threads, one for each epoch": """
        import queue, threading
        tasks, done = queue.Queue(), []
        def worker():
            while True:
                task = tasks.get()
                if task is None:
                    break
                done.append(task * 2)
                #P print("@@ task", task)
            for item in done[-2:]:
                #P print("@@ item", item)
                pass
        for epoch in range(4):
            thread = threading.Thread(target=worker)
            thread.start()
            for step in range(3):
                tasks.put(epoch * 10 + step)
            tasks.put(None)
            thread.join()
            print(epoch, sum(done), sum(n * n for n in range(3000)))
    """,
    "prints of a thread that begins in one epoch and ends in another": """
        import threading
        turns, taken, log = threading.Semaphore(0), threading.Semaphore(0), []
        def worker():
            #P print("@@ begin")
            turns.acquire()
            for turn in range(2):
                log.append(turn)
                #P print("@@ turn", turn)
                taken.release()
                turns.acquire()
            #P print("@@ end")
        for epoch in range(8):
            if epoch == 1:
                thread = threading.Thread(target=worker, name="worker")
                thread.start()
            if epoch in (3, 4):
                turns.release()
                taken.acquire()
            if epoch == 6:
                turns.release()
                thread.join()
                del thread
            print(epoch, len(log), sum(n * n for n in range(3000)))
    """,
    "a loop that nobody counts": """
        total = 0
        for n in range(5):
            total += n
            #P print("@@", n, total)
        print(total)
    """,
    "loops that nobody counts, left in every way": """
        def summed(n):
            total = 0
            for k in range(n):
                total += k
                #P print("@@ for", k, total)
                if total > 5:
                    return total
            return total
        def found(n):
            try:
                for k in range(n):
                    #P print("@@ try", k)
                    if k == 3:
                        raise ValueError
            except ValueError:
                return -1
            else:
                return n
        for n in range(3, 6):
            k = 0
            while k < n:
                k += 1
                #P print("@@ while", n, k)
            for k in range(n):
                for j in range(2):
                    #P print("@@ inner", n, k, j)
                    if j == k:
                        break
            print(n, summed(n), found(n))
    """,
    "as many loops in each other as Python allows but one": (
        "def deep():\n    total = 0\n"
        + "".join(f"{'    ' * k}for k{k} in range(1):\n" for k in range(1, 20))
        + f"{'    ' * 20}total += len([1])\n{'    ' * 20}#P print('@@', total)\n    return total\n"
        "for n in range(3):\n    print(n, deep())\n    #P print('@@', n)\n"
    ),
    "an iterable that has no __iter__": """
        class Old:
            def __getitem__(self, place):
                if place > 4:
                    raise IndexError
                return place
        total = 0
        for n in Old():
            total += len([n])
            #P print("@@", n, total)
        print(total)
    """,
    "attributes of enum members": """
        import enum
        class Color(enum.Enum):
            RED = 1
        Color.RED.seen = 0
        for n in range(5):
            Color.RED.seen += n
        #P print("@@", Color.RED.seen, Color.RED.value)
    """,
    "attributes of methods": """
        class Net:
            def forward(self):
                Net.forward.calls += 1
            @staticmethod
            def helper():
                Net.helper.calls += 2
        Net.forward.calls = Net.helper.calls = 0
        net = Net()
        for n in range(5):
            net.forward()
            net.helper()
        #P print("@@", Net.forward.calls, Net.helper.calls)
    """,
    "a module made for settings": """
        import types
        config = types.ModuleType("config")
        config.steps, config.history = 0, []
        for n in range(5):
            config.steps += n
            config.history.append(config.steps)
            config.latest = n
        #P print("@@", config.steps, config.history, config.latest)
    """,
    "attributes of a date": """
        import datetime
        class Day(datetime.date):
            pass
        day = Day(2020, 1, 2)
        day.visits = 0
        for n in range(5):
            day.visits += n
        #P print("@@", day, day.visits)
    """,
    "attributes of a cached function": """
        import functools
        @functools.lru_cache(maxsize=None)
        def square(n):
            square.calls += 1
            return n * n
        square.calls = 0
        for n in range(6):
            square(n % 3)
        #P print("@@", square.calls, square.cache_info().hits)
    """,
    "a print in a class body": """
        total = 0
        for n in range(3):
            total += n
            class Layer:
                width = n
                #P print("@@", n, width)
                for part in range(2):
                    #P print("@@ part", part)
                    pass
        #P print("@@", total, Layer.width)
    """,
    "a deque that a loop goes over while one inside is skipped": """
        import collections
        waiting = collections.deque([1, 2, 3])
        for each in waiting:
            total = 0
            for k in range(3):
                total += k * each
            #P print("@@", each, total)
    """,
    "a dict that a loop goes over while one inside changes its values": """
        table = {"a": [1], "b": [2], "c": [3]}
        for name, values in table.items():
            for k in range(3):
                values.append(k)
                table[name] = values
            #P print("@@", name, table)
    """,
    "folders made in the loop": """
        import os
        os.mkdir("runs")
        os.makedirs("out/first")
        for n in range(3):
            os.mkdir(f"out/{n}")
            with open(f"out/{n}/x.txt", "w") as file:
                file.write(str(n))
            #P print("@@", sorted(os.listdir("out")), os.path.exists(f"out/{n + 1}"))
        #P print("@@", open("out/2/x.txt").read())
    """,
    "a generator in a variable of a function": """
        def numbers():
            n = 0
            while True:
                n += 1
                yield n
        def main():
            source, total = numbers(), 0
            for epoch in range(4):
                for step in range(3):
                    total += next(source)
                #P print("@@", epoch, total, next(iter([total])))
            #P print("@@", total)
        main()
    """,
    "an iterator in a variable of a function": """
        def main():
            source, seen = iter(list(range(20))), []
            for epoch in range(4):
                for step in range(3):
                    seen.append(next(source))
                seen.append(next(source))
                #P print("@@", epoch, seen[-2:])
        main()
    """,
    "two branches of a tee": """
        import itertools
        first, second = itertools.tee(range(20))
        if hasattr(itertools, "pairwise"):
            pairs = itertools.pairwise(second)
        else:
            pairs = zip(second, range(20))
        for n in range(5):
            one, two = next(first), next(pairs)
            #P print("@@", n, one, two)
    """,
    "attributes of a random generator": """
        import random
        class Counting(random.Random):
            pass
        source = Counting(3)
        source.draws = 0
        for n in range(5):
            value = source.gauss(0, 1)
            source.draws += 1
        #P print("@@", source.draws, value, source.getstate()[1][-1])
    """,
    "what is iterated over raises": """
        import time
        def source(n):
            for i in range(n):
                yield i
                if i == 2:
                    raise ValueError(i)
        total, caught = 0, []
        for n in range(6):
            time.sleep(0.005)
            try:
                for i in source(n):
                    time.sleep(0.003)
                    total += i
            except ValueError as error:
                caught.append(error.args)
                #P print("@@", n, total, caught)
        sizes = {1: 1}
        try:
            for key in sizes:
                sizes[key + 1] = time.sleep(0.02)
        except RuntimeError:
            caught.append("grown")
        #P print("@@", caught, sizes)
        for n in range(3):
            time.sleep(0.005)
            total += n
        #P print("@@", total)
    """,
    "an else that goes on with the loop around": """
        import time
        found, passed = [], 0
        for n in range(2, 20):
            time.sleep(0.004)
            for k in range(2, n):
                if n % k == 0:
                    break
                time.sleep(0.002)
            else:
                found.append(n)
                #P print("@@ prime", n, passed)
                continue
            passed += 1
        else:
            passed = -passed
        #P print("@@", found, passed)
        def first(rows):
            for row in rows:
                time.sleep(0.004)
                if row > 3:
                    return row
            else:
                raise LookupError(len(rows))
        for n in range(4):
            time.sleep(0.004)
            try:
                passed += first([n, n + 1])
            except LookupError as error:
                #P print("@@ nothing", n, error.args)
                passed += 100
            #P print("@@", n, passed)
    """,
    "a generator that does something when its loop is left": """
        import time
        log = []
        def source(n):
            try:
                for i in range(n):
                    time.sleep(0.004)
                    #P print("@@ made", i, log)
                    yield i
            finally:
                for k in range(2):
                    time.sleep(0.003)
                    log.append(k)
        for n in range(5):
            for i in source(4):
                time.sleep(0.006)
                #P print("@@", n, i, log)
                if i == n:
                    break
            else:
                log.append("all")
            time.sleep(0.006)
            #P print("@@ left", n, log)
    """,
    "generators that are closed after the loop that moved them": """
        import time
        log = []
        def source():
            try:
                yield 1
            finally:
                log.append("closed")
        def handler():
            try:
                yield 1
            except ValueError:
                log.append("caught")
                yield 2
        sources, handlers = [source() for _ in range(6)], [handler() for _ in range(2)]
        for moved in sources + handlers:
            next(moved)
            time.sleep(0.004)
        for n in range(6):
            time.sleep(0.02)
            moved = sources.pop()
            if n == 2:
                moved.close()
            elif n == 3:
                handlers[0].throw(ValueError)
            elif n == 4:
                del moved
            #P print("@@", n, len(sources), log)
        for n in range(3):
            time.sleep(0.02)
            log.append(n)
            #P print("@@ after", n, log)
    """,
    "an object that dies beside one that no checkpoint holds": """
        import threading, time, weakref
        class Node:
            pass
        for n in range(4):
            time.sleep(0.006)
            lock, node = threading.Lock(), Node()
            node.number = n
        alive = weakref.ref(node)
        for n in range(2):
            time.sleep(0.006)
        del node
        #P print("@@", alive() is None)
    """,
    "probes with variables of their own in generators and coroutines": """
        import asyncio, time
        def source(n):
            for i in range(n):
                #P for each in [i, i]: print("@@ made", each)
                time.sleep(0.004)
                yield i
        async def task(n):
            total = 0
            for i in range(n):
                await asyncio.sleep(0)
                #P for half in [i / 2]: print("@@ half", half)
                total += i
            for i in range(2):
                time.sleep(0.005)
                #P for shown in [total + i]: print("@@ task", n, shown)
            return total
        kept = source(9)
        next(kept)
        sums = []
        for n in range(4):
            time.sleep(0.01)
            for i in source(3):
                time.sleep(0.005)
                sums.append(i)
            sums += asyncio.run(task(n + 1)), next(kept)
            #P print("@@", n, sums)
    """,
    "an iterator with a finalizer": """
        import time
        log = []
        class Source:
            def __init__(self, n):
                self.n = n
            def __iter__(self):
                return self
            def __next__(self):
                if not self.n:
                    raise StopIteration
                self.n -= 1
                return self.n
            def __del__(self):
                log.append(self.n)
        for n in range(6):
            for i in Source(n):
                time.sleep(0.006)
                if i == 1:
                    break
            time.sleep(0.006)
            #P print("@@", n, log)
    """,
    "a generator sent to": """
        def average():
            total = count = 0
            value = yield
            while True:
                total, count = total + value, count + 1
                value = yield total / count
        mean = average()
        next(mean)
        for n in range(6):
            now = mean.send(n)
            #P print("@@", n, now)
        #P print("@@", now)
    """,
    "loops that are left in their else": """
        import random
        rng = random.Random(4)
        def noise(n):
            return sum(rng.random() for _ in range(n))
        def body(epoch):
            done = 0
            for step in range(6):
                done += noise(400)
                if step > epoch + 3:
                    break
            else:
                return done, "full"
            return done, "broken"
        def tested(n):
            while n:
                n -= 1
                noise(200)
            else:
                return "tested"
        for epoch in range(4):
            result = body(epoch)
            for k in range(3):
                for step in range(3):
                    noise(400)
                else:
                    if k == 1:
                        break
                    continue
                print("never")
            try:
                for step in range(3):
                    noise(400)
                else:
                    raise ValueError(step)
            except ValueError as error:
                result += (tested(4), error.args[0], k)
            #P print("@@", epoch, result)
        #P print("@@", result)
    """,
    "named tuples of a class that the loop makes": """
        from typing import NamedTuple
        def make(n):
            class Point(NamedTuple):
                x: int
                y: float = 2.5
                def scaled(self):
                    return self.x * self.y + n
            return Point
        kept = []
        for n in range(5):
            Point = make(n)
            for k in range(3):
                kept.append(Point(k))
            last = Point(n, 1.0)
            #P print("@@", n, last, type(last) is Point, [each.scaled() for each in kept[-4:]])
            #P print("@@", Point(7), Point._field_defaults)
        #P print("@@", last.scaled(), last._replace(x=3), Point._make([1, 2])._asdict())
        #P print("@@", kept[1] == (1, 2.5), Point.__doc__, Point.__match_args__)
    """,
    "matches, views of dictionaries, structures": """
        import re, struct
        words, counts, packer, match = re.compile(r"(?P<head>[a-z]+)-?(\\d+)?"), {}, None, None
        keys, values, pairs = counts.keys(), counts.values(), counts.items()
        found = []
        for n in range(5):
            for k in range(3):
                counts[f"{n}{k}"] = n * k
            match = words.search(f"12 ab-{n} cd-{n + 1}", 1, 12)
            found.append([*re.finditer("[a-z]+", f"one two{n} three")][1])
            found.append(re.fullmatch("(a)|(b)+", "bb"))
            packer = struct.Struct("<hf")
            last, fresh = {n: n}, {n: k}.keys()
            #P print("@@", n, match, match.groups(), match.lastgroup, match.pos, match.endpos, found[-2:], list(fresh))
        #P print("@@", match["head"], match.span(2), match.expand("\\1!"), found[0], found[-1].regs, match.re is words)
        #P print("@@", len(keys), sum(values), list(pairs)[-1], packer.pack(1, 2.0), packer.size, list(fresh))
    """,
    "a class that is registered with an abstract one": """
        import abc
        class Shape(abc.ABC):
            @classmethod
            def register(cls, other):
                raise TypeError("not asked for")
        class Square:
            pass
        class Round:
            pass
        known = []
        for n in range(5):
            if n == 2:
                abc.ABCMeta.register(Shape, Square)
            for k in range(3):
                known.append(isinstance(Square(), Shape))
            if n == 3:
                abc.ABCMeta.register(Shape, Round)
            #P print("@@", n, known[-1], issubclass(Square, Shape), issubclass(Round, Shape))
        #P print("@@", issubclass(Square, Shape), isinstance(Round(), Shape), isinstance(3, Shape), sum(known))
    """,
    "values of which `__getattr__` asks for attributes": """
        class Call(tuple):
            def __init__(self, *_):
                self.label = None
            def __getattr__(self, name):
                if self.label is None:
                    raise AttributeError(name)
                return self.label + name
        calls, last = [], None
        for n in range(4):
            for k in range(3):
                calls.append(Call((n, k)))
            last = Call((n,))
            last.label = f"call {n} "
            #P print("@@", n, calls[-1], calls[-1].label, last.label, last.name)
        #P print("@@", last.other, len(calls), last)
    """,
    "an iterator that raises": """
        def items(n):
            for i in range(n):
                #P print("@@ item", i)
                yield i
            raise RuntimeError("none left")
        total = 0
        for epoch in range(4):
            try:
                for i in items(3):
                    total += sum(range(20000)) + i
            except RuntimeError as error:
                #P print("@@", epoch, error, total)
                total += 1
        #P print("@@", total)
    """,
}  # fmt: skip


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_odd_programs(name: str, epsilon: str, flor: Flor) -> None:
    """The same lines, exit code 0."""
    program = PROGRAMS[name]
    base = "\n".join(line for line in program.splitlines() if not line.lstrip().startswith("#P "))
    flor.write("train.py", base)
    assert flor("train.py", FLOR_EPSILON=epsilon).returncode == 0
    replays = flor.folder.parent / "plain"
    replays.mkdir()
    probed = flor.write("train.py", program.replace("#P ", ""))
    (replays / "train.py").write_text(probed.read_text())
    wanted = [
        line for line in Flor(replays, flor.home).python("train.py").stdout.splitlines() if "@@" in line
    ]
    assert wanted
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout.splitlines() == wanted, done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize("name", list(PROGRAMS)[-7:-1])
def test_each_probe_of_a_program_alone(name: str, epsilon: str, flor: Flor) -> None:
    """What no probe lies in is skipped, and changes nothing in what the others print."""
    lines = PROGRAMS[name].splitlines()
    probes = [at for at, line in enumerate(lines) if line.lstrip().startswith("#P ")]
    plain = flor.folder.parent / "plain"
    plain.mkdir()

    def with_probe(chosen: int | None) -> str:
        kept = [line.replace("#P ", "") for at, line in enumerate(lines) if at == chosen or at not in probes]
        return "\n".join(kept)

    flor.write("train.py", with_probe(None))
    assert flor("train.py", FLOR_EPSILON=epsilon).returncode == 0
    for chosen in probes:
        probed = flor.write("train.py", with_probe(chosen))
        (plain / "train.py").write_text(probed.read_text())
        wanted = Flor(plain, flor.home).python("train.py").stdout
        done = flor("train.py", FLOR_MODE="replay")
        assert (done.returncode, done.stdout) == (0, wanted), done.stderr


NUMPY = {
    "a view over overlapping windows": """
        grid = np.zeros((3, 2), order="F")
        windows = np.lib.stride_tricks.sliding_window_view(grid.reshape(-1), 2)
        steps = np.nditer(np.arange(30))
        for n in range(4):
            for k in range(3):
                step = next(steps)
                grid[k, 0] += n
                windows.base.base[k] += n if hasattr(windows.base, "base") else 0
            #P print("@@", n, int(step), grid.sum(), windows.sum())
    """,
    "children of a seed sequence": """
        seeds = np.random.SeedSequence(4)
        source = np.random.default_rng(seeds)
        for n in range(4):
            for k in range(2):
                child = np.random.default_rng(seeds.spawn(1)[0])
            #P print("@@", n, child.bit_generator.state["state"], seeds.n_children_spawned)
        #P print("@@", np.random.default_rng(seeds.spawn(1)[0]).random(), source.random())
    """,
    "a generator of random numbers at the address of one of another kind": """
        source = np.random.Generator(np.random.Philox(2))
        legacy = np.random.RandomState(5)
        for n in range(4):
            if n == 1:
                bits, others = np.random.PCG64(7), np.random.PCG64(8)
                source = legacy = None
                source = np.random.Generator(bits)
                legacy = np.random.RandomState(others)
            for k in range(2):
                source.normal(), legacy.randn()
            #P print("@@", n, type(source.bit_generator).__name__, source.bit_generator.state["state"])
        #P print("@@", source.random(), legacy.randn(), legacy.rand(), type(source.bit_generator).__name__)
    """,
    "two that draw from one bit generator": """
        np.random.seed(1)
        bits = np.random.MT19937(3)
        first, second, late = np.random.RandomState(bits), np.random.Generator(bits), None
        kept = np.random.RandomState(np.random.PCG64(4))
        for n in range(5):
            if n == 2:
                late = np.random.RandomState(bits)
                kept = np.random.RandomState(np.random.SFC64(n))
            for k in range(3):
                (late or first).randn(), kept.randn(), np.random.randn()
            second.random()
            #P print("@@", n, first.get_state()[2:], second.bit_generator.state["state"]["pos"])
        #P print("@@", first.randn(), late.randn(), second.random(), late.rand(), first.rand())
        #P print("@@", kept.randn(), kept.rand(), np.random.randn())
    """,
}


@pytest.mark.parametrize("epsilon", ["inf", "0.0667"])
@pytest.mark.parametrize("name", NUMPY)
def test_odd_programs_with_numpy(
    name: str, epsilon: str, flor: Flor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same, with arrays."""
    pytest.importorskip("numpy")
    monkeypatch.setitem(PROGRAMS, name, "        import numpy as np" + NUMPY[name])
    test_odd_programs(name, epsilon, flor)


VIEW = """
    import torch
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.randn(4))
    view = w.view(2, 2)
    opt = torch.optim.SGD([w], 0.1)
    for n in range(4):
        opt.zero_grad()
        (w ** 2).sum().backward()
        opt.step()
        #P print("@@", n, view.sum().item())
"""


def test_numpy_unseeded(flor: Flor) -> None:
    """The process's own generator has the children that it had in the run, and differs in nothing."""
    pytest.importorskip("numpy")
    program = """
        import numpy as np
        total = 0
        for n in range(3):
            for k in range(3):
                total += np.random.rand() + np.random.randn()
                #P print("@@", n, k, total)
        child = np.random.mtrand._rand._bit_generator.seed_seq.spawn(1)[0]
        print(total, np.random.default_rng(child).random())
        #P print("@@", total, np.random.default_rng(child).random())
    """
    flor.write("train.py", "\n".join(line for line in program.splitlines() if "#P " not in line))
    recorded = flor("train.py", FLOR_EPSILON="inf")
    flor.write("train.py", program.replace("#P ", ""))
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "@@ " + recorded.stdout.strip()


COMPRESSED = """
    import gzip
    log = gzip.open("log.gz", "wt", compresslevel=9)
    plain = open("list.txt", "w+")
    for n in range(4):
        plain.write(f"line {n}\\n")
    plain.seek(0)
    total = 0
    for n in range(4):
        line = plain.readline()
        for k in range(3):
            total += abs(k)
        #P print("@@", n, total, line)
        log.write(f"{n} {total}\\n")
    log.close()
    plain.close()
    text, size = gzip.open("log.gz", "rt").read(), len(open("log.gz", "rb").read())
    #P print("@@", repr(text), size)
    print(repr(text), size)
"""


def test_a_compressed_file_that_is_being_written(flor: Flor) -> None:
    """Recording has nothing flushed to the compressor, which would end a block there; a replay writes the same too."""
    elsewhere = Flor(flor.folder.parent / "plain", flor.home)
    elsewhere.folder.mkdir()
    elsewhere.write("train.py", COMPRESSED.replace("#P ", ""))
    *wanted, last = elsewhere.python("train.py").stdout.splitlines()
    flor.write("train.py", "\n".join(line for line in COMPRESSED.splitlines() if "#P " not in line))
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert (recorded.returncode, recorded.stdout.splitlines()) == (0, [last]), recorded.stderr
    flor.write("train.py", COMPRESSED.replace("#P ", ""))
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stdout.splitlines()) == (0, wanted), done.stderr


HOOKS = """
    import torch
    from torch.nn.modules.module import register_module_forward_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook
    torch.manual_seed(0)
    net, seen, handles = torch.nn.Linear(2, 1), {"calls": 0, "steps": 0}, []
    opt = torch.optim.SGD(net.parameters(), 0.1)
    def count(module, inputs, output):
        seen["calls"] += 1
    for n in range(8):
        if n == 2:
            handles.append(register_module_forward_hook(count))
            handles.append(register_optimizer_step_post_hook(lambda *_: seen.update(steps=seen["steps"] + 1)))
        if n == 6:
            handles.pop(0).remove()
        opt.zero_grad()
        net(torch.ones(3, 2)).sum().backward()
        opt.step()
        #P if n in (4, 7):
        #P     print("@@", n, seen)
    net(torch.ones(1, 2))
    #P print("@@", seen)
"""


def test_trees_of_neighbours(flor: Flor) -> None:
    """A tree is as recorded in whatever process, since the addresses in it are no part of it."""
    pytest.importorskip("scipy")
    program = """
        import numpy as np
        from scipy.spatial import KDTree, cKDTree
        points = np.random.RandomState(0).randn(60, 3)
        tree, late, total = cKDTree(points), None, 0
        for n in range(4):
            for k in range(2):
                distance, found = tree.query(points[n * 10 + k] + 0.1, k=3)
                total += found.sum()
            if n == 1:
                late = KDTree(points[::2], leafsize=4)
                late.label = n
            #P print("@@", n, total, distance, late and late.label)
        #P print("@@", late.query(points[7], k=2), tree.query_ball_point(points[3], 0.7), late.n, late.data[3])
    """
    flor.write("train.py", "\n".join(line for line in program.splitlines() if "#P " not in line))
    flor("train.py", FLOR_EPSILON="inf")
    flor.write("train.py", program.replace("#P ", ""))
    wanted = flor.python("train.py").stdout.splitlines()
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == wanted


@pytest.mark.needs_torch
def test_hooks_of_all_modules(flor: Flor) -> None:
    """Those that a skipped iteration set are there after it, and those that it removed are not."""
    flor.write("train.py", "\n".join(line for line in HOOKS.splitlines() if "#P " not in line))
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert recorded.returncode == 0, recorded.stderr
    flor.write("train.py", HOOKS.replace("#P ", ""))
    done = flor("train.py", FLOR_MODE="replay")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "@@ 4 {'calls': 3, 'steps': 3}",
        "@@ 7 {'calls': 4, 'steps': 6}",
        "@@ {'calls': 4, 'steps': 6}",
    ]


@pytest.mark.needs_torch
def test_views_of_parameters(flor: Flor) -> None:
    """The node of a view's graph is made anew when it is looked at, which is no other state."""
    flor.write("train.py", "\n".join(line for line in VIEW.splitlines() if "#P" not in line))
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", VIEW.replace("#P ", ""))
    done = flor("train.py", FLOR_MODE="replay")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == flor.python("train.py").stdout


TWICE = """
    import os, sys
    def odd():
        n = 1
        while True:
            yield n
            n += 2
    source = odd()
    for i in range(8):
        print(i, next(source), flush=True)
        if os.path.exists(f"die{i}"):
            os._exit(9)
"""


def test_a_second_resume_prints_everything_once(flor: Flor) -> None:
    """A run that keeps a generator is taken up from its beginning, twice: what was printed is not printed again."""
    flor.write("train.py", TWICE)
    plain = flor.python("train.py").stdout
    (flor.folder / "die2").touch()
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 9
    (flor.folder / "die2").unlink()
    (flor.folder / "die5").touch()
    assert flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf").returncode == 9
    (flor.folder / "die5").unlink()
    done = flor("train.py", FLOR_MODE="resume", FLOR_EPSILON="inf")
    assert (done.stdout, done.returncode) == (plain, 0), done.stderr


def test_a_program_of_which_nothing_is_recorded(flor: Flor) -> None:
    """What was added to a zip file cannot be known: a replay that said nothing of it would seem to be one."""
    main = flor.write("__main__.py", "for epoch in range(3):\n    print(epoch)\n")
    with zipfile.ZipFile(flor.folder / "app.zip", "w") as file:
        file.write(main, "__main__.py")
    recorded = flor("app.zip")
    assert (recorded.stdout, recorded.returncode) == ("0\n1\n2\n", 0)
    shown = flor("app.zip", FLOR_MODE="replay")
    assert (shown.stdout, shown.returncode) == ("", 3)
    assert "app.zip: what was added to it cannot be known" in shown.stderr


def test_what_an_interrupted_loop_had_not_asked_for(flor: Flor) -> None:
    """A print in a generator shows the items that the run took, and no other, where the run was interrupted."""
    program = """
        import signal
        def items():
            for i in range(6):
                #P print("@@ item", i)
                yield i
        try:
            for i in items():
                total = sum(range(200000))
                if i == 2 and not done:
                    signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
    """.replace("not done", "interrupt")
    program = program.replace(
        "import signal",
        "import os, signal\n        interrupt = not os.path.exists('once')\n        open('once', 'w').close()",
    )
    flor.write("train.py", "\n".join(line for line in program.splitlines() if "#P " not in line))
    recorded = flor("train.py", FLOR_EPSILON="inf")
    assert recorded.stdout == "interrupted\n", recorded.stderr
    flor.write("train.py", program.replace("#P ", ""))
    done = flor("train.py", FLOR_MODE="replay")
    assert done.stdout == "@@ item 0\n@@ item 1\n@@ item 2\n", done.stderr
