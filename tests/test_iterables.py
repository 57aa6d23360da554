"""Jumps into the middle of loops over all that people iterate over: exact, and past what comes before where possible.

Each program keeps a running value that depends on every item and on every random number. A replay asks for three
iterations in the middle; the figures say how many were executed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Flor

from florhook.state.kinds.generators import position_of

PROGRAM = """
import random, time
{setup}
random.seed(5)
total, seen = 0.0, []
for item in {iterable}:
    value = {value}
    total = 0.9 * total + value * random.random()
    {body}
    time.sleep(0.002)
print(total, len(seen))
"""
ASKED = range(20, 23)

STREAM = """
class Stream:
    def __init__(self):
        self.served, self.random = 0, random.Random(1)
    def __iter__(self):
        while self.served < 40:
            self.served += 1
            yield [self.random.random()]
stream = Stream()
"""
BUFFER = """
def reads():
    buffer = [0.0]
    for n in range(40):
        buffer[0] += n
        yield buffer
"""
SHUFFLED = """
def shuffled():
    order = [[float(n)] for n in range(40)]
    random.shuffle(order)
    yield from order
"""
LAZY = """
def lazy():
    for n in range(40):
        yield [random.random()]
"""
GROWING = """
level = 1
def lessons():
    difficulty = 0
    for n in range(40):
        difficulty += level
        yield [difficulty]
"""
CLASS = """
class Countdown:
    def __init__(self):
        self.left = 40
    def __iter__(self):
        return self
    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return [self.left]
"""
NUMBERS = "rows = [[float(n)] for n in range(40)]"
FILE = """
with open("data.txt", "w") as out:
    out.writelines(f"{n * 0.5}\\n" for n in range(40))
lines = open("data.txt")
"""
TABLE = """
import csv
with open("data.csv", "w") as out:
    out.writelines(f"{n},{n * 0.5}\\n" for n in range(40))
