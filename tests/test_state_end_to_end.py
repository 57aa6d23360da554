"""State, end to end: what a recorded program had is what a replay of it has, or the replay executes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Flor
from test_record_replay import probe, record, replay

from florhook.store.store import Store

# Autograd: a graph that is alive across a boundary is executed, never restored wrongly --------------------------

GRAPHS = {
    "a local": ("total = 0.0", "total = total + loss", "total"),
    "an attribute": ("net.total = 0.0", "net.total = net.total + loss", "net.total"),
    "a list": ("losses = []", "losses.append(loss)", "torch.stack(losses).sum()"),
    "a closure": (
        "held = [lambda: 0.0]",
        "held.append(lambda held=held[-1], loss=loss: held() + loss)",
        "held[-1]()",
    ),
    "a tensor changed in place": ("total = torch.zeros(())", "total += loss", "total"),
}


@pytest.mark.needs_torch
@pytest.mark.parametrize("where", GRAPHS)
def test_losses_that_are_summed_up_before_backward(flor: Flor, where: str) -> None:
    """The inner loop only adds to the graph; `backward` comes after it, twice with `retain_graph`."""
    start, add, total = GRAPHS[where]
    flor.write(
        "train.py",
        f"""
        import torch
        torch.manual_seed(1)
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)

        def train(epoch):
            {start}
            for step in range(4):
                loss = net(torch.randn(5, 3)).square().mean()
                {add}
            opt.zero_grad()
            sum_of_losses = {total}
            sum_of_losses.backward(retain_graph=True)
            sum_of_losses.backward()
            opt.step()
            return float(sum_of_losses.detach())

        for epoch in range(3):
            value = train(epoch)
            print("epoch", epoch, round(value, 6))
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "opt.step()", 'print("@@", epoch, net.weight.tolist(), net.weight.grad.tolist())')
    _, stats = replay(flor, "train.py")
    assert stats["diverged"] == 0


@pytest.mark.needs_torch
def test_a_graph_that_lives_across_epochs(flor: Flor) -> None:
    """Truncated back-propagation: the hidden state of one epoch goes into the next one's graph."""
    flor.write(
        "train.py",
        """
        import torch
        torch.manual_seed(1)
        cell = torch.nn.RNNCell(2, 3)
        opt = torch.optim.Adam(cell.parameters())
        hidden = torch.zeros(1, 3)
        for epoch in range(4):
            before = hidden
            for step in range(3):
                hidden = cell(torch.randn(1, 2), hidden)
            loss = hidden.sum()
            opt.zero_grad()
            loss.backward(retain_graph=True)
            if epoch % 2:
                hidden = hidden.detach()
            opt.step()
        print(hidden.tolist())
        """,
    )
    # Weights are changed in place while an older graph needs them: torch refuses that, so it is not done here.
    path = flor.folder / "train.py"
    path.write_text(path.read_text().replace("    opt.step()\n", ""))
    record(flor, "train.py")
    probe(flor, "train.py", "loss = hidden.sum()", 'print("@@", epoch, loss.item(), before.requires_grad)')
    replay(flor, "train.py")


# Random states -------------------------------------------------------------------------------------------------

