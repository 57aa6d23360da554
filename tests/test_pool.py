"""Several workers: what is divided, and that they print what one prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Flor

from florhook.replay import resources
from florhook.replay.items import BEGINNING, EXIT, Item, divide
from florhook.replay.plan import Question
from florhook.replay.record import Record
from florhook.store.store import Store

TWO_PHASES = """
import random

random.seed(3)
print("start")
weights = [0.0] * 10
curve = []
for epoch in range(12):
    for step in range(20):
        weights[step % 10] += random.random()
    curve.append(sum(weights))
    print("epoch", epoch, round(curve[-1], 3))
print("between", len(curve))
while weights[0] > 0.2:
    weights = [0.8 * weight for weight in weights]
    if weights[1] < 0.3:
        break
else:
    print("no break")
for phase in range(3):
    weights.append(random.random())
else:
    print("over", phase)
print("end", sum(weights))
"""
PROBED = (
    TWO_PHASES.replace(
        "    curve.append", "    print('@@', epoch, weights[3], random.getstate()[1][0])\n    curve.append"
    )
    .replace("    if weights", "    print('@@ w', sum(weights))\n    if weights")
    .replace('print("over"', "print('@@ else', phase, len(weights))\n    print(\"over\"")
    .replace('print("between"', "print('@@ mid', len(curve), curve[-1])\nprint(\"between\"")
    .replace('print("end"', "print('@@ end', weights[-1])\nprint(\"end\"")
)


def stats_of(flor: Flor) -> Any:
    return json.loads((flor.folder / "stats.json").read_text())


def replay(flor: Flor, *options: str, workers: int = 3, **changes: str) -> subprocess.CompletedProcess[str]:
    return flor(
        *options,
        "train.py",
        FLOR_MODE="replay",
        FLOR_WORKERS=str(workers),
        FLOR_STATS="stats.json",
        **changes,
    )


def marked(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("@@"))


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize("log", ["hindsight", "all"])
def test_several_workers_print_what_the_program_prints(flor: Flor, workers: int, log: str) -> None:
    """Loops one after the other, `else`, `break`, and what stands before, between and after them, in program order."""
    flor.write("train.py", TWO_PHASES)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", PROBED)
    wanted = flor.python("train.py").stdout
    done = replay(flor, workers=workers, FLOR_LOG=log)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (wanted if log == "all" else marked(wanted))
    stats = stats_of(flor)
    assert stats["workers"] == workers
    assert stats["iterations_executed"] >= 12
    assert stats["verified"] >= 12
    assert stats["diverged"] == 0


def test_a_selection_is_divided_too(flor: Flor) -> None:
    flor.write("train.py", TWO_PHASES)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", PROBED)
    wanted = [
        line
        for line in flor.python("train.py").stdout.splitlines()
        if line.startswith(("@@ 4 ", "@@ 5 ", "@@ 6 "))
    ]
    done = replay(flor, "--select", "epoch=4:7", workers=2)
    assert done.stdout.splitlines() == wanted
    assert stats_of(flor)["workers"] == 2
    assert stats_of(flor)["iterations_executed"] < 12 * 20, "the other epochs' steps are not among them"


def items_of(flor: Flor, places: set[str], workers: int) -> list[Item]:
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
        marks = frozenset(record.mark_ids[place] for place in places)
        return divide(record, Question(frozenset(places), marks), workers)


def test_items(flor: Flor) -> None:
    """One for each stretch between checkpoints in which something is asked, and one for what follows each loop."""
    flor.write("train.py", TWO_PHASES)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    items = items_of(flor, {"__main__::0"}, 1000)
    epochs = [item for item in items if item.start != EXIT]
    assert [(item.start, item.stop) for item in epochs] == [(k, k + 1 if k < 11 else None) for k in range(12)]
    assert [item.ctx for item in items if item.start == EXIT] == [BEGINNING, epochs[0].ctx]
    assert items[0].out == 0
    assert items[1].out == len("start\n")
    assert [item.until for item in items[:-1]] == [item.out for item in items[1:]]
    assert items[-1].until is None
    assert len(items_of(flor, {"__main__::0"}, 1)) < len(items)
    assert len(items_of(flor, set(), 3)) == 1


FORKS = """
import os