"""
CURSOR = """
import sqlite3
db = sqlite3.connect(":memory:")
db.execute("create table t (x real)")
db.executemany("insert into t values (?)", [(n * 0.5,) for n in range(40)])
"""
NOTHING, FIRST = "pass", "item[0]"
# name: (setup, iterable, value of an item, more of the body, whether the items before are executed)
PLAIN: dict[str, tuple[str, str, str, str, bool]] = {
    "a generator": (SHUFFLED, "shuffled()", FIRST, NOTHING, False),
    "an object whose iteration changes it": (STREAM, "stream", FIRST, "seen.append(stream.served)", False),
    "a generator that reuses its buffer": (BUFFER, "reads()", FIRST, "seen.append(item)", False),
    "a generator whose item the body changes": (BUFFER, "reads()", FIRST, "item[0] *= 0.5", False),
    "a generator that draws as it goes": (LAZY, "lazy()", FIRST, NOTHING, False),
    "a generator that reads what the body sets": (GROWING, "lessons()", FIRST, "level = len(seen) + 2", True),
    "an iterator of the user's": (CLASS, "Countdown()", FIRST, NOTHING, False),
    "an iterator that the program holds": (CLASS, "(it := Countdown())", FIRST, "seen.append(it.left)", False),
    "a generator that the program holds": (SHUFFLED, "(it := shuffled())", FIRST, NOTHING, False),
    "zip": (SHUFFLED + NUMBERS, "zip(rows, shuffled())", "item[1][0]", NOTHING, False),
    "map": (NUMBERS, "map(tuple, rows)", FIRST, NOTHING, False),
    "filter": (NUMBERS, "filter(len, rows)", FIRST, NOTHING, False),
    "a generator expression": (NUMBERS, "(row[:] for row in rows)", FIRST, "seen.append(item)", False),
    "a dict's items": (NUMBERS, "{str(r): r for r in rows}.items()", "item[1][0]", NOTHING, False),
    "a dict that the body changes": (
        NUMBERS + "\ntable = {str(r): r for r in rows}", "table.items()", "item[1][0]",
        "table[item[0]] = [value + 1]", False,
    ),
    "a file's lines": (FILE, "lines", "float(item)", NOTHING, False),
    "a csv reader": (TABLE, "csv.reader(open('data.csv'))", "float(item[1])", NOTHING, True),
    "a database cursor": (CURSOR, "db.execute('select x from t')", FIRST, NOTHING, True),
    "a sorted copy": (NUMBERS, "sorted(rows, reverse=True)", FIRST, NOTHING, False),
}  # fmt: skip


def select(flor: Flor, setup: str, iterable: str, value: str, body: str, **changes: str) -> tuple[int, str]:
    """Record, probe, replay three iterations. Iterations executed, and what the replay said."""
    source = PROGRAM.format(setup=setup, iterable=iterable, value=value, body=body)
    flor.write("train.py", source)
    done = flor("train.py", FLOR_EPSILON="inf", **changes)
    assert done.returncode == 0, done.stderr
    flor.write(
        "train.py",
        source.replace("    time.sleep", "    print('@@', total, value, seen[-2:])\n    time.sleep"),
    )
    plain = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    stats = flor.home.parent / "stats.json"
    again = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="item=20:23", FLOR_STATS=str(stats))
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == [plain[number] for number in ASKED]
    figures: dict[str, Any] = json.loads(stats.read_text())
    return figures["iterations_executed"], again.stderr


@pytest.mark.parametrize("name", PLAIN)
def test_iterables_of_python(name: str, flor: Flor) -> None:
    """The three iterations are as they were; those before are executed only where passing over cannot be exact."""
    *program, all_of_them = PLAIN[name]
    executed, _ = select(flor, *program)
    assert executed >= 23 if all_of_them else executed <= 5


LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data import BatchSampler, RandomSampler, Sampler, SubsetRandomSampler, WeightedRandomSampler
torch.manual_seed(7)
class Noisy(Dataset):
    loaded = 0
    def __len__(self):
        return 160
    def __getitem__(self, n):
        Noisy.loaded += 1
        return torch.tensor([float(n)]) + torch.rand(1)
class Drawn(Sampler):
    def __len__(self):
        return 160
    def __iter__(self):
        for _ in range(160):
            yield random.randrange(160)
class Drift(IterableDataset):
    at = 0.0
    def __iter__(self):
        for n in range(160):
            self.at += torch.rand(1).item() if torch.utils.data.get_worker_info() else n
            yield self.at
g = torch.Generator().manual_seed(9)
data = Noisy()
"""
MEAN, COUNT = "item.float().mean().item() + torch.rand(1).item()", "seen.append(Noisy.loaded)"
TORCH: dict[str, tuple[str, str, str, bool]] = {
    "shuffled": ("DataLoader(data, 4, shuffle=True)", MEAN, COUNT, False),
    "in order": ("DataLoader(data, 4)", MEAN, COUNT, False),
    "a generator of its own": ("DataLoader(data, 4, shuffle=True, generator=g)", MEAN, COUNT, False),
    "a random sampler with replacement": (
        "DataLoader(data, 4, sampler=RandomSampler(data, True, 160))", MEAN, COUNT, False,
    ),
    "a subset": ("DataLoader(data, 3, sampler=SubsetRandomSampler(range(120)))", MEAN, COUNT, False),
    "weights": ("DataLoader(data, 4, sampler=WeightedRandomSampler([1.0] * 160, 160))", MEAN, COUNT, False),
    "a batch sampler": (
        "DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 4, False))", MEAN, COUNT, False,
    ),
    "a sampler that draws as it goes": ("DataLoader(data, 4, sampler=Drawn())", MEAN, COUNT, True),
    "no batches": ("DataLoader(data, None)", MEAN, COUNT, False),
    "enumerate": ("enumerate(DataLoader(data, 4, shuffle=True))", MEAN.replace("item.", "item[1].", 1), COUNT, False),
    "zip": ("zip(DataLoader(data, 4, shuffle=True), range(99))", MEAN.replace("item.", "item[0].", 1), COUNT, False),
    "a stream": ("DataLoader(Drift(), 4)", MEAN, NOTHING, False),
    "two workers": ("DataLoader(data, 4, shuffle=True, num_workers=2)", MEAN, COUNT, False),
    "persistent workers": (
        "(dl := DataLoader(data, 4, shuffle=True, num_workers=2, persistent_workers=True))", MEAN, COUNT, False,
    ),
    "a stream from two workers": ("DataLoader(Drift(), 4, num_workers=2)", MEAN, NOTHING, False),
    "an iterator that the program holds": ("(it := iter(DataLoader(data, 4, shuffle=True)))", MEAN, COUNT, False),
}  # fmt: skip