DRAWS = """
    import random
    import numpy as np
    try:
        import torch
    except ImportError:
        torch = None

    class Sampler:
        def __init__(self):
            self.new, self.old, self.own = np.random.default_rng(), np.random.RandomState(), random.Random()
            self.torch = torch.Generator() if torch else None

        def draw(self):
            values = [random.random(), random.gauss(0, 1), np.random.normal(), self.new.normal(), self.old.normal()]
            values += [self.own.random(), int(self.new.integers(1000))]
            if torch:
                values += [torch.rand(1).item(), torch.rand(1, generator=self.torch).item()]
            return values

    sampler = Sampler()
    names = {f"name {n}" for n in range(50)}
    for epoch in range(4):
        for step in range(3):
            values = sampler.draw()
        order = list(names)
        names.add(f"new {epoch}")
    end = sampler.draw()
    print(end, order[:3])
"""


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_random_numbers_are_those_of_the_run(flor: Flor, seed: str) -> None:
    """Unseeded, in every generator, whatever the seed of hashes; sets iterate as they did."""
    flor.write("train.py", DRAWS)
    first = record(flor, "train.py", PYTHONHASHSEED=seed).stdout
    probe(flor, "train.py", "order = list(names)", 'print("@@", epoch, order[:5], values)')
    probe(flor, "train.py", "end = sampler.draw()", 'print("@@ end", end, order[:3])')
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS="stats", PYTHONHASHSEED=seed)
    lines = done.stdout.splitlines()
    assert lines[-1] == "@@ end " + first.strip(), done.stderr
    assert [line.split()[1] for line in lines] == ["0", "1", "2", "3", "end"]
    stats = json.loads((flor.folder / "stats").read_text())
    assert (stats["diverged"], stats["exit_code"]) == (0, 0)
    assert stats["jumps"] > 0


# Torn snapshots ------------------------------------------------------------------------------------------------

TORN = """
    import numpy as np
    try:
        import torch
    except ImportError:
        torch = None

    class Holder:
        pass

    MARK = 0x5A
    state = Holder()
    state.data, state.array, state.items = bytearray(3 << 20), np.zeros(1 << 20, "u1"), [0] * 10_000
    state.tensor = torch.zeros(1 << 20, dtype=torch.uint8) if torch else np.zeros(1 << 20, "u1")

    def fill(value):
        state.data[:] = bytes([value]) * len(state.data)
        state.array[:] = value
        state.tensor[:] = value
        state.items[:] = [value] * len(state.items)

    for step in range(6):
        fill(0xEE)   # right after the boundary
        fill(step + 1)
    print("done")
"""


def test_what_is_stored_is_what_was_there_at_the_boundary(flor: Flor) -> None:
    """Everything is overwritten while the writer process still works; no byte of that is in the store."""
    flor.write("train.py", TORN)
    record(flor, "train.py")
    with Store.open(flor.home) as store:
        found = {}
        for checkpoint in store.checkpoints(store.find("last")):
            pieces = [bytes(store.read(digest)) for digest in checkpoint.digests]
            found[checkpoint.iteration] = [piece for piece in pieces[2:] if len(piece) >= 1 << 20]
            value = {-1: 6}.get(checkpoint.iteration, checkpoint.iteration)
            assert found[checkpoint.iteration], checkpoint
            for piece in found[checkpoint.iteration]:
                assert piece == bytes([value]) * len(piece)
    assert {-1, 1, 2, 3, 4, 5} <= set(found)
    probe(
        flor,
        "train.py",
        "fill(step + 1)",
        "if step == 4: print('@@', set(state.data), state.array.max(), set(state.items))",
    )
    probe(
        flor,
        "train.py",
        'print("done")',
        "print('@@', set(state.data), int(state.tensor.min()), set(state.items))",
    )
    assert replay(flor, "train.py")[1]["diverged"] == 0


# Objects that cannot be captured -------------------------------------------------------------------------------


def skipped(flor: Flor, probed: str) -> dict[str, Any]:
    flor.write(
        "train.py",
        """
        import csv, io

        class Guard:
            pass

        def work(guard):
            for step in range(5):
                guard.writer = csv.writer(io.StringIO())
                guard.count = step
            return guard.count

        guard = Guard()
        count = work(guard)
        print("end", count)
        """,
    )
    record(flor, "train.py")
    probe(flor, "train.py", "count = work(guard)", probed)
    return replay(flor, "train.py")[1]


def test_a_placeholder_that_nobody_touches_costs_nothing(flor: Flor) -> None:
    """A writer was made in the loop; the loop is skipped all the same."""
    assert skipped(flor, 'print("@@", guard.count)')["blocks_skipped"] == 1


def test_a_placeholder_that_is_touched_makes_the_loop_run(flor: Flor) -> None:
    """The output is that of a plain run."""
    assert skipped(flor, 'print("@@", guard.count, guard.writer.dialect.delimiter)')["blocks_skipped"] == 0