if os.fork() == 0:
    os._exit(0)
os.wait()
"""
FOUND = {"CUDA_VISIBLE_DEVICES": "3, GPU-7,-1"}


def test_gpus_are_given_out_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are several; a variable comes before what the driver says."""
    monkeypatch.setattr(resources, "GPUS", tmp_path)
    assert resources.gpus({}) == []
    (tmp_path / "0000:01:00.0").mkdir()
    assert resources.device_of(1, {}) == {}
    (tmp_path / "0000:02:00.0").mkdir()
    assert [resources.device_of(k, {})["CUDA_VISIBLE_DEVICES"] for k in range(3)] == ["0", "1", "0"]
    assert resources.gpus(FOUND) == ["3", "GPU-7"]
    assert resources.device_of(1, FOUND) == {"CUDA_VISIBLE_DEVICES": "GPU-7"}
    assert resources.gpus({"CUDA_VISIBLE_DEVICES": ""}) == []


def test_as_many_workers_as_there_are_cores_and_memory(flor: Flor, monkeypatch: pytest.MonkeyPatch) -> None:
    flor.write("train.py", TWO_PHASES)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    monkeypatch.setattr(resources, "GPUS", flor.folder / "none")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with Store.open(flor.home) as store:
        record = Record(store, store.find("last"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=100 << 30))
    assert resources.workers_for(record, {}) == 6
    assert resources.workers_for(record, FOUND) == 2
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=4 * 500 << 20))
    assert resources.workers_for(record, {}) == 3, "state counts as well"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=0))
    assert resources.workers_for(record, {}) == 1


CARRIED = (
    PROBED.replace("for epoch", "seen = []\nfor epoch")
    .replace("    curve.append", "    seen.append(epoch)\n    curve.append")
    .replace("print('@@ mid'", "print('@@ seen', seen)\nprint('@@ mid'")
)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (TWO_PHASES, CARRIED, "one process"),
        (
            "import sys\nsys.stdin.read()" + TWO_PHASES,
            "import sys\nsys.stdin.read()" + PROBED,
            "standard input",
        ),
        (FORKS + TWO_PHASES, FORKS + PROBED, "processes of its own"),
    ],
    ids=["values are carried", "stdin", "fork"],
)
def test_what_one_process_has_to_do(flor: Flor, before: str, after: str, reason: str) -> None:
    """Said on stderr; what is printed is the same."""
    flor.write("train.py", before)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", after)
    wanted = flor.python("train.py").stdout
    done = replay(flor)
    assert done.stdout == marked(wanted)
    assert reason in done.stderr
    assert stats_of(flor)["workers"] == 1


SLOW = """
import os
import time

total = 0
for epoch in range(10):
    # A worker among several leads a session. By itself, the call would be skipped.
    if time.sleep(0.5 if os.getsid(0) == os.getpid() else 0.02) is not None:
        break
    total += epoch
print(total)
"""
SLOW_PROBED = SLOW.replace("    total +=", "    print('@@', epoch, total, flush=True)\n    total +=")