@pytest.mark.needs_torch
@pytest.mark.parametrize("name", TORCH)
def test_data_loaders(name: str, flor: Flor) -> None:
    """Random states, samplers and counters are where they were, and no iteration before those asked for is run."""
    iterable, value, body, all_of_them = TORCH[name]
    executed, _ = select(flor, LOADER, iterable, value, body)
    assert executed >= 23 if all_of_them else executed <= 5


ONE_EPOCH = """
import os, torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(7)
class Data(Dataset):
    def __len__(self):
        return 5000
    def __getitem__(self, n):
        os.write(2, b".")                  # one for each item that is loaded
        return torch.randn(4) + n
net = torch.nn.Linear(4, 1)
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for step, x in enumerate(DataLoader(Data(), shuffle=True)):
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


@pytest.mark.needs_torch
def test_a_few_steps_of_a_long_epoch(flor: Flor) -> None:
    """Of 5,000 steps, ten after the 4,000th: none of those before is run, and next to no item is loaded."""
    flor.write("train.py", ONE_EPOCH)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write(
        "train.py",
        ONE_EPOCH.replace("    opt.step()", "    opt.step(); print('@@', step, loss.item(), x.sum().item())"),
    )
    plain = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    stats = flor.home.parent / "stats.json"
    done = flor("train.py", FLOR_MODE="replay", FLOR_SELECT="step=4000:4011", FLOR_STATS=str(stats))
    assert done.stdout.splitlines() == plain[4000:4011]
    figures = json.loads(stats.read_text())
    # Where a step takes less than a checkpoint, not every boundary is kept: a few steps run before the first.
    assert figures["iterations_executed"] < 100
    assert done.stderr.count(".") < 100


IN_WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset

def scaled(index):
    return index * 2

class Numbers(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        value = scaled(index)
        return value

total = 0
for workers in [0, 1]:
    for epoch in range(3):
        for batch in DataLoader(Numbers(), batch_size=2, num_workers=workers):
            total += int(batch.sum())
print(total)
"""


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("workers", "place"),
    [("[0, 1]", "        return value\n"), ("[1, 1]", "    return index * 2\n")],
    ids=["the data set", "what it calls"],
)
def test_probes_in_the_workers_of_a_loader(flor: Flor, workers: str, place: str) -> None:
    """They run in every epoch, although nothing of that is seen in the process that is recorded."""
    program = IN_WORKERS.replace("[0, 1]", workers)
    flor.write("train.py", program)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    margin = place[: len(place) - len(place.lstrip())]
    probed = program.replace(place, f"{margin}print('@@', index, flush=True)\n{place}")
    flor.write("train.py", probed)
    wanted = [line for line in flor.python("train.py").stdout.splitlines() if line.startswith("@@")]
    assert len(wanted) == 36
    done = flor("train.py", FLOR_MODE="replay")
    assert sorted(done.stdout.splitlines()) == sorted(wanted), done.stderr
    assert "did not come to" not in done.stderr


def test_an_exception_that_a_generator_handled_is_no_place() -> None:
    """Python remembers that there was one."""

    def numbers(fails: bool) -> Iterator[int]:
        for k in range(3):
            with contextlib.suppress(ValueError):
                if fails:
                    raise ValueError
            try:
                int("x" if fails else "1")
            except ValueError:
                pass
            yield k

    quiet, loud = numbers(False), numbers(True)
    assert (next(quiet), next(loud)) == (0, 0)
    found, other = position_of(quiet), position_of(loud)
    assert found[:2] == other[:2]
    assert len(found[2][2]) == len(other[2][2])