SHARED_DICTS = """
import time

class Settings(dict):
    def __init__(self, **items):
        super().__init__(items)
        self.__dict__ = self

class Borg:
    together = {}
    def __init__(self):
        self.__dict__ = Borg.together

class Plain:
    pass

settings, first = Settings(lr=0.1), Borg()
first.count = 0
best, made = None, []
for epoch in range(6):
    now, other, one, two = Settings(epoch=epoch, loss=0.0), Borg(), Plain(), Plain()
    two.__dict__ = one.__dict__
    for step in range(3):
        now.loss += step * settings.lr
        other.count += 1
        one.x = other.count
        time.sleep(0.004)
    best = now if best is None or now["loss"] > best.loss else best
    made.append((other, two))
    settings.lr *= 1.1
    print(epoch, best.epoch)
best.extra, made[0][0].late = 3, 5
print(best["extra"], first.late)
"""


@pytest.mark.parametrize("workers", ["1", "3"])
def test_attribute_dictionaries_and_objects_that_share_their_attributes(flor: Flor, workers: str) -> None:
    """Those made in the loop are what they were: what is set as an attribute is there as an item, and in the others."""
    flor.write("train.py", SHARED_DICTS)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = "print('@@', now.loss, best['loss'], settings['lr'], first.count, [two.x for _, two in made])"
    probed = SHARED_DICTS.replace("    print(epoch", f"    {probe}\n    print(epoch")
    probed = probed.replace("print(best[", "print('@@', best['extra'], first.late)\nprint(best[")
    flor.write("train.py", probed)
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    done = flor("train.py", FLOR_MODE="replay", FLOR_WORKERS=workers)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == wanted
    assert len(wanted) == 7


CLASSES = """
import time

class Tagged(str): pass
class Number(int):
    def __new__(cls, value, tag):
        made = super().__new__(cls, value)
        made.tag = tag
        return made
class Point(tuple): pass
class Group(frozenset): pass
class Items(list): pass
class Doubles(dict):
    def __missing__(self, key):
        self[key] = found = key * 2
        return found
class Problem(Exception):
    def __init__(self, text, code):
        super().__init__(text)
        self.code = code
class Both:
    __slots__ = ("a", "__dict__", "__weakref__")
class Frozen:
    def __init__(self, value):
        object.__setattr__(self, "value", value)
    def __setattr__(self, name, value):
        raise TypeError(name)

kept = {}
for epoch in range(5):
    text, number, point, group = Tagged(f"e{epoch}"), Number(epoch, [epoch]), Point((epoch, 1)), Group({epoch, 7})
    text.note, point.name, group.extra = [epoch], f"p{epoch}", {"e": epoch}
    items, doubles, both = Items([epoch]), Doubles(), Both()
    items.own, doubles.size, both.a, both.b = items, doubles[epoch], epoch, [epoch]
    try:
        raise Problem("bad", epoch)
    except Problem as error:
        problem = error
    kept[epoch] = (text, number, point, group, items, doubles, both, problem, Frozen(epoch))
    for step in range(3):
        time.sleep(0.004)
    print(epoch)
"""
SHOWN = """
def shown(e, text, number, point, group, items, doubles, both, problem, frozen):
    return (e, text, text.note, number + 1, number.tag, type(number).__name__, point, point.name, sorted(group),
            group.extra, items.own is items, doubles.get(e), doubles.size, both.a, both.b, problem.code, problem.args,
            frozen.value)

for e in kept:
    print("@@", shown(e, *kept[e]))
"""


def test_values_and_containers_of_classes_of_the_programs(flor: Flor) -> None:
    """Made in the loop, with attributes of their own, and constructors that take more than their value."""
    flor.write("train.py", CLASSES)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", CLASSES + SHOWN)
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == wanted
    assert json.loads(stats.read_text())["iterations_skipped"] == 5