class Running:
    """A replay with three workers that goes on for some seconds."""

    def __init__(self, flor: Flor) -> None:
        flor.write("train.py", SLOW)
        assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
        flor.write("train.py", SLOW_PROBED)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "florhook", "train.py"],
            cwd=flor.folder,
            env=flor.environ(FLOR_MODE="replay", FLOR_WORKERS="3", FLOR_STATS="stats.json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def workers(self) -> list[psutil.Process]:
        """Once all have started."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            found = psutil.Process(self.process.pid).children()
            if len(found) == 3:
                return found
            time.sleep(0.01)
        raise AssertionError("no workers")


WANTED = "".join(f"@@ {epoch} {sum(range(epoch))}\n" for epoch in range(10))


def test_a_worker_that_dies_has_its_item_done_again(flor: Flor) -> None:
    running = Running(flor)
    workers = running.workers()
    time.sleep(0.5)
    workers[-1].kill()
    out, errors = running.process.communicate(timeout=60)
    assert (running.process.returncode, out) == (0, WANTED), errors


def test_workers_that_die_again_and_again_leave_it_to_one(flor: Flor) -> None:
    """A program that is killed in one place wherever it leads a session, as it does among several workers."""
    killed = "import os\n" + SLOW.replace(
        "    total",
        "    if epoch == 4 and os.getsid(0) == os.getpid():\n        os.kill(os.getpid(), 9)\n    total",
    )
    flor.write("train.py", killed)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", killed.replace("    total", "    print('@@', epoch, total)\n    total"))
    done = replay(flor)
    assert (done.returncode, done.stdout) == (0, WANTED), done.stderr
    assert done.stderr == "florhook: one process replays this (workers die)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all(flor: Flor, number: int) -> None:
    running = Running(flor)
    workers = running.workers()
    time.sleep(0.2)
    running.process.send_signal(number)
    running.process.communicate(timeout=10)
    assert running.process.returncode == -number
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


def test_nobody_reads_what_is_printed(flor: Flor) -> None:
    running = Running(flor)
    running.workers()
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.process.stdout = None
    _, errors = running.process.communicate(timeout=60)
    assert running.process.returncode in (-signal.SIGPIPE, 0)
    assert "Traceback" not in errors


GRAPHS = """
import time

import torch

w = torch.ones((), dtype=torch.float64, requires_grad=True)
for epoch in range(4):
    terms, losses = [], []
    for step in range(4):
        time.sleep(0.01)
        terms.append(w * step)
    for term in terms:
        time.sleep(0.01)
        losses.append(2 * term)
    total = sum(losses)
    total.backward()
    w.data -= w.grad / 32
    w.grad = None
"""


def test_one_process_that_has_to_begin_again_leaves_out_what_several_have_printed(flor: Flor) -> None:
    """They give up at one loop's graph, and one process at another's: no line is lost, none comes twice.

    The total is 12 w, so that w loses 12/32 in each epoch: 12, 12 - 4.5, 12 - 9, ...
    """
    pytest.importorskip("torch")
    flor.write("train.py", GRAPHS)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    flor.write("train.py", GRAPHS.replace("    total.b", "    print('@@', epoch, total.item())\n    total.b"))
    done = replay(flor, workers=2)
    said = done.stderr.splitlines()
    assert done.stdout == "".join(f"@@ {epoch} {12 - 4.5 * epoch}\n" for epoch in range(4))
    assert [line.partition(" (")[0] for line in said] == [
        "florhook: one process replays this",
        "florhook: a checkpoint cannot be used",
    ]
    assert done.returncode == 0


PENS = """
import csv
import io

total = 0
for epoch in range(6):
    for step in range(4):
        page = io.StringIO()
        pen = csv.writer(page)
        total += sum(range(20000)) % 7 + epoch
    pen.writerow([total])
    for day in range(4):
        sheet = io.StringIO()
        quill = csv.writer(sheet)
        total += sum(range(20000)) % 5 + epoch
    quill.writerow([total])
"""


def test_what_several_have_printed_is_left_out_once(flor: Flor) -> None:
    """Workers print a line and meet one loop that they cannot restore; one process then meets another.

    sum(range(20000)) is a multiple of 7 and of 5, so that each epoch adds 8 times its number.
    """
    flor.write("train.py", PENS)
    assert flor("train.py", FLOR_EPSILON="inf").returncode == 0
    probed = PENS.replace("    for step", "    print('@@', epoch, total)\n    for step")
    flor.write("train.py", probed + "    print('@@ end', epoch, total)\n")
    done = replay(flor, workers=2)
    total = [4 * epoch * (epoch - 1) for epoch in range(7)]
    wanted = "".join(f"@@ {epoch} {total[epoch]}\n@@ end {epoch} {total[epoch + 1]}\n" for epoch in range(6))
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr
    assert "one process replays this" in done.stderr
    assert "a checkpoint cannot be used" in done.stderr