def test_views_of_arrays_that_take_the_place_of_others(flor: Flor) -> None:
    """A new array lies where one of before the loop had lain, smaller or larger, and has views."""
    pytest.importorskip("numpy")
    source = """
import time
import numpy as np
array = np.zeros(6)
view, total = array[1:], 0.0
for epoch in range(8):
    del array, view
    array = np.arange(float([40, 3, 4000, 6][epoch % 4]))
    view = array[1::2]
    total += view.sum()
    for step in range(3):
        array[-1] += step
        time.sleep(0.004)
    print(epoch, total)
"""
    flor.write("train.py", source)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = "print('@@', epoch, len(array), view.sum(), array.sum(), view.base is array, np.shares_memory(view, array))"
    flor.write("train.py", source.replace("    print(", f"    {probe}\n    print("))
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    for select in (None, "epoch=2:3", "epoch=5:", "epoch=1::3"):
        done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT=select or "")
        chosen = range(8)[
            {None: slice(None), "epoch=2:3": slice(2, 3), "epoch=5:": slice(5, None)}.get(
                select, slice(1, None, 3)
            )
        ]
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [wanted[epoch] for epoch in chosen]


METHODS = """
import functools
class Net:
    mode = "first"
    def f(self, x): return x + 1
    def __call__(self, x): return self.f(x)
    @property
    def p(self): return self.mode
    @staticmethod
    def s(x): return x * 2
    def gone(self): return "here"
def counted(function):
    count = 0
    @functools.wraps(function)
    def inner(*args):
        nonlocal count
        count += 1
        inner.count = count
        return function(*args)
    return inner
net, total, own = Net(), 0, Net.f
for epoch in range(7):
    if epoch == 1: Net.f = counted(Net.f)
    if epoch == 2: Net.p = property(lambda self: "second")
    if epoch == 3: Net.s, Net.g = staticmethod(lambda x: x * 5), lambda self: "new"
    if epoch == 4: Net.__call__ = lambda self, x: self.f(x) + 1000
    if epoch == 5:
        Net.f = own
        del Net.gone
    for step in range(10):
        total += net(step)
    def state():
        last = net.g() if epoch > 2 else None, hasattr(net, "gone"), getattr(Net.f, "count", None)
        return net(1), net.p, net.s(1), Net.f is own, *last
"""
STATES = [
    ("first", 2, True, None, True, None),
    ("first", 2, False, None, True, 11),
    ("second", 2, False, None, True, 22),
    ("second", 5, False, "new", True, 33),
    ("second", 5, False, "new", True, 44),
    ("second", 5, True, "new", False, None),
    ("second", 5, True, "new", False, None),
]  # by hand; `state` calls `f` once, which makes 11 calls an epoch
PROBE = """
    print('@@', epoch, (net.p, net.s(1), Net.f is own, net.g() if epoch > 2 else None, hasattr(net, 'gone'),
                        getattr(Net.f, 'count', None)))
"""


@pytest.mark.parametrize("select", ["", "epoch=4:5", "epoch=6:7"])
def test_methods_that_a_program_replaces(flor: Flor, select: str) -> None:
    """Methods, properties and decorated methods are the ones that the class had then, with their counts."""
    flor.write("train.py", METHODS + "    state()\n")
    flor("train.py", FLOR_EPSILON="inf")
    flor.write("train.py", METHODS + "    state()" + PROBE)
    done = flor("train.py", FLOR_MODE="replay", **({"FLOR_SELECT": select} if select else {}))
    chosen = range(*map(int, select.partition("=")[2].split(":"))) if select else range(7)
    wanted = "".join(f"@@ {epoch} {STATES[epoch]}\n" for epoch in chosen)
    assert (done.returncode, done.stdout) == (0, wanted)


def test_methods_added_by_a_probe_are_no_state(flor: Flor) -> None:
    """A helper that was added to a class stays through jumps, and makes no difference."""
    flor.write("train.py", METHODS)
    flor("train.py", FLOR_EPSILON="inf")
    helper = "    def told(self): return self.mode, self.p\n    @property\n    def also(self): return self.told()\n"
    edited = METHODS.replace("    def gone(self)", helper + "    def gone(self)")
    flor.write("train.py", edited + "    print('@@', epoch, net.told(), net.also[1])\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="epoch=1:3")
    wanted = "@@ 1 ('first', 'first') first\n@@ 2 ('first', 'second') second\n"
    assert (done.returncode, done.stdout) == (0, wanted)


OPTIMIZERS = """
import torch
class Sign(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.5})
    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter -= self.param_groups[0]["lr"] * parameter.grad.sign()
for fold in range(4):
    weight = torch.nn.Parameter(torch.tensor([float(fold + 3)]))
    optimizer = Sign([weight])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(4):
        weight.square().sum().backward()
        optimizer.step()
        scheduler.step()
"""


@pytest.mark.needs_torch
def test_classes_that_a_library_changes_when_they_are_first_used(flor: Flor) -> None:
    """torch puts a wrapper in the place of an optimizer's `step`. By hand: 0.5 twice and 0.25 twice, 1.5 less."""
    pytest.importorskip("torch")
    flor.write("train.py", OPTIMIZERS)
    flor("train.py", FLOR_EPSILON="inf")
    flor.write("train.py", OPTIMIZERS + "        print('@@', fold, step, weight.item())\n")
    done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="fold=2:4")
    lines = [f"@@ {f} {n} {f + 3 - less}\n" for f in (2, 3) for n, less in enumerate((0.5, 1.0, 1.25, 1.5))]
    assert (done.returncode, done.stdout) == (0, "".join(lines))


LOCKS_INSIDE = """
import queue, threading, time

class Tracker:
    def __init__(self, n):
        self.lock, self.deep = threading.Lock(), threading.RLock()
        self.queue, self.event = queue.Queue(), threading.Event()
        self.n = n

    def add(self, x):
        with self.lock, self.deep:
            self.queue.put(x)
            self.n += x

trackers = []
for epoch in range(6):
    trackers.append(Tracker(epoch))
    for i in range(4):
        trackers[-1].add(i)
        time.sleep(0.01)
    if epoch:
        trackers[-2].add(100)
        trackers[-2].event.set()
    print(epoch, trackers[-1].n)
"""


def test_locks_that_are_made_in_a_loop_come_back(flor: Flor) -> None:
    """By hand: each tracker has its epoch, 0 + 1 + 2 + 3, and 100 from the next epoch; its queue has five items."""
    path = flor.write("train.py", LOCKS_INSIDE)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probe = (
        "print('@@', [each.n for each in trackers], trackers[0].queue.qsize(), trackers[4].event.is_set())\n"
    )
    path.write_text(path.read_text() + probe)
    stats = flor.folder / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert (done.stdout, done.stderr) == ("@@ [106, 107, 108, 109, 110, 11] 5 True\n", "")
    assert json.loads(stats.read_text())["iterations_skipped"] > 3


HELD = """
import threading, time
guard, deep = threading.Lock(), threading.RLock()
for epoch in range(8):
    if epoch == 2:
        guard.acquire()
    if epoch in (3, 4):
        deep.acquire()
    if epoch == 6:
        deep.release()
        guard.release()
    for i in range(3):
        time.sleep(0.01)
    print(epoch)
"""


@pytest.mark.parametrize(("epoch", "shown"), [(1, "False 0"), (3, "True 1"), (5, "True 2"), (7, "False 1")])
def test_locks_are_held_as_they_were(flor: Flor, epoch: int, shown: str) -> None:
    """The plain one from epoch 2 to 6, the other once from epoch 3 on, and twice in 4 and 5."""
    path = flor.write("train.py", HELD)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    count = "repr(deep).split('count=')[1].split()[0]"
    probe = f"    if epoch == {epoch}:\n        print('@@', guard.locked(), {count})\n    print(epoch)"
    path.write_text(path.read_text().replace("    print(epoch)", probe))
    stats = flor.folder / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_STATS=str(stats))
    assert (done.stdout, done.stderr) == (f"@@ {shown}\n", "")
    assert json.loads(stats.read_text())["iterations_executed"] < 8
